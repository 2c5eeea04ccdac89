"""Mixtures of experts: sizes that do not fit, and attributes without a meaning, end in an error."""

from __future__ import annotations

from typing import Any

import ml_dtypes
import numpy as np
import pytest

import onnx_torch
from models import op_model, run_op
from wrong_models import refused

MICROSOFT = dict(domain="com.microsoft", opset=1)
TOKENS, HIDDEN, INTER, EXPERTS = 3, 16, 32, 4


def numbers(*shape: int, dtype: Any = np.float32) -> np.ndarray:
    return (np.arange(np.prod(shape)) % 7).reshape(shape).astype(dtype)


X, ROUTER = numbers(TOKENS, HIDDEN), numbers(TOKENS, EXPERTS)
FC1, FC2 = numbers(EXPERTS, INTER, HIDDEN), numbers(EXPERTS, HIDDEN, INTER)


@pytest.mark.parametrize(
    "inputs, attributes, message",
    [
        ([X, ROUTER, FC1, None, FC2], dict(k=0), "k is from 1"),
        ([X, ROUTER, FC1, None, FC2], dict(k=5), "k is from 1"),
        ([X, ROUTER, FC1, None, FC2], dict(k=2**62), "k is from 1"),
        ([X, ROUTER, FC1, None, FC2], dict(use_sparse_mixer=1), "needs a k of 2"),
        ([X, ROUTER[:2], FC1, None, FC2], {}, "a row for each token"),
        ([X, ROUTER, FC1[:3], None, FC2], {}, "a row for each token"),
        ([X, ROUTER, FC1, None, FC2[:1]], dict(k=4), "out of range"),
        ([X, ROUTER, FC1[:, :, :15], None, FC2], {}, "do not fit|cannot be multiplied"),
        ([X, ROUTER, FC1, None, FC2[:, :15]], {}, "do not fit|cannot be multiplied"),
        ([X, ROUTER, FC1, None, FC2[:, :, :31]], {}, "cannot be multiplied"),
        ([X, ROUTER, FC1[0], None, FC2], {}, "a row for each token|3 dimensions"),
        ([X[0], ROUTER, FC1, None, FC2], {}, "2 or 3 dimensions"),
        ([X, ROUTER, FC1, numbers(EXPERTS, 31), FC2], {}, "size"),
        ([X, ROUTER, FC1, None, FC2], dict(activation_type="tanh"), "there is no activation tanh"),
        ([X, ROUTER, FC1, None, FC2], dict(activation_type="swiglu"), "needs FC3"),
        ([X, ROUTER, FC1, None, FC2], dict(activation_type="swiglu", swiglu_fusion=3), "swiglu_fusion is 0, 1 or 2"),
        ([X, ROUTER, FC1[:, :31], None, FC2], dict(activation_type="swiglu", swiglu_fusion=1), "odd number"),
    ],
)
def test_experts_that_do_not_fit_are_refused(inputs, attributes, message):
    refused("MoE", inputs, message, **MICROSOFT, **attributes)


W1, W2 = numbers(EXPERTS, INTER, HIDDEN // 2, dtype=np.uint8), numbers(EXPERTS, HIDDEN, INTER // 2, dtype=np.uint8)
S1, S2 = numbers(EXPERTS, INTER), numbers(EXPERTS, HIDDEN)
FLOAT8 = [W.astype(ml_dtypes.float8_e4m3fn) for W in (FC1, FC2)]


@pytest.mark.parametrize(
    "inputs, attributes, message",
    [
        ([X, ROUTER, W1, S1, None, W2, S2], dict(expert_weight_bits=3), "2, 4 or 8 bits"),
        ([X, ROUTER, W1, S1, None, W2, S2], dict(fc2_expert_weight_bits=1), "2, 4 or 8 bits"),
        ([X, ROUTER, W1, S1, None, W2, S2], dict(quant_type="int4"), "quant_type is"),
        ([X, ROUTER, W1, S1, None, W2, S2], dict(quant_type="fp8"), "another type"),
        ([X, ROUTER, W1, S1, None, W2, S2], dict(weights_prepacked=1), "layout"),
        ([X, ROUTER, W1, S1, None, W2, S2], dict(block_size=16), "scales do not fit"),
        ([X, ROUTER, W1, S1, None, W2, S2], dict(expert_weight_bits=8), "do not fit"),
        ([X, ROUTER, W1, None, None, W2, S2], {}, "need scales"),
        ([X, ROUTER, W1, S1[:, :31], None, W2, S2], {}, "scales do not fit"),
        ([X, ROUTER, W1, S1, None, W2, S2, *[None] * 4, W1[:, :15, 0]], {}, "zero points do not fit"),
        ([X, ROUTER, W1, S1, None, W2, S2, *[None] * 7, ROUTER[:, :1]], {}, "out of bounds|size"),
        ([X, ROUTER, W1, S1, None, W2, S2], dict(quant_type="fp4"), "fc1_global_scale"),
        ([X, ROUTER, FLOAT8[0], None, None, FLOAT8[1], None], dict(quant_type="fp8"), "fc1_global_scale"),
        (
            [X, ROUTER, FLOAT8[0], S1[:, None, :1], None, FLOAT8[1], S2[:, None, :1]],
            dict(quant_type="fp8", block_size=16),
            "size|fit",
        ),
    ],
)
def test_quantized_experts_that_do_not_fit_are_refused(inputs, attributes, message):
    refused("QMoE", inputs, message, **MICROSOFT, **attributes)


@pytest.mark.parametrize("indices", [[5], [-1], [2**62]])
def test_an_index_beyond_an_embedding_is_refused(indices):
    refused("TorchEmbedding", [numbers(5, 2), np.array(indices)], "out of|index", **MICROSOFT)


def test_an_embedding_without_rows_gives_no_rows():
    """A padding that is counted from the end of the rows is an index of none, where there are no rows."""
    for indices in ([], [0]):
        inputs = [numbers(0, 2), np.array(indices, np.int64), np.array(-1)]
        if not indices:
            assert run_op("TorchEmbedding", inputs, **MICROSOFT)[0].shape == (0, 2)
        else:
            refused("TorchEmbedding", inputs, "", **MICROSOFT)


def test_all_finite_is_of_inputs():
    with pytest.raises(onnx_torch.Error):
        onnx_torch.prepare(op_model("IsAllFinite", [], **MICROSOFT))
    with pytest.raises(onnx_torch.Error, match="exclude one another"):
        run_op("IsAllFinite", [X], **MICROSOFT, isinf_only=1, isnan_only=1)
