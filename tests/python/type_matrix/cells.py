"""The cells: each operator version's type parameters, and each type it may take."""

from __future__ import annotations

import dataclasses
import functools

import onnx
from onnx.defs import OpSchema


@dataclasses.dataclass(frozen=True)
class Cell:
    domain: str
    op: str
    version: int
    param: str
    type: str

    @property
    def schema(self) -> OpSchema:
        return schemas()[self.domain, self.op, self.version]

    def __str__(self) -> str:
        return f"{self.domain}.{self.op}-{self.version}/{self.param}/{self.type}".lstrip(".")


@functools.cache
def schemas() -> dict[tuple[str, str, int], OpSchema]:
    found = {
        ("" if s.domain == "ai.onnx" else s.domain, s.name, s.since_version): s
        for s in onnx.defs.get_all_schemas_with_history()
    }
    return dict(sorted(found.items()))


@functools.cache
def all_cells() -> list[Cell]:
    return [
        Cell(*key, constraint.type_param_str, type_str)
        for key, schema in schemas().items()
        for constraint in schema.type_constraints
        for type_str in constraint.allowed_type_strs
    ]


def allowed(schema: OpSchema) -> dict[str, list[str]]:
    return {c.type_param_str: list(c.allowed_type_strs) for c in schema.type_constraints}
