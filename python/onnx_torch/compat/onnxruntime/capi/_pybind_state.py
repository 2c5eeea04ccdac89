"""The same names as in onnxruntime_pybind11_state."""

from onnx_torch.compat.onnxruntime.capi.onnxruntime_pybind11_state import *  # noqa: F403
