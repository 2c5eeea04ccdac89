"""`onnx_torch.sandbox`: models in a process of their own, and what that process can do no more."""

import ctypes
import json
import os
import signal
import socket
import struct
import subprocess
import sys
import time

import ml_dtypes
import numpy as np
import onnx
import onnx.backend.test.loader
import pytest
from onnx import TensorProto, helper, parser

import onnx_torch
import onnx_torch.sandbox
from models import model_of, op_model, tensor_info
from onnx_torch import DeviceError, Error, InputError, InvalidModelError, RunError, StoppedError
from onnx_torch._sandbox.channel import Channel, shared_memory
from onnx_torch._sandbox.shared_values import describe, place, restore, size
from test_limits import MANY, counting, filling

X = np.arange(12, dtype=np.float32).reshape(4, 3)
HAS_LANDLOCK = ctypes.CDLL(None).syscall(444, None, 0, 1) > 0  # landlock_create_ruleset tells its version
HAS_SECCOMP = os.path.exists("/proc/sys/kernel/seccomp")
CONFINED = ({"Landlock"} if HAS_LANDLOCK else set()) | ({"seccomp"} if HAS_SECCOMP else set())


def product():
    return parser.parse_model(
        '<ir_version: 10, opset_import: ["": 21]> net (float[4, N] x) => (float[4, 4] z) '
        "{ y = Transpose(x)  z = MatMul(x, y) }"
    )


def same(a, b):
    if isinstance(a, list):
        return len(a) == len(b) and all(map(same, a, b))
    if isinstance(a, np.ndarray):
        equal = list(a.flat) == list(b.flat) if a.dtype.kind == "O" else a.tobytes() == b.tobytes()
        return (a.dtype, a.shape) == (b.dtype, b.shape) and equal
    return type(a) is type(b) and a == b


# --- Runs -------------------------------------------------------------------------------------------------------------

OF_EACH_KIND = [
    "test_add",
    "test_attention_4d",
    "test_compress_0",
    "test_identity_opt",
    "test_identity_sequence",
    "test_loop11",
    "test_lstm_defaults",
    "test_sequence_map_identity_1_sequence",
    "test_string_split_basic",
]


@pytest.fixture(scope="module")
def official():
    return {case.name: case for case in onnx.backend.test.loader.load_model_tests(kind="node")}


@pytest.mark.parametrize("element", [TensorProto.BFLOAT16, TensorProto.INT4, TensorProto.FLOAT8E4M3FN])
def test_outputs_of_types_that_numpy_lacks(element):
    cast = helper.make_node("Cast", ["x"], ["y"], to=element)
    model = model_of([cast], [tensor_info("x", element=TensorProto.FLOAT)], ["y"])
    (wanted,) = onnx_torch.prepare(model).run([X - 5])
    with onnx_torch.sandbox.prepare(model) as sandboxed:
        assert same(wanted, sandboxed.run([X - 5])[0])


@pytest.mark.parametrize("name", OF_EACH_KIND)
def test_outputs_are_those_of_a_run_without(official, name):
    model, inputs = official[name].model, list(official[name].data_sets[0][0])
    wanted = onnx_torch.prepare(model, threads=1).run(inputs)
    with onnx_torch.sandbox.prepare(model, threads=1) as sandboxed:
        found = sandboxed.run(inputs)
    assert found._fields == wanted._fields
    assert all(map(same, wanted, found))


def test_a_model_runs_again_and_again_and_names_its_values(tmp_path):
    onnx.save(product(), tmp_path / "net.onnx")
    with onnx_torch.sandbox.prepare(tmp_path / "net.onnx", threads=2) as model:
        rep = onnx_torch.prepare(product())
        assert (model.inputs, model.outputs) == (rep.inputs, rep.outputs)
        for width in (1, 5, 3):
            x = np.ones((4, width), np.float32)
            np.testing.assert_array_equal(model.run({"x": x})["z"], x @ x.T)
        assert [value.shape for value in model.run([X], output_names=["y", "x"])] == [(3, 4), (4, 3)]


def test_outputs_are_the_callers_own():
    with onnx_torch.sandbox.prepare(product()) as model:
        (first,) = model.run([X])
        first += 1
        np.testing.assert_array_equal(model.run([X])[0], X @ X.T)


def test_errors_are_those_of_the_package_and_the_model_goes_on():
    with onnx_torch.sandbox.prepare(op_model("Reshape", [X, np.array([2, 6])])) as model:
        with pytest.raises(RunError, match="Reshape") as failed:
            model.run([X, np.array([5])])
        assert (failed.value.op_type, failed.value.domain) == ("Reshape", "")
        with pytest.raises(InputError, match="2 inputs"):
            model.run([X])
        with pytest.raises(InputError, match="cannot be passed"):
            model.run([np.zeros(2, "datetime64[s]"), np.array([5])])
        assert model.run([X, np.array([2, 6])])[0].shape == (2, 6)


def test_a_model_that_is_none_is_refused(tmp_path):
    with pytest.raises(InvalidModelError):
        onnx_torch.sandbox.prepare(b"no model")
    with pytest.raises(InvalidModelError, match=r"missing\.onnx"):
        onnx_torch.sandbox.prepare(tmp_path / "missing.onnx")
    with pytest.raises(DeviceError, match="on the CPU only"):
        onnx_torch.sandbox.prepare(product(), "CUDA:0")
    with pytest.raises(InputError, match='there is no limit "minutes"'):
        onnx_torch.sandbox.prepare(product(), limits={"minutes": 1})


# --- Limits -----------------------------------------------------------------------------------------------------------


def test_a_run_that_takes_too_long_is_stopped():
    with onnx_torch.sandbox.prepare(counting(), limits={"seconds": 0.3}) as model:
        with pytest.raises(StoppedError, match=r"0\.3 seconds that the option limits allows") as stopped:
            model.run([MANY, np.float32([1])])
        assert stopped.value.op_type
        assert model.run([np.array(3), np.float32([1])])[0].tolist() == [-1]


def test_all_limits_hold():
    with onnx_torch.sandbox.prepare(counting(), limits={"max_iterations": 10}) as model:
        with pytest.raises(StoppedError, match="more than the 10 iterations"):
            model.run([np.array(11), np.float32([1])])
        assert model.run([np.array(9), np.float32([1])])[0].tolist() == [-1]
    with pytest.raises(StoppedError, match="prepare_seconds"):
        onnx_torch.sandbox.prepare(product(), limits={"prepare_seconds": 1e-9})


def test_a_process_that_does_not_answer_is_killed():
    with onnx_torch.sandbox.prepare(product(), limits={"seconds": 0.1}) as model:
        os.kill(model._process.pid, signal.SIGSTOP)
        start = time.perf_counter()
        with pytest.raises(StoppedError, match=r"took more than 0\.1 seconds, and was killed"):
            model.run([X])
        assert time.perf_counter() - start < 10
        assert model._process.poll() is not None


def test_memory_is_limited():
    with onnx_torch.sandbox.prepare(filling(), limits={"memory": 1e8}) as model:
        with pytest.raises(Error, match="ConstantOfShape.*(not enough memory|the option limits)"):
            model.run([np.array([10**9])])
        assert model.run([np.array([3])])[0].tolist() == [0, 0, 0]


def test_a_model_that_is_too_large_is_refused():
    weight = onnx.numpy_helper.from_array(np.ones(10_000_000, np.float32), "w")
    model = model_of(
        [helper.make_node("Add", ["x", "w"], ["y"])],
        [tensor_info("x", element=TensorProto.FLOAT)],
        ["y"],
        initializer=[weight],
    )
    with pytest.raises(Error):
        onnx_torch.sandbox.prepare(model, limits={"memory": 2e7})
    with onnx_torch.sandbox.prepare(model, limits={"memory": 4e8}) as model:
        assert model.run([np.float32([1])])[0][0] == 2


# --- Deaths -----------------------------------------------------------------------------------------------------------


def test_the_death_of_the_process_is_an_error():
    with onnx_torch.sandbox.prepare(product()) as model:
        os.kill(model._process.pid, signal.SIGSEGV)
        with pytest.raises(Error, match=r"has ended \(SIGSEGV\); prepare the model anew"):
            model.run([X])
        with pytest.raises(Error, match="prepare the model anew"):
            model.run([X])


def test_the_process_ends_with_the_object():
    model = onnx_torch.sandbox.prepare(product())
    process = model._process
    assert process.poll() is None
    del model
    assert process.poll() is not None


def test_the_process_ends_with_the_program():
    script = """if True:
        import os, onnx, sys, onnx_torch.sandbox
        model = onnx_torch.sandbox.prepare(onnx.load_model_from_string(sys.stdin.buffer.read()))
        print(model._process.pid, flush=True)
        os._exit(0)
    """
    made = subprocess.run(
        [sys.executable, "-c", script], input=product().SerializeToString(), capture_output=True, check=True
    )
    process = int(made.stdout)
    for _ in range(100):
        if state(process) in "ZX":
            return
        time.sleep(0.1)
    pytest.fail("it goes on")


def state(process):
    """Gives the state of a process as the kernel tells it: Z and X are those of processes that have ended."""
    try:
        with open(f"/proc/{process}/stat") as stat:
            return stat.read().rpartition(")")[2].split()[0]
    except FileNotFoundError:
        return "X"


# --- What the process can do no more ----------------------------------------------------------------------------------

ATTEMPTS = {  # what Python is to do, by what that is
    "read a file elsewhere": "open('/etc/passwd').read()",
    "list a folder elsewhere": "os.listdir('/')",
    "write a file": "open(os.path.join(folder, 'new'), 'w')",
    "change a file": "open(os.path.join(folder, 'file'), 'r+')",
    "cut a file": "os.truncate(os.path.join(folder, 'file'), 0)",
    "rename a file": "os.rename(os.path.join(folder, 'file'), os.path.join(folder, 'other'))",
    "remove a file": "os.remove(os.path.join(folder, 'file'))",
    "make a link": "os.symlink('/etc/passwd', os.path.join(folder, 'link'))",
    "open a socket": "socket.socket()",
    "open a local socket": "socket.socketpair()",
    "start a program": "os.execv('/bin/true', ['true'])",
    "start a process": "os.fork()",
    "signal its parent": "os.kill(os.getppid(), 0)",
    "look into its parent": "open(f'/proc/{os.getppid()}/environ').read()",
    "take more memory": "bytearray(2 * memory)",
    "lift its limit": "resource.setrlimit(resource.RLIMIT_DATA, (-1, -1))",
    "use other names of the kernel": "ctypes.CDLL(None, use_errno=True).unshare(0x10000000) and 1 / 0",
}
OF_LANDLOCK = {"read a file elsewhere", "list a folder elsewhere", "look into its parent"}
OF_SECCOMP = ATTEMPTS.keys() - OF_LANDLOCK - {"take more memory", "lift its limit"}
ALLOWED = {
    "read the folder": "open(os.path.join(folder, 'file')).read()",
    "list the folder": "os.listdir(folder)",
    "begin a thread": "thread()",
    "take some memory": "bytearray(memory // 2)",
    "ask for the time": "time.time()",
    "draw a random number": "os.urandom(8)",
}
SCRIPT = """if True:
    import ctypes, json, os, resource, socket, sys, threading, time
    from onnx_torch._sandbox.confinement import confine

    def thread():
        started = threading.Thread(target=lambda: None)
        started.start()
        started.join()

    def outcome(attempt):
        try:
            eval(attempt)
            return ""
        except BaseException as error:
            return type(error).__name__

    folder, memory, attempts = sys.argv[1], int(sys.argv[2]), json.loads(sys.argv[3])
    measures = confine([folder], memory)
    print(json.dumps([measures, {name: outcome(attempt) for name, attempt in attempts.items()}]))
"""


@pytest.fixture(scope="module")
def outcomes(tmp_path_factory):
    """Gives what came of each attempt of a confined process, and the measures that it got."""
    folder = tmp_path_factory.mktemp("model")
    (folder / "file").write_text("something")
    attempts = json.dumps(ATTEMPTS | ALLOWED)
    command = [sys.executable, "-c", SCRIPT, str(folder), str(50_000_000), attempts]
    environment = {**os.environ, "OPENBLAS_NUM_THREADS": "1"}
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=True)
    measures, found = json.loads(done.stdout)
    return found, {measure.split()[0].rstrip(":") for measure in measures}


def test_all_measures_are_taken_that_this_kernel_has(outcomes):
    assert outcomes[1] == {"limits", *CONFINED}


@pytest.mark.parametrize("attempt", ATTEMPTS)
def test_a_confined_process_cannot(outcomes, attempt):
    if attempt in OF_LANDLOCK and not HAS_LANDLOCK:
        pytest.skip("this kernel has no Landlock")
    if attempt in OF_SECCOMP and not HAS_SECCOMP:
        pytest.skip("this kernel has no seccomp")
    assert outcomes[0][attempt] in (
        *("PermissionError", "FileNotFoundError", "MemoryError", "ValueError", "ZeroDivisionError"),
    )


@pytest.mark.parametrize("attempt", ALLOWED)
def test_a_confined_process_can_still(outcomes, attempt):
    assert outcomes[0][attempt] == ""


def test_the_measures_are_told():
    with onnx_torch.sandbox.prepare(product(), limits={"memory": 1e9}) as model:
        assert {measure.split()[0].rstrip(":") for measure in model.measures} >= CONFINED
        assert any("1000 MB" in measure for measure in model.measures)


def test_the_environment_is_not_passed_on(monkeypatch):
    monkeypatch.setenv("TOKEN", "a secret")
    monkeypatch.setenv("OMP_NUM_THREADS", "2")
    with onnx_torch.sandbox.prepare(product()) as model, open(f"/proc/{model._process.pid}/environ") as environment:
        names = {pair.partition("=")[0] for pair in environment.read().split("\0")}
    assert "OMP_NUM_THREADS" in names
    assert "TOKEN" not in names


def external(location):
    tensor = TensorProto(name="w", data_type=TensorProto.FLOAT, dims=[2], data_location=TensorProto.EXTERNAL)
    tensor.external_data.add(key="location", value=location)
    x = tensor_info("x", element=TensorProto.FLOAT)
    return model_of([helper.make_node("Add", ["x", "w"], ["y"])], [x], ["y"], initializer=[tensor])


def test_external_data_is_read_from_the_models_folder(tmp_path):
    np.float32([1, 2]).tofile(tmp_path / "weights")
    onnx.save(external("weights"), tmp_path / "net.onnx")
    with onnx_torch.sandbox.prepare(tmp_path / "net.onnx") as model:
        assert model.run([np.float32([1, 1])])[0].tolist() == [2, 3]
    with onnx_torch.sandbox.prepare(external("weights"), base_dir=tmp_path) as model:
        assert model.run([np.float32([1, 1])])[0].tolist() == [2, 3]
    with pytest.raises(InvalidModelError):
        onnx_torch.sandbox.prepare(external("weights"))


# --- Answers that nobody trusts ---------------------------------------------------------------------------------------


def round_trip(value):
    arrays = []
    described = describe(value, arrays)
    with shared_memory(size(arrays)) as (memory, _):
        place(arrays, memory)
        return restore(json.loads(json.dumps(described)), memory)


@pytest.mark.parametrize(
    "value",
    [
        None,
        3,
        "text",
        np.float32([[1, 2], [3, 4]]),
        np.zeros((0, 3), np.int64),
        np.array(5, np.uint8),
        np.array([1, 2], ml_dtypes.bfloat16),
        np.array([1, -2, 3], ml_dtypes.int4),
        np.array([["ä", ""]], object),
        [np.float32([1]), [np.float64([2, 3])]],
        {"a": np.float32([1]), "b": None},
    ],
    ids=str,
)
def test_values_arrive_as_they_were(value):
    found = round_trip(value)
    assert same([value], [found]) if not isinstance(value, dict) else list(found) == list(value)


ARRAY = {"dtype": "float32", "shape": [4], "offset": 0}


@pytest.mark.parametrize(
    "described",
    [
        [],
        3,
        {},
        {"list": 3},
        {"map": [{"list": [{"plain": 1}]}, {"list": []}]},
        {"plain": {}},
        {**ARRAY, "shape": [17]},
        {**ARRAY, "shape": [-1]},
        {**ARRAY, "shape": [2**40, 2**40]},
        {**ARRAY, "shape": [1.5]},
        {**ARRAY, "shape": "4"},
        {**ARRAY, "offset": 64},
        {**ARRAY, "offset": -64},
        {**ARRAY, "offset": 1},
        {**ARRAY, "offset": True},
        {**ARRAY, "dtype": "object"},
        {**ARRAY, "dtype": "O"},
        {**ARRAY, "dtype": ["float32"]},
        {"texts": ["a"], "shape": [2]},
    ],
    ids=str,
)
def test_a_wrong_description_is_refused(described):
    with shared_memory(64) as (memory, _), pytest.raises(ValueError, match="no value|array|shape|into|zip"):
        restore(described, memory)


@pytest.mark.parametrize(
    "sent",
    [struct.pack("<Q", 2**40), struct.pack("<Q", 3) + b"{}}", struct.pack("<Q", 100_000) + b"[" * 100_000],
    ids=["too long", "no JSON", "nested"],
)
def test_a_wrong_message_is_refused(sent):
    ours, theirs = socket.socketpair()
    with ours, theirs:
        theirs.sendall(sent)
        with pytest.raises(ValueError):  # noqa: PT011  # json's and ours
            Channel(ours).receive(5)


@pytest.mark.parametrize(
    "answer",
    [
        [],
        {"values": {"list": []}, "bytes": -1},
        {"values": {"list": []}, "bytes": 2**62},
        {"values": {"list": []}, "bytes": "64"},
        {"values": {"list": []}},
        {"values": {"list": []}, "bytes": 64},
        {"values": {"list": [{**ARRAY, "shape": [1000]}]}, "bytes": 64},
    ],
    ids=str,
)
def test_a_process_that_lies_is_ended(monkeypatch, answer):
    with onnx_torch.sandbox.prepare(product(), limits={"memory": None}) as model:
        answers = iter([answer, {}])
        monkeypatch.setattr(Channel, "receive", lambda self, seconds: next(answers))
        with pytest.raises(Error, match="the process of the sandbox"):
            model.run([X])
        assert model._process.poll() is not None


def test_a_process_that_lies_of_the_model_is_ended(monkeypatch):
    answers = iter([{"measures": []}, {"inputs": 3}])
    monkeypatch.setattr(Channel, "receive", lambda self, seconds: next(answers))
    with pytest.raises(Error, match="no inputs and outputs"):
        onnx_torch.sandbox.prepare(product())


def test_nobody_can_cut_the_memory_that_is_shared():
    with shared_memory(1000) as (_, descriptor), pytest.raises(PermissionError):
        os.ftruncate(descriptor, 10)
