"""The time that a model's runs take, here and in other engines."""

from __future__ import annotations

import contextlib
import importlib.util
import os
import statistics
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from ._engines.other_engine import ENGINES, OtherEngine
from ._models.files import directory_of, read_model, with_given_data
from ._models.fixed_shapes import FixedShapes
from ._models.given import External, Model
from ._models.random_feeds import random_inputs
from ._models.trust import trust_of
from ._progress import Progress
from .errors import InputError


@dataclass(frozen=True)
class Latency:
    """The seconds that the runs of one engine took."""

    engine: str
    rounds: tuple[tuple[float, ...], ...]  #: the seconds of each run, round by round

    @property
    def seconds(self) -> list[float]:
        return [second for one in self.rounds for second in one]

    @property
    def median(self) -> float:
        return statistics.median(self.seconds)

    @property
    def mean(self) -> float:
        return statistics.fmean(self.seconds)

    @property
    def fastest(self) -> float:
        return min(self.seconds)

    def percentile(self, percent: float) -> float:
        return float(np.percentile(self.seconds, percent))


@dataclass(frozen=True)
class Ratio:
    """The time of an engine divided by that of ``other``: the rounds' median, and the least and most among them."""

    engine: str
    other: str
    median: float
    least: float
    most: float

    def __str__(self) -> str:
        return (
            f"{self.engine} takes {self.median:.2f} times as long as {self.other} "
            f"({self.least:.2f} to {self.most:.2f} in a round)"
        )


@dataclass(frozen=True)
class Benchmark:
    """The measurements of `bench`."""

    latencies: tuple[Latency, ...]

    def ratios(self) -> list[Ratio]:
        """Compares the first engine with each of the others, by each round's medians, as its runs are close in time."""
        first = self.latencies[0]
        return [_ratio(first, other) for other in self.latencies[1:]]


def bench(
    model: Model,
    inputs: Mapping[str, Any] | Sequence[Any] | None = None,
    engines: Sequence[str] | None = None,
    *,
    rounds: int = 5,
    runs: int = 20,
    warm_up: int = 3,
    device: str = "CPU",
    threads: int = 0,
    seed: int = 0,
    shapes: FixedShapes | None = None,
    base_dir: str | os.PathLike[str] | None = None,
    external: External | None = None,
    limits: Mapping[str, float] | None = None,
    allow_aten: str = "checked",
    links: str = "follow",
    progress: Progress | None = None,
) -> Benchmark:
    """Measures the latency of a model in some engines, each in a process of its own.

    The engines take turns, a round of runs each, so that whatever else the machine does falls on all of them.

    Args:
        model: a ModelProto, its serialized bytes, or a path.
        inputs: by name, or a list; those that are missing are random.
        engines: some of "onnx_torch", "onnxruntime" and "reference"; by default the first, and the second where it is
            installed.
        rounds: how often each engine has its turn.
        runs: how many runs a turn is.
        warm_up: how many runs to do before all.
        device: the device of onnx_torch and onnxruntime.
        threads: their threads; 0 is what each uses by itself.
        seed: the seed of random inputs.
        shapes: sizes of symbolic dimensions.
        base_dir: the directory of the model's external data; for a path, the directory of the file by default.
        external: external data from memory, as `prepare` takes it.
        limits: on onnx_torch, as `prepare` takes them; the other engines have none. Likewise ``allow_aten`` and
            ``links``.
        progress: called with the number of turns taken and of all.

    >>> from onnx import parser
    >>> model = parser.parse_model('''<ir_version: 10, opset_import: ["": 21]>
    ...     net (float[2] x) => (float[2] y) { y = Relu(x) }''')
    >>> found = bench(model, engines=["onnx_torch"], rounds=2, runs=3)
    >>> len(found.latencies[0].seconds)
    6
    """
    if engines is None:
        engines = ["onnx_torch"] + ["onnxruntime"] * (importlib.util.find_spec("onnxruntime") is not None)
    known = ("onnx_torch", *ENGINES)
    for engine in engines:
        if engine not in known:
            raise InputError(f'there is no engine "{engine}" to measure; there are {", ".join(known)}')
    if not engines or rounds < 1 or runs < 1:
        raise InputError("a benchmark takes at least one engine, one round and one run")
    proto = with_given_data(read_model(model), external)
    feeds = random_inputs(proto, seed, shapes, inputs)
    serialized, directory = proto.SerializeToString(), directory_of(model, base_dir)
    options = {
        "device": device,
        "threads": threads,
        "shapes": shapes,
        **trust_of(limits, allow_aten, links),
    }
    with contextlib.ExitStack() as stack:
        running = [stack.enter_context(OtherEngine(engine, serialized, directory, options)) for engine in engines]
        for process in running:
            process.time(feeds, warm_up)
        times = in_turns(running, lambda process: process.time(feeds, runs), rounds, progress)
    return Benchmark(tuple(Latency(name, tuple(found)) for name, found in zip(engines, times, strict=True)))


def in_turns(
    engines: Sequence[OtherEngine],
    measure: Callable[[OtherEngine], Iterable[float]],
    rounds: int,
    progress: Progress | None,
) -> list[list[tuple[float, ...]]]:
    """Measures the engines in turns, round by round, every other round in the opposite order."""
    times: list[list[tuple[float, ...]]] = [[] for _ in engines]
    for number in range(rounds):
        turns = list(enumerate(engines))
        for turn, (i, engine) in enumerate(reversed(turns) if number % 2 else turns, 1):
            times[i].append(tuple(measure(engine)))
            if progress:
                progress(number * len(turns) + turn, rounds * len(turns))
    return times


def ratio_of(engine: str, other: str, ours: Sequence[float], theirs: Sequence[float]) -> Ratio:
    """Divides the times of one engine by those of another, round by round: runs of a round are close in time."""
    found = [one / another for one, another in zip(ours, theirs, strict=True)]
    return Ratio(engine, other, statistics.median(found), min(found), max(found))


def _ratio(one: Latency, other: Latency) -> Ratio:
    ours, theirs = ([statistics.median(runs) for runs in of.rounds] for of in (one, other))
    return ratio_of(one.engine, other.engine, ours, theirs)
