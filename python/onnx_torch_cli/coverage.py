from __future__ import annotations

from pathlib import Path
from typing import Annotated, Literal

import typer


def coverage(
    format: Annotated[
        Literal["text", "markdown", "html"],
        typer.Option(help="Plain text, a Markdown table, or a page that can be searched."),
    ] = "text",
    output: Annotated[Path | None, typer.Option(dir_okay=False, help="Write it here, not to the terminal.")] = None,
) -> None:
    """List the operators that can be run, with their versions."""
    from onnx_torch import operator_coverage

    write = {
        "text": operator_coverage.coverage_text,
        "markdown": operator_coverage.coverage_markdown,
        "html": operator_coverage.coverage_html,
    }
    text = write[format]()
    if output:
        output.write_text(text, encoding="utf-8")
    else:
        print(text, end="")
