"""Models as ONNX's own Python objects, for code that looks at them without running them."""

from __future__ import annotations

import contextlib
import math
import os
from collections.abc import Iterable, Iterator
from typing import Any

import onnx
import onnx.checker
import onnx.shape_inference
from google.protobuf.message import DecodeError  # type: ignore[import-untyped,unused-ignore]
from onnx import external_data_helper

from .. import _C
from ..errors import FileError, InvalidModelError
from .given import External, Model, check_kind, serialized

_PACKED: dict[int, int] = {
    onnx.TensorProto.INT4: 4,
    onnx.TensorProto.UINT4: 4,
    onnx.TensorProto.FLOAT4E2M1: 4,
    onnx.TensorProto.INT2: 2,
    onnx.TensorProto.UINT2: 2,
}


def read_model(model: Model) -> onnx.ModelProto:
    """Reads a model; external data stays where it is."""
    check_kind(model)
    if isinstance(model, onnx.ModelProto):
        return model
    what = os.fsdecode(model) if isinstance(model, (str, os.PathLike)) else "what was given"
    try:
        if isinstance(model, (str, os.PathLike)):
            check_regular(model)
            return onnx.load(model, format="protobuf", load_external_data=False)  # whatever the file's name is
        return onnx.load_model_from_string(serialized(model))
    except OSError as error:
        raise InvalidModelError(f"cannot read {what}: {error.strerror}") from error
    except DecodeError as error:
        raise InvalidModelError(_C.no_model(f"{what} is", _beginning(model))) from error


def graph_model(model: Model) -> onnx.ModelProto:
    """Reads a model that must hold a graph: the first bytes of one, or none at all, are a model without."""
    read = read_model(model)
    if not read.HasField("graph"):
        raise InvalidModelError("the model holds no graph")
    return read


def _beginning(model: Model) -> bytes:
    if not isinstance(model, (str, os.PathLike)):
        return serialized(model)[:32]
    with open(model, "rb") as file:
        return file.read(32)


def check_regular(path: str | os.PathLike[str]) -> None:
    """Refuses a pipe, whose writer would be waited for, and devices."""
    if os.path.exists(path) and not os.path.isfile(path):
        raise InvalidModelError(f"{os.fsdecode(path)} is not a regular file")


def directory_of(model: Model, base_dir: str | os.PathLike[str] | None = None) -> str:
    """Returns the folder of the model's external data; empty for a model that is in no file."""
    if base_dir is not None:
        return os.fspath(base_dir)
    return os.path.dirname(os.path.abspath(model)) if isinstance(model, (str, os.PathLike)) else ""


def read_external_data(
    model: onnx.ModelProto, directory: str, external: External | None = None, links: str = "follow"
) -> None:
    """Reads a model's external data into it: from what is given, and the rest from the directory."""
    options = _C.Options(links=links)
    for tensor in filter(external_data_helper.uses_external_data, tensors(model, indices=True)):
        place = onnx.TensorProto(
            name=tensor.name, dims=tensor.dims, data_type=tensor.data_type, data_location=tensor.data_location
        )
        place.external_data.extend(tensor.external_data)
        _store(tensor, _C.external_bytes(place.SerializeToString(), directory, external, options))


def with_given_data(model: onnx.ModelProto, external: External | None) -> onnx.ModelProto:
    """Returns the model, or a copy that holds the external data given, for readers that look for it in files."""
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
            _store(tensor, bytes(given))


def _store(tensor: onnx.TensorProto, data: bytes) -> None:
    tensor.raw_data = data
    tensor.ClearField("external_data")
    tensor.ClearField("data_location")


def given_data(tensor: onnx.TensorProto, external: External | None) -> Any:
    """Returns the buffer of a tensor's external data where it is given, else None."""
    if external is None:
        return None
    place = place_of(tensor)
    name, start = os.path.normpath(place.location), place.offset or 0
    size = place.length or tensor_bytes(tensor)
    if callable(external):
        return external(name, start, size)
    held = {os.path.normpath(known): buffer for known, buffer in external.items()}.get(name)
    return None if held is None else memoryview(held).cast("B")[start : start + size]


def place_of(tensor: onnx.TensorProto) -> external_data_helper.ExternalDataInfo:
    """Returns the place of a tensor's external data: the file, the offset and the length."""
    try:
        return external_data_helper.ExternalDataInfo(tensor)
    except ValueError as error:
        raise InvalidModelError(f'the external data of the tensor "{tensor.name}": {error}') from error


def tensor_bytes(tensor: onnx.TensorProto) -> int:
    """Returns the size of a tensor's data in bytes."""
    count: int = math.prod(tensor.dims)
    if tensor.data_type == onnx.TensorProto.STRING:
        return sum(map(len, tensor.string_data))
    if tensor.data_type in _PACKED:
        return (count * _PACKED[tensor.data_type] + 7) // 8
    try:
        itemsize: int = onnx.helper.tensor_dtype_to_np_dtype(tensor.data_type).itemsize
    except KeyError as error:
        raise InvalidModelError(f'the tensor "{tensor.name}" has the element type {tensor.data_type}') from error
    return int(count * itemsize)


def with_inferred_types(model: onnx.ModelProto, *, data_prop: bool = False) -> onnx.ModelProto:
    """Returns a model with the types that ONNX's shape inference finds, or the model itself where that refuses it."""
    try:
        return onnx.shape_inference.infer_shapes(model, data_prop=data_prop)
    except (onnx.checker.ValidationError, onnx.shape_inference.InferenceError, RuntimeError, ValueError):
        return model  # it is invalid, or of more than 2 GiB


def sparse_names(graph: onnx.GraphProto) -> list[str]:
    """Returns the names of the sparse initializers; each has that of its values."""
    return [tensor.values.name for tensor in graph.sparse_initializer]


def initializer_names(graph: onnx.GraphProto) -> set[str]:
    return {tensor.name for tensor in graph.initializer} | set(sparse_names(graph))


def required_inputs(graph: onnx.GraphProto) -> list[onnx.ValueInfoProto]:
    """Returns the inputs that have no initializer."""
    initialized = initializer_names(graph)
    return [value for value in graph.input if value.name not in initialized]


def fixed_size(dim: onnx.TensorShapeProto.Dimension) -> int | None:
    """Returns a dimension's size, unless it is open; some exporters write -1 for that."""
    return dim.dim_value if dim.HasField("dim_value") and dim.dim_value >= 0 else None


def subgraphs(node: onnx.NodeProto) -> Iterator[onnx.GraphProto]:
    """Yields the graphs among a node's attributes."""
    for attribute in node.attribute:
        if attribute.type == onnx.AttributeProto.GRAPH:
            yield attribute.g
        yield from attribute.graphs


def all_nodes(nodes: Iterable[onnx.NodeProto]) -> Iterator[onnx.NodeProto]:
    """Yields the nodes, each followed by those of the graphs inside it."""
    for node in nodes:
        yield node
        for graph in subgraphs(node):
            yield from all_nodes(graph.node)


def tensors(model: onnx.ModelProto, *, indices: bool = False) -> Iterator[onnx.TensorProto]:
    """Yields the model's initializers and the tensors among its nodes' attributes, in subgraphs and functions, too.

    A sparse tensor yields its values, and its indices where they are asked for.
    """

    def parts(sparse: onnx.SparseTensorProto) -> Iterator[onnx.TensorProto]:
        yield sparse.values
        if indices:
            yield sparse.indices

    def inside(graph: onnx.GraphProto | onnx.FunctionProto) -> Iterator[onnx.TensorProto]:
        if isinstance(graph, onnx.GraphProto):
            yield from graph.initializer
            for sparse in graph.sparse_initializer:
                yield from parts(sparse)
        for node in graph.node:
            for attribute in node.attribute:
                if attribute.HasField("t"):
                    yield attribute.t
                yield from attribute.tensors
                if attribute.HasField("sparse_tensor"):
                    yield from parts(attribute.sparse_tensor)
                for sparse in attribute.sparse_tensors:
                    yield from parts(sparse)
            for inner in subgraphs(node):
                yield from inside(inner)

    yield from inside(model.graph)
    for function in model.functions:
        yield from inside(function)


@contextlib.contextmanager
def writing(file: str | os.PathLike[str]) -> Iterator[None]:
    """Turns an OSError into a FileError that names the file which cannot be written."""
    try:
        yield
    except OSError as error:
        raise FileError(f"cannot write {os.fsdecode(file)}: {error.strerror or error}") from error


def save_model(
    model: onnx.ModelProto,
    path: str | os.PathLike[str],
    *,
    external: bool = False,
    location: str = "",
    size_threshold: int = 1024,
) -> None:
    """Writes a model; its weights go into a file beside it where that is wanted, or where one message cannot hold all.

    It refuses a model that still refers to other files, as onnx would write to them.
    """
    for tensor in filter(external_data_helper.uses_external_data, tensors(model, indices=True)):
        raise InvalidModelError(f'the tensor "{tensor.name}" lies in another file, which would have to be read first')
    if not external and model.ByteSize() < onnx.checker.MAXIMUM_PROTOBUF:
        with writing(path):
            onnx.save(model, path)
        return
    stored = onnx.ModelProto()
    stored.CopyFrom(model)
    location = location or os.path.basename(os.fsdecode(path)) + ".data"
    with writing(path):
        onnx.save(stored, path, save_as_external_data=True, location=location, size_threshold=size_threshold)
