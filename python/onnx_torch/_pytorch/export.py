"""Models as TorchScript modules."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING

from .. import _C
from .._models.files import writing
from .._models.fixed_shapes import FixedShapes, fixed_sizes
from .._models.given import External, Model, serialized
from .._models.trust import Trust, trust_of
from ..errors import UnsupportedError
from .names import Names, torch_names

if TYPE_CHECKING:
    import torch

__all__ = ["NAMES_FILE", "kernels_library", "save_torchscript", "to_torchscript"]

NAMES_FILE = "onnx_names.json"  # its name in an archive that `to_torchscript` saved
CONSTANTS = "_constants"  # the submodule of constants that are no initializers


def to_torchscript(
    model: Model,
    file: str | os.PathLike[str] | None = None,
    *,
    base_dir: str | os.PathLike[str] | None = None,
    external: External | None = None,
    shapes: FixedShapes | None = None,
    custom_operators: bool = False,
    limits: Mapping[str, float] | None = None,
    allow_aten: str = "checked",
    links: str = "follow",
) -> torch.jit.ScriptModule:
    """Makes a TorchScript module of a model.

    Its ``forward`` takes the model's inputs in order, and returns the output, or a tuple of several. The initializers
    that its graph reads are parameters where they are floating, else buffers, under their own names as far as
    `torch_names` allows; `names_of` tells them. Saved, it needs nothing but torch.

    Args:
        model: a ModelProto, its serialized bytes, or a path.
        file: where to save it as well, with the names as the extra file `NAMES_FILE`.
        base_dir: the directory of the model's external data; for a path, the directory of the file by default.
        external: external data from memory, as `prepare` takes it.
        shapes: sizes for open dimensions of the inputs, which are then fixed; see `prepare`.
        custom_operators: allow operators that torch itself lacks, most of which are in `kernels_library`: what loads
            the module must load their library first.
        limits: on translating the model, as `prepare` takes them; likewise ``allow_aten`` and ``links``.

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
    options = translation_options(shapes, trust_of(limits, allow_aten, links))
    exported = _exported(model, base_dir, external, options, custom_operators)
    if file is not None:
        _save(exported, file)
    return _script_module(exported)


def save_torchscript(
    model: Model,
    file: str | os.PathLike[str],
    *,
    base_dir: str | os.PathLike[str] | None = None,
    external: External | None = None,
    shapes: FixedShapes | None = None,
    custom_operators: bool = False,
    limits: Mapping[str, float] | None = None,
    allow_aten: str = "checked",
    links: str = "follow",
) -> Names:
    """Saves the module that `to_torchscript` makes, without importing torch, and returns its names."""
    options = translation_options(shapes, trust_of(limits, allow_aten, links))
    return _save(_exported(model, base_dir, external, options, custom_operators), file)


def kernels_library(cuda: bool = False) -> str:
    """Returns the path of the library of custom operators, for ``torch.ops.load_library`` or a C++ program to load.

    Args:
        cuda: the library of their CUDA kernels, to be loaded as well for a module that runs there.

    Raises:
        UnsupportedError: this build of onnx_torch has no CUDA kernels.
    """
    path = Path(_C.__file__).with_name(f"libonnx_torch_{'cuda' if cuda else 'kernels'}.so")
    if not path.exists():
        raise UnsupportedError("this build of onnx_torch has no CUDA kernels, which take nvcc to build: docs/cuda.md")
    return str(path)


def translation_options(shapes: FixedShapes | None, trust: Trust) -> _C.Options:
    return _C.Options(shapes=fixed_sizes(shapes), **trust)


def _exported(
    model: Model,
    base_dir: str | os.PathLike[str] | None,
    external: External | None,
    options: _C.Options,
    custom_operators: bool = True,
) -> _C.Export:
    directory = os.fspath(base_dir or "")
    if isinstance(model, (str, os.PathLike)):
        exported = _C.Export.from_path(os.fspath(model), directory, options, external)
    else:
        exported = _C.Export.from_bytes(serialized(model), directory, options, external)
    if exported.custom_operators and not custom_operators:
        nodes = "".join(f"\n  {node}: {operator}" for operator, node in exported.custom_operators)
        raise UnsupportedError(
            "torch itself lacks operators that this model needs. With custom_operators=True it is exported all "
            "the same, and runs where torch.ops.load_library has loaded their library; for onnx_torch::… that is "
            f"onnx_torch.kernels_library():{nodes}"
        )
    return exported


def _names(exported: _C.Export) -> Names:
    custom_operators = sorted({operator for operator, _ in exported.custom_operators})
    return Names(
        torch_names(exported.weights),
        torch_names(exported.inputs, arguments=True),
        exported.outputs,
        custom_operators,
    )


def _native(names: Names) -> _C.ModuleNames:
    paths = [path.split(".") for path in names.parameters.values()]
    return _C.ModuleNames(list(names.inputs.values()), paths, names.to_json())


def _save(exported: _C.Export, file: str | os.PathLike[str]) -> Names:
    names = _names(exported)
    with writing(file):
        exported.save(os.fspath(file), _native(names), {NAMES_FILE: names.to_json()})
    return names


def _script_module(exported: _C.Export) -> torch.jit.ScriptModule:
    from torch.jit._recursive import wrap_cpp_module

    module: torch.jit.ScriptModule = wrap_cpp_module(exported.module(_native(_names(exported))))
    if hasattr(module, CONSTANTS):  # they are no part of the state_dict; TorchScript's files do not keep that
        constants = getattr(module, CONSTANTS)
        constants._non_persistent_buffers_set.update(name for name, _ in constants.named_buffers())
    return module
