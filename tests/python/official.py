"""The official node cases, their variants, and a comparison stricter than the official runner's."""

from __future__ import annotations

import dataclasses
import functools
import warnings
from collections.abc import Callable
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import numpy_helper
from onnx.backend.test import BackendTest
from onnx.backend.test.case.node import collect_testcases

import onnx_torch.backend

# For tests that run wherever a device is.
DEVICES = [
    "CPU",
    pytest.param(
        "CUDA:0",
        marks=pytest.mark.skipif(not onnx_torch.backend.supports_device("CUDA:0"), reason="there is no CUDA device"),
    ),
]


@dataclasses.dataclass(frozen=True)
class Case:
    name: str
    model: onnx.ModelProto
    data_sets: list[tuple[list[Any], list[Any]]]
    rtol: float
    atol: float


def _array(item: Any) -> Any:
    return numpy_helper.to_array(item) if isinstance(item, onnx.TensorProto) else item


@functools.cache
def node_cases() -> list[Case]:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return [
            Case(
                case.name,
                case.model,
                [([_array(x) for x in xs], [_array(y) for y in ys]) for xs, ys in case.data_sets],
                case.rtol,
                case.atol,
            )
            for case in collect_testcases(None)
        ]


def _copy(model: onnx.ModelProto) -> onnx.ModelProto:
    copy = onnx.ModelProto()
    copy.CopyFrom(model)
    return copy


def with_initializers(case: Case) -> Case | None:
    """Each tensor input becomes an initializer, sequences and optionals stay; None where there is no input."""
    if not case.model.graph.input:
        return None
    ((inputs, outputs),) = case.data_sets
    model = _copy(case.model)
    kept, kept_values = [], []
    for info, value in zip(case.model.graph.input, inputs, strict=True):
        if info.type.HasField("tensor_type") and value is not None:
            array = np.asarray(value)
            array = array.astype(object) if array.dtype.kind in "US" else array
            tensor = numpy_helper.from_array(array, info.name)
            assert tensor.data_type == info.type.tensor_type.elem_type
            model.graph.initializer.append(tensor)
        else:
            kept.append(info)
            kept_values.append(value)
    del model.graph.input[:]
    model.graph.input.extend(kept)
    model.ir_version = max(model.ir_version, 4)  # before 4, an initializer had to be an input too
    return dataclasses.replace(case, model=model, data_sets=[(kept_values, outputs)])


def _dims(type_: onnx.TypeProto) -> list[onnx.TensorShapeProto.Dimension]:
    """The dimensions of a tensor, or of the tensors in a sequence or an optional."""
    if type_.HasField("sequence_type"):
        return _dims(type_.sequence_type.elem_type)
    if type_.HasField("optional_type"):
        return _dims(type_.optional_type.elem_type)
    return list(type_.tensor_type.shape.dim)


def with_symbolic_dims(case: Case) -> Case | None:
    """Each dimension of each input becomes symbolic; None where no input has one."""
    model = _copy(case.model)
    dims = [dim for info in model.graph.input for dim in _dims(info.type)]
    if not dims:
        return None
    for number, dim in enumerate(dims):
        dim.dim_param = f"d{number}"
    return dataclasses.replace(case, model=model)


def assert_same(expected: Any, actual: Any, rtol: float, atol: float) -> None:
    """Kind, length, shape, element type and values, through lists; the runner checks less of lists."""
    if expected is None:
        assert actual is None
    elif isinstance(expected, (list, tuple)):
        assert isinstance(actual, list), f"expected a list, got {type(actual).__name__}"
        assert len(actual) == len(expected)
        for one, other in zip(expected, actual, strict=True):
            assert_same(one, other, rtol, atol)
    else:
        expected = np.asarray(expected)
        assert isinstance(actual, np.ndarray)
        assert actual.shape == expected.shape
        if expected.dtype.kind in "OUS":
            assert actual.dtype == object
            np.testing.assert_array_equal(actual, expected)
            return
        assert actual.dtype == expected.dtype
        if expected.dtype.name == "bfloat16":
            rtol = max(rtol, 2**-6)  # as the runner has it: two units in the last place
        if expected.dtype.kind not in "biufc":  # what numpy itself cannot compare
            expected, actual = expected.astype(np.float32), actual.astype(np.float32)
        np.testing.assert_allclose(actual, expected, rtol=rtol, atol=atol)


# Nine official expectations that no honest backend can count on meeting, each with what is checked in their place.


def _check_bernoulli(case: Case, inputs: list[Any], outputs: list[Any]) -> None:
    """numpy's global generator, which the expectation was drawn from, is not part of the specification."""
    expected = case.data_sets[0][1][0]
    (drawn,) = outputs
    assert drawn.shape == expected.shape
    assert drawn.dtype == expected.dtype
    assert set(np.unique(drawn)) <= {0, 1}


def _check_sequence(case: Case, inputs: list[Any], outputs: list[Any]) -> None:
    """The runner takes the len() of a rank-0 array, an item of the expected sequence."""
    assert len(outputs) == len(case.data_sets[0][1])
    for expected, actual in zip(case.data_sets[0][1], outputs, strict=True):
        assert_same(expected, actual, case.rtol, case.atol)


def _check_inverse_dft(case: Case, inputs: list[Any], outputs: list[Any]) -> None:
    """Where the exact result is 0, the expectation is the rounding noise of numpy's complex64 transform."""
    signal = inputs[0] if inputs else numpy_helper.to_array(case.model.graph.initializer[0])
    node = next(node for node in case.model.graph.node if node.op_type == "DFT")
    axes = [a.i for a in node.attribute if a.name == "axis"]
    axis = axes[0] if axes else 1
    exact = np.fft.ifft(signal[..., 0].astype(np.float64) + 1j * signal[..., 1].astype(np.float64), axis=axis)
    (actual,) = outputs
    assert actual.dtype == np.float32
    np.testing.assert_allclose(actual, np.stack([exact.real, exact.imag], axis=-1), rtol=1e-5, atol=1e-6)


SUBSTITUTES: dict[str, Callable[[Case, list[Any], list[Any]], None]] = {
    "test_bernoulli": _check_bernoulli,
    "test_bernoulli_expanded": _check_bernoulli,
    "test_bernoulli_double": _check_bernoulli,
    "test_bernoulli_double_expanded": _check_bernoulli,
    "test_bernoulli_seed": _check_bernoulli,
    "test_bernoulli_seed_expanded": _check_bernoulli,
    "test_loop16_seq_none": _check_sequence,
    "test_dft_inverse": _check_inverse_dft,
    "test_dft_inverse_opset19": _check_inverse_dft,
}


def check(case: Case, run: Callable[[onnx.ModelProto], Callable[[list[Any]], Any]]) -> None:
    """Runs a case and compares, strictly; `run` prepares a model."""
    prepared = run(case.model)
    for inputs, expected in case.data_sets:
        outputs = list(prepared(inputs))
        substitute = SUBSTITUTES.get(case.name)
        if substitute:
            substitute(case, inputs, outputs)
        else:
            assert_same(list(expected), outputs, case.rtol, case.atol)


def suite(backend_test: BackendTest, prepare: Callable[..., Any]) -> dict[str, type]:
    """The official suite's test classes, with our check under the name of each case that the runner cannot compare."""
    classes = backend_test.test_cases
    cases = {case.name: case for case in node_cases()}
    nodes = classes["OnnxBackendNodeModelTest"]
    for name in SUBSTITUTES:
        for device in ("CPU", "CUDA"):
            test = f"{name}_{device.lower()}"
            setattr(nodes, test, _substitute(cases[name], device, prepare, getattr(nodes, test)))
    return classes


def _substitute(case: Case, device: str, prepare: Callable[..., Any], official: Any) -> Any:
    marks = [mark for mark in getattr(official, "pytestmark", []) if mark.name == "onnx_coverage"]

    def test(self: Any) -> None:
        for mark in marks:
            mark.args[0][0] = case.model  # as the official test does, for the coverage report
        check(case, lambda model: prepare(model, device).run)

    test.pytestmark = marks  # type: ignore[attr-defined]
    if not onnx_torch.backend.supports_device(device):
        return pytest.mark.skip(f"Backend doesn't support device {device}")(test)
    return test
