"""The optimizer, which makes an ONNX model that gives the same with fewer nodes; docs/optimizer.md lists the rewrites.

A rewrite is a function of a file of its own, which changes a `Graph` and tells whether it did; `_table.py` has all of
them in their order.
"""

from __future__ import annotations

import os

import onnx

from .._models.files import directory_of, graph_model, read_external_data, required_inputs
from .._models.given import Model
from ._graph import Graph
from ._table import LEVELS, Level, rewrites

__all__ = ["LEVELS", "optimize"]

_MOST_ROUNDS = 20
_INITIALIZERS_ARE_NO_INPUTS = 4  # the IR version from which on they need not be inputs


def optimize(
    model: Model, level: Level = "extended", *, base_dir: str | os.PathLike[str] | None = None
) -> onnx.ModelProto:
    """Makes a model that gives the same with fewer nodes, for any engine.

    >>> import onnx, onnx_torch
    >>> model = onnx.parser.parse_model('''
    ...     <ir_version: 10, opset_import: ["" : 21]>
    ...     example (float[n, 2] x) => (float[n, 2] y) {
    ...         same = Identity(x)
    ...         turned = Transpose<perm=[1, 0]>(same)
    ...         back = Transpose<perm=[1, 0]>(turned)
    ...         y = Relu(back)
    ...     }
    ... ''')
    >>> [node.op_type for node in onnx_torch.optimize(model).graph.node]
    ['Relu']

    Inputs and outputs keep their names and types. Initializers that may be fed stay so, except those of IR versions
    before 4, where each is an input. What is done follows from the standard and from the sizes that the model declares
    for its inputs, and holds for all that it may be fed.

    Args:
        model: a ModelProto, its serialized bytes, or a path.
        level: "basic" folds constants, merges what is equal and takes out what changes nothing; "extended" has
            operators of the model's opset in place of the nodes that compute the same: Gelu, LayerNormalization,
            RMSNormalization, Attention; and one MatMul in place of three and more of one value.
        base_dir: the directory of the model's external data; for a path, the directory of the file by default.

    Returns:
        A new model that holds its weights.
    """
    if level not in LEVELS:
        raise ValueError(f"level must be one of {', '.join(LEVELS)}, not {level!r}")
    whole = onnx.ModelProto()
    whole.CopyFrom(graph_model(model))
    read_external_data(whole, directory_of(model, base_dir))
    if whole.ir_version < _INITIALIZERS_ARE_NO_INPUTS:
        _drop_initialized_inputs(whole)
    graph = Graph(whole)
    for _ in range(_MOST_ROUNDS):
        changed = False
        for rewrite in rewrites(level):
            if rewrite.function(graph):
                changed = True
                graph.index()
        if not changed:
            break
        graph.learn()
    return graph.written()


def _drop_initialized_inputs(model: onnx.ModelProto) -> None:
    inputs = list(required_inputs(model.graph))
    del model.graph.input[:]
    model.graph.input.extend(inputs)
    model.ir_version = _INITIALIZERS_ARE_NO_INPUTS
