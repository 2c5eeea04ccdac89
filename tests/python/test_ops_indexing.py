"""Operators that pick or place elements by index: what the official suite leaves out."""

import ml_dtypes
import numpy as np
import pytest
from numpy.testing import assert_array_equal
from onnx import helper

import onnx_torch.backend
from models import model_of, run_op, tensor_info
from random_numbers import RNG

X = np.random.default_rng(0).standard_normal((3, 4, 5)).astype(np.float32)
MOVED = ["bool", "uint8", "uint16", "uint64", "float16", "complex128", ml_dtypes.bfloat16, "object"]
ORDERED = ["int8", "uint8", "uint16", "int32", "uint32", "int64", "uint64", "float16", "float32", "float64"]


def ints(*values):
    return np.array(values, np.int64)


def elements(dtype, shape=(3, 4)):
    numbers = np.arange(1, 1 + np.prod(shape)).reshape(shape)
    return numbers.astype(str).astype(object) if dtype == "object" else numbers.astype(dtype)


def known(op_type, inputs, **attributes):
    """Runs the node with its inputs from the second on as constants; gives the graph and the output."""
    names = [f"x{i}" for i in range(len(inputs))]
    constants = [helper.make_tensor(n, 7, x.shape, x.ravel()) for n, x in list(zip(names, inputs, strict=True))[1:]]
    node = helper.make_node(op_type, names, ["y"], **attributes)
    model = model_of([node], [tensor_info("x0", inputs[0])], ["y"], initializer=constants)
    prepared = onnx_torch.backend.prepare(model)
    return prepared.graph(), prepared.run(inputs[:1])[0]


@pytest.mark.parametrize("axis", [0, 1, -1])
@pytest.mark.parametrize("indices", [2, -1, [0], [2, -3, 0], [[1, -1], [0, 2]], np.zeros((0, 2))])
def test_gather(axis, indices):
    indices = np.array(indices, np.int64)
    expected = np.take(X, indices, axis)
    assert_array_equal(run_op("Gather", [X, indices], axis=axis)[0], expected)
    assert_array_equal(run_op("Gather", [X, indices.astype(np.int32)], axis=axis)[0], expected)
    assert_array_equal(known("Gather", [X, indices], axis=axis)[1], expected)


@pytest.mark.parametrize(("indices", "operator"), [(-2, "aten::select"), ([0, 2], "aten::index_select")])
def test_gather_by_known_indices_is_one_call(indices, operator):
    graph, _ = known("Gather", [X, np.array(indices, np.int64)], axis=1)
    assert graph.count("aten::") == graph.count(operator) == 1


def test_gather_checks_its_indices():
    for indices in (ints(3), ints(-4), np.int64(3)):
        with pytest.raises(onnx_torch.Error):
            run_op("Gather", [X, indices])


@pytest.mark.parametrize("dtype", MOVED)
def test_element_types_are_only_moved(dtype):
    x = elements(dtype)
    index = ints(2, 0, -2, 1).reshape(1, 4)
    assert_array_equal(run_op("Gather", [x, ints(-1, 0)])[0], x[[-1, 0]])
    assert_array_equal(run_op("GatherElements", [x, index])[0], np.take_along_axis(x, index, 0))
    assert_array_equal(run_op("GatherND", [x, ints(-1, 2).reshape(1, 2)])[0], x[[-1], [2]])
    placed = x.copy()
    np.put_along_axis(placed, index, x[:1], 0)
    assert_array_equal(run_op("ScatterElements", [x, index, x[:1]])[0], placed)
    if dtype != ml_dtypes.bfloat16:  # which Scatter does not know
        assert_array_equal(run_op("Scatter", [x, index, x[:1]], opset=9)[0], placed)
    placed = x.copy()
    placed[[2, 0]] = x[[0, 1]]
    assert_array_equal(run_op("ScatterND", [x, ints(-1, 0).reshape(2, 1), x[:2]])[0], placed)
    assert_array_equal(run_op("Compress", [x, np.array([True, False, True])], axis=-1)[0], x[:, [0, 2]])
    assert_array_equal(run_op("Compress", [x, np.array([False, True])])[0], x.ravel()[1:2])
    (y,) = run_op("ReverseSequence", [x, ints(3, 1, 0, 2)], time_axis=0, batch_axis=1)
    assert_array_equal(y, [[x[2, 0], *x[0, 1:3], x[1, 3]], [*x[1, :3], x[0, 3]], [x[0, 0], *x[2, 1:]]])


@pytest.mark.parametrize("batch_axis", [0, 1])
@pytest.mark.parametrize("shape", [(4, 3), (4, 3, 2, 2), (4, 0, 2), (0, 3), (4, 3, 0)])
def test_reverse_sequence(batch_axis, shape):
    x = np.arange(np.prod(shape, dtype=int)).reshape(shape)
    time = shape[1 - batch_axis]
    lengths = np.arange(shape[batch_axis]) % (time + 1)
    expected = x.copy()
    for i, length in enumerate(lengths):
        of_one = np.moveaxis(expected, batch_axis, 0)[i]  # a view, along time
        of_one[:length] = of_one[:length][::-1].copy()
    (y,) = run_op("ReverseSequence", [x, lengths], time_axis=1 - batch_axis, batch_axis=batch_axis)
    assert_array_equal(y, expected)


BYTES = [ml_dtypes.float8_e4m3fn, ml_dtypes.float8_e8m0fnu, ml_dtypes.int4]


@pytest.mark.parametrize("dtype", ["float32", "bool", "uint16", *BYTES])
@pytest.mark.parametrize("axis", [1, -1])
def test_tensor_scatter(dtype, axis):
    cache = np.ones((2, 3, 4)).astype(dtype)
    update = np.array([1, 2, 4, 1, 2, 4, 1, 2]).astype(dtype)
    update = update.reshape(2, 2, 2).repeat(2, 2) if axis == 1 else update[:6].reshape(2, 3, 1)
    for at, mode in ((None, "linear"), (ints(1, 0), "linear"), (ints(2, 4), "circular")):
        expected = cache.copy()
        for batch in range(2):
            for step in range(update.shape[axis]):
                position = ((0 if at is None else at[batch]) + step) % cache.shape[axis]
                where = (batch, position) if axis == 1 else (batch, slice(None), position)
                expected[where] = update[batch, step] if axis == 1 else update[batch, :, step]
        (y,) = run_op("TensorScatter", [cache, update, at], axis=axis, mode=mode)
        assert_array_equal(y, expected)


@pytest.mark.parametrize("batch_dims", [0, 1, 2])
@pytest.mark.parametrize("depth", [1, 2])
def test_gather_nd(batch_dims, depth):
    x = RNG.standard_normal((2, 3, 4, 5)).astype(np.float32)
    indices = RNG.integers(-2, 2, (2, 3, 2, depth)[:batch_dims] + (2, depth))
    (y,) = run_op("GatherND", [x, indices], batch_dims=batch_dims)
    expected = np.empty(indices.shape[:-1] + x.shape[batch_dims + depth :], np.float32)
    for position in np.ndindex(*indices.shape[:-1]):
        expected[position] = x[position[:batch_dims] + tuple(indices[position])]
    assert_array_equal(y, expected)


@pytest.mark.parametrize("op_type", ["GatherND", "ScatterND"])
def test_coordinates_leave_no_list_that_is_written_to(op_type):
    values = {"x": X, "indices": ints(0, 1).reshape(1, 2), "updates": X[0, :1]}
    names = list(values)[: 2 if op_type == "GatherND" else 3]
    inputs = [tensor_info(name, values[name]) for name in names]
    model = model_of([helper.make_node(op_type, names, ["y"])], inputs, ["y"])
    graph = onnx_torch.prepare(model, optimize=False).graphs()["translate"]
    assert "aten::index" in graph
    assert "aten::append" not in graph and "prim::Loop" not in graph


REDUCTIONS = {"add": np.add, "mul": np.multiply, "max": np.maximum, "min": np.minimum}


@pytest.mark.parametrize("reduction", REDUCTIONS)
@pytest.mark.parametrize("dtype", ORDERED)
def test_scatter_reductions_with_duplicates(reduction, dtype):
    x = elements(dtype, (3, 4))
    updates = np.array([[2, 100, 3, 0], [5, 7, 60, 9]]).astype(dtype)
    if dtype.startswith("uint"):
        updates[0, 0] = np.iinfo(dtype).max
    index = np.array([[0, 1, -1, 1], [0, 1, 2, 0]], np.int64)
    with np.errstate(over="ignore"):
        expected = x.copy()
        for position in np.ndindex(*index.shape):
            target = (index[position], position[1])
            expected[target] = REDUCTIONS[reduction](expected[target], updates[position])
        assert_array_equal(run_op("ScatterElements", [x, index, updates], reduction=reduction)[0], expected)
        expected = x.copy()
        for row, update in zip((1, -2), updates, strict=True):
            expected[row] = REDUCTIONS[reduction](expected[row], update)
    assert_array_equal(run_op("ScatterND", [x, ints(1, -2).reshape(2, 1), updates], reduction=reduction)[0], expected)


def test_scatter_nd_checks_its_indices():
    for reduction in ("none", "max"):
        with pytest.raises(onnx_torch.Error):
            run_op("ScatterND", [X[0], ints(0, 5).reshape(1, 2), X[0, 0, :1]], reduction=reduction)


def ranked(x, k, axis, largest):
    keys = x.astype(object) if x.dtype.kind == "u" else x.astype(np.float64) if x.dtype.kind == "V" else x
    order = np.argsort(-keys.astype(object) if largest else keys, axis, kind="stable")
    return np.take(order, range(k), axis)


@pytest.mark.parametrize("largest", [0, 1])
@pytest.mark.parametrize("dtype", ORDERED + [ml_dtypes.bfloat16])
def test_top_k_takes_equals_in_their_order(dtype, largest):
    x = RNG.integers(0, 4, (3, 9)).astype(dtype)
    if np.dtype(dtype).kind == "u":
        x[:, 3] = np.iinfo(dtype).max
    elif dtype != "int64":
        x[:, 4] = -x[:, 4]
    values, indices = run_op("TopK", [x, ints(5)], axis=-1, largest=largest, outputs=2)
    expected = ranked(x, 5, 1, largest)
    assert_array_equal(indices, expected)
    assert_array_equal(values, np.take_along_axis(x, expected, 1))


def test_top_k_of_older_versions():
    expected = ranked(X, 2, 1, True)
    for opset, inputs, attributes in ((1, [X], {"k": 2}), (10, [X, ints(2)], {})):
        values, indices = run_op("TopK", inputs, opset, outputs=2, axis=1, **attributes)
        assert_array_equal(indices, expected)
        assert_array_equal(values, np.take_along_axis(X, expected, 1))


def test_top_k_of_nan_and_zeros():
    x = np.array([0.0, -np.nan, -0.0, np.inf, -np.inf, np.nan], np.float32)
    assert run_op("TopK", [x, ints(6)], outputs=2)[1].tolist() == [1, 5, 3, 0, 2, 4]
    assert run_op("TopK", [x, ints(6)], outputs=2, largest=0)[1].tolist() == [4, 0, 2, 3, 1, 5]


@pytest.mark.parametrize("dtype", ORDERED)
@pytest.mark.parametrize("last", [0, 1])
@pytest.mark.parametrize("keepdims", [0, 1])
def test_arg_max_and_min(dtype, last, keepdims):
    x = RNG.integers(0, 3, (4, 6)).astype(dtype)
    if dtype.startswith("uint"):
        x[1:3, 2] = np.iinfo(dtype).max
    for op_type, best in (("ArgMax", x.max(1)), ("ArgMin", x.min(1))):
        expected = [np.flatnonzero(row == b)[-1 if last else 0] for row, b in zip(x, best, strict=True)]
        (y,) = run_op(op_type, [x], axis=1, keepdims=keepdims, select_last_index=last)
        assert_array_equal(y, np.reshape(expected, (4, 1) if keepdims else 4))


@pytest.mark.parametrize("dtype", ["bool", "uint16", "uint64", "float16", "object"])
@pytest.mark.parametrize("order", [0, 1])
def test_unique(dtype, order):
    x = np.array(["b", "", "b", "a"], object) if dtype == "object" else np.array([2, 0, 2, 1]).astype(dtype)
    if dtype == "uint64":
        x[0] = x[2] = 2**64 - 1
    y, indices, inverse, counts = run_op("Unique", [x], sorted=order, outputs=4)
    expected = np.unique(x) if order else np.array(list(dict.fromkeys(x.tolist())), x.dtype)
    assert_array_equal(y, expected)
    assert_array_equal(y[inverse], x)
    assert_array_equal(x[indices], y)
    assert counts.sum() == 4


@pytest.mark.parametrize("dtype", MOVED)
def test_non_zero(dtype):
    x = np.array([["", "a"], ["b", ""]], object) if dtype == "object" else np.array([[0, 1], [2, 0]]).astype(dtype)
    assert run_op("NonZero", [x])[0].tolist() == [[0, 1], [1, 0]]
    assert run_op("NonZero", [x[0, 1].reshape(()) if dtype != "object" else np.array("a", object)])[0].shape == (0, 1)
