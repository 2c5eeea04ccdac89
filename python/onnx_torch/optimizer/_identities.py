"""The rewrite that takes out nodes which give what they are given."""

from __future__ import annotations

from collections.abc import Callable

from ._graph import Graph, Node

_END = 2**31 - 1  # exporters mean the end of an axis by this number and larger ones


def remove(graph: Graph) -> bool:
    """Has the readers of each such node read its operand instead."""
    changed = False
    for node in graph.nodes:
        rule = _RULES.get(node.op)
        if node.removed or rule is None or not node.outputs:
            continue
        source = rule(graph, node)
        if source and not any(name and graph.readers(name) for name in node.outputs[1:]):
            changed = graph.bypass(node, source) or changed
    return changed


Rule = Callable[[Graph, Node], str]  # the value that the node gives again; empty where there is none


def _always(graph: Graph, node: Node) -> str:
    return node.input(0)


def _dropout(graph: Graph, node: Node) -> str:
    if graph.opset < 7 and not node.attribute("is_test", 0):
        return ""
    training = node.input(2)
    off = not training or graph.scalar(training) == 0
    return node.input(0) if off and node.outputs[1:] == [] else ""


def _cast(graph: Graph, node: Node) -> str:
    return node.input(0) if graph.element_type(node.input(0)) == node.attribute("to") else ""


def _cast_like(graph: Graph, node: Node) -> str:
    given = graph.element_type(node.input(0))
    return node.input(0) if given and given == graph.element_type(node.input(1)) else ""


def _transpose(graph: Graph, node: Node) -> str:
    order = node.attribute("perm")
    if order is None:
        return node.input(0) if (graph.rank(node.input(0)) or 2) < 2 else ""
    return node.input(0) if list(order) == sorted(order) else ""


def _same_shape(graph: Graph, node: Node) -> str:
    """Finds the operand of an operator that only reshapes, where the shape stays the same."""
    return node.input(0) if graph.same_shape(node.input(0), node.outputs[0]) else ""


def _reshape(graph: Graph, node: Node) -> str:
    """Finds the operand of a Reshape to its own shape, which may have -1 in one place."""
    sizes, shape = graph.integers(node.input(1)), graph.shape(node.input(0))
    if sizes is None or shape is None or len(sizes) != len(shape) or node.attribute("allowzero", 0):
        return _same_shape(graph, node)
    others = [own for size, own in zip(sizes, shape, strict=True) if size not in (own, 0)]
    fits = len(others) == sizes.count(-1) == 1 and 0 not in shape and all(size > 0 for size in sizes if size != -1)
    return node.input(0) if fits else _same_shape(graph, node)


def _one_input(graph: Graph, node: Node) -> str:
    return node.input(0) if len(node.inputs) == 1 else ""


def _split(graph: Graph, node: Node) -> str:
    return node.input(0) if len(node.outputs) == 1 else ""


def _pad(graph: Graph, node: Node) -> str:
    pads = graph.integers(node.input(1)) if graph.opset >= 11 else node.attribute("pads", node.attribute("paddings"))
    return node.input(0) if pads is not None and not any(pads) else ""


def _tile(graph: Graph, node: Node) -> str:
    repeats = graph.integers(node.input(1)) if graph.opset >= 6 else None
    return node.input(0) if repeats is not None and set(repeats) <= {1} else ""


def _slice(graph: Graph, node: Node) -> str:
    if graph.opset < 10:
        starts, ends, steps = node.attribute("starts"), node.attribute("ends"), None
        axes = node.attribute("axes")
    else:
        starts, ends = graph.integers(node.input(1)), graph.size_values.get(node.input(2))
        ends = graph.integers(node.input(2)) if ends is None else ends
        axes = graph.integers(node.input(3)) if node.input(3) else None
        steps = graph.integers(node.input(4)) if node.input(4) else None
        if (node.input(3) and axes is None) or (node.input(4) and steps is None):
            return ""
    shape = graph.shape(node.input(0))
    if starts is None or ends is None or any(starts) or set(steps or [1]) != {1}:
        return ""
    for axis, end in zip(axes or range(len(ends)), ends, strict=True):
        if isinstance(end, int) and end >= _END:
            continue
        size = None if shape is None or not -len(shape) <= axis < len(shape) else shape[axis]
        whole = size is not None and (end == size or (isinstance(end, int) and isinstance(size, int) and end >= size))
        if not whole:
            return ""
    return node.input(0)


def _neutral(number: float, *, either: bool) -> Rule:
    """Makes the rule for an operator with a constant operand that changes nothing."""

    def rule(graph: Graph, node: Node) -> str:
        sides = [(0, 1), (1, 0)] if either else [(0, 1)]
        for own, other in sides:
            if _only(graph, node.input(other), number) and _keeps_shape(
                graph, node, node.input(own), node.input(other)
            ):
                return node.input(own)
        return ""

    return rule


def _keeps_shape(graph: Graph, node: Node, own: str, other: str) -> bool:
    """Tells whether an operand has the result's shape: a single element of no higher rank broadcasts to it."""
    shape, rank = graph.shape(other), graph.rank(own)
    small = shape is not None and all(size == 1 for size in shape)
    return (small and (not shape or (rank is not None and len(shape) <= rank))) or graph.same_shape(
        own, node.outputs[0]
    )


def _only(graph: Graph, name: str, number: float) -> bool:
    """Tells whether all elements of a constant are this number."""
    array = graph.constant(name)
    return array is not None and array.dtype.kind in "fiub" and array.size > 0 and bool((array == number).all())


def _concat(graph: Graph, node: Node) -> str:
    """Finds the one operand of a Concat that is not empty."""
    axis = node.attribute("axis", 1)
    full = [name for name in node.inputs if (shape := graph.shape(name)) is None or not _is_empty(shape, axis)]
    return full[0] if len(full) == 1 else ""


def _is_empty(shape: list[int | str | None], axis: int) -> bool:
    return -len(shape) <= axis < len(shape) and shape[axis] == 0 and len(shape) > 1


def _where(graph: Graph, node: Node) -> str:
    for number, own in ((1, 1), (0, 2)):
        condition = graph.constant(node.input(0))
        if condition is not None and condition.size and bool((condition == number).all()):
            return node.input(own) if graph.same_shape(node.input(own), node.outputs[0]) else ""
    return ""


def _repeated(graph: Graph, node: Node) -> str:
    """Finds the operand of an operator that changes nothing the second time, where the same operator gave it."""
    giver = graph.giver(node.input(0))
    return node.input(0) if giver is not None and giver.op == node.op else ""


_RULES: dict[str, Rule] = {
    "Identity": _always,
    "Dropout": _dropout,
    "Cast": _cast,
    "CastLike": _cast_like,
    "Transpose": _transpose,
    "Reshape": _reshape,
    "Flatten": _same_shape,
    "Expand": _same_shape,
    "Squeeze": _same_shape,
    "Unsqueeze": _same_shape,
    "Concat": _concat,
    "Max": _one_input,
    "Mean": _one_input,
    "Min": _one_input,
    "Sum": _one_input,
    "Split": _split,
    "Pad": _pad,
    "Tile": _tile,
    "Slice": _slice,
    "Add": _neutral(0, either=True),
    "Sub": _neutral(0, either=False),
    "Mul": _neutral(1, either=True),
    "Div": _neutral(1, either=False),
    "Pow": _neutral(1, either=False),
    "And": _neutral(True, either=True),
    "Or": _neutral(False, either=True),
    "Where": _where,
    "Abs": _repeated,
    "Ceil": _repeated,
    "Floor": _repeated,
    "Relu": _repeated,
    "Round": _repeated,
    "Sign": _repeated,
}
