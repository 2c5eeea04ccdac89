"""Comparisons, booleans and bits in what the official suite leaves open."""

import ml_dtypes
import numpy as np
import pytest

from models import assert_same, reference_op, run_op

INTEGERS = [np.int8, np.int16, np.int32, np.int64, np.uint8, np.uint16, np.uint32, np.uint64]
FLOATS = [np.float16, np.float32, np.float64, ml_dtypes.bfloat16]
COMPARISONS = ["Equal", "Greater", "GreaterOrEqual", "Less", "LessOrEqual"]


def limits(dtype) -> np.ndarray:
    info = np.iinfo(dtype) if np.issubdtype(dtype, np.integer) else ml_dtypes.finfo(dtype)
    return np.array([info.min, 0, 1, 5, info.max], dtype)


@pytest.mark.parametrize("dtype", [*INTEGERS, *FLOATS])
@pytest.mark.parametrize("op", COMPARISONS)
def test_comparisons_of_each_type(op, dtype):
    x = limits(dtype)
    assert_same(run_op(op, [x[:, None], x]), reference_op(op, [x[:, None], x]))


def test_equality_of_strings_and_booleans():
    a, b = np.array(["a", "", "ä"], object), np.array([["a"], ["ä"]], object)
    assert_same(run_op("Equal", [a, b]), [a == b])
    x = np.array([True, False])
    assert_same(run_op("Equal", [x, x[:, None]]), [x == x[:, None]])


@pytest.mark.parametrize("dtype", [*INTEGERS, *FLOATS, np.bool_, np.complex64, object])
def test_where_of_each_type(dtype):
    x, y = np.array([["a", "b"]], object), np.array([["c"], ["d"]], object)
    if dtype is not object:
        x, y = np.array([[1, 0]]).astype(dtype), np.array([[3], [4]]).astype(dtype)
    condition = np.array([[True, False], [False, True]])
    assert_same(run_op("Where", [condition, x, y]), [np.where(condition, x, y)])


@pytest.mark.parametrize("op", ["And", "Or", "Xor", "Equal", "Greater", "Less"])
def test_old_broadcasting(op):
    rng = np.random.default_rng(0)
    dtype = np.bool_ if op in ("And", "Or", "Xor") else np.int32 if op == "Equal" else np.float32
    a, b = rng.integers(0, 2, (2, 3, 4)).astype(dtype), rng.integers(0, 2, 3).astype(dtype)
    expected = reference_op(op, [a, b.reshape(3, 1)])
    assert_same(run_op(op, [a, b], opset=1, broadcast=1, axis=1), expected)


@pytest.mark.parametrize("direction", ["LEFT", "RIGHT"])
@pytest.mark.parametrize("dtype", INTEGERS)
def test_shifts(dtype, direction):
    bits = np.iinfo(dtype).bits
    x = limits(dtype)
    by = np.array([0, 1, 3, bits - 1, bits, bits + 1, min(2 * bits, 127)] + [-1] * (np.iinfo(dtype).min < 0), dtype)
    inputs = [x[:, None], by]
    assert_same(run_op("BitShift", inputs, direction=direction), reference_op("BitShift", inputs, direction=direction))


def test_shift_by_a_huge_number_leaves_nothing():
    x, by = np.array([2**64 - 1], np.uint64), np.array([2**64 - 1], np.uint64)
    for direction in ("LEFT", "RIGHT"):
        assert_same(run_op("BitShift", [x, by], direction=direction), [np.array([0], np.uint64)])


@pytest.mark.parametrize("dtype", INTEGERS)
def test_bits(dtype):
    x = limits(dtype)
    assert_same(run_op("BitwiseNot", [x]), [~x])
    y = x[:, None]
    assert_same(run_op("BitwiseAnd", [x, y]), [x & y])
    assert_same(run_op("BitwiseOr", [x, y]), [x | y])
    assert_same(run_op("BitwiseXor", [x, y]), [x ^ y])


SMALL = [ml_dtypes.float8_e4m3fn, ml_dtypes.float8_e4m3fnuz, ml_dtypes.float8_e5m2, ml_dtypes.float8_e5m2fnuz]


@pytest.mark.parametrize("dtype", [*FLOATS, *SMALL])
def test_kinds_of_floats(dtype):
    x = np.array([1, np.nan, np.inf, -np.inf, 0], np.float32).astype(dtype)
    wide = x.astype(np.float32)
    assert_same(run_op("IsNaN", [x]), [np.isnan(wide)])
    for negative in (0, 1):
        for positive in (0, 1):
            expected = np.isinf(wide) & (((wide < 0) & (negative == 1)) | ((wide > 0) & (positive == 1)))
            assert_same(run_op("IsInf", [x], detect_negative=negative, detect_positive=positive), [expected])
