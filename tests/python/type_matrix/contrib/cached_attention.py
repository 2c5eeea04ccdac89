"""Templates of rotary embeddings and of GroupQueryAttention, and what those of all attention with a past share."""

from __future__ import annotations

from typing import Any

import numpy as np
from scipy.special import softmax

from ..making import floats, ints, microsoft, waves

SIZE = 16  # of a head; onnxruntime takes multiples of 8, and rotates multiples of 16


def int32(*values: int) -> np.ndarray:
    return np.array(values, np.int32)


def several(function):
    """Gives the meaning that a function of the inputs has, in double precision."""
    return lambda case: list(function(*(np.asarray(x).astype(np.float64) for x in case.inputs)))


def heads(x: np.ndarray, count: int) -> np.ndarray:
    return x.reshape(*x.shape[:2], count, -1).swapaxes(1, 2)


def merged(x: np.ndarray) -> np.ndarray:
    return x.swapaxes(1, 2).reshape(x.shape[0], x.shape[2], -1)


ANGLES = waves(10, SIZE // 2, scale=3.0)
COS, SIN = np.cos(ANGLES), np.sin(ANGLES)

# --- RotaryEmbedding ---

X = waves(2, 3, 2 * SIZE)
POSITIONS = ints([4, 0, 7], [9, 2, 2])


def rotary(inputs: list[Any], **attributes: Any):
    return microsoft("RotaryEmbedding", inputs, **attributes)


ROTARY_ROWS = [
    rotary([X, POSITIONS, COS, SIN]),
    rotary([X, ints(3), COS, SIN]),
    rotary([X, ints(3), COS, SIN], interleaved=1, scale=0.5, is_packed_batching=1),
    rotary([heads(X, 2), POSITIONS, COS, SIN], num_heads=2),
    rotary([waves(2, 3, 4, 6), ints([1], [2], [0])[:2].repeat(4, 1), COS[:, :3], SIN[:, :3]]),
    rotary([waves(2, 3, 40), POSITIONS, COS, SIN], num_heads=2, rotary_embedding_dim=SIZE),
    rotary([waves(2, 2, 3, 20), POSITIONS, COS, SIN], num_heads=2, rotary_embedding_dim=SIZE, interleaved=1),
    rotary([X[:0], POSITIONS[:0], COS, SIN]),
    rotary([X[:, :0], POSITIONS[:, :0], COS, SIN]),
    # The sequence is longer than the caches, as packed sequences may be.
    rotary([waves(1, 12, SIZE), ints([0, 1, 2, 3, 4, 5] * 2), COS, SIN], is_packed_batching=1),
]

# --- GroupQueryAttention ---

Q, K, V = waves(2, 3, 2 * SIZE, scale=2.0), waves(2, 3, SIZE)[::-1].copy(), waves(2, 3, SIZE, scale=3.0)
PACKED = np.concatenate([Q, K, V], 2)
STEP = [x[:, :1].copy() for x in (Q, K, V)]
CHUNK = [x[:1, :2].copy() for x in (Q, K, V)]
PAST = [waves(2, 1, 5, SIZE, scale=1.5), waves(2, 1, 5, SIZE)[:, :, ::-1].copy()]
PROMPT = [*[Q, K, V], None, None, int32(2, 1), int32(3)]  # the second sequence is shorter
SINK = floats(0.5, -1)
SCALE, SCALES = floats(0.02), (np.abs(waves(1, 1, 1, SIZE)) + 0.1).astype(np.float32) / 20
CACHE = np.rint(waves(2, 1, 5, SIZE, scale=90)).astype(np.int8)
NIBBLES = np.rint(waves(2, 1, 5, SIZE // 2, scale=120) + 125).astype(np.uint8)
STEP_OF_8_BITS = [*STEP, CACHE, CACHE[::-1].copy(), int32(3, 2), int32(4), *[None] * 5]
STEP_OF_4_BITS = [*STEP, NIBBLES, NIBBLES[::-1].copy(), int32(3, 2), int32(4), *[None] * 5]
PER_TENSOR = {"k_quant_type": "PER_TENSOR", "v_quant_type": "PER_TENSOR"}
PER_CHANNEL = {"k_quant_type": "PER_CHANNEL", "v_quant_type": "PER_CHANNEL"}


def attended(q: np.ndarray, k: np.ndarray, v: np.ndarray, allowed: Any = True) -> np.ndarray:
    """Computes attention of heads of queries to heads of keys and values, which groups share."""
    groups = q.shape[1] // k.shape[1]
    scores = q @ k.repeat(groups, 1).swapaxes(2, 3) / np.sqrt(q.shape[3])
    return softmax(np.where(allowed, scores, -np.inf), -1) @ v.repeat(groups, 1)


def normed(q, k, v, lengths, total, q_weight, k_weight, epsilon=1e-6):
    """Computes a prompt of whole sequences whose queries and keys are normalized."""

    def norm(x: np.ndarray, weight: np.ndarray) -> np.ndarray:
        return x / np.sqrt((x * x).mean(-1, keepdims=True) + epsilon) * weight

    q, k, v = norm(heads(q, 2), q_weight), norm(heads(k, 1), k_weight), heads(v, 1)
    return merged(attended(q, k, v, np.tri(3, dtype=bool))), k, v


def step_of_float8(q, k, v, past_k, past_v, lengths, total, k_scale, v_scale):
    """Computes a step of two sequences behind three rows of past, in a cache of five rows; the inputs are integers."""
    rows = [
        np.concatenate([past[:, :, :3], heads(x, 1) / s], 2)
        for past, x, s in ((past_k, k, k_scale), (past_v, v, v_scale))
    ]
    y = attended(heads(q, 2), rows[0] * k_scale, rows[1] * v_scale)
    return merged(y), *(np.pad(x, ((0, 0), (0, 0), (0, 1), (0, 0))) for x in rows)


def gqa(inputs: list[Any], outputs: int = 3, **attributes: Any):
    return microsoft("GroupQueryAttention", inputs, outputs=outputs, num_heads=2, kv_num_heads=1, **attributes)


WHOLE = [np.rint(x * 2) for x in (*STEP, *PAST)]
GROUP_QUERY_ROWS = [
    gqa([*STEP_OF_8_BITS, SCALE, 2 * SCALE], kv_cache_bit_width=8, **PER_TENSOR, only=r"T_CACHE/tensor.int8"),
    gqa([*STEP_OF_4_BITS, SCALE, 2 * SCALE], kv_cache_bit_width=4, **PER_TENSOR, only=r"T_CACHE/tensor.uint8"),
    # onnxruntime has no kernel for the CPU.
    gqa(
        [*WHOLE, int32(3, 3), int32(4), *[None] * 5, floats(2), floats(0.5)],
        kv_cache_bit_width=8,
        **PER_TENSOR,
        only="T_CACHE/tensor.float8",
        meaning=several(step_of_float8),
    ),
    gqa(PROMPT),
    gqa(PROMPT, outputs=1, scale=0.7),
    gqa([PACKED, None, None, *PROMPT[3:]]),
    gqa([*PROMPT[:3], *PAST, *PROMPT[5:]]),  # which forgets the past
    gqa(PROMPT, causal=0),
    gqa([*PROMPT, COS, SIN], do_rotary=1),
    gqa([*PROMPT, COS, SIN, ints([2, 0, 0], [5, 5, 5])], do_rotary=1, rotary_interleaved=1),
    gqa([PACKED, None, None, *PAST, *PROMPT[5:], COS, SIN], do_rotary=1),
    gqa([*STEP, *PAST, int32(3, 2), int32(4)]),
    gqa([*STEP, *PAST, int32(4, 4), int32(5), COS, SIN], do_rotary=1),
    gqa([*STEP, *PAST, int32(3, 2), int32(4), COS, SIN, ints([2], [7])], do_rotary=1),
    gqa([*STEP, *PAST, int32(5, 3), int32(6), COS, SIN], do_rotary=1),  # grows the cache
    gqa([*CHUNK, *(x[:1] for x in PAST), int32(4), int32(5), COS, SIN], do_rotary=1),
    gqa([*CHUNK, *(x[:1] for x in PAST), int32(3), int32(7)]),
    # These attend to keys that the past has already.
    gqa([STEP[0], *(x[:, :0].copy() for x in STEP[1:]), *PAST, int32(4, 3), int32(5), COS, SIN], do_rotary=1),
    gqa([Q[:1], *(x[:1, :0].copy() for x in STEP[1:]), *(x[:1] for x in PAST), int32(2), int32(3)]),
    gqa([*PROMPT, None, None, None, waves(2, 1, 3, 3)[::-1].copy()]),
    gqa([*STEP, *PAST, int32(3, 2), int32(4), None, None, None, waves(1, 2, 1, 4)]),
    gqa([Q, K, V, None, None, int32(2, 2), int32(3)], local_window_size=2),
    gqa([Q, K, V, None, None, int32(2, 2), int32(3)], local_window_size=0),
    gqa([*STEP, *PAST, int32(3, 2), int32(4)], local_window_size=2),
    gqa(PROMPT, local_window_size=2, softcap=0.5, smooth_softmax=1),
    gqa([*PROMPT, *[None] * 4, SINK]),
    gqa([*STEP, *PAST, int32(3, 2), int32(4), *[None] * 4, SINK], local_window_size=2),
    gqa([*STEP, *PAST, int32(3, 3), int32(4)], outputs=4, qk_output=1, softcap=2.0),
    gqa([Q, K, V, None, None, int32(2, 2), int32(3)], outputs=4, qk_output=2, local_window_size=1),
    gqa([*STEP_OF_8_BITS, SCALES, 2 * SCALES], kv_cache_bit_width=8, **PER_CHANNEL),
    gqa([*STEP_OF_4_BITS, SCALES * 9, 12 * SCALES], kv_cache_bit_width=4, **PER_CHANNEL),
    gqa(
        [*PROMPT[:3], *STEP_OF_8_BITS[3:5], *PROMPT[5:], *[None] * 4, SINK, SCALE, SCALE],
        kv_cache_bit_width=8,
        **PER_TENSOR,
    ),
    # The cache is one of a window, which is full after the step.
    gqa([*STEP, *PAST, int32(7, 7), int32(8), COS, SIN], do_rotary=1, sliding_window_cache=1, local_window_size=3),
    gqa([*STEP, *PAST, int32(7, 4), int32(8)], sliding_window_cache=1, local_window_size=3),
    gqa([*CHUNK, *(x[:1] for x in PAST), int32(7), int32(8)], sliding_window_cache=1, local_window_size=5),
    gqa(
        [*STEP, *PAST, int32(7, 4), int32(8), None, None, None, waves(2, 1, 1, 8)],
        sliding_window_cache=1,
        local_window_size=5,
    ),
    # onnxruntime has no kernel for the CPU.
    gqa(
        [Q, K, V, None, None, int32(2, 2), int32(3), *[None] * 7, waves(SIZE), waves(SIZE)[::-1].copy()],
        meaning=several(normed),
    ),
    gqa(
        [Q, K, V, None, None, int32(2, 2), int32(3), *[None] * 7, waves(SIZE), waves(SIZE)[::-1].copy()],
        qk_norm_epsilon=0.5,
        meaning=several(lambda *inputs: normed(*inputs, epsilon=0.5)),
    ),
]

# --- MRotaryEmbedding, GemmaRotaryEmbedding ---

STREAMS = (np.arange(18) * 7 % 10).reshape(3, 2, 3)


def mrotary(inputs: list[Any], mrope_section: list[int], **attributes: Any):
    return microsoft("MRotaryEmbedding", inputs, mrope_section=mrope_section, **attributes)


def gemma(emb, q, q_rot, k, k_rot):
    sin, cos = np.sin(emb)[:, None], np.cos(emb)[:, None]
    return q * cos + q_rot * sin, k * cos + k_rot * sin


MULTIPLE_ROTARY_ROWS = [
    mrotary([X, STREAMS, COS, SIN], [4, 3, 1], num_heads=2),
    mrotary([X, STREAMS, COS, SIN], [0, 8, 0], num_heads=2, interleaved=1, is_packed_batching=1),
    mrotary([heads(X, 2).copy(), STREAMS, COS, SIN], [3, 2, 3], mrope_layout=1),
    mrotary([heads(X, 2).copy(), STREAMS, COS, SIN], [2, 1, 5], mrope_layout=1),
    mrotary([waves(2, 3, 40), STREAMS, COS, SIN], [4, 2, 2], num_heads=2, rotary_embedding_dim=SIZE, scale=0.5),
    mrotary([X[:, :0], STREAMS[:, :, :0], COS, SIN], [4, 2, 2], num_heads=2),
    microsoft(
        "GemmaRotaryEmbedding",
        [
            waves(2, 3, 4, scale=3.0),
            *(waves(2, heads_, 3, 4, scale=scale) for heads_, scale in ((2, 2.0), (2, 1.0), (1, 3.0), (1, 0.5))),
        ],
        outputs=2,
        meaning=several(gemma),
    ),
]


CACHED_ATTENTION_ROWS: list[Any] = [*ROTARY_ROWS, *GROUP_QUERY_ROWS, *MULTIPLE_ROTARY_ROWS]
