"""The rewrite of attention that is written out: the softmax of scaled queries times keys, plus a mask, times values."""

from __future__ import annotations

from onnx import TensorProto

from ._graph import Graph, Node
from ._patterns import operands, rewrite_ends, scaled
from ._shape_values import Size

FLOATS = (TensorProto.FLOAT, TensorProto.FLOAT16, TensorProto.BFLOAT16, TensorProto.DOUBLE)
LAST_TWO_SWAPPED = (0, 1, 3, 2)


def recognize(graph: Graph) -> bool:
    """Puts Attention in the place of the nodes that compute it."""
    return graph.opset >= 23 and rewrite_ends(graph, "MatMul", _attention)


def _attention(graph: Graph, node: Node) -> bool:
    weights, value = node.inputs
    softmax = graph.giver(weights)
    if softmax is None or softmax.op != "Softmax" or graph.only_reader(weights) is not node:
        return False
    if graph.rank(weights) != 4 or softmax.attribute("axis", -1) not in (-1, 3):
        return False
    for scores, mask in _masked(graph, softmax.inputs[0]):
        product, scale = scaled(graph, scores)
        factors = operands(graph, product, "MatMul")
        if not factors or (mask and not _is_mask(graph, mask, product)):
            continue
        query, of_query = scaled(graph, factors[0])
        transposed, of_key = scaled(graph, factors[1])
        scale *= of_query * of_key
        transpose = graph.giver(transposed)
        if transpose is None or transpose.op != "Transpose" or scale <= 0:
            continue
        heads = _heads(graph, query)
        if heads is None or any(_heads(graph, other) != heads for other in (transposed, value)):
            continue
        key = _key(graph, node, transpose)
        graph.replace(node, "Attention", [query, key, value, *([mask] if mask else [])], scale=scale)
        return True
    return False


def _masked(graph: Graph, name: str) -> list[tuple[str, str]]:
    """Lists what may be the scores, each with the mask that is added to it; an empty name is no mask."""
    terms = operands(graph, name, "Add")
    return [(terms[0], terms[1]), (terms[1], terms[0])] if terms else [(name, "")]


def _is_mask(graph: Graph, mask: str, scores: str) -> bool:
    """Tells whether a value has an element for each key, and no dimension that the scores have not."""
    sizes, to = graph.shape(mask), graph.shape(scores)
    if not sizes or to is None or len(sizes) > len(to) or graph.element_type(mask) != graph.element_type(scores):
        return False
    to = to[-len(sizes) :]
    return sizes[-1] is not None and sizes[-1] == to[-1] and all(a in (1, b) for a, b in zip(sizes, to, strict=True))


def _heads(graph: Graph, name: str) -> list[Size] | None:
    """Returns the sizes of batch and heads, where both are known."""
    shape = graph.shape(name)
    is_known = shape is not None and len(shape) == 4 and None not in shape[:2]
    return shape[:2] if shape is not None and is_known and graph.element_type(name) in FLOATS else None


def _key(graph: Graph, before: Node, transpose: Node) -> str:
    """Returns the keys as Attention takes them: with the last two dimensions that a Transpose has swapped put back."""
    order = transpose.attribute("perm", (3, 2, 1, 0))
    order = [order[axis] for axis in LAST_TWO_SWAPPED]
    if order == sorted(order):
        return transpose.inputs[0]
    return graph.insert(before, "Transpose", transpose.inputs, [graph.new_name("key")], perm=order).outputs[0]
