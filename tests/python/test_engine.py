"""Requests of one language model that are generated together: `Engine`, and the states that it joins."""

from __future__ import annotations

import functools
import json
import subprocess
import sys
import threading
import urllib.error
import urllib.request
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np
import onnx
import pytest

import language_models as models
import onnx_torch
import test_caches
import test_language_model_layouts as layouts
from onnx_torch.engine import StateBatch

ROOT = Path(__file__).parents[2]
# The models take different lengths by padding and positions, by padding alone, a window, their own lengths, or not.
KINDS = ["LlamaForCausalLM", "BloomForCausalLM", "MistralForCausalLM", "grouped", "merged"]
TOGETHER = KINDS[:-1]
PROMPTS = [[5, 9, 33, 40, 8, 21, 44], [17, 3, 4], [20, 31, 42, 6, 7], [11], [3, 1, 4, 1, 5, 9, 2, 6, 5, 3, 5]]


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory):
    folder: Path = tmp_path_factory.mktemp("engine")

    @functools.cache
    def make(kind: str) -> onnx_torch.LanguageModel:
        file = folder / f"{kind}.onnx"
        attention = getattr(test_caches, kind, None)
        if kind == "merged":
            onnx.save(layouts.merged()[0], file)
        elif attention:
            onnx.save(test_caches.decoder(attention), file)
        else:
            models.export(models.model_of(kind), file)
        return onnx_torch.LanguageModel(file)

    return make


def runs_of(lm: onnx_torch.LanguageModel, monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """Counts the sequences of each run that is to come."""
    sizes: list[int] = []
    plainly = onnx_torch.language_model.State.append

    def append(state, ids, *more, **others):
        sizes.append(len(ids))
        return plainly(state, ids, *more, **others)

    monkeypatch.setattr(onnx_torch.language_model.State, "append", append)
    return sizes


# --- States ---


@pytest.mark.parametrize("kind", TOGETHER)
def test_joined_states_go_on_as_each_by_itself(made, kind):
    lm = made(kind)
    assert lm.takes_lengths
    alone = [lm.start([prompt]) for prompt in PROMPTS]
    joined = onnx_torch.language_model.State.join([(state, [0]) for state in alone])
    assert joined.tokens == PROMPTS and [state.tokens for state in alone] == [[prompt] for prompt in PROMPTS]
    for token in range(3, 75):  # beyond the room of a first buffer
        together = joined.append(np.full((len(PROMPTS), 1), token % 50))
        for row, state in zip(together, alone, strict=True):
            np.testing.assert_allclose(row, state.append([[token % 50]])[0], rtol=2e-4, atol=2e-4)
    some = onnx_torch.language_model.State.join([(joined, [3, 1]), (alone[2], [0])])
    assert len(some) == len(PROMPTS[2]) + 72  # padding that none of them needs is gone
    some.rewind(2)
    for number in (1, 2, 3):
        alone[number].rewind(2)
    together = some.append([[8], [9], [10]])
    for row, number, token in zip(together, (3, 1, 2), (8, 9, 10), strict=True):
        np.testing.assert_allclose(row, alone[number].append([[token]])[0], rtol=2e-4, atol=2e-4)


def test_states_that_cannot_be_joined(made):
    join = onnx_torch.language_model.State.join
    lm = made("merged")
    assert not lm.takes_lengths
    short, long = lm.start([[1, 2]]), lm.start([[1, 2, 3]])
    with pytest.raises(onnx_torch.InputError, match="different lengths cannot be one batch of this model"):
        join([(short, [0]), (long, [0])])
    assert join([(short, [0, 0])]).tokens == [[1, 2], [1, 2]]
    for parts, why in (
        ([], "no state to join"),
        ([(short, [1])], "no sequence 1"),
        ([(short, [])], "must have read a sequence"),
        ([(lm.start(), [0])], "must have read a sequence"),
        ([(short, [0]), (made("grouped").start([[1, 2]]), [0])], "of different models"),
    ):
        with pytest.raises(onnx_torch.InputError, match=why):
            join(parts)


@pytest.mark.parametrize("kind", TOGETHER)
def test_members_come_and_go(made, kind, monkeypatch):
    lm = made(kind)
    batch = StateBatch(lm)
    states, alone = ([lm.start([prompt]) for prompt in PROMPTS] for _ in range(2))
    sizes = runs_of(lm, monkeypatch)
    for chosen in ([0, 1], [0, 1], [1, 0, 2, 3], [2], [2, 4], [], [4, 3, 2, 1, 0], [0, 4]):
        sizes.clear()
        logits = batch.append({states[i]: 7 + i for i in chosen})
        assert sizes == [len(chosen)] * bool(chosen)
        for row, i in zip(logits, chosen, strict=True):
            np.testing.assert_allclose(row, alone[i].append([[7 + i]])[0], rtol=2e-4, atol=2e-4)
    batch.put_back(states[4])
    batch.put_back(states[4])
    assert states[4].tokens == alone[4].tokens and states[2].tokens == alone[2].tokens
    batch.forget(states[0])
    np.testing.assert_allclose(
        batch.append({states[1]: 5, states[4]: 6}),
        np.concatenate([alone[1].append([[5]]), alone[4].append([[6]])]),
        rtol=2e-4,
        atol=2e-4,
    )


# --- Requests ---


@pytest.mark.parametrize("kind", KINDS)
def test_requests_give_what_each_gives_alone(made, kind):
    """Requests enter and leave meanwhile, and there are more of them than there is room for."""
    lm = made(kind)
    prompts = [[token % (9 if kind == "merged" else 50) for token in prompt] for prompt in PROMPTS]
    options = [
        {"max_new_tokens": 9},
        {"max_new_tokens": 30, "eos_token_id": [2, 30, 31, 32]},
        {"max_length": 12, "repetition_penalty": 1.7},
        {"max_new_tokens": 20, "do_sample": True, "seed": 3},
        {"no_repeat_ngram_size": 2, "min_new_tokens": 9, "eos_token_id": list(range(2, 40))},
    ]
    expected = [lm.generate(prompt, **each) for prompt, each in zip(prompts, options, strict=True)]
    engine = onnx_torch.Engine(lm, max_batch_size=3)
    requests = [engine.submit(prompts[0], **options[0])]
    for i in range(1, 5):
        assert engine.step()
        requests.append(engine.submit(prompts[i], **options[i]))
    while engine.step():
        pass
    assert not engine.step()
    assert [request.result() for request in requests] == expected
    for request, prompt, whole in zip(requests, prompts, expected, strict=True):
        assert list(request) == request.tokens == whole[len(prompt) :]
    assert requests[0].finish_reason == "length"


def test_requests_are_read_together(made, monkeypatch):
    lm = made("LlamaForCausalLM")
    engine = onnx_torch.Engine(lm)
    requests = [engine.submit(prompt, max_new_tokens=6) for prompt in PROMPTS]
    sizes = runs_of(lm, monkeypatch)
    while engine.step():
        pass
    assert sizes == [1] * 5 + [5] * 5
    assert all(request.finish_reason == "length" for request in requests)


def test_threads_share_steps(made, monkeypatch):
    lm = made("grouped")
    expected = [lm.generate(prompt, max_new_tokens=40)[len(prompt) :] for prompt in PROMPTS]
    engine, found = onnx_torch.Engine(lm), {}
    sizes = runs_of(lm, monkeypatch)
    start = threading.Barrier(len(PROMPTS))

    def serve(number: int) -> None:
        request = engine.submit(PROMPTS[number], max_new_tokens=40)
        start.wait()
        found[number] = list(request)

    threads = [threading.Thread(target=serve, args=(number,)) for number in range(len(PROMPTS))]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
    assert [found[number] for number in range(len(PROMPTS))] == expected
    assert sizes == [1] * 5 + [5] * 39


def test_cancelled_and_failing_requests(made):
    lm = made("LlamaForCausalLM")
    engine = onnx_torch.Engine(lm, max_batch_size=3)

    def failing(ids, scores):
        raise ValueError("a mistake of the caller's")

    good = engine.submit(PROMPTS[0], max_new_tokens=8)
    bad = engine.submit(PROMPTS[1], logits_processor=failing)
    cancelled, waiting = engine.submit(PROMPTS[2]), engine.submit(PROMPTS[3])
    waiting.cancel()
    assert next(cancelled) == lm.generate(PROMPTS[2], max_new_tokens=1)[-1]
    cancelled.cancel()
    for request in (cancelled, waiting):
        assert request.finish_reason == "cancelled"
        for ask in (lambda one: next(one), lambda one: one.result()):
            with pytest.raises(onnx_torch.StoppedError):
                ask(request)
    with pytest.raises(ValueError, match="a mistake of the caller's"):
        bad.result()
    assert good.result() == lm.generate(PROMPTS[0], max_new_tokens=8)
    assert repr(engine) == "<Engine of 0 requests, and 0 that wait>"


def test_an_interrupted_step_can_be_taken_again(made, monkeypatch):
    lm = made("LlamaForCausalLM")
    expected = [lm.generate(prompt, max_new_tokens=8) for prompt in PROMPTS]
    engine = onnx_torch.Engine(lm)
    requests = [engine.submit(prompt, max_new_tokens=8) for prompt in PROMPTS]
    engine.step()
    plainly = onnx_torch.engine.EngineRequest._choose
    for broken in (requests[0], requests[3]):

        def choose(request, broken=broken):
            if request is broken:
                raise KeyboardInterrupt
            plainly(request)

        monkeypatch.setattr(onnx_torch.engine.EngineRequest, "_choose", choose)
        with pytest.raises(KeyboardInterrupt):
            engine.step()
        monkeypatch.setattr(onnx_torch.engine.EngineRequest, "_choose", plainly)
    assert [request.result() for request in requests] == expected


def test_texts_prefixes_and_forms(made):
    plain = made("LlamaForCausalLM")
    lm = onnx_torch.LanguageModel(plain._reps[0], tokenizer=models.tokenizer())
    engine = onnx_torch.Engine(lm)
    text = engine.submit("w5 w9 w33", max_new_tokens=6)
    expected = lm.generate("w5 w9 w33", max_new_tokens=6)
    assert "".join(text) == text.result() == expected
    stop = expected.split()[2]
    assert engine.submit("w5 w9 w33", stop_strings=stop).result() == lm.generate("w5 w9 w33", stop_strings=stop)
    prefix = lm.start([PROMPTS[0]])
    continued = engine.submit(PROMPTS[1], prefix=prefix, repetition_penalty=1.5, max_new_tokens=6)
    assert continued.result() == lm.generate(PROMPTS[1], prefix=prefix, repetition_penalty=1.5, max_new_tokens=6)
    array = engine.submit(np.array([PROMPTS[1]]), max_new_tokens=3).result()
    assert np.array_equal(array, lm.generate(np.array([PROMPTS[1]]), max_new_tokens=3))


@pytest.mark.parametrize(
    ("ask", "why"),
    [
        (lambda engine: engine.submit(PROMPTS), "of one sequence"),
        (lambda engine: engine.submit([]), "of one token at least"),
        (lambda engine: engine.submit([1], num_beams=2), "no option num_beams; it has max_new_tokens"),
        (lambda engine: engine.submit([1], temperature=0, do_sample=True), "temperature must be more than 0"),
        (lambda engine: engine.submit([1], prefix=engine.model.start([[1], [2]])), "the prefix has 2 sequences"),
        (lambda engine: onnx_torch.Engine(engine.model, max_batch_size=0), "max_batch_size must be 1 or more"),
        (lambda engine: engine.submit([1] * 90, max_new_tokens=11), "room for 100 as max_length says"),
    ],
)
def test_what_is_wrong(made, ask, why):
    model = onnx_torch.LanguageModel(made("LlamaForCausalLM")._reps[0], max_length=100)
    with pytest.raises(onnx_torch.InputError, match=why):
        ask(onnx_torch.Engine(model))


def test_an_encoder_is_refused(tmp_path):
    pair = models.export_pair(models.model_of("T5ForConditionalGeneration"), tmp_path / "pair")
    with pytest.raises(onnx_torch.InputError, match="without an encoder"):
        onnx_torch.Engine(onnx_torch.LanguageModel(pair))


# --- Serving ---


@pytest.fixture
def served(made, tmp_path):
    """Gives the address of examples/serve.py with a model that has a tokenizer, in a process of its own."""
    file = Path(made("LlamaForCausalLM")._reps[0]._path)
    (tmp_path / "model.onnx").write_bytes(file.read_bytes())
    models.tokenizer().save(str(tmp_path / "tokenizer.json"))
    command = [sys.executable, str(ROOT / "examples" / "serve.py"), str(tmp_path), "--port", "0", "--threads", "1"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        try:
            yield process.stdout.readline().strip()
        finally:
            process.terminate()


def asked(address: str, **body) -> dict:
    with urllib.request.urlopen(urllib.request.Request(address, json.dumps(body).encode()), timeout=60) as answer:
        return json.load(answer)


def test_serving(made, served):
    """The server answers several requests at once, whole and as streams."""
    lm = made("LlamaForCausalLM")
    expected = [lm.generate(prompt, max_new_tokens=20)[len(prompt) :] for prompt in PROMPTS]
    with ThreadPoolExecutor(len(PROMPTS)) as pool:
        answers = list(pool.map(lambda prompt: asked(served, prompt=prompt, max_new_tokens=20), PROMPTS))
    assert answers == [{"generated": tokens, "finish_reason": "length"} for tokens in expected]
    text = asked(served, prompt="w5 w9 w33", max_new_tokens=4)["generated"]
    assert text == " ".join(f"w{token}" for token in lm.generate([5, 9, 33], max_new_tokens=4)[3:])
    body = json.dumps({"prompt": PROMPTS[0], "max_new_tokens": 20, "stream": True}).encode()
    with urllib.request.urlopen(urllib.request.Request(served, body), timeout=60) as stream:
        lines = [json.loads(line) for line in stream]
    assert lines == [*({"generated": token} for token in expected[0]), {"finish_reason": "length"}]


def test_clients_that_are_wrong_or_go_away(made, served):
    for body, status, why in (
        ({"prompt": []}, 400, "one token at least"),
        ({}, 400, 'with a "prompt"'),
        ({"prompt": [1], "num_beams": 2}, 400, "no option num_beams"),
        ({"prompt": [1], "temperature": "hot"}, 400, "temperature cannot be 'hot'"),
    ):
        with pytest.raises(urllib.error.HTTPError) as caught:
            asked(served, **body)
        assert caught.value.code == status and why in json.load(caught.value)["error"]
    with pytest.raises(urllib.error.HTTPError) as caught:
        asked(served.replace("generate", "elsewhere"), prompt=[1])
    assert caught.value.code == 404
    body = json.dumps({"prompt": PROMPTS[0], "max_new_tokens": 100, "stream": True}).encode()
    with urllib.request.urlopen(urllib.request.Request(served, body), timeout=60) as stream:
        stream.readline()
    assert len(asked(served, prompt=PROMPTS[1], max_new_tokens=5)["generated"]) == 5
