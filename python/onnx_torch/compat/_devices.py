"""The providers and devices that there are, and onnxruntime's classes that describe them."""

from __future__ import annotations

import platform
import warnings
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from .. import _C
from ._enums import (
    OrtAllocatorType,
    OrtDeviceMemoryType,
    OrtDeviceVendorId,
    OrtHardwareDeviceType,
    OrtMemoryInfoDeviceType,
    OrtMemType,
)
from ._errors import Fail, InvalidArgument
from ._status import refused, works

__all__ = [
    "OrtEpDevice",
    "OrtHardwareDevice",
    "OrtMemoryInfo",
    "get_all_providers",
    "get_available_providers",
    "get_device",
    "get_ep_devices",
]

CPU, CUDA = "CPUExecutionProvider", "CUDAExecutionProvider"
KNOWN_PROVIDERS = frozenset(
    f"{name}ExecutionProvider"
    for name in """ACL Azure CANN CPU CUDA CoreML Dml Dnnl Js MIGraphX Nnapi NvTensorRTRTX OpenVINO QNN Rknpu Tensorrt
    VSINPU VitisAI WebGpu WebNN Xnnpack""".split()
)
Provider = str | tuple[str, Mapping[Any, Any]]


# --- Providers --------------------------------------------------------------------------------------------------------


def get_available_providers() -> list[str]:
    """Returns the providers of this process, the fastest first.

    >>> import onnx_torch
    >>> onnx_torch.get_available_providers()[-1]
    'CPUExecutionProvider'
    """
    return [CUDA, CPU] if _C.cuda_device_count() else [CPU]


@works("those that this package can have: CUDA's and the CPU's")
def get_all_providers() -> list[str]:
    """Returns the providers that this package can have."""
    return [CUDA, CPU]


def get_device() -> str:
    """Returns ``"GPU"`` where there is a CUDA device, else ``"CPU"``."""
    return "GPU" if _C.cuda_device_count() else "CPU"


def _with_options(
    providers: Sequence[Provider], provider_options: Sequence[Mapping[Any, Any]] | None
) -> Iterator[tuple[str, Mapping[Any, Any]]]:
    if provider_options is not None:
        if len(providers) != len(provider_options):
            raise ValueError("'providers' and 'provider_options' should be the same length if both are given.")
        if not all(isinstance(provider, str) for provider in providers):
            raise ValueError("Only string values for 'providers' are supported if 'provider_options' is given.")
        if not all(isinstance(options, Mapping) for options in provider_options):
            raise ValueError("'provider_options' values must be dicts.")
        providers = list(zip(providers, provider_options, strict=True))  # type: ignore[arg-type]
    for provider in providers:
        match (provider, {}) if isinstance(provider, str) else provider:
            case (str(name), Mapping() as options):
                yield name, options
            case _:
                raise ValueError("'providers' values must be either strings or (string, dict) tuples.")


def _asked_for(
    providers: Sequence[Provider] | None,
    provider_options: Sequence[Mapping[Any, Any]] | None,
    available: Sequence[str],
    stacklevel: int,
) -> dict[str, dict[str, str]]:
    """Collects the providers asked for, with their options as text; warns of those that are not there."""
    given = [providers] if isinstance(providers, str) else providers or []
    found: dict[str, dict[str, str]] = {}
    for name, options in _with_options(given, provider_options):
        if name in found:
            warnings.warn(f"Duplicate provider '{name}' encountered, ignoring.", stacklevel=stacklevel)
            continue
        if name not in available:
            warnings.warn(
                f"Specified provider '{name}' is not in available provider names. "
                f"Available providers: '{', '.join(available)}'",
                stacklevel=stacklevel,
            )
        found[name] = {str(key): str(value) for key, value in options.items()}
    return found


def check_known(providers: Sequence[Provider] | None) -> None:
    """Refuses names that onnxruntime has never had; `_asked_for` warns of those that are only not there."""
    for provider in [providers] if isinstance(providers, str) else providers or ():
        name = provider if isinstance(provider, str) else provider[0]
        if name not in KNOWN_PROVIDERS:
            raise Fail(f"Unknown Provider Type: {name}")


def preferred(
    providers: Sequence[Provider] | None,
    provider_options: Sequence[Mapping[Any, Any]] | None,
    stacklevel: int,
) -> dict[str, dict[str, str]]:
    """Returns the providers asked for that are there, with their options as text; warns of those that are not."""
    available = get_available_providers()
    found = _asked_for(providers, provider_options, available, stacklevel + 1)
    return {name: options for name, options in found.items() if name in available}


def check_and_normalize_provider_args(
    providers: Sequence[Provider] | None,
    provider_options: Sequence[Mapping[Any, Any]] | None,
    available_provider_names: Sequence[str],
) -> tuple[list[str], list[dict[str, str]]]:
    """Returns the names of the providers asked for, and their options as text; warns of those that are not there."""
    found = _asked_for(providers, provider_options, available_provider_names, stacklevel=3)
    return list(found), list(found.values())


# --- Devices ----------------------------------------------------------------------------------------------------------

_KINDS = {"cpu": 0, "cuda": 1, "dml": 1, "webgpu": 1, "gpu": 1, "fpga": 2, "cann": 3, "npu": 3}
_VENDORS = {
    "cuda": OrtDeviceVendorId.NVIDIA,
    "dml": OrtDeviceVendorId.MICROSOFT,
    "cann": OrtDeviceVendorId.HUAWEI,
}


def _kind(device_type: str) -> int:
    """Returns onnxruntime's number of a kind of device, by its name."""
    if device_type.lower() not in _KINDS:
        raise InvalidArgument(f"Unsupported device type: {device_type}")
    return _KINDS[device_type.lower()]


@dataclass(frozen=True)
class TorchDevice:
    """A device by torch's name of its type, and by its index."""

    type: str
    index: int = 0

    def __str__(self) -> str:
        return f"{self.type}:{self.index}"


HOST = TorchDevice("cpu")


def get_ort_device_type(device_type: str) -> int:
    """Returns onnxruntime's number of a kind of device, from which native devices are made."""
    return NativeDevice.dml() if device_type == "dml" else _kind(device_type)


def torch_device(device_type: str | NativeDevice | TorchDevice, device_id: int = 0) -> TorchDevice:
    """Returns torch's device for one of onnxruntime's; raises InvalidArgument where it is not there."""
    if isinstance(device_type, TorchDevice):
        return device_type
    if isinstance(device_type, NativeDevice):
        kinds = {0: "cpu", 1: "cuda"}
        return torch_device(kinds.get(device_type.device_type(), "npu"), device_type.device_id())
    if _kind(device_type) == _KINDS["cpu"]:
        return HOST
    if device_type.lower() in ("cuda", "gpu") and device_id < _C.cuda_device_count():
        return TorchDevice("cuda", device_id)
    raise InvalidArgument(f"there is no device {device_type}:{device_id}; devices are cpu and CUDA's of this process")


class NativeDevice:
    """A device by onnxruntime's numbers: the `OrtDevice` of its native module."""

    def __init__(self, device_type: int, mem_type: int, *vendor_and_device: int) -> None:
        is_dml = device_type == NativeDevice.dml()
        vendor = int(_VENDORS["dml"]) if is_dml else 0
        self._type, self._mem_type = _KINDS["dml"] if is_dml else device_type, mem_type
        self._vendor, self._id = vendor_and_device if len(vendor_and_device) == 2 else (vendor, *vendor_and_device)

    def device_id(self) -> int:
        """Returns the device's index among those of its kind."""
        return self._id

    def device_type(self) -> int:
        """Returns the kind of device: 0 is the CPU, 1 a GPU."""
        return self._type

    def mem_type(self) -> int:
        """Returns the kind of memory."""
        return self._mem_type

    def vendor_id(self) -> int:
        """Returns the PCI number of its vendor."""
        return self._vendor

    @staticmethod
    def default_memory() -> int:
        """Returns the number of the ordinary kind of memory."""
        return int(OrtDeviceMemoryType.DEFAULT)

    @staticmethod
    def dml() -> int:
        """Returns the number that DirectML's devices are made from; they are GPUs then."""
        return 4


def _numbered(kind: str) -> staticmethod[[], int]:
    return staticmethod(lambda: _KINDS[kind])


for _name in _KINDS.keys() - {"dml"}:  # cpu(), cuda() and so on return the number of a kind
    setattr(NativeDevice, _name, _numbered(_name))


@works("a name and a number; whether there is such a device shows where it is used")
class OrtDevice:
    """A device by its name and index."""

    def __init__(self, c_ort_device: NativeDevice | OrtDevice) -> None:
        if not isinstance(c_ort_device, (NativeDevice, OrtDevice)):
            raise ValueError("an OrtDevice is made by OrtDevice.make(name, device_id)")
        native = c_ort_device._get_c_device() if isinstance(c_ort_device, OrtDevice) else c_ort_device
        self._ort_device: NativeDevice = native

    def _get_c_device(self) -> NativeDevice:
        return self._ort_device

    @staticmethod
    def make(ort_device_name: str, device_id: int, vendor_id: int | OrtDeviceVendorId = -1) -> OrtDevice:
        """Makes a device by its name and index."""
        vendor = _VENDORS.get(ort_device_name.lower(), 0) if vendor_id < 0 else vendor_id
        kind, memory = _kind(ort_device_name), NativeDevice.default_memory()
        return OrtDevice(NativeDevice(kind, memory, int(vendor), device_id))

    def device_id(self) -> int:
        """Returns the device's index among those of its kind."""
        return self._ort_device.device_id()

    def device_type(self) -> int:
        """Returns the kind of device: 0 is the CPU, 1 a GPU."""
        return self._ort_device.device_type()

    def device_vendor_id(self) -> int:
        """Returns the PCI number of its vendor."""
        return self._ort_device.vendor_id()

    def device_mem_type(self) -> int:
        """Returns the kind of memory."""
        return self._ort_device.mem_type()


# --- Their descriptions -----------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class OrtMemoryInfo:
    """The description of a place of memory."""

    name: str
    allocator_type: OrtAllocatorType
    device_id: int
    mem_type: OrtMemType
    device_mem_type: OrtDeviceMemoryType = OrtDeviceMemoryType.DEFAULT
    device_vendor_id: int = 0

    @staticmethod
    @works("the device's type and the alignment are not kept")
    def create_v2(
        name: str,
        device_type: OrtMemoryInfoDeviceType,
        vendor_id: int,
        device_id: int,
        device_mem_type: OrtDeviceMemoryType,
        alignment: int,
        allocator_type: OrtAllocatorType,
        /,
    ) -> OrtMemoryInfo:
        """Makes a description with a vendor."""
        return OrtMemoryInfo(name, allocator_type, device_id, OrtMemType.DEFAULT, device_mem_type, vendor_id)


@works("made by `get_ep_devices`")
@dataclass(frozen=True)
class OrtHardwareDevice:
    """A device of this machine."""

    type: OrtHardwareDeviceType
    vendor: str
    vendor_id: int
    device_id: int
    metadata: dict[str, str] = field(default_factory=dict)


@works("made by `get_ep_devices`")
@dataclass(frozen=True)
class OrtEpDevice:
    """A device with the provider that uses it."""

    ep_name: str
    ep_vendor: str
    device: OrtHardwareDevice
    ep_metadata: dict[str, str] = field(default_factory=dict)
    ep_options: dict[str, str] = field(default_factory=dict)

    def memory_info(self, memory_type: OrtDeviceMemoryType, /) -> OrtMemoryInfo:
        """Describes the memory of the device's tensors."""
        return memory_info(torch_device("cuda" if self.ep_name == CUDA else "cpu", self.device.device_id))

    create_sync_stream = refused("torch.cuda.Stream is the stream to use")


def memory_info(device: TorchDevice) -> OrtMemoryInfo:
    """Describes a torch device's memory."""
    name, vendor = ("Cuda", OrtDeviceVendorId.NVIDIA) if device.type == "cuda" else ("Cpu", OrtDeviceVendorId.NONE)
    allocator = OrtAllocatorType.ORT_DEVICE_ALLOCATOR
    return OrtMemoryInfo(name, allocator, device.index, OrtMemType.DEFAULT, device_vendor_id=int(vendor))


def ep_device(device: TorchDevice) -> OrtEpDevice:
    """Describes a torch device and its provider."""
    if device.type == "cuda":
        import torch

        index = device.index
        metadata = {"name": torch.cuda.get_device_name(index)}
        vendor = int(OrtDeviceVendorId.NVIDIA)
        hardware = OrtHardwareDevice(OrtHardwareDeviceType.GPU, "NVIDIA", vendor, index, metadata)
        return OrtEpDevice(CUDA, "onnx_torch", hardware, ep_options={"device_id": str(index)})
    hardware = OrtHardwareDevice(OrtHardwareDeviceType.CPU, platform.processor() or platform.machine(), 0, 0)
    return OrtEpDevice(CPU, "onnx_torch", hardware)


@works("the CPU and the CUDA devices that torch sees")
def get_ep_devices() -> list[OrtEpDevice]:
    """Returns all devices of this process."""
    cuda = [TorchDevice("cuda", index) for index in range(_C.cuda_device_count())]
    return [ep_device(device) for device in (HOST, *cuda)]
