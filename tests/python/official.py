"""The official node cases, and their variants; `onnx_torch.self_test.official` has the cases and the comparison."""

from __future__ import annotations

import dataclasses

import numpy as np
import onnx
import pytest
from onnx import numpy_helper

import onnx_torch.backend
from onnx_torch.self_test._official import SUBSTITUTES, Case, assert_same, check, node_cases, suite

__all__ = [
    "DEVICES",
    "SUBSTITUTES",
    "Case",
    "assert_same",
    "check",
    "node_cases",
    "suite",
    "with_initializers",
    "with_symbolic_dims",
    "without_shapes",
]

# The devices for tests that run wherever a device is.
DEVICES = [
    "CPU",
    pytest.param(
        "CUDA:0",
        marks=pytest.mark.skipif(not onnx_torch.backend.supports_device("CUDA:0"), reason="there is no CUDA device"),
    ),
]


def _copy(model: onnx.ModelProto) -> onnx.ModelProto:
    copy = onnx.ModelProto()
    copy.CopyFrom(model)
    return copy


def with_initializers(case: Case) -> Case | None:
    """Makes each tensor input an initializer; sequences and optionals stay. Gives None where there is no input."""
    if not case.model.graph.input:
        return None
    ((inputs, outputs),) = case.data_sets
    model = _copy(case.model)
    kept, kept_values = [], []
    for info, value in zip(case.model.graph.input, inputs, strict=True):
        if info.type.HasField("tensor_type") and value is not None:
            array = np.asarray(value)
            array = array.astype(object) if array.dtype.kind in "US" else array
            tensor = numpy_helper.from_array(array, info.name)
            assert tensor.data_type == info.type.tensor_type.elem_type
            model.graph.initializer.append(tensor)
        else:
            kept.append(info)
            kept_values.append(value)
    del model.graph.input[:]
    model.graph.input.extend(kept)
    model.ir_version = max(model.ir_version, 4)  # before 4, an initializer had to be an input too
    return dataclasses.replace(case, model=model, data_sets=[(kept_values, outputs)])


def _tensor_type(type_: onnx.TypeProto) -> onnx.TypeProto.Tensor:
    """Gives the type of a tensor, or of the tensors in a sequence or an optional."""
    if type_.HasField("sequence_type"):
        return _tensor_type(type_.sequence_type.elem_type)
    if type_.HasField("optional_type"):
        return _tensor_type(type_.optional_type.elem_type)
    return type_.tensor_type


def with_symbolic_dims(case: Case) -> Case | None:
    """Makes each dimension of each input symbolic; gives None where no input has one."""
    model = _copy(case.model)
    dims = [dim for info in model.graph.input for dim in _tensor_type(info.type).shape.dim]
    if not dims:
        return None
    for number, dim in enumerate(dims):
        dim.dim_param = f"d{number}"
    return dataclasses.replace(case, model=model)


def without_shapes(case: Case) -> Case | None:
    """Leaves open how many dimensions each input and output has; gives None where there is no input."""
    model = _copy(case.model)
    if not model.graph.input:
        return None
    for info in (*model.graph.input, *model.graph.output):
        _tensor_type(info.type).ClearField("shape")
    return dataclasses.replace(case, model=model)
