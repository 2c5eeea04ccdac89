"""Tokenizers and the decoder of BERT of onnxruntime-extensions, compared with the package tokenizers."""

from __future__ import annotations

import numpy as np
import onnx
import pytest
import tokenizers
import transformers
from onnx import TensorProto

import onnx_torch
from models import extension_model
from random_numbers import RNG

MARKS = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"]
LETTERS = "abcxyzABZ059éÉïßẞİıÅΣσςΩЯйЙñ日本語한글가ａＡ𝒳ﬁǆǅ"
OTHERS = " \t\n\r\u00a0\u2003\u2028\u3000.,;!?'’\"«»-–_$+^`~|<=>€°©\u0301\u0308\u200b\u00ad\u200d\u0000\ufffd\ue000"


def vocabulary() -> list[str]:
    chance = np.random.default_rng(0)
    pieces = [letter for letter in LETTERS + OTHERS if letter not in "\n\r"]
    pieces += [first + second for first in "abéß日" for second in "abcéй"]
    pieces += ["##" + piece for piece in pieces if chance.random() < 0.7]
    return MARKS + list(dict.fromkeys(pieces))


VOCABULARY = vocabulary()


def node(op_type: str, outputs: int = 3, **attributes) -> onnx.ModelProto:
    attributes = {"vocab_file": "\n".join(VOCABULARY)} | attributes
    names = ["a", "b", "c", "d"][:outputs]
    return extension_model(op_type, {"text": TensorProto.STRING}, dict.fromkeys(names, TensorProto.INT64), **attributes)


def texts(*values: str) -> np.ndarray:
    return np.array(values, object)


def ids_of(text: str, vocab: list[str] = VOCABULARY, **attributes: int) -> list[int]:
    """The same by Hugging Face's tokenizer, without marks."""
    words = tokenizers.models.WordPiece(
        {token: i for i, token in enumerate(vocab)}, unk_token="[UNK]", max_input_chars_per_word=100
    )
    made = tokenizers.Tokenizer(words)
    made.normalizer = tokenizers.normalizers.BertNormalizer(
        clean_text=True,
        handle_chinese_chars=bool(attributes.get("tokenize_chinese_chars", 1)),
        strip_accents=bool(attributes.get("strip_accents", 0)),
        lowercase=bool(attributes.get("do_lower_case", 1)),
    )
    made.pre_tokenizer = tokenizers.pre_tokenizers.BertPreTokenizer()
    return made.encode(text).ids


def random_text() -> str:
    length = RNG.integers(0, 40)
    return "".join(RNG.choice(list(LETTERS if RNG.random() < 0.8 else OTHERS)) for _ in range(length))


@pytest.mark.parametrize("tokenize_chinese_chars", [0, 1])
@pytest.mark.parametrize("strip_accents", [0, 1])
@pytest.mark.parametrize("do_lower_case", [0, 1])
def test_texts_have_the_ids_of_hugging_face(do_lower_case, strip_accents, tokenize_chinese_chars):
    attributes = {
        "do_lower_case": do_lower_case,
        "strip_accents": strip_accents,
        "tokenize_chinese_chars": tokenize_chinese_chars,
    }
    rep = onnx_torch.prepare(node("BertTokenizer", **attributes))
    unknown = 0
    for _ in range(300):
        text = random_text()
        ids, types, mask = rep.run([texts(text)])
        expected = ids_of(text, **attributes)
        unknown += expected.count(1)
        assert ids.tolist() == [2, *expected, 3], repr(text)
        assert types.tolist() == [0] * len(ids) and mask.tolist() == [1] * len(ids)
    assert unknown > 50


def test_pairs():
    rep, pairs = onnx_torch.prepare(node("BertTokenizer")), onnx_torch.prepare(node("HfBertTokenizer"))
    for first, second in [("a b.", "éa"), ("", "x"), ("x", ""), ("", "")]:
        one, two = ids_of(first), ids_of(second)
        ids, types = [2, *one, 3, *two, 3], [0] * (len(one) + 2) + [1] * (len(two) + 1)
        assert [y.tolist() for y in rep.run([texts(first, second)])] == [ids, types, [1] * len(ids)]
        assert [y.tolist() for y in pairs.run([texts(first, second)])] == [[ids], [[1] * len(ids)], [types]]


def test_one_text_is_cut_off():
    cut = onnx_torch.prepare(node("BertTokenizer", max_length=5))
    assert cut.run([texts("a b c a b")])[0].tolist() == [2, *ids_of("a b c"), 3]
    assert len(cut.run([texts("a b c a b", "a")])[0]) == 9
    assert len(onnx_torch.prepare(node("BertTokenizer", max_length=2)).run([texts("a b c a b")])[0]) == 7


@pytest.mark.parametrize("length", [99, 100, 101, 5000])
def test_long_words(length):
    word = "ab" * (length // 2) + "c" * (length % 2)
    vocab = [*MARKS, "ab", "##ab", "##c"]
    rep = onnx_torch.prepare(node("BertTokenizer", vocab_file="\n".join(vocab)))
    assert rep.run([texts(word)])[0].tolist() == [2, *ids_of(word, vocab), 3]


def test_words_that_are_parted_by_white_space_alone():
    rep = onnx_torch.prepare(node("BertTokenizer", do_basic_tokenize=0))
    at = VOCABULARY.index
    assert rep.run([texts("A  a.\tab q")])[0].tolist() == [2, at("A"), at("a"), at("##."), at("ab"), 1, 3]


def test_characters_that_are_not_assigned_are_left_out():
    """The extensions do so, and Hugging Face's tokenizer in Python; the package tokenizers keeps them."""
    rep = onnx_torch.prepare(node("BertTokenizer"))
    assert rep.run([texts("a\u0378b")])[0].tolist() == [2, *ids_of("ab"), 3]


def test_other_marks_and_empty_lines():
    vocab = "\n".join(["<unk>", "", "<s>", "", "</s>", "a", "@@b", "a", ""])
    names = {"unk_token": "<unk>", "cls_token": "<s>", "sep_token": "</s>", "suffix_indicator": "@@"}
    rep = onnx_torch.prepare(node("BertTokenizer", vocab_file=vocab, **names))
    assert rep.run([texts("ab q [MASK]")])[0].tolist() == [1, 5, 4, 0, 0, 0, 0, 2]


def test_a_saved_model_has_its_vocabulary(tmp_path):
    rep = onnx_torch.prepare(node("BertTokenizer"))
    rep.save(tmp_path / "model.pt")
    loaded = onnx_torch.load(tmp_path / "model.pt")
    for y, expected in zip(loaded.run([texts("éa b!")]), rep.run([texts("éa b!")]), strict=True):
        np.testing.assert_array_equal(y, expected)


def test_what_is_wrong_is_told():
    with pytest.raises(onnx_torch.Error, match=r"BertTokenizer.*the vocabulary has no token '\[UNK\]'"):
        onnx_torch.prepare(node("BertTokenizer", vocab_file="a\nb"))
    with pytest.raises(onnx_torch.UnsupportedError, match="with the output offset_mapping"):
        onnx_torch.prepare(node("BertTokenizer", outputs=4))
    with pytest.raises(onnx_torch.RunError, match="takes one text or two texts, not 3"):
        onnx_torch.prepare(node("BertTokenizer")).run([texts("a", "b", "c")])
    with pytest.raises(onnx_torch.RunError, match="takes two texts, not 1"):
        onnx_torch.prepare(node("HfBertTokenizer")).run([texts("a")])
    with pytest.raises(onnx_torch.Error, match="required|vocab_file"):
        broken = node("BertTokenizer")
        del broken.graph.node[0].attribute[:]
        onnx_torch.prepare(broken)


# ---- BertTokenizerDecoder


def decoder(limits: dict | None = None, **attributes) -> onnx_torch.BackendRep:
    attributes = {"vocab_file": "\n".join(VOCABULARY)} | attributes
    inputs = dict.fromkeys(["ids", "at"], TensorProto.INT64)
    made = extension_model("BertTokenizerDecoder", inputs, {"text": TensorProto.STRING}, **attributes)
    return onnx_torch.prepare(made, limits=limits or {})


NOWHERE = np.zeros([0, 2], np.int64)


def text_of(tokens: list[str], cleanup: bool) -> str:
    """The same by Hugging Face's tokenizer in Python."""
    text = " ".join(tokens).replace(" ##", "")
    return transformers.PreTrainedTokenizerBase.clean_up_tokenization(None, text) if cleanup else text


@pytest.mark.parametrize("cleanup", [0, 1])
def test_ids_have_the_texts_of_hugging_face(cleanup):
    words = [
        "[UNK]",
        "do",
        "n't",
        "'m",
        "'s",
        "'ve",
        "'re",
        "'",
        ".",
        "?",
        "!",
        ",",
        "-",
        "##ing",
        "##s",
        "(",
        "é",
        "日",
    ]
    rep = decoder(vocab_file="\n".join(words), clean_up_tokenization_spaces=cleanup)
    for _ in range(300):
        ids = [0, *RNG.integers(0, len(words), 12).tolist()]
        assert rep.run([np.array(ids), NOWHERE])[0].tolist() == [text_of([words[i] for i in ids], bool(cleanup))], ids


def test_a_text_comes_back():
    rep, back = onnx_torch.prepare(node("BertTokenizer", do_lower_case=0)), decoder()
    ids = rep.run([texts("a日b, cab!")])[0]
    assert back.run([ids, NOWHERE])[0].tolist() == ["[CLS] a 日 b, cab! [SEP]"]
    assert back.run([ids[None], NOWHERE])[0].tolist() == ["[CLS] a 日 b, cab! [SEP]"]
    assert decoder(skip_special_tokens=1).run([ids, NOWHERE])[0].tolist() == ["a 日 b, cab!"]


def test_a_long_text_takes_no_time_of_its_square():
    rep = decoder(vocab_file=".\n'", limits={"seconds": 20})
    assert rep.run([np.tile([0, 1], 300_000), NOWHERE])[0][0].count(" ") < 600_000


def test_ranges_of_ids():
    ids = np.array([0, 1, 2, 3, 4, -1, 5])
    rep = decoder(use_indices=1, vocab_file="a\n##b\nc\n##x\n##y")
    found = rep.run([ids, np.array([[0, 2], [1, 3], [2, 5], [3, 5], [4, 4], [4, 7]])])[0]
    # A piece that goes on with a word is left out where there is none, as in the extensions.
    assert found.tolist() == ["ab", "c", "cxy", "", "", "[UNK] [UNK]"]
    for nowhere in (NOWHERE, np.zeros([1, 0], np.int64)):
        assert rep.run([ids, nowhere])[0].shape == (0,)


@pytest.mark.parametrize(
    "ids, at, message",
    [
        ([1, 2], [[0, 3]], "a range of ids must lie within the 2 that there are: 0 to 3"),
        ([1, 2], [[-1, 1]], "-1 to 1"),
        ([1, 2], [[2, 1]], "2 to 1"),
        ([1, 2], [[-(2**63), 2**63 - 1]], "a range of ids must lie within the 2"),
        ([1, 2], [[0, 1, 2]], "positions must be rows of two"),
        ([1, 2], [0, 1], "positions must be rows of two"),
        ([[1], [2]], [[0, 1]], "ids must be one row"),
    ],
)
def test_ranges_that_are_wrong(ids, at, message):
    with pytest.raises(onnx_torch.Error, match="(?s)BertTokenizerDecoder.*" + message):
        decoder(use_indices=1).run([np.array(ids), np.array(at)])


def test_a_decoder_needs_a_vocabulary():
    with pytest.raises(onnx_torch.Error, match="BertTokenizerDecoder.*vocab_file must not be empty"):
        decoder(vocab_file="")


def test_a_saved_decoder_has_its_vocabulary(tmp_path):
    decoder(use_indices=1).save(tmp_path / "model.pt")
    ids, at = np.array([VOCABULARY.index("a"), VOCABULARY.index("b")]), np.array([[0, 2]])
    assert onnx_torch.load(tmp_path / "model.pt").run([ids, at])[0].tolist() == ["a b"]
