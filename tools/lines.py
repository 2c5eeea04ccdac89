"""Tells which lines and functions of our C++ have run: python -m tools.lines BUILD.

BUILD is the folder of a build with the preset `coverage`, whose tests have run (`./dev test --preset coverage`), or
`fuzz-coverage`, whose fuzzers have (docs/fuzzing.md).
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
from collections import Counter, defaultdict
from collections.abc import Iterator
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[1]
SOURCES = (ROOT / "src", ROOT / "include", ROOT / "python" / "cpp")


def reports(build: Path) -> Iterator[dict[str, Any]]:
    """Gives gcov's report of each of our source files, once for each object that holds code of it."""
    counts = [str(file.absolute()) for file in build.rglob("*.gcda")]
    for first in range(0, len(counts), 50):
        command = ["gcov", "--json-format", "--stdout", *counts[first : first + 50]]
        told = subprocess.run(command, cwd=build, capture_output=True, text=True, check=True).stdout
        for line in filter(None, told.splitlines()):
            report = json.loads(line)
            for file in report["files"]:
                path = (Path(report["current_working_directory"]) / file["file"]).resolve()
                if any(path.is_relative_to(folder) for folder in SOURCES):
                    yield {**file, "file": path.relative_to(ROOT).as_posix()}


def folder_of(file: str) -> str:
    return "/".join(file.split("/")[:-1][:3])


def share(name: str, counts: list[int]) -> str:
    reached = sum(count > 0 for count in counts)
    return f"{name:24} {reached:6} of {len(counts):6} lines {reached / len(counts):7.1%}"


def main() -> int:
    parser = argparse.ArgumentParser(
        prog="python -m tools.lines", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("build", type=Path)
    parser.add_argument("--functions", action="store_true", help="the functions that were not reached, by their files")
    options = parser.parse_args()

    lines: defaultdict[str, Counter[int]] = defaultdict(Counter)
    functions: defaultdict[tuple[str, str], int] = defaultdict(int)
    for report in reports(options.build):
        for line in report["lines"]:
            lines[report["file"]][line["line_number"]] += line["count"]
        for function in report["functions"]:
            functions[report["file"], function["demangled_name"]] += function["execution_count"]
    if not lines:
        print(f"{options.build} holds no counts: has anything of it run?", file=sys.stderr)
        return 1

    folders: defaultdict[str, list[int]] = defaultdict(list)
    for file, counts in lines.items():
        folders[folder_of(file)] += counts.values()
    for folder, counted in sorted(folders.items()):
        print(share(folder, counted))
    print(share("all", [count for counted in folders.values() for count in counted]))
    if options.functions:
        for (file, name), count in sorted(functions.items()):
            if not count:
                print(f"{file}: {name}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
