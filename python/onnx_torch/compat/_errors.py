"""onnxruntime's exceptions, each of which is one of this package's, too."""

from __future__ import annotations

from ..errors import DeviceError, Error, InputError, InvalidModelError, RunError, StoppedError, UnsupportedError

__all__ = [
    "DeviceReset",
    "EPFail",
    "EngineError",
    "Fail",
    "InvalidArgument",
    "InvalidGraph",
    "InvalidProtobuf",
    "ModelLoadCanceled",
    "ModelLoaded",
    "ModelRequiresCompilation",
    "NoModel",
    "NoSuchFile",
    "NotFound",
    "NotImplemented",
    "RuntimeException",
]


class Fail(RunError):
    """The run was stopped, or could not be done."""


class RuntimeException(RunError):
    """A node failed while the model ran."""


class InvalidArgument(InputError):
    """A value that was fed, asked for or set does not fit the model."""


class NoSuchFile(InvalidModelError, FileNotFoundError):
    """The model's file is not there."""


class InvalidProtobuf(InvalidModelError):
    """The bytes or the file hold no ONNX model."""


class InvalidGraph(InvalidModelError):
    """The model breaks the ONNX specification."""


class NotImplemented(UnsupportedError):
    """The model holds operators, or the program asks for something, that cannot be had here."""


class NotRegistered(NotImplemented, Fail):
    """The model holds an unknown operator, for which onnxruntime raises the one or the other class by its domain."""


class EPFail(DeviceError):
    """The device that was asked for is not there."""


class ModelLoadCanceled(Error):
    """Loading was canceled by `SessionOptions.set_load_cancellation_flag`."""


# The following classes are there to be caught, and never raised here.


class EngineError(RunError):
    """A provider's engine failed."""


class NotFound(InputError):
    """Something named was not found."""


class NoModel(InvalidModelError):
    """No model was loaded."""


class DeviceReset(DeviceError):
    """The device was reset."""


class ModelLoaded(Error):
    """A model was loaded already."""


class ModelRequiresCompilation(Error):
    """The model must be compiled first."""


_NAMES: dict[type[Error], type[Error]] = {
    InputError: InvalidArgument,
    InvalidModelError: InvalidGraph,
    UnsupportedError: NotImplemented,
    DeviceError: EPFail,
    RunError: RuntimeException,
    StoppedError: Fail,
    Error: Fail,
}


def _name(error: Error) -> type[Error]:
    unknown = isinstance(error, UnsupportedError) and "no such operator" in str(error)
    return NotRegistered if unknown else _NAMES[type(error)]


def renamed(error: Error, name: type[Error]) -> Error:
    """Makes the same error of another class."""
    return name(str(error), error.node_name, error.op_type, error.domain, error.version)


class onnxruntime_errors:
    """A context that raises this package's errors by their names in onnxruntime.

    It is a class, as entering a generator of contextlib takes as long as a small model's run.
    """

    def __enter__(self) -> None: ...

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: object) -> None:
        if isinstance(error, Error) and type(error) in _NAMES:
            raise renamed(error, _name(error)) from error
