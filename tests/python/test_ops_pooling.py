"""The pools beyond the official cases."""

import ml_dtypes
import numpy as np
import pytest

from models import assert_rounded, assert_same, run_op
from onnx_torch import UnsupportedError
from pass_models import assert_close
from random_numbers import RNG


def normal(*shape, dtype=np.float32):
    return RNG.standard_normal(shape).astype(dtype)


def windows(x, kernel, strides=None, dilations=None, pads=None, ceil_mode=0, count_include_pad=1, **_):
    """Gives all windows as lists of (position in the input, value); a value outside is 0, or left out."""
    rank = len(kernel)
    strides, dilations, pads = strides or [1] * rank, dilations or [1] * rank, pads or [0] * (2 * rank)
    counts = []
    for i, size in enumerate(x.shape):
        room = (size + pads[i] + pads[rank + i] - dilations[i] * (kernel[i] - 1) - 1) / strides[i]
        count = int(np.ceil(room) if ceil_mode else np.floor(room)) + 1
        if ceil_mode and (count - 1) * strides[i] >= size + pads[i]:
            count -= 1
        counts.append(count)
    for position in np.ndindex(*counts):
        window = []
        for tap in np.ndindex(*kernel):
            at = [p * s + k * d - b for p, s, k, d, b in zip(position, strides, tap, dilations, pads, strict=False)]
            if all(0 <= a < size for a, size in zip(at, x.shape, strict=True)):
                window.append((at, x[tuple(at)]))
            elif count_include_pad and all(a < s + e for a, s, e in zip(at, x.shape, pads[rank:], strict=True)):
                window.append((None, 0))
        yield position, counts, window


def pooled(x, reduce, **attributes):
    planes = []
    for plane in x.reshape(-1, *x.shape[2:]):
        y = None
        for position, counts, window in windows(plane, **attributes):
            y = np.empty(counts) if y is None else y
            y[position] = reduce([value for _, value in window])
        planes.append(y)
    return np.stack(planes).reshape(*x.shape[:2], *planes[0].shape)


GEOMETRIES = [
    {"kernel": [3]},
    {"kernel": [3, 2], "strides": [2, 2], "pads": [1, 0, 1, 0], "ceil_mode": 1},
    {"kernel": [3, 3], "strides": [2, 3], "pads": [1, 1, 1, 1], "ceil_mode": 1},
    {"kernel": [2, 2], "strides": [2, 3], "pads": [1, 0, 0, 1]},
    {"kernel": [2, 2], "strides": [2, 3], "pads": [0, 1, 1, 0], "ceil_mode": 1},
    {"kernel": [2, 2], "dilations": [2, 3], "pads": [1, 1, 1, 1]},
    {"kernel": [2, 2, 2], "strides": [2, 1, 2]},
    {"kernel": [2, 2, 2, 2], "strides": [2, 1, 2, 1]},
]


def as_attributes(geometry):
    return {("kernel_shape" if name == "kernel" else name): value for name, value in geometry.items()}


@pytest.mark.parametrize("dtype", [np.float32, np.float64, np.float16])
@pytest.mark.parametrize("count_include_pad", [0, 1])
@pytest.mark.parametrize("geometry", GEOMETRIES, ids=str)
def test_average_pool(geometry, count_include_pad, dtype):
    x = normal(2, 2, *[5, 6, 4, 3][: len(geometry["kernel"])]).astype(dtype)
    (y,) = run_op("AveragePool", [x], count_include_pad=count_include_pad, **as_attributes(geometry))
    assert y.dtype == dtype
    exact = pooled(x.astype(np.float64), np.mean, count_include_pad=count_include_pad, **geometry)
    assert_rounded(y, exact)


@pytest.mark.parametrize("p", [1, 2, 3])
@pytest.mark.parametrize("geometry", GEOMETRIES, ids=str)
def test_lp_pool(geometry, p):
    x = normal(2, 2, *[5, 6, 4, 3][: len(geometry["kernel"])])
    (y,) = run_op("LpPool", [x], p=p, **as_attributes(geometry))
    exact = pooled(x.astype(np.float64), lambda values: np.sum(np.abs(values) ** p) ** (1 / p), **geometry)
    assert_close(y, exact)


@pytest.mark.parametrize("dtype", [np.float32, ml_dtypes.bfloat16, np.int8, np.uint8])
@pytest.mark.parametrize("storage_order", [0, 1])
@pytest.mark.parametrize("geometry", GEOMETRIES, ids=str)
def test_max_pool(geometry, storage_order, dtype):
    shape = (2, 2, *[5, 6, 4, 3][: len(geometry["kernel"])])
    x = (
        RNG.permutation(np.arange(np.prod(shape)) % 250 - (0 if dtype == np.uint8 else 125))
        .reshape(shape)
        .astype(dtype)
    )
    attributes = as_attributes(geometry)
    y, indices = run_op("MaxPool", [x], outputs=2, storage_order=storage_order, **attributes)
    assert_same(run_op("MaxPool", [x], **attributes), [y])
    np.testing.assert_array_equal(
        y, pooled(x.astype(np.float32), np.max, count_include_pad=0, **geometry).astype(dtype)
    )
    planes = x.reshape(4, *shape[2:])
    flat = np.stack([p.ravel(order="F" if storage_order else "C") for p in planes]).ravel()
    np.testing.assert_array_equal(flat[indices], y)


@pytest.mark.parametrize(
    ("auto_pad", "pads"), [("SAME_UPPER", [0, 0, 1, 1]), ("SAME_LOWER", [1, 1, 0, 0]), ("VALID", [0, 0, 0, 0])]
)
@pytest.mark.parametrize("op_type", ["AveragePool", "MaxPool", "LpPool"])
def test_auto_pad(op_type, auto_pad, pads):
    x, options = normal(1, 2, 6, 7), {"kernel_shape": [3, 2], "strides": [2, 2]}
    assert_same(run_op(op_type, [x], auto_pad=auto_pad, **options), run_op(op_type, [x], pads=pads, **options))


@pytest.mark.parametrize("op_type", ["GlobalAveragePool", "GlobalMaxPool", "GlobalLpPool"])
@pytest.mark.parametrize("shape", [(2, 3), (2, 3, 4), (2, 3, 4, 5), (1, 2, 3, 2, 3, 2)])
def test_global_pools(op_type, shape):
    x = normal(*shape)
    reduce = {"GlobalAveragePool": np.mean, "GlobalMaxPool": np.max, "GlobalLpPool": np.linalg.norm}[op_type]
    planes = [reduce(plane.ravel()) for plane in x.reshape(-1, *shape[2:])]
    if len(shape) == 2 and op_type == "GlobalLpPool":
        planes = np.abs(x)
    np.testing.assert_allclose(
        run_op(op_type, [x])[0], np.reshape(planes, shape[:2] + (1,) * (len(shape) - 2)), rtol=1e-5, atol=1e-6
    )


def test_first_versions():
    x = normal(1, 2, 6)
    for op_type, newest in [("AveragePool", {}), ("MaxPool", {}), ("LpPool", {"p": 3})]:
        old = {"p": 3.0} if newest else {}
        expected = run_op(op_type, [x], kernel_shape=[2], **newest)
        assert_same(run_op(op_type, [x], opset=1, kernel_shape=[2], **old), expected)
    assert_same(run_op("GlobalLpPool", [x], opset=1, p=3.0), run_op("GlobalLpPool", [x], p=3))


@pytest.mark.parametrize("pads", [[0, 0, 0, 0], [1, 1, 1, 1]])
def test_max_unpool_undoes_max_pool(pads):
    x = RNG.permutation(np.arange(1.0, 73)).reshape(1, 2, 6, 6).astype(np.float32)
    options = {"kernel_shape": [2, 2], "strides": [2, 2], "pads": pads}
    y, indices = run_op("MaxPool", [x], outputs=2, **options)
    (z,) = run_op("MaxUnpool", [y, indices], **options)
    assert z.shape == x.shape
    assert_same(run_op("MaxPool", [z], **options), [y])
    np.testing.assert_array_equal(z[z != 0], x[z != 0])


def test_a_padding_of_too_many_elements_is_refused():
    x = normal(1, 1, 4)
    kernel = 2**31 - 1
    (y,) = run_op("MaxPool", [x], kernel_shape=[2**21 - 1], pads=[2**20 - 1, 2**20 - 1])
    np.testing.assert_array_equal(y, np.full((1, 1, 4), x.max()))
    with pytest.raises(UnsupportedError, match="MaxPool.*with a padding of more than 1048576 elements"):
        run_op("MaxPool", [x], kernel_shape=[kernel], pads=[kernel // 2, kernel // 2])
