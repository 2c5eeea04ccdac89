"""onnxruntime's interface of ``onnx.backend``: this package's own."""

from onnx_torch.compat._backend_names import FUNCTIONS, getter

_NAMES = {**FUNCTIONS, "OnnxRuntimeBackend": "OnnxTorchBackend", "OnnxRuntimeBackendRep": "OnnxTorchRep"}
__all__ = [*_NAMES]
__getattr__ = getter(__name__, _NAMES)
