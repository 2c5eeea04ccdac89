"""Ctrl-C while a model is prepared or run, and the end of the interpreter while threads run models: each in a process
of its own."""

import os
import signal
import subprocess
import sys
import threading
import time

import onnx
import pytest

MODELS = """if True:
    import os, signal, sys, threading, time
    import numpy as np
    import onnx_torch
    from onnx import TensorProto, helper, parser

    signal.signal(signal.SIGINT, signal.default_int_handler)  # which the jobs that a shell starts by & lack

    def loop():
        return parser.parse_model('''<ir_version: 10, opset_import: ["": 21]>
            counts (int64 n, float[2] x) => (float[2] y) {
                always = Constant <value = bool {1}> ()
                y = Loop (n, always, x) <body = each (int64 i, bool on, float[2] a) => (bool on2, float[2] b) {
                    on2 = Identity (on)
                    b = Sin (a)
                }>
            }''')

    def whole_numbers():  # a loop that makes no tensors
        return parser.parse_model('''<ir_version: 10, opset_import: ["": 21]>
            counts (int64 n) => (int64 y) {
                always = Constant <value = bool {1}> ()
                zero = Constant <value = int64 {0}> ()
                y = Loop (n, always, zero) <body = each (int64 i, bool on, int64 a) => (bool on2, int64 b) {
                    on2 = Identity (on)
                    b = Identity (i)
                }>
            }''')

    def products(count):
        nodes = [helper.make_node("MatMul", [f"x{i}", "x0"], [f"x{i + 1}"]) for i in range(count)]
        graph = helper.make_graph(
            nodes, "chain", [helper.make_tensor_value_info("x0", TensorProto.FLOAT, ["n", "n"])],
            [helper.make_tensor_value_info(f"x{count}", TensorProto.FLOAT, None)])
        return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 21)], ir_version=10)

    def square():
        return parser.parse_model('''<ir_version: 10, opset_import: ["": 21]>
            square (double[n, n] x) => (double[n, n] y) { y = MatMul (x, x) }''')

    def boxes(count):  # of one class, of which none overlaps another: a node that takes long
        first = np.arange(count, dtype=np.float32)[None, :, None] * 2
        scores = np.linspace(1, .5, count, dtype=np.float32)
        return {"boxes": first + np.float32([0, 0, 1, 1]), "scores": scores[None, None]}

    def selection():
        return parser.parse_model('''<ir_version: 10, opset_import: ["": 21]>
            selects (float[1, n, 4] boxes, float[1, 1, n] scores) => (int64[m, 3] y) {
                most = Constant <value = int64 {1000000}> ()
                y = NonMaxSuppression (boxes, scores, most)
            }''')

    def doubling(depth):  # each function calls the next one twice
        opset = [helper.make_opsetid("", 21), helper.make_opsetid("my", 1)]
        last = [helper.make_node("Sin", ["x"], ["m"]), helper.make_node("Cos", ["m"], ["y"])]
        functions = [helper.make_function("my", f"f{depth}", ["x"], ["y"], last, opset)]
        for i in range(depth):
            calls = [helper.make_node(f"f{i + 1}", [a], [b], domain="my") for a, b in (("x", "m"), ("m", "y"))]
            functions.append(helper.make_function("my", f"f{i}", ["x"], ["y"], calls, opset))
        graph = helper.make_graph(
            [helper.make_node("f0", ["x"], ["y"], domain="my")], "doubling",
            [helper.make_tensor_value_info("x", TensorProto.FLOAT, [2])],
            [helper.make_tensor_value_info("y", TensorProto.FLOAT, [2])])
        return helper.make_model(graph, opset_imports=opset, functions=functions, ir_version=10)

    def interrupted(work):  # tells when to send the signal, and how long it took to stop
        print("now", flush=True)
        try:
            work()
        except KeyboardInterrupt:
            print("interrupted", flush=True)
        else:
            print("not interrupted", flush=True)
"""
SECONDS = 120


def child(script):
    """Starts a process that goes no longer than `SECONDS`."""
    process = subprocess.Popen(
        [sys.executable, "-c", MODELS + script], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    )
    watch = threading.Timer(SECONDS, process.kill)
    watch.daemon = True
    watch.start()
    return process


def interrupt(script, after=0.7):
    """Sends the signal so many seconds after the work begins; tells how long it went on, and all that was printed."""
    process = child(script)
    assert process.stdout.readline() == "now\n", process.communicate(timeout=SECONDS)
    time.sleep(after)
    assert process.poll() is None
    process.send_signal(signal.SIGINT)
    start = time.monotonic()
    line = process.stdout.readline()
    took = time.monotonic() - start
    rest, errors = process.stdout.read(), process.stderr.read()  # behind what readline has read already
    assert process.wait(SECONDS) == 0, errors
    return took, line + rest


RUNS = {
    "loop": """
    rep, feeds = onnx_torch.prepare(loop()), {"x": np.ones(2, np.float32)}
    many, few = {**feeds, "n": np.array(10**9)}, {**feeds, "n": np.array(3)}
""",
    "loop without tensors": """
    rep, many, few = onnx_torch.prepare(whole_numbers()), {"n": np.array(10**10)}, {"n": np.array(3)}
""",
    "chain of products": """
    rep = onnx_torch.prepare(products(20_000))
    many, few = {"x0": np.full((500, 500), 1 / 500, np.float32)}, {"x0": np.ones((1, 1), np.float32)}
""",
    "one node": """
    rep, many, few = onnx_torch.prepare(selection()), boxes(200_000), boxes(3)
""",
    "one operator that asks nothing": """
    rep = onnx_torch.prepare(square(), threads=1)
    many, few = {"x": np.ones((5000, 5000))}, {"x": np.ones((2, 2))}
""",
    "the same, after runs": """
    rep = onnx_torch.prepare(square(), threads=1)
    many, few = {"x": np.ones((5000, 5000))}, {"x": np.ones((2, 2))}
    for _ in range(5): rep.run({"x": np.ones((600, 600))})
""",
}


@pytest.mark.parametrize("model", RUNS)
def test_a_run_is_interrupted_within_a_second(model):
    """The model runs as before afterwards, and can be interrupted again."""
    again = """
    expected = rep.run(few)[0]
    interrupted(lambda: rep.run(many))
    np.testing.assert_array_equal(rep.run(few)[0], expected)
    threading.Timer(0.3, os.kill, (os.getpid(), signal.SIGINT)).start()
    interrupted(lambda: rep.run(many))
    np.testing.assert_array_equal(rep.run(few)[0], expected)
    print("right")
"""
    took, printed = interrupt(RUNS[model] + again)
    assert printed == "interrupted\nnow\ninterrupted\nright\n"
    assert took < 1


@pytest.mark.parametrize("what", ["prepare", "check", "to_torchscript"])
def test_preparing_is_interrupted_within_a_second(what):
    took, printed = interrupt(
        f"""
    interrupted(lambda: onnx_torch.{what}(doubling(24)))
    print(onnx_torch.prepare(doubling(2)).run([np.ones(2, np.float32)])[0].shape)
"""
    )
    assert printed == "interrupted\n(2,)\n"
    assert took < 1


def test_a_session_and_limits_are_interrupted():
    took, printed = interrupt(
        """
    rep = onnx_torch.prepare(loop(), limits={"seconds": 1000})
    interrupted(lambda: rep.run({"x": np.ones(2, np.float32), "n": np.array(10**9)}))
    session = onnx_torch.InferenceSession(loop().SerializeToString())
    threading.Timer(0.3, os.kill, (os.getpid(), signal.SIGINT)).start()
    interrupted(lambda: session.run(None, {"x": np.ones(2, np.float32), "n": np.array(10**9)}))
"""
    )
    assert printed == "interrupted\nnow\ninterrupted\n"
    assert took < 1


def test_a_handler_of_the_users_own_decides():
    """The handler was set after the model was prepared. Where it raises nothing the run goes on."""
    took, printed = interrupt(
        """
    rep = onnx_torch.prepare(loop())
    feeds = {"x": np.ones(2, np.float32), "n": np.array(3)}
    expected = rep.run(feeds)[0]
    signal.signal(signal.SIGINT, lambda *_: print("noted", flush=True))
    time.sleep(0.1)
    print("now", flush=True)
    start = time.monotonic()
    rep.run({**feeds, "n": np.array(5_000_000)})
    print("went on", flush=True)
    class Stop(Exception): pass
    def stop(*_): raise Stop
    signal.signal(signal.SIGINT, stop)
    time.sleep(0.1)
    threading.Timer(0.3, os.kill, (os.getpid(), signal.SIGINT)).start()
    try:
        rep.run({**feeds, "n": np.array(10**9)})
    except Stop:
        print("stopped")
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    threading.Timer(0.1, os.kill, (os.getpid(), signal.SIGINT)).start()
    rep.run({**feeds, "n": np.array(1_000_000)})
    np.testing.assert_array_equal(rep.run(feeds)[0], expected)
"""
    )
    assert printed == "noted\nwent on\nstopped\n"
    assert took < 1


def test_runs_of_other_threads_go_on():
    took, printed = interrupt(
        """
    rep, feeds = onnx_torch.prepare(loop()), {"x": np.ones(2, np.float32)}
    done = []
    other = threading.Thread(target=lambda: done.append(rep.run({**feeds, "n": np.array(6_000_000)})))
    other.start()
    interrupted(lambda: rep.run({**feeds, "n": np.array(10**9)}))
    print(other.is_alive())
    other.join()
    print(len(done))
"""
    )
    assert printed == "interrupted\nTrue\n1\n"
    assert took < 1


END = {
    "loop": """
    rep = onnx_torch.prepare(loop())
    feeds = {"x": np.ones(2, np.float32), "n": np.array(10**9)}
    work = lambda: rep.run(feeds)
""",
    "short runs": """
    rep = onnx_torch.prepare(loop())
    feeds = {"x": np.ones(2, np.float32), "n": np.array(3)}
    def work():
        while True: rep.run(feeds)
""",
    "chain of products": """
    rep = onnx_torch.prepare(products(20_000))
    feeds = {"x0": np.full((300, 300), 1 / 300, np.float32)}
    work = lambda: rep.run(feeds)
""",
    "a run that ends then": """
    rep = onnx_torch.prepare(loop())
    feeds = {"x": np.ones(2, np.float32), "n": np.array(400_000)}
    work = lambda: rep.run(feeds)
""",
    "prepare": """
    model = doubling(20)
    work = lambda: onnx_torch.prepare(model)
""",
}


@pytest.mark.parametrize("what", END)
def test_the_interpreter_ends_while_daemon_threads_run(what):
    """The runs of such threads rest, as Python's own daemon threads do, and end nothing."""
    script = """
    for _ in range(2): threading.Thread(target=work, daemon=True).start()
    time.sleep(0.3)
    print("over")
"""
    for _ in range(3):
        process = child(END[what] + script)
        printed, errors = process.communicate(timeout=SECONDS)
        assert (process.returncode, printed, errors) == (0, "over\n", "")


def test_a_reader_in_python_rests_as_well(tmp_path):
    """An external reader asks for Python's lock in the midst of a daemon thread's work."""
    script = """
    import atexit
    tensor = TensorProto(name="w", data_type=1, dims=[2], data_location=TensorProto.EXTERNAL)
    tensor.external_data.add(key="location", value="w.bin")
    graph = helper.make_graph(
        [helper.make_node("Add", ["w", "w"], ["y"])], "reads", [],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, [2])], [tensor])
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 21)], ir_version=10)
    def read(name, offset, length):
        time.sleep(1)
        return np.ones(2, np.float32)
    threading.Thread(target=lambda: onnx_torch.prepare(model, external=read), daemon=True).start()
    time.sleep(0.3)
    print("over")
"""
    process = child(script)
    assert (*process.communicate(timeout=SECONDS), process.returncode) == ("over\n", "", 0)


def test_many_processes_load_one_file_at_once(tmp_path):
    count = int(os.environ.get("ONNX_TORCH_PROCESSES", "12"))
    weights = onnx.helper.make_tensor("w", onnx.TensorProto.FLOAT, [1000, 1000], b"\0" * 4_000_000, raw=True)
    graph = onnx.helper.make_graph(
        [onnx.helper.make_node("MatMul", ["x", "w"], ["y"])],
        "product",
        [onnx.helper.make_tensor_value_info("x", onnx.TensorProto.FLOAT, [1, 1000])],
        [onnx.helper.make_tensor_value_info("y", onnx.TensorProto.FLOAT, [1, 1000])],
        [weights],
    )
    model = onnx.helper.make_model(graph, opset_imports=[onnx.helper.make_opsetid("", 21)], ir_version=10)
    onnx.save(model, tmp_path / "inside.onnx")
    onnx.save(model, tmp_path / "beside.onnx", save_as_external_data=True, location="w.bin")
    script = """
    for name in sys.argv[1:]:
        y, = onnx_torch.prepare(name, threads=1).run([np.ones((1, 1000), np.float32)])
        assert not y.any()
    print("right")
"""
    files = [str(tmp_path / name) for name in ("inside.onnx", "beside.onnx")]
    processes = [
        subprocess.Popen([sys.executable, "-c", MODELS + script, *files], stdout=subprocess.PIPE, text=True)
        for _ in range(count)
    ]
    assert [process.communicate(timeout=20 * SECONDS)[0] for process in processes] == ["right\n"] * count
