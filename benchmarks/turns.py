"""onnxruntime and onnx_torch in turns, each in a process of its own, with one case after another."""

from __future__ import annotations

import multiprocessing
import statistics
import time
from collections.abc import Callable, Hashable
from multiprocessing.connection import Connection
from typing import Any, NamedTuple

import numpy as np

ENGINES = ("onnxruntime", "onnx_torch")
TURN = 0.08  # seconds

Run = Callable[[], np.ndarray]  # it gives the first output


class Times(NamedTuple):
    """Seconds of a run in the best turn of each engine, and the median of the turns' ratios, theirs over ours."""

    theirs: float
    ours: float
    ratio: float


class Refused(Exception):
    """An engine does not take a case; the message gives its reason."""


class Turns:
    """The processes of the engines, one each. `make` gives a run of a case in an engine, and is called there."""

    def __init__(self, make: Callable[[str, Any, int], Run], threads: int) -> None:
        context = multiprocessing.get_context("spawn")
        self._pipes: dict[str, Connection] = {}
        for engine in ENGINES:
            self._pipes[engine], other = context.Pipe()
            context.Process(target=_serve, args=(make, engine, threads, other), daemon=True).start()

    def __enter__(self) -> Turns:
        return self

    def __exit__(self, *_: object) -> None:
        for pipe in self._pipes.values():
            pipe.send(None)

    def take(self, case: Hashable) -> list[np.ndarray]:
        """Has each engine take a case, and gives the first outputs."""
        return [self._ask(engine, case) for engine in ENGINES]

    def times(self, rounds: int) -> Times:
        """Measures the case that was taken last."""
        turns = [[self._ask(engine, _Turn()) for engine in ENGINES] for _ in range(rounds)]
        theirs, ours = (min(times) for times in zip(*turns, strict=True))
        return Times(theirs, ours, statistics.median(first / second for first, second in turns))

    def _ask(self, engine: str, what: Any) -> Any:
        self._pipes[engine].send(what)
        answer = self._pipes[engine].recv()
        if isinstance(answer, str):
            raise Refused(f"{engine}: {answer}")
        return answer


class _Turn:
    """The request for the seconds of a run."""


def _serve(make: Callable[[str, Any, int], Run], engine: str, threads: int, pipe: Connection) -> None:
    run: Run | None = None
    count = 1
    while (asked := pipe.recv()) is not None:
        if isinstance(asked, _Turn):
            assert run
            start = time.perf_counter()
            for _ in range(count):
                run()
            pipe.send((time.perf_counter() - start) / count)
            continue
        try:
            run = make(engine, asked, threads)
            outputs = [run() for _ in range(5)]
        except Exception as error:
            pipe.send(str(error) or type(error).__name__)
            continue
        start = time.perf_counter()
        run()
        count = max(1, int(TURN / (time.perf_counter() - start)))
        pipe.send(outputs[-1])
