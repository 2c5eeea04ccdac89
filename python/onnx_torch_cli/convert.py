from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer

from .options import AllowAten, Dimension, Limit, Links, Model, dimensions_of, trust_of
from .terminal import note, working


def convert(
    model: Model,
    to: Annotated[
        Path,
        typer.Argument(metavar="MODULE.pt", help="Where to write the module; with --triton, the model repository."),
    ],
    custom_operators: Annotated[
        bool,
        typer.Option(
            "--custom-operators",
            help="Allow operators that torch itself lacks; their library must then be loaded first.",
        ),
    ] = False,
    triton: Annotated[
        bool, typer.Option("--triton", help="Write a model folder for the Triton Inference Server.")
    ] = False,
    max_batch_size: Annotated[
        int, typer.Option(min=0, help="How many rows Triton may put together, where the model takes any number.")
    ] = 8,
    shape: Dimension = None,
    limit: Limit = None,
    allow_aten: AllowAten = "checked",
    links: Links = "follow",
) -> None:
    """Write a model as a TorchScript module, which runs in Python or C++ with nothing but torch."""
    options: dict[str, Any] = {
        "custom_operators": custom_operators,
        "shapes": dimensions_of(shape),
        **trust_of(limit, allow_aten, links),
    }
    if triton:
        _convert_for_triton(model, to, max_batch_size, options)
        return
    if to.is_dir():
        raise typer.BadParameter(f"{to} is a folder", param_hint="MODULE.pt")
    from onnx_torch._pytorch.export import kernels_library, save_torchscript

    with working("Converting"):
        names = save_torchscript(model, to, **options)
    print(f"{to}: forward({', '.join(names.inputs.values())}) gives {', '.join(names.outputs)}")
    print(f"{len(names.parameters)} parameters and buffers in its state_dict")
    renamed = [(old, new) for old, new in [*names.inputs.items(), *names.parameters.items()] if old != new]
    for old, new in renamed:
        print(f"  {old} is called {new}")
    if names.custom_operators:
        print(f"Load {kernels_library()} first, for {', '.join(names.custom_operators)}")


def _convert_for_triton(model: Path, repository: Path, max_batch_size: int, options: dict[str, Any]) -> None:
    from onnx_torch._pytorch.export import kernels_library
    from onnx_torch.triton import save

    folder = save(model, repository, max_batch_size=max_batch_size, **options)
    print((folder / "config.pbtxt").read_text(encoding="utf-8"), end="")
    note(f"{folder} was written as Triton's documentation says; it was not run against a server")
    if options["custom_operators"]:
        note(f"Operators of this package are in {kernels_library()}: start the server with it in LD_PRELOAD")
