"""Models as ONNX's own Python objects, for what looks at them without running them."""

from __future__ import annotations

import contextlib
import math
import os
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any

import onnx
import onnx.checker
from google.protobuf.message import DecodeError  # type: ignore[import-untyped,unused-ignore]
from onnx import external_data_helper

from .errors import FileError, InvalidModelError

Model = onnx.ModelProto | bytes | str | os.PathLike[str]
External = Mapping[str, Any] | Callable[[str, int, int], Any]  # buffers by the names of files, or what gives one

_PACKED: dict[int, int] = {
    onnx.TensorProto.INT4: 4,
    onnx.TensorProto.UINT4: 4,
    onnx.TensorProto.FLOAT4E2M1: 4,
    onnx.TensorProto.INT2: 2,
    onnx.TensorProto.UINT2: 2,
}


def read_model(model: Model) -> onnx.ModelProto:
    """The model; external data stays where it is."""
    if isinstance(model, onnx.ModelProto):
        return model
    try:
        if isinstance(model, bytes):
            return onnx.load_model_from_string(model)
        return onnx.load(model, load_external_data=False)
    except OSError as error:
        raise InvalidModelError(f"cannot read {os.fsdecode(model)}: {error.strerror}") from error
    except DecodeError as error:
        what = "what was given" if isinstance(model, bytes) else os.fsdecode(model)
        raise InvalidModelError(f"{what} is not an ONNX model") from error


def directory_of(model: Model, base_dir: str | os.PathLike[str] | None = None) -> str:
    """Where the model's external data lies; empty for a model that is in no file."""
    if base_dir is not None:
        return os.fspath(base_dir)
    return os.path.dirname(os.path.abspath(model)) if isinstance(model, (str, os.PathLike)) else ""


def read_external_data(model: onnx.ModelProto, directory: str, external: External | None = None) -> None:
    """Reads a model's external data into it: what is given, and the rest from the directory, which onnx sees to."""
    _take_given(model, external)
    if not any(map(external_data_helper.uses_external_data, tensors(model))):
        return
    if not directory:
        raise InvalidModelError("the model has external data, and comes without a directory (base_dir)")
    try:
        external_data_helper.load_external_data_for_model(model, directory)
    except (OSError, onnx.checker.ValidationError) as error:
        raise InvalidModelError(f"the model's external data: {error}") from error


def with_given_data(model: onnx.ModelProto, external: External | None) -> onnx.ModelProto:
    """The model, or a copy that holds what external data is given, for those who look for it in files."""
    if external is None:
        return model
    copy = onnx.ModelProto()
    copy.CopyFrom(model)
    _take_given(copy, external)
    return copy


def _take_given(model: onnx.ModelProto, external: External | None) -> None:
    for tensor in filter(external_data_helper.uses_external_data, tensors(model)):
        given = given_data(tensor, external)
        if given is not None:
            tensor.raw_data = bytes(given)
            tensor.ClearField("external_data")
            tensor.ClearField("data_location")


def given_data(tensor: onnx.TensorProto, external: External | None) -> Any:
    """A buffer of a tensor's external data, where it is given."""
    if external is None:
        return None
    place = external_data_helper.ExternalDataInfo(tensor)
    name, start = os.path.normpath(place.location), place.offset or 0
    size = place.length or tensor_bytes(tensor)
    if callable(external):
        return external(name, start, size)
    held = {os.path.normpath(known): buffer for known, buffer in external.items()}.get(name)
    return None if held is None else memoryview(held).cast("B")[start : start + size]


def tensor_bytes(tensor: onnx.TensorProto) -> int:
    """The size of a tensor's data."""
    count: int = math.prod(tensor.dims)
    if tensor.data_type == onnx.TensorProto.STRING:
        return sum(map(len, tensor.string_data))
    if tensor.data_type in _PACKED:
        return (count * _PACKED[tensor.data_type] + 7) // 8
    itemsize: int = onnx.helper.tensor_dtype_to_np_dtype(tensor.data_type).itemsize
    return int(count * itemsize)


def sparse_names(graph: onnx.GraphProto) -> list[str]:
    """A sparse initializer has the name of its values."""
    return [tensor.values.name for tensor in graph.sparse_initializer]


def initializer_names(graph: onnx.GraphProto) -> set[str]:
    return {tensor.name for tensor in graph.initializer} | set(sparse_names(graph))


def required_inputs(graph: onnx.GraphProto) -> list[onnx.ValueInfoProto]:
    """The inputs that have no initializer."""
    initialized = initializer_names(graph)
    return [value for value in graph.input if value.name not in initialized]


def fixed_size(dim: onnx.TensorShapeProto.Dimension) -> int | None:
    """A dimension's size, unless it is open; some exporters write -1 for that."""
    return dim.dim_value if dim.HasField("dim_value") and dim.dim_value >= 0 else None


def subgraphs(node: onnx.NodeProto) -> Iterator[onnx.GraphProto]:
    """The graphs among a node's attributes."""
    for attribute in node.attribute:
        if attribute.type == onnx.AttributeProto.GRAPH:
            yield attribute.g
        yield from attribute.graphs


def all_nodes(nodes: Iterable[onnx.NodeProto]) -> Iterator[onnx.NodeProto]:
    """The nodes, and those of the graphs inside them."""
    for node in nodes:
        yield node
        for graph in subgraphs(node):
            yield from all_nodes(graph.node)


def tensors(model: onnx.ModelProto) -> Iterator[onnx.TensorProto]:
    """The model's initializers and the tensors among its nodes' attributes, in subgraphs and functions, too.

    Of a sparse tensor, these are its values.
    """

    def inside(graph: onnx.GraphProto | onnx.FunctionProto) -> Iterator[onnx.TensorProto]:
        if isinstance(graph, onnx.GraphProto):
            yield from graph.initializer
            yield from (sparse.values for sparse in graph.sparse_initializer)
        for node in graph.node:
            for attribute in node.attribute:
                if attribute.HasField("t"):
                    yield attribute.t
                yield from attribute.tensors
                if attribute.HasField("sparse_tensor"):
                    yield attribute.sparse_tensor.values
            for inner in subgraphs(node):
                yield from inside(inner)

    yield from inside(model.graph)
    for function in model.functions:
        yield from inside(function)


@contextlib.contextmanager
def writing(file: str | os.PathLike[str]) -> Iterator[None]:
    """Names the file where it cannot be written."""
    try:
        yield
    except OSError as error:
        raise FileError(f"cannot write {os.fsdecode(file)}: {error.strerror or error}") from error


def save_model(model: onnx.ModelProto, path: str | os.PathLike[str]) -> None:
    """Writes a model; its weights go into a file beside it where all together are too large for one message."""
    large = model.ByteSize() >= onnx.checker.MAXIMUM_PROTOBUF
    location = os.path.basename(os.fsdecode(path)) + ".data"
    with writing(path):
        onnx.save(model, path, save_as_external_data=large, location=location)
