"""Templates of src/ops/contrib/experts.cpp."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import ml_dtypes
import numpy as np
from scipy.special import expit, softmax

from ..making import floats, ints, microsoft, waves, whole
from .block_quantization import E2M1, blocks, codes, scales, unpacked

RANDOM = np.random.default_rng(5)
TOKENS, HIDDEN, INTER, EXPERTS = 6, 8, 4, 5
X = waves(TOKENS, HIDDEN)
ROUTER = (RANDOM.permutation(TOKENS * EXPERTS).reshape(TOKENS, EXPERTS) / 8).astype(np.float32)


def weights(*shape: int) -> np.ndarray:
    return (RANDOM.integers(-15, 16, (EXPERTS, *shape)) / 16).astype(np.float32)


FC1, FC2, FC3 = weights(INTER, HIDDEN), weights(HIDDEN, INTER), weights(INTER, HIDDEN)
FC1_BIAS, FC2_BIAS, FC3_BIAS = weights(INTER), weights(HIDDEN), weights(INTER)
WIDE_FC1, WIDE_BIAS = weights(2 * INTER, HIDDEN), weights(2 * INTER)

# --- What an expert computes, and who is asked ---


def plain(activation: Callable[[np.ndarray], np.ndarray]):
    return lambda y, z: activation(y) if z is None else activation(y) * z


def swiglu(fusion: int, alpha: float = 1.0, beta: float = 0.0, limit: float = np.inf):
    def function(y, z):
        gate, linear = {0: (y, z), 1: (y[..., ::2], y[..., 1::2]), 2: np.split(y, 2, -1)}[fusion]
        gate = np.minimum(gate, limit)
        return gate * expit(alpha * gate) * (np.clip(linear, -limit, limit) + beta)

    return function


def relu(x: np.ndarray) -> np.ndarray:
    return np.maximum(x, 0)


def silu(x: np.ndarray) -> np.ndarray:
    return x * expit(x)


def shares_of_all(scores: np.ndarray, k: int) -> np.ndarray:
    """Chooses the k best, by their share among all."""
    shares = softmax(scores, -1)
    return np.where(shares >= np.sort(shares, -1)[:, -k, None], shares, 0)


def shares_of_best(scores: np.ndarray, k: int) -> np.ndarray:
    shares = shares_of_all(scores, k)
    return shares / shares.sum(-1, keepdims=True)


def sparse_mixer(scores: np.ndarray, k: int) -> np.ndarray:
    """Chooses k times the best that is left, by its share among those that are not 2 % below it."""
    shares = np.zeros_like(scores)
    for row, share in zip(scores, shares, strict=True):
        left = np.full(len(row), True)
        for _ in range(k):
            best = np.flatnonzero(left)[row[left].argmax()]
            near = left & (row[best] - row <= 0.02 * np.maximum(np.abs(row), row[best]))
            share[best] = 1 / np.exp(row[near] - row[best]).sum()
            left[best] = False
    return shares


def mixed(x, shares, fc1, fc2, fc3=(None, None), activation=None) -> np.ndarray:
    """Sums the outputs of all experts by their shares; each product is a weight and a bias."""

    def product(rows, e, weight, bias):
        return rows @ weight[e].T + (0 if bias is None else bias[e])

    rows = x.reshape(-1, x.shape[-1])
    activation = activation or plain(relu)
    outputs = [
        product(activation(product(rows, e, *fc1), None if fc3[0] is None else product(rows, e, *fc3)), e, *fc2)
        for e in range(len(fc1[0]))
    ]
    return np.einsum("te,eth->th", shares, np.stack(outputs)).reshape(x.shape)


def wide(case: Any) -> list[Any]:
    """Gives all inputs of the node, in double precision, None where absent."""
    values = iter(case.inputs)
    return [np.asarray(next(values)).astype(np.float64) if name else None for name in case.model.graph.node[-1].input]


def moe(routing, k: int = 2, **rest):
    def meaning(case):
        x, scores, w1, b1, w2, b2, w3, b3 = [*wide(case), None, None, None, None][:8]
        return [mixed(x, routing(scores, k), (w1, b1), (w2, b2), (w3, b3), **rest)]

    return meaning


MOE_ROWS = [
    # onnxruntime's kernel for float16 does not transpose the weights.
    microsoft("MoE", [X, ROUTER, FC1, None, FC2], meaning=moe(shares_of_all, k=1)),
    microsoft("MoE", [X, ROUTER, FC1, None, FC2]),
    microsoft("MoE", [X.reshape(2, 3, HIDDEN), ROUTER, FC1, FC1_BIAS, FC2, FC2_BIAS], k=3),
    microsoft("MoE", [X, ROUTER, FC1, FC1_BIAS, FC2, None], k=2, normalize_routing_weights=1),
    # The last of equal experts is chosen.
    microsoft("MoE", [X, ROUTER.round() % 2, FC1, None, FC2], k=2),
    microsoft("MoE", [X, ROUTER, FC1, None, FC2], k=EXPERTS),
    microsoft("MoE", [X[:0], ROUTER[:0], FC1, None, FC2], k=2),
    *(
        microsoft("MoE", [X, ROUTER, FC1, FC1_BIAS, FC2, FC2_BIAS], k=2, activation_type=activation)
        for activation in ("relu", "gelu", "silu", "identity")
    ),
    microsoft(
        "MoE",
        [X, ROUTER, WIDE_FC1, WIDE_BIAS, FC2],
        k=2,
        activation_type="swiglu",
        swiglu_fusion=1,
        activation_alpha=1.75,
        activation_beta=1.0,
        swiglu_limit=0.75,
    ),
    microsoft("MoE", [X, ROUTER, WIDE_FC1, None, FC2], k=2, activation_type="swiglu", swiglu_fusion=1),
    # Old files have the sizes in this order.
    microsoft("MoE", [X, ROUTER, FC1.reshape(EXPERTS, HIDDEN, INTER), None, FC2.reshape(EXPERTS, INTER, HIDDEN)], k=2),
    # onnxruntime's kernel takes neither two halves nor FC3, and does not read use_sparse_mixer.
    microsoft(
        "MoE",
        [X, ROUTER, WIDE_FC1, WIDE_BIAS, FC2],
        k=2,
        activation_type="swiglu",
        swiglu_fusion=2,
        meaning=moe(shares_of_all, activation=swiglu(2)),
    ),
    microsoft(
        "MoE",
        [X, ROUTER, FC1, FC1_BIAS, FC2, FC2_BIAS, FC3, FC3_BIAS],
        k=2,
        activation_type="swiglu",
        swiglu_limit=0.5,
        activation_beta=0.5,
        meaning=moe(shares_of_all, activation=swiglu(0, beta=0.5, limit=0.5)),
    ),
    microsoft(
        "MoE",
        [X, ROUTER, FC1, None, FC2, None, FC3],
        k=2,
        activation_type="silu",
        meaning=moe(shares_of_all, activation=plain(silu)),
    ),
    microsoft(
        "MoE",
        [X, ROUTER / 64 + 1, FC1, None, FC2],
        k=2,
        use_sparse_mixer=1,
        meaning=moe(sparse_mixer),
    ),
]


# --- QMoE ---

WIDTH = 32  # of tokens and experts alike, of two blocks of 16
QX = waves(TOKENS, WIDTH)


def dequantized(stored: np.ndarray, scale, zeros, bits: int, block_size: int) -> np.ndarray:
    numbers = unpacked(stored, bits)
    zeros = 2 ** (bits - 1) if zeros is None else zeros
    each = functools.partial(np.repeat, repeats=block_size or numbers.shape[-1], axis=-1)
    if zeros is not None and np.ndim(zeros) == 2:
        zeros = unpacked(zeros, bits)[:, : numbers.shape[1], None]
    elif np.ndim(zeros) == 3:
        zeros = each(unpacked(zeros, bits)[:, :, : scale.shape[-1]])[..., : numbers.shape[-1]]
    scale = each(scale if scale.ndim == 3 else scale[..., None])[..., : numbers.shape[-1]]
    return (numbers - zeros) * scale


def qmoe(routing=shares_of_best, k: int = 2, bits=(4, 4, 4), block_size: int = 0, weight=dequantized, **rest):
    def meaning(case):
        given = [*wide(case), *[None] * 21][:21]
        x, scores = given[:2]
        products = []
        for i, first in enumerate((2, 5, 8)):
            w, scale, bias = given[first : first + 3]
            w = None if w is None else weight(w, scale, given[11 + i], bits[i], block_size)
            products.append((w, bias))
        return [mixed(x, routing(scores, k), *products, **rest)]

    return meaning


def quantized(bits: int, block_size: int = 0, rows: int = WIDTH) -> list[np.ndarray]:
    """Makes a weight and its scales."""
    shape = (EXPERTS, rows, blocks(WIDTH, block_size)) if block_size else (EXPERTS, rows)
    return [codes(EXPERTS, rows, WIDTH * bits // 8), scales(*shape) / 2 ** (bits - 2)]


def zeros(bits: int, block_size: int = 0, rows: int = WIDTH) -> np.ndarray:
    if block_size == 0:
        return codes(EXPERTS, blocks(rows * bits, 8))
    return codes(EXPERTS, rows, blocks(blocks(WIDTH, block_size) * bits, 8))


QBIAS = (RANDOM.integers(-15, 16, (EXPERTS, WIDTH)) / 4).astype(np.float32)
ROUTER_WEIGHTS = (RANDOM.integers(-4, 8, (TOKENS, EXPERTS)) / 8).astype(np.float32)


def row(*products: Any, x=QX, zero_points=(None, None, None), router_weights=None, last=(), k: int = 2, **rest):
    """Makes a row of QMoE, whose products are each a weight, its scales, and its bias where it has one."""
    inputs: list[Any] = [x, ROUTER]
    for product in products:
        inputs += [*product, None][:3]
    inputs += [None] * (11 - len(inputs))
    return microsoft("QMoE", [*inputs, *zero_points, router_weights, *last], k=k, **rest)


E4M3 = ml_dtypes.float8_e4m3fn
GLOBAL = [floats(1, 0.5, 2, 0.25, 4), floats(0.5, 1, 0.25, 2, 1)]


def float8(rows: int = WIDTH) -> np.ndarray:
    return (RANDOM.integers(-15, 16, (EXPERTS, rows, WIDTH)) / 8).astype(E4M3)


def in_squares(block_size: int):
    def weight(stored, scale, *_):
        rows = np.repeat(scale, block_size, 1)[:, : stored.shape[1]]
        return stored * np.repeat(rows, block_size, 2)[..., : stored.shape[2]]

    return weight


def in_units(stored, unit, *_):
    return stored * unit[:, None, None]


def of_float8(case):
    """Computes the experts with scales of whole experts."""
    given = wide(case)
    x, scores, w1, w2 = given[0], given[1], given[2], given[5]
    units = given[15:17]
    return [mixed(x, shares_of_best(scores, 2), (in_units(w1, units[0]), None), (in_units(w2, units[1]), None))]


def of_float4(block_size: int):
    def meaning(case):
        given = wide(case)
        products = []
        for first, unit in [(2, given[15]), (5, given[16])]:
            numbers = E2M1[unpacked(given[first], 4)]
            products.append((numbers * np.repeat(given[first + 1], block_size, 2) * unit[:, None, None], None))
        return [mixed(given[0], shares_of_best(given[1], 2), *products)]

    return meaning


def powers(*shape: int) -> np.ndarray:
    return (2.0 ** RANDOM.integers(-4, 1, shape)).astype(ml_dtypes.float8_e8m0fnu)


def small(*shape: int) -> np.ndarray:
    return (RANDOM.integers(1, 9, shape) / 8).astype(E4M3)


FP4_SCALES = [powers(EXPERTS, WIDTH, 1), powers(EXPERTS, WIDTH, 1)]
SQUARES = [scales(EXPERTS, 2, 2), scales(EXPERTS, 2, 2)]
FP4 = [codes(EXPERTS, WIDTH, WIDTH // 2), codes(EXPERTS, WIDTH, WIDTH // 2)]


INT_ROWS = [
    # These have both types of weights.
    row(
        quantized(8),
        quantized(8),
        last=GLOBAL,
        expert_weight_bits=8,
        quant_type=lambda types, _: "fp8" if types["T1"] == "tensor(float8e4m3fn)" else "int",
        meaning=lambda case: (of_float8 if case.inputs[2].dtype == E4M3 else qmoe(bits=(8, 8, 8)))(case),
    ),
    row(quantized(4), quantized(4)),
    row(quantized(4), quantized(4), k=1, x=QX.reshape(2, 3, WIDTH)),
    microsoft("QMoE", [QX, ROUTER, *quantized(4), None, *quantized(4)]),
    *(row([*quantized(bits), QBIAS], quantized(bits), expert_weight_bits=bits) for bits in (2, 4, 8)),
    *(
        row(quantized(bits, 16), [*quantized(bits, 16), QBIAS], expert_weight_bits=bits, block_size=16)
        for bits in (2, 4, 8)
    ),
    *(
        row(
            quantized(bits),
            quantized(bits),
            zero_points=(zeros(bits), zeros(bits)),
            expert_weight_bits=bits,
            normalize_routing_weights=1,
        )
        for bits in (2, 4, 8)
    ),
    *(
        row(
            quantized(bits, 16),
            quantized(bits, 16),
            zero_points=(zeros(bits, 16), zeros(bits, 16)),
            expert_weight_bits=bits,
            block_size=16,
            weights_prepacked=0,
        )
        for bits in (2, 4, 8)
    ),
    row(quantized(4), quantized(4), accuracy_level=4),
    row(quantized(4), quantized(4), router_weights=ROUTER_WEIGHTS),
    row(quantized(4), quantized(4), router_weights=ROUTER_WEIGHTS + 1, normalize_routing_weights=1, k=3),
    row(
        quantized(8, rows=2 * WIDTH),
        quantized(8),
        activation_type="swiglu",
        swiglu_fusion=1,
        swiglu_limit=2.0,
        activation_alpha=1.75,
        activation_beta=1.0,
        expert_weight_bits=8,
    ),
    *(row(quantized(4), quantized(4), activation_type=activation) for activation in ("gelu", "silu", "identity")),
    row(quantized(4), quantized(4), k=EXPERTS),
    # onnxruntime's kernel takes no weights of different bits and no FC3, and does not read use_sparse_mixer.
    row(
        quantized(8),
        quantized(2),
        fc1_expert_weight_bits=8,
        fc2_expert_weight_bits=2,
        meaning=qmoe(bits=(8, 2, 4)),
    ),
    row(
        [*quantized(4), QBIAS],
        quantized(4),
        [*quantized(8), QBIAS[::-1].copy()],
        fc3_expert_weight_bits=8,
        activation_type="silu",
        meaning=qmoe(bits=(4, 4, 8), activation=plain(silu)),
    ),
    row(
        quantized(4, 16),
        quantized(4, 16),
        quantized(4, 16),
        zero_points=(None, None, zeros(4, 16)),
        block_size=16,
        activation_type="swiglu",
        meaning=qmoe(block_size=16, activation=swiglu(0)),
    ),
    row(quantized(4), quantized(4), use_sparse_mixer=1, meaning=qmoe(sparse_mixer)),
]

FLOAT_ROWS = [
    row(
        [float8(), SQUARES[0]],
        [float8(), SQUARES[1]],
        quant_type="fp8",
        block_size=20,
        expert_weight_bits=8,
        meaning=qmoe(weight=in_squares(20)),
    ),
    row([float8(), None], [float8(), None], last=GLOBAL, quant_type="fp8", expert_weight_bits=8, meaning=of_float8),
    row([FP4[0], FP4_SCALES[0]], [FP4[1], FP4_SCALES[1]], last=GLOBAL, quant_type="fp4", meaning=of_float4(32)),
    row(
        [FP4[0], small(EXPERTS, WIDTH, 2)],
        [FP4[1], small(EXPERTS, WIDTH, 2)],
        last=GLOBAL,
        quant_type="nvfp4",
        meaning=of_float4(16),
    ),
    row(
        [FP4[0], FP4_SCALES[0]],
        [FP4[1], FP4_SCALES[1]],
        last=[*GLOBAL, floats(0.5), floats(2), powers(EXPERTS, TOKENS, 1), powers(EXPERTS, TOKENS, 1)],
        quant_type="wfp4afp8",
        meaning=of_float4(32),
    ),
]


# --- Training ---

TABLE = whole(5, 3)
NAN, INF = floats(1, np.nan), floats(-np.inf, 2)


def finite(*flags: bool):
    return lambda case: [np.array(all(flags))]


TRAINING_ROWS = [
    microsoft("TorchEmbedding", [TABLE, ints([4, 0], [1, 1])], meaning=lambda case: [case.inputs[0][case.inputs[1]]]),
    microsoft("TorchEmbedding", [TABLE, ints(2, 3), ints(2)[0]], meaning=lambda case: [case.inputs[0][[2, 3]]]),
    microsoft(
        "TorchEmbedding",
        [TABLE, np.zeros((2, 0), np.int64), ints(-1)[0], np.array(True)],
        meaning=lambda case: [case.inputs[0][:0].reshape(2, 0, 3)],
    ),
    microsoft("IsAllFinite", [X, TABLE], meaning=finite(True)),
    microsoft("IsAllFinite", [X, INF], meaning=finite(False)),
    microsoft("IsAllFinite", [NAN, X], meaning=finite(False)),
    microsoft("IsAllFinite", [X, NAN], isinf_only=1, meaning=finite(True)),
    microsoft("IsAllFinite", [X, INF], isinf_only=1, meaning=finite(False)),
    microsoft("IsAllFinite", [INF], isnan_only=1, meaning=finite(True)),
    microsoft("IsAllFinite", [INF, NAN], isnan_only=1, meaning=finite(False)),
]

EXPERTS_ROWS = [*MOE_ROWS, *INT_ROWS, *FLOAT_ROWS, *TRAINING_ROWS]
