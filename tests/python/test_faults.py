"""Faults around the library: files that cannot be written or read."""

import contextlib
import os
import subprocess
import sys
import tempfile
from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

import models
import onnx_torch
from fault_models import model_of
from hostile_models import external_tensor, model_with, written
from onnx_torch.compat.onnxruntime import AdapterFormat, OrtValue
from wrong_models import little_memory

ROOT = Path(__file__).resolve().parents[2]
FAULTS = ROOT / "tests" / "faults"

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


# --- Reads that fail in the midst of a file


PART = 2**21  # elements of 4 bytes, as many as one thread reads of external data at a time
WEIGHT = np.arange(3 * PART, dtype=np.float32)


@pytest.fixture(scope="module")
def reads(tmp_path_factory):
    library = tmp_path_factory.mktemp("faults") / "reads.so"
    subprocess.run(["cc", "-O1", "-shared", "-fPIC", FAULTS / "reads.c", "-o", library], check=True)
    return str(library)


def weighted(**places) -> onnx.ModelProto:
    """Makes a model that gives its weight less one, which lies in it or at a place."""
    tensor = numpy_helper.from_array(WEIGHT, "w")
    if places:
        tensor = external_tensor(**places)
        tensor.dims[:] = WEIGHT.shape
    one = numpy_helper.from_array(np.float32(1), "one")
    return models.model_of([helper.make_node("Sub", ["w", "one"], ["y"])], [], ["y"], initializer=[tensor, one])


def read_as(kind: str, folder: Path) -> tuple[Path, str, list[str]]:
    """Makes files in a folder: gives what is read, the end of the name of the file that holds data, and the readers."""
    if kind == "a model":
        return written(weighted(), folder), "model.onnx", ["prepare", "extract", "session", "info"]
    if kind == "external data":
        WEIGHT.tofile(folder / "weights.bin")
        return written(weighted(location="weights.bin"), folder), "weights.bin", ["prepare", "extract", "session"]
    if kind == "a saved model":
        onnx_torch.prepare(weighted()).save(folder / "saved")
        return folder / "saved", "saved", ["load", "session"]
    adapter = AdapterFormat()
    adapter.set_parameters({"w": OrtValue.ortvalue_from_numpy(WEIGHT)})
    adapter.export_adapter(folder / "adapter")
    return folder / "adapter", "adapter", ["adapter"]


KINDS = ["a model", "external data", "a saved model", "an adapter"]


@pytest.mark.parametrize("early", [False, True], ids=["fails", "ends early"])
@pytest.mark.parametrize("kind", KINDS)
def test_each_read_that_fails_is_an_error(kind, early, reads, tmp_path):
    path, ending, readers = read_as(kind, tmp_path)
    readers = [name for name in readers if not early or name != "info"]  # which tells of what it has read
    done = subprocess.run(
        [sys.executable, FAULTS / "each_read.py", path, ending, str(int(early)), *readers],
        env={**os.environ, "LD_PRELOAD": reads},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    lines = [line.split() for line in done.stdout.splitlines()]
    assert [name for name, *_ in lines] == readers
    for name, turns, failures in lines:
        assert int(turns) > 0
        assert int(failures) > 0 if early or name == "session" else failures == turns


@contextlib.contextmanager
def nobody():
    """Takes from the process what it may do as root, who may read everything."""
    user = os.geteuid()
    if user == 0:
        os.seteuid(65534)
    try:
        yield
    finally:
        os.seteuid(user)


READS = {
    "prepare": onnx_torch.prepare,
    "check": onnx_torch.check,
    "info": onnx_torch.info,
    "extract": onnx_torch.extract,
    "session": onnx_torch.InferenceSession,
    "load": onnx_torch.load,
    "adapter": AdapterFormat.read_adapter,
}


@pytest.fixture
def public():
    """Makes a folder that everybody may look into."""
    with tempfile.TemporaryDirectory() as folder:
        os.chmod(folder, 0o755)
        yield Path(folder)


@pytest.mark.parametrize("kind", KINDS)
def test_a_file_whose_permission_is_taken_is_an_error(kind, public):
    path, ending, readers = read_as(kind, public)
    for name in readers:
        READS[name](str(path))
    taken = public / ending
    for locked, mode in ((taken, 0), (public, 0o644)):
        before = locked.stat().st_mode
        locked.chmod(mode)
        with nobody():
            for name in readers:
                with pytest.raises(onnx_torch.Error, match="Permission denied|No such file|File doesn't exist"):
                    READS[name](str(path))
        locked.chmod(before)
    for name in readers:
        READS[name](str(path))


def test_a_model_that_is_cut_anywhere_is_an_error(tmp_path):
    """The places are of all parts of the file: of the weight, of which the bytes are passed over, and of the rest."""
    x = np.arange(2000, dtype=np.float32)
    model = models.model_of(
        [helper.make_node("Neg", ["w"], ["y"])], [], ["y"], initializer=[numpy_helper.from_array(x, "w")]
    )
    path = written(model, tmp_path)
    whole, read = path.read_bytes(), 0
    for size in [*range(100), *range(100, len(whole) - 100, 97), *range(len(whole) - 100, len(whole))]:
        path.write_bytes(whole[:size])
        try:
            (result,) = onnx_torch.prepare(path).run()
        except onnx_torch.Error:
            continue
        np.testing.assert_array_equal(result, -x)  # what was cut off says nothing about this
        read += 1
    assert read < 5


def test_a_saved_model_that_is_cut_anywhere_is_an_error(tmp_path):
    onnx_torch.prepare(model_of("product")).save(tmp_path / "saved")
    whole = (tmp_path / "saved").read_bytes()
    for size in [*range(100), *range(100, len(whole) - 2000, 997), *range(len(whole) - 2000, len(whole))]:
        (tmp_path / "saved").write_bytes(whole[:size])
        with pytest.raises(onnx_torch.InvalidModelError, match="saved"):
            onnx_torch.load(tmp_path / "saved")


SHORT = Path("/sys/kernel/mm/transparent_hugepage/enabled")


@pytest.mark.skipif(not SHORT.exists(), reason="this system has no such file")
def test_data_in_a_file_that_has_less_than_its_size_says(tmp_path):
    """The kernel's files of one page hold a line; they cannot be mapped either."""
    assert SHORT.stat().st_size > len(SHORT.read_bytes())
    tensor = external_tensor(SHORT.name)
    tensor.data_type, tensor.dims[:] = TensorProto.UINT8, [SHORT.stat().st_size]
    model = model_with(tensor)
    with pytest.raises(onnx_torch.InvalidModelError, match=r"enabled: it ends at \d+, and was longer before"):
        onnx_torch.prepare(model, base_dir=SHORT.parent)
    with pytest.raises(onnx_torch.InvalidModelError, match="enabled: No such device"):
        onnx_torch.prepare(model, base_dir=SHORT.parent, map_external=True)


@pytest.mark.parametrize("mapped", [False, True])
def test_data_in_the_memory_of_the_process(mapped):
    """A file of no size holds no data, whatever reading it would give."""
    address = WEIGHT.ctypes.data
    for places in ({}, {"offset": address}, {"length": 0}, {"offset": address, "length": 0}):
        with pytest.raises(onnx_torch.InvalidModelError, match="mem|bytes"):
            onnx_torch.prepare(model_with(external_tensor("mem", **places)), base_dir="/proc/self", map_external=mapped)


HUGE = 2**42


def test_a_file_with_more_data_than_there_is_memory_is_an_error(tmp_path):
    """Nothing is written to the file, which takes no room on the disk then."""
    with open(tmp_path / "huge", "wb") as file:
        try:
            file.truncate(HUGE)
        except OSError as error:
            pytest.skip(f"no such file can be had: {error}")
    tensor = external_tensor("huge")
    tensor.dims[:] = [HUGE // 4]
    with little_memory(), pytest.raises(onnx_torch.Error, match="memory"):
        onnx_torch.prepare(model_with(tensor), base_dir=tmp_path)


def test_a_saved_model_that_says_that_it_has_more_than_there_is_memory_is_an_error(tmp_path):
    onnx_torch.prepare(model_of("chain")).save(tmp_path / "saved")
    data = (tmp_path / "saved").read_bytes()
    mark = data[-13:]
    with open(tmp_path / "saved", "wb") as file:
        try:
            file.seek(HUGE)
            file.write((HUGE // 2).to_bytes(8, "little") + mark)  # the length of the index
        except OSError as error:
            pytest.skip(f"no such file can be had: {error}")
    with little_memory(), pytest.raises(onnx_torch.Error, match="not enough memory"):
        onnx_torch.load(tmp_path / "saved")


def test_a_pipe_in_the_place_of_data_is_not_waited_for(tmp_path):
    """Neither where a writer waits at its other end."""
    os.mkfifo(tmp_path / "pipe")
    writer = os.open(tmp_path / "pipe", os.O_RDWR)
    try:
        for model in (model_with(external_tensor("pipe")), weighted(location="pipe")):
            with pytest.raises(onnx_torch.InvalidModelError, match="pipe: it is a pipe or a device"):
                onnx_torch.prepare(model, base_dir=tmp_path)
        for read in READS.values():
            with pytest.raises(onnx_torch.Error, match="pipe"):
                read(str(tmp_path / "pipe"))
    finally:
        os.close(writer)


@pytest.mark.parametrize("function", [onnx_torch.extract, onnx_torch.optimize, onnx_torch.prepare])
@pytest.mark.parametrize("data", [b"", b"\x08\x0a"], ids=["nothing", "a version"])
def test_a_beginning_of_a_model_without_a_graph_is_an_error(function, data, tmp_path):
    (tmp_path / "model.onnx").write_bytes(data)
    for model in (data, tmp_path / "model.onnx"):
        with pytest.raises(onnx_torch.InvalidModelError, match="no graph|is empty"):
            function(model)
