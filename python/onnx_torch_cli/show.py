from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any

import typer

from .options import (
    AllowAten,
    Device,
    DisabledPass,
    Limit,
    Links,
    Model,
    Optimize,
    Precision,
    Shape,
    shapes_of,
    trust_of,
)

if TYPE_CHECKING:
    from onnx_torch.backend import NodePlacement


def show(
    model: Model,
    step: Annotated[
        str | None, typer.Option("--pass", metavar="NAME", help="Show what this step of preparing the model changed.")
    ] = None,
    placement: Annotated[bool, typer.Option("--placement", help="Show where each ONNX node runs instead.")] = False,
    device: Device = "CPU",
    precision: Precision = "float32",
    optimize: Optimize = True,
    disable_pass: DisabledPass = None,
    shape: Shape = None,
    limit: Limit = None,
    allow_aten: AllowAten = "checked",
    links: Links = "follow",
) -> None:
    """Print the graph that a model is translated into, each line beside its ONNX node.

    With --pass, lines that the step took away have a "-" before them, lines that it added a "+". The steps are
    translate, place (on the device), and the passes, such as fold or pack.
    """
    import onnx_torch

    chosen: dict[str, Any] = {
        "precision": precision,
        "optimize": optimize,
        "disabled_passes": disable_pass or (),
        "shapes": shapes_of(shape),
        **trust_of(limit, allow_aten, links),
    }
    if placement:
        _print_placement(onnx_torch.prepare(model, device, **chosen).placement())
    else:
        print(onnx_torch.show(model, device, step=step, **chosen))


def _print_placement(nodes: list[NodePlacement]) -> None:
    labels = [f"{node.op_type} → {node.output}" if node.output else node.op_type for node in nodes]
    where = max((len(node.where) for node in nodes), default=0)
    width = max(map(len, labels), default=0)
    for node, label in zip(nodes, labels, strict=True):
        print(f"{node.where:{where}}  {label:{width}}  {node.why}".rstrip())
