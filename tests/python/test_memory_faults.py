"""Memory that cannot be had: each allocation in turn, and a process that has little left."""

import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import onnx
import pytest

import fault_models

FAULTS = Path(__file__).resolve().parents[1] / "faults"
STEP = os.environ.get("ONNX_TORCH_FAULT_STEP", "61")  # every so manieth allocation fails while a model is prepared


@pytest.fixture(scope="module")
def failing(tmp_path_factory):
    library = tmp_path_factory.mktemp("faults") / "allocations.so"
    subprocess.run(["cc", "-O1", "-shared", "-fPIC", FAULTS / "allocations.c", "-o", library], check=True)
    return str(library)


def run(script, name, folder, *arguments, **environment):
    model = fault_models.model_of(name)
    path, feeds = folder / "model.onnx", folder / "feeds.npz"
    onnx.save(model, path)
    np.savez(feeds, **fault_models.feeds_for(model))
    done = subprocess.run(
        [sys.executable, FAULTS / script, path, feeds, *arguments],
        env={**os.environ, "OMP_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1", **environment},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout.splitlines()


@pytest.mark.parametrize("name", fault_models.MODELS)
def test_an_allocation_that_fails_is_an_error(name, failing, tmp_path):
    lines = run("each_allocation.py", name, tmp_path, STEP, LD_PRELOAD=failing)
    assert [line.split()[0] for line in lines] == ["load", "prepare", "run"]
    for line in lines:
        tried, failures = map(int, line.split()[1:])
        assert tried > 10 and failures > 0


@pytest.mark.parametrize("name", fault_models.MODELS)
def test_a_process_that_has_little_memory_left_goes_on(name, tmp_path):
    (line,) = run("little_memory.py", name, tmp_path)
    turns, failures = map(int, line.split())
    assert 0 < failures < turns


HARDENED = """
import ctypes, sys
import numpy as np
import onnx_torch

model, feeds = sys.argv[1], dict(np.load(sys.argv[2]))
REFUSE_EXEC_GAIN, SET_MDWE = 1, 65
if ctypes.CDLL(None).prctl(SET_MDWE, REFUSE_EXEC_GAIN, 0, 0, 0) != 0:
    sys.exit("the kernel cannot refuse")
try:
    onnx_torch.prepare(model).run(feeds)
    print("ran")
except onnx_torch.errors.Error as error:
    print(error)
"""


def test_memory_that_may_not_be_executed_is_an_error(tmp_path):
    """As on a hardened system: oneDNN would run code that is not there."""
    (tmp_path / "hardened.py").write_text(HARDENED)
    told = run(tmp_path / "hardened.py", "convolution", tmp_path)
    assert any("memory cannot be executed" in line for line in told)
