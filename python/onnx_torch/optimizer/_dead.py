"""The rewrite that takes out nodes and constants that nothing reads."""

from __future__ import annotations

from ._graph import Graph


def remove(graph: Graph) -> bool:
    """Takes out the nodes, outputs of nodes and constants that no output of the graph needs."""
    needed, changed = set(graph.outputs), False
    for node in reversed(graph.nodes):
        if needed.isdisjoint(node.outputs):
            node.removed = changed = True
            continue
        needed.update(node.read())
        while node.outputs and node.outputs[-1] not in needed and len(node.outputs) > 1 and node.op in _OPTIONAL_LAST:
            node.outputs.pop()
            changed = True
    return graph.keep_constants(needed) or changed


#: The operators whose outputs behind the first one may be left out.
_OPTIONAL_LAST = {"Dropout", "MaxPool", "LayerNormalization", "LSTM", "GRU", "RNN"}
