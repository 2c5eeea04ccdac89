from __future__ import annotations

import contextlib
from typing import Annotated

import typer

from .options import Device
from .terminal import progress


def selftest(
    device: Device = "CPU",
    quick: Annotated[bool, typer.Option("--quick", help="Every eighth of the suite's node cases only.")] = False,
) -> None:
    """Find out whether this installation computes what it should on this machine.

    It runs ONNX's own backend suite and models of its own, and tells what the machine is, which ways are taken on it,
    and what differs. The exit code is 1 where something does. The output is what a report of a fault should carry.
    """
    import faulthandler

    import onnx_torch
    from onnx_torch._progress import Progress

    faulthandler.enable()  # which tells, where an instruction is none on this CPU, what was being computed
    with contextlib.ExitStack() as parts:

        def next_part(name: str) -> Progress:
            parts.close()
            report: Progress = parts.enter_context(progress(name))
            return report

        found = onnx_torch.selftest(device, quick=quick, progress=next_part)
    print(found)
    raise typer.Exit(0 if found else 1)
