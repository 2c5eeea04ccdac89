"""Templates of src/ops/contrib/search.cpp."""

from __future__ import annotations

from typing import Any

SEARCH_ROWS: list[Any] = []
