"""The model of a session beside its runs: the changes that options make to it, and the shapes that it declares.

The model is an object of onnx's here. Sessions that need nothing of this import neither this module nor onnx.
"""

from __future__ import annotations

import logging
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import onnx
from google.protobuf.message import DecodeError  # type: ignore[import-untyped,unused-ignore]
from onnx import external_data_helper

from .._models.files import all_nodes, check_regular, read_external_data, save_model, tensors, with_inferred_types
from .._running import saving
from .._running.saved import is_saved
from ..optimizer import optimize
from ..optimizer._table import Level
from ._enums import GraphOptimizationLevel
from ._errors import Fail, InvalidArgument, InvalidProtobuf

if TYPE_CHECKING:
    from ._options import SessionOptions
    from ._session import Change, NodeArg
    from ._values import OrtValue

_WRITTEN_EXTERNAL_FILE = "session.optimized_model_external_initializers_file_name"
_LARGE = 1024  # the bytes of a tensor above which its elements are not needed by shape inference

#: The levels of `optimize` for a model that is written; None leaves it as it is.
_LEVELS: dict[GraphOptimizationLevel, Level | None] = {
    GraphOptimizationLevel.ORT_DISABLE_ALL: None,
    GraphOptimizationLevel.ORT_ENABLE_BASIC: "basic",
}

_log = logging.getLogger(__name__)


def read(source: bytes | str) -> onnx.ModelProto:
    """Reads the model; external data stays where it is."""
    try:
        if isinstance(source, bytes):
            return onnx.load_model_from_string(source)
        check_regular(source)
        if is_saved(source):
            return saving.model_in(source)
        return onnx.load_model(source, format="protobuf", load_external_data=False)
    except DecodeError as error:
        raise InvalidProtobuf(str(error)) from error


def is_onnx(source: bytes | str) -> bool:
    """Tells whether the model can be read."""
    try:
        read(source)
    except (InvalidProtobuf, OSError):
        return False
    return True


def _with_initializers(source: bytes | str, values: Mapping[str, OrtValue]) -> onnx.ModelProto:
    """Reads the model, and gives some of its initializers other values."""
    model = read(source)
    held = {tensor.name: tensor for tensor in model.graph.initializer}
    for name, value in values.items():
        if name not in held:
            raise InvalidArgument(f"the model has no initializer {name!r}")
        held[name].CopyFrom(onnx.numpy_helper.from_array(value.numpy(), name))
    return model


def _alter(model: onnx.ModelProto, change: Change) -> None:
    kept = [info for info in model.graph.input if info.name not in change.absent]
    for info in kept:
        if info.name in change.any_shape:
            info.type.tensor_type.ClearField("shape")
    del model.graph.input[:]
    model.graph.input.extend(kept)
    for node in all_nodes(model.graph.node):
        node.input[:] = ["" if name in change.absent else name for name in node.input]


def changed(source: bytes | str, initializers: Mapping[str, OrtValue], change: Change) -> onnx.ModelProto:
    """Reads the model, and changes its initializers and inputs."""
    model = _with_initializers(source, initializers)
    _alter(model, change)
    return model


def write(source: bytes | str, base_dir: str, options: SessionOptions, *, optimized: bool) -> None:
    """Writes a session's model as its options change it, with its external data in one file: whole, or not at all."""
    target = Path(options.optimized_model_filepath)
    try:
        if isinstance(source, str) and target.exists() and target.samefile(source):
            _log.warning("optimized_model_filepath names the model's own file, which is left as it is")
        else:
            model = _with_initializers(source, options._initializers)
            level = _LEVELS.get(options.graph_optimization_level, "extended") if optimized else None
            with tempfile.TemporaryDirectory(dir=target.parent, prefix=f"{target.name}.") as folder:
                _write_whole(model, Path(folder), target, options, base_dir, level)
    except OSError as error:
        raise Fail(f"the model cannot be written to optimized_model_filepath: {error}") from error


def _write_whole(
    model: onnx.ModelProto, folder: Path, target: Path, options: SessionOptions, base_dir: str, level: Level | None
) -> None:
    """Writes a model, by way of a folder beside its target."""
    written = folder / target.name
    location = options._entries.get(_WRITTEN_EXTERNAL_FILE)
    external = bool(location) or any(map(external_data_helper.uses_external_data, tensors(model)))
    read_external_data(model, base_dir, options._external)
    made = model if level is None else optimize(model, level)
    data = location or f"{target.name}.data"
    save_model(made, written, external=external, location=data, size_threshold=0)
    if (folder / data).exists():
        (folder / data).replace(target.with_name(data))
    written.replace(target)


def merged_shapes(source: bytes | str, declared: list[NodeArg], options: SessionOptions) -> list[NodeArg]:
    """Returns the outputs with the shapes that ONNX's shape inference knows, where the model declares less, or no rank.

    Sizes that nodes compute are followed, except at ORT_DISABLE_ALL: optimum knows by names that stay what to fix.
    """
    follows_sizes = options.graph_optimization_level != GraphOptimizationLevel.ORT_DISABLE_ALL
    model = read(source)
    for tensor in tensors(model):
        if tensor.ByteSize() > _LARGE:
            tensor.ClearField("raw_data")  # its type and shape are enough
    for output in model.graph.output:
        if output.type.HasField("tensor_type"):
            output.type.tensor_type.ClearField("shape")
    inferred = with_inferred_types(model, data_prop=follows_sizes)
    known = {value.name: value.type.tensor_type for value in inferred.graph.output}
    return [
        replace(arg, shape=_merged(arg.shape, known[arg.name].shape.dim)) if known[arg.name].HasField("shape") else arg
        for arg in declared
    ]


def _own_name(name: str) -> str | None:
    """Returns a dimension's name, or None if shape inference has made it up."""
    return None if not name or name.startswith("unk__") else name


def _merged(declared: list[int | str | None], inferred: Sequence[Any]) -> list[int | str | None]:
    found = [dim.dim_value if dim.HasField("dim_value") else _own_name(dim.dim_param) for dim in inferred]
    if declared and len(declared) != len(found):
        return declared
    pairs = zip(declared or [None] * len(found), found, strict=True)
    return [size if isinstance(size, int) and not isinstance(own, int) else own or size for own, size in pairs]
