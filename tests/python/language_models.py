"""Small decoders of transformers with random weights, exported by torch in the layouts that people have."""

from __future__ import annotations

import inspect
from pathlib import Path
from typing import Any

import torch
import transformers
from benchmarks.models.export import quiet
from torch import Tensor, nn

VOCABULARY = 67
PAD = 1  # transformers takes 0 for none where it fills up what beams give
SMALL = {"vocab_size": VOCABULARY, "bos_token_id": 0, "eos_token_id": 2, "pad_token_id": PAD}
LLAMA = {
    **SMALL,
    "hidden_size": 32,
    "intermediate_size": 48,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "max_position_embeddings": 128,
}
WINDOW = {"sliding_window": 6}
DECODERS: dict[str, dict[str, Any]] = {
    "GPT2LMHeadModel": {**SMALL, "n_embd": 32, "n_layer": 2, "n_head": 4, "n_positions": 128},
    "LlamaForCausalLM": LLAMA,
    "Qwen2ForCausalLM": LLAMA,
    "MistralForCausalLM": LLAMA | WINDOW,
    "Gemma2ForCausalLM": LLAMA | WINDOW | {"head_dim": 8, "query_pre_attn_scalar": 8},
    "PhiForCausalLM": LLAMA | {"num_key_value_heads": 4},
    "OPTForCausalLM": {
        **SMALL,
        "hidden_size": 32,
        "word_embed_proj_dim": 32,
        "ffn_dim": 48,
        "num_hidden_layers": 2,
        "num_attention_heads": 4,
        "max_position_embeddings": 128,
    },
    "BloomForCausalLM": {**SMALL, "hidden_size": 32, "n_layer": 2, "n_head": 4},
}


def model_of(kind: str, seed: int = 0, **changes: Any) -> nn.Module:
    """A model whose weights are large enough for its tokens to differ."""
    torch.manual_seed(seed)
    cls = getattr(transformers, kind)
    model = cls(cls.config_class(**{**DECODERS[kind], **changes}, attn_implementation="eager"))
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.add_(torch.randn_like(parameter) * 0.15)
    return model.eval().requires_grad_(False)


class Step(nn.Module):
    """One step of a decoder, with its past as plain tensors, and the mask of all tokens."""

    def __init__(self, model: nn.Module) -> None:
        super().__init__()
        self.model = model
        takes = inspect.signature(model.forward).parameters
        self.has_positions = "position_ids" in takes

    def forward(self, input_ids: Tensor, attention_mask: Tensor, position_ids: Tensor, *past: Tensor) -> Any:
        cache = transformers.DynamicCache(list(zip(past[::2], past[1::2], strict=True)))
        more = {"position_ids": position_ids} if self.has_positions else {}
        found = self.model(
            input_ids=input_ids, attention_mask=attention_mask, past_key_values=cache, use_cache=True, **more
        )
        return (found.logits, *(tensor for layer in cache.layers for tensor in (layer.keys, layer.values)))


def example(model: nn.Module) -> dict[str, Tensor]:
    """What a step takes: two sequences of three tokens, after five."""
    config = model.config
    heads = getattr(config, "num_key_value_heads", None) or config.num_attention_heads
    size = getattr(config, "head_dim", None) or config.hidden_size // config.num_attention_heads
    past = {
        f"past_key_values.{layer}.{kind}": torch.randn(2, heads, 5, size)
        for layer in range(config.num_hidden_layers)
        for kind in ("key", "value")
    }
    ids = torch.randint(3, VOCABULARY, (2, 3))
    mask = torch.ones(2, 8, dtype=torch.int64)
    return {"input_ids": ids, "attention_mask": mask, "position_ids": torch.arange(5, 8).repeat(2, 1), **past}


def export(model: nn.Module, file: Path, dynamo: bool = False) -> Path:
    """As optimum lays a decoder out."""
    step, given = Step(model).eval(), example(model)
    if not step.has_positions:
        given.pop("position_ids")
        forward = step.forward
        step.forward = lambda ids, mask, *past: forward(ids, mask, None, *past)
    presents = [name.replace("past_key_values", "present") for name in given if name.startswith("past")]
    axes: dict[str, Any] = {}
    for name in given:
        axes[name] = {0: "batch", 2: "past"} if name.startswith("past") else {0: "batch", 1: "count"}
    axes["attention_mask"] = {0: "batch", 1: "total"}
    with quiet(), torch.no_grad():
        if dynamo:
            shapes = tuple(dict.fromkeys(axes[name], torch.export.Dim.DYNAMIC) for name in given)
            torch.onnx.export(
                step,
                tuple(given.values()),
                str(file),
                input_names=list(given),
                output_names=["logits", *presents],
                dynamo=True,
                external_data=False,
                verbose=False,
                dynamic_shapes=(*shapes[: len(shapes) - len(presents)], shapes[len(shapes) - len(presents) :]),
            )
        else:
            torch.onnx.export(
                step,
                tuple(given.values()),
                str(file),
                input_names=list(given),
                output_names=["logits", *presents],
                dynamo=False,
                dynamic_axes=axes | dict.fromkeys(presents, {0: "batch", 2: "total"}),
            )
    return file
