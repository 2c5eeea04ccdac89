"""The needs of a process that lives long: memory stays flat, and the same inputs give the same bits."""

import contextlib
import ctypes
import gc
import os
import subprocess
import sys
import threading

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper, parser

import fault_models
import onnx_torch
from models import model_of, tensor_info

FLOAT = TensorProto.FLOAT
RUNS, PREPARED, FAILED = 10_000, 500, 1_000
SPARE = 16_384  # bytes that caches of the allocator and of Python may take yet, however often


def random(*shape):
    return np.random.default_rng(0).standard_normal(shape).astype(np.float32)


def weights(**arrays):
    return [numpy_helper.from_array(array, name) for name, array in arrays.items()]


def convolution():
    nodes = [
        helper.make_node("Conv", ["x", "w"], ["c"], pads=[1, 1, 1, 1]),
        helper.make_node("Relu", ["c"], ["r"]),
        helper.make_node("GlobalAveragePool", ["r"], ["y"]),
    ]
    x = tensor_info("x", element=FLOAT, shape=["N", 8, None, None])
    return model_of(nodes, [x], ["y"], initializer=weights(w=random(16, 8, 3, 3))), [random(2, 8, 20, 20)]


def perceptron():
    nodes = [
        helper.make_node("Gemm", ["x", "v", "b"], ["g"]),
        helper.make_node("Gelu", ["g"], ["r"]),
        helper.make_node("MatMul", ["r", "w"], ["m"]),
        helper.make_node("Softmax", ["m"], ["y"]),
    ]
    held = weights(v=random(64, 128), b=random(128), w=random(128, 64))
    return model_of(nodes, [tensor_info("x", element=FLOAT, shape=["N", 64])], ["y"], initializer=held), [
        random(37, 64)
    ]


def recurrent():
    node = helper.make_node("LSTM", ["x", "w", "r"], ["y"], hidden_size=16)
    held = weights(w=random(1, 64, 8), r=random(1, 64, 16))
    return model_of([node], [tensor_info("x", element=FLOAT, shape=["T", "N", 8])], ["y"], initializer=held), [
        random(9, 3, 8)
    ]


def attention():
    node = helper.make_node("Attention", ["q", "q", "q"], ["y"], q_num_heads=4, kv_num_heads=4, is_causal=1)
    return model_of([node], [tensor_info("q", element=FLOAT, shape=["N", "T", 64])], ["y"]), [random(2, 33, 64)]


def loop():
    text = """<ir_version: 10, opset_import: ["": 21]> net (int64 times, float[3] x) => (float[N, 3] y) {
        more = Constant <value = bool {1}> ()
        last, y = Loop (times, more, x) <
            body = step (int64 i, bool go, float[3] x_) => (bool go_, float[3] z, float[3] row)
            { go_ = Identity(go)  z = Neg(x_)  row = Add(z, z) }>
    }"""
    return parser.parse_model(text), [np.array(5), np.float32([1, 2, 3])]


def texts():
    nodes = [
        helper.make_node("StringConcat", ["x", "x"], ["c"]),
        helper.make_node("StringSplit", ["c"], ["y", "n"], delimiter="b"),
    ]
    x = tensor_info("x", element=TensorProto.STRING)
    return model_of(nodes, [x], ["y", "n"]), [np.array(["abc", "äöü" * 20], object)]


def sequence():
    nodes = [
        helper.make_node("SplitToSequence", ["x"], ["s"], axis=0),
        helper.make_node("ConcatFromSequence", ["s"], ["y"], axis=0),
        helper.make_node("NonZero", ["y"], ["z"]),
    ]
    return model_of(nodes, [tensor_info("x", element=FLOAT)], ["y", "z", "s"]), [random(5, 4)]


MODELS = {make.__name__: make() for make in (convolution, perceptron, recurrent, attention, loop, texts, sequence)}
each_model = pytest.mark.parametrize(("model", "inputs"), MODELS.values(), ids=MODELS)


class _MallInfo(ctypes.Structure):
    _names = "arena ordblks smblks hblks hblkhd usmblks fsmblks uordblks fordblks keepcost"
    _fields_ = [(name, ctypes.c_size_t) for name in _names.split()]


def bytes_in_use():
    """Counts what the process has from the C library's allocator, to the byte."""
    gc.collect()
    libc = ctypes.CDLL(None)
    libc.mallinfo2.restype = _MallInfo
    info = libc.mallinfo2()
    return info.uordblks + info.hblkhd


def growth(action, times):
    """Counts the bytes by which so many repetitions let the process grow, after half as many."""
    for _ in range(times // 2):
        action()
    before = bytes_in_use()
    for _ in range(times):
        action()
    return bytes_in_use() - before


@each_model
def test_runs_leave_nothing_behind(model, inputs):
    rep = onnx_torch.prepare(model, threads=1)
    assert growth(lambda: rep.run(inputs), RUNS) < SPARE


@each_model
def test_runs_that_fail_leave_nothing_behind(model, inputs):
    rep = onnx_torch.prepare(model, threads=1)
    wrong = [np.zeros((1,) * 7, value.dtype) for value in inputs]

    def fail():
        with contextlib.suppress(onnx_torch.Error):
            rep.run(wrong)

    assert growth(fail, 100) < SPARE


@each_model
def test_models_that_go_leave_nothing_behind(model, inputs):
    assert growth(lambda: onnx_torch.prepare(model, threads=1).run(inputs), PREPARED) < 4 * SPARE


WRONG = {
    "no model": b"no model",
    "unknown operator": model_of([helper.make_node("Frob", ["x"], ["y"])], [tensor_info("x", element=FLOAT)], ["y"]),
    "unknown name": model_of([helper.make_node("Neg", ["z"], ["y"])], [tensor_info("x", element=FLOAT)], ["y"]),
    "no attribute": model_of([helper.make_node("Cast", ["x"], ["y"])], [tensor_info("x", element=FLOAT)], ["y"]),
}


@pytest.mark.parametrize("model", WRONG.values(), ids=WRONG)
def test_models_that_are_refused_leave_nothing_behind(model):
    def refuse():
        with pytest.raises(onnx_torch.Error):
            onnx_torch.prepare(model, threads=1)

    assert growth(refuse, FAILED) < 4 * SPARE


def bits(outputs):
    return [
        bits(value) if isinstance(value, list) else list(value.flat) if value.dtype.kind == "O" else value.tobytes()
        for value in outputs
    ]


@pytest.mark.parametrize("threads", [1, 2])
@each_model
def test_the_same_inputs_give_the_same_bits(model, inputs, threads):
    rep = onnx_torch.prepare(model, threads=threads)
    wanted = bits(rep.run(inputs))
    assert all(bits(rep.run(inputs)) == wanted for _ in range(50))
    assert bits(onnx_torch.prepare(model, threads=threads).run(inputs)) == wanted


@each_model
def test_threads_that_share_a_model_give_the_same_bits(model, inputs):
    rep = onnx_torch.prepare(model, threads=1)
    wanted, found = bits(rep.run(inputs)), []
    work = lambda: found.extend(bits(rep.run(inputs)) == wanted for _ in range(50))
    threads = [threading.Thread(target=work) for _ in range(16)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert found == [True] * 800


def test_processes_that_load_one_file_at_once_give_one_result(tmp_path):
    """A dozen processes do so, or a hundred with ONNX_TORCH_PROCESSES=100, which takes half a minute."""
    model = fault_models.model_of("convolution")
    path = tmp_path / "model.onnx"
    onnx.save(model, path, save_as_external_data=True, location="weights.bin", size_threshold=0)
    np.savez(tmp_path / "feeds.npz", **fault_models.feeds_for(model))
    script = (
        "import sys, numpy, onnx_torch\n"
        "feeds = dict(numpy.load(sys.argv[2]))\n"
        "print(onnx_torch.prepare(sys.argv[1], threads=1).run(feeds)[0].tobytes().hex())"
    )
    command = [sys.executable, "-c", script, path, tmp_path / "feeds.npz"]
    count = int(os.environ.get("ONNX_TORCH_PROCESSES", "12"))
    processes = [subprocess.Popen(command, stdout=subprocess.PIPE, text=True) for _ in range(count)]
    results = {process.communicate()[0] for process in processes}
    assert [process.returncode for process in processes] == [0] * count
    assert results == {onnx_torch.prepare(path).run(dict(np.load(tmp_path / "feeds.npz")))[0].tobytes().hex() + "\n"}
