"""Templates of the attention of decoders: of masked heads, of a whole layer, and DecoderAttention."""

from __future__ import annotations

from typing import Any

import numpy as np
from scipy.special import softmax

from ..making import microsoft, waves
from .cached_attention import attended, heads, int32, merged, several
from .multi_head_attention import BEAMS, BUFFERS, MASK, MHA, MHA_STEP, NARROW, STEP_MASK, grown, without_beams

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
    # onnxruntime has no kernel for the CPU.
    in_buffer(
        [np.concatenate(MHA_STEP, 2), None, None, None, None, *BUFFERS, int32(3)],
        meaning=several(lambda qkv, *rest: without_beams(*np.split(qkv, 3, 2), *rest)),
    ),
    masked_mha([*MHA_STEP, None, None, *BUFFERS], meaning=several(grown)),
]

# --- DecoderMaskedSelfAttention ---

MERGED = [waves(2, 1, 6), waves(6, 24, scale=0.5), waves(24, scale=0.3)]
BOTH = waves(2, 2, 2, 4, NARROW, scale=1.5)  # keys and values
SELF_MASK = int32(1, 0, 1, 0, 1, 1).reshape(2, 3)
SELF_BEAMS = int32(1, 0, 0, 0, 0, 1, 0, 0).reshape(1, 2, 4)


def in_groups(keys: np.ndarray) -> np.ndarray:
    """Lays keys out in groups of 16 bytes, four elements of float."""
    return keys.reshape(*keys.shape[:3], -1, 4).swapaxes(2, 3).reshape(keys.shape)


def self_attention(x, w, b, past, added=0.0, source=None, scale=0.5, rotary_at=None):
    """Computes a step behind the rows of a past, some of which other beams may have written."""
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
    """Computes a step in a buffer of four rows, whose keys are in groups."""
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


# onnxruntime has no kernel for the CPU.
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


# onnxruntime has no kernel for the CPU.
DECODER_ROWS = [
    decoder_row((False, False, True, False), 3, cached=False),
    decoder_row((True, False, True, True), 4, cached=False, mask_filter_value=-5.0),
    decoder_row((False, True, True, True), 8),
    decoder_row((True, True, True, True), 5),
    decoder_row((True, True, False, False), 4, cached=False, outputs=1),
]

DECODER_ATTENTION_ROWS: list[Any] = [*DECODER_MASKED_ROWS, *MASKED_SELF_ROWS, *DECODER_ROWS]
