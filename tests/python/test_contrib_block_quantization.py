"""Weights of few bits: sizes and indices that do not fit end in an error; a product is one call for passes to find."""

import ml_dtypes
import numpy as np
import pytest

pytest.importorskip("onnxruntime")

import onnx_torch
from models import on_each_cpu, op_model, run_on_cpu, run_op
from wrong_models import LOWEST, constant_model, refused

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


def tables() -> list[tuple[list, dict]]:
    """Gives the data, scales and zero points of GatherBlockQuantized, and its attributes."""
    signed = np.random.default_rng(0).integers(-8, 8, (5, 72))
    return [
        ([codes(7, 3, 20), floats(7, 3, 3), None], dict(block_size=16, quantize_axis=2)),
        ([codes(7, 3, 20), floats(7, 3, 3), codes(7, 3, 2)], dict(block_size=16, quantize_axis=-1)),
        ([codes(6, 100), floats(6, 13), codes(6, 4)], dict(block_size=32, bits=2)),
        ([codes(6, 75), floats(6, 3), codes(6, 3)], dict(block_size=32, bits=8)),
        ([codes(6, 100), floats(6, 1), codes(6, 1)], dict(block_size=1024)),
        ([signed.astype(ml_dtypes.int4), floats(5, 3), signed[:, :3].astype(ml_dtypes.int4)], dict(block_size=32)),
        ([(signed + 8).astype(ml_dtypes.uint4), floats(5, 3), None], dict(block_size=32)),
    ]


@on_each_cpu
@pytest.mark.parametrize("parts, attributes", tables())
@pytest.mark.parametrize("indices", [ints(2), ints(-1, 0, 4, 1), ints(3, 2, 1, -4).reshape(2, 2).astype(np.int32)])
def test_rows_of_a_table_are_picked_and_dequantized_in_one_step(indices, parts, attributes, capability, tmp_path):
    data, scales, zero_points = parts
    model = constant_model("GatherBlockQuantized", [indices, data, scales, zero_points], **MICROSOFT, **attributes)
    node = model.graph.node[0]
    node.input[0], node.input[1] = node.input[1], node.input[0]
    rep = onnx_torch.prepare(model)
    assert "onnx_torch::gather_blocks" in str(rep.graph())
    expected = run_op("GatherBlockQuantized", [data, indices, scales, zero_points], **MICROSOFT, **attributes)
    for y in (run_on_cpu(capability, model, [indices], tmp_path)[0], *(rep.run([indices])[0] for _ in range(4))):
        np.testing.assert_array_equal(y, onnx_torch.prepare(model, optimize=False).run([indices])[0])
        np.testing.assert_array_equal(y, *expected)
    assert "plan onnx_torch::gather_blocks" in str(rep.plans())


def test_an_index_beyond_the_table_gives_zeros_in_a_plan():
    model = constant_model("GatherBlockQuantized", [ints(0, 1), TABLE, floats(6, 3)], **MICROSOFT, block_size=16)
    node = model.graph.node[0]
    node.input[0], node.input[1] = node.input[1], node.input[0]
    rep = onnx_torch.prepare(model)
    for indices in (ints(0, 1), ints(5, -6), ints(6, 2), ints(-7, LOWEST), ints(2**62, 0)):
        y, expected = rep.run([indices])[0], onnx_torch.prepare(model, optimize=False).run([indices])[0]
        np.testing.assert_array_equal(y, expected)
        outside = (indices < -6) | (indices >= 6)
        assert (y[outside] == 0).all() and (y[~outside] != 0).any(axis=1).all()


def test_a_table_whose_other_axes_are_picked_is_left_to_the_script():
    inputs = [codes(4, 6, 20), ints(1, 5), floats(4, 6, 3)]
    for attributes in (dict(gather_axis=1, quantize_axis=2), dict(quantize_axis=1, bits=8)):
        parts = inputs if "gather_axis" in attributes else [inputs[0], ints(1, 3), floats(4, 1, 20)]
        model = op_model("GatherBlockQuantized", parts, **MICROSOFT, **attributes, block_size=16)
        found, plain = (onnx_torch.prepare(model, optimize=optimize).run(parts)[0] for optimize in (True, False))
        np.testing.assert_array_equal(found, plain)
