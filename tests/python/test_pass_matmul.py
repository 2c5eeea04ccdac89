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
    if len(a) == len(b):
        check_equal(turned, [floats(*a), floats(*b)])


def test_an_error_in_a_product_is_its_nodes():
    rep = onnx_torch.prepare(model("(float[N, C] a, float[D, M] b) => (float y) { y = MatMul(a, b) }"))
    with pytest.raises(onnx_torch.RunError, match="MatMul"):
        rep.run([floats(2, 3), floats(4, 5)])
