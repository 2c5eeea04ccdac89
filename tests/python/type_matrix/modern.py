"""The meaning of an old form: the node of a later version that the texts make equal to it, or a formula."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np
import onnx
from onnx import helper

from .engines import run_any
from .values import dtype_of, element, type_name, type_proto

Meaning = Callable[[Any], list[Any]]  # gives the outputs of a case


def modern(
    op: str, version: int, inputs: Callable[[list[Any]], list[Any]] = list, outputs: int = 1, run=run_any, **attributes
):
    """Gives the outputs of another node on the same data; attributes may be functions of the case."""

    def meaning(case: Any) -> list[Any]:
        names = list(case.model.graph.node[-1].input)
        given = dict(zip(filter(None, names), inputs(case.inputs), strict=True))
        results = [f"y{i}" for i in range(outputs)]
        node = helper.make_node(op, names, results, **{k: v(case) if callable(v) else v for k, v in attributes.items()})
        infos = [helper.make_value_info(name, type_proto(type_name(value))) for name, value in given.items()]
        graph = helper.make_graph([node], "modern", infos, [onnx.ValueInfoProto(name=name) for name in results])
        return run(helper.make_model(graph, opset_imports=[helper.make_opsetid("", version)]), given)

    return meaning


def unchanged(case: Any) -> list[Any]:
    return [case.inputs[0]]


def formula(function: Callable[..., np.ndarray]) -> Meaning:
    """Gives the meaning that a function has in double precision."""
    return lambda case: [function(*(np.asarray(x).astype(np.float64) for x in case.inputs))]


def rounded(function: Callable[..., np.ndarray]) -> Meaning:
    """Gives the formula's result rounded to the type of the output, as an element of 8 bits has to be."""
    return lambda case: [y.astype(dtype_of(element(case.output_types[0]))) for y in formula(function)(case)]


def in_float(inputs: list[Any]) -> list[Any]:
    """Gives inputs in float, for data whose every float is exact in all types, and for a result that is one of them."""
    return [np.asarray(x).astype(np.float32) for x in inputs]


erf = np.vectorize(math.erf, otypes=[np.float64])


def gelu(x: np.ndarray) -> np.ndarray:
    return 0.5 * x * (1 + erf(x / math.sqrt(2)))


def hard_swish(x: np.ndarray) -> np.ndarray:
    return x * np.clip(x / 6 + 0.5, 0, 1)


def normalized(x: np.ndarray) -> np.ndarray:
    """Computes MeanVarianceNormalization along the default axes."""
    centered = x - x.mean((0, 2, 3), keepdims=True)
    return centered / (np.sqrt((centered**2).mean((0, 2, 3), keepdims=True)) + 1e-9)


def tile(x: np.ndarray, tiles: np.ndarray, axis: np.ndarray) -> np.ndarray:
    repeats = [1] * x.ndim
    repeats[int(axis[0])] = int(tiles[0])
    return np.tile(x, repeats)


def lrn(size: int, alpha: float, beta: float, bias: float) -> Callable[[np.ndarray], np.ndarray]:
    def function(x: np.ndarray) -> np.ndarray:
        before, after = (size - 1) // 2, size // 2
        sums = np.stack([(x[:, max(0, c - before) : c + after + 1] ** 2).sum(1) for c in range(x.shape[1])], 1)
        return x / (bias + alpha / size * sums) ** beta

    return function


def lp_norm(p: int) -> Callable[[np.ndarray], np.ndarray]:
    return lambda x: (np.abs(x) ** p).sum((2, 3), keepdims=True) ** (1 / p)


def quantized_product(a, a_scale, a_zero, b, b_scale, b_zero, scale, zero) -> np.ndarray:
    """Computes QLinearMatMul into a float of 8 bits, before it is rounded."""
    return ((a - a_zero) * a_scale) @ ((b - b_zero) * b_scale) / scale + zero
