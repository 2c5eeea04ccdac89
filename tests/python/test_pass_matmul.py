"""The pass `matmul`: products of two tensors of a run."""

from __future__ import annotations

import pytest

import onnx_torch
from pass_models import check_equal, floats, graph_of, model


@pytest.mark.parametrize(
    ("a", "b"),
    [
        ((3, 4), (4, 5)),
        ((2, 3, 4), (4, 5)),
        ((3, 4), (2, 4, 5)),
        ((2, 1, 3, 4), (5, 4, 6)),
        ((4,), (4, 5)),
        ((3, 4), (4,)),
        ((0, 4), (4, 5)),
        ((3, 0), (0, 5)),
        ((1, 1), (1, 1)),
        # These are small matrices, few and many.
        ((2, 3, 7, 64), (2, 3, 64, 33)),
        ((2, 1, 20, 100), (1, 3, 100, 70)),
        ((90, 16, 16), (90, 16, 16)),
        ((40, 2, 128), (128, 128)),
        ((5, 30, 129), (5, 129, 40)),
    ],
)
def test_matmul(a: tuple[int, ...], b: tuple[int, ...]):
    dims = [", ".join(f"{name}{i}" for i in range(len(sizes))) for name, sizes in (("a", a), ("b", b))]
    source = model(f"(float[{dims[0]}] a, float[{dims[1]}] b) => (float y) {{ y = MatMul(a, b) }}")
    assert graph_of(source, "matmul") == "onnx_torch::matmul"
    check_equal(source, [floats(*a), floats(*b)])
    turned = model(
        f"(float[{dims[0]}] a, float[{dims[1]}] b) => (float y) "
        "{ s = Transpose(a) t = Transpose(b) y = MatMul(t, s) }"
    )
    if len(a) == len(b) == 2:
        check_equal(turned, [floats(*a), floats(*b)])


@pytest.mark.parametrize(("batch", "length", "heads", "size"), [(1, 16, 4, 16), (3, 9, 12, 64), (2, 40, 2, 24)])
def test_products_of_heads_that_lie_in_rows(batch: int, length: int, heads: int, size: int):
    source = model(
        f"(float[B, L, {heads * size}] q, float[B, L, {heads * size}] k, float[B, L, {heads * size}] v) => (float y)"
        f"<int64[4] split = {{0, 0, {heads}, {size}}}> {{"
        "q4 = Reshape(q, split) k4 = Reshape(k, split) v4 = Reshape(v, split)"
        "qt = Transpose<perm = [0, 2, 1, 3]>(q4) kt = Transpose<perm = [0, 2, 3, 1]>(k4)"
        "vt = Transpose<perm = [0, 2, 1, 3]>(v4) s = MatMul(qt, kt) r = Relu(s) y = MatMul(r, vt) }"
    )
    assert graph_of(source, "matmul").count("onnx_torch::matmul") == 2
    check_equal(source, [floats(batch, length, heads * size) for _ in range(3)])


def test_an_error_in_a_product_is_its_nodes():
    rep = onnx_torch.prepare(model("(float[N, C] a, float[D, M] b) => (float y) { y = MatMul(a, b) }"))
    with pytest.raises(onnx_torch.RunError, match="MatMul"):
        rep.run([floats(2, 3), floats(4, 5)])
