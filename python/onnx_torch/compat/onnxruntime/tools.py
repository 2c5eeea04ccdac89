"""Not here: importing it raises ImportError."""

from onnx_torch.compat._status import no_module

no_module("tools", "its scripts work on models for onnxruntime itself")
