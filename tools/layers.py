"""Tells which folder of src may include which, and where one does not keep to it: python -m tools.layers."""

from __future__ import annotations

import re
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
SOURCES = ROOT / "src"

#: Each folder with those that its files may include besides their own and the public headers, from the ground up: a
#: folder knows but those that stand above it here.
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
    "passes/general": ("base", "graph", "kernels/cpu", "translate"),
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
    "api": ("import", "translate", "runtime"),
    "language": ("base", "import", "runtime", "api"),
}


@dataclass(frozen=True)
class Arrow:
    """A file of one folder that includes a header of another."""

    file: str
    header: str
    folder: str
    included: str

    def __str__(self) -> str:
        return f"src/{self.file} includes {self.header}: {self.folder} may not know {self.included}"


def folder_of(path: str) -> str:
    """The folder of the table that a path below src is in: the innermost one."""
    parents = [parent.as_posix() for parent in Path(path).parents]
    found = next((parent for parent in parents if parent in MAY_INCLUDE), None)
    if found is None:
        raise KeyError(f"src/{path} is in no folder of the table in tools/layers.py")
    return found


def arrows(sources: Path = SOURCES) -> Iterator[Arrow]:
    """All includes from folder to folder."""
    for path in sorted(sources.rglob("*")):
        if path.suffix not in {".cpp", ".h", ".cu", ".cuh"}:
            continue
        file = path.relative_to(sources).as_posix()
        for header in re.findall(r'^#include "([^"]+)"', path.read_text(encoding="utf-8"), re.MULTILINE):
            if not (sources / header).is_file():
                continue  # a public header, or one that is generated
            folder, included = folder_of(file), folder_of(header)
            if folder != included:
                yield Arrow(file, header, folder, included)


def wrong_arrows(sources: Path = SOURCES) -> list[Arrow]:
    """Those that the table does not allow."""
    return [arrow for arrow in arrows(sources) if arrow.included not in MAY_INCLUDE[arrow.folder]]


def main() -> int:
    wrong = wrong_arrows()
    for arrow in wrong:
        print(arrow)
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
