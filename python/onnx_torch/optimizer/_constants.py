"""The rewrite that computes what follows from constants alone."""

from __future__ import annotations

import onnx
from onnx import helper

from .. import prepared_model
from ..errors import Error
from ._equal import RANDOM
from ._graph import Graph, Node, tensor_attribute

MOST_GROWTH = 2**20  # the bytes by which a result may be larger than what it is computed from


def fold(graph: Graph) -> bool:
    """Computes the nodes that depend on nothing that is fed."""
    changed = _take_constants(graph)
    constant = {name for name, _ in graph.constants()}
    folded: list[Node] = []
    for node in graph.nodes:
        if not node.removed and _may_be_folded(graph, node) and all(name in constant for name in node.inputs if name):
            folded.append(node)
            constant.update(filter(None, node.outputs))
    return _compute(graph, folded) or changed


def _take_constants(graph: Graph) -> bool:
    """Turns Constant nodes into initializers."""
    changed = False
    for node in graph.nodes:
        if node.op != "Constant" or node.removed or len(node.proto.attribute) != 1 or node.outputs[0] in graph.outputs:
            continue
        attribute = node.proto.attribute[0]
        if attribute.name == "sparse_value":
            continue
        tensor = onnx.TensorProto()
        tensor.CopyFrom(tensor_attribute(attribute))
        graph.set_constant(node.outputs[0], tensor)
        node.removed = changed = True
    return changed


def _may_be_folded(graph: Graph, node: Node) -> bool:
    if node.op in RANDOM or "." in node.op or node.has_subgraphs or not node.outputs or not any(node.inputs):
        return False
    if any(name in graph.outputs for name in node.outputs) or node.op in ("DequantizeLinear", "QuantizeLinear"):
        return False  # the nodes that a quantizer wrote stay as its readers expect them
    return all(graph.element_type(name) for name in node.outputs if name)


def _compute(graph: Graph, nodes: list[Node]) -> bool:
    """Runs the nodes as a model, and keeps those results that others read and that do not grow much."""
    inside = set(map(id, nodes))
    wanted = [
        name
        for node in nodes
        for name in node.outputs
        if name and any(id(reader) not in inside for reader in graph.readers(name))
    ]
    if not wanted:
        return False
    read = dict.fromkeys(name for node in nodes for name in node.inputs if name)
    tensors = [tensor for name in read if (tensor := graph.initializer(name)) is not None]
    outputs = [helper.make_tensor_value_info(name, graph.element_type(name), None) for name in wanted]
    inner = helper.make_graph([node.content() for node in nodes], "constants", [], outputs, initializer=tensors)
    model = helper.make_model(inner, opset_imports=graph.model.opset_import, ir_version=max(4, graph.model.ir_version))
    try:
        results = prepared_model.prepare(model, optimize=False).run([])
    except Error:
        return False  # a node that fails is left to fail in a run, if it is ever reached
    size = sum(tensor.ByteSize() for tensor in tensors)
    changed = False
    for name, result in zip(wanted, results, strict=True):
        if not hasattr(result, "nbytes") or result.nbytes > size + MOST_GROWTH:
            continue
        graph.set_constant(name, result)
        giver = graph.giver(name)
        if giver is not None:
            giver.outputs = ["" if output == name else output for output in giver.outputs]
            giver.removed = not any(giver.outputs)
        changed = True
    return changed
