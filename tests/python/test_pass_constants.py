"""The pass `constants`: what depends on weights alone."""

from __future__ import annotations

import numpy as np

from pass_models import check_equal, floats, graph_of, model


def test_constants_computes_once_what_depends_on_weights_alone():
    """The weights are too large to be computed with while translating."""
    source = model("(float[80, 90] x) => (float[80, 90] y) { e = Exp(w) t = Transpose(e) y = Mul(x, t) }", w=(90, 80))
    assert graph_of(source, "activations", disabled_passes=["constants"]) == "aten::exp\naten::permute\naten::mul"
    assert graph_of(source, "constants") == "aten::mul"
    check_equal(source, [floats(80, 90)])


def test_constants_reaches_into_branches_and_loops():
    source = model(
        """(float[80, 90] x, bool c) => (float[80, 90] y, float[80, 90] z) {
        y = If(c) <then_branch = t () => (float[80, 90] p) { d = Transpose(w) p = Mul(x, d) },
                   else_branch = e () => (float[80, 90] q) { f = Transpose(w) q = Sub(x, f) }>
        z = Loop(three, , x) <body = b (int64 i, bool go, float[80, 90] u) => (bool on, float[80, 90] v) {
            on = Identity(go) g = Transpose(w) v = Add(u, g) }> }""",
        w=(90, 80),
        three=np.array(3),
    )
    assert "permute" in graph_of(source, "activations", disabled_passes=["constants"])
    assert "permute" not in graph_of(source, "constants")
    for condition in (True, False):
        check_equal(source, [floats(80, 90), np.array(condition)])


def test_constants_leaves_what_would_be_much_larger_than_its_weights():
    source = model(
        "(float[80, 90] x) => (float[80, 90] y) { e = Expand(w, sizes) m = ReduceMax(e, axes) y = Mul(x, m) }",
        w=(80, 90),
        sizes=np.array([300, 80, 90]),
        axes=np.array([0]),
    )
    assert "aten::expand" in graph_of(source, "constants")
    check_equal(source, [floats(80, 90)])
