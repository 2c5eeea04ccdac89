"""Wrong uses of onnxruntime's fused products, convolutions and pools, and what becomes of fused nodes."""

import numpy as np
import pytest
from onnx import TensorProto, helper

import onnx_torch
from models import model_of, run_op, tensor_info

MICROSOFT = "com.microsoft"
BIG = 2**62


def zeros(*shape: int) -> np.ndarray:
    return np.zeros(shape, np.float32)


def ints(*values: int) -> np.ndarray:
    return np.array(values, np.int64)


def mask(*shape: int) -> np.ndarray:
    return np.ones(shape, np.int32)


X, W = zeros(1, 4, 5, 5), zeros(6, 4, 3, 3)
SPREAD = {"strides": [2, 2]}

WRONG = [
    ("FusedMatMul", [zeros(2, 3), zeros(4, 5)], {}, "shape|size"),
    ("FusedMatMul", [zeros(2, 3), zeros(3, 5)], {"transA": 1}, "shape|size"),
    ("FusedMatMul", [np.float32(1), zeros(3, 5)], {"transA": 1, "transBatchA": 1}, "at least 1D"),
    ("FusedMatMulActivation", [zeros(2, 3), zeros(3, 5)], {"activation": "Loop"}, 'no activation "Loop"'),
    ("FusedMatMulActivation", [zeros(2, 3), zeros(3, 5)], {}, "activation"),
    ("FusedMatMulActivation", [zeros(2, 3), zeros(3, 5)], {"activation": "Softmax", "activation_axis": 5}, "range"),
    ("FusedGemm", [zeros(2, 3), zeros(4, 5)], {"activation": "Relu"}, "shape"),
    ("FusedConv", [X, W], {"activation": "relu"}, 'no activation "relu"'),
    ("FusedConv", [X, W], {"activation": "Clip", "activation_params": [1.0]}, "Clip takes 2 activation_params"),
    ("FusedConv", [X, W, None, zeros(1, 5, 3, 3)], {}, "size"),
    ("FusedConv", [X, W], {"group": 3}, "channels|group"),
    ("NhwcConv", [X, W], {}, "channels"),
    ("NhwcFusedConv", [np.float32(1), W], {}, "a batch and channels"),
    ("NhwcMaxPool", [np.zeros((1, 2, 2, 3), np.int8)], {"kernel_shape": [3, 3]}, "small|size"),
    ("NhwcMaxPool", [np.zeros((1, 2, 3), np.int8)], {"kernel_shape": [3, 3]}, "dimensions"),
    ("ComplexMul", [zeros(2, 3), zeros(2, 3)], {}, "shape"),
    ("ComplexMulConj", [zeros(2, 4), zeros(2, 6)], {}, "size"),
    ("ComplexMulConj", [np.float32(1), zeros(2)], {}, "[Dd]imension"),
    ("ConvTransposeWithDynamicPads", [X, W[:4], ints(1, 1)], {}, "4 pads, not 2"),
    ("ConvTransposeWithDynamicPads", [X, W[:4], ints(1, 1, 1, 1, 1)], SPREAD, "4 pads, not 5"),
    ("ConvTransposeWithDynamicPads", [X, W[:4], ints(BIG, BIG, BIG, BIG)], {}, "out of range"),
    ("ConvTransposeWithDynamicPads", [X, W[:4], ints(-BIG, 0, 0, 0)], {}, "out of range"),
    ("ConvTransposeWithDynamicPads", [X, W[:4], ints(9, 9, 9, 9)], {}, "negative"),
    ("MaxpoolWithMask", [X, mask(1, 1, 5, 4)], {"kernel_shape": [2, 2]}, "shape|size"),
    ("MaxpoolWithMask", [X, mask(1, 0, 5, 5)], {"kernel_shape": [2, 2]}, "[Zz]ero|0"),
    ("MaxpoolWithMask", [X, mask(1, 1, 5, 5)], {"kernel_shape": [2, 2], "pads": [-9, 0, 0, 0]}, "negative"),
    ("MaxpoolWithMask", [X[0], mask(1, 1, 5)], {"kernel_shape": [2, 2]}, "dimensions"),
    ("GemmFloat8", [zeros(2, 3), zeros(3, 4)], {"activation": "TANH"}, "no activation TANH"),
    ("GemmFloat8", [zeros(2, 3), zeros(3, 4)], {"dtype": 99}, "element type"),
    ("GemmFloat8", [zeros(2, 3), zeros(4, 3)], {}, "shape"),
]


@pytest.mark.parametrize("op, inputs, options, message", WRONG)
def test_wrong_uses_are_refused(op, inputs, options, message):
    with pytest.raises(onnx_torch.Error, match=message):
        run_op(op, inputs, domain=MICROSOFT, **options)


@pytest.mark.parametrize("shape", [["n", 4, 5, 5], None], ids=str)
def test_channels_that_are_last_stay_there_whatever_is_known(shape):
    x = np.random.default_rng(0).normal(size=(2, 4, 5, 3)).astype(np.float32)
    w = np.random.default_rng(1).normal(size=(6, 3, 2, 3)).astype(np.float32)
    infos = [tensor_info("x", shape=shape and ["n", 4, "w", 3], element=TensorProto.FLOAT), tensor_info("w", w)]
    node = helper.make_node("NhwcConv", ["x", "w"], ["y"], domain=MICROSOFT, auto_pad="SAME_UPPER")
    y = onnx_torch.prepare(model_of([node], infos, ["y"], domain=MICROSOFT)).run([x, w])[0]
    expected = run_op("Conv", [np.moveaxis(x, -1, 1).copy(), np.moveaxis(w, -1, 1).copy()], auto_pad="SAME_UPPER")[0]
    np.testing.assert_allclose(y, np.moveaxis(expected, 1, -1), rtol=1e-5, atol=1e-5)


def test_scaled_and_transposed_products_are_attention_where_they_are_that():
    """A FusedMatMul is written as the nodes that it was made of, so that attention is found."""
    infos = [tensor_info(name, shape=["n", 2, "s", 8], element=TensorProto.FLOAT) for name in "qkv"]
    nodes = [
        helper.make_node("FusedMatMul", ["q", "k"], ["scores"], domain=MICROSOFT, transB=1, alpha=0.25),
        helper.make_node("Softmax", ["scores"], ["weights"], axis=-1),
        helper.make_node("MatMul", ["weights", "v"], ["y"]),
    ]
    rep = onnx_torch.prepare(model_of(nodes, infos, ["y"], domain=MICROSOFT))
    assert "attention" in str(rep.graph()) and "softmax" not in str(rep.graph())
