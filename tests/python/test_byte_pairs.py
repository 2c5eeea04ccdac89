"""Tokenizers of onnxruntime-extensions that merge bytes, and BpeDecoder, compared with the package tokenizers."""

from __future__ import annotations

import json
from collections.abc import Iterator

import numpy as np
import onnx
import pytest
import tokenizers
from onnx import TensorProto
from tokenizers import decoders, models, normalizers, pre_tokenizers

import onnx_torch
from models import extension_model

LETTERS = "abcxyzABZéÉïßẞİıÅΣσςΩЯйЙñ日本語한글가ａＡ𝒳ﬁǆǅ\u0301\u0308"
OTHERS = " \t\n\r\u00a0\u2003\u2028\u3000\u0085\x0b.,;!?'\"«»-–_$+|~<=>€°059²½٣\u200b\u00ad\u200d\ue000"
PARTS = ["'s", "'t", "'re", "'ve", "'m", "'ll", "'d", "'S", "  ", "the ", " there", "ab" * 9]
BYTES = sorted(pre_tokenizers.ByteLevel.alphabet())
MARKS = {
    "GPT2Tokenizer": ["<|endoftext|>"],
    "CLIPTokenizer": ["<|startoftext|>", "<|endoftext|>"],
    "RobertaTokenizer": ["<s>", "</s>", "<pad>", "<unk>"],
}


def random_texts(seed: int, count: int = 400, parts: int = 30) -> Iterator[str]:
    numbers = np.random.default_rng(seed)
    for _ in range(count):
        chance = numbers.random(parts)
        kinds = [PARTS if c < 0.2 else list(OTHERS) if c < 0.45 else list(LETTERS) for c in chance]
        yield "".join(str(numbers.choice(kind)) for kind in kinds)


def trained(op_type: str) -> tokenizers.Tokenizer:
    """Hugging Face's tokenizer of this kind, with merges of random texts, and without marks around a text."""
    suffix = {"end_of_word_suffix": "</w>"} if op_type == "CLIPTokenizer" else {}
    made = tokenizers.Tokenizer(models.BPE(**suffix))
    made.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    if suffix:
        expression = tokenizers.Regex(r"'s|'t|'re|'ve|'m|'ll|'d|[\p{L}]+|[\p{N}]|[^\s\p{L}\p{N}]+")
        words = pre_tokenizers.Split(expression, behavior="removed", invert=True)
        bytes_of = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)
        made.pre_tokenizer = pre_tokenizers.Sequence([words, bytes_of])
        made.normalizer = normalizers.Sequence([normalizers.NFC(), normalizers.Lowercase()])
    marks, samples = MARKS[op_type], list(random_texts(seed=1))
    trainer = tokenizers.trainers.BpeTrainer(
        vocab_size=1100, special_tokens=marks, initial_alphabet=BYTES, show_progress=False, **suffix
    )
    made.train_from_iterator(samples, trainer)
    vocab, merges = vocabulary(made)
    for last in (byte + suffix.get("end_of_word_suffix", "") for byte in BYTES):
        vocab.setdefault(last, len(vocab))
    made.model = models.BPE(vocab, merges, **suffix)
    return made


def vocabulary(of: tokenizers.Tokenizer) -> tuple[dict[str, int], list[tuple[str, str]]]:
    model = json.loads(of.to_str())["model"]
    return model["vocab"], [tuple(pair) for pair in model["merges"]]


def files(of: tokenizers.Tokenizer) -> dict[str, str]:
    """The vocabulary and the merges as the attributes have them."""
    vocab, merges = vocabulary(of)
    return {"vocab": json.dumps(vocab), "merges": "#version: 0.2\n" + "".join(f"{a} {b}\n" for a, b in merges)}


TRAINED = {op_type: trained(op_type) for op_type in MARKS}
FILES = {op_type: files(of) for op_type, of in TRAINED.items()}
SMALL = {"vocab": '{"a": 0, "b": 1, "ab": 2, "\\u0120": 3, "<|endoftext|>": 4}', "merges": "a b"}

MANY_TOKENS = "\n".join(f"{i}" + "x" * 999 + "=1" for i in range(4000))


def node(op_type: str, outputs: int = 2, **attributes) -> onnx.ModelProto:
    names = ["ids", "mask", "offsets"][:outputs]
    return extension_model(op_type, {"text": TensorProto.STRING}, dict.fromkeys(names, TensorProto.INT64), **attributes)


def texts(*values: str) -> np.ndarray:
    return np.array(values, object)


def with_marks(op_type: str, ids: list[int]) -> list[int]:
    if op_type == "GPT2Tokenizer":
        return ids
    begin, end = (TRAINED[op_type].token_to_id(mark) for mark in MARKS[op_type][:2])
    return [begin, *ids, end]


@pytest.mark.parametrize("op_type", MARKS)
def test_texts_have_the_ids_of_hugging_face(op_type):
    rep = onnx_torch.prepare(node(op_type, **FILES[op_type]))
    merged = 0
    for text in random_texts(seed=2):
        ids, mask = rep.run([texts(text)])
        expected = with_marks(op_type, TRAINED[op_type].encode(text).ids)
        assert ids.tolist() == [expected], repr(text)
        assert mask.tolist() == [[1] * len(expected)]
        merged += sum(i >= len(BYTES) + len(MARKS[op_type]) for i in expected)
    assert merged > 1000


@pytest.mark.parametrize("op_type", MARKS)
def test_marks_in_a_text_are_tokens(op_type):
    rep = onnx_torch.prepare(node(op_type, **FILES[op_type]))
    first, last = MARKS[op_type][0], MARKS[op_type][-1]
    for text in [first, f"a {first}b{last} ", f"{last}{last}", f"{first[:-1]} {last}x"]:
        expected = with_marks(op_type, TRAINED[op_type].encode(text).ids)
        assert rep.run([texts(text)])[0].tolist() == [expected]


@pytest.mark.parametrize("op_type", MARKS)
@pytest.mark.parametrize("length", [-1, 4, 9])
def test_rows_have_one_length(op_type, length):
    rep = onnx_torch.prepare(node(op_type, padding_length=length, **FILES[op_type]))
    given = texts(["xyxyxz 05", ""], ["a.b", ",,,.,!?-_$+"])
    ids, mask = rep.run([given])
    pad = {"CLIPTokenizer": 1, "RobertaTokenizer": 2, "GPT2Tokenizer": 0}[op_type]
    marks = len(with_marks(op_type, []))
    rows = [TRAINED[op_type].encode(text).ids for text in given.flatten()]
    rows = [with_marks(op_type, row if length == -1 else row[: length - marks]) for row in rows]
    longest = max(map(len, rows)) if length == -1 else length
    assert ids.shape == mask.shape == (2, 2, longest)
    for row, found, ones in zip(rows, ids.reshape(4, -1), mask.reshape(4, -1), strict=True):
        assert found.tolist() == row + [pad] * (longest - len(row))
        assert ones.tolist() == [1] * len(row) + [0] * (longest - len(row))


def test_no_texts():
    ids, mask = onnx_torch.prepare(node("GPT2Tokenizer", **SMALL)).run([np.zeros([0], object)])
    assert ids.shape == mask.shape == (0, 0)


def test_the_first_merge_of_the_list_is_the_first():
    vocab = {token: i for i, token in enumerate(["a", "b", "c", "ab", "bc", "abc", "aa"])}
    for merges, expected in [("a b\nb c", [3, 2]), ("b c\na b", [0, 4]), ("b c\na bc\na b", [5]), ("a b\nab c", [5])]:
        rep = onnx_torch.prepare(node("GPT2Tokenizer", vocab=json.dumps(vocab), merges=merges))
        assert rep.run([texts("abc")])[0].tolist() == [expected]
    rep = onnx_torch.prepare(node("GPT2Tokenizer", vocab=json.dumps(vocab), merges="a a"))
    assert rep.run([texts("aaaaa")])[0].tolist() == [[6, 6, 0]]


def test_a_long_word_takes_no_time_of_its_square():
    rep = onnx_torch.prepare(node("GPT2Tokenizer", **SMALL), limits={"seconds": 20})
    assert rep.run([texts("ab" * 500_000)])[0].tolist() == [[2] * 500_000]


def test_tokens_that_are_added():
    added = "[X]=7\r\n[X][X]=8\n\na=b=9\n"
    rep = onnx_torch.prepare(node("GPT2Tokenizer", added_token=added, **SMALL))
    assert rep.run([texts("ab[X] [X][X]a=bb")])[0].tolist() == [[2, 7, 3, 8, 9, 1]]


def test_bytes_that_the_vocabulary_does_not_have_are_unknown():
    rep = onnx_torch.prepare(node("GPT2Tokenizer", vocab='{"a": 0}', merges="#version: 0.2\n"))
    assert rep.run([texts("aé<|endoftext|>")])[0].tolist() == [[0, 1, 1, 1]]  # the mark comes behind the vocabulary


def test_a_vocabulary_has_all_that_json_has():
    tokens = ["a", '"', "\\", "é", "日", "𝒳", "/"]
    written = json.dumps({token: i for i, token in enumerate(tokens)}, indent=2)
    plain = json.dumps({token: i for i, token in enumerate(tokens)}, ensure_ascii=False).replace("/", "\\/")
    for vocab in (written, plain):
        rep = onnx_torch.prepare(node("GPT2Tokenizer", vocab=vocab, merges="#version: 0.2"))
        assert rep.run([texts('a"\\/')])[0].tolist() == [[0, 1, 2, 6]]


def test_the_name_of_the_model_tells_what_is_around_a_text():
    files = FILES["RobertaTokenizer"]
    plain = onnx_torch.prepare(node("RobertaTokenizer", model_name="GPT2", **files))
    assert plain.run([texts("ab")])[0].tolist() == [TRAINED["RobertaTokenizer"].encode("ab").ids]
    with pytest.raises(onnx_torch.UnsupportedError, match=r'model_name "Llama": GPT2, CodeGen, CLIP and Roberta'):
        onnx_torch.prepare(node("GPT2Tokenizer", model_name="Llama", **SMALL))


def test_a_saved_model_has_its_vocabulary(tmp_path):
    rep = onnx_torch.prepare(node("CLIPTokenizer", **FILES["CLIPTokenizer"]))
    rep.save(tmp_path / "model.pt")
    loaded = onnx_torch.load(tmp_path / "model.pt")
    for y, expected in zip(loaded.run([texts("éa b!")]), rep.run([texts("éa b!")]), strict=True):
        np.testing.assert_array_equal(y, expected)


@pytest.mark.parametrize(
    "attributes, message",
    [
        ({"vocab": "[1]"}, r"vocab must be a JSON object .* '\[1\]'"),
        ({"vocab": '{"a": 0, "b": x}'}, "none of it: '\"b\": x}'"),
        ({"vocab": '{"a\\'}, "vocab must be a JSON object"),
        ({"vocab": '{"\\u12"}: 1}'}, "vocab must be a JSON object"),
        ({"vocab": '{"\\u12": 1}'}, "a character that is cut off"),
        ({"vocab": '{"\\uzz00": 1}'}, "a character without a number"),
        ({"vocab": '{"a": 99999999999999999999}'}, "vocab must be a JSON object"),
        ({"merges": "ab"}, "a line of merges must hold two tokens: 'ab'"),
        ({"merges": "a q"}, "the vocabulary has no token 'q', which merges have"),
        ({"merges": "b a"}, "the vocabulary has no token 'ba', which merges have"),
        ({"padding_length": 0}, "padding_length must be -1 or more than 0, not 0"),
        ({"added_token": "x"}, "a line of added_token must hold a token, '=' and its id: 'x'"),
        ({"added_token": "=1"}, "a line of added_token must"),
        ({"added_token": "x=1x"}, "a line of added_token must"),
        (
            {"added_token": "\n".join(f"{i}" + "x" * 999 + "=1" for i in range(4000))},
            "the added tokens cannot be sought",
        ),
    ],
)
def test_what_is_wrong_is_told(attributes, message):
    with pytest.raises(onnx_torch.Error, match="(?s)GPT2Tokenizer.*" + message):
        onnx_torch.prepare(node("GPT2Tokenizer", **(SMALL | attributes)))


def test_offsets_are_refused():
    with pytest.raises(onnx_torch.UnsupportedError, match="with the output offset_mapping"):
        onnx_torch.prepare(node("CLIPTokenizer", outputs=3, **SMALL))


# ---- BpeDecoder


def decoder(**attributes) -> onnx_torch.BackendRep:
    ids, text = {"ids": TensorProto.INT64}, {"text": TensorProto.STRING}
    return onnx_torch.prepare(extension_model("BpeDecoder", ids, text, **attributes))


def byte_decoder() -> str:
    """Each character that stands for a byte, and the byte: those that can be seen stand for themselves."""
    itself = [c for c in BYTES if ord(c) < 256]
    others = sorted(set(range(256)) - set(map(ord, itself)))
    pairs = [(ord(c), ord(c)) for c in itself] + [(256 + i, byte) for i, byte in enumerate(others)]
    assert [chr(code) for code, _ in sorted(pairs)] == BYTES
    return "\n".join(f"{code}\t{byte}" for code, byte in pairs)


def decoding(op_type: str) -> dict[str, str]:
    vocab, _ = vocabulary(TRAINED[op_type])
    return {"id_vocab": "\n".join(sorted(vocab, key=vocab.__getitem__)), "byte_decoder": byte_decoder()}


def test_ids_have_the_texts_of_hugging_face():
    attributes, of = decoding("GPT2Tokenizer"), TRAINED["GPT2Tokenizer"]
    of.decoder = decoders.ByteLevel()
    rep = decoder(**attributes)
    cut, numbers = 0, np.random.default_rng(3)
    for _ in range(200):
        ids = numbers.integers(0, of.get_vocab_size(), 20)  # many of these are bytes of a character that is cut off
        expected = of.decode(ids.tolist(), skip_special_tokens=False)
        assert rep.run([ids])[0].tolist() == [expected]
        cut += expected.count("\ufffd")
    assert cut > 200


def test_each_row_of_ids_is_a_text():
    attributes, of = decoding("GPT2Tokenizer"), TRAINED["GPT2Tokenizer"]
    rows = [["a b", "éa"], ["日本", "x?"]]
    ids = [[of.encode(text).ids for text in row] for row in rows]
    longest = max(len(one) for row in ids for one in row)
    space = of.encode(" ").ids
    padded = np.array([[one + space * (longest - len(one)) for one in row] for row in ids])
    found = decoder(**attributes).run([padded])[0]
    assert [[text.rstrip() for text in row] for row in found.tolist()] == rows
    assert decoder(**attributes).run([np.zeros([2, 0], np.int64)])[0].tolist() == ["", ""]


WORDS = {"id_vocab": "a\nb\n\n日\nc\u0120", "byte_decoder": "97\t97\n98\t66\n288\t32"}


@pytest.mark.parametrize(
    "attributes, ids, expected",
    [
        ({}, [0, 1, 2, 4], "aBc "),
        ({}, [0, 3, 9, -1], "a" + 3 * "<|endoftext|>"),
        ({"unk_token": "?"}, [0, 3, 9, 1], "a??B"),
        ({"unk_token": "?", "skip_special_tokens": 1}, [0, 3, 9, 1], "aB"),
        ({"added_tokens": "7\t[X]\n0\tq"}, [7, 0, 1], "[X]qB"),
        ({"all_special_ids": "0\n1"}, [0, 4, 1], "ac B"),
        ({"all_special_ids": "0\n1", "skip_special_tokens": 1}, [0, 4, 1], "c "),
        ({"all_special_ids": "0", "whitespace_token": 1}, [1, 0, 0, 1, 0], "B a a B a"),
        ({"all_special_ids": "0", "whitespace_token": 1, "skip_special_tokens": 1}, [1, 0, 0, 1, 0], "BB"),
    ],
)
def test_special_ids(attributes, ids, expected):
    assert decoder(**(WORDS | attributes)).run([np.array(ids)])[0].tolist() == [expected]


def test_tokens_of_sentencepiece():
    rep = decoder(id_vocab="\u2581a\nb\u2581\u2581c\n<0xE6>\n<0x97>\n<0xA5>\n<0xZZ>", byte_decoder="9601\t32")
    assert rep.run([np.array([0, 1, 2, 3, 4, 5])])[0].tolist() == [" ab  c日<0xZZ>"]


@pytest.mark.parametrize(
    "attributes, message",
    [
        ({"id_vocab": ""}, "id_vocab and byte_decoder must not be empty"),
        ({"byte_decoder": ""}, "id_vocab and byte_decoder must not be empty"),
        ({"byte_decoder": "a\t1"}, "a line of byte_decoder must begin with an integer: 'a\t1'"),
        ({"byte_decoder": "97\t256"}, "must hold a character's number, a tab and a byte, not '256'"),
        ({"byte_decoder": "97"}, "must hold a character's number, a tab and a byte, not ''"),
        ({"added_tokens": "x"}, "a line of added_tokens must begin with an integer: 'x'"),
        ({"all_special_ids": "1 2"}, "a line of all_special_ids must begin with an integer: '1 2'"),
    ],
)
def test_what_is_wrong_with_a_decoder_is_told(attributes, message):
    with pytest.raises(onnx_torch.Error, match="(?s)BpeDecoder.*" + message):
        decoder(**(WORDS | attributes))


def test_a_single_id_is_refused():
    with pytest.raises(onnx_torch.Error, match="(?s)BpeDecoder.*ids must have a dimension at least"):
        decoder(**WORDS).run([np.array(0)])


def test_a_saved_decoder_has_its_vocabulary(tmp_path):
    rep = decoder(**WORDS)
    rep.save(tmp_path / "model.pt")
    assert onnx_torch.load(tmp_path / "model.pt").run([np.array([0, 4])])[0].tolist() == ["ac "]
