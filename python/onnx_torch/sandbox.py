"""Models that nobody trusts, each in a process of its own, without network, with no files but the model's folder.

>>> import onnx_torch.sandbox
>>> with onnx_torch.sandbox.prepare("model.onnx") as model:  # doctest: +SKIP
...     outputs = model.run(inputs)
"""

from __future__ import annotations

import importlib.util
import os
import signal
import socket
import subprocess
import sys
import threading
import weakref
from collections.abc import Iterable, Mapping, Sequence
from typing import IO, Any

import numpy as np

from . import errors
from ._models.given import Model, serialized
from ._sandbox.channel import Channel, shared_memory
from ._sandbox.shared_values import describe, place, restore, size
from .errors import DeviceError, Error, InputError, StoppedError
from .prepared_model import named_outputs

__all__ = ["LIMITS", "SandboxedModel", "prepare"]

#: The limits of a model where `prepare` is given no others.
LIMITS = {"prepare_seconds": 60.0, "seconds": 60.0, "memory": 4e9}

_GRACE = 1.0  # seconds after which a process that should have stopped by itself is killed
_STARTING = 60.0  # seconds for a process to begin: it imports what it needs
_PASSED_ON = (
    "ATEN_",
    "DNNL_",
    "GOMP_",
    "KMP_",
    "LANG",
    "LC_",
    "LD_LIBRARY_PATH",
    "MKL_",
    "OMP_",
    "ONEDNN_",
    "ONNX_TORCH_",
)


def prepare(
    model: Model,
    device: str = "CPU",
    *,
    base_dir: str | os.PathLike[str] | None = None,
    limits: Mapping[str, float | None] | None = None,
    precision: str = "float32",
    optimize: bool = True,
    disabled_passes: Iterable[str] = (),
    threads: int = 0,
    shapes: Mapping[str, int] | None = None,
    allow_aten: str = "checked",
    links: str = "follow",
    log: IO[Any] | int = subprocess.DEVNULL,
) -> SandboxedModel:
    """Prepares a model as `onnx_torch.prepare` does, in a process that is confined before it sees the model.

    Args:
        limits: those of `onnx_torch.prepare`, over `LIMITS`; None for one lifts it. After ``prepare_seconds`` and
            ``seconds`` the process is killed where it does not stop by itself, and ``memory`` is what it may take for
            the model and its runs.
        log: where the process writes the messages of libraries; nowhere by default.

    All other arguments are those of `onnx_torch.prepare`.
    """
    if str(device).upper() not in ("CPU", "CPU:0"):
        raise DeviceError(f"a sandbox runs models on the CPU only, not on {device!r}")
    options = {
        "precision": precision,
        "optimize": optimize,
        "disabled_passes": sorted(disabled_passes),
        "threads": threads,
        "shapes": dict(shapes or {}),
        "allow_aten": allow_aten,
        "links": links,
    }
    return SandboxedModel(model, base_dir, {**LIMITS, **(limits or {})}, options, log)


class SandboxedModel:
    """A model in a process of its own, which ends with this object; runs of several threads come one after another.

    Attributes:
        inputs: the inputs, as those of `onnx_torch.PreparedModel`.
        outputs: the outputs, likewise.
        measures: the measures that keep the process from doing harm on this system, in words.
    """

    inputs: list[tuple[str, str, list[int | str | None] | None, bool]]
    outputs: list[tuple[str, str]]
    measures: list[str]

    def __init__(
        self,
        model: Model,
        base_dir: str | os.PathLike[str] | None,
        limits: Mapping[str, float | None],
        options: dict[str, Any],
        log: IO[Any] | int = subprocess.DEVNULL,
    ) -> None:
        self._limits = limits
        self._lock = threading.Lock()
        path = os.path.abspath(model) if isinstance(model, (str, os.PathLike)) else None
        folder = None if base_dir is None else os.path.abspath(base_dir)
        given = None if path else np.frombuffer(serialized(model), np.uint8)  # type: ignore[arg-type]
        self._process, self._channel = _start(log)
        self.close = weakref.finalize(self, _end, self._process, self._channel)  # ends the process
        try:
            confinement = {"readable": _readable(path, folder), "memory": limits["memory"] and int(limits["memory"])}
            self.measures = self._ask(confinement, _STARTING)["measures"]
            native = {name: most for name, most in limits.items() if most is not None}
            request = {"do": "prepare", "path": path, "base_dir": folder, "options": {**options, "limits": native}}
            told = self._ask(request, limits["prepare_seconds"], given)
            self.inputs, self.outputs = self._interface(told)
        except BaseException:
            self.close()
            raise

    def run(self, inputs: Any = None, *, output_names: Sequence[str] | None = None) -> tuple[Any, ...]:
        """Runs the model as `onnx_torch.PreparedModel.run` does, on inputs that become numpy arrays."""
        names = tuple(output_names) if output_names else tuple(name for name, _ in self.outputs)
        with self._lock:
            request = {"do": "run", "output_names": list(output_names) if output_names else None}
            told = self._ask(request, self._limits["seconds"], inputs)
            values = self._values(told)
        if not isinstance(values, list) or len(values) != len(names):
            raise self._failed("gave something that is no outputs")
        return named_outputs(names, values)

    def __enter__(self) -> SandboxedModel:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _ask(self, request: dict[str, Any], seconds: float | None, value: Any = None) -> dict[str, Any]:
        """Sends a request, with a value that belongs to it, and returns the answer."""
        arrays: list[np.ndarray[Any, Any]] = []
        try:
            described = describe(value, arrays)
        except (TypeError, ValueError) as error:
            raise InputError(f"the inputs cannot be passed to another process: {error}") from error
        with shared_memory(size(arrays)) as (memory, descriptor):
            place(arrays, memory)
            return self._exchange({**request, "value": described}, descriptor, seconds)

    def _interface(self, told: dict[str, Any]) -> tuple[list[Any], list[Any]]:
        """Reads the model's inputs and outputs from the process's answer."""
        try:
            inputs = [(str(name), str(type_), shape, bool(default)) for name, type_, shape, default in told["inputs"]]
            return inputs, [(str(name), str(type_)) for name, type_ in told["outputs"]]
        except (KeyError, TypeError, ValueError) as error:
            raise self._failed(f"gave something that is no inputs and outputs: {error!r}") from error

    def _values(self, told: dict[str, Any]) -> Any:
        """Returns the values that the process has, copied to where it cannot change them."""
        bytes_, most = told.get("bytes"), self._limits["memory"]
        if type(bytes_) is not int or bytes_ < 0 or (most is not None and bytes_ > most):
            raise self._failed(f"has outputs of {bytes_} bytes")
        try:
            with shared_memory(bytes_) as (memory, descriptor):
                self._exchange({}, descriptor, self._limits["seconds"])
                return restore(told.get("values"), bytearray(memory))
        except Error:
            raise
        except (OSError, OverflowError, ValueError) as error:  # too much memory, or no values
            raise self._failed(f"gave something that is no outputs: {error}") from error

    def _exchange(self, message: dict[str, Any], descriptor: int, seconds: float | None) -> dict[str, Any]:
        try:
            self._channel.send(message, descriptor)
            answer = self._channel.receive(None if seconds is None else seconds + _GRACE)
        except TimeoutError:
            raise self._failed(f"took more than {seconds:g} seconds, and was killed", StoppedError) from None
        except EOFError:
            raise self._failed("has ended") from None
        except ValueError as error:
            raise self._failed(f"gave something that is no answer: {error}") from error
        if not isinstance(answer, dict):
            raise self._failed("gave something that is no answer")
        if "error" in answer:
            raise _error(answer)
        return answer

    def _failed(self, what: str, kind: type[Error] = Error) -> Error:
        """Ends the process, and makes the error that tells of it."""
        try:
            code = self._process.wait(_GRACE if what == "has ended" else 0)
        except subprocess.TimeoutExpired:
            code = 0
        self.close()
        how = f" ({signal.Signals(-code).name})" if code < 0 else ""
        return kind(f"the process of the sandbox {what}{how}; prepare the model anew to run it again")


def _start(log: IO[Any] | int) -> tuple[subprocess.Popen[bytes], Channel]:
    ours, theirs = socket.socketpair()
    environment = {name: value for name, value in os.environ.items() if name.startswith(_PASSED_ON)}
    environment["PYTHONPATH"] = os.pathsep.join(filter(os.path.isabs, sys.path))
    environment["OPENBLAS_NUM_THREADS"] = "1"  # numpy's threads would begin before they can be confined
    with theirs:
        process = subprocess.Popen(
            [sys.executable, "-P", "-m", "onnx_torch._sandbox.process", str(theirs.fileno())],
            pass_fds=[theirs.fileno()],
            env=environment,
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=log,
        )
    return process, Channel(ours)


def _end(process: subprocess.Popen[bytes], channel: Channel) -> None:
    process.kill()
    process.wait()
    channel.close()


def _readable(path: str | None, folder: str | None) -> list[str]:
    """Lists what the process may read: the model's folder, and the folders of libraries that it may load later."""
    torch = importlib.util.find_spec("torch")
    assert torch is not None and torch.submodule_search_locations
    of_model = [] if path is None else [os.path.dirname(path), os.path.dirname(os.path.realpath(path))]
    of_package = [os.path.dirname(__file__), os.path.dirname(os.path.realpath(__file__))]
    wanted = [*of_model, folder or "", *of_package, *torch.submodule_search_locations, "/proc/self", "/dev/urandom"]
    return [place for place in dict.fromkeys(wanted) if os.path.exists(place)]


def _error(answer: dict[str, Any]) -> Error:
    """Makes the error that the process tells of, if it is one of the package's."""
    kind = getattr(errors, str(answer["error"]), Error)
    if not (isinstance(kind, type) and issubclass(kind, Error)):
        kind = Error
    told = answer.get("node")
    node = told if isinstance(told, dict) else {}
    texts = [value if isinstance(value := node.get(name), str) else None for name in ("node_name", "op_type", "domain")]
    name, op_type, domain = texts
    version = node.get("version")
    return kind(str(answer.get("message")), name, op_type, domain, version if isinstance(version, int) else None)
