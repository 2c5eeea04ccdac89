"""NonMaxSuppression, RoiAlign and MaxRoiPool, against the reference implementation and onnxruntime."""

import numpy as np
import pytest
import torch
from onnx import TensorProto
from onnx.helper import make_opsetid

from kernel_support import kernels, run_onnxruntime, run_reference
from pass_models import assert_close

OPSET_16 = [make_opsetid("", 16)]


def tensors(*arrays):
    return [torch.from_numpy(np.ascontiguousarray(a)) for a in arrays]


# ---- NonMaxSuppression


def random_boxes(random, batches, classes, boxes, levels=20):
    """Draws boxes with coarse scores, so that many are equal."""
    corners = random.uniform(0, 1, (batches, boxes, 4)).astype(np.float32)
    scores = (random.integers(0, levels, (batches, classes, boxes)) / levels).astype(np.float32)
    return corners, scores


@pytest.mark.parametrize("center_point_box", [False, True])
@pytest.mark.parametrize("thresholds", [(0.5, 0.3), (0.0, 0.0), (0.9, 0.5), (1.0, 0.99)], ids=str)
@pytest.mark.parametrize("max_boxes", [0, 3, 1000])
@pytest.mark.parametrize("run", [run_reference, run_onnxruntime])
def test_non_max_suppression(run, max_boxes, thresholds, center_point_box):
    boxes, scores = random_boxes(np.random.default_rng(0), 2, 3, 40)
    inputs = [boxes, scores, np.array([max_boxes]), *(np.array([t], np.float32) for t in thresholds)]
    [expected] = run(
        "NonMaxSuppression", inputs, [TensorProto.INT64], opsets=OPSET_16, center_point_box=int(center_point_box)
    )
    got = kernels.non_max_suppression(*tensors(*inputs), center_point_box)
    np.testing.assert_array_equal(got, expected)


def test_non_max_suppression_of_many_boxes():
    boxes, scores = random_boxes(np.random.default_rng(0), 1, 8, 500, levels=10000)
    inputs = [boxes, scores, np.array([50]), np.array([0.2], np.float32), np.array([0.1], np.float32)]
    [expected] = run_onnxruntime("NonMaxSuppression", inputs, [TensorProto.INT64], opsets=OPSET_16)
    np.testing.assert_array_equal(kernels.non_max_suppression(*tensors(*inputs), False), expected)


def test_non_max_suppression_defaults():
    boxes, scores = tensors(*random_boxes(np.random.default_rng(0), 1, 1, 10))
    assert kernels.non_max_suppression(boxes, scores, None, None, None, False).shape == (0, 3)
    best = kernels.non_max_suppression(boxes, scores - 2, torch.tensor(1), None, None, False)
    assert best.tolist() == [[0, 0, scores.argmax().item()]]
    scores[..., 4] = torch.nan
    assert 4 not in kernels.non_max_suppression(boxes, scores, torch.tensor(10), torch.tensor(1.0), None, False)[:, 2]


@pytest.mark.parametrize("batches, classes, boxes", [(0, 2, 3), (2, 0, 3), (2, 2, 0)])
def test_non_max_suppression_of_nothing(batches, classes, boxes):
    inputs = torch.zeros(batches, boxes, 4), torch.zeros(batches, classes, boxes), torch.tensor([5])
    assert kernels.non_max_suppression(*inputs, None, None, False).shape == (0, 3)


def test_non_max_suppression_errors():
    with pytest.raises(RuntimeError, match="boxes must be"):
        kernels.non_max_suppression(torch.zeros(2, 3), torch.zeros(1, 1, 2), None, None, None, False)
    with pytest.raises(RuntimeError, match="do not fit"):
        kernels.non_max_suppression(torch.zeros(1, 3, 4), torch.zeros(1, 1, 2), None, None, None, False)


# ---- RoiAlign


def regions(random, count, limit, corners=2.0):
    """Draws regions: some reach beyond the image, some are empty or turned inside out."""
    rois = random.uniform(-3, limit + 3, (count, 4)).astype(np.float32)
    rois[: count // 2, 2:] = rois[: count // 2, :2] + random.uniform(0, corners, (count // 2, 2))
    return rois


@pytest.mark.parametrize("coordinates", ["half_pixel", "output_half_pixel"])
@pytest.mark.parametrize("mode", ["avg", "max"])
@pytest.mark.parametrize("sampling_ratio", [0, 1, 3])
def test_roi_align(coordinates, mode, sampling_ratio):
    random = np.random.default_rng(0)
    x = random.normal(size=(2, 3, 9, 7)).astype(np.float32)
    rois = regions(random, 20, 16)
    batch_indices = random.integers(0, 2, 20)
    options = dict(output_height=3, output_width=2, sampling_ratio=sampling_ratio, spatial_scale=0.5)
    [expected] = run_reference(
        "RoiAlign",
        [x.astype(np.float64), rois.astype(np.float64), batch_indices],
        [TensorProto.DOUBLE],
        coordinate_transformation_mode=coordinates,
        mode=mode,
        **options,
    )
    got = kernels.roi_align(*tensors(x, rois, batch_indices), coordinates, mode, **options)
    assert_close(got.numpy(), expected)


@pytest.mark.parametrize("coordinates", ["half_pixel", "output_half_pixel"])
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_roi_align_as_onnxruntime(coordinates, dtype):
    random = np.random.default_rng(0)
    x = random.normal(size=(2, 4, 30, 40)).astype(dtype)
    rois = np.sort(random.uniform(0, 160, (50, 2, 2)), axis=1).reshape(50, 4).astype(dtype)
    batch_indices = random.integers(0, 2, 50)
    options = dict(output_height=7, output_width=5, sampling_ratio=0, spatial_scale=0.25)
    [expected] = run_onnxruntime(
        "RoiAlign",
        [x, rois, batch_indices],
        [TensorProto.FLOAT if dtype is np.float32 else TensorProto.DOUBLE],
        opsets=OPSET_16,
        coordinate_transformation_mode=coordinates,
        **options,
    )
    got = kernels.roi_align(*tensors(x, rois, batch_indices), coordinates, "avg", **options)
    assert_close(got.numpy(), expected)


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
def test_roi_align_computes_half_precision_in_float(dtype):
    x = torch.randn(2, 3, 8, 8).to(dtype)
    rois = (torch.rand(5, 4) * 8).to(dtype)
    batch_indices = torch.tensor([0, 1, 1, 0, 1])
    got = kernels.roi_align(x, rois, batch_indices, "half_pixel", "avg", 2, 2, 2, 1.0)
    expected = kernels.roi_align(x.float(), rois.float(), batch_indices, "half_pixel", "avg", 2, 2, 2, 1.0)
    assert torch.equal(got, expected.to(dtype))


def test_roi_align_strides_and_empty_tensors():
    x = torch.randn(2, 8, 9, 3).permute(0, 3, 1, 2)
    rois = torch.tensor([[0.0, 0, 4, 4], [1, 2, 3, 4]]).T.contiguous().T
    args = torch.tensor([0, 1]), "half_pixel", "avg", 2, 2, 0, 1.0
    torch.testing.assert_close(
        kernels.roi_align(x, rois, *args), kernels.roi_align(x.contiguous(), rois.contiguous(), *args)
    )
    none = kernels.roi_align(x, rois[:0], torch.zeros(0, dtype=torch.int64), "half_pixel", "avg", 2, 2, 0, 1.0)
    assert none.shape == (0, 3, 2, 2)
    meta = kernels.roi_align(x.to("meta"), rois.to("meta"), args[0].to("meta"), *args[1:])
    assert meta.shape == (2, 3, 2, 2)


@pytest.mark.parametrize(
    "x, rois, batch_indices, mode, message",
    [
        (torch.zeros(1, 1, 4), torch.zeros(1, 4), [0], "avg", "X must be"),
        (torch.zeros(1, 1, 4, 4), torch.zeros(1, 5), [0], "avg", "rois must be"),
        (torch.zeros(1, 1, 4, 4), torch.zeros(2, 4), [0], "avg", "do not fit"),
        (torch.zeros(1, 1, 4, 4), torch.zeros(1, 4), [1], "avg", "batch index 1 is out of range"),
        (torch.zeros(1, 1, 4, 4), torch.zeros(1, 4), [0], "min", "no mode is called"),
        (torch.zeros(1, 1, 0, 4), torch.zeros(1, 4), [0], "avg", "no pixels"),
        (torch.zeros(1, 1, 4, 4), torch.tensor([[0, 0, 1e30, 1]]), [0], "avg", "too large"),
        (torch.zeros(1, 1, 4, 4), torch.tensor([[0, 0, torch.nan, 1]]), [0], "avg", "too large"),
    ],
)
def test_roi_align_errors(x, rois, batch_indices, mode, message):
    with pytest.raises(RuntimeError, match=message):
        kernels.roi_align(x, rois, torch.tensor(batch_indices), "half_pixel", mode, 2, 2, 0, 1.0)


# ---- MaxRoiPool


@pytest.mark.parametrize("pooled_shape", [[1, 1], [2, 3], [7, 7]], ids=str)
@pytest.mark.parametrize("spatial_scale", [1.0, 0.5])
def test_max_roi_pool(pooled_shape, spatial_scale):
    random = np.random.default_rng(0)
    x = random.normal(size=(2, 3, 11, 8)).astype(np.float32)
    rois = np.concatenate([random.integers(0, 2, (30, 1)), regions(random, 30, 12, corners=8)], axis=1)
    rois = rois.astype(np.float32)
    [expected] = run_onnxruntime(
        "MaxRoiPool",
        [x, rois],
        [TensorProto.FLOAT],
        opsets=OPSET_16,
        pooled_shape=pooled_shape,
        spatial_scale=spatial_scale,
    )
    got = kernels.max_roi_pool(*tensors(x, rois), pooled_shape, spatial_scale)
    np.testing.assert_array_equal(got, expected)


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float64])
def test_max_roi_pool_dtypes_and_strides(dtype):
    x = torch.randn(1, 8, 9, 2).permute(0, 3, 1, 2).to(dtype)
    rois = torch.tensor([[0, 1, 2, 5, 6]], dtype=dtype)
    got = kernels.max_roi_pool(x, rois, [1, 1], 1.0)
    assert got.dtype == dtype
    assert torch.equal(got, x[:, :, 2:7, 1:6].amax((2, 3), keepdim=True))
    assert kernels.max_roi_pool(x.to("meta"), rois.to("meta"), [3, 2], 1.0).shape == (1, 2, 3, 2)
    assert kernels.max_roi_pool(x, rois[:0], [3, 2], 1.0).shape == (0, 2, 3, 2)


@pytest.mark.parametrize(
    "rois, message",
    [
        ([[1.0, 0, 0, 1, 1]], "batch index 1 is out of range"),
        ([[-1.0, 0, 0, 1, 1]], "batch index -1 is out of range"),
        ([[0.0, 0, 0, 1e20, 1]], "reaches to pixel"),
        ([[0.0, 0, 0, 1]], "rois must be"),
    ],
)
def test_max_roi_pool_errors(rois, message):
    with pytest.raises(RuntimeError, match=message):
        kernels.max_roi_pool(torch.zeros(1, 1, 4, 4), torch.tensor(rois), [1, 1], 1.0)


def test_roi_align_is_the_same_on_any_number_of_threads():
    threads = torch.get_num_threads()
    x, rois = torch.randn(1, 4, 32, 32), torch.rand(64, 4) * 32
    results = []
    for count in (1, 2):
        torch.set_num_threads(count)
        results.append(kernels.roi_align(x, rois, torch.zeros(64).long(), "half_pixel", "avg", 7, 7, 0, 1.0))
    torch.set_num_threads(threads)
    assert torch.equal(*results)
