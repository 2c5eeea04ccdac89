"""Rows of templates that are made by hand, and numbers for them."""

from __future__ import annotations

from typing import Any

import numpy as np

from .compare import ULPS
from .template import Template


def floats(*values: Any) -> np.ndarray:
    return np.array(values, np.float32)


def ints(*values: Any) -> np.ndarray:
    return np.array(values, np.int64)


def whole(*shape: int) -> np.ndarray:
    """Gives 1, 2, 3, … : the same numbers in nearly every type."""
    return np.arange(1, 1 + np.prod(shape)).reshape(shape).astype(np.float32)


def waves(*shape: int, scale: float = 1.0) -> np.ndarray:
    return (np.sin(np.arange(np.prod(shape)) * 0.7) * scale).reshape(shape).astype(np.float32)


def eighths(*shape: int, scale: float = 1.0) -> np.ndarray:
    """Gives waves in steps of 1/8: sums of products of them are exact, whatever their order."""
    return np.rint(waves(*shape, scale=8 * scale)) / 8


def row(
    op: str,
    inputs: list[Any],
    first: int = 1,
    last: int = 99,
    outputs: int = 1,
    only: str = "",
    meaning: Any = None,
    ulps: int = ULPS,
    **attributes: Any,
):
    """Makes a template for the versions from first to last, or `only` the cells of them that match an expression."""
    names = [f"y{i}" for i in range(outputs)]
    return op, first, last, Template(inputs, attributes, names, meaning=meaning, ulps=ulps), only


def microsoft(op: str, inputs: list[Any], **rest: Any):
    """Makes a row of an operator of com.microsoft."""
    return row(f"com.microsoft.{op}", inputs, **rest)
