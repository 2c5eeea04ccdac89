"""A part of a model as a model of its own."""

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

import onnx_torch
from models import model_of, tensor_info

X = np.array([[-1.0, 0.5, 2.0]], np.float32)


def branching():
    """Makes x → r → {m, n} → y; the If takes values from around it."""
    branch = helper.make_graph([helper.make_node("Add", ["m", "w"], ["t"])], "then", [], [tensor_info("t", element=1)])
    other = helper.make_graph(
        [helper.make_node("Double", ["n"], ["e"], domain="mine")], "else", [], [tensor_info("e", element=1)]
    )
    nodes = [
        helper.make_node("Relu", ["x"], ["r"]),
        helper.make_node("Neg", ["r"], ["m"]),
        helper.make_node("Exp", ["r"], ["n"]),
        helper.make_node("If", ["c"], ["y"], then_branch=branch, else_branch=other),
        helper.make_node("Abs", ["x"], ["unused"]),
    ]
    inputs = [tensor_info("x", element=1, shape=["b", 3]), tensor_info("c", element=TensorProto.BOOL, shape=[])]
    weights = [numpy_helper.from_array(np.ones(3, np.float32), "w"), numpy_helper.from_array(X, "not needed")]
    model = model_of(nodes, inputs, ["y"], initializer=weights)
    model.opset_import.append(helper.make_opsetid("mine", 1))
    imports = model.opset_import[:1]
    double = helper.make_function("mine", "Double", ["a"], ["b"], [helper.make_node("Add", ["a", "a"], ["b"])], imports)
    unused = helper.make_function("mine", "Unused", ["a"], ["b"], [helper.make_node("Abs", ["a"], ["b"])], imports)
    model.functions.extend([double, unused])
    return model


def names(infos):
    return [info.name for info in infos]


@pytest.mark.parametrize("condition", [True, False])
def test_a_part_computes_what_the_whole_computes(condition):
    model = branching()
    feeds = {"x": X, "c": np.array(condition)}
    inner = onnx_torch.prepare(model).intermediates(feeds)
    part = onnx_torch.extract(model, ["m", "n", "c"], ["y"])
    onnx.checker.check_model(part)
    assert [node.op_type for node in part.graph.node] == ["If"]
    assert names(part.graph.initializer) == ["w"] and names(part.functions) == ["Double"]
    found = onnx_torch.prepare(part).run({"m": inner["m"], "n": inner["n"], "c": feeds["c"]})[0]
    np.testing.assert_array_equal(found, inner["y"])


def test_the_inputs_needed_and_the_outputs_there_are_the_defaults():
    part = onnx_torch.extract(branching(), outputs=["n"])
    assert names(part.graph.input) == ["x"] and names(part.graph.node) == ["", ""]
    assert [node.op_type for node in part.graph.node] == ["Relu", "Exp"]
    assert not part.functions and not part.graph.initializer
    whole = onnx_torch.extract(branching())
    assert names(whole.graph.input) == ["x", "c"] and names(whole.graph.output) == ["y"]
    assert len(whole.graph.node) == 4


def test_an_initializer_can_be_an_input_and_an_output():
    part = onnx_torch.extract(branching(), ["x", "c", "w"], ["y", "w"])
    assert names(part.graph.input) == ["x", "c", "w"] and not part.graph.initializer
    y, w = onnx_torch.prepare(part).run({"x": X, "c": np.array(True), "w": np.float32([1, 2, 3])})
    np.testing.assert_array_equal(y, -np.maximum(X, 0) + np.float32([1, 2, 3]))
    np.testing.assert_array_equal(w, np.float32([1, 2, 3]))


def test_types_of_inner_inputs_are_inferred():
    part = onnx_torch.extract(branching(), ["r"], ["m"])
    assert onnx.printer.to_text(part.graph).startswith("test (float[b,3] r) => (float[b,3] m)")


def test_external_data_is_read_into_the_part(tmp_path):
    onnx.save(branching(), tmp_path / "m.onnx", save_as_external_data=True, location="w.bin", size_threshold=0)
    part = onnx_torch.extract(tmp_path / "m.onnx", ["m", "n", "c"])
    (tmp_path / "w.bin").unlink()
    assert onnx_torch.prepare(part).run({"m": X, "n": X, "c": np.array(True)})[0].tolist() == (X + 1).tolist()
    with pytest.raises(onnx_torch.InvalidModelError, match=r"w\.bin"):
        onnx_torch.extract(tmp_path / "m.onnx", ["m", "n", "c"])


@pytest.mark.parametrize(
    "inputs, outputs, said",
    [
        (["nope"], None, 'no value "nope"'),
        (None, ["nope"], 'no value "nope"'),
        (["m", "n"], ["y"], "also needs the model's inputs c"),
    ],
)
def test_mistakes_are_told(inputs, outputs, said):
    with pytest.raises(onnx_torch.InputError, match=said):
        onnx_torch.extract(branching(), inputs, outputs)


def test_an_input_of_unknown_type_is_refused():
    nodes = [helper.make_node("Odd", ["x"], ["o"], domain="none"), helper.make_node("Relu", ["o"], ["y"])]
    model = model_of(nodes, [tensor_info("x", X)], ["y"])
    model.opset_import.append(helper.make_opsetid("none", 1))
    with pytest.raises(onnx_torch.InputError, match='type of "o" is not known'):
        onnx_torch.extract(model, ["o"])
