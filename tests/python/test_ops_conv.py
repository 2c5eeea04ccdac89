"""Conv, ConvTranspose, CausalConvWithState and Col2Im beyond the official cases."""

import ml_dtypes
import numpy as np
import pytest
import torch
from onnx import helper, numpy_helper

import onnx_torch.backend
from models import model_of, op_model, reference_op, run_op, tensor_info
from pass_models import assert_close
from random_numbers import RNG


def normal(*shape, dtype=np.float32):
    return RNG.standard_normal(shape).astype(dtype)


def assert_as_reference(op_type, inputs, **options):
    wide = [x.astype(np.float64) if x.dtype == np.float32 else x for x in inputs]
    (found,), (exact,) = run_op(op_type, inputs, **options), reference_op(op_type, wide, **options)
    assert found.dtype == inputs[0].dtype
    assert_close(found, exact)


CONVS = [
    {},
    {"pads": [1, 0, 2, 1]},
    {"pads": [1, 1, 1, 1], "strides": [2, 1]},
    {"auto_pad": "SAME_UPPER", "strides": [2, 3]},
    {"auto_pad": "SAME_LOWER", "strides": [2, 1]},
    {"auto_pad": "VALID", "dilations": [2, 1]},
]


@pytest.mark.parametrize("given_kernel", [False, True])
@pytest.mark.parametrize("attributes", CONVS, ids=str)
def test_conv(attributes, given_kernel):
    kernel = {"kernel_shape": [3, 2]} if given_kernel else {}
    assert_as_reference("Conv", [normal(2, 4, 7, 8), normal(6, 2, 3, 2), normal(6)], group=2, **attributes, **kernel)


@pytest.mark.parametrize("rank", [1, 2, 3, 4])
def test_conv_over_any_number_of_dimensions(rank):
    x, w = normal(2, 4, *range(4, 4 + rank)), normal(4, 2, *[2] * rank)
    assert_as_reference("Conv", [x, w, normal(4)], group=2, pads=[1] * rank + [0] * rank, strides=[2] * rank)


def test_conv_of_unknown_rank_pads_to_the_same_size():
    assert run_op("Conv", [normal(1, 1, 5, 6), normal(1, 1, 3, 2)], auto_pad="SAME_UPPER")[0].shape == (1, 1, 5, 6)


@pytest.mark.parametrize("dtype", [np.float64, np.float16, ml_dtypes.bfloat16])
@pytest.mark.parametrize("op_type", ["Conv", "ConvTranspose"])
def test_element_types(op_type, dtype):
    inputs = [x.astype(dtype) for x in (normal(1, 2, 5, 5), normal(2, 2, 3, 3), normal(2))]
    [expected] = reference_op(op_type, [x.astype(np.float64) for x in inputs])
    [actual] = run_op(op_type, inputs)
    assert actual.dtype == dtype
    few = 4 * float(ml_dtypes.finfo(dtype).eps) * np.abs(expected).max()
    np.testing.assert_allclose(actual.astype(np.float64), expected, rtol=0, atol=few)


def static_conv(x_shape, w_shape, **attributes):
    nodes = [helper.make_node("Conv", ["x", "w", "b"], ["y"], **attributes)]
    infos = [tensor_info(n, element=1, shape=s) for n, s in zip("xwb", [x_shape, w_shape, w_shape[:1]], strict=True)]
    return onnx_torch.backend.prepare(model_of(nodes, infos, ["y"]))


@pytest.mark.parametrize(
    ("x_shape", "w_shape", "y_shape"),
    [
        ([0, 3, 5, 5], [2, 3, 3, 3], (0, 2, 3, 3)),
        ([1, 0, 5, 5], [2, 0, 3, 3], (1, 2, 3, 3)),
        ([1, 3, 0, 5], [2, 3, 1, 1], (1, 2, 0, 5)),
    ],
)
def test_conv_of_nothing(x_shape, w_shape, y_shape):
    rep = static_conv(x_shape, w_shape)
    bias = normal(2)
    (y,) = rep.run([normal(*x_shape), normal(*w_shape), bias])
    np.testing.assert_array_equal(y, np.broadcast_to(bias[:, None, None], y_shape))


@pytest.mark.parametrize("attributes", [{}, {"pads": [1, 1, 1, 1]}, {"auto_pad": "SAME_UPPER", "strides": [1, 1]}])
def test_plain_conv_is_one_operator(attributes):
    graph = str(static_conv([1, 3, 8, 8], [4, 3, 3, 3], **attributes).graph())
    assert graph.count("aten::") == 1, graph


TRANSPOSED = [
    {},
    {"pads": [1, 0, 2, 1], "strides": [2, 2]},
    {"pads": [1, 1, 0, 0], "strides": [2, 2]},
    {"strides": [3, 2], "output_padding": [1, 0]},
    {"strides": [3, 2], "dilations": [2, 1], "output_padding": [1, 1], "pads": [1, 1, 1, 1]},
    {"strides": [3, 2], "output_shape": [10, 8]},
    {"strides": [3, 2], "output_shape": [9, 7], "output_padding": [1, 1]},
]


@pytest.mark.parametrize("attributes", TRANSPOSED, ids=str)
def test_conv_transpose(attributes):
    x, w, b = normal(2, 2, 3, 3), normal(2, 3, 3, 3), normal(3)
    if "output_shape" not in attributes:
        assert_as_reference("ConvTranspose", [x, w, b], **attributes)
        return
    full = run_op("ConvTranspose", [x, w, b], strides=attributes["strides"])[0]
    (y,) = run_op("ConvTranspose", [x, w, b], **attributes)
    assert y.shape[2:] == tuple(attributes["output_shape"])
    # The start stays or is cut; where the end is longer there is only the bias.
    extra = [attributes.get("output_padding", [0, 0])[i] + full.shape[2 + i] - y.shape[2 + i] for i in range(2)]
    starts = [total - total // 2 for total in extra]
    ends = [min(starts[i] + y.shape[2 + i], full.shape[2 + i]) for i in range(2)]
    inside = full[:, :, starts[0] : ends[0], starts[1] : ends[1]]
    assert_close(y[:, :, : inside.shape[2], : inside.shape[3]], inside)
    np.testing.assert_array_equal(
        y[:, :, inside.shape[2] :], np.broadcast_to(b[:, None, None], y[:, :, inside.shape[2] :].shape)
    )


@pytest.mark.parametrize("auto_pad", ["SAME_UPPER", "SAME_LOWER"])
def test_conv_transpose_to_a_multiple_of_the_size(auto_pad):
    x, w = normal(1, 2, 3, 4), normal(2, 3, 3, 3)
    assert_as_reference("ConvTranspose", [x, w], auto_pad=auto_pad, strides=[2, 2])


@pytest.mark.parametrize("rank", [1, 2, 3])
def test_col2im(rank):
    x = normal(2, 2 * 2**rank, 4**rank)
    shape, block = np.array([8] * rank), np.array([2] * rank)
    options = {"strides": [2] * rank, "dilations": [2] * rank, "pads": [0] * rank + [1] * rank, "opset": 18}
    assert_as_reference("Col2Im", [x, shape, block], **options)


def test_col2im_adds_up_integers():
    assert_as_reference(
        "Col2Im", [np.arange(36, dtype=np.int32).reshape(1, 4, 9), np.array([4, 4]), np.array([2, 2])], opset=18
    )


def test_causal_conv_goes_on_where_it_stopped():
    x, w, b = normal(2, 3, 9), normal(3, 1, 4), normal(3)
    whole, state = run_op("CausalConvWithState", [x, w, b], outputs=2, activation="silu")
    first, kept = run_op("CausalConvWithState", [x[:, :, :2], w, b], outputs=2, activation="silu")
    second, last = run_op("CausalConvWithState", [x[:, :, 2:], w, b, kept], outputs=2, activation="silu")
    np.testing.assert_allclose(np.concatenate([first, second], 2), whole, rtol=1e-5, atol=1e-6)
    np.testing.assert_array_equal(last, state)


def test_unknown_auto_pad():
    with pytest.raises(onnx_torch.Error, match="SAME"):
        onnx_torch.backend.prepare(op_model("Conv", [normal(1, 1, 3, 3), normal(1, 1, 3, 3)], auto_pad="SAME"))


@pytest.mark.parametrize("op_type", ["Conv", "ConvTranspose"])
@pytest.mark.parametrize("name", ["strides", "dilations"])
def test_huge_steps_are_refused_and_spoil_nothing(op_type, name):
    """An offset that oneDNN's generator of code cannot write would be the last thing that the thread asks of it."""
    inputs = [np.ones((1, 16, 6, 5), np.float32), np.ones((16, 16, 3, 3), np.float32)]
    with pytest.raises(onnx_torch.UnsupportedError, match=f"{op_type}.*with {name} of more than 32768"):
        run_op(op_type, inputs, **{name: [1, 2**31 - 1]})
    channels = 16 + len(op_type) + len(name)  # no kernel is there for them yet
    [y] = run_op("Conv", [np.ones((1, channels, 6, 5), np.float32), np.ones((16, channels, 3, 3), np.float32)])
    np.testing.assert_array_equal(y, np.full((1, 16, 4, 3), channels * 9, np.float32))
    torch.nn.functional.conv2d(torch.ones(1, channels, 7, 7), torch.ones(8, channels, 3, 3))


@pytest.mark.parametrize("op_type", ["Conv", "ConvTranspose"])
@pytest.mark.parametrize("name", ["strides", "dilations"])
def test_long_steps_over_very_many_channels_are_refused(op_type, name):
    """A step over all channels is more than a convolution whose channels are innermost can have for an offset."""
    x, w = np.ones((1, 8193, 1, 1), np.float32), np.ones((8193, 1, 1, 1), np.float32)

    def model(**attributes):
        node = helper.make_node(op_type, ["x", "w"], ["y"], group=8193, **attributes)
        return model_of([node], [tensor_info("x", x)], ["y"], initializer=[numpy_helper.from_array(w, "w")])

    with pytest.raises(onnx_torch.UnsupportedError, match=f"{op_type}.*with so long {name} over so many channels"):
        onnx_torch.prepare(model(**{name: [1, 32768]}))
    [y] = onnx_torch.backend.prepare(model()).run([x])
    np.testing.assert_array_equal(y, x)


@pytest.mark.parametrize("dtype", [np.float32, ml_dtypes.bfloat16, np.float64])
@pytest.mark.parametrize("layout", ["all channels", "each channel", "transposed"])
def test_the_longest_steps_over_many_channels_spoil_nothing(layout, dtype):
    """Where channels are innermost, an offset is a multiple of steps times channels times bytes."""
    step, channels = 32768, 512
    x = np.ones((1, channels, 1, 1), dtype)
    groups, filters = (channels, channels) if layout == "each channel" else (1, 4)
    taps = np.array([1, 2], dtype)
    if layout == "transposed":
        w = np.broadcast_to(taps / dtype(channels), (channels, filters, 1, 2))
        [y] = run_op("ConvTranspose", [x, w], strides=[1, step], dilations=[1, step])
        expected = np.zeros((1, filters, 1, step + 1), dtype)
        expected[..., 0], expected[..., -1] = taps
    else:
        w = np.broadcast_to(taps * dtype(groups) / dtype(channels), (filters, channels // groups, 1, 2))
        attributes = {"strides": [1, step], "dilations": [1, step], "pads": [0, step, 0, step], "group": groups}
        [y] = run_op("Conv", [x, w], **attributes)
        expected = np.broadcast_to(taps[::-1], (1, filters, 1, 2))
    np.testing.assert_array_equal(y, expected)
    fresh = 48 + 2 * len(layout) + len(np.dtype(dtype).name)  # no kernel is there for so many channels yet
    [y] = run_op("Conv", [np.ones((1, fresh, 6, 5), np.float32), np.ones((16, fresh, 3, 3), np.float32)])
    np.testing.assert_array_equal(y, np.full((1, 16, 4, 3), fresh * 9, np.float32))
