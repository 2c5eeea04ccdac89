"""The arrays that onnxruntime-genai hands out."""

from __future__ import annotations

from typing import Any

import numpy as np

from onnx_torch.compat._elements import element_of

from ._status import refused

__all__ = ["Tensor"]


class Tensor:
    """An array of numpy's under another name."""

    def __init__(self, array: Any, /) -> None:
        self._array = np.ascontiguousarray(array)

    def as_numpy(self) -> np.ndarray[Any, Any]:
        return self._array

    def shape(self) -> list[int]:
        return list(self._array.shape)

    def type(self) -> int:
        """Returns ONNX's number of the element type."""
        return element_of(self._array.dtype)

    data = refused("as_numpy gives the memory")

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> np.ndarray[Any, Any]:
        return np.array(self._array, dtype, copy=copy)
