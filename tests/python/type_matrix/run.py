"""Runs cells and tells what came of each."""

from __future__ import annotations

import dataclasses
import multiprocessing
import time
from collections.abc import Callable
from concurrent.futures import ProcessPoolExecutor
from typing import Any

import torch

import onnx_torch
from models import RANDOM, assert_plans_agree
from onnx_torch import backend

from .cells import Cell
from .compare import assert_equal, assert_shape, assert_type, precision
from .engines import Declined
from .oracles import INDIRECT, ORACLES, ask
from .rules import assert_likely, left_out
from .templates import Case, cases
from .values import type_string


@dataclasses.dataclass(frozen=True)
class Result:
    cell: Cell
    outcome: str  # the oracle it equals, "run only", "failed", "refused" or "left out"
    detail: str = ""


def run_cell(cell: Cell, device: str = "CPU") -> Result:
    reason = left_out(cell)
    if reason:
        return Result(cell, "left out", reason)
    case = next(cases(cell), None)
    if case is None:
        return Result(cell, "failed", "no template makes a model of it")
    try:
        outputs = list(backend.prepare(case.model, device).run(case.inputs))
        for output, type_str in zip(outputs, case.output_types, strict=True):
            assert_type(output, type_str)
        if device == "CPU" and not RANDOM.search(cell.op):
            assert_plans_agree(case.model, case.inputs)
        return _compared(case, outputs, device)
    except onnx_torch.UnsupportedError as error:
        return Result(cell, "refused", str(error))
    except Exception as error:
        return Result(cell, "failed", f"{type(error).__name__}: {' '.join(str(error).split())}")


# cuDNN's recurrent layers, whose tanh and sigmoid of float32 were up to 28 ulps off on an H200 (docs/cuda.md).
ULPS_OF_CUDNN = {"RNN": 32, "LSTM": 32, "GRU": 32}


def _ulps(case: Case, device: str) -> int:
    on_device = 0 if device == "CPU" else ULPS_OF_CUDNN.get(case.cell.op, 0)
    return max(case.template.ulps, on_device)


def _compared(case: Case, outputs: list[Any], device: str) -> Result:
    """Compares with the first oracle that takes the case."""
    declined = []
    for name in ORACLES | INDIRECT:
        try:
            expected = ask(name, case)
        except Declined as reason:
            declined.append(f"{name}: {reason}")
            continue
        input_types = [type_string(info.type) for info in case.model.graph.input]
        assert_equal(outputs, expected, precision(input_types, case.output_types), _ulps(case, device))
        return Result(case.cell, name)
    assert_shape(case.model, outputs)
    assert_likely(case.cell, case.inputs, outputs)
    return Result(case.cell, "run only", " | ".join(declined))


def _one_thread() -> None:
    torch.set_num_threads(1)


def run_cells(
    cells: list[Cell], device: str = "CPU", processes: int = 2, progress: Callable[[str], None] = lambda text: None
) -> list[Result]:
    """Runs cells in processes of their own, in their order."""
    results = []
    start = time.monotonic()
    spawn = multiprocessing.get_context("spawn")
    with ProcessPoolExecutor(processes, mp_context=spawn, initializer=_one_thread) as pool:
        for result in pool.map(run_cell, cells, [device] * len(cells), chunksize=16):
            results.append(result)
            if len(results) % 500 == 0 or len(results) == len(cells):
                progress(f"{len(results)}/{len(cells)} cells, {time.monotonic() - start:.0f} s")
    return results
