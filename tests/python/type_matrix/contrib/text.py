"""Templates of src/ops/contrib/text.cpp."""

from __future__ import annotations

from typing import Any

import numpy as np

from ..making import floats, ints, microsoft, waves
from ..modern import formula

# ---- Tokenizer

TEXTS = np.array([["I  love computer-science !", "", "año 12,5€ 東京タワー"], ["ab", " , ", "a-b\tc\nA_9"]], object)
PLAIN = {"mark": 0, "mincharnum": 1, "pad_value": "#"}


def tokenizer(texts: np.ndarray, **attributes: Any):
    return microsoft("Tokenizer", [texts], **(PLAIN | attributes))


# ---- MurmurHash3


def hashed(x: np.ndarray, **attributes: Any):
    """Makes a row whose output is of the type that the attribute says."""
    row = microsoft("MurmurHash3", [x], **attributes)
    row[3].output_types = ["tensor(uint32)" if attributes.get("positive", 1) else "tensor(int32)"]
    return row


def as_type_says(types: dict[str, str], _: int) -> int:
    return int(types["T2"] == "tensor(uint32)")


# ---- N-grams

IDS = ints([7, 1, 3, 9, 5, 2], [3, 3, 8, -4, 7, 7])
PAST = ints([4, 3], [5, 6])
SEGMENTS = np.array([[0, 0, 1, 1, 1, 2], [4, 5, 5, 5, 4, 4]], np.int32)
HASHING = [ints(3, 50021, 7000003), ints(101, 103, 107, 109)]
OFFSETS = ints(0, 101, 204, 311)
EOS = ints(3)[0]
SHAPE = {"max_ngram_size": 3, "n_head_per_ngram": 2, "pad_id": 11}

PACKED = IDS.reshape(-1)
ENDS = np.array([0, 1, 5, 12], np.int32)
PASTS = ints([4, 3], [5, 6], [3, 8])
PAST_SEGMENTS = np.array([[0, 1], [1, 1], [7, 5]], np.int32)
COUNTS = np.array([2, -1, 3], np.int32)


def hashing(*rest: Any, ids: np.ndarray = IDS, outputs: int = 2, **attributes: Any):
    return microsoft("NGramHashMapping", [ids, *HASHING, *rest], outputs=outputs, **(SHAPE | attributes))


def packed_hashing(*rest: Any, outputs: int = 2, **attributes: Any):
    return microsoft("VarlenNGramHashMapping", [PACKED, *HASHING, ENDS, *rest], outputs=outputs, **(SHAPE | attributes))


# ---- WordConvEmbedding

WORDS = np.array([[1, 2, 3, 4], [5, 0, 2, 0], [1, 0, 0, 0], [5, 1, 2, 5]], np.int32)
CONV = [waves(3, 1, 2, 5), floats(0.25, -0.5, 0), waves(6, 5, scale=0.5)]


def no_word(words: np.ndarray, w: np.ndarray, b: np.ndarray, c: np.ndarray) -> np.ndarray:
    chars = c[words.astype(int)[1]]
    pairs = np.stack([chars[i : i + 2].reshape(-1) for i in range(3)])
    word = np.tanh(pairs @ w.reshape(3, -1).T + b).max(0)
    return np.stack([np.zeros_like(word), word])


TEXT_ROWS = [
    tokenizer(TEXTS, separators=[" "]),
    tokenizer(TEXTS[0], separators=[" ", "-", "[,!]+"]),
    tokenizer(TEXTS, separators=["[\\s,]", "o|ov"], mark=1, mincharnum=2, pad_value=""),
    tokenizer(TEXTS, separators=["ta*", "^a", "b$"]),
    tokenizer(TEXTS[0], tokenexp="\\w+|\\pL+"),
    tokenizer(TEXTS, tokenexp="[a-z]|[a-z0-9]{3}", mark=1),
    tokenizer(TEXTS, tokenexp="[A-Za-z]+", mincharnum=3, pad_value="ñ"),
    tokenizer(TEXTS, tokenexp="[a-z]?", mincharnum=1),
    tokenizer(TEXTS, separators=["_*"], tokenexp="a"),
    tokenizer(TEXTS, separators=[""], mark=1),
    tokenizer(TEXTS[1], tokenexp="."),
    tokenizer(TEXTS, tokenexp="z", mark=1),
    tokenizer(np.array(["", ""], object), separators=[""], mark=1),
    tokenizer(np.zeros(0, object), separators=[" "], mark=1),
    tokenizer(np.zeros((2, 0), object), separators=[" "]),
    tokenizer(np.zeros((0, 2), object), separators=[" "]),
    #
    microsoft("MurmurHash3", [ints([3, -1, 2**31 + 7, 0])], positive=as_type_says),
    hashed(np.array([["", "a", "ab"], ["abc", "scikit-learn", "東京タ"]], object)),
    hashed(np.array(["", "abcde"], object), positive=0, seed=2**32 - 5),
    hashed(ints(3, -1, 2**62), seed=42),
    hashed(np.array([3, 2**32 - 7], np.uint32), positive=0),
    hashed(np.zeros((2, 0), np.int32)),
    #
    microsoft("NGramRepeatBlock", [ints([1, 2, 1, 3, 1], [0, 4, 4, 4, 4]), waves(2, 6)], ngram_size=2),
    microsoft("NGramRepeatBlock", [ints([1, 2, 3, 1, 2], [5, 4, 5, 4, 5]), waves(2, 6)], ngram_size=3),
    microsoft("NGramRepeatBlock", [ints([1, 2], [0, 0]), waves(2, 4)], ngram_size=1),
    microsoft("NGramRepeatBlock", [ints([1, 2], [0, 0]), waves(2, 4)], ngram_size=3),
    microsoft("NGramRepeatBlock", [ints([1, 2], [0, 0]), waves(2, 4)], ngram_size=9),
    microsoft("NGramRepeatBlock", [np.zeros((2, 0), np.int64), waves(2, 4)], ngram_size=1),
    #
    hashing(outputs=1),
    hashing(),
    hashing(PAST),
    hashing(None, OFFSETS),
    hashing(None, None, EOS),
    hashing(PAST, None, EOS, reset_on_eos=1),
    hashing(PAST, OFFSETS, EOS, SEGMENTS, reset_on_eos=1),
    hashing(PAST, None, None, SEGMENTS, reset_on_eos=1),
    hashing(ids=IDS[:, :1]),
    hashing(PAST, ids=IDS[:, :0]),
    hashing(ids=IDS * 2**29),
    microsoft(
        "NGramHashMapping", [IDS, HASHING[0], ints(101)], max_ngram_size=2, n_head_per_ngram=1, pad_id=-3, outputs=2
    ),
    #
    packed_hashing(outputs=1),
    packed_hashing(),
    packed_hashing(PASTS, OFFSETS, EOS, reset_on_eos=1),
    packed_hashing(PASTS, None, None, SEGMENTS.reshape(-1), outputs=3),
    packed_hashing(PASTS, None, None, SEGMENTS.reshape(-1), PAST_SEGMENTS, outputs=3),
    packed_hashing(None, None, EOS, SEGMENTS.reshape(-1), PAST_SEGMENTS, COUNTS, outputs=4, state_update_capacity=4),
    #
    microsoft("WordConvEmbedding", [WORDS, *CONV]),
    microsoft("WordConvEmbedding", [WORDS, *CONV], embedding_size=3, conv_window_size=2, char_embedding_size=5),
    microsoft("WordConvEmbedding", [WORDS[1:], waves(3, 1, 4, 5), *CONV[1:]]),
    microsoft("WordConvEmbedding", [WORDS[:0], *CONV]),
    # A word has no length, and onnxruntime writes nothing of it.
    microsoft("WordConvEmbedding", [np.array([[0, 2, 1, 3], [3, 4, 1, 1]], np.int32), *CONV], meaning=formula(no_word)),
]
