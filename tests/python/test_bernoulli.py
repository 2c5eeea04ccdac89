"""Bernoulli draws with the probabilities it is given: what the official cases, tied to numpy's stream, cannot say."""

import numpy as np
import onnx
import pytest

import onnx_torch.backend
from official import node_cases

CASES = [case for case in node_cases() if case.name.startswith("test_bernoulli")]
DRAWS = 20000


def _open_model(case):
    """Gives the case's model with an input of any length."""
    model = onnx.ModelProto()
    model.CopyFrom(case.model)
    for info in [*model.graph.input, *model.graph.output]:
        info.type.tensor_type.shape.dim[0].dim_param = "n"
    return model


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_frequencies(case):
    rep = onnx_torch.backend.prepare(_open_model(case))
    dtype = case.data_sets[0][0][0].dtype
    inverted = case.name.endswith("expanded")  # ONNX's function body draws 1 where a random number is greater than p
    for p in (0.0, 0.1, 0.5, 0.9, 1.0):
        (drawn,) = rep.run([np.full(DRAWS, p, dtype)])
        assert drawn.dtype == case.data_sets[0][1][0].dtype
        assert set(np.unique(drawn)) <= {0, 1}
        spread = 5 * np.sqrt(p * (1 - p) / DRAWS)
        assert abs(drawn.astype(np.float64).mean() - (1 - p if inverted else p)) <= spread


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_streams(case):
    """One seed gives one stream; without a seed, each run draws anew."""
    model = _open_model(case)
    half = np.full(DRAWS, 0.5, case.data_sets[0][0][0].dtype)
    rep = onnx_torch.backend.prepare(model)
    runs = [rep.run([half])[0], rep.run([half])[0], onnx_torch.backend.prepare(model).run([half])[0]]
    seeded = any(attribute.name == "seed" for node in model.graph.node for attribute in node.attribute)
    for run in runs[1:]:
        assert np.array_equal(runs[0], run) == seeded
