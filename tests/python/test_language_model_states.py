"""Language models that remember states of a fixed size instead of rows for each token: Mamba."""

from __future__ import annotations

from collections import Counter

import numpy as np
import pytest
import torch

import language_models as models
import onnx_torch

PROMPTS = [[5, 9, 33, 60, 8, 21, 44], [17, 3, 4], [50, 51, 52, 6, 7]]
EXPORTERS = {"torchscript": False, "dynamo": True}
ENDS = {"eos_token_id": 2, "pad_token_id": models.PAD}


@pytest.fixture(scope="module", params=EXPORTERS)
def mamba(request, tmp_path_factory):
    model = models.model_of("MambaForCausalLM")
    file = tmp_path_factory.mktemp("states") / "model.onnx"
    return model, onnx_torch.LanguageModel(models.export_recurrent(model, file, EXPORTERS[request.param]))


def theirs(model: torch.nn.Module, prompt: list[int], **options) -> list[list[int]]:
    ids = torch.tensor([prompt])
    return model.generate(ids, attention_mask=torch.ones_like(ids), **ENDS, **options).tolist()


def test_the_states_are_found(mamba):
    _, lm = mamba
    assert {cache.name for cache in lm.layout.caches} == {f"{kind}.{i}" for kind in ("conv", "ssm") for i in range(2)}
    assert all(cache.sequence_axis is None for cache in lm.layout.caches)
    assert lm.takes_lengths


@pytest.mark.parametrize(
    "options", [{}, {"num_beams": 3}, {"repetition_penalty": 1.5}, {"num_beams": 2, "num_return_sequences": 2}]
)
def test_the_tokens_of_transformers(mamba, options):
    model, lm = mamba
    options = {"max_new_tokens": 16, **options}
    expected = [theirs(model, prompt, do_sample=False, **options) for prompt in PROMPTS]
    assert len({tuple(row) for rows in expected for row in rows}) >= len(PROMPTS)
    for prompt, rows in zip(PROMPTS, expected, strict=True):
        found = lm.generate([prompt], **ENDS, **options)
        filled = [ours + [models.PAD] * (len(row) - len(ours)) for row, ours in zip(rows, found, strict=True)]
        assert filled == rows
    together = lm.generate(PROMPTS, **ENDS, **options)  # of different lengths
    assert together == [row for prompt in PROMPTS for row in lm.generate([prompt], **ENDS, **options)]


def test_tokens_are_drawn_as_often_as_by_transformers(mamba):
    model, lm = mamba
    options = {"max_new_tokens": 1, "do_sample": True, "temperature": 0.7, "top_k": 5, "num_return_sequences": 2_000}
    torch.manual_seed(0)
    counts = [
        Counter(row[-1] for row in rows)
        for rows in (theirs(model, PROMPTS[0], **options), lm.generate([PROMPTS[0]], seed=0, **ENDS, **options))
    ]
    assert counts[0].keys() == counts[1].keys()
    assert sum(abs(counts[0][token] - counts[1][token]) for token in counts[0]) < 300


def test_a_state_goes_back_and_is_forked(mamba):
    _, lm = mamba
    steps = [np.array([[7]]), np.array([[9]]), np.array([[10]])]
    _, _, expected = models.check_going_back(lm, PROMPTS[0], steps)
    whole = lm.start(PROMPTS[0]).append(np.array([[7, 9, 10]]), all=True)[0]
    np.testing.assert_array_equal(whole, np.concatenate(expected))


def test_an_engine_serves_several_at_once(mamba):
    _, lm = mamba
    engine = onnx_torch.Engine(lm, max_batch_size=3)
    requests = [engine.submit(prompt, max_new_tokens=10) for prompt in PROMPTS]
    expected = [lm.generate([prompt], max_new_tokens=10)[0] for prompt in PROMPTS]
    assert [request.result() for request in requests] == expected
