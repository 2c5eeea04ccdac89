"""Running each node of a model as a model of its own.

Nothing is then known of the other nodes: no constant is folded, no shape is kept on the host, nothing is fused. Where
this and the whole model differ, what goes on between nodes is to blame; where this is wrong too, a node is.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import onnx

from .._models.extraction import functions_called, node_inputs, value_types, without_graph
from .._models.files import sparse_names
from .._models.trust import Trust
from ..prepared_model import prepare


class NodeByNode:
    """A model whose main graph runs node by node, each node trusted as far as the model."""

    def __init__(self, model: onnx.ModelProto, device: str, directory: str, trust: Trust) -> None:
        self._model = model
        self._device = device
        self._directory = directory
        self._trust = trust
        self._types = value_types(model)
        self._dense = {tensor.name: tensor for tensor in model.graph.initializer}
        self._sparse = dict(zip(sparse_names(model.graph), model.graph.sparse_initializer, strict=True))
        self._values: dict[str, Any] = {}

    def values(self, feeds: dict[str, Any], names: Sequence[str]) -> dict[str, Any]:
        """Returns values of the main graph, as far as they can be had; all are computed at the first call."""
        if not self._values:
            self._values = dict(feeds)
            for node in self._model.graph.node:
                self._run(node)
        return {name: self._values[name] for name in names if name in self._values}

    def _run(self, node: onnx.NodeProto) -> None:
        names = list(dict.fromkeys(node_inputs(node)))
        fed = [name for name in names if name in self._values]
        weights = [name for name in names if name in self._dense or name in self._sparse]
        # A Gradient node reads the nodes before it, not only their values.
        if node.op_type == "Gradient" or not set(names) <= {*fed, *weights}:
            return
        model = without_graph(self._model)
        model.functions.extend(functions_called(self._model, [node]))
        model.graph.name = node.op_type
        model.graph.node.append(node)
        model.graph.input.extend(self._info(name) for name in fed)
        model.graph.output.extend(onnx.ValueInfoProto(name=name) for name in node.output if name)
        model.graph.initializer.extend(self._dense[name] for name in weights if name in self._dense and name not in fed)
        model.graph.sparse_initializer.extend(self._sparse[n] for n in weights if n in self._sparse and n not in fed)
        rep = prepare(model, self._device, base_dir=self._directory or None, **self._trust)
        outputs = rep.run({name: self._values[name] for name in fed})
        self._values.update(zip((name for name in node.output if name), outputs, strict=True))

    def _info(self, name: str) -> onnx.ValueInfoProto:
        known, value = self._types.get(name), self._values[name]
        if known is not None and known.type.WhichOneof("value") != "tensor_type":
            return known
        dtype = np.asarray(value).dtype
        element = onnx.TensorProto.STRING if dtype.kind in "OUS" else onnx.helper.np_dtype_to_tensor_dtype(dtype)
        return onnx.helper.make_tensor_value_info(name, element, None)
