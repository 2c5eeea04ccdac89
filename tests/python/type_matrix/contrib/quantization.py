"""Templates of src/ops/contrib/quantization.cpp. onnxruntime takes no absent zero point before other inputs."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from typing import Any

import ml_dtypes
import numpy as np
import onnx
from onnx import helper
from scipy.special import erf

from ..engines import run_ort
from ..making import floats, microsoft, waves
from ..modern import Meaning, formula
from ..values import dtype_of, element, element_number


def u8(*values: int) -> np.ndarray:
    return np.array(values, np.uint8)


def i8(*values: int) -> np.ndarray:
    return np.array(values, np.int8)


def i32(*values: int) -> np.ndarray:
    return np.array(values, np.int32)


def spread(*shape: int, dtype: Any = np.uint8) -> np.ndarray:
    """Gives elements all over the range of int8 or uint8, in no order."""
    return (np.arange(np.prod(shape)) * 89 % 256 + np.iinfo(dtype).min).reshape(shape).astype(dtype)


def seven_bits(*shape: int) -> np.ndarray:
    """Gives elements of int8 whose sums of products by uint8 do not saturate in onnxruntime's kernels below VNNI."""
    return spread(*shape, dtype=np.int8) // 2


def saturated(function: Callable[..., np.ndarray]) -> Meaning:
    """Gives the formula's result, rounded and brought into the range of the output's type."""

    def meaning(case: Any) -> list[Any]:
        dtype = dtype_of(element(case.output_types[0]))
        info = ml_dtypes.iinfo(dtype)
        return [np.clip(np.rint(y), float(info.min), float(info.max)).astype(dtype) for y in formula(function)(case)]

    return meaning


def with_fields(row: tuple, **fields: Any) -> tuple:
    op, first, last, template, only = row
    return op, first, last, dataclasses.replace(template, **fields), only


def giving(name: str, row: tuple) -> tuple:
    """Gives a row the element type of its only output, which does not follow from the inputs' type parameters."""
    return with_fields(row, output_types=[f"tensor({name})"])


HALF, QUARTER, ONE = floats(0.5, 0.25, 1)
THREE, FIVE, SEVEN = u8(3, 5, 7)
X = waves(2, 3, 4, scale=90.0)
BYTES, COLUMN = spread(2, 3, 4), spread(3, 1)[::-1].copy()
SIGNED, SIGNED_COLUMN = spread(2, 3, 4, dtype=np.int8), spread(3, 1, dtype=np.int8)
EMPTY = np.zeros((0, 4), np.uint8)
CONDITION = np.array([True, False, True, False])

LINEAR_ROWS = [
    # The elements have 4 bits, which onnxruntime takes from no array.
    microsoft(
        "QuantizeLinear",
        [waves(2, 5, scale=12.0), HALF, u8(1)[0]],
        only="int4",
        meaning=saturated(lambda x, scale, zero: np.rint(x / scale) + zero),
    ),
    microsoft(
        "DequantizeLinear",
        [i8(-8, -1, 0, 7), HALF, i8(1)[0]],
        only="int4",
        meaning=formula(lambda x, scale, zero: (x - zero) * scale),
    ),
    microsoft("QuantizeLinear", [X, HALF, THREE]),
    microsoft("QuantizeLinear", [floats(-1.5, -0.5, 0.5, 1.5, 2.5, 1e30, -1e30), ONE, FIVE]),
    giving("uint8", microsoft("QuantizeLinear", [X, HALF])),
    microsoft("QuantizeLinear", [X, floats(0.5, 0.25, 1), u8(1, 2, 3)], axis=1),
    microsoft("QuantizeLinear", [X, floats(0.5, 0.25), u8(1, 2)], axis=0),
    microsoft("QuantizeLinear", [X[:0], HALF, THREE]),
    microsoft("DequantizeLinear", [BYTES, HALF, THREE]),
    microsoft("DequantizeLinear", [BYTES, HALF]),
    microsoft("DequantizeLinear", [SIGNED, floats(0.5, 0.25, 1, 0.125), i8(1, 2, 3, 4)], axis=-1),
    microsoft("DequantizeLinear", [EMPTY, HALF, THREE]),
]

ELEMENT_ROWS = [
    # The scales are such that many results are ties.
    microsoft("QLinearAdd", [BYTES, HALF, THREE, COLUMN, QUARTER, SEVEN, ONE, FIVE]),
    microsoft("QLinearAdd", [SIGNED, HALF, i8(-3)[0], SIGNED_COLUMN, QUARTER, i8(7)[0], ONE, i8(5)[0]]),
    microsoft("QLinearAdd", [BYTES, HALF, THREE, BYTES[:, :, ::-1].copy(), QUARTER, SEVEN, ONE]),
    microsoft("QLinearAdd", [EMPTY, HALF, THREE, EMPTY[:, :1], QUARTER, SEVEN, ONE]),
    microsoft(
        "QLinearAdd",
        [BYTES, HALF, None, COLUMN, QUARTER, None, ONE, FIVE],
        meaning=saturated(lambda a, a_scale, b, b_scale, scale, zero: (a * a_scale + b * b_scale) / scale + zero),
    ),
    microsoft("QLinearMul", [BYTES, HALF, THREE, COLUMN, QUARTER, SEVEN, ONE, FIVE]),
    microsoft("QLinearMul", [SIGNED, HALF, i8(-3)[0], SIGNED_COLUMN, QUARTER, i8(7)[0], floats(16)[0], i8(5)[0]]),
    microsoft("QLinearMul", [BYTES, HALF, THREE, BYTES[:, :, ::-1].copy(), QUARTER, SEVEN, floats(32)[0]]),
    microsoft(
        "QLinearMul",
        [BYTES, HALF, None, COLUMN, QUARTER, None, floats(16)[0], FIVE],
        meaning=saturated(lambda a, a_scale, b, b_scale, scale, zero: a * a_scale * b * b_scale / scale + zero),
    ),
    microsoft("QLinearLeakyRelu", [BYTES, QUARTER, u8(100)[0], HALF, FIVE]),
    microsoft("QLinearLeakyRelu", [SIGNED, QUARTER, i8(-20)[0], HALF, None], alpha=-0.75),
    microsoft("QLinearLeakyRelu", [SIGNED, QUARTER, None, HALF, i8(5)[0]]),
    microsoft("QLinearSigmoid", [BYTES, floats(0.03)[0], u8(128)[0], floats(1 / 256)[0], FIVE]),
    microsoft("QLinearSigmoid", [SIGNED, floats(0.03)[0], i8(5)[0], floats(1 / 127)[0], None]),
    microsoft("QLinearSigmoid", [SIGNED, floats(0.03)[0], None, floats(1 / 256)[0], i8(-128)[0]]),
    # 1 / y_scale is rounded down to a whole number of steps, here 254 and 3.
    microsoft("QLinearSoftmax", [BYTES, floats(0.02)[0], THREE, floats(1 / 255)[0], u8(0)[0]], opset=13),
    microsoft("QLinearSoftmax", [SIGNED, floats(0.02)[0], i8(3)[0], floats(0.3)[0], i8(-2)[0]], opset=13, axis=1),
    microsoft("QLinearSoftmax", [SIGNED, floats(0.02)[0], i8(3)[0], floats(1 / 256)[0], i8(-128)[0]], opset=12, axis=1),
    microsoft("QLinearSoftmax", [BYTES, floats(0.2)[0], None, floats(1 / 256)[0], FIVE], opset=12),
    microsoft("QLinearWhere", [CONDITION, BYTES, QUARTER, THREE, COLUMN, ONE, SEVEN, floats(0.75)[0], FIVE]),
    microsoft(
        "QLinearWhere", [CONDITION[:3, None], SIGNED, HALF, i8(3)[0], SIGNED_COLUMN, HALF, i8(7)[0], HALF, i8(3)[0]]
    ),
]

TENSORS = [floats(0.75)[0], FIVE, BYTES, QUARTER, THREE, BYTES[:, :1], ONE, SEVEN]
TENSORS_OF_INT8 = [floats(0.75)[0], i8(5)[0], SIGNED, QUARTER, i8(3)[0], SIGNED[:, :1], ONE, i8(7)[0]]
EACH_TENSOR = ["tensor(uint8)", "TF", "tensor(uint8)"]
EACH_OF_INT8 = ["tensor(int8)", "TF", "tensor(int8)"]

CONCAT_ROWS = [
    with_fields(
        microsoft("QLinearConcat", TENSORS_OF_INT8, only="T8/tensor.int8", axis=1),
        output_types=["tensor(int8)"],
        params=["TF", "T8", *EACH_OF_INT8 * 2],
    ),
    with_fields(microsoft("QLinearConcat", TENSORS, axis=1), params=["TF", "T8", *EACH_TENSOR * 2]),
    with_fields(microsoft("QLinearConcat", TENSORS[:5], axis=-1), params=["TF", "T8", *EACH_TENSOR]),
]

IMAGES = spread(2, 2, 5, 4)
SIGNED_IMAGES = spread(2, 2, 5, 4, dtype=np.int8)
FILTERS = spread(4, 2, 3, 2)
SIGNED_FILTERS = spread(4, 2, 3, 2, dtype=np.int8)
POOL = [floats(0.31)[0], THREE, HALF, FIVE]


def quantized_conv(pads=(0, 0, 0, 0), strides=(1, 1), dilations=(1, 1)) -> Meaning:
    """Gives the formula. onnxruntime's kernel is none: below VNNI its sums of uint8 by int8 saturate."""

    def function(x, x_scale, x_zero, w, w_scale, w_zero, scale, zero, bias=0.0) -> np.ndarray:
        padded = np.pad(x - x_zero, [(0, 0), (0, 0), (pads[0], pads[2]), (pads[1], pads[3])])
        reach = [(size - 1) * dilation + 1 for size, dilation in zip(w.shape[2:], dilations, strict=True)]
        windows = np.lib.stride_tricks.sliding_window_view(padded, reach, (2, 3))
        windows = windows[:, :, :: strides[0], :: strides[1], :: dilations[0], :: dilations[1]]
        sums = np.einsum("nchwij,mcij->nmhw", windows, w - np.reshape(w_zero, (-1, 1, 1, 1)))
        sums += np.reshape(bias, (-1, 1, 1))
        return np.rint(sums * x_scale * np.reshape(w_scale, (-1, 1, 1)) / scale) + zero

    return saturated(function)


GEOMETRY: dict[str, Any] = {"pads": [1, 0, 0, 1], "strides": [2, 1], "dilations": [1, 2]}


WINDOW_ROWS = [
    microsoft(
        "QLinearConv",
        [IMAGES, QUARTER, THREE, FILTERS, HALF, SEVEN, floats(64)[0], FIVE],
        meaning=quantized_conv(),
    ),
    microsoft(
        "QLinearConv",
        [
            IMAGES,
            QUARTER,
            THREE,
            SIGNED_FILTERS,
            floats(0.5, 1, 0.25, 0.125),
            i8(0, 0, 0, 0),
            floats(64)[0],
            FIVE,
            i32(100, -900, 300, 7),
        ],
        **GEOMETRY,
        kernel_shape=[3, 2],
        meaning=quantized_conv(**GEOMETRY),
    ),
    microsoft(
        "QLinearConv",
        [
            np.moveaxis(IMAGES, 1, -1).copy(),
            QUARTER,
            THREE,
            FILTERS[:, :1].copy(),
            HALF,
            SEVEN,
            floats(64)[0],
            FIVE,
            i32(100, -900, 300, 7),
        ],
        channels_last=1,
        group=2,
        auto_pad="SAME_UPPER",
    ),
    microsoft(
        "QLinearConv",
        [SIGNED_IMAGES, QUARTER, i8(3)[0], SIGNED_FILTERS, HALF, i8(-7)[0], floats(64)[0], i8(5)[0]],
        meaning=quantized_conv(),
    ),
    microsoft("QLinearConv", [IMAGES[:0], QUARTER, THREE, FILTERS, HALF, SEVEN, floats(64)[0], FIVE]),
    microsoft("QLinearAveragePool", [IMAGES, *POOL], kernel_shape=[2, 2]),
    microsoft("QLinearAveragePool", [IMAGES, ONE, THREE, ONE, FIVE], kernel_shape=[2, 1], strides=[1, 2]),
    microsoft("QLinearAveragePool", [IMAGES, ONE, THREE, ONE, FIVE], kernel_shape=[5, 4]),
    microsoft(
        "QLinearAveragePool", [IMAGES, *POOL], kernel_shape=[3, 2], pads=[1, 0, 2, 1], strides=[2, 3], ceil_mode=1
    ),
    # A window that hangs over the padded end is divided by its whole size.
    microsoft(
        "QLinearAveragePool",
        [IMAGES, *POOL],
        kernel_shape=[3, 3],
        pads=[1, 1, 1, 1],
        strides=[3, 3],
        ceil_mode=1,
        count_include_pad=1,
    ),
    microsoft("QLinearAveragePool", [IMAGES, *POOL], kernel_shape=[3, 2], auto_pad="SAME_LOWER", strides=[2, 2]),
    microsoft("QLinearAveragePool", [np.moveaxis(IMAGES, 1, -1).copy(), *POOL], kernel_shape=[2, 3], channels_last=1),
    microsoft("QLinearAveragePool", [SIGNED_IMAGES[0], floats(0.3)[0], i8(3)[0], HALF], kernel_shape=[3]),
    microsoft("QLinearAveragePool", [IMAGES[None], *POOL], kernel_shape=[2, 3, 1]),
    microsoft(
        "QLinearAveragePool",
        [IMAGES[0], ONE, None, HALF, THREE],
        kernel_shape=[2],
        meaning=saturated(lambda x, one, scale, zero: (x[..., 1:] + x[..., :-1]) / 2 / scale + zero),
    ),
    microsoft("QLinearGlobalAveragePool", [IMAGES, ONE, THREE, ONE, FIVE]),
    microsoft("QLinearGlobalAveragePool", [SIGNED_IMAGES[0], floats(0.3)[0], i8(3)[0], floats(0.2)[0], i8(-5)[0]]),
    microsoft("QLinearGlobalAveragePool", [IMAGES, *POOL], channels_last=1),
]

A, B = spread(3, 6), spread(6, 4)[::-1].copy()
SIGNED_A, SIGNED_B = spread(3, 6, dtype=np.int8), spread(6, 4, dtype=np.int8)[::-1].copy()
SCALES, ZEROS = floats(0.5, 0.25, 1, 2), u8(1, 5, 7, 0)
BIAS = floats(0.5, -100, 3, 700)
P16 = (np.arange(8) * 9973 - 30000).reshape(2, 4).astype(np.int16)
Q16 = (np.arange(12) * 7919 % 65536 - 32768).reshape(4, 3).astype(np.int16)


def wrapping_product(case: Any) -> list[Any]:
    a, b = (x.astype(np.int64) for x in case.inputs)
    return [(a @ b).astype(dtype_of(element(case.output_types[0])))]


def quantized_gemm(a, a_scale, a_zero, b, b_scale, b_zero, scale, zero) -> np.ndarray:
    return np.rint((a - a_zero) @ (b - b_zero) * a_scale * b_scale / scale) + zero


def product(a, b, a_scale, b_scale) -> np.ndarray:
    return a @ b * a_scale * b_scale


def dequantized_mean(x, x_scale, x_zero, scale, zero) -> np.ndarray:
    return np.rint(((x - x_zero) * x_scale).mean((0, 2), keepdims=True) / scale) + zero


PRODUCT_ROWS = [
    microsoft("QGemm", [A, HALF, THREE, B, QUARTER, FIVE], only="/TY/tensor.float"),
    # onnxruntime has no kernel for these types.
    giving(
        "int8",
        microsoft(
            "QGemm",
            [A, HALF, THREE, B, QUARTER, FIVE, None, floats(100)[0], i8(7)[0]],
            only="/T(YZ|Y)/tensor.int8",
            meaning=saturated(quantized_gemm),
        ),
    ),
    microsoft(
        "QGemm",
        [A, HALF, THREE, B, QUARTER, FIVE],
        only="/TA/tensor.int8",
        meaning=formula(lambda a, a_scale, a_zero, b, b_scale, b_zero: (a - a_zero) @ (b - b_zero) * a_scale * b_scale),
    ),
    microsoft("MatMulIntegerToFloat", [A, B, HALF, QUARTER], only="/T1/tensor.int8", meaning=formula(product)),
    microsoft("MatMulInteger16", [P16, Q16], only="uint16", meaning=wrapping_product),
    giving(
        "uint32",
        microsoft(
            "MatMulInteger16",
            [P16.view(np.uint16), Q16.view(np.uint16)],
            only="T3/tensor.uint32",
            meaning=wrapping_product,
        ),
    ),
    # These are compared with onnxruntime.
    giving("uint8", microsoft("QGemm", [A, HALF, THREE, B, QUARTER, FIVE, None, floats(100)[0], SEVEN])),
    giving(
        "int8",
        microsoft(
            "QGemm",
            [SIGNED_A, HALF, i8(3)[0], SIGNED_B, QUARTER, i8(5)[0], i32(9, -700, 70, 5000), floats(100)[0], i8(7)[0]],
            alpha=0.75,
        ),
    ),
    giving(
        "uint8",
        microsoft(
            "QGemm",
            [A, HALF, THREE, SIGNED_B, SCALES, ZEROS.view(np.int8), i32([500], [-7], [90]), floats(70)[0], SEVEN],
        ),
    ),
    microsoft("QGemm", [A.T.copy(), HALF, THREE, B.T.copy(), SCALES, ZEROS, i32(3)], transA=1, transB=1),
    microsoft("QGemm", [A, HALF, THREE, B, QUARTER, FIVE, None, floats(100)[0]]),
    giving("uint8", microsoft("QGemm", [A, HALF, THREE, B, floats(0.001)[0], FIVE, None, None, SEVEN])),
    microsoft("QGemm", [A[:0], HALF, THREE, B, QUARTER, FIVE]),
    # The kernel leaves bits of C where A has no columns.
    giving(
        "uint8",
        microsoft(
            "QGemm",
            [A[:, :0], HALF, THREE, B[:0], QUARTER, FIVE, i32(9, -700, 70, 5000), floats(100)[0], SEVEN],
            meaning=saturated(
                lambda a, a_scale, a_zero, b, b_scale, b_zero, c, scale, zero: (
                    np.rint(c[None].repeat(3, 0) * a_scale * b_scale / scale) + zero
                )
            ),
        ),
    ),
    microsoft("MatMulIntegerToFloat", [A, B, HALF, QUARTER, THREE, FIVE, BIAS]),
    microsoft(
        "MatMulIntegerToFloat",
        [A, SIGNED_B, HALF, SCALES, None, i8(1, -5, 7, 0)],
        meaning=formula(lambda a, b, a_scale, b_scale, b_zero: product(a, b - b_zero, a_scale, b_scale)),
    ),
    microsoft("MatMulIntegerToFloat", [SIGNED_A, SIGNED_B, floats([0.5], [2], [0.25]), SCALES, i8(3)[0]]),
    microsoft(
        "MatMulIntegerToFloat",
        [np.stack([A, A[::-1]]), np.stack([B, B[::-1]]), HALF, floats([[1, 2, 3, 4]], [[5, 6, 7, 8]]), THREE],
    ),
    microsoft("MatMulIntegerToFloat", [A, B, floats(0.5), floats(0.25)]),
    microsoft("MatMulIntegerToFloat", [A[:0], B, HALF, QUARTER]),
    microsoft("DynamicQuantizeMatMul", [waves(2, 3, 6), B, HALF]),
    microsoft("DynamicQuantizeMatMul", [waves(2, 3, 6), B, SCALES, ZEROS, BIAS]),
    microsoft("DynamicQuantizeMatMul", [np.abs(waves(3, 6)), seven_bits(6, 4), HALF, i8(7)[0]]),
    microsoft("DynamicQuantizeMatMul", [np.zeros((3, 6), np.float32), SIGNED_B, HALF, None, BIAS]),
    microsoft("MatMulInteger16", [P16, Q16]),
    microsoft("MatMulInteger16", [np.full((1, 3), 32767, np.int16), np.full((3, 2), 32767, np.int16)]),
    microsoft("MatMulInteger16", [P16[:, :0], Q16[:0]]),
    # onnxruntime has no kernel for the CPU.
    microsoft(
        "MulInteger",
        [BYTES, THREE, COLUMN, SEVEN],
        meaning=formula(lambda a, a_zero, b, b_zero: (a - a_zero) * (b - b_zero)),
    ),
    microsoft("MulInteger", [SIGNED, None, SIGNED_COLUMN], meaning=formula(lambda a, b: a * b)),
    giving(
        "uint32",
        microsoft(
            "ReduceSumInteger",
            [BYTES],
            only="uint",
            axes=[0, -1],
            keepdims=1,
            meaning=formula(lambda x: x.sum((0, 2), keepdims=True)),
        ),
    ),
    giving("int32", microsoft("ReduceSumInteger", [SIGNED], axes=[1], keepdims=0, meaning=formula(lambda x: x.sum(1)))),
    giving(
        "int32",
        microsoft("ReduceSumInteger", [SIGNED], axes=[], keepdims=1, meaning=formula(lambda x: x.sum(keepdims=True))),
    ),
    microsoft(
        "QLinearReduceMean",
        [BYTES, QUARTER, THREE, HALF, FIVE],
        axes=[0, 2],
        keepdims=1,
        meaning=saturated(dequantized_mean),
    ),
    microsoft(
        "QLinearReduceMean",
        [SIGNED, QUARTER, None, floats(0.3)[0]],
        axes=[-2],
        keepdims=0,
        meaning=saturated(lambda x, x_scale, scale: x.mean(1) * x_scale / scale),
    ),
]


def steps(count: int) -> np.ndarray:
    return np.linspace(0.002, 0.005, count, dtype=np.float32)


def lstm(
    directions: int = 1,
    batch: int = 1,
    dtype: Any = np.uint8,
    zero: int = 100,
    by_column: bool = False,
    bias: bool = True,
    lengths: np.ndarray | None = None,
    initial: bool = False,
    peepholes: bool = False,
    **rest: Any,
) -> tuple:
    """Makes a DynamicQuantizeLSTM of 3 units. By several threads, onnxruntime gives parts of a batch own ranges."""
    columns = (directions, 12) if by_column else (directions,)
    scale, zero_point = steps(np.prod(columns)).reshape(columns), np.full(columns, zero, dtype)
    state = waves(directions, batch, 3)
    weight = spread if dtype == np.uint8 else seven_bits
    return microsoft(
        "DynamicQuantizeLSTM",
        [
            waves(4, batch, 5),
            weight(directions, 5, 12),
            weight(directions, 3, 12)[:, ::-1].copy(),
            waves(directions, 24, scale=0.5) if bias else None,
            lengths,
            state if initial else None,
            state[..., ::-1].copy() if initial else None,
            waves(directions, 9) if peepholes else None,
            scale,
            zero_point,
            scale[..., ::-1].copy(),
            zero_point,
        ],
        **rest,
    )


def with_hidden_size(case: Any) -> list[Any]:
    """Gives what onnxruntime gives, which does not take the size from the weights."""
    model = onnx.ModelProto.FromString(case.model.SerializeToString())
    model.graph.node[0].attribute.append(helper.make_attribute("hidden_size", 3))
    return run_ort(model, case.feeds)


LSTM_ROWS = [
    lstm(outputs=3, hidden_size=3, dtype=np.int8, zero=100, only="/T2/tensor.int8"),
    lstm(outputs=3, hidden_size=3),
    lstm(outputs=1, hidden_size=3, bias=False, dtype=np.int8, zero=-7),
    lstm(outputs=2, hidden_size=3, dtype=np.int8, zero=0, by_column=True, initial=True),
    lstm(outputs=3, hidden_size=3, batch=3, lengths=i32(2, 3, 1), initial=True),
    lstm(
        outputs=3, hidden_size=3, batch=3, lengths=i32(1, 4, 2), directions=2, direction="bidirectional", initial=True
    ),
    lstm(outputs=3, hidden_size=3, direction="reverse", peepholes=True, by_column=True),
    lstm(outputs=3, meaning=with_hidden_size),
    lstm(outputs=3, hidden_size=3, input_forget=1, clip=0.75),
    with_fields(lstm(hidden_size=3), outputs=["", "", "c"]),
    lstm(
        outputs=3,
        hidden_size=3,
        activations=["HardSigmoid", "Affine", "LeakyRelu"],
        activation_alpha=[0.3, 0.5, 0.1],
        activation_beta=[0.4, 0.25],
    ),
]

MATRICES = waves(2, 32, 64, scale=140.0)
SPREAD_MATRICES = spread(2, 32, 64, dtype=np.int8)


def offsets(order: int, shape: tuple[int, ...]) -> np.ndarray:
    """Gives the offset of each element of a matrix in cuBLASLt's order."""
    rows, columns = shape
    r, c = np.indices(shape)
    tiles = c // 32 * 32 * rows
    return [
        c * rows + r,
        r * columns + c,
        tiles + r * 32 + c % 32,
        tiles + (r // 8 * 8 + r % 2 * 4 + c % 32 // 8) * 32 + (c % 8 // 4 * 4 + r % 8 // 2) * 4 + c % 4,
        tiles + r // 32 * 1024 + ((r % 8 // 2 * 4 + r % 32 // 8) * 2 + r % 2) * 32 + c % 32,
    ][order]


def ordered(x: np.ndarray, order: int) -> np.ndarray:
    result = np.empty_like(x)
    for matrix, by_rows in zip(np.atleast_3d(result.T).T, np.atleast_3d(x.T).T, strict=True):
        matrix.flat[offsets(order, matrix.shape)] = by_rows
    return result


def in_rows(x: np.ndarray, order: int) -> np.ndarray:
    return np.stack([m.ravel()[offsets(order, m.shape)] for m in np.atleast_3d(x.T).T]).reshape(x.shape)


def quantized_in_order(order: int) -> Meaning:
    return saturated(lambda x, scale: ordered(x * (1 / scale), order))


def ordered_product(order_a: int, order_b: int) -> Callable[..., np.ndarray]:
    """Gives the product by B whose transpose is in the order, or by rows for order 0; with a bias, or C and a scale."""

    def function(a, a_scale, b, b_scale, scale, *rest) -> np.ndarray:
        transposed = b.reshape(*b.shape[:-2], b.shape[-1], b.shape[-2])
        transposed = in_rows(transposed, 1 if order_b == 0 else order_b)
        y = in_rows(a, order_a) @ np.swapaxes(transposed, -1, -2) * (a_scale * b_scale / scale)
        for one in rest[:1] if len(rest) % 2 else []:
            y = y + one
        if len(rest) > 1:
            y = y + in_rows(rest[-2], order_a) * (rest[-1] / scale)
        return ordered(y, order_a)

    return function


def quantized_gelu(x, x_scale, scale) -> np.ndarray:
    x = x * x_scale
    return x * (1 + erf(x / np.sqrt(2))) / 2 / scale


ORDER_ROWS = [
    *(
        microsoft(
            "QuantizeWithOrder",
            [MATRICES, HALF],
            order_input=1,
            order_output=order,
            meaning=quantized_in_order(order),
        )
        for order in range(5)
    ),
    microsoft(
        "QuantizeWithOrder",
        [MATRICES[0, 0], HALF],
        order_input=0,
        order_output=2,
        meaning=saturated(lambda x, scale: x / scale),
    ),
    *(
        microsoft(
            "DequantizeWithOrder",
            [SPREAD_MATRICES, QUARTER],
            order_input=order,
            order_output=1,
            to=lambda types, version: element_number(element(types["F"])),
            meaning=formula(lambda x, scale, order=order: in_rows(x, order) * scale),
        )
        for order in range(5)
    ),
    microsoft(
        "QOrderedMatMul",
        [
            SPREAD_MATRICES[:, :3, :6],
            QUARTER,
            SPREAD_MATRICES[0, :6, :5],
            HALF,
            floats(99)[0],
            floats(1, -20, 3, 0.5, 7),
        ],
        order_A=1,
        order_B=0,
        order_Y=1,
        meaning=saturated(ordered_product(1, 0)),
    ),
    microsoft(
        "QOrderedMatMul",
        [
            SPREAD_MATRICES[:, :3, :6],
            QUARTER,
            SPREAD_MATRICES[:, :6, :5],
            floats(0.5, 0.25, 1, 2, 0.75),
            floats(99)[0],
            None,
            SPREAD_MATRICES[:1, 3:6, :5],
            floats(30)[0],
        ],
        order_A=1,
        order_B=0,
        order_Y=1,
        meaning=saturated(ordered_product(1, 0)),
    ),
    *(
        microsoft(
            "QOrderedMatMul",
            [SPREAD_MATRICES, QUARTER, SPREAD_MATRICES[0].T.copy(), HALF, floats(99)[0]],
            order_A=2,
            order_B=order,
            order_Y=2,
            meaning=saturated(ordered_product(2, order)),
        )
        for order in (3, 4)
    ),
    microsoft("QOrderedGelu", [SIGNED, floats(0.03)[0], floats(0.02)[0]], meaning=saturated(quantized_gelu)),
    microsoft(
        "QOrderedGelu",
        [SIGNED, floats(0.03)[0], floats(0.02)[0]],
        order_X=2,
        order_Y=2,
        meaning=saturated(quantized_gelu),
    ),
]

QUANTIZATION_ROWS: list[Any] = [
    *LINEAR_ROWS,
    *ELEMENT_ROWS,
    *CONCAT_ROWS,
    *WINDOW_ROWS,
    *PRODUCT_ROWS,
    *LSTM_ROWS,
    *ORDER_ROWS,
]
