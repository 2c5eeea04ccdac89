"""Small decoders of transformers with random weights, exported by torch in the layouts that people have."""

from __future__ import annotations

import inspect
from pathlib import Path
from typing import Any

import numpy as np
import tokenizers
import torch
import transformers
from benchmarks.models.export import quiet
from torch import Tensor, nn

import onnx_torch
from contrib_models import SIDES

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
    """Makes a model whose weights are large enough for its tokens to differ."""
    torch.manual_seed(seed)
    cls = getattr(transformers, kind)
    sizes = (DECODERS | RECURRENT | TRANSLATORS)[kind]
    model = cls(cls.config_class(**{**sizes, **changes}, attn_implementation="eager"))
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


def tokenizer() -> tokenizers.Tokenizer:
    """Makes a tokenizer whose words are w0, w1 and so on; all others are w0."""
    words = {f"w{number}": number for number in range(VOCABULARY)}
    made = tokenizers.Tokenizer(tokenizers.models.WordLevel(words, unk_token="w0"))
    made.pre_tokenizer = tokenizers.pre_tokenizers.Whitespace()
    return made


def example(model: nn.Module) -> dict[str, Tensor]:
    """Makes the inputs of a step: two sequences of three tokens, after five."""
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
    """Exports a decoder as optimum lays it out."""
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
    options: dict[str, Any]
    if dynamo:
        shapes = tuple(dict.fromkeys(axes[name], torch.export.Dim.DYNAMIC) for name in given)
        before_pasts = len(shapes) - len(presents)
        open_axes = (*shapes[:before_pasts], shapes[before_pasts:])
        options = {"external_data": False, "verbose": False, "dynamic_shapes": open_axes}
    else:
        options = {"dynamic_axes": axes | dict.fromkeys(presents, {0: "batch", 2: "total"})}
    names = {"input_names": list(given), "output_names": ["logits", *presents]}
    with quiet(), torch.no_grad():
        torch.onnx.export(step, tuple(given.values()), str(file), dynamo=dynamo, **names, **options)
    return file


# --- Decoders that remember states of a fixed size ---

RECURRENT: dict[str, dict[str, Any]] = {
    "MambaForCausalLM": {**SMALL, "hidden_size": 32, "state_size": 8, "num_hidden_layers": 2},
}


class GivenStates:
    """What Mamba's layers ask of a cache of transformers while they read one token."""

    def __init__(self, states: list[Tensor]) -> None:
        self.states = states

    def get_conv_state(self, layer: int, state_idx: int = 0) -> Tensor:
        return self.states[2 * layer]

    def get_recurrent_state(self, layer: int, state_idx: int = 0) -> Tensor:
        return self.states[2 * layer + 1]

    def is_recording_past(self, layer: int) -> bool:
        return False


class RecurrentStep(nn.Module):
    """One step of Mamba on one token of each sequence, with its states as plain tensors."""

    def __init__(self, model: nn.Module) -> None:
        super().__init__()
        self.model = model

    def forward(self, input_ids: Tensor, *states: Tensor) -> Any:
        cache = GivenStates([state.clone() for state in states])  # the layers write to them
        logits = self.model(input_ids=input_ids, cache_params=cache, use_cache=True).logits
        return (logits, *cache.states)


def export_recurrent(model: nn.Module, file: Path, dynamo: bool = False) -> Path:
    """Exports a step of Mamba."""
    config = model.config
    names = [f"{kind}.{layer}" for layer in range(config.num_hidden_layers) for kind in ("conv", "ssm")]
    sizes = [config.conv_kernel, config.state_size] * config.num_hidden_layers
    states = [torch.randn(2, config.intermediate_size, size) for size in sizes]
    pasts, presents = ([f"{time}.{name}" for name in names] for time in ("past", "present"))
    options: dict[str, Any]
    if dynamo:
        batch = {0: torch.export.Dim.DYNAMIC}
        options = {"external_data": False, "verbose": False, "dynamic_shapes": (batch, (batch,) * len(states))}
    else:
        options = {"dynamic_axes": {name: {0: "batch"} for name in ("input_ids", "logits", *pasts, *presents)}}
    given = (torch.randint(3, VOCABULARY, (2, 1)), *states)
    names_of = {"input_names": ["input_ids", *pasts], "output_names": ["logits", *presents]}
    with quiet(), torch.no_grad():
        torch.onnx.export(RecurrentStep(model).eval(), given, str(file), dynamo=dynamo, **names_of, **options)
    return file


def check_going_back(lm: onnx_torch.LanguageModel, prompt: list[int], steps: list[np.ndarray]) -> tuple[Any, Any, Any]:
    """Checks that a state that has gone back, and a fork of it, give what a fresh one gives; returns them and that."""
    fresh = lm.start(prompt)
    expected = [fresh.append(step) for step in steps]
    state = lm.start(prompt)
    state.append(np.array([[33, 34, 35]]))
    state.rewind(3)
    fork = state.fork()
    fork.append(np.array([[40]]))
    for step, logits in zip(steps, expected, strict=True):
        np.testing.assert_array_equal(state.append(step), logits)
    fork.rewind(1)
    for step, logits in zip(steps, expected, strict=True):
        np.testing.assert_array_equal(fork.append(step), logits)
    return state, fork, expected


# --- Encoders with decoders ---

TRANSLATORS: dict[str, dict[str, Any]] = {
    "T5ForConditionalGeneration": {
        **SMALL,
        "d_model": 32,
        "d_kv": 8,
        "d_ff": 48,
        "num_layers": 2,
        "num_heads": 4,
        "decoder_start_token_id": PAD,
    },
    "BartForConditionalGeneration": {
        **SMALL,
        **SIDES,
        "max_position_embeddings": 64,
        "decoder_start_token_id": 2,
        "forced_eos_token_id": 2,
    },
    "WhisperForConditionalGeneration": {
        **SMALL,
        "d_model": 32,
        "encoder_layers": 1,
        "decoder_layers": 2,
        "encoder_attention_heads": 4,
        "decoder_attention_heads": 4,
        "encoder_ffn_dim": 48,
        "decoder_ffn_dim": 48,
        "num_mel_bins": 8,
        "max_source_positions": 20,
        "max_target_positions": 64,
        "decoder_start_token_id": 3,
        "suppress_tokens": [5, 6],
        "begin_suppress_tokens": [7],
    },
}


class Encoding(nn.Module):
    def __init__(self, model: nn.Module) -> None:
        super().__init__()
        self.encoder = model.get_encoder()

    def forward(self, *inputs: Tensor) -> Tensor:
        return self.encoder(*inputs).last_hidden_state


class CrossStep(nn.Module):
    """A step of a decoder that reads an encoder's states: the first, which has no past, or one of those that follow."""

    def __init__(self, model: nn.Module, with_past: bool, has_mask: bool) -> None:
        super().__init__()
        self.model, self.with_past, self.has_mask = model, with_past, has_mask

    def forward(self, input_ids: Tensor, states: Tensor, *others: Tensor) -> tuple[Tensor, ...]:
        mask = others[0] if self.has_mask else None
        past = others[1:] if self.has_mask else others
        of_self = transformers.DynamicCache(list(zip(past[0::4], past[1::4], strict=True)))
        of_cross = transformers.DynamicCache(list(zip(past[2::4], past[3::4], strict=True)))
        cache = transformers.EncoderDecoderCache(of_self, of_cross)
        given = {"attention_mask": mask} if self.has_mask else {}
        found = self.model(
            decoder_input_ids=input_ids, encoder_outputs=(states,), past_key_values=cache, use_cache=True, **given
        )
        presents = []
        for layer, cross in zip(of_self.layers, of_cross.layers, strict=True):
            presents += [layer.keys, layer.values]
            presents += [] if self.with_past else [cross.keys, cross.values]
        return (found.logits, *presents)


def export_pair(model: nn.Module, folder: Path) -> Path:
    """Exports an encoder and a decoder as optimum lays them out: three files."""
    config = model.config
    layers = getattr(config, "num_decoder_layers", None) or config.decoder_layers
    heads = getattr(config, "num_heads", None) or config.decoder_attention_heads
    hears = hasattr(config, "num_mel_bins")
    size = config.d_model // heads
    folder.mkdir()
    length = 20 if hears else 5
    encoder_inputs = (
        {"input_features": torch.randn(2, config.num_mel_bins, 40)}
        if hears
        else {"input_ids": torch.randint(3, VOCABULARY, (2, 5)), "attention_mask": torch.ones(2, 5, dtype=torch.int64)}
    )
    axes = {name: {0: "batch"} if hears else {0: "batch", 1: "length"} for name in encoder_inputs}
    with quiet(), torch.no_grad():
        torch.onnx.export(
            Encoding(model).eval(), tuple(encoder_inputs.values()), str(folder / "encoder_model.onnx"),
            input_names=list(encoder_inputs), output_names=["last_hidden_state"], dynamic_axes=axes, dynamo=False,
        )  # fmt: skip
    for name, with_past in [("decoder_model", False), ("decoder_with_past_model", True)]:
        given = {"input_ids": torch.randint(3, VOCABULARY, (2, 1 if with_past else 3))}
        given["encoder_hidden_states"] = torch.randn(2, length, config.d_model)
        if not hears:
            given["encoder_attention_mask"] = torch.ones(2, length, dtype=torch.int64)
        kinds = [("decoder", 4, "past"), ("encoder", length, "length")]
        caches = [
            (f"{layer}.{of}.{what}", torch.randn(2, heads, rows, size), {0: "batch", 2: axis})
            for layer in range(layers)
            for of, rows, axis in kinds
            for what in ("key", "value")
        ]
        axes = {"input_ids": {0: "batch", 1: "count"}}
        axes |= dict.fromkeys(["encoder_hidden_states", "encoder_attention_mask"], {0: "batch", 1: "length"})
        if with_past:
            given |= {f"past_key_values.{what}": tensor for what, tensor, _ in caches}
            axes |= {f"past_key_values.{what}": of for what, _, of in caches}
        presents = [f"present.{what}" for what, *_ in caches if not with_past or ".decoder." in what]
        axes |= {name: {0: "batch", 2: "total"} for name in presents}
        with quiet(), torch.no_grad():
            torch.onnx.export(
                CrossStep(model, with_past, not hears).eval(), tuple(given.values()), str(folder / f"{name}.onnx"),
                input_names=list(given), output_names=["logits", *presents],
                dynamic_axes={name: of for name, of in axes.items() if name in given or name in presents}, dynamo=False,
            )  # fmt: skip
    model.generation_config.save_pretrained(folder)
    config.save_pretrained(folder)
    return folder
