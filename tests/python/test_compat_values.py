"""Values of onnxruntime's programs besides arrays: sparse tensors, adapters, compiled models, options in the model.

Most tests run on onnxruntime, too, which says what is right.
"""

from __future__ import annotations

import contextlib
import json
from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

import onnx_torch
import onnx_torch.compat.onnxruntime as ours

onnxruntime = pytest.importorskip("onnxruntime")
ENGINES = {"onnx_torch": ours, "onnxruntime": onnxruntime}
X = np.array([[1, 2]], np.float32)
LORA = np.arange(6, dtype=np.float32).reshape(2, 3)


@pytest.fixture(params=ENGINES)
def ort(request):
    """Gives each of the two engines."""
    return ENGINES[request.param]


def parsed(text: str) -> onnx.ModelProto:
    return onnx.parser.parse_model(f'<ir_version: 8, opset_import: ["" : 17]> {text}')


def session(ort, model: onnx.ModelProto, options=None):
    return ort.InferenceSession(model.SerializeToString(), options, providers=["CPUExecutionProvider"])


RELU = "g (float[n,2] x) => (float[n,2] y) { y = Relu(x) }"

# --- Sparse tensors ---------------------------------------------------------------------------------------------------


def coordinates(ort):
    return ort.SparseTensor.sparse_coo_from_numpy(
        [3, 3], np.array([1, 2], np.float32), np.array([[0, 0], [1, 2]], np.int64), ort.OrtDevice.make("cpu", 0)
    )


def counted(ort):
    return ort.SparseTensor.sparse_coo_from_numpy(
        [3, 3], np.array([1, 2], np.float32), np.array([0, 5], np.int64), ort.OrtDevice.make("cpu", 0)
    )


def rows(ort):
    return ort.SparseTensor.sparse_csr_from_numpy(
        [3, 3],
        np.array([1, 2], np.float32),
        np.array([0, 2], np.int64),
        np.array([0, 1, 2, 2], np.int64),
        ort.OrtDevice.make("cpu", 0),
    )


def sparse_product() -> onnx.ModelProto:
    graph = helper.make_graph(
        [helper.make_node("SparseToDenseMatMul", ["x", "w"], ["y"], domain="com.microsoft")],
        "g",
        [helper.make_sparse_tensor_value_info("x", 1, [3, 3]), helper.make_tensor_value_info("w", 1, [3, 2])],
        [helper.make_tensor_value_info("y", 1, [3, 2])],
    )
    imports = [helper.make_opsetid("", 17), helper.make_opsetid("com.microsoft", 1)]
    return helper.make_model(graph, opset_imports=imports, ir_version=8)


@pytest.mark.parametrize("made", [coordinates, counted, rows])
def test_a_sparse_tensor_tells_what_it_is(ort, made):
    tensor = made(ort)
    assert tensor.dense_shape() == [3, 3]
    assert tensor.data_type() == "sparse_tensor(float)"
    assert tensor.device_name() == "cpu"
    assert tensor.values().tolist() == [1, 2]
    if made is rows:
        assert tensor.format() == ort.OrtSparseFormat.ORT_SPARSE_CSRC
        assert tensor.as_csrc_view().inner().tolist() == [0, 2]
        assert tensor.as_csrc_view().outer().tolist() == [0, 1, 2, 2]
        with pytest.raises(RuntimeError, match="does not contain COO format"):
            tensor.as_coo_view()
            tensor.as_coo_view().indices()
    else:
        assert tensor.format() == ort.OrtSparseFormat.ORT_SPARSE_COO
        assert tensor.as_coo_view().indices().tolist() == ([0, 5] if made is counted else [[0, 0], [1, 2]])
        with pytest.raises(RuntimeError, match=r"does not contain CSR\(C\) format"):
            tensor.as_csrc_view().inner()


@pytest.mark.parametrize("made", [coordinates, rows])
def test_a_model_takes_sparse_tensors(ort, made):
    product = session(ort, sparse_product())
    assert [(arg.type, arg.shape) for arg in product.get_inputs()] == [
        ("sparse_tensor(float)", [3, 3]),
        ("tensor(float)", [3, 2]),
    ]
    w = np.arange(6, dtype=np.float32).reshape(3, 2)
    value = ort.OrtValue.ort_value_from_sparse_tensor(made(ort))
    assert value.is_sparse_tensor()
    assert not value.is_tensor()
    assert value.data_type() == "sparse_tensor(float)"
    assert value.as_sparse_tensor().values().tolist() == [1, 2]
    expected = np.array([[1, 0, 0], [0, 0, 2], [0, 0, 0]], np.float32) @ w
    np.testing.assert_array_equal(product.run(None, {"x": value, "w": w})[0], expected)
    feeds = {"x": value, "w": ort.OrtValue.ortvalue_from_numpy(w)}
    np.testing.assert_array_equal(product.run_with_ort_values(["y"], feeds)[0].numpy(), expected)


def test_an_output_that_is_declared_sparse_is_sparse(ort):
    values = helper.make_tensor("y", TensorProto.FLOAT, [2], [1.0, 2.0])
    places = helper.make_tensor("places", TensorProto.INT64, [2], [1, 5])
    initializer = helper.make_sparse_tensor(values, places, [3, 3])
    output = helper.make_sparse_tensor_value_info("y", 1, [3, 3])
    graph = helper.make_graph([], "g", [], [output], sparse_initializer=[initializer])
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)
    assert session(ort, model).get_outputs()[0].shape == [3, 3]
    assert session(ort, model).run(None, {})[0].values().tolist() == [1, 2]
    tensor = session(ort, model).run_with_ort_values(["y"], {})[0].as_sparse_tensor()
    assert tensor.dense_shape() == [3, 3]
    assert tensor.as_coo_view().indices().tolist() == [1, 5]


@pytest.mark.parametrize(
    ("shape", "indices", "message"),
    [
        ([3, 3], [0, 9], "outside of the shape"),
        ([3, 3], [0, -1], "outside of the shape"),
        ([3, 3], [[0, 0], [0, 3]], "outside of the shape"),
        ([3, 3], [0, 1, 2], "2 values have as many indices"),
        ([27], [[0, 0], [0, 3]], "pairs of indices are of a matrix"),
    ],
)
def test_indices_that_do_not_fit_are_errors(shape, indices, message):
    values = np.array([1, 2], np.float32)
    with pytest.raises(onnx_torch.InputError, match=message):
        ours.SparseTensor.sparse_coo_from_numpy(shape, values, np.array(indices), ours.OrtDevice.make("cpu", 0))


@pytest.mark.parametrize("starts", [[0, 1, 2], [0, 2, 1, 2], [1, 1, 1, 2], [0, 1, 1, 1]])
def test_rows_that_do_not_fit_are_errors(starts):
    values = np.array([1, 2], np.float32)
    with pytest.raises(onnx_torch.InputError, match="rows"):
        ours.SparseTensor.sparse_csr_from_numpy(
            [3, 3], values, np.array([0, 2]), np.array(starts), ours.OrtDevice.make("cpu", 0)
        )


def test_texts_are_no_values_of_a_sparse_tensor(ort):
    with pytest.raises(RuntimeError):
        ort.SparseTensor.sparse_coo_from_numpy(
            [2], np.array(["a"], object), np.array([0], np.int64), ort.OrtDevice.make("cpu", 0)
        )


def test_a_dense_value_is_no_sparse_tensor(ort):
    with pytest.raises(RuntimeError):
        ort.OrtValue.ortvalue_from_numpy(X).as_sparse_tensor()


# --- Adapters ---------------------------------------------------------------------------------------------------------


def adapted() -> onnx.ModelProto:
    """Makes a product with a matrix that is zero unless an adapter has it."""
    return parsed(
        "g (float[n,2] x, float[2,3] lora) => (float[n,3] y) <float[2,3] lora = {0,0,0,0,0,0}> { y = MatMul(x, lora) }"
    )


def write_adapter(ort, file: Path, parameters: dict[str, np.ndarray]) -> None:
    adapter = ort.AdapterFormat()
    adapter.set_adapter_version(3)
    adapter.set_model_version(7)
    adapter.set_parameters({name: ort.OrtValue.ortvalue_from_numpy(value) for name, value in parameters.items()})
    adapter.export_adapter(str(file))


@pytest.mark.parametrize("writer", ENGINES)
@pytest.mark.parametrize("reader", ENGINES)
def test_each_engine_reads_the_adapters_of_both(writer, reader, tmp_path):
    parameters = {
        "lora": LORA,
        "a longer name": np.arange(5),
        "half": np.array([3], np.float16),
        "empty": np.empty((0, 3), np.int8),
        "bytes": np.arange(3, dtype=np.uint8),
    }
    write_adapter(ENGINES[writer], tmp_path / "it.onnx_adapter", parameters)
    read = ENGINES[reader].AdapterFormat.read_adapter(str(tmp_path / "it.onnx_adapter"))
    assert (read.get_format_version(), read.get_adapter_version(), read.get_model_version()) == (1, 3, 7)
    found = read.get_parameters()
    assert found.keys() == parameters.keys()
    for name, value in parameters.items():
        assert found[name].numpy().dtype == value.dtype
        np.testing.assert_array_equal(found[name].numpy(), value)


def test_an_adapter_may_hold_a_scalar(tmp_path):
    write_adapter(ours, tmp_path / "it", {"scalar": np.array(3, np.float32)})
    value = ours.AdapterFormat.read_adapter(tmp_path / "it").get_parameters()["scalar"].numpy()
    assert (value.shape, value.item()) == ((), 3)


def test_an_adapter_is_fed_to_the_runs_that_name_it(ort, tmp_path):
    write_adapter(ort, tmp_path / "it", {"lora": LORA})
    adapter, options = ort.LoraAdapter(), ort.RunOptions()
    adapter.Load(str(tmp_path / "it"))
    options.add_active_adapter(adapter)
    model = session(ort, adapted())
    np.testing.assert_array_equal(model.run(None, {"x": X}, options)[0], X @ LORA)
    np.testing.assert_array_equal(model.run(None, {"x": X})[0], np.zeros((1, 3)))
    np.testing.assert_array_equal(model.run(None, {"x": X, "lora": 1 + LORA}, options)[0], X @ LORA)
    value = ort.OrtValue.ortvalue_from_numpy(X)
    np.testing.assert_array_equal(model.run_with_ort_values(["y"], {"x": value}, options)[0].numpy(), X @ LORA)


def test_an_adapter_of_another_model_is_an_error(ort, tmp_path):
    write_adapter(ort, tmp_path / "it", {"other": LORA})
    adapter, options = ort.LoraAdapter(), ort.RunOptions()
    adapter.Load(str(tmp_path / "it"))
    options.add_active_adapter(adapter)
    with pytest.raises(ort.capi.onnxruntime_pybind11_state.InvalidArgument, match="other"):
        session(ort, adapted()).run(None, {"x": X}, options)


def test_what_is_no_adapter_is_an_error(ort, tmp_path):
    (tmp_path / "it").write_bytes(b"x" * 100)
    with pytest.raises(RuntimeError):
        ort.AdapterFormat.read_adapter(str(tmp_path / "it"))
    with pytest.raises(RuntimeError):
        ort.LoraAdapter().Load(str(tmp_path / "nowhere"))


def test_onnxruntime_27518_an_adapter_that_is_cut_or_changed_is_read_or_an_error(tmp_path):
    """onnxruntime before 1.24.3 read behind data that is shorter than a parameter's shape and type say."""
    file = tmp_path / "it"
    write_adapter(ours, file, {"lora": LORA, "n": np.arange(4)})
    whole, failed = file.read_bytes(), 0
    changed = [whole[:size] for size in range(len(whole))]
    changed += [whole[:at] + bytes([byte]) + whole[at + 1 :] for at in range(len(whole)) for byte in (0, 127, 255)]
    for data in changed:
        file.write_bytes(data)
        with contextlib.suppress(onnx_torch.InputError):
            ours.AdapterFormat.read_adapter(file)
            continue
        failed += 1
    assert failed > len(whole)


@pytest.mark.parametrize("shape", [(2, 4), (3, 3), (2, 2), (2**31, 3), (2**62, 2**62), (-2, -3), (0, 3), (2, 2**61)])
def test_onnxruntime_27518_data_of_another_size_than_the_shape_is_refused(shape, tmp_path):
    file = tmp_path / "it"
    write_adapter(ours, file, {"lora": LORA})
    data, dims = file.read_bytes(), np.array(LORA.shape, np.int64).tobytes()
    assert data.count(dims) == 1
    file.write_bytes(data.replace(dims, np.array(shape, np.int64).tobytes()))
    with pytest.raises(onnx_torch.InputError, match="the file is no adapter"):
        ours.AdapterFormat.read_adapter(file)


# --- Compiled models --------------------------------------------------------------------------------------------------


def weighted() -> onnx.ModelProto:
    model = parsed("g (float[n,64] x) => (float[n,64] y) { y = MatMul(x, w) }")
    weight = np.random.default_rng(0).standard_normal((64, 64)).astype(np.float32)
    model.graph.initializer.append(numpy_helper.from_array(weight, "w"))
    return model


ROW = np.arange(64, dtype=np.float32)[None]


def test_a_model_is_compiled_to_a_file(ort, tmp_path):
    onnx.save(weighted(), tmp_path / "model.onnx")
    compiler = ort.ModelCompiler(ort.SessionOptions(), tmp_path / "model.onnx")
    compiler.compile_to_file(str(tmp_path / "compiled.onnx"))
    (tmp_path / "model.onnx").unlink()
    compiled = ort.InferenceSession(str(tmp_path / "compiled.onnx"), providers=["CPUExecutionProvider"])
    assert [(arg.name, arg.shape) for arg in compiled.get_outputs()] == [("y", ["n", 64])]
    expected = session(ort, weighted()).run(None, {"x": ROW})[0]
    np.testing.assert_array_equal(compiled.run(None, {"x": ROW})[0], expected)


def test_a_model_is_compiled_to_bytes_and_streams(ort):
    compiler = ort.ModelCompiler(ort.SessionOptions(), weighted().SerializeToString())
    parts: list[bytes] = []
    compiler.compile_to_stream(parts.append)
    expected = session(ort, weighted()).run(None, {"x": ROW})[0]
    for data in (compiler.compile_to_bytes(), b"".join(parts)):
        compiled = ort.InferenceSession(data, providers=["CPUExecutionProvider"])
        np.testing.assert_array_equal(compiled.run(None, {"x": ROW})[0], expected)


def test_a_compiled_model_lies_beside_its_model(tmp_path):
    onnx.save(weighted(), tmp_path / "model.onnx")
    flags = ours.OrtCompileApiFlags.ERROR_IF_OUTPUT_FILE_EXISTS
    compiler = ours.ModelCompiler(ours.SessionOptions(), str(tmp_path / "model.onnx"), flags=flags)
    compiler.compile_to_file()
    assert (tmp_path / "model_ctx.onnx").exists()
    with pytest.raises(onnx_torch.InputError, match="exists"):
        compiler.compile_to_file()
    with pytest.raises(onnx_torch.InputError, match="needs a name"):
        ours.ModelCompiler(ours.SessionOptions(), weighted().SerializeToString()).compile_to_file()


def test_a_compiled_model_may_be_fed_as_any_other(tmp_path):
    model = parsed("g (float s, float[n,64] x) => (float[n,64] y) { z = MatMul(x, w) \n y = Mul(z, s) }")
    model.graph.initializer.extend(weighted().graph.initializer)
    data = ours.ModelCompiler(ours.SessionOptions(), model.SerializeToString()).compile_to_bytes()
    feeds = {"s": np.array([2], np.float32), "x": ROW}
    expected = session(ours, model).run(None, feeds)[0]
    np.testing.assert_array_equal(ours.InferenceSession(data).run(None, feeds)[0], expected)


# --- Options in the model ---------------------------------------------------------------------------------------------


def holding(text: str) -> onnx.ModelProto:
    model = parsed(RELU)
    model.metadata_props.add(key="ort_config", value=text)
    return model


def test_options_in_the_model_replace_those_given(ort, monkeypatch):
    monkeypatch.setenv("ORT_LOAD_CONFIG_FROM_MODEL", "1")
    given = ort.SessionOptions()
    given.intra_op_num_threads, given.inter_op_num_threads = 7, 7
    held = {"inter_op_num_threads": 5, "execution_mode": 1, "graph_optimization_level": 2, "unknown": 3}
    options = session(ort, holding(json.dumps({"session_options": held})), given).get_session_options()
    assert (options.inter_op_num_threads, options.intra_op_num_threads) == (5, 0)
    assert options.execution_mode == ort.ExecutionMode.ORT_PARALLEL
    assert options.graph_optimization_level == ort.GraphOptimizationLevel.ORT_ENABLE_EXTENDED
    assert session(ort, parsed(RELU), given).get_session_options().intra_op_num_threads == 0
    monkeypatch.delenv("ORT_LOAD_CONFIG_FROM_MODEL")
    assert session(ort, holding("nonsense"), given).get_session_options().intra_op_num_threads == 7


@pytest.mark.parametrize(
    "held", ["nonsense", {"execution_mode": 7}, {"inter_op_num_threads": "x"}, {"enable_profiling": 2}]
)
def test_options_in_the_model_that_cannot_be_are_errors(ort, held, monkeypatch):
    monkeypatch.setenv("ORT_LOAD_CONFIG_FROM_MODEL", "1")
    with pytest.raises(RuntimeError, match="ort_config|model file|execution_mode|enable_profiling"):
        session(ort, holding(held if isinstance(held, str) else json.dumps({"session_options": held})))


# --- The rest ---------------------------------------------------------------------------------------------------------


def test_raw_memory_is_fed_as_texts(ort):
    model = parsed("g (string[m,n] x) => (string[m,n] y) { y = Identity(x) }")
    fed = np.array([b"must", b"have", b"same", b"size"], np.void).reshape(2, 2)
    assert session(ort, model).run(None, {"x": fed})[0].tolist() == [["must", "have"], ["same", "size"]]


def test_external_data_of_a_model_of_bytes_lies_in_the_working_directory(ort, tmp_path, monkeypatch):
    LORA.tofile(tmp_path / "weights.bin")
    model = parsed("g (float[n,2] x) => (float[n,3] y) { y = MatMul(x, w) }")
    weight = model.graph.initializer.add(name="w", data_type=1, dims=[2, 3], data_location=TensorProto.EXTERNAL)
    weight.external_data.add(key="location", value="weights.bin")
    monkeypatch.chdir(tmp_path)
    plain = ort.SessionOptions()
    plain.graph_optimization_level = ort.GraphOptimizationLevel.ORT_DISABLE_ALL
    np.testing.assert_array_equal(session(ort, model, plain).run(None, {"x": X})[0], X @ LORA)


@pytest.mark.filterwarnings("ignore:Specified provider")
def test_an_unknown_provider_is_an_error(ort):
    with pytest.raises(RuntimeError, match="Unknown Provider Type: NoSuchProvider"):
        session(ort, parsed(RELU)).set_providers(["NoSuchProvider"])


def test_all_providers_of_onnxruntime_are_known():
    from onnx_torch.compat import _devices

    assert set(onnxruntime.get_all_providers()) <= _devices.KNOWN_PROVIDERS


def test_options_of_providers_are_dictionaries(ort):
    with pytest.raises(ValueError, match="'provider_options' values must be dicts"):
        session(ort, parsed(RELU)).set_providers(["CPUExecutionProvider"], ["a"])


@pytest.mark.parametrize(
    ("declared", "merged"),
    [
        ("float[p,q] y", ["p", 5]),
        ("float[n,5] y", ["n", 5]),
        ("float[p,5] y", ["p", 5]),
    ],
)
def test_declared_shapes_are_merged_with_inferred_ones(ort, declared, merged):
    model = parsed(f"g (float[n,2] x, float[2,5] w) => ({declared}) {{ y = MatMul(x, w) }}")
    assert session(ort, model).get_outputs()[0].shape == merged


@pytest.mark.parametrize(("level", "sizes"), [("ORT_DISABLE_ALL", ["n", "h", "s"]), ("ORT_ENABLE_ALL", ["n", 2, "s"])])
def test_sizes_that_nodes_compute_are_followed_where_models_are_optimized(ort, level, sizes):
    model = parsed("""g (float[n,s,2] x) => (float[n,h,s] y)
        <int64 first = {0}, int64[1] axes = {0}, int64[1] rest = {-1}, int64[1] two = {2}> {
            all = Shape(x)
            number = Gather(all, first)
            batch = Unsqueeze(number, axes)
            shape = Concat<axis = 0>(batch, rest, two)
            rows = Reshape(x, shape)
            y = Transpose<perm = [0, 2, 1]>(rows)
        }""")
    options = ort.SessionOptions()
    options.graph_optimization_level = getattr(ort.GraphOptimizationLevel, level)
    assert ort.InferenceSession(model.SerializeToString(), options).get_outputs()[0].shape == sizes


def test_a_shape_that_is_left_out_is_inferred(ort):
    model = parsed("g (float[n,2] x, float[2,5] w) => (y) { y = MatMul(x, w) }")
    assert session(ort, model).get_outputs()[0].shape == ["n", 5]


def test_open_dimensions_without_a_name_stay_so(ort):
    model = parsed("g (float[n,2] x) => (int64[a,b] y) { y = NonZero(x) }")
    model.graph.output[0].type.tensor_type.ClearField("shape")
    assert session(ort, model).get_outputs()[0].shape == [2, None]


def test_an_operator_that_nobody_knows_is_an_error_of_both_names(ort):
    model = parsed("g (float[n,2] x) => (float[n,2] y) { y = com.microsoft.Frob(x) }")
    model.opset_import.append(helper.make_opsetid("com.microsoft", 1))
    with pytest.raises(ort.capi.onnxruntime_pybind11_state.Fail, match="Frob"):
        session(ort, model)
    with pytest.raises(ours.capi.onnxruntime_pybind11_state.NotImplemented, match="Frob"):
        session(ours, model)


def test_imports_of_opsets_may_be_doubled_and_unused(ort):
    model = parsed(RELU)
    for domain, version in [("", 17), ("none.such", 3)]:
        model.opset_import.append(helper.make_opsetid(domain, version))
    np.testing.assert_array_equal(session(ort, model).run(None, {"x": X})[0], X)
