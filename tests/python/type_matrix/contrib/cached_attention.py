"""Templates of src/ops/contrib/cached_attention.cpp."""

from __future__ import annotations

from typing import Any

CACHED_ATTENTION_ROWS: list[Any] = []
