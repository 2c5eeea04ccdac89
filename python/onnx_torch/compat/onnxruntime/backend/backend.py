"""onnxruntime's interface of ``onnx.backend``: this package's own."""

from onnx_torch.backend import OnnxTorchBackend as OnnxRuntimeBackend
from onnx_torch.backend import OnnxTorchRep as OnnxRuntimeBackendRep
from onnx_torch.backend import is_compatible, prepare, supports_device
from onnx_torch.backend import run_model as run

__all__ = ["OnnxRuntimeBackend", "OnnxRuntimeBackendRep", "is_compatible", "prepare", "run", "supports_device"]
