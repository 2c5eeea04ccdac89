"""The rewrite of LayerNormalization that is written out: (x - mean) / √(mean of its squares + ε), weight and bias."""

from __future__ import annotations

import numpy as np
from onnx import TensorProto, helper

from ._graph import Graph, Node
from ._patterns import last_axis_mean, last_axis_vector, operands, rewrite_ends, squared, with_constant


def recognize(graph: Graph) -> bool:
    """Puts LayerNormalization in the place of the nodes that compute it over the last axis."""
    return graph.opset >= 17 and rewrite_ends(graph, "Div", _normalization)


def _normalization(graph: Graph, node: Node) -> bool:
    x, epsilon = _normalized(graph, node) or ("", 0.0)
    shape = graph.shape(x) if x else None
    element = graph.element_type(x) if x else 0
    if not shape or not isinstance(shape[-1], int) or element not in (TensorProto.FLOAT, TensorProto.DOUBLE):
        return False
    end, weight = _then(graph, node, "Mul", x)
    bias = ""
    if weight:
        end, bias = _then(graph, end, "Add", x)
    else:
        weight = graph.add_constant(np.ones(shape[-1], helper.tensor_dtype_to_np_dtype(element)), "ones")
    graph.replace(end, "LayerNormalization", [x, weight, *([bias] if bias else [])], axis=-1, epsilon=epsilon)
    return True


def _normalized(graph: Graph, node: Node) -> tuple[str, float] | None:
    """Finds the value that is normalized, and the number that is added to the variance."""
    difference, root = node.inputs
    terms, radicand = operands(graph, difference, "Sub"), operands(graph, root, "Sqrt")
    if not terms or not radicand or last_axis_mean(graph, terms[1]) != terms[0]:
        return None
    raised = with_constant(graph, radicand[0], "Add")
    mean = last_axis_mean(graph, raised[0]) if raised else ""
    if raised is None or not mean or not _same_difference(graph, squared(graph, mean), terms):
        return None
    return terms[0], raised[1]


def _same_difference(graph: Graph, name: str, terms: list[str]) -> bool:
    """Tells whether a value is the difference of these terms, which some exporters compute twice."""
    return bool(name) and operands(graph, name, "Sub") == terms


def _then(graph: Graph, node: Node, op: str, x: str) -> tuple[Node, str]:
    """Finds a node's only reader, if it takes a constant vector over the last axis, and that; else the node itself."""
    reader = graph.only_reader(node.outputs[0])
    if reader is not None and reader.op == op and len(reader.inputs) == 2:
        other = reader.inputs[reader.inputs.index(node.outputs[0]) - 1]
        if last_axis_vector(graph, other, x) and graph.element_type(other) == graph.element_type(x):
            return reader, other
    return node, ""
