"""The kernels of ai.onnx.ml and TfIdfVectorizer, against the reference implementation and onnxruntime."""

import numpy as np
import pytest
import torch
from kernel_support import kernels, new_pool, run_onnxruntime, run_reference, to_ids
from onnx import TensorProto
from onnx.helper import make_opsetid

OPSET_23 = [make_opsetid("", 23), make_opsetid("ai.onnx.ml", 5)]
classes = torch.classes.onnx_torch


def saved_and_loaded(value, tmp_path):
    """A custom class as it comes back from a file, in the place of an attribute of a module."""

    class Holder(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.value = value

        def forward(self):
            return self.value

    path = str(tmp_path / "holder.pt")
    torch.jit.save(torch.jit.script(Holder()), path)
    return torch.jit.load(path)()


# ---- TfIdfVectorizer

TOKENS = np.array([[1, 1, 3, 3, 3, 7, 8, 6, 7, 5, 6, 8], [2, 3, 5, 7, 2, 3, 1, 3, 8, 6, 7, 5]])
# Five single tokens, three pairs and one triple; the columns are in no order.
NGRAMS = {
    "ngram_counts": [0, 5, 11],
    "ngram_indexes": [4, 0, 2, 7, 8, 1, 6, 3, 5],
    "pool_int64s": [2, 3, 5, 4, 6, 5, 6, 7, 8, 6, 7, 3, 7, 6],
}
WEIGHTS = [0.5, 2.0, 3.0, 4.0, -1.0, 6.0, 7.0, 8.0, 9.0]


def vectorizer(mode="TF", shortest=1, longest=3, skip=0, pool=NGRAMS["pool_int64s"], weights=(), **ngrams):
    ngrams = NGRAMS | ngrams
    ints = [[shortest, longest, skip], ngrams["ngram_counts"], ngrams["ngram_indexes"], list(pool)]
    return classes.TfIdfVectorizer.make((mode, ints, [float(w) for w in weights]))


@pytest.mark.parametrize("shape", [(24,), (2, 12), (24, 1)])
@pytest.mark.parametrize("mode", ["TF", "IDF", "TFIDF"])
@pytest.mark.parametrize("weights", [(), WEIGHTS])
@pytest.mark.parametrize("skip", [0, 1, 5])
@pytest.mark.parametrize("lengths", [(1, 1), (2, 2), (1, 2), (1, 3), (2, 3), (3, 3)])
def test_tf_idf_vectorizer(shape, mode, weights, lengths, skip):
    x = TOKENS.ravel()[: np.prod(shape)].reshape(shape)
    attributes = {"mode": mode, "min_gram_length": lengths[0], "max_gram_length": lengths[1], "max_skip_count": skip}
    if weights:
        attributes["weights"] = weights
    y = kernels.tf_idf_vectorizer(torch.from_numpy(x), vectorizer(mode, *lengths, skip, weights=weights))
    model = ("TfIdfVectorizer", [x], [TensorProto.FLOAT])
    (expected,) = run_onnxruntime(*model, opsets=OPSET_23, **NGRAMS, **attributes)
    assert y.dtype == torch.float32
    np.testing.assert_array_equal(y.numpy(), expected)
    # The reference implementation needs weights, and takes them to be of columns; the operator's text says of n-grams.
    if mode == "TF":
        np.testing.assert_array_equal(y.numpy(), run_reference(*model, **NGRAMS, **attributes)[0])


def test_tf_idf_vectorizer_of_int32_and_strided_tokens():
    x = torch.from_numpy(TOKENS)
    expected = kernels.tf_idf_vectorizer(x, vectorizer())
    torch.testing.assert_close(kernels.tf_idf_vectorizer(x.int(), vectorizer()), expected)
    torch.testing.assert_close(kernels.tf_idf_vectorizer(x.T.contiguous().T, vectorizer()), expected)


def test_tf_idf_vectorizer_of_strings():
    pool = new_pool()
    x = np.array([["a", "b", "a"], ["b", "c", "a"]], dtype=object)
    words = ["a", "b", "b", "c", "c", "a"]
    ngrams = {"ngram_counts": [0, 2], "ngram_indexes": [1, 0, 3, 2]}
    y = kernels.tf_idf_vectorizer(to_ids(pool, x), vectorizer(longest=2, pool=to_ids(pool, words).tolist(), **ngrams))
    attributes = {"mode": "TF", "min_gram_length": 1, "max_gram_length": 2, "max_skip_count": 0, "pool_strings": words}
    (expected,) = run_onnxruntime("TfIdfVectorizer", [x], [TensorProto.FLOAT], opsets=OPSET_23, **ngrams, **attributes)
    np.testing.assert_array_equal(y.numpy(), expected)


def test_tf_idf_vectorizer_of_no_tokens_is_zero():
    assert kernels.tf_idf_vectorizer(torch.empty(0, dtype=torch.int64), vectorizer()).tolist() == [0] * 9
    assert kernels.tf_idf_vectorizer(torch.empty(2, 0, dtype=torch.int64), vectorizer()).tolist() == [[0] * 9] * 2
    assert kernels.tf_idf_vectorizer(torch.empty(0, 3, dtype=torch.int64), vectorizer()).shape == (0, 9)


def test_tf_idf_vectorizer_is_saved(tmp_path):
    loaded = saved_and_loaded(vectorizer("TFIDF", 1, 3, 2, weights=WEIGHTS), tmp_path)
    x = torch.from_numpy(TOKENS)
    expected = kernels.tf_idf_vectorizer(x, vectorizer("TFIDF", 1, 3, 2, weights=WEIGHTS))
    torch.testing.assert_close(kernels.tf_idf_vectorizer(x, loaded), expected)


@pytest.mark.parametrize(
    "arguments, message",
    [
        ({"mode": "tf"}, "mode is TF, IDF or TFIDF, not 'tf'"),
        ({"ngram_counts": [0, 4, 11]}, "does not divide the pool into n-grams of length 2"),
        ({"ngram_counts": [0, 5, 50]}, "does not divide the pool"),
        ({"ngram_indexes": [0]}, "1 ngram_indexes for the 9 n-grams"),
        ({"ngram_indexes": [-1] * 9}, "negative"),
        ({"weights": [1]}, "1 weights for 9 ngram_indexes"),
    ],
)
def test_tf_idf_vectorizer_checks_its_attributes(arguments, message):
    with pytest.raises(ValueError, match=message):
        vectorizer(**arguments)


def test_tf_idf_vectorizer_refuses_other_ranks():
    with pytest.raises(ValueError, match=r"shape \[C\] or \[N, C\], not \[1, 1, 1\]"):
        kernels.tf_idf_vectorizer(torch.zeros(1, 1, 1, dtype=torch.int64), vectorizer())
