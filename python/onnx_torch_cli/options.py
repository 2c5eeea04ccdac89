"""The arguments that commands share, under the names that they have in Python."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

if TYPE_CHECKING:
    import onnx

    from onnx_torch._models.trust import Trust

Model = Annotated[Path, typer.Argument(metavar="MODEL.onnx", exists=True, dir_okay=False, help="The model's file.")]
Device = Annotated[str, typer.Option(help="CPU, or CUDA:n.")]
Threads = Annotated[int, typer.Option(min=0, help="Threads on the CPU; 0 is what torch uses.")]
Precision = Annotated[str, typer.Option(metavar="TYPE", help="Of products with weights: float32, bfloat16 or float16.")]
Tf32 = Annotated[bool, typer.Option("--tf32", help="Let CUDA compute products of float32 in TF32.")]
CudaGraphs = Annotated[
    bool | None,
    typer.Option(
        "--cuda-graphs/--no-cuda-graphs",
        help="Record runs on CUDA, and launch them as a whole; else where it can be done.",
    ),
]
Optimize = Annotated[bool, typer.Option("--optimize/--no-optimize", help="Whether passes may rewrite the graph.")]
DisabledPass = Annotated[
    list[str] | None,
    typer.Option("--disable-pass", metavar="NAME", help="Leave this pass out; can be repeated."),
]
Shape = Annotated[
    list[str] | None,
    typer.Option(
        metavar="NAME=SIZE",
        help="Fix a symbolic dimension, such as batch=8, or the shape of a random input, such as x=1x3x224x224; "
        "can be repeated.",
    ),
]
Dimension = Annotated[  # --shape where there are no random inputs
    list[str] | None,
    typer.Option(
        "--shape",
        metavar="NAME=SIZE",
        help="Fix a symbolic dimension, such as batch=8, or an input's shape, such as x=1x3x224x224; can be repeated.",
    ),
]
Limit = Annotated[
    list[str] | None,
    typer.Option(
        metavar="NAME=MOST",
        help="What the model may take at most, such as seconds=10, memory=2e9 (bytes), max_iterations=1e6 (of a Loop), "
        "prepare_seconds=60, nodes=1e6 or constant_bytes=1e9; can be repeated.",
    ),
]
Sandbox = Annotated[
    bool,
    typer.Option(
        "--sandbox",
        help="Run it in a process that reads nothing but the model's folder, and has no network; on the CPU.",
    ),
]
AllowAten = Annotated[
    str,
    typer.Option(metavar="WHICH", help="What ATen nodes may call: checked operators, or all, if you trust the model."),
]
Links = Annotated[
    str, typer.Option(metavar="follow|refuse", help="What to do with files of external data that are links.")
]
MapExternal = Annotated[
    bool, typer.Option("--map-external", help="Map files of external data, which must not be cut meanwhile.")
]
Input = Annotated[
    list[str] | None,
    typer.Option(
        metavar="NAME=FILE",
        help="An input's value, from a .npy file or a TensorProto (.pb); can be repeated. "
        "Inputs not given get seeded random data.",
    ),
]
Seed = Annotated[int, typer.Option(min=0, help="The seed of random inputs.")]


def shapes_of(given: list[str] | None) -> dict[str, int]:
    """The sizes of dimensions that ``--shape`` gives."""
    return {name: sizes[0] for name, sizes in _pairs(given) if len(sizes) == 1}


def dimensions_of(given: list[str] | None) -> dict[str, int | list[int]]:
    """The sizes and inputs' shapes that ``--shape`` fixes, where there are no random inputs."""
    return {name: sizes if len(sizes) > 1 else sizes[0] for name, sizes in _pairs(given)}


def _pairs(given: list[str] | None) -> Iterator[tuple[str, list[int]]]:
    for pair in given or []:
        name, _, sizes = pair.rpartition("=")
        if not name or not re.fullmatch("[0-9]+(x[0-9]+)*", sizes):
            message = f"{pair!r} is not NAME=SIZE, such as batch=8, or NAME=SIZExSIZE…"
            raise typer.BadParameter(message, param_hint="--shape")
        yield name, [int(size) for size in sizes.split("x")]


def limits_of(given: list[str] | None) -> dict[str, float]:
    """What ``--limit`` gives."""
    limits = {}
    for pair in given or []:
        name, _, most = pair.partition("=")
        try:
            limits[name] = float(most)
        except ValueError:
            message = f"{pair!r} is not NAME=MOST, such as seconds=10 or memory=2e9"
            raise typer.BadParameter(message, param_hint="--limit") from None
    return limits


def trust_of(limit: list[str] | None, allow_aten: str, links: str) -> Trust:
    """What ``--limit``, ``--allow-aten`` and ``--links`` give, which go together."""
    return {"limits": limits_of(limit), "allow_aten": allow_aten, "links": links}


def inputs_of(given: list[str] | None) -> dict[str, Any]:
    """The values that ``--input`` gives."""
    values = {}
    for pair in given or []:
        name, _, path = pair.rpartition("=")
        if not name:
            raise typer.BadParameter(f"{pair!r} is not NAME=FILE", param_hint="--input")
        values[name] = _read(Path(path))
    return values


def _read(path: Path) -> Any:
    import numpy as np
    import onnx
    from google.protobuf.message import DecodeError  # type: ignore[import-untyped,unused-ignore]

    try:
        if path.suffix == ".pb":
            return onnx.numpy_helper.to_array(onnx.load_tensor(path))
        return np.load(path, allow_pickle=False)
    except (ValueError, DecodeError) as error:
        raise typer.BadParameter(f"{path}: {error}", param_hint="--input") from error


def feeds_of(model: onnx.ModelProto, given: list[str] | None, seed: int, shape: list[str] | None) -> dict[str, Any]:
    """The inputs for a run: those given, and random ones for the others."""
    import onnx_torch

    inputs = inputs_of(given)
    names = [value.name for value in model.graph.input]
    for name in inputs:
        if name not in names:
            message = f'the model has no input "{name}"; its inputs are {", ".join(names) or "none"}'
            raise typer.BadParameter(message, param_hint="--input")
    whole = {name: sizes for name, sizes in _pairs(shape) if len(sizes) > 1}
    for name in whole:
        if name not in names:
            raise typer.BadParameter(f'the model has no input "{name}"', param_hint="--shape")
    return onnx_torch.random_inputs(model, seed, {**shapes_of(shape), **whole}, inputs)
