"""Every version of every operator in the schema history of the installed onnx is in the table, and reviewed.

A release of onnx that brings a version the table does not know fails here, and says which.
"""

import onnx
import pytest

from onnx_torch import _C
from type_matrix.cells import contrib_schemas

TABLE = {(domain, op): (since, reviewed_to) for domain, op, since, reviewed_to in _C.translation_table()}
SCHEMAS = sorted(
    ("" if schema.domain == "ai.onnx" else schema.domain, schema.name, schema.since_version)
    for schema in onnx.defs.get_all_schemas_with_history()
)
EXPERIMENTAL = [(domain, op, 1) for domain, op in _C.experimental_operators()]


def version_name(schema):
    domain, op, version = schema
    return ".".join(filter(None, [domain, f"{op}-{version}"]))


@pytest.mark.parametrize("schema", SCHEMAS, ids=version_name)
def test_operator_version(schema):
    domain, op, version = schema
    assert (domain, op) in TABLE, f"{version_name(schema)} is new: it has no translator"
    since, reviewed_to = TABLE[domain, op]
    assert min(since) <= version, f"{version_name(schema)} is older than the first translator, of version {min(since)}"
    assert version <= reviewed_to, f"{version_name(schema)} is new: read it, and add a translator or raise reviewed_to"


@pytest.mark.parametrize("key", sorted(TABLE), ids=lambda key: ".".join(filter(None, key)))
def test_the_table_names_versions_that_exist(key):
    since, reviewed_to = TABLE[key]
    versions = {version for *name, version in [*SCHEMAS, *EXPERIMENTAL, *contrib_schemas()] if tuple(name) == key}
    assert {*since, reviewed_to} <= versions


def test_the_history_is_whole():
    if onnx.__version__ == "1.23.2":
        assert len(SCHEMAS) == 659
        assert len({(domain, op) for domain, op, _ in SCHEMAS}) == 227
