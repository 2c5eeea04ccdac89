"""The results of a self-test."""

from __future__ import annotations

import re
from dataclasses import dataclass, field

MOST_SHOWN = 20  # the failures of a part that a printed result has


@dataclass(frozen=True)
class Failure:
    """A case that gives another result than it should, or none."""

    case: str
    why: str  #: the first lines of the error's text
    largest: float | None = None  #: the largest difference, where there are results to compare

    @staticmethod
    def of(case: str, error: BaseException) -> Failure:
        """Makes the failure that an exception tells of.

        >>> Failure.of("test_add", ValueError("no such shape")).why
        'ValueError: no such shape'
        """
        text = str(error).strip()
        found = re.search(r"Max absolute difference among violations: (\S+)", text)
        lines = [line.strip() for line in text.splitlines() if line.strip()]
        why = " ".join(lines[:4]) if isinstance(error, AssertionError) else f"{type(error).__name__}: {text}"
        return Failure(case, why or type(error).__name__, _number(found[1]) if found else None)

    def __str__(self) -> str:
        largest = "" if self.largest is None else f" (largest difference {self.largest:.3g})"
        return f"{self.case}{largest}: {self.why}"


def _number(text: str) -> float | None:
    try:
        return float(text)
    except ValueError:  # its element type is no number
        return None


@dataclass(frozen=True)
class Part:
    """A part of a self-test: the number of its cases, and those that failed."""

    name: str
    all: int
    seconds: float
    failures: tuple[Failure, ...] = ()
    notes: tuple[str, ...] = ()

    @property
    def passed(self) -> int:
        return self.all - len(self.failures)

    def __str__(self) -> str:
        return f"{self.name}: {self.passed} of {self.all} passed in {self.seconds:.1f} s"


@dataclass(frozen=True)
class SelfTest:
    """The results of `selftest`. They are true where all is well; a bug report should carry their text."""

    device: str
    machine: tuple[tuple[str, str], ...]  #: a description of the device, then the versions of all that takes part
    ways: tuple[tuple[str, str], ...] = ()  #: the way in which each of the composed models is computed on this machine
    parts: tuple[Part, ...] = field(default=())

    @property
    def passed(self) -> int:
        return sum(part.passed for part in self.parts)

    @property
    def all(self) -> int:
        return sum(part.all for part in self.parts)

    @property
    def seconds(self) -> float:
        return sum(part.seconds for part in self.parts)

    @property
    def failures(self) -> list[Failure]:
        return [failure for part in self.parts for failure in part.failures]

    def __bool__(self) -> bool:
        return not self.failures

    def __str__(self) -> str:
        sections = [_aligned(self.machine), "Ways taken\n" + _indented(_aligned(self.ways)), self._results()]
        return "\n\n".join([*sections, self._verdict()])

    def _results(self) -> str:
        lines = []
        for part in self.parts:
            lines += [str(part), *(f"  {note}" for note in part.notes)]
            lines += [f"  {failure}" for failure in part.failures[:MOST_SHOWN]]
            more = len(part.failures) - MOST_SHOWN
            lines += [f"  and {more} more"] if more > 0 else []
        return "\n".join(lines)

    def _verdict(self) -> str:
        what = "all is well" if self else f"{len(self.failures)} FAILED"
        return f"{what}: {self.passed} of {self.all} passed on {self.device} in {self.seconds:.0f} s"


def _aligned(rows: tuple[tuple[str, str], ...]) -> str:
    width = max((len(name) for name, _ in rows), default=0)
    return "\n".join(f"{name:{width}}  {value}" for name, value in rows)


def _indented(text: str) -> str:
    return "\n".join(f"  {line}" for line in text.splitlines())
