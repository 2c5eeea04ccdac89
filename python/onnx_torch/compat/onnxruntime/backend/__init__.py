"""onnxruntime's interface of ``onnx.backend``: this package's own."""

from onnx_torch.compat.onnxruntime.backend.backend import is_compatible as is_compatible
from onnx_torch.compat.onnxruntime.backend.backend import prepare as prepare
from onnx_torch.compat.onnxruntime.backend.backend import run as run
from onnx_torch.compat.onnxruntime.backend.backend import supports_device as supports_device
