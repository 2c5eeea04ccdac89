"""The examples in the docstrings run."""

import doctest
import importlib
from pathlib import Path

import pytest

import onnx_torch

FOLDER = Path(onnx_torch.__file__).parent
WITH_EXAMPLES = [path.relative_to(FOLDER.parent) for path in sorted(FOLDER.rglob("*.py")) if ">>> " in path.read_text()]


@pytest.mark.parametrize(
    "name", [".".join(path.with_suffix("").parts).removesuffix(".__init__") for path in WITH_EXAMPLES]
)
def test_examples_run(name, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    try:
        module = importlib.import_module(name)
    except ModuleNotFoundError as error:
        if error.name.startswith("onnx_torch"):
            raise
        pytest.skip(f"{error.name} is not installed")
    result = doctest.testmod(module, optionflags=doctest.ELLIPSIS | doctest.NORMALIZE_WHITESPACE)
    assert result.failed == 0
