from __future__ import annotations

from typing import Annotated

import typer

from .options import AllowAten, Device, Input, Model, Seed, Shape, Threads, feeds_of, shapes_of
from .terminal import progress, table


def bench(
    model: Model,
    engine: Annotated[
        list[str] | None,
        typer.Option(
            help="onnx_torch, onnxruntime or reference; can be repeated. By default the first, and the second where it "
            "is installed."
        ),
    ] = None,
    input: Input = None,
    rounds: Annotated[int, typer.Option(min=1, help="How often each engine has its turn.")] = 5,
    runs: Annotated[int, typer.Option(min=1, help="How many runs a turn is.")] = 20,
    warm_up: Annotated[int, typer.Option(min=0, help="How many runs to do before all.")] = 3,
    seed: Seed = 0,
    device: Device = "CPU",
    threads: Threads = 0,
    shape: Shape = None,
    allow_aten: AllowAten = "checked",
) -> None:
    """Measure a model's latency, here and in onnxruntime, each in a process of its own."""
    import onnx_torch
    from onnx_torch.model_files import read_model

    with progress("Measuring") as report:
        found = onnx_torch.bench(
            model,
            feeds_of(read_model(model), input, seed, shape),
            engine,
            rounds=rounds,
            runs=runs,
            warm_up=warm_up,
            device=device,
            threads=threads,
            shapes=shapes_of(shape),
            allow_aten=allow_aten,
            progress=report,
        )
    rows = (
        (one.engine, *(f"{1e3 * s:.3f}" for s in (one.median, one.mean, one.percentile(95), one.fastest)))
        for one in found.latencies
    )
    table(["engine", ">median ms", ">mean", ">95 %", ">fastest"], rows)
    print(f"{rounds} rounds of {runs} runs each, in turns, on {device}, {threads or 'default'} threads")
    for ratio in found.ratios():
        print(ratio)
