"""The parts of the work on a GPU: each a list of steps, commands whose outcomes are kept, so that it can be cut off."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
import threading
import time
import xml.etree.ElementTree as ElementTree
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any, TextIO

from .pack import LAID_OUT, ROOT, environment

BUILD = ROOT / "build" / "release"
TESTS = ROOT / "tests" / "python"
DEVICE = "cuda:0"
# The choice of CUDA's tests, by their names, among those that run on several devices; pytest does not mind the case.
ON_CUDA = ["-k", "cuda or gpu"]
APART = {"test_backend.py", "test_backend_plain.py", "test_past_releases.py", "test_cuda_memory.py"}


@dataclass(frozen=True)
class Step:
    name: str
    command: Sequence[str]
    folder: Path = ROOT
    variables: dict[str, str] = field(default_factory=dict)
    again: bool = False  #: it is run each time, as it finds out by itself what is done
    collect: Callable[[Path], dict[str, Any]] = lambda log: {}  #: gives what else is kept of it


@dataclass(frozen=True)
class Part:
    name: str
    what: str  #: what it does, and how long it takes, as far as that is known
    steps: Callable[[], list[Step]]
    needs_gpu: bool = True


@dataclass
class Outcome:
    """The outcome of a step, as it is written beside its log."""

    step: str
    result: str  #: "passed", "failed", or "cut off" where it took longer than a whole call may
    seconds: float
    passed: int = 0
    failed: int = 0
    skipped: int = 0
    failures: list[str] = field(default_factory=list)
    more: dict[str, Any] = field(default_factory=dict)

    def __str__(self) -> str:
        counts = f" ({self.passed} passed, {self.failed} failed, {self.skipped} skipped)"
        return f"{self.step}: {self.result} in {self.seconds:.0f} s{counts if self.passed or self.failed else ''}"


def python(*arguments: str) -> list[str]:
    return [sys.executable, *arguments]


# --- The parts ---


def pytest(name: str, *arguments: str, **variables: str) -> Step:
    """Gives a step that is a run of pytest; what passed is counted in its report."""
    report = LAID_OUT / "reports" / f"{name}.xml"
    command = python("-m", "pytest", "-q", "-p", "no:cacheprovider", f"--junitxml={report}", *arguments)
    return Step(name, command, variables=variables, collect=lambda log: counted(report))


def build_steps() -> list[Step]:
    configure = [
        "cmake", "--preset", "release", f"-DPython_EXECUTABLE={sys.executable}", "-DONNX_TORCH_CUDA=ON",
        "-DONNX_TORCH_UNITY=ON",
    ]  # fmt: skip
    configure += [f"-DCMAKE_CUDA_ARCHITECTURES={own}-real" for own in architectures()]
    return [
        Step("configure", configure, again=True),
        Step("compile", ["cmake", "--build", str(BUILD), "--parallel", str(os.cpu_count() or 1)], again=True),
    ]


def architectures() -> list[str]:
    """Gives the architecture of the GPU here, such as "90"; none without a GPU, for which the default is compiled."""
    command = ["nvidia-smi", "--query-gpu=compute_cap", "--format=csv,noheader"]
    try:
        told = subprocess.run(command, capture_output=True, text=True, check=True).stdout
    except (OSError, subprocess.CalledProcessError):
        return []
    return [told.splitlines()[0].replace(".", "")] if told.strip() else []


def suite_steps() -> list[Step]:
    names = {"suite": "test_backend.py", "suite without passes": "test_backend_plain.py"}
    selftest = Step("selftest", python("-m", "onnx_torch_cli", "selftest", "--device", DEVICE))
    return [selftest, *(pytest(name, str(TESTS / file), "-k", "cuda") for name, file in names.items())]


def test_steps() -> list[Step]:
    """Gives a step for each file that has tests for CUDA."""
    files = [file for file in sorted(TESTS.glob("test_*.py")) if file.name not in APART]
    on_cuda = [file for file in files if re.search("cuda|gpu|DEVICES", file.read_text(), re.I)]
    return [pytest(file.stem, str(file), *ON_CUDA) for file in on_cuda]


def past_steps() -> list[Step]:
    """Gives a step for each release of which the wheel is there."""
    releases = re.findall(r'^ +"(1\.[\d.]+)": \("', (TESTS / "past_releases.py").read_text(), re.M)
    there = ROOT / ".cache" / "past_releases"
    found = [release for release in releases if list(there.glob(f"onnx-{release}-*.whl"))]
    variables = {"ONNX_TORCH_PAST_RELEASES": "all"} if found == releases else {}  # else some would be downloaded
    file = str(TESTS / "test_past_releases.py")
    return [pytest(release, file, "-k", f"cuda and [{release}-", **variables) for release in found]


def matrix_steps() -> list[Step]:
    recorded = TESTS / "type_matrix" / "results.json"
    cells = lambda log: {"CUDA": json.loads(recorded.read_text())["CUDA"]}
    return [Step("matrix", python("-m", "type_matrix", "--device", DEVICE), TESTS, collect=cells)]


def memory_steps(chosen: str) -> list[Step]:
    """Gives a step for each test of test_cuda_memory.py whose name has the word in it."""
    listed = subprocess.run(
        python("-m", "pytest", "--collect-only", "-q", str(TESTS / "test_cuda_memory.py"), "-k", chosen),
        **_quiet(),
    ).stdout
    names = re.findall(r"^\S+::(.+)$", listed, re.M)
    return [pytest(slug(name), f"{TESTS / 'test_cuda_memory.py'}::{name}") for name in names]


def bench_steps() -> list[Step]:
    """Gives a step for each model; its results are those of a benchmark that measures nothing else."""
    program = f"from benchmarks.variants import cases; print(*cases({DEVICE!r}, 'float32'), sep='\\n')"
    names = subprocess.run(python("-c", program), **_quiet()).stdout.split()

    def step(name: str) -> Step:
        folder = LAID_OUT / "bench" / name
        command = python("-m", "benchmarks", "--device", DEVICE, "--models", name, "--output", str(folder))
        return Step(name, command, collect=lambda log: {"results": benchmark_of(folder)})

    return [step(name) for name in names]


def benchmark_of(folder: Path) -> dict[str, Any]:
    files = list(folder.glob("performance-*.json"))
    if not files:
        raise LookupError("the benchmark has left no results; its log says why")
    found: dict[str, Any] = json.loads(files[0].read_text())
    return found


def _quiet() -> dict[str, Any]:
    return {"capture_output": True, "text": True, "cwd": ROOT, "env": environment(BUILD)}


PARTS = [
    Part("build", "configure and compile, with the CUDA kernels; 13 minutes on 2 cores of a CPU", build_steps, False),
    Part("suite", "onnx-torch selftest, and ONNX's backend suite with passes and without", suite_steps),
    Part("tests", "all other tests that run on CUDA, file by file; several calls", test_steps),
    Part("past", "the cases that past releases of onnx shipped", past_steps),
    Part("matrix", "every operator version with every type; half a minute on a CPU", matrix_steps),
    Part("sanitizer", "compute-sanitizer on the kernels; several calls", lambda: memory_steps("sanitizer")),
    Part("endurance", "10,000 runs, in three ways, with flat memory", lambda: memory_steps("memory_stays_flat")),
    Part("bench", "the benchmark in float32, model by model; many calls", bench_steps),
]


# --- Running one ---


def slug(name: str) -> str:
    return re.sub(r"\W+", "-", name).strip("-")


def counted(report: Path) -> dict[str, Any]:
    """Counts what a report of pytest tells; a file that cannot be collected is a failure."""
    counts: dict[str, Any] = {"passed": 0, "failed": 0, "skipped": 0, "failures": []}
    for case in ElementTree.parse(report).iter("testcase"):
        wrong = [child for child in case if child.tag in ("failure", "error")]
        if wrong:
            counts["failed"] += 1
            counts["failures"].append(f"{case.get('name')}: {(wrong[0].get('message') or '')[:300]}")
        elif case.find("skipped") is not None:
            counts["skipped"] += 1
        else:
            counts["passed"] += 1
    return counts


NO_TEST_CHOSEN = 5  # pytest's exit code


def run(
    part: Part, steps: Sequence[Step], results: Path, limit: float, show: Callable[[str], None] = print, jobs: int = 1
) -> bool:
    """Runs the steps that are not done, so many at a time, as far as the time allows; tells whether all are done.

    A step that is cut off is begun anew in the next call; one that had all the time of a call is not.
    """
    end = time.monotonic() + limit
    folder = results / part.name
    folder.mkdir(parents=True, exist_ok=True)
    (LAID_OUT / "reports").mkdir(parents=True, exist_ok=True)
    stopped = threading.Event()

    def is_done(step: Step) -> bool:
        """Runs the step unless it is done, and tells whether it is done after this call."""
        file = folder / f"{slug(step.name)}.json"
        if file.exists() and not step.again:
            return True
        left = end - time.monotonic()
        if stopped.is_set() or left < min(30, limit / 4):
            return False
        outcome = outcome_of(step, file.with_suffix(".log"), left)
        if outcome.result == "cut off" and left < 0.9 * limit:
            show(f"{part.name}: {step.name} was cut off; the same command begins it anew.")
            return False
        file.write_text(json.dumps(asdict(outcome), indent=1))
        show(f"{part.name}: {outcome}")
        if outcome.result != "passed" and step.again:  # later steps need it
            stopped.set()
            show(last_lines(file.with_suffix(".log")))
            return False
        return True

    with ThreadPoolExecutor(jobs) as pool:
        done = list(pool.map(is_done, steps))
    if not all(done) and not stopped.is_set():
        show(f"{part.name}: {done.count(False)} of {len(steps)} steps are left. The same command goes on.")
    return all(done)


def outcome_of(step: Step, log: Path, limit: float) -> Outcome:
    start = time.monotonic()
    variables = {**environment(BUILD), **step.variables}
    with log.open("w") as output:
        try:
            code = returncode(step, variables, output, limit)
        except subprocess.TimeoutExpired:
            return Outcome(step.name, "cut off", time.monotonic() - start)
        except OSError as error:
            output.write(f"{error}\n")
            code = 127
    seconds = time.monotonic() - start
    outcome = Outcome(step.name, "passed" if code in (0, NO_TEST_CHOSEN) else "failed", seconds)
    try:
        found = step.collect(log)
    except (OSError, LookupError, ValueError, ElementTree.ParseError) as error:  # there is no result to collect
        outcome.result, found = "failed", {}
        outcome.failures.append(f"{type(error).__name__}: {error}")
    for name in ("passed", "failed", "skipped", "failures"):
        setattr(outcome, name, found.pop(name, getattr(outcome, name)))
    outcome.more = found
    if outcome.result == "failed" and not outcome.failures:
        outcome.failures.append(last_lines(log, 5))
    return outcome


def returncode(step: Step, variables: dict[str, str], output: TextIO, limit: float) -> int:
    """Runs a command and gives its exit code; where it takes too long, ends it with all that it has started."""
    child = subprocess.Popen(
        step.command,
        stdout=output,
        stderr=subprocess.STDOUT,
        stdin=subprocess.DEVNULL,
        cwd=step.folder,
        env=variables,
        start_new_session=True,
    )
    try:
        return child.wait(limit)
    except BaseException:
        os.killpg(child.pid, signal.SIGKILL)
        child.wait()
        raise


def last_lines(log: Path, count: int = 30) -> str:
    return "\n".join(log.read_text(errors="replace").splitlines()[-count:])
