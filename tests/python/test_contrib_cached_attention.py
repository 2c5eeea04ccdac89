"""Uses that the templates of type_matrix/contrib/cached_attention.py cannot say: wrong ones, and empty batches."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import onnx_torch
from models import op_model

SIZE = 16


def numbers(*shape: int) -> np.ndarray:
    return np.sin(np.arange(np.prod(shape), dtype=np.float32)).reshape(shape)


def int32(*values: Any) -> np.ndarray:
    return np.array(values, np.int32)


OUTPUTS = {
    "SparseAttentionIndexer": 2,
    "PackedSparseAttentionIndexer": 6,
    "SparseAttention": 3,
    "DecoderMaskedSelfAttention": 2,
}  # a node must have so many; others need one


def run(op: str, inputs: list[Any], optimize: bool = True, outputs: int = 0, **attributes: Any) -> list[Any]:
    outputs = outputs or OUTPUTS.get(op, 1)
    model = op_model(op, inputs, 21, "com.microsoft", outputs, **attributes)
    model.opset_import.add(domain="com.microsoft", version=1)
    return list(onnx_torch.prepare(model, optimize=optimize).run([x for x in inputs if x is not None]))


HEADS = {"num_heads": 2, "kv_num_heads": 1}
CACHES = [np.cos(numbers(10, SIZE // 2)), np.sin(numbers(10, SIZE // 2))]
STEP = [numbers(2, 1, 2 * SIZE), numbers(2, 1, SIZE), numbers(2, 1, SIZE)]
PROMPT = [numbers(2, 3, 2 * SIZE), numbers(2, 3, SIZE), numbers(2, 3, SIZE)]
CHUNK = [numbers(1, 3, 2 * SIZE), numbers(1, 3, SIZE), numbers(1, 3, SIZE)]
PAST = [numbers(2, 1, 5, SIZE), numbers(2, 1, 5, SIZE)]
QUANTIZED = {"k_quant_type": "PER_TENSOR", "v_quant_type": "PER_TENSOR", "kv_cache_bit_width": 8}
BYTES = [np.zeros((2, 1, 5, SIZE), np.int8)] * 2


def gqa(inputs: list[Any], **attributes: Any):
    return "GroupQueryAttention", inputs, {**HEADS, **attributes}


GROUP_QUERY = {
    "more keys than the cache": (*gqa([*STEP, *PAST, int32(5, 2), int32(4)]), "more keys than"),
    "a length that overflows": (*gqa([*STEP, *PAST, int32(2**31 - 1, 2), int32(4)]), "more keys than"),
    "more keys than the past": (*gqa([*STEP, *PAST, int32(7, 7), int32(8)]), "more keys than"),
    "a negative length": (*gqa([*STEP, *PAST, int32(-1, 2), int32(4)]), "fewer keys than"),
    "fewer keys than queries": (*gqa([*CHUNK, *[x[:1] for x in PAST], int32(1), int32(5)]), "fewer keys than"),
    "a length missing": (*gqa([*STEP, *PAST, int32(3), int32(4)]), "a number for each sequence"),
    "a negative total": (*gqa([*STEP, None, None, int32(2, 2), int32(-4)]), "more keys than"),
    "a window's negative length": (
        *gqa([*STEP, *PAST, int32(-9, 2), int32(4)], sliding_window_cache=1, local_window_size=3),
        "fewer keys than",
    ),
    "a window beyond its cache": (
        *gqa([*STEP, *PAST, int32(3, 2), int32(4)], sliding_window_cache=1, local_window_size=6),
        "at most the cache's size",
    ),
    "a window without a cache": (
        *gqa([*STEP, None, None, int32(3, 2), int32(4)], sliding_window_cache=1, local_window_size=3),
        "needs past_key",
    ),
    "keys of another length": (
        *gqa([PROMPT[0], *(x[:, :2].copy() for x in PROMPT[1:]), None, None, int32(2, 2), int32(3)]),
        "as many rows",
    ),
    "key without value": (*gqa([*PROMPT[:2], None, None, None, int32(2, 2), int32(3)]), "come together"),
    "past_key alone": (*gqa([*STEP, PAST[0], None, int32(3, 2), int32(4)]), "come together"),
    "an epsilon below 0": (*gqa([*PROMPT, None, None, int32(2, 2), int32(3)], qk_norm_epsilon=-1.0), "not be negative"),
    "heads that do not divide": (*gqa([*PROMPT, None, None, int32(2, 2), int32(3)], kv_num_heads=3), "multiple"),
    "a hidden size that heads do not divide": (
        *gqa([PROMPT[0][..., :31].copy(), *PROMPT[1:], None, None, int32(2, 2), int32(3)]),
        "multiply up",
    ),
    "heads of a past": (*gqa([*STEP, *(x.repeat(2, 1) for x in PAST), int32(3, 2), int32(4)]), "do not go together"),
    "a batch of a past": (*gqa([*STEP, *(x[:1] for x in PAST), int32(3, 2), int32(4)]), "do not go together"),
    "angles that are missing": (*gqa([*PROMPT, None, None, int32(2, 2), int32(3)], do_rotary=1), "needs cos_cache"),
    "positions beyond the angles": (
        *gqa([*STEP, *PAST, int32(5, 5), int32(6), *(x[:5] for x in CACHES)], do_rotary=1),
        "out of range",
    ),
    "negative positions": (
        *gqa([*STEP, *PAST, int32(3, 2), int32(4), *CACHES, np.array([[-1], [2]])], do_rotary=1),
        "out of range",
    ),
    "angles of wider heads": (
        *gqa([*PROMPT, None, None, int32(2, 2), int32(3), numbers(10, 9), numbers(10, 9)], do_rotary=1),
        "heads of 16",
    ),
    "a bias for fewer keys": (
        *gqa([*STEP, *PAST, int32(3, 2), int32(4), None, None, None, numbers(2, 2, 1, 3)]),
        "must match",
    ),
    "a sink for fewer heads": (
        *gqa([*PROMPT, None, None, int32(2, 2), int32(3), *[None] * 4, numbers(3)]),
        "must match",
    ),
    "a quantized cache without scales": (*gqa([*STEP, *BYTES, int32(3, 2), int32(4)], **QUANTIZED), "needs k_scale"),
    "a quantized cache that is not one": (*gqa([*STEP, *BYTES, int32(3, 2), int32(4)]), "k_quant_type"),
    "no such quantization": (
        *gqa([*STEP, *BYTES, int32(3, 2), int32(4)], **(QUANTIZED | {"k_quant_type": "BLOCKS"})),
        "no such quantization",
    ),
    "8 bits in nibbles": (
        *gqa([*STEP, *(x.astype(np.uint8) for x in BYTES), int32(3, 2), int32(4)], **QUANTIZED),
        "of uint8",
    ),
    "a width of 3 bits": (
        *gqa([*STEP, *BYTES, int32(3, 2), int32(4)], **(QUANTIZED | {"kv_cache_bit_width": 3})),
        "4 or 8",
    ),
    "a window without causality": (
        *gqa([*PROMPT, None, None, int32(2, 2), int32(3)], causal=0, local_window_size=2),
        "must be -1",
    ),
}

NARROW = [numbers(2, 3, 8), numbers(2, 4, 8), numbers(2, 4, 8)]
ONE = [numbers(4, 1, 8), numbers(4, 1, 8), numbers(4, 1, 8)]
BUFFERS = [numbers(4, 2, 6, 4), numbers(4, 2, 6, 4)]


def mha(inputs: list[Any], **attributes: Any):
    return "MultiHeadAttention", inputs, {"num_heads": 2, **attributes}


BEAMS = np.zeros((2, 2, 6), np.int32)
MULTI_HEAD = {
    "a mask for other keys": (*mha([*NARROW, None, np.ones((2, 3), np.int32)]), "does not fit 4 keys"),
    "a mask of 4 dimensions": (*mha([*NARROW, None, np.ones((2, 1, 3, 4), np.int32)]), "does not fit 4 keys"),
    "lengths of another batch": (*mha([*NARROW, None, int32(1, 2, 3)]), "one for each sequence"),
    "a bias for other keys": (*mha([*NARROW, None, None, numbers(2, 2, 3, 3)]), "must match"),
    "a short bias of the projections": (*mha([*NARROW, numbers(20)]), "must match"),
    "key without value": (*mha(NARROW[:2]), "batch, sequence, heads, 2, size"),
    "value without key": (*mha([NARROW[0], None, NARROW[2]]), "value comes with key"),
    "a packed query of two": (*mha([numbers(2, 3, 2, 2, 4)]), "batch, sequence, heads, 3, size"),
    "past_key alone": (*mha([*NARROW, None, None, None, numbers(2, 2, 2, 4)]), "come together"),
    "no heads": (*mha(NARROW, num_heads=0), "multiply up"),
    "a buffer that is full": (*mha([*ONE, None, None, None, *BUFFERS, int32(6), BEAMS]), "do not fit into a past of 6"),
    "a negative past": (*mha([*ONE, None, None, None, *BUFFERS, int32(-1), BEAMS]), "do not fit"),
    "a beam that is not there": (*mha([*ONE, None, None, None, *BUFFERS, int32(3), BEAMS + 99]), "out of bounds"),
    "beams of another batch": (*mha([*ONE, None, None, None, *BUFFERS, int32(3), BEAMS[:1]]), "does not fit the batch"),
    "beams of a shorter past": (
        *mha([*ONE, None, None, None, *BUFFERS, int32(5), BEAMS[..., :4]]),
        "shorter than the past",
    ),
    "values for fewer keys": (*mha([*NARROW[:2], NARROW[2][:, :3].copy()]), "do not go together"),
    "a shared buffer of unknown length": (
        "DecoderMaskedMultiHeadAttention",
        [*ONE, None, None, *BUFFERS],
        {"num_heads": 2, "past_present_share_buffer": 1},
        "needs past_sequence_length",
    ),
}

LAYOUT = [int32([0, 1, 3]), int32([0, 0, 1])]
SPARSE_PAST = [numbers(2, 1, 8, SIZE), numbers(2, 1, 8, SIZE)]


def sparse(inputs: list[Any], sparse_block_size: int = 4):
    return "SparseAttention", inputs, {**HEADS, "sparse_block_size": sparse_block_size}


PAGED = [*(x.astype(np.float16) for x in (numbers(3, 2 * SIZE), numbers(3, SIZE), numbers(3, SIZE)))]
BLOCKS = [numbers(3, 4, 1, SIZE).astype(np.float16)] * 2


def paged(inputs: list[Any], **attributes: Any):
    return "PagedAttention", inputs, {**HEADS, **attributes}


def decoder(*rest: Any):
    return (
        "DecoderAttention",
        [numbers(3, 2, 8), numbers(4, 2, 8), numbers(8, 8), numbers(8, 16), numbers(24), *rest],
        {"num_heads": 2},
    )


INDEX = [numbers(8), numbers(8), numbers(9, 4), numbers(9, 4)]
TOKENS = {"policy_mode": "qsa", "compress_ratio": 2, "token_budget": 2}
WINDOWS = {"policy_mode": "csa", "compress_ratio": 2, "index_topk": 2}


def indexer(inputs: list[Any], **attributes: Any):
    return "SparseAttentionIndexer", inputs, {**TOKENS, **attributes}


def packed_indexer(cumulative: Any = (0, 3), past: Any = (3,), states: Any = ([1, 1],), capacity: int = 4):
    lengths, state = [int32(*cumulative), int32(*past)], [numbers(1, 4, 8), numbers(1, 3, 8), None, int32(*states)]
    inputs = [numbers(3, 16), numbers(3, 8), *INDEX, *lengths, *[None] * 4, *state]
    return "PackedSparseAttentionIndexer", inputs, {**TOKENS, "state_capacity": capacity}


INDEXERS = {
    "no such policy": (
        *indexer([numbers(1, 3, 16), numbers(1, 3, 8), *INDEX, None, numbers(1, 2, 8)], policy_mode="top"),
        "no policy_mode",
    ),
    "blocks of no tokens": (
        *indexer([numbers(1, 3, 16), numbers(1, 3, 8), *INDEX, None, numbers(1, 2, 8)], compress_ratio=0),
        "a count",
    ),
    "a budget of no tokens": (
        *indexer([numbers(1, 3, 16), numbers(1, 3, 8), *INDEX, None, numbers(1, 2, 8)], token_budget=-2),
        "a count",
    ),
    "a budget of parts of blocks": (
        *indexer([numbers(1, 3, 16), numbers(1, 3, 8), *INDEX, None, numbers(1, 2, 8)], token_budget=3),
        "a multiple",
    ),
    "a mask for other tokens": (
        *indexer([numbers(1, 3, 16), numbers(1, 3, 8), *INDEX, np.ones((1, 4), np.int64), numbers(1, 2, 8)]),
        "mask must be",
    ),
    "a past that is full": (
        *indexer([numbers(1, 3, 16), numbers(1, 3, 8), *INDEX, None, numbers(1, 4, 8), *[None] * 4, int32(2)]),
        "do not fit into a past of 4",
    ),
    "windows without a gate": (
        "SparseAttentionIndexer",
        [numbers(1, 3, 16), numbers(1, 3, 16), *INDEX, None, numbers(1, 2, 8)],
        WINDOWS,
        "needs the input gate",
    ),
    "more angles than a head has elements": (
        *indexer(
            [numbers(1, 3, 16), numbers(1, 3, 8), *INDEX[:2], numbers(9, 10), numbers(9, 10), None, numbers(1, 2, 8)]
        ),
        "more elements than a head has",
    ),
    "packed: lengths that fall": (*packed_indexer((0, -1)), "must not fall"),
    "packed: lengths of other tokens": (*packed_indexer((0, 4)), "must end with"),
    "packed: a negative past": (*packed_indexer(past=(-3,)), "nor past_seqlens be negative"),
    "packed: more entries than there are": (*packed_indexer(states=([5, 1],)), "more entries"),
    "packed: more tokens than a block has": (*packed_indexer(states=([1, 2],)), "more tokens"),
    "packed: a past of other lengths": (*packed_indexer(states=([0, 1],)), "do not fit the past's tokens"),
    "packed: another capacity": (*packed_indexer(capacity=9), "must have state_capacity entries"),
    "packed: lengths of another batch": (*packed_indexer(states=([1, 1], [0, 0])), "must be of"),
}

YES, NO = np.array([True]), np.array([False])
OTHERS = {
    "rotary: a position beyond the angles": (
        "RotaryEmbedding",
        [numbers(2, 3, SIZE), np.array([8]), *CACHES],
        {},
        "out of range",
    ),
    "rotary: a negative position": (
        "RotaryEmbedding",
        [numbers(2, 3, SIZE), np.array([-1]), *CACHES],
        {},
        "out of range",
    ),
    "rotary: angles of other sizes": (
        "RotaryEmbedding",
        [numbers(2, 3, SIZE), np.array([1]), CACHES[0], CACHES[1][:9]],
        {},
        "differ in shape",
    ),
    "rotary: a size without heads": (
        "RotaryEmbedding",
        [numbers(2, 3, SIZE), np.array([1]), *CACHES],
        {"rotary_embedding_dim": 8},
        "comes with num_heads",
    ),
    "streams: sections that do not add up": (
        "MRotaryEmbedding",
        [numbers(2, 3, SIZE), np.zeros((3, 2, 3), np.int64), *CACHES],
        {"num_heads": 1, "mrope_section": [4, 3, 2]},
        "must have 16 / 2 angles",
    ),
    "streams: a negative section": (
        "MRotaryEmbedding",
        [numbers(2, 3, SIZE), np.zeros((3, 2, 3), np.int64), *CACHES],
        {"num_heads": 1, "mrope_section": [9, -1, 0]},
        "three counts",
    ),
    "streams: a position beyond the angles": (
        "MRotaryEmbedding",
        [numbers(2, 3, SIZE), np.full((3, 2, 3), 10), *CACHES],
        {"num_heads": 1, "mrope_section": [4, 3, 1]},
        "out of range",
    ),
    "sparse: keys beyond the cache": (*sparse([*STEP, *SPARSE_PAST, *LAYOUT, int32(9), int32(9, 3)]), "do not fit"),
    "sparse: a negative length": (*sparse([*STEP, *SPARSE_PAST, *LAYOUT, int32(4), int32(-4, 3)]), "do not fit"),
    "sparse: a column that is not there": (
        *sparse([*STEP, *SPARSE_PAST, LAYOUT[0], int32([0, 7, 1]), int32(4), int32(4, 3)]),
        "out of bounds",
    ),
    "sparse: rows that are not there": (
        *sparse([*STEP, *SPARSE_PAST, int32([0, 1]), int32([0]), int32(7), int32(7, 3)]),
        "out of bounds",
    ),
    "sparse: blocks of no rows": (
        *sparse([*STEP, *SPARSE_PAST, *LAYOUT, int32(4), int32(4, 3)], 0),
        "must be positive",
    ),
    "paged: a rotation before the heads": (
        *paged(
            [*PAGED, *BLOCKS, int32(0, 3), int32(0), int32([1]), *(x.astype(np.float16) for x in CACHES)],
            do_rotary=1,
            rotary_offset=-8,
        ),
        "takes numbers from 0",
    ),
    "paged: a block that is not there": (*paged([*PAGED, *BLOCKS, int32(0, 3), int32(0), int32([3])]), "out of"),
    "paged: a slot that is not there": (
        *paged([*PAGED, *BLOCKS, int32(0, 3), int32(0), int32([1]), None, None, int32(4, 5, 12)]),
        "out of",
    ),
    "paged: a past beyond its blocks": (*paged([*PAGED, *BLOCKS, int32(0, 3), int32(2), int32([1])]), "go beyond"),
    "paged: a negative past": (
        *paged([*PAGED, *BLOCKS, int32(0, 3), int32(-1), int32([1])]),
        "nor past_seqlens be negative",
    ),
    "paged: lengths that fall": (
        *paged([*PAGED, *BLOCKS, int32(0, 4, 3), int32(0, 0), int32([1], [2])]),
        "must not fall",
    ),
    "paged: lengths of other tokens": (*paged([*PAGED, *BLOCKS, int32(0, 4), int32(0), int32([1])]), "must end with"),
    "paged: no lengths": (*paged([*PAGED, *BLOCKS, int32(), int32(), int32([1])[:0]]), "too few"),
    "paged: no value_cache": (
        *paged([*PAGED, BLOCKS[0], None, int32(0, 3), int32(0), int32([1])]),
        "needs a value_cache",
    ),
    "sparse paged: no auxiliary cache": (
        "SparsePagedAttention",
        [*PAGED, *BLOCKS, int32(0, 3), int32(0), int32([1]), None, int32([0], [0], [1]), int32(1, 1, 1)],
        {**HEADS, "selected_kv_source": "auxiliary"},
        "need auxiliary_key",
    ),
    "decoder: a past without caches": (*decoder(None, None, None, NO, YES, YES, NO), "needs key_cache"),
    "decoder: a mask that is missing": (*decoder(None, None, None, NO, NO, YES, YES), "needs key_padding_mask"),
    "decoder: a mask for other keys": (*decoder(np.ones((2, 5), bool), None, None, NO, NO, YES, YES), "for each key"),
    "one step: a past of 4 dimensions": (
        "DecoderMaskedSelfAttention",
        [numbers(2, 1, 6), numbers(6, 24), numbers(24), None, numbers(2, 2, 2, 16), None, int32(2)],
        {"num_heads": 2},
        "past must be of",
    ),
    "one step: behind the buffer": (
        "DecoderMaskedSelfAttention",
        [numbers(2, 1, 6), numbers(6, 24), numbers(24), None, numbers(2, 2, 2, 4, 4), None, int32(4)],
        {"num_heads": 2, "past_present_share_buffer": 1},
        "do not fit into a past of 4",
    ),
}
WRONG = {
    f"{group}: {name}" if group else name: case
    for group, cases in (
        ("GroupQueryAttention", GROUP_QUERY),
        ("MultiHeadAttention", MULTI_HEAD),
        ("indexer", INDEXERS),
        ("", OTHERS),
    )
    for name, case in cases.items()
}


@pytest.mark.parametrize("optimize", [True, False])
@pytest.mark.parametrize("name", WRONG)
def test_a_wrong_use_is_an_error(name, optimize):
    op, inputs, attributes, message = WRONG[name]
    with pytest.raises(onnx_torch.Error, match=message):
        run(op, inputs, optimize, **attributes)


@pytest.mark.parametrize("optimize", [True, False])
@pytest.mark.parametrize("rotary", [0, 1])
def test_an_empty_batch(rotary, optimize):
    inputs = [*(x[:0] for x in PROMPT), *(x[:0] for x in PAST), int32(), int32(3), *CACHES]
    y, key, value = run("GroupQueryAttention", inputs, optimize, 3, do_rotary=rotary, **HEADS)
    assert (y.shape, key.shape, value.shape) == ((0, 3, 2 * SIZE), (0, 1, 5, SIZE), (0, 1, 5, SIZE))


@pytest.mark.parametrize("optimize", [True, False])
def test_no_tokens(optimize):
    inputs = [*(x[:0] for x in PAGED), *BLOCKS, int32(0, 0), int32(2), int32([1])]
    y, key, _ = run("PagedAttention", inputs, optimize, 3, **HEADS)
    assert y.shape == (0, 2 * SIZE)
    np.testing.assert_array_equal(key, BLOCKS[0])


def test_steps_of_several_rows_in_a_batch():
    """Each sequence gives what it does alone; onnxruntime takes steps of several rows of one sequence only."""
    inputs = [*(x[:, :2].copy() for x in PROMPT), *PAST, int32(4, 3), int32(5)]
    whole = run("GroupQueryAttention", inputs, outputs=3, **HEADS)
    for b, length in enumerate((4, 3)):
        one = [x[b : b + 1] for x in inputs[:5]]
        alone = run("GroupQueryAttention", [*one, int32(length), int32(5)], outputs=3, **HEADS)
        for x, y in zip(whole, alone, strict=True):
            np.testing.assert_allclose(x[b : b + 1], y, atol=1e-6)


@pytest.mark.parametrize("capacity", [5, 7, 9])
def test_a_cache_of_a_window_step_by_step(capacity):
    """Each step gives what attention with the whole past gives, and keeps the rows that the description tells."""
    window, total, rng = 5, 20, np.random.default_rng(0)
    q, k, v = (rng.standard_normal((1, total, n * SIZE)).astype(np.float32) for n in (2, 1, 1))
    whole = run(
        "GroupQueryAttention", [q, k, v, None, None, int32(total - 1), int32(total)], local_window_size=window, **HEADS
    )[0]
    past = [np.zeros((1, 1, capacity, SIZE), np.float32)] * 2
    start = 0
    for rows in (1, 3, 8, 1, 1, 2, 4):
        end = start + rows
        inputs = [*(x[:, start:end].copy() for x in (q, k, v)), *past, int32(end - 1), int32(end)]
        y, *past = run(
            "GroupQueryAttention", inputs, outputs=3, local_window_size=window, sliding_window_cache=1, **HEADS
        )
        np.testing.assert_allclose(y, whole[:, start:end], atol=1e-5)
        gap = capacity - window + 1
        kept = end if end <= capacity else end - gap * -(-(end - capacity) // gap)
        np.testing.assert_array_equal(past[0][0, 0, :kept], k[0, end - kept : end])
        start = end
