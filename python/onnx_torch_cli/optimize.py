from __future__ import annotations

from pathlib import Path
from typing import Annotated, Literal

import typer

from .options import Model


def optimize(
    model: Model,
    to: Annotated[Path, typer.Argument(metavar="OUT.onnx", dir_okay=False, help="Where to write the new model.")],
    level: Annotated[
        Literal["basic", "extended"],
        typer.Option(help="Whether operators of the model's opset take the place of nodes that compute the same."),
    ] = "extended",
) -> None:
    """Make a model that gives the same with fewer nodes, for any engine.

    What is done holds for all that the model may be fed. Inputs and outputs keep their names.
    """
    import onnx_torch
    from onnx_torch._models.files import read_model, save_model

    before = len(read_model(model).graph.node)
    made = onnx_torch.optimize(model, level)
    save_model(made, to)
    print(f"{to}: {len(made.graph.node)} nodes, of {before}")
