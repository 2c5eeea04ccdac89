"""The pass `rows`: what is computed row by row."""

from __future__ import annotations

import numpy as np
import onnx
import pytest

import onnx_torch
from pass_models import (
    DTYPES,
    assert_close,
    check_equal,
    check_overflowing,
    code,
    exact_runs,
    floats,
    graph_of,
    model,
)
from random_numbers import RNG


def ml_model(text: str) -> onnx.ModelProto:
    source = model(text)
    source.opset_import.add(domain="ai.onnx.ml", version=1)
    return source


SIZES = [(100, 3), (5, 16), (5, 17), (2, 3, 4), (7,), (0, 3), (3, 0)]
ROWS = [np.random.default_rng(1).standard_normal(sizes, np.float32) for sizes in SIZES]


ODD_ROWS = np.float32(
    [
        [0, 0, 0],
        [np.nan, 1, 2],
        [1, np.nan, np.inf],
        [np.inf, 1, 2],
        [-np.inf] * 3,
        [88, 3e38, -3e38],
        [1, 1, 0],
        [-0.0] * 3,
    ]
)


@pytest.mark.parametrize("operator, name", [("Softmax", "softmax"), ("LogSoftmax", "log_softmax")])
@pytest.mark.parametrize("x", [*ROWS, ODD_ROWS, ROWS[0].astype(np.float64)])
def test_softmax_of_short_rows(x: np.ndarray, operator: str, name: str):
    element = "float" if x.dtype == np.float32 else "double"
    dims = ", ".join("ABC"[: x.ndim])
    source = model(f"({element}[{dims}] x) => ({element} y) {{ y = {operator}<axis = -1>(x) }}")
    assert graph_of(source, "rows") == f"onnx_torch::{name}"
    (check_overflowing if x is ODD_ROWS and operator == "LogSoftmax" else check_equal)(source, [x])


def test_softmax_over_another_dimension():
    source = model("(float[A, B, C] x) => (float y) { y = Softmax<axis = 1>(x) }")
    assert "onnx_torch::softmax" not in graph_of(source, "rows")
    check_equal(source, [floats(2, 3, 4)])


def long_rows(size: int) -> np.ndarray:
    """Makes rows with values that are large, not finite, or so small that their exponents are denormal."""
    x = 4 * floats(12, size)
    x[0, size // 2], x[1, -1], x[2, 0], x[3] = np.nan, np.inf, -np.inf, -np.inf
    x[4, ::2], x[5], x[6, 0], x[7, -1] = -1e30, 1e30, 95.0, 3e38
    x[8, 0], x[9], x[9, 1:] = 0, 88.0, 0
    return x


@pytest.mark.parametrize("size", [2, 31, 32, 33, 49, 64, 100, 1500])
def test_log_softmax_of_long_rows(size: int):
    source = model("(float[A, B] x) => (float y) { y = LogSoftmax<axis = -1>(x) }")
    x = long_rows(size)
    for given in (x, 4 * floats(12, size)):
        ((exact,),) = exact_runs(source, [[given]])
        # Where one element is nearly all, the sum is near 1.
        np.testing.assert_allclose(onnx_torch.prepare(source).run([given])[0], exact, rtol=1e-6, atol=1e-6)


@pytest.mark.parametrize("size", [2, 31, 32, 33, 49, 64, 100, 1500])
def test_softmax_of_long_rows(size: int):
    source = model("(float[A, B] x) => (float y) { y = Softmax<axis = -1>(x) }")
    x = long_rows(size)
    ours, plain = (onnx_torch.prepare(source, optimize=on).run([x])[0] for on in (True, False))
    # Of small elements, what is left of the largest is rounded alike in both, which exp makes more of.
    np.testing.assert_allclose(ours, plain, rtol=3e-6, atol=1e-44)
    ((exact,),) = exact_runs(source, [[x]])
    assert_close(ours, exact, ulps=4)
    turned = model("(float[A, B] x) => (float y) { t = Transpose(x) y = Softmax<axis = -1>(t) }")
    check_equal(turned, [x])


@pytest.mark.parametrize("size", [1, 2, 31, 33, 64, 257])
@pytest.mark.parametrize("norm", ["LayerNormalization(x, w, b)", "LayerNormalization(x, w)", "RMSNormalization(x, w)"])
def test_norms_of_rows(size: int, norm: str):
    source = model(
        f"(float[A, {size}] x) => (float y) {{ y = {norm} }}", w=(size,), **({"b": (size,)} if "b" in norm else {})
    )
    name = "layer_norm" if "Layer" in norm else "rms_norm"
    assert graph_of(source, "rows") == f"onnx_torch::{name}"
    x = floats(5, size)
    x[0, 0], x[1, -1], x[2] = np.nan, np.inf, 3
    check_equal(source, [x])
    check_equal(source, [floats(0, size)])


def test_layer_norm_of_what_lies_far_from_zero():
    """The norm is as exact as a mean of that size is in float32."""
    x = 1000 + floats(7, 33)
    source = model("(float[A, 33] x) => (float y) { y = LayerNormalization(x, w) }", w=np.ones(33, np.float32))
    exact = x.astype(np.float64)
    exact = (exact - exact.mean(1, keepdims=True)) / np.sqrt(exact.var(1, keepdims=True) + 1e-5)
    np.testing.assert_allclose(onnx_torch.prepare(source).run([x])[0], exact, atol=3 * np.spacing(np.float32(1000)))


@pytest.mark.parametrize("size", [(2, 3, 5), (1, 300, 9, 8), (2, 16, 11, 7), (1, 8, 2, 3, 4), (1, 5, 1, 1)])
@pytest.mark.parametrize("channels_last", [True, False])
def test_means_of_channels(size: tuple[int, ...], channels_last: bool):
    rank = len(size)
    order = [0, rank - 1, *range(1, rank - 1)] if channels_last else list(range(rank))
    given = tuple(np.empty(size, np.bool_).transpose(np.argsort(order)).shape)
    dims = ", ".join("ABCDE"[:rank])
    source = model(f"(float[{dims}] x) => (float y) {{ t = Transpose<perm = {order}>(x) y = GlobalAveragePool(t) }}")
    assert "onnx_torch::channel_means" in graph_of(source, "rows")
    x = 10 + floats(*given)
    check_equal(source, [x])
    x[0].flat[1], x[0].flat[2] = np.nan, np.inf
    check_equal(source, [x])
    check_equal(source, [floats(0, *given[1:])])


@pytest.mark.parametrize("axes", [[2], [1, 2], [1, 2, 3], [-1, -2, 1]])
def test_means_over_other_dimensions(axes: list[int]):
    source = model("(float[A, B, C, D] x) => (float y) { y = ReduceMean(x, axes) }", axes=np.int64(axes))
    assert "channel_means" not in graph_of(source, "rows")
    check_equal(source, [floats(2, 3, 4, 5)])


def test_norms_of_more_dimensions_and_other_types():
    source = model("(float[A, 3, 4] x, float[3, 4] w) => (float y) { y = LayerNormalization<axis = 1>(x, w) }")
    check_equal(source, [floats(2, 3, 4), floats(3, 4)])
    source = model("(double[A, 4] x, double[4] w) => (double y) { y = LayerNormalization(x, w) }")
    check_equal(source, [floats(2, 4).astype(np.float64), floats(4).astype(np.float64)])


@pytest.mark.parametrize("x", [*ROWS, ODD_ROWS])
def test_norms_of_short_rows(x: np.ndarray):
    dims = ", ".join("ABC"[: x.ndim])
    source = ml_model(f'(float[{dims}] x) => (float y) {{ y = ai.onnx.ml.Normalizer<norm = "L1">(x) }}')
    assert graph_of(source, "rows") == "onnx_torch::normalize_rows"
    (check_overflowing if x is ODD_ROWS else check_equal)(source, [x])


@pytest.mark.parametrize("norm", ["L2", "MAX"])
def test_other_norms_are_left(norm: str):
    source = ml_model(f'(float[A, B] x) => (float y) {{ y = ai.onnx.ml.Normalizer<norm = "{norm}">(x) }}')
    assert "onnx_torch::normalize_rows" not in graph_of(source, "rows")
    check_equal(source, [floats(4, 3)])


@pytest.mark.parametrize("classes", [3, 17])
def test_labels_of_the_largest_scores(classes: int):
    """The scores are the features, so that equal ones and NaN are what is compared."""
    identity = ", ".join(f"{value:.1f}" for value in np.eye(classes).ravel())
    zeros = ", ".join(["0.0"] * classes)
    labels = ", ".join(str(10 + i) for i in range(classes))
    source = ml_model(
        "(float[N, F] x) => (int64 label, float scores) { label, scores = ai.onnx.ml.LinearClassifier<"
        f"coefficients = [{identity}], intercepts = [{zeros}], classlabels_ints = [{labels}]>(x) }}"
    )
    graph = graph_of(source, "rows")
    assert "onnx_torch::packed" in graph
    assert "aten::argmax" not in graph
    x = np.zeros((8, classes), np.float32)
    x[1:4, 2] = [-1, 1, np.nan]
    x[4:6, :2] = [[-1, -1], [np.nan, np.nan]]
    x[6:] = floats(2, classes)
    check_equal(source, [x])
    check_equal(source, [x[:0]])
    with pytest.raises(onnx_torch.RunError, match="LinearClassifier"):
        onnx_torch.prepare(source).run([floats(4, classes + 1)])


@pytest.mark.parametrize("axis", [0, 1, 2, -1])
@pytest.mark.parametrize("keepdims", [0, 1])
@pytest.mark.parametrize("order", [[0, 1, 2], [0, 2, 1], [2, 1, 0]])
def test_numbers_of_the_largest_elements(axis: int, keepdims: int, order: list[int]):
    """The first of equal elements is found, and the first of those that are NaN, wherever they lie in memory."""
    source = model(
        f"(float[A, B, C] x) => (int64 y) {{ t = Transpose<perm = {order}>(x) "
        f"y = ArgMax<axis = {axis}, keepdims = {keepdims}>(t) }}"
    )
    assert "onnx_torch::argmax" in graph_of(source, "rows")
    for sizes in [(3, 5, 7), (2, 700, 3), (300, 2, 333), (1, 1, 1), (1, 130, 129), (2, 3, 1000)]:
        x = RNG.integers(-9, 9, sizes).astype(np.float32)
        for special in ([], [np.nan], [np.inf, -np.inf], [np.nan, np.inf]):
            x = np.where(RNG.random(sizes) < 0.01, RNG.choice(special, sizes), x).astype(np.float32) if special else x
            [y] = onnx_torch.prepare(source).run([x])
            expected = np.argmax(x.transpose(order), axis, keepdims=bool(keepdims))
            np.testing.assert_array_equal(y, expected, strict=True)


def test_numbers_of_the_largest_of_other_types_and_of_none():
    for name, dtype in [("double", np.float64), ("int64", np.int64), ("float16", np.float16)]:
        x = RNG.integers(-3, 3, (4, 5)).astype(dtype)
        source = model(f"({name}[A, B] x) => (int64 y) {{ y = ArgMax<axis = 1, keepdims = 0>(x) }}")
        np.testing.assert_array_equal(onnx_torch.prepare(source).run([x])[0], np.argmax(x, 1))
    source = model("(float[A, B] x) => (int64 y) { y = ArgMax<axis = 1>(x) }")
    assert onnx_torch.prepare(source).run([floats(0, 3)])[0].shape == (0, 1)
    with pytest.raises(onnx_torch.RunError, match="ArgMax"):
        onnx_torch.prepare(source).run([floats(3, 0)])


@pytest.mark.parametrize("operator", ["CumSum", "CumProd"])
@pytest.mark.parametrize("name", ["float", "double", "float16", "bfloat16", "int32", "int64", "uint32", "uint64"])
@pytest.mark.parametrize("axis", [0, 1, -1])
@pytest.mark.parametrize("reverse", [0, 1])
@pytest.mark.parametrize("exclusive", [0, 1])
def test_running_sums_and_products(operator: str, name: str, axis: int, reverse: int, exclusive: int):
    source = model(
        f"({name}[A, B, C] x) => ({name} y) "
        f"{{ y = {operator}<reverse = {reverse}, exclusive = {exclusive}>(x, axis) }}",
        axis=np.array(axis),
    )
    source.opset_import[0].version = 26
    prepared, plain = onnx_torch.prepare(source), onnx_torch.prepare(source, optimize=False)
    steps = code(prepared.graphs()["rows"])
    assert f"onnx_torch::{operator.lower()}" in steps
    assert "aten::cum" not in steps
    if not exclusive:
        assert "aten::flip" not in steps
    for sizes in [(3, 5, 7), (2, 70, 300), (200, 3, 257), (1, 1, 1), (2, 0, 3)]:
        x = RNG.integers(0, 9, sizes).astype(DTYPES[name])
        if "float" in name or name == "double":
            special = RNG.choice([np.nan, np.inf, -np.inf, 0.0, -0.0], sizes)
            x = np.where(RNG.random(sizes) < 0.01, special, RNG.standard_normal(sizes)).astype(x.dtype)
            x[..., :1] = -0.0
        [y], [expected] = prepared.run([x]), plain.run([x])
        assert y.dtype == expected.dtype
        if name == "bfloat16":  # of which numpy does not know what is NaN
            y, expected = y.astype(np.float32), expected.astype(np.float32)
        np.testing.assert_array_equal(y, expected)
        if "float" in name or name == "double":
            np.testing.assert_array_equal(np.signbit(y[y == 0]), np.signbit(expected[y == 0]))


ROW_OPERATORS = {
    "Softmax": "Softmax(e)",
    "LayerNormalization": "LayerNormalization(e, s, b)",
    "RMSNormalization": "RMSNormalization(e, s)",
    "GroupNormalization": "GroupNormalization<num_groups = 4>(c, cs, cb)",
}


@pytest.mark.parametrize("name", ROW_OPERATORS)
@pytest.mark.parametrize("again", [False, True])
def test_rows_are_left_where_they_lay_unless_they_are_read_again(name: str, again: bool):
    """A tensor that is read once more, given back, or a caller's keeps its elements."""
    node = ROW_OPERATORS[name]
    operand = "c" if "(c" in node else "e"
    weights = {"s": (48,), "b": (48,), "cs": (8,), "cb": (8,)}
    results, last = (f"float y, float {operand}", f"Add(z, {operand})") if again else ("float y", "Neg(z)")
    source = model(
        f"(float[2, 8, 32, 48] x) => ({results}) {{ c = Conv(x, w) e = Mul(c, x) z = {node} y = {last} }}",
        w=(8, 8, 1, 1),
        **weights,
    )
    x = floats(2, 8, 32, 48)
    given = x.copy()
    check_equal(source, [x])
    check_equal(model(f"(float[2, 8, 32, 48] {operand}) => (float y) {{ y = {node} }}", **weights), [x])
    np.testing.assert_array_equal(x, given)
