"""An ONNX backend that runs models as TorchScript graphs on LibTorch."""

from ._build_info import VERSION as __version__
from .versions import require_torch, show_versions

require_torch()  # before anything that loads the native module

from . import backend
from .backend import prepare
from .comparison import compare
from .custom_ops import register_op
from .errors import DeviceError, Error, InputError, InvalidModelError, RunError, UnsupportedError
from .extraction import extract
from .profiling import profile
from .random_inputs import random_inputs

__all__ = [
    "DeviceError",
    "Error",
    "InputError",
    "InvalidModelError",
    "RunError",
    "UnsupportedError",
    "__version__",
    "backend",
    "compare",
    "extract",
    "prepare",
    "profile",
    "random_inputs",
    "register_op",
    "show_versions",
]
