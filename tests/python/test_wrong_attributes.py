"""Each attribute of each operator version, as it may not be: too short or long, negative, huge, or no number at all.

Each model runs or ends in an error of the package, in this process, which a fault in native code would end.
"""

from __future__ import annotations

import collections
from collections.abc import Iterator
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import AttributeProto, helper

import onnx_torch
from models import op_model
from type_matrix.cells import all_cells, contrib_cells
from type_matrix.sample import sample
from type_matrix.templates import Case, cases
from wrong_models import little_memory

NUMBERS = [0, -1, 2**31 - 1, 2**62, -(2**63)]
FLOATS = [0.0, -1.0, 1e38, float("inf"), float("nan")]
TEXTS = ["", "x", "SAME_UPPER"]


def lists(given: list[Any], others: list[Any]) -> list[list[Any]]:
    """Makes lists that are unlike a given one: too short, too long, of other elements."""
    shorter = [[], given[:-1], given[1:], [*given, *given[-1:]], [*given, *given]]
    return shorter + [[*given[:i], other, *given[i + 1 :]] for other in others for i in (0, len(given) - 1) if given]


def wrong_values(attribute: AttributeProto) -> list[Any]:
    given = helper.get_attribute_value(attribute)
    kinds: dict[int, Any] = {
        AttributeProto.INT: lambda: NUMBERS,
        AttributeProto.FLOAT: lambda: FLOATS,
        AttributeProto.STRING: lambda: TEXTS,
        AttributeProto.INTS: lambda: lists(list(given), NUMBERS),
        AttributeProto.FLOATS: lambda: lists(list(given), FLOATS),
        AttributeProto.STRINGS: lambda: lists([text.decode() for text in given], TEXTS),
    }
    return kinds[attribute.type]() if attribute.type in kinds else []


def attributes(node: onnx.NodeProto, schema: Any) -> Iterator[AttributeProto]:
    """Gives the attributes that the node has, and the others of its schema, as they are by default, or ones."""
    yield from node.attribute
    given = {attribute.name for attribute in node.attribute}
    for name, formal in schema.attributes.items():
        if name in given:
            continue
        if formal.default_value.type:
            yield formal.default_value
        elif formal.type == onnx.defs.OpSchema.AttrType.INTS:
            yield helper.make_attribute(name, [1, 1])
        elif formal.type == onnx.defs.OpSchema.AttrType.INT:
            yield helper.make_attribute(name, 1)


def wrong_models(case: Case) -> Iterator[tuple[str, onnx.ModelProto]]:
    node = case.model.graph.node[-1]
    for attribute in attributes(node, case.cell.schema):
        for value in wrong_values(attribute):
            model = onnx.ModelProto()
            model.CopyFrom(case.model)
            changed = model.graph.node[-1]
            kept = [a for a in changed.attribute if a.name != attribute.name]
            del changed.attribute[:]
            wrong = helper.make_attribute(attribute.name, value, attr_type=attribute.type)
            changed.attribute.extend([*kept, wrong])
            yield f"{case.cell} {attribute.name}={value}"[:200], model


def outcome(model: onnx.ModelProto, inputs: list[Any]) -> str:
    """Tells what comes of a model: that it runs, that it is refused, or that it fails otherwise."""
    try:
        with little_memory():
            onnx_torch.prepare(model).run(inputs)
    except onnx_torch.Error:
        return "refused"
    except Exception as error:
        return f"{type(error).__name__}: {error}"
    return "ran"


VERSIONS = collections.defaultdict(dict)
for _cell in [*sample(all_cells()), *sample(contrib_cells())]:
    VERSIONS[_cell.domain, _cell.op].setdefault(_cell.version, _cell)


@pytest.mark.parametrize("key", sorted(VERSIONS), ids=lambda key: ".".join(filter(None, key)))
def test_attributes_that_are_wrong_end_in_an_error(key):
    others = {}
    for cell in VERSIONS[key].values():
        case = next(cases(cell), None)
        for name, model in wrong_models(case) if case else ():
            how = outcome(model, case.inputs)
            if how not in ("ran", "refused"):
                others[name] = how
    assert not others


def test_what_is_no_error_of_the_package_is_told():
    model = op_model("Relu", [np.zeros(2, np.float32)])
    assert outcome(model, [np.zeros(2, np.float32)]) == "ran"
    assert outcome(model, [np.zeros(2, np.int64)]) == "refused"
    assert outcome(3, []).startswith("TypeError: ")
