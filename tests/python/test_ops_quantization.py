"""Quantization: granularities, element types, old versions, exact sums."""

import ml_dtypes
import numpy as np
import pytest
from onnx import TensorProto, helper

import onnx_torch
from models import assert_same, model_of, reference_op, run_op, tensor_info
from random_numbers import RNG

X = (np.random.default_rng(7).standard_normal((3, 4, 5)) * 40).astype(np.float32)
INTEGERS = [np.int8, np.uint8, np.int16, np.uint16, ml_dtypes.int4, ml_dtypes.uint4, ml_dtypes.int2, ml_dtypes.uint2]
SMALL_FLOATS = [
    ml_dtypes.float8_e4m3fn,
    ml_dtypes.float8_e4m3fnuz,
    ml_dtypes.float8_e5m2,
    ml_dtypes.float8_e5m2fnuz,
    ml_dtypes.float4_e2m1fn,
]


@pytest.mark.parametrize("scale_dtype", [np.float32, np.float16, ml_dtypes.bfloat16])
@pytest.mark.parametrize("dtype", [*INTEGERS, *SMALL_FLOATS])
def test_there_and_back_per_axis(dtype, scale_dtype):
    scale = np.array([0.5, 1, 4, 8], scale_dtype)
    zero_point = np.array([0, 1, 1, 0] if dtype in INTEGERS else [0, 0, 0, 0]).astype(dtype)
    inputs = [X.astype(scale_dtype), scale, zero_point]
    quantized = reference_op("QuantizeLinear", inputs)
    assert_same(run_op("QuantizeLinear", inputs), quantized)
    inputs = [*quantized, scale, zero_point]
    assert_same(run_op("DequantizeLinear", inputs), reference_op("DequantizeLinear", inputs), 0, 0)


@pytest.mark.parametrize("axis", [0, 1, -1, -3])
def test_an_axis_may_be_counted_from_the_end(axis):
    inputs = [X, np.arange(1, X.shape[axis] + 1, dtype=np.float32), np.arange(X.shape[axis], dtype=np.int8)]
    assert_same(run_op("QuantizeLinear", inputs, axis=axis), reference_op("QuantizeLinear", inputs, axis=axis))


# torch's analysis of what is written to would take a good part of a load.
@pytest.mark.parametrize("op_type, options", [("ConvInteger", {}), ("QuantizeLinear", {"axis": 0})])
def test_parameters_are_broadcast_without_a_list_that_is_written_to(op_type, options):
    x = np.arange(4, dtype=np.uint8 if op_type == "ConvInteger" else np.float32).reshape(2, 2, 1)
    inputs = {"x": x, "w": np.ones((2, 2, 1), np.uint8), "x_zero_point": np.array(1, np.uint8)}
    if op_type == "QuantizeLinear":
        inputs = {"x": x, "scale": np.ones(2, np.float32)}
    node = helper.make_node(op_type, list(inputs), ["y"], **options)
    model = model_of([node], [tensor_info(name, value) for name, value in inputs.items()], ["y"])
    graph = onnx_torch.prepare(model, optimize=False).graphs()["translate"]
    assert "aten::reshape" in graph
    assert not [writer for writer in ("aten::append", "aten::_set_item", "prim::Loop") if writer in graph]


@pytest.mark.parametrize("axis, block_size, blocks", [(0, 2, 2), (1, 2, 2), (-1, 2, 3), (2, 5, 1)])
def test_blocks(axis, block_size, blocks):
    shape = list(X.shape)
    shape[axis] = blocks
    scale = RNG.uniform(0.5, 2, shape).astype(np.float32)
    zero_point = RNG.integers(0, 99, shape).astype(np.uint8)
    options = {"axis": axis, "block_size": block_size}
    quantized = reference_op("QuantizeLinear", [X, scale, zero_point], **options)
    assert_same(run_op("QuantizeLinear", [X, scale, zero_point], **options), quantized)
    inputs = [*quantized, scale, zero_point]
    assert_same(run_op("DequantizeLinear", inputs, **options), reference_op("DequantizeLinear", inputs, **options))


def test_halves_go_to_the_even_neighbour():
    x = np.array([0.5, 1.5, 2.5, -0.5, -1.5], np.float32)
    assert run_op("QuantizeLinear", [x, np.float32(1), np.int8(1)], opset=10)[0].tolist() == [1, 3, 3, 1, -1]


def test_types_by_attributes():
    x, scale = np.array([1e6, -3, 100], np.float32), np.float32(2)
    assert run_op("QuantizeLinear", [x, scale])[0].dtype == np.uint8
    [y] = run_op("QuantizeLinear", [x, scale], output_dtype=TensorProto.INT16)
    assert y.dtype == np.int16 and y.tolist() == [32767, -2, 50]
    [y] = run_op("DequantizeLinear", [y, scale], output_dtype=TensorProto.FLOAT16)
    assert y.dtype == np.float16 and y.tolist() == [np.inf, -4, 100]
    with pytest.raises(Exception, match="output_dtype is not the type of y_zero_point"):
        run_op("QuantizeLinear", [x, scale, np.uint8(0)], output_dtype=TensorProto.INT16)


def test_precision_of_the_division():
    x, scale = np.array([2049], np.float32), np.float32(1)
    inputs = [x, scale, np.int16(0)]
    assert run_op("QuantizeLinear", inputs)[0] == 2049
    assert run_op("QuantizeLinear", inputs, precision=TensorProto.FLOAT16)[0] == 2048


def test_saturate_is_for_8_bit_floats():
    inputs = [np.array([1e6], np.float32), np.float32(1), np.zeros((), ml_dtypes.float8_e4m3fn)]
    assert float(run_op("QuantizeLinear", inputs)[0][0]) == 448
    assert np.isnan(float(run_op("QuantizeLinear", inputs, saturate=0)[0][0]))


def test_int32_and_scales_of_powers_of_two():
    x = np.array([7, -100000], np.int32)
    assert run_op("QuantizeLinear", [x, np.int32(2), np.int8(0)])[0].tolist() == [4, -128]
    assert run_op("DequantizeLinear", [x, np.float32(0.5)])[0].tolist() == [3.5, -50000]
    scale = np.array(4, ml_dtypes.float8_e8m0fnu)
    assert run_op("QuantizeLinear", [np.array([9], np.float32), scale, np.int8(0)])[0].tolist() == [2]
    [y] = run_op("DequantizeLinear", [np.array([9], np.int8), scale], output_dtype=TensorProto.FLOAT)
    assert y.tolist() == [36]


def test_dynamic_quantization_of_nothing_but_zeros():
    y, scale, zero_point = run_op("DynamicQuantizeLinear", [np.zeros((2, 3), np.float32)], outputs=3)
    assert not y.any() and scale == 1 and zero_point == 0


@pytest.mark.parametrize("length", [64, 300])  # sums that float32 holds, and that it does not
def test_matmul_integer_is_exact(length):
    a = RNG.integers(200, 256, (2, 3, length)).astype(np.uint8)
    b = RNG.integers(200, 256, (length, 4)).astype(np.uint8)
    expected = a.astype(np.int64) @ b.astype(np.int64)
    assert_same(run_op("MatMulInteger", [a, b]), [expected.astype(np.int32)])


def test_zero_points_of_rows_and_columns():
    a, b = RNG.integers(0, 256, (3, 4)).astype(np.uint8), RNG.integers(-128, 128, (4, 2)).astype(np.int8)
    rows, columns = np.array([3, 200, 77], np.uint8), np.array([-5, 100], np.int8)
    expected = (a - rows[:, None].astype(np.int32)) @ (b - columns.astype(np.int32))
    assert_same(run_op("MatMulInteger", [a, b, rows, columns]), [expected])
    scales = [np.array([0.1, 0.2, 0.3], np.float32), np.array([0.5, 0.25], np.float32), np.float32(9)]
    inputs = [a, scales[0], rows, b, scales[1], columns, scales[2], np.int8(3)]
    units = scales[0][:, None] * scales[1] / scales[2]
    want = np.clip(np.rint(expected * units) + 3, -128, 127).astype(np.int8)
    assert_same(run_op("QLinearMatMul", inputs), [want])


def test_qlinear_matmul_of_8_bit_floats():
    dtype = ml_dtypes.float8_e4m3fn
    a, b = X[0].astype(dtype), X[1].T.astype(dtype)
    one, zero = np.float32(1), np.zeros((), dtype)
    [y] = run_op("QLinearMatMul", [a, one, zero, b, one, zero, np.float32(64), zero])
    want = (a.astype(np.float64) @ b.astype(np.float64) / 64).clip(-448, 448).astype(dtype)
    assert_same([y], [want], 0, 0)


@pytest.mark.parametrize(
    "options",
    [
        {},
        {"pads": [1, 0, 2, 1]},
        {"auto_pad": "SAME_UPPER", "strides": [2, 1]},
        {"group": 2},
    ],
)
@pytest.mark.parametrize("channels", [4, 128])  # sums that float32 holds, and that it does not
def test_convolutions(channels, options):
    group = options.get("group", 1)
    x = RNG.integers(150, 256, (2, channels, 5, 6)).astype(np.uint8)
    w = RNG.integers(-128, 128, (6, channels // group, 3, 2)).astype(np.int8)
    x_zero, w_zero = np.uint8(3), RNG.integers(-9, 9, (6,)).astype(np.int8)
    wide = [x.astype(np.float64) - x_zero, w.astype(np.float64) - w_zero[:, None, None, None]]
    [sums] = reference_op("Conv", wide, **options)
    assert_same(run_op("ConvInteger", [x, w, x_zero, w_zero], **options), [sums.astype(np.int32)])

    b = RNG.integers(-5000, 5000, (6,)).astype(np.int32)
    scale = RNG.uniform(0.5, 1, (6,)).astype(np.float32)
    y_scale = np.float32(np.abs(sums).max() / 200)
    inputs = [x, np.float32(1), x_zero, w, scale, w_zero, y_scale, np.int8(-5), b]
    want = np.rint((sums + b[:, None, None]) * (scale / y_scale)[:, None, None]) - 5
    assert_same(run_op("QLinearConv", inputs, **options), [np.clip(want, -128, 127).astype(np.int8)])
