"""Templates of src/ops/contrib/attention.cpp."""

from __future__ import annotations

import itertools
import math
from typing import Any

import numpy as np
from scipy.special import expit, softmax

from ..making import floats, microsoft, waves
from ..modern import formula, rounded


def int32(*values: Any) -> np.ndarray:
    return np.array(values, np.int32)


def heads(x: np.ndarray, count: int) -> np.ndarray:
    """Splits [batch, sequence, count * size] into [batch, count, sequence, size]."""
    return x.reshape(*x.shape[:2], count, -1).transpose(0, 2, 1, 3)


def beside(x: np.ndarray) -> np.ndarray:
    """Joins the heads again, which is the opposite."""
    return x.transpose(0, 2, 1, 3).reshape(x.shape[0], x.shape[2], -1)


def attended(q: np.ndarray, k: np.ndarray, v: np.ndarray, added: Any = 0.0, scale: float = 0.0) -> np.ndarray:
    scores = q @ k.swapaxes(2, 3) * (scale or q.shape[3] ** -0.5) + added
    return softmax(scores, -1) @ v


# --- Attention ---

COUNT = 2
X, WEIGHTS, BIAS = waves(2, 3, 4), waves(4, 12, scale=1.5), waves(12)
PAST = waves(2, 2, 2, 2, 2, scale=1.2)
SCORE_BIAS = waves(1, 2, 3, 3, scale=2.0)
UNEQUAL = [X, waves(4, 14, scale=1.5), waves(14)]
WINDOW = int32([[[[1, 0, 1, 1, 1], [1, 1, 0, 1, 0], [1, 0, 1, 0, 1], [1, 0, 1, 1, 0], [0, 1, 1, 1, 1]]]] * 2)[0]


def projected_heads(x: np.ndarray, weights: np.ndarray, bias: Any = 0.0) -> list[np.ndarray]:
    return [heads(part, COUNT) for part in np.split(x @ weights + bias, 3, -1)]


def without_bias(x: np.ndarray, weights: np.ndarray) -> np.ndarray:
    return beside(attended(*projected_heads(x, weights)))


def megatron(x: np.ndarray, weights: np.ndarray, bias: np.ndarray, mask: np.ndarray, past: np.ndarray) -> np.ndarray:
    """Computes attention with a square mask of positions, of which the queries' are the rows after the past."""
    q, k, v = projected_heads(x, weights, bias)
    k, v = (np.concatenate(pair, 2) for pair in zip(past, (k, v), strict=True))
    keys, queries = k.shape[2], q.shape[2]
    return beside(attended(q, k, v, np.where(mask[:, :, keys - queries : keys, :keys] > 0, 0, -10000)))


def past_and_bias(x, weights, bias, past, score_bias) -> list[np.ndarray]:
    q, k, v = projected_heads(x, weights, bias)
    k, v = (np.concatenate(pair, 2) for pair in zip(past, (k, v), strict=True))
    return beside(attended(q, k, v, score_bias))


def shared(x, weights, bias, past, length) -> tuple[np.ndarray, np.ndarray]:
    """Computes attention with a past in a buffer that has room for more."""
    q, k, v = projected_heads(x, weights, bias)
    first, last = int(length[0]), int(length[0]) + q.shape[2]
    present = past.copy()
    present[:, :, :, first:last] = k, v
    causal = np.arange(last) > np.arange(first, last)[:, None]
    return beside(attended(q, *present[:, :, :, :last], np.where(causal, -np.inf, 0))), present


def turned(x: np.ndarray, past: int, dim: int) -> np.ndarray:
    """Turns pairs, whose two elements lie half of `dim` apart."""
    angle = (past + np.arange(x.shape[2])[:, None]) * 10000.0 ** (-np.arange(0, dim, 2) / dim)
    one, two, rest = x[..., : dim // 2], x[..., dim // 2 : dim], x[..., dim:]
    cos, sin = np.cos(angle), np.sin(angle)
    return np.concatenate([one * cos - two * sin, two * cos + one * sin, rest], -1)


def rotary(dim: int):
    def function(x, weights, bias, past=None) -> np.ndarray:
        q, k, v = projected_heads(x, weights, bias)
        length = 0 if past is None else past.shape[3]
        q, k = turned(q, length, dim or q.shape[3]), turned(k, length, dim or q.shape[3])
        if past is not None:
            k, v = (np.concatenate(pair, 2) for pair in zip(past, (k, v), strict=True))
        return beside(attended(q, k, v))

    return function


def outputs(function):
    """Gives the meaning that a formula of several outputs has."""
    return lambda case: list(function(*(np.asarray(x).astype(np.float64) for x in case.inputs)))


def attention(inputs: list[Any], **rest: Any):
    return microsoft("Attention", inputs, num_heads=COUNT, **rest)


WIDE = [waves(2, 3, 4), waves(4, 24, scale=1.5), waves(24)]  # heads of 4
WIDE_PAST = waves(2, 2, 2, 2, 4, scale=1.2)
LOWEST = float(np.finfo(np.float32).min)

FUSED_ROWS = [
    attention([X, WEIGHTS, BIAS]),
    attention([X, WEIGHTS, BIAS], outputs=2),
    attention([X, WEIGHTS, BIAS], unidirectional=1, outputs=2),
    attention([X, WEIGHTS, BIAS], unidirectional=1, scale=0.5),
    attention([X, WEIGHTS, BIAS], unidirectional=2),  # is not 1
    attention(UNEQUAL, qkv_hidden_sizes=[4, 4, 6]),
    # These have the forms of mask_index.
    attention([X, WEIGHTS, BIAS, int32(1, 2)]),
    attention([X, WEIGHTS, BIAS, int32(9, 2)], mask_filter_value=-2.5),
    attention([X, WEIGHTS, BIAS, int32(0, 3)], mask_filter_value=-2.5),
    attention([X, WEIGHTS, BIAS, int32(2, 3, -1, 1)]),
    attention([X, WEIGHTS, BIAS, int32(1, 3, 3, 1)], mask_filter_value=-2.5, unidirectional=1),
    attention([X, WEIGHTS, BIAS, int32(1, 2, 0, 3, 6, 0, 1, 3)]),
    attention([X, WEIGHTS, BIAS, int32([0], [1])]),
    attention([X, WEIGHTS, BIAS, int32([[0]])[0]]),
    attention([X[:, :1], WEIGHTS, BIAS, int32([0], [1])], mask_filter_value=-2.5),
    attention([X, WEIGHTS, BIAS, int32([0, 2, 1], [1, -1, 1])]),
    attention([X, WEIGHTS, BIAS, int32([0, 1, 1], [0, 0, 1])], mask_filter_value=LOWEST, unidirectional=1),
    attention([X, WEIGHTS, BIAS, int32([[1, 1, 0], [1, 0, 1], [0, 1, 0]], [[1, 0, 0], [1, 1, 0], [0, 0, 1]])]),
    attention([X, WEIGHTS, BIAS, int32([1, 0, 1, 1, 1], [1, 1, 1, 0, 1]), PAST], outputs=2),
    attention([X, WEIGHTS, BIAS, WINDOW[[0, 0]], PAST], outputs=1, meaning=formula(megatron)),  # its kernel refuses it
    # These have a past.
    attention([X, WEIGHTS, BIAS, None, PAST], outputs=2, unidirectional=1),
    attention([X[:, :1], WEIGHTS, BIAS, None, PAST], outputs=2, unidirectional=1),
    attention([X, WEIGHTS, BIAS, int32(2, 4), PAST], outputs=2, unidirectional=1, mask_filter_value=-2.5),
    attention([X, WEIGHTS, BIAS, None, PAST[:, :, :, :0]], outputs=2),
    attention(
        [X, WEIGHTS, BIAS, None, waves(2, 2, 2, 6, 2), None, int32(2)],
        outputs=2,
        unidirectional=1,
        past_present_share_buffer=1,
        meaning=outputs(shared),
    ),
    # These have a bias that is added to the scores.
    attention([X, WEIGHTS, BIAS, None, None, SCORE_BIAS]),
    attention([X, WEIGHTS, BIAS, int32(1, 2), None, waves(2, 1, 3, 3)], unidirectional=1),
    attention([X, WEIGHTS, BIAS, None, PAST, waves(2, 1, 3, 5)], meaning=formula(past_and_bias)),  # its kernel refuses
    # onnxruntime's kernel reads a bias that is not there.
    attention([X, WEIGHTS], meaning=formula(without_bias)),
    # onnxruntime's kernel for the CPU refuses do_rotary.
    attention(WIDE, do_rotary=1, meaning=formula(rotary(0))),
    attention([*WIDE, None, WIDE_PAST], do_rotary=1, rotary_embedding_dim=2, meaning=formula(rotary(2))),
    attention([X[:, :0], WEIGHTS, BIAS, None, PAST], outputs=2),
    attention([X[:0], WEIGHTS, BIAS], outputs=1),
]

# --- QAttention ---

STEPS = (np.arange(24).reshape(2, 3, 4) * 37 % 251).astype(np.uint8)
FACTORS = (np.arange(48).reshape(4, 12) * 29 % 251 - 125).astype(np.int8)
COLUMN_SCALES, COLUMN_ZEROS = floats(*(0.003 + 0.001 * np.arange(12))), (np.arange(12) % 5).astype(np.int8)
SCALES = [floats(0.02)[0], floats(0.01)[0]]


def signed_input(x, weight, bias, input_scale, weight_scale, zero) -> np.ndarray:
    return without_bias_of((x - zero) @ weight * (input_scale * weight_scale) + bias)


def without_bias_of(qkv: np.ndarray) -> np.ndarray:
    return beside(attended(*(heads(part, COUNT) for part in np.split(qkv, 3, -1))))


def q_attention(inputs: list[Any], **rest: Any):
    return microsoft("QAttention", inputs, num_heads=COUNT, **rest)


Q_ATTENTION_ROWS = [
    # onnxruntime has no kernel for the CPU.
    q_attention(
        [STEPS.view(np.int8), FACTORS, BIAS, *SCALES, None, np.int8(-9)],
        meaning=formula(signed_input),
        only="T1/tensor.int8",
    ),
    q_attention([STEPS, FACTORS, BIAS, *SCALES]),
    q_attention([STEPS, FACTORS.view(np.uint8), BIAS, *SCALES], outputs=2, scale=0.25),
    q_attention([STEPS, FACTORS, BIAS, *SCALES], do_rotary=1, past_present_share_buffer=1),  # neither does anything
    q_attention([STEPS, FACTORS, BIAS, SCALES[0], COLUMN_SCALES, None, np.uint8(101)], unidirectional=1),
    q_attention([STEPS, FACTORS, BIAS, *SCALES, None, None, np.int8(7)]),
    q_attention(
        [STEPS, FACTORS, BIAS, SCALES[0], COLUMN_SCALES, int32(2, 4), np.uint8(101), COLUMN_ZEROS, PAST],
        outputs=2,
        unidirectional=1,
        mask_filter_value=-2.5,
    ),
    q_attention([STEPS[:, :0], FACTORS, BIAS, *SCALES]),
    q_attention(  # of more terms than sums in float are exact for
        [
            np.tile(STEPS, 65),
            np.tile(FACTORS.T, 65).T.copy(),
            BIAS,
            floats(0.002)[0],
            floats(0.001)[0],
            int32([1, 1, 0], [1, 0, 1]),
        ],
    ),
]

# --- Biases by relative position ---


def bucket(distance: int, buckets: int, max_distance: int, is_bidirectional: bool) -> int:
    of_side = buckets // 2 if is_bidirectional else buckets
    first = of_side if is_bidirectional and distance > 0 else 0
    distance, exact = abs(distance), of_side // 2
    if distance < exact:
        return first + distance
    steps = math.log(distance / exact) / math.log(max_distance / exact) * (of_side - exact)
    return first + min(exact + int(steps), of_side - 1)


def relative_position_bias(max_distance: int, is_bidirectional: bool = False):
    def function(table: np.ndarray, queries: np.ndarray, keys: np.ndarray) -> np.ndarray:
        count, heads = table.shape
        distances = [[key - query for key in range(int(keys[0]))] for query in range(int(queries[0]))]
        buckets = [[bucket(d, count, max_distance, is_bidirectional) for d in row] for row in distances]
        return table.reshape(heads, count)[None, :, buckets].reshape(1, heads, int(queries[0]), int(keys[0]))

    return formula(function)


def gated_relative_position_bias(query, query_bias, rel_pos, weight, bias, eco_a, token_offset=None) -> np.ndarray:
    query = query if token_offset is None else restored(query, token_offset)
    gates = (heads(query + query_bias, COUNT) @ weight + bias).reshape(query.shape[0], COUNT, query.shape[1], 2, -1)
    u, r = np.split(expit(gates.sum(-1)), 2, -1)
    return (u * (r * eco_a - 1) + 2) * rel_pos


def restored(tokens: np.ndarray, token_offset: np.ndarray) -> np.ndarray:
    padded = np.zeros((token_offset.size, *tokens.shape[1:]))
    padded[token_offset.ravel().astype(int)[: len(tokens)]] = tokens
    return padded.reshape(*token_offset.shape, *tokens.shape[1:])


BUCKETS = waves(8, 2)
GATED = [waves(4), waves(1, 2, 3, 3), waves(2, 6), waves(6, scale=0.5), waves(1, 2, 1, 1, scale=2.0) + 0.5]
OFFSETS, ENDS = int32([0, 3, 4], [1, 2, 5]), int32(0, 1, 3)  # of sequences of 1 and 2 tokens

POSITION_ROWS = [
    microsoft(
        "RelativePositionBias",
        [BUCKETS, np.array([7]), np.array([7])],
        max_distance=6,
        meaning=relative_position_bias(6),
    ),
    microsoft(
        "RelativePositionBias",
        [BUCKETS, np.array([5]), np.array([8])],
        max_distance=5,
        is_bidirectional=1,
        meaning=relative_position_bias(5, True),
    ),
    microsoft(
        "RelativePositionBias",
        [BUCKETS, np.array([0]), np.array([3])],
        max_distance=5,
        meaning=relative_position_bias(5),
    ),
    microsoft("GatedRelativePositionBias", [X, *GATED], num_heads=COUNT, meaning=formula(gated_relative_position_bias)),
    microsoft(
        "GatedRelativePositionBias",
        [X[0], *GATED, OFFSETS],
        num_heads=COUNT,
        meaning=formula(gated_relative_position_bias),
    ),
]

# --- Packed sequences ---


def remove_padding(case: Any) -> list[np.ndarray]:
    x, counts = case.inputs
    tokens = np.arange(x.shape[1]) < counts[:, None]
    offset = np.concatenate([np.flatnonzero(tokens), np.flatnonzero(~tokens)]).reshape(x.shape[:2]).astype(np.int32)
    ends = np.cumsum([0, *counts]).astype(np.int32)
    return [x[tokens], offset, ends, np.array([max(counts, default=0)], np.int32)]


def by_sequence(q, k, v, ends, bias: Any = 0.0, scale: float = 0.0) -> np.ndarray:
    """Computes attention of one sequence after another."""
    ends = ends.astype(int)
    results = []
    for i, (first, last) in enumerate(itertools.pairwise(ends)):
        added = np.broadcast_to(bias, (len(ends) - 1, COUNT, 3, 3))[i : i + 1, :, : last - first, : last - first]
        of_sequence = (heads(x[None, first:last], COUNT) for x in (q, k, v))
        results.append(beside(attended(*of_sequence, added, scale))[0])
    return np.concatenate(results)


def packed_attention(sizes: tuple[int, int] = (4, 8), scale: float = 0.0):
    def function(x, weights, bias, offset, ends, score_bias=0.0) -> np.ndarray:
        return by_sequence(*np.split(x @ weights + bias, sizes, -1), ends, score_bias, scale)

    return formula(function)


def packed_heads(scale: float = 0.0):
    def function(q, k, v, bias, offset, ends, score_bias=0.0) -> np.ndarray:
        b = np.split(bias, [4, 8])
        return by_sequence(q + b[0], k + b[1], v + b[2], ends, score_bias, scale)

    return formula(function)


def packed_in_one(qkv, offset, ends) -> np.ndarray:
    return by_sequence(*(qkv[:, :, i].reshape(len(qkv), -1) for i in range(3)), ends)


TOKENS = [waves(3, 4), waves(3, 4, scale=1.5)[::-1].copy(), waves(3, 6, scale=2.0)[:, ::-1].copy()]


def packed(*inputs: Any, **rest: Any):
    return microsoft("PackedAttention", list(inputs), num_heads=COUNT, **rest)


def packed_multi_head(*inputs: Any, **rest: Any):
    return microsoft("PackedMultiHeadAttention", list(inputs), num_heads=COUNT, **rest)


PACKED_ROWS = [
    microsoft("RemovePadding", [waves(3, 4, 2), int32(1, 0, 3)], outputs=4, meaning=remove_padding),
    microsoft("RemovePadding", [waves(2, 2, 3), int32(2, 2)], outputs=4, meaning=remove_padding),
    microsoft("RemovePadding", [waves(0, 2, 3), np.zeros(0, np.int32)], outputs=4, meaning=remove_padding),
    microsoft("RestorePadding", [waves(3, 4), OFFSETS], meaning=formula(restored)),
    microsoft("RestorePadding", [waves(0, 4), OFFSETS], meaning=formula(restored)),
    packed(waves(3, 4), WEIGHTS, BIAS, OFFSETS, ENDS, meaning=packed_attention()),
    packed(waves(3, 4), WEIGHTS, BIAS, OFFSETS, ENDS, waves(1, 2, 3, 3), meaning=packed_attention(), scale=0.0),
    packed(
        waves(3, 4),
        *UNEQUAL[1:],
        OFFSETS,
        ENDS,
        waves(2, 1, 3, 3),
        qkv_hidden_sizes=[4, 4, 6],
        scale=0.4,
        meaning=packed_attention(scale=0.4),
    ),
    packed_multi_head(*TOKENS, waves(14), OFFSETS, ENDS, meaning=packed_heads()),
    packed_multi_head(
        *TOKENS,
        waves(14),
        OFFSETS,
        ENDS,
        waves(2, 2, 3, 3),
        scale=0.4,
        mask_filter_value=-1.5,
        meaning=packed_heads(0.4),
    ),
    packed_multi_head(waves(3, 2, 3, 2), None, None, None, OFFSETS, ENDS, meaning=formula(packed_in_one)),
]

# --- Windows ---


def by_windows(qkv, global_qkv, mask, flags, window: int) -> np.ndarray:
    """Computes attention within windows, one token after another."""
    ours, whole = ([heads(x, COUNT) for x in np.split(projected, 3, -1)] for projected in (qkv, global_qkv))
    result = np.zeros((*qkv.shape[:2], qkv.shape[2] // 3))
    for b, i in np.ndindex(*mask.shape):
        keys = [j for j in range(mask.shape[1]) if flags[b, i] or flags[b, j] or abs(i - j) <= window]
        q, k, v = whole if flags[b, i] else ours
        if mask[b, i] >= 0:
            of_token = attended(q[b : b + 1, :, i : i + 1], k[b : b + 1, :, keys], v[b : b + 1, :, keys], mask[b, keys])
            result[b, i] = of_token.ravel()
    return result


def longformer(window: int):
    def function(x, weight, bias, mask, global_weight, global_bias, flags) -> np.ndarray:
        return by_windows(x @ weight + bias, x @ global_weight + global_bias, mask, flags, window)

    return formula(function)


TEXT = waves(2, 6, 4)
PADDING = floats([0, 0, 0, 0, 0, 0], [0, 0, 0, 0, -10000, -10000])
FLAGS = int32([1, 0, 0, 0, 0, 0], [0, 0, 1, 0, 0, 1])
GLOBAL = [waves(4, 12, scale=1.5)[::-1].copy(), waves(12)[::-1].copy()]


def steps(x: np.ndarray) -> np.ndarray:
    return np.clip(np.rint(x), -128, 127)


def columns(x: np.ndarray) -> np.ndarray:
    return x.reshape(x.shape[::-1]).T


def quantized_longformer(window: int, order: Any, global_order: Any):
    def function(x, s_x, w, s_w, bias, _, s_qkv, mask, global_w, s_global_w, global_bias, s_global, flags, s_y):
        qkv = steps(x @ order(w) * (s_x * s_w / s_qkv) + bias) * s_qkv
        global_qkv = steps(x @ global_order(global_w) * (s_x * s_global_w / s_global) + global_bias) * s_global
        return steps(by_windows(qkv, global_qkv, mask, flags, window) / s_y)

    return rounded(function)


def as_it_is(x: np.ndarray) -> np.ndarray:
    return x


def single(value: float) -> np.ndarray:
    return floats(value)[0]


BYTES = (np.arange(48).reshape(2, 6, 4) * 53 % 251 - 125).astype(np.int8)
LONG_QUANTIZED = [
    BYTES,
    single(0.011),
    FACTORS,
    single(0.009),
    np.rint(waves(12, scale=20.0)),
    single(1.0),
    single(0.03),
    PADDING.astype(np.float16),
    FACTORS[::-1].copy(),
    single(0.008),
    np.rint(waves(12, scale=-15.0)),
    single(0.025),
    FLAGS,
    single(0.02),
]


def q_longformer(order: int, global_order: int):
    orders = [columns, as_it_is]
    return microsoft(
        "QOrderedLongformerAttention",
        LONG_QUANTIZED,
        num_heads=COUNT,
        window=1,
        order_input=1,
        order_weight=order,
        order_global_weight=global_order,
        order_output=1,
        meaning=quantized_longformer(1, orders[order], orders[global_order]),
    )


WINDOW_ROWS = [
    microsoft(
        "LongformerAttention",
        [TEXT, WEIGHTS, BIAS, PADDING, *GLOBAL, FLAGS],
        num_heads=COUNT,
        window=1,
        meaning=longformer(1),
    ),
    microsoft(
        "LongformerAttention",
        [TEXT, WEIGHTS, BIAS, PADDING, *GLOBAL, FLAGS * 0],
        num_heads=COUNT,
        window=2,
        meaning=longformer(2),
    ),
    q_longformer(0, 0),
    q_longformer(0, 1),
]

# --- QOrderedAttention ---

NAMES = ["Q", "K", "V"]
S_GEMM = {"Q": 0.03, "K": 0.025, "V": 0.02}
QUANTIZED = [
    BYTES,
    single(0.011),
    *(single(S_GEMM[name]) for name in NAMES),
    *((np.arange(16).reshape(4, 4) * step % 251 - 125).astype(np.int8) for step in (29, 43, 71)),
    single(0.009),
    floats(0.009, 0.008, 0.007, 0.01),
    single(0.01),
    *(waves(4, scale=scale) for scale in (1.0, -0.5, 2.0)),
]
MASKED = int32([1, 1, 0, 1, 1, 1], [1, 1, 1, 1, 0, 0])
BYTES_PAST = (np.arange(32).reshape(2, 2, 2, 2, 2) * 47 % 251 - 125).astype(np.int8)
S_SCORES, S_WEIGHTS, S_VALUES = single(0.05), single(1 / 127), single(0.021)


def by_steps(order: Any, *, causal: bool = False, optional: tuple[str, ...] = ()):
    """Gives the formula of QOrderedAttention; `optional` names the optional inputs that are there."""

    def function(x, s_x, *rest) -> np.ndarray:
        s_gemm, w, s_w, bias = (rest[i : i + 3] for i in (0, 3, 6, 9))
        given = dict(zip(optional, rest[12:], strict=True))
        q, k, v = (
            heads(steps(x @ order(w[i]) * (s_x * s_w[i] / s_gemm[i]) + bias[i] / s_gemm[i]), COUNT) for i in range(3)
        )
        if "past" in given:
            k, v = (np.concatenate(pair, 2) for pair in zip(given["past"], (k, v), strict=True))
        scores = q @ k.swapaxes(2, 3) * (s_gemm[0] * s_gemm[1])
        if "scores" in given:
            scores = steps(scores / given["scores"]) * given["scores"]
        scores = scores / math.sqrt(q.shape[3]) + given.get("bias", 0.0)
        is_open = np.ones(scores.shape, bool)
        if "mask" in given:
            is_open &= given["mask"][:, None, None] > 0
        if causal:
            is_open &= np.tri(scores.shape[2], scores.shape[3], scores.shape[3] - scores.shape[2], bool)
        weights = softmax(np.where(is_open, scores, -np.inf), -1)
        if "weights" in given:
            weights = steps(weights / given["weights"]) * given["weights"]
        return steps(beside(weights @ v) * (s_gemm[2] / given["values"]))

    return rounded(function)


def q_ordered(inputs: list[Any], order: int, optional: str, **rest: Any):
    meaning = by_steps([columns, as_it_is][order], causal="unidirectional" in rest, optional=tuple(optional.split()))
    orders = {"order_input": 1, "order_weight": order, "order_output": 1}
    return microsoft("QOrderedAttention", [*QUANTIZED, *inputs], num_heads=COUNT, **orders, meaning=meaning, **rest)


Q_ORDERED_ROWS = [
    q_ordered([S_SCORES, S_WEIGHTS, S_VALUES, MASKED], 0, "scores weights values mask", qkv_hidden_sizes=[4, 4, 4]),
    q_ordered([S_SCORES, S_WEIGHTS, S_VALUES], 1, "scores weights values", unidirectional=1),
    q_ordered([None, None, S_VALUES], 0, "values"),
    q_ordered(
        [None, S_WEIGHTS, S_VALUES, None, BYTES_PAST, waves(2, 1, 6, 8)],
        0,
        "weights values past bias",
        unidirectional=1,
    ),
]

# --- DynamicSparseAttention ---


def sparse(
    names: str,
    num_heads: int = 4,
    kv_heads: int = 2,
    *,
    scale=0.0,
    offset=0,
    interleaved=False,
    rotary=False,
    window=0,
    smooth=False,
    epsilon=1e-6,
):
    """Gives the formula of DynamicSparseAttention; `names` are the inputs that are there."""

    def normed(x, weight, position, given):
        if weight is not None:
            x = x / np.sqrt((x * x).mean(-1, keepdims=True) + epsilon) * weight
        if not rotary:
            return x
        cos, sin = (given[name][position.astype(int)] for name in ("cos", "sin"))
        result = x.copy()
        half = cos.shape[1]
        for i in range(half):
            a, b = (offset + 2 * i, offset + 2 * i + 1) if interleaved else (offset + i, offset + half + i)
            result[:, :, a] = x[:, :, a] * cos[:, i] - x[:, :, b] * sin[:, i]
            result[:, :, b] = x[:, :, b] * cos[:, i] + x[:, :, a] * sin[:, i]
        return result

    def function(*inputs):
        given = dict(zip(names.split(), inputs, strict=True))
        q = given["query"]
        if "key" not in given:
            all_heads = heads(q, num_heads + 2 * kv_heads)
            q, k, v = np.split(all_heads, [num_heads, num_heads + kv_heads], 1)
        else:
            q, k, v = heads(q, num_heads), heads(given["key"], kv_heads), heads(given["value"], kv_heads)
        batch, _, length, size = q.shape
        empty = np.zeros((batch, kv_heads, int(given["total"].ravel()[0]), size))
        keys, values = given.get("past_key", empty).copy(), given.get("past_value", empty).copy()
        y = np.zeros(q.shape)
        for b in range(batch):
            last = int(given["seqlens"][b]) + 1
            at = np.arange(last - length, last)
            position = given["position"][b] if "position" in given else at
            q[b] = normed(q[b], given.get("q_norm"), position, given)
            keys[b, :, at] = normed(k[b], given.get("k_norm"), position, given).swapaxes(0, 1)
            values[b, :, at] = v[b].swapaxes(0, 1)
            for h, s in np.ndindex(num_heads, length):
                group = h // (num_heads // kv_heads)
                row = b * length + s
                chosen = given["indices"][row, : int(given["counts"][row])].astype(int)
                k_rows, v_rows = keys[b, group, chosen % keys.shape[2]], values[b, group, chosen % keys.shape[2]]
                if window:
                    local = slice(max(0, at[s] - window + 1), at[s] + 1)
                    others = given.get("aux_value", given["aux_key"])
                    k_rows = np.concatenate([keys[b, group, local], given["aux_key"][b, group, chosen]])
                    v_rows = np.concatenate([values[b, group, local], others[b, group, chosen]])
                scores = k_rows @ q[b, h, s] * (scale or size**-0.5)
                if smooth or "sink" in given:
                    scores = np.append(scores, given["sink"][h] if "sink" in given else 0.0)
                    v_rows = np.concatenate([v_rows, np.zeros((1, size))])
                if len(scores):
                    y[b, h, s] = softmax(scores) @ v_rows
        return beside(y), keys, values

    return outputs(function)


NEW = [waves(2, 2, 16), waves(2, 2, 8, scale=1.5)[::-1].copy(), waves(2, 2, 8, scale=2.0)]  # heads of 4
CACHE = [waves(2, 2, 6, 4, scale=1.2), waves(2, 2, 6, 4, scale=0.8)]
OTHERS = [waves(2, 2, 3, 4, scale=1.4), waves(2, 2, 3, 4, scale=0.7)[::-1].copy()]
CHOSEN = [int32([0, 2, -1], [1, 0, 3], [4, -1, -1], [-1, -1, -1]), int32(2, 3, 1, 0)]
CHOSEN_OTHERS = [int32([0, 2], [1, -1], [-1, -1], [2, 1]), int32(2, 1, 0, 2)]
LENGTHS = [int32(3, 5), int32(6)[0]]
TABLES = [np.cos(waves(9, 1) * 3), np.sin(waves(9, 1) * 3)]
BASE = "query key value past_key past_value"
REST = "indices counts seqlens total"


def dynamic(inputs: list[Any], meaning: Any, count: int = 3, **rest: Any):
    settings = {"num_heads": 4, "kv_num_heads": 2, **rest}
    return microsoft("DynamicSparseAttention", inputs, outputs=count, meaning=meaning, **settings)


def of_others(inputs: list[Any], meaning: Any, **rest: Any):
    settings = {"attention_mode": "local_plus_selected", "selected_kv_source": "auxiliary", "local_window_size": 2}
    return dynamic(inputs, meaning, **settings, **rest)


SPARSE_ROWS = [
    dynamic([*NEW, *CACHE, None, None, *CHOSEN, *LENGTHS], sparse(f"{BASE} {REST}")),
    dynamic(
        [*NEW, *CACHE, None, None, *CHOSEN, *LENGTHS, *TABLES, None, None, None, waves(4)],
        sparse(f"{BASE} {REST} cos sin sink", rotary=True, scale=0.3),
        do_rotary=1,
        is_causal=1,
        scale=0.3,
    ),
    dynamic(
        [
            waves(2, 3, 32),
            None,
            None,
            None,
            None,
            None,
            None,
            int32(*[[0, -1], [1, 0], [2, 0]] * 2),
            int32(1, 1, 2, 1, 2, 0),
            int32(2, 2),
            int32([3])[0],
        ],
        sparse(f"query {REST}", smooth=True),
        smooth_softmax=1,
    ),
    of_others([*NEW, *CACHE, *OTHERS, *CHOSEN_OTHERS, *LENGTHS], sparse(f"{BASE} aux_key aux_value {REST}", window=2)),
    of_others(
        [
            *NEW,
            *CACHE,
            OTHERS[0],
            None,
            *CHOSEN_OTHERS,
            *LENGTHS,
            None,
            None,
            None,
            floats(1, 0.5, -1, 2),
            floats(0.5, 2, 1, -1),
        ],
        sparse(f"{BASE} aux_key {REST} q_norm k_norm", window=2, epsilon=0.125),
        auxiliary_kv_shared=1,
        qk_norm_epsilon=0.125,
    ),
    dynamic(  # heads of 12, of which the last four elements are turned
        [
            waves(1, 2, 24),
            waves(1, 2, 12, scale=1.5),
            waves(1, 2, 12),
            waves(1, 1, 4, 12),
            waves(1, 1, 4, 12),
            None,
            None,
            int32([0, 1], [2, -1]),
            int32(2, 1),
            int32(3),
            int32([4])[0],
            np.cos(waves(9, 2) * 3),
            np.sin(waves(9, 2) * 3),
            np.array([[7, 4]]),
        ],
        sparse(f"{BASE} {REST} cos sin position", 2, 1, rotary=True, offset=8, interleaved=True),
        num_heads=2,
        kv_num_heads=1,
        do_rotary=1,
        rotary_interleaved=1,
        rotary_offset=8,
    ),
    dynamic([*NEW, *CACHE, None, None, *CHOSEN, *LENGTHS], lambda case: sparse(f"{BASE} {REST}")(case)[:1], 1),
]

ATTENTION_ROWS: list[Any] = [
    *FUSED_ROWS,
    *Q_ATTENTION_ROWS,
    *POSITION_ROWS,
    *PACKED_ROWS,
    *WINDOW_ROWS,
    *Q_ORDERED_ROWS,
    *SPARSE_ROWS,
]
