"""The pass `pack`: transposed convolutions, and those over one dimension."""

from __future__ import annotations

import re

import numpy as np
import pytest

import onnx_torch
from pass_models import check_equal, floats, graph_of, model

DECONVOLUTIONS: dict[str, tuple[tuple[int, ...], tuple[int, ...], str]] = {
    "plain": ((2, 6, 9, 7), (6, 8, 3, 3), "group = 1"),
    "strides": ((2, 6, 9, 7), (6, 8, 4, 3), "strides = [2, 3], pads = [1, 1, 1, 1]"),
    "output padding": ((2, 6, 9, 7), (6, 8, 3, 3), "strides = [2, 2], output_padding = [1, 1]"),
    "output shape": ((2, 6, 9, 7), (6, 8, 3, 3), "strides = [2, 2], output_shape = [20, 15]"),
    "uneven padding": ((2, 6, 9, 7), (6, 8, 3, 3), "strides = [2, 2], pads = [2, 0, 0, 1]"),
    "dilations": ((2, 6, 9, 7), (6, 8, 3, 3), "dilations = [2, 3]"),
    "dilations and output padding": (
        (2, 6, 9, 7),
        (6, 8, 3, 3),
        "dilations = [3, 3], pads = [1, 1, 1, 1], output_padding = [2, 2]",
    ),
    "groups": ((2, 6, 9, 7), (6, 8, 3, 3), "group = 3, strides = [2, 2], dilations = [2, 1]"),
    "depthwise": ((2, 16, 9, 7), (16, 1, 3, 3), "group = 16, strides = [2, 2]"),
    "few channels": ((2, 6, 9, 7), (6, 2, 5, 5), "strides = [3, 2], pads = [2, 2, 2, 2], output_padding = [1, 0]"),
    "many channels": ((1, 256, 16, 16), (256, 64, 4, 4), "strides = [2, 2], pads = [1, 1, 1, 1]"),
    "one dimension": ((2, 6, 40), (6, 8, 5), "strides = [3], pads = [1, 2]"),
    "three dimensions": ((2, 3, 4, 5, 6), (3, 4, 2, 2, 2), "strides = [2, 1, 2]"),
}


@pytest.mark.parametrize("bias", [False, True], ids=["no bias", "bias"])
@pytest.mark.parametrize("name", DECONVOLUTIONS)
def test_pack_transposed_convolutions(name: str, *, bias: bool):
    x, w, attributes = DECONVOLUTIONS[name]
    groups = int(match[1]) if (match := re.search(r"group = (\d+)", attributes)) else 1
    dims = ", ".join(map(str, x))
    called = "x, w, b" if bias else "x, w"
    source = model(
        f"(float[{dims}] x) => (float y) {{ c = ConvTranspose<{attributes}>({called})  y = Relu(c) }}",
        w=floats(*w) / 8,
        **({"b": (w[1] * groups,)} if bias else {}),
    )
    graph = graph_of(source, "pack").splitlines()
    assert "onnx_torch::packed" in graph
    assert "aten::convolution" not in graph
    value = floats(*x)
    check_equal(source, [value])
    value[0, 1, 2] = np.nan
    value[-1, 2, 1] = np.inf
    check_equal(source, [value])


def test_packed_transposed_convolutions_take_other_sizes_and_refuse_what_does_not_fit():
    source = model(
        "(float[N, 6, H, W] x) => (float y) { y = ConvTranspose<strides = [2, 2]>(x, w, b) }", w=(6, 4, 3, 3), b=(4,)
    )
    assert "onnx_torch::packed" in graph_of(source, "pack").splitlines()
    for sizes in [(1, 6, 5, 5), (0, 6, 5, 5), (2, 6, 1, 3), (1, 6, 5, 5)]:
        check_equal(source, [floats(*sizes)])
    source.graph.input[0].type.tensor_type.shape.dim[1].dim_param = "C"
    for options in [{}, {"optimize": False}]:
        with pytest.raises(onnx_torch.RunError, match="ConvTranspose"):
            onnx_torch.prepare(source, **options).run([floats(1, 5, 5, 5)])


@pytest.mark.parametrize("dtype", [np.float64, np.float16])
def test_transposed_convolutions_of_other_types_stay(dtype: type):
    element = "double" if dtype is np.float64 else "float16"
    source = model(
        f"({element}[1, 6, 5, 5] x) => ({element}[N, C, H, W] y) {{ y = ConvTranspose(x, w) }}",
        w=(floats(6, 4, 3, 3) / 8).astype(dtype),
    )
    assert "aten::convolution" in graph_of(source, "pack", disabled_passes=["halves"]).splitlines()
    check_equal(source, [floats(1, 6, 5, 5).astype(dtype)], disabled_passes=["halves"])


@pytest.mark.parametrize("sizes", [(2, 24, 30), (1, 16, 9), (3, 5, 1), (0, 16, 9)])
@pytest.mark.parametrize(
    "attributes", ["pads = [2, 2]", "strides = [2], pads = [2, 2]", "dilations = [2], pads = [4, 4]", "pads = [4, 0]"]
)
def test_depthwise_convolutions_over_one_dimension(attributes: str, sizes: tuple[int, ...]):
    channels = sizes[1]
    source = model(
        f"(float[N, {channels}, L] x, float[N, {channels}, M] r) => (float y) "
        f"{{ c = Conv<group = {channels}, {attributes}>(x, w, b)  a = Relu(c)  y = Add(a, r) }}",
        w=(channels, 1, 5),
        b=(channels,),
    )
    assert "onnx_torch::packed" in graph_of(source, "pack").splitlines()
    results = (sizes[2] + 1) // 2 if "strides" in attributes else sizes[2]
    check_equal(source, [floats(*sizes), floats(*sizes[:2], results)])
