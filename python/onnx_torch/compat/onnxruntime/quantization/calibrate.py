"""The types of calibration."""

from __future__ import annotations

import abc
import enum
from collections.abc import Iterator
from typing import Any

from onnx_torch.compat._status import absent_class

__all__ = ["CalibraterBase", "CalibrationDataReader", "CalibrationMethod"]


class CalibrationMethod(enum.Enum):
    """The ways to find the ranges of values."""

    MinMax = 0
    Entropy = 1
    Percentile = 2
    Distribution = 3


class CalibrationDataReader(abc.ABC):
    """A source of the inputs that a model is calibrated with."""

    @abc.abstractmethod
    def get_next(self) -> dict[str, Any] | None:
        """Returns the next inputs, by their names; None after the last."""

    def __iter__(self) -> Iterator[dict[str, Any]]:
        return self

    def __next__(self) -> dict[str, Any]:
        inputs = self.get_next()
        if inputs is None:
            raise StopIteration
        return inputs

    def __len__(self) -> int:
        raise NotImplementedError

    def set_range(self, start_index: int, end_index: int) -> None:
        """Restricts the reader to a part of the inputs."""
        raise NotImplementedError


CalibraterBase = absent_class("CalibraterBase", "models are calibrated where onnxruntime itself is installed")
