"""compat.onnxruntime has onnxruntime's names, and compat.install() puts it in onnxruntime's place."""

from __future__ import annotations

import doctest
import importlib
import inspect
import re
import subprocess
import sys
import textwrap
from pathlib import Path

import onnx
import pytest

import onnx_torch
import onnx_torch.compat.onnxruntime as ours
from onnx_torch.compat._status import Status

pytest.importorskip("onnxruntime")
import onnxruntime_table as table

RELEASE = table.onnxruntime.__version__
same_release = pytest.mark.skipif(
    ours.__version__ != RELEASE, reason=f"onnxruntime {RELEASE} is not {ours.__version__}"
)


def run(program: str, folder: Path | None = None) -> str:
    """What a program prints, in a process of its own."""
    command = [sys.executable, "-c", textwrap.dedent(program)]
    done = subprocess.run(command, cwd=folder, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return done.stdout.strip()


# --- Names ------------------------------------------------------------------------------------------------------------


@same_release
def test_the_page_of_names_is_up_to_date():
    assert table.PAGE.read_text() == table.page(), "run python tests/python/onnxruntime_table.py"


@same_release
@pytest.mark.parametrize("name", table.enumerations())
def test_enumerations_have_the_same_members(name):
    theirs = getattr(table.onnxruntime, name).__members__
    assert {member: int(value) for member, value in getattr(ours, name).__members__.items()} == {
        member: int(value) for member, value in theirs.items()
    }


def parameters(function):
    signature = inspect.signature(getattr(function, "__func__", function))
    return {p.name: (p.kind, p.default) for p in signature.parameters.values()}


@same_release
def test_functions_take_the_same_arguments():
    entries = [entry for cls in table.classes() for entry in table.members(cls)]
    entries += [table.Entry("__init__", cls.theirs.__init__, cls.ours.__init__) for cls in table.classes()]
    compared = 0
    for entry in entries + table.functions():
        function = getattr(entry.theirs, "__func__", entry.theirs)
        if inspect.isfunction(function) and entry.status is Status.WORKS and entry.ours is not object.__init__:
            assert parameters(entry.ours) == parameters(function), entry
            compared += 1
    assert compared > 50


@same_release
def test_what_is_refused_raises_and_what_is_ignored_does_not():
    entries = [entry for cls in table.classes() for entry in [cls, *table.members(cls)]] + table.functions()
    callables = [entry for entry in entries if callable(entry.ours)]
    refused = [entry for entry in callables if entry.status is Status.REFUSED]
    ignored = [entry for entry in callables if entry.status is Status.IGNORED]
    for entry in refused:
        with pytest.raises(onnx_torch.UnsupportedError, match=f"does not have onnxruntime's .*{entry.name}"):
            entry.ours()
    for entry in ignored:
        entry.ours(1, two=2)
    assert len(refused) > 10
    assert len(ignored) > 5


def test_refused_classes_serve_type_hints():
    assert not isinstance(3, ours.ModelCompiler)
    assert ours.LoraAdapter | None


@pytest.mark.parametrize("name", ["quantization", "transformers", "training", "tools", "datasets"])
def test_submodules_without_meaning_say_so(name):
    with pytest.raises(ImportError, match=f"onnx_torch stands in for onnxruntime here and has no onnxruntime.{name}: "):
        importlib.import_module(f"onnx_torch.compat.onnxruntime.{name}")


def test_tells_who_it_is(capsys):
    ours.print_debug_info()
    assert "onnx_torch" in capsys.readouterr().out
    assert ours.get_build_info().startswith(f"onnx_torch {onnx_torch.__version__}")
    with pytest.raises(RuntimeError, match="severity"):
        ours.set_default_logger_severity(7)


def test_backend_is_ours():
    assert importlib.import_module("onnx_torch.compat.onnxruntime.backend").prepare is onnx_torch.prepare


# --- In onnxruntime's place -------------------------------------------------------------------------------------------


def test_installs_and_uninstalls():
    program = """
        import sys
        import onnx_torch
        onnx_torch.compat.install()
        import onnxruntime
        import onnxruntime as ort
        from onnxruntime.capi import onnxruntime_pybind11_state, _pybind_state as C
        from onnxruntime.capi.onnxruntime_inference_collection import InferenceSession
        import onnxruntime.backend
        assert ort is onnx_torch.compat.onnxruntime and InferenceSession is onnx_torch.InferenceSession
        assert C.get_available_providers() == ort.get_available_providers()
        try:
            ort.InferenceSession("nowhere.onnx")
        except onnxruntime_pybind11_state.NoSuchFile as error:
            assert isinstance(error, onnx_torch.Error)
        for name in ("quantization", "transformers.optimizer", "training.api"):
            try:
                __import__("onnxruntime." + name)
            except ImportError as error:
                print(error)
        try:
            from onnxruntime import quantization
        except ImportError as error:
            print(error)
        onnx_torch.compat.uninstall()
        assert not [name for name in sys.modules if name.partition(".")[0] == "onnxruntime"]
        import onnxruntime
        print(onnxruntime.get_build_info().startswith("onnx_torch"))
    """
    lines = run(program).splitlines()
    assert [line.partition(": ")[0].rpartition(".")[2] for line in lines] == [
        "quantization",
        "transformers",
        "training",
        "quantization",
        "False",
    ]


def test_is_a_context_manager():
    program = """
        import sys
        import onnx_torch
        for _ in range(2):
            with onnx_torch.compat.install() as module:
                with onnx_torch.compat.install():
                    import onnxruntime
                assert sys.modules["onnxruntime"] is onnxruntime is module
            assert "onnxruntime" not in sys.modules and "onnxruntime.capi" not in sys.modules
        import doctest
        print(doctest.testmod(onnx_torch.compat))
        import onnxruntime
        print(onnxruntime is module)
    """
    assert run(program).splitlines() == ["TestResults(failed=0, attempted=3)", "False"]


def test_refuses_where_onnxruntime_is_imported():
    program = """
        import onnxruntime
        import onnx_torch
        try:
            onnx_torch.compat.install()
        except ImportError as error:
            print(error)
        onnx_torch.compat.uninstall()
        import onnxruntime as again
        assert again is onnxruntime
    """
    assert "call onnx_torch.compat.install() before whatever imports it" in run(program)


def test_onnxruntime_itself_need_not_be_there():
    program = """
        import sys
        class Absent:
            def find_spec(self, name, path, target=None):
                assert not name.startswith("onnxruntime"), name
        sys.meta_path.insert(0, Absent())
        import onnx_torch
        onnx_torch.compat.install()
        import onnxruntime
        print(onnxruntime.get_device())
    """
    assert run(program) in ("CPU", "GPU")


# --- Examples ---------------------------------------------------------------------------------------------------------


def test_the_page_on_migrating_runs(tmp_path):
    model = onnx.parser.parse_model("""
        <ir_version: 10, opset_import: ["" : 21]>
        example (float[n, 2] x) => (float[n, 2] y) { y = Relu(x) }
    """)
    onnx.save(model, tmp_path / "model.onnx")
    page = (table.PAGE.parent / "migrating.md").read_text()
    blocks = re.findall(r"^```python\n(.*?)^```", page, re.MULTILINE | re.DOTALL)
    assert len(blocks) == 5
    assert run("\n".join(blocks), folder=tmp_path) == "[[1. 0.]] [[1. 0.]]"


@pytest.mark.parametrize(
    "module",
    ["session", "compat._devices", "compat._options", "compat._values", "compat.onnxruntime"],
)
def test_examples(module):
    results = doctest.testmod(importlib.import_module(f"onnx_torch.{module}"))
    assert results.attempted > 0
    assert results.failed == 0
