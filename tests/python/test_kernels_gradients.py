"""Gradients of the kernels: against differences of their own outputs, and against torchvision where it is installed."""

from functools import partial

import numpy as np
import pytest
import torch
from onnx import TensorProto as T

from kernel_support import kernels
from test_kernels_deform_conv import CASES, deform_conv, random_case


def leaves(arrays):
    return [torch.from_numpy(array).requires_grad_() for array in arrays]


# These check along random directions, as the whole matrix of differences would take minutes.
gradcheck = partial(torch.autograd.gradcheck, fast_mode=True)
gradgradcheck = partial(torch.autograd.gradgradcheck, fast_mode=True)


def gradients(y, *xs):
    weight = torch.linspace(-1, 1, y.numel(), dtype=y.dtype).view(y.shape)
    return torch.autograd.grad((y * weight).sum(), xs)


# ---- DeformConv


@pytest.mark.parametrize("spatial, kernel, options", CASES, ids=str)
def test_deform_conv(spatial, kernel, options):
    inputs = leaves(random_case(spatial, kernel, batch=1, **options))
    assert gradcheck(lambda *inputs: deform_conv(*inputs, **options), inputs)
    assert gradcheck(lambda x, w, offset: deform_conv(x, w, offset, **options), inputs[:3])


def test_gradient_of_a_gradient():
    spatial, kernel, options = CASES[0]
    inputs = leaves(random_case(spatial, kernel, batch=1, **options))
    assert gradgradcheck(lambda *inputs: deform_conv(*inputs, **options), inputs)


def test_deform_conv_like_torchvision():
    ops = pytest.importorskip("torchvision.ops")
    options = dict(group=2, offset_group=2, pads=[1, 2, 1, 2], strides=[2, 1], dilations=[1, 2])
    x, w, offset, b, mask = leaves(random_case((9, 8), (2, 3), **options))
    expected = ops.deform_conv2d(x, offset, w, b, stride=(2, 1), padding=(1, 2), dilation=(1, 2), mask=mask)
    actual = deform_conv(x, w, offset, b, mask, **options)
    inputs = x, w, offset, b, mask
    torch.testing.assert_close(actual, expected)
    torch.testing.assert_close(gradients(actual, *inputs), gradients(expected, *inputs))


# ---- RoiAlign


ROIS = np.array([[0.3, 0.2, 5.1, 6.3], [-1.2, 2.1, 4.4, 9.7], [1.1, 1.3, 2.2, 2.4], [3.3, 3.2, 3.3, 3.2]])
IMAGES = np.random.default_rng(0).normal(size=(2, 3, 8, 9))
INDICES = torch.tensor([0, 1, 1, 0])


@pytest.mark.parametrize("sampling_ratio", [0, 1, 2])
@pytest.mark.parametrize("transformation", ["half_pixel", "output_half_pixel"])
@pytest.mark.parametrize("mode", ["avg", "max"])
def test_roi_align(mode, transformation, sampling_ratio):
    x, rois = leaves([IMAGES, ROIS[:3]])
    run = lambda x, rois: kernels.roi_align(x, rois, INDICES[:3], transformation, mode, 3, 2, sampling_ratio, 0.9)
    assert gradcheck(run, (x, rois))


@pytest.mark.parametrize("sampling_ratio", [0, 2])
@pytest.mark.parametrize("aligned", [False, True])
def test_roi_align_like_torchvision(aligned, sampling_ratio):
    ops = pytest.importorskip("torchvision.ops")
    (x,) = leaves([IMAGES])
    rois = torch.from_numpy(ROIS)
    boxes = torch.cat([INDICES.unsqueeze(1).double(), rois], 1)
    expected = ops.roi_align(x, boxes, (3, 2), 0.9, sampling_ratio, aligned)
    transformation = "half_pixel" if aligned else "output_half_pixel"
    actual = kernels.roi_align(x, rois, INDICES, transformation, "avg", 3, 2, sampling_ratio, 0.9)
    torch.testing.assert_close(actual, expected)
    torch.testing.assert_close(gradients(actual, x), gradients(expected, x))


# ---- MaxRoiPool


# Regions, some of which reach out of the image, lie outside, or are one pixel large.
REGIONS = np.array(
    [[0, 1, 1, 5, 6], [1, -3, 2, 4, 12], [1, 20, 20, 22, 22], [0, 2.5, 3.5, 2.5, 3.5], [1, -9, -9, -4, 3]]
)


@pytest.mark.parametrize("spatial_scale", [1.0, 0.6])
def test_max_roi_pool(spatial_scale):
    x, rois = leaves([IMAGES, REGIONS])
    assert gradcheck(lambda x: kernels.max_roi_pool(x, rois, [3, 2], spatial_scale), x)
    assert gradients(kernels.max_roi_pool(x, rois, [3, 2], spatial_scale), rois)[0].count_nonzero() == 0


def test_max_roi_pool_like_torchvision():
    ops = pytest.importorskip("torchvision.ops")
    (x,) = leaves([IMAGES])
    rois = torch.from_numpy(REGIONS[:2])
    expected = ops.roi_pool(x, rois, (3, 2), 0.6)
    actual = kernels.max_roi_pool(x, rois, [3, 2], 0.6)
    torch.testing.assert_close(actual, expected)
    torch.testing.assert_close(gradients(actual, x), gradients(expected, x))


# ---- All of them


POOLS = {
    "roi_align": lambda x, count: kernels.roi_align(
        x, torch.from_numpy(ROIS[:count]).to(x), INDICES[:count], "half_pixel", "avg", 3, 2, 0, 1.0
    ),
    "max_roi_pool": lambda x, count: kernels.max_roi_pool(x, torch.from_numpy(REGIONS[:count]).to(x), [3, 2], 1.0),
}


@pytest.mark.parametrize("pool", POOLS.values(), ids=POOLS)
def test_no_region_has_the_gradient_zero(pool):
    (x,) = leaves([IMAGES])
    assert torch.equal(*gradients(pool(x, 0), x), torch.zeros_like(x))


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float32], ids=str)
@pytest.mark.parametrize("pool", POOLS.values(), ids=POOLS)
def test_gradients_have_the_dtype_of_what_they_are_of(pool, dtype):
    x = torch.from_numpy(IMAGES).to(dtype).requires_grad_()
    exact = x.detach().double().requires_grad_()
    (actual,), (expected,) = gradients(pool(x, 3), x), gradients(pool(exact, 3), exact)
    assert actual.dtype == dtype
    few = 4 * torch.finfo(dtype).eps * float(expected.abs().max())
    torch.testing.assert_close(actual.double(), expected, rtol=0, atol=few)


def test_changed_inputs_are_an_error():
    (x,) = leaves([IMAGES])
    copy = x.clone()
    y = POOLS["max_roi_pool"](copy, 3)
    copy.add_(1)
    with pytest.raises(RuntimeError, match="modified by an inplace operation"):
        y.sum().backward()


# ---- Casts to small floats


TORCH_OWN = {
    T.FLOAT8E4M3FN: torch.float8_e4m3fn,
    T.FLOAT8E4M3FNUZ: torch.float8_e4m3fnuz,
    T.FLOAT8E5M2: torch.float8_e5m2,
    T.FLOAT8E5M2FNUZ: torch.float8_e5m2fnuz,
    T.FLOAT8E8M0: torch.float8_e8m0fnu,
    T.FLOAT6E2M3: torch.float16,
    T.FLOAT6E3M2: torch.float16,
    T.FLOAT4E2M1: torch.float16,
}


@pytest.mark.parametrize("to", TORCH_OWN, ids=T.DataType.Name)
def test_casts_to_small_floats_are_straight_through(to):
    """The gradient is that of torch's own cast to the dtype that stores the elements: it comes in that dtype."""
    found = []
    for cast in (lambda x: kernels.cast_small_float(x, to, True, "up"), lambda x: x.to(TORCH_OWN[to])):
        x = torch.tensor([0.1, 1.7, 300.0, 1e6, 3.0], requires_grad=True)
        y = cast(x)
        weight = torch.tensor([1.0, 2.0, 0.5, 8.0, 4.0])
        (gradient,) = torch.autograd.grad((y.float() * weight).sum(), x)
        assert gradient.dtype == torch.float32
        found.append(gradient)
    assert torch.equal(*found) and found[0].tolist() == [1, 2, 0.5, 8, 4]
