"""Trials of an overload, in a process that it may end."""

from __future__ import annotations

import ctypes
import mmap
import os
import resource
import signal
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch

from .arguments import Drawer
from .examples import examples
from .operators import Overload
from .tensors import made

FILLINGS = (0x11, 0xEE)  # bytes that stand in memory which nobody has written
MALLOPT_PERTURB = -6
IDLE = 20  # a call that does nothing, or waits for a processor, may take so many times as long as it may compute
NOTES = 1 << 16  # bytes
COMPARED = 1 << 20  # elements of a result


@dataclass(frozen=True)
class Limits:
    """The limits of a process."""

    seconds: float = 10  # of a processor's time, for one call
    memory: float = 2**30  # bytes, besides those that it has already


@dataclass(frozen=True)
class Outcome:
    """The outcome of an overload's trials."""

    overload: Overload
    calls: int
    good: int  # calls that gave a result
    fault: str  # empty where there is none
    arguments: str  # those of the call with the fault


def tried(overloads: Iterable[Overload], calls: int, seed: int, limits: Limits, jobs: int) -> Iterator[Outcome]:
    """Tries each overload, and gives the outcomes as they come."""
    waiting = list(overloads)[::-1]
    running: dict[int, tuple[Overload, mmap.mmap]] = {}
    while waiting or running:
        while waiting and len(running) < jobs:
            overload, notes = waiting.pop(), mmap.mmap(-1, NOTES)
            process = os.fork()
            if not process:
                _try_all(overload, calls, seed, limits, notes)
            running[process] = (overload, notes)
        process, status = os.wait()
        overload, notes = running.pop(process)
        yield _outcome(overload, status, notes)


class _Notes:
    """The notes of what the process has tried so far, which the parent reads when it is gone."""

    def __init__(self, memory: mmap.mmap) -> None:
        self.memory = memory
        self.calls = self.good = 0

    def write(self, arguments: object, fault: str = "") -> None:
        text = f"{self.calls}\n{self.good}\n{fault}\n{arguments}".encode(errors="replace")[: NOTES - 1]
        self.memory[: len(text) + 1] = text + b"\0"


def _outcome(overload: Overload, status: int, memory: mmap.mmap) -> Outcome:
    calls, good, fault, arguments = memory[:].partition(b"\0")[0].decode(errors="replace").split("\n", 3)
    if os.WIFSIGNALED(status):
        number = signal.Signals(os.WTERMSIG(status))
        hangs = number in (signal.SIGPROF, signal.SIGALRM)
        fault = "takes too long" if hangs else f"ends the process ({number.name})"
    elif os.WEXITSTATUS(status) == 3:
        fault = fault or "?"
    elif os.WEXITSTATUS(status):
        fault = f"ends the process (exit code {os.WEXITSTATUS(status)})"
    return Outcome(overload, int(calls), int(good), fault, arguments if fault else "")


def _try_all(overload: Overload, calls: int, seed: int, limits: Limits, memory: mmap.mmap) -> None:
    notes = _Notes(memory)
    notes.write("")
    try:
        _confine(limits)
        for arguments in _series(overload, calls, seed, notes):
            notes.write(arguments)
            signal.setitimer(signal.ITIMER_PROF, limits.seconds)
            signal.setitimer(signal.ITIMER_REAL, IDLE * limits.seconds)
            fault = _fault_of(overload, arguments, notes)
            notes.calls += 1
            notes.write(arguments, fault)
            if fault:
                os._exit(3)
        os._exit(0)
    except BaseException as error:
        notes.write("", f"the trial itself failed: {error!r}")
        os._exit(3)


def _confine(limits: Limits) -> None:
    sizes = dict(line.split(":", 1) for line in Path("/proc/self/status").read_text().splitlines())
    has = int(sizes["VmData"].split()[0]) * 1024
    resource.setrlimit(resource.RLIMIT_DATA, (has + int(limits.memory),) * 2)
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    for number in (signal.SIGPROF, signal.SIGALRM):
        signal.signal(number, signal.SIG_DFL)
    errors = os.open(os.devnull, os.O_WRONLY)
    os.dup2(errors, 1)
    os.dup2(errors, 2)


def _series(overload: Overload, calls: int, seed: int, notes: _Notes) -> Iterator[dict[str, Any]]:
    """Gives examples and likely arguments first; then those that worked, mutated."""
    drawer = Drawer(overload, seed)
    found: list[dict[str, Any]] = []

    def first() -> Iterator[dict[str, Any]]:
        yield from examples(overload.name, {argument.name for argument in overload.schema.arguments})
        for _ in range(2 * calls):
            if len(found) >= 20:
                return
            yield drawer.likely()

    for arguments in first():
        good = notes.good
        yield arguments
        if notes.good > good:
            found.append(arguments)
    for _ in range(calls):
        rest = drawer.draw.random()
        if rest < 0.1 or not found:
            yield drawer.hostile()
        else:
            mutant = drawer.mutated(drawer.draw.choice(found))
            good = notes.good
            yield mutant
            if notes.good > good and len(found) < 60:
                found.append(mutant)


def _fault_of(overload: Overload, arguments: dict[str, Any], notes: _Notes) -> str:
    """Tells what is wrong with a call; nothing where it gives a result, or throws."""
    results = []
    try:
        for filling in FILLINGS:
            given = {name: made(value) for name, value in arguments.items()}
            before = _bytes_of(given)
            torch.manual_seed(1)
            state = _state()
            _fill(filling)
            try:
                with torch.inference_mode():
                    results.append(_bytes_of(overload.call(given)))
            except Exception:
                results.append(None)
            if _state() != state:
                return "changes the process's settings"
            if _bytes_of(given) != before:
                return "changes its arguments"
            if not results[-1]:
                return ""
    except (RuntimeError, MemoryError, ValueError, OverflowError):
        return ""  # the trial's own work takes too much memory, or the numbers do not suit the type
    notes.good += 1
    return "" if results[0] == results[1] else "reads memory that it has not written"


def _state() -> tuple[Any, ...]:
    return (
        torch.initial_seed(),
        torch.is_grad_enabled(),
        torch.get_num_threads(),
        torch.get_default_dtype(),
        torch.is_autocast_enabled("cpu"),
    )


def _fill(byte: int) -> None:
    process = ctypes.CDLL(None)
    process.guard_fill(byte)
    process.mallopt(MALLOPT_PERTURB, byte)


def _bytes_of(value: Any) -> list[Any]:
    """Gives all that a value holds, each element read."""
    if isinstance(value, torch.Tensor):
        return [_bytes(value)]
    if isinstance(value, dict):
        return _bytes_of(list(value.values()))
    if isinstance(value, (list, tuple)):
        return [part for item in value for part in _bytes_of(item)]
    return [repr(value)]


def _bytes(tensor: torch.Tensor) -> tuple[Any, ...]:
    shape = tuple(tensor.shape)
    if tensor.layout != torch.strided or tensor.is_quantized:
        return (str(tensor.layout), shape)
    if tensor.numel() > COMPARED:
        tensor = tensor.flatten()[:COMPARED] if tensor.is_contiguous() else tensor[(0,) * tensor.dim()]
    plain = tensor.resolve_conj().resolve_neg().contiguous()
    return (shape, tensor.dtype, ctypes.string_at(plain.data_ptr(), plain.nbytes) if plain.numel() else b"")
