"""Models exported from torch, by either of its exporters."""

from __future__ import annotations

import contextlib
import inspect
import io
import logging
import warnings
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

from .case import Case, Exporter, Feeds, Network


def exported(
    name: str, group: str, network: Callable[[], Network], exporter: Exporter = "dynamo", tolerance: float = 1e-3
) -> Case:
    source = partial(seeded, network)
    return Case(name, group, partial(write_export, source, exporter), source, tolerance)


def seeded(network: Callable[[], Network]) -> Network:
    import torch

    torch.manual_seed(0)
    made = network()
    made.module.eval().requires_grad_(False)
    return made


def write_export(source: Callable[[], Network], exporter: Exporter, file: Path) -> list[Feeds]:
    import torch

    network = source()
    first = network.inputs[0]
    with quiet(), torch.no_grad():
        torch.onnx.export(
            network.module,
            tuple(first.values()),
            str(file),
            input_names=list(first),
            dynamo=exporter == "dynamo",
            external_data=False,
            verbose=False,
            **_open_axes(network, exporter),
        )
    return network.feeds()


@contextlib.contextmanager
def quiet() -> Iterator[None]:
    """Keeps converters from telling what they meet on their way."""
    logging.disable(logging.WARNING)
    try:
        with warnings.catch_warnings(), contextlib.redirect_stdout(io.StringIO()):
            warnings.simplefilter("ignore")
            yield
    finally:
        logging.disable(logging.NOTSET)


def _open_axes(network: Network, exporter: Exporter) -> dict[str, Any]:
    import torch

    if not network.dynamic:
        return {}
    if exporter == "torchscript":
        return {"dynamic_axes": {name: dict(axes) for name, axes in network.dynamic.items()}}
    names = {name for axes in network.dynamic.values() for name in axes.values()}
    dims = {name: torch.export.Dim(name) for name in names}
    shapes = [{axis: dims[dim] for axis, dim in network.dynamic.get(name, {}).items()} for name in network.inputs[0]]
    return {"dynamic_shapes": dict(inspect.signature(network.module.forward).bind(*shapes).arguments)}
