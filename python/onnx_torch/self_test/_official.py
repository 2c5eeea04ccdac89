"""ONNX's own backend suite, from the installed onnx package, and a comparison that is stricter than its runner's.

The project's tests use this module, too. It needs no test framework but unittest, which the suite's runner uses.
"""

from __future__ import annotations

import contextlib
import dataclasses
import functools
import os
import tempfile
import time
import unittest
import warnings
from collections import Counter
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import onnx
from onnx import numpy_helper
from onnx.backend.test import BackendTest
from onnx.backend.test.case.node import collect_testcases

from .._progress import Progress
from ..backend import OnnxTorchBackend, OnnxTorchRep
from .results import Failure, Part


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
        found: list[Any] = collect_testcases(None)
        return [
            Case(
                case.name,
                case.model,
                [([_array(x) for x in xs], [_array(y) for y in ys]) for xs, ys in case.data_sets],
                case.rtol,
                case.atol,
            )
            for case in found
        ]


def _require(holds: bool, otherwise: str) -> None:
    """Asserts something even where Python leaves assert statements out."""
    if not holds:
        raise AssertionError(otherwise)


def assert_same(expected: Any, actual: Any, rtol: float, atol: float) -> None:
    """Compares kind, length, shape, element type and values, through lists, of which the runner checks less."""
    if expected is None:
        _require(actual is None, f"expected nothing, got {type(actual).__name__}")
    elif isinstance(expected, (list, tuple)):
        _require(isinstance(actual, list), f"expected a list, got {type(actual).__name__}")
        _require(len(actual) == len(expected), f"expected {len(expected)} values, got {len(actual)}")
        for one, other in zip(expected, actual, strict=True):
            assert_same(one, other, rtol, atol)
    else:
        expected = np.asarray(expected)
        _require(isinstance(actual, np.ndarray), f"expected an array, got {type(actual).__name__}")
        _require(actual.shape == expected.shape, f"expected the shape {expected.shape}, got {actual.shape}")
        if expected.dtype.kind in "OUS":
            _require(actual.dtype == object, f"expected strings, got {actual.dtype}")
            np.testing.assert_array_equal(actual, expected)
            return
        _require(actual.dtype == expected.dtype, f"expected {expected.dtype}, got {actual.dtype}")
        if expected.dtype.name == "bfloat16":
            rtol = max(rtol, 2**-6)  # the runner allows it, too: two units in the last place
        if expected.dtype.kind not in "biufc":  # numpy itself cannot compare them
            expected, actual = expected.astype(np.float32), actual.astype(np.float32)
        np.testing.assert_allclose(actual, expected, rtol=rtol, atol=atol)


# Nine official expectations that no honest backend can count on meeting, each with a check in its place.


def _check_bernoulli(case: Case, inputs: list[Any], outputs: list[Any]) -> None:
    """Checks draws by shape, type and range, as those of numpy's global generator are not part of the specification."""
    expected = case.data_sets[0][1][0]
    (drawn,) = outputs
    _require(drawn.shape == expected.shape, f"expected the shape {expected.shape}, got {drawn.shape}")
    _require(drawn.dtype == expected.dtype, f"expected {expected.dtype}, got {drawn.dtype}")
    _require(set(np.unique(drawn)) <= {0, 1}, "there are numbers among the draws that are neither 0 nor 1")


def _check_sequence(case: Case, inputs: list[Any], outputs: list[Any]) -> None:
    """Compares a sequence, where the runner would take the len() of a rank-0 array, an item of the expected one."""
    assert_same(list(case.data_sets[0][1]), outputs, case.rtol, case.atol)


def _check_inverse_dft(case: Case, inputs: list[Any], outputs: list[Any]) -> None:
    """Compares with a transform in float64: where that is 0, the expectation has the noise of numpy's complex64 one."""
    signal = inputs[0] if inputs else numpy_helper.to_array(case.model.graph.initializer[0])
    node = next(node for node in case.model.graph.node if node.op_type == "DFT")
    axes = [a.i for a in node.attribute if a.name == "axis"]
    axis = axes[0] if axes else 1
    exact = np.fft.ifft(signal[..., 0].astype(np.float64) + 1j * signal[..., 1].astype(np.float64), axis=axis)
    (actual,) = outputs
    _require(actual.dtype == np.float32, f"expected float32, got {actual.dtype}")
    np.testing.assert_allclose(actual, np.stack([exact.real, exact.imag], axis=-1), rtol=1e-5, atol=1e-6)


Check = Callable[[Case, list[Any], list[Any]], None]

SUBSTITUTES: dict[str, Check] = {
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

# The official expectation in each of these cases, and the check in its place.
REASONS: dict[Check, str] = {
    _check_bernoulli: "expects numpy's global random stream; checked: shape, type, and that each draw is 0 or 1",
    _check_sequence: "expects a length that the runner cannot take; checked: the sequence, element by element",
    _check_inverse_dft: "expects the rounding noise of a numpy transform; checked: against the transform in float64",
}


def check(case: Case, run: Callable[[onnx.ModelProto], Callable[[list[Any]], Any]]) -> None:
    """Runs a case and compares strictly; `run` prepares a model."""
    prepared = run(case.model)
    for inputs, expected in case.data_sets:
        outputs = list(prepared(inputs))
        substitute = SUBSTITUTES.get(case.name)
        if substitute:
            substitute(case, inputs, outputs)
        else:
            assert_same(list(expected), outputs, case.rtol, case.atol)


def suite(backend_test: BackendTest, prepare: Callable[..., Any]) -> dict[str, type[unittest.TestCase]]:
    """Returns the official suite's test classes, with our check for each case that the runner cannot compare."""
    classes: dict[str, type[unittest.TestCase]] = backend_test.test_cases
    cases = {case.name: case for case in node_cases()}
    nodes = classes["OnnxBackendNodeModelTest"]
    for name in SUBSTITUTES:
        for device in ("CPU", "CUDA"):
            test = f"{name}_{device.lower()}"
            if hasattr(nodes, test):  # another release of onnx may lack it
                setattr(nodes, test, _substitute(cases[name], device, prepare, getattr(nodes, test), backend_test))
    return classes


def _substitute(
    case: Case, device: str, prepare: Callable[..., Any], official: Any, backend_test: BackendTest
) -> Callable[[Any], None]:
    marks = [mark for mark in getattr(official, "pytestmark", []) if mark.name == "onnx_coverage"]

    def test(self: Any) -> None:
        for mark in marks:
            mark.args[0][0] = case.model  # the official test does so for the coverage report
        check(case, lambda model: prepare(model, device).run)

    test.pytestmark = marks  # type: ignore[attr-defined]
    there = backend_test.backend.supports_device(device)
    return unittest.skipIf(not there, f"Backend doesn't support device {device}")(test)


# The following runs the suite by itself, without pytest.


def run_suite(device: str, every: int = 1, progress: Progress | None = None) -> Part:
    """Runs the suite on a device; of its node cases, in the order of their names, only one of each `every`."""
    start = time.perf_counter()
    kind = device.partition(":")[0].lower()
    failures = []
    with _quiet(), _models_elsewhere():
        backend_test = BackendTest(_backend_for(device))
        tests = _chosen(suite(backend_test, backend_test.backend.prepare), f"_{kind}", every)
        for number, test in enumerate(tests, 1):
            failures += _failures(test, kind)
            if progress:
                progress(number, len(tests))
    names = [test._testMethodName.removesuffix(f"_{kind}") for test in tests]
    left_out = (f"of its node cases every {every}th alone",) if every > 1 else ()
    notes = (*left_out, *_notes(names))
    return Part("ONNX's backend suite", len(tests), time.perf_counter() - start, tuple(failures), notes)


def _backend_for(device: str) -> type[OnnxTorchBackend]:
    """Makes a backend with its device given, as the runner knows of "CPU" and "CUDA" alone.

    A model that cannot be prepared is a failure with it. The runner would ask first, and count a no as passed.
    """

    class BackendOfOneDevice(OnnxTorchBackend):
        @classmethod
        def prepare(cls, model: Any, kind: Any = "CPU", **options: Any) -> OnnxTorchRep:  # type: ignore[override]
            return OnnxTorchBackend.prepare(model, device, **options)

        @classmethod
        def supports_device(cls, asked: str) -> bool:
            return asked.upper() == device.partition(":")[0].upper()

        @classmethod
        def is_compatible(cls, *_: Any, **__: Any) -> bool:
            return True

    return BackendOfOneDevice


def _chosen(classes: dict[str, type[unittest.TestCase]], suffix: str, every: int) -> list[Any]:
    chosen = []
    for kind, cls in sorted(classes.items()):
        names = [name for name in unittest.defaultTestLoader.getTestCaseNames(cls) if name.endswith(suffix)]
        chosen += [cls(name) for name in names[:: every if "Node" in kind else 1]]
    return chosen


def _failures(test: Any, kind: str) -> list[Failure]:
    """Runs a case; returns nothing, or one failure, also where the runner would leave the case out."""
    name = test._testMethodName
    try:
        getattr(test, name)()
    except unittest.SkipTest as skipped:
        return [Failure(name.removesuffix(f"_{kind}"), f"was not run: {skipped}")]
    except Exception as error:
        return [Failure.of(name.removesuffix(f"_{kind}"), error)]
    return []


def _notes(names: list[str]) -> tuple[str, ...]:
    replaced = Counter(REASONS[SUBSTITUTES[name]] for name in names if name in SUBSTITUTES)
    return tuple(f"{count} of these: {why}" for why, count in replaced.items())


@contextlib.contextmanager
def _quiet() -> Iterator[None]:
    """Silences warnings of models that are odd on purpose, and of the arithmetic of their expectations."""
    with warnings.catch_warnings(), np.errstate(all="ignore"):
        warnings.simplefilter("ignore")
        yield


@contextlib.contextmanager
def _models_elsewhere() -> Iterator[None]:
    """Has the suite unpack its models in a folder that is removed afterwards, and not in the user's home."""
    before = os.environ.get("ONNX_HOME")
    with tempfile.TemporaryDirectory(prefix="onnx_torch_selftest_") as folder:
        os.environ["ONNX_HOME"] = folder
        try:
            yield
        finally:
            if before is None:
                del os.environ["ONNX_HOME"]
            else:
                os.environ["ONNX_HOME"] = before
