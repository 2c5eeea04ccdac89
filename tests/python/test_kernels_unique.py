"""Unique, against numpy."""

import numpy as np
import pytest
import torch

from kernel_support import kernels, new_pool, to_ids, to_strings

SHAPES = [(), (0,), (1,), (7,), (50,), (4, 3), (6, 2, 2), (0, 3), (3, 0), (2, 0, 3)]
DTYPES = "bool uint8 int8 int16 int32 int64 float16 float32 float64 complex64 complex128".split()


def numpy_unique(x, axis, sorted):
    y, first, inverse, counts = np.unique(x, True, True, True, axis=axis)
    inverse = inverse.reshape(-1)
    if not sorted:
        order = np.argsort(first)
        first, inverse, counts = first[order], np.argsort(order)[inverse], counts[order]
        y = np.take(x, first, axis=axis)
    return y, first, inverse, counts


def on_other_devices(kernel, *inputs):
    """Gives what the kernel computes on devices other than the CPU."""
    return kernel.default._op_dk(torch._C.DispatchKey.CompositeExplicitAutograd, *inputs)


def assert_matches_numpy(x, axis, sorted):
    inputs = torch.from_numpy(x), axis, sorted
    for got in (kernels.unique(*inputs), on_other_devices(kernels.unique, *inputs)):
        for result, expected in zip(got, numpy_unique(x, axis, sorted), strict=True):
            np.testing.assert_array_equal(result, expected, strict=True)


def axes(shape):
    return [None, *range(-len(shape), len(shape))]


@pytest.mark.parametrize("sorted", [True, False])
@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("shape", SHAPES, ids=str)
def test_matches_numpy(shape, dtype, sorted):
    random = np.random.default_rng(0)
    for axis in axes(shape):
        x = random.integers(-1 if dtype.startswith("int") else 0, 3, shape).astype(dtype)
        assert_matches_numpy(np.asarray(x), axis, sorted)


@pytest.mark.parametrize("sorted", [True, False])
@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize("shape", SHAPES, ids=str)
def test_nan_is_one_element_but_makes_subtensors_differ(shape, dtype, sorted):
    random = np.random.default_rng(0)
    for axis in axes(shape):
        x = random.choice([0, 1, -0.0, np.inf, -np.inf, np.nan], shape).astype(dtype)
        assert_matches_numpy(np.asarray(x), axis, sorted)


@pytest.mark.parametrize("sorted", [True, False])
def test_nan_in_float16_and_complex(sorted):
    x = np.array([np.nan, 1, np.nan, 0, np.inf, 1])
    assert_matches_numpy(x.astype(np.float16), None, sorted)
    x = torch.tensor([complex(np.nan, 1), 2, complex(1, np.nan), 2j])
    y, first, _inverse, counts = kernels.unique(x, None, sorted)
    values = [2j, 2, None] if sorted else [None, 2, 2j]
    assert [None if v.isnan() else v.item() for v in y] == values
    assert first.tolist() == [3, 1, 0] if sorted else [0, 1, 3]
    assert counts.tolist() == [1, 1, 2] if sorted else [2, 1, 1]


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
def test_subtensors_of_halves_are_those_of_floats(dtype):
    x = torch.from_numpy(np.random.default_rng(0).choice([0, 1, -0.0, np.inf, -np.inf, np.nan], (40, 2)))
    for result, expected in zip(kernels.unique(x.to(dtype), 0, True), kernels.unique(x, 0, True), strict=True):
        torch.testing.assert_close(result.to(expected.dtype), expected, rtol=0, atol=0, equal_nan=True)


def test_bfloat16():
    x = torch.tensor([2, 1, 1, 3, 4, 3], dtype=torch.bfloat16)
    for got in (kernels.unique(x, None, True), kernels.unique(x.unsqueeze(1), 0, True)):
        y, first, inverse, counts = got
        assert y.dtype == torch.bfloat16
        assert y.flatten().tolist() == [1, 2, 3, 4]
        assert first.tolist() == [1, 0, 3, 4]
        assert inverse.tolist() == [1, 0, 0, 2, 3, 2]
        assert counts.tolist() == [2, 1, 2, 1]


@pytest.mark.parametrize("shape", [(40,), (12, 2)], ids=str)
def test_uint64(shape):
    x = np.random.default_rng(0).choice(np.array([0, 1, 2**63 - 1, 2**63, 2**64 - 1], np.uint64), shape)
    for axis in axes(shape):
        got = kernels.unique(torch.from_numpy(x.view(np.int64)), axis, True, True)
        y, *rest = numpy_unique(x, axis, True)
        np.testing.assert_array_equal(got[0].numpy().view(np.uint64), y)
        for result, expected in zip(got[1:], rest, strict=True):
            np.testing.assert_array_equal(result, expected)


@pytest.mark.parametrize("sorted", [True, False])
@pytest.mark.parametrize("shape", [(0,), (30,), (5, 3), (12, 2)], ids=str)
def test_strings(shape, sorted):
    x = np.random.default_rng(0).choice(["", "b", "a", "ab", "é", "z", "\N{GRINNING FACE}", "\uffff"], shape)
    pool = new_pool()
    ids = to_ids(pool, x)
    for axis in axes(shape):
        inputs = pool, ids, axis, sorted
        expected_y, *expected = numpy_unique(x, axis, sorted)
        for got in (kernels.unique_strings(*inputs), on_other_devices(kernels.unique_strings, *inputs)):
            assert to_strings(pool, got[0]).tolist() == expected_y.tolist()
            for result, value in zip(got[1:], expected, strict=True):
                np.testing.assert_array_equal(result, value)


def test_non_contiguous():
    x = np.random.default_rng(0).integers(0, 3, (6, 8)).T[::2]
    assert_matches_numpy(np.ascontiguousarray(x), 0, True)
    for result, expected in zip(kernels.unique(torch.from_numpy(x), 0, True), numpy_unique(x, 0, True), strict=True):
        np.testing.assert_array_equal(result, expected)


def test_errors():
    with pytest.raises(RuntimeError, match="scalar has no axis 0"):
        kernels.unique(torch.tensor(1), 0, True)
    with pytest.raises(IndexError, match="out of range"):
        kernels.unique(torch.zeros(3), 1, True)
