"""Models as TorchScript modules: what they compute, what their parts are called, where they run."""

import io
import json
import keyword
import random

import numpy as np
import onnx
import pytest
import torch
from onnx import TensorProto, helper, numpy_helper

import onnx_torch
from exported import check_case, handles_text, official_cases, run_stock_torch
from models import model_of, tensor_info
from official import node_cases
from onnx_torch import UnsupportedError, names_of, to_torchscript, torch_names
from onnx_torch._pytorch.export import NAMES_FILE

FLOAT = TensorProto.FLOAT


pytestmark = pytest.mark.filterwarnings("ignore:`torch.jit:FutureWarning")


def saved_and_loaded(module, device=None):
    buffer = io.BytesIO()
    torch.jit.save(module, buffer)
    buffer.seek(0)
    return torch.jit.load(buffer, device)


def weighted_sum(weights, inputs=("x",), output="y"):
    """Makes the sum of the inputs and of all weights, which are 1, 2, 4, …"""
    names = [*inputs, *weights]
    initializers = [numpy_helper.from_array(np.float32(2**i), name) for i, name in enumerate(weights)]
    infos = [tensor_info(name, element=FLOAT, shape=[]) for name in inputs]
    return model_of([helper.make_node("Sum", names, [output])], infos, [output], initializer=initializers)


# --- What modules compute -------------------------------------------------------------------------


@pytest.mark.parametrize("case", official_cases(), ids=lambda case: case.name)
def test_official_case(case):
    if handles_text(case):
        with pytest.raises(UnsupportedError, match="a model that handles strings"):
            to_torchscript(case.model)
    else:
        check_case(case, lambda model: saved_and_loaded(to_torchscript(model, custom_operators=True)))


def test_several_outputs_are_a_tuple():
    x = tensor_info("x", element=FLOAT, shape=[2])
    nodes = [helper.make_node("Neg", ["x"], ["a"]), helper.make_node("Abs", ["a"], ["b"])]
    module = to_torchscript(model_of(nodes, [x], ["a", "b"]))
    a, b = module(torch.tensor([1.0, -2.0]))
    assert (a.tolist(), b.tolist()) == ([-1, 2], [1, 2])
    assert names_of(module).outputs == ["a", "b"]


def test_inputs_with_a_default_are_weights():
    model = weighted_sum(["w"])
    model.graph.input.append(tensor_info("w", element=FLOAT, shape=[]))
    module = to_torchscript(model)
    assert names_of(module).inputs == {"x": "x"}
    assert list(module.state_dict()) == ["w"]


def test_another_shape_than_a_fixed_one_is_an_error():
    x = tensor_info("an input", element=FLOAT, shape=[2, 3])
    module = to_torchscript(model_of([helper.make_node("Neg", ["an input"], ["y"])], [x], ["y"]))
    module(torch.zeros(2, 3))
    with pytest.raises(torch.jit.Error, match=r"the input an_input must be of shape \[2, 3\]"):
        module(torch.zeros(3, 2))


@pytest.mark.parametrize("export", [to_torchscript, onnx_torch.to_module])
def test_symbolic_dimensions_can_be_fixed(export):
    x = tensor_info("x", element=FLOAT, shape=["batch", "width"])
    nodes = [helper.make_node("Shape", ["x"], ["shape"])]
    model = model_of(nodes, [x], [tensor_info("shape", element=TensorProto.INT64, shape=[2])])
    free, fixed = export(model), export(model, shapes={"batch": 2, "width": 3})
    assert free(torch.ones(4, 5)).tolist() == [4, 5]
    assert fixed(torch.ones(2, 3)).tolist() == [2, 3]
    with pytest.raises(Exception, match=r"the input x must be of shape \[2, 3\]"):
        fixed(torch.ones(4, 3))
    with pytest.raises(onnx_torch.InputError, match='no dimension "rows"; there are batch, width'):
        export(model, shapes={"rows": 2})


def test_module_moves_as_a_whole():
    x = tensor_info("x", element=FLOAT, shape=["n"])
    nodes = [
        helper.make_node("Shape", ["x"], ["shape"]),
        helper.make_node("ConstantOfShape", ["shape"], ["fill"], value=numpy_helper.from_array(np.float32([2]))),
        helper.make_node("Constant", [], ["c"], value=numpy_helper.from_array(np.float32([1, 2, 3]))),
        helper.make_node("Sum", ["x", "fill", "c", "w"], ["y"]),
    ]
    weight = numpy_helper.from_array(np.float32([1, 1, 1]), "w")
    module = to_torchscript(model_of(nodes, [x], ["y"], initializer=[weight]))
    assert module(torch.zeros(3)).tolist() == [4, 5, 6]
    assert saved_and_loaded(module, "meta")(torch.zeros(3, device="meta")).is_meta


# --- Names ----------------------------------------------------------------------------------------


def test_dots_become_nested_modules():
    module = to_torchscript(weighted_sum(["layers.0.weight", "layers.0.bias", "head"]))
    assert set(module.state_dict()) == {"layers.0.weight", "layers.0.bias", "head"}
    assert {name for name, _ in module.named_modules()} == {"", "layers", "layers.0"}
    module.load_state_dict(
        {"layers.0.weight": torch.tensor(8.0), "layers.0.bias": torch.tensor(16.0), "head": torch.tensor(32.0)}
    )
    assert module(torch.tensor(0.0)).item() == 56


@pytest.mark.parametrize(
    ("names", "expected"),
    [
        (["a", "a.b"], ["a_", "a.b"]),
        (["a.b", "a"], ["a.b", "a_"]),
        (["class", "forward.lambda", "training"], ["class_", "forward_.lambda_", "training_"]),
        (['say "hi"', "back\\slash", "newline\n"], ["say _hi_", "back_slash", "newline_"]),
        (["größe", "gr_e", "gr__e"], ["gr__e_", "gr_e", "gr__e"]),
        (["", "a..b", "_"], ["__", "a.__.b", "___"]),
        (["/conv/Weight", "onnx::MatMul_1", "0"], ["/conv/Weight", "onnx::MatMul_1", "0"]),
        (["_constants", "onnx_names", "__len__"], ["_constants_", "onnx_names_", "__len___"]),
    ],
)
def test_weights_are_renamed(names, expected):
    assert list(torch_names(names).values()) == expected


def test_arguments_are_renamed():
    names = ["input.1", "input_1", "1", "class", "self", "größe", "x y", "x-y", "torch", ""]
    expected = ["input_1_", "input_1", "_1", "class_", "self_", "gr__e", "x_y", "x_y_", "torch_", "__"]
    assert list(torch_names(names, arguments=True).values()) == expected


WORDS = [
    *keyword.kwlist, *"forward training eval parameters state_dict _c self torch aten prim print".split(),
    *"_ __ 0 1a a b inf nan None ops NUMBERS CONSTANTS uninitialized __module__ __class__".split(),
    *["\x00", "\n", "\t", "\r", '"', "'", "\\", '"""', "{0}", "%", "#", " ", "/", ":", "-", "$", "@"],
    *["é", "名", "🙂", "\u202e", "\x7f"],
]  # fmt: skip


def hostile_name(rng):
    separators = ["", "", ".", ".", "_", "/"]
    words = [rng.choice(WORDS) + rng.choice(separators) for _ in range(rng.randint(1, 4))]
    return "".join(words) + rng.choice(["", *WORDS])


@pytest.mark.parametrize("seed", range(60))
def test_hostile_names_survive(seed):
    rng = random.Random(seed)
    names = list(dict.fromkeys(hostile_name(rng) for _ in range(rng.randint(2, 16))))
    inputs = names[: rng.randint(1, min(3, len(names) - 1))]
    weights = names[len(inputs) :]
    module = saved_and_loaded(to_torchscript(weighted_sum(weights, inputs, output=hostile_name(rng) + " out")))
    found = names_of(module)
    assert list(found.inputs) == inputs
    assert set(found.parameters) == set(weights)
    state = module.state_dict()
    assert set(state) == set(found.parameters.values())
    assert {name: state[found.parameters[name]].item() for name in weights} == {n: 2**i for i, n in enumerate(weights)}
    feeds = {argument: torch.tensor(0.5) for argument in found.inputs.values()}
    assert module(**feeds).item() == 2 ** len(weights) - 1 + 0.5 * len(inputs)


def test_archive_holds_the_names(tmp_path):
    file = tmp_path / "model.pt"
    module = to_torchscript(weighted_sum(["a", "a.b"], ["in put"]), file)
    extra = {NAMES_FILE: ""}
    loaded = torch.jit.load(file, _extra_files=extra)
    record = json.loads(extra[NAMES_FILE])
    expected = {
        "parameters": {"a": "a_", "a.b": "a.b"},
        "inputs": {"in put": "in_put"},
        "outputs": ["y"],
        "custom_operators": [],
    }
    assert record == expected
    assert names_of(loaded) == names_of(module) == onnx_torch.Names(**record)


def test_names_of_a_module_of_another_kind():
    with pytest.raises(TypeError, match="not made by onnx_torch"):
        names_of(torch.nn.Linear(1, 1))


# --- Where modules run ----------------------------------------------------------------------------

CONTROL_FLOW = """
<ir_version: 10, opset_import: ["": 21]>
grow (float[n] x) => (float[m] y)
<float[1] w = {1}, float two = {2}, float limit = {100}, float fifty = {50}, int64 steps = {10}, bool yes = {1}>
{
    grown = Loop (steps, yes, x) <body = step (int64 i, bool go, float[n] v) => (bool more, float[n] doubled) {
        doubled = Mul (v, two)
        sum = ReduceSum <keepdims = 0> (doubled)
        more = Less (sum, limit)
    }>
    first = Constant <value_ints = [0]> ()
    largest = ReduceMax <keepdims = 0> (grown)
    is_large = Greater (largest, fifty)
    y = If (is_large) <
        then_branch = large () => (float[n] less) { less = Sub (grown, w) },
        else_branch = small () => (float[n] same) { same = Concat <axis = 0> (grown, w) }
    >
}
"""


def test_control_flow_runs_in_a_process_of_stock_torch(tmp_path):
    model = onnx.parser.parse_model(CONTROL_FLOW)
    file = tmp_path / "model.pt"
    to_torchscript(model, file)
    code = (
        "module = torch.jit.load(sys.argv[1])\n"
        "for x in ([1, 2, 3], [20, 20, 20, 20]): print(module(torch.tensor(x).float()).tolist())"
    )
    assert run_stock_torch(code, str(file)).splitlines() == ["[31.0, 63.0, 95.0]", "[40.0, 40.0, 40.0, 40.0, 1.0]"]


def roi_align():
    return next(case for case in node_cases() if case.name == "test_roialign_mode_max")


def test_custom_operators_are_named():
    with pytest.raises(
        UnsupportedError, match=r"custom_operators=True(.|\n)*RoiAlign \(opset 22\): onnx_torch::roi_align"
    ):
        to_torchscript(roi_align().model)
    module = to_torchscript(roi_align().model, custom_operators=True)
    assert names_of(module).custom_operators == ["onnx_torch::roi_align"]


def test_custom_operators_run_where_their_library_is_loaded(tmp_path):
    case = roi_align()
    ((inputs, (expected,)),) = case.data_sets
    file = tmp_path / "model.pt"
    to_torchscript(case.model, file, custom_operators=True)
    torch.save([torch.from_numpy(x) for x in inputs], tmp_path / "inputs.pt")
    code = (
        "torch.ops.load_library(sys.argv[3])\nmodule, inputs = torch.jit.load(sys.argv[1]), torch.load(sys.argv[2])\n"
        "print(module(*inputs).tolist())"
    )
    printed = run_stock_torch(code, str(file), str(tmp_path / "inputs.pt"), onnx_torch.kernels_library())
    np.testing.assert_allclose(json.loads(printed), expected, rtol=1e-5)


def test_operators_of_others_are_named_too():
    onnx_torch.register_op("test.export", "Doubled", _doubled)
    model = model_of(
        [helper.make_node("Doubled", ["x"], ["y"], domain="test.export")], [tensor_info("x", element=FLOAT)], ["y"]
    )
    model.opset_import.append(helper.make_opsetid("test.export", 1))
    with pytest.raises(UnsupportedError, match="onnx_torch_custom::Doubled"):
        to_torchscript(model)


def _doubled(x: torch.Tensor) -> torch.Tensor:
    return x * 2


def test_strings_are_refused():
    x = tensor_info("x", element=TensorProto.STRING, shape=[2])
    with pytest.raises(UnsupportedError, match='the input "x" is of strings'):
        to_torchscript(
            model_of([helper.make_node("Identity", ["x"], ["y"])], [x], [tensor_info("y", element=TensorProto.STRING)])
        )
