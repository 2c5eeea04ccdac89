"""The pass `layout`: reshapes and permutations in the fewest steps."""

from __future__ import annotations

import itertools
import math
import re
from pathlib import Path

import numpy as np
import onnx
import pytest

import onnx_torch
from models import run_apart
from pass_models import assert_close, check_equal, exact_runs, floats, graph_of, model, used_in

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
    "around a constant of several dimensions": (
        "a = Unsqueeze(x, zero)  c = Add(a, parts)  y = Squeeze(c, zero)",
        "aten::add",
    ),
    "around a constant of one number": (
        "a = Unsqueeze(x, zero)  c = Add(a, single)  y = Squeeze(c, zero)",
        "aten::add",
    ),
    "around a constant that other dimensions would be parted by": (
        "a = Reshape(x, s6_4)  c = Add(a, row)  y = Reshape(c, s2_3_4)",
        "aten::reshape\naten::add\naten::reshape",
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
    "a pad of nothing": ("a = Transpose(x)  b = Pad(a, none)  y = Transpose(b)", ""),
    "a pad of something": ("a = Pad(x, some)  y = Relu(a)", "aten::constant_pad_nd\naten::relu"),
}


def layout_model(body: str, dims: str = "2, 3, 4") -> onnx.ModelProto:
    shapes = {
        f"s{'_'.join(map(str, sizes))}": np.array(sizes)
        for sizes in [(24,), (6, 4), (4, 6), (2, 3, 4), (4, 2, 3), (2, 3, 2, 2), (2, 3, 5), (3, 2, 5)]
    }
    weights = {"zero": np.array([0]), "one": np.array([1]), "two": np.float32(2), "w": floats(4, 5), "bias": floats(5)}
    weights |= {"each": floats(4, 1), "full": floats(2, 4, 3), "other": floats(3, 2, 5)}
    weights |= {"parts": floats(2, 1, 4), "single": floats(1, 1), "row": floats(6, 4)}
    weights |= {"none": np.zeros(6, np.int64), "some": np.int64([0, 0, 0, 1, 0, -1])}
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
    """The views are reshapes and transposes in turn."""
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
    assert len(views.findall(graph_of(source, "layout"))) <= min(3, len(views.findall(graph_of(source, "activations"))))
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
    """A size that is open may be 1 in one operand."""
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
    ((exact,),) = exact_runs(source, [[x]])
    memory = {"GLIBC_TUNABLES": "glibc.malloc.tcache_count=0", "MALLOC_PERTURB_": "255"}
    (y,) = run_apart(source, [x], tmp_path, **memory)
    assert_close(y, exact, ulps=4)


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
