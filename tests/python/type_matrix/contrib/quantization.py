"""Templates of src/ops/contrib/quantization.cpp."""

from __future__ import annotations

from typing import Any

QUANTIZATION_ROWS: list[Any] = []
