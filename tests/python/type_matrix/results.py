"""The recorded outcome of each cell: results.json, from which the coverage page is made."""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Iterable
from pathlib import Path

from .cells import Cell, Key, all_cells, allowed, contrib_cells, schemas, translated_contrib_schemas
from .oracles import INDIRECT, ORACLES

PATH = Path(__file__).parent / "results.json"
COMPARED = [*ORACLES, *INDIRECT]
STATUSES = [*COMPARED, "run only", "failed", "refused", "left out"]

Outcomes = dict[Cell, str]  # cell → the oracle it equals, or another status


def save(outcomes: dict[str, Outcomes]) -> None:
    """Writes one line an operator version; a parameter whose types all fare alike names the outcome alone."""
    devices = []
    for device, found in outcomes.items():
        lines = []
        for key, schema in [*schemas().items(), *translated_contrib_schemas().items()]:
            params = {
                param: _packed({t: found.get(Cell(*key, param, t)) for t in types})
                for param, types in allowed(schema).items()
            }
            params = {param: packed for param, packed in params.items() if packed}
            if params:
                lines.append(f"  {json.dumps(_name(key))}: {json.dumps(params)}")
        devices.append(f" {json.dumps(device)}: {{\n" + ",\n".join(lines) + "\n }")
    PATH.write_text("{\n" + ",\n".join(devices) + "\n}\n")


def load() -> dict[str, Outcomes]:
    """Reads the recorded outcomes of each device, without cells that have none yet."""
    if not PATH.exists():
        return {}
    found: dict[str, Outcomes] = {}
    for device, lines in json.loads(PATH.read_text()).items():
        found[device] = {}
        for cell in [*all_cells(), *contrib_cells()]:
            packed = lines.get(_name((cell.domain, cell.op, cell.version)), {}).get(cell.param, {})
            outcome = _unpacked(packed, cell.type)
            if outcome:
                found[device][cell] = outcome
    return found


def _name(key: Key) -> str:
    domain, op, version = key
    return f"{domain}.{op}-{version}".lstrip(".")


def _packed(by_type: dict[str, str | None]) -> str | dict[str, list[str]]:
    groups = defaultdict(list)
    for type_str, outcome in by_type.items():
        groups[outcome].append(type_str)
    if len(groups) == 1:
        return next(iter(groups)) or {}
    return {outcome: groups[outcome] for outcome in sorted(filter(None, groups))}


def _unpacked(packed: str | dict[str, list[str]], type_str: str) -> str | None:
    if isinstance(packed, str):
        return packed
    return next((outcome for outcome, types in packed.items() if type_str in types), None)


def summary(outcomes: Iterable[str]) -> str:
    found = list(outcomes)
    count = lambda *statuses: sum(outcome in statuses for outcome in found)
    ran = len(found) - count("left out")
    return (
        f"compared {count(*COMPARED)}/{ran} equal, {count('run only')} run only, {count('failed')} failed, "
        f"{count('refused')} refused of {len(found)} ({count('left out')} left out)"
    )
