"""The operators that generate text, where they are used wrongly."""

from __future__ import annotations

import numpy as np
import onnx
import pytest
from scipy.stats import binom

pytest.importorskip("onnxruntime")

import onnx_torch
from models import op_model
from type_matrix.contrib.search import ALLOWED, AT_FIRST, FEATURES, IDS, TOKENS, gpt, i32, seq2seq

TYPES = {"T": "tensor(float)", "F": "tensor(float)"}
GPT = gpt()(TYPES, 1)
MANY, FEW = i32(10), i32(3)
BEAMS = [IDS, MANY, None, i32(2), i32(1)]
T5 = {
    "encoder": seq2seq("encoder", "T5")(TYPES, 1),
    "decoder": seq2seq("decoder", "T5")(TYPES, 1),
    "model_type": 1,
    "decoder_start_token_id": 2,
}
WHISPER = {"encoder": seq2seq("encoder", "Whisper")(TYPES, 1), "decoder": seq2seq("decoder", "Whisper")(TYPES, 1)}


def changed(graph: onnx.GraphProto, change) -> onnx.GraphProto:
    copy = onnx.GraphProto.FromString(graph.SerializeToString())
    change(copy)
    return copy


def without_sizes(graph: onnx.GraphProto) -> None:
    for value in graph.input:
        value.type.tensor_type.ClearField("shape")


def renamed(graph: onnx.GraphProto) -> None:
    graph.input[1].name = "something"
    for node in graph.node:
        node.input[:] = ["something" if name == "encoder_attention_mask" else name for name in node.input]


def pastless(graph: onnx.GraphProto) -> None:
    del graph.output[2:]
    del graph.input[1:3]


def strange(graph: onnx.GraphProto) -> None:
    graph.input[3].type.tensor_type.elem_type = 999


def behind(graph: onnx.GraphProto) -> None:
    inputs = list(graph.input)
    del graph.input[:]
    graph.input.extend(inputs[1:] + inputs[:1])


def doubled(graph: onnx.GraphProto) -> None:
    graph.input.add().CopyFrom(graph.input[3])
    graph.input[-1].name = "past_1"
    graph.node.add(op_type="Identity", input=["past_1"], output=["present_1"])
    graph.output.add().CopyFrom(graph.output[1])
    graph.output[-1].name = "present_1"


WRONG = [
    ("max_length .3. must be more", "GreedySearch", [IDS, FEW], {}),
    ("not of shape .batch_size", "GreedySearch", [IDS[0], MANY], {}),
    ("index", "GreedySearch", [IDS + 5, MANY], {}),
    ("repetition_penalty must be positive", "GreedySearch", [IDS, MANY, None, np.float32([0])], {}),
    ("index", "GreedySearch", [IDS * 0 + 9, MANY, None, np.float32([2])], {}),
    ("vocab_mask is not of shape", "GreedySearch", [IDS, MANY, None, None, ALLOWED[:4]], {}),
    ("prefix_vocab_mask is not", "GreedySearch", [IDS, MANY, None, None, None, AT_FIRST[:1]], {}),
    ("attention_mask is not", "GreedySearch", [IDS, MANY, None, None, None, None, IDS[:, :2]], {}),
    ("eos_token_id is not in the vocabulary", "GreedySearch", [IDS, MANY, i32(5)], {"eos_token_id": 99}),
    ("vocab_size is 10", "GreedySearch", [IDS, MANY], {"vocab_size": 10}),
    ("model_type must be 0", "GreedySearch", [IDS, MANY], {"model_type": 1}),
    ("heads and the size", "GreedySearch", [IDS, MANY], {"decoder": changed(GPT, without_sizes)}),
    ("past", "GreedySearch", [IDS, MANY], {"decoder": T5["encoder"]}),
    ("share memory", "Sampling", [IDS, MANY], {"init_decoder": T5["decoder"]}),
    ("presence_mask is not|must match", "Sampling", [IDS, MANY, None, None, None, None, None, IDS], {}),
    ("num_beams must be positive", "BeamSearch", [*BEAMS[:3], i32(0), i32(1)], {}),
    ("num_return_sequences .3. must be from 1 to", "BeamSearch", [*BEAMS[:4], i32(3)], {}),
    ("num_return_sequences .0. must be from 1 to", "BeamSearch", [*BEAMS[:4], i32(0)], {}),
    ("no model_type 7", "BeamSearch", BEAMS, {"model_type": 7}),
    ("encoder", "BeamSearch", BEAMS, {"model_type": 1}),
    ("input something of its decoder", "BeamSearch", BEAMS, T5 | {"decoder": changed(T5["decoder"], renamed)}),
    ("has an input something", "BeamSearch", BEAMS, T5 | {"encoder": changed(T5["encoder"], renamed)}),
    ("index", "BeamSearch", BEAMS, T5 | {"decoder_start_token_id": 99}),
    (
        "no logits_processor 1",
        "BeamSearch",
        [FEATURES, *BEAMS[1:], *6 * [None], i32(1)],
        WHISPER | {"model_type": 2, "decoder_start_token_id": 2},
    ),
]
SPEECH = WHISPER | {"decoder_start_token_id": 2}
WRONG += [
    ("no logits_processor 2", "WhisperBeamSearch", [FEATURES, *BEAMS[1:], *6 * [None], i32(2)], SPEECH),
    ("beginning_timestamp", "WhisperBeamSearch", [FEATURES, *BEAMS[1:], *6 * [None], i32(1)], SPEECH),
    ("cross_qk", "WhisperBeamSearch", [FEATURES, *BEAMS[1:]], SPEECH | {"decoder_output_cross_qk": 1}),
    ("extra_decoding_ids", "WhisperBeamSearch", [FEATURES, *BEAMS[1:], *8 * [None], IDS], SPEECH),
    ("presents", "WhisperBeamSearch", [FEATURES, *BEAMS[1:]], SPEECH | {"decoder": changed(T5["decoder"], pastless)}),
    ("999", "GreedySearch", [IDS, MANY], {"decoder": changed(GPT, strange)}),
    ("must be input_ids", "BeamSearch", BEAMS, T5 | {"decoder": onnx.GraphProto(name="empty")}),
    ("must be input_ids", "BeamSearch", BEAMS, T5 | {"decoder": changed(T5["decoder"], behind)}),
    ("encoder", "BeamSearch", [IDS, *BEAMS[1:]], T5 | {"encoder": onnx.GraphProto(name="empty")}),
    ("as many layers", "GreedySearch", [IDS, MANY], {"init_decoder": changed(GPT, doubled)}),
]


@pytest.mark.parametrize("message, op, inputs, attributes", WRONG)
def test_what_is_wrong(message, op, inputs, attributes):
    model = op_model(op, inputs, domain="com.microsoft", opset=1, **({"decoder": GPT} | TOKENS | attributes))
    with pytest.raises(onnx_torch.Error, match=message):
        onnx_torch.prepare(model).run([value for value in inputs if value is not None])


@pytest.mark.parametrize("size", [10, 2**31 - 1, 2**62])
@pytest.mark.parametrize(
    "op, inputs", [("GreedySearch", [IDS, MANY]), ("BeamSearch", BEAMS), ("Sampling", [IDS, MANY])]
)
def test_onnxruntime_28774_a_vocabulary_of_more_tokens_than_there_are_scores(op, inputs, size):
    """onnxruntime read behind the scores of a decoder, of which there are nine."""
    model = op_model(op, inputs, domain="com.microsoft", opset=1, decoder=GPT, vocab_size=size, **TOKENS)
    with pytest.raises(onnx_torch.Error, match="vocab_size"):
        onnx_torch.prepare(model).run([value for value in inputs if value is not None])


def test_samples_are_as_likely_as_their_scores():
    """A seed gives the same samples each time; without one they differ; and all tokens that are not filtered come."""
    ids = np.repeat(IDS[:1], 400, 0)
    options = {"decoder": GPT, "top_p": 1.0, "custom": 1} | TOKENS
    seeded = op_model("Sampling", [ids, i32(4), *6 * [None], i32(7)], domain="com.microsoft", opset=1, **options)
    rep = onnx_torch.prepare(seeded)
    (once,), (again,) = rep.run([ids, i32(4), i32(7)]), rep.run([ids, i32(4), i32(7)])
    np.testing.assert_array_equal(once, again)
    plain = op_model("Sampling", [ids, i32(4)], domain="com.microsoft", opset=1, outputs=2, **options)
    sequences, scores = onnx_torch.prepare(plain).run([ids, i32(4)])
    chances = np.exp(scores[0]) / np.exp(scores[0]).sum()
    chances[TOKENS["pad_token_id"]] += chances[TOKENS["eos_token_id"]]
    chances[TOKENS["eos_token_id"]] = 0
    counts = np.bincount(sequences[:, 3], minlength=9)
    drawn = binom(400, chances)
    assert np.all(drawn.cdf(counts) > 1e-7) and np.all(drawn.sf(counts - 1) > 1e-7)


def untyped(graph: onnx.GraphProto) -> None:
    for value in [graph.input[3], *graph.output]:
        value.type.tensor_type.elem_type = 0


def test_a_decoder_that_declares_no_types_is_of_floats():
    model, plain = (
        op_model("BeamSearch", BEAMS, domain="com.microsoft", opset=1, outputs=2, decoder=graph, **TOKENS)
        for graph in (changed(GPT, untyped), GPT)
    )
    inputs = [value for value in BEAMS if value is not None]
    for one, other in zip(onnx_torch.prepare(model).run(inputs), onnx_torch.prepare(plain).run(inputs), strict=True):
        np.testing.assert_array_equal(one, other)
        assert one.dtype == other.dtype
