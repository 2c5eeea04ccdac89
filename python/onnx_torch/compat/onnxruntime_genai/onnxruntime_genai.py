"""The name of the compiled module that onnxruntime-genai has its classes in."""

from onnx_torch.compat.onnxruntime_genai import *  # noqa: F403
