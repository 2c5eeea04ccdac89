"""What a kernel or ATen would trust is checked first: models whose numbers, types or sizes are wrong end in an error.

They run in this process, as one that reads or writes where it should not, or divides what cannot be divided, would end
it."""

from __future__ import annotations

from typing import Any

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

import onnx_torch
from models import model_of, op_model, run_op, tensor_info

LOWEST, HIGHEST, ML = -(2**63), 2**63 - 1, "ai.onnx.ml"


def zeros(*sizes: int, dtype: Any = np.float32) -> np.ndarray:
    return np.zeros(sizes, dtype)


def ints(*values: int) -> np.ndarray:
    return np.array(values, np.int64)


def constant_model(op_type: str, inputs: list[Any], open_inputs: int = 1, **options: Any) -> onnx.ModelProto:
    """A model of one node whose inputs are initializers but for the first ones, which are of their known sizes."""
    model = op_model(op_type, inputs, **options)
    given = {f"x{i}": value for i, value in enumerate(inputs) if value is not None}
    kept = [f"x{i}" for i in range(open_inputs)]
    del model.graph.input[:]
    for name, value in given.items():
        if name in kept:
            model.graph.input.append(tensor_info(name, value, value.shape))
        else:
            model.graph.initializer.append(numpy_helper.from_array(value, name))
    return model


def refused(op_type: str, inputs: list[Any], message: str, **options: Any) -> None:
    """A node is refused with inputs of any sizes, and with constants."""
    for model, fed in (
        (op_model(op_type, inputs, **options), inputs),
        (constant_model(op_type, inputs, **options), inputs[:1]),
    ):
        with pytest.raises(onnx_torch.Error, match=message) as caught:
            onnx_torch.prepare(model).run([value for value in fed if value is not None])
        assert str(caught.value).startswith(op_type) or f".{op_type}" in str(caught.value)


# --- Divisions


@pytest.mark.parametrize("fmod", [0, 1])
@pytest.mark.parametrize("dtype", [np.int32, np.int64])
def test_the_least_integer_is_divided_by_minus_one(dtype, fmod):
    least = np.array([np.iinfo(dtype).min, 7], dtype)
    for by in (np.array([-1], dtype), np.array([-1, 2], dtype)):
        for model, fed in (
            (op_model("Mod", [least, by], fmod=fmod), [least, by]),
            (constant_model("Mod", [least, by], 0, fmod=fmod), []),
        ):
            assert onnx_torch.prepare(model).run(fed)[0].tolist() == [0, 0 if by.size == 1 else 1]


@pytest.mark.parametrize("op_type", ["Div", "Mod"])
@pytest.mark.parametrize("by", [[0], [0, 1], [-1]])
def test_sizes_are_divided_by_anything(op_type, by):
    """On the host, by constants and by what a caller feeds."""
    shape = helper.make_node("Shape", ["x"], ["s"])
    divided = helper.make_node(op_type, ["least", "by"], ["y"])
    moved = helper.make_node("Sub", ["s", "two"], ["zero"])
    least = helper.make_node("Add", ["zero", "lowest"], ["least"])
    nodes = [shape, moved, least, divided]
    values = {"two": ints(2, 2), "lowest": ints(LOWEST, LOWEST)}
    infos = [tensor_info("x", zeros(2, 2), (2, "n"))]
    initializers = [numpy_helper.from_array(value, name) for name, value in values.items()]
    for fed in (False, True):
        by_info, by_value = (
            ([tensor_info("by", ints(*by))], []) if fed else ([], [numpy_helper.from_array(ints(*by), "by")])
        )
        model = model_of(nodes, infos + by_info, ["y"], initializer=initializers + by_value)
        if 0 in by:
            with pytest.raises(onnx_torch.Error, match=r"(?i)division by zero|zerodivision"):
                onnx_torch.prepare(model).run([zeros(2, 2)] + [ints(*by)] * fed)
        else:
            y = onnx_torch.prepare(model).run([zeros(2, 2)] + [ints(*by)] * fed)[0]
            assert y.tolist() == ([0, 0] if op_type == "Mod" else [LOWEST, LOWEST])


def test_a_scalar_has_no_axis_to_quantize_along():
    refused("QuantizeLinear", [np.float32(3), np.ones(2, np.float32)], "out of range for 0 dimensions")
