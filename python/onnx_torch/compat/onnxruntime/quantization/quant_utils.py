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
        """The member of that name."""
        if name not in cls.__members__:
            raise ValueError(f"{name!r} is no {cls.__name__}; there are {', '.join(cls.__members__)}")
        return cls[name]


class QuantizationMode(_Named):
    """By which operators a model is quantized."""

    IntegerOps = 0
    QLinearOps = 1


class QuantizedValueType(_Named):
    """What is quantized."""

    Input = 0
    Initializer = 1


class QuantType(_Named):
    """The element types of what is quantized."""

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
    """How a quantized model is written down."""

    QOperator = 0
    QDQ = 1
