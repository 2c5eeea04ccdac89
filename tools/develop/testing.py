"""`./dev test`: the C++ and the Python tests, as they are or under a lower level of the CPU's instructions."""

from __future__ import annotations

import argparse
import re
import subprocess
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import TextIO

from tools.develop.environment import Environment
from tools.develop.project import BUILD, LOGS, OUT, ROOT, Command, Stop, seconds
from tools.develop.runner import execute
from tools.develop.steps import build_jobs, commit_number

# The levels of instructions below what the CPU has, set for ATen's kernels and ours, oneDNN's and MKL's, so that all
# agree. The flags of /proc/cpuinfo tell which of them a machine has.
CPU_LEVELS = {
    "avx512_vnni": ("avx512_vnni", {"ONEDNN_MAX_CPU_ISA": "AVX512_CORE_VNNI"}),
    "avx512": ("avx512bw", {"ONEDNN_MAX_CPU_ISA": "AVX512_CORE"}),
    "avx2": ("avx2", dict(ATEN_CPU_CAPABILITY="avx2", ONEDNN_MAX_CPU_ISA="AVX2", MKL_ENABLE_INSTRUCTIONS="AVX2")),
    "default": (
        "",
        dict(ATEN_CPU_CAPABILITY="default", ONEDNN_MAX_CPU_ISA="SSE41", MKL_ENABLE_INSTRUCTIONS="SSE4_2"),
    ),
}

# The marks of the tests that can tell a level from those above. AVX-512 computes float32 alike on all of its levels.
MARKED = {"avx512_vnni": "isa and narrow", "avx512": "isa and narrow"}
PYTEST_FOUND_NONE = 5

COVERAGE = "coverage"  # the preset whose programs count the lines that run


def test_job(args: argparse.Namespace, env: Environment, variables: dict[str, str]) -> int:
    if args.isa == "each":
        return test_levels(cpu_levels(), args, env, variables)
    if args.isa == "turns":
        return test_levels(levels_in_turn(), args, env, variables)
    return run_tests(args, env, variables, args.isa, [])


def test_levels(levels: list[str], args: argparse.Namespace, env: Environment, variables: dict[str, str]) -> int:
    """Runs the tests that can tell levels apart under each, a level a processor; each one's output comes at its end."""

    def run(level: str) -> int:
        log = LOGS / f"tests-{level}.log"
        with log.open("w") as file:
            code = run_tests(args, env, beside_others(variables, level), level, marked(level), file)
        print(log.read_text(errors="replace"), end="", flush=True)
        return code

    if args.dry_run:
        return max(run_tests(args, env, variables, level, marked(level)) for level in levels)
    LOGS.mkdir(parents=True, exist_ok=True)
    print(f"\n== Tests under {', '.join(levels)}, with their output in {LOGS.relative_to(ROOT)}", flush=True)
    with ThreadPoolExecutor(build_jobs()) as pool:
        return max(pool.map(run, levels))


def marked(level: str) -> list[str]:
    return ["-m", MARKED.get(level, "isa")]


def beside_others(variables: dict[str, str], level: str) -> dict[str, str]:
    """Gives the variables with a folder of the level's own for what the official suite writes before it reads it."""
    return {**variables, "ONNX_HOME": f"{variables['ONNX_HOME']}_{level}"}


def cpu_levels() -> list[str]:
    """Lists the levels that this machine's CPU has."""
    cpuinfo = Path("/proc/cpuinfo")
    flags = cpuinfo.read_text().split() if cpuinfo.exists() else []
    return [level for level, (flag, _) in CPU_LEVELS.items() if not flag or flag in flags]


def levels_in_turn() -> list[str]:
    """Gives a level of AVX-512 and one below, of those that this machine's CPU has; each commit has others."""
    wide = [level for level in cpu_levels() if level in MARKED]
    below = [level for level in cpu_levels() if level not in MARKED]
    return [levels[commit_number() % len(levels)] for levels in (wide, below) if levels]


def at_level(level: str | None, command: Command) -> Command:
    """Gives the command with variables that keep it from using instructions above the level."""
    if not level:
        return command
    if level not in cpu_levels():
        raise Stop(f"--isa {level}: this CPU has no such instructions; it has {', '.join(cpu_levels())}.")
    return ["env", *(f"{name}={value}" for name, value in CPU_LEVELS[level][1].items()), *command]


def run_tests(
    args: argparse.Namespace,
    env: Environment,
    variables: dict[str, str],
    level: str | None,
    marks: list[str],
    file: TextIO | None = None,
) -> int:
    parts = {"cpp", "python"} & set(args.names) or {"cpp", "python"}
    filters = [name for name in args.names if name not in ("cpp", "python")]
    jobs = []
    if "cpp" in parts and marks:  # in one process, which takes a sixth of the time that ctest's need
        for program in ("onnx_torch_tests", "onnx_torch_public_tests"):
            jobs.append((f"C++ tests, {program}", [f"build/{args.preset}/tests/cpp/{program}", "--gtest_brief=1"]))
    elif "cpp" in parts:
        tests = ["ctest", "--preset", args.preset]
        tests += ["--tests-regex", "|".join(filters)] if filters else []
        if args.dry_run or not filters or ctest_count(tests, variables):
            tests += ["--parallel", str(build_jobs())]
            jobs.append(("C++ tests", tests))
    if "python" in parts:
        whole = not filters and not marks
        chosen = ["-k", " or ".join(filters)] if filters else []
        beside = ["--numprocesses", str(build_jobs()), "--dist", "loadfile", "--no-loadscope-reorder"]
        workers = beside if whole and build_jobs() > 1 else []
        lines = ["--cov=onnx_torch", "--cov=onnx_torch_cli", "--cov-report=term"] * (args.preset == COVERAGE)
        jobs.append(("Python tests", [env.python, "-m", "pytest", "tests/python", *workers, *lines, *marks, *chosen]))
        if whole and not args.dry_run:  # a part's coverage would overwrite the whole's
            (OUT / "coverage").mkdir(parents=True, exist_ok=True)
            variables["CSVDIR"] = str(OUT / "coverage")

    if args.preset == COVERAGE and not args.dry_run:  # of earlier runs
        for counts in (BUILD / COVERAGE).rglob("*.gcda"):
            counts.unlink()
    results = []
    for name, command in jobs:
        start = time.monotonic()
        code = execute(name, at_level(level, command), variables, args.dry_run, file=file)
        if not (filters and name == "Python tests" and code == PYTEST_FOUND_NONE):
            results.append((f"{name}, {level}" if level else name, code, seconds(start)))
    if args.preset == COVERAGE:
        execute("Lines of C++", [env.python, "-m", "tools.lines", f"build/{COVERAGE}"], variables, args.dry_run)
    if args.dry_run:
        return 0
    if not results:
        raise Stop(f"No test has {' or '.join(filters)} in its name.")
    print(file=file)
    for name, code, took in results:
        print(f"{name}: {'passed' if code == 0 else 'FAILED'} in {took}", file=file)
    if "CSVDIR" in variables:
        print("Coverage: " + " ".join(str(path.relative_to(ROOT)) for path in sorted((OUT / "coverage").glob("*.csv"))))
    return 0 if all(code == 0 for _, code, _ in results) else 1


def ctest_count(command: Command, variables: dict[str, str]) -> int:
    listed = subprocess.run([*command, "--show-only"], capture_output=True, text=True, cwd=ROOT, env=variables).stdout
    match = re.search(r"Total Tests: (\d+)", listed)
    return int(match.group(1)) if match else 0
