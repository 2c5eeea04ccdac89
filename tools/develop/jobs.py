"""The jobs that the commands of `./dev` run, but for the tests."""

from __future__ import annotations

import argparse
import os
import re
import shutil
import subprocess
from pathlib import Path

from tools.develop.environment import Environment
from tools.develop.project import BUILD, OUT, ROOT, VENV, Command
from tools.develop.runner import execute
from tools.develop.steps import build_jobs, commit_number
from tools.develop.testing import at_level


def run_job(args: argparse.Namespace, env: Environment, variables: dict[str, str]) -> int:
    if args.model:
        command = [env.python, "-m", "onnx_torch_cli", "run", args.model, *args.rest]
    else:
        command = [env.python, str(ROOT / "examples" / "digits.py"), "--out", str(OUT)]
    return execute("Run", [*command, "--device", args.device], variables, args.dry_run, cwd=os.getcwd())


def matrix_job(args: argparse.Namespace, env: Environment, variables: dict[str, str]) -> int:
    command = [env.python, "-m", "type_matrix", "--device", args.device]
    command += ["--only", args.only] if args.only else []
    command += ["--filter", args.filter] if args.filter else []
    command += ["--record"] if args.record else []
    return execute("Type matrix", command, variables, args.dry_run, cwd=ROOT / "tests" / "python")


def bench_job(args: argparse.Namespace, env: Environment, variables: dict[str, str]) -> int:
    held = ["--isa", args.isa] if args.isa else []
    command = [env.python, "-m", "benchmarks", *held, *args.rest]
    return execute("Benchmark", at_level(args.isa, command), variables, args.dry_run)


def fuzz_job(args: argparse.Namespace, env: Environment, variables: dict[str, str]) -> int:
    program = BUILD / args.preset / "tests" / "fuzz" / "onnx_torch_fuzz"
    command = [env.python, str(ROOT / "tests" / "fuzz" / "campaign.py"), "--program", str(program), *args.rest]
    return execute("Fuzzing", at_level(args.isa, command), variables, args.dry_run)


def suites_job(args: argparse.Namespace, env: Environment, variables: dict[str, str]) -> int:
    return execute("Other projects' tests", [env.python, "-m", "tools.suites", *args.rest], variables, args.dry_run)


def wheel_job(args: argparse.Namespace, env: Environment, variables: dict[str, str]) -> int:
    """Builds, repairs and tests the wheel, compiled as the preset was: ccache has hardly anything compiled again."""
    folder = OUT / "wheel"
    build = [
        env.python,
        "-m",
        "build",
        "--wheel",
        "--no-isolation",
        "--skip-dependency-check",
        "--outdir",
        f"{folder}/built",
    ]
    build += ["-Cbuild-dir=build/wheel", *cmake_settings(args.preset, "CMAKE_CXX_COMPILER", "ONNX_TORCH_WERROR")]
    build += cmake_settings(
        args.preset, "ONNX_TORCH_UNITY", "ONNX_TORCH_CUDA", "CMAKE_CUDA_COMPILER", "CMAKE_CUDA_ARCHITECTURES"
    )
    repair = lambda: [
        env.python,
        str(ROOT / "cmake" / "repair_wheel.py"),
        *map(str, folder.glob("built/*.whl")),
        str(folder),
    ]
    if not args.dry_run:
        shutil.rmtree(folder, ignore_errors=True)
    code = execute("Build the wheel", build, variables, args.dry_run) or execute(
        "Repair it", repair(), variables, args.dry_run
    )
    if code or args.dry_run:
        return code
    (wheel,) = folder.glob("*.whl")
    variables["ONNX_TORCH_WHEEL"] = str(wheel)
    code = execute("Test it", [env.python, "-m", "pytest", "tests/wheel"], variables, args.dry_run)
    print(f"\n{wheel.relative_to(ROOT)}: {'good' if code == 0 else 'NOT good'}, {wheel.stat().st_size / 1e6:.1f} MB")
    return code


def cmake_settings(preset: str, *names: str) -> list[str]:
    """Gives settings of a configured build folder, as arguments for scikit-build-core."""
    cache = BUILD / preset / "CMakeCache.txt"
    lines = cache.read_text().splitlines() if cache.exists() else []
    found = (re.match(r"(\w+):\w+=(.*)", line) for line in lines)
    return [f"-Ccmake.define.{match[1]}={match[2]}" for match in found if match and match[1] in names]


def lint_job(args: argparse.Namespace, env: Environment, variables: dict[str, str]) -> int:
    if not (ROOT / ".git").exists():
        print("This is no git checkout, from which the hooks learn what belongs to the project: nothing was checked.")
        return 0
    variables["PRE_COMMIT_HOME"] = str(BUILD / "pre-commit")
    hooks = [env.python, "-m", "pre_commit", "run", "--all-files", "--show-diff-on-failure"]
    code = execute("Each file", hooks, variables, args.dry_run)
    # The pip package of clang-tidy has no omp.h; the compiler's own comes after all else. g++'s precompiled headers are
    # not for clang, which then reads the headers themselves.
    compiler_headers = output(["c++", "-print-file-name=include"])
    tidy = [
        "run-clang-tidy.py",
        "-p",
        "build/lint",
        "-j",
        str(build_jobs()),
        "-quiet",
        f"-extra-arg=-idirafter{compiler_headers}",
        "-extra-arg=-Wno-ignored-gch",
        "-extra-arg=-Wno-unknown-warning-option",  # these options and pragmas are GCC's own
        "-extra-arg=-Wno-unknown-pragmas",
        "-extra-arg=-Wno-deprecated-declarations",  # std::stable_sort of libstdc++ needs one; g++ tells of ours
    ]
    return execute("clang-tidy", [*tidy, *tidy_files(args.all)], variables, args.dry_run) or code


def tidy_files(everything: bool) -> list[str]:
    """Gives the sources to look at: all, or those that differ from main and one of every fifth folder, in turns."""
    sources = output(["git", "ls-files", "src/*.cpp", "python/cpp/*.cpp"]).splitlines()
    if everything:
        return sources
    branches = output(
        ["git", "for-each-ref", "--format=%(refname:short)", "refs/heads/main", "refs/remotes/origin/main"]
    )
    changed = []
    if main := branches.splitlines()[-1:]:
        changed = output(["git", "diff", "--name-only", "--merge-base", *main]).splitlines()
    last_of_each = sorted({str(Path(source).parent): source for source in sources}.values())
    return [source for source in sources if source in changed or source in last_of_each[commit_number() % 5 :: 5]]


def output(command: Command) -> str:
    return subprocess.run(command, capture_output=True, text=True, cwd=ROOT, check=True).stdout.strip()


def docs_job(args: argparse.Namespace, env: Environment, variables: dict[str, str]) -> int:
    """Builds the site. Each page is read anew, as one kept from an earlier run would not tell of its broken links."""
    folder = OUT / "docs"
    command = [env.python, "-m", "sphinx", "--builder", "html", "--conf-dir", "docs", "--doctree-dir", "build/doctrees"]
    command += ["--fresh-env", "--fail-on-warning", "--quiet", str(ROOT), str(folder)]
    code = execute("Build the site", command, variables, args.dry_run)
    if not args.dry_run:
        print(f"\n{(folder / 'index.html').relative_to(ROOT)}: {'good' if code == 0 else 'NOT good'}")
    return code


def clean(args: argparse.Namespace) -> int:
    for folder in [BUILD, OUT] + [VENV] * args.all:
        if not folder.exists() and not folder.is_symlink():
            continue
        print(f"{'Would remove' if args.dry_run else 'Removing'} {folder.relative_to(ROOT)}")
        if not args.dry_run:
            folder.unlink() if folder.is_symlink() else shutil.rmtree(folder)
    return 0
