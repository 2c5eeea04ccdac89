"""What outputs come as, and how they get into memory of the caller's own."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Literal

import numpy as np
import torch

from .errors import InputError

OutputKind = Literal["numpy", "torch", "dlpack"]


def kind_of(values: Iterable[Any]) -> OutputKind:
    """The caller's kind of tensor: "torch" where one is there, "dlpack" for other libraries', else "numpy"."""
    kind: OutputKind = "numpy"
    for value in values:
        found = kind_of(value) if isinstance(value, (list, tuple)) else _kind(value)
        if found == "torch":
            return "torch"
        if found == "dlpack":
            kind = "dlpack"
    return kind


def _kind(value: Any) -> OutputKind:
    if isinstance(value, torch.Tensor):
        return "torch"
    return "dlpack" if hasattr(value, "__dlpack__") and not isinstance(value, np.ndarray) else "numpy"


def targets(names: Sequence[str], out: Any) -> list[Any]:
    """The caller's memory for each output, None where there is none, from a dictionary, a list or one array."""
    if isinstance(out, Mapping):
        unknown = [name for name in out if name not in names]
        if unknown:
            raise InputError(f"out has no output to take for {unknown[0]!r}; the outputs are {list(names)}")
        return [out.get(name) for name in names]
    given = list(out) if isinstance(out, (list, tuple)) else [out]
    if len(given) != len(names):
        raise InputError(f"out must hold {len(names)} arrays ({', '.join(names)}), not {len(given)}")
    return given


def write(name: str, value: Any, target: Any) -> Any:
    """The target, with the value in it; the value itself where there is no target."""
    if target is None:
        return value
    if isinstance(target, np.ndarray) and isinstance(value, np.ndarray):
        _check_fit(name, value, target)
        np.copyto(target, value)
        return target
    if not isinstance(value, (np.ndarray, torch.Tensor)):
        raise InputError(f"the output {name!r} is not a tensor, and cannot be written into one")
    tensor = target if isinstance(target, torch.Tensor) else torch.utils.dlpack.from_dlpack(target)
    source = torch.as_tensor(value)
    _check_fit(name, source, tensor)
    with torch.no_grad():
        tensor.copy_(source)
    return target


def _check_fit(name: str, value: Any, target: Any) -> None:
    if value.dtype != target.dtype or tuple(value.shape) != tuple(target.shape):
        raise InputError(
            f"the output {name!r} is {value.dtype} of shape {list(value.shape)}; "
            f"the array to write it into is {target.dtype} of shape {list(target.shape)}"
        )
