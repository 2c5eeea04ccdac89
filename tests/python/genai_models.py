"""Small decoders of transformers with random weights, as onnxruntime-genai's builder writes them."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np
import onnx
import tokenizers
import torch
import transformers
from onnx import TensorProto, numpy_helper

WORDS = ["<pad>", "<unk>", "<s>", "</s>", *(f"word{number}" for number in range(124))]
SIZES = {
    "vocab_size": len(WORDS),
    "hidden_size": 64,
    "intermediate_size": 96,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "head_dim": 16,
    "max_position_embeddings": 64,
    "pad_token_id": 0,
    "bos_token_id": 2,
    "eos_token_id": 3,
}
WINDOW, SMALL_CACHE, CACHE = 6, 8, 24
SLIDING = {"sliding_window": WINDOW, "query_pre_attn_scalar": 16}
PARTLY_ROTATED = {"num_key_value_heads": 4, "partial_rotary_factor": 0.5, "hidden_size": 128, "head_dim": 32}
EXPERTS = {"num_local_experts": 4, "num_experts_per_tok": 2, "sliding_window": WINDOW, "intermediate_size": 64}
DECODERS: dict[str, dict[str, Any]] = {
    "Llama": {},
    "Mistral": {"sliding_window": WINDOW},
    "Qwen2": {},
    "Qwen3": {},
    "Gemma": {},
    "Gemma2": SLIDING,
    "Olmo": {"clip_qkv": None},
    "Granite": {"embedding_multiplier": 2.0, "residual_multiplier": 0.5, "logits_scaling": 3.0},
    "Ernie4_5": {},
    "SmolLM3": {},
    "Phi": PARTLY_ROTATED,
    "Phi3": {"original_max_position_embeddings": 64, "sliding_window": None},
    "Nemotron": PARTLY_ROTATED,
    "GptOss": EXPERTS,
    "Lfm2": {"layer_types": ["conv", "full_attention"], "block_ff_dim": 96},
    "HunYuanDenseV1": {},
}
HALVES = (TensorProto.FLOAT16, TensorProto.BFLOAT16)
DTYPES = {
    TensorProto.FLOAT: np.dtype(np.float32),
    TensorProto.FLOAT16: np.dtype(np.float16),
    TensorProto.BFLOAT16: np.dtype(ml_dtypes.bfloat16),
}


def save(folder: Path, name: str) -> None:
    """Saves a model with a tokenizer, as Hugging Face's hub has them."""
    torch.manual_seed(0)
    kind = f"{name}ForCausalLM"
    config = getattr(transformers, f"{name}Config")(**{**SIZES, **DECODERS[name]}, architectures=[kind])
    model = getattr(transformers, kind)(config)
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.add_(torch.randn_like(parameter) * 0.1)
    model.save_pretrained(folder)
    numbers = {word: number for number, word in enumerate(WORDS)}
    words = tokenizers.Tokenizer(tokenizers.models.WordLevel(numbers, unk_token="<unk>"))
    words.pre_tokenizer = tokenizers.pre_tokenizers.Whitespace()
    special = {"pad_token": "<pad>", "unk_token": "<unk>", "bos_token": "<s>", "eos_token": "</s>"}
    transformers.PreTrainedTokenizerFast(tokenizer_object=words, **special).save_pretrained(folder)


def build(folder: Path, name: str, precision: str, *options: str, provider: str = "cpu") -> Path:
    """Gives the file that the builder writes with its options, which are KEY=VALUE."""
    from onnxruntime_genai.models import builder

    saved, target = folder / name, folder / "-".join([name, precision, provider, *options])
    if not saved.exists():
        save(saved, name)
    if not target.exists():
        places = ["", str(saved), str(target), precision, provider, str(folder / "cache")]
        builder.create_model(*places, **builder.parse_extra_options(*places, list(options)))
    return target / "model.onnx"


def windowed_caches(model: onnx.ModelProto) -> set[str]:
    """Names the pasts of caches that drop what has left the window; they need room for the window from the start."""
    nodes = [node for node in model.graph.node if any(a.name == "sliding_window_cache" for a in node.attribute)]
    return {name for node in nodes for name in node.input[3:5]}


def has_norms_in_attention(model: onnx.ModelProto) -> bool:
    """Tells whether GroupQueryAttention normalizes queries and keys, for which onnxruntime has no kernel on the CPU."""
    return any(node.op_type == "GroupQueryAttention" and any(node.input[14:]) for node in model.graph.node)


def first_past(model: onnx.ModelProto, name: str, batch: int, rows: int) -> dict[str, np.ndarray]:
    """Makes an empty past, in caches that have room for so many rows."""
    windowed = windowed_caches(model)
    past = {}
    for info in model.graph.input:
        if info.name.startswith("past"):
            room = min(rows, SMALL_CACHE) if info.name in windowed else rows
            open_sizes = {"batch_size": batch, "kv_cache_dim": {**SIZES, **DECODERS[name]}["head_dim"]}
            sizes = [d.dim_value or open_sizes.get(d.dim_param, room) for d in info.type.tensor_type.shape.dim]
            past[info.name] = np.zeros(sizes, DTYPES[info.type.tensor_type.elem_type])
    return past


def next_past(model: onnx.ModelProto, outputs: list[np.ndarray]) -> dict[str, np.ndarray]:
    """Gives the presents of a step as the past that the next one takes."""
    given = {info.name: x for info, x in zip(model.graph.output, outputs, strict=True)}
    inputs = [info.name for info in model.graph.input if info.name.startswith("past")]
    return {name: given[name.replace("past_key_values", "present").replace("past", "present")] for name in inputs}


def feeds(model: onnx.ModelProto, ids: np.ndarray, total: int, past: dict[str, np.ndarray]) -> dict[str, np.ndarray]:
    given = {
        "input_ids": ids,
        "attention_mask": np.ones((len(ids), total), np.int64),
        "position_ids": np.tile(np.arange(total - ids.shape[1], total), (len(ids), 1)),
        **past,
    }
    return {info.name: given[info.name] for info in model.graph.input}


def in_float(model: onnx.ModelProto) -> onnx.ModelProto:
    """Gives the model with float in place of float16 and bfloat16, of which onnxruntime lacks kernels."""
    wide = onnx.ModelProto.FromString(model.SerializeToString())
    tensors = list(wide.graph.initializer)
    for node in wide.graph.node:
        for attribute in node.attribute:
            if attribute.name in ("to", "dtype") and attribute.i in HALVES:
                attribute.i = TensorProto.FLOAT
            tensors += [attribute.t] if attribute.HasField("t") else []
    for tensor in tensors:
        if tensor.data_type in HALVES:
            tensor.CopyFrom(numpy_helper.from_array(numpy_helper.to_array(tensor).astype(np.float32), tensor.name))
    for info in [*wide.graph.input, *wide.graph.output, *wide.graph.value_info]:
        if info.type.tensor_type.elem_type in HALVES:
            info.type.tensor_type.elem_type = TensorProto.FLOAT
    return wide
