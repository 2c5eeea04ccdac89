"""An ONNX backend that runs models as TorchScript graphs on LibTorch."""

from ._build_info import VERSION as __version__
from .versions import require_torch, show_versions

require_torch()  # before anything that loads the native module

from . import backend, compat
from .backend import prepare
from .benchmark import bench
from .checking import check
from .comparison import compare
from .compat._devices import get_available_providers, get_device
from .compat._options import RunOptions, SessionOptions
from .compat._values import OrtValue
from .custom_ops import include_path, load_library, register_op
from .errors import DeviceError, Error, InputError, InvalidModelError, RunError, StoppedError, UnsupportedError
from .export import kernels_library, to_torchscript
from .extraction import extract
from .graph_text import show
from .initializers import update_initializers
from .model_summary import info
from .names import Names, names_of, torch_names
from .operator_coverage import coverage
from .profiling import profile
from .python_module import OnnxModule, to_module
from .random_inputs import random_inputs
from .saving import load
from .session import InferenceSession

__all__ = [
    "DeviceError",
    "Error",
    "InferenceSession",
    "InputError",
    "InvalidModelError",
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
    "prepare",
    "profile",
    "random_inputs",
    "register_op",
    "show",
    "show_versions",
    "to_module",
    "to_torchscript",
    "torch_names",
    "update_initializers",
]
