"""A model that is measured: how it is made, and the folder that keeps it."""

from __future__ import annotations

import functools
import hashlib
import inspect
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Literal

import numpy as np

from ..machine import version

if TYPE_CHECKING:  # torch is imported by those who make models
    import torch

Feeds = dict[str, np.ndarray]
Exporter = Literal["dynamo", "torchscript"]


@dataclass(frozen=True)
class Network:
    """A torch module and the inputs it is run with.

    Attributes:
        inputs: one or more sets, run in turn; in the order of the parameters of ``forward``.
        dynamic: the axes that the export leaves open, with their names, for each input.
    """

    module: torch.nn.Module
    inputs: Sequence[Mapping[str, torch.Tensor]]
    dynamic: Mapping[str, Mapping[int, str]] = field(default_factory=dict)

    def feeds(self) -> list[Feeds]:
        return [{name: value.numpy() for name, value in one.items()} for one in self.inputs]


@dataclass(frozen=True)
class Case:
    """One row of the benchmark.

    Attributes:
        write: writes the model into a file and returns the inputs to run it with, one or more sets.
        network: makes the module that the model was exported from, with the same weights each time.
        tolerance: how far outputs of two engines may differ, as a part of an output's largest element.
        bound: an engine that tells what the hardware allows.
        source: the case whose model this one's was made of, which is measured beside it.
    """

    name: str
    group: str
    write: Callable[[Path], list[Feeds]]
    network: Callable[[], Network] | None = None
    tolerance: float = 1e-3
    bound: str = ""
    source: Case | None = None

    def make(self, folder: Path) -> None:
        """Writes the model and its inputs, unless they are there already."""
        if self.is_made(folder):
            return
        folder.mkdir(parents=True, exist_ok=True)
        if self.source:
            self.source.make(folder)
        key_file(folder, self.name).unlink(missing_ok=True)
        feeds = self.write(model_file(folder, self.name))
        sets = {f"{number}/{name}": value for number, one in enumerate(feeds) for name, value in one.items()}
        np.savez(inputs_file(folder, self.name), **sets)
        key_file(folder, self.name).write_text(self._key())

    def is_made(self, folder: Path) -> bool:
        key = key_file(folder, self.name)
        return key.exists() and key.read_text() == self._key() and (not self.source or self.source.is_made(folder))

    def _key(self) -> str:
        """Gives a key that tells models apart that were made by other code or other packages."""
        texts = [Path(source).read_text() for source in sorted(_sources(self.write) | {__file__})]
        if self.source:
            texts.append(self.source._key())
        packages = ("torch", "torchvision", "transformers", "onnxscript", "onnxruntime", "scikit-learn", "skl2onnx")
        return hashlib.sha256("\n".join([*texts, *map(version, packages)]).encode()).hexdigest()


def _sources(maker: object) -> set[str]:
    """Finds the files of a function, or of all functions that are bound in a partial one."""
    if isinstance(maker, functools.partial):
        return set().union(*map(_sources, (maker.func, *maker.args, *maker.keywords.values())))
    return {inspect.getfile(maker)} if inspect.isfunction(maker) else set()


def model_file(folder: Path, name: str) -> Path:
    return folder / f"{name}.onnx"


def inputs_file(folder: Path, name: str) -> Path:
    return folder / f"{name}.npz"


def key_file(folder: Path, name: str) -> Path:
    return folder / f"{name}.key"


def read_inputs(folder: Path, name: str) -> list[Feeds]:
    """Reads the sets of inputs that `Case.make` wrote."""
    sets: dict[str, Feeds] = {}
    with np.load(inputs_file(folder, name)) as file:
        for key in file.files:
            number, _, input_name = key.partition("/")
            sets.setdefault(number, {})[input_name] = file[key]
    return list(sets.values())
