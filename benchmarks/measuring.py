"""The measurement of one model in all engines, in turns, while nothing else runs."""

from __future__ import annotations

import contextlib
import os
import signal
import statistics
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import IO, Any, TypeVar

import numpy as np

from onnx_torch._engines.other_engine import OtherEngine
from onnx_torch.errors import Error

from . import engines, machine
from .models.case import Case, Feeds, model_file, read_inputs

T = TypeVar("T")

NOISE = 0.05  # the part of a processor that other processes may take during a round
COMPARED_LOADS = (engines.OURS, engines.REFERENCE, engines.OURS_AGAIN, engines.OTHER_BUILD)
BRIEF = 5.0  # seconds; a load that takes less is measured more than once


@dataclass(frozen=True)
class Settings:
    """The settings of a measurement.

    Attributes:
        rounds: how often each engine has its turn.
        turn: how many seconds a turn takes, or one run, if that is longer.
        repeats: how many rounds of a model, and turns of loads, may be discarded for noise; what comes after is kept
            and called noisy.
        limit: how many seconds an engine has to load a model and run it once.
        device: "cpu", or "cuda:N" for a GPU.
        precision: what engines compute in on a GPU; on the CPU the columns tell.
        loads: how often the engines of `COMPARED_LOADS` load a model, if that takes them less than `BRIEF`.
        isa: the level that `./dev bench --isa` holds the engines to; empty for all that the CPU has.
        cpu: the widest instructions that the CPU has.
        other_build: the folder that holds another build's package, to compare it with this one; empty without one.
    """

    threads: int = 2
    rounds: int = 11
    turn: float = 0.2
    repeats: int = 6
    limit: float = 300
    loads: int = 5
    device: str = engines.CPU
    precision: str = "float32"
    isa: str = ""
    cpu: str = "avx512"
    other_build: str = ""

    @property
    def on_gpu(self) -> bool:
        return self.device != engines.CPU

    @property
    def key(self) -> str:
        """The name that tells results apart that are kept together."""
        if self.on_gpu:
            return f"cuda {self.precision}"
        cpu = "" if self.isa or self.cpu == "avx512" else f"on {self.cpu}"
        return " ".join(filter(None, [f"{self.threads} threads", self.isa, cpu]))

    def __str__(self) -> str:
        if self.on_gpu:
            return f"{self.device}, {self.precision}"
        threads = "1 thread" if self.threads == 1 else f"{self.threads} threads"
        return f"{threads}, held to {self.isa}" if self.isa else threads


@dataclass
class Measured:
    """The figures of one engine with one model, or why there are none. The figures of loads are medians."""

    error: str = ""
    rounds: list[float] = field(default_factory=list)  #: the median seconds of a run, round by round
    precision: str = ""  #: the type that it computed in
    difference: float = 0  #: that of its outputs from the reference's, as a part of an output's largest element
    import_seconds: float = 0
    start_seconds: float = 0  #: from after the imports to the end of the first run
    memory: int = 0  #: bytes: the peak of that time, over what there was after the imports
    others: float = 0  #: processors that others took in that time, but for what clocks may be wrong by


@dataclass
class Row:
    """The figures of one model in all engines."""

    case: str
    group: str
    threads: int
    tolerance: float
    noisy: bool = False
    engines: dict[str, Measured] = field(default_factory=dict)


@dataclass
class Started:
    process: OtherEngine
    outputs: list[Any]


def measure(
    case: Case,
    folder: Path,
    columns: Sequence[str],
    settings: Settings,
    log: IO[Any] | None = None,
    progress: Callable[[int, int], None] = lambda done, of: None,
) -> Row:
    """Measures the model of a case that was made into a folder."""
    columns = [name for name in columns if suits(engines.COLUMNS[name], case)]
    row = Row(case.name, case.group, settings.threads, case.tolerance)
    sets, steps = read_inputs(folder, case.name), len(columns) + settings.rounds
    row.engines = {name: Measured() for name in columns}
    model_file(folder, case.name).read_bytes()  # so that the first engine, too, finds it in the system's cache
    with contextlib.ExitStack() as stack:

        def enter(name: str) -> Started:
            progress(columns.index(name), steps)
            return stack.enter_context(start(name, case, folder, sets, settings, log, row.engines[name]))

        def load_again(name: str) -> Measured:
            found = Measured()
            with start(name, case, folder, sets, settings, log, found):
                return found

        running = each(columns, row, enter)
        noisy_loads = repeat_loads(row, running, settings, load_again)
        find_disagreeing(row, {name: one.outputs for name, one in running.items()})
        processes = {name: one.process for name, one in running.items() if not row.engines[name].error}
        noisy_turns = take_turns(processes, sets, settings, row, lambda done: progress(len(columns) + done, steps))
        row.noisy = noisy_loads or noisy_turns
    return row


def each(names: Iterable[str], row: Row, action: Callable[[str], T]) -> dict[str, T]:
    """Does something with each engine; one that fails has no result, and the row tells why."""
    found = {}
    for name in names:
        try:
            found[name] = action(name)
        except Error as error:
            row.engines[name].error = row.engines[name].error or str(error)
            row.engines[name].rounds.clear()
    return found


def suits(engine: engines.Engine, case: Case) -> bool:
    """Tells whether a column is for a case."""
    return engine.bound in ("", case.bound) and (case.source is not None or not engine.of_source)


@contextlib.contextmanager
def start(
    name: str, case: Case, folder: Path, sets: Sequence[Feeds], settings: Settings, log: IO[Any] | None, found: Measured
) -> Iterator[Started]:
    """Starts an engine, which then has loaded the model and run it, and is paused."""
    engine = engines.COLUMNS[name]
    base: int
    others: Others

    def imported(process: OtherEngine) -> None:
        nonlocal base, others
        if name in COMPARED_LOADS:
            machine.take_memory()
        base = machine.memory(process.pid, "VmRSS")
        machine.forget_peak(process.pid)
        timer.args = (process.pid,)
        timer.start()
        others = Others([os.getpid(), process.pid])

    def end(pid: int) -> None:
        found.error = f"it did not load the model and run it once in {settings.limit:g} s"
        os.kill(pid, signal.SIGKILL)

    model = case.source if engine.of_source and case.source else case
    timer = threading.Timer(settings.limit, end)
    options = {"threads": settings.threads, **engine.options, **({"case": case.name} if engine.from_source else {})}
    if settings.on_gpu:
        options |= {"device": settings.device, "precision": settings.precision}
    try:
        with OtherEngine(
            engine.class_for(settings.device),
            str(model_file(folder, model.name)),
            options=options,
            modules=("torch", *engine.modules) if settings.on_gpu else engine.modules,
            imported=imported,
            script=engines.__file__,
            packages=settings.other_build if name == engines.OTHER_BUILD else "",
            log=log,
        ) as process:
            found.import_seconds = process.import_seconds
            found.start_seconds = process.load_seconds + process.time(sets[0], 1)[0]
            found.others = others.processors(but=2 / machine.TICKS)
            found.memory = machine.memory(process.pid, "VmHWM") - base
            outputs = [output for feeds in sets for output in process.outputs(feeds)]
            timer.cancel()
            found.precision = settings.precision if settings.on_gpu else engine.precision or process.ask("precision")
            process.pause()
            yield Started(process, outputs)
    finally:
        timer.cancel()


class Repeats:
    """A number of repetitions of what others disturbed; what comes after them is kept and called noisy."""

    def __init__(self, most: int) -> None:
        self.left, self.noisy = most, False

    def quiet(self, once: Callable[[], tuple[T, float]]) -> T:
        """Gives the result of doing something, which tells how many processors others took; repeats it if too many."""
        while True:
            result, others = once()
            if others <= NOISE:
                return result
            if self.left == 0:
                self.noisy = True
                return result
            self.left -= 1


def repeat_loads(row: Row, running: Iterable[str], settings: Settings, load_again: Callable[[str], Measured]) -> bool:
    """Loads once more, in turns, what was loaded quickly by the engines whose loads are compared.

    Returns whether some of that was noisy.
    """
    names = [name for name in COMPARED_LOADS if name in running]
    found = {name: [row.engines[name]] for name in names if row.engines[name].start_seconds < BRIEF}

    def one_turn() -> tuple[dict[str, Measured], float]:
        loads = each(found, row, load_again)
        return loads, max((load.others for load in loads.values()), default=0)

    repeats = Repeats(settings.repeats)
    for _ in range(settings.loads - 1):
        for name, one in repeats.quiet(one_turn).items():
            found[name].append(one)
    for name, all_loads in found.items():
        one = row.engines[name]
        one.import_seconds = statistics.median(load.import_seconds for load in all_loads)
        one.start_seconds = statistics.median(load.start_seconds for load in all_loads)
        one.memory = int(statistics.median(load.memory for load in all_loads))
        one.others = statistics.median(load.others for load in all_loads)
    return repeats.noisy


def find_disagreeing(row: Row, outputs: dict[str, list[Any]]) -> None:
    """Gives an error to engines whose outputs are not those of onnxruntime, else of torch, else of the first engine."""
    first = next(iter(outputs.values()), [])
    reference = outputs.get(engines.REFERENCE) or outputs.get("torch") or first
    for name, values in outputs.items():
        if engines.COLUMNS[name].of_source:
            continue  # a file of few bits gives other outputs than its source
        measured = row.engines[name]
        measured.difference = max_difference(values, reference)
        allowed = allowed_difference(row, measured)
        if not measured.difference <= allowed:
            measured.error = f"its outputs differ by {measured.difference:.2g} of the largest element, over {allowed:g}"


def allowed_difference(row: Row, measured: Measured) -> float:
    return max(row.tolerance, engines.TOLERANCES[measured.precision])


def max_difference(values: Sequence[Any], reference: Sequence[Any]) -> float:
    """Finds the largest difference of two lists of arrays, each as a part of the reference's largest element."""
    if [value.shape for value in values] != [value.shape for value in reference]:
        return float("inf")
    pairs = [(a.astype(np.float64), b.astype(np.float64)) for a, b in zip(values, reference, strict=True) if b.size]
    return max((float(np.abs(a - b).max() / (np.abs(b).max() or 1)) for a, b in pairs), default=0.0)


def take_turns(
    processes: Mapping[str, OtherEngine],
    sets: Sequence[Feeds],
    settings: Settings,
    row: Row,
    progress: Callable[[int], None] = lambda done: None,
) -> bool:
    """Adds the rounds' times to a row; returns whether some of them were noisy."""
    runs = each(processes, row, lambda name: runs_in_turn(processes[name], sets, settings.turn))
    repeats = Repeats(settings.repeats)

    def one_turn_each(step: int) -> tuple[dict[str, list[float]], float]:
        times, others = one_round({name: processes[name] for name in list(runs)[::step]}, sets, runs, row)
        for name in runs.keys() - times.keys():
            del runs[name]
        return times, others

    for number in range(settings.rounds):
        times = repeats.quiet(partial(one_turn_each, -1 if number % 2 else 1))
        for name, seconds in times.items():
            row.engines[name].rounds.append(statistics.median(seconds))
        progress(number + 1)
    return repeats.noisy


def one_round(
    processes: Mapping[str, OtherEngine], sets: Sequence[Feeds], runs: Mapping[str, int], row: Row
) -> tuple[dict[str, list[float]], float]:
    """Gives each engine its turn; returns the times, and how many processors others took meanwhile."""
    others = Others([os.getpid(), *(process.pid for process in processes.values())])
    times = each(processes, row, lambda name: turn(processes[name], sets, runs[name]))
    return times, others.processors()


class Others:
    """The work of all processes but some, from now on."""

    def __init__(self, pids: Sequence[int], proc: Path = machine.PROC) -> None:
        self._pids, self._proc = pids, proc
        self._began, self._before = time.monotonic(), machine.other_seconds(pids, proc)

    def processors(self, but: float = 0) -> float:
        """Counts the processors that they took; some seconds may be left out."""
        seconds = machine.other_seconds(self._pids, self._proc) - self._before
        return (seconds - but) / (time.monotonic() - self._began)


def runs_in_turn(process: OtherEngine, sets: Sequence[Feeds], seconds: float) -> int:
    """Finds how many runs take some seconds; it also warms up."""
    runs, most = 1, 2000
    while True:
        took = sum(turn(process, sets, runs)) * len(sets)
        if took >= seconds / 2 or runs == most:
            return max(1, min(most, round(runs * seconds / took)))
        runs = min(most, 4 * runs)


def turn(process: OtherEngine, sets: Sequence[Feeds], runs: int) -> list[float]:
    process.resume()
    seconds = [one / len(sets) for one in process.time(sets, runs)]
    process.pause()
    return seconds
