"""Models as modules of Python code: what eager torch, torch.compile and torch.export make of them."""

import copy
import pickle
import re

import numpy as np
import pytest
import torch
from onnx import TensorProto, helper, numpy_helper

from exported import STEP, check_case, handles_text, official_cases
from models import model_of, tensor_info
from official import node_cases
from onnx_torch import UnsupportedError, names_of, to_module
from test_gradients import NETS, exported
from torch_storage import to_torch

FLOAT = TensorProto.FLOAT


@pytest.mark.parametrize("case", official_cases()[::2], ids=lambda case: case.name)
def test_official_case(case):
    if handles_text(case):
        with pytest.raises(UnsupportedError, match="a model that handles strings"):
            to_module(case.model)
    else:
        check_case(case, to_module)


@pytest.mark.parametrize("net", NETS)
def test_compiled_whole(net):
    """A module is compiled without a break in the graph."""
    make, make_input = NETS[net]
    original, x = make(), make_input()
    compiled = torch.compile(to_module(exported(original, x)), backend="aot_eager", fullgraph=True)
    torch.testing.assert_close(compiled(x), original(x), rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("net", NETS)
def test_exported_program(net):
    make, make_input = NETS[net]
    original, x = make(), make_input()
    program = torch.export.export(to_module(exported(original, x)), (x,))
    assert set(dict(program.named_parameters())) == set(dict(original.named_parameters()))
    torch.testing.assert_close(program.module()(x), original(x), rtol=1e-4, atol=1e-5)


def dynamic():
    """Makes y = relu(x @ w).reshape(batch, -1), of any batch."""
    weight = numpy_helper.from_array(np.eye(4, dtype=np.float32), "w")
    nodes = [
        helper.make_node("MatMul", ["x", "w"], ["p"]),
        helper.make_node("Relu", ["p"], ["r"]),
        helper.make_node("Constant", [], ["shape"], value_ints=[0, -1]),
        helper.make_node("Reshape", ["r", "shape"], ["y"]),
    ]
    return model_of(nodes, [tensor_info("x", element=FLOAT, shape=["batch", 3, 4])], ["y"], initializer=[weight])


def test_exported_program_of_any_batch():
    batch = torch.export.Dim("batch", min=2)
    program = torch.export.export(to_module(dynamic()), (torch.ones(2, 3, 4),), dynamic_shapes=({0: batch},))
    assert program.module()(torch.ones(7, 3, 4)).shape == (7, 12)


def test_copies_and_pickles():
    module = to_module(dynamic())
    x = torch.randn(2, 3, 4)
    with torch.no_grad():
        module.w.mul_(2)
    for other in (copy.deepcopy(module), pickle.loads(pickle.dumps(module))):
        assert torch.equal(other(x), module(x))
        assert names_of(other) == names_of(module)
        assert other.w is not module.w


def test_code_names_the_onnx_nodes():
    model = dynamic()
    model.graph.node[1].name = 'the "first" relu'
    code = to_module(model).code
    assert re.search(r"# MatMul \(opset \d+\)\n.*aten\.matmul", code)
    assert re.search(r'# Relu "the "first" relu" \(opset \d+\)\n.*aten\.relu', code)


def test_errors_show_the_line():
    with pytest.raises(RuntimeError) as caught:
        to_module(dynamic())(torch.ones(2, 3, 5))
    lines = [str(entry.path) + str(entry.statement) for entry in caught.traceback]
    assert any("onnx_torch forward" in line and "matmul" in line for line in lines)


# --- How far torch.export and torch.compile go ------------------------------------------------------


def exportable_cases():
    """Gives a share of the official cases, whose results are the same each time."""
    cases = node_cases()[1 :: 6 if STEP == 1 else 24]
    return [
        case
        for case in cases
        if not handles_text(case) and not re.search("bernoulli|dropout|random|multinom", case.name)
    ]


def exported_program(module, inputs):
    return torch.export.export(module, tuple(inputs)).module()


def compiled_whole(module, inputs):
    torch.compiler.reset()
    compiled = torch.compile(module, backend="aot_eager", fullgraph=True)
    compiled(*inputs)
    return compiled


@pytest.mark.parametrize("take", [exported_program, compiled_whole])
def test_most_operators_are_taken(take, capsys):
    """All are taken but those where a value decides what runs or how large something is; docs/pytorch.md tells more."""
    cases, failed = exportable_cases(), []
    for case in cases:
        inputs = to_torch(case.data_sets[0][0])
        module = to_module(case.model)
        with torch.no_grad():
            try:
                taken = take(module, inputs)
            except Exception as error:
                failed.append((case.name, type(error).__name__))
            else:
                torch.testing.assert_close(taken(*inputs), module(*inputs), equal_nan=True)
    with capsys.disabled():
        print(f"\n{take.__name__}: {len(cases) - len(failed)} of {len(cases)} official cases")
    assert len(failed) < 0.2 * len(cases), failed
