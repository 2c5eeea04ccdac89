"""The option `limits`: what a run takes too much of stops it, and nothing else."""

import pickle
import resource
import threading
import time
from pathlib import Path

import numpy as np
import pytest
import torch
from onnx import TensorProto, helper, numpy_helper

import onnx_torch
from models import model_of, op_model, tensor_info
from onnx_torch import InputError, StoppedError

FLOAT, INT64, BOOL = TensorProto.FLOAT, TensorProto.INT64, TensorProto.BOOL
TIMES = tensor_info("times", element=INT64, shape=[])
MANY = np.array(2**62)


def loop(nodes, result, carried=(), name="spin"):
    """A Loop over `times`; the last of its values is `result`, of the carried ones or collected."""
    keep = helper.make_node("Identity", ["more"], ["more_"])
    head = [tensor_info("i", element=INT64, shape=[]), tensor_info("more", element=BOOL, shape=[])]
    infos = [tensor_info(value, element=FLOAT) for value in carried]
    condition = tensor_info("more_" if nodes else "more", element=BOOL, shape=[])
    body = helper.make_graph(
        [keep, *nodes] if nodes else [], "body", [*head, *infos], [condition, tensor_info(result, element=FLOAT)]
    )
    made = helper.make_node("Loop", ["times", "", *carried], ["y"], name=name, body=body)
    return model_of([made], [TIMES, *(tensor_info(value, element=FLOAT) for value in carried)], ["y"])


def counting():
    return loop([helper.make_node("Neg", ["x"], ["x_"], name="inner")], "x_", ["x"])


def filling(name="fill"):
    """Zeros of the shape that comes in."""
    nodes = [helper.make_node("ConstantOfShape", ["shape"], ["zeros"], name=name)]
    return model_of(nodes, [tensor_info("shape", element=INT64, shape=[1])], ["zeros"])


def collecting():
    """A row of 1000 floats for each iteration."""
    row = numpy_helper.from_array(np.zeros(1000, np.float32), "row")
    model = loop([helper.make_node("Relu", ["row"], ["copy"])], "copy")
    model.graph.initializer.append(row)
    return model


@pytest.mark.parametrize("model", [counting(), loop([], "x", ["x"])], ids=["nodes in the body", "an empty body"])
def test_an_endless_loop_is_stopped(model):
    rep = onnx_torch.prepare(model, limits={"seconds": 0.3})
    start = time.perf_counter()
    with pytest.raises(StoppedError, match="longer than the 0.3 seconds that the option limits allows") as stopped:
        rep.run([MANY, np.float32([1])])
    assert time.perf_counter() - start < 5
    assert stopped.value.op_type in ("Loop", "Neg", "Identity")
    assert rep.run([np.array(4), np.float32([1])])[0].tolist() == [1]  # the model goes on


def test_one_huge_tensor_is_refused_before_it_is_touched():
    rep = onnx_torch.prepare(filling(), limits={"memory": 1e6})
    pages, most = Path("/proc/self/statm"), resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    before = int(pages.read_text().split()[0])
    for _ in range(20):
        with pytest.raises(StoppedError, match=r"needs 8589934592 more.* allows it 1000000 \(memory\)") as refused:
            rep.run([np.array([2**31])])
    assert (refused.value.op_type, refused.value.node_name) == ("ConstantOfShape", "fill")
    assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - most < 2**17  # KiB
    assert (int(pages.read_text().split()[0]) - before) * resource.getpagesize() < 2**33  # nothing leaked
    assert rep.run([np.array([3])])[0].tolist() == [0, 0, 0]


def test_memory_is_refused_bit_by_bit():
    rep = onnx_torch.prepare(collecting(), limits={"memory": 1e6})
    assert rep.run([np.array(100)])[0].shape == (100, 1000)
    with pytest.raises(StoppedError, match="the option limits allows it 1000000"):
        rep.run([np.array(1000)])


def test_what_is_freed_does_not_count():
    rep = onnx_torch.prepare(counting(), limits={"memory": 1e6})
    x = np.ones(50_000, np.float32)
    assert rep.run([np.array(100), x])[0].tolist() == x.tolist()


def test_weights_and_inputs_do_not_count():
    nodes = [helper.make_node("Add", ["x", "w"], ["s"]), helper.make_node("ReduceSum", ["s"], ["y"], keepdims=0)]
    weight = numpy_helper.from_array(np.ones(100_000, np.float32), "w")
    model = model_of(nodes, [tensor_info("x", element=FLOAT)], ["y"], initializer=[weight])
    rep = onnx_torch.prepare(model, limits={"memory": 500_000})
    for _ in range(5):
        assert rep.run([np.ones(100_000, np.float32)])[0] == 200_000


def test_a_profiled_run_is_limited_too():
    rep = onnx_torch.prepare(counting(), limits={"seconds": 0.3})
    assert rep.profile([np.array(3), np.float32([1])]).nodes
    with pytest.raises(StoppedError, match=r"0\.3 seconds"):
        rep.profile([MANY, np.float32([1])])


def test_a_node_that_fails_says_so_under_limits():
    rep = onnx_torch.prepare(op_model("Reshape", [np.ones(3, np.float32), np.array([2])]), limits={"seconds": 10})
    with pytest.raises(onnx_torch.RunError, match="Reshape") as failed:
        rep.run([np.ones(3, np.float32), np.array([2])])
    assert not isinstance(failed.value, StoppedError)


def test_runs_on_several_threads_have_limits_of_their_own():
    rep = onnx_torch.prepare(collecting(), limits={"memory": 600_000})
    results = []
    threads = [threading.Thread(target=lambda: results.append(rep.run([np.array(100)])[0].shape)) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert results == [(100, 1000)] * 4


def test_a_run_without_limits_has_no_trace_of_them():
    assert "check_run" not in onnx_torch.prepare(counting()).graph()
    limited = onnx_torch.prepare(counting(), limits={"seconds": 1})
    assert limited.graph().count("check_run") == 4  # three nodes and an iteration


def test_limits_are_kept_in_a_pickle():
    rep = pickle.loads(pickle.dumps(onnx_torch.prepare(filling(), limits={"memory": 1e6})))
    with pytest.raises(StoppedError):
        rep.run([np.array([2**31])])


@pytest.mark.parametrize(
    ("limits", "message"),
    [
        ({"second": 1}, 'no limit "second"; there are seconds and memory'),
        ({"seconds": 0}, "seconds of limits must be more than 0"),
        ({"memory": -1}, "memory of limits must be more than 0 bytes"),
        ({"memory": float("nan")}, "memory of limits must be more than 0 bytes"),
    ],
)
def test_limits_that_make_no_sense(limits, message):
    with pytest.raises(InputError, match=message):
        onnx_torch.prepare(filling(), limits=limits)


def test_memory_is_not_counted_beside_torchs_profiler():
    rep = onnx_torch.prepare(filling(), limits={"memory": 1e6})
    with torch.profiler.profile(), pytest.raises(onnx_torch.RunError, match="profiler is on in this thread"):
        rep.run([np.array([2])])
    assert rep.run([np.array([2])])[0].tolist() == [0, 0]
