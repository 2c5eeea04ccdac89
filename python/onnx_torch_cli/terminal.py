"""What the commands print with."""

from __future__ import annotations

import contextlib
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn
from rich.table import Table
from rich.text import Text

PIPE_WIDTH = 100_000  # nothing is wrapped or cut where no terminal is


def console(stderr: bool = False) -> Console:
    found = Console(stderr=stderr, highlight=False, markup=False, soft_wrap=True)
    if not found.is_terminal:
        found = Console(stderr=stderr, highlight=False, markup=False, soft_wrap=True, width=PIPE_WIDTH)
    return found


def is_mistake(error: Exception) -> bool:
    """Whether an exception tells of the user's model, files or options, and not of a bug."""
    library = sys.modules.get("onnx_torch")
    return isinstance(error, OSError) or (library is not None and isinstance(error, library.Error))


def complain(error: Exception) -> None:
    text = f"{error.filename}: {error.strerror}" if isinstance(error, OSError) and error.filename else str(error)
    console(stderr=True).print(Text.assemble(("error: ", "bold red"), text))


def domains_text(domains: Mapping[str, int]) -> str:
    """Such as "3 nodes of ai.onnx, 2 of com.microsoft"."""
    texts = [f"{count} of {domain}" for domain, count in domains.items()]
    if not texts:
        return "no nodes"
    count, _, rest = texts[0].partition(" ")
    return ", ".join([f"{count} node{'s' * (count != '1')} {rest}", *texts[1:]])


def note(text: str) -> None:
    """Something on the way to the result, which does not get among it."""
    console(stderr=True).print(text)


def table(columns: Sequence[str], rows: Iterable[Sequence[object]], title: str = "") -> None:
    """Prints a table; columns whose name begins with ">" are numbers."""
    shown = Table(title=title or None, title_justify="left", box=None, pad_edge=False, header_style="bold")
    for column in columns:
        shown.add_column(column.lstrip(">"), justify="right" if column.startswith(">") else "left", overflow="fold")
    for row in rows:
        shown.add_row(*(Text(str(cell)) for cell in row))
    console().print(shown, soft_wrap=False)


@contextlib.contextmanager
def working(doing: str) -> Iterator[None]:
    """Tells on a terminal what goes on meanwhile."""
    with console(stderr=True).status(doing):
        yield


@contextlib.contextmanager
def progress(doing: str) -> Iterator[Callable[[int, int], None]]:
    """A function that takes how much is done, and of how much; it moves a bar on a terminal, and else does nothing."""
    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn())
    where = console(stderr=True)
    with Progress(*columns, console=where, disable=not where.is_terminal, transient=True) as bar:
        task = bar.add_task(doing, total=None)
        yield lambda done, of: bar.update(task, completed=done, total=of)
