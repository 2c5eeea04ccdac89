"""The operators that onnxruntime adds, against its kernels, or where it has none against a formula.

The table of their schemas is that of the installed release; every part of a schema is tried by a template (an attribute
other than by default, an optional input or output with and without), and so is every type.
"""

from __future__ import annotations

import numpy as np
import pytest

pytest.importorskip("onnxruntime")

import onnx_torch
from type_matrix.cells import contrib_cells, onnxruntime_schemas, translated_contrib_schemas
from type_matrix.compare import assert_equal, precision
from type_matrix.contrib import CONTRIB_DOMAINS, CONTRIB_ROWS, ONE_WAY_ONLY
from type_matrix.engines import Declined
from type_matrix.oracles import ask
from type_matrix.run import run_cell
from type_matrix.templates import Case, as_written, contrib_templates
from type_matrix.values import type_string

TRANSLATED = translated_contrib_schemas()


def test_the_table_is_that_of_the_installed_release():
    assert onnxruntime_schemas.facts() == onnxruntime_schemas.installed(), (
        "run python cmake/onnxruntime_schemas.py, and read what is new"
    )


CASES = [
    pytest.param(key, number, id=f"{'.'.join(filter(None, key[:2]))}-{key[2]}-{number}")
    for key in TRANSLATED
    for number in range(len(contrib_templates(key)))
]


def expected(case: Case) -> list:
    for oracle in ("meaning", "onnxruntime"):
        try:
            return ask(oracle, case)
        except Declined as reason:
            declined = str(reason)
    raise AssertionError(f"nothing to compare with: {declined}")


@pytest.mark.parametrize("key, number", CASES)
def test_template(key, number):
    """A template is right as it is written for the CPU, run until its plan runs, and as the translator leaves it."""
    template = contrib_templates(key)[number]
    case = as_written(key, template)
    wanted = expected(case)
    eps = precision([type_string(i.type) for i in case.model.graph.input], case.output_types)
    rep = onnx_torch.prepare(case.model)
    first = rep.run(case.inputs)
    assert_equal(list(first), wanted, eps, template.ulps)
    for _ in range(3):
        for one, other in zip(first, rep.run(case.inputs), strict=True):
            np.testing.assert_array_equal(one, other)
    plain = onnx_torch.prepare(case.model, optimize=False)
    assert_equal(list(plain.run(case.inputs)), wanted, eps, template.ulps)


@pytest.mark.parametrize("cell", contrib_cells(), ids=str)
def test_type(cell):
    result = run_cell(cell)
    assert result.outcome not in ("failed", "refused", "run only"), f"{result.outcome}: {result.detail}"


@pytest.mark.parametrize("key", TRANSLATED, ids=lambda key: ".".join(filter(None, map(str, key))))
def test_every_part_of_the_schema_is_tried(key):
    schema, templates = TRANSLATED[key], contrib_templates(key)
    one_way_only = ONE_WAY_ONLY.get(key[:2], {})
    assert templates, "no template"
    for name, attribute in schema.attributes.items():
        given = [t.attributes[name] for t in templates if name in t.attributes]
        assert given, f"no template gives the attribute {name}"
        if not attribute.required and name not in one_way_only:
            assert len(given) < len(templates), f"each template gives the attribute {name}"
    for side, formals in (("inputs", schema.inputs), ("outputs", schema.outputs)):
        for i, formal in enumerate(formals):
            if formal.option == type(formal.option).Optional and formal.name not in one_way_only:
                there = [i < len(getattr(t, side)) and present(getattr(t, side)[i]) for t in templates]
                assert any(there), f"no template has the {side[:-1]} {formal.name}"
                assert not all(there), f"each template has the {side[:-1]} {formal.name}"


def present(value) -> bool:
    return value is not None and not (isinstance(value, str) and value == "")


def test_every_row_is_of_an_operator_that_is_translated():
    names = {f"{key[0]}.{key[1]}" if key[0] in CONTRIB_DOMAINS else key[1] for key in TRANSLATED}
    assert {op for op, *_ in CONTRIB_ROWS} <= names
