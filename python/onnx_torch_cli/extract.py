from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from .options import Links, Model

if TYPE_CHECKING:
    import onnx


def extract(
    model: Model,
    to: Annotated[Path, typer.Argument(metavar="PART.onnx", dir_okay=False, help="Where to write the part.")],
    inputs: Annotated[
        list[str] | None, typer.Option(metavar="NAME", help="A value where the part begins; can be repeated.")
    ] = None,
    outputs: Annotated[
        list[str] | None, typer.Option(metavar="NAME", help="A value where the part ends; can be repeated.")
    ] = None,
    links: Links = "follow",
) -> None:
    """Cut a part out of a model, to run it alone.

    It computes the outputs from the inputs, by default the model's own; each may be any value of the main graph.
    """
    import onnx_torch
    from onnx_torch._models.files import save_model

    part = onnx_torch.extract(model, inputs, outputs, links=links)
    save_model(part, to)
    print(f"{to}: {len(part.graph.node)} nodes, from {_names(part.graph.input)} to {_names(part.graph.output)}")


def _names(values: Iterable[onnx.ValueInfoProto]) -> str:
    return ", ".join(value.name for value in values) or "nothing"
