"""The graph that a model became, as text."""

from __future__ import annotations

import difflib
import os
import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass

import onnx

from ._models.files import read_model
from ._models.fixed_shapes import FixedShapes
from ._models.given import External, Model
from ._models.trust import trust_of
from .checking import node_label
from .errors import InputError
from .prepared_model import PreparedModel, prepare

_NUMBER = re.compile(r":(\d+):0$")


@dataclass(frozen=True)
class GraphLine:
    """A line of TorchScript, and the ONNX node, input or weight that it comes from."""

    code: str
    origin: str = ""  #: the ONNX node: its operator, name and first output; or an input or a weight
    number: int | None = None  #: the number of the node, in the order of translation


def show(
    model: Model,
    device: str = "CPU",
    *,
    step: str | None = None,
    base_dir: str | os.PathLike[str] | None = None,
    external: External | None = None,
    precision: str = "float32",
    optimize: bool = True,
    disabled_passes: Iterable[str] = (),
    shapes: FixedShapes | None = None,
    limits: Mapping[str, float] | None = None,
    allow_aten: str = "checked",
    links: str = "follow",
) -> str:
    """Returns the graph that a model is translated into, as text: each line beside its ONNX node.

    Args:
        model: a ModelProto, its serialized bytes, or a path.
        device: see `prepare`; likewise ``base_dir``, ``external``, ``precision``, ``optimize``, ``disabled_passes``,
            ``shapes``, ``limits``, ``allow_aten`` and ``links``.
        step: one of the steps of preparing a model, `PreparedModel.graphs`; what it made of the graph is then shown:
            lines that it took away with a "-", lines that it added with a "+". Before the first step, the graph is
            ONNX's own.

    >>> from onnx import parser
    >>> model = parser.parse_model('''<ir_version: 10, opset_import: ["": 21]>
    ...     net (float[2] x) => (float[2] z) { y = Relu(x)  z = Neg(y) }''')
    >>> print(show(model, optimize=False))
    input x     │ graph(%0 : Float(2)):
    0 Relu → y  │   %1 : Float(2) = aten::relu(%0)
    1 Neg → z   │   %2 : Float(2) = aten::neg(%1)
                │   return (%2)
    """
    rep = prepare(
        model,
        device,
        base_dir=base_dir,
        external=external,
        precision=precision,
        optimize=optimize,
        disabled_passes=disabled_passes,
        shapes=shapes,
        **trust_of(limits, allow_aten, links),
    )
    if step is None:
        return _side_by_side(lines(rep, rep.graph()))
    steps = {name: lines(rep, graph, inputs) for name, graph, inputs in rep._prepared.steps}
    names = list(steps)
    if step not in names:
        raise InputError(f'there is no step "{step}"; there are {", ".join(names)}')
    after = steps[step]
    if step == names[0]:
        before = onnx.printer.to_text(read_model(model).graph)
        return f"{before.rstrip()}\n\n{_side_by_side(after)}"
    return _side_by_side(list(_changes(steps[names[names.index(step) - 1]], after)))


def lines(rep: PreparedModel, text: str, inputs: list[tuple[str, str]] | None = None) -> list[GraphLine]:
    """Returns the lines of a graph's text, `PreparedModel.graph`, less the comments that name their nodes."""
    nodes = rep._prepared.nodes
    found = [_line(line, nodes) for line in text.rstrip().splitlines()]
    # The graph's inputs come first, each in a line of its own.
    for i, (kind, name) in enumerate(rep._prepared.graph_inputs if inputs is None else inputs):
        found[i] = GraphLine(found[i].code, f"{kind} {name}".rstrip())
    return found


def _line(line: str, nodes: list[tuple[str, str, str, int, str, int | None]]) -> GraphLine:
    found = _NUMBER.search(line)
    if not found or int(found[1]) >= len(nodes):
        return GraphLine(line)
    number = int(found[1])
    op_type, name, domain, version, output, _ = nodes[number]
    comment = f" # {node_label(op_type, name, domain, version)}:{number}:0"
    if not line.endswith(comment):
        return GraphLine(line)
    node = " ".join(filter(None, [f"{domain}.{op_type}" if domain else op_type, f'"{name}"' if name else ""]))
    return GraphLine(line.removesuffix(comment), f"{node} → {output}" if output else node, number)


def _side_by_side(shown: list[GraphLine]) -> str:
    """Returns the lines as text with the nodes on the left, each beside the first of its lines."""
    digits = max((len(str(line.number)) for line in shown if line.number is not None), default=0)
    labels = [line.origin if line.number is None else f"{line.number:>{digits}} {line.origin}" for line in shown]
    width = max(map(len, labels), default=0)
    rows = (
        f"{label if label != above else '':{width}}  │ {line.code}"
        for line, label, above in zip(shown, labels, ["", *labels], strict=False)
    )
    return "\n".join(row.rstrip() for row in rows)


def _changes(before: list[GraphLine], after: list[GraphLine]) -> Iterator[GraphLine]:
    def marked(mark: str, part: list[GraphLine]) -> Iterator[GraphLine]:
        return (GraphLine(f"{mark} {line.code}", line.origin, line.number) for line in part)

    for tag, i, j, k, m in difflib.SequenceMatcher(None, before, after, autojunk=False).get_opcodes():
        if tag == "equal":
            yield from marked(" ", after[k:m])
        else:
            yield from marked("-", before[i:j])
            yield from marked("+", after[k:m])
