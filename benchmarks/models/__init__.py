"""What is measured, in groups."""

from __future__ import annotations

from . import classical, limits, overhead, quantized, recurrent, transformers, vision
from .case import Case

GROUPS = (vision, transformers, recurrent, quantized, classical, overhead, limits)
CASES: dict[str, Case] = {case.name: case for group in GROUPS for case in group.CASES}
