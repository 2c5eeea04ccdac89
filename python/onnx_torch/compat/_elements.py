"""The element types of tensors: ONNX's numbers and names of them, and the dtypes of numpy and of torch.

The functions import onnx when they are called, as a session alone needs none of it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

if TYPE_CHECKING:
    import torch


def element_of(dtype: Any) -> int:
    """Returns ONNX's number of an element type, from that number, a numpy dtype or a torch dtype."""
    if isinstance(dtype, int):
        return dtype
    import ml_dtypes
    from onnx import TensorProto, helper

    if str(dtype).startswith("torch."):
        name = str(dtype).removeprefix("torch.")
        dtype = getattr(ml_dtypes, name, name)
    dtype = np.dtype(dtype)
    return TensorProto.STRING if dtype.kind in "OUST" else helper.np_dtype_to_tensor_dtype(dtype)


def numpy_dtype(element: Any) -> np.dtype[Any]:
    """Returns the numpy dtype of an element type."""
    from onnx import TensorProto, helper

    number = element_of(element)
    return np.dtype(object) if number == TensorProto.STRING else helper.tensor_dtype_to_np_dtype(number)


def element_name(element: Any) -> str:
    """Returns the name of an element type within a value's type, such as "float" in ``tensor(float)``."""
    from onnx import TensorProto

    name: str = TensorProto.DataType.Name(element_of(element))
    return name.lower()


def element_named(name: str) -> int:
    """Returns ONNX's number of the element type that has such a name."""
    from onnx import TensorProto

    number: int = TensorProto.DataType.Value(name.upper())
    return number


def torch_dtype(element: Any) -> torch.dtype:
    """Returns the torch dtype that holds an element type; types that torch cannot compute with take a byte each."""
    import torch

    name = numpy_dtype(element).name
    dtype = torch.uint8 if name in ("int2", "int4", "uint2", "uint4") else getattr(torch, name, torch.uint8)
    assert isinstance(dtype, torch.dtype)
    return dtype
