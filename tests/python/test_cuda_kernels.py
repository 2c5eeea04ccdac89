"""The CUDA kernels give what the CPU's give: on a GPU where there is one, and always as code for the CPU.

That code is tests/cuda_on_host, which the C++ tests are built with: each kernel is an operator of onnx_torch_on_host.
"""

import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
import torch
from onnx import TensorProto

import onnx_torch
from kernel_support import kernels

OPERATORS = [
    *("cast_small_float", "deform_conv", "find_keys", "linear_of_bits", "map_keys", "max_roi_pool"),
    *("multiclass_probability", "non_max_suppression", "roi_align", "tree_ensemble"),
]
FLOATS = [torch.float32, torch.float64, torch.float16, torch.bfloat16]
# Sums are added in another order on a GPU; of 16 bits, what either rounds in the end may be two units apart.
TOLERANCES = {torch.float32: 1e-5, torch.float64: 1e-12, torch.float16: 2e-3, torch.bfloat16: 2e-2}
ON_HOST = Path(onnx_torch.__file__).parents[2] / "tests" / "cpp" / "libonnx_torch_cuda_on_host.so"


def cuda_library():
    try:
        return onnx_torch.kernels_library(cuda=True)
    except onnx_torch.UnsupportedError as error:
        pytest.skip(str(error))


@pytest.mark.parametrize("name", OPERATORS)
def test_registered(name):
    torch.ops.load_library(cuda_library())
    assert torch._C._dispatch_has_kernel_for_dispatch_key(f"onnx_torch::{name}", "CUDA")


def test_loaded_in_a_stock_process():
    code = f"""
import torch
for library in {[onnx_torch.kernels_library(), cuda_library()]!r}: torch.ops.load_library(library)
print(torch._C._dispatch_has_kernel_for_dispatch_key("onnx_torch::roi_align", "CUDA"))"""
    printed = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout
    assert printed.strip() == "True"


@pytest.fixture(params=["GPU", "host"])
def check(request):
    """Gives a function that checks that an operator's result by its CUDA kernel is that on the CPU."""
    if request.param == "GPU" and not torch.cuda.is_available():
        pytest.skip("there is no CUDA device")
    if request.param == "GPU":
        torch.ops.load_library(cuda_library())
        operators, move = kernels, lambda value: value.cuda() if isinstance(value, torch.Tensor) else value
    else:
        if not ON_HOST.exists():
            pytest.skip("the C++ tests are not built")
        torch.ops.load_library(ON_HOST)
        operators, move = torch.ops.onnx_torch_on_host, lambda value: value

    def check(name, *arguments, tolerance=0.0):
        expected = getattr(kernels, name)(*arguments)
        got = getattr(operators, name)(*map(move, arguments))
        assert got.is_cuda == (request.param == "GPU")
        if expected.is_floating_point() and expected.element_size() == 1:
            expected, got = expected.view(torch.uint8), got.view(torch.uint8)
        torch.testing.assert_close(got.cpu(), expected, rtol=tolerance, atol=tolerance, equal_nan=True)

    return check


def uniform(random, low, high, *shape):
    return torch.from_numpy(random.uniform(low, high, shape))


def integers(random, end, *shape):
    return torch.from_numpy(random.integers(0, end, shape))


IMAGES = [(1, 1, 1, 1, 1), (2, 3, 20, 30, 50), (2, 5, 7, 9, 0)]  # batches, channels, height, width, regions


@pytest.mark.parametrize("dtype", FLOATS, ids=str)
@pytest.mark.parametrize("mode", ["avg", "max"])
@pytest.mark.parametrize("coordinates", ["half_pixel", "output_half_pixel"])
@pytest.mark.parametrize("sampling_ratio", [0, 2])
def test_roi_align(check, dtype, mode, coordinates, sampling_ratio):
    random = np.random.default_rng(0)
    for batches, channels, height, width, regions in IMAGES:
        x = uniform(random, -1, 1, batches, channels, height, width).to(dtype)
        x.flatten()[integers(random, x.numel(), 2)] = torch.nan
        rois = uniform(random, -3, width + 3, regions, 4).to(dtype)
        options = coordinates, mode, 3, 5, sampling_ratio, 0.8
        check("roi_align", x, rois, integers(random, batches, regions), *options, tolerance=TOLERANCES[dtype])


@pytest.mark.parametrize("dtype", FLOATS, ids=str)
def test_max_roi_pool(check, dtype):
    random = np.random.default_rng(0)
    for batches, channels, height, width, regions in IMAGES:
        x = uniform(random, -1, 1, batches, channels, height, width).to(dtype)
        corners = uniform(random, -3, width + 3, regions, 4)
        rois = torch.cat([integers(random, batches, regions, 1), corners], 1).to(dtype)
        check("max_roi_pool", x, rois, [3, 5], 0.8)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float16, torch.bfloat16], ids=str)
@pytest.mark.parametrize("rows", [1, 2, 3, 5, 16, 17])  # by one kernel each, many rows by a dequantized weight
@pytest.mark.parametrize("bits, size, block_size", [(4, 40, 16), (4, 2048, 32), (2, 300, 64), (8, 203, 128)])
def test_linear_of_bits(check, bits, size, block_size, rows, dtype):
    random = np.random.default_rng(0)
    out, blocks = 13, -(-size // block_size)
    x = uniform(random, -1, 1, rows, size).to(dtype)
    numbers = integers(random, 256, out, blocks, block_size * bits // 8).to(torch.uint8)
    scales = uniform(random, 0.5, 1, out, blocks).float() / (16 * 2 ** (bits - 4))
    zero_points = uniform(random, 0, 2**bits, out, blocks).float()
    bias = uniform(random, -1, 1, out).to(dtype)
    values = [None, uniform(random, -1, 1, 16).float()] if bits == 4 else [None]
    for of_codes in values:
        for given in [None, bias]:
            for zero_point in [None, zero_points] if of_codes is None else [None]:
                arguments = x, numbers, scales, zero_point, of_codes, given, size, bits
                # Errors of that many addends, of either sign, grow as the square root of their number.
                check("linear_of_bits", *arguments, tolerance=TOLERANCES[dtype] * size**0.5)


def test_linear_of_bits_with_numbers_at_any_address(check):
    random = np.random.default_rng(0)
    numbers = integers(random, 256, 4 * 2 * 16 + 1).to(torch.uint8)[1:].view(4, 2, 16)
    x = uniform(random, -1, 1, 1, 65).float().flatten()[1:].view(1, 64)
    check("linear_of_bits", x, numbers, torch.ones(4, 2) / 8, None, None, None, 64, 4, tolerance=1e-5)


def test_linear_of_bits_of_no_rows_and_of_no_columns(check):
    numbers = torch.zeros(4, 2, 16, dtype=torch.uint8)
    for rows, columns in [(0, 4), (2, 0), (20, 0)]:
        scales = torch.ones(columns, 2)
        check("linear_of_bits", torch.ones(rows, 64), numbers[:columns], scales, None, None, None, 64, 4)


@pytest.mark.parametrize(
    "wrong, message",
    [
        (dict(bits=3), "2, 4 or 8 bits"),
        (dict(numbers=torch.zeros(4, 2, 12, dtype=torch.uint8)), "a power of two"),
        (dict(size=65), "does not hold rows of 65"),
        (dict(size=32), "does not hold rows of 32"),
        (dict(x=torch.ones(1, 63)), "cannot be multiplied"),
        (dict(x=torch.ones(1, 64, dtype=torch.float64)), "cannot be multiplied"),
        (dict(scales=torch.ones(4, 1)), "a scale for each block"),
        (dict(zero_points=torch.ones(3, 2)), "a scale for each block"),
        (dict(values=torch.ones(15)), "codes of 4 bits"),
        (dict(bias=torch.ones(5)), "the bias has a number"),
    ],
)
def test_linear_of_bits_refuses_what_does_not_go_together(wrong, message):
    right = dict(x=torch.ones(1, 64), numbers=torch.zeros(4, 2, 16, dtype=torch.uint8), scales=torch.ones(4, 2))
    right.update(zero_points=None, values=None, bias=None, size=64, bits=4)
    assert kernels.linear_of_bits(*right.values()).tolist() == [[-8 * 64.0] * 4]
    with pytest.raises(RuntimeError, match=message):
        kernels.linear_of_bits(*{**right, **wrong}.values())


@pytest.mark.parametrize("center_point_box", [False, True])
@pytest.mark.parametrize("score_threshold", [None, torch.tensor(0.3)], ids=str)
@pytest.mark.parametrize("max_boxes", [0, 3, 100000])
@pytest.mark.parametrize("shape", [(1, 1, 1), (2, 3, 40), (1, 2, 1500), (0, 2, 3), (2, 0, 3), (2, 2, 0)], ids=str)
def test_non_max_suppression(check, shape, max_boxes, score_threshold, center_point_box):
    batches, _, boxes = shape
    random = np.random.default_rng(0)
    scores = torch.from_numpy(random.integers(0, 50, shape)).float() / 50  # many are equal
    scores[torch.from_numpy(random.random(shape) < 0.05)] = torch.nan
    corners = uniform(random, 0, 1, batches, boxes, 4).float()
    corners[..., 2:] = corners[..., :2] + corners[..., 2:] / 3
    limits = torch.tensor([max_boxes]), torch.tensor([0.3]), score_threshold
    check("non_max_suppression", corners, scores, *limits, center_point_box)


@pytest.mark.parametrize("dtype", FLOATS, ids=str)
@pytest.mark.parametrize("with_mask_and_bias", [False, True])
@pytest.mark.parametrize("spatial", [[7], [6, 9], [4, 5, 6], [3, 4, 3, 5], [0, 4]], ids=str)
def test_deform_conv(check, spatial, with_mask_and_bias, dtype):
    random = np.random.default_rng(0)
    rank, batches, channels, outputs, group, offset_group = len(spatial), 3, 4, 6, 2, 2
    kernel, pads, strides = [2, 3, 1, 2][:rank], [1] * rank + [2] * rank, [1, 2, 1, 1][:rank]
    room = [n + 3 - k for n, k in zip(spatial, kernel, strict=True)]
    output = [r // s + 1 for r, s in zip(room, strides, strict=True)]
    taps = int(np.prod(kernel))
    x = uniform(random, -1, 1, batches, channels, *spatial).to(dtype)
    w = uniform(random, -1, 1, outputs, channels // group, *kernel).to(dtype)
    offset = uniform(random, -3, 3, batches, offset_group * taps * rank, *output).to(dtype)
    mask = uniform(random, 0, 1, batches, offset_group * taps, *output).to(dtype) if with_mask_and_bias else None
    bias = uniform(random, -1, 1, outputs).to(dtype) if with_mask_and_bias else None
    options = [1] * rank, group, kernel, offset_group, pads, strides
    check("deform_conv", x, w, offset, bias, mask, *options, tolerance=TOLERANCES[dtype])


SMALL = "FLOAT8E4M3FN FLOAT8E4M3FNUZ FLOAT8E5M2 FLOAT8E5M2FNUZ FLOAT8E8M0 FLOAT6E2M3 FLOAT6E3M2 FLOAT4E2M1".split()


def one_nan(x):
    """Makes every NaN positive: ATen widens halves to float32 before, and CUDA's instruction gives NaN no sign."""
    return torch.where(x.isnan(), torch.tensor(torch.nan, dtype=x.dtype), x)


@pytest.mark.parametrize("saturate", [False, True])
@pytest.mark.parametrize("round_mode", ["up", "down", "nearest"])
@pytest.mark.parametrize("to", [name for name in SMALL if hasattr(TensorProto, name)])
def test_cast_small_float(check, to, round_mode, saturate):
    random = np.random.default_rng(0)
    bits = torch.from_numpy(random.integers(-(2**31), 2**31, 5000).astype(np.int32))
    for x in [
        bits.view(torch.float32),  # all kinds, NaN and infinities among them
        one_nan(bits.view(torch.float16)),
        one_nan(bits.view(torch.bfloat16)),
        bits.view(torch.float32).double(),
        bits,
        bits.to(torch.uint64),
        bits.gt(0),
        uniform(random, -8, 8, 0),
    ]:
        check("cast_small_float", x, getattr(TensorProto, to), saturate, round_mode)


@pytest.mark.parametrize("dtype", [torch.uint8, torch.int16, torch.int64, torch.float32, torch.float64], ids=str)
def test_find_keys(check, dtype):
    random = np.random.default_rng(0)
    for count, keys in [(1000, 30), (0, 5), (7, 0)]:
        x, among = integers(random, 60, count).to(dtype), integers(random, 50, keys).to(dtype)  # some are equal
        if dtype.is_floating_point and count and keys:
            x[:3], among[4] = torch.nan, torch.nan
        check("find_keys", x, among)
        check("map_keys", x, among, uniform(random, -1, 1, keys), torch.tensor(7.0, dtype=torch.float64))


MODES = ["BRANCH_LEQ", "BRANCH_LT", "BRANCH_GTE", "BRANCH_GT", "BRANCH_EQ", "BRANCH_NEQ"]


def forest(random, trees, depth, features, targets, modes, aggregate, dtype):
    """Makes full trees of random nodes; each leaf votes for two targets where there are as many."""
    inner, nodes = 2**depth - 1, 2 ** (depth + 1) - 1
    leaf = np.arange(nodes) >= inner
    chosen = random.choice(modes, (trees, nodes))
    voters = np.repeat(np.arange(inner, nodes), min(targets, 2))
    voted = np.concatenate([random.permutation(targets)[:2] for _ in range(trees * (nodes - inner))])
    return torch.classes.onnx_torch.TreeEnsemble.from_node_list(
        np.repeat(np.arange(trees), nodes).tolist(),
        np.tile(np.arange(nodes), trees).tolist(),
        random.integers(0, features, trees * nodes).tolist(),
        np.tile(np.where(leaf, 0, 2 * np.arange(nodes) + 1), trees).tolist(),
        np.tile(np.where(leaf, 0, 2 * np.arange(nodes) + 2), trees).tolist(),
        random.integers(0, 2, trees * nodes).tolist(),
        np.repeat(np.arange(trees), len(voters)).tolist(),
        np.tile(voters, trees).tolist(),
        voted.tolist(),
        np.where(leaf, "LEAF", chosen).ravel().tolist(),
        torch.from_numpy(random.integers(-2, 3, trees * nodes)).to(dtype),
        torch.from_numpy(random.normal(size=voted.size)).to(dtype),
        torch.from_numpy(random.normal(size=targets)).to(dtype),
        targets,
        aggregate,
        dtype,
    )


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64], ids=str)
@pytest.mark.parametrize("aggregate", ["SUM", "AVERAGE", "MIN", "MAX"])
@pytest.mark.parametrize("targets", [1, 5])
@pytest.mark.parametrize("modes", [MODES[:1], MODES], ids=["one mode", "all modes"])
def test_tree_ensemble(check, modes, targets, aggregate, dtype):
    random = np.random.default_rng(0)
    for rows, trees, depth in [(1, 40, 3), (70, 17, 5), (0, 3, 1), (5, 1, 0)]:
        ensemble = forest(random, trees, depth, 6, targets, modes, aggregate, dtype)
        x = integers(random, 5, rows, 6).to(torch.float32) - 2  # often equal to a threshold
        x[torch.from_numpy(random.random(x.shape) < 0.1)] = torch.nan
        check("tree_ensemble", x, ensemble, tolerance=TOLERANCES[dtype])


@pytest.mark.parametrize("weights", [[5.23, 12.12, -12.23], [1e9, -1e9, 5e8]], ids=["small", "large"])
def test_tree_ensemble_with_sets(check, weights):
    """The weight of a leaf is not taken for the index of a set, also where all nodes above the leaves have sets."""
    members = torch.tensor([1.2, 3.7, 8.0, torch.nan, 9.0, torch.nan])
    ensemble = torch.classes.onnx_torch.TreeEnsemble.from_tree_ensemble(
        torch.tensor([6, 6], dtype=torch.uint8), torch.zeros(2), members, torch.tensor(weights),
        [0, 1], [0, 2], [1, 1], [1, 1], [0, 1], [0, 0], [0], [0, 1, 1], 2, "SUM", torch.float32,
    )  # fmt: skip
    x = torch.tensor([[1.2, 0], [8, 9], [2, 9], [2, 1], [torch.nan, 9], [torch.nan, torch.nan]])
    check("tree_ensemble", x, ensemble)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64], ids=str)
def test_multiclass_probability(check, dtype):
    random = np.random.default_rng(0)
    for rows, classes in [(70, 3), (5, 12), (2, 130), (0, 3), (3, 1)]:
        below = torch.tril(uniform(random, 0.01, 0.99, rows, classes, classes), -1)
        above = torch.triu(1 - below.transpose(1, 2), 1)
        check("multiclass_probability", (below + above).to(dtype))
