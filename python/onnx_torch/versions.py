"""Which versions are at work, and whether torch is the one this build needs."""

from __future__ import annotations

import importlib.metadata
import os
import platform
import sys
from collections.abc import Iterator

from . import _build_info

__all__ = ["show_versions"]

PACKAGES = ["onnx", "numpy", "ml_dtypes", "protobuf", "onnxruntime"]


def minor_release(version: str) -> str:
    """A version's first two numbers.

    >>> minor_release("2.15.0+cpu")
    '2.15'
    """
    return ".".join(version.split(".")[:2])


def require_torch() -> None:
    """Raises ImportError unless torch is of the minor release that the native module was built with.

    Importing torch also loads the libraries that the native module needs.
    """
    needed = minor_release(_build_info.TORCH)
    remedy = f"Install it: python -m pip install 'torch=={needed}.*'"
    try:
        import torch
    except ModuleNotFoundError as error:
        if error.name != "torch":
            raise
        raise ImportError(f"onnx_torch needs torch {needed}, which is not installed. {remedy}") from None
    if minor_release(torch.__version__) != needed:
        raise ImportError(
            f"onnx_torch was built with torch {_build_info.TORCH}, and the torch here is {torch.__version__}, "
            f"whose C++ interface is another. {remedy}; or build onnx_torch with the torch you have, from its sources: "
            "python -m pip install --no-build-isolation ."
        )


def show_versions() -> None:
    """Prints what a report of a fault should tell: the versions of all that takes part, and the machine.

    >>> import onnx_torch
    >>> onnx_torch.show_versions()  # doctest: +ELLIPSIS
    onnx_torch ...
    """
    rows = list(_versions())
    width = max(len(name) for name, _ in rows)
    print("\n".join(f"{name:{width}}  {value}" for name, value in rows))


def _versions() -> Iterator[tuple[str, str]]:
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
    try:
        return importlib.metadata.version(package)
    except importlib.metadata.PackageNotFoundError:
        return "not installed"
