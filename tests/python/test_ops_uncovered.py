"""The operators outside ai.onnx.ml that no official node test covers, but for the random ones (test_ops_random.py):
ConcatFromSequence, SequenceErase, GlobalLpPool, MaxRoiPool, Gradient."""

import ml_dtypes
import numpy as np
import onnx
import pytest
import torch
from onnx import TensorProto, helper
from onnx.reference import ReferenceEvaluator

import onnx_torch
from models import NEWEST, assert_same, model_of, onnxruntime_op, run_op, tensor_info
from random_numbers import RNG

NUMBERS = "uint8 uint16 uint32 uint64 int8 int16 int32 int64 float16 float32 float64 bool complex64 complex128".split()


def items(dtype, *shapes):
    for shape in shapes:
        x = RNG.integers(0, 2 if dtype == "bool" else 100, shape)
        yield x.astype(str).astype(object) if dtype == "object" else x.astype(dtype)


# --- Sequences


def sequence_model(op, sequence, inputs, opset=NEWEST, **attributes):
    element = tensor_info("", sequence[0]).type.tensor_type.elem_type
    node = helper.make_node(op, ["s", *(f"x{i}" for i in range(len(inputs)))], ["y"], **attributes)
    infos = [helper.make_tensor_sequence_value_info("s", element, None)]
    infos += [tensor_info(f"x{i}", x) for i, x in enumerate(inputs)]
    return model_of([node], infos, ["y"], opset)


def run_sequence_op(op, sequence, inputs=(), **options):
    return onnx_torch.backend.prepare(sequence_model(op, sequence, inputs, **options)).run([sequence, *inputs])[0]


def reference_sequence_op(op, sequence, inputs=(), **options):
    feeds = {"s": sequence, **{f"x{i}": x for i, x in enumerate(inputs)}}
    return ReferenceEvaluator(sequence_model(op, sequence, inputs, **options)).run(None, feeds)[0]


@pytest.mark.parametrize("dtype", [*NUMBERS, "object"])
@pytest.mark.parametrize("opset", [11, NEWEST])
def test_concat_from_sequence(dtype, opset):
    alike = list(items(dtype, *[(2, 3)] * 3))
    for axis in range(-2, 2):
        expected = reference_sequence_op("ConcatFromSequence", alike, axis=axis)
        assert_same([run_sequence_op("ConcatFromSequence", alike, axis=axis, opset=opset)], [expected])
    for axis in range(-3, 3):
        expected = [np.stack(alike, axis)]
        assert_same([run_sequence_op("ConcatFromSequence", alike, axis=axis, new_axis=1, opset=opset)], expected)
    unlike = list(items(dtype, (1, 3), (0, 3), (4, 3)))
    assert_same([run_sequence_op("ConcatFromSequence", unlike, axis=0)], [np.concatenate(unlike)])


@pytest.mark.parametrize("dtype", [*NUMBERS, "object"])
def test_sequence_erase(dtype):
    sequence = list(items(dtype, (2, 3), (), (0,), (4,)))
    for index in (np.int32, np.int64):
        for position in range(-4, 4):
            at = [np.array(position, index)]
            expected = reference_sequence_op("SequenceErase", sequence, at)
            assert_same(run_sequence_op("SequenceErase", sequence, at), expected)
    assert_same(run_sequence_op("SequenceErase", sequence), sequence[:-1])
    with pytest.raises(onnx_torch.Error, match="SequenceErase"):
        run_sequence_op("SequenceErase", sequence, [np.array(4)])


# --- Pools


def tolerance(element):
    return {"float16": 2e-3, "bfloat16": 2e-2}.get(np.dtype(element).name, 1e-5)


@pytest.mark.parametrize("element", [np.float16, np.float32, np.float64, ml_dtypes.bfloat16])
@pytest.mark.parametrize("p", [None, 1, 2, 3, 7])
@pytest.mark.parametrize("opset", [1, 2, 22])
def test_global_lp_pool(element, p, opset):
    x = RNG.normal(size=(2, 3, 4, 5)).astype(element)
    expected = (np.abs(x.astype(np.float64)) ** (p or 2)).sum((2, 3), keepdims=True) ** (1 / (p or 2))
    attributes = {} if p is None else {"p": float(p) if opset == 1 else p}
    rtol = tolerance(element)
    assert_same(run_op("GlobalLpPool", [x], opset, **attributes), [expected.astype(element)], rtol=rtol)


def test_global_lp_pool_against_onnxruntime():
    x = RNG.normal(size=(2, 3, 4, 5)).astype(np.float32)
    assert_same(run_op("GlobalLpPool", [x], p=3), onnxruntime_op("GlobalLpPool", [x], [TensorProto.FLOAT], p=3))


@pytest.mark.parametrize("element", [np.float16, np.float32, np.float64, ml_dtypes.bfloat16])
@pytest.mark.parametrize("options", [{}, {"spatial_scale": 0.5}], ids=str)
@pytest.mark.parametrize("opset", [1, 22])
def test_max_roi_pool(element, options, opset):
    x = RNG.integers(-99, 99, size=(2, 3, 9, 8)).astype(element)
    rois = np.array([[0, 1, 2, 5, 7], [1, 0, 0, 7, 8], [1, 3, 3, 3, 3]]).astype(element)
    options = {"pooled_shape": [2, 3], **options}
    expected = onnxruntime_op(
        "MaxRoiPool", [x.astype(np.float32), rois.astype(np.float32)], [TensorProto.FLOAT], **options
    )
    actual = run_op("MaxRoiPool", [x, rois], opset, **options)
    assert_same(actual, [expected[0].astype(element)])


# --- Gradient

TRAINING = "ai.onnx.preview.training"


def gradient_of(nodes, feeds, y, xs, zs=(), more=()):
    """Gives what Gradient makes of the nodes, or what the last of the nodes that follow makes of that."""
    slopes = [f"d{x}" for x in xs]
    attributes = {"y": y, "xs": list(xs)} | ({"zs": list(zs)} if zs else {})
    node = helper.make_node("Gradient", [*xs, *zs], slopes, domain=TRAINING, **attributes)
    outputs = [more[-1].output[0]] if more else slopes
    model = model_of([*nodes, node, *more], [tensor_info(name, x) for name, x in feeds.items()], outputs)
    model.opset_import.append(helper.make_opsetid(TRAINING, 1))
    return onnx_torch.backend.prepare(model).run(feeds)


def torch_gradient(function, *xs):
    leaves = [torch.from_numpy(x).requires_grad_() for x in xs]
    return [slope.numpy() for slope in torch.autograd.grad(function(*leaves).sum(), leaves)]


@pytest.mark.parametrize("element", [np.float16, np.float32, np.float64])
def test_gradient_by_some_inputs(element):
    w, x, b = (RNG.normal(size=size).astype(element) for size in ((3, 4), (4, 2), (2,)))
    nodes = [
        helper.make_node("MatMul", ["w", "x"], ["m"]),
        helper.make_node("Add", ["m", "b"], ["a"]),
        helper.make_node("Tanh", ["a"], ["y"]),
    ]
    expected = torch_gradient(lambda w, x, b: torch.tanh(w @ x + b), w, x, b)
    rtol = tolerance(element) * 10
    feeds = {"w": w, "x": x, "b": b}
    assert_same(gradient_of(nodes, feeds, "y", ["w", "x", "b"]), expected, rtol=rtol, atol=rtol)
    assert_same(gradient_of(nodes, feeds, "y", ["w", "b"], ["x"]), [expected[0], expected[2]], rtol=rtol, atol=rtol)


def test_gradient_by_an_intermediate_value():
    x = RNG.normal(size=(5,)).astype(np.float32)
    nodes = [helper.make_node("Exp", ["x"], ["e"]), helper.make_node("Mul", ["e", "e"], ["y"])]
    assert_same(gradient_of(nodes, {"x": x}, "y", ["e"], ["x"]), [2 * np.exp(x)])


def test_gradient_of_a_gradient():
    x = np.array([2.0, -3.0], np.float32)
    cube = [helper.make_node("Mul", ["x", "x"], ["s"]), helper.make_node("Mul", ["s", "x"], ["y"])]
    again = helper.make_node("Gradient", ["x"], ["ddx"], domain=TRAINING, y="dx", xs=["x"])
    assert_same(gradient_of(cube, {"x": x}, "y", ["x"], more=[again]), [6 * x])


def test_gradient_by_what_the_result_does_not_depend_on():
    x, z = np.ones(3, np.float32), np.ones(2, np.float32)
    nodes = [helper.make_node("Neg", ["x"], ["y"])]
    assert_same(gradient_of(nodes, {"x": x, "z": z}, "y", ["x", "z"]), [-x, np.zeros(2, np.float32)])


def test_gradient_with_inputs_of_other_types():
    """T1 has every type: indices, conditions and text may stand among zs."""
    x, i, c = RNG.normal(size=(4,)).astype(np.float32), np.array([1, 1, 3]), np.array([True, False, True])
    nodes = [helper.make_node("Gather", ["x", "i"], ["g"]), helper.make_node("Where", ["c", "g", "zero"], ["y"])]
    zero = helper.make_node("Constant", [], ["zero"], value_float=0.0)
    feeds = {"x": x, "i": i, "c": c, "t": np.array(["text"], dtype=object)}
    assert_same(gradient_of([zero, *nodes], feeds, "y", ["x"], ["i", "c", "t"]), [np.array([0, 1, 0, 1], np.float32)])


def test_gradient_of_what_is_not_there():
    with pytest.raises(onnx_torch.Error, match='nothing defines the value "q"'):
        gradient_of([helper.make_node("Neg", ["x"], ["y"])], {"x": np.ones(2, np.float32)}, "q", ["x"])


def test_these_are_their_versions():
    """A new version needs a look."""
    versions = {}
    for schema in onnx.defs.get_all_schemas_with_history():
        versions.setdefault(schema.name, []).append(schema.since_version)
    names = ["ConcatFromSequence", "SequenceErase", "GlobalLpPool", "MaxRoiPool", "Gradient"]
    assert [sorted(versions[name]) for name in names] == [[11], [11], [1, 2, 22], [1, 22], [1]]
