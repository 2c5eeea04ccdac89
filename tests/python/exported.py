"""Helpers of the tests of exported modules: they run the official cases, and programs that know torch only."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable
from typing import Any

import numpy as np
import torch

import onnx_torch
from official import SUBSTITUTES, Case, assert_same, node_cases, with_symbolic_dims
from torch_storage import from_torch, to_torch

# One of so many cases runs; with 1, all of them do.
STEP = 1 if os.environ.get("ONNX_TORCH_EXPORT") == "all" else 6


def official_cases() -> list[Case]:
    """Gives official cases as they are, and others with their dimensions symbolic."""
    return node_cases()[::STEP] + [case for case in map(with_symbolic_dims, node_cases()[STEP // 2 :: STEP]) if case]


def outputs_of(module: torch.nn.Module, inputs: list[Any], expected: list[Any]) -> list[Any]:
    """Runs the module, and gives the outputs as arrays of the types expected."""
    with torch.no_grad():
        result = module(*to_torch(inputs))
    outputs = [result] if len(onnx_torch.names_of(module).outputs) == 1 else list(result)
    return from_torch(outputs, expected)


def check_case(case: Case, export: Callable[[Any], torch.nn.Module]) -> None:
    module = export(case.model)
    for inputs, expected in case.data_sets:
        outputs = outputs_of(module, inputs, expected)
        if case.name in SUBSTITUTES:
            SUBSTITUTES[case.name](case, inputs, outputs)
        else:
            assert_same(list(expected), outputs, case.rtol, case.atol)


def arrays(value: Any) -> list[np.ndarray]:
    """Gives all arrays in nested lists."""
    if isinstance(value, (list, tuple)):
        return [array for item in value for array in arrays(item)]
    return [] if value is None else [np.asarray(value)]


def handles_text(case: Case) -> bool:
    """Tells whether a case has strings in its data, or works on them in between."""
    text = any(array.dtype.kind in "OUS" for array in arrays(case.data_sets))
    return text or any(node.op_type in ("RegexFullMatch", "StringSplit") for node in case.model.graph.node)


def run_stock_torch(code: str, *arguments: str) -> str:
    """Gives what a process prints that has torch, and nothing of this package."""
    env = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
    check = "import sys, torch\nassert 'onnx_torch' not in sys.modules\n"
    done = subprocess.run(
        [sys.executable, "-W", "ignore", "-c", check + code, *arguments],
        env=env,
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout
