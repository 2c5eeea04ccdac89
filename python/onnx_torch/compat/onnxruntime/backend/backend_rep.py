"""The class of what `prepare` gives: this package's own."""

from onnx_torch.backend import OnnxTorchRep as OnnxRuntimeBackendRep

__all__ = ["OnnxRuntimeBackendRep"]
