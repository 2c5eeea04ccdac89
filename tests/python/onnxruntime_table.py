"""The writer of docs/onnxruntime.md: what becomes here of each public name of the onnxruntime that is installed.

python tests/python/onnxruntime_table.py
"""

from __future__ import annotations

import enum
import importlib
import inspect
import pkgutil
import re
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType
from typing import Any, NamedTuple

import onnxruntime
from onnxruntime.capi import onnxruntime_pybind11_state as native

import onnx_torch.compat.onnxruntime as ours
from onnx_torch.compat._status import Status, mark_of
from onnx_torch.compat.onnxruntime.capi import onnxruntime_pybind11_state as our_native

PAGE = Path(__file__).resolve().parents[2] / "docs" / "onnxruntime.md"
INNER = {"contextlib", "import_capi_exception", "onnxruntime_validation"}  # its __init__.py imports these for itself
PROTOCOLS = {"__array__", "__dlpack__", "__dlpack_device__"}

INTRODUCTION = """\
# onnxruntime's names

`onnx_torch.compat.onnxruntime` has the names of onnxruntime {version}, so that programs that were written for it run on
this package; [migrating.md](migrating.md) shows how. This page lists them all. The installed onnxruntime is what it is
made from, by `python tests/python/onnxruntime_table.py`, and a test checks that it is up to date.

- **works**: as in onnxruntime, but for what the last column says.
- **accepted and ignored**: may be called or set, and changes nothing.
- **refused**: raises `NotImplemented`, which is `onnx_torch.UnsupportedError` too, with the reason in the last column.

{counts}"""


class Entry(NamedTuple):
    """A name of onnxruntime, what becomes of it, and the same name here."""

    name: str
    theirs: Any
    ours: Any

    @property
    def status(self) -> Status:
        return mark_of(self.ours)[0]

    @property
    def note(self) -> str:
        return mark_of(self.ours)[1]


def here(owner: Any, name: str) -> Any:
    """Gives a name of ours, without calling properties; AttributeError where there is none."""
    if name in getattr(owner, "__dataclass_fields__", {}):
        return owner.__dataclass_fields__[name]
    return inspect.getattr_static(owner, name)


def is_enumeration(value: Any) -> bool:
    return isinstance(value, type) and (hasattr(value, "__members__") or issubclass(value, enum.Enum))


def public_names(module: ModuleType = onnxruntime) -> list[str]:
    names = [name for name in dir(module) if not name.startswith("_") and name not in INNER]
    return [name for name in names if not inspect.ismodule(getattr(module, name))]


def functions() -> list[Entry]:
    """Lists the functions and constants of the package."""
    found = [Entry(name, getattr(onnxruntime, name), getattr(ours, name)) for name in public_names()]
    return [entry for entry in found if not isinstance(entry.theirs, type)]


def classes() -> list[Entry]:
    """Lists its classes, but for the enumerations."""
    found = [Entry(name, getattr(onnxruntime, name), getattr(ours, name)) for name in public_names()]
    return [entry for entry in found if isinstance(entry.theirs, type) and not is_enumeration(entry.theirs)]


def members(cls: Entry) -> list[Entry]:
    """Lists the methods, properties and options of a class that is served."""
    if cls.status is not Status.WORKS:
        return []
    found = inspect.getmembers_static(cls.theirs)
    names = [name for name, _ in found if not name.startswith("_") or name in PROTOCOLS]
    return [Entry(name, inspect.getattr_static(cls.theirs, name), here(cls.ours, name)) for name in names]


def enumerations() -> list[str]:
    return [name for name in public_names() if is_enumeration(getattr(onnxruntime, name))]


def exceptions() -> list[str]:
    return [
        name
        for name in public_names(native)
        if isinstance(getattr(native, name), type) and issubclass(getattr(native, name), Exception)
    ]


def submodules() -> Iterator[tuple[str, str, str]]:
    """Gives each submodule, what becomes of it, and what there is to say of that."""
    for name in sorted({module.name for module in pkgutil.iter_modules([*onnxruntime.__path__, *ours.__path__])}):
        try:
            module = importlib.import_module(f"{ours.__name__}.{name}")
        except ImportError as error:
            yield name, "raises ImportError", str(error).partition(": ")[2]
        else:
            status, note = mark_of(module)
            yield name, status.value, note


def signature(name: str, theirs: Any) -> str:
    """Writes a function as its documentation shows it: Python's without types, the native ones with theirs."""
    function = getattr(theirs, "__func__", theirs)
    if isinstance(function, property) or not callable(function):
        return name
    if inspect.isfunction(function):
        parameters = list(inspect.signature(function).parameters.values())
        bare = [p.replace(annotation=p.empty) for p in parameters if p.name not in ("self", "cls")]
        return f"{name}{inspect.Signature(bare)}"
    line = (function.__doc__ or "").strip().partition("\n")[0]
    line = re.sub(r"(?:\w+(?:\.|::))+(\w+)", r"\1", line).replace("SupportsInt | SupportsIndex", "int")
    arguments = re.search(r"\((?:self: \w+(?:, )?)?(.*)\)", line)
    return f"{name}({arguments[1] if arguments else ''})"


def row(*cells: str) -> str:
    return "| " + " | ".join(cell.replace("|", "\\|") for cell in cells) + " |"


def table(heading: str, rows: list[str]) -> str:
    columns = heading.count("|") - 1
    return "\n".join([heading, "|" + "---|" * columns, *rows]) + "\n"


def entries_table(entries: list[Entry]) -> str:
    rows = [row(f"`{signature(e.name, e.theirs)}`", e.status.value, e.note) for e in entries]
    return table("| name | | |", rows)


def class_section(cls: Entry) -> str:
    title = f"### {cls.name}\n"
    made = cls.theirs.__dict__.get("__init__")
    if inspect.isfunction(made) and cls.status is Status.WORKS:
        title += f"\n`{signature(cls.name, made)}`\n"
    if cls.status is not Status.WORKS:
        return f"{title}\n{cls.status.value}: {cls.note}\n"
    return f"{title}\n{cls.note + chr(10) * 2 if cls.note else ''}{entries_table(members(cls))}"


def counts() -> str:
    entries = functions()
    for cls in classes():
        entries += members(cls) or [cls]
    found = Counter(entry.status for entry in entries)
    return table("| | functions, methods, properties, options |", [row(s.value, str(found[s])) for s in Status])


def absent_native_names() -> list[str]:
    return [name for name in public_names(native) if not hasattr(our_native, name)]


def bases(name: str) -> str:
    error = getattr(our_native, name)
    return ", ".join(f"`{base.__name__}`" for base in error.__bases__)


def page() -> str:
    parts = [
        INTRODUCTION.format(version=onnxruntime.__version__, counts=counts()),
        "## Functions and constants\n",
        entries_table(functions()),
        "## Classes\n",
        *map(class_section, classes()),
        "## Enumerations\n\nAll work, with the same members and values.\n",
        table("| name | members |", [row(f"`{n}`", ", ".join(getattr(ours, n).__members__)) for n in enumerations()]),
        "## Exceptions\n\nThose of `onnxruntime.capi.onnxruntime_pybind11_state`. Each is one of this package's too.\n",
        table("| name | is also |", [row(f"`{name}`", bases(name)) for name in exceptions()]),
        "## Submodules\n",
        table("| name | | |", [row(f"`{name}`", status, note) for name, status, note in submodules()]),
        "## Inner names\n\nOf `onnxruntime.capi`, the modules `_pybind_state`, `onnxruntime_pybind11_state` and "
        "`onnxruntime_inference_collection` are here, with all\nnames above. These native names are not:\n",
        ", ".join(f"`{name}`" for name in absent_native_names()) + ".\n",
    ]
    return "\n".join(parts)


if __name__ == "__main__":
    PAGE.write_text(page())
