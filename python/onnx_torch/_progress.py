"""The type of functions that are told how far long work has come."""

from __future__ import annotations

from collections.abc import Callable

Progress = Callable[[int, int], None]  # called with the amount that is done, and the whole
