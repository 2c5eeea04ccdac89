"""The official suite once more, with no pass at work: it tests what the translators mean, by themselves."""

import onnx.backend.test

import onnx_torch
from official import node_cases, suite


def prepare(model, device="CPU", **options):
    return onnx_torch.prepare(model, device, optimize=False, **options)


class PlainBackend(onnx_torch.backend.OnnxTorchBackend):
    prepare = staticmethod(prepare)


test_cases = suite(onnx.backend.test.BackendTest(PlainBackend, __name__), prepare)
globals().update({name.replace("OnnxBackend", "PlainBackend"): tests for name, tests in test_cases.items()})


def test_no_pass_is_at_work():
    assert list(PlainBackend.prepare(node_cases()[0].model).graphs()) == ["translate", "place"]
