"""Running a model with some engine in a process of its own.

`OtherEngine` starts this file as a script and talks to it over pipes. The script imports nothing but the engine it is
for, so that two engines never share a process. Another file can bring more engines: classes like those at the end.
"""

from __future__ import annotations

import contextlib
import ctypes
import importlib
import os
import pickle
import runpy
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from typing import IO, Any

ENGINES = ("reference", "onnxruntime")  # the other engines that callers may name

# The script is not run as `python FILE`, which would put this folder at the head of the module path.
START = "import runpy, sys; runpy.run_path(sys.argv[1], run_name='__main__')"


class OtherEngine:
    """One of `ENGINES`, or onnx_torch, with one model; a context manager that ends its process.

    Args:
        name: the engine.
        model: a serialized model, or its path.
        directory: where its external data lies.
        options: as `onnx_torch.prepare` takes them. onnxruntime heeds ``device`` and ``threads``, the reference none.
        modules: the modules to import before the model is loaded.
        imported: called with this object after that.
        script: a file whose ``ENGINES`` are more engines, classes by their names.
        packages: a folder in which the process looks for modules before it looks elsewhere.
        log: where the process writes what it has to say; by default to this process's standard error.
    """

    import_seconds: float  #: the time that importing the modules took
    load_seconds: float  #: the time that the engine took to load the model

    def __init__(
        self,
        name: str,
        model: bytes | str,
        directory: str = "",
        options: Mapping[str, Any] | None = None,
        *,
        modules: Sequence[str] = (),
        imported: Callable[[OtherEngine], object] = lambda engine: None,
        script: str | None = None,
        packages: str = "",
        log: IO[Any] | None = None,
    ) -> None:
        self.name = name
        command = [sys.executable, "-c", START, __file__, *filter(None, [script])]
        folders = os.pathsep.join(filter(None, [packages, os.environ.get("PYTHONPATH")]))
        self._process = subprocess.Popen(
            command,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=log,
            env={**os.environ, "PYTHONPATH": folders} if packages else None,
        )
        self.pid = self._process.pid
        try:
            self.import_seconds = self._call("import", modules)
            imported(self)
            self.load_seconds = self._call("load", name, model, directory, dict(options or {}))
        except BaseException:
            self.close()
            raise

    def values(self, feeds: dict[str, Any], names: Sequence[str]) -> dict[str, Any]:
        """Returns values of the main graph, as far as the engine has them."""
        values: dict[str, Any] = self._call("values", feeds, list(names))
        return values

    def outputs(self, feeds: dict[str, Any]) -> list[Any]:
        """Runs the model and returns its outputs, in order."""
        values: list[Any] = self._call("run", feeds)
        return values

    def time(self, feeds: dict[str, Any] | Sequence[dict[str, Any]], runs: int) -> list[float]:
        """Measures how many seconds each of some runs takes; a run of several inputs takes them in turn."""
        times: list[float] = self._call("time", [feeds] if isinstance(feeds, dict) else list(feeds), runs)
        return times

    def ask(self, request: str, *arguments: Any) -> Any:
        """Returns the answer of a script's engine to a request of its own, which is one of its methods."""
        return self._call(request, *arguments)

    def pause(self) -> None:
        """Stops the process, and so its threads that wait for work."""
        self._process.send_signal(signal.SIGSTOP)

    def resume(self) -> None:
        self._process.send_signal(signal.SIGCONT)

    def close(self) -> None:
        self._process.kill()
        self._process.wait()
        for pipe in (self._process.stdin, self._process.stdout):  # not read to the end, as its children may hold it
            assert pipe is not None
            with contextlib.suppress(BrokenPipeError):
                pipe.close()

    def __enter__(self) -> OtherEngine:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _call(self, *request: Any) -> Any:
        from .. import errors

        assert self._process.stdin is not None and self._process.stdout is not None
        try:
            pickle.dump(request, self._process.stdin)
            self._process.stdin.flush()
            worked, answer = pickle.load(self._process.stdout)
        except (EOFError, OSError) as error:
            raise errors.Error(f"{self.name}: its process ended with code {self._process.wait()}") from error
        if not worked:
            kind, message = answer
            raise errors.named(kind)(f"{self.name}: {kind}: {message}")
        return answer


# --- The script -------------------------------------------------------------------------------------------------------


class _Reference:
    def __init__(self, model: bytes | str, directory: str, options: dict[str, Any]) -> None:
        import onnx
        from onnx.reference import ReferenceEvaluator

        proto = _read(model)
        if directory:
            onnx.load_external_data_for_model(proto, directory)
        self._evaluator = ReferenceEvaluator(proto)
        self._results: Any = None  # by name; compare asks for parts of one run

    def run(self, feeds: dict[str, Any]) -> list[Any]:
        return list(self._evaluator.run(None, feeds))

    def values(self, feeds: dict[str, Any], names: list[str]) -> dict[str, Any]:
        if self._results is None:
            self._results = self._evaluator.run(None, feeds, intermediate=True)
        return {name: self._results[name] for name in names if name in self._results}


class _OnnxRuntime:
    def __init__(self, model: bytes | str, directory: str, options: dict[str, Any]) -> None:
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

    def run(self, feeds: dict[str, Any]) -> list[Any]:
        if self._session is None:
            self._session = self._open(self._model)
        return list(self._session.run(None, feeds))

    def values(self, feeds: dict[str, Any], names: list[str]) -> dict[str, Any]:
        import onnx

        proto = _read(self._model)
        del proto.graph.output[:]
        proto.graph.output.extend(onnx.ValueInfoProto(name=name) for name in names)
        return dict(zip(names, self._open(proto.SerializeToString()).run(names, feeds), strict=True))

    def _open(self, model: bytes | str) -> Any:
        kind, _, number = self._device.lower().partition(":")
        provider = "CPUExecutionProvider" if kind == "cpu" else "CUDAExecutionProvider"
        options = {} if kind == "cpu" else {"device_id": number or "0"}
        session = self._onnxruntime.InferenceSession(model, self._options, providers=[(provider, options)])
        if session.get_providers()[0] != provider:
            raise RuntimeError(f"it does not run on {self._device} here")
        return session


class _OnnxTorch:
    def __init__(self, model: bytes | str, directory: str, options: dict[str, Any]) -> None:
        import onnx_torch

        self._rep = onnx_torch.prepare(model, base_dir=directory or None, **options)

    def run(self, feeds: dict[str, Any]) -> list[Any]:
        return list(self._rep.run(feeds))

    def values(self, feeds: dict[str, Any], names: list[str]) -> dict[str, Any]:
        return self._rep.intermediates(feeds, names)

    def trim(self) -> None:
        self._rep.trim()


def _read(model: bytes | str) -> Any:
    import onnx

    if isinstance(model, str):
        return onnx.load(model, format="protobuf", load_external_data=False)
    return onnx.load_model_from_string(model)


def _timed(action: Callable[[], object]) -> float:
    start = time.perf_counter()
    action()
    return time.perf_counter() - start


class _Server:
    """The answers of the process, by the names of requests; an engine's own methods come first."""

    def __init__(self, engines: Mapping[str, Callable[..., Any]]) -> None:
        self._engines = engines
        self._engine: Any = None

    def answer(self, action: str, *arguments: Any) -> Any:
        own: dict[str, Callable[..., Any]] = {"import": self._import, "load": self._load, "time": self._time}
        return (getattr(self._engine, action, None) or own[action])(*arguments)

    def _import(self, modules: Sequence[str]) -> float:
        return _timed(lambda: [importlib.import_module(module) for module in modules])

    def _load(self, name: str, *arguments: Any) -> float:
        def load() -> None:
            self._engine = self._engines[name](*arguments)

        return _timed(load)

    def _time(self, sets: list[dict[str, Any]], runs: int) -> list[float]:
        run = self._engine.run
        return [_timed(lambda: [run(feeds) for feeds in sets]) for _ in range(runs)]


def _end_with_parent() -> None:
    """Has the kernel end this process, even while it is paused, along with the one that started it."""
    if sys.platform == "linux":
        pr_set_pdeathsig = 1
        ctypes.CDLL(None).prctl(pr_set_pdeathsig, signal.SIGKILL)


def _serve(server: _Server) -> None:
    requests = sys.stdin.buffer
    answers = os.fdopen(os.dup(1), "wb")
    os.dup2(2, 1)  # an engine's own output must not get among the answers
    while True:
        try:
            request = pickle.load(requests)
        except EOFError:
            return
        answer: Any
        try:
            worked, answer = True, server.answer(*request)
        except Exception as error:  # the other side raises it
            worked, answer = False, (type(error).__name__, str(error))
        pickle.dump((worked, answer), answers)
        answers.flush()


if __name__ == "__main__":
    _end_with_parent()
    known = {"reference": _Reference, "onnxruntime": _OnnxRuntime, "onnx_torch": _OnnxTorch}
    for script in sys.argv[2:]:
        known |= runpy.run_path(script)["ENGINES"]
    _serve(_Server(known))
