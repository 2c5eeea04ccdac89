"""The options of `prepare` that say how far a model is trusted; all readers of a model take and pass them on."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TypedDict


class Trust(TypedDict):
    """The options by their names."""

    limits: dict[str, float]
    allow_aten: str
    links: str


def trust_of(limits: Mapping[str, float] | None, allow_aten: str, links: str) -> Trust:
    """Collects the options of trust that a function was given."""
    return {"limits": dict(limits or {}), "allow_aten": allow_aten, "links": links}
