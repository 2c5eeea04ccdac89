"""How much memory runs take, keep and give back, here and in onnxruntime: python -m benchmarks.memory.

Each engine runs each model in a process of its own. The inputs' sizes change from run to run.
"""

from __future__ import annotations

import argparse
import json
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

import numpy as np

from onnx_torch._engines.other_engine import OtherEngine
from onnx_torch_cli.terminal import progress

from . import machine
from .engines import OURS, REFERENCE
from .models.memory import MODELS, Model

ROOT = Path(__file__).resolve().parent.parent
ENGINES = (OURS, REFERENCE)
SETS = 100  # inputs of different sizes, run in turn
POINTS = 200  # the points at which memory is read
WARM_UP = 0.1  # the part of the points that is left out: allocators and caches fill
PARTS, STUDENT = 20, 2.101  # the means that a line goes through; 95 % of Student's distribution for two fewer
LARGE, SMALL = 64, 1  # sizes of batches
MARKS = ("<!-- memory: begin -->", "<!-- memory: end -->")


@dataclass
class Slope:
    """The growth of resident memory, in bytes a run."""

    value: float
    uncertainty: float  #: half of the interval that holds the slope with a confidence of 95 %

    def __str__(self) -> str:
        return f"{self.value:+.1f} ± {self.uncertainty:.1f}"


@dataclass
class Flatness:
    model: str
    engine: str
    runs: int
    slope: Slope
    first: float  #: bytes, after the warm-up
    last: float


@dataclass
class Held:
    """Bytes over what was resident before, when the model had run a few batches of one."""

    model: str
    engine: str
    after_large: float  #: right after one batch of 64
    later: float  #: ten batches of one, and a second, later
    trimmed: float | None = None  #: after `trim`, where there is one


def slope(runs: Sequence[float], memory: Sequence[float]) -> Slope:
    """Finds the slope of a line through the points, by least squares.

    Memory goes up and down in steps that last for many points, so that neighbours are not independent: the uncertainty
    is that of the means of parts.
    """
    x, y = np.asarray(runs, float), np.asarray(memory, float)
    means_x, means_y = ([part.mean() for part in np.array_split(v, PARTS)] for v in (x, y))
    centred = np.asarray(means_x) - np.mean(means_x)
    value = float(centred @ means_y / (centred @ centred))
    residuals = means_y - np.mean(means_y) - value * centred
    deviation = np.sqrt(residuals @ residuals / (PARTS - 2) / (centred @ centred))
    return Slope(value, float(STUDENT * deviation))


def start(engine: str, file: Path, threads: int) -> OtherEngine:
    return OtherEngine(engine, str(file), options={"threads": threads}, modules=[engine])


def resident(process: OtherEngine) -> int:
    return machine.memory(process.pid, "VmRSS")


def flatness(
    model: Model, engine: str, file: Path, runs: int, threads: int, tell: Callable[[int, int], None]
) -> Flatness:
    rng = np.random.default_rng(0)
    times = max(1, runs // (SETS * POINTS))
    counts, memory = [], []
    with start(engine, file, threads) as process:
        for point in range(POINTS):
            sets = [model.feeds(rng, int(rng.integers(1, model.largest + 1))) for _ in range(SETS)]
            process.time(sets, times)
            counts.append((point + 1) * times * SETS)
            memory.append(resident(process))
            tell(point + 1, POINTS)
    skipped = int(POINTS * WARM_UP)
    return Flatness(
        model.name, engine, counts[-1], slope(counts[skipped:], memory[skipped:]), memory[skipped], memory[-1]
    )


def held(model: Model, engine: str, file: Path, threads: int) -> Held:
    rng = np.random.default_rng(0)
    small, large = (model.feeds(rng, size) for size in (SMALL, LARGE))
    with start(engine, file, threads) as process:
        process.time(small, 10)
        before = resident(process)
        process.time(large, 1)
        after = resident(process)
        process.time(small, 10)
        time.sleep(1)
        found = Held(model.name, engine, after - before, resident(process) - before)
        if engine == OURS:
            process.ask("trim")
            found.trimmed = resident(process) - before
        return found


def page(flat: Sequence[Flatness], kept: Sequence[Held], threads: int) -> str:
    """Writes the section of docs/performance.md, in Markdown."""
    mega = lambda value: "" if value is None else f"{value / 1e6:+.1f}"
    lines = [
        f"Measured on {time.strftime('%Y-%m-%d')}: {machine.processor()}; onnxruntime {machine.version(REFERENCE)}, "
        f"{'1 thread' if threads == 1 else f'{threads} threads'}.",
        "",
        "| runs of changing sizes | runs | onnx_torch: bytes a run | onnxruntime: bytes a run |",
        "|---|---|---|---|",
    ]
    for name in dict.fromkeys(one.model for one in flat):
        by_engine = {one.engine: one for one in flat if one.model == name}
        lines.append(f"| {name} | {by_engine[OURS].runs:,} | {by_engine[OURS].slope} | {by_engine[REFERENCE].slope} |")
    large = f"one batch of {LARGE} among batches of 1: MB over before"
    lines += [
        "",
        f"| {large} | engine | right after | 10 runs and 1 s later | after `trim()` |",
        "|---|---|---|---|---|",
    ]
    for one in kept:
        figures = " | ".join(map(mega, (one.after_large, one.later, one.trimmed)))
        lines.append(f"| {one.model} | {one.engine} | {figures} |")
    return "\n".join(lines)


def into_page(text: str, section: str, marks: tuple[str, str] = MARKS) -> str:
    """Puts this section between its marks in the documentation."""
    before, _, rest = text.partition(marks[0])
    _, found, after = rest.partition(marks[1])
    if not found:
        raise SystemExit(f"docs/performance.md lacks the marks {marks[0]} and {marks[1]}")
    return f"{before}{marks[0]}\n{section}\n{marks[1]}{after}"


def give_results(
    args: argparse.Namespace, name: str, results: object, section: str, marks: tuple[str, str] = MARKS
) -> None:
    """Writes the results into the folder that is asked for, shows their section, and records it where that is asked."""
    (args.output / f"{name}.json").write_text(json.dumps(results, indent=1))
    print(section)
    if args.record:
        docs = ROOT / "docs" / "performance.md"
        docs.write_text(into_page(docs.read_text(), section, marks))


def parser() -> argparse.ArgumentParser:
    top = argparse.ArgumentParser(prog="python -m benchmarks.memory", description=__doc__)
    top.add_argument("--runs", type=int, default=100_000, help="of each model (default: %(default)s)")
    top.add_argument("--models", nargs="+", choices=MODELS, metavar="NAME", help=f"only these, of {', '.join(MODELS)}")
    top.add_argument("--threads", type=int, default=1, help="how many each engine uses (default: %(default)s)")
    top.add_argument("--output", type=Path, default=ROOT / "out" / "bench", metavar="FOLDER", help="for the results")
    top.add_argument("--record", action="store_true", help="write the results into docs/performance.md, too")
    return top


def main() -> int:
    args = parser().parse_args()
    args.output.mkdir(parents=True, exist_ok=True)
    flat, kept = [], []
    for model in (MODELS[name] for name in args.models or MODELS):
        file = args.output / f"memory_{model.name.replace(' ', '_')}.onnx"
        model.write(file)
        for engine in ENGINES:
            with progress(f"{model.name} in {engine}") as tell:
                flat.append(flatness(model, engine, file, args.runs, args.threads, tell))
            if model.has_batches:
                kept.append(held(model, engine, file, args.threads))
    results = {"flatness": [asdict(one) for one in flat], "held": [asdict(one) for one in kept]}
    give_results(args, "memory", results, page(flat, kept, args.threads))
    return 0


if __name__ == "__main__":
    sys.exit(main())
