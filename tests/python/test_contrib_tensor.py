"""The operators of onnxruntime that move elements, where they are used wrongly."""

from __future__ import annotations

import numpy as np
import pytest

import onnx_torch
from models import op_model

X = np.ones((2, 3), np.float32)
IMAGES = np.ones((2, 1, 3, 4), np.float32)
BOX = np.array([[0, 0, 1, 1]], np.float32)


def ints(*values):
    return np.array(values, np.int32)


def indices(*values):
    return np.array(values, np.int64)


WRONG = [
    ("as many columns", "CDist", [X, X[:, :2]], {}),
    ('metric "yule"', "CDist", [X, X], {"metric": "yule"}),
    ("square", "Inverse", [X], {}),
    ("singular", "Inverse", [np.ones((2, 2), np.float32)], {}),
    ("index", "CropAndResize", [IMAGES, BOX, ints(2), ints(2, 2)], {}),
    ("index", "CropAndResize", [IMAGES, BOX, ints(-3), ints(2, 2)], {}),
    ("two positive numbers", "CropAndResize", [IMAGES, BOX, ints(0), ints(2, 0)], {}),
    ("two positive numbers", "CropAndResize", [IMAGES, BOX, ints(0), ints(2)], {}),
    ("num_rois", "CropAndResize", [IMAGES, BOX, ints(0, 1), ints(2, 2)], {}),
    ("no mode", "CropAndResize", [IMAGES, BOX, ints(0), ints(2, 2)], {"mode": "cubic"}),
    ("real numbers", "GridSample", [np.full((1, 1, 2, 2), "a", object), np.full((1, 1, 1, 2), "b", object)], {}),
    ("pads", "Pad", [X, indices(1, 1, 1)], {}),
    ("unknown mode", "Pad", [X, indices(1, 1, 1, 1)], {"mode": "no"}),
    ("delta", "Range", [indices(1)[0], indices(3)[0], indices(0)[0]], {}),
    ("Dimension out of range", "ExpandDims", [X, ints(4)[0]], {}),
    ("index", "GatherND", [X, indices([2, 0])], {}),
    ("too many", "GatherND", [X, indices([0, 0, 0])], {}),
    ("size", "UnfoldTensor", [X], {"size": 4}),
    ("step", "UnfoldTensor", [X], {"size": 1, "step": 0}),
    ("Dimension out of range", "UnfoldTensor", [X], {"size": 1, "dim": 2}),
    ("not a matrix", "DynamicTimeWarping", [IMAGES], {}),
    ("outside of the source", "BifurcationDetector", [indices(1), indices(1), indices(2), indices(1)], {}),
    ("outside of the source", "BifurcationDetector", [indices(1), indices(1), indices(-1), indices(1)], {}),
    ("as many pred_tokens", "BifurcationDetector", [indices(1), indices(1), indices(0), indices(1)], {}),
    ("min_ngram_size", "BifurcationDetector", [indices(1), indices(1), indices(0)], {"min_ngram_size": 0}),
    ("one-sided", "Rfft", [X], {"onesided": 0}),
    ("one-sided", "Irfft", [X[:, :2]], {"signal_ndim": 1, "normalized": 1}),
    ("of size 2", "Irfft", [X], {"signal_ndim": 1}),
    ("2 dimensions, not 0", "Rfft", [X], {"signal_ndim": 0}),
    ("2 dimensions, not 1099511627776", "Rfft", [X], {"signal_ndim": 2**40}),
    ("1 dimensions, not 2", "Irfft", [X[:, :2]], {"signal_ndim": 2}),
]


@pytest.mark.parametrize("message, op, inputs, attributes", WRONG)
def test_what_is_wrong(message, op, inputs, attributes):
    outputs = {"BifurcationDetector": 2, "Unique": 3}.get(op, 1)
    with pytest.raises(onnx_torch.Error, match=message):
        model = op_model(op, inputs, domain="com.microsoft", opset=1, outputs=outputs, **attributes)
        onnx_torch.prepare(model).run(inputs)
