"""Files as onnxruntime and its tools write them of other models, which are measured beside them."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from pathlib import Path

import onnx

from . import transformers, vision
from .case import Case, Feeds, Network, model_file, read_inputs
from .export import exported, quiet
from .quantized import operators_of_8_bits
from .transformers import LENGTH, VOCABULARY, Decoder, encoder, masked_tokens, tokens

GROUP = "optimized files"
BLOCK = 32  # elements that share a scale of few bits


def bert() -> Network:
    """Makes a BERT with the attention that onnxruntime's optimizer knows."""
    from transformers import BertConfig, BertModel

    config = BertConfig(vocab_size=VOCABULARY, attn_implementation="eager")
    return encoder(BertModel(config, add_pooling_layer=False), [masked_tokens(1, LENGTH)])


def llama_decode() -> Network:
    import torch
    from transformers import LlamaConfig, LlamaForCausalLM

    sizes = dict(hidden_size=1024, intermediate_size=2816, num_hidden_layers=4, num_attention_heads=16)
    config = LlamaConfig(vocab_size=VOCABULARY, num_key_value_heads=4, **sizes)
    past = {f"past_{kind}_{layer}": torch.randn(1, 4, LENGTH, 64) for layer in range(4) for kind in ("key", "value")}
    dynamic = {name: {2: "past_length"} for name in past}
    return Network(Decoder(LlamaForCausalLM(config)), [tokens(1, 1) | past], dynamic)


def level(name: str, source: Path, file: Path, feeds: list[Feeds]) -> None:
    """Writes the model as a session saves it, optimized to a level."""
    import onnxruntime

    options = onnxruntime.SessionOptions()
    options.graph_optimization_level = getattr(onnxruntime.GraphOptimizationLevel, name)
    options.optimized_model_filepath = str(file)
    options.log_severity_level = 3
    onnxruntime.InferenceSession(source, options, ["CPUExecutionProvider"])


def fused(kind: str, heads: int, width: int, source: Path, file: Path, feeds: list[Feeds]) -> None:
    """Writes the model as the optimizer for transformers makes it."""
    from onnxruntime.transformers.optimizer import optimize_model

    with quiet():
        optimize_model(str(source), kind, heads, width, opt_level=0).save_model_to_file(str(file))


def few_bits(bits: int, source: Path, file: Path, feeds: list[Feeds]) -> None:
    """Writes the model with constant weights in blocks of few bits; what products add up in is left to the kernel."""
    from onnxruntime.quantization.matmul_nbits_quantizer import DefaultWeightOnlyQuantConfig, MatMulNBitsQuantizer

    config = DefaultWeightOnlyQuantConfig(block_size=BLOCK, is_symmetric=True, bits=bits)
    with quiet():
        quantizer = MatMulNBitsQuantizer(onnx.load(source), algo_config=config)
        quantizer.process()
        quantizer.model.save_model_to_file(str(file))


def write_rewritten(source: Case, rewrite: Callable[[Path, Path, list[Feeds]], None], file: Path) -> list[Feeds]:
    feeds = read_inputs(file.parent, source.name)
    rewrite(model_file(file.parent, source.name), file, feeds)
    return feeds


def rewritten(name: str, source: Case, rewrite: Callable[..., None], tolerance: float) -> Case:
    return Case(name, GROUP, partial(write_rewritten, source, rewrite), tolerance=tolerance, source=source)


SOURCES = {case.name: case for case in (*transformers.CASES, *vision.CASES)} | {
    "bert_eager": exported("bert_eager", GROUP, bert, "torchscript"),
    "llama_decode": exported("llama_decode", GROUP, llama_decode),
}
LEVEL_2, LEVEL_3 = partial(level, "ORT_ENABLE_EXTENDED"), partial(level, "ORT_ENABLE_ALL")

CASES = [
    rewritten(name, SOURCES[source], rewrite, tolerance)
    for name, source, rewrite, tolerance in (
        ("bert_level2", "bert", LEVEL_2, 1e-3),
        ("bert_fused", "bert_eager", partial(fused, "bert", 12, 768), 1e-3),
        ("gpt2_level2", "gpt2_prefill", LEVEL_2, 1e-3),
        ("gpt2_fused", "gpt2_prefill_torchscript", partial(fused, "gpt2", 12, 768), 1e-3),
        ("vit_level2", "vit_b_16", LEVEL_2, 1e-3),
        ("vit_fused", "vit_b_16", partial(fused, "vit", 12, 768), 1e-3),
        ("llama_level2", "llama", LEVEL_2, 1e-3),
        ("llama_fused", "llama", partial(fused, "gpt2", 16, 1024), 1e-3),
        ("resnet50_level2", "resnet50", LEVEL_2, 1e-3),
        ("resnet50_level3", "resnet50", LEVEL_3, 1e-3),
        ("mobilenet_v3_large_level3", "mobilenet_v3_large", LEVEL_3, 1e-3),
        ("resnet50_operators_of_8_bits", "resnet50", operators_of_8_bits, 0.1),
        ("llama_decode_4_bits", "llama_decode", partial(few_bits, 4), 1e-3),
        ("llama_decode_8_bits", "llama_decode", partial(few_bits, 8), 1e-3),
    )
]
