"""The self-test: it passes here, and it can fail."""

import re
import subprocess
import sys
import threading
from types import SimpleNamespace

import numpy as np
import pytest
import torch

import onnx_torch
import onnx_torch_cli
from onnx_torch import PreparedModel
from onnx_torch.backend import OnnxTorchBackend
from onnx_torch.self_test import _machine, _official, _samples
from onnx_torch.self_test.results import Failure, Part, SelfTest
from pass_models import TAKES_GELU

SAMPLES = [*_samples.operator_samples(), *_samples.composed_samples(), *_samples.narrow_samples()]
SEVERAL_FOLD = 300  # of the suite's node cases, one of so many


@pytest.fixture
def spoil(monkeypatch):
    """Makes runs of chosen models give a result whose first element is wrong."""

    def install(chosen):
        run = PreparedModel.run

        def spoiled(self, *arguments, **options):
            outputs = run(self, *arguments, **options)
            if chosen(self):
                np.asarray(outputs[0]).flat[0] += 0.01
            return outputs

        monkeypatch.setattr(PreparedModel, "run", spoiled)

    return install


def is_packed(rep):
    return "onnx_torch::packed" in rep.graph()


def test_all_is_well_here():
    told = {}

    def progress(name):
        return lambda done, of: told.update({name: (done, of)})

    found = onnx_torch.selftest(quick=True, progress=progress)
    assert found, str(found)
    assert found.failures == [] and found.passed == found.all > 800
    assert told == {part.name: (part.all, part.all) for part in found.parts if part.name != "threads"} | {
        "threads": (_samples.THREADS * _samples.TURNS,) * 2
    }
    text = str(found)
    assert re.search(r"^CPU  .+ processors$", text, re.M)
    assert re.search(rf"^onnx_torch +{re.escape(onnx_torch.__version__)} ", text, re.M)
    assert found.parts[0].notes[0] == "of its node cases every 8th alone"
    assert f"ONNX's backend suite: {found.parts[0].all} of {found.parts[0].all} passed" in text
    assert text.splitlines()[-1].startswith(f"all is well: {found.all} of {found.all} passed on CPU")
    ways = dict(found.ways)
    assert ways["Gemm + Gelu (float)"] == ("packed Float" if TAKES_GELU else "packed Float, chain")
    assert ways["chain of twelve operators (float)"] == "chain"


def test_the_whole_suite_is_run_unless_in_a_hurry():
    classes = _official.suite(_official.BackendTest(_official._backend_for("CPU")), onnx_torch.prepare)
    assert len(_official._chosen(classes, "_cpu", 1)) == 2033
    assert len(_official._chosen(classes, "_cpu", 8)) == -(-1884 // 8) + 2033 - 1884


def test_cases_that_are_checked_in_another_way_are_told():
    names = [*_official.SUBSTITUTES, "test_add"]
    notes = _official._notes(names)
    assert [note.split(":")[0] for note in notes] == ["6 of these", "1 of these", "2 of these"]
    assert "random" in notes[0] and "noise" in notes[2]
    assert _official._notes(["test_add"]) == ()


@pytest.mark.parametrize("chosen", SAMPLES, ids=lambda chosen: _samples.label(*chosen))
def test_the_check_of_a_sample_can_fail(chosen):
    sample, element = chosen
    expected = sample.expected(element)
    dtype = _samples._dtype(element) if _samples._is_float(expected.dtype) else expected.dtype
    right = expected.astype(dtype)
    sample.check(element, right, expected)
    wrong = right.copy()
    largest = np.abs(expected.astype(np.float64)).argmax()
    value = wrong.flat[largest]
    wrong.flat[largest] = value ^ dtype.type(1) if dtype.kind in "biu" else value * dtype.type(1.125)
    with pytest.raises(AssertionError):
        sample.check(element, wrong, expected)
    for other in (right.ravel()[:-1], np.zeros(right.shape, np.int16)):
        with pytest.raises(AssertionError, match="^expected "):
            sample.check(element, other, expected)


def test_nan_and_infinity_are_no_small_differences():
    sample = _samples.Sample("any", "y = Relu (x)")
    exact = np.array([1.0, np.inf, np.nan, 2.0])
    sample.check("float", exact.astype(np.float32), exact)
    for place, value in ((0, np.nan), (0, np.inf), (1, 5.0), (1, -np.inf), (2, 0.0)):
        found = exact.astype(np.float32)
        found[place] = value
        with pytest.raises(AssertionError, match="1 of 4 elements differ"):
            sample.check("float", found, exact)


def test_a_wrong_kernel_is_named(spoil):
    spoil(is_packed)
    part, ways = _samples.run_samples("packed", _samples.composed_samples(), "CPU")
    packed = [name for name, way in ways if "packed" in way]
    assert [failure.case for failure in part.failures] == packed and len(packed) > 5
    assert part.passed == part.all - len(packed)
    for failure in part.failures:
        assert failure.largest == pytest.approx(0.01, rel=1e-4)  # sums have an error of their own besides


def test_a_wrong_result_of_the_suite_is_named(spoil):
    spoil(lambda rep: [operator for operator, *_ in rep._prepared.nodes] == ["Relu"])
    part = _official.run_suite("CPU", SEVERAL_FOLD)
    assert {failure.case for failure in part.failures} == {"test_ReLU", "test_single_relu_model"}  # which always run
    assert [failure.largest for failure in part.failures] == pytest.approx([0.01, 0.01], rel=1e-4)


def test_models_that_cannot_be_prepared_have_failed(monkeypatch):
    def refuse(*_, **__):
        raise onnx_torch.UnsupportedError("Frob: no such operator")

    monkeypatch.setattr(OnnxTorchBackend, "prepare", refuse)
    part = _official.run_suite("CPU", SEVERAL_FOLD)
    assert part.passed == 0
    assert {failure.why for failure in part.failures} == {"UnsupportedError: Frob: no such operator"}


def test_an_error_in_a_run_is_a_failure(monkeypatch):
    def fail(self, *_, **__):
        raise onnx_torch.RunError("Conv: out of luck", op_type="Conv")

    monkeypatch.setattr(PreparedModel, "run", fail)
    part, _ = _samples.run_samples("packed", _samples.composed_samples()[:2], "CPU")
    assert [failure.why for failure in part.failures] == ["RunError: Conv: out of luck"] * 2
    threads = _samples.run_threads("CPU")
    assert threads.passed == 0


def test_a_result_that_depends_on_the_thread_is_found(spoil):
    main = threading.get_ident()
    spoil(lambda rep: is_packed(rep) and threading.get_ident() != main)
    failed = {failure.case for failure in _samples.run_threads("CPU").failures}
    assert "Gemm + Gelu" in failed and "LSTM" not in failed


def test_the_command_fails_where_something_is_wrong(spoil, monkeypatch, capfd):
    spoil(is_packed)
    monkeypatch.setattr(_official, "run_suite", lambda *_: Part("ONNX's backend suite", 1, 0.0))
    monkeypatch.setattr(sys, "argv", ["onnx-torch", "selftest", "--quick"])
    with pytest.raises(SystemExit) as end:
        onnx_torch_cli.main()
    assert end.value.code == 1
    out = capfd.readouterr().out
    assert re.search(r"^  convolution \+ bias \+ Relu \(float\) \(largest difference 0\.01\): 1 of ", out, re.M)
    assert re.search(r"^\d+ FAILED: \d+ of \d+ passed on CPU", out, re.M)


def test_a_long_list_of_failures_is_cut():
    failures = tuple(Failure(f"test_{number}", "no") for number in range(30))
    text = str(SelfTest("CPU", (("CPU", "one"),), parts=(Part("suite", 40, 1.0, failures),)))
    assert "test_19: no" in text and "test_20" not in text and "and 10 more" in text
    assert text.endswith("30 FAILED: 10 of 40 passed on CPU in 1 s")


def test_it_needs_no_test_framework():
    script = f"""
import sys
for name in ("pytest", "PIL", "tabulate"):
    sys.modules[name] = None  # to import it is an error
import numpy as np
from onnx_torch.self_test import _official
part = _official.run_suite("CPU", {SEVERAL_FOLD})
if part.failures:
    sys.exit(str(part.failures))
try:
    _official.assert_same(np.zeros(2), np.zeros(3), 0, 0)
except AssertionError:
    sys.exit(0)
sys.exit("a shape is not compared")
"""
    subprocess.run([sys.executable, "-O", "-c", script], check=True)


def test_a_gpu_is_described(monkeypatch):
    properties = SimpleNamespace(name="Some GPU", major=9, minor=0, total_memory=80 * 2**30)
    monkeypatch.setattr(torch.cuda, "get_device_properties", lambda index: properties)
    monkeypatch.setattr(_machine, "driver", lambda: "580.1")
    rows = dict(_machine.machine_rows("cuda:0"))
    assert rows["GPU"] == f"Some GPU, compute capability 9.0, 80 GiB, driver 580.1, CUDA {torch.version.cuda}"
    assert "GPU" not in dict(_machine.machine_rows("CPU"))
