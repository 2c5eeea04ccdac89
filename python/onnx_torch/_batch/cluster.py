"""The resources of the machines of a Ray cluster, and the share that each actor may take of them."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any


def cpu_share(machines: Sequence[float], workers: int) -> float:
    """Finds how many CPUs each actor may ask for, on machines that have so many, so that one is left to read the data.

    Ray starts what reads the data only where a machine has a whole CPU free; actors that leave none wait for ever.
    An actor does not ask for more than one machine has. On machines of one CPU it asks for none, which Ray allows.

    >>> cpu_share([2], 2), cpu_share([8], 3), cpu_share([4, 4], 1), cpu_share([2, 2], 4), cpu_share([1, 1], 2)
    (0.5, 2.0, 3.0, 0.5, 0.0)
    """
    spare = [max(math.floor(cpus) - 1, 0) for cpus in machines]
    whole = range(1, max(spare, default=0) + 1)  # Ray takes no 1.5
    parts = {math.floor(1000 * cpus / n) / 1000 for cpus in spare for n in range(cpus + 1, workers + 1)}
    fits = (share for share in {0.0, *map(float, whole), *parts} if have_room(spare, share, workers))
    return max(fits, default=0.0)


def have_room(machines: Sequence[float], share: float, workers: int) -> bool:
    """Tells whether the machines have room for so many actors of this share."""
    return share == 0 or sum(math.floor(round(cpus / share, 6)) for cpus in machines) >= workers


def machines() -> list[dict[str, float]]:
    """Returns the resources that Ray counts of each machine of the cluster that is alive."""
    import ray

    nodes: list[dict[str, Any]] = ray.nodes()  # type: ignore[no-untyped-call]
    return [{"CPU": 0.0, "GPU": 0.0} | node["Resources"] for node in nodes if node["Alive"]]
