"""Templates of PagedAttention and SparsePagedAttention."""

from __future__ import annotations

from typing import Any

import numpy as np
from scipy.special import softmax

from ..making import floats, microsoft, waves
from .cached_attention import int32

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
    """Turns eight elements of each head."""
    one, other = (slice(0, 8, 2), slice(1, 8, 2)) if interleaved else (slice(0, 4), slice(4, 8))
    y = x.copy()
    y[..., one] = x[..., one] * cos[at] - x[..., other] * sin[at]
    y[..., other] = x[..., other] * cos[at] + x[..., one] * sin[at]
    return y


def weighted(
    q: np.ndarray, keys: np.ndarray, values: np.ndarray, scale: float, softcap: float, sink: Any
) -> np.ndarray:
    """Computes attention of one token: its heads to rows of [keys, heads, size]."""
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
    """Gives the meaning of paged attention, sequence by sequence, and token by token."""

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
    """Gives functions for caches of 4 bits: a byte has the codes of two elements, which are indices in `numbers`."""

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
    """Gives the inputs in float16, but for the scales, two inputs from a place on."""
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

PAGED_ATTENTION_ROWS: list[Any] = [*PAGED_ROWS, *SPARSE_PAGED_ROWS]
