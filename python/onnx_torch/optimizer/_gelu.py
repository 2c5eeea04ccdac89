"""The rewrite of Gelu that is written out: x · (1 + erf(x / √2)) / 2, or by Tanh."""

from __future__ import annotations

import math

from ._graph import Graph, Node
from ._patterns import operands, product, rewrite_ends, scaled, squared, with_constant


def recognize(graph: Graph) -> bool:
    """Puts Gelu in the place of the nodes that compute it."""
    return graph.opset >= 20 and rewrite_ends(graph, "Mul", _recognized)


def _recognized(graph: Graph, node: Node) -> bool:
    found = _gelu(graph, node.outputs[0])
    if found:
        graph.replace(node, "Gelu", [found[0]], approximate=found[1])
    return found is not None


def _gelu(graph: Graph, name: str) -> tuple[str, str] | None:
    """Finds the value that another is the Gelu of, and its attribute `approximate`."""
    factors = product(graph, name)
    numbers = [graph.scalar(factor) for factor in factors]
    constant = math.prod(number for number in numbers if number is not None)
    others = [factor for factor, number in zip(factors, numbers, strict=True) if number is None]
    if len(others) != 2:
        return None
    for own, curve in (others, others[::-1]):
        x, part = scaled(graph, own)
        raised = with_constant(graph, curve, "Add")
        if raised is None or raised[1] != 1 or not math.isclose(part * constant, 0.5, rel_tol=1e-6):
            continue
        for op, approximate, is_right in (("Erf", "none", _is_erf), ("Tanh", "tanh", _is_tanh)):
            inner = operands(graph, raised[0], op)
            if inner and is_right(graph, inner[0], x):
                return x, approximate
    return None


def _is_erf(graph: Graph, name: str, x: str) -> bool:
    source, factor = scaled(graph, name)
    return source == x and math.isclose(factor, math.sqrt(0.5), rel_tol=1e-6)


def _is_tanh(graph: Graph, name: str, x: str) -> bool:
    """Tells whether a value is √(2/π) · (x + 0.044715 · x³)."""
    source, factor = scaled(graph, name)
    terms = operands(graph, source, "Add")
    if len(terms) != 2 or x not in terms or not math.isclose(factor, math.sqrt(2 / math.pi), rel_tol=1e-6):
        return False
    cube, small = scaled(graph, terms[terms.index(x) - 1])
    return math.isclose(small, 0.044715, rel_tol=1e-5) and _is_cube(graph, cube, x)


def _is_cube(graph: Graph, name: str, x: str) -> bool:
    power = with_constant(graph, name, "Pow")
    if power:
        return power == (x, 3)
    factors = operands(graph, name, "Mul")
    return len(factors) == 2 and x in factors and squared(graph, factors[factors.index(x) - 1]) == x
