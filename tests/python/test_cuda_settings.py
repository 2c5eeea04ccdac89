"""The settings of torch that a run on CUDA makes, seen by an operator in a run on a device that is pretended."""

import threading

import numpy as np
import pytest
import torch
from onnx import TensorProto, helper

import onnx_torch
from pretended_cuda import PretendedCuda

NAMES = ["cudnn.conv", "cudnn.rnn", "cuda.matmul"]
seen = []
within = []  # functions that the operator calls


def in_tf32():
    backends = torch.backends
    return [each.fp32_precision == "tf32" for each in (backends.cudnn.conv, backends.cudnn.rnn, backends.cuda.matmul)]


def look(x):
    while within:
        within.pop()()
    seen.append(in_tf32())
    return x.clone()


library = torch.library.Library("tf32_test", "DEF")
library.define("look(Tensor x) -> Tensor")
for _device in ("CPU", "CUDA"):
    library.impl("look", look, _device)
onnx_torch.register_op("tf32.test", "Look", "tf32_test::look")


def prepare(device="CUDA:0", **options):
    x, y = (helper.make_tensor_value_info(name, TensorProto.FLOAT, [2]) for name in "xy")
    graph = helper.make_graph([helper.make_node("Look", ["x"], ["y"], domain="tf32.test")], "net", [x, y][:1], [y])
    opsets = [helper.make_opsetid("", 21), helper.make_opsetid("tf32.test", 1)]
    rep = onnx_torch.prepare(helper.make_model(graph, opset_imports=opsets), device, **options)
    return lambda: rep.run([np.zeros(2, np.float32)])


@pytest.fixture(autouse=True)
def settings():
    """Puts back what a test sets, and forgets what was seen."""
    backends = torch.backends
    places = [backends.cudnn.conv, backends.cudnn.rnn, backends.cuda.matmul]
    before = [place.fp32_precision for place in places]
    seen.clear()
    within.clear()
    yield places
    for place, precision in zip(places, before, strict=True):
        place.fp32_precision = precision


@pytest.mark.parametrize("process", ["ieee", "tf32", "as torch has it"])
@pytest.mark.parametrize("tf32", [False, True])
def test_a_run_is_as_asked_and_leaves_the_process_as_it_was(settings, tf32, process):
    if process != "as torch has it":
        for place in settings:
            place.fp32_precision = process
    before = [place.fp32_precision for place in settings]
    with PretendedCuda():
        prepare(tf32=tf32)()
    assert seen == [[tf32] * 3]
    assert [place.fp32_precision for place in settings] == before


def test_not_in_tf32_unless_asked():
    with PretendedCuda():
        prepare()()
    assert seen == [[False] * 3]


@pytest.mark.parametrize("enabled", [False, True])
def test_a_run_leaves_attention_to_others_than_cudnn(enabled):
    cuda = torch.backends.cuda
    before, found = cuda.cudnn_sdp_enabled(), []
    try:
        cuda.enable_cudnn_sdp(enabled)
        within.append(lambda: found.append(cuda.cudnn_sdp_enabled()))
        with PretendedCuda():
            prepare()()
        assert found == [False]
        assert cuda.cudnn_sdp_enabled() == enabled
    finally:
        cuda.enable_cudnn_sdp(before)


def test_a_run_on_the_cpu_sets_nothing():
    prepare("CPU", tf32=True)()
    assert seen == [in_tf32()]


@pytest.mark.parametrize("outer", [False, True])
def test_a_run_within_a_run(outer):
    before = in_tf32()
    with PretendedCuda():
        inner = prepare(tf32=not outer)

        def run_inner():
            with PretendedCuda():
                inner()
            seen.append(in_tf32())

        within.append(run_inner)
        prepare(tf32=outer)()
    assert seen == [[not outer] * 3, [outer] * 3, [outer] * 3]
    assert in_tf32() == before


def test_a_run_that_fails_puts_it_back():
    def fail():
        raise ValueError("no")

    before = in_tf32()
    within.append(fail)
    with PretendedCuda(), pytest.raises(onnx_torch.RunError, match="ValueError: no"):
        prepare(tf32=True)()
    assert in_tf32() == before


def test_runs_that_overlap():
    """The first run ends while the second one goes on."""
    before = in_tf32()
    second_is_in, first_is_over = threading.Event(), threading.Event()

    def second():
        within.append(lambda: (second_is_in.set(), first_is_over.wait(10)))
        with PretendedCuda():
            run_second()

    with PretendedCuda():
        run_first, run_second = prepare(tf32=True), prepare(tf32=True)
        thread = threading.Thread(target=second)
        within.append(lambda: (thread.start(), second_is_in.wait(10)))
        run_first()
        assert in_tf32() == [True] * 3
        first_is_over.set()
        thread.join()
    assert seen == [[True] * 3] * 2
    assert in_tf32() == before
