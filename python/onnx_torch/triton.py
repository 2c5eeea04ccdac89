"""Models for the PyTorch backend of the Triton Inference Server: a model folder with its configuration.

The folder follows Triton's documentation; it was not run against a server.
"""

from __future__ import annotations

import os
import re
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path

import onnx
from google.protobuf.text_encoding import CEscape  # type: ignore[import-untyped,unused-ignore]

from ._models.files import read_model
from ._models.fixed_shapes import FixedShapes, fixed_sizes
from ._models.given import External, Model
from ._models.trust import trust_of
from ._pytorch.export import save_torchscript
from .errors import InputError, UnsupportedError

__all__ = ["save"]

Dims = list[int]  # -1 stands for any size

TYPES: dict[int, str] = {
    onnx.TensorProto.BOOL: "TYPE_BOOL",
    onnx.TensorProto.UINT8: "TYPE_UINT8",
    onnx.TensorProto.INT8: "TYPE_INT8",
    onnx.TensorProto.INT16: "TYPE_INT16",
    onnx.TensorProto.INT32: "TYPE_INT32",
    onnx.TensorProto.INT64: "TYPE_INT64",
    onnx.TensorProto.FLOAT16: "TYPE_FP16",
    onnx.TensorProto.FLOAT: "TYPE_FP32",
    onnx.TensorProto.DOUBLE: "TYPE_FP64",
}


def save(
    model: Model,
    repository: str | os.PathLike[str],
    name: str | None = None,
    *,
    max_batch_size: int = 8,
    version: int = 1,
    custom_operators: bool = False,
    base_dir: str | os.PathLike[str] | None = None,
    external: External | None = None,
    shapes: FixedShapes | None = None,
    limits: Mapping[str, float] | None = None,
    allow_aten: str = "checked",
    links: str = "follow",
) -> Path:
    """Writes a model into a Triton model repository: ``NAME/config.pbtxt`` and ``NAME/VERSION/model.pt``.

    Inputs have the names of the arguments of `to_torchscript`'s ``forward``, which mostly are the model's; outputs are
    called ``name__index``, as Triton's PyTorch backend wants it.

    Args:
        model: a path, the model's bytes, or a ModelProto.
        repository: the repository's folder.
        name: the model's name there; by default that of its file, or of its graph.
        max_batch_size: the number of rows that Triton may put together, where the first dimension of every input and
            output is symbolic. Where one is not, and for 0, requests come with all their dimensions, and are not put
            together.
        version: the version's number.
        custom_operators: as `to_torchscript` takes it. The server must then be started with the operators' library in
            ``LD_PRELOAD``.
        base_dir: the directory of the model's external data; for a path, the directory of the file by default.
        external: external data from memory, as `prepare` takes it.
        shapes: sizes for open dimensions of the inputs, which are then fixed, such as ``{"width": 224}``; see
            `prepare`.
        limits: the limits, as `to_torchscript` takes them; likewise ``allow_aten`` and ``links``.

    Returns:
        The model's folder.

    Raises:
        UnsupportedError: the model has inputs or outputs of types that Triton's PyTorch backend lacks.
    """
    proto = read_model(model)
    called = name or (Path(model).stem if isinstance(model, (str, os.PathLike)) else proto.graph.name)
    if not re.fullmatch(r"[^/\\\x00]+", called) or called.startswith("."):
        raise InputError(f"{called!r} cannot be the name of a folder: give the model another name")
    folder = Path(repository) / called
    if (folder / str(version)).exists():
        raise InputError(f"{folder} has a version {version} already; give another number")
    Path(repository).mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(prefix=".", dir=repository) as partial:
        archive = Path(partial) / "model.pt"
        names = save_torchscript(
            model,
            archive,
            base_dir=base_dir,
            external=external,
            shapes=shapes,
            custom_operators=custom_operators,
            **trust_of(limits, allow_aten, links),
        )
        config = _config(called, proto.graph, names.inputs, max_batch_size, _sizes(proto.graph, shapes))
        (folder / str(version)).mkdir(parents=True)
        archive.rename(folder / str(version) / "model.pt")
    (folder / "config.pbtxt").write_text(config, encoding="utf-8")
    return folder


def output_name(name: str, index: int) -> str:
    """Names an output; Triton reads the index after the first two underscores in a row, so none may come before.

    >>> output_name("probabilities", 0), output_name("a__b_", 1)
    ('probabilities__0', 'a_b__1')
    """
    return f"{re.sub('_+', '_', name).rstrip('_')}__{index}"


def _sizes(graph: onnx.GraphProto, shapes: FixedShapes | None) -> dict[str, int]:
    """Collects the sizes of symbols and of inputs' axes, and those of symbols that follow from axes."""
    sizes = fixed_sizes(shapes)
    for value in graph.input:
        for axis, dim in enumerate(value.type.tensor_type.shape.dim):
            if dim.dim_param and f"{value.name}[{axis}]" in sizes:
                sizes[dim.dim_param] = sizes[f"{value.name}[{axis}]"]
    return sizes


def _config(
    name: str, graph: onnx.GraphProto, arguments: dict[str, str], max_batch_size: int, sizes: Mapping[str, int]
) -> str:
    values = {value.name: value for value in graph.input}
    inputs = [(argument, *_tensor(values[name], sizes)) for name, argument in arguments.items()]
    outputs = [(output_name(value.name, i), *_tensor(value, sizes)) for i, value in enumerate(graph.output)]
    is_batched = max_batch_size > 0 and all(dims[:1] == [-1] for _, _, dims in [*inputs, *outputs])
    lines = [
        f'name: "{CEscape(name, as_utf8=True)}"',
        'platform: "pytorch_libtorch"',
        f"max_batch_size: {max_batch_size if is_batched else 0}",
        *_section("input", inputs, is_batched),
        *_section("output", outputs, is_batched),
    ]
    return "\n".join(lines) + "\n"


def _tensor(value: onnx.ValueInfoProto, sizes: Mapping[str, int]) -> tuple[str, Dims]:
    tensor = value.type.tensor_type
    if not value.type.HasField("tensor_type") or tensor.elem_type not in TYPES:
        kind = onnx.helper.printable_type(value.type) if value.type.WhichOneof("value") else "of unknown type"
        raise UnsupportedError(f"Triton's PyTorch backend has no {value.name!r}, which is {kind}")
    if not tensor.HasField("shape"):
        raise UnsupportedError(
            f"the model does not declare the shape of {value.name!r}, which Triton must know; "
            "onnx.shape_inference may add it"
        )
    dims = [
        dim.dim_value if dim.HasField("dim_value") else sizes.get(f"{value.name}[{axis}]", sizes.get(dim.dim_param, -1))
        for axis, dim in enumerate(tensor.shape.dim)
    ]
    return TYPES[tensor.elem_type], dims


def _section(kind: str, tensors: Sequence[tuple[str, str, Dims]], is_batched: bool) -> list[str]:
    blocks = [_block(name, data_type, dims[is_batched:]) for name, data_type, dims in tensors]
    return [f"{kind} [", ",\n".join(blocks), "]"] if blocks else []


def _block(name: str, data_type: str, dims: Dims) -> str:
    lines = [f'name: "{CEscape(name, as_utf8=True)}"', f"data_type: {data_type}", f"dims: {dims or [1]}"]
    if not dims:  # Triton does not take empty ones
        lines.append("reshape: { shape: [] }")
    return "\n".join(["  {", *(f"    {line}" for line in lines), "  }"])
