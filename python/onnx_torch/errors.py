"""The exceptions of this package."""

from __future__ import annotations

from typing import Any


class Error(RuntimeError):
    """The base of all; where a node is to blame, its name, operator, domain and opset version are attributes."""

    def __init__(
        self,
        message: str = "",
        node_name: str | None = None,
        op_type: str | None = None,
        domain: str | None = None,
        version: int | None = None,
    ) -> None:
        super().__init__(message)
        self.node_name = node_name
        self.op_type = op_type
        self.domain = domain
        self.version = version

    def __reduce__(self) -> tuple[Any, ...]:
        return type(self), (str(self), self.node_name, self.op_type, self.domain, self.version)


class InvalidModelError(Error, ValueError):
    """The model breaks the ONNX specification, or its files cannot be read."""


class UnsupportedError(Error, NotImplementedError):
    """The model holds operators, or uses of them, that cannot be translated; the message lists all of them."""


class InputError(Error, ValueError):
    """The inputs that were fed do not fit the model's."""


class DeviceError(Error, ValueError):
    """The device that was asked for is not there."""


class RunError(Error):
    """A node failed while the model ran."""


class StoppedError(RunError):
    """A run, or preparing a model, was stopped by the option ``limits``, or by the caller."""


class FileError(Error, OSError):
    """A file cannot be written."""


def named(name: str) -> type[Error]:
    """Returns the exception of this package that has this name; `Error` where none has."""
    found = globals().get(name)
    return found if isinstance(found, type) and issubclass(found, Error) else Error
