"""Templates of src/ops/contrib/activation.cpp."""

from __future__ import annotations

import numpy as np
from scipy.special import erf, softmax

from ..making import floats, microsoft, waves
from ..modern import formula

X = waves(2, 3, 4, scale=3.0)
EMPTY = np.zeros((0, 4), np.float32)
BIAS = floats(0.5, -1, 0, 2)


def gelu(x: np.ndarray) -> np.ndarray:
    return x * (1 + erf(x / np.sqrt(2))) / 2


def fast_gelu(x: np.ndarray, bias: np.ndarray) -> np.ndarray:
    x = x + bias
    return x / 2 * (1 + np.tanh(np.sqrt(2 / np.pi) * (x + 0.044715 * x**3)))


def bias_split_gelu(x: np.ndarray, bias: np.ndarray) -> np.ndarray:
    left, right = np.split(x + bias, 2, -1)
    return left * gelu(right)


def bias_softmax(axis: int):
    return lambda x, bias: softmax(x + bias, axis=tuple(range(axis, x.ndim)))


ACTIVATION_ROWS = [
    # onnxruntime has no kernel for double, or one with coefficients in float.
    microsoft("Gelu", [X], only="double", meaning=formula(gelu)),
    microsoft("BiasGelu", [X, BIAS], only="double", meaning=formula(lambda x, bias: gelu(x + bias))),
    microsoft("FastGelu", [X, BIAS], only="double", meaning=formula(fast_gelu)),
    # These are compared with onnxruntime.
    microsoft("Gelu", [X]),
    microsoft("Gelu", [EMPTY]),
    microsoft("BiasGelu", [X, BIAS]),
    microsoft("FastGelu", [X]),
    microsoft("FastGelu", [X, BIAS]),
    microsoft("QuickGelu", [X]),
    microsoft("QuickGelu", [X], alpha=-0.5),
    microsoft("ScaledSiLU", [X]),
    microsoft("ScaledSiLU", [X], alpha=0.5),
    microsoft("ScaledSiLU", [X, floats(2)[0]], alpha=0.5),
    microsoft("GatedAdd", [X, X[::-1].copy(), waves(2, 3, 1)]),
    # onnxruntime has no kernel for the CPU.
    microsoft("BiasAdd", [X, BIAS, X[::-1].copy()], meaning=formula(lambda x, bias, skip: x + bias + skip)),
    microsoft("BiasSplitGelu", [X, BIAS], meaning=formula(bias_split_gelu)),
    microsoft("BiasSoftmax", [X, waves(2, 1, 4)], axis=2, is_inner_broadcast=1, meaning=formula(bias_softmax(2))),
    microsoft("BiasSoftmax", [X, waves(3, 4)], is_inner_broadcast=0, meaning=formula(bias_softmax(1))),
    microsoft("GemmFastGelu", [X, waves(4, 5)], meaning=formula(lambda x, w: fast_gelu(x @ w, np.zeros(5)))),
    microsoft("GemmFastGelu", [X, waves(4, 4), BIAS], meaning=formula(lambda x, w, b: fast_gelu(x @ w, b))),
]
