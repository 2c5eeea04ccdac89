"""Templates of src/ops/contrib/block_quantization.cpp."""

from __future__ import annotations

from typing import Any

BLOCK_QUANTIZATION_ROWS: list[Any] = []
