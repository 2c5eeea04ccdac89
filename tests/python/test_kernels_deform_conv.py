"""DeformConv, against the reference implementation, torch's convolutions and a direct sum in any dimension."""

import itertools

import numpy as np
import pytest
import torch
from onnx import TensorProto

from kernel_support import kernels, run_reference
from pass_models import assert_close


def deform_conv(x, w, offset, b=None, mask=None, *, group=1, offset_group=1, pads=None, strides=None, dilations=None):
    rank = x.dim() - 2
    return kernels.deform_conv(
        x,
        w,
        offset,
        b,
        mask,
        dilations or [1] * rank,
        group,
        list(w.shape[2:]),
        offset_group,
        pads or [0] * 2 * rank,
        strides or [1] * rank,
    )


def interpolate(image, point):
    """Interpolates linearly in `image`, with zeros around it."""
    low = np.floor(point).astype(int)
    value = 0.0
    for corner in itertools.product((0, 1), repeat=image.ndim):
        pixel = low + corner
        if np.all((pixel >= 0) & (pixel < image.shape)):
            value += image[tuple(pixel)] * np.prod(1 - np.abs(point - pixel))
    return value


def direct_sum(x, w, offset, b, mask, *, group, offset_group, pads, strides, dilations):
    batch, channels, *_ = x.shape
    out_channels, channels_per_group, *kernel = w.shape
    rank, output = len(kernel), offset.shape[2:]
    offset = offset.reshape(batch, offset_group, *kernel, rank, *output)
    mask = mask.reshape(batch, offset_group, *kernel, *output)
    y = np.zeros((batch, out_channels, *output))
    for n, o, c in itertools.product(range(batch), range(out_channels), range(channels_per_group)):
        channel = o // (out_channels // group) * channels_per_group + c
        g = channel // (channels // offset_group)
        for tap, position in itertools.product(np.ndindex(*kernel), np.ndindex(*output)):
            point = np.multiply(position, strides) - pads[:rank] + np.multiply(tap, dilations)
            point = point + offset[(n, g, *tap, slice(None), *position)]
            value = interpolate(x[n, channel], point) * mask[(n, g, *tap, *position)]
            y[(n, o, *position)] += w[(o, c, *tap)] * value
    return y + b.reshape(-1, *[1] * rank)


def random_case(spatial, kernel, *, batch=2, channels=4, out_channels=4, group, offset_group, pads, strides, dilations):
    random = np.random.default_rng(0)
    rank, taps = len(kernel), int(np.prod(kernel))
    padded = np.add(spatial, np.add(pads[:rank], pads[rank:]))
    output = (padded - np.multiply(dilations, np.subtract(kernel, 1)) - 1) // strides + 1
    return [
        random.normal(size=(batch, channels, *spatial)),
        random.normal(size=(out_channels, channels // group, *kernel)),
        random.normal(scale=1.5, size=(batch, offset_group * taps * rank, *output)),
        random.normal(size=out_channels),
        random.uniform(0, 1, (batch, offset_group * taps, *output)),
    ]


CASES = [
    ((9,), (3,), dict(group=1, offset_group=1, pads=[1, 0], strides=[2], dilations=[1])),
    ((6, 5), (2, 3), dict(group=1, offset_group=1, pads=[0] * 4, strides=[1, 1], dilations=[1, 1])),
    ((6, 5), (2, 3), dict(group=2, offset_group=4, pads=[1, 2, 0, 1], strides=[2, 1], dilations=[1, 2])),
    ((4, 3, 4), (2, 1, 2), dict(group=2, offset_group=2, pads=[0, 1] * 3, strides=[1, 2, 1], dilations=[1] * 3)),
    ((3, 3, 2, 3), (2, 1, 2, 2), dict(group=1, offset_group=1, pads=[0] * 8, strides=[1] * 4, dilations=[1] * 4)),
]


@pytest.mark.parametrize("spatial, kernel, options", CASES, ids=lambda v: str(v) if isinstance(v, tuple) else "")
def test_matches_the_direct_sum(spatial, kernel, options):
    arrays = random_case(spatial, kernel, **options)
    got = deform_conv(*map(torch.from_numpy, arrays), **options)
    np.testing.assert_allclose(got, direct_sum(*arrays, **options), rtol=1e-10, atol=1e-10)


def test_matches_the_reference():
    options = dict(group=2, offset_group=2, pads=[1, 0, 1, 2], strides=[2, 1], dilations=[1, 2])
    arrays = [a.astype(np.float32) for a in random_case((7, 8), (3, 3), **options)]
    [expected] = run_reference("DeformConv", arrays, [TensorProto.FLOAT], **options)
    assert_close(deform_conv(*map(torch.from_numpy, arrays), **options).numpy(), expected)


@pytest.mark.parametrize("rank, conv", [(1, torch.conv1d), (2, torch.conv2d), (3, torch.conv3d)])
def test_without_offset_it_is_a_convolution(rank, conv):
    x, w, b = torch.randn(2, 6, *[40, 33, 5][:rank]), torch.randn(4, 3, *[3] * rank), torch.randn(4)
    expected = conv(x.double(), w.double(), b.double(), padding=1, groups=2)
    offset = torch.zeros(2, rank * 3**rank, *expected.shape[2:])
    got = deform_conv(x, w, offset, b, group=2, pads=[1] * 2 * rank)
    assert_close(got.numpy(), expected.numpy())


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
def test_half_precision_is_computed_in_float(dtype):
    x, w, offset = torch.randn(1, 2, 6, 6), torch.randn(2, 2, 3, 3), torch.randn(1, 18, 4, 4)
    x, w, offset = x.to(dtype), w.to(dtype), offset.to(dtype)
    got = deform_conv(x, w, offset)
    assert got.dtype == dtype
    torch.testing.assert_close(got, deform_conv(x.float(), w.float(), offset.float()).to(dtype), rtol=0, atol=0)


def test_offsets_out_of_any_range():
    x, w = torch.ones(1, 1, 4, 4), torch.ones(1, 1, 1, 1)
    for value in (torch.inf, -torch.inf, torch.nan, 1e30, -1e30):
        assert torch.equal(deform_conv(x, w, torch.full((1, 2, 4, 4), value)), torch.zeros(1, 1, 4, 4))


def test_strides_and_empty_tensors():
    x = torch.randn(2, 6, 5, 3).permute(0, 3, 1, 2)
    w, offset = torch.randn(2, 3, 3, 3), torch.randn(2, 18, 3, 4).transpose(2, 3)
    torch.testing.assert_close(deform_conv(x, w, offset), deform_conv(x.contiguous(), w, offset.contiguous()))
    assert deform_conv(x[:0], w, offset[:0]).shape == (0, 2, 4, 3)
    no_channels = deform_conv(x[:, :0], w[:, :0], offset, torch.tensor([1.0, 2]))
    assert torch.equal(no_channels, torch.tensor([1.0, 2])[:, None, None].expand(2, 2, 4, 3))
    assert deform_conv(*(t.to("meta") for t in (x, w, offset))).shape == (2, 2, 4, 3)


@pytest.mark.parametrize(
    "shapes, options, message",
    [
        (((1, 1, 4, 4), (1, 1, 2, 2), (1, 8, 2, 3)), {}, r"offset must be \[1, 8, 3, 3\]"),
        (((1, 3, 4, 4), (1, 1, 2, 2), (1, 8, 3, 3)), {}, "do not fit 1 groups"),
        (((1, 1, 4, 4), (1, 1, 2, 2), (1, 8, 3, 3)), {"offset_group": 2}, "do not divide"),
        (((1, 1, 1, 4), (1, 1, 2, 2), (1, 8, 3, 3)), {}, "larger than the padded input"),
        (((1, 1, 4, 4), (1, 1, 2, 2), (1, 8, 3, 3)), {"strides": [1]}, "do not fit 2 spatial dimensions"),
        (((1, 1), (1, 1), (1, 8)), {}, "rank"),
    ],
)
def test_errors(shapes, options, message):
    with pytest.raises(RuntimeError, match=message):
        deform_conv(*map(torch.zeros, shapes), **options)
