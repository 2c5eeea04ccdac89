"""`InferenceSession` and its kin: a part of onnxruntime's interface, of which `onnx_torch.compat` has the rest."""

from .compat._session import *  # noqa: F403
from .compat._session import __all__ as __all__
