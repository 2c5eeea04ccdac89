"""The rewrite of products of one value with several constant matrices."""

from __future__ import annotations

from collections import defaultdict

import numpy as np
from onnx import TensorProto

from ._graph import Graph, Node

_FEWEST = 3  # two would give two nodes again: a product and a Split


def join(graph: Graph) -> bool:
    """Puts one product, and a Split, in the place of several with the same operand."""
    if graph.opset < 13:
        return False
    alike: dict[tuple[str, int], list[Node]] = defaultdict(list)
    for node in graph.nodes:
        weight = graph.initializer(node.input(1))
        if node.op == "MatMul" and weight is not None and graph.is_constant(node.input(1)) and _is_matrix(weight):
            alike[node.input(0), weight.dims[0]].append(node)
    joined = [_join(graph, nodes) for nodes in alike.values() if len(nodes) >= _FEWEST]
    return any(joined)


def _is_matrix(weight: TensorProto) -> bool:
    return len(weight.dims) == 2 and weight.data_type in (TensorProto.FLOAT, TensorProto.DOUBLE)


def _join(graph: Graph, nodes: list[Node]) -> bool:
    weights = [graph.constant(node.input(1)) for node in nodes]
    arrays = [weight for weight in weights if weight is not None]
    if len({array.dtype for array in arrays}) != 1 or len(arrays) < len(nodes):
        return False
    names = {node.input(1) for node in nodes}
    if any(reader not in nodes for name in names for reader in graph.readers(name)):
        return False  # the matrix would be there twice
    weight = graph.add_constant(np.concatenate(arrays, axis=1), f"{nodes[0].input(1)}.joined")
    sizes = graph.add_constant(np.array([array.shape[1] for array in arrays], np.int64), "split")
    whole = graph.new_name(f"{nodes[0].outputs[0]}.joined")
    outputs = [node.outputs[0] for node in nodes]
    for node in nodes:
        node.outputs, node.removed = [], True
    graph.insert(nodes[0], "MatMul", [nodes[0].input(0), weight], [whole])
    graph.insert(nodes[0], "Split", [whole, sizes], outputs, axis=-1)
    return True
