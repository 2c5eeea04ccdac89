"""What an exported module calls the parts of a model."""

from __future__ import annotations

import json
import keyword
import re
from collections.abc import Iterable
from dataclasses import asdict, dataclass
from typing import Any

import torch

from .python_code import WORDS

__all__ = ["Names", "names_of", "torch_names"]

# What modules have already, and what TorchScript or the Python code of `to_module` means something by.
_ATTRIBUTES = frozenset(
    [*keyword.kwlist, *dir(torch.nn.Module()), *dir(torch.jit._script.RecursiveScriptModule)]
    + "_c _concrete_type _constants _initializing onnx_names torch".split()
)
_ARGUMENTS = WORDS.union(
    keyword.kwlist, "CONSTANTS __torch__ aten attribute fork infj nanj prim self uninitialized".split()
)
_DUNDER = re.compile(r"__.*__")


@dataclass(frozen=True)
class Names:
    """Where the parts of a model are found in the module made of it.

    Attributes:
        parameters: for each initializer that the graph reads, its key in the module's ``state_dict``.
        inputs: for each input, the argument of ``forward``.
        outputs: the outputs, in the order in which ``forward`` returns them.
        custom_operators: the operators that torch itself lacks, without which the module does not load.
    """

    parameters: dict[str, str]
    inputs: dict[str, str]
    outputs: list[str]
    custom_operators: list[str]

    def to_json(self) -> str:
        return json.dumps(asdict(self))


def names_of(module: torch.nn.Module) -> Names:
    """The names of a module that `to_torchscript` or `to_module` made, also after it was saved and loaded."""
    record: Any = getattr(module, "onnx_names", None)
    if not isinstance(record, str):
        raise TypeError("the module was not made by onnx_torch")
    return Names(**json.loads(record))


def torch_names(names: Iterable[str], *, arguments: bool = False) -> dict[str, str]:
    """Names for PyTorch, all different, by ONNX name; most are the same.

    A parameter's name is parted by its dots into the names of nested modules. What TorchScript cannot save changes:

    - in a part, each quote, backslash, control or non-ASCII character becomes ``_``, and so does an empty part;
    - in an argument, so does each character that no identifier holds, with a ``_`` in front of a leading digit;
    - a keyword, a word of TorchScript, a bare ``_`` or the name of an attribute or method of modules gets a ``_``
      at its end;
    - so does, until it is free, what another name has taken: of ``a`` and ``a.b`` it is ``a``, of two names that become
      equal it is the one that changes anyway, or else the later one.

    >>> torch_names(["layers.0.weight", "class", "a", "a.b"])
    {'layers.0.weight': 'layers.0.weight', 'class': 'class_', 'a': 'a_', 'a.b': 'a.b'}
    >>> torch_names(["x", "input:0", "0"], arguments=True)
    {'x': 'x', 'input:0': 'input_0', '0': '_0'}
    """
    paths = {name: _argument(name) if arguments else _parts(name) for name in names}
    leaves: set[tuple[str, ...]] = set()
    modules: set[tuple[str, ...]] = set()
    # Names that need no change first, and of these the longer paths.
    for name in sorted(paths, key=lambda name: (".".join(paths[name]) != name, -len(paths[name]))):
        path = paths[name]
        while clash := _clash(path, leaves, modules):
            path = (*path[: clash - 1], path[clash - 1] + "_", *path[clash:])
        leaves.add(path)
        modules.update(path[:i] for i in range(1, len(path)))
        paths[name] = path
    return {name: ".".join(path) for name, path in paths.items()}


def _argument(name: str) -> tuple[str, ...]:
    cleaned = re.sub(r"\W", "_", name, flags=re.ASCII) or "_"
    return (_allowed("_" + cleaned if cleaned[0].isdigit() else cleaned, _ARGUMENTS),)


def _parts(name: str) -> tuple[str, ...]:
    return tuple(_allowed(re.sub(r"[^ -~]|[\"'\\]", "_", part) or "_", _ATTRIBUTES) for part in name.split("."))


def _allowed(word: str, reserved: frozenset[str]) -> str:
    return word + "_" if word in reserved or word == "_" or _DUNDER.fullmatch(word) else word


def _clash(path: tuple[str, ...], leaves: set[tuple[str, ...]], modules: set[tuple[str, ...]]) -> int:
    """The length of the first part of the path that cannot be what it has to be; 0 where all can."""
    for length in range(1, len(path)):
        if path[:length] in leaves:
            return length
    return len(path) if path in leaves or path in modules else 0
