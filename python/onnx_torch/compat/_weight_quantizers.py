"""The quantizers of weights in blocks of 2, 4 and 8 bits that onnxruntime's tools want of its native module.

Each function fills the arrays that it is given, with the same bits as onnxruntime does.
"""

from __future__ import annotations

from typing import Any

import numpy as np

__all__ = [
    "quantize_matmul_2bits",
    "quantize_matmul_4bits",
    "quantize_matmul_8bits",
    "quantize_matmul_bnb4",
    "quantize_qdq_matmul_4bits",
]

Array = np.ndarray[Any, Any]

# bitsandbytes' 4-bit types, relative to the largest magnitude of a block. FP4 is a sign and three bits: FP4_ENDS has
# the magnitudes up to which its codes reach, in the type's own digits, and FP4_BITS has the codes. NF4 is a table of
# values, of which the nearest is taken.
FP4_ENDS = np.array([0.00260417, 0.0859375, 0.20833333, 0.29166667, 0.4166667, 0.583333, 0.8333333], np.float32)
FP4_BITS = np.array([0, 1, 6, 7, 4, 5, 2, 3])
NF4 = np.array(
    [
        -1.0, -0.6961928009986877, -0.5250730514526367, -0.39491748809814453, -0.28444138169288635,
        -0.18477343022823334, -0.09105003625154495, 0.0, 0.07958029955625534, 0.16093020141124725,
        0.24611230194568634, 0.33791524171829224, 0.44070982933044434, 0.5626170039176941, 0.7229568362236023, 1.0,
    ],
    np.float32,
)  # fmt: skip
NF4_ENDS = (NF4[1:] + NF4[:-1]) / 2


def quantize_matmul_2bits(*arguments: Any) -> None:
    """Quantizes weights in blocks of 2-bit codes for MatMulNBits; see _quantize_matmul."""
    _quantize_matmul(2, *arguments)


def quantize_matmul_4bits(*arguments: Any) -> None:
    """Quantizes weights in blocks of 4-bit codes for MatMulNBits; see _quantize_matmul."""
    _quantize_matmul(4, *arguments)


def quantize_matmul_8bits(*arguments: Any) -> None:
    """Quantizes weights in blocks of 8-bit codes for MatMulNBits; see _quantize_matmul."""
    _quantize_matmul(8, *arguments)


def _quantize_matmul(
    bits: int,
    quantized: Array,
    weights: Array,
    scales: Array,
    zero_points: Array,
    block_size: int,
    columns: int,
    rows: int,
    is_symmetric: bool,
) -> None:
    """Quantizes weights of shape [rows, columns] for MatMulNBits: codes of shape [columns, blocks, bytes of a block].

    The codes are packed; those past the last row are zeros.
    """
    blocks = _blocks(weights.reshape(-1, columns)[:rows], block_size)
    of_blocks, zeros = _scales(blocks, bits, is_symmetric)
    numbers = _clipped(_rounded(blocks * _reciprocals(of_blocks.astype(scales.dtype)) + zeros), bits)
    numbers.reshape(columns, -1)[:, rows:] = 0
    _fill(quantized, _packed(numbers, bits))
    _fill(scales, of_blocks)
    if not is_symmetric:
        _fill(zero_points, _packed(_clipped(zeros[..., 0], bits), bits, 1 << (bits - 1)))


def quantize_qdq_matmul_4bits(
    quantized: Array,
    weights: Array,
    scales: Array,
    zero_points: Array,
    block_size: int,
    columns: int,
    rows: int,
    is_symmetric: bool,
) -> bool:
    """Quantizes weights of shape [rows, columns] for DequantizeLinear: packed 4-bit codes of that shape.

    Returns whether these are int4; otherwise they are uint4.
    """
    bits = 4
    blocks = _blocks(weights.reshape(rows, columns), block_size)
    of_blocks, zeros = _scales(blocks, bits, is_symmetric)
    numbers = _clipped(_rounded(blocks * _reciprocals(of_blocks.astype(scales.dtype))) + zeros, bits)
    in_rows = numbers.reshape(columns, -1)[:, :rows].T.ravel()
    _fill(quantized, _packed(in_rows ^ 1 << (bits - 1) if is_symmetric else in_rows, bits))
    _fill(scales, of_blocks[..., 0].T)
    if not is_symmetric:
        _fill(zero_points, _packed(_clipped(zeros[..., 0].T.ravel(), bits), bits))
    return is_symmetric


def quantize_matmul_bnb4(
    quantized: Array, weights: Array, largest: Array, block_size: int, type_: int, columns: int, rows: int
) -> None:
    """Quantizes weights of shape [columns, rows] to packed 4-bit codes of bitsandbytes' type FP4 (0) or NF4 (1)."""
    flat = weights.ravel()[: rows * columns].astype(np.float32)
    blocks = np.pad(flat, (0, -len(flat) % block_size)).reshape(-1, block_size)
    of_blocks = np.abs(blocks).max(1, keepdims=True)
    _fill(largest, of_blocks)
    scaled = np.pad((blocks * _reciprocals(of_blocks)).ravel()[: len(flat)], (0, len(flat) % 2))
    if type_:
        numbers = np.searchsorted(NF4_ENDS, scaled)
    else:
        numbers = FP4_BITS[np.searchsorted(FP4_ENDS, np.abs(scaled))] + 8 * (scaled < 0)
    _fill(quantized, numbers[::2] << 4 | numbers[1::2])


def _blocks(weights: Array, block_size: int) -> Array:
    """Reshapes weights of shape [rows, columns] to [columns, blocks, block_size], filled up with zeros."""
    rows, columns = weights.shape
    filled = np.pad(weights.T.astype(np.float32), ((0, 0), (0, -rows % block_size)))
    return filled.reshape(columns, -1, block_size)


def _scales(blocks: Array, bits: int, is_symmetric: bool) -> tuple[Array, Array]:
    """Computes the scale and the zero point of each block, for codes without a sign."""
    top, middle = (1 << bits) - 1, 1 << (bits - 1)
    low, high = np.minimum(blocks.min(-1, keepdims=True), 0), np.maximum(blocks.max(-1, keepdims=True), 0)
    if is_symmetric:
        return np.where(high > -low, high, low) / np.float32(-middle), np.full_like(low, middle)
    scales = (high - low) / np.float32(top)
    zeros = np.divide(-low, scales, out=np.zeros_like(low), where=scales != 0)
    return scales, np.clip(_rounded(zeros), 0, top)


def _reciprocals(values: Array) -> Array:
    """Computes 1 / values, and 0 for 0."""
    return np.divide(1, values, out=np.zeros(values.shape, np.float32), where=values != 0, dtype=np.float32)


def _clipped(values: Array, bits: int) -> Array:
    return np.clip(values, 0, (1 << bits) - 1).astype(np.uint8)


def _rounded(values: Array) -> Array:
    """Rounds to the nearest integer, halves away from zero."""
    rounded: Array = np.copysign(np.floor(np.abs(values) + np.float32(0.5)), values)
    return rounded


def _packed(numbers: Array, bits: int, filling: int = 0) -> Array:
    """Packs the last axis into bytes: the first code of each is in its lowest bits, and the last byte is filled up."""
    each, (*others, length) = 8 // bits, numbers.shape
    padding = [(0, 0)] * len(others) + [(0, -length % each)]
    filled = np.pad(numbers, padding, constant_values=filling).reshape(*others, -1, each)
    packed: Array = np.bitwise_or.reduce(filled << np.arange(0, 8, bits, dtype=np.uint8), axis=-1)
    return packed


def _fill(target: Array, values: Array) -> None:
    target.reshape(-1)[:] = np.asarray(values).reshape(-1)
