"""An ONNX backend that runs models as TorchScript graphs on LibTorch."""

import torch  # noqa: F401  (loads the libraries that the native module needs)

from . import backend
from .backend import prepare
from .custom_ops import register_op
from .errors import DeviceError, Error, InputError, InvalidModelError, RunError, UnsupportedError

__all__ = [
    "DeviceError",
    "Error",
    "InputError",
    "InvalidModelError",
    "RunError",
    "UnsupportedError",
    "backend",
    "prepare",
    "register_op",
]
__version__ = "0.1.0"
