"""The examples in the docstrings run: in a process of their own, which the other tests have imported nothing into."""

import doctest
import importlib
import json
import subprocess
import sys
from pathlib import Path

import pytest

import onnx_torch

FOLDER = Path(onnx_torch.__file__).parent
PATHS = [path.relative_to(FOLDER.parent) for path in sorted(FOLDER.rglob("*.py")) if ">>> " in path.read_text()]
MODULES = [".".join(path.with_suffix("").parts).removesuffix(".__init__") for path in PATHS]


def outcome(name: str) -> str:
    """Tells what is wrong with a module's examples, or why they cannot run; empty where all is well."""
    try:
        module = importlib.import_module(name)
    except ModuleNotFoundError as error:
        if str(error.name).startswith("onnx_torch"):
            raise
        return f"skipped: {error.name} is not installed"
    faults: list[str] = []
    runner = doctest.DocTestRunner(optionflags=doctest.ELLIPSIS | doctest.NORMALIZE_WHITESPACE, verbose=False)
    for test in doctest.DocTestFinder().find(module):
        runner.run(test, out=faults.append)
    return "".join(faults)


@pytest.fixture(scope="module")
def outcomes(tmp_path_factory):
    command = [sys.executable, __file__]
    done = subprocess.run(command, capture_output=True, text=True, cwd=tmp_path_factory.mktemp("examples"))
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout.splitlines()[-1])


@pytest.mark.parametrize("name", MODULES)
def test_examples_run(name, outcomes):
    if outcomes[name].startswith("skipped: "):
        pytest.skip(outcomes[name])
    assert not outcomes[name], outcomes[name]


if __name__ == "__main__":
    print(json.dumps({name: outcome(name) for name in MODULES}))
