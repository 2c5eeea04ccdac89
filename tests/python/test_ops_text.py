"""StringConcat, StringSplit, StringNormalizer, RegexFullMatch and TfIdfVectorizer."""

import numpy as np
import pytest
from onnx import TensorProto, helper

import onnx_torch.backend
from models import assert_same, model_of, onnxruntime_op, reference_op, run_op, tensor_info


def texts(*items):
    return np.array(items, dtype=object)


@pytest.mark.parametrize("shapes", [((2, 3), (2, 3)), ((2, 1), (3,)), ((), (4,)), ((0, 2), (1, 2))])
def test_string_concat_broadcasts(shapes):
    x, y = (np.arange(np.prod(s, dtype=int)).astype(str).astype(object).reshape(s) for s in shapes)
    expected = np.array([a + b for a, b in np.broadcast(x + "é", y)], dtype=object).reshape(np.broadcast(x, y).shape)
    assert_same(run_op("StringConcat", [x + "é", y]), [expected])


@pytest.mark.parametrize("delimiter", [None, "", ",", ", ", "é"])
@pytest.mark.parametrize("maxsplit", [None, 0, 1, 2])
@pytest.mark.parametrize("x", [texts("a,b, c", " a b  c", ""), texts(["é", "aéb"]), np.empty((0, 2), dtype=object)])
def test_string_split(x, delimiter, maxsplit):
    given = {"delimiter": delimiter, "maxsplit": maxsplit}
    attributes = {name: value for name, value in given.items() if value is not None}
    options = {"outputs": 2} | attributes
    assert_same(run_op("StringSplit", [x], **options), reference_op("StringSplit", [x], **options))


def test_string_split_drops_space_at_both_ends():
    # The reference implementation leaves space at the end of a rest that maxsplit leaves whole.
    y, counts = run_op("StringSplit", [texts(" a b  c ")], outputs=2, maxsplit=1)
    assert y.tolist() == [["a", "b  c"]] and counts.tolist() == [2]


@pytest.mark.parametrize("action", ["NONE", "LOWER", "UPPER"])
@pytest.mark.parametrize("is_case_sensitive", [0, 1])
@pytest.mark.parametrize("stopwords", [None, ["the", "Ä"], ["The", "cat", "sat"]])
@pytest.mark.parametrize("shape", [(4,), (1, 4)])
def test_string_normalizer(action, is_case_sensitive, stopwords, shape):
    x = texts("The", "cät", "ä", "SAT").reshape(shape)
    attributes = {"case_change_action": action, "is_case_sensitive": is_case_sensitive}
    if stopwords:
        attributes["stopwords"] = stopwords
    expected = onnxruntime_op("StringNormalizer", [x], [TensorProto.STRING], locale="C.UTF-8", **attributes)
    assert_same(run_op("StringNormalizer", [x], **attributes), expected)


def test_string_normalizer_keeps_one_string():
    y = run_op("StringNormalizer", [texts(["a", "b"])], stopwords=["A", "B"])
    assert_same(y, [texts([""])])


def test_string_normalizer_knows_turkish():
    assert run_op("StringNormalizer", [texts("I")], case_change_action="LOWER", locale="tr_TR")[0].tolist() == ["ı"]


def test_regex_full_match():
    x = texts(["a1", "a"], ["", "ba1"])
    assert_same(run_op("RegexFullMatch", [x], pattern=r"\w\d?"), reference_op("RegexFullMatch", [x], pattern=r"\w\d?"))
    with pytest.raises(onnx_torch.Error, match="not a valid RE2 pattern"):
        run_op("RegexFullMatch", [x], pattern="(")


NGRAMS = {"min_gram_length": 1, "max_gram_length": 2, "ngram_counts": [0, 2], "ngram_indexes": [1, 0, 3, 2]}


@pytest.mark.parametrize("mode", ["TF", "IDF", "TFIDF"])
@pytest.mark.parametrize("weights", [None, [0.5, 2.0, 3.0, -1.0]])
@pytest.mark.parametrize("element", [np.int32, np.int64, object])
@pytest.mark.parametrize("shape", [(2, 6), (12,)])
def test_tf_idf_vectorizer(mode, weights, element, shape):
    numbers = np.array([1, 2, 3, 1, 2, 2, 3, 1, 1, 3, 1, 2]).reshape(shape)
    pool = [1, 2, 2, 3, 3, 1]
    as_text = element is object
    x = numbers.astype(str).astype(object) if as_text else numbers.astype(element)
    attributes = {"pool_strings": [str(i) for i in pool]} if as_text else {"pool_int64s": pool}
    attributes |= NGRAMS | {"mode": mode, "max_skip_count": 1}
    if weights:
        attributes["weights"] = weights
    expected = onnxruntime_op("TfIdfVectorizer", [x], [TensorProto.FLOAT], **attributes)
    assert_same(run_op("TfIdfVectorizer", [x], **attributes), expected)


def test_tf_idf_vectorizer_of_a_constant():
    attributes = NGRAMS | {"mode": "TF", "max_skip_count": 0, "pool_strings": ["a", "b", "b", "a", "a", "b"]}
    x = helper.make_tensor("x", TensorProto.STRING, [3], ["a", "b", "a"])
    nodes = [helper.make_node("TfIdfVectorizer", ["x"], ["y"], **attributes)]
    model = model_of(nodes, [], [tensor_info("y", element=TensorProto.FLOAT)], initializer=[x])
    assert onnx_torch.backend.prepare(model).run([])[0].tolist() == [1, 2, 1, 1]


@pytest.mark.parametrize("pools", [{}, {"pool_int64s": [1], "pool_strings": ["a"]}, {"pool_strings": ["a"]}])
def test_tf_idf_vectorizer_needs_a_pool_of_the_inputs_type(pools):
    attributes = {"mode": "TF", "min_gram_length": 1, "max_gram_length": 1, "max_skip_count": 0}
    with pytest.raises(onnx_torch.Error, match="pool"):
        run_op("TfIdfVectorizer", [np.array([1])], ngram_counts=[0], ngram_indexes=[0], **attributes, **pools)


def test_text_goes_through_several_operators():
    nodes = [
        helper.make_node("StringNormalizer", ["x"], ["lower"], case_change_action="LOWER"),
        helper.make_node("StringSplit", ["lower"], ["parts", "counts"], delimiter="-"),
        helper.make_node("StringConcat", ["parts", "tail"], ["y"]),
        helper.make_node("RegexFullMatch", ["y"], ["match"], pattern="[ab]!"),
    ]
    tail = helper.make_tensor("tail", TensorProto.STRING, [], ["!"])
    outputs = ["y", "counts", "match"]
    model = model_of(nodes, [tensor_info("x", texts(""))], outputs, initializer=[tail])
    y, counts, match = onnx_torch.backend.prepare(model).run([texts("A-B", "C")])
    assert_same([y, counts], [texts(["a!", "b!"], ["c!", "!"]), np.array([2, 1])])
    assert match.tolist() == [[True, True], [False, False]]
