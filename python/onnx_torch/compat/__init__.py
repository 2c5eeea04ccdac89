"""The stand-in for onnxruntime and onnxruntime-genai, in programs that import them themselves.

>>> import onnx_torch
>>> with onnx_torch.compat.install():
...     import onnxruntime
>>> onnxruntime.get_build_info().split()[0]
'onnx_torch'

`onnx_torch.compat.onnxruntime` and `onnx_torch.compat.onnxruntime_genai` are the modules themselves, for programs that
may be changed.

Where the packages are installed, those of their submodules that are Python alone (onnxruntime's quantization, tools and
transformers, genai's models) are taken from there, and run on this package.
"""

from __future__ import annotations

import contextlib
import importlib
import importlib.util
import sys
from collections.abc import Iterator
from types import ModuleType

__all__ = ["install", "uninstall"]

_MODULES = {
    "onnxruntime": (
        "",
        ".backend",
        ".backend.backend",
        ".backend.backend_rep",
        ".capi",
        ".capi._pybind_state",
        ".capi.onnxruntime_inference_collection",
        ".capi.onnxruntime_pybind11_state",
    ),
    "onnxruntime_genai": ("", ".onnxruntime_genai"),
}


def install(*packages: str) -> contextlib.AbstractContextManager[ModuleType]:
    """Makes ``import onnxruntime`` give this package's module, from now on or for the length of a ``with`` block.

    Args:
        packages: the packages to stand in for, "onnxruntime" or "onnxruntime_genai"; both by default. The ``with``
            block gives the module of the first.

    Raises:
        ImportError: one of them is imported already.
    """
    names = packages or tuple(_MODULES)
    unknown = [name for name in names if name not in _MODULES]
    if unknown:
        raise ValueError(f"there is nothing to stand in for {unknown[0]!r} with; there is for {', '.join(_MODULES)}")
    for name in names:
        _check(name)
    new = [name for name in names if name not in sys.modules]
    for name in new:
        _install(name)

    @contextlib.contextmanager
    def block() -> Iterator[ModuleType]:
        try:
            yield _ours(names[0])
        finally:
            for name in new:
                _uninstall(name)

    return block()


def uninstall() -> None:
    """Undoes `install`: the next ``import onnxruntime`` finds onnxruntime itself, where it is there.

    Modules that have been imported meanwhile keep the names that they have.
    """
    for name in _MODULES:
        _uninstall(name)


def _ours(name: str) -> ModuleType:
    return importlib.import_module(f"{__name__}.{name}")


def _check(name: str) -> None:
    found = sys.modules.get(name)
    if found is None or found is _ours(name):
        return
    others = ", ".join(f'"{other}"' for other in _MODULES if other != name)
    raise ImportError(
        f"{name} itself is imported already, from {getattr(found, '__file__', 'an unknown place')}; "
        f"call onnx_torch.compat.install() before whatever imports it, or install({others}) to leave it as it is"
    )


def _install(name: str) -> None:
    ours = _ours(name)
    modules = {name + child: importlib.import_module(f"{__name__}.{name}{child}") for child in _MODULES[name]}
    ours.__path__ = [*_folders_of_real(name), *ours.__path__]
    ours.__name__ = name  # ``from onnxruntime import quantization`` finds it by this name
    sys.modules.update(modules)


def _uninstall(name: str) -> None:
    ours = sys.modules.get(f"{__name__}.{name}")
    if ours is None or sys.modules.get(name) is not ours:
        return
    for loaded in [loaded for loaded in sys.modules if loaded == name or loaded.startswith(f"{name}.")]:
        module, child = sys.modules.pop(loaded), loaded.removeprefix(f"{name}.")
        if vars(ours).get(child) is module and f"{__name__}.{name}.{child}" not in sys.modules:
            delattr(ours, child)  # importing it has set the attribute
    ours.__path__, ours.__name__ = ours.__path__[-1:], f"{__name__}.{name}"


def _folders_of_real(name: str) -> list[str]:
    """Returns the folders where the package itself is installed, if it is."""
    spec = importlib.util.find_spec(name)
    return list(spec.submodule_search_locations or ()) if spec else []
