from __future__ import annotations

from typing import Annotated

import typer

from .options import AllowAten, Input, Limit, Links, Model, Seed, Shape, feeds_of, shapes_of, trust_of
from .terminal import progress


def compare(
    model: Model,
    engine: Annotated[
        list[str] | None,
        typer.Option(
            help="onnx_torch, unoptimised (each node on its own), reference (ONNX's own) or onnxruntime; the first two "
            "also as onnx_torch@CUDA:0. Give one, which is compared with onnx_torch, or two."
        ),
    ] = None,
    input: Input = None,
    rtol: Annotated[float, typer.Option(help="How far floats may be apart, relative to the second.")] = 1e-3,
    atol: Annotated[float, typer.Option(help="How far floats may be apart besides.")] = 1e-5,
    seed: Seed = 0,
    shape: Shape = None,
    limit: Limit = None,
    allow_aten: AllowAten = "checked",
    links: Links = "follow",
) -> None:
    """Run a model with two engines, and name the first node that differs.

    The exit code is 1 where there is a difference. By default onnx_torch is compared with ONNX's reference.
    """
    import onnx_torch
    from onnx_torch._models.files import read_model

    engines = engine or ["reference"]
    if len(engines) > 2:
        raise typer.BadParameter("two engines are compared, not more", param_hint="--engine")
    with progress("Comparing") as report:
        found = onnx_torch.compare(
            model,
            feeds_of(read_model(model), input, seed, shape),
            engines if len(engines) == 2 else ["onnx_torch", *engines],
            rtol=rtol,
            atol=atol,
            shapes=shapes_of(shape),
            **trust_of(limit, allow_aten, links),
            progress=report,
        )
    print(found)
    raise typer.Exit(0 if found else 1)
