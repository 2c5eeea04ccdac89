"""The reductions: element types, axes of every form, empty sets."""

import ml_dtypes
import numpy as np
import pytest
from onnx import TensorProto, helper

import onnx_torch.backend
from models import assert_same, model_of, run_op, tensor_info

FLOATS = [np.float32, np.float64, np.float16, ml_dtypes.bfloat16]
INTEGERS = [np.int32, np.int64, np.uint32, np.uint64]
NARROW = [np.int8, np.uint8, np.bool_]

EXPECTED = {
    "ReduceSum": np.sum,
    "ReduceProd": np.prod,
    "ReduceMax": np.max,
    "ReduceMin": np.min,
    "ReduceMean": np.mean,
    "ReduceL1": lambda x, **where: np.sum(np.abs(x), **where),
    "ReduceL2": lambda x, **where: np.sqrt(np.sum(np.square(x), **where)),
    "ReduceSumSquare": lambda x, **where: np.sum(np.square(x), **where),
    "ReduceLogSum": lambda x, **where: np.log(np.sum(x, **where)),
    "ReduceLogSumExp": lambda x, **where: np.log(np.sum(np.exp(x), **where)),
}


def data(dtype):
    x = (np.arange(24).reshape(2, 3, 4) * 7 % 5 + 1).astype(np.float64)
    if dtype in FLOATS:
        return (x / 2).astype(dtype)
    return (x * (1 if np.dtype(dtype).kind in "ub" else -1)).astype(dtype)


def expected(op, x, **where):
    wide = np.float64 if x.dtype.kind not in "iu" else object if op in ("ReduceSum", "ReduceProd") else np.float64
    return np.asarray(EXPECTED[op](x.astype(wide), **where)).astype(np.float64)


@pytest.mark.parametrize("dtype", [*FLOATS, *INTEGERS])
@pytest.mark.parametrize("op", EXPECTED)
def test_types(op, dtype):
    if "Log" in op and dtype in INTEGERS:
        pytest.skip("means nothing")
    x = data(dtype)
    if op == "ReduceSum":  # the first to take axes as an input
        [actual] = run_op(op, [x, np.array([0, -1])], opset=13, keepdims=0)
    else:
        [actual] = run_op(op, [x], opset=13, keepdims=0, axes=[0, -1])
    assert actual.dtype == x.dtype
    want = expected(op, x, axis=(0, 2))
    if dtype in INTEGERS:
        np.testing.assert_array_equal(actual.astype(np.float64), np.trunc(want))
    else:
        few = float(ml_dtypes.finfo(dtype).eps) * (1 if x.itemsize == 2 else 4)
        np.testing.assert_allclose(actual.astype(np.float64), want, rtol=few)


def test_sum_of_axes_before_13():
    [actual] = run_op("ReduceSum", [data(np.float32)], opset=11, keepdims=0, axes=[0, -1])
    np.testing.assert_allclose(actual, data(np.float32).sum((0, 2)))


@pytest.mark.parametrize("axes", [[1], [-1, 0], [2, 0, 1], [], None])
@pytest.mark.parametrize("keepdims", [0, 1])
@pytest.mark.parametrize("noop", [0, 1])
@pytest.mark.parametrize("op", EXPECTED)
def test_axes(op, noop, keepdims, axes):
    x = data(np.float32)
    inputs = [x, None if axes is None else np.array(axes, np.int64)]
    [actual] = run_op(op, inputs, keepdims=keepdims, noop_with_empty_axes=noop)
    everything = () if noop else None
    want = EXPECTED[op](x, axis=tuple(axes) if axes else everything, keepdims=bool(keepdims))
    assert_same([actual], [np.asarray(want, np.float32)])


@pytest.mark.parametrize(
    "op, value",
    [
        ("ReduceSum", 0),
        ("ReduceProd", 1),
        ("ReduceMax", -np.inf),
        ("ReduceMin", np.inf),
        ("ReduceL1", 0),
        ("ReduceL2", 0),
        ("ReduceSumSquare", 0),
        ("ReduceLogSum", -np.inf),
        ("ReduceLogSumExp", -np.inf),
        ("ReduceMean", np.nan),
    ],
)
def test_empty_sets(op, value):
    x = np.zeros((2, 0, 4), np.float32)
    np.testing.assert_array_equal(run_op(op, [x, np.array([1])])[0], np.full((2, 1, 4), value, np.float32))
    assert run_op(op, [x, np.array([2])])[0].shape == (2, 0, 1)


@pytest.mark.parametrize("dtype", [*INTEGERS, *NARROW])
def test_extremes_of_empty_sets(dtype):
    low, high = (False, True) if dtype is np.bool_ else (np.iinfo(dtype).min, np.iinfo(dtype).max)
    x = np.zeros((0,), dtype)
    assert run_op("ReduceMax", [x], keepdims=0)[0] == low
    assert run_op("ReduceMin", [x], keepdims=0)[0] == high


@pytest.mark.parametrize("dtype", NARROW)
def test_extremes_of_narrow_types(dtype):
    x = data(dtype) if dtype is not np.bool_ else np.array([[True, False], [False, False]])
    assert_same(run_op("ReduceMax", [x, np.array([0])]), [x.max(0, keepdims=True)])
    assert_same(run_op("ReduceMin", [x, np.array([0])]), [x.min(0, keepdims=True)])


def test_uint64_is_ordered_and_divided_without_sign():
    x = np.array([1, 2**63 + 5, 2**62], np.uint64)
    assert run_op("ReduceMax", [x], keepdims=0)[0] == 2**63 + 5
    assert run_op("ReduceMin", [x], keepdims=0)[0] == 1
    assert run_op("ReduceMean", [x], keepdims=0)[0] == (2**63 + 2**62 + 6) // 3


def test_sums_wrap():
    x = np.array([2**31 - 1, 1], np.int32)
    assert run_op("ReduceSum", [x], keepdims=0)[0] == -(2**31)
    assert run_op("ReduceProd", [np.array([2**16, 2**16 + 1], np.uint32)], keepdims=0)[0] == 2**16


def test_nan_is_the_extreme():
    x = np.array([1, np.nan, 3], np.float32)
    assert np.isnan(run_op("ReduceMax", [x])[0]) and np.isnan(run_op("ReduceMin", [x])[0])


def test_log_sum_exp_of_large_numbers():
    assert_same(run_op("ReduceLogSumExp", [np.array([1000, 1000], np.float32)]), [[np.float32(1000 + np.log(2))]])


def test_axes_of_run_time():
    nodes = [helper.make_node("ReduceSum", ["x", "axes"], ["y"], noop_with_empty_axes=1)]
    inputs = [tensor_info("x", element=TensorProto.FLOAT), tensor_info("axes", element=TensorProto.INT64)]
    prepared = onnx_torch.backend.prepare(model_of(nodes, inputs, ["y"]), "CPU")
    x = data(np.float32)
    for axes in ([], [0], [1, 2]):
        assert_same(prepared.run([x, np.array(axes, np.int64)]), [x.sum(tuple(axes), keepdims=True)])


@pytest.mark.parametrize("op, value", [("ReduceProd", 6), ("ReduceSum", 5), ("ReduceMax", 3), ("ReduceMin", 2)])
def test_reductions_of_shapes_stay_on_the_host(op, value):
    nodes = [
        helper.make_node("Shape", ["x"], ["s"]),
        helper.make_node(op, ["s"], ["n"]),
        helper.make_node("ConstantOfShape", ["n"], ["y"]),
    ]
    model = model_of(nodes, [tensor_info("x", element=TensorProto.FLOAT, shape=["a", "b"])], ["y"])
    prepared = onnx_torch.backend.prepare(model, "CPU")
    assert "aten::tensor" not in prepared.graph()
    assert prepared.run([np.zeros((2, 3), np.float32)])[0].shape == (value,)


@pytest.mark.parametrize("shape", [(), (2, 3)])
@pytest.mark.parametrize("axis", [-4, 3])
@pytest.mark.parametrize("op", EXPECTED)
def test_axes_that_are_not_there(op, axis, shape):
    with pytest.raises(onnx_torch.Error, match=f"{op}.*(but got|axis) {axis}"):
        run_op(op, [np.ones(shape, np.float32), np.array([axis])], opset=18)


@pytest.mark.parametrize("op", ["ReduceMax", "ReduceSum"])
def test_a_scalar_lies_along_an_axis_as_for_aten(op):
    x = np.array(1.5, np.float32)
    assert_same(run_op(op, [x, np.array([0])], opset=18), [x])
