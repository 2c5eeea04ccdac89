"""Some of the cells, for a quick look: at least one of each operator version."""

from __future__ import annotations

from itertools import groupby

from .cells import Cell

ONE_IN = 10


def sample(cells: list[Cell]) -> list[Cell]:
    """Takes every tenth cell of a version, from another first one for each."""
    chosen = []
    versions = groupby(cells, key=lambda cell: (cell.domain, cell.op, cell.version))
    for number, (_, of_key) in enumerate(versions):
        of_version = list(of_key)
        chosen += of_version[number % min(ONE_IN, len(of_version)) :: ONE_IN]
    return chosen
