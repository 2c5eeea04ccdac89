"""What fails around the library: allocations, and files that cannot be written or read."""

import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import parser

import onnx_torch

ROOT = Path(__file__).resolve().parents[2]
# oneDNN, and TorchScript with a loop, end the process where they find no memory for a description or a set: the bytes
# that an allocation must have to fail while such a model is prepared.
LEAST = {"product": 768, "loop": 256}
STEP = int(os.environ.get("ONNX_TORCH_FAULT_STEP", "0"))  # every so manieth allocation fails; 0: a sample

MODELS = {
    "chain": """<ir_version: 10, opset_import: ["": 21]> chain (float[300] x) => (float[300] z)
        { y = Relu(x)  w = Sin(y)  v = Add(w, x)  z = Neg(v) }""",
    "product": """<ir_version: 10, opset_import: ["": 21]> product (float[1, 300] x) => (float[1, 300] z)
        { a = MatMul(x, w)  b = MatMul(a, w)  y = MatMul(b, w)  z = Softmax(y) }""",
    "loop": """<ir_version: 10, opset_import: ["": 21]> loop (float[300] x) => (float[300] y) {
        three = Constant <value = int64 {3}> ()
        always = Constant <value = bool {1}> ()
        y = Loop (three, always, x) <body = each (int64 i, bool on, float[300] a) => (bool on2, float[300] b) {
            on2 = Identity (on)
            b = Sin (a)
        }>
    }""",
    "text": """<ir_version: 10, opset_import: ["": 21]> text (string[300] x) => (string[300] y)
        { y = StringConcat(x, x) }""",
}
FEEDS = {
    "chain": np.ones(300, np.float32),
    "product": np.ones((1, 300), np.float32),
    "loop": np.ones(300, np.float32),
    "text": np.array(["a", "b", "c"] * 100, object),
}
ALLOCATIONS = """if True:
    import ctypes, sys
    import numpy as np
    import onnx
    import onnx_torch

    fail = ctypes.CDLL(None).fail_allocation
    fail.argtypes, fail.restype = [ctypes.c_long, ctypes.c_size_t], ctypes.c_long
    path, feeds, what = sys.argv[1], np.load(sys.argv[2], allow_pickle=True), sys.argv[3]
    step, least = map(int, sys.argv[4:])
    rep = onnx_torch.prepare(path)
    expected = rep.run([feeds])[0]
    work = {
        "load": lambda: onnx_torch.prepare(path),
        "prepare": lambda: onnx_torch.prepare(open(path, "rb").read()),
        "run": lambda: rep.run([feeds]),
    }[what]
    work()
    n, failures, left = 1, 0, 0
    while left == 0:
        fail(n, least)
        try:
            work()
        except (RuntimeError, MemoryError):
            failures += 1
        left = fail(0, 0)
        np.testing.assert_array_equal(rep.run([feeds])[0], expected)
        n += step
    again = onnx_torch.prepare(path).run([feeds])[0]
    np.testing.assert_array_equal(again, expected)
    print(n, failures)
"""


def model_of(name):
    model = parser.parse_model(MODELS[name])
    if name == "product":
        weights = onnx.helper.make_tensor("w", onnx.TensorProto.FLOAT, [300, 300], b"\1" * 360_000, raw=True)
        model.graph.initializer.append(weights)
    return model


@pytest.fixture(scope="module")
def failing(tmp_path_factory):
    library = tmp_path_factory.mktemp("faults") / "allocations.so"
    source = ROOT / "tests" / "faults" / "allocations.c"
    subprocess.run(["cc", "-O1", "-shared", "-fPIC", str(source), "-o", str(library)], check=True)
    return library


@pytest.mark.parametrize("what", ["load", "prepare", "run"])
@pytest.mark.parametrize("model", MODELS)
def test_an_allocation_that_fails_is_an_error(model, what, failing, tmp_path):
    """Whichever it is: an exception comes out, or nothing where it could be done without; and all works afterwards."""
    path, feeds = tmp_path / "model.onnx", tmp_path / "feeds.npy"
    onnx.save(model_of(model), path)
    np.save(feeds, FEEDS[model], allow_pickle=True)
    least = 0 if what == "run" else LEAST.get(model, 0)
    step = STEP or (1 if what == "run" or least else 61)
    done = subprocess.run(
        [sys.executable, "-c", ALLOCATIONS, str(path), str(feeds), what, str(step), str(least)],
        env={**os.environ, "LD_PRELOAD": str(failing), "OMP_NUM_THREADS": "1"},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    tried, failures = map(int, done.stdout.split())
    assert tried > 10 and failures > 0


WRITERS = {
    "save": "rep.save(file)",
    "save_torchscript": "onnx_torch.to_torchscript(model, file)",
    "update_initializers": "onnx_torch.update_initializers(model, onnx_torch.to_torchscript(model), file)",
    "extract": "save_model(model, file)",
    "save_trace": "profile.save_trace(file)",
    "save_picture": "profile.save_picture(str(file) + '.html')",
}
FULL_DISK = """if True:
    import resource, sys
    import numpy as np
    import onnx
    import onnx_torch
    from pathlib import Path
    from onnx_torch._models.files import save_model

    model = onnx.load(sys.argv[1])
    rep = onnx_torch.prepare(model)
    profile = rep.profile([np.ones((1, 300), np.float32)], runs=1)
    file = Path(sys.argv[2])
    onnx_torch.to_torchscript(model)
    resource.setrlimit(resource.RLIMIT_FSIZE, (50, 50))
    try:
        %s
    except onnx_torch.FileError as error:
        print(isinstance(error, OSError), error)
"""


@pytest.mark.parametrize("writer", WRITERS)
def test_a_full_disk_is_an_error_that_names_the_file(writer, tmp_path):
    path, file = tmp_path / "model.onnx", tmp_path / "written"
    onnx.save(model_of("product"), path)
    done = subprocess.run(
        [sys.executable, "-c", FULL_DISK % WRITERS[writer], str(path), str(file)],
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout.startswith(f"True cannot write {file}") and done.stdout.endswith(": File too large\n")
    assert not file.with_name("written.part").exists()


def test_a_device_that_is_full():
    with pytest.raises(onnx_torch.FileError, match="cannot write /dev/full: No space left on device"):
        onnx_torch.to_torchscript(model_of("chain"), "/dev/full")


def test_what_cannot_be_read_is_named(tmp_path):
    """A folder opens, and cannot be read."""
    with pytest.raises(onnx_torch.InvalidModelError, match=str(tmp_path)):
        onnx_torch.prepare(tmp_path)
    with pytest.raises(onnx_torch.InvalidModelError, match=str(tmp_path)):
        onnx_torch.load(tmp_path)
    with pytest.raises(onnx_torch.InvalidModelError, match="/proc/self/mem"):
        onnx_torch.prepare("/proc/self/mem")
