"""docs/coverage.md, from the live translation table and the recorded outcomes."""

from __future__ import annotations

import json
from collections import Counter, defaultdict
from collections.abc import Collection
from pathlib import Path
from typing import Any

from onnx.defs import OpSchema

from onnx_torch import _C

from .cells import (
    Cell,
    Key,
    all_cells,
    allowed,
    contrib_cells,
    contrib_schemas,
    onnxruntime_schemas,
    schemas,
    translated_contrib_schemas,
)
from .results import COMPARED, Outcomes, load, summary
from .rules import LEFT_OUT
from .values import element
from .wrong_oracles import WRONG

PATH = Path(__file__).parents[3] / "docs" / "coverage.md"
GPU = Path(__file__).with_name("gpu.json")  # `./dev gpu --take` writes it

# The texts for families of element types, where all of a family is there.
FAMILIES = [
    ("float16–64", ["float16", "float", "double"]),
    ("bfloat16", ["bfloat16"]),
    ("int8–64", ["int8", "int16", "int32", "int64"]),
    ("uint8–64", ["uint8", "uint16", "uint32", "uint64"]),
    ("bool", ["bool"]),
    ("string", ["string"]),
    ("complex", ["complex64", "complex128"]),
    ("float8", ["float8e4m3fn", "float8e4m3fnuz", "float8e5m2", "float8e5m2fnuz"]),
    ("float8e8m0", ["float8e8m0"]),
    ("float6", ["float6e2m3", "float6e3m2"]),
    ("float4", ["float4e2m1"]),
    ("(u)int4", ["int4", "uint4"]),
    ("(u)int2", ["int2", "uint2"]),
]

ORACLES = {
    "official case": "the expectation of the official test case, its data cast",
    "meaning": "the formula, or the node of a later version, that the text makes equal to an old form",
    "ReferenceEvaluator": "`onnx.reference.ReferenceEvaluator`",
    "onnxruntime": "onnxruntime",
    "function body": "the schema's function body",
    "widened": "the same numbers in a wider type, the result rounded back",
    "moved": "numbered elements, where the operator only moves them",
}


def page() -> str:
    recorded = load()
    standard = {device: _of(found, all_cells()) for device, found in recorded.items()}
    contrib = {device: _of(found, contrib_cells()) for device, found in recorded.items()}
    return "\n".join([*_head(standard), *_tables(schemas(), standard), *_contrib(contrib), ""])


def _of(found: Outcomes, cells: list[Cell]) -> Outcomes:
    return {cell: found[cell] for cell in cells if cell in found}


def _head(recorded: dict[str, Outcomes]) -> list[str]:
    keys = list(schemas())
    cpu = recorded["CPU"]
    counts = Counter(cpu.values())
    lines = [
        "# Coverage",
        "",
        "Every operator version of the installed onnx package, and every element type that its schema allows. Made by "
        "`./dev matrix`, which runs a small model of each; do not edit.",
        "",
        f"{len({key[:2] for key in keys})} operators, {len(keys)} operator versions, {len(cpu)} cells: a cell is one "
        "allowed type of one type parameter of one version.",
        "",
        "| device | outcome |",
        "|---|---|",
    ]
    for device in ("CPU", "CUDA"):
        lines.append(f"| {device} | {summary(recorded[device].values()) if device in recorded else 'not run'} |")
    lines += gpu_lines(json.loads(GPU.read_text())) if GPU.exists() else []
    lines += [
        "",
        "On the CPU, a cell was compared with the first of these that takes it:",
        "",
        "| with | cells |",
        "|---|---|",
    ]
    lines += _oracles(counts)
    lines += ["", "Left out, since the specification has no such model:", ""]
    lines += [f"- {reason}" for _, reason in LEFT_OUT]
    lines += ["", "Not asked where they are wrong:", "", "| cells | oracle | why |", "|---|---|---|"]
    lines += [f"| `{_escaped(row.cells)}` | {row.oracle} | {row.why}: “{row.quote}” |" for row in WRONG]
    lines += [
        "",
        "In the tables, *row* is the version from which the translator in `src/ops` holds. Types are compared and "
        "equal unless they are marked. A range of widths stands for all of them: float16–64 is float16, float and "
        "double. complex, float8 and float6 are all types whose names begin so, but for float8e8m0.",
    ]
    return lines


def _oracles(counts: Counter[str], only_used: bool = False) -> list[str]:
    return [f"| {ORACLES[name]} | {counts[name]} |" for name in COMPARED if counts[name] or not only_used]


def _contrib(recorded: dict[str, Outcomes]) -> list[str]:
    """Writes the sections of the operators that onnxruntime adds, and of those that other projects write."""
    every, tried = contrib_schemas(), translated_contrib_schemas()
    experiments = {key for key in every if key[:2] in _C.experimental_operators()}
    ready = tried.keys() | experiments
    facts = onnxruntime_schemas.facts()
    added = {(one["domain"], one["name"], one["version"]) for one in facts["operators"]}
    cpu = recorded["CPU"]
    lines = [
        "",
        "## onnxruntime's operators",
        "",
        f"What onnxruntime {facts['onnxruntime']} adds to the standard, with the types that its schemas allow: its own "
        "domains, and names of its own in ai.onnx. `./dev matrix --only onnxruntime` runs and records these, and those "
        "of other projects below, alone. `tests/python/test_contrib.py` also tries each attribute, input and output.",
        "",
        *_domains({key for key in every if key in added}, ready, recorded),
        "",
        f"On the CPU, with those of other projects: {summary(cpu.values())}. They were compared with",
        "",
        "| with | cells |",
        "|---|---|",
    ]
    lines += _oracles(Counter(cpu.values()), only_used=True)
    by_reason = defaultdict(list)
    for key in every:
        if key not in ready:
            by_reason[_C.why_refused(*key[:2]) or "not translated yet"].append(_versioned(key))
    lines += ["", "Not translated:", ""]
    lines += [f"- {reason}: {', '.join(names)}" for reason, names in by_reason.items()]
    lines += [
        "",
        "Early experiments of ONNX, in no cell here since `tests/python/test_ops_experimental.py` tries them: "
        f"{', '.join(sorted(map(_versioned, experiments)))}.",
        *_tables({key: schema for key, schema in tried.items() if key in added}, recorded, "###"),
        "",
        "## Other projects' operators",
        "",
        "What their exporters write into models, whose schemas are in `cmake/community_schemas.py`.",
        "",
        *_domains({key for key in every if key not in added}, ready, recorded),
    ]
    return [*lines, *_tables({key: schema for key, schema in tried.items() if key not in added}, recorded, "###")]


def _domains(keys: Collection[Key], ready: Collection[Key], recorded: dict[str, Outcomes]) -> list[str]:
    """Counts the names, versions and cells of each domain."""
    lines = ["| domain | names | versions | CPU | CUDA |", "|---|---|---|---|---|"]
    for domain in sorted({key[0] for key in keys}):
        here = [key for key in keys if key[0] == domain]
        done = [key for key in here if key in ready]
        names = [len({key[1] for key in part}) for part in (done, here)]
        cells = [cell for cell in contrib_cells() if (cell.domain, cell.op, cell.version) in here]
        columns = [_count(cells, recorded.get(device)) for device in ("CPU", "CUDA")]
        row = [domain or "ai.onnx", f"{names[0]}/{names[1]}", f"{len(done)}/{len(here)}", *columns]
        lines.append(f"| {' | '.join(row)} |")
    return lines


def _versioned(key: Key) -> str:
    domain, op, version = key
    return f"{domain}.{op}-{version}".lstrip(".")


def gpu_lines(found: dict[str, Any]) -> list[str]:
    """Writes what `./dev gpu` found, part by part."""
    where = f"{found['card']} (compute capability {found['capability']}, driver {found['driver']})"
    lines = [
        "",
        f"On a GPU, {where}, with torch {found['torch']} and CUDA {found['cuda']}, on {found['date']}, by `./dev gpu`:",
        "",
        "| part | passed | failed | skipped | steps | not passed |",
        "|---|---|---|---|---|---|",
    ]
    for name, part in found["parts"].items():
        counts = [part["passed"], part["failed"], part["skipped"], part["steps"]]
        names = ", ".join(part["steps_not_passed"]) or "none"
        lines.append(f"| {name} | {' | '.join(map(str, counts))} | {names} |")
    return lines


def _escaped(pattern: str) -> str:
    return pattern.replace("|", "\\|")


def _tables(of: dict[Key, OpSchema], recorded: dict[str, Outcomes], heading: str = "##") -> list[str]:
    rows = {(domain, op): sinces for domain, op, sinces, _ in _C.translation_table()}
    lines: list[str] = []
    domain = None
    for key, schema in of.items():
        if key[0] != domain:
            domain = key[0]
            lines += [
                "",
                f"{heading} {domain or 'ai.onnx'}",
                "",
                "| operator | version | row | types | CPU | CUDA |",
                "|---|---|---|---|---|---|",
            ]
        _, op, version = key
        row = max((since for since in rows.get(key[:2], []) if since <= version), default="none")
        types = "; ".join(_param(key, param, choices, recorded["CPU"]) for param, choices in allowed(schema).items())
        name = f"{op} (deprecated)" if schema.deprecated else op
        cells = [Cell(*key, param, t) for param, choices in allowed(schema).items() for t in choices]
        columns = [_count(cells, recorded.get(device)) for device in ("CPU", "CUDA")]
        lines.append(f"| {name} | {version} | {row} | {types or 'fixed types only'} | {' | '.join(columns)} |")
    return lines


def _count(cells: list[Cell], outcomes: Outcomes | None) -> str:
    if outcomes is None:
        return "not run"
    ran = [outcomes.get(cell) for cell in cells if outcomes.get(cell) != "left out"]
    return f"{sum(outcome in COMPARED for outcome in ran)}/{len(ran)}" if ran else "–"


def _param(key: Key, param: str, choices: list[str], outcomes: Outcomes) -> str:
    groups = defaultdict(list)
    for type_str in choices:
        outcome = outcomes.get(Cell(*key, param, type_str), "not run")
        groups["" if outcome in COMPARED else outcome].append(type_str)
    texts = [_types(types) + (f" ({mark})" if mark else "") for mark, types in sorted(groups.items())]
    return f"**{param}** {', '.join(texts)}"


def _types(types: list[str]) -> str:
    """Writes the types by kind: tensors, sequences, optionals, maps."""
    by_kind = defaultdict(list)
    for type_str in types:
        kind = "map" if "map" in type_str else type_str[: type_str.index(element(type_str))]
        by_kind[kind].append(type_str if kind == "map" else element(type_str))
    texts = []
    for kind, names in by_kind.items():
        text = ", ".join(names) if kind == "map" else _families(names)
        outer = kind.replace("tensor(", "")
        texts.append(text if kind == "map" or not outer else f"{outer}{text}{')' * outer.count('(')}")
    return ", ".join(texts)


def _families(names: list[str]) -> str:
    texts = []
    for family, members in FAMILIES:
        there = [name for name in members if name in names]
        texts += [family] if there == members else there
    return ", ".join(texts)
