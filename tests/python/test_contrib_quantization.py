"""Operators on int8 and uint8 that onnxruntime adds: with constant scales as files have them, and used wrongly."""

from __future__ import annotations

import re
from typing import Any

import numpy as np
import onnx
import onnxruntime
import pytest
from onnx import helper, numpy_helper, parser

import onnx_torch
from models import on_each_cpu, run_on_cpu
from quantized_models import by_onnxruntime
from type_matrix.contrib.quantization import i8, i32, spread, u8
from type_matrix.making import floats, waves

HALF, QUARTER, ONE = floats(0.5, 0.25, 1)
THREE, FIVE, SEVEN = u8(3, 5, 7)


def model_of(op: str, inputs: list[Any], constants: bool = False, **attributes: Any) -> onnx.ModelProto:
    """Makes a model of a node of com.microsoft; its first input is the model's, and with `constants` no other."""
    names = ["" if value is None else f"x{i}" for i, value in enumerate(inputs)]
    node = helper.make_node(op, names, ["y"], domain="com.microsoft", **attributes)
    values = {name: np.asarray(value) for name, value in zip(names, inputs, strict=True) if name}
    infos = {
        name: helper.make_tensor_value_info(name, helper.np_dtype_to_tensor_dtype(value.dtype), value.shape)
        for name, value in values.items()
    }
    free = names[:1] if constants else list(values)
    graph = helper.make_graph(
        [node],
        op,
        [infos[name] for name in free],
        [onnx.ValueInfoProto(name="y")],
        [numpy_helper.from_array(value, name) for name, value in values.items() if name not in free],
    )
    imports = [helper.make_opsetid("", 21), helper.make_opsetid("com.microsoft", 1)]
    return helper.make_model(graph, opset_imports=imports, ir_version=10)


IMAGES = spread(2, 3, 7, 6)
BYTES = np.arange(256, dtype=np.uint8)
MATRIX = spread(4, 6)
SCALES = [floats(0.021)[0], u8(9)[0], floats(0.033)[0], u8(101)[0]]

# The operator, its inputs, its attributes, and a call that its graph has.
CONSTANT = [
    ("QLinearLeakyRelu", [BYTES, *SCALES], {"alpha": 0.1}, "look_up"),
    ("QLinearSigmoid", [BYTES, *SCALES[:2], floats(1 / 256)[0], u8(0)[0]], {}, "look_up"),
    ("QLinearSoftmax", [IMAGES, *SCALES[:2], floats(1 / 256)[0], u8(0)[0]], {"opset": 13}, "softmax"),
    (
        "QLinearAdd",
        [IMAGES, *SCALES[:2], IMAGES[:, :, ::-1].copy(), *SCALES[2:], floats(0.041)[0], u8(55)[0]],
        {},
        "quantize",
    ),
    (
        "QLinearMul",
        [IMAGES, *SCALES[:2], IMAGES[:, :, ::-1].copy(), *SCALES[2:], floats(0.41)[0], u8(55)[0]],
        {},
        "quantized_mul",
    ),
    ("QLinearAveragePool", [IMAGES, *SCALES], {"kernel_shape": [3, 2]}, "average_pool"),
    ("QLinearGlobalAveragePool", [IMAGES, *SCALES], {}, "image_sums"),
    ("QLinearAveragePool", [IMAGES, *SCALES], {"kernel_shape": [7, 6]}, "image_sums"),
    (
        "QLinearConv",
        [
            IMAGES,
            *SCALES[:2],
            spread(5, 3, 3, 3),
            floats(0.013)[0],
            FIVE,
            floats(6.1)[0],
            SEVEN,
            i32(9, -90, 900, 0, 7),
        ],
        {"pads": [1, 1, 1, 1]},
        "scaled_integer_product",
    ),
    (
        "QLinearConv",
        [
            np.moveaxis(IMAGES, 1, -1).copy(),
            *SCALES[:2],
            spread(5, 3, 3, 3),
            floats(0.013)[0],
            FIVE,
            floats(6.1)[0],
            SEVEN,
        ],
        {"channels_last": 1},
        "scaled_integer_product",
    ),
    (
        "QGemm",
        [MATRIX, *SCALES[:2], spread(6, 5, dtype=np.int8), floats(0.01, 0.02, 0.03, 0.04, 0.05), i8(0, 0, 0, 0, 0)]
        + [i32(9, -90, 900, 0, 7), floats(3.7)[0], SEVEN],
        {},
        "integer_product",
    ),
    (
        "MatMulIntegerToFloat",
        [MATRIX, spread(6, 5), HALF, QUARTER, THREE, FIVE, floats(1, 2, 3, 4, 5)],
        {},
        "scaled_integer_product",
    ),
    (
        "DynamicQuantizeMatMul",
        [waves(4, 6), spread(6, 5), QUARTER, FIVE, floats(1, 2, 3, 4, 5)],
        {},
        "scaled_integer_product",
    ),
]


@pytest.mark.parametrize(
    "op, inputs, attributes, call", CONSTANT, ids=[f"{case[0]}-{i}" for i, case in enumerate(CONSTANT)]
)
def test_with_constants(op, inputs, attributes, call):
    """The passes see what they see in models of the standard's operators, and the results stay the kernel's."""
    model = model_of(op, inputs, constants=True, **attributes)
    [wanted] = by_onnxruntime(model, [inputs[0]])
    for optimize in (True, False):
        [y] = onnx_torch.prepare(model, optimize=optimize).run([inputs[0]])
        assert y.dtype == wanted.dtype
        if y.dtype == np.float32:
            np.testing.assert_allclose(y, wanted, rtol=1e-6)
        else:
            np.testing.assert_array_equal(y, wanted)
    assert f"onnx_torch::{call}(" in (graph := onnx_torch.prepare(model).graph()) or f"aten::{call}(" in graph


@on_each_cpu
@pytest.mark.parametrize("dtype", [np.uint8, np.int8])
@pytest.mark.parametrize("channels_last", [0, 1])
@pytest.mark.parametrize("sizes", [(2, 3, 7, 7), (1, 300, 13, 11), (1, 2, 40, 50)])
def test_images_are_summed_up_exactly(capability, sizes, channels_last, dtype, tmp_path):
    x = spread(*sizes, dtype=dtype)
    x[0, 0], x[0, 1] = np.iinfo(dtype).max, np.iinfo(dtype).min
    x = np.moveaxis(x, 1, -1).copy() if channels_last else x
    scales = [floats(0.021)[0], dtype(9), floats(0.033)[0], dtype(-5 if dtype is np.int8 else 101)]
    model = model_of("QLinearGlobalAveragePool", [x, *scales], constants=True, channels_last=channels_last)
    assert "onnx_torch::image_sums(" in onnx_torch.prepare(model).graph()
    for y in run_on_cpu(capability, model, [x], tmp_path):
        np.testing.assert_array_equal(y, by_onnxruntime(model, [x])[0])


@pytest.mark.parametrize("size", [1 << 23, (1 << 23) + 1])
def test_images_whose_sums_need_more_than_32_bits(size):
    x = np.full((1, 2, size), 255, np.uint8)
    model = model_of("QLinearGlobalAveragePool", [x, ONE, u8(0)[0], ONE, u8(0)[0]], constants=True)
    np.testing.assert_array_equal(onnx_torch.prepare(model).run([x])[0], np.full((1, 2, 1), 255))


def test_images_that_lie_in_no_order_of_the_kernels():
    """The image is a transposed view, in runs by the interpreter and by a plan; the zero point comes with the run."""
    text = """<ir_version: 10, opset_import: ["": 21, "com.microsoft": 1]>
        net (uint8[3, 5, 2, 4] x, uint8 z) => (uint8[2, 5, 1, 1] y) {
            t = Transpose<perm = [2, 1, 0, 3]>(x) y = com.microsoft.QLinearGlobalAveragePool(t, s, z, s, z)
        }"""
    model = parser.parse_model(text)
    model.graph.initializer.append(numpy_helper.from_array(np.asarray(HALF), "s"))
    prepared, x = onnx_torch.prepare(model), spread(3, 5, 2, 4)
    for z in u8(0, 9, 255, 3):
        steps = x.transpose(2, 1, 0, 3).astype(np.float32) - z
        expected = np.rint(steps.mean((2, 3), keepdims=True)) + z
        np.testing.assert_array_equal(prepared.run([x, z])[0], np.clip(expected, 0, 255))


def test_a_sum_of_bytes_is_one_operator():
    """The operator has the kernel's zero point, of which the part of both tensors is a constant in float."""
    node = helper.make_node("QLinearAdd", ["a", "s", "z", "b", "t", "u", "r", "v"], ["y"], domain="com.microsoft")
    parameters = zip("szturv", [*SCALES, floats(0.041)[0], u8(55)[0]], strict=True)
    graph = helper.make_graph(
        [node],
        "sum",
        [helper.make_tensor_value_info(name, onnx.TensorProto.UINT8, IMAGES.shape) for name in "ab"],
        [onnx.ValueInfoProto(name="y")],
        [numpy_helper.from_array(np.asarray(value), name) for name, value in parameters],
    )
    imports = [helper.make_opsetid("", 21), helper.make_opsetid("com.microsoft", 1)]
    model = helper.make_model(graph, opset_imports=imports, ir_version=10)
    prepared = onnx_torch.prepare(model)
    feeds = {"a": IMAGES, "b": IMAGES[:, :, ::-1].copy()}
    session = onnxruntime.InferenceSession(model.SerializeToString(), providers=["CPUExecutionProvider"])
    np.testing.assert_array_equal(prepared.run(list(feeds.values()))[0], session.run(None, feeds)[0])
    assert "onnx_torch::quantized_add(" in prepared.graph()


def test_tensors_of_constant_scales_are_joined_without_passes():
    """The type of the list has nothing of what is known of the first tensor's shape."""
    text = """<ir_version: 10, opset_import: ["": 21, "com.microsoft": 1]>
        net (uint8[2, 3] a, uint8[2, 3] b) => (uint8[2, 6] y) {
            y = com.microsoft.QLinearConcat<axis = 1>(s, z, a, s, z, b, r, u)
        }"""
    model = parser.parse_model(text)
    for name, value in {"s": HALF, "z": THREE, "r": ONE, "u": FIVE}.items():
        model.graph.initializer.append(numpy_helper.from_array(np.asarray(value), name))
    a, b = spread(2, 3), spread(2, 3)[::-1].copy()
    [y] = onnx_torch.prepare(model, optimize=False).run([a, b])
    np.testing.assert_array_equal(y, np.concatenate([a, np.clip((b.astype(int) - 5) * 2 + 3, 0, 255)], 1))


def test_lstm_with_constants():
    """Both products of a step take int8 or uint8."""
    inputs = [waves(4, 1, 5), spread(1, 5, 12), spread(1, 3, 12), waves(1, 24), None, None, None, None]
    inputs += [floats(0.004), u8(100), floats(0.003), u8(90)]
    model = model_of("DynamicQuantizeLSTM", inputs, constants=True, hidden_size=3)
    prepared = onnx_torch.prepare(model)
    np.testing.assert_allclose(prepared.run([inputs[0]])[0], by_onnxruntime(model, [inputs[0]])[0], rtol=0, atol=1e-6)
    assert len(re.findall(r"onnx_torch::scaled_integer_product\(", prepared.graph())) == 2


def lstm(**changes: Any) -> tuple[str, list[Any], dict[str, Any]]:
    given = {
        "X": waves(4, 1, 5),
        "W": spread(1, 5, 12),
        "R": spread(1, 3, 12),
        "W_scale": floats(0.004),
        "zero": u8(100),
        "attributes": {"hidden_size": 3},
    } | changes
    inputs = [given["X"], given["W"], given["R"], None, None, None, None, None]
    return "DynamicQuantizeLSTM", [*inputs, given["W_scale"], given["zero"], floats(0.003), u8(90)], given["attributes"]


def concat(*inputs: Any) -> tuple[str, list[Any], dict[str, Any]]:
    return "QLinearConcat", [ONE, THREE, *inputs], {"axis": 0}


WRONG = [
    (*concat(MATRIX, ONE), "numbers, a scale and a zero point for each tensor"),
    (*concat(waves(4, 6), ONE, THREE), "the inputs from 2 on are not numbers, a scale and a zero point"),
    (*concat(MATRIX, THREE, THREE), "the inputs from 2 on are not numbers, a scale and a zero point"),
    (*concat(MATRIX, ONE, i8(3)[0]), "the inputs from 2 on are not numbers, a scale and a zero point"),
    (*concat(MATRIX, ONE, THREE, MATRIX[:, :5], ONE, THREE), "Sizes of tensors must match"),
    ("QLinearAdd", [MATRIX, floats(1, 2), THREE, MATRIX, ONE, THREE, ONE], {}, "invalid for input of size 2"),
    ("QLinearMul", [MATRIX, ONE, u8(1, 2), MATRIX, ONE, THREE, ONE], {}, "invalid for input of size 2"),
    ("QLinearAdd", [MATRIX, ONE, THREE, MATRIX[:3], ONE, THREE, ONE], {}, "must match the size"),
    ("QLinearSoftmax", [MATRIX, ONE, THREE, ONE, THREE], {"opset": 13, "axis": 2}, "out of range"),
    ("QLinearGlobalAveragePool", [MATRIX, ONE, THREE, ONE, THREE], {}, "images have at least 3 dimensions, not 2"),
    ("QLinearGlobalAveragePool", [MATRIX[0], ONE, THREE, ONE, THREE], {"channels_last": 1}, "images|out of range"),
    ("QLinearAveragePool", [IMAGES, ONE, THREE, ONE, THREE], {"kernel_shape": [9, 9]}, "[Oo]utput size|too small"),
    ("QLinearAveragePool", [IMAGES, ONE, THREE, ONE, THREE], {"kernel_shape": [2]}, "has 4 dimensions, not 3"),
    ("QLinearAveragePool", [IMAGES, ONE, THREE, ONE, THREE], {"kernel_shape": [2, -1]}, "kernel_shape"),
    ("QLinearConv", [IMAGES, ONE, THREE, spread(5, 2, 3, 3), ONE, THREE, ONE, THREE], {}, "channels"),
    (
        "QLinearConv",
        [MATRIX[0], ONE, THREE, spread(5, 3, 3, 3), ONE, THREE, ONE, THREE],
        {"channels_last": 1},
        "Dimension out of range",
    ),
    ("QGemm", [MATRIX, ONE, THREE, MATRIX, ONE, THREE], {}, "cannot be multiplied"),
    ("QGemm", [MATRIX, ONE, THREE, MATRIX, ONE, THREE, i32(1, 2, 3)], {"transB": 1}, "must match the size"),
    ("QGemm", [IMAGES, ONE, THREE, MATRIX, ONE, THREE], {"transA": 1}, "t\\(\\) expects a tensor with <= 2 dimensions"),
    ("MatMulIntegerToFloat", [MATRIX, MATRIX, ONE, ONE], {}, "cannot be multiplied"),
    ("MatMulIntegerToFloat", [MATRIX, MATRIX.T.copy(), floats(1, 2, 3), ONE], {}, "must match the size"),
    ("DynamicQuantizeMatMul", [waves(4, 6), MATRIX, ONE], {}, "cannot be multiplied"),
    ("DynamicQuantizeMatMul", [waves(0, 4), MATRIX, ONE], {}, "an empty tensor has no range"),
    ("ReduceSumInteger", [MATRIX], {"axes": [2], "keepdims": 1}, "out of range"),
    (*lstm(W=spread(1, 4, 12)), "W takes 4 features"),
    (*lstm(R=spread(1, 2, 12)), "R is of 2 units, not of hidden_size"),
    (*lstm(R=spread(1, 3, 11)), "R has shape"),
    (*lstm(W_scale=floats(1, 2, 3)[None]), "must match the size"),
    (*lstm(zero=u8(1, 2, 3)[None]), "must match the size"),
    (*lstm(attributes={"hidden_size": 4}), "not of hidden_size"),
    (*lstm(attributes={"hidden_size": 3, "direction": "sideways"}), "there is no direction"),
    (*lstm(attributes={"hidden_size": 3, "direction": "bidirectional"}), "R has shape|index 1 out of range"),
    (*lstm(attributes={"hidden_size": 3, "activations": ["Sine", "Tanh", "Tanh"]}), "there is no activation"),
    ("QuantizeWithOrder", [waves(4, 6), ONE], {"order_input": 1, "order_output": 7}, "there is no order 7"),
    ("QuantizeWithOrder", [waves(4, 6), ONE], {"order_input": 1, "order_output": 2}, "do not make tiles of 32"),
    ("DequantizeWithOrder", [i8(1, 2), ONE], {"order_input": 1, "order_output": 1, "to": 6}, "allowed are"),
    (
        "QOrderedMatMul",
        [spread(2, 3, dtype=np.int8), ONE, spread(3, 2, dtype=np.int8), ONE, ONE],
        {"order_A": 1, "order_B": 0, "order_Y": 2},
        "in the orders 1 and 2",
    ),
    (
        "QOrderedMatMul",
        [spread(2, 3, dtype=np.int8), ONE, spread(3, 2, dtype=np.int8), ONE, ONE, None, spread(2, 2, dtype=np.int8)],
        {"order_A": 1, "order_B": 0, "order_Y": 1},
        "C has no scale",
    ),
]


@pytest.mark.parametrize("constants", [False, True], ids=["inputs", "constants"])
@pytest.mark.parametrize(
    "op, inputs, attributes, message", WRONG, ids=[f"{case[0]}-{i}" for i, case in enumerate(WRONG)]
)
def test_wrong_use(op, inputs, attributes, message, constants):
    model = model_of(op, inputs, constants, **attributes)
    values = [inputs[0]] if constants else [value for value in inputs if value is not None]
    with pytest.raises(onnx_torch.Error, match=message):
        onnx_torch.prepare(model).run(values)
