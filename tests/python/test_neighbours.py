"""Runs beside processes that keep all processors busy.

The test is a process of its own, as what it must show depends on the threads that were started before.
"""

import itertools
import os
import subprocess
import sys
import time

import numpy as np
import pytest
from onnx import TensorProto, helper, numpy_helper

import onnx_torch
import process_threads

SECONDS = 180  # the most that all of a test's processes take
LAYERS, RUNS = 20, 200
BUSY = f"import time\nend = time.monotonic() + {SECONDS}\nwhile time.monotonic() < end: pass"
BOUND = 10  # what runs with two threads may take, in those of one; by long spinning it is 30 to 100


def model():
    """Makes many convolutions, each of which is divided among the threads."""
    filters = np.random.default_rng(0).standard_normal((64, 64, 3, 3), np.float32) / 24
    names = ["x", *(f"layer_{number}" for number in range(LAYERS))]
    nodes = [
        helper.make_node("Conv", [before, "filters"], [after], pads=[1, 1, 1, 1])
        for before, after in itertools.pairwise(names)
    ]
    value = lambda name: helper.make_tensor_value_info(name, TensorProto.FLOAT, [1, 64, 16, 16])
    graph = helper.make_graph(
        nodes, "layers", [value("x")], [value(names[-1])], [numpy_helper.from_array(filters, "filters")]
    )
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 21)], ir_version=10)


def holds_short_waits():
    """Tells whether the thread that watches holds others."""
    return list(process_threads.names().values()).count("neighbours") > 1


def beside_neighbours():
    one, two = (onnx_torch.prepare(model(), threads=threads) for threads in (1, 2))
    feeds = {"x": np.random.default_rng(1).standard_normal((1, 64, 16, 16), np.float32)}
    expected = two.run(feeds)[0]
    neighbours = [subprocess.Popen([sys.executable, "-c", BUSY]) for _ in range(os.cpu_count())]
    try:
        end = time.monotonic() + SECONDS / 2
        while not holds_short_waits():
            assert time.monotonic() < end, "long waits were not noticed"
            two.run(feeds)
        seconds = {one: 0.0, two: 0.0}
        for _ in range(RUNS):
            for rep in seconds:
                start = time.perf_counter()
                rep.run(feeds)
                seconds[rep] += time.perf_counter() - start
        assert seconds[two] < BOUND * seconds[one], seconds.values()
        np.testing.assert_array_equal(two.run(feeds)[0], expected)
        child = os.fork()
        if child == 0:
            os._exit(0 if np.array_equal(two.run(feeds)[0], expected) else 1)
        assert os.waitpid(child, 0)[1] == 0
        np.testing.assert_array_equal(two.run(feeds)[0], expected)
    finally:
        for process in neighbours:
            process.kill()
            process.wait()


def with_a_policy_of_its_own():
    rep = onnx_torch.prepare(model(), threads=2)
    rep.run({"x": np.zeros((1, 64, 16, 16), np.float32)})
    assert "neighbours" not in process_threads.names().values()


def run_alone(situation, **environment):
    command = [sys.executable, __file__, situation.__name__]
    done = subprocess.run(
        command, capture_output=True, text=True, timeout=SECONDS, env={**os.environ, **environment}, check=False
    )
    assert done.returncode == 0, done.stdout + done.stderr


@pytest.mark.skipif(len(os.sched_getaffinity(0)) < 2, reason="threads do not spin for long on one processor")
def test_threads_do_not_spin_for_long_beside_neighbours():
    run_alone(beside_neighbours)


@pytest.mark.parametrize("variable", [{"OMP_WAIT_POLICY": "active"}, {"GOMP_SPINCOUNT": "300000"}])
def test_the_environment_says_how_to_wait(variable):
    run_alone(with_a_policy_of_its_own, **variable)


if __name__ == "__main__":
    {function.__name__: function for function in (beside_neighbours, with_a_policy_of_its_own)}[sys.argv[1]]()
