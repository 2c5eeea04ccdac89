"""The pass "chains": element-wise operators in one pass over memory give what ATen's operators give one by one."""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
import torch
from onnx import TensorProto, helper, numpy_helper, parser
from torch.nn.functional import silu

import onnx_torch
from models import allocations, on_each_cpu, run_on_cpu
from pass_models import check_equal
from random_numbers import RNG

BOUNDS = {"zero": np.array([0]), "one": np.array([1])}
SPECIAL = np.array(
    [np.nan, np.inf, -np.inf, 0.0, -0.0, 1e-40, -1e-40, 3e38, -3e38, 1.0, -1.0, 0.5, -3.0, 6.0], np.float32
)


def floats(*shape: int, special: bool = False) -> np.ndarray:
    values = RNG.standard_normal(shape, np.float32)
    return np.where(RNG.random(shape) < 0.3, RNG.choice(SPECIAL, shape), values) if special else values


def model(text: str, **weights: Any) -> onnx.ModelProto:
    parsed = parser.parse_model(f'<ir_version: 10, opset_import: ["": 23]> net {text}')
    for name, value in weights.items():
        parsed.graph.initializer.append(numpy_helper.from_array(np.asarray(value), name))
    return parsed


def calls(source: onnx.ModelProto) -> list[str]:
    """Names the operators of the lowered graph."""
    graph = onnx_torch.prepare(source).graphs()["chains"]
    return re.findall(r"= ((?:aten|onnx_torch|prim::(?:If|Loop))\S*?)\(", graph)


def check(
    source: onnx.ModelProto,
    *runs: Sequence[np.ndarray],
    chains: int | None = 1,
    rtol: float = 3e-7,
    atol: float = 1e-38,
    device: str = "CPU",
    signs: bool = True,
) -> None:
    """Checks that results are those without the pass, up to rounding in single functions; signs are those of zeros."""
    optimized, plain = onnx_torch.prepare(source, device), onnx_torch.prepare(source, device, optimize=False)
    if chains is not None:
        assert optimized.graphs()["chains"].count("onnx_torch::chain(") == chains
    for inputs in runs:
        for ours, expected in zip(optimized.run(inputs), plain.run(inputs), strict=True):
            assert ours.dtype == expected.dtype
            if ours.dtype != np.bool_:
                ours, expected = ours.astype(np.float32), expected.astype(np.float32)
            np.testing.assert_allclose(ours, expected, rtol=rtol, atol=atol, strict=True)
            if signs and ours.dtype == np.float32:
                zeros = (ours == 0) & (expected == 0)
                np.testing.assert_array_equal(np.signbit(ours[zeros]), np.signbit(expected[zeros]))


UNARY = [
    "Abs",
    "Neg",
    "Exp",
    "Log",
    "Sqrt",
    "Reciprocal",
    "Sigmoid",
    "Tanh",
    "Erf",
    "Relu",
    "Floor",
    "Ceil",
    "Round",
    "Sign",
]
CALLS = [
    "HardSwish(a)",
    "HardSigmoid<alpha = 0.16666667>(a)",
    "HardSigmoid<alpha = 0.3, beta = 0.4>(a)",
    "LeakyRelu<alpha = 0.3>(a)",
    "Clip(a, low, high)",
    "Clip(a, low)",
    'Clip(a, "", high)',
    "Pow(a, two)",
    "Pow(a, three)",
    "Pow(a, half)",
    "Pow(a, minus)",
    "Swish(a)",
    "Cast<to = 1>(a)",
]


@pytest.mark.parametrize("call", [f"{name}(a)" for name in UNARY] + CALLS)
def test_functions_of_one_number(call: str):
    numbers = {"low": -0.2, "high": 0.4, "two": 2.0, "three": 3.0, "half": 0.5, "minus": -1.0}
    weights = {name: np.float32(value) for name, value in numbers.items() if re.search(rf"\b{name}\b", call)}
    opset = 24 if "Swish(" in call and "Hard" not in call else 23
    source = model(f"(float[N] x) => (float[N] y) {{ a = Neg(x) b = {call} y = Abs(b) z = Neg(b) }}", **weights)
    source.opset_import[0].version = opset
    source.graph.output.append(helper.make_tensor_value_info("z", TensorProto.FLOAT, ["N"]))
    check(
        source,
        *([values] for values in [SPECIAL, *(floats(size, special=True) for size in [1, 5, 16, 100])]),
        rtol=1e-6,
    )


def check_gelu(approximate: str, device: str, rtol: float) -> None:
    """Checks Gelu against float64: ATen's own for float32, by oneDNN on CPUs without AVX-512, gives zeros for very
    negative numbers whose sign is lost.
    """
    source = model(f'(float[N] x) => (float[N] y) {{ a = Neg(x) y = Gelu<approximate = "{approximate}">(a) }}')
    prepared = onnx_torch.prepare(source, device)
    assert prepared.graphs()["chains"].count("onnx_torch::chain(") == 1
    x = np.concatenate([3 * floats(1000), np.linspace(-40, 40, 81, dtype=np.float32)])
    (y,) = prepared.run([x])
    exact = torch.nn.functional.gelu(-torch.from_numpy(x).double(), approximate=approximate).numpy()
    np.testing.assert_allclose(y, exact.astype(np.float32), rtol=rtol, atol=1e-6, strict=True)
    assert (y == 0).sum() > 20
    np.testing.assert_array_equal(np.signbit(y), np.signbit(exact))


@pytest.mark.parametrize("approximate", ["none", "tanh"])
def test_gelu(approximate: str):
    check_gelu(approximate, "CPU", rtol=3e-7)


@on_each_cpu
def test_zeros_that_gelu_gives_have_a_sign_on_each_cpu(capability: str, tmp_path: Path):
    """A zero that Gelu gives has its sign also where Gelu stands alone, on few elements, and behind a product."""
    source = model(
        """(float[5] x) => (float alone, float of_chain, float by_tanh, float of_product) <float[1, 1] one = {1}> {
          alone = Gelu(x) a = Neg(x) b = Neg(a) of_chain = Gelu(b) by_tanh = Gelu<approximate = "tanh">(x)
          last = Constant<value_ints = [-1]>() column = Unsqueeze(x, last) c = MatMul(column, one) d = Gelu(c)
          of_product = Squeeze(d, last) }"""
    )
    x = np.array([-0.0, -20, -100, -1e4, -1e38], np.float32)
    *plain, of_product = run_on_cpu(capability, source, [x], tmp_path)
    for y in plain:
        np.testing.assert_array_equal(y, np.zeros(5, np.float32), strict=True)
        assert np.signbit(y).all()
    np.testing.assert_array_equal(of_product, np.zeros(5, np.float32), strict=True)
    assert np.signbit(of_product[1:]).all()  # the product of the first is a sum, and so 0


@pytest.mark.parametrize("name", ["Add", "Sub", "Mul", "Div", "Max", "Min", "Pow"])
def test_functions_of_two_numbers(name: str):
    source = model(f"(float[N] x, float[N] v) => (float[N] y) {{ a = Neg(x) b = {name}(a, v) y = {name}(v, b) }}")
    sizes = [1, 7, 64, 1000]
    check(source, *([floats(size, special=True), floats(size, special=True)] for size in sizes), rtol=1e-6)


@pytest.mark.parametrize("name", ["Equal", "Less", "LessOrEqual", "Greater", "GreaterOrEqual"])
def test_comparisons_masks_and_where(name: str):
    source = model(
        f"(float[N] x, float[N] v, bool[N] m) => (float[N] y, bool[N] c, bool[N] e, float[N] f) {{ c = {name}(x, v) "
        "d = Not(c) n = IsNaN(x) i = IsInf(v) j = Or(d, i) o = Or(j, n) p = And(o, m) e = Xor(p, c) y = Where(e, x, v) "
        "f = Cast<to = 1>(e) }"
    )
    sizes = [1, 3, 16, 200]
    check(source, *([floats(n, special=True), RNG.choice(SPECIAL, n), RNG.random(n) < 0.5] for n in sizes))


SHAPES = [
    ((2, 3, 4, 5), (4, 5)),
    ((2, 3, 4, 5), (3, 1, 1)),
    ((2, 3, 4, 5), (2, 1, 4, 1)),
    ((2, 3, 4, 5), (1, 3, 1, 5)),
    ((2, 3, 4, 5), ()),
    ((2, 3, 4, 5), (1, 1, 1, 1, 1)),
    ((3, 1), (1, 7)),
    ((7, 900), (900,)),
    ((7, 900), (7, 1)),
    ((0, 3), (1, 3)),
    ((1, 3), (0, 1)),
    ((), ()),
    ((1,), (5000,)),
]


@pytest.mark.parametrize("first, second", SHAPES)
def test_broadcasting(first: tuple[int, ...], second: tuple[int, ...]):
    known = len(first) % 2 == 0

    def dims(name: str, shape: tuple[int, ...]) -> str:
        return f"float[{', '.join(map(str, shape) if known else (f'{name}{i}' for i in range(len(shape))))}]"

    source = model(
        f"({dims('A', first)} x, {dims('B', second)} v) => (float y, float s, bool m) "
        "{ t = Tanh(v) s = Mul(t, v) a = Abs(x) b = Add(a, s) m = Less(b, v) y = Where(m, x, b) }"
    )
    check(source, [floats(*first, special=True), floats(*second, special=True)], rtol=1e-6)


@pytest.mark.parametrize("size", [3, 200, 1000])
def test_broadcast_masks(size: int):
    source = model(
        f"(float[7, {size}] x, bool[7, 1] m, bool[{size}] n, float[7, 1] v) => (float y, bool o) "
        "{ a = Abs(x) o = And(m, n) b = Where(m, a, v) c = Where(n, b, x) y = Where(o, c, v) }"
    )
    check(source, [floats(7, size), RNG.random((7, 1)) < 0.5, RNG.random(size) < 0.5, floats(7, 1)])


def test_sizes_come_with_the_run_and_change():
    source = model("(float[N, C] x, float[M, C] v) => (float y) { a = Abs(x) b = Mul(a, v) y = Tanh(b) }")
    rep, plain = onnx_torch.prepare(source), onnx_torch.prepare(source, optimize=False)
    for n, m, c in [(1, 1, 3), (4, 1, 3), (1, 6, 40), (0, 1, 2), (4, 1, 3), (70, 70, 100)] + [
        (i, 1, 9) for i in range(12)
    ]:
        inputs = [floats(n, c), floats(m, c)]
        np.testing.assert_allclose(rep.run(inputs)[0], plain.run(inputs)[0], rtol=1e-6)


def test_sizes_that_do_not_fit_are_the_nodes_error():
    source = model("(float[N] x, float[M] v) => (float y) { a = Abs(x) b = Mul(a, v) y = Tanh(b) }")
    with pytest.raises(onnx_torch.RunError, match="Mul") as caught:
        onnx_torch.prepare(source).run([floats(3), floats(4)])
    assert caught.value.op_type == "Mul"


def test_transposed_inputs_and_channels_last():
    source = model(
        "(float[2, 3, 8, 9] x, float[8, 9, 3, 2] v) => (float y) "
        "{ t = Transpose<perm = [3, 2, 0, 1]>(v) a = Sigmoid(t) b = Mul(a, x) y = Add(b, t) }"
    )
    check(source, [floats(2, 3, 8, 9), floats(8, 9, 3, 2)], rtol=1e-6, atol=1e-6)
    source = model(
        "(float[2, 3, 8, 9] x) => (float y, float z) "
        "{ c = Conv(x, w) s = Mul(c, scale) d = Abs(s) z = Add(d, c) r = ReduceMean(z) y = Mul(r, z) }",
        w=floats(16, 3, 3, 3),
        scale=floats(16, 1, 1),
    )
    check_equal(source, [floats(2, 3, 8, 9)])


@pytest.mark.parametrize(
    ("body", "outputs", "results"),
    [
        ("a = Softmax(x) b = Mul(a, v) y = Tanh(b)", "float y", 1),
        ("a = Softmax(x) b = Softmax(v) c = Mul(b, a) y = Tanh(c)", "float y", 2),
        ("a = Softmax(x) b = Mul(a, a) c = Sub(b, v) y = Add(c, a)", "float y", 1),
        ("a = Softmax(x) b = Tanh(a) y = Mul(b, v)", "float y, float b", 2),
        # A value that is read after a result is written, or elsewhere, stays.
        ("a = Softmax(x) b = Tanh(a) c = Softmax(b) d = Mul(b, a) y = Sub(d, c)", "float y", 2),
        ("a = Softmax(x) b = Tanh(a) c = Softmax(b) d = Mul(b, a) y = Sub(d, c)", "float y, float b", 3),
        ("a = Softmax(x) b = Mul(a, v) y = Tanh(b)", "float y, float a", 2),
        ("a = Softmax(x) b = Mul(a, v) c = Tanh(b) d = Softmax(a) y = Div(c, d)", "float y", 2),
        ("a = Softmax(x) b = Mul(a, v) c = Tanh(b) d = Softmax(a) e = Div(c, d) y = Add(e, a)", "float y", 2),
        ("b = Mul(x, v) y = Tanh(b)", "float y", 1),
        # The operand has another layout, or is a row that is repeated.
        ("a = Softmax(v) t = Transpose(a) b = Mul(x, t) y = Tanh(b)", "float y", 2),
        ("r = Slice(x, zero, one, zero) a = Softmax(r) b = Mul(v, a) y = Tanh(b)", "float y", 2),
    ],
)
def test_results_take_memory_that_nothing_else_reads(body: str, outputs: str, results: int):
    source = model(
        f"(float[64, 64] x, float[64, 64] v) => ({outputs}) {{ {body} }}", **(BOUNDS if "zero" in body else {})
    )
    inputs = [floats(64, 64), floats(64, 64)]
    before = [x.copy() for x in inputs]
    check(source, inputs, chains=None, rtol=1e-6, atol=1e-7)
    np.testing.assert_array_equal(inputs, before)
    assert allocations(source, inputs) == results


@on_each_cpu
def test_functions_are_right_to_a_few_units_on_each_cpu(capability: str, tmp_path: Path):
    powers = np.logspace(-37, 1.5, 200001)
    x = np.concatenate([powers, -powers[powers < 13], SPECIAL[:5]]).astype(np.float32)
    body = """sigmoid = Sigmoid(x)
        tanh = Tanh(x)
        erf = Erf(x)
        gelu = Gelu(x)
        by_tanh = Gelu <approximate = "tanh"> (x)"""
    results = "float[n] sigmoid, float[n] tanh, float[n] erf, float[n] gelu, float[n] by_tanh"
    net = model(f"(float[{x.size}] x) => ({results}) {{ {body} }}")
    sigmoid, tanh, erf, gelu, by_tanh = run_on_cpu(capability, net, [x], tmp_path)
    exact = x.astype(np.float64)
    erfc = np.array([math.erfc(size) for size in np.abs(exact) / math.sqrt(2)])
    with np.errstate(all="ignore"):
        np.testing.assert_allclose(sigmoid, 1 / (1 + np.exp(-exact)), rtol=3e-7, atol=1e-38)
        np.testing.assert_allclose(tanh, np.tanh(exact), rtol=3e-7, atol=1e-38)
        np.testing.assert_allclose(erf, [math.erf(number) for number in exact], rtol=3e-7, atol=1e-38)
        # A power of e has as many units of error as its exponent is large: up to 11 above -4, and 85 below.
        expected = exact * np.where(exact < 0, erfc, 2 - erfc) / 2
        above = ~(exact < -4)
        np.testing.assert_allclose(gelu, expected, rtol=2e-5, atol=1e-38)
        np.testing.assert_allclose(gelu[above], expected[above], rtol=1.5e-6, atol=1e-38)
        expected = exact / (1 + np.exp(-np.sqrt(8 / np.pi) * (exact + 0.044715 * exact**3)))
        np.testing.assert_allclose(by_tanh[above], expected[above], rtol=2e-6, atol=1e-38)


@pytest.mark.parametrize(("body", "of"), [("y = Sigmoid(x)", torch.sigmoid), ("s = Sigmoid(x) y = Mul(s, x)", silu)])
def test_large_sigmoids_are_as_exact_as_floats_are(body: str, of: Callable[[torch.Tensor], torch.Tensor]):
    powers = np.logspace(-38, 2, 3001)
    x = np.concatenate([np.linspace(-90, 90, 60001), powers, -powers, SPECIAL]).astype(np.float32)
    source = model(f"(float[{x.size}] x) => (float[{x.size}] y) {{ {body} }}")
    check(source, [x], rtol=1e-6, atol=3e-37)  # ATen's Silu is 0 where e to the power of -x is too large
    expected = of(torch.from_numpy(x).double()).numpy()
    (y,) = onnx_torch.prepare(source).run([x])
    np.testing.assert_allclose(y, expected.astype(np.float32), rtol=3e-7, atol=3e-37)


def test_large_tensors_on_several_threads():
    source = model(
        "(float[N, C] x, float[C] v) => (float y) { a = Mul(x, v) b = Sigmoid(a) c = Sub(b, x) y = Relu(c) }"
    )
    x, v = floats(301, 1009), floats(1009)
    ours = onnx_torch.prepare(source, threads=2).run([x, v])[0]
    np.testing.assert_array_equal(ours, onnx_torch.prepare(source, threads=1).run([x, v])[0])
    sigmoid = 1 / (1 + np.exp(-(x * v).astype(np.float64)))
    # The results are compared with exact ones: Sub takes away all but what two computations of Sigmoid round, each for
    # itself.
    np.testing.assert_allclose(ours, np.maximum(sigmoid - x, 0), rtol=1e-7, atol=1e-7)


def largest_result() -> int:
    """Gives the bytes over which results are written past the caches; 128 MiB at most, as tests have little memory."""
    size = Path("/sys/devices/system/cpu/cpu0/cache/index3/size")
    return min(int(size.read_text().rstrip("K\n")) << 10, 1 << 27) if size.exists() else 1 << 25


def test_results_larger_than_the_caches():
    """Results that large are written past the caches; but not those that lie over an input, nor masks."""
    rows = largest_result() // (4 * 3001) + 1
    x, v = floats(rows, 3001, special=True), floats(3001)
    source = model(
        """(float[N, C] x, float[C] v) => (float y, bool m, float z, float s)
           { y = Mul(x, v) m = Less(y, v) a = Where(m, x, v) z = Relu(a) s = ReduceMax(z, axes) }""",
        axes=np.array([1]),
    )
    check(source, [x, v])
    source = model(
        "(float[N, C] x, float[C] v) => (float y) { a = CumSum(x, one) b = Mul(a, v) y = Relu(b) }",
        one=np.array(1),
    )
    check(source, [floats(rows, 3001), v])


def test_other_types_are_left_to_aten():
    for name in ["double", "float16", "int64"]:
        source = model(f"({name}[N] x) => ({name} y) {{ a = Abs(x) b = Mul(a, x) y = Sub(a, b) }}")
        assert "onnx_torch::chain" not in calls(source)


def test_single_operators_are_left():
    assert calls(model("(float[4] x) => (float y) { y = Tanh(x) }")) == ["aten::tanh"]


def test_a_chain_ends_where_another_operator_comes_between():
    source = model("(float[4, 4] x) => (float y) { a = Abs(x) n = Neg(a) m = MatMul(n, n) s = Add(m, a) y = Tanh(s) }")
    assert calls(source) == ["onnx_torch::chain", "onnx_torch::matmul", "onnx_torch::chain"]
    check(source, [floats(4, 4)], chains=2, rtol=1e-5, atol=1e-5)


def test_values_that_others_use_are_results():
    source = model(
        "(float[4, 4] x) => (float y, float n) { a = Abs(x) n = Neg(a) s = Softmax(a) y = Tanh(n) z = Add(y, s) }"
    )
    source.graph.output.append(helper.make_tensor_value_info("z", TensorProto.FLOAT, None))
    check(source, [floats(4, 4)], chains=None, rtol=1e-6, atol=1e-6)


def test_chains_in_branches_and_loops():
    body = "{ a = Mul(x, x) b = Tanh(a) s = Add(b, x) }"
    source = model(
        "(float[3] x, bool c) => (float y) { y = If (c) <then_branch = t () => (float[3] s) "
        + body
        + ", else_branch = e () => (float[3] x2) { x2 = Identity(x) }> }"
    )
    check(source, [floats(3), np.array(True)], [floats(3), np.array(False)])


def test_random_numbers_keep_their_order():
    text = (
        "(float[4] x) => (float y) { a = Abs(x) r = RandomNormalLike<seed = 1.0>(x) b = Mul(a, r) "
        "q = RandomNormalLike<seed = 2.0>(x) c = Add(b, q) y = Sub(c, a) }"
    )
    check(model(text), [floats(4)], chains=None)


# --- random graphs ----------------------------------------------------------------------------------------------------


def random_graph(seed: int) -> tuple[onnx.ModelProto, list[np.ndarray]]:
    """Makes operators on earlier values, some of which other operators compute, with results anywhere."""
    rng = np.random.default_rng(seed)
    full = tuple(int(n) for n in rng.choice([1, 2, 3, 5, 17, 40], rng.integers(0, 4)))

    def smaller() -> tuple[int, ...]:
        shape = tuple(n if rng.random() < 0.6 else 1 for n in full)
        return shape[rng.integers(0, len(shape) + 1) :]

    shapes = [full] + [smaller() for _ in range(rng.integers(1, 4))]
    inputs = [
        np.where(rng.random(s) < 0.2, rng.choice(SPECIAL, s), rng.standard_normal(s)).astype(np.float32) for s in shapes
    ]
    known = rng.random() < 0.5
    values = [f"x{i}" for i in range(len(inputs))]
    masks: list[str] = []
    nodes = []

    def pick(of: Sequence[str]) -> str:
        return of[int(rng.integers(max(0, len(of) - 6), len(of)))]

    # All of these are exact, so that a small difference cannot become a large one.
    unary = ["Abs", "Neg", "Relu", "Floor", "Reciprocal", "Sign"]
    binary = ["Add", "Sub", "Mul", "Div", "Max", "Min"]
    for i in range(int(rng.integers(4, 40))):
        kind = str(
            rng.choice(["unary", "binary", "compare", "where", "mask", "reduce"], p=[0.3, 0.35, 0.1, 0.1, 0.05, 0.1])
        )
        if kind in ("where", "mask") and not masks:
            kind = "unary"
        if kind == "reduce" and not full:
            kind = "binary"
        op, operands = {
            "unary": (rng.choice(unary), [pick(values)]),
            "binary": (rng.choice(binary), [pick(values), pick(values)]),
            "compare": (rng.choice(["Less", "Equal", "GreaterOrEqual"]), [pick(values), pick(values)]),
            "where": ("Where", [pick(masks or values), pick(values), pick(values)]),
            "mask": (rng.choice(["And", "Or", "Xor"]), [pick(masks or values), pick(masks or values)]),
            "reduce": ("ReduceMax", [pick(values)]),
        }[kind]
        nodes.append(helper.make_node(str(op), operands, [f"v{i}"]))
        (masks if kind in ("compare", "mask") else values).append(f"v{i}")
    made = [node.output[0] for node in nodes]
    outputs = sorted({made[-1], *(name for name in made if rng.random() < 0.2)})
    graph = helper.make_graph(
        nodes,
        "random",
        [
            helper.make_tensor_value_info(
                f"x{i}", TensorProto.FLOAT, [n if known else f"D{i}_{d}" for d, n in enumerate(shape)]
            )
            for i, shape in enumerate(shapes)
        ],
        [
            helper.make_tensor_value_info(name, TensorProto.BOOL if name in masks else TensorProto.FLOAT, None)
            for name in outputs
        ],
    )
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 23)], ir_version=10), inputs


@pytest.mark.parametrize("seed", range(60))
def test_random_graphs(seed: int):
    source, inputs = random_graph(seed)
    plain = onnx_torch.prepare(source, optimize=False).run(inputs)
    for ours, expected in zip(onnx_torch.prepare(source).run(inputs), plain, strict=True):
        np.testing.assert_array_equal(ours, expected, strict=True)


@pytest.mark.parametrize("name", ["Sin", "Cos", "Tan", "Asin", "Acos", "Atan"])
def test_functions_of_angles(name: str):
    source = model(f"(float[N] x) => (float[N] y) {{ a = Neg(x) b = {name}(a) y = Neg(b) }}")
    near = np.linspace(-1.2, 1.2, 1000, dtype=np.float32)
    check(source, [SPECIAL], *([scale * near] for scale in np.float32([1, 10, 1e4, 1e30])), rtol=1e-6, atol=1e-7)


def test_the_steps_of_a_loop_are_one_chain():
    """Steps of a loop that is unrolled are computed at once where nothing else comes between."""
    body = (
        "step (int64 i, bool before, float[1, 16] state) => (bool after, float[1, 16] next) {"
        " after = Identity(before) change = Sin(state) part = Mul(change, rate) next = Add(state, part) }"
    )
    source = model(
        f"(float[1, 16] x) => (float[1, 16] y) {{ y = Loop<body = {body}>(count, go, x) }}",
        count=np.int64(1000),
        go=np.True_,
        rate=np.float32([0.01]),
    )
    assert calls(source) == ["prim::Loop", "onnx_torch::chain"]
    check(source, [floats(1, 16)], rtol=1e-5)


def test_types_are_known_where_sizes_are_not():
    """The types of what a script computes are known, too: the declared type of an input is enough."""
    source = model("(float x) => (float y) { y = Shrink<bias = 0.5, lambd = 0.3>(x) }")
    source.graph.input[0].type.tensor_type.ClearField("shape")
    assert {"prim::If", "aten::lt", "aten::where"}.isdisjoint(calls(source))
    check(source, [floats(3, 4)], [floats(7)], rtol=1e-6)


def test_a_large_operator_alone_is_a_chain():
    """The result of a large operator takes memory that an earlier run has given up."""
    large = model("(float[64, 64] x) => (float y) { y = Relu(x) }")
    check(large, [floats(64, 64, special=True)])
    check(model("(float[64, 64] x) => (bool y) { y = IsInf(x) }"), [floats(64, 64, special=True)])
    check(model("(float[63, 64] x) => (float y) { y = Relu(x) }"), [floats(63, 64)], chains=0)
    check(model("(float[A, 256] x) => (float y) { y = Relu(x) }"), [floats(300, 256)], chains=0)


@pytest.mark.parametrize("name", ["And", "Or", "Xor"])
def test_an_operator_of_masks_alone_is_no_chain(name: str):
    masks = [RNG.random((64, 64)) < 0.5 for _ in range(2)]
    check(model(f"(bool[64, 64] a, bool[64, 64] b) => (bool y) {{ y = {name}(a, b) }}"), masks, chains=0)


# --- reductions -------------------------------------------------------------------------------------------------------

REDUCTIONS: dict[str, Callable[..., np.ndarray]] = {
    "ReduceSum": np.sum,
    "ReduceMean": np.mean,
    "ReduceMax": np.max,
    "ReduceMin": np.min,
}


def reduction(
    name: str, shape: Sequence[int], axes: Sequence[int], keepdims: bool, last: bool = False
) -> onnx.ModelProto:
    """Makes a model that reduces x - v, where v has one element for each place in the innermost dimension. Where
    `last`, x has its second dimension innermost in memory.
    """
    rank = len(shape)
    order = [0, *range(2, rank), 1] if last else range(rank)
    back = sorted(range(rank), key=lambda dim: order[dim])
    sizes = ", ".join(str(shape[dim]) for dim in order)
    return model(
        f"(float[{sizes}] x, float[{shape[-1] if rank else ''}] v) => (float y) {{ t = Transpose<perm = {back}>(x) "
        f"d = Sub(t, v) y = {name}<keepdims = {int(keepdims)}>(d, axes) }}",
        axes=np.array(axes, np.int64),
    )


REDUCED = [
    ((1,), (0,)),
    ((1, 5000), (0,)),
    ((3, 1, 700), (1,)),
    ((33,), ()),
    ((4, 8), (-1,)),
    ((50, 3), (1,)),
    ((5000, 3), (0,)),
    ((700, 16), (1,)),
    ((31, 17), (1,)),
    ((5, 1000), (1,)),
    ((3, 9001), (-1,)),
    ((300, 64), (0,)),
    ((40, 33), (0,)),
    ((16, 5000), (0,)),
    ((3, 20, 2500), (1,)),
    ((4, 30, 7), (1,)),
    ((3, 2, 2), (1,)),
    ((6, 300, 50), (1,)),
    ((6, 40, 50), (1, 2)),
    ((2, 3, 40, 50), (1, 2, 3)),
    ((2, 3, 40, 50), (0, 2, 3)),
    ((2, 16, 7, 9), (1, -1)),
    ((2, 16, 7, 9), (0, 2)),
    ((5, 4, 3, 2, 6), (0, 2, 4)),
    ((300, 1000), ()),
    ((100, 40, 70), (0, 1)),
    ((2, 200000), (1,)),
]


@pytest.mark.parametrize("last", [False, True])
@pytest.mark.parametrize("name", REDUCTIONS)
@pytest.mark.parametrize("shape, axes", REDUCED)
def test_reductions(name: str, shape: tuple[int, ...], axes: tuple[int, ...], last: bool):
    last = last and len(shape) > 2
    for keepdims in [False, True]:
        source = reduction(name, shape, axes, keepdims, last)
        assert calls(source)[-1] == "onnx_torch::chain"
        assert not {"aten::sum", "aten::mean", "aten::amax", "aten::amin"} & {*calls(source)}
        x, v = floats(*shape), floats(*shape[-1:])
        expected = REDUCTIONS[name]((x - v).astype(np.float64), axis=axes or None, keepdims=keepdims)
        is_sum = name in ("ReduceSum", "ReduceMean")  # the others are exact
        scale = REDUCTIONS[name](np.abs(x - v), axis=axes or None, keepdims=keepdims) if is_sum else 0
        fed = np.moveaxis(x, 1, -1) if last else x
        one, two = (onnx_torch.prepare(source, threads=threads).run([fed, v])[0] for threads in [1, 2])
        np.testing.assert_array_equal(one, two)
        assert one.shape == expected.shape
        assert (np.abs(one - expected) <= 3e-7 * scale).all()


def test_reductions_of_nan_and_infinity():
    for name in REDUCTIONS:
        for shape, axes in REDUCED[4:]:
            source = reduction(name, shape, axes, False)
            x = floats(*shape)
            x[RNG.random(shape) < 2 / x.size] = np.nan
            x[RNG.random(shape) < 2 / x.size] = np.inf
            assert calls(source)[-1] == "onnx_torch::chain"
            check_equal(source, [x, floats(*shape[-1:])])


@pytest.mark.parametrize(
    "shape, axis",
    [((1500, 2000), 0), ((2, 1000000), 1), ((2000, 1500), 1), ((100000, 20), 0), ((20000, 100), 0), ((400, 3000), 0)],
)
def test_large_sums_are_as_exact_as_those_of_aten(shape: tuple[int, ...], axis: int):
    """The sums are of positive numbers, where errors of rounding add up."""
    x = RNG.random(shape, np.float32)
    source, inputs = reduction("ReduceSum", shape, [axis], False), [x, np.zeros(shape[-1:], np.float32)]
    exact = np.sum(x.astype(np.float64), axis)
    models = [onnx_torch.prepare(source, optimize=optimize) for optimize in [True, False]]
    errors = [np.abs(rep.run(inputs)[0] / exact - 1) for rep in models]
    assert errors[0].max() <= 3e-7
    assert errors[0].mean() <= 1.1 * errors[1].mean() or exact.size == 2


def test_what_is_reduced_need_not_lie_in_memory():
    text = (
        "(float[64, 64] x, float[64, 64] v) => (float y) { d = Sub(x, v) y = ReduceSumSquare<keepdims = 0>(d, last) }"
    )
    inputs = [floats(64, 64), floats(64, 64)]
    assert allocations(model(text, last=np.array([1])), inputs) == 1
    check(model(text, last=np.array([1])), inputs, rtol=1e-6)


def test_what_is_reduced_may_be_a_result():
    source = model(
        "(float[30, 40] x, float[40] v) => (float a, float s, float d, float m, float y) "
        "{ d = Sub(x, v) a = Abs(d) s = ReduceSumSquare(d, one) t = ReduceSum<keepdims = 0>(a, one) "
        "m = ReduceMax(d, both) u = ReduceL1(v) w = Mul(s, m) z = Mul(w, u) y = Div(z, t) }",
        one=np.array([1]),
        both=np.array([0, 1]),
    )
    check(source, [floats(30, 40), floats(40)], chains=3, rtol=1e-5, atol=1e-5)


def test_many_reductions_in_one_chain():
    body = " ".join(f"r{i} = {name}<keepdims = {i % 2}>(d, axes)" for i, name in enumerate([*REDUCTIONS, *REDUCTIONS]))
    results = ", ".join(f"float r{i}" for i in range(8))
    source = model(f"(float[3, 4, 500] x) => ({results}) {{ d = Neg(x) {body} }}", axes=np.array([0, 2]))
    check(source, [floats(3, 4, 500)], rtol=1e-5, atol=1e-5)
    assert calls(source) == ["onnx_torch::chain"]


def test_reductions_of_sizes_that_come_with_the_run():
    source = model(
        "(float[N, C] x, float[C] v) => (float s, float y) "
        "{ d = Sub(x, v) s = ReduceSumSquare(d, last) y = ReduceMean<keepdims = 0>(d) }",
        last=np.array([-1]),
    )
    check(
        source,
        *([floats(n, c), floats(c)] for n, c in [(1, 1), (4, 8), (300, 7), (0, 3), (3, 5000)]),
        rtol=1e-5,
        atol=1e-6,
    )


def test_reductions_of_a_scalar():
    source = model(
        "(float x) => (float s, float m) { e = Exp(x) s = ReduceSum<keepdims = 0>(e, first) m = ReduceMean(e, first) }",
        first=np.array([0]),
    )
    check(source, [np.array(1.5, np.float32)])


def test_variances_by_hand():
    source = model(
        "(float[20, 300] x) => (float y) "
        "{ m = ReduceMean(x, last) d = Sub(x, m) q = Mul(d, d) s = ReduceMean<keepdims = 0>(q, last) y = Sqrt(s) }",
        last=np.array([-1]),
    )
    assert calls(source) == ["aten::mean", "onnx_torch::chain", "aten::sqrt"]
    x = floats(20, 300)
    check(source, [x], rtol=1e-6)
    np.testing.assert_allclose(onnx_torch.prepare(source).run([x])[0], x.astype(np.float64).std(1), rtol=1e-6)


def test_reductions_without_a_chain_are_left():
    assert calls(model("(float[64, 64] x) => (float y) { y = ReduceSum(x) }")) == ["aten::sum"]
    assert "onnx_torch::chain" not in calls(model("(double[64, 64] x) => (double y) { a = Neg(x) y = ReduceSum(a) }"))


def test_what_reads_a_reduction_comes_after_its_chain():
    source = model(
        "(float[6, 7] x) => (float y) "
        "{ a = Abs(x) s = ReduceSum(a, last) q = Div(a, s) m = ReduceMax(q, last) y = Sub(q, m) }",
        last=np.array([-1]),
    )
    check(source, [floats(6, 7)], chains=None, rtol=1e-6, atol=1e-7)
