"""What is found of a language model's inputs and outputs, in the layouts that exporters write."""

from __future__ import annotations

import shutil
from pathlib import Path

import numpy as np
import onnx
import pytest
import torch

import language_models as models
import onnx_torch

SENTENCES = [[5, 9, 33, 60, 8], [17, 3, 4]]


@pytest.fixture(scope="module")
def gpt2(tmp_path_factory: pytest.TempPathFactory) -> Path:
    file = tmp_path_factory.mktemp("layouts") / "model.onnx"
    return models.export(models.model_of("GPT2LMHeadModel"), file)


# --- Encoders with decoders ---


@pytest.mark.parametrize("options", [{}, {"num_beams": 3}, {"num_beams": 2, "num_return_sequences": 2}], ids=str)
@pytest.mark.parametrize("kind", ["T5ForConditionalGeneration", "BartForConditionalGeneration"])
def test_translators(tmp_path, kind, options):
    model = models.model_of(kind)
    lm = onnx_torch.LanguageModel(models.export_pair(model, tmp_path / "model"))
    ids = torch.tensor([SENTENCES[0], SENTENCES[1] + [models.PAD] * 2])
    mask = torch.tensor([[1] * 5, [1, 1, 1, 0, 0]])
    theirs = model.generate(ids, attention_mask=mask, max_new_tokens=15, do_sample=False, **options)
    ours = lm.generate(ids, mask, max_new_tokens=15, **options)
    assert torch.equal(ours, theirs), (ours, theirs)


def test_a_listener(tmp_path):
    model = models.model_of("WhisperForConditionalGeneration")
    lm = onnx_torch.LanguageModel(models.export_pair(model, tmp_path / "model"))
    sound = torch.randn(2, 8, 40)
    start = torch.tensor([[3, 9], [3, 10]])
    theirs = [
        transformers_generate(model, sound, start, **options) for options in ({}, {"num_beams": 3})
    ]
    for options, expected in zip(({}, {"num_beams": 3}), theirs, strict=True):
        ours = lm.generate(input_features=sound, decoder_input_ids=start, max_new_tokens=12, **options)
        assert torch.equal(ours, expected), (ours, expected)


def transformers_generate(model: torch.nn.Module, sound: torch.Tensor, start: torch.Tensor, **options) -> torch.Tensor:
    """Whisper's own generate cuts sound into windows; this is the one of all models."""
    from transformers import GenerationMixin

    known = {"decoder_input_ids": start, "max_new_tokens": 12, "do_sample": False}
    return GenerationMixin.generate(model, sound, **known, **options)
