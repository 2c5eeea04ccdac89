"""Providers and devices: which there are, and onnxruntime's classes that describe them."""

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
from ._errors import InvalidArgument
from ._status import refused, works

__all__ = [
    "OrtDevice",
    "OrtEpDevice",
    "OrtHardwareDevice",
    "OrtMemoryInfo",
    "get_all_providers",
    "get_available_providers",
    "get_device",
    "get_ep_devices",
]

CPU, CUDA = "CPUExecutionProvider", "CUDAExecutionProvider"
Provider = str | tuple[str, Mapping[Any, Any]]


# --- Providers --------------------------------------------------------------------------------------------------------


def get_available_providers() -> list[str]:
    """The providers of this process, the fastest first.

    >>> import onnx_torch
    >>> onnx_torch.get_available_providers()[-1]
    'CPUExecutionProvider'
    """
    return [CUDA, CPU] if _C.cuda_device_count() else [CPU]


@works("those that this package can have: CUDA's and the CPU's")
def get_all_providers() -> list[str]:
    """The providers that this package can have."""
    return [CUDA, CPU]


def get_device() -> str:
    """``"GPU"`` where there is a CUDA device, else ``"CPU"``."""
    return "GPU" if _C.cuda_device_count() else "CPU"


def _with_options(
    providers: Sequence[Provider], provider_options: Sequence[Mapping[Any, Any]] | None
) -> Iterator[tuple[str, Mapping[Any, Any]]]:
    if provider_options is not None:
        if len(providers) != len(provider_options):
            raise ValueError("'providers' and 'provider_options' should be the same length if both are given.")
        if not all(isinstance(provider, str) for provider in providers):
            raise ValueError("Only string values for 'providers' are supported if 'provider_options' is given.")
        providers = list(zip(providers, provider_options, strict=True))  # type: ignore[arg-type]
    for provider in providers:
        match (provider, {}) if isinstance(provider, str) else provider:
            case (str(name), Mapping() as options):
                yield name, options
            case _:
                raise ValueError("'providers' values must be either strings or (string, dict) tuples.")


def preferred(
    providers: Sequence[Provider] | None,
    provider_options: Sequence[Mapping[Any, Any]] | None,
    stacklevel: int,
) -> dict[str, dict[str, str]]:
    """The providers asked for that are there, with their options as text; warns of those that are not."""
    given = [providers] if isinstance(providers, str) else providers or []
    available = get_available_providers()
    found: dict[str, dict[str, str]] = {}
    for name, options in _with_options(given, provider_options):
        if name in found:
            warnings.warn(f"Duplicate provider '{name}' encountered, ignoring.", stacklevel=stacklevel)
        elif name in available:
            found[name] = {str(key): str(value) for key, value in options.items()}
        else:
            warnings.warn(
                f"Specified provider '{name}' is not in available provider names. "
                f"Available providers: '{', '.join(available)}'",
                stacklevel=stacklevel,
            )
    return found


# --- Devices ----------------------------------------------------------------------------------------------------------

_KINDS = {"cpu": 0, "cuda": 1, "dml": 1, "webgpu": 1, "gpu": 1, "fpga": 2, "cann": 3, "npu": 3}
_VENDORS = {
    "cuda": OrtDeviceVendorId.NVIDIA,
    "dml": OrtDeviceVendorId.MICROSOFT,
    "cann": OrtDeviceVendorId.HUAWEI,
}


def _kind(device_type: str) -> int:
    """onnxruntime's number of a kind of device, by its name."""
    if device_type.lower() not in _KINDS:
        raise InvalidArgument(f"Unsupported device type: {device_type}")
    return _KINDS[device_type.lower()]


@dataclass(frozen=True)
class TorchDevice:
    """A device by torch's name of its type, and by its number."""

    type: str
    index: int = 0

    def __str__(self) -> str:
        return f"{self.type}:{self.index}"


HOST = TorchDevice("cpu")


def torch_device(device_type: str, device_id: int = 0) -> TorchDevice:
    """torch's device for one of onnxruntime's names; InvalidArgument where it is not there."""
    if _kind(device_type) == _KINDS["cpu"]:
        return HOST
    if device_type.lower() in ("cuda", "gpu") and device_id < _C.cuda_device_count():
        return TorchDevice("cuda", device_id)
    raise InvalidArgument(f"there is no device {device_type}:{device_id}; devices are cpu and CUDA's of this process")


@works("a name and a number; whether there is such a device shows where it is used")
class OrtDevice:
    """A device by onnxruntime's numbers."""

    _type: int
    _id: int
    _vendor: int

    def __init__(self, c_ort_device: OrtDevice) -> None:
        if not isinstance(c_ort_device, OrtDevice):
            raise ValueError("an OrtDevice is made by OrtDevice.make(name, device_id)")
        self._type, self._id, self._vendor = c_ort_device._type, c_ort_device._id, c_ort_device._vendor

    @staticmethod
    def make(ort_device_name: str, device_id: int, vendor_id: int | OrtDeviceVendorId = -1) -> OrtDevice:
        """A device by its name and number."""
        device = OrtDevice.__new__(OrtDevice)
        vendor = _VENDORS.get(ort_device_name.lower(), 0) if vendor_id < 0 else vendor_id
        device._type, device._id, device._vendor = _kind(ort_device_name), device_id, int(vendor)
        return device

    def device_id(self) -> int:
        """Which of the devices of its kind."""
        return self._id

    def device_type(self) -> int:
        """0 is the CPU, 1 a GPU."""
        return self._type

    def device_vendor_id(self) -> int:
        """The PCI number of its vendor."""
        return self._vendor

    def device_mem_type(self) -> int:
        """The ordinary kind of memory."""
        return int(OrtDeviceMemoryType.DEFAULT)


# --- Their descriptions -----------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class OrtMemoryInfo:
    """Where memory lies."""

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
        """A description with a vendor."""
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
        """Where the device's tensors lie."""
        return memory_info(torch_device("cuda" if self.ep_name == CUDA else "cpu", self.device.device_id))

    create_sync_stream = refused("torch.cuda.Stream is the stream to use")


def memory_info(device: TorchDevice) -> OrtMemoryInfo:
    """The description of a torch device's memory."""
    name, vendor = ("Cuda", OrtDeviceVendorId.NVIDIA) if device.type == "cuda" else ("Cpu", OrtDeviceVendorId.NONE)
    allocator = OrtAllocatorType.ORT_DEVICE_ALLOCATOR
    return OrtMemoryInfo(name, allocator, device.index, OrtMemType.DEFAULT, device_vendor_id=int(vendor))


def ep_device(device: TorchDevice) -> OrtEpDevice:
    """The description of a torch device."""
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
    """All devices of this process."""
    cuda = [TorchDevice("cuda", index) for index in range(_C.cuda_device_count())]
    return [ep_device(device) for device in (HOST, *cuda)]
