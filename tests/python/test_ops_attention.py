"""The attention family against onnx.reference: what the official cases leave out."""

import ml_dtypes
import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper
from onnx.reference import ReferenceEvaluator

import onnx_torch.backend
from models import op_model, run_op, tensor_info
from pass_models import assert_close

BATCH, QUERIES, KEYS, SIZE, PAST = 2, 3, 5, 8, 4
PREVIEW = "ai.onnx.preview"


def _draw(*shape, dtype=np.float32):
    return np.random.default_rng(sum(shape)).uniform(-1, 1, shape).astype(dtype)


def _reference(op, inputs, opset=25, domain="", outputs=1, **attributes):
    model = op_model(op, inputs, opset, domain, outputs, **attributes)
    for output in model.graph.output:
        output.type.tensor_type.elem_type = TensorProto.FLOAT
    return ReferenceEvaluator(model).run(None, {f"x{i}": x for i, x in enumerate(inputs) if x is not None})


def _close(actual, expected, tolerance=1e-5):
    for a, e in zip(actual, expected, strict=True):
        assert a.dtype == e.dtype and a.shape == e.shape
        np.testing.assert_allclose(a.astype(np.float64), e.astype(np.float64), rtol=tolerance, atol=tolerance)


def _qkv(query_heads=4, heads=4, dtype=np.float32, value_size=SIZE):
    return [
        _draw(BATCH, query_heads, QUERIES, SIZE, dtype=dtype),
        _draw(BATCH, heads, KEYS, SIZE, dtype=dtype),
        _draw(BATCH, heads, KEYS, value_size, dtype=dtype),
    ]


def _merged(x):
    return x.swapaxes(1, 2).reshape(x.shape[0], x.shape[2], -1)


MASKS = {
    "none": None,
    "boolean": np.arange(QUERIES * KEYS).reshape(QUERIES, KEYS) % 3 != 0,
    "closed row": np.arange(QUERIES)[:, None] != np.zeros(KEYS, int),
    "vector": np.linspace(-1, 1, KEYS, dtype=np.float32),
    "heads": _draw(4, QUERIES, KEYS),
    "one head": _draw(BATCH, 1, QUERIES, KEYS),
    "short": _draw(QUERIES, KEYS - 2),
    "short boolean": np.ones((QUERIES, KEYS - 2), bool),
}


@pytest.mark.parametrize("heads", [4, 2])
@pytest.mark.parametrize("mask", MASKS)
@pytest.mark.parametrize("is_causal", [0, 1])
def test_fused_and_composed(heads, mask, is_causal):
    """Asking for qk_matmul_output leaves ATen's fused attention aside."""
    inputs = [*_qkv(heads=heads), MASKS[mask]]
    whole = np.broadcast_to(inputs[3], (QUERIES, KEYS)) if mask == "vector" else inputs[3]  # the reference needs it so
    expected = _reference("Attention", [*inputs[:3], whole], outputs=4, is_causal=is_causal, qk_matmul_output_mode=3)
    composed = run_op("Attention", inputs, 25, outputs=4, is_causal=is_causal, qk_matmul_output_mode=3)
    fused = run_op("Attention", inputs, 25, outputs=3, is_causal=is_causal)
    _close(composed, expected)
    _close(fused, expected[:3])


@pytest.mark.parametrize("outputs", [3, 4])
@pytest.mark.parametrize("rank", [3, 4])
@pytest.mark.parametrize(
    "attributes",
    [{}, {"is_causal": 1}, {"left_window_size": 1}, {"left_window_size": 2, "right_window_size": 1, "softcap": 0.7}],
)
def test_past(outputs, rank, attributes):
    q, k, v = _qkv(heads=2, value_size=6)
    if rank == 3:
        q, k, v = _merged(q), _merged(k), _merged(v)
        attributes = {**attributes, "q_num_heads": 4, "kv_num_heads": 2}
    inputs = [q, k, v, _draw(QUERIES, PAST + KEYS), _draw(BATCH, 2, PAST, SIZE), _draw(BATCH, 2, PAST, 6)]
    expected = _reference("Attention", inputs, outputs=outputs, scale=0.4, qk_matmul_output_mode=2, **attributes)
    _close(run_op("Attention", inputs, 25, outputs=outputs, scale=0.4, qk_matmul_output_mode=2, **attributes), expected)


@pytest.mark.parametrize("outputs", [1, 4])
@pytest.mark.parametrize("attributes", [{}, {"is_causal": 1}, {"is_causal": 1, "left_window_size": 1}])
def test_nonpad_kv_seqlen(outputs, attributes):
    inputs = [*_qkv(), None, None, None, np.array([5, 2])]
    expected = _reference("Attention", inputs, outputs=outputs, **attributes)
    _close(run_op("Attention", inputs, 25, outputs=outputs, **attributes), expected)


@pytest.mark.parametrize("mode", [0, 1, 2, 3])
def test_qk_matmul_output(mode):
    q, k, v = _qkv()
    mask = _draw(QUERIES, KEYS)
    scores = np.einsum("bhqd,bhkd->bhqk", q, k) / np.sqrt(SIZE)
    capped = 0.5 * np.tanh(scores / 0.5)
    powers = np.exp(capped + mask)
    expected = [scores, capped, capped + mask, powers / powers.sum(-1, keepdims=True)][mode]
    actual = run_op("Attention", [q, k, v, mask], 25, outputs=4, softcap=0.5, qk_matmul_output_mode=mode)
    _close(actual[3:], [expected.astype(np.float32)])


@pytest.mark.parametrize("dtype", [np.float64, np.float16, ml_dtypes.bfloat16])
@pytest.mark.parametrize("precision", [{}, {"softmax_precision": 1}, {"softmax_precision": 11}])
def test_element_types(dtype, precision):
    inputs = _qkv(heads=2, dtype=dtype)
    exact = _reference("Attention", [x.astype(np.float64) for x in inputs])
    actual = run_op("Attention", inputs, 25, **precision)
    # Of 16 bits, scores, weights and results are rounded.
    tolerance = {np.float64: 1e-14, np.float16: 2e-3, ml_dtypes.bfloat16: 2e-2}[dtype]
    in_float = dtype == np.float64 and precision == {"softmax_precision": TensorProto.FLOAT}
    _close(actual, [exact[0].astype(dtype)], 1e-6 if in_float else tolerance)


@pytest.mark.parametrize("outputs", [3, 4])
def test_values_and_masks_of_another_type(outputs):
    q, k, v = _qkv()
    mask = np.eye(QUERIES, KEYS, dtype=np.int32)
    y, _, value, *_ = run_op("Attention", [q, k, v.astype(np.float64), mask], 25, outputs=outputs)
    expected = _reference("Attention", [q, k, v, mask.astype(np.float32)])
    _close([y], expected)
    assert value.dtype == np.float64


@pytest.mark.parametrize("outputs", [1, 4])
@pytest.mark.parametrize("queries, keys", [(0, KEYS), (QUERIES, 0)])
@pytest.mark.parametrize("dtype", [np.float32, np.float16])
def test_empty_sequences(outputs, queries, keys, dtype):
    inputs = [_draw(BATCH, 4, length, SIZE, dtype=dtype) for length in (queries, keys, keys)]
    y = run_op("Attention", inputs, 25, outputs=outputs)[0]
    np.testing.assert_array_equal(y, np.zeros((BATCH, 4, queries, SIZE)))


@pytest.mark.parametrize("opset", [23, 24])
def test_old_versions(opset):
    _close(run_op("Attention", _qkv(), opset, is_causal=1), _reference("Attention", _qkv(), opset, is_causal=1))


def _modifier(name, op, *values, element=TensorProto.FLOAT):
    """Makes a graph that applies an operator to its input and a constant."""
    constants = [helper.make_tensor(f"c{i}", element, [], [value]) for i, value in enumerate(values)]
    node = helper.make_node(op, ["s", *(c.name for c in constants)], ["o"])
    info = [tensor_info(n, shape=[None] * 4, element=element) for n in ("s", "o")]
    return helper.make_graph([node], name, info[:1], info[1:], constants)


@pytest.mark.parametrize("dtype", [np.float32, np.float64, np.float16])
@pytest.mark.parametrize("heads", [4, 2])
def test_flex_attention_modifiers(dtype, heads):
    q, k, v = _qkv(heads=heads, dtype=dtype)
    element = TensorProto.DOUBLE if dtype == np.float64 else TensorProto.FLOAT
    modifiers = {
        "score_mod": _modifier("score_mod", "Max", 0.1, element=element),
        "prob_mod": _modifier("prob_mod", "Mul", 0.5, element=element),
    }
    actual = run_op("FlexAttention", [q, k, v], 1, PREVIEW, scale=0.3, **modifiers)
    k, v = (np.repeat(x, 4 // heads, 1).astype(np.float64) for x in (k, v))
    scale = float(np.float32(0.3))  # as an attribute holds it
    powers = np.exp(np.maximum(np.einsum("bhqd,bhkd->bhqk", q.astype(np.float64), k) * scale, 0.1))
    y = 0.5 * powers / powers.sum(-1, keepdims=True) @ v
    # Of 16 bits, scores, weights and results are rounded.
    _close(actual, [y.astype(dtype)], {np.float16: 2e-3, np.float32: 1e-5, np.float64: 1e-14}[dtype])


def test_flex_attention_sees_the_graph_around_it():
    q, k, v = _qkv()
    info = [tensor_info(name, shape=[None] * 4, element=TensorProto.FLOAT) for name in ("s", "o")]
    modifier = helper.make_graph([helper.make_node("Add", ["s", "bias"], ["o"])], "mod", info[:1], info[1:])
    node = helper.make_node("FlexAttention", ["q", "k", "v"], ["y"], domain=PREVIEW, score_mod=modifier)
    bias = _draw(QUERIES, KEYS)
    values = {"q": q, "k": k, "v": v, "bias": bias}
    graph = helper.make_graph(
        [node], "test", [tensor_info(n, x) for n, x in values.items()], [onnx.ValueInfoProto(name="y")]
    )
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid(PREVIEW, 1), helper.make_opsetid("", 25)])
    actual = list(onnx_torch.backend.prepare(model).run(list(values.values())))
    _close(actual, _reference("Attention", [q, k, v, bias]))


@pytest.mark.parametrize("precision", [1, 10, 11, 16])
def test_flex_attention_precision(precision):
    inputs = _qkv(value_size=6)
    plain = run_op("FlexAttention", inputs, 1, PREVIEW)
    precise = run_op("FlexAttention", inputs, 1, PREVIEW, softmax_precision=precision)
    _close(precise, plain, {1: 1e-5, 11: 1e-5, 10: 2**-10, 16: 2**-7}[precision])


@pytest.mark.parametrize("interleaved", [0, 1])
@pytest.mark.parametrize("dim", [0, 4])
@pytest.mark.parametrize("dtype", [np.float32, np.float16, ml_dtypes.bfloat16])
def test_rotary_embedding(interleaved, dim, dtype):
    x = _draw(BATCH, 4, QUERIES, SIZE, dtype=dtype)
    half = (dim or SIZE) // 2
    cache = [_draw(10, half, dtype=dtype), _draw(10, half + 1, dtype=dtype)[:, :half]]
    positions = np.array([[0, 2, 9], [1, 1, 3]])
    attributes = {"interleaved": interleaved, "rotary_embedding_dim": dim}
    wide = [y.astype(np.float64) for y in (x, *cache)]
    exact = _reference("RotaryEmbedding", [*wide, positions], 23, **attributes)[0]
    found = run_op("RotaryEmbedding", [x, *cache, positions], 23, **attributes)[0]
    merged = run_op("RotaryEmbedding", [_merged(x), *(c[positions] for c in cache)], 23, num_heads=4, **attributes)[0]
    assert found.dtype == merged.dtype == dtype
    ulps = 4 if dtype == np.float32 else 2  # the products are rounded, and their sum
    assert_close(found, exact, ulps)
    assert_close(merged, _merged(exact), ulps)


@pytest.mark.parametrize("rule", ["linear", "gated", "delta", "gated_delta"])
@pytest.mark.parametrize("time", [0, 1, 6])
def test_linear_attention(rule, time):
    heads, query_heads, value_size = 2, 4, 3
    q, k, v = (_draw(BATCH, time, width) for width in (query_heads * SIZE, heads * SIZE, heads * value_size))
    decay = -np.abs(_draw(BATCH, time, heads * SIZE)) if "gated" in rule else None
    beta = np.abs(_draw(BATCH, time, heads)) if "delta" in rule else None
    inputs = [q, k, v, _draw(BATCH, heads, SIZE, value_size), decay, beta]
    attributes = {"update_rule": rule, "q_num_heads": query_heads, "kv_num_heads": heads, "scale": 0.3}
    actual = run_op("LinearAttention", inputs, 27, outputs=2, **attributes)
    _close(actual, _reference("LinearAttention", inputs, 27, outputs=2, **attributes))


def _linear_attention(q, k, v, state, decay, beta, heads, scale):
    """Computes LinearAttention in float64, as the standard's text describes it step by step."""
    q, k, v, state = (x.astype(np.float64) for x in (q, k, v, state))
    steps = (*k.shape[:2], heads, -1)
    k, v, q = k.reshape(steps), v.reshape(steps), scale * q.reshape(*k.shape[:2], heads, -1, k.shape[2] // heads)
    outputs = []
    for t in range(k.shape[1]):
        if decay is not None:
            state = state * np.exp(decay.astype(np.float64)[:, t].reshape(len(k), heads, -1, 1))
        update = v[:, t]
        if beta is not None:
            update = beta[:, t, :, None] * (update - np.einsum("bhk,bhkv->bhv", k[:, t], state))
        state = state + k[:, t, :, :, None] * update[:, :, None]
        outputs.append(np.einsum("bhgk,bhkv->bhgv", q[:, t], state).reshape(len(k), -1))
    return np.stack(outputs, 1), state


@pytest.mark.parametrize("rule", ["linear", "gated", "delta", "gated_delta"])
@pytest.mark.parametrize("sizes", [(1, 1, 1), (7, 37, 3), (64, 32, 1), (16, 130, 2), (33, 64, 1)])
@pytest.mark.parametrize("time", [1, 9])
@pytest.mark.parametrize("decays", ["head", "key"])
def test_linear_attention_kernel(rule, sizes, time, decays):
    key_size, value_size, groups = sizes
    heads, rng = 3, np.random.default_rng(key_size + time)

    def draw(*shape):
        return rng.uniform(-1, 1, shape).astype(np.float32)

    q, k, v = (draw(BATCH, time, heads * size) for size in (groups * key_size, key_size, value_size))
    k /= np.sqrt(key_size)
    decay = -np.abs(draw(BATCH, time, heads * (key_size if decays == "key" else 1))) if "gated" in rule else None
    beta = np.abs(draw(BATCH, time, heads)) if "delta" in rule else None
    inputs = [q, k, v, draw(BATCH, heads, key_size, value_size), decay, beta]
    attributes = {"update_rule": rule, "q_num_heads": groups * heads, "kv_num_heads": heads, "scale": 0.3}
    rep = onnx_torch.prepare(op_model("LinearAttention", inputs, 27, outputs=2, **attributes))
    assert "onnx_torch::linear_attention" in str(rep.graph())
    runs = [rep.run([x for x in inputs if x is not None]) for _ in range(4)]  # the last ones by a plan
    for found, exact in zip(runs[0], _linear_attention(*inputs, heads, 0.3), strict=True):
        np.testing.assert_allclose(found, exact, rtol=1e-5, atol=4e-6)
    for run in runs[1:]:
        for one, other in zip(run, runs[0], strict=True):
            np.testing.assert_array_equal(one, other)


def test_linear_attention_state_type():
    q, k, v = (_draw(BATCH, 2, 2 * SIZE, dtype=np.float16) for _ in range(3))
    attributes = {"update_rule": "linear", "q_num_heads": 2, "kv_num_heads": 2}
    for state, expected in ((None, np.float16), (np.zeros((BATCH, 2, SIZE, SIZE), np.float32), np.float32)):
        y, present = run_op("LinearAttention", [q, k, v, state], 27, outputs=2, **attributes)
        assert y.dtype == np.float16 and present.dtype == expected
