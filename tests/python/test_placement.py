"""The placement of nodes on a CUDA device that is pretended (pretended_cuda.py): the official suite, `placement`."""

from __future__ import annotations

import pathlib
import re

import numpy as np
import onnx
import pytest
import torch
from onnx import TensorProto, helper, numpy_helper, parser

import onnx_torch
from official import check, node_cases, with_initializers, with_symbolic_dims
from onnx_torch import _C
from pretended_cuda import DeviceTensor, PretendedCuda

pytestmark = pytest.mark.skipif(torch.cuda.is_available(), reason="a CUDA device is there, on which the suite runs")

CASES = [case for case in node_cases() if not case.name.startswith("test_gradient")]  # autograd asks for its stream
KERNELS_OF_CUDA = {  # which a build without nvcc lacks
    f"onnx_torch::{name}"
    for name in ("cast_small_float", "deform_conv", "max_roi_pool", "non_max_suppression", "roi_align")
}
VARIANTS = [
    *((case.name, case) for case in CASES),
    *((f"{case.name}-initializers", with_initializers(case)) for case in CASES[::8]),
    *((f"{case.name}-symbolic", with_symbolic_dims(case)) for case in CASES[4::8]),
]


@pytest.mark.parametrize("case", [pytest.param(case, id=name) for name, case in VARIANTS if case])
def test_runs_on_one_device(case):
    with PretendedCuda() as cuda:

        def prepare(model):
            try:
                return onnx_torch.prepare(model, "CUDA:0").run
            except onnx_torch.UnsupportedError as error:
                missing = set(re.findall(r"^  .*: (\S+)$", str(error), re.M))
                if not missing or missing - KERNELS_OF_CUDA:
                    raise
                pytest.skip(f"this build has no kernel for CUDA of {', '.join(sorted(missing))}")

        try:
            check(case, prepare)
        except Exception as error:
            raise AssertionError("; ".join(cuda.faults) or str(error)) from error
        assert not cuda.hosted


LIGHT = sorted((pathlib.Path(onnx.__file__).parent / "backend" / "test" / "data" / "light").glob("light_*.onnx"))


def input_of(model):
    """Draws elements for the one input that is no initializer."""
    known = {initializer.name for initializer in model.graph.initializer}
    (given,) = [value for value in model.graph.input if value.name not in known]
    sizes = [dim.dim_value for dim in given.type.tensor_type.shape.dim]
    return np.random.default_rng(0).standard_normal(sizes).astype(np.float32)


@pytest.mark.parametrize("file", LIGHT, ids=lambda file: file.stem)
def test_real_networks_run_on_one_device(file):
    model = onnx.load(file)
    x = input_of(model)
    with PretendedCuda() as cuda:
        (found,) = onnx_torch.prepare(model, "CUDA:0").run([x])
    (expected,) = onnx_torch.prepare(model).run([x])
    assert not cuda.hosted
    np.testing.assert_allclose(found, expected, rtol=1e-4, atol=1e-7)


@pytest.mark.parametrize("type_", ["float", "double"])
def test_scales_of_convolutions_are_folded_on_a_device(type_):
    """A weight that lies on the device is not read by the host."""
    model = parser.parse_model(
        f"""<ir_version: 10, opset_import: ["": 21]> net ({type_}[1, 2, 5, 5] x) => ({type_}[1, 3, 5, 5] y)
            <{type_}[3, 2, 1, 1] w = {{1, 2, 3, 4, 5, 6}}, {type_}[3, 1, 1] factor = {{2, 0.5, 3}}>
            {{ c = Conv(x, w) y = Mul(c, factor) }}"""
    )
    x = np.random.default_rng(0).standard_normal((1, 2, 5, 5)).astype(type_.replace("float", "float32"))
    with PretendedCuda() as cuda:
        rep = onnx_torch.prepare(model, "CUDA:0")
        (found,) = rep.run([x])
    assert "mul" not in rep.graph() and not cuda.hosted
    np.testing.assert_allclose(found, onnx_torch.prepare(model).run([x])[0], rtol=1e-5)


@pytest.mark.parametrize("direction", ["forward", "bidirectional"])
@pytest.mark.parametrize("op", ["LSTM", "GRU", "RNN"])
def test_weights_of_recurrent_layers_are_laid_out_once(op, direction):
    random = np.random.default_rng(0)
    gates, directions = {"LSTM": 4, "GRU": 3, "RNN": 1}[op], 1 + (direction == "bidirectional")
    sizes = {"w": (directions, gates * 5, 3), "r": (directions, gates * 5, 5)}
    weights = [numpy_helper.from_array(random.standard_normal(s).astype(np.float32), n) for n, s in sizes.items()]
    attributes = {"linear_before_reset": 1} if op == "GRU" else {}  # as cuDNN has it
    node = helper.make_node(op, ["x", "w", "r"], ["y"], hidden_size=5, direction=direction, **attributes)
    x, y = (helper.make_tensor_value_info(name, TensorProto.FLOAT, None) for name in "xy")
    graph = helper.make_graph([node], "net", [x], [y], initializer=weights)
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 21)])
    given = random.standard_normal((4, 2, 3)).astype(np.float32)
    with PretendedCuda() as cuda:
        (found,) = onnx_torch.prepare(model, "CUDA:0").run([given])
    assert cuda.laid_out == 1
    np.testing.assert_allclose(found, onnx_torch.prepare(model).run([given])[0], rtol=1e-5, atol=1e-6)


def test_hard_swish_of_doubles_keeps_their_digits():
    """onnx_torch's own operator is computed in place of ATen's kernel for CUDA, which takes a sixth in float32."""
    model = parser.parse_model(
        """<ir_version: 10, opset_import: ["": 21]> net (double[7] x) => (double[7] y) { y = HardSwish(x) }"""
    )
    x = np.array([-4, -3, -1.7, 0, 0.3, 2.9, 5])
    with PretendedCuda():
        rep = onnx_torch.prepare(model, "CUDA:0")
        (y,) = rep.run([x])
    assert "onnx_torch::hardswish_of_any" in rep.graph() and "aten::hardswish" not in rep.graph()
    np.testing.assert_allclose(y, x * np.clip(x / 6 + 0.5, 0, 1), rtol=1e-15)


def test_the_pretended_device_refuses_what_cuda_refuses():
    with PretendedCuda():
        x, host = DeviceTensor(torch.zeros(2, 2), torch.device("cuda:0")), torch.ones(2)
        assert x.device == torch.device("cuda:0")
        assert (x + 1).cpu().tolist() == [[1, 1], [1, 1]]
        assert (x + torch.tensor(2.0)).cpu().tolist() == [[2, 2], [2, 2]]
        for wrong in (
            lambda: x + host,
            lambda: torch.cat([x, torch.ones(2, 2)]),
            lambda: x.index_select(0, host.long()),
        ):
            with pytest.raises(RuntimeError, match="expected all tensors to be on the same device"):
                wrong()


def placement(text: str, device: str = "CUDA:0", **options):
    model = parser.parse_model(f'<ir_version: 10, opset_import: ["": 21, "ai.onnx.ml": 4]> net {text}')
    with PretendedCuda():
        nodes = onnx_torch.prepare(model, device, **options).placement()
    return [(node.op_type, node.where, node.why) for node in nodes]


def test_placement():
    found = placement(
        """(float[n, 4] x, string[n] t) => (y, u, f) <float[1] w = {2}> {
            doubled = Neg(w)
            scaled = Mul(x, doubled)
            same = Identity(scaled)
            shape = Shape(x)
            flat = Constant <value_ints = [-1]> ()
            f = Reshape(same, flat)
            y = Expand(doubled, shape)
            u = StringConcat(t, t)
        }"""
    )
    nothing = "folded: nothing is left of it in a run"
    assert found == [
        ("Neg", "", nothing),
        ("Mul", "CUDA:0", ""),
        ("Identity", "", nothing),
        ("Shape", "CPU", "the host: shape arithmetic"),
        ("Constant", "", nothing),
        ("Reshape", "CUDA:0", ""),
        ("Expand", "CUDA:0", ""),
        ("StringConcat", "CPU", "the host: strings"),
    ]


def test_placement_of_control_flow():
    found = placement(
        """(bool c, float[2] x) => (y) {
            y = If(c) <then_branch = yes () => (a) { a = Neg(x) }, else_branch = no () => (b) { b = Relu(x) }>
        }"""
    )
    assert found == [
        ("If", "CPU", "the host: a number that the host reads, control flow"),
        ("Neg", "CUDA:0", ""),
        ("Relu", "CUDA:0", ""),
    ]


def test_placement_of_what_has_a_kernel_in_some_builds():
    found = placement(
        """(int64[n] x, float[n, 2] z) => (y, labels, scores) {
            y = ai.onnx.ml.LabelEncoder <keys_int64s = [1, 2], values_floats = [0.5, 0.25]> (x)
            labels, scores = ai.onnx.ml.SVMClassifier <classlabels_ints = [0, 1], coefficients = [1.0, -1.0],
                kernel_type = "LINEAR", kernel_params = [0.0, 0.0, 3.0], prob_a = [1.0], prob_b = [0.0], rho = [0.0],
                support_vectors = [1.0, 2.0, 2.0, 1.0], vectors_per_class = [1, 1]> (z)
        }"""
    )
    try:
        onnx_torch.kernels_library(cuda=True)
    except onnx_torch.UnsupportedError:
        parts = "the host: look-up by key", "the host's part: control flow, probabilities of pairs of classes"
        assert found == [("LabelEncoder", "CPU", parts[0]), ("SVMClassifier", "CUDA:0", parts[1])]
    else:
        assert found == [("LabelEncoder", "CUDA:0", ""), ("SVMClassifier", "CUDA:0", "the host's part: control flow")]


def test_placement_on_the_cpu():
    text = "(float[2] x, float[2] z) => (y) { a = Add(x, z)  b = Relu(a)  y = Sigmoid(b) }"
    plain = placement(text, "CPU", optimize=False)
    assert plain == [("Add", "CPU", ""), ("Relu", "CPU", ""), ("Sigmoid", "CPU", "")]
    assert {where for _, where, _ in placement(text, "CPU")} <= {"CPU", ""}


def custom_model(op_type: str) -> onnx.ModelProto:
    x, y = (helper.make_tensor_value_info(name, TensorProto.FLOAT, [2]) for name in "xy")
    node = helper.make_node(op_type, ["x"], ["y"], "mine", domain="placement.test")
    opsets = [helper.make_opsetid("", 21), helper.make_opsetid("placement.test", 1)]
    return helper.make_model(helper.make_graph([node], "net", [x], [y]), opset_imports=opsets)


def test_an_operator_without_a_kernel_for_the_device_is_an_error():
    library = torch.library.Library("placement_test", "DEF")
    library.define("host_only(Tensor x) -> Tensor")
    library.impl("host_only", lambda x: x + 1, "CPU")
    onnx_torch.register_op("placement.test", "HostOnly", "placement_test::host_only")
    assert onnx_torch.prepare(custom_model("HostOnly")).run([np.zeros(2, np.float32)])[0].tolist() == [1, 1]
    with (
        PretendedCuda(),
        pytest.raises(
            onnx_torch.UnsupportedError,
            match=r'for CUDA:0:\n  placement.test.HostOnly "mine" .*: placement_test::host_only',
        ) as found,
    ):
        onnx_torch.prepare(custom_model("HostOnly"), "CUDA:0")
    assert found.value.node_name == "mine"


def test_weights_go_to_the_device_once():
    model = parser.parse_model(
        '<ir_version: 10, opset_import: ["": 21]> net (float[n, 2] x) => (y) <float[2] w = {1, 2}> { y = Mul(x, w) }'
    )
    with PretendedCuda(2) as cuda:
        rep = onnx_torch.prepare(model, "CUDA:1", cuda_graphs=False)
        cuda.copies.clear()
        for _ in range(3):
            (y,) = rep.run([np.ones((1, 2), np.float32)])
            assert y.tolist() == [[1, 2]]
        assert cuda.copies == {"to cuda:1": 3, "to the host": 3}
        assert cuda.pinned == 3


def test_inputs_too_large_to_be_pinned():
    model = parser.parse_model('<ir_version: 10, opset_import: ["": 21]> net (uint8[n] x) => (y) { y = Identity(x) }')
    most = 64 << 20
    with PretendedCuda() as cuda:
        rep = onnx_torch.prepare(model, "CUDA:0")
        for size, pinned in ((most, 1), (most + 1, 1), (0, 1)):
            (y,) = rep.run([np.ones(size, np.uint8)])
            assert len(y) == size and cuda.pinned == pinned


@pytest.mark.parametrize("cuda_graphs", [False, True])
def test_tensors_of_the_device_stay_there(cuda_graphs):
    model = parser.parse_model('<ir_version: 10, opset_import: ["": 21]> net (float[n] x) => (y) { y = Neg(x) }')
    with PretendedCuda() as cuda:
        rep = onnx_torch.prepare(model, "CUDA:0", cuda_graphs=cuda_graphs)
        cuda.copies.clear()
        (y,) = rep.run([DeviceTensor(torch.ones(2), torch.device("cuda:0"))])
        assert y.device == torch.device("cuda:0")
        assert not cuda.copies and not cuda.waits and not cuda.pinned
        assert y.cpu().tolist() == [-1, -1]


def test_passes_find_on_the_device_what_they_find_on_the_cpu():
    model = parser.parse_model(
        """<ir_version: 10, opset_import: ["": 21]> net (float[2, 3] x) => (float[2, 3] y)
            <float root = {1.4142135}, float one = {1}, float half = {0.5}> {
                a = Div(x, root)  b = Erf(a)  c = Add(b, one)  d = Mul(x, c)  y = Mul(d, half)
            }"""
    )
    with PretendedCuda():
        rep = onnx_torch.prepare(model, "CUDA:0")
        assert re.findall(r"aten::\w+", rep.graphs()["activations"]) == ["aten::gelu"]
        x = np.float32([[-1, 0, 1], [2, 3, 4]])
        (y,) = rep.run([x])
    np.testing.assert_allclose(y, torch.nn.functional.gelu(torch.from_numpy(x)).numpy(), rtol=1e-6, atol=1e-7)


def test_no_operator_waits_where_shapes_are_known():
    model = parser.parse_model(
        """<ir_version: 10, opset_import: ["": 21]> net (float[2, 3, 8, 8] x) => (y) {
            a = Conv(x, w)  b = MaxPool <kernel_shape = [2, 2]> (a)  c = Flatten(b)  y = Softmax(c)
        }"""
    )
    model.graph.initializer.append(onnx.numpy_helper.from_array(np.ones((4, 3, 3, 3), np.float32), "w"))
    with PretendedCuda() as cuda:
        rep = onnx_torch.prepare(model, "CUDA:0")
        cuda.waits.clear()
        rep.run([np.ones((2, 3, 8, 8), np.float32)])
    assert not cuda.waits


def test_devices_that_are_not_there():
    with pytest.raises(onnx_torch.DeviceError, match=r"CUDA:0 is not there: (Found no NVIDIA driver|the torch that)"):
        onnx_torch.prepare(custom_model("Any"), "CUDA:0")
    with PretendedCuda(1), pytest.raises(onnx_torch.DeviceError, match="sees 1 CUDA device, and the first is CUDA:0"):
        onnx_torch.prepare(custom_model("Any"), "CUDA:1")
    for name in ("CUDA:x", "CUDA:", "CUDA:-1"):
        with pytest.raises(onnx_torch.DeviceError, match='write "CUDA" or "CUDA:0"'):
            onnx_torch.prepare(custom_model("Any"), name)
    with pytest.raises(onnx_torch.DeviceError, match="there are CPU and CUDA:n"):
        onnx_torch.prepare(custom_model("Any"), "TPU")


def test_the_page_lists_the_hosts_work():
    page = (pathlib.Path(__file__).parents[2] / "docs/placement.md").read_text()
    table = re.search(r"^\| work \|.*\n\|---\|---\|\n((?:\|.*\n)+)", page, re.M)[1]
    listed = {
        (operator, work)
        for work, operators in re.findall(r"^\| (.*?) \| (.*?) \|$", table, re.M)
        for operator in re.findall("`(.*?)`", operators)
    }
    assert listed == set(_C.host_work())


def test_each_operator_on_strings_is_the_hosts_work():
    torch.ops.load_library(onnx_torch.kernels_library())
    of_strings = {schema.name for schema in torch._C._jit_get_all_schemas() if "onnx_torch.StringPool" in str(schema)}
    assert "onnx_torch::string_concat" in of_strings
    assert of_strings <= {operator for operator, _ in _C.host_work()}
