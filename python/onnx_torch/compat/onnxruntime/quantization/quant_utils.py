"""The enumerations of quantization."""

from __future__ import annotations

import enum
from typing import TypeVar

from onnx import TensorProto

__all__ = ["QuantFormat", "QuantType", "QuantizationMode", "QuantizedValueType"]


_Kind = TypeVar("_Kind", bound="_Named")


class _Named(enum.Enum):
    def __str__(self) -> str:
        return self.name

    @classmethod
    def from_string(cls: type[_Kind], name: str) -> _Kind:
        """Returns the member of that name."""
        if name not in cls.__members__:
            raise ValueError(f"{name!r} is no {cls.__name__}; there are {', '.join(cls.__members__)}")
        return cls[name]


class QuantizationMode(_Named):
    """The kinds of operators that a model is quantized with."""

    IntegerOps = 0
    QLinearOps = 1


class QuantizedValueType(_Named):
    """The kinds of values that are quantized."""

    Input = 0
    Initializer = 1


class QuantType(_Named):
    """The element types of quantized values."""

    QInt8 = 0
    QUInt8 = 1
    QFLOAT8E4M3FN = 2
    QInt16 = 3
    QUInt16 = 4
    QInt4 = 5
    QUInt4 = 6

    @property
    def tensor_type(self) -> int:
        """ONNX's number of the type."""
        number: int = TensorProto.DataType.Value(self.name.removeprefix("Q").upper())
        return number


class QuantFormat(_Named):
    """The forms in which a quantized model is written."""

    QOperator = 0
    QDQ = 1
