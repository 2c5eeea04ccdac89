"""The option `precision`: what is computed in another type, and how far results are from those in float32."""

from __future__ import annotations

import re
from pathlib import Path

import numpy as np
import onnx
import pytest
import torch
from onnx import numpy_helper, parser

import onnx_torch
from models import on_each_cpu, run_apart
from onnx_torch import _C
from pass_models import assert_close
from random_numbers import RNG

# The relative error of rounding to each type.
ROUNDING = {"bfloat16": 2**-9, "float16": 2**-12}
# The operator that rounds to bfloat16: a cast, or one whose result is float32, where products are in float32.
ROUND = "aten::to" if _C.cpu_features()["bfloat16_products"] else "onnx_torch::rounded"


def model(text: str, **weights: tuple[int, ...]) -> onnx.ModelProto:
    parsed = parser.parse_model(f'<ir_version: 10, opset_import: ["": 23]> net {text}')
    for name, sizes in weights.items():
        parsed.graph.initializer.append(numpy_helper.from_array(floats(*sizes), name))
    return parsed


def floats(*sizes: int) -> np.ndarray:
    return RNG.standard_normal(sizes, np.float32)


def rounded(x: np.ndarray, precision: str) -> np.ndarray:
    """Rounds the array to the type, in float64."""
    if precision == "float16":
        return x.astype(np.float16).astype(np.float64)
    bits = x.view(np.uint32)
    return ((bits + 0x7FFF + ((bits >> 16) & 1)) & 0xFFFF0000).astype(np.uint32).view(np.float32).astype(np.float64)


MODELS = {
    "Conv": ("(float[2, 6, 9, 9] x) => (float[N, C, H, W] y) { y = Conv(x, w, b) }", {"w": (8, 6, 3, 3), "b": (8,)}),
    "ConvTranspose": (
        "(float[2, 6, 9, 9] x) => (float[N, C, H, W] y) { y = ConvTranspose(x, w) }",
        {"w": (6, 4, 2, 2)},
    ),
    "Gemm": ("(float[5, 6] x) => (float[5, 7] y) { y = Gemm<transB = 1>(x, w, b) }", {"w": (7, 6), "b": (7,)}),
    "MatMul": ("(float[2, 5, 6] x) => (float[2, 5, 7] y) { y = MatMul(x, w) }", {"w": (6, 7)}),
    "MatMul from the left": ("(float[6, 7] x) => (float[5, 7] y) { y = MatMul(w, x) }", {"w": (5, 6)}),
    "open sizes": ("(float[N, 6] x) => (float[N, 7] y) { y = MatMul(x, w) }", {"w": (6, 7)}),
}


@pytest.mark.parametrize("optimize", [True, False])
@pytest.mark.parametrize("precision", ROUNDING)
@pytest.mark.parametrize("name", MODELS)
def test_products_with_weights_are_computed_in_it(name: str, precision: str, optimize: bool):
    text, weights = MODELS[name]
    source = model(text, **weights)
    x = floats(*[dim.dim_value or 4 for dim in source.graph.input[0].type.tensor_type.shape.dim])
    y = onnx_torch.prepare(source, precision=precision, optimize=optimize).run([x])[0]
    assert y.dtype == np.float32
    # The exact model has operands that were rounded before, in float64: the rounding of biases and results is left.
    exact = onnx_torch.prepare(doubled(source, precision)).run([rounded(x, precision)])[0]
    roundings = 32 if name == "ConvTranspose" else 4  # ATen adds what meets in an element in the type itself
    np.testing.assert_allclose(y, exact, rtol=4 * ROUNDING[precision], atol=roundings * ROUNDING[precision])
    unrounded = onnx_torch.prepare(source).run([x])[0]
    assert np.abs(y - unrounded).max() > ROUNDING[precision] / 16


def doubled(source: onnx.ModelProto, precision: str) -> onnx.ModelProto:
    """Gives the model in float64, with weights that are rounded."""
    copy = onnx.ModelProto.FromString(source.SerializeToString())
    for weight in copy.graph.initializer:
        exact = rounded(numpy_helper.to_array(weight), precision)
        weight.CopyFrom(numpy_helper.from_array(exact, weight.name))
    for value in [*copy.graph.input, *copy.graph.output]:
        value.type.tensor_type.elem_type = onnx.TensorProto.DOUBLE
    return copy


def in_doubles(source: onnx.ModelProto) -> onnx.ModelProto:
    """Gives a model that casts to bfloat16 and back in float64, with weights that are rounded."""
    copy = doubled(source, "bfloat16")
    for attribute in (a for node in copy.graph.node if node.op_type == "Cast" for a in node.attribute):
        attribute.i = onnx.TensorProto.DOUBLE
    return copy


def test_all_else_stays_float32():
    source = model("(float[3, 4] a, float[4, 5] b) => (float[3, 5] y) { p = MatMul(a, b) y = Softmax(p) }")
    inputs = [floats(3, 4), floats(4, 5)]
    for precision in ROUNDING:
        y = onnx_torch.prepare(source, precision=precision).run(inputs)[0]
        np.testing.assert_array_equal(y, onnx_torch.prepare(source).run(inputs)[0])
    source = model("(double[3, 4] x) => (double[3, 4] y) { w = Constant<value_floats = [1.0]>() y = Add(x, x) }")
    x = floats(3, 4).astype(np.float64)
    np.testing.assert_array_equal(onnx_torch.prepare(source, precision="bfloat16").run([x])[0], x + x)


def test_it_holds_inside_of_branches_and_loops():
    source = model(
        "(float[4, 4] x, bool b) => (float[4, 4] y) {"
        "  y = If(b)<then_branch = t () => (float[4, 4] p) { p = MatMul(x, w) },"
        "            else_branch = e () => (float[4, 4] q) { q = Identity(x) }> }",
        w=(4, 4),
    )
    x = floats(4, 4)
    rep = onnx_torch.prepare(source, precision="bfloat16")
    weight = numpy_helper.to_array(source.graph.initializer[0])
    expected = rounded(x, "bfloat16") @ rounded(weight, "bfloat16")
    np.testing.assert_allclose(rep.run([x, np.array(True)])[0], expected, rtol=2**-7, atol=1e-6)
    np.testing.assert_array_equal(rep.run([x, np.array(False)])[0], x)


def test_an_input_of_several_products_is_rounded_once():
    source = model(
        "(float[4, 6] x) => (float[4, 5] q, float[4, 5] k) { q = MatMul(x, v) k = MatMul(x, w) }", v=(6, 5), w=(6, 5)
    )
    graph = onnx_torch.prepare(source, precision="bfloat16", optimize=False).graphs()["precision"]
    assert len(re.findall(rf"{ROUND}\(%0\b", graph)) == 1


def test_what_the_cpu_has_no_instructions_for_is_computed_in_float32():
    text, weights = MODELS["Gemm"]
    for precision in ROUNDING:
        has_products = precision == "bfloat16" and _C.cpu_features()["bfloat16_products"]
        graph = onnx_torch.prepare(model(text, **weights), precision=precision, optimize=False).graphs()["precision"]
        assert re.findall(r"= ((?:aten|onnx_torch)::\w+)", graph) == (
            ["aten::to", "aten::addmm", "aten::to"] if has_products else ["onnx_torch::rounded", "aten::addmm"]
        )


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16], ids=str)
def test_rounding_is_that_of_a_cast(dtype: torch.dtype):
    onnx_torch.prepare(model(*MODELS["Gemm"][:1], **MODELS["Gemm"][1]), precision="float16")  # declares the operator
    bits = RNG.integers(0, 1 << 32, (300, 256), np.uint32)
    # The first ones are ties, the smallest number that counts, the largest, infinity and NaN.
    bits[0, :7] = 0x3F808000, 0x3F818000, 0x00008000, 0x00008001, 0x7F7FFFFF, 0xFF800000, 0x7F800001
    x = torch.from_numpy(bits.view(np.float32))
    for given in [x, x.T, x[:, 0].expand(3, 300), x[:0], x.double()]:
        before, y = given.clone(), torch.ops.onnx_torch.rounded(given, dtype)
        assert y.dtype == given.dtype
        torch.testing.assert_close(y, given.to(dtype).to(given.dtype), rtol=0, atol=0, equal_nan=True)
        torch.testing.assert_close(given, before, rtol=0, atol=0, equal_nan=True)


def test_on_the_cpu_the_results_of_packed_products_are_float32_at_once():
    source = model(
        "(float[2, 6, 8, 8] x, float[2, 8, 8, 8] r) => (float[2, 8, 8, 8] y) "
        "{ c = Conv(x, w, b) d = Add(c, r) y = Relu(d) }",
        w=(8, 6, 1, 1),
        b=(8,),
    )
    rep = onnx_torch.prepare(source, precision="bfloat16")
    assert re.findall(r"= ((?:aten|onnx_torch)::\w+)", rep.graph()) == [ROUND, "onnx_torch::packed"]
    x, r = floats(2, 6, 8, 8), floats(2, 8, 8, 8)
    exact = onnx_torch.prepare(doubled(source, "bfloat16")).run([rounded(x, "bfloat16"), r.astype(np.float64)])[0]
    assert_close(rep.run([x, r])[0], exact, ulps=4)
    for other in [r[:, :1], r[:1]]:
        open_sizes = onnx.ModelProto.FromString(source.SerializeToString())
        open_sizes.graph.input[1].type.tensor_type.ClearField("shape")
        rep = onnx_torch.prepare(open_sizes, precision="bfloat16")
        wide = onnx_torch.prepare(doubled(open_sizes, "bfloat16"), optimize=False)
        exact = wide.run([rounded(x, "bfloat16"), other.astype(np.float64)])[0]
        assert_close(rep.run([x, other])[0], exact, ulps=4)


def test_a_result_that_the_next_product_takes_is_given_in_bfloat16():
    source = model(
        "(float[2, 6, 8, 8] x) => (float[2, 4, 8, 8] y, float[2, 4, 8, 8] z) "
        "{ c = Conv(x, v) d = Relu(c) y = Conv(d, w) z = Relu(y) }",
        v=(8, 6, 3, 3),
        w=(4, 8, 1, 1),
    )
    rep = onnx_torch.prepare(source, precision="bfloat16")
    found = re.findall(r"= ((?:aten|onnx_torch)::\w+)", rep.graph())
    assert found.count(ROUND) == (1 if _C.cpu_features()["bfloat16_products"] else 2)
    x = floats(2, 6, 8, 8)
    plain = onnx_torch.prepare(source, precision="bfloat16", optimize=False).run([x])
    for _ in range(4):  # a plan's runs among them
        for result, expected in zip(rep.run([x]), plain, strict=True):
            # Sums in another order may round to the next number of bfloat16 between the two products.
            np.testing.assert_allclose(result, expected, rtol=2**-6, atol=2**-6)


def test_products_of_bfloat16_models_are_packed():
    source = parser.parse_model(
        '<ir_version: 10, opset_import: ["": 23]> net (float[3, 6] x) => (float[3, 4] z) '
        "{ a = Cast<to = 16>(x) v = Cast<to = 16>(w) y = MatMul(a, v) r = Relu(y) z = Cast<to = 1>(r) }"
    )
    source.graph.initializer.append(numpy_helper.from_array(floats(6, 4), "w"))
    rep = onnx_torch.prepare(source)
    assert "onnx_torch::packed" in rep.graph()
    x = floats(3, 6)
    x[1, 2] = np.nan
    weight = numpy_helper.to_array(source.graph.initializer[0])
    exact = np.maximum(rounded(x, "bfloat16") @ rounded(weight, "bfloat16"), 0)
    np.testing.assert_allclose(rep.run([x])[0], exact, rtol=2**-7, atol=1e-6)


@on_each_cpu
def test_models_of_bfloat16_run_on_each_cpu(capability: str, tmp_path: Path):
    """oneDNN is kept below what the CPU has, where it has no products of bfloat16."""
    source = parser.parse_model(
        '<ir_version: 10, opset_import: ["": 23]> net (float[2, 6, 8, 8] x) => (float[2, 8, 4] z) '
        "{ a = Cast<to = 16>(x) k = Cast<to = 16>(f) b = Conv(a, k) r = Relu(b) s = GlobalAveragePool(r) "
        "i = Constant<value_ints = [2, 8, 1]>() t = Reshape(s, i) "
        "v = Cast<to = 16>(w) y = MatMul(t, v) z = Cast<to = 1>(y) }"
    )
    for name, sizes in {"f": (8, 6, 3, 3), "w": (1, 4)}.items():
        source.graph.initializer.append(numpy_helper.from_array(floats(*sizes), name))
    x = floats(2, 6, 8, 8)
    isa = {"AVX512": "AVX512_CORE", "AVX2": "AVX2", "DEFAULT": "SSE41"}[capability]
    [found] = run_apart(source, [x], tmp_path, ATEN_CPU_CAPABILITY=capability.lower(), ONEDNN_MAX_CPU_ISA=isa)
    exact = onnx_torch.prepare(in_doubles(source), optimize=False).run([rounded(x, "bfloat16")])[0]
    assert_close(found, exact)  # each step is computed in float32


def test_what_onednn_has_no_primitive_for_is_computed_by_aten():
    """ATen computes products of bfloat16 that stay as they are, where the CPU has no instructions for them."""
    source = model(
        "(float[2, 6, 8, 8] x) => (float[N, C, H, W] y) "
        "{ a = Cast<to = 16>(x) v = Cast<to = 16>(w) b = Conv(a, v) y = Cast<to = 1>(b) }",
        w=(8, 6, 3, 3),
    )
    x = floats(2, 6, 8, 8)
    found = onnx_torch.prepare(source, disabled_passes=["halves"]).run([x])[0]
    exact = onnx_torch.prepare(in_doubles(source), optimize=False).run([rounded(x, "bfloat16")])[0]
    np.testing.assert_allclose(found, exact, rtol=2**-7, atol=1e-6)


def test_nan_and_infinity_go_through():
    source = model("(float[2, 6, 8, 8] x) => (float[N, C, H, W] y) { c = Conv(x, w) y = Relu(c) }", w=(8, 6, 1, 1))
    x = floats(2, 6, 8, 8)
    x[0, 1, 2:5, 3] = np.nan, np.inf, -np.inf
    ours = onnx_torch.prepare(source, precision="bfloat16").run([x])[0]
    plain = onnx_torch.prepare(source).run([x])[0]
    np.testing.assert_array_equal(np.isnan(ours), np.isnan(plain))
    np.testing.assert_array_equal(np.isinf(ours), np.isinf(plain))


def test_it_is_kept_where_a_model_is_saved_or_pickled(tmp_path):
    rep = onnx_torch.prepare(model(*MODELS["Gemm"][:1], **MODELS["Gemm"][1]), precision="bfloat16")
    x = floats(5, 6)
    rep.save(tmp_path / "saved")
    loaded = onnx_torch.load(tmp_path / "saved")
    assert loaded.options["precision"] == "bfloat16"
    np.testing.assert_array_equal(loaded.run([x])[0], rep.run([x])[0])


def test_another_precision_is_refused():
    with pytest.raises(onnx_torch.InputError, match="precision must be float32, bfloat16 or float16, not int8"):
        onnx_torch.prepare(model(*MODELS["Gemm"][:1], **MODELS["Gemm"][1]), precision="int8")
