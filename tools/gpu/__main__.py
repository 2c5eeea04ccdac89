"""The command line: `./dev gpu`."""

from __future__ import annotations

import argparse
import json
import os
import sys
from pathlib import Path

from . import pack, parts, results

RESULTS = pack.LAID_OUT / "results"
LIMIT = 560.0  # seconds of a call


def parser() -> argparse.ArgumentParser:
    top = argparse.ArgumentParser(
        prog="./dev gpu",
        formatter_class=argparse.RawDescriptionHelpFormatter,
        description="Builds, tests and measures on a bare GPU machine: torch and its Python, g++ and nvcc; no network, "
        "no root.\nFirst, where there are a network and apt: ./dev gpu --pack. The folder gpu_pack then travels with "
        "the checkout.\nThere, each of these in its turn; one that is cut off goes on when it is called again:\n\n"
        + "\n".join(f"  {part.name:10} {part.what}" for part in parts.PARTS),
    )
    top.add_argument("part", nargs="?", choices=[part.name for part in parts.PARTS], metavar="PART")
    top.add_argument("--pack", metavar="PYTHON", nargs="?", const="3.12", help="fill gpu_pack, for this Python (3.12)")
    top.add_argument("--take", type=Path, metavar="FOLDER", help="write the results there into docs/")
    top.add_argument("--out", type=Path, metavar="FOLDER", help="copy all results that there are to this folder")
    top.add_argument("--limit", type=float, default=LIMIT, metavar="SECONDS", help="of a call (default: %(default)s)")
    top.add_argument(
        "--jobs", type=int, default=1, metavar="N", help="steps of a part at a time (default: %(default)s)"
    )
    return top


def main() -> int:
    top = parser()
    args = top.parse_args()
    if args.pack:
        file = pack.fill(args.pack)
        print(f"{file}: {file.stat().st_size / 2**20:.1f} MiB, for Python {args.pack}")
        return 0
    if args.take:
        results.take(args.take)
        return 0
    if not args.part:
        top.print_help()
        return 0
    return run(next(part for part in parts.PARTS if part.name == args.part), args)


def run(part: parts.Part, args: argparse.Namespace) -> int:
    told = pack.unpack()
    here = f"{sys.version_info.major}.{sys.version_info.minor}"
    if told["python"] != here:
        raise SystemExit(f"gpu_pack is for Python {told['python']}, and this is {here}: ./dev gpu --pack {here}")
    try:
        if part.needs_gpu:
            machine = results.machine(pack.environment(parts.BUILD))
            RESULTS.mkdir(parents=True, exist_ok=True)
            (RESULTS / results.MACHINE).write_text(json.dumps(machine, indent=1))
        done = parts.run(part, part.steps(), RESULTS, args.limit, jobs=args.jobs)
    finally:
        if args.out and RESULTS.exists():
            results.copy(RESULTS, args.out)
    found = results.summary({part.name: results.outcomes(RESULTS).get(part.name, [])})[part.name]
    print(f"{part.name}: {'done' if done else 'not done yet'}; {found['passed']} passed, {found['failed']} failed")
    return 0 if done and not found["steps_not_passed"] else 1


if __name__ == "__main__":
    os.chdir(pack.ROOT)
    sys.exit(main())
