"""The inputs and outputs that are found of a language model, in the layouts that exporters write."""

from __future__ import annotations

import json
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


def renamed(file: Path, target: Path, names: dict[str, str]) -> Path:
    """Writes the same model with other names of its inputs and outputs."""
    model = onnx.load(file)
    for info in [*model.graph.input, *model.graph.output]:
        info.name = names.get(info.name, info.name)
    for node in model.graph.node:
        node.input[:] = [names.get(name, name) for name in node.input]
        node.output[:] = [names.get(name, name) for name in node.output]
    onnx.save(model, target)
    return target


PASTS = [f"past_key_values.{layer}.{kind}" for layer in range(2) for kind in ("key", "value")]
PRESENTS = [name.replace("past_key_values", "present") for name in PASTS]

NAMES = {
    "of transformers.js": ({}, {}),
    "with key_values on both sides": ({name: name.replace("present", "present_key_values") for name in PRESENTS}, {}),
    "with underscores": (
        {name: name.replace("_key_values.", "_").replace(".", "_") for name in PASTS}
        | {name: name.replace(".", "_") for name in PRESENTS},
        {},
    ),
    "in and out": (
        {name: f"cache_{i}_in" for i, name in enumerate(PASTS)}
        | {name: f"cache_{i}_out" for i, name in enumerate(PRESENTS)},
        {},
    ),
    "by their order": (
        {"logits": "linear_9", "input_ids": "x", "attention_mask": "mask", "position_ids": "positions"}
        | {name: f"arg{i}" for i, name in enumerate(PASTS)}
        | {name: f"cat_{i}" for i, name in enumerate(PRESENTS)},
        {},
    ),
    "by a mapping": (
        {"logits": "a", "input_ids": "b", "attention_mask": "c", "position_ids": "d"}
        | dict(zip(PASTS, "efgh", strict=True))
        | dict(zip(reversed(PRESENTS), "ijkl", strict=True)),
        {
            "inputs": {"input_ids": "b", "attention_mask": "c", "position_ids": "d"}
            | {f"past.{i}": name for i, name in enumerate("efgh")},
            "outputs": {"logits": "a"} | {f"present.{i}": name for i, name in enumerate("lkji")},
        },
    ),
}


@pytest.mark.parametrize(("names", "mapping"), NAMES.values(), ids=NAMES)
def test_names(gpt2, tmp_path, names, mapping):
    expected = onnx_torch.LanguageModel(gpt2).generate(SENTENCES, max_new_tokens=6)
    lm = onnx_torch.LanguageModel(renamed(gpt2, tmp_path / "model.onnx", names), **mapping)
    assert [entry.sequence_axis for entry in lm.layout.caches] == [2] * 4
    assert lm.generate(SENTENCES, max_new_tokens=6) == expected
    past, present = names.get(PASTS[1], PASTS[1]), names.get(PRESENTS[1], PRESENTS[1])
    assert f"{past} → {present}, grows along axis 2" in str(lm.layout) and str(lm.layout) in repr(lm)


def test_what_cannot_be_told(gpt2, tmp_path):
    file = tmp_path / "model.onnx"
    for names, why in [
        (
            {"position_ids": "where"},
            r'the input "where" \(tensor\(int64\) of shape \[batch, count\]\) is cannot be told',
        ),
        ({"input_ids": "a", "position_ids": "b"}, "no input of the model can be told to be the tokens"),
    ]:
        with pytest.raises(onnx_torch.InputError, match=why):
            onnx_torch.LanguageModel(renamed(gpt2, file, names))
    for mapping, why in [
        ({"inputs": {"input_ids": "nothing"}}, 'no input "nothing"'),
        ({"outputs": {"logits": "nothing"}}, 'no output "nothing"'),
        ({"inputs": {"tokens": "input_ids"}}, 'inputs= has no "tokens"'),
        ({"outputs": {"scores": "logits"}}, 'outputs= has no "scores"'),
        ({"inputs": {"past.x": PASTS[0]}}, "belong together"),
    ]:
        with pytest.raises(onnx_torch.InputError, match=why):
            onnx_torch.LanguageModel(gpt2, **mapping)


# --- Files ---


def test_folders(gpt2, tmp_path):
    expected = onnx_torch.LanguageModel(gpt2).generate(SENTENCES, max_new_tokens=4)
    (tmp_path / "onnx").mkdir()
    with pytest.raises(onnx_torch.InvalidModelError, match="has no decoder"):
        onnx_torch.LanguageModel(tmp_path)
    shutil.copy(gpt2, tmp_path / "onnx" / "model_q4.onnx")
    (tmp_path / "generation_config.json").write_text('{"max_new_tokens": 4}')
    assert onnx_torch.LanguageModel(tmp_path).generate(SENTENCES) == expected
    assert onnx_torch.LanguageModel(tmp_path / "onnx" / "model_q4.onnx").generate(SENTENCES) == expected
    shutil.copy(gpt2, tmp_path / "onnx" / "model_fp16.onnx")
    with pytest.raises(onnx_torch.InvalidModelError, match="several decoders"):
        onnx_torch.LanguageModel(tmp_path)
    shutil.copy(gpt2, tmp_path / "onnx" / "model.onnx")
    assert onnx_torch.LanguageModel(tmp_path).generate(SENTENCES) == expected
    for model in (gpt2.read_bytes(), onnx.load(gpt2), onnx_torch.prepare(gpt2)):
        assert onnx_torch.LanguageModel(model).generate(SENTENCES, max_new_tokens=4) == expected


def test_a_file_of_genai(gpt2, tmp_path):
    shutil.copy(gpt2, tmp_path / "model.onnx")
    whole = onnx_torch.LanguageModel(gpt2).generate(SENTENCES[0], max_new_tokens=6)
    end = whole[len(SENTENCES[0]) + 2]
    (tmp_path / "genai_config.json").write_text(json.dumps({"model": {"eos_token_id": [end]}}))
    ours = onnx_torch.LanguageModel(tmp_path).generate(SENTENCES[0], max_new_tokens=6)
    assert ours == whole[: whole.index(end, len(SENTENCES[0])) + 1]


def test_files_that_are_wrong(gpt2, tmp_path):
    shutil.copy(gpt2, tmp_path / "model.onnx")
    (tmp_path / "tokenizer.json").write_text("{")
    with pytest.raises(onnx_torch.InputError, match="is no tokenizer"):
        onnx_torch.LanguageModel(tmp_path).generate("text")
    for text, why in [("{", "is no JSON"), ("[]", "has no names")]:
        (tmp_path / "generation_config.json").write_text(text)
        with pytest.raises(onnx_torch.InvalidModelError, match=why):
            onnx_torch.LanguageModel(tmp_path)


# --- Other caches ---


def test_no_cache(tmp_path):
    """Each step reads the whole sequence; without a mask, sequences of different lengths come one after another."""
    model = models.model_of("GPT2LMHeadModel")

    class Plain(torch.nn.Module):
        def forward(self, input_ids: torch.Tensor) -> torch.Tensor:
            return model(input_ids, attention_mask=torch.ones_like(input_ids), use_cache=False).logits

    axes = {"input_ids": {0: "batch", 1: "count"}}
    file = str(tmp_path / "model.onnx")
    ids = torch.tensor([SENTENCES[0]])
    with models.quiet(), torch.no_grad():
        torch.onnx.export(
            Plain().eval(), (ids,), file, input_names=["input_ids"], output_names=["y"], dynamic_axes=axes, dynamo=False
        )
    lm = onnx_torch.LanguageModel(file)
    assert lm.layout.caches == () and "reads the whole sequence" in str(lm.layout)
    check_against(model, lm)


class Recurrent(torch.nn.Module):
    """A decoder whose state has one size."""

    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.embed = torch.nn.Embedding(models.VOCABULARY, 16)
        self.cell = torch.nn.GRU(16, 24, batch_first=True)
        self.head = torch.nn.Linear(24, models.VOCABULARY)
        for parameter in self.parameters():
            parameter.data *= 4

    def forward(self, input_ids: torch.Tensor, state: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        states, last = self.cell(self.embed(input_ids), state.transpose(0, 1))
        return self.head(states), last.transpose(0, 1)

    def greedy(self, ids: list[int], count: int) -> list[int]:
        ids = list(ids)
        for _ in range(count):
            logits, _ = self(torch.tensor([ids]), torch.zeros(1, 1, 24))
            ids.append(int(logits[0, -1].argmax()))
        return ids


def test_a_state_of_a_fixed_size(tmp_path):
    model = Recurrent().eval().requires_grad_(False)
    names = {"input_names": ["input_ids", "past_ssm.0"], "output_names": ["logits", "present_ssm.0"]}
    axes = {"input_ids": {0: "batch", 1: "count"}, "past_ssm.0": {0: "batch"}}
    given = (torch.tensor(SENTENCES[:1]), torch.zeros(1, 1, 24))
    file = str(tmp_path / "model.onnx")
    with models.quiet(), torch.no_grad():
        torch.onnx.export(model, given, file, dynamic_axes=axes, dynamo=False, **names)
    lm = onnx_torch.LanguageModel(file)
    assert "past_ssm.0 → present_ssm.0, of a fixed size" in str(lm.layout)
    assert lm.generate(SENTENCES, max_new_tokens=9) == [model.greedy(ids, 9) for ids in SENTENCES]
    state, fresh = lm.start(SENTENCES[0]), lm.start(SENTENCES[0])
    expected = fresh.append([[7]])
    state.append([[40, 41]])
    state.rewind(2)
    assert np.array_equal(state.append([[7]]), expected)


# A decoder whose cache is what it has embedded: it gives the mean of the embeddings of all tokens, times a matrix.
MERGED = """<ir_version: 10, opset_import: ["": 21]>
merged (int64[BATCH, COUNT] input_ids, float[BATCH, past, 4] past_rows, bool[1] use_cache_branch,
        int64[1] past_seq_len, int64 num_logits_to_keep, float[9, 4] table, float[4, 9] head)
    => (float[BATCH, 1, 9] logits, float[BATCH, total, 4] present_rows, int64 kept) {
  new = Gather(table, input_ids)
  present_rows = If (use_cache_branch) <
    then_branch = with_past () => (float[BATCH, total, 4] joined) { joined = Concat <axis = 1> (past_rows, new) },
    else_branch = without () => (float[BATCH, total, 4] first) { first = Identity(new) }>
  axis = Constant <value_ints = [1]> ()
  mean = ReduceMean(present_rows, axis)
  all = MatMul(mean, head)
  length = Cast <to = 1> (past_seq_len)
  less = Mul(length, small)
  logits = Add(all, less)
  kept = Identity(num_logits_to_keep)
}"""


def merged(**sizes: str) -> tuple[onnx.ModelProto, np.ndarray, np.ndarray]:
    text = MERGED.replace("BATCH", sizes.get("batch", "batch")).replace("COUNT", sizes.get("count", "count"))
    model = onnx.parser.parse_model(text)
    rng = np.random.default_rng(0)
    table, head = rng.normal(size=(9, 4)).astype(np.float32), rng.normal(size=(4, 9)).astype(np.float32)
    for name, value in (("table", table), ("head", head), ("small", np.float32(0.01))):
        model.graph.initializer.append(onnx.numpy_helper.from_array(np.asarray(value), name))
    del model.graph.input[-2:]
    return model, table, head


def expected_of(table: np.ndarray, head: np.ndarray, ids: list[int], count: int) -> list[int]:
    ids = list(ids)
    for _ in range(count):
        ids.append(int((table[ids].mean(0) @ head).argmax()))
    return ids


@pytest.mark.parametrize("sizes", [{}, {"batch": "1"}, {"count": "1"}], ids=str)
def test_a_merged_decoder(sizes):
    """The branch is told whether there is a past; the model may take one sequence, or one token, at a time, too."""
    model, table, head = merged(**sizes)
    lm = onnx_torch.LanguageModel(model)
    assert lm.layout.inputs["past_sequence_length"] == "past_seq_len"
    prompts = [[1, 2, 3], [4, 5], [6]]
    assert lm.generate(prompts, max_new_tokens=7) == [expected_of(table, head, ids, 7) for ids in prompts]
    if "batch" in sizes:
        with pytest.raises(onnx_torch.InputError, match="takes 1 sequences, and 3 are to be followed"):
            lm.generate(prompts[0], num_beams=3)
    else:
        state = lm.start([[1, 2, 3], [4, 5, 6]])
        state.rewind(1)
        state.reorder([1, 0, 1])
        assert state.tokens == [[4, 5], [1, 2], [4, 5]]
        logits = state.append([[7], [8], [0]])
        means = [table[ids].mean(0) for ids in ([4, 5, 7], [1, 2, 8], [4, 5, 0])]
        np.testing.assert_allclose(logits, np.stack(means) @ head + 0.02, rtol=1e-5, atol=1e-5)


def check_against(model: torch.nn.Module, lm: onnx_torch.LanguageModel) -> None:
    theirs = [
        model.generate(torch.tensor([ids]), max_new_tokens=9, do_sample=False, eos_token_id=2, pad_token_id=models.PAD)[
            0
        ].tolist()
        for ids in SENTENCES
    ]
    assert lm.generate(SENTENCES, max_new_tokens=9, eos_token_id=2) == theirs
    columns = list(lm.generate(SENTENCES, max_new_tokens=9, eos_token_id=2, stream=True))
    for row, ids in enumerate(SENTENCES):
        assert ids + [step[row] for step in columns if step[row] is not None] == theirs[row]


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
    theirs = [transformers_generate(model, sound, start, **options) for options in ({}, {"num_beams": 3})]
    for options, expected in zip(({}, {"num_beams": 3}), theirs, strict=True):
        ours = lm.generate(input_features=sound, decoder_input_ids=start, max_new_tokens=12, **options)
        assert torch.equal(ours, expected), (ours, expected)


def transformers_generate(model: torch.nn.Module, sound: torch.Tensor, start: torch.Tensor, **options) -> torch.Tensor:
    """Generates as all models do; Whisper's own generate cuts sound into windows."""
    from transformers import GenerationMixin

    known = {"decoder_input_ids": start, "max_new_tokens": 12, "do_sample": False}
    return GenerationMixin.generate(model, sound, **known, **options)
