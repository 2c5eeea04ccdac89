"""onnx_torch.optimize: each rewrite, what it must leave alone, and that models give the same before and after."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

import onnx_torch
from official import check as check_case
from official import node_cases, with_initializers, with_symbolic_dims
from onnx_torch.optimizer import LEVELS
from onnx_torch.optimizer._table import REWRITES
from random_numbers import RNG

DOCS = Path(__file__).resolve().parents[2] / "docs" / "optimizer.md"


def parsed(text: str, opset: int = 21) -> onnx.ModelProto:
    return onnx.parser.parse_model(f'<ir_version: 10, opset_import: ["" : {opset}]> g {text}')


def with_weights(model: onnx.ModelProto, **arrays: np.ndarray) -> onnx.ModelProto:
    model.graph.initializer.extend(numpy_helper.from_array(array, name) for name, array in arrays.items())
    return model


def operators(model: onnx.ModelProto) -> list[str]:
    return [node.op_type for node in model.graph.node]


def fed(model: onnx.ModelProto) -> dict[str, np.ndarray]:
    """Draws elements for each input; open dimensions have sizes of their own."""
    sizes: dict[str, int] = {}
    feeds = {}
    for value in model.graph.input:
        if any(value.name == tensor.name for tensor in model.graph.initializer):
            continue
        dims = value.type.tensor_type.shape.dim
        shape = [dim.dim_value or sizes.setdefault(dim.dim_param, 2 + len(sizes)) for dim in dims]
        dtype = helper.tensor_dtype_to_np_dtype(value.type.tensor_type.elem_type)
        feeds[value.name] = (RNG.standard_normal(shape) * 3).astype(dtype)
    return feeds


def check(model: onnx.ModelProto, expected: list[str], level: str = "basic") -> onnx.ModelProto:
    """Gives the optimized model, which must have these operators and give the same."""
    before = model.SerializeToString()
    made = onnx_torch.optimize(model, level)
    assert model.SerializeToString() == before, "the model that was given has changed"
    assert operators(made) == expected
    onnx.checker.check_model(onnx.shape_inference.infer_shapes(made, strict_mode=True))
    feeds = fed(model)
    theirs = onnx_torch.prepare(model, optimize=False).run(feeds)
    ours = onnx_torch.prepare(made, optimize=False).run(feeds)
    for one, other in zip(ours, theirs, strict=True):
        assert one.dtype == other.dtype
        np.testing.assert_allclose(one, other, rtol=2e-5, atol=1e-5)
    return made


# --- Basic rewrites ---------------------------------------------------------------------------------------------------


def test_what_follows_from_constants_is_computed():
    model = parsed(
        "(float[n,2] x) => (float[n,2] y) <float[2] a = {1, 2}> { b = Exp(a) \n c = Constant<value_float = 2.0>() \n"
        " d = Mul(b, c) \n y = Add(x, d) }"
    )
    made = check(model, ["Add"])
    assert len(made.graph.initializer) == 1


def test_what_fails_is_left_to_a_run():
    model = parsed(
        "(float[n] x) => (float[n] y) <float[2] a = {1, 2}, int64[1] sizes = {3}> { b = Reshape(a, sizes) \n"
        " y = Add(x, b) }"
    )
    assert operators(onnx_torch.optimize(model)) == ["Reshape", "Add"]


def test_random_numbers_and_large_results_are_not_folded():
    model = parsed(
        "(float[n] x) => (float[n] y) <int64[1] many = {10000000}, float one = {1}> { r = RandomNormal<shape=[1]>() \n"
        " l = Expand(one, many) \n s = ReduceSum<keepdims=0>(l) \n t = Add(x, r) \n y = Add(t, s) }"
    )
    made = onnx_torch.optimize(model)
    assert "RandomNormal" in operators(made)
    assert made.ByteSize() < 2**20


def test_an_initializer_that_may_be_fed_is_no_constant():
    model = parsed("(float[n] x, float[1] a) => (float[n] y) <float[1] a = {1}> { b = Exp(a) \n y = Add(x, b) }")
    assert operators(onnx_torch.optimize(model)) == ["Exp", "Add"]
    model.ir_version = 3
    made = onnx_torch.optimize(model)
    assert operators(made) == ["Add"]
    assert [value.name for value in made.graph.input] == ["x"]


def test_nodes_that_nothing_reads_are_taken_out():
    model = parsed("(float[n] x) => (float[n] y) <float[1] a = {1}> { z = Exp(x) \n w = Add(z, a) \n y = Relu(x) }")
    made = check(model, ["Relu"])
    assert not made.graph.initializer


def test_equal_nodes_and_constants_are_one():
    model = parsed(
        "(float[n] x) => (float[n] y) <float[1] a = {3}, float[1] b = {3}> { p = Mul(x, a) \n q = Mul(x, b) \n"
        " r = Exp(p) \n s = Exp(q) \n y = Add(r, s) }"
    )
    made = check(model, ["Mul", "Exp", "Add"])
    assert len(made.graph.initializer) == 1


def test_equal_nodes_stay_where_both_are_outputs_or_numbers_are_random():
    both = parsed("(float[n] x) => (float[n] y, float[n] z) { y = Exp(x) \n z = Exp(x) }")
    assert operators(onnx_torch.optimize(both)) == ["Exp", "Exp"]
    drawn = parsed(
        "(float[n] x) => (float[n] y) { a = RandomNormalLike(x) \n b = RandomNormalLike(x) \n y = Sub(a, b) }"
    )
    assert operators(onnx_torch.optimize(drawn)) == ["RandomNormalLike", "RandomNormalLike", "Sub"]


IDENTITIES = {
    "Identity": "t = Identity(x)",
    "Dropout": "t = Dropout(x)",
    "Cast": "t = Cast<to=1>(x)",
    "CastLike": "t = CastLike(x, f)",
    "Transpose": "t = Transpose<perm=[0, 1]>(x)",
    "Reshape": "t = Reshape(x, keep)",
    "Reshape to -1": "t = Reshape(x, rest)",
    "Expand": "t = Expand(x, ones)",
    "Concat": "t = Concat<axis=1>(x)",
    "Sum": "t = Sum(x)",
    "Max": "t = Max(x)",
    "Split": "t = Split<axis=1, num_outputs=1>(x)",
    "Pad": "t = Pad(x, none)",
    "Tile": "t = Tile(x, ones)",
    "Slice": "t = Slice(x, starts, ends, axes)",
    "Slice to a size": "t = Slice(x, starts, size, axes)",
    "Add": "t = Add(x, zero)",
    "Add to a row": "t = Add(row, x)",
    "Sub": "t = Sub(x, zero)",
    "Mul": "t = Mul(one, x)",
    "Div": "t = Div(x, one)",
    "Pow": "t = Pow(x, one)",
    "Where": "t = Where(yes, x, f)",
}


@pytest.mark.parametrize("name", IDENTITIES)
def test_what_gives_what_it_is_given_is_taken_out(name):
    model = parsed(
        "(float[n,4] x) => (float[n,4] y) <float zero = {0}, float[1,1] one = {1}, float[4] row = {0, 0, 0, 0}, "
        "float[1,4] f = {5, 6, 7, 8}, int64[2] ones = {1, 1}, int64[4] none = {0, 0, 0, 0}, int64[2] keep = {0, 4}, "
        "int64[2] rest = {-1, 4}, int64[1] starts = {0}, int64[1] ends = {9223372036854775807}, int64[1] size = {4}, "
        f"int64[1] axes = {{1}}, bool[1] yes = {{1}}> {{ {IDENTITIES[name]} \n y = Exp(t) }}"
    )
    check(model, ["Exp"])


CHANGING = {
    "Add that widens": ("t = Add(x, wide)", "Add"),
    "Add of one": ("t = Add(x, one)", "Add"),
    "Mul by one that widens": ("t = Mul(x, high)", "Mul"),
    "Slice": ("t = Slice(x, starts, ends, axes)", "Slice"),
    "Slice of an open size": ("t = Slice(x, zero, starts, zero)", "Slice"),
    "Pad": ("t = Pad(x, some)", "Pad"),
    "Reshape": ("t = Reshape(x, turned)", "Reshape"),
    "Concat": ("t = Concat<axis=0>(x, x)", "Concat"),
    "Expand": ("t = Expand(x, more)", "Expand"),
    "training": ("t = Dropout(x, rate, yes)", "Dropout"),
}


@pytest.mark.parametrize("name", CHANGING)
def test_what_changes_something_stays(name):
    node, operator = CHANGING[name]
    model = parsed(
        "(float[n,4] x) => (y) <float[3,1,1] wide = {0, 0, 0}, float[1] one = {1}, float[1,1,1] high = {1}, "
        "int64[1] starts = {1}, int64[1] zero = {0}, int64[1] ends = {9223372036854775806}, int64[1] axes = {1}, "
        "int64[4] some = {0, 1, 0, 0}, int64[2] turned = {4, -1}, int64[3] more = {3, 1, 1}, float rate = {0.5}, "
        f"bool yes = {{1}}> {{ {node} \n y = Exp(t) }}"
    )
    assert operators(onnx_torch.optimize(model)) == [operator, "Exp"]


MOVEMENT = {
    "transposes that cancel": ("a = Transpose<perm=[1,0,2]>(x) \n t = Transpose<perm=[1,0,2]>(a)", []),
    "transposes": ("a = Transpose<perm=[1,0,2]>(x) \n t = Transpose<perm=[2,0,1]>(a)", ["Transpose"]),
    "reversed transposes": ("a = Transpose(x) \n t = Transpose(a)", []),
    "reshapes": ("a = Reshape(x, flat) \n t = Reshape(a, matrix)", ["Reshape"]),
    "reshapes that cancel": ("a = Reshape(x, flat) \n t = Reshape(a, back)", []),
    "unsqueezes": ("a = Unsqueeze(x, first) \n t = Unsqueeze(a, last)", ["Unsqueeze"]),
    "squeeze of an unsqueeze": ("a = Unsqueeze(x, first) \n t = Squeeze(a, first)", []),
    "flatten of a reshape": ("a = Reshape(x, flat) \n t = Flatten(a)", ["Reshape"]),
    "casts": ("a = Cast<to=11>(x) \n t = Cast<to=1>(a)", []),
    "casts to a narrower type": ("a = Cast<to=10>(x) \n t = Cast<to=1>(a)", ["Cast", "Cast"]),
    "slices": ("a = Slice(x, one, two, first) \n t = Slice(a, one, two, last)", ["Slice"]),
    "slices of one axis": ("a = Slice(x, none, two, last) \n t = Slice(a, one, two, last)", ["Slice", "Slice"]),
    "single ones": ("a = Reshape(x, tall) \n t = Transpose<perm=[1,0,2]>(a)", ["Reshape"]),
    "around Relu": ("a = Reshape(x, flat) \n b = Relu(a) \n t = Reshape(b, back)", ["Relu"]),
    "transposes around Relu": ("a = Transpose(x) \n b = Relu(a) \n t = Transpose(b)", ["Relu"]),
    "matrices in a row": (
        "a = Reshape(x, row) \n b = Transpose<perm=[0,2,1]>(a) \n t = Reshape(b, swapped)",
        ["Transpose"],
    ),
}


@pytest.mark.parametrize("name", MOVEMENT)
def test_nodes_that_move_elements_are_joined(name):
    nodes, expected = MOVEMENT[name]
    model = parsed(
        "(float[2,3,4] x) => (y) <int64[1] flat = {-1}, int64[2] matrix = {4, 6}, int64[3] back = {2, 3, 4}, "
        "int64[1] first = {0}, int64[1] last = {2}, int64[1] none = {0}, int64[1] one = {1}, int64[1] two = {2}, "
        "int64[3] tall = {1, 6, 4}, int64[3] row = {-1, 3, 4}, int64[3] swapped = {2, 4, 3}> "
        f"{{ {nodes} \n y = Exp(t) }}"
    )
    check(model, [*expected, "Exp"])


def test_sizes_that_are_known_are_constants():
    model = parsed(
        "(float[n,3,4] x) => (y) <int64 zero = {0}, int64 two = {2}, int64[1] axis = {0}, int64[1] rest = {-1}> {"
        " shape = Shape(x) \n n = Gather(shape, zero) \n m = Gather(shape, two) \n ns = Unsqueeze(n, axis) \n"
        " ms = Unsqueeze(m, axis) \n sizes = Concat<axis=0>(ns, rest, ms) \n two_d = Concat<axis=0>(rest, ms) \n"
        " a = Reshape(x, two_d) \n b = Softmax(a) \n t = Reshape(b, sizes) \n y = Exp(t) }"
    )
    made = onnx_torch.optimize(model)
    assert operators(made) == ["Shape", "Concat", "Reshape", "Softmax", "Reshape", "Exp"]
    check(model, operators(made))


def test_a_size_that_stays_is_copied():
    model = parsed(
        "(float[n,m,4] x) => (y) <int64[2] halves = {2, 2}> { sizes = Shape<start=0, end=2>(x) \n"
        " all = Concat<axis=0>(sizes, halves) \n y = Reshape(x, all) }"
    )
    made = check(model, ["Reshape"])
    assert numpy_helper.to_array(made.graph.initializer[0]).tolist() == [0, 0, 2, 2]


def test_expanding_to_what_is_there_is_nothing():
    model = parsed("(float[n,m] x) => (y) { s = Shape(x) \n a = Expand(x, s) \n y = Exp(a) }")
    check(model, ["Exp"])


def convolution(kind: str) -> onnx.ModelProto:
    inputs = {"Conv": "float[2,4,5,5]", "Conv without bias": "float[2,4,5,5]", "ConvTranspose": "float[2,4,5,5]"}
    nodes = {
        "Conv": "a = Conv<group=2>(x, w, b)",
        "Conv without bias": "a = Conv<group=2>(x, w)",
        "ConvTranspose": "a = ConvTranspose<group=2>(x, w, b)",
        "Gemm": "a = Gemm<alpha=0.5, beta=2.0>(x, w, b)",
        "Gemm, transposed": "a = Gemm<transB=1>(x, w, b)",
    }
    shapes = {"ConvTranspose": (4, 3, 3, 3), "Gemm": (4, 6), "Gemm, transposed": (6, 4)}
    model = parsed(
        f"({inputs.get(kind, 'float[2,4]')} x) => (y) {{ {nodes[kind]} \n"
        " t = BatchNormalization<epsilon=0.001>(a, scale, shift, mean, variance) \n y = Exp(t) }"
    )
    arrays = {name: RNG.random(6, np.float32) for name in ("b", "scale", "shift", "mean", "variance")}
    weight = RNG.standard_normal(shapes.get(kind, (6, 2, 3, 3))).astype(np.float32) / 8
    return with_weights(model, w=weight, **arrays)


@pytest.mark.parametrize("kind", ["Conv", "Conv without bias", "ConvTranspose", "Gemm", "Gemm, transposed"])
def test_batch_normalization_goes_into_weights(kind):
    check(convolution(kind), [kind.split()[0].strip(","), "Exp"])


def test_batch_normalization_stays_where_the_result_is_read_elsewhere():
    model = convolution("Conv")
    model.graph.output.append(helper.make_tensor_value_info("a", TensorProto.FLOAT, None))
    assert "BatchNormalization" in operators(onnx_torch.optimize(model))


def test_padding_goes_into_a_convolution():
    text = (
        "(float[1,2,5,5] x) => (y) <int64[8] pads = {{0, 0, 1, 2, 0, 0, 3, 0}}, float v = {{{}}}> {{"
        " p = Pad(x, pads, v) \n a = Conv<pads=[1,0,0,1]>(p, w) \n y = Exp(a) }}"
    )
    weight = RNG.standard_normal((3, 2, 3, 3)).astype(np.float32)
    made = check(with_weights(parsed(text.format(0)), w=weight), ["Conv", "Exp"])
    (pads,) = [list(entry.ints) for entry in made.graph.node[0].attribute if entry.name == "pads"]
    assert pads == [2, 2, 3, 1]
    check(with_weights(parsed(text.format(1)), w=weight), ["Pad", "Conv", "Exp"])


# --- Extended rewrites ------------------------------------------------------------------------------------------------

GELU = {
    "halved last": "a = Div(x, root2) \n b = Erf(a) \n c = Add(b, one) \n d = Mul(x, c) \n y = Mul(d, half)",
    "halved first": "a = Mul(x, root) \n b = Erf(a) \n c = Add(one, b) \n h = Mul(half, x) \n y = Mul(h, c)",
    "halved between": "a = Mul(x, root) \n b = Erf(a) \n c = Add(b, one) \n d = Mul(c, half) \n y = Mul(x, d)",
}
TANH = {
    "powers": "p = Pow(x, three) \n q = Mul(p, small) \n r = Add(x, q)",
    "products": "p = Mul(x, x) \n p3 = Mul(x, p) \n q = Mul(small, p3) \n r = Add(q, x)",
}
NUMBERS = (
    "<float root = {0.70710678}, float root2 = {1.41421356}, float one = {1}, float half = {0.5}, float three = {3}, "
    "float small = {0.044715}, float wide = {0.79788456}, float two = {2}>"
)


@pytest.mark.parametrize("name", GELU)
def test_gelu_is_recognized(name):
    made = check(parsed(f"(float[n,4] x) => (float[n,4] y) {NUMBERS} {{ {GELU[name]} }}"), ["Gelu"], "extended")
    assert not made.graph.initializer


@pytest.mark.parametrize("name", TANH)
def test_gelu_by_tanh_is_recognized(name):
    nodes = f"{TANH[name]} \n s = Mul(r, wide) \n t = Tanh(s) \n u = Add(t, one) \n h = Mul(x, half) \n y = Mul(h, u)"
    made = check(parsed(f"(float[n,4] x) => (float[n,4] y) {NUMBERS} {{ {nodes} }}"), ["Gelu"], "extended")
    assert made.graph.node[0].attribute[0].s == b"tanh"


def test_what_is_nearly_gelu_stays():
    wrong = GELU["halved last"].replace("half", "two")
    for text in (wrong, GELU["halved last"].replace("root2", "one")):
        model = parsed(f"(float[n,4] x) => (float[n,4] y) {NUMBERS} {{ {text} }}")
        assert "Gelu" not in operators(onnx_torch.optimize(model))
    old = parsed(f"(float[n,4] x) => (float[n,4] y) {NUMBERS} {{ {GELU['halved last']} }}", 19)
    assert "Gelu" not in operators(onnx_torch.optimize(old))


NORMALIZED = (
    "m = ReduceMean(x, axes) \n d = Sub(x, m) \n q = {square} \n v = ReduceMean(q, axes) \n e = Add(v, eps) \n"
    " s = Sqrt(e) \n n = Div(d, s)"
)


@pytest.mark.parametrize("square", ["Pow(d, two)", "Mul(d, d)"])
@pytest.mark.parametrize("ending", ["w = Mul(n, weight) \n y = Add(w, bias)", "y = Mul(weight, n)", "y = Exp(n)"])
def test_layer_normalization_is_recognized(square, ending):
    model = parsed(
        "(float[n,4] x) => (float[n,4] y) <int64[1] axes = {-1}, float two = {2}, float eps = {0.001}, "
        f"float[4] weight = {{1, 2, 3, 4}}, float[4] bias = {{5, 6, 7, 8}}> {{"
        f" {NORMALIZED.format(square=square)} \n {ending} }}"
    )
    check(model, ["LayerNormalization"] + ["Exp"] * ("Exp" in ending), "extended")


@pytest.mark.parametrize("axis", [0, 1])
def test_a_normalization_of_another_axis_stays(axis):
    text = NORMALIZED.format(square="Mul(d, d)")
    model = parsed(
        f"(float[3,4,5] x) => (float[3,4,5] y) <int64[1] axes = {{{axis}}}, float eps = {{0.001}}> {{"
        f" {text} \n y = Exp(n) }}"
    )
    assert "LayerNormalization" not in operators(onnx_torch.optimize(model))


RMS = {
    "reciprocal": "r = Reciprocal(s) \n n = Mul(x, r)",
    "quotient": "n = Div(x, s)",
    "one over": "r = Div(one, s) \n n = Mul(r, x)",
}


@pytest.mark.parametrize("name", RMS)
def test_rms_normalization_is_recognized(name):
    model = parsed(
        "(float[n,4] x) => (float[n,4] y) <int64[1] axes = {-1}, float two = {2}, float eps = {0.001}, "
        "float one = {1}, float[4] weight = {1, 2, 3, 4}> {"
        " q = Pow(x, two) \n m = ReduceMean(q, axes) \n e = Add(m, eps) \n"
        f" s = Sqrt(e) \n {RMS[name]} \n y = Mul(weight, n) }}",
        23,
    )
    check(model, ["RMSNormalization"], "extended")


# The ways in which queries, keys and scores are scaled and masked, and what is left of them.
ATTENTION = {
    "plain": ("k = Transpose<perm = [0, 1, 3, 2]>(a)", "s = MatMul(q, k)", ["Attention"]),
    "scores are scaled": (
        "k = Transpose<perm = [0, 1, 3, 2]>(a)",
        "p = MatMul(q, k) \n s = Div(p, three)",
        ["Attention"],
    ),
    "both are scaled": (
        "r = Mul(q, half) \n b = Transpose<perm = [0, 1, 3, 2]>(a) \n k = Mul(half, b)",
        "s = MatMul(r, k)",
        ["Attention"],
    ),
    "masked": ("k = Transpose<perm = [0, 1, 3, 2]>(a)", "p = MatMul(q, k) \n s = Add(p, mask)", ["Attention"]),
    "mask first": ("k = Transpose<perm = [0, 1, 3, 2]>(a)", "p = MatMul(q, k) \n s = Add(small, p)", ["Attention"]),
    "keys lie otherwise": ("k = Transpose<perm = [0, 2, 3, 1]>(c)", "s = MatMul(q, k)", ["Transpose", "Attention"]),
}


def attention(keys: str, scores: str, end: str = "w = Softmax(s) \n y = MatMul(w, v)") -> onnx.ModelProto:
    return parsed(
        "(float[b,2,n,4] q, float[b,2,m,4] a, float[b,m,2,4] c, float[b,2,m,5] v, float[b,1,n,m] mask,"
        " float[n,m] small, float[1,1,1,1] one) => (y) <float three = {3}, float half = {0.5},"
        f" float[1] minus = {{-1}}> {{ {keys} \n {scores} \n {end} }}",
        23,
    )


@pytest.mark.parametrize("name", ATTENTION)
def test_attention_is_recognized(name):
    keys, scores, expected = ATTENTION[name]
    check(attention(keys, scores), expected, "extended")


@pytest.mark.parametrize(
    "parts",
    [
        ("k = Transpose<perm = [0, 1, 3, 2]>(a)", "p = MatMul(q, k) \n s = Mul(p, minus)"),
        ("k = Transpose<perm = [0, 1, 3, 2]>(a)", "p = MatMul(q, k) \n s = Add(p, one)"),
        ("k = Transpose<perm = [0, 1, 3, 2]>(a)", "s = MatMul(q, k)", "w = Softmax<axis = 1>(s) \n y = MatMul(w, v)"),
        ("k = Transpose<perm = [0, 1, 3, 2]>(a)", "s = MatMul(q, k)", "w = Softmax(s) \n z = MatMul(w, v) \n"
         " t = ReduceSum(w) \n y = Add(z, t)"),
    ],
    ids=["negative", "a mask of one number", "another axis", "weights that are read elsewhere"],
)  # fmt: skip
def test_what_is_nearly_attention_stays(parts):
    model = attention(*parts)
    check(model, operators(model), "extended")


def test_products_of_one_value_are_one():
    model = parsed(
        "(float[n,4] x) => (y) { a = MatMul(x, p) \n b = MatMul(x, q) \n c = MatMul(x, r) \n d = Add(a, b) \n"
        " y = Mul(d, c) }"
    )
    weights = {name: RNG.standard_normal((4, 3)).astype(np.float32) for name in "pqr"}
    check(with_weights(model, **weights), ["MatMul", "Split", "Add", "Mul"], "extended")


# --- Whole models -----------------------------------------------------------------------------------------------------


def test_subgraphs_keep_what_they_read():
    model = parsed("""(float[n] x, bool c) => (float[n] y) <float[1] a = {2}> {
        s = Identity(x)
        t = Mul(s, a)
        y = If (c) <
            then_branch = one () => (float[n] u) { u = Add(t, s) },
            else_branch = two () => (float[n] v) { v = Identity(s) }>
    }""")
    made = onnx_torch.optimize(model)
    onnx.checker.check_model(made)
    for c in (True, False):
        feeds = {"x": np.arange(3, dtype=np.float32), "c": np.array(c)}
        one, other = (onnx_torch.prepare(each).run(feeds)[0] for each in (made, model))
        np.testing.assert_array_equal(one, other)


def test_an_output_keeps_its_name_where_its_giver_is_an_input_or_a_constant():
    model = parsed("(float[n] x) => (float[n] y, float[1] z) <float[1] a = {2}> { y = Identity(x) \n z = Identity(a) }")
    made = onnx_torch.optimize(model)
    onnx.checker.check_model(made)
    assert [value.name for value in made.graph.output] == ["y", "z"]
    ours = onnx_torch.prepare(made).run([np.ones(3, np.float32)])
    assert [value.tolist() for value in ours] == [[1, 1, 1], [2]]


def test_external_data_is_read(tmp_path):
    model = with_weights(
        parsed("(float[n,64] x) => (y) { a = Identity(x) \n y = MatMul(a, w) }"), w=np.eye(64, dtype=np.float32)
    )
    onnx.save(model, tmp_path / "net.onnx", save_as_external_data=True, location="net.data")
    made = onnx_torch.optimize(tmp_path / "net.onnx")
    np.testing.assert_array_equal(numpy_helper.to_array(made.graph.initializer[0]), np.eye(64))


def test_an_unknown_level_is_an_error():
    with pytest.raises(ValueError, match="basic, extended"):
        onnx_torch.optimize(parsed("(float[n] x) => (float[n] y) { y = Exp(x) }"), "all")  # type: ignore[arg-type]


def test_the_page_lists_all_rewrites():
    rows = [f"| `{rewrite.name}` | {rewrite.level} | {rewrite.what} |" for rewrite in REWRITES]
    assert [line for line in DOCS.read_text().splitlines() if line.startswith("| `")] == rows
    assert {rewrite.level for rewrite in REWRITES} == set(LEVELS)


CASES = node_cases()


@pytest.mark.parametrize(
    "variant", [lambda case: case, with_symbolic_dims, with_initializers], ids=["as it is", "open", "constant"]
)
@pytest.mark.parametrize("part", range(4))
def test_official_cases_give_the_same(part, variant):
    """One in seven of ONNX's cases of single nodes, and its variants, give the same."""
    tried = 0
    for case in CASES[part::28]:
        made = variant(case)
        if made is not None:
            check_case(made, lambda model: onnx_torch.prepare(onnx_torch.optimize(model)).run)
            tried += 1
    assert tried > 10
