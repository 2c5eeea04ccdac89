"""The pass `quantized`: convolutions and products of bytes, QLinearConv and QLinearMatMul."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import shape_inference, utils

import onnx_torch
from pass_models import assert_close
from quantized_models import (
    IMAGES,
    by_onnxruntime,
    calls,
    check_close,
    check_exact,
    convolution,
    f32,
    floats,
    model,
    numbers,
    scales,
    weights,
)
from random_numbers import RNG


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
    """The largest sums are right: 255 * 127 * 2 does not fit where neighbouring products are added in 16 bits."""
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
    """Nothing but bytes goes between the layers of a residual block."""
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
    """Weights that the translation knows as floats stay in int8, too."""
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
    """Such elements are computed once also in a branch, and where what is made of them is an output."""
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


# Weights with zero points: the type, the largest element, the zero point, and whether the differences fit 8 bits.
ZERO_POINTS = [
    (np.int8, 0, 0, True),
    (np.int8, 100, 3, True),
    (np.int8, 127, 3, False),
    (np.uint8, 255, 128, True),
    (np.uint8, 255, 131, False),
    (np.uint8, 100, 0, True),
    (np.uint8, 255, 0, False),
]


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
    wq, ws, b = numbers(kind, most, 48, 32, 3, 3), scales(48), floats(48)
    source = model(
        f"""(uint8[2, 32, 9, 8] x) => (float[2, 48, A, B] y) {{
             f = DequantizeLinear(x, xs, xz)
             w = DequantizeLinear<axis = 0>(wq, ws, wz)
             y = Conv{attributes}(f, w, b)
           }}""",
        xs=f32(0.02),
        xz=np.uint8(11),
        wq=wq,
        ws=ws,
        wz=np.full(48, zero_point, kind),
        b=b,
    )
    names = calls(source)
    assert ("onnx_torch::packed" if fits else "onnx_torch::scaled_integer_product") in names
    assert "onnx_torch::dequantize" not in names
    x = RNG.integers(0, 256, IMAGES, np.uint8)
    in_doubles = model(
        f"(double[2, 32, 9, 8] f) => (double[2, 48, A, B] y) {{ y = Conv{attributes}(f, w, b) }}",
        w=(wq.astype(np.float64) - zero_point) * ws.astype(np.float64)[:, None, None, None],
        b=b.astype(np.float64),
    )
    f = (x.astype(np.float64) - 11) * float(f32(0.02))
    exact = onnx_torch.prepare(in_doubles, optimize=False).run([f])[0]
    assert_close(onnx_torch.prepare(source).run([x])[0], exact, ulps=4)
    assert_close(by_onnxruntime(source, [x])[0], exact)


@pytest.mark.parametrize(("kind", "most", "zero_point", "fits"), ZERO_POINTS)
@pytest.mark.parametrize("x_kind", ["uint8", "int8"])
@pytest.mark.parametrize("inside", [40, 300])
def test_qlinear_matmul(kind: Any, most: int, zero_point: int, fits: bool, x_kind: str, inside: int) -> None:
    """The translation has taken the zero point off a weight of 40 rows; sums of 300 products are computed in double."""
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
    """The zero points come with the run, or the scales are of rows."""
    text = "(uint8[7, 80] x, uint8 xz) => (uint8[7, 72] y) { y = QLinearMatMul(x, xs, xz, w, ws, wz, ys, yz) }"
    constants = {"w": weights(80, 72), "ws": f32(0.01), "wz": np.int8(0), "ys": f32(0.1), "yz": np.uint8(3)}
    fed = model(text, xs=f32(0.02), **constants)
    rows = model(text.replace(", uint8 xz", ""), xs=scales(7), xz=np.zeros(7, np.uint8), **constants)
    x = RNG.integers(0, 256, (7, 80), np.uint8)
    for source, *inputs in ((fed, x, np.uint8(9)), (rows, x)):
        assert "onnx_torch::quantize" not in calls(source)
        check_exact(source, *inputs)


PIXELS = """if True:
    import sys
    import numpy as np
    import onnx_torch

    rng = np.random.default_rng(0)
    rep = onnx_torch.prepare(sys.argv[1], plans=0)
    plain = onnx_torch.prepare(sys.argv[1], optimize=False)
    for _ in range(4):
        for count in (1, 2, 8):
            for columns in range(1, 100):
                x = rng.integers(0, 256, (count, 128, 1, columns), np.uint8)
                y = rep.run([x])[0].astype(int)
                assert np.abs(y - plain.run([x])[0]).max() <= 1, (count, columns)
"""


def test_windows_of_one_pixel_stay_within_few_pixels(tmp_path: Path) -> None:
    """oneDNN's kernel for AMX goes beyond images of 27, 33, 36 … 48 pixels; what it overwrites ends the process."""
    weights = np.random.default_rng(1).integers(-128, 128, (64, 128, 1, 1), np.int8)
    source = onnx.parser.parse_model(
        '<ir_version: 10, opset_import: ["": 21]> g (uint8[N, 128, H, W] x) => (uint8[N, 64, H, W] y) '
        "<float s = {0.02}, float t = {0.5}, uint8 z = {3}, int8 wz = {0}> "
        "{ y = QLinearConv (x, s, z, w, s, wz, t, z) }"
    )
    source.graph.initializer.append(onnx.numpy_helper.from_array(weights, "w"))
    onnx.save(source, tmp_path / "net.onnx")
    subprocess.run([sys.executable, "-c", PIXELS, str(tmp_path / "net.onnx")], check=True)
