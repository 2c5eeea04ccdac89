"""All classes under the name of the compiled module that onnxruntime-genai has them in."""

from onnx_torch.compat.onnxruntime_genai._config import Config as Config
from onnx_torch.compat.onnxruntime_genai._config import Model as Model
from onnx_torch.compat.onnxruntime_genai._engine import *  # noqa: F403
from onnx_torch.compat.onnxruntime_genai._environment import *  # noqa: F403
from onnx_torch.compat.onnxruntime_genai._generator import Generator as Generator
from onnx_torch.compat.onnxruntime_genai._generator import GeneratorParams as GeneratorParams
from onnx_torch.compat.onnxruntime_genai._tensor import Tensor as Tensor
from onnx_torch.compat.onnxruntime_genai._tokenizer import Tokenizer as Tokenizer
from onnx_torch.compat.onnxruntime_genai._tokenizer import TokenizerStream as TokenizerStream
