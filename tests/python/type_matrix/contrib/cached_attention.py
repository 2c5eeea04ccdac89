"""Templates of src/ops/contrib/cached_attention.cpp."""

from __future__ import annotations

from typing import Any

import numpy as np
from scipy.special import softmax

from ..making import floats, ints, microsoft, waves
from ..modern import formula

SIZE = 16  # of a head; onnxruntime takes multiples of 8, and rotates multiples of 16


def int32(*values: int) -> np.ndarray:
    return np.array(values, np.int32)


def several(function):
    """The outputs that a function of the inputs gives, in double precision."""
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
    # longer than the caches, as packed sequences may be
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
    """Heads of queries to heads of keys and values, which groups share."""
    groups = q.shape[1] // k.shape[1]
    scores = q @ k.repeat(groups, 1).swapaxes(2, 3) / np.sqrt(q.shape[3])
    return softmax(np.where(allowed, scores, -np.inf), -1) @ v.repeat(groups, 1)


def normed(q, k, v, lengths, total, q_weight, k_weight, epsilon=1e-6):
    """A prompt of whole sequences whose queries and keys are normalized."""

    def norm(x: np.ndarray, weight: np.ndarray) -> np.ndarray:
        return x / np.sqrt((x * x).mean(-1, keepdims=True) + epsilon) * weight

    q, k, v = norm(heads(q, 2), q_weight), norm(heads(k, 1), k_weight), heads(v, 1)
    return merged(attended(q, k, v, np.tri(3, dtype=bool))), k, v


def step_of_float8(q, k, v, past_k, past_v, lengths, total, k_scale, v_scale):
    """A step of two sequences with three rows of past, in a cache of five rows; the inputs are whole numbers."""
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
    # no kernel for the CPU
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
    # attention to keys that the past has already
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
    # a cache of a window, full after the step
    gqa([*STEP, *PAST, int32(7, 7), int32(8), COS, SIN], do_rotary=1, sliding_window_cache=1, local_window_size=3),
    gqa([*STEP, *PAST, int32(7, 4), int32(8)], sliding_window_cache=1, local_window_size=3),
    gqa([*CHUNK, *(x[:1] for x in PAST), int32(7), int32(8)], sliding_window_cache=1, local_window_size=5),
    gqa(
        [*STEP, *PAST, int32(7, 4), int32(8), None, None, None, waves(2, 1, 1, 8)],
        sliding_window_cache=1,
        local_window_size=5,
    ),
    # no kernel for the CPU
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

# --- MultiHeadAttention ---

NARROW = 4  # the size of a head
MHA = [waves(2, 3, 2 * NARROW, scale=2.0), waves(2, 4, 2 * NARROW)[::-1].copy(), waves(2, 4, 2 * NARROW, scale=3.0)]
WIDER_VALUE = waves(2, 4, 12, scale=3.0)
MHA_PAST = [waves(2, 2, 2, NARROW, scale=1.5), waves(2, 2, 2, NARROW)[::-1].copy()]
MASK = int32(1, 0, 2, 0, -1, 0, 1, 1).reshape(2, 4)
MASK_WITH_PAST = int32(1, 0, 1, 0, 0, 1, 0, 1, 0, -1, 1, 1).reshape(2, 6)
MASK_OF_QUERIES = (np.arange(24) % 5 < 2).astype(np.int32).reshape(2, 3, 4)
PACKED_QKV, PACKED_KV = waves(2, 3, 2, 3, NARROW, scale=2.0), waves(2, 4, 2, 2, NARROW)
MHA_STEP = [
    waves(4, 1, 2 * NARROW, scale=2.0),
    waves(4, 1, 2 * NARROW)[::-1].copy(),
    waves(4, 1, 2 * NARROW, scale=3.0),
]
BUFFERS = [waves(4, 2, 6, NARROW, scale=1.5), waves(4, 2, 6, NARROW)[::-1].copy()]
BEAMS = (np.arange(24) % 5 % 2).astype(np.int32).reshape(2, 2, 6)
STEP_MASK = (np.arange(16) % 3 != 1).astype(np.int32).reshape(4, 4)


def packed_qkv(x: np.ndarray, bias: np.ndarray | float = 0) -> np.ndarray:
    x = np.moveaxis(x, 3, 0) + np.reshape(np.broadcast_to(bias, 24), (3, 1, 1, 2, NARROW))
    return merged(attended(*x.swapaxes(2, 3)))


def packed_kv(q: np.ndarray, kv: np.ndarray) -> np.ndarray:
    return merged(attended(heads(q, 2), *np.moveaxis(kv, 3, 0).swapaxes(2, 3)))


def without_beams(q, k, v, past_k, past_v, length):
    """A step that writes into a buffer behind its first three rows."""
    present = [past.copy() for past in (past_k, past_v)]
    for one, new in zip(present, (k, v), strict=True):
        one[:, :, 3] = heads(new, 2)[:, :, 0]
    return merged(attended(heads(q, 2), *(x[:, :, :4] for x in present))), *present


def grown(q, k, v, past_k, past_v):
    k, v = np.concatenate([past_k, heads(k, 2)], 2), np.concatenate([past_v, heads(v, 2)], 2)
    return merged(attended(heads(q, 2), k, v)), k, v


def mha(inputs: list[Any], **rest: Any):
    return microsoft("MultiHeadAttention", inputs, num_heads=2, **rest)


MULTI_HEAD_ROWS = [
    mha([*MHA[:2], WIDER_VALUE]),
    mha([*MHA[:2], WIDER_VALUE, waves(28)], outputs=3, scale=0.7),
    mha([MHA[0], MHA[0][::-1].copy(), MHA[0]], unidirectional=1),
    mha(MHA, unidirectional=1),  # of whose queries the last one attends to all keys
    mha([MHA[0][:, :1].copy(), *MHA[1:]], unidirectional=1),
    mha([*MHA, None, int32(3, 2)]),
    mha([*MHA, waves(24), int32(3, 2, 9, 9, 9, 9, 9, 9)]),
    mha([*MHA, None, MASK], unidirectional=1, mask_filter_value=-1.5),
    mha([*MHA, None, MASK_OF_QUERIES]),
    mha([*MHA, None, MASK_OF_QUERIES, waves(1, 2, 3, 4)], outputs=4, mask_filter_value=-2.0),
    mha([*MHA, None, None, waves(2, 1, 3, 4)], outputs=4, unidirectional=1),
    mha([*MHA, None, None, None, *MHA_PAST], outputs=3),
    mha([*MHA, None, MASK_WITH_PAST, waves(2, 2, 3, 6), *MHA_PAST], outputs=3, unidirectional=1),
    mha([MHA[0], *(heads(x, 2).copy() for x in MHA[1:]), waves(24)]),  # of which only the query's part is added
    mha([MHA[0], *(heads(x, 2).copy() for x in MHA[1:])], outputs=3),
    mha([MHA[0][:, :0], *MHA[1:]]),
    mha(
        [*MHA_STEP, waves(24), STEP_MASK, waves(1, 2, 1, 4), *BUFFERS, int32(3), BEAMS],
        outputs=4,
        mask_filter_value=-1.5,
    ),
    # no kernel for the CPU
    mha([PACKED_QKV], meaning=formula(packed_qkv)),
    mha([PACKED_QKV, None, None, waves(24)], meaning=formula(packed_qkv)),
    mha([MHA[0], PACKED_KV], meaning=formula(packed_kv)),
    # the kernel writes beyond the buffer
    mha([*MHA_STEP, None, None, None, *BUFFERS, int32(3)], outputs=3, meaning=several(without_beams)),
]

# --- DecoderMaskedMultiHeadAttention ---

CROSS = [MHA_STEP[0][:2], *(heads(x, 2).copy() for x in MHA[1:])]


def masked_mha(inputs: list[Any], outputs: int = 3, **rest: Any):
    return microsoft("DecoderMaskedMultiHeadAttention", inputs, outputs=outputs, num_heads=2, **rest)


def in_buffer(inputs: list[Any], outputs: int = 3, **rest: Any):
    return masked_mha(inputs, outputs, past_present_share_buffer=1, **rest)


DECODER_MASKED_ROWS = [
    in_buffer([*MHA_STEP, None, None, *BUFFERS, int32(3)]),
    in_buffer([*MHA_STEP, None, None, *BUFFERS, int32(0)], scale=0.7),
    in_buffer([*MHA_STEP, STEP_MASK, waves(1, 2, 1, 4), *BUFFERS, int32(3), int32(1), None, waves(24)]),
    in_buffer([*MHA_STEP, STEP_MASK, None, *BUFFERS, int32(3), int32(2), BEAMS], outputs=4, output_qk=1),
    in_buffer([*MHA_STEP, STEP_MASK, None, *BUFFERS, int32(3)], outputs=4, output_qk=1, mask_filter_value=-1.5),
    masked_mha([*CROSS, MASK], outputs=1),
    masked_mha([*CROSS, *[None] * 7, waves(24)], outputs=1),
    # no kernel for the CPU
    in_buffer(
        [np.concatenate(MHA_STEP, 2), None, None, None, None, *BUFFERS, int32(3)],
        meaning=several(lambda qkv, *rest: without_beams(*np.split(qkv, 3, 2), *rest)),
    ),
    masked_mha([*MHA_STEP, None, None, *BUFFERS], meaning=several(grown)),
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

# --- SparseAttention ---

BLOCK = 16
LONG = [waves(1, 20, 4 * 8, scale=2.0), waves(1, 20, 2 * 8)[:, ::-1].copy(), waves(1, 20, 2 * 8, scale=3.0)]
LONG_PAST = [waves(1, 2, 48, 8, scale=1.5), waves(1, 2, 48, 8)[:, :, ::-1].copy()]
LATER = [waves(2, 1, 4 * 8, scale=2.0), waves(2, 1, 2 * 8)[::-1].copy(), waves(2, 1, 2 * 8, scale=3.0)]
LATER_PAST = [waves(2, 2, 48, 8, scale=1.5), waves(2, 2, 48, 8)[:, :, ::-1].copy()]
LAYOUTS = np.array([[[1, 0, 0], [0, 1, 0], [1, 0, 1]], [[1, 0, 0], [1, 1, 0], [1, 1, 1]]], bool)
LAYOUT_ROWS, LAYOUT_COLUMNS = (
    int32(0, 1, 2, 4, 0, 1, 3, 6).reshape(2, 4),
    int32(0, 1, 0, 2, -1, -1, 0, 0, 1, 0, 1, 2).reshape(2, 6),
)


def rotated(x: np.ndarray, positions: np.ndarray, cos: np.ndarray, sin: np.ndarray, interleaved: bool) -> np.ndarray:
    """Heads, in positions of [batch, sequence]."""
    c, s = cos[positions][:, None], sin[positions][:, None]
    one, other = (slice(0, None, 2), slice(1, None, 2)) if interleaved else (slice(0, 4), slice(4, 8))
    y = x.copy()
    y[..., one], y[..., other] = x[..., one] * c - x[..., other] * s, x[..., other] * c + x[..., one] * s
    return y


def sparse(starts: list[int], packed: bool = False, interleaved: bool = False):
    """Attention of two heads to each of two, by LAYOUTS, of queries that begin at `starts`."""

    def function(*inputs):
        q, k, v = np.split(inputs[0], [32, 48], 2) if packed else inputs[:3]
        past_k, past_v, *_ = rest = inputs[1 if packed else 3 :]
        caches = rest[6:]
        q, k, v = heads(q, 4), heads(k, 2), heads(v, 2)
        positions = np.array(starts)[:, None] + np.arange(q.shape[2])
        if caches:
            q, k = (rotated(x, positions, *caches, interleaved) for x in (q, k))
        present = [past_k.copy(), past_v.copy()]
        for b, start in enumerate(starts):
            for one, new in zip(present, (k, v), strict=True):
                one[b, :, start : start + q.shape[2]] = new[b]
        key = np.arange(48)
        blocks = LAYOUTS[np.arange(4) % 2][:, positions // BLOCK][..., key // BLOCK].swapaxes(0, 1)
        allowed = blocks & (key <= positions[:, None, :, None])
        return merged(attended(q, *present, allowed)), *present

    return several(function)


def sparse_row(inputs: list[Any], meaning: Any, **attributes: Any):
    return microsoft(
        "SparseAttention",
        inputs,
        outputs=3,
        num_heads=4,
        kv_num_heads=2,
        sparse_block_size=BLOCK,
        meaning=meaning,
        **attributes,
    )


LAYOUT = [LAYOUT_ROWS, LAYOUT_COLUMNS]
LONG_ANGLES = [np.cos(waves(48, 4, scale=3.0)), np.sin(waves(48, 4, scale=3.0))]
PACKED_LONG = np.concatenate(LONG, 2)

# onnxruntime's kernel for the CPU needs buffers that past and present share.
SPARSE_ROWS = [
    sparse_row([*LONG, *LONG_PAST, *LAYOUT, int32(20), int32(20)], sparse([0])),
    sparse_row([PACKED_LONG, None, None, *LONG_PAST, *LAYOUT, int32(20), int32(20)], sparse([0], packed=True)),
    sparse_row([*LATER, *LATER_PAST, *LAYOUT, int32(41), int32(41, 18), *LONG_ANGLES], sparse([40, 17]), do_rotary=1),
    sparse_row(
        [*LATER, *LATER_PAST, *LAYOUT, int32(41), int32(41, 41), *LONG_ANGLES],
        sparse([40, 40], interleaved=True),
        do_rotary=1,
        rotary_interleaved=1,
    ),
    sparse_row([*LONG, *LONG_PAST, *LAYOUT, int32(45), int32(45)], sparse([25]), scale=8**-0.5),
]

# --- DecoderMaskedSelfAttention ---

MERGED = [waves(2, 1, 6), waves(6, 24, scale=0.5), waves(24, scale=0.3)]
BOTH = waves(2, 2, 2, 4, NARROW, scale=1.5)  # keys and values
SELF_MASK = int32(1, 0, 1, 0, 1, 1).reshape(2, 3)
SELF_BEAMS = int32(1, 0, 0, 0, 0, 1, 0, 0).reshape(1, 2, 4)


def in_groups(keys: np.ndarray) -> np.ndarray:
    """Of 16 bytes, four elements of float."""
    return keys.reshape(*keys.shape[:3], -1, 4).swapaxes(2, 3).reshape(keys.shape)


def self_attention(x, w, b, past, added=0.0, source=None, scale=0.5, rotary_at=None):
    """A step behind the rows of a past, some of which other beams may have written."""
    q, k, v = (heads(part, 2) for part in np.split(x @ w + b, 3, 2))
    if rotary_at is not None:
        angles = rotary_at / 10000 ** (np.arange(0, NARROW, 2) / NARROW)
        c, s = np.cos(angles), np.sin(angles)
        q, k = (np.concatenate([y[..., :2] * c - y[..., 2:] * s, y[..., 2:] * c + y[..., :2] * s], -1) for y in (q, k))
    if source is not None:
        rows = np.arange(past.shape[3])
        past = np.moveaxis(np.moveaxis(past, 3, 2)[:, source[:, rows], rows], 2, 3)
    keys, values = np.concatenate([past[0], k], 2), np.concatenate([past[1], v], 2)
    weights = softmax(q @ keys.swapaxes(2, 3) * scale + added, -1)
    return merged(weights @ values), np.stack([keys, values])


def self_attention_in_buffer(x, w, b, past, length: int, **rest: Any):
    """In a buffer of four rows, whose keys are in groups."""
    size = past.shape[3] // 4 * 4
    keys = past[0].reshape(2, 2, -1, size, 4).swapaxes(2, 3).reshape(past[0].shape)
    before = np.stack([keys, past[1]])
    y, used = self_attention(x, w, b, before[:, :, :, :length], **rest)
    before[:, :, :, length] = used[:, :, :, length]
    return y, np.stack([in_groups(before[0]), before[1]])


def masked_self(inputs: list[Any], meaning: Any, **attributes: Any):
    return microsoft(
        "DecoderMaskedSelfAttention", inputs, outputs=2, num_heads=2, meaning=several(meaning), **attributes
    )


# no kernel for the CPU
MASKED_SELF_ROWS = [
    masked_self([*MERGED, None, BOTH, None, int32(4)], lambda x, w, b, past, n: self_attention(x, w, b, past)),
    masked_self(
        [*MERGED, SELF_MASK, BOTH[:, :, :, :2].copy(), waves(1, 2, 1, 3), int32(2)],
        lambda x, w, b, mask, past, bias, n: self_attention(
            x, w, b, past, bias + np.where(mask[:, None, None] > 0, 0, -1.5), scale=0.7
        ),
        mask_filter_value=-1.5,
        scale=0.7,
    ),
    masked_self(
        [*MERGED, None, BOTH, None, int32(2), int32(2), SELF_BEAMS],
        lambda x, w, b, past, n, width, beams: self_attention_in_buffer(
            x, w, b, past, 2, source=beams[0].astype(np.int64)
        ),
        past_present_share_buffer=1,
    ),
    masked_self(
        [*MERGED, None, BOTH, None, int32(3)],
        lambda x, w, b, past, n: self_attention_in_buffer(x, w, b, past, 3, rotary_at=3),
        past_present_share_buffer=1,
        do_rotary=1,
    ),
]

# --- DecoderAttention ---

DECODER = [waves(3, 2, 8, scale=2.0), waves(4, 2, 8), waves(8, 8, scale=0.5), waves(8, 16, scale=0.4), waves(24)]
DECODER_CACHE = [waves(2, 2, 5, NARROW), waves(2, 2, 5, NARROW)[::-1].copy()]


def decoder(static_kv: bool, use_past: bool, has_layer_state: bool, has_mask: bool):
    def function(query, key, q_weight, kv_weight, bias, *rest):
        rows = [
            x.swapaxes(0, 1)
            for x in (query @ q_weight + bias[:8], (key if static_kv else query) @ kv_weight + bias[8:])
        ]
        q, k, v = (heads(x, 2) for x in (rows[0], *np.split(rows[1], 2, 2)))
        if use_past and has_layer_state:
            cache = rest[1:3] if has_mask else rest[:2]
            k, v = cache if static_kv else (np.concatenate(both, 2) for both in zip(cache, (k, v), strict=True))
        allowed = rest[0][:, None, None] == 0 if has_mask else True
        return merged(attended(q, k, v, allowed)).swapaxes(0, 1), k, v

    return several(function)


def decoder_row(
    flags: tuple[bool, bool, bool, bool], keys: int, cached: bool = True, outputs: int = 3, **attributes: Any
):
    mask = np.arange(2 * keys).reshape(2, keys) % 3 == 1
    return microsoft(
        "DecoderAttention",
        [
            *DECODER,
            mask if flags[3] else None,
            *(DECODER_CACHE if cached else [None, None]),
            *(np.array([x]) for x in flags),
        ],
        outputs=outputs,
        num_heads=2,
        meaning=decoder(*flags) if outputs == 3 else lambda case: decoder(*flags)(case)[:1],
        **attributes,
    )


# no kernel for the CPU
DECODER_ROWS = [
    decoder_row((False, False, True, False), 3, cached=False),
    decoder_row((True, False, True, True), 4, cached=False, mask_filter_value=-5.0),
    decoder_row((False, True, True, True), 8),
    decoder_row((True, True, True, True), 5),
    decoder_row((True, True, False, False), 4, cached=False, outputs=1),
]

# --- PagedAttention, SparsePagedAttention ---

# Two new tokens behind three, and one behind none, in blocks of four rows.
TOKENS = [waves(3, 4 * 16, scale=2.0), waves(3, 2 * 16)[::-1].copy(), waves(3, 2 * 16, scale=3.0)]
BLOCKS = [waves(6, 4, 2, 16, scale=1.5), waves(6, 4, 2, 16)[::-1].copy()]
PAGES = [int32(0, 2, 3), int32(3, 0), int32(4, 1, 2, -1).reshape(2, 2)]
SEQUENCES = [(0, 2, 3), (2, 3, 0)]  # from a token to another, and how many lie in the past
SLOTS = [4 * 4 + 3, 1 * 4 + 0, 2 * 4 + 0]
PAGED_ANGLES = [np.cos(waves(8, 4, scale=3.0)), np.sin(waves(8, 4, scale=3.0))]
CACHE_OF_8_BITS = [
    np.rint(waves(6, 4, 2, 16, scale=90)).astype(np.int8),
    np.rint(waves(6, 4, 2, 16, scale=70)).astype(np.int8),
]
CACHE_OF_4_BITS = [np.rint(waves(6, 4, 2, 8, scale=120) + 125).astype(np.uint8) for _ in range(2)]
CHANNEL_SCALES = (np.abs(waves(2, 1, 16)) + 0.5).astype(np.float32) / 16


def rms(x: np.ndarray, weight: np.ndarray, epsilon: float) -> np.ndarray:
    return x / np.sqrt((x * x).mean(-1, keepdims=True) + epsilon) * weight


def turned(x: np.ndarray, at: int, cos: np.ndarray, sin: np.ndarray, interleaved: bool) -> np.ndarray:
    """Eight elements of each head."""
    one, other = (slice(0, 8, 2), slice(1, 8, 2)) if interleaved else (slice(0, 4), slice(4, 8))
    y = x.copy()
    y[..., one] = x[..., one] * cos[at] - x[..., other] * sin[at]
    y[..., other] = x[..., other] * cos[at] + x[..., one] * sin[at]
    return y


def weighted(
    q: np.ndarray, keys: np.ndarray, values: np.ndarray, scale: float, softcap: float, sink: Any
) -> np.ndarray:
    """Of one token: its heads to rows of [keys, heads, size]."""
    groups = len(q) // keys.shape[1]
    scores = np.einsum("hd,khd->hk", q, keys.repeat(groups, 1)) * scale
    if softcap:
        scores = np.tanh(scores / softcap) * softcap
    if sink is not None:
        scores = np.concatenate([scores, sink[:, None]], 1)
    weights = softmax(scores, -1)[:, : len(keys)] if scores.size else scores
    return np.einsum("hk,khd->hd", weights, values.repeat(groups, 1))


def paged(
    packed=False,
    latent=0,
    angles=False,
    interleaved=False,
    offset=0,
    slots=SLOTS,
    sink=False,
    norm=0.0,
    decode=None,
    encode=None,
    causal=True,
    window=-1,
    scale=0.25,
    softcap=0.0,
    selected=None,
    with_local=True,
    auxiliary=None,
):
    """Sequence by sequence, and token by token."""

    def function(case) -> list[Any]:
        node, names = case.model.graph.node[-1], [i.name for i in case.model.graph.input]
        formals = [f.name for f in case.cell.schema.inputs]
        given = {f: case.inputs[names.index(n)] for f, n in zip(formals, node.input, strict=False) if n}
        given = {f: x if x.dtype.kind in "ui" else x.astype(np.float64) for f, x in given.items()}
        q, k, v = given["query"], given.get("key"), given.get("value")
        if packed:
            q, k, v = np.split(q, [64, 96], 1)
        q, k = q.reshape(3, -1, 16), k.reshape(3, -1, 16)
        if norm:
            q, k = rms(q, given["q_norm_weight"], norm), rms(k, given["k_norm_weight"], norm)
        if angles:
            caches = given["cos_cache"], given["sin_cache"], interleaved
            for start, end, past in SEQUENCES:
                for t in range(start, end):
                    for x in (q, k):
                        x[t, :, offset:] = turned(x[t, :, offset:], past + t - start, *caches)
        caches = [
            given[name].reshape(24, *given[name].shape[2:]).copy()
            for name in ("key_cache", "value_cache")
            if name in given
        ]
        for i, new in enumerate((k, None if latent else v.reshape(3, -1, 16))[: len(caches)]):
            for t, slot in enumerate(slots):
                if slot >= 0:
                    caches[i][slot] = encode(new[t], i, given) if encode else new[t]
        rows = [decode(x, i, given) if decode else x for i, x in enumerate(caches)]
        keys, values = rows if len(rows) == 2 else (rows[0], rows[0][..., :latent])
        out = []
        for b, (start, end, past) in enumerate(SEQUENCES):
            length = past + end - start
            at = [given["block_table"][b][p // 4] * 4 + p % 4 for p in range(length)]
            for t in range(start, end):
                here = past + t - start
                seen = [p for p in range(length) if p <= here or not causal]
                local = [p for p in seen if window < 0 or p > here - window]
                chosen = [] if selected is None else [p for p in selected[t] if p >= 0]
                own = local if selected is None else (local if with_local else [])
                if selected is not None and auxiliary is None:
                    own = sorted({*own, *(p for p in chosen if p in seen)})
                kk, vv = keys[[at[p] for p in own]], values[[at[p] for p in own]]
                if auxiliary is not None:
                    more = [p for p in chosen if p < auxiliary[b]]
                    extra = (
                        given["auxiliary_key"][b][more],
                        given.get("auxiliary_value", given["auxiliary_key"])[b][more],
                    )
                    kk, vv = (
                        np.concatenate([x, y.repeat(2 // y.shape[1], 1)]) for x, y in ((kk, extra[0]), (vv, extra[1]))
                    )
                out.append(weighted(q[t], kk, vv, scale, softcap, given.get("head_sink") if sink else None))
        shapes = [given[name].shape for name in ("key_cache", "value_cache") if name in given]
        return [np.stack(out).reshape(3, -1), *(x.reshape(shape) for x, shape in zip(caches, shapes, strict=True))]

    return function


def of_8_bits(dtype: Any, shape: tuple[int, ...] = ()):
    scales = ("k_scale", "v_scale")

    def encode(x, i, given):
        y = x.astype(np.float64) / np.reshape(given[scales[i]], shape)
        return np.clip(np.rint(y), -128, 127) if dtype == np.int8 else y.astype(dtype)

    return {"encode": encode, "decode": lambda x, i, given: x * np.reshape(given[scales[i]], shape)}


def of_4_bits(numbers: np.ndarray):
    """A byte has the codes of two, which are places in `numbers`."""

    def encode(x, i, given):
        scale = given[("k_scale", "v_scale")[i]][0]
        codes = np.abs(x[..., None] / scale - numbers).argmin(-1)
        return codes[..., ::2] + 16 * codes[..., 1::2]

    def decode(x, i, given):
        codes = np.stack([x % 16, x // 16], -1).reshape(*x.shape[:-1], 16)
        return numbers[codes] * given[("k_scale", "v_scale")[i]][0]

    return {"encode": encode, "decode": decode}


INT4 = np.array([*range(8), *range(-8, 0)])
FLOAT4 = np.array([0, 0.5, 1, 1.5, 2, 3, 4, 6, 0, -0.5, -1, -1.5, -2, -3, -4, -6])


def paged_row(
    inputs: list[Any], outputs: int = 3, kv_num_heads: int = 2, only: str = "", attributes: Any = None, **rest: Any
):
    return microsoft(
        "PagedAttention",
        in_half(inputs, 14),
        outputs=outputs,
        only=only,
        meaning=(lambda case: paged(**rest)(case)[:outputs]),
        num_heads=4,
        kv_num_heads=kv_num_heads,
        **(attributes or {}),
    )


def in_half(inputs: list[Any], scales: int) -> list[Any]:
    """But for the scales, two inputs from a place on."""
    halves = [x.astype(np.float16) if x is not None and x.dtype == np.float32 else x for x in inputs]
    return [*halves[:scales], *inputs[scales : scales + 2], *halves[scales + 2 :]]


QUANTIZED_BY_TENSOR = {"k_quant_type": "PER_TENSOR", "v_quant_type": "PER_TENSOR"}
QUANTIZED_BY_CHANNEL = {"k_quant_type": "PER_CHANNEL", "v_quant_type": "PER_CHANNEL"}
WHOLE_TOKENS = [np.rint(x * 2) for x in TOKENS]
SCALES_OF_8_BITS = [*[None] * 6, floats(0.02), floats(0.04)]

PAGED_ROWS = [
    paged_row(
        [*TOKENS, *CACHE_OF_8_BITS, *PAGES, *SCALES_OF_8_BITS],
        only="T_CACHE/tensor.int8",
        attributes=QUANTIZED_BY_TENSOR,
        **of_8_bits(np.int8),
    ),
    paged_row(
        [*WHOLE_TOKENS, *(np.rint(x * 2) for x in BLOCKS), *PAGES, *[None] * 6, floats(1), floats(0.5)],
        only="T_CACHE/tensor.float8",
        attributes=QUANTIZED_BY_TENSOR,
        **of_8_bits(np.float64),
    ),
    paged_row(
        [*WHOLE_TOKENS, *CACHE_OF_4_BITS, *PAGES, *[None] * 6, floats(1), floats(0.5)],
        only="T_CACHE/tensor.uint8",
        attributes={**QUANTIZED_BY_TENSOR, "k_cache_dtype": "int4", "v_cache_dtype": "int4"},
        **of_4_bits(INT4),
    ),
    paged_row([*TOKENS, *BLOCKS, *PAGES]),
    paged_row([np.concatenate(TOKENS, 1), None, None, *BLOCKS, *PAGES], outputs=1, packed=True),
    paged_row([*TOKENS, *BLOCKS, *PAGES, *PAGED_ANGLES], attributes={"do_rotary": 1}, angles=True),
    paged_row(
        [*TOKENS, *BLOCKS, *PAGES, *PAGED_ANGLES],
        angles=True,
        interleaved=True,
        offset=8,
        attributes={"do_rotary": 1, "rotary_interleaved": 1, "rotary_offset": 8},
    ),
    paged_row([*TOKENS, *BLOCKS, *PAGES, None, None, int32(22, -1, 8)], slots=[22, -1, 8]),
    paged_row(
        [*TOKENS, *BLOCKS, *PAGES, None, None, None, floats(0.5, -1, 2, 0)],
        sink=True,
        softcap=1.5,
        scale=0.5,
        attributes={"softcap": 1.5, "scale": 0.5},
    ),
    paged_row(
        [*TOKENS, *BLOCKS, *PAGES, *[None] * 4, waves(16), waves(16)[::-1].copy()],
        norm=0.5,
        attributes={"qk_norm_epsilon": 0.5},
    ),
    paged_row(
        [*TOKENS, *BLOCKS, *PAGES, *[None] * 8, int32(2, 8)],
        causal=False,
        window=2,
        attributes={"is_causal": 0, "local_window_size": 2},
    ),
    paged_row(
        [*TOKENS, *CACHE_OF_8_BITS, *PAGES, *[None] * 6, CHANNEL_SCALES, 2 * CHANNEL_SCALES],
        attributes=QUANTIZED_BY_CHANNEL,
        **of_8_bits(np.int8, (2, 16)),
    ),
    paged_row(
        [*WHOLE_TOKENS, *CACHE_OF_4_BITS, *PAGES, *[None] * 6, floats(1), floats(2)],
        attributes={**QUANTIZED_BY_TENSOR, "k_cache_dtype": "float4e2m1", "v_cache_dtype": "float4e2m1"},
        **of_4_bits(FLOAT4),
    ),
    paged_row(
        [TOKENS[0], TOKENS[1][:, :16].copy(), None, BLOCKS[0][:, :, :1].copy(), None, *PAGES],
        outputs=2,
        kv_num_heads=1,
        latent=8,
        scale=0.5,
        attributes={"kv_cache_layout": "LATENT", "v_head_size": 8, "scale": 0.5},
    ),
]

SELECTED = int32(0, 3, -1, 2, 4, 1, 5, 0, -1).reshape(3, 3)
COUNTED = [[0, 3], [2, 4, 1], [5, 0]]
AUXILIARY = [waves(2, 4, 1, 16, scale=1.5), waves(2, 4, 1, 16)[::-1].copy()]


def sparse_paged_row(inputs: list[Any], outputs: int = 3, attributes: Any = None, only: str = "", **rest: Any):
    return microsoft(
        "SparsePagedAttention",
        in_half(inputs, 19),
        outputs=outputs,
        only=only,
        meaning=(lambda case: paged(selected=COUNTED, **rest)(case)[:outputs]),
        num_heads=4,
        kv_num_heads=2,
        **(attributes or {}),
    )


CHOICE = [None, SELECTED, int32(2, 3, 2)]
LOCAL = {"attention_mode": "local_plus_selected"}

SPARSE_PAGED_ROWS = [
    sparse_paged_row(
        [*TOKENS, *CACHE_OF_8_BITS, *PAGES, *CHOICE, *[None] * 8, floats(0.02), floats(0.04)],
        only="T_CACHE/tensor.int8",
        attributes=QUANTIZED_BY_TENSOR,
        with_local=False,
        **of_8_bits(np.int8),
    ),
    sparse_paged_row([*TOKENS, *BLOCKS, *PAGES, *CHOICE], with_local=False),
    sparse_paged_row(
        [np.concatenate(TOKENS, 1), None, None, *BLOCKS, *PAGES, *CHOICE],
        outputs=1,
        packed=True,
        with_local=False,
        causal=False,
        attributes={"is_causal": 0},
    ),
    sparse_paged_row([*TOKENS, *BLOCKS, *PAGES, *CHOICE], window=1, attributes={**LOCAL, "local_window_size": 1}),
    sparse_paged_row(
        [*TOKENS, *BLOCKS, *PAGES, int32(22, -1, 8), *CHOICE[1:], *AUXILIARY, int32(4, 3)],
        with_local=False,
        slots=[22, -1, 8],
        auxiliary=[4, 3],
        attributes={"selected_kv_source": "auxiliary"},
    ),
    sparse_paged_row(
        [*TOKENS, *BLOCKS, *PAGES, *CHOICE, AUXILIARY[0], None, int32(4, 3), *PAGED_ANGLES, floats(0.5, -1, 2, 0)],
        auxiliary=[4, 3],
        window=2,
        sink=True,
        angles=True,
        interleaved=True,
        offset=8,
        scale=0.5,
        softcap=1.5,
        attributes={
            **LOCAL,
            "selected_kv_source": "auxiliary",
            "auxiliary_kv_shared": 1,
            "local_window_size": 2,
            "do_rotary": 1,
            "rotary_interleaved": 1,
            "rotary_offset": 8,
            "scale": 0.5,
            "softcap": 1.5,
            "auxiliary_cache_layout": "contiguous",
        },
    ),
    sparse_paged_row(
        [
            *TOKENS,
            *BLOCKS,
            *PAGES,
            *CHOICE,
            *[None] * 6,
            waves(16),
            waves(16)[::-1].copy(),
            None,
            None,
            int32(2, 5, 3, 0, 5),
        ],
        with_local=False,
        norm=0.5,
        attributes={"qk_norm_epsilon": 0.5},
    ),
    sparse_paged_row(
        [*TOKENS, *CACHE_OF_8_BITS, *PAGES, *CHOICE, *[None] * 8, CHANNEL_SCALES, 2 * CHANNEL_SCALES],
        with_local=False,
        attributes=QUANTIZED_BY_CHANNEL,
        **of_8_bits(np.int8, (2, 16)),
    ),
]

# --- SparseAttentionIndexer ---

INDEX_ANGLES = [np.cos(waves(12, 4, scale=3.0)), np.sin(waves(12, 4, scale=3.0))]
INDEX_WEIGHTS = [waves(8) + 1.5, waves(8)[::-1].copy() + 1.5]


def named_inputs(case: Any) -> dict[str, np.ndarray]:
    """By their names in the schema."""
    names = [i.name for i in case.model.graph.input]
    given = zip((f.name for f in case.cell.schema.inputs), case.model.graph.node[-1].input, strict=False)
    values = {formal: np.asarray(case.inputs[names.index(name)]) for formal, name in given if name}
    return {name: x if x.dtype.kind in "ui" else x.astype(np.float64) for name, x in values.items()}


def turned_first(x: np.ndarray, cos: np.ndarray, sin: np.ndarray) -> np.ndarray:
    """The halves of the first four elements."""
    head = x[..., :4]
    return np.concatenate([head * cos + np.concatenate([-head[..., 2:], head[..., :2]], -1) * sin, x[..., 4:]], -1)


def turned_last(x: np.ndarray, cos: np.ndarray, sin: np.ndarray) -> np.ndarray:
    """Pairs of the last eight elements."""
    y, (a, b) = x.copy(), (x[..., -8::2], x[..., -7::2])
    y[..., -8::2], y[..., -7::2] = a * cos - b * sin, b * cos + a * sin
    return y


def ranked(scores: list[float], count: int) -> list[int]:
    return sorted(range(len(scores)), key=lambda i: (-scores[i], i))[:count]


def filled(rows: list[list[int]], capacity: int) -> np.ndarray:
    return np.array([row + [-1] * (capacity - len(row)) for row in rows], np.int32).reshape(-1, capacity)


def chosen_tokens(q, keys, seen, at, angles, weights, ratio, budget, scale, epsilon) -> list[int]:
    """Of one query."""
    cos, sin = angles
    q = turned_first(rms(q, weights[0], epsilon), cos[at], sin[at])
    blocks = [seen[i : i + ratio] for i in range(0, len(seen) - ratio + 1, ratio)]
    pooled = [turned_first(rms(keys[b].mean(0), weights[1], epsilon), cos[b[0]], sin[b[0]]) for b in blocks]
    scores = [np.maximum(q @ key, 0).sum() * scale for key in pooled]
    best = [t for i in ranked(scores, budget // ratio) for t in blocks[i]]
    return best + list(seen[len(blocks) * ratio :])


def token_indexer(ratio: int, budget: int, scale: float = 8**-0.5, epsilon: float = 1e-6):
    def function(case: Any) -> list[Any]:
        g = named_inputs(case)
        q, k = (g["query"], g["key"]) if "key" in g else np.split(g["query"], [-8], 2)
        batch, sequence = q.shape[:2]
        past = int(g["past_sequence_length"][0]) if "past_sequence_length" in g else g["past_key"].shape[1]
        whole = np.concatenate([g["past_key"][:, :past], k], 1)
        present = g["past_key"].copy() if "past_sequence_length" in g else whole
        present[:, : past + sequence] = whole
        rows = []
        for b in range(batch):
            angles = [g[name] if g[name].ndim == 2 else g[name][b] for name in ("cos_cache", "sin_cache")]
            for s in range(sequence):
                seen = [t for t in range(past + s + 1) if "mask" not in g or g["mask"][b, t]]
                query = q[b, s].reshape(-1, 8)
                weights = g["query_norm_weight"], g["key_norm_weight"]
                rows.append(
                    chosen_tokens(query, whole[b], seen, past + s, angles, weights, ratio, budget, scale, epsilon)
                )
        return [filled(rows, budget + ratio - 1).reshape(batch, sequence, -1), present]

    return function


def compressed(kv, gate, before, bias, ratio, weight, angles, first, epsilon):
    """Windows of one sequence, whose tokens are behind `before` ones."""
    out = []
    for w in range((len(kv) - before) // ratio):
        at = before + w * ratio
        parts = [(gate[at : at + ratio, 8:] + bias[:, 8:], kv[at : at + ratio, 8:])]
        if at >= ratio:
            parts.append((gate[at - ratio : at, :8] + bias[:, :8], kv[at - ratio : at, :8]))
        logits, values = (np.concatenate(x) for x in zip(*parts, strict=True))
        position = min((first + w) * ratio, len(angles[0]) - 1)
        key = rms((softmax(logits, 0) * values).sum(0), weight, epsilon)
        out.append(turned_last(key, angles[0][position], angles[1][position]))
    return np.array(out).reshape(-1, 8)


def chosen_windows(q, keys, head_weights, at, angles, weight, ratio, count, scale, epsilon) -> list[int]:
    q = turned_last(rms(q, weight, epsilon), angles[0][at], angles[1][at])
    ends = min((at + 1) // ratio, len(keys))
    return ranked([(np.maximum(q @ key, 0) * head_weights).sum() * scale for key in keys[:ends]], count)


def window_indexer(ratio: int, count: int, scale: float = 8**-0.5 * 2**-0.5, epsilon: float = 1e-6):
    def function(case: Any) -> list[Any]:
        g = named_inputs(case)
        batch, sequence = g["query"].shape[:2]
        buffer = g["past_proj_buffer"]
        before = ratio if buffer.shape[2] >= ratio else 0
        done = int(g["past_sequence_length"][0]) if "past_sequence_length" in g else g["past_key"].shape[1]
        kv, gate = np.concatenate([buffer, np.stack([g["key"], g["gate"]])], 2)
        new = (kv.shape[1] - before) // ratio
        rest = (kv.shape[1] - before) % ratio + (ratio if new else before)
        rows, keys = [], []
        for b in range(batch):
            angles = [g[name] if g[name].ndim == 2 else g[name][b] for name in ("cos_cache", "sin_cache")]
            own = compressed(
                kv[b], gate[b], before, g["position_bias"], ratio, g["key_norm_weight"], angles, done, epsilon
            )
            keys.append(np.concatenate([g["past_key"][b, :done], own]))
            for s in range(sequence):
                at = int(g["position_ids"][b, s])
                q, weights = g["query"][b, s].reshape(-1, 8), g["head_weights"][b, s]
                rows.append(
                    chosen_windows(
                        q, keys[b], weights, at, angles, g["query_norm_weight"], ratio, count, scale, epsilon
                    )
                )
        present = g["past_key"].copy() if "past_sequence_length" in g else np.stack(keys)
        present[:, : done + new] = np.stack(keys)
        selected = filled(rows, count).reshape(batch, sequence, -1)
        return [selected, present, np.stack([kv[:, kv.shape[1] - rest :], gate[:, kv.shape[1] - rest :]])]

    return function


def tokens_row(inputs: list[Any], meaning: Any, **attributes: Any):
    return microsoft("SparseAttentionIndexer", inputs, outputs=2, policy_mode="qsa", meaning=meaning, **attributes)


def windows_row(inputs: list[Any], meaning: Any, **attributes: Any):
    return microsoft("SparseAttentionIndexer", inputs, outputs=3, policy_mode="csa", meaning=meaning, **attributes)


INDEX_QUERY, INDEX_KEY, INDEX_PAST = waves(2, 4, 16, scale=2.0), waves(2, 4, 8)[::-1].copy(), waves(2, 6, 8, scale=1.5)
INDEX_MASK = (np.arange(20) % 4 != 1).astype(np.int64).reshape(2, 10)
OF_EACH = [np.stack([x, x[::-1]]) for x in INDEX_ANGLES]
BOTH_IN_ONE = np.concatenate([INDEX_QUERY, INDEX_KEY], 2)
WINDOW_KEY, WINDOW_GATE = waves(2, 4, 16)[::-1].copy(), waves(2, 4, 16, scale=1.5)
WINDOW_BIAS, HEAD_WEIGHTS, WINDOW_AT = waves(3, 16), waves(2, 4, 2) + 0.3, ints([5, 6, 7, 8], [8, 9, 10, 11])
WINDOWS = [WINDOW_GATE, WINDOW_BIAS, HEAD_WEIGHTS, WINDOW_AT]

# no kernel for the CPU
INDEXER_ROWS = [
    tokens_row(
        [INDEX_QUERY, INDEX_KEY, *INDEX_WEIGHTS, *INDEX_ANGLES, None, INDEX_PAST],
        token_indexer(2, 4),
        compress_ratio=2,
        token_budget=4,
    ),
    tokens_row(
        [BOTH_IN_ONE, None, *INDEX_WEIGHTS, *OF_EACH, INDEX_MASK, INDEX_PAST],
        token_indexer(3, 6, 0.5, 0.25),
        compress_ratio=3,
        token_budget=6,
        scale=0.5,
        epsilon=0.25,
    ),
    tokens_row(
        [
            INDEX_QUERY,
            INDEX_KEY,
            *INDEX_WEIGHTS,
            *INDEX_ANGLES,
            INDEX_MASK[:, :6].copy(),
            INDEX_PAST,
            *[None] * 4,
            int32(2),
        ],
        token_indexer(2, 12),
        compress_ratio=2,
        token_budget=12,
    ),
    tokens_row(
        [INDEX_QUERY, INDEX_KEY, *INDEX_WEIGHTS, *INDEX_ANGLES, None, INDEX_PAST[:, :0]],
        token_indexer(8, 8),
        compress_ratio=8,
        token_budget=8,
    ),
    windows_row(
        [
            INDEX_QUERY,
            WINDOW_KEY,
            *INDEX_WEIGHTS,
            *INDEX_ANGLES,
            None,
            INDEX_PAST[:, :2].copy(),
            *WINDOWS,
            None,
            waves(2, 2, 4, 16, scale=0.7),
        ],
        window_indexer(3, 2),
        compress_ratio=3,
        index_topk=2,
    ),
    windows_row(
        [
            INDEX_QUERY,
            WINDOW_KEY,
            *INDEX_WEIGHTS,
            *OF_EACH,
            None,
            INDEX_PAST,
            *WINDOWS,
            int32(2),
            waves(2, 2, 2, 16, scale=0.7),
        ],
        window_indexer(3, 5, 0.25, 0.25),
        compress_ratio=3,
        index_topk=5,
        scale=0.5,
        head_weight_scale=0.5,
        epsilon=0.25,
    ),
    windows_row(
        [
            INDEX_QUERY[:, :2].copy(),
            WINDOW_KEY[:, :2].copy(),
            *INDEX_WEIGHTS,
            *INDEX_ANGLES,
            None,
            INDEX_PAST[:, :0],
            *(x if i == 1 else x[:, :2].copy() for i, x in enumerate(WINDOWS)),
            None,
            waves(2, 2, 0, 16),
        ],
        window_indexer(3, 2),
        compress_ratio=3,
        index_topk=2,
    ),
]

# --- PackedSparseAttentionIndexer ---

PACKED_LENGTHS = [int32(0, 4, 4, 7), int32(5, 3, 1)]  # of three sequences, of which one has no new token
PACKED_QUERY, PACKED_KEY, STATE = waves(7, 16, scale=2.0), waves(7, 8)[::-1].copy(), waves(3, 5, 8, scale=1.5)
TOKEN_BUFFER, TOKEN_STATES = waves(3, 3, 8, scale=1.2), int32(2, 1, 1, 1, 0, 1).reshape(3, 2)
OF_THREE = [np.stack([x, x[::-1], x * 0.5]) for x in INDEX_ANGLES]


def packed_tokens(ratio: int, budget: int, scale: float = 8**-0.5, epsilon: float = 1e-6, active: bool = True):
    """For each sequence, whose blocks keep the type of the states."""

    def function(case: Any) -> list[Any]:
        g, dtype = named_inputs(case), case.inputs[0].dtype
        q, k = (g["query"], g["key"]) if "key" in g else np.split(g["query"], [-8], 1)
        state, buffer, lengths = (g[name].copy() for name in ("past_key_state", "past_kv_buffer", "past_state_lengths"))
        captured = g.get("state_update_capture_count", np.zeros(3, int))
        update = np.zeros((3, 4 if "state_update_capture_count" in g else 0, 8))
        rows = []
        for b in range(3):
            start, end = g["cumulative_sequence_lengths"][b : b + 2]
            past, (entries, pending) = int(g["past_sequence_lengths"][b]), lengths[b]
            own = np.concatenate([buffer[b, :pending], k[start:end]])
            new = len(own) // ratio
            if entries + new > state.shape[1]:
                rows += [[] for _ in range(start, end)]
                continue
            cos, sin = (g[name] if g[name].ndim == 2 else g[name][b] for name in ("cos_cache", "sin_cache"))
            for i in range(new):
                at = min((entries + i) * ratio, len(cos) - 1)
                pooled = rms(own[i * ratio : (i + 1) * ratio].mean(0), g["key_norm_weight"], epsilon)
                state[b, entries + i] = turned_first(pooled, cos[at], sin[at]).astype(dtype)
            for i in range(min(captured[b], end - start, update.shape[1]) if active else 0):
                whole = (pending + i + 1) % ratio == 0
                update[b, i] = state[b, entries + (pending + i) // ratio] if whole else k[start + i]
            lengths[b] = entries + new, len(own) - new * ratio
            buffer[b, : len(own) - new * ratio] = own[new * ratio :]
            for t in range(start, end):
                at = past + t - start
                query = turned_first(rms(q[t].reshape(-1, 8), g["query_norm_weight"], epsilon), cos[at], sin[at])
                blocks = (at + 1) // ratio
                scores = [np.maximum(query @ state[b, i], 0).sum() * scale for i in range(blocks)]
                best = [j for i in ranked(scores, budget // ratio) for j in range(i * ratio, (i + 1) * ratio)]
                rows.append(best + list(range(blocks * ratio, at + 1)))
        counts = np.array([len(row) for row in rows], np.int32)
        return [filled(rows, budget + ratio - 1), counts, state, buffer, lengths, *([update] if update.size else [])]

    return function


def packed_windows(ratio: int, count: int, scale: float = 8**-0.5 * 2**-0.5, epsilon: float = 1e-6):
    def function(case: Any) -> list[Any]:
        g, dtype = named_inputs(case), case.inputs[0].dtype
        state, lengths = g["past_key_state"].copy(), g["past_state_lengths"].copy()
        buffers = [g["past_kv_buffer"].copy(), g["past_gate_buffer"].copy()]
        rows = []
        for b in range(3):
            start, end = g["cumulative_sequence_lengths"][b : b + 2]
            entries, pending = lengths[b]
            own = [
                np.concatenate([x[b, :pending], y[start:end]])
                for x, y in zip(buffers, (g["key"], g["gate"]), strict=True)
            ]
            before = ratio if pending >= ratio else 0
            new = (len(own[0]) - before) // ratio
            if entries + new > state.shape[1]:
                rows += [[] for _ in range(start, end)]
                continue
            angles = [g[name] if g[name].ndim == 2 else g[name][b] for name in ("cos_cache", "sin_cache")]
            windows = compressed(
                *own, before, g["position_bias"], ratio, g["key_norm_weight"], angles, entries, epsilon
            )
            state[b, entries : entries + new] = windows.astype(dtype)
            rest = (len(own[0]) - before) % ratio + (ratio if new else before)
            for x, y in zip(buffers, own, strict=True):
                x[b, :rest] = y[len(y) - rest :]
            lengths[b] = entries + new, rest
            for t in range(start, end):
                query, weights, at = g["query"][t].reshape(-1, 8), g["head_weights"][t], int(g["position_ids"][t])
                keys = state[b, : entries + new]
                rows.append(
                    chosen_windows(
                        query, keys, weights, at, angles, g["query_norm_weight"], ratio, count, scale, epsilon
                    )
                )
        return [filled(rows, count), np.array([len(row) for row in rows], np.int32), state, *buffers, lengths]

    return function


def packed_row(inputs: list[Any], outputs: list[str], policy_mode: str, meaning: Any, **attributes: Any):
    op, first, last, template, only = microsoft(
        "PackedSparseAttentionIndexer", inputs, policy_mode=policy_mode, meaning=meaning, **attributes
    )
    template.outputs = outputs
    return op, first, last, template, only


OF_TOKENS = ["selected", "counts", "state", "buffer", "", "lengths"]
OF_WINDOWS = ["selected", "counts", "state", "buffer", "gates", "lengths"]
WINDOW_STATES = [waves(3, 5, 16, scale=0.7), waves(3, 5, 16, scale=1.1), int32(2, 4, 1, 1, 5, 2).reshape(3, 2)]
PACKED_WINDOWS = [waves(7, 16, scale=1.5), waves(3, 16), waves(7, 2) + 0.3, ints(5, 6, 7, 8, 9, 10, 11)]

# no kernel for the CPU
PACKED_INDEXER_ROWS = [
    packed_row(
        [
            PACKED_QUERY,
            PACKED_KEY,
            *INDEX_WEIGHTS,
            *INDEX_ANGLES,
            *PACKED_LENGTHS,
            *[None] * 4,
            STATE,
            TOKEN_BUFFER,
            None,
            TOKEN_STATES,
        ],
        OF_TOKENS,
        "qsa",
        packed_tokens(2, 4),
        compress_ratio=2,
        token_budget=4,
        state_capacity=5,
    ),
    # with what the first tokens do to the states; the first sequence's do not fit
    packed_row(
        [
            np.concatenate([PACKED_QUERY, PACKED_KEY], 1),
            None,
            *INDEX_WEIGHTS,
            *OF_THREE,
            *PACKED_LENGTHS,
            *[None] * 4,
            STATE[:, :3].copy(),
            TOKEN_BUFFER,
            None,
            TOKEN_STATES,
            int32(2, 3, 9),
            int32(1),
        ],
        [*OF_TOKENS, "update"],
        "qsa",
        packed_tokens(2, 2, 0.5, 0.25),
        compress_ratio=2,
        token_budget=2,
        state_capacity=3,
        scale=0.5,
        epsilon=0.25,
        state_update_capacity=4,
    ),
    packed_row(
        [
            PACKED_QUERY,
            PACKED_KEY,
            *INDEX_WEIGHTS,
            *INDEX_ANGLES,
            *PACKED_LENGTHS,
            *[None] * 4,
            STATE,
            TOKEN_BUFFER,
            None,
            TOKEN_STATES,
            int32(2, 3, 9),
            int32(0),
        ],
        [*OF_TOKENS, "update"],
        "qsa",
        packed_tokens(2, 4, active=False),
        compress_ratio=2,
        token_budget=4,
        state_capacity=5,
        state_update_capacity=4,
    ),
    packed_row(
        [
            PACKED_QUERY,
            waves(7, 16)[::-1].copy(),
            *INDEX_WEIGHTS,
            *INDEX_ANGLES,
            *PACKED_LENGTHS,
            *PACKED_WINDOWS,
            waves(3, 6, 8, scale=1.5),
            *WINDOW_STATES,
        ],
        OF_WINDOWS,
        "csa",
        packed_windows(3, 2),
        compress_ratio=3,
        index_topk=2,
        state_capacity=6,
    ),
    packed_row(
        [
            PACKED_QUERY,
            waves(7, 16)[::-1].copy(),
            *INDEX_WEIGHTS,
            *OF_THREE,
            *PACKED_LENGTHS,
            *PACKED_WINDOWS,
            waves(3, 5, 8, scale=1.5),
            *WINDOW_STATES,
        ],
        OF_WINDOWS,
        "csa",
        packed_windows(3, 4, 0.25, 0.25),
        compress_ratio=3,
        index_topk=4,
        state_capacity=5,
        scale=0.5,
        head_weight_scale=0.5,
        epsilon=0.25,
    ),
]

CACHED_ATTENTION_ROWS: list[Any] = [
    *ROTARY_ROWS,
    *GROUP_QUERY_ROWS,
    *MULTI_HEAD_ROWS,
    *DECODER_MASKED_ROWS,
    *MULTIPLE_ROTARY_ROWS,
    *SPARSE_ROWS,
    *MASKED_SELF_ROWS,
    *DECODER_ROWS,
    *PAGED_ROWS,
    *SPARSE_PAGED_ROWS,
    *INDEXER_ROWS,
    *PACKED_INDEXER_ROWS,
]
