"""The model folder for Triton, as its documentation says it must be; no server is asked."""

import numpy as np
import onnx
import pytest
import torch
from google.protobuf import descriptor_pb2, descriptor_pool, message_factory, text_format
from onnx import TensorProto, helper, numpy_helper
from typer.testing import CliRunner

import onnx_torch
import onnx_torch_cli
from models import model_of, tensor_info
from onnx_torch import triton

FIELD = descriptor_pb2.FieldDescriptorProto


def message_type():
    """Makes a message with the fields of Triton's model_config.proto that such a folder uses."""
    file = descriptor_pb2.FileDescriptorProto(name="model_config.proto", package="inference")
    types = {"string": FIELD.TYPE_STRING, "int": FIELD.TYPE_INT64}

    def message(name, *fields):
        declared = file.message_type.add(name=name)
        for number, (field, kind, label) in enumerate(fields, 1):
            made = declared.field.add(name=field, number=number, label=label, type=types.get(kind, FIELD.TYPE_MESSAGE))
            if kind == "DataType":
                made.type = FIELD.TYPE_ENUM
            if kind not in types:
                made.type_name = f".inference.{kind}"

    one, many = FIELD.LABEL_OPTIONAL, FIELD.LABEL_REPEATED
    kinds = "INVALID BOOL UINT8 UINT16 UINT32 UINT64 INT8 INT16 INT32 INT64 FP16 FP32 FP64 STRING BF16".split()
    enum = file.enum_type.add(name="DataType")
    for number, kind in enumerate(kinds):
        enum.value.add(name=f"TYPE_{kind}", number=number)
    message("Reshape", ("shape", "int", many))
    tensor = ("name", "string", one), ("data_type", "DataType", one), ("dims", "int", many), ("reshape", "Reshape", one)
    message("Tensor", *tensor)
    top = ("name", "string", one), ("platform", "string", one), ("max_batch_size", "int", one)
    message("ModelConfig", *top, ("input", "Tensor", many), ("output", "Tensor", many))
    pool = descriptor_pool.DescriptorPool()
    pool.Add(file)
    return message_factory.GetMessageClass(pool.FindMessageTypeByName("inference.ModelConfig"))


Config = message_type()


def saved(tmp_path, model, name="m", **options):
    folder = triton.save(model, tmp_path / "models", name, **options)
    assert [file.name for file in (tmp_path / "models").iterdir()] == [name]
    config = text_format.Parse((folder / "config.pbtxt").read_text(), Config())
    assert (config.name, config.platform) == (name, "pytorch_libtorch")
    return config, torch.jit.load(folder / "1" / "model.pt")


def serve(config, module, feeds):
    """Does what Triton does with requests: inputs by the names of arguments, outputs by the index behind "__"."""
    arguments = [argument.name for argument in module.forward.schema.arguments[1:]]
    assert sorted(tensor.name for tensor in config.input) == sorted(arguments)
    with torch.no_grad():
        results = module(*(torch.from_numpy(feeds[name]) for name in arguments))
    results = results if isinstance(results, tuple) else (results,)
    return {tensor.name: results[int(tensor.name[tensor.name.index("__") + 2 :])].numpy() for tensor in config.output}


def two_outputs(first="batch", last="batch"):
    """Makes a model: y = x @ w, s = sum of x."""
    axes = numpy_helper.from_array(np.array([1], np.int64), "axes")
    weight = numpy_helper.from_array(np.float32([[1, 2], [3, 4], [5, 6]]), "w")
    product = helper.make_node("MatMul", ["x", "w"], ["y"])
    nodes = [product, helper.make_node("ReduceSum", ["x", "axes"], ["s"], keepdims=0)]
    x, y, s = (tensor_info(n, np.float32(0), d) for n, d in [("x", [first, 3]), ("y", [first, 2]), ("s", [last])])
    return model_of(nodes, [x], [y, s], initializer=[weight, axes])


def test_rows_are_batched_where_all_first_dimensions_are_symbolic(tmp_path):
    config, module = saved(tmp_path, two_outputs(), max_batch_size=32)
    assert config.max_batch_size == 32
    assert [list(tensor.dims) for tensor in [*config.input, *config.output]] == [[3], [2], [1]]
    assert config.output[1].HasField("reshape") and list(config.output[1].reshape.shape) == []
    x = np.float32([[1, 2, 3], [4, 5, 6]])
    results = serve(config, module, {"x": x})
    np.testing.assert_allclose(results["y__0"], x @ np.float32([[1, 2], [3, 4], [5, 6]]))
    np.testing.assert_allclose(results["s__1"], [6, 15])


@pytest.mark.parametrize("shapes", [{"first": 2, "last": 2}, {"last": 2}, {"max_batch_size": 0}])
def test_otherwise_requests_come_whole(shapes, tmp_path):
    options = {name: shapes.pop(name) for name in list(shapes) if name == "max_batch_size"}
    config, _ = saved(tmp_path, two_outputs(**shapes), **options)
    assert config.max_batch_size == 0
    first = shapes.get("first", -1)
    assert [list(tensor.dims) for tensor in [*config.input, *config.output]] == [
        [first, 3],
        [first, 2],
        [shapes.get("last", -1)],
    ]


@pytest.mark.parametrize("shapes", [{"batch": 2}, {"x": [2, None]}, {"x[0]": 2}])
def test_symbolic_dimensions_can_be_fixed(shapes, tmp_path):
    config, module = saved(tmp_path, two_outputs(), shapes=shapes)
    assert config.max_batch_size == 0
    assert [list(tensor.dims) for tensor in [*config.input, *config.output]] == [[2, 3], [2, 2], [2]]
    with pytest.raises(torch.jit.Error, match=r"must be of shape \[2, 3\]"):
        module(torch.ones(1, 3))


def test_dimensions_without_a_name_can_be_fixed(tmp_path):
    config, module = saved(tmp_path, two_outputs(first=None, last=None), shapes={"x": [2, 3]})
    assert list(config.input[0].dims) == [2, 3]
    with pytest.raises(torch.jit.Error, match=r"must be of shape \[2, 3\]"):
        module(torch.ones(1, 3))


def test_scalars_have_a_dimension_for_triton(tmp_path):
    model = model_of([helper.make_node("Neg", ["x"], ["y"])], [tensor_info("x", np.float32(0), [])], ["y"])
    model.graph.output[0].CopyFrom(tensor_info("y", np.float32(0), []))
    config, _ = saved(tmp_path, model)
    assert config.max_batch_size == 0
    for tensor in (config.input[0], config.output[0]):
        assert list(tensor.dims) == [1] and tensor.HasField("reshape") and not tensor.reshape.shape


def test_names_that_triton_would_misread(tmp_path):
    names = ["a__7", 'say "hi"', "ü_", "class"]
    nodes = [helper.make_node("Add", [names[0], names[3]], [names[1]]), helper.make_node("Sub", names[::3], [names[2]])]
    inputs = [tensor_info(name, np.float32(0), ["n"]) for name in names[::3]]
    outputs = [tensor_info(name, np.float32(0), ["n"]) for name in names[1:3]]
    config, module = saved(tmp_path, model_of(nodes, inputs, outputs), "my model")
    assert [tensor.name for tensor in config.input] == ["a__7", "class_"]
    assert [tensor.name for tensor in config.output] == ['say "hi"__0', "ü__1"]
    results = serve(config, module, {"a__7": np.float32([3]), "class_": np.float32([1])})
    assert [result.tolist() for result in results.values()] == [[4], [2]]


@pytest.mark.parametrize("element", ["BOOL", "UINT8", "INT8", "INT16", "INT32", "INT64", "FLOAT16", "FLOAT", "DOUBLE"])
def test_types(element, tmp_path):
    number = TensorProto.DataType.Value(element)
    infos = [tensor_info(name, element=number, shape=["n"]) for name in "xy"]
    config, module = saved(tmp_path, model_of([helper.make_node("Identity", ["x"], ["y"])], infos[:1], infos[1:]))
    value = np.array([1, 0], helper.tensor_dtype_to_np_dtype(number))
    result = serve(config, module, {"x": value})["y__0"]
    assert result.dtype == value.dtype and (result == value).all()
    names = {"FLOAT16": "FP16", "FLOAT": "FP32", "DOUBLE": "FP64"}
    kind = Config.DESCRIPTOR.file.enum_types_by_name["DataType"].values_by_number[config.input[0].data_type]
    assert kind.name == "TYPE_" + names.get(element, element)


def test_what_triton_lacks_is_told(tmp_path):
    infos = [tensor_info(name, element=TensorProto.UINT32, shape=["n"]) for name in "xy"]
    model = model_of([helper.make_node("Identity", ["x"], ["y"])], infos[:1], infos[1:])
    with pytest.raises(onnx_torch.UnsupportedError, match="Triton's PyTorch backend has no 'x', which is UINT32"):
        triton.save(model, tmp_path, "m")
    model = model_of([helper.make_node("Neg", ["x"], ["y"])], [tensor_info("x", np.float32(0), ["n"])], ["y"])
    with pytest.raises(onnx_torch.UnsupportedError, match="has no 'y', which is of unknown type"):
        triton.save(model, tmp_path, "m")
    model.graph.output[0].CopyFrom(tensor_info("y", np.float32(0)))
    with pytest.raises(onnx_torch.UnsupportedError, match="does not declare the shape of 'y'"):
        triton.save(model, tmp_path, "m")
    assert list(tmp_path.iterdir()) == []


def test_names_and_versions_of_the_folder(tmp_path):
    onnx.save(two_outputs(), tmp_path / "digits.onnx")
    assert triton.save(tmp_path / "digits.onnx", tmp_path / "models") == tmp_path / "models" / "digits"
    with pytest.raises(onnx_torch.InputError, match="has a version 1 already"):
        triton.save(tmp_path / "digits.onnx", tmp_path / "models")
    triton.save(tmp_path / "digits.onnx", tmp_path / "models", version=2)
    assert (tmp_path / "models" / "digits" / "2" / "model.pt").exists()
    with pytest.raises(onnx_torch.InputError, match="cannot be the name of a folder"):
        triton.save(tmp_path / "digits.onnx", tmp_path / "models", "../x")


def test_the_command(tmp_path):
    onnx.save(two_outputs(), tmp_path / "digits.onnx")
    arguments = [
        "convert",
        str(tmp_path / "digits.onnx"),
        str(tmp_path / "models"),
        "--triton",
        "--max-batch-size",
        "4",
    ]
    done = CliRunner().invoke(onnx_torch_cli.app(), arguments)
    folder = tmp_path / "models" / "digits"
    assert done.exit_code == 0 and "was not run against a server" in done.stderr
    assert done.stdout == (folder / "config.pbtxt").read_text()
    assert text_format.Parse(done.stdout, Config()).max_batch_size == 4
    assert CliRunner().invoke(onnx_torch_cli.app(), [*arguments[:3]]).exit_code == 2  # a folder, without --triton
