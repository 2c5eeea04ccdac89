"""Small expressions, recognized by the node that they end in."""

from __future__ import annotations

from collections.abc import Callable

from ._graph import Graph, Node


def operands(graph: Graph, name: str, op: str) -> list[str]:
    """Returns the inputs of the operator that gives a value; none where it is another operator."""
    node = graph.giver(name)
    return list(node.inputs) if node is not None and node.op == op else []


def with_constant(graph: Graph, name: str, op: str) -> tuple[str, float] | None:
    """Finds the other operand, and the number, of an operator that has one constant of one element."""
    node = graph.giver(name)
    if node is None or node.op != op or len(node.inputs) != 2:
        return None
    for own, other in ((0, 1), (1, 0)) if op in ("Add", "Mul") else ((0, 1),):
        number = graph.scalar(node.inputs[other])
        if number is not None:
            return node.inputs[own], number
    return None


def scaled(graph: Graph, name: str) -> tuple[str, float]:
    """Finds the value, and the number, whose product a value is, however that is written; the number may be 1."""
    factor = 1.0
    while True:
        if found := with_constant(graph, name, "Mul"):
            name, factor = found[0], factor * found[1]
        elif (found := with_constant(graph, name, "Div")) and found[1]:
            name, factor = found[0], factor / found[1]
        else:
            return name, factor


def squared(graph: Graph, name: str) -> str:
    """Finds the value that another is the square of; empty where there is none."""
    power = with_constant(graph, name, "Pow")
    if power and power[1] == 2:
        return power[0]
    factors = operands(graph, name, "Mul")
    return factors[0] if len(factors) == 2 and factors[0] == factors[1] else ""


def last_axis_mean(graph: Graph, name: str) -> str:
    """Finds the value that another is the mean of, over the last axis, which is kept; empty where there is none."""
    node = graph.giver(name)
    if node is None or node.op != "ReduceMean" or not node.attribute("keepdims", 1):
        return ""
    axes = node.attribute("axes") if graph.opset < 18 else graph.integers(node.input(1))
    rank = graph.rank(node.input(0))
    is_last = axes is not None and len(axes) == 1 and (axes[0] == -1 or (rank is not None and axes[0] == rank - 1))
    return node.input(0) if is_last else ""


def last_axis_vector(graph: Graph, name: str, of: str) -> bool:
    """Tells whether a constant is a vector with an element for each index of a value's last axis."""
    array, shape = graph.constant(name), graph.shape(of)
    return array is not None and bool(shape) and array.ndim == 1 and array.shape[0] == (shape or [0])[-1]


def product(graph: Graph, name: str) -> list[str]:
    """Lists the factors of a product, and of the products among them."""
    found: list[str] = []
    waiting = [name]
    while waiting:
        factors = operands(graph, waiting[-1], "Mul")
        if factors:
            waiting[-1:] = factors
        else:
            found.append(waiting.pop())
    return found


def ends(graph: Graph, node: Node, op: str) -> bool:
    """Tells whether a node is of an operator and still there."""
    return not node.removed and node.op == op


def rewrite_ends(graph: Graph, op: str, rewrite: Callable[[Graph, Node], bool]) -> bool:
    """Rewrites the expressions that nodes of an operator are the ends of; tells whether any was changed."""
    changed = False
    for node in graph.nodes:
        if ends(graph, node, op):
            changed = rewrite(graph, node) or changed
    return changed
