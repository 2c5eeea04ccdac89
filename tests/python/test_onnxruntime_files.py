"""Files that onnxruntime and its tools write of a model run here as they do there (docs/migrating.md)."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import numpy_helper, parser

pytest.importorskip("onnxruntime")

import onnxruntime
from onnxruntime import quantization
from onnxruntime.quantization.matmul_bnb4_quantizer import MatMulBnb4Quantizer
from onnxruntime.quantization.matmul_nbits_quantizer import DefaultWeightOnlyQuantConfig, MatMulNBitsQuantizer

import onnx_torch
from quantized_models import onnxruntime_saturates

LEVELS = onnxruntime.GraphOptimizationLevel

IMAGES = """<ir_version: 10, opset_import: ["": 21]> net (float[n, 16, 8, 8] x) => (float[n, 8] y) {
    a = Conv<kernel_shape = [3, 3], pads = [1, 1, 1, 1]>(x, filters, bias)   b = Relu(a)
    c = Conv<kernel_shape = [3, 3], pads = [1, 1, 1, 1]>(b, filters, bias)   d = Add(b, c)
    e = MaxPool<kernel_shape = [2, 2], strides = [2, 2]>(d)   f = GlobalAveragePool(e)   g = Flatten(f)
    y = Gemm(g, classes, shift)
}"""
TEXT = """<ir_version: 10, opset_import: ["": 21]> net (int64[n, 5] ids) => (float[n, 5, 32] y)
    <float two = {2}, float one = {1}, float half = {0.5}> {
    x = Gather(words, ids)   m = MatMul(x, square)   a = Add(m, row)
    b = Div(a, root)   c = Erf(b)   d = Add(c, one)   e = Mul(a, d)   f = Mul(e, half)
    g = MatMul(f, square)   h = Add(g, row)   i = Add(h, x)   y = LayerNormalization<axis = -1>(i, row, row)
}"""
RECURRENT = """<ir_version: 10, opset_import: ["": 21]> net (float[3, n, 32] x) => (float[3, 1, n, 8] y) {
    y = LSTM<hidden_size = 8>(x, gates, states)
}"""
NUMBERS = np.random.default_rng(0)
WEIGHTS = {
    name: (NUMBERS.standard_normal(shape) * scale).astype(np.float32)
    for name, shape, scale in [
        ("filters", (16, 16, 3, 3), 0.1),
        ("bias", (16,), 1),
        ("classes", (16, 8), 0.5),
        ("shift", (8,), 1),
        ("words", (40, 32), 1),
        ("square", (32, 32), 0.2),
        ("row", (32,), 1),
        ("gates", (1, 32, 32), 0.3),
        ("states", (1, 32, 8), 0.3),
    ]
} | {"root": np.float32(np.sqrt(2))}
FEEDS: dict[str, dict[str, Any]] = {
    IMAGES: {"x": NUMBERS.standard_normal((2, 16, 8, 8)).astype(np.float32)},
    TEXT: {"ids": NUMBERS.integers(0, 40, (2, 5))},
    RECURRENT: {"x": NUMBERS.standard_normal((3, 2, 32)).astype(np.float32)},
}


class Calibration(quantization.CalibrationDataReader):
    def __init__(self, feeds: dict[str, Any]):
        self.left = iter([feeds])

    def get_next(self) -> dict[str, Any] | None:
        return next(self.left, None)


Writer = Callable[[str, Path, Path], None]  # from the text of a model, its file, to another file


def optimized(level: Any) -> Writer:
    def write(text: str, source: Path, path: Path) -> None:
        options = onnxruntime.SessionOptions()
        options.graph_optimization_level = level
        options.optimized_model_filepath = str(path)
        options.log_severity_level = 4
        onnxruntime.InferenceSession(source, options, ["CPUExecutionProvider"])

    return write


def static(form: Any) -> Writer:
    def write(text: str, source: Path, path: Path) -> None:
        unsigned = quantization.QuantType.QUInt8
        quantization.quantize_static(
            source, path, Calibration(FEEDS[text]), quant_format=form, activation_type=unsigned
        )

    return write


def dynamic(text: str, source: Path, path: Path) -> None:
    quantization.quantize_dynamic(source, path, reduce_range=onnxruntime_saturates())


def few_bits(bits: int) -> Writer:
    def write(text: str, source: Path, path: Path) -> None:
        axes = (("MatMul", 0), ("Gather", 1))
        config = DefaultWeightOnlyQuantConfig(
            block_size=32, bits=bits, op_types_to_quantize=("MatMul", "Gather")[: 1 + (bits == 4)], quant_axes=axes
        )
        quantizer = MatMulNBitsQuantizer(onnx.load(source), algo_config=config)
        quantizer.process()
        quantizer.model.save_model_to_file(str(path))

    return write


def normal_floats(text: str, source: Path, path: Path) -> None:
    quantizer = MatMulBnb4Quantizer(onnx.load(source), quant_type=MatMulBnb4Quantizer.NF4, block_size=32)
    quantizer.process()
    quantizer.model.save_model_to_file(str(path))


def fused(text: str, source: Path, path: Path) -> None:
    optimizer = pytest.importorskip("onnxruntime.transformers.optimizer")
    optimizer.optimize_model(str(source), "bert", opt_level=0).save_model_to_file(str(path))


def then_optimized(write: Writer) -> Writer:
    def both(text: str, source: Path, path: Path) -> None:
        between = path.with_name("between.onnx")
        write(text, source, between)
        optimized(LEVELS.ORT_ENABLE_ALL)(text, between, path)

    return both


FILES: list[tuple[str, str, Writer, str]] = [
    ("images, extended", IMAGES, optimized(LEVELS.ORT_ENABLE_EXTENDED), "com.microsoft.FusedConv"),
    ("images, all", IMAGES, optimized(LEVELS.ORT_ENABLE_ALL), "com.microsoft.nchwc.Conv"),
    ("text, extended", TEXT, optimized(LEVELS.ORT_ENABLE_EXTENDED), "com.microsoft.BiasGelu"),
    ("images, operators of 8 bits", IMAGES, static(quantization.QuantFormat.QOperator), "com.microsoft.QLinearAdd"),
    ("images, QDQ", IMAGES, then_optimized(static(quantization.QuantFormat.QDQ)), "com.microsoft.QLinearConv"),
    ("text, 8 bits", TEXT, then_optimized(dynamic), "com.microsoft.DynamicQuantizeMatMul"),
    ("recurrent, 8 bits", RECURRENT, dynamic, "com.microsoft.DynamicQuantizeLSTM"),
    ("text, 4 bits", TEXT, few_bits(4), "com.microsoft.GatherBlockQuantized"),
    ("text, blocks of 8 bits", TEXT, few_bits(8), "com.microsoft.MatMulNBits"),
    ("text, normal floats", TEXT, normal_floats, "com.microsoft.MatMulBnb4"),
    ("text, transformers", TEXT, fused, "com.microsoft.SkipLayerNormalization"),
]


@pytest.fixture
def model(text: str, tmp_path: Path) -> Path:
    parsed = parser.parse_model(text)
    used = {name for node in parsed.graph.node for name in node.input}
    parsed.graph.initializer.extend(numpy_helper.from_array(w, name) for name, w in WEIGHTS.items() if name in used)
    onnx.save(parsed, tmp_path / "model.onnx")
    return tmp_path / "model.onnx"


@pytest.mark.parametrize("text, write, op", [pytest.param(*row[1:], id=row[0]) for row in FILES])
def test_a_file_gives_what_onnxruntime_gives(text: str, write: Writer, op: str, model: Path, tmp_path: Path) -> None:
    path = tmp_path / "written.onnx"
    write(text, model, path)
    assert op in onnx_torch.info(path).operators
    options = onnxruntime.SessionOptions()
    options.graph_optimization_level = LEVELS.ORT_DISABLE_ALL
    options.intra_op_num_threads = 1  # its dynamic LSTM gives the parts of a batch that threads take other ranges
    session = onnxruntime.InferenceSession(path, options, ["CPUExecutionProvider"])
    for result, expected in zip(onnx_torch.prepare(path).run(FEEDS[text]), session.run(None, FEEDS[text]), strict=True):
        np.testing.assert_allclose(result, expected, rtol=1e-4, atol=1e-5)


def calls(source: Any) -> Counter[str]:
    """Counts what a model's graph calls, but for constants and lists."""
    return Counter(re.findall(r"= ((?:aten|onnx_torch)::\w+)\(", onnx_torch.prepare(source, shapes={"n": 2}).graph()))


SAME = [row for row in FILES if row[0] in ("images, extended", "images, all", "text, extended", "text, transformers")]


@pytest.mark.parametrize("text, write, op", [pytest.param(*row[1:], id=row[0]) for row in SAME])
def test_an_optimized_file_becomes_what_its_source_does(
    text: str, write: Writer, op: str, model: Path, tmp_path: Path
) -> None:
    write(text, model, tmp_path / "written.onnx")
    assert calls(tmp_path / "written.onnx") == calls(model)


HEAD = '<ir_version: 10, opset_import: ["": 21, "com.microsoft": 1]> net '
TWO_ATTENTIONS = """(float[n, 5, 8] x, int32[n] lengths) => (y) {
    a = com.microsoft.Attention<num_heads = 2>(x, w, b, lengths)
    y = com.microsoft.Attention<num_heads = 2>(a, w, b, lengths)
}"""
SILU = """(float[n, 8] x) => (y) { a = MatMul(x, w)   y = com.microsoft.QuickGelu<alpha = 1.0>(a) }"""


@pytest.mark.parametrize("text, expected", [(TWO_ATTENTIONS, {"packed": 2, "attention": 2}), (SILU, {"packed": 1})])
def test_a_fused_operator_becomes_packed_operators(text: str, expected: dict[str, int]) -> None:
    parsed = parser.parse_model(HEAD + text)
    numbers = np.random.default_rng(1)
    for name, shape in (("w", (8, 24)), ("b", (24,))):
        weight = numbers.standard_normal(shape).astype(np.float32)
        parsed.graph.initializer.append(numpy_helper.from_array(weight, name))
    assert "prim::If" not in onnx_torch.prepare(parsed, shapes={"n": 2}).graph()
    found = calls(parsed)
    assert {name: found[f"onnx_torch::{name}"] for name in expected} == expected
    assert found["onnx_torch::chain"] <= 1  # of the mask, for both


@pytest.mark.parametrize("text", [IMAGES])
def test_the_format_of_onnxruntime_is_refused(text: str, model: Path, tmp_path: Path) -> None:
    optimized(LEVELS.ORT_ENABLE_BASIC)(text, model, tmp_path / "model.ort")
    with pytest.raises(onnx_torch.InvalidModelError, match="is not an ONNX model"):
        onnx_torch.prepare(tmp_path / "model.ort")
