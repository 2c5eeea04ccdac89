"""An ONNX backend that runs models as TorchScript graphs on LibTorch."""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

from ._build_info import VERSION as __version__
from .versions import load_torch, show_versions

load_torch()  # before anything that loads the native module

from . import _C as _C
from .errors import (
    DeviceError,
    Error,
    FileError,
    InputError,
    InvalidModelError,
    RunError,
    StoppedError,
    UnsupportedError,
)

if TYPE_CHECKING:
    from . import backend, compat, sandbox
    from .backend import prepare
    from .benchmark import bench
    from .checking import check
    from .comparison import compare
    from .compat._devices import get_available_providers, get_device
    from .compat._options import RunOptions, SessionOptions
    from .compat._values import OrtValue
    from .custom_ops import include_path, load_library, register_op
    from .engine import Engine
    from .export import kernels_library, to_torchscript
    from .extraction import extract
    from .generation_benchmark import bench_generation
    from .graph_text import show
    from .initializers import update_initializers
    from .language_model import LanguageModel
    from .model_summary import info
    from .names import Names, names_of, torch_names
    from .operator_coverage import coverage
    from .optimizer import optimize
    from .profiling import profile
    from .python_module import OnnxModule, to_module
    from .random_feeds import random_inputs
    from .saving import load
    from .self_test import selftest
    from .session import InferenceSession

__all__ = [
    "DeviceError",
    "Engine",
    "Error",
    "FileError",
    "InferenceSession",
    "InputError",
    "InvalidModelError",
    "LanguageModel",
    "Names",
    "OnnxModule",
    "OrtValue",
    "RunError",
    "RunOptions",
    "SessionOptions",
    "StoppedError",
    "UnsupportedError",
    "__version__",
    "backend",
    "bench",
    "bench_generation",
    "check",
    "compare",
    "compat",
    "coverage",
    "extract",
    "get_available_providers",
    "get_device",
    "include_path",
    "info",
    "kernels_library",
    "load",
    "load_library",
    "names_of",
    "optimize",
    "prepare",
    "profile",
    "random_inputs",
    "register_op",
    "sandbox",
    "selftest",
    "show",
    "show_versions",
    "to_module",
    "to_torchscript",
    "torch_names",
    "update_initializers",
]

# All else is imported when it is first asked for, so that nobody waits for what is not used: the names by their module.
_LAZY = {
    "backend": ["prepare"],
    "benchmark": ["bench"],
    "checking": ["check"],
    "comparison": ["compare"],
    "compat._devices": ["get_available_providers", "get_device"],
    "compat._options": ["RunOptions", "SessionOptions"],
    "compat._values": ["OrtValue"],
    "custom_ops": ["include_path", "load_library", "register_op"],
    "engine": ["Engine"],
    "export": ["kernels_library", "to_torchscript"],
    "extraction": ["extract"],
    "generation_benchmark": ["bench_generation"],
    "graph_text": ["show"],
    "initializers": ["update_initializers"],
    "language_model": ["LanguageModel"],
    "model_summary": ["info"],
    "names": ["Names", "names_of", "torch_names"],
    "operator_coverage": ["coverage"],
    "optimizer": ["optimize"],
    "profiling": ["profile"],
    "python_module": ["OnnxModule", "to_module"],
    "random_feeds": ["random_inputs"],
    "saving": ["load"],
    "self_test": ["selftest"],
    "session": ["InferenceSession"],
}
_MODULE_OF = {name: module for module, names in _LAZY.items() for name in names}


def __getattr__(name: str) -> Any:
    if name in ("backend", "compat", "sandbox"):
        return importlib.import_module(f".{name}", __name__)
    if name not in _MODULE_OF:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    value = globals()[name] = getattr(importlib.import_module(f".{_MODULE_OF[name]}", __name__), name)
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
