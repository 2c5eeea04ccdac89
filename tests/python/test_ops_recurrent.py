"""RNN, GRU and LSTM against onnxruntime: what the official cases leave out."""

import itertools
import time

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

import onnx_torch
from models import onnxruntime_op, op_model, run_op

GATES = {"RNN": 1, "GRU": 3, "LSTM": 4}
OUTPUTS = {"RNN": 2, "GRU": 2, "LSTM": 3}
OPSET = 14
TIME, BATCH, INPUT, HIDDEN = 5, 3, 4, 2


def _inputs(op, directions=1, bias=True, lengths=None, state=True, peepholes=False, dtype=np.float32):
    rng = np.random.default_rng(7)
    gates = GATES[op]

    def draw(*shape):
        return rng.uniform(-1, 1, shape).astype(dtype)

    inputs = [
        draw(TIME, BATCH, INPUT),
        draw(directions, gates * HIDDEN, INPUT),
        draw(directions, gates * HIDDEN, HIDDEN),
        draw(directions, 2 * gates * HIDDEN) if bias else None,
        None if lengths is None else np.array(lengths, np.int32),
        draw(directions, BATCH, HIDDEN) if state else None,
    ]
    if op == "LSTM":
        inputs += [draw(directions, BATCH, HIDDEN) if state else None]
        inputs += [draw(directions, 3 * HIDDEN) if peepholes else None]
    return inputs


def _check(op, inputs, tolerance=1e-5, **attributes):
    attributes.setdefault("hidden_size", HIDDEN)
    expected = onnxruntime_op(op, inputs, [TensorProto.FLOAT] * OUTPUTS[op], OPSET, **attributes)
    actual = run_op(op, inputs, OPSET, outputs=OUTPUTS[op], **attributes)
    for a, e in zip(actual, expected, strict=True):
        np.testing.assert_allclose(a, e, rtol=tolerance, atol=tolerance)


@pytest.mark.parametrize("op", GATES)
@pytest.mark.parametrize("direction", ["forward", "reverse", "bidirectional"])
@pytest.mark.parametrize("lengths", [None, [5, 3, 1]])
@pytest.mark.parametrize("bias, state", [(True, True), (False, False)])
def test_directions_and_lengths(op, direction, lengths, bias, state):
    directions = 2 if direction == "bidirectional" else 1
    _check(op, _inputs(op, directions, bias, lengths, state), direction=direction)


@pytest.mark.parametrize("op", GATES)
@pytest.mark.parametrize(
    "name, alpha, beta",
    [
        ("Relu", [], []), ("Tanh", [], []), ("Sigmoid", [], []), ("Softsign", [], []), ("Softplus", [], []),
        ("Affine", [0.7], [0.1]), ("LeakyRelu", [], []), ("LeakyRelu", [0.3], []), ("ThresholdedRelu", [0.2], []),
        ("ScaledTanh", [0.7], [0.9]), ("HardSigmoid", [], []), ("HardSigmoid", [0.3], [0.4]), ("Elu", [0.6], []),
    ],
)  # fmt: skip
def test_activations(op, name, alpha, beta):
    count = {"RNN": 1, "GRU": 2, "LSTM": 3}[op]
    attributes = {"activations": [name] * count}
    if alpha:
        attributes["activation_alpha"] = alpha * count
    if beta:
        attributes["activation_beta"] = beta * count
    _check(op, _inputs(op), **attributes)


def test_activations_consume_what_they_take():
    _check(
        "LSTM",
        _inputs("LSTM", 2),
        direction="bidirectional",
        activations=["HardSigmoid", "Tanh", "LeakyRelu", "Sigmoid", "Elu", "Tanh"],
        activation_alpha=[0.3, 0.2, 0.9],
        activation_beta=[0.4],
    )


@pytest.mark.parametrize("direction, lengths", itertools.product(["forward", "bidirectional"], [None, [5, 2, 4]]))
def test_gru_linear_before_reset(direction, lengths):
    directions = 2 if direction == "bidirectional" else 1
    for reset in (0, 1):
        _check("GRU", _inputs("GRU", directions, lengths=lengths), direction=direction, linear_before_reset=reset)


@pytest.mark.parametrize("op", ["RNN", "GRU"])
def test_clip(op):
    _check(op, _inputs(op), clip=0.3)


@pytest.mark.parametrize("input_forget", [0, 1])
@pytest.mark.parametrize("peepholes", [True, False])
def test_lstm_gates(input_forget, peepholes):
    _check("LSTM", _inputs("LSTM", peepholes=peepholes), input_forget=input_forget)


def test_lstm_clip():
    """The clip bounds the input of every activation; onnxruntime leaves that of h as it is."""
    x, w, r, b, _, h, c, p = inputs = _inputs("LSTM", peepholes=True)
    p_i, p_o, p_f = np.split(p[0], 3)

    def sigmoid(v):
        return 1 / (1 + np.exp(-np.clip(v, -0.2, 0.2)))

    def tanh(v):
        return np.tanh(np.clip(v, -0.2, 0.2))

    h, c = h[0], c[0]
    for x_t in x:
        i, o, f, g = np.split(x_t @ w[0].T + h @ r[0].T + sum(np.split(b[0], 2)), 4, axis=1)
        c = sigmoid(f + p_f * c) * c + sigmoid(i + p_i * c) * tanh(g)
        h = sigmoid(o + p_o * c) * tanh(c)
    _, y_h, y_c = run_op("LSTM", inputs, OPSET, outputs=3, clip=0.2)
    np.testing.assert_allclose(y_h[0], h, rtol=1e-5)
    np.testing.assert_allclose(y_c[0], c, rtol=1e-5)


@pytest.mark.parametrize("op", GATES)
@pytest.mark.parametrize("lengths", [None, [5, 3, 1]])
def test_batch_first(op, lengths):
    """layout=1 is layout=0 with the batch dimension in front."""
    inputs = _inputs(op, 2, lengths=lengths)
    y, *states = run_op(op, inputs, outputs=OUTPUTS[op], direction="bidirectional")
    swapped = [np.swapaxes(x, 0, 1) if i in (0, 5, 6) else x for i, x in enumerate(inputs)]
    y1, *states1 = run_op(op, swapped, outputs=OUTPUTS[op], direction="bidirectional", layout=1)
    np.testing.assert_allclose(y1, y.transpose(2, 0, 1, 3), rtol=1e-5)
    for state1, state in zip(states1, states, strict=True):
        np.testing.assert_allclose(state1, np.swapaxes(state, 0, 1), rtol=1e-5)


@pytest.mark.parametrize("op", GATES)
@pytest.mark.parametrize("lengths", [None, [5, 3, 1]])
@pytest.mark.parametrize("dtype", [np.float64, np.float16])
def test_element_types(op, lengths, dtype):
    inputs = [
        x.astype(dtype) if x is not None and x.dtype.kind == "f" else x
        for x in _inputs(op, 2, lengths=lengths, dtype=np.float16)
    ]
    other = np.float32 if dtype == np.float64 else np.float64
    in_other = [x.astype(other) if x is not None and x.dtype == dtype else x for x in inputs]
    tolerance = 1e-6 if dtype == np.float64 else 2**-9  # float32 and float16 are compared with float64
    for attributes in ({}, {"clip": 0.5}):
        actual = run_op(op, inputs, outputs=OUTPUTS[op], direction="bidirectional", **attributes)
        expected = run_op(op, in_other, outputs=OUTPUTS[op], direction="bidirectional", **attributes)
        for a, e in zip(actual, expected, strict=True):
            assert a.dtype == dtype
            np.testing.assert_allclose(a, e, rtol=tolerance, atol=tolerance)


@pytest.mark.parametrize("op, opset", [("RNN", 1), ("GRU", 1), ("GRU", 3), ("LSTM", 1), ("LSTM", 7)])
def test_old_versions(op, opset):
    inputs = _inputs(op)
    actual = run_op(op, inputs, opset, outputs=OUTPUTS[op])
    expected = run_op(op, inputs, OPSET, outputs=OUTPUTS[op])
    for a, e in zip(actual, expected, strict=True):
        np.testing.assert_array_equal(a, e)


@pytest.mark.parametrize("op", GATES)
@pytest.mark.parametrize("attributes", [{}, {"clip": 1.0}])
def test_empty_batch(op, attributes):
    inputs = _inputs(op)
    inputs[0] = np.zeros((TIME, 0, INPUT), np.float32)
    inputs[5:7] = [np.ones((1, 0, HIDDEN), np.float32) for _ in inputs[5:7]]
    y, *states = run_op(op, inputs, outputs=OUTPUTS[op], **attributes)
    assert y.shape == (TIME, 1, 0, HIDDEN)
    assert [state.shape for state in states] == [(1, 0, HIDDEN)] * len(states)


SIZES = {
    "W of fewer units": (1, lambda w: w[:, :-1]),
    "W of more units": (1, lambda w: np.tile(w, (1, 7, 1))),
    "W of fewer features": (1, lambda w: w[..., :-1]),
    "W of two directions": (1, lambda w: np.tile(w, (2, 1, 1))),
    "R of more units": (2, lambda r: np.tile(r, (1, 2, 1))),
    "R of fewer columns": (2, lambda r: r[..., :-1]),
    "B of half the size": (3, lambda b: b[:, : b.shape[1] // 2]),
    "X without a batch": (0, lambda x: x[0]),
}


@pytest.mark.parametrize("op", GATES)
@pytest.mark.parametrize("case", SIZES)
@pytest.mark.parametrize("constant", [(), (1, 2, 3)])
@pytest.mark.parametrize("attributes", [{}, {"clip": 1.0}])
def test_sizes_that_do_not_fit_are_refused(op, case, constant, attributes):
    inputs, (number, change) = _inputs(op), SIZES[case]
    inputs[number] = change(inputs[number])
    model = op_model(op, inputs, OPSET, outputs=OUTPUTS[op], hidden_size=HIDDEN, **attributes)
    model.graph.initializer.extend(numpy_helper.from_array(inputs[i], f"x{i}") for i in constant)
    fed = {f"x{i}": x for i, x in enumerate(inputs) if x is not None and i not in constant}
    with pytest.raises(onnx_torch.Error, match=r"has shape|is of .* units|takes .* features"):
        onnx_torch.prepare(model).run(fed)


@pytest.mark.parametrize("op", GATES)
def test_another_hidden_size_is_refused(op):
    with pytest.raises(onnx_torch.Error, match="R is of 2 units, not of hidden_size"):
        run_op(op, _inputs(op), OPSET, outputs=OUTPUTS[op], hidden_size=3)


def test_peepholes_of_another_size_are_refused():
    inputs = _inputs("LSTM", peepholes=True)
    inputs[7] = inputs[7][:, :-1]
    with pytest.raises(onnx_torch.Error, match="P has shape"):
        run_op("LSTM", inputs, OPSET, outputs=3, hidden_size=HIDDEN)


def _declared(model, inputs, steps):
    """Gives the model with the inputs' sizes declared, and so many steps."""
    declared = onnx.ModelProto()
    declared.CopyFrom(model)
    for info, array in zip(declared.graph.input, inputs, strict=True):
        info.CopyFrom(helper.make_tensor_value_info(info.name, TensorProto.FLOAT, array.shape))
    (first, *_) = declared.graph.input[0].type.tensor_type.shape.dim
    first.CopyFrom(onnx.TensorShapeProto.Dimension(**steps))
    return declared


def _cpu_seconds_to_prepare(model):
    def once():
        start = time.process_time()
        onnx_torch.prepare(model)
        return time.process_time() - start

    return min(once() for _ in range(3))


@pytest.mark.parametrize("op", GATES)
def test_sequences_of_any_length_that_go_step_by_step(op):
    """The sizes are learnt without the steps: preparing takes no longer than for a few steps that are known."""
    inputs = [one for one in _inputs(op) if one is not None]
    model = op_model(op, _inputs(op), OPSET, outputs=OUTPUTS[op], hidden_size=HIDDEN, clip=0.5)
    known, any_length = _declared(model, inputs, {"dim_value": 5}), _declared(model, inputs, {"dim_param": "steps"})
    assert _cpu_seconds_to_prepare(any_length) < 10 * _cpu_seconds_to_prepare(known)
    rep = onnx_torch.prepare(any_length)
    for steps in (0, 1, 7, 300):
        x = np.random.default_rng(steps).uniform(-1, 1, (steps, BATCH, INPUT)).astype(np.float32)
        expected = run_op(op, [x, *_inputs(op)[1:]], OPSET, outputs=OUTPUTS[op], hidden_size=HIDDEN, clip=0.5)
        for found, wanted in zip(rep.run([x, *inputs[1:]]), expected, strict=True):
            np.testing.assert_allclose(found, wanted, rtol=1e-6, atol=1e-6)
