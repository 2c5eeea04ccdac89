"""Models of one node whose inputs and attributes do not go together."""

from __future__ import annotations

import contextlib
import resource
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import numpy_helper

import onnx_torch
from models import op_model, tensor_info

MORE_MEMORY = 3 << 30

LOWEST, HIGHEST = -(2**63), 2**63 - 1


def zeros(*sizes: int, dtype: Any = np.float32) -> np.ndarray:
    return np.zeros(sizes, dtype)


def ints(*values: int) -> np.ndarray:
    return np.array(values, np.int64)


def constant_model(op_type: str, inputs: list[Any], open_inputs: int = 1, **options: Any) -> onnx.ModelProto:
    """Makes a model of one node whose inputs are initializers but for the first ones, whose sizes are known."""
    model = op_model(op_type, inputs, **options)
    given = {f"x{i}": value for i, value in enumerate(inputs) if value is not None}
    kept = [f"x{i}" for i in range(open_inputs)]
    del model.graph.input[:]
    for name, value in given.items():
        if name in kept:
            model.graph.input.append(tensor_info(name, value, value.shape))
        else:
            model.graph.initializer.append(numpy_helper.from_array(value, name))
    return model


def refused(op_type: str, inputs: list[Any], message: str, **options: Any) -> None:
    """Checks that a node is refused with inputs of any sizes, and with constants."""
    for model, fed in (
        (op_model(op_type, inputs, **options), inputs),
        (constant_model(op_type, inputs, **options), inputs[:1]),
    ):
        with pytest.raises(onnx_torch.Error, match=message) as caught:
            onnx_torch.prepare(model).run([value for value in fed if value is not None])
        assert str(caught.value).startswith(op_type) or f".{op_type}" in str(caught.value)


@contextlib.contextmanager
def little_memory() -> Iterator[None]:
    """Leaves the process little more memory than it has: what no tensor has room for is to be refused, not had."""
    before = resource.getrlimit(resource.RLIMIT_AS)
    pages = int(Path("/proc/self/statm").read_text().split()[0])
    resource.setrlimit(resource.RLIMIT_AS, (pages * resource.getpagesize() + MORE_MEMORY, before[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_AS, before)
