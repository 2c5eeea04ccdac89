"""Operators of domains outside the ONNX standard."""

from __future__ import annotations

import functools
import itertools
import os
import re
import threading
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from .. import _C
from ..errors import InputError

if TYPE_CHECKING:
    import torch

_NAMESPACE = "onnx_torch_custom"
_numbers = itertools.count()
_defining = threading.Lock()  # torch takes one library of a namespace


def register_op(domain: str, op_type: str, implementation: str | Callable[..., Any], since_version: int = 1) -> None:
    """Says what the nodes of an operator of your own domain do, for all models prepared from then on.

    The node's inputs are, in order, the implementation's tensor arguments; its attributes are the arguments of the same
    names. Arguments that a node leaves out take their defaults.

    Args:
        domain: the operator's domain; not one of the standard's.
        op_type: the operator's name.
        implementation: the name of an operator that torch knows, "namespace::name" or "namespace::name.overload" (of
            torch's own, or registered by ``TORCH_LIBRARY`` or `torch.library`); or a Python function with type hints on
            all its arguments and its result, as `torch.library.infer_schema` reads them.
        since_version: the first opset version of the domain that this holds for, up to the next that is registered.

    >>> import torch
    >>> def scaled(x: torch.Tensor, factor: float = 2.0) -> torch.Tensor:
    ...     return x * factor
    >>> register_op("my.domain", "Scaled", scaled)
    >>> register_op("my.domain", "Erfc", "aten::special_erfc")
    """
    name = implementation if isinstance(implementation, str) else _defined(op_type, implementation)
    if "::" not in name:
        raise InputError(f'{name!r} is not the name of a torch operator; write "namespace::name", such as "aten::relu"')
    _C.register_operator(domain, op_type, since_version, name)


def load_library(path: str | os.PathLike[str]) -> None:
    """Loads a shared library of operators of your own domain, for all models prepared from then on.

    Its translators are written in C++ with ``onnx_torch/translator.h``, which lies below `include_path`, as
    docs/cpp_api.md shows. What the library registers with ``TORCH_LIBRARY`` is loaded with it.
    """
    _C.load_library(os.path.abspath(path))


def include_path() -> str:
    """Returns the folder of the C++ headers, for a compiler's ``-I``.

    >>> import os
    >>> os.path.exists(os.path.join(include_path(), "onnx_torch", "translator.h"))
    True
    """
    return os.path.join(os.path.dirname(os.path.abspath(_C.__file__)), "include")


@functools.cache
def _library() -> torch.library.Library:
    """Returns torch's library of the operators that are Python functions."""
    import torch

    return torch.library.Library(_NAMESPACE, "DEF")


def _defined(op_type: str, function: Callable[..., Any]) -> str:
    """Defines a torch operator that calls the function, and returns its name."""
    import torch

    try:
        schema = torch.library.infer_schema(function, mutates_args=())
    except ValueError as error:
        raise InputError(f"the function for {op_type} needs type hints that torch knows: {error}") from error
    with _defining:
        name = f"{re.sub(r'[^A-Za-z0-9_]', '_', op_type)}_{next(_numbers)}"
        _library().define(name + schema)
        _library().impl(name, function, "CompositeImplicitAutograd")
    return f"{_NAMESPACE}::{name}"
