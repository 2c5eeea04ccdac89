"""Templates of SparseAttention."""

from __future__ import annotations

from typing import Any

import numpy as np

from ..making import microsoft, waves
from .cached_attention import attended, heads, int32, merged, several

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
    """Turns heads at positions of [batch, sequence]."""
    c, s = cos[positions][:, None], sin[positions][:, None]
    one, other = (slice(0, None, 2), slice(1, None, 2)) if interleaved else (slice(0, 4), slice(4, 8))
    y = x.copy()
    y[..., one], y[..., other] = x[..., one] * c - x[..., other] * s, x[..., other] * c + x[..., one] * s
    return y


def sparse(starts: list[int], packed: bool = False, interleaved: bool = False):
    """Gives the formula of attention of two heads to each of two, by LAYOUTS, of queries that begin at `starts`."""

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
