"""Models as TorchScript modules."""

from __future__ import annotations

import os
import warnings
from collections.abc import Mapping
from pathlib import Path

import torch
from torch.jit._recursive import wrap_cpp_module

from . import _C
from .backend import Model, _serialized
from .errors import UnsupportedError
from .names import Names, torch_names

__all__ = ["NAMES_FILE", "kernels_library", "to_torchscript"]

NAMES_FILE = "onnx_names.json"  # in an archive that `to_torchscript` saved
CONSTANTS = "_constants"  # the submodule of what is constant but no initializer


def to_torchscript(
    model: Model,
    file: str | os.PathLike[str] | None = None,
    *,
    base_dir: str | os.PathLike[str] | None = None,
    shapes: Mapping[str, int] | None = None,
    custom_operators: bool = False,
) -> torch.jit.ScriptModule:
    """Makes a TorchScript module of a model.

    Its ``forward`` takes the model's inputs in order, and returns the output, or a tuple of several. The initializers
    that its graph reads are parameters where they are floating, else buffers, under their own names as far as
    `torch_names` allows; `names_of` tells them. Saved, it needs nothing but torch.

    Args:
        model: a ModelProto, its serialized bytes, or a path.
        file: where to save it as well, with the names as the extra file `NAMES_FILE`.
        base_dir: the directory of the model's external data; for a path, the directory of the file by default.
        shapes: sizes for symbolic dimensions of the inputs, such as ``{"batch": 8}``, which are then fixed.
        custom_operators: allow operators that torch itself lacks, most of which are in `kernels_library`: what loads
            the module must load their library first.

    Raises:
        UnsupportedError: the model handles strings, or needs custom operators that were not allowed.

    >>> import onnx, torch
    >>> model = onnx.parser.parse_model('''
    ...     <ir_version: 10, opset_import: ["": 21]> g (float[n, 2] x) => (float[n, 2] y)
    ...     <float[2] weight = {1, 2}> { y = Mul(x, weight) }''')
    >>> module = to_torchscript(model)
    >>> module(torch.ones(1, 2)).tolist()
    [[1.0, 2.0]]
    >>> list(module.state_dict())
    ['weight']
    """
    exported = _exported(model, base_dir, shapes)
    if exported.custom_operators and not custom_operators:
        nodes = "".join(f"\n  {node}: {operator}" for operator, node in exported.custom_operators)
        raise UnsupportedError(
            "torch itself lacks operators that this model needs. With custom_operators=True it is exported all "
            "the same, and runs where torch.ops.load_library has loaded their library; for onnx_torch::… that is "
            f"onnx_torch.kernels_library():{nodes}"
        )
    module = _script_module(exported)
    if file is not None:
        with warnings.catch_warnings():
            warnings.filterwarnings("ignore", "`torch.jit.save` is deprecated", FutureWarning)
            torch.jit.save(module, os.fspath(file), _extra_files={NAMES_FILE: module.onnx_names})
    return module


def kernels_library(cuda: bool = False) -> str:
    """The path of the library of custom operators, for ``torch.ops.load_library`` or a C++ program to load.

    Args:
        cuda: the one of their CUDA kernels, to be loaded as well for a module that runs there.

    Raises:
        UnsupportedError: this build of onnx_torch has no CUDA kernels.
    """
    path = Path(_C.__file__).with_name(f"libonnx_torch_{'cuda' if cuda else 'kernels'}.so")
    if not path.exists():
        raise UnsupportedError("this build of onnx_torch has no CUDA kernels, which take nvcc to build: docs/cuda.md")
    return str(path)


def _exported(model: Model, base_dir: str | os.PathLike[str] | None, shapes: Mapping[str, int] | None) -> _C.Export:
    directory, sizes = os.fspath(base_dir or ""), dict(shapes or {})
    if isinstance(model, (str, os.PathLike)):
        return _C.Export.from_path(os.fspath(model), directory, sizes)
    return _C.Export.from_bytes(_serialized(model), directory, sizes)


def _script_module(exported: _C.Export) -> torch.jit.ScriptModule:
    parameters = torch_names(exported.weights)
    inputs = torch_names(exported.inputs, arguments=True)
    custom_operators = sorted({operator for operator, _ in exported.custom_operators})
    names = Names(parameters, inputs, exported.outputs, custom_operators)
    paths = [path.split(".") for path in parameters.values()]
    module: torch.jit.ScriptModule = wrap_cpp_module(exported.module(list(inputs.values()), paths, names.to_json()))
    if hasattr(module, CONSTANTS):  # no part of the state_dict; TorchScript's files do not keep that
        constants = getattr(module, CONSTANTS)
        constants._non_persistent_buffers_set.update(name for name, _ in constants.named_buffers())
    return module
