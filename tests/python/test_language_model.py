"""Text out of decoders: the tokens that transformers generates, from models that torch has exported."""

from __future__ import annotations

import functools

import pytest
import torch
from torch import nn

import language_models as models
import onnx_torch

PROMPTS = [[5, 9, 33, 60, 8, 21, 44], [17, 3, 4], [50, 51, 52, 6, 7]]
EXPORTERS = {"torchscript": False, "dynamo": True}


@pytest.fixture(scope="module")
def exported(tmp_path_factory: pytest.TempPathFactory):
    """(model of torch, language model) of a class of transformers."""
    folder = tmp_path_factory.mktemp("language")

    @functools.cache
    def make(kind: str, exporter: str = "torchscript") -> tuple[nn.Module, onnx_torch.LanguageModel]:
        model = models.model_of(kind)
        file = models.export(model, folder / f"{kind}-{exporter}.onnx", EXPORTERS[exporter])
        return model, onnx_torch.LanguageModel(file)

    return make


def padded(prompts: list[list[int]]) -> tuple[torch.Tensor, torch.Tensor]:
    """Tokens and mask, with padding at the left."""
    longest = max(map(len, prompts))
    ids = torch.tensor([[models.PAD] * (longest - len(prompt)) + prompt for prompt in prompts])
    return ids, torch.tensor([[0] * (longest - len(prompt)) + [1] * len(prompt) for prompt in prompts])


def check(model: nn.Module, lm: onnx_torch.LanguageModel, **options) -> None:
    """A batch of prompts of different lengths gives what transformers gives."""
    ids, mask = padded(PROMPTS)
    known = {"max_new_tokens": 24, "eos_token_id": 2, "pad_token_id": models.PAD, **options}
    theirs = model.generate(ids, attention_mask=mask, **{"do_sample": False, **known})
    ours = lm.generate(ids, mask, **known)
    assert torch.equal(ours, theirs), (ours, theirs)


# --- The same tokens as transformers ---


@pytest.mark.parametrize("kind", models.DECODERS)
def test_greedy(exported, kind):
    check(*exported(kind))


@pytest.mark.parametrize("kind", ["GPT2LMHeadModel"])
def test_what_dynamo_exports(exported, kind):
    check(*exported(kind, "dynamo"))


OPTIONS = {
    "several ends": {"eos_token_id": [2, 30, 31, 32]},
    "a length": {"max_new_tokens": None, "max_length": 12},
    "repetition": {"repetition_penalty": 1.7},
    "n-grams": {"no_repeat_ngram_size": 2},
    "least length": {"min_new_tokens": 9, "eos_token_id": list(range(2, 60))},
    "suppressed": {"suppress_tokens": list(range(20, 60)), "begin_suppress_tokens": list(range(3, 15))},
    "forced": {"forced_eos_token_id": 2},
    "beams": {"num_beams": 4},
    "beams that end": {"num_beams": 4, "eos_token_id": list(range(2, 22))},
    "all beams": {"num_beams": 3, "num_return_sequences": 3, "eos_token_id": [2, 30, 31]},
    "beams until the first are full": {"num_beams": 3, "early_stopping": True, "eos_token_id": list(range(2, 22))},
    "beams to the end": {"num_beams": 3, "early_stopping": "never", "eos_token_id": list(range(2, 22))},
    "long beams": {"num_beams": 3, "length_penalty": 2.0, "eos_token_id": list(range(2, 22))},
    "short beams": {"num_beams": 3, "length_penalty": -1.0, "eos_token_id": list(range(2, 22))},
    "beams without repetition": {"num_beams": 3, "no_repeat_ngram_size": 2, "repetition_penalty": 1.2},
}


@pytest.mark.parametrize("options", OPTIONS.values(), ids=OPTIONS)
@pytest.mark.parametrize("kind", ["GPT2LMHeadModel", "Qwen2ForCausalLM"])
def test_options(exported, kind, options):
    check(*exported(kind), **options)
