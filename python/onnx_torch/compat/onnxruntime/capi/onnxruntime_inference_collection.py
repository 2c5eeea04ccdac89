"""The names of onnxruntime_pybind11_state, and those of the classes around the native ones."""

from onnx_torch.compat.onnxruntime.capi.onnxruntime_pybind11_state import *  # noqa: F403

# isort: split
from onnx_torch.compat._devices import OrtDevice as OrtDevice
from onnx_torch.compat._devices import check_and_normalize_provider_args as check_and_normalize_provider_args
from onnx_torch.compat._devices import get_ort_device_type as get_ort_device_type
