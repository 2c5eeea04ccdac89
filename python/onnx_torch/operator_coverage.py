"""The operators, and their versions, that can be run."""

from __future__ import annotations

import html
from dataclasses import dataclass

import onnx

from . import _C


@dataclass(frozen=True)
class OperatorVersion:
    """One version of an operator of the ONNX standard."""

    domain: str  #: empty for the standard's main one
    op_type: str
    since_version: int
    deprecated: bool
    how: str  #: "table": it has a translator; "function body": its body is translated; empty: it cannot be run


def coverage() -> list[OperatorVersion]:
    """Lists every version of every operator that the standard has had.

    >>> [v.since_version for v in coverage() if (v.domain, v.op_type) == ("", "Relu") and v.how]
    [1, 6, 13, 14]
    """
    return [OperatorVersion(*row) for row in _C.operator_versions()]


def coverage_text() -> str:
    """Writes `coverage` as plain text, an operator a line."""
    rows = [(_name(*key), _versions(found)) for key, found in _by_operator().items()]
    width = max(len(name) for name, _ in rows)
    return "\n".join([_summary(), "", *(f"{name:{width}}  {versions}" for name, versions in rows)]) + "\n"


def coverage_markdown() -> str:
    """Writes `coverage` as a Markdown table."""
    rows = [f"| {_name(*key)} | {_versions(found)} |" for key, found in _by_operator().items()]
    return "\n".join(["# Operators", "", _summary(), "", "| operator | since versions |", "|---|---|", *rows]) + "\n"


def coverage_html() -> str:
    """Writes `coverage` as a page to search, which needs no network; ``#word`` in its address searches, too."""
    rows = "\n".join(
        f'<tr><td><a href="{_reference(*key)}">{html.escape(key[1])}</a></td>'
        f"<td>{html.escape(key[0] or 'ai.onnx')}</td><td>{html.escape(_versions(found))}</td></tr>"
        for key, found in _by_operator().items()
    )
    return _PAGE.replace("{summary}", html.escape(_summary())).replace("{rows}", rows)


def _by_operator() -> dict[tuple[str, str], list[OperatorVersion]]:
    operators: dict[tuple[str, str], list[OperatorVersion]] = {}
    for version in sorted(coverage(), key=lambda v: (v.domain, v.op_type, v.since_version)):
        operators.setdefault((version.domain, version.op_type), []).append(version)
    return operators


def _summary() -> str:
    versions = coverage()
    ready = [version for version in versions if version.how]
    operators = len({(version.domain, version.op_type) for version in versions})
    return (
        f"{len(ready)} of {len(versions)} versions of {operators} operators can be run "
        f"(the schemas of onnx {onnx.__version__}). A version holds up to the next."
    )


def _name(domain: str, op_type: str) -> str:
    return f"{domain}.{op_type}" if domain else op_type


def _versions(versions: list[OperatorVersion]) -> str:
    """Lists versions, such as "1, 6, 13 (function body), 14 (not supported)"."""
    notes = {"table": "", "function body": " (function body)", "": " (not supported)"}
    return ", ".join(f"{v.since_version}{' (deprecated)' * v.deprecated}{notes[v.how]}" for v in versions)


def _reference(domain: str, op_type: str) -> str:
    return f"https://onnx.ai/onnx/operators/onnx_{domain.replace('.', '')}_{op_type}.html"


_PAGE = """<!doctype html>
<html lang="en"><meta charset="utf-8"><meta name="viewport" content="width=device-width">
<title>Operators that onnx_torch runs</title>
<style>
  body { font: 15px sans-serif; margin: 2em auto; max-width: 60em; padding: 0 1em }
  input { font: inherit; width: 100%; padding: .4em; box-sizing: border-box }
  table { width: 100%; border-collapse: collapse }
  td, th { text-align: left; padding: .25em .5em; border-bottom: 1px solid #ddd; vertical-align: top }
</style>
<h1>Operators that onnx_torch runs</h1>
<p>{summary}</p>
<input id="search" type="search" placeholder="Search: an operator, a domain, a version, several words" autofocus>
<p id="count"></p>
<table><thead><tr><th>operator<th>domain<th>since versions</thead><tbody id="rows">
{rows}
</tbody></table>
<script>
  const search = document.getElementById("search"), count = document.getElementById("count");
  const rows = [...document.querySelectorAll("#rows tr")];
  function filter() {
    const words = search.value.toLowerCase().split(/\\s+/).filter(word => word);
    let shown = 0;
    for (const row of rows) {
      const text = row.textContent.toLowerCase();
      row.hidden = !words.every(word => text.includes(word));
      shown += !row.hidden;
    }
    count.textContent = `${shown} of ${rows.length} operators`;
  }
  function fromAddress() { search.value = decodeURIComponent(location.hash.slice(1)); filter(); }
  search.addEventListener("input", filter);
  addEventListener("hashchange", fromAddress);
  fromAddress();
</script>
</html>
"""
