"""The kernel's figures of processes and of the machine."""

from __future__ import annotations

import importlib.metadata
import os
import platform
from collections.abc import Collection
from pathlib import Path

import numpy as np

from onnx_torch.self_test._machine import driver

PROC = Path("/proc")
TICKS = os.sysconf("SC_CLK_TCK")


def busy_seconds(proc: Path = PROC) -> float:
    """Gives the seconds that the processors have worked, guests of the same host (steal) included."""
    user, nice, system, _idle, _iowait, irq, softirq, steal = map(int, (proc / "stat").read_text().split()[1:9])
    return (user + nice + system + irq + softirq + steal) / TICKS


def process_seconds(pid: int, proc: Path = PROC) -> float:
    """Gives the seconds that a process has worked."""
    fields = (proc / str(pid) / "stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / TICKS


def other_seconds(pids: Collection[int], proc: Path = PROC) -> float:
    """Gives the seconds that all processes but some have worked."""
    return busy_seconds(proc) - sum(process_seconds(pid, proc) for pid in pids)


def memory(pid: int, field: str) -> int:
    """Gives a process's memory in bytes: VmRSS now, VmHWM at its peak."""
    lines = (PROC / str(pid) / "status").read_text().splitlines()
    (kilobytes,) = (line.split()[1] for line in lines if line.startswith(f"{field}:"))
    return 1024 * int(kilobytes)


def take_memory(size: int = 1 << 28) -> None:
    """Takes memory and gives it back.

    A virtual machine leaves free pages to its host after a while, and whoever asks for them next waits for the host.
    """
    np.ones(size, np.uint8)


def forget_peak(pid: int) -> None:
    """Sets a process's peak of memory to what it has now."""
    (PROC / str(pid) / "clear_refs").write_text("5")


def version(package: str) -> str:
    try:
        return importlib.metadata.version(package)
    except importlib.metadata.PackageNotFoundError:
        return "not installed"


def cpu_fields(proc: Path = PROC) -> dict[str, str]:
    lines = (line.partition(":") for line in (proc / "cpuinfo").read_text().splitlines())
    return {key.strip(): value.strip() for key, _, value in lines}


def instructions(proc: Path = PROC) -> str:
    """Tells the widest instructions that the CPU has: for tiles, or for vectors of 512 or 256 bits."""
    flags = cpu_fields(proc).get("flags", "").split()
    names = {"amx_tile": "amx", "avx512f": "avx512", "avx2": "avx2"}
    return next((name for flag, name in names.items() if flag in flags), "baseline")


def processor(proc: Path = PROC) -> str:
    """Tells the name and number of processors, and what they have for products of bfloat16, or else for vectors."""
    fields = cpu_fields(proc)
    bfloat16 = [flag for flag in ("avx512_bf16", "amx_bf16") if flag in fields.get("flags", "").split()]
    name = fields.get("model name", platform.machine())
    return ", ".join([name, f"{len(os.sched_getaffinity(0))} processors", *(bfloat16 or [instructions(proc)])])


def gpu(device: str) -> str:
    """Tells the name of a GPU, its driver, and torch's CUDA; torch raises an error if there is none that it can use."""
    import torch

    properties = torch.cuda.get_device_properties(device)
    return f"{properties.name}, driver {driver()}, CUDA {torch.version.cuda}"
