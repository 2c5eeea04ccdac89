"""The pass `quantized`: ConvInteger, MatMulInteger and DynamicQuantizeLinear."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
import torch

import onnx_torch
from pass_models import assert_close, check_equal
from quantized_models import (
    IMAGES,
    SPECIAL,
    by_onnxruntime,
    calls,
    check_exact,
    convolution,
    f32,
    floats,
    model,
    scales,
    weights,
)
from random_numbers import RNG


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
    """The zero points are one for each row, or the weight comes with the run."""
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
    {"wz": np.random.default_rng(1).integers(100, 150, 48, np.uint8), "attributes": "<pads = [1, 1, 1, 1]>"},
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


PRODUCT = "(uint8[7, 30] x, uint8{} xz) => (int32[7, 40] y) {{ y = MatMulInteger(x, w, xz, wz) }}"


@pytest.mark.parametrize("kind", ["MatMulInteger", "ConvInteger"])
def test_integer_products_are_kept_until_the_pass(kind: str) -> None:
    weight = {"w": RNG.integers(0, 256, (30, 40), np.uint8), "wz": W_ZERO_POINT}
    is_matmul = kind == "MatMulInteger"
    source = model(PRODUCT.format(""), **weight) if is_matmul else integer_convolution("<pads = [0, 1, 1, 0]>")
    script = "onnx_torch::matmul_integer(" if is_matmul else "onnx_torch::conv_integer("
    graphs = onnx_torch.prepare(source, disabled_passes=["quantized"]).graphs()
    assert graphs["fold"].count(script) == 1
    assert script not in graphs["expand"]
    for plain in (onnx_torch.prepare(source, optimize=False).graph(), onnx_torch.to_torchscript(source).code):
        assert "onnx_torch" not in plain
        assert "dequantize" not in plain
    x = RNG.integers(0, 256, (7, 30) if is_matmul else (2, 32, 9, 8), np.uint8)
    check_exact(source, x, np.uint8(77), disabled_passes=["quantized"])


@pytest.mark.parametrize("sizes", [[1], [1, 1]])
def test_integer_products_with_a_zero_point_of_another_rank(sizes: list[int]) -> None:
    weight = {"w": RNG.integers(0, 256, (30, 40), np.uint8), "wz": np.full(sizes, 131, np.uint8)}
    source = model(PRODUCT.format(sizes), **weight)
    assert calls(source) == ["onnx_torch::integer_product"]
    check_exact(source, RNG.integers(0, 256, (7, 30), np.uint8), np.full(sizes, 17, np.uint8))


def test_integer_convolutions_know_the_sizes_of_what_they_pad() -> None:
    """So their weights are laid out before a run."""
    source = integer_convolution("<pads = [0, 1, 2, 3]>")
    assert "Byte(*, 32, 11, 12) = aten::constant_pad_nd" in onnx_torch.prepare(source).graph()


def test_integer_convolutions_over_four_dimensions() -> None:
    source = integer_convolution("", (3, 2, 2, 2, 2, 2), (1, 2, 4, 4, 4, 4))
    source.graph.output[0].type.tensor_type.shape.dim.add().dim_param = "F"
    assert "onnx_torch::integer_product" not in calls(source)
    check_exact(source, RNG.integers(0, 256, (1, 2, 4, 4, 4, 4), np.uint8), np.uint8(9))


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
    check_equal(source, [x, np.uint8(120), *operands], ulps=2)
    if operand:
        operands[0].flat[::3] = np.nan
        operands[0].flat[1::5] = np.inf
        check_equal(source, [x, np.uint8(120), *operands], ulps=2)


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
def test_a_weight_that_was_laid_out_can_be_had_back(kind: str) -> None:
    """Images of other sizes want other layouts, made of the first: on each CPU those of one convolution at least."""
    counts = []
    for call, shape in [
        ("ConvInteger(x, w, z, wz)", (64, 128, 1, 1)),
        ("ConvInteger(x, w, z, wz)", (48, 32, 3, 3)),
        ("QLinearConv(x, s, z, w, s, wz, t, z)", (64, 128, 1, 1)),
        ("QLinearConv(x, s, z, w, s, wz, t, z)", (128, 16, 5, 5)),
        ("QLinearConv<pads = [1, 1, 1, 1]>(x, s, z, w, s, wz, t, z)", (48, 32, 3, 3)),
    ]:
        result = "int32" if "Integer" in call else kind
        source = model(
            f"({kind}[N, {shape[1]}, H, W] x) => ({result}[N, M, H, W] y) {{ y = {call} }}",
            w=weights(*shape),
            z=np.dtype(kind).type(3),
            wz=np.int8(0),
            s=f32(0.02),
            t=f32(0.2),
        )
        rep, plain = onnx_torch.prepare(source), onnx_torch.prepare(source, optimize=False)
        limits = np.iinfo(np.dtype(kind))
        for count, size in ((1, 9), (2, 5), (1, 64), (8, 6), (1, 5), (2, 90)):
            x = RNG.integers(limits.min, limits.max + 1, (count, shape[1], size, size), limits.dtype)
            assert np.abs(rep.run([x])[0].astype(int) - plain.run([x])[0]).max() <= ("QLinear" in call)
        (layouts,) = rep._prepared.laid_weights
        counts.append(len(layouts))
    in_panels = layouts[0][0].startswith("weight:strips")
    one_for_all = in_panels or torch.backends.cpu.get_cpu_capability() == "DEFAULT"
    assert (max(counts) > 1) != one_for_all


def test_sums_of_very_many_numbers_are_exact() -> None:
    """The sums are of more rows than a table of 16 bits can tell."""
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


# Nothing is known of the sizes in a Scan, and the fourth run goes by a plan.
@pytest.mark.parametrize("columns", [1, 64])
def test_an_addend_may_enlarge_a_scaled_product(columns: int) -> None:
    source = model(
        f"""(float[5, 3, 96] x, float[2, 3, {65 - columns}] a) => (float y) {{
             y = Scan<num_scan_inputs = 1, body = step (float[] row) => (float[] sum) {{
               q, s, z = DynamicQuantizeLinear(row)
               i = MatMulInteger(q, w, z)
               f = Cast<to = 1>(i)
               m = Mul(f, s)
               sum = Add(m, a)
             }}> (x)
           }}""",
        w=RNG.integers(0, 256, (96, columns), np.uint8),
    )
    rep, plain = onnx_torch.prepare(source), onnx_torch.prepare(source, optimize=False)
    for _ in range(4):
        inputs = [floats(5, 3, 96), floats(2, 3, 65 - columns)]
        found, expected = rep.run(inputs)[0], plain.run(inputs)[0]
        assert found.shape == (5, 2, 3, 64)
        np.testing.assert_allclose(found, expected, rtol=1e-6, atol=1e-6 * np.abs(expected).max())


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
    assert_close(onnx_torch.prepare(source).run([x])[0], by_onnxruntime(source, [x])[0])
    for special in (np.nan, np.inf, -np.inf):
        x[3, 5] = special
        check_exact(source, x)
