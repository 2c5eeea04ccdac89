"""The operators of onnxruntime that move elements, where they are used wrongly."""

from __future__ import annotations

import numpy as np
import pytest

import onnx_torch
from models import op_model

X = np.ones((2, 3), np.float32)
IMAGES = np.ones((2, 1, 3, 4), np.float32)
BOX = np.array([[0, 0, 1, 1]], np.float32)
BOXES, SCORES = np.ones((1, 5, 4), np.float32), np.ones((1, 5, 2), np.float32)
NMS = {
    "background_class": -1,
    "box_coding": 0,
    "iou_threshold": 0.5,
    "max_output_boxes": 3,
    "plugin_version": "1",
    "score_activation": 0,
    "score_threshold": 0.25,
}


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
    ("not a matrix", "SparseToDenseMatMul", [BOX[0], X], {}),
    ("must match|cannot be multiplied|size mismatch", "SparseToDenseMatMul", [X, X], {}),
    ("expand", "EfficientNMS_TRT", [BOXES, SCORES[:, :4]], NMS),
    ("expand|must match", "EfficientNMS_TRT", [BOXES, SCORES, BOXES[:, :2]], NMS),
    ("not of shape", "EfficientNMS_TRT", [BOXES[0], SCORES[0]], NMS),
    ("max_output_boxes must be positive", "EfficientNMS_TRT", [BOXES, SCORES], NMS | {"max_output_boxes": -1}),
    ("no box_coding 2", "EfficientNMS_TRT", [BOXES, SCORES], NMS | {"box_coding": 2}),
    ("2 dimensions, not 0", "Rfft", [X], {"signal_ndim": 0}),
    ("2 dimensions, not 1099511627776", "Rfft", [X], {"signal_ndim": 2**40}),
    ("1 dimensions, not 2", "Irfft", [X[:, :2]], {"signal_ndim": 2}),
]


@pytest.mark.parametrize("message, op, inputs, attributes", WRONG)
def test_what_is_wrong(message, op, inputs, attributes):
    outputs = {"BifurcationDetector": 2, "EfficientNMS_TRT": 4}.get(op, 1)
    domain = {"domain": "", "opset": 21} if op.endswith("_TRT") else {"domain": "com.microsoft", "opset": 1}
    with pytest.raises(onnx_torch.Error, match=message):
        model = op_model(op, inputs, outputs=outputs, **domain, **attributes)
        onnx_torch.prepare(model).run(inputs)


def cheapest_path(costs):
    """Gives the path as onnxruntime finds it: to the right, unless another step alone is the cheapest."""
    totals = np.full((costs.shape[0] + 1, costs.shape[1] + 1), np.inf, np.float32)
    totals[0, 0] = 0
    steps = {}
    for row, column in np.ndindex(costs.shape):
        both, down, right = totals[row, column], totals[row, column + 1], totals[row + 1, column]
        step, total = (0, 1), right
        if both < min(down, right):
            step, total = (1, 1), both
        elif down < min(both, right):
            step, total = (1, 0), down
        steps[row, column] = step
        totals[row + 1, column + 1] = costs[row, column] + total
    path = [(costs.shape[0] - 1, costs.shape[1] - 1)]
    while path[-1] != (0, 0):
        path.append((path[-1][0] - steps[path[-1]][0], path[-1][1] - steps[path[-1]][1]))
    return np.array(path[::-1], np.int32).T


@pytest.mark.parametrize("shape", [(1, 1), (1, 9), (9, 1), (31, 17), (40, 90)])
@pytest.mark.parametrize("levels", [2, 1000])
def test_the_cheapest_path(shape, levels):
    costs = np.random.default_rng(0).integers(0, levels, shape).astype(np.float32)
    model = onnx_torch.prepare(op_model("DynamicTimeWarping", [costs], domain="com.microsoft", opset=1))
    np.testing.assert_array_equal(model.run([costs])[0], cheapest_path(costs))
