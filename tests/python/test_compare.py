"""Tests of where two engines part."""

import ml_dtypes
import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

import onnx_torch
from models import model_of, tensor_info
from onnx_torch.comparison import deviation

X = np.array([[-1.0, 0.5, 2.0]], np.float32)


def chain(opset=21):
    """Makes a model of four nodes, one of which computes on a shape."""
    nodes = [
        helper.make_node("Relu", ["x"], ["r"], name="first"),
        helper.make_node("Shape", ["r"], ["s"]),
        helper.make_node("MatMul", ["r", "w"], ["m"], name="product"),
        helper.make_node("Reshape", ["m", "s"], ["y"]),
    ]
    weight = numpy_helper.from_array(np.eye(3, dtype=np.float32), "w")
    inputs = [tensor_info("x", element=TensorProto.FLOAT, shape=["batch", 3])]
    model = model_of(nodes, inputs, ["y"], opset=opset, initializer=[weight])
    model.ir_version = 10  # onnxruntime knows no newer one
    return model


def engine(change=None, missing=(), only_whole=False):
    """Gives onnx_torch as an engine, with some values changed or kept back."""

    def values(model, feeds, names):
        found = onnx_torch.prepare(model).intermediates(feeds, names)
        if change and (not only_whole or list(names) == [output.name for output in model.graph.output]):
            found.update({name: change[name](value) for name, value in found.items() if name in change})
        return {name: value for name, value in found.items() if name not in missing}

    return values


@pytest.mark.parametrize("other", ["unoptimised", "reference", "onnxruntime", "onnx_torch@CPU", "unoptimised@cpu"])
def test_engines_agree(other):
    found = onnx_torch.compare(chain(), engines=("onnx_torch", other), shapes={"batch": 2})
    assert found and found.difference is None and found.compared == 4
    assert str(found) == f"onnx_torch and {other} agree on 4 values"


@pytest.mark.parametrize("at_once", [1, 3, 256])
def test_the_first_node_that_differs_is_named(at_once):
    odd = engine({"m": lambda m: m + np.float32(0.25), "y": lambda y: y * 2})
    steps = []
    found = onnx_torch.compare(
        chain(), [X], ("reference", odd), at_once=at_once, progress=lambda done, of: steps.append((done, of))
    )
    assert not found
    assert (found.difference.number, found.difference.op_type, found.difference.node_name) == (2, "MatMul", "product")
    assert found.difference.value == "m"
    assert found.difference.deviation.max_abs == 0.25
    assert found.difference.deviation.count == 3
    assert found.difference.inputs_agree
    assert [(i.name, i.type) for i in found.difference.inputs] == [
        ("r", "float32 [1, 3]"),
        ("w", "float [3, 3], a weight"),
    ]
    assert 'differ first in node 2, MatMul "product", in its output "m":' in str(found)
    assert steps[-1] == ({1: 3, 3: 3, 256: 4}[at_once], 4)


def test_a_difference_within_the_tolerance_is_told_with_the_node_it_leads_to():
    odd = engine({"r": lambda r: r + np.float32(1e-6), "m": lambda m: m + 1})
    found = onnx_torch.compare(chain(), [X], ("reference", odd))
    assert found.difference.value == "m" and not found.difference.inputs_agree
    assert "the same but for" in str(found)


def test_a_node_that_passes_a_difference_on_is_told_apart():
    nodes = [helper.make_node("Relu", ["x"], ["r"]), helper.make_node("Sub", ["r", "big"], ["y"])]
    weight = numpy_helper.from_array(np.float32([1000]), "big")
    model = model_of(nodes, [tensor_info("x", X)], ["y"], initializer=[weight])
    odd = engine({"r": lambda r: r + np.float32(0.5), "y": lambda y: y + np.float32(0.5)})
    feeds = [np.float32([999, 1000.5])]
    found = onnx_torch.compare(model, feeds, ("onnx_torch", odd))
    assert found.difference.value == "y" and found.difference.passed_on
    assert "its inputs differ as much" in str(found)


def test_a_value_that_one_engine_lacks_is_not_compared():
    found = onnx_torch.compare(chain(), [X], ("reference", engine(missing=["r"])))
    assert found and found.not_compared == ("r",) and found.compared == 3


def test_a_difference_of_the_whole_run_only_is_found():
    odd = engine({"y": lambda y: y + 1}, only_whole=True)
    found = onnx_torch.compare(chain(), [X], ("onnx_torch", odd))
    assert found.difference.only_whole and found.difference.op_type == "Reshape"
    assert "no inner value is asked for" in str(found)


def test_external_data_is_found_by_every_engine(tmp_path):
    onnx.save(chain(), tmp_path / "m.onnx", save_as_external_data=True, location="w.bin", size_threshold=0)
    for other in ("unoptimised", "reference", "onnxruntime"):
        assert onnx_torch.compare(tmp_path / "m.onnx", engines=("onnx_torch", other)).compared == 4


def test_unoptimised_runs_what_is_not_a_tensor():
    body = helper.make_graph(
        [helper.make_node("Add", ["c", "x"], ["c2"]), helper.make_node("Identity", ["cond"], ["cond2"])],
        "body",
        [tensor_info("i", element=7, shape=[]), tensor_info("cond", element=9, shape=[]), tensor_info("c", element=1)],
        [tensor_info("cond2", element=9, shape=[]), tensor_info("c2", element=1)],
    )
    nodes = [
        helper.make_node("SequenceConstruct", ["x", "x"], ["q"]),
        helper.make_node("SequenceAt", ["q", "n"], ["at"]),
        helper.make_node("Loop", ["n", "", "at"], ["looped"], body=body),
        helper.make_node("Optional", ["looped"], ["o"]),
        helper.make_node("OptionalGetElement", ["o"], ["got"]),
        helper.make_node("Double", ["got"], ["y"], domain="mine"),
    ]
    inputs = [tensor_info("x", element=TensorProto.FLOAT, shape=[1, 3]), tensor_info("n", element=7, shape=[])]
    model = model_of(nodes, inputs, ["y"])
    model.opset_import.append(helper.make_opsetid("mine", 1))
    double = [helper.make_node("Add", ["a", "a"], ["b"])]
    model.functions.append(helper.make_function("mine", "Double", ["a"], ["b"], double, model.opset_import[:1]))
    found = onnx_torch.compare(model, {"x": X, "n": np.array(1)}, ("onnx_torch", "unoptimised"))
    assert found and found.compared == 6 and not found.not_compared


@pytest.mark.parametrize(
    "a, b, count, max_abs",
    [
        (np.float32([1, np.nan, np.inf]), np.float32([1, np.nan, np.inf]), 0, 0),
        (np.float32([1, np.nan]), np.float32([1, 2]), 1, np.inf),
        (np.float32([np.inf, 2]), np.float32([-np.inf, 2]), 1, np.inf),
        (np.int64([2**62, 1]), np.int64([-(2**62), 1]), 1, 2.0**63),
        (np.array([1, 3], ml_dtypes.int4), np.array([1, -3], ml_dtypes.int4), 1, 6),
        (np.array([1, 2], ml_dtypes.bfloat16), np.array([1, 2.5], ml_dtypes.bfloat16), 1, 0.5),
        (np.complex64([1j]), np.complex64([-1j]), 1, 2),
        (np.float64([1000, 0.25]), np.float64([1000, 0]), 0, 0.25),  # little beside the others
        (np.float64([1, 0.25]), np.float64([1, 0]), 1, 0.25),
        (np.float64([np.inf, 0.25]), np.float64([np.inf, 0]), 1, 0.25),
        (np.array([True, False]), np.array([True, True]), 1, 0),
        (np.array(["a", "b"], object), np.array(["a", "c"]), 1, 0),
        ([np.float32([1])], [np.float32([3])], 1, 2),
        ({"k": np.float32(1)}, {"k": np.float32(1)}, 0, 0),
        (None, None, 0, 0),
    ],
)
def test_how_far_values_are_apart(a, b, count, max_abs):
    found = deviation(a, b, rtol=1e-3, atol=1e-5)  # what compare() takes by itself
    assert (found.count, found.max_abs) == (count, max_abs)
    assert found.differs == bool(count)


@pytest.mark.parametrize(
    "a, b, reason",
    [
        (np.zeros(3, np.float32), np.zeros((3, 1), np.float32), "float32 [3] against float32 [3, 1]"),
        (np.zeros(0, np.float32), np.zeros(0, np.float64), "float32 [0] against float64 [0]"),
        ([1.0], [1.0, 2.0], "sequence of 1 against sequence of 2"),
        ({"a": 1.0}, {"b": 1.0}, "keys"),
        (None, np.zeros(1), "absent"),
    ],
)
def test_why_values_cannot_be_compared(a, b, reason):
    found = deviation(a, b, rtol=1e-3, atol=1e-5)  # what compare() takes by itself
    assert found.differs and reason in str(found)


@pytest.mark.parametrize("engines, said", [(("onnx_torch",), "two engines"), (("onnx_torch", "tvm"), "no engine")])
def test_engines_that_are_not_there(engines, said):
    with pytest.raises(onnx_torch.InputError, match=said):
        onnx_torch.compare(chain(), engines=engines)


def test_what_another_engine_cannot_do_is_its_error():
    model = model_of([helper.make_node("Nope", ["x"], ["y"], domain="none")], [tensor_info("x", X)], ["y"])
    model.opset_import.append(helper.make_opsetid("none", 1))
    with pytest.raises(onnx_torch.Error, match="onnxruntime: "):
        onnx_torch.compare(model, [X], (lambda model, feeds, names: {}, "onnxruntime"))


# --- Random inputs ----------------------------------------------------------------------------------------------------


def test_random_inputs_are_the_same_for_a_seed_and_fill_in_what_is_missing():
    inputs = [
        tensor_info("a", element=TensorProto.FLOAT, shape=["n", 2]),
        tensor_info("b", element=8, shape=["n", "k"]),
    ]
    model = model_of([helper.make_node("Relu", ["a"], ["y"])], inputs, ["y"])
    one, two = onnx_torch.random_inputs(model, seed=3), onnx_torch.random_inputs(model, seed=3)
    np.testing.assert_array_equal(one["a"], two["a"])
    assert (one["a"] != onnx_torch.random_inputs(model, seed=4)["a"]).all()
    assert one["a"].shape == (1, 2) and one["b"].dtype == object
    given = np.ones((5, 2), np.float32)
    filled = onnx_torch.random_inputs(model, given={"a": given}, shapes={"k": 3})
    assert filled["a"] is given and filled["b"].shape == (5, 3)
    whole = onnx_torch.random_inputs(model, shapes={"a": (4, 2), "n": 7})
    assert (whole["a"].shape, whole["b"].shape) == ((4, 2), (7, 1))
    inputs[0].type.tensor_type.shape.dim[1].dim_value = -1  # as some exporters write
    assert onnx_torch.random_inputs(model_of([], inputs[:1], ["a"]))["a"].shape == (1, 1)
    assert onnx_torch.info(model_of([], inputs[:1], ["a"])).inputs[0].type == "float [n, ?]"
    with pytest.raises(onnx_torch.InputError, match="expected 2 inputs"):
        onnx_torch.random_inputs(model, given=[given])


@pytest.mark.parametrize("shape", [[2**40, 2**12], [2**40, 2**40], [1] * 70])
def test_random_inputs_that_no_memory_holds_are_an_error_of_the_package(shape):
    model = model_of([helper.make_node("Size", ["a"], ["y"])], [tensor_info("a", shape=shape)], ["y"])
    for take in (onnx_torch.random_inputs, onnx_torch.profile, onnx_torch.bench, onnx_torch.compare):
        with pytest.raises(onnx_torch.InputError, match='for the input "a" cannot be made up'):
            take(model)


def test_random_inputs_of_no_type_are_an_error_of_the_package():
    model = model_of([helper.make_node("Size", ["a"], ["y"])], [tensor_info("a", element=99, shape=[2])], ["y"])
    with pytest.raises(onnx_torch.InputError, match='for the input "a" cannot be made up'):
        onnx_torch.random_inputs(model)
