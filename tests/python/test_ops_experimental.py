"""The experimental operators of onnx 1.2 to 1.4, against onnxruntime where it runs them, else numpy and torch."""

import numpy as np
import onnx
import pytest
import torch
from onnx import TensorProto, helper
from onnx.numpy_helper import from_array

import onnx_torch
from models import NEWEST, assert_same, model_of, onnxruntime_op, run_op, tensor_info

X = np.random.default_rng(0).normal(size=(2, 3, 4, 5)).astype(np.float32)
FLOATS = [np.float16, np.float32, np.float64]
OLD = 7  # onnxruntime finds these operators below opset 10

BY_ONNXRUNTIME = [
    ("Affine", {}),
    ("Affine", {"alpha": 2.0, "beta": -1.5}),
    ("Crop", {"border": [1, 0, 1, 2]}),
    ("Crop", {"border": [1, 0, 1, 2], "scale": [3, 2]}),
    ("ImageScaler", {"bias": [1.0, 2.0, -3.0]}),
    ("ImageScaler", {"bias": [1.0, 2.0, -3.0], "scale": 0.5}),
    ("MeanVarianceNormalization", {}),
    ("MeanVarianceNormalization", {"across_channels": 1}),
    ("MeanVarianceNormalization", {"normalize_variance": 0}),
    ("MeanVarianceNormalization", {"across_channels": 1, "normalize_variance": 0}),
    ("ParametricSoftplus", {"alpha": 2.0, "beta": -0.5}),
    ("Scale", {}),
    ("Scale", {"scale": -3.0}),
    ("ScaledTanh", {"alpha": 2.0, "beta": 0.5}),
    ("ThresholdedRelu", {}),
    ("ThresholdedRelu", {"alpha": -0.5}),
]


@pytest.mark.parametrize("op, attributes", BY_ONNXRUNTIME, ids=str)
@pytest.mark.parametrize("opset", [1, 8])
def test_against_onnxruntime(op, attributes, opset):
    expected = onnxruntime_op(op, [X], [TensorProto.FLOAT], OLD, **attributes)
    for element in FLOATS:
        x = X.astype(element)
        tolerance = 2**-9 if element is np.float16 else 1e-5  # two units: a product is rounded, and what is added to it
        assert_same(run_op(op, [x], opset, **attributes), [expected[0].astype(element)], rtol=tolerance, atol=tolerance)


def test_what_onnxruntime_refuses():
    assert_same(run_op("ScaledTanh", [X]), [np.tanh(X)])
    assert_same(run_op("ParametricSoftplus", [X]), [np.log1p(np.exp(X))])
    assert_same(run_op("ImageScaler", [X], scale=2.0), [2 * X])
    assert_same(run_op("Crop", [X]), [X])
    assert_same(run_op("Crop", [X], scale=[2, 3]), [X[:, :, :2, :3]])
    with pytest.raises(onnx_torch.Error, match="smaller than what is cropped"):
        run_op("Crop", [X], scale=[5, 3])
    with pytest.raises(onnx_torch.Error, match="four sides"):
        run_op("Crop", [X], border=[1, 2])


def test_names_that_the_standard_took_over_change_their_meaning():
    """A model of opset 9 has MeanVarianceNormalization-9, which knows other attributes."""
    run_op("MeanVarianceNormalization", [X], 8, across_channels=1)
    with pytest.raises(onnx_torch.Error, match='unknown attribute "across_channels"'):
        run_op("MeanVarianceNormalization", [X], 9, across_channels=1)


@pytest.mark.parametrize("opset", [1, 7, 20, NEWEST])
def test_the_others_run_under_any_opset(opset):
    assert_same(run_op("Affine", [X], opset, beta=1.0), [X + 1])


SLICES = [([1, 0], [2, 3], [0, 1]), ([0, 1], [-1, 1000], None), ([-2], [2**31 - 1], [-1]), ([1], [1], [2])]


@pytest.mark.parametrize("starts, ends, axes", SLICES)
@pytest.mark.parametrize("index", [np.int32, np.int64])
def test_dynamic_slice(starts, ends, axes, index):
    inputs = [X, *(np.array(value, index) for value in (starts, ends, axes) if value is not None)]
    assert_same(run_op("DynamicSlice", inputs), onnxruntime_op("DynamicSlice", inputs, [TensorProto.FLOAT], OLD))
    text = np.array([["a", "b"], ["c", "d"]], dtype=object)
    assert_same(run_op("DynamicSlice", [text, np.array([1], index), np.array([9], index)]), [text[1:]])


# --- Fillers


@pytest.mark.parametrize("dtype", ["FLOAT", "INT32", "INT64", "BOOL"])
def test_constant_fill(dtype):
    element = TensorProto.DataType.Value(dtype)
    numpy_type = helper.tensor_dtype_to_np_dtype(element)
    options = {"value": 2.75, "dtype": element}

    def filled(*shape):
        return [np.full(shape, 2.75).astype(numpy_type)]

    assert_same(run_op("ConstantFill", [], shape=[2, 3], **options), filled(2, 3))
    for like in (X, X.astype(np.int32), X > 0):
        assert_same(run_op("ConstantFill", [like], **options), filled(2, 3, 4, 5))
    assert_same(run_op("ConstantFill", [X[0]], extra_shape=[1, 2], **options), filled(3, 4, 5, 1, 2))
    for shape in (np.array([2, 3]), np.array([2, 3], np.int32), np.array([2, 3], np.float32)):
        assert_same(run_op("ConstantFill", [shape], input_as_shape=1, **options), filled(2, 3))
    y = run_op("ConstantFill", [np.array([2])], input_as_shape=1, extra_shape=[4], **options)
    assert_same(y, filled(2, 4))


def test_constant_fill_is_of_zeros_by_default():
    assert_same(run_op("ConstantFill", [], shape=[3]), [np.zeros(3, np.float32)])


@pytest.mark.parametrize("element", FLOATS)
def test_given_tensor_fill(element):
    values = [1.5, -2.0, 0.25, 4.0]
    expected = [np.array(values, element).reshape(2, 2)]
    like = np.zeros((2, 2), element)
    assert_same(run_op("GivenTensorFill", [like], values=values), expected)
    assert_same(run_op("GivenTensorFill", [like[0]], values=values, extra_shape=[2]), expected)
    assert_same(run_op("GivenTensorFill", [np.array([2, 2], element)], values=values, input_as_shape=1), expected)
    y = run_op("GivenTensorFill", [], values=values, shape=[2, 2])
    assert_same(y, [expected[0].astype(np.float32)])


@pytest.mark.parametrize("op", ["ConstantFill", "GivenTensorFill"])
def test_fillers_check_their_shape(op):
    options = {"values": [1.0]} if op == "GivenTensorFill" else {}
    with pytest.raises(onnx_torch.Error, match="not from both"):
        run_op(op, [X], shape=[1], **options)
    with pytest.raises(onnx_torch.Error, match="extra_shape goes with an input"):
        run_op(op, [], shape=[1], extra_shape=[1], **options)
    with pytest.raises(onnx_torch.Error, match='"shape" is missing'):
        run_op(op, [], **options)


# --- GRUUnit


@pytest.mark.parametrize("drop_states", [None, 0, 1])
@pytest.mark.parametrize("element", FLOATS)
@pytest.mark.parametrize("lengths", [np.int32, np.int64, np.float32])
def test_gru_unit(drop_states, element, lengths):
    rng = np.random.default_rng(1)
    hidden, gates = rng.normal(size=(1, 4, 3)), rng.normal(size=(1, 4, 9))
    seq_lengths, t = np.array([0, 1, 2, 3], lengths), np.array([1], lengths)
    update, output = 1 / (1 + np.exp(-gates[..., 3:6])), np.tanh(gates[..., 6:])
    step = hidden * update + output * (1 - update)
    past = np.zeros_like(hidden) if drop_states else hidden
    expected = np.where((seq_lengths > 1)[:, None], step, past).astype(element)
    options = {} if drop_states is None else {"drop_states": drop_states}
    inputs = [hidden.astype(element), gates.astype(element), seq_lengths, t]
    tolerance = {np.float16: 2**-10, np.float32: 1e-6, np.float64: 1e-14}[element]
    assert_same(run_op("GRUUnit", inputs, **options), [expected], rtol=tolerance, atol=tolerance)
    flat = [inputs[0][0], inputs[1][0], *inputs[2:]]
    assert_same(run_op("GRUUnit", flat, **options), [expected[0]], rtol=tolerance, atol=tolerance)


# --- ATen

DOMAINS = ["", "aten", "org.pytorch.aten"]
M = np.random.default_rng(2).normal(size=(3, 4)).astype(np.float32)
BATCH = torch.from_numpy(M)
ROWS = np.array([2, 0])


def aten(operator, inputs, outputs=1, domain="org.pytorch.aten", **attributes):
    return run_op("ATen", inputs, 1 if domain else 9, domain, outputs, operator=operator, **attributes)


ATEN_CALLS = [
    ("relu", [M], {}, [torch.relu(BATCH)]),
    ("index_select", [M, ROWS], {"dim": 1}, [BATCH[:, [2, 0]]]),
    ("add", [M, M], {"alpha": 2.0}, [BATCH * 3]),
    ("add", [M, M], {}, [BATCH * 2]),
    ("add", [M, M, np.array(3.0, np.float32)], {}, [BATCH * 4]),
    ("pow", [M], {"exponent": 2.0}, [BATCH**2]),
    ("pow", [M], {"exponent": from_array(np.array(2.0, np.float32))}, [BATCH**2]),
    ("mul", [M], {"other": 3, "overload_name": "Scalar"}, [BATCH * 3]),
    ("sum", [M], {}, [BATCH.sum()]),
    ("sum", [M], {"dim": [1], "keepdim": 1}, [BATCH.sum([1], keepdim=True)]),
    ("sum", [M, np.array([0, 1])], {}, [BATCH.sum([0, 1])]),
    ("sum", [M, np.array([1]), np.array(True), None], {"overload_name": "dim_IntList"}, [BATCH.sum([1], keepdim=True)]),
    ("max", [M], {"dim": 1}, [*BATCH.max(1)]),
    ("topk", [M], {"k": 2}, [*BATCH.topk(2)]),
    ("argmax", [M], {"dim": 0}, [BATCH.argmax(0)]),
    ("isnan", [M], {}, [BATCH.isnan()]),
    ("gelu", [M], {"approximate": "tanh"}, [torch.nn.functional.gelu(BATCH, approximate="tanh")]),
    ("cat", [M, M, M], {"dim": 1}, [torch.cat([BATCH] * 3, 1)]),
    ("split", [M], {"split_size": 2, "dim": 1}, [*BATCH.split(2, 1)]),
    ("index", [M, ROWS], {"overload_name": "Tensor"}, [BATCH[[2, 0]]]),
    ("index", [M, None, ROWS], {}, [BATCH[:, [2, 0]]]),
    ("clamp", [M], {"min": -0.5}, [BATCH.clamp(min=-0.5)]),
    ("leaky_relu", [M], {"negative_slope": 1}, [BATCH]),
    (
        "layer_norm",
        [M, M[0], None],
        {"normalized_shape": [4], "eps": 1e-3},
        [torch.layer_norm(BATCH, [4], BATCH[0], None, 1e-3)],
    ),
    ("zeros", [np.array([2, 3])], {"dtype": 4}, [torch.zeros(2, 3, dtype=torch.int64)]),
    ("full_like", [M], {"fill_value": 2.5}, [torch.full_like(BATCH, 2.5)]),
    ("size", [M], {}, [torch.tensor([3, 4])]),
    ("size", [M], {"dim": 1}, [torch.tensor(4)]),
    ("is_floating_point", [M], {}, [torch.tensor(True)]),
    ("item", [M[:1, :1]], {}, [BATCH[0, 0]]),
    ("embedding", [M, ROWS], {"padding_idx": -1, "scale_grad_by_freq": 0, "sparse": 0}, [BATCH[[2, 0]]]),
]


@pytest.mark.parametrize("domain", DOMAINS)
@pytest.mark.parametrize("operator, inputs, attributes, expected", ATEN_CALLS, ids=lambda value: str(value)[:30])
def test_aten(operator, inputs, attributes, expected, domain):
    actual = aten(operator, inputs, len(expected), domain, **attributes)
    assert_same(actual, [value.numpy() for value in expected])


@pytest.mark.parametrize(
    "operator, inputs, attributes, message",
    [
        ("no_such_thing", [M], {}, "torch has no operator aten::no_such_thing"),
        ("relu_", [M], {}, "leaves its arguments as they are"),
        ("add", [M, M], {"overload_name": "Nonsense"}, 'aten::add has no overload "Nonsense"; it has'),
        ("relu", [M, M], {}, r"do not fit\s+aten::relu\(Tensor self\)"),
        ("relu", [M], {"dim": 1}, "do not fit"),
        ("index_select", [M, ROWS], {}, "do not fit"),
        ("index_select", [M, ROWS], {"dim": "0"}, "do not fit"),
    ],
)
def test_aten_says_what_does_not_fit(operator, inputs, attributes, message):
    with pytest.raises(onnx_torch.Error, match=message):
        aten(operator, inputs, **attributes)


def test_aten_needs_an_operator():
    with pytest.raises(onnx_torch.Error, match='required attribute "operator"'):
        run_op("ATen", [M])


def test_an_aten_result_of_another_type_goes_on():
    """The type of the result follows from the operator where shapes are known, else from the model's value infos."""
    nodes = [
        helper.make_node("ATen", ["x"], ["i"], domain="org.pytorch.aten", operator="argmax", dim=1),
        helper.make_node("Add", ["i", "i"], ["y"]),
        helper.make_node("Cast", ["y"], ["z"], to=TensorProto.STRING),
    ]
    for shape, infos in (([3, 4], []), (["n", 4], [tensor_info("i", element=TensorProto.INT64)])):
        model = model_of(nodes, [tensor_info("x", M, shape)], ["z"], value_info=infos)
        model.opset_import.append(helper.make_opsetid("org.pytorch.aten", 1))
        (z,) = onnx_torch.backend.prepare(model).run([M])
        assert z.tolist() == [str(2 * i) for i in M.argmax(1)]


@pytest.mark.filterwarnings("ignore")
def test_aten_as_pytorch_exports_it(tmp_path):
    class Model(torch.nn.Module):
        def forward(self, x):
            values, _ = torch.frexp(x)
            return torch.special.i1e(x) + torch.logcumsumexp(x, 1) + values + torch.renorm(x, 2.0, 0, 1.0)

    path = tmp_path / "fallback.onnx"
    kind = torch.onnx.OperatorExportTypes.ONNX_ATEN_FALLBACK
    torch.onnx.export(Model(), (BATCH,), path, dynamo=False, operator_export_type=kind, opset_version=17)
    assert {node.domain for node in onnx.load(path).graph.node if node.op_type == "ATen"} == {"org.pytorch.aten"}
    assert_same(onnx_torch.backend.prepare(path).run([M]), [Model()(BATCH).numpy()])


def test_every_experimental_operator_is_translated():
    operators = onnx_torch._C.experimental_operators()
    assert len({name for _, name in operators}) == 13
    assert set(operators) <= {(domain, op) for domain, op, since, _ in onnx_torch._C.translation_table() if 1 in since}
