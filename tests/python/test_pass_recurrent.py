"""The passes `recurrent` and `recurrent_steps`: LSTM, GRU and RNN with constant weights."""

from __future__ import annotations

from typing import Any

import numpy as np
import onnx
import pytest
from onnx import numpy_helper

import onnx_torch
from pass_models import check_each, check_equal, code, floats, graph_of, model

RECURRENT = {
    "RNN": ("RNN", 1, ""),
    "GRU": ("GRU", 3, ""),
    "GRU, linear before reset": ("GRU", 3, "linear_before_reset = 1"),
    "LSTM": ("LSTM", 4, ""),
}


def recurrent_model(name: str, direction: str, x: str, features: int, *, bias: bool, states: bool) -> onnx.ModelProto:
    """Makes a layer with 5 hidden units, for batches of 3."""
    op, gates, attributes = RECURRENT[name]
    directions = 2 if direction == "bidirectional" else 1
    outputs = ["y", "h", "c"][: 3 if name == "LSTM" else 2]
    settings = ", ".join(filter(None, ["hidden_size = 5", f'direction = "{direction}"', attributes]))
    inputs = ["x", "w", "r", "b" if bias else "", "", *(["h0", "c0"][: len(outputs) - 1] if states else [])]
    weights: dict[str, Any] = {"w": (directions, gates * 5, features), "r": (directions, gates * 5, 5)}
    if bias:
        weights["b"] = (directions, 2 * gates * 5)
    for state in ["h0", "c0"][: len(outputs) - 1] if states else []:
        weights[state] = (directions, 3, 5)
    signature = ", ".join(f"float {output}" for output in outputs)
    called = ", ".join(inputs).rstrip(", ")
    return model(f"({x} x) => ({signature}) {{ {', '.join(outputs)} = {op}<{settings}>({called}) }}", **weights)


@pytest.mark.parametrize("bias", [False, True], ids=["no bias", "bias"])
@pytest.mark.parametrize("direction", ["forward", "reverse", "bidirectional"])
@pytest.mark.parametrize("name", RECURRENT)
def test_recurrent_layers(name: str, direction: str, bias: bool):
    source = recurrent_model(name, direction, "float[7, 3, 4]", 4, bias=bias, states=bias)
    graph = graph_of(source, "recurrent").splitlines()
    assert "onnx_torch::recurrent" in graph
    assert not {"aten::lstm", "aten::gru", "aten::rnn_tanh", "prim::Loop", "aten::linear"} & set(graph)
    check_equal(source, [floats(7, 3, 4)])


@pytest.mark.parametrize("name", RECURRENT)
def test_recurrent_layers_of_other_sizes_and_values(name: str):
    source = recurrent_model(name, "bidirectional", "float[T, N, C]", 5, bias=True, states=False)
    for sizes in [(2, 3, 5), (1, 1, 5), (6, 3, 5), (2, 3, 5)]:
        check_equal(source, [floats(*sizes)])
    for value in [np.nan, np.inf, -np.inf, 1e38]:
        x = floats(4, 3, 5)
        x[2, 1, 3] = value
        check_equal(source, [x])
    for options in [{}, {"optimize": False}]:
        with pytest.raises(onnx_torch.RunError, match=RECURRENT[name][0]):
            onnx_torch.prepare(source, **options).run([floats(2, 3, 4)])


@pytest.mark.parametrize("before", [0, 1])
def test_recurrent_layers_whose_weights_are_too_large_to_be_folded_while_translating(before: int):
    source = model(
        "(float[7, 3, 40] x) => (float y) "
        f"{{ y, h = GRU<hidden_size = 64, linear_before_reset = {before}>(x, w, r, b) }}",
        w=floats(1, 192, 40) / 8,
        r=floats(1, 192, 64) / 8,
        b=(1, 384),
    )
    graph = graph_of(source, "recurrent").splitlines()
    assert "onnx_torch::recurrent" in graph
    assert not {"aten::gru", "aten::linear", "aten::cat", "aten::slice"} & set(graph)
    assert graph.count("onnx_torch::recurrent") == 1
    check_equal(source, [floats(7, 3, 40)])


def test_recurrent_layers_of_no_steps_and_of_no_sequences():
    source = recurrent_model("GRU", "bidirectional", "float[T, N, C]", 5, bias=True, states=False)
    for sizes in [(0, 3, 5), (4, 0, 5), (2, 3, 5)]:
        check_equal(source, [floats(*sizes)])


@pytest.mark.parametrize("state", ["h0", "c0"])
@pytest.mark.parametrize("sizes", [(2, 2, 5), (1, 3, 5), (2, 3, 6)])
def test_states_of_other_sizes_are_refused(state: str, sizes: tuple[int, ...]):
    source = recurrent_model("LSTM", "bidirectional", "float[7, 3, 4]", 4, bias=True, states=True)
    (weight,) = (weight for weight in source.graph.initializer if weight.name == state)
    weight.CopyFrom(numpy_helper.from_array(floats(*sizes), state))
    for options in [{}, {"optimize": False}]:
        with pytest.raises(onnx_torch.Error, match="LSTM"):
            onnx_torch.prepare(source, **options).run([floats(7, 3, 4)])


def with_activation(name: str) -> onnx.ModelProto:
    source = recurrent_model("RNN", "forward", "float[4, 3, 5]", 5, bias=True, states=False)
    source.graph.node[0].attribute.append(onnx.helper.make_attribute("activations", [name]))
    return source


def test_recurrent_layers_with_relu_keep_a_nan():
    source = with_activation("Relu")
    assert "onnx_torch::recurrent" in graph_of(source, "recurrent").splitlines()
    x = floats(4, 3, 5)
    check_equal(source, [x])
    x[2, 1, 3] = np.nan
    check_equal(source, [x])


def test_recurrent_leaves_other_activations():
    source = with_activation("Sigmoid")
    assert "onnx_torch::recurrent" not in graph_of(source, "recurrent")
    check_equal(source, [floats(4, 3, 5)])


@pytest.mark.parametrize("time", [3, "T"])
@pytest.mark.parametrize(
    "attribute", ['activations = ["Sigmoid", "Relu"]', 'activations = ["Tanh", "Tanh"]', "clip = 0.5"]
)
def test_recurrent_leaves_other_steps(attribute: str, time: int | str):
    source = model(
        f"(float[{time}, 3, 4] x) => (float y, float h) {{ y, h = GRU<hidden_size = 5, {attribute}>(x, w, r, b) }}",
        w=(1, 15, 4),
        r=(1, 15, 5),
        b=(1, 30),
    )
    assert "onnx_torch::recurrent" not in graph_of(source, "recurrent")
    check_equal(source, [floats(3, 3, 4)])


STEPWISE = {
    **RECURRENT,
    "RNN of Relu": ("RNN", 1, 'activations = ["Relu", "Relu"]'),
    "LSTM with peepholes": ("LSTM", 4, ""),
}


def stepwise_model(name: str, direction: str, hidden: int, *, bias: bool, ends: bool = True) -> onnx.ModelProto:
    """Makes a layer of 12 features with initial states and perhaps ends of sequences, which magnifies no errors."""
    op, gates, attributes = STEPWISE[name]
    directions = 2 if direction == "bidirectional" else 1
    outputs = ["y", "h", "c"][: 3 if op == "LSTM" else 2]
    states = ["h0", "c0"][: len(outputs) - 1]
    settings = ", ".join(filter(None, [f"hidden_size = {hidden}", f'direction = "{direction}"', attributes]))
    inputs = ["float[T, N, 12] x", "int32[L] lens", *(f"float[{directions}, N, {hidden}] {state}" for state in states)]
    signature = ", ".join(f"float {output}" for output in outputs)
    weights = {"b": floats(directions, 2 * gates * hidden)} if bias else {}
    if "peepholes" in name:
        weights["p"] = floats(directions, 3 * hidden) / 4
    b, p = (name if name in weights else "" for name in "bp")
    called = ", ".join(["x", "w", "r", b, "lens" if ends else "", *states, p]).rstrip(", ")
    return model(
        f"({', '.join(inputs)}) => ({signature}) {{ {', '.join(outputs)} = {op}<{settings}>({called}) }}",
        w=floats(directions, gates * hidden, 12) / 4,
        r=floats(directions, gates * hidden, hidden) / np.float32(2 * hidden**0.5),
        **weights,
    )


def stepwise_inputs(source: onnx.ModelProto, time: int, batch: int, lens: list[int]) -> list[np.ndarray]:
    states = [value.type.tensor_type.shape.dim for value in source.graph.input][2:]
    return [
        floats(time, batch, 12),
        np.array(lens, np.int32),
        *(floats(directions.dim_value, batch, hidden.dim_value) for directions, _, hidden in states),
    ]


ENDS = [
    (6, [6, 2, 0, 5]),
    (6, [3, 3]),
    (1, [1]),
    (300, [90]),
    (4, [1, 9]),
    (2, [-1, 2]),
    (3, [0, 0]),
    (0, [0]),
    (3, []),
]


@pytest.mark.parametrize("name", STEPWISE)
def test_recurrent_steps_become_layers(name: str):
    source = stepwise_model(name, "bidirectional", 5, bias=True)
    before = graph_of(source, "place").splitlines()
    assert sum(line.endswith("_direction") for line in before) == 2
    graph = graph_of(source, "recurrent_steps").splitlines()
    assert graph.count("onnx_torch::recurrent") == 2
    assert not {"prim::Loop", "aten::append", "aten::where", "aten::tanh"} & set(graph)
    inputs = stepwise_inputs(source, 6, 4, [6, 2, 0, 5])
    without = onnx_torch.prepare(source, disabled_passes=["recurrent_steps"])
    assert code(without.graphs()["expand"]).splitlines().count("prim::Loop") == 2
    assert "onnx_torch::recurrent" not in without.graph()
    check_equal(source, inputs)
    check_equal(source, inputs, disabled_passes=["recurrent_steps"])


@pytest.mark.parametrize("threads", [1, 2])
@pytest.mark.parametrize("bias", [False, True], ids=["no bias", "bias"])
@pytest.mark.parametrize("hidden", [5, 40, 450])
@pytest.mark.parametrize("direction", ["forward", "reverse", "bidirectional"])
@pytest.mark.parametrize("name", STEPWISE)
def test_recurrent_layers_whose_sequences_end(name: str, direction: str, hidden: int, bias: bool, threads: int):
    source = stepwise_model(name, direction, hidden, bias=bias)
    graph = graph_of(source, "recurrent").splitlines()
    assert graph.count("onnx_torch::recurrent") == (2 if direction == "bidirectional" else 1)
    assert not {"prim::Loop", "aten::linear", "aten::where"} & set(graph)
    check_each(source, (stepwise_inputs(source, time, len(lens), lens) for time, lens in ENDS), threads=threads)


@pytest.mark.parametrize("threads", [1, 2])
@pytest.mark.parametrize("bias", [False, True], ids=["no bias", "bias"])
@pytest.mark.parametrize("hidden", [5, 40, 450])
@pytest.mark.parametrize("direction", ["forward", "reverse", "bidirectional"])
def test_peepholes(direction: str, hidden: int, bias: bool, threads: int):
    source = stepwise_model("LSTM with peepholes", direction, hidden, bias=bias, ends=False)
    graph = graph_of(source, "recurrent").splitlines()
    assert graph.count("onnx_torch::recurrent") == (2 if direction == "bidirectional" else 1)
    assert not {"prim::Loop", "aten::linear"} & set(graph)
    sizes = [(6, 4), (1, 1), (300, 1), (0, 2), (3, 0)]
    feeds = [stepwise_inputs(source, time, batch, [time]) for time, batch in sizes]
    check_each(source, feeds, ulps=64, threads=threads)  # sums of 450 products, carried on through 300 steps


def test_peepholes_of_another_size_are_refused():
    source = stepwise_model("LSTM with peepholes", "forward", 5, bias=True)
    (peepholes,) = (weight for weight in source.graph.initializer if weight.name == "p")
    peepholes.CopyFrom(numpy_helper.from_array(floats(1, 12), "p"))
    for options in [{}, {"optimize": False}]:
        with pytest.raises(onnx_torch.Error, match="LSTM"):
            onnx_torch.prepare(source, **options).run(stepwise_inputs(source, 6, 3, [1, 2, 3]))


@pytest.mark.parametrize("name", STEPWISE)
def test_what_lies_past_the_end_of_a_sequence_does_not_matter(name: str):
    source = stepwise_model(name, "bidirectional", 5, bias=True)
    prepared = onnx_torch.prepare(source)
    inputs = stepwise_inputs(source, 6, 3, [2, 6, 0])
    expected = prepared.run(inputs)
    for value in [np.nan, np.inf]:
        inputs[0][2:, 0] = inputs[0][:, 2] = value
        for actual, other in zip(prepared.run(inputs), expected, strict=True):
            np.testing.assert_array_equal(actual, other)


@pytest.mark.parametrize("name", STEPWISE)
def test_lengths_of_another_number_of_sequences(name: str):
    """One length stands for all sequences; any other number of lengths is refused, with passes as without."""
    source = stepwise_model(name, "reverse", 5, bias=True)
    check_equal(source, stepwise_inputs(source, 6, 3, [4]))
    for options in [{}, {"optimize": False}]:
        with pytest.raises(onnx_torch.RunError, match=STEPWISE[name][0]):
            onnx_torch.prepare(source, **options).run(stepwise_inputs(source, 6, 3, [4, 2]))


RECURRENT_SIZES = [*((name, 40) for name in RECURRENT), ("LSTM", 5), ("LSTM", 400), ("GRU", 5), ("GRU", 450)]


@pytest.mark.parametrize("threads", [1, 2, 3])
@pytest.mark.parametrize("time, batch", [(1, 1), (300, 1), (3, 2), (9, 70)], ids=str)
@pytest.mark.parametrize("direction", ["forward", "bidirectional"])
@pytest.mark.parametrize("name, hidden", RECURRENT_SIZES)
def test_recurrent_layers_in_parts(name: str, hidden: int, direction: str, time: int, batch: int, threads: int):
    """Steps go in several turns, the batch and the directions on several threads, which share the weights out."""
    op, gates, attributes = RECURRENT[name]
    directions = 2 if direction == "bidirectional" else 1
    outputs = ["y", "h", "c"][: 3 if name == "LSTM" else 2]
    settings = ", ".join(filter(None, [f"hidden_size = {hidden}", f'direction = "{direction}"', attributes]))
    signature = ", ".join(f"float {output}" for output in outputs)
    source = model(
        f"(float[T, N, 12] x) => ({signature}) {{ {', '.join(outputs)} = {op}<{settings}>(x, w, r, b) }}",
        w=floats(directions, gates * hidden, 12) / 4,
        r=floats(directions, gates * hidden, hidden) / np.float32(hidden**0.5),
        b=floats(directions, 2 * gates * hidden),
    )
    check_equal(source, [floats(time, batch, 12)], threads=threads)


@pytest.mark.parametrize("name", RECURRENT)
def test_recurrent_leaves_other_types_and_weights_that_come_with_the_run(name: str):
    source = recurrent_model(name, "forward", "float[7, 3, 4]", 4, bias=True, states=False)
    for weight in source.graph.initializer:
        weight.CopyFrom(numpy_helper.from_array(numpy_helper.to_array(weight).astype(np.float64), weight.name))
    source.graph.input[0].type.tensor_type.elem_type = onnx.TensorProto.DOUBLE
    for output in source.graph.output:
        output.type.tensor_type.elem_type = onnx.TensorProto.DOUBLE
    assert "onnx_torch::recurrent" not in graph_of(source, "recurrent")
    check_equal(source, [floats(7, 3, 4).astype(np.float64)])
    source = recurrent_model(name, "forward", "float[7, 3, 4]", 4, bias=False, states=False)
    weight = source.graph.initializer.pop(0)
    source.graph.input.append(onnx.helper.make_tensor_value_info("w", onnx.TensorProto.FLOAT, weight.dims))
    assert "onnx_torch::recurrent" not in graph_of(source, "recurrent")
    check_equal(source, [floats(7, 3, 4), numpy_helper.to_array(weight)])
