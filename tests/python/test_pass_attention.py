"""The pass `attention`: a softmax between two products, and the operator."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnx
import pytest

import onnx_torch
from models import on_each_cpu, run_on_cpu
from pass_models import assert_close, check_equal, floats, graph_of, model
from random_numbers import RNG

ATTENTIONS = {
    "plain": "s = MatMul(q, kt) w = Softmax(s) y = MatMul(w, v)",
    "scaled": "s = MatMul(q, kt) d = Div(s, eight) w = Softmax(d) y = MatMul(w, v)",
    "scaled before": "a = Mul(q, half) b = Mul(kt, half) s = MatMul(a, b) w = Softmax(s) y = MatMul(w, v)",
    "scaled by an array": "a = Mul(q, array) b = Mul(kt, array) s = MatMul(a, b) w = Softmax(s) y = MatMul(w, v)",
    "masked": "s = MatMul(q, kt) d = Mul(s, half) m = Add(mask, d) w = Softmax(m) y = MatMul(w, v)",
    "guarded": "s = MatMul(q, kt) m = Add(s, mask) w = Softmax(m) n = IsNaN(w) g = Where(n, zero, w) y = MatMul(g, v)",
}


@pytest.mark.parametrize("name", ATTENTIONS)
@pytest.mark.parametrize("masked", [False, True])
def test_attention(name: str, masked: bool):
    source = model(
        "(float[2, 3, 5, 8] q, float[2, 3, 8, 7] kt, float[2, 3, 7, 6] v, float[2, 1, 5, 7] mask) "
        f"=> (float[2, 3, 5, 6] y) {{ {ATTENTIONS[name]} }}",
        eight=np.float32(8),
        half=np.float32(0.5),
        array=np.float32([0.5]),
        zero=np.float32(0),
    )
    assert graph_of(source, "attention") == "onnx_torch::attention"
    mask = np.where(RNG.random((2, 1, 5, 7)) < 0.3, -np.inf, 0).astype(np.float32)
    mask[0, 0, 2] = -np.inf if masked else 0  # then a row has nothing to attend to
    check_equal(source, [floats(2, 3, 5, 8), floats(2, 3, 8, 7), floats(2, 3, 7, 6), mask])


def test_a_scale_of_more_dimensions_stays_outside_of_attention():
    source = model(
        "(float[3, 5, 8] q, float[3, 8, 7] kt, float[3, 7, 6] v) => (float y) "
        "{ a = Mul(q, array) s = MatMul(a, kt) w = Softmax(s) y = MatMul(w, v) }",
        array=np.full((1, 1, 1, 1), 0.5, np.float32),
    )
    assert graph_of(source, "attention") == "aten::mul\nonnx_torch::attention"
    check_equal(source, [floats(3, 5, 8), floats(3, 8, 7), floats(3, 7, 6)])


MASKS = {
    "constants": "a = Add(s, bias) m = Add(a, window)",
    "of a run": "a = Add(mask, s) m = Add(a, mask)",
    "both": "a = Add(s, bias) b = Add(mask, a) m = Add(b, window)",
    "in other dimensions": "a = Add(s, bias) r = Reshape(a, parts) b = Add(r, windows) m = Reshape(b, whole)",
}


@pytest.mark.parametrize("name", MASKS)
def test_attention_with_several_masks(name: str):
    window = np.where(RNG.random((6, 1, 5, 7)) < 0.3, -100, 0).astype(np.float32)
    source = model(
        "(float[6, 2, 5, 8] q, float[6, 2, 8, 7] kt, float[6, 2, 7, 6] v, float[1, 1, 5, 7] mask) => (float y) "
        f"{{ s = MatMul(q, kt) {MASKS[name]} w = Softmax(m) y = MatMul(w, v) }}",
        bias=(1, 2, 5, 7),
        window=window,
        windows=window.reshape(1, 6, 1, 5, 7),
        parts=np.int64([1, 6, 2, 5, 7]),
        whole=np.int64([6, 2, 5, 7]),
    )
    calls = graph_of(source, "attention").splitlines()
    assert calls == ["aten::add"] * (1 + (name == "both")) * ("mask" in MASKS[name]) + ["onnx_torch::attention"]
    mask = np.where(RNG.random((1, 1, 5, 7)) < 0.3, -np.inf, 0).astype(np.float32)
    mask[..., 0] = 0
    check_equal(source, [floats(6, 2, 5, 8), floats(6, 2, 8, 7), floats(6, 2, 7, 6), mask])


# What exporters write where several heads share keys and values: a copy for each.
JOINED = {
    "at once": "k = Reshape(ks, joined) kt = Transpose<perm = [0, 1, 3, 2]>(k)",
    "in matrices": "k = Reshape(ks, matrices) t = Transpose<perm = [0, 2, 1]>(k) kt = Reshape(t, columns)",
}
KEYS = (
    "ku = Unsqueeze(keys, two) ks = Expand(ku, repeats) {joined} "
    "vu = Unsqueeze(values, two) vs = Expand(vu, repeats) v = Reshape(vs, joined)"
)


def grouped_heads(batch: str, joined: str, mask: str) -> onnx.ModelProto:
    return model(
        f"(float[{batch}, 6, Q, 8] q, float[{batch}, 2, K, 8] keys, float[{batch}, 2, K, 8] values, "
        f"float[M0, M1, M2, M3] mask) => (float y) {{ {KEYS.format(joined=JOINED[joined])} s = MatMul(q, kt) "
        f"{mask} bad = IsNaN(w) u = Where(bad, zero, w) y = MatMul(u, v) }}",
        two=np.int64([2]),
        repeats=np.int64([1, 1, 3, 1, 1]),
        joined=np.int64([0, 6, -1, 8]),
        matrices=np.int64([6, -1, 8]),
        columns=np.int64([1, 6, 8, -1]),
        zero=np.float32(0),
    )


@pytest.mark.parametrize("queries", [1, 3, 31])
@pytest.mark.parametrize("mask", [(1, 1, 1, 9), (2, 1, 1, 9), (1, 6, 1, 1), (2, 6, 0, 9), None], ids=str)
@pytest.mark.parametrize(("batch", "joined"), [("B", "at once"), ("2", "at once"), ("1", "in matrices")])
def test_heads_that_share_copied_keys(batch: str, joined: str, mask: tuple[int, ...] | None, queries: int):
    source = grouped_heads(batch, joined, "m = Add(s, mask) w = Softmax(m)" if mask else "w = Softmax(s)")
    calls = graph_of(source, "attention").splitlines()
    assert "onnx_torch::grouped_attention" in calls
    assert "aten::expand_copy" not in calls
    count = 1 if batch == "1" else 2
    shape = [queries if size == 0 else size for size in mask or (1, 1, 1, 1)]
    shape[0] = min(shape[0], count)
    values = np.where(RNG.random(shape) < 0.3, -np.inf, 0).astype(np.float32)
    values.reshape(-1, values.shape[-1])[0] = -np.inf  # then there is nothing to attend to
    for threads in (1, 2):
        inputs = [floats(count, 6, queries, 8), floats(count, 2, 9, 8), floats(count, 2, 9, 8)]
        check_equal(source, [*inputs, values], threads=threads)


@pytest.mark.parametrize("keys", [0, 1])
def test_heads_that_share_few_copied_keys(keys: int):
    source = grouped_heads("B", "at once", "m = Add(s, mask) w = Softmax(m)")
    inputs = [floats(2, 6, 4, 8), floats(2, 2, keys, 8), floats(2, 2, keys, 8), floats(1, 1, 1, 1)]
    check_equal(source, inputs)


def test_other_reshapes_of_copied_keys():
    """The reshape joins other dimensions than those of the heads, though sizes of no run but this tell it."""
    source = model(
        "(float[B, H, Q, 8] q, float[B, 2, K, 8] keys, float[B, 2, K, 8] values, int64[4] joined) => (float y) "
        f"{{ {KEYS.format(joined=JOINED['at once'])} s = MatMul(q, kt) w = Softmax(s) y = MatMul(w, v) }}",
        two=np.int64([2]),
        repeats=np.int64([1, 1, 2, 1, 1]),
    )
    assert "onnx_torch::grouped_attention" in graph_of(source, "attention").splitlines()
    keys = [floats(3, 2, 5, 8), floats(3, 2, 5, 8)]
    for batch, heads, sizes in [(3, 4, [3, 4, 5, 8]), (3, 2, [3, 2, 10, 8]), (1, 12, [1, 12, 5, 8])]:
        check_equal(source, [floats(batch, heads, 6, 8), *keys, np.int64(sizes)])


# There are more scores than are computed at once.
@pytest.mark.parametrize("lead", [(2, 3), (6,), ()], ids=["four dimensions", "three", "two"])
@pytest.mark.parametrize("mask", ["none", "whole", "for each row", "for each key", "of more dimensions"])
def test_attention_of_long_sequences(mask: str, lead: tuple[int, ...]):
    rows, keys, threads = 701, 1000 if lead else 3000, 2
    sizes = {
        "none": (1,),
        "whole": (*lead, rows, keys),
        "for each row": (rows, 1),
        "for each key": (1, keys),
        "of more dimensions": (2, *(1 for _ in lead), rows, 1),
    }[mask]
    dims = ", ".join("N" + str(i) for i in range(len(lead)))
    dims += ", " if dims else ""
    shape = ", ".join("M" + str(i) for i in range(len(sizes)))
    source = model(
        f"(float[{dims}L, D] q, float[{dims}D, K] kt, float[{dims}K, E] v, float[{shape}] mask) => (float y) "
        "{ p = MatMul(q, kt) s = Add(p, mask) w = Softmax(s) bad = IsNaN(w) u = Where(bad, zero, w) y = MatMul(u, v) }",
        zero=np.float32(0),
    )
    assert graph_of(source, "attention") == "onnx_torch::attention"
    values = np.where(RNG.random(sizes) < 0.3, -np.inf, 0).astype(np.float32)
    if mask == "none":
        values[:] = 0
    inputs = [floats(*lead, rows, 8), floats(*lead, 8, keys), floats(*lead, keys, 6), values]
    check_equal(source, inputs, ulps=32, threads=threads)  # weights of thousands of keys are added


@pytest.mark.parametrize("sizes", [(8, 7, 6), (64, 129, 64), (40, 300, 100), (1, 1, 1), (96, 33, 17)])
@pytest.mark.parametrize("mask", ["none", "for each key", "for each head", "for each query", "all"])
@pytest.mark.parametrize("shared", [False, True], ids=["own keys", "shared keys"])
@pytest.mark.parametrize("queries", [1, 3, 31])
def test_attention_to_rows_of_keys(queries: int, sizes: tuple[int, int, int], mask: str, shared: bool):
    """The model is as when text is generated: keys lie as they were appended, and heads may share them."""
    size, count, value_size = sizes
    source = model(
        "(float[B, H, G, Q, D] q, float[B, H, N, K, D] k, float[B, H, N, K, E] v, float[M0, M1, M2, M3, M4] mask) "
        "=> (float y) { kt = Transpose<perm = [0, 1, 2, 4, 3]>(k) p = MatMul(q, kt) h = Mul(p, half) s = Add(h, mask) "
        "w = Softmax(s) bad = IsNaN(w) u = Where(bad, zero, w) y = MatMul(u, v) }",
        half=np.float32(0.5),
        zero=np.float32(0),
    )
    assert "onnx_torch::attention" in graph_of(source, "attention").splitlines()
    shape = {
        "none": (1, 1, 1, 1, 1),
        "for each key": (1, 1, 1, 1, count),
        "for each head": (1, 2, 3, 1, count),
        "for each query": (2, 1, 3, queries, 1),
        "all": (2, 2, 3, queries, count),
    }[mask]
    values = np.where(RNG.random(shape) < 0.3, -np.inf, 0).astype(np.float32)
    if mask == "none":
        values[:] = 0
    elif mask == "all":
        values[1, 0, 1] = -np.inf  # then there is nothing to attend to
    heads = 1 if shared else 3
    inputs = [floats(2, 2, 3, queries, size), floats(2, 2, heads, count, size), floats(2, 2, heads, count, value_size)]
    for threads in (1, 2):
        check_equal(source, [*inputs, values], threads=threads)


@pytest.mark.parametrize("queries", [1, 7, 40])
def test_attention_to_what_is_not_finite(queries: int):
    source = model(
        "(float[H, Q, D] q, float[H, K, D] k, float[H, K, D] v) => (float y) "
        "{ kt = Transpose<perm = [0, 2, 1]>(k) s = MatMul(q, kt) w = Softmax(s) y = MatMul(w, v) }"
    )
    assert "onnx_torch::attention" in graph_of(source, "attention").splitlines()
    q, k, v = floats(4, queries, 24), floats(4, 50, 24), floats(4, 50, 24)
    k[1, 3, 2], v[2, 4, 5], v[3, 6, 7] = np.nan, np.nan, np.inf
    with np.errstate(invalid="ignore"):
        check_equal(source, [q, k, v])


@pytest.mark.parametrize("kind", ["float", "bool"])
@pytest.mark.parametrize("heads", [1, 2, 6])
@pytest.mark.parametrize("shape", ["4-d", "3-d"])
@pytest.mark.parametrize("queries", [1, 5, 26])
def test_the_operator_attention(queries: int, shape: str, heads: int, kind: str):
    """The operator has a past, and heads that share keys; in the last of a batch, a query attends to nothing."""
    size, past, value_size = 24, 37, 20
    dims = {"4-d": (f"6, {queries}", f"{heads}, {queries}"), "3-d": (queries, queries)}[shape]
    widths = {"4-d": (size, size, value_size), "3-d": (6 * size, heads * size, heads * value_size)}[shape]
    attributes = f"<q_num_heads = 6, kv_num_heads = {heads}>" if shape == "3-d" else ""
    source = model(
        f"(float[2, {dims[0]}, {widths[0]}] q, float[2, {dims[1]}, {widths[1]}] k, float[2, {dims[1]}, {widths[2]}] v, "
        f"float[2, {heads}, {past}, {size}] pk, float[2, {heads}, {past}, {value_size}] pv, {kind}[M0, M1, M2, M3] m) "
        f"=> (float y, float nk, float nv) {{ y, nk, nv = Attention{attributes}(q, k, v, m, pk, pv) }}"
    )
    source.opset_import[0].version = 23
    assert "onnx_torch::attention" in graph_of(source, "attention").splitlines()
    for sizes in [(1, 1), (1, 6), (2, 1), (2, 6)]:
        shown = RNG.random((*sizes, queries, past + queries)) < 0.7
        shown[-1, -1, -1] = False
        mask = shown if kind == "bool" else np.where(shown, floats(*shown.shape), -np.inf).astype(np.float32)
        inputs = [
            floats(*(d.dim_value for d in value.type.tensor_type.shape.dim)) for value in list(source.graph.input)[:5]
        ]
        check_equal(source, [*inputs, mask])


@pytest.mark.parametrize("queries", [1, 2, 30])
def test_the_operator_attention_to_what_is_not_finite(queries: int):
    source = model(
        f"(float[1, 4, {queries}, 24] q, float[1, 4, K, 24] k, float[1, 4, K, 24] v) => (float y) "
        "{ y = Attention(q, k, v) }"
    )
    source.opset_import[0].version = 23
    q, k, v = floats(1, 4, queries, 24), floats(1, 4, 50, 24), floats(1, 4, 50, 24)
    k[0, 1, 3, 2], v[0, 2, 4, 5], v[0, 3, 6, 7] = np.nan, np.nan, np.inf
    check_equal(source, [q, k, v])


@pytest.mark.parametrize(("queries", "keys"), [(1, 1), (1, 9), (3, 2), (5, 70), (31, 31), (130, 130), (90, 20)])
def test_the_operator_attention_to_what_came_before(queries: int, keys: int):
    source = model(
        "(float[B, H, Q, D] q, float[B, H, K, D] k, float[B, H, K, E] v) => (float y) "
        "{ y = Attention<is_causal = 1>(q, k, v) }"
    )
    assert "onnx_torch::attention" in graph_of(source, "attention").splitlines()
    inputs = [floats(2, 3, queries, 40), floats(2, 3, keys, 40), floats(2, 3, keys, 24)]
    for threads in (1, 2):
        check_equal(source, inputs, ulps=32, threads=threads)  # weights of thousands of keys are added


# The rows, keys, and sizes of a key and a value fill tiles and vectors, or leave parts of them.
@on_each_cpu
def test_attention_on_each_cpu(capability: str, tmp_path: Path):
    shapes = [(4, 1, 1, 1), (6, 64, 64, 64), (25, 65, 63, 33), (49, 49, 32, 32), (50, 130, 40, 72), (2, 17, 24, 80)]
    inputs, text, results = [], [], []
    for i, (rows, keys, size, value_size) in enumerate(shapes):
        inputs += [floats(2, rows, size), floats(2, size, keys), floats(2, keys, value_size), floats(rows, keys)]
        text.append(f"s{i} = MatMul(q{i}, k{i}) m{i} = Add(s{i}, b{i}) w{i} = Softmax(m{i}) y{i} = MatMul(w{i}, v{i})")
        results.append(f"float y{i}")
    names = [f"float[{', '.join(map(str, x.shape))}] {'qkvb'[i % 4]}{i // 4}" for i, x in enumerate(inputs)]
    source = model(f"({', '.join(names)}) => ({', '.join(results)}) {{ {' '.join(text)} }}")
    assert set(graph_of(source, "attention").splitlines()) == {"onnx_torch::attention"}
    for i, y in enumerate(run_on_cpu(capability, source, inputs, tmp_path)):
        q, k, v, mask = (x.astype(np.float64) for x in inputs[4 * i : 4 * i + 4])
        scores = np.exp(q @ k + mask)
        np.testing.assert_allclose(y, scores / scores.sum(-1, keepdims=True) @ v, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize(
    "body",
    [
        "s = MatMul(q, kt) w = Softmax<axis = 1>(s) y = MatMul(w, v)",
        "s = MatMul(q, kt) w = Softmax(s) y = MatMul(v, w)",
        "s = MatMul(q, kt) d = Mul(s, q) w = Softmax(d) y = MatMul(w, v)",
        "s = MatMul(q, kt) e = Add(s, v) d = Mul(e, half) w = Softmax(d) y = MatMul(w, v)",
    ],
)
def test_what_is_no_attention(body: str):
    source = model(
        f"(float[2, 3, 4, 4] q, float[2, 3, 4, 4] kt, float[2, 3, 4, 4] v) => (float[2, 3, 4, 4] y) {{ {body} }}",
        half=np.float32(0.5),
    )
    assert "onnx_torch::attention" not in graph_of(source, "attention")
    check_equal(source, [floats(2, 3, 4, 4) for _ in range(3)])


def test_attention_of_other_types_and_shapes():
    body = "{ s = MatMul(q, kt) w = Softmax(s) y = MatMul(w, v) }"
    text = f"(T[B, H, L, D] q, T[B, H, D, M] kt, T[B, H, M, E] v) => (T y) {body}"
    for element, dtype in {"double": np.float64, "float16": np.float16, "float": np.float32}.items():
        source = model(text.replace("T[", f"{element}[").replace("(T y)", f"({element} y)"))
        rep = onnx_torch.prepare(source)
        for sizes in [(2, 3, 4, 5), (1, 1, 1, 1), (0, 2, 3, 4), (2, 3, 0, 4)]:
            batch, heads, length, depth = sizes
            q, k, v = (RNG.random((batch, heads, a, b)).astype(dtype) for a, b in [(length, depth), (depth, 6), (6, 2)])
            scores = np.exp(np.matmul(q, k, dtype=np.float64))
            weights = scores / scores.sum(-1, keepdims=True)
            assert_close(rep.run([q, k, v])[0], np.matmul(weights, v, dtype=np.float64))
