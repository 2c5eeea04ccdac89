"""The project's folders, and what else all of `./dev` has in common."""

from __future__ import annotations

import time
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
VENV = ROOT / ".venv"
BUILD = ROOT / "build"
OUT = ROOT / "out"
LOGS = OUT / "logs"

Command = list  # of str


class Stop(Exception):
    """The exception that ends the script with a message for the user."""


def seconds(start: float) -> str:
    passed = time.monotonic() - start
    return f"{passed:.1f} s" if passed < 10 else f"{passed:.0f} s"
