"""The values that a node of ONNX makes of its operands, and how far a run in its own element type may be from them.

A node is computed by ``onnx.reference`` in float64, for every set of inputs. It is unsuitable where it cannot be
computed, is too large, or depends on how its operands were rounded.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import ml_dtypes
import numpy as np
import onnx
from onnx import AttributeProto, GraphProto, NodeProto, TensorProto, helper, numpy_helper
from onnx.reference import ReferenceEvaluator

from exact_operators import EXACT

# The floating element types, with the distance of 1 to the next number.
EPSILON = {
    TensorProto.FLOAT: 2.0**-23,
    TensorProto.DOUBLE: 2.0**-52,
    TensorProto.FLOAT16: 2.0**-10,
    TensorProto.BFLOAT16: 2.0**-7,
}
INTEGERS = (TensorProto.INT64, TensorProto.INT32, TensorProto.UINT8, TensorProto.INT8)
LARGEST = 1e4  # the largest magnitude of an element: a float16 holds it
MOST_ELEMENTS = 5000
OPSETS = (18, 21, 23)  # the operators below have the same inputs in all of them
RUNS = 2  # sets of inputs, which differ in their open sizes and in their elements


class Unsuitable(Exception):
    """A node that a rule proposes cannot be computed, or not well."""


@dataclass(frozen=True)
class Known:
    """A value in one run, floats in float64, and how far a run may be from it."""

    array: np.ndarray
    error: float = 0.0

    @property
    def largest(self) -> float:
        return float(np.abs(self.array).max(initial=0)) if self.array.dtype.kind == "f" else 0.0


@dataclass(frozen=True)
class Value:
    name: str
    element: int
    runs: tuple[Known, ...]

    @property
    def shapes(self) -> list[tuple[int, ...]]:
        return [known.array.shape for known in self.runs]

    @property
    def rank(self) -> int:
        return self.runs[0].array.ndim

    @property
    def floating(self) -> bool:
        return self.element in EPSILON

    def fixed(self, axis: int) -> int | None:
        """Gives a dimension's size, if it is the same in all runs."""
        sizes = {shape[axis] for shape in self.shapes}
        return sizes.pop() if len(sizes) == 1 else None

    def like(self, other: Value) -> bool:
        return self.element == other.element and self.shapes == other.shapes


def numpy_type(element: int) -> np.dtype:
    return np.dtype(ml_dtypes.bfloat16) if element == TensorProto.BFLOAT16 else helper.tensor_dtype_to_np_dtype(element)


def as_fed(value: Value, run: int) -> np.ndarray:
    return np.asarray(value.runs[run].array).astype(numpy_type(value.element))


# --- What a node makes of its operands --------------------------------------------------------------------------------


def widen(node: NodeProto) -> NodeProto:
    """Gives the node with float64 for every floating element type."""
    wide = NodeProto()
    wide.CopyFrom(node)
    for attribute in wide.attribute:
        if attribute.name in ("to", "dtype") and attribute.i in EPSILON:
            attribute.i = TensorProto.DOUBLE
        elif attribute.type == AttributeProto.TENSOR and attribute.t.data_type in EPSILON:
            attribute.t.CopyFrom(numpy_helper.from_array(numpy_helper.to_array(attribute.t).astype(np.float64)))
        elif attribute.type == AttributeProto.GRAPH:
            nodes = [widen(inner) for inner in attribute.g.node]
            del attribute.g.node[:]
            attribute.g.node.extend(nodes)
    return wide


def reads(node: NodeProto) -> list[str]:
    """Names what a node takes, and what its subgraphs take from around it."""
    names = {name for name in node.input if name}
    for attribute in node.attribute:
        if attribute.type == AttributeProto.GRAPH:
            names |= free_names(attribute.g)
    return sorted(names)


def free_names(graph: GraphProto) -> set[str]:
    own = {value.name for value in graph.input} | {name for node in graph.node for name in node.output}
    return {name for node in graph.node for name in reads(node)} - own


def evaluator(node: NodeProto, opset: int) -> Callable[[dict[str, np.ndarray]], list[Any]]:
    """Gives a function that computes the outputs of a node by ONNX's reference."""
    names = lambda values: [onnx.ValueInfoProto(name=value) for value in values]
    graph = helper.make_graph([widen(node)], "node", names(reads(node)), names(node.output))
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", opset)])
    reference = ReferenceEvaluator(model, new_ops=EXACT)
    return lambda feeds: reference.run(None, feeds)


def blurred(value: Value, run: int, rounding: float, side: Callable[[Any], Any], flushed: bool) -> np.ndarray:
    """Gives a value as a run may have it: beside the exact one by its error and a relative one, or 0 where it is no
    larger than its error.

    `side` tells, for a shape, how much of these errors is added, from -1 to 1.
    """
    known = value.runs[run]
    if not value.floating:
        return known.array
    near = known.array + known.error * side(known.array.shape) + rounding * known.array * side(known.array.shape)
    return np.where(np.abs(known.array) <= known.error, 0.0, near) if flushed else np.asarray(near)


def inner_roundings(node: NodeProto) -> Iterator[float]:
    """Gives the rounding of each cast in the node's graphs, and in theirs."""
    for inner in (inner for attribute in node.attribute for inner in attribute.g.node):
        if inner.op_type == "Cast":
            yield from (EPSILON[a.i] for a in inner.attribute if a.name == "to" and a.i in EPSILON)
        yield from inner_roundings(inner)


def compute(node: NodeProto, operands: Sequence[Value], opset: int, element: int | None = None) -> list[Value]:
    """Computes what a node gives, with its error: what the operands' errors make of it, and one rounding more."""
    floating = element or next((value.element for value in operands if value.floating), TensorProto.FLOAT)
    rounding = max([EPSILON[value.element] for value in operands if value.floating] + [EPSILON[floating]])
    rounding = max([rounding, *inner_roundings(node)])
    random = np.random.default_rng(0)
    anywhere = lambda shape: random.uniform(-1, 1, shape)
    # Two of these move all operands up, or all of them down, for operators whose result jumps at some number.
    sides = [(1, anywhere), (16, anywhere), (16, np.ones), (16, lambda shape: -np.ones(shape))]
    runs: list[list[Known]] = []
    with warnings.catch_warnings(), np.errstate(all="ignore"):
        warnings.simplefilter("ignore")
        try:
            run_node = evaluator(node, opset)
            for run in range(RUNS):
                feeds = {value.name: value.runs[run].array for value in operands}
                exact = [np.asarray(array) for array in run_node(feeds)]
                uncertain = any(value.runs[run].error for value in operands)
                wide = any(array.dtype.kind == "f" for array in exact)
                nearby = []
                for scale, side in sides:
                    # Other operators give no floats and round nothing: their results depend on the operands alone.
                    blur = scale * rounding if wide or node.op_type in ROUNDING else 0.0
                    if uncertain or blur:
                        near = {
                            v.name: blurred(
                                Value(v.name, v.element, (more(v.runs[run], scale),)), 0, blur, side, scale > 1
                            )
                            for v in operands
                        }
                        nearby.append((scale, [np.asarray(array) for array in run_node(near)]))
                least = float(ml_dtypes.finfo(numpy_type(floating)).smallest_subnormal)
                least += hidden(node, {value.name: value.runs[run].largest for value in operands}) * rounding
                runs.append([error_of(exact, nearby, index, rounding, least) for index in range(len(exact))])
        except Unsuitable:
            raise
        except Exception as problem:  # whatever the reference raises for what does not fit
            raise Unsuitable(str(problem)) from problem
    values = []
    for index, name in enumerate(node.output):
        known = tuple(run[index] for run in runs)
        kinds = {(k.array.dtype, k.array.ndim) for k in known}
        if len(kinds) > 1:
            raise Unsuitable("a rank that differs from run to run")
        dtype = known[0].array.dtype
        kind = floating if dtype.kind == "f" else helper.np_dtype_to_tensor_dtype(dtype)
        values.append(Value(name, kind, known))
    return values


# These round floats to steps, so that the rounding of their operands may decide.
ROUNDING = {"QuantizeLinear", "DynamicQuantizeLinear", "Cast"}


NORMALIZATION_EPSILON = 2.0**-6


def hidden(node: NodeProto, largest: dict[str, float]) -> float:
    """Gives the magnitude of what a node rounds on its way, where no neighbours of its operands tell of it."""
    if node.op_type in ("LayerNormalization", "RMSNormalization", "InstanceNormalization", "GroupNormalization"):
        # The mean moves along with its operands.
        return largest[node.input[0]] * largest[node.input[1]] / NORMALIZATION_EPSILON**0.5
    if node.op_type in ("If", "Loop", "Scan"):
        return max(1.0, *largest.values())
    if node.op_type in ("LSTM", "GRU", "RNN"):
        return 1.0  # a gate, and what is left of one
    return largest[node.input[0]] if node.op_type in ("Gelu", "Mish", "Celu", "Elu", "Selu") else 0.0


def more(known: Known, scale: float) -> Known:
    return Known(known.array, scale * known.error)


def error_of(
    exact: list[np.ndarray], nearby: list[tuple[int, list[np.ndarray]]], index: int, rounding: float, least: float
) -> Known:
    array = exact[index]
    if array.dtype.kind not in "fbiu" or array.size > MOST_ELEMENTS:
        raise Unsuitable(f"{array.size} elements of {array.dtype}")
    if array.dtype.kind == "f":
        array = array.astype(np.float64)
    largest = float(np.abs(array.astype(np.float64)).max(initial=0))
    if not largest < LARGEST:
        raise Unsuitable(f"a number as large as {largest}")
    error = 0.0
    for scale, results in nearby:
        other = results[index]
        if other.shape != array.shape or (array.dtype.kind != "f" and not np.array_equal(other, array)):
            raise Unsuitable("its operands' rounding decides a result that is no float")
        if array.dtype.kind == "f":
            moved = float(np.abs(other - array).max(initial=0))
            if not moved <= 0.02 * scale * max(largest, 0.1):
                raise Unsuitable("its operands' rounding decides")
            error = max(error, moved / scale)
    return Known(array, error + rounding * largest + least if array.dtype.kind == "f" else 0.0)
