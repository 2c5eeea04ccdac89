"""Templates of src/ops/contrib/linear.cpp."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from scipy.special import expit, softmax

from ..making import eighths, floats, ints, microsoft, waves, whole
from ..modern import formula, modern, rounded

# --- Products ---

A, B = waves(2, 3, 4) + 0.25, waves(2, 4, 5)
BATCHES = waves(4, 2, 3, 5) + 0.25  # of matrices of 4 rows, where the batch is transposed


def in_batches(x: np.ndarray) -> np.ndarray:
    return np.moveaxis(x, 0, -2)


def matmul_activation(expected, **attributes: Any):
    function = formula(lambda a, b: expected(2 * (a @ b)))
    return microsoft("FusedMatMulActivation", [A, B], meaning=function, alpha=2.0, **attributes)


def hard_sigmoid(alpha: float, beta: float):
    return lambda x: np.clip(alpha * x + beta, 0, 1)


ROWS, COLUMNS, SUMMAND = waves(2, 3) + 0.25, waves(3, 4, scale=2.0), floats(1, -2, 0, 0.5)
GEMM_ACTIVATIONS = {
    "Elu": {"activation_alpha": 0.5},
    "HardSigmoid": {"activation_alpha": 0.25, "activation_beta": 0.4},
    "LeakyRelu": {"activation_alpha": 0.1},
    "Selu": {"activation_alpha": 1.5, "activation_gamma": 1.25},
    "Sigmoid": {},
    "Softplus": {},
    "Tanh": {},
    "ThresholdedRelu": {"activation_alpha": 0.5},
}

EIGHTHS, OTHERS = whole(2, 4) / 4, whole(3, 4)[::-1].copy() / 8  # exact in floats of 8 bits


def gemm_float8(alpha: float = 1, beta: float = 0, activation=lambda x: x):
    def function(a, b, c=0, scale_a=1, scale_b=1, scale_y=1) -> np.ndarray:
        return activation(alpha * (a * scale_a) @ (b * scale_b).T + beta * c) * scale_y

    return rounded(function)


def gelu_tanh(x: np.ndarray) -> np.ndarray:
    return x / 2 * (1 + np.tanh(np.sqrt(2 / np.pi) * (x + 0.044715 * x**3)))


# --- Complex numbers ---


def complex_of(x: np.ndarray) -> np.ndarray:
    return x[..., ::2] + 1j * x[..., 1::2]


def pairs_of(z: np.ndarray) -> np.ndarray:
    return np.stack([z.real, z.imag], -1).reshape(*z.shape[:-1], 2 * z.shape[-1])


def complex_product(a: np.ndarray, b: np.ndarray) -> np.ndarray:
    return pairs_of(complex_of(a) * complex_of(b))


def conjugate_product(a: np.ndarray, b: np.ndarray) -> np.ndarray:
    return pairs_of(complex_of(a) * complex_of(b).conj())


# --- Convolutions ---

IMAGE, FILTERS, BIAS = eighths(2, 4, 6, 5), eighths(6, 4, 3, 3) + 0.125, eighths(6, scale=4.0)
GROUPED = waves(6, 2, 3, 2)
LAST, SUM_LAST = np.moveaxis(IMAGE, 1, -1).copy(), waves(2, 4, 3, 6, scale=3.0)
FILTERS_LAST, GROUPED_LAST = np.moveaxis(FILTERS, 1, -1).copy(), np.moveaxis(GROUPED, 1, -1).copy()
CONV_ACTIVATIONS: dict[str, dict[str, Any]] = {
    "Clip": {"activation_params": [-0.5, 1.5]},
    "HardSigmoid": {"activation_params": [0.25, 0.4]},
    "HardSwish": {},
    "LeakyRelu": {"activation_params": [0.1]},
    "Sigmoid": {},
    "Tanh": {},
}
WINDOWS = {"strides": [2, 1], "pads": [1, 0, 0, 1], "dilations": [2, 1], "kernel_shape": [3, 2], "group": 2}


def convolved(activation=lambda y: y, strides=(1, 1), pads=(0, 0, 0, 0), dilations=(1, 1), group=1, **_: Any):
    """Gives the formula of a convolution with the channels last: the sum with a fourth input, and an activation."""

    def function(x: np.ndarray, w: np.ndarray, b: np.ndarray | None = None, z: np.ndarray | float = 0) -> np.ndarray:
        margins = [(0, 0), (0, 0), (pads[0], pads[2]), (pads[1], pads[3])]
        image, filters = torch.from_numpy(np.pad(np.moveaxis(x, -1, 1), margins)), torch.from_numpy(w)
        bias = None if b is None else torch.from_numpy(b)
        y = torch.nn.functional.conv2d(image, filters, bias, strides, 0, dilations, group)
        return activation(np.moveaxis(y.numpy(), 1, -1) + z)

    return function


def conv_last(**options: Any):
    return formula(convolved(**options))


def nhwc_conv(**options: Any):
    """Gives the same formula for filters that have the channels last, too."""
    function = convolved(**options)
    return formula(lambda x, w, b=None: function(x, np.moveaxis(w, -1, 1).copy(), b))


# --- Pools ---


def bytes_of(*shape: int) -> np.ndarray:
    return (np.arange(np.prod(shape)).reshape(shape) * 37 % 127).astype(np.int8)


SPOTS = np.array([[1, 1, 0, 1, 1], [1, 1, 1, 1, 0], [0, 1, 1, 1, 1], [1, 0, 1, 1, 1]], np.int32)


def masked_max(case) -> list[np.ndarray]:
    """Computes maxima of windows of 2 by 3; each channel has its mask, and a row of a window ends at what is masked."""
    x, mask = case.inputs
    mask = np.broadcast_to(mask, x.shape)
    height, width = x.shape[2] - 1, x.shape[3] - 2
    y = np.full((*x.shape[:2], height, width), np.finfo(np.float32).min, np.float32)
    for n, c, i, j in np.ndindex(y.shape):
        for row in (i, i + 1):
            for column in range(j, j + 3):
                if not mask[n, c, row, column]:
                    break
                y[n, c, i, j] = max(y[n, c, i, j], x[n, c, row, column])
    return [y]


def relu(x: np.ndarray) -> np.ndarray:
    return np.maximum(x, 0)


LINEAR_ROWS = [
    # onnxruntime has no kernel for double.
    microsoft("TransposeMatMul", [A, B], only="double", meaning=formula(np.matmul)),
    microsoft(
        "FusedGemm", [ROWS, COLUMNS], only="double", activation="Relu", meaning=formula(lambda a, b: relu(a @ b))
    ),
    microsoft("FusedConv", [IMAGE, FILTERS], only="double", meaning=modern("Conv", 11)),
    microsoft("ConvTransposeWithDynamicPads", [IMAGE, FILTERS[:4]], only="double", meaning=modern("ConvTranspose", 11)),
    # These are compared with onnxruntime, or it has no kernel for the CPU.
    *[
        microsoft(op, [a, b], **attributes)
        for op in ("FusedMatMul", "TransposeMatMul")
        for a, b, attributes in (
            (A, B, {}),
            (A, B, {"alpha": 0.3}),
            (A.swapaxes(1, 2).copy(), B, {"transA": 1}),
            (A, B.swapaxes(1, 2).copy(), {"transB": 1, "alpha": -2.0}),
            (A[0, 0], B, {"transA": 1}),  # a vector stays one
            (A[:, :0], B, {}),
        )
    ],
    microsoft("FusedMatMul", [BATCHES, waves(2, 3, 5, 4)], transBatchA=1),
    microsoft("FusedMatMul", [waves(2, 3, 4, 5), BATCHES], transBatchB=1, transB=1),
    microsoft("FusedMatMul", [BATCHES, waves(4, 2, 3, 6)], transBatchA=1, transBatchB=1, transA=1, alpha=0.5),
    matmul_activation(relu, activation="Relu"),
    matmul_activation(hard_sigmoid(0.25, 0.4), activation="HardSigmoid", activation_alpha=0.25, activation_beta=0.4),
    matmul_activation(
        lambda x: 1.25 * np.where(x > 0, x, 1.5 * np.expm1(x)),
        activation="Selu",
        activation_alpha=1.5,
        activation_gamma=1.25,
    ),
    matmul_activation(lambda x: softmax(x, 1), activation="Softmax", activation_axis=1),
    microsoft(
        "FusedMatMulActivation",
        [BATCHES, waves(4, 2, 3, 6)],
        activation="Tanh",
        transBatchA=1,
        transBatchB=1,
        transA=1,
        transB=0,
        meaning=formula(lambda a, b: np.tanh(in_batches(a).swapaxes(-1, -2) @ in_batches(b))),
    ),
    microsoft(
        "FusedMatMulActivation",
        [A, B.swapaxes(1, 2).copy()],
        activation="Sigmoid",
        transB=1,
        meaning=formula(lambda a, b: expit(a @ b.swapaxes(1, 2))),
    ),
    microsoft("FusedGemm", [ROWS, COLUMNS], activation="Relu"),
    microsoft("FusedGemm", [ROWS.T.copy(), COLUMNS, SUMMAND], transA=1, alpha=0.5, activation="Relu"),
    microsoft("FusedGemm", [ROWS, COLUMNS.T.copy(), SUMMAND], transB=1, beta=2.0, activation="Relu"),
    # There is no activation, which the kernel refuses.
    microsoft("FusedGemm", [ROWS, COLUMNS, SUMMAND], meaning=formula(lambda a, b, c: a @ b + c)),
    *[
        microsoft("FusedGemm", [ROWS, COLUMNS, SUMMAND], activation=activation, **attributes)
        for activation, attributes in GEMM_ACTIVATIONS.items()
    ],
    microsoft("GemmFloat8", [EIGHTHS, OTHERS.T.copy()], meaning=rounded(np.matmul)),
    microsoft("GemmFloat8", [EIGHTHS, OTHERS], transB=1, alpha=0.5, meaning=gemm_float8(0.5)),
    microsoft(
        "GemmFloat8",
        [EIGHTHS.T.copy(), OTHERS, whole(2, 3)],
        transA=1,
        transB=1,
        beta=0.5,
        meaning=rounded(lambda a, b, c: a.T @ b.T + c / 2),
    ),
    microsoft(
        "GemmFloat8",
        [EIGHTHS, OTHERS, -whole(2, 3), floats(0.5), floats(2), floats(0.25)],
        transB=1,
        beta=2.0,
        activation="RELU",
        dtype=1,
        meaning=gemm_float8(1, 2, relu),
    ),
    microsoft(
        "GemmFloat8",
        [EIGHTHS, OTHERS - 1, None, floats(0.5), floats(2)],
        transB=1,
        activation="GELU",
        meaning=rounded(lambda a, b, scale_a, scale_b: gelu_tanh((a * scale_a) @ (b * scale_b).T)),
    ),
    microsoft("ComplexMul", [waves(2, 3, 4), waves(2, 3, 4)[::-1].copy() + 1], meaning=formula(complex_product)),
    microsoft("ComplexMul", [waves(2, 3, 2), waves(3, 2) + 1], meaning=formula(complex_product)),
    microsoft("ComplexMulConj", [waves(2, 3, 4), waves(2, 3, 4)[::-1].copy() + 1], meaning=formula(conjugate_product)),
    microsoft("ComplexMulConj", [waves(0, 4), waves(4)], meaning=formula(conjugate_product)),
    microsoft("FusedConv", [IMAGE, FILTERS]),
    microsoft("FusedConv", [IMAGE, FILTERS, BIAS], activation="Relu"),
    microsoft("FusedConv", [IMAGE, FILTERS, BIAS, waves(2, 6, 4, 3, scale=3.0)], activation="Relu"),
    microsoft("FusedConv", [IMAGE, FILTERS, None, waves(2, 6, 4, 3, scale=3.0)], activation="Tanh"),
    microsoft("FusedConv", [IMAGE, GROUPED, BIAS], activation="Relu", **WINDOWS),
    microsoft("FusedConv", [IMAGE, FILTERS], auto_pad="SAME_LOWER", strides=[2, 2], activation="Relu"),
    microsoft("FusedConv", [IMAGE[:0], FILTERS, BIAS], activation="Relu"),
    microsoft("FusedConv", [IMAGE[:, :, 0], FILTERS[..., 0]], activation="Relu"),
    *[
        microsoft("FusedConv", [IMAGE, FILTERS, BIAS], activation=activation, **attributes)
        for activation, attributes in CONV_ACTIVATIONS.items()
    ],
    # The filters are laid out as onnxruntime's optimizer writes them, not as the operator's text says.
    microsoft("NhwcConv", [LAST, FILTERS_LAST], meaning=nhwc_conv()),
    microsoft("NhwcConv", [LAST, GROUPED_LAST, BIAS], meaning=nhwc_conv(**WINDOWS), **WINDOWS),
    microsoft("NhwcConv", [LAST, FILTERS_LAST], auto_pad="SAME_UPPER", meaning=nhwc_conv(pads=(1, 1, 1, 1))),
    microsoft("NhwcFusedConv", [LAST, FILTERS], meaning=conv_last()),
    microsoft(
        "NhwcFusedConv",
        [LAST, GROUPED, BIAS],
        activation="Clip",
        activation_params=[-0.5, 1.5],
        meaning=conv_last(activation=lambda y: np.clip(y, -0.5, 1.5), **WINDOWS),
        **WINDOWS,
    ),
    microsoft(
        "NhwcFusedConv",
        [LAST, FILTERS, BIAS, SUM_LAST],
        activation="Relu",
        meaning=conv_last(activation=relu),
    ),
    microsoft(
        "NhwcFusedConv",
        [LAST, FILTERS],
        auto_pad="SAME_UPPER",
        meaning=conv_last(pads=(1, 1, 1, 1)),
    ),
    microsoft("ConvTransposeWithDynamicPads", [IMAGE, FILTERS[:4], ints(0, 1, 1, 2)]),
    microsoft("ConvTransposeWithDynamicPads", [IMAGE, FILTERS[:4], ints(1, 1, 1, 1), waves(4)], strides=[2, 2]),
    microsoft(
        "ConvTransposeWithDynamicPads",
        [IMAGE, GROUPED[:4], ints(1, 1, 1, 1)],
        strides=[2, 3],
        dilations=[2, 1],
        output_padding=[1, 0],
        kernel_shape=[3, 2],
        group=2,
    ),
    microsoft("ConvTransposeWithDynamicPads", [IMAGE, FILTERS[:4], ints(5, 5, 5, 5)], auto_pad="SAME_UPPER"),
    # The pads count also where there are to be none.
    microsoft("ConvTransposeWithDynamicPads", [IMAGE, FILTERS[:4], ints(1, 0, 0, 1)], auto_pad="VALID"),
    # There are no pads, which the kernel refuses.
    microsoft("ConvTransposeWithDynamicPads", [IMAGE, FILTERS[:4]], meaning=modern("ConvTranspose", 11)),
    microsoft("ConvTransposeWithDynamicPads", [IMAGE[:, :, 0], FILTERS[:4, ..., 0], ints(0, 1), waves(4)]),
    microsoft("NhwcMaxPool", [bytes_of(1, 4, 5, 3)], kernel_shape=[2, 3]),
    microsoft(
        "NhwcMaxPool", [bytes_of(1, 5, 5, 2) - 60], kernel_shape=[3, 3], pads=[1, 1, 1, 1], strides=[2, 3], ceil_mode=1
    ),
    microsoft("NhwcMaxPool", [bytes_of(1, 5, 6, 2)], kernel_shape=[2, 2], dilations=[2, 3]),
    microsoft("NhwcMaxPool", [bytes_of(1, 5, 6, 2)], kernel_shape=[2, 3], auto_pad="SAME_LOWER", strides=[2, 2]),
    microsoft("NhwcMaxPool", [bytes_of(2, 6, 3)], kernel_shape=[2]),
    microsoft("MaxpoolWithMask", [waves(2, 3, 4, 5), SPOTS[None, None]], kernel_shape=[2, 3]),
    microsoft(
        "MaxpoolWithMask",
        [waves(2, 3, 4, 5), SPOTS[None, None]],
        kernel_shape=[2, 2],
        strides=[2, 1],
        pads=[1, 0, 1, 1],
        storage_order=0,
    ),
    microsoft("MaxpoolWithMask", [waves(1, 2, 4, 5), SPOTS[None, None]], kernel_shape=[3, 2], auto_pad="SAME_UPPER"),
    microsoft("MaxpoolWithMask", [waves(2, 3, 5), SPOTS[:1, None]], kernel_shape=[2]),
    microsoft("MaxpoolWithMask", [waves(1, 2, 4, 5, 3), np.stack([SPOTS] * 3, -1)[None, None]], kernel_shape=[2, 2, 2]),
    microsoft("MaxpoolWithMask", [waves(1, 1, 2, 3), SPOTS[None, None, :2, :3]], meaning=masked_max),
    # The kernel takes the wrong elements of a mask for each channel: it counts channels as if they were elements.
    microsoft(
        "MaxpoolWithMask",
        [waves(2, 2, 4, 5), np.stack([SPOTS, 1 - SPOTS])[None]],
        kernel_shape=[2, 3],
        meaning=masked_max,
    ),
]
