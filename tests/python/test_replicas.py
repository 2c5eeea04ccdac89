"""`OnnxTorchRep.replica`, and weights that are on a device once."""

from __future__ import annotations

import gc
import pickle
import threading
from pathlib import Path

import numpy as np
import onnx
import pytest
import torch
from onnx import numpy_helper, parser

import onnx_torch
from pass_models import assert_close
from pretended_cuda import PretendedCuda
from random_numbers import RNG

X = np.random.default_rng(0).standard_normal((2, 64)).astype(np.float32)
pretended = pytest.mark.skipif(torch.cuda.is_available(), reason="a CUDA device is there")


def model() -> onnx.ModelProto:
    """Makes two products of matrices."""
    source = parser.parse_model(
        """<ir_version: 10, opset_import: ["": 21]> net (float[N, 64] x) => (float[N, 64] y)
           { a = MatMul(x, v) b = Relu(a) y = MatMul(b, w) }"""
    )
    for name in "vw":
        source.graph.initializer.append(numpy_helper.from_array(RNG.standard_normal((64, 64)).astype(np.float32), name))
    return source


def expected(source: onnx.ModelProto) -> np.ndarray:
    v, w = (numpy_helper.to_array(tensor) for tensor in source.graph.initializer)
    return np.maximum(X.astype(np.float64) @ v, 0) @ w


def test_it_has_the_options_of_the_first_but_for_those_given() -> None:
    source = model()
    rep = onnx_torch.prepare(source, threads=1, disabled_passes=["pack"])
    replica = rep.replica(optimize=False)
    assert replica.options == {**rep.options, "optimize": False}
    assert_close(replica.run([X])[0], expected(source))
    assert "aten::relu" in replica.graph() and rep.replica().graph() == rep.graph()


def test_options_that_are_not_there_are_an_error() -> None:
    rep = onnx_torch.prepare(model())
    with pytest.raises(TypeError, match=r"replica\(\) takes no option 'base_dir', 'fast'"):
        rep.replica(fast=True, base_dir="here")
    with pytest.raises(onnx_torch.InputError, match='there is no pass "none"'):
        rep.replica(disabled_passes=["none"])


@pytest.mark.parametrize("kind", ["path", "bytes", "saved"])
def test_it_pickles(kind: str, tmp_path: Path) -> None:
    source, file = model(), str(tmp_path / "model.onnx")
    onnx.save(source, file)
    rep = onnx_torch.prepare(file if kind == "path" else source)
    if kind == "saved":
        rep.save(tmp_path / "model.saved")
        rep = onnx_torch.load(tmp_path / "model.saved")
    again = pickle.loads(pickle.dumps(rep.replica(threads=1)))
    assert again.options["threads"] == 1
    assert_close(again.run([X])[0], expected(source))


@pretended
def test_weights_are_on_a_device_once() -> None:
    source = model()
    with PretendedCuda(2) as device:
        rep = onnx_torch.prepare(source, "CUDA:0", optimize=False)
        assert device.copies["to cuda:0"] == 2
        replica = rep.replica()
        assert device.copies["to cuda:0"] == 2
        values = [r.run([X])[0] for r in (rep, replica)]
        copies = device.copies["to cuda:0"]  # and X, each time
        inner = rep.run([X], output_names=["b"])[0]
        assert device.copies["to cuda:0"] == copies + 1  # of X
        other = rep.replica("CUDA:1")
        assert device.copies["to cuda:1"] == 2
        values.append(other.run([X])[0])
    for value in values:
        assert_close(value, expected(source))
    assert inner.shape == (2, 64)


@pretended
def test_they_go_with_the_last_that_needs_them() -> None:
    with PretendedCuda() as device:
        rep = onnx_torch.prepare(model(), "CUDA:0", optimize=False)
        replica = rep.replica()
        on_cpu = rep.replica("CPU")
        del rep
        gc.collect()
        replica.replica()
        assert device.copies["to cuda:0"] == 2
        del replica
        gc.collect()
        on_cpu.replica("CUDA:0")
        assert device.copies["to cuda:0"] == 4


@pretended
def test_initializers_of_one_name_in_two_branches_are_two() -> None:
    source = parser.parse_model(
        """<ir_version: 10, opset_import: ["": 21]> net (float[2] x, bool c) => (float[2] y)
           { y = If(c) <then_branch = t () => (float[2] s) <float[2] w = {1, 2}> { s = Add(x, w) },
                        else_branch = e () => (float[2] d) <float[2] w = {3, 4}> { d = Add(x, w) }> }"""
    )
    with PretendedCuda():
        rep = onnx_torch.prepare(source, "CUDA:0", optimize=False)
        for condition, w in [(True, [1, 2]), (False, [3, 4])]:
            (y,) = rep.run([np.zeros(2, np.float32), np.array(condition)])
            np.testing.assert_array_equal(y, np.float32(w))


@pytest.mark.skipif(torch.cuda.device_count() < 2, reason="there are not two CUDA devices")
def test_replicas_on_all_devices_run_side_by_side() -> None:
    source = model()
    first = onnx_torch.prepare(source, "CUDA:0")
    reps = [first, *(first.replica(f"CUDA:{i}") for i in range(1, torch.cuda.device_count()))]
    results: dict[int, np.ndarray] = {}

    def run(i: int) -> None:
        for _ in range(50):
            results[i] = reps[i].run([X])[0]

    threads = [threading.Thread(target=run, args=[i]) for i in range(len(reps))]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    for value in results.values():
        assert_close(value, expected(source))
    assert len(results) == len(reps)


@pytest.mark.skipif(not torch.cuda.is_available(), reason="no CUDA device")
def test_a_replica_takes_no_memory_for_weights() -> None:
    source = parser.parse_model(
        '<ir_version: 10, opset_import: ["": 21]> net (float[N, 2048] x) => (float[N, 2048] y) { y = MatMul(x, w) }'
    )
    source.graph.initializer.append(numpy_helper.from_array(np.ones((2048, 2048), np.float32), "w"))
    rep = onnx_torch.prepare(source, "CUDA:0", optimize=False)
    before = torch.cuda.memory_allocated()
    replica = rep.replica()
    assert torch.cuda.memory_allocated() - before < 1 << 20
    assert replica.options == rep.options
