"""Templates of src/ops/contrib/experts.cpp."""

from __future__ import annotations

from typing import Any

EXPERTS_ROWS: list[Any] = []
