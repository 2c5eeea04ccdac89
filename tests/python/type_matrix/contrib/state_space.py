"""Templates of src/ops/contrib/state_space.cpp."""

from __future__ import annotations

from typing import Any

STATE_SPACE_ROWS: list[Any] = []
