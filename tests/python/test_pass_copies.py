"""The pass `copies`: elements that are moved, joined and repeated."""

from __future__ import annotations

import numpy as np
import pytest

import onnx_torch
from pass_models import check_equal, floats, graph_of, model
from random_numbers import RNG


@pytest.mark.parametrize("dtype", ["float", "bool", "float16", "int64", "complex128"])
@pytest.mark.parametrize("order", [[0, 1, 2, 3], [3, 2, 1, 0], [0, 2, 3, 1], [0, 3, 1, 2], [1, 0, 3, 2]])
def test_moved_elements(dtype: str, order: list[int]):
    """A copy of ours brings into order what a reshape copies, and results."""
    sizes = (3, 40, 37, 5)
    source = model(
        f"({dtype}[3, 40, 37, 5] x) => ({dtype} y, {dtype} z) "
        f"{{ y = Transpose<perm = {order}>(x) z = Reshape(y, flat) }}",
        flat=np.int64([-1]),
    )
    graph = graph_of(source, "copies")
    assert "onnx_torch::reshape" in graph or order == [0, 1, 2, 3]
    numpy_type = {"float": np.float32, "bool": np.bool_, "float16": np.float16, "int64": np.int64}.get(
        dtype, np.complex128
    )
    x = (RNG.standard_normal(sizes) * 3).astype(numpy_type)
    y, z = onnx_torch.prepare(source).run([x])
    np.testing.assert_array_equal(y, x.transpose(order), strict=True)
    np.testing.assert_array_equal(z, x.transpose(order).ravel(), strict=True)


@pytest.mark.parametrize("axis", [0, 1, 2, -1])
@pytest.mark.parametrize("order", [[0, 1, 2, 3], [0, 3, 1, 2], [2, 1, 0, 3]])
def test_joined_tensors(axis: int, order: list[int]):
    source = model(
        f"(float[A, B, C, D] x) => (float y) {{ t = Transpose<perm = {order}>(x) s = Slice(t, at, to) "
        f"y = Concat<axis = {axis}>(s, t, t) }}",
        at=np.int64([0, 0, 0, 0]),
        to=np.where(np.arange(4) == axis % 4, 3, np.iinfo(np.int64).max),
    )
    assert "onnx_torch::cat" in graph_of(source, "copies")
    for x in (floats(3, 4, 5, 6), floats(3, 40, 50, 6), floats(30, 1, 50, 9), floats(2, 1, 1, 6000)):
        t = x.transpose(order)
        joined = np.concatenate([t.take(range(min(3, t.shape[axis])), axis), t, t], axis)
        np.testing.assert_array_equal(onnx_torch.prepare(source).run([x])[0], joined, strict=True)


@pytest.mark.parametrize("mode", ["CRD", "DCR"])
@pytest.mark.parametrize("channels_last", [True, False])
def test_pixels_from_channels(mode: str, channels_last: bool):
    prepared = "Transpose<perm = [0, 3, 1, 2]>(x)" if channels_last else "Identity(x)"
    source = model(
        f'(float[A, B, C, D] x) => (float y) {{ t = {prepared} y = DepthToSpace<blocksize = 3, mode = "{mode}">(t) }}'
    )
    check_equal(source, [floats(2, 5, 7, 18) if channels_last else floats(2, 18, 5, 7)])
    check_equal(source, [floats(0, 5, 7, 18) if channels_last else floats(0, 18, 5, 7)])


@pytest.mark.parametrize("channels_last", [True, False])
@pytest.mark.parametrize("factors", [(2, 2), (4, 1), (3, 2), (1.5, 2)])
@pytest.mark.parametrize("element", ["float", "double", "float16", "uint8"])
def test_repeated_pixels(element: str, factors: tuple[float, float], channels_last: bool):
    prepared = "Transpose<perm = [0, 3, 1, 2]>(x)" if channels_last else "Identity(x)"
    source = model(
        f"({element}[A, B, C, D] x) => ({element} y) {{ t = {prepared} "
        'y = Resize<mode = "nearest", coordinate_transformation_mode = "asymmetric", nearest_mode = "floor">(t, , s) }',
        s=np.array([1, 1, *factors], np.float32),
    )
    if element in ("float", "uint8"):  # by a factor of 3, ATen takes other pixels
        assert ("onnx_torch::upsample_nearest2d" in graph_of(source, "copies")) == (3 not in factors)
    x = 10 * floats(2, 6, 8, 18) if channels_last else 10 * floats(2, 18, 6, 8)
    x = np.abs(x).astype({"float": np.float32, "double": np.float64, "float16": np.float16, "uint8": np.uint8}[element])
    check_equal(source, [x])
    check_equal(source, [x[:0]])


def test_joined_tensors_of_other_kinds():
    source = model("(float[A, B] x, float[C, B] y) => (float z) { z = Concat<axis = 0>(x, y) }")
    check_equal(source, [floats(0, 3), floats(2, 3)])
    check_equal(source, [floats(2, 3), floats(0, 3)])
    source = model("(string[A] x, string[B] y) => (string z) { z = Concat<axis = 0>(x, y) }")
    result = onnx_torch.prepare(source).run([np.array(["a", "b"], object), np.array(["c"], object)])[0]
    assert result.tolist() == ["a", "b", "c"]
    with pytest.raises(Exception, match="Concat"):
        onnx_torch.prepare(model("(float[A, B] x, float[C, D] y) => (float z) { z = Concat<axis = 0>(x, y) }")).run(
            [floats(2, 3), floats(2, 4)]
        )
