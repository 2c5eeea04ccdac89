"""A decoder like Llama's with random weights, as onnxruntime-genai's builder and llama.cpp's files have it."""

from __future__ import annotations

import contextlib
import io
import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import onnx

SIZES = {
    "vocab_size": 32_000,
    "hidden_size": 896,
    "intermediate_size": 4864,
    "num_hidden_layers": 24,
    "num_attention_heads": 14,
    "num_key_value_heads": 2,
    "max_position_embeddings": 4096,
    "rms_norm_eps": 1e-6,
    "pad_token_id": 0,
    "bos_token_id": 1,
    "eos_token_id": 2,
}
HEAD = SIZES["hidden_size"] // SIZES["num_attention_heads"]


@dataclass(frozen=True)
class Weights:
    """What the builder is asked for."""

    title: str
    precision: str
    provider: str = "cpu"
    has_level: bool = True  #: whether products tell the builder's accuracy_level, which is 4


WEIGHTS = {
    "float32": Weights("float32", "fp32"),
    "float16": Weights("float16", "fp16", provider="webgpu"),  # for its CPU provider the builder writes no float16
    "8_bits": Weights("8 bits, accuracy_level 4", "int8"),
    "4_bits": Weights("4 bits", "int4", has_level=False),
    "4_bits_level_4": Weights("4 bits, accuracy_level 4", "int4"),
}


def checkpoint(folder: Path) -> Path:
    """Gives the folder of the model as transformers saves it, with a tokenizer of words."""
    import tokenizers
    import torch
    import transformers

    target = folder / "llama"
    if (target / "config.json").exists():
        return target
    torch.manual_seed(0)
    config = transformers.LlamaConfig(**SIZES, architectures=["LlamaForCausalLM"])
    transformers.LlamaForCausalLM(config).save_pretrained(target)
    words = {word: number for number, word in enumerate(_words())}
    tokenizer = tokenizers.Tokenizer(tokenizers.models.WordLevel(words, unk_token="<unk>"))
    tokenizer.pre_tokenizer = tokenizers.pre_tokenizers.Whitespace()
    special = {"pad_token": "<unk>", "unk_token": "<unk>", "bos_token": "<s>", "eos_token": "</s>"}
    transformers.PreTrainedTokenizerFast(tokenizer_object=tokenizer, **special).save_pretrained(target)
    return target


def built(folder: Path, name: str) -> Path:
    """Gives the folder that onnxruntime-genai's builder writes."""
    wanted, target = WEIGHTS[name], folder / name
    if not (target / "genai_config.json").exists():
        from onnxruntime_genai.models import builder  # type: ignore[import-untyped,unused-ignore]

        places = ["", str(checkpoint(folder)), str(target), wanted.precision, wanted.provider, str(folder / "cache")]
        with contextlib.redirect_stdout(io.StringIO()), contextlib.redirect_stderr(io.StringIO()):
            builder.create_model(*places, **builder.parse_extra_options(*places, []))
        if not wanted.has_level:
            _remove_levels(target / "model.onnx")
        _run_on_cpu(target / "genai_config.json")
    return target


def gguf_file(folder: Path) -> Path:
    """Gives llama.cpp's file of the same weights, matrices in Q4_0."""
    import gguf
    from safetensors.numpy import load_file

    target = folder / "llama-q4_0.gguf"
    if target.exists():
        return target
    writer = gguf.GGUFWriter(target, "llama")
    _describe(writer, gguf)
    for name, values in load_file(checkpoint(folder) / "model.safetensors").items():
        kind = gguf.GGMLQuantizationType.F32 if values.ndim == 1 else gguf.GGMLQuantizationType.Q4_0
        quantized = gguf.quants.quantize(_in_pairs(name, values), kind)
        writer.add_tensor(_gguf_name(name), quantized, raw_dtype=kind)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return target


def _words() -> list[str]:
    return ["<unk>", "<s>", "</s>", *(f"word{number}" for number in range(SIZES["vocab_size"] - 3))]


def _remove_levels(file: Path) -> None:
    """Leaves it to an engine how exactly it multiplies, as in most files of 4 bits that people share."""
    model = onnx.load(file, load_external_data=False)
    for node in model.graph.node:
        kept = [attribute for attribute in node.attribute if attribute.name != "accuracy_level"]
        del node.attribute[:]
        node.attribute.extend(kept)
    onnx.save(model, file)


def _run_on_cpu(config: Path) -> None:
    """Has onnxruntime-genai run the model on the CPU, for whichever provider it was built."""
    described = json.loads(config.read_text())
    described["model"]["decoder"]["session_options"]["provider_options"] = []
    config.write_text(json.dumps(described, indent=1))


def _describe(writer: Any, gguf: Any) -> None:
    writer.add_file_type(gguf.LlamaFileType.MOSTLY_Q4_0)
    writer.add_context_length(SIZES["max_position_embeddings"])
    writer.add_embedding_length(SIZES["hidden_size"])
    writer.add_block_count(SIZES["num_hidden_layers"])
    writer.add_feed_forward_length(SIZES["intermediate_size"])
    writer.add_head_count(SIZES["num_attention_heads"])
    writer.add_head_count_kv(SIZES["num_key_value_heads"])
    writer.add_layer_norm_rms_eps(SIZES["rms_norm_eps"])
    writer.add_rope_dimension_count(HEAD)
    writer.add_rope_freq_base(10_000.0)
    writer.add_vocab_size(SIZES["vocab_size"])
    words = _words()
    writer.add_tokenizer_model("gpt2")  # openvino-genai reads no other
    writer.add_tokenizer_pre("default")
    writer.add_token_list(words)
    writer.add_token_merges(["w o"])
    special = [gguf.TokenType.UNKNOWN, gguf.TokenType.CONTROL, gguf.TokenType.CONTROL]
    writer.add_token_types(special + [gguf.TokenType.NORMAL] * (len(words) - len(special)))
    writer.add_bos_token_id(SIZES["bos_token_id"])
    writer.add_eos_token_id(SIZES["eos_token_id"])


def _in_pairs(name: str, values: Any) -> Any:
    """Lays the rows of queries and keys as llama.cpp rotates them, elements of a pair side by side."""
    if not name.endswith(("q_proj.weight", "k_proj.weight")):
        return values
    return values.reshape(-1, 2, HEAD // 2, values.shape[1]).swapaxes(1, 2).reshape(values.shape)


def _gguf_name(name: str) -> str:
    parts = {
        "model.embed_tokens": "token_embd",
        "model.norm": "output_norm",
        "lm_head": "output",
        "model.layers": "blk",
        "input_layernorm": "attn_norm",
        "post_attention_layernorm": "ffn_norm",
        "self_attn.q_proj": "attn_q",
        "self_attn.k_proj": "attn_k",
        "self_attn.v_proj": "attn_v",
        "self_attn.o_proj": "attn_output",
        "mlp.gate_proj": "ffn_gate",
        "mlp.up_proj": "ffn_up",
        "mlp.down_proj": "ffn_down",
    }
    for part, theirs in parts.items():
        name = name.replace(part, theirs)
    return name
