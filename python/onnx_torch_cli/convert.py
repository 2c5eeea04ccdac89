from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from .options import Model


def convert(
    model: Model,
    to: Annotated[Path, typer.Argument(metavar="MODULE.pt", dir_okay=False, help="Where to write the module.")],
    custom_operators: Annotated[
        bool,
        typer.Option(
            "--custom-operators",
            help="Allow operators that torch itself lacks; their library must then be loaded first.",
        ),
    ] = False,
) -> None:
    """Write a model as a TorchScript module, which runs in Python or C++ with nothing but torch."""
    import onnx_torch

    module = onnx_torch.to_torchscript(model, to, custom_operators=custom_operators)
    names = onnx_torch.names_of(module)
    print(f"{to}: forward({', '.join(names.inputs.values())}) gives {', '.join(names.outputs)}")
    print(f"{len(names.parameters)} parameters and buffers in its state_dict")
    renamed = [(old, new) for old, new in [*names.inputs.items(), *names.parameters.items()] if old != new]
    for old, new in renamed:
        print(f"  {old} is called {new}")
    if names.custom_operators:
        print(f"Load {onnx_torch.kernels_library()} first, for {', '.join(names.custom_operators)}")
