"""Templates of src/ops/contrib/extensions.cpp and tokenizers.cpp: what onnxruntime-extensions 0.15 gives."""

from __future__ import annotations

import io

import numpy as np
from PIL import Image

from models import sentence_model

from ..making import floats, ints, row, waves


def texts(*values) -> np.ndarray:
    return np.array(values, object)


def given(*expected):
    return lambda case: [np.asarray(x) for x in expected]


def extension(op: str, inputs: list, *expected, **attributes):
    return row(f"ai.onnx.contrib.{op}", inputs, outputs=len(expected), meaning=given(*expected), **attributes)


NONE = np.zeros([0], object)
PIXELS = np.arange(4 * 5 * 3, dtype=np.uint8).reshape(4, 5, 3)


def png(pixels: np.ndarray) -> np.ndarray:
    stream = io.BytesIO()
    Image.fromarray(pixels).save(stream, "png")
    return np.frombuffer(stream.getvalue(), np.uint8)


WORDS = texts(["a", "b", "c"], ["aa", "bb", ""])
DEFINITIONS = texts(["def one():"], ["def d(): def e():"])
DEFINITION = texts(r"def\s+([a-z]+)\s*\(\s*\):")
VECTORS = "a\t0 0 1 2\nb\t0 1 2 3\nd\t0 1 3 4"

# "##known" is a piece within a word.
VOCABULARY = "[PAD]\n[UNK]\n[CLS]\n[SEP]\n[MASK]\nhello\n,\nworld\nun\n##known\n日"
OTHER_TOKENS = {
    "vocab_file": "<pad>\n<unk>\n<cls>\n<sep>\n<mask>\nae\n@@日\na",
    "do_lower_case": 1,
    "do_basic_tokenize": 1,
    "tokenize_chinese_chars": 0,
    "strip_accents": 1,
    "unk_token": "<unk>",
    "sep_token": "<sep>",
    "pad_token": "<pad>",
    "cls_token": "<cls>",
    "mask_token": "<mask>",
    "suffix_indicator": "@@",
    "max_length": 5,
    "truncation_strategy_name": "only_first",
}

NO_RANGES = np.zeros([0, 2], np.int64)
OTHER_PIECES = {
    **{name: text for name, text in OTHER_TOKENS.items() if name.endswith("_token") or name == "suffix_indicator"},
    "vocab_file": OTHER_TOKENS["vocab_file"],
    "use_indices": 1,
    "skip_special_tokens": 1,
    "clean_up_tokenization_spaces": 0,
}
SOUND, WINDOW = waves(1, 20), np.hanning(6).astype(np.float32)


def power_of_windows(onesided: bool):
    """Gives the meaning of StftNorm for windows of 6 elements, 3 apart, and transforms of 8."""

    def meaning(case) -> list:
        sound, _, _, window, _ = case.inputs
        around = np.pad(sound.astype(np.float64)[0], 3)
        frames = np.lib.stride_tricks.sliding_window_view(around, 6)[::3] * window
        spectrum = (np.fft.rfft if onesided else np.fft.fft)(frames, 8)
        return [(np.abs(spectrum.T) ** 2)[None].astype(np.float32)]

    return meaning


def sound(**attributes):
    inputs = [SOUND, np.array(8), np.array(3), WINDOW, np.array(8)]
    return row(
        "ai.onnx.contrib.StftNorm", inputs, meaning=power_of_windows(attributes.get("onesided", 1) == 1), **attributes
    )


PAIRS = {"vocab": '{"a": 0, "b": 1, "ab": 2, "\u0120": 3, "\u0120ab": 4}', "merges": "a b\n\u0120 ab"}
LAST_PAIRS = {"vocab": '{"a": 0, "b": 1, "b</w>": 2, "ab</w>": 3}', "merges": "a b</w>"}
MORE_PAIRS = {"padding_length": 4, "added_token": "[X]=9"}
DECODER = {"id_vocab": "a\nb\n\u0120", "byte_decoder": "97\t97\n98\t98\n288\t32"}
OTHER_DECODER = {
    "added_tokens": "7\t[X]",
    "all_special_ids": "7",
    "en_normalization": 1,
    "skip_special_tokens": 1,
    "whitespace_token": 1,
    "bos_token": "<s>",
    "eos_token": "</s>",
    "unk_token": "?",
}

# A model of sentencepiece: what is unknown, the marks at the ends, two pieces, and the sign for a space.
PIECES_OF_SENTENCES = [
    ("<unk>", 0.0, 2),
    ("<s>", 0.0, 3),
    ("</s>", 0.0, 3),
    ("ab", -1.0, 1),
    ("b", -2.0, 1),
    ("\u2581", -2.0, 1),
]
SENTENCES = {"model": sentence_model(PIECES_OF_SENTENCES)}
NO_SAMPLES = [np.array(0), np.array(0, np.float32)]  # nbest_size and alpha
TRUE, FALSE = np.array(True), np.array(False)

EXTENSIONS_ROWS = [
    extension(
        "BertTokenizerDecoder",
        [ints(2, 5, 6, 7, 8, 9, 3), NO_RANGES],
        texts("[CLS] hello, world unknown [SEP]"),
        vocab_file=VOCABULARY,
    ),
    extension(
        "BertTokenizerDecoder",
        [ints(2, 5, 6, 99, 3, 0, 4), ints([0, 4], [2, 7])],
        texts("ae日", ""),
        **OTHER_PIECES,
    ),
    extension(
        "SentencepieceTokenizer",
        [texts("ab b", "xyb"), *NO_SAMPLES, TRUE, TRUE, FALSE],
        np.int32([1, 5, 3, 5, 4, 2, 1, 5, 0, 4, 2]),
        ints(0, 6, 11),
        np.int32([0, 0, 0, 2, 3, 4, 0, 0, 0, 2, 3]),
        **SENTENCES,
    ),
    extension(
        "SentencepieceTokenizer",
        [texts("ab b"), *NO_SAMPLES, TRUE, FALSE, TRUE],
        np.int32([4, 5, 3, 5, 1]),
        ints(0, 5),
        **SENTENCES,
    ),
    extension(
        "SentencepieceTokenizer",
        [texts("abx"), *NO_SAMPLES, TRUE, TRUE, FALSE, TRUE],
        np.int32([0, 6, 4, 3, 2]),
        ints(0, 5),
        **SENTENCES,
    ),
    extension("SentencepieceDecoder", [ints(1, 5, 3, 5, 4, 0, 2)], texts("ab b \u2047 "), **SENTENCES),
    extension("SentencepieceDecoder", [ints([0, 6, 4, 3, 2]), TRUE], texts("ab \u2047 "), **SENTENCES),
    extension("BpeDecoder", [ints([0, 1], [2, 9])], texts("ab", " <|endoftext|>"), **DECODER),
    extension("BpeDecoder", [ints(0, 7, 9, 2, 1)], texts("a b"), **DECODER, **OTHER_DECODER),
    # The marks come behind the vocabulary, in this order: the unknown, the first, the last, the padding.
    extension("GPT2Tokenizer", [texts("ab ab", "ba")], ints([2, 4], [1, 0]), ints([1, 1], [1, 1]), **PAIRS),
    extension("GPT2Tokenizer", [texts("ab ab", "a")], ints([2, 4], [0, 0]), **PAIRS),
    extension(
        "GPT2Tokenizer",
        [texts(["ab[X]"])],
        ints([[5, 2, 9, 5]]),
        ints([[1, 1, 1, 1]]),
        **PAIRS,
        **MORE_PAIRS,
        model_name="Roberta",
    ),
    extension("CLIPTokenizer", [texts("AB\u2003b")], ints([5, 3, 2, 4]), ints([1, 1, 1, 1]), **LAST_PAIRS),
    extension("CLIPTokenizer", [texts("ab")], ints([5, 3, 4]), **LAST_PAIRS),
    extension("CLIPTokenizer", [texts("[X]aB")], ints([9, 0, 5, 5]), **PAIRS, **MORE_PAIRS, model_name="GPT2"),
    extension("RobertaTokenizer", [texts("a", "ab ab")], ints([6, 0, 7, 8], [6, 2, 4, 7]), **PAIRS),
    extension(
        "RobertaTokenizer",
        [texts("a", "ab ab[X]")],
        ints([6, 0, 7, 8], [6, 2, 4, 7]),
        ints([1, 1, 1, 0], [1, 1, 1, 1]),
        **PAIRS,
        **MORE_PAIRS,
    ),
    extension("RobertaTokenizer", [texts("ab")], ints([2]), **PAIRS, model_name="CodeGen"),
    extension(
        "BertTokenizer",
        [texts("Hello, unknown 日日!")],
        ints(2, 5, 6, 8, 9, 10, 10, 1, 3),
        ints(*9 * [0]),
        ints(*9 * [1]),
        vocab_file=VOCABULARY,
    ),
    extension(
        "BertTokenizer",
        [texts("Hello", "world")],
        ints(2, 1, 3, 7, 3),
        ints(0, 0, 0, 1, 1),
        ints(*5 * [1]),
        vocab_file=VOCABULARY,
        do_lower_case=0,
    ),
    extension(
        "BertTokenizer",
        [texts("AÉ日 q q")],
        ints(2, 5, 6, 1, 3),
        ints(*5 * [0]),
        ints(*5 * [1]),
        **OTHER_TOKENS,
    ),
    extension(
        "HfBertTokenizer",
        [texts("AÉ日 q q", "a")],
        ints([2, 5, 6, 1, 1, 3, 7, 3]),
        ints(8 * [1]),
        **OTHER_TOKENS,
    ),
    extension(
        "HfBertTokenizer",
        [texts("hello", "world")],
        ints([2, 5, 3, 7, 3]),
        ints(5 * [1]),
        ints([0, 0, 0, 1, 1]),
        vocab_file=VOCABULARY,
    ),
    sound(),
    sound(onesided=0),
    extension("StringConcat", [texts("a", "b"), texts("c", "")], texts("ac", "b")),
    extension("StringEqual", [texts("a", "b"), texts("a", "c")], [True, False]),
    extension("StringEqual", [WORDS, texts("a")], [[True, False, False], [False, False, False]]),
    extension("StringJoin", [WORDS, texts(";"), ints(1)], texts("a;b;c", "aa;bb;")),
    extension("StringJoin", [WORDS, texts(";"), ints(0)], texts("a;aa", "b;bb", "c;")),
    extension("StringJoin", [texts("a", "b"), texts(", "), ints(0)], texts("a, b")),
    extension("StringJoin", [NONE, texts(";"), ints(0)], texts("")),
    extension("StringLength", [texts("abc", "hé日😀", "")], ints(3, 4, 0)),
    extension("StringLower", [texts("ABC ÉÀ ß İ Σ")], texts("abc ÉÀ ß İ Σ")),
    extension("StringUpper", [texts("abc éà ß ı")], texts("ABC éà ß ı")),
    extension("StringStrip", [texts("  a b\t\n", "\u3000x", "", "   ")], texts("a b", "\u3000x", "", "   ")),
    extension("StringMapping", [texts("a", "b", "zz")], texts("x", "y y", "zz"), map="a\tq\na\tx\n\nb\ty y\n"),
    extension(
        "StringRegexReplace",
        [DEFINITIONS, DEFINITION, texts(r"py_\1(void) {")],
        texts(["py_one(void) {"], ["py_d(void) { py_e(void) {"]),
    ),
    extension(
        "StringRegexReplace",
        [DEFINITIONS, DEFINITION, texts(r"py_\1(void) {")],
        texts(["py_one(void) {"], ["py_d(void) { def e():"]),
        global_replace=0,
    ),
    extension(
        "StringRegexSplitWithOffsets",
        [texts("hello there", "a  b", "", " x "), texts(r"(\s)"), NONE],
        texts("hello", "there", "a", "b", "x"),
        ints(0, 6, 0, 3, 1),
        ints(5, 11, 1, 4, 2),
        ints(0, 2, 4, 4, 5),
    ),
    extension(
        "StringRegexSplitWithOffsets",
        [texts("héllo, thére!x", "a , b"), texts(r"(\s|[,!])"), texts("[,!]")],
        texts("héllo", ",", "thére", "!", "x", "a", ",", "b"),
        ints(0, 6, 8, 14, 15, 0, 2, 4),
        ints(6, 7, 14, 15, 16, 1, 3, 5),
        ints(0, 5, 8),
    ),
    extension(
        "StringRegexSplitWithOffsets",
        [texts("a b", "c"), texts(r"\s"), texts("")],
        texts("a b", "c"),
        ints(0, 0),
        ints(3, 1),
        ints(0, 1, 2),
    ),
    extension(
        "StringSplit",
        [texts("a,,b", "aa;b,c", "", "q"), texts(",;"), np.array([True])],
        ints([0, 0], [0, 1], [1, 0], [1, 1], [1, 2], [3, 0]),
        texts("a", "b", "aa", "b", "c", "q"),
        ints(4, 3),
    ),
    extension(
        "StringSplit",
        [texts("a,,b", ""), texts(","), np.array([False])],
        ints([0, 0], [0, 1], [0, 2]),
        texts("a", "", "b"),
        ints(2, 3),
    ),
    extension(
        "StringSplit",
        [NONE, texts(","), np.array([False])],
        np.zeros([0, 2], np.int64),
        NONE,
        ints(0, 0),
    ),
    extension(
        "StringToVector",
        [texts("a", "d", "e")],
        ints([0, 0, 1, 2], [0, 1, 3, 4], [0, 0, 0, 1]),
        map=VECTORS,
        unk="0 0 0 1",
    ),
    extension(
        "VectorToString",
        [ints([0, 0, 1, 2], [0, 1, 3, 4], [0, 0, 0, 0])],
        texts("a", "d", "u"),
        map=VECTORS,
        unk="u",
    ),
    extension("VectorToString", [ints(1, 2, 7)], texts("a", "b", "u"), map="a\t1\nb\t2", unk="u"),
    extension("MaskedFill", [texts("a", "b", "c"), np.array([True, False, True])], texts("a", "c")),
    extension("Inverse", [floats([1, 2], [3, 5])], floats([-5, 2], [3, -1])),
    extension("NegPos", [floats(1, -2, 0, np.nan)], floats(0, -2, 0, np.nan), floats(1, 0, 0, 0)),
    extension("SegmentExtraction", [ints(0, 1, 1, 0, 2, 2, 2, 3)], ints([1, 3], [4, 7], [7, 8]), ints(1, 2, 3)),
    extension("SegmentExtraction", [ints([2, 2])], ints([0, 2]), ints(2)),
    extension("SegmentExtraction", [ints(0, 0)], np.zeros([0, 2], np.int64), np.zeros([0], np.int64)),
    extension("SegmentSum", [floats([1, 2], [3, 4], [5, 6]), ints(0, 0, 1)], floats([4, 6], [5, 6])),
    extension("ImageDecoder", [png(PIXELS)], PIXELS[..., ::-1]),
    extension("DecodeImage", [png(PIXELS)], PIXELS[..., ::-1]),
    extension("DecodeImage", [png(PIXELS)], PIXELS, color_space="rgb"),
]
