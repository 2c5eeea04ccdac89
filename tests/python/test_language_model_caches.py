"""The past of a language model: memory that steps write to in place, which states share, and plans of steps."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import helper, numpy_helper

import language_models as models
import onnx_torch
import test_caches
from models import model_of, tensor_info
from pass_models import assert_close

ROOT = Path(__file__).parents[2]
PROMPT = [5, 9, 33, 40, 8, 21, 44]
# The models, by how their past is taken: as it is, with padding, or as a whole buffer.
KINDS = ["BloomForCausalLM", "LlamaForCausalLM", "MistralForCausalLM", "grouped", "concatenated"]


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory):
    """Gives a function that makes a language model of a class of transformers, or of test_caches.py's decoders."""
    folder = tmp_path_factory.mktemp("caches")

    def make(kind: str) -> onnx_torch.LanguageModel:
        file = folder / f"{kind}.onnx"
        if not file.exists():
            attention = getattr(test_caches, kind, None)
            if attention:
                onnx.save(test_caches.decoder(attention), file)
            else:
                models.export(models.model_of(kind, **sizes(kind)), file)
        return onnx_torch.LanguageModel(file)

    return make


def sizes(kind: str) -> dict[str, int]:
    """Gives sizes for more tokens than those of the other tests, where the class has a limit."""
    return {"LlamaForCausalLM": {"max_position_embeddings": 256}}.get(kind, {})


def column(token: int) -> np.ndarray:
    return np.array([[token % 50]])


def fresh(lm: onnx_torch.LanguageModel, tokens: list[int]) -> np.ndarray:
    """Gives the logits of the last of tokens that are read one by one, after the prompt."""
    state = lm.start(PROMPT)
    for token in tokens:
        logits = state.append(column(token))
    return logits


def through(state: onnx_torch.language_model.State, tokens: list[int]) -> np.ndarray:
    for token in tokens:
        logits = state.append(column(token))
    return logits


@pytest.mark.parametrize("kind", KINDS)
def test_forks_share_memory_and_go_on_by_themselves(made, kind):
    """Forks go past the room of the first buffer; each gives what a state that has read the same tokens gives."""
    lm = made(kind)
    shared = list(range(3, 58))  # with the prompt, 62 tokens
    one, other = [7, 8, 9, 10, 11], [30, 31, 32, 33, 34]
    state = lm.start(PROMPT)
    through(state, shared)
    fork, third = state.fork(), state.fork()
    assert np.array_equal(through(fork, one), fresh(lm, shared + one))
    assert np.array_equal(through(state, other), fresh(lm, shared + other))
    assert np.array_equal(through(third, one), fresh(lm, shared + one))
    state.rewind(len(other))
    fork.rewind(3)
    assert np.array_equal(through(state, one), fresh(lm, shared + one))
    assert np.array_equal(through(fork, other), fresh(lm, shared + one[:2] + other))
    third.reorder([0, 0])
    pair = third.append(np.array([[3], [4]]))
    for row, token in zip(pair, (3, 4), strict=True):
        assert_close(row, fresh(lm, [*shared, *one, token])[0])


@pytest.mark.parametrize("kind", KINDS[:-1])  # in the last one rows read what comes behind them
def test_steps_give_what_one_run_gives(made, kind):
    lm = made(kind)
    tokens = list(range(2, 49)) * 3
    state = lm.start(PROMPT)
    whole = lm.start(PROMPT).append(np.array([tokens]), all=True)[0]
    for i, token in enumerate(tokens[:90]):
        np.testing.assert_allclose(state.append(column(token))[0], whole[i], rtol=2e-4, atol=2e-4)


@pytest.mark.parametrize(
    "options", [{}, {"num_beams": 3}, {"num_return_sequences": 2, "num_beams": 2}, {"max_length": 40}]
)
def test_prompts_of_different_lengths_go_on_side_by_side(made, options):
    """GroupQueryAttention takes no padding: each prompt is read by itself, and then one run gives each a token."""
    lm = made("grouped")
    prompts = [PROMPT, PROMPT[:3], [9, 8], [17]]
    shapes = set()

    def seen(ids, scores):
        shapes.add(len(ids))
        return scores

    alone = [lm.generate([prompt], max_new_tokens=20, **options) for prompt in prompts]
    together = lm.generate(prompts, max_new_tokens=20, logits_processor=[seen], **options)
    assert [list(row) for row in together] == [list(row) for rows in alone for row in rows]
    assert shapes == {len(prompts) * options.get("num_beams", 1)}
    state = lm.start(prompts)
    assert len(state) == len(PROMPT) and state.tokens == prompts


@pytest.mark.parametrize("kind", ["LlamaForCausalLM", "MistralForCausalLM", "GPT2LMHeadModel", "grouped"])
def test_steps_go_by_one_plan(made, kind):
    """Steps of 64 tokens have the same sizes; a plan's kernels write to the cache."""
    lm = made(kind)
    through(lm.start(PROMPT), list(range(3, 50)))
    plans = lm._reps[0].plans()
    assert len(plans) == 1
    assert not re.search("^part ", plans[0], re.MULTILINE)
    writer = "group_query_attention" if kind == "grouped" else "cat"
    assert re.search(f"^plan onnx_torch::{writer}", plans[0], re.MULTILINE)


def test_generating_is_as_by_hand(made):
    """A model whose buffers are taken whole generates what it gives step by step."""
    rep = onnx_torch.prepare(test_caches.decoder(test_caches.grouped), optimize=False)
    shape = (1, test_caches.SHARED, 0, test_caches.SIZE)
    pasts = [np.zeros(shape, np.float32) for _ in test_caches.past_names()]
    tokens, new = list(PROMPT), list(PROMPT)
    for _ in range(50):
        feeds = dict(zip(test_caches.past_names(), pasts, strict=True))
        ids = np.array([[token % test_caches.WORDS for token in new]])
        logits, *pasts = rep.run({"ids": ids, "mask": np.ones((1, len(tokens)), np.int64), **feeds})
        new = [int(logits[0, -1].argmax())]
        tokens += new
    prompt = [token % test_caches.WORDS for token in PROMPT]
    assert made("grouped").generate(prompt, max_new_tokens=50)[len(prompt) :] == tokens[len(prompt) :]


# --- Memory ---

WIDE = 4096  # floats that a token takes in each of the caches


def branch(
    nodes: list[onnx.NodeProto], outputs: list[onnx.ValueInfoProto], prefix: str, has_past: bool
) -> onnx.GraphProto:
    """Makes a branch of an If of the nodes, under names of its own; without a past, new rows are all that there is."""
    made = {name for node in nodes for name in node.output}
    renamed = lambda names: [prefix + name if name in made else name for name in names]
    own = []
    for node in nodes:
        if node.op_type == "Concat" and not has_past:
            node = helper.make_node("Identity", node.input[1:], node.output)
        copy = onnx.NodeProto.FromString(node.SerializeToString())
        copy.input[:], copy.output[:] = renamed(node.input), renamed(node.output)
        own.append(copy)
    results = [onnx.ValueInfoProto.FromString(info.SerializeToString()) for info in outputs]
    for info in results:
        info.name = prefix + info.name
    return helper.make_graph(own, prefix, [], results)


def merged(nodes: list[onnx.NodeProto], outputs: list[onnx.ValueInfoProto]) -> list[onnx.NodeProto]:
    """Merges a decoder without a past and one that has it, as optimum does."""
    branches = {
        "then_branch": branch(nodes, outputs, "with_past.", True),
        "else_branch": branch(nodes, outputs, "without.", False),
    }
    return [helper.make_node("If", ["use_cache_branch"], [info.name for info in outputs], **branches)]


def wide_decoder(with_positions: bool = False, is_merged: bool = False) -> onnx.ModelProto:
    """Makes a decoder with caches of 32 KB for each token, which nothing reads."""
    inputs = [tensor_info(name, shape=["B", size], element=7) for name, size in (("ids", "S"), ("mask", "T"))]
    nodes = [
        helper.make_node("Gather", ["words", "ids"], ["rows"]),
        helper.make_node("Reshape", ["rows", "heads"], ["split"]),
        helper.make_node("Transpose", ["split"], ["new"], perm=[0, 2, 1, 3]),
        helper.make_node("MatMul", ["rows", "out"], ["unmasked"]),
        helper.make_node("ReduceMax", ["mask"], ["one"], keepdims=0),
        helper.make_node("Cast", ["one"], ["factor"], to=1),
        helper.make_node("Mul", ["unmasked", "factor"], ["logits"]),
    ]
    if with_positions:
        inputs.append(tensor_info("positions", shape=["B", "S"], element=7))
    if is_merged:
        inputs.append(tensor_info("use_cache_branch", shape=[1], element=9))
    outputs = [tensor_info("logits", shape=["B", "S", 5], element=1)]
    for part in ("key", "value"):
        inputs.append(tensor_info(f"past.{part}", shape=["B", 8, "P", WIDE // 8], element=1))
        outputs.append(tensor_info(f"present.{part}", shape=["B", 8, "Q", WIDE // 8], element=1))
        nodes.append(helper.make_node("Concat", [f"past.{part}", "new"], [f"present.{part}"], axis=2))
    weights = {
        "words": test_caches.waves(5, WIDE),
        "out": test_caches.waves(WIDE, 5),
        "heads": np.array([0, 0, 8, WIDE // 8]),
    }
    initializers = [numpy_helper.from_array(value, name) for name, value in weights.items()]
    nodes = merged(nodes, outputs) if is_merged else nodes
    return model_of(nodes, inputs, outputs, 21, initializer=initializers)


@pytest.mark.parametrize(
    ("options", "max_length", "length"),
    [
        ({}, None, 2560),
        ({"with_positions": True}, None, 2560),
        ({"is_merged": True}, None, 2560),
        ({"is_merged": True, "with_positions": True}, None, 2560),
        ({}, 4096, 2040),
        ({"with_positions": True}, 4096, 2040),
    ],
    ids=str,
)
def test_a_step_takes_no_memory_for_the_past(options, max_length, length):
    """A step in a process of its own takes no memory for the past: the peak is forgotten once 64 MB or more lie in the
    caches, and a copy would be as large.

    A room of a fixed size has no power of two at which it is left for another one.
    """
    code = f"""if True:
        import re, sys
        from pathlib import Path
        sys.path.insert(0, "tests/python")
        import numpy as np, onnx_torch, test_language_model_caches as t
        lm = onnx_torch.LanguageModel(t.wide_decoder(**{options}), max_length={max_length})
        peak = lambda: int(re.search("VmHWM:\\\\s+([0-9]+)", Path("/proc/self/status").read_text())[1]) >> 10
        lm.generate([1, 2, 3], max_new_tokens=5)
        state = lm.start(np.arange({length})[None] % 5)
        Path("/proc/self/clear_refs").write_text("5")
        before = peak()
        for token in range(40):
            state.append([[token % 5]])
        print(peak() - before)
    """
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, cwd=ROOT)
    assert int(done.stdout) < 24, done.stdout


def test_a_merged_decoder_gives_what_a_plain_one_gives():
    """The merged decoder gives the same, also to forks that share the memory its steps write to."""
    plain, lm = (onnx_torch.LanguageModel(wide_decoder(True, is_merged)) for is_merged in (False, True))
    states = [model.start([[1, 2, 3]]) for model in (plain, lm)]
    for step in range(70):
        one, other = (state.append([[step % 5]]) for state in states)
        assert np.array_equal(one, other)
    forks = [state.fork() for state in states]
    for token, other_token in ((1, 2), (3, 4)):
        assert np.array_equal(*(fork.append([[token]]) for fork in forks))
        assert np.array_equal(*(state.append([[other_token]]) for state in states))


# --- A room of a fixed size ---


@pytest.mark.parametrize("kind", KINDS)
def test_a_fixed_room_gives_the_bits_of_one_that_grows(made, kind):
    lm = made(kind)
    tokens = list(range(3, 100))
    growing, fixed = lm.start(PROMPT), lm.start(PROMPT, max_length=len(PROMPT) + len(tokens))
    for token in tokens:
        assert np.array_equal(fixed.append(column(token)), growing.append(column(token)))
    with pytest.raises(onnx_torch.InputError, match="room for 104 tokens.*not for 105; give a larger max_length"):
        fixed.append(column(1))
    fork = fixed.fork()
    fork.rewind(2)
    growing.rewind(2)
    assert np.array_equal(fork.append(column(8)), growing.append(column(8)))
    assert fixed.tokens[0][-2:] == [98 % 50, 99 % 50]


def test_a_whole_buffer_of_a_fixed_size_has_one_plan(made):
    """The size of a whole buffer is that of each step; one that grows has another plan for each size."""
    for room, count in ((None, 2), (200, 1)):
        lm = onnx_torch.LanguageModel(test_caches.decoder(test_caches.grouped), max_length=room)
        through(lm.start(PROMPT), list(range(3, 100)))
        assert len(lm._reps[0].plans()) == count


def test_the_length_of_a_generation(made):
    decoder = test_caches.decoder(test_caches.grouped)
    lm, limited = onnx_torch.LanguageModel(decoder), onnx_torch.LanguageModel(decoder, max_length=20)
    expected = lm.generate(PROMPT[:4], max_new_tokens=50)
    assert lm.generate(PROMPT[:4], max_length=54) == expected
    assert limited.generate(PROMPT[:4]) == expected[:20]
    assert limited.generate(PROMPT[:4], max_new_tokens=16, assistant_model=limited) == expected[:20]
    assert limited.generate(PROMPT[:4], max_length=18) == expected[:18]
    beams = {"num_beams": 3, "max_new_tokens": 16}
    assert limited.generate(PROMPT[:4], **beams) == lm.generate(PROMPT[:4], **beams)
    prefix = lm.start(PROMPT[:2])
    assert limited.generate(PROMPT[2:4], prefix=prefix) == expected[2:20]
    for given, options in ((PROMPT[:4], {"max_new_tokens": 17}), (PROMPT[:4], {"max_length": 21}), (PROMPT * 3, {})):
        with pytest.raises(onnx_torch.InputError, match="room for 20 as max_length says"):
            limited.generate(given, **options)
    with pytest.raises(onnx_torch.InputError, match="room for 20 as max_length says"):
        lm.generate(PROMPT[2:4], prefix=limited.start(PROMPT[:2]), max_new_tokens=17)
    with pytest.raises(onnx_torch.InputError, match="max_length must be 1 or more, not 0"):
        lm.start(max_length=0)
    with pytest.raises(onnx_torch.InputError, match="max_length must be 1 or more, not 0"):
        onnx_torch.LanguageModel(decoder, max_length=0)
