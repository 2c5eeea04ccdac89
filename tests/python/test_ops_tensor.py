"""Operators that arrange elements anew or make tensors: what the official suite leaves out."""

import ml_dtypes
import numpy as np
import onnx
import pytest
from numpy.testing import assert_array_equal
from onnx import TensorProto, helper

import onnx_torch.backend
from models import model_of, op_model, run_op, tensor_info

X = np.arange(24, dtype=np.float32).reshape(2, 3, 4)
WORDS = np.array([["a", "b", "c"], ["d", "e", "f"]], object)
MIN, MAX = np.iinfo(np.int64).min, np.iinfo(np.int64).max
DTYPES = ["bool", "int8", "uint16", "uint32", "uint64", "float16", "float64", "complex64", ml_dtypes.bfloat16]
SMALL = ["float8_e4m3fn", "float8_e5m2", "float8_e8m0fnu", "int4", "float4_e2m1fn"]


def ints(*values):
    return np.array(values, np.int64)


@pytest.mark.parametrize("dtype", DTYPES + ["object"])
def test_element_types_are_only_moved(dtype):
    x = WORDS if dtype == "object" else np.array([[0, 1, 2], [3, 5, 100]]).astype(dtype)
    assert_array_equal(run_op("Concat", [x, x], axis=-1)[0], np.concatenate([x, x], -1))
    assert_array_equal(run_op("Slice", [x, ints(-1), ints(MIN), ints(1), ints(-2)])[0], x[:, ::-2])
    assert_array_equal(run_op("Transpose", [x])[0], x.T)
    assert_array_equal(run_op("Tile", [x, ints(2, 2)])[0], np.tile(x, (2, 2)))
    assert_array_equal(run_op("Pad", [x, ints(1, 0, 0, 2)], mode="edge")[0], np.pad(x, ((1, 0), (0, 2)), "edge"))
    assert_array_equal(run_op("CenterCropPad", [x, ints(2)], opset=18, axes=[1])[0], x[:, :2])
    first, second = run_op("Split", [x, ints(1, 2)], axis=1, outputs=2)
    assert_array_equal(first, x[:, :1])
    assert_array_equal(second, x[:, 1:])
    fill = np.array(x[1, 2])
    assert_array_equal(run_op("Pad", [x, ints(0, 1, 0, 0), fill])[0], np.concatenate([[[fill], [fill]], x], 1))
    assert_array_equal(run_op("Pad", [x, ints(0, 0, 0, 1)])[0][:, 3], ["", ""] if dtype == "object" else [0, 0])


@pytest.mark.parametrize("dtype", SMALL)
def test_small_element_types(dtype):
    x = np.array([[1, 2, 4], [0.5, 1, 2]]).astype(getattr(ml_dtypes, dtype))
    assert_array_equal(run_op("Transpose", [x])[0], x.T)
    assert_array_equal(run_op("Reshape", [x, ints(-1)])[0], x.reshape(-1))
    assert_array_equal(run_op("Pad", [x, ints(1, 0, 0, -1)], mode="wrap")[0], x[[1, 0, 1], :2])
    padded = run_op("Pad", [x, ints(0, 1, 0, 0), x[0, 2].reshape(())])[0]
    assert_array_equal(padded, np.concatenate([x[:1, [2]].repeat(2, 0), x], 1))
    value = onnx.numpy_helper.from_array(x[0, :1])
    assert_array_equal(run_op("ConstantOfShape", [ints(2)], value=value)[0], x[0, [0, 0]])
    model = model_of([helper.make_node("Constant", [], ["y"], value=onnx.numpy_helper.from_array(x))], [], ["y"])
    assert_array_equal(onnx_torch.backend.prepare(model).run([])[0], x)


@pytest.mark.parametrize("size", [0, 1, 5])
@pytest.mark.parametrize("start", [MIN, -7, -2, 0, 3, 9, MAX])
@pytest.mark.parametrize("step", [2, -1, -2])
def test_slice_clamps(size, start, step):
    x = np.arange(size)
    for end in [MIN, -9, -3, 0, 2, 9, MAX]:
        (y,) = run_op("Slice", [x, ints(start), ints(end), ints(0), ints(step)])
        first = start + size if start < 0 else start
        last = end + size if end < 0 else end
        first = np.clip(first, 0, size) if step > 0 else np.clip(first, 0, max(size - 1, 0))
        last = np.clip(last, 0, size) if step > 0 else np.clip(last, -1, max(size - 1, -1))
        expected = [i for i in range(int(first), int(last), step) if i < size]
        assert_array_equal(y, expected, f"[{start}:{end}:{step}] of {size}")


def test_slice_of_known_bounds_is_a_plain_slice():
    model = op_model("Slice", [X, None], opset=9, starts=[0, 1], ends=[MAX, -1], axes=[-1, 1])
    del model.graph.node[0].input[1]
    prepared = onnx_torch.backend.prepare(model)
    assert prepared.graph().count("aten::") == prepared.graph().count("aten::slice") == 2
    assert_array_equal(prepared.run([X])[0], X[:, 1:-1])


@pytest.mark.parametrize(("size", "count", "parts"), [(7, 3, [3, 3, 1]), (4, 3, [2, 2, 0]), (6, 2, [3, 3])])
def test_split_into_equal_parts(size, count, parts):
    outputs = run_op("Split", [np.arange(size)], num_outputs=count, outputs=count)
    assert [len(y) for y in outputs] == parts
    assert_array_equal(np.concatenate(outputs), np.arange(size))


def test_split_checks_its_parts():
    with pytest.raises(onnx_torch.Error, match="add up to 5"):
        run_op("Split", [np.arange(6), ints(2, 3)], outputs=2)


@pytest.mark.parametrize("mode", ["reflect", "edge", "wrap"])
@pytest.mark.parametrize("pads", [[0, 7, 0, 0], [1, 2, 3, 4], [0, -1, 2, 3], [-1, 0, 0, -2]])
def test_pad_from_inside(mode, pads):
    x = np.arange(12, dtype=np.int32).reshape(3, 4)
    kept = x[max(0, -pads[0]) : 3 + min(0, pads[2]), max(0, -pads[1]) : 4 + min(0, pads[3])]
    expected = np.pad(kept, [(max(0, pads[0]), max(0, pads[2])), (max(0, pads[1]), max(0, pads[3]))], mode)
    assert_array_equal(run_op("Pad", [x, ints(*pads)], mode=mode)[0], expected)
    columns = [pads[1], pads[3]]
    if pads[0] == 0 and pads[2] == 0:
        assert_array_equal(run_op("Pad", [x, ints(*columns), None, ints(-1)], mode=mode)[0], expected)


@pytest.mark.parametrize("axis", [-3, 2])
def test_pad_along_an_axis_that_is_not_there(axis):
    with pytest.raises(onnx_torch.Error, match=f"Pad.*axis {axis} is out of range for 2 dimensions"):
        run_op("Pad", [np.ones((2, 3), np.float32), ints(1, 1), None, ints(axis)])


@pytest.mark.parametrize(("opset", "name"), [(1, "paddings"), (2, "pads")])
def test_pad_by_attributes(opset, name):
    (y,) = run_op("Pad", [X], opset, value=1.5, **{name: [0, 0, 1, 0, -1, 0]})
    assert_array_equal(y, np.pad(X[:, :2], ((0, 0), (0, 0), (1, 0)), constant_values=1.5))


@pytest.mark.parametrize("dtype", ["float32", "float64", "float16", ml_dtypes.bfloat16, "int16", "int32", "int64"])
@pytest.mark.parametrize(("start", "limit", "delta"), [(0, 10, 3), (10, 0, -3), (0, 0, 1), (0, 10, -1), (-4, 4, 1)])
def test_range(dtype, start, limit, delta):
    inputs = [np.array(x, dtype) for x in (start, limit, delta)]
    (y,) = run_op("Range", inputs)
    assert y.dtype == inputs[0].dtype
    assert_array_equal(y.astype(np.float64), np.arange(start, limit, delta))


def test_range_of_large_integers_is_exact():
    big = 2**62
    assert_array_equal(run_op("Range", [np.int64(big), np.int64(big + 5), np.int64(2)])[0], [big, big + 2, big + 4])


@pytest.mark.parametrize("indices", ["int64", "uint8", "uint64", "float32", "int32"])
@pytest.mark.parametrize("axis", [0, 1, -1, -2])
def test_one_hot(indices, axis):
    x = np.array([[0, 2], [1, 7]], indices)
    for values in (np.array([2, 5], np.int8), np.array(["off", "on"], object), np.array([0, 1j], np.complex64)):
        (y,) = run_op("OneHot", [x, np.float32(3), values], axis=axis)
        hot = np.expand_dims(x, axis) == np.arange(3).reshape([3 if i == axis % 3 else 1 for i in range(3)])
        assert_array_equal(y, np.where(hot, values[1], values[0]))


@pytest.mark.parametrize(("opset", "expected"), [(9, [0, 0, 0]), (11, [0, 0, 1])])
def test_one_hot_of_negative_indices(opset, expected):
    assert_array_equal(run_op("OneHot", [ints(-1), np.int64(3), ints(0, 1)], opset)[0], [expected])
    assert_array_equal(run_op("OneHot", [np.array([2**64 - 1], np.uint64), np.int64(3), ints(0, 1)])[0], [[0, 0, 0]])


def constant(**attributes):
    model = model_of([helper.make_node("Constant", [], ["y"], **attributes)], [], ["y"])
    return onnx_torch.backend.prepare(model).run([])[0]


@pytest.mark.parametrize(
    ("name", "value", "expected"),
    [
        ("value_int", 7, np.int64(7)),
        ("value_ints", [1, 2], ints(1, 2)),
        ("value_float", 0.1, np.float32(0.1)),
        ("value_floats", [0.5, 2.0], np.array([0.5, 2], np.float32)),
        ("value_string", "word", np.array("word", object)),
        ("value_strings", ["two", "words"], np.array(["two", "words"], object)),
    ],
)
def test_constant_by_each_attribute(name, value, expected):
    y = constant(**{name: value})
    assert_array_equal(y, expected)
    assert y.dtype == expected.dtype


@pytest.mark.parametrize("indices", [([3, 5], [2]), ([[1, 0], [1, 2]], [2, 2])])
def test_sparse_constant(indices):
    positions, dims = indices
    values = helper.make_tensor("v", TensorProto.DOUBLE, [2], [1.5, 2.5])
    where = helper.make_tensor("i", TensorProto.INT64, dims, np.ravel(positions))
    sparse = helper.make_sparse_tensor(values, where, [2, 3])
    assert_array_equal(constant(sparse_value=sparse), [[0, 0, 0], [1.5, 0, 2.5]])


def test_constant_of_shape():
    assert_array_equal(run_op("ConstantOfShape", [ints(2, 0)])[0], np.zeros((2, 0), np.float32))
    (y,) = run_op("ConstantOfShape", [ints()], value=helper.make_tensor("v", TensorProto.UINT64, [1], [2**64 - 1]))
    assert_array_equal(y, np.uint64(2**64 - 1))


@pytest.mark.parametrize("k", [-(2**63), -3, -1, 0, 2, 4, 2**63 - 1])
@pytest.mark.parametrize("dtype", [None, TensorProto.BOOL, TensorProto.UINT32, TensorProto.BFLOAT16])
def test_eye_like(k, dtype):
    (y,) = run_op("EyeLike", [np.zeros((3, 4), np.float64)], k=k, **({} if dtype is None else {"dtype": dtype}))
    assert_array_equal(y.astype(np.float64), np.eye(3, 4, max(-3, min(k, 4))))
    assert helper.np_dtype_to_tensor_dtype(y.dtype) == (dtype or TensorProto.DOUBLE)


def test_tile_1_repeats_along_an_axis():
    inputs = [X, np.array([3], np.float32), np.array([1], np.float32)]
    assert_array_equal(run_op("Tile", inputs, opset=1)[0], np.tile(X, (1, 3, 1)))


def test_concat_1_joins_along_axis_1_by_default():
    assert_array_equal(run_op("Concat", [X, X], opset=1)[0], np.concatenate([X, X], 1))


@pytest.mark.parametrize("mode", ["DCR", "CRD"])
@pytest.mark.parametrize("dtype", ["int8", "complex64", "object"])
def test_space_to_depth_is_undone(mode, dtype):
    x = np.arange(2 * 4 * 6 * 4).reshape(2, 4, 6, 4)
    x = x.astype(str).astype(object) if dtype == "object" else x.astype(dtype)
    (deep,) = run_op("SpaceToDepth", [x], blocksize=2, mode=mode)
    assert deep.shape == (2, 16, 3, 2)
    assert_array_equal(run_op("DepthToSpace", [deep], blocksize=2, mode=mode)[0], x)


@pytest.mark.parametrize("upper", [0, 1])
@pytest.mark.parametrize("k", [None, -1, 9])
def test_trilu(upper, k):
    for x in (X, X.astype(bool), X.astype(np.uint64)):
        (y,) = run_op("Trilu", [x, None if k is None else np.int64(k)], upper=upper)
        assert_array_equal(y, (np.triu if upper else np.tril)(x, k or 0))


def test_unknown_ranks():
    x = tensor_info("x", X)
    for node, expected in [
        (helper.make_node("Transpose", ["x"], ["y"]), X.T),
        (helper.make_node("Flatten", ["x"], ["y"], axis=2), X.reshape(6, 4)),
        (helper.make_node("Squeeze", ["x"], ["y"]), X),
    ]:
        assert_array_equal(onnx_torch.backend.prepare(model_of([node], [x], ["y"])).run([X])[0], expected)
