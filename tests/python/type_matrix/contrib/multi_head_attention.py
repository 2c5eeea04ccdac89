"""Templates of MultiHeadAttention."""

from __future__ import annotations

from typing import Any

import numpy as np

from ..making import microsoft, waves
from ..modern import formula
from .cached_attention import attended, heads, int32, merged, several

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
    """Computes a step that writes into a buffer behind its first three rows."""
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
    # onnxruntime has no kernel for the CPU.
    mha([PACKED_QKV], meaning=formula(packed_qkv)),
    mha([PACKED_QKV, None, None, waves(24)], meaning=formula(packed_qkv)),
    mha([MHA[0], PACKED_KV], meaning=formula(packed_kv)),
    # onnxruntime's kernel writes beyond the buffer.
    mha([*MHA_STEP, None, None, None, *BUFFERS, int32(3)], outputs=3, meaning=several(without_beams)),
]
