"""ONNX's type strings, and the same data in another type."""

from __future__ import annotations

import functools
import re
from typing import Any

import ml_dtypes
import numpy as np
from onnx import TensorProto, TypeProto, helper


def element(type_str: str) -> str:
    """Gives the innermost element's name: tensor(float), seq(tensor(float)), map(int64, float), … → float."""
    return re.split(r"[(,]", type_str)[-1].strip(" )")


def tensor_of(type_str: str) -> str:
    return f"tensor({element(type_str)})"


def element_number(name: str) -> int:
    return TensorProto.DataType.Value(name.upper())


def dtype_of(name: str) -> np.dtype:
    return np.dtype(object) if name == "string" else np.dtype(helper.tensor_dtype_to_np_dtype(element_number(name)))


def type_name(value: Any) -> str:
    """Gives the type string of a numpy array, or of a list or dictionary of some."""
    if isinstance(value, list):
        return f"seq({type_name(value[0]) if value else 'tensor(float)'})"
    dtype = np.asarray(value).dtype
    number = TensorProto.STRING if dtype.kind in "OUS" else helper.np_dtype_to_tensor_dtype(dtype.newbyteorder("="))
    return f"tensor({_element_name(number)})"


@functools.cache
def type_proto(type_str: str) -> TypeProto:
    kind, inner = type_str[:-1].split("(", 1)
    if kind == "tensor":
        return helper.make_tensor_type_proto(element_number(inner), None)
    if kind == "sparse_tensor":
        return helper.make_sparse_tensor_type_proto(element_number(inner), None)
    if kind == "seq":
        return helper.make_sequence_type_proto(type_proto(inner))
    if kind == "optional":
        return helper.make_optional_type_proto(type_proto(inner))
    key, value = (part.strip() for part in inner.split(",", 1))
    return helper.make_map_type_proto(element_number(key), type_proto(value if "(" in value else f"tensor({value})"))


def type_string(proto: TypeProto) -> str:
    """Gives the type string of a type, as the inverse of type_proto."""
    kind = proto.WhichOneof("value")
    inner = getattr(proto, kind)
    if kind in ("tensor_type", "sparse_tensor_type"):
        return f"{kind.removesuffix('_type')}({_element_name(inner.elem_type)})"
    if kind == "map_type":
        return f"map({_element_name(inner.key_type)}, {type_string(inner.value_type)})"
    return f"{kind.removesuffix('_type').replace('sequence', 'seq')}({type_string(inner.elem_type)})"


def _element_name(number: int) -> str:
    return TensorProto.DataType.Name(number).lower()


def numbers(array: np.ndarray) -> np.ndarray:
    """Gives strings as the numbers they spell, or else their ranks; all else as it is."""
    if array.dtype.kind not in "OUS":
        return array
    try:
        return array.astype(np.float64)
    except ValueError:
        return np.unique(array.astype(str), return_inverse=True)[1].reshape(array.shape)


def plain_cast(array: Any, name: str) -> np.ndarray | None:
    """Gives the same numbers in another type; None where one of them does not survive."""
    array = np.asarray(array)
    if array.dtype.kind in "OUS" or name == "string":
        return array.astype(object) if array.dtype.kind in "OUS" and name == "string" else None
    if (array.dtype.kind == "b") != (name == "bool"):
        return None  # truth is no number
    with np.errstate(all="ignore"):
        cast = array.astype(dtype_of(name))
    return cast if np.array_equal(_wide(cast), _wide(array), equal_nan=True) else None


def _wide(array: np.ndarray) -> np.ndarray:
    return array.astype(np.complex128 if array.dtype.kind == "c" else np.float64)


def fit_array(array: Any, name: str) -> np.ndarray:
    """Puts a template's data into an element type: the same numbers if they survive, else well-behaved ones."""
    array = np.asarray(array)
    if type_name(array) == f"tensor({name})":
        return array.astype(object) if name == "string" else array
    source = numbers(array)
    if name.startswith("complex"):
        real = source.astype(np.float64)
        return np.asarray(real + 0.5j * real).astype(dtype_of(name))
    if name != "bool":
        plain = plain_cast(source.astype(np.uint8) if source.dtype.kind == "b" else source, name)
        if plain is not None:
            return plain
    source = source.real.astype(np.float64)
    whole = np.rint(np.nan_to_num(source * (4 if np.any(source != np.rint(source)) else 1)))
    if name == "string":
        return np.array([str(int(x)) for x in whole.ravel()], object).reshape(whole.shape)
    if name == "bool":
        return np.asarray(whole % 3 == 1)
    dtype = dtype_of(name)
    if "int" in name:
        return _wrapped(whole, name).astype(dtype)
    if name == "float8e8m0":  # powers of two, no zero and no sign
        source = np.maximum(np.abs(source), 0.125)
    limit = float(ml_dtypes.finfo(dtype).max)
    finite = np.where(np.isfinite(source), np.clip(source, -limit, limit), source)
    return np.asarray(finite).astype(dtype)


def _wrapped(whole: np.ndarray, name: str) -> np.ndarray:
    """Brings whole numbers into a type's range, and under a thousand, without all becoming its limit."""
    info = ml_dtypes.iinfo(dtype_of(name))
    low, high = max(int(info.min), -1000), min(int(info.max), 1000)
    whole = np.abs(whole) if low == 0 else whole
    return np.where((whole < low) | (whole > high), low + np.mod(whole - low, high - low + 1), whole)


def fit(value: Any, type_str: str) -> Any:
    """Puts a template's value into a type: arrays become sequences, optionals and maps, and sequences become arrays."""
    kind, inner = type_str[:-1].split("(", 1)
    if kind == "optional":
        return None if value is None else fit(value, inner)
    if kind == "seq":
        return [fit(one, inner) for one in (value if isinstance(value, list) else [value, value])]
    if kind in ("tensor", "sparse_tensor"):  # which comes as a dense one
        return fit_array(value[0] if isinstance(value, list) else value, inner)
    key, item = (part.strip() for part in inner.split(",", 1))
    keys, items = fit_array(np.array([1, 3]), key), fit_array(np.array([2, 5]), element(item))
    return dict(zip(keys.tolist(), items.tolist(), strict=True))
