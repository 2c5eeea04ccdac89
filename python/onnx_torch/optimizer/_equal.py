"""The rewrite that merges nodes which compute the same, and constants with the same elements."""

from __future__ import annotations

from ._graph import Graph, Node, attribute_key

RANDOM = {
    "Bernoulli",
    "Dropout",
    "Multinomial",
    "RandomNormal",
    "RandomNormalLike",
    "RandomUniform",
    "RandomUniformLike",
}


def merge(graph: Graph) -> bool:
    """Has the readers of equal values read the first of them."""
    changed = _merge_constants(graph)
    first: dict[tuple[object, ...], Node] = {}
    for node in graph.nodes:
        if node.removed or node.op in RANDOM or "." in node.op or node.has_subgraphs:
            continue
        key = (node.op, tuple(node.inputs), attribute_key(node), len(node.outputs))
        held = first.setdefault(key, node)
        if held is not node and not any(name in graph.outputs for name in node.outputs):
            changed = _take(graph, node, held) or changed
    return changed


def _take(graph: Graph, node: Node, held: Node) -> bool:
    """Has the readers of a node read another one instead."""
    pairs = [(own, other) for own, other in zip(node.outputs, held.outputs, strict=True) if own]
    if any(graph.is_captured(own) for own, _ in pairs) or not all(other for _, other in pairs):
        return False
    for own, other in pairs:
        graph.rename(own, other)
    node.removed = True
    return True


def _merge_constants(graph: Graph) -> bool:
    first: dict[tuple[object, ...], str] = {}
    changed = False
    for name, tensor in list(graph.constants()):
        if name in graph.outputs or graph.is_captured(name):
            continue
        content = tensor.raw_data or tuple(
            tuple(getattr(tensor, field))
            for field in ("float_data", "int32_data", "int64_data", "double_data", "uint64_data", "string_data")
        )
        held = first.setdefault((tensor.data_type, tuple(tensor.dims), content), name)
        if held != name and graph.readers(name):
            graph.rename(name, held)
            changed = True
    return changed
