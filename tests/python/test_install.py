"""The package's description of itself, and its behaviour beside a torch it was not built with."""

import re
import subprocess
import sys
import textwrap

import pytest
import torch

import onnx_torch
from onnx_torch import _build_info
from onnx_torch._versions import minor_release, require_torch

NEEDED = minor_release(_build_info.TORCH)

ABSENT = """
import importlib.abc, sys
class Absent(importlib.abc.MetaPathFinder):
    def find_spec(self, name, path, target=None):
        if name == "torch": raise ModuleNotFoundError("No module named 'torch'", name="torch")
sys.meta_path.insert(0, Absent())
"""


def failed_import(prelude):
    """Gives the last line that importing the package prints in a process of its own, after the statements given."""
    done = subprocess.run([sys.executable, "-c", f"{prelude}\nimport onnx_torch"], capture_output=True, text=True)
    assert done.returncode == 1
    return done.stderr.splitlines()[-1]


def test_another_torch_is_refused():
    assert failed_import("import torch; torch.__version__ = '2.14.1+cpu'") == (
        f"ImportError: onnx_torch was built with torch {_build_info.TORCH}, and the torch here is 2.14.1+cpu, "
        "whose C++ interface is another. "
        f"Install it: python -m pip install 'torch=={NEEDED}.*'; or build onnx_torch with the torch you have, "
        "from its sources: python -m pip install --no-build-isolation ."
    )


@pytest.mark.parametrize("version", ["2.16.0", "3.0.0", "2.1.5", "2.150.0a0"])
def test_no_other_minor_release_fits(monkeypatch, version):
    monkeypatch.setattr(torch, "__version__", version)
    with pytest.raises(ImportError, match=re.escape(version)):
        require_torch()


@pytest.mark.parametrize("version", [_build_info.TORCH, f"{NEEDED}.99+cpu"])
def test_every_patch_release_fits(monkeypatch, version):
    monkeypatch.setattr(torch, "__version__", version)
    require_torch()


def test_no_torch_is_refused():
    assert failed_import(ABSENT) == (
        f"ImportError: onnx_torch needs torch {NEEDED}, which is not installed. "
        f"Install it: python -m pip install 'torch=={NEEDED}.*'"
    )


def test_versions_are_shown(capsys):
    onnx_torch.show_versions()
    shown = capsys.readouterr().out
    assert f"onnx_torch      {onnx_torch.__version__} " in shown
    assert f"torch           {torch.__version__} " in shown
    for row in ["  libraries     protobuf ", "Python  ", "system  ", "processor  ", "threads  ", "CUDA devices  "]:
        assert f"\n{row}" in shown


def test_preparing_a_model_does_not_import_the_compiler():
    """The compiler is not imported, as torch's kernels for shapes in Python would do: it takes seconds, and 200 MB."""
    script = """
        import sys
        import numpy as np
        from onnx import parser
        import onnx_torch

        model = parser.parse_model('''<ir_version: 10, opset_import: ["" : 23]>
            g (float[1, 4, 8, 8] x, float[4, 4, 3, 3] w, float[8] scale, float[8, 8] m) => (float[N, C, H, W] y)
            {
                convolved = Conv <pads = [1, 1, 1, 1]> (x, w)
                active = HardSwish (convolved)
                normal = LayerNormalization (active, scale)
                product = MatMul (normal, m)
                attended = Attention (product, product, product)
                pooled = MaxPool <kernel_shape = [2, 2]> (attended)
                y = Softmax (pooled)
            }''')
        sizes = [[d.dim_value for d in value.type.tensor_type.shape.dim] for value in model.graph.input]
        before = set(sys.modules)
        y = onnx_torch.backend.prepare(model).run([np.ones(size, np.float32) for size in sizes])[0]
        print(y.shape, sorted(name for name in set(sys.modules) - before if name.startswith("torch._dynamo")))
    """
    done = subprocess.run([sys.executable, "-c", textwrap.dedent(script)], capture_output=True, text=True)
    assert done.stdout == "(1, 4, 7, 7) []\n", done.stderr
