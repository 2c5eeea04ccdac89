"""The class of prepared models in onnxruntime's backend: this package's own."""

from onnx_torch.compat._backend_names import getter

_NAMES = {"OnnxRuntimeBackendRep": "OnnxTorchRep"}
__all__ = [*_NAMES]
__getattr__ = getter(__name__, _NAMES)
