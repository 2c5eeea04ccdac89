"""Training imported models: gradients, train() and eval(), and the way back to ONNX."""

import contextlib
import io
import warnings
from functools import partial

import numpy as np
import onnx
import pytest
import torch
from onnx import TensorProto, helper, numpy_helper
from torch import nn

import onnx_torch
from models import model_of, tensor_info
from official import node_cases
from onnx_torch import InputError, names_of, to_module, to_torchscript, update_initializers
from torch_storage import to_torch

FLOAT = TensorProto.FLOAT
FORMS = [to_torchscript, to_module]


def exported(net, *inputs):
    """Gives the model that torch's own exporter makes, with all weights as they are."""
    with warnings.catch_warnings(), contextlib.redirect_stdout(io.StringIO()):
        warnings.simplefilter("ignore")
        return torch.onnx.export(net.eval(), inputs, dynamo=True, verbose=False, optimize=False).model_proto


class Recurrent(nn.Module):
    def __init__(self):
        super().__init__()
        self.embedding = nn.Embedding(11, 6)
        self.cell = nn.GRUCell(6, 7)
        self.head = nn.Linear(7, 3)

    def forward(self, tokens):
        state = torch.zeros(tokens.shape[0], 7)
        for i in range(tokens.shape[1]):
            state = self.cell(self.embedding(tokens[:, i]), state)
        return torch.log_softmax(self.head(state), -1)


def convolutional():
    layers = [
        nn.Conv2d(3, 8, 3, padding=1),
        nn.BatchNorm2d(8),
        nn.ReLU(),
        nn.MaxPool2d(2),
        nn.Flatten(),
        nn.Linear(128, 5),
    ]
    net = nn.Sequential(*layers)
    net(torch.randn(16, 3, 8, 8))  # gives the normalization its statistics
    return net


NETS = {
    "convolutional": (convolutional, lambda: torch.randn(2, 3, 8, 8)),
    "transformer": (
        lambda: nn.TransformerEncoderLayer(16, 2, 32, dropout=0.0, batch_first=True),
        lambda: torch.randn(2, 5, 16),
    ),
    "recurrent": (Recurrent, lambda: torch.randint(11, (4, 5))),
}


# --- Gradients ------------------------------------------------------------------------------------


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("net", NETS)
def test_gradients_are_those_of_the_original(net, form):
    torch.manual_seed(0)
    make, make_input = NETS[net]
    original, x = make(), make_input()
    module = form(exported(original, x))
    if x.is_floating_point():
        x.requires_grad_()
    gradients = []
    for each in (original, module):
        y = each(x)
        (y * torch.linspace(-1, 1, y.numel()).view_as(y)).sum().backward()
        gradients.append({name: p.grad for name, p in each.named_parameters()} | {"x": x.grad})
        x.grad = None
    assert gradients[0].keys() == gradients[1].keys()
    for name, expected in gradients[0].items():
        torch.testing.assert_close(
            gradients[1][name], expected, rtol=1e-4, atol=1e-5, msg=lambda m, n=name: f"{n}: {m}"
        )


@pytest.mark.parametrize("form", FORMS)
def test_weights_of_the_original_load(form):
    original, x = convolutional(), torch.randn(2, 3, 8, 8)
    module = form(exported(convolutional(), x))
    loaded = module.load_state_dict(original.eval().state_dict(), strict=False)
    assert (loaded.missing_keys, loaded.unexpected_keys) == ([], ["1.num_batches_tracked"])
    torch.testing.assert_close(module(x), original(x))


# The official cases whose operators have a gradient everywhere near their inputs.
SMOOTH = """
add average_pool basic_conv basic_deform batchnorm_example_training_mode celu concat conv convtranspose cos
deform_conv einsum elu erf exp expand gather gemm gelu globalaveragepool group_normalization gru gru_defaults
instancenorm layer_normalization_2d_axis0 log logsoftmax lrn lstm lstm_defaults matmul mean mish mul reduce_l2
reduce_log_sum_exp reduce_mean reduce_prod rms_normalization rnn_seq_length roialign_aligned sce scan9_sum
sigmoid sin softmax softplus sqrt sub sum swish tanh transpose where
""".split()


def smooth_cases():
    def has_gradient(case):
        inputs = case.data_sets[0][0]
        first = case.name.removeprefix("test_")
        return (
            inputs[0].size
            and inputs[0].dtype == np.float32
            and any(first == word or first.startswith(word + "_") for word in SMOOTH)
        )

    cases = [case for case in node_cases() if case.data_sets[0][0] and isinstance(case.data_sets[0][0][0], np.ndarray)]
    return [case for case in cases if has_gradient(case)][::4]


@pytest.mark.parametrize("case", smooth_cases(), ids=lambda case: case.name)
def test_gradient_is_the_slope(case):
    """Along a random direction of the first input, the gradient is what differences of the output tell."""
    torch.manual_seed(0)
    module = to_torchscript(case.model, custom_operators=True)
    first, *others = to_torch(case.data_sets[0][0])

    def result(x):
        y = module(x, *others)
        y = y[0] if isinstance(y, tuple) else y
        return (y.double() * torch.linspace(0.5, 1.5, y.numel()).view_as(y)).sum()

    direction, step = torch.randn_like(first), 1e-3
    first.requires_grad_()
    (gradient,) = torch.autograd.grad(result(first), first)
    with torch.no_grad():
        slope = (result(first + step * direction) - result(first - step * direction)) / (2 * step)
    along = (gradient * direction).sum().item()
    # Outputs of float32 are rounded, which a step of 1e-3 makes a thousand times as much of in their difference.
    assert along == pytest.approx(slope.item(), rel=0.05, abs=0.05)


def test_operators_without_a_gradient_say_so():
    case = next(case for case in node_cases() if case.name == "test_ai_onnx_ml_tree_ensemble_single_tree")
    (x,) = to_torch(case.data_sets[0][0])
    y = to_torchscript(case.model, custom_operators=True)(x.requires_grad_())
    with pytest.raises(RuntimeError, match="derivative for onnx_torch::tree_ensemble is not implemented"):
        y.sum().backward()


@pytest.mark.parametrize("form", [partial(to_torchscript, custom_operators=True), to_module], ids=["script", "module"])
def test_casts_to_small_floats_are_straight_through(form):
    """Two casts there and back give the gradient of torch's own casts, with its rounding."""
    names = ["x", "small", "y"]
    nodes = [
        helper.make_node("Cast", [x], [y], to=to)
        for x, y, to in zip(names, names[1:], [TensorProto.FLOAT8E4M3FN, FLOAT], strict=False)
    ]
    module = form(model_of(nodes, [tensor_info("x", element=FLOAT, shape=[5])], ["y"]))
    weight = torch.tensor([1.0, 0.3, -2.0, 100.0, 0.0])
    gradients = []
    for cast in (module, lambda x: x.to(torch.float8_e4m3fn).float()):
        x = torch.tensor([0.1, 1.7, -300.0, 0.0, 3.0], requires_grad=True)
        (cast(x) * weight).sum().backward()
        gradients.append(x.grad)
    assert torch.equal(*gradients)


@pytest.mark.parametrize("form", FORMS)
def test_fine_tuning_lowers_the_loss(form):
    torch.manual_seed(0)
    teacher, student = convolutional().eval(), convolutional()
    x = torch.randn(32, 3, 8, 8)
    model = exported(student, x)
    module = form(model)
    optimizer = torch.optim.Adam(module.parameters(), lr=0.01)
    losses = []
    for _ in range(30):
        loss = nn.functional.cross_entropy(module(x), teacher(x).argmax(1))
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    assert losses[-1] < 0.2 * losses[0]

    trained = update_initializers(model, module)
    (y,) = onnx_torch.prepare(trained).run([x])
    torch.testing.assert_close(y, module(x).detach(), rtol=1e-4, atol=1e-4)
    assert nn.functional.cross_entropy(y, teacher(x).argmax(1)).item() < 0.2 * losses[0]


# --- train() and eval() ---------------------------------------------------------------------------


def both_modes(module, x):
    results = []
    for mode in (True, False):
        torch.manual_seed(0)
        y = module.train(mode)(x)
        results.append(y[0] if isinstance(y, tuple) else y)
    return results


def dropout(training):
    constants = [
        numpy_helper.from_array(np.float32(0.5), "ratio"),
        numpy_helper.from_array(np.bool_(training), "training"),
    ]
    node = helper.make_node("Dropout", ["x", "ratio", "training"], ["y"])
    return model_of([node], [tensor_info("x", element=FLOAT, shape=[100])], ["y"], initializer=constants)


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("training", [False, True])
def test_dropout_does_what_the_model_says(training, form):
    x = torch.ones(100)
    for y in both_modes(form(dropout(training)), x):
        assert set(y.tolist()) == ({0.0, 2.0} if training else {1.0})


def batch_normalization(training):
    names = ["scale", "b", "mean", "var"]
    constants = [numpy_helper.from_array(np.full(3, i + 1, np.float32), name) for i, name in enumerate(names)]
    outputs = ["y", "new_mean", "new_var"][: 3 if training else 1]
    node = helper.make_node("BatchNormalization", ["x", *names], outputs, training_mode=int(training))
    return model_of([node], [tensor_info("x", element=FLOAT, shape=[8, 3])], outputs, initializer=constants)


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("training", [False, True])
def test_batch_normalization_does_what_the_model_says(training, form):
    torch.manual_seed(0)
    module, x = form(batch_normalization(training)), torch.randn(8, 3)
    state = {name: value.clone() for name, value in module.state_dict().items()}
    scale, b, mean, var = state.values()
    expected = nn.functional.batch_norm(x, None if training else mean, None if training else var, scale, b, training)
    for y in both_modes(module, x):
        torch.testing.assert_close(y, expected)
    assert all(torch.equal(value, state[name]) for name, value in module.state_dict().items())
    if not training:  # else they are inputs of the new statistics, like any others
        assert sorted(name for name, _ in module.named_parameters()) == ["b", "scale"]


@pytest.mark.parametrize("form", FORMS)
def test_gradient_through_the_statistics_of_a_batch(form):
    torch.manual_seed(0)
    x = torch.randn(8, 3, requires_grad=True)
    weight = torch.randn(8, 3)
    module = form(batch_normalization(True))
    (actual,) = torch.autograd.grad((module(x)[0] * weight).sum(), x)
    y = nn.functional.batch_norm(x, None, None, torch.full((3,), 1.0), torch.full((3,), 2.0), True)
    (expected,) = torch.autograd.grad((y * weight).sum(), x)
    torch.testing.assert_close(actual, expected)


# --- Back to ONNX ---------------------------------------------------------------------------------


def every_type():
    """Makes a model that returns its initializers, of many types, each in turn."""
    arrays = [
        np.arange(4).astype(t)
        for t in ("float32", "float64", "float16", "int8", "int64", "bool", "uint16", "uint32", "uint64")
    ]
    types = [
        TensorProto.BFLOAT16,
        TensorProto.INT4,
        TensorProto.UINT4,
        TensorProto.FLOAT8E4M3FN,
        TensorProto.FLOAT4E2M1,
    ]
    arrays += [np.arange(4).astype(helper.tensor_dtype_to_np_dtype(element)) for element in types]
    arrays.append(np.array([2**63 + 5, 2**64 - 1], np.uint64))
    tensors = [numpy_helper.from_array(array, f"w.{i}") for i, array in enumerate(arrays)]
    nodes = [helper.make_node("Identity", [tensor.name], [f"y{i}"]) for i, tensor in enumerate(tensors)]
    outputs = [helper.make_tensor_value_info(f"y{i}", tensor.data_type, None) for i, tensor in enumerate(tensors)]
    return model_of(nodes, [], outputs, initializer=tensors)


def test_weights_of_every_type_come_back_unchanged():
    model = every_type()
    model.graph.initializer[0].doc_string = "the first"
    result = update_initializers(model, to_torchscript(model))
    assert [tensor.name for tensor in result.graph.initializer] == [tensor.name for tensor in model.graph.initializer]
    assert result.graph.initializer[0].doc_string == "the first"
    for before, after in zip(model.graph.initializer, result.graph.initializer, strict=True):
        assert before.data_type == after.data_type
        assert numpy_helper.to_array(before).tobytes() == numpy_helper.to_array(after).tobytes()


@pytest.fixture
def renamed():
    """Makes y = x * (a - a.b), whose weights have names that change."""
    weights = [numpy_helper.from_array(np.float32([i + 1, 2]), name) for i, name in enumerate(["a", "a.b"])]
    nodes = [helper.make_node("Sub", ["a", "a.b"], ["d"]), helper.make_node("Mul", ["x", "d"], ["y"])]
    return model_of(nodes, [tensor_info("x", element=FLOAT, shape=["n"])], ["y"], initializer=weights)


def test_renamed_weights_find_their_initializers(renamed):
    module = to_torchscript(renamed)
    assert names_of(module).parameters == {"a": "a_", "a.b": "a.b"}
    with torch.no_grad():
        module.state_dict(keep_vars=True)["a_"].copy_(torch.tensor([7.0, 8.0]))
    result = update_initializers(renamed, module)
    assert {t.name: numpy_helper.to_array(t).tolist() for t in result.graph.initializer} == {"a": [7, 8], "a.b": [2, 2]}
    assert numpy_helper.to_array(renamed.graph.initializer[0]).tolist() == [1, 2]


def test_external_data_stays_external(renamed, tmp_path):
    for tensor in renamed.graph.initializer:  # large enough for onnx to put them into another file
        tensor.CopyFrom(numpy_helper.from_array(np.resize(numpy_helper.to_array(tensor), 400), tensor.name))
    (tmp_path / "in").mkdir()
    file, trained = tmp_path / "in" / "model.onnx", tmp_path / "trained.onnx"
    onnx.save(renamed, file, save_as_external_data=True, location="weights.bin", size_threshold=0)
    module = to_torchscript(file)
    with torch.no_grad():
        for parameter in module.parameters():
            parameter.mul_(10)
    update_initializers(file, module, trained)
    assert (tmp_path / "trained.onnx.data").exists()
    x = np.ones(400, np.float32)
    assert onnx_torch.prepare(trained).run([x])[0].tolist() == [-10, 0] * 200
    assert onnx_torch.prepare(file).run([x])[0].tolist() == [-1, 0] * 200


def test_module_of_another_model(renamed):
    with pytest.raises(InputError, match="the module is of another model: there is no initializer 'a'"):
        update_initializers(batch_normalization(False), to_torchscript(renamed))
    with pytest.raises(TypeError, match="not made by onnx_torch"):
        update_initializers(renamed, nn.Linear(1, 1))
    smaller = to_torchscript(renamed)
    renamed.graph.initializer[0].CopyFrom(numpy_helper.from_array(np.zeros(1, np.float32), "a"))
    with pytest.raises(InputError, match=r"'a' has the shape \[2\] in the module, and \[1\] in the model"):
        update_initializers(renamed, smaller)
