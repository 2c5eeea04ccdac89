"""The official ONNX backend test suite, unfiltered."""

import onnx.backend.test

import onnx_torch.backend

backend_test = onnx.backend.test.BackendTest(onnx_torch.backend.OnnxTorchBackend, __name__)
backend_test.enable_report()
globals().update(backend_test.test_cases)
