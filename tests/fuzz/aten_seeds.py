"""A node for each ATen operator that models may name, and each overload of it, with arguments that it takes."""

from __future__ import annotations

import itertools
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import torch

import onnx_torch

ROOT = Path(__file__).resolve().parents[2]
TRIES = 60


def aten_nodes() -> Iterator[tuple[str, onnx.ModelProto, list[np.ndarray]]]:
    """Gives models of one node with what they are fed, by names."""
    sys.path.insert(0, str(ROOT))
    from tools.aten.__main__ import allowed
    from tools.aten.arguments import Drawer
    from tools.aten.examples import examples
    from tools.aten.operators import overloads

    torch.manual_seed(0)
    for overload in overloads(allowed()):
        drawer = Drawer(overload, 0)
        drawn = (drawer.likely() for _ in range(TRIES))
        known = examples(overload.name, {argument.name for argument in overload.schema.arguments})
        for arguments in itertools.chain(known, drawn):
            found = node_of(overload, arguments)
            if found:
                yield f"aten-{overload}", *found
                break


def node_of(overload: Any, arguments: dict[str, Any]) -> tuple[onnx.ModelProto, list[np.ndarray]] | None:
    """Makes the node and its inputs, where they give a result."""
    from tools.aten.tensors import made

    from models import op_model

    inputs: list[np.ndarray | None] = []
    attributes: dict[str, Any] = {}
    try:
        given = {name: made(value) for name, value in arguments.items()}
        results = overload.call(given)
        for argument in overload.schema.arguments:
            value = given.get(argument.name)
            if "Tensor" in str(argument.type):
                tensors = value if isinstance(value, list) else [value]
                inputs += [None if tensor is None else tensor.numpy() for tensor in tensors]
            elif value is not None:
                attributes[argument.name] = int(value) if isinstance(value, bool) else value
        while inputs and inputs[-1] is None:
            inputs.pop()
        if overload.overload:
            attributes["overload_name"] = overload.overload
        count = len(results) if isinstance(results, tuple) else 1
        model = op_model("ATen", inputs, 1, "org.pytorch.aten", count, operator=overload.name, **attributes)
        fed = [value for value in inputs if value is not None]
        onnx_torch.prepare(model).run(fed)
    except (RuntimeError, TypeError, ValueError, IndexError, KeyError, onnx_torch.Error):
        return None  # the arguments do not suit the operator, or no node says them
    return model, fed
