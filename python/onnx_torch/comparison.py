"""Two engines on one model, and the first node where they differ."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import onnx

from ._engines import other_engine
from ._engines.node_by_node import NodeByNode
from ._models.extraction import node_inputs
from ._models.files import directory_of, read_model, with_given_data
from ._models.fixed_shapes import FixedShapes
from ._models.given import External, Model
from ._models.random_feeds import random_inputs
from ._models.trust import Trust, trust_of
from ._progress import Progress
from .errors import InputError
from .prepared_model import prepare

# An engine takes the model, its inputs and names of values of the main graph; it returns those values that it has.
Engine = Callable[[onnx.ModelProto, dict[str, Any], list[str]], Mapping[str, Any]]
ENGINES = ("onnx_torch", "onnx_torch@DEVICE", "unoptimised", "unoptimised@DEVICE", *other_engine.ENGINES)


@dataclass(frozen=True)
class Deviation:
    """The distance between two values."""

    count: int  #: the number of elements that are further apart than the tolerance
    size: int  #: the number of all elements
    max_abs: float = 0.0
    max_rel: float = 0.0  #: relative to the larger of the two
    reason: str = ""  #: the difference that rules out comparing elements, such as that of shapes

    @property
    def differs(self) -> bool:
        return bool(self.count or self.reason)

    def __str__(self) -> str:
        if self.reason:
            return self.reason
        sizes = f", by up to {self.max_abs:.3g} (relative {self.max_rel:.3g})" if self.max_abs else ""
        return f"{self.count} of {self.size} elements differ{sizes}"


@dataclass(frozen=True)
class ComparedInput:
    """An input of the node that differs."""

    name: str
    type: str
    deviation: Deviation | None  #: none where it was not compared: a weight, or a value that one engine does not have


@dataclass(frozen=True)
class Difference:
    """The first node, in the order of the model, whose output differs."""

    number: int  #: the index of the node in the main graph
    op_type: str
    node_name: str
    value: str  #: the name of the output that differs
    deviation: Deviation
    inputs: tuple[ComparedInput, ...]
    only_whole: bool = False  #: it differs only where no inner value is asked for, as when an engine fuses nodes

    @property
    def passed_on(self) -> bool:
        """True where an input differs as much as the output, though within the tolerance."""
        apart = (input.deviation.max_abs for input in self.inputs if input.deviation is not None)
        return 0 < self.deviation.max_abs <= max(apart, default=0.0)

    @property
    def inputs_agree(self) -> bool:
        """True where all inputs are the same to the last bit, so that the node alone is to blame."""
        return all(input.deviation is None or not input.deviation.max_abs for input in self.inputs)


@dataclass(frozen=True)
class Comparison:
    """The result of `compare`; true where the engines agree."""

    engines: tuple[str, str]
    compared: int  #: the number of values that were the same, within the tolerance
    difference: Difference | None
    not_compared: tuple[str, ...]  #: values that one of the engines does not have

    def __bool__(self) -> bool:
        return self.difference is None

    def __str__(self) -> str:
        one, other = self.engines
        left_out = f"\nnot compared: {', '.join(self.not_compared)}" if self.not_compared else ""
        if self.difference is None:
            return f"{one} and {other} agree on {self.compared} values{left_out}"
        d = self.difference
        name = f' "{d.node_name}"' if d.node_name else ""
        lines = [f'{one} and {other} differ first in node {d.number}, {d.op_type}{name}, in its output "{d.value}":']
        lines.append(f"  {d.deviation}")
        for input in d.inputs:
            if input.deviation is None:
                state = ""
            elif not input.deviation.max_abs:
                state = ", the same in both"
            else:
                state = f", the same but for {input.deviation.max_abs:.3g} (relative {input.deviation.max_rel:.3g})"
            lines.append(f'  input "{input.name}": {input.type}{state}')
        if d.passed_on:
            lines.append(
                "  its inputs differ as much: it may only pass on what rounding adds up; a larger atol looks further"
            )
        if d.only_whole:
            lines.append("  only where no inner value is asked for: one of them treats several nodes as one")
        lines.append(f"{self.compared} values before it agree{left_out}")
        return "\n".join(lines)


def compare(
    model: Model,
    inputs: Mapping[str, Any] | Sequence[Any] | None = None,
    engines: Sequence[str | Engine] = ("onnx_torch", "reference"),
    *,
    rtol: float = 1e-3,
    atol: float = 1e-5,
    seed: int = 0,
    shapes: FixedShapes | None = None,
    base_dir: str | os.PathLike[str] | None = None,
    external: External | None = None,
    limits: Mapping[str, float] | None = None,
    allow_aten: str = "checked",
    links: str = "follow",
    at_once: int = 256,
    progress: Progress | None = None,
) -> Comparison:
    """Runs a model with two engines and finds the first node whose output differs.

    The engines are "onnx_torch"; "unoptimised", which is onnx_torch with each node translated and run on its own;
    "reference", ONNX's own implementation, and "onnxruntime", each in a process of its own; and functions that get the
    model, its inputs and names of values, and return the values by name. "onnx_torch@cuda:0" is on another device.

    Args:
        model: a ModelProto, its serialized bytes, or a path.
        inputs: the inputs by name, or a list; those that are missing are random.
        engines: two of them.
        rtol: floats a, b are the same where ``|a - b| <= atol + rtol * max(|b|, m)``, where m is the mean of ``|b|`` in
            the tensor; everything else must be equal.
        atol: see rtol.
        seed: the seed of random inputs.
        shapes: sizes of symbolic dimensions.
        base_dir: the directory of the model's external data; for a path, the directory of the file by default.
        external: external data from memory, as `prepare` takes it.
        limits: on what onnx_torch does, as `prepare` takes them (of "unoptimised", on each node); the other engines
            have none. Likewise ``allow_aten`` and ``links``.
        at_once: how many values to keep at a time; each part runs the model again.
        progress: called with the number of values compared and of all.

    >>> from onnx import parser
    >>> model = parser.parse_model('''<ir_version: 10, opset_import: ["": 21]>
    ...     net (float[2] x) => (float[2] z) { y = Relu(x)  z = Neg(y) }''')
    >>> print(compare(model))
    onnx_torch and reference agree on 2 values
    """
    if len(engines) != 2:
        raise InputError(f"compare takes two engines, not {len(engines)}")
    proto = with_given_data(read_model(model), external)
    feeds = random_inputs(proto, seed, shapes, inputs)
    names = (_name(engines[0]), _name(engines[1]))
    walk = _Walk(proto.graph, feeds, rtol, atol)
    trust = trust_of(limits, allow_aten, links)
    with contextlib.ExitStack() as stack:
        directory = directory_of(model, base_dir)
        one, other = (stack.enter_context(_engine(e, proto, directory, shapes, trust)) for e in engines)
        difference = None
        for start in range(0, len(walk.values), at_once):
            part = walk.values[start : start + at_once]
            wanted = [name for _, name in part]
            difference = walk.first_difference(part, one(proto, feeds, wanted), other(proto, feeds, wanted))
            if progress:
                progress(min(start + at_once, len(walk.values)), len(walk.values))
            if difference:
                break
        else:
            wanted = [name for _, name in walk.outputs]
            ours, theirs = one(proto, feeds, wanted), other(proto, feeds, wanted)
            difference = walk.first_difference(walk.outputs, ours, theirs, again=True)
    return Comparison(names, walk.agreed, difference, tuple(walk.not_compared))


class _Walk:
    """A walk through the values of a graph in order, which keeps how far each was apart."""

    def __init__(self, graph: onnx.GraphProto, feeds: dict[str, Any], rtol: float, atol: float) -> None:
        self.graph = graph
        self.values = [(i, name) for i, node in enumerate(graph.node) for name in node.output if name]
        outputs = {output.name for output in graph.output}
        self.outputs = [(i, name) for i, name in self.values if name in outputs]
        self.agreed = 0
        self.not_compared: list[str] = []
        self._tolerance = rtol, atol
        self._seen: dict[str, ComparedInput] = {}
        for tensor in graph.initializer:
            kind = onnx.helper.tensor_dtype_to_string(tensor.data_type).removeprefix("TensorProto.").lower()
            self._seen[tensor.name] = ComparedInput(tensor.name, f"{kind} {list(tensor.dims)}, a weight", None)
        for name, value in feeds.items():
            self._seen[name] = ComparedInput(name, describe(value), Deviation(0, 0))

    def first_difference(
        self, part: list[tuple[int, str]], ours: Mapping[str, Any], theirs: Mapping[str, Any], again: bool = False
    ) -> Difference | None:
        """Finds the first of some values that differs; ``again`` where inner values were compared before."""
        for number, name in part:
            if name not in ours or name not in theirs:
                self.not_compared += [] if again else [name]
                continue
            found = deviation(ours[name], theirs[name], *self._tolerance)
            if found.differs:
                return self._difference(number, name, found, again)
            if not again:
                self.agreed += 1
                self._seen[name] = ComparedInput(name, describe(ours[name]), found)
        return None

    def _difference(self, number: int, name: str, found: Deviation, only_whole: bool) -> Difference:
        node = self.graph.node[number]
        inputs = dict.fromkeys(node_inputs(node))
        compared = (self._seen.get(input, ComparedInput(input, "not compared", None)) for input in inputs)
        return Difference(number, node.op_type, node.name, name, found, tuple(compared), only_whole)


def deviation(one: Any, other: Any, rtol: float, atol: float) -> Deviation:
    """Measures how far two values of any ONNX type are apart."""
    if one is None or other is None:
        return Deviation(0, 1) if one is other else Deviation(1, 1, reason="it is absent in one of them")
    if isinstance(one, (list, tuple)) or isinstance(other, (list, tuple)):
        if not isinstance(one, (list, tuple)) or not isinstance(other, (list, tuple)) or len(one) != len(other):
            return Deviation(1, 1, reason=f"{describe(one)} against {describe(other)}")
        return _together([deviation(a, b, rtol, atol) for a, b in zip(one, other, strict=True)])
    if isinstance(one, dict) and isinstance(other, dict):
        if list(one) != list(other):
            return Deviation(1, 1, reason="the keys of the maps differ")
        return _together([deviation(one[key], other[key], rtol, atol) for key in one])
    return _of_arrays(np.asarray(one), np.asarray(other), rtol, atol)


def _together(parts: list[Deviation]) -> Deviation:
    return Deviation(
        sum(part.count for part in parts),
        sum(part.size for part in parts),
        max((part.max_abs for part in parts), default=0.0),
        max((part.max_rel for part in parts), default=0.0),
        next((part.reason for part in parts if part.reason), ""),
    )


def _of_arrays(a: np.ndarray, b: np.ndarray, rtol: float, atol: float) -> Deviation:
    texts = a.dtype.kind in "OUS" and b.dtype.kind in "OUS"
    if a.shape != b.shape or (a.dtype != b.dtype and not texts):
        return Deviation(a.size, a.size, reason=f"{describe(a)} against {describe(b)}")
    if texts or a.dtype.kind == "b":
        return Deviation(int(np.sum(a.astype(object) != b.astype(object))), a.size)
    if np.issubdtype(a.dtype, np.integer) or "int" in a.dtype.name:  # ml_dtypes' are no subtypes
        outside = a != b
        if not outside.any():
            return Deviation(0, a.size)
        wide: Any = object  # Python's integers, which do not overflow
        a, b = a[outside].astype(wide), b[outside].astype(wide)
        apart = np.abs(a - b).astype(np.float64)
    else:
        wide = np.complex128 if a.dtype.kind == "c" else np.float64
        a, b = a.astype(wide), b.astype(wide)
        with np.errstate(invalid="ignore"):
            apart = np.where((a == b) | (np.isnan(a) & np.isnan(b)), 0, np.abs(a - b))
            sizes = np.abs(np.where(np.isfinite(b), b, 0))
            # The rest of large terms that cancel out is as inexact as they were.
            outside = ~(apart <= atol + rtol * np.maximum(sizes, sizes.mean() if b.size else 0))
    if not apart.any():
        return Deviation(0, a.size)
    with np.errstate(invalid="ignore", divide="ignore"):
        relative = apart / np.maximum(np.abs(a), np.abs(b)).astype(np.float64)
    return Deviation(int(outside.sum()), outside.size, _largest(apart), _largest(relative[apart != 0]))


def _largest(array: np.ndarray) -> float:
    """Returns the largest element; a NaN, which only one side has, counts as infinite."""
    return float(np.max(np.where(np.isnan(array), np.inf, array), initial=0.0))


def describe(value: Any) -> str:
    """Describes a value's type and shape in words."""
    if value is None:
        return "absent"
    if isinstance(value, (list, tuple)):
        return f"sequence of {len(value)}"
    if isinstance(value, dict):
        return f"map of {len(value)}"
    array = np.asarray(value)
    kind = "string" if array.dtype.kind in "OUS" else array.dtype
    return f"{kind} {list(array.shape)}"


# --- Engines ----------------------------------------------------------------------------------------------------------


@contextlib.contextmanager
def _engine(
    engine: str | Engine,
    model: onnx.ModelProto,
    directory: str,
    shapes: FixedShapes | None,
    trust: Trust,
) -> Iterator[Engine]:
    if callable(engine):
        yield engine
        return
    name, _, device = engine.partition("@")
    if name == "onnx_torch":
        rep = prepare(model, device or "CPU", base_dir=directory, shapes=shapes, **trust)
        yield lambda _, feeds, names: rep.intermediates(feeds, names)
    elif name == "unoptimised":
        nodes = NodeByNode(model, device or "CPU", directory, trust)
        yield lambda _, feeds, names: nodes.values(feeds, names)
    elif name in other_engine.ENGINES and not device:
        with other_engine.OtherEngine(name, model.SerializeToString(), directory) as process:
            yield lambda _, feeds, names: process.values(feeds, names)
    else:
        raise InputError(f'there is no engine "{engine}"; there are {", ".join(ENGINES)}')


def _name(engine: str | Engine) -> str:
    return engine if isinstance(engine, str) else getattr(engine, "__name__", repr(engine))
