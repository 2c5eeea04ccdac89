"""An ONNX backend that runs models as TorchScript graphs on LibTorch."""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

from ._build_info import VERSION as __version__
from ._versions import load_torch, show_versions

load_torch()  # torch must be there before anything that loads the native module

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
    from ._graph_text import show
    from ._models.extraction import extract
    from ._models.random_feeds import random_inputs
    from ._pytorch.export import kernels_library, to_torchscript
    from ._pytorch.initializers import update_initializers
    from ._pytorch.names import Names, names_of, torch_names
    from ._pytorch.python_module import OnnxModule, to_module
    from ._running.custom_ops import include_path, load_library, register_op
    from .benchmark import bench
    from .checking import check
    from .comparison import compare
    from .compat._devices import get_available_providers, get_device
    from .compat._options import RunOptions, SessionOptions
    from .compat._session import InferenceSession
    from .compat._values import OrtValue
    from .engine import Engine
    from .generation_benchmark import bench_generation
    from .language_model import LanguageModel
    from .model_summary import info
    from .operator_coverage import coverage
    from .optimizer import optimize
    from .prepared_model import PreparedModel, load, prepare
    from .profiling import profile
    from .self_test import selftest

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
    "PreparedModel",
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

# The names that are imported only when they are first asked for, by their module: nobody waits for what is not used.
_LAZY = {
    "prepared_model": ["PreparedModel", "load", "prepare"],
    "benchmark": ["bench"],
    "checking": ["check"],
    "comparison": ["compare"],
    "compat._devices": ["get_available_providers", "get_device"],
    "compat._options": ["RunOptions", "SessionOptions"],
    "compat._values": ["OrtValue"],
    "_running.custom_ops": ["include_path", "load_library", "register_op"],
    "engine": ["Engine"],
    "_pytorch.export": ["kernels_library", "to_torchscript"],
    "_models.extraction": ["extract"],
    "generation_benchmark": ["bench_generation"],
    "_graph_text": ["show"],
    "_pytorch.initializers": ["update_initializers"],
    "language_model": ["LanguageModel"],
    "model_summary": ["info"],
    "_pytorch.names": ["Names", "names_of", "torch_names"],
    "operator_coverage": ["coverage"],
    "optimizer": ["optimize"],
    "profiling": ["profile"],
    "_pytorch.python_module": ["OnnxModule", "to_module"],
    "_models.random_feeds": ["random_inputs"],
    "self_test": ["selftest"],
    "compat._session": ["InferenceSession"],
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
