"""The names of onnxruntime-genai, for programs that were written for it.

>>> import onnx_torch.compat.onnxruntime_genai as og
>>> og.is_dml_available()
False

docs/language_models.md tells what works, what is accepted and ignored, and what is refused.
"""

from __future__ import annotations

from . import onnxruntime_genai as onnxruntime_genai
from .onnxruntime_genai import *  # noqa: F403

__version__ = "0.18.0"  # the release whose interface this is
__id__ = "onnx_torch"
