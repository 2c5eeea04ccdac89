"""How far a model is trusted: the options of `prepare` that all else which reads a model takes, too, and hands on."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TypedDict


class Trust(TypedDict):
    """The options by their names."""

    limits: dict[str, float]
    allow_aten: str
    links: str


def trust_of(limits: Mapping[str, float] | None, allow_aten: str, links: str) -> Trust:
    """What a function was given."""
    return {"limits": dict(limits or {}), "allow_aten": allow_aten, "links": links}
