"""Not here: importing it raises ImportError."""

from onnx_torch.compat._status import no_module

no_module("datasets", "it holds onnxruntime's own examples")
