"""The interface of onnx.backend, and the errors it gives."""

import pickle
import threading
import time

import ml_dtypes
import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

import onnx_torch
from models import model_of, op_model, run_op, tensor_info
from onnx_torch import backend

FLOAT = TensorProto.FLOAT
X = np.arange(6, dtype=np.float32).reshape(2, 3)


def add_model(**options):
    node = helper.make_node("Add", ["a", "b"], ["sum"], name="adder")
    inputs = [tensor_info("a", element=FLOAT, shape=[2, 3]), tensor_info("b", element=FLOAT, shape=["N", 3])]
    return model_of([node], inputs, ["sum"], **options)


# --- Forms of a model, of inputs and of outputs ---------------------------------------------------------------------


def test_a_model_is_a_proto_bytes_or_a_path(tmp_path):
    model = add_model()
    path = tmp_path / "model.onnx"
    onnx.save(model, path)
    for form in (model, model.SerializeToString(), path, str(path)):
        np.testing.assert_array_equal(backend.prepare(form).run([X, X])[0], X + X)


def test_external_data_lies_beside_the_model(tmp_path):
    weight = numpy_helper.from_array(X, "b")
    add = helper.make_node("Add", ["a", "b"], ["sum"])
    model = model_of([add], [tensor_info("a", X)], ["sum"], initializer=[weight])
    path = tmp_path / "model.onnx"
    onnx.save(model, path, save_as_external_data=True, location="weights.bin", size_threshold=0)
    np.testing.assert_array_equal(backend.prepare(path).run([X])[0], X + X)
    (tmp_path / "weights.bin").unlink()
    with pytest.raises(onnx_torch.InvalidModelError, match="weights.bin"):
        backend.prepare(path)


@pytest.mark.parametrize("location", ["../outside.bin", "/etc/hostname"])
def test_external_data_stays_below_the_model(tmp_path, location):
    weight = TensorProto(name="b", data_type=FLOAT, dims=[1], data_location=TensorProto.EXTERNAL)
    weight.external_data.add(key="location", value=location)
    add = helper.make_node("Add", ["a", "b"], ["sum"])
    model = model_of([add], [tensor_info("a", X)], ["sum"], initializer=[weight])
    path = tmp_path / "model.onnx"
    path.write_bytes(model.SerializeToString())
    with pytest.raises(onnx_torch.InvalidModelError, match="beside or below"):
        backend.prepare(path)


def test_inputs_are_a_list_a_dictionary_or_one_array():
    rep = backend.prepare(add_model())
    for inputs in ([X, X], (X, X), {"a": X, "b": X}):
        np.testing.assert_array_equal(rep.run(inputs).sum, X + X)
    relu = backend.prepare(op_model("Relu", [X]))
    np.testing.assert_array_equal(relu.run(-X)[0], np.zeros_like(X))


def test_scalars_and_nested_lists_take_the_inputs_type():
    node = helper.make_node("Mul", ["a", "b"], ["y"])
    inputs = [tensor_info("a", element=FLOAT, shape=[]), tensor_info("b", element=FLOAT, shape=None)]
    rep = backend.prepare(model_of([node], inputs, ["y"]))
    result = rep.run([2, [1, 2, 3]]).y
    assert result.dtype == np.float32
    np.testing.assert_array_equal(result, [2, 4, 6])


def test_outputs_are_found_by_position_field_and_true_name():
    nodes = [helper.make_node("Relu", ["x"], ["good"]), helper.make_node("Neg", ["x"], ["1 bad.name"])]
    outputs = backend.prepare(model_of(nodes, [tensor_info("x", X)], ["good", "1 bad.name"])).run([X])
    assert isinstance(outputs, tuple)
    assert outputs[0] is outputs.good is outputs["good"]
    assert outputs[1] is outputs._1 is outputs["1 bad.name"]
    again = pickle.loads(pickle.dumps(outputs))
    assert again._fields == outputs._fields
    np.testing.assert_array_equal(again["1 bad.name"], -X)


def test_an_initializer_that_is_an_input_may_be_fed():
    ones = numpy_helper.from_array(np.ones((2, 3), np.float32), "b")
    rep = backend.prepare(add_model(initializer=[ones]))
    np.testing.assert_array_equal(rep.run([X])[0], X + 1)
    np.testing.assert_array_equal(rep.run([X, X])[0], X + X)
    np.testing.assert_array_equal(rep.run({"a": X, "b": X})[0], X + X)
    np.testing.assert_array_equal(rep.run([X, None])[0], X + 1)
    np.testing.assert_array_equal(rep.run([X])[0], X + 1)


def test_module_and_class_are_the_same():
    assert backend.OnnxTorchBackend.run_model(add_model(), [X, X])[0].tolist() == (X + X).tolist()
    assert backend.run_model(add_model(), [X, X])[0].tolist() == (X + X).tolist()
    assert isinstance(backend.prepare(add_model()), onnx.backend.base.BackendRep)
    assert issubclass(backend.OnnxTorchBackend, onnx.backend.base.Backend)


def test_onnx_names_of_the_interface_are_this_package_s_classes():
    rep = backend.Backend.prepare(add_model(), backend.Device("CPU"))
    assert isinstance(rep, backend.BackendRep)
    np.testing.assert_array_equal(rep.run([X, X])[0], X + X)
    assert [cls.__module__ for cls in (backend.Backend, backend.BackendRep, backend.Device)] == [backend.__name__] * 3


@pytest.mark.parametrize("optimize", [True, False])
def test_of_an_output_the_last_element_may_be_all_that_is_wanted(optimize):
    model = onnx.parser.parse_model(
        """<ir_version: 10, opset_import: ["": 21]>
        net (float[2, N, 3] x) => (float[2, N, 3] y, float[2, N, 3] z, float[2] rows, seq(float[2, N, 3]) s) {
            y = Neg(x)
            z = Exp(y)
            rows = ReduceMax<keepdims = 0>(x, ones)
            s = SequenceConstruct(y, z)
        }"""
    )
    model.graph.initializer.append(numpy_helper.from_array(np.array([1, 2]), "ones"))
    x = np.random.default_rng(0).standard_normal((2, 5, 3), np.float32)
    whole = backend.prepare(model, optimize=optimize).run([x])
    for names in ("y", ["y", "s", "nothing"]):
        rep = backend.prepare(model, last_only=names, optimize=optimize)
        assert rep._prepared.output_shapes[:2] == [[2, 1, 3], [2, "N", 3]]
        for found in (rep.run([x]), rep.run([x], output_names=["y", "z", "rows", "s"])):
            np.testing.assert_array_equal(found[0], whole[0][:, -1:])
            np.testing.assert_array_equal(found[1], whole[1])
            np.testing.assert_array_equal(found[3][1], whole[3][1])
    with pytest.raises(onnx_torch.RunError, match="imension"):
        backend.prepare(model, last_only=["rows"], optimize=optimize).run([x])


def test_a_prepared_model_tells_what_it_is(tmp_path):
    ones = numpy_helper.from_array(np.ones((2, 3), np.float32), "b")
    path = tmp_path / "model.onnx"
    onnx.save(add_model(initializer=[ones]), path)
    assert repr(backend.prepare(path, threads=2)).splitlines() == [
        f"<OnnxTorchRep of {path}",
        "    device: CPU",
        "    input: a: tensor(float)[2, 3]",
        "    input: b: tensor(float)[N, 3], which has a default",
        "    output: sum: tensor(float)",
        "    options: precision='float32', tf32=False, cuda_graphs=None, optimize=True, disabled_passes=set(), "
        "threads=2, shapes={}, limits={}, allow_aten='checked', links='follow', map_external=False, plans=8, "
        "last_only=set(), base_dir=None>",
    ]
    backend.prepare(path).save(tmp_path / "saved")
    assert f"of {tmp_path / 'saved'}\n" in repr(onnx_torch.load(tmp_path / "saved"))
    assert "of a model given as bytes (graph 'test')\n" in repr(backend.prepare(add_model()))


def test_run_node():
    node = helper.make_node("Clip", ["x", "", "max"], ["y"])
    np.testing.assert_array_equal(backend.run_node(node, [X, np.float32(3)])[0], np.minimum(X, 3))
    old = helper.make_node("Clip", ["x"], ["y"], max=3.0)
    np.testing.assert_array_equal(backend.run_node(old, [X], opset_version=6)[0], np.minimum(X, 3))
    with pytest.raises(onnx.checker.ValidationError):
        backend.run_node(old, [X])


def test_one_model_takes_changing_shapes():
    rep = backend.prepare(op_model("Flatten", [X]))
    for shape in ((2, 3), (4, 5, 6), (0, 7), (1, 2, 3, 4, 5)):
        x = np.ones(shape, np.float32)
        assert rep.run([x])[0].shape == (shape[0], int(np.prod(shape[1:])))


# --- Devices --------------------------------------------------------------------------------------------------------


def test_devices():
    assert backend.supports_device("CPU")
    assert not backend.supports_device("OpenCL")
    assert not backend.supports_device("CUDA:99")
    assert backend.Device("CUDA:1").device_id == 1
    assert backend.Device("CPU").type == backend.DeviceType.CPU
    assert {backend.Device("cuda"), backend.Device("CUDA:0")} == {backend.Device("CUDA:0")}
    assert str(backend.Device("cuda:1")) == "CUDA:1"
    with pytest.raises(onnx_torch.DeviceError, match="OpenCL"):
        backend.Device("OpenCL")
    with pytest.raises(onnx_torch.DeviceError, match="OpenCL"):
        backend.prepare(add_model(), "OpenCL")
    with pytest.raises(onnx_torch.DeviceError, match="CUDA:99"):
        backend.prepare(add_model(), "CUDA:99")


# --- Errors ---------------------------------------------------------------------------------------------------------


def test_all_unsupported_operators_are_listed():
    nodes = [
        helper.make_node("Frobnicate", ["x"], ["y"], name="first"),
        helper.make_node("Relu", ["y"], ["z"]),
        helper.make_node("Grumble", ["z"], ["w"], name="second", domain="my.domain"),
    ]
    model = model_of(nodes, [tensor_info("x", X)], ["w"])
    model.opset_import.append(helper.make_opsetid("my.domain", 3))
    with pytest.raises(onnx_torch.UnsupportedError) as caught:
        backend.prepare(model)
    text = str(caught.value)
    assert 'Frobnicate "first" (opset' in text
    assert 'my.domain.Grumble "second" (opset 3)' in text
    assert (caught.value.op_type, caught.value.node_name, caught.value.domain) == ("Frobnicate", "first", "")
    assert not backend.is_compatible(model)


def test_an_opset_newer_than_the_schemas_is_refused():
    model = add_model()
    model.opset_import[0].version = 10_000
    with pytest.raises(onnx_torch.UnsupportedError, match="newer"):
        backend.prepare(model)


@pytest.mark.parametrize(
    ("node", "message"),
    [
        (helper.make_node("Concat", ["x", "x"], ["y"]), 'required attribute "axis" is missing'),
        (helper.make_node("Relu", ["x"], ["y"], slope=2.0), 'unknown attribute "slope"'),
        (helper.make_node("Concat", ["x", "x"], ["y"], axis=1.0), 'attribute "axis" must be of type int, not float'),
        (helper.make_node("Add", ["x"], ["y"]), "1 inputs; allowed are 2 to 2"),
        (helper.make_node("Add", ["x", ""], ["y"]), 'required input "B" is missing'),
    ],
)
def test_a_node_that_breaks_its_schema_is_refused(node, message):
    node.name = "culprit"
    model = model_of([node], [tensor_info("x", X)], ["y"])
    with pytest.raises(onnx_torch.InvalidModelError, match=message) as caught:
        backend.prepare(model)
    assert caught.value.node_name == "culprit"
    assert not backend.is_compatible(model)


def test_a_broken_file_is_refused(tmp_path):
    with pytest.raises(onnx_torch.InvalidModelError, match="not an ONNX model"):
        backend.prepare(b"\xff\xff\xff")
    with pytest.raises(onnx_torch.InvalidModelError, match=r"missing\.onnx"):
        backend.prepare(tmp_path / "missing.onnx")


def test_a_value_that_nothing_defines_is_named():
    with pytest.raises(onnx_torch.InvalidModelError, match='"nowhere"'):
        backend.prepare(model_of([helper.make_node("Relu", ["nowhere"], ["y"])], [], ["y"]))


def test_a_failing_node_names_itself_and_the_shapes_it_saw():
    nodes = [helper.make_node("Relu", ["x"], ["r"]), helper.make_node("Reshape", ["r", "s"], ["y"], name="reshape_4")]
    shape = np.array([4, 5], np.int64)
    rep = backend.prepare(model_of(nodes, [tensor_info("x", X), tensor_info("s", shape)], ["y"], opset=13))
    with pytest.raises(onnx_torch.RunError) as caught:
        rep.run([X, shape])
    assert str(caught.value).startswith('Reshape "reshape_4" (opset 13): ')
    assert "input 0: Float [2, 3]" in str(caught.value)
    error = pickle.loads(pickle.dumps(caught.value))
    assert (error.op_type, error.node_name, error.domain, error.version) == ("Reshape", "reshape_4", "", 13)


@pytest.mark.parametrize(
    ("inputs", "message"),
    [
        ([X], "expected 2 inputs"),
        ([X, X, X], "expected 2 inputs"),
        ({"a": X}, 'input "b" is missing'),
        ({"a": X, "c": X}, "unknown input 'c'"),
        ([X, X.astype(np.float64)], r'"b" must be tensor\(float\), not tensor\(double\)'),
        ([X, X[0]], r'"b" must be of shape \[N, 3\], not \[3\]'),
        ([X[:1], X], r'"a" must be of shape \[2, 3\], not \[1, 3\]'),
        ([X, np.zeros((2, 3), "datetime64[s]")], "element type datetime64"),
        ([X, None], '"b" must be .*absent'),
    ],
)
def test_wrong_inputs_say_which_what_and_what_came(inputs, message):
    with pytest.raises(onnx_torch.InputError, match=message):
        backend.prepare(add_model()).run(inputs)


def test_uint16_holds_the_bits_of_bfloat16_where_the_model_asks_for_it():
    x = np.array([1.5, -2], ml_dtypes.bfloat16)
    rep = backend.prepare(op_model("Neg", [x]))
    (y,) = rep.run([x.view(np.uint16)])
    assert y.dtype == ml_dtypes.bfloat16
    np.testing.assert_array_equal(y, -x)


def test_all_errors_are_the_packages_own():
    for name in ("InvalidModelError", "UnsupportedError", "InputError", "DeviceError", "RunError"):
        assert issubclass(getattr(onnx_torch, name), onnx_torch.Error)


# --- Memory and threads ---------------------------------------------------------------------------------------------


def test_outputs_have_memory_of_their_own():
    weight = numpy_helper.from_array(X, "w")
    nodes = [
        helper.make_node("Identity", ["x"], ["same"]),
        helper.make_node("Identity", ["same"], ["twice"]),
        helper.make_node("Identity", ["w"], ["constant"]),
        helper.make_node("Transpose", ["x"], ["view"]),
    ]
    names = ["same", "twice", "constant", "view"]
    rep = backend.prepare(model_of(nodes, [tensor_info("x", X)], names, initializer=[weight]))
    x = X.copy()
    outputs, later = rep.run([x]), rep.run([x])
    arrays = [x, *outputs, *later]
    for i, one in enumerate(arrays):
        assert not any(np.shares_memory(one, other) for other in arrays[i + 1 :])
    for array in outputs:
        array += 100
    np.testing.assert_array_equal(x, X)
    np.testing.assert_array_equal(rep.run([x]).constant, X)


def leaves(value):
    """Lists the arrays of a tensor or of a sequence, in order."""
    return [array for item in value for array in leaves(item)] if isinstance(value, list) else [value]


@pytest.mark.parametrize("names", ["listed again item", "again", "item", "listed listed", "parts", "parts x_row"])
def test_sequences_have_memory_of_their_own(names):
    nodes = [
        helper.make_node("SequenceConstruct", ["x", "x", "w"], ["listed"]),
        helper.make_node("Identity", ["listed"], ["again"]),
        helper.make_node("SequenceAt", ["listed", "first"], ["item"]),
        helper.make_node("SplitToSequence", ["x"], ["parts"], axis=0),
        helper.make_node("SequenceAt", ["parts", "first"], ["x_row"]),
    ]
    constants = [numpy_helper.from_array(X, "w"), numpy_helper.from_array(np.int64(0), "first")]
    outputs = ["listed", "again", "item", "parts", "x_row"]
    rep = backend.prepare(model_of(nodes, [tensor_info("x", X)], outputs, initializer=constants))
    x = X.copy()
    values, later = (list(rep.run([x], output_names=names.split())) for _ in range(2))
    arrays = [x, *leaves(values), *leaves(later)]
    for i, one in enumerate(arrays):
        assert not any(np.shares_memory(one, other) for other in arrays[i + 1 :])
    for array in leaves(values):
        array += 100
    np.testing.assert_array_equal(x, X)
    for value, expected in zip(rep.run([x], output_names=names.split()), later, strict=True):
        np.testing.assert_array_equal(value, expected)


def test_what_comes_out_of_a_branch_or_a_loop_has_memory_of_its_own():
    """The input that goes through an If, a Loop that carries it, an Optional or a sequence comes out as a copy."""
    same = helper.make_graph([helper.make_node("Identity", ["x"], ["s"])], "same", [], [tensor_info("s", X)])
    carried = [tensor_info("i", np.int64(0)), tensor_info("go", np.bool_(True)), tensor_info("a", X)]
    body = helper.make_graph(
        [helper.make_node("Identity", ["go"], ["on"]), helper.make_node("Identity", ["a"], ["b"])],
        "body",
        carried,
        [tensor_info("on", np.bool_(True)), tensor_info("b", X)],
    )
    nodes = [
        helper.make_node("If", ["c"], ["branch"], then_branch=same, else_branch=same),
        helper.make_node("Loop", ["n", "", "x"], ["loop"], body=body),
        helper.make_node("Optional", ["x"], ["optional"]),
        helper.make_node("SequenceAt", ["xs", "n"], ["item"]),
    ]
    xs = helper.make_tensor_sequence_value_info("xs", TensorProto.FLOAT, None)
    inputs = [tensor_info("x", X), tensor_info("c", np.bool_(True)), tensor_info("n", np.int64(1)), xs]
    rep = backend.prepare(model_of(nodes, inputs, ["branch", "loop", "optional", "item"]))
    x, others = X.copy(), [X.copy(), X.copy()]
    outputs = rep.run({"x": x, "c": np.bool_(True), "n": np.int64(1), "xs": others})
    arrays = [x, *others, *outputs]
    for i, one in enumerate(arrays):
        np.testing.assert_array_equal(one, X)
        assert not any(np.shares_memory(one, other) for other in arrays[i + 1 :])


def test_inputs_are_not_copied():
    """An array of 4 TiB that repeats one element cannot be copied."""
    endless = np.broadcast_to(np.ones(1, np.float32), (2**40,))
    assert run_op("Shape", [endless])[0].tolist() == [2**40]


@pytest.mark.parametrize("make", [lambda x: x[::-1], lambda x: x.T, lambda x: x[:, ::2], lambda x: x.astype(">f4")])
def test_any_layout_of_input(make):
    x = make(X)
    np.testing.assert_array_equal(run_op("Neg", [x])[0], -x)


def test_many_threads_run_one_model():
    rep = backend.prepare(op_model("MatMul", [np.zeros((8, 8), np.float32)] * 2))
    rng = np.random.default_rng(0)
    pairs = [rng.random((2, 8, 8), np.float32) for _ in range(64)]
    wrong = []

    def work(part):
        wrong.extend(1 for a, b in part if not np.allclose(rep.run([a, b])[0], a @ b, rtol=1e-4))

    threads = [threading.Thread(target=work, args=(pairs[i::4],)) for i in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not wrong


def test_the_interpreter_is_free_while_a_model_runs():
    big = np.ones((1500, 1500), np.float32)
    nodes = [helper.make_node("MatMul", ["x", "x"], ["y0"])]
    nodes += [helper.make_node("MatMul", [f"y{i}", "x"], [f"y{i + 1}"]) for i in range(20)]
    rep = backend.prepare(model_of(nodes, [tensor_info("x", big)], ["y20"]))
    rep.run([big])
    done = threading.Event()

    def work():
        rep.run([big])
        done.set()

    thread = threading.Thread(target=work)
    thread.start()
    turns = 0
    while not done.is_set():
        turns += 1
        time.sleep(0.001)
    thread.join()
    assert turns > 3
