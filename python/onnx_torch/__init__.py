"""An ONNX backend that runs models as TorchScript graphs on LibTorch."""

import torch  # noqa: F401  (loads the libraries that the native module needs)

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
    "backend",
    "compare",
    "extract",
    "prepare",
    "profile",
    "random_inputs",
    "register_op",
]
__version__ = "0.1.0"
