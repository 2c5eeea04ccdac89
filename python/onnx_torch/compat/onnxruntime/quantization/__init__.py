"""Enumerations and types, for lack of onnxruntime itself; where it is installed, `compat.install()` finds its own."""

from onnx_torch.compat._status import MARK, Status, refused
from onnx_torch.compat.onnxruntime.quantization.calibrate import *  # noqa: F403
from onnx_torch.compat.onnxruntime.quantization.quant_utils import *  # noqa: F403

_WHERE = "its code rewrites models where onnxruntime itself is installed, after onnx_torch.compat.install()"
globals()[MARK] = (
    Status.WORKS,
    "onnxruntime's own where it is installed, under `compat.install()`; else its types alone",
)

quantize = refused(_WHERE, "quantization.quantize")
quantize_dynamic = refused(_WHERE, "quantization.quantize_dynamic")
quantize_static = refused(_WHERE, "quantization.quantize_static")
quant_pre_process = refused(_WHERE, "quantization.quant_pre_process")
