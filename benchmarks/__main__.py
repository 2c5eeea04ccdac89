"""The command line: what to measure, and where the results go."""

from __future__ import annotations

import argparse
import dataclasses
import fnmatch
import sys
import time
from collections.abc import Iterable, Sequence
from pathlib import Path

from onnx_torch_cli.terminal import note, progress, table

from . import report
from .engines import COLUMNS
from .measuring import Settings, measure
from .models import CASES
from .models.case import Case, model_file
from .plot import plot
from .results import Results

ROOT = Path(__file__).resolve().parent.parent
KEPT, OUT, PAGE = ROOT / "build" / "bench" / "models", ROOT / "out" / "bench", ROOT / "docs" / "performance.md"

QUICK = Settings(rounds=5, turn=0.1, repeats=3, loads=1)
QUICK_MODELS = (
    "resnet50 mobilenet_v3_large bert gpt2_decode t5_encoder_torchscript lstm resnet50_int8_static forest identity "
    "recommender"
).split()


def parser() -> argparse.ArgumentParser:
    description = "Measures speed and memory, here and in other engines."
    top = argparse.ArgumentParser(prog="./dev bench", description=description)
    names = ", ".join(COLUMNS)
    top.add_argument("--quick", action="store_true", help="some of the models, in fewer rounds, without torch.compile")
    top.add_argument("--models", nargs="+", metavar="NAME", help="only these; a name may be a pattern")
    top.add_argument("--engines", nargs="+", choices=COLUMNS, metavar="NAME", help=f"only these, of {names}")
    top.add_argument("--threads", type=int, default=2, help="how many each engine uses (default: %(default)s)")
    top.add_argument("--rounds", type=int, help="how often each engine has its turn")
    top.add_argument("--output", type=Path, metavar="FOLDER", default=OUT, help="for the results (default: out/bench)")
    top.add_argument("--record", action="store_true", help="write the results into docs/performance.md, too")
    top.add_argument("--report", type=Path, metavar="JSON", help="show the results of an earlier benchmark")
    top.add_argument("--kept", type=Path, metavar="FOLDER", default=KEPT, help="where made models are kept")
    top.add_argument("--list", action="store_true", help="name all models, and measure nothing")
    top.add_argument("--make", action="store_true", help="write the models that are not there yet, and measure nothing")
    return top


def settings_of(args: argparse.Namespace) -> Settings:
    base = QUICK if args.quick else Settings()
    return dataclasses.replace(base, threads=args.threads, rounds=args.rounds or base.rounds)


def chosen_cases(args: argparse.Namespace) -> list[Case]:
    """The cases whose names match one of the patterns."""
    patterns = args.models or (QUICK_MODELS if args.quick else ["*"])
    for pattern in patterns:
        if not fnmatch.filter(CASES, pattern):
            raise SystemExit(f'No model is named "{pattern}"; --list names all.')
    return [case for case in CASES.values() if any(fnmatch.fnmatchcase(case.name, p) for p in patterns)]


def chosen_engines(args: argparse.Namespace) -> list[str]:
    return args.engines or [name for name, engine in COLUMNS.items() if not (args.quick and engine.compiles)]


def make(cases: Sequence[Case], folder: Path) -> list[Case]:
    """Makes the models that are not there, and returns the cases that have one."""
    made = []
    with progress("Making models") as report_progress:
        for number, case in enumerate(cases):
            report_progress(number, len(cases))
            try:
                case.make(folder)
                made.append(case)
            except Exception as error:  # of any of the packages it takes
                note(f"{case.name} cannot be made: {type(error).__name__}: {str(error)[:1000]}")
    return made


def show_models(cases: Iterable[Case], folder: Path) -> None:
    size = lambda case: f"{model_file(folder, case.name).stat().st_size / 1e6:.1f}" if case.is_made(folder) else "-"
    table(["group", "model", ">MB"], ((case.group, case.name, size(case)) for case in cases))


def measure_all(cases: Sequence[Case], engines: Sequence[str], settings: Settings, args: argparse.Namespace) -> Results:
    """Measures model by model; what is done is kept in the results' file all the while."""
    results = Results(settings)
    args.output.mkdir(parents=True, exist_ok=True)
    with (args.output / "engines.log").open("w") as log:
        for number, case in enumerate(cases, 1):
            with progress(f"{case.name} ({number} of {len(cases)})") as report_progress:
                results.rows.append(measure(case, args.kept, engines, settings, log, report_progress))
            results.write(results_file(args.output, settings.threads))
    return results


def results_file(folder: Path, threads: int) -> Path:
    return folder / f"performance-{threads}-threads.json"


def show(results: Results) -> None:
    print(report.summary(results))
    for one in report.tables(results):
        print()
        table(one.columns, one.rows, one.title)
    print(f"\n{report.LEGEND}")


def record(results: Results) -> None:
    """Keeps results with the documentation."""
    threads = results.settings.threads
    file = results_file(PAGE.parent, threads)
    results.write(file)
    plot(results, file.with_suffix(".svg"))
    page = report.into_page(PAGE.read_text(), f"{threads} threads", results, file.with_suffix(".svg").name)
    PAGE.write_text(page)


def main() -> int:
    args = parser().parse_args()
    if args.report:
        results = Results.read(args.report)
    else:
        cases = chosen_cases(args)
        if args.list:
            show_models(cases, args.kept)
            return 0
        made = make(cases, args.kept)
        if args.make:
            show_models(made, args.kept)
            note(f"The models are in {args.kept}")
            return 0 if made == cases else 1
        began = time.monotonic()
        results = measure_all(made, chosen_engines(args), settings_of(args), args)
        plot(results, results_file(args.output, args.threads).with_suffix(".svg"))
        note(f"Measured in {(time.monotonic() - began) / 60:.1f} minutes; the results are in {args.output}")
    show(results)
    if args.record:
        record(results)
    return 0


if __name__ == "__main__":
    sys.exit(main())
