"""The CUDA kernels: that they are there, and that they give what the CPU's give."""

import subprocess
import sys

import numpy as np
import pytest
import torch

import onnx_torch
from kernel_support import kernels

OPERATORS = ["max_roi_pool", "non_max_suppression", "roi_align"]
FLOATS = [torch.float32, torch.float64, torch.float16, torch.bfloat16]
TOLERANCES = {torch.float32: 1e-5, torch.float64: 1e-12, torch.float16: 2e-3, torch.bfloat16: 2e-2}

needs_gpu = pytest.mark.skipif(not torch.cuda.is_available(), reason="there is no CUDA device")


@pytest.fixture(scope="module", autouse=True)
def library():
    try:
        path = onnx_torch.kernels_library(cuda=True)
    except onnx_torch.UnsupportedError as error:
        pytest.skip(str(error))
    torch.ops.load_library(path)
    return path


@pytest.mark.parametrize("name", OPERATORS)
def test_registered(name):
    assert torch._C._dispatch_has_kernel_for_dispatch_key(f"onnx_torch::{name}", "CUDA")


def test_loaded_in_a_stock_process(library):
    code = f"""
import torch
for library in {[onnx_torch.kernels_library(), library]!r}: torch.ops.load_library(library)
print(torch._C._dispatch_has_kernel_for_dispatch_key("onnx_torch::roi_align", "CUDA"))"""
    printed = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout
    assert printed.strip() == "True"


def check(operator, *arguments, tolerance=0.0):
    """The operator's result on CUDA is that on the CPU."""
    moved = [value.cuda() if isinstance(value, torch.Tensor) else value for value in arguments]
    expected, got = operator(*arguments), operator(*moved)
    assert got.is_cuda
    torch.testing.assert_close(got.cpu(), expected, rtol=tolerance, atol=tolerance, equal_nan=True)


def uniform(random, low, high, shape):
    return torch.from_numpy(random.uniform(low, high, shape))


@needs_gpu
@pytest.mark.parametrize("dtype", FLOATS, ids=str)
@pytest.mark.parametrize("mode", ["avg", "max"])
@pytest.mark.parametrize("coordinates", ["half_pixel", "output_half_pixel"])
@pytest.mark.parametrize("sampling_ratio", [0, 2])
def test_roi_align(dtype, mode, coordinates, sampling_ratio):
    random = np.random.default_rng(0)
    for batches, channels, height, width, regions in [(1, 1, 1, 1, 1), (2, 3, 20, 30, 50), (2, 5, 7, 9, 0)]:
        x = torch.from_numpy(random.normal(size=(batches, channels, height, width))).to(dtype)
        x.flatten()[random.integers(0, x.numel(), 2)] = torch.nan
        rois = uniform(random, -3, width + 3, (regions, 4)).to(dtype)
        indices = torch.from_numpy(random.integers(0, batches, regions))
        check(
            kernels.roi_align, x, rois, indices, coordinates, mode, 3, 5, sampling_ratio, 0.8,
            tolerance=TOLERANCES[dtype],
        )  # fmt: skip


@needs_gpu
@pytest.mark.parametrize("dtype", FLOATS, ids=str)
def test_max_roi_pool(dtype):
    random = np.random.default_rng(0)
    for batches, channels, height, width, regions in [(1, 1, 1, 1, 1), (2, 3, 20, 30, 50), (2, 5, 7, 9, 0)]:
        x = torch.from_numpy(random.normal(size=(batches, channels, height, width))).to(dtype)
        corners = uniform(random, -3, width + 3, (regions, 4))
        rois = torch.cat([torch.from_numpy(random.integers(0, batches, (regions, 1))), corners], 1).to(dtype)
        check(kernels.max_roi_pool, x, rois, [3, 5], 0.8)


@needs_gpu
@pytest.mark.parametrize("center_point_box", [False, True])
@pytest.mark.parametrize("score_threshold", [None, torch.tensor(0.3)], ids=str)
@pytest.mark.parametrize("max_boxes", [0, 3, 100000])
@pytest.mark.parametrize("shape", [(1, 1, 1), (2, 3, 40), (1, 80, 3000), (0, 2, 3), (2, 0, 3), (2, 2, 0)], ids=str)
def test_non_max_suppression(shape, max_boxes, score_threshold, center_point_box):
    batches, _, boxes = shape
    random = np.random.default_rng(0)
    scores = torch.from_numpy(random.integers(0, 50, shape)).float() / 50  # many are equal
    scores[random.random(shape) < 0.05] = torch.nan
    corners = uniform(random, 0, 1, (batches, boxes, 4)).float()
    check(
        kernels.non_max_suppression, corners, scores, torch.tensor([max_boxes]), torch.tensor([0.3]), score_threshold,
        center_point_box,
    )  # fmt: skip
