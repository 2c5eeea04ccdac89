"""Tests on a GPU: memory stays flat over many runs, and compute-sanitizer finds nothing wrong with the kernels."""

from __future__ import annotations

import shutil
import subprocess
import sys
from pathlib import Path

import numpy as np
import onnx
import pytest
import torch
from onnx import numpy_helper, parser

import onnx_torch

pytestmark = pytest.mark.skipif(not torch.cuda.is_available(), reason="no CUDA device")

SANITIZER = shutil.which("compute-sanitizer")


def model() -> onnx.ModelProto:
    """Makes a model of a convolution, a product, attention by hand, and operators between them."""
    random = np.random.default_rng(0)
    source = parser.parse_model(
        """<ir_version: 10, opset_import: ["": 21]> net (float[N, 3, 16, 16] x) => (float[N, 64, 64] y, float[N, 1] s)
           { c = Conv<pads = [1, 1, 1, 1]>(x, w) r = Relu(c) h = Reshape(r, shape) q = MatMul(h, v)
             t = Transpose<perm = [0, 2, 1]>(q) a = MatMul(q, t) b = Softmax(a) d = MatMul(b, q) y = Add(d, h)
             m = Flatten(y) s = ReduceMean(m, axes) }"""
    )
    weights = {"w": random.standard_normal((16, 3, 3, 3)), "v": random.standard_normal((64, 64)) / 8}
    for name, value in weights.items():
        source.graph.initializer.append(numpy_helper.from_array(value.astype(np.float32), name))
    for name, numbers in {"shape": [0, 64, 64], "axes": [1]}.items():
        source.graph.initializer.append(numpy_helper.from_array(np.array(numbers), name))
    return source


@pytest.mark.parametrize("options", [{}, {"cuda_graphs": True}, {"precision": "float16"}], ids=str)
def test_memory_stays_flat_over_10_000_runs(options: dict[str, object]) -> None:
    rep = onnx_torch.prepare(model(), "CUDA:0", **options)  # type: ignore[arg-type]
    feeds = [torch.rand(n, 3, 16, 16, device="cuda") for n in (1, 2, 5)]
    host = np.zeros((2, 3, 16, 16), np.float32)

    def run(times: int) -> tuple[int, int]:
        for i in range(times):
            rep.run([feeds[i % 3]])
            if i % 10 == 0:
                rep.run([host])
        torch.cuda.synchronize()
        return torch.cuda.memory_allocated(), torch.cuda.memory_reserved()

    assert run(200) == run(10_000)


@pytest.mark.skipif(SANITIZER is None, reason="compute-sanitizer, of CUDA's toolkit, is not in the PATH")
@pytest.mark.parametrize("tool", ["memcheck", "racecheck", "synccheck"])
@pytest.mark.parametrize("tests", ["test_cuda_kernels.py", "test_cuda_chains.py"])
def test_the_sanitizer_finds_nothing(tool: str, tests: str) -> None:
    file = Path(__file__).with_name(tests)
    command = [str(SANITIZER), "--tool", tool, "--error-exitcode", "9", sys.executable, "-m", "pytest", "-q", str(file)]
    selected = ["-k", "GPU"] if tests == "test_cuda_kernels.py" else []
    done = subprocess.run(command + selected, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout[-4000:]
