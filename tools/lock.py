"""Writes requirements/constraints.txt: the packages that the required ones bring along, as they are installed here.

python -m tools.lock

`./dev` installs what dev.txt, bench.txt and docs.txt pin; pip takes the versions of everything else from this file.
torch brings the packages of CUDA along, at versions of its own, and these are left out.
"""

from __future__ import annotations

import re
import sys
from importlib.metadata import PackageNotFoundError, distribution

from packaging.requirements import Requirement

from tools.develop.environment import requirements
from tools.develop.project import ROOT

FILE = ROOT / "requirements" / "constraints.txt"
HEADER = """\
# What the pinned packages bring along, at the versions that the tests passed with. `python -m tools.lock` writes it.
"""


def normalized(name: str) -> str:
    return re.sub(r"[-_.]+", "-", name).lower()


def brought_along(names: set[str]) -> set[str]:
    """Gives the packages that these ask for, and what those ask for, of those that are installed."""
    found: set[str] = set()
    waiting = [Requirement(name) for name in sorted(names)]
    seen: set[str] = set()
    while waiting:
        wanted = waiting.pop()
        if str(wanted) in seen:
            continue
        seen.add(str(wanted))
        try:
            asked = [Requirement(text) for text in distribution(wanted.name).requires or []]
        except PackageNotFoundError:
            continue
        found.add(normalized(wanted.name))
        extras = ["", *wanted.extras]
        waiting += [one for one in asked if not one.marker or any(one.marker.evaluate({"extra": e}) for e in extras)]
    return found


def main() -> int:
    pinned = {normalized(name) for part in ("dev", "bench", "docs") for name in requirements(part)}
    others = brought_along(pinned - {"torch"}) - brought_along({"torch"}) - pinned
    lines = [f"{name}=={distribution(name).version}\n" for name in sorted(others)]
    FILE.write_text(HEADER + "".join(lines))
    print(f"{FILE.relative_to(ROOT)}: {len(lines)} packages")
    return 0


if __name__ == "__main__":
    sys.exit(main())
