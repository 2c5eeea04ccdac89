"""Tells which part of the C++ code and of the Python package may know which, and where one does not.

python -m tools.layers
"""

from __future__ import annotations

import ast
import graphlib
import re
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
SOURCES = ROOT / "src"
BINDINGS = ROOT / "python" / "cpp"
PACKAGE = ROOT / "python" / "onnx_torch"

#: Each folder of src, and that of Python's modules, with the folders whose files its own may include besides their own
#: and the public headers, from the ground up: a folder knows only folders that stand above it here.
MAY_INCLUDE: dict[str, tuple[str, ...]] = {
    "base": (),
    "import": ("base",),
    "kernels/standard": ("base",),
    "kernels/cuda": ("base", "kernels/standard"),
    "kernels/simd": ("kernels/standard",),
    "kernels/composite": ("base",),
    "kernels/cpu": ("base", "kernels/standard", "kernels/simd", "kernels/composite"),
    "graph": ("base",),
    "translate": ("base", "import", "kernels/standard", "graph"),
    "ops": ("import", "kernels/standard", "translate"),
    "passes/general": ("base", "graph", "kernels/standard", "kernels/cpu", "translate"),
    "passes/cpu": ("base", "graph", "kernels/standard", "kernels/simd", "kernels/cpu", "passes/general"),
    "passes/cuda": ("graph", "kernels/composite", "passes/general"),
    "passes/device": ("import", "graph", "passes/cuda"),
    "passes": ("graph", "passes/general", "passes/cpu", "passes/cuda"),
    "runtime": (
        "base",
        "import",
        "kernels/cpu",
        "graph",
        "translate",
        "passes",
        "passes/general",
        "passes/cpu",
        "passes/device",
    ),
    "export": ("graph",),
    "api": ("base", "import", "translate", "runtime"),
    "language": ("base", "import", "runtime", "api"),
    "python/cpp": (
        "base",
        "import",
        "kernels/cpu",
        "translate",
        "passes/device",
        "runtime",
        "export",
        "language",
    ),
}

#: The same table for the Python package. All may import "ground", the modules of `GROUND`. Modules without a row of
#: their own are ".": those that programs import.
MAY_IMPORT: dict[str, tuple[str, ...]] = {
    "ground": (),
    "_models": (),
    "_pytorch": ("_models",),
    "_running": ("_models",),
    "prepared_model": ("_models", "_running"),
    "backend": ("_models", "prepared_model"),
    "optimizer": ("_models", "prepared_model"),
    "self_test": ("prepared_model", "backend"),
    "text_of_tokens": (),
    "language_model": ("_models", "prepared_model", "text_of_tokens"),
    "engine": ("text_of_tokens", "language_model"),
    "_engines": ("_models", "prepared_model"),
    "_batch": ("prepared_model",),
    "_sandbox": ("prepared_model",),
    "compat": (
        "_models",
        "_running",
        "prepared_model",
        "backend",
        "optimizer",
        "text_of_tokens",
        "language_model",
        "engine",
    ),
    ".": (
        "_models",
        "_pytorch",
        "_running",
        "prepared_model",
        "backend",
        "optimizer",
        "self_test",
        "language_model",
        "engine",
        "_engines",
        "_batch",
        "_sandbox",
        "compat",
    ),
}
GROUND = ("_C", "_torch", "_build_info", "_versions", "_progress", "errors", "log")


SUFFIXES = {".cpp", ".h", ".cu", ".cuh"}


@dataclass(frozen=True)
class Arrow:
    """A file of one folder that uses what is in another."""

    file: str
    taken: str  #: "includes a header" or "imports a module"
    folder: str
    known: str

    def __str__(self) -> str:
        return f"{self.file} {self.taken}: {self.folder} may not know {self.known}"


def folder_of(path: str) -> str:
    """Finds the folder of the table that a path below src is in: the innermost one."""
    parents = [parent.as_posix() for parent in Path(path).parents]
    found = next((parent for parent in parents if parent in MAY_INCLUDE), None)
    if found is None:
        raise KeyError(f"src/{path} is in no folder of the table in tools/layers.py")
    return found


def _files(sources: Path) -> Iterator[tuple[Path, str, str]]:
    """Gives each file of C++ with its name and its folder of the table."""
    for root, name in ((sources, "src"), (BINDINGS, "python/cpp")):
        for path in sorted(root.rglob("*")):
            if path.suffix in SUFFIXES:
                file = path.relative_to(root).as_posix()
                yield path, f"{name}/{file}", folder_of(file) if root == sources else name


def arrows(sources: Path = SOURCES) -> Iterator[Arrow]:
    """Gives all includes from one folder to another."""
    for path, file, folder in _files(sources):
        for header in re.findall(r'^#include "([^"]+)"', path.read_text(encoding="utf-8"), re.MULTILINE):
            if not (sources / header).is_file():
                continue  # it is a public header, or a generated one
            included = folder_of(header)
            if folder != included:
                yield Arrow(file, f"includes {header}", folder, included)


def imports(package: Path = PACKAGE, types: bool = True) -> dict[str, set[str]]:
    """Finds what each module imports of its package, anywhere; without `types`, not what type checkers alone follow."""
    paths = [path for path in sorted(package.rglob("*")) if path.suffix in {".py", ".pyi"}]
    dotted = {path: ".".join(path.relative_to(package.parent).with_suffix("").parts) for path in paths}
    names = {path: name.removesuffix(".__init__") for path, name in dotted.items()}
    found: dict[str, set[str]] = {name: set() for name in names.values()}
    for path, name in names.items():
        for source, item in _imported_names(path, package.parent, types):
            inner = f"{source}.{item}"
            found[name] |= {inner if inner in found else source} & found.keys()
    return found


def _imported_names(path: Path, root: Path, types: bool) -> Iterator[tuple[str, str]]:
    """Gives each name that a file imports, behind the name of the module or package that has it."""
    here = path.relative_to(root).parts
    waiting: list[ast.AST] = [ast.parse(path.read_text(encoding="utf-8"))]
    while waiting:
        node = waiting.pop()
        if types or not (isinstance(node, ast.If) and ast.unparse(node.test) == "TYPE_CHECKING"):
            waiting += ast.iter_child_nodes(node)
        if isinstance(node, ast.ImportFrom):
            above = here[: len(here) - node.level] if node.level else ()
            source = ".".join([*above, *filter(None, [node.module])])
            yield from ((source, alias.name) for alias in node.names)


def place_of(module: str) -> str:
    """Gives the place of the table that a module of the package is in."""
    first = module.split(".")[1] if "." in module else ""
    return "ground" if first in GROUND else first if first in MAY_IMPORT else "."


def import_arrows(package: Path = PACKAGE) -> Iterator[Arrow]:
    """Gives all imports from one place to another."""
    for module, imported in imports(package).items():
        for name in sorted(imported - {package.name}):
            if place_of(name) not in ("ground", place_of(module)):
                yield Arrow(module, f"imports {name}", place_of(module), place_of(name))


def wrong_arrows(sources: Path = SOURCES, package: Path = PACKAGE) -> list[Arrow]:
    """Gives the includes and imports that the tables do not allow."""
    included = [arrow for arrow in arrows(sources) if arrow.known not in MAY_INCLUDE[arrow.folder]]
    imported = [arrow for arrow in import_arrows(package) if arrow.known not in MAY_IMPORT[arrow.folder]]
    return included + imported


def circle(package: Path = PACKAGE) -> list[str]:
    """Finds modules that import each other in a circle, if there are any."""
    try:
        graphlib.TopologicalSorter(imports(package, types=False)).prepare()
    except graphlib.CycleError as error:
        return list(error.args[1])
    return []


def main() -> int:
    wrong = wrong_arrows()
    for arrow in wrong:
        print(arrow)
    if round_trip := circle():
        print(f"modules import each other: {' ← '.join(round_trip)}")
    return 1 if wrong or round_trip else 0


if __name__ == "__main__":
    sys.exit(main())
