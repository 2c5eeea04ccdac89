"""onnxruntime's interface of ``onnx.backend``: this package's own."""

from onnx_torch.compat._backend_names import getter

_NAMES = {
    "OnnxRuntimeBackend": "OnnxTorchBackend",
    "OnnxRuntimeBackendRep": "OnnxTorchRep",
    "is_compatible": "is_compatible",
    "prepare": "prepare",
    "run": "run_model",
    "supports_device": "supports_device",
}
__all__ = [*_NAMES]
__getattr__ = getter(__name__, _NAMES)
