"""The marks on objects that tell how far onnxruntime's names are served; docs/onnxruntime.md is made from them.

A name that is only accepted, or refused, is one line in a class or a module: ``name = ignored(why)`` or
``name = refused(why)``; `absent_class` makes a class that cannot be made.
"""

from __future__ import annotations

import enum
from collections.abc import Callable
from typing import Any, NoReturn, TypeVar

from ._errors import NotImplemented as OrtNotImplemented

MARK = "__onnxruntime__"
T = TypeVar("T")


class Status(enum.Enum):
    """The ways in which a name of onnxruntime is served."""

    WORKS = "works"
    IGNORED = "accepted and ignored"
    REFUSED = "refused"


Mark = tuple[Status, str]  # a status, and a note about it


def works(note: str, status: Status = Status.WORKS) -> Callable[[T], T]:
    """Marks a function or a class; one that works is marked only where it differs a little from onnxruntime."""

    def mark(target: T) -> T:
        setattr(target, MARK, (status, note))
        return target

    return mark


class _Unserved:
    """A function, method or property that does nothing, or raises."""

    def __init__(self, status: Status, note: str, result: Callable[[], Any], name: str, package: str) -> None:
        setattr(self, MARK, (status, note))
        self._note, self._result, self.__name__, self._package = note, result, name, package
        self.__doc__ = f"{status.value}: {note}"

    def __set_name__(self, owner: type, name: str) -> None:
        self.__name__ = f"{owner.__name__}.{name}"

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        if getattr(self, MARK)[0] is Status.REFUSED:
            raise OrtNotImplemented(f"onnx_torch does not have {self._package}'s {self.__name__}: {self._note}")
        return self._result()


def ignored(note: str, result: Callable[[], Any] = lambda: None) -> Any:
    """Makes a function that takes anything and changes nothing; `result` makes what it returns."""
    return _Unserved(Status.IGNORED, note, result, "", "onnxruntime")


def refused(note: str, name: str = "", package: str = "onnxruntime") -> Any:
    """Makes a function that raises, and says why; `name` is for those outside a class."""
    return _Unserved(Status.REFUSED, note, lambda: None, name, package)


class _AbsentClass(type):
    def __call__(cls, *args: Any, **kwargs: Any) -> NoReturn:
        refused(getattr(cls, MARK)[1], cls.__name__, cls.__module__)()
        raise AssertionError


def absent_class(name: str, note: str, *static_methods: str, package: str = "onnxruntime") -> Any:
    """Makes a class for type hints and `isinstance`, of which there are no instances."""
    made = _AbsentClass(name, (), {method: refused(note, package=package) for method in static_methods})
    made.__module__, made.__doc__ = package, f"refused: {note}"
    setattr(made, MARK, (Status.REFUSED, note))
    return made


def mark_of(target: Any) -> Mark:
    """Returns the mark of a class, a function, a property or an option; one without a mark works."""
    inner = getattr(target, "__func__", None) or getattr(target, "fget", None) or target
    return getattr(inner, MARK, (Status.WORKS, ""))


def no_module(name: str, why: str) -> NoReturn:
    """Raises the ImportError of a submodule that has no meaning here."""
    raise ImportError(f"onnx_torch stands in for onnxruntime here and has no onnxruntime.{name}: {why}")
