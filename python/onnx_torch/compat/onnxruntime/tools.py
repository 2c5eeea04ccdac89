"""A module that is not here: importing it raises ImportError, where onnxruntime itself is not installed."""

from onnx_torch.compat._status import no_module

no_module("tools", "it is taken from onnxruntime itself, where that is installed, under compat.install()")
