"""The repaired wheel: what is in it, and that it works in an environment that has nothing else of ours.

`./dev wheel` builds the wheel and runs this with its path in ONNX_TORCH_WHEEL. The environment is new; only torch and
the other requirements are taken from the one that runs the tests, through a .pth file, because torch alone is 5 GB.
"""

import email
import importlib.metadata
import json
import os
import re
import subprocess
import sys
import sysconfig
import zipfile
from pathlib import Path

import pytest

WHEEL = Path(os.environ["ONNX_TORCH_WHEEL"]).resolve()
FOREIGN = re.compile(r"lib(torch|c10|shm|caffe2|gomp|iomp|omp|mkl|cuda|cu[a-z]|nv|nccl)|libstdc\+\+|libgcc|libc\.so")
LINKED = {
    "libdnnl",
    "libprotobuf-lite",
    "libre2",
    "libutf8proc",
    "libjpeg",
    "libpng16",
    "libwebp",
    "libtiff",
    "libopenjp2",
}
HERE = Path(__file__).resolve().parent
ROOT = HERE.parents[1]
VERSION = re.search(r"project\(onnx_torch VERSION ([0-9.]+)", (ROOT / "CMakeLists.txt").read_text())[1]


@pytest.fixture(scope="module")
def names():
    with zipfile.ZipFile(WHEEL) as wheel:
        return wheel.namelist()


def text_of(pattern):
    with zipfile.ZipFile(WHEEL) as wheel:
        (name,) = (name for name in wheel.namelist() if re.fullmatch(pattern, name))
        return wheel.read(name).decode()


def libraries(names):
    """Lists the bundled libraries, without the hash that auditwheel put into their names."""
    paths = (name.removeprefix("onnx_torch.libs/") for name in names if name.startswith("onnx_torch.libs/lib"))
    return {re.sub(r"-[0-9a-f]{8}\.so.*", "", path) for path in paths}


def test_nothing_of_torch_is_inside(names):
    assert not [name for name in names if FOREIGN.match(name.rsplit("/", 1)[-1])]


def test_the_libraries_that_torch_does_not_bring_are_inside(names):
    bundled = libraries(names)
    assert bundled >= LINKED
    licences = [name for name in names if re.fullmatch(r".*\.dist-info/licenses/lib.*\.txt", name)]
    assert len(licences) == len(bundled)


def test_it_is_typed_and_has_every_module(names):
    root = ROOT / "python"
    sources = {
        path.relative_to(root).as_posix()
        for path in root.glob("onnx_torch*/**/*.py*")
        if "__pycache__" not in path.parts
    }
    assert "onnx_torch/py.typed" in names
    assert sources <= set(names)


def test_its_tags_and_requirements():
    tag = re.fullmatch(r"onnx_torch-(.+)-(cp\d+)-\2t?-manylinux_2_\d+_x86_64\.whl", WHEEL.name)
    assert tag and tag[1] == VERSION
    metadata = email.message_from_string(text_of(r"onnx_torch-.*\.dist-info/METADATA"))
    minor = ".".join(importlib.metadata.version("torch").split(".")[:2])
    assert f"torch=={minor}.*" in metadata.get_all("Requires-Dist")


@pytest.fixture(scope="module")
def smoke(tmp_path_factory):
    folder = tmp_path_factory.mktemp("clean")
    environment = folder / "environment"
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", environment], check=True)
    python = environment / "bin" / "python"
    (site,) = environment.glob("lib/python*/site-packages")
    (site / "requirements.pth").write_text(sysconfig.get_path("purelib") + "\n")
    variables = {name: value for name, value in os.environ.items() if name not in ("PYTHONPATH", "LD_LIBRARY_PATH")}
    install = [
        sys.executable,
        "-m",
        "pip",
        "--python",
        python,
        "install",
        "--no-index",
        "--disable-pip-version-check",
        WHEEL,
    ]
    subprocess.run(install, check=True, env=variables)  # with its requirements: they must be there in fitting versions
    run = subprocess.run([python, HERE / "smoke.py"], capture_output=True, text=True, cwd=folder, env=variables)
    assert run.returncode == 0, run.stderr
    command = environment / "bin" / "onnx-torch"
    return {**json.loads(run.stdout), "site": str(site), "python": python, "command": command, "env": variables}


def test_the_package_is_the_wheels(smoke):
    assert smoke["file"].startswith(smoke["site"])
    assert smoke["version"] == VERSION


def test_the_command_is_installed(smoke):
    done = subprocess.run([smoke["command"], "coverage"], capture_output=True, text=True)
    assert done.returncode == 0 and re.search("^Relu  ", done.stdout, re.M), done.stderr


def test_it_passes_its_self_test(smoke):
    done = subprocess.run([smoke["command"], "selftest", "--quick"], capture_output=True, text=True, env=smoke["env"])
    assert done.returncode == 0 and "all is well" in done.stdout, done.stdout + done.stderr


def test_models_run(smoke):
    assert smoke["matmul"] < 1e-4
    assert smoke["re2"] == [False, True]
    assert smoke["utf8proc"] == ["ÀΩ", "42"]
    for mean in smoke["images"].values():
        assert mean == pytest.approx([200, 100, 50], abs=2)
    assert smoke["error"] == "the bytes given are not an ONNX model"
    assert smoke["without_torch"]
    assert smoke["tensor"] == [-1, -1]


def test_threads_run_at_once_and_pythons_lock_stays_off(smoke):
    done = subprocess.run([smoke["python"], HERE / "threads.py"], capture_output=True, text=True, env=smoke["env"])
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout) == {"wrong": [], "locked": not sysconfig.get_config_var("Py_GIL_DISABLED")}


def test_there_is_one_libtorch(smoke):
    (library,) = (path for path in smoke["loaded"] if Path(path).name == "libtorch_cpu.so")
    assert "/torch/lib/" in library and not library.startswith(smoke["site"])


def test_bundled_libraries_are_the_ones_loaded(smoke, names):
    ours = [path for path in smoke["loaded"] if path.startswith(smoke["site"])]
    bundled = {Path(name).name for name in names if ".so" in name}
    assert {Path(path).name for path in ours} == bundled - {"libonnx_torch_cuda.so"}  # it is loaded for CUDA alone
    assert not [
        path for path in smoke["loaded"] if Path(path).name.split(".so")[0] in LINKED
    ]  # the system's libraries have no hash


def test_one_openmp_runtime_is_loaded_and_it_is_torchs(smoke):
    runtimes = [path for path in smoke["loaded"] if re.search(r"/lib(gomp|iomp5?|omp)[.-]", path)]
    assert len(runtimes) == 1, runtimes
    assert "/torch/lib/" in runtimes[0] or "/torch.libs/" in runtimes[0]
