"""Templates of src/ops/contrib/search.cpp."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

from ..engines import run_ort
from ..making import floats, microsoft, waves
from ..template import Types
from ..values import element, element_number

WORDS, HEADS, SIZE = 9, 2, 3


def constants(**arrays: Any) -> list[onnx.TensorProto]:
    return [numpy_helper.from_array(np.asarray(x), name) for name, x in arrays.items()]


def gpt(seed: int = 0, scale: float = 1.0):
    """Makes a decoder whose logits depend on the tokens, their positions, the mask and the past."""

    def graph(types: Types, _: int) -> onnx.GraphProto:
        kind = element_number(element(types["T"]))
        dtype = helper.tensor_dtype_to_np_dtype(kind)
        draw = np.random.default_rng(seed).normal
        width = HEADS * SIZE
        weights = constants(
            words=draw(size=(WORDS, width)).astype(dtype),
            places=(draw(size=(32, width)) / 2).astype(dtype),
            last=(draw(size=(width, WORDS)) * scale).astype(dtype),
            heads=[0, 0, HEADS, SIZE],
            merged=[0, 0, width],
            column=[0, 1, -1, 1],
            zero=0,
            front=[0],
            along=[2],
        )
        node = helper.make_node
        nodes = [
            node("Gather", ["words", "input_ids"], ["word"]),
            node("Gather", ["places", "position_ids"], ["place"]),
            node("Add", ["word", "place"], ["sum"]),
            node("Reshape", ["sum", "heads"], ["split"]),
            node("Transpose", ["split"], ["key"], perm=[0, 2, 1, 3]),
            node("Unsqueeze", ["key", "front"], ["keys"]),
            node("Concat", ["keys", "keys"], ["now"], axis=0),
            node("Concat", ["past_0", "now"], ["present_0"], axis=3),
            node("Gather", ["present_0", "zero"], ["history"], axis=0),
            node("Cast", ["attention_mask"], ["mask"], to=kind),
            node("Reshape", ["mask", "column"], ["kept"]),
            node("Mul", ["history", "kept"], ["seen"]),
            node("ReduceSum", ["seen", "along"], ["total"], keepdims=1),
            node("Tanh", ["total"], ["context"]),
            node("Add", ["key", "context"], ["mixed"]),
            node("Transpose", ["mixed"], ["back"], perm=[0, 2, 1, 3]),
            node("Reshape", ["back", "merged"], ["rows"]),
            node("MatMul", ["rows", "last"], ["logits"]),
        ]
        info = helper.make_tensor_value_info
        ids = [info(name, TensorProto.INT32, ["b", "s"]) for name in ("input_ids", "position_ids", "attention_mask")]
        past, present = (info(name, kind, [2, "b", HEADS, "p", SIZE]) for name in ("past_0", "present_0"))
        logits = info("logits", kind, ["b", "s", WORDS])
        return helper.make_graph(nodes, f"gpt{seed}", [*ids, past], [logits, present], weights)

    return graph


def seq2seq(part: str, kind: str):
    """Makes an encoder that decodes the first tokens, too ("T5", "Whisper"), or not ("new T5"), or its decoder."""

    def graph(types: Types, _: int) -> onnx.GraphProto:
        element_type = element_number(element(types["T"]))
        dtype = helper.tensor_dtype_to_np_dtype(element_type)
        draw = np.random.default_rng(7).normal
        width = HEADS * SIZE
        weights = constants(
            words=draw(size=(WORDS, width)).astype(dtype),
            sources=draw(size=(WORDS, width)).astype(dtype),
            last=draw(size=(width, WORDS)).astype(dtype),
            heads=[0, 0, HEADS, SIZE],
            merged=[0, 0, width],
            column=[0, 1, -1, 1],
            along=[2],
        )
        node, info = helper.make_node, helper.make_tensor_value_info
        is_encoder, masked = part == "encoder", kind != "Whisper"
        ids, mask = (["b", "s"], TensorProto.INT32), (["b", "t"], TensorProto.INT32)
        nodes, outputs = [], []

        def split(name: str, result: str) -> list[onnx.NodeProto]:
            return [
                node("Reshape", [name, "heads"], [f"{name}_split"]),
                node("Transpose", [f"{name}_split"], [result], perm=[0, 2, 1, 3]),
            ]

        def tensor(name: str, shape: list[Any], of: int = element_type) -> onnx.ValueInfoProto:
            return info(name, of, shape)

        self_shape, cross_shape = ["b", HEADS, "p", SIZE], ["b", HEADS, "t", SIZE]
        pasts = [f"{side}_self_0" for side in ("key", "value")]
        crosses = [f"{side}_cross_0" for side in ("key", "value")]
        if is_encoder:
            source = tensor("encoder_input_ids", *mask) if masked else tensor("encoder_input_ids", ["b", width, "t"])
            if masked:
                nodes.append(node("Gather", ["sources", "encoder_input_ids"], ["encoder_hidden_states"]))
            else:
                of = element_number(element(types["F"]))
                source = tensor("encoder_input_ids", ["b", width, "t"], of)
                nodes.append(node("Cast", ["encoder_input_ids"], ["features"], to=element_type))
                nodes.append(node("Transpose", ["features"], ["encoder_hidden_states"], perm=[0, 2, 1]))
            nodes += split("encoder_hidden_states", "present_key_cross_0")
            nodes.append(node("Neg", ["present_key_cross_0"], ["present_value_cross_0"]))
            inputs = [source] + ([tensor("encoder_attention_mask", *mask)] if masked else [])
            inputs += [tensor("decoder_input_ids", *ids)] if kind != "new T5" else []
            outputs = [tensor(f"present_{name}", cross_shape) for name in crosses]
            tokens, keys, sources = "decoder_input_ids", [], "present_key_cross_0"
        else:
            inputs = [tensor("input_ids", ["b", 1], TensorProto.INT32)]
            inputs += [tensor("encoder_attention_mask", *mask)] if masked else []
            inputs += [tensor("encoder_hidden_states", ["b", "t", width])] if kind == "T5" else []
            inputs += [tensor(f"past_{name}", self_shape) for name in pasts]
            inputs += [tensor(f"past_{name}", cross_shape) for name in crosses]
            tokens, keys, sources = "input_ids", [f"past_{name}" for name in pasts], "past_key_cross_0"
        if is_encoder and kind == "new T5":
            return helper.make_graph(nodes, f"{kind} {part}", inputs, outputs, weights)
        nodes += [node("Gather", ["words", tokens], ["word"]), *split("word", "key")]
        for i, name in enumerate(pasts):
            nodes.append(node("Concat", [*keys[i : i + 1], "key"], [f"present_{name}"], axis=2))
        seen = sources
        if masked:
            nodes.append(node("Cast", ["encoder_attention_mask"], ["mask"], to=element_type))
            nodes.append(node("Reshape", ["mask", "column"], ["kept"]))
            nodes.append(node("Mul", [sources, "kept"], ["seen"]))
            seen = "seen"
        nodes += [
            node("ReduceSum", [seen, "along"], ["source"], keepdims=1),
            node("ReduceSum", ["present_key_self_0", "along"], ["history"], keepdims=1),
            node("Add", ["source", "history"], ["total"]),
            node("Tanh", ["total"], ["context"]),
            node("Add", ["key", "context"], ["mixed"]),
            node("Transpose", ["mixed"], ["back"], perm=[0, 2, 1, 3]),
            node("Reshape", ["back", "merged"], ["rows"]),
            node("MatMul", ["rows", "last"], ["logits"]),
        ]
        first = [tensor("logits", ["b", "s", WORDS])]
        if is_encoder:
            first.append(tensor("encoder_hidden_states", ["b", "t", width]))
        outputs = first + [tensor(f"present_{name}", self_shape) for name in pasts] + outputs
        return helper.make_graph(nodes, f"{kind} {part}", inputs, outputs, weights)

    return graph


def i32(*values: Any) -> np.ndarray:
    return np.array(values, np.int32)


IDS = i32([1, 2, 3], [8, 5, 4])
MASK = i32([1, 0, 1], [1, 1, 1])
ALLOWED = i32(1, 1, 1, 1, 0, 1, 1, 1, 1)
AT_FIRST = i32([1, 1, 1, 1, 0, 0, 1, 1, 1], [0, 0, 0, 0, 0, 1, 1, 1, 1])
TOKENS = {"eos_token_id": 0, "pad_token_id": 8}
EVERYTHING = [i32(6), floats(1.25), ALLOWED, AT_FIRST, MASK]


def greedy(*rest: Any, decoder: Any = None, **attributes: Any):
    given = {"decoder": decoder or gpt(scale=3.0)} | TOKENS | attributes
    return microsoft("GreedySearch", [IDS, i32(10), *rest], **given)


def sampled(*rest: Any, **attributes: Any):
    return microsoft("Sampling", [IDS, i32(10), *rest], **({"decoder": gpt(scale=3.0)} | TOKENS | attributes))


def in_onnxruntime(case: Any, change: Callable[[onnx.NodeProto], None], **inputs: np.ndarray) -> list[Any]:
    """Runs the case in onnxruntime, with another node and with other inputs of the graph."""
    model = onnx.ModelProto.FromString(case.model.SerializeToString())
    change(model.graph.node[-1])
    feeds = {name: value for name, value in (case.feeds | inputs).items() if name in model.graph.node[-1].input}
    del model.graph.input[:]
    model.graph.input.extend(helper.make_tensor_value_info(k, type_number(v), v.shape) for k, v in feeds.items())
    return run_ort(model, feeds)


def type_number(array: np.ndarray) -> int:
    return helper.np_dtype_to_tensor_dtype(array.dtype)


def without_words(case: Any) -> list[Any]:
    """Gives what a large presence_penalty means: the greedy search among the other words."""

    def greedy_search(node: onnx.NodeProto) -> None:
        attributes = [a for a in node.attribute if a.name in (*TOKENS, "decoder")]
        node.CopyFrom(onnx.NodeProto(op_type="GreedySearch", domain=node.domain, output=node.output))
        node.attribute.extend(attributes)
        node.input[:] = ["x0", "x1", "", "", "allowed"]

    return in_onnxruntime(case, greedy_search, allowed=1 - case.feeds["x7"][0])


def with_defaults(case: Any) -> list[Any]:
    """Runs the case with a min_length and a length_penalty, which onnxruntime wants, of no effect."""

    def given(node: onnx.NodeProto) -> None:
        names = [*node.input, *(6 * [""])][:6]
        node.input[:] = [*names[:2], names[2] or "least", *names[3:5], names[5] or "power", *node.input[6:]]

    return in_onnxruntime(case, given, least=i32(0), power=floats(1))


def one_by_one(case: Any) -> list[Any]:
    """Runs each batch by itself: where there are several, onnxruntime asks whether another one can improve."""
    batches = range(len(case.inputs[0]))
    runs = [in_onnxruntime(case, lambda node: None, x0=case.inputs[0][i : i + 1]) for i in batches]
    return [np.concatenate(outputs) for outputs in zip(*runs, strict=True)]


def first_scores(case: Any) -> np.ndarray:
    """Gives the scores of the first step, by the decoder alone."""
    (decoder,) = (a.g for a in case.model.graph.node[-1].attribute if a.name == "decoder")
    model = helper.make_model(decoder, opset_imports=case.model.opset_import)
    ids = case.inputs[0]
    words = ids != TOKENS["pad_token_id"]
    places = (np.maximum(np.cumsum(words, 1) - 1, 0) * words).astype(np.int32)
    past = np.zeros((2, len(ids), HEADS, 0, SIZE), np.float32)
    feeds = {"input_ids": ids, "position_ids": places, "attention_mask": words.astype(np.int32), "past_0": past}
    return run_ort(model, feeds)[0][:, -1]


def one_word(keep: int):
    """Gives the meaning of one step: its `keep` best words, of which the sequence gets the best."""

    def meaning(case: Any) -> list[Any]:
        scores = first_scores(case) / 2
        order = np.argsort(-scores, 1)
        filtered = np.where(np.argsort(order, 1) < keep, scores, -1e4).astype(np.float32)
        return [np.concatenate([case.inputs[0], order[:, :1]], 1).astype(np.int32), filtered]

    return meaning


BEAMS = [i32(0), i32(3), i32(2)]  # min_length, num_beams, num_return_sequences
ENCODED = {"model_type": 1, "decoder_start_token_id": 2, "eos_token_id": 4, "pad_token_id": 8}


def beams(*rest: Any, outputs: int = 1, **attributes: Any):
    given = {"decoder": gpt()} | TOKENS | attributes
    return microsoft("BeamSearch", [IDS, i32(8), *rest], outputs=outputs, **given)


def encoded(
    kind: str, *rest: Any, source: np.ndarray = IDS, search: list[Any] = BEAMS, outputs: int = 2, **attributes: Any
):
    given = {"encoder": seq2seq("encoder", kind), "decoder": seq2seq("decoder", kind)} | ENCODED | attributes
    return microsoft("BeamSearch", [source, i32(7), *search, floats(1), *rest], outputs=outputs, **given)


SEVERAL = i32([1, 2, 3, 5], [8, 5, 4, 8], [8, 8, 8, 7])
FEATURES = waves(2, HEADS * SIZE, 5)
FRAMES = np.ones(FEATURES.shape, np.int32)
FORCED = i32([1, 3], [2, 5])


def whisper(*rest: Any, **options: Any):
    return encoded("Whisper", None, None, None, None, *rest, source=FEATURES, model_type=2, **options)


GRAPHS = {
    "encoder": seq2seq("encoder", "Whisper"),
    "decoder": seq2seq("decoder", "Whisper"),
    "eos_token_id": 1,
    "pad_token_id": 1,
}
SPEECH = GRAPHS | {"decoder_start_token_id": 2, "early_stopping": 1}
STAMPS = {
    "translate_token_id": 3,
    "transcribe_token_id": 8,
    "start_of_lm_token_id": 7,
    "no_timestamps_token_id": 4,
    "beginning_timestamp_token_id": 5,
}


def speech(*rest: Any, outputs: int = 2, **attributes: Any):
    inputs = [FEATURES, i32(8), *BEAMS, *rest]
    return microsoft("WhisperBeamSearch", inputs, outputs=outputs, **(SPEECH | attributes))


def no_speech():
    """Makes a row without the outputs between the scores of the sequences and non_speech_probs."""
    rest = [floats(1), None, None, None, None, FORCED]
    row = speech(*rest, outputs=5, no_speech_token_id=6, meaning=without_speech)
    row[3].outputs[2:4] = ["", ""]
    return row


def without_speech(case: Any) -> list[Any]:
    """Computes non_speech_probs of the first logits, as onnxruntime leaves them as it finds them in memory."""
    (encoder,) = (a.g for a in case.model.graph.node[-1].attribute if a.name == "encoder")
    model = helper.make_model(encoder, opset_imports=case.model.opset_import)
    logits = run_ort(model, {"encoder_input_ids": case.inputs[0], "decoder_input_ids": FORCED})[0][:, -1]
    chances = np.exp(logits) / np.exp(logits).sum(1, keepdims=True)
    return [*run_ort(case.model, case.feeds)[:2], chances[:, 6]]


SEARCH_ROWS = [
    greedy(),
    greedy(i32(9), eos_token_id=4),
    greedy(None, floats(1.75)),
    greedy(no_repeat_ngram_size=2),
    greedy(None, None, ALLOWED),
    greedy(None, None, None, AT_FIRST),
    greedy(None, None, None, None, MASK),
    greedy(*EVERYTHING, no_repeat_ngram_size=3, init_decoder=gpt(3)),
    # The encoder and the token it starts with are of other model types.
    greedy(encoder=gpt(), model_type=0, decoder_start_token_id=1, vocab_size=WORDS, init_decoder=gpt(3)),
    # The search ends once all have ended; onnxruntime leaves what follows as it finds it in memory.
    greedy(eos_token_id=1, meaning=lambda case: [i32([1, 2, 3, 4] + 6 * [8], [8, 5, 4, 5, 4] + 5 * [8])]),
    #
    sampled(top_p=0.0625, min_tokens_to_keep=1),
    sampled(i32(9), floats(1.75), ALLOWED, AT_FIRST, MASK, None, i32(3), top_p=0.0625, min_tokens_to_keep=1),
    sampled(temperature=2.5, custom=1, filter_value=-1e4, init_decoder=gpt(3), no_repeat_ngram_size=2),
    sampled(encoder=gpt(), model_type=0, decoder_start_token_id=1, vocab_size=WORDS, custom=1),
    # onnxruntime subtracts all penalties from the first word of the first sequence.
    sampled(
        None,
        None,
        None,
        None,
        None,
        i32(*2 * [[0, 1, 0, 0, 1, 0, 0, 1, 0]]),
        custom=1,
        presence_penalty=1e4,
        meaning=without_words,
    ),
    # onnxruntime gives the filtered logits in debug builds only.
    *(
        microsoft(
            "Sampling",
            [IDS, i32(4)],
            outputs=2,
            meaning=one_word(keep),
            **(TOKENS | {"decoder": gpt(scale=30.0), "temperature": 2.0, "filter_value": -1e4} | options),
        )
        for keep, options in (
            (1, {"custom": 1, "top_p": 0.125}),
            (1, {"top_p": 0.125, "min_tokens_to_keep": 1}),
        )
    ),
    #
    whisper(FORCED, only="F/tensor.float"),
    beams(*BEAMS, meaning=with_defaults),
    beams(None, i32(2), i32(1), outputs=2, vocab_size=WORDS, meaning=with_defaults),
    beams(i32(5), i32(3), i32(3), floats(2), outputs=3, early_stopping=1, eos_token_id=4),
    beams(i32(5), i32(2), i32(1), floats(-1), outputs=2, eos_token_id=5),
    beams(i32(0), i32(1), i32(1), floats(1), outputs=3),
    beams(i32(6), i32(3), i32(2), floats(1), *EVERYTHING[1:], no_repeat_ngram_size=2, outputs=3, init_decoder=gpt(2)),
    encoded("T5"),
    encoded("T5", None, None, None, MASK, i32([1, 3], [2, 5]), i32(0)),
    encoded("T5", source=SEVERAL, search=[i32(0), i32(3), i32(3)], meaning=one_by_one),
    encoded("new T5", source=i32([8, 8, 7]), outputs=3, eos_token_id=0),
    whisper(),
    whisper(FORCED),
    #
    speech(floats(1), None, None, None, None, FORCED, i32(1), None, None, floats(1.5), **STAMPS),
    speech(floats(2), None, None, None, None, None, i32(1), **(STAMPS | {"beginning_timestamp_token_id": 2})),
    speech(
        *[floats(1), floats(1.25), ALLOWED, AT_FIRST, None, FORCED],
        outputs=3,
        model_type=2,
        vocab_size=WORDS,
        no_repeat_ngram_size=2,
        decoder_output_cross_qk=0,
    ),
    speech(floats(1), None, None, None, FRAMES, FORCED, i32(0), i32([0, 0]), init_decoder=gpt()),
    no_speech(),
    microsoft(
        "WhisperBeamSearch",
        [FEATURES, i32(8), None, *BEAMS[1:], None, None, None, None, None, FORCED],
        meaning=with_defaults,
        **GRAPHS,
    ),
]
