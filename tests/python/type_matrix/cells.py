"""The cells: each operator version's type parameters, and each type it may take."""

from __future__ import annotations

import dataclasses
import functools
import sys
from pathlib import Path

import onnx
from onnx.defs import OpSchema

from onnx_torch import _C

sys.path.append(str(Path(__file__).resolve().parents[3] / "cmake"))
import community_schemas
import onnxruntime_schemas

Key = tuple[str, str, int]  # domain, name and version of an operator


@dataclasses.dataclass(frozen=True)
class Cell:
    domain: str
    op: str
    version: int
    param: str
    type: str

    @property
    def schema(self) -> OpSchema:
        key = self.domain, self.op, self.version
        return contrib_schemas()[key] if key in contrib_schemas() else schemas()[key]

    def __str__(self) -> str:
        return f"{self.domain}.{self.op}-{self.version}/{self.param}/{self.type}".lstrip(".")


@functools.cache
def schemas() -> dict[Key, OpSchema]:
    found = {
        ("" if s.domain == "ai.onnx" else s.domain, s.name, s.since_version): s
        for s in onnx.defs.get_all_schemas_with_history()
    }
    return dict(sorted(found.items()))


@functools.cache
def contrib_schemas() -> dict[Key, OpSchema]:
    """Gives the schemas that onnxruntime adds, and other projects."""
    added = [*onnxruntime_schemas.schemas(), *community_schemas.SCHEMAS]
    return {(s.domain, s.name, s.since_version): s for s in added}


@functools.cache
def translated_contrib_schemas() -> dict[Key, OpSchema]:
    """Gives the translated ones of them, without ONNX's early experiments, which test_ops_experimental.py tries."""
    since = {(domain, op): min(sinces) for domain, op, sinces, _ in _C.translation_table()}
    elsewhere = set(_C.experimental_operators())
    return {
        key: schema
        for key, schema in contrib_schemas().items()
        if key[:2] not in elsewhere and since.get(key[:2], key[2] + 1) <= key[2]
    }


@functools.cache
def all_cells() -> list[Cell]:
    """Lists the cells of the standard."""
    return [cell for key, schema in schemas().items() for cell in cells_of(key, schema)]


@functools.cache
def contrib_cells() -> list[Cell]:
    """Lists the cells of the operators that onnxruntime and other projects add, where they are translated."""
    return [cell for key, schema in translated_contrib_schemas().items() for cell in cells_of(key, schema)]


CELLS = {"standard": all_cells, "onnxruntime": contrib_cells}


def cells_of(key: Key, schema: OpSchema) -> list[Cell]:
    return [Cell(*key, c.type_param_str, type_str) for c in schema.type_constraints for type_str in c.allowed_type_strs]


def allowed(schema: OpSchema) -> dict[str, list[str]]:
    return {c.type_param_str: list(c.allowed_type_strs) for c in schema.type_constraints}
