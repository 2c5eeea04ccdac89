"""The machine that a self-test ran on."""

from __future__ import annotations

import os
import platform
import subprocess
from collections.abc import Iterator
from pathlib import Path

from .. import _C
from .._versions import version_rows

CPUINFO = Path("/proc/cpuinfo")
FLAGS = (
    "sse4_2",
    "f16c",
    "fma",
    "avx2",
    "avx_vnni",
    "avx512f",
    "avx512_vnni",
    "avx512_bf16",
    "avx512_fp16",
    "amx_int8",
    "amx_bf16",
)
VARIABLES = ("ATEN_CPU_CAPABILITY", "ONEDNN_MAX_CPU_ISA", "OMP_NUM_THREADS", "OMP_WAIT_POLICY", "CUDA_VISIBLE_DEVICES")


def machine_rows(device: str) -> Iterator[tuple[str, str]]:
    """Yields the processor and, if the device is one, the GPU; then what the environment asks for, and all versions."""
    yield "CPU", _processor()
    yield "  it has", _flags()
    has = _C.cpu_features()
    yield "  used are", ", ".join(f"{name.replace('_', ' ')}: {_text(value)}" for name, value in has.items())
    if device.upper().startswith("CUDA"):
        yield "GPU", gpu(int(device.partition(":")[2] or 0))
    given = [f"{name}={os.environ[name]}" for name in VARIABLES if name in os.environ]
    if given:
        yield "environment", " ".join(given)
    yield from version_rows()


def _text(value: object) -> str:
    return ("no", "yes")[value] if isinstance(value, bool) else str(value)


def _cpuinfo() -> dict[str, str]:
    lines = CPUINFO.read_text().splitlines() if CPUINFO.exists() else []
    pairs = (line.partition(":") for line in lines)
    return {key.strip(): value.strip() for key, _, value in pairs}


def _processor() -> str:
    name = _cpuinfo().get("model name", platform.machine())
    return f"{name}, {len(os.sched_getaffinity(0))} of {os.cpu_count()} processors"


def _flags() -> str:
    flags = _cpuinfo().get("flags", "").split()
    return " ".join(flag for flag in FLAGS if flag in flags) or "nothing that is known"


def gpu(index: int) -> str:
    """Describes a GPU: its name, compute capability, memory and driver, and torch's CUDA."""
    import torch

    found = torch.cuda.get_device_properties(index)
    memory = f"{found.total_memory / 2**30:.0f} GiB"
    capability = f"compute capability {found.major}.{found.minor}"
    return f"{found.name}, {capability}, {memory}, driver {driver()}, CUDA {torch.version.cuda}"


def driver() -> str:
    """Finds the version of the driver of the GPUs."""
    command = ["nvidia-smi", "--query-gpu=driver_version", "--format=csv,noheader"]
    try:
        return subprocess.run(command, capture_output=True, text=True, check=True).stdout.split()[0]
    except (OSError, subprocess.CalledProcessError, IndexError):
        return "unknown"
