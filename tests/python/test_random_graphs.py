"""Results of random graphs, optimized and not: they are what ONNX's reference makes of them.

A failure tells, of the first graph that fails, what is needed to fail. ``ONNX_TORCH_RANDOM_GRAPHS=SEED`` runs the
graphs of that seed instead of a fresh one's, ``SEED:NUMBER`` one of them alone, and ``ONNX_TORCH_RANDOM_GRAPHS_COUNT``
says how many there are. A fresh seed has twice as many; what those find, no change made.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest
from onnx import AttributeProto, GraphProto, ModelProto, TensorProto, helper, printer

import onnx_torch
from known_values import RUNS, Known, Unsuitable, Value, as_fed, compute, numpy_type
from random_graphs import Example, example_of, random_graph, smaller

FIXED = 20
FRESH, _, ALONE = os.environ["ONNX_TORCH_RANDOM_GRAPHS"].partition(":")  # conftest.py draws it, and prints it
COUNT = int(os.environ.get("ONNX_TORCH_RANDOM_GRAPHS_COUNT", 1000))
PART = 100  # graphs of one test
# An error is what rounding makes of operands that are rounded. It is measured for two of their many neighbours, so that
# a sum, or a function that is approximated, may well be some of them away.
MARGIN = 64


def difference(value: Value, run: int, found: np.ndarray) -> str:
    """Tells what is wrong with a result, if anything."""
    expected = value.runs[run]
    if (found.dtype, found.shape) != (numpy_type(value.element), expected.array.shape):
        return f"{found.dtype} {found.shape}, not {numpy_type(value.element)} {expected.array.shape}"
    if not value.floating:
        return "" if np.array_equal(found, expected.array) else f"{found}, not {expected.array}"
    distance = float(np.abs(found.astype(np.float64) - expected.array).max(initial=0))
    allowed = MARGIN * expected.error
    return (
        "" if distance <= allowed else f"{found}, not {expected.array}: {distance:.2g} away, allowed are {allowed:.2g}"
    )


def differences(example: Example) -> Iterator[str]:
    """Tells what is wrong. Optimized, the model is run three times with each set of inputs, the third by its plan."""
    for way, options, times in (("optimized", {}, 3), ("not optimized", {"optimize": False}, 1)):
        try:
            prepared = onnx_torch.prepare(example.model, **options)
            for run in range(RUNS):
                for time in range(times):
                    results = prepared.run(example.feeds(run))
                    for value, found in zip(example.outputs, results, strict=True):
                        if wrong := difference(value, run, found):
                            yield f"{way}, inputs {run}, time {time}: {value.name} is {wrong}"
        except onnx_torch.Error as error:
            yield f"{way}: {error}"


def report(example: Example) -> str:
    """Writes a small example with its inputs, as one may write it down."""
    inputs = [f"{value.name}, run {run}: {as_fed(value, run)!r}" for value in example.inputs for run in range(RUNS)]
    return "\n".join([printer.to_text(example.model), *inputs, *differences(example)])


def check(seed: int, number: int) -> None:
    graph = random_graph(seed, number)
    if any(differences(example_of(graph, graph.made))):
        least = smaller(graph, lambda example: any(differences(example)))
        pytest.fail(f"ONNX_TORCH_RANDOM_GRAPHS={seed}:{number}\n{report(least)}", pytrace=False)


def parts(count: int) -> list[range]:
    return [range(first, min(first + PART, count)) for first in range(0, count, PART)]


@pytest.mark.isa
@pytest.mark.parametrize("numbers", parts(COUNT), ids=lambda numbers: f"from_{numbers[0]}")
def test_graphs_of_a_fixed_seed(numbers: range):
    for number in numbers:
        check(FIXED, number)


@pytest.mark.parametrize(
    "numbers",
    [range(int(ALONE), int(ALONE) + 1)] if ALONE else parts(2 * COUNT),
    ids=lambda numbers: f"{FRESH}:{numbers[0]}",
)
def test_graphs_of_a_fresh_seed(numbers: range):
    for number in numbers:
        check(int(FRESH), number)


# --- What makes them --------------------------------------------------------------------------------------------------


def operators(graph: GraphProto) -> Iterator[str]:
    for node in graph.node:
        yield node.op_type
        for attribute in node.attribute:
            if attribute.type == AttributeProto.GRAPH:
                yield from operators(attribute.g)


def test_a_seed_always_gives_the_same_graph():
    again = [random_graph(FIXED, 7) for _ in range(2)]
    first, second = (example_of(graph, graph.made) for graph in again)
    assert first.model == second.model
    np.testing.assert_equal([first.feeds(run) for run in range(RUNS)], [second.feeds(run) for run in range(RUNS)])


def test_graphs_are_of_many_operators_and_of_all_kinds():
    used: set[str] = set()
    for number in range(150):
        graph = random_graph(FIXED, number)
        used |= set(operators(example_of(graph, graph.made).model.graph))
    assert {"If", "Loop", "Scan", "Conv", "MatMul", "Softmax", "QuantizeLinear", "LSTM"} <= used
    assert len(used) > 100


def test_what_rounding_decides_is_no_part_of_a_graph():
    near = Value("x", TensorProto.FLOAT, (Known(np.array([2.0 - 1e-7]), 1e-6),) * RUNS)
    far = Value("x", TensorProto.FLOAT, (Known(np.array([2.5]), 1e-6),) * RUNS)
    floor = helper.make_node("Floor", ["x"], ["y"])
    with pytest.raises(Unsuitable):
        compute(floor, [near], 23)
    [y] = compute(floor, [far], 23)
    assert y.runs[0].array == [2]
    less = helper.make_node("Less", ["x", "x"], ["y"])
    [y] = compute(less, [far], 23)
    assert not y.runs[0].array.any()


def test_errors_grow_with_those_of_operands():
    x = Value("x", TensorProto.FLOAT, (Known(np.array([1.0, 10.0]), 1e-3),) * RUNS)
    [y] = compute(helper.make_node("Mul", ["x", "x"], ["y"]), [x], 23)
    assert 1e-3 < y.runs[0].error < 0.1
    assert y.runs[0].array.tolist() == [1, 100]


def test_a_wrong_result_is_found_and_told_with_what_it_takes(monkeypatch: pytest.MonkeyPatch):
    """The wrong result is a Tanh that is computed as Cos: of a graph that has one, that node is left."""
    number = next(n for n in range(1000) if "Tanh" in {node.op_type for node in random_graph(FIXED, n).nodes})
    prepare = onnx_torch.prepare

    def wrong(model: ModelProto, **options: Any) -> Any:
        other = ModelProto()
        other.CopyFrom(model)
        for node in other.graph.node:
            node.op_type = "Cos" if node.op_type == "Tanh" else node.op_type
        return prepare(other, **options)

    monkeypatch.setattr(onnx_torch, "prepare", wrong)
    with pytest.raises(pytest.fail.Exception) as raised:
        check(FIXED, number)
    text = str(raised.value)
    assert f"ONNX_TORCH_RANDOM_GRAPHS={FIXED}:{number}" in text
    assert re.findall(r" = ([A-Z]\w+) ", text) == ["Tanh"]
    assert "allowed are" in text
