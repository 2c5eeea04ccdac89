"""Comparison of two runs of a suite: a table, and the tests that fail only here, by cause."""

from __future__ import annotations

import json
import re
from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path

import tomllib

ENGINES = ("onnxruntime", "onnx_torch")
FINISHED = "all tests"  # the last line of a whole record has this for its test
REASONS = Path(__file__).with_name("only_here.toml")


@dataclass(frozen=True)
class Outcome:
    """The outcome of a test."""

    outcome: str
    message: str

    @property
    def failed(self) -> bool:
        return self.outcome not in ("passed", "skipped")


@dataclass(frozen=True)
class Reason:
    """A reason why tests fail only here; `tests` is a pattern of their names."""

    tests: str
    reason: str

    def holds(self, test: str) -> bool:
        return re.search(self.tests, test) is not None


Record = dict[str, Outcome]


def read_record(file: Path) -> Record:
    """Reads a run's record: the last line of each test, or the one that failed, since subtests share a name."""
    record: Record = {}
    for line in file.read_text().splitlines() if file.exists() else ():
        entry = json.loads(line)
        now, before = Outcome(entry["outcome"], entry["message"]), record.get(entry["test"])
        if before is None or before.outcome != "failed":
            record[entry["test"]] = now
    record.pop(FINISHED, None)
    return record


def is_whole(file: Path) -> bool:
    """Tells whether a run has come to its end."""
    lines = file.read_text().splitlines() if file.exists() else []
    return bool(lines) and json.loads(lines[-1])["test"] == FINISHED


def reasons(suite: str, file: Path = REASONS) -> list[Reason]:
    """Reads the known reasons for tests of a suite that fail only here."""
    return [Reason(**entry) for entry in tomllib.loads(file.read_text()).get(suite, [])]


@dataclass(frozen=True)
class Comparison:
    """Two runs of a suite, and the known reasons."""

    suite: str
    theirs: Record
    ours: Record
    known: list[Reason]

    @property
    def only_here(self) -> dict[str, Outcome]:
        """The tests that fail here, and do not fail on onnxruntime."""
        return {test: now for test, now in self.ours.items() if now.failed and self._passed(test)}

    def _passed(self, test: str) -> bool:
        return test in self.theirs and not self.theirs[test].failed

    @property
    def unknown(self) -> dict[str, Outcome]:
        """The tests that fail only here, and have no known reason."""
        return {test: now for test, now in self.only_here.items() if not any(why.holds(test) for why in self.known)}

    @property
    def outdated(self) -> list[Reason]:
        """The reasons for tests that were run, none of which fails only here."""
        return [why for why in self.known if self._were_run(why) and not any(map(why.holds, self.only_here))]

    def _were_run(self, why: Reason) -> bool:
        return any(map(why.holds, self.ours))

    def row(self) -> tuple[str, ...]:
        """Gives its line of the table."""
        count = lambda record, outcome: str(sum(now.outcome == outcome for now in record.values()))
        failed = lambda record: str(sum(now.failed for now in record.values()))
        mended = sum(now.failed and self.ours.get(test, now).outcome == "passed" for test, now in self.theirs.items())
        each = [text for record in (self.theirs, self.ours) for text in (count(record, "passed"), failed(record))]
        return (self.suite, str(len(self.ours)), *each, str(len(self.only_here)), str(len(self.unknown)), str(mended))

    def causes(self) -> Iterator[str]:
        """Lists what fails only here by reason, then the rest by the first line of its message."""
        for why in self.known:
            count = sum(why.holds(test) for test in self.only_here)
            if count:
                yield f"{count:4}  known: {why.reason}"
        lines = Counter(_first_line(now) for now in self.unknown.values())
        for line, count in lines.most_common():
            tests = [test for test, now in self.unknown.items() if _first_line(now) == line]
            yield f"{count:4}  {line[:160]}"
            yield from (f"      {test}" for test in tests[:3])
        yield from (f"      outdated, as none of them fails only here: {why.tests}" for why in self.outdated)


def _first_line(now: Outcome) -> str:
    return next((line.strip() for line in now.message.splitlines() if line.strip()), now.outcome)


HEAD = (
    "suite",
    "tests",
    "onnxruntime passed",
    "failed",
    "here passed",
    "failed",
    "only here",
    "without a reason",
    "only there",
)


def table(rows: Iterable[tuple[str, ...]]) -> str:
    """Lays rows out in columns."""
    lines = [HEAD, *rows]
    widths = [max(map(len, column)) for column in zip(*lines, strict=True)]
    return "\n".join("  ".join(cell.ljust(width) for cell, width in zip(line, widths, strict=True)) for line in lines)
