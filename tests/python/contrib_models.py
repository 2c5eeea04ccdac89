"""Small models with random weights, exported by torch, for onnxruntime's optimizers and quantizers."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
import transformers
from torch import nn

SIZE = 64  # the number of words
SMALL = {"hidden_size": 32, "num_hidden_layers": 2, "num_attention_heads": 4, "intermediate_size": 48}
SIDES = {
    "d_model": 32,
    "encoder_layers": 2,
    "decoder_layers": 2,
    "encoder_attention_heads": 4,
    "decoder_attention_heads": 4,
    "encoder_ffn_dim": 48,
    "decoder_ffn_dim": 48,
}
IDS = {"pad_token_id": 0, "eos_token_id": 3, "bos_token_id": 5, "decoder_start_token_id": 5}
EAGER = {"attn_implementation": "eager"}


class Call(nn.Module):
    """A model that is given tensors by position, and gives the first of its outputs."""

    def __init__(self, model: nn.Module, call: Callable[..., Any]) -> None:
        super().__init__()
        self.model, self.call = model, call

    def forward(self, *inputs: torch.Tensor) -> torch.Tensor:
        result = self.call(self.model, *inputs)
        return result if isinstance(result, torch.Tensor) else result[0]


class UNet(nn.Module):
    """Blocks of a residual net with group norms and SiLU, a step down and a step up that are joined, and attention."""

    def __init__(self, channels: int = 16) -> None:
        super().__init__()
        self.first = nn.Conv2d(3, channels, 3, padding=1)
        self.norms = nn.ModuleList(nn.GroupNorm(4, n) for n in (channels, 2 * channels, channels))
        self.down = nn.Conv2d(channels, 2 * channels, 3, stride=2, padding=1)
        self.middle = nn.Conv2d(2 * channels, 2 * channels, 3, padding=1)
        self.query, self.key, self.value = (nn.Linear(2 * channels, 2 * channels) for _ in range(3))
        self.up = nn.Conv2d(2 * channels, channels, 3, padding=1)
        self.last = nn.Conv2d(2 * channels, 3, 3, padding=1)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        top = nn.functional.silu(self.norms[0](self.first(x)))
        low = self.down(top)
        low = low + self.middle(nn.functional.silu(self.norms[1](low)))
        rows = low.flatten(2).transpose(1, 2)
        heads = [f(rows).unflatten(-1, (4, -1)).transpose(1, 2) for f in (self.query, self.key, self.value)]
        attended = nn.functional.scaled_dot_product_attention(*heads).transpose(1, 2).flatten(2)
        low = low + attended.transpose(1, 2).reshape(low.shape)
        back = self.up(nn.functional.interpolate(low, scale_factor=2.0, mode="nearest"))
        return self.last(torch.cat([top, nn.functional.silu(self.norms[2](back))], 1))


class CNN(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.body = nn.Sequential(
            nn.Conv2d(3, 16, 3, padding=1), nn.BatchNorm2d(16), nn.ReLU(), nn.MaxPool2d(2),
            nn.Conv2d(16, 16, 3, padding=1, groups=16), nn.BatchNorm2d(16), nn.Hardswish(),
            nn.Conv2d(16, 24, 1), nn.LeakyReLU(0.1), nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(24, 10),
        )  # fmt: skip

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return torch.softmax(self.body(x), 1)


class LSTM(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.rows = nn.LSTM(12, 16, num_layers=2, bidirectional=True, batch_first=True)
        self.last = nn.Linear(32, 5)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.last(self.rows(x)[0])


def ids(rows: int, columns: int) -> torch.Tensor:
    return torch.randint(6, SIZE, (rows, columns), generator=torch.Generator().manual_seed(1))


def numbers(*shape: int) -> torch.Tensor:
    return torch.randn(shape, generator=torch.Generator().manual_seed(1))


def mask() -> torch.Tensor:
    return torch.tensor([[1] * 7, [1] * 5 + [0] * 2])


def bert() -> nn.Module:
    config = transformers.BertConfig(vocab_size=SIZE, max_position_embeddings=64, **SMALL, **EAGER)
    return Call(
        transformers.BertModel(config),
        lambda m, i, a, t: m(input_ids=i, attention_mask=a, token_type_ids=t),
    )


def gpt2() -> nn.Module:
    config = transformers.GPT2Config(vocab_size=SIZE, n_positions=64, n_embd=32, n_layer=2, n_head=4, **IDS, **EAGER)
    return Call(transformers.GPT2LMHeadModel(config), lambda m, i, a: m(i, attention_mask=a, use_cache=False))


def t5() -> nn.Module:
    config = transformers.T5Config(
        vocab_size=SIZE, d_model=32, d_kv=8, d_ff=48, num_layers=2, num_heads=4, **IDS, **EAGER
    )
    return Call(
        transformers.T5ForConditionalGeneration(config),
        lambda m, i, a, d: m(input_ids=i, attention_mask=a, decoder_input_ids=d, use_cache=False),
    )


def vit() -> nn.Module:
    config = transformers.ViTConfig(image_size=16, patch_size=4, **SMALL, **EAGER)
    return Call(transformers.ViTModel(config), lambda m, x: m(x))


def clip() -> nn.Module:
    config = transformers.CLIPTextConfig(vocab_size=SIZE, max_position_embeddings=32, **SMALL, **IDS, **EAGER)
    return Call(transformers.CLIPTextModel(config), lambda m, i, a: m(i, attention_mask=a))


def whisper_encoder() -> nn.Module:
    config = transformers.WhisperConfig(
        vocab_size=SIZE, num_mel_bins=8, max_source_positions=20, max_target_positions=32, suppress_tokens=None,
        begin_suppress_tokens=None, **SIDES, **IDS, **EAGER,
    )  # fmt: skip
    return Call(transformers.WhisperModel(config).encoder, lambda m, x: m(x))


def llama() -> nn.Module:
    config = transformers.LlamaConfig(vocab_size=SIZE, num_key_value_heads=2, **SMALL, **IDS, **EAGER)
    return Call(transformers.LlamaForCausalLM(config), lambda m, i, a: m(i, attention_mask=a, use_cache=False))


# The modules, their inputs, and what onnxruntime.transformers calls them.
MODELS: dict[str, tuple[Callable[[], nn.Module], tuple[torch.Tensor, ...], str]] = {
    "bert": (bert, (ids(2, 7), mask(), torch.tensor([[0, 0, 0, 1, 1, 1, 1]] * 2)), "bert"),
    "gpt2": (gpt2, (ids(2, 7), mask()), "gpt2"),
    "t5": (t5, (ids(2, 7), mask(), ids(2, 5)), "t5"),
    "vit": (vit, (numbers(2, 3, 16, 16),), "vit"),
    "clip": (clip, (ids(2, 7), mask()), "clip"),
    "whisper_encoder": (whisper_encoder, (numbers(2, 8, 40),), "bart"),
    "llama": (llama, (ids(2, 7), mask()), "gpt2"),
    "unet": (UNet, (numbers(2, 3, 16, 16),), "unet"),
    "cnn": (CNN, (numbers(2, 3, 16, 16),), "bert"),
    "lstm": (LSTM, (numbers(2, 6, 12),), "bert"),
}


def export(folder: Path, name: str) -> Path:
    """Exports a model into a file, with open batch and lengths of text."""
    make, inputs, _ = MODELS[name]
    path = folder / f"{name}.onnx"
    if path.exists():
        return path
    torch.manual_seed(0)
    module = make().eval()
    with torch.no_grad():
        for parameter in module.parameters():
            parameter.add_(torch.randn_like(parameter) * 0.05)
    axes = {
        input_name: {0: "batch"} | ({1: f"length{x.shape[1]}"} if x.dtype == torch.int64 else {})
        for input_name, x in zip(feeds(name), inputs, strict=True)
    }
    torch.onnx.export(
        module, inputs, path, dynamo=False, input_names=list(axes), dynamic_axes=axes, opset_version=17
    )  # fmt: skip
    return path


def feeds(name: str) -> dict[str, Any]:
    return {f"input{i}": x.numpy() for i, x in enumerate(MODELS[name][1])}
