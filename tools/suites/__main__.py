"""`python -m tools.suites`, which `./dev suites` calls."""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import tomllib

from .comparison import ENGINES, Comparison, is_whole, read_record, reasons, table
from .packages import NotThere, installed, unpacked

ROOT = Path(__file__).resolve().parents[2]
SUITES: dict[str, dict[str, Any]] = tomllib.loads(Path(__file__).with_name("suites.toml").read_text())
SAMPLE = 20  # a sample takes one of so many tests
NO_NETWORK = dict.fromkeys(["http_proxy", "https_proxy", "HTTP_PROXY", "HTTPS_PROXY"], "http://127.0.0.1:9")


@dataclass(frozen=True)
class Suite:
    """Another project's tests: its source's folder, files and folders in it, and folders of the packages they need."""

    name: str
    source: Path
    tests: list[str]
    packages: list[Path]

    @staticmethod
    def fetched(name: str) -> Suite:
        """Fetches one of the suites of suites.toml."""
        entry = SUITES[name]
        packages = [installed(requirement) for requirement in entry.get("requirements", ())]
        return Suite(name, unpacked(entry["source"]), entry["tests"], packages)

    def run(self, engine: str, out: Path, share: int = 1, only: str | None = None) -> None:
        """Runs the suite in processes of its own, until each test has a line in its record."""
        record = self.record(engine, out)
        path = [*map(str, [ROOT, *self.packages]), os.environ.get("PYTHONPATH", "")]
        environment = {
            **os.environ,
            **NO_NETWORK,  # what tests fetch would differ from day to day
            "PYTHONPATH": os.pathsep.join(path),
            "SUITES_ENGINE": engine,
            "SUITES_RECORD": str(record),
            "SUITES_SHARE": str(share),
        }
        command = [sys.executable, "-m", "pytest", "-p", "tools.suites.recorder", "-p", "no:cacheprovider"]
        command += ["-q", "--tb=short", "-c", os.devnull, "--rootdir", str(self.source)]
        command += ["--continue-on-collection-errors", *(["-k", only] if only else []), *self.tests]
        record.unlink(missing_ok=True)
        with record.with_suffix(".log").open("w") as log:
            recorded = -1
            while not is_whole(record) and record_size(record) > recorded:
                recorded = record_size(record)
                subprocess.run(command, cwd=self.source, env=environment, stdout=log, stderr=log, check=False)

    def record(self, engine: str, out: Path) -> Path:
        """Gives the file that a run's outcomes go to."""
        return out / f"{self.name}.{engine}.jsonl"


def record_size(record: Path) -> int:
    return record.stat().st_size if record.exists() else 0


def compare(name: str, out: Path) -> Comparison:
    """Compares what is recorded of a suite."""
    theirs, ours = (read_record(out / f"{name}.{engine}.jsonl") for engine in ENGINES)
    return Comparison(name, theirs, ours, reasons(name))


def main() -> int:
    parser = argparse.ArgumentParser(prog="./dev suites", description=__doc__)
    parser.add_argument("names", nargs="*", metavar="NAME", help=f"{', '.join(SUITES)}; all by default")
    parser.add_argument("--sample", action="store_true", help=f"one of {SAMPLE} tests")
    parser.add_argument("--only", metavar="EXPRESSION", help="the tests that pytest's -k takes")
    parser.add_argument("--engine", choices=ENGINES, action="append", help="run this one; the other's record is kept")
    parser.add_argument("--compare", action="store_true", help="run nothing, and compare what is recorded")
    parser.add_argument("--out", type=Path, default=ROOT / "out" / "suites", help="where records and logs go")
    args = parser.parse_args()
    if unknown := set(args.names) - SUITES.keys():
        parser.error(f"no suite is called {', '.join(sorted(unknown))}; there are {', '.join(SUITES)}")

    args.out.mkdir(parents=True, exist_ok=True)
    comparisons, missing = [], []
    for name in args.names or SUITES:
        try:
            for engine in [] if args.compare else args.engine or ENGINES:
                print(f"{name} on {engine} …", flush=True)
                Suite.fetched(name).run(engine, args.out, SAMPLE if args.sample else 1, args.only)
            comparisons.append(compare(name, args.out))
        except NotThere as reason:
            missing.append(f"{name}: not run, as {reason}")

    for comparison in comparisons:
        print(f"\n{comparison.suite}: only here", *comparison.causes(), sep="\n")
    print(f"\n{table(comparison.row() for comparison in comparisons)}", *missing, sep="\n")
    return int(any(comparison.unknown or comparison.outdated or not comparison.ours for comparison in comparisons))


if __name__ == "__main__":
    sys.exit(main())
