"""Some of the cells, for a quick look: at least one of each operator version."""

from __future__ import annotations

from itertools import groupby

from .cells import Cell, all_cells, contrib_cells

ONE_IN = 10


def sample() -> list[Cell]:
    """Every tenth cell of a version, from another first one for each."""
    chosen = []
    versions = groupby([*all_cells(), *contrib_cells()], key=lambda cell: (cell.domain, cell.op, cell.version))
    for number, (_, cells) in enumerate(versions):
        of_version = list(cells)
        chosen += of_version[number % min(ONE_IN, len(of_version)) :: ONE_IN]
    return chosen
