"""The pass `scales`: factors and addends of channels go into weights."""

from __future__ import annotations

import numpy as np
import onnx
import pytest
from onnx import numpy_helper

import onnx_torch
from pass_models import check_equal, check_overflowing, floats, graph_of, model, used_in

SCALES: dict[str, tuple[str, str]] = {
    "batch normalization": (
        "c = Conv(x, w, b)  y = BatchNormalization(c, scale, shift, mean, variance)",
        "aten::convolution",
    ),
    "no bias": (
        "c = Conv(x, w)  d = BatchNormalization(c, scale, shift, mean, variance)  y = Relu(d)",
        "aten::convolution\naten::relu",
    ),
    "groups": (
        "c = Conv<group = 2>(x, w2)  y = BatchNormalization(c, scale, shift, mean, variance)",
        "aten::convolution",
    ),
    "transposed": (
        "c = ConvTranspose(x, t, b)  y = BatchNormalization(c, scale, shift, mean, variance)",
        "aten::convolution",
    ),
    "transposed groups": (
        "c = ConvTranspose<group = 2>(x, t2)  y = BatchNormalization(c, scale, shift, mean, variance)",
        "aten::convolution",
    ),
    "factor and addend": ("c = Conv(x, w)  d = Mul(each, c)  e = Sub(d, each)  y = Div(e, two)", "aten::convolution"),
    "addend less result": ("c = Conv(x, w)  y = Sub(each, c)", "aten::convolution"),
    "of another dimension": ("c = Conv(x, w)  y = Mul(c, along)", "aten::convolution\naten::mul"),
    "that makes more dimensions": ("c = Conv(x, w)  y = Mul(c, more)", "aten::convolution\naten::mul"),
    "used by others": ("c = Conv(x, w)  d = Mul(c, each)  y = Add(c, d)", "aten::convolution\naten::mul\naten::add"),
    "product": ("f = Flatten(x)  c = MatMul(f, m)  d = Add(c, row)  y = Mul(d, row)", "aten::reshape\naten::linear"),
    "product by a number": ("f = Flatten(x)  c = MatMul(f, m)  y = Mul(c, two)", "aten::reshape\naten::linear"),
    "product and a bias": (
        "f = Flatten(x)  c = MatMul(f, m)  y = Add(c, row)",
        "aten::reshape\naten::matmul\naten::add",
    ),
    "Gemm": (
        "f = Flatten(x)  c = Gemm(f, m, row)  y = BatchNormalization(c, scale, shift, mean, variance)",
        "aten::reshape\naten::linear",
    ),
    "alone": (
        "r = Relu(x)  y = BatchNormalization(r, scale3, scale3, scale3, scale3)",
        "aten::relu\naten::mul\naten::add",
    ),
}


def scale_model(body: str) -> onnx.ModelProto:
    weights = {
        "w": floats(8, 4, 3, 3), "w2": floats(8, 2, 3, 3), "t": floats(4, 8, 3, 3), "t2": floats(4, 4, 3, 3),
        "b": floats(8),
        "scale": floats(8), "shift": floats(8), "mean": floats(8), "variance": np.abs(floats(8)),
        "scale3": np.abs(floats(4)), "each": floats(8, 1, 1), "along": floats(1, 1, 5), "more": floats(1, 1, 8, 1, 1),
        "two": np.float32(2), "m": floats(4 * 49, 8), "row": floats(8),
    }  # fmt: skip
    return model(f"(float[2, 4, 7, 7] x) => (float y) {{ {body} }}", **used_in(body, weights))


@pytest.mark.parametrize("name", SCALES)
def test_scales(name: str):
    body, expected = SCALES[name]
    source = scale_model(body)
    assert graph_of(source, "scales") == expected
    x = floats(2, 4, 7, 7)
    check_equal(source, [x])
    x[1, 2, 3, 3:5] = np.nan, np.inf
    check_equal(source, [x])


def test_scales_leave_a_division_by_the_result():
    """The divisors are compared: they are sums, some near zero, and a quotient is no more exact than its own."""
    source = scale_model("c = Conv(x, w)  y = Div(each, c)")
    assert graph_of(source, "scales") == "aten::convolution\naten::div"
    x = floats(2, 4, 7, 7)
    for _ in range(2):
        ours, plain = (onnx_torch.prepare(source, optimize=flag).run([x])[0] for flag in (True, False))
        np.testing.assert_allclose(1 / ours, 1 / plain, rtol=1e-4, atol=1e-4)
        x[1, 2, 3, 3:5] = np.nan, np.inf


def test_scales_of_sizes_that_come_with_the_run():
    source = model(
        "(float[N, 4, H, W] x) => (float y) { c = Conv(x, w)  y = BatchNormalization(c, s, s, s, s) }",
        w=(8, 4, 3, 3),
        s=np.abs(floats(8)),
    )
    assert graph_of(source, "scales") == "aten::convolution"
    for sizes in [(1, 4, 5, 5), (0, 4, 5, 5), (2, 4, 3, 9)]:
        check_equal(source, [floats(*sizes)])


@pytest.mark.parametrize("factor", [np.inf, np.nan, 3e38])
def test_scales_that_overflow_stay(factor: float):
    source = scale_model("c = Conv(x, w)  y = Mul(c, two)")
    weight = source.graph.initializer[1]
    weight.CopyFrom(numpy_helper.from_array(np.float32(factor), weight.name))
    assert graph_of(source, "scales") == "aten::convolution\naten::mul"
    check_overflowing(source, [floats(2, 4, 7, 7)])


def test_scales_in_training_and_of_other_types_stay():
    source = scale_model("c = Conv(x, w)  y = BatchNormalization<training_mode = 1>(c, scale, shift, mean, variance)")
    assert "aten::batch_norm" in graph_of(source, "scales") or "batch_norm" in onnx_torch.prepare(source).graph()
    check_equal(source, [floats(2, 4, 7, 7)])
    source = scale_model("c = Conv(x, w)  d = Cast<to = 11>(c)  e = Mul(d, wide)  y = Cast<to = 1>(e)")
    source.graph.initializer.append(numpy_helper.from_array(floats(8, 1, 1).astype(np.float64), "wide"))
    assert "aten::mul" in graph_of(source, "scales").splitlines()
    check_equal(source, [floats(2, 4, 7, 7)])
