"""A part of a model as a model of its own."""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator, Sequence

import onnx

from ..errors import InputError
from .files import (
    all_nodes,
    directory_of,
    graph_model,
    initializer_names,
    read_external_data,
    subgraphs,
    with_inferred_types,
)
from .given import External, Model


def extract(
    model: Model,
    inputs: Sequence[str] | None = None,
    outputs: Sequence[str] | None = None,
    *,
    base_dir: str | os.PathLike[str] | None = None,
    external: External | None = None,
    links: str = "follow",
) -> onnx.ModelProto:
    """Returns the part of a model that computes ``outputs`` from ``inputs``.

    It holds the nodes between them with all that those need: initializers, values that their subgraphs take from around
    them, functions, opset imports. External data is read into it.

    Args:
        model: a ModelProto, its serialized bytes, or a path.
        inputs: names of any values of the main graph, which are the inputs of the part; by default the model's inputs,
            as far as the part needs them.
        outputs: names of any values of the main graph; by default the model's outputs.
        base_dir: the directory of the model's external data; for a path, the directory of the file by default.
        external: external data from memory, as `prepare` takes it; likewise ``links``.

    >>> from onnx import parser
    >>> model = parser.parse_model('''<ir_version: 10, opset_import: ["": 21]>
    ...     net (float[2] x) => (float[2] z) { y = Relu(x)  z = Neg(y) }''')
    >>> [node.op_type for node in extract(model, ["y"], ["z"]).graph.node]
    ['Neg']
    """
    whole = graph_model(model)
    graph = whole.graph
    wanted = list(outputs) if outputs else [output.name for output in graph.output]
    cuts = list(inputs) if inputs else []
    _check_known(graph, [*cuts, *wanted])

    stops = set(cuts)
    nodes = _nodes_between(graph, stops, wanted)
    used = {name for node in nodes for name in node_inputs(node)} | set(wanted)
    computed = {name for node in nodes for name in node.output}
    missing = [value.name for value in graph.input if value.name in used - computed - stops]
    unfed = [name for name in missing if name not in initializer_names(graph)]
    if inputs and unfed:
        raise InputError(f"the part also needs the model's inputs {', '.join(unfed)}; name them among the inputs")

    part = without_graph(whole)
    part.functions.extend(functions_called(whole, nodes))
    part.graph.name, part.graph.doc_string = graph.name, graph.doc_string
    part.graph.node.extend(nodes)
    types = value_types(whole)
    part.graph.input.extend(_typed(types, name) for name in [*cuts, *missing])
    part.graph.output.extend(types.get(name, onnx.ValueInfoProto(name=name)) for name in wanted)
    kept = used - stops
    part.graph.initializer.extend(tensor for tensor in graph.initializer if tensor.name in kept)
    part.graph.sparse_initializer.extend(sparse for sparse in graph.sparse_initializer if sparse.values.name in kept)
    part.graph.value_info.extend(value for value in graph.value_info if value.name in computed - set(wanted))
    known = used | computed
    part.graph.quantization_annotation.extend(a for a in graph.quantization_annotation if a.tensor_name in known)
    directory = directory_of(model, base_dir)
    if directory or external is not None:
        read_external_data(part, directory, external, links)
    return part


def node_inputs(node: onnx.NodeProto) -> list[str]:
    """Returns the values a node needs: its inputs, and what its subgraphs take from the graph around it."""
    return [name for name in node.input if name] + [name for graph in subgraphs(node) for name in _free_names(graph)]


def _free_names(graph: onnx.GraphProto) -> list[str]:
    """Returns the names that a graph uses and does not define."""
    defined = {value.name for value in graph.input} | initializer_names(graph)
    free = []
    for node in graph.node:
        free += [name for name in node_inputs(node) if name not in defined]
        defined.update(node.output)
    return free + [output.name for output in graph.output if output.name not in defined]


def _nodes_between(graph: onnx.GraphProto, stops: set[str], wanted: Iterable[str]) -> list[onnx.NodeProto]:
    """Returns the nodes that compute the wanted values from the stops, in the graph's order."""
    maker = {name: i for i, node in enumerate(graph.node) for name in node.output if name}
    needed: set[int] = set()
    open_names = list(wanted)
    while open_names:
        name = open_names.pop()
        if name in stops or name not in maker or maker[name] in needed:
            continue
        needed.add(maker[name])
        open_names += node_inputs(graph.node[maker[name]])
    return [graph.node[i] for i in sorted(needed)]


def _check_known(graph: onnx.GraphProto, names: Iterable[str]) -> None:
    known = {value.name for value in graph.input} | initializer_names(graph)
    known.update(name for node in graph.node for name in node.output)
    for name in names:
        if name not in known:
            raise InputError(f'the model\'s graph has no value "{name}"')


def functions_called(model: onnx.ModelProto, nodes: Iterable[onnx.NodeProto]) -> Iterator[onnx.FunctionProto]:
    """Returns the model's functions that nodes call, directly or through others."""
    by_name: dict[tuple[str, str], list[onnx.FunctionProto]] = {}
    for function in model.functions:
        by_name.setdefault((function.domain, function.name), []).append(function)
    called: set[tuple[str, str]] = set()
    waiting = list(all_nodes(nodes))
    while waiting:
        node = waiting.pop()
        key = (node.domain, node.op_type)
        if key in by_name and key not in called:
            called.add(key)
            for function in by_name[key]:
                waiting += all_nodes(function.node)
    return (function for function in model.functions if (function.domain, function.name) in called)


def without_graph(model: onnx.ModelProto) -> onnx.ModelProto:
    """Returns a model with the same opset imports, versions and documentation, but no graph, functions or training."""
    skeleton = onnx.ModelProto()
    for field, value in model.ListFields():
        if field.name in ("graph", "functions", "training_info"):
            continue
        if isinstance(value, (str, int)):
            setattr(skeleton, field.name, value)
        else:
            getattr(skeleton, field.name).extend(value)
    return skeleton


def value_types(model: onnx.ModelProto) -> dict[str, onnx.ValueInfoProto]:
    """Returns the types that are known of the main graph's values; shape inference adds to those the model declares."""
    inferred = with_inferred_types(model).graph
    types = {
        tensor.name: onnx.helper.make_tensor_value_info(tensor.name, tensor.data_type, tensor.dims)
        for tensor in model.graph.initializer
    }
    for infos in (inferred.value_info, inferred.output, model.graph.value_info, model.graph.output, model.graph.input):
        types.update((value.name, value) for value in infos if value.type.WhichOneof("value"))
    return types


def _typed(types: dict[str, onnx.ValueInfoProto], name: str) -> onnx.ValueInfoProto:
    if name not in types:
        raise InputError(f'the type of "{name}" is not known, and an input needs one; declare it in value_info')
    return types[name]
