"""The kernels on strings, against Python's own str, the reference implementation and onnxruntime."""

import sys

import numpy as np
import pytest
import torch
from onnx import TensorProto
from onnx.helper import make_opsetid

from kernel_support import kernels, new_pool, run_onnxruntime, run_reference, to_ids, to_strings

OPSET_23 = [make_opsetid("", 23)]


def strings(*values):
    return np.array(values, dtype=object)


# ---- StringConcat


@pytest.mark.parametrize(
    "x_shape, y_shape",
    [((3,), (3,)), ((2, 3), (3,)), ((2, 1), (1, 3)), ((), (2, 2)), ((0,), (1,)), ((2, 0), (1,)), ((), ())],
)
def test_string_concat(x_shape, y_shape):
    pool = new_pool()
    x = np.array([f"a{i}" for i in range(np.prod(x_shape, dtype=int))], dtype=object).reshape(x_shape)
    y = np.array([f"é{i}" for i in range(np.prod(y_shape, dtype=int))], dtype=object).reshape(y_shape)
    z = kernels.string_concat(pool, to_ids(pool, x), to_ids(pool, y))
    expected = np.empty(np.broadcast_shapes(x_shape, y_shape), dtype=object)
    expected[...] = x + y
    assert to_strings(pool, z).tolist() == expected.tolist()
    assert tuple(z.shape) == expected.shape


def test_string_concat_of_a_transposed_tensor():
    pool = new_pool()
    x = to_ids(pool, [["a", "b"], ["c", "d"]])
    assert to_strings(pool, kernels.string_concat(pool, x.T, x)).tolist() == [["aa", "cb"], ["bc", "dd"]]


# ---- StringSplit

SENTENCES = ["", " ", "a", "hello world", "  leading", "a-b--c-", "-", "ünï-cödé", "a  b\tc", "\u3000wide\u2003gap"]


def split(texts, delimiter=None, maxsplit=None):
    pool = new_pool()
    substrings, counts = kernels.string_split(pool, to_ids(pool, texts), delimiter, maxsplit)
    return to_strings(pool, substrings), counts.numpy()


@pytest.mark.parametrize("delimiter", ["-", "--", "l", "cödé"])
@pytest.mark.parametrize("maxsplit", [None, -1, 0, 1, 2, 10])
def test_string_split_at_a_delimiter(delimiter, maxsplit):
    substrings, counts = split(SENTENCES, delimiter, maxsplit)
    expected = [text.split(delimiter, -1 if maxsplit is None else maxsplit) for text in SENTENCES]
    width = max(map(len, expected))
    assert counts.tolist() == [len(parts) for parts in expected]
    assert substrings.tolist() == [parts + [""] * (width - len(parts)) for parts in expected]


@pytest.mark.parametrize("delimiter", [None, ""])
@pytest.mark.parametrize("maxsplit", [None, -1, 0, 1, 2, 10])
def test_string_split_at_white_space(delimiter, maxsplit):
    substrings, counts = split(SENTENCES, delimiter, maxsplit)
    expected = [text.strip().split(None, -1 if maxsplit is None else maxsplit) for text in SENTENCES]
    width = max(map(len, expected))
    assert counts.tolist() == [len(parts) for parts in expected]
    assert substrings.tolist() == [parts + [""] * (width - len(parts)) for parts in expected]


def test_string_split_removes_trailing_white_space_from_the_rest():
    # The operator's text and onnxruntime drop it; Python's str.split would keep it.
    x = strings(" 1  2   3 ")
    substrings, _ = split(x, maxsplit=1)
    expected = run_onnxruntime("StringSplit", [x], [TensorProto.STRING, TensorProto.INT64], opsets=OPSET_23, maxsplit=1)
    assert substrings.tolist() == expected[0].tolist() == [["1", "2   3"]]


@pytest.mark.parametrize("shape", [(0,), (2, 0), (2, 2), ()])
def test_string_split_shapes(shape):
    texts = np.full(shape, "a b c", dtype=object)
    substrings, counts = split(texts)
    assert substrings.shape == (*shape, 3 if texts.size else 0)
    assert counts.shape == shape


def test_string_split_of_nothing_but_space_is_empty():
    substrings, counts = split([" ", "\t"])
    assert substrings.shape == (2, 0) and counts.tolist() == [0, 0]


def test_every_white_space_of_python_splits():
    every = [chr(c) for c in range(sys.maxunicode) if not 0xD800 <= c < 0xE000]
    _, counts = split([f"a{c}b" for c in every])
    assert [c for c, n in zip(every, counts, strict=False) if n == 2] == [c for c in every if c.isspace()]


# ---- RegexFullMatch


@pytest.mark.parametrize(
    "pattern", [r"www\.[\w.-]+\.\w+", r"(\W|^)[\w.]{0,25}@(a|gmail)\.com(\W|$)", "", ".", "é+", "a|ab"]
)
def test_regex_full_match(pattern):
    pool = new_pool()
    x = np.array([["www.google.com", "account@gmail.com"], ["", "é"], ["éé", "ab"]], dtype=object)
    (expected,) = run_reference("RegexFullMatch", [x], [TensorProto.BOOL], pattern=pattern)
    matched = kernels.regex_full_match(pool, to_ids(pool, x), pattern)
    assert matched.dtype == torch.bool
    assert matched.tolist() == expected.tolist()


def test_regex_full_match_of_many_strings_and_of_none():
    pool = new_pool()
    x = to_ids(pool, [f"item{i}" for i in range(5000)])
    assert kernels.regex_full_match(pool, x, r"item\d*7").sum() == 500
    assert kernels.regex_full_match(pool, x[:0], "a").shape == (0,)


def test_an_invalid_pattern_is_named():
    with pytest.raises(ValueError, match=r"'\(a' is not a valid RE2 pattern: missing \)"):
        kernels.regex_full_match(new_pool(), torch.zeros(1, dtype=torch.int64), "(a")


# ---- StringNormalizer


def normalize(x, action="NONE", is_case_sensitive=False, stopwords=(), locale=""):
    pool = new_pool()
    y = kernels.string_normalizer(pool, to_ids(pool, x), action, is_case_sensitive, list(stopwords), locale)
    return to_strings(pool, y)


DAYS = ["monday", "Tuesday", "WEDNESDAY", "thursday"]


@pytest.mark.parametrize("shape", [(4,), (1, 4)])
@pytest.mark.parametrize("action", ["NONE", "LOWER", "UPPER"])
@pytest.mark.parametrize("is_case_sensitive", [0, 1])
@pytest.mark.parametrize("stopwords", [[], ["monday"], ["MONDAY", "tuesday"], DAYS])
def test_string_normalizer(shape, action, is_case_sensitive, stopwords):
    x = np.array(DAYS, dtype=object).reshape(shape)
    attributes = {"case_change_action": action, "is_case_sensitive": is_case_sensitive}
    if stopwords:
        attributes["stopwords"] = stopwords
    y = normalize(x, action, bool(is_case_sensitive), stopwords)
    model_args = ("StringNormalizer", [x], [TensorProto.STRING])
    (expected,) = run_onnxruntime(*model_args, opsets=OPSET_23, locale="C.UTF-8", **attributes)
    assert y.tolist() == expected.tolist()
    # The reference implementation does not fold the case of stop words where case_change_action is NONE.
    if is_case_sensitive or action != "NONE":
        assert y.tolist() == run_reference(*model_args, **attributes)[0].tolist()


def test_string_normalizer_of_nothing_is_one_empty_string():
    assert normalize([]).tolist() == [""]
    assert normalize(np.empty((1, 0), dtype=object)).tolist() == [[""]]


def test_string_normalizer_keeps_an_empty_string():
    assert normalize(["", "a"], "UPPER").tolist() == ["", "A"]


def test_case_change_is_pythons():
    # Final sigma needs the letters around it, which no per-character rule sees; newer letters need a newer Unicode.
    letters = [chr(c) for c in range(0x3000) if chr(c).isalpha() and chr(c) != "Σ"]
    for action, change in ("UPPER", str.upper), ("LOWER", str.lower):
        changed = normalize(letters, action).tolist()
        assert [(a, b) for a, b in zip(changed, letters, strict=False) if a != change(b)] == []


def test_case_insensitive_stop_words_in_unicode():
    assert normalize(["Straße", "ÉTÉ", "x"], stopwords=["STRASSE", "été"]).tolist() == ["x"]


@pytest.mark.parametrize("locale", ["tr_TR.UTF-8", "az"])
def test_case_change_of_the_dotless_i(locale):
    assert normalize(["Iıİi"], "LOWER", locale=locale).tolist() == ["ııii"]
    assert normalize(["Iıİi"], "UPPER", locale=locale).tolist() == ["IIİİ"]


def test_string_normalizer_refuses_other_shapes_and_actions():
    with pytest.raises(ValueError, match=r"\[C\] or \[1, C\], not \[2, 1\]"):
        normalize([["a"], ["b"]])
    with pytest.raises(ValueError, match="'Upper'"):
        normalize(["a"], "Upper")


# ---- Cast to string


def texts_of(x, is_uint64=False):
    pool = new_pool()
    return to_strings(pool, kernels.number_to_string(pool, x, is_uint64)).tolist()


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.float16, torch.bfloat16])
def test_floats_read_back_as_the_same(dtype):
    bits = torch.randint(-(2**62), 2**62, (4000,), generator=torch.Generator().manual_seed(0)).view(dtype)
    finite = bits[bits.isfinite()]
    texts = texts_of(finite)
    assert torch.equal(torch.tensor([float(t) for t in texts], dtype=torch.float64).to(dtype), finite)


def test_doubles_are_written_as_python_writes_them():
    x = torch.tensor([0.1, 1.0, -0.0, 100.0, 314.15926, 1e-4, 1.5e-5, 1e15, 1e16, -1.25e22, 123456.789, 5e-324, 1 / 3])
    values = x.double().tolist() + torch.randn(500, dtype=torch.float64).mul(1e3).tolist()
    assert texts_of(torch.tensor(values, dtype=torch.float64)) == [str(v) for v in values]


def test_narrow_floats_are_written_with_their_own_precision():
    # The texts are the reference implementation's, which turns to the scientific notation earlier for large numbers.
    x = np.array([[0.47892547, 0.48033667, 0.8, 1], [314.15926, -0.0625, 100, 0.001]])
    for dtype in np.float16, np.float32:
        (expected,) = run_reference("Cast", [x.astype(dtype)], [TensorProto.STRING], to=TensorProto.STRING)
        assert texts_of(torch.from_numpy(x.astype(dtype))) == expected.tolist()
    assert texts_of(torch.tensor([0.4785, 3.14], dtype=torch.bfloat16)) == ["0.479", "3.14"]
    assert texts_of(torch.tensor([0.4785, -448], dtype=torch.float32).to(torch.float8_e4m3fn)) == ["0.46875", "-448.0"]


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.float16, torch.bfloat16, torch.float8_e5m2])
def test_special_floats_are_the_literals_of_the_operators_text(dtype):
    x = torch.tensor([float("nan"), float("inf"), -float("inf")]).to(dtype)
    assert texts_of(x) == ["NaN", "INF", "-INF"]


@pytest.mark.parametrize("dtype", [torch.int8, torch.uint8, torch.int16, torch.int32, torch.int64])
def test_integers_to_strings(dtype):
    values = [torch.iinfo(dtype).min, 0, 7, torch.iinfo(dtype).max]
    assert texts_of(torch.tensor(values, dtype=dtype)) == [str(v) for v in values]


def test_uint64_and_bool_to_strings():
    assert texts_of(torch.tensor([-1, 5]), is_uint64=True) == ["18446744073709551615", "5"]
    assert texts_of(torch.tensor([[True], [False]])) == [["True"], ["False"]]


def test_cast_to_string_of_strided_and_empty_tensors():
    x = torch.arange(6).reshape(2, 3)
    assert texts_of(x.T) == [["0", "3"], ["1", "4"], ["2", "5"]]
    assert texts_of(torch.empty(0, 2)) == []


# ---- Cast from string


def parse(texts, dtype):
    pool = new_pool()
    return kernels.string_to_number(pool, to_ids(pool, texts), dtype)


NUMERALS = ["0.47892547", "3.14", "1000", "1e-5", "1E8", "-7", "+2.5", ".5", "5.", " 3 ", "-0", "1e+3", "16777217.5"]
SPECIAL = ["NaN", "nan", "INF", "+INF", "-INF", "inf", "+inf", "-inf", "Inf"]


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("texts", [NUMERALS, SPECIAL])
def test_strings_to_floats(texts, dtype):
    expected = np.array(texts, dtype=object).astype(str(dtype).removeprefix("torch."))
    np.testing.assert_array_equal(parse(texts, dtype).numpy(), expected)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_floats_out_of_range(dtype):
    texts = ["123e400", "-123e400", "0.0001e-400", "-0.0001e-400"]
    texts += ["1e99999999999999999999", "1e-99999999999999999999", "9" * 400, "0." + "0" * 400 + "1"]
    inf = float("inf")
    texts += ["12e9223372036854775807", "0.001e-9223372036854775808"]  # the last exponents of an int64
    result = parse(texts, dtype)
    assert result.tolist() == [inf, -inf, 0, 0, inf, 0, inf, 0, inf, 0]
    assert result.signbit().tolist()[:4] == [False, True, False, True]


def test_strings_to_integers():
    texts = ["0", "-7", "+7", " 12 ", "9223372036854775807", "-9223372036854775808", "100.5", "-1.9", "1e3"]
    assert parse(texts, torch.int64).tolist() == [0, -7, 7, 12, 2**63 - 1, -(2**63), 100, -1, 1000]
    assert parse(["18446744073709551615"], torch.int64).tolist() == [-1]


def test_strings_to_bool():
    texts = ["True", "False", "true", "false", "1", "0", "0.0", "-3", "1e-3"]
    assert parse(texts, torch.bool).tolist() == [True, False, True, False, True, False, False, True, True]


@pytest.mark.parametrize("text", ["", " ", "Hello World!", "1,5", "1.5.2", "0x10", "1e", "--1", "+-1", "1 2"])
@pytest.mark.parametrize("dtype, name", [(torch.float32, "float"), (torch.int64, "an integer"), (torch.bool, "bool")])
def test_what_is_no_number_is_named(text, dtype, name):
    with pytest.raises(ValueError, match=f"cannot cast the string '.*' to {name}"):
        parse([text], dtype)


def test_cast_from_string_of_strided_and_empty_tensors():
    pool = new_pool()
    x = to_ids(pool, [["1", "2"], ["3", "4"]])
    assert kernels.string_to_number(pool, x.T, torch.float32).tolist() == [[1, 3], [2, 4]]
    assert kernels.string_to_number(pool, x[:0], torch.int64).shape == (0, 2)
