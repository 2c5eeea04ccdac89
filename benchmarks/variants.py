"""The cases that are measured on a device: on a GPU also larger batches of the models, and all of them in float16."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING

from .engines import CPU
from .models import CASES
from .models.case import Case, Network
from .models.export import write_export
from .models.limits import GROUP as LIMITS

if TYPE_CHECKING:
    from torch import Tensor

BATCHES = (8, 64)
NO_BATCH = ("detector", "recommender")  # one looks at its first image alone, the other takes inputs of 16 rows


def cases(device: str, precision: str) -> dict[str, Case]:
    """Gives all models for a device and for what engines compute in there, by their names."""
    if device == CPU:
        return CASES
    found = dict(CASES)
    for case in filter(is_batch_of_one, CASES.values()):
        for batch in BATCHES:
            name = f"{case.name}_batch{batch}"
            found.setdefault(name, changed(case, partial(batch_of, batch), name))
    if precision == "float16":
        return {name: changed(case, in_float16) for name, case in found.items() if case.network}
    return found


def is_batch_of_one(case: Case) -> bool:
    """Tells whether each input's first axis is a batch of 1; of a transformer's two exports, the newer is taken."""
    exported = case.network is not None and case.group != LIMITS
    return exported and case.name not in NO_BATCH and not case.name.endswith(("_batch8", "_torchscript"))


def changed(case: Case, change: Callable[[Network], Network], name: str = "") -> Case:
    """Gives a case whose model is exported after a change."""
    source = partial(after, change, case.network)
    write = partial(write_export, source, case.write.args[1])  # the exporter
    return dataclasses.replace(case, name=name or case.name, network=source, write=write)


def after(change: Callable[[Network], Network], network: Callable[[], Network]) -> Network:
    return change(network())


def batch_of(size: int, network: Network) -> Network:
    return with_inputs(network, lambda one: one.repeat(size, *[1] * (one.dim() - 1)))


def in_float16(network: Network) -> Network:
    network.module.half()
    return with_inputs(network, lambda one: one.half() if one.is_floating_point() else one)


def with_inputs(network: Network, change: Callable[[Tensor], Tensor]) -> Network:
    inputs = [{name: change(one) for name, one in each.items()} for each in network.inputs]
    return dataclasses.replace(network, inputs=inputs)
