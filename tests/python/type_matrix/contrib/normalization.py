"""Templates of src/ops/contrib/normalization.cpp."""

from __future__ import annotations

from typing import Any

NORMALIZATION_ROWS: list[Any] = []
