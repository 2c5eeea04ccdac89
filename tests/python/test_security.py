"""The promises of docs/security.md about models that nobody trusts: no file outside their folder is read or written,
and what cannot end well ends in an error.
"""

import os
import re

import numpy as np
import pytest
import torch
from onnx import SparseTensorProto, TensorProto, helper, numpy_helper

import onnx_torch
from hostile_models import PLACES, SECRET, external_tensor, model_with, written
from models import model_of, op_model, tensor_info


def model_that_reads(location, place="initializer"):
    return model_with(external_tensor(location), place)


@pytest.fixture
def folder(tmp_path):
    """Makes a model's folder, with a secret beside it and data in it."""
    folder = tmp_path / "model"
    folder.mkdir()
    SECRET.tofile(tmp_path / "secret.bin")
    SECRET.tofile(folder / "own.bin")
    return folder


def prepared(model, folder, **options):
    return onnx_torch.prepare(written(model, folder), **options)


@pytest.mark.parametrize("place", PLACES)
@pytest.mark.parametrize("mapped", [False, True])
def test_data_in_the_folder_is_read(folder, place, mapped):
    if place == "sparse indices":
        np.arange(4).tofile(folder / "own.bin")
    expected = np.zeros(4, np.float32) if place == "attribute" else SECRET
    rep = prepared(model_that_reads("own.bin", place), folder, map_external=mapped)
    np.testing.assert_array_equal(rep.run()[0], expected)


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
    path = written(model_that_reads(location), folder)
    with pytest.raises(onnx_torch.InvalidModelError, match=location):
        onnx_torch.extract(path)
    with pytest.raises(onnx_torch.InvalidModelError, match=location):
        onnx_torch.update_initializers(path, torch.nn.Module())
    with pytest.raises(onnx_torch.InvalidModelError, match="base_dir|beside or below the model"):
        onnx_torch.update_initializers(path.read_bytes(), torch.nn.Module())


@pytest.mark.parametrize("place", PLACES)
def test_a_model_without_a_folder_reads_nothing(folder, place, monkeypatch):
    monkeypatch.chdir(folder)
    for location in ["own.bin", folder / "own.bin"]:
        with pytest.raises(onnx_torch.InvalidModelError, match="base_dir|beside or below the model"):
            onnx_torch.prepare(model_that_reads(location, place).SerializeToString())


def test_folders_are_found_from_where_the_process_is(folder, monkeypatch):
    model = model_that_reads("own.bin")
    monkeypatch.chdir(folder.parent)
    np.testing.assert_array_equal(onnx_torch.prepare(model, base_dir=folder.name).run()[0], SECRET)
    whole = onnx_torch.extract(model, base_dir=folder.name)
    np.testing.assert_array_equal(onnx_torch.prepare(whole).run()[0], SECRET)
    monkeypatch.chdir(folder)
    written(model, folder)
    np.testing.assert_array_equal(onnx_torch.prepare("model.onnx").run()[0], SECRET)
    np.testing.assert_array_equal(onnx_torch.prepare(onnx_torch.extract("model.onnx")).run()[0], SECRET)


def test_only_regular_files_are_opened(folder):
    os.mkfifo(folder / "pipe.bin")  # opening it would wait for a writer
    with pytest.raises(onnx_torch.InvalidModelError, match=r"pipe\.bin: it is a pipe or a device"):
        prepared(model_that_reads("pipe.bin"), folder)
    for read in (onnx_torch.prepare, onnx_torch.check, onnx_torch.info, onnx_torch.InferenceSession):
        with pytest.raises(RuntimeError, match="regular file"):
            read(str(folder / "pipe.bin"))


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
    with pytest.raises(onnx_torch.RunError, match=f"not enough memory for a tensor of {2**47} bytes"):
        rep.run([np.array([2**45])])


def test_regular_expressions_take_linear_time():
    text = np.array(["a" * 50_000], object)
    model = op_model("RegexFullMatch", [text], 20, pattern="(a*)*b")  # takes for ever where matching goes back
    assert onnx_torch.prepare(model).run([text])[0].tolist() == [False]


MARK = b"NAME"


def with_bad_names(model):
    """Gives the model with bytes that are not UTF-8 for each MARK."""
    data = model.SerializeToString()
    assert MARK in data
    return data.replace(MARK, b"\xff\xfe\xc3\x28")


def named_model(**changes):
    name = MARK.decode()
    node = helper.make_node("Add", [f"x{name}", f"w{name}"], [f"y{name}"], name=f"node{name}", doc_string=name)
    weight = numpy_helper.from_array(SECRET, f"w{name}")
    x = helper.make_tensor_value_info(f"x{name}", 1, [f"n{name}"])
    model = model_of([node], [x], [f"y{name}"], initializer=[weight])
    model.doc_string = model.graph.doc_string = model.producer_name = model.graph.name = name
    model.metadata_props.add(key=name, value=name)
    for field, value in changes.items():
        setattr(model.graph.node[0], field, value)
    return model


def test_names_that_are_not_utf_8():
    data = with_bad_names(named_model())
    rep = onnx_torch.prepare(data)
    x, y, name = "x\ufffd\ufffd\ufffd(", "y\ufffd\ufffd\ufffd(", "\ufffd\ufffd\ufffd("
    np.testing.assert_array_equal(rep.run([SECRET])[0], 2 * SECRET)
    np.testing.assert_array_equal(rep.run({x: SECRET})[0], 2 * SECRET)
    assert (rep.inputs[0][0], rep.outputs[0][0]) == (x, y)
    assert (rep.model_info.doc_string, rep.model_info.producer_name) == (name, name)
    assert rep.metadata == {name: name}
    assert rep.placement()[0].name == f"node{name}"
    assert rep.profile([SECRET], runs=1).nodes[0].name == f"node{name}"
    assert repr(rep) and rep.graph() and str(onnx_torch.show(data))
    assert onnx_torch.check(data) == []
    with pytest.raises(onnx_torch.InputError, match="unknown input"):
        rep.run({"other": SECRET})
    with pytest.raises(onnx_torch.RunError, match=re.escape(f'"node{name}"')) as failed:
        rep.run([np.ones(3, np.float32)])
    assert failed.value.node_name == f"node{name}"


def test_errors_about_names_that_are_not_utf_8():
    for changes in (
        {"op_type": f"Op{MARK.decode()}"},
        {"input": [f"x{MARK.decode()}", MARK.decode()]},
        {"domain": MARK.decode()},
    ):
        model = named_model()
        node = model.graph.node[0]
        for field, value in changes.items():
            if field == "input":
                node.input[:] = value
            else:
                setattr(node, field, value)
        data = with_bad_names(model)
        with pytest.raises(onnx_torch.Error, match="\ufffd"):
            onnx_torch.prepare(data)
        assert onnx_torch.check(data) != []


def test_texts_that_are_not_utf_8():
    texts = numpy_helper.from_array(np.array([MARK.decode(), "good"], object), "w")
    model = model_of([helper.make_node("Identity", ["w"], ["y"])], [], ["y"], initializer=[texts])
    assert onnx_torch.prepare(with_bad_names(model)).run()[0].tolist() == ["\ufffd\ufffd\ufffd(", "good"]


def test_memory_that_is_not_there_is_an_error_while_preparing_too():
    dims = [2**45]
    for element, data in ((TensorProto.INT64, {}), (TensorProto.STRING, {})):
        tensor = TensorProto(name="w", dims=dims, data_type=element, **data)
        model = model_of([helper.make_node("Identity", ["w"], ["y"])], [], ["y"], initializer=[tensor])
        with pytest.raises(onnx_torch.Error, match="bytes of data|number of strings"):
            onnx_torch.prepare(model)
    values, indices = numpy_helper.from_array(SECRET[:1], "w"), numpy_helper.from_array(np.array([0]))
    sparse = SparseTensorProto(dims=dims, values=values, indices=indices)
    model = model_of([helper.make_node("Identity", ["w"], ["y"])], [], ["y"], sparse_initializer=[sparse])
    with pytest.raises(onnx_torch.Error, match="memory"):
        onnx_torch.prepare(model)
