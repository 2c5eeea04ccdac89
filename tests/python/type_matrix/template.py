"""A template: a node and its data."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping
from typing import Any

import onnx

from .compare import ULPS
from .values import type_name

Types = dict[str, str]  # type parameter → type


@dataclasses.dataclass
class Template:
    """A node and its data; None is an absent input, "" an absent output.

    An attribute may be a function of the types and the version, and is left out where that gives None. The graph may
    have inputs besides the node's, `captured` (name → value and type parameter), and nodes `before` it; `params` are
    the inputs' type parameters where these differ from the schema's one variadic input.
    """

    inputs: list[Any]
    attributes: Mapping[str, Any] = dataclasses.field(default_factory=dict)
    outputs: list[str] = dataclasses.field(default_factory=lambda: ["y0"])
    input_types: list[str] | None = None
    output_types: list[str] | None = None
    expected: list[Any] | None = None  # of an official case of this very version
    captured: Mapping[str, tuple[Any, str]] = dataclasses.field(default_factory=dict)
    before: Callable[[Types, int], list[onnx.NodeProto]] | None = None
    params: list[str] | None = None
    meaning: Callable[[Any], list[Any]] | None = None  # gives a case's outputs by another form
    ulps: int = ULPS  # by which results may differ

    def __post_init__(self):
        if self.input_types is None:
            self.input_types = ["" if value is None else type_name(value) for value in self.inputs]
