"""onnxruntime's functions about the process, and its classes that have no meaning here."""

from __future__ import annotations

import logging

from .. import _C
from .._build_info import VERSION
from .._versions import torch_version
from ._devices import get_device
from ._status import absent_class, ignored, refused, works

__all__ = [
    "OrtEpContextData",
    "OrtEpContextDataBuffer",
    "OrtExternalInitializerInfo",
    "OrtSyncStream",
    "create_and_register_allocator",
    "create_and_register_allocator_v2",
    "disable_telemetry_events",
    "enable_telemetry_events",
    "get_build_info",
    "get_version_string",
    "has_collective_ops",
    "preload_dlls",
    "print_debug_info",
    "register_execution_provider_library",
    "set_default_logger_severity",
    "set_default_logger_verbosity",
    "set_global_thread_pool_sizes",
    "set_seed",
    "unregister_execution_provider_library",
]

ONNXRUNTIME_VERSION = "1.31.1"  # the release whose interface this is
_SEVERITIES = (logging.DEBUG, logging.INFO, logging.WARNING, logging.ERROR, logging.CRITICAL)
_global_threads = 0


def global_threads() -> int:
    """Returns the threads of sessions whose options have `use_per_session_threads` off."""
    return _global_threads


@works("for sessions that are made later; there is no pool across nodes")
def set_global_thread_pool_sizes(intra_op_num_threads: int = 0, inter_op_num_threads: int = 0) -> None:
    """Sets the threads of sessions that are made with `use_per_session_threads` off."""
    global _global_threads
    _global_threads = intra_op_num_threads


@works("the level of Python's logger `onnx_torch`")
def set_default_logger_severity(severity: int, /) -> None:
    """Sets the least severe messages that are logged, from 0, verbose, to 4, fatal."""
    if not 0 <= severity < len(_SEVERITIES):
        raise RuntimeError(f"Invalid logging severity. {severity}")
    logging.getLogger("onnx_torch").setLevel(_SEVERITIES[severity])


@works("seeds torch's generators, which nodes without a seed of their own draw from")
def set_seed(seed: int, /) -> None:
    """Seeds the process."""
    _C.manual_seed(seed)


@works("the release whose interface this is")
def get_version_string() -> str:
    """Returns the version of onnxruntime whose interface this is."""
    return ONNXRUNTIME_VERSION


@works("names this package")
def get_build_info() -> str:
    """Returns this package's version and torch's."""
    return (
        f"onnx_torch {VERSION}, torch {torch_version()}; "
        f"Build Info: the interface of ONNX Runtime {ONNXRUNTIME_VERSION}"
    )


def has_collective_ops() -> bool:
    """Returns False, as there are no operators across devices."""
    return False


def print_debug_info() -> None:
    """Prints versions and devices."""
    import torch

    print(get_build_info())
    print(f"device: {get_device()}, CUDA {torch.version.cuda}, threads: {torch.get_num_threads()}")


set_default_logger_verbosity = ignored("there is one verbose level")
enable_telemetry_events = disable_telemetry_events = ignored("nothing is sent anywhere")
preload_dlls = ignored("CUDA's libraries are loaded with the first CUDA device")

_ALLOCATORS = "torch's allocators manage the memory"
create_and_register_allocator = create_and_register_allocator_v2 = ignored(_ALLOCATORS)


_LIBRARIES = "providers of onnxruntime are compiled against its own interface"
register_execution_provider_library = refused(_LIBRARIES, "register_execution_provider_library")
unregister_execution_provider_library = refused(_LIBRARIES, "unregister_execution_provider_library")

_COMPILED = "models are not compiled ahead for a device"
OrtExternalInitializerInfo = absent_class("OrtExternalInitializerInfo", _COMPILED)
OrtEpContextData = absent_class("OrtEpContextData", _COMPILED)
OrtEpContextDataBuffer = absent_class("OrtEpContextDataBuffer", _COMPILED)

OrtSyncStream = absent_class("OrtSyncStream", "torch.cuda.Stream is the stream to use")
