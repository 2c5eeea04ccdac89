"""The command line, ``onnx-torch``: a thin layer over the functions of `onnx_torch`.

A command is a function in a module of the same name, which is listed in `COMMANDS`. What takes long to import,
`onnx_torch` above all, is imported inside that function, so that ``--help`` is quick.
"""

from __future__ import annotations

import importlib
import sys

import typer

from .terminal import complain, is_mistake

COMMANDS = tuple(
    "run generate info check convert compare profile show extract optimize bench batch coverage selftest".split()
)

HELP = """Run ONNX models on LibTorch, and find out about them.

Exit codes: 0 all is well; 1 the answer is no (`check` found problems, `compare` and `selftest` a difference); 2 a
mistake in the call, or a model that cannot be read, prepared or run.
"""


def _version(wanted: bool) -> None:
    if wanted:
        import onnx_torch

        print(f"onnx_torch {onnx_torch.__version__}")
        raise typer.Exit


def _top(
    version: bool = typer.Option(False, "--version", callback=_version, is_eager=True, help="Print the version."),
) -> None:
    pass


def app() -> typer.Typer:
    """All commands."""
    top = typer.Typer(
        name="onnx-torch",
        help=HELP,
        no_args_is_help=True,
        add_completion=False,
        pretty_exceptions_enable=False,
        context_settings={"help_option_names": ["-h", "--help"]},
    )
    top.callback()(_top)
    for name in COMMANDS:
        top.command(name)(getattr(importlib.import_module(f".{name}", __name__), name))
    return top


def main() -> None:
    """The entry point. A user's mistake is a message; any other exception is our bug, and keeps its stack trace."""
    try:
        app()(prog_name="onnx-torch")
    except Exception as error:
        if not is_mistake(error):
            raise
        complain(error)
        sys.exit(2)
