"""All rewrites, in the order in which a round does them."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal

from . import (
    _attention,
    _batch_normalization,
    _constants,
    _dead,
    _equal,
    _gelu,
    _identities,
    _layer_normalization,
    _movement,
    _padding,
    _products,
    _rms_normalization,
    _sizes,
)
from ._graph import Graph

Level = Literal["basic", "extended"]
LEVELS: tuple[Level, ...] = ("basic", "extended")


@dataclass(frozen=True)
class Rewrite:
    """A function that changes a graph, and tells whether it did."""

    name: str
    function: Callable[[Graph], bool]
    level: Level
    what: str


REWRITES = (
    Rewrite(
        "constants",
        _constants.fold,
        "basic",
        "What follows from constants alone is computed, by this package's own engine",
    ),
    Rewrite(
        "sizes", _sizes.fold, "basic", "Sizes that are known, and lists of them for Reshape and Expand, are constants"
    ),
    Rewrite("identities", _identities.remove, "basic", "Nodes that give what they are given are taken out"),
    Rewrite(
        "movement",
        _movement.join,
        "basic",
        "Transpose, Reshape, Squeeze, Unsqueeze, Cast and Slice in a row are one, or none",
    ),
    Rewrite(
        "padding",
        _padding.join,
        "basic",
        "Zeros that a Pad puts around an image are the pads of the convolution behind it",
    ),
    Rewrite(
        "batch_normalization",
        _batch_normalization.fold,
        "basic",
        "BatchNormalization goes into the Conv, ConvTranspose or Gemm before it",
    ),
    Rewrite("equal", _equal.merge, "basic", "Nodes, and constants, that are equal are one"),
    Rewrite("gelu", _gelu.recognize, "extended", "x·Φ(x) by Erf or Tanh is Gelu, from opset 20 on"),
    Rewrite(
        "layer_normalization",
        _layer_normalization.recognize,
        "extended",
        "Means, differences and a root are LayerNormalization, from opset 17 on",
    ),
    Rewrite(
        "rms_normalization",
        _rms_normalization.recognize,
        "extended",
        "A mean of squares and a root are RMSNormalization, from opset 23 on",
    ),
    Rewrite(
        "attention",
        _attention.recognize,
        "extended",
        "The softmax of products of queries and keys, times the values, is Attention, from opset 23 on",
    ),
    Rewrite(
        "products",
        _products.join,
        "extended",
        "Three and more MatMuls of one value with constant matrices are one, and a Split",
    ),
    Rewrite("dead", _dead.remove, "basic", "Nodes and constants that nothing reads are taken out"),
)


def rewrites(level: Level) -> list[Rewrite]:
    """Returns the rewrites of a level and of the ones below."""
    return [rewrite for rewrite in REWRITES if LEVELS.index(rewrite.level) <= LEVELS.index(level)]
