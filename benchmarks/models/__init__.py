"""The cases that are measured, in groups."""

from __future__ import annotations

from . import classical, limits, optimized, overhead, quantized, recurrent, small, transformers, vision
from .case import Case

GROUPS = (vision, transformers, recurrent, quantized, optimized, classical, small, overhead, limits)
CASES: dict[str, Case] = {case.name: case for group in GROUPS for case in group.CASES}
