"""The rewrite of sizes that are known before a run."""

from __future__ import annotations

import numpy as np
from onnx import helper

from ._graph import Graph, Node
from ._shape_values import Size

_COMPUTED = (
    "Shape",
    "Gather",
    "Concat",
    "Slice",
    "Squeeze",
    "Unsqueeze",
    "Cast",
    "Add",
    "Sub",
    "Mul",
    "Equal",
    "Where",
)


def fold(graph: Graph) -> bool:
    """Makes constants of sizes that are numbers, and of the lists of sizes that Reshape and Expand take."""
    changed = False
    first: dict[Key, str] = {}
    for node in graph.nodes:
        if node.removed:
            continue
        if node.op in _COMPUTED:
            changed = _to_constant(graph, node) or _to_shape(graph, node) or _merge(graph, node, first) or changed
        elif node.op == "Reshape":
            changed = _simple_shape(graph, node) or changed
        elif node.op == "Expand":
            changed = _needless_expand(graph, node) or changed
    return changed


def _to_constant(graph: Graph, node: Node) -> bool:
    output = node.outputs[0]
    known, rank = graph.size_values.get(output), graph.rank(output)
    element = graph.element_type(output)
    if known is None or rank is None or rank > 1 or not element or output in graph.outputs:
        return False
    numbers = [size for size in known if isinstance(size, int)]
    if len(numbers) < len(known):
        return False
    array = np.array(numbers, helper.tensor_dtype_to_np_dtype(element)).reshape([len(known)] if rank else [])
    graph.set_constant(output, array)
    node.removed = True
    return True


Key = tuple[tuple[Size, ...], int | None, int]


def _merge(graph: Graph, node: Node, first: dict[Key, str]) -> bool:
    """Has the readers of a list of sizes read the first one that is the same."""
    output = node.outputs[0]
    known, element = graph.size_values.get(output), graph.element_type(output)
    if not known or None in known or not element:
        return False
    held = first.setdefault((tuple(known), graph.rank(output), element), output)
    return held != output and graph.giver(held) is not None and output not in graph.outputs and graph.bypass(node, held)


def _to_shape(graph: Graph, node: Node) -> bool:
    """Makes a Shape of one dimension of the nodes that take a whole Shape, pick the dimension and make it a list."""
    picks = node
    if node.op == "Unsqueeze" and graph.rank(node.input(0)) == 0:
        giver = graph.giver(node.input(0))
        if giver is None:
            return False
        picks = giver
    shape = graph.giver(picks.input(0))
    if picks.op != "Gather" or shape is None or shape.op != "Shape" or graph.opset < 15:
        return False
    index, rank = graph.integers(picks.input(1)), graph.rank(shape.input(0))
    if graph.rank(node.outputs[0]) != 1 or index is None or len(index) != 1 or rank is None:
        return False
    if shape.attribute("start") is not None or shape.attribute("end") is not None or not -rank <= index[0] < rank:
        return False
    axis = index[0] % rank
    graph.replace(node, "Shape", [shape.input(0)], start=axis, end=axis + 1)
    return True


def _simple_shape(graph: Graph, node: Node) -> bool:
    """Gives a Reshape a constant list of sizes: 0 for what its operand has there, and -1 for one that is left."""
    wanted = graph.size_values.get(node.input(1))
    given = graph.shape(node.input(0))
    if wanted is None or given is None or graph.is_constant(node.input(1)) or node.attribute("allowzero", 0):
        return False
    sizes = [_size(i, size, given) for i, size in enumerate(wanted)]
    open_ones = sizes.count(None)
    if open_ones > 1 or 0 in wanted or (open_ones and -1 in sizes):
        return False
    if open_ones and 0 in sizes:
        return False  # were both of them 0, -1 would be ambiguous
    chosen = np.array([-1 if size is None else size for size in sizes], np.int64)
    graph.change_input(node, 1, graph.add_constant(chosen, "sizes"))
    return True


def _size(place: int, size: Size, given: list[Size]) -> int | None:
    if isinstance(size, int):
        return size
    return 0 if size is not None and place < len(given) and given[place] == size else None


def _needless_expand(graph: Graph, node: Node) -> bool:
    """Takes out an Expand to the sizes that are there already, or to none that are larger."""
    wanted, given = graph.size_values.get(node.input(1)), graph.shape(node.input(0))
    if wanted is None or given is None or len(wanted) > len(given):
        return False
    pairs = zip(wanted[::-1], given[::-1], strict=False)
    return all(size == 1 or (size is not None and size == own) for size, own in pairs) and graph.bypass(
        node, node.input(0)
    )
