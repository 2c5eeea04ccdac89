"""Activations in what the official suite leaves open: element types, coefficients, old versions."""

import ml_dtypes
import numpy as np
import pytest
from scipy.special import erf

from models import assert_rounded, assert_same, reference_op, run_op

FLOATS = [np.float16, np.float32, np.float64, ml_dtypes.bfloat16]
X = np.array([[-30, -2.5, -1, -0.5], [0, 0.25, 1.5, 30]])

PLAIN = ["Relu", "LeakyRelu", "Elu", "Selu", "Celu", "ThresholdedRelu", "Sigmoid", "HardSigmoid", "HardSwish", "Swish"]
PLAIN += ["Mish", "Gelu", "Softplus", "Softsign", "Softmax", "LogSoftmax", "Hardmax", "Shrink"]
# Those of whose constants the reference has a float32.
EXACT = {
    "Gelu": lambda x: x * (1 + erf(x / np.sqrt(2))) / 2,
    "HardSwish": lambda x: x * np.clip(x / 6 + 0.5, 0, 1),
}
COEFFICIENTS = [
    ("LeakyRelu", {"alpha": 0.3}),
    ("Elu", {"alpha": 2.0}),
    ("Selu", {"alpha": 2.0, "gamma": 3.0}),
    ("Celu", {"alpha": 0.5}),
    ("ThresholdedRelu", {"alpha": -1.0}),
    ("HardSigmoid", {"alpha": 0.5, "beta": 0.25}),
    ("HardSigmoid", {"alpha": 1 / 6, "beta": 0.5}),
    ("HardSigmoid", {"alpha": 1 / 6, "beta": 0.4}),
    ("Swish", {"alpha": 0.5}),
    ("Gelu", {"approximate": "tanh"}),
    ("Shrink", {"bias": 1.5, "lambd": 1.0}),
]


@pytest.mark.parametrize("dtype", FLOATS)
@pytest.mark.parametrize("op", PLAIN)
def test_each_type(op, dtype):
    if op == "Shrink" and dtype is ml_dtypes.bfloat16:
        pytest.skip("not in ONNX")
    x = X.astype(dtype)
    [y] = run_op(op, [x])
    assert y.dtype == dtype
    exact = EXACT[op](X) if op in EXACT else reference_op(op, [x.astype(np.float64)])[0]
    # Beyond 20 ATen's Softplus is x itself, and 32 units in the last place of float64 off.
    assert_rounded(y, exact, ulps=32 if (op, dtype) == ("Softplus", np.float64) else 2)


@pytest.mark.parametrize(("op", "coefficients"), COEFFICIENTS)
def test_coefficients(op, coefficients):
    x = X.astype(np.float32)
    assert_same(run_op(op, [x], **coefficients), reference_op(op, [x], **coefficients))


@pytest.mark.parametrize("op", [op for op in PLAIN if op not in ("Hardmax", "Shrink")])
def test_nan_passes(op):
    assert np.isnan(run_op(op, [np.array([np.nan], np.float32)])[0]).all()


@pytest.mark.parametrize("dtype", [np.int8, np.int16, np.int32, np.int64])
def test_relu_of_integers(dtype):
    x = np.array([-3, 0, 3], dtype)
    assert_same(run_op("Relu", [x]), [np.maximum(x, dtype(0))])


@pytest.mark.parametrize("dtype", [np.int32, np.int64, np.uint32, np.uint64, *FLOATS])
def test_prelu_of_each_type(dtype):
    unsigned = np.issubdtype(dtype, np.unsignedinteger)
    x = np.array([[2**31, 1, 3], [7, 2, 0]] if unsigned else [[-3, 1, 3], [-7, -2, 0]], dtype)
    slope = np.array([2, 3, 4], dtype)
    assert_same(run_op("PRelu", [x, slope]), [x if unsigned else np.where(x < 0, x * slope, x)])


@pytest.mark.parametrize("opset", [1, 6])
def test_old_prelu_has_slopes_of_channels(opset):
    x = np.random.default_rng(0).normal(size=(2, 3, 3)).astype(np.float32)
    for slope in (np.array([0.1, 0.2, 0.3], np.float32), np.array([0.5], np.float32)):
        expected = np.where(x < 0, x * slope.reshape(-1, 1), x)
        assert_same(run_op("PRelu", [x, slope], opset=opset), [expected])
    for shape in ((2, 3, 3), (3, 1), (1, 3, 1)):
        slope = np.random.default_rng(1).normal(size=shape).astype(np.float32)
        assert_same(run_op("PRelu", [x, slope], opset=opset), [np.where(x < 0, x * slope, x)])


@pytest.mark.parametrize("dtype", [np.int8, np.int32, np.int64, np.uint8, np.uint16, np.uint32])
def test_shrink_of_integers(dtype):
    x = np.array([0, 1, 2, 3, 100] if np.iinfo(dtype).min == 0 else [-100, -2, -1, 0, 1, 2, 100], dtype)
    wide = x.astype(np.float64)
    expected = np.where(wide < -1.5, wide + 1, np.where(wide > 1.5, wide - 1, 0)).astype(dtype)
    assert_same(run_op("Shrink", [x], lambd=1.5, bias=1.0), [expected])


@pytest.mark.parametrize("op", ["Softmax", "LogSoftmax", "Hardmax"])
@pytest.mark.parametrize("opset", [1, 11])
@pytest.mark.parametrize("axis", [None, 0, 1, 2, -1])
def test_before_13_rows_are_normalised_as_a_whole(op, opset, axis):
    if axis == -1 and opset == 1:
        pytest.skip("not in ONNX")
    x = np.random.default_rng(0).normal(size=(2, 3, 4)).astype(np.float32)
    options = {} if axis is None else {"axis": axis}
    split = 1 if axis is None else axis % 3
    rows = x.reshape(int(np.prod(x.shape[:split])), -1)
    expected = reference_op(op, [rows], axis=-1)[0].reshape(x.shape)
    assert_same(run_op(op, [x], opset=opset, **options), [expected])


def test_hardmax_takes_the_first_maximum():
    x = np.array([[1, 5, 5, 2], [3, 3, 3, 3]], np.float32)
    assert_same(run_op("Hardmax", [x]), [np.array([[0, 1, 0, 0], [1, 0, 0, 0]], np.float32)])
    assert_same(run_op("Hardmax", [x[:, :0]]), [x[:, :0]])


@pytest.mark.parametrize("dtype", FLOATS)
@pytest.mark.parametrize("alpha", [1.0, 1.5])
def test_swiglu(alpha, dtype):
    a, b = X.astype(dtype), X[::-1].astype(dtype)
    exact = X / (1 + np.exp(-alpha * X)) * X[::-1]
    [y] = run_op("SwiGLU", [a, b], alpha=alpha)
    assert y.dtype == dtype
    assert_rounded(y, exact, ulps=2, roundings=2)  # of both factors
