"""Shape operators, and shape arithmetic that stays on the host."""

import numpy as np
import pytest
from numpy.testing import assert_array_equal
from onnx import TensorProto, helper

import onnx_torch.backend
from models import model_of, run_op, tensor_info

X = np.arange(24, dtype=np.float32).reshape(2, 3, 4)


def ints(*values):
    return np.array(values, np.int64)


@pytest.mark.parametrize(
    ("shape", "allowzero", "expected"),
    [((0, -1), 0, (2, 12)), ((4, 0, 2), 0, (4, 3, 2)), ((0, 5), 1, (0, 5)), ((-1,), 0, (24,))],
)
def test_reshape(shape, allowzero, expected):
    x = np.zeros((0, 3), np.float32) if allowzero else X
    (y,) = run_op("Reshape", [x, ints(*shape)], allowzero=allowzero)
    assert_array_equal(y, x.reshape(expected))


def test_reshape_1_takes_its_shape_from_an_attribute():
    (y,) = run_op("Reshape", [X], opset=1, shape=[0, -1])
    assert_array_equal(y, X.reshape(2, 12))


def test_a_shape_has_a_bounded_number_of_dimensions():
    x, one = X[0, 0, :1], helper.make_tensor("", TensorProto.INT64, [1], [1])
    nodes = [
        helper.make_node("ConstantOfShape", ["count"], ["shape"], value=one),
        helper.make_node("Reshape", ["x", "shape"], ["y"]),
    ]
    rep = onnx_torch.backend.prepare(model_of(nodes, [tensor_info("count", ints(1)), tensor_info("x", x)], ["y"]))
    assert rep.run([ints(60), x])[0].size == 1
    with pytest.raises(onnx_torch.RunError, match="1024 dimensions at most"):
        rep.run([ints(50_000_000), x])


@pytest.mark.parametrize("axes", [[0], [-1], [0, 4], [4, 0], [-1, -3], [-5, 2], [1, 2, 3]])
@pytest.mark.parametrize("opset", [11, 13])
def test_unsqueeze(axes, opset):
    (y,) = run_op("Unsqueeze", [X], opset, axes=axes) if opset == 11 else run_op("Unsqueeze", [X, ints(*axes)], opset)
    assert_array_equal(y, np.expand_dims(X, axes))


@pytest.mark.parametrize("axes", [None, [0], [-1], [0, -1]])
@pytest.mark.parametrize("opset", [11, 13])
def test_squeeze(axes, opset):
    x = X.reshape(1, 24, 1)
    if opset == 11:
        (y,) = run_op("Squeeze", [x], opset, **({"axes": axes} if axes else {}))
    else:
        (y,) = run_op("Squeeze", [x, ints(*axes) if axes else None], opset)
    assert_array_equal(y, np.squeeze(x, None if axes is None else tuple(axes)))


@pytest.mark.parametrize("axis", range(-3, 4))
@pytest.mark.parametrize("shape", [(2, 3, 4), (0, 3, 4), (2, 3, 0)])
def test_flatten(axis, shape):
    (y,) = run_op("Flatten", [np.zeros(shape, np.float32)], axis=axis)
    assert y.shape == (int(np.prod(shape[:axis])), int(np.prod(shape[axis:])))


def test_flatten_of_rank_1():
    (y,) = run_op("Flatten", [X.reshape(24)], axis=1)
    assert y.shape == (24, 1)


@pytest.mark.parametrize("start", [None, -5, -1, 0, 1, 4])
@pytest.mark.parametrize("end", [None, -5, -1, 0, 2, 7])
def test_shape_cut(start, end):
    (y,) = run_op("Shape", [X], **{k: v for k, v in (("start", start), ("end", end)) if v is not None})
    assert_array_equal(y, X.shape[start:end])


@pytest.mark.parametrize("shape", [(2, 1, 1), (5, 2, 3, 4), (1,), (3, 1)])
def test_expand(shape):
    (y,) = run_op("Expand", [X, ints(*shape)])
    assert_array_equal(y, np.broadcast_to(X, np.broadcast_shapes(X.shape, shape)))


def graph_of(nodes, dims, constants):
    """Prepares nodes on x, whose dims are symbolic; gives the graph, and what it computes from X."""
    initializers = [helper.make_tensor(name, 7, np.shape(value), np.ravel(value)) for name, value in constants.items()]
    model = model_of(nodes, [tensor_info("x", X, dims)], ["y"], initializer=initializers)
    prepared = onnx_torch.backend.prepare(model)
    return prepared.graph(), prepared.run([X])[0]


def test_shape_arithmetic_makes_no_tensors():
    """The last two dimensions are merged as exporters write it."""
    nodes = [
        helper.make_node("Shape", ["x"], ["shape"]),
        helper.make_node("Gather", ["shape", "zero"], ["batch"]),
        helper.make_node("Unsqueeze", ["batch", "axes"], ["first"]),
        helper.make_node("Slice", ["shape", "one", "two"], ["second"]),
        helper.make_node("Squeeze", ["second", "axes"], ["rows"]),
        helper.make_node("Reshape", ["rows", "rest"], ["rows_again"]),
        helper.make_node("Concat", ["first", "rows_again", "rest"], ["target"], axis=0),
        helper.make_node("Reshape", ["x", "target"], ["y"]),
    ]
    constants = {"zero": 0, "axes": [0], "one": [1], "two": [2], "rest": [-1]}
    graph, y = graph_of(nodes, ["a", "b", "c"], constants)
    assert_array_equal(y, X)
    assert "aten::tensor" not in graph
    assert "tolist" not in graph


def test_the_same_on_known_shapes_is_one_call():
    nodes = [
        helper.make_node("Shape", ["x"], ["shape"]),
        helper.make_node("Split", ["shape"], ["a", "b", "c"]),
        helper.make_node("Gather", ["shape", "swap"], ["swapped"]),
        helper.make_node("Concat", ["a", "swapped"], ["target"], axis=0),
        helper.make_node("Reshape", ["x", "target"], ["y"]),
    ]
    graph, y = graph_of(nodes, X.shape, {"swap": [-1, 1]})
    assert_array_equal(y, X.reshape(2, 4, 3))
    assert graph.count("aten::") == 1


def test_a_slice_up_to_a_size_reads_nothing_back():
    nodes = [
        helper.make_node("Shape", ["x"], ["shape"]),
        helper.make_node("Gather", ["shape", "zero"], ["size"]),
        helper.make_node("Unsqueeze", ["size", "axes"], ["end"]),
        helper.make_node("Slice", ["x", "axes", "end", "one"], ["y"]),
    ]
    graph, y = graph_of(nodes, ["a", "b", "c"], {"zero": 0, "axes": [0], "one": [1]})
    assert_array_equal(y, X[:, :2])
    assert "tolist" not in graph
    assert "prim::Loop" not in graph
