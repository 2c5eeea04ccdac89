"""The official node cases twice more: their tensor inputs as initializers, and all input dimensions symbolic."""

import pytest

import onnx_torch.backend
from official import check, node_cases, with_initializers, with_symbolic_dims

INITIALIZERS = [case for case in map(with_initializers, node_cases()) if case]
SYMBOLIC = [case for case in map(with_symbolic_dims, node_cases()) if case]


def prepared(model):
    return onnx_torch.backend.prepare(model, "CPU").run


@pytest.mark.parametrize("case", INITIALIZERS, ids=lambda case: case.name)
def test_inputs_as_initializers(case):
    check(case, prepared)


@pytest.mark.parametrize("case", SYMBOLIC, ids=lambda case: case.name)
def test_symbolic_dimensions(case):
    check(case, prepared)


def test_the_variants_are_whole():
    assert len(INITIALIZERS) == 1879
    assert sum(bool(case.model.graph.initializer) for case in INITIALIZERS) >= 1863  # the rest has sequences only
    assert len(SYMBOLIC) == 1848
