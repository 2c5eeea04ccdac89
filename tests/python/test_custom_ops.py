"""Operators of a user's own domain."""

import subprocess
import sys

import numpy as np
import pytest
import torch
from onnx import helper
from torch.utils._python_dispatch import TorchDispatchMode

import onnx_torch
from models import model_of, op_model, tensor_info
from onnx_torch import backend

X = np.array([[1, -2, 3], [4, 5, -6]], np.float32)
DOMAIN = "test.domain"


def run(op_type, inputs, version=1, outputs=1, **attributes):
    return backend.prepare(op_model(op_type, inputs, version, DOMAIN, outputs, **attributes)).run(inputs)


def test_a_torch_operator_by_name():
    onnx_torch.register_op(DOMAIN, "Shrink", "aten::softshrink")
    np.testing.assert_allclose(run("Shrink", [X], lambd=2.5)[0], torch.nn.functional.softshrink(torch.tensor(X), 2.5))
    np.testing.assert_allclose(run("Shrink", [X])[0], torch.nn.functional.softshrink(torch.tensor(X)))


def test_an_overload_by_name():
    onnx_torch.register_op(DOMAIN, "Largest", "aten::max.dim")
    values, indices = run("Largest", [X], outputs=2, dim=1, keepdim=1)
    np.testing.assert_array_equal(values, X.max(1, keepdims=True))
    np.testing.assert_array_equal(indices, X.argmax(1)[:, None])


def test_a_python_function():
    def scaled(
        x: torch.Tensor, y: torch.Tensor | None = None, factor: float = 2.0, axes: list[int] | None = None
    ) -> torch.Tensor:
        z = x * factor if y is None else x * factor + y
        return z.flip(axes or [])

    onnx_torch.register_op(DOMAIN, "Scaled", scaled)
    np.testing.assert_array_equal(run("Scaled", [X])[0], 2 * X)
    np.testing.assert_array_equal(run("Scaled", [X, X], factor=0.5, axes=[0])[0], (1.5 * X)[::-1])


def test_a_function_of_several_outputs_between_other_nodes():
    def halves(x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        left, right = x.chunk(2, dim=1)
        return left.clone(), right.clone()

    onnx_torch.register_op(DOMAIN, "Halves", halves)
    nodes = [
        helper.make_node("Neg", ["x"], ["n"]),
        helper.make_node("Halves", ["n"], ["a", "b"], domain=DOMAIN),
        helper.make_node("Sub", ["a", "b"], ["d"]),
    ]
    x = np.arange(8, dtype=np.float32).reshape(2, 4)
    model = model_of(nodes, [tensor_info("x", x)], ["d"], domain=DOMAIN, opset=1)
    np.testing.assert_array_equal(backend.prepare(model).run([x])[0], [[2, 2], [2, 2]])


def test_a_python_function_sees_the_threads_of_its_model():
    def threads(x: torch.Tensor) -> torch.Tensor:
        return torch.tensor(torch.get_num_threads())

    onnx_torch.register_op(DOMAIN, "Threads", threads)
    before = torch.get_num_threads()
    for count in (1, 3):
        assert backend.prepare(op_model("Threads", [X], 1, DOMAIN), threads=count).run([X])[0] == count
    assert torch.get_num_threads() == before


def test_versions():
    onnx_torch.register_op(DOMAIN, "Versioned", "aten::neg", since_version=2)
    onnx_torch.register_op(DOMAIN, "Versioned", "aten::abs", since_version=4)
    with pytest.raises(onnx_torch.UnsupportedError, match="Versioned"):
        run("Versioned", [X], version=1)
    np.testing.assert_array_equal(run("Versioned", [X], version=3)[0], -X)
    np.testing.assert_array_equal(run("Versioned", [X], version=5)[0], abs(X))


def test_a_failing_function_names_its_node():
    def failing(x: torch.Tensor) -> torch.Tensor:
        raise RuntimeError("no luck today")

    onnx_torch.register_op(DOMAIN, "Failing", failing)
    with pytest.raises(onnx_torch.RunError, match="(?s)Failing.*no luck today") as caught:
        run("Failing", [X])
    assert caught.value.op_type == "Failing"


def test_wrong_registrations():
    with pytest.raises(onnx_torch.InputError, match="domain of the ONNX standard"):
        onnx_torch.register_op("ai.onnx", "Relu", "aten::relu")
    with pytest.raises(onnx_torch.InputError, match="namespace::name"):
        onnx_torch.register_op(DOMAIN, "Relu", "relu")
    with pytest.raises(onnx_torch.InputError, match="type hints"):
        onnx_torch.register_op(DOMAIN, "Untyped", lambda x: x)
    onnx_torch.register_op(DOMAIN, "Unknown", "nobody::knows")
    with pytest.raises(onnx_torch.UnsupportedError, match="nobody::knows"):
        run("Unknown", [X])


def test_attributes_that_do_not_fit_are_an_error():
    onnx_torch.register_op(DOMAIN, "Picky", "aten::relu")
    with pytest.raises(onnx_torch.Error, match="do not fit"):
        run("Picky", [X], slope=1.0)


class Refuses(TorchDispatchMode):
    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        if func is torch.ops.aten.softshrink.default:
            raise ValueError("not this one")
        return func(*args, **(kwargs or {}))


def test_what_a_dispatch_mode_raises_is_told_with_the_node():
    onnx_torch.register_op(DOMAIN, "Shrink", "aten::softshrink")
    rep = backend.prepare(op_model("Shrink", [X], 1, DOMAIN))
    for _ in range(2):
        with Refuses(), pytest.raises(onnx_torch.RunError, match=r"Shrink.*: ValueError: not this one[\s\S]*\[2, 3\]"):
            rep.run([X])
    np.testing.assert_array_equal(rep.run([X])[0], torch.nn.functional.softshrink(torch.tensor(X)))


AT_ONCE = """
import sys, threading
import numpy as np
from onnx import TensorProto, helper
import onnx_torch, torch

sys.setswitchinterval(1e-6)
start, results = threading.Barrier(8), {}

def work(number):
    def plus(x: torch.Tensor) -> torch.Tensor:
        return x + number
    start.wait()
    onnx_torch.register_op("of.threads", f"Plus{number}", plus)
    node = helper.make_node(f"Plus{number}", ["x"], ["y"], domain="of.threads")
    infos = [helper.make_tensor_value_info(name, TensorProto.FLOAT, [2]) for name in "xy"]
    imports = [helper.make_opsetid("", 26), helper.make_opsetid("of.threads", 1)]
    model = helper.make_model(helper.make_graph([node], "plus", infos[:1], infos[1:]), opset_imports=imports)
    results[number] = onnx_torch.prepare(model).run([np.zeros(2, np.float32)])[0].tolist()

threads = [threading.Thread(target=work, args=(number,)) for number in range(8)]
for thread in threads: thread.start()
for thread in threads: thread.join()
assert results == {number: [number, number] for number in range(8)}, results
"""


def test_threads_register_at_once():
    done = subprocess.run([sys.executable, "-c", AT_ONCE], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
