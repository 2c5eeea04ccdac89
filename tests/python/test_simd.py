"""The kernels of src/lower/simd, as they are compiled for each kind of CPU: against float64, or numpy step by step."""

from __future__ import annotations

import re
from pathlib import Path

import numpy as np
import onnx
import pytest

import onnx_torch
from models import on_each_cpu, run_on_cpu
from pass_models import code, floats, model
from test_pass_recurrent import STEPWISE, stepwise_inputs, stepwise_model

pytestmark = on_each_cpu


def operators(source: onnx.ModelProto) -> set[str]:
    """Names the operators of the lowered graph that are not ATen's."""
    return set(re.findall(r"onnx_torch::(\w+)", code(onnx_torch.prepare(source).graph())))


def widened(value: np.ndarray) -> np.ndarray:
    return value.astype(np.float64) if value.dtype == np.float32 else value


def check(
    capability: str, source: onnx.ModelProto, exact: onnx.ModelProto, inputs: list[np.ndarray], folder: Path
) -> None:
    """Checks that a model gives what ATen gives in float64, which is computed by the second."""
    results = run_on_cpu(capability, source, inputs, folder)
    expected = onnx_torch.prepare(exact, optimize=False).run([widened(value) for value in inputs])
    for result, each in zip(results, expected, strict=True):
        np.testing.assert_allclose(result, each, rtol=1e-5, atol=1e-5)


def check_text(capability: str, text: str, inputs: list[np.ndarray], folder: Path, **weights: np.ndarray) -> set[str]:
    """Checks the same of a model in ONNX's notation; gives its operators."""
    source = model(text, **weights)
    exact = model(re.sub(r"\bfloat\b", "double", text), **{name: widened(value) for name, value in weights.items()})
    check(capability, source, exact, inputs, folder)
    return operators(source)


def test_rows(capability: str, tmp_path: Path) -> None:
    """The rows fill vectors, or leave parts of them."""
    text = """(float[3, 37] x, float[5, 300] u, float[1, 300] v, float[70, 300] z, float[2, 1, 24] q,
               float[2, 24, 17] k, float[2, 17, 83] t) => (float a, float b, float d, float e, int64 f, float g) {
        a = LayerNormalization(u, r, s)
        b = RMSNormalization(x, w)
        h = Gemm(x, m, o) d = Relu(h)
        e = MatMul(v, n)
        f = ArgMax<axis = 0>(z)
        i = MatMul(q, k) j = Softmax(i) g = MatMul(j, t) }"""
    sizes = {"r": (300,), "s": (300,), "w": (37,), "m": (37, 19), "o": (19,), "n": (300, 700)}
    weights = {name: floats(*shape) for name, shape in sizes.items()}
    weights["n"] /= 16
    inputs = [floats(3, 37), floats(5, 300), floats(1, 300), floats(70, 300)]
    inputs += [floats(2, 1, 24), floats(2, 24, 17), floats(2, 17, 83)]
    found = check_text(capability, text, inputs, tmp_path, **weights)
    assert found >= {"layer_norm", "rms_norm", "packed", "argmax", "attention"}


def test_images(capability: str, tmp_path: Path) -> None:
    """The operators are norms, pools and means of what lies channels-last, and Relu of a NaN."""
    text = """(float[2, 3, 19, 23] x, float[1, 3, 9, 9] z) => (float a, float b, float c, float d) {
        h = Conv(x, w) i = InstanceNormalization(h, s, o)
        a = MaxPool<kernel_shape = [3, 3], strides = [2, 2], pads = [1, 1, 1, 1]>(i)
        b = AveragePool<kernel_shape = [2, 2]>(i)
        c = GlobalAveragePool(i)
        j = Conv(z, w) d = Relu(j) }"""
    weights = {"w": floats(36, 3, 3, 3) / 4, "s": floats(36), "o": floats(36)}
    z = floats(1, 3, 9, 9)
    z[0, 1, 4, 4] = np.nan
    found = check_text(capability, text, [floats(2, 3, 19, 23), z], tmp_path, **weights)
    assert found >= {"packed", "group_norm", "max_pool", "average_pool", "channel_means"}


def test_rotary_embeddings(capability: str, tmp_path: Path) -> None:
    text = """(float[2, 3, 5, 26] x, float[9, 13] c, float[9, 13] s, int64[2, 5] at) => (float halves, float pairs) {
        halves = RotaryEmbedding(x, c, s, at) pairs = RotaryEmbedding<interleaved = 1>(x, c, s, at) }"""
    # RotaryEmbedding itself takes no float64.
    exact = """(double[2, 3, 5, 26] x, double[9, 13] c, double[9, 13] s, int64[2, 5] at)
        => (double halves, double pairs) <int64[1] zero = {0}, int64[1] one = {1}, int64[1] two = {2},
         int64[1] last = {-1}, int64[1] end = {26}, int64[4] sizes = {2, 3, 5, 26}> {
        c_at = Gather(c, at) s_at = Gather(s, at) cos = Unsqueeze(c_at, one) sin = Unsqueeze(s_at, one)
        a, b = Split<axis = -1, num_outputs = 2>(x)
        a_cos = Mul(a, cos) b_sin = Mul(b, sin) a_sin = Mul(a, sin) b_cos = Mul(b, cos)
        first = Sub(a_cos, b_sin) second = Add(a_sin, b_cos) halves = Concat<axis = -1>(first, second)
        e = Slice(x, zero, end, last, two) o = Slice(x, one, end, last, two)
        e_cos = Mul(e, cos) o_sin = Mul(o, sin) e_sin = Mul(e, sin) o_cos = Mul(o, cos)
        real = Sub(e_cos, o_sin) imaginary = Add(e_sin, o_cos)
        reals = Unsqueeze(real, last) imaginaries = Unsqueeze(imaginary, last)
        both = Concat<axis = -1>(reals, imaginaries) pairs = Reshape(both, sizes) }"""
    inputs = [floats(2, 3, 5, 26), floats(9, 13), floats(9, 13), np.arange(10).reshape(2, 5) % 9]
    source = model(text)
    assert "rotary_embedding" in operators(source)
    check(capability, source, model(exact), inputs, tmp_path)


@pytest.mark.parametrize("name", STEPWISE)
def test_recurrent_layers(capability: str, name: str, tmp_path: Path) -> None:
    source = stepwise_model(name, "bidirectional", 37, bias=True)
    exact = onnx.ModelProto()
    exact.CopyFrom(source)
    for weight in exact.graph.initializer:
        weight.CopyFrom(onnx.numpy_helper.from_array(widened(onnx.numpy_helper.to_array(weight)), weight.name))
    for value in (*exact.graph.input, *exact.graph.output):
        if value.type.tensor_type.elem_type == onnx.TensorProto.FLOAT:
            value.type.tensor_type.elem_type = onnx.TensorProto.DOUBLE
    assert "recurrent" in operators(source)
    check(capability, source, exact, stepwise_inputs(source, 6, 4, [6, 2, 0, 5]), tmp_path)


# Scales whose products need rounding, and by which many sums lie half-way between two numbers.
A, B, SUM = (np.float32(scale) for scale in (0.1, 0.3, 0.2))


def test_quantized_numbers(capability: str, tmp_path: Path) -> None:
    """The operands are all pairs of numbers; products and sums are rounded to a float32, as ATen's and numpy's are."""
    source = model(
        """(uint8[65536] a, uint8[65536] b, float[65536] v, int8[65536] c)
          => (uint8 sum, uint8 biased, float given, int8 taken, float other) {
          d = DequantizeLinear(a, a_scale, zero) e = DequantizeLinear(b, b_scale, zero)
          f = Add(d, e) sum = QuantizeLinear(f, scale, zero)
          g = Add(d, v) biased = QuantizeLinear(g, scale, zero)
          given = DequantizeLinear(b, b_scale, zero)
          taken = QuantizeLinear(v, scale, signed_zero) other = DequantizeLinear(c, a_scale, signed_zero) }""",
        a_scale=A,
        b_scale=B,
        scale=SUM,
        zero=np.uint8(119),
        signed_zero=np.int8(-5),
    )
    assert operators(source) >= {"quantize", "dequantize", "quantized_add"}
    a, b = (index.astype(np.uint8).ravel() for index in np.indices((256, 256)))
    v = np.where(a == 7, np.nan, 9 * floats(65536)).astype(np.float32)
    c = a.view(np.int8)

    def quantized(x: np.ndarray, zero: int, dtype: type) -> np.ndarray:
        bounds = np.iinfo(dtype)
        number = np.clip(np.rint(x / SUM) + zero, bounds.min, bounds.max)
        return np.where(np.isnan(x), 0, number).astype(dtype)

    d, e = (a.astype(np.float32) - 119) * A, (b.astype(np.float32) - 119) * B
    expected = [
        quantized(d + e, 119, np.uint8),
        quantized(d + v, 119, np.uint8),
        e,
        quantized(v, -5, np.int8),
        (c.astype(np.float32) + 5) * A,
    ]
    for result, each in zip(run_on_cpu(capability, source, [a, b, v, c], tmp_path), expected, strict=True):
        np.testing.assert_array_equal(result, each, strict=True)


@pytest.mark.parametrize("dtype", [np.uint8, np.int8])
def test_sums_of_products_of_quantized_numbers(capability: str, dtype: type, tmp_path: Path) -> None:
    """The model quantizes, multiplies, and goes on: each step is rounded to a float32, as ATen's are."""
    rng = np.random.default_rng(0)
    numbers = rng.integers(np.iinfo(dtype).min, np.iinfo(dtype).max + 1, (77, 45)).astype(dtype)
    zeros = rng.integers(np.iinfo(dtype).min, np.iinfo(dtype).max + 1, 45).astype(dtype)
    scales, bias = (abs(floats(45)) / 64).astype(np.float32), floats(45)
    source = model(
        """(float[9, 77] x, float[9, 45] v) => (float y, float z) {
          q, q_scale, q_zero = DynamicQuantizeLinear(x)
          p = MatMulInteger(q, w, q_zero, w_zero) f = Cast<to = 1>(p) s = Mul(q_scale, w_scale)
          g = Mul(f, s) y = Add(g, b) z = Add(y, v) }""",
        w=numbers,
        w_zero=zeros,
        w_scale=scales,
        b=bias,
    )
    x, v = floats(9, 77), floats(9, 45)
    scale = (x.max() - x.min()) / np.float32(255)
    zero = np.rint(-x.min() / scale)
    q = np.clip(np.rint(x / scale) + zero, 0, 255).astype(np.int32) - int(zero)
    product = (q @ (numbers.astype(np.int32) - zeros)).astype(np.float32) * (scale * scales)
    results = run_on_cpu(capability, source, [x, v], tmp_path)
    np.testing.assert_array_equal(results[0], product + bias, strict=True)
    np.testing.assert_array_equal(results[1], product + bias + v, strict=True)
