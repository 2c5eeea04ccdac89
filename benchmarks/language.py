"""How fast a decoder generates, here and in engines for language models: python -m benchmarks.language.

A decoder like Llama's of 0.42 billion parameters with random weights, as onnxruntime-genai's builder writes it, reads
prompts and generates tokens, the likeliest each time. Every engine has a process of its own, and they take turns. The
other engines are those that are installed (requirements/language.txt).
"""

from __future__ import annotations

import argparse
import contextlib
import importlib.util
import statistics
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path

import numpy as np
import onnx

from onnx_torch._engines import generation_engines
from onnx_torch._engines.other_engine import OtherEngine
from onnx_torch._models.trust import trust_of
from onnx_torch_cli.terminal import note, progress

from . import machine
from .engines import OURS
from .memory import give_results
from .models.language import SIZES, WEIGHTS, built, gguf_file

ROOT = Path(__file__).resolve().parent.parent
GENAI, LLAMA, OPENVINO = "onnxruntime-genai", "llama.cpp", "openvino-genai"
MODULES = {GENAI: "onnxruntime_genai", LLAMA: "llama_cpp", OPENVINO: "openvino_genai"}
SCRIPTS = {OURS: generation_engines.__file__}
OTHERS = str(Path(__file__).with_name("language_engines.py"))
OF_FOUR_BITS = "4_bits_level_4"  # the weights that llama.cpp and openvino-genai are compared with
TOKENS = {128: 33, 512: 17, 2048: 17}  # by the length of the prompt
NEW_TOKENS = 32  # that are generated of each of several prompts, or by beams
TOGETHER = {  # the lengths of prompts, and the number of beams
    "8 prompts of 32 to 256 tokens": (list(range(32, 257, 32)), 1),
    "4 beams after 128 tokens": ([128], 4),
}
MARKS = ("<!-- language: begin -->", "<!-- language: end -->")
Tell = Callable[[int, int], None]
Seconds = dict[str, list[float]]  # of each round, by engine


@dataclass
class Speed:
    """What one engine took, round by round, by the length of the prompt."""

    weights: str
    engine: str
    prompt: dict[int, list[float]] = field(default_factory=dict)  #: seconds until the first token
    decode: dict[int, list[float]] = field(default_factory=dict)  #: seconds of a token after it, the median
    first: list[float] = field(default_factory=list)  #: seconds from the model's file to the first token of all
    peak: int = 0  #: bytes


def start(engine: str, file: Path, threads: int) -> OtherEngine:
    """Starts an engine once its files are in the page cache, as they are for whoever reads them second."""
    for part in [file] if file.is_file() else file.iterdir():
        part.read_bytes()
    options = {"device": "CPU", "threads": threads, "trust": trust_of(None, "checked", "follow")}
    options["most"] = SIZES["max_position_embeddings"]
    modules = [MODULES.get(engine, "onnx_torch")]
    return OtherEngine(engine, str(file), options=options, modules=modules, script=SCRIPTS.get(engine, OTHERS))


def files(weights: str, folder: Path) -> dict[str, Path]:
    """Gives what each engine that is installed reads."""
    there = [name for name, module in MODULES.items() if importlib.util.find_spec(module)]
    found = {OURS: built(folder, weights)}
    if GENAI in there:
        found[GENAI] = found[OURS]
    if weights == OF_FOUR_BITS:
        found |= {name: gguf_file(folder) for name in (LLAMA, OPENVINO) if name in there}
    return found


@contextlib.contextmanager
def started(weights: str, folder: Path, threads: int) -> Iterator[dict[str, OtherEngine]]:
    """Starts the engines that can read their files, one after another."""
    with contextlib.ExitStack() as stack:
        running = {}
        for engine, file in files(weights, folder).items():
            try:
                running[engine] = stack.enter_context(start(engine, file, threads))
            except Exception as error:  # what other engines raise
                if engine == OURS:
                    raise
                note(f"{engine} cannot read {file.name}: {str(error).strip().splitlines()[-1][:300]}")
        yield running


def prompt(generator: np.random.Generator, length: int) -> list[int]:
    return generator.integers(3, SIZES["vocab_size"], length).tolist()


def measure(weights: str, folder: Path, threads: int, rounds: int, tell: Tell) -> list[Speed]:
    generator = np.random.default_rng(0)
    turns, done = len(TOKENS) * (rounds + 1) + rounds, 0
    with started(weights, folder, threads) as running:
        speeds = {engine: Speed(weights, engine) for engine in running}
        for length, count in TOKENS.items():
            for number in range(rounds + 1):
                ids = prompt(generator, length)  # others: engines remember prompts
                for engine, process in running.items():
                    seconds, _ = process.ask("generate", ids, count)
                    speed = speeds[engine]
                    if number:  # the first turn is not measured
                        speed.prompt.setdefault(length, []).append(seconds[0])
                        speed.decode.setdefault(length, []).append(statistics.median(seconds[1:]))
                done += 1
                tell(done, turns)
        for engine, process in running.items():
            speeds[engine].peak = process.ask("peak_bytes")
    length, file_of = min(TOKENS), files(weights, folder)
    for _ in range(rounds):
        ids = prompt(generator, length)
        for engine, speed in speeds.items():
            with start(engine, file_of[engine], threads) as process:
                speed.first.append(process.load_seconds + process.ask("generate", ids, TOKENS[length])[0][0])
        done += 1
        tell(done, turns)
    return list(speeds.values())


def measure_together(weights: str, folder: Path, threads: int, rounds: int, tell: Tell) -> dict[str, Seconds]:
    """Measures several prompts at a time, and beams, here and in onnxruntime-genai."""
    generator = np.random.default_rng(1)
    found: dict[str, Seconds] = {title: {} for title in TOGETHER}
    with started(weights, folder, threads) as running:
        turns, done = len(TOGETHER) * (rounds + 1), 0
        for title, (lengths, beams) in TOGETHER.items():
            for number in range(rounds + 1):
                prompts = [prompt(generator, length) for length in lengths]
                for engine in (OURS, GENAI):
                    if engine not in running:
                        continue
                    seconds = running[engine].ask("generate_together", prompts, NEW_TOKENS, beams)
                    if number:  # the first turn is not measured
                        found[title].setdefault(engine, []).append(seconds)
                done += 1
                tell(done, turns)
    return found


def read_rate(threads: int) -> float:
    """Gives the bytes a second at which a loop reads 1 GiB, in the best of some turns."""
    from concurrent.futures import ThreadPoolExecutor

    parts = [np.ones(1 << 27, np.int64)[: (1 << 27) // threads] for _ in range(threads)]
    with ThreadPoolExecutor(threads) as pool:
        best = min(_seconds(lambda: list(pool.map(np.max, parts))) for _ in range(7))
    return sum(part.nbytes for part in parts) / best


def _seconds(action: Callable[[], object]) -> float:
    begin = time.perf_counter()
    action()
    return time.perf_counter() - begin


def bytes_of_step(weights: str, folder: Path, past: int) -> int:
    """Counts the bytes of weights and caches that a step reads; of the table of words it reads a row."""
    target = built(folder, weights)
    words = next(
        t for t in onnx.load(target / "model.onnx", load_external_data=False).graph.initializer if "embed" in t.name
    )
    size = sum(file.stat().st_size for file in target.glob("model.onnx*"))
    each = 2 if weights == "float16" else 4
    heads = SIZES["num_key_value_heads"] * (SIZES["hidden_size"] // SIZES["num_attention_heads"])
    caches = 2 * SIZES["num_hidden_layers"] * heads * past * each
    return size - int(np.prod(words.dims)) * each + caches


def ratio(ours: Sequence[float], theirs: Sequence[float]) -> str:
    pairs = [b / a for a, b in zip(ours, theirs, strict=True)]
    return f"{statistics.median(pairs):.2f} ({min(pairs):.2f}–{max(pairs):.2f})"


def page(
    speeds: Sequence[Speed],
    together: Mapping[str, Seconds],
    read: Mapping[str, Mapping[int, int]],
    rate: float,
    threads: int,
) -> str:
    """Writes the section of docs/performance.md, in Markdown."""
    engines = dict.fromkeys(speed.engine for speed in speeds if speed.engine != OURS)
    versions = ", ".join(f"{name} {machine.version(_package(name))}" for name in engines)
    lines = [
        f"Measured on {time.strftime('%Y-%m-%d')}: {machine.processor()}; {versions or 'no other engine'}; "
        f"{'1 thread' if threads == 1 else f'{threads} threads'}. A loop reads {rate / 1e9:.1f} GB/s.",
        "",
        "| weights | beside | prompt of 128 | of 512 | of 2,048 | a token after 128 | after 512 | after 2,048 "
        "| first token after loading, ours over theirs | peak of memory, ours over theirs |",
        "|---|---|---|---|---|---|---|---|---|---|",
    ]
    ours = {speed.weights: speed for speed in speeds if speed.engine == OURS}
    for other in (speed for speed in speeds if speed.engine != OURS):
        mine = ours[other.weights]
        figures = [ratio(mine.prompt[n], other.prompt[n]) for n in TOKENS]
        figures += [ratio(mine.decode[n], other.decode[n]) for n in TOKENS]
        figures += [ratio(other.first, mine.first), f"{mine.peak / other.peak:.2f}"]
        lines.append(f"| {WEIGHTS[mine.weights].title} | {other.engine} | {' | '.join(figures)} |")
    lines += [
        "",
        "| weights | ms a token after 128 | after 2,048 | GB that a step reads after 128 | share of the loop's speed "
        "| after 2,048 | prompt of 512, ms | first token after loading, s | peak of memory, GB |",
        "|---|---|---|---|---|---|---|---|---|",
    ]
    for name, speed in ours.items():
        decode = {n: statistics.median(speed.decode[n]) for n in TOKENS}
        share = {n: read[name][n] / decode[n] / rate for n in TOKENS}
        figures = [f"{1e3 * decode[128]:.3g}", f"{1e3 * decode[2048]:.3g}", f"{read[name][128] / 1e9:.2f}"]
        figures += [f"{share[128]:.2f}", f"{share[2048]:.2f}", f"{1e3 * statistics.median(speed.prompt[512]):.0f}"]
        figures += [f"{statistics.median(speed.first):.2f}", f"{speed.peak / 1e9:.2f}"]
        lines.append(f"| {WEIGHTS[name].title} | {' | '.join(figures)} |")
    if together:
        lines += [
            "",
            f"| {WEIGHTS[OF_FOUR_BITS].title}, {NEW_TOKENS} new tokens each | s | {GENAI} |",
            "|---|---|---|",
        ]
    for title, of in together.items():
        beside = ratio(of[OURS], of[GENAI]) if GENAI in of else ""
        lines.append(f"| {title} | {statistics.median(of[OURS]):.2f} | {beside} |")
    return "\n".join(lines)


def _package(engine: str) -> str:
    return {LLAMA: "llama_cpp_python"}.get(engine, engine)


def parser() -> argparse.ArgumentParser:
    top = argparse.ArgumentParser(prog="python -m benchmarks.language", description=__doc__)
    top.add_argument(
        "--weights",
        nargs="+",
        choices=WEIGHTS,
        default=list(WEIGHTS),
        metavar="NAME",
        help=f"only these, of {', '.join(WEIGHTS)}",
    )
    top.add_argument("--rounds", type=int, default=3, help="how often each engine has its turn (default: %(default)s)")
    top.add_argument("--threads", type=int, default=2, help="how many each engine uses (default: %(default)s)")
    kept = ROOT / "build" / "bench" / "language"
    top.add_argument("--kept", type=Path, default=kept, metavar="FOLDER", help="where the models are kept")
    top.add_argument("--make", action="store_true", help="write the models that are not there yet, and measure nothing")
    top.add_argument("--output", type=Path, default=ROOT / "out" / "bench", metavar="FOLDER", help="for the results")
    top.add_argument("--record", action="store_true", help="write the results into docs/performance.md, too")
    return top


def main() -> int:
    args = parser().parse_args()
    args.kept.mkdir(parents=True, exist_ok=True)
    args.output.mkdir(parents=True, exist_ok=True)
    for name in args.weights:
        files(name, args.kept)
    if args.make:
        return 0
    speeds, rate = [], read_rate(args.threads)
    for name in args.weights:
        with progress(WEIGHTS[name].title) as tell:
            speeds += measure(name, args.kept, args.threads, args.rounds, tell)
    together: dict[str, Seconds] = {}
    if OF_FOUR_BITS in args.weights:
        with progress("several at a time") as tell:
            together = measure_together(OF_FOUR_BITS, args.kept, args.threads, args.rounds, tell)
    read = {name: {past: bytes_of_step(name, args.kept, past) for past in TOKENS} for name in args.weights}
    results = {"rate": rate, "read": read, "speeds": [asdict(speed) for speed in speeds], "together": together}
    give_results(args, "language", results, page(speeds, together, read, rate, args.threads), MARKS)
    return 0


if __name__ == "__main__":
    sys.exit(main())
