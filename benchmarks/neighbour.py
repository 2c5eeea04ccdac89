"""The same runs while other processes keep the processors busy: how long the slow ones take."""

from __future__ import annotations

import contextlib
import statistics
import subprocess
import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any

from onnx_torch._engines.other_engine import OtherEngine

from . import engines
from .measuring import Measured, Row, Settings, each, start, turn
from .models.case import Case, Feeds, read_inputs

RUNS, TURNS = 1000, 10
COMPARED = (engines.OURS, engines.REFERENCE)
MODELS = ("mlp", "chain", "recommender", "forest", "lstm", "gru", "mobilenet_v3_large", "detector", "speech_front")


@dataclass(frozen=True)
class Spread:
    """Seconds of a run: half take no longer than the median, 99 of 100 no longer than `late`."""

    median: float
    late: float
    worst: float

    @classmethod
    def of(cls, seconds: Sequence[float]) -> Spread:
        ordered = sorted(seconds)
        return cls(statistics.median(ordered), ordered[-max(1, len(ordered) // 100)], ordered[-1])


@contextlib.contextmanager
def busy_processes(count: int) -> Iterator[list[subprocess.Popen[bytes]]]:
    """Starts processes that work without a pause, and end with the block."""
    running = [subprocess.Popen([sys.executable, "-c", "while True: pass"]) for _ in range(count)]
    try:
        yield running
    finally:
        for process in running:
            process.kill()
            process.wait()


def spreads(processes: dict[str, OtherEngine], sets: Sequence[Feeds], row: Row, runs: int = RUNS) -> dict[str, Spread]:
    """Times each engine's runs, a part of them in each of its turns, while the others are paused."""
    seconds: dict[str, list[float]] = {name: [] for name in processes}
    for number in range(TURNS):
        order = list(processes) if number % 2 == 0 else list(processes)[::-1]
        times = each(order, row, lambda name: turn(processes[name], sets, -(-runs // TURNS)))
        for name, found in times.items():
            seconds[name] += found
    return {name: Spread.of(found) for name, found in seconds.items() if not row.engines[name].error}


def measure(
    case: Case,
    folder: Path,
    settings: Settings,
    neighbours: int,
    log: IO[Any] | None = None,
    columns: Sequence[str] = COMPARED,
    runs: int = RUNS,
) -> dict[str, Spread]:
    """Times runs of a model in each engine beside some busy processes; an error of an engine's is raised."""
    sets = read_inputs(folder, case.name)
    row = Row(case.name, case.group, settings.threads, case.tolerance, engines={name: Measured() for name in columns})
    with contextlib.ExitStack() as stack:
        entered = lambda name: start(name, case, folder, sets, settings, log, row.engines[name])
        processes = {name: stack.enter_context(entered(name)).process for name in columns}
        stack.enter_context(busy_processes(neighbours))
        return spreads(processes, sets, row, runs)


def rows(found: dict[str, dict[str, Spread]]) -> Iterator[list[str]]:
    """Gives a table's rows: milliseconds of each engine, and its worst run as a part of the reference's."""
    for model, by_engine in found.items():
        for name, one in by_engine.items():
            times = [f"{1e3 * seconds:.2f}" for seconds in (one.median, one.late, one.worst)]
            yield [model, engines.COLUMNS[name].label, *times, f"{one.worst / by_engine[engines.REFERENCE].worst:.2f}"]


TITLES = ["model", "engine", ">median, ms", ">99 of 100, ms", ">worst, ms", ">worst / onnxruntime's"]
