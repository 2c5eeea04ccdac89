"""The speed at which language models generate: `bench_generation`, and `onnx-torch bench --generate`."""

from __future__ import annotations

import json
import re
import shutil
from pathlib import Path

import numpy as np
import onnx
import pytest

import language_models as models
import onnx_torch
import test_caches
import test_language_model_layouts as layouts
from test_cli import call


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Writes decoders of one file, one of them of onnxruntime's operators."""
    folder = tmp_path_factory.mktemp("models")
    models.export(models.model_of("LlamaForCausalLM"), folder / "model.onnx")
    grouped = test_caches.decoder(test_caches.grouped)
    grouped.ir_version = 10  # onnxruntime knows no newer one
    onnx.save(grouped, folder / "grouped.onnx")
    merged, *_ = layouts.merged()
    onnx.save(merged, folder / "merged.onnx")
    return folder


@pytest.mark.parametrize("name", ["model.onnx", "grouped.onnx", "merged.onnx"])
def test_engines_generate_the_same_in_turns(folder, name):
    turns = []
    found = onnx_torch.bench_generation(
        folder / name, prompt=5, tokens=6, rounds=2, threads=1, progress=lambda one, of: turns.append((one, of))
    )
    ours, theirs = found.speeds
    assert [ours.engine, theirs.engine] == ["onnx_torch", "onnxruntime"] and found.same_tokens
    assert turns == [(1, 4), (2, 4), (3, 4), (4, 4)]
    for speed in found.speeds:
        assert [len(one) for one in speed.rounds] == [6, 6] and len(speed.tokens) == 6
        assert speed.prompt_rates == [5 / one[0] for one in speed.rounds]
        assert speed.decode_rates == [5 / sum(one[1:]) for one in speed.rounds]
        assert speed.first_seconds > speed.load_seconds > 0 and speed.peak_bytes > 1 << 20
    ratio = found.ratios()[0]
    by_round = sorted(b / a for a, b in zip(ours.decode_rates, theirs.decode_rates, strict=True))
    np.testing.assert_allclose([ratio.least, ratio.median, ratio.most], [by_round[0], np.mean(by_round), by_round[1]])


def test_the_peak_of_memory_is_the_engines_own(folder):
    """What this process had at its peak is no part of it."""
    np.ones(1 << 30, np.uint8)
    found = onnx_torch.bench_generation(folder / "model.onnx", ["onnx_torch"], prompt=2, tokens=2, rounds=1)
    assert found.speeds[0].peak_bytes < 1 << 30


def test_what_is_generated_is_the_likeliest(folder):
    found = onnx_torch.bench_generation(folder / "model.onnx", ["onnx_torch"], prompt=7, tokens=9, rounds=1, seed=3)
    prompt = np.random.default_rng(3).integers(0, models.VOCABULARY, 7).tolist()
    lm = onnx_torch.LanguageModel(folder / "model.onnx")
    assert list(found.speeds[0].tokens) == lm.generate(prompt, max_new_tokens=9)[7:]


def test_the_command(folder, monkeypatch, capfd):
    cli = lambda *arguments: call("bench", *arguments, monkeypatch=monkeypatch, capfd=capfd)
    sizes = ("--generate", "--prompt", 4, "--tokens", 3, "--rounds", 1, "--threads", 1)
    code, out, err = cli(folder / "model.onnx", *sizes)
    assert code == 0 and err == ""
    for engine in ("onnx_torch", "onnxruntime"):
        assert re.search(rf"^{engine} +\d+\.\d +\d+\.\d +\d+\.\d{{3}} +\d+$", out, re.M)
    assert "1 rounds of 3 tokens after 4, in turns, on CPU, 1 threads" in out
    assert re.search(r"for a token, onnx_torch takes \d+\.\d\d times as long as onnxruntime", out)
    code, out, _ = cli(folder / "model.onnx", *sizes, "--engine", "onnxruntime", "--json")
    found = json.loads(out)
    assert code == 0 and found["same_tokens"] and [one["engine"] for one in found["engines"]] == ["onnxruntime"]
    assert {"prompt_tokens_per_second", "decode_tokens_per_second", "first_token_seconds", "peak_bytes"} <= set(
        found["engines"][0]
    )


def test_latencies_as_json(folder, monkeypatch, capfd):
    arguments = ("bench", folder / "merged.onnx", "--engine", "reference", "--rounds", 2, "--runs", 3, "--json")
    code, out, _ = call(*arguments, monkeypatch=monkeypatch, capfd=capfd)
    (engine,) = json.loads(out)["engines"]
    assert code == 0 and engine["engine"] == "reference" and [len(one) for one in engine["rounds"]] == [3, 3]


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (("model.onnx", "--prompt", 4), "it goes with --generate"),
        (("model.onnx", "--tokens", 4), "it goes with --generate"),
        (("model.onnx", "--generate", "--engine", "reference"), 'no engine "reference" that generates'),
        ((".", "--generate", "--tokens", 1), "1 is not in the range x>=2"),
        (("model.onnx", "--generate", "--limit", "memory=8"), "the option limits allows it 8"),
        (("model.onnx", "--generate", "--limit", "nodes=2"), "more nodes than the 2 that the option limits allows"),
        (("model.onnx", "--generate", "--rounds", 0), "0 is not in the range x>=1"),
        ((".",), "'.' is a folder; a language model goes with --generate"),
    ],
)
def test_mistakes_of_the_command(folder, monkeypatch, capfd, arguments, said):
    monkeypatch.chdir(folder)
    code, _, err = call("bench", *arguments, monkeypatch=monkeypatch, capfd=capfd)
    assert code == 2 and said in re.sub(r"[\s│]+", " ", err)


def test_models_that_are_not_measured(tmp_path):
    pair = models.export_pair(models.model_of("T5ForConditionalGeneration"), tmp_path / "pair")
    with pytest.raises(onnx_torch.InputError, match="the model has an encoder"):
        onnx_torch.bench_generation(pair, tokens=2)
    with pytest.raises(onnx_torch.InputError, match="at least one token of a prompt"):
        onnx_torch.bench_generation(pair, tokens=1)
    shutil.rmtree(pair)
