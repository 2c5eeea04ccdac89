"""The .pyi files of the native modules say what those have: the same names, parameters, defaults and kinds of results.

pybind11 writes each signature into the docstring, with Python's types as far as it knows them.
"""

import ast
import enum
import os
import re
import subprocess
import sys
from pathlib import Path
from types import ModuleType

import pytest

import onnx_torch
from onnx_torch import _C, _torch


def signature(node: ast.FunctionDef) -> tuple:
    """Gives a function's parameters, their kinds and whether they have defaults, and its result's outermost name."""
    arguments = node.args
    places = [*arguments.posonlyargs, *arguments.args]
    defaulted = len(places) - len(arguments.defaults)
    positional = [
        ("" if argument in arguments.posonlyargs else argument.arg, "positional", index >= defaulted)
        for index, argument in enumerate(places)
        if argument.arg != "self"
    ]
    named = [(a.arg, "named", d is not None) for a, d in zip(arguments.kwonlyargs, arguments.kw_defaults, strict=True)]
    return positional + named, outermost(node.returns)


def outermost(annotation: ast.expr) -> str:
    if isinstance(annotation, ast.Subscript):
        return outermost(annotation.value)
    if isinstance(annotation, ast.BinOp):
        return " | ".join(sorted([outermost(annotation.left), outermost(annotation.right)]))
    name = ast.unparse(annotation).split(".")[-1]
    return {"Any": "object", "NDArray": "ndarray"}.get(name, name)


def documented(name: str, docstring: str) -> tuple:
    """Reads the signature that pybind11 wrote: parameters it has no name for, "arg0", are positional only."""
    text = re.sub(r"^.*?\(", "(", docstring.strip().splitlines()[0], count=1)
    text = re.sub(r"= <[^>]*>", "= ...", text)
    parameters, result = signature(ast.parse(f"def {name}{text}: ...").body[0])
    return [("" if re.fullmatch(r"arg\d+", p) else p, kind, default) for p, kind, default in parameters], result


def is_own(name: str) -> bool:
    return not name.startswith("_")


def of_class(cls: type) -> dict[str, object]:
    if issubclass(cls, enum.Enum):
        return dict.fromkeys(cls.__members__, "attribute")
    members = {}
    for name, member in vars(cls).items():
        if isinstance(member, property):
            members[name] = documented(name, member.fget.__doc__)[1]
        elif is_own(name) or (name == "__init__" and "(self:" in (member.__doc__ or "")):
            members[name] = documented(name, getattr(cls, name).__doc__)
    return members


def in_module(module: ModuleType) -> dict[str, object]:
    found = {}
    for name, value in vars(module).items():
        if is_own(name):
            function = callable(value) and not isinstance(value, type)
            found[name] = (
                of_class(value)
                if isinstance(value, type)
                else documented(name, value.__doc__)
                if function
                else "attribute"
            )
    return found


def of_stub(body: list[ast.stmt]) -> dict[str, object]:
    found = {}
    for node in body:
        if isinstance(node, ast.ClassDef):
            found[node.name] = of_stub(node.body)
        elif isinstance(node, ast.FunctionDef):
            decorators = [ast.unparse(decorator) for decorator in node.decorator_list]
            if f"{node.name}.setter" in decorators:
                continue
            found[node.name] = outermost(node.returns) if "property" in decorators else signature(node)
        elif isinstance(node, (ast.Assign, ast.AnnAssign)):
            target = node.target if isinstance(node, ast.AnnAssign) else node.targets[0]
            found[target.id] = "attribute"
    return found


def differences(real: dict, stub: dict, prefix: str = "") -> list[str]:
    lines = [f"{prefix}{name} is in the module only" for name in real.keys() - stub.keys()]
    lines += [f"{prefix}{name} is in the stub only" for name in stub.keys() - real.keys()]
    for name in real.keys() & stub.keys():
        if isinstance(real[name], dict) and isinstance(stub[name], dict):
            lines += differences(real[name], stub[name], f"{prefix}{name}.")
        elif real[name] != stub[name]:
            lines.append(f"{prefix}{name}: {real[name]} in the module, {stub[name]} in the stub")
    return sorted(lines)


HOOKS = {"assume_cuda_devices", "assume_recordings"}  # of tests alone, which no stub has


@pytest.mark.parametrize("module", [_C, _torch])
def test_the_stub_is_up_to_date(module):
    stub = Path(onnx_torch.__file__).with_name(module.__name__.split(".")[-1] + ".pyi")
    real = {name: what for name, what in in_module(module).items() if name not in HOOKS}
    wrong = differences(real, of_stub(ast.parse(stub.read_text()).body))
    assert not wrong, f"change python/onnx_torch/{stub.name}: " + "; ".join(wrong)


@pytest.mark.parametrize("wanted", [True, False])
def test_hooks_are_there_where_tests_want_them_alone(wanted):
    environment = {name: value for name, value in os.environ.items() if name != "ONNX_TORCH_TEST_HOOKS"}
    environment |= {"ONNX_TORCH_TEST_HOOKS": "1"} if wanted else {}
    program = f"from onnx_torch import _C; print(*({HOOKS} & vars(_C).keys()))"
    done = subprocess.run([sys.executable, "-c", program], env=environment, stdout=subprocess.PIPE, text=True)
    assert done.returncode == 0
    assert set(done.stdout.split()) == (HOOKS if wanted else set())


def test_a_difference_is_seen():
    real = {"f": documented("f", "f(arg0: str, *, n: int = 1) -> list"), "g": "attribute"}
    assert differences(real, of_stub(ast.parse("def f(x: str, /, *, n: int = 1) -> list[str]: ...\ng: int").body)) == []
    for wrong in [
        "(x: str, /, *, n: int) -> list",
        "(x: str, n: int = 1) -> list",
        "(x: str, /, *, n: int = 1) -> str",
        "() -> list",
    ]:
        assert differences({"f": real["f"]}, of_stub(ast.parse(f"def f{wrong}: ...").body)), wrong
    assert differences(real, {"g": "attribute"}) == ["f is in the module only"]
