"""The way back: a module's weights into the model it was made of."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import onnx
from onnx import external_data_helper, numpy_helper

from .._models.files import directory_of, read_external_data, read_model, save_model, tensors, writing
from .._models.given import External, Model
from ..errors import InputError
from .names import names_of

if TYPE_CHECKING:
    import torch

__all__ = ["update_initializers"]


def update_initializers(
    model: Model,
    module: torch.nn.Module,
    file: str | os.PathLike[str] | None = None,
    *,
    base_dir: str | os.PathLike[str] | None = None,
    external: External | None = None,
    links: str = "follow",
) -> onnx.ModelProto:
    """Puts a module's weights into the initializers of the model it was made of; all else stays.

    Args:
        model: the model, as `to_torchscript` or `to_module` got it.
        module: the module that was made of it, after training.
        file: where to save the result. Its weights go into a file beside it, ``<file>.data``, where the model's were
            in files of their own, or are too large for one message.
        base_dir: the directory of the model's external data; for a path, the directory of the file by default.
        external: external data from memory, as `prepare` takes it; likewise ``links``.

    Returns:
        A new model, which holds all its weights itself.

    >>> import onnx, torch
    >>> from onnx_torch import to_torchscript
    >>> model = onnx.parser.parse_model('''
    ...     <ir_version: 10, opset_import: ["": 21]> g (float[n, 2] x) => (float[n, 2] y)
    ...     <float[2] weight = {1, 2}> { y = Mul(x, weight) }''')
    >>> module = to_torchscript(model)
    >>> module.load_state_dict({"weight": torch.tensor([3.0, 4.0])})
    <All keys matched successfully>
    >>> onnx.numpy_helper.to_array(update_initializers(model, module).graph.initializer[0]).tolist()
    [3.0, 4.0]
    """
    result, had_files = _whole(model, base_dir, external, links)
    parameters = names_of(module).parameters
    state = module.state_dict(keep_vars=True)
    found = set()
    for graph in _graphs(result.graph):
        for sparse in [tensor for tensor in graph.sparse_initializer if tensor.values.name in parameters]:
            graph.initializer.add(name=sparse.values.name, data_type=sparse.values.data_type, dims=sparse.dims)
            graph.sparse_initializer.remove(sparse)
        for tensor in graph.initializer:
            if tensor.name in parameters:
                found.add(tensor.name)
                _store(state[parameters[tensor.name]], tensor)
    if missing := parameters.keys() - found:
        raise InputError(f"the module is of another model: there is no initializer {min(missing)!r}")
    if file is not None:
        _save(result, Path(file), external=had_files or result.ByteSize() >= onnx.checker.MAXIMUM_PROTOBUF)
    return result


def _whole(
    model: Model, base_dir: str | os.PathLike[str] | None, external: External | None, links: str
) -> tuple[onnx.ModelProto, bool]:
    """Returns a copy of the model with all its weights, and whether any was in another file."""
    result = onnx.ModelProto()
    result.CopyFrom(read_model(model))
    had_files = any(map(external_data_helper.uses_external_data, tensors(result, indices=True)))
    if had_files:
        read_external_data(result, directory_of(model, base_dir), external, links)
    return result, had_files


def _graphs(graph: onnx.GraphProto) -> Iterator[onnx.GraphProto]:
    yield graph
    for node in graph.node:
        for attribute in node.attribute:
            for inner in [*([attribute.g] if attribute.HasField("g") else []), *attribute.graphs]:
                yield from _graphs(inner)


def _store(weight: torch.Tensor, tensor: onnx.TensorProto) -> None:
    if list(weight.shape) != list(tensor.dims):
        here, there = list(weight.shape), list(tensor.dims)
        raise InputError(f"{tensor.name!r} has the shape {here} in the module, and {there} in the model")
    import torch

    weight = weight.detach().cpu()
    if weight.dtype == torch.bfloat16 or (weight.is_floating_point() and weight.dtype.itemsize == 1):
        weight = weight.float()  # numpy lacks these types
    array = weight.numpy().astype(onnx.helper.tensor_dtype_to_np_dtype(tensor.data_type))
    doc_string, metadata = tensor.doc_string, list(tensor.metadata_props)
    tensor.CopyFrom(numpy_helper.from_array(array, tensor.name))
    if doc_string:
        tensor.doc_string = doc_string
    tensor.metadata_props.extend(metadata)


def _save(model: onnx.ModelProto, file: Path, external: bool) -> None:
    if external:  # onnx would append to the data; a process that has mapped the old file keeps it
        with writing(file):
            file.with_name(file.name + ".data").unlink(missing_ok=True)
    save_model(model, file, external=external)
