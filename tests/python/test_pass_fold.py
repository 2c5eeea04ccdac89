"""The pass `fold`: what sizes decide, and what is computed once."""

from __future__ import annotations

import re

import numpy as np

import onnx_torch
from pass_models import check_equal, code, floats, graph_of, model


def test_fold_unrolls_a_loop_of_few_iterations():
    source = model(
        "(float[3] x) => (float[3] y) { y = Loop<body = b (int64 i, bool c, float[3] a) => (bool d, float[3] b) "
        "{ d = Identity(c) b = Exp(a) }>(n, t, x) }",
        n=np.array(3, np.int64),
        t=np.array(True),
    )
    graphs = onnx_torch.prepare(source).graphs()
    assert "prim::Loop" in graphs["place"]
    assert code(graphs["fold"]) == "aten::exp\naten::exp\naten::exp"
    check_equal(source, [-np.abs(floats(3))])


def test_equal_constants_are_one_node():
    nodes = "".join(f"a{i + 1} = Gelu(a{i}) b{i} = Add(a{i + 1}, x)" for i in range(8))
    source = model(f"(float[n] a0, float[n] x) => (float[n] b7) {{ {nodes} }}")
    text = onnx_torch.prepare(source, optimize=False).graphs()["translate"]
    constants = re.findall(r": (\S+ = prim::Constant\S*)\(", text)
    assert constants and len(constants) == len(set(constants))


def test_fold_computes_nothing_twice_but_what_is_random():
    source = model("(float[3] x) => (float[3] y) { a = Exp(x) b = Exp(x) y = Add(a, b) }")
    assert graph_of(source, "fold") == "aten::exp\naten::add"
    check_equal(source, [floats(3)])
    source = model("() => (float[9] a, float[9] b) { a = RandomNormal<shape = [9]>() b = RandomNormal<shape = [9]>() }")
    a, b = onnx_torch.prepare(source).run([])
    assert not np.array_equal(a, b)
