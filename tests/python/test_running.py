"""Runs of a prepared model: kinds of tensors, chosen outputs, the caller's memory, options, copies."""

import copy
import multiprocessing
import os
import pickle
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import ml_dtypes
import numpy as np
import pytest
import torch
from onnx import TensorProto, helper, numpy_helper, parser

import onnx_torch
from models import model_of, op_model, tensor_info
from onnx_torch import backend

X = np.arange(6, dtype=np.float32).reshape(2, 3)


def two_outputs():
    """Makes a model: a = x + 1, b = a * 2, c = -x."""
    nodes = [
        helper.make_node("Add", ["x", "one"], ["a"]),
        helper.make_node("Mul", ["a", "two"], ["b"]),
        helper.make_node("Neg", ["x"], ["c"]),
    ]
    constants = [numpy_helper.from_array(np.float32(value), name) for name, value in [("one", 1), ("two", 2)]]
    x = tensor_info("x", element=TensorProto.FLOAT, shape=["batch", 3])
    return model_of(nodes, [x], ["b", "c"], initializer=constants)


def test_operators_are_declared_at_the_import():
    code = "import torch, onnx_torch; print(len(torch._C._jit_get_schemas_for_operator('onnx_torch::chain')))"
    done = subprocess.run([sys.executable, "-c", code], stdout=subprocess.PIPE, text=True, check=True)
    assert done.stdout.strip() == "1"


class Speaks:
    """An array of another library, as far as DLPack can tell."""

    def __init__(self, tensor):
        self.tensor = tensor

    def __dlpack__(self, **options):
        return self.tensor.__dlpack__(**options)

    def __dlpack_device__(self):
        return self.tensor.__dlpack_device__()


# --- Kinds of tensors -----------------------------------------------------------------------------------------------


def test_torch_in_torch_out():
    b, c = backend.prepare(two_outputs()).run([torch.from_numpy(X)])
    assert isinstance(b, torch.Tensor) and isinstance(c, torch.Tensor)
    torch.testing.assert_close(b, torch.from_numpy((X + 1) * 2))
    assert not b.is_inference()
    (b * torch.ones(3, requires_grad=True)).sum().backward()


def test_dlpack_in_dlpack_out():
    b, _ = backend.prepare(two_outputs()).run({"x": Speaks(torch.from_numpy(X))})
    np.testing.assert_array_equal(np.from_dlpack(b), (X + 1) * 2)


@pytest.mark.parametrize("kind", ["numpy", "torch", "dlpack"])
@pytest.mark.parametrize("given", [X, torch.from_numpy(X), Speaks(torch.from_numpy(X))])
def test_outputs_come_as_asked(given, kind):
    b, _ = backend.prepare(two_outputs()).run(given, output=kind)
    assert isinstance(b, np.ndarray if kind == "numpy" else torch.Tensor)
    np.testing.assert_array_equal(np.asarray(b), (X + 1) * 2)


def test_an_unknown_kind_is_an_error():
    with pytest.raises(onnx_torch.InputError, match='"numpy", "torch" or "dlpack"'):
        backend.prepare(two_outputs()).run([X], output="cupy")


DTYPES = {
    "FLOAT": torch.float32, "DOUBLE": torch.float64, "FLOAT16": torch.float16, "BFLOAT16": torch.bfloat16,
    "INT8": torch.int8, "INT16": torch.int16, "INT32": torch.int32, "INT64": torch.int64, "UINT8": torch.uint8,
    "UINT16": torch.uint16, "UINT32": torch.uint32, "UINT64": torch.uint64, "BOOL": torch.bool,
    "COMPLEX64": torch.complex64, "COMPLEX128": torch.complex128, "FLOAT8E4M3FN": torch.float8_e4m3fn,
    "FLOAT8E5M2": torch.float8_e5m2, "FLOAT8E4M3FNUZ": torch.float8_e4m3fnuz, "FLOAT8E5M2FNUZ": torch.float8_e5m2fnuz,
    "FLOAT8E8M0": torch.float8_e8m0fnu,
}  # fmt: skip


@pytest.mark.parametrize("name", DTYPES)
def test_every_dtype_of_torch_goes_in_and_out(name):
    x = torch.tensor([[1, 0, 1], [2, 1, 0]]).to(DTYPES[name])
    info = tensor_info("x", element=TensorProto.DataType.Value(name), shape=[2, 3])
    (y,) = backend.prepare(model_of([helper.make_node("Identity", ["x"], ["y"])], [info], ["y"])).run([x])
    assert y.dtype == x.dtype
    assert torch.equal(y.view(torch.uint8), x.view(torch.uint8))


def test_types_that_torch_lacks_are_one_element_a_byte():
    x = np.array([1, -2, 7], ml_dtypes.int4)
    (y,) = backend.prepare(op_model("Identity", [x])).run([x], output="torch")
    assert y.dtype == torch.int8 or y.dtype == torch.uint8
    (z,) = backend.prepare(op_model("Identity", [x])).run([y], output="numpy")
    np.testing.assert_array_equal(z, x)


def test_a_torch_tensor_is_not_copied():
    """A copy of 4 TiB would not fit."""
    huge = torch.ones(1).expand(1 << 20, 1 << 20)
    x = tensor_info("x", element=TensorProto.FLOAT, shape=["n", "m"])
    at = numpy_helper.from_array(np.array(0), "at")
    model = model_of([helper.make_node("Gather", ["x", "at"], ["row"])], [x], ["row"], initializer=[at])
    (row,) = backend.prepare(model).run([huge])
    assert row.shape == (1 << 20,)


def test_any_layout_of_torch_goes_in():
    x = torch.arange(6.0).reshape(3, 2)
    b, _ = backend.prepare(two_outputs()).run([x.T])
    torch.testing.assert_close(b, (x.T + 1) * 2)
    with pytest.raises(onnx_torch.InputError, match="sparse"):
        backend.prepare(two_outputs()).run([x.T.to_sparse()])


# --- Chosen outputs, the caller's memory ----------------------------------------------------------------------------


def test_only_the_outputs_asked_for_are_computed():
    rep = backend.prepare(two_outputs())
    outputs = rep.run([X], output_names=["c"])
    assert len(outputs) == 1
    np.testing.assert_array_equal(outputs["c"], -X)
    np.testing.assert_array_equal(rep.run([X], output_names=["c", "b"])[1], (X + 1) * 2)
    failing = model_of(
        [helper.make_node("Reshape", ["x", "s"], ["bad"]), helper.make_node("Neg", ["x"], ["good"])],
        [tensor_info("x", X), tensor_info("s", np.array([7]))],
        ["bad", "good"],
    )
    feeds = [X, np.array([7])]
    np.testing.assert_array_equal(backend.prepare(failing).run(feeds, output_names=["good"])[0], -X)
    with pytest.raises(onnx_torch.RunError, match="Reshape"):
        backend.prepare(failing).run(feeds)
    with pytest.raises(onnx_torch.InputError, match='no value "d"'):
        rep.run([X], output_names=["d"])


def test_intermediates():
    rep = backend.prepare(two_outputs())
    values = rep.intermediates([X])
    assert list(values) == ["a", "b", "c"]
    np.testing.assert_array_equal(values["a"], X + 1)
    assert list(rep.intermediates([X], ["a"])) == ["a"]


@pytest.mark.parametrize("kind", ["numpy", "torch"])
def test_outputs_are_written_into_the_callers_memory(kind):
    mine = np.zeros((2, 3), np.float32) if kind == "numpy" else torch.zeros(2, 3)
    rep = backend.prepare(two_outputs())
    outputs = rep.run([X], out={"c": mine})
    assert outputs["c"] is mine
    np.testing.assert_array_equal(mine, -X)
    np.testing.assert_array_equal(outputs["b"], (X + 1) * 2)
    assert rep.run([2 * X], out=[None, mine])[1] is mine
    np.testing.assert_array_equal(mine, -2 * X)


@pytest.mark.parametrize(
    ("out", "message"),
    [
        ({"c": np.zeros((3, 2), np.float32)}, r"shape \[2, 3\]"),
        ({"c": np.zeros((2, 3))}, "float64"),
        ({"d": np.zeros((2, 3))}, "'d'"),
        ([np.zeros((2, 3))], "2 arrays"),
    ],
)
def test_memory_that_does_not_fit_is_an_error(out, message):
    with pytest.raises(onnx_torch.InputError, match=message):
        backend.prepare(two_outputs()).run([X], out=out)


# --- Options, copies ------------------------------------------------------------------------------------------------


def test_shapes_fix_symbolic_dimensions():
    rep = backend.prepare(two_outputs(), shapes={"batch": 2})
    assert rep.inputs[0][2] == [2, 3]
    np.testing.assert_array_equal(rep.run([X])[1], -X)
    with pytest.raises(onnx_torch.InputError, match=r"\[2, 3\], not \[1, 3\]"):
        rep.run([X[:1]])
    with pytest.raises(onnx_torch.InputError, match='"Batch"; there are batch'):
        backend.prepare(two_outputs(), shapes={"Batch": 2})
    with pytest.raises(onnx_torch.InputError, match="-2"):
        backend.prepare(two_outputs(), shapes={"batch": -2})


def test_threads_hold_for_the_model_alone():
    before = torch.get_num_threads()
    for threads in (-1, 1_048_576):
        with pytest.raises(onnx_torch.InputError, match=f"from 0 to 1024, not {threads}"):
            backend.prepare(two_outputs(), threads=threads)
    for threads in (1, 2, 3):
        backend.prepare(two_outputs(), threads=threads).run([X])
        assert torch.get_num_threads() == before


def same(rep):
    np.testing.assert_array_equal(rep.run([X])[1], -X)
    assert rep.options["shapes"] == {"batch": 2}


def _in_a_new_process(rep, queue):
    queue.put(rep.run([X])[1])


@pytest.mark.parametrize("source", ["proto", "path"])
def test_a_prepared_model_pickles_and_copies(source, tmp_path):
    model = two_outputs()
    if source == "path":
        (tmp_path / "m.onnx").write_bytes(model.SerializeToString())
        model = tmp_path / "m.onnx"
    rep = backend.prepare(model, shapes={"batch": 2}, threads=1)
    same(pickle.loads(pickle.dumps(rep)))
    same(copy.copy(rep))
    same(copy.deepcopy({"model": rep})["model"])


def test_the_threads_of_a_model_hold_where_its_inputs_and_results_are_converted():
    code = """if True:
        import numpy as np, onnx_torch, process_threads
        from onnx import parser
        text = '<ir_version: 10, opset_import: ["": 21]> g (uint32[n] x) => (uint32[n] y) { y = Add(x, x) }'
        model = parser.parse_model(text)
        rep, x = onnx_torch.prepare(model, threads=1), np.arange(1 << 20, dtype=np.uint32)
        threads = process_threads.names().keys()
        (y,) = rep.run([x])
        assert (y == 2 * x).all() and process_threads.names().keys() <= threads
    """
    subprocess.run(
        [sys.executable, "-c", code], check=True, cwd=Path(__file__).parent, env={**os.environ, "OMP_NUM_THREADS": "2"}
    )


def test_a_prepared_model_survives_spawn():
    context = multiprocessing.get_context("spawn")
    queue = context.Queue()
    process = context.Process(target=_in_a_new_process, args=(backend.prepare(two_outputs()), queue))
    process.start()
    np.testing.assert_array_equal(queue.get(timeout=60), -X)
    process.join()
    assert process.exitcode == 0


def large_convolutions():
    """Makes y = conv(x), z = conv(y), of 1 MB each, which pass for large (src/base/work_memory.h)."""
    weights = np.random.default_rng(0).standard_normal((16, 16, 3, 3)).astype(np.float32)
    nodes = [helper.make_node("Conv", [x, "w"], [y], pads=[1, 1, 1, 1]) for x, y in ("xy", "yz")]
    x = tensor_info("x", element=TensorProto.FLOAT, shape=[1, 16, 128, 128])
    return model_of(nodes, [x], ["y", "z"], initializer=[numpy_helper.from_array(weights, "w")])


@pytest.mark.parametrize("kind", ["numpy", "torch"])
def test_results_stay_as_they_are_in_later_runs(kind):
    rep = backend.prepare(large_convolutions())
    kept = []
    for seed in range(6):
        x = np.random.default_rng(seed).standard_normal((1, 16, 128, 128)).astype(np.float32)
        results = rep.run([x], output=kind)
        kept += [(result, np.asarray(result).copy()) for result in (results if seed % 2 else results[:1])]
    for result, copied in kept:
        np.testing.assert_array_equal(np.asarray(result), copied)


def test_results_outlive_their_model():
    rep = backend.prepare(large_convolutions())
    y, z = rep.run([np.ones((1, 16, 128, 128), np.float32)])
    again = y.copy(), z.copy()
    del rep
    np.testing.assert_array_equal((y, z), again)


def test_threads_that_share_a_model_do_not_share_memory():
    rep = backend.prepare(large_convolutions())
    inputs = [np.random.default_rng(seed).standard_normal((1, 16, 128, 128)).astype(np.float32) for seed in range(4)]
    expected = [rep.run([x]) for x in inputs]
    with ThreadPoolExecutor(4) as pool:
        for _ in range(5):
            for found, wanted in zip(pool.map(lambda x: rep.run([x]), inputs), expected, strict=True):
                np.testing.assert_array_equal(found, wanted)


def resident_bytes() -> int:
    return int(Path("/proc/self/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")


def test_trim_gives_back_what_runs_have_left():
    """An intermediate result of 64 MB waits for the next run, and so does the graph that gave another output."""
    weights = np.zeros((16, 16, 1, 1), np.float32)
    nodes = [helper.make_node("Conv", [x, "w"], [y]) for x, y in ("xy", "yz")]
    nodes.append(helper.make_node("ReduceSum", ["z"], ["sum"]))
    x = tensor_info("x", element=TensorProto.FLOAT, shape=[1, 16, 1024, 1024])
    rep = backend.prepare(model_of(nodes, [x], ["sum"], initializer=[numpy_helper.from_array(weights, "w")]))
    inputs = [np.ones((1, 16, 1024, 1024), np.float32)]
    before = rep.run(inputs)[0].sum(), rep.run(inputs, output_names=["y"])[0].sum()
    kept = resident_bytes()
    rep.trim()
    assert kept - resident_bytes() > 60e6
    after = rep.run(inputs)[0].sum(), rep.run(inputs, output_names=["y"])[0].sum()
    np.testing.assert_array_equal(before, after)


LOOPS = {
    "its value is an output, too": "a = Exp(x) b = Loop<body = BODY>(n, , x)",
    "an operator takes both": "e = Exp(x) s = Loop<body = BODY>(n, , x) a = Add(e, s) b = Identity(x)",
    "within a branch": "a = Exp(x) t = Constant<value_int = 1>() c = Greater(n, t) "
    "b = If(c)<then_branch = one () => (r) { r = Loop<body = BODY>(n, , x) }, "
    "else_branch = two () => (q) { q = Abs(x) }>",
}


@pytest.mark.parametrize("optimize", [False, True])
@pytest.mark.parametrize("name", LOOPS)
def test_a_loop_leaves_what_it_reads_to_those_behind_it(name, optimize):
    """TorchScript's interpreter takes the last use of a value out of its register, and a body has its uses again."""
    read = "e" if "Add(e" in LOOPS[name] else "a"
    body = f"l (int64 i, bool c, float[3] s) => (bool d, float[3] t) {{ t = Neg({read}) d = Identity(c) }}"
    text = LOOPS[name].replace("<body = BODY>", f"<body = {body}>")
    source = (
        f'<ir_version: 10, opset_import: ["": 21]> g (float[3] x, int64 n) => (float[3] a, float[3] b) {{ {text} }}'
    )
    x = np.float32([1, 2, 3])
    exact = np.exp(x)
    expected = {"a": np.zeros_like(x), "b": x} if read == "e" else {"a": exact, "b": -exact}
    found = backend.prepare(parser.parse_model(source), optimize=optimize).run([x, np.array(4)])  # the first run
    for value, wanted in zip(found, expected.values(), strict=True):
        np.testing.assert_allclose(value, wanted, rtol=1e-6)


@pytest.mark.parametrize("optimize", [False, True])
def test_a_loop_begins_with_what_another_operator_gives(optimize):
    """The element type and sizes of the first value may be known where those of the next are not."""
    model = parser.parse_model(
        """<ir_version: 10, opset_import: ["": 21]> g (uint8[3] x, int64 n) => (float[3] b)
           <float scale = {0.5}, uint8 zero = {3}>
           { a = DequantizeLinear(x, scale, zero)
             b = Loop<body = l (int64 i, bool c, float[3] t) => (bool d, float[3] u) { u = Neg(t) d = Identity(c) }>
                 (n, , a) }"""
    )
    (found,) = backend.prepare(model, optimize=optimize).run([np.uint8([3, 4, 9]), np.array(3)])
    np.testing.assert_array_equal(found, [0, -0.5, -3])
