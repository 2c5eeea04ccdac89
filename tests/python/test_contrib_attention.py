"""Attention of onnxruntime: what must be refused, and what templates cannot say."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from onnx import numpy_helper

import onnx_torch
from models import op_model, run_op, tensor_info

DOMAIN = "com.microsoft"


def drawn(*shape: int) -> np.ndarray:
    return np.random.default_rng(sum(shape)).uniform(-1, 1, shape).astype(np.float32)


def int32(*values: Any) -> np.ndarray:
    return np.array(values, np.int32)


X, WEIGHTS, BIAS, PAST = drawn(2, 3, 4), drawn(4, 12), drawn(12), drawn(2, 2, 2, 4, 2)
OFFSETS, ENDS = int32([0, 3, 4], [1, 2, 5]), int32(0, 1, 3)
PACKED = [drawn(3, 4), WEIGHTS, BIAS]
LONG = [X, WEIGHTS, BIAS, np.zeros((2, 3), np.float32), WEIGHTS, BIAS, int32([1, 0, 0], [0, 0, 0])]
HEADS = {"num_heads": 2}
SHARED = {**HEADS, "past_present_share_buffer": 1}
SPARSE_HEADS = {"num_heads": 2, "kv_num_heads": 1}
AUXILIARY = {
    **SPARSE_HEADS,
    "attention_mode": "local_plus_selected",
    "selected_kv_source": "auxiliary",
    "local_window_size": 2,
}


def sparse(indices: Any, counts: Any, lengths: Any, total: int = 4, capacity: int = 4, rest: Any = ()) -> list[Any]:
    """Makes the inputs of one sequence of two new tokens and heads of four elements."""
    cache = drawn(1, 1, capacity, 4)
    keys = [drawn(1, 2, 8), drawn(1, 2, 4), drawn(1, 2, 4), cache, cache]
    return [*keys, None, None, int32(*indices), int32(*counts), int32(lengths), int32(total)[0], *rest]


REFUSED = {
    "heads that do not divide": ("Attention", [X, WEIGHTS, BIAS], {"num_heads": 3}, "multiply up"),
    "no heads": ("Attention", [X, WEIGHTS, BIAS], {"num_heads": 0}, "multiply up"),
    "two hidden sizes": ("Attention", [X, WEIGHTS, BIAS], {**HEADS, "qkv_hidden_sizes": [6, 6]}, "2 elements, not 3"),
    "other hidden sizes": (
        "Attention",
        [X, WEIGHTS, BIAS],
        {**HEADS, "qkv_hidden_sizes": [4, 4, 6]},
        "do not make up 12",
    ),
    "a negative hidden size": (
        "Attention",
        [X, WEIGHTS, BIAS],
        {**HEADS, "qkv_hidden_sizes": [-4, 8, 8]},
        "qkv_hidden_sizes",
    ),
    "queries unlike keys": ("Attention", [X, WEIGHTS, BIAS], {**HEADS, "qkv_hidden_sizes": [6, 4, 2]}, "go together"),
    "an input of rank 2": ("Attention", [X[0], WEIGHTS, BIAS], HEADS, "2 dimensions, not 3"),
    "ends of too many": ("Attention", [X, WEIGHTS, BIAS, int32(1, 2, 3)], HEADS, "3 elements"),
    "a mask of too many": ("Attention", [X, WEIGHTS, BIAS, np.ones((2, 4), np.int32)], HEADS, r"not \[2, 3\]"),
    "a mask of other queries": (
        "Attention",
        [X, WEIGHTS, BIAS, np.ones((2, 2, 3), np.int32)],
        HEADS,
        r"not \[2, 3, 3\]",
    ),
    "too small a square": ("Attention", [X, WEIGHTS, BIAS, np.ones((2, 1, 2, 2), np.int32)], HEADS, "3 positions"),
    "a past without values": ("Attention", [X, WEIGHTS, BIAS, None, PAST[:1]], HEADS, r"not \[2, \.\.\.\]"),
    "a past of other heads": ("Attention", [X, WEIGHTS, BIAS, None, PAST[:, :, :1].copy()], HEADS, "must match"),
    "a past of unknown length": ("Attention", [X, WEIGHTS, BIAS, None, PAST], SHARED, "past_sequence_length"),
    "a past without room": ("Attention", [X, WEIGHTS, BIAS, None, PAST, None, int32(2)], SHARED, "no room"),
    "a negative past": ("Attention", [X, WEIGHTS, BIAS, None, PAST, None, int32(-1)], SHARED, "no room"),
    "a rotation of odd size": (
        "Attention",
        [X, drawn(4, 18), drawn(18)],
        {**HEADS, "do_rotary": 1, "rotary_embedding_dim": 0},
        "pairs",
    ),
    "too large a rotation": (
        "Attention",
        [X, WEIGHTS, BIAS],
        {**HEADS, "do_rotary": 1, "rotary_embedding_dim": 4},
        "a head has 2",
    ),
    "a shared quantized past": (
        "QAttention",
        [X.astype(np.uint8), WEIGHTS.astype(np.int8), BIAS, X[0, 0, 0], X[0, 0, 1], None, None, None, PAST],
        SHARED,
        "past_sequence_length",
    ),
    "scales of too many": (
        "QAttention",
        [X.astype(np.uint8), WEIGHTS.astype(np.int8), BIAS, X[0, 0], X[0, 0, 1]],
        HEADS,
        "invalid for input of size 4",
    ),
    "too few buckets": (
        "RelativePositionBias",
        [drawn(1, 2), np.array([3]), np.array([3])],
        {"max_distance": 8},
        "bucket",
    ),
    "too small a distance": (
        "RelativePositionBias",
        [drawn(8, 2), np.array([3]), np.array([3])],
        {"max_distance": 4},
        "max_distance",
    ),
    "a negative length": (
        "RelativePositionBias",
        [drawn(8, 2), np.array([-3]), np.array([3])],
        {"max_distance": 8},
        "inconsistent",
    ),
    "too many tokens": ("RemovePadding", [X, int32(1, 4)], {}, "from 0 to 3"),
    "a negative count": ("RemovePadding", [X, int32(-1, 2)], {}, "from 0 to 3"),
    "counts of too many": ("RemovePadding", [X, int32(1, 2, 3)], {}, r"not \[2\]"),
    "an offset behind": ("RestorePadding", [drawn(3, 4), int32([0, 6, 4], [1, 2, 5])], {}, "out of bounds"),
    "a negative offset": ("RestorePadding", [drawn(3, 4), int32([0, -7, 4], [1, 2, 5])], {}, "out of bounds"),
    "more tokens than places": ("RestorePadding", [drawn(7, 4), OFFSETS], {}, "should be equal"),
    "ends of other sequences": ("PackedAttention", [*PACKED, OFFSETS, int32(0, 3)], HEADS, "2 elements, not 3"),
    "a packed offset behind": ("PackedAttention", [*PACKED, OFFSETS + 100, ENDS], HEADS, "out of bounds"),
    "a key without a value": (
        "PackedMultiHeadAttention",
        [drawn(3, 4), drawn(3, 4), None, None, OFFSETS, ENDS],
        HEADS,
        "come together",
    ),
    "a query that is not packed": (
        "PackedMultiHeadAttention",
        [drawn(3, 4), None, None, None, OFFSETS, ENDS],
        HEADS,
        "head size",
    ),
    "a negative window": ("LongformerAttention", LONG, {**HEADS, "window": -1}, "window"),
    "a mask of another shape": (
        "LongformerAttention",
        [*LONG[:3], LONG[3][:, :2].copy(), *LONG[4:]],
        {**HEADS, "window": 1},
        "mask of shape",
    ),
    "an unknown source": (
        "DynamicSparseAttention",
        sparse([[0], [1]], [1, 1], 3),
        {**SPARSE_HEADS, "selected_kv_source": "auxiliary"},
        "does not go with",
    ),
    "no window": (
        "DynamicSparseAttention",
        sparse([[0], [1]], [1, 1], 3),
        {**AUXILIARY, "local_window_size": -1},
        "local_window_size",
    ),
    "no auxiliary keys": ("DynamicSparseAttention", sparse([[0], [1]], [1, 1], 3), AUXILIARY, "auxiliary_key"),
    "too many selected": ("DynamicSparseAttention", sparse([[0], [1]], [1, 2], 3), SPARSE_HEADS, "selected_counts"),
    "fewer than none selected": (
        "DynamicSparseAttention",
        sparse([[0], [1]], [1, -1], 3),
        SPARSE_HEADS,
        "selected_counts",
    ),
    "a future position": ("DynamicSparseAttention", sparse([[3], [1]], [1, 1], 3), SPARSE_HEADS, "cannot attend"),
    "a negative position": ("DynamicSparseAttention", sparse([[-1], [1]], [1, 1], 3), SPARSE_HEADS, "cannot attend"),
    "a length beyond the cache": ("DynamicSparseAttention", sparse([[0], [1]], [1, 1], 4), SPARSE_HEADS, "seqlens_k"),
    "a length of too few": ("DynamicSparseAttention", sparse([[0], [1]], [1, 1], 0), SPARSE_HEADS, "seqlens_k"),
    "a cache of other heads": (
        "DynamicSparseAttention",
        sparse([[0], [1]], [1, 1], 3),
        {"num_heads": 2, "kv_num_heads": 2},
        "no larger than self",
    ),
    "a position without cosine": (
        "DynamicSparseAttention",
        sparse([[0], [1]], [1, 1], 3, rest=[drawn(9, 1), drawn(9, 1), np.array([[2, 9]])]),
        {**SPARSE_HEADS, "do_rotary": 1},
        "no place in cos_cache",
    ),
}


@pytest.mark.parametrize("op, inputs, attributes, message", REFUSED.values(), ids=REFUSED)
def test_refused(op, inputs, attributes, message):
    with pytest.raises(onnx_torch.Error, match=message):
        run_op(op, inputs, 1, DOMAIN, 1 if op != "RemovePadding" else 4, **attributes)


def test_orders_of_tiles_are_not_translated():
    inputs = [
        np.zeros((1, 2, 4), np.int8),
        *[np.float32(1)] * 4,
        *[np.zeros((4, 4), np.int8)] * 3,
        *[np.float32(1)] * 3,
        *[np.zeros(4, np.float32)] * 3,
        None,
        None,
        np.float32(1),
    ]
    model = op_model("QOrderedAttention", inputs, 1, DOMAIN, num_heads=2, order_input=1, order_weight=3, order_output=1)
    with pytest.raises(onnx_torch.Error, match="order_weight is neither"):
        onnx_torch.prepare(model)


@pytest.mark.parametrize("mask", [None, int32(1, 2), int32([1, 1, 0], [0, 1, 1])], ids=["none", "ends", "keys"])
def test_it_runs_as_one_product_of_attention(mask):
    """The operator becomes what the standard's Attention becomes, by the same operator."""
    model = op_model("Attention", [X, WEIGHTS, BIAS, mask], 1, DOMAIN, **HEADS)
    assert onnx_torch.prepare(model).graph().count("onnx_torch::attention(") == 1


def test_a_quantized_projection_runs_as_a_product_of_bytes():
    inputs = [X.astype(np.uint8), WEIGHTS.astype(np.int8), BIAS, np.float32(0.01), np.float32(0.02)]
    model = op_model("QAttention", inputs, 1, DOMAIN, **HEADS)
    for i in range(1, len(inputs)):
        model.graph.initializer.append(numpy_helper.from_array(np.asarray(inputs[i]), f"x{i}"))
    del model.graph.input[1:]
    model.graph.input[0].CopyFrom(tensor_info("x0", inputs[0], X.shape))
    assert onnx_torch.prepare(model).graph().count("onnx_torch::scaled_integer_product(") == 1
