"""A description of a model, made without running it."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass

import onnx
from onnx import TensorProto, external_data_helper

from ._models.files import all_nodes, fixed_size, initializer_names, place_of, read_model, tensor_bytes, tensors
from ._models.given import Model
from .checking import Problem, schema_problems


@dataclass(frozen=True)
class ValueSummary:
    """The description of an input or output."""

    name: str
    type: str  #: such as "float [batch, 3]"
    has_default: bool = False  #: it is an input that has an initializer


@dataclass(frozen=True)
class Summary:
    """The summary of a model that `info` makes."""

    inputs: tuple[ValueSummary, ...]
    outputs: tuple[ValueSummary, ...]
    ir_version: int
    opsets: dict[str, int]  #: the versions by domain; "ai.onnx" is the standard's
    producer: str
    operators: dict[str, int]  #: the number of nodes of each, subgraphs and function bodies included; most first
    domains: dict[str, int]  #: the number of nodes of each domain's operators, likewise; "ai.onnx" is the standard's
    functions: tuple[str, ...]  #: the model's own, as "domain.name"
    parameters: int  #: the number of elements of all initializers and constants
    parameter_bytes: int
    external_files: tuple[str, ...]  #: the files of those that are not in the model itself
    metadata: dict[str, str]
    unsupported: tuple[Problem, ...]  #: operators that this library cannot run


def info(model: Model) -> Summary:
    """Describes a model: a ModelProto, its serialized bytes, or a path. It need not be one that can be run.

    External data is not read, and need not be there.

    >>> from onnx import parser
    >>> model = parser.parse_model('''<ir_version: 10, opset_import: ["": 21]>
    ...     net (float[batch, 3] x) => (z) <float[3] w = {1, 2, 3}> { y = Add(x, w)  z = Frob(y) }''')
    >>> summary = info(model)
    >>> summary.inputs[0].type, summary.parameters, summary.operators
    ('float [batch, 3]', 3, {'Add': 1, 'Frob': 1})
    >>> print(*summary.unsupported)
    Frob (opset 21): no such operator
    """
    proto = read_model(model)
    graph = proto.graph
    weights = list(tensors(proto))
    defaulted = initializer_names(graph)
    operators = Counter(_qualified(node.domain, node.op_type) for node in _nodes(proto))
    external = (place_of(w).location for w in weights if external_data_helper.uses_external_data(w))
    return Summary(
        inputs=tuple(ValueSummary(v.name, type_text(v.type), v.name in defaulted) for v in graph.input),
        outputs=tuple(ValueSummary(v.name, type_text(v.type)) for v in graph.output),
        ir_version=proto.ir_version,
        opsets={opset.domain or "ai.onnx": opset.version for opset in proto.opset_import},
        producer=" ".join(filter(None, [proto.producer_name, proto.producer_version])),
        operators=dict(operators.most_common()),
        domains=domains_of(proto),
        functions=tuple(_qualified(function.domain, function.name) for function in proto.functions),
        parameters=sum(math.prod(weight.dims) for weight in weights),
        parameter_bytes=sum(tensor_bytes(weight) for weight in weights),
        external_files=tuple(dict.fromkeys(external)),
        metadata={entry.key: entry.value for entry in proto.metadata_props},
        unsupported=tuple(p for p in schema_problems(proto) if p.unsupported) if proto.HasField("graph") else (),
    )


def domains_of(model: Model) -> dict[str, int]:
    """Counts the nodes of each domain's operators, subgraphs and function bodies included; most first."""
    return dict(Counter(node.domain or "ai.onnx" for node in _nodes(read_model(model))).most_common())


def _nodes(model: onnx.ModelProto) -> Iterator[onnx.NodeProto]:
    for body in [model.graph.node, *(function.node for function in model.functions)]:
        yield from all_nodes(body)


def type_text(type_: onnx.TypeProto) -> str:
    """Describes a type in words; an empty text where it is not declared."""
    kind = type_.WhichOneof("value")
    if kind in ("tensor_type", "sparse_tensor_type"):
        tensor = type_.tensor_type if kind == "tensor_type" else type_.sparse_tensor_type
        element = _element(tensor.elem_type)
        dims = [d.dim_param or "?" if fixed_size(d) is None else str(d.dim_value) for d in tensor.shape.dim]
        return f"{element} [{', '.join(dims)}]" if tensor.HasField("shape") else f"{element} of any shape"
    if kind == "sequence_type":
        return f"sequence of {type_text(type_.sequence_type.elem_type)}"
    if kind == "optional_type":
        return f"optional {type_text(type_.optional_type.elem_type)}"
    if kind == "map_type":
        return f"map from {_element(type_.map_type.key_type)} to {type_text(type_.map_type.value_type)}"
    return ""


def _element(number: int) -> str:
    is_known = number in TensorProto.DataType.values()
    return str(TensorProto.DataType.Name(number)).lower() if is_known else f"unknown type {number}"


def _qualified(domain: str, name: str) -> str:
    return f"{domain}.{name}" if domain not in ("", "ai.onnx") else name
