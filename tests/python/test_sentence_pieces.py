"""The operators of onnxruntime-extensions that have a model of sentencepiece, compared with that package."""

from __future__ import annotations

import base64
import contextlib
import io
from typing import Any

import numpy as np
import onnx
import pytest
import sentencepiece
from onnx import TensorProto
from sentencepiece import sentencepiece_model_pb2, sentencepiece_pb2

import onnx_torch
from models import extension_model

PARTS = ["the ", " there", "tokenizer", "pieces", "peace", "  ", "ab" * 5, "[X]", "hello", "world", "12", "the tiger"]
CHARACTERS = "abcdeﬁéİＡアｶﾞ日本한☃𝒳½\u0301\u3000\t\u00a0\u00ad\u2581.,!"
OTHERS = "\0\x7f\ufffdñß語"  # which no model has seen

MODELS: dict[str, dict[str, Any]] = {
    "unigram": {},
    "unigram with bytes": {"byte_fallback": True, "vocab_size": 400},
    "unigram with symbols": {
        "user_defined_symbols": ["[X]", "ab", " the", "\u2581the\u2581t"],
        "control_symbols": ["<c>"],
    },
    "unigram as it is": {"normalization_rule_name": "identity", "remove_extra_whitespaces": False},
    "unigram with a suffix": {"treat_whitespace_as_suffix": True, "normalization_rule_name": "nfkc_cf"},
    "bpe": {"model_type": "bpe"},
    "bpe with bytes": {"model_type": "bpe", "byte_fallback": True, "vocab_size": 400, "add_dummy_prefix": False},
    "bpe with symbols": {"model_type": "bpe", "user_defined_symbols": ["[X]", "ab"], "unk_surface": "?"},
    "characters": {"model_type": "char", "user_defined_symbols": ["hello"]},
    "words": {"model_type": "word", "normalization_rule_name": "nmt_nfkc_cf"},
}


def random_texts(seed: int, count: int, characters: str = CHARACTERS) -> list[str]:
    numbers = np.random.default_rng(seed)

    def part() -> str:
        return str(numbers.choice(PARTS if numbers.random() < 0.6 else list(characters)))

    return ["".join(part() for _ in range(numbers.integers(1, 20))) for _ in range(count)]


def trained(**options: Any) -> bytes:
    """The bytes of a model that sentencepiece makes of random texts."""
    stream = io.BytesIO()
    sentencepiece.SentencePieceTrainer.train(
        sentence_iterator=iter(random_texts(seed=1, count=500)),
        model_writer=stream,
        minloglevel=2,
        **{"vocab_size": 120, "hard_vocab_limit": False, "num_threads": 1, **options},
    )
    return stream.getvalue()


@pytest.fixture(scope="module", params=MODELS)
def model(request) -> bytes:
    return trained(**MODELS[request.param])


def tokenizer(model: bytes | str, outputs: int = 3, fairseq: bool = False) -> onnx.ModelProto:
    inputs = {"text": TensorProto.STRING, "nbest_size": TensorProto.INT64, "alpha": TensorProto.FLOAT}
    inputs |= dict.fromkeys(["add_bos", "add_eos", "reverse", *["fairseq"] * fairseq], TensorProto.BOOL)
    types = {"tokens": TensorProto.INT32, "instance_indices": TensorProto.INT64, "token_indices": TensorProto.INT32}
    return extension_model("SentencepieceTokenizer", inputs, dict(list(types.items())[:outputs]), model=model)


def decoder(model: bytes | str, fairseq: bool = False) -> onnx.ModelProto:
    inputs = {"ids": TensorProto.INT64} | dict.fromkeys(["fairseq"] * fairseq, TensorProto.BOOL)
    return extension_model("SentencepieceDecoder", inputs, {"text": TensorProto.STRING}, model=model)


def texts(*values: str) -> np.ndarray:
    return np.array(values, object)


def flags(*values: bool) -> list[np.ndarray]:
    return [np.array([value]) for value in values]


def fed(*values: str, marks: tuple[bool, ...] = (False, False, False)) -> list[np.ndarray]:
    return [texts(*values), np.array([0]), np.array([0], np.float32), *flags(*marks)]


def pieces_of(processor: sentencepiece.SentencePieceProcessor, text: str) -> list[tuple[int, int]]:
    """What sentencepiece itself gives: ids, and where they begin, in bytes."""
    whole = sentencepiece_pb2.SentencePieceText.FromString(processor.encode(text, out_type="serialized_proto"))
    return [(piece.id, piece.begin) for piece in whole.pieces]


def test_texts_have_the_pieces_of_sentencepiece(model):
    processor = sentencepiece.SentencePieceProcessor(model_proto=model)
    rep = onnx_torch.prepare(tokenizer(model))
    found = set()
    for text in [*random_texts(2, 300), *random_texts(3, 100, CHARACTERS + OTHERS[1:]), "", " ", "\u2581", "the"]:
        ids, ends, begins = rep.run(fed(text))
        assert list(zip(ids.tolist(), begins.tolist(), strict=True)) == pieces_of(processor, text), repr(text)
        assert ends.tolist() == [0, len(ids)]
        found |= set(ids.tolist())
    assert len(found) > 10


def test_pieces_have_the_text_of_sentencepiece(model):
    processor = sentencepiece.SentencePieceProcessor(model_proto=model)
    rep = onnx_torch.prepare(decoder(model))
    numbers = np.random.default_rng(4)
    rows = [numbers.integers(0, processor.vocab_size(), numbers.integers(0, 12)) for _ in range(300)]
    rows += [np.array(processor.encode(text), np.int64) for text in random_texts(5, 100, CHARACTERS + OTHERS[1:])]
    for row in rows:
        assert rep.run([row])[0].tolist() == [processor.decode(row.tolist())], row


def test_texts_follow_one_another():
    model = trained()
    processor = sentencepiece.SentencePieceProcessor(model_proto=model)
    words = ["the tiger", "", "hello \u00e9"]
    alone = [pieces_of(processor, word) for word in words]
    bos, eos = processor.bos_id(), processor.eos_id()
    for marks in np.ndindex(2, 2, 2):
        add_bos, add_eos, reverse = map(bool, marks)
        ids, ends, begins = onnx_torch.prepare(tokenizer(model)).run(fed(*words, marks=(add_bos, add_eos, reverse)))
        expected = []
        for word, pieces in zip(words, alone, strict=True):
            around = [(bos, 0)] * add_bos + pieces + [(eos, len(word.encode()))] * add_eos
            expected.append(around[::-1] if reverse else around)
        assert list(zip(ids.tolist(), begins.tolist(), strict=True)) == [piece for row in expected for piece in row]
        assert ends.tolist() == [0, *np.cumsum([len(row) for row in expected])]


def test_ids_of_fairseq():
    """fairseq's vocabulary begins with <s>, <pad>, </s> and <unk>, that of sentencepiece with <unk>, <s> and </s>."""
    model = trained()
    ids = onnx_torch.prepare(tokenizer(model)).run(fed("the \u00f1", "the", marks=(True, True, False)))[0]
    rep = onnx_torch.prepare(tokenizer(model, fairseq=True))
    for is_fairseq, reverse in ((True, False), (False, False), (True, True)):
        inputs = [*fed("the \u00f1", "the", marks=(True, True, reverse)), np.array([is_fairseq])]
        found = rep.run(inputs)[0]
        if reverse:
            assert sorted(found.tolist()) == sorted(ids.tolist())
        elif is_fairseq:
            assert found.tolist() == [{0: 3, 1: 0, 2: 2}.get(i, i + 1) for i in ids.tolist()]
            given = [found.astype(np.int64), np.array([True])]
            back = onnx_torch.prepare(decoder(model, fairseq=True)).run(given)[0]
            assert back.tolist() == onnx_torch.prepare(decoder(model)).run([ids.astype(np.int64)])[0].tolist()
        else:
            assert found.tolist() == ids.tolist()


def test_model_in_base64():
    model = trained()
    for made in (tokenizer, decoder):
        encoded = onnx_torch.prepare(made(base64.b64encode(model).decode()))
        inputs = fed("the tiger") if made is tokenizer else [np.array([5, 6, 7])]
        assert encoded.run(inputs)[0].tolist() == onnx_torch.prepare(made(model)).run(inputs)[0].tolist()


def test_text_ends_before_its_first_zero():
    """As in onnxruntime-extensions."""
    rep = onnx_torch.prepare(tokenizer(trained()))
    marks = (False, True, False)
    found, expected = rep.run(fed("the\0re", marks=marks)), rep.run(fed("the", marks=marks))
    assert found[0].tolist() == expected[0].tolist()
    assert found[2][-1] == len("the\0re")


def test_a_saved_model_has_its_pieces(tmp_path):
    model = trained()
    for made, inputs in ((tokenizer, fed("the tiger")), (decoder, [np.array([5, 6, 7])])):
        rep = onnx_torch.prepare(made(model))
        rep.save(tmp_path / "model.pt")
        loaded = onnx_torch.load(tmp_path / "model.pt")
        assert loaded.run(inputs)[0].tolist() == rep.run(inputs)[0].tolist()


# ---- Models that are wrong, or not as a trainer makes them


def made_by_hand(pieces: list[tuple[str | bytes, float, str]], **spec: Any) -> bytes:
    """A model of these pieces, with their scores and types."""
    model = sentencepiece_model_pb2.ModelProto()
    for text, score, kind in pieces:
        model.pieces.add(piece=text, score=score, type=getattr(model.SentencePiece, kind))
    for name, value in spec.items():
        of = model.trainer_spec if hasattr(model.trainer_spec, name) else model.normalizer_spec
        setattr(of, name, value)
    return model.SerializeToString()


UNKNOWN = ("<unk>", 0.0, "UNKNOWN")
LETTERS = [(letter, -2.0, "NORMAL") for letter in "abc"]


@pytest.mark.parametrize("model_type", [1, 2])
def test_unused_pieces(model_type):
    """A piece that is not used is what it was merged of; in a sum of scores it does not count."""
    merged = [("ab", -1.0, "UNUSED"), ("abc", -0.5, "UNUSED"), ("bc", -1.5, "NORMAL"), ("aab", -0.2, "NORMAL")]
    model = made_by_hand([UNKNOWN, *LETTERS, *merged], model_type=model_type, add_dummy_prefix=False)
    processor = sentencepiece.SentencePieceProcessor(model_proto=model)
    rep = onnx_torch.prepare(tokenizer(model))
    for word in ["ab", "abc", "bc", "aab", "aabc", "ababcabc", "cabxab"]:
        assert rep.run(fed(word))[0].tolist() == processor.encode(word), word


def test_unknown_neighbours_are_one_piece():
    model = made_by_hand([UNKNOWN, *LETTERS, ("xy", -3.0, "UNUSED")], add_dummy_prefix=False)
    ids, _, begins = onnx_torch.prepare(tokenizer(model)).run(fed("axyzb\u00e9a"))
    assert (ids.tolist(), begins.tolist()) == ([1, 0, 2, 0, 1], [0, 1, 4, 5, 7])


def with_rules(rules: bytes) -> bytes:
    return made_by_hand([UNKNOWN, *LETTERS], precompiled_charsmap=rules)


HOSTILE = {
    "no model": (b"\x08\xff\xff", "no model that sentencepiece has trained"),
    "empty": (b"", "no piece for what is unknown"),
    "an empty piece": (made_by_hand([UNKNOWN, ("", 0.0, "NORMAL")]), "piece 1 of the model is empty"),
    "a piece twice": (made_by_hand([UNKNOWN, *LETTERS, *LETTERS]), "the piece of id 4 twice"),
    "two unknown": (made_by_hand([UNKNOWN, ("<u>", 0.0, "UNKNOWN")]), "two pieces for what is unknown"),
    "no number": (
        made_by_hand([UNKNOWN, ("a", float("nan"), "NORMAL")]),
        "score of piece 1 of the model is not a number",
    ),
    "bytes": (made_by_hand([UNKNOWN, ("<0x0A>", 0.0, "BYTE")]), "and no byte_fallback"),
    "few bytes": (made_by_hand([UNKNOWN, ("<0x0A>", 0.0, "BYTE")], byte_fallback=True), "no piece <0x00>"),
    "short rules": (with_rules(b"ab"), "precompiled_charsmap. are broken"),
    "rules without right sides": (with_rules(b"\x04\0\0\0abcd"), "precompiled_charsmap. are broken"),
    "rules of 4 GB": (with_rules(b"\xff\xff\xff\xffabcdx\0"), "precompiled_charsmap. are broken"),
}


@pytest.mark.parametrize("name", HOSTILE)
def test_wrong_model_is_refused(name):
    model, message = HOSTILE[name]
    for made, op_type in ((tokenizer, "SentencepieceTokenizer"), (decoder, "SentencepieceDecoder")):
        with pytest.raises(onnx_torch.Error, match=f"(?s){op_type}.*{message}"):
            onnx_torch.prepare(made(model))


def rule_for_a(place: int, right_side: bytes) -> bytes:
    """The rules of a double array whose root leads to "a", and that to the place of the right side."""
    units = np.zeros(256, "<u4")
    units[97] = 97 | 1 << 8 | (97 ^ 200) << 10
    units[200] = 1 << 31 | place
    return (4 * 256).to_bytes(4, "little") + units.tobytes() + right_side


def test_rule():
    ids, _, begins = onnx_torch.prepare(tokenizer(with_rules(rule_for_a(1, b"xbc\0")))).run(fed("cab"))
    assert (ids.tolist(), begins.tolist()) == ([0, 3, 2, 3, 2], [0, 0, 1, 1, 2])


@pytest.mark.parametrize(
    "place, right_side, message",
    [(0, b"x" * 5000, "makes 5000 bytes of a character"), (9999, b"x\0", r"\(precompiled_charsmap\) is broken")],
)
def test_broken_rule_is_refused(place, right_side, message):
    rep = onnx_torch.prepare(tokenizer(with_rules(rule_for_a(place, right_side))))
    assert rep.run(fed("b"))[0].tolist() == [0, 2]
    with pytest.raises(onnx_torch.Error, match="(?s)SentencepieceTokenizer.*" + message):
        rep.run(fed("a"))


def test_rules_that_lead_anywhere():
    """What a double array of random units leads to beyond its end is no rule."""
    numbers = np.random.default_rng(6)
    for count in [1, 2, 100, 256, 300] * 20:
        units = numbers.integers(0, 2**32, count, np.uint32) & 0x7FFFFF00 | np.arange(count, dtype=np.uint32) & 0xFF
        units[0] = numbers.choice([0, 2**31, 2**32 - 1, 3 << 10 | 1 << 9])
        rules = (4 * count).to_bytes(4, "little") + units.astype("<u4").tobytes() + b"x\0"
        rep = onnx_torch.prepare(tokenizer(with_rules(rules)))
        with contextlib.suppress(onnx_torch.Error):
            rep.run(fed("abc\u00e9"))
        assert rep.run(fed(""))[0].size == 0


def test_wrong_inputs_are_refused():
    model = trained()
    with pytest.raises(onnx_torch.Error, match="(?s)SentencepieceDecoder.*no piece of the id 999999"):
        onnx_torch.prepare(decoder(model)).run([np.array([999999])])
    with pytest.raises(onnx_torch.Error, match="(?s)SentencepieceDecoder.*no piece of the id -1"):
        onnx_torch.prepare(decoder(model)).run([np.array([-1])])
    lowest = np.array([np.iinfo(np.int64).min])
    with pytest.raises(onnx_torch.Error, match=f"(?s)SentencepieceDecoder.*no piece of the id {lowest[0]}"):
        onnx_torch.prepare(decoder(model, fairseq=True)).run([lowest, np.array([True])])
    with pytest.raises(onnx_torch.Error, match=r"(?s)SentencepieceDecoder.*shape \[n\] or \[1, n\]"):
        onnx_torch.prepare(decoder(model)).run([np.zeros([2, 2], np.int64)])
    with pytest.raises(onnx_torch.Error, match="(?s)SentencepieceTokenizer.*add_bos must be one bool, not 2"):
        onnx_torch.prepare(tokenizer(model)).run([*fed("a")[:3], np.array([True, False]), *flags(True, True)])
    assert onnx_torch.prepare(decoder(model)).run([np.zeros([1, 0], np.int64)])[0].tolist() == [""]


def test_long_texts_can_be_stopped():
    """Pieces of 1 to 1,500 letters, and 300,000 of these: half a billion steps."""
    model = made_by_hand([UNKNOWN, *[("a" * n, -float(n), "NORMAL") for n in range(1, 1500)]], add_dummy_prefix=False)
    rep = onnx_torch.prepare(tokenizer(model), limits={"seconds": 0.3})
    with pytest.raises(onnx_torch.Error, match="seconds"):
        rep.run(fed("a" * 300_000))
