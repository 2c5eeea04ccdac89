"""Runs a model with some engine in a process of its own.

`OtherEngine` starts this file as a script and talks to it over pipes. The script imports nothing but the engine it is
for, so that two engines never share a process.
"""

from __future__ import annotations

import os
import pickle
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from typing import Any

ENGINES = ("reference", "onnxruntime")  # of which no other names are wanted

# Not as `python FILE`, which would put this folder at the head of the module path.
START = "import runpy, sys; runpy.run_path(sys.argv[1], run_name='__main__')"


class OtherEngine:
    """One of `ENGINES`, or onnx_torch, for one model; a context manager that ends its process.

    Args:
        name: the engine.
        model: a serialized model.
        directory: where its external data lies.
        options: as `onnx_torch.prepare` takes them. onnxruntime heeds ``device`` and ``threads``, the reference none.
    """

    def __init__(self, name: str, model: bytes, directory: str = "", options: Mapping[str, Any] | None = None) -> None:
        self.name = name
        command = [sys.executable, "-c", START, __file__]
        self._process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE)
        try:
            self._call("load", name, model, directory, dict(options or {}))
        except BaseException:
            self.close()
            raise

    def values(self, feeds: dict[str, Any], names: Sequence[str]) -> dict[str, Any]:
        """Values of the main graph, as far as the engine has them."""
        values: dict[str, Any] = self._call("values", feeds, list(names))
        return values

    def time(self, feeds: dict[str, Any], runs: int) -> list[float]:
        """How many seconds each of some runs took."""
        times: list[float] = self._call("time", feeds, runs)
        return times

    def close(self) -> None:
        self._process.kill()
        self._process.communicate()

    def __enter__(self) -> OtherEngine:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _call(self, *request: Any) -> Any:
        from .errors import Error

        assert self._process.stdin is not None and self._process.stdout is not None
        try:
            pickle.dump(request, self._process.stdin)
            self._process.stdin.flush()
            worked, answer = pickle.load(self._process.stdout)
        except (EOFError, OSError) as error:
            raise Error(f"{self.name}: its process ended with code {self._process.wait()}") from error
        if not worked:
            raise Error(f"{self.name}: {answer}")
        return answer


# --- The script -------------------------------------------------------------------------------------------------------


class _Reference:
    def __init__(self, model: bytes, directory: str, options: dict[str, Any]) -> None:
        import onnx
        from onnx.reference import ReferenceEvaluator

        proto = onnx.load_model_from_string(model)
        if directory:
            onnx.load_external_data_for_model(proto, directory)
        self._evaluator = ReferenceEvaluator(proto)
        self._results: Any = None  # by name; compare asks for parts of one run

    def run(self, feeds: dict[str, Any]) -> None:
        self._evaluator.run(None, feeds)

    def values(self, feeds: dict[str, Any], names: list[str]) -> dict[str, Any]:
        if self._results is None:
            self._results = self._evaluator.run(None, feeds, intermediate=True)
        return {name: self._results[name] for name in names if name in self._results}


class _OnnxRuntime:
    def __init__(self, model: bytes, directory: str, options: dict[str, Any]) -> None:
        import onnxruntime  # type: ignore[import-untyped,unused-ignore]

        self._onnxruntime = onnxruntime
        self._model = model
        self._options = onnxruntime.SessionOptions()
        self._options.log_severity_level = 3
        self._device = options.get("device", "CPU")
        self._options.intra_op_num_threads = options.get("threads", 0)
        if directory:
            self._options.add_session_config_entry("session.model_external_initializers_file_folder_path", directory)
        self._session: Any = None

    def run(self, feeds: dict[str, Any]) -> None:
        if self._session is None:
            self._session = self._open(self._model)
        self._session.run(None, feeds)

    def values(self, feeds: dict[str, Any], names: list[str]) -> dict[str, Any]:
        import onnx

        proto = onnx.load_model_from_string(self._model)
        del proto.graph.output[:]
        proto.graph.output.extend(onnx.ValueInfoProto(name=name) for name in names)
        return dict(zip(names, self._open(proto.SerializeToString()).run(names, feeds), strict=True))

    def _open(self, model: bytes) -> Any:
        kind, _, number = self._device.lower().partition(":")
        provider = "CPUExecutionProvider" if kind == "cpu" else "CUDAExecutionProvider"
        options = {} if kind == "cpu" else {"device_id": number or "0"}
        session = self._onnxruntime.InferenceSession(model, self._options, providers=[(provider, options)])
        if session.get_providers()[0] != provider:
            raise RuntimeError(f"it does not run on {self._device} here")
        return session


class _OnnxTorch:
    def __init__(self, model: bytes, directory: str, options: dict[str, Any]) -> None:
        import onnx_torch

        self._rep = onnx_torch.prepare(model, base_dir=directory, **options)

    def run(self, feeds: dict[str, Any]) -> None:
        self._rep.run(feeds)

    def values(self, feeds: dict[str, Any], names: list[str]) -> dict[str, Any]:
        return self._rep.intermediates(feeds, names)


def _timed(engine: Any, feeds: dict[str, Any], runs: int) -> list[float]:
    times = []
    for _ in range(runs):
        start = time.perf_counter()
        engine.run(feeds)
        times.append(time.perf_counter() - start)
    return times


def _serve() -> None:
    requests = sys.stdin.buffer
    answers = os.fdopen(os.dup(1), "wb")
    os.dup2(2, 1)  # what an engine prints must not get among the answers
    engine: Any = None
    while True:
        try:
            action, *arguments = pickle.load(requests)
        except EOFError:
            return
        answer: Any
        try:
            if action == "load":
                name, *rest = arguments
                engine = {"reference": _Reference, "onnxruntime": _OnnxRuntime, "onnx_torch": _OnnxTorch}[name](*rest)
                answer = None
            else:
                answer = engine.values(*arguments) if action == "values" else _timed(engine, *arguments)
            worked = True
        except Exception as error:  # the other side raises it
            worked, answer = False, f"{type(error).__name__}: {error}"
        pickle.dump((worked, answer), answers)
        answers.flush()


if __name__ == "__main__":
    _serve()
