"""A model's main graph while it is rewritten: the nodes that give and read each value, and what is known of it."""

from __future__ import annotations

import itertools
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

import numpy as np
import onnx
from onnx import AttributeProto, TensorProto, helper, numpy_helper

from .._models.files import all_nodes, sparse_names, subgraphs, tensors, with_inferred_types
from ._shape_values import Size, sizes_in_values

STANDARD = ("", "ai.onnx")
LARGE = 1024  # the bytes of a tensor above which its elements are not needed by shape inference

Array = np.ndarray[Any, Any]


class Node:
    """A node of the graph; two nodes are different ones even where their content is the same."""

    __slots__ = ("inputs", "outputs", "proto", "removed")

    def __init__(self, proto: onnx.NodeProto) -> None:
        self.proto = proto
        self.inputs: list[str] = list(proto.input)
        self.outputs: list[str] = list(proto.output)
        self.removed = False

    @property
    def op(self) -> str:
        """The operator's name, with the domain in front of it where that is not the standard's."""
        domain = self.proto.domain
        return self.proto.op_type if domain in STANDARD else f"{domain}.{self.proto.op_type}"

    def attribute(self, name: str, default: Any = None) -> Any:
        """Returns an attribute's value, or the default."""
        for attribute in self.proto.attribute:
            if attribute.name == name:
                return helper.get_attribute_value(attribute)
        return default

    def input(self, number: int) -> str:
        """Returns the name of an input; empty where it is left out."""
        return self.inputs[number] if number < len(self.inputs) else ""

    def read(self) -> Iterator[str]:
        """Yields the names of all values that the node reads, in its subgraphs, too."""
        yield from filter(None, self.inputs)
        for graph in subgraphs(self.proto):
            for inner in all_nodes(graph.node):
                yield from filter(None, inner.input)
            yield from (value.name for value in graph.output)

    @property
    def has_subgraphs(self) -> bool:
        return any(True for _ in subgraphs(self.proto))

    def content(self) -> onnx.NodeProto:
        """Returns the node's ONNX form, with its present inputs and outputs."""
        self.proto.input[:], self.proto.output[:] = self.inputs, self.outputs
        return self.proto


class Graph:
    """The main graph of a model, whose nodes are in order."""

    def __init__(self, model: onnx.ModelProto) -> None:
        self.model = model
        self.nodes = [Node(node) for node in model.graph.node]
        self.inputs = {value.name for value in model.graph.input}
        self.outputs = [value.name for value in model.graph.output]
        self.opsets = {entry.domain: entry.version for entry in model.opset_import}
        self._initializers = {tensor.name: tensor for tensor in model.graph.initializer}
        self._arrays: dict[str, Array] = {}
        self._numbers = itertools.count()
        self.index()
        self.learn()

    # --- What is there ------------------------------------------------------------------------------------------------

    @property
    def opset(self) -> int:
        """The version of the standard's operators."""
        return next((self.opsets[domain] for domain in STANDARD if domain in self.opsets), 1)

    def index(self) -> None:
        """Notes anew which nodes give and read each value."""
        self.nodes = [node for node in self.nodes if not node.removed]
        self._givers = {name: node for node in self.nodes for name in node.outputs if name}
        self._readers: dict[str, list[Node]] = defaultdict(list)
        self._captured: set[str] = set()
        for node in self.nodes:
            for name in dict.fromkeys(node.read()):
                self._readers[name].append(node)
            if node.has_subgraphs:
                self._captured.update(set(node.read()) - set(node.inputs))
        self._names = set(self._givers) | self._readers.keys() | self.inputs | self._initializers.keys()
        self._names.update(sparse_names(self.model.graph))

    def giver(self, name: str) -> Node | None:
        """Returns the node that a value comes from, or None."""
        node = self._givers.get(name)
        return None if node is None or node.removed else node

    def readers(self, name: str) -> list[Node]:
        """Returns the nodes that read a value, in their subgraphs, too."""
        return [node for node in self._readers[name] if not node.removed and name in node.read()]

    def only_reader(self, name: str) -> Node | None:
        """Returns the one node that reads a value, if nothing else needs that."""
        if name in self.outputs or name in self._captured:
            return None
        readers = self.readers(name)
        return readers[0] if len(readers) == 1 and readers[0].inputs.count(name) == 1 else None

    def is_captured(self, name: str) -> bool:
        """Tells whether a subgraph reads a value."""
        return name in self._captured

    def is_constant(self, name: str) -> bool:
        """Tells whether a value is the same in every run."""
        return name in self._initializers and name not in self.inputs

    def constant(self, name: str) -> Array | None:
        """Returns the elements of a value that is the same in every run, else None."""
        if not self.is_constant(name):
            return None
        if name not in self._arrays:
            self._arrays[name] = numpy_helper.to_array(self._initializers[name])
        return self._arrays[name]

    def scalar(self, name: str) -> float | None:
        """Returns the element of a constant that has one, else None."""
        tensor = self._initializers.get(name)
        if tensor is None or not self.is_constant(name) or any(size != 1 for size in tensor.dims):
            return None
        if tensor.data_type in (TensorProto.STRING, TensorProto.COMPLEX64, TensorProto.COMPLEX128):
            return None
        array = self.constant(name)
        return None if array is None else float(array.reshape(()))

    def integers(self, name: str) -> list[int] | None:
        """Returns the elements of a constant of integers, as a flat list, else None."""
        array = self.constant(name)
        return None if array is None or array.dtype.kind not in "iu" else [int(number) for number in array.reshape(-1)]

    def initializer(self, name: str) -> TensorProto | None:
        """Returns an initializer as the model has it, or None."""
        return self._initializers.get(name)

    # --- What is known ------------------------------------------------------------------------------------------------

    def learn(self) -> None:
        """Asks ONNX's shape inference for the types and sizes of values."""
        light = with_inferred_types(self.written(with_data=False), data_prop=True)
        self._types: dict[str, onnx.TypeProto.Tensor] = {}
        for value in (*light.graph.value_info, *light.graph.input, *light.graph.output):
            if value.type.HasField("tensor_type"):
                self._types[value.name] = value.type.tensor_type
        self.size_values: Mapping[str, list[Size]] = sizes_in_values(self)

    def element_type(self, name: str) -> int:
        """Returns ONNX's number of the element type; 0 where it is not known."""
        if name in self._initializers:
            return int(self._initializers[name].data_type)
        return int(self._types[name].elem_type) if name in self._types else 0

    def shape(self, name: str) -> list[Size] | None:
        """Returns the sizes: numbers, the names of open ones, or None; just None where the rank is open, too."""
        if name in self._initializers:
            return list(self._initializers[name].dims)
        if name not in self._types or not self._types[name].HasField("shape"):
            return None
        dims = self._types[name].shape.dim
        return [dim.dim_value if dim.HasField("dim_value") else dim.dim_param or None for dim in dims]

    def rank(self, name: str) -> int | None:
        """Returns the number of dimensions, or None."""
        shape = self.shape(name)
        return None if shape is None else len(shape)

    def fixed_shape(self, name: str) -> list[int] | None:
        """Returns the sizes, where all of them are numbers, else None."""
        shape = self.shape(name)
        sizes = [size for size in shape or () if isinstance(size, int)]
        return sizes if shape is not None and len(sizes) == len(shape) else None

    def same_shape(self, one: str, other: str) -> bool:
        """Tells whether two values are known to have the same sizes."""
        shape = self.shape(one)
        return shape is not None and None not in shape and shape == self.shape(other)

    # --- Changes ------------------------------------------------------------------------------------------------------

    def new_name(self, hint: str) -> str:
        """Makes a name that nothing has."""
        while True:
            name = f"{hint}.{next(self._numbers)}"
            if name not in self._names:
                self._names.add(name)
                return name

    def add_constant(self, array: Array, hint: str) -> str:
        """Adds a constant, and returns its name."""
        name = self.new_name(hint)
        self.set_constant(name, array)
        return name

    def set_constant(self, name: str, array: Array | TensorProto) -> None:
        """Makes a value a constant, whatever gave it before."""
        tensor = array if isinstance(array, TensorProto) else numpy_helper.from_array(np.asarray(array), name)
        tensor.name = name
        self._initializers[name] = tensor
        self._arrays.pop(name, None)

    def insert(
        self, before: Node, op_type: str, inputs: Sequence[str], outputs: Sequence[str], **attributes: Any
    ) -> Node:
        """Inserts a new node of a standard operator in front of another."""
        node = Node(helper.make_node(op_type, inputs, outputs, name=self.new_name(op_type), **attributes))
        self.nodes.insert(self.nodes.index(before), node)
        for name in inputs:
            self._readers[name].append(node)
        self._givers.update(dict.fromkeys(outputs, node))
        return node

    def replace(self, node: Node, op_type: str, inputs: Sequence[str], **attributes: Any) -> Node:
        """Puts a node of a standard operator in another's place, which gives that one's first output."""
        outputs, node.outputs = node.outputs[:1], []
        made = self.insert(node, op_type, inputs, outputs, **attributes)
        node.removed = True
        return made

    def change_input(self, node: Node, number: int, name: str) -> None:
        """Has a node read another value as one of its inputs."""
        node.inputs[number] = name
        self._readers[name].append(node)

    def bypass(self, node: Node, name: str) -> bool:
        """Has all readers of a node's first output read another value, and takes the node out.

        An output of the graph keeps its name: then the value's giver takes that name, if nothing else needs its own.
        """
        output = node.outputs[0]
        if output in self.outputs:
            giver = self.giver(name)
            if giver is None or name in self.outputs or name in self._captured or output in self._captured:
                return False
            giver.outputs[giver.outputs.index(name)] = output
            node.removed = True
            self._givers[output] = giver
            self.rename(name, output)
            return True
        if output in self._captured:
            return False
        node.removed = True
        self.rename(output, name)
        return True

    def rename(self, old: str, new: str) -> None:
        """Has all nodes that read one value read another."""
        for reader in self.readers(old):
            reader.inputs = [new if name == old else name for name in reader.inputs]
            self._readers[new].append(reader)

    # --- The result ---------------------------------------------------------------------------------------------------

    def written(self, *, with_data: bool = True) -> onnx.ModelProto:
        """Returns the model as it is now; without data, large constants have their types and shapes alone."""
        model = onnx.ModelProto()
        for field, value in self.model.ListFields():
            if field.name != "graph":
                target = getattr(model, field.name)
                if field.is_repeated:
                    target.MergeFrom(value)
                elif field.message_type:
                    target.CopyFrom(value)
                else:
                    setattr(model, field.name, value)
        graph, own = model.graph, self.model.graph
        graph.name, graph.doc_string = own.name, own.doc_string
        graph.input.extend(own.input)
        graph.output.extend(own.output)
        graph.sparse_initializer.extend(own.sparse_initializer)
        graph.metadata_props.extend(own.metadata_props)
        graph.node.extend(node.content() for node in self.nodes if not node.removed)
        graph.initializer.extend(
            tensor
            if with_data or tensor.ByteSize() <= LARGE
            else TensorProto(name=tensor.name, data_type=tensor.data_type, dims=tensor.dims)
            for tensor in self._initializers.values()
        )
        there = {name for node in self.nodes if not node.removed for name in node.outputs}
        graph.value_info.extend(value for value in own.value_info if with_data and value.name in there)
        if not with_data:
            for output in graph.output:  # the declared shapes of outputs are not relied on
                if output.type.HasField("tensor_type"):
                    output.type.tensor_type.ClearField("shape")
            for tensor in tensors(model):
                if tensor.ByteSize() > LARGE:
                    tensor.ClearField("raw_data")
        return model

    def keep_constants(self, names: Iterable[str]) -> bool:
        """Drops all other constants; tells whether there were any."""
        kept = set(names) | self.inputs
        dropped = self._initializers.keys() - kept
        for name in dropped:
            del self._initializers[name]
        return bool(dropped)

    def constants(self) -> Iterator[tuple[str, TensorProto]]:
        """Yields all constants, without those that may be fed."""
        return ((name, tensor) for name, tensor in self._initializers.items() if name not in self.inputs)


def attributes(node: Node) -> dict[str, Any]:
    """Returns the attributes of a node, by their names."""
    return {attribute.name: helper.get_attribute_value(attribute) for attribute in node.proto.attribute}


def attribute_key(node: Node) -> tuple[bytes, ...]:
    """Returns a key by which the attributes of nodes are compared."""
    return tuple(sorted(attribute.SerializeToString(deterministic=True) for attribute in node.proto.attribute))


def tensor_attribute(attribute: AttributeProto) -> TensorProto:
    """Returns the value in a Constant's attribute, as a tensor."""
    name = attribute.name
    if name == "value":
        return attribute.t
    if name in ("value_float", "value_floats"):
        value = attribute.f if name == "value_float" else list(attribute.floats)
        return numpy_helper.from_array(np.array(value, np.float32))
    if name in ("value_int", "value_ints"):
        value = attribute.i if name == "value_int" else list(attribute.ints)
        return numpy_helper.from_array(np.array(value, np.int64))
    text = attribute.s if name == "value_string" else list(attribute.strings)
    return numpy_helper.from_array(np.array(text, object))
