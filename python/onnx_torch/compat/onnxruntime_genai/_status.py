"""The marks of `compat`, for the names of onnxruntime-genai."""

from functools import partial

from onnx_torch.compat import _status

ignored = _status.ignored
refused = partial(_status.refused, package="onnxruntime_genai")
absent_class = partial(_status.absent_class, package="onnxruntime_genai")
