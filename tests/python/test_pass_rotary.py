"""The pass `rotary`: rotary position embeddings."""

from __future__ import annotations

from typing import Any

import numpy as np
import onnx
import pytest
from onnx.reference import ReferenceEvaluator

import onnx_torch
from pass_models import assert_close, check_equal, floats, graph_of, model
from random_numbers import RNG


def rotary(
    body: str = "y = Add(u, v)", rank: int = 2, half: int = 4, end: int = 2**63 - 1, axis: int = -1, name: str = "float"
) -> onnx.ModelProto:
    """Makes heads of 8 elements, turned as Llama's exports write it, by factors of this rank; `body` comes last."""
    dims = ", ".join("CDEF"[:rank])
    return model(
        f"""({name}[B, S, 24] x, {name}[{dims}] c, {name}[{dims}] s) => ({name} y) {{
          r = Reshape(x, shape) t = Transpose<perm = [0, 2, 1, 3]>(r)
          a = Slice(t, zero, half, axis) b = Slice(t, half, end, axis)
          n = Neg(b) w = Concat<axis = {axis}>(n, a)
          u = Mul(t, c) v = Mul(w, s) {body} }}""",
        shape=np.array([0, 0, 3, 8]),
        zero=np.array([0]),
        half=np.array([half]),
        end=np.array([end]),
        axis=np.array([axis]),
    )


@pytest.mark.parametrize("sizes", [(5, 8), (1, 1, 5, 8), (2, 1, 5, 8), (8,), (2, 3, 5, 8)])
@pytest.mark.parametrize("body", ["y = Add(u, v)", "z = Add(u, v) y = Sub(z, t)"])
def test_rotary_embeddings(sizes: tuple[int, ...], body: str):
    source = rotary(body, len(sizes))
    assert "onnx_torch::rotary_embedding" in graph_of(source, "rotary")
    check_equal(source, [floats(2, 5, 24), floats(*sizes), floats(*sizes)])


def test_rotary_embeddings_of_many_rows_and_of_none():
    source = rotary(end=8)
    assert "onnx_torch::rotary_embedding" in graph_of(source, "rotary")
    for batch, rows in [(3, 700), (0, 5), (2, 0), (1, 1)]:
        check_equal(source, [floats(batch, rows, 24), floats(rows, 8), floats(rows, 8)])


@pytest.mark.parametrize("interleaved", [0, 1])
@pytest.mark.parametrize("rotated", [0, 4])
@pytest.mark.parametrize("merged", [False, True])
def test_rotary_embeddings_as_an_operator(interleaved: int, rotated: int, merged: bool):
    """ONNX's own operator turns neighbours, where interleaved, and the first elements of a row, where not all."""
    source = model(
        f"(float[{'B, S, 24' if merged else 'B, 3, S, 8'}] x, float[N, H] c, float[N, H] s, int64[B, S] at) "
        "=> (float y) { y = "
        f"RotaryEmbedding<interleaved = {interleaved}, rotary_embedding_dim = {rotated}, num_heads = 3>"
        "(x, c, s, at) }",
    )
    assert "onnx_torch::rotary_embedding" in graph_of(source, "rotary")
    for rows in (1, 5, 700):
        x = floats(2, rows, 24) if merged else floats(2, 3, rows, 8)
        factors = [floats(800, (rotated or 8) // 2) for _ in range(2)]
        at = RNG.integers(0, 800, (2, rows))
        wide = {"x": x.astype(np.float64), "c": factors[0].astype(np.float64), "s": factors[1].astype(np.float64)}
        [exact] = ReferenceEvaluator(source).run(None, {**wide, "at": at})
        assert_close(onnx_torch.prepare(source).run([x, *factors, at])[0], exact)


@pytest.mark.parametrize("order", ["uvcs", "vucs", "uvsc"])
def test_rotary_embeddings_of_factors_that_take_many_steps(order: str):
    """The factors take more steps to compute than what they turn, or fewer, and products and sums are in any order."""
    source = model(
        """(float[B, 3, S, 8] x, float[S, 8] angles) => (float y) {
          h = Mul(angles, scale) e = Exp(h) f = Add(e, scale) g = Log(f) c = Cos(g) s = Sin(g)
          a = Slice(x, zero, half, axis) b = Slice(x, half, end, axis) n = Neg(b) w = Concat<axis = -1>(n, a)
          """
        + {
            "uvcs": "u = Mul(x, c) v = Mul(w, s) y = Add(u, v) }",
            "vucs": "u = Mul(c, x) v = Mul(w, s) y = Add(v, u) }",
            "uvsc": "u = Mul(x, c) v = Mul(s, w) y = Add(u, v) }",
        }[order],
        zero=np.array([0]),
        half=np.array([4]),
        end=np.array([8]),
        axis=np.array([-1]),
        scale=np.float32(0.5),
    )
    assert "onnx_torch::rotary_embedding" in graph_of(source, "rotary")
    check_equal(source, [floats(2, 3, 5, 8), floats(5, 8)])


def test_rotary_embeddings_of_rows_whose_size_a_run_tells():
    """A row whose size is not twice the half looks like an embedding, and what is computed of it is something else."""
    source = model(
        """(float[B, S, D] x, float[S, D] c, float[S, D] s) => (float y) {
          a = Slice(x, zero, half, axis) b = Slice(x, half, end, axis) n = Neg(b) w = Concat<axis = -1>(n, a)
          u = Mul(x, c) v = Mul(w, s) y = Add(u, v) }""",
        zero=np.array([0]),
        half=np.array([3]),
        end=np.array([2**63 - 1]),
        axis=np.array([-1]),
    )
    assert "onnx_torch::rotary_embedding" in graph_of(source, "rotary")
    for size in (6, 8, 2):
        check_equal(source, [floats(2, 5, size), floats(5, size), floats(5, size)])


def test_rotary_embeddings_that_the_operator_leaves_to_aten():
    check_equal(rotary(name="double"), [x.astype(np.float64) for x in (floats(2, 5, 24), floats(5, 8), floats(5, 8))])
    check_equal(rotary(), [floats(2, 5, 24), floats(5, 1), floats(1, 8)])  # factors that are spread along a row
    check_equal(rotary(rank=4), [floats(1, 5, 24), floats(2, 1, 5, 8), floats(1, 1, 5, 8)])  # a result of more rows


@pytest.mark.parametrize("other", [{"half": 3}, {"end": 7}, {"axis": 2, "half": 2}])
def test_what_only_looks_like_a_rotary_embedding(other: dict[str, Any]):
    assert "rotary" not in graph_of(rotary(**other), "rotary")
