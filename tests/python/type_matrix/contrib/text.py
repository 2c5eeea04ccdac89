"""Templates of src/ops/contrib/text.cpp."""

from __future__ import annotations

from typing import Any

TEXT_ROWS: list[Any] = []
