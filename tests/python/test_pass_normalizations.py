"""The passes `normalizations` and `group_norms`: norms that are written out, and of channels."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import onnx
import pytest
from onnx import numpy_helper

import onnx_torch
from pass_models import check_equal, check_overflowing, floats, graph_of, model, used_in

LAYER_NORMS = {
    "power": "m = ReduceMean(x, last) d = Sub(x, m) p = Pow(d, two) v = ReduceMean(p, last)",
    "product": "m = ReduceMean(x, last) d = Sub(x, m) p = Mul(d, d) v = ReduceMean(p, last)",
    "twice": "m = ReduceMean(x, last) d = Sub(x, m) c = Sub(x, m) p = Pow(c, two) v = ReduceMean(p, two_dims)",
}


@pytest.mark.parametrize("name", LAYER_NORMS)
def test_layer_norm(name: str):
    numbers = {"two": np.float32(2), "eps": np.float32(1e-5), "last": np.int64([-1]), "two_dims": np.int64([2])}
    source = model(
        f"(float[2, 3, 8] x) => (float y) {{ {LAYER_NORMS[name]} e = Add(v, eps) s = Sqrt(e) n = Div(d, s) "
        "q = Mul(n, w) y = Add(q, b) }",
        **numbers,
        w=(8,),
        b=(8,),
    )
    assert graph_of(source, "normalizations") == "aten::layer_norm"
    check_equal(source, [5 + 3 * floats(2, 3, 8)])
    x = floats(2, 3, 8)
    x[0, 1, 2:5] = np.nan, np.inf, -np.inf
    x[1, 1] = 7
    check_equal(source, [x])


@pytest.mark.parametrize(
    "body",
    [
        "m = ReduceMean(x, first) d = Sub(x, m) p = Pow(d, two) v = ReduceMean(p, first) e = Add(v, eps)",
        "m = ReduceMean(x, last) d = Sub(x, m) p = Pow(d, two) v = ReduceMean(p, first) e = Add(v, eps)",
        "m = ReduceMean(x, last) d = Sub(x, m) p = Pow(d, eps) v = ReduceMean(p, last) e = Add(v, eps)",
        "m = ReduceMean(x, last) d = Sub(x, m) p = Pow(d, two) v = ReduceMean(p, last) e = Add(v, array)",
        "m = ReduceMean(two, last) d = Sub(x, m) p = Pow(d, two) v = ReduceMean(p, last) e = Add(v, eps)",
    ],
)
def test_what_is_no_layer_norm(body: str):
    source = model(
        f"(float[8, 8] x) => (float[N, M] y) {{ {body} s = Sqrt(e) y = Div(d, s) }}",
        two=np.float32([2]) if "(two" in body else np.float32(2),
        eps=np.float32(1),
        array=(8,),
        first=np.int64([0]),
        last=np.int64([-1]),
    )
    assert "aten::layer_norm" not in graph_of(source, "normalizations")
    check_equal(source, [np.abs(floats(8, 8))])


GROUP_NORM = "r = Reshape(x, rows) n = InstanceNormalization<epsilon = 0.001>(r, w, b) y = Reshape(n, sizes)"


@pytest.mark.parametrize("sizes", [(2, 6, 4, 5), (2, 6, 7), (1, 6, 2, 3, 4)])
def test_group_norm(sizes: tuple[int, ...]):
    shape = ", ".join(map(str, sizes))
    source = model(
        f"(float[{shape}] x) => (float[{shape}] y) {{ {GROUP_NORM} }}",
        rows=np.int64([0, 3, -1]),
        sizes=np.int64(sizes),
        w=np.ones(3, np.float32),
        b=np.zeros(3, np.float32),
    )
    assert graph_of(source, "normalizations") == "aten::group_norm"
    x = 2 + floats(*sizes)
    check_equal(source, [x])
    x[0, 3] = np.nan
    check_equal(source, [x])


@pytest.mark.parametrize(
    ("rows", "weight", "result"),
    [
        ([0, 3, -1], [1, 1, 2], [2, 6, 4, 5]),
        ([1, 3, -1], [1, 1, 1], [2, 6, 4, 5]),
        ([0, 3, 2, -1], [1, 1, 1], [2, 6, 4, 5]),
        ([0, 3, -1], [1, 1, 1], [2, 4, 6, 5]),
        ([0, 4, -1], [1, 1, 1, 1], [2, 6, 4, 5]),
    ],
)
def test_what_is_no_group_norm(rows: list[int], weight: list[float], result: list[int]):
    source = model(
        f"(float[2, 6, 4, 5] x) => (float[A, B, C, D] y) {{ {GROUP_NORM} }}",
        rows=np.int64(rows),
        sizes=np.int64(result),
        w=np.float32(weight),
        b=np.zeros(len(weight), np.float32),
    )
    assert "aten::group_norm" not in graph_of(source, "normalizations")
    check_equal(source, [floats(2, 6, 4, 5)])


NORMS = [
    "InstanceNormalization<epsilon = 0.001>(c, scale, bias)",
    "GroupNormalization<epsilon = 0.001, num_groups = 2>(c, scale, bias)",
]


def normalized_convolution(norm: str, rank: int) -> onnx.ModelProto:
    """Makes a norm of a convolution's result, which lies channels-last; here it is the input and its opposite."""
    dims = ", ".join("NCLHW"[:rank])
    identity = np.concatenate([np.eye(4), -np.eye(4)]).astype(np.float32)
    return model(
        f"(float[{dims}] x) => (float y) {{ c = Conv(x, w) y = {norm} }}",
        w=identity.reshape(8, 4, *[1] * (rank - 2)),
        scale=floats(8),
        bias=floats(8),
    )


@pytest.mark.parametrize("sizes", [(1, 4, 700), (3, 4, 33), (2, 4, 40, 50), (2, 4, 3, 4, 5), (1, 4, 2, 1)])
@pytest.mark.parametrize("norm", NORMS)
def test_norms_of_what_lies_channels_last(norm: str, sizes: tuple[int, ...]):
    source = normalized_convolution(norm, len(sizes))
    assert "onnx_torch::group_norm" in graph_of(source, "group_norms")
    check_equal(source, [floats(*sizes)])


def normalized_image(norm: str, rank: int) -> onnx.ModelProto:
    """Makes the same norm of an image as it is fed, whose planes are contiguous, and its opposite."""
    dims = ", ".join("NCLHW"[:rank])
    text = f"(float[{dims}] x) => (float y) {{ o = Neg(x) c = Concat<axis = 1>(x, o) y = {norm} }}"
    return model(text, scale=floats(8), bias=floats(8))


# The planes are of a part, of several, or too small for vectors.
@pytest.mark.parametrize(
    "sizes", [(1, 4, 700), (3, 4, 33), (2, 4, 40, 50), (2, 4, 3, 4, 5), (2, 4, 90, 400), (2, 4, 7)]
)
@pytest.mark.parametrize("norm", NORMS)
def test_norms_of_contiguous_images(norm: str, sizes: tuple[int, ...]):
    source = normalized_image(norm, len(sizes))
    assert "onnx_torch::group_norm" in graph_of(source, "group_norms")
    check_equal(source, [floats(*sizes)])


@pytest.mark.parametrize("value", [np.nan, np.inf, 1e30])
@pytest.mark.parametrize("made", [normalized_convolution, normalized_image])
@pytest.mark.parametrize("norm", NORMS)
def test_norms_of_values_that_are_not_finite_or_huge(norm: str, made: Callable[..., onnx.ModelProto], value: float):
    x = floats(2, 4, 300)
    x[0, 1, 7] = value
    check_overflowing(made(norm, 3), [x])


@pytest.mark.parametrize("value", [np.nan, np.inf, -np.inf, 3e38])
@pytest.mark.parametrize("made", [normalized_convolution, normalized_image])
@pytest.mark.parametrize("norm", NORMS)
def test_norms_with_scales_that_are_not_finite_or_huge(norm: str, made: Callable[..., onnx.ModelProto], value: float):
    source = made(norm, 3)
    (scale,) = (t for t in source.graph.initializer if t.name == "scale")
    scale.CopyFrom(numpy_helper.from_array(np.where(np.arange(8) == 2, np.float32(value), floats(8)), "scale"))
    check_overflowing(source, [1e-3 * floats(2, 4, 300)])


@pytest.mark.parametrize("made", [normalized_convolution, normalized_image])
@pytest.mark.parametrize("norm", NORMS)
def test_norms_of_what_lies_far_from_zero(norm: str, made: Callable[..., onnx.ModelProto]):
    source = made(norm, 3)
    x = 1000 + floats(1, 4, 5000)
    both = np.concatenate([x, -x], 1).astype(np.float64)
    scale, bias = (numpy_helper.to_array(t)[:, None] for t in source.graph.initializer if t.name != "w")
    groups = both.reshape(1, 8 if norm == NORMS[0] else 2, -1)
    centered = groups - groups.mean(-1, keepdims=True)
    normal = centered / np.sqrt((centered**2).mean(-1, keepdims=True) + 0.001)
    expected = normal.reshape(both.shape) * scale + bias
    np.testing.assert_allclose(onnx_torch.prepare(source).run([x])[0], expected, atol=1e-5)


def test_norms_of_other_layouts_and_types_and_of_nothing():
    check_equal(normalized_convolution(NORMS[1], 3), [floats(0, 4, 5)])
    for name, dtype in (("float", np.float32), ("double", np.float64)):
        source = model(
            f"({name}[2, 8, 5] x) => ({name} y) {{ y = InstanceNormalization(x, scale, bias) }}",
            scale=floats(8).astype(dtype),
            bias=floats(8).astype(dtype),
        )
        check_equal(source, [floats(2, 8, 5).astype(dtype)])


RMS_NORMS = {
    f"{square} {quotient}": f"p = {square} m = ReduceMean(p, last) e = Add(m, eps) s = Sqrt(e) {quotient}"
    for square in ("Pow(x, two)", "Mul(x, x)")
    for quotient in ("i = Reciprocal(s) n = Mul(x, i)", "i = Div(one, s) n = Mul(i, x)", "n = Div(x, s)")
}


@pytest.mark.parametrize("name", RMS_NORMS)
@pytest.mark.parametrize("weight", [(8,), None])
def test_rms_norm(name: str, weight: tuple[int] | None):
    numbers = {"two": np.float32(2), "eps": np.float32(1e-5), "last": np.int64([-1]), "one": np.float32(1)}
    source = model(
        f"(float[2, 3, 8] x) => (float y) {{ {RMS_NORMS[name]} y = {'Mul(w, n)' if weight else 'Identity(n)'} }}",
        **used_in(RMS_NORMS[name], numbers),
        **({"w": weight} if weight else {}),
    )
    assert graph_of(source, "normalizations") == "aten::rms_norm"
    assert graph_of(source, "rows") == "onnx_torch::rms_norm"
    check_equal(source, [5 + 3 * floats(2, 3, 8)])
    x = floats(2, 3, 8)
    x[0, 0, 1], x[0, 1, 2], x[0, 2] = np.nan, np.inf, 0
    check_equal(source, [x])


@pytest.mark.parametrize(
    "body",
    [
        "p = Pow(x, two) m = ReduceMean(p, first) e = Add(m, eps) s = Sqrt(e) y = Div(x, s)",
        "p = Pow(x, eps) m = ReduceMean(p, last) e = Add(m, eps) s = Sqrt(e) y = Div(x, s)",
        "p = Pow(x, two) m = ReduceMean(p, last) e = Add(m, eps) s = Sqrt(e) i = Div(two, s) y = Mul(x, i)",
        "p = Mul(x, x) m = ReduceMean(p, last) e = Add(m, eps) s = Sqrt(e) y = Div(z, s)",
    ],
)
def test_what_is_no_rms_norm(body: str):
    values = {"two": np.float32(2), "eps": np.float32(1e-5), "last": np.int64([-1]), "first": np.int64([0])}
    source = model(f"(float[2, 3, 8] x, float[2, 3, 8] z) => (float y) {{ {body} }}", **used_in(body, values))
    assert "rms_norm" not in graph_of(source, "normalizations")
    check_equal(source, [floats(2, 3, 8), floats(2, 3, 8)])


@pytest.mark.parametrize("w", [(3, 1), (1, 8), (1,), (2, 3, 8)])
def test_weights_of_other_shapes_stay_behind_a_norm(w: tuple[int, ...]):
    source = model(
        "(float[2, 3, 8] x) => (float y) { n = LayerNormalization(x, one) y = Mul(n, w) }", one=np.ones(8, "f"), w=w
    )
    assert graph_of(source, "normalizations") == "aten::layer_norm\naten::mul"
    check_equal(source, [floats(2, 3, 8)])
