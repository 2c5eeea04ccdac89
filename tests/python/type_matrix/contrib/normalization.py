"""Templates of src/ops/contrib/normalization.cpp."""

from __future__ import annotations

import functools

import numpy as np
from scipy.special import expit

from ..making import floats, microsoft, row, waves
from ..modern import formula, rounded

X = waves(2, 3, 4, scale=3.0)
SKIP = X[::-1].copy() + 0.5
GAMMA, BETA, BIAS = floats(1, 2, 0.5, -1), floats(0.5, -1, 0, 2), floats(3, 1, -2, 0.25)


def int32s(*values) -> np.ndarray:
    return np.array(values, np.int32)


def layer_norm(x: np.ndarray, epsilon: float = 1e-5) -> np.ndarray:
    return (x - x.mean(-1, keepdims=True)) / np.sqrt(x.var(-1, keepdims=True) + epsilon)


def rms_norm(x: np.ndarray, epsilon: float = 1e-5) -> np.ndarray:
    return x / np.sqrt((x**2).mean(-1, keepdims=True) + epsilon)


def simplified(case) -> list[np.ndarray]:
    x, scale = (np.asarray(value).astype(np.float64) for value in case.inputs)
    return [rms_norm(x) * scale, 1 / np.sqrt((x**2).mean(-1, keepdims=True) + 1e-5)]


# --- Embeddings ---

IDS, SEGMENTS = int32s([1, 2, 0], [2, 2, 1]), int32s([0, 1, 1], [1, 0, 0])
WORDS, POSITIONS, SEGMENT_EMBEDDING = waves(4, 4), waves(6, 4, scale=2.0)[:, ::-1].copy(), waves(2, 4) + 1
EMBEDDING = [IDS, SEGMENTS, WORDS, POSITIONS, SEGMENT_EMBEDDING, GAMMA, BETA]
WITHOUT_SEGMENTS = [IDS, None, WORDS, POSITIONS, None, GAMMA, BETA]
MASK = int32s([1, 0, 2], [1, 1, 1])


def embedding(*inputs, outputs: int = 2, **rest):
    return microsoft("EmbedLayerNormalization", list(inputs), outputs=outputs, **rest)


def q_embedding(dtype: type, segments: bool = True, mask: np.ndarray | None = None, **rest):
    tables = [np.arange(np.prod(shape)).reshape(shape) * 5 % 17 for shape in ((4, 4), (6, 4), (2, 4), (4,), (4,))]
    scales = [np.float32(0.25), np.float32(0.5), floats(0.125), np.float32(1), np.float32(0.25)]
    zeros = [dtype(3), dtype(0), np.array([2], dtype), dtype(7), dtype(1)]
    present = [SEGMENTS, *[table.astype(dtype) for table in tables]]
    if not segments:
        present[0] = present[3] = scales[2] = zeros[2] = None
    return microsoft("QEmbedLayerNormalization", [IDS, *present, mask, *scales, *zeros], outputs=2, **rest)


# --- Group normalization ---

IMAGES = waves(2, 3, 5, 4, scale=3.0)
SILU = {"activation": 1, "groups": 2}


def group_norm(groups: int, channels_last: bool = True, activation: int = 0, epsilon: float = 1e-5, outputs: int = 1):
    def function(case) -> list[np.ndarray]:
        x, gamma, beta, *rest = (np.asarray(value).astype(np.float64) for value in case.inputs)
        added = [value if value.ndim == 4 else value.reshape(*value.shape[:-1], 1, 1, -1) for value in rest]
        if not channels_last:
            x = np.moveaxis(x, 1, -1)
            added = [np.moveaxis(a, 1, -1) if r.ndim == 4 else a for a, r in zip(added, rest, strict=True)]
        total = sum(added, x)
        grouped = total.reshape(total.shape[0], total[0, ..., 0].size, groups, -1) if total.size else total[..., None]
        centered = grouped - grouped.mean((1, 3), keepdims=True)
        y = centered / np.sqrt((centered**2).mean((1, 3), keepdims=True) + epsilon)
        y = y.reshape(total.shape) * gamma + beta
        y = y * expit(y) if activation else y
        return [y if channels_last else np.moveaxis(y, -1, 1) for y in (y, total)][:outputs]

    return function


# --- RMS normalization with gates ---

STREAMS = waves(2, 3, 4, 5)  # of four branches and five features
FLAT = STREAMS.reshape(2, 3, 20)
GATES, FEATURE_GATES = waves(2, 3, 4) + 0.5, waves(2, 3, 4, 5)[::-1].copy() + 0.25
NORM_SCALE = waves(4, 5) + 2


def gated_rms_norm(activation):
    def function(x: np.ndarray, scale: np.ndarray, gate: np.ndarray) -> np.ndarray:
        groups = x.reshape(*x.shape[:-1], -1, scale.size)
        return (rms_norm(groups) * scale).reshape(x.shape) * activation(gate)

    return function


# --- 8 bits ---

Q = (np.arange(24).reshape(2, 3, 4) * 37 % 255 - 127).astype(np.int8)
Q_SCALES = [np.float32(0.125), GAMMA, None, np.float32(0.01)]


def q_ordered(x: np.ndarray, scale_x: float, gamma: np.ndarray, *rest: np.ndarray, epsilon: float = 1e-5) -> np.ndarray:
    *beta, scale_y = rest
    y = layer_norm(x * scale_x, epsilon) * gamma + sum(beta)
    return np.clip(np.rint(y / scale_y), -128, 127)


# --- Dropout ---


def packed(count: int) -> np.ndarray:
    """Packs the mask of so many elements that are kept."""
    words = [min(32, count - first) for first in range(0, count, 32)]
    return np.array([2**bits - 1 for bits in words], np.uint32)


def kept(function, mask=None):
    """Gives the meaning where nothing is dropped: a function of the data, and what is true for each element."""
    make = mask or (lambda y: np.ones(y.shape, bool))

    def meaning(case) -> list[np.ndarray]:
        y = formula(function)(case)[0]
        return [y, make(y)][: len(case.output_types)]

    return meaning


def bitmask(y: np.ndarray) -> np.ndarray:
    return packed(y.size)


TRAINING = np.array(True)  # with a ratio of zero
NO_TRAINING = [np.float32(0.5), np.array(False)]
WIDE = waves(5, 9)  # its mask ends within a number
WIDE_BIAS, RESIDUAL = waves(9) + 1, WIDE[::-1].copy()

NORMALIZATION_ROWS = [
    row("LayerNormalization", [X, GAMMA, BETA], last=1),
    row("LayerNormalization", [X, GAMMA, BETA], last=1, outputs=3, epsilon=0.25, stash_type=1),
    row("LayerNormalization", [X, GAMMA], last=1),
    row("LayerNormalization", [X, waves(3, 4), waves(3, 4)], last=1, axis=1),
    row("LayerNormalization", [X, GAMMA], last=1, outputs=2),
    row("LayerNormalization", [X[:0], GAMMA, BETA], last=1, outputs=3),
    # These outputs are of other types than X, for which onnxruntime has no kernel.
    row("SimplifiedLayerNormalization", [X, GAMMA], outputs=2, only="/[UV]/.*double", meaning=simplified),
    row("SimplifiedLayerNormalization", [X, GAMMA]),
    row("SimplifiedLayerNormalization", [X, GAMMA], outputs=2, epsilon=0.25, stash_type=1),
    row("SimplifiedLayerNormalization", [X, waves(3, 4)], outputs=2, axis=-2),
    row("SimplifiedLayerNormalization", [X[:, :0], GAMMA], outputs=2),
    microsoft("SkipLayerNormalization", [X, SKIP, GAMMA, BETA]),
    microsoft("SkipLayerNormalization", [X, SKIP, GAMMA, BETA, BIAS], epsilon=0.25),
    microsoft("SkipLayerNormalization", [X, SKIP, GAMMA, None, BIAS], outputs=4),
    microsoft("SkipLayerNormalization", [X, SKIP[0], GAMMA], outputs=4),
    microsoft("SkipLayerNormalization", [X, SKIP[:1], GAMMA, BETA], outputs=4),
    microsoft("SkipLayerNormalization", [X[0], SKIP[0], GAMMA, BETA], outputs=3),
    microsoft("SkipLayerNormalization", [X[:0], SKIP[:0], GAMMA, BETA], outputs=4),
    microsoft("SkipSimplifiedLayerNormalization", [X, SKIP, GAMMA]),
    microsoft("SkipSimplifiedLayerNormalization", [X, SKIP, GAMMA, BIAS], epsilon=0.25),
    microsoft("SkipSimplifiedLayerNormalization", [X, SKIP[0], GAMMA, BIAS], outputs=4),
    microsoft("SkipSimplifiedLayerNormalization", [X[0], SKIP[0], GAMMA], outputs=3),
    microsoft("SkipSimplifiedLayerNormalization", [X[:, :0], SKIP[:, :0], GAMMA, BIAS], outputs=4),
    embedding(*EMBEDDING),
    embedding(*EMBEDDING, MASK, outputs=3, mask_index_type=1, epsilon=0.25),
    embedding(*EMBEDDING, None, int32s([5, 0, 1]), outputs=3),
    embedding(*WITHOUT_SEGMENTS, MASK, int32s([3, 2, 5], [1, 1, 0])),
    embedding(*WITHOUT_SEGMENTS, outputs=1, mask_index_type=0),
    embedding(IDS, None, *EMBEDDING[2:], outputs=3),
    embedding(IDS[:, :0], None, *WITHOUT_SEGMENTS[2:]),
    q_embedding(np.uint8),
    q_embedding(np.int8, mask=MASK, epsilon=0.25),
    q_embedding(np.uint8, segments=False, mask=MASK),
    microsoft("GroupNorm", [IMAGES, GAMMA, BETA], groups=2, activation=0, meaning=group_norm(2)),
    microsoft("GroupNorm", [IMAGES, GAMMA, BETA], epsilon=0.25, meaning=group_norm(2, True, 1, 0.25), **SILU),
    microsoft(
        "GroupNorm",
        [IMAGES, floats(1, -2, 3), floats(0, 1, 2)],
        groups=3,
        activation=0,
        channels_last=0,
        meaning=group_norm(3, False),
    ),
    microsoft("GroupNorm", [IMAGES[:0], GAMMA, BETA], meaning=group_norm(2, True, 1), **SILU),
    microsoft(
        "SkipGroupNorm",
        [IMAGES, GAMMA, BETA, IMAGES[::-1].copy() + 1, BIAS],
        outputs=2,
        epsilon=0.25,
        meaning=group_norm(2, True, 1, 0.25, 2),
        **SILU,
    ),
    microsoft("SkipGroupNorm", [IMAGES, GAMMA, BETA, waves(2, 4)], meaning=group_norm(2, True, 1), **SILU),
    microsoft("SkipGroupNorm", [IMAGES, GAMMA, BETA, waves(2, 1, 1, 4)], meaning=group_norm(2, True, 1), **SILU),
    microsoft(
        "SkipGroupNorm",
        [IMAGES, floats(1, -2, 3), floats(0, 1, 2), waves(2, 3, 1, 1), floats(1, 2, 0)],
        outputs=2,
        groups=1,
        activation=0,
        channels_last=0,
        meaning=group_norm(1, False, outputs=2),
    ),
    microsoft("QOrderedLayerNormalization", [Q, *Q_SCALES], meaning=rounded(q_ordered)),
    microsoft("QOrderedLayerNormalization", [Q, *Q_SCALES[:2], BETA, Q_SCALES[3]], meaning=rounded(q_ordered)),
    microsoft(
        "QOrderedLayerNormalization",
        [Q, *Q_SCALES],
        axis=2,
        epsilon=0.25,
        order_X=1,
        order_Y=1,
        meaning=rounded(functools.partial(q_ordered, epsilon=0.25)),
    ),
    microsoft("GatedRMSNorm", [X, GAMMA, SKIP]),
    microsoft("GatedRMSNorm", [X, floats(0.5, 3), SKIP], activation="sigmoid", epsilon=0.25),
    microsoft("GatedRMSNorm", [X, GAMMA, SKIP], activation="swish"),
    microsoft("GatedRMSNorm", [X[:0], GAMMA, SKIP[:0]]),
    microsoft("BranchwiseRMSNorm", [STREAMS]),
    microsoft("BranchwiseRMSNorm", [STREAMS, NORM_SCALE], epsilon=0.25),
    microsoft("BranchwiseRMSNorm", [STREAMS, NORM_SCALE[0]]),
    microsoft("BranchwiseRMSNorm", [FLAT, NORM_SCALE.ravel()], num_branches=4),
    microsoft("BranchwiseRMSNorm", [FLAT[:0], NORM_SCALE], num_branches=4),
    microsoft("HyperConnectionPreMix", [STREAMS, GATES]),
    microsoft("HyperConnectionPreMix", [STREAMS, GATES[..., None]], reduction_scale=0.5),
    microsoft("HyperConnectionPreMix", [STREAMS, FEATURE_GATES]),
    microsoft("HyperConnectionPreMix", [FLAT, GATES], num_branches=4),
    microsoft("HyperConnectionPreMix", [FLAT, FEATURE_GATES], num_branches=4),
    microsoft(
        "HyperConnectionPreMix",
        [FLAT, FEATURE_GATES.reshape(2, 3, 20)],
        num_branches=4,
        meaning=formula(lambda x, gates: (x * gates).reshape(2, 3, 4, 5).sum(-2)),
    ),
    microsoft("HyperConnectionPreMix", [STREAMS[:0], GATES[:0]]),
    microsoft("HyperConnectionPostMix", [STREAMS, waves(2, 3, 5), GATES]),
    microsoft("HyperConnectionPostMix", [STREAMS, waves(2, 3, 5), GATES[..., None], waves(2, 3, 4, 4)]),
    microsoft("HyperConnectionPostMix", [FLAT, waves(2, 3, 5), FEATURE_GATES, waves(2, 3, 4, 4)], num_branches=4),
    microsoft("EngramGate", [STREAMS, FEATURE_GATES, waves(2, 3, 5), NORM_SCALE, NORM_SCALE[::-1].copy()]),
    microsoft(
        "EngramGate",
        [STREAMS, FEATURE_GATES, waves(2, 3, 5), NORM_SCALE, NORM_SCALE[::-1].copy(), waves(4, 5)],
        outputs=2,
        epsilon=0.25,
    ),
    # The gate of queries that have nothing in common with their keys is one half.
    microsoft("EngramGate", [STREAMS, STREAMS * 0, waves(2, 3, 5), NORM_SCALE, NORM_SCALE]),
    microsoft("BitmaskDropout", [WIDE], outputs=2, seed=1, meaning=kept(lambda x: x, bitmask)),
    microsoft("BitmaskDropout", [WIDE, *NO_TRAINING], meaning=kept(lambda x, *_: x)),
    microsoft("BitmaskDropout", [WIDE[:0], *NO_TRAINING], outputs=2, meaning=kept(lambda x, *_: x, bitmask)),
    # These are in training with a ratio of zero.
    microsoft(
        "BitmaskDropout", [WIDE, np.float32(0), np.array(True)], outputs=2, meaning=kept(lambda x, *_: x, bitmask)
    ),
    *[
        microsoft(op, [WIDE, *inputs], meaning=kept(function, mask), **rest)
        for op, mask in (("BiasDropout", None), ("BitmaskBiasDropout", bitmask))
        for inputs, function, rest in (
            ([WIDE_BIAS], lambda x, bias: x + bias, {"outputs": 2, "seed": 1}),
            ([WIDE_BIAS, RESIDUAL, *NO_TRAINING], lambda x, bias, residual, *_: x + bias + residual, {}),
            ([RESIDUAL, None, *NO_TRAINING], lambda x, bias, *_: x + bias, {"outputs": 2}),
        )
    ],
]
