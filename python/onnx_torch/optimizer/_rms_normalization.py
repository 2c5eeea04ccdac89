"""The rewrite of RMSNormalization that is written out: x / √(mean of its squares + ε), times a weight."""

from __future__ import annotations

from onnx import TensorProto

from ._graph import Graph, Node
from ._patterns import last_axis_mean, last_axis_vector, operands, rewrite_ends, squared, with_constant


def recognize(graph: Graph) -> bool:
    """Puts RMSNormalization in the place of the nodes that compute it over the last axis."""
    return graph.opset >= 23 and rewrite_ends(graph, "Mul", _normalization)


def _normalization(graph: Graph, node: Node) -> bool:
    for weight, normalized in (node.inputs, node.inputs[::-1]):
        x, epsilon = _normalized(graph, normalized) or ("", 0.0)
        if not x or graph.element_type(x) not in (TensorProto.FLOAT, TensorProto.DOUBLE):
            continue
        if last_axis_vector(graph, weight, x) and graph.element_type(weight) == graph.element_type(x):
            graph.replace(node, "RMSNormalization", [x, weight], axis=-1, epsilon=epsilon)
            return True
    return False


def _normalized(graph: Graph, name: str) -> tuple[str, float] | None:
    """Finds the value that is normalized, and the number that is added to the mean of its squares."""
    factors = operands(graph, name, "Mul")
    pairs = [(x, operands(graph, y, "Reciprocal")) for x, y in (factors, factors[::-1])] if factors else []
    pairs += [(parts[0], [parts[1]]) for parts in [operands(graph, name, "Div")] if parts]
    pairs += [
        (x, [parts[1]])
        for x, y in ((factors, factors[::-1]) if factors else ())
        for parts in [operands(graph, y, "Div")]
        if parts and graph.scalar(parts[0]) == 1
    ]
    for x, root in pairs:
        radicand = operands(graph, root[0], "Sqrt") if root else []
        raised = with_constant(graph, radicand[0], "Add") if radicand else None
        if raised and squared(graph, last_axis_mean(graph, raised[0])) == x:
            return x, raised[1]
    return None
