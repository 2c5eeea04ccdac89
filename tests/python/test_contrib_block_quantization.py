"""Weights of few bits: sizes and indices that do not fit end in an error; a product is one call for passes to find."""

import numpy as np
import pytest

pytest.importorskip("onnxruntime")

import onnx_torch
from models import run_op
from test_wrong_models import LOWEST, constant_model, refused

MICROSOFT = dict(domain="com.microsoft", opset=1)
X = np.linspace(-1, 1, 80, dtype=np.float32).reshape(2, 40)
SIZES = dict(K=40, N=3, block_size=16)


def codes(*shape: int) -> np.ndarray:
    return (np.arange(np.prod(shape)) * 37 % 251).reshape(shape).astype(np.uint8)


def floats(*shape: int) -> np.ndarray:
    return np.linspace(0.5, 1, int(np.prod(shape)), dtype=np.float32).reshape(shape)


def ints(*values: int) -> np.ndarray:
    return np.array(values, np.int64)


B, SCALES = codes(3, 3, 8), floats(3, 3)


@pytest.mark.parametrize(
    "inputs, attributes, message",
    [
        ([X, codes(3, 3, 7), SCALES], {}, "does not hold N rows"),
        ([X, B, SCALES], dict(N=4), "does not hold N rows"),
        ([X, B, SCALES], dict(N=-3, K=-40), "takes numbers from 0"),
        ([X, B, SCALES], dict(K=2**62), "takes numbers from 0"),
        ([X, B, SCALES], dict(bits=3), "bits is 2, 4 or 8"),
        ([X, B, SCALES], dict(block_size=0), "power of two from 16 on"),
        ([X, B, SCALES], dict(block_size=24), "power of two from 16 on"),
        ([X, B, SCALES], dict(weight_prepacked=1), "layout"),
        ([X, B, floats(3, 2)], {}, "is invalid for input of size 6"),
        ([X, B, SCALES, codes(3, 1)], {}, "is invalid for input of size 3"),
        ([X, B, SCALES, floats(3, 2)], {}, "is invalid for input of size 6"),
        ([X, B, SCALES, None, np.full(40, 3, np.int32)], {}, "out of DATA bounds"),
        ([X, B, SCALES, None, np.full(40, -1, np.int32)], {}, "out of DATA bounds"),
        ([X, B, SCALES, None, np.zeros(39, np.int32)], {}, "must match the size"),
        ([X, B, SCALES, None, None, floats(2)], {}, "size"),
        ([X[:, :39], B, SCALES], {}, "cannot be multiplied"),
    ],
)
def test_sizes_of_a_product_that_do_not_fit_are_refused(inputs, attributes, message):
    refused("MatMulNBits", inputs, message, **MICROSOFT, **{**SIZES, **attributes})


TABLE = codes(6, 20)


@pytest.mark.parametrize(
    "inputs, attributes, message",
    [
        ([TABLE, ints(0), floats(6, 2)], {}, "must match the existing size"),
        ([TABLE, ints(0), floats(5, 3)], {}, "must match the existing size"),
        ([TABLE, ints(0), floats(6, 3), codes(6, 1)], {}, "must match the existing size"),
        ([TABLE, ints(0), floats(6, 3)], dict(bits=5), "bits is 2, 4 or 8"),
        ([TABLE, ints(0), floats(6, 3)], dict(block_size=0), "power of two from 16 on"),
        ([TABLE, ints(0), floats(6, 3)], dict(gather_axis=2), "axis 2 is out of range"),
        ([TABLE, ints(0), floats(6, 3)], dict(quantize_axis=-3), "axis -3 is out of range"),
        ([TABLE, ints(0), floats(6, 3)], dict(gather_axis=1), "cannot be gathered along the last axis"),
        ([TABLE[:0], ints(LOWEST), floats(0, 3)], {}, "should be positive"),
    ],
)
def test_a_table_whose_parts_do_not_fit_is_refused(inputs, attributes, message):
    refused("GatherBlockQuantized", inputs, message, **MICROSOFT, **{"block_size": 16, **attributes})


HALF = X.astype(np.float16)


@pytest.mark.parametrize(
    "op_type, inputs, attributes, message",
    [
        ("MatMulBnb4", [X, codes(59), floats(8)], dict(SIZES, quant_type=0), "does not hold N \\* K"),
        ("MatMulBnb4", [X, codes(60), floats(7)], dict(SIZES, quant_type=0), "a number for each block"),
        ("MatMulBnb4", [X, codes(60), floats(8)], dict(SIZES, quant_type=2), "quant_type is 0"),
        ("MatMulBnb4", [X, codes(60), floats(8)], dict(SIZES, quant_type=0, block_size=0), "power of two"),
        ("MatMulFpQ4", [X, codes(125), ints(40, 3)], {}, "a matrix of the shape"),
        ("MatMulFpQ4", [X, codes(126), ints(-40, -3)], {}, "that of a matrix"),
        ("MatMulFpQ4", [X, codes(126), ints(40, 3, 1)], {}, "that of a matrix"),
        ("MatMulFpQ4", [X, codes(126), ints(2**62, 3)], {}, "that of a matrix"),
        ("MatMulFpQ4", [X, codes(126), ints(40, 3)], dict(blk_quant_type=3), "blk_quant_type is 0, 1 or 2"),
        ("MatMulBlockQuantizedFp4Weight", [HALF, codes(3, 20), codes(3, 2), floats()], {}, "do not fit the blocks"),
        (
            "MatMulBlockQuantizedFp4Weight",
            [HALF, codes(3, 20), codes(3, 3), floats()],
            dict(block_size=0),
            "block_size",
        ),
        (
            "MatMulNBitsMlp",
            [X, X, None, B, SCALES, None, B, SCALES],
            dict(SIZES, activation="silu"),
            "skip needs norm_scale",
        ),
        (
            "MatMulNBitsMlp",
            [X, None, None, B, SCALES, None, B, SCALES],
            dict(SIZES, activation="selu"),
            "there is no activation selu",
        ),
    ],
)
def test_weights_that_do_not_fit_are_refused(op_type, inputs, attributes, message):
    refused(op_type, inputs, message, **MICROSOFT, **attributes)


def graph_of(op_type: str, inputs, **attributes) -> str:
    model = constant_model(op_type, inputs, **MICROSOFT, **attributes)
    return onnx_torch.prepare(model).graphs()["translate"]


def test_each_product_and_each_table_is_one_call():
    assert graph_of("MatMulNBits", [X, B, SCALES], **SIZES).count("onnx_torch::matmul_nbits") == 1
    mlp = graph_of("MatMulNBitsMlp", [X, None, None, B, SCALES, None, B, SCALES], **SIZES, activation="silu")
    assert mlp.count("onnx_torch::matmul_nbits") == 2
    assert graph_of("GatherBlockQuantized", [TABLE, ints(0), floats(6, 3)], block_size=16).count(
        "onnx_torch::gather_block_quantized"
    )


def test_a_constant_weight_is_made_once():
    inputs = [X, B, SCALES, codes(3, 2)]
    rep = onnx_torch.prepare(constant_model("MatMulNBits", inputs, **MICROSOFT, **SIZES), disabled_passes=["bits"])
    graph = rep.graphs()["constants"]
    assert "aten::linear" in graph
    assert "Byte" not in graph and "prim::If" not in graph
    expected = run_op("MatMulNBits", inputs, **MICROSOFT, **SIZES)
    np.testing.assert_allclose(rep.run([X])[0], expected[0], rtol=1e-6)


def test_blocks_larger_than_a_row_take_no_memory():
    huge = dict(block_size=2**30)
    rows = run_op("GatherBlockQuantized", [TABLE, ints(1), floats(6, 1)], **MICROSOFT, **huge)
    np.testing.assert_array_equal(*rows, *run_op("GatherBlockQuantized", [TABLE, ints(1), floats(6, 1)], **MICROSOFT))
    y = run_op("MatMulBnb4", [X, codes(60), floats(1)], **MICROSOFT, **{**SIZES, **huge}, quant_type=1)
    assert y[0].shape == (2, 3)
