"""`InferenceSession` and its kin: onnxruntime's interface, which `onnx_torch.compat` has the rest of."""

from .compat._session import *  # noqa: F403
from .compat._session import __all__ as __all__
