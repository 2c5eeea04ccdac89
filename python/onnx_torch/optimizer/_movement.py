"""The rewrite of nodes in a row that move elements, or change their type, which one node, or none, does as well."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
from onnx import TensorProto

from ._graph import Graph, Node, attributes


def join(graph: Graph) -> bool:
    """Joins each node with the one that it reads."""
    changed = False
    for node in graph.nodes:
        giver = graph.giver(node.input(0))
        rule = _RULES.get(node.op)
        if rule and not node.removed and giver is not None and graph.opset >= 5:
            changed = rule(graph, giver, node) or changed
    return changed


def _transposes(graph: Graph, first: Node, second: Node) -> bool:
    if first.op != "Transpose":
        return False
    orders = [node.attribute("perm") or _reversed(graph, node) for node in (first, second)]
    if not all(orders) or len(orders[0]) != len(orders[1]):
        return False
    order = [orders[0][axis] for axis in orders[1]]
    if order == sorted(order) and graph.bypass(second, first.input(0)):
        return True
    graph.replace(second, "Transpose", [first.input(0)], perm=order)
    return True


def _reversed(graph: Graph, node: Node) -> list[int]:
    return list(range(graph.rank(node.input(0)) or 0))[::-1]


_RESHAPING = ("Reshape", "Flatten", "Squeeze", "Unsqueeze")


def _reshapes(graph: Graph, first: Node, second: Node) -> bool:
    """Has a Reshape read what the reshape before it reads, where its sizes do not depend on the shape between."""
    if first.op not in _RESHAPING:
        return False
    sizes = graph.integers(second.input(1))
    if sizes is None or (0 in sizes and not _kept(graph, first, second, sizes)):
        return False
    graph.change_input(second, 0, first.input(0))
    return True


def _kept(graph: Graph, first: Node, second: Node, sizes: list[int]) -> bool:
    """Tells whether each 0 among the sizes means the same size in what the first node reads."""
    if second.attribute("allowzero", 0):
        return False
    before, between = graph.shape(first.input(0)), graph.shape(first.outputs[0])
    places = [place for place, size in enumerate(sizes) if size == 0]
    if before is None or between is None or max(places) >= min(len(before), len(between)):
        return False
    return all(before[place] is not None and before[place] == between[place] for place in places)


def _to_reshape(graph: Graph, first: Node, second: Node) -> bool:
    """Takes out a Squeeze, Unsqueeze or Flatten that undoes another reshape, or makes a Reshape of the two."""
    if first.op not in _RESHAPING:
        return False
    if graph.same_shape(first.input(0), second.outputs[0]) and graph.bypass(second, first.input(0)):
        return True
    shape = graph.shape(second.outputs[0])
    if shape is None:
        return False
    before = graph.shape(first.input(0)) or []
    sizes = [size if isinstance(size, int) else -1 for size in shape]
    if sizes.count(-1) == 1 and 0 not in sizes:
        graph.replace(second, "Reshape", [first.input(0), graph.add_constant(np.array(sizes), "sizes")])
        return True
    sizes = [
        size if isinstance(size, int) else 0 if size and place < len(before) and before[place] == size else -1
        for place, size in enumerate(shape)
    ]
    if -1 in sizes or (0 in shape):
        return False
    graph.replace(second, "Reshape", [first.input(0), graph.add_constant(np.array(sizes), "sizes")])
    return True


def _unsqueezes(graph: Graph, first: Node, second: Node) -> bool:
    """Joins two Unsqueezes, whatever the sizes."""
    if first.op != "Unsqueeze" or graph.opset < 13:
        return False
    rank, axes = graph.rank(first.input(0)), [graph.integers(node.input(1)) for node in (first, second)]
    if rank is None or axes[0] is None or axes[1] is None:
        return False
    between, behind = rank + len(axes[0]), rank + len(axes[0]) + len(axes[1])
    new = {axis % behind for axis in axes[1]}
    old = [axis for axis in range(behind) if axis not in new]  # where the dimensions between them are
    all_axes = sorted(new | {old[axis % between] for axis in axes[0]})
    graph.replace(second, "Unsqueeze", [first.input(0), graph.add_constant(np.array(all_axes), "axes")])
    return True


def _swap_in_rows(graph: Graph, first: Node, second: Node) -> bool:
    """Makes one Transpose of matrices that are reshaped into one batch dimension, transposed, and reshaped back."""
    before = graph.giver(first.input(0))
    if first.op != "Transpose" or before is None or before.op != "Reshape" or first.attribute("perm") != [0, 2, 1]:
        return False
    shapes = [graph.shape(name) for name in (before.input(0), before.outputs[0], second.outputs[0])]
    if any(shape is None or len(shape) < 3 for shape in shapes):
        return False
    given, row, result = (shape or [] for shape in shapes)
    if None in [*given, *row[1:], *result] or row[1:] != given[-2:] or result != [*given[:-2], given[-1], given[-2]]:
        return False
    rank = len(given)
    graph.replace(second, "Transpose", [before.input(0)], perm=[*range(rank - 2), rank - 1, rank - 2])
    return True


def _same_again(graph: Graph, first: Node, second: Node) -> bool:
    """Takes out a Reshape that leads back to the shape before the node in front of it."""
    if first.op in _RESHAPING and graph.same_shape(first.input(0), second.outputs[0]):
        return graph.bypass(second, first.input(0))
    return False


#: The types that hold every value of a type.
_WIDER: dict[int, set[int]] = {
    TensorProto.FLOAT16: {TensorProto.FLOAT, TensorProto.DOUBLE},
    TensorProto.BFLOAT16: {TensorProto.FLOAT, TensorProto.DOUBLE},
    TensorProto.FLOAT: {TensorProto.DOUBLE},
    TensorProto.INT8: {TensorProto.INT16, TensorProto.INT32, TensorProto.INT64},
    TensorProto.UINT8: {TensorProto.INT16, TensorProto.INT32, TensorProto.INT64},
    TensorProto.INT32: {TensorProto.INT64, TensorProto.DOUBLE},
    TensorProto.BOOL: {
        TensorProto.UINT8,
        TensorProto.INT8,
        TensorProto.INT32,
        TensorProto.INT64,
        TensorProto.FLOAT,
        TensorProto.DOUBLE,
    },
}


def _casts(graph: Graph, first: Node, second: Node) -> bool:
    if first.op != "Cast" or graph.opset < 6:
        return False
    given, between = graph.element_type(first.input(0)), first.attribute("to")
    if between not in _WIDER.get(given, set()):
        return False
    if second.attribute("to") == given:
        return graph.bypass(second, first.input(0))
    graph.change_input(second, 0, first.input(0))
    return True


def _slices(graph: Graph, first: Node, second: Node) -> bool:
    """Joins two Slices of different axes."""
    if first.op != "Slice" or graph.opset < 10:
        return False
    rank = graph.rank(first.input(0))
    parts = [_parts(graph, node) for node in (first, second)]
    if rank is None or parts[0] is None or parts[1] is None:
        return False
    axes = [[axis % rank for axis in part[2]] for part in parts if part]
    if not set(axes[0]).isdisjoint(axes[1]):
        return False
    joined = [parts[0][i] + parts[1][i] for i in range(4)]
    names = [graph.add_constant(np.array(numbers, np.int64), "slice") for numbers in joined]
    graph.replace(second, "Slice", [first.input(0), *names])
    return True


def _parts(graph: Graph, node: Node) -> tuple[list[int], list[int], list[int], list[int]] | None:
    starts, ends = graph.integers(node.input(1)), graph.integers(node.input(2))
    if starts is None or ends is None:
        return None
    axes = graph.integers(node.input(3)) if node.input(3) else list(range(len(starts)))
    steps = graph.integers(node.input(4)) if node.input(4) else [1] * len(starts)
    return None if axes is None or steps is None else (starts, ends, axes, steps)


def _of_single_ones(graph: Graph, first: Node, second: Node) -> bool:
    """Makes a Reshape of a Transpose beside a reshape, where it moves nothing but dimensions of size 1."""
    if first.op in _RESHAPING:
        node = second
    elif first.op == "Transpose":
        node = first
    else:
        return False
    shape, result = graph.fixed_shape(node.input(0)), graph.fixed_shape(node.outputs[0])
    order = node.attribute("perm") or _reversed(graph, node)
    if shape is None or result is None or 0 in shape:
        return False
    moved = [axis for axis in order if shape[axis] != 1]
    if moved != sorted(moved):
        return False
    graph.replace(node, "Reshape", [node.input(0), graph.add_constant(np.array(result), "sizes")])
    return True


def _past_one_by_one(graph: Graph, first: Node, second: Node) -> bool:
    """Swaps an element-wise operator with the movement that it reads, which can then join the movement behind it."""
    family = ("Transpose",) if first.op == "Transpose" else _RESHAPING
    reader = graph.only_reader(second.outputs[0])
    if first.op not in family or len(second.inputs) != 1 or reader is None or reader.op not in family:
        return False
    if graph.only_reader(first.outputs[0]) is not second or reader.input(0) != second.outputs[0]:
        return False
    computed, output = graph.new_name(second.outputs[0]), second.outputs[0]
    graph.insert(second, second.op, [first.input(0)], [computed], **attributes(second))
    graph.insert(second, first.op, [computed, *first.inputs[1:]], [output], **attributes(first))
    first.removed = second.removed = True
    return True


Rule = Callable[[Graph, Node, Node], bool]


def _any(*rules: Rule) -> Rule:
    """Makes a rule that does the first of these rules that changes something."""
    return lambda graph, first, second: any(rule(graph, first, second) for rule in rules)


_RULES: dict[str, Rule] = {
    "Transpose": _any(
        _transposes, lambda graph, first, second: first.op in _RESHAPING and _of_single_ones(graph, first, second)
    ),
    "Reshape": _any(_same_again, _swap_in_rows, _reshapes, _of_single_ones),
    "Flatten": _to_reshape,
    "Squeeze": _to_reshape,
    "Unsqueeze": _any(_unsqueezes, _to_reshape),
    "Cast": _casts,
    "Slice": _slices,
    **dict.fromkeys(
        """Abs Ceil Celu Clip Cos Elu Erf Exp Floor Gelu HardSigmoid HardSwish IsNaN LeakyRelu Log Mish Neg Not
        Reciprocal Relu Round Selu Sigmoid Sign Sin Softplus Softsign Sqrt Tanh ThresholdedRelu""".split(),
        _past_one_by_one,
    ),
}
