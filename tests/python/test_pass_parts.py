"""The pass `parts`: of a result no more is computed than is read of it."""

from __future__ import annotations

import re

import numpy as np
import onnx
import pytest
from onnx import helper, numpy_helper

import onnx_torch
from pass_models import check_each, check_equal, floats, model

ROWS = {
    "a product": "y = MatMul(x, w)",
    "a product and a bias": "h = MatMul(x, w) y = Add(h, b)",
    "functions": "h = Relu(x) g = Gelu(h) y = Neg(g)",
    "operands of one row": "h = Mul(x, row) y = Add(h, b)",
    "operands with more dimensions": "h = ReduceSum<keepdims = 0>(x, axis) y = Add(h, x)",
    "a choice": "m = Greater(x, b) y = Where(m, x, row)",
    "norms": "h = LayerNormalization(x, b, b) y = RMSNormalization(h, b)",
    "casts": "h = Cast<to = 11>(x) g = Exp(h) y = Cast<to = 1>(g)",
    "a residual": "h = MatMul(x, w) g = Add(h, x) f = LayerNormalization(g, b) e = MatMul(f, w) y = Add(e, g)",
}
WEIGHTS = {"w": (8, 8), "b": (8,), "row": (1, 1, 8), "axis": [0], "first": np.array(0), "last": np.array(-1)}
TAKEN = {
    "the first by Gather": "Gather<axis = 1>(y, first)",
    "the last by Gather": "Gather<axis = 1>(y, last)",
    "the first by Slice": "Slice(y, zeros, ones, ones)",
    "the last by Slice": "Slice(y, minus, far, ones)",
}
BOUNDS = {"zeros": [0], "ones": [1], "minus": [-1], "far": [2**63 - 1]}


def source_of(body: str, taken: str, sizes: str = "A, S, 8") -> onnx.ModelProto:
    weights = {name: value for name, value in {**WEIGHTS, **BOUNDS}.items() if re.search(rf"\b{name}\b", body + taken)}
    taken = taken.replace("ones, ones)", "ones, ones_, ones)").replace("far, ones)", "far, ones_, ones)")
    if "ones_" in taken:
        weights["ones_"] = [1]
    return model(f"(float[{sizes}] x) => (z) {{ {body} z = {taken} }}", **weights)


def rows_of(source: onnx.ModelProto, step: str = "parts") -> list[str]:
    """Gives the numbers of rows, the second dimension, of what is computed."""
    graph = onnx_torch.prepare(source).graphs()[step]
    computed = re.findall(r": \w+\((.*)\) = (?!aten::select|aten::slice|prim)\w+::\w+", graph)
    return [sizes.split(", ")[1] for sizes in computed if sizes.count(",") == 2]


@pytest.mark.parametrize("sizes", ["A, S, 8", "2, 5, 8"])
@pytest.mark.parametrize("taken", TAKEN)
@pytest.mark.parametrize("name", ROWS)
def test_one_row_is_computed(name: str, taken: str, sizes: str):
    source = source_of(ROWS[name], TAKEN[taken], sizes)
    before = rows_of(source, "scales")
    assert len(rows_of(source)) == len(before) > 0
    if sizes == "2, 5, 8" and "ReduceSum" not in ROWS[name]:
        assert set(before) == {"5"} and set(rows_of(source)) == {"1"}
    check_equal(source, [floats(2, 5, 8)])


@pytest.mark.parametrize("taken", TAKEN)
def test_open_sizes_may_be_any(taken: str):
    source = source_of(ROWS["a residual"], TAKEN[taken])
    check_each(source, [[floats(*sizes, 8)] for sizes in ((2, 5), (1, 1), (3, 2), (2, 7), (2, 5))])


@pytest.mark.parametrize("taken", [*TAKEN.values(), "Gather<axis = 1>(y, fourth)", "Slice(y, four, far, ones)"])
def test_known_sizes_tell_which_row_is_the_last(taken: str):
    source = source_of(ROWS["a product"], taken, "2, 5, 8")
    for name, value in {"fourth": np.array(4), "four": np.array([4])}.items():
        if name in taken:
            source.graph.initializer.append(onnx.numpy_helper.from_array(value, name))
    assert rows_of(source) == ["1"]
    check_equal(source, [floats(2, 5, 8)])


@pytest.mark.parametrize("level", [0, 4])
def test_weights_of_few_bits(level: int):
    source = onnx.parser.parse_model(
        '<ir_version: 10, opset_import: ["": 21, "com.microsoft": 1]> g (float[A, 5, 32] x) => (float[A, N] z) {'
        f" y = com.microsoft.MatMulNBits<K=32, N=16, bits=4, block_size=32, accuracy_level={level}>(x, w, s)"
        " z = Gather<axis = 1>(y, last) }"
    )
    weights = {
        "w": np.random.default_rng(0).integers(0, 256, (16, 1, 16), np.uint8),
        "s": np.abs(floats(16)),
        "last": np.array(-1),
    }
    source.graph.initializer.extend(onnx.numpy_helper.from_array(value, name) for name, value in weights.items())
    graph = onnx_torch.prepare(source).graphs()["parts"]
    assert re.search(r"Float\(\*, 1, 16\) = onnx_torch::packed_nbits" + ("_int8" if level else r"\("), graph)
    x = floats(3, 5, 32)
    [found], [expected] = (onnx_torch.prepare(source, disabled_passes=off).run([x]) for off in ([], ["parts"]))
    np.testing.assert_allclose(found, expected, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize(
    "body",
    [
        "y = Relu(x) z = Gather<axis = 1>(y, last) v = Gather<axis = 1>(y, first)",
        "y = Relu(x) z = Gather<axis = 1>(y, last) v = Neg(y)",
        "y = Relu(x) z = Gather<axis = 1>(y, second) v = Neg(z)",
        "y = Relu(x) z = Slice(y, zeros, two, ones_) v = Neg(z)",
        "y = Softmax<axis = 1>(x) z = Gather<axis = 1>(y, last) v = Neg(z)",
        "y = LayerNormalization<axis = 1>(x, scale) z = Gather<axis = 1>(y, last) v = Neg(z)",
        "y = MatMul(x, w) z = Gather<axis = 2>(y, last) v = Neg(z)",
    ],
)
def test_what_is_read_as_a_whole_is_computed(body: str):
    weights = {**WEIGHTS, "zeros": [0], "two": [2], "ones_": [1], "second": np.array(1), "scale": (5, 8)}
    used = {name: value for name, value in weights.items() if re.search(rf"\b{name}\b", body)}
    source = model(f"(float[2, 5, 8] x) => (z, v) {{ {body} }}", **used)
    assert "5" in rows_of(source)
    check_equal(source, [floats(2, 5, 8)])


def test_a_value_that_is_asked_for_is_whole():
    prepared = onnx_torch.prepare(source_of("y = Relu(x)", "Gather<axis = 1>(y, last)"))
    x = floats(2, 5, 8)
    np.testing.assert_array_equal(prepared.intermediates([x])["y"], np.maximum(x, 0))
    np.testing.assert_array_equal(prepared.run([x])[0], np.maximum(x, 0)[:, -1])


def test_a_row_that_is_not_there_is_an_error_of_its_node():
    prepared = onnx_torch.prepare(source_of("y = MatMul(x, w)", "Gather<axis = 1>(y, last)"))
    with pytest.raises(onnx_torch.RunError, match="Gather"):
        prepared.run([floats(2, 0, 8)])


@pytest.mark.parametrize(
    ("operator", "operands"),
    [
        ("clamp_min", {"bound": (1, 5, 8)}),
        ("linear", {"w": (8, 8), "bias": (5, 8)}),
        ("linear", {"w": (8,)}),
    ],
)
def test_overloads_of_aten_whose_other_operands_have_rows(operator: str, operands: dict[str, tuple[int, ...]]):
    call = helper.make_node("ATen", ["x", *operands], ["y"], domain="org.pytorch.aten", operator=operator)
    source = source_of("y = Relu(x)", "Gather<axis = 1>(y, last)", "2, 5, 8")
    source.graph.node[0].CopyFrom(call)
    source.opset_import.append(helper.make_opsetid("org.pytorch.aten", 1))
    source.graph.initializer.extend(numpy_helper.from_array(floats(*sizes), name) for name, sizes in operands.items())
    x = floats(2, 5, 8)
    [found], [expected] = (onnx_torch.prepare(source, disabled_passes=off).run([x]) for off in ([], ["parts"]))
    np.testing.assert_allclose(found, expected, rtol=1e-5, atol=1e-5)


def test_a_dimension_that_is_not_there_is_an_error_of_the_run():
    source = source_of("y = Relu(x)", "Gather<axis = 1>(y, last)", "2, 5, 8")
    take = helper.make_node("ATen", ["y"], ["z"], domain="org.pytorch.aten", operator="select", dim=7, index=0)
    source.graph.node[1].CopyFrom(take)
    source.opset_import.append(helper.make_opsetid("org.pytorch.aten", 1))
    with pytest.raises(onnx_torch.Error, match="select|ATen"):
        onnx_torch.prepare(source).run([floats(2, 5, 8)])
