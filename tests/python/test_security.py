"""What docs/security.md promises of models that nobody trusts: no file outside their folder is read or written, and
what cannot end well ends in an error."""

import os

import numpy as np
import onnx
import pytest
import torch
from onnx import TensorProto, helper, numpy_helper

import onnx_torch
from models import model_of, op_model, tensor_info

SECRET = np.arange(4, dtype=np.float32)
PLACES = ["initializer", "constant", "branch", "function", "sparse"]


def secret_tensor(location, name="w"):
    tensor = TensorProto(name=name, dims=[4], data_type=TensorProto.FLOAT, data_location=TensorProto.EXTERNAL)
    tensor.external_data.add(key="location", value=str(location))
    return tensor


def model_that_reads(location, place="initializer"):
    """A model whose output is an external tensor, which lies somewhere in it."""
    tensor = secret_tensor(location)
    constant = helper.make_node("Constant", [], ["y"], value=tensor)
    if place == "initializer":
        return model_of([helper.make_node("Identity", ["w"], ["y"])], [], ["y"], initializer=[tensor])
    if place == "constant":
        return model_of([constant], [], ["y"])
    if place == "branch":
        branch = helper.make_graph([constant], "branch", [], [onnx.ValueInfoProto(name="y")])
        chosen = helper.make_node("If", ["yes"], ["z"], then_branch=branch, else_branch=branch)
        return model_of([chosen], [], ["z"], initializer=[numpy_helper.from_array(np.array(True), "yes")])
    if place == "function":
        model = model_of([helper.make_node("Read", [], ["y"], domain="my")], [], ["y"])
        model.functions.append(helper.make_function("my", "Read", [], ["y"], [constant], model.opset_import))
        model.opset_import.append(helper.make_opsetid("my", 1))
        return model
    sparse = helper.make_sparse_tensor(tensor, numpy_helper.from_array(np.arange(4)), [4])
    return model_of([helper.make_node("Identity", ["w"], ["y"])], [], ["y"], sparse_initializer=[sparse])


@pytest.fixture
def folder(tmp_path):
    """A model's folder, with a secret beside it and data in it."""
    folder = tmp_path / "model"
    folder.mkdir()
    SECRET.tofile(tmp_path / "secret.bin")
    SECRET.tofile(folder / "own.bin")
    return folder


def prepared(model, folder):
    onnx.save(model, folder / "model.onnx")
    return onnx_torch.prepare(folder / "model.onnx")


@pytest.mark.parametrize("place", PLACES)
def test_data_in_the_folder_is_read(folder, place):
    np.testing.assert_array_equal(prepared(model_that_reads("own.bin", place), folder).run()[0], SECRET)


@pytest.mark.parametrize("place", PLACES)
@pytest.mark.parametrize("way", ["above", "around", "absolute", "link", "linked folder"])
def test_no_way_leads_out_of_the_folder(folder, place, way):
    secret = folder.parent / "secret.bin"
    (folder / "link.bin").symlink_to(secret)
    (folder / "out").symlink_to(folder.parent)
    locations = {"above": "../secret.bin", "around": "x/../../secret.bin", "absolute": secret, "link": "link.bin"}
    location = locations.get(way, "out/secret.bin")
    with pytest.raises(onnx_torch.InvalidModelError, match="link out of the model's|beside or below the model"):
        prepared(model_that_reads(location, place), folder)


@pytest.mark.parametrize("location", ["../secret.bin", "link.bin"])
def test_what_edits_models_reads_nothing_outside_either(folder, location):
    (folder / "link.bin").symlink_to(folder.parent / "secret.bin")
    path = folder / "model.onnx"
    onnx.save(model_that_reads(location), path)
    with pytest.raises(onnx_torch.InvalidModelError, match=location):
        onnx_torch.extract(path)
    with pytest.raises(onnx_torch.InvalidModelError, match=location):
        onnx_torch.update_initializers(path, torch.nn.Module())
    with pytest.raises(onnx_torch.InvalidModelError, match="base_dir"):
        onnx_torch.update_initializers(path.read_bytes(), torch.nn.Module())


@pytest.mark.parametrize("place", PLACES)
def test_a_model_without_a_folder_reads_nothing(folder, place, monkeypatch):
    monkeypatch.chdir(folder)
    for location in ["own.bin", folder / "own.bin"]:
        with pytest.raises(onnx_torch.InvalidModelError, match="base_dir|beside or below the model"):
            onnx_torch.prepare(model_that_reads(location, place).SerializeToString())


def test_only_regular_files_are_opened(folder):
    os.mkfifo(folder / "pipe.bin")  # opening it would wait for a writer
    with pytest.raises(onnx_torch.InvalidModelError, match="cannot open its external data file"):
        prepared(model_that_reads("pipe.bin"), folder)


def test_what_a_run_writes_does_not_reach_the_file(folder):
    rep = prepared(model_that_reads("own.bin"), folder)
    rep.run(output="torch")[0].fill_(7)
    assert (np.fromfile(folder / "own.bin", np.float32) == SECRET).all()
    np.testing.assert_array_equal(rep.run()[0], SECRET)


def test_functions_that_call_themselves_are_refused():
    call = helper.make_node("A", ["x"], ["y"], domain="my")
    model = model_of([call], [tensor_info("x", SECRET)], ["y"])
    model.opset_import.append(helper.make_opsetid("my", 1))
    model.functions.append(helper.make_function("my", "A", ["x"], ["y"], [call], [helper.make_opsetid("my", 1)]))
    with pytest.raises(onnx_torch.InvalidModelError, match="the function calls itself"):
        onnx_torch.prepare(model)


def test_graphs_do_not_nest_without_end():
    """The bytes are put together by hand: Python's protobuf would not write them."""

    def field(number, content):
        length, size = b"", len(content)
        while size > 127:
            length, size = length + bytes([size & 127 | 128]), size >> 7
        return bytes([number << 3 | 2]) + length + bytes([size]) + content

    graph = b""
    for _ in range(5000):  # GraphProto.node, NodeProto.attribute, AttributeProto.g
        graph = field(1, field(4, b"\x02If") + field(5, field(6, graph)))
    with pytest.raises(onnx_torch.InvalidModelError, match="not an ONNX model"):
        onnx_torch.prepare(field(7, graph))


def test_memory_that_is_not_there_is_an_error():
    rep = onnx_torch.prepare(op_model("ConstantOfShape", [np.array([1])]))
    with pytest.raises(onnx_torch.RunError, match="can't allocate memory"):
        rep.run([np.array([2**45])])


def test_regular_expressions_take_linear_time():
    text = np.array(["a" * 50_000], object)
    model = op_model("RegexFullMatch", [text], 20, pattern="(a*)*b")  # takes for ever where matching goes back
    assert onnx_torch.prepare(model).run([text])[0].tolist() == [False]
