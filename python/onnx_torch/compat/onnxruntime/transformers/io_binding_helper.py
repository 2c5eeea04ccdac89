"""`TypeHelper`, which tells the types of a session's inputs and outputs, in numpy and torch."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
from onnx import TensorProto, helper

if TYPE_CHECKING:
    import torch

    from onnx_torch.compat._session import InferenceSession

__all__ = ["TypeHelper"]


def _dtype(ort_type: str) -> np.dtype[Any]:
    """Returns numpy's dtype for a type, or that of ml_dtypes, whose names are torch's."""
    name = ort_type.removeprefix("tensor(").removesuffix(")").upper()
    if name == "STRING" or name not in dict(TensorProto.DataType.items()):
        raise ValueError(f"{ort_type} has no elements of numbers")
    return helper.tensor_dtype_to_np_dtype(TensorProto.DataType.Value(name))


class TypeHelper:
    """Functions that find the types of inputs and outputs."""

    @staticmethod
    def get_input_type(ort_session: InferenceSession, name: str) -> str:
        """Returns the ONNX type of an input, such as ``tensor(float)``."""
        return {arg.name: arg.type for arg in ort_session.get_inputs()}[name]

    @staticmethod
    def get_output_type(ort_session: InferenceSession, name: str) -> str:
        """Returns the ONNX type of an output."""
        return {arg.name: arg.type for arg in ort_session.get_outputs()}[name]

    @staticmethod
    def ort_type_to_numpy_type(ort_type: str) -> type[Any]:
        """Returns numpy's type of elements, for a type such as ``tensor(float)``."""
        return _dtype(ort_type).type

    @staticmethod
    def ort_type_to_torch_type(ort_type: str) -> torch.dtype:
        """Returns torch's type of elements."""
        import torch

        dtype: torch.dtype = getattr(torch, _dtype(ort_type).name)
        return dtype

    @staticmethod
    def get_io_numpy_type_map(ort_session: InferenceSession) -> dict[str, type[Any]]:
        """Returns numpy's type of each input and output, by its name."""
        args = [*ort_session.get_inputs(), *ort_session.get_outputs()]
        return {arg.name: TypeHelper.ort_type_to_numpy_type(arg.type) for arg in args}
