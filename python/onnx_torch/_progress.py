"""How far long work has come."""

from __future__ import annotations

from collections.abc import Callable

Progress = Callable[[int, int], None]  # called with how much is done, and of how much
