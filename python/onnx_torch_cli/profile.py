from __future__ import annotations

from pathlib import Path
from typing import Annotated, Literal

import typer

from .options import (
    AllowAten,
    Device,
    DisabledPass,
    Input,
    Limit,
    Links,
    Model,
    Optimize,
    Precision,
    Seed,
    Shape,
    Tf32,
    Threads,
    feeds_of,
    shapes_of,
    trust_of,
)
from .terminal import progress, table


def profile(
    model: Model,
    input: Input = None,
    by: Annotated[
        Literal["node", "operator"], typer.Option(help="Show nodes, or all nodes of an operator together.")
    ] = "node",
    top: Annotated[int, typer.Option(min=1, help="How many rows to show, the slowest first.")] = 20,
    runs: Annotated[int, typer.Option(min=1, help="How many runs to measure.")] = 10,
    warm_up: Annotated[int, typer.Option(min=0, help="How many runs to do before.")] = 2,
    trace: Annotated[
        Path | None, typer.Option(dir_okay=False, help="Write a trace for chrome://tracing here (.json).")
    ] = None,
    picture: Annotated[
        Path | None,
        typer.Option(dir_okay=False, help="Draw the time by operator here (.html; .png, .svg with matplotlib)."),
    ] = None,
    seed: Seed = 0,
    device: Device = "CPU",
    precision: Precision = "float32",
    tf32: Tf32 = False,
    optimize: Optimize = True,
    disable_pass: DisabledPass = None,
    threads: Threads = 0,
    shape: Shape = None,
    limit: Limit = None,
    allow_aten: AllowAten = "checked",
    links: Links = "follow",
) -> None:
    """Measure how long each ONNX node of a model takes."""
    import onnx_torch
    from onnx_torch._models.files import read_model

    with progress("Profiling") as report:
        found = onnx_torch.profile(
            model,
            feeds_of(read_model(model), input, seed, shape),
            device,
            runs=runs,
            warm_up=warm_up,
            precision=precision,
            tf32=tf32,
            optimize=optimize,
            disabled_passes=disable_pass or (),
            threads=threads,
            shapes=shapes_of(shape),
            **trust_of(limit, allow_aten, links),
            progress=report,
        )

    def share(seconds: float) -> tuple[str, str]:
        return f"{1e3 * seconds:.3f}", f"{100 * seconds / found.seconds:.1f}"

    rows: list[tuple[object, ...]]
    if by == "operator":
        columns = ["operator", ">nodes", ">calls", ">ms", ">%"]
        rows = [(o.op_type, o.nodes, f"{o.calls:g}", *share(o.seconds)) for o in found.by_operator()]
    else:
        columns = [">node", "operator", "name", "output", ">calls", ">ms", ">%"]
        nodes = sorted(found.nodes, key=lambda node: -node.seconds)
        rows = [(n.number, n.op_type, n.name, n.output, f"{n.calls:g}", *share(n.seconds)) for n in nodes]
    table(columns, rows[:top])
    if rows[top:]:
        print(f"and {len(rows) - top} more (--top)")
    outside, percent = share(found.outside_seconds)
    print(f"outside the nodes: {outside} ms, {percent} %")
    print(
        f"a run: {1e3 * found.seconds:.3f} ms while measured (mean of {found.runs}), "
        f"{1e3 * found.plain_seconds:.3f} ms otherwise (median)"
    )
    if trace:
        found.save_trace(trace)
    if picture:
        found.save_picture(picture, title=f"{model.name}: time by operator")
