"""A process that forks: parent and child go on, with the models that the parent had and with others.

Each test is a process of its own, as what it must show depends on the threads that were started before a fork.
"""

import multiprocessing
import os
import signal
import subprocess
import sys
import threading
import time
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest
from onnx import TensorProto, helper, numpy_helper

import onnx_torch
import process_threads

SECONDS = 180  # the most that all of a test's processes take
THREADS = 3  # of OpenMP, on any machine
MODEL_INPUTS = {"image": np.random.default_rng(0).standard_normal((4, 8, 48, 48), np.float32)}


def model():
    """Makes a convolution and a product by oneDNN, a product and a sort by ATen, our rows and chains; all threaded."""
    rng = np.random.default_rng(1)
    weights = {
        "filters": rng.standard_normal((32, 8, 3, 3), np.float32),
        "matrix": rng.standard_normal((48, 256), np.float32),
    }
    nodes = [
        helper.make_node("Conv", ["image", "filters"], ["features"], pads=[1, 1, 1, 1]),
        helper.make_node("Relu", ["features"], ["positive"]),
        helper.make_node("MatMul", ["positive", "matrix"], ["rows"]),
        helper.make_node("Softmax", ["rows"], ["shares"], axis=-1),
        helper.make_node("Transpose", ["shares"], ["columns"], perm=[0, 1, 3, 2]),
        helper.make_node("MatMul", ["columns", "shares"], ["squares"]),
        helper.make_node("Sin", ["squares"], ["waves"]),
        helper.make_node("CumSum", ["waves", "axis"], ["sums"]),
    ]
    shape = list(MODEL_INPUTS["image"].shape)
    graph = helper.make_graph(
        nodes,
        "threaded",
        [helper.make_tensor_value_info("image", TensorProto.FLOAT, shape)],
        [helper.make_tensor_value_info("sums", TensorProto.FLOAT, None)],
        [numpy_helper.from_array(value, name) for name, value in weights.items()]
        + [numpy_helper.from_array(np.array(2), "axis")],
    )
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 21)], ir_version=10)


def prepared():
    return onnx_torch.prepare(model(), threads=THREADS)


def results(rep):
    return [value.tobytes() for value in rep.run(MODEL_INPUTS)]


def in_child(function, *arguments):
    """Tells whether a function is true in a fork of this process."""
    pid = os.fork()
    if pid == 0:
        code = 1
        try:
            code = 0 if function(*arguments) else 2
        finally:
            os._exit(code)
    return os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 0


def has_same(rep, expected):
    return results(rep) == expected


def has_same_of_its_own(expected):
    return results(prepared()) == expected


# ---- What the processes do ------------------------------------------------------------------------------------------


def after_runs():
    rep = prepared()
    expected = results(rep)
    assert in_child(has_same, rep, expected)
    assert in_child(has_same_of_its_own, expected)
    assert results(rep) == expected


def after_prepare():
    expected = results(prepared())
    assert in_child(has_same, prepared(), expected)


def after_runs_in_threads():
    rep = prepared()
    with ThreadPoolExecutor(3) as pool:
        expected, *others = pool.map(lambda _: results(rep), range(9))
        assert others == [expected] * 8
        assert in_child(has_same, rep, expected)
        assert in_child(has_same_of_its_own, expected)
        # The thread that forks is one of those that have run the model.
        assert all(pool.map(lambda _: in_child(has_same, rep, expected), range(6)))


def in_threads_of_the_child():
    rep = prepared()
    expected = results(rep)

    def same_in_threads():
        with ThreadPoolExecutor(3) as pool:
            return all(pool.map(lambda _: results(rep) == expected, range(9)))

    assert in_child(same_in_threads)


def in_a_child_of_a_child():
    rep = prepared()
    expected = results(rep)

    def has_same_in_both():
        return has_same(rep, expected) and in_child(has_same, rep, expected) and has_same(rep, expected)

    assert in_child(has_same_in_both)


def with_as_many_threads():
    rep = prepared()
    results(rep)

    def threads():  # but for those that watch runs
        return {number for number, name in process_threads.names().items() if name != "neighbours"}

    def threads_started():
        before = threads()
        results(rep)
        return len(threads() - before) == THREADS - 1

    assert in_child(threads_started)


def in_a_pool():
    global inherited
    inherited = prepared()
    expected = results(inherited)
    with multiprocessing.get_context("fork").Pool(2) as pool:
        assert pool.map(results_of_inherited, range(8)) == [expected] * 8
    assert results(inherited) == expected


def results_of_inherited(_):
    return results(inherited)


def while_others_run():
    """Has children run what the parent's threads are running at the time, first runs of new sizes among them."""
    open_model = model()
    open_model.graph.input[0].type.tensor_type.shape.dim[0].dim_param = "n"
    rep = onnx_torch.prepare(open_model, threads=THREADS)
    expected = results(rep)
    stop = threading.Event()

    def run_on(seed):
        sizes = np.random.default_rng(seed)
        while not stop.is_set():
            rep.run({"image": np.ones((sizes.integers(1, 9), 8, 48, 48), np.float32)})

    others = [threading.Thread(target=run_on, args=(seed,)) for seed in range(2)]
    for thread in others:
        thread.start()
    try:
        assert all(in_child(has_same, rep, expected) for _ in range(20))
    finally:
        stop.set()
        for thread in others:
            thread.join()
    assert results(rep) == expected


def while_others_ask_for_inner_values():
    """Has the process fork while a variant of the model is being prepared for another thread."""
    rep = prepared()
    expected = results(rep)
    names = ["features", "positive", "rows", "shares", "columns", "squares", "waves", "sums"]
    stop = threading.Event()

    def ask_on():
        for number in range(1, 256):
            if not stop.is_set():
                rep.run(MODEL_INPUTS, output_names=[name for i, name in enumerate(names) if number >> i & 1])

    other = threading.Thread(target=ask_on)
    other.start()
    try:
        for _ in range(10):
            time.sleep(0.05)
            assert in_child(lambda: len(rep.run(MODEL_INPUTS, output_names=["rows", "waves"])) == 2)
            assert in_child(has_same, rep, expected)
    finally:
        stop.set()
        other.join()


SITUATIONS = [
    after_runs,
    after_prepare,
    after_runs_in_threads,
    in_threads_of_the_child,
    in_a_child_of_a_child,
    with_as_many_threads,
    in_a_pool,
    while_others_run,
    while_others_ask_for_inner_values,
]


@pytest.mark.parametrize("situation", SITUATIONS, ids=lambda function: function.__name__)
def test_a_fork_goes_on(situation):
    """A process that waits for ever is ended with its children, and fails."""
    command = [sys.executable, __file__, situation.__name__]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, start_new_session=True) as process:
        try:
            output, _ = process.communicate(timeout=SECONDS)
        except subprocess.TimeoutExpired:
            os.killpg(process.pid, signal.SIGKILL)
            raise
    assert process.returncode == 0, output.decode()


if __name__ == "__main__":
    {function.__name__: function for function in SITUATIONS}[sys.argv[1]]()
