"""Templates of src/ops/contrib/layouts.cpp."""

from __future__ import annotations

from typing import Any

LAYOUTS_ROWS: list[Any] = []
