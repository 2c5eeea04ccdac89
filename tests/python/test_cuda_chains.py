"""Chains of element-wise operators on CUDA: on a GPU, or else on a device that is pretended (pretended_cuda.py).

There the kernel runs as code for the CPU (tests/cuda_on_host).
"""

from __future__ import annotations

import contextlib
import re
from collections.abc import Iterator
from functools import partial
from typing import Any

import ml_dtypes
import numpy as np
import onnx
import pytest
import torch
from onnx import TensorProto, helper, numpy_helper

import onnx_torch
import test_chains
from pretended_cuda import PretendedCuda
from random_numbers import RNG
from test_chains import CALLS, SHAPES, SPECIAL, UNARY, floats, model, random_graph
from test_cuda_kernels import ON_HOST, cuda_library

ON_GPU = torch.cuda.is_available()
START = RNG.bit_generator.state

check = partial(test_chains.check, device="CUDA:0", rtol=1e-6)


class Device(PretendedCuda):
    """A device that computes element-wise operators by the kernel, and counts its calls."""

    launched = 0

    def _compute(self, func: Any, args: Any, kwargs: Any, place: torch.device | None) -> Any:
        if func is torch.ops.onnx_torch.element_wise.default:
            func = torch.ops.onnx_torch_on_host.element_wise.default
            self.launched += 1
        return super()._compute(func, args, kwargs, place)


@pytest.fixture(autouse=True)
def same_numbers_whichever_tests_run() -> None:
    RNG.bit_generator.state = START


@pytest.fixture(autouse=True)
def device() -> Iterator[Device | None]:
    torch.ops.load_library(cuda_library())  # skips where the build has none
    if not ON_GPU and not ON_HOST.exists():
        pytest.skip("the C++ tests are not built")
    if not ON_GPU:
        torch.ops.load_library(ON_HOST)
    with contextlib.nullcontext() if ON_GPU else Device() as pretended:
        yield pretended


def operators(source: onnx.ModelProto) -> list[str]:
    """Names the operators of the lowered graph."""
    graph = onnx_torch.prepare(source, "CUDA:0").graphs()["chains"]
    return re.findall(r"= ((?:aten|onnx_torch)::\w+)\(", graph)


@pytest.mark.parametrize("call", [f"{name}(a)" for name in UNARY] + CALLS)
def test_functions_of_one_number(call: str, device: Device | None) -> None:
    numbers = {"low": -0.2, "high": 0.4, "two": 2.0, "three": 3.0, "half": 0.5, "minus": -1.0}
    weights = {name: np.float32(value) for name, value in numbers.items() if re.search(rf"\b{name}\b", call)}
    source = model(
        f"(float[N] x) => (float[N] y, float[N] z) {{ a = Neg(x) b = {call} y = Abs(b) z = Neg(b) }}", **weights
    )
    source.opset_import[0].version = 24 if "Swish(" in call and "Hard" not in call else 23
    runs = [[SPECIAL], *([floats(size, special=True)] for size in [1, 5, 1000])]
    check(source, *runs)
    assert device is None or device.launched == len(runs)


@pytest.mark.parametrize("approximate", ["none", "tanh"])
def test_gelu(approximate: str) -> None:
    test_chains.check_gelu(approximate, "CUDA:0", rtol=1e-6)


@pytest.mark.parametrize("name", ["Sin", "Cos", "Tan", "Asin", "Acos", "Atan"])
def test_functions_of_angles(name: str) -> None:
    source = model(f"(float[N] x) => (float[N] y) {{ a = Neg(x) b = {name}(a) y = Neg(b) }}")
    check(source, [SPECIAL], [np.linspace(-12, 12, 1001, dtype=np.float32)], atol=1e-6)


@pytest.mark.parametrize("name", ["Add", "Sub", "Mul", "Div", "Max", "Min"])
def test_functions_of_two_numbers(name: str) -> None:
    source = model(f"(float[N] x, float[N] v) => (float[N] y) {{ a = Neg(x) b = {name}(a, v) y = {name}(v, b) }}")
    runs = ([floats(size, special=True), floats(size, special=True)] for size in [1, 7, 1000])
    check(source, *runs, rtol=0, atol=0)


def test_powers() -> None:
    source = model("(float[N] x, float[N] v) => (float[N] y) { a = Neg(x) b = Pow(a, v) y = Neg(b) }")
    check(source, *([floats(size, special=True), floats(size, special=True)] for size in [1, 7, 1000]))


@pytest.mark.parametrize("name", ["Equal", "Less", "LessOrEqual", "Greater", "GreaterOrEqual"])
def test_comparisons_masks_and_where(name: str) -> None:
    source = model(
        f"(float[N] x, float[N] v, bool[N] m) => (float[N] y, bool[N] c, bool[N] e, float[N] f) {{ c = {name}(x, v) "
        "d = Not(c) n = IsNaN(x) i = IsInf(v) j = Or(d, i) o = Or(j, n) p = And(o, m) e = Xor(p, c) y = Where(e, x, v) "
        "f = Cast<to = 1>(e) }"
    )
    check(source, *([floats(n, special=True), RNG.choice(SPECIAL, n), RNG.random(n) < 0.5] for n in [1, 3, 200]))


@pytest.mark.parametrize("first, second", SHAPES)
def test_broadcasting(first: tuple[int, ...], second: tuple[int, ...]) -> None:
    one, other = (", ".join(map(str, shape)) for shape in (first, second))
    source = model(
        f"(float[{one}] x, float[{other}] v) => (float y, float s, bool m) "
        "{ t = Floor(v) s = Mul(t, v) a = Abs(x) b = Add(a, s) m = Less(b, v) y = Where(m, x, b) }"
    )
    check(source, [floats(*first, special=True), floats(*second, special=True)], rtol=0, atol=0)


def test_operands_in_another_order() -> None:
    source = model(
        "(float[2, 3, 8, 9] x, float[8, 9, 3, 2] v) => (float y) "
        "{ t = Transpose<perm = [3, 2, 0, 1]>(v) a = Abs(t) b = Mul(a, x) y = Add(b, t) }"
    )
    check(source, [floats(2, 3, 8, 9), floats(8, 9, 3, 2)], rtol=0, atol=0)


@pytest.mark.parametrize("seed", range(30))
def test_random_graphs(seed: int) -> None:
    source, inputs = random_graph(seed)
    # ATen's Max and Min of 0 and -0 give one of them in vectors on the CPU, and the other where a tensor ends.
    check(source, inputs, chains=None, rtol=0, atol=0, signs=ON_GPU)


HALVES = {"float16": np.dtype(np.float16), "bfloat16": np.dtype(ml_dtypes.bfloat16)}


def in_16_bits(source: onnx.ModelProto, name: str) -> onnx.ModelProto:
    """Gives a model of float32 as one of another type of floats."""
    halves = getattr(TensorProto, name.upper())
    for value in [*source.graph.input, *source.graph.output]:
        if value.type.tensor_type.elem_type == TensorProto.FLOAT:
            value.type.tensor_type.elem_type = halves
    for weight in source.graph.initializer:
        weight.CopyFrom(numpy_helper.from_array(numpy_helper.to_array(weight).astype(HALVES[name]), weight.name))
    return source


@pytest.mark.parametrize("name", HALVES)
@pytest.mark.parametrize("seed", range(20))
def test_random_graphs_of_16_bits(seed: int, name: str) -> None:
    """Each operator's result is rounded, as if it were written."""
    source, inputs = random_graph(seed)
    source = in_16_bits(source, name)
    check(source, [x.astype(HALVES[name]) for x in inputs], chains=None, rtol=0, atol=0, signs=ON_GPU)


@pytest.mark.parametrize("name", HALVES)
@pytest.mark.parametrize("call", [f"{name}(a)" for name in UNARY] + [call for call in CALLS if "Cast" not in call])
def test_functions_of_one_number_of_16_bits(call: str, name: str, device: Device | None) -> None:
    numbers = {"low": -0.2, "high": 0.4, "two": 2.0, "three": 3.0, "half": 0.5, "minus": -1.0}
    weights = {name: np.float32(value) for name, value in numbers.items() if re.search(rf"\b{name}\b", call)}
    source = model(f"(float[N] x) => (float[N] y) {{ a = Neg(x) b = {call} y = Abs(b) }}", **weights)
    source.opset_import[0].version = 24 if "Swish(" in call and "Hard" not in call else 23
    x = np.concatenate([floats(500), [0, -0.0, 1, -1, 2, -3]]).astype(HALVES[name])
    # Functions of several operators round in between: one place of the result, or of what it is a difference of.
    last_place = 2.0**-7 if name == "bfloat16" else 2.0**-10
    check(in_16_bits(source, name), [x], rtol=last_place, atol=last_place / 2)
    assert device is None or device.launched == 1


@pytest.mark.parametrize("name", HALVES)
def test_casts_between_floats(name: str, device: Device | None) -> None:
    halves = getattr(TensorProto, name.upper())
    source = model(
        f"(float[N] x, {name}[N] v) => ({name}[N] y, float[N] z, bool[N] m) {{ a = Cast<to = {halves}>(x) "
        f"b = Add(a, v) z = Cast<to = 1>(b) c = Mul(z, x) y = Cast<to = {halves}>(c) m = Cast<to = 9>(b) }}"
    )
    x = np.concatenate([SPECIAL, 100 * floats(500)])
    check(source, [x, np.roll(x, 3).astype(HALVES[name])], rtol=0, atol=0)
    assert device is None or device.launched == 1


def test_long_chains_are_cut(device: Device | None) -> None:
    steps = "".join(f"a{i + 1} = {'Tanh' if i % 3 else 'Neg'}(a{i}) " for i in range(200))
    source = model(f"(float[N] a0) => (float[N] a200) {{ {steps} }}")
    check(source, [floats(50)], chains=4, rtol=1e-5)
    assert device is None or device.launched == 4


def test_what_is_larger_than_the_kernel_takes_is_left_to_aten(device: Device | None) -> None:
    inputs = ", ".join(f"float[N] x{i}" for i in range(20))
    sums = "".join(f"s{i + 1} = Add(s{i}, x{i + 1}) " for i in range(1, 19))
    check(model(f"({inputs}) => (float[N] s19) {{ s1 = Add(x0, x1) {sums} }}"), [floats(9) for _ in range(20)])
    every_other = ", ".join("2" if i % 2 else "1" for i in range(14))
    shape = ", ".join("2" for _ in range(14))
    source = model(f"(float[{shape}] x, float[{every_other}] v) => (float y) {{ a = Mul(x, v) y = Tanh(a) }}")
    check(source, [floats(*[2] * 14), floats(*(2 if i % 2 else 1 for i in range(14)))])
    assert device is None or device.launched == 0


def test_operators_alone_and_reductions_are_left() -> None:
    assert operators(model("(float[64, 64] x) => (float y) { y = Relu(x) }")) == ["aten::relu"]
    source = model("(float[64, 64] x) => (float y) { a = Abs(x) b = Neg(a) y = ReduceMean<keepdims = 0>(b) }")
    assert operators(source) == ["onnx_torch::chain", "aten::mean"]
    check(source, [floats(64, 64)])


def test_other_types_are_left() -> None:
    for name in ["double", "int64"]:
        source = model(f"({name}[N] x) => ({name} y) {{ a = Abs(x) b = Mul(a, x) y = Sub(a, b) }}")
        assert "onnx_torch::chain" not in operators(source)


def test_a_recorded_run_takes_them_along() -> None:
    source = model("(float[N] x) => (float[N] y) { a = Abs(x) b = Mul(a, x) y = Tanh(b) }")
    rep = onnx_torch.prepare(source, "CUDA:0", cuda_graphs=True)
    for _ in range(3):
        x = floats(100)
        np.testing.assert_allclose(rep.run([x])[0], np.tanh(np.abs(x) * x), rtol=1e-6)


def test_results_need_not_be_side_by_side() -> None:
    """The result of a chain has the layout of its first operand."""
    source = model(
        "(float[4, 5, 6] x) => (float y, bool m) { t = Transpose<perm = [2, 0, 1]>(x) y = Neg(t) m = IsNaN(t) }"
    )
    source.graph.output.append(helper.make_tensor_value_info("t", TensorProto.FLOAT, None))
    check(source, [floats(4, 5, 6, special=True)], chains=None)
