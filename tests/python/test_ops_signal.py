"""DFT, STFT, windows and MelWeightMatrix: what the official cases leave out."""

import numpy as np
import pytest
from onnx import TensorProto, helper
from onnx.reference import ReferenceEvaluator

import onnx_torch.backend
from models import model_of, op_model, run_op, tensor_info
from pass_models import assert_close


def _complex(x):
    return x[..., 0] if x.shape[-1] == 1 else x[..., 0] + 1j * x[..., 1]


def _parts(x):
    return np.stack([x.real, x.imag], -1)


def _signal(parts, dtype=np.float32):
    return np.random.default_rng(3).uniform(-1, 1, (2, 10, 6, parts)).astype(dtype)


@pytest.mark.parametrize("inverse", [0, 1])
@pytest.mark.parametrize("parts", [1, 2])
@pytest.mark.parametrize("axis", [0, 1, 2, -2, -3])
@pytest.mark.parametrize("length", [None, 4, 15])
def test_dft(inverse, parts, axis, length):
    x = _signal(parts)
    transform = np.fft.ifft if inverse else np.fft.fft
    expected = _parts(transform(_complex(x), length, axis % 4))
    lengths = None if length is None else np.int64(length)
    new = run_op("DFT", [x, lengths, np.int64(axis)], 20, inverse=inverse)[0]
    old = run_op("DFT", [x, lengths], 17, inverse=inverse, axis=axis)[0]
    for actual in (new, old):
        assert actual.dtype == x.dtype
        np.testing.assert_allclose(actual, expected, rtol=1e-5, atol=1e-6)


def test_dft_default_axis():
    x = _signal(2)
    np.testing.assert_allclose(run_op("DFT", [x], 20)[0], _parts(np.fft.fft(_complex(x), axis=2)), atol=1e-5)
    np.testing.assert_allclose(run_op("DFT", [x], 17)[0], _parts(np.fft.fft(_complex(x), axis=1)), atol=1e-5)


@pytest.mark.parametrize("length", [None, 4, 15])
def test_one_sided_dft(length):
    lengths = None if length is None else np.int64(length)
    x = _signal(1)
    forward = run_op("DFT", [x, lengths, np.int64(1)], 20, onesided=1)[0]
    assert_close(forward, _parts(np.fft.rfft(x[..., 0].astype(np.float64), length, 1)))
    z = _signal(2)
    back = run_op("DFT", [z, lengths, np.int64(1)], 20, onesided=1, inverse=1)[0]
    assert_close(back[..., 0], np.fft.irfft(_complex(z.astype(np.float64)), length, 1))
    with pytest.raises(onnx_torch.RunError, match="real input"):
        run_op("DFT", [z, lengths, np.int64(1)], 20, onesided=1)


@pytest.mark.parametrize("axis", [-5, 4])
def test_dft_along_an_axis_that_is_not_there(axis):
    with pytest.raises(onnx_torch.Error, match=f"DFT.*axis {axis} is out of range for 4 dimensions"):
        run_op("DFT", [_signal(1), None, np.int64(axis)], 20)


@pytest.mark.parametrize("dtype", [np.float64, np.float16])
def test_dft_element_types(dtype):
    x = _signal(2, dtype)
    actual = run_op("DFT", [x], 20)[0]
    assert actual.dtype == dtype
    tolerance = 4 * float(np.finfo(dtype).eps) if dtype == np.float64 else 2**-10
    np.testing.assert_allclose(actual, _parts(np.fft.fft(_complex(x.astype(np.float64)), axis=2)), tolerance, tolerance)


@pytest.mark.parametrize("parts, onesided", [(1, 0), (1, 1), (2, 0)])
@pytest.mark.parametrize("window, length", [(True, None), (True, 6), (False, 6), (False, None)])
@pytest.mark.parametrize("step", [1, 3])
def test_stft(parts, onesided, window, length, step):
    x = np.random.default_rng(1).uniform(-1, 1, (2, 20, parts)).astype(np.float32)
    weights = np.hanning(6).astype(np.float32) if window else None
    inputs = [x, np.int64(step), weights, None if length is None else np.int64(length)]
    frame = 6 if window or length else 20
    starts = range(0, 20 - frame + 1, step)
    frames = np.stack([_complex(x)[:, s : s + frame] for s in starts], 1) * (1 if weights is None else weights)
    expected = _parts(np.fft.rfft(frames) if onesided else np.fft.fft(frames))
    actual = run_op("STFT", inputs, 17, onesided=onesided)[0]
    assert_close(actual, expected)


def test_stft_window_of_another_length():
    with pytest.raises(onnx_torch.RunError, match="as long as a frame"):
        run_op("STFT", [np.ones((1, 20, 1), np.float32), np.int64(2), np.ones(5, np.float32), np.int64(6)], 17)


TYPES = ["FLOAT", "DOUBLE", "FLOAT16", "BFLOAT16", "UINT8", "UINT16", "UINT32", "UINT64", "INT8", "INT64"]


@pytest.mark.parametrize("periodic", [0, 1])
@pytest.mark.parametrize("dtype", TYPES)
@pytest.mark.parametrize("op, coefficients", [
    ("HannWindow", (0.5, 0.5, 0.0)), ("HammingWindow", (25 / 46, 21 / 46, 0.0)), ("BlackmanWindow", (0.42, 0.5, 0.08)),
])  # fmt: skip
def test_windows(op, coefficients, dtype, periodic):
    numpy_type = helper.tensor_dtype_to_np_dtype(TensorProto.DataType.Value(dtype))
    angle = 2 * np.pi * np.arange(9) / (9 if periodic else 8)
    a, b, c = coefficients
    exact = a - b * np.cos(angle) + c * np.cos(2 * angle)
    expected = exact.astype(numpy_type)
    attributes = {"periodic": periodic, "output_datatype": TensorProto.DataType.Value(dtype)}
    actual = run_op(op, [np.int32(9)], 17, **attributes)[0]
    assert actual.dtype == numpy_type
    if dtype in TYPES[:2]:
        assert_close(actual, exact, ulps=4)
    elif dtype in TYPES[:4]:
        np.testing.assert_allclose(actual.astype(np.float64), expected.astype(np.float64), rtol=2**-10, atol=1e-6)
    else:  # 1 may be rounded down in either
        np.testing.assert_array_equal(np.delete(actual, 4), np.delete(expected, 4))


@pytest.mark.parametrize(
    "bins, length, rate, low, high",
    [(8, 16, 8192, 0.0, 4096.0), (20, 512, 16000, 80.0, 7600.0), (40, 64, 8000, 0.0, 4000.0)],
)
@pytest.mark.parametrize("dtype", ["FLOAT", "DOUBLE", "FLOAT16"])
def test_mel_weight_matrix(bins, length, rate, low, high, dtype):
    inputs = [np.int32(bins), np.int32(length), np.int32(rate), np.float32(low), np.float32(high)]
    element = TensorProto.DataType.Value(dtype)
    node = helper.make_node("MelWeightMatrix", [f"x{i}" for i in range(5)], ["y"], output_datatype=element)
    model = model_of(
        [node],
        [tensor_info(f"x{i}", x) for i, x in enumerate(inputs)],
        [helper.make_tensor_value_info("y", element, None)],
    )
    expected = ReferenceEvaluator(model).run(None, {f"x{i}": x for i, x in enumerate(inputs)})[0]
    actual = onnx_torch.backend.prepare(op_model("MelWeightMatrix", inputs, 17, output_datatype=element)).run(inputs)[0]
    assert actual.dtype == expected.dtype
    if dtype == "FLOAT16":
        np.testing.assert_allclose(actual, expected, rtol=2**-10, atol=1e-6)
    else:
        assert_close(actual, expected, ulps=4)
