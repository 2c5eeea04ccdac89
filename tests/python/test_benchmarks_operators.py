"""The benchmark of single operators: `python -m benchmarks.operators`."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import onnx
import pytest
from benchmarks.operators import CASES, model_of

import onnx_torch

ROOT = Path(__file__).resolve().parents[2]


def test_each_case_is_a_model_of_one_operator() -> None:
    for name in CASES:
        model, fed = model_of(name)
        onnx.shape_inference.infer_shapes(model, strict_mode=True)
        rep = onnx_torch.prepare(model)
        assert {value[0] for value in rep.inputs} == fed.keys()
        assert [node.op_type for node in model.graph.node if node.op_type != "Constant"] == [name.partition(",")[0]]


def test_operators_are_measured_beside_onnxruntime() -> None:
    pytest.importorskip("onnxruntime")
    command = [sys.executable, "-m", "benchmarks.operators", "Concat", "Resize, nearest", "--rounds", "1"]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True)
    rows = [line.split(" | ") for line in done.stdout.splitlines() if line.startswith("| ")][1:]
    assert [row[0] for row in rows] == ["| Concat", "| Resize, nearest"]
    assert all(float(row[1]) > 0 and float(row[2]) > 0 for row in rows)
    assert "2 operators:" in done.stdout
