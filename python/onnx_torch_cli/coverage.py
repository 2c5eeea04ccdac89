from __future__ import annotations

from enum import Enum
from pathlib import Path
from typing import Annotated

import typer


class Format(str, Enum):
    text = "text"
    markdown = "markdown"
    html = "html"


def coverage(
    format: Annotated[
        Format, typer.Option(help="Plain text, a Markdown table, or a page that can be searched.")
    ] = Format.text,
    output: Annotated[Path | None, typer.Option(dir_okay=False, help="Write it here, not to the terminal.")] = None,
) -> None:
    """List the operators that can be run, with their versions."""
    from onnx_torch import operator_coverage

    text = {
        Format.text: operator_coverage.coverage_text,
        Format.markdown: operator_coverage.coverage_markdown,
        Format.html: operator_coverage.coverage_html,
    }[format]()
    if output:
        output.write_text(text, encoding="utf-8")
    else:
        print(text, end="")
