"""The results of a benchmark, as a file and as ratios."""

from __future__ import annotations

import dataclasses
import json
import math
import statistics
import time
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from . import machine
from .engines import COLUMNS, again
from .measuring import Measured, Row, Settings
from .models.limits import GROUP as LIMITS
from .processes import Process

CAP = 3.0  # the most that a ratio counts in a mean, so that no single model carries it
PACKAGES = ("torch", "onnx", "onnxruntime", "openvino", "onnx2torch", "numpy", "torchvision", "transformers")


@dataclass
class Results:
    """One benchmark: everything that its reports are made of."""

    settings: Settings
    rows: list[Row] = field(default_factory=list)
    date: str = field(default_factory=lambda: time.strftime("%Y-%m-%d"))
    processor: str = field(default_factory=machine.processor)
    gpu: str = ""  #: and its driver, where the engines ran there
    versions: dict[str, str] = field(default_factory=lambda: {name: machine.version(name) for name in PACKAGES})
    processes: list[Process] = field(default_factory=list)

    def write(self, file: Path) -> None:
        file.parent.mkdir(parents=True, exist_ok=True)
        found = dataclasses.asdict(self)
        rows = ",\n".join(json.dumps(row) for row in found.pop("rows"))  # a line each
        file.write_text(f'{json.dumps(found, indent=1)[:-2]},\n "rows": [\n{rows}\n]}}\n')

    @classmethod
    def read(cls, file: Path) -> Results:
        found = json.loads(file.read_text())
        found["settings"] = Settings(**found["settings"])
        for row in found["rows"]:
            row["engines"] = {name: Measured(**one) for name, one in row["engines"].items()}
        found["rows"] = [Row(**row) for row in found["rows"]]
        found["processes"] = [Process(**one) for one in found.get("processes", [])]
        return cls(**found)

    def counted(self) -> list[Row]:
        """Gives the rows that count in means."""
        return [row for row in self.rows if row.group != LIMITS]

    def groups(self) -> dict[str, list[Row]]:
        found: dict[str, list[Row]] = {}
        for row in self.counted():
            found.setdefault(row.group, []).append(row)
        return found


@dataclass(frozen=True)
class Ratio:
    """The ratio of two engines' times, round by round: the median and its quartiles."""

    median: float
    low: float
    high: float

    def __str__(self) -> str:
        return f"{self.median:.2f} ({self.low:.2f}–{self.high:.2f})"


def ratio(row: Row, engine: str, other: str = "") -> Ratio | None:
    """Gives an engine's times as multiples of another's, by default the one it is compared with; None without both."""
    pair = other or COLUMNS[engine].against, engine
    ours, theirs = (row.engines[name].rounds if name in row.engines else [] for name in pair)
    if not ours or not theirs:
        return None
    each = [b / a for a, b in zip(ours, theirs, strict=True)]
    low, median, high = statistics.quantiles(each, n=4, method="inclusive") if len(each) > 1 else each * 3
    return Ratio(median, low, high)


def ratio_to_itself(row: Row) -> Ratio | None:
    """Gives the ratio of an engine's second process to its first."""
    name = again(row.engines)
    return ratio(row, name, COLUMNS[name].repeats) if name else None


def is_tie(row: Row, found: Ratio) -> bool:
    """Tells whether an engine differs from itself, in a second process, by as much."""
    itself = ratio_to_itself(row)
    return itself is not None and abs(math.log(found.median)) <= max(
        abs(math.log(edge)) for edge in (itself.low, itself.high)
    )


def mean(ratios: Iterable[float]) -> float | None:
    """Computes the geometric mean of ratios, each counted as `CAP` at most."""
    capped = [min(CAP, one) for one in ratios]
    return statistics.geometric_mean(capped) if capped else None


def group_means(results: Results, engine: str) -> dict[str, float]:
    """Computes the mean ratio of each group in which the engine runs a model."""
    groups = {group: ratios(rows, engine) for group, rows in results.groups().items()}
    means = {group: mean(one.median for one in found.values()) for group, found in groups.items()}
    return {group: value for group, value in means.items() if value is not None}


def ratios(rows: Sequence[Row], engine: str) -> dict[str, Ratio]:
    """Gives an engine's ratio for each model that it and onnx_torch run, in the precision it is compared with."""
    found = {row.case: ratio(row, engine) for row in rows}
    return {case: one for case, one in found.items() if one is not None}
