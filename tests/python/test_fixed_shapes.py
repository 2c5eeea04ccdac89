"""The option `shapes`: sizes of open dimensions, by their symbols, by their inputs, and by their inputs' axes."""

import numpy as np
import pytest
import torch
from onnx import TensorProto, helper

import onnx_torch
from models import model_of
from onnx_torch import InputError

FLOAT = TensorProto.FLOAT


def flattened(shape, other=("batch", 2)):
    """Makes a model of `x` of a declared shape as rows, and `z` beside it."""
    infos = [helper.make_tensor_value_info(name, FLOAT, dims) for name, dims in (("x", shape), ("z", other))]
    nodes = [helper.make_node("Flatten", ["x"], ["y"]), helper.make_node("Relu", ["z"], ["w"])]
    return model_of(nodes, infos, ["y", "w"])


def sizes(model, shapes):
    return [shape for _, _, shape, _ in onnx_torch.prepare(model, shapes=shapes).inputs]


@pytest.mark.parametrize(
    "shape, shapes, expected",
    [
        (["batch", 3, None], {"batch": 4}, [[4, 3, None], [4, 2]]),
        (["batch", 3, None], {"x": [4, 3, 5]}, [[4, 3, 5], [4, 2]]),
        (["batch", 3, None], {"x": (None, None, 5)}, [["batch", 3, 5], ["batch", 2]]),
        (["batch", 3, None], {"x[2]": 5, "batch": 4}, [[4, 3, 5], [4, 2]]),
        (["batch", 3, None], {"z": [4, 2]}, [[4, 3, None], [4, 2]]),
        ([None, None], {"x": [1, 7]}, [[1, 7], ["batch", 2]]),
        (["?", "?"], {"x": [1, 7]}, [[1, 7], ["batch", 2]]),
        (None, {"x": [2, 3]}, [[2, 3], ["batch", 2]]),
    ],
)
def test_sizes_are_fixed(shape, shapes, expected):
    assert sizes(flattened(shape), shapes) == expected


def test_a_model_of_fixed_sizes_asks_for_none():
    model = flattened([None, None, None])
    assert "aten::size" not in onnx_torch.prepare(model, shapes={"x": [2, 3, 4], "batch": 1}).graph()
    rep = onnx_torch.prepare(model, shapes={"x": [2, 3, 4]})
    x, z = np.arange(24, dtype=np.float32).reshape(2, 3, 4), np.ones((3, 2), np.float32)
    np.testing.assert_array_equal(rep.run([x, z])[0], x.reshape(2, 12))
    with pytest.raises(InputError, match="x"):
        rep.run([x[:1], z])


@pytest.mark.parametrize(
    "shapes, message",
    [
        ({"rows": 4}, 'no dimension "rows"; there are batch'),
        ({"x[3]": 4}, r'no dimension "x\[3\]"; there are batch'),
        ({"batch": -1}, 'the dimension "batch" cannot have the size -1'),
        ({"x": [4, 5, 6]}, r'the dimension "x\[1\]" has the size 3, not 5'),
        ({"x": [4, 3, 5], "z": [5, 2]}, r'the dimension ".*" has the size \d, not \d'),
        ({"y": [4, 3, 5]}, r'no dimension "y\[0\]"'),
        ({"x": [4, 3, 5, 6]}, r'no dimension "x\[3\]"'),
    ],
)
def test_errors(shapes, message):
    with pytest.raises(InputError, match=message):
        onnx_torch.prepare(flattened(["batch", 3, None]), shapes=shapes)


@pytest.mark.parametrize("wrong", [{"batch": "four"}, {"x": ["a", 3, 5]}, {"batch": 2.5}])
def test_sizes_are_whole_numbers(wrong):
    with pytest.raises(TypeError, match="shapes"):
        onnx_torch.prepare(flattened(["batch", 3, None]), shapes=wrong)


def test_shapes_go_wherever_a_model_is_prepared():
    model, shapes = flattened([None, 3, None]), {"x": [2, None, 4], "batch": 1}
    assert onnx_torch.random_inputs(model, shapes=shapes)["x"].shape == (2, 3, 4)
    assert onnx_torch.check(model, shapes=shapes) == []
    assert onnx_torch.profile(model, shapes=shapes, runs=1).nodes
    module = onnx_torch.to_module(model, shapes=shapes)
    x, z = torch.ones(2, 3, 4), torch.ones(1, 2)
    assert module(x, z)[0].shape == (2, 12)
    assert "2, 12" in onnx_torch.show(model, shapes=shapes) or "aten::size" not in onnx_torch.show(model, shapes=shapes)
