"""How long models take to load, here and in onnxruntime: python -m benchmarks.loading FILE.onnx…

Each file is timed from its path to the end of the first run, in a new process of each engine, after the imports, and
in the runs that follow; inputs are random. Beside them: very many small models in a row, and eight prepared models in
turn and at once.
"""

from __future__ import annotations

import argparse
import statistics
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnx.parser

from onnx_torch import random_inputs
from onnx_torch._engines.other_engine import OtherEngine
from onnx_torch_cli.terminal import progress

from . import machine
from .engines import OURS, REFERENCE
from .memory import give_results
from .models.memory import MODELS

ROOT = Path(__file__).resolve().parent.parent
ENGINES = (OURS, REFERENCE)
SCRIPT = Path(__file__).with_name("loading_engines.py")
MODULES = {OURS: "onnx_torch.backend", REFERENCE: "onnxruntime"}
AGAIN = 3  # loads after a process's first
SECONDS = 1.0  # the timed runs take so many in all
POINTS = 10  # the points in the row of small models at which time and memory are read
HELD = 8
MARKS = ("<!-- loading: begin -->", "<!-- loading: end -->")
Feeds = Mapping[str, Any]
Tell = Callable[[int, int], None]


@dataclass
class Load:
    """Seconds from a model's path to the end of its first run, and of later runs, by engine, round by round."""

    model: str
    first: dict[str, list[float]]  #: of a process's first model
    again: dict[str, list[float]]  #: of the same model, loaded once more
    runs: dict[str, list[float]]  #: of a run, the median

    def ratio(self, seconds: Mapping[str, Sequence[float]]) -> float:
        return statistics.median(ours / theirs for ours, theirs in zip(seconds[OURS], seconds[REFERENCE], strict=True))


@dataclass
class Sessions:
    """Small models that are loaded and run once, one after another."""

    engine: str
    count: int
    seconds: float
    early: int  #: bytes that are resident after the first tenth
    late: int  #: bytes that are resident in the end


@dataclass
class Held:
    """Seconds of a run of several prepared models of one process."""

    engine: str
    alone: float
    in_turn: float
    at_once: float


def start(engine: str, file: Path, threads: int) -> OtherEngine:
    return OtherEngine(engine, str(file), options={"threads": threads}, modules=[MODULES[engine]], script=str(SCRIPT))


def load(file: Path, feeds: Feeds, threads: int, rounds: int, tell: Tell) -> Load:
    first, again, runs = ({name: [] for name in ENGINES} for _ in range(3))
    for number in range(rounds):
        for engine in ENGINES if number % 2 else reversed(ENGINES):
            with start(engine, file, threads) as process:
                of_first, *others = process.ask("first_runs", feeds, 1 + AGAIN)
                process.ask("hold", 1)
                runs[engine].append(statistics.median(process.ask("runs", feeds, SECONDS)))
            first[engine].append(of_first)
            again[engine].append(statistics.median(others))
        tell(number + 1, rounds)
    return Load(file.stem, first, again, runs)


def sessions(file: Path, feeds: Feeds, count: int, threads: int, tell: Tell) -> list[Sessions]:
    """Loads and runs small models in both engines, in turns."""
    running = {engine: start(engine, file, threads) for engine in ENGINES}
    seconds, memory = ({engine: [] for engine in ENGINES} for _ in range(2))
    try:
        for point in range(POINTS):
            for engine, process in running.items():
                seconds[engine].append(sum(process.ask("first_runs", feeds, count // POINTS)))
                memory[engine].append(machine.memory(process.pid, "VmRSS"))
            tell(point + 1, POINTS)
    finally:
        for process in running.values():
            process.close()
    return [Sessions(name, count, sum(seconds[name]), memory[name][0], memory[name][-1]) for name in ENGINES]


def held(engine: str, file: Path, feeds: Feeds, runs: int, threads: int) -> Held:
    with start(engine, file, threads) as process:
        process.ask("hold", HELD)
        process.ask("in_turn", feeds, runs)
        rounds = [
            (
                statistics.median(process.ask("alone", feeds, HELD * runs)),
                statistics.median(process.ask("in_turn", feeds, runs)),
                process.ask("at_once", feeds, runs) / (HELD * runs),
            )
            for _ in range(3)
        ]
    return Held(engine, *map(statistics.median, zip(*rounds, strict=True)))


def write_small(file: Path) -> None:
    """Writes a chain of ten nodes."""
    operators = ["Add", "Relu", "Mul", "Tanh", "Add", "Abs", "Mul", "Sigmoid", "Neg", "Softmax"]
    inputs = [f"y{i}, w" if operator in ("Add", "Mul") else f"y{i}" for i, operator in enumerate(operators)]
    nodes = "".join(f"y{i + 1} = {operators[i]}({inputs[i]}) " for i in range(len(operators)))
    text = f"""<ir_version: 10, opset_import: ["": 21]>
        small (float[4, 8] y0) => (float[4, 8] y10) <float[8] w = {{1, 2, 3, 4, 5, 6, 7, 8}}> {{ {nodes} }}"""
    onnx.save(onnx.parser.parse_model(text), file)


def page(loads: Sequence[Load], small: Sequence[Sessions], many: Sequence[Held], threads: int) -> str:
    """Writes the section of docs/performance.md, in Markdown."""
    ms = lambda seconds: f"{1e3 * statistics.median(seconds):.3g}"
    lines = [
        f"Measured on {time.strftime('%Y-%m-%d')}: {machine.processor()}; onnxruntime {machine.version(REFERENCE)}, "
        f"{'1 thread' if threads == 1 else f'{threads} threads'}.",
    ]
    if loads:
        lines += [
            "",
            "| model, from its path to the end of its first run | onnx_torch, ms | onnxruntime, ms | ratio "
            "| once more: onnx_torch, ms | onnxruntime, ms | ratio | a run: onnx_torch, ms | onnxruntime, ms | ratio |",
            "|---|---|---|---|---|---|---|---|---|---|",
        ]
    for one in loads:
        parts = [
            f"{ms(of[OURS])} | {ms(of[REFERENCE])} | {one.ratio(of):.2f}" for of in (one.first, one.again, one.runs)
        ]
        lines.append(f"| {one.model} | {' | '.join(parts)} |")
    lines += [
        "",
        "| small models in a row | number | seconds | MB after a tenth | MB in the end |",
        "|---|---|---|---|---|",
    ]
    for run in small:
        lines.append(
            f"| {run.engine} | {run.count:,} | {run.seconds:.1f} | {run.early / 1e6:.1f} | {run.late / 1e6:.1f} |"
        )
    lines += [
        "",
        f"| {HELD} prepared models: µs a run | one alone | in turn | at once, in threads |",
        "|---|---|---|---|",
    ]
    for state in many:
        figures = " | ".join(f"{1e6 * value:.0f}" for value in (state.alone, state.in_turn, state.at_once))
        lines.append(f"| {state.engine} | {figures} |")
    return "\n".join(lines)


def parser() -> argparse.ArgumentParser:
    top = argparse.ArgumentParser(prog="python -m benchmarks.loading", description=__doc__)
    top.add_argument("files", nargs="*", type=Path, help="models to load; an .npz beside one holds its inputs")
    top.add_argument("--rounds", type=int, default=5, help="of each file (default: %(default)s)")
    top.add_argument("--sessions", type=int, default=33_000, help="small models in a row (default: %(default)s)")
    top.add_argument("--runs", type=int, default=200, help="of each prepared model (default: %(default)s)")
    top.add_argument("--threads", type=int, default=1, help="how many each engine uses (default: %(default)s)")
    top.add_argument("--output", type=Path, default=ROOT / "out" / "bench", metavar="FOLDER", help="for the results")
    top.add_argument("--record", action="store_true", help="write the results into docs/performance.md, too")
    return top


def inputs_of(file: Path) -> dict[str, Any]:
    beside = file.with_suffix(".npz")
    if not beside.exists():
        return random_inputs(file)
    with np.load(beside) as arrays:
        return {
            name.removeprefix("0/"): arrays[name] for name in arrays.files if name.startswith("0/") or "/" not in name
        }


def main() -> int:
    args = parser().parse_args()
    args.output.mkdir(parents=True, exist_ok=True)
    loads = []
    for file in args.files:
        with progress(file.stem) as tell:
            loads.append(load(file, inputs_of(file), args.threads, args.rounds, tell))
    small, network = args.output / "small.onnx", args.output / "held.onnx"
    write_small(small)
    with progress("small models in a row") as tell:
        in_a_row = sessions(small, random_inputs(small), args.sessions, args.threads, tell)
    MODELS["cnn"].write(network)
    feeds = MODELS["cnn"].feeds(np.random.default_rng(0), 1)
    many = [held(engine, network, feeds, args.runs, args.threads) for engine in ENGINES]
    results = {"loads": [asdict(one) for one in loads], "sessions": [asdict(one) for one in in_a_row]}
    results["held"] = [asdict(one) for one in many]
    give_results(args, "loading", results, page(loads, in_a_row, many, args.threads), MARKS)
    return 0


if __name__ == "__main__":
    sys.exit(main())
