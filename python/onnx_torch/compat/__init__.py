"""Stands in for onnxruntime, in programs that import it themselves.

>>> import onnx_torch
>>> with onnx_torch.compat.install():
...     import onnxruntime
>>> onnxruntime.get_build_info().split()[0]
'onnx_torch'

`onnx_torch.compat.onnxruntime` is the module itself, for programs that may be changed.

Where onnxruntime is installed, those of its submodules that are Python alone (quantization, tools, transformers) are
taken from there, and run on this package.
"""

from __future__ import annotations

import contextlib
import importlib
import importlib.util
import sys
from collections.abc import Iterator
from types import ModuleType

__all__ = ["install", "uninstall"]

_REAL = "onnxruntime"
_OURS = f"{__name__}.{_REAL}"
_MODULES = (
    "",
    ".backend",
    ".backend.backend",
    ".backend.backend_rep",
    ".capi",
    ".capi._pybind_state",
    ".capi.onnxruntime_inference_collection",
    ".capi.onnxruntime_pybind11_state",
)


def install() -> contextlib.AbstractContextManager[ModuleType]:
    """Makes ``import onnxruntime`` give this package's module, from now on or for the length of a ``with`` block.

    Raises:
        ImportError: onnxruntime itself is imported already.
    """
    ours = {_REAL + name: importlib.import_module(_OURS + name) for name in _MODULES}
    found = sys.modules.get(_REAL)
    if found not in (None, ours[_REAL]):
        raise ImportError(
            f"onnxruntime itself is imported already, from {getattr(found, '__file__', 'an unknown place')}; "
            "call onnx_torch.compat.install() before whatever imports it"
        )
    was_installed = found is not None
    if not was_installed:
        ours[_REAL].__path__ = [*_folders_of_real(), *ours[_REAL].__path__]
        ours[_REAL].__name__ = _REAL  # by which ``from onnxruntime import quantization`` finds it
    sys.modules.update(ours)

    @contextlib.contextmanager
    def block() -> Iterator[ModuleType]:
        try:
            yield ours[_REAL]
        finally:
            if not was_installed:
                uninstall()

    return block()


def uninstall() -> None:
    """Undoes `install`: the next ``import onnxruntime`` finds onnxruntime itself, where it is there.

    What has been imported meanwhile keeps the names that it has.
    """
    ours = sys.modules.get(_OURS)
    if ours is None or sys.modules.get(_REAL) is not ours:
        return
    for name in [name for name in sys.modules if name == _REAL or name.startswith(f"{_REAL}.")]:
        module, child = sys.modules.pop(name), name.removeprefix(f"{_REAL}.")
        if vars(ours).get(child) is module and f"{_OURS}.{child}" not in sys.modules:
            delattr(ours, child)  # which importing it has set
    ours.__path__, ours.__name__ = ours.__path__[-1:], _OURS


def _folders_of_real() -> list[str]:
    """Where onnxruntime itself is installed, if it is."""
    spec = importlib.util.find_spec(_REAL)
    return list(spec.submodule_search_locations or ()) if spec else []
