"""The pass `activations`: Silu, HardSwish and Gelu, as exporters write them."""

from __future__ import annotations

import numpy as np
import pytest

from pass_models import check_equal, floats, graph_of, model

ACTIVATIONS = {
    "aten::silu": ["s = Sigmoid(x) y = Mul(x, s)", "s = Sigmoid(x) y = Mul(s, x)"],
    "aten::hardswish": ["s = HardSigmoid<alpha = 0.16666667>(x) y = Mul(x, s)"],
    "aten::gelu": [
        "d = Div(x, root) e = Erf(d) s = Add(e, one) p = Mul(x, s) y = Mul(p, half)",
        "d = Div(x, root) e = Erf(d) s = Add(one, e) h = Mul(half, x) y = Mul(h, s)",
        "d = Mul(x, inverse) e = Erf(d) s = Add(e, one) h = Mul(half, x) y = Mul(h, s)",
        "c = Pow(x, three) a = Mul(c, k) b = Add(x, a) i = Mul(b, r) t = Tanh(i) s = Add(t, one) h = Mul(half, x) "
        "y = Mul(h, s)",
        "q = Mul(x, x) c = Mul(x, q) a = Mul(k, c) b = Add(x, a) i = Mul(r, b) t = Tanh(i) s = Add(one, t) "
        "p = Mul(x, s) y = Mul(half, p)",
    ],
}


NUMBERS = dict(root=2**0.5, inverse=0.5**0.5, one=1, half=0.5, three=3, k=0.044715, r=(2 / np.pi) ** 0.5)


NUMBERS = {name: np.float32(value) for name, value in NUMBERS.items()}


@pytest.mark.parametrize(("operator", "body"), [(op, body) for op, bodies in ACTIVATIONS.items() for body in bodies])
def test_activations(operator: str, body: str):
    source = model(f"(float[N, 9] x) => (float[N, 9] y) {{ {body} }}", **NUMBERS)
    assert graph_of(source, "activations") == operator
    check_equal(source, [3 * floats(4, 9)])


@pytest.mark.parametrize(
    "body",
    [
        "s = Sigmoid(x) y = Mul(z, s)",
        "d = Div(x, half) e = Erf(d) s = Add(e, one) p = Mul(x, s) y = Mul(p, half)",
        "d = Div(x, root) e = Erf(d) s = Add(e, one) p = Mul(x, s) y = Mul(p, one)",
    ],
)
def test_what_is_no_activation(body: str):
    source = model(f"(float[4, 9] x, float[4, 9] z) => (float[4, 9] y) {{ {body} }}", **NUMBERS)
    assert not {"aten::silu", "aten::gelu"} & set(graph_of(source, "activations").splitlines())
    check_equal(source, [floats(4, 9), floats(4, 9)])


def test_an_activation_whose_inner_value_is_wanted_stays():
    source = model("(float[9] x) => (float[9] y, float[9] s) { s = Sigmoid(x) y = Mul(x, s) }")
    assert "aten::silu" not in graph_of(source, "activations")
    check_equal(source, [floats(9)])
