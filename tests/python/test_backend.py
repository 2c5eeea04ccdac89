"""The official ONNX backend test suite, all 2,033 tests of the CPU, on the official runner.

Nine of them are by a check of our own, which runs under the test's name in place of the official comparison. They
expect what no specification gives: numpy's random stream (six), the rounding noise of a numpy transform (two), and a
length that the runner cannot take (one). SUBSTITUTES in onnx_torch/self_test/_official.py has the checks;
test_bernoulli.py and test_variants.py test the same operators further.
"""

import dataclasses
import pathlib

import onnx
import onnx.backend.test
import onnx.backend.test.loader
import pytest

import onnx_torch.backend
from official import SUBSTITUTES, check, node_cases, suite

backend_test = onnx.backend.test.BackendTest(onnx_torch.backend.OnnxTorchBackend, __name__)
backend_test.enable_report()
test_cases = suite(backend_test, onnx_torch.prepare)
globals().update(test_cases)

CASES = {case.name: case for case in node_cases()}


def test_the_suite_is_whole():
    names = [name for cls in test_cases.values() for name in dir(cls) if name.startswith("test_")]
    assert len([name for name in names if name.endswith("_cpu")]) == 2033
    assert len([name for name in names if name.endswith("_cuda")]) == 2033
    assert len(SUBSTITUTES) == 9
    assert len(CASES) + len(_MODEL_FILES) == 2033


@pytest.mark.parametrize("case", CASES.values(), ids=lambda case: case.name)
def test_is_compatible(case):
    assert onnx_torch.backend.is_compatible(case.model)


# The runner first asks whether it may run a model that is not a single node, and counts a no as a pass.
_MODEL_FILES = sorted(pathlib.Path(onnx.__file__).parent.glob("backend/test/data/light/*.onnx")) + [
    pathlib.Path(case.model_dir) / "model.onnx"
    for kind in ("simple", "pytorch-converted", "pytorch-operator")
    for case in onnx.backend.test.loader.load_model_tests(kind=kind)
]


@pytest.mark.parametrize("path", _MODEL_FILES, ids=lambda path: path.parent.name + "/" + path.name)
def test_is_compatible_with_model_files(path):
    assert onnx_torch.backend.is_compatible(path)


_LISTS = [case for case in CASES.values() if any(isinstance(y, list) for _, ys in case.data_sets for y in ys)]


# The runner loops over the backend's own list, so that an empty one would pass.
@pytest.mark.parametrize("case", _LISTS, ids=lambda case: case.name)
def test_list_outputs(case):
    check(case, lambda model: onnx_torch.prepare(model).run)


def test_the_check_can_fail():
    """A changed expectation is not met."""
    data_sets = [(xs, [ys[0] + 1]) for xs, ys in CASES["test_add"].data_sets]
    case = dataclasses.replace(CASES["test_add"], data_sets=data_sets)
    with pytest.raises(AssertionError):
        check(case, lambda model: onnx_torch.prepare(model).run)
