"""The names of onnxruntime-genai, for programs that were written for it.

>>> import onnx_torch.compat.onnxruntime_genai as og
>>> og.is_dml_available()
False

docs/language_models.md tells what works, what is accepted and ignored, and what is refused.
"""

from __future__ import annotations

from ._config import Config as Config
from ._config import Model as Model
from ._engine import *  # noqa: F403
from ._environment import *  # noqa: F403
from ._generator import Generator as Generator
from ._generator import GeneratorParams as GeneratorParams
from ._tensor import Tensor as Tensor
from ._tokenizer import Tokenizer as Tokenizer
from ._tokenizer import TokenizerStream as TokenizerStream

from . import onnxruntime_genai as onnxruntime_genai  # isort: skip

__version__ = "0.18.0"  # whose interface this is
__id__ = "onnx_torch"
