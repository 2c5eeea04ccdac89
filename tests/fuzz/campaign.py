"""Looks for models that end the process, hang, or fail in a way that is not the package's.

Each part makes models of the official node cases, wrong somewhere, and prepares them, or prepares and runs them, or
compares what they give with what their operators give one by one. Inputs that end badly are kept, and
`onnx_torch_fuzz TARGET FILE` runs one again. docs/fuzzing.md tells more.
"""

from __future__ import annotations

import argparse
import subprocess
import sys
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]


@dataclass(frozen=True)
class Part:
    """A target of the program, the options of its inputs, its share of the time, and what it begins with."""

    name: str
    target: str
    options: tuple[str, ...]
    share: float
    seeds: str = "models"


PARTS = [
    Part("prepare", "prepare", (), 0.2),
    Part("run", "run", (), 0.2),
    Part("differential", "differential", (), 0.35),
    Part("plan", "plan", (), 0.1),
    Part("bytes", "run", ("--bytes",), 0.1),
    Part("saved", "saved", (), 0.05, "saved"),
    Part("file", "file", (), 0.05),
    Part("image", "image", ("--bytes",), 0.05, "images"),
    Part("text", "text", ("--bytes",), 0.05, "texts"),
]


def seeds(folder: Path, chosen: Sequence[str]) -> Path:
    """Gives the folders of what to begin with, which are made once."""
    folder = folder.joinpath(*chosen)
    done = folder / "models, images and texts"
    if not done.exists():
        command = [
            sys.executable,
            str(ROOT / "tests" / "fuzz" / "seeds.py"),
            str(folder),
            *(f"--{name}" for name in chosen),
        ]
        subprocess.run(command, check=True)
        done.touch()
    return folder


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(
        prog="./dev fuzz", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    names = [part.name for part in PARTS]
    parser.add_argument("--seconds", type=float, default=300, help="for all parts together (default: 300)")
    parser.add_argument("--runs", type=int, help="inputs of all parts together, however long they take")
    parser.add_argument("--parts", nargs="+", choices=names, default=names, metavar="PART", help=", ".join(names))
    parser.add_argument(
        "--seed", type=int, default=int(time.time()), help="another one gives other models (default: the time)"
    )
    parser.add_argument(
        "--program", type=Path, default=ROOT / "build" / "release" / "tests" / "fuzz" / "onnx_torch_fuzz"
    )
    parser.add_argument("--keep", type=Path, default=ROOT / "out" / "fuzz", help="where inputs that end badly go")
    parser.add_argument(
        "--all", action="store_true", help="begin with cases of past releases and the type matrix as well"
    )
    parser.add_argument(
        "--onnxruntime",
        action="store_true",
        help="begin with the operators that onnxruntime adds, alone or, with --all, besides the others",
    )
    options = parser.parse_args(arguments)
    begin = seeds(options.program.parent / "seeds", [n for n in ("all", "onnxruntime") if getattr(options, n)])
    parts = [part for part in PARTS if part.name in options.parts and (begin / part.seeds).exists()]
    code = 0
    print(f"seed {options.seed}", flush=True)
    for part in parts:
        share = part.share / sum(part.share for part in parts)
        length = ["--runs", int(options.runs * share)] if options.runs else ["--seconds", options.seconds * share]
        command = [options.program, part.target, *part.options, "--seeds", begin / part.seeds, *length]
        command += ["--seed", options.seed, "--keep", options.keep / part.name]
        code |= subprocess.run(list(map(str, command)), check=False).returncode
    return code


if __name__ == "__main__":
    sys.exit(main())
