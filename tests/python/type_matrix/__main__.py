"""The command that runs the type matrix, and records it: python -m type_matrix."""

from __future__ import annotations

import argparse
import re
import sys

from . import page, results
from .cells import CELLS
from .run import run_cells


def main() -> int:
    parser = argparse.ArgumentParser(prog="type_matrix", description="Run every operator version with every type.")
    parser.add_argument("--only", choices=CELLS, help="of the standard's operators or onnxruntime's; records those")
    parser.add_argument(
        "--filter", default="", metavar="REGEX", help="only cells whose name matches, recording nothing by itself"
    )
    parser.add_argument("--record", action="store_true", help="record what --filter leaves")
    parser.add_argument("--device", default="CPU", help="CPU (default) or CUDA:0")
    parser.add_argument("-v", action="store_true", help="also name the cells that were only run, and why")
    args = parser.parse_args()
    groups = [args.only] if args.only else CELLS
    cells = [cell for group in groups for cell in CELLS[group]() if re.search(args.filter, str(cell))]
    found = run_cells(cells, args.device, progress=lambda text: print(text, file=sys.stderr, flush=True))
    for result in found:
        if result.outcome in ("failed", "refused") or (args.v and result.outcome == "run only"):
            print(f"{result.outcome}: {result.cell}: {result.detail}")
    print(f"type matrix: {results.summary(result.outcome for result in found)}")
    if args.record or not args.filter:
        recorded = results.load()
        device = args.device.split(":")[0].upper()
        outcomes = {result.cell: result.outcome for result in found}
        results.save({**recorded, device: {**recorded.get(device, {}), **outcomes}})
        page.PATH.write_text(page.page())
    return 1 if any(result.outcome in ("failed", "refused") for result in found) else 0


if __name__ == "__main__":
    sys.exit(main())
