"""The pass `pack`: convolutions and products with constant weights, and what follows them."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor

import numpy as np
import onnx
import pytest
import torch
from onnx import numpy_helper, parser

import onnx_torch
from models import allocations
from pass_models import (
    TAKES_GELU,
    assert_close,
    check_equal,
    check_gelu_of_product,
    check_overflowing,
    code,
    exact_runs,
    floats,
    graph_of,
    model,
    used_in,
)

CONVOLUTIONS = {
    "bias": ("(float[2, 6, 9, 9] x) => (float[N, C, H, W] y) { y = Conv(x, w, b) }", {"w": (8, 6, 3, 3), "b": (8,)}),
    "strides": (
        "(float[2, 6, 9, 9] x) => (float[N, C, H, W] y) { y = Conv<strides = [2, 1], pads = [1, 1, 1, 1]>(x, w) }",
        {"w": (8, 6, 3, 3)},
    ),
    "uneven padding": (
        "(float[2, 6, 9, 9] x) => (float[N, C, H, W] y) { y = Conv<pads = [0, 1, 2, 1]>(x, w) }",
        {"w": (8, 6, 3, 3)},
    ),
    "dilations and groups": (
        "(float[2, 6, 9, 9] x) => (float[N, C, H, W] y) { y = Conv<dilations = [2, 3], group = 3>(x, w) }",
        {"w": (9, 2, 3, 3)},
    ),
    "depthwise": (
        "(float[2, 16, 9, 9] x) => (float[N, C, H, W] y) { y = Conv<group = 16>(x, w) }",
        {"w": (16, 1, 3, 3)},
    ),
    "depthwise, many columns": (
        "(float[2, 16, 20, 20] x) => (float[N, C, H, W] y) "
        "{ c = Conv<group = 16, pads = [1, 1, 1, 1]>(x, w, b) y = Relu(c) }",
        {"w": (16, 1, 3, 3), "b": (16,)},
    ),
    "depthwise, strides": (
        "(float[2, 24, 20, 20] x) => (float[N, C, H, W] y) "
        "{ y = Conv<group = 24, pads = [2, 2, 2, 2], strides = [2, 2]>(x, w) }",
        {"w": (24, 1, 5, 5)},
    ),
    "one dimension": ("(float[2, 6, 40] x) => (float[N, C, L] y) { y = Conv(x, w) }", {"w": (8, 6, 5)}),
    "one dimension, columns 4 KiB apart": (
        "(float[2, 512, 81] x) => (float[N, C, L] y) { c = Conv<strides = [2], pads = [1, 1]>(x, w, b) y = Gelu(c) }",
        {"w": (20, 512, 3), "b": (20,)},
    ),
    "one dimension, columns 4 KiB apart, two taps": (
        "(float[1, 1024, 40] x) => (float[N, C, L] y) { y = Conv(x, w) }",
        {"w": (16, 1024, 2)},
    ),
    "three dimensions": (
        "(float[2, 3, 5, 6, 7] x) => (float[N, C, D, H, W] y) { y = Conv(x, w) }",
        {"w": (4, 3, 2, 2, 2)},
    ),
    "one column": (
        "(float[2, 6, 19, 1] x) => (float[N, C, H, W] y) "
        "{ y = Conv<strides = [2, 1], dilations = [3, 1], pads = [2, 0, 2, 0]>(x, w, b) }",
        {"w": (8, 6, 4, 1), "b": (8,)},
    ),
    "one column, groups": (
        "(float[1, 32, 50, 1] x) => (float[N, C, H, W] y) { y = Conv<group = 32>(x, w) }",
        {"w": (32, 1, 5, 1)},
    ),
    "one column, three dimensions": (
        "(float[2, 3, 5, 9, 1] x) => (float[N, C, D, H, W] y) { y = Conv<strides = [1, 2, 1]>(x, w) }",
        {"w": (4, 3, 2, 3, 1)},
    ),
    "sizes open": ("(float[N, 6, H, W] x) => (float[N, C, H2, W2] y) { y = Conv(x, w) }", {"w": (8, 6, 3, 3)}),
}


@pytest.mark.parametrize("name", CONVOLUTIONS)
def test_pack_convolutions(name: str):
    text, weights = CONVOLUTIONS[name]
    source = model(text, **weights)
    assert graph_of(source, "pack").splitlines().count("onnx_torch::packed") == 1
    assert "aten::convolution" not in graph_of(source, "pack")
    sizes = [dim.dim_value or 9 for dim in source.graph.input[0].type.tensor_type.shape.dim]
    check_equal(source, [floats(*sizes)])


@pytest.mark.parametrize(
    "activation",
    [
        "Relu(c)",
        "LeakyRelu<alpha = 0.3>(c)",
        "LeakyRelu<alpha = 0.0>(c)",
        "Sigmoid(c)",
        "Tanh(c)",
        "Gelu(c)",
        'Gelu<approximate = "tanh">(c)',
    ]
    + ["HardSwish(c)", "HardSigmoid<alpha = 0.16666667>(c)", "Clip(c, low, high)", "Clip(c, low)"],
)
@pytest.mark.parametrize("main", ["Conv(x, w)", "MatMul(x, m)"])
def test_pack_activations(main: str, activation: str):
    text = f"(float[2, 6, 8, 8] x) => (float[N, C, H, W] y) {{ c = {main} y = {activation} }}"
    source = model(text, w=(8, 6, 1, 1), m=(8, 5), low=np.float32(-0.2), high=np.float32(0.4))
    stays = activation.startswith("Gelu") and not TAKES_GELU
    assert graph_of(source, "pack") == "onnx_torch::packed" + "\naten::gelu" * stays
    x = 10 * floats(2, 6, 8, 8)
    # A bounded result was some fifty times as large when it was rounded.
    is_bounded = activation.startswith(("Clip", "Tanh", "Sigmoid", "HardSigmoid"))
    check_equal(source, [x], ulps=512 if is_bounded else 16)
    x[0, 1, 2:6, 3] = np.nan, np.inf, -np.inf, 1e37
    x[1, 1, 2:6, 3] = 0.0, -0.0, 1e-40, -1e37
    if (main, activation) == ("MatMul(x, m)", "Gelu(c)") and not stays:
        check_gelu_of_product(source, [x], "m")
    else:
        check_overflowing(source, [x])


def test_pack_takes_no_linear_for_an_activation():
    source = parser.parse_model(
        '<ir_version: 10, opset_import: ["": 23, "ai.onnx.ml": 5]> net (float[4, 6] x) => (float[4, 2] y) '
        "{ c = MatMul(x, w) "
        "y = ai.onnx.ml.LinearRegressor<coefficients = [1.0, 2.0, 3.0, 4.0, 5.0, 6.0], targets = 2>(c) }"
    )
    source.graph.initializer.append(numpy_helper.from_array(floats(6, 3), "w"))
    assert graph_of(source, "pack").splitlines()[0] == "onnx_torch::packed"
    check_equal(source, [floats(4, 6)])


@pytest.mark.parametrize(
    ("equation", "shape", "weight"),
    [("ibh,hnd->ibnd", (3, 2, 5), (5, 4, 6)), ("ibnd,hnd->ibh", (3, 2, 4, 6), (5, 4, 6))],
)
def test_the_weight_of_an_einsum_is_packed(equation, shape, weight):
    sizes = ", ".join(f"d{i}" if i < 2 else str(size) for i, size in enumerate(shape))
    source = model(f'(float[{sizes}] x) => (y) {{ y = Einsum<equation = "{equation}">(x, w) }}', w=weight)
    assert "onnx_torch::packed" in graph_of(source, "pack").splitlines()
    check_equal(source, [floats(*shape)])


def test_pack_takes_up_bias_activation_and_residual():
    source = model(
        "(float[2, 6, 8, 8] x, float[2, 8, 8, 8] r) => (float[2, 8, 8, 8] y) "
        "{ c = Conv(x, w) s = Add(r, c) y = Relu(s) }",
        w=(8, 6, 1, 1),
    )
    assert graph_of(source, "pack") == "onnx_torch::packed"
    check_equal(source, [floats(2, 6, 8, 8), floats(2, 8, 8, 8)])
    source = model(
        "(float[4, 6] x, float[4, 5] r) => (float[4, 5] y) "
        "{ c = MatMul(x, w) d = Add(c, b) g = Tanh(d) y = Mul(g, r) }",
        w=(6, 5),
        b=(5,),
    )
    assert graph_of(source, "pack") == "onnx_torch::packed"
    check_equal(source, [floats(4, 6), floats(4, 5)])


def residual_model(body: str, outputs: str = "float y", inputs: str = "") -> onnx.ModelProto:
    text = f"(float[N, 6, H, W] x{inputs}) => ({outputs}) {{ a = Conv(x, w) b = Relu(a) {body} }}"
    return model(text, w=(6, 6, 1, 1), v=(6, 6, 1, 1))


# Besides, the input is laid out channels-last, and the result as it was.
@pytest.mark.parametrize(
    ("body", "results"),
    [
        ("c = Conv(b, w) d = Conv(c, w) e = Add(d, b) y = Relu(e)", "b c"),
        (
            "c = Conv(b, w) d = Conv(c, w) e = Add(b, d) f = Relu(e) g = Conv(f, w) h = Conv(g, v) y = Add(f, h)",
            "b c g",
        ),
        ("c = Conv(x, v) d = Conv(b, v) e = Add(d, c) f = Relu(e) y = Mul(f, b)", "b c y x"),  # x a second time
    ],
)
def test_residual_sums_take_the_memory_of_what_is_added(body: str, results: str):
    source = residual_model(body)
    x, small = floats(2, 6, 9, 7), floats(1, 6, 3, 3)
    assert allocations(source, [x]) == len(results.split()) + 2
    check_equal(source, [x])
    rep = onnx_torch.prepare(source)
    results = [rep.run([x])[0], rep.run([small])[0]]
    assert np.array_equal(rep.run([x])[0], results[0])
    assert np.array_equal(rep.run([small])[0], results[1])
    x[1, 2, 3, 4] = np.nan
    x[0, 1, 2:4, 3] = np.inf, 1e38
    check_overflowing(source, [x])


@pytest.mark.parametrize(
    ("body", "outputs"),
    [
        ("c = Conv(b, w) y = Add(c, b)", "float y"),  # the product reads it itself
        ("c = Conv(b, w) d = Conv(c, w) e = Add(d, b) y = Sub(e, b)", "float y"),
        ("c = Conv(b, w) d = Conv(c, w) y = Add(d, b)", "float y, float b"),
        ("c = Conv(b, w) d = Conv(c, w) y = Add(d, x)", "float y"),
        ("c = Conv(b, w) d = Conv(c, w) e = Add(d, b) f = Conv(b, v) y = Mul(e, f)", "float y"),
        ("f = Flatten(b) c = Conv(b, w) d = Conv(c, w) e = Add(d, b) g = Flatten(e) y = Sub(g, f)", "float y"),
        (
            "y = Loop(n, t, b) <body = g (int64 i, bool go, float[N, 6, H, W] s) => (bool go_on, float[N, 6, H, W] u) "
            "{ go_on = Identity(go) c = Conv(s, w) d = Conv(c, w) u = Add(d, b) }>",
            "float y",
        ),
    ],
)
def test_residual_sums_leave_what_is_read_elsewhere(body: str, outputs: str):
    source = residual_model(body, outputs, ", int64 n, bool t")
    inputs = [floats(2, 6, 5, 5), np.array(3), np.array(True)]
    before = inputs[0].copy()
    check_equal(source, inputs)
    assert np.array_equal(inputs[0], before)


# The layer before tells of a large tensor whether a Relu may lose a NaN, unless something changed the tensor.
@pytest.mark.parametrize(
    "body",
    [
        "n = Neg(b) l = Log(n) c = Conv(l, v) y = Relu(c)",
        "n = Neg(b) l = Log(n) t = Tanh(l) c = Conv(b, w) d = Add(c, l) e = Relu(d) y = Mul(e, t)",
        "c = Conv(b, w) d = Add(c, b) e = Clip(d, low, high) f = Div(e, e) g = Conv(f, v) y = Relu(g)",
        "c = Conv(b, huge) d = Relu(c) e = Conv(d, huge) f = Relu(e) g = Conv(f, huge) h = Relu(g) i = Sub(h, h) "
        "j = Conv(i, w) y = Relu(j)",
    ],
)
def test_a_nan_that_arises_between_layers_is_kept(body: str):
    weights = {"huge": np.full((6, 6, 1, 1), 1e18, np.float32), "low": np.float32(-1), "high": np.float32(1)}
    source = residual_model(body)
    for name in used_in(body, weights):
        source.graph.initializer.append(numpy_helper.from_array(np.asarray(weights[name]), name))
    x = floats(1, 6, 120, 110)
    check_overflowing(source, [x])
    assert np.isnan(onnx_torch.prepare(source).run([x])[0]).any()


def test_a_nan_in_a_sum_that_takes_the_memory_of_a_bounded_operand_is_kept():
    source = model(
        "(float[N, 6, 2, 2] x) => (float[N, 6, 1, 1] y) { a = Conv(x, k) b = Relu(a) n = Neg(b) l = Log(n) "
        "c = Conv(l, w) d = Add(c, b) e = Relu(d) g = Conv <pads = [1, 1, 1, 1]> (e, v) y = Relu(g) }",
        k=(6, 6, 2, 2),
        w=(6, 6, 1, 1),
        v=(6, 6, 3, 3),
    )
    x = floats(20000, 6, 2, 2)
    wanted = np.isnan(onnx_torch.prepare(source, optimize=False).run([x])[0])
    assert wanted.any()
    rep = onnx_torch.prepare(source)
    for _ in range(3):
        assert np.array_equal(np.isnan(rep.run([x])[0]), wanted)


def test_a_nan_in_an_earlier_result_is_kept():
    rep = onnx_torch.prepare(residual_model("y = Relu(b)"))
    (y,) = rep.run([torch.from_numpy(floats(1, 6, 120, 110))])
    y[0, 0, 5, 5] = torch.nan
    assert rep.run([y])[0][0, :, 5, 5].isnan().all()


def test_layers_without_end_are_fused():
    body = (
        "c0 = Relu(b) " + " ".join(f"d{i} = Conv(c{i}, w) c{i + 1} = Relu(d{i})" for i in range(60)) + " y = Neg(c60)"
    )
    source = residual_model(body)
    w = np.eye(6, dtype=np.float32)[:, :, None, None]
    source.graph.initializer[0].CopyFrom(numpy_helper.from_array(w, "w"))
    x = floats(1, 6, 120, 110)
    np.testing.assert_array_equal(onnx_torch.prepare(source).run([x])[0], -np.maximum(x, 0))
    rep = onnx_torch.prepare(source)
    rep.run([x])
    with torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CPU]) as profile:
        rep.run([x])
    assert "aten::convolution" not in {event.key for event in profile.key_averages()}


def test_a_nan_goes_through_what_is_packed():
    source = model(
        "(float[4, 6] x, float[4, 5] r) => (float[4, 5] y) "
        "{ c = MatMul(x, w) d = Add(c, b) s = Add(d, r) y = Relu(s) }",
        w=(6, 5),
        b=(5,),
    )
    rep = onnx_torch.prepare(source)
    x, r = floats(4, 6), floats(4, 5)
    assert not np.isnan(rep.run([x, r])[0]).any()
    x[0, 2] = np.nan
    r[3, 1] = np.nan
    wanted = np.zeros((4, 5), bool)
    wanted[0], wanted[3, 1] = True, True
    assert np.array_equal(np.isnan(rep.run([x, r])[0]), wanted)
    source.graph.initializer[0].CopyFrom(numpy_helper.from_array(np.full((6, 5), np.nan, np.float32), "w"))
    assert np.isnan(onnx_torch.prepare(source).run([x, r])[0]).all()


def test_pack_leaves_operands_of_other_sizes_and_values_that_others_use():
    source = model(
        "(float[2, 6, 8, 8] x, float[1, 8, 1, 1] r) => (float[2, 8, 8, 8] y) { c = Conv(x, w) y = Add(r, c) }",
        w=(8, 6, 1, 1),
    )
    assert graph_of(source, "pack") == "onnx_torch::packed\naten::add"
    check_equal(source, [floats(2, 6, 8, 8), floats(1, 8, 1, 1)])
    source = model(
        "(float[2, 6, 8, 8] x) => (float[2, 8, 8, 8] c, float[2, 8, 8, 8] y) { c = Conv(x, w) y = Relu(c) }",
        w=(8, 6, 1, 1),
    )
    assert graph_of(source, "pack") == "onnx_torch::packed\naten::relu"
    check_equal(source, [floats(2, 6, 8, 8)])


@pytest.mark.parametrize("other", [(2, 8, 8, 8), (1, 8, 1, 1), (8, 8), (3, 2, 8, 8, 8)])
def test_packed_operands_whose_sizes_come_with_the_run(other: tuple[int, ...]):
    dims = ", ".join(f"D{i}" for i in range(len(other)))
    source = model(
        f"(float[2, 6, 8, 8] x, float[{dims}] r) => (float y) {{ c = Conv(x, w) s = Add(c, r) y = Relu(s) }}",
        w=(8, 6, 1, 1),
    )
    assert graph_of(source, "pack") == "onnx_torch::packed"
    check_equal(source, [floats(2, 6, 8, 8), floats(*other)])


def test_pack_leaves_other_types():
    for element, dtype in {"double": np.float64, "float16": np.float16}.items():
        source = model(
            f"({element}[2, 6, 8, 8] x) => ({element}[N, C, H, W] y) {{ y = Conv(x, w) }}",
            w=floats(8, 6, 1, 1).astype(dtype),
        )
        assert "onnx_torch::packed" not in graph_of(source, "pack", disabled_passes=["halves"])
        check_equal(source, [floats(2, 6, 8, 8).astype(dtype)], disabled_passes=["halves"])


def test_packed_takes_empty_batches_and_other_sizes_in_turn():
    source = model("(float[N, 6, H, W] x) => (float y) { c = Conv(x, w, b) y = Relu(c) }", w=(8, 6, 3, 3), b=(8,))
    rep = onnx_torch.prepare(source)
    feeds = [[floats(*sizes)] for sizes in [(1, 6, 5, 5), (0, 6, 5, 5), (2, 6, 9, 3), (1, 6, 5, 5)]]
    for feed, exact in zip(feeds, exact_runs(source, feeds), strict=True):
        assert_close(rep.run(feed)[0], exact[0])
    source = model("(float[N, 6] x) => (float y) { y = MatMul(x, w) }", w=(6, 4))
    assert onnx_torch.prepare(source).run([floats(0, 6)])[0].shape == (0, 4)


def test_an_error_in_a_packed_operator_is_its_main_nodes():
    source = model("(float[N, C, H, W] x) => (float y) { c = Conv(x, w) y = Relu(c) }", w=(8, 6, 3, 3))
    rep = onnx_torch.prepare(source)
    for sizes in [(1, 5, 9, 9), (1, 6, 2, 2)]:
        with pytest.raises(onnx_torch.RunError, match=r"Conv") as caught:
            rep.run([floats(*sizes)])
        assert caught.value.op_type == "Conv"
    with pytest.raises(onnx_torch.RunError, match="MatMul"):
        onnx_torch.prepare(model("(float[N, C] x) => (float y) { y = MatMul(x, w) }", w=(6, 4))).run([floats(6, 4)])


def test_packed_runs_on_several_threads_at_once():
    source = model("(float[N, 6, H, W] x) => (float y) { c = Conv(x, w) y = Relu(c) }", w=(16, 6, 3, 3))
    rep, feeds = onnx_torch.prepare(source), [[floats(1 + i % 3, 6, 8 + i % 5, 8)] for i in range(40)]
    with ThreadPoolExecutor(4) as pool:
        for ours, exact in zip(pool.map(rep.run, feeds), exact_runs(source, feeds), strict=True):
            assert_close(ours[0], exact[0])


def test_a_small_product_leaves_the_number_of_threads():
    source = model("(float[N, 8] x) => (float y) { y = Gemm(x, w, b) }", w=(8, 3), b=(3,))
    threads = torch.get_num_threads()
    try:
        torch.set_num_threads(2)
        check_equal(source, [floats(5, 8)])
        check_equal(source, [floats(50_000, 8)])
        assert torch.get_num_threads() == 2
    finally:
        torch.set_num_threads(threads)


@pytest.mark.parametrize("rows", [67, 131, 134, 197, 200])
@pytest.mark.parametrize(
    "body", ["y = Add(r, c)", "d = Add(c, r) e = Relu(d) y = Mul(e, r)", "y = Relu(c)", "d = Mul(c, r) y = Add(d, r)"]
)
def test_rows_that_fill_no_whole_blocks(body: str, rows: int):
    source = model(
        f"(float[N, 64] x, float[N, 80] r) => (float[N, 80] y) {{ p = MatMul(x, w) c = Add(p, b) {body} }}",
        w=(64, 80),
        b=(80,),
    )
    plain = onnx_torch.prepare(source, optimize=False)
    inputs = [floats(rows, 64), floats(rows, 80)]
    ((exact,),) = exact_runs(source, [inputs])
    for threads in (1, 2, 3):
        rep = onnx_torch.prepare(source, threads=threads)
        for _ in range(2):
            assert_close(rep.run(inputs)[0], exact)
    bad = [floats(rows, 64), floats(rows, 80)]
    bad[0][-1, 3] = np.nan
    assert np.array_equal(np.isnan(rep.run(bad)[0]), np.isnan(plain.run(bad)[0]))


def test_packed_operators_run_on_many_threads_at_a_time():
    source = model(
        "(float[n, 8] x) => (float[n, 4] y) { a = Gemm(x, v, b)  c = Relu(a)  d = MatMul(c, w)  y = Add(d, c) }",
        v=(8, 4),
        b=(4,),
        w=(4, 4),
    )
    rep = onnx_torch.prepare(source)
    assert "onnx_torch::packed" in code(rep.graph())
    feeds = [[floats(1 + i % 5, 8)] for i in range(400)]
    with ThreadPoolExecutor(8) as threads:
        results = list(threads.map(rep.run, feeds))
    for (y,), (exact,) in zip(results, exact_runs(source, feeds), strict=True):
        assert_close(y, exact, ulps=32)  # of two that are rounded


@pytest.mark.parametrize(
    ("rows", "sizes"),
    [
        (1, (64, 128)),
        (4, (7, 10)),
        (5, (64, 33)),
        (3, (1, 17)),
        (2, (130, 1)),
        (100, (20, 3)),
        (128, (1, 16)),
        (129, (8, 8)),
    ],
)
@pytest.mark.parametrize("after", ["Relu(g)", "Identity(g)", "Sigmoid(g)"])
def test_small_products(rows: int, sizes: tuple[int, int], after: str):
    """A small product is computed without a primitive; a NaN stays one."""
    source = model(f"(float[A, {sizes[0]}] x) => (float y) {{ g = Gemm(x, w, b) y = {after} }}", w=sizes, b=(sizes[1],))
    x = floats(rows, sizes[0])
    check_equal(source, [x])
    x[-1, 0] = np.nan
    check_equal(source, [x])
    x[-1, 0] = np.inf
    check_equal(source, [x])
    turned = model(f"(float[{sizes[0]}, A] x) => (float y) {{ t = Transpose(x) y = MatMul(t, w) }}", w=sizes)
    check_equal(turned, [floats(sizes[0], rows)])


@pytest.mark.parametrize("sizes", [(770, 513), (512, 300), (1301, 101), (4100, 40), (9000, 17)])
@pytest.mark.parametrize("after", ["Relu(g)", "Gelu(g)", "Add(g, r)", "Add(r, g)", "Mul(g, r)", "Identity(g)"])
@pytest.mark.parametrize("shape", ["A", "1, 1, A"])
def test_products_of_one_row(sizes: tuple[int, int], after: str, shape: str):
    """A product of one row is computed without a primitive, with the weight as oneDNN lays it out; a NaN stays one."""
    source = model(
        f"(float[{shape}] x, float[B] r) => (float y) {{ m = MatMul(x, w) g = Add(m, b) y = {after} }}",
        w=sizes,
        b=(sizes[1],),
    )
    assert graph_of(source, "pack").splitlines()[0] == "onnx_torch::packed"
    x = floats(*((sizes[0],) if shape == "A" else (1, 1, sizes[0]))) / 32
    r = floats(sizes[1])
    ulps = 16 if sizes[0] < 5000 else 64  # four at a time, in some 2,000 sums, on a CPU with SSE alone
    check_equal(source, [x, r], ulps=ulps)
    x.flat[-1] = np.nan
    check_equal(source, [x, r], ulps=ulps)
    x.flat[-1] = np.inf
    if after == "Gelu(g)":
        check_gelu_of_product(source, [x, r], "w", "b")
    else:
        check_equal(source, [x, r], ulps=ulps)


@pytest.mark.parametrize("after", ["Relu(c)", "Add(c, r)"])
def test_images_of_one_column_and_of_more(after: str):
    source = model(
        f"(float[N, 16, H, W] x, float[24, 1, 1] r) => (float y) {{ c = Conv(x, w, b) y = {after} }}",
        w=(24, 16, 3, 1),
        b=(24,),
    )
    prepared, r = onnx_torch.prepare(source), floats(24, 1, 1)
    shapes = (1, 9, 1), (2, 9, 1), (1, 9, 4), (1, 3, 1), (1, 3, 2), (1, 9, 1)
    feeds = [[floats(shape[0], 16, *shape[1:]), r] for shape in shapes]
    for feed, exact in zip(feeds, exact_runs(source, feeds), strict=True):
        assert_close(prepared.run(feed)[0], exact[0])


@pytest.mark.parametrize("out", [24, 768])
@pytest.mark.parametrize("after", ["Relu(c)", "HardSigmoid<alpha = 0.16666667>(c)", "Add(c, r)", "Identity(c)"])
def test_images_of_one_pixel_and_of_more(out: int, after: str):
    """Images of one pixel are rows that take no primitive; others may come in the same model."""
    source = model(
        f"(float[N, 512, H, W] x, float[{out}, 1, 1] r) => (float y) {{ c = Conv(x, w, b) y = {after} }}",
        w=(out, 512, 1, 1),
        b=(out,),
    )
    prepared, r = onnx_torch.prepare(source), floats(out, 1, 1)
    shapes = (1, 1, 1), (4, 1, 1), (1, 3, 2), (5, 1, 1), (0, 1, 1), (1, 1, 1), (1, 1, 7)
    feeds = [[floats(shape[0], 512, *shape[1:]) / 8, r] for shape in shapes]  # of which not all is clipped
    ulps = 32 if "Hard" in after else 16  # what is clipped was larger
    for feed, exact in zip(feeds, exact_runs(source, feeds), strict=True):
        assert_close(prepared.run(feed)[0], exact[0], ulps)


def test_one_row_and_many_share_the_weight():
    source = model("(float[A, 512] x) => (float y) { y = MatMul(x, w) }", w=(512, 768))
    prepared, feeds = onnx_torch.prepare(source), [[floats(rows, 512)] for rows in (1, 64, 0, 1, 2)]
    for feed, exact in zip(feeds, exact_runs(source, feeds), strict=True):
        assert_close(prepared.run(feed)[0], exact[0])


# Nothing is known of the sizes in a Scan, and the fourth run goes by a plan.
@pytest.mark.parametrize("rows", ["2", "1, 2", "3, 2"])
def test_an_operand_may_enlarge_a_packed_product(rows: str):
    sizes = [5, *map(int, rows.split(", "))]
    source = model(
        f"(float[{', '.join(map(str, sizes))}] x) => (float y) {{ y = Scan <num_scan_inputs = 1, "
        "body = step (float[] row) => (float[] z) <float[2, 1] w = {0.5, -2}> {"
        "p = MatMul(row, w) z = Add(row, p) }> (x) }"
    )
    rep = onnx_torch.prepare(source)
    for _ in range(4):
        x = floats(*sizes)
        expected = x + (x.astype(np.float64) @ [0.5, -2])[..., None]
        np.testing.assert_allclose(rep.run([x])[0], expected, rtol=1e-6, atol=1e-6)
