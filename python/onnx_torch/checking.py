"""All the reasons why a model cannot be prepared, at once."""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import onnx
from onnx import external_data_helper

from . import _C
from ._models.files import directory_of, given_data, place_of, read_model, subgraphs, tensors
from ._models.fixed_shapes import FixedShapes, fixed_sizes
from ._models.given import External, Model
from ._models.trust import trust_of
from .errors import DeviceError, Error, InputError, InvalidModelError, UnsupportedError
from .prepared_model import prepare


@dataclass(frozen=True)
class Problem:
    """A reason why a model cannot be run, with the operator, name, domain and opset version of a node to blame."""

    why: str
    unsupported: bool = False  #: the model may be right, but this library cannot run it
    op_type: str = ""
    name: str = ""
    domain: str = ""
    version: int = 0

    @property
    def node(self) -> str:
        """The node, as error messages name it."""
        return node_label(self.op_type, self.name, self.domain, self.version) if self.op_type else ""

    def __str__(self) -> str:
        return f"{self.node}: {self.why}" if self.node else self.why


def node_label(op_type: str, name: str, domain: str, version: int) -> str:
    quoted = f' "{name}"' if name else ""
    return f"{domain}{'.' if domain else ''}{op_type}{quoted} (opset {version})"


def check(
    model: Model,
    device: str = "CPU",
    *,
    base_dir: str | os.PathLike[str] | None = None,
    external: External | None = None,
    shapes: FixedShapes | None = None,
    limits: Mapping[str, float] | None = None,
    allow_aten: str = "checked",
    links: str = "follow",
) -> list[Problem]:
    """Finds all the reasons why a model cannot be prepared; none where it can.

    They are operators that are not supported, nodes that break their schemas, values that nothing defines, nodes that
    wait for one another, and files of external data that are not there. Where there are none of these, the model is
    translated, which finds the nodes whose attributes, types or constants do not go together; a node that fails only
    because another failed before it is not reported.

    Args:
        model: a ModelProto, its serialized bytes, or a path.
        device: see `prepare`; likewise ``shapes``, ``limits``, ``allow_aten`` and ``links``.
        base_dir: the directory of the model's external data; for a path, the directory of the file by default.
        external: external data from memory, as `prepare` takes it.

    >>> from onnx import parser
    >>> model = parser.parse_model('''<ir_version: 10, opset_import: ["": 21]>
    ...     net (float[2] x) => (float[2] z) { y = Frob(x)  z = Add(y) }''')
    >>> for problem in check(model):
    ...     print(problem)
    Frob (opset 21): no such operator
    Add (opset 21): has 1 inputs; allowed are 2 to 2
    """
    proto = read_model(model)
    if not proto.HasField("graph"):
        return [Problem("the model holds no graph")]
    directory = directory_of(model, base_dir)
    options: dict[str, Any] = {"shapes": fixed_sizes(shapes), **trust_of(limits, allow_aten, links)}
    try:
        problems = [*schema_problems(proto), *_undefined_values(proto), *_missing_data(proto, directory, external)]
        if not problems:
            prepare(model, device, base_dir=base_dir, external=external, **options)
    except (DeviceError, InputError):
        raise  # not the model's fault
    except Error as error:
        problems = _translation_problems(proto, directory, external, options) or [_problem(error)]
    return problems


def schema_problems(model: onnx.ModelProto) -> list[Problem]:
    """Finds operators that are not supported, and nodes that break their schemas."""
    return _listed(_C.problems(model.SerializeToString()))


def _translation_problems(
    model: onnx.ModelProto, directory: str, external: External | None, options: Mapping[str, Any]
) -> list[Problem]:
    """Finds the nodes that cannot be translated; none where something else is wrong."""
    try:
        return _listed(_C.translation_problems(model.SerializeToString(), directory, _C.Options(**options), external))
    except Error:
        return []


def _listed(problems: Iterable[tuple[str, str, str, int, str, bool]]) -> list[Problem]:
    return [
        Problem(why, unsupported, op_type, name, domain, version)
        for op_type, name, domain, version, why, unsupported in problems
    ]


def _problem(error: Error) -> Problem:
    unsupported = isinstance(error, UnsupportedError)
    if not error.op_type:
        return Problem(str(error), unsupported)
    node = (error.op_type, error.node_name or "", error.domain or "", error.version or 0)
    return Problem(str(error).removeprefix(node_label(*node) + ": "), unsupported, *node)


def _undefined_values(model: onnx.ModelProto) -> Iterator[Problem]:
    opsets = {opset.domain: opset.version for opset in model.opset_import}

    def undefined(
        graph: onnx.GraphProto | onnx.FunctionProto, known: set[str], opsets: Mapping[str, int]
    ) -> Iterator[Problem]:
        known |= {name for node in graph.node for name in node.output}
        for node in graph.node:
            for name in node.input:
                if name and name not in known:
                    why = f'nothing defines its input "{name}"'
                    yield Problem(why, False, node.op_type, node.name, node.domain, opsets.get(node.domain, 1))
            for inner in subgraphs(node):
                yield from undefined(inner, known | _given(inner), opsets)
        for output in graph.output:
            name = output if isinstance(output, str) else output.name
            if name and name not in known:
                yield Problem(f'nothing defines the output "{name}"')

    yield from undefined(model.graph, _given(model.graph), opsets)
    for function in model.functions:
        imports = {opset.domain: opset.version for opset in function.opset_import}
        yield from undefined(function, set(function.input), imports)


def _given(graph: onnx.GraphProto) -> set[str]:
    """Returns the values of a graph that no node computes: its inputs and initializers."""
    weights = [tensor.name for tensor in graph.initializer] + [
        sparse.values.name for sparse in graph.sparse_initializer
    ]
    return {value.name for value in graph.input} | set(weights)


def _missing_data(model: onnx.ModelProto, directory: str, external: External | None) -> Iterator[Problem]:
    for tensor in tensors(model):
        if not external_data_helper.uses_external_data(tensor):
            continue
        what = f'the tensor "{tensor.name}"'
        try:
            data = place_of(tensor)
        except InvalidModelError as error:
            yield Problem(str(error))
            continue
        path = os.path.join(directory, data.location)
        is_there = os.path.isfile(path)
        if is_there and os.path.getsize(path) >= (data.offset or 0) + (data.length or 0):
            continue
        if given_data(tensor, external) is not None:
            continue
        if is_there:
            yield Problem(f"{what}: the file {path} of external data is too short")
        else:
            yield Problem(f"{what}: there is no file {path} of external data")
