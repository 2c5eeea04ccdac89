"""Small models of random operators, with what ONNX's reference makes of them.

A graph grows node by node. Each node that a rule proposes is computed by ``onnx.reference`` in float64, for every set
of inputs, and is left out again where it cannot be computed, is too large, or depends on how its operands were rounded.
So a rule need not know the shapes of what it makes, and of each value there is what it is and how far a computation in
its own element type may be from that.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any, TypeAlias

import numpy as np
import onnx
from onnx import GraphProto, ModelProto, NodeProto, TensorProto, helper, numpy_helper

from known_values import (
    EPSILON,
    INTEGERS,
    NORMALIZATION_EPSILON,
    OPSETS,
    RUNS,
    Known,
    Unsuitable,
    Value,
    as_fed,
    compute,
    numpy_type,
    reads,
)

# --- Graphs -----------------------------------------------------------------------------------------------------------


@dataclass
class Graph:
    """A model in the making, or a subgraph of one."""

    random: np.random.Generator
    opset: int
    element: int  # the element type of most of its floats
    outer: Graph | None = None
    inputs: list[Value] = field(default_factory=list)
    dims: dict[str, list[int | str]] = field(default_factory=dict)  # of the inputs, as the model declares them
    weights: list[Value] = field(default_factory=list)
    nodes: list[NodeProto] = field(default_factory=list)
    made: list[Value] = field(default_factory=list)  # by the nodes
    known: dict[str, Value] = field(default_factory=dict)  # shared with the subgraphs
    sizes: dict[str, tuple[int, ...]] = field(default_factory=dict)  # of the open dimensions, in each run

    # The following choose among what there is.

    def visible(self) -> list[Value]:
        return (self.outer.visible() if self.outer else []) + self.inputs + self.made

    def pick(self, wanted: Callable[[Value], bool] = lambda value: True) -> Value:
        """Chooses a value, more likely a late one."""
        values = [value for value in self.visible() if wanted(value)]
        if not values:
            raise Unsuitable("nothing to compute with")
        return values[max(self.random.integers(len(values)), self.random.integers(len(values)))]

    def chance(self, probability: float) -> bool:
        return bool(self.random.random() < probability)

    def one(self, choices: Iterable[Any]) -> Any:
        choices = list(choices)
        if not choices:
            raise Unsuitable("nothing to choose from")
        return choices[self.random.integers(len(choices))]

    def number(self, low: int, high: int) -> int:
        """Draws an integer from low to high, both included."""
        return int(self.random.integers(low, high + 1))

    def name(self) -> str:
        return f"v{len(self.known)}"

    # The following put something into the graph.

    def remember(self, value: Value) -> Value:
        self.known[value.name] = value
        return value

    def array(self, shape: Sequence[int], element: int) -> np.ndarray:
        """Draws elements that an element type holds, floats in float64."""
        if element in EPSILON:
            numbers = self.random.standard_normal(shape) * self.one([1, 1, 1, 0.1, 5])
            return np.asarray(numbers).astype(numpy_type(element)).astype(np.float64)
        if element == TensorProto.BOOL:
            return np.asarray(self.random.random(shape) < 0.5)
        low = 0 if element == TensorProto.UINT8 else -9
        return np.asarray(self.random.integers(low, 10, shape)).astype(numpy_type(element))

    def input(self, shape: Sequence[int | str], element: int) -> Value:
        sizes = [[self.sizes[n][run] if isinstance(n, str) else n for n in shape] for run in range(RUNS)]
        value = Value(self.name(), element, tuple(Known(self.array(own, element)) for own in sizes))
        self.inputs.append(self.remember(value))
        self.dims[value.name] = list(shape)
        return value

    def weight(self, array: np.ndarray, element: int | None = None) -> Value:
        """Adds a constant: an initializer, or the output of a Constant node."""
        element = element or helper.np_dtype_to_tensor_dtype(array.dtype)
        value = Value(self.name(), element, (Known(array),) * RUNS)
        self.remember(value)
        if self.outer or self.chance(0.2):
            self.nodes.append(helper.make_node("Constant", [], [value.name], value=tensor(value)))
        else:
            self.weights.append(value)
        return value

    def ints(self, numbers: Sequence[int] | int) -> Value:
        return self.weight(np.asarray(numbers, np.int64))

    def random_weight(self, *shape: int, element: int | None = None) -> Value:
        element = element or self.element
        return self.weight(self.array(shape, element), element)

    def emit(
        self, op: str, *operands: Value | None, outputs: int = 1, element: int | None = None, **attributes: Any
    ) -> Any:
        """Adds a node, if it can be computed; gives its output, or a list of several."""
        names = [value.name if value else "" for value in operands]
        while names and not names[-1]:
            names.pop()
        out = [f"{self.name()}_{i}" if outputs > 1 else self.name() for i in range(outputs)]
        node = helper.make_node(op, names, out, **attributes)
        values = compute(node, [self.known[name] for name in reads(node)], self.opset, element)
        rounded = any(known.error for name in reads(node) for known in self.known[name].runs)
        if self.outer and rounded and any(not value.floating for value in values):
            raise Unsuitable("what a later iteration may round otherwise than the first one, which is looked at")
        self.nodes.append(node)
        for value in values:
            self.made.append(self.remember(value))
        return values if outputs > 1 else values[0]

    def grow(self, count: int) -> None:
        """Adds so many nodes or more, if rules find what they need."""
        goal = len(self.nodes) + count
        for _ in range(count * 12):
            if len(self.nodes) >= goal:
                break
            nodes, made, weights = len(self.nodes), len(self.made), len(self.weights)
            try:
                self.one(RULES)(self)
            except Unsuitable:
                del self.nodes[nodes:], self.made[made:], self.weights[weights:]

    def subgraph(self) -> Graph:
        return Graph(self.random, self.opset, self.element, self, known=self.known, sizes=self.sizes)

    def like(self, wanted: Value) -> Value:
        """Gives one of this graph's own values that has the type and shape of another one, which it may be made of."""
        for _ in range(4):
            self.grow(1)
            found = [value for value in self.made if value.like(wanted)]
            if found:
                return found[-1]
        return self.emit("Identity", wanted, element=wanted.element if wanted.floating else None)

    def proto(self, outputs: Sequence[Value]) -> GraphProto:
        infos = [
            helper.make_tensor_value_info(value.name, value.element, self.dims.get(value.name)) for value in self.inputs
        ]
        results = [helper.make_tensor_value_info(value.name, value.element, None) for value in outputs]
        return helper.make_graph(self.nodes, self.name(), infos, results, [tensor(weight) for weight in self.weights])


def tensor(value: Value) -> TensorProto:
    return numpy_helper.from_array(as_fed(value, 0), value.name)


# --- Rules ------------------------------------------------------------------------------------------------------------

Rule: TypeAlias = Callable[[Graph], Any]
RULES: list[Rule] = []


def rule(weight: int = 1) -> Callable[[Rule], Rule]:
    def add(function: Rule) -> Rule:
        RULES.extend([function] * weight)
        return function

    return add


def floats(value: Value) -> bool:
    return value.floating


def of_rank(*ranks: int) -> Callable[[Value], bool]:
    return lambda value: value.floating and value.rank in ranks


UNARY = (
    "Abs Neg Exp Log Sqrt Relu Sigmoid Tanh Erf Softplus Softsign Elu Selu Celu HardSigmoid HardSwish LeakyRelu "
    "ThresholdedRelu Mish Floor Ceil Round Sign Reciprocal Sin Cos Atan Asinh Sinh Identity Gelu"
).split()
WITH_ALPHA = {"Elu", "Celu", "HardSigmoid", "LeakyRelu", "ThresholdedRelu"}


@rule(6)
def unary(g: Graph) -> Value:
    op = g.one(UNARY if g.opset >= 20 else UNARY[:-1])
    attributes = {"alpha": float(g.one([0.25, 0.5, 1.5]))} if op in WITH_ALPHA and g.chance(0.5) else {}
    if op == "Gelu" and g.chance(0.5):
        attributes["approximate"] = "tanh"
    return g.emit(op, g.pick(floats), **attributes)


@rule()
def unary_of_integers(g: Graph) -> Value:
    return g.emit(g.one(["Abs", "Neg", "Sign"]), g.pick(lambda v: v.element in (TensorProto.INT64, TensorProto.INT32)))


def fits(a: Value, b: Value) -> bool:
    """Tells whether both are of one type and may be broadcast, in all runs."""
    try:
        return a.element == b.element and all(
            np.broadcast_shapes(x, y) is not None for x, y in zip(a.shapes, b.shapes, strict=True)
        )
    except ValueError:
        return False


def partner(g: Graph, a: Value) -> Value:
    """Gives a second operand, which there is already or which is a constant."""
    if g.chance(0.6):
        return g.pick(lambda b: fits(a, b))
    sizes = [a.fixed(axis) or 1 for axis in range(a.rank)]
    sizes = [n if g.chance(0.7) else 1 for n in sizes][g.number(0, a.rank) if g.chance(0.5) else 0 :]
    return g.weight(g.array(sizes, a.element), a.element)


@rule(6)
def binary(g: Graph) -> Value:
    a = g.pick(floats)
    pair = [a, partner(g, a)]
    if g.chance(0.3):
        pair.reverse()
    op = g.one("Add Add Sub Mul Mul Div Min Max Pow Sum Mean Mod PRelu".split())
    return g.emit(op, *pair, **({"fmod": 1} if op == "Mod" else {}))


@rule()
def binary_of_integers(g: Graph) -> Value:
    a = g.pick(lambda v: v.element in INTEGERS)
    if g.chance(0.4) and a.element == TensorProto.UINT8:
        op = g.one(["BitwiseAnd", "BitwiseOr", "BitwiseXor"])
    else:
        op = g.one(["Add", "Sub", "Mul", "Max", "Min", "Mod"])
    b = partner(g, a)
    if op == "Mod" and (g.outer or not all(known.array.all() for known in b.runs)):
        raise Unsuitable("a division by 0, now or in a later iteration")
    return g.emit(op, a, b)


@rule(2)
def comparison(g: Graph) -> Value:
    a = g.pick(lambda v: v.element != TensorProto.BOOL)
    operators = ["Less", "LessOrEqual", "Greater", "GreaterOrEqual"]
    # Floats that differ may be equal once they are rounded.
    return g.emit(g.one(operators if a.floating else [*operators, "Equal"]), a, partner(g, a))


@rule()
def logical(g: Graph) -> Value:
    a = g.pick(lambda v: v.element == TensorProto.BOOL)
    return g.emit("Not", a) if g.chance(0.3) else g.emit(g.one(["And", "Or", "Xor"]), a, partner(g, a))


@rule(2)
def where(g: Graph) -> Value:
    condition, a = g.pick(lambda v: v.element == TensorProto.BOOL), g.pick()
    return g.emit("Where", condition, a, partner(g, a))


@rule()
def is_special(g: Graph) -> Value:
    return g.emit(g.one(["IsNaN", "IsInf"]), g.pick(floats))


@rule(2)
def cast(g: Graph) -> Value:
    a = g.pick()
    to = g.one([*EPSILON, TensorProto.INT64, TensorProto.INT32, TensorProto.BOOL])
    return g.emit("Cast", a, to=to, element=to if to in EPSILON else None)


@rule()
def clip(g: Graph) -> Value:
    a = g.pick(lambda v: v.element != TensorProto.BOOL)
    bounds = [np.asarray(n, np.float64 if a.floating else numpy_type(a.element)) for n in (0, g.number(1, 6))]
    low, high = (g.weight(bound, a.element) for bound in bounds)
    return g.emit("Clip", a, None if g.chance(0.2) else low, None if g.chance(0.2) else high)


# Movement.


@rule(3)
def transpose(g: Graph) -> Value:
    a = g.pick(lambda v: v.rank > 1)
    return g.emit("Transpose", a, perm=g.random.permutation(a.rank).tolist())


@rule(3)
def reshape(g: Graph) -> Value:
    """Splits, joins and keeps dimensions; an open one may be told by -1 or by 0."""
    a = g.pick(lambda v: v.rank > 0)
    sizes: list[int] = []
    for axis in range(a.rank):
        n = a.fixed(axis)
        divisors = [d for d in range(2, n) if n % d == 0] if n else []
        if n and divisors and g.chance(0.5):
            d = g.one(divisors)
            sizes += [d, n // d]
        elif n and sizes and sizes[-1] > 0 and g.chance(0.4):
            sizes[-1] *= n
        elif n is None and g.chance(0.5) and len(sizes) == axis:
            sizes.append(0)
        else:
            sizes.append(-1 if n is None else n)
    if sizes.count(-1) > 1:
        sizes = [-1]
    elif g.chance(0.3) and -1 not in sizes and sizes:
        sizes[g.number(0, len(sizes) - 1)] = -1
    return g.emit("Reshape", a, g.ints(sizes))


@rule()
def reshape_by_its_shape(g: Graph) -> Value:
    a, b = g.pick(), g.pick()
    shape = g.emit("Shape", b)
    return g.emit("Reshape", a, shape) if g.chance(0.5) else g.emit("Expand", a, shape)


@rule()
def shape_arithmetic(g: Graph) -> Value:
    a = g.pick(lambda v: v.rank > 0)
    shape = g.emit("Shape", a)
    first = g.emit("Gather", shape, g.ints(0), axis=0)
    size = g.emit("Unsqueeze", first, g.ints([0]))
    rest = g.ints([-1])
    target = g.emit("Concat", *((size, rest) if g.chance(0.7) else (rest, size)), axis=0)
    return g.emit("Reshape", a, target)


@rule()
def unsqueeze(g: Graph) -> Value:
    a = g.pick(lambda v: v.rank < 4)
    return g.emit("Unsqueeze", a, g.ints([g.number(-a.rank - 1, a.rank)]))


@rule()
def squeeze(g: Graph) -> Value:
    a = g.pick(lambda v: any(v.fixed(axis) == 1 for axis in range(v.rank)))
    return g.emit("Squeeze", a, g.ints([g.one(axis for axis in range(a.rank) if a.fixed(axis) == 1)]))


@rule()
def flatten(g: Graph) -> Value:
    a = g.pick()
    return g.emit("Flatten", a, axis=g.number(-a.rank, a.rank))


@rule(2)
def concat(g: Graph) -> Value:
    a = g.pick(lambda v: v.rank > 0)
    axis = g.number(-a.rank, a.rank - 1)
    rest = lambda shape: shape[: axis % a.rank] + shape[axis % a.rank + 1 :]
    joins = lambda b: (
        a.element == b.element and a.rank == b.rank and list(map(rest, a.shapes)) == list(map(rest, b.shapes))
    )
    return g.emit("Concat", *(g.pick(joins) for _ in range(g.number(1, 3))), a, axis=axis)


@rule(2)
def split(g: Graph) -> Value:
    a = g.pick(lambda v: v.rank > 0)
    axis = g.number(-a.rank, a.rank - 1)
    size = a.fixed(axis)
    if size and size > 1 and g.chance(0.5):
        at = g.number(1, size - 1)
        return g.emit("Split", a, g.ints([at, size - at]), axis=axis, outputs=2)
    return g.emit("Split", a, axis=axis, num_outputs=2, outputs=2)


@rule(3)
def slice_(g: Graph) -> Value:
    a = g.pick(lambda v: v.rank > 0)
    axes = sorted(g.random.permutation(a.rank)[: g.number(1, min(2, a.rank))].tolist())
    starts, ends, steps = [], [], []
    for _ in axes:
        step = g.one([1, 1, 1, 2, -1, -2])
        start, end = (g.number(-3, 2), g.one([-1, 1, 2, 3, 100, 2**63 - 1]))
        if step < 0:
            start, end = g.one([-1, 2, 100]), g.one([0, -3, -100, -(2**63)])
        starts, ends, steps = [*starts, start], [*ends, end], [*steps, step]
    return g.emit("Slice", a, g.ints(starts), g.ints(ends), g.ints(axes), g.ints(steps))


@rule(2)
def gather(g: Graph) -> Value:
    a = g.pick(lambda v: v.rank > 0 and all(min(shape) > 0 for shape in v.shapes))
    axis = g.number(-a.rank, a.rank - 1)
    least = min(shape[axis] for shape in a.shapes)
    shape = g.one([(), (1,), (3,), (2, 2)])
    return g.emit("Gather", a, g.ints(g.random.integers(-least, least, shape)), axis=axis)


@rule()
def gather_elements(g: Graph) -> Value:
    a = g.pick(lambda v: v.rank > 0 and all(min(shape) > 0 for shape in v.shapes))
    axis = g.number(-a.rank, a.rank - 1)
    least = [min(shape[d] for shape in a.shapes) for d in range(a.rank)]
    if a.floating and g.chance(0.4):
        updates = g.weight(g.array(least, a.element), a.element)
        unique = np.broadcast_to(
            np.arange(least[axis]).reshape([-1 if d == axis % a.rank else 1 for d in range(a.rank)]), least
        )
        return g.emit("ScatterElements", a, g.ints(unique), updates, axis=axis)
    indices = g.ints(g.random.integers(-least[axis], least[axis], least))
    return g.emit("GatherElements", a, indices, axis=axis)


@rule()
def by_coordinates(g: Graph) -> Value:
    a = g.pick(lambda v: v.rank > 1 and v.floating and all(min(shape) > 0 for shape in v.shapes))
    least = [min(shape[d] for shape in a.shapes) for d in range(2)]
    rows = np.stack([g.random.permutation(least[0])[:2], np.zeros(min(2, least[0]), np.int64)], 1)
    if g.chance(0.5) or any(a.fixed(d) is None for d in range(2, a.rank)):
        return g.emit("GatherND", a, g.ints(rows))
    updates = g.array([len(rows), *a.shapes[0][2:]], a.element)
    reduction = g.one(["none", "add", "max"])
    return g.emit("ScatterND", a, g.ints(rows), g.weight(updates, a.element), reduction=reduction)


@rule()
def expand(g: Graph) -> Value:
    a = g.pick()
    sizes = [2, *(3 if a.fixed(axis) == 1 else 1 for axis in range(a.rank))]
    return g.emit("Expand", a, g.ints(sizes[g.number(0, 1) :]))


@rule()
def tile(g: Graph) -> Value:
    a = g.pick(lambda v: v.rank > 0)
    return g.emit("Tile", a, g.ints([g.number(1, 2) for _ in range(a.rank)]))


@rule()
def pad(g: Graph) -> Value:
    a = g.pick(lambda v: v.rank > 0 and v.element != TensorProto.BOOL)
    mode = g.one(["constant", "reflect", "edge", "wrap"] if g.opset > 18 else ["constant", "reflect", "edge"])
    low = -1 if mode == "constant" and g.chance(0.3) else 0
    if mode in ("reflect", "wrap") and min(map(min, a.shapes)) < 3:
        raise Unsuitable("too small to be mirrored")
    return g.emit("Pad", a, g.ints([g.number(low, 2) for _ in range(2 * a.rank)]), mode=mode)


@rule()
def triangle(g: Graph) -> Value:
    return g.emit("Trilu", g.pick(lambda v: v.rank > 1), g.ints(g.number(-2, 2)), upper=g.number(0, 1))


@rule()
def constant_of_shape(g: Graph) -> Value:
    shape = g.emit("Shape", g.pick())
    value = numpy_helper.from_array(np.asarray([g.number(-2, 2)], numpy_type(g.element)))
    return g.emit("ConstantOfShape", shape, value=value, element=g.element)


@rule()
def count_up(g: Graph) -> Value:
    size = g.emit("Size", g.pick())
    return g.emit("Range", g.ints(g.number(-3, 0)), size, g.ints(g.number(1, 2)))


@rule()
def one_hot(g: Graph) -> Value:
    a = g.pick(lambda v: v.element == TensorProto.INT64 and v.rank < 3)
    values = g.weight(np.array([0.0, 1.0]), g.element)
    return g.emit("OneHot", a, g.ints(g.number(2, 5)), values, axis=g.one([-1, 0]), element=g.element)


@rule()
def depth_and_space(g: Graph) -> Value:
    a = g.pick(of_rank(4))
    if g.chance(0.5) and (a.fixed(1) or 1) % 4 == 0:
        return g.emit("DepthToSpace", a, blocksize=2, mode=g.one(["DCR", "CRD"]))
    if any(n % 2 for shape in a.shapes for n in shape[2:]):
        raise Unsuitable("odd sizes")
    return g.emit("SpaceToDepth", a, blocksize=2)


@rule()
def compress(g: Graph) -> Value:
    a = g.pick(lambda v: v.rank > 0 and bool(v.fixed(0)))
    return g.emit("Compress", a, g.weight(g.array([a.fixed(0) or 0], TensorProto.BOOL)), axis=0)


@rule()
def non_zero(g: Graph) -> Value:
    return g.emit("NonZero", g.pick(lambda v: v.rank > 0))


# Reductions, and operators that go along rows.

REDUCTIONS = (
    "ReduceSum ReduceSum ReduceMean ReduceMean ReduceMax ReduceMin ReduceProd ReduceL1 ReduceL2 ReduceSumSquare "
    "ReduceLogSumExp ReduceLogSum"
).split()


@rule(3)
def reduction(g: Graph) -> Value:
    a = g.pick(lambda v: v.floating or v.element in (TensorProto.INT64, TensorProto.INT32))
    op = g.one(REDUCTIONS if a.floating else ["ReduceSum", "ReduceMax", "ReduceMin", "ReduceProd"])
    axes = None if g.chance(0.1) else g.ints(g.random.permutation(a.rank)[: g.number(1, 2)] - g.one([0, a.rank]))
    return g.emit(op, a, axes, keepdims=g.number(0, 1))


@rule(2)
def along_rows(g: Graph) -> Value:
    a = g.pick(lambda v: v.floating and v.rank > 0)
    op = g.one(["Softmax", "Softmax", "LogSoftmax", "LpNormalization", "Hardmax"])
    return g.emit(op, a, axis=g.one([-1, g.number(-a.rank, a.rank - 1)]))


@rule()
def running_sum(g: Graph) -> Value:
    a = g.pick(lambda v: v.floating and v.rank > 0)
    axis = g.ints(g.number(-a.rank, a.rank - 1))
    return g.emit("CumSum", a, axis, exclusive=g.number(0, 1), reverse=g.number(0, 1))


@rule()
def place_of_the_largest(g: Graph) -> Value:
    a = g.pick(lambda v: v.rank > 0 and v.element != TensorProto.BOOL)
    last = {"select_last_index": g.number(0, 1)}
    axis = g.number(-a.rank, a.rank - 1)
    return g.emit(g.one(["ArgMax", "ArgMin"]), a, axis=axis, keepdims=g.number(0, 1), **last)


@rule()
def largest(g: Graph) -> Value:
    a = g.pick(lambda v: v.floating and v.rank > 0)
    axis = g.number(-a.rank, a.rank - 1)
    least = min(shape[axis] for shape in a.shapes)
    count = g.number(min(1, least), min(3, least))
    return g.emit("TopK", a, g.ints([count]), axis=axis, largest=g.number(0, 1), outputs=2)


def in_its_own_type(a: Value) -> dict[str, int]:
    """Has a normalization of doubles compute in their type: it computes in float32, unless it is told otherwise."""
    return {"stash_type": TensorProto.DOUBLE} if a.element == TensorProto.DOUBLE else {}


@rule(2)
def normalization(g: Graph) -> Value:
    ops = ["LayerNormalization", "RMSNormalization"] if g.opset >= 23 else ["LayerNormalization"]
    a = g.pick(lambda v: v.floating and v.rank > 1 and bool(v.fixed(-1)))
    scale = g.random_weight(a.fixed(-1) or 1, element=a.element)
    op = g.one(ops)
    bias = g.random_weight(a.fixed(-1) or 1, element=a.element) if op == ops[0] and g.chance(0.7) else None
    return g.emit(op, a, scale, bias, axis=-1, epsilon=NORMALIZATION_EPSILON, **in_its_own_type(a))


@rule(2)
def normalization_of_channels(g: Graph) -> Value:
    a = g.pick(lambda v: v.floating and v.rank > 2 and bool(v.fixed(1)))
    channels = a.fixed(1) or 1
    weights = [g.random_weight(channels, element=a.element) for _ in range(2)]
    kind = g.one(["batch", "instance", "group", "lrn"])
    if kind == "batch":
        variance = g.weight(np.abs(g.array([channels], a.element)) + 0.5, a.element)
        return g.emit("BatchNormalization", a, *weights, g.random_weight(channels, element=a.element), variance)
    if kind == "instance":
        return g.emit("InstanceNormalization", a, *weights, epsilon=NORMALIZATION_EPSILON)
    if kind == "group" and g.opset >= 21:
        groups = g.one(d for d in range(1, channels + 1) if channels % d == 0)
        return g.emit(
            "GroupNormalization", a, *weights, num_groups=groups, epsilon=NORMALIZATION_EPSILON, **in_its_own_type(a)
        )
    return g.emit("LRN", a, size=g.number(1, 4), alpha=0.125)


# Products.


@rule(3)
def matrix_product(g: Graph) -> Value:
    a = g.pick(lambda v: v.floating and v.rank > 0)
    if a.rank > 1 and g.chance(0.2):
        order = [*range(a.rank - 2), a.rank - 1, a.rank - 2]
        return g.emit("MatMul", a, g.emit("Transpose", a, perm=order))
    inner = a.fixed(-1)
    if inner and g.chance(0.7):
        return g.emit("MatMul", a, g.random_weight(inner, g.one([1, 3, 8, 17]), element=a.element))
    return g.emit("MatMul", a, g.pick(lambda b: b.element == a.element and b.rank > 0))


@rule(2)
def gemm(g: Graph) -> Value:
    a = g.pick(of_rank(2))
    turned = g.number(0, 1)
    inner, columns = a.fixed(0 if turned else 1), g.one([1, 4, 9])
    if not inner:
        raise Unsuitable("an open size")
    b_turned = g.number(0, 1)
    b = g.random_weight(*((columns, inner) if b_turned else (inner, columns)), element=a.element)
    c = g.one([None, g.random_weight(columns, element=a.element), g.random_weight(1, element=a.element)])
    factors = {"alpha": 0.5, "beta": 2.0} if g.chance(0.3) else {}
    return g.emit("Gemm", a, b, c, transA=turned, transB=b_turned, **factors)


@rule()
def einsum(g: Graph) -> Value:
    a = g.pick(of_rank(2, 3))
    letters = "abc"[: a.rank]
    if g.chance(0.5):
        return g.emit("Einsum", a, a, equation=f"{letters},{letters}->{letters[0]}")
    inner = a.fixed(-1)
    if not inner:
        raise Unsuitable("an open size")
    weight = g.random_weight(inner, 4, element=a.element)
    return g.emit("Einsum", a, weight, equation=f"{letters},{letters[-1]}z->{letters[:-1]}z")


def there(value: Value) -> Value:
    """Gives a value that has elements.

    Windows that are larger than an image are an error here, and in the reference nothing. An image that the run alone
    shows to have no elements is refused by ATen's convolutions and pools.
    """
    if not all(known.array.size for known in value.runs):
        raise Unsuitable("no elements")
    return value


@rule(3)
def convolution(g: Graph) -> Value:
    a = there(g.pick(lambda v: v.floating and v.rank in (3, 4) and bool(v.fixed(1))))
    channels, space = a.fixed(1) or 1, a.rank - 2
    group = g.one([1, 1, channels])
    out, kernel = group * g.number(1, 4), [g.number(1, 3) for _ in range(space)]
    bias = g.random_weight(out, element=a.element) if g.chance(0.6) else None
    pads = [g.number(0, 1) for _ in range(2 * space)]
    steps = {"strides": [g.number(1, 2)] * space} if g.chance(0.4) else {}
    if g.chance(0.15):
        weight = g.random_weight(channels, out // group, *kernel, element=a.element)
        # The reference adds the first bias to all groups.
        return g.emit("ConvTranspose", a, weight, bias if group == 1 else None, group=group, **steps)
    weight = g.random_weight(out, channels // group, *kernel, element=a.element)
    if g.chance(0.2):
        steps["dilations"] = [g.number(1, 2)] * space
    result = there(g.emit("Conv", a, weight, bias, group=group, pads=pads, kernel_shape=kernel, **steps))
    return g.emit(g.one(["Relu", "Sigmoid", "HardSwish"]), result) if g.chance(0.4) else result


@rule(2)
def pool(g: Graph) -> Value:
    a = g.pick(of_rank(3, 4))
    space = a.rank - 2
    op = g.one(["MaxPool", "AveragePool", "GlobalAveragePool", "GlobalMaxPool", "LpPool"])
    if op.startswith("Global"):
        return g.emit(op, a)
    kernel = [g.number(1, 3) for _ in range(space)]
    pads = [g.number(0, min(kernel) - 1)] * 2 * space  # the reference takes others for one another
    options = {"strides": [g.number(1, 2)] * space, "pads": pads}
    if op == "AveragePool":
        options["count_include_pad"] = g.number(0, 1)
    if any(n + 2 * pad < size for sizes in a.shapes for n, pad, size in zip(sizes[2:], pads, kernel, strict=False)):
        raise Unsuitable("windows that are larger than an image")
    return g.emit(op, there(a), kernel_shape=kernel, **options)


@rule()
def resize(g: Graph) -> Value:
    a = g.pick(of_rank(4))
    scales = g.weight(np.array([1, 1, *(g.one([0.5, 1, 2, 2, 3]) for _ in range(2))], np.float32))
    mode = g.one(["nearest", "linear", "cubic"])
    way = g.one(["asymmetric", "half_pixel", "align_corners"])
    options = {"nearest_mode": "floor"} if mode == "nearest" else {}
    return g.emit("Resize", a, None, scales, mode=mode, coordinate_transformation_mode=way, **options)


@rule()
def recurrent(g: Graph) -> list[Value]:
    a = g.pick(lambda v: v.floating and v.rank == 3 and bool(v.fixed(2)) and all(min(s) > 0 for s in v.shapes))
    op, gates = g.one([("LSTM", 4), ("GRU", 3), ("RNN", 1)])
    hidden = g.one([1, 3, 8])
    direction = g.one(["forward", "reverse"])
    weights = [
        g.random_weight(1, gates * hidden, a.fixed(2) or 1, element=a.element),
        g.random_weight(1, gates * hidden, hidden, element=a.element),
        g.random_weight(1, 2 * gates * hidden, element=a.element) if g.chance(0.7) else None,
    ]
    options = {"linear_before_reset": g.number(0, 1)} if op == "GRU" else {}
    return g.emit(op, a, *weights, hidden_size=hidden, direction=direction, outputs=2, **options)


# int8 and uint8.


def scale_and_zero(g: Graph, element: int) -> list[Value]:
    scale = g.weight(np.asarray(g.one([0.05, 0.11, 0.3]), np.float32).astype(np.float64), TensorProto.FLOAT)
    zero = g.number(0, 9) if element == TensorProto.UINT8 else g.number(-5, 5)
    return [scale, g.weight(np.asarray(zero, numpy_type(element)))]


@rule(2)
def quantized(g: Graph) -> Value:
    """Takes a value through int8 or uint8; other rules compute between two such passages."""
    a = g.pick(lambda v: v.element == TensorProto.FLOAT)
    parameters = scale_and_zero(g, g.one([TensorProto.UINT8, TensorProto.INT8]))
    narrow = g.emit("QuantizeLinear", a, *parameters)
    return g.emit("DequantizeLinear", narrow, *parameters) if g.chance(0.8) else narrow


@rule()
def integer_product(g: Graph) -> Value:
    a = g.pick(lambda v: v.element == TensorProto.UINT8 and v.rank > 0 and bool(v.fixed(-1)))
    weight = g.weight(g.array([a.fixed(-1) or 1, 5], TensorProto.INT8))
    zero = g.weight(np.asarray(g.number(0, 9), np.uint8)) if g.chance(0.5) else None
    return g.emit("MatMulInteger", a, weight, zero)


@rule()
def dynamically_quantized(g: Graph) -> Value:
    a = g.pick(lambda v: v.element == TensorProto.FLOAT and v.rank > 1 and bool(v.fixed(-1)))
    if not all(known.array.any() for known in a.runs):
        raise Unsuitable("a range of 0, for which the standard gives no scale")
    narrow, scale, zero = g.emit("DynamicQuantizeLinear", a, outputs=3)
    weight = g.weight(g.array([a.fixed(-1) or 1, 4], TensorProto.INT8))
    sums = g.emit("MatMulInteger", narrow, weight, zero)
    wide = g.emit("Cast", sums, to=TensorProto.FLOAT)
    return g.emit("Mul", wide, scale)


# Forms that exporters write out, and passes look for.


@rule(2)
def attention(g: Graph) -> Value:
    a = g.pick(lambda v: v.floating and v.rank in (3, 4) and bool(v.fixed(-1)))
    q, k, v = (g.emit("MatMul", a, g.random_weight(a.fixed(-1) or 1, 8, element=a.element)) for _ in range(3))
    turned = g.emit("Transpose", k, perm=[*range(a.rank - 2), a.rank - 1, a.rank - 2])
    scores = g.emit("MatMul", q, turned)
    if g.chance(0.7):
        factor = g.weight(np.asarray(0.25), a.element)
        scores = g.emit(*g.one([("Mul", scores, factor), ("Mul", factor, scores), ("Div", scores, factor)]))
    if g.chance(0.5):
        scores = g.emit("Add", scores, partner(g, scores))
    return g.emit("MatMul", g.emit("Softmax", scores, axis=-1), v)


@rule(2)
def written_out_normalization(g: Graph) -> Value:
    a = g.pick(lambda v: v.floating and v.rank > 1)
    axes = g.ints([-1])
    centred = g.emit("Sub", a, g.emit("ReduceMean", a, axes)) if g.chance(0.7) else a
    two = g.weight(np.asarray(2.0), a.element)
    squares = g.emit("Pow", centred, two) if g.chance(0.5) else g.emit("Mul", centred, centred)
    variance = g.emit("ReduceMean", squares, axes)
    root = g.emit("Sqrt", g.emit("Add", variance, g.weight(np.asarray(0.0625), a.element)))
    if g.chance(0.5):
        result = g.emit("Div", centred, root)
    else:
        result = g.emit("Mul", *g.one([(centred, r), (r, centred)][:1] for r in [g.emit("Reciprocal", root)])[0])
    return g.emit(g.one(["Mul", "Add"]), result, partner(g, result))


@rule(2)
def written_out_activation(g: Graph) -> Value:
    a = g.pick(floats)
    constant = lambda number: g.weight(np.asarray(number), a.element)
    if g.chance(0.5):
        pair = [a, g.emit("Sigmoid", a)]
        return g.emit("Mul", *(pair if g.chance(0.5) else pair[::-1]))
    scaled = g.emit("Div", a, constant(float(np.asarray(np.sqrt(2)).astype(numpy_type(a.element)))))
    grown = g.emit("Add", g.emit("Erf", scaled), constant(1.0))
    if g.chance(0.5):
        return g.emit("Mul", g.emit("Mul", a, grown), constant(0.5))
    return g.emit("Mul", g.emit("Mul", a, constant(0.5)), grown)


@rule()
def rotary(g: Graph) -> Value:
    a = g.pick(lambda v: v.floating and v.rank > 1 and (v.fixed(-1) or 1) % 2 == 0)
    half = (a.fixed(-1) or 2) // 2
    last = g.ints([-1])
    first = g.emit("Slice", a, g.ints([0]), g.ints([half]), last)
    second = g.emit("Slice", a, g.ints([half]), g.ints([2 * half]), last)
    turned = g.emit("Concat", g.emit("Neg", second), first, axis=-1)
    cosines, sines = (g.random_weight(2 * half, element=a.element) for _ in range(2))
    return g.emit("Add", g.emit("Mul", a, cosines), g.emit("Mul", turned, sines))


@rule()
def by_a_sequence(g: Graph) -> Value:
    """Splits a tensor into pieces, of which it takes one or puts all together again: nodes of one subgraph's branch."""
    a = g.pick(lambda v: v.rank > 0 and v.element != TensorProto.BFLOAT16)
    axis = g.number(-a.rank, a.rank - 1)
    names = [g.name(), f"{g.name()}_s"]
    nodes = [helper.make_node("SplitToSequence", [a.name], [names[1]], axis=axis, keepdims=g.number(0, 1))]
    if g.chance(0.5):
        nodes[0].attribute[1].i = 1
        nodes.append(helper.make_node("ConcatFromSequence", [names[1]], [names[0]], axis=axis))
    else:
        at = g.ints(g.one([0, -1]))
        nodes.append(helper.make_node("SequenceAt", [names[1], at.name], [names[0]]))
    branch = helper.make_graph(nodes, g.name(), [], [onnx.ValueInfoProto(name=names[0])])
    branch.output[0].CopyFrom(helper.make_tensor_value_info(names[0], a.element, None))
    return branches(g, a, branch, branch)


# Control flow.


def branches(g: Graph, like: Value, then: GraphProto, other: GraphProto) -> Value:
    condition = g.pick(lambda v: v.element == TensorProto.BOOL and v.rank == 0)
    element = like.element if like.floating else None
    return g.emit("If", condition, then_branch=then, else_branch=other, element=element)


def depth(g: Graph) -> int:
    return 0 if g.outer is None else 1 + depth(g.outer)


@rule(3)
def choose(g: Graph) -> Value:
    if depth(g) > 1:
        raise Unsuitable("deep enough")
    a = g.pick()
    inner = [g.subgraph(), g.subgraph()]
    results = [branch.like(a) for branch in inner]
    return branches(g, a, *(branch.proto([result]) for branch, result in zip(inner, results, strict=True)))


def carried(g: Graph, inner: Graph, start: Value) -> Value:
    """Makes the value that a body is given of a state, whose later values the first one does not tell."""
    runs = tuple(Known(k.array, k.error + EPSILON.get(start.element, 0) * k.largest) for k in start.runs)
    value = Value(inner.name(), start.element, runs)
    inner.inputs.append(inner.remember(value))
    return value


@rule(3)
def loop(g: Graph) -> Any:
    if depth(g) > 1:
        raise Unsuitable("deep enough")
    start, inner = g.pick(), g.subgraph()
    inner.inputs += [
        inner.remember(Value(inner.name(), TensorProto.INT64, (Known(np.asarray(0)),) * RUNS)),
    ]
    inner.inputs += [inner.remember(Value(inner.name(), TensorProto.BOOL, (Known(np.asarray(True)),) * RUNS))]
    number, going = inner.inputs
    state = carried(g, inner, start)
    following = inner.like(state)
    stops = g.chance(0.3)
    goes_on = inner.emit("Less", number, inner.ints(g.number(1, 3))) if stops else inner.emit("Identity", going)
    collected = [g.one(inner.made)] if g.chance(0.4) else []
    body = inner.proto([goes_on, following, *collected])
    counts = [v for v in g.visible() if v.element == TensorProto.INT64 and v.rank == 0]
    counts = [v for v in counts if all(1 <= int(known.array) <= 4 for known in v.runs)]
    count = g.one(counts) if counts and g.chance(0.6) else g.ints(g.number(1, 4))
    element = start.element if start.floating else None
    if collected and collected[0].floating and collected[0].element != (element or collected[0].element):
        raise Unsuitable("two floating element types")
    element = element or (collected[0].element if collected and collected[0].floating else None)
    return g.emit("Loop", count, None, start, body=body, outputs=1 + len(collected), element=element)


@rule(2)
def scan(g: Graph) -> Any:
    if depth(g) > 1:
        raise Unsuitable("deep enough")
    rows, inner = g.pick(lambda v: v.floating and v.rank > 0 and all(min(s) > 0 for s in v.shapes)), g.subgraph()
    start = g.pick(lambda v: v.element == rows.element)
    axis, backward = g.number(0, rows.rank - 1), g.number(0, 1)
    state = carried(g, inner, start)
    runs = tuple(Known(np.take(k.array, -1 if backward else 0, axis), k.error) for k in rows.runs)
    row = inner.remember(Value(inner.name(), rows.element, runs))
    inner.inputs.append(row)
    following = inner.like(state)
    collected = inner.like(row)
    if collected is following:
        collected = inner.emit("Identity", row)
    body = inner.proto([following, collected])
    options = {"scan_input_axes": [axis], "scan_input_directions": [backward]}
    return g.emit("Scan", start, rows, body=body, num_scan_inputs=1, outputs=2, element=rows.element, **options)


# --- Models -----------------------------------------------------------------------------------------------------------


@dataclass
class Example:
    """A model, its inputs in each run, and what its outputs are to be."""

    model: ModelProto
    inputs: list[Value]
    outputs: list[Value]

    def feeds(self, run: int) -> list[np.ndarray]:
        return [as_fed(value, run) for value in self.inputs]


def example_of(graph: Graph, outputs: Sequence[Value]) -> Example:
    proto = graph.proto(outputs)
    model = helper.make_model(proto, opset_imports=[helper.make_opsetid("", graph.opset)], ir_version=10)
    return Example(model, graph.inputs, list(outputs))


def random_graph(*seed: int) -> Graph:
    """Makes a graph of some ten nodes, the same for the same seed."""
    random = np.random.default_rng(seed)
    g = Graph(random, int(random.choice(OPSETS)), int(random.choice([*EPSILON], p=[0.75, 0.08, 0.12, 0.05])))
    g.sizes = {"N": (g.number(1, 4), g.number(1, 9)), "M": (g.number(2, 6), g.number(1, 20))}
    dims: list[int | str] = [1, 2, 3, 4, 6, 8]
    if g.chance(0.5):
        dims += ["N", "M"]
    full = [g.one(dims) for _ in range(g.number(1, 4))]
    g.input(full, g.element)
    for _ in range(g.number(0, 2)):
        g.input([n if g.chance(0.8) else 1 for n in full], g.element)
    if g.chance(0.4):
        g.input([g.one(dims) for _ in range(g.number(0, 3))], g.one([*INTEGERS, TensorProto.BOOL]))
    g.input([], TensorProto.BOOL)  # for branches
    count = Value(g.name(), TensorProto.INT64, tuple(Known(np.asarray(g.number(1, 4))) for _ in range(RUNS)))
    g.inputs.append(g.remember(count))  # for loops
    g.dims[count.name] = []
    g.grow(g.number(2, 14))
    return g


def random_example(*seed: int) -> Example:
    g = random_graph(*seed)
    outputs = [value for value in g.made if value is g.made[-1] or g.chance(0.2)]
    return example_of(g, outputs)


# --- Smaller ones -----------------------------------------------------------------------------------------------------


def without(graph: Graph, outputs: Sequence[str], cut: Iterable[str] = ()) -> Graph:
    """Gives the graph with what these outputs need alone. Where it is cut, a value becomes an input of what it was."""
    needed, nodes = set(outputs), []
    for node in reversed(graph.nodes):
        if needed & set(node.output) and not set(node.output) & set(cut):
            needed |= set(reads(node))
            nodes.append(node)
    less = Graph(graph.random, graph.opset, graph.element, sizes=graph.sizes)
    for value in graph.inputs + [graph.known[name] for name in cut]:
        if value.name in needed:
            runs = tuple(Known(as_fed(value, run).astype(known.array.dtype)) for run, known in enumerate(value.runs))
            less.inputs.append(less.remember(Value(value.name, value.element, runs)))
            open_ = [value.fixed(axis) or f"{value.name}_{axis}" for axis in range(value.rank)]
            less.dims[value.name] = graph.dims.get(value.name, open_)
    less.weights = [less.remember(value) for value in graph.weights if value.name in needed]
    for node in reversed(nodes):
        floating = next((graph.known[name].element for name in node.output if graph.known[name].floating), None)
        for value in compute(node, [less.known[name] for name in reads(node)], less.opset, floating):
            less.made.append(less.remember(value))
        less.nodes.append(node)
    return less


def smaller(graph: Graph, fails: Callable[[Example], bool]) -> Example:
    """Reduces a graph that fails to one output if that fails, or as few as do, with as few nodes as that takes."""

    def tried(outputs: Sequence[str], cut: Sequence[str], within: Graph) -> Graph | None:
        try:
            less = without(within, outputs, cut)
            return less if fails(example_of(less, [less.known[name] for name in outputs])) else None
        except Unsuitable:
            return None

    outputs = [value.name for value in graph.made]
    alone = ((name, less) for name in outputs if (less := tried([name], [], graph)))
    if found := next(alone, None):
        outputs, graph = [found[0]], found[1]
    for name in outputs[::-1] if len(outputs) > 1 else []:
        rest = [other for other in outputs if other != name]
        if less := tried(rest, [], graph):
            outputs, graph = rest, less
    for node in list(graph.nodes):
        cut = [name for name in node.output if name in graph.known]
        if cut and not set(outputs) & set(node.output):
            graph = tried(outputs, cut, graph) or graph
    return example_of(graph, [graph.known[name] for name in outputs])
