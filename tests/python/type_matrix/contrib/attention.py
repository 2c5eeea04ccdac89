"""Templates of src/ops/contrib/attention.cpp."""

from __future__ import annotations

from typing import Any

ATTENTION_ROWS: list[Any] = []
