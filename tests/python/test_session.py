"""InferenceSession does what onnxruntime's does: most tests here run on both."""

from __future__ import annotations

import importlib
import json
import os
import pickle
import re
import threading
import time
import warnings
from pathlib import Path

import ml_dtypes
import numpy as np
import onnx
import pytest
import torch
from onnx import TensorProto, helper, numpy_helper

import onnx_torch
import onnx_torch.compat.onnxruntime as ours
from models import model_of, tensor_info
from onnx_torch import backend, prepared_model
from onnx_torch.compat import _devices
from pretended_cuda import PretendedCuda, PretendedRecording

FLOAT = TensorProto.FLOAT
X = np.arange(6, dtype=np.float32).reshape(2, 3) - 2


@pytest.fixture(params=["onnx_torch", "onnxruntime"])
def ort(request):
    """Gives each of the two engines."""
    return ours if request.param == "onnx_torch" else pytest.importorskip("onnxruntime")


@pytest.fixture
def errors(ort):
    return ort.capi.onnxruntime_pybind11_state


def described(model: onnx.ModelProto) -> bytes:
    """Gives the model with everything that a session tells of it, for onnxruntime's newest IR version."""
    model.ir_version, model.producer_name, model.domain, model.model_version = 10, "tests", "org.test", 7
    model.doc_string, model.graph.doc_string = "a model", "a graph"
    model.metadata_props.add(key="labels", value="a,b")
    return model.SerializeToString()


def two_outputs() -> bytes:
    """Makes a model of two inputs, an initializer that may be fed, and two outputs."""
    nodes = [
        helper.make_node("Mul", ["x", "scale"], ["scaled"], name="scaling"),
        helper.make_node("Add", ["scaled", "y"], ["sum"]),
    ]
    inputs = [
        tensor_info("x", shape=["n", 3], element=FLOAT),
        tensor_info("y", shape=[None, 3], element=FLOAT),
        tensor_info("scale", shape=[1], element=FLOAT),
    ]
    outputs = [tensor_info("scaled", shape=["n", 3], element=FLOAT), tensor_info("sum", shape=["n", 3], element=FLOAT)]
    scale = numpy_helper.from_array(np.array([2], np.float32), "scale")
    return described(model_of(nodes, inputs, outputs, opset=17, initializer=[scale]))


# --- What a session tells ---------------------------------------------------------------------------------------------


def test_tells_of_its_inputs_and_outputs(ort):
    session = ort.InferenceSession(two_outputs())
    args = [*session.get_inputs(), *session.get_overridable_initializers(), *session.get_outputs()]
    assert [(arg.name, arg.type, arg.shape) for arg in args] == [
        ("x", "tensor(float)", ["n", 3]),
        ("y", "tensor(float)", [None, 3]),
        ("scale", "tensor(float)", [1]),
        ("scaled", "tensor(float)", ["n", 3]),
        ("sum", "tensor(float)", ["n", 3]),
    ]
    assert str(args[0]) == "NodeArg(name='x', type='tensor(float)', shape=['n', 3])"


def test_tells_the_types_of_sequences_maps_and_optionals(ort):
    tensor = helper.make_tensor_type_proto(FLOAT, None)
    types = [helper.make_sequence_type_proto(tensor), helper.make_optional_type_proto(tensor)]
    infos = [helper.make_value_info(name, type_) for name, type_ in zip(["s", "o"], types, strict=True)]
    nodes = [helper.make_node("SequenceLength", ["s"], ["n"]), helper.make_node("OptionalHasElement", ["o"], ["has"])]
    outputs = [tensor_info("n", element=TensorProto.INT64), tensor_info("has", element=TensorProto.BOOL)]
    session = ort.InferenceSession(described(model_of(nodes, infos, outputs, opset=18)))
    assert [arg.type for arg in session.get_inputs()] == ["seq(tensor(float))", "optional(tensor(float))"]
    assert [int(value) for value in session.run(None, {"s": [X, X], "o": None})] == [2, 0]


def test_tells_of_the_model(ort):
    meta = ort.InferenceSession(two_outputs()).get_modelmeta()
    assert (meta.producer_name, meta.domain, meta.version) == ("tests", "org.test", 7)
    assert (meta.graph_name, meta.description, meta.graph_description) == ("test", "a model", "a graph")
    assert meta.custom_metadata_map == {"labels": "a,b"}


def test_tells_of_the_device(ort):
    session = ort.InferenceSession(two_outputs(), providers=["CPUExecutionProvider"])
    assert session.get_providers() == ["CPUExecutionProvider"]
    assert session.get_provider_options() == {"CPUExecutionProvider": {}}
    assert [info.name for info in session.get_output_memory_infos()] == ["Cpu", "Cpu"]
    assert session.get_input_memory_infos()[0].device_id == 0
    assert ort.get_ep_devices()[0].ep_name == "CPUExecutionProvider"
    assert ort.get_ep_devices()[0].device.type == ort.OrtHardwareDeviceType.CPU


def test_assignment_names_the_nodes(ort):
    options = ort.SessionOptions()
    options.add_session_config_entry("session.record_ep_graph_assignment_info", "1")
    options.graph_optimization_level = ort.GraphOptimizationLevel.ORT_DISABLE_ALL
    subgraphs = ort.InferenceSession(two_outputs(), options).get_provider_graph_assignment_info()
    assert {subgraph.ep_name for subgraph in subgraphs} == {"CPUExecutionProvider"}
    nodes = [node for subgraph in subgraphs for node in subgraph.get_nodes()]
    assert sorted(node.op_type for node in nodes) == ["Add", "Mul"]
    assert "scaling" in [node.name for node in nodes]


# --- Runs -------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("names", [None, [], ["sum"], ["sum", "scaled"]])
def test_runs(ort, names):
    outputs = ort.InferenceSession(two_outputs()).run(names, {"x": X, "y": X})
    expected = {"scaled": 2 * X, "sum": 3 * X}
    assert isinstance(outputs, list)
    for name, output in zip(names or expected, outputs, strict=True):
        np.testing.assert_array_equal(output, expected[name])


def test_computes_only_what_is_asked_for():
    nodes = [helper.make_node("Neg", ["x"], ["y"]), helper.make_node("Reshape", ["x", "shape"], ["z"])]
    inputs = [tensor_info("x", X), tensor_info("shape", shape=[1], element=TensorProto.INT64)]
    session = onnx_torch.InferenceSession(model_of(nodes, inputs, ["y", "z"]).SerializeToString())
    feeds = {"x": X, "shape": np.array([7])}  # which Reshape cannot do
    np.testing.assert_array_equal(session.run(["y"], feeds)[0], -X)
    with pytest.raises(onnx_torch.RunError, match="Reshape"):
        session.run(None, feeds)


def test_takes_a_path_and_an_initializer(ort, tmp_path):
    path = tmp_path / "model.onnx"
    path.write_bytes(two_outputs())
    for form in (path, str(path)):
        feeds = {"x": X, "y": X, "scale": np.array([5], np.float32)}
        np.testing.assert_array_equal(ort.InferenceSession(form).run(["sum"], feeds)[0], 6 * X)


def test_takes_lists_of_numbers(ort):
    outputs = ort.InferenceSession(two_outputs()).run(["scaled"], {"x": X.tolist(), "y": [[0, 0, 0]] * 2})
    np.testing.assert_array_equal(outputs[0], 2 * X)


def test_runs_text(ort):
    node = helper.make_node("Identity", ["x"], ["y"])
    infos = [tensor_info(name, shape=[None], element=TensorProto.STRING) for name in "xy"]
    session = ort.InferenceSession(described(model_of([node], infos[:1], infos[1:], opset=17)))
    for text in (np.array(["a", "ä", ""]), np.array(["a", "ä", ""], object)):
        (output,) = session.run(None, {"x": text})
        assert output.dtype == object
        assert output.tolist() == ["a", "ä", ""]


def sequence_of(node: onnx.NodeProto, item: onnx.TypeProto, **domain) -> bytes:
    """Makes a model of one node that gives a sequence."""
    output = helper.make_value_info("y", helper.make_sequence_type_proto(item))
    model = model_of([node], [tensor_info("x", shape=[None, 3], element=FLOAT)], [output], **domain)
    for opset in model.opset_import:
        opset.version = min(opset.version, 17)
    return described(model)


def test_gives_lists_of_maps(ort):
    node = helper.make_node("ZipMap", ["x"], ["y"], domain="ai.onnx.ml", classlabels_strings=["a", "b", "c"])
    item = helper.make_map_type_proto(TensorProto.STRING, helper.make_tensor_type_proto(FLOAT, []))
    session = ort.InferenceSession(sequence_of(node, item, opset=3, domain="ai.onnx.ml"))
    assert session.get_outputs()[0].type == "seq(map(string,tensor(float)))"
    assert session.run(None, {"x": X}) == [[dict(zip("abc", row, strict=True)) for row in X.tolist()]]
    (value,) = session.run_with_ort_values(None, {"x": ort.OrtValue.ortvalue_from_numpy(X)})
    assert value.data_type() == "seq(map(string,tensor(float)))"
    assert (value.is_tensor(), value.is_tensor_sequence(), value.has_value()) == (False, False, True)


def test_gives_lists_of_tensors(ort):
    node = helper.make_node("SequenceConstruct", ["x", "x"], ["y"])
    session = ort.InferenceSession(sequence_of(node, helper.make_tensor_type_proto(FLOAT, None)))
    ((one, other),) = session.run(None, {"x": X})
    np.testing.assert_array_equal(one, X)
    np.testing.assert_array_equal(other, X)
    (value,) = session.run_with_ort_values(None, {"x": ort.OrtValue.ortvalue_from_numpy(X)})
    assert (value.data_type(), value.is_tensor_sequence()) == ("seq(tensor(float))", True)
    with pytest.raises(RuntimeError):
        value.shape()


def test_pickles():
    session = onnx_torch.InferenceSession(two_outputs())
    again = pickle.loads(pickle.dumps(session))
    np.testing.assert_array_equal(again.run(["sum"], {"x": X, "y": X})[0], 3 * X)


def test_runs_on_many_threads(ort):
    session = ort.InferenceSession(two_outputs())
    results = {}

    def run(number):
        results[number] = session.run(["scaled"], {"x": X + number, "y": X})[0]

    threads = [threading.Thread(target=run, args=(number,)) for number in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    for number, result in results.items():
        np.testing.assert_array_equal(result, 2 * (X + number))
    assert len(results) == 8


def test_runs_in_the_background(ort):
    options = ort.SessionOptions()
    options.intra_op_num_threads = 2  # which onnxruntime wants for it
    session = ort.InferenceSession(two_outputs(), options)
    answers: list = []
    for feeds in ({"x": X, "y": X}, {"x": X, "y": X[:, :2]}):
        done = threading.Event()

        def answer(results, user_data, error, done=done):
            answers.append((results, user_data, error))
            done.set()

        session.run_async(["sum"], feeds, answer, "mine")
        assert done.wait(30)
    np.testing.assert_array_equal(answers[0][0][0], 3 * X)
    assert [user_data for _, user_data, _ in answers] == ["mine", "mine"]
    assert answers[0][2] == ""
    assert answers[1][2] != ""


def test_an_error_in_the_callback_is_logged(caplog):
    def fail(results, user_data, error):
        raise KeyError("mine")

    session = onnx_torch.InferenceSession(two_outputs())
    session.run_async(None, {"x": X, "y": X}, fail, None)
    deadline = time.monotonic() + 30
    while not caplog.records and time.monotonic() < deadline:
        time.sleep(0.01)
    assert "callback of run_async failed" in caplog.text
    assert "KeyError: 'mine'" in caplog.text


# --- What is fed otherwise than it is declared ------------------------------------------------------------------------


def parsed(text: str) -> bytes:
    return onnx.parser.parse_model(text).SerializeToString()


@pytest.mark.parametrize("profiling", [False, True])
def test_what_is_declared_a_scalar_takes_any_shape(ort, profiling, tmp_path):
    model = parsed("""<ir_version: 8, opset_import: ["": 17]>
        net (float[N, 3] x, float b) => (float[N, 3] y) { y = Add(x, b) }""")
    options = ort.SessionOptions()
    options.enable_profiling, options.profile_file_prefix = profiling, str(tmp_path / "profile")
    session = ort.InferenceSession(model, options)
    assert session.get_inputs()[1].shape == []
    for b in (np.float32(3), np.ones(3, np.float32), X, np.ones(1, np.float32), np.array(5, np.float32)):
        np.testing.assert_array_equal(session.run(None, {"x": X, "b": np.asarray(b)})[0], X + b)
    if profiling:
        session.end_profiling()


def test_only_compat_takes_any_shape_for_a_scalar():
    rep = backend.prepare(
        parsed("""<ir_version: 8, opset_import: ["": 17]>
        net (float[N, 3] x, float b) => (float[N, 3] y) { y = Add(x, b) }""")
    )
    with pytest.raises(onnx_torch.InputError, match='"b" must be of shape'):
        rep.run({"x": X, "b": X})


def test_none_stands_for_an_input_that_is_not_needed(ort):
    model = parsed("""<ir_version: 8, opset_import: ["": 18, "local": 1]>
        net (float[N, 3] x, float b) => (float[N, 3] y) { y = local.f(x, b) }
        <opset_import: ["": 18], domain: "local"> f (a, b) => (c) {
            given = OptionalHasElement(b)
            c = If (given) <then_branch = t() => (float[N, 3] p) { p = Add(a, b) },
                            else_branch = e() => (float[N, 3] q) { q = Neg(a) }> }""")
    session = ort.InferenceSession(model)
    for _ in range(2):
        np.testing.assert_array_equal(session.run(None, {"x": X, "b": None})[0], -X)
        np.testing.assert_array_equal(session.run(None, {"x": X, "b": np.array(2, np.float32)})[0], X + 2)


def test_none_stands_for_an_initializer(ort):
    outputs = ort.InferenceSession(two_outputs()).run(["scaled"], {"x": X, "y": X, "scale": None})
    np.testing.assert_array_equal(outputs[0], 2 * X)


def test_none_does_not_stand_for_what_is_needed(ort, errors):
    with pytest.raises((errors.Fail, errors.InvalidArgument)):
        ort.InferenceSession(two_outputs()).run(["sum"], {"x": X, "y": None})


def test_says_what_the_model_cannot_do_without():
    with pytest.raises(onnx_torch.InputError, match=r"(?s)without y: Add .*the required input"):
        onnx_torch.InferenceSession(two_outputs()).run(["sum"], {"x": X, "y": None})


def vectorizer() -> bytes:
    """Makes a model whose one input is a map."""
    node = helper.make_node("DictVectorizer", ["x"], ["y"], domain="ai.onnx.ml", string_vocabulary=["a", "x"])
    of_map = helper.make_map_type_proto(TensorProto.STRING, helper.make_tensor_type_proto(FLOAT, None))
    output = tensor_info("y", shape=[1, 2], element=FLOAT)
    model = model_of([node], [helper.make_value_info("x", of_map)], [output], opset=3, domain="ai.onnx.ml")
    model.opset_import[1].version = 17
    return described(model)


def test_runs_a_map(ort):
    session = ort.InferenceSession(vectorizer())
    assert session.run(None, {"x": {"x": 1.5}})[0].tolist() == [[0, 1.5]]
    rep = __import__(f"{ort.__name__}.backend", fromlist=["prepare"]).prepare(vectorizer())
    assert rep.run({"a": 2.5, "x": 1.5})[0].tolist() == [[2.5, 1.5]]


def test_one_map_is_all_that_a_model_is_fed():
    rep = backend.prepare(vectorizer())
    for given, expected in [({"a": 2.5}, [2.5, 0]), ({"x": {"a": 2.5}}, [2.5, 0]), ([{"a": 1}], [1, 0]), ({}, [0, 0])]:
        assert rep.run(given)[0].tolist() == [expected]
    with pytest.raises(onnx_torch.InputError, match="must be a dictionary"):
        rep.run({"x": 1.5})  # by its name


# --- Names that programs read without being asked to ------------------------------------------------------------------


def test_tells_where_the_model_is(ort, tmp_path):
    path = tmp_path / "model.onnx"
    path.write_bytes(two_outputs())
    session = ort.InferenceSession(path)
    assert (session._model_path, session._model_bytes) == (str(path), None)
    session = ort.InferenceSession(two_outputs())
    assert (session._model_path, session._model_bytes) == (None, two_outputs())
    np.testing.assert_array_equal(session._sess.run(["sum"], {"x": X, "y": X}, None)[0], 3 * X)


def test_values_are_made_on_native_devices(ort):
    native = ort.capi.onnxruntime_pybind11_state
    device = native.OrtDevice(native.OrtDevice.cpu(), native.OrtDevice.default_memory(), 0)
    value = native.OrtValue.ortvalue_from_numpy(X, device)
    assert value.device_name().lower() == "cpu"
    np.testing.assert_array_equal(value.numpy(), X)


# --- Errors -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "feeds",
    [
        {"x": X, "y": X, "z": X},
        {"x": X.astype(np.float64), "y": X},
        {"x": X[:, :2], "y": X},
        {"x": X[0], "y": X},
    ],
)
def test_what_does_not_fit_is_an_invalid_argument(ort, errors, feeds):
    with pytest.raises(errors.InvalidArgument):
        ort.InferenceSession(two_outputs()).run(None, feeds)


def test_what_is_missing_is_a_value_error(ort):
    with pytest.raises(ValueError, match=r"Required inputs \(\['y'\]\) are missing from input feed \(\['x'\]\)"):
        ort.InferenceSession(two_outputs()).run(None, {"x": X})


def test_an_unknown_output_is_an_invalid_argument(ort, errors):
    with pytest.raises(errors.InvalidArgument, match="nothing"):
        ort.InferenceSession(two_outputs()).run(["nothing"], {"x": X, "y": X})


def test_a_name_in_place_of_names_is_a_type_error(ort):
    with pytest.raises(TypeError):
        ort.InferenceSession(two_outputs()).run("sum", {"x": X, "y": X})


def test_a_missing_file(ort, errors):
    with pytest.raises(errors.NoSuchFile, match="nowhere"):
        ort.InferenceSession("nowhere.onnx")


@pytest.mark.parametrize("source", [b"no model", b"\x08"])
def test_bytes_that_are_no_model(ort, errors, source):
    with pytest.raises(errors.InvalidProtobuf):
        ort.InferenceSession(source)


def test_a_source_of_another_type(ort):
    with pytest.raises(TypeError, match="Unable to load from type"):
        ort.InferenceSession(3)


def test_a_graph_that_breaks_the_standard(ort, errors):
    model = model_of(
        [helper.make_node("Relu", ["x", "x"], ["y"])], [tensor_info("x", X)], [tensor_info("y", X)], opset=17
    )
    with pytest.raises((errors.InvalidGraph, errors.Fail)):
        ort.InferenceSession(described(model))


def test_a_node_that_fails(ort, errors):
    node = helper.make_node("Reshape", ["x", "shape"], ["y"])
    inputs = [tensor_info("x", X), tensor_info("shape", shape=[1], element=TensorProto.INT64)]
    session = ort.InferenceSession(described(model_of([node], inputs, [tensor_info("y", element=FLOAT)], opset=17)))
    with pytest.raises((errors.RuntimeException, errors.Fail), match="Reshape"):
        session.run(None, {"x": X, "shape": np.array([7])})


def test_errors_are_of_both_families():
    native = ours.capi.onnxruntime_pybind11_state
    pairs = {native.NoSuchFile: onnx_torch.InvalidModelError, native.InvalidArgument: onnx_torch.InputError}
    for theirs, mine in {
        **pairs,
        native.NotImplemented: onnx_torch.UnsupportedError,
        native.Fail: onnx_torch.Error,
    }.items():
        assert issubclass(theirs, mine)


def test_an_unknown_operator_names_the_node(tmp_path):
    model = model_of(
        [helper.make_node("Nope", ["x"], ["y"], name="mine", domain="org.nope")], [tensor_info("x", X)], ["y"]
    )
    model.opset_import.add(domain="org.nope", version=1)
    with pytest.raises(ours.capi.onnxruntime_pybind11_state.NotImplemented, match="Nope"):
        onnx_torch.InferenceSession(model.SerializeToString())


def test_models_in_the_ort_format_are_refused(tmp_path):
    path = tmp_path / "model.ort"
    path.write_bytes(b"\0\0\0\0ORTM")
    for source in (path, path.read_bytes()):
        with pytest.raises(onnx_torch.UnsupportedError, match="ORT format"):
            onnx_torch.InferenceSession(source)


# --- Options ----------------------------------------------------------------------------------------------------------


def test_options_of_another_class_are_a_type_error():
    with pytest.raises(TypeError, match="SessionOptions"):
        onnx_torch.InferenceSession(two_outputs(), {"intra_op_num_threads": 1})


def test_options_keep_what_they_are_given(ort):
    options = ort.SessionOptions()
    assert options.graph_optimization_level == ort.GraphOptimizationLevel.ORT_ENABLE_ALL
    options.graph_optimization_level = ort.GraphOptimizationLevel.ORT_ENABLE_BASIC
    options.intra_op_num_threads, options.inter_op_num_threads, options.enable_mem_pattern = 1, 2, False
    options.execution_mode, options.log_severity_level = ort.ExecutionMode.ORT_PARALLEL, 3
    options.add_session_config_entry("mine", "1")
    assert options.graph_optimization_level == ort.GraphOptimizationLevel.ORT_ENABLE_BASIC
    assert (options.intra_op_num_threads, options.inter_op_num_threads, options.enable_mem_pattern) == (1, 2, False)
    assert options.get_session_config_entry("mine") == "1"
    with pytest.raises(RuntimeError):
        options.get_session_config_entry("unknown")
    with pytest.raises(TypeError):
        options.intra_op_num_threads = "1"
    with pytest.raises(TypeError):
        options.execution_mode = 1
    with pytest.raises(AttributeError):
        options.misspelt = 1
    assert ort.InferenceSession(two_outputs(), options).get_session_options().intra_op_num_threads == 1


def test_defaults_are_the_same():
    theirs = pytest.importorskip("onnxruntime")
    for name in ("SessionOptions", "RunOptions"):
        one, other = getattr(ours, name)(), getattr(theirs, name)()
        for option in [option for option in dir(other) if not option.startswith("_")]:
            expected = getattr(other, option)
            if not callable(expected):
                value = getattr(one, option)
                assert getattr(value, "name", value) == getattr(expected, "name", expected), option


def test_threads_hold_for_the_model():
    ours.set_global_thread_pool_sizes(2, 1)
    for per_session, threads in ((True, 3), (False, 2)):
        options = onnx_torch.SessionOptions()
        options.intra_op_num_threads, options.use_per_session_threads = 3, per_session
        assert onnx_torch.InferenceSession(two_outputs(), options)._rep.options["threads"] == threads


def test_free_dimensions_are_fixed(ort, errors):
    options = ort.SessionOptions()
    options.add_free_dimension_override_by_name("n", 2)
    session = ort.InferenceSession(two_outputs(), options)
    assert session.get_inputs()[0].shape == [2, 3]
    assert session.get_outputs()[0].shape == [2, 3]
    with pytest.raises(errors.InvalidArgument):
        session.run(None, {"x": X[:1], "y": X[:1]})


def test_free_dimensions_are_fixed_by_denotation(ort):
    model = onnx.load_model_from_string(two_outputs())
    model.graph.input[0].type.tensor_type.shape.dim[0].denotation = "DATA_BATCH"
    options = ort.SessionOptions()
    options.add_free_dimension_override_by_denotation("DATA_BATCH", 2)
    assert ort.InferenceSession(model.SerializeToString(), options).get_inputs()[0].shape == [2, 3]


def with_external_data(location: str = "weights.bin", offset: int = 8) -> bytes:
    """Makes a model that adds a weight of 12,000 bytes that lies in a file."""
    weight = TensorProto(name="b", data_type=FLOAT, dims=[1000, 3], data_location=TensorProto.EXTERNAL)
    for key, value in {"location": location, "offset": offset, "length": 12_000}.items():
        weight.external_data.add(key=key, value=str(value))
    infos = [tensor_info(name, shape=[1000, 3], element=FLOAT) for name in "ac"]
    add = helper.make_node("Add", ["a", "b"], ["c"])
    return described(model_of([add], infos[:1], infos[1:], opset=17, initializer=[weight]))


B = np.arange(3000, dtype=np.float32).reshape(1000, 3)
ZEROS = np.zeros_like(B)


def test_external_files_may_be_in_memory(ort, tmp_path):
    data = b"12345678" + B.tobytes()
    for source in (with_external_data(), tmp_path / "model.onnx"):
        if isinstance(source, Path):
            source.write_bytes(with_external_data())
        for buffer in (data, memoryview(data), np.frombuffer(data, np.uint8)):
            options = ort.SessionOptions()
            options.add_external_initializers_from_files_in_memory(["weights.bin"], [buffer], [len(data)])
            np.testing.assert_array_equal(ort.InferenceSession(source, options).run(None, {"a": ZEROS})[0], B)


@pytest.mark.parametrize("name, length", [("weights.bin", 100), ("other.bin", 12_008)])
def test_external_files_in_memory_that_do_not_fit(ort, errors, name, length):
    options = ort.SessionOptions()
    options.add_external_initializers_from_files_in_memory([name], [bytes(12_008)], [length])
    with pytest.raises((errors.Fail, errors.InvalidGraph), match=r"weights.bin|External initializer: b"):
        ort.InferenceSession(with_external_data(), options)
    with pytest.raises((RuntimeError, ValueError)):
        options.add_external_initializers_from_files_in_memory([name], [bytes(8)], [8])  # once more
    with pytest.raises((RuntimeError, ValueError)):
        options.add_external_initializers_from_files_in_memory(["a", "b"], [bytes(8)], [8])


@pytest.mark.parametrize("form", ["bytes", "path"])
def test_the_model_is_written_where_the_optimized_one_is_wanted(ort, form, tmp_path):
    source: bytes | Path = two_outputs()
    if form == "path":
        (tmp_path / "model.onnx").write_bytes(two_outputs())
        source = tmp_path / "model.onnx"
    options = ort.SessionOptions()
    options.optimized_model_filepath = str(tmp_path / "cache.onnx")
    ort.InferenceSession(source, options)
    np.testing.assert_array_equal(
        ort.InferenceSession(tmp_path / "cache.onnx").run(["sum"], {"x": X, "y": X})[0], 3 * X
    )


@pytest.mark.parametrize(
    ("level", "operators"),
    [
        ("ORT_DISABLE_ALL", ["Identity", "Constant", "Mul", "Erf", "Add", "Mul", "Mul"]),
        ("ORT_ENABLE_BASIC", ["Mul", "Erf", "Add", "Mul", "Mul"]),
        ("ORT_ENABLE_ALL", ["Gelu"]),
    ],
)
def test_the_model_that_is_written_has_its_level(level, operators, tmp_path):
    model = onnx.parser.parse_model("""
        <ir_version: 10, opset_import: ["" : 20]>
        g (float[n,3] x) => (float[n,3] y) <float root = {0.70710678}, float one = {1}> {
            same = Identity(x)
            half = Constant<value_float = 0.5>()
            scaled = Mul(same, root)
            erf = Erf(scaled)
            raised = Add(erf, one)
            doubled = Mul(same, raised)
            y = Mul(doubled, half)
        }""")
    options = onnx_torch.SessionOptions()
    options.optimized_model_filepath = str(tmp_path / "cache.onnx")
    options.graph_optimization_level = getattr(ours.GraphOptimizationLevel, level)
    expected = onnx_torch.InferenceSession(model.SerializeToString(), options).run(None, {"x": X})[0]
    written = onnx.load(tmp_path / "cache.onnx")
    assert [node.op_type for node in written.graph.node] == operators
    found = pytest.importorskip("onnxruntime").InferenceSession(tmp_path / "cache.onnx").run(None, {"x": X})[0]
    np.testing.assert_allclose(found, expected, rtol=1e-5, atol=1e-6)


def test_tools_that_disable_optimizers_get_the_model_as_it_came(tmp_path):
    model = onnx.parser.parse_model("""
        <ir_version: 10, opset_import: ["" : 20]>
        g (float[n,3] x) => (float[n,3] y) {
            same = Identity(x)
            y = Relu(same)
        }""").SerializeToString()
    options = onnx_torch.SessionOptions()
    options.optimized_model_filepath = str(tmp_path / "written.onnx")
    for disabled, operators in (["ConstantSharing"], ["Identity", "Relu"]), ([], ["Relu"]):
        onnx_torch.InferenceSession(model, options, disabled_optimizers=disabled)
        assert [node.op_type for node in onnx.load(tmp_path / "written.onnx").graph.node] == operators


@pytest.mark.parametrize("form", ["path", "memory"])
def test_a_written_model_has_its_external_data_beside_it(ort, form, tmp_path):
    (tmp_path / "model").mkdir()
    (tmp_path / "cache").mkdir()
    options = ort.SessionOptions()
    options.optimized_model_filepath = str(tmp_path / "cache" / "cached.onnx")
    options.add_session_config_entry("session.optimized_model_external_initializers_file_name", "cached.bin")
    data = b"12345678" + B.tobytes()
    source = tmp_path / "model" / "model.onnx"
    source.write_bytes(with_external_data())
    if form == "path":
        (tmp_path / "model" / "weights.bin").write_bytes(data)
    else:
        options.add_external_initializers_from_files_in_memory(["weights.bin"], [data], [len(data)])
    ort.InferenceSession(source, options)
    (tmp_path / "model" / "weights.bin").unlink(missing_ok=True)
    assert sorted(path.name for path in (tmp_path / "cache").iterdir()) == ["cached.bin", "cached.onnx"]
    session = ort.InferenceSession(tmp_path / "cache" / "cached.onnx")
    np.testing.assert_array_equal(session.run(None, {"a": ZEROS})[0], B)


def test_a_model_that_cannot_be_written_is_an_error(tmp_path):
    options = onnx_torch.SessionOptions()
    options.optimized_model_filepath = str(tmp_path / "nowhere" / "cache.onnx")
    with pytest.raises(onnx_torch.RunError, match=r"optimized_model_filepath: .*nowhere"):
        onnx_torch.InferenceSession(two_outputs(), options)


def test_a_model_is_not_written_over_itself(tmp_path, caplog):
    path = tmp_path / "model.onnx"
    path.write_bytes(two_outputs())
    options = onnx_torch.SessionOptions()
    options.optimized_model_filepath = str(path)
    onnx_torch.InferenceSession(path, options)
    assert [record.message.partition(" ")[0] for record in caplog.records] == ["optimized_model_filepath"]
    assert path.read_bytes() == two_outputs()
    assert list(tmp_path.iterdir()) == [path]


def test_initializers_are_replaced(ort):
    model = onnx.load_model_from_string(two_outputs())
    del model.graph.input[2]
    options = ort.SessionOptions()
    value = ort.OrtValue.ortvalue_from_numpy(np.array([10], np.float32))
    options.add_initializer("scale", value)
    outputs = ort.InferenceSession(model.SerializeToString(), options).run(["scaled"], {"x": X, "y": X})
    np.testing.assert_array_equal(outputs[0], 10 * X)


def test_external_initializers_are_replaced(ort, tmp_path):
    model = onnx.load_model_from_string(two_outputs())
    del model.graph.input[2]
    path = tmp_path / "model.onnx"
    onnx.save(model, path, save_as_external_data=True, location="weights.bin", size_threshold=0)
    (tmp_path / "weights.bin").unlink()
    options = ort.SessionOptions()
    value = ort.OrtValue.ortvalue_from_numpy(np.array([10], np.float32))
    options.add_external_initializers(["scale"], [value])
    session = ort.InferenceSession(path, options)
    np.testing.assert_array_equal(session.run(["scaled"], {"x": X, "y": X})[0], 10 * X)


def test_external_initializers_lie_in_a_folder_that_is_named(ort, tmp_path):
    model = onnx.load_model_from_string(two_outputs())
    del model.graph.input[2]
    (tmp_path / "files").mkdir()
    path = tmp_path / "files" / "model.onnx"
    onnx.save(model, path, save_as_external_data=True, location="weights.bin", size_threshold=0)
    options = ort.SessionOptions()
    options.add_session_config_entry("session.model_external_initializers_file_folder_path", str(path.parent))
    session = ort.InferenceSession(path.read_bytes(), options)
    np.testing.assert_array_equal(session.run(["scaled"], {"x": X, "y": X})[0], 2 * X)


def test_loading_is_canceled(ort, errors):
    options = ort.SessionOptions()
    options.set_load_cancellation_flag(True)
    with pytest.raises(errors.ModelLoadCanceled):
        ort.InferenceSession(two_outputs(), options)


def test_a_run_is_terminated(ort, errors):
    options = ort.RunOptions()
    options.terminate = True
    with pytest.raises(errors.Fail, match="terminate"):
        ort.InferenceSession(two_outputs()).run(None, {"x": X, "y": X}, options)


@pytest.mark.parametrize("profiling", [False, True])
def test_a_run_under_way_is_terminated(ort, errors, profiling, tmp_path):
    x, x2, y = (tensor_info(name, shape=[], element=FLOAT) for name in ("x", "x2", "y"))
    i, times = (tensor_info(name, shape=[], element=TensorProto.INT64) for name in ("i", "times"))
    more, more2 = (tensor_info(name, shape=[], element=TensorProto.BOOL) for name in ("more", "more2"))
    nodes = [helper.make_node("Neg", ["x"], ["x2"]), helper.make_node("Identity", ["more"], ["more2"])]
    body = helper.make_graph(nodes, "body", [i, more, x], [more2, x2])
    loop = helper.make_node("Loop", ["times", "", "x"], ["y"], body=body)
    model = described(model_of([loop], [times, x], [y], opset=17))
    session_options, options = ort.SessionOptions(), ort.RunOptions()
    session_options.enable_profiling, session_options.profile_file_prefix = profiling, str(tmp_path / "profile")
    session = ort.InferenceSession(model, session_options)
    one = np.array(1, np.float32)
    assert session.run(None, {"times": np.array(3), "x": one}, options) == [-1]

    timer = threading.Timer(0.5, setattr, (options, "terminate", True))
    timer.start()
    with pytest.raises(errors.Fail, match="Exiting due to terminate flag being set to true"):
        session.run(None, {"times": np.array(2**62), "x": one}, options)
    assert options.terminate
    options.terminate = False
    assert session.run(None, {"times": np.array(3), "x": one}, options) == [-1]
    session.end_profiling()


def test_profiles(ort, tmp_path):
    options = ort.SessionOptions()
    options.enable_profiling, options.profile_file_prefix = True, str(tmp_path / "profile")
    session = ort.InferenceSession(two_outputs(), options)
    np.testing.assert_array_equal(session.run(["sum"], {"x": X, "y": X})[0], 3 * X)
    assert session.get_profiling_start_time_ns() > 0
    with open(session.end_profiling()) as file:
        events = json.load(file)
    assert "model_run" in [event["name"] for event in events]
    nodes = {event["name"]: event for event in events if event["cat"] == "Node"}
    assert {event["args"]["op_name"] for event in nodes.values()} == {"Mul", "Add"}
    assert nodes["scaling_kernel_time"]["args"]["provider"] == "CPUExecutionProvider"
    assert all(event["dur"] >= 0 and event["ts"] >= 0 for event in events)


def test_profiles_started_together_are_files_of_their_own(ort, tmp_path):
    options = ort.SessionOptions()
    options.enable_profiling, options.profile_file_prefix = True, str(tmp_path / "profile")
    before = time.time_ns()
    for _ in range(2):
        session = ort.InferenceSession(two_outputs(), options)
        session.run(["sum"], {"x": X, "y": X})
        name = session.end_profiling()
        assert re.fullmatch(r"profile_\d{4}-\d\d-\d\d_\d\d-\d\d-\d\d_\d{3}\.json", os.path.basename(name))
        assert before <= session.get_profiling_start_time_ns() <= time.time_ns()
        assert session.end_profiling() == ""
        time.sleep(0.002)  # names tell milliseconds apart
    assert len(list(tmp_path.iterdir())) == 2


# --- Providers --------------------------------------------------------------------------------------------------------

absent_cuda = pytest.mark.skipif(torch.cuda.is_available(), reason="a CUDA device is there")


@absent_cuda
def test_an_absent_provider_is_warned_of(ort):
    with pytest.warns(
        UserWarning, match="Specified provider 'CUDAExecutionProvider' is not in available provider names"
    ):
        session = ort.InferenceSession(two_outputs(), providers=["CUDAExecutionProvider", "CPUExecutionProvider"])
    assert session.get_providers() == ["CPUExecutionProvider"]


@absent_cuda
def test_the_warning_names_the_callers_line():
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        session = onnx_torch.InferenceSession(two_outputs(), providers=["CUDAExecutionProvider"])
        session.set_providers(["CUDAExecutionProvider"])
    assert [warning.filename for warning in caught] == [__file__] * 2


@pytest.mark.parametrize(
    ("providers", "provider_options"),
    [
        ([("CPUExecutionProvider", {"arena_extend_strategy": "kSameAsRequested"})], None),
        (["CPUExecutionProvider"], [{}]),
        ([], None),
        (None, None),
    ],
)
def test_providers_come_in_each_form(ort, providers, provider_options):
    if torch.cuda.is_available() and providers is None:
        pytest.skip("a CUDA device is there")
    session = ort.InferenceSession(two_outputs(), None, providers, provider_options)
    assert session.get_providers() == ["CPUExecutionProvider"]
    session.set_providers(["CPUExecutionProvider"])
    np.testing.assert_array_equal(session.run(["scaled"], {"x": X, "y": X})[0], 2 * X)


def test_a_provider_given_twice_is_warned_of(ort):
    with pytest.warns(UserWarning, match="Duplicate provider 'CPUExecutionProvider' encountered, ignoring"):
        ort.InferenceSession(two_outputs(), providers=["CPUExecutionProvider"] * 2)


@pytest.mark.parametrize(
    ("providers", "provider_options"),
    [([3], None), (["CPUExecutionProvider"], []), ([("CPUExecutionProvider", {})], [{}])],
)
def test_providers_in_another_form_are_an_error(providers, provider_options):
    with pytest.raises(ValueError, match="provider"):
        onnx_torch.InferenceSession(two_outputs(), providers=providers, provider_options=provider_options)


def test_providers_of_the_options(ort):
    options = ort.SessionOptions()
    options.add_provider("CPUExecutionProvider", {})
    assert options.has_providers()
    assert ort.InferenceSession(two_outputs(), options).get_providers() == ["CPUExecutionProvider"]
    with pytest.warns(UserWarning, match="providers"):
        ort.InferenceSession(two_outputs(), options, providers=["CPUExecutionProvider"])


# --- OrtValue ---------------------------------------------------------------------------------------------------------


def test_a_value_on_the_hosts_memory(ort):
    array = X.copy()
    value = ort.OrtValue.ortvalue_from_numpy(array)
    assert (value.shape(), value.data_type(), value.element_type()) == ([2, 3], "tensor(float)", FLOAT)
    assert (value.device_name(), value.tensor_size_in_bytes(), value.is_tensor()) == ("cpu", 24, True)
    assert value.data_ptr() == array.ctypes.data
    assert (value.has_value(), value.is_sparse_tensor(), value.is_tensor_sequence()) == (True, False, False)
    array[0, 0] = 42
    np.testing.assert_array_equal(value.numpy(), array)
    value.update_inplace(-X)
    np.testing.assert_array_equal(array, -X)
    np.testing.assert_array_equal(np.asarray(value, np.float64), -X)


@pytest.mark.parametrize(
    "dtype", [np.float64, np.float16, np.int8, np.uint16, np.int32, np.uint64, np.bool_], ids=lambda t: t.__name__
)
def test_values_of_each_type(ort, dtype):
    array = np.array([[0, 1], [1, 0]], dtype)
    value = ort.OrtValue.ortvalue_from_numpy(array)
    np.testing.assert_array_equal(value.numpy(), array)
    assert value.element_type() == helper.np_dtype_to_tensor_dtype(np.dtype(dtype))
    tensor = torch.from_dlpack(value)
    np.testing.assert_array_equal(tensor.numpy().astype(dtype), array)
    np.testing.assert_array_equal(ort.OrtValue.from_dlpack(tensor).numpy().astype(dtype), array)


def test_a_value_shares_memory_by_dlpack(ort):
    tensor = torch.zeros(2, 3)
    value = ort.OrtValue.from_dlpack(tensor)
    tensor[0, 0] = 5
    assert value.numpy()[0, 0] == 5
    assert value.__dlpack_device__() == (1, 0)
    assert torch.from_dlpack(value).data_ptr() == tensor.data_ptr()


def test_a_value_of_a_shape_and_a_type(ort):
    for type_ in (np.float32, FLOAT):
        value = ort.OrtValue.ortvalue_from_shape_and_type([2, 3], type_)
        value.update_inplace(X)
        np.testing.assert_array_equal(value.numpy(), X)
    assert ort.OrtValue.ortvalue_from_shape_and_type([1], TensorProto.BFLOAT16).data_type() == "tensor(bfloat16)"


def test_a_value_whose_type_numpy_lacks():
    array = X.astype(ml_dtypes.bfloat16)
    bits = onnx_torch.OrtValue.ortvalue_from_numpy_with_onnx_type(array.view(np.uint16), TensorProto.BFLOAT16)
    assert bits.data_type() == "tensor(bfloat16)"
    np.testing.assert_array_equal(bits.numpy(), array)
    assert torch.from_dlpack(bits).dtype == torch.bfloat16
    with pytest.raises(onnx_torch.InputError, match="size"):
        onnx_torch.OrtValue.ortvalue_from_numpy_with_onnx_type(array.view(np.uint16), FLOAT)


def test_a_value_takes_only_what_fits():
    value = onnx_torch.OrtValue.ortvalue_from_numpy(X.copy())
    for other in (X[:1], X.astype(np.float64)):
        with pytest.raises(onnx_torch.InputError, match="cannot take"):
            value.update_inplace(other)


def test_values_are_fed_and_come_out(ort):
    session = ort.InferenceSession(two_outputs())
    x, y = ort.OrtValue.ortvalue_from_numpy(X), ort.OrtValue.ortvalue_from_numpy(2 * X)
    np.testing.assert_array_equal(session.run(["sum"], {"x": x, "y": y})[0], 4 * X)
    scaled, total = session.run_with_ort_values(None, {"x": x, "y": y})
    np.testing.assert_array_equal(scaled.numpy(), 2 * X)
    np.testing.assert_array_equal(total.numpy(), 4 * X)


def test_values_are_copied(ort):
    source, target = (ort.OrtValue.ortvalue_from_numpy(array) for array in (X.copy(), np.zeros_like(X)))
    ours.copy_tensors([source], [target]) if ort is ours else target.update_inplace(source.numpy())
    np.testing.assert_array_equal(target.numpy(), X)


def test_a_vector_of_values():
    session = onnx_torch.InferenceSession(two_outputs())
    x = onnx_torch.OrtValue.ortvalue_from_numpy(X)
    fetches = ours.capi.onnxruntime_pybind11_state.OrtValueVector()
    session.run_with_ortvaluevector(None, ["x", "y"], [x, x], ["sum", "scaled"], fetches, [])
    assert len(fetches) == 2
    assert fetches.element_type_at(0) == FLOAT
    np.testing.assert_array_equal(torch.from_dlpack(fetches.dlpack_at(0)).numpy(), 3 * X)
    assert [torch.from_dlpack(capsule).sum() for capsule in fetches.to_dlpacks(None)] == [3 * X.sum(), 2 * X.sum()]


# --- Bindings ---------------------------------------------------------------------------------------------------------


def test_binds_arrays(ort):
    session = ort.InferenceSession(two_outputs())
    binding = session.io_binding()
    binding.bind_cpu_input("x", X)
    binding.bind_ortvalue_input("y", ort.OrtValue.ortvalue_from_numpy(X))
    binding.bind_output("sum")
    binding.bind_output("scaled", "cpu")
    session.run_with_iobinding(binding)
    for output, expected in zip(binding.copy_outputs_to_cpu(), (3 * X, 2 * X), strict=True):
        np.testing.assert_array_equal(output, expected)
    assert [value.shape() for value in binding.get_outputs()] == [[2, 3], [2, 3]]


def test_binds_addresses(ort):
    session = ort.InferenceSession(two_outputs())
    binding = session.io_binding()
    x, total, scaled = X.copy(), np.zeros_like(X), np.zeros_like(X)
    binding.bind_input("x", "cpu", 0, np.float32, x.shape, x.ctypes.data)
    binding.bind_input("y", "cpu", 0, np.float32, x.shape, x.ctypes.data)
    binding.bind_output("sum", "cpu", 0, np.float32, total.shape, total.ctypes.data)
    binding.bind_ortvalue_output("scaled", ort.OrtValue.ortvalue_from_numpy(scaled))
    for factor in (1, 2):
        np.multiply(X, factor, out=x)
        session.run_with_iobinding(binding)
        np.testing.assert_array_equal(total, 3 * x)
        np.testing.assert_array_equal(scaled, 2 * x)


def test_binds_by_the_native_class(ort):
    """onnxruntime's own IOBinding binds in this way, and so do programs that go around it."""
    native = importlib.import_module(f"{ort.__name__}.capi.onnxruntime_pybind11_state")
    session = ort.InferenceSession(two_outputs())
    assert isinstance(ort.IOBinding(session)._iobinding, native.SessionIOBinding)
    binding, cpu = native.SessionIOBinding(session._sess), ort.OrtDevice.make("cpu", 0)._get_c_device()
    x, total = X.copy(), np.zeros_like(X)
    binding.bind_input("x", cpu, np.float32, x.shape, x.ctypes.data)
    binding.bind_input("y", X)
    binding.bind_output("sum", cpu, np.float32, total.shape, total.ctypes.data)
    binding.bind_output("scaled", cpu)
    binding.synchronize_inputs()
    session._sess.run_with_iobinding(binding, None)
    binding.synchronize_outputs()
    np.testing.assert_array_equal(total, 3 * X)
    outputs = binding.get_outputs()
    assert isinstance(outputs, native.OrtValueVector) and [value.shape() for value in outputs] == [[2, 3], [2, 3]]
    for output, expected in zip(binding.copy_outputs_to_cpu(), (3 * X, 2 * X), strict=True):
        np.testing.assert_array_equal(output, expected)
    value = ort.OrtValue.ortvalue_from_numpy(np.ones_like(X))
    binding.clear_binding_inputs()
    binding.clear_binding_outputs()
    for name in "x", "y":
        binding.bind_ortvalue_input(name, value._ortvalue)
    result = ort.OrtValue.ortvalue_from_numpy(np.zeros_like(X))
    binding.bind_ortvalue_output("sum", result._ortvalue)
    session._sess.run_with_iobinding(binding, None)
    np.testing.assert_array_equal(result.numpy(), np.full_like(X, 3))


def test_bindings_that_do_not_fit(ort):
    session = ort.InferenceSession(two_outputs())
    binding = session.io_binding()
    with pytest.raises(RuntimeError):
        binding.bind_cpu_input("nothing", X)
    with pytest.raises(ValueError, match="element_type"):
        binding.bind_output("sum", buffer_ptr=1)
    with pytest.raises(ValueError, match="session"):
        ort.InferenceSession(two_outputs()).run_with_iobinding(binding)
    binding.bind_cpu_input("x", X)
    binding.bind_cpu_input("y", X)
    with pytest.raises(RuntimeError, match="At least one output should be requested"):
        session.run_with_iobinding(binding)
    binding.bind_ortvalue_output("sum", ort.OrtValue.ortvalue_from_numpy(np.zeros((5, 3), np.float32)))
    with pytest.raises(RuntimeError, match="shape"):
        session.run_with_iobinding(binding)
    binding.clear_binding_outputs()
    binding.bind_output("sum")
    session.run_with_iobinding(binding)
    np.testing.assert_array_equal(binding.copy_outputs_to_cpu()[0], 3 * X)


@pytest.mark.parametrize(
    "element, shape, pointer, why",
    [
        (np.float32, (2, 3), 0, "24 bytes cannot lie at the address 0"),
        (np.float32, (2, 3), -8, "24 bytes cannot lie at the address -8"),
        (np.float32, (2, 3), 2**64 - 8, "24 bytes cannot lie at the address"),
        (np.float32, (2**40, 2**40), 64, "bytes cannot lie at the address 64"),
        (np.float32, (-2, -3), 64, r"cannot have the shape \[-2, -3\]"),
        (np.float32, (2, 3), 66, "the address 66 is not aligned for elements of type float32"),
        (np.object_, (2, 3), 64, "cannot be at an address"),
        (np.str_, (2, 3), 64, "cannot be at an address"),
    ],
)
def test_onnxruntime_28839_binds_no_memory_that_cannot_be(element, shape, pointer, why):
    binding = onnx_torch.InferenceSession(two_outputs()).io_binding()
    for bind in binding.bind_input, binding.bind_output:
        with pytest.raises(onnx_torch.InputError, match=why):
            bind("sum" if bind == binding.bind_output else "x", "cpu", 0, element, shape, pointer)


def test_onnxruntime_28839_bound_memory_of_another_type_or_size_is_refused():
    session = onnx_torch.InferenceSession(two_outputs())
    binding, memory = session.io_binding(), np.zeros((2, 3), np.float64)
    for element, shape in (np.float64, (2, 3)), (np.float32, (1, 3)), (np.float32, (6,)):
        binding.bind_cpu_input("x", X)
        binding.bind_cpu_input("y", X)
        binding.bind_output("sum", "cpu", 0, element, shape, memory.ctypes.data)
        with pytest.raises(onnx_torch.InputError, match="cannot take float32 of shape"):
            session.run_with_iobinding(binding)
    binding.bind_output("sum")
    binding.bind_input("x", "cpu", 0, np.float64, memory.shape, memory.ctypes.data)
    with pytest.raises(onnx_torch.InputError, match="must be tensor"):
        session.run_with_iobinding(binding)
    assert not memory.any()


@absent_cuda
def test_binds_no_device_that_is_not_there():
    binding = onnx_torch.InferenceSession(two_outputs()).io_binding()
    with pytest.raises(onnx_torch.InputError, match="there is no device cuda:0"):
        binding.bind_output("sum", "cuda")
    with pytest.raises(onnx_torch.InputError, match="Unsupported device type"):
        binding.bind_output("sum", "toaster")


@absent_cuda
def test_options_of_the_cuda_provider(monkeypatch):
    monkeypatch.setattr(_devices, "get_available_providers", _devices.get_all_providers)
    prepared, prepare = [], prepared_model.prepare
    monkeypatch.setattr(
        prepared_model, "prepare", lambda *args, **options: prepared.append(options) or prepare(*args, **options)
    )

    def session(**options):
        return onnx_torch.InferenceSession(two_outputs(), providers=[("CUDAExecutionProvider", options)])

    with PretendedCuda():
        PretendedRecording.made = 0
        graphs = session(enable_cuda_graph="1", use_tf32=1)
        for _ in range(2):
            total = graphs.run(["sum"], {"x": X, "y": X})[0]
        assert np.array_equal(total, 3 * X) and PretendedRecording.made == 1
        assert prepared[-1]["cuda_graphs"] and prepared[-1]["tf32"]
        assert graphs.get_provider_options() == {
            "CUDAExecutionProvider": {"device_id": "0", "enable_cuda_graph": "1", "use_tf32": "1"}
        }
        never, as_it_is = session(enable_cuda_graph=False), session()
        assert [options["cuda_graphs"] for options in prepared[-2:]] == [False, None]
        assert prepared[-1]["tf32"] is False
        for made, one in ((1, never), (2, as_it_is)):
            for _ in range(4):
                assert np.array_equal(one.run(["sum"], {"x": X, "y": X})[0], 3 * X)
            assert PretendedRecording.made == made
        with pytest.raises(onnx_torch.InputError, match="enable_cuda_graph is 0 or 1, not 'maybe'"):
            session(enable_cuda_graph="maybe")


@pytest.mark.skipif(not torch.cuda.is_available(), reason="no CUDA device")
def test_runs_on_cuda():
    session = onnx_torch.InferenceSession(two_outputs(), providers=["CUDAExecutionProvider"])
    assert session.get_providers() == ["CUDAExecutionProvider"]
    binding = session.io_binding()
    x, total = torch.from_numpy(X).cuda(), torch.zeros(2, 3, device="cuda")
    binding.bind_input("x", "cuda", 0, np.float32, x.shape, x.data_ptr())
    binding.bind_ortvalue_input("y", onnx_torch.OrtValue.ortvalue_from_numpy(X, "cuda"))
    binding.bind_output("sum", "cuda", 0, np.float32, total.shape, total.data_ptr())
    binding.bind_output("scaled", "cuda")
    session.run_with_iobinding(binding)
    np.testing.assert_array_equal(total.cpu(), 3 * X)
    scaled = binding.get_outputs()[1]
    assert scaled.device_name() == "cuda"
    np.testing.assert_array_equal(torch.from_dlpack(scaled).cpu(), 2 * X)
    np.testing.assert_array_equal(scaled.numpy(), 2 * X)
