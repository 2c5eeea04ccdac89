"""Arithmetic in what the official suite leaves open: element types, old versions, shapes on the host."""

import math

import ml_dtypes
import numpy as np
import onnx
import pytest
from onnx.reference import ReferenceEvaluator

import onnx_torch.backend
from models import assert_same, model_of, reference_op, run_op

INTEGERS = [np.int8, np.int16, np.int32, np.int64, np.uint8, np.uint16, np.uint32, np.uint64]
FLOATS = [np.float16, np.float32, np.float64, ml_dtypes.bfloat16]
WRAPPING = ["Add", "Sub", "Mul", "Div", "Mod", "Max", "Min"]


def extremes(dtype) -> np.ndarray:
    """Gives values where arithmetic wraps and order shows; none is 0."""
    limits = np.iinfo(dtype)
    some = [limits.max, limits.max - 1, limits.max // 2 + 1, 1, 3, 7, 100]
    return np.array(some if limits.min == 0 else [*some, limits.min + 1, -1, -7], dtype)


@pytest.mark.parametrize("dtype", INTEGERS)
@pytest.mark.parametrize("op", WRAPPING)
def test_integers_wrap_as_their_type_does(op, dtype):
    a = extremes(dtype)
    inputs = [a[:, None], a]
    with np.errstate(over="ignore"):
        assert_same(run_op(op, inputs), reference_op(op, inputs))


@pytest.mark.parametrize("dtype", FLOATS)
@pytest.mark.parametrize("op", WRAPPING)
def test_floats_of_each_width(op, dtype):
    inputs = [np.array([[5.5], [-3.25]], dtype), np.array([2, -1.5, 0.75], dtype)]
    assert_same(run_op(op, inputs), reference_op(op, inputs), rtol=float(ml_dtypes.finfo(dtype).eps), atol=0)


@pytest.mark.parametrize("dtype", INTEGERS)
@pytest.mark.parametrize("op", ["Abs", "Sign", "Neg"])
def test_signs_of_integers(op, dtype):
    if op == "Neg" and np.iinfo(dtype).min == 0:
        pytest.skip("not in ONNX")
    inputs = [np.append(extremes(dtype), dtype(0))]
    assert_same(run_op(op, inputs), reference_op(op, inputs))


def test_integer_division_truncates():
    a, b = np.array([7, -7, 7, -7], np.int32), np.array([2, 2, -2, -2], np.int32)
    assert_same(run_op("Div", [a, b]), [np.array([3, -3, -3, 3], np.int32)])
    assert_same(run_op("Mod", [a, b]), [np.array([1, 1, -1, -1], np.int32)])
    assert_same(run_op("Mod", [a, b], fmod=1), [np.array([1, -1, 1, -1], np.int32)])


@pytest.mark.parametrize("dtype", [np.int8, np.int16, np.int32, np.int64])
def test_the_least_integer_can_be_divided_by_minus_1(dtype):
    a, b = np.array([np.iinfo(dtype).min, 6], dtype), np.array(-1, dtype)
    assert_same(run_op("Div", [a, b]), [np.array([np.iinfo(dtype).min, -6], dtype)])
    assert_same(run_op("Mod", [a, b]), [np.array([0, 0], dtype)])


def test_floor_remainder_has_the_divisors_sign():
    infinity = np.float32("inf")
    a = np.array([-0.0, 0.0, 5, -5, 5, -5, infinity, 5], np.float32)
    b = np.array([3, -3, infinity, infinity, -infinity, -infinity, 3, 0], np.float32)
    expected = np.array([0.0, -0.0, 5, infinity, -infinity, -5, np.nan, np.nan], np.float32)
    (actual,) = run_op("Mod", [a, b])
    np.testing.assert_array_equal(actual, expected)
    np.testing.assert_array_equal(np.signbit(actual[:6]), np.signbit(expected[:6]))


def test_truncated_remainder_of_uint64():
    a, b = np.array([2**64 - 1, 2**63, 5], np.uint64), np.array([10, 2**63 + 1, 3], np.uint64)
    assert_same(run_op("Mod", [a, b], fmod=1), [a % b])


@pytest.mark.parametrize("exponent", [np.int8, np.int64, np.uint16, np.uint64, np.float16, np.float32, np.float64])
@pytest.mark.parametrize("base", [np.int32, np.int64, *FLOATS])
def test_power_has_the_type_of_its_base(base, exponent):
    x, y = np.array([1, 2, 3, 5], base), np.array([0, 1, 2, 3], exponent)
    assert_same(run_op("Pow", [x, y]), [np.array([1, 2, 9, 125], base)])
    assert_same(run_op("Pow", [x, np.array(2, exponent)]), [np.array([1, 4, 9, 25], base)])


def test_power_of_integers_is_exact():
    x = np.array([3, 3**19, 2**31], np.int64)
    assert_same(run_op("Pow", [x, np.array(2, np.int32)]), [x * x])


@pytest.mark.parametrize("count", [1, 2, 4])
@pytest.mark.parametrize("op", ["Sum", "Mean", "Max", "Min"])
def test_any_number_of_inputs_broadcasts(op, count):
    shapes = [(2, 1, 3), (4, 1), (3,), ()]
    inputs = [np.random.default_rng(i).normal(size=shape).astype(np.float32) for i, shape in enumerate(shapes[:count])]
    fold = {"Sum": sum, "Mean": lambda x: sum(x) / count}
    expected = fold[op](inputs) if op in fold else reference_op(op, inputs)[0]
    assert_same(run_op(op, inputs), [expected])


def test_extremes_keep_nan():
    a, b = np.array([np.nan, 1], np.float32), np.array([1, np.nan], np.float32)
    for op in ("Max", "Min"):
        assert np.isnan(run_op(op, [a, b])[0]).all()


@pytest.mark.parametrize("dtype", [*INTEGERS, *FLOATS])
@pytest.mark.parametrize("bounds", [(1, 4), (None, 4), (1, None), (4, 1), (None, None)])
def test_clip_of_each_type(dtype, bounds):
    low, high = (None if bound is None else np.array(bound, dtype) for bound in bounds)
    x = np.arange(8, dtype=np.float32).astype(dtype)
    expected = x if low is None else np.maximum(x, low)
    assert_same(run_op("Clip", [x, low, high]), [expected if high is None else np.minimum(expected, high)])


def test_clip_of_large_unsigned_integers():
    x = np.array([0, 5, 2**63 + 1, 2**64 - 1], np.uint64)
    bounds = [np.array(2, np.uint64), np.array(2**63 + 3, np.uint64)]
    assert_same(run_op("Clip", [x, *bounds]), [np.clip(x, *bounds)])


@pytest.mark.parametrize("dtype", [np.float16, np.float32, np.float64])
@pytest.mark.parametrize("opset", [1, 6])
def test_clip_by_attributes(opset, dtype):
    x = np.array([-2, -0.5, 0.5, 2], dtype)
    assert_same(run_op("Clip", [x], opset=opset, min=-1.0, max=1.0), [np.clip(x, dtype(-1), dtype(1))])
    assert_same(run_op("Clip", [x], opset=opset, max=1.0), [np.minimum(x, dtype(1))])


@pytest.mark.parametrize("op", ["CumSum", "CumProd"])
@pytest.mark.parametrize("options", [{}, {"exclusive": 1}, {"reverse": 1}, {"exclusive": 1, "reverse": 1}])
@pytest.mark.parametrize("dtype", [np.int32, np.uint32, np.uint64, np.float32])
def test_cumulation(op, options, dtype):
    x = np.arange(1, 25).reshape(2, 3, 4).astype(dtype)
    for axis in (0, -1, np.int64(1)):
        inputs = [x, np.array(axis, np.int32 if isinstance(axis, int) else np.int64)]
        assert_same(run_op(op, inputs, **options), reference_op(op, inputs, **options))


@pytest.mark.parametrize("dtype", [np.int32, np.uint32, np.int64, np.uint64])
@pytest.mark.parametrize("axis", [0, 1])
def test_cumulation_wraps(dtype, axis):
    x = np.full((5, 6), np.iinfo(dtype).max - 3, dtype)
    assert_same(run_op("CumSum", [x, np.array(axis)]), [np.cumsum(x, axis, dtype)])
    assert_same(run_op("CumProd", [x, np.array(axis)]), [np.cumprod(x, axis, dtype)])


def test_exclusive_sums_survive_infinity_and_emptiness():
    x = np.array([1, np.inf, 2], np.float32)
    assert_same(run_op("CumSum", [x, np.array(0)], exclusive=1), [np.array([0, 1, np.inf], np.float32)])
    empty = np.zeros((0, 2), np.float32)
    assert_same(run_op("CumSum", [empty, np.array(0)], exclusive=1), [empty])


@pytest.mark.parametrize("opset", [1, 6])
@pytest.mark.parametrize(
    ("shape", "axis", "modern"),
    [
        ((), None, ()),
        ((1, 1), None, (1, 1)),
        ((4, 5), None, (4, 5)),
        ((3, 4), 1, (3, 4, 1)),
        ((2,), 0, (2, 1, 1, 1)),
        ((5,), -1, (5,)),
    ],
)
def test_old_broadcasting(opset, shape, axis, modern):
    rng = np.random.default_rng(0)
    a, b = rng.normal(size=(2, 3, 4, 5)).astype(np.float32), rng.normal(size=shape).astype(np.float32)
    options = {"broadcast": 1} if axis is None else {"broadcast": 1, "axis": axis}
    assert_same(run_op("Sub", [a, b], opset=opset, **options), [a - b.reshape(modern)])


def test_old_power_broadcasts_as_well():
    a, b = np.full((2, 3, 4), 2, np.float32), np.arange(3, dtype=np.float32)
    assert_same(run_op("Pow", [a, b], opset=1, broadcast=1, axis=1), [a ** b.reshape(3, 1)])


@pytest.mark.parametrize(
    "op", ["Abs", "Ceil", "Exp", "Floor", "Log", "Neg", "Reciprocal", "Sqrt", "Tanh", "Relu", "Sigmoid"]
)
def test_consumed_inputs_mean_nothing(op):
    x = np.array([0.5, 1.5, 2.25], np.float32)
    assert_same(run_op(op, [x], opset=1, consumed_inputs=[0]), reference_op(op, [x]))


@pytest.mark.parametrize("dtype", FLOATS)
@pytest.mark.parametrize(
    "op",
    ["Acos", "Acosh", "Asin", "Asinh", "Atan", "Atanh", "Ceil", "Cos", "Cosh", "Erf", "Exp", "Floor", "Log"]
    + ["Reciprocal", "Round", "Sin", "Sinh", "Sqrt", "Tan", "Tanh"],
)
def test_functions_of_one_number(op, dtype):
    x = np.array([0.125, 0.5, 0.875] if op != "Acosh" else [1.125, 2.5, 7], dtype)
    wide = x.astype(np.float64)
    expected = np.vectorize(math.erf)(wide) if op == "Erf" else reference_op(op, [wide])[0]
    tolerance = float(ml_dtypes.finfo(dtype).eps) * (1 if x.dtype.itemsize == 2 else 4)
    (actual,) = run_op(op, [x])
    assert actual.dtype == x.dtype
    np.testing.assert_allclose(actual.astype(np.float64), expected, rtol=tolerance)


def test_erf_of_integers():
    assert_same(run_op("Erf", [np.array([-3, 0, 3], np.int32)], opset=9), [np.array([0, 0, 0], np.int32)])


def run_on_shapes(body: str, x: np.ndarray, input_type: str) -> None:
    """Compares shape arithmetic with the reference; it may read nothing back."""
    text = f'<ir_version: 9, opset_import: ["": 18]> g ({input_type} x) => (y) {body}'
    model = onnx.parser.parse_model(text)
    prepared = onnx_torch.backend.prepare(model)
    assert "tolist" not in prepared.graph()
    assert_same(prepared.run([x]), ReferenceEvaluator(model).run(None, {"x": x}))


SHAPES = ["float[2,1,4]", "float[a,1,b]", "float[a,b,c]"]
VECTORS = """<int64[3] ones = {1, 1, 1}, int64[3] target = {2, 3, -1}, int64[1] minus = {-1}, int64 two = {2},
              int64 m = {-3}>"""


@pytest.mark.parametrize("input_type", SHAPES)
@pytest.mark.parametrize("op", WRAPPING)
def test_shape_arithmetic_stays_on_the_host(op, input_type):
    x = np.ones((2, 1, 4), np.float32)
    run_on_shapes(f"{VECTORS} {{ s = Shape(x) a = Sub(s, target) y = {op}(a, m) }}", x, input_type)
    run_on_shapes(f"{VECTORS} {{ s = Shape(x) i = Gather(s, two) a = Neg(i) y = {op}(a, m) }}", x, input_type)
    run_on_shapes(f"{VECTORS} {{ s = Shape(x) a = Neg(s) b = Abs(a) y = {op}(minus, b) }}", x, input_type)


@pytest.mark.parametrize("input_type", SHAPES)
def test_shape_an_exporter_makes_for_expand(input_type):
    body = """{ s = Shape(x) open = Equal(target, minus) filled = Where(open, ones, target)
                all = Max(s, filled) y = Expand(x, all) }"""
    run_on_shapes(VECTORS + body, np.ones((2, 1, 4), np.float32), input_type)


@pytest.mark.parametrize("input_type", SHAPES)
@pytest.mark.parametrize("op", ["Equal", "Greater", "GreaterOrEqual", "Less", "LessOrEqual"])
def test_comparisons_of_shapes_stay_on_the_host(op, input_type):
    x = np.ones((2, 1, 4), np.float32)
    run_on_shapes(f"{VECTORS} {{ s = Shape(x) c = {op}(s, two) y = Where(c, s, minus) }}", x, input_type)
    run_on_shapes(f"{VECTORS} {{ s = Shape(x) y = {op}(s, two) }}", x, input_type)
    body = f"{{ s = Shape(x) i = Gather(s, two) c = {op}(i, two) d = Not(c) e = Or(c, d) y = Where(d, m, i) }}"
    run_on_shapes(VECTORS + body, x, input_type)
    body = f"{{ s = Shape(x) i = Gather(s, two) c = {op}(i, two) y = Where(c, s, ones) }}"
    run_on_shapes(VECTORS + body, x, input_type)


@pytest.mark.parametrize("op", ["Div", "Mod"])
def test_a_division_by_zero_on_the_host_is_an_error(op):
    x = onnx.helper.make_tensor_value_info("x", onnx.TensorProto.FLOAT, ["N"])
    nodes = [onnx.helper.make_node("Shape", ["x"], ["s"]), onnx.helper.make_node(op, ["s", "zero"], ["y"])]
    zero = onnx.numpy_helper.from_array(np.array([0]), "zero")
    rep = onnx_torch.backend.prepare(model_of(nodes, [x], ["y"], initializer=[zero]))
    with pytest.raises(onnx_torch.Error, match=rf"{op}.*division by (0|zero)"):
        rep.run([np.ones(3, np.float32)])
