"""Templates of src/ops/contrib/linear.cpp."""

from __future__ import annotations

from typing import Any

LINEAR_ROWS: list[Any] = []
