from __future__ import annotations

import typer

from .options import AllowAten, Device, Dimension, Limit, Links, Model, dimensions_of, trust_of
from .terminal import domains_text, working


def check(
    model: Model,
    device: Device = "CPU",
    shape: Dimension = None,
    limit: Limit = None,
    allow_aten: AllowAten = "checked",
    links: Links = "follow",
) -> None:
    """Tell all that keeps a model from being run, at once. The exit code is 1 where there is something."""
    import onnx_torch
    from onnx_torch.model_summary import domains_of

    with working("Checking"):
        problems = onnx_torch.check(model, device, shapes=dimensions_of(shape), **trust_of(limit, allow_aten, links))
    for problem in problems:
        print(f"{'not supported' if problem.unsupported else 'invalid'}: {problem}")
    print(f"{model}: {domains_text(domains_of(model))}")
    print(f"{model}: {len(problems)} problem{'s' * (len(problems) != 1)}" if problems else f"{model}: no problem found")
    raise typer.Exit(1 if problems else 0)
