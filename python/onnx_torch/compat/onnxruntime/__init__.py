"""The names of onnxruntime, for programs that were written for it.

>>> import onnx_torch.compat.onnxruntime as ort
>>> ort.get_available_providers()[-1]
'CPUExecutionProvider'

docs/onnxruntime.md lists each name, and whether it works, is ignored or is refused.
"""

from onnx_torch.compat._adapters import *  # noqa: F403
from onnx_torch.compat._compiler import *  # noqa: F403
from onnx_torch.compat._devices import *  # noqa: F403
from onnx_torch.compat._devices import OrtDevice as OrtDevice
from onnx_torch.compat._enums import *  # noqa: F403
from onnx_torch.compat._environment import *  # noqa: F403
from onnx_torch.compat._environment import ONNXRUNTIME_VERSION as __version__
from onnx_torch.compat._options import *  # noqa: F403
from onnx_torch.compat._session import *  # noqa: F403
from onnx_torch.compat._sparse import *  # noqa: F403
from onnx_torch.compat._values import OrtValue as OrtValue
from onnx_torch.compat._values import copy_tensors as copy_tensors

from . import capi as capi

package_name = "onnx_torch"
version = __version__
cuda_version = ""
