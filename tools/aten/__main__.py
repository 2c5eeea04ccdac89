"""The command line: ``python -m tools.aten``."""

from __future__ import annotations

import argparse
import ctypes
import os
import subprocess
import sys
import tempfile
from collections import Counter
from pathlib import Path

HERE = Path(__file__).parent


def parser() -> argparse.ArgumentParser:
    top = argparse.ArgumentParser(prog="python -m tools.aten", description=sys.modules[__package__].__doc__)
    top.add_argument("names", nargs="*", metavar="NAME", help="operators to try (default: those that a model may name)")
    top.add_argument("--all", action="store_true", help="try all of ATen's, allowed or not")
    top.add_argument("--calls", type=int, default=400, help="for each overload, at least (default: %(default)s)")
    top.add_argument("--seed", type=int, default=0, help="another one tries other arguments")
    top.add_argument("--seconds", type=float, default=10, help="that one call may take (default: %(default)s)")
    top.add_argument("--memory", type=float, default=2**30, help="bytes that a process may take (default: 2**30)")
    top.add_argument("--jobs", type=int, default=os.cpu_count(), help="processes at a time (default: the processors)")
    top.add_argument("--list", type=Path, metavar="FILE", help="write the outcome of each overload there")
    return top


def preloaded(arguments: list[str]) -> int:
    """Runs this program again, with guards around the memory of tensors."""
    with tempfile.TemporaryDirectory() as folder:
        library = Path(folder) / "guard.so"
        subprocess.run(["cc", "-O1", "-shared", "-fPIC", str(HERE / "guard.c"), "-o", str(library)], check=True)
        environment = {**os.environ, "LD_PRELOAD": str(library), "OMP_NUM_THREADS": "1", "MKL_NUM_THREADS": "1"}
        return subprocess.run([sys.executable, "-m", __package__, *arguments], env=environment, check=False).returncode


def main() -> int:
    args = parser().parse_args()
    if not hasattr(ctypes.CDLL(None), "guard_fill"):
        return preloaded(sys.argv[1:])
    import torch

    from .operators import overloads
    from .trials import Limits, tried

    torch.set_num_threads(1)
    chosen = overloads(args.names or (None if args.all else allowed()))
    outcomes, faults = Counter[str](), []
    written = args.list.open("w") if args.list else None
    for outcome in tried(chosen, args.calls, args.seed, Limits(args.seconds, args.memory), args.jobs):
        kind = outcome.fault or ("" if outcome.good else "never gave a result")
        outcomes[kind] += 1
        if written:
            row = (outcome.overload, outcome.calls, outcome.good, kind, outcome.arguments)
            print(*row, sep="\t", file=written, flush=True)
        if outcome.fault:
            faults.append(outcome)
            print(f"{outcome.overload}: {outcome.fault}: {outcome.arguments}", flush=True)
    print(f"{len(chosen)} overloads; " + ", ".join(f"{n} {kind or 'without a fault'}" for kind, n in outcomes.items()))
    return 1 if faults else 0


def allowed() -> list[str]:
    """Lists the operators that a model's ATen nodes may name."""
    from onnx_torch import _C

    return _C.checked_aten_operators()


if __name__ == "__main__":
    sys.exit(main())
