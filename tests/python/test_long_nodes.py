"""Nodes that take long and do not stop in their midst, under limits: who runs the model gets its thread back. Each is
in a process of its own, which ends while the node goes on."""

import subprocess
import sys

import numpy as np
import pytest
import torch
from onnx import TensorProto, helper, numpy_helper

import onnx_torch
from models import model_of, op_model, tensor_info

START = """if True:
    import os, signal, threading, time
    import numpy as np
    import onnx_torch
    from onnx import parser
    from onnx_torch import StoppedError

    signal.signal(signal.SIGINT, signal.default_int_handler)
    LARGE = 5000  # a product of matrices as large takes seconds

    MODEL = parser.parse_model('''<ir_version: 10, opset_import: ["": 21]>
        square (double[n, n] x) => (double[n, n] y) {
            [small] half = Identity (x)
            [large] product = MatMul (x, half)
            y = Identity (product)
        }''')

    def stopped(work, error=StoppedError):
        start = time.perf_counter()
        try:
            work()
        except error as stopped:
            took = time.perf_counter() - start
            assert took < 1.5, took
            return stopped
        raise AssertionError("nothing has stopped it")
"""


def run(script):
    ended = subprocess.run([sys.executable, "-c", START + script], capture_output=True, text=True, timeout=120)
    assert ended.returncode == 0, ended.stderr
    return ended.stdout.splitlines()


def test_a_run_is_left_where_a_node_does_not_stop():
    """The model goes on behind a run that was left, and its arrays may go."""
    lines = run("""
    rep = onnx_torch.prepare(MODEL, limits={"seconds": 0.3}, threads=1)
    x, out = np.ones((LARGE, LARGE)), np.zeros((LARGE, LARGE))
    error = stopped(lambda: rep.run([x], out=[out]))
    print(error)
    print(error.op_type, error.node_name)
    del x, out
    print(rep.run([np.full((2, 2), 3.0)])[0].tolist())
    """)
    assert lines == [
        'MatMul "large" (opset 21): the run takes longer than the 0.3 seconds that the option limits allows it; allow '
        "more if you trust the model with it (the node goes on in a thread of its own until it is done)",
        "MatMul large",
        "[[18.0, 18.0], [18.0, 18.0]]",
    ]


def test_preparing_is_left_where_a_node_of_constants_does_not_stop():
    lines = run("""
    from onnx import numpy_helper
    MODEL.graph.initializer.append(numpy_helper.from_array(np.ones((LARGE, LARGE)), "x"))
    del MODEL.graph.input[:]
    file = MODEL.SerializeToString()
    print(stopped(lambda: onnx_torch.prepare(file, limits={"prepare_seconds": 0.8}, threads=1)))
    """)
    assert lines == [
        "preparing the model takes longer than the 0.8 seconds that the option limits allows it (prepare_seconds); "
        "allow more if you trust the model with it"
    ]


def test_ctrl_c_stops_preparing_within_a_node_of_constants():
    lines = run("""
    from onnx import numpy_helper
    MODEL.graph.initializer.append(numpy_helper.from_array(np.ones((LARGE, LARGE)), "x"))
    del MODEL.graph.input[:]
    file = MODEL.SerializeToString()
    threading.Timer(0.8, os.kill, (os.getpid(), signal.SIGINT)).start()
    stopped(lambda: onnx_torch.prepare(file, threads=1), KeyboardInterrupt)
    print("stopped")
    """)
    assert lines == ["stopped"]


def test_the_caller_stops_a_node_that_takes_long():
    lines = run("""
    rep = onnx_torch.prepare(MODEL, limits={"seconds": 1000}, threads=1)
    threading.Timer(0.4, os.kill, (os.getpid(), signal.SIGINT)).start()
    stopped(lambda: rep.run([np.ones((LARGE, LARGE))]), KeyboardInterrupt)

    session_options = onnx_torch.SessionOptions()
    session_options.intra_op_num_threads = 1
    session_options.add_session_config_entry("onnx_torch.limits.seconds", "1000")
    session = onnx_torch.InferenceSession(MODEL.SerializeToString(), session_options)
    options = onnx_torch.RunOptions()
    threading.Timer(0.4, setattr, (options, "terminate", True)).start()
    print(stopped(lambda: session.run(None, {"x": np.ones((LARGE, LARGE))}, options), Exception))
    """)
    assert len(lines) == 1 and "terminate flag" in lines[0] and "goes on in a thread of its own" in lines[0]


TEXTS = np.array([["b", "a"]], dtype=object)
NUMBERS = np.arange(6, dtype=np.float32).reshape(2, 3)


@pytest.mark.parametrize(
    "model, inputs",
    [
        (op_model("Softmax", [NUMBERS]), [NUMBERS]),
        (op_model("StringConcat", [TEXTS, TEXTS]), [TEXTS, TEXTS]),
        (op_model("TopK", [NUMBERS, np.array([2])], outputs=2), [NUMBERS, np.array([2])]),
    ],
    ids=["numbers", "texts", "two results"],
)
def test_results_are_those_of_a_run_without_limits(model, inputs):
    limited = onnx_torch.prepare(model, limits={"seconds": 100})
    for result, expected in zip(limited.run(inputs), onnx_torch.prepare(model).run(inputs), strict=True):
        np.testing.assert_array_equal(result, expected)


def test_sequences_come_in():
    tensors = [np.float32([1, 2]), np.float32([3])]
    sequence = helper.make_tensor_sequence_value_info("s", TensorProto.FLOAT, None)
    model = model_of([helper.make_node("ConcatFromSequence", ["s"], ["y"], axis=0)], [sequence], ["y"])
    assert onnx_torch.prepare(model, limits={"seconds": 100}).run([tensors])[0].tolist() == [1, 2, 3]


@pytest.mark.parametrize("make", [np.zeros, torch.zeros], ids=["numpy", "torch"])
def test_results_come_to_the_callers_memory(make):
    model = op_model("Relu", [NUMBERS])
    out = make((2, 3), dtype=torch.float32 if make is torch.zeros else np.float32)
    [result] = onnx_torch.prepare(model, limits={"seconds": 100}).run([NUMBERS - 2], out=[out])
    assert result is out
    assert out.tolist() == [[0, 0, 0], [1, 2, 3]]
    with pytest.raises(onnx_torch.InputError, match="shape"):
        onnx_torch.prepare(model, limits={"seconds": 100}).run([NUMBERS[:1]], out=[out])


def test_inputs_of_the_callers_memory_are_not_kept():
    x = NUMBERS.copy()
    rep = onnx_torch.prepare(op_model("Identity", [x]), limits={"seconds": 100})
    [y] = rep.run([x])
    x += 1
    np.testing.assert_array_equal(y, NUMBERS)


def test_a_run_has_the_callers_settings():
    """A run has the caller's number of threads, and so have the operators in Python that it calls."""
    seen = []

    def settings(x: torch.Tensor) -> torch.Tensor:
        seen.append((torch.get_num_threads(), torch.is_inference_mode_enabled()))
        return x.clone()

    onnx_torch.register_op("long_nodes", "Settings", settings)
    nodes = [helper.make_node("Settings", ["x"], ["y"], domain="long_nodes")]
    model = model_of(nodes, [tensor_info("x", element=TensorProto.FLOAT)], ["y"])
    model.opset_import.append(helper.make_opsetid("long_nodes", 1))
    for options in ({}, {"threads": 1}):
        for limits in ({}, {"seconds": 100}):
            onnx_torch.prepare(model, limits=limits, **options).run([NUMBERS])
    assert seen[0] == seen[1] and seen[2] == seen[3]
    assert seen[2][0] == 1


def test_a_failing_node_is_named():
    weights = [numpy_helper.from_array(np.array([5]), "indices")]
    nodes = [helper.make_node("Gather", ["x", "indices"], ["y"], name="beyond")]
    model = model_of(nodes, [tensor_info("x", element=TensorProto.FLOAT)], ["y"], initializer=weights)
    rep = onnx_torch.prepare(model, limits={"seconds": 100})
    with pytest.raises(onnx_torch.RunError, match='Gather "beyond"') as failed:
        rep.run([NUMBERS])
    assert not isinstance(failed.value, onnx_torch.StoppedError)
