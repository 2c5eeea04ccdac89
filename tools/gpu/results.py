"""The results of a GPU machine, and their way into the documentation."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
import time
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from .pack import ROOT

MATRIX = ROOT / "tests" / "python" / "type_matrix"
MACHINE = "machine.json"

# The program that tells a machine's GPU; it runs where torch is.
PROBE = """
import json, subprocess, sys, torch
if not torch.cuda.is_available():
    try:
        torch.cuda.init()
        why = "torch sees none"
    except Exception as error:
        why = str(error).splitlines()[0]
    sys.exit(why)
from onnx_torch.self_test._machine import driver
card = torch.cuda.get_device_properties(0)
print(json.dumps({"card": card.name, "capability": f"{card.major}.{card.minor}", "driver": driver(),
                  "torch": torch.__version__, "cuda": torch.version.cuda}))
"""


def machine(variables: dict[str, str]) -> dict[str, str]:
    """Tells the GPU, or ends the program where there is none."""
    done = subprocess.run([sys.executable, "-c", PROBE], capture_output=True, text=True, cwd=ROOT, env=variables)
    if done.returncode:
        why = done.stderr.strip().splitlines()[-1] if done.stderr.strip() else "torch does not run"
        raise SystemExit(f"No CUDA device here: {why}. Only `./dev gpu build` can be run without one.")
    return {**json.loads(done.stdout), "date": time.strftime("%Y-%m-%d")}


def outcomes(folder: Path) -> dict[str, list[dict[str, Any]]]:
    """Reads the outcome of each step, by part."""
    parts = sorted(path for path in folder.iterdir() if path.is_dir())
    return {part.name: [json.loads(file.read_text()) for file in sorted(part.glob("*.json"))] for part in parts}


def summary(found: dict[str, list[dict[str, Any]]]) -> dict[str, dict[str, Any]]:
    """Counts the outcomes of each part, and names the steps of it that did not pass."""
    parts = {}
    for part, steps in found.items():
        parts[part] = {
            **{name: sum(step[name] for step in steps) for name in ("passed", "failed", "skipped")},
            "steps": len(steps),
            "steps_not_passed": [step["step"] for step in steps if step["result"] != "passed"],
        }
    return parts


def benchmark(steps: Iterable[dict[str, Any]]) -> dict[str, Any] | None:
    """Joins the results of all models, with the machine and the versions of the first."""
    found = [step["more"]["results"] for step in steps if "results" in step.get("more", {})]
    if not found:
        return None
    return {**found[0], "rows": [row for one in found for row in one["rows"]]}


def take(folder: Path, matrix: Path = MATRIX, write: bool = True) -> None:
    """Writes a folder of results into the documentation, which is then made anew."""
    if not (folder / MACHINE).exists():
        raise SystemExit(f"{folder} has no {MACHINE}: it is no folder of results of `./dev gpu PART --out FOLDER`.")
    found = outcomes(folder)
    on = {**json.loads((folder / MACHINE).read_text()), "parts": summary(found)}
    (matrix / "gpu.json").write_text(json.dumps(on, indent=1) + "\n")
    cells = [step["more"]["CUDA"] for step in found.get("matrix", []) if "CUDA" in step["more"]]
    if cells:
        recorded = matrix / "results.json"
        recorded.write_text(json.dumps({**json.loads(recorded.read_text()), "CUDA": cells[-1]}))
    measured = benchmark(found.get("bench", []))
    if measured:
        file = folder / "performance.json"
        file.write_text(json.dumps(measured))
    if write:  # the build that is here makes it, as `./dev` does
        program = "from type_matrix import page, results as r; r.save(r.load()); page.PATH.write_text(page.page())"
        subprocess.run([sys.executable, "-c", program], cwd=matrix.parent, check=True)
        if measured:
            command = [sys.executable, "-m", "benchmarks", "--report", str(file), "--record"]
            subprocess.run(command, cwd=ROOT, check=True)


def copy(results: Path, out: Path) -> None:
    """Brings what has been found so far to where it was asked for."""
    shutil.copytree(results, out, dirs_exist_ok=True)
