"""Models of 8 bits: what the pass makes of their graphs, and that their numbers stay what they were."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnxruntime
import pytest
import torch
from onnx import numpy_helper, parser, shape_inference, utils

import onnx_torch

RNG = np.random.default_rng(0)
START = RNG.bit_generator.state


@pytest.fixture(autouse=True)
def same_numbers_whichever_tests_run() -> None:
    RNG.bit_generator.state = START


def model(text: str, **weights: Any) -> onnx.ModelProto:
    parsed = parser.parse_model(f'<ir_version: 10, opset_import: ["": 21]> net {text}')
    for name, value in weights.items():
        parsed.graph.initializer.append(numpy_helper.from_array(np.asarray(value), name))
    onnx.checker.check_model(parsed)
    return parsed


def floats(*shape: int, scale: float = 1) -> np.ndarray:
    return RNG.standard_normal(shape, np.float32) * np.float32(scale)


def weights(*shape: int) -> np.ndarray:
    return RNG.integers(-127, 128, shape, np.int8)


def scales(count: int) -> np.ndarray:
    return RNG.uniform(0.001, 0.01, count).astype(np.float32)


def f32(number: float) -> np.float32:
    return np.float32(number)


def calls(source: onnx.ModelProto, step: str | None = None) -> list[str]:
    """The calls of the lowered graph, or after a step, without how many dimensions and which numbers they give."""
    prepared = onnx_torch.prepare(source)
    graph = prepared.graphs()[step] if step else prepared.graph()
    return re.findall(r"= ((?:aten|onnx_torch)::\w+)\(", graph)


def by_onnxruntime(source: onnx.ModelProto, inputs: list[np.ndarray]) -> list[np.ndarray]:
    options = onnxruntime.SessionOptions()
    options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_DISABLE_ALL
    session = onnxruntime.InferenceSession(source.SerializeToString(), options, ["CPUExecutionProvider"])
    return list(session.run(None, {value.name: x for value, x in zip(source.graph.input, inputs, strict=True)}))


def check_exact(source: onnx.ModelProto, *inputs: np.ndarray, **options: Any) -> list[np.ndarray]:
    ours = onnx_torch.prepare(source, **options).run(list(inputs))
    plain = onnx_torch.prepare(source, optimize=False).run(list(inputs))
    for result, expected in zip(ours, plain, strict=True):
        np.testing.assert_array_equal(result, expected)
        assert result.dtype == expected.dtype
    return list(ours)


def check_close(source: onnx.ModelProto, *inputs: np.ndarray, share: float = 0.002) -> None:
    """
    Numbers of 8 bits, equal but for a few that lie at a tie: the plain graph adds in float32 what is exact here, and
    may round to the other side.
    """
    for expected in (
        onnx_torch.prepare(source, optimize=False).run(list(inputs)),
        by_onnxruntime(source, list(inputs)),
    ):
        for result, other in zip(onnx_torch.prepare(source).run(list(inputs)), expected, strict=True):
            assert result.dtype == other.dtype
            difference = np.abs(result.astype(np.int64) - other.astype(np.int64))
            assert difference.max(initial=0) <= 1
            assert (difference > 0).mean() <= share


# --- onnxruntime's operators of 8 bits --------------------------------------------------------------------------------

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


# --- The pass alone ---------------------------------------------------------------------------------------------------


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


# --- QuantizeLinear and DequantizeLinear ------------------------------------------------------------------------------

SPECIAL = np.array(
    [np.nan, np.inf, -np.inf, 0, -0.0, 0.5, -0.5, 1.5, 2.5, -1.5, 1e-45, 3e38, -3e38, 127.5, -128.5, 254.5, 255.5],
    np.float32,
)


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


# --- Between them -----------------------------------------------------------------------------------------------------


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


# --- Products ---------------------------------------------------------------------------------------------------------

CONV = """({kind}[2, 32, 9, 8] x) => ({kind}[A, B, C, D] y) {{
            f = DequantizeLinear(x, xs, xz)
            w = DequantizeLinear<axis = 0>(wq, ws, wz)
            b = DequantizeLinear<axis = 0>(bq, bs, bz)
            c = Conv{attributes}(f, w, b)
            {step}
            y = QuantizeLinear(r, ys, yz)
          }}"""


def convolution(
    attributes: str = "",
    shape: tuple[int, ...] = (48, 32, 3, 3),
    kind: str = "uint8",
    zero_points: tuple[int, int] = (3, 120),
    per_channel: bool = True,
    step: str = "r = Identity(c)",
) -> onnx.ModelProto:
    count = shape[0] if per_channel else 1
    shaped = (lambda array: array) if per_channel else (lambda array: array[0])
    ws = scales(count)
    return model(
        CONV.format(kind=kind, attributes=attributes, step=step),
        xs=f32(0.02),
        xz=np.dtype(kind).type(zero_points[0]),
        wq=weights(*shape),
        ws=shaped(ws),
        wz=shaped(np.zeros(count, np.int8)),
        bq=RNG.integers(-9999, 9999, shape[0], np.int32),
        bs=shaped(ws * f32(0.02)),
        bz=shaped(np.zeros(count, np.int32)),
        ys=f32(0.07),
        yz=np.dtype(kind).type(zero_points[1]),
        **({"low": f32(-1), "high": f32(2)} if "Clip" in step else {}),
    )


IMAGES = (2, 32, 9, 8)


@pytest.mark.parametrize(
    "options",
    [
        {},
        {"attributes": "<pads = [1, 1, 1, 1]>"},
        {"attributes": "<pads = [1, 2, 1, 2], strides = [2, 1], dilations = [1, 2]>"},
        {"attributes": "<pads = [0, 1, 1, 0]>"},
        {"attributes": "<group = 2>", "shape": (96, 16, 3, 3)},
        {"shape": (160, 32, 1, 1)},
        {"kind": "int8", "zero_points": (-5, 7), "attributes": "<pads = [1, 1, 1, 1]>"},
        {"kind": "int8", "zero_points": (0, 0)},
        {"zero_points": (128, 0)},
        {"per_channel": False},
        {"step": "r = Relu(c)"},
        {"step": "r = HardSwish(c)"},
        {"step": "d = Clip(c, low, high)  r = Sigmoid(d)"},
    ],
    ids=str,
)
def test_convolutions(options: dict[str, Any]) -> None:
    source = convolution(**options)
    names = calls(source)
    assert names.count("onnx_torch::packed") == 1
    assert not {"aten::convolution", "onnx_torch::quantize", "onnx_torch::dequantize"} & set(names)
    limits = np.iinfo(np.dtype(options.get("kind", "uint8")))
    check_close(source, RNG.integers(limits.min, limits.max + 1, IMAGES, limits.dtype))
    check_close(source, np.full(IMAGES, limits.max, limits.dtype))
    check_close(source, np.full(IMAGES, limits.min, limits.dtype))


def test_largest_sums_do_not_saturate() -> None:
    """Where neighbouring products are added in 16 bits, 255 * 127 * 2 does not fit."""
    source = model(
        """(uint8[4, 256] x) => (float[4, 64] y) {
             f = DequantizeLinear(x, one)
             w = DequantizeLinear(wq, one)
             y = MatMul(f, w)
           }""",
        one=f32(1),
        wq=np.full((256, 64), 127, np.int8),
    )
    assert calls(source) == ["onnx_torch::packed"]
    check_exact(source, np.full((4, 256), 255, np.uint8))
    check_exact(source, RNG.integers(0, 256, (4, 256), np.uint8))


@pytest.mark.parametrize("weight", [127, -128])
@pytest.mark.parametrize("group", [1, 32])
@pytest.mark.parametrize(("kind", "x"), [("uint8", 255), ("int8", -128), ("int8", 127)])
def test_largest_sums_of_convolutions_do_not_saturate(weight: int, group: int, kind: str, x: int) -> None:
    source = model(
        f"""({kind}[1, 32, 9, 8] x) => (float[1, 32, 9, 8] y) {{
             f = DequantizeLinear(x, one)
             w = DequantizeLinear(wq, one)
             y = Conv<pads = [1, 1, 1, 1], group = {group}>(f, w)
           }}""",
        one=f32(1),
        wq=np.full((32, 32 // group, 3, 3), weight, np.int8),
    )
    assert calls(source) == ["onnx_torch::packed"]
    (y,) = check_exact(source, np.full((1, 32, 9, 8), x, kind))
    assert y[0, 0, 4, 4] == x * weight * 9 * 32 // group


LINEAR = {
    "gemm": ("Gemm<transB = 1>(f, w, b)", True),
    "gemm_plain": ("Gemm(f, w, b)", False),
    "matmul": ("MatMul(f, w)", False),
}


@pytest.mark.parametrize("form", LINEAR)
@pytest.mark.parametrize("kind", ["uint8", "int8"])
@pytest.mark.parametrize("per_channel", [False, True])
def test_linear_layers(form: str, kind: str, per_channel: bool) -> None:
    call, transposed = LINEAR[form]
    inside, outside = 80, 72
    count = outside if per_channel else 1
    shaped = (lambda array: array) if per_channel else (lambda array: array[0])
    source = model(
        f"""({kind}[N, {inside}] x) => ({kind}[N, {outside}] y) {{
             f = DequantizeLinear(x, xs, xz)
             w = DequantizeLinear<axis = {0 if transposed else 1}>(wq, ws, wz)
             c = {call}
             y = QuantizeLinear(c, ys, yz)
           }}""",
        xs=f32(0.02),
        xz=np.dtype(kind).type(11),
        wq=weights(outside, inside) if transposed else weights(inside, outside),
        ws=shaped(scales(count)),
        wz=shaped(np.zeros(count, np.int8)),
        ys=f32(0.05),
        yz=np.dtype(kind).type(50),
        **({} if form == "matmul" else {"b": floats(outside)}),
    )
    assert calls(source) == ["onnx_torch::packed"]
    limits = np.iinfo(np.dtype(kind))
    for rows in (1, 7, 64):
        check_close(source, RNG.integers(limits.min, limits.max + 1, (rows, inside), limits.dtype))
    empty = onnx_torch.prepare(source).run([np.zeros((0, inside), kind)])[0]
    assert empty.shape == (0, outside) and empty.dtype == kind


def test_chain_of_layers() -> None:
    """Nothing but bytes between the layers of a residual block."""
    names = {}
    for i in "12":
        names |= {f"w{i}": weights(64, 64, 3, 3), f"s{i}": scales(64)}
    source = model(
        """(float[1, 64, 10, 10] image) => (float[1, 64, 10, 10] y) {
             q0 = QuantizeLinear(image, s, z)    x0 = DequantizeLinear(q0, s, z)
             f1 = DequantizeLinear<axis = 0>(w1, s1)
             c1 = Conv<pads = [1, 1, 1, 1]>(x0, f1)    r1 = Relu(c1)
             q1 = QuantizeLinear(r1, s, z)    x1 = DequantizeLinear(q1, s, z)
             f2 = DequantizeLinear<axis = 0>(w2, s2)
             c2 = Conv<pads = [1, 1, 1, 1]>(x1, f2)
             q2 = QuantizeLinear(c2, t, z)    x2 = DequantizeLinear(q2, t, z)
             a = Add(x0, x2)
             q3 = QuantizeLinear(a, t, z)
             y = DequantizeLinear(q3, t, z)
           }""",
        s=f32(0.05),
        t=f32(0.2),
        z=np.uint8(128),
        **names,
    )
    assert calls(source) == [
        "onnx_torch::quantize",
        "onnx_torch::packed",
        "onnx_torch::packed",
        "onnx_torch::quantized_add",
        "onnx_torch::dequantize",
    ]
    image = floats(1, 64, 10, 10)
    ours, plain = (onnx_torch.prepare(source, optimize=o).run([image])[0] for o in (True, False))
    # A difference of one in q1, at a tie, is part of a step of q2, and several may add up to one. A layer by itself is
    # compared with the plain graph elsewhere; the chain, with the layers one by one.
    assert (ours != plain).mean() < 0.01
    layers = utils.Extractor(shape_inference.infer_shapes(source))
    first = layers.extract_model(["image"], ["q0", "q1"])
    second = layers.extract_model(["q1"], ["q2"])
    last = layers.extract_model(["q0", "q2"], ["y"])
    q0, q1 = onnx_torch.prepare(first).run([image])
    (q2,) = onnx_torch.prepare(second).run([q1])
    assert np.array_equal(ours, onnx_torch.prepare(last).run([q0, q2])[0])


def test_without_pack_the_rest_still_runs() -> None:
    source = convolution()
    x = RNG.integers(0, 256, IMAGES, np.uint8)
    ours = onnx_torch.prepare(source, disabled_passes=["pack"]).run([x])[0]
    plain = onnx_torch.prepare(source, optimize=False).run([x])[0]
    assert np.abs(ours.astype(int) - plain.astype(int)).max() <= 1


@pytest.mark.parametrize("form", LINEAR)
def test_small_weights_stay_in_8_bits(form: str) -> None:
    """Those that the translation knows as floats, too."""
    call, transposed = LINEAR[form]
    source = model(
        f"""(uint8[N, 24] x) => (uint8[N, 40] y) {{
             f = DequantizeLinear(x, xs, xz)
             w = DequantizeLinear<axis = {0 if transposed else 1}>(wq, ws)
             c = {call}
             y = QuantizeLinear(c, ys, yz)
           }}""",
        xs=f32(0.02),
        xz=np.uint8(11),
        wq=weights(40, 24) if transposed else weights(24, 40),
        ws=scales(40),
        ys=f32(0.06),
        yz=np.uint8(100),
        **({} if form == "matmul" else {"b": floats(40)}),
    )
    assert calls(source) == ["onnx_torch::packed"]
    check_close(source, RNG.integers(0, 256, (64, 24), np.uint8))
    depthwise = convolution("<group = 32, pads = [1, 1, 1, 1]>", (32, 1, 3, 3))
    assert calls(depthwise) == ["onnx_torch::packed"]
    check_close(depthwise, RNG.integers(0, 256, IMAGES, np.uint8))


def test_known_numbers_of_8_bits_are_computed_once() -> None:
    """Also in a branch, and where what is made of them is an output."""
    source = model(
        """(bool c, float[3] x) => (float[2, 3] y, float[2, 3] w) {
             w = DequantizeLinear(wq, ws)
             y = If(c) <then_branch = g1 () => (float[2, 3] a) { v = DequantizeLinear(wq, ws) a = Add(v, x) },
                        else_branch = g2 () => (float[2, 3] b) { b = Mul(w, x) }>
           }""",
        wq=weights(2, 3),
        ws=f32(0.5),
    )
    assert "aten::to" not in calls(source)
    for condition in (True, False):
        check_exact(source, np.array(condition), floats(3))


# Weights less their zero points: what they are, their zero point, and whether the differences fit 8 bits.
ZERO_POINTS = [
    (np.int8, 0, 0, True),
    (np.int8, 100, 3, True),
    (np.int8, 127, 3, False),
    (np.uint8, 255, 128, True),
    (np.uint8, 255, 131, False),
    (np.uint8, 100, 0, True),
    (np.uint8, 255, 0, False),
]


def numbers(kind: Any, most: int, *shape: int) -> np.ndarray:
    limits = np.iinfo(kind)
    found = RNG.integers(max(limits.min, -most), most + 1, shape, kind)
    found.flat[:2] = max(limits.min, -most), most
    return found


@pytest.mark.parametrize(("kind", "most", "zero_point", "fits"), ZERO_POINTS)
@pytest.mark.parametrize("form", LINEAR)
def test_linear_layers_with_zero_points_of_weights(
    form: str, kind: Any, most: int, zero_point: int, fits: bool
) -> None:
    call, transposed = LINEAR[form]
    source = model(
        f"""(uint8[N, 80] x) => (uint8[N, 72] y) {{
             f = DequantizeLinear(x, xs, xz)
             w = DequantizeLinear(wq, ws, wz)
             c = {call}
             y = QuantizeLinear(c, ys, yz)
           }}""",
        xs=f32(0.02),
        xz=np.uint8(11),
        wq=numbers(kind, most, *((72, 80) if transposed else (80, 72))),
        ws=f32(0.005),
        wz=kind(zero_point),
        ys=f32(0.06),
        yz=np.uint8(100),
        **({} if form == "matmul" else {"b": floats(72)}),
    )
    integers = ["onnx_torch::scaled_integer_product", "onnx_torch::quantize"]
    assert calls(source) == (["onnx_torch::packed"] if fits else integers)
    for rows in (1, 7, 64, 0):
        x = RNG.integers(0, 256, (rows, 80), np.uint8)
        if rows:
            check_close(source, x)
        assert onnx_torch.prepare(source).run([x])[0].shape == (rows, 72)


@pytest.mark.parametrize(("kind", "most", "zero_point", "fits"), ZERO_POINTS)
@pytest.mark.parametrize("attributes", ["", "<pads = [0, 1, 1, 0]>", "<pads = [1, 1, 1, 1], strides = [2, 2]>"])
def test_convolutions_with_zero_points_of_weights(
    kind: Any, most: int, zero_point: int, fits: bool, attributes: str
) -> None:
    source = model(
        f"""(uint8[2, 32, 9, 8] x) => (float[2, 48, A, B] y) {{
             f = DequantizeLinear(x, xs, xz)
             w = DequantizeLinear<axis = 0>(wq, ws, wz)
             y = Conv{attributes}(f, w, b)
           }}""",
        xs=f32(0.02),
        xz=np.uint8(11),
        wq=numbers(kind, most, 48, 32, 3, 3),
        ws=scales(48),
        wz=np.full(48, zero_point, kind),
        b=floats(48),
    )
    names = calls(source)
    assert ("onnx_torch::packed" if fits else "onnx_torch::scaled_integer_product") in names
    assert "onnx_torch::dequantize" not in names
    x = RNG.integers(0, 256, IMAGES, np.uint8)
    ours = onnx_torch.prepare(source).run([x])[0]
    np.testing.assert_allclose(ours, onnx_torch.prepare(source, optimize=False).run([x])[0], atol=2e-3)
    np.testing.assert_allclose(ours, by_onnxruntime(source, [x])[0], atol=2e-3)


# --- QLinearMatMul and QLinearConv ------------------------------------------------------------------------------------


@pytest.mark.parametrize(("kind", "most", "zero_point", "fits"), ZERO_POINTS)
@pytest.mark.parametrize("x_kind", ["uint8", "int8"])
@pytest.mark.parametrize("inside", [40, 300])
def test_qlinear_matmul(kind: Any, most: int, zero_point: int, fits: bool, x_kind: str, inside: int) -> None:
    """With 40 rows the translation has taken the zero point off the weight; sums of 300 are computed in double."""
    per_column = zero_point % 2 == 0
    shaped = (lambda array: array) if per_column else (lambda array: array[0])
    source = model(
        f"""({x_kind}[2, N, {inside}] x) => ({x_kind}[2, N, 72] y) {{
             y = QLinearMatMul(x, xs, xz, w, ws, wz, ys, yz)
           }}""",
        xs=f32(0.02),
        xz=np.dtype(x_kind).type(11),
        w=numbers(kind, most, inside, 72),
        ws=shaped(scales(72)),
        wz=shaped(np.full(72, zero_point, kind)),
        ys=f32(0.09),
        yz=np.dtype(x_kind).type(50),
    )
    integers = ["onnx_torch::scaled_integer_product", "onnx_torch::quantize"]
    assert calls(source) == (["onnx_torch::packed"] if fits else integers)
    limits = np.iinfo(np.dtype(x_kind))
    for rows in (1, 7):
        x = RNG.integers(limits.min, limits.max + 1, (2, rows, inside), limits.dtype)
        if np.dtype(x_kind) != kind and kind is np.uint8:  # onnxruntime has none of these
            check_steps(source, x)
        else:
            check_close(source, x)


def check_steps(source: onnx.ModelProto, *inputs: np.ndarray) -> None:
    ours, plain = (onnx_torch.prepare(source, optimize=o).run(list(inputs))[0] for o in (True, False))
    difference = np.abs(ours.astype(np.int64) - plain.astype(np.int64))
    assert difference.max() <= 1 and (difference > 0).mean() <= 0.002


QCONV: list[dict[str, Any]] = [
    {},
    {"attributes": "<pads = [1, 1, 1, 1], strides = [2, 1]>"},
    {"attributes": "<pads = [0, 1, 1, 0], dilations = [2, 1]>"},
    {"attributes": '<auto_pad = "SAME_UPPER", strides = [2, 2]>'},
    {"bias": False},
    {"x_kind": np.int8, "xz": -5, "kind": np.int8},
    {"shape": (96, 16, 3, 3), "attributes": "<group = 2>"},
    {"shape": (32, 1, 3, 3), "attributes": "<group = 32, pads = [1, 1, 1, 1]>"},
    {"shape": (48, 32, 1, 1)},
    {"most": 100, "wz": 3},
    {"wz": 3, "fits": False},
    {"kind": np.uint8, "most": 255, "wz": 131, "fits": False},
    {"kind": np.uint8, "most": 255, "wz": 131, "fits": False, "attributes": "<pads = [0, 1, 1, 0]>"},
    {"kind": np.uint8, "most": 255, "wz": 131, "fits": False, "bias": False, "per_channel": False},
    {"per_channel": False},
    {"shape": (48, 32, 3), "x": (2, 32, 9), "attributes": "<pads = [1, 1]>"},
]


@pytest.mark.parametrize("options", QCONV, ids=str)
def test_qlinear_conv(options: dict[str, Any]) -> None:
    o = {"attributes": "", "shape": (48, 32, 3, 3), "x": IMAGES, "x_kind": np.uint8, "xz": 11, "kind": np.int8}
    o |= {"most": 127, "wz": 0, "bias": True, "per_channel": True, "fits": True} | options
    count, kind = o["shape"][0], np.dtype(o["x_kind"]).name
    shaped = (lambda array: array) if o["per_channel"] else (lambda array: array[0])
    sizes, result = ", ".join(map(str, o["x"])), ", ".join("ABCD"[: len(o["x"])])
    source = model(
        f"""({kind}[{sizes}] x) => ({kind}[{result}] y) {{
             y = QLinearConv{o["attributes"]}(x, xs, xz, w, ws, wz, ys, yz{", b" if o["bias"] else ""})
           }}""",
        xs=f32(0.02),
        xz=o["x_kind"](o["xz"]),
        w=numbers(o["kind"], o["most"], *o["shape"]),
        ws=shaped(scales(count)),
        wz=shaped(np.full(count, o["wz"], o["kind"])),
        ys=f32(0.3),
        yz=o["x_kind"](20),
        **({"b": RNG.integers(-9999, 9999, count, np.int32)} if o["bias"] else {}),
    )
    names = calls(source)
    assert ("onnx_torch::packed" if o["fits"] else "onnx_torch::scaled_integer_product") in names
    assert not {"aten::convolution", "aten::round", "onnx_torch::dequantize"} & set(names)
    limits = np.iinfo(o["x_kind"])
    check_close(source, RNG.integers(limits.min, limits.max + 1, o["x"], limits.dtype))
    check_close(source, np.full(o["x"], limits.max, limits.dtype))


def test_qlinear_layers_one_after_another() -> None:
    source = model(
        """(float[1, 32, 9, 8] image) => (float[1, 16, 5, 4] y) {
             x = QuantizeLinear(image, s, z)
             a = QLinearConv<pads = [1, 1, 1, 1]>(x, s, z, w1, t, wz, s, z)
             b = QLinearConv<pads = [1, 1, 1, 1], strides = [2, 2]>(a, s, z, w2, t, wz, s, z)
             y = DequantizeLinear(b, s, z)
           }""",
        s=f32(0.05),
        t=f32(0.0005),
        z=np.uint8(128),
        wz=np.int8(0),
        w1=weights(64, 32, 3, 3),
        w2=weights(16, 64, 3, 3),
    )
    assert calls(source) == ["onnx_torch::quantize", *["onnx_torch::packed"] * 2, "onnx_torch::dequantize"]


def test_qlinear_products_of_other_forms_stay() -> None:
    """Zero points that come with the run, and scales of rows."""
    text = "(uint8[7, 80] x, uint8 xz) => (uint8[7, 72] y) { y = QLinearMatMul(x, xs, xz, w, ws, wz, ys, yz) }"
    constants = {"w": weights(80, 72), "ws": f32(0.01), "wz": np.int8(0), "ys": f32(0.1), "yz": np.uint8(3)}
    fed = model(text, xs=f32(0.02), **constants)
    rows = model(text.replace(", uint8 xz", ""), xs=scales(7), xz=np.zeros(7, np.uint8), **constants)
    x = RNG.integers(0, 256, (7, 80), np.uint8)
    for source, *inputs in ((fed, x, np.uint8(9)), (rows, x)):
        assert "onnx_torch::quantize" not in calls(source)
        check_exact(source, *inputs)


# --- MaxPool ----------------------------------------------------------------------------------------------------------

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
    """Images of open sizes, pads of two kinds, indices, three dimensions, what a convolution gives."""
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


# --- MatMulInteger and ConvInteger ------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("kind", "zero_point"), [("uint8", 0), ("uint8", 255), ("uint8", 113), ("int8", 0), ("int8", 5), ("int8", -128)]
)
@pytest.mark.parametrize("terms", [300, 3000])
def test_integer_products_are_exact(kind: str, zero_point: int, terms: int) -> None:
    """Sums of 3,000 products are larger than the integers that float32 holds all of."""
    limits = np.iinfo(np.dtype(kind))
    numbers = RNG.integers(limits.min, limits.max + 1, (terms, 40), limits.dtype)
    numbers[:, :3] = limits.max
    numbers[:, 3] = limits.min
    source = model(
        f"""(uint8[2, N, {terms}] x, uint8 xz) => (int32[2, N, 40] y) {{ y = MatMulInteger(x, w, xz, wz) }}""",
        w=numbers,
        wz=limits.dtype.type(zero_point),
    )
    assert "onnx_torch::integer_product" in calls(source)
    for x_zero_point in (0, 130, 255):
        for x in (RNG.integers(0, 256, (2, 7, terms), np.uint8), np.full((2, 1, terms), 255, np.uint8)):
            expected = (x.astype(np.int32) - x_zero_point) @ (numbers.astype(np.int32) - zero_point)
            np.testing.assert_array_equal(check_exact(source, x, np.uint8(x_zero_point))[0], expected)
        check_exact(source, np.zeros((2, 0, terms), np.uint8), np.uint8(x_zero_point))


def test_integer_products_with_a_zero_point_for_each_column() -> None:
    source = model(
        """(int8[7, 300] x, int8 xz) => (int32[7, 40] y) { y = MatMulInteger(x, w, xz, wz) }""",
        w=RNG.integers(0, 256, (300, 40), np.uint8),
        wz=RNG.integers(0, 256, 40, np.uint8),
    )
    assert calls(source) == ["onnx_torch::integer_product"]
    check_exact(source, RNG.integers(-128, 128, (7, 300), np.int8), np.int8(-128))
    check_exact(source, RNG.integers(-128, 128, (7, 300), np.int8), np.int8(77))


def test_integer_products_with_other_zero_points_stay() -> None:
    """One for each row, or a weight that comes with the run."""
    rows = model(
        "(uint8[7, 30] x, uint8[7] xz) => (int32[7, 40] y) { y = MatMulInteger(x, w, xz, wz) }",
        w=RNG.integers(0, 256, (30, 40), np.uint8),
        wz=np.uint8(131),
    )
    assert "onnx_torch::integer_product" not in calls(rows)
    check_exact(rows, RNG.integers(0, 256, (7, 30), np.uint8), RNG.integers(0, 256, 7, np.uint8))
    fed = model("(uint8[7, 30] x, uint8[30, 40] w, uint8 xz) => (int32[7, 40] y) { y = MatMulInteger(x, w, xz) }")
    assert "onnx_torch::integer_product" not in calls(fed)


CONVOLUTIONS: list[dict[str, Any]] = [
    {},
    {"shape": (1, 32, 3, 3), "wz": np.uint8(0)},
    {"shape": (48, 1200, 3, 3), "x": (1, 1200, 4, 5)},
    {"attributes": "<pads = [1, 2, 1, 2], strides = [2, 1], dilations = [1, 2]>"},
    {"attributes": "<pads = [0, 1, 1, 0]>"},
    {"attributes": "<pads = [0, 1, 1, 0]>", "x_type": np.int8, "w": np.int8, "wz": np.int8(0)},
    {"attributes": '<auto_pad = "SAME_UPPER", strides = [2, 2]>'},
    {"wz": np.uint8(255)},
    {"wz": None},
    {"w": np.int8, "wz": np.int8(-128), "attributes": "<pads = [1, 1, 1, 1]>"},
    {"w": np.int8, "wz": np.int8(0), "x_type": np.int8, "attributes": "<pads = [1, 1, 1, 1]>"},
    {"x_type": np.int8, "attributes": "<pads = [1, 1, 1, 1]>"},
    {"wz": RNG.integers(100, 150, 48, np.uint8), "attributes": "<pads = [1, 1, 1, 1]>"},
    {"shape": (48, 16, 3, 3), "attributes": "<group = 2>", "w": np.int8, "wz": np.int8(0)},
    {"shape": (32, 1, 3, 3), "attributes": "<group = 32, pads = [1, 1, 1, 1]>", "w": np.int8, "wz": np.int8(0)},
    {"shape": (48, 16, 3, 3), "attributes": "<group = 2>", "lowered": False},
    {"shape": (48, 32, 3), "x": (2, 32, 9), "attributes": "<pads = [1, 1]>"},
    {"shape": (16, 32, 2, 3, 3), "x": (2, 32, 4, 5, 6), "attributes": "<pads = [1, 1, 0, 1, 1, 0]>"},
]


W_ZERO_POINT = np.uint8(129)


def integer_convolution(
    attributes: str = "",
    shape: tuple[int, ...] = (48, 32, 3, 3),
    x: tuple[int, ...] = (2, 32, 9, 8),
    w: Any = np.uint8,
    wz: Any = W_ZERO_POINT,
    x_type: Any = np.uint8,
    after: str = "y = Identity(i)",
    result: str = "int32",
    more: str = "",
    **constants: Any,
) -> onnx.ModelProto:
    kind = np.dtype(x_type).name
    limits = np.iinfo(w)
    numbers = RNG.integers(limits.min, limits.max + 1, shape, w)
    numbers[0] = limits.max
    sizes, result_sizes = ", ".join(map(str, x[1:])), ", ".join("ABCDE"[: len(x)])
    return model(
        f"""({kind}[N, {sizes}] x, {kind} xz{more}) => ({result}[{result_sizes}] y) {{
             i = ConvInteger{attributes}(x, w, xz{"" if wz is None else ", wz"})
             {after}
           }}""",
        w=numbers,
        **({} if wz is None else {"wz": wz}),
        **constants,
    )


@pytest.mark.parametrize("options", CONVOLUTIONS, ids=str)
def test_integer_convolutions_are_exact(options: dict[str, Any]) -> None:
    options = dict(options)
    lowered = options.pop("lowered", True)
    source = integer_convolution(**options)
    assert ("onnx_torch::integer_product" in calls(source)) == lowered
    sizes = options.get("x", (2, 32, 9, 8))
    limits = np.iinfo(options.get("x_type", np.uint8))
    for zero_point in {0, 130, limits.min, limits.max} & set(range(limits.min, limits.max + 1)):
        for x in (
            RNG.integers(limits.min, limits.max + 1, sizes, limits.dtype),
            np.full(sizes, limits.max, limits.dtype),
            np.zeros((0, *sizes[1:]), limits.dtype),
        ):
            check_exact(source, x, limits.dtype.type(zero_point))


@pytest.mark.parametrize("attributes", ["", "<pads = [1, 2, 1, 2]>"])
@pytest.mark.parametrize(
    "zero_point", [np.uint8(0), np.uint8(130), np.uint8(255), np.int8(0), np.int8(-128), np.int8(7)], ids=repr
)
def test_integer_products_with_a_constant_zero_point_of_the_input(zero_point: Any, attributes: str) -> None:
    kind, limits = zero_point.dtype.name, np.iinfo(zero_point.dtype)
    weights = {"xz": zero_point, "wz": W_ZERO_POINT}
    convolution = model(
        f"({kind}[N, 32, 9, 8] x) => (int32[A, B, C, D] y) {{ y = ConvInteger{attributes}(x, w, xz, wz) }}",
        w=RNG.integers(0, 256, (48, 32, 3, 3), np.uint8),
        **weights,
    )
    product = model(
        f"({kind}[N, 300] x) => (int32[N, 40] y) {{ y = MatMulInteger(x, w, xz, wz) }}",
        w=RNG.integers(0, 256, (300, 40), np.uint8),
        **weights,
    )
    for source, sizes in (convolution, (2, 32, 9, 8)), (product, (7, 300)):
        assert "onnx_torch::integer_product" in calls(source)
        check_exact(source, RNG.integers(limits.min, limits.max + 1, sizes, limits.dtype))
        check_exact(source, np.full(sizes, limits.max, limits.dtype))


AFTER = {
    "scalar": ("y = Mul(f, s)", ()),
    "per_channel": ("y = Mul(f, sc)", ()),
    "bias": ("m = Mul(sc, f)  y = Add(m, b)", ()),
    "relu": ("m = Mul(s, f)  y = Relu(m)", ()),
    "bias_relu": ("m = Mul(f, s)  a = Add(b, m)  y = Relu(a)", ()),
    "operand": ("m = Mul(f, s)  a = Add(m, o)  y = Relu(a)", (2, 48, 7, 6)),
    "bias_operand": ("m = Mul(f, s)  a = Add(m, b)  c = Add(o, a)  y = Relu(c)", (2, 48, 7, 6)),
    "operand_bias": ("m = Mul(f, s)  a = Add(m, o)  c = Add(a, b)  y = Relu(c)", (2, 48, 7, 6)),
    "broadcast_operand": ("m = Mul(f, s)  y = Add(m, o)", (2, 1, 7, 1)),
    "wider_operand": ("m = Mul(f, s)  y = Add(m, o)", (3, 1, 48, 7, 6)),
    "scale_of_another_axis": ("y = Mul(f, o)", (7, 1)),
    "two_operands": ("m = Mul(f, s)  a = Add(m, o)  y = Add(a, o)", (2, 48, 7, 6)),
}


@pytest.mark.parametrize("form", AFTER)
@pytest.mark.parametrize("open_sizes", [False, True])
def test_what_follows_integer_convolutions(form: str, open_sizes: bool) -> None:
    steps, operand = AFTER[form]
    dims = ", ".join("PQRST"[: len(operand)] if open_sizes else map(str, operand))
    source = integer_convolution(
        after=f"f = Cast<to = 1>(i) {steps}",
        result="float",
        more=f", float[{dims}] o" if operand else "",
        s=f32(0.003),
        sc=scales(48).reshape(1, 48, 1, 1),
        b=floats(48, 1, 1),
    )
    if not open_sizes:
        source.graph.input[0].type.tensor_type.shape.dim[0].dim_value = 2
    if form not in ("wider_operand", "scale_of_another_axis"):
        assert "onnx_torch::scaled_integer_product" in calls(source)
        assert "aten::relu" not in calls(source)
    x = RNG.integers(0, 256, (2, 32, 9, 8), np.uint8)
    operands = [floats(*operand)] if operand else []
    check_close_floats(source, x, np.uint8(120), *operands)
    if operand:
        operands[0].flat[::3] = np.nan
        operands[0].flat[1::5] = np.inf
        check_close_floats(source, x, np.uint8(120), *operands)


def check_close_floats(source: onnx.ModelProto, *inputs: np.ndarray) -> None:
    ours, plain = (onnx_torch.prepare(source, optimize=o).run(list(inputs)) for o in (True, False))
    for result, expected in zip(ours, plain, strict=True):
        assert result.shape == expected.shape
        np.testing.assert_allclose(result, expected, rtol=1e-6, atol=1e-5)


@pytest.mark.parametrize("scale", [np.nan, np.inf, -0.5, 1e38])
def test_scales_that_come_with_the_run(scale: float) -> None:
    source = integer_convolution(
        after="f = Cast<to = 1>(i)  m = Mul(f, t)  y = Relu(m)", result="float", more=", float t"
    )
    assert calls(source).count("onnx_torch::scaled_integer_product") == 1
    check_exact(source, RNG.integers(0, 256, (2, 32, 9, 8), np.uint8), np.uint8(9), f32(scale))


@pytest.mark.parametrize("kind", ["ConvInteger", "uint8", "int8", "depthwise"])
def test_weights_are_saved_as_they_are_laid_out(kind: str, tmp_path: Path) -> None:
    """Signed inputs and zero points put more than the weights into what is laid out."""
    pads = "pads = [1, 1, 1, 1]"
    if kind == "ConvInteger":
        source = integer_convolution(attributes=f"<{pads}>")
        source.graph.input[0].type.tensor_type.shape.dim[0].dim_value = 2
        x = [RNG.integers(0, 256, IMAGES, np.uint8), np.uint8(77)]
    elif kind == "depthwise":
        source = convolution(f"<{pads}, group = 32>", (512, 1, 3, 3))
        x = [RNG.integers(0, 256, IMAGES, np.uint8)]
    else:
        source = convolution(f"<{pads}>", kind=kind, zero_points=(3, 12))
        x = [RNG.integers(0, 128, IMAGES, np.dtype(kind))]
    rep = onnx_torch.prepare(source)
    rep.save(tmp_path / "saved")
    loaded = onnx_torch.load(tmp_path / "saved")
    np.testing.assert_array_equal(loaded.run(x)[0], rep.run(x)[0])
    onnx_torch.prepare(source, disabled_passes=["pack", "quantized"]).save(tmp_path / "plain")
    assert (tmp_path / "saved").stat().st_size > (tmp_path / "plain").stat().st_size + 4096


@pytest.mark.parametrize("kind", ["uint8", "int8"])
@pytest.mark.parametrize(
    ("call", "shape"),
    [
        ("ConvInteger(x, w, z, wz)", (64, 128, 1, 1)),
        ("QLinearConv(x, s, z, w, s, wz, t, z)", (64, 128, 1, 1)),
        ("QLinearConv<pads = [1, 1, 1, 1]>(x, s, z, w, s, wz, t, z)", (48, 32, 3, 3)),
    ],
)
def test_a_weight_that_was_laid_out_can_be_had_back(kind: str, call: str, shape: tuple[int, ...]) -> None:
    """Images of other sizes want other layouts, which are made of the first."""
    source = model(
        f"({kind}[N, {shape[1]}, H, W] x) => ({'int32' if 'Integer' in call else kind}[N, M, H, W] y) {{ y = {call} }}",
        w=weights(*shape),
        z=np.dtype(kind).type(3),
        wz=np.int8(0),
        s=f32(0.02),
        t=f32(0.2),
    )
    rep, plain = onnx_torch.prepare(source), onnx_torch.prepare(source, optimize=False)
    limits = np.iinfo(np.dtype(kind))
    for count, size in ((1, 9), (2, 4), (1, 64), (8, 3), (1, 5), (2, 90)):
        x = RNG.integers(limits.min, limits.max + 1, (count, shape[1], size, size), limits.dtype)
        assert np.abs(rep.run([x])[0].astype(int) - plain.run([x])[0]).max() <= ("QLinear" in call)
    (layouts,) = rep._prepared.laid_weights
    in_panels = layouts[0][0].startswith("weight:strips")
    one_for_all = in_panels or torch.backends.cpu.get_cpu_capability() == "DEFAULT"
    assert (len(layouts) > 1) != one_for_all


def test_sums_of_very_many_numbers_are_exact() -> None:
    """Of more rows than a table of 16 bits can tell."""
    source = model(
        "(uint8[2, 270001] x) => (int32[2, 3] y) { y = MatMulInteger(x, w) }",
        w=RNG.integers(-3, 4, (270_001, 3), np.int8),
    )
    check_exact(source, RNG.integers(0, 256, (2, 270_001), np.uint8))


def test_sums_that_are_used_twice_stay_integers() -> None:
    source = model(
        """(uint8[4, 300] x, uint8 xz) => (int32[4, 40] i, float[4, 40] y) {
             i = MatMulInteger(x, w, xz, wz)
             f = Cast<to = 1>(i)
             y = Mul(f, s)
           }""",
        w=RNG.integers(0, 256, (300, 40), np.uint8),
        wz=np.uint8(131),
        s=f32(0.01),
    )
    check_exact(source, RNG.integers(0, 256, (4, 300), np.uint8), np.uint8(17))


# --- DynamicQuantizeLinear --------------------------------------------------------------------------------------------


@pytest.mark.parametrize("count", [1, 2, 63, 64, 65, 1000, 100_003])
def test_dynamic_quantize_is_exact(count: int) -> None:
    source = model("(float[N] x) => (uint8[N] y, float s, uint8 z) { y, s, z = DynamicQuantizeLinear(x) }")
    assert calls(source) == ["onnx_torch::dynamic_quantize"]
    ours, plain = (onnx_torch.prepare(source, optimize=o) for o in (True, False))
    numbers = floats(count)
    inputs = [numbers, -np.abs(numbers), np.abs(numbers), np.zeros_like(numbers), numbers * f32(1e-44), numbers + 9]
    for special in SPECIAL:
        for place in (0, count // 2, count - 1):
            inputs.append(numbers.copy())
            inputs[-1][place] = special
    for x in inputs:
        for result, expected in zip(ours.run([x]), plain.run([x]), strict=True):
            np.testing.assert_array_equal(result, expected)
            assert result.dtype == expected.dtype


def test_dynamic_quantize_of_nothing_is_an_error() -> None:
    source = model("(float[N] x) => (uint8[N] y, float s, uint8 z) { y, s, z = DynamicQuantizeLinear(x) }")
    for optimize in (True, False):
        with pytest.raises(onnx_torch.Error):
            onnx_torch.prepare(source, optimize=optimize).run([np.zeros(0, np.float32)])


@pytest.mark.parametrize("rows", ["9", "N"])
def test_dynamic_quantization(rows: str) -> None:
    source = model(
        f"""(float[{rows}, 96] x) => (float[{rows}, 64] y) {{
             q, s, z = DynamicQuantizeLinear(x)
             i = MatMulInteger(q, w, z, wz)
             f = Cast<to = 1>(i)
             scale = Mul(s, ws)
             m = Mul(f, scale)
             y = Add(m, b)
           }}""",
        w=RNG.integers(0, 256, (96, 64), np.uint8),
        wz=np.uint8(131),
        ws=f32(0.01),
        b=floats(64),
    )
    assert calls(source) == [
        "onnx_torch::dynamic_quantize",
        "aten::mul",
        "onnx_torch::scaled_integer_product",
    ]
    x = floats(9, 96)
    check_exact(source, x)
    np.testing.assert_allclose(
        onnx_torch.prepare(source).run([x])[0], by_onnxruntime(source, [x])[0], rtol=1e-4, atol=1e-4
    )
    for special in (np.nan, np.inf, -np.inf):
        x[3, 5] = special
        check_exact(source, x)
