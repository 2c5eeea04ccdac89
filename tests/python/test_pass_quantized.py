"""The pass `quantized`: what becomes bytes, and what is computed on them from one scale to the next."""

from __future__ import annotations

import re

import numpy as np
import pytest
from onnx import numpy_helper, parser

import onnx_torch
from quantized_models import SPECIAL, by_onnxruntime, calls, check_exact, f32, floats, model, scales, weights
from random_numbers import RNG

STEPS = dict(s=f32(0.02), z=np.uint8(100), t=f32(0.03), v=np.uint8(120), u=f32(0.05), k=np.uint8(110))


JOINED = {
    "QLinearAdd(a, s, z, b, t, v, u, k)": ["onnx_torch::quantized_add"],
    "QLinearMul(a, s, z, b, t, v, u, k)": ["onnx_torch::quantized_mul"],
    "QLinearConcat<axis = 1>(u, k, a, s, z, b, u, k)": ["onnx_torch::look_up", "onnx_torch::cat"],
}


@pytest.mark.parametrize("shape", ["2, 3, 4, 5", "0, 3, 4, 5", "2, 3, 1, 5"])
@pytest.mark.parametrize("node", JOINED)
def test_operators_of_8_bits_are_one_pass_over_the_bytes(node: str, shape: str) -> None:
    if "Concat" in node:
        shape = shape.replace("1, 5", "4, 5")
    used = {name: value for name, value in STEPS.items() if re.search(rf"\b{name}\b", node.partition("(")[2])}
    text = f"(uint8[2, 3, 4, 5] a, uint8[{shape}] b) => (y) {{ y = com.microsoft.{node} }}"
    if shape.startswith("0"):
        text = text.replace("uint8[2,", "uint8[0,", 1)
    parsed = parser.parse_model(f'<ir_version: 10, opset_import: ["": 21, "com.microsoft": 1]> net {text}')
    for name, value in used.items():
        parsed.graph.initializer.append(numpy_helper.from_array(np.asarray(value), name))
    assert calls(parsed) == JOINED[node]
    sizes = [[d.dim_value for d in value.type.tensor_type.shape.dim] for value in parsed.graph.input]
    inputs = [RNG.integers(0, 256, size, np.uint8) for size in sizes]
    for result, expected in zip(check_exact(parsed, *inputs), by_onnxruntime(parsed, inputs), strict=True):
        np.testing.assert_array_equal(result, expected)


def test_a_product_is_quantized_in_one_pass() -> None:
    source = model(
        """(uint8[2, 40] a, uint8[2, 40] b) => (uint8 y) {
            c = DequantizeLinear(a, s, z)   d = DequantizeLinear(b, t, v)   e = Mul(c, d)   y = QuantizeLinear(e, u, k)
        }""",
        **STEPS,
    )
    assert calls(source) == ["onnx_torch::quantized_mul"]
    check_exact(source, *(RNG.integers(0, 256, (2, 40), np.uint8) for _ in range(2)))


def test_the_pass_takes_quantizations_by_their_names() -> None:
    source = model(
        """(float[2, 4, 6, 6] x) => (float y) {
            q = QuantizeLinear(x, s, z)
            d = DequantizeLinear(q, s, z)
            v = DequantizeLinear<axis = 0>(w, u, n)
            c = Conv(d, v)
            p = QuantizeLinear(c, s, z)
            y = DequantizeLinear(p, s, z)
        }""",
        s=f32(0.05),
        z=np.uint8(128),
        w=weights(5, 4, 3, 3),
        u=scales(5),
        n=np.zeros(5, np.int8),
    )
    assert calls(source, "fold") == [
        "onnx_torch::quantize_linear",
        "onnx_torch::dequantize_linear",
        "onnx_torch::dequantize_linear",
        "aten::convolution",
        "onnx_torch::quantize_linear",
        "onnx_torch::dequantize_linear",
    ]
    assert calls(source, "quantized") == [
        "onnx_torch::quantize",
        "onnx_torch::dequantize",
        "onnx_torch::dequantize_along",
        "aten::convolution",
        "onnx_torch::quantize",
        "onnx_torch::dequantize",
    ]
    x = floats(2, 4, 6, 6)
    [plain] = onnx_torch.prepare(source, optimize=False).run([x])
    [alone] = onnx_torch.prepare(source, disabled_passes=["pack"]).run([x])
    [without] = onnx_torch.prepare(source, disabled_passes=["quantized"]).run([x])
    for result in (alone, without):  # a number may lie at a tie, and is one step of 0.05 away then
        assert np.abs(result - plain).max() <= 0.0501
        assert (result != plain).mean() <= 0.002


@pytest.mark.parametrize("kind", ["uint8", "int8"])
@pytest.mark.parametrize("zero_point", [0, 3, 100])
def test_quantize_is_exact(kind: str, zero_point: int) -> None:
    source = model(
        f"(float[N] x) => ({kind}[N] y) {{ y = QuantizeLinear(x, s, z) }}",
        s=f32(0.5),
        z=np.dtype(kind).type(zero_point),
    )
    assert calls(source) == ["onnx_torch::quantize"]
    check_exact(source, SPECIAL)
    check_exact(source, floats(40000, scale=60))
    check_exact(source, floats(0))


@pytest.mark.parametrize("kind", ["uint8", "int8"])
def test_dequantize_is_exact(kind: str) -> None:
    source = model(
        f"({kind}[N, M] x) => (float[N, M] y) {{ y = DequantizeLinear(x, s, z) }}",
        s=f32(0.0371),
        z=np.dtype(kind).type(7),
    )
    assert calls(source) == ["onnx_torch::dequantize"]
    numbers = np.arange(256, dtype=np.uint8).view(kind)
    check_exact(source, np.tile(numbers, (3, 1)))
    check_exact(source, np.zeros((0, 4), kind))


def test_other_forms_are_left_alone() -> None:
    axis = model(
        "(float[N, 3] x) => (uint8[N, 3] y) { y = QuantizeLinear(x, s, z) }",
        s=np.float32([1, 2, 3]),
        z=np.uint8([0, 1, 2]),
    )
    given = model("(float[N] x, float s) => (uint8[N] y) { y = QuantizeLinear(x, s) }")
    wide = model("(float[N] x) => (int16[N] y) { y = QuantizeLinear(x, s, z) }", s=f32(0.1), z=np.int16(0))
    half = model("(float16[N] x) => (uint8[N] y) { y = QuantizeLinear(x, s, z) }", s=np.float16(0.1), z=np.uint8(1))
    tiny = model("(float[N] x) => (uint8[N] y) { y = QuantizeLinear(x, s) }", s=f32(1e-45))
    for source, *inputs in (
        (axis, floats(4, 3)),
        (given, floats(5), f32(0.1)),
        (wide, floats(5)),
        (half, floats(5).astype(np.float16)),
        (tiny, floats(5)),
    ):
        assert not [name for name in calls(source) if "quantize" in name]
        check_exact(source, *inputs)


@pytest.mark.parametrize("number", [0.5, -1, 256, 3.0])
def test_what_a_model_computes_itself_is_no_quantization(number: float) -> None:
    source = model(
        "(uint8[N] x) => (float[N] y) { f = Cast<to = 1>(x) d = Sub(f, c) y = Mul(d, s) }", c=f32(number), s=f32(0.5)
    )
    assert calls(source) == ["aten::to", "onnx_torch::chain"]
    check_exact(source, np.arange(256, dtype=np.uint8))


def test_relu_before_quantize_is_a_bound() -> None:
    source = model(
        "(float[N] x) => (uint8[N] y) { r = Relu(x) y = QuantizeLinear(r, s, z) }", s=f32(0.1), z=np.uint8(20)
    )
    assert calls(source) == ["onnx_torch::quantize"]
    check_exact(source, SPECIAL)


def test_movement_is_of_bytes() -> None:
    source = model(
        """(uint8[2, 3, 4] x) => (uint8[4, 6] y) {
             f = DequantizeLinear(x, s, z)
             t = Transpose<perm = [2, 0, 1]>(f)
             q = QuantizeLinear(t, s, z)
             g = DequantizeLinear(q, s, z)
             r = Reshape(g, shape)
             y = QuantizeLinear(r, s, z)
           }""",
        s=f32(0.1),
        z=np.uint8(3),
        shape=np.int64([4, 6]),
    )
    assert calls(source) == ["aten::permute", "aten::reshape"]
    check_exact(source, RNG.integers(0, 256, (2, 3, 4), np.uint8))


@pytest.mark.parametrize("kind", ["uint8", "int8"])
@pytest.mark.parametrize("axis", [0, 1])
def test_rows_of_a_table_are_picked_as_bytes(kind: str, axis: int) -> None:
    limits = np.iinfo(np.dtype(kind))
    source = model(
        f"(int64[N, 3] i) => (float y) {{ t = DequantizeLinear(w, s, z) y = Gather<axis = {axis}>(t, i) }}",
        w=RNG.integers(limits.min, limits.max + 1, (40, 24), limits.dtype),
        s=f32(0.03),
        z=limits.dtype.type(7),
    )
    rep, plain = onnx_torch.prepare(source), onnx_torch.prepare(source, optimize=False)
    assert calls(source).count("onnx_torch::dequantize") == 1
    i = RNG.integers(-24, 24, (5, 3))
    assert np.array_equal(rep.run([i])[0], plain.run([i])[0])
    assert rep.run([i[:0]])[0].shape == plain.run([i[:0]])[0].shape


@pytest.mark.parametrize("kind", ["uint8", "int8"])
def test_functions_of_a_number_are_looked_up(kind: str) -> None:
    source = model(
        f"""({kind}[N, 8] x) => ({kind}[M] y) {{
             f = DequantizeLinear(x, s, z)
             g = Gelu(f)
             h = Mul(g, half)
             r = Reshape(h, shape)
             y = QuantizeLinear(r, t, z)
           }}""",
        s=f32(0.1),
        t=f32(0.03),
        z=np.dtype(kind).type(3),
        half=f32(0.5),
        shape=np.int64([-1]),
    )
    assert calls(source) == ["onnx_torch::look_up", "aten::reshape"]
    check_exact(source, np.arange(256, dtype=np.uint8).view(kind).reshape(-1, 8))


def test_another_scale_is_looked_up_and_the_same_is_nothing() -> None:
    text = """(uint8[N] x) => (uint8[N] y) {
                f = DequantizeLinear(x, s, z)
                m = IsNaN(f)
                w = Where(m, nought, f)
                y = QuantizeLinear(w, t, z)
              }"""
    same = model(text, s=f32(0.1), t=f32(0.1), z=np.uint8(3), nought=f32(0))
    other = model(text, s=f32(0.1), t=f32(0.07), z=np.uint8(3), nought=f32(0))
    assert calls(same) == []
    assert calls(other) == ["onnx_torch::look_up"]
    for source in (same, other):
        check_exact(source, np.arange(256, dtype=np.uint8))


@pytest.mark.parametrize(("first", "second"), [("uint8", "uint8"), ("int8", "int8"), ("uint8", "int8")])
@pytest.mark.parametrize("shape", [(2, 3, 5), (5,), (2, 3, 1)])
def test_sums_are_one_pass(first: str, second: str, shape: tuple[int, ...]) -> None:
    dims = ", ".join(map(str, shape))
    source = model(
        f"""({first}[2, 3, 5] a, {second}[{dims}] b) => ({first}[2, 3, 5] y) {{
             p = DequantizeLinear(a, s, za)
             q = DequantizeLinear(b, t, zb)
             c = Add(p, q)
             r = Relu(c)
             y = QuantizeLinear(r, u, za)
           }}""",
        s=f32(0.1),
        t=f32(0.3),
        u=f32(0.2),
        za=np.dtype(first).type(9),
        zb=np.dtype(second).type(7),
    )
    assert calls(source) == ["onnx_torch::quantized_add"]
    low, high = (np.iinfo(np.dtype(kind)) for kind in (first, second))
    check_exact(
        source,
        RNG.integers(low.min, low.max + 1, (2, 3, 5), np.dtype(first)),
        RNG.integers(high.min, high.max + 1, shape, np.dtype(second)),
    )


@pytest.mark.parametrize("shape", [(5,), (3, 1), (), (1,)])
def test_sums_with_floats(shape: tuple[int, ...]) -> None:
    dims = str(list(shape)) if shape else ""
    source = model(
        f"""(uint8[2, 3, 5] a, float{dims} b) => (uint8[2, 3, 5] y) {{
             p = DequantizeLinear(a, s, z)
             c = Add(b, p)
             y = QuantizeLinear(c, s, z)
           }}""",
        s=f32(0.1),
        z=np.uint8(100),
    )
    assert calls(source) == ["onnx_torch::quantized_add"]
    check_exact(source, RNG.integers(0, 256, (2, 3, 5), np.uint8), floats(*shape))
    check_exact(source, RNG.integers(0, 256, (2, 3, 5), np.uint8), np.full(shape, np.nan, np.float32))


POOLS = [
    "<kernel_shape = [3, 3], pads = [1, 1, 1, 1], strides = [2, 2]>",
    "<kernel_shape = [2, 3]>",
    "<kernel_shape = [3, 2], strides = [3, 2], dilations = [2, 1]>",
    "<kernel_shape = [3, 3], strides = [2, 2], ceil_mode = 1>",
    "<kernel_shape = [3, 3], pads = [1, 1, 1, 1], strides = [2, 3], ceil_mode = 1>",
    "<kernel_shape = [9, 8]>",
]


@pytest.mark.parametrize("attributes", POOLS)
@pytest.mark.parametrize("kind", ["uint8", "int8"])
def test_pooling_is_of_bytes(attributes: str, kind: str) -> None:
    between = model(
        f"""({kind}[2, 24, 9, 8] x) => ({kind}[A, B, C, D] y) {{
             f = DequantizeLinear(x, s, z)
             p = MaxPool{attributes}(f)
             y = QuantizeLinear(p, s, z)
           }}""",
        s=f32(0.1),
        z=np.dtype(kind).type(3),
    )
    plain = model(f"({kind}[2, 24, 9, 8] x) => ({kind}[A, B, C, D] y) {{ y = MaxPool{attributes}(x) }}")
    limits = np.iinfo(np.dtype(kind))
    for source in (between, plain):
        assert calls(source) == ["onnx_torch::max_pool"]
        for low, high in ((limits.min, limits.max), (limits.min, limits.min), (-7 if limits.min else 0, 5)):
            check_exact(source, RNG.integers(low, high + 1, (2, 24, 9, 8), limits.dtype))


def test_pooling_of_other_forms() -> None:
    """Pools take images of open sizes, pads of two kinds, indices, three dimensions, and what a convolution gives."""
    x = RNG.integers(0, 256, (2, 24, 9, 8), np.uint8)
    attributes = "<kernel_shape = [3, 3], pads = [1, 1, 1, 1], strides = [2, 2]>"
    opened = model(f"(uint8[N, C, H, W] x) => (uint8[N, C, P, Q] y) {{ y = MaxPool{attributes}(x) }}")
    check_exact(opened, x)
    check_exact(opened, x[:0])
    pads = model(
        "(uint8[2, 24, 9, 8] x) => (uint8[A, B, C, D] y) { y = MaxPool<kernel_shape = [3, 3], pads = [0, 1, 2, 1]>(x) }"
    )
    check_exact(pads, x)
    indices = model(
        f"(uint8[2, 24, 9, 8] x) => (uint8[A, B, C, D] y, int64[A, B, C, D] i) {{ y, i = MaxPool{attributes}(x) }}"
    )
    check_exact(indices, x)
    cube = model("(int8[1, 3, 5, 6, 7] x) => (int8[A, B, C, D, E] y) { y = MaxPool<kernel_shape = [2, 3, 2]>(x) }")
    check_exact(cube, RNG.integers(-128, 128, (1, 3, 5, 6, 7), np.int8))
    layers = model(
        """(uint8[2, 24, 9, 8] x) => (uint8[2, 48, 4, 4] y, int64[2, 48, 4, 4] i) {
             c = QLinearConv(x, s, z, w, t, wz, s, z)
             y, i = MaxPool<kernel_shape = [2, 2], pads = [0, 0, 1, 0]>(c)
           }""",
        s=f32(0.02),
        z=np.uint8(12),
        t=f32(0.01),
        wz=np.int8(0),
        w=weights(48, 24, 2, 2),
    )
    ours, without, plain = (
        onnx_torch.prepare(layers, **options).run([x])
        for options in ({}, {"disabled_passes": ["quantized"]}, {"optimize": False})
    )
    for found in (ours, without):
        assert np.abs(found[0].astype(int) - plain[0]).max() <= 1
