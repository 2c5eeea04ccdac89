"""The overloads of ATen that a node of a model can call."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Any

import torch

# The kinds of torch's types that a node's inputs and attributes give.
_GIVEN = {"TensorType", "NumberType", "IntType", "FloatType", "BoolType", "StringType", "DeviceObjType"}
_GIVEN_IN_LISTS = {"TensorType", "IntType", "FloatType"}


@dataclass(frozen=True)
class Overload:
    """An overload by its names, with torch's schema of it."""

    name: str
    overload: str
    schema: Any

    def __str__(self) -> str:
        return f"{self.name}.{self.overload}" if self.overload else self.name

    def call(self, arguments: dict[str, Any]) -> Any:
        return _operation(self.name, self.overload)(**arguments)


def _operation(name: str, overload: str) -> Any:
    return torch._C._get_operation_overload(f"aten::{name}", overload)[0]


def overloads(names: Iterable[str] | None = None) -> list[Overload]:
    """Gives the overloads that change nothing in place: of the operators named, those named ("div.Scalar"), or all."""
    found = [
        Overload(schema.name.removeprefix("aten::"), schema.overload_name, schema)
        for schema in torch._C._jit_get_all_schemas()
        if schema.name.startswith("aten::") and _can_be_called(schema)
    ]
    wanted = None if names is None else set(names)
    return sorted((one for one in found if wanted is None or not wanted.isdisjoint({one.name, str(one)})), key=str)


def _can_be_called(schema: Any) -> bool:
    named_dimensions = "imname" in schema.overload_name or schema.overload_name.startswith("names")
    required = (argument for argument in schema.arguments if not _may_be_left_out(argument))
    of_tensors = any("Tensor" in str(value.type) for value in (*schema.arguments, *schema.returns))
    return of_tensors and not schema.is_mutable and not named_dimensions and all(is_given(a.type) for a in required)


def _may_be_left_out(argument: Any) -> bool:
    return argument.has_default_value() or argument.type.kind() == "OptionalType"


def inner_types(type_: Any) -> Iterator[Any]:
    """Gives the type, less Optional around it, then the types of the elements of lists."""
    while type_.kind() == "OptionalType":
        type_ = type_.getElementType()
    yield type_
    if type_.kind() == "ListType":
        yield from inner_types(type_.getElementType())


def is_given(type_: Any) -> bool:
    """Tells whether a node can give an argument of the type."""
    outer, *elements = inner_types(type_)
    if not elements:
        return outer.kind() in _GIVEN
    return len(elements) == 1 and elements[0].kind() in _GIVEN_IN_LISTS
