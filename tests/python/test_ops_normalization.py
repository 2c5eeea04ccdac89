"""Normalizations and Dropout: element types, old versions, forms that the official suite has not."""

import ml_dtypes
import numpy as np
import pytest
from onnx import TensorProto, helper

import onnx_torch.backend
from models import assert_same, model_of, op_model, run_op, tensor_info
from random_numbers import RNG

TYPES = [np.float32, np.float64, np.float16, ml_dtypes.bfloat16]


def normal(*shape, dtype=np.float32):
    return (RNG.standard_normal(shape) * 2 + 1).astype(dtype)


def close(actual, expected, dtype=np.float32, stash=None):
    """Compares what is computed in `stash`, or in the type itself. Of 16 bits, each step is rounded."""
    eps = max(float(ml_dtypes.finfo(t).eps) for t in (dtype, stash or dtype))
    tolerance = (4 if np.dtype(dtype).itemsize == 2 else 32) * eps
    assert_same([actual], [np.asarray(expected).astype(dtype)], rtol=tolerance, atol=tolerance)


EPSILON = float(np.float32(1e-5))  # as an attribute holds it


def standardized(x, axes, epsilon=EPSILON):
    x = x.astype(np.float64)
    return (x - x.mean(axes, keepdims=True)) / np.sqrt(x.var(axes, keepdims=True) + epsilon)


def channels(v, rank=4):
    return v.astype(np.float64).reshape(-1, *[1] * (rank - 2))


@pytest.mark.parametrize("params", TYPES)
@pytest.mark.parametrize("dtype", TYPES)
def test_batch_normalization_of_mixed_types(dtype, params):
    x = normal(2, 3, 4, 5, dtype=dtype)
    scale, b, mean = (normal(3, dtype=params) for _ in range(3))
    var = np.abs(normal(3, dtype=params))
    want = channels(scale) * (x.astype(np.float64) - channels(mean)) / np.sqrt(channels(var) + EPSILON) + channels(b)
    close(run_op("BatchNormalization", [x, scale, b, mean, var])[0], want, dtype)


@pytest.mark.parametrize("dtype", TYPES)
@pytest.mark.parametrize(
    "opset, outputs, options",
    [
        (15, 3, {"training_mode": 1}),
        (9, 5, {}),
        (7, 5, {}),
        (6, 5, {"is_test": 0}),
        (6, 1, {}),
    ],
)
def test_batch_normalization_in_training(opset, outputs, options, dtype):
    x = normal(4, 3, 5, dtype=dtype)
    scale, b, mean, var = (np.abs(normal(3, dtype=dtype)) for _ in range(4))
    options = {"outputs": outputs, "momentum": 0.8, **options}
    results = run_op("BatchNormalization", [x, scale, b, mean, var], opset=opset, **options)
    wide = x.astype(np.float64)
    batch = [wide.mean((0, 2)), wide.var((0, 2))]
    kept = float(np.float32(0.8))  # as an attribute holds it
    running = [old.astype(np.float64) * kept + new * (1 - kept) for old, new in zip((mean, var), batch, strict=True)]
    y = standardized(x, (0, 2)) * channels(scale, 3) + channels(b, 3)
    for actual, expected in zip(results, [y, *running, *batch][:outputs], strict=True):
        close(actual, expected, dtype)


@pytest.mark.parametrize("outputs", [1, 5])
def test_batch_normalization_of_each_feature(outputs):
    x = normal(6, 2, 3)
    scale, b, mean, var = (np.abs(normal(2, 3)) for _ in range(4))
    results = run_op("BatchNormalization", [x, scale, b, mean, var], opset=7, outputs=outputs, spatial=0)
    centre, spread = (mean, var) if outputs == 1 else (x.mean(0), x.var(0))
    close(results[0], scale * (x - centre) / np.sqrt(spread + 1e-5) + b)
    if outputs == 5:
        close(results[1], mean * 0.9 + x.mean(0) * 0.1)


@pytest.mark.parametrize("known", [True, False])
@pytest.mark.parametrize("shape", [(5,), (5, 1)])
def test_batch_normalization_of_few_dimensions(shape, known):
    x = normal(*shape)
    params = [np.array([v], np.float32) for v in (2, 1, 0.5, 4)]
    model = op_model("BatchNormalization", [x, *params])
    if known:
        model.graph.input[0].CopyFrom(tensor_info("x0", x, x.shape))
    close(onnx_torch.backend.prepare(model, "CPU").run([x, *params])[0], 2 * (x - 0.5) / np.sqrt(4 + 1e-5) + 1)


def test_batch_normalization_is_one_call():
    x = normal(2, 3, 4)
    model = op_model("BatchNormalization", [x, *(np.ones(3, np.float32) for _ in range(4))])
    model.graph.input[0].CopyFrom(tensor_info("x0", x, ("n", 3, "size")))
    assert onnx_torch.backend.prepare(model, "CPU").graph().count("aten::") == 1


@pytest.mark.parametrize("dtype", TYPES)
def test_normalizations_within_an_instance(dtype):
    x = normal(2, 4, 3, 5, dtype=dtype)
    scale, bias = normal(4, dtype=dtype), normal(4, dtype=dtype)
    want = standardized(x, (2, 3)) * channels(scale) + channels(bias)
    close(run_op("InstanceNormalization", [x, scale, bias])[0], want, dtype)

    groups = standardized(x.reshape(2, 2, 2, 3, 5), (2, 3, 4)).reshape(x.shape)
    want = groups * channels(scale) + channels(bias)
    close(run_op("GroupNormalization", [x, scale, bias], num_groups=2)[0], want, dtype, np.float32)
    for stash in (TensorProto.DOUBLE, TensorProto.FLOAT16):
        if stash == TensorProto.DOUBLE or dtype is not np.float64:
            actual = run_op("GroupNormalization", [x, scale, bias], num_groups=2, stash_type=stash)[0]
            rounding = max(
                float(ml_dtypes.finfo(t).eps) for t in (dtype, *[np.float16] * (stash == TensorProto.FLOAT16))
            )
            few = 4 * rounding * np.abs(want).max()
            np.testing.assert_allclose(actual.astype(np.float64), want, rtol=0, atol=few)
    want = groups * channels(scale[:2].repeat(2)) + channels(bias[:2].repeat(2))
    close(run_op("GroupNormalization", [x, scale[:2], bias[:2]], opset=18, num_groups=2)[0], want, dtype, np.float32)


@pytest.mark.parametrize("dtype", TYPES)
@pytest.mark.parametrize("axis, shape", [(-1, [5]), (2, [3, 5]), (-2, [3, 5]), (-1, [1]), (2, [5]), (1, [4, 1, 1])])
def test_layer_and_rms_normalization(axis, shape, dtype):
    x, scale, b = normal(2, 4, 3, 5, dtype=dtype), normal(*shape, dtype=dtype), normal(*shape, dtype=dtype)
    axes = tuple(range(axis % 4, 4))
    want = standardized(x, axes) * scale.astype(np.float64) + b.astype(np.float64)
    close(run_op("LayerNormalization", [x, scale, b], axis=axis)[0], want, dtype, np.float32)
    close(run_op("LayerNormalization", [x, scale], axis=axis)[0], want - b.astype(np.float64), dtype, np.float32)
    y, mean, inverse = run_op("LayerNormalization", [x, scale, b], axis=axis, outputs=3)
    close(y, want, dtype, np.float32)
    wide = x.astype(np.float64)
    close(mean, wide.mean(axes, keepdims=True))
    close(inverse, 1 / np.sqrt(wide.var(axes, keepdims=True) + 1e-5))
    want = wide / np.sqrt((wide**2).mean(axes, keepdims=True) + 1e-5) * scale.astype(np.float64)
    close(run_op("RMSNormalization", [x, scale], axis=axis)[0], want, dtype, np.float32)


def test_rms_normalization_has_the_type_of_its_scale():
    x, scale = normal(2, 4, dtype=np.float16), normal(4)
    wide = x.astype(np.float64)
    [actual] = run_op("RMSNormalization", [x, scale])
    assert actual.dtype == np.float32
    np.testing.assert_allclose(actual, wide / np.sqrt((wide**2).mean(1, keepdims=True) + 1e-5) * scale, rtol=2**-10)


@pytest.mark.parametrize("optimize", [True, False])
@pytest.mark.parametrize("largest", [1e-10, 1e10, 1e17])
def test_layer_normalization_of_large_and_small_numbers(largest, optimize):
    """The numbers go up to where the square of a number leaves float32's range."""
    x = (normal(5, 64) * np.float32(largest)).astype(np.float32)
    model = op_model("LayerNormalization", [x, np.ones(64, np.float32)], epsilon=0.0)
    close(onnx_torch.prepare(model, optimize=optimize).run([x, np.ones(64, np.float32)])[0], standardized(x, -1, 0))


@pytest.mark.parametrize("optimize", [True, False])
@pytest.mark.parametrize("largest", [1e-10, 1e10, 1e17])
def test_group_normalization_of_large_and_small_numbers(largest, optimize):
    x, one, zero = (normal(2, 4, 32) * np.float32(largest)).astype(np.float32), *np.float32([[1] * 4, [0] * 4])
    model = op_model("GroupNormalization", [x, one, zero], epsilon=0.0, num_groups=2)
    exact = standardized(x.reshape(2, 2, 64), -1, 0).reshape(x.shape)
    close(onnx_torch.prepare(model, optimize=optimize).run([x, one, zero])[0], exact)


def test_layer_normalization_of_any_shape_is_one_call():
    inputs = [tensor_info(name, element=TensorProto.FLOAT, shape=s) for name, s in [("x", ["n", "l", 8]), ("s", [8])]]
    node = helper.make_node("LayerNormalization", ["x", "s"], ["y"])
    prepared = onnx_torch.backend.prepare(model_of([node], inputs, ["y"]), "CPU", optimize=False)
    assert prepared.graph().count("aten::") == 1
    x, scale = normal(2, 3, 8), normal(8)
    close(prepared.run([x, scale])[0], standardized(x, -1) * scale)


@pytest.mark.parametrize("dtype", TYPES)
@pytest.mark.parametrize("p, axis", [(1, 0), (2, -1), (2, 1)])
def test_lp_normalization(p, axis, dtype):
    x = normal(3, 4, dtype=dtype)
    x[0], x[:, 0] = 0, 0
    wide = x.astype(np.float64)
    norm = np.linalg.norm(wide, p, axis, keepdims=True)
    close(run_op("LpNormalization", [x], axis=axis, p=p)[0], wide / np.where(norm == 0, 1, norm), dtype)


@pytest.mark.parametrize("dtype", TYPES)
def test_mean_variance_normalization(dtype):
    x = normal(2, 3, 4, 5, dtype=dtype)
    wide = x.astype(np.float64)
    for options, axes in (({}, (0, 2, 3)), ({"axes": [1, -1]}, (1, 3))):
        want = (wide - wide.mean(axes, keepdims=True)) / (wide.std(axes, keepdims=True) + 1e-9)
        close(run_op("MeanVarianceNormalization", [x], **options)[0], want, dtype)


@pytest.mark.parametrize("dtype", TYPES)
@pytest.mark.parametrize("shape", [(2, 6, 3, 4), (2, 6), (2, 6, 5), (1, 6, 2, 2, 2), (2, 6, 3, 0)])
@pytest.mark.parametrize("size", [1, 2, 3, 6])
def test_lrn(size, shape, dtype):
    x = normal(*shape, dtype=dtype)
    wide = x.astype(np.float64)
    sums = np.zeros_like(wide)
    for c in range(6):
        region = wide[:, max(0, c - (size - 1) // 2) : c + size // 2 + 1]
        sums[:, c] = (region**2).sum(1)
    want = wide / (2 + 0.5 / size * sums) ** float(np.float32(0.6))
    close(run_op("LRN", [x], size=size, alpha=0.5, beta=0.6, bias=2.0)[0], want, dtype)


@pytest.mark.parametrize("dtype", [*TYPES, ml_dtypes.float8_e5m2])
def test_dropout_of_a_seed_is_that_of_numpy(dtype):
    x = normal(4, 5, dtype=dtype)
    ratio, training = np.float32(0.25), np.bool_(True)
    y, mask = run_op("Dropout", [x, ratio, training], opset=22, outputs=2, seed=11)
    want = np.random.RandomState(11).uniform(size=x.shape) >= 0.25
    np.testing.assert_array_equal(mask, want)
    half = float(ml_dtypes.finfo(dtype).eps) / 2  # what rounding once takes; float32 has the division by 0.75 besides
    np.testing.assert_allclose(y.astype(np.float64), x.astype(np.float64) * want / 0.75, rtol=2 * half, atol=0)


def test_dropout_without_a_seed_varies():
    x = np.ones((1000,), np.float32)
    inputs = [x, None, np.bool_(True)]
    prepared = onnx_torch.backend.prepare(op_model("Dropout", inputs, outputs=2), "CPU")
    (y, mask), (_, other) = prepared.run([x, inputs[2]]), prepared.run([x, inputs[2]])
    assert 400 < mask.sum() < 600 and (mask != other).any()
    np.testing.assert_array_equal(y, mask * np.float32(2))


@pytest.mark.parametrize(
    "opset, options, mask_dtype",
    [
        (6, {"is_test": 1}, np.float32),
        (7, {}, np.float32),
        (10, {}, np.bool_),
        (12, {}, np.bool_),
    ],
)
def test_dropout_for_inference(opset, options, mask_dtype):
    x = normal(3, 2)
    y, mask = run_op("Dropout", [x], opset=opset, outputs=2, **options)
    np.testing.assert_array_equal(y, x)
    assert mask.dtype == mask_dtype and mask.all() and mask.shape == x.shape
