"""The time that each ONNX node of a model takes in its runs."""

from __future__ import annotations

import html
import json
import os
import statistics
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from .. import _C
from .._models.files import writing
from .._progress import Progress
from ..errors import Error, InputError


@dataclass(frozen=True)
class NodeProfile:
    """The times of one node: seconds a run, the mean over the runs."""

    number: int  #: its number in the order of translation, as in ``onnx-torch show``
    op_type: str
    name: str
    domain: str
    output: str  #: the name of its first output
    around: int | None  #: the number of the node whose body it is in
    calls: float  #: the number of times that a run executes it
    seconds: float  #: its seconds, less what the nodes in its body take
    total_seconds: float  #: its seconds with theirs


@dataclass(frozen=True)
class OperatorProfile:
    """All nodes of one operator."""

    op_type: str
    nodes: int
    calls: float
    seconds: float


@dataclass(frozen=True)
class Profile:
    """The distribution of the time of a model's runs over its nodes.

    Attributes:
        nodes: the nodes, in the model's order.
        runs: the number of runs that were measured.
        seconds: the mean of a measured run, from the call to its return.
        plain_seconds: the median of a run that is not measured; the difference is what measuring costs.
        events: (number of the node, start, duration) of each execution in the last run, in nanoseconds.
    """

    nodes: tuple[NodeProfile, ...]
    runs: int
    seconds: float
    plain_seconds: float
    events: np.ndarray

    @property
    def outside_seconds(self) -> float:
        """The seconds of a run that are spent in no node: taking inputs, giving outputs, and the call itself."""
        return self.seconds - sum(node.seconds for node in self.nodes)

    def by_operator(self) -> list[OperatorProfile]:
        """Returns the time of each operator, the slowest first."""
        groups: dict[str, list[NodeProfile]] = {}
        for node in self.nodes:
            groups.setdefault(".".join(filter(None, [node.domain, node.op_type])), []).append(node)
        operators = [
            OperatorProfile(op, len(nodes), sum(n.calls for n in nodes), sum(n.seconds for n in nodes))
            for op, nodes in groups.items()
        ]
        return sorted(operators, key=lambda operator: -operator.seconds)

    def __str__(self) -> str:
        rows = [(operator.seconds, str(operator.nodes), operator.op_type) for operator in self.by_operator()]
        rows.append((self.outside_seconds, "", "outside the nodes"))
        lines = [
            f"a run takes {1e3 * self.seconds:.3f} ms, the mean of {self.runs}, and {1e3 * self.plain_seconds:.3f} ms "
            "where it is not measured",
            f"{'ms':>10}  {'%':>5}  nodes  operator",
        ]
        share = 100 / self.seconds if self.seconds else 0
        lines += [f"{1e3 * seconds:10.3f}  {share * seconds:5.1f}  {nodes:>5}  {name}" for seconds, nodes, name in rows]
        return "\n".join(lines)

    def save_trace(self, path: str | os.PathLike[str]) -> None:
        """Writes the last run as a trace for Chrome's ``chrome://tracing`` or Perfetto."""
        events = []
        for number, start, duration in self.events.tolist():
            node = self.nodes[number]
            events.append(
                {
                    "name": node.name or node.output or node.op_type,
                    "cat": node.op_type,
                    "ph": "X",
                    "ts": start / 1e3,
                    "dur": duration / 1e3,
                    "pid": 0,
                    "tid": 0,
                    "args": {"op_type": node.op_type, "number": number, "output": node.output},
                }
            )
        with writing(path), open(path, "w", encoding="utf-8") as file:
            json.dump({"traceEvents": events, "displayTimeUnit": "ms"}, file)

    def save_picture(self, path: str | os.PathLike[str], title: str = "", most: int = 20) -> None:
        """Draws a bar chart of the time by operator: HTML where the path ends so, else what matplotlib writes."""
        operators = self.by_operator()
        bars = [(f"{operator.op_type} ×{operator.nodes}", operator.seconds) for operator in operators[:most]]
        if operators[most:]:
            bars.append((f"{len(operators) - most} others", sum(operator.seconds for operator in operators[most:])))
        bars.append(("outside the nodes", self.outside_seconds))
        if os.fspath(path).endswith((".html", ".htm")):
            with writing(path), open(path, "w", encoding="utf-8") as file:
                file.write(_page(bars, title, self.seconds))
        else:
            _draw(bars, title, os.fspath(path))


def measure(
    prepared: _C.PreparedModel,
    run: Callable[..., object],
    feeds: dict[str, Any],
    runs: int,
    warm_up: int,
    progress: Progress | None = None,
) -> Profile:
    """Measures runs of a prepared model, each once by `PreparedModel.run` and once with a clock around each node."""
    if runs < 1:
        raise InputError(f"a profile takes at least one run, not {runs}")
    nodes, times, _ = prepared.profile(feeds)  # the first such run translates the model once more
    own, total, calls = np.zeros((3, len(nodes)))
    plain, timed = [], []
    for number in range(-warm_up, runs):
        start = time.perf_counter()
        run(feeds, output="numpy")
        between = time.perf_counter()
        _, times, _ = prepared.profile(feeds)
        end = time.perf_counter()
        if progress:
            progress(number + warm_up + 1, runs + warm_up)
        if number < 0:
            continue
        plain.append(between - start)
        timed.append(end - between)
        calls += np.bincount(times[:, 0], minlength=len(nodes))
        total += np.bincount(times[:, 0], times[:, 2], minlength=len(nodes))
        own += np.bincount(times[:, 0], times[:, 3], minlength=len(nodes))
    means = zip((calls / runs).tolist(), (own / runs / 1e9).tolist(), (total / runs / 1e9).tolist(), strict=True)
    rows = (
        NodeProfile(number, op_type, name, domain, output, around, *mean)
        for number, ((op_type, name, domain, _, output, around), mean) in enumerate(zip(nodes, means, strict=True))
    )
    return Profile(tuple(rows), runs, statistics.fmean(timed), statistics.median(plain), times[:, :3])


def _draw(bars: Sequence[tuple[str, float]], title: str, path: str) -> None:
    try:
        from matplotlib.figure import Figure
    except ImportError:
        raise Error(
            "a picture needs matplotlib (pip install matplotlib); one whose name ends in .html does not"
        ) from None
    figure = Figure(figsize=(9, 1 + 0.3 * len(bars)), layout="constrained")
    axes = figure.add_subplot()
    labels, seconds = zip(*bars, strict=True)
    drawn = axes.barh(labels, [1e3 * s for s in seconds])
    axes.bar_label(drawn, fmt="%.3g", padding=3)
    axes.invert_yaxis()
    axes.margins(x=0.1)
    axes.set_xlabel("milliseconds a run")
    axes.set_title(title or "Time by operator")
    axes.spines[["top", "right"]].set_visible(False)
    figure.savefig(path, dpi=150)


def _page(bars: Sequence[tuple[str, float]], title: str, seconds: float) -> str:
    longest = max(value for _, value in bars) or 1
    rows = "\n".join(
        f'<tr><th>{html.escape(label)}</th><td><div style="width:{100 * max(value, 0) / longest:.2f}%"></div></td>'
        f"<td>{1e3 * value:.3g} ms</td><td>{100 * value / seconds:.1f} %</td></tr>"
        for label, value in bars
    )
    title = html.escape(title or "Time by operator")
    return f"""<!doctype html>
<html lang="en"><meta charset="utf-8"><title>{title}</title>
<style>
  body {{ font: 14px sans-serif; margin: 2em; max-width: 60em }}
  table {{ width: 100%; border-spacing: 0 3px }}
  th {{ text-align: right; font-weight: normal; white-space: nowrap; width: 1% }}
  td {{ white-space: nowrap; width: 1%; text-align: right; padding-left: .5em }}
  td:nth-child(2) {{ width: 97% }}
  div {{ height: 1.1em; background: #3b75af }}
</style>
<h1>{title}</h1>
<p>{1e3 * seconds:.3g} ms a run</p>
<table>
{rows}
</table>
</html>
"""
