"""Passes: what each makes of a graph, that results stay what they were, and how they are chosen."""

from __future__ import annotations

import dataclasses
import itertools
import math
import re
from collections.abc import Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np
import onnx
import pytest
import torch
from onnx import numpy_helper, parser
from scipy.special import erf

import onnx_torch
from models import allocations, on_each_cpu, run_apart, run_on_cpu
from official import SUBSTITUTES, Case, check, node_cases
from onnx_torch import _C

RNG = np.random.default_rng(0)
DTYPES = {
    "bool": np.bool_,
    "float": np.float32,
    "double": np.float64,
    "float16": np.float16,
    "bfloat16": ml_dtypes.bfloat16,
    "int8": np.int8,
    "uint8": np.uint8,
    "int16": np.int16,
    "uint16": np.uint16,
    "int32": np.int32,
    "uint32": np.uint32,
    "int64": np.int64,
    "uint64": np.uint64,
    "complex128": np.complex128,
}


def model(text: str, **weights: Any) -> onnx.ModelProto:
    """A model of opset 23 in ONNX's own notation, with weights of these shapes or values."""
    parsed = parser.parse_model(f'<ir_version: 10, opset_import: ["": 23]> net {text}')
    for name, value in weights.items():
        array = RNG.standard_normal(value, np.float32) if isinstance(value, tuple) else np.asarray(value)
        parsed.graph.initializer.append(numpy_helper.from_array(array, name))
    return parsed


def used_in(body: str, weights: dict[str, Any]) -> dict[str, Any]:
    """Those of the weights that a graph's text names."""
    return {name: value for name, value in weights.items() if re.search(rf"\b{name}\b", body)}


def code(graph: str) -> str:
    """A graph's calls, one a line, without types, names of values and comments."""
    return "\n".join(re.findall(r"= ((?:aten|onnx_torch|prim::(?!Constant|ListConstruct))\S*?)\(", graph))


def check_each(source: onnx.ModelProto, feeds: Iterable[Sequence[np.ndarray]], **options: Any) -> None:
    optimized = onnx_torch.prepare(source, **options)
    plain = onnx_torch.prepare(source, optimize=False, **options)
    for inputs in feeds:
        for ours, expected in zip(optimized.run(inputs), plain.run(inputs), strict=True):
            np.testing.assert_allclose(ours, expected, rtol=1e-4, atol=1e-4)
            assert ours.dtype == expected.dtype


def check_equal(source: onnx.ModelProto, inputs: Sequence[np.ndarray], **options: Any) -> None:
    check_each(source, [inputs], **options)


def check_gelu_of_product(source: onnx.ModelProto, inputs: Sequence[np.ndarray], weight: str, bias: str = "") -> None:
    """Against the formula, as ATen gives NaN for the Gelu of infinity, where the specification's is infinity."""
    values = {w.name: numpy_helper.to_array(w).astype(np.float64) for w in source.graph.initializer}
    with np.errstate(invalid="ignore"):
        g = inputs[0].astype(np.float64) @ values[weight] + values.get(bias, 0)
        expected = g * (1 + erf(g / np.sqrt(2))) / 2
    (found,) = onnx_torch.prepare(source).run(inputs)
    np.testing.assert_allclose(found, expected, rtol=1e-4, atol=1e-4)


def graph_of(source: onnx.ModelProto, step: str, **options: Any) -> str:
    return code(onnx_torch.prepare(source, **options).graphs()[step])


def floats(*shape: int) -> np.ndarray:
    return RNG.standard_normal(shape, np.float32)


# --- resampling -------------------------------------------------------------------------------------------------------


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


# --- fold -------------------------------------------------------------------------------------------------------------


def test_fold_decides_loops_over_dimensions():
    source = model("(float[1, 8, 5, 5] x) => (float[1, 8, 1, 1] y) { y = GlobalAveragePool(x) }")
    graphs = onnx_torch.prepare(source).graphs()
    assert "prim::Loop" in graphs["place"]
    assert code(graphs["fold"]) == "aten::mean"
    check_equal(source, [floats(1, 8, 5, 5)])


def test_equal_constants_are_one_node():
    nodes = "".join(f"a{i + 1} = Gelu(a{i}) b{i} = Add(a{i + 1}, x)" for i in range(8))
    source = model(f"(float[n] a0, float[n] x) => (float[n] b7) {{ {nodes} }}")
    text = onnx_torch.prepare(source, optimize=False).graphs()["translate"]
    constants = re.findall(r": (\S+ = prim::Constant\S*)\(", text)
    assert constants and len(constants) == len(set(constants))


def test_fold_computes_nothing_twice_but_what_is_random():
    source = model("(float[3] x) => (float[3] y) { a = Exp(x) b = Exp(x) y = Add(a, b) }")
    assert graph_of(source, "fold") == "aten::exp\naten::add"
    check_equal(source, [floats(3)])
    source = model("() => (float[9] a, float[9] b) { a = RandomNormal<shape = [9]>() b = RandomNormal<shape = [9]>() }")
    a, b = onnx_torch.prepare(source).run([])
    assert not np.array_equal(a, b)


# --- constants --------------------------------------------------------------------------------------------------------


def test_constants_computes_once_what_depends_on_weights_alone():
    """Of weights that are too large to be computed with while translating."""
    source = model("(float[80, 90] x) => (float[80, 90] y) { e = Exp(w) t = Transpose(e) y = Mul(x, t) }", w=(90, 80))
    assert graph_of(source, "gather", disabled_passes=["constants"]) == "aten::exp\naten::permute\naten::mul"
    assert graph_of(source, "constants") == "aten::mul"
    check_equal(source, [floats(80, 90)])


def test_constants_reaches_into_branches_and_loops():
    source = model(
        """(float[80, 90] x, bool c) => (float[80, 90] y, float[80, 90] z) {
        y = If(c) <then_branch = t () => (float[80, 90] p) { d = Transpose(w) p = Mul(x, d) },
                   else_branch = e () => (float[80, 90] q) { f = Transpose(w) q = Sub(x, f) }>
        z = Loop(three, , x) <body = b (int64 i, bool go, float[80, 90] u) => (bool on, float[80, 90] v) {
            on = Identity(go) g = Transpose(w) v = Add(u, g) }> }""",
        w=(90, 80),
        three=np.array(3),
    )
    assert "permute" in graph_of(source, "gather", disabled_passes=["constants"])
    assert "permute" not in graph_of(source, "constants")
    for condition in (True, False):
        check_equal(source, [floats(80, 90), np.array(condition)])


def test_constants_leaves_what_would_be_much_larger_than_its_weights():
    source = model(
        "(float[80, 90] x) => (float[80, 90] y) { e = Expand(w, sizes) m = ReduceMax(e, axes) y = Mul(x, m) }",
        w=(80, 90),
        sizes=np.array([300, 80, 90]),
        axes=np.array([0]),
    )
    assert "aten::expand" in graph_of(source, "constants")
    check_equal(source, [floats(80, 90)])


# --- gather -----------------------------------------------------------------------------------------------------------


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
    """Indices that are wrapped by another number than the rows' count."""
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


# --- layout -----------------------------------------------------------------------------------------------------------

LAYOUTS: dict[str, tuple[str, str]] = {
    "transposes that cancel": ("a = Transpose<perm = [0, 2, 1]>(x)  y = Transpose<perm = [0, 2, 1]>(a)", ""),
    "transposes in one": (
        "a = Transpose<perm = [1, 2, 0]>(x)  b = Transpose<perm = [0, 2, 1]>(a)  y = Relu(b)",
        "aten::relu\naten::permute",
    ),
    "reshapes in one": ("a = Reshape(x, s24)  b = Reshape(a, s6_4)  y = Relu(b)", "aten::relu\naten::reshape"),
    "reshapes that cancel": ("a = Flatten<axis = 2>(x)  b = Unsqueeze(a, zero)  y = Reshape(b, s2_3_4)", ""),
    "a transpose of dimensions of one": (
        "a = Unsqueeze(x, zero)  b = Transpose<perm = [1, 0, 2, 3]>(a)  y = Squeeze(b, one)",
        "",
    ),
    "a transpose between reshapes": (
        "a = Unsqueeze(x, zero)  b = Reshape(a, s6_4)  c = Transpose(b)  y = Reshape(c, s4_2_3)",
        "aten::permute",
    ),
    "parts of a dimension": (
        "a = Reshape(x, s2_3_2_2)  b = Transpose<perm = [0, 2, 1, 3]>(a)  y = Reshape(b, s4_6)",
        "aten::reshape\naten::permute\naten::reshape",
    ),
    "around what is element by element": (
        "a = Transpose<perm = [0, 2, 1]>(x)  b = Sigmoid(a)  c = Mul(b, two)  d = Add(c, each)  "
        "y = Transpose<perm = [0, 2, 1]>(d)",
        "aten::sigmoid\naten::mul\naten::add",
    ),
    "of both operands": (
        "e = Exp(x)  a = Transpose<perm = [2, 0, 1]>(x)  b = Transpose<perm = [2, 0, 1]>(e)  c = Sub(a, b)  "
        "y = Transpose<perm = [1, 2, 0]>(c)",
        "aten::exp\naten::sub",
    ),
    "of one operand": (
        "a = Transpose<perm = [0, 2, 1]>(x)  c = Add(a, full)  y = Transpose<perm = [0, 2, 1]>(c)",
        "aten::permute\naten::add\naten::permute",
    ),
    "of operands in different ways": (
        "a = Reshape(x, s24)  b = Transpose(x)  c = Reshape(b, s24)  y = Add(a, c)",
        "aten::reshape\naten::permute\naten::reshape\naten::add",
    ),
    "used by others": (
        "a = Transpose<perm = [2, 1, 0]>(x)  b = Relu(a)  y = Concat<axis = 0>(a, b)",
        "aten::permute\naten::relu\naten::cat",
    ),
    "rows of a product": (
        "a = Reshape(x, s6_4)  b = Gemm(a, w, bias)  c = Reshape(b, s2_3_5)  y = Tanh(c)",
        "aten::t\naten::linear\naten::tanh",
    ),
    "the dimensions that products take in the end": (
        "a = Transpose<perm = [1, 0, 2]>(x)  b = Reshape(a, s6_4)  c = MatMul(b, w)  d = Reshape(c, s3_2_5)  "
        "y = Add(d, other)",
        "aten::permute\naten::matmul\naten::add",
    ),
    "an expansion to the same sizes": ("a = Expand(x, s2_3_4)  y = Relu(a)", "aten::relu"),
}


def layout_model(body: str, dims: str = "2, 3, 4") -> onnx.ModelProto:
    shapes = {
        f"s{'_'.join(map(str, sizes))}": np.array(sizes)
        for sizes in [(24,), (6, 4), (4, 6), (2, 3, 4), (4, 2, 3), (2, 3, 2, 2), (2, 3, 5), (3, 2, 5)]
    }
    weights = {"zero": np.array([0]), "one": np.array([1]), "two": np.float32(2), "w": floats(4, 5), "bias": floats(5)}
    weights |= {"each": floats(4, 1), "full": floats(2, 4, 3), "other": floats(3, 2, 5)}
    return model(f"(float[{dims}] x) => (float y) {{ {body} }}", **used_in(body, shapes | weights))


@pytest.mark.parametrize("name", LAYOUTS)
def test_layout(name: str):
    body, expected = LAYOUTS[name]
    source = layout_model(body)
    assert graph_of(source, "layout") == expected
    x = floats(2, 3, 4)
    check_equal(source, [x])
    x[1, 0, 2:] = np.nan, np.inf
    check_equal(source, [x])


@pytest.mark.parametrize("seed", range(40))
def test_layout_of_random_views(seed: int):
    """Reshapes and transposes in turn."""
    rng = np.random.default_rng(seed)
    dims = [[2], [3], [2, 2], [], [2, 3]]  # each size as a product
    sizes = [math.prod(dim) for dim in dims]
    steps: list[str] = []
    shapes: dict[str, np.ndarray] = {}
    last = "x"
    for i in range(int(rng.integers(2, 7))):
        if rng.random() < 0.5:
            order = [int(dim) for dim in rng.permutation(len(dims))]
            dims = [dims[dim] for dim in order]
            steps.append(f"v{i} = Transpose<perm = {order}>({last})")
        else:
            atoms = [atom for dim in dims for atom in dim]
            cuts = sorted(int(cut) for cut in rng.integers(0, len(atoms) + 1, 3))
            dims = [atoms[begin:end] for begin, end in itertools.pairwise([0, *cuts, len(atoms)])]
            shapes[f"s{i}"] = np.array([math.prod(dim) for dim in dims])
            steps.append(f"v{i} = Reshape({last}, s{i})")
        last = f"v{i}"
        if rng.random() < 0.3:
            steps.append(f"e{i} = Relu({last})")
            last = f"e{i}"
    body = "  ".join([*steps, f"y = Neg({last})"])
    source = model(f"(float[{', '.join(map(str, sizes))}] x) => (float y) {{ {body} }}", **shapes)
    views = re.compile("reshape|permute")
    assert len(views.findall(graph_of(source, "layout"))) <= min(3, len(views.findall(graph_of(source, "gather"))))
    check_equal(source, [floats(*sizes)])


@pytest.mark.parametrize("sizes", [(2, 3, 4), (2, 1, 4), (2, 0, 4)])
def test_layout_of_sizes_that_come_with_the_run(sizes: tuple[int, ...]):
    heads = (
        "a = Reshape(x, s)  b = Transpose<perm = [0, 2, 1, 3]>(a)  c = Reshape(b, merged)  "
        "d = Transpose<perm = [0, 2, 1]>(c)  y = Reshape(d, apart)"
    )
    weights = {"s": np.array([2, -1, 2, 2]), "merged": np.array([4, -1, 2]), "apart": np.array([2, 2, 2, -1])}
    source = model(f"(float[2, N, 4] x) => (float y) {{ {heads} }}", **weights)
    if sizes[1] > 0:
        check_equal(source, [floats(*sizes)])
    assert graph_of(source, "layout").count("aten::permute") == 1
    source = layout_model(
        "a = Transpose<perm = [0, 2, 1]>(x)  b = Relu(a)  y = Transpose<perm = [0, 2, 1]>(b)", "M, N, 4"
    )
    assert graph_of(source, "layout") == "aten::relu"
    check_equal(source, [floats(*sizes)])
    flat = (
        "a = Reshape(x, rows)  b = Gemm(a, w, bias)  c = Shape<start = 0, end = 2>(x)  d = Concat<axis = 0>(c, five)  "
    )
    source = model(
        f"(float[1, N, 4] x) => (float y) {{ {flat} y = Reshape(b, d) }}",
        rows=np.array([-1, 4]),
        w=(4, 5),
        bias=(5,),
        five=np.array([5]),
    )
    if sizes[1] > 0:
        check_equal(source, [floats(1, *sizes[1:])])


def test_layout_broadcasts_as_before():
    """Sizes that are open may be 1 in one operand."""
    source = model(
        "(float[M, 4] a, float[N, 4] b) => (float y) "
        "{ c = Transpose<perm = [1, 0]>(a)  d = Transpose<perm = [1, 0]>(b)  e = Add(c, d)  "
        "y = Transpose<perm = [1, 0]>(e) }"
    )
    assert graph_of(source, "layout") == "aten::add"
    check_equal(source, [floats(1, 4), floats(3, 4)])
    check_equal(source, [floats(3, 4), floats(3, 4)])
    source = model(
        "(float[M, 4] a, float[N, 4] b) => (float y) "
        "{ c = Reshape(a, flat)  d = Reshape(b, flat)  e = Add(c, d)  y = Reshape(e, rows) }",
        flat=np.array([-1]),
        rows=np.array([-1, 4]),
    )
    check_equal(source, [floats(3, 4), floats(3, 4)])
    for options in [{}, {"optimize": False}]:
        with pytest.raises(onnx_torch.RunError, match="Add"):
            onnx_torch.prepare(source, **options).run([floats(2, 4), floats(3, 4)])


@pytest.mark.parametrize("layers", [1, 6])
def test_rows_are_arranged_without_the_nodes_that_go(layers: int, tmp_path: Path):
    """The C library gives freed memory no second use here soon, and overwrites it."""
    step = (
        "a{0} = Transpose<perm = [1, 0, 2]>(y{1}) b{0} = Reshape(a{0}, rows) c{0} = Gemm(b{0}, w, v) "
        "d{0} = Reshape(c{0}, one) e{0} = Transpose<perm = [1, 0, 2]>(d{0}) y{0} = Reshape(e{0}, heads) "
    )
    steps = "".join(step.format(i + 1, i) for i in range(layers))
    source = model(
        f"(float[3, 7, 4] y0) => (float[3, 7, 4] y{layers}) {{ {steps} }}",
        rows=np.array([7, 12]),
        one=np.array([7, 1, 12]),
        heads=np.array([3, 7, 4]),
        w=floats(12, 12) / 4,
        v=(12,),
    )
    x = floats(3, 7, 4)
    (expected,) = onnx_torch.prepare(source, optimize=False).run([x])
    memory = {"GLIBC_TUNABLES": "glibc.malloc.tcache_count=0", "MALLOC_PERTURB_": "255"}
    (y,) = run_apart(source, [x], tmp_path, **memory)
    np.testing.assert_allclose(y, expected, rtol=1e-5, atol=1e-5)


def test_a_factor_stays_beside_its_product():
    source = model(
        "(float[2, 3, 4, 5] q, float[2, 3, 4, 5] k, float[2, 3, 4, 5] v) => (float y) "
        "{ a = Transpose<perm = [0, 2, 1, 3]>(q)  b = Mul(a, half)  c = Transpose<perm = [0, 2, 3, 1]>(k)  "
        "s = MatMul(b, c)  w = Softmax(s)  u = Transpose<perm = [0, 2, 1, 3]>(v)  y = MatMul(w, u) }",
        half=np.float32(0.5),
    )
    assert graph_of(source, "attention").splitlines().count("onnx_torch::attention") == 1
    assert "aten::mul" not in graph_of(source, "attention")
    check_equal(source, [floats(2, 3, 4, 5) for _ in range(3)])


# --- scales -----------------------------------------------------------------------------------------------------------

SCALES: dict[str, tuple[str, str]] = {
    "batch normalization": (
        "c = Conv(x, w, b)  y = BatchNormalization(c, scale, shift, mean, variance)",
        "aten::convolution",
    ),
    "no bias": (
        "c = Conv(x, w)  d = BatchNormalization(c, scale, shift, mean, variance)  y = Relu(d)",
        "aten::convolution\naten::relu",
    ),
    "groups": (
        "c = Conv<group = 2>(x, w2)  y = BatchNormalization(c, scale, shift, mean, variance)",
        "aten::convolution",
    ),
    "transposed": (
        "c = ConvTranspose(x, t, b)  y = BatchNormalization(c, scale, shift, mean, variance)",
        "aten::convolution",
    ),
    "transposed groups": (
        "c = ConvTranspose<group = 2>(x, t2)  y = BatchNormalization(c, scale, shift, mean, variance)",
        "aten::convolution",
    ),
    "factor and addend": ("c = Conv(x, w)  d = Mul(each, c)  e = Sub(d, each)  y = Div(e, two)", "aten::convolution"),
    "addend less result": ("c = Conv(x, w)  y = Sub(each, c)", "aten::convolution"),
    "of another dimension": ("c = Conv(x, w)  y = Mul(c, along)", "aten::convolution\naten::mul"),
    "that makes more dimensions": ("c = Conv(x, w)  y = Mul(c, more)", "aten::convolution\naten::mul"),
    "used by others": ("c = Conv(x, w)  d = Mul(c, each)  y = Add(c, d)", "aten::convolution\naten::mul\naten::add"),
    "product": ("f = Flatten(x)  c = MatMul(f, m)  d = Add(c, row)  y = Mul(d, row)", "aten::reshape\naten::linear"),
    "product by a number": ("f = Flatten(x)  c = MatMul(f, m)  y = Mul(c, two)", "aten::reshape\naten::linear"),
    "product and a bias": (
        "f = Flatten(x)  c = MatMul(f, m)  y = Add(c, row)",
        "aten::reshape\naten::matmul\naten::add",
    ),
    "Gemm": (
        "f = Flatten(x)  c = Gemm(f, m, row)  y = BatchNormalization(c, scale, shift, mean, variance)",
        "aten::reshape\naten::linear",
    ),
    "alone": (
        "r = Relu(x)  y = BatchNormalization(r, scale3, scale3, scale3, scale3)",
        "aten::relu\naten::mul\naten::add",
    ),
}


def scale_model(body: str) -> onnx.ModelProto:
    weights = {
        "w": floats(8, 4, 3, 3), "w2": floats(8, 2, 3, 3), "t": floats(4, 8, 3, 3), "t2": floats(4, 4, 3, 3),
        "b": floats(8),
        "scale": floats(8), "shift": floats(8), "mean": floats(8), "variance": np.abs(floats(8)),
        "scale3": np.abs(floats(4)), "each": floats(8, 1, 1), "along": floats(1, 1, 5), "more": floats(1, 1, 8, 1, 1),
        "two": np.float32(2), "m": floats(4 * 49, 8), "row": floats(8),
    }  # fmt: skip
    return model(f"(float[2, 4, 7, 7] x) => (float y) {{ {body} }}", **used_in(body, weights))


@pytest.mark.parametrize("name", SCALES)
def test_scales(name: str):
    body, expected = SCALES[name]
    source = scale_model(body)
    assert graph_of(source, "scales") == expected
    x = floats(2, 4, 7, 7)
    check_equal(source, [x])
    x[1, 2, 3, 3:5] = np.nan, np.inf
    check_equal(source, [x])


def test_scales_leave_a_division_by_the_result():
    """Divisors are compared: they are sums, some of them near zero, and a quotient is no more exact than its own."""
    source = scale_model("c = Conv(x, w)  y = Div(each, c)")
    assert graph_of(source, "scales") == "aten::convolution\naten::div"
    x = floats(2, 4, 7, 7)
    for _ in range(2):
        ours, plain = (onnx_torch.prepare(source, optimize=flag).run([x])[0] for flag in (True, False))
        np.testing.assert_allclose(1 / ours, 1 / plain, rtol=1e-4, atol=1e-4)
        x[1, 2, 3, 3:5] = np.nan, np.inf


def test_scales_of_sizes_that_come_with_the_run():
    source = model(
        "(float[N, 4, H, W] x) => (float y) { c = Conv(x, w)  y = BatchNormalization(c, s, s, s, s) }",
        w=(8, 4, 3, 3),
        s=np.abs(floats(8)),
    )
    assert graph_of(source, "scales") == "aten::convolution"
    for sizes in [(1, 4, 5, 5), (0, 4, 5, 5), (2, 4, 3, 9)]:
        check_equal(source, [floats(*sizes)])


@pytest.mark.parametrize("factor", [np.inf, np.nan, 3e38])
def test_scales_that_overflow_stay(factor: float):
    source = scale_model("c = Conv(x, w)  y = Mul(c, two)")
    weight = source.graph.initializer[1]
    weight.CopyFrom(numpy_helper.from_array(np.float32(factor), weight.name))
    assert graph_of(source, "scales") == "aten::convolution\naten::mul"
    check_equal(source, [floats(2, 4, 7, 7)])


def test_scales_in_training_and_of_other_types_stay():
    source = scale_model("c = Conv(x, w)  y = BatchNormalization<training_mode = 1>(c, scale, shift, mean, variance)")
    assert "aten::batch_norm" in graph_of(source, "scales") or "batch_norm" in onnx_torch.prepare(source).graph()
    check_equal(source, [floats(2, 4, 7, 7)])
    source = scale_model("c = Conv(x, w)  d = Cast<to = 11>(c)  e = Mul(d, wide)  y = Cast<to = 1>(e)")
    source.graph.initializer.append(numpy_helper.from_array(floats(8, 1, 1).astype(np.float64), "wide"))
    assert "aten::mul" in graph_of(source, "scales").splitlines()
    check_equal(source, [floats(2, 4, 7, 7)])


# --- pack -------------------------------------------------------------------------------------------------------------

CONVOLUTIONS = {
    "bias": ("(float[2, 6, 9, 9] x) => (float[N, C, H, W] y) { y = Conv(x, w, b) }", {"w": (8, 6, 3, 3), "b": (8,)}),
    "strides": (
        "(float[2, 6, 9, 9] x) => (float[N, C, H, W] y) { y = Conv<strides = [2, 1], pads = [1, 1, 1, 1]>(x, w) }",
        {"w": (8, 6, 3, 3)},
    ),
    "uneven padding": (
        "(float[2, 6, 9, 9] x) => (float[N, C, H, W] y) { y = Conv<pads = [0, 1, 2, 1]>(x, w) }",
        {"w": (8, 6, 3, 3)},
    ),
    "dilations and groups": (
        "(float[2, 6, 9, 9] x) => (float[N, C, H, W] y) { y = Conv<dilations = [2, 3], group = 3>(x, w) }",
        {"w": (9, 2, 3, 3)},
    ),
    "depthwise": (
        "(float[2, 16, 9, 9] x) => (float[N, C, H, W] y) { y = Conv<group = 16>(x, w) }",
        {"w": (16, 1, 3, 3)},
    ),
    "depthwise, many columns": (
        "(float[2, 16, 20, 20] x) => (float[N, C, H, W] y) "
        "{ c = Conv<group = 16, pads = [1, 1, 1, 1]>(x, w, b) y = Relu(c) }",
        {"w": (16, 1, 3, 3), "b": (16,)},
    ),
    "depthwise, strides": (
        "(float[2, 24, 20, 20] x) => (float[N, C, H, W] y) "
        "{ y = Conv<group = 24, pads = [2, 2, 2, 2], strides = [2, 2]>(x, w) }",
        {"w": (24, 1, 5, 5)},
    ),
    "one dimension": ("(float[2, 6, 40] x) => (float[N, C, L] y) { y = Conv(x, w) }", {"w": (8, 6, 5)}),
    "one dimension, columns 4 KiB apart": (
        "(float[2, 512, 81] x) => (float[N, C, L] y) { c = Conv<strides = [2], pads = [1, 1]>(x, w, b) y = Gelu(c) }",
        {"w": (20, 512, 3), "b": (20,)},
    ),
    "one dimension, columns 4 KiB apart, two taps": (
        "(float[1, 1024, 40] x) => (float[N, C, L] y) { y = Conv(x, w) }",
        {"w": (16, 1024, 2)},
    ),
    "three dimensions": (
        "(float[2, 3, 5, 6, 7] x) => (float[N, C, D, H, W] y) { y = Conv(x, w) }",
        {"w": (4, 3, 2, 2, 2)},
    ),
    "sizes open": ("(float[N, 6, H, W] x) => (float[N, C, H2, W2] y) { y = Conv(x, w) }", {"w": (8, 6, 3, 3)}),
}


@pytest.mark.parametrize("name", CONVOLUTIONS)
def test_pack_convolutions(name: str):
    text, weights = CONVOLUTIONS[name]
    source = model(text, **weights)
    assert graph_of(source, "pack").splitlines().count("onnx_torch::packed") == 1
    assert "aten::convolution" not in graph_of(source, "pack")
    sizes = [dim.dim_value or 9 for dim in source.graph.input[0].type.tensor_type.shape.dim]
    check_equal(source, [floats(*sizes)])


# Below AVX-512 oneDNN's Gelu loses the sign of zeros, or takes longer than a chain.
TAKES_GELU = _C.cpu_features()["vectors"] == "AVX512"


@pytest.mark.parametrize(
    "activation",
    [
        "Relu(c)",
        "LeakyRelu<alpha = 0.3>(c)",
        "LeakyRelu<alpha = 0.0>(c)",
        "Sigmoid(c)",
        "Tanh(c)",
        "Gelu(c)",
        'Gelu<approximate = "tanh">(c)',
    ]
    + ["HardSwish(c)", "HardSigmoid<alpha = 0.16666667>(c)", "Clip(c, low, high)", "Clip(c, low)"],
)
@pytest.mark.parametrize("main", ["Conv(x, w)", "MatMul(x, m)"])
def test_pack_activations(main: str, activation: str):
    text = f"(float[2, 6, 8, 8] x) => (float[N, C, H, W] y) {{ c = {main} y = {activation} }}"
    source = model(text, w=(8, 6, 1, 1), m=(8, 5), low=np.float32(-0.2), high=np.float32(0.4))
    stays = activation.startswith("Gelu") and not TAKES_GELU
    assert graph_of(source, "pack") == "onnx_torch::packed" + "\naten::gelu" * stays
    x = 10 * floats(2, 6, 8, 8)
    check_equal(source, [x])
    x[0, 1, 2:6, 3] = np.nan, np.inf, -np.inf, 1e37
    x[1, 1, 2:6, 3] = 0.0, -0.0, 1e-40, -1e37
    if (main, activation) == ("MatMul(x, m)", "Gelu(c)") and not stays:
        check_gelu_of_product(source, [x], "m")
    else:
        check_equal(source, [x])


def test_pack_takes_no_linear_for_an_activation():
    source = parser.parse_model(
        '<ir_version: 10, opset_import: ["": 23, "ai.onnx.ml": 5]> net (float[4, 6] x) => (float[4, 2] y) '
        "{ c = MatMul(x, w) "
        "y = ai.onnx.ml.LinearRegressor<coefficients = [1.0, 2.0, 3.0, 4.0, 5.0, 6.0], targets = 2>(c) }"
    )
    source.graph.initializer.append(numpy_helper.from_array(floats(6, 3), "w"))
    assert graph_of(source, "pack").splitlines()[0] == "onnx_torch::packed"
    check_equal(source, [floats(4, 6)])


def test_pack_takes_up_bias_activation_and_residual():
    source = model(
        "(float[2, 6, 8, 8] x, float[2, 8, 8, 8] r) => (float[2, 8, 8, 8] y) "
        "{ c = Conv(x, w) s = Add(r, c) y = Relu(s) }",
        w=(8, 6, 1, 1),
    )
    assert graph_of(source, "pack") == "onnx_torch::packed"
    check_equal(source, [floats(2, 6, 8, 8), floats(2, 8, 8, 8)])
    source = model(
        "(float[4, 6] x, float[4, 5] r) => (float[4, 5] y) "
        "{ c = MatMul(x, w) d = Add(c, b) g = Tanh(d) y = Mul(g, r) }",
        w=(6, 5),
        b=(5,),
    )
    assert graph_of(source, "pack") == "onnx_torch::packed"
    check_equal(source, [floats(4, 6), floats(4, 5)])


def residual_model(body: str, outputs: str = "float y", inputs: str = "") -> onnx.ModelProto:
    text = f"(float[N, 6, H, W] x{inputs}) => ({outputs}) {{ a = Conv(x, w) b = Relu(a) {body} }}"
    return model(text, w=(6, 6, 1, 1), v=(6, 6, 1, 1))


# Besides, the input is laid channels-last, and the result as it was.
@pytest.mark.parametrize(
    ("body", "results"),
    [
        ("c = Conv(b, w) d = Conv(c, w) e = Add(d, b) y = Relu(e)", "b c"),
        (
            "c = Conv(b, w) d = Conv(c, w) e = Add(b, d) f = Relu(e) g = Conv(f, w) h = Conv(g, v) y = Add(f, h)",
            "b c g",
        ),
        ("c = Conv(x, v) d = Conv(b, v) e = Add(d, c) f = Relu(e) y = Mul(f, b)", "b c y x"),  # x a second time
    ],
)
def test_residual_sums_take_the_memory_of_what_is_added(body: str, results: str):
    source = residual_model(body)
    x, small = floats(2, 6, 9, 7), floats(1, 6, 3, 3)
    assert allocations(source, [x]) == len(results.split()) + 2
    check_equal(source, [x])
    rep = onnx_torch.prepare(source)
    results = [rep.run([x])[0], rep.run([small])[0]]
    assert np.array_equal(rep.run([x])[0], results[0])
    assert np.array_equal(rep.run([small])[0], results[1])
    x[1, 2, 3, 4] = np.nan
    x[0, 1, 2:4, 3] = np.inf, 1e38
    check_equal(source, [x])


@pytest.mark.parametrize(
    ("body", "outputs"),
    [
        ("c = Conv(b, w) y = Add(c, b)", "float y"),  # the product itself reads it
        ("c = Conv(b, w) d = Conv(c, w) e = Add(d, b) y = Sub(e, b)", "float y"),
        ("c = Conv(b, w) d = Conv(c, w) y = Add(d, b)", "float y, float b"),
        ("c = Conv(b, w) d = Conv(c, w) y = Add(d, x)", "float y"),
        ("c = Conv(b, w) d = Conv(c, w) e = Add(d, b) f = Conv(b, v) y = Mul(e, f)", "float y"),
        ("f = Flatten(b) c = Conv(b, w) d = Conv(c, w) e = Add(d, b) g = Flatten(e) y = Sub(g, f)", "float y"),
        (
            "y = Loop(n, t, b) <body = g (int64 i, bool go, float[N, 6, H, W] s) => (bool go_on, float[N, 6, H, W] u) "
            "{ go_on = Identity(go) c = Conv(s, w) d = Conv(c, w) u = Add(d, b) }>",
            "float y",
        ),
    ],
)
def test_residual_sums_leave_what_is_read_elsewhere(body: str, outputs: str):
    source = residual_model(body, outputs, ", int64 n, bool t")
    inputs = [floats(2, 6, 5, 5), np.array(3), np.array(True)]
    before = inputs[0].copy()
    check_equal(source, inputs)
    assert np.array_equal(inputs[0], before)


# Whether a Relu may lose a NaN is known of a large tensor from the layer before, unless something changed it.
@pytest.mark.parametrize(
    "body",
    [
        "n = Neg(b) l = Log(n) c = Conv(l, v) y = Relu(c)",
        "n = Neg(b) l = Log(n) t = Tanh(l) c = Conv(b, w) d = Add(c, l) e = Relu(d) y = Mul(e, t)",
        "c = Conv(b, w) d = Add(c, b) e = Clip(d, low, high) f = Div(e, e) g = Conv(f, v) y = Relu(g)",
        "c = Conv(b, huge) d = Relu(c) e = Conv(d, huge) f = Relu(e) g = Conv(f, huge) h = Relu(g) i = Sub(h, h) "
        "j = Conv(i, w) y = Relu(j)",
    ],
)
def test_a_nan_that_arises_between_layers_is_kept(body: str):
    weights = {"huge": np.full((6, 6, 1, 1), 1e18, np.float32), "low": np.float32(-1), "high": np.float32(1)}
    source = residual_model(body)
    for name in used_in(body, weights):
        source.graph.initializer.append(numpy_helper.from_array(np.asarray(weights[name]), name))
    x = floats(1, 6, 120, 110)
    check_equal(source, [x])
    assert np.isnan(onnx_torch.prepare(source).run([x])[0]).any()


def test_a_nan_in_an_earlier_result_is_kept():
    rep = onnx_torch.prepare(residual_model("y = Relu(b)"))
    (y,) = rep.run([torch.from_numpy(floats(1, 6, 120, 110))])
    y[0, 0, 5, 5] = torch.nan
    assert rep.run([y])[0][0, :, 5, 5].isnan().all()


def test_layers_without_end_are_fused():
    body = (
        "c0 = Relu(b) " + " ".join(f"d{i} = Conv(c{i}, w) c{i + 1} = Relu(d{i})" for i in range(60)) + " y = Neg(c60)"
    )
    source = residual_model(body)
    w = np.eye(6, dtype=np.float32)[:, :, None, None]
    source.graph.initializer[0].CopyFrom(numpy_helper.from_array(w, "w"))
    x = floats(1, 6, 120, 110)
    np.testing.assert_array_equal(onnx_torch.prepare(source).run([x])[0], -np.maximum(x, 0))
    rep = onnx_torch.prepare(source)
    rep.run([x])
    with torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CPU]) as profile:
        rep.run([x])
    assert "aten::convolution" not in {event.key for event in profile.key_averages()}


def test_a_nan_goes_through_what_is_packed():
    source = model(
        "(float[4, 6] x, float[4, 5] r) => (float[4, 5] y) "
        "{ c = MatMul(x, w) d = Add(c, b) s = Add(d, r) y = Relu(s) }",
        w=(6, 5),
        b=(5,),
    )
    rep = onnx_torch.prepare(source)
    x, r = floats(4, 6), floats(4, 5)
    assert not np.isnan(rep.run([x, r])[0]).any()
    x[0, 2] = np.nan
    r[3, 1] = np.nan
    wanted = np.zeros((4, 5), bool)
    wanted[0], wanted[3, 1] = True, True
    assert np.array_equal(np.isnan(rep.run([x, r])[0]), wanted)
    source.graph.initializer[0].CopyFrom(numpy_helper.from_array(np.full((6, 5), np.nan, np.float32), "w"))
    assert np.isnan(onnx_torch.prepare(source).run([x, r])[0]).all()


def test_pack_leaves_operands_of_other_sizes_and_values_that_others_use():
    source = model(
        "(float[2, 6, 8, 8] x, float[1, 8, 1, 1] r) => (float[2, 8, 8, 8] y) { c = Conv(x, w) y = Add(r, c) }",
        w=(8, 6, 1, 1),
    )
    assert graph_of(source, "pack") == "onnx_torch::packed\naten::add"
    check_equal(source, [floats(2, 6, 8, 8), floats(1, 8, 1, 1)])
    source = model(
        "(float[2, 6, 8, 8] x) => (float[2, 8, 8, 8] c, float[2, 8, 8, 8] y) { c = Conv(x, w) y = Relu(c) }",
        w=(8, 6, 1, 1),
    )
    assert graph_of(source, "pack") == "onnx_torch::packed\naten::relu"
    check_equal(source, [floats(2, 6, 8, 8)])


@pytest.mark.parametrize("other", [(2, 8, 8, 8), (1, 8, 1, 1), (8, 8), (3, 2, 8, 8, 8)])
def test_packed_operands_whose_sizes_come_with_the_run(other: tuple[int, ...]):
    dims = ", ".join(f"D{i}" for i in range(len(other)))
    source = model(
        f"(float[2, 6, 8, 8] x, float[{dims}] r) => (float y) {{ c = Conv(x, w) s = Add(c, r) y = Relu(s) }}",
        w=(8, 6, 1, 1),
    )
    assert graph_of(source, "pack") == "onnx_torch::packed"
    check_equal(source, [floats(2, 6, 8, 8), floats(*other)])


def test_pack_leaves_other_types():
    for element, dtype in {"double": np.float64, "float16": np.float16}.items():
        source = model(
            f"({element}[2, 6, 8, 8] x) => ({element}[N, C, H, W] y) {{ y = Conv(x, w) }}",
            w=floats(8, 6, 1, 1).astype(dtype),
        )
        assert "onnx_torch::packed" not in graph_of(source, "pack", disabled_passes=["halves"])
        check_equal(source, [floats(2, 6, 8, 8).astype(dtype)], disabled_passes=["halves"])


def test_packed_takes_empty_batches_and_other_sizes_in_turn():
    source = model("(float[N, 6, H, W] x) => (float y) { c = Conv(x, w, b) y = Relu(c) }", w=(8, 6, 3, 3), b=(8,))
    rep, plain = onnx_torch.prepare(source), onnx_torch.prepare(source, optimize=False)
    for sizes in [(1, 6, 5, 5), (0, 6, 5, 5), (2, 6, 9, 3), (1, 6, 5, 5)]:
        x = floats(*sizes)
        np.testing.assert_allclose(rep.run([x])[0], plain.run([x])[0], rtol=1e-4, atol=1e-4)
    source = model("(float[N, 6] x) => (float y) { y = MatMul(x, w) }", w=(6, 4))
    assert onnx_torch.prepare(source).run([floats(0, 6)])[0].shape == (0, 4)


def test_an_error_in_a_packed_operator_is_its_main_nodes():
    source = model("(float[N, C, H, W] x) => (float y) { c = Conv(x, w) y = Relu(c) }", w=(8, 6, 3, 3))
    rep = onnx_torch.prepare(source)
    for sizes in [(1, 5, 9, 9), (1, 6, 2, 2)]:
        with pytest.raises(onnx_torch.RunError, match=r"Conv") as caught:
            rep.run([floats(*sizes)])
        assert caught.value.op_type == "Conv"
    with pytest.raises(onnx_torch.RunError, match="MatMul"):
        onnx_torch.prepare(model("(float[N, C] x) => (float y) { y = MatMul(x, w) }", w=(6, 4))).run([floats(6, 4)])


def test_packed_runs_on_several_threads_at_once():
    source = model("(float[N, 6, H, W] x) => (float y) { c = Conv(x, w) y = Relu(c) }", w=(16, 6, 3, 3))
    rep, plain = onnx_torch.prepare(source), onnx_torch.prepare(source, optimize=False)
    inputs = [floats(1 + i % 3, 6, 8 + i % 5, 8) for i in range(40)]
    with ThreadPoolExecutor(4) as pool:
        for ours, x in zip(pool.map(lambda x: rep.run([x])[0], inputs), inputs, strict=True):
            np.testing.assert_allclose(ours, plain.run([x])[0], rtol=1e-4, atol=1e-4)


def test_a_small_product_leaves_the_number_of_threads():
    source = model("(float[N, 8] x) => (float y) { y = Gemm(x, w, b) }", w=(8, 3), b=(3,))
    threads = torch.get_num_threads()
    try:
        torch.set_num_threads(2)
        check_equal(source, [floats(5, 8)])
        check_equal(source, [floats(50_000, 8)])
        assert torch.get_num_threads() == 2
    finally:
        torch.set_num_threads(threads)


@pytest.mark.parametrize("rows", [67, 131, 134, 197, 200])
@pytest.mark.parametrize(
    "body", ["y = Add(r, c)", "d = Add(c, r) e = Relu(d) y = Mul(e, r)", "y = Relu(c)", "d = Mul(c, r) y = Add(d, r)"]
)
def test_rows_that_fill_no_whole_blocks(body: str, rows: int):
    source = model(
        f"(float[N, 64] x, float[N, 80] r) => (float[N, 80] y) {{ p = MatMul(x, w) c = Add(p, b) {body} }}",
        w=(64, 80),
        b=(80,),
    )
    plain = onnx_torch.prepare(source, optimize=False)
    inputs = [floats(rows, 64), floats(rows, 80)]
    for threads in (1, 2, 3):
        rep = onnx_torch.prepare(source, threads=threads)
        for _ in range(2):
            np.testing.assert_allclose(rep.run(inputs)[0], plain.run(inputs)[0], rtol=1e-4, atol=1e-4)
    bad = [floats(rows, 64), floats(rows, 80)]
    bad[0][-1, 3] = np.nan
    assert np.array_equal(np.isnan(rep.run(bad)[0]), np.isnan(plain.run(bad)[0]))


def test_packed_operators_run_on_many_threads_at_a_time():
    source = model(
        "(float[n, 8] x) => (float[n, 4] y) { a = Gemm(x, v, b)  c = Relu(a)  d = MatMul(c, w)  y = Add(d, c) }",
        v=(8, 4),
        b=(4,),
        w=(4, 4),
    )
    rep, plain = onnx_torch.prepare(source), onnx_torch.prepare(source, optimize=False)
    assert "onnx_torch::packed" in code(rep.graph())
    feeds = [floats(1 + i % 5, 8) for i in range(400)]
    with ThreadPoolExecutor(8) as threads:
        results = list(threads.map(lambda x: rep.run([x])[0], feeds))
    for x, y in zip(feeds, results, strict=True):
        np.testing.assert_allclose(y, plain.run([x])[0], rtol=1e-4, atol=1e-4)


# --- pack: transposed convolutions ------------------------------------------------------------------------------------

DECONVOLUTIONS: dict[str, tuple[tuple[int, ...], tuple[int, ...], str]] = {
    "plain": ((2, 6, 9, 7), (6, 8, 3, 3), "group = 1"),
    "strides": ((2, 6, 9, 7), (6, 8, 4, 3), "strides = [2, 3], pads = [1, 1, 1, 1]"),
    "output padding": ((2, 6, 9, 7), (6, 8, 3, 3), "strides = [2, 2], output_padding = [1, 1]"),
    "output shape": ((2, 6, 9, 7), (6, 8, 3, 3), "strides = [2, 2], output_shape = [20, 15]"),
    "uneven padding": ((2, 6, 9, 7), (6, 8, 3, 3), "strides = [2, 2], pads = [2, 0, 0, 1]"),
    "dilations": ((2, 6, 9, 7), (6, 8, 3, 3), "dilations = [2, 3]"),
    "dilations and output padding": (
        (2, 6, 9, 7),
        (6, 8, 3, 3),
        "dilations = [3, 3], pads = [1, 1, 1, 1], output_padding = [2, 2]",
    ),
    "groups": ((2, 6, 9, 7), (6, 8, 3, 3), "group = 3, strides = [2, 2], dilations = [2, 1]"),
    "depthwise": ((2, 16, 9, 7), (16, 1, 3, 3), "group = 16, strides = [2, 2]"),
    "few channels": ((2, 6, 9, 7), (6, 2, 5, 5), "strides = [3, 2], pads = [2, 2, 2, 2], output_padding = [1, 0]"),
    "many channels": ((1, 256, 16, 16), (256, 64, 4, 4), "strides = [2, 2], pads = [1, 1, 1, 1]"),
    "one dimension": ((2, 6, 40), (6, 8, 5), "strides = [3], pads = [1, 2]"),
    "three dimensions": ((2, 3, 4, 5, 6), (3, 4, 2, 2, 2), "strides = [2, 1, 2]"),
}


@pytest.mark.parametrize("bias", [False, True], ids=["no bias", "bias"])
@pytest.mark.parametrize("name", DECONVOLUTIONS)
def test_pack_transposed_convolutions(name: str, *, bias: bool):
    x, w, attributes = DECONVOLUTIONS[name]
    groups = int(match[1]) if (match := re.search(r"group = (\d+)", attributes)) else 1
    dims = ", ".join(map(str, x))
    called = "x, w, b" if bias else "x, w"
    source = model(
        f"(float[{dims}] x) => (float y) {{ c = ConvTranspose<{attributes}>({called})  y = Relu(c) }}",
        w=floats(*w) / 8,
        **({"b": (w[1] * groups,)} if bias else {}),
    )
    graph = graph_of(source, "pack").splitlines()
    assert "onnx_torch::packed" in graph
    assert "aten::convolution" not in graph
    value = floats(*x)
    check_equal(source, [value])
    value[0, 1, 2] = np.nan
    value[-1, 2, 1] = np.inf
    check_equal(source, [value])


def test_packed_transposed_convolutions_take_other_sizes_and_refuse_what_does_not_fit():
    source = model(
        "(float[N, 6, H, W] x) => (float y) { y = ConvTranspose<strides = [2, 2]>(x, w, b) }", w=(6, 4, 3, 3), b=(4,)
    )
    assert "onnx_torch::packed" in graph_of(source, "pack").splitlines()
    for sizes in [(1, 6, 5, 5), (0, 6, 5, 5), (2, 6, 1, 3), (1, 6, 5, 5)]:
        check_equal(source, [floats(*sizes)])
    source.graph.input[0].type.tensor_type.shape.dim[1].dim_param = "C"
    for options in [{}, {"optimize": False}]:
        with pytest.raises(onnx_torch.RunError, match="ConvTranspose"):
            onnx_torch.prepare(source, **options).run([floats(1, 5, 5, 5)])


@pytest.mark.parametrize("dtype", [np.float64, np.float16])
def test_transposed_convolutions_of_other_types_stay(dtype: type):
    element = "double" if dtype is np.float64 else "float16"
    source = model(
        f"({element}[1, 6, 5, 5] x) => ({element}[N, C, H, W] y) {{ y = ConvTranspose(x, w) }}",
        w=(floats(6, 4, 3, 3) / 8).astype(dtype),
    )
    assert "aten::convolution" in graph_of(source, "pack", disabled_passes=["halves"]).splitlines()
    check_equal(source, [floats(1, 6, 5, 5).astype(dtype)], disabled_passes=["halves"])


@pytest.mark.parametrize("sizes", [(2, 24, 30), (1, 16, 9), (3, 5, 1), (0, 16, 9)])
@pytest.mark.parametrize(
    "attributes", ["pads = [2, 2]", "strides = [2], pads = [2, 2]", "dilations = [2], pads = [4, 4]", "pads = [4, 0]"]
)
def test_depthwise_convolutions_over_one_dimension(attributes: str, sizes: tuple[int, ...]):
    channels = sizes[1]
    source = model(
        f"(float[N, {channels}, L] x, float[N, {channels}, M] r) => (float y) "
        f"{{ c = Conv<group = {channels}, {attributes}>(x, w, b)  a = Relu(c)  y = Add(a, r) }}",
        w=(channels, 1, 5),
        b=(channels,),
    )
    assert "onnx_torch::packed" in graph_of(source, "pack").splitlines()
    results = (sizes[2] + 1) // 2 if "strides" in attributes else sizes[2]
    check_equal(source, [floats(*sizes), floats(*sizes[:2], results)])


# --- pools ------------------------------------------------------------------------------------------------------------

MAX_POOLS = {
    "kernel_shape = [3, 3], strides = [2, 2], pads = [1, 1, 1, 1]": (2, 16, 9, 8),
    "kernel_shape = [5, 5], pads = [2, 2, 2, 2]": (1, 19, 6, 7),
    "kernel_shape = [2, 3], strides = [3, 1]": (1, 32, 7, 5),
    "kernel_shape = [3, 3], strides = [2, 2], ceil_mode = 1": (1, 16, 8, 8),
    "kernel_shape = [3, 2], dilations = [2, 3], pads = [1, 1, 1, 1]": (2, 16, 9, 8),
    "kernel_shape = [3, 3], strides = [2, 2], pads = [0, 0, 1, 1]": (1, 16, 8, 8),
    "kernel_shape = [2, 2], strides = [2, 2], pads = [1, 1, 1, 1]": (1, 16, 1, 1),
    "kernel_shape = [3, 3]": (1, 3, 9, 9),
    "kernel_shape = [2, 2], dilations = [3, 3], pads = [1, 1, 1, 1]": (1, 16, 2, 2),
    "kernel_shape = [3, 3], strides = [1, 2], pads = [1, 1, 1, 1]": (2, 3, 5, 77),
    "kernel_shape = [2, 4], strides = [2, 5], ceil_mode = 1": (1, 3, 6, 131),
    "kernel_shape = [3], strides = [2], pads = [1, 1]": (2, 17, 70),
    "kernel_shape = [4], strides = [3], dilations = [2], ceil_mode = 1": (3, 5, 101),
    "kernel_shape = [3]": (2, 16, 34),
    "kernel_shape = [2, 2, 2], strides = [2, 2, 2]": (1, 16, 6, 8, 36),
    "kernel_shape = [3, 2, 3], dilations = [1, 2, 2], strides = [2, 1, 1], pads = [1, 0, 1, 1, 0, 1]": (2, 3, 5, 7, 22),
    "kernel_shape = [2, 3, 2], strides = [2, 2, 2], ceil_mode = 1": (2, 21, 5, 6, 7),
}


def pool_of(pool: str, sizes: tuple[int, ...], *, channels_last: bool) -> onnx.ModelProto:
    """What pools an intermediate result, so that this lies as is asked."""
    before = "c = Conv(x, w)" if channels_last else "c = Neg(x)"
    weights = {"w": (sizes[1], sizes[1], *[1 for _ in sizes[2:]])} if channels_last else {}
    return model(f"(float[{', '.join(map(str, sizes))}] x) => (float y) {{ {before}  y = {pool}(c) }}", **weights)


def check_equal_with_special_values(source: onnx.ModelProto, sizes: tuple[int, ...]) -> None:
    x = floats(*sizes)
    check_equal(source, [x])
    x[0, 1].flat[-sizes[-1]] = np.nan
    x[-1, 2] = -np.inf
    check_equal(source, [x])


@pytest.mark.parametrize("channels_last", [False, True])
@pytest.mark.parametrize("attributes", MAX_POOLS)
def test_max_pools(attributes: str, *, channels_last: bool):
    sizes = MAX_POOLS[attributes]
    source = pool_of(f"MaxPool<{attributes}>", sizes, channels_last=channels_last)
    assert graph_of(source, "pools").splitlines()[-1] == "onnx_torch::max_pool"
    check_equal_with_special_values(source, sizes)


AVERAGE_POOLS = {
    "kernel_shape = [3, 3], strides = [2, 2], pads = [1, 1, 1, 1]": (2, 16, 9, 8),
    "kernel_shape = [5, 5], pads = [2, 2, 2, 2]": (1, 19, 6, 7),
    "kernel_shape = [3, 3], strides = [2, 2], pads = [1, 1, 1, 1], ceil_mode = 1": (1, 16, 8, 40),
    "kernel_shape = [3, 3], pads = [0, 0, 1, 1]": (1, 16, 8, 8),
    "kernel_shape = [2, 4], strides = [2, 5], ceil_mode = 1": (1, 3, 6, 131),
    "kernel_shape = [3, 2], strides = [1, 2]": (2, 3, 5, 77),
    "kernel_shape = [3], strides = [2], pads = [1, 1]": (2, 17, 70),
    "kernel_shape = [4], strides = [3], pads = [2, 2], ceil_mode = 1": (3, 5, 101),
    "kernel_shape = [2, 2, 2], strides = [2, 2, 2]": (1, 16, 6, 8, 36),
    "kernel_shape = [2, 3, 2], strides = [2, 2, 2], pads = [1, 1, 1, 1, 1, 1], ceil_mode = 1": (2, 21, 5, 6, 7),
}


@pytest.mark.parametrize("channels_last", [False, True])
@pytest.mark.parametrize("count_include_pad", [0, 1])
@pytest.mark.parametrize("attributes", AVERAGE_POOLS)
def test_average_pools(attributes: str, count_include_pad: int, *, channels_last: bool):
    sizes = AVERAGE_POOLS[attributes]
    pool = f"AveragePool<{attributes}, count_include_pad = {count_include_pad}>"
    source = pool_of(pool, sizes, channels_last=channels_last)
    assert "onnx_torch::average_pool" in graph_of(source, "pools").splitlines()
    check_equal_with_special_values(source, sizes)


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("rank", [1, 2, 3])
def test_average_pools_of_other_sizes_and_types(rank: int, dtype: type):
    element = "double" if dtype is np.float64 else "float"
    source = model(
        f"({element}[N, C{', D' * rank}] x) => ({element} y) {{ y = AveragePool<kernel_shape = {[3] * rank}>(x) }}"
    )
    for sizes in [(2, 3), (0, 3), (1, 17)]:
        check_equal(source, [floats(*sizes, *[5] * rank).astype(dtype)])
    for options in [{}, {"optimize": False}]:
        with pytest.raises(onnx_torch.RunError, match="AveragePool"):
            onnx_torch.prepare(source, **options).run([floats(1, 2, *[2] * rank).astype(dtype)])


def test_max_pools_of_other_sizes_types_and_layouts():
    source = model(
        "(float[N, 16, H, W] x) => (float y) { c = Conv(x, w)  y = MaxPool<kernel_shape = [3, 3]>(c) }",
        w=(16, 16, 1, 1),
    )
    for sizes in [(1, 16, 5, 5), (3, 16, 3, 9), (0, 16, 5, 5), (1, 16, 5, 5)]:
        check_equal(source, [floats(*sizes)])
    for options in [{}, {"optimize": False}]:
        with pytest.raises(onnx_torch.RunError, match="MaxPool"):
            onnx_torch.prepare(source, **options).run([floats(1, 16, 2, 5)])
    source = model("(double[1, 16, 5, 5] x) => (double[N, C, H, W] y) { y = MaxPool<kernel_shape = [3, 3]>(x) }")
    check_equal(source, [floats(1, 16, 5, 5).astype(np.float64)])
    source = model(
        "(float[1, 5, 5, 16] x) => (float y) "
        "{ c = Transpose<perm = [0, 3, 1, 2]>(x)  y = MaxPool<kernel_shape = [3, 3]>(c) }"
    )
    check_equal(source, [floats(1, 5, 5, 16)])


@pytest.mark.parametrize("dtype", [np.float16, np.float64])
@pytest.mark.parametrize("rank", [1, 2, 3])
def test_max_pools_of_other_types(rank: int, dtype: type):
    element = "double" if dtype is np.float64 else "float16"
    source = model(
        f"({element}[N, C{', D' * rank}] x) => ({element} y) {{ y = MaxPool<kernel_shape = {[2] * rank}>(x) }}"
    )
    for sizes in [(2, 3), (0, 3), (1, 17)]:
        check_equal(source, [floats(*sizes, *[5] * rank).astype(dtype)])


@pytest.mark.parametrize("dtype", [np.int8, np.uint8])
@pytest.mark.parametrize("width", [6, 31, 140])
def test_max_pools_of_bytes(width: int, dtype: type):
    element = np.dtype(dtype).name
    source = model(
        f"({element}[2, 3, 7, {width}] x) => ({element} y) "
        "{ y = MaxPool<kernel_shape = [3, 3], strides = [2, 2], pads = [1, 1, 1, 1]>(x) }"
    )
    assert "onnx_torch::max_pool" in graph_of(source, "pools").splitlines()
    check_equal(source, [np.random.default_rng(0).integers(0, 256, (2, 3, 7, width)).astype(np.uint8).view(dtype)])


# --- recurrent --------------------------------------------------------------------------------------------------------

RECURRENT = {
    "RNN": ("RNN", 1, ""),
    "GRU": ("GRU", 3, ""),
    "GRU, linear before reset": ("GRU", 3, "linear_before_reset = 1"),
    "LSTM": ("LSTM", 4, ""),
}


def recurrent_model(name: str, direction: str, x: str, features: int, *, bias: bool, states: bool) -> onnx.ModelProto:
    """A layer with 5 hidden units, for batches of 3."""
    op, gates, attributes = RECURRENT[name]
    directions = 2 if direction == "bidirectional" else 1
    outputs = ["y", "h", "c"][: 3 if name == "LSTM" else 2]
    settings = ", ".join(filter(None, ["hidden_size = 5", f'direction = "{direction}"', attributes]))
    inputs = ["x", "w", "r", "b" if bias else "", "", *(["h0", "c0"][: len(outputs) - 1] if states else [])]
    weights: dict[str, Any] = {"w": (directions, gates * 5, features), "r": (directions, gates * 5, 5)}
    if bias:
        weights["b"] = (directions, 2 * gates * 5)
    for state in ["h0", "c0"][: len(outputs) - 1] if states else []:
        weights[state] = (directions, 3, 5)
    signature = ", ".join(f"float {output}" for output in outputs)
    called = ", ".join(inputs).rstrip(", ")
    return model(f"({x} x) => ({signature}) {{ {', '.join(outputs)} = {op}<{settings}>({called}) }}", **weights)


@pytest.mark.parametrize("bias", [False, True], ids=["no bias", "bias"])
@pytest.mark.parametrize("direction", ["forward", "reverse", "bidirectional"])
@pytest.mark.parametrize("name", RECURRENT)
def test_recurrent_layers(name: str, direction: str, bias: bool):
    source = recurrent_model(name, direction, "float[7, 3, 4]", 4, bias=bias, states=bias)
    graph = graph_of(source, "recurrent").splitlines()
    assert "onnx_torch::recurrent" in graph
    assert not {"aten::lstm", "aten::gru", "aten::rnn_tanh", "prim::Loop", "aten::linear"} & set(graph)
    check_equal(source, [floats(7, 3, 4)])


@pytest.mark.parametrize("name", RECURRENT)
def test_recurrent_layers_of_other_sizes_and_values(name: str):
    source = recurrent_model(name, "bidirectional", "float[T, N, C]", 5, bias=True, states=False)
    for sizes in [(2, 3, 5), (1, 1, 5), (6, 3, 5), (2, 3, 5)]:
        check_equal(source, [floats(*sizes)])
    for value in [np.nan, np.inf, -np.inf, 1e38]:
        x = floats(4, 3, 5)
        x[2, 1, 3] = value
        check_equal(source, [x])
    for options in [{}, {"optimize": False}]:
        with pytest.raises(onnx_torch.RunError, match=RECURRENT[name][0]):
            onnx_torch.prepare(source, **options).run([floats(2, 3, 4)])


@pytest.mark.parametrize("before", [0, 1])
def test_recurrent_layers_whose_weights_are_too_large_to_be_folded_while_translating(before: int):
    source = model(
        "(float[7, 3, 40] x) => (float y) "
        f"{{ y, h = GRU<hidden_size = 64, linear_before_reset = {before}>(x, w, r, b) }}",
        w=floats(1, 192, 40) / 8,
        r=floats(1, 192, 64) / 8,
        b=(1, 384),
    )
    graph = graph_of(source, "recurrent").splitlines()
    assert "onnx_torch::recurrent" in graph
    assert not {"aten::gru", "aten::linear", "aten::cat", "aten::slice"} & set(graph)
    assert graph.count("onnx_torch::recurrent") == 1
    check_equal(source, [floats(7, 3, 40)])


def test_recurrent_layers_of_no_steps_and_of_no_sequences():
    source = recurrent_model("GRU", "bidirectional", "float[T, N, C]", 5, bias=True, states=False)
    for sizes in [(0, 3, 5), (4, 0, 5), (2, 3, 5)]:
        check_equal(source, [floats(*sizes)])


@pytest.mark.parametrize("state", ["h0", "c0"])
@pytest.mark.parametrize("sizes", [(2, 2, 5), (1, 3, 5), (2, 3, 6)])
def test_states_of_other_sizes_are_refused(state: str, sizes: tuple[int, ...]):
    source = recurrent_model("LSTM", "bidirectional", "float[7, 3, 4]", 4, bias=True, states=True)
    (weight,) = (weight for weight in source.graph.initializer if weight.name == state)
    weight.CopyFrom(numpy_helper.from_array(floats(*sizes), state))
    for options in [{}, {"optimize": False}]:
        with pytest.raises(onnx_torch.Error, match="LSTM"):
            onnx_torch.prepare(source, **options).run([floats(7, 3, 4)])


def with_activation(name: str) -> onnx.ModelProto:
    source = recurrent_model("RNN", "forward", "float[4, 3, 5]", 5, bias=True, states=False)
    source.graph.node[0].attribute.append(onnx.helper.make_attribute("activations", [name]))
    return source


def test_recurrent_layers_with_relu_keep_a_nan():
    source = with_activation("Relu")
    assert "onnx_torch::recurrent" in graph_of(source, "recurrent").splitlines()
    x = floats(4, 3, 5)
    check_equal(source, [x])
    x[2, 1, 3] = np.nan
    check_equal(source, [x])


def test_recurrent_leaves_other_activations():
    source = with_activation("Sigmoid")
    assert "onnx_torch::recurrent" not in graph_of(source, "recurrent")
    check_equal(source, [floats(4, 3, 5)])


@pytest.mark.parametrize("time", [3, "T"])
@pytest.mark.parametrize(
    "attribute", ['activations = ["Sigmoid", "Relu"]', 'activations = ["Tanh", "Tanh"]', "clip = 0.5"]
)
def test_recurrent_leaves_other_steps(attribute: str, time: int | str):
    source = model(
        f"(float[{time}, 3, 4] x) => (float y, float h) {{ y, h = GRU<hidden_size = 5, {attribute}>(x, w, r, b) }}",
        w=(1, 15, 4),
        r=(1, 15, 5),
        b=(1, 30),
    )
    assert "onnx_torch::recurrent" not in graph_of(source, "recurrent")
    check_equal(source, [floats(3, 3, 4)])


STEPWISE = {
    **RECURRENT,
    "RNN of Relu": ("RNN", 1, 'activations = ["Relu", "Relu"]'),
    "LSTM with peepholes": ("LSTM", 4, ""),
}


def stepwise_model(name: str, direction: str, hidden: int, *, bias: bool, ends: bool = True) -> onnx.ModelProto:
    """A layer of 12 features with initial states, whose sequences may have ends. Its steps do not magnify errors."""
    op, gates, attributes = STEPWISE[name]
    directions = 2 if direction == "bidirectional" else 1
    outputs = ["y", "h", "c"][: 3 if op == "LSTM" else 2]
    states = ["h0", "c0"][: len(outputs) - 1]
    settings = ", ".join(filter(None, [f"hidden_size = {hidden}", f'direction = "{direction}"', attributes]))
    inputs = ["float[T, N, 12] x", "int32[L] lens", *(f"float[{directions}, N, {hidden}] {state}" for state in states)]
    signature = ", ".join(f"float {output}" for output in outputs)
    weights = {"b": floats(directions, 2 * gates * hidden)} if bias else {}
    if "peepholes" in name:
        weights["p"] = floats(directions, 3 * hidden) / 4
    b, p = (name if name in weights else "" for name in "bp")
    called = ", ".join(["x", "w", "r", b, "lens" if ends else "", *states, p]).rstrip(", ")
    return model(
        f"({', '.join(inputs)}) => ({signature}) {{ {', '.join(outputs)} = {op}<{settings}>({called}) }}",
        w=floats(directions, gates * hidden, 12) / 4,
        r=floats(directions, gates * hidden, hidden) / np.float32(2 * hidden**0.5),
        **weights,
    )


def stepwise_inputs(source: onnx.ModelProto, time: int, batch: int, lens: list[int]) -> list[np.ndarray]:
    states = [value.type.tensor_type.shape.dim for value in source.graph.input][2:]
    return [
        floats(time, batch, 12),
        np.array(lens, np.int32),
        *(floats(directions.dim_value, batch, hidden.dim_value) for directions, _, hidden in states),
    ]


ENDS = [
    (6, [6, 2, 0, 5]),
    (6, [3, 3]),
    (1, [1]),
    (300, [90]),
    (4, [1, 9]),
    (2, [-1, 2]),
    (3, [0, 0]),
    (0, [0]),
    (3, []),
]


@pytest.mark.parametrize("name", STEPWISE)
def test_recurrent_steps_become_layers(name: str):
    source = stepwise_model(name, "bidirectional", 5, bias=True)
    before = graph_of(source, "place").splitlines()
    assert sum(line.endswith("_direction") for line in before) == 2
    graph = graph_of(source, "recurrent_steps").splitlines()
    assert graph.count("onnx_torch::recurrent") == 2
    assert not {"prim::Loop", "aten::append", "aten::where", "aten::tanh"} & set(graph)
    inputs = stepwise_inputs(source, 6, 4, [6, 2, 0, 5])
    without = onnx_torch.prepare(source, disabled_passes=["recurrent_steps"])
    assert code(without.graphs()["expand"]).splitlines().count("prim::Loop") == 2
    assert "onnx_torch::recurrent" not in without.graph()
    for ours, expected in zip(onnx_torch.prepare(source).run(inputs), without.run(inputs), strict=True):
        np.testing.assert_allclose(ours, expected, rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("threads", [1, 2])
@pytest.mark.parametrize("bias", [False, True], ids=["no bias", "bias"])
@pytest.mark.parametrize("hidden", [5, 40, 450])
@pytest.mark.parametrize("direction", ["forward", "reverse", "bidirectional"])
@pytest.mark.parametrize("name", STEPWISE)
def test_recurrent_layers_whose_sequences_end(name: str, direction: str, hidden: int, bias: bool, threads: int):
    source = stepwise_model(name, direction, hidden, bias=bias)
    graph = graph_of(source, "recurrent").splitlines()
    assert graph.count("onnx_torch::recurrent") == (2 if direction == "bidirectional" else 1)
    assert not {"prim::Loop", "aten::linear", "aten::where"} & set(graph)
    check_each(source, (stepwise_inputs(source, time, len(lens), lens) for time, lens in ENDS), threads=threads)


@pytest.mark.parametrize("threads", [1, 2])
@pytest.mark.parametrize("bias", [False, True], ids=["no bias", "bias"])
@pytest.mark.parametrize("hidden", [5, 40, 450])
@pytest.mark.parametrize("direction", ["forward", "reverse", "bidirectional"])
def test_peepholes(direction: str, hidden: int, bias: bool, threads: int):
    source = stepwise_model("LSTM with peepholes", direction, hidden, bias=bias, ends=False)
    graph = graph_of(source, "recurrent").splitlines()
    assert graph.count("onnx_torch::recurrent") == (2 if direction == "bidirectional" else 1)
    assert not {"prim::Loop", "aten::linear"} & set(graph)
    sizes = [(6, 4), (1, 1), (300, 1), (0, 2), (3, 0)]
    check_each(source, (stepwise_inputs(source, time, batch, [time]) for time, batch in sizes), threads=threads)


def test_peepholes_of_another_size_are_refused():
    source = stepwise_model("LSTM with peepholes", "forward", 5, bias=True)
    (peepholes,) = (weight for weight in source.graph.initializer if weight.name == "p")
    peepholes.CopyFrom(numpy_helper.from_array(floats(1, 12), "p"))
    for options in [{}, {"optimize": False}]:
        with pytest.raises(onnx_torch.Error, match="LSTM"):
            onnx_torch.prepare(source, **options).run(stepwise_inputs(source, 6, 3, [1, 2, 3]))


@pytest.mark.parametrize("name", STEPWISE)
def test_what_lies_past_the_end_of_a_sequence_does_not_matter(name: str):
    source = stepwise_model(name, "bidirectional", 5, bias=True)
    prepared = onnx_torch.prepare(source)
    inputs = stepwise_inputs(source, 6, 3, [2, 6, 0])
    expected = prepared.run(inputs)
    for value in [np.nan, np.inf]:
        inputs[0][2:, 0] = inputs[0][:, 2] = value
        for actual, other in zip(prepared.run(inputs), expected, strict=True):
            np.testing.assert_array_equal(actual, other)


@pytest.mark.parametrize("name", STEPWISE)
def test_lengths_of_another_number_of_sequences(name: str):
    """One stands for all; others are refused, with passes as without."""
    source = stepwise_model(name, "reverse", 5, bias=True)
    check_equal(source, stepwise_inputs(source, 6, 3, [4]))
    for options in [{}, {"optimize": False}]:
        with pytest.raises(onnx_torch.RunError, match=STEPWISE[name][0]):
            onnx_torch.prepare(source, **options).run(stepwise_inputs(source, 6, 3, [4, 2]))


RECURRENT_SIZES = [*((name, 40) for name in RECURRENT), ("LSTM", 5), ("LSTM", 400), ("GRU", 5), ("GRU", 450)]


@pytest.mark.parametrize("threads", [1, 2, 3])
@pytest.mark.parametrize("time, batch", [(1, 1), (300, 1), (3, 2), (9, 70)], ids=str)
@pytest.mark.parametrize("direction", ["forward", "bidirectional"])
@pytest.mark.parametrize("name, hidden", RECURRENT_SIZES)
def test_recurrent_layers_in_parts(name: str, hidden: int, direction: str, time: int, batch: int, threads: int):
    """Steps in several turns, the batch and the directions on several threads, and weights shared out among them."""
    op, gates, attributes = RECURRENT[name]
    directions = 2 if direction == "bidirectional" else 1
    outputs = ["y", "h", "c"][: 3 if name == "LSTM" else 2]
    settings = ", ".join(filter(None, [f"hidden_size = {hidden}", f'direction = "{direction}"', attributes]))
    signature = ", ".join(f"float {output}" for output in outputs)
    source = model(
        f"(float[T, N, 12] x) => ({signature}) {{ {', '.join(outputs)} = {op}<{settings}>(x, w, r, b) }}",
        w=floats(directions, gates * hidden, 12) / 4,
        r=floats(directions, gates * hidden, hidden) / np.float32(hidden**0.5),
        b=floats(directions, 2 * gates * hidden),
    )
    check_equal(source, [floats(time, batch, 12)], threads=threads)


@pytest.mark.parametrize("name", RECURRENT)
def test_recurrent_leaves_other_types_and_weights_that_come_with_the_run(name: str):
    source = recurrent_model(name, "forward", "float[7, 3, 4]", 4, bias=True, states=False)
    for weight in source.graph.initializer:
        weight.CopyFrom(numpy_helper.from_array(numpy_helper.to_array(weight).astype(np.float64), weight.name))
    source.graph.input[0].type.tensor_type.elem_type = onnx.TensorProto.DOUBLE
    for output in source.graph.output:
        output.type.tensor_type.elem_type = onnx.TensorProto.DOUBLE
    assert "onnx_torch::recurrent" not in graph_of(source, "recurrent")
    check_equal(source, [floats(7, 3, 4).astype(np.float64)])
    source = recurrent_model(name, "forward", "float[7, 3, 4]", 4, bias=False, states=False)
    weight = source.graph.initializer.pop(0)
    source.graph.input.append(onnx.helper.make_tensor_value_info("w", onnx.TensorProto.FLOAT, weight.dims))
    assert "onnx_torch::recurrent" not in graph_of(source, "recurrent")
    check_equal(source, [floats(7, 3, 4), numpy_helper.to_array(weight)])


# --- attention and matmul ---------------------------------------------------------------------------------------------

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


# Of more scores than are computed at once.
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
    check_equal(source, inputs, threads=threads)


@pytest.mark.parametrize("sizes", [(8, 7, 6), (64, 129, 64), (40, 300, 100), (1, 1, 1), (96, 33, 17)])
@pytest.mark.parametrize("mask", ["none", "for each key", "for each head", "for each query", "all"])
@pytest.mark.parametrize("shared", [False, True], ids=["own keys", "shared keys"])
@pytest.mark.parametrize("queries", [1, 3, 31])
def test_attention_to_rows_of_keys(queries: int, sizes: tuple[int, int, int], mask: str, shared: bool):
    """As when text is generated: keys lie as they were appended, and heads may share them."""
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
    """With a past, and heads that share keys; in the last of a batch, a query attends to nothing."""
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
        check_equal(source, inputs, threads=threads)


# Rows, keys, and sizes of a key and a value that fill tiles and vectors, and that leave parts of them.
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
        rep, plain = onnx_torch.prepare(source), onnx_torch.prepare(source, optimize=False)
        for sizes in [(2, 3, 4, 5), (1, 1, 1, 1), (0, 2, 3, 4), (2, 3, 0, 4)]:
            batch, heads, length, depth = sizes
            q, k, v = (RNG.random((batch, heads, a, b)).astype(dtype) for a, b in [(length, depth), (depth, 6), (6, 2)])
            np.testing.assert_allclose(rep.run([q, k, v])[0], plain.run([q, k, v])[0], rtol=2e-3, atol=1e-4)


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


# --- normalizations ---------------------------------------------------------------------------------------------------

LAYER_NORMS = {
    "power": "m = ReduceMean(x, last) d = Sub(x, m) p = Pow(d, two) v = ReduceMean(p, last)",
    "product": "m = ReduceMean(x, last) d = Sub(x, m) p = Mul(d, d) v = ReduceMean(p, last)",
    "twice": "m = ReduceMean(x, last) d = Sub(x, m) c = Sub(x, m) p = Pow(c, two) v = ReduceMean(p, two_dims)",
}


@pytest.mark.parametrize("name", LAYER_NORMS)
def test_layer_norm(name: str):
    numbers = {"two": np.float32(2), "eps": np.float32(1e-5), "last": np.int64([-1]), "two_dims": np.int64([2])}
    source = model(
        f"(float[2, 3, 8] x) => (float y) {{ {LAYER_NORMS[name]} e = Add(v, eps) s = Sqrt(e) n = Div(d, s) "
        "q = Mul(n, w) y = Add(q, b) }",
        **numbers,
        w=(8,),
        b=(8,),
    )
    assert graph_of(source, "normalizations") == "aten::layer_norm"
    check_equal(source, [5 + 3 * floats(2, 3, 8)])
    x = floats(2, 3, 8)
    x[0, 1, 2:5] = np.nan, np.inf, -np.inf
    x[1, 1] = 7
    check_equal(source, [x])


@pytest.mark.parametrize(
    "body",
    [
        "m = ReduceMean(x, first) d = Sub(x, m) p = Pow(d, two) v = ReduceMean(p, first) e = Add(v, eps)",
        "m = ReduceMean(x, last) d = Sub(x, m) p = Pow(d, two) v = ReduceMean(p, first) e = Add(v, eps)",
        "m = ReduceMean(x, last) d = Sub(x, m) p = Pow(d, eps) v = ReduceMean(p, last) e = Add(v, eps)",
        "m = ReduceMean(x, last) d = Sub(x, m) p = Pow(d, two) v = ReduceMean(p, last) e = Add(v, array)",
        "m = ReduceMean(two, last) d = Sub(x, m) p = Pow(d, two) v = ReduceMean(p, last) e = Add(v, eps)",
    ],
)
def test_what_is_no_layer_norm(body: str):
    source = model(
        f"(float[8, 8] x) => (float[N, M] y) {{ {body} s = Sqrt(e) y = Div(d, s) }}",
        two=np.float32([2]) if "(two" in body else np.float32(2),
        eps=np.float32(1),
        array=(8,),
        first=np.int64([0]),
        last=np.int64([-1]),
    )
    assert "aten::layer_norm" not in graph_of(source, "normalizations")
    check_equal(source, [np.abs(floats(8, 8))])


GROUP_NORM = "r = Reshape(x, rows) n = InstanceNormalization<epsilon = 0.001>(r, w, b) y = Reshape(n, sizes)"


@pytest.mark.parametrize("sizes", [(2, 6, 4, 5), (2, 6, 7), (1, 6, 2, 3, 4)])
def test_group_norm(sizes: tuple[int, ...]):
    shape = ", ".join(map(str, sizes))
    source = model(
        f"(float[{shape}] x) => (float[{shape}] y) {{ {GROUP_NORM} }}",
        rows=np.int64([0, 3, -1]),
        sizes=np.int64(sizes),
        w=np.ones(3, np.float32),
        b=np.zeros(3, np.float32),
    )
    assert graph_of(source, "normalizations") == "aten::group_norm"
    x = 2 + floats(*sizes)
    check_equal(source, [x])
    x[0, 3] = np.nan
    check_equal(source, [x])


@pytest.mark.parametrize(
    ("rows", "weight", "result"),
    [
        ([0, 3, -1], [1, 1, 2], [2, 6, 4, 5]),
        ([1, 3, -1], [1, 1, 1], [2, 6, 4, 5]),
        ([0, 3, 2, -1], [1, 1, 1], [2, 6, 4, 5]),
        ([0, 3, -1], [1, 1, 1], [2, 4, 6, 5]),
        ([0, 4, -1], [1, 1, 1, 1], [2, 6, 4, 5]),
    ],
)
def test_what_is_no_group_norm(rows: list[int], weight: list[float], result: list[int]):
    source = model(
        f"(float[2, 6, 4, 5] x) => (float[A, B, C, D] y) {{ {GROUP_NORM} }}",
        rows=np.int64(rows),
        sizes=np.int64(result),
        w=np.float32(weight),
        b=np.zeros(len(weight), np.float32),
    )
    assert "aten::group_norm" not in graph_of(source, "normalizations")
    check_equal(source, [floats(2, 6, 4, 5)])


NORMS = [
    "InstanceNormalization<epsilon = 0.001>(c, scale, bias)",
    "GroupNormalization<epsilon = 0.001, num_groups = 2>(c, scale, bias)",
]


def normalized_convolution(norm: str, rank: int) -> onnx.ModelProto:
    """What a convolution gives lies channels-last; that of this one is its input and its opposite."""
    dims = ", ".join("NCLHW"[:rank])
    identity = np.concatenate([np.eye(4), -np.eye(4)]).astype(np.float32)
    return model(
        f"(float[{dims}] x) => (float y) {{ c = Conv(x, w) y = {norm} }}",
        w=identity.reshape(8, 4, *[1] * (rank - 2)),
        scale=floats(8),
        bias=floats(8),
    )


@pytest.mark.parametrize("sizes", [(1, 4, 700), (3, 4, 33), (2, 4, 40, 50), (2, 4, 3, 4, 5), (1, 4, 2, 1)])
@pytest.mark.parametrize("norm", NORMS)
def test_norms_of_what_lies_channels_last(norm: str, sizes: tuple[int, ...]):
    source = normalized_convolution(norm, len(sizes))
    assert "onnx_torch::group_norm" in graph_of(source, "group_norms")
    check_equal(source, [floats(*sizes)])


@pytest.mark.parametrize("value", [np.nan, np.inf, 1e30])
@pytest.mark.parametrize("norm", NORMS)
def test_norms_of_values_that_are_not_finite_or_huge(norm: str, value: float):
    x = floats(2, 4, 300)
    x[0, 1, 7] = value
    check_equal(normalized_convolution(norm, 3), [x])


@pytest.mark.parametrize("norm", NORMS)
def test_norms_of_what_lies_far_from_zero(norm: str):
    source = normalized_convolution(norm, 3)
    x = 1000 + floats(1, 4, 5000)
    both = np.concatenate([x, -x], 1).astype(np.float64)
    scale, bias = (numpy_helper.to_array(t)[:, None] for t in source.graph.initializer if t.name != "w")
    groups = both.reshape(1, 8 if norm == NORMS[0] else 2, -1)
    centered = groups - groups.mean(-1, keepdims=True)
    normal = centered / np.sqrt((centered**2).mean(-1, keepdims=True) + 0.001)
    expected = normal.reshape(both.shape) * scale + bias
    np.testing.assert_allclose(onnx_torch.prepare(source).run([x])[0], expected, atol=1e-5)


def test_norms_of_other_layouts_and_types_and_of_nothing():
    check_equal(normalized_convolution(NORMS[1], 3), [floats(0, 4, 5)])
    for name, dtype in (("float", np.float32), ("double", np.float64)):
        source = model(
            f"({name}[2, 8, 5] x) => ({name} y) {{ y = InstanceNormalization(x, scale, bias) }}",
            scale=floats(8).astype(dtype),
            bias=floats(8).astype(dtype),
        )
        check_equal(source, [floats(2, 8, 5).astype(dtype)])


RMS_NORMS = {
    f"{square} {quotient}": f"p = {square} m = ReduceMean(p, last) e = Add(m, eps) s = Sqrt(e) {quotient}"
    for square in ("Pow(x, two)", "Mul(x, x)")
    for quotient in ("i = Reciprocal(s) n = Mul(x, i)", "i = Div(one, s) n = Mul(i, x)", "n = Div(x, s)")
}


@pytest.mark.parametrize("name", RMS_NORMS)
@pytest.mark.parametrize("weight", [(8,), None])
def test_rms_norm(name: str, weight: tuple[int] | None):
    numbers = {"two": np.float32(2), "eps": np.float32(1e-5), "last": np.int64([-1]), "one": np.float32(1)}
    source = model(
        f"(float[2, 3, 8] x) => (float y) {{ {RMS_NORMS[name]} y = {'Mul(w, n)' if weight else 'Identity(n)'} }}",
        **used_in(RMS_NORMS[name], numbers),
        **({"w": weight} if weight else {}),
    )
    assert graph_of(source, "normalizations") == "aten::rms_norm"
    assert graph_of(source, "rows") == "onnx_torch::rms_norm"
    check_equal(source, [5 + 3 * floats(2, 3, 8)])
    x = floats(2, 3, 8)
    x[0, 0, 1], x[0, 1, 2], x[0, 2] = np.nan, np.inf, 0
    check_equal(source, [x])


@pytest.mark.parametrize(
    "body",
    [
        "p = Pow(x, two) m = ReduceMean(p, first) e = Add(m, eps) s = Sqrt(e) y = Div(x, s)",
        "p = Pow(x, eps) m = ReduceMean(p, last) e = Add(m, eps) s = Sqrt(e) y = Div(x, s)",
        "p = Pow(x, two) m = ReduceMean(p, last) e = Add(m, eps) s = Sqrt(e) i = Div(two, s) y = Mul(x, i)",
        "p = Mul(x, x) m = ReduceMean(p, last) e = Add(m, eps) s = Sqrt(e) y = Div(z, s)",
    ],
)
def test_what_is_no_rms_norm(body: str):
    values = {"two": np.float32(2), "eps": np.float32(1e-5), "last": np.int64([-1]), "first": np.int64([0])}
    source = model(f"(float[2, 3, 8] x, float[2, 3, 8] z) => (float y) {{ {body} }}", **used_in(body, values))
    assert "rms_norm" not in graph_of(source, "normalizations")
    check_equal(source, [floats(2, 3, 8), floats(2, 3, 8)])


@pytest.mark.parametrize("w", [(3, 1), (1, 8), (1,), (2, 3, 8)])
def test_weights_of_other_shapes_stay_behind_a_norm(w: tuple[int, ...]):
    source = model(
        "(float[2, 3, 8] x) => (float y) { n = LayerNormalization(x, one) y = Mul(n, w) }", one=np.ones(8, "f"), w=w
    )
    assert graph_of(source, "normalizations") == "aten::layer_norm\naten::mul"
    check_equal(source, [floats(2, 3, 8)])


# --- activations ------------------------------------------------------------------------------------------------------

ACTIVATIONS = {
    "aten::silu": ["s = Sigmoid(x) y = Mul(x, s)", "s = Sigmoid(x) y = Mul(s, x)"],
    "aten::hardswish": ["s = HardSigmoid<alpha = 0.16666667>(x) y = Mul(x, s)"],
    "aten::gelu": [
        "d = Div(x, root) e = Erf(d) s = Add(e, one) p = Mul(x, s) y = Mul(p, half)",
        "d = Div(x, root) e = Erf(d) s = Add(one, e) h = Mul(half, x) y = Mul(h, s)",
        "d = Mul(x, inverse) e = Erf(d) s = Add(e, one) h = Mul(half, x) y = Mul(h, s)",
        "c = Pow(x, three) a = Mul(c, k) b = Add(x, a) i = Mul(b, r) t = Tanh(i) s = Add(t, one) h = Mul(half, x) "
        "y = Mul(h, s)",
        "q = Mul(x, x) c = Mul(x, q) a = Mul(k, c) b = Add(x, a) i = Mul(r, b) t = Tanh(i) s = Add(one, t) "
        "p = Mul(x, s) y = Mul(half, p)",
    ],
}
NUMBERS = dict(root=2**0.5, inverse=0.5**0.5, one=1, half=0.5, three=3, k=0.044715, r=(2 / np.pi) ** 0.5)
NUMBERS = {name: np.float32(value) for name, value in NUMBERS.items()}


@pytest.mark.parametrize(("operator", "body"), [(op, body) for op, bodies in ACTIVATIONS.items() for body in bodies])
def test_activations(operator: str, body: str):
    source = model(f"(float[N, 9] x) => (float[N, 9] y) {{ {body} }}", **NUMBERS)
    assert graph_of(source, "activations") == operator
    check_equal(source, [3 * floats(4, 9)])


@pytest.mark.parametrize(
    "body",
    [
        "s = Sigmoid(x) y = Mul(z, s)",
        "d = Div(x, half) e = Erf(d) s = Add(e, one) p = Mul(x, s) y = Mul(p, half)",
        "d = Div(x, root) e = Erf(d) s = Add(e, one) p = Mul(x, s) y = Mul(p, one)",
    ],
)
def test_what_is_no_activation(body: str):
    source = model(f"(float[4, 9] x, float[4, 9] z) => (float[4, 9] y) {{ {body} }}", **NUMBERS)
    assert not {"aten::silu", "aten::gelu"} & set(graph_of(source, "activations").splitlines())
    check_equal(source, [floats(4, 9), floats(4, 9)])


def test_an_activation_whose_inner_value_is_wanted_stays():
    source = model("(float[9] x) => (float[9] y, float[9] s) { s = Sigmoid(x) y = Mul(x, s) }")
    assert "aten::silu" not in graph_of(source, "activations")
    check_equal(source, [floats(9)])


# --- short rows -------------------------------------------------------------------------------------------------------


def ml_model(text: str) -> onnx.ModelProto:
    source = model(text)
    source.opset_import.add(domain="ai.onnx.ml", version=1)
    return source


ROWS = [floats(100, 3), floats(5, 16), floats(5, 17), floats(2, 3, 4), floats(7), floats(0, 3), floats(3, 0)]
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


@pytest.mark.parametrize("x", [*ROWS, ODD_ROWS, floats(4, 3).astype(np.float64)])
def test_softmax_of_short_rows(x: np.ndarray):
    name = "float" if x.dtype == np.float32 else "double"
    dims = ", ".join("ABC"[: x.ndim])
    source = model(f"({name}[{dims}] x) => ({name} y) {{ y = Softmax<axis = -1>(x) }}")
    assert graph_of(source, "rows") == "onnx_torch::softmax"
    check_equal(source, [x])


def test_softmax_over_another_dimension():
    source = model("(float[A, B, C] x) => (float y) { y = Softmax<axis = 1>(x) }")
    assert "onnx_torch::softmax" not in graph_of(source, "rows")
    check_equal(source, [floats(2, 3, 4)])


def long_rows(size: int) -> np.ndarray:
    """Rows with values that are large, not finite, or so small that their exponents are denormal."""
    x = 4 * floats(12, size)
    x[0, size // 2], x[1, -1], x[2, 0], x[3] = np.nan, np.inf, -np.inf, -np.inf
    x[4, ::2], x[5], x[6, 0], x[7, -1] = -1e30, 1e30, 95.0, 3e38
    x[8, 0], x[9], x[9, 1:] = 0, 88.0, 0
    return x


@pytest.mark.parametrize("size", [2, 31, 32, 33, 49, 64, 100, 1500])
def test_softmax_of_long_rows(size: int):
    source = model("(float[A, B] x) => (float y) { y = Softmax<axis = -1>(x) }")
    x = long_rows(size)
    ours, plain = (onnx_torch.prepare(source, optimize=on).run([x])[0] for on in (True, False))
    np.testing.assert_allclose(ours, plain, rtol=3e-6, atol=1e-44)
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
    """As exact as a mean of that size is in float32."""
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
    check_equal(source, [x])


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
    """Of equal ones the first, and of those that are NaN, wherever they lie in memory."""
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


def elements_to_rank(dtype: Any, sizes: tuple[int, ...]) -> Iterator[np.ndarray]:
    """Many equal ones; the whole range; for floats, those that are ordered in their own way."""
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


# --- halves -----------------------------------------------------------------------------------------------------------


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
    floats_of = {name: value.astype(np.float32) for name, value in used_in(text, weights).items()}
    in_floats = onnx_torch.prepare(model(text.replace("float16", "float"), **floats_of))
    [ours], [expected] = onnx_torch.prepare(source).run(inputs), in_floats.run([x.astype(np.float32) for x in inputs])
    assert ours.dtype == np.float16
    np.testing.assert_allclose(ours, expected, rtol=2e-3, atol=2e-3)


def test_products_of_halves_are_rounded_once():
    """What float16 cannot hold on the way to a sum is no matter; what it cannot hold in the end is infinite."""
    source = model("(float16[N, 3] x) => (float16 y) { y = MatMul(x, w) }", w=np.full((3, 1), 8, np.float16))
    x = np.float16([[60000, -60000, 1], [60000, 60000, 1]])
    np.testing.assert_array_equal(onnx_torch.prepare(source).run([x])[0], np.float16([[8], [np.inf]]))


def test_floats_stay_as_they_are_beside_halves():
    source = model("(float[N, 8] x) => (float y) { y = MatMul(x, w) }", w=(8, 6))
    assert "aten::to" not in graph_of(source, "halves")


# --- rotary -----------------------------------------------------------------------------------------------------------


def rotary(
    body: str = "y = Add(u, v)", rank: int = 2, half: int = 4, end: int = 2**63 - 1, axis: int = -1, name: str = "float"
) -> onnx.ModelProto:
    """Heads of 8 elements, turned as Llama's exports write it, by factors of this rank; `body` is what comes last."""
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
    """ONNX's own; it turns neighbours, where interleaved, and the first elements of a row, where not all."""
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
        check_equal(source, [x, *factors, RNG.integers(0, 800, (2, rows))])


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
    """Where it is not twice the half, what is computed looks like it, and is something else."""
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


# --- copies -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("dtype", ["float", "bool", "float16", "int64", "complex128"])
@pytest.mark.parametrize("order", [[0, 1, 2, 3], [3, 2, 1, 0], [0, 2, 3, 1], [0, 3, 1, 2], [1, 0, 3, 2]])
def test_moved_elements(dtype: str, order: list[int]):
    """What a reshape copies, and results, are brought into order by a copy of ours."""
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
    if element in ("float", "uint8"):
        assert "onnx_torch::upsample_nearest2d" in graph_of(source, "copies")
    x = 10 * floats(2, 6, 8, 18) if channels_last else 10 * floats(2, 18, 6, 8)
    x = np.abs(x).astype({"float": np.float32, "double": np.float64, "float16": np.float16, "uint8": np.uint8}[element])
    check_equal(source, [x])
    check_equal(source, [x[:0]])


@pytest.mark.parametrize(
    ("rows", "sizes"),
    [
        (1, (64, 128)),
        (4, (7, 10)),
        (5, (64, 33)),
        (3, (1, 17)),
        (2, (130, 1)),
        (100, (20, 3)),
        (128, (1, 16)),
        (129, (8, 8)),
    ],
)
@pytest.mark.parametrize("after", ["Relu(g)", "Identity(g)", "Sigmoid(g)"])
def test_small_products(rows: int, sizes: tuple[int, int], after: str):
    """A small product is computed without a primitive; a NaN stays one."""
    source = model(f"(float[A, {sizes[0]}] x) => (float y) {{ g = Gemm(x, w, b) y = {after} }}", w=sizes, b=(sizes[1],))
    x = floats(rows, sizes[0])
    check_equal(source, [x])
    x[-1, 0] = np.nan
    check_equal(source, [x])
    x[-1, 0] = np.inf
    check_equal(source, [x])
    turned = model(f"(float[{sizes[0]}, A] x) => (float y) {{ t = Transpose(x) y = MatMul(t, w) }}", w=sizes)
    check_equal(turned, [floats(sizes[0], rows)])


@pytest.mark.parametrize("sizes", [(770, 513), (512, 300), (1301, 101), (4100, 40), (9000, 17)])
@pytest.mark.parametrize("after", ["Relu(g)", "Gelu(g)", "Add(g, r)", "Add(r, g)", "Mul(g, r)", "Identity(g)"])
@pytest.mark.parametrize("shape", ["A", "1, 1, A"])
def test_products_of_one_row(sizes: tuple[int, int], after: str, shape: str):
    """A product of one row is computed without a primitive, with the weight as oneDNN lays it out; a NaN stays one."""
    source = model(
        f"(float[{shape}] x, float[B] r) => (float y) {{ m = MatMul(x, w) g = Add(m, b) y = {after} }}",
        w=sizes,
        b=(sizes[1],),
    )
    assert graph_of(source, "pack").splitlines()[0] == "onnx_torch::packed"
    x = floats(*((sizes[0],) if shape == "A" else (1, 1, sizes[0]))) / 32
    r = floats(sizes[1])
    check_equal(source, [x, r])
    x.flat[-1] = np.nan
    check_equal(source, [x, r])
    x.flat[-1] = np.inf
    if after == "Gelu(g)":
        check_gelu_of_product(source, [x, r], "w", "b")
    else:
        check_equal(source, [x, r])


@pytest.mark.parametrize("out", [24, 768])
@pytest.mark.parametrize("after", ["Relu(c)", "HardSigmoid<alpha = 0.16666667>(c)", "Add(c, r)", "Identity(c)"])
def test_images_of_one_pixel_and_of_more(out: int, after: str):
    """Those of one pixel are rows that take no primitive; others may come in the same model."""
    source = model(
        f"(float[N, 512, H, W] x, float[{out}, 1, 1] r) => (float y) {{ c = Conv(x, w, b) y = {after} }}",
        w=(out, 512, 1, 1),
        b=(out,),
    )
    prepared, plain = onnx_torch.prepare(source), onnx_torch.prepare(source, optimize=False)
    r = floats(out, 1, 1)
    for shape in ((1, 1, 1), (4, 1, 1), (1, 3, 2), (5, 1, 1), (0, 1, 1), (1, 1, 1), (1, 1, 7)):
        x = floats(shape[0], 512, *shape[1:])
        np.testing.assert_allclose(prepared.run([x, r])[0], plain.run([x, r])[0], rtol=1e-4, atol=1e-4)


def test_one_row_and_many_share_the_weight():
    source = model("(float[A, 512] x) => (float y) { y = MatMul(x, w) }", w=(512, 768))
    prepared, plain = onnx_torch.prepare(source), onnx_torch.prepare(source, optimize=False)
    for rows in (1, 64, 0, 1, 2):
        x = floats(rows, 512)
        np.testing.assert_allclose(prepared.run([x])[0], plain.run([x])[0], rtol=1e-4, atol=1e-4)


ROW_OPERATORS = {
    "Softmax": "Softmax(e)",
    "LayerNormalization": "LayerNormalization(e, s, b)",
    "RMSNormalization": "RMSNormalization(e, s)",
    "GroupNormalization": "GroupNormalization<num_groups = 4>(c, cs, cb)",
}


@pytest.mark.parametrize("name", ROW_OPERATORS)
@pytest.mark.parametrize("again", [False, True])
def test_rows_are_left_where_they_lay_unless_they_are_read_again(name: str, again: bool):
    """What is read once more, given back, or a caller's keeps its elements."""
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


# --- Options ----------------------------------------------------------------------------------------------------------

CONV_RELU = model("(float[1, 6, 8, 8] x) => (float y) { c = Conv(x, w) y = Relu(c) }", w=(8, 6, 1, 1))


def test_passes_are_listed_and_left_out_by_name():
    names = list(onnx_torch.backend.passes())
    assert names == list(onnx_torch.prepare(CONV_RELU).graphs())[2:]
    assert all(onnx_torch.backend.passes().values())
    plain = onnx_torch.prepare(CONV_RELU, optimize=False)
    assert list(plain.graphs()) == ["translate", "place"]
    assert code(plain.graph()) == code(onnx_torch.prepare(CONV_RELU, disabled_passes=names).graph())
    assert "aten::relu" in onnx_torch.prepare(CONV_RELU, disabled_passes=["pack"]).graph()
    assert onnx_torch.prepare(CONV_RELU, disabled_passes=["pack"]).options["disabled_passes"] == {"pack"}
    with pytest.raises(
        onnx_torch.InputError,
        match='no pass "packed" to disable; there are fold, kernels, blocks, recurrent_steps, quantized',
    ):
        onnx_torch.prepare(CONV_RELU, disabled_passes=["packed"])


def test_graphs_are_dumped_before_and_after_the_passes_named(monkeypatch, capfd):
    monkeypatch.setenv("ONNX_TORCH_DUMP", "pack")
    onnx_torch.prepare(CONV_RELU)
    before, after = capfd.readouterr().err.split("# after pack")
    assert before.startswith("# before pack\n")
    assert "aten::relu" in before
    assert "aten::relu" not in after
    monkeypatch.setenv("ONNX_TORCH_DUMP", "all")
    onnx_torch.prepare(CONV_RELU)
    shown = re.findall("^# before (.*)$", capfd.readouterr().err, re.MULTILINE)
    assert shown == list(onnx_torch.backend.passes())


def test_a_model_with_gradients_is_left_as_it_is():
    source = model("(float[2] x) => (float[2] y) { y = Exp(x) }")
    gradient = onnx.helper.make_node("Gradient", ["x"], ["g"], domain="ai.onnx.preview.training", xs=["x"], y="y")
    source.graph.node.append(gradient)
    source.graph.output.append(onnx.helper.make_tensor_value_info("g", onnx.TensorProto.FLOAT, [2]))
    source.opset_import.append(onnx.helper.make_opsetid("ai.onnx.preview.training", 1))
    assert list(onnx_torch.prepare(source).graphs()) == ["translate", "place"]


# --- Layouts ----------------------------------------------------------------------------------------------------------


def behind_a_convolution(case: Case) -> onnx.ModelProto:
    """The case with its first input copied by a convolution, which hands it on with the channels innermost."""
    source = onnx.ModelProto()
    source.CopyFrom(case.model)
    name = source.graph.input[0].name
    for node in source.graph.node:
        node.input[:] = ["copied" if i == name else i for i in node.input]
    channels, rank = source.graph.input[0].type.tensor_type.shape.dim[1].dim_value, len(case.data_sets[0][0][0].shape)
    weight = np.eye(channels, dtype=np.float32).reshape([channels, channels] + [1] * (rank - 2))
    source.graph.initializer.append(numpy_helper.from_array(weight, "identity"))
    source.graph.node.insert(0, onnx.helper.make_node("Conv", [name, "identity"], ["copied"]))
    return source


def takes_a_picture(case: Case) -> bool:
    inputs = case.data_sets[0][0]
    finite = bool(inputs) and isinstance(inputs[0], np.ndarray) and inputs[0].dtype == np.float32
    wanted = finite and inputs[0].ndim in (4, 5) and inputs[0].size > 0 and np.isfinite(inputs[0]).all()
    subgraphs = any(attribute.HasField("g") for node in case.model.graph.node for attribute in node.attribute)
    standard = {entry.domain: entry.version for entry in case.model.opset_import}.get("", 0) >= 11
    return wanted and standard and not subgraphs and case.name not in SUBSTITUTES


PICTURES = [case for case in node_cases() if takes_a_picture(case)]


@pytest.mark.parametrize("case", PICTURES, ids=lambda case: case.name)
def test_official_cases_take_channels_last(case: Case):
    source = behind_a_convolution(case)
    check(dataclasses.replace(case, model=source), lambda given: onnx_torch.prepare(given).run)


def test_there_are_pictures():
    assert len(PICTURES) > 200
