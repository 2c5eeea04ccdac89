"""The operators that ATen nodes may call, and the tool that tries them."""

import subprocess
import sys
from pathlib import Path

import numpy as np
import onnx
import pytest
import torch
from onnx import helper
from tools.aten.operators import overloads

import onnx_torch
from models import model_of, op_model, tensor_info
from onnx_torch import _C
from pass_models import assert_close

ROOT = Path(__file__).resolve().parents[2]
M = np.arange(12, dtype=np.float32).reshape(3, 4)
REFUSED = "none of those that check their arguments"

HOSTILE = {
    "from_file": ([np.array(4)], {"filename": "made.bin", "shared": 1}),
    "_reshape_alias": ([M], {"size": [1 << 20], "stride": [1]}),
    "as_strided": ([M], {"size": [1 << 20], "stride": [1]}),
    "empty": ([np.array([1000])], {}),
    "manual_seed": ([np.array(3)], {}),
    "max_pool2d_with_indices_backward": (
        [M[None], M[None], np.full((1, 3, 4), 1 << 40)],
        {"kernel_size": [1, 1], "stride": [1, 1], "padding": [0, 0], "dilation": [1, 1], "ceil_mode": 0},
    ),
    "_sparse_coo_tensor_unsafe": ([np.full((1, 3), 1 << 40), M[0, :3]], {"size": [3]}),
    "set_grad_enabled": ([np.array(False)], {}),
}


def aten_model(operator, inputs, outputs=1, **attributes):
    return op_model("ATen", inputs, 1, "org.pytorch.aten", outputs, operator=operator, **attributes)


def strided():
    model = aten_model("as_strided", [M], size=[2, 2], stride=[4, 1])
    model.graph.input[0].CopyFrom(tensor_info("x0", M, M.shape))
    return model


@pytest.mark.parametrize("operator", HOSTILE)
def test_operators_that_trust_their_arguments_are_refused(operator, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    inputs, attributes = HOSTILE[operator]
    seed, grad = torch.initial_seed(), torch.is_grad_enabled()
    with pytest.raises(onnx_torch.UnsupportedError, match=rf'ATen.*aten::{operator} is {REFUSED}.*allow_aten="all"'):
        onnx_torch.prepare(aten_model(operator, inputs, **attributes))
    assert not list(tmp_path.iterdir())
    assert (torch.initial_seed(), torch.is_grad_enabled()) == (seed, grad)


def test_who_trusts_the_file_may_allow_all(tmp_path):
    expected = M[:2, :2]
    path = tmp_path / "strided.onnx"
    onnx.save(strided(), path)
    rep = onnx_torch.prepare(path, allow_aten="all")
    np.testing.assert_array_equal(rep.run([M])[0], expected)
    assert rep.options["allow_aten"] == "all"
    np.testing.assert_array_equal(rep.replica(optimize=False).run([M])[0], expected)
    assert onnx_torch.check(path, allow_aten="all") == []
    assert "as_strided" in onnx_torch.show(path, allow_aten="all")
    assert onnx_torch.profile(path, runs=1, allow_aten="all").nodes[0].op_type == "ATen"
    module = onnx_torch.to_torchscript(path, allow_aten="all")
    np.testing.assert_array_equal(module(torch.from_numpy(M)).numpy(), expected)
    assert torch.equal(onnx_torch.to_module(path, allow_aten="all")(torch.from_numpy(M)), module(torch.from_numpy(M)))
    assert onnx_torch.compare(path, engines=("onnx_torch", "unoptimised"), allow_aten="all")
    assert onnx_torch.bench(path, engines=["onnx_torch"], rounds=1, runs=1, allow_aten="all").latencies
    options = onnx_torch.SessionOptions()
    options.add_session_config_entry("onnx_torch.allow_aten", "all")
    np.testing.assert_array_equal(onnx_torch.InferenceSession(path, options).run(None, {"x0": M})[0], expected)


@pytest.mark.parametrize(
    "use",
    [
        onnx_torch.prepare,
        onnx_torch.show,
        onnx_torch.profile,
        onnx_torch.to_torchscript,
        onnx_torch.to_module,
        lambda model: onnx_torch.compare(model, engines=("onnx_torch", "unoptimised")),
        lambda model: onnx_torch.prepare(model, allow_aten="all").replica(allow_aten="checked"),
    ],
)
def test_nothing_allows_them_by_itself(use):
    with pytest.raises(onnx_torch.UnsupportedError, match=REFUSED):
        use(strided())


def test_check_names_the_operator():
    (problem,) = onnx_torch.check(strided())
    assert problem.unsupported and problem.op_type == "ATen" and f"as_strided is {REFUSED}" in problem.why


def test_a_saved_model_does_not_allow_itself_more(tmp_path):
    onnx_torch.prepare(strided(), allow_aten="all").save(tmp_path / "saved")
    with pytest.raises(onnx_torch.UnsupportedError, match=REFUSED):
        onnx_torch.load(tmp_path / "saved")
    np.testing.assert_array_equal(onnx_torch.load(tmp_path / "saved", allow_aten="all").run([M])[0], M[:2, :2])


def test_the_option_is_one_of_two():
    with pytest.raises(onnx_torch.InputError, match='allow_aten must be "checked" or "all", not "some"'):
        onnx_torch.prepare(strided(), allow_aten="some")


@pytest.mark.parametrize("command", ["run", "check", "show", "profile", "bench", "compare"])
def test_commands_have_the_option(tmp_path, command):
    path = tmp_path / "strided.onnx"
    onnx.save(strided(), path)
    more = {"compare": ["--engine", "unoptimised"], "bench": ["--engine", "onnx_torch", "--runs", "1"]}.get(command, [])
    call = [sys.executable, "-m", "onnx_torch_cli", command, str(path), *more]
    refused = subprocess.run(call, capture_output=True, text=True, check=False)
    assert refused.returncode and REFUSED in " ".join((refused.stdout + refused.stderr).split())
    subprocess.run([*call, "--allow-aten", "all"], capture_output=True, check=True)


def test_a_user_may_register_any_operator():
    onnx_torch.register_op("my.aten", "Strided", "aten::as_strided")
    model = op_model("Strided", [M], 1, "my.aten", size=[2, 2], stride=[4, 1])
    np.testing.assert_array_equal(onnx_torch.prepare(model).run([M])[0], M[:2, :2])


@pytest.mark.parametrize(
    ("inputs", "attributes"),
    [
        ([np.array([2, 2])], {"layout": 1}),
        ([np.array([2, 2])], {"dtype": 13}),
        ([np.array([2, 2])], {"dtype": 1 << 40}),
        ([np.array([2, 2]), np.array(6), np.array(1)], {}),
    ],
)
def test_sparse_and_quantized_tensors_are_refused(inputs, attributes):
    """Such tensors are refused as their parts are trusted; an input may ask for them as well as an attribute."""
    with pytest.raises(onnx_torch.UnsupportedError, match=r"the argument \w+ must be a constant, one of 0"):
        onnx_torch.prepare(aten_model("zeros", inputs, **attributes))


def test_arguments_that_grid_sampler_trusts_must_be_constants():
    image, grid = np.ones((1, 1, 2, 2), np.float32), np.zeros((1, 1, 1, 2), np.float32)
    options = {"padding_mode": 0, "align_corners": 0}
    model = aten_model("grid_sampler", [image, grid], interpolation_mode=0, **options)
    np.testing.assert_array_equal(onnx_torch.prepare(model).run([image, grid])[0], np.ones((1, 1, 1, 1)))
    with pytest.raises(onnx_torch.UnsupportedError, match="interpolation_mode must be a constant, one of 0, 1, 2;"):
        onnx_torch.prepare(aten_model("grid_sampler", [image, grid], interpolation_mode=3, **options))


def test_an_order_of_memory_that_is_none_is_refused():
    """A fifth order of memory, for which ATen asks without end, is refused."""
    model = aten_model("to", [M, M], overload_name="other", memory_format=4)
    with pytest.raises(onnx_torch.UnsupportedError, match="memory_format must be a constant, one of 0, 1, 2, 3;"):
        onnx_torch.prepare(model)


LATE = {
    "col2im": (
        [np.ones((1, 4, 1), np.float32)],
        {"output_size": [2, 2], "kernel_size": [2, 2], "dilation": [1, 1], "padding": [0, 0], "stride": [1, 1]},
    ),
    "reflection_pad3d": ([np.ones((1, 2, 3, 3, 3), np.float32)], {"padding": [1] * 6}),
    "repeat_interleave": ([np.array([1, 2])], {"overload_name": "Tensor"}),
    "linalg_lstsq": ([M[:3, :3], M[:3, :3]], {}),
}


@pytest.mark.parametrize("operator", LATE)
def test_what_older_torch_does_not_check_is_refused_with_it(operator):
    """An older torch does not check these: a reflection_pad3d by a list of no numbers ends the process with 2.11."""
    inputs, attributes = LATE[operator]
    model = aten_model(operator, inputs, 4 if operator == "linalg_lstsq" else 1, **attributes)
    if tuple(map(int, torch.__version__.split(".")[:2])) >= (2, 15):
        onnx_torch.prepare(model).run(inputs)
    else:
        with pytest.raises(onnx_torch.UnsupportedError, match=REFUSED):
            onnx_torch.prepare(model)


def test_numbers_alone_are_no_overload():
    """Numbers alone choose no overload of ATen's: aten::remainder.int divides by zero, which ends the process."""
    nodes = [
        helper.make_node("Shape", ["x"], ["shape"]),
        helper.make_node("ATen", ["shape", "zero"], ["y"], domain="org.pytorch.aten", operator="remainder"),
    ]
    zero = onnx.numpy_helper.from_array(np.array([0]), "zero")
    model = model_of(nodes, [tensor_info("x", M, ["n"])], ["y"], initializer=[zero])
    model.opset_import.append(helper.make_opsetid("org.pytorch.aten", 1))
    with pytest.raises(onnx_torch.Error, match="ZeroDivisionError"):
        onnx_torch.prepare(model).run([M[0]])


def test_the_list_is_of_operators_that_torch_has():
    names = _C.checked_aten_operators()
    assert names == sorted(set(names))
    found = overloads(names)
    assert {one.name for one in found} | {str(one) for one in found} >= set(names)


def tried(*arguments):
    call = [sys.executable, "-m", "tools.aten", "--seconds", "5", "--jobs", "1", *arguments]
    return subprocess.run(call, cwd=ROOT, capture_output=True, text=True, check=False)


def test_a_sample_of_the_list_stands_its_trial():
    done = tried("--calls", "40", "index_select", "gather", "frexp", "logcumsumexp", "renorm", "cat", "topk")
    assert done.returncode == 0, done.stdout + done.stderr
    assert "without a fault" in done.stdout


@pytest.mark.parametrize(
    ("operator", "fault"),
    [
        ("empty", "reads memory that it has not written"),
        ("_reshape_alias", "reads memory that it has not written|ends the process"),
        ("lcm", "ends the process .SIGFPE"),
        ("combinations", "takes too long"),
        ("_stack", "ends the process .SIGSEGV"),
    ],
)
def test_the_trial_finds_faults(operator, fault):
    done = tried("--calls", "100", operator)
    assert done.returncode == 1
    import re

    assert re.search(f"{operator}.*: ({fault})", done.stdout), done.stdout + done.stderr


@pytest.mark.parametrize("optimize", [True, False])
@pytest.mark.parametrize("operator", ["avg_pool2d", "max_pool2d", "avg_pool3d", "max_pool3d"])
def test_pools_with_one_size_for_all_dimensions(operator, optimize):
    rank = int(operator[-2])
    for extra in (1, 2):  # channels, and a batch
        x = np.random.default_rng(0).standard_normal((2,) * extra + (6,) * rank).astype(np.float32)
        model = aten_model(operator, [x], kernel_size=[2], stride=[2], padding=[0])
        (y,) = onnx_torch.prepare(model, optimize=optimize).run([x])
        np.testing.assert_array_equal(y, getattr(torch.nn.functional, operator)(torch.from_numpy(x), [2], [2]).numpy())


@pytest.mark.parametrize("optimize", [True, False])
def test_a_factor_whose_square_is_too_large_is_refused(optimize):
    x = np.zeros((1, 4, 2, 2), np.float32)
    rep = onnx_torch.prepare(aten_model("pixel_shuffle", [x], upscale_factor=1 << 32), optimize=optimize)
    with pytest.raises(onnx_torch.RunError, match=r"\(upscale_factor\)\^2 overflowed"):
        rep.run([x])


@pytest.mark.parametrize("optimize", [True, False])
@pytest.mark.parametrize("normalized", [[4], [3, 4], [2, 3, 4], [5], [1] * 30])
def test_a_layer_normalization_of_any_shape(normalized, optimize):
    """The sizes that are tried tell the rank of its result: it is theirs, not the normalization's."""
    weight = np.ones(normalized, np.float32)
    model = aten_model("layer_norm", [M, weight, weight], normalized_shape=normalized, eps=1e-5)
    for value in model.graph.input:
        value.type.tensor_type.ClearField("shape")
    rep = onnx_torch.prepare(model, optimize=optimize)
    if normalized in ([4], [3, 4]):
        (y,) = rep.run([M, weight, weight])
        assert_close(y, torch.layer_norm(torch.from_numpy(M).double(), normalized).numpy() + 1)
    else:
        with pytest.raises(onnx_torch.RunError, match="LayerNorm|normalized_shape|normalized shape"):
            rep.run([M, weight, weight])


@pytest.mark.parametrize("optimize", [True, False])
@pytest.mark.parametrize("element", ["FLOAT16", "INT16", "DOUBLE", "UINT4", "BOOL", "STRING", "FLOAT8E4M3FN"])
def test_a_result_of_another_type_than_is_declared_is_an_error(element, optimize):
    model = aten_model("relu", [M])
    model.graph.output[0].type.tensor_type.elem_type = getattr(onnx.TensorProto, element)
    rep = onnx_torch.prepare(model, optimize=optimize)
    for inputs in ([M], [torch.from_numpy(M)]):
        said = f'the output "y0" is declared to be {element.lower()}, and is computed in .* Float'
        with pytest.raises(onnx_torch.RunError, match=said):
            rep.run(inputs)


@pytest.mark.parametrize("optimize", [True, False])
@pytest.mark.parametrize(
    "operator, attributes",
    [
        ("permute", {"dims": [2**31 - 1, 0]}),
        ("permute", {"dims": [0, -3]}),
        ("permute", {"dims": [1, 1]}),
        ("permute", {"dims": [1]}),
        ("transpose", {"dim0": 0, "dim1": 2}),
        ("transpose", {"dim0": -(2**63), "dim1": 1}),
    ],
)
def test_an_order_of_dimensions_that_are_not_there_is_an_error(operator, attributes, optimize):
    for source in ("permute", "relu"):  # behind another view, and behind none
        first = {"operator": "permute", "dims": [1, 0]} if source == "permute" else {"operator": "relu"}
        domain = "org.pytorch.aten"
        nodes = [
            helper.make_node("ATen", ["x"], ["h"], domain=domain, **first),
            helper.make_node("ATen", ["h"], ["y"], domain=domain, operator=operator, **attributes),
        ]
        model = model_of(nodes, [tensor_info("x", M)], ["y"], 1, domain)
        with pytest.raises(onnx_torch.Error, match="[Dd]im"):
            onnx_torch.prepare(model, optimize=optimize).run([M])


@pytest.mark.parametrize("to", [np.int64, np.uint8, np.bool_], ids=str)
def test_a_tensor_whose_type_is_taken_is_left_as_it_is(to):
    """Runs of one size write to memory that a plan knows: to the result's, and not to that of the other operand."""
    x, like = np.arange(5000, dtype=np.float32) - 2, np.ones([1], to)
    kept = like.copy()
    rep = onnx_torch.prepare(aten_model("to", [x, like], overload_name="other"))
    for _ in range(5):
        assert_close(rep.run([x.clip(0, 200), like])[0], x.clip(0, 200).astype(to))
    assert_close(like, kept)


HUGE_WINDOWS = {
    "a span that an integer does not hold": {"kernel_size": 2**32 + 1, "dilation": 2**32},
    "a padding that an integer does not hold twice": {"kernel_size": 2**62, "padding": 2**62},
    "a kernel and its padding": {"kernel_size": 2**31 - 1, "padding": 2**30 - 1},
    "a stride": {"kernel_size": 3, "stride": 2**40},
}


@pytest.mark.parametrize("case", HUGE_WINDOWS)
@pytest.mark.parametrize("operator", ["max_pool1d", "max_pool2d", "max_pool3d", "avg_pool2d"])
def test_huge_windows_are_refused(operator, case):
    rank = int(operator[-2])
    sizes = {"stride": 1, "padding": 0, "dilation": 1} | HUGE_WINDOWS[case]
    if operator == "avg_pool2d":
        del sizes["dilation"]
    attributes = {name: [size] * rank for name, size in sizes.items()}
    x = np.zeros([1, 1, *[4] * rank], np.float32)
    with pytest.raises(onnx_torch.Error):
        onnx_torch.prepare(aten_model(operator, [x], **attributes)).run()
