from __future__ import annotations

import re
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated, Any

import typer

from .options import (
    AllowAten,
    CudaGraphs,
    Device,
    DisabledPass,
    Input,
    Limit,
    Links,
    MapExternal,
    Model,
    Optimize,
    Precision,
    Sandbox,
    Seed,
    Shape,
    Tf32,
    Threads,
    feeds_of,
    shapes_of,
    trust_of,
)
from .terminal import working


def run(
    model: Model,
    input: Input = None,
    output: Annotated[
        list[str] | None,
        typer.Option(
            metavar="NAME", help="An output wanted, or any inner value; can be repeated. All outputs by default."
        ),
    ] = None,
    save: Annotated[
        Path | None,
        typer.Option(metavar="FOLDER", file_okay=False, help="Write each output there, as .npy or TensorProto (.pb)."),
    ] = None,
    seed: Seed = 0,
    device: Device = "CPU",
    precision: Precision = "float32",
    tf32: Tf32 = False,
    cuda_graphs: CudaGraphs = None,
    optimize: Optimize = True,
    disable_pass: DisabledPass = None,
    threads: Threads = 0,
    shape: Shape = None,
    limit: Limit = None,
    allow_aten: AllowAten = "checked",
    sandbox: Sandbox = False,
    links: Links = "follow",
    map_external: MapExternal = False,
) -> None:
    """Run a model once, and print what comes out.

    An input that is not given gets seeded random data, with symbolic dimensions set to 1 unless --shape or another
    input says otherwise; the output says so.
    """
    import onnx_torch
    from onnx_torch._models.files import read_model

    if sandbox and (tf32 or cuda_graphs is not None or map_external):
        raise typer.BadParameter(
            "a sandbox has no GPU, and maps no files: it takes neither --tf32 nor --cuda-graphs nor --map-external",
            param_hint="--sandbox",
        )
    options: dict[str, Any] = {
        "precision": precision,
        "optimize": optimize,
        "disabled_passes": disable_pass or (),
        "threads": threads,
        "shapes": shapes_of(shape),
        **trust_of(limit, allow_aten, links),
    }
    rep: onnx_torch.PreparedModel | onnx_torch.sandbox.SandboxedModel
    start = time.perf_counter()
    with working("Preparing"):
        if sandbox:
            rep = onnx_torch.sandbox.prepare(model, device, **options)
        else:
            rep = onnx_torch.prepare(
                model, device, tf32=tf32, cuda_graphs=cuda_graphs, map_external=map_external, **options
            )
    prepared = time.perf_counter() - start
    feeds = feeds_of(read_model(model), input, seed, shape)
    given = {pair.rpartition("=")[0] for pair in input or []}
    dims = {name: dims for name, _, dims, _ in rep.inputs}
    if isinstance(rep, onnx_torch.sandbox.SandboxedModel):
        print("Sandbox")
        for measure in rep.measures:
            print(f"  {measure}")
    print("Inputs")
    for name, value in feeds.items():
        origin = "given" if name in given else f"random, seed {seed}{_sizes(dims.get(name), value)}"
        print(f"  {name} ({origin}): {_describe(value)}")

    names = output or [name for name, _ in rep.outputs]
    start = time.perf_counter()
    with working("Running"):
        outputs = rep.run(feeds, output_names=names)
    ran = time.perf_counter() - start
    print("Outputs")
    for name, value in zip(names, outputs, strict=True):
        print(f"  {name}: {_describe(value)}")
    print(f"Prepared in {prepared:.3f} s, run in {ran:.3f} s on {device}")
    if save:
        save.mkdir(parents=True, exist_ok=True)
        for name, value in zip(names, outputs, strict=True):
            _save(save, re.sub(r"[^\w.-]", "_", name), value)


def _sizes(dims: Sequence[int | str | None] | None, value: Any) -> str:
    """The sizes that the symbolic dimensions of an input have got."""
    pairs = zip(dims or (), getattr(value, "shape", ()), strict=False)
    return "".join(f", {dim}={size}" for dim, size in pairs if isinstance(dim, str))


def _describe(value: Any, indent: str = "  ") -> str:
    """A value's type, shape and first elements; a sequence's elements each on a line of its own."""
    import numpy as np

    from onnx_torch.comparison import describe

    if isinstance(value, dict):
        return f"{describe(value)}: {dict(list(value.items())[:4])}"
    if isinstance(value, list):
        lines = [f"{indent}  [{i}] {_describe(element, indent + '  ')}" for i, element in enumerate(value[:4])]
        return "\n".join([describe(value), *lines])
    if value is None:
        return describe(value)
    array = np.asarray(value)
    first = ", ".join(str(element) for element in array.ravel()[:6])
    return f"{describe(value)}  {first}{', …' if array.size > 6 else ''}"


def _save(folder: Path, name: str, value: Any) -> None:
    import numpy as np
    import onnx

    if isinstance(value, list):
        for i, element in enumerate(value):
            _save(folder, f"{name}_{i}", element)
    elif value is None or isinstance(value, dict):
        typer.echo(f"{name} is {'absent' if value is None else 'a map'}, and is not saved", err=True)
    elif (
        np.asarray(value).dtype.kind in "OV"
    ):  # strings, and ml_dtypes' types: .npy would pickle them, or lose the type
        tensor = onnx.numpy_helper.from_array(np.asarray(value), name)
        (folder / f"{name}.pb").write_bytes(tensor.SerializeToString())
    else:
        np.save(folder / f"{name}.npy", value, allow_pickle=False)
