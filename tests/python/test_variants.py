"""The official node cases thrice more: tensor inputs as initializers, all input dimensions symbolic, and no shapes."""

import pytest

import onnx_torch.backend
from official import DEVICES, check, node_cases, with_initializers, with_symbolic_dims, without_shapes

INITIALIZERS = [case for case in map(with_initializers, node_cases()) if case]
SYMBOLIC = [case for case in map(with_symbolic_dims, node_cases()) if case]
WITHOUT_SHAPES = [case for case in map(without_shapes, node_cases()) if case]


def check_on(device, case):
    check(case, lambda model: onnx_torch.backend.prepare(model, device).run)


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("case", INITIALIZERS, ids=lambda case: case.name)
def test_inputs_as_initializers(case, device):
    check_on(device, case)


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("case", SYMBOLIC, ids=lambda case: case.name)
def test_symbolic_dimensions(case, device):
    check_on(device, case)


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("case", WITHOUT_SHAPES, ids=lambda case: case.name)
def test_unknown_numbers_of_dimensions(case, device):
    check_on(device, case)


def test_the_variants_are_whole():
    assert len(INITIALIZERS) == 1879
    assert sum(bool(case.model.graph.initializer) for case in INITIALIZERS) >= 1863  # the rest has sequences only
    assert len(SYMBOLIC) == 1848
    assert len(WITHOUT_SHAPES) == len(INITIALIZERS)
