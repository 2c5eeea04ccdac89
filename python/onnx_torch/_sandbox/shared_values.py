"""Values of a model as a description in JSON and the bytes of their arrays, for two processes that share memory.

Nothing in a description is trusted: it may come from a process that a hostile model has taken over.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

import ml_dtypes
import numpy as np

__all__ = ["Described", "describe", "place", "restore", "size"]

Described = Any  # a value as JSON has it

_ALIGNMENT = 64  # bytes
_NUMPY = (
    "bool",
    "int8",
    "int16",
    "int32",
    "int64",
    "uint8",
    "uint16",
    "uint32",
    "uint64",
    "float16",
    "float32",
    "float64",
)
_DTYPES = {name: np.dtype(name) for name in (*_NUMPY, "complex64", "complex128")} | {
    np.dtype(kind).name: np.dtype(kind)
    for kind in vars(ml_dtypes).values()
    if isinstance(kind, type) and issubclass(kind, np.generic)
}


def describe(value: Any, arrays: list[np.ndarray[Any, Any]]) -> Described:
    """Describes a value, whose arrays are appended to a list; `place` puts them where the description says."""
    if value is None:
        return None
    if isinstance(value, Mapping):
        return {"map": [describe(list(value), arrays), describe(list(value.values()), arrays)]}
    if isinstance(value, (list, tuple)):
        return {"list": [describe(element, arrays) for element in value]}
    if isinstance(value, (str, bool, int, float)):
        return {"plain": value}
    array = np.asarray(value)
    if array.dtype.kind in "OUS":
        texts = [text.decode(errors="surrogateescape") if isinstance(text, bytes) else str(text) for text in array.flat]
        return {"texts": texts, "shape": array.shape}
    if array.dtype.name not in _DTYPES:
        raise TypeError(f"arrays of {array.dtype} cannot be passed")
    offset = size(arrays)
    arrays.append(np.ascontiguousarray(array))
    return {"dtype": array.dtype.name, "shape": array.shape, "offset": offset}


def size(arrays: list[np.ndarray[Any, Any]]) -> int:
    """Returns the number of bytes that the arrays take, each begun at an aligned offset."""
    return sum(-(-array.nbytes // _ALIGNMENT) * _ALIGNMENT for array in arrays)


def place(arrays: list[np.ndarray[Any, Any]], memory: Any) -> None:
    """Copies arrays to where their descriptions say."""
    bytes_ = np.frombuffer(memory, np.uint8)
    offset = 0
    for array in arrays:
        bytes_[offset : offset + array.nbytes] = array.reshape(-1).view(np.uint8)
        offset += size([array])


def restore(described: Described, memory: Any) -> Any:
    """Makes a value of its description; its arrays are views of the memory.

    A ValueError tells that nothing can be described so.
    """
    try:
        return _restored(described, np.frombuffer(memory, np.uint8))
    except (KeyError, TypeError, AttributeError, OverflowError, RecursionError) as error:
        raise ValueError(f"this describes no value: {error!r}") from error


def _restored(described: Described, memory: np.ndarray[Any, Any]) -> Any:
    if described is None:
        return None
    if "plain" in described and isinstance(described["plain"], (str, bool, int, float)):
        return described["plain"]
    if "list" in described:
        return [_restored(element, memory) for element in described["list"]]
    if "map" in described:
        keys, values = (_restored(element, memory) for element in described["map"])
        return dict(zip(keys, values, strict=True))
    shape = _checked_shape(described["shape"])
    if "texts" in described:
        return np.array([str(text) for text in described["texts"]], object).reshape(shape)
    dtype, offset = _DTYPES[described["dtype"]], described["offset"]
    if type(offset) is not int or offset < 0 or offset % _ALIGNMENT:
        raise ValueError(f"no array can begin at {offset!r}")
    bytes_ = math.prod(shape) * dtype.itemsize
    if offset + bytes_ > memory.nbytes:
        raise ValueError(f"an array of {bytes_} bytes at {offset} is larger than the memory, {memory.nbytes}")
    return memory[offset : offset + bytes_].view(dtype).reshape(shape)


def _checked_shape(shape: Any) -> tuple[int, ...]:
    if not isinstance(shape, list) or not all(type(length) is int and length >= 0 for length in shape):
        raise ValueError(f"{shape!r} is no shape")
    return tuple(shape)
