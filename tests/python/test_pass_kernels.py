"""The passes `kernels` and `expand`: scripts that one operator computes, and those that are written out."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest

import onnx_torch
from pass_models import DTYPES, check_equal, code, floats, graph_of, model
from random_numbers import RNG


@pytest.mark.parametrize("name", ["float", "double", "float16", "uint8"])
@pytest.mark.parametrize("mode", ["linear", "cubic"])
@pytest.mark.parametrize("attributes", ["", ", antialias = 1", ", coordinate_transformation_mode = 'asymmetric'"])
@pytest.mark.parametrize("size", ["fixed", "open"])
def test_resampling_gives_the_same_numbers(name: str, mode: str, attributes: str, size: str):
    cases = [
        ((2, 9, 7, 3), [1, 2, 0.6, 1]),
        ((5, 8), [1, 3]),
        ((40, 30), [0.3, 1.5]),
        ((2, 5, 4, 2), [1, 2, 0.5, 1.5]),
        ((3, 20, 2100), [1, 2.5, 1]),
    ]
    for sizes, scales in cases:
        dims = ", ".join(str(n) if size == "fixed" else f"D{i}" for i, n in enumerate(sizes))
        text = f"y = Resize<mode = '{mode}'{attributes}>(x, , s)".replace("'", '"')
        source = model(f"({name}[{dims}] x) => ({name} y) {{ {text} }}", s=np.array(scales, np.float32))
        prepared, plain = onnx_torch.prepare(source), onnx_torch.prepare(source, optimize=False)
        x = RNG.standard_normal(sizes) * 50
        if name != "uint8":
            x = np.where(RNG.random(sizes) < 0.05, RNG.choice([np.nan, np.inf, -0.0], sizes), x)
        x = np.abs(x).astype(DTYPES[name]) if name == "uint8" else x.astype(DTYPES[name])
        [y], [expected] = prepared.run([x]), plain.run([x])
        np.testing.assert_array_equal(y, expected, strict=True)
        if name != "uint8":
            np.testing.assert_array_equal(np.signbit(y[y == 0]), np.signbit(expected[y == 0]))


@pytest.mark.parametrize("dims", ["1, 6, 8, 3", "A, B, C, D"])
def test_resampling_is_one_step_for_each_axis(dims: str):
    source = model(
        f'(float[{dims}] x) => (float y) {{ y = Resize<mode = "linear">(x, , s) }}',
        s=np.array([1, 2, 3, 1], np.float32),
    )
    steps = graph_of(source, "kernels").splitlines()
    assert "onnx_torch::resample" in steps
    if dims.startswith("1"):
        assert steps.count("onnx_torch::resample") == 2
        assert "aten::index_select" not in steps
    check_equal(source, [floats(1, 6, 8, 3)])


PADS = {
    "last axes": [0, 0, 2, 1, 0, 0, 0, 3],
    "channels": [0, 2, 0, 0, 0, 1, 0, 0],
    "batch": [3, 0, 0, 0, 1, 0, 0, 0],
    "all axes": [1, 2, 3, 1, 2, 1, 0, 4],
    "more than there is": [0, 0, 11, 0, 0, 0, 0, 17],
    "cropped": [0, -1, 2, -2, 0, 1, -3, 0],
    "none": [0] * 8,
}


@pytest.mark.parametrize("pads", PADS)
@pytest.mark.parametrize("mode", ["reflect", "edge", "wrap"])
@pytest.mark.parametrize("name", ["float", "double", "uint8", "bool", "float16"])
@pytest.mark.parametrize("dims", ["2, 3, 5, 4", "A, B, C, D"])
def test_padding_gives_the_same_numbers(dims: str, name: str, mode: str, pads: str):
    source = model(f'({name}[{dims}] x) => ({name} y) {{ y = Pad<mode = "{mode}">(x, p) }}', p=np.array(PADS[pads]))
    prepared, plain = onnx_torch.prepare(source), onnx_torch.prepare(source, optimize=False)
    x = RNG.integers(0, 2 if name == "bool" else 100, (2, 3, 5, 4)).astype(DTYPES[name])
    ends = list(zip(PADS[pads][:4], PADS[pads][4:], strict=True))
    inside = x[tuple(slice(max(0, -begin), n + min(0, end)) for (begin, end), n in zip(ends, x.shape, strict=True))]
    expected = np.pad(inside, [(max(0, begin), max(0, end)) for begin, end in ends], mode)
    np.testing.assert_array_equal(plain.run([x])[0], expected, strict=True)
    for _ in range(3):
        np.testing.assert_array_equal(prepared.run([x])[0], expected, strict=True)


@pytest.mark.parametrize("mode", ["reflect", "edge", "wrap"])
def test_padding_between_convolutions(mode: str):
    """What lies channels-last stays so."""
    source = model(
        f"""(float[1, 3, 20, 20] x) => (float y) {{
            a = Conv(x, w)
            b = Pad<mode = "{mode}">(a, p)
            y = Conv(b, v)
        }}""",
        w=floats(16, 3, 3, 3),
        v=floats(8, 16, 3, 3),
        p=np.array([0, 0, 1, 1, 0, 0, 1, 1]),
    )
    assert "onnx_torch::pad" in graph_of(source, "kernels")
    check_equal(source, [floats(1, 3, 20, 20)])


def test_padding_is_one_step():
    source = model('(float[2, 3, 5, 4] x) => (float y) { y = Pad<mode = "edge">(x, p) }', p=np.array(PADS["all axes"]))
    steps = graph_of(source, "kernels").splitlines()
    assert steps.count("onnx_torch::pad") == 1
    assert not {"aten::cat", "onnx_torch::cat", "aten::index_select"} & set(steps)


@pytest.mark.parametrize("repeats", [[1, 1, 2], [3, 1, 1], [2, 3, 4], [1, 1, 1], [1, 0, 2]])
@pytest.mark.parametrize("name", ["float", "int64", "uint8"])
def test_repetitions_in_plans(name: str, repeats: list[int]):
    source = model(f"({name}[A, B, C] x) => ({name} y) {{ y = Tile(x, r) }}", r=np.array(repeats))
    rep = onnx_torch.prepare(source)
    for sizes in ((2, 3, 4), (1, 5, 1)):
        x = RNG.integers(0, 100, sizes).astype(DTYPES[name])
        for _ in range(4):
            np.testing.assert_array_equal(rep.run([x])[0], np.tile(x, repeats), strict=True)


def test_padding_that_the_script_refuses():
    source = model('(float[A, B] x) => (float y) { y = Pad<mode = "wrap">(x, p) }', p=np.array([0, 1, 0, 0]))
    with pytest.raises(onnx_torch.RunError, match="nothing to pad with"):
        onnx_torch.prepare(source).run([np.ones((2, 0), np.float32)])


def test_scripts_that_no_pass_takes_are_written_out():
    source = model(
        '(float[1, 6, 8, 3] x) => (float y) { y = Resize<mode = "linear">(x, , s) }',
        s=np.array([1, 2, 3, 1], np.float32),
    )
    graphs = onnx_torch.prepare(source, disabled_passes=["kernels"]).graphs()
    assert "onnx_torch::resampled" in graphs["translate"]
    assert "onnx_torch::resampled" not in graphs["expand"]
    assert "aten::index_select" in graphs["expand"]
    plain = onnx_torch.prepare(source, optimize=False)
    assert "onnx_torch::resampled" not in plain.graphs()["translate"]
    check_equal(source, [floats(1, 6, 8, 3)], disabled_passes=["kernels"])


def test_resampling_of_nothing_stays_an_error():
    source = model('(float[A, B] x) => (float y) { y = Resize<mode = "linear">(x, , , n) }', n=np.array([4, 4]))
    for optimize in (True, False):
        with pytest.raises(onnx_torch.RunError, match="Resize"):
            onnx_torch.prepare(source, optimize=optimize).run([floats(3, 0)])


def elements_to_rank(dtype: Any, sizes: tuple[int, ...]) -> Iterator[np.ndarray]:
    """Gives many equal elements; the whole range; for floats, those that are ordered in their own way."""
    yield RNG.integers(0, 4, sizes).astype(dtype)
    if np.issubdtype(dtype, np.integer):
        yield RNG.integers(np.iinfo(dtype).min, np.iinfo(dtype).max, sizes, dtype, endpoint=True)
        return
    special = RNG.choice([np.nan, -np.nan, np.inf, -np.inf, 0.0, -0.0], sizes)
    yield np.where(RNG.random(sizes) < 0.5, special, RNG.standard_normal(sizes)).astype(dtype)
    yield np.full(sizes, np.nan, dtype)


@pytest.mark.parametrize("name", [name for name in DTYPES if name not in ("bool", "complex128")])
@pytest.mark.parametrize("axis", [0, 1, -1])
@pytest.mark.parametrize("largest", [0, 1])
def test_the_k_largest_elements(name: str, axis: int, largest: int):
    source = model(
        f"({name}[A, B, C] x, int64[1] k) => ({name} y, int64 i) "
        f"{{ y, i = TopK<axis = {axis}, largest = {largest}>(x, k) }}"
    )
    source.opset_import[0].version = 24
    prepared, plain = onnx_torch.prepare(source), onnx_torch.prepare(source, optimize=False)
    assert "onnx_torch::top_k" in code(prepared.graphs()["rows"])
    assert not {"aten::topk", "aten::sort"} & set(code(prepared.graphs()["rows"]).splitlines())
    for sizes in [(3, 5, 7), (2, 300, 30), (40, 1, 200), (1, 1, 1), (2, 0, 3)]:
        size = sizes[axis]
        for x in elements_to_rank(DTYPES[name], sizes):
            for k in sorted({0, min(size, 1), min(size, 10), min(size, 40), size}):
                [y, i], [expected_y, expected_i] = (run.run([x, np.array([k])]) for run in (prepared, plain))
                np.testing.assert_array_equal(i, expected_i, strict=True)
                assert y.dtype == expected_y.dtype
                assert y.shape == expected_y.shape
                assert y.tobytes() == np.take_along_axis(x, i, axis).tobytes()
    for run in (prepared, plain):
        with pytest.raises(onnx_torch.RunError, match="TopK"):
            run.run([np.zeros((2, 2, 2), DTYPES[name]), np.array([3])])


@pytest.mark.parametrize("threads", [1, 2])
def test_the_k_largest_elements_of_long_rows(threads: int):
    """A row is shared out among the threads; none of the ways in which its elements can lie makes a difference."""
    source = model("(float[N] x, int64[1] k) => (float y, int64 i) { y, i = TopK(x, k) }")
    prepared = onnx_torch.prepare(source, threads=threads)
    few = RNG.integers(0, 9, 150_000).astype(np.float32)
    for x in (few, np.sort(few), -np.sort(few), floats(150_000), np.sort(floats(150_000))):
        order = np.argsort(-x, kind="stable")
        for k in (1, 10, 1000, 100_000):
            y, i = prepared.run([x, np.array([k])])
            np.testing.assert_array_equal(i, order[:k])
            np.testing.assert_array_equal(y, x[order[:k]])
