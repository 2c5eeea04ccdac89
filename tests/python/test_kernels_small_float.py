"""Casts to and from the floating types of 8, 6 and 4 bits, against ml_dtypes, onnx.reference and exact arithmetic."""

import ml_dtypes
import numpy as np
import onnx
import pytest
import torch
from onnx import TensorProto as T
from onnx.reference.ops.op_cast import cast_to

from kernel_support import kernels

FLOAT8 = [T.FLOAT8E4M3FN, T.FLOAT8E4M3FNUZ, T.FLOAT8E5M2, T.FLOAT8E5M2FNUZ]
FLOAT6_4 = [T.FLOAT6E2M3, T.FLOAT6E3M2, T.FLOAT4E2M1]
SIGNED = FLOAT8 + FLOAT6_4
TORCH_FLOAT8 = [
    torch.float8_e4m3fn,
    torch.float8_e4m3fnuz,
    torch.float8_e5m2,
    torch.float8_e5m2fnuz,
    torch.float8_e8m0fnu,
]


def numpy_dtype(element_type):
    return onnx.helper.tensor_dtype_to_np_dtype(element_type)


def to_torch(array):
    array = np.ascontiguousarray(array)
    if array.dtype == ml_dtypes.bfloat16:
        return torch.from_numpy(array.view(np.int16)).view(torch.bfloat16)
    return torch.from_numpy(array)


def stored_bits(result, element_type):
    """Gives the bits to compare: codes of 8-bit types; of smaller ones the float16 that stores them, signs too."""
    if isinstance(result, torch.Tensor):
        result = result.view(torch.int16 if result.dtype == torch.float16 else torch.uint8).numpy()
    elif result.dtype.itemsize == 1 and element_type in FLOAT6_4:
        result = result.astype(np.float16).view(np.int16)
    return result.view(np.uint8) if result.dtype != np.int16 else result


def all_values_of_16_bits(dtype):
    return np.arange(1 << 16, dtype=np.uint16).view(dtype)


def random_bits(dtype, count=200_000):
    return np.random.default_rng(0).bytes(count * np.dtype(dtype).itemsize)


SOURCES = {
    "float16": all_values_of_16_bits(np.float16),
    "bfloat16": all_values_of_16_bits(ml_dtypes.bfloat16),
    "float32": np.concatenate(
        [
            np.frombuffer(random_bits(np.float32), np.float32),
            np.random.default_rng(1).normal(scale=8, size=200_000).astype(np.float32),
        ]
    ),
}


@pytest.mark.parametrize("source", SOURCES)
@pytest.mark.parametrize("saturate", [True, False])
@pytest.mark.parametrize("to", SIGNED, ids=T.DataType.Name)
def test_matches_reference_on_every_value(source, saturate, to):
    x = SOURCES[source]
    with np.errstate(all="ignore"):
        expected = cast_to(x, to, saturate)
    got = kernels.cast_small_float(to_torch(x), to, saturate, "up")
    np.testing.assert_array_equal(stored_bits(got, to), stored_bits(expected, to))


def finite_values(to):
    codes = np.arange(1 << {T.FLOAT4E2M1: 4, T.FLOAT6E2M3: 6, T.FLOAT6E3M2: 6}.get(to, 8), dtype=np.uint8)
    with np.errstate(all="ignore"):
        values = codes.view(numpy_dtype(to)).astype(np.float64)
    return codes[np.isfinite(values)], values[np.isfinite(values)]


@pytest.mark.parametrize("to", SIGNED, ids=T.DataType.Name)
def test_doubles_are_rounded_once(to):
    """Doubles that lie just beside a midpoint, nearer than a float32 can tell, are rounded once."""
    _, values = finite_values(to)
    values = np.unique(values)
    low, high = values[:-1], values[1:]
    middle = (low + high) / 2
    lower, upper = np.nextafter(middle, -np.inf), np.nextafter(middle, np.inf)
    got = kernels.cast_small_float(to_torch(np.concatenate([lower, upper])), to, True, "up").double().numpy()
    np.testing.assert_array_equal(got, np.concatenate([low, high]))


@pytest.mark.parametrize("dtype", [np.bool_, np.uint8, np.int8, np.int16, np.int32, np.int64, np.uint64])
@pytest.mark.parametrize("to", [*SIGNED, T.FLOAT8E8M0], ids=T.DataType.Name)
def test_integers_are_rounded_once(dtype, to):
    _, values = finite_values(to)
    limits = np.iinfo(dtype) if dtype is not np.bool_ else np.iinfo(np.uint8)
    whole = [int(v) for v in np.unique(values) if limits.min <= v <= limits.max]
    x = {limits.min, limits.max} | {v + d for v in whole for d in range(-2, 3)}
    x = np.array([v for v in x if limits.min <= v <= limits.max and (v > 0 or to != T.FLOAT8E8M0)], dtype=dtype)
    got = kernels.cast_small_float(to_torch(x), to, True, "nearest").double().numpy()
    largest = int(values.max())
    for value, result in zip(map(int, x), got, strict=True):
        value = max(-largest, min(value, largest))
        assert result in values
        assert abs(value - int(result)) <= min(abs(value - int(v)) for v in values if v == int(v))


def test_ties_go_to_even():
    x = torch.tensor([2.5, 3.5, 17.0, 19.0, -17.0, 464.0, 465.0])
    got = kernels.cast_small_float(x, T.FLOAT8E4M3FN, False, "up").float()
    expected = torch.tensor([2.5, 3.5, 16, 20, -16, 448, torch.nan])
    torch.testing.assert_close(got, expected, equal_nan=True, rtol=0, atol=0)


POWERS = 2.0 ** np.arange(-127, 128)


def exact_e8m0(x, saturate, mode):
    """Computes the table of Cast-24, by search among the 255 powers of two."""
    if np.isnan(x) or x < 0:
        return 255
    if x < POWERS[0] or x > POWERS[-1]:
        return (0 if x < POWERS[0] else 254) if saturate else 255
    low = np.searchsorted(POWERS, x, "right") - 1
    if POWERS[low] == x or mode == "down":
        return low
    return low + (mode == "up" or x - POWERS[low] >= POWERS[low + 1] - x)


@pytest.mark.parametrize("saturate", [True, False])
@pytest.mark.parametrize("mode", ["up", "down", "nearest"])
def test_e8m0_matches_the_specification(saturate, mode):
    x = [v * f for v in POWERS for f in (1, 0.7, 0.75, 0.8, 1.1, 1.4999, 1.5, 1.6, 1.9999)]
    x += [0, np.inf, -np.inf, np.nan, -1, 1e308, 1e-308, 5e-324]
    got = kernels.cast_small_float(torch.tensor(x, dtype=torch.float64), T.FLOAT8E8M0, saturate, mode)
    assert got.dtype == torch.float8_e8m0fnu
    np.testing.assert_array_equal(got.view(torch.uint8), [exact_e8m0(v, saturate, mode) for v in x])


@pytest.mark.parametrize("dtype", [np.float16, ml_dtypes.bfloat16, np.float32])
@pytest.mark.parametrize("mode", ["up", "down", "nearest"])
def test_e8m0_matches_reference_in_range(dtype, mode):
    """Codes match where the reference follows the text: not below float32's normal numbers, nor at infinity."""
    x = SOURCES[np.dtype(dtype).name]
    with np.errstate(all="ignore"):
        x = x[(x.astype(np.float32) >= 2.0**-126) & np.isfinite(x.astype(np.float32))]
    expected = cast_to(x, T.FLOAT8E8M0, True, mode).view(np.uint8)
    got = kernels.cast_small_float(to_torch(x), T.FLOAT8E8M0, True, mode)
    np.testing.assert_array_equal(got.view(torch.uint8), expected)


@pytest.mark.parametrize("source", TORCH_FLOAT8, ids=str)
@pytest.mark.parametrize("to", [torch.float32, torch.float64, torch.float16, torch.bfloat16], ids=str)
def test_torch_decodes_float8_as_ml_dtypes(source, to):
    """torch, to which decoding is left, decodes all 256 codes of every float8 type right."""
    codes = np.arange(256, dtype=np.uint8)
    with np.errstate(all="ignore"):
        expected = codes.view(getattr(ml_dtypes, str(source).removeprefix("torch."))).astype(np.float64)
        expected = torch.from_numpy(expected).to(to)
    got = torch.from_numpy(codes).view(source).to(to)
    torch.testing.assert_close(got, expected, rtol=0, atol=0, equal_nan=True)
    numbers = ~expected.isnan()
    assert torch.equal(got[numbers].signbit(), expected[numbers].signbit())


@pytest.mark.parametrize("to", SIGNED, ids=T.DataType.Name)
def test_stored_values_stay(to):
    codes, values = finite_values(to)
    got = kernels.cast_small_float(to_torch(values), to, True, "up")
    np.testing.assert_array_equal(stored_bits(got, to), stored_bits(codes.view(numpy_dtype(to)), to))


def test_shapes_and_strides():
    x = torch.randn(4, 5, 6).transpose(0, 2)
    got = kernels.cast_small_float(x, T.FLOAT8E5M2, True, "up")
    assert got.is_contiguous() and got.shape == x.shape
    assert torch.equal(got.float(), x.to(torch.float8_e5m2).float())
    for shape in [(), (0,), (2, 0, 3)]:
        assert kernels.cast_small_float(torch.zeros(shape), T.FLOAT4E2M1, True, "up").shape == shape
    meta = kernels.cast_small_float(x.to("meta"), T.FLOAT6E2M3, True, "up")
    assert meta.shape == x.shape and meta.dtype == torch.float16


@pytest.mark.parametrize(
    ("x", "to", "mode", "message"),
    [
        (torch.zeros(1), T.FLOAT, "up", "not a floating type of 8, 6 or 4 bits"),
        (torch.zeros(1), 99, "up", "not a floating type of 8, 6 or 4 bits"),
        (torch.zeros(1), T.FLOAT8E8M0, "sideways", "round_mode"),
        (torch.zeros(1, dtype=torch.complex64), T.FLOAT8E5M2, "up", "complex"),
    ],
)
def test_errors(x, to, mode, message):
    with pytest.raises(RuntimeError, match=message):
        kernels.cast_small_float(x, to, True, mode)


@pytest.mark.filterwarnings("ignore::FutureWarning")
def test_in_a_torchscript_graph():
    @torch.jit.script
    def cast(x: torch.Tensor):
        return torch.ops.onnx_torch.cast_small_float(x, 17, True, "up")

    assert cast(torch.tensor([1e9])).float().item() == 448
