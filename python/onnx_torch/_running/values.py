"""The kinds of arrays that outputs come as, and writing outputs into memory of the caller's own."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, Literal, TypeGuard

import numpy as np

from .. import _C
from ..errors import InputError

if TYPE_CHECKING:
    import torch

OutputKind = Literal["numpy", "torch", "dlpack"]


_AS_TORCH = {None: None, "numpy": False, "torch": True, "dlpack": True}


def is_tensor(value: Any) -> TypeGuard[torch.Tensor]:
    """Tells whether a value is a torch tensor; torch is not imported for that."""
    return _C.is_tensor(value)


def as_torch(kind: OutputKind | None) -> bool | None:
    """Tells whether tensors come out as torch's; None where that follows from what goes in."""
    if kind not in _AS_TORCH:
        raise InputError(f'output must be "numpy", "torch" or "dlpack", not {kind!r}')
    return _AS_TORCH[kind]


def kind_of(values: list[Any]) -> OutputKind:
    """Chooses the kind of outputs that is written best into the caller's arrays or tensors."""
    return "torch" if _C.is_torch_like(values) else "numpy"


def targets(names: Sequence[str], out: Any) -> list[Any]:
    """Returns the caller's memory for each output, None where there is none, from a dictionary, a list or one array."""
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
    """Writes a value into the target and returns that; returns the value itself where there is no target."""
    if target is None or value is target:
        return value
    if isinstance(target, np.ndarray) and isinstance(value, np.ndarray):
        _check_fit(name, value, target)
        np.copyto(target, value)
        return target
    if not isinstance(value, np.ndarray) and not is_tensor(value):
        raise InputError(f"the output {name!r} is not a tensor, and cannot be written into one")
    import torch

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
