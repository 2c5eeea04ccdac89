"""A picture of a benchmark: for each model, how the engines compare."""

from __future__ import annotations

from pathlib import Path

from . import results as r
from .report import peers, title
from .results import Results

MOST = 8.0  # what lies beyond is drawn at the edge


def plot(results: Results, file: Path) -> None:
    """Draws each peer's time over onnx_torch's, on a logarithmic axis, with quartiles."""
    import matplotlib as mpl
    from matplotlib.figure import Figure

    mpl.rcParams["svg.hashsalt"] = "onnx_torch"  # the same file from the same results
    cases = [row.case for row in results.counted()]
    figure = Figure(figsize=(9, 1.5 + 0.24 * len(cases)), layout="constrained")
    axes = figure.subplots()
    names = peers(results)
    for number, name in enumerate(names):
        found = r.ratios(results.counted(), name)
        edges = [[_within(value) for value in (one.low, one.median, one.high)] for one in found.values()]
        if not edges:
            continue
        middle = [median for _, median, _ in edges]
        bars = [[m - low for low, m, _ in edges], [high - m for _, m, high in edges]]
        rows = [cases.index(case) + 0.6 * (number / max(1, len(names) - 1) - 0.5) for case in found]
        axes.errorbar(middle, rows, xerr=bars, fmt="o", ms=3, lw=1, label=title(name))
    axes.axvline(1, color="black", lw=0.8)
    axes.set_xscale("log", base=2)
    axes.set_xlim(1 / MOST, MOST)
    axes.xaxis.set_major_formatter(lambda value, _: f"{value:g}")
    axes.set_yticks(range(len(cases)), cases)
    axes.set_ylim(len(cases) - 0.5, -0.5)
    axes.grid(axis="x", lw=0.3)
    axes.set_xlabel(f"time over onnx_torch's, {results.settings} (more: onnx_torch is faster)")
    axes.legend(loc="upper right", fontsize="small")
    figure.savefig(file, metadata={"Date": None} if file.suffix == ".svg" else None)
    if file.suffix == ".svg":  # matplotlib ends lines with spaces
        file.write_text("".join(f"{line.rstrip()}\n" for line in file.read_text().splitlines()))


def _within(value: float) -> float:
    return min(MOST, max(1 / MOST, value))
