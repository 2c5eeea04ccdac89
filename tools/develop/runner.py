"""The runner of steps and jobs: a step goes into its log, with its progress on the terminal; a job to the terminal."""

from __future__ import annotations

import argparse
import os
import re
import shlex
import shutil
import subprocess
import sys
import textwrap
import time
from dataclasses import dataclass
from pathlib import Path
from typing import TextIO

from tools.develop.environment import Environment, probe
from tools.develop.project import BUILD, LOGS, ROOT, VENV, Command, Stop, seconds
from tools.develop.steps import Step

DISK_GB = 8  # .venv, and what pip unpacks meanwhile


def child_environment(env: Environment, preset: str) -> dict[str, str]:
    folder = BUILD / preset
    scripts = (probe(env.python) or {}).get("scripts", str(VENV / "bin"))
    before = lambda path, name: os.pathsep.join([path, *filter(None, [os.environ.get(name)])])
    return {
        **os.environ,
        "PATH": before(scripts, "PATH"),
        "PYTHONPATH": before(str(folder / "python"), "PYTHONPATH"),
        "DEBIAN_FRONTEND": "noninteractive",
        "ONNX_HOME": str(folder / "onnx_home"),  # the official suite unpacks its models there, not in the home folder
        "BACKEND": "onnx_torch",  # this backend's column in the coverage report's CSV files
    }


@dataclass
class Runner:
    variables: dict[str, str]
    command: str  # what the user typed, to name it when something fails

    def run(self, step: Step, number: int, count: int) -> None:
        LOGS.mkdir(parents=True, exist_ok=True)
        log = LOGS / f"{step.name.lower().replace(' ', '-')}.log"
        label = f"[{number}/{count}] {step.name}"
        start = time.monotonic()
        with log.open("w") as file:
            for command in step.commands():
                file.write(f"$ {shlex.join(command)}\n")
                file.flush()
                self.watch(command, file, label, log, start)
        probe.cache_clear()
        step.finish()
        show(f"{label}: done in {seconds(start)}\n")

    def watch(self, command: Command, file, label: str, log: Path, start: float) -> None:
        """Runs a command into the log, and meanwhile shows the time and the log's last line."""
        terminal = sys.stdout.isatty()
        try:
            child = subprocess.Popen(
                command, stdout=file, stderr=subprocess.STDOUT, stdin=subprocess.DEVNULL, cwd=ROOT, env=self.variables
            )
        except OSError as error:
            raise Stop(f"{label} could not start: {error}") from None
        try:
            while True:
                line = last_line(log)
                show(f"{label}: {seconds(start)}  {line}" + "\n" * (not terminal))
                try:
                    code = child.wait(1 if terminal else 60)
                    break
                except subprocess.TimeoutExpired:
                    continue
        except BaseException:
            child.terminate()
            child.wait()
            raise
        if code:
            show("")
            raise Stop(
                f"{label} failed after {seconds(start)}: {shlex.join(command)[:200]}\n\n{excerpt(log)}\n\n"
                f"The whole log: {log.relative_to(ROOT)}\n{self.resume()}"
            )

    def resume(self) -> str:
        return f"To go on, mend that and run the same command again: {self.command}\nWhat is done will be skipped."


def show(line: str) -> None:
    """Prints a line; on a terminal it replaces the one before unless that ended."""
    if sys.stdout.isatty():
        width = shutil.get_terminal_size().columns - 1
        end = "\n" if line.endswith("\n") else ""
        print(f"\r\033[K{line.rstrip()[:width]}{end}", end="", flush=True)
    else:
        print(line, end="", flush=True)


def last_line(log: Path) -> str:
    lines = log.read_text(errors="replace").splitlines()
    return lines[-1].strip()[:160] if lines else ""


def excerpt(log: Path, length: int = 60) -> str:
    """Finds the part of a failed step's log that says why: from its first error on, or its end."""
    lines = log.read_text(errors="replace").splitlines()
    errors = (i for i, line in enumerate(lines) if re.match(r"FAILED:|CMake Error|ERROR|E: ", line))
    first = next(errors, max(0, len(lines) - length))
    return "\n".join("    " + line for line in lines[first : first + length])


def announce(env: Environment, pending: list[Step]) -> None:
    print(f"Python: {env.python} ({env.why})")
    installing = [step for step in pending if step.installs]
    print("Set-up still needs:" if installing else "Set-up: done.")
    for step in pending:
        if not step.cost:
            continue
        text = f"{step.name} ({step.cost}): {step.why}"
        print(textwrap.fill(text, 118, initial_indent="  ", subsequent_indent="    "))


def check_disk(pending: list[Step]) -> None:
    free = shutil.disk_usage(ROOT).free / 1e9
    if any(step.name == "PyTorch" for step in pending) and free < DISK_GB:
        raise Stop(f"The set-up needs {DISK_GB} GB free on the disk of {ROOT}, and there are {free:.1f}.")


def confirm(pending: list[Step], yes: bool) -> None:
    if yes or in_ci() or not (sys.stdin.isatty() and any(step.installs for step in pending)):
        return
    if input("Go on? [Y/n] ").strip().lower() not in ("", "y", "yes"):
        raise Stop("Nothing was changed.")


def in_ci() -> bool:
    return os.environ.get("CI", "").lower() not in ("", "0", "false")


def usual_preset() -> str:
    return "ci" if in_ci() else "release"


def prepare(args: argparse.Namespace, env: Environment, steps: list[Step], variables: dict[str, str]) -> None:
    """Does the steps that are not done; with --dry-run only shows them."""
    pending = [step for step in steps if not step.done()]
    announce(env, pending)
    if args.dry_run:
        for step in pending:
            show_commands(step.name, step.commands())
            print(step.by_hand() or "", end="")
        return
    check_disk(pending)
    by_hand = [text for text in (step.by_hand() for step in pending) if text]
    if by_hand:
        raise Stop("\n".join(by_hand))
    confirm(pending, args.yes)
    runner = Runner(variables, args.command_line)
    for number, step in enumerate(pending, 1):
        runner.run(step, number, len(pending))
        if step.installs and not step.done():
            raise Stop(f"{step.name} ran, but something of it is still missing. {runner.resume()}")


def show_commands(name: str, commands: list[Command]) -> None:
    print(f"{name}:")
    for command in commands:
        print(f"  $ {shlex.join(map(str, command))}")


def execute(
    name: str, command: Command, variables: dict[str, str], dry_run: bool, cwd=ROOT, file: TextIO | None = None
) -> int:
    """Runs a job with its output on the terminal, or in a file."""
    if dry_run:
        show_commands(name, [command])
        return 0
    print(f"\n== {name}", file=file, flush=True)
    errors = file and subprocess.STDOUT
    return subprocess.run(command, cwd=cwd, env=variables, stdout=file, stderr=errors).returncode
