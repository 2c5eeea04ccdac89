"""Tables of a benchmark's results, for a terminal and for docs/performance.md."""

from __future__ import annotations

import re
import statistics
from collections.abc import Sequence
from dataclasses import dataclass

from . import results as r
from .engines import COLUMNS, OTHER_BUILD, OURS, OURS_AGAIN, REFERENCE, SOURCE, again
from .measuring import NOISE, Row, allowed_difference
from .results import Results


@dataclass(frozen=True)
class Target:
    """A peer's time over ours, at least: the mean over groups, and with the worst model."""

    mean: float
    worst: float = 0


@dataclass(frozen=True)
class One:
    """A peer's time over that of a column of ours, at least, with one model."""

    peer: str
    model: str
    ratio: float
    ours: str = OURS


@dataclass(frozen=True)
class Targets:
    peers: dict[str, Target]
    models: Sequence[One]


ON_CPU = Targets(
    {
        REFERENCE: Target(1.15, 0.9),
        "openvino": Target(1.0, 0.75),
        "torch": Target(2.0, 1.0),
        "torch_compile": Target(1.0, 0.75),
    },
    [
        One(REFERENCE, "identity", 1.0),
        One("primitive", "large_convolution", 0.9),
        One("primitive", "large_product", 0.9),
        One("copy", "large_relu", 0.8),
    ],
)
SMALL = ("gpt2_decode", "gpt2_decode_torchscript", "mlp", "chain", "recommender")
ON_GPU = Targets(
    {"torch": Target(1.3, 0.9), "torch_compile": Target(1.0)},
    [*(One("torch", model, 3.0, "graphs") for model in SMALL), One("library", "large_product", 0.9, "graphs")],
)
AT_MOST = {"start_seconds": 1.5, "memory": 1.2}  # ours over onnxruntime's
FIGURES = {"start_seconds": "time to the end of the first run", "memory": "peak of memory meanwhile"}


@dataclass(frozen=True)
class Table:
    """A table; columns whose name begins with ">" are numbers."""

    title: str
    columns: Sequence[str]
    rows: Sequence[Sequence[str]]

    def markdown(self) -> str:
        head = [column.lstrip(">") for column in self.columns]
        line = ["---:" if column.startswith(">") else "---" for column in self.columns]
        return "\n".join([f"**{self.title}**", "", *(f"| {' | '.join(row)} |" for row in (head, line, *self.rows))])


def tables(results: Results) -> list[Table]:
    builds = (OURS_AGAIN, OTHER_BUILD) if results.settings.other_build else ()
    made = [
        targets(results),
        means(results),
        speed(results),
        precisions(results),
        limits(results),
        sources(results),
        *(starts(results, peer) for peer in (REFERENCE, *builds)),
        processes(results),
        missing(results),
    ]
    return [table for table in made if table.rows]


def summary(results: Results) -> str:
    settings, versions = results.settings, results.versions
    where = f"{results.processor}, with {settings}"
    if settings.on_gpu:
        where = f"{results.gpu} ({settings}; {results.processor})"
    how = f"{settings.rounds} rounds, in each a turn of {settings.turn:g} s an engine"
    installed = ", ".join(f"{name} {version}" for name, version in versions.items())
    return f"Measured on {results.date} on {where}: {how}; {installed}."


def legend(results: Results) -> str:
    name = again(measured(results))
    return LEGEND.format(COLUMNS[COLUMNS[name].repeats].label if name else "an engine")


LEGEND = (
    "A ratio is the other engine's time over onnx_torch's (of the column that is named, where one is), so that more "
    "than 1 means that onnx_torch is faster: the median of the rounds' ratios, and its quartiles. “=” marks a tie: "
    "{} in a second process differs from itself by as much. “noisy” marks a model with rounds in which other "
    f"processes took over {100 * NOISE:g} % of a processor. Means are geometric, each ratio counted as {r.CAP:g} at "
    "most."
)


def peers(results: Results) -> list[str]:
    """Lists the engines that onnx_torch is compared with."""
    of_use = lambda name: (
        name != OURS and not any((COLUMNS[name].bound, COLUMNS[name].repeats, COLUMNS[name].of_source))
    )
    return list(filter(of_use, measured(results)))


def measured(results: Results) -> list[str]:
    """Lists the columns of the results, in their order."""
    found = {name for row in results.rows for name in row.engines}
    return [name for name in COLUMNS if name in found]


def targets(results: Results) -> Table:
    rows, wanted = [], ON_GPU if results.settings.on_gpu else ON_CPU
    for name in peers(results):
        found, groups = r.ratios(results.counted(), name), r.group_means(results, name)
        if name in wanted.peers and found:
            target, over_groups = wanted.peers[name], r.mean(groups.values()) or 0
            worst = min(found, key=lambda case: found[case].median)
            least = _against(found[worst].median, target.worst) if target.worst else _number(found[worst].median)
            rows.append([COLUMNS[name].label, _against(over_groups, target.mean), f"{least} {worst}"])
    if beside := r.ratios(results.rows, SOURCE):
        worst = min(beside, key=lambda case: beside[case].median)
        mean = r.mean(one.median for one in beside.values()) or 0
        rows.append([COLUMNS[SOURCE].label, _against(mean, 1.0), f"{_against(beside[worst].median, 1.0)} {worst}"])
    for what, limit in AT_MOST.items():
        if found := over(results, what):
            within = sum(value <= limit for value in found.values())
            worst = max(found, key=lambda case: found[case])
            cells = [f"≤ {limit:g} for {within} of {len(found)} models", f"{found[worst]:.2f} {worst}"]
            rows.append([f"{FIGURES[what]}, ours over onnxruntime's", *cells])
    for row in results.rows:
        for one in (one for one in wanted.models if one.model == row.case):
            if found_ratio := r.ratio(row, one.peer, one.ours):
                ours = "" if one.ours == OURS else f", against {COLUMNS[one.ours].label}"
                what = f"{COLUMNS[one.peer].label}, {one.model} alone{ours}"
                rows.append([what, "", _against(found_ratio.median, one.ratio)])
    return Table("Targets", ["against", "mean over groups", "worst model"], rows)


def means(results: Results) -> Table:
    names = peers(results)
    each = {name: r.group_means(results, name) for name in names}
    line = lambda group: [f"{each[name][group]:.2f}" if group in each[name] else "n/a" for name in names]
    whole = [_number(r.mean(each[name].values())) for name in names]
    rows = [[group, *line(group)] for group in results.groups()] + [["over groups", *whole]]
    return Table("Mean ratio of a group", ["group", *_labels(names)], rows)


def speed(results: Results) -> Table:
    names = peers(results)
    rows = []
    for row in results.rows:
        ours = _milliseconds(row, OURS)
        itself = r.ratio_to_itself(row)
        cells = [ours, *(_ratio(row, name) for name in names), str(itself) if itself else "n/a"]
        rows.append([row.case + " (noisy)" * row.noisy, *cells])
    repeats = again(measured(results))
    itself_label = f">{COLUMNS[COLUMNS[repeats].repeats].label if repeats else 'an engine'} against itself"
    columns = ["model", ">onnx_torch, ms", *_labels(names), itself_label]
    return Table("Ratio of a model", columns, rows)


def precisions(results: Results) -> Table:
    """Tells what each engine computed in, and how far its outputs were from the reference's, of those that count."""
    rows = []
    for name in (name for name, engine in COLUMNS.items() if not engine.bound and not engine.of_source):
        each = {row.case: (row, row.engines[name]) for row in results.rows if name in row.engines}
        found = {case: one for case, (_, one) in each.items() if one.precision and not one.error}
        if found:
            allowed = sorted({allowed_difference(*each[case]) for case in found})
            worst = max(found, key=lambda case: found[case].difference)
            cells = [COLUMNS[name].label, ", ".join(sorted({one.precision for one in found.values()}))]
            limits = " or ".join(f"{limit:g}" for limit in allowed)
            rows.append([*cells, limits, f"{found[worst].difference:.2g} {worst}"])
    columns = ["engine", "computes in", "outputs may differ by", "they differ by at most"]
    return Table("Precision, and differences as parts of an output's largest element", columns, rows)


def limits(results: Results) -> Table:
    """Shows single operators beside what the hardware allows."""
    rows = []
    for row in results.rows:
        for name in row.engines:
            if COLUMNS[name].bound and (found := r.ratio(row, name)):
                times = [_milliseconds(row, one) for one in (COLUMNS[name].against, name)]
                rows.append([row.case, *times, COLUMNS[name].label, str(found)])
    columns = ["model", ">onnx_torch, ms", ">the limit, ms", "what the limit is", ">the limit over onnx_torch"]
    return Table("Single operators and the hardware's limit", columns, rows)


def sources(results: Results) -> Table:
    """Shows files that other tools have made of a model, beside the model itself."""
    rows = []
    for row in results.rows:
        if found := r.ratio(row, SOURCE):
            rows.append([row.case, _milliseconds(row, OURS), _milliseconds(row, SOURCE), str(found)])
    columns = ["model", ">onnx_torch, ms", ">its source in onnx_torch, ms", ">the source over it"]
    return Table("Files made of others, beside their sources", columns, rows)


def starts(results: Results, peer: str = REFERENCE) -> Table:
    """Shows how long loading takes here and in a peer, where both have run the model."""
    both = [row for row in results.rows if r.ratio(row, peer)]
    seconds, memory = (over(results, what, peer) for what in AT_MOST)
    rows = []
    for row in both:
        pair = [row.engines[name] for name in (OURS, peer)]
        times = [f"{one.start_seconds:.3f}" for one in pair] + [f"{seconds[row.case]:.2f}"]
        sizes = [f"{one.memory / 1e6:.0f}" for one in pair] + [f"{memory[row.case]:.2f}"]
        rows.append([row.case, *times, *sizes])
    if both:
        ours, theirs = (statistics.median([row.engines[name].import_seconds for row in both]) for name in (OURS, peer))
        rows.append(["import alone, median", f"{ours:.3f}", f"{theirs:.3f}", f"{ours / theirs:.2f}", "", "", ""])
    label = COLUMNS[peer].label
    columns = ["model", ">onnx_torch, s", f">{label}, s", ">ratio", ">onnx_torch, MB", f">{label}, MB", ">ratio"]
    what = "From after the imports to the end of the first run, and the peak of memory meanwhile"
    return Table(what if peer == REFERENCE else f"{what}: {label}", columns, rows)


def processes(results: Results) -> Table:
    """Shows how long whoever starts a process waits, and the memory that it takes."""
    rows = []
    for one in results.processes:
        columns = (OURS, REFERENCE)
        seconds = [f"{statistics.median(one.seconds[name]):.3f}" if name in one.seconds else "n/a" for name in columns]
        sizes = [
            f"{statistics.median(one.memory[name]) / 1e6:.0f}" if name in one.memory else "n/a" for name in columns
        ]
        rows.append([one.what, *seconds, _number(one.ratio()), *sizes])
    columns = ["process", ">onnx_torch, s", ">onnxruntime, s", ">ratio", ">onnx_torch, MB", ">onnxruntime, MB"]
    return Table("Processes, from their start to their end, and their peak of memory", columns, rows)


def over(results: Results, figure: str, peer: str = REFERENCE) -> dict[str, float]:
    """Gives a figure of onnx_torch over a peer's, for each model that both have run."""
    both = [row for row in results.rows if r.ratio(row, peer)]
    of = lambda row, name: getattr(row.engines[name], figure)
    return {row.case: of(row, OURS) / max(1e-9, of(row, peer)) for row in both}


def missing(results: Results) -> Table:
    """Tells why there is no figure; one row for an engine and a reason."""
    why: dict[tuple[str, str], list[str]] = {}
    for row in results.rows:
        for name, found in row.engines.items():
            if found.error:
                reason = _short(found.error.removeprefix(f"{COLUMNS[name].class_for(results.settings.device)}: "))
                why.setdefault((COLUMNS[name].label, reason), []).append(row.case)
    rows = [[engine, reason, ", ".join(cases)] for (engine, reason), cases in why.items()]
    return Table("Not measured", ["engine", "why", "models"], rows)


def _labels(names: Sequence[str]) -> list[str]:
    return [">" + title(name) for name in names]


def title(name: str) -> str:
    """Names an engine, and what it is compared with, where that is not onnx_torch as it is by default."""
    engine = COLUMNS[name]
    return engine.label if engine.against == OURS else f"{engine.label}, against {COLUMNS[engine.against].label}"


def _number(value: float | None) -> str:
    return "n/a" if value is None else f"{value:.2f}"


def _against(value: float, target: float) -> str:
    return f"{value:.2f} {'≥' if value >= target else '<'} {target:g}"


def _ratio(row: Row, name: str) -> str:
    found = r.ratio(row, name)
    return "n/a" if found is None else f"{found}{' =' * r.is_tie(row, found)}"


def _milliseconds(row: Row, name: str) -> str:
    rounds = row.engines[name].rounds if name in row.engines else []
    return f"{1e3 * statistics.median(rounds):.3g}" if rounds else "n/a"


def _short(reason: str) -> str:
    """Gives the beginning of an error, in one line and without places in code; the whole is in the results' file."""
    message = re.sub(r"(Exception from|Check '.*?' failed at) \S+", "", reason)
    line = re.sub(r"\s+", " ", message).replace("|", "/")
    return line if len(line) <= 160 else line[:157] + "…"


BEGIN, END = "<!-- results: {} -->", "<!-- end of results -->"


def into_page(page: str, key: str, results: Results, picture: str) -> str:
    """Gives the page with one part, which its key names, made anew."""
    parts = [
        summary(results),
        legend(results),
        f"![Ratios]({picture})",
        *(table.markdown() for table in tables(results)),
    ]
    begin = BEGIN.format(key)
    before, found, rest = page.partition(begin)
    if not found or END not in rest:
        raise ValueError(f'the page has no part "{begin}" … "{END}"')
    return before + "\n\n".join([begin, *parts, END]) + rest.partition(END)[2]
