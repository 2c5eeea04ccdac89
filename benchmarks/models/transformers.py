"""Transformers, each from both of torch's exporters."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial

import torch
from torch import Tensor, nn

from .case import Network
from .export import exported

LENGTH = 128
LENGTHS = (128, 16, 96, 33, 71, 8, 112, 57, 24, 80)  # the first is what an export traces
VOCABULARY = 8192


class Positional(nn.Module):
    """A model that takes its inputs by position and returns its first output."""

    def __init__(self, model: nn.Module, names: Sequence[str]) -> None:
        super().__init__()
        self.model, self.names = model, names

    def forward(self, *inputs: Tensor) -> Tensor:
        return self.model(**dict(zip(self.names, inputs, strict=True)), return_dict=False)[0]


class Decoder(nn.Module):
    """A decoder from tokens, and each layer's keys and values of those before, to logits and the keys and values of
    all.
    """

    def __init__(self, model: nn.Module) -> None:
        super().__init__()
        self.model = model

    def forward(self, input_ids: Tensor, *past: Tensor) -> tuple[Tensor, ...]:
        from transformers import DynamicCache

        cache = DynamicCache(list(zip(past[::2], past[1::2], strict=True))) if past else DynamicCache()
        found = self.model(input_ids=input_ids, past_key_values=cache, use_cache=True)
        return (found.logits, *(tensor for layer in cache.layers for tensor in (layer.keys, layer.values)))


def tokens(batch: int, length: int) -> dict[str, Tensor]:
    return {"input_ids": torch.randint(0, VOCABULARY, (batch, length))}


def masked_tokens(batch: int, length: int) -> dict[str, Tensor]:
    return {**tokens(batch, length), "attention_mask": torch.ones(batch, length, dtype=torch.int64)}


def encoder(model: nn.Module, inputs: Sequence[dict[str, Tensor]], **options: object) -> Network:
    return Network(Positional(model, list(inputs[0])), inputs, **options)


def bert_model() -> nn.Module:
    from transformers import BertConfig, BertModel

    return BertModel(BertConfig(vocab_size=VOCABULARY), add_pooling_layer=False)


def bert(batch: int) -> Network:
    return encoder(bert_model(), [masked_tokens(batch, LENGTH)])


def bert_lengths() -> Network:
    axes = {1: "length"}
    sets = [masked_tokens(1, length) for length in LENGTHS]
    return encoder(bert_model(), sets, dynamic={"input_ids": axes, "attention_mask": axes})


def distilbert() -> Network:
    from transformers import DistilBertConfig, DistilBertModel

    return encoder(DistilBertModel(DistilBertConfig(vocab_size=VOCABULARY)), [masked_tokens(1, LENGTH)])


def gpt2_model() -> nn.Module:
    from transformers import GPT2Config, GPT2LMHeadModel

    return Decoder(GPT2LMHeadModel(GPT2Config(vocab_size=VOCABULARY, bos_token_id=0, eos_token_id=0)))


def gpt2_prefill() -> Network:
    return Network(gpt2_model(), [tokens(1, LENGTH)])


def gpt2_decode() -> Network:
    past = {f"past_{kind}_{layer}": torch.randn(1, 12, LENGTH, 64) for layer in range(12) for kind in ("key", "value")}
    dynamic = {name: {2: "past_length"} for name in past}
    return Network(gpt2_model(), [tokens(1, 1) | past], dynamic)


def llama(attention: str) -> Network:
    from transformers import LlamaConfig, LlamaForCausalLM

    sizes = dict(hidden_size=1024, intermediate_size=2816, num_hidden_layers=4, num_attention_heads=16)
    config = LlamaConfig(vocab_size=VOCABULARY, num_key_value_heads=4, attn_implementation=attention, **sizes)
    return Network(Decoder(LlamaForCausalLM(config)), [tokens(1, LENGTH)])


def t5_encoder() -> Network:
    from transformers import T5Config, T5EncoderModel

    return encoder(T5EncoderModel(T5Config(vocab_size=VOCABULARY)), [masked_tokens(1, LENGTH)])


def whisper_encoder() -> Network:
    from transformers import WhisperConfig
    from transformers.models.whisper.modeling_whisper import WhisperEncoder

    sizes = dict(d_model=384, encoder_layers=4, encoder_attention_heads=6, encoder_ffn_dim=1536)  # of whisper-tiny
    return encoder(WhisperEncoder(WhisperConfig(**sizes)), [{"input_features": torch.randn(1, 80, 3000)}])


class SpeechFront(nn.Module):
    """The convolutions at the front of wav2vec 2.0, on a second of sound."""

    def __init__(self) -> None:
        super().__init__()
        from transformers import Wav2Vec2Config
        from transformers.models.wav2vec2.modeling_wav2vec2 import Wav2Vec2FeatureEncoder

        self.layers = Wav2Vec2FeatureEncoder(Wav2Vec2Config()).conv_layers

    def forward(self, sound: Tensor) -> Tensor:
        return nn.Sequential(*self.layers)(sound[:, None])


def speech_front() -> Network:
    return Network(SpeechFront(), [{"sound": torch.randn(1, 16000)}])


NETWORKS: dict[str, Callable[[], Network]] = {
    "bert": partial(bert, 1),
    "bert_batch8": partial(bert, 8),
    "bert_lengths": bert_lengths,
    "distilbert": distilbert,
    "gpt2_prefill": gpt2_prefill,
    "gpt2_decode": gpt2_decode,
    "llama": partial(llama, "sdpa"),
    "t5_encoder": t5_encoder,
    "whisper_encoder": whisper_encoder,
    "speech_front": speech_front,
}

OLD_NETWORKS = NETWORKS | {"llama": partial(llama, "eager")}  # the old exporter lacks torch's grouped attention

CASES = [exported(name, "transformer", network) for name, network in NETWORKS.items()] + [
    exported(f"{name}_torchscript", "transformer", network, "torchscript") for name, network in OLD_NETWORKS.items()
]
