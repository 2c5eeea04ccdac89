"""compat.onnxruntime_genai has onnxruntime-genai's names, and generates the tokens that transformers generate."""

from __future__ import annotations

import itertools
import json
import math
import shutil
import sys
import threading
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
import tokenizers
import torch

import language_models as models
import onnx_torch
import onnx_torch.compat.onnxruntime_genai as og
from genai_programs import generate, generator, run
from onnx_torch import _C
from onnx_torch.compat.onnxruntime_genai._search import BeamSearch, Rules
from onnx_torch.language_model import sizes_of_genai
from onnx_torch.text_of_tokens import TextStream

PROMPT = [5, 9, 33, 60, 8, 21, 44]
PROMPTS = [PROMPT, [17, 3, 4], [50, 51, 52, 6, 7]]
SEARCH = {"max_length": 24, "early_stopping": True, "past_present_share_buffer": True}


def tokenizer() -> tokenizers.Tokenizer:
    """Makes a tokenizer of single characters, and of the bytes of characters that need several."""
    numbers = {token: number for number, token in enumerate(["<s>", "<pad>", "</s>", "<unk>"])}
    for character in "abcdefghijklmnopqrstuvwxyz<>:Ġ" + "".join(map(chr, range(0xA1, 0xAC))) + "Ãâ":
        numbers.setdefault(character, len(numbers))
    made = tokenizers.Tokenizer(tokenizers.models.BPE(numbers, [], unk_token="<unk>"))
    made.pre_tokenizer = tokenizers.pre_tokenizers.ByteLevel(add_prefix_space=False)
    made.decoder = tokenizers.decoders.ByteLevel()
    made.add_special_tokens(["<s>", "<pad>", "</s>"])
    made.post_processor = tokenizers.processors.TemplateProcessing("<s> $0", None, [("<s>", 0)])
    assert len(numbers) < models.VOCABULARY
    return made


def head_size_open(file: Path) -> None:
    """Leaves the size of a head open, as the builder does."""
    model = onnx.load(file)
    for info in [*model.graph.input, *model.graph.output]:
        if "past" in info.name or "present" in info.name:
            info.type.tensor_type.shape.dim[3].dim_param = "kv_cache_dim"
    onnx.save(model, file)


@pytest.fixture(scope="module")
def written(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Makes a folder as onnxruntime-genai's builder lays it out, with what torch exports."""
    folder = tmp_path_factory.mktemp("genai")
    head_size_open(models.export(models.model_of("LlamaForCausalLM"), folder / "model.onnx"))
    decoder = {"filename": "model.onnx", "head_size": 8, "session_options": {"provider_options": []}}
    tokens = {"bos_token_id": 0, "pad_token_id": models.PAD, "eos_token_id": 2}
    model = {"type": "llama", "context_length": 128, "vocab_size": models.VOCABULARY, "decoder": decoder, **tokens}
    (folder / "genai_config.json").write_text(json.dumps({"model": model, "search": SEARCH}))
    tokenizer().save(str(folder / "tokenizer.json"))
    return folder


@pytest.fixture(scope="module")
def model(written) -> og.Model:
    return og.Model(str(written))


@pytest.fixture(scope="module")
def theirs() -> torch.nn.Module:
    return models.model_of("LlamaForCausalLM")


# --- The same tokens ---


@pytest.mark.parametrize(
    "options", [{}, {"repetition_penalty": 1.7}, {"no_repeat_ngram_size": 2}, {"min_length": 20}], ids=str
)
def test_greedy_is_transformers(model, theirs, options):
    """The token that ends a sequence is no part of it here."""
    for prompt in PROMPTS:
        expected = theirs.generate(
            torch.tensor([prompt]), max_length=24, do_sample=False, eos_token_id=2, pad_token_id=1, **options
        )
        assert generate(model, prompt, **options) == [[token for token in expected[0].tolist() if token != 2]]


def test_several_ends(written):
    config = og.Config(written)
    whole = generate(og.Model(config), PROMPT)[0]
    config.overlay(json.dumps({"model": {"eos_token_id": [whole[10], 66]}}))
    first = whole.index(whole[10], len(PROMPT))
    made = generator(og.Model(config), PROMPT)
    while not made.is_done():
        made.generate_next_token()
    assert made.get_sequence(0).tolist() == whole[:first]
    assert made.get_next_tokens().tolist() == [whole[10]]
    made.generate_next_token()  # changes nothing
    assert made.token_count() == first


def test_batches(model):
    """Rows of different lengths have padding behind what was given, and are generated as each is alone."""
    longest = max(map(len, PROMPTS))
    tokens = [[*prompt, *[models.PAD] * (longest - len(prompt))] for prompt in PROMPTS]
    options = {"batch_size": 3, "max_length": longest + 9}
    batch = generate(model, tokens, **options)
    assert generate(model, np.ravel(tokens), **options) == batch
    assert batch == generate(model, og.Tensor(np.array(tokens, np.int32)), **options)
    for prompt, given, row in zip(PROMPTS, tokens, batch, strict=True):
        alone = generate(model, prompt, max_length=len(prompt) + 9)[0][len(prompt) :]
        assert row[:longest] == given
        assert row[longest:] == alone + [models.PAD] * (9 - len(alone))


def test_beams_are_transformers(written, theirs):
    """The sequences do not end, as transformers has changed how it weighs those that do."""
    config = og.Config(written)
    config.model["eos_token_id"] = []
    model = og.Model(config)
    for prompt in PROMPTS:
        options = {"num_beams": 4, "num_return_sequences": 3}
        expected = theirs.generate(
            torch.tensor([prompt]), max_length=20, do_sample=False, eos_token_id=None, pad_token_id=1, **options
        )
        assert generate(model, prompt, max_length=20, **options) == expected.tolist()
    both = [PROMPTS[0][:5], PROMPTS[2]]
    options = {"num_beams": 2, "num_return_sequences": 2, "max_length": 14}
    alone = [row for prompt in both for row in generate(model, prompt, **options)]
    assert generate(model, both, batch_size=2, **options) == alone


@pytest.mark.parametrize("length_penalty", [1.0, 0.0, 2.5])
def test_beams_that_end(length_penalty):
    """The search with as many beams as beginnings finds the best of all sequences, those that end included."""
    vocabulary, end, longest = 4, 3, 5
    prompt, beams = [0], vocabulary ** (longest - 2)
    table = np.random.default_rng(3).normal(0, 2, (vocabulary, vocabulary)).astype(np.float32)
    logs = table - np.log(np.exp(table).sum(axis=1, keepdims=True))

    def score(tokens: tuple[int, ...]) -> float:
        return sum(logs[one, other] for one, other in itertools.pairwise((*prompt, *tokens)))

    possible: dict[tuple[int, ...], float] = {}
    for length in range(longest):
        for tokens in itertools.product(range(vocabulary - 1), repeat=length):
            sequence = (*prompt, *tokens)
            weight = len(sequence) ** length_penalty
            possible[sequence] = score(tokens if len(sequence) == longest else (*tokens, end)) / weight
    expected = sorted(possible, key=lambda sequence: -possible[sequence])[:5]

    rules = Rules([end], 0, 1, longest, beams, 5, length_penalty, early_stopping=True)
    search = BeamSearch([prompt], rules, _C.Choice({}))
    while not search.done:
        search.take(table[[tokens[-1] for tokens in search.sequences]])
    assert [tuple(tokens) for tokens in search.results()] == expected


def test_sampling(model):
    options = {"do_sample": True, "max_length": 20, "temperature": 3.0, "top_k": 0, "top_p": 1.0}
    first = generate(model, PROMPT, random_seed=4, **options)
    assert generate(model, PROMPT, random_seed=4, **options) == first
    assert generate(model, PROMPT, random_seed=5, **options) != first
    greedy = generate(model, PROMPT, max_length=20)
    for same in ({"top_k": 1}, {"temperature": 0.0}, {"top_k": 0, "top_p": 0.0}, {"top_p": 1e-6}):
        assert generate(model, PROMPT, do_sample=True, max_length=20, **same) == greedy


@pytest.mark.parametrize(
    ("options", "kept"),
    [
        ({"top_k": 3}, 3),
        ({"top_k": 0, "top_p": 0.8}, 3),
        ({"top_k": 4, "top_p": 0.9, "temperature": 2.0}, 4),
        ({"top_k": 3, "top_p": 1.0}, 3),
        ({"top_k": 3, "top_p": 0.0}, 3),
    ],
    ids=str,
)
def test_what_is_drawn(model, options, kept):
    """The shares of the tokens that are drawn are those of the logits that are given."""
    logits = np.full(models.VOCABULARY, -9, np.float32)
    logits[10:16] = [3, 2.5, 1.5, 1, 0.5, 0]
    weights = np.exp(np.sort(logits)[::-1][:kept] / options.get("temperature", 1.0))
    made = generator(model, [[5]] * 32, batch_size=32, max_length=42, do_sample=True, random_seed=1, **options)
    drawn = []
    for _ in range(40):
        made.set_logits(np.tile(logits, (32, 1, 1)))
        made.generate_next_token()
        drawn += made.get_next_tokens().tolist()
    shares = np.bincount(drawn, minlength=models.VOCABULARY)[10 : 10 + kept] / len(drawn)
    assert shares.sum() == 1
    four_deviations = 4 * math.sqrt(0.25 / len(drawn))  # a share of a half has the largest
    np.testing.assert_allclose(shares, weights / weights.sum(), rtol=0, atol=four_deviations)


# --- Step by step ---


def test_more_tokens_and_rewinding(model):
    made = generator(model, PROMPT, max_length=40)
    for _ in range(3):
        made.generate_next_token()
    so_far = made.get_sequence(0).tolist()
    made.append_tokens([9, 11])
    assert made.get_next_tokens().tolist() == [11] and made.token_count() == len(so_far) + 2
    for _ in range(3):
        made.generate_next_token()
    whole = made.get_sequence(0).tolist()
    assert whole == generate(model, [*so_far, 9, 11], max_length=len(whole))[0]
    for kept in (len(so_far) + 2, 4, 1):
        made.rewind_to(kept)
        assert made.get_sequence(0).tolist() == whole[:kept]
        made.generate_next_token()
        assert made.get_sequence(0).tolist() == generate(model, whole[:kept], max_length=kept + 1)[0]
    made.rewind_to(1)
    made.append_tokens(np.array(PROMPT, np.int32))
    made.generate_next_token()
    assert made.get_sequence(0).tolist() == generate(model, [whole[0], *PROMPT], max_length=9)[0]
    made.rewind_to(0)
    assert made.token_count() == 0
    made.append_tokens(PROMPT)
    made.generate_next_token()
    assert made.get_sequence(0).tolist() == whole[: len(PROMPT) + 1]


def test_the_room_of_caches(model):
    for is_shared, room in ((True, 40), (False, None)):
        made = generator(model, PROMPT, max_length=40, past_present_share_buffer=is_shared)
        assert [state.max_length for state in made.states] == [room]


def test_logits(model, theirs):
    made = generator(model, PROMPT, max_length=40)
    expected = theirs(torch.tensor([PROMPT])).logits.numpy()
    np.testing.assert_allclose(made.get_logits(), expected[:, -1:], atol=1e-4)
    np.testing.assert_allclose(made.get_output("logits"), expected, atol=1e-4)
    assert made.get_input("input_ids").tolist() == [PROMPT]
    made.generate_next_token()
    chosen = made.get_sequence(0).tolist()
    after = theirs(torch.tensor([chosen])).logits.numpy()[:, -1:]
    np.testing.assert_allclose(made.get_logits(), after, atol=1e-4)
    np.testing.assert_allclose(made.get_output("logits"), after, atol=1e-4)
    assert made.get_input("attention_mask").tolist() == [[1] * 8]
    given = np.zeros((1, 1, models.VOCABULARY), np.float32)
    given[..., 33] = 5
    made.set_logits(given)
    made.generate_next_token()
    made.generate_next_token()
    assert made.get_sequence(0).tolist() == generate(model, [*chosen, 33], max_length=10)[0]
    made.rewind_to(3)
    np.testing.assert_allclose(made.get_output("logits")[:, -1:], expected[:, 2:3], atol=1e-4)


def test_outputs_of_beams_and_batches(model, theirs):
    rows = [[5, 9, 33], [17, 3, models.PAD]]
    made = generator(model, rows, num_beams=2, batch_size=2, max_length=9)
    logits = made.get_output("logits")
    assert logits.shape == (4, 3, models.VOCABULARY)
    np.testing.assert_allclose(logits[1], theirs(torch.tensor([rows[0]])).logits[0].numpy(), atol=1e-4)
    np.testing.assert_allclose(logits[3, :2], theirs(torch.tensor([rows[1][:2]])).logits[0].numpy(), atol=1e-4)
    made.generate_next_token()
    made.get_logits()
    assert made.get_input("input_ids").ravel().tolist() == made.get_next_tokens().tolist()


def test_terminating(model):
    made = generator(model, PROMPT)
    made.set_runtime_option("terminate_session", "1")
    for use in (made.generate_next_token, made.is_done, made.get_logits, lambda: made.append_tokens([3])):
        with pytest.raises(onnx_torch.StoppedError, match="terminated"):
            use()
    made.set_runtime_option("terminate_session", "0")
    made.generate_next_token()
    assert made.token_count() == len(PROMPT) + 1


WRONG = [
    (lambda m: og.GeneratorParams(m).set_search_options(length=2), "no search option"),
    (lambda m: og.GeneratorParams(m).set_search_options(do_sample=1), "True or False"),
    (lambda m: og.GeneratorParams(m).set_search_options(max_length=True), "a number"),
    (lambda m: og.GeneratorParams(m).set_search_options(max_length=2.5), "a whole number"),
    (lambda m: generator(m, PROMPT, max_length=129), "context_length 128"),
    (lambda m: generator(m, PROMPT, max_length=0), "max_length must be 1"),
    (lambda m: generator(m, PROMPT, max_length=5), "max_length is 5"),
    (lambda m: generator(m, PROMPT, batch_size=0), "batch_size must be from 1 to 32"),
    (lambda m: generator(m, PROMPT, batch_size=2), "no 2 sequences of one length"),
    (lambda m: generator(m, [[1, 1], [5, 6]], batch_size=2), "padding .* alone"),
    (lambda m: generator(m, [[5, 6], [7, 8]]), "no 1 sequences of one length"),
    (lambda m: generator(m, PROMPT, num_beams=33), "num_beams must be"),
    (lambda m: generator(m, PROMPT, num_return_sequences=2), "num_return_sequences must be"),
    (lambda m: generator(m, PROMPT, num_beams=2, do_sample=True), "beams are not drawn"),
    (lambda m: generator(m, PROMPT, do_sample=True, top_p=1.5), "top_p must be"),
    (lambda m: generator(m, PROMPT, do_sample=True, top_k=68), "top_k must be"),
    (lambda m: generator(m, PROMPT, do_sample=True, temperature=-1.0), "temperature must be"),
    (lambda m: generator(m, []), "no tokens"),
    (lambda m: og.Generator(m, og.GeneratorParams(m)).generate_next_token(), "append_tokens gives one"),
    (lambda m: og.Generator(m, og.GeneratorParams(m)).get_logits(), "append_tokens gives one"),
    (lambda m: og.Generator(m, og.GeneratorParams(m)).set_logits(np.zeros(67)), "append_tokens gives one"),
    (lambda m: generator(m, PROMPT).set_logits(np.zeros(12)), r"\[1, 1, 67\]"),
    (lambda m: generator(m, PROMPT).rewind_to(8), "cannot be kept"),
    (lambda m: generator(m, [[5, 6]] * 2, batch_size=2).rewind_to(1), r"rewind_to\(0\)"),
    (lambda m: generator(m, [[5, 6]] * 2, batch_size=2).append_tokens([7, 8]), r"rewind_to\(0\)"),
    (lambda m: generator(m, PROMPT).get_sequence(1), "there are 1"),
    (lambda m: generator(m, PROMPT).get_input("position"), "cannot be had"),
    (lambda m: generator(m, PROMPT).get_output("present.0.key"), "cannot be had"),
    (lambda m: generator(m, PROMPT).set_runtime_option("terminate_session", "x"), '"0" or "1"'),
    (lambda m: generator(m, PROMPT, max_length=7).generate_next_token(), "which is max_length"),
]


@pytest.mark.parametrize(("use", "why"), WRONG, ids=[why for _, why in WRONG])
def test_what_is_wrong(model, use, why):
    with pytest.raises(onnx_torch.InputError, match=why):
        use(model)


def test_what_is_not_served(model):
    params = og.GeneratorParams(model)
    made = generator(model, PROMPT)
    params.set_guidance("", "")
    params.set_speculative_options(max_draft_tokens=3)
    assert params.try_graph_capture_with_max_batch_size(1) is None
    for use in (
        lambda: params.set_guidance("regex", "a+"),
        lambda: made.set_active_adapter(None, "a"),
        lambda: made.set_inputs({}),
        lambda: og.MultiModalProcessor(model),
        lambda: og.Images.open("a.png"),
        lambda: og.register_execution_provider_library("a", "b"),
    ):
        with pytest.raises(onnx_torch.UnsupportedError):
            use()
    with pytest.raises(onnx_torch.UnsupportedError, match="onnxruntime_genai's Adapters: .* merge them"):
        og.Adapters(model)


# --- Folders ---


def test_settings(written, model):
    assert (model.type, model.device_type) == ("llama", "CPU")
    options = og.GeneratorParams(model).get_search_options()
    assert options["max_length"] == 24.0 and options["early_stopping"] is True and options["random_seed"] == -1.0
    config = og.Config(str(written))
    config.overlay('{"search": {"max_length": 9}, "model": {"eos_token_id": [5]}}')
    assert og.GeneratorParams(og.Model(config)).get_search_options()["max_length"] == 9.0
    assert og.Tokenizer(config).eos_token_ids == [2, 5]
    for wrong in ("{", "[]"):
        with pytest.raises(onnx_torch.InputError, match="an overlay must be"):
            config.overlay(wrong)


def test_providers(written):
    config = og.Config(written)
    config.append_provider("dml")
    with pytest.raises(onnx_torch.DeviceError, match='no provider "dml" here; config.clear_providers'):
        og.Model(config)
    config.clear_providers()
    assert og.Model(config).device_type == "CPU"
    config.set_provider_option("cuda", "device_id", "7")
    with pytest.raises(onnx_torch.DeviceError, match="CUDA:7"):
        og.Model(config)


def test_models_in_memory(written, model, tmp_path):
    whole = onnx.load(written / "model.onnx")
    onnx.save(whole, tmp_path / "model.onnx", save_as_external_data=True, location="weights", size_threshold=64)
    config = og.Config(written)
    config.add_model_data("model.onnx", (tmp_path / "model.onnx").read_bytes())
    with pytest.raises(onnx_torch.Error, match="weights"):
        og.Model(config)
    config.add_model_data("weights", np.fromfile(tmp_path / "weights", np.uint8))
    assert generate(og.Model(config), PROMPT) == generate(model, PROMPT)
    config.remove_model_data("model.onnx")
    config.remove_model_data("weights")
    assert generate(og.Model(config), PROMPT) == generate(model, PROMPT)


def test_folders_that_are_wrong(written, tmp_path):
    with pytest.raises(onnx_torch.InvalidModelError, match=r"there is no .*genai_config.json"):
        og.Model(str(tmp_path))
    file = tmp_path / "genai_config.json"
    for text, why in (("{", "is no JSON"), ("[]", 'has no "model"')):
        file.write_text(text)
        with pytest.raises(onnx_torch.InvalidModelError, match=why):
            og.Config(tmp_path)
    file.write_text('{"model": {"vision": {"filename": "vision.onnx"}}}')
    with pytest.raises(onnx_torch.UnsupportedError, match="vision, for which this interface is not there"):
        og.Model(str(tmp_path))
    file.write_text('{"model": {}}')
    with pytest.raises(onnx_torch.InputError, match="text needs a tokenizer"):
        og.Tokenizer(str(tmp_path))


def test_the_language_model_of_a_folder(written, theirs):
    """The size of a head, which the builder leaves open, is the one that stands beside the model."""
    lm = onnx_torch.LanguageModel(written)
    expected = theirs.generate(
        torch.tensor([PROMPT]), max_new_tokens=9, do_sample=False, eos_token_id=2, pad_token_id=1
    )
    assert lm.generate(PROMPT, max_new_tokens=9) == expected[0].tolist()
    state = lm.start()
    assert (len(state), state.batch_size, state.tokens) == (0, 0, [])
    assert lm.generate(PROMPT, max_new_tokens=9, prefix=state) == expected[0].tolist()
    logits = state.append(np.array([PROMPT]))
    np.testing.assert_allclose(logits, theirs(torch.tensor([PROMPT])).logits[:, -1].numpy(), atol=1e-4)


def test_sizes_of_caches_that_the_builder_leaves_open():
    sizes = "float[batch_size, 2, past_sliding_length, kv_cache_dim]"
    model = onnx.parser.parse_model(
        f'<ir_version: 10, opset_import: ["": 21]> g ({sizes} x) => (float[n] y) {{ y = Relu(x) }}'
    )
    settings: dict[str, Any] = {"head_size": 16, "sliding_window": {"window_size": 6, "cache_slack": 2}}
    given = model.SerializeToString()
    assert sizes_of_genai({"model": {"decoder": settings}}, given) == {"kv_cache_dim": 16, "past_sliding_length": 8}
    settings.pop("sliding_window")
    assert sizes_of_genai({"model": {"decoder": settings}}, given) == {"kv_cache_dim": 16}
    assert sizes_of_genai({"model": {}}, given) == {}
    model.graph.input[0].type.tensor_type.shape.dim[3].dim_value = 16
    assert sizes_of_genai({"model": {"decoder": settings}}, model.SerializeToString()) == {}


# --- Text ---


def test_tokenizer(model):
    made = og.Tokenizer(model)
    tokens = made.encode("the é cat")
    assert tokens.dtype == np.int32 and made.decode(tokens) == "the é cat"
    assert made.decode(np.array([0, *tokens, 2])) == "the é cat"
    made.update_options(add_special_tokens="true", skip_special_tokens=False)
    assert made.encode("the é cat").tolist() == [0, *tokens]
    assert made.decode(np.array([0, *tokens, 2])) == "<s>the é cat</s>"
    with pytest.raises(onnx_torch.InputError, match="has no option"):
        made.update_options(spaces=True)
    with pytest.raises(onnx_torch.InputError, match="must be"):
        made.update_options(add_special_tokens="yes")
    assert (made.bos_token_id, made.pad_token_id, made.eos_token_ids) == (0, 1, [2])
    assert (made.to_token_id("</s>"), made.to_token_id("none")) == (2, -1)
    with pytest.raises(onnx_torch.InputError, match="the model has no bot_token_id"):
        _ = made.bot_token_id


def test_batches_of_texts(model):
    made = og.Tokenizer(model)
    batch = made.encode_batch(["the cat", "a"])
    assert batch.shape() == [2, 7] and batch.as_numpy()[1, 1:].tolist() == [1] * 6
    assert np.asarray(batch).dtype == np.int32 and batch.type() == onnx.TensorProto.INT32
    assert made.decode_batch(batch) == ["the cat", "a"]
    with pytest.raises(onnx_torch.InputError, match="no text"):
        made.encode_batch([])


def test_streams_of_text(model):
    """Characters of several bytes come as a whole."""
    made = og.Tokenizer(model)
    stream = made.create_stream()
    tokens = made.encode("aé b").tolist()
    assert [stream.decode(token) for token in tokens] == ["a", "", "é", " ", "b"]
    rng = np.random.default_rng(0)
    for _ in range(20):
        tokens = rng.integers(0, 46, 60).tolist()
        text = TextStream(tokenizer())
        pieces = [text.put([token]) for token in tokens]
        assert "".join(pieces) + text.end() == tokenizer().decode(tokens)


def test_streams_keep_spaces():
    """The first word of a text loses its space, wherever a special token stands."""
    words = {"<s>": 0, "▁a": 1, "▁b": 2, "c": 3}
    made = tokenizers.Tokenizer(tokenizers.models.WordLevel(words, unk_token="c"))
    made.decoder = tokenizers.decoders.Metaspace()
    made.add_special_tokens(["<s>"])
    for tokens in itertools.product(range(4), repeat=5):
        stream = TextStream(made)
        assert "".join(stream.put([token]) for token in tokens) == made.decode(list(tokens))
    stream = TextStream(made)
    for _ in range(100):
        stream.put([2])
    assert len(stream._tokens) < 3  # a long text is not decoded again for each token


CHAT = "{% for m in messages %}<{{ m.role }}>{{ m.content }}{% endfor %}{% if add_generation_prompt %}>{% endif %}"


def test_chat_templates(written, tmp_path):
    for name in ("genai_config.json", "tokenizer.json"):
        shutil.copy(written / name, tmp_path / name)
    made = og.Tokenizer(str(tmp_path))
    messages = json.dumps([{"role": "user", "content": "hi"}])
    with pytest.raises(onnx_torch.InputError, match="has no chat template"):
        made.apply_chat_template(messages)
    settings = {
        "bos_token": {"content": "<s>"},
        "chat_template": [{"name": "default", "template": "{{bos_token}}" + CHAT}],
    }
    (tmp_path / "tokenizer_config.json").write_text(json.dumps(settings))
    assert made.apply_chat_template(messages) == "<s><user>hi>"
    (tmp_path / "chat_template.jinja").write_text(CHAT)
    assert made.apply_chat_template(messages, add_generation_prompt=False) == "<user>hi"
    tools = "{% for t in tools %}{{ t | tojson }}{% break %}{% endfor %}"
    assert made.apply_chat_template(messages, template_str=tools, tools='[{"a": "é"}, 2]') == '{"a": "é"}'
    for template, given, why in (
        ("{{ raise_exception('no user') }}", messages, "no user"),
        ("{{ messages.append(1) }}", messages, "does not take"),
        ("{% if", messages, "does not take"),
        (CHAT, "[", "messages must be JSON"),
    ):
        with pytest.raises(onnx_torch.InputError, match=why):
            made.apply_chat_template(given, template_str=template)


def test_without_jinja(written, monkeypatch):
    monkeypatch.setitem(sys.modules, "jinja2", None)
    with pytest.raises(onnx_torch.InputError, match="pip install jinja2"):
        og.Tokenizer(str(written)).apply_chat_template("[]", template_str="a")


# --- Requests ---


def events(engine: Any, capacity: int = 8) -> list[Any]:
    buffer = engine.create_event_buffer(capacity)
    found = []
    while engine.has_pending_requests():
        assert engine.run(buffer) is buffer and 0 < len(buffer) <= capacity
        found += list(buffer)
    return found


def tokens_of(found: list[Any], request: Any) -> list[int]:
    return [event.token for event in found if event.request is request and event.flags & og.EngineEventFlags.TOKEN]


def test_turns(model):
    engine = og.Engine(model)
    options = og.RequestOptions()
    options.set_max_session_tokens(20)
    request = engine.create_request(options=options)
    turn = og.TurnOptions(request)
    turn.set_max_generated_tokens(4)
    assert request.begin_turn(PROMPT, turn) == 1
    with pytest.raises(onnx_torch.InputError, match="the turn before has not ended"):
        request.begin_turn([3])
    found = events(engine)
    first = tokens_of(found, request)
    assert [*PROMPT, *first] == generate(model, PROMPT, max_length=11)[0]
    assert (found[-1].finish_reason, found[-1].turn_id) == (og.FinishReason.MAX_GENERATED_TOKENS, 1)
    assert found[-1].usage == og.TurnUsage(7, 4, 0)
    assert request.begin_turn([9, 11]) == 2
    found = events(engine)
    given = [*PROMPT, *first, 9, 11]
    assert [*given, *tokens_of(found, request)] == generate(model, given, max_length=20)[0]
    assert found[-1].finish_reason == og.FinishReason.MAX_SESSION_TOKENS
    with pytest.raises(onnx_torch.InputError, match="no room for another one"):
        request.begin_turn([3], turn)
    request.rewind_to_start_of_turn(2)
    request.begin_turn([12], turn)
    given = [*PROMPT, *first, 12]
    assert [*given, *tokens_of(events(engine), request)] == generate(model, given, max_length=len(given) + 4)[0]
    request.close()
    request.close()
    with pytest.raises(onnx_torch.InputError, match="is closed"):
        request.begin_turn([3])


def test_requests_side_by_side(model):
    engine = og.Engine(model)
    requests = [engine.create_request() for _ in PROMPTS]
    for request, prompt in zip(requests, PROMPTS, strict=True):
        request.begin_turn(prompt)
    found = events(engine, capacity=2)
    assert {event.request for event in found[:3]} == set(requests)
    for request, prompt in zip(requests, PROMPTS, strict=True):
        assert [*prompt, *tokens_of(found, request)] == generate(model, prompt)[0]


def test_requests_are_read_together(model, monkeypatch):
    """Each step of all of them is one run, whatever their lengths; they enter and leave between steps."""
    expected = [generate(model, prompt, max_length=30)[0] for prompt in PROMPTS]
    sizes = []
    plainly = onnx_torch.language_model.State.append

    def append(state, ids, *more, **others):
        sizes.append(len(ids))
        return plainly(state, ids, *more, **others)

    monkeypatch.setattr(onnx_torch.language_model.State, "append", append)
    engine = og.Engine(model)
    buffer, found = engine.create_event_buffer(8), []
    options = og.RequestOptions()
    options.set_max_session_tokens(30)
    requests = []
    for prompt in PROMPTS:
        requests.append(engine.create_request(options=options))
        requests[-1].begin_turn(prompt)
        found += list(engine.run(buffer))
    while engine.has_pending_requests():
        found += list(engine.run(buffer))
    for request, prompt, whole in zip(requests, PROMPTS, expected, strict=True):
        assert [*prompt, *tokens_of(found, request)] == whole
    assert len(PROMPTS) == 3 and {1, 2, 3} == set(sizes) and sizes.count(3) > 10


def test_ends_of_turns(written):
    config = og.Config(written)
    whole = generate(og.Model(config), PROMPT)[0]
    new = whole[len(PROMPT) :]
    text = og.Tokenizer(config).decode(new[1:3])
    config.overlay(json.dumps({"model": {"eos_token_id": [new[4]]}}))
    model = og.Model(config)
    engine = og.Engine(model)
    request = engine.create_request()
    turn = og.TurnOptions(request)
    request.begin_turn(PROMPT)
    found = events(engine)
    assert tokens_of(found, request) == new[: new.index(new[4])]
    assert (found[-1].finish_reason, found[-1].token) == (og.FinishReason.EOS, None)
    request.rewind_to_start_of_turn(1)
    turn.set_stop_strings(["nothing", text])
    request.begin_turn(PROMPT, turn)
    last = events(engine)[-1]
    assert (last.finish_reason, last.matched_stop_string_index) == (og.FinishReason.STOP_STRING, 1)
    request.rewind_to_start_of_turn(1)
    turn.reset()
    turn.set_min_generated_tokens(9)
    turn.set_max_generated_tokens(9)
    number = request.begin_turn(PROMPT, turn)
    assert len(tokens_of(events(engine), request)) == 9
    number = request.begin_turn([3], turn)
    assert request.cancel_turn(number) and not request.cancel_turn(number)
    assert [event.finish_reason for event in events(engine)] == [og.FinishReason.CANCELLED]


def test_options_of_turns(model):
    engine = og.Engine(model)

    def drawn(seed: int | None, turns: int = 1) -> list[int]:
        request = engine.create_request()
        turn = og.TurnOptions(request)
        turn.set_do_sample(True)
        turn.set_temperature(3.0)
        turn.set_top_k(0)
        turn.set_top_p(1.0)
        turn.set_max_generated_tokens(5)
        if seed is not None:
            turn.set_seed(seed)
        for _ in range(turns):
            request.begin_turn(PROMPTS[1], turn)
            found = events(engine)
            turn.clear_seed()
        return tokens_of(found, request)

    assert drawn(3) == drawn(3) != drawn(4)
    assert drawn(3, turns=2) == drawn(3, turns=2) != drawn(3)
    request = engine.create_request()
    turn = og.TurnOptions(request)
    for set_one, value, why in (
        (turn.set_top_p, 3.0, "top_p must be"),
        (turn.set_temperature, -1.0, "temperature must be"),
        (turn.set_repetition_penalty, "a", "a number"),
    ):
        turn.reset()
        turn.set_do_sample(True)
        set_one(value)
        with pytest.raises(onnx_torch.InputError, match=why):
            request.begin_turn(PROMPT, turn)
    turn.reset()
    turn.set_repetition_penalty(1.7)
    turn.set_no_repeat_ngram_size(2)
    request.begin_turn(PROMPT, turn)
    expected = generate(model, PROMPT, repetition_penalty=1.7, no_repeat_ngram_size=2)[0]
    assert [*PROMPT, *tokens_of(events(engine), request)] == expected


def test_turns_that_fail(model, monkeypatch):
    engine = og.Engine(model)
    good, bad = engine.create_request(), engine.create_request()
    good.begin_turn(PROMPT)
    bad.begin_turn([1000])
    found = events(engine)
    failed = next(event for event in found if event.request is bad)
    assert failed.flags & og.EngineEventFlags.FAILED and isinstance(failed.error, onnx_torch.Error)
    assert failed.error_code == og.EngineErrorCode.ENGINE_EXECUTION_FAILURE
    assert [*PROMPT, *tokens_of(found, good)] == generate(model, PROMPT)[0]
    bad.rewind_to_start_of_turn(1)
    bad.continue_with([1000])
    with pytest.raises(onnx_torch.Error):
        engine.step()


def test_interrupted_steps(model, monkeypatch):
    """A request whose step was interrupted goes on."""
    engine = og.Engine(model)
    request = engine.create_request()
    request.begin_turn(PROMPT)
    with monkeypatch.context() as patched:
        patched.setattr(og.Generator, "generate_next_token", lambda _: (_ for _ in ()).throw(KeyboardInterrupt))
        with pytest.raises(KeyboardInterrupt):
            engine.step()
    assert [*PROMPT, *tokens_of(events(engine), request)] == generate(model, PROMPT)[0]


def test_requests_of_older_programs(model):
    """Older programs use Request(params), add_request and step, with tokens that come from another thread."""
    engine = og.Engine(model)
    params = og.GeneratorParams(model)
    params.set_search_options(max_length=16)
    found: dict[int, list[int]] = {}

    def add(number: int) -> og.Request:
        request = og.Request(params)
        request.add_tokens(PROMPTS[number][:2])
        request.add_tokens(np.array(PROMPTS[number][2:], np.int32))
        request.set_opaque_data(number)
        engine.add_request(request)
        return request

    first = add(0)
    other = threading.Thread(target=lambda: [add(1), add(2)])
    other.start()
    other.join()
    while request := engine.step():
        while request.has_unseen_tokens():
            found.setdefault(request.get_opaque_data(), []).append(request.get_unseen_token())
        if request.is_done():
            engine.remove_request(request)
    for number, prompt in enumerate(PROMPTS):
        assert [*prompt, *found[number]] == generate(model, prompt, max_length=16)[0]
    assert first.is_turn_complete() and not engine.has_pending_requests()
    with pytest.raises(onnx_torch.InputError, match="continue_with"):
        first.add_tokens([3])
    with pytest.raises(onnx_torch.InputError, match="has an engine already"):
        engine.add_request(first)
    with pytest.raises(onnx_torch.InputError, match="no token that was not seen"):
        first.get_unseen_token()
    params.set_search_options(num_beams=2)
    with pytest.raises(onnx_torch.InputError, match="one sequence, and no beams"):
        og.Request(params)


# --- In onnxruntime-genai's place ---


def test_installing(written, model):
    program = """
        import sys
        import onnx_torch
        with onnx_torch.compat.install("onnxruntime_genai"):
            import onnxruntime_genai as og
            from onnxruntime_genai.onnxruntime_genai import Tokenizer
            assert "onnxruntime" not in sys.modules and Tokenizer is og.Tokenizer
            model = og.Model(sys.argv[1])
            tokenizer = og.Tokenizer(model)
            params = og.GeneratorParams(model)
            generator = og.Generator(model, params)
            generator.append_tokens(tokenizer.encode("the cat"))
            while not generator.is_done():
                generator.generate_next_token()
            print(generator.get_sequence(0).tolist())
        assert "onnxruntime_genai" not in sys.modules
        onnx_torch.compat.install()
        import onnxruntime, onnxruntime_genai
        assert onnxruntime_genai is og and onnxruntime.get_build_info().startswith("onnx_torch")
        onnx_torch.compat.uninstall()
        assert not {"onnxruntime", "onnxruntime_genai"} & set(sys.modules)
        sys.modules["onnxruntime_genai"] = sys
        try:
            onnx_torch.compat.install()
        except ImportError as error:
            assert 'or install("onnxruntime") to leave it as it is' in str(error), error
        else:
            raise AssertionError
        assert "onnxruntime" not in sys.modules
        onnx_torch.compat.install("onnxruntime")
        import onnxruntime
    """
    expected = generate(model, og.Tokenizer(model).encode("the cat"))[0]
    assert run(program, str(written)) == str(expected)
    with pytest.raises(ValueError, match="nothing to stand in for 'tensorflow'"):
        onnx_torch.compat.install("tensorflow")
