"""Wrong uses of onnxruntime's normalizations, dropout in training, and what becomes of fused nodes."""

import numpy as np
import pytest
from onnx import TensorProto, helper
from onnx.numpy_helper import from_array

import onnx_torch
from models import model_of, run_op, tensor_info

MICROSOFT = "com.microsoft"


def zeros(*shape: int) -> np.ndarray:
    return np.zeros(shape, np.float32)


def ids(*values) -> np.ndarray:
    return np.array([values], np.int32)


def embedding(words=(0, 1), segments=(0, 1), positions=None, table=True) -> list:
    places = positions if positions is None else ids(*positions)
    tables = [zeros(3, 4), zeros(2, 4), zeros(2, 4) if table else None]
    return [ids(*words), segments and ids(*segments), *tables, zeros(4), zeros(4), None, places]


Q = [np.zeros((1, 2, 3), np.int8), np.float32(1), zeros(3), None, np.float32(1)]
GROUPS = {"groups": 2, "activation": 0}
STREAMS = zeros(2, 3, 4)

WRONG = [
    ("SkipLayerNormalization", [zeros(2, 3, 4), zeros(2, 2, 4), zeros(4)], {}, "size"),
    ("SkipLayerNormalization", [zeros(2, 3, 4), zeros(2, 3, 4), zeros(3)], {}, "size"),
    ("SkipSimplifiedLayerNormalization", [zeros(2, 3, 4), zeros(2, 3, 4), zeros(3)], {}, "size|shape"),
    ("EmbedLayerNormalization", embedding(words=(0, 3)), {}, "index out of range"),
    ("EmbedLayerNormalization", embedding(words=(0, -1)), {}, "index out of range"),
    ("EmbedLayerNormalization", embedding(words=(0, 1, 2), segments=(0, 0, 0)), {}, "index out of range"),
    ("EmbedLayerNormalization", embedding(segments=(0, 2)), {}, "index out of range"),
    ("EmbedLayerNormalization", embedding(positions=(0, 2)), {}, "index out of range"),
    ("EmbedLayerNormalization", embedding(positions=(0, -1)), {}, "index out of range"),
    ("EmbedLayerNormalization", embedding(table=False), {}, "without a segment_embedding"),
    ("GroupNorm", [zeros(2, 3, 5, 4), zeros(4), zeros(4)], {"groups": 3, "activation": 0}, "divisible"),
    ("GroupNorm", [zeros(2, 3, 5, 4), zeros(4), zeros(4)], {"groups": 0, "activation": 0}, "groups"),
    ("GroupNorm", [zeros(2, 3, 5, 4), zeros(3), zeros(4)], GROUPS, "weight|size"),
    ("GroupNorm", [zeros(2, 3, 5, 4), zeros(4), zeros(4)], {"groups": 2, "activation": 2}, "activation is 0 or 1"),
    ("GroupNorm", [zeros(2, 3, 4), zeros(4), zeros(4)], GROUPS, "permute|dim"),
    ("SkipGroupNorm", [zeros(2, 3, 5, 4), zeros(4), zeros(4), zeros(2, 3)], GROUPS, "size"),
    ("GatedRMSNorm", [zeros(2, 6), zeros(4), zeros(2, 6)], {}, "shape"),
    ("GatedRMSNorm", [zeros(2, 6), zeros(0), zeros(2, 6)], {}, "division by 0"),
    ("GatedRMSNorm", [zeros(2, 6), zeros(3), zeros(2, 6)], {"activation": "relu"}, "no activation relu"),
    ("BranchwiseRMSNorm", [zeros(2, 7)], {"num_branches": 3}, "shape"),
    ("BranchwiseRMSNorm", [zeros(2, 6)], {"num_branches": -3}, "num_branches"),
    ("BranchwiseRMSNorm", [STREAMS, zeros(5)], {}, "shape|size"),
    ("HyperConnectionPreMix", [STREAMS, zeros(2, 4)], {}, "shape|size"),
    ("HyperConnectionPostMix", [STREAMS, zeros(2, 3), zeros(2, 3)], {}, "size"),
    ("HyperConnectionPostMix", [STREAMS, zeros(2, 4), zeros(2, 3), zeros(2, 4, 4)], {}, "size"),
    ("EngramGate", [zeros(1, 2, 3, 4), zeros(1, 2, 3, 5), zeros(1, 2, 4), zeros(3, 4), zeros(3, 4)], {}, "size"),
    ("EngramGate", [zeros(1, 2, 3, 4)] * 2 + [zeros(1, 2, 4)] + [zeros(3, 4)] * 2, {"outputs": 2}, "conv_norm_scale"),
    ("QOrderedLayerNormalization", Q, {"order_X": 2, "order_Y": 2}, "order"),
    ("QOrderedLayerNormalization", Q, {"axis": 3}, "range"),
    ("BiasDropout", [zeros(2, 3), zeros(4)], {}, "size"),
]


@pytest.mark.parametrize("op, inputs, options, message", WRONG)
def test_wrong_uses_are_refused(op, inputs, options, message):
    with pytest.raises(onnx_torch.Error, match=message):
        run_op(op, inputs, domain=MICROSOFT, **options)


# --- Dropout in training

X = np.random.default_rng(0).normal(size=(5, 9)).astype(np.float32)
TRAINING = [np.float32(0.75), np.array(True)]


def unpacked(words: np.ndarray, shape: tuple[int, ...]) -> np.ndarray:
    bits = words[:, None] >> np.arange(32, dtype=np.uint32) & 1
    assert not bits.ravel()[np.prod(shape) :].any()
    return bits.ravel()[: np.prod(shape)].reshape(shape).astype(bool)


def test_a_bitmask_is_that_of_the_standard_dropout():
    y, mask = run_op("Dropout", [X, *TRAINING], seed=3, outputs=2)
    assert 0 < mask.sum() < mask.size / 2
    packed_y, words = run_op("BitmaskDropout", [X, *TRAINING], domain=MICROSOFT, seed=3, outputs=2)
    np.testing.assert_array_equal(packed_y, y)
    np.testing.assert_array_equal(unpacked(words, X.shape), mask)


@pytest.mark.parametrize("op", ["BiasDropout", "BitmaskBiasDropout"])
def test_a_residual_is_not_dropped(op):
    bias, residual = X[0] * 2, X[::-1].copy()
    y, mask = run_op("Dropout", [X + bias, *TRAINING], seed=3, outputs=2)
    biased, found = run_op(op, [X, bias, residual, *TRAINING], domain=MICROSOFT, seed=3, outputs=2)
    np.testing.assert_allclose(biased, y + residual, rtol=1e-6)
    np.testing.assert_array_equal(found if op == "BiasDropout" else unpacked(found, X.shape), mask)


# --- Fused nodes

NORMS = [("SkipLayerNormalization", "layer_norm"), ("SkipSimplifiedLayerNormalization", "rms_norm")]


@pytest.mark.parametrize("shape", [[2, 3, 4], ["batch", "length", 4], None], ids=str)
@pytest.mark.parametrize("op, kind", NORMS)
def test_a_fused_normalization_is_written_as_that_of_a_model_that_is_not_fused(op, kind, shape):
    """The graph does not depend on what is known of the sizes: the scale tells which dimensions are normalized."""
    scale = from_array(np.ones(4, np.float32), "scale")
    infos = [tensor_info(name, shape=shape, element=TensorProto.FLOAT) for name in ("x", "skip")]
    node = helper.make_node(op, ["x", "skip", "scale"], ["y"], domain=MICROSOFT)
    model = model_of([node], infos, ["y"], domain=MICROSOFT, initializer=[scale])
    graph = str(onnx_torch.prepare(model, optimize=False).graph())
    assert f"aten::{kind}" in graph and "prim::If" not in graph
