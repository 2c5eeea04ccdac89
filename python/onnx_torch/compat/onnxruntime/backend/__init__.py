"""onnxruntime's interface of ``onnx.backend``: this package's own."""

from onnx_torch.compat._backend_names import FUNCTIONS, getter

__all__ = [*FUNCTIONS]
__getattr__ = getter(__name__, FUNCTIONS)
