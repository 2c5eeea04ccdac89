"""Names of `onnx_torch.backend` in other modules: it is imported when one is asked for, as it imports onnx."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

#: The functions of onnxruntime's backend, by their names there, and the names that they have here.
FUNCTIONS = {
    "is_compatible": "is_compatible",
    "prepare": "prepare",
    "run": "run_model",
    "supports_device": "supports_device",
}


def getter(module: str, names: Mapping[str, str]) -> Callable[[str], Any]:
    """Makes the ``__getattr__`` of a module that has these names, each with that of `onnx_torch.backend`."""

    def get(name: str) -> Any:
        if name not in names:
            raise AttributeError(f"module {module!r} has no attribute {name!r}")
        from .. import backend

        return getattr(backend, names[name])

    return get
