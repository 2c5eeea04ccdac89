"""onnxruntime-genai's functions about the process, and its classes that have no meaning here."""

from __future__ import annotations

from onnx_torch.compat._devices import get_available_providers

from ._status import absent_class, ignored, refused

__all__ = [
    "Adapters",
    "Audios",
    "Images",
    "MtpGenerator",
    "MultiModalProcessor",
    "NamedTensors",
    "StreamingProcessor",
    "disable_telemetry_events",
    "enable_telemetry_events",
    "get_current_gpu_device_id",
    "is_cuda_available",
    "is_dml_available",
    "is_openvino_available",
    "is_qnn_available",
    "is_webgpu_available",
    "register_execution_provider_library",
    "set_current_gpu_device_id",
    "set_log_callback",
    "set_log_options",
    "unregister_execution_provider_library",
]


def is_cuda_available() -> bool:
    """Tells whether there is a CUDA device that can be used."""
    return "CUDAExecutionProvider" in get_available_providers()


def is_dml_available() -> bool:
    """Returns False, as there is no such provider."""
    return False


is_openvino_available = is_qnn_available = is_webgpu_available = is_dml_available

_DEVICE = 'Config.set_provider_option("cuda", "device_id", "1") chooses the device'
set_current_gpu_device_id = refused(_DEVICE, "set_current_gpu_device_id")
get_current_gpu_device_id = refused(_DEVICE, "get_current_gpu_device_id")

set_log_options = set_log_callback = ignored("Python's logger onnx_torch has the messages of this package")
enable_telemetry_events = disable_telemetry_events = ignored("nothing is sent anywhere")

_LIBRARIES = "providers of onnxruntime are compiled against its own interface"
register_execution_provider_library = refused(_LIBRARIES, "register_execution_provider_library")
unregister_execution_provider_library = refused(_LIBRARIES, "unregister_execution_provider_library")

_OTHERS = "models of images and sound are not served; onnx_torch.LanguageModel runs encoders with decoders"
Images = absent_class("Images", _OTHERS, "open", "open_bytes")
Audios = absent_class("Audios", _OTHERS, "open", "open_bytes")
MultiModalProcessor = absent_class("MultiModalProcessor", _OTHERS)
StreamingProcessor = absent_class("StreamingProcessor", _OTHERS)
NamedTensors = absent_class("NamedTensors", _OTHERS)
Adapters = absent_class("Adapters", "adapters are not served; merge them into the model's weights")
MtpGenerator = absent_class(
    "MtpGenerator", "no other model proposes tokens here; onnx_torch.LanguageModel has assistant_model="
)
