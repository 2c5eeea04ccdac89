"""The versions at work, and the check that torch is the one that this build needs."""

from __future__ import annotations

import ctypes
import importlib.util
import os
import re
import sys
from collections.abc import Iterator
from pathlib import Path

from . import _build_info

__all__ = ["show_versions"]

PACKAGES = ["onnx", "numpy", "ml_dtypes", "protobuf", "onnxruntime"]


def minor_release(version: str) -> str:
    """Returns the first two numbers of a version.

    >>> minor_release("2.15.0+cpu")
    '2.15'
    """
    return ".".join(version.split(".")[:2])


def torch_version() -> str:
    """Finds the version of torch, which is not imported for that. Raises ImportError where there is none."""
    imported = getattr(sys.modules.get("torch"), "__version__", None)
    if imported is not None:
        return str(imported)
    file = _torch_folder() / "version.py"
    found = re.search(r"^__version__ = ['\"](.+)['\"]", file.read_text(), re.MULTILINE)
    if not found:
        raise ImportError(f"{file} does not tell torch's version")
    return found[1]


def require_torch() -> None:
    """Raises ImportError unless torch is of the minor release that the native module was built with."""
    needed, version = minor_release(_build_info.TORCH), torch_version()
    if minor_release(version) != needed:
        raise ImportError(
            f"onnx_torch was built with torch {_build_info.TORCH}, and the torch here is {version}, "
            f"whose C++ interface is another. {_remedy()}; or build onnx_torch with the torch you have, from its "
            "sources: python -m pip install --no-build-isolation ."
        )


def load_torch() -> None:
    """Loads the libraries that the native module needs, the same files that importing torch loads.

    Their functions are looked up when they are first called, as most of the many thousands never are.
    """
    require_torch()
    try:
        ctypes.CDLL(str(_torch_folder() / "lib" / "libtorch_cpu.so"), mode=os.RTLD_LAZY)
    except OSError:  # torch knows more places in which its own requirements may be
        import torch  # noqa: F401


def _remedy() -> str:
    return f"Install it: python -m pip install 'torch=={minor_release(_build_info.TORCH)}.*'"


def _torch_folder() -> Path:
    try:
        found = importlib.util.find_spec("torch")
    except ModuleNotFoundError:
        found = None
    if found is None or found.origin is None:  # a folder of that name is no package
        needed = minor_release(_build_info.TORCH)
        raise ImportError(f"onnx_torch needs torch {needed}, which is not installed. {_remedy()}")
    return Path(found.origin).parent


def show_versions() -> None:
    """Prints what a bug report should tell: the versions of all that takes part, and the machine.

    >>> import onnx_torch
    >>> onnx_torch.show_versions()  # doctest: +ELLIPSIS
    onnx_torch ...
    """
    rows = version_rows()
    width = max(len(name) for name, _ in rows)
    print("\n".join(f"{name:{width}}  {value}" for name, value in rows))


def version_rows() -> list[tuple[str, str]]:
    """Returns the rows that `show_versions` prints: names and values."""
    return list(_versions())


def _versions() -> Iterator[tuple[str, str]]:
    import platform

    import torch

    yield "onnx_torch", f"{_build_info.VERSION} ({_build_info.BUILD_TYPE}, {_build_info.COMPILER})"
    yield "  built with", f"torch {_build_info.TORCH}, onnx {_build_info.ONNX}"
    yield "  libraries", ", ".join(f"{name} {version}" for name, version in _build_info.LIBRARIES.items())
    yield "  installed in", os.path.dirname(os.path.abspath(__file__))
    yield (
        "torch",
        f"{torch.__version__} (CUDA {torch.version.cuda or 'none'}, git {(torch.version.git_version or '')[:12]})",
    )
    for package in PACKAGES:
        yield package, _installed(package)
    yield "Python", f"{platform.python_version()} ({sys.executable})"
    yield "system", f"{platform.platform()}, {' '.join(platform.libc_ver())}"
    yield "processor", f"{platform.machine()}, {torch.backends.cpu.get_cpu_capability()}, {os.cpu_count()} cores"
    yield (
        "threads",
        f"{torch.get_num_threads()} within an operator, {torch.get_num_interop_threads()} between operators",
    )
    devices = [torch.cuda.get_device_name(index) for index in range(torch.cuda.device_count())]
    yield "CUDA devices", ", ".join(devices) or "none"


def _installed(package: str) -> str:
    import importlib.metadata  # this import is slow

    try:
        return importlib.metadata.version(package)
    except importlib.metadata.PackageNotFoundError:
        return "not installed"
