"""The pass `halves`: float16 in float32."""

from __future__ import annotations

import numpy as np
import pytest

import onnx_torch
from models import assert_rounded
from pass_models import code, floats, graph_of, model, used_in


def halves(*shape: int) -> np.ndarray:
    return floats(*shape).astype(np.float16)


@pytest.mark.parametrize(
    ("text", "shapes", "packed"),
    [
        ("(float16[N, 8] x) => (float16 y) { y = MatMul(x, w) }", [(5, 8)], 1),
        ("(float16[N, 8] x) => (float16 y) { y = Gemm(x, w, b) }", [(5, 8)], 1),
        ("(float16[N, 8] x) => (float16 y) { t = MatMul(x, w) u = Relu(t) y = Gemm(u, v) }", [(5, 8)], 2),
        ("(float16[N, 8] x, float16[8, 3] z) => (float16 y) { y = MatMul(x, z) }", [(5, 8), (8, 3)], 0),
        ("(float16[N, 4, H, W] x) => (float16 y) { y = Conv(x, k, b) }", [(2, 4, 9, 9)], 1),
        ("(float16[N, 6, H, W] x) => (float16 y) { y = ConvTranspose(x, k) }", [(2, 6, 9, 9)], 1),
    ],
)
def test_products_of_halves_are_computed_in_floats(text: str, shapes: list[tuple[int, ...]], packed: int):
    weights = {"w": halves(8, 6), "v": halves(6, 2), "b": halves(6), "k": halves(6, 4, 3, 3)}
    source = model(text, **used_in(text, weights))
    graphs = onnx_torch.prepare(source).graphs()
    assert code(graphs["halves"]).count("aten::to") >= 2
    assert code(graphs["chains"]).count("onnx_torch::packed") == packed
    inputs = [halves(*shape) for shape in shapes]
    doubles = {name: value.astype(np.float64) for name, value in used_in(text, weights).items()}
    in_doubles = onnx_torch.prepare(model(text.replace("float16", "double"), **doubles), optimize=False)
    [ours], [exact] = onnx_torch.prepare(source).run(inputs), in_doubles.run([x.astype(np.float64) for x in inputs])
    assert ours.dtype == np.float16
    assert_rounded(ours, exact)


def test_products_of_halves_are_rounded_once():
    """A sum may go on its way by numbers that float16 cannot hold; one that it cannot hold in the end is infinite."""
    source = model("(float16[N, 3] x) => (float16 y) { y = MatMul(x, w) }", w=np.full((3, 1), 8, np.float16))
    x = np.float16([[60000, -60000, 1], [60000, 60000, 1]])
    np.testing.assert_array_equal(onnx_torch.prepare(source).run([x])[0], np.float16([[8], [np.inf]]))


def test_floats_stay_as_they_are_beside_halves():
    source = model("(float[N, 8] x) => (float y) { y = MatMul(x, w) }", w=(8, 6))
    assert "aten::to" not in graph_of(source, "halves")
