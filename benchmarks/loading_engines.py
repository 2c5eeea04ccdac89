"""Engines that load models again and again, for `onnx_torch._engines.other_engine` to run: see `benchmarks.loading`."""

from __future__ import annotations

import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

Run = Callable[[dict[str, Any]], Any]


def seconds(action: Callable[[], object]) -> float:
    start = time.perf_counter()
    action()
    return time.perf_counter() - start


class Loader:
    """An engine that answers the requests of `benchmarks.loading` about one model; a class of it has `load`."""

    def __init__(self, model: str, directory: str, options: dict[str, Any]) -> None:
        self._model, self._threads = model, options["threads"]
        self._held: list[Run] = []

    def load(self) -> Run:
        raise NotImplementedError

    def first_runs(self, feeds: dict[str, Any], count: int) -> list[float]:
        """Gives the seconds from the model's path to the end of the first run, some times in a row."""
        return [seconds(lambda: self.load()(feeds)) for _ in range(count)]

    def hold(self, count: int) -> None:
        """Loads the model some times, to be run below."""
        self._held = [self.load() for _ in range(count)]

    def alone(self, feeds: dict[str, Any], runs: int) -> list[float]:
        """Times runs of one of the models that are held."""
        return [seconds(lambda: self._held[0](feeds)) for _ in range(runs)]

    def runs(self, feeds: dict[str, Any], most: float) -> list[float]:
        """Times runs of it for so many seconds in all, the first half of which does not count."""
        few = 3
        each = min(self.alone(feeds, few))
        count = max(2 * few, int(most / max(each, 1e-6)))
        return self.alone(feeds, count)[count // 2 :]

    def in_turn(self, feeds: dict[str, Any], runs: int) -> list[float]:
        """Times runs, each of another of the held models than the one before."""
        return [seconds(lambda run=run: run(feeds)) for _ in range(runs) for run in self._held]  # type: ignore[misc]

    def at_once(self, feeds: dict[str, Any], runs: int) -> float:
        """Times all held models together, each in a thread of its own."""

        def work(run: Run) -> None:
            for _ in range(runs):
                run(feeds)

        with ThreadPoolExecutor(len(self._held)) as pool:
            return seconds(lambda: list(pool.map(work, self._held)))


class OnnxTorch(Loader):
    def load(self) -> Run:
        import onnx_torch

        return onnx_torch.prepare(self._model, threads=self._threads).run


class OnnxRuntime(Loader):
    def load(self) -> Run:
        import onnxruntime  # type: ignore[import-untyped,unused-ignore]

        options = onnxruntime.SessionOptions()
        options.log_severity_level = 3
        options.intra_op_num_threads = self._threads
        session = onnxruntime.InferenceSession(self._model, options, providers=["CPUExecutionProvider"])
        return lambda feeds: session.run(None, feeds)


ENGINES = {"onnx_torch": OnnxTorch, "onnxruntime": OnnxRuntime}
