"""Text out of decoders: the tokens that transformers generates, from models that torch has exported."""

from __future__ import annotations

import functools
import resource
import shutil
import subprocess
import sys
import threading
from collections import Counter
from pathlib import Path

import numpy as np
import pytest
import torch
import transformers
from torch import nn

import language_models as models
import onnx_torch

PROMPTS = [[5, 9, 33, 60, 8, 21, 44], [17, 3, 4], [50, 51, 52, 6, 7]]
EXPORTERS = {"torchscript": False, "dynamo": True}


@pytest.fixture(scope="module")
def exported(tmp_path_factory: pytest.TempPathFactory):
    """Gives a function that makes (model of torch, language model) of a class of transformers."""
    folder = tmp_path_factory.mktemp("language")

    @functools.cache
    def make(kind: str, exporter: str = "torchscript") -> tuple[nn.Module, onnx_torch.LanguageModel]:
        model = models.model_of(kind)
        file = models.export(model, folder / f"{kind}-{exporter}.onnx", EXPORTERS[exporter])
        return model, onnx_torch.LanguageModel(file)

    return make


def padded(prompts: list[list[int]]) -> tuple[torch.Tensor, torch.Tensor]:
    """Gives tokens and mask, with padding at the left."""
    longest = max(map(len, prompts))
    ids = torch.tensor([[models.PAD] * (longest - len(prompt)) + prompt for prompt in prompts])
    return ids, torch.tensor([[0] * (longest - len(prompt)) + [1] * len(prompt) for prompt in prompts])


def check(model: nn.Module, lm: onnx_torch.LanguageModel, **options) -> None:
    """Checks that a batch of prompts of different lengths gives what transformers gives."""
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


@pytest.mark.parametrize("sampled", [{"top_k": 5}, {"top_k": 0, "temperature": 0.7, "top_p": 0.6}, {"min_p": 0.2}])
def test_what_is_drawn(exported, sampled):
    """The second of two tokens is drawn as often as transformers draws it."""
    model, lm = exported("GPT2LMHeadModel")
    ids, mask = padded(PROMPTS[:1])
    options = {
        "do_sample": True,
        "max_new_tokens": 2,
        "pad_token_id": models.PAD,
        "num_return_sequences": 4000,
        **sampled,
    }
    torch.manual_seed(1)
    theirs = model.generate(ids, attention_mask=mask, **{"eos_token_id": None, **options})
    ours = lm.generate(ids, seed=1, **options)
    for column in (-2, -1):
        ours_count, theirs_count = (Counter(rows[:, column].tolist()) for rows in (ours, theirs))
        for token in ours_count | theirs_count:
            often = max(ours_count[token], theirs_count[token])
            assert abs(ours_count[token] - theirs_count[token]) < 6 * (2 * often) ** 0.5, token


WARPERS = {
    "typical_p": (0.5, "TypicalLogitsWarper"),
    "epsilon_cutoff": (0.02, "EpsilonLogitsWarper"),
    "eta_cutoff": (0.05, "EtaLogitsWarper"),
    "top_p": (0.4, "TopPLogitsWarper"),
    "min_p": (0.3, "MinPLogitsWarper"),
    "top_k": (3, "TopKLogitsWarper"),
}


@pytest.mark.parametrize("name", WARPERS)
def test_what_sampling_leaves_out(exported, name):
    """No token that transformers leaves out is drawn, and each that it keeps is, once it is likely enough."""
    value, warper = WARPERS[name]
    _, lm = exported("GPT2LMHeadModel")
    ids = torch.tensor(PROMPTS[:1])
    scores = lm.start(ids[:, :-1]).append(ids[:, -1:])
    kept = getattr(transformers, warper)(value)(ids, scores).softmax(1)[0]
    given = lm.generate(
        ids, do_sample=True, max_new_tokens=1, num_return_sequences=2000, seed=0, **{"top_k": 0, name: value}
    )
    drawn = Counter(given[:, -1].tolist())
    assert all(kept[token] > 0 for token in drawn)
    assert all(drawn[token] > 0 for token in range(models.VOCABULARY) if kept[token] > 0.01)


def test_a_seed_repeats_on_any_number_of_threads(exported):
    _, lm = exported("LlamaForCausalLM")
    options = {"do_sample": True, "max_new_tokens": 30, "num_return_sequences": 3}
    first = lm.generate(PROMPTS, seed=5, **options)
    assert lm.generate(PROMPTS, seed=5, **options) == first
    assert lm.generate(PROMPTS, seed=6, **options) != first
    assert onnx_torch.LanguageModel(lm._reps[0].replica(threads=2)).generate(PROMPTS, seed=5, **options) == first
    torch.manual_seed(3)
    default = lm.generate(PROMPTS, **options)
    torch.manual_seed(3)
    assert lm.generate(PROMPTS, **options) == default


@pytest.mark.parametrize("kind", ["MistralForCausalLM", "BloomForCausalLM"])
def test_an_assistant_changes_no_token(exported, kind):
    _, lm = exported(kind)
    _, other = exported("GPT2LMHeadModel")
    plain = lm.generate(PROMPTS, max_new_tokens=25, eos_token_id=[2, 30])
    for assistant in (lm, other):
        for count in (1, 4):
            ours = lm.generate(
                PROMPTS, max_new_tokens=25, eos_token_id=[2, 30], assistant_model=assistant, num_assistant_tokens=count
            )
            assert ours == plain


def test_an_assistant_changes_no_probability(exported):
    (_, lm), (_, assistant) = exported("GPT2LMHeadModel"), exported("BloomForCausalLM")
    options = {"do_sample": True, "top_k": 6, "max_new_tokens": 4}
    alone = lm.generate([PROMPTS[0]] * 700, seed=0, **options)
    assisted = lm.generate([PROMPTS[0]] * 700, seed=1, assistant_model=assistant, num_assistant_tokens=2, **options)
    for place in range(-4, 0):
        counts = [Counter(row[place] for row in rows) for rows in (alone, assisted)]
        for token in counts[0] | counts[1]:
            often = max(count[token] for count in counts)
            assert abs(counts[0][token] - counts[1][token]) < 6 * (2 * often) ** 0.5, (place, token)


# --- Forms ---


def test_what_goes_in_comes_out(exported):
    _, lm = exported("LlamaForCausalLM")
    prompt = PROMPTS[0]
    alone = lm.generate(prompt, max_new_tokens=4)
    assert alone[:-4] == prompt and len(alone) == len(prompt) + 4
    assert lm.generate([prompt], max_new_tokens=4) == [alone]
    for array in (np.array(prompt), np.array(prompt, np.int32)):
        given = lm.generate(array, max_new_tokens=4)
        assert given.dtype == np.int64 and given.tolist() == alone
    assert lm.generate(np.array([prompt]), max_new_tokens=4).tolist() == [alone]
    given = lm.generate(torch.tensor(prompt), max_new_tokens=4)
    assert isinstance(given, torch.Tensor) and given.tolist() == alone


def test_sequences_of_a_batch_are_as_they_are_alone(exported):
    _, lm = exported("Qwen2ForCausalLM")
    assert lm.generate(PROMPTS, max_new_tokens=12) == [lm.generate(p, max_new_tokens=12) for p in PROMPTS]


def test_streams(exported):
    _, lm = exported("LlamaForCausalLM")
    options = {"max_new_tokens": 12, "eos_token_id": [2, 30]}
    whole = lm.generate(PROMPTS[0], **options)
    assert list(lm.generate(PROMPTS[0], stream=True, **options)) == whole[len(PROMPTS[0]) :]
    columns = list(lm.generate(PROMPTS, stream=True, **options))
    for row, (prompt, sequence) in enumerate(zip(PROMPTS, lm.generate(PROMPTS, **options), strict=True)):
        assert [step[row] for step in columns if step[row] is not None] == sequence[len(prompt) :]


def test_logits_processors(exported):
    """The logits processors of transformers fit where tensors go in; others are given arrays."""
    model, lm = exported("GPT2LMHeadModel")
    banned = transformers.SuppressTokensLogitsProcessor(list(range(20, 50)))
    check(model, lm, logits_processor=transformers.LogitsProcessorList([banned]))
    seen = []

    def only_even(ids: np.ndarray, scores: np.ndarray) -> np.ndarray:
        seen.append((ids.shape, scores.shape))
        scores[:, 1::2] = -np.inf
        return scores

    out = lm.generate(PROMPTS, max_new_tokens=5, logits_processor=only_even)
    assert all(token % 2 == 0 for row, prompt in zip(out, PROMPTS, strict=True) for token in row[len(prompt) :])
    assert seen == [((3, 7 + step), (3, models.VOCABULARY)) for step in range(5)]
    with pytest.raises(onnx_torch.InputError, match="keep the shape"):
        lm.generate(PROMPTS, logits_processor=lambda ids, scores: scores[:, :5])
    with pytest.raises(ZeroDivisionError):
        lm.generate(PROMPTS, logits_processor=lambda ids, scores: 1 / 0)


def test_text(exported, tmp_path):
    _, plain = exported("LlamaForCausalLM")
    models.tokenizer().save(str(tmp_path / "tokenizer.json"))
    lm = onnx_torch.LanguageModel(plain._reps[0]._path, tokenizer=tmp_path / "tokenizer.json")
    new = lm.generate(PROMPTS[0], max_new_tokens=8)[len(PROMPTS[0]) :]
    text, expected = " ".join(f"w{token}" for token in PROMPTS[0]), " ".join(f"w{token}" for token in new)
    assert lm.generate(text, max_new_tokens=8) == expected
    assert lm.generate([text, text], max_new_tokens=8) == [expected, expected]
    assert "".join(lm.generate(text, max_new_tokens=8, stream=True)) == expected
    stop = f"w{new[3]}"
    assert lm.generate(text, max_new_tokens=8, stop_strings=stop) == expected[: expected.index(stop) + len(stop)]
    with pytest.raises(onnx_torch.InputError, match="give one by tokenizer="):
        plain.generate(text)


# --- States ---


def test_a_state_gives_the_logits_of_torch(exported):
    model, lm = exported("GPT2LMHeadModel")
    ids, mask = padded(PROMPTS)
    state = lm.start(ids, mask)
    assert state.batch_size == 3 and len(state) == 7 and state.tokens == PROMPTS
    more = torch.tensor([[11, 12], [13, 14], [15, 16]])
    ours = state.append(more, all=True)
    for row, prompt in enumerate(PROMPTS):
        theirs = model(torch.tensor([prompt + more[row].tolist()])).logits[0, -2:]
        torch.testing.assert_close(ours[row], theirs, atol=1e-5, rtol=1e-5)


def test_logits_are_computed_for_the_last_token_alone(exported, tmp_path):
    _, lm = exported("LlamaForCausalLM")
    [rep] = (rep for rep in lm._reps if rep)
    assert rep.options["last_only"] == {"logits", "lm_logits"}
    *_, product, returned = rep.graph().strip().splitlines()
    logits = returned.split("(")[1].split(",")[0]
    assert product.split(":")[0].strip() == logits and "onnx_torch::packed" in product  # and no slice of a product
    rep.save(tmp_path / "saved")
    assert onnx_torch.load(tmp_path / "saved").options["last_only"] == rep.options["last_only"]
    ids = np.array([PROMPTS[0]])
    whole = onnx_torch.LanguageModel(rep.replica(last_only=()))
    alone, each = (state.append(ids, all=all) for state, all in ((lm.start(), False), (whole.start(), True)))
    np.testing.assert_allclose(alone, each[:, -1], rtol=1e-5, atol=1e-5)
    np.testing.assert_array_equal(lm.start().append(ids, all=True), each)


@pytest.mark.parametrize("kind", ["LlamaForCausalLM", "MistralForCausalLM"])
def test_a_state_that_goes_back_is_as_a_fresh_one(exported, kind):
    _, lm = exported(kind)
    steps = [np.array([[7, 8]]), np.array([[9]]), np.array([[10]])]
    state, fork, expected = models.check_going_back(lm, PROMPTS[0], steps)
    fork.reorder([0, 0])
    state.reorder([0, 0])
    assert fork.tokens == state.tokens == [PROMPTS[0] + [7, 8, 9, 10]] * 2
    two = np.array([[3], [4]])
    assert np.array_equal(fork.append(two), state.append(two))
    state.rewind(len(state))
    state.append(np.array([PROMPTS[0]]))
    assert np.array_equal(state.append(steps[0]), expected[0])


def test_a_prefix_serves_many(exported):
    _, lm = exported("GPT2LMHeadModel")
    prefix = lm.start(PROMPTS[0])
    for _ in range(2):
        given = lm.generate([[9, 4], [17, 8, 9]], prefix=prefix, max_new_tokens=9)
        whole = lm.generate([PROMPTS[0] + [9, 4], PROMPTS[0] + [17, 8, 9]], max_new_tokens=9)
        assert given == [row[len(PROMPTS[0]) :] for row in whole]
    assert prefix.tokens == [PROMPTS[0]]
    assert lm.generate([9, 4], prefix=prefix, num_beams=3) == lm.generate(PROMPTS[0] + [9, 4], num_beams=3)[7:]


def test_what_fails_leaves_a_state_as_it_was(exported):
    _, lm = exported("GPT2LMHeadModel")
    state = lm.start(PROMPTS[0])
    for wrong in (np.zeros((2, 1), np.int64), np.zeros((1, 0), np.int64), np.array([[10**6]])):
        with pytest.raises(onnx_torch.Error):
            state.append(wrong)
    for count in (-1, 8):
        with pytest.raises(onnx_torch.InputError):
            state.rewind(count)
    with pytest.raises(onnx_torch.InputError, match="no sequence 1"):
        state.reorder([1])
    assert np.array_equal(state.append([[5]]), lm.start(PROMPTS[0]).append([[5]]))


# --- Ends ---


def test_a_generation_is_cancelled(exported):
    _, lm = exported("LlamaForCausalLM")
    event = threading.Event()
    seen = []

    def processor(ids: np.ndarray, scores: np.ndarray) -> np.ndarray:
        seen.append(ids.shape[1])
        if len(seen) == 3:
            threading.Thread(target=event.set).start()
            assert event.wait(10)
        return scores

    with pytest.raises(onnx_torch.StoppedError, match="cancelled"):
        lm.generate(PROMPTS, max_new_tokens=50, cancel=event, logits_processor=processor)
    assert len(seen) == 3
    stream = lm.generate(PROMPTS[0], max_new_tokens=50, stream=True)
    next(stream)
    stream.cancel()
    with pytest.raises(onnx_torch.StoppedError, match="cancelled"):
        next(stream)


def resident() -> int:
    return int(Path("/proc/self/statm").read_text().split()[1]) * resource.getpagesize()


def test_memory_stays_flat(exported):
    _, lm = exported("GPT2LMHeadModel")
    options = {"max_new_tokens": 3, "do_sample": True}
    for _ in range(200):
        lm.generate(PROMPTS, **options)
    before = resident()
    for _ in range(1000):
        lm.generate(PROMPTS, **options)
    assert resident() - before < 4 << 20


def test_mistakes(exported):
    _, lm = exported("LlamaForCausalLM")
    for wrong, why in [
        ({"temperature": 0, "do_sample": True}, "temperature must be more than 0"),
        ({"top_p": 2}, "top_p must be from 0 to 1"),
        ({"num_return_sequences": 2}, "needs do_sample or num_beams"),
        ({"num_beams": 2, "num_return_sequences": 3}, "at most num_beams"),
        ({"num_beams": 2, "stream": True}, "cannot be streamed"),
        ({"early_stopping": "soon", "num_beams": 2}, "early_stopping must be"),
        ({"max_length": 3}, "has 7 tokens already"),
        ({"max_new_tokens": 0}, "max_new_tokens must be 1 or more"),
        ({"top_k": "many"}, "top_k cannot be 'many'"),
        ({"attention_mask": [[1]]}, "sizes of the tokens"),
        ({"assistant_model": lm, "num_beams": 2}, "not for beams"),
    ]:
        with pytest.raises(onnx_torch.InputError, match=why):
            lm.generate(PROMPTS[0], **wrong)
    for inputs in (None, [], [[]], np.zeros((1, 2, 3), np.int64), np.zeros(3, np.float32)):
        with pytest.raises(onnx_torch.InputError):
            lm.generate(inputs)
    with pytest.raises(TypeError, match="temprature"):
        lm.generate(PROMPTS[0], temprature=0.5)


# --- The command line, and torch ---


def test_generate_on_the_command_line(exported, tmp_path):
    _, lm = exported("LlamaForCausalLM")
    shutil.copy(lm._reps[0]._path, tmp_path / "model.onnx")
    models.tokenizer().save(str(tmp_path / "tokenizer.json"))
    (tmp_path / "generation_config.json").write_text('{"repetition_penalty": 1.5}')
    new = lm.generate(PROMPTS[0], max_new_tokens=8, repetition_penalty=1.5)[len(PROMPTS[0]) :]
    text = " ".join(f"w{token}" for token in PROMPTS[0])

    def output(*arguments: str) -> tuple[str, str]:
        command = [
            sys.executable,
            "-m",
            "onnx_torch_cli",
            "generate",
            str(tmp_path),
            *arguments,
            "--max-new-tokens",
            "8",
        ]
        done = subprocess.run(command, capture_output=True, text=True)
        assert done.returncode == 0, done.stderr
        return done.stdout, done.stderr

    printed, told = output(text, "--layout")
    assert printed == " ".join(f"w{token}" for token in new) + "\n"
    assert "past_key_values.0.key → present.0.key" in told and "7 more at" in told
    printed, told = output(",".join(map(str, PROMPTS[0])), "--ids", "--num-beams", "2")
    beams = lm.generate(PROMPTS[0], max_new_tokens=8, num_beams=2, repetition_penalty=1.5)
    assert [int(token) for token in printed.split()] == beams[len(PROMPTS[0]) :] and "8 tokens after 7" in told


def test_limits_hold_for_a_language_model(exported):
    _, lm = exported("LlamaForCausalLM")
    path = lm._reps[0]._path
    limited = onnx_torch.LanguageModel(path, limits={"seconds": 100, "memory": 1e9})
    assert limited.generate(PROMPTS[0], max_new_tokens=3) == lm.generate(PROMPTS[0], max_new_tokens=3)
    with pytest.raises(onnx_torch.StoppedError, match="the option limits allows it 8"):
        onnx_torch.LanguageModel(path, limits={"memory": 8}).generate(PROMPTS[0], max_new_tokens=3)
    command = [sys.executable, "-m", "onnx_torch_cli", "generate", path, "5,6", "--ids", "--limit", "memory=8"]
    done = subprocess.run(command, capture_output=True, text=True)
    assert done.returncode == 2 and "the option limits allows it 8" in done.stderr


def test_torch_is_not_imported(exported):
    _, lm = exported("LlamaForCausalLM")
    script = """
import sys, numpy as np, onnx_torch
lm = onnx_torch.LanguageModel(sys.argv[1])
lm.generate(np.array([[5, 6]]), do_sample=True, seed=0, logits_processor=lambda ids, scores: scores)
lm.start([[5]]).append([[6]])
assert "torch" not in sys.modules
"""
    subprocess.run([sys.executable, "-c", script, lm._reps[0]._path], check=True)
