"""Faults around the library: files that cannot be written or read."""

import subprocess
import sys
from pathlib import Path

import onnx
import pytest

import onnx_torch
from fault_models import model_of

ROOT = Path(__file__).resolve().parents[2]

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
