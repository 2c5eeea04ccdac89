"""The rewrite that folds a BatchNormalization's factors and addends into the weights before it."""

from __future__ import annotations

import numpy as np

from ._graph import Array, Graph, Node, attributes


def fold(graph: Graph) -> bool:
    """Folds each BatchNormalization into the convolution or Gemm that alone gives what it reads."""
    changed = False
    for node in graph.nodes:
        before = graph.giver(node.input(0))
        if node.op == "BatchNormalization" and not node.removed and before is not None:
            changed = _fold(graph, before, node) or changed
    return changed


def _fold(graph: Graph, before: Node, node: Node) -> bool:
    if node.attribute("training_mode", 0) or any(node.outputs[1:]) or graph.opset < 7:
        return False
    if before.op not in _SCALED or graph.only_reader(before.outputs[0]) is not node or len(before.outputs) != 1:
        return False
    weight = graph.constant(before.input(1))
    bias = graph.constant(before.input(2)) if before.input(2) else None
    statistics = [graph.constant(name) for name in node.inputs[1:5]]
    if weight is None or weight.dtype != np.float32 or (before.input(2) and bias is None):
        return False
    if any(array is None or array.dtype != np.float32 for array in statistics):
        return False
    scale, shift, mean, variance = (array.astype(np.float64) for array in statistics if array is not None)
    factors = scale / np.sqrt(variance + node.attribute("epsilon", 1e-5))
    scaled = _SCALED[before.op](before, weight, factors)
    if (
        scaled is None
        or not np.isfinite(scaled).all()
        or (bias is not None and bias.shape not in ((1,), factors.shape))
    ):
        return False
    beta = before.attribute("beta", 1.0) if before.op == "Gemm" else 1.0
    moved = shift + ((0 if bias is None else beta * bias.astype(np.float64)) - mean) * factors
    names = [
        graph.add_constant(np.asarray(array, np.float32), f"{before.input(1)}.{part}")
        for part, array in (("scaled", scaled), ("shifted", moved))
    ]
    beta_of_one = {"beta": 1.0} if before.op == "Gemm" else {}
    graph.replace(node, before.op, [before.input(0), *names], **{**attributes(before), **beta_of_one})
    return True


def _convolution(node: Node, weight: Array, factors: Array) -> Array | None:
    """Scales the weight of a Conv, whose first dimension is the output channels."""
    if weight.shape[0] != len(factors):
        return None
    return weight * factors.reshape(-1, *[1] * (weight.ndim - 1))


def _transposed(node: Node, weight: Array, factors: Array) -> Array | None:
    """Scales the weight of a ConvTranspose, whose second dimension is the output channels of each group."""
    groups = node.attribute("group", 1)
    if weight.shape[1] * groups != len(factors) or weight.shape[0] % groups:
        return None
    grouped = weight.reshape(groups, weight.shape[0] // groups, *weight.shape[1:])
    scaled: Array = grouped * factors.reshape(groups, 1, -1, *[1] * (weight.ndim - 2))
    result: Array = scaled.reshape(weight.shape)
    return result


def _gemm(node: Node, weight: Array, factors: Array) -> Array | None:
    """Scales the matrix of a Gemm, whose columns are the output channels, or whose rows are where it is transposed."""
    columns = weight.shape[0 if node.attribute("transB", 0) else 1]
    if columns != len(factors):
        return None
    return weight * (factors[:, None] if node.attribute("transB", 0) else factors)


_SCALED = {"Conv": _convolution, "ConvTranspose": _transposed, "Gemm": _gemm}
