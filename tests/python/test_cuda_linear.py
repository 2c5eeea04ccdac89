"""Products with a bias on CUDA: on a GPU, or else on a device that is pretended (pretended_cuda.py)."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator

import numpy as np
import pytest
import torch
from onnx import parser

import onnx_torch
from pretended_cuda import PretendedCuda
from random_numbers import RNG


@pytest.fixture(autouse=True)
def device() -> Iterator[None]:
    with contextlib.nullcontext() if torch.cuda.is_available() else PretendedCuda():
        yield


def check(body: str, expected: int, element: str = "float", shape: str = "2, 3, 4") -> None:
    """Checks that a product of x and w, [4, 2], becomes so many linear operators, and gives the same without passes."""
    source = parser.parse_model(
        f"""<ir_version: 10, opset_import: ["": 22]> net ({element}[{shape}] x) => ({element} y)
            <{element}[4, 2] w = {{1, 2, 3, 4, 5, 6, 7, 8}}, {element}[2] b = {{1, 2}},
             {element}[1, 1, 2] b3 = {{1, 2}}, {element}[1, 1, 1, 2] b4 = {{1, 2}}, {element}[1] one = {{1}}>
            {{ {body} }}"""
    )
    x = RNG.integers(-9, 9, [int(size) for size in shape.split(",")])
    x = x.astype({"float": np.float32, "double": np.float64, "float16": np.float16, "int32": np.int32}[element])
    rep = onnx_torch.prepare(source, "CUDA:0")
    assert str(rep.graph()).count("aten::linear(") == expected
    plain = onnx_torch.prepare(source, "CUDA:0", optimize=False)
    np.testing.assert_array_equal(rep.run([x])[0], plain.run([x])[0], strict=True)


@pytest.mark.parametrize("element", ["float", "double", "float16"])
@pytest.mark.parametrize("shape", ["4", "3, 4", "2, 3, 4", "0, 4"])
@pytest.mark.parametrize("sum", ["Add(p, b)", "Add(b, p)"])
def test_a_product_and_its_bias_are_one_operator(sum: str, shape: str, element: str) -> None:
    check(f"p = MatMul(x, w) y = {sum}", 1, element, shape)


def test_the_bias_may_have_dimensions_of_one() -> None:
    check("p = MatMul(x, w) y = Add(p, b3)", 1)


@pytest.mark.parametrize(
    "body",
    [
        "p = MatMul(x, w) y = Add(p, b4)",  # of one dimension more
        "p = MatMul(x, w) y = Add(p, one)",
        "p = MatMul(x, w) y = Sub(p, b)",
        "p = MatMul(x, w) q = Add(p, b) y = Mul(p, q)",
        "p = MatMul(x, w) y = Add(p, p)",
        "p = MatMul(x, w) s = ReduceSum(p) y = Add(s, b)",
    ],
)
def test_others_stay(body: str) -> None:
    check(body, 0)


def test_integers_stay() -> None:
    check("p = MatMul(x, w) y = Add(p, b)", 0, "int32")
