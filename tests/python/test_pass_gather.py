"""The pass `gather`: indices that count from either end."""

from __future__ import annotations

import numpy as np
import onnx
import pytest

import onnx_torch
from pass_models import DTYPES, check_equal, floats, graph_of, model
from pretended_cuda import PretendedCuda
from random_numbers import RNG


@pytest.mark.parametrize("index", ["int64", "int32"])
@pytest.mark.parametrize(("axis", "shape"), [(0, (5, 4)), (1, (3, 5, 2)), (-1, (2, 3, 5)), (0, (5,)), (1, (2, 5, 0))])
@pytest.mark.parametrize("dtype", [np.float32, np.float64, np.uint8, np.bool_, np.float16, np.int64])
def test_gather_counts_from_either_end(axis: int, shape: tuple[int, ...], dtype: type, index: str):
    name = (
        onnx.helper.tensor_dtype_to_string(onnx.helper.np_dtype_to_tensor_dtype(np.dtype(dtype))).split(".")[1].lower()
    )
    sizes = ", ".join(map(str, shape))
    source = model(f"({name}[{sizes}] x, {index}[7] i) => (y) {{ y = Gather<axis = {axis}>(x, i) }}")
    assert graph_of(source, "gather") == "onnx_torch::gather"
    x = (RNG.standard_normal(shape) * 9).astype(dtype)
    check_equal(source, [x, np.array([0, -1, 4, -5, 2, -2, 2], index)])


@pytest.mark.parametrize("index", [5, -6])
def test_gather_refuses_what_lies_outside(index: int):
    source = model("(float[5, 2] x, int64[3] i) => (y) { [pick] y = Gather(x, i) }")
    for optimize in (True, False):
        with pytest.raises(onnx_torch.RunError, match="index out of range") as raised:
            onnx_torch.prepare(source, optimize=optimize).run([floats(5, 2), np.array([0, index, 1])])
        assert raised.value.node_name == "pick"


def test_gather_takes_any_layout_and_number_of_indices():
    source = model(
        "(float[4, 5, 2] x, int64[6, 3] i) => (y) { z = Transpose(x)  k = Gather<axis = 1>(i, one) "
        "j = Squeeze(k, one)  y = Gather<axis = 1>(z, j) }",
        one=np.array([1]),
    )
    assert "onnx_torch::gather" in graph_of(source, "gather")
    check_equal(source, [floats(4, 5, 2), RNG.integers(-5, 5, (6, 3))])
    source = model("(float[5, 2] x, int64[n] i) => (y) { y = Gather(x, i) }")
    for count in (0, 1, 100_000):
        check_equal(source, [floats(5, 2), RNG.integers(-5, 5, count)])


def test_gather_leaves_another_size():
    """Indices that are wrapped by another number than the rows' count are left as they are."""
    source = model(
        "(float[5, 2] x, int64[3] i) => (y) "
        "{ n = Less(i, zero)  a = Add(i, four)  w = Where(n, a, i)  y = Gather(x, w) }",
        zero=np.int64(0),
        four=np.int64(4),
    )
    check_equal(source, [floats(5, 2), np.array([0, -1, 2])])


@pytest.mark.parametrize("index", ["int64", "int32"])
@pytest.mark.parametrize("axis", [0, 1, 2, -1])
@pytest.mark.parametrize("name", ["float", "double", "uint8", "bool", "bfloat16", "int64", "complex128"])
def test_gather_elements_counts_from_either_end(axis: int, name: str, index: str):
    dtype = DTYPES[name]
    source = model(f"({name}[A, B, C] x, {index}[D, E, F] i) => (y) {{ y = GatherElements<axis = {axis}>(x, i) }}")
    assert graph_of(source, "gather").splitlines()[-1] == "onnx_torch::gather_elements"
    prepared = onnx_torch.prepare(source)
    for sizes, counts in [
        ((5, 4, 3), (5, 4, 3)),
        ((5, 4, 3), (2, 3, 1)),
        ((9, 300, 50), (9, 300, 50)),
        ((2, 3, 5), (0, 3, 5)),
    ]:
        larger = [2 * n if d == axis % 3 else n for d, n in enumerate(counts)]
        x = (RNG.standard_normal(sizes) * 9).astype(dtype)
        size = sizes[axis]
        i = RNG.integers(-size, size, larger).astype(index)
        [y] = prepared.run([x, i])
        ranges = [slice(n if d != axis % 3 else None) for d, n in enumerate(counts)]
        expected = np.take_along_axis(x[tuple(ranges)], i.astype(np.int64), axis)
        assert y.dtype == expected.dtype
        assert y.shape == expected.shape
        assert y.tobytes() == expected.tobytes()


def test_gather_elements_takes_any_layout():
    source = model(
        "(float[4, 5] x, int64[4, 5] i) => (y) { z = Transpose(x) j = Transpose(i) y = GatherElements(z, j) }"
    )
    assert "onnx_torch::gather_elements" in graph_of(source, "gather")
    check_equal(source, [floats(4, 5), RNG.integers(-5, 5, (4, 5))])


@pytest.mark.parametrize("index", [5, -6])
def test_gather_elements_refuses_what_lies_outside(index: int):
    source = model("(float[5, 2] x, int64[3, 1] i) => (y) { [pick] y = GatherElements(x, i) }")
    for optimize in (True, False):
        with pytest.raises(onnx_torch.RunError, match="out of bounds for dimension 0 with size 5") as raised:
            onnx_torch.prepare(source, optimize=optimize).run([floats(5, 2), np.array([[0], [index], [1]])])
        assert raised.value.node_name == "pick"


def test_gather_elements_refuses_other_sizes():
    source = model("(float[5, 2] x, int64[A, B] i) => (y) { y = GatherElements(x, i) }")
    for optimize in (True, False):
        with pytest.raises(onnx_torch.RunError, match="GatherElements"):
            onnx_torch.prepare(source, optimize=optimize).run([floats(5, 2), np.zeros((3, 3), np.int64)])


def placed(x: np.ndarray, i: np.ndarray, updates: np.ndarray, axis: int) -> np.ndarray:
    """Places one element after another, in the order of the indices."""
    result = x.copy()
    for at in np.ndindex(*i.shape):
        to = list(at)
        to[axis] = i[at]
        result[tuple(to)] = updates[at]
    return result


@pytest.mark.parametrize("index", ["int64", "int32"])
@pytest.mark.parametrize("axis", [0, 1, 2, -1])
@pytest.mark.parametrize("name", ["float", "double", "uint8", "bool", "bfloat16", "int64", "complex128"])
def test_scatter_elements_counts_from_either_end(axis: int, name: str, index: str):
    dtype = DTYPES[name]
    source = model(
        f"({name}[A, B, C] x, {index}[D, E, F] i, {name}[D, E, F] u) => (y)"
        f" {{ y = ScatterElements<axis = {axis}>(x, i, u) }}"
    )
    assert graph_of(source, "gather").splitlines()[-1] == "onnx_torch::scatter_elements"
    prepared = onnx_torch.prepare(source)
    for sizes, counts in [((5, 4, 3), (5, 4, 3)), ((5, 4, 3), (2, 3, 1)), ((9, 30, 50), (9, 30, 50))]:
        x = (RNG.standard_normal(sizes) * 9).astype(dtype)
        size = sizes[axis]
        which = RNG.permuted(np.broadcast_to(np.arange(size), (*np.delete(counts, axis), size)), axis=-1)
        i = np.moveaxis(which[..., : counts[axis]], -1, axis)
        i = np.ascontiguousarray(np.where(RNG.random(i.shape) < 0.5, i, i - size)).astype(index)
        u = (RNG.standard_normal(counts) * 9).astype(dtype)
        before, expected = x.copy(), placed(x, i, u, axis % 3)
        for _ in range(4):
            [y] = prepared.run([x, i, u])
            assert y.dtype == expected.dtype
            assert y.tobytes() == expected.tobytes()
            assert x.tobytes() == before.tobytes()


def test_the_last_of_equal_indices_stays():
    """No text says so; onnxruntime and numpy do it."""
    source = model("(float[A, B] x, int64[A, B] i, float[A, B] u) => (y) { y = ScatterElements<axis = 0>(x, i, u) }")
    prepared = onnx_torch.prepare(source)
    for sizes in ((3, 5), (300, 500)):
        x, u, i = floats(*sizes), floats(*sizes), RNG.integers(-3, 3, sizes)
        for _ in range(4):
            [y] = prepared.run([x, i, u])
            assert np.array_equal(y, placed(x, i, u, 0))


def test_scatter_elements_takes_any_layout():
    source = model(
        "(float[4, 5] x, int64[4, 5] i, float[5, 4] u) => (y)"
        " { z = Transpose(x) j = Transpose(i) y = ScatterElements(z, j, u) }"
    )
    assert "onnx_torch::scatter_elements" in graph_of(source, "gather")
    places = np.stack([RNG.permutation(5) for _ in range(4)])
    check_equal(source, [floats(4, 5), places - 5 * (places % 2), floats(5, 4)])


def test_a_plan_scatters_elements():
    source = model("(float[5, 2] x, int64[5, 2] i, float[5, 2] u) => (y) { z = Neg(x) y = ScatterElements(z, i, u) }")
    prepared = onnx_torch.prepare(source)
    x, u = floats(5, 2), floats(5, 2)
    i = np.stack([RNG.permutation(5), RNG.permutation(5) - 5], 1)
    for _ in range(4):
        assert np.array_equal(prepared.run([x, i, u])[0], placed(-x, i, u, 0))
    assert "plan onnx_torch::scatter_elements" in prepared.plans()[0]
    for outside in (5, -6):
        wrong = i.copy()
        wrong[3, 1] = outside
        with pytest.raises(onnx_torch.RunError, match="out of bounds for dimension 0 with size 5"):
            prepared.run([x, wrong, u])
    assert np.array_equal(prepared.run([x, i, u])[0], placed(-x, i, u, 0))


@pytest.mark.parametrize("index", [5, -6])
def test_scatter_elements_refuses_what_lies_outside(index: int):
    source = model("(float[5, 2] x, int64[3, 1] i, float[3, 1] u) => (y) { [place] y = ScatterElements(x, i, u) }")
    for optimize in (True, False):
        prepared = onnx_torch.prepare(source, optimize=optimize)
        with pytest.raises(onnx_torch.RunError, match="out of bounds for dimension 0 with size 5") as raised:
            prepared.run([floats(5, 2), np.array([[0], [index], [1]]), floats(3, 1)])
        assert raised.value.node_name == "place"


def test_scatter_elements_refuses_other_sizes():
    source = model("(float[5, 2] x, int64[A, B] i, float[A, B] u) => (y) { y = ScatterElements(x, i, u) }")
    for optimize in (True, False):
        with pytest.raises(onnx_torch.RunError, match="ScatterElements"):
            onnx_torch.prepare(source, optimize=optimize).run([floats(5, 2), np.zeros((3, 3), np.int64), floats(3, 3)])


BOTH = (
    "(float[A, 4, B] x, int64[N, 3] i, int64[A, 3, B] k) => (y, z) "
    "{ y = Gather<axis = 1>(x, i) z = GatherElements<axis = 1>(x, k) }"
)
SCRIPTS = ["onnx_torch::index_select_from_either_end", "onnx_torch::gather_from_either_end"]
KERNELS = ["onnx_torch::gather", "onnx_torch::gather_elements"]


def calls(source: onnx.ModelProto, step: str, *names: str, **options: object) -> list[str]:
    return [call for call in graph_of(source, step, **options).splitlines() if call in names]


@pytest.mark.parametrize("device", ["CPU", "CUDA"])
def test_gathers_are_kept_until_the_pass(device: str):
    source = model(BOTH)
    with PretendedCuda():
        assert calls(source, "fold", *SCRIPTS, *KERNELS, device=device) == SCRIPTS
        assert calls(source, "gather", *SCRIPTS, *KERNELS, device=device) == KERNELS


def test_gathers_are_written_out_without_the_pass():
    source = model(BOTH)
    for options in ({"disabled_passes": ["gather"]}, {"optimize": False}):
        prepared = onnx_torch.prepare(source, **options)
        assert "from_either_end" not in prepared.graph()
        assert "onnx_torch::gather" not in prepared.graph()
        assert prepared.graph().count("aten::where") == 2
    inputs = [floats(2, 4, 3), RNG.integers(-4, 4, (5, 3)), RNG.integers(-4, 4, (2, 3, 3))]
    check_equal(source, inputs)
    check_equal(source, inputs, disabled_passes=["gather"])


def test_an_exported_gather_is_atens():
    assert "onnx_torch" not in onnx_torch.to_torchscript(model(BOTH)).code


@pytest.mark.parametrize(("axis", "call"), [(1, "aten::index_select"), (2, "onnx_torch::gather")])
@pytest.mark.parametrize("indices", [[0, -1, 2], [[0, -1], [2, 1]]])
def test_known_indices_are_counted_where_the_size_is_known(axis: int, call: str, indices: list):
    source = model(f"(float[A, 4, B] x) => (y) {{ y = Gather<axis = {axis}>(x, i) }}", i=np.array(indices))
    assert calls(source, "gather", "aten::index_select", "onnx_torch::gather") == [call]
    assert calls(source, "gather", "aten::lt", "aten::where") == []
    check_equal(source, [floats(2, 4, 3)])


def test_known_indices_of_elements():
    source = model(
        "(float[A, 4] x, float[A, 2] u) => (g, s) { g = GatherElements<axis = 1>(x, i) s = ScatterElements(x, k, u) }",
        i=np.array([[0, -1, 2], [-4, 3, 1]]),
        k=np.array([[1, -1], [0, 1]]),
    )
    kernels = ["onnx_torch::gather_elements", "onnx_torch::scatter_elements"]
    assert calls(source, "gather", *kernels, "aten::gather", "aten::scatter", "aten::where") == kernels
    check_equal(source, [floats(2, 4), floats(2, 2)])


def test_a_gather_of_constants_is_a_constant():
    """There are more indices than translating looks at."""
    source = model(
        "(float[5000, 2] x) => (y) { g = Gather(t, i) e = GatherElements(t, k) s = Add(g, e) y = Add(x, s) }",
        t=(7, 2),
        i=RNG.integers(-7, 7, 5000),
        k=RNG.integers(-7, 7, (5000, 2)),
    )
    assert calls(source, "constants", *KERNELS) == []
    check_equal(source, [floats(5000, 2)])


def test_rows_of_a_table_of_float16_are_widened():
    """What is computed of them is rounded once, at the end."""
    source = model("(int64[A, B] i) => (y) { g = Gather(t, i) e = Exp(g) y = Neg(e) }", t=np.float16(floats(50, 8)))
    assert calls(source, "halves", "aten::to", *KERNELS) == ["onnx_torch::gather", "aten::to", "aten::to"]
    i = RNG.integers(-50, 50, (3, 4))
    found, plain = (onnx_torch.prepare(source, optimize=optimize).run([i])[0] for optimize in (True, False))
    np.testing.assert_allclose(found.astype(np.float32), plain.astype(np.float32), rtol=2**-10)
