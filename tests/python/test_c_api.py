"""The C interface, from a program in C and from ctypes."""

from __future__ import annotations

import re
import subprocess
import sys
import textwrap
from pathlib import Path

import onnx
import pytest

import onnx_torch

ROOT = Path(__file__).resolve().parents[2]
BUILD = Path(onnx_torch.__file__).parents[2]
PROGRAM, LIBRARY = BUILD / "tests" / "cpp" / "onnx_torch_c_program", BUILD / "lib" / "libonnx_torch.so"
HEADER = ROOT / "include" / "onnx_torch" / "c_api.h"

pytestmark = pytest.mark.skipif(not LIBRARY.exists(), reason=f"{LIBRARY} is not built")

MODEL = """
<ir_version: 10, opset_import: ["" : 21]>
g (float[n,3] x, float[1] s) => (float[n,3] y, float[n,3] z) <float[1] s = {2}> { y = Mul(x, s) \n z = Add(y, x) }
"""

# This program runs in a process of its own, which holds this library once.
CTYPES = """
import ctypes, sys
from ctypes import POINTER, byref, c_char_p, c_double, c_int32, c_int64, c_size_t, c_void_p
import numpy as np

lib = ctypes.CDLL(sys.argv[1])
lib.onnx_torch_last_error.restype = c_char_p
lib.onnx_torch_input_count.restype = c_size_t
for name in ("onnx_torch_free", "onnx_torch_free_results"):
    getattr(lib, name).argtypes = [c_void_p]

class Tensor(ctypes.Structure):
    _fields_ = [("name", c_char_p), ("element_type", c_int32), ("rank", c_int32), ("shape", POINTER(c_int64)),
                ("data", c_void_p), ("bytes", c_size_t)]

class Options(ctypes.Structure):
    _fields_ = [("size", c_size_t), ("device", c_char_p), ("threads", c_int32), ("without_passes", c_int32),
                ("seconds", c_double), ("memory", c_double), ("external_dir", c_char_p)]

class AllOptions(Options):
    _fields_ = [(name, c_double) for name in ("max_iterations", "prepare_seconds", "nodes", "constant_bytes")]

class Value(ctypes.Structure):
    _fields_ = [("name", c_char_p), ("type", c_char_p), ("element_type", c_int32), ("has_default", c_int32),
                ("rank", c_int32), ("shape", POINTER(c_int64))]

def load(data, kind=Options, **options):
    model = c_void_p()
    chosen = kind(ctypes.sizeof(kind), **options)
    status = lib.onnx_torch_load_bytes(data, c_size_t(len(data)), byref(chosen), byref(model))
    return status, model

def tensor(array, name=None, element=1):
    shape = (c_int64 * array.ndim)(*array.shape)
    return Tensor(name, element, array.ndim, shape, array.ctypes.data, array.nbytes)

def run(model, inputs, outputs, results=None):
    return lib.onnx_torch_run(model, (Tensor * len(inputs))(*inputs), c_size_t(len(inputs)), outputs,
                              c_size_t(len(outputs)), results)

error = lambda: lib.onnx_torch_last_error().decode()
data = open(sys.argv[2], "rb").read()
x = np.arange(6, dtype=np.float32).reshape(2, 3)
"""


@pytest.fixture
def model(tmp_path) -> Path:
    onnx.save(onnx.parser.parse_model(MODEL), tmp_path / "net.onnx")
    return tmp_path / "net.onnx"


def by_ctypes(program: str, model: Path) -> None:
    source = CTYPES + textwrap.dedent(program)
    command = [sys.executable, "-c", source, str(LIBRARY), str(model)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr


def test_a_program_in_c(model):
    done = subprocess.run([PROGRAM, model], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout.splitlines() == [
        "input x tensor(float) -1 3",
        "input s tensor(float) 1 (may be left out)",
        "output y tensor(float) -1 3",
        "output z tensor(float) -1 3",
        "y: 0 2 4 6 8 10",
        "z: 0 3 6 9 12 15",
    ]


def test_a_program_in_c_is_told_what_is_wrong(tmp_path):
    (tmp_path / "none.onnx").write_bytes(b"no model")
    done = subprocess.run([PROGRAM, tmp_path / "none.onnx"], capture_output=True, text=True, check=False)
    assert done.returncode == 1
    assert "none.onnx" in done.stderr


def test_a_run_by_ctypes(model):
    by_ctypes(
        """
        status, net = load(data)
        assert status == 0 and lib.onnx_torch_input_count(net) == 2, error()
        value = Value()
        assert lib.onnx_torch_output(net, c_size_t(1), byref(value)) == 0
        assert (value.name, value.element_type, value.rank, value.shape[0], value.shape[1]) == (b"z", 1, 2, -1, 3)
        factor, y = np.array([3], np.float32), np.empty((2, 3), np.float32)
        outputs = (Tensor * 1)(tensor(y, b"y"))
        assert run(net, [tensor(factor, b"s"), tensor(x, b"x")], outputs) == 0, error()
        assert (y == 3 * x).all() and outputs[0].bytes == 24
        results = c_void_p()
        outputs = (Tensor * 2)()
        assert run(net, [tensor(x)], outputs, byref(results)) == 0, error()
        z = np.ctypeslib.as_array((ctypes.c_float * 6).from_address(outputs[1].data))
        assert (z == 3 * x.ravel()).all() and outputs[1].shape[0] == 2
        lib.onnx_torch_free_results(results)
        lib.onnx_torch_free(net)
        lib.onnx_torch_free(None)
        """,
        model,
    )


def test_errors_by_ctypes(model):
    by_ctypes(
        """
        assert load(b"no model")[0] == 1 and error()
        assert load(data, device=b"CUDA:99")[0] == 4 and "CUDA:99" in error()
        assert lib.onnx_torch_load(None, None, byref(c_void_p())) == 3 and "path" in error()
        assert lib.onnx_torch_load_bytes(data, c_size_t(len(data)), byref(Options(8)), byref(c_void_p())) == 3
        status, net = load(data)
        assert status == 0
        assert lib.onnx_torch_input(net, c_size_t(2), byref(Value())) == 3
        y = np.empty((2, 3), np.float32)
        good, small = (Tensor * 1)(tensor(y, b"y")), (Tensor * 1)(tensor(y[:1], b"y"))
        assert run(net, [tensor(x)], small) == 3 and "24 bytes" in error(), error()
        assert run(net, [tensor(x, b"nothing")], good) == 3 and "nothing" in error()
        assert run(net, [tensor(x), tensor(x, b"x")], good) == 3 and "twice" in error()
        assert run(net, [tensor(x)], (Tensor * 1)(tensor(y, b"w"))) == 3 and '"w"' in error()
        assert run(net, [tensor(x)], (Tensor * 1)()) == 3 and "results" in error()
        assert run(net, [tensor(x)], (Tensor * 0)()) == 3
        assert run(net, [], good) == 3 and '"x"' in error()
        assert run(net, [tensor(x, element=8)], good) == 2 and "no tensor of numbers" in error()
        short = tensor(x)
        short.bytes = 20
        assert run(net, [short], good) == 3 and "24 bytes" in error()
        assert run(net, [tensor(x.astype(np.int64), element=7)], good) == 3
        assert run(net, [tensor(x[:, :2].copy())], good) != 0
        assert run(net, [tensor(x)], good) == 0 and (y == 2 * x).all()
        assert run(None, [tensor(x)], good) == 3
        """,
        model,
    )


def test_limits_by_ctypes(model):
    """A program that was compiled with the first header hands over fewer of them."""
    by_ctypes(
        """
        status, net = load(data, AllOptions, nodes=1)
        assert status == 6 and "nodes" in error(), (status, error())
        for options in [{"nodes": 100}, {"prepare_seconds": 60, "max_iterations": 5, "constant_bytes": 1e6}]:
            status, net = load(data, AllOptions, **options)
            assert status == 0, error()
            lib.onnx_torch_free(net)
        assert load(data)[0] == 0, error()
        """,
        model,
    )


def test_the_interface_stays_as_it_is():
    """A change here breaks programs that are there: functions and fields may only be added at the end."""
    text = HEADER.read_text()
    assert (
        re.findall(r"^ONNX_TORCH_API .*?(onnx_torch_\w+)\(", text, re.M)
        == (
            "onnx_torch_c_api_version onnx_torch_last_error onnx_torch_load onnx_torch_load_bytes onnx_torch_free "
            "onnx_torch_input_count onnx_torch_output_count onnx_torch_input onnx_torch_output onnx_torch_run "
            "onnx_torch_free_results"
        ).split()
    )
    assert re.findall(r"^  ONNX_TORCH_\w+ = (\d)", text, re.M) == list("01234567")
