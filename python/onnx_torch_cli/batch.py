from __future__ import annotations

from enum import Enum
from pathlib import Path
from typing import Annotated

import typer

from .options import (
    AllowAten,
    Device,
    Dimension,
    Limit,
    Links,
    MapExternal,
    Model,
    Threads,
    dimensions_of,
    trust_of,
)
from .terminal import complain, note, progress


class Engine(str, Enum):
    auto = "auto"
    local = "local"
    ray = "ray"


class Layout(str, Enum):
    NCHW = "NCHW"
    NHWC = "NHWC"


def batch(
    model: Model,
    rows: Annotated[
        list[Path],
        typer.Argument(metavar="ROWS...", exists=True, help="Parquet files, .npy files, images, or folders."),
    ],
    to: Annotated[Path, typer.Option(metavar="OUT.parquet", dir_okay=False, help="Where to write the results.")],
    column: Annotated[
        list[str] | None,
        typer.Option(
            metavar="INPUT=COLUMN",
            help="The column that feeds an input; by default that of its name. Repeated for one input, several scalar "
            "columns make its second dimension.",
        ),
    ] = None,
    output: Annotated[
        list[str] | None,
        typer.Option(metavar="NAME[=COLUMN]", help="An output wanted, and the column it goes to. All by default."),
    ] = None,
    keep: Annotated[
        list[str] | None,
        typer.Option(metavar="COLUMN", help="A column to write as well; by default all that do not feed the model."),
    ] = None,
    row_by_row: Annotated[bool, typer.Option("--row-by-row", help="Each row is a whole input of the model.")] = False,
    batch_size: Annotated[int, typer.Option(min=1, help="How many rows go to the model together.")] = 32,
    part_rows: Annotated[
        int | None, typer.Option(min=1, help="How many rows are done again where work is cut off.")
    ] = None,
    engine: Annotated[
        Engine, typer.Option(help="Ray, processes of this machine, or Ray where it is installed.")
    ] = Engine.auto,
    workers: Annotated[
        int | None,
        typer.Option(min=0, help="How many copies of the model run; by default one for each CPU, on a GPU one."),
    ] = None,
    image_size: Annotated[
        str | None, typer.Option(metavar="HEIGHTxWIDTH", help="The size of images, where the model fixes none.")
    ] = None,
    mean: Annotated[
        str, typer.Option(metavar="R,G,B", help="Is taken off images, whose values are from 0 to 1.")
    ] = "0",
    std: Annotated[str, typer.Option(metavar="R,G,B", help="What is then divided by.")] = "1",
    layout: Annotated[Layout | None, typer.Option(help="Where images have their channels.")] = None,
    overwrite: Annotated[bool, typer.Option("--overwrite", help="Replace the output if it exists.")] = False,
    device: Device = "CPU",
    threads: Threads = 0,
    shape: Dimension = None,
    limit: Limit = None,
    allow_aten: AllowAten = "checked",
    links: Links = "follow",
    map_external: MapExternal = False,
) -> None:
    """Run a model on all rows of Parquet files, .npy files or images, and write a Parquet file, in their order.

    What is cut off goes on where it stopped when the same command is given again.
    """
    try:
        from onnx_torch.batch import Images, predict
    except ImportError as error:
        complain(error)
        raise typer.Exit(2) from None

    images = Images(_size(image_size), _numbers("--mean", mean), _numbers("--std", std), layout and layout.value)
    try:
        with progress("Running") as report:
            done = predict(
                model,
                rows,
                to,
                device=device,
                columns=_columns(column),
                outputs=_outputs(output),
                keep=keep,
                batched=not row_by_row,
                batch_size=batch_size,
                part_rows=part_rows,
                engine=engine.value,
                workers=workers,
                threads=threads,
                images=images,
                overwrite=overwrite,
                progress=report,
                shapes=dimensions_of(shape),
                **trust_of(limit, allow_aten, links),
                map_external=map_external,
            )
    except KeyboardInterrupt:
        note("Interrupted. The same command goes on from here.")
        raise typer.Exit(130) from None
    before = f", {done.resumed:,} of them from before" if done.resumed else ""
    by = f"{done.workers} {done.engine} worker{'s' * (done.workers != 1)}" if done.workers else "this process"
    print(f"{to}: {done.rows:,} rows{before}, by {by}")


def _columns(given: list[str] | None) -> dict[str, str | list[str]]:
    columns: dict[str, list[str]] = {}
    for pair in given or []:
        name, _, column = pair.partition("=")
        if not name or not column:
            raise typer.BadParameter(f"{pair!r} is not INPUT=COLUMN", param_hint="--column")
        columns.setdefault(name, []).append(column)
    return {name: found if len(found) > 1 else found[0] for name, found in columns.items()}


def _outputs(given: list[str] | None) -> dict[str, str] | None:
    pairs = [pair.partition("=") for pair in given or []]
    return {name: column or name for name, _, column in pairs} or None


def _size(given: str | None) -> tuple[int, int] | None:
    if given is None:
        return None
    height, _, width = given.partition("x")
    if not (height.isdecimal() and width.isdecimal() and int(height) and int(width)):
        raise typer.BadParameter(f"{given!r} is not HEIGHTxWIDTH, such as 224x224", param_hint="--image-size")
    return int(height), int(width)


def _numbers(option: str, given: str) -> tuple[float, ...]:
    try:
        return tuple(float(number) for number in given.split(","))
    except ValueError:
        raise typer.BadParameter(f"{given!r} is not a number, nor several with commas", param_hint=option) from None
