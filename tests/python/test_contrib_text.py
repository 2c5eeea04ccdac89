"""Tokenizer, n-grams and hashes where they are used wrongly, and the vectorizers of scikit-learn."""

from __future__ import annotations

import numpy as np
import pytest

import onnx_torch
from models import op_model

MICROSOFT = {"domain": "com.microsoft", "opset": 1}
TEXTS = np.array(["a b"], object)
IDS = np.array([[1, 2, 3]])
PLAIN = {"mark": 0, "mincharnum": 1, "pad_value": ""}
NGRAMS = {"max_ngram_size": 2, "n_head_per_ngram": 1, "pad_id": 0}
WORDS = [
    np.array([[1, 2, 0]], np.int32),
    np.ones((4, 1, 2, 3), np.float32),
    np.ones(4, np.float32),
    np.ones((3, 3), np.float32),
]


def ends(*values):
    return np.array(values, np.int32)


WRONG = [
    ("neither a separator nor a tokenexp", "Tokenizer", [TEXTS], PLAIN),
    ("mincharnum must be positive", "Tokenizer", [TEXTS], PLAIN | {"separators": [" "], "mincharnum": 0}),
    ("tokens are characters", "Tokenizer", [TEXTS], PLAIN | {"separators": [""], "mincharnum": 2}),
    ("not a valid RE2 pattern", "Tokenizer", [TEXTS], PLAIN | {"separators": ["("]}),
    ("not a valid RE2 pattern", "Tokenizer", [TEXTS], PLAIN | {"tokenexp": "a{1001}"}),
    ("shape .C. or .N, C.", "Tokenizer", [TEXTS[0:1].reshape(1, 1, 1)], PLAIN | {"separators": [" "]}),
    ("not valid UTF-8", "Tokenizer", [np.array(["é"], object)], PLAIN | {"tokenexp": r"\C"}),
    ("not valid UTF-8", "Tokenizer", [np.array(["éb"], object)], PLAIN | {"separators": [r"\Cb"]}),
    ("ngram_size must be positive", "NGramRepeatBlock", [IDS, np.ones((1, 4), np.float32)], {"ngram_size": 0}),
    ("batch_size", "NGramRepeatBlock", [IDS, np.ones((2, 4), np.float32)], {"ngram_size": 1}),
    ("index", "NGramRepeatBlock", [IDS, np.ones((1, 3), np.float32)], {"ngram_size": 1}),
    ("index", "NGramRepeatBlock", [-IDS, np.ones((1, 3), np.float32)], {"ngram_size": 1}),
    ("too few multipliers", "NGramHashMapping", [IDS, IDS[0, :1], IDS[0, :1]], NGRAMS),
    ("vocab_sizes is of shape", "NGramHashMapping", [IDS, IDS[0], IDS[0]], NGRAMS),
    ("vocab_sizes must be positive", "NGramHashMapping", [IDS, IDS[0], -IDS[0, :1]], NGRAMS),
    ("at least 2", "NGramHashMapping", [IDS, IDS[0], IDS[0, :1]], NGRAMS | {"max_ngram_size": 1}),
    ("vocab_sizes is of shape", "NGramHashMapping", [IDS, IDS[0], IDS[0]], NGRAMS | {"n_head_per_ngram": 2**40}),
    ("past is of shape", "NGramHashMapping", [IDS, IDS[0], IDS[0, :1], IDS], NGRAMS),
    ("strictly increasing", "VarlenNGramHashMapping", [IDS[0], IDS[0], IDS[0, :1], ends(0, 5, 3)], NGRAMS),
    ("from 0 to", "VarlenNGramHashMapping", [IDS[0], IDS[0], IDS[0, :1], ends(0, 5)], NGRAMS),
    ("from 0 to", "VarlenNGramHashMapping", [IDS[0], IDS[0], IDS[0, :1], ends()], NGRAMS),
    (
        "capture_count goes with",
        "VarlenNGramHashMapping",
        [IDS[0], IDS[0], IDS[0, :1], ends(0, 3)],
        NGRAMS | {"state_update_capacity": 2},
    ),
    ("index", "WordConvEmbedding", [WORDS[0] + 2, *WORDS[1:]], {}),
    ("longer than a word", "WordConvEmbedding", [WORDS[0][:, :1], *WORDS[1:]], {}),
    ("not that of W", "WordConvEmbedding", WORDS, {"embedding_size": 3}),
]


@pytest.mark.parametrize("message, op, inputs, attributes", WRONG)
def test_what_is_wrong(message, op, inputs, attributes):
    with pytest.raises(onnx_torch.Error, match=message):
        onnx_torch.prepare(op_model(op, inputs, **MICROSOFT, **attributes)).run(inputs)


def test_a_word_of_ids_behind_its_end():
    """An index that is not looked up may be anything."""
    words = np.array([[1, 2, -7]], np.int32)
    inputs = [words, *WORDS[1:]]
    (y,) = onnx_torch.prepare(op_model("WordConvEmbedding", inputs, **MICROSOFT)).run(inputs)
    np.testing.assert_allclose(y, np.tanh(np.full((1, 4), 7.0)), rtol=1e-6)


CORPUS = [
    "This is the first document, and it is short.",
    "This document is the second document; A_1 b2-c3!",
    "Et voila: its naive cafe?",
    "",
    "a I x y.z",
]


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("vectorizer", ["CountVectorizer", "TfidfVectorizer"])
@pytest.mark.parametrize(
    "options",
    [
        {},
        {"token_pattern": "[a-zA-Z]+"},
        {"analyzer": "char"},
        {"ngram_range": (1, 2), "lowercase": False},
        {"stop_words": ["is", "the"]},
        {"token_pattern": "[a-z]{2,5}", "max_features": 7},
    ],
)
def test_vectorizers_of_scikit_learn(vectorizer, options):
    skl2onnx = pytest.importorskip("skl2onnx")
    from skl2onnx.common.data_types import StringTensorType
    from sklearn.feature_extraction import text

    model = getattr(text, vectorizer)(**options).fit(CORPUS)
    converted = skl2onnx.convert_sklearn(model, initial_types=[("x", StringTensorType([None, 1]))])
    assert any(node.op_type == "Tokenizer" for node in converted.graph.node)
    (y,) = onnx_torch.prepare(converted).run([np.array(CORPUS, object).reshape(-1, 1)])
    np.testing.assert_allclose(y, model.transform(CORPUS).toarray(), rtol=1e-5, atol=1e-6)
