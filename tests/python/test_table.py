"""The translation table against the schemas of the installed onnx package."""

from collections import defaultdict

import onnx
import pytest

from onnx_torch import _C

TABLE = {(domain, op): (since, reviewed_to) for domain, op, since, reviewed_to in _C.translation_table()}


def _versions() -> dict[tuple[str, str], list[int]]:
    versions = defaultdict(list)
    for schema in onnx.defs.get_all_schemas_with_history():
        versions["" if schema.domain == "ai.onnx" else schema.domain, schema.name].append(schema.since_version)
    assert len(versions) == 227 and sum(map(len, versions.values())) == 659
    for key in _C.experimental_operators():
        versions[key].append(1)
    return {key: sorted(found) for key, found in versions.items()}


VERSIONS = _versions()
NEWEST = {key: found[-1] for key, found in VERSIONS.items()}


def test_every_operator_is_there():
    missing = sorted(key for key in NEWEST if key not in TABLE)
    assert not missing, f"no translator for {missing}"


@pytest.mark.parametrize("key", sorted(TABLE), ids=lambda key: ".".join(filter(None, key)))
def test_the_newest_version_is_reviewed(key):
    """A new release of onnx fails here, and says what is new."""
    since, reviewed_to = TABLE[key]
    assert reviewed_to == NEWEST[key], f"read {key[1]}-{NEWEST[key]} and raise reviewed_to, or add a translator"
    assert set(since) <= set(VERSIONS[key])
