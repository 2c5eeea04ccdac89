"""A template is a node and its data; it makes the model of any cell of its operator version."""

from __future__ import annotations

import collections
import dataclasses
import functools
from collections.abc import Iterator
from typing import Any

import numpy as np
import onnx
from onnx import helper
from onnx.defs import OpSchema

from official import node_cases

from . import rules
from .cells import Cell, Key, allowed, contrib_schemas
from .hand_written import hand_written
from .template import Template, Types
from .values import fit, type_proto, type_string

COMMON = {"tensor(float)", "tensor(int64)", "tensor(int32)", "tensor(uint8)", "tensor(bool)", "tensor(string)"}
PREFERRED = ["tensor(float)", "tensor(int64)", "tensor(bool)", "tensor(string)", "seq(tensor(float))"]


@dataclasses.dataclass
class Case:
    """A cell's model and data."""

    cell: Cell
    types: Types
    template: Template
    model: onnx.ModelProto
    inputs: list[Any]  # of the graph
    output_types: list[str]

    @property
    def feeds(self) -> dict[str, Any]:
        return {info.name: value for info, value in zip(self.model.graph.input, self.inputs, strict=True)}


def formals(schema_formals: Any, count: int) -> list[Any]:
    """Gives the schema's parameter of each input or output; the last may be variadic."""
    return [schema_formals[min(i, len(schema_formals) - 1)] for i in range(count)]


def used_params(schema: OpSchema, template: Template) -> dict[str, str | None]:
    """Gives the type parameters of what is present, with the template's own type where it tells."""
    found: dict[str, str | None] = {}
    sides = [
        (schema.inputs, [bool(t) for t in template.input_types], template.input_types),
        (schema.outputs, [bool(o) for o in template.outputs], template.output_types),
    ]
    for param in [*(template.params or []), *(param for _, param in template.captured.values())]:
        found[param] = None
    for schema_formals, present, types in sides:
        for i, (formal, there) in enumerate(zip(formals(schema_formals, len(present)), present, strict=True)):
            if there and not found.get(formal.type_str):
                found[formal.type_str] = types[i] if types else None
    return found


def types_of(cell: Cell, template: Template) -> Types:
    schema = cell.schema
    own = used_params(schema, template)
    types = {}
    for param, choices in allowed(schema).items():
        wanted = [own.get(param), *PREFERRED, choices[0]]
        types[param] = next(t for t in wanted if t in choices)
    types[cell.param] = cell.type
    return rules.coupled(cell, types)


def build(cell: Cell, template: Template) -> Case:
    schema = cell.schema
    types = types_of(cell, template)
    params = template.params or [f.type_str for f in formals(schema.inputs, len(template.inputs))]
    input_types = [types.get(param, param) for param in params]
    output_types = [types.get(f.type_str, f.type_str) for f in formals(schema.outputs, len(template.outputs))]
    given = [i for i, t in enumerate(template.input_types) if t]
    opset = rules.opset_of(cell)
    attributes = {**template.attributes, **rules.deciding_attributes(schema, types)}
    names = [f"x{i}" if i in given else "" for i in range(len(template.inputs))]
    node = onnx.NodeProto(op_type=cell.op, domain=cell.domain, input=names, output=template.outputs)
    for name, value in attributes.items():
        value = value(types, opset) if callable(value) else value
        if isinstance(value, onnx.AttributeProto):
            node.attribute.append(value)
        elif value is not None:
            node.attribute.append(helper.make_attribute(name, value, attr_type=schema.attributes[name].type))
    sources = [(names[i], template.inputs[i], input_types[i]) for i in given]
    sources += [(name, value, types[param]) for name, (value, param) in template.captured.items()]
    inputs = [fit(value, type_str) for _, value, type_str in sources]
    outputs = {name: t for name, t in zip(template.outputs, output_types, strict=True) if name}
    graph = helper.make_graph(
        [*(template.before(types, opset) if template.before else []), node],
        "cell",
        [_info(name, type_str, value) for (name, _, type_str), value in zip(sources, inputs, strict=True)],
        [helper.make_value_info(name, type_proto(type_str)) for name, type_str in outputs.items()],
    )
    imports = [helper.make_opsetid("", opset)]
    if cell.domain:
        imports.append(helper.make_opsetid(cell.domain, cell.version))
    model = helper.make_model(graph, opset_imports=imports)
    return Case(cell, types, template, model, inputs, list(outputs.values()))


def _info(name: str, type_str: str, value: Any) -> onnx.ValueInfoProto:
    info = helper.make_value_info(name, type_proto(type_str))
    if isinstance(value, np.ndarray) and type_str.startswith("tensor"):
        info.type.tensor_type.shape.CopyFrom(helper.make_tensor_type_proto(1, value.shape).tensor_type.shape)
    return info


def _simplicity(case: Any) -> tuple[bool, int, int, str]:
    """Gives a key that puts cases of data and common types first, then short names, which are the plain ones."""
    rare = sum(type_string(i.type) not in COMMON for i in case.model.graph.input)
    empty = any(isinstance(value, np.ndarray) and not value.size for value in case.data_sets[0][0])
    return empty, rare, len(case.name), case.name


@functools.cache
def official_templates() -> dict[tuple[str, str], list[tuple[int, Template]]]:
    """Gives each operator's official cases of one node, with the version its model resolves to; simple ones first."""
    found = collections.defaultdict(list)
    for case in sorted(node_cases(), key=_simplicity):
        graph = case.model.graph
        if len(graph.node) != 1 or graph.initializer:
            continue
        (node,) = graph.node
        versions = {"" if o.domain == "ai.onnx" else o.domain: o.version for o in case.model.opset_import}
        if node.domain not in versions:
            continue
        schema = onnx.defs.get_schema(node.op_type, versions[node.domain], node.domain)
        (inputs, outputs) = case.data_sets[0]
        values = dict(zip([i.name for i in graph.input], inputs, strict=True))
        types = {i.name: type_string(i.type) for i in [*graph.input, *graph.output]}
        if any(name and name not in values for name in node.input):
            continue
        template = Template(
            [values.get(name) for name in node.input],
            {a.name: a for a in node.attribute},
            list(node.output),
            [types.get(name, "") for name in node.input],
            [types.get(name, "") for name in node.output],
            outputs,
        )
        found[node.domain, node.op_type].append((schema.since_version, template))
    return found


def candidates(cell: Cell) -> Iterator[Template]:
    """Gives a cell's templates, the best first: those made by hand, the official cases of this version, later ones."""
    official = official_templates().get((cell.domain, cell.op), [])
    yield from hand_written(cell)
    yield from (t for version, t in official if version == cell.version)
    for version, template in sorted(official, key=lambda item: item[0]):
        if version > cell.version:
            yield dataclasses.replace(template, expected=None)


def contrib_templates(key: Key) -> list[Template]:
    """Gives the templates of a version of an operator that onnxruntime adds."""
    constraint = contrib_schemas()[key].type_constraints[0]
    return list(candidates(Cell(*key, constraint.type_param_str, constraint.allowed_type_strs[0])))


def as_written(key: Key, template: Template) -> Case:
    """Makes the model of such a template in the types that it is written in."""
    schema = contrib_schemas()[key]
    used = used_params(schema, template)
    of_schema = {constraint.type_param_str for constraint in schema.type_constraints}
    for param, own in used.items():
        if own and param in of_schema:
            return build(Cell(*key, param, own), template)
    constraint = schema.type_constraints[0]
    return build(Cell(*key, constraint.type_param_str, constraint.allowed_type_strs[0]), template)


def fits(cell: Cell, template: Template) -> bool:
    """Tells whether the cell's parameter is there, and each output's type follows from what is there."""
    schema = cell.schema
    if cell.param not in used_params(schema, template):
        return False
    inputs = formals(schema.inputs, len(template.inputs))
    given = {f.type_str for f, there in zip(inputs, template.input_types, strict=True) if there}
    outputs = formals(schema.outputs, len(template.outputs))
    wanted = {f.type_str for f, name in zip(outputs, template.outputs, strict=True) if name}
    return wanted & {f.type_str for f in schema.inputs} <= given


def _context(model: onnx.ModelProto) -> onnx.checker.C.CheckerContext:
    context = onnx.checker.C.CheckerContext()
    context.ir_version = model.ir_version
    context.opset_imports = {opset.domain: opset.version for opset in model.opset_import}
    return context


def cases(cell: Cell) -> Iterator[Case]:
    """Gives the valid models of a cell, lazily."""
    for template in candidates(cell):
        if not fits(cell, template):
            continue
        try:
            case = build(cell, template)
            if template.expected is not None or template.output_types is not None:
                onnx.checker.check_node(case.model.graph.node[-1], _context(case.model))
        except (LookupError, ValueError, TypeError, onnx.checker.ValidationError):
            continue
        yield case
