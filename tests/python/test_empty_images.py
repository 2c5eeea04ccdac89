"""Batches and images without elements, between those that have some. onnxruntime takes the batches, and the images that
ConvTranspose enlarges."""

import numpy as np
import pytest
from onnx import parser

import onnx_torch

BIAS = np.array([1, -2, 3], np.float32)
BODIES = {
    "ConvTranspose": ("y = ConvTranspose (x, w, b)", (2, 3, 3, 3), lambda size: size + 2 if size else 2),
    "ConvTranspose with strides": (
        "y = ConvTranspose <strides = [2, 2], pads = [1, 1, 1, 1], output_padding = [1, 1]> (x, w, b)",
        (2, 3, 3, 3),
        lambda size: 2 * size,
    ),
    "Conv": ("y = Conv <pads = [1, 1, 1, 1]> (x, w, b)", (3, 2, 3, 3), lambda size: size),
    "Conv of two": ("y = Conv <pads = [2, 2, 2, 2]> (x, w, b)", (3, 2, 3, 3), lambda size: size + 2),
    "InstanceNormalization": ("y = InstanceNormalization (x, s, s)", (3, 2, 3, 3), lambda size: size),
    "GroupNormalization": (
        "y = GroupNormalization <num_groups = 1> (x, s, s)",
        (3, 2, 3, 3),
        lambda size: size,
    ),
}


@pytest.mark.parametrize("sizes", ["N, 2, H, W", "N, 2, 4, 5", "1, 2, H, W"])
@pytest.mark.parametrize("name", BODIES)
def test_what_is_empty_among_what_is_not(name, sizes):
    body, filters, after = BODIES[name]
    channels = 3 if "b)" in body else 2
    ones = ", ".join(["1"] * int(np.prod(filters)))
    source = parser.parse_model(
        f'<ir_version: 10, opset_import: ["" : 21]> g (float[{sizes}] x) => (float y)'
        f"<float[{', '.join(map(str, filters))}] w = {{{ones}}}, float[3] b = {{1, -2, 3}}, float[2] s = {{1, 2}}>"
        f"{{ {body} }}"
    )
    rep = onnx_torch.prepare(source)
    for batch, height, width in [(2, 4, 5), (0, 4, 5), (1, 4, 5), (1, 0, 5), (1, 4, 0), (0, 4, 5), (3, 4, 5)]:
        fits = ("N" in sizes or batch == 1) and ("H" in sizes or (height, width) == (4, 5))
        if not fits:
            continue
        (y,) = rep.run([np.ones((batch, 2, height, width), np.float32)])
        assert y.shape == (batch, channels, after(height), after(width))
        if height * width == 0 and y.size:
            np.testing.assert_array_equal(y, np.broadcast_to(BIAS.reshape(3, 1, 1), y.shape))
