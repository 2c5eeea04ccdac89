"""Not here: importing it raises ImportError."""

from onnx_torch.compat._status import no_module

no_module("transformers", "it rewrites models: optimize the model before, where onnxruntime itself is installed")
