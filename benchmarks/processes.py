"""The time that whoever starts a process waits for it: imports, the first run of a model, a command."""

from __future__ import annotations

import statistics
import subprocess
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

from .engines import OURS, REFERENCE
from .models.case import inputs_file, model_file

MODEL = "mobilenet_v3_large"
ROUNDS = 9

MEMORY = """
with open("/proc/self/status") as status:
    print(next(line.split()[1] for line in status if line.startswith("VmHWM:")))
"""
FIRST_RUN = {
    OURS: """
rep = onnx_torch.prepare(sys.argv[1], threads=int(sys.argv[3]))
rep.run(feeds)
""",
    REFERENCE: """
options = onnxruntime.SessionOptions()
options.intra_op_num_threads = int(sys.argv[3])
onnxruntime.InferenceSession(sys.argv[1], options).run(None, feeds)
""",
}
FEEDS = """
import sys
import numpy
with numpy.load(sys.argv[2]) as file:
    feeds = {name[2:]: file[name] for name in file.files if name.startswith("0/")}
"""


@dataclass
class Process:
    """A kind of process; what is measured goes by the names of columns, round by round."""

    what: str
    seconds: dict[str, list[float]] = field(default_factory=dict)  #: from its start to its end
    memory: dict[str, list[int]] = field(default_factory=dict)  #: bytes, at its peak

    def ratio(self) -> float | None:
        """Gives our time over the reference's; None without both."""
        pair = [self.seconds.get(name) for name in (OURS, REFERENCE)]
        if not all(pair):
            return None
        return statistics.median(ours / theirs for ours, theirs in zip(*pair, strict=True))


def commands(folder: Path, threads: int) -> dict[str, dict[str, list[str]]]:
    """Gives the commands by what they start and by column. A command of ours that is no script tells no memory."""
    model = model_file(folder, MODEL)
    given = [str(model), str(inputs_file(folder, MODEL)), str(threads)]
    script = lambda text: [sys.executable, "-c", text + MEMORY, *given]
    both = (OURS, REFERENCE)
    return {
        "Python": {name: script("") for name in both},
        "and numpy": {name: script("import numpy") for name in both},
        "import": {name: script(f"import {name}") for name in both},
        "import after numpy": {name: script(f"import numpy, {name}") for name in both},
        f"{MODEL}, run once": {name: script(f"{FEEDS}import {name}\n{FIRST_RUN[name]}") for name in both},
        "onnx-torch info": {OURS: [sys.executable, "-m", "onnx_torch_cli", "info", str(model)]},
    }


def measure(
    folder: Path, threads: int, rounds: int = ROUNDS, progress: Callable[[int, int], None] = lambda done, of: None
) -> list[Process]:
    """Starts all, in turns; a round before those that count has files read from the disk."""
    found = {what: Process(what) for what in commands(folder, threads)}
    for number in range(rounds + 1):
        progress(number, rounds + 1)
        for what, columns in commands(folder, threads).items():
            for name, command in columns.items():
                start = time.perf_counter()
                told = subprocess.run(command, check=True, capture_output=True, text=True).stdout
                seconds = time.perf_counter() - start
                if number > 0:
                    found[what].seconds.setdefault(name, []).append(seconds)
                    if command[1] == "-c":
                        found[what].memory.setdefault(name, []).append(1024 * int(told))
    return list(found.values())
