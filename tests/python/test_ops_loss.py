"""The losses: half precision, narrow targets, empty and ignored classes."""

import ml_dtypes
import numpy as np
import pytest

from models import assert_same, run_op
from random_numbers import RNG


def log_softmax(x):
    x = x - x.max(1, keepdims=True)
    return x - np.log(np.exp(x).sum(1, keepdims=True))


def expected(log_prob, target, weight, reduction, ignore_index):
    picked = np.take_along_axis(log_prob, np.where(target == ignore_index, 0, target)[:, None], 1)[:, 0]
    weights = np.where(target == ignore_index, 0, weight[np.where(target == ignore_index, 0, target)])
    losses = -picked * weights
    return {"none": losses, "sum": losses.sum(), "mean": losses.sum() / weights.sum()}[reduction]


@pytest.mark.parametrize("dtype", [np.float32, np.float64, np.float16, ml_dtypes.bfloat16])
@pytest.mark.parametrize("target_dtype", [np.int32, np.int64])
@pytest.mark.parametrize("reduction", ["none", "sum", "mean"])
@pytest.mark.parametrize("spatial", [(), (2,), (2, 3)])
def test_losses(spatial, reduction, target_dtype, dtype):
    x = RNG.standard_normal((4, 5, *spatial)).astype(dtype)
    target = RNG.integers(0, 5, (4, *spatial)).astype(target_dtype)
    weight = RNG.uniform(0.5, 2, 5).astype(dtype)
    target.ravel()[0] = -1
    options = {"reduction": reduction, "ignore_index": -1}
    wide = x.astype(np.float64)
    tolerance = {np.float32: 1e-6, np.float64: 1e-14, np.float16: 2**-10, ml_dtypes.bfloat16: 2**-7}[dtype]
    for op, log_prob in [("NegativeLogLikelihoodLoss", wide), ("SoftmaxCrossEntropyLoss", log_softmax(wide))]:
        want = expected(log_prob, target, weight.astype(np.float64), reduction, -1)
        [actual] = run_op(op, [x, target, weight], opset=13, **options)
        assert_same([actual], [np.asarray(want).astype(dtype)], rtol=tolerance, atol=tolerance)
    _loss, log_prob = run_op("SoftmaxCrossEntropyLoss", [x, target], opset=12, outputs=2, **options)
    assert_same([log_prob], [log_softmax(wide).astype(dtype)], rtol=tolerance, atol=tolerance)


def test_an_unknown_reduction_is_refused():
    with pytest.raises(Exception, match="there is no reduction"):
        run_op("NegativeLogLikelihoodLoss", [np.ones((1, 2), np.float32), np.zeros(1, np.int64)], reduction="max")
