"""StftNorm of onnxruntime-extensions, compared with torch."""

from __future__ import annotations

import numpy as np
import pytest
import torch

import onnx_torch
from models import op_model

EXTENSIONS = {"domain": "ai.onnx.contrib", "opset": 1}


def inputs(samples: int, n_fft: int, hop: int, window: int, frame: int | None = None) -> list[np.ndarray]:
    numbers = np.random.default_rng(1)
    sound = numbers.standard_normal((1, samples)).astype(np.float32)
    weights = numbers.random(window).astype(np.float32)
    return [sound, np.array(n_fft), np.array(hop), weights, np.array(n_fft if frame is None else frame)]


def norm(given: list[np.ndarray], **attributes) -> np.ndarray:
    return onnx_torch.prepare(op_model("StftNorm", given, **EXTENSIONS, **attributes)).run(given)[0]


@pytest.mark.parametrize("onesided", [0, 1])
@pytest.mark.parametrize("n_fft, hop, window", [(16, 4, 16), (16, 5, 12), (400, 160, 400), (8, 1, 2), (8, 20, 8)])
def test_powers_are_torchs(n_fft, hop, window, onesided):
    given = inputs(999, n_fft, hop, window)
    sound, weights = (torch.from_numpy(x).double() for x in (given[0], given[3]))
    spectrum = torch.stft(
        sound, n_fft, hop, window, weights, pad_mode="constant", onesided=onesided == 1, return_complex=True
    )
    expected = (spectrum.abs() ** 2).numpy()
    found = norm(given, onesided=onesided)
    assert found.dtype == np.float32 and found.shape == expected.shape
    np.testing.assert_allclose(found, expected, rtol=1e-6, atol=1e-6 * expected.max())


@pytest.mark.parametrize(
    "given, message",
    [
        (inputs(9, 8, 0, 8), "hop_length must be more than 0"),
        (inputs(9, 8, -3, 8), "hop_length must be more than 0"),
        (inputs(9, 8, 2, 9), "the window must have 1 to n_fft elements"),
        (inputs(9, 8, 2, 0), "the window must have 1 to n_fft elements"),
        (inputs(9, 8, 2, 8, 4), "frame_size must be n_fft"),
        ([np.zeros([2, 9], np.float32), *inputs(9, 8, 2, 8)[1:]], "pcm_wave must be one row of samples"),
        ([np.zeros([9], np.float32), *inputs(9, 8, 2, 8)[1:]], "pcm_wave must be one row of samples"),
    ],
)
def test_what_is_wrong_is_told(given, message):
    with pytest.raises(onnx_torch.Error, match="(?s)StftNorm.*" + message):
        norm(given)


def test_a_sound_without_samples_has_one_window_of_zeros():
    assert norm(inputs(0, 8, 2, 8)).tolist() == np.zeros([1, 5, 1]).tolist()
