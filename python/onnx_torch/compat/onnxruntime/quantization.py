"""Not here: importing it raises ImportError."""

from onnx_torch.compat._status import no_module

no_module("quantization", "it rewrites models: quantize the model before, where onnxruntime itself is installed")
