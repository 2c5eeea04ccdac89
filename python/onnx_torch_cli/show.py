from __future__ import annotations

from typing import Annotated

import typer

from .options import Device, DisabledPass, Model, Optimize, Precision, Shape, shapes_of


def show(
    model: Model,
    step: Annotated[
        str | None, typer.Option("--pass", metavar="NAME", help="Show what this step of preparing the model changed.")
    ] = None,
    device: Device = "CPU",
    precision: Precision = "float32",
    optimize: Optimize = True,
    disable_pass: DisabledPass = None,
    shape: Shape = None,
) -> None:
    """Print the graph that a model is translated into, each line beside its ONNX node.

    With --pass, lines that the step took away have a "-" before them, lines that it added a "+". The steps are
    translate, place (on the device), and the passes, such as fold or pack.
    """
    import onnx_torch

    print(
        onnx_torch.show(
            model,
            device,
            step=step,
            precision=precision,
            optimize=optimize,
            disabled_passes=disable_pass or (),
            shapes=shapes_of(shape),
        )
    )
