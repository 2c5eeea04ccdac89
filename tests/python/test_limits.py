"""The option `limits`: what a run takes too much of stops it, and nothing else."""

import pickle
import resource
import subprocess
import sys
import threading
import time
from pathlib import Path

import numpy as np
import onnx
import pytest
import torch
from onnx import SparseTensorProto, TensorProto, helper, numpy_helper

import onnx_torch
from models import model_of, op_model, tensor_info
from onnx_torch import InputError, RunError, StoppedError

FLOAT, INT64, BOOL = TensorProto.FLOAT, TensorProto.INT64, TensorProto.BOOL
TIMES = tensor_info("times", element=INT64, shape=[])
MANY = np.array(2**62)


def loop(nodes, result, carried=(), name="spin"):
    """Makes a Loop over `times`; the last of its values is `result`, of the carried ones or collected."""
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
    """Makes a model that gives zeros of the shape that comes in."""
    nodes = [helper.make_node("ConstantOfShape", ["shape"], ["zeros"], name=name)]
    return model_of(nodes, [tensor_info("shape", element=INT64, shape=[1])], ["zeros"])


def collecting():
    """Makes a model that collects a row of 1000 floats for each iteration."""
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
    assert "onnx_torch::check" not in onnx_torch.prepare(counting()).graph()
    limited = onnx_torch.prepare(counting(), limits={"seconds": 1})
    assert limited.graph().count("onnx_torch::check_node") == 3
    assert limited.graph().count("onnx_torch::check_run") == 1  # in the iteration


def test_limits_are_kept_in_a_pickle():
    rep = pickle.loads(pickle.dumps(onnx_torch.prepare(filling(), limits={"memory": 1e6})))
    with pytest.raises(StoppedError):
        rep.run([np.array([2**31])])


@pytest.mark.parametrize(
    ("limits", "message"),
    [
        ({"second": 1}, 'no limit "second"; there are seconds, memory, max_iterations, prepare_seconds, nodes and'),
        ({"seconds": 0}, "seconds of limits must be more than 0"),
        ({"memory": -1}, "memory of limits must be more than 0"),
        ({"memory": float("nan")}, "memory of limits must be more than 0"),
        ({"max_iterations": 0}, "max_iterations of limits must be more than 0"),
        ({"prepare_seconds": 0}, "prepare_seconds of limits must be more than 0"),
        ({"nodes": -1}, "nodes of limits must be more than 0"),
        ({"constant_bytes": 0}, "constant_bytes of limits must be more than 0"),
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


@pytest.mark.parametrize("model", [counting(), loop([], "x", ["x"])], ids=["nodes in the body", "an empty body"])
def test_a_loop_is_stopped_after_so_many_iterations(model):
    rep = onnx_torch.prepare(model, limits={"max_iterations": 10})
    assert rep.run([np.array(10), np.float32([1])])[0].tolist() == [1]
    with pytest.raises(StoppedError, match="more than the 10 iterations that the option limits allows") as stopped:
        rep.run([np.array(11), np.float32([1])])
    assert stopped.value.op_type == "Loop"


def doubling(levels, calls=2):
    """Makes functions of which each calls the one before it so many times."""
    opsets = [helper.make_opsetid("", 21), helper.make_opsetid("my", 1)]
    functions = [helper.make_function("my", "F0", ["x"], ["y"], [helper.make_node("Neg", ["x"], ["y"])], opsets)]
    for level in range(1, levels):
        names = ["x", *(f"v{i}" for i in range(calls - 1)), "y"]
        nodes = [
            helper.make_node(f"F{level - 1}", [names[i]], [names[i + 1]], domain="my", name=f"call{i}")
            for i in range(calls)
        ]
        functions.append(helper.make_function("my", f"F{level}", ["x"], ["y"], nodes, opsets))
    model = model_of(
        [helper.make_node(f"F{levels - 1}", ["x"], ["y"], domain="my")], [tensor_info("x", element=FLOAT)], ["y"]
    )
    model.opset_import.append(helper.make_opsetid("my", 1))
    model.functions.extend(functions)
    return model


def test_functions_that_double_at_each_level_have_an_end():
    assert onnx_torch.prepare(doubling(8), limits={"nodes": 383}).run([np.float32([1])])[0].tolist() == [1]
    with pytest.raises(StoppedError, match=r"more nodes than the 200 that the option limits allows it \(nodes\)"):
        onnx_torch.prepare(doubling(8), limits={"nodes": 200})
    with pytest.raises(StoppedError, match="1000 that the option limits"):
        onnx_torch.prepare(doubling(30), limits={"nodes": 1000})


def test_preparing_takes_no_longer_than_it_may():
    start = time.perf_counter()
    with pytest.raises(StoppedError, match=r"longer than the 0\.5 seconds that the option limits .*prepare_seconds"):
        onnx_torch.prepare(doubling(30), limits={"prepare_seconds": 0.5})
    assert time.perf_counter() - start < 10
    rep = onnx_torch.prepare(doubling(5), limits={"prepare_seconds": 100})
    assert rep.run([np.float32([1])])[0].tolist() == [1]
    assert "onnx_torch::check" not in rep.graph()


@pytest.mark.parametrize("take", [onnx_torch.to_torchscript, onnx_torch.to_module, onnx_torch.show])
def test_limits_hold_wherever_a_model_is_translated(take):
    take(doubling(3), limits={"nodes": 100})
    with pytest.raises(StoppedError, match=r"more nodes than the 100 that the option limits allows it"):
        take(doubling(12), limits={"nodes": 100})
    with pytest.raises(InputError, match='there is no limit "knots"'):
        take(doubling(3), limits={"knots": 100})


def two_engines(*arguments, **options):
    return onnx_torch.compare(*arguments, engines=("onnx_torch", "unoptimised"), **options)


def ours_alone(*arguments, **options):
    return onnx_torch.bench(*arguments, engines=["onnx_torch"], rounds=1, runs=1, **options)


@pytest.mark.parametrize("take", [onnx_torch.profile, two_engines, ours_alone])
def test_limits_hold_wherever_a_model_is_run(take):
    x = np.float32([1])
    assert take(counting(), [np.array(3), x], limits={"seconds": 100, "max_iterations": 3})
    with pytest.raises(StoppedError, match=r"0\.3 seconds"):
        take(counting(), [MANY, x], limits={"seconds": 0.3})
    with pytest.raises(StoppedError, match="more than the 10 iterations"):
        take(counting(), [np.array(11), x], limits={"max_iterations": 10})
    with pytest.raises(StoppedError, match="more nodes than the 100"):
        take(doubling(12), [x], limits={"nodes": 100})
    with pytest.raises(InputError, match='there is no limit "knots"'):
        take(counting(), [np.array(3), x], limits={"knots": 100})


def test_a_session_has_limits_among_its_entries():
    def session(**limits):
        options = onnx_torch.SessionOptions()
        for name, most in limits.items():
            options.add_session_config_entry(f"onnx_torch.limits.{name}", most)
        return onnx_torch.InferenceSession(counting().SerializeToString(), options)

    feeds = {"times": MANY, "x": np.float32([1])}
    with pytest.raises(RunError, match=r"0\.3 seconds"):
        session(seconds="0.3", memory="1e9").run(None, feeds)
    with pytest.raises(RunError, match="more than the 10 iterations"):
        session(max_iterations="10").run(None, feeds)
    with pytest.raises(RunError, match="more nodes than the 1 "):
        session(nodes="1")
    with pytest.raises(InputError, match="a limit is a number: .*many"):
        session(seconds="many")
    with pytest.raises(InputError, match='there is no limit "knots"'):
        session(knots="1")


COMMANDS = {
    "run": [],
    "run in a sandbox": ["--sandbox"],
    "check": [],
    "show": [],
    "profile": ["--runs", "1"],
    "compare": ["--engine", "unoptimised"],
    "bench": ["--engine", "onnx_torch", "--rounds", "1", "--runs", "1"],
    "convert": ["net.pt"],
}


@pytest.mark.parametrize("command", COMMANDS)
def test_commands_have_the_limits(tmp_path, command):
    """All commands have the limits of preparing, and those that run the model have those of a run, too."""
    onnx.save(counting(), tmp_path / "n.onnx")
    np.save(tmp_path / "times.npy", np.array(11))
    call = [sys.executable, "-m", "onnx_torch_cli", command.split()[0], "n.onnx", *COMMANDS[command]]
    runs = command not in ("check", "show", "convert")
    given = ["--input", "times=times.npy"] if runs else []

    def told(*limits):
        asked = [part for limit in limits for part in ("--limit", limit)]
        done = subprocess.run([*call, *given, *asked], capture_output=True, text=True, cwd=tmp_path)
        return done.returncode, " ".join((done.stdout + done.stderr).split())

    wide = ("seconds=60", "memory=1e9", "max_iterations=100", "prepare_seconds=60", "nodes=3", "constant_bytes=1")
    assert told(*wide)[0] == 0
    stops = {"nodes=1": "more nodes than the 1 that", "prepare_seconds=1e-9": "(prepare_seconds)"}
    if runs:
        stops["max_iterations=10"] = "more than the 10 iterations"
    if runs and "sandbox" not in command:  # whose limit of memory is the process's
        stops["memory=1"] = "(memory)"
    for limit, why in stops.items():
        code, text = told(limit)
        assert code and why in text, (limit, text)


def test_check_tells_what_is_beyond_the_limits():
    assert onnx_torch.check(doubling(3), limits={"nodes": 100}) == []
    (problem,) = onnx_torch.check(doubling(12), limits={"nodes": 100})
    assert "more nodes than the 100 that the option limits allows it" in problem.why


@pytest.mark.parametrize("optimize", [True, False])
def test_memory_that_is_not_there_is_an_error_that_names_the_node(optimize):
    rep = onnx_torch.prepare(filling(), optimize=optimize)
    with pytest.raises(RunError, match=f"not enough memory for a tensor of {2**52} bytes") as error:
        rep.run([np.array([2**50])])
    assert (error.value.op_type, error.value.node_name) == ("ConstantOfShape", "fill")
    assert "alloc" not in str(error.value)  # nothing of ATen's own
    with pytest.raises(RunError, match="overflowed") as error:
        rep.run([np.array([2**62])])
    assert error.value.node_name == "fill"
    assert rep.run([np.array([3])])[0].tolist() == [0, 0, 0]


@pytest.mark.parametrize("levels", [150, 300, 5000])
def test_functions_nest_only_so_deep(levels):
    """Each function takes some of the stack, so that they may nest only so deep."""
    model = doubling(levels, calls=1)
    x = np.float32([1])
    if levels < 200:
        assert onnx_torch.prepare(model).run([x])[0].tolist() == [-1]
        return
    with pytest.raises(onnx_torch.InvalidModelError, match="functions and subgraphs are nested more than 200 deep"):
        onnx_torch.prepare(model)
    assert "nested more than 200 deep" in str(onnx_torch.check(model)[0])


def constants(**values):
    return [numpy_helper.from_array(np.asarray(value), name) for name, value in values.items()]


def resized(scale):
    """Makes a model of nothing but constants; the result is small again."""
    nodes = [
        helper.make_node("Resize", ["x", "", "scale"], ["large"], mode="nearest"),
        helper.make_node("ReduceMean", ["large"], ["y"], keepdims=0),
    ]
    given = constants(x=np.ones((1, 1, 8, 8), np.float32), scale=np.float32([1, 1, scale, scale]))
    return model_of(nodes, [], ["y"], initializer=given)


def peak_memory(script):
    """Tells what preparing adds to the most memory of a process, in bytes."""
    program = f"""
import resource, sys
import numpy as np, onnx, onnx_torch
sys.path.insert(0, {str(Path(__file__).parent)!r})
import test_limits
onnx_torch.prepare(test_limits.resized(2))
before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
{script}
print((resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before) * 1024)
"""
    return int(subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True).stdout)


def test_large_results_of_constants_are_left_to_the_run():
    assert peak_memory("onnx_torch.prepare(test_limits.resized(1000))") < 2e8  # of 256 MB
    assert onnx_torch.prepare(resized(10)).run()[0] == 1
    assert onnx_torch.prepare(resized(10), limits={"constant_bytes": 1}).run()[0] == 1


def test_a_loop_over_constants_is_left_to_the_run():
    model = loop([helper.make_node("Neg", ["x"], ["x_"])], "x_", ["x"])
    del model.graph.input[:]
    model.graph.initializer.extend(constants(times=MANY, x=np.float32([1])))
    start = time.perf_counter()
    rep = onnx_torch.prepare(model, limits={"seconds": 0.3})
    assert time.perf_counter() - start < 10
    with pytest.raises(StoppedError, match=r"0\.3 seconds"):
        rep.run()


def nested_loops(levels, times):
    """Makes loops, each of which adds one so many times to what the one around it carries."""
    scalar = {"element": INT64, "shape": []}
    nodes = [helper.make_node("Add", ["v0", "one"], ["w0"])]
    for level in range(levels):
        heads = [tensor_info(f"i{level}", **scalar), tensor_info(f"more{level}", element=BOOL, shape=[])]
        keep = helper.make_node("Identity", [f"more{level}"], [f"keep{level}"])
        results = [tensor_info(f"keep{level}", element=BOOL, shape=[]), tensor_info(f"w{level}", **scalar)]
        body = helper.make_graph([keep, *nodes], "body", [*heads, tensor_info(f"v{level}", **scalar)], results)
        nodes = [helper.make_node("Loop", ["times", "", f"v{level + 1}"], [f"w{level + 1}"], body=body)]
    given = constants(times=np.array(times), one=np.array(1), **{f"v{levels}": np.array(0)})
    return model_of(nodes, [], [f"w{levels}"], initializer=given)


def test_loops_in_loops_are_not_unrolled_without_end():
    assert onnx_torch.prepare(nested_loops(2, 5)).run()[0] == 25
    start = time.perf_counter()
    rep = onnx_torch.prepare(nested_loops(8, 60), limits={"seconds": 0.3})
    assert time.perf_counter() - start < 10
    with pytest.raises(StoppedError, match=r"0\.3 seconds"):
        rep.run()


def test_the_memory_of_what_is_folded_has_a_limit():
    """A value that follows from constants is folded, unless it would be too large."""
    weights = constants(w=np.eye(512, dtype=np.float32), axis=np.array(0))
    nodes = [helper.make_node("CumSum", ["w", "axis"], ["p"]), helper.make_node("Add", ["x", "p"], ["y"])]
    model = model_of(nodes, [tensor_info("x", element=FLOAT)], ["y"], initializer=weights)
    folded, left = (onnx_torch.prepare(model, limits=limits) for limits in ({}, {"constant_bytes": 2**19}))
    assert "cumsum" not in folded.graph() and "cumsum" in left.graph()
    x = np.ones((512, 512), np.float32)
    for rep in (folded, left):
        np.testing.assert_array_equal(rep.run([x])[0], np.tril(x) + x)


def boxes_apart(count):
    """Makes so many boxes of one class, none of which overlaps another: each is compared with all before it."""
    corners = np.arange(count, dtype=np.float32)[None, :, None] * 2 + np.float32([0, 0, 1, 1])
    return [corners, np.linspace(1, 0.5, count, dtype=np.float32)[None, None], np.array([count])]


def recurrent(op_type, gates, **attributes):
    """Makes a recurrent layer of 256 units, and an input of 100,000 steps."""
    sizes = {"X": [100_000, 1, 4], "W": [1, gates * 256, 4], "R": [1, gates * 256, 256]}
    values = {name: np.full(size, 0.01, np.float32) for name, size in sizes.items()}
    node = helper.make_node(op_type, list(sizes), ["y"], hidden_size=256, **attributes)
    weights = [numpy_helper.from_array(values[name], name) for name in "WR"]
    return model_of([node], [tensor_info("X", element=FLOAT)], ["y"], initializer=weights), [values["X"]]


WORDS = np.array(["word " * 1000] * 30_000, dtype=object)
REGION = [np.ones((1, 1, 4, 4), np.float32), np.float32([[0, 0, 3, 3]]), np.array([0])]
POINTS = {"sampling_ratio": 2**18}  # squared, in each bin


@pytest.mark.parametrize(
    "model, inputs",
    [
        (op_model("NonMaxSuppression", boxes_apart(60_000)), boxes_apart(60_000)),
        recurrent("LSTM", 4),
        recurrent("GRU", 3, clip=3.0),
        (op_model("StringSplit", [WORDS], outputs=2), [WORDS]),
        (op_model("RoiAlign", REGION, **POINTS), REGION),
        (op_model("RoiAlign", REGION, mode="max", **POINTS), REGION),
    ],
    ids=["NonMaxSuppression", "LSTM", "GRU with clip", "StringSplit", "RoiAlign", "RoiAlign of maxima"],
)
def test_one_node_is_stopped_as_well(model, inputs):
    rep = onnx_torch.prepare(model, limits={"seconds": 0.3})
    start = time.perf_counter()
    with pytest.raises(StoppedError, match="longer than the 0.3 seconds"):
        rep.run(inputs)
    assert time.perf_counter() - start < 1.5


def test_one_node_of_constants_is_stopped_as_well():
    nodes = [helper.make_node("RoiAlign", ["x", "rois", "batches"], ["y"], **POINTS)]
    given = constants(**dict(zip(["x", "rois", "batches"], REGION, strict=True)))
    start = time.perf_counter()
    with pytest.raises(StoppedError, match=r"longer than the 0\.3 seconds .*prepare_seconds"):
        onnx_torch.prepare(model_of(nodes, [], ["y"], initializer=given), limits={"prepare_seconds": 0.3})
    assert time.perf_counter() - start < 1.5


def test_the_memory_of_strings_counts():
    head = [tensor_info("i", element=INT64, shape=[]), tensor_info("more", element=BOOL, shape=[])]
    text = tensor_info("text", element=TensorProto.STRING, shape=[1])
    doubled = tensor_info("doubled", element=TensorProto.STRING, shape=[1])
    nodes = [
        helper.make_node("Identity", ["more"], ["more_"]),
        helper.make_node("StringConcat", ["text", "text"], ["doubled"], name="double"),
    ]
    more = tensor_info("more_", element=BOOL, shape=[])
    body = helper.make_graph(nodes, "body", [*head, text], [more, doubled])
    made = helper.make_node("Loop", ["times", "", "text"], ["y"], body=body)
    rep = onnx_torch.prepare(model_of([made], [TIMES, text], ["y"], opset=20), limits={"memory": 1e6})
    assert len(rep.run([np.array(10), np.array(["x"])])[0][0]) == 2**10
    with pytest.raises(StoppedError, match=r"allows it 1000000 \(memory\)") as stopped:
        rep.run([np.array(40), np.array(["x"])])
    assert stopped.value.node_name == "double"


def sparse(elements, count=1):
    """Makes a model of sparse tensors that have one element each."""
    values = [numpy_helper.from_array(np.float32([5]), f"w{i}") for i in range(count)]
    index = numpy_helper.from_array(np.array([elements - 1]))
    tensors = [SparseTensorProto(dims=[elements], values=each, indices=index) for each in values]
    names = [each.name for each in values]
    return model_of([helper.make_node("Concat", names, ["y"], axis=0)], [], ["y"], sparse_initializer=tensors)


def test_sparse_tensors_take_no_more_memory_than_what_follows_from_constants_may():
    assert onnx_torch.prepare(sparse(1000, 2), limits={"constant_bytes": 8000}).run()[0].sum() == 10
    for model in [sparse(1000, 3), sparse(10**10)]:
        with pytest.raises(StoppedError, match=r"sparse tensors take .* bytes of memory, more than .*constant_bytes"):
            onnx_torch.prepare(model, limits={"constant_bytes": 8000})
