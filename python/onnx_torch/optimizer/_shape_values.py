"""The known elements of lists of sizes that a model computes: numbers, and the names of open dimensions."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING

from onnx import TensorProto

if TYPE_CHECKING:
    from ._graph import Graph, Node

Size = int | str | None  # a number, the name of an open dimension, or neither

MOST = 64  # the elements above which a list is not looked at


def sizes_in_values(graph: Graph) -> Mapping[str, list[Size]]:
    """Finds the elements of integer tensors of rank 0 and 1 that follow from constants and sizes."""
    known: dict[str, list[Size]] = {}

    def value(name: str) -> list[Size] | None:
        if name in known:
            return known[name]
        tensor = graph.initializer(name)
        if tensor is None or not graph.is_constant(name) or len(tensor.dims) > 1 or sum(tensor.dims) > MOST:
            return None
        if tensor.data_type not in (TensorProto.INT64, TensorProto.INT32):
            return None
        return list(graph.integers(name) or ())

    for node in graph.nodes:
        rule = _RULES.get(node.op)
        found = rule(graph, node, value) if rule and not node.removed else None
        if found is not None and len(found) <= MOST:
            known[node.outputs[0]] = found
    return known


Value = Callable[[str], list[Size] | None]
Rule = Callable[["Graph", "Node", Value], list[Size] | None]


def _shape(graph: Graph, node: Node, value: Value) -> list[Size] | None:
    shape = graph.shape(node.input(0))
    return None if shape is None else shape[node.attribute("start", 0) : node.attribute("end")]


def _gather(graph: Graph, node: Node, value: Value) -> list[Size] | None:
    sizes, indices = value(node.input(0)), value(node.input(1))
    if sizes is None or indices is None or graph.rank(node.input(0)) != 1 or (graph.rank(node.input(1)) or 0) > 1:
        return None
    numbers = [index for index in indices if isinstance(index, int) and -len(sizes) <= index < len(sizes)]
    return [sizes[index] for index in numbers] if len(numbers) == len(indices) else None


def _concat(graph: Graph, node: Node, value: Value) -> list[Size] | None:
    joined: list[Size] = []
    for name in node.inputs:
        part = value(name)
        if part is None:
            size = graph.fixed_shape(name)
            if size is None or len(size) != 1 or size[0] > MOST:
                return None
            part = [None] * size[0]
        joined += part
    return joined


def _same(graph: Graph, node: Node, value: Value) -> list[Size] | None:
    """Returns the operand's elements, for operators that leave them as they are, and in their order."""
    return value(node.input(0))


def _slice(graph: Graph, node: Node, value: Value) -> list[Size] | None:
    sizes = value(node.input(0))
    parts = [value(name) if name else [1] for name in node.inputs[1:]]
    if sizes is None or graph.opset < 10 or any(part is None or len(part) != 1 for part in parts):
        return None
    numbers = [part[0] for part in parts if part and isinstance(part[0], int)]
    if len(numbers) < len(parts):
        return None
    step = numbers[3] if len(numbers) > 3 else 1
    return sizes[numbers[0] : numbers[1] : step] if step > 0 else None


def _elementwise(compute: Callable[[int, int], int]) -> Rule:
    def rule(graph: Graph, node: Node, value: Value) -> list[Size] | None:
        one, other = value(node.input(0)), value(node.input(1))
        if one is None or other is None:
            return None
        length = max(len(one), len(other))
        if not {len(one), len(other)} <= {1, length}:
            return None
        pairs = zip(one * (length // len(one)), other * (length // len(other)), strict=True) if length else ()
        return [compute(a, b) if isinstance(a, int) and isinstance(b, int) else None for a, b in pairs]

    return rule


def _equal(graph: Graph, node: Node, value: Value) -> list[Size] | None:
    """Returns 1 for what is equal and 0 for what cannot be, as no size is negative; None for the rest."""
    one, other = value(node.input(0)), value(node.input(1))
    if one is None or other is None or len(one) != len(other):
        return None
    return [_are_equal(a, b) for a, b in zip(one, other, strict=True)]


def _are_equal(one: Size, other: Size) -> Size:
    if isinstance(one, int) and isinstance(other, int):
        return int(one == other)
    number = one if isinstance(one, int) else other
    return 0 if one is not None and other is not None and isinstance(number, int) and number < 0 else None


def _where(graph: Graph, node: Node, value: Value) -> list[Size] | None:
    condition, one, other = (value(name) for name in (node.inputs + [""] * 3)[:3])
    if condition is None or one is None or other is None or not len(condition) == len(one) == len(other):
        return None
    pick: dict[Size, Callable[[Size, Size], Size]] = {0: lambda a, b: b, 1: lambda a, b: a}
    never: Callable[[Size, Size], Size] = lambda a, b: None
    return [pick.get(is_first, never)(a, b) for is_first, a, b in zip(condition, one, other, strict=True)]


_RULES: dict[str, Rule] = {
    "Equal": _equal,
    "Where": _where,
    "Shape": _shape,
    "Gather": _gather,
    "Concat": _concat,
    "Slice": _slice,
    "Identity": _same,
    "Squeeze": _same,
    "Unsqueeze": lambda graph, node, value: value(node.input(0)) if graph.rank(node.outputs[0]) == 1 else None,
    "Cast": lambda graph, node, value: (
        value(node.input(0)) if node.attribute("to") in (TensorProto.INT64, TensorProto.INT32) else None
    ),
    "Add": _elementwise(lambda a, b: a + b),
    "Sub": _elementwise(lambda a, b: a - b),
    "Mul": _elementwise(lambda a, b: a * b),
}
