"""Templates of src/ops/contrib/layouts.cpp."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from typing import Any

import numpy as np
import onnx

from ..engines import Declined, run_any, run_ort, run_reference
from ..making import eighths, floats, ints, row, waves, whole
from ..modern import formula, lrn, modern, unchanged

# --- com.microsoft.nchwc: 32 channels are in blocks whether these have 8 channels or 16 ---


def blocks(op: str, inputs: list[Any], **rest: Any):
    return row(f"com.microsoft.nchwc.{op}", inputs, **rest)


BLOCKS, SUM = eighths(2, 32, 6, 5), eighths(2, 32, 4, 3, scale=5.0)
POOL: dict[str, Any] = {"kernel_shape": [3, 2]}
PADDED: dict[str, Any] = {**POOL, "pads": [1, 0, 1, 1], "strides": [2, 1]}
UNEVEN: dict[str, Any] = {**POOL, "strides": [2, 2], "ceil_mode": 1}
POOLS: list[dict[str, Any]] = [POOL, PADDED, UNEVEN, {**POOL, "auto_pad": "SAME_UPPER"}]

# --- com.ms.internal.nhwc ---


def last(op: str, inputs: list[Any], activation: Any = None, first: int = 1, last: int = 99, **rest: Any):
    """Makes a row that is compared with the standard's operator of that version on plain images, and an activation."""
    outputs, only, run = rest.pop("outputs", 1), rest.pop("only", ""), rest.pop("run", run_first)
    attributes = {name: value for name, value in rest.items() if not name.startswith("activation")}

    def meaning(case: Any) -> list[Any]:
        plain = modern(op, case.cell.version, channels_first, outputs, run, **attributes)
        y, *others = plain(case)
        y = np.moveaxis(y, 1, -1)
        return [activation(y) if activation else y, *others]

    return row(f"com.ms.internal.nhwc.{op}", inputs, first, last, outputs, only, meaning, **rest, **named(activation))


def run_first(model: onnx.ModelProto, feeds: dict[str, Any]) -> list[Any]:
    """Runs onnxruntime, where it can: the reference is wrong about LRN, BatchNormalization-9 and some pools."""
    try:
        return run_ort(model, feeds)
    except Declined:
        return run_reference(model, feeds)


def channels_first(inputs: list[Any]) -> list[Any]:
    return [np.moveaxis(inputs[0], -1, 1).copy(), *inputs[1:]]


def relu(y: np.ndarray) -> np.ndarray:
    return np.maximum(y, 0).astype(y.dtype)


def clip(y: np.ndarray) -> np.ndarray:
    return np.clip(y, -0.25, 0.5).astype(y.dtype)


def named(activation: Any) -> dict[str, Any]:
    if activation is None:
        return {}
    return {"activation": "Relu"} if activation is relu else {"activation": "Clip", "activation_params": [-0.25, 0.5]}


X = waves(2, 6, 5, 4)  # four channels
WHOLE = whole(1, 4, 6, 4)
MOMENTS = [floats(1, 2, 0.5, -1), floats(0, 1, -0.5, 0.25), floats(0.5, 0, 0.1, 0.2), floats(1, 2, 0.5, 4)]
GRID = np.rint(waves(2, 3, 2, 2, scale=8.0)) / 8  # exact in every type
FILTERS, GROUPED = waves(6, 4, 3, 2) + 0.125, waves(6, 2, 3, 2)
WINDOWS: dict[str, Any] = {"strides": [2, 1], "pads": [1, 0, 0, 1], "dilations": [2, 1], "kernel_shape": [3, 2]}


def training(x: np.ndarray, scale: np.ndarray, b: np.ndarray, mean: np.ndarray, var: np.ndarray) -> list[np.ndarray]:
    """Computes the outputs of BatchNormalization, of the running moments too, before it has training_mode."""
    axes = (0, 1, 2)
    own_mean, own_var = x.mean(axes), x.var(axes)
    y = (x - own_mean) / np.sqrt(own_var + 1e-5) * scale + b
    momentum = np.float64(np.float32(0.9))
    running = [old * momentum + new * (1 - momentum) for old, new in ((mean, own_mean), (var, own_var))]
    return [y, *running, own_mean, own_var]


def trained(case: Any) -> list[Any]:
    return training(*(np.asarray(x).astype(np.float64) for x in case.inputs))


# --- 8 bits ---

BYTES = (np.arange(2 * 5 * 4 * 4).reshape(2, 5, 4, 4) * 37 % 251).astype(np.uint8)
BYTE_FILTERS = (np.arange(6 * 2 * 3 * 2).reshape(6, 2, 3, 2) * 53 % 251).astype(np.uint8)
X_SCALE, X_ZERO, Y_SCALE, Y_ZERO = np.float32(0.05), np.uint8(7), np.float32(0.5), np.uint8(40)
W_SCALE, W_ZERO = np.float32(0.1), np.uint8(100)
QLINEAR = [X_SCALE, X_ZERO, BYTE_FILTERS, W_SCALE, W_ZERO]
POOLED = [X_SCALE, X_ZERO, np.float32(0.0625), Y_ZERO]


def reference(op: str, inputs: list[np.ndarray], **attributes: Any) -> np.ndarray:
    """Runs the standard's operator in float, on images with the channels last."""
    case = _Named([np.asarray(value, np.float32) for value in inputs])
    return np.moveaxis(modern(op, 11, channels_first, **attributes)(case)[0].astype(np.float64), 1, -1)


class _Named:
    """The part of a case that `modern` reads."""

    def __init__(self, inputs: list[np.ndarray]):
        self.inputs, self.model = inputs, self
        self.graph = self
        self.node = [self]
        self.input = [f"x{i}" for i in range(len(inputs))]


def quantized(y: np.ndarray, scale: float, zero: float, case: Any) -> list[np.ndarray]:
    dtype = np.int8 if "int8" in case.output_types[0] and "uint8" not in case.output_types[0] else np.uint8
    limits = np.iinfo(dtype)
    return [np.clip(np.rint(y / np.float32(scale)) + int(zero), limits.min, limits.max).astype(dtype)]


def q_average(zeros: bool, **attributes: Any) -> Callable[[Any], list[np.ndarray]]:
    def meaning(case: Any) -> list[np.ndarray]:
        x, x_scale, x_zero, y_scale, y_zero = case.inputs if zeros else [*case.inputs[:2], 0, case.inputs[2], 0]
        y = reference("AveragePool", [(x.astype(np.float32) - np.float32(x_zero)) * x_scale], **attributes)
        return quantized(y, y_scale, y_zero, case)

    return meaning


def q_transposed(group: int = 1, **attributes: Any) -> Callable[[Any], list[np.ndarray]]:
    def meaning(case: Any) -> list[np.ndarray]:
        x, x_scale, x_zero, w, w_scale, w_zero, y_scale, y_zero, *bias = case.inputs
        parts = [of_filters(np.asarray(p), w, group) for p in (w_scale, w_zero)]
        filters = (w.astype(np.float32) - parts[1].astype(np.float32)) * parts[0]
        biases = [b.astype(np.float32) * x_scale * w_scale for b in bias]
        image = (x.astype(np.float32) - np.float32(x_zero)) * x_scale
        y = reference("ConvTranspose", [image, filters, *biases], group=group, **attributes)
        return quantized(y, y_scale, y_zero, case)

    return meaning


def of_filters(parameter: np.ndarray, w: np.ndarray, group: int) -> np.ndarray:
    if parameter.size == 1:
        return parameter
    rows = np.repeat(parameter.reshape(group, -1), w.shape[0] // group, 0)
    return rows.reshape(*rows.shape, *[1] * (w.ndim - 2))


TRANSPOSED = (np.arange(2 * 5 * 4 * 6).reshape(2, 5, 4, 6) * 37 % 251).astype(np.uint8)  # six channels
EACH_SCALE, EACH_ZERO = floats(0.1, 0.2, 0.05, 0.15), np.array([100, 90, 120, 7], np.uint8)

# --- Others ---

UNPOOLED, INDICES = floats(1, -2, 3, 0.25).reshape(1, 2, 2, 1), np.array([[[[0, 3], [9, 14]]]])
ROI, NO_SCALES = floats(0, 0.1, 0, 0, 1, 0.9, 0.8, 1), np.zeros(0, np.float32)
CROP = {"coordinate_transformation_mode": "tf_crop_and_resize", "extrapolation_value": -1.0, "mode": "linear"}


def lp_last(x: np.ndarray) -> np.ndarray:
    return np.sqrt((x**2).sum((1, 2), keepdims=True))


def lrn_last(*parameters: Any) -> Callable[[np.ndarray], np.ndarray]:
    return lambda x: np.moveaxis(lrn(*parameters)(np.moveaxis(x, -1, 1)), 1, -1)


def resized(**attributes: Any):
    """Gives the meaning of Resize; of complex numbers, of which the reference drops one part, it takes both parts."""

    def meaning(case: Any) -> list[Any]:
        plain = modern("Resize", case.cell.version, **attributes)
        if not np.iscomplexobj(case.inputs[0]):
            return plain(case)
        parts = [plain(dataclasses.replace(case, inputs=[part(case.inputs[0]), *case.inputs[1:]])) for part in PARTS]
        return [parts[0][0] + 1j * parts[1][0]]

    return meaning


PARTS = (lambda z: z.real.copy(), lambda z: z.imag.copy())
UNWEIGHED = "T1/.*(int|bool|string|complex)"  # types of which linear interpolation makes no sense
NHWC = "com.ms.internal.nhwc"

LAYOUTS_ROWS = [
    blocks("ReorderInput", [waves(2, 20, 3, 2)]),
    blocks("ReorderInput", [waves(2, 3, 2, 20)], channels_last=1),
    blocks("ReorderInput", [waves(0, 32, 3, 2)]),
    blocks("ReorderOutput", [waves(2, 32, 3, 2)], channels=32),
    blocks("ReorderOutput", [waves(2, 32, 3, 2)], channels=27),
    blocks("ReorderOutput", [waves(2, 32, 3, 2)], channels=29, channels_last=1),
    blocks("ReorderOutput", [waves(2, 32, 1, 1)], meaning=unchanged),
    blocks("Conv", [BLOCKS, eighths(32, 32, 3, 3)]),
    blocks("Conv", [BLOCKS, eighths(32, 32, 3, 3), eighths(32, scale=3.0), SUM], activation="Relu"),
    blocks("Conv", [BLOCKS, eighths(32, 32, 1, 1)], strides=[2, 1], activation="Clip", activation_params=[-0.5, 1.0]),
    blocks("Conv", [eighths(2, 3, 6, 5), eighths(32, 3, 3, 3), eighths(32)], auto_pad="SAME_UPPER"),  # a plain image
    blocks("Conv", [BLOCKS, eighths(32, 1, 3, 3), None, SUM], group=32, kernel_shape=[3, 3]),
    blocks("Conv", [BLOCKS, eighths(32, 16, 3, 2)], group=2, pads=[1, 0, 1, 1], dilations=[2, 1]),
    blocks("Conv", [BLOCKS[:0], eighths(32, 32, 3, 3)]),
    *[blocks(op, [BLOCKS], **attributes) for op in ("AveragePool", "MaxPool") for attributes in POOLS],
    blocks("AveragePool", [BLOCKS], count_include_pad=1, **PADDED),
    blocks("AveragePool", [BLOCKS], dilations=[1, 1], **POOL),
    blocks("MaxPool", [BLOCKS], dilations=[2, 1], storage_order=0, **POOL),
    blocks("GlobalAveragePool", [BLOCKS]),
    blocks("GlobalMaxPool", [BLOCKS]),
    blocks("Upsample", [BLOCKS], scales=[1, 1, 3, 2]),
    blocks("Upsample", [BLOCKS], scales=[1, 1, 4, 2], mode="linear"),
    # The place 17/3 is a float of 24 bits: its rounding alone moves a number between -1 and 1 by 4.8e-7.
    blocks("Upsample", [BLOCKS], scales=[1, 1, 3, 2], mode="linear", ulps=8),
    blocks("Upsample", [BLOCKS], scales=[1, 1, 4, 2], mode="linear", coordinate_transformation_mode="half_pixel"),
    blocks("Upsample", [BLOCKS], scales=[1, 1, 2, 1], mode="linear", coordinate_transformation_mode="align_corners"),
    # There are no scales, which the kernel refuses.
    blocks("Upsample", [BLOCKS], meaning=unchanged),
    last("AveragePool", [X], **POOL),
    last("AveragePool", [X], relu, count_include_pad=1, **PADDED),
    last("AveragePool", [X], clip, auto_pad="SAME_UPPER", **POOL),
    last("AveragePool", [X], first=10, **UNEVEN),
    last("AveragePool", [X], first=19, dilations=[2, 1], **POOL),
    last("BatchNormalization", [X, *MOMENTS]),
    last("BatchNormalization", [X, *MOMENTS], clip, epsilon=0.25, momentum=0.5),
    last("BatchNormalization", [X, *MOMENTS], relu, 7, 7, spatial=1),
    last("BatchNormalization", [X, *MOMENTS], None, 14, outputs=3, training_mode=1),
    row(f"{NHWC}.BatchNormalization", [X, *MOMENTS], 7, 9, 5, meaning=trained),
    last("Conv", [X, FILTERS]),
    last("Conv", [X, GROUPED, waves(6)], relu, group=2, **WINDOWS),
    last("Conv", [X, FILTERS], clip, auto_pad="SAME_UPPER"),
    last("ConvTranspose", [X, FILTERS[:4]]),
    last("ConvTranspose", [X, GROUPED[:4], waves(4)], relu, group=2, output_padding=[1, 0], **WINDOWS),
    last("ConvTranspose", [X, FILTERS[:4]], clip, strides=[2, 2], output_shape=[11, 10]),
    last("ConvTranspose", [X, FILTERS[:4]], strides=[2, 2], auto_pad="SAME_UPPER"),
    last("DepthToSpace", [whole(2, 2, 3, 8)], blocksize=2),
    last("DepthToSpace", [whole(2, 2, 3, 8)], first=11, blocksize=2, mode="CRD"),
    last("SpaceToDepth", [whole(2, 4, 6, 3)], blocksize=2),
    last("GlobalAveragePool", [X]),
    last("GlobalMaxPool", [X]),
    last("GlobalMaxPool", [waves(2, 6, 4)]),
    row(f"{NHWC}.GlobalLpPool", [X], only="double", meaning=formula(lp_last)),
    last("GlobalLpPool", [X]),
    last("GlobalLpPool", [X], p=3),
    last("GridSample", [WHOLE, GRID[:1]], run=run_any, only=UNWEIGHED, mode="nearest"),
    last("GridSample", [X, GRID], run=run_any),
    last("GridSample", [X, GRID], run=run_any, mode="nearest", padding_mode="border", align_corners=1),
    last("InstanceNormalization", [X, *MOMENTS[:2]]),
    last("InstanceNormalization", [X, *MOMENTS[:2]], relu, epsilon=0.25),
    last("InstanceNormalization", [X, *MOMENTS[:2]], clip),
    row(f"{NHWC}.LRN", [X], size=3, meaning=formula(lrn_last(3, float(np.float32(1e-4)), 0.75, 1.0))),
    row(f"{NHWC}.LRN", [X], size=2, alpha=0.5, beta=0.25, bias=2.0, meaning=formula(lrn_last(2, 0.5, 0.25, 2.0))),
    last("LpPool", [X], **POOL),
    last("LpPool", [X], p=3, **PADDED),
    last("LpPool", [X], auto_pad="SAME_UPPER", **POOL),
    last("LpPool", [X], first=18, **UNEVEN),
    last("LpPool", [X], first=18, dilations=[2, 1], **POOL),
    last("MaxPool", [X], **POOL),
    last("MaxPool", [X], relu, **PADDED),
    last("MaxPool", [X], clip, auto_pad="SAME_UPPER", **POOL),
    # The indices are of a plain image, in the order of one.
    last("MaxPool", [X], None, 8, outputs=2, **POOL),
    last("MaxPool", [X], None, 8, outputs=2, storage_order=1, **PADDED),
    last("MaxPool", [X], first=10, **UNEVEN),
    last("MaxPool", [X], first=10, dilations=[2, 1], **POOL),
    last("MaxUnpool", [UNPOOLED, INDICES], kernel_shape=[2, 2], strides=[2, 2]),
    last("MaxUnpool", [UNPOOLED, INDICES], relu, kernel_shape=[2, 2], strides=[2, 2], pads=[0, 0, 0, 0]),
    # The indices are of what is made without an output_shape, as in the standard's own cases.
    last("MaxUnpool", [UNPOOLED, INDICES, ints(1, 1, 5, 5)], clip, run=run_any, kernel_shape=[2, 2], strides=[2, 2]),
    last("MaxUnpool", [UNPOOLED, np.array([[[[0, 3], [4, 8]]]])], kernel_shape=[2, 2]),
    row(f"{NHWC}.QLinearAveragePool", [BYTES, *POOLED], meaning=q_average(True, **POOL), **POOL),
    row(
        f"{NHWC}.QLinearAveragePool",
        [BYTES, X_SCALE, None, np.float32(0.0625)],
        channels_last=1,
        count_include_pad=1,
        meaning=q_average(False, count_include_pad=1, **PADDED),
        **PADDED,
    ),
    row(f"{NHWC}.QLinearAveragePool", [BYTES, *POOLED], meaning=q_average(True, **UNEVEN), **UNEVEN),
    row(
        f"{NHWC}.QLinearAveragePool",
        [BYTES, *POOLED],
        auto_pad="SAME_UPPER",
        meaning=q_average(True, pads=[1, 0, 1, 1], **POOL),
        **POOL,
    ),
    last("QLinearConv", [BYTES[..., :2].copy(), *QLINEAR, Y_SCALE, Y_ZERO]),
    last(
        "QLinearConv",
        [BYTES, *QLINEAR, Y_SCALE, Y_ZERO, (waves(6) * 900).astype(np.int32)],
        group=2,
        **WINDOWS,
    ),
    last("QLinearConv", [BYTES[..., :2].copy(), *QLINEAR, Y_SCALE, Y_ZERO], auto_pad="SAME_UPPER"),
    row(f"{NHWC}.QLinearConvTranspose", [TRANSPOSED, *QLINEAR, np.float32(2), Y_ZERO], meaning=q_transposed()),
    row(
        f"{NHWC}.QLinearConvTranspose",
        [TRANSPOSED, *QLINEAR[:3], EACH_SCALE, EACH_ZERO, np.float32(2), Y_ZERO, (waves(4) * 900).astype(np.int32)],
        group=2,
        output_padding=[1, 0],
        meaning=q_transposed(2, output_padding=[1, 0], **WINDOWS),
        **WINDOWS,
    ),
    row(
        f"{NHWC}.QLinearConvTranspose",
        [TRANSPOSED, *QLINEAR, np.float32(2), Y_ZERO],
        strides=[2, 2],
        auto_pad="SAME_UPPER",
        meaning=q_transposed(1, strides=[2, 2], auto_pad="SAME_UPPER"),
    ),
    row(
        f"{NHWC}.QLinearConvTranspose",
        [TRANSPOSED, *QLINEAR, np.float32(2), Y_ZERO],
        strides=[2, 2],
        output_shape=[11, 9],
        meaning=q_transposed(1, strides=[2, 2], output_shape=[11, 9]),
    ),
    # These are of the dimensions as they come.
    row(f"{NHWC}.Resize", [WHOLE, ROI, floats(1, 2, 0.5, 1)], only=UNWEIGHED, meaning=resized()),
    *[
        row(f"{NHWC}.Resize", [WHOLE, ROI, *inputs], first, meaning=resized(**attributes), **attributes)
        for inputs, first, attributes in (
            ([floats(1, 2, 1.5, 1)], 11, {}),
            ([floats(1, 2, 1.5, 1)], 11, {"mode": "linear", "coordinate_transformation_mode": "align_corners"}),
            ([floats(1, 2, 1.5, 1)], 11, {"mode": "cubic", "cubic_coeff_a": -0.5, "exclude_outside": 1}),
            ([floats(1, 0.5, 2, 1)], 11, {"nearest_mode": "ceil"}),
            ([NO_SCALES, ints(1, 8, 3, 4)], 11, {"mode": "linear"}),
            ([None, ints(1, 8, 3, 4)], 13, {"mode": "linear"}),
            ([floats(1, 2, 2, 1)], 11, CROP),
            ([None, ints(8, 9)], 18, {"axes": [1, 2], "keep_aspect_ratio_policy": "not_larger"}),
            ([floats(1, 0.5, 0.5, 1)], 18, {"mode": "linear", "antialias": 1}),
        )
    ],
    row(f"{NHWC}.Resize", [WHOLE, None, floats(1, 2, 2, 1)], 13, meaning=resized()),
]
