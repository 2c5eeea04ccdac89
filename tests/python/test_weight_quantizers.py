"""The native functions of onnxruntime that quantize weights in blocks: theirs and ours give the same bits."""

from __future__ import annotations

import itertools

import numpy as np
import onnxruntime.capi.onnxruntime_pybind11_state as theirs
import pytest

from onnx_torch.compat import _weight_quantizers as ours


def weights(kind: str, shape: tuple[int, int], type_: type) -> np.ndarray:
    values = np.random.default_rng(0).standard_normal(shape)
    if kind == "halves of steps":
        values = np.round(values * 4) / 8
    if kind == "zeros and positive":
        values[: shape[0] // 2] = 0
        values = np.abs(values)
    return values.astype(type_)


KINDS = ["normal", "halves of steps", "zeros and positive"]
VALUES = list(itertools.product(KINDS, [np.float32, np.float16]))


def filled(module, name: str, arrays: list[np.ndarray], values: np.ndarray, *rest: int):
    """Gives what a function returns, and the arrays that it has filled."""
    copies = [array.copy() for array in arrays]
    result = getattr(module, name)(copies[0], values, *copies[1:], *rest)
    return result, copies


@pytest.mark.parametrize("is_symmetric", [True, False])
@pytest.mark.parametrize("bits", [2, 4, 8])
@pytest.mark.parametrize(("kind", "type_"), VALUES)
def test_for_matmul_nbits(bits, is_symmetric, kind, type_):
    each = 8 // bits
    for block, rows, columns in itertools.product([16, 32, 128], [128, 132, 64], [32, 3]):
        blocks = -(-rows // block)
        values = np.pad(weights(kind, (rows, columns), type_), ((0, blocks * block - rows), (0, 0)))
        arrays = [
            np.zeros((columns, blocks, block // each), np.uint8),
            np.zeros((columns, blocks), type_),
            np.zeros((columns, -(-blocks // each)), np.uint8),
        ]
        name, rest = f"quantize_matmul_{bits}bits", (block, columns, rows, is_symmetric)
        expected = filled(theirs, name, arrays, values, *rest)
        np.testing.assert_equal(filled(ours, name, arrays, values, *rest), expected, str(rest))


@pytest.mark.parametrize("is_symmetric", [True, False])
@pytest.mark.parametrize(("kind", "type_"), VALUES)
def test_for_dequantize_linear(is_symmetric, kind, type_):
    for block, rows, columns in itertools.product([16, 32, 130], [128, 130, 13], [32, 4, 6]):
        blocks = -(-rows // block)
        arrays = [
            np.zeros((rows * columns + 1) // 2, np.uint8),
            np.zeros((blocks, columns), type_),
            np.zeros((columns * blocks + 1) // 2, np.uint8),
        ]
        rest = (block, columns, rows, is_symmetric)
        values = weights(kind, (rows, columns), type_)
        expected = filled(theirs, "quantize_qdq_matmul_4bits", arrays, values, *rest)
        np.testing.assert_equal(filled(ours, "quantize_qdq_matmul_4bits", arrays, values, *rest), expected, str(rest))


@pytest.mark.parametrize("bnb4_type", [0, 1])
@pytest.mark.parametrize(("kind", "type_"), VALUES)
def test_for_matmul_bnb4(bnb4_type, kind, type_):
    for block, rows, columns in itertools.product([16, 64], [128, 13], [32, 5]):
        size = rows * columns
        arrays = [np.zeros((size + 1) // 2, np.uint8), np.zeros(-(-size // block), type_)]
        values, rest = weights(kind, (columns, rows), type_), (block, bnb4_type, columns, rows)
        expected = filled(theirs, "quantize_matmul_bnb4", arrays, values, *rest)
        np.testing.assert_equal(filled(ours, "quantize_matmul_bnb4", arrays, values, *rest), expected, str(rest))
