"""The C++ package: installed, found, built against, and run beside the Python package."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
import torch
from onnx import TensorProto, helper, save

import onnx_torch
import test_caches
from models import model_of, op_model

ROOT = Path(__file__).resolve().parents[2]
BUILD = Path(onnx_torch.__file__).absolute().parents[2]  # not resolved: the build tree links to the sources
WORK = BUILD / "cpp_package"
TORCH = Path(torch.__file__).parent
X = np.arange(6, dtype=np.float32).reshape(3, 2)

pytestmark = [
    pytest.mark.skipif(not (BUILD / "CMakeCache.txt").exists(), reason="onnx_torch does not run from a build tree"),
    pytest.mark.skipif(not shutil.which("cmake"), reason="cmake is not there"),
]


def run(*command: str | Path, **options) -> str:
    done = subprocess.run([str(part) for part in command], capture_output=True, text=True, timeout=600, **options)
    assert done.returncode == 0, f"{command} gave {done.returncode}:\n{done.stdout}\n{done.stderr}"
    return done.stdout


def configure(source: Path, name: str, *definitions: str) -> subprocess.CompletedProcess[str]:
    ccache = shutil.which("ccache")
    launcher = [f"-DCMAKE_CXX_COMPILER_LAUNCHER={ccache}"] if ccache else []
    command = ["cmake", "-S", str(source), "-B", str(WORK / name), "-G", "Ninja", *launcher, *definitions]
    return subprocess.run(command, capture_output=True, text=True, timeout=600)


def build(source: Path, name: str, *definitions: str) -> Path:
    configured = configure(source, name, *definitions)
    assert configured.returncode == 0, configured.stderr
    run("cmake", "--build", WORK / name, "--parallel", "2")
    return WORK / name


@pytest.fixture(scope="module")
def prefix() -> Path:
    installed = WORK / "prefix"
    shutil.rmtree(installed, ignore_errors=True)
    run("cmake", "--install", BUILD, "--prefix", installed)
    return installed


def write(file: Path, text: str) -> None:
    """Writes a file, but leaves one that has the text already as it is, so that nothing is built twice."""
    if not file.exists() or file.read_text() != text:
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(text)


# The function that each fragment on the documentation's page becomes, with what it is written about.
FRAGMENT = """
void fragment_%d([[maybe_unused]] const onnxtorch::CompiledModel& model, [[maybe_unused]] at::Tensor x,
                 [[maybe_unused]] at::Tensor y) {
%s}
"""


@pytest.fixture(scope="module")
def documented(prefix: Path) -> Path:
    """Builds the project that docs/cpp_api.md shows."""
    source = WORK / "documented"
    page = (ROOT / "docs" / "cpp_api.md").read_text()
    cmake = re.findall(r"```cmake\n(.*?)```", page, re.DOTALL)
    fragments = []
    for text in re.findall(r"```cpp\n(.*?)```", page, re.DOTALL):
        name = re.match(r"// (\w+\.cpp)\n", text)
        if name:
            write(source / name[1], text)
        else:
            fragments.append(FRAGMENT % (len(fragments), text))
    assert len(cmake) == 1 and len(fragments) >= 4
    headers = "#include <ATen/ATen.h>\n#include <onnx_torch/library.h>\n#include <onnx_torch/model.h>\n"
    write(source / "fragments.cpp", headers + "".join(fragments))
    extra = (
        "add_library(fragments OBJECT fragments.cpp)\ntarget_link_libraries(fragments PRIVATE onnx_torch::onnx_torch)\n"
    )
    write(source / "CMakeLists.txt", cmake[0] + extra)
    return build(source, "documented-build", f"-DCMAKE_PREFIX_PATH={prefix}", "-DCMAKE_CXX_FLAGS=-Wall -Wextra -Werror")


@pytest.fixture(scope="module")
def example(prefix: Path) -> Path:
    """Builds examples/cpp with a torch that lies elsewhere than the one the library was built with."""
    elsewhere = WORK / "elsewhere"
    elsewhere.unlink(missing_ok=True)
    elsewhere.symlink_to(TORCH.parent)  # all of it: torch finds CUDA's libraries beside itself
    return build(
        ROOT / "examples" / "cpp",
        "example-build",
        f"-DCMAKE_PREFIX_PATH={prefix}",
        f"-DLibTorch_ROOT_DIR={elsewhere / 'torch'}",
    )


def assert_classifies(program: Path, folder: Path) -> None:
    """Checks that the example, on the digits that are made into `folder`, prints what Python computes."""
    run(sys.executable, ROOT / "examples" / "cpp" / "make_model.py", folder)
    files = sorted(folder.glob("*.pgm"))
    printed = run(program, folder / "digits.onnx", *files).splitlines()

    pixels = [np.frombuffer(file.read_bytes()[-64:], np.uint8).reshape(8, 8) / np.float32(16) for file in files]
    rep = onnx_torch.prepare(folder / "digits.onnx")
    (probabilities,) = rep.run([np.stack(pixels)])
    assert len(printed) == len(files) == 10
    for line, file, row in zip(printed, files, probabilities, strict=True):
        best = np.argsort(-row)[:3]
        assert line == f"{file}: " + ", ".join(
            f"{rep.metadata['classes'].split()[i]} {100 * float(row[i]):.1f} %" for i in best
        )
    assert sum(line.split(": ")[1][0] == file.stem for line, file in zip(printed, files, strict=True)) >= 8


def test_the_example_prints_what_python_computes(example, tmp_path):
    assert_classifies(example / "classify", tmp_path)


def test_the_example_generates_what_python_generates(example, tmp_path):
    model = test_caches.decoder(test_caches.grouped)
    save(model, tmp_path / "model.onnx")
    lm = onnx_torch.LanguageModel(model)
    prompt = [5, 9, 33]
    for options, arguments in (({}, []), ({"do_sample": True, "seed": 3}, ["--sample", "3"])):
        printed = run(example / "generate", "--max-new-tokens", 12, *arguments, tmp_path / "model.onnx", *prompt)
        assert list(map(int, printed.split())) == lm.generate(prompt, max_new_tokens=12, **options)[3:]
    for wrong, code, message in (
        ([], 2, "usage"),
        (["--beams", 2, tmp_path / "model.onnx", 5], 2, "usage"),
        ([tmp_path / "model.onnx", "w5"], 2, "are numbers"),
        (["absent.onnx", 5], 1, "absent.onnx"),
    ):
        done = subprocess.run([example / "generate", *map(str, wrong)], capture_output=True, text=True)
        assert done.returncode == code and message in done.stderr


def test_the_example_tells_what_is_wrong(example, tmp_path):
    (tmp_path / "no.onnx").write_text("no model")
    (tmp_path / "no.pgm").write_text("no image")
    for arguments, message in (
        ([], "usage"),
        (["absent.onnx", "x.pgm"], "absent.onnx"),
        ([tmp_path / "no.onnx", tmp_path / "no.pgm"], "is not an ONNX model"),
    ):
        done = subprocess.run([example / "classify", *arguments], capture_output=True, text=True)
        assert done.returncode in (1, 2) and message in done.stderr


def run_path(library: Path) -> list[str]:
    """Lists where a library or program says that what it needs lies."""
    listed = run("readelf", "--dynamic", library)
    return [folder for paths in re.findall(r"\(R(?:UN)?PATH\).*\[(.*)\]", listed) for folder in paths.split(":")]


@pytest.mark.skipif(not shutil.which("readelf"), reason="readelf is not there")
def test_the_installed_libraries_name_no_folder_of_the_build_machine(prefix):
    libraries = [library for library in (prefix / "lib").glob("*.so*") if not library.is_symlink()]
    names = {library.name.split(".")[0] for library in libraries}
    assert names - {"libonnx_torch_cuda"} == {"libdnnl", "libonnx_torch", "libonnx_torch_kernels"}
    for library in libraries:
        folders = run_path(library)
        assert folders or library.name.startswith("libdnnl."), library  # libdnnl needs nothing but torch's OpenMP
        assert all(folder.startswith("$ORIGIN") for folder in folders), (library, folders)


@pytest.mark.skipif(not shutil.which("ldd"), reason="ldd is not there")
def test_a_program_loads_the_torch_it_was_built_with(example):
    """A program loads the torch it was built with, and its OpenMP runtime, where torch has one of its own."""
    libraries = WORK / "elsewhere" / "torch" / "lib"
    loaded = dict(re.findall(r"(\S+) => (\S+)", run("ldd", example / "classify")))
    of_torch = {
        library.name for name in ("torch", "torch_cpu", "c10", "gomp*") for library in libraries.glob(f"lib{name}.so*")
    }
    assert {name: loaded[name] for name in of_torch} == {name: str(libraries / name) for name in of_torch}


def domain_model():
    nodes = [
        helper.make_node("Scaled", ["x"], ["s"], domain="my.domain", factor=2.5),
        helper.make_node("Thinned", ["s"], ["rows", "sum"], domain="my.domain", keepdims=1),
    ]
    return model_of(
        nodes,
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, [3, 2])],
        ["rows", "sum"],
        domain="my.domain",
        opset=1,
    )


def test_a_library_of_translators_serves_python(documented):
    onnx_torch.load_library(documented / "libmy_operators.so")
    rows, total = onnx_torch.prepare(domain_model()).run([X])
    np.testing.assert_array_equal(rows, 2.5 * X[::2])
    np.testing.assert_array_equal(total, 2.5 * X[::2].sum(0, keepdims=True))
    with pytest.raises(onnx_torch.InvalidModelError, match=r"my.domain.Scaled.*takes one input"):
        onnx_torch.prepare(op_model("Scaled", [X, X], 1, "my.domain"))


def graphs_model():
    body = helper.make_graph(
        [helper.make_node("Add", ["v", "w"], ["u"])],
        "body",
        [helper.make_tensor_value_info("v", TensorProto.FLOAT, None)],
        [helper.make_tensor_value_info("u", TensorProto.FLOAT, None)],
    )
    nodes = [
        helper.make_node("Repeat", ["x"], ["last", "all"], domain="my.domain", times=3, body=body),
        helper.make_node("Reverse", ["t"], ["r"], domain="my.domain"),
    ]
    inputs = {"x": TensorProto.FLOAT, "w": TensorProto.FLOAT, "t": TensorProto.STRING}
    infos = [helper.make_tensor_value_info(name, element, None) for name, element in inputs.items()]
    return model_of(nodes, infos, ["last", "all", "r"], domain="my.domain", opset=1)


def test_a_library_of_translators_has_loops_and_texts(documented):
    onnx_torch.load_library(documented / "libmy_operators.so")
    w = np.float32([[1, 10]])
    texts = np.array([["abc", ""], ["re", "abc"]], object)
    last, all_, reversed_ = onnx_torch.prepare(graphs_model()).run([X, w, texts])
    np.testing.assert_array_equal(last, X + 3 * w)
    np.testing.assert_array_equal(all_, np.stack([X + (i + 1) * w for i in range(3)]))
    assert reversed_.shape == (2, 2) and reversed_[0, 0] == "cba" and reversed_[0, 1] == ""


def test_a_library_of_translators_serves_cpp(documented, tmp_path):
    save(domain_model(), tmp_path / "model.onnx")
    printed = run(documented / "hello", tmp_path / "model.onnx", documented / "libmy_operators.so")
    assert printed.splitlines() == ["x: tensor(float)", "rows: 10", "sum: 10"]
    without = subprocess.run([documented / "hello", tmp_path / "model.onnx"], capture_output=True, text=True)
    assert without.returncode == 1 and "my.domain.Scaled" in without.stderr


def test_libraries_that_do_not_fit_are_an_error(tmp_path):
    with pytest.raises(onnx_torch.InputError, match=r"no_such\.so"):
        onnx_torch.load_library(tmp_path / "no_such.so")
    with pytest.raises(onnx_torch.InputError, match=r"build it with this release's onnx_torch/translator\.h"):
        onnx_torch.load_library(TORCH / "lib" / "libc10.so")


def test_only_the_cpp_package_is_installed(prefix):
    assert {path.name for path in prefix.iterdir()} == {"include", "lib"}
    assert {path.name for path in (prefix / "include" / "onnx_torch").iterdir()} == {
        path.name for path in (ROOT / "include" / "onnx_torch").iterdir()
    }
    assert (prefix / "lib" / "libonnx_torch.so").exists() and not list(prefix.rglob("_C*"))


def test_the_headers_show_neither_protobuf_nor_torchscript():
    for header in (ROOT / "include" / "onnx_torch").glob("*.h"):
        assert not re.search(r"torch::jit|torch/csrc|onnx::|\.pb\.h|google|IValue", header.read_text()), header.name


def test_the_library_exports_its_interface_alone(prefix):
    if not shutil.which("nm"):
        pytest.skip("nm is not there")
    listed = run("nm", "--dynamic", "--defined-only", "--demangle", prefix / "lib" / "libonnx_torch.so")
    strong = {line.split(" T ")[1] for line in listed.splitlines() if " T " in line}
    classes = "Model|CompiledModel|Data|Outputs|ValueType|LanguageModel|Generation|GenerationState|Layout"
    public = rf"onnxtorch::(({classes})::|(in_memory|load_library|make_ready|operators)\()"
    in_c = set(re.findall(r"\b(onnx_torch_\w+)\(", (ROOT / "include" / "onnx_torch" / "c_api.h").read_text()))
    assert {name for name in strong if not re.match(public, name)} == in_c
    assert len(strong) >= 15
    assert not re.search(r"\bonnx::\w*Proto|google::protobuf", listed)


def find(prefix: Path, tmp_path: Path, *definitions: str) -> subprocess.CompletedProcess[str]:
    project = "cmake_minimum_required(VERSION 3.25)\nproject(find LANGUAGES CXX)\nfind_package(onnx_torch REQUIRED)\n"
    write(WORK / "find" / "CMakeLists.txt", project + 'message(STATUS "torch: ${LibTorch_ROOT_DIR}")\n')
    cache = WORK / "find-build" / "CMakeCache.txt"
    cache.unlink(missing_ok=True)
    return configure(WORK / "find", "find-build", f"-DCMAKE_PREFIX_PATH={prefix}", *definitions)


@pytest.mark.parametrize(
    "definition",
    [
        "",
        f"-DLibTorch_ROOT_DIR={TORCH}",
        f"-DTorch_DIR={TORCH}/share/cmake/Torch",
        f"-DPython_EXECUTABLE={sys.executable}",
    ],
)
def test_find_package_finds_torch(prefix, tmp_path, definition):
    done = find(prefix, tmp_path, *([definition] if definition else []))
    assert done.returncode == 0, done.stderr
    assert os.path.samefile(re.search(r"torch: (.*)", done.stdout)[1], TORCH)


def test_find_package_tells_which_torch_is_wrong(prefix, tmp_path):
    (tmp_path / "lib").mkdir()
    (tmp_path / "version.py").write_text("__version__ = '2.3.4'\n")
    minor = ".".join(torch.__version__.split(".")[:2])
    wanted = (
        f"needs a {minor} release of it, but {tmp_path} is 2.3.4. Install it (python -m pip install 'torch=={minor}.*')"
    )
    done = find(prefix, tmp_path, f"-DLibTorch_ROOT_DIR={tmp_path}")
    assert done.returncode != 0 and wanted in " ".join(done.stderr.split())
    (tmp_path / "version.py").unlink()
    done = find(prefix, tmp_path, f"-DLibTorch_ROOT_DIR={tmp_path}")
    assert done.returncode != 0 and f"needs a {minor} release of it, and found none." in " ".join(done.stderr.split())


def test_find_package_checks_the_version_asked_for(prefix, tmp_path):
    major, minor = map(int, onnx_torch.__version__.split(".")[:2])
    for version, found in ((f"{major}.{minor}", True), (f"{major}.{minor + 1}", False)):
        project = "cmake_minimum_required(VERSION 3.25)\nproject(version LANGUAGES CXX)\n"
        write(WORK / "version" / "CMakeLists.txt", f"{project}find_package(onnx_torch {version} REQUIRED)\n")
        done = configure(WORK / "version", "version-build", f"-DCMAKE_PREFIX_PATH={prefix}")
        assert (done.returncode == 0) == found, done.stderr


@pytest.fixture(scope="module")
def around() -> Path:
    """Configures the example in a project that has onnx_torch as a part."""
    source = ROOT / "examples" / "cpp" / "classify.cpp"
    project = f"""\
cmake_minimum_required(VERSION 3.25)
project(around LANGUAGES CXX)
add_subdirectory("{ROOT}" onnx_torch)
add_executable(classify "{source}")
target_link_libraries(classify PRIVATE onnx_torch::onnx_torch)
"""
    write(WORK / "around" / "CMakeLists.txt", project)
    (WORK / "around-build" / "CMakeCache.txt").unlink(missing_ok=True)
    done = configure(WORK / "around", "around-build", f"-DPython_EXECUTABLE={sys.executable}")
    assert done.returncode == 0, done.stderr
    return WORK / "around-build"


def test_add_subdirectory_gives_what_a_program_needs(around):
    """The program's own source compiles, and everything that the library is made of is there or is made."""
    steps = (around / "build.ninja").read_text()
    assert "onnx_torch_tests" not in steps and "onnx_torch_python" not in steps
    assert re.search(r"^build classify: .*classify\.cpp\.o \|.*libonnx_torch\.so", steps, re.MULTILINE)
    compiled = re.search(r"^build (\S*classify\.cpp\.o):", steps, re.MULTILINE)[1]
    command = run("cmake", "--build", around, "--", "-t", "commands", "-s", compiled)  # and not the library before it
    (around / compiled).parent.mkdir(parents=True, exist_ok=True)
    (around / compiled).unlink(missing_ok=True)
    run("sh", "-c", command, cwd=around)
    assert (around / compiled).exists()
    run("cmake", "--build", around, "--", "-n")
    assert "CMAKE_BUILD_TYPE:STRING=Release" not in (around / "CMakeCache.txt").read_text()  # that is the project's own


@pytest.mark.skipif(
    os.environ.get("ONNX_TORCH_ADD_SUBDIRECTORY") != "build",
    reason="it compiles the whole library once more; ONNX_TORCH_ADD_SUBDIRECTORY=build asks for it",
)
def test_add_subdirectory_builds_the_example(around, tmp_path):
    subprocess.run(["cmake", "--build", around, "--parallel", "2"], check=True)  # no time limit
    assert_classifies(around / "classify", tmp_path)
