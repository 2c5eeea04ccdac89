"""The enumerations of quantization."""

from __future__ import annotations

import enum
from typing import TypeVar

from onnx import TensorProto

__all__ = ["QuantFormat", "QuantType", "QuantizationMode", "QuantizedValueType"]


class _Named(enum.Enum):
    def __str__(self) -> str:
        return self.name


_Kind = TypeVar("_Kind", bound=_Named)


class QuantizationMode(_Named):
    """By which operators a model is quantized."""

    IntegerOps = 0
    QLinearOps = 1

    @staticmethod
    def from_string(mode: str) -> QuantizationMode:
        """The mode of that name."""
        return _of_name(QuantizationMode, mode)


class QuantizedValueType(_Named):
    """What is quantized."""

    Input = 0
    Initializer = 1

    @staticmethod
    def from_string(v: str) -> QuantizedValueType:
        """The type of that name."""
        return _of_name(QuantizedValueType, v)


class QuantType(_Named):
    """The element types of what is quantized."""

    QInt8 = 0
    QUInt8 = 1
    QFLOAT8E4M3FN = 2
    QInt16 = 3
    QUInt16 = 4
    QInt4 = 5
    QUInt4 = 6

    @staticmethod
    def from_string(t: str) -> QuantType:
        """The type of that name."""
        return _of_name(QuantType, t)

    @property
    def tensor_type(self) -> int:
        """ONNX's number of the type."""
        number: int = TensorProto.DataType.Value(self.name.removeprefix("Q").upper())
        return number


class QuantFormat(_Named):
    """How a quantized model is written down."""

    QOperator = 0
    QDQ = 1

    @staticmethod
    def from_string(format: str) -> QuantFormat:
        """The format of that name."""
        return _of_name(QuantFormat, format)


def _of_name(kind: type[_Kind], name: str) -> _Kind:
    if name not in kind.__members__:
        raise ValueError(f"{name!r} is no {kind.__name__}; there are {', '.join(kind.__members__)}")
    return kind[name]
