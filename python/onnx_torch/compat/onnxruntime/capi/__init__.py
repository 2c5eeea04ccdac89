"""The modules of ``onnxruntime.capi`` that programs import from: the exceptions, and the names of the package again."""

from onnx_torch.compat.onnxruntime.capi import onnxruntime_pybind11_state as onnxruntime_pybind11_state
