"""Whole files with onnxruntime's operators, as its optimizers, its quantizers and onnxruntime-genai write them."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest

pytest.importorskip("onnxruntime")
pytest.importorskip("transformers")

import onnxruntime as ort
from onnxruntime import quantization
from onnxruntime.quantization import QuantFormat, QuantType, matmul_bnb4_quantizer, matmul_nbits_quantizer
from onnxruntime.transformers import optimizer

import genai_models as genai
import onnx_torch
from contrib_models import MODELS, export, feeds
from quantized_models import onnxruntime_saturates

pytestmark = pytest.mark.filterwarnings("ignore:::torch", "ignore:::transformers")  # of the exporter

LEVEL = ort.GraphOptimizationLevel
TRANSFORMERS = [name for name in MODELS if name not in ("cnn", "lstm", "unet")]
INT8, UINT8, INT16 = QuantType.QInt8, QuantType.QUInt8, QuantType.QInt16


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("models")


def session(model: Path | bytes, level: Any = LEVEL.ORT_DISABLE_ALL, written: Path | None = None) -> Any:
    options = ort.SessionOptions()
    options.graph_optimization_level, options.log_severity_level = level, 4
    options.intra_op_num_threads = 1  # with more of them, DynamicQuantizeLSTM rounds in other ways
    if written:
        options.optimized_model_filepath = str(written)
    return ort.InferenceSession(str(model) if isinstance(model, Path) else model, options)


def operators(path: Path) -> set[str]:
    return {node.op_type for node in onnx.load(path).graph.node if node.domain not in ("", "ai.onnx")}


def assert_near(ours: Any, theirs: Any, share: float) -> None:
    """Checks that elements differ by no more than a share of the largest one."""
    for one, other in zip(ours, theirs, strict=True):
        assert one.shape == other.shape
        wide = other.astype(np.float32)
        np.testing.assert_allclose(one.astype(np.float32), wide, rtol=0, atol=share * np.abs(wide).max(initial=1e-9))


def assert_runs_alike(rep: Any, plain: Any, given: dict[str, np.ndarray]) -> list[np.ndarray]:
    """Gives the outputs, which must have the same bits with plans and without."""
    outputs = list(plain.run(given))
    for _ in range(4):
        for one, other in zip(rep.run(given), outputs, strict=True):
            assert one.tobytes() == other.tobytes()
    return outputs


def check(path: Path, given: dict[str, np.ndarray], expected: Any = None, share: float = 1e-5) -> None:
    """Checks that a file gives, as it is written, what onnxruntime gives for it, or what is expected."""
    expected = session(path).run(None, given) if expected is None else expected
    rep, plain = onnx_torch.prepare(path), onnx_torch.prepare(path, plans=0)
    assert_near(assert_runs_alike(rep, plain, given), expected, share)
    assert_near(onnx_torch.prepare(path, optimize=False).run(given), expected, share)


@pytest.mark.parametrize("level", ["BASIC", "EXTENDED", "ALL"])
@pytest.mark.parametrize("name", MODELS)
def test_files_of_sessions(folder, name, level):
    """ORT_ENABLE_ALL has a session write operators of its layouts, for this CPU."""
    path = folder / f"{name}-{level}.onnx"
    expected = session(export(folder, name), getattr(LEVEL, f"ORT_ENABLE_{level}"), path).run(None, feeds(name))
    check(path, feeds(name), expected)


def fused(folder: Path, name: str, mha: bool = False, half: bool = False) -> Path:
    options = optimizer.FusionOptions(MODELS[name][2])
    options.use_multi_head_attention = mha
    path, target = str(export(folder, name)), folder / f"{name}-fused-{mha}-{half}.onnx"
    kind = MODELS[name][2]
    found = optimizer.optimize_model(
        path, kind, num_heads=4, hidden_size=32, optimization_options=options, opt_level=0
    )  # fmt: skip
    if half:
        found.convert_float_to_float16(keep_io_types=True)
    found.save_model_to_file(str(target))
    assert operators(target)
    return target


@pytest.mark.parametrize("name", TRANSFORMERS)
def test_files_of_the_transformers_optimizer(folder, name):
    check(fused(folder, name), feeds(name))


@pytest.mark.parametrize("name", TRANSFORMERS)
def test_files_of_the_transformers_optimizer_in_float16(folder, name):
    check(fused(folder, name, half=True), feeds(name), share=3e-3)


def test_attention_that_is_fused_without_its_products(folder):
    path = fused(folder, "bert", mha=True)
    assert "MultiHeadAttention" in operators(path)
    check(path, feeds("bert"))


def test_convolutions_that_are_fused_with_their_channels_last(folder):
    """onnxruntime has no kernels for these on the CPU, so the file that was not fused says what they give."""
    path = fused(folder, "unet")
    assert {"NhwcConv", "GroupNorm"} <= operators(path)
    check(path, feeds("unet"), session(folder / "unet.onnx").run(None, feeds("unet")))


class Rows(quantization.CalibrationDataReader):
    def __init__(self, given: dict[str, np.ndarray]) -> None:
        self.rows = iter([given])

    def get_next(self) -> dict[str, np.ndarray] | None:
        return next(self.rows, None)


STATIC = [
    (name, form, per_channel, *types)
    for name, all_types in (
        ("bert", [(UINT8, INT8)]),
        ("cnn", [(INT8, INT8), (UINT8, INT8), (UINT8, UINT8)]),
        ("lstm", [(INT8, INT8), (UINT8, INT8), (UINT8, UINT8)]),
    )
    for types in all_types
    for form in QuantFormat
    for per_channel in (False, True)
]


@pytest.mark.parametrize("name, form, per_channel, activations, weights", STATIC, ids=str)
def test_static_quantization(folder, name, form, per_channel, activations, weights):
    path = folder / "static.onnx"
    quantization.quantize_static(
        export(folder, name), path, Rows(feeds(name)), quant_format=form, per_channel=per_channel,
        activation_type=activations, weight_type=weights, reduce_range=onnxruntime_saturates(),
    )  # fmt: skip
    check(path, feeds(name))


@pytest.mark.parametrize("name", ["bert", "cnn", "lstm"])
def test_static_quantization_to_16_bits(folder, name):
    path = folder / "static16.onnx"
    quantization.quantize_static(
        export(folder, name), path, Rows(feeds(name)), activation_type=INT16, weight_type=INT8
    )  # fmt: skip
    check(path, feeds(name), share=1e-4)  # a step of 16 bits


@pytest.mark.parametrize("weights", [INT8, UINT8], ids=str)
@pytest.mark.parametrize("per_channel", [False, True])
@pytest.mark.parametrize("name", ["bert", "cnn", "lstm"])
def test_dynamic_quantization(folder, name, per_channel, weights):
    path = folder / "dynamic.onnx"
    quantization.quantize_dynamic(
        export(folder, name), path, per_channel=per_channel, weight_type=weights, reduce_range=onnxruntime_saturates()
    )
    check(path, feeds(name))


@pytest.mark.parametrize("is_symmetric", [True, False])
@pytest.mark.parametrize("bits", [2, 4, 8])
@pytest.mark.parametrize("name", ["bert", "lstm"])
def test_weights_of_few_bits(folder, name, bits, is_symmetric):
    config = matmul_nbits_quantizer.DefaultWeightOnlyQuantConfig(
        block_size=16, is_symmetric=is_symmetric, bits=bits, op_types_to_quantize=("MatMul", "Gather")
    )
    quantizer = matmul_nbits_quantizer.MatMulNBitsQuantizer(onnx.load(export(folder, name)), algo_config=config)
    quantizer.process()
    path = folder / "nbits.onnx"
    quantizer.model.save_model_to_file(str(path))
    assert "MatMulNBits" in operators(path)
    check(path, feeds(name))


@pytest.mark.parametrize("kind", [0, 1], ids=["FP4", "NF4"])
@pytest.mark.parametrize("name", ["bert", "lstm"])
def test_weights_of_bitsandbytes(folder, name, kind):
    quantizer = matmul_bnb4_quantizer.MatMulBnb4Quantizer(onnx.load(export(folder, name)), kind, block_size=32)
    quantizer.process()
    path = folder / "bnb4.onnx"
    quantizer.model.save_model_to_file(str(path))
    assert operators(path) == {"MatMulBnb4"}
    check(path, feeds(name))


# --- Decoders of onnxruntime-genai, where it is installed ---

# These are compared with what onnxruntime gives in float for the same file; so those of 16 bits are apart by their
# rounding. At the builder's own accuracy_level onnxruntime rounds what weights of few bits are multiplied with.
FLOAT_INPUTS = "accuracy_level=1"
FILES: dict[str, tuple[str, str, list[str], float]] = {
    "fp32": ("cpu", "fp32", [], 1e-5),
    "fp16": ("cpu", "fp16", [], 4e-3),
    "bf16": ("cpu", "bf16", [], 4e-2),
    "int8": ("cpu", "int8", [FLOAT_INPUTS], 1e-5),
    "int4": ("cpu", "int4", [FLOAT_INPUTS], 1e-5),
    "int4 of rounded inputs": ("cpu", "int4", [], 6e-2),
    "fp16 for CUDA": ("cuda", "fp16", [], 4e-3),
    "int4 for DirectML": ("dml", "int4", [], 4e-3),
}


@pytest.mark.parametrize("file", FILES)
@pytest.mark.parametrize("name", genai.DECODERS)
def test_decoder(folder, name, file):
    """A prompt, and steps behind it whose past is what the step before gave, are as in onnxruntime."""
    pytest.importorskip("onnxruntime_genai")
    provider, kind, options, share = FILES[file]
    if name == "GptOss" and kind.startswith("int"):
        pytest.skip("the builder quantizes its experts from a checkpoint of MXFP4 only")
    if (name, kind) == ("GptOss", "bf16"):
        pytest.skip("a token that is rounded to bfloat16 goes to other experts")
    path = genai.build(folder, name, kind, *options, provider=provider)
    model = onnx.load(path)
    if genai.has_norms_in_attention(model):
        theirs, share = session(genai.build(folder, name, "fp32")), 1e-2
    else:
        theirs = session(genai.in_float(model).SerializeToString())
    rep, plain = onnx_torch.prepare(path), onnx_torch.prepare(path, plans=0)
    direct = onnx_torch.prepare(path, optimize=False)
    # The other files take several tokens only where there is no past.
    has_buffers = any(node.op_type == "GroupQueryAttention" for node in model.graph.node)
    growing = [] if genai.windowed_caches(model) else [(2, 9, 0), (1, 1, 0)]
    rng = np.random.default_rng(0)
    for batch, prompt, room in [*growing, *([(1, 7, genai.CACHE), (2, 4, genai.CACHE)] if has_buffers else [])]:
        past, total = genai.first_past(model, name, batch, room), 0
        for count in (prompt, 1, 1, 3 if batch == 1 and has_buffers else 1, 1):
            total += count
            given = genai.feeds(model, rng.integers(4, len(genai.WORDS), (batch, count)), total, past)
            ours = assert_runs_alike(rep, plain, given)
            wide = {key: x if x.dtype == np.int64 else x.astype(np.float32) for key, x in given.items()}
            expected = theirs.run(["logits"], wide)
            assert_near(ours[:1], expected, share)
            assert_near(direct.run(given)[:1], expected, share)
            past = genai.next_past(model, ours)


@pytest.mark.parametrize("room", [0, genai.CACHE])
def test_decoder_with_a_shorter_sequence_in_its_batch(folder, room):
    """The shorter sequence has its padding behind it, where later tokens take its place."""
    pytest.importorskip("onnxruntime_genai")
    path = genai.build(folder, "Llama", "fp32")
    model = onnx.load(path)
    theirs, rep, plain = session(path), onnx_torch.prepare(path), onnx_torch.prepare(path, plans=0)
    past, mask = genai.first_past(model, "Llama", 2, room), np.array([[1] * 7, [1] * 5 + [0] * 2])
    rng = np.random.default_rng(0)
    for count in (7, 1, 1):
        ids = rng.integers(4, len(genai.WORDS), (2, count))
        given = genai.feeds(model, ids, mask.shape[1], past) | {"attention_mask": mask}
        ours, expected = assert_runs_alike(rep, plain, given), theirs.run(None, given)
        is_text = mask[:, -count:, None] != 0
        assert_near([np.where(is_text, ours[0], 0)], [np.where(is_text, expected[0], 0)], 1e-5)
        past, mask = genai.next_past(model, ours), np.pad(mask, [(0, 0), (0, 1)], constant_values=1)
