"""Templates of src/ops/contrib/tensor.cpp."""

from __future__ import annotations

from typing import Any

TENSOR_ROWS: list[Any] = []
