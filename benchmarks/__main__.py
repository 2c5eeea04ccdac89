"""The command line: what to measure, and where the results go."""

from __future__ import annotations

import argparse
import dataclasses
import fnmatch
import importlib.util
import re
import sys
import time
from collections.abc import Iterable, Sequence
from pathlib import Path

from onnx_torch_cli.terminal import note, progress, table

from . import machine, neighbour, processes, report
from .engines import COLUMNS, CPU, GPU_PRECISIONS, OTHER_BUILD, OURS, REFERENCE, columns
from .measuring import Settings, measure
from .models import held_out
from .models.case import Case, model_file
from .plot import plot
from .results import Results
from .variants import cases

ROOT = Path(__file__).resolve().parent.parent
KEPT, OUT, DOCS = ROOT / "build" / "bench" / "models", ROOT / "out" / "bench", ROOT / "docs"

HELD_OUT = 10  # models that --held-out measures
QUICK = Settings(rounds=5, turn=0.1, repeats=3, loads=1)
GPU_LIMIT = 1800.0  # seconds, as torch.compile tries out kernels
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
    drawn = "ten others, drawn by SEED from all that torchvision, timm and transformers have"
    top.add_argument("--held-out", type=int, metavar="SEED", help=drawn)
    top.add_argument("--engines", nargs="+", choices=COLUMNS, metavar="NAME", help=f"only these, of {names}")
    top.add_argument("--threads", type=int, default=2, help="how many each engine uses (default: %(default)s)")
    top.add_argument("--device", type=device, default=CPU, help="cpu, or cuda:N for a GPU (default: %(default)s)")
    precision = "what to compute in on a GPU (default: %(default)s); on the CPU there are columns for that"
    top.add_argument("--precision", choices=GPU_PRECISIONS, default="float32", help=precision)
    held = "the level that `./dev bench --isa` holds the engines to, by variables of the environment"
    top.add_argument("--isa", metavar="LEVEL", default="", help=held)
    build = "compares with another build, whose package lies in FOLDER; alone, or with those that --engines names"
    top.add_argument("--other-build", type=package_folder, metavar="FOLDER", help=build)
    top.add_argument("--rounds", type=int, help="how often each engine has its turn")
    busy = "instead, the median and the worst of 1,000 runs beside N busy processes, here and in onnxruntime"
    top.add_argument("--neighbours", type=int, metavar="N", help=busy)
    top.add_argument("--output", type=Path, metavar="FOLDER", default=OUT, help="for the results (default: out/bench)")
    top.add_argument("--record", action="store_true", help="write the results into the documentation, too")
    top.add_argument("--report", type=Path, metavar="JSON", help="show the results of an earlier benchmark")
    top.add_argument("--kept", type=Path, metavar="FOLDER", default=KEPT, help="where made models are kept")
    top.add_argument("--list", action="store_true", help="name all models, and measure nothing")
    top.add_argument("--make", action="store_true", help="write the models that are not there yet, and measure nothing")
    return top


def device(text: str) -> str:
    found = re.fullmatch(r"cpu|cuda(:\d+)?", text.lower())
    if not found:
        raise argparse.ArgumentTypeError(f'"{text}" is neither cpu nor cuda:N')
    return "cuda:0" if found[0] == "cuda" else found[0]


def package_folder(text: str) -> str:
    if not (Path(text) / OURS).is_dir():
        raise argparse.ArgumentTypeError(f"{text} has no folder {OURS}: it is a build's python/ or a site-packages/")
    return str(Path(text).resolve())


def settings_of(args: argparse.Namespace) -> Settings:
    base = QUICK if args.quick else Settings()
    limit = base.limit if args.device == CPU else GPU_LIMIT
    chosen = {name: getattr(args, name) for name in ("threads", "device", "precision", "isa")}
    return dataclasses.replace(
        base,
        limit=limit,
        rounds=args.rounds or base.rounds,
        cpu=machine.instructions(),
        other_build=args.other_build or "",
        **chosen,
    )


def gpu_of(args: argparse.Namespace) -> str:
    """Tells what GPU there is at the device, or ends the program if it cannot be used; empty for the CPU."""
    if args.device == CPU:
        return ""
    try:
        return machine.gpu(args.device)
    except (AssertionError, RuntimeError) as error:  # torch's, where CUDA, a driver or that GPU is missing
        raise SystemExit(f"The benchmark cannot run on {args.device}: {error}") from None


def chosen_cases(args: argparse.Namespace) -> list[Case]:
    """Gives the cases whose names match one of the patterns."""
    known = cases(args.device, args.precision)
    usual = QUICK_MODELS if args.quick else neighbour.MODELS if args.neighbours else ["*"]
    patterns = args.models or usual
    for pattern in patterns:
        if not fnmatch.filter(known, pattern):
            raise SystemExit(f'No model is named "{pattern}"; --list names all.')
    return [case for case in known.values() if any(fnmatch.fnmatchcase(case.name, p) for p in patterns)]


def chosen_engines(args: argparse.Namespace) -> list[str]:
    """Gives the engines that are wanted, in the order of the columns, with the engines that they are compared with."""
    there = columns(args.device)
    of_builds = {name for name, engine in there.items() if engine.of_builds}
    if OTHER_BUILD in (args.engines or ()) and not args.other_build:
        raise SystemExit("Where the other build lies is for --other-build to tell.")
    if args.engines or args.other_build:
        named = {*(args.engines or ()), *(of_builds if args.other_build else ())}
        wanted = {*named, *(COLUMNS[one].against for one in named)}
        if unknown := wanted - set(there):
            raise SystemExit(f"Not on {args.device}: {', '.join(sorted(unknown))}; there are {', '.join(there)}.")
        return [name for name in there if name in wanted]
    return [name for name, engine in there.items() if name not in of_builds and not (args.quick and engine.compiles)]


def make(cases: Sequence[Case], folder: Path) -> list[Case]:
    """Makes the models that are not there, and returns the cases that have one."""
    made = []
    with progress("Making models") as report_progress:
        for number, case in enumerate(cases):
            report_progress(number, len(cases))
            try:
                case.make(folder)
                made.append(case)
            except Exception as error:  # any of the packages that it takes may raise one
                note(f"{case.name} cannot be made: {type(error).__name__}: {str(error)[:1000]}")
    return made


def make_held_out(seed: int, folder: Path) -> list[Case]:
    """Makes the first ten of those drawn that are not too large and that torch can export."""
    made: list[Case] = []
    for case in held_out.drawn(seed):
        made += make([case], folder)
        if len(made) == HELD_OUT:
            break
    return made


def show_models(cases: Iterable[Case], folder: Path) -> None:
    size = lambda case: f"{model_file(folder, case.name).stat().st_size / 1e6:.1f}" if case.is_made(folder) else "-"
    table(["group", "model", ">MB"], ((case.group, case.name, size(case)) for case in cases))


def measure_all(cases: Sequence[Case], engines: Sequence[str], settings: Settings, args: argparse.Namespace) -> Results:
    """Measures model by model; what is done is kept in the results' file all the while."""
    results = Results(settings, gpu=gpu_of(args))
    args.output.mkdir(parents=True, exist_ok=True)
    with (args.output / "engines.log").open("w") as log:
        for number, case in enumerate(cases, 1):
            with progress(f"{case.name} ({number} of {len(cases)})") as report_progress:
                results.rows.append(measure(case, kept(args), engines, settings, log, report_progress))
            results.write(results_file(args.output, settings))
    if not settings.on_gpu and {OURS, REFERENCE} <= set(engines) and any(c.name == processes.MODEL for c in cases):
        with progress("Processes") as report_progress:
            results.processes = processes.measure(kept(args), settings.threads, progress=report_progress)
        results.write(results_file(args.output, settings))
    return results


def measure_beside(cases: Sequence[Case], settings: Settings, args: argparse.Namespace) -> None:
    """Shows how long runs take beside busy processes."""
    found = {}
    args.output.mkdir(parents=True, exist_ok=True)
    with (args.output / "engines.log").open("w") as log, progress("Beside busy processes") as report_progress:
        for number, case in enumerate(cases):
            report_progress(number, len(cases))
            found[case.name] = neighbour.measure(case, kept(args), settings, args.neighbours, log)
    table(neighbour.TITLES, neighbour.rows(found), f"{neighbour.RUNS} runs beside {args.neighbours} busy, {settings}")


def kept(args: argparse.Namespace) -> Path:
    """Gives the folder of the models; those in float16 have the same names as the others."""
    return args.kept / "float16" if args.precision == "float16" else args.kept


def results_file(folder: Path, settings: Settings) -> Path:
    return folder / f"performance-{settings.key.replace(' ', '-')}.json"


def page_of(settings: Settings) -> Path:
    return DOCS / ("performance-cuda.md" if settings.on_gpu else "performance.md")


def show(results: Results) -> None:
    print(report.summary(results))
    for one in report.tables(results):
        print()
        table(one.columns, one.rows, one.title)
    print(f"\n{report.legend(results)}")


def draw(results: Results, file: Path) -> None:
    """Draws a picture beside the results, where matplotlib is there to draw it."""
    if importlib.util.find_spec("matplotlib"):
        plot(results, file)
    else:
        note("There is no picture: it takes matplotlib, which is not installed.")


def record(results: Results) -> None:
    """Keeps results with the documentation."""
    page, file = page_of(results.settings), results_file(DOCS, results.settings)
    results.write(file)
    plot(results, file.with_suffix(".svg"))
    page.write_text(report.into_page(page.read_text(), results.settings.key, results, file.with_suffix(".svg").name))


def main() -> int:
    args = parser().parse_args()
    if args.record and args.other_build:
        raise SystemExit("The documentation compares no builds: --record and --other-build do not go together.")
    if args.report:
        results = Results.read(args.report)
    else:
        drawn = args.held_out is not None
        chosen = [] if drawn else chosen_cases(args)
        if args.list:
            show_models(chosen, kept(args))
            return 0
        if not args.make:
            gpu_of(args)  # it ends the program before models are made in vain
        made = make_held_out(args.held_out, kept(args)) if drawn else make(chosen, kept(args))
        if args.make:
            show_models(made, kept(args))
            note(f"The models are in {kept(args)}")
            return 0 if drawn or made == chosen else 1
        if args.neighbours:
            measure_beside(made, settings_of(args), args)
            return 0
        began = time.monotonic()
        results = measure_all(made, chosen_engines(args), settings_of(args), args)
        draw(results, results_file(args.output, results.settings).with_suffix(".svg"))
        note(f"Measured in {(time.monotonic() - began) / 60:.1f} minutes; the results are in {args.output}")
    show(results)
    if args.record:
        record(results)
    return 0


if __name__ == "__main__":
    sys.exit(main())
