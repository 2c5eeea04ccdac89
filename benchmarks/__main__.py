"""The command line: what to measure, and where the results go."""

from __future__ import annotations

import argparse
import fnmatch
import sys
from collections.abc import Iterable
from pathlib import Path

from onnx_torch_cli.terminal import note, progress, table

from .models import CASES
from .models.case import Case, model_file

ROOT = Path(__file__).resolve().parent.parent
KEPT = ROOT / "build" / "bench" / "models"


def parser() -> argparse.ArgumentParser:
    top = argparse.ArgumentParser(
        prog="./dev bench", description="Measures speed and memory, here and in other engines."
    )
    top.add_argument("--models", nargs="+", metavar="NAME", default=["*"], help="only these; a name may be a pattern")
    top.add_argument("--kept", type=Path, metavar="FOLDER", default=KEPT, help="where made models are kept")
    top.add_argument("--list", action="store_true", help="name all models, and measure nothing")
    top.add_argument("--make", action="store_true", help="write the models that are not there yet, and measure nothing")
    return top


def chosen(patterns: Iterable[str]) -> list[Case]:
    """The cases whose names match one of some patterns."""
    for pattern in patterns:
        if not fnmatch.filter(CASES, pattern):
            raise SystemExit(f'No model is named "{pattern}"; --list names all.')
    return [case for case in CASES.values() if any(fnmatch.fnmatchcase(case.name, p) for p in patterns)]


def make(cases: list[Case], folder: Path) -> list[Case]:
    """Makes the models that are not there, and returns the cases that have one."""
    made = []
    for number, case in enumerate(cases):
        with progress(f"Making {case.name}") as report:
            report(number, len(cases))
            try:
                case.make(folder)
                made.append(case)
            except Exception as error:  # of any of the packages it takes
                note(f"{case.name} cannot be made: {type(error).__name__}: {str(error)[:1000]}")
    return made


def show_models(cases: list[Case], folder: Path) -> None:
    size = lambda case: f"{model_file(folder, case.name).stat().st_size / 1e6:.1f}" if case.is_made(folder) else "-"
    table(["group", "model", ">MB"], ((case.group, case.name, size(case)) for case in cases))


def main() -> int:
    args = parser().parse_args()
    cases = chosen(args.models)
    if args.list:
        show_models(cases, args.kept)
        return 0
    made = make(cases, args.kept)
    if args.make:
        show_models(made, args.kept)
        note(f"The models are in {args.kept}")
    return 0 if made == cases else 1


if __name__ == "__main__":
    sys.exit(main())
