"""The threads of this process, as Linux lists them: for a moment, those that have ended and were joined as well."""

from __future__ import annotations

import contextlib
from pathlib import Path


def names() -> dict[int, str]:
    """Gives each thread's name by its number."""
    found = {}
    for thread in Path("/proc/self/task").iterdir():
        with contextlib.suppress(OSError):  # it may have ended since it was listed
            found[int(thread.name)] = (thread / "comm").read_text().strip()
    return found
