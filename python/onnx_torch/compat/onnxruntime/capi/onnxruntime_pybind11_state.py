"""onnxruntime's exceptions and `OrtValueVector`, and the names of the package again."""

from onnx_torch.compat._adapters import *  # noqa: F403
from onnx_torch.compat._compiler import *  # noqa: F403
from onnx_torch.compat._devices import *  # noqa: F403
from onnx_torch.compat._devices import NativeDevice as OrtDevice  # noqa: F401
from onnx_torch.compat._enums import *  # noqa: F403
from onnx_torch.compat._environment import *  # noqa: F403
from onnx_torch.compat._errors import *  # noqa: F403
from onnx_torch.compat._options import *  # noqa: F403
from onnx_torch.compat._session import *  # noqa: F403
from onnx_torch.compat._values import *  # noqa: F403
from onnx_torch.compat._weight_quantizers import *  # noqa: F403
