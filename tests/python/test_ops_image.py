"""Resize, Upsample, GridSample and AffineGrid beyond the official cases."""

import ml_dtypes
import numpy as np
import pytest
from onnx import helper, numpy_helper

import onnx_torch.backend
from models import assert_rounded, assert_same, model_of, reference_op, run_op, tensor_info
from pass_models import assert_close
from random_numbers import RNG

TRANSFORMATIONS = [
    "half_pixel",
    "half_pixel_symmetric",
    "pytorch_half_pixel",
    "align_corners",
    "asymmetric",
    "tf_crop_and_resize",
]


def normal(*shape, dtype=np.float32):
    return RNG.standard_normal(shape).astype(dtype)


def test_resize_11_has_the_half_pixel_of_tensorflow():
    """A position is x_original = (x_resized + 0.5) / scale: 0.75, 2.25 and 3.75 of four elements, half down."""
    x, sizes, none = np.arange(8, dtype=np.float32).reshape(2, 4), np.array([2, 3]), np.zeros(0, np.float32)
    options = {"coordinate_transformation_mode": "tf_half_pixel_for_nn", "mode": "nearest", "opset": 11}
    (y,) = run_op("Resize", [x, none, none, sizes], nearest_mode="floor", **options)
    np.testing.assert_array_equal(y, x[[0, 1]][:, [0, 2, 3]])


def assert_resizes(inputs, ulps=27, roundings=1.0, **attributes):
    """Checks that integers are as in the reference, and floats near to what it gives in float64."""
    options, x = {"opset": 19, **attributes}, inputs[0]
    [y] = run_op("Resize", inputs, **options)
    assert y.dtype == x.dtype
    if x.dtype.kind in "iu":
        assert_same([y], reference_op("Resize", inputs, **options))
    else:
        exact = reference_op("Resize", [x.astype(np.float64), *inputs[1:]], **options)[0]
        if x.dtype == np.float64 and attributes["mode"] == "cubic":  # ATen's is no nearer than float32 is
            np.testing.assert_allclose(y, exact, rtol=0, atol=ulps * np.finfo(np.float32).eps * np.abs(exact).max())
        else:
            assert_rounded(y, exact, ulps, roundings)


@pytest.mark.parametrize("transformation", TRANSFORMATIONS)
@pytest.mark.parametrize("mode", ["nearest", "linear", "cubic"])
@pytest.mark.parametrize("by", ["scales", "sizes"])
@pytest.mark.parametrize("shape", [(5,), (2, 3, 6), (2, 3, 4, 5), (1, 2, 3, 4, 5)])
def test_resize(shape, by, mode, transformation):
    rank = len(shape)
    kept = [1] * min(2, rank - 1)
    scales = np.array([*kept, *[2.3, 0.7, 3][: rank - len(kept)]], np.float32)
    sizes = np.array([*shape[: len(kept)], *[9, 3, 8][: rank - len(kept)]])
    roi = np.array(
        [0.0] * len(kept) + [0.13] * (rank - len(kept)) + [1.0] * len(kept) + [1.09] * (rank - len(kept)), np.float32
    )
    inputs = [normal(*shape), roi if transformation == "tf_crop_and_resize" else None]
    inputs += [scales] if by == "scales" else [None, sizes]
    assert_resizes(inputs, mode=mode, coordinate_transformation_mode=transformation, extrapolation_value=7.0)


@pytest.mark.parametrize("dtype", [np.float16, ml_dtypes.bfloat16, np.float32, np.float64])
@pytest.mark.parametrize("scale", [1, 2, 3, 2.5, 0.5])
@pytest.mark.parametrize("shape", [(2, 3, 6), (2, 3, 4, 6), (1, 2, 4, 2, 6), (1, 1, 1, 1)])
def test_asymmetric_linear_resize(shape, scale, dtype):
    scales = np.array([1, 1] + [scale] * (len(shape) - 2), np.float32)
    if min(np.floor(np.array(shape) * scales)) == 0:
        pytest.skip("nothing is left")
    options = {"mode": "linear", "coordinate_transformation_mode": "asymmetric"}
    x = (RNG.random(shape) * 100).astype(dtype)
    roundings = 3 if dtype == np.float16 else 2.5  # along each dimension
    assert_resizes([x, None, scales], ulps=8 if dtype == np.float64 else 5, roundings=roundings, **options)


@pytest.mark.parametrize("nearest_mode", ["round_prefer_floor", "round_prefer_ceil", "floor", "ceil"])
@pytest.mark.parametrize("transformation", ["half_pixel", "asymmetric", "align_corners"])
@pytest.mark.parametrize("scale", [0.5, 2, 3, 4])
def test_resize_to_the_nearest(scale, transformation, nearest_mode):
    inputs = [normal(1, 2, 4, 6), None, np.array([1, 1, scale, scale], np.float32)]
    assert_resizes(inputs, coordinate_transformation_mode=transformation, nearest_mode=nearest_mode)


@pytest.mark.parametrize(
    "attributes", [{"antialias": 1}, {"exclude_outside": 1}, {"antialias": 1, "exclude_outside": 1}], ids=str
)
@pytest.mark.parametrize("mode", ["linear", "cubic"])
def test_resize_filters(mode, attributes):
    inputs = [normal(1, 2, 9, 7), None, np.array([1, 1, 0.4, 1.7], np.float32)]
    assert_resizes(inputs, mode=mode, cubic_coeff_a=-0.5, **attributes)


@pytest.mark.parametrize("policy", ["not_larger", "not_smaller"])
@pytest.mark.parametrize("axes", [[2, 3], [3, 2], [-1, -2]])
def test_resize_keeps_the_aspect_ratio(axes, policy):
    x, sizes = normal(1, 2, 4, 6), np.array([9, 7])
    options = {"opset": 19, "mode": "linear", "axes": axes, "keep_aspect_ratio_policy": policy}
    (y,) = run_op("Resize", [x, None, None, sizes], **options)
    scales = [sizes[i] / x.shape[axes[i]] for i in range(2)]
    scale = min(scales) if policy == "not_larger" else max(scales)
    assert y.shape == (1, 2, int(4 * scale + 0.5), int(6 * scale + 0.5))


@pytest.mark.parametrize("dtype", [np.uint8, np.int8, np.int32, np.uint16, np.float16, ml_dtypes.bfloat16, np.float64])
@pytest.mark.parametrize("mode", ["nearest", "linear", "cubic"])
def test_resize_element_types(mode, dtype):
    x = (RNG.random((1, 1, 4, 4)) * 100).astype(dtype)
    roundings = 1.25  # more than along two dimensions, half a unit each
    assert_resizes([x, None, np.array([1, 1, 1.7, 2], np.float32)], ulps=16, roundings=roundings, mode=mode)


def test_resize_keeps_integers_within_their_range():
    x = np.array([[[[0, 255, 255, 0, 0, 255]]]], np.uint8)
    (y,) = run_op("Resize", [x, None, np.array([1, 1, 1, 4], np.float32)], opset=19, mode="cubic")
    assert y.min() == 0 and y.max() == 255


def test_resize_moves_strings_and_bools():
    x = np.array([["a", "b"], ["c", "d"]], dtype=object)
    (y,) = run_op("Resize", [x, None, np.array([1, 2], np.float32)], opset=19)
    np.testing.assert_array_equal(y, np.repeat(x, 2, axis=1))
    with pytest.raises(onnx_torch.Error, match="bool"):
        run_op("Resize", [x == "a", None, np.array([1, 2], np.float32)], opset=19, mode="linear")


@pytest.mark.parametrize("axis", [-3, 2])
def test_resize_along_an_axis_that_is_not_there(axis):
    with pytest.raises(onnx_torch.Error, match=f"Resize.*axis {axis} is out of range for 2 dimensions"):
        run_op("Resize", [np.ones((2, 3), np.float32), None, None, np.array([4])], opset=19, axes=[axis])


@pytest.mark.parametrize("mode", ["nearest", "linear", "cubic"])
def test_plain_resize_is_one_operator(mode):
    node = helper.make_node("Resize", ["x", "", "", "sizes"], ["y"], mode=mode)
    sizes = numpy_helper.from_array(np.array([1, 2, 8, 16]), "sizes")
    model = model_of([node], [tensor_info("x", element=1, shape=[1, 2, 4, 8])], ["y"], initializer=[sizes])
    graph = str(onnx_torch.backend.prepare(model, optimize=False).graph())
    assert graph.count("aten::") == 1 and "aten::upsample_" in graph, graph


def test_asymmetric_linear_resize_is_by_aten():
    node = helper.make_node("Resize", ["x", "", "s"], ["y"], mode="linear", coordinate_transformation_mode="asymmetric")
    scales = numpy_helper.from_array(np.array([1, 1, 2, 2], np.float32), "s")
    model = model_of([node], [tensor_info("x", element=1, shape=[1, 2, 4, 8])], ["y"], initializer=[scales])
    graph = str(onnx_torch.backend.prepare(model).graph())
    assert "aten::upsample_bilinear2d" in graph and "aten::index_select" not in graph


def test_resize_11_with_empty_scales():
    empty = np.array([], np.float32)
    (y,) = run_op("Resize", [normal(1, 1, 2, 2), empty, empty, np.array([1, 1, 3, 5])], opset=11, mode="linear")
    assert y.shape == (1, 1, 3, 5)


@pytest.mark.parametrize("mode", ["nearest", "linear"])
def test_versions_of_upsample(mode):
    x, scales = normal(1, 2, 3, 4), [1.0, 1.0, 2.0, 3.0]
    options = {"coordinate_transformation_mode": "asymmetric", "nearest_mode": "floor", "mode": mode, "opset": 19}
    expected = run_op("Resize", [x, None, np.array(scales, np.float32)], **options)
    named = "bilinear" if mode == "linear" else mode
    assert_same(run_op("Upsample", [x], opset=1, mode=named, height_scale=2.0, width_scale=3.0), expected)
    assert_same(run_op("Upsample", [x], opset=7, mode=mode, scales=scales), expected)
    assert_same(run_op("Upsample", [x, np.array(scales, np.float32)], opset=9, mode=mode), expected)
    assert_same(run_op("Resize", [x, np.array(scales, np.float32)], opset=10, mode=mode), expected)


def test_resize_10_takes_the_next_when_it_shrinks():
    x = np.arange(1, 9, dtype=np.float32).reshape(1, 1, 2, 4)
    np.testing.assert_array_equal(
        run_op("Resize", [x, np.array([1, 1, 0.6, 0.6], np.float32)], opset=10)[0], [[[[1, 3]]]]
    )


@pytest.mark.parametrize("align_corners", [0, 1])
@pytest.mark.parametrize("padding_mode", ["zeros", "border", "reflection"])
@pytest.mark.parametrize("mode", ["linear", "nearest", "cubic"])
@pytest.mark.parametrize("rank", [1, 2, 3, 4])
def test_grid_sample(rank, mode, padding_mode, align_corners):
    # The reference moves a point into the border before it takes a cubic's neighbours; PyTorch does not.
    reach = 0.5 if (mode, padding_mode) == ("cubic", "border") else 1.7
    x, grid = normal(2, 2, *range(4, 4 + rank)), RNG.uniform(-reach, reach, (2, *[2] * rank, rank)).astype(np.float32)
    options = {"opset": 20, "mode": mode, "padding_mode": padding_mode, "align_corners": align_corners}
    (exact,) = reference_op("GridSample", [x.astype(np.float64), grid.astype(np.float64)], **options)
    assert_close(run_op("GridSample", [x, grid], **options)[0], exact)


@pytest.mark.parametrize("mode", ["bilinear", "nearest", "bicubic"])
def test_grid_sample_16(mode):
    x, grid = normal(1, 1, 4, 5), RNG.uniform(-1, 1, (1, 3, 3, 2)).astype(np.float32)
    newer = {"bilinear": "linear", "bicubic": "cubic"}.get(mode, mode)
    assert_same(
        run_op("GridSample", [x, grid], opset=16, mode=mode), run_op("GridSample", [x, grid], opset=20, mode=newer)
    )


@pytest.mark.parametrize(("dtype", "grid_dtype"), [(np.float16, np.float32), (np.float32, np.float64)])
def test_grid_sample_element_types(dtype, grid_dtype):
    x = (normal(1, 1, 4, 5) * 100).astype(dtype)
    grid = RNG.uniform(-1, 1, (1, 3, 3, 2)).astype(grid_dtype)
    options = {"opset": 20, "mode": "linear"}
    [exact] = reference_op("GridSample", [x.astype(np.float64), grid.astype(np.float64)], **options)
    [y] = run_op("GridSample", [x, grid], **options)
    assert y.dtype == dtype
    assert_rounded(y, exact, ulps=8)


def test_grid_sample_casts_to_integers_at_the_end():
    x, grid = (normal(1, 1, 4, 5) * 100).astype(np.int32), RNG.uniform(-1, 1, (1, 3, 3, 2)).astype(np.float32)
    expected = run_op("GridSample", [x.astype(np.float64), grid], opset=20)[0].astype(np.int32)
    assert_same(run_op("GridSample", [x, grid], opset=20), [expected])


def test_grid_sample_moves_strings():
    x = np.array([[[["a", "b"], ["c", "d"]]]], dtype=object)
    grid = np.array([[[[-0.5, -0.5], [0.5, -0.5], [-0.5, 0.5], [9, 9]]]], np.float32)
    (y,) = run_op("GridSample", [x, grid], opset=20, mode="nearest")
    assert y.ravel().tolist() == ["a", "b", "c", ""]


@pytest.mark.parametrize("dtype", [np.float16, np.float32, np.float64])
@pytest.mark.parametrize("align_corners", [0, 1])
@pytest.mark.parametrize("size", [[2, 3, 4, 5], [2, 3, 3, 4, 5]])
def test_affine_grid(size, align_corners, dtype):
    rank = len(size) - 2
    theta = normal(2, rank, rank + 1, dtype=dtype)
    (y,) = run_op("AffineGrid", [theta, np.array(size)], opset=20, align_corners=align_corners)
    along = [np.linspace(-1, 1, n) if align_corners else (2 * np.arange(n) + 1) / n - 1 for n in size[2:]]
    points = np.stack([*np.meshgrid(*along, indexing="ij")[::-1], np.ones(size[2:])], -1)
    exact = np.einsum("...i,nji->n...j", points, theta.astype(np.float64))
    assert y.dtype == dtype
    assert_close(y, exact, ulps=1 if dtype == np.float16 else 4)
