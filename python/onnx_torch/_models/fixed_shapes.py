"""The option `shapes`: fixed sizes for dimensions that a model leaves open."""

from __future__ import annotations

import operator
from collections.abc import Mapping, Sequence
from typing import Any

#: A size for each symbol, or a shape for an input, in which None leaves a dimension open.
FixedShapes = Mapping[str, "int | Sequence[int | None]"]


def fixed_sizes(shapes: FixedShapes | None) -> dict[str, int]:
    """Returns the sizes by symbols and by axes, as the native options have them.

    >>> fixed_sizes({"batch": 8, "x": [None, 3]})
    {'batch': 8, 'x[1]': 3}
    """
    sizes: dict[str, int] = {}
    for name, given in (shapes or {}).items():
        by_names: dict[str, Any] = {name: given}
        if isinstance(given, (list, tuple)):
            by_names = {f"{name}[{axis}]": size for axis, size in enumerate(given)}
        try:
            sizes.update((axis, operator.index(size)) for axis, size in by_names.items() if size is not None)
        except TypeError:
            raise TypeError(f"shapes: {name!r} is given {given!r}, which is neither a size nor a shape") from None
    return sizes
