"""The modules that an import waits for: not Python's torch before it is needed, whichever is imported first."""

from __future__ import annotations

import ast
import keyword
import os
import re
import subprocess
import sys
import textwrap
from pathlib import Path

import numpy as np
import onnx
import pytest
import torch
from onnx import parser

import onnx_torch
from onnx_torch import _build_info
from onnx_torch._pytorch import names, python_code
from onnx_torch._versions import minor_release

MODEL = """<ir_version: 10, opset_import: ["": 21]> g (float[N, 3, 8, 8] x) => (float[N, 4, 8, 8] y) <
    float[4, 3, 3, 3] w = {WEIGHTS}> { c = Conv <pads = [1, 1, 1, 1]> (x, w)  y = Relu(c) }""".replace(
    "WEIGHTS", ", ".join(f"{i % 7 / 7 - 0.4:.3f}" for i in range(108))
)
TORCH_CUDA = Path(torch.__file__).with_name("lib") / "libtorch_cuda.so"

# The beginning of the scripts below.
BEGIN = """
import sys, threading
import numpy as np
X = np.linspace(-1, 1, 192, dtype=np.float32).reshape(1, 3, 8, 8)

def libraries(part):
    with open("/proc/self/maps") as maps:
        return sorted({line.split()[-1] for line in maps if part in line.rsplit("/", 1)[-1]})
"""
WITHOUT_TORCH = """
assert "torch" not in sys.modules
assert not libraries("libtorch_python") and not libraries("libtorch_cuda."), libraries("libtorch")
"""


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("import") / "model.onnx"
    onnx.save(parser.parse_model(MODEL), path)
    return path


def run(script: str, *arguments: object, **environment: str) -> str:
    """Gives what a script prints in a process of its own."""
    command = [sys.executable, "-c", BEGIN + textwrap.dedent(script), *map(str, arguments)]
    done = subprocess.run(command, capture_output=True, text=True, env={**os.environ, **environment})
    assert done.returncode == 0, done.stderr
    return done.stdout


# --- Without torch ----------------------------------------------------------------------------------------------------

WAYS = {
    "import": "import onnx_torch",
    "prepare and run": """
        import onnx_torch
        (y,) = onnx_torch.prepare(sys.argv[1]).run({"x": X})
        assert type(y) is np.ndarray
        (y,) = onnx_torch.prepare(open(sys.argv[1], "rb").read(), optimize=False).run([X.tolist()], out=y)
        """,
    "save and load": """
        import onnx_torch, tempfile
        with tempfile.TemporaryDirectory() as folder:
            onnx_torch.prepare(sys.argv[1], shapes={"N": 1}).save(folder + "/model.bin")
            assert onnx_torch.load(folder + "/model.bin").run([X])[0].shape == (1, 4, 8, 8)
        """,
    "profile, compare, replica": """
        import onnx_torch
        rep = onnx_torch.prepare(sys.argv[1])
        rep.profile([X], runs=1), rep.placement(), rep.graphs(), rep.replica(threads=1).run([X])
        assert onnx_torch.compare(sys.argv[1], {"x": X}, engines=("onnx_torch", "reference"))
        """,
    "session": """
        import onnx_torch
        with onnx_torch.compat.install():
            import onnxruntime
        session = onnxruntime.InferenceSession(sys.argv[1], onnxruntime.SessionOptions())
        assert [value.name for value in session.get_inputs()] == ["x"]
        (y,) = session.run(["y"], {"x": X})
        """,
    "all of a session": """
        import onnx_torch
        with onnx_torch.compat.install():
            import onnxruntime
        options = onnxruntime.SessionOptions()
        options.enable_profiling = True
        options.profile_file_prefix = sys.argv[1]
        session = onnxruntime.InferenceSession(sys.argv[1], options, providers=onnxruntime.get_available_providers())
        (y,) = session.run(None, {"x": X})
        session.end_profiling()
        binding = session.io_binding()
        binding.bind_cpu_input("x", X)
        binding.bind_output("y")
        session.run_with_iobinding(binding)
        assert (binding.copy_outputs_to_cpu()[0] == y).all()
        value = onnxruntime.OrtValue.ortvalue_from_numpy(X)
        session.run_with_ort_values(None, {"x": value})
        onnxruntime.set_seed(1), onnxruntime.get_device(), onnxruntime.get_ep_devices(), onnxruntime.get_build_info()
        """,
    "an operator of torch's own": """
        import onnx_torch
        onnx_torch.register_op("my.domain", "Erfc", "aten::special_erfc")
        """,
}


@pytest.mark.parametrize("way", ["import", "prepare and run", "session"])
def test_onnx_is_not_imported(way: str, model: Path) -> None:
    """onnx is not imported, as that takes as long as to load a small model."""
    without_onnx = '\nassert not {"onnx", "google.protobuf"} & sys.modules.keys()'
    run(textwrap.dedent(WAYS[way]) + without_onnx, model)


@pytest.mark.parametrize("way", WAYS)
def test_torch_is_not_imported(way: str, model: Path) -> None:
    run(textwrap.dedent(WAYS[way]) + WITHOUT_TORCH, model)


def test_no_official_case_imports_torch() -> None:
    """No run of a case imports torch, with its sizes known and open."""
    script = """
        sys.path.append(sys.argv[1])
        import onnx_torch
        from official import node_cases, with_symbolic_dims
        for case in node_cases():
            for variant in filter(None, (case, with_symbolic_dims(case))):
                rep = onnx_torch.prepare(variant.model)
                for inputs, _ in variant.data_sets:
                    for _ in range(3):
                        rep.run(inputs)
                assert "torch" not in sys.modules, variant.name
        """
    run(textwrap.dedent(script) + WITHOUT_TORCH, Path(__file__).parent)


@pytest.mark.parametrize(
    "arguments",
    [
        "info MODEL",
        "check MODEL",
        "run MODEL --shape x=1x3x8x8",
        "show MODEL",
        "show MODEL --placement",
        "profile MODEL --runs 1 --shape x=1x3x8x8",
        "compare MODEL --engine onnx_torch --engine reference --shape x=1x3x8x8",
        "bench MODEL --rounds 1 --runs 1 --shape x=1x3x8x8 --engine onnx_torch --engine reference",
        "extract MODEL FOLDER/part.onnx --outputs c",
        "convert MODEL FOLDER/model.pt",
        "convert MODEL FOLDER/repository --triton",
        "coverage",
        "batch ROWS --to FOLDER/out.parquet --engine local --workers 1 MODEL",
        "--version",
    ],
)
def test_no_command_imports_torch(arguments: str, model: Path, tmp_path: Path) -> None:
    np.save(tmp_path / "rows.npy", np.ones((5, 3, 8, 8), np.float32))
    places = {"MODEL": str(model), "ROWS": str(tmp_path / "rows.npy"), "FOLDER": str(tmp_path)}
    given = [re.sub("MODEL|ROWS|FOLDER", lambda found: places[found[0]], word) for word in arguments.split()]
    if given[0] == "batch":  # the model comes first
        given.insert(1, given.pop())
    script = """
        import onnx_torch_cli
        try:
            code = onnx_torch_cli.main()
        except SystemExit as end:
            code = end.code
        assert not code, code
        """
    run(textwrap.dedent(script) + WITHOUT_TORCH, *given)


# --- With torch, in either order --------------------------------------------------------------------------------------

ORDERS = {
    "torch first": "import torch; import onnx_torch",
    "onnx_torch first": "import onnx_torch; import torch",
    "after a run": "import onnx_torch; onnx_torch.prepare(sys.argv[1]).run([X]); import torch",
    "torch when it is needed": "import onnx_torch",
}
TENSORS = """
rep = onnx_torch.prepare(sys.argv[1])
(expected,) = rep.run([X])
(got,) = rep.run([X], output="torch")
import torch
assert type(got) is torch.Tensor and (got.numpy() == expected).all()
(got,) = rep.run([torch.from_numpy(X)])
assert type(got) is torch.Tensor and (got.numpy() == expected).all()
assert onnx_torch.prepare(sys.argv[1]).run([X], out=[got])[0] is got
(got,) = rep.run({"x": onnx_torch.OrtValue.ortvalue_from_numpy(X)})  # which speaks DLPack
assert type(got) is torch.Tensor and (got.numpy() == expected).all()
"""
MODULES = """
import torch
module = onnx_torch.to_module(sys.argv[1])
script = onnx_torch.to_torchscript(sys.argv[1])
expected = onnx_torch.prepare(sys.argv[1]).run([X])[0]
for one in (module, script):
    assert torch.allclose(one(torch.from_numpy(X)), torch.from_numpy(expected), atol=1e-6)
module(torch.from_numpy(X)).sum().backward()
assert module.w.grad.shape == (4, 3, 3, 3)
"""
OPERATORS = """
import torch
from onnx import parser

def scaled(x: torch.Tensor, factor: float = 2.0) -> torch.Tensor:
    if x.numel() == 1:
        raise KeyError("one is too few")
    return x * factor

onnx_torch.register_op("my.domain", "Scaled", scaled)
text = '''<ir_version: 10, opset_import: ["": 21, "my.domain": 1]>
    g (float[N] x) => (float[N] y) { y = my.domain.Scaled <factor = 3.0> (x) }'''
rep = onnx_torch.prepare(parser.parse_model(text))
for ones in (np.ones(2, np.float32), torch.ones(2)):
    assert rep.run([ones])[0].tolist() == [3, 3]
try:
    rep.run([np.ones(1, np.float32)])
except onnx_torch.RunError as error:
    assert "one is too few" in str(error) and error.op_type == "Scaled", error
else:
    raise AssertionError("no error")
"""
THREADS = """
rep = onnx_torch.prepare(sys.argv[1])
(expected,) = rep.run([X])
start, wrong = threading.Barrier(8), []

def work(number):
    start.wait()
    try:
        if number == 0:
            import torch
        for _ in range(20):
            (y,) = rep.run([X], output="torch" if number % 2 else None)
            assert (np.asarray(y) == expected).all()
    except BaseException as error:
        wrong.append(repr(error))

threads = [threading.Thread(target=work, args=(i,)) for i in range(8)]
for thread in threads: thread.start()
for thread in threads: thread.join()
assert not wrong, wrong
"""
ONE_COPY = """
for name in ("libtorch_cpu.", "libc10.", "libtorch_python.", "libgomp", "libonnx_torch_kernels.", "_torch."):
    assert len(libraries(name)) == 1, libraries(name)
"""


@pytest.mark.parametrize(
    "use", [TENSORS, MODULES, OPERATORS, THREADS], ids=["tensors", "modules", "operators", "threads"]
)
@pytest.mark.parametrize("order", ORDERS)
def test_torch_in_either_order(order: str, use: str, model: Path) -> None:
    run(f"{ORDERS[order]}\n{use}\n{ONE_COPY}", model)


# --- CUDA's library ---------------------------------------------------------------------------------------------------

# ATen asks for CUDA in these calls on the CPU, and keeps the answer.
ASKING = """
import onnx_torch
onnx_torch.prepare(sys.argv[1], optimize=False).run([X])
onnx_torch._C.manual_seed(1)
"""
has_cuda_library = pytest.mark.skipif(not TORCH_CUDA.exists(), reason="the torch here is one without CUDA")


@pytest.fixture(scope="module")
def driver(tmp_path_factory: pytest.TempPathFactory) -> str:
    """Makes a folder with what is found as NVIDIA's driver, though there is nothing in it."""
    folder = tmp_path_factory.mktemp("driver")
    compiler = os.environ.get("CXX", "c++")
    subprocess.run(
        [compiler, "-shared", "-xc++", "/dev/null", "-Wl,-soname,libcuda.so.1", "-o", folder / "libcuda.so.1"],
        check=True,
    )
    return os.pathsep.join(filter(None, [str(folder), os.environ.get("LD_LIBRARY_PATH")]))


@pytest.mark.skipif(torch.cuda.is_available(), reason="a CUDA device is there")
def test_without_a_driver_the_library_of_cuda_is_not_loaded(model: Path) -> None:
    refused = """
        for use in (lambda: onnx_torch.prepare(sys.argv[1], "CUDA:0"), lambda: onnx_torch.backend.passes("CUDA:0")):
            try:
                use()
            except onnx_torch.DeviceError as error:
                assert "CUDA:0 is not there: Found no NVIDIA driver on this machine" in str(error), error
            else:
                raise AssertionError("no error")
        assert not onnx_torch.backend.supports_device("CUDA")
        """
    run(ASKING + textwrap.dedent(refused) + WITHOUT_TORCH, model)


@has_cuda_library
def test_with_a_driver_a_process_that_ran_models_on_the_cpu_still_has_cuda(model: Path, driver: str) -> None:
    script = """
        assert libraries("libtorch_cuda.") and "torch" not in sys.modules
        import torch
        try:
            torch.cuda.init()
        except RuntimeError as error:
            assert "without ATen_cuda library" not in str(error), error
        assert len(libraries("libtorch_cuda.")) == 1
        """
    run(ASKING + textwrap.dedent(script), model, LD_LIBRARY_PATH=driver)


@has_cuda_library
def test_the_library_of_cuda_is_not_loaded_before_it_is_asked_for(model: Path, driver: str) -> None:
    script = "import onnx_torch; onnx_torch.prepare(sys.argv[1]).run([X])"
    run(script + WITHOUT_TORCH, model, LD_LIBRARY_PATH=driver)


@has_cuda_library
def test_a_driver_that_does_not_work_is_told(model: Path, driver: str) -> None:
    script = """
        import onnx_torch
        try:
            onnx_torch.prepare(sys.argv[1], "CUDA:0")
        except onnx_torch.DeviceError as error:
            print(error)
        """
    told = run(script, model, LD_LIBRARY_PATH=driver)
    assert told.startswith("the device CUDA:0 ") and "NVIDIA driver on this machine" not in told


# --- Which torch ------------------------------------------------------------------------------------------------------


def folder_of_torch(folder: Path, version: str) -> Path:
    """Makes a module path with a torch that has a version, and no library."""
    (folder / "torch").mkdir()
    (folder / "torch" / "__init__.py").write_text("raise RuntimeError('torch is imported')")
    (folder / "torch" / "version.py").write_text(f"__version__ = '{version}'\n")
    return folder


def test_another_torch_is_refused_without_importing_it(tmp_path: Path) -> None:
    script = """
        sys.path.insert(0, sys.argv[1])
        try:
            import onnx_torch
        except ImportError as error:
            print(error)
        """
    told = run(script, folder_of_torch(tmp_path, "2.1.0+cpu"))
    assert told.startswith(
        f"onnx_torch was built with torch {_build_info.TORCH}, and the torch here is 2.1.0+cpu, whose"
    )


def test_torch_is_imported_where_its_libraries_are_not_found_otherwise(tmp_path: Path) -> None:
    """torch may need libraries that lie in places that torch alone knows."""
    script = """
        sys.path.insert(0, sys.argv[1])
        try:
            import onnx_torch
        except RuntimeError as error:
            print(error)
        """
    needed = minor_release(_build_info.TORCH)
    assert run(script, folder_of_torch(tmp_path, f"{needed}.0")) == "torch is imported\n"


def test_a_folder_called_torch_is_no_torch(tmp_path: Path) -> None:
    (tmp_path / "torch").mkdir()
    script = """
        sys.path[:] = [sys.argv[1], *(path for path in sys.path if "site-packages" not in path)]
        from onnx_torch import _versions
        """
    with pytest.raises(AssertionError, match="ImportError: onnx_torch needs torch .*, which is not installed"):
        run(script, tmp_path)


# --- Names ------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", onnx_torch.__all__)
def test_every_name_is_there(name: str) -> None:
    assert name in dir(onnx_torch)
    assert getattr(onnx_torch, name) is not None


def test_names_that_are_imported_late_are_those_that_types_are_checked_with() -> None:
    (declared,) = (
        node.body
        for node in ast.parse(Path(onnx_torch.__file__).read_text()).body
        if isinstance(node, ast.If) and ast.unparse(node.test) == "TYPE_CHECKING"
    )
    found = {node.module: [alias.name for alias in node.names] for node in declared if isinstance(node, ast.ImportFrom)}
    assert found.pop(None) == ["backend", "compat", "sandbox"]
    assert found == onnx_torch._LAZY


def test_no_late_name_is_that_of_a_module() -> None:
    """A late name is no module's: importing the module would put it in the name's place."""
    modules = {path.stem for path in Path(onnx_torch.__file__).parent.glob("*.py")}
    assert not modules & set(onnx_torch._MODULE_OF)


def test_an_unknown_name_is_an_attribute_error() -> None:
    with pytest.raises(AttributeError, match="module 'onnx_torch' has no attribute 'frobnicate'"):
        _ = onnx_torch.frobnicate


def test_the_names_that_modules_have_are_those_of_torch() -> None:
    """The names are listed in a process of its own, as other packages give torch's modules more names."""
    listed = "import torch\nprint(*dir(torch.nn.Module()), *dir(torch.jit._script.RecursiveScriptModule))"
    there = {*keyword.kwlist, *run(listed).split()}
    assert {name for name in there if not names._DUNDER.fullmatch(name)} <= names._ATTRIBUTES
    assert set(python_code._MODULES) <= names.WORDS
