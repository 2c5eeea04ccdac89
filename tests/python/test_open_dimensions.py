"""The facts of a model whose inputs have open dimensions, and what must not be taken for known."""

import re

import numpy as np
import onnx
import pytest
from onnx import parser
from onnx.reference import ReferenceEvaluator

import onnx_torch
from onnx_torch import backend


def model_of(signature, body, opset=17):
    return parser.parse_model(f'<ir_version: 10, opset_import: ["" : {opset}]> g {signature} {{ {body} }}')


def types_of(model):
    """Lists the types of a graph's tensors, in their order."""
    text = backend.prepare(model, optimize=False)._prepared.graph_text()
    return re.findall(r" : (\w+\([^)]*\)) = ", text)


def assert_as_the_reference(model, *inputs):
    prepared = backend.prepare(model)
    names = [value.name for value in model.graph.input]
    for arrays in inputs:
        expected = ReferenceEvaluator(model).run(None, dict(zip(names, arrays, strict=True)))
        for found, wanted in zip(prepared.run(list(arrays)), expected, strict=True):
            assert found.shape == wanted.shape
            np.testing.assert_allclose(found, wanted, rtol=1e-5, atol=1e-5)


def numbers(*shape):
    return (np.arange(np.prod(shape, dtype=int)) % 13 - 6).astype(np.float32).reshape(shape)


@pytest.mark.parametrize(
    ("signature", "body", "last"),
    [
        ("(float[N, 8] x) => (float[a, b] y)", "y = Relu (x)", "Float(*, 8)"),
        ("(float[N, 8] x, float[8, 5] w) => (float[a, b] y)", "y = MatMul (x, w)", "Float(*, 5)"),
        ("(float[N, 3, 8, 8] x, float[4, 3, 3, 3] w) => (float[a, b, c, d] y)", "y = Conv (x, w)", "Float(*, 4, 6, 6)"),
        ("(float[N, 6] x, float[N, 6] z) => (float[a, b] y)", "y = Concat <axis = 1> (x, z)", "Float(*, 12)"),
        ("(float[N, 6] x) => (float[a, b, c] y) <int64[3] s = {0, -1, 2}>", "y = Reshape (x, s)", "Float(*, 3, 2)"),
        ("(float[N, 6, 4] x) => (float[a, b] y)", "y = Flatten (x)", "Float(*, 24)"),
        ("(float[N, 4] x) => (float[a, b] y)", "s = Shape (x) z = Expand (x, s) y = Tanh (z)", "Float(*, 4)"),
        ("(float[N, M] x) => (float[a, b] y)", "y = Transpose (x)", "Float(*, *)"),
        (
            "(float[N, 2, H, W] x, float[3, 2, 2, 2] w) => (float[a, b, c, d] y)",
            'y = Conv <auto_pad = "SAME_UPPER"> (x, w)',
            "Float(*, 3, *, *)",
        ),
        (
            "(float[N, 2, 9] x) => (float[a, b, c] y) <int64[6] p = {0, 0, 3, 0, 0, 2}>",
            'y = Pad <mode = "reflect"> (x, p)',
            "Float(*, 2, 14)",
        ),
        (
            "(float[N, 6] x) => (float[a, b, c] y) <int64[1] zero = {0}, int64[1] one = {1}, int32[2] rest = {-1, 2}>",
            "s = Shape (x) i = Cast <to = 6> (s) n = Slice (i, zero, one, zero) t = Concat <axis = 0> (n, rest) "
            "l = Cast <to = 7> (t) y = Reshape (x, l)",
            "Float(*, 3, 2)",
        ),
        ("(float[N, 4] x) => (float[a] y)", "y = ReduceMean <axes = [0], keepdims = 0> (x)", "Float(4)"),
    ],
)
def test_sizes_are_known_where_open_ones_do_not_matter(signature, body, last):
    assert types_of(model_of(signature, body))[-1] == last


@pytest.mark.parametrize(
    ("signature", "body"),
    [
        # The larger or the smaller of a size and a number is the number, on one side of it.
        (
            "(float[N] x) => (float[a] y) <int64[1] few = {700}, float zero = {0}>",
            "s = Shape (x) l = Max (s, few) y = Expand (zero, l)",
        ),
        (
            "(float[N, 4] x) => (float[a] y) <int64[1] few = {700}>",
            "s = Shape <end = 1> (x) l = Min (s, few) y = CastLike (l, x)",
        ),
        # One dimension goes where it is 1, and one is broadcast where it is.
        ("(float[N, 4] x) => (float y)", "y = Squeeze (x)"),
        ("(float[N, 4] x, float[M, 4] z) => (float[a, b] y)", "y = Add (x, z)"),
        # The slice takes at most that many.
        ("(float[N] x) => (float[a] y) <int64[1] from = {0}, int64[1] to = {600}>", "y = Slice (x, from, to)"),
        # Many sizes have these numbers in common.
        (
            "(float[N] x) => (float[a] y) <int64[1] n = {2000}>",
            "s = Shape (x) q = Div (s, n) y = CastLike (q, x)",
        ),
        (
            "(float[N] x) => (float[a] y) <int64[1] n = {2000}>",
            "s = Shape (x) q = Less (s, n) y = CastLike (q, x)",
        ),
    ],
)
def test_what_only_some_sizes_have_is_not_known(signature, body):
    model = model_of(signature, body)
    shape = [dim.dim_value for dim in model.graph.input[0].type.tensor_type.shape.dim]
    sizes = [1, 2, 5, 650, 5000]
    inputs = []
    for size in sizes:
        arrays = [numbers(*(dim or size for dim in shape))]
        if len(model.graph.input) == 2:
            arrays.append(numbers(1, *arrays[0].shape[1:]))
        inputs.append(arrays)
    assert_as_the_reference(model, *inputs)


def test_of_what_follows_from_a_number_that_came_out_alike_the_rank_is_known():
    """The number is another one for 7 elements, of which no trial is."""
    model = model_of(
        "(float[N] x, float[1, 1] z) => (float[a, b] y) <int64[1] seven = {7}, int64[1] five = {5}>",
        "s = Shape (x) c = Equal (s, seven) n = Where (c, s, five) l = Concat <axis = 0> (n, five) "
        "e = Expand (z, l) y = Relu (e)",
    )
    assert types_of(model)[-1] == "Float(*, *)"
    assert_as_the_reference(model, *[(numbers(size), numbers(1, 1) + 9) for size in (3, 7, 3, 7, 1)])


#: An image's convolution, and one of half as many rows and columns that Resize makes as large again: none of them
#: takes an odd number of rows.
SCALES = """c = Conv <strides = [2, 2], pads = [1, 1, 1, 1]> (x, w)
            d = Conv <strides = [2, 2], pads = [1, 1, 1, 1]> (c, w) u = Resize <mode = "nearest"> (d, , twice) """
WEIGHTS = "<float[4] twice = {1, 1, 2, 2}>"


@pytest.mark.parametrize("join", ["Concat <axis = 1> (c, u)", "Add (c, u)", "Mul (u, c)"])
def test_where_scales_join_the_rank_is_known(join):
    """Only sizes that can be halved often enough tell anything of such a network."""
    model = model_of(
        f"(float[N, 2, H, W] x, float[2, 2, 3, 3] w) => (float[a, b, c, d] y) {WEIGHTS}",
        f"{SCALES} j = {join} y = Relu (j)",
    )
    assert types_of(model)[-1] == "Float(*, *, *, *)"
    sizes = [(1, 64, 64), (3, 32, 8), (1, 4, 4), (2, 128, 320), (1, 64, 64)]
    assert_as_the_reference(model, *[(numbers(n, 2, h, w), numbers(2, 2, 3, 3)) for n, h, w in sizes])


def test_behind_a_join_of_scales_a_size_of_one_is_looked_at():
    """Two rows and columns, which a sum of one with two gives, become one, and an axis that is one goes."""
    model = model_of(
        f"(float[2, 2, H, W] x, float[2, 2, 3, 3] w) => (float[a, b, c, d] y) {WEIGHTS}",
        f"""{SCALES} j = Add (c, u) p = MaxPool <kernel_shape = [2, 2], strides = [2, 2]> (j) s = Squeeze (p)
            y = Transpose (s)""",
    )
    del model.graph.output[0].type.tensor_type.shape.dim[:]
    model.graph.output[0].type.tensor_type.ClearField("shape")
    sizes = [(64, 64), (1, 1), (64, 64), (1, 64), (32, 1), (1, 1)]
    assert_as_the_reference(model, *[(numbers(2, 2, *size), numbers(2, 2, 3, 3)) for size in sizes])


def test_shapes_of_32_bits_are_computed_where_those_of_64_are():
    """A shape that does not fit wraps, as it does in a tensor."""
    model = model_of(
        "(float[N, 3, H] x) => (float[a, b] y, int32[2] w, int32 p, int32 m) <int64[1] zero = {0}, int64[1] one = {1}, "
        "int32[1] three = {3}, int32[1] large = {2147483647}>",
        "s = Shape (x) i = Cast <to = 6> (s) n = Slice (i, zero, one, zero) k = Concat <axis = 0> (n, three) "
        "t = Mul (k, three) w = Add (t, large) p = ReduceProd <keepdims = 0> (w) m = ReduceMax <keepdims = 0> (w) "
        "l = Concat <axis = 0> (three, n) r = Cast <to = 7> (l) f = CastLike (p, x) y = Expand (f, r)",
    )
    text = backend.prepare(model, optimize=False)._prepared.graph_text()
    assert "aten::cat" not in text and "prim::tolist" not in text
    assert_as_the_reference(model, *[(numbers(size, 3, 2),) for size in (5, 1, 700)])


@pytest.mark.parametrize("mode", ["nearest", "linear"])
@pytest.mark.parametrize("scale", [2.0, 0.5, 3.0, 1.3])
def test_resize_of_open_sizes(mode, scale):
    """A run need not ask how a resize by a whole scale is done."""
    rounding = "asymmetric" if mode == "nearest" else "half_pixel"
    model = model_of(
        f"(float[N, 2, H, W] x) => (float[a, b, c, d] y) <float[4] s = {{1, 1, {scale}, {scale}}}>",
        f'y = Resize <mode = "{mode}", coordinate_transformation_mode = "{rounding}", nearest_mode = "floor"> (x, , s)',
    )
    text = backend.prepare(model, optimize=False)._prepared.graph_text()
    assert ("aten::index_select" in text) == (scale != 2 and (mode == "nearest" or scale != 3))
    sizes = [(1, 4, 5), (2, 4, 5), (1, 1, 1), (1, 7, 3)]
    assert_as_the_reference(model, *[(numbers(n, 2, height, width),) for n, height, width in sizes])


@pytest.mark.parametrize("mode", ["SAME_UPPER", "SAME_LOWER"])
def test_padding_follows_each_size(mode):
    model = model_of(
        "(float[1, 2, H, W] x, float[2, 2, 3, 3] w) => (float[a, b, c, d] y)",
        f'y = Conv <auto_pad = "{mode}", strides = [2, 2]> (x, w)',
    )
    assert_as_the_reference(
        model,
        *[(numbers(1, 2, height, width), numbers(2, 2, 3, 3)) for height, width in [(7, 7), (8, 7), (8, 8), (3, 4)]],
    )


def test_a_branch_on_a_size_stays():
    model = parser.parse_model("""<ir_version: 10, opset_import: ["" : 23]>
        g (float[N, 4] x) => (float[a, b] y) <int64 one = {1}, int64[1] zero = {0}> {
            s = Shape <end = 1> (x)
            alone = Equal (s, one)
            y = If (alone) <then_branch = t () => (float[a, b] p) { p = Neg (x) },
                            else_branch = e () => (float[a, b] q) { q = Identity (x) }>
        }""")
    assert_as_the_reference(model, *[(numbers(size, 4),) for size in (1, 2, 1)])


def test_a_model_may_have_a_largest_size():
    """Positions come from a table, which ends before the largest size that is tried."""
    model = model_of(
        "(float[N, 4] x) => (float[a, b] y) <float[512, 4] table = {0}, int64[1] from = {0}>",
        "n = Shape <end = 1> (x) p = Slice (table, from, n) y = Add (x, p)",
    )
    table = onnx.numpy_helper.from_array(numbers(512, 4), "table")
    model.graph.initializer[0].CopyFrom(table)
    assert types_of(model)[-1] == "Float(*, 4)"
    assert_as_the_reference(model, *[(numbers(size, 4),) for size in (1, 3, 512)])


# Each body gives one size for all that are tried at first, and another one for the last of its inputs.
FOOLS_SMALL_SIZES = {
    "slice": ("y = Slice (x, from, to)", [1, 700, 5000, 5001, 6000]),
    "slice of the run's end": ("y = Slice (x, far, to)", [1, 6000, 149_999, 150_001]),
    "steps": ("y = Slice (x, zero, to, zero, step)", [1, 4999, 5001]),
    "first": ("y = Slice (x, zero, one)", [5, 0]),
    "steps from the end": ("y = Slice (x, third_last, third, zero, two)", range(1, 9)),
    "slice of what is left": ("r = Slice (x, one, to) y = Slice (r, third_last, third)", range(1, 10)),
    "backward": ("y = Slice (x, third, third_last, zero, back)", range(1, 9)),
    "an end that moves down": (
        "n = Shape (x) m = Sub (six, n) z = Slice (x, zero, m) y = Slice (z, zero, one)",
        range(1, 9),
    ),
    "a start that moves up": (
        "n = Shape (x) m = Sub (n, third) r = Slice (x, one, to) y = Slice (r, m, third)",
        range(1, 9),
    ),
    "an end that is zero between": (
        "n = Shape (x) a = Sub (n, two) b = Sub (n, third) m = Mul (a, b) z = Slice (x, zero, m)"
        " y = Slice (z, zero, one)",
        range(1, 9),
    ),
    "parts of what is left": (
        "z = Slice (x, third_last, third, zero, two) p, y = Split <axis = 0, num_outputs = 2> (z)",
        range(1, 9),
    ),
    "pieces": ("q = SplitToSequence (x, piece) y = ConcatFromSequence <axis = 0, new_axis = 1> (q)", [5000, 10_000]),
}


@pytest.mark.parametrize("name", FOOLS_SMALL_SIZES)
def test_a_size_that_many_sizes_give_is_not_taken_for_known(name):
    body, sizes = FOOLS_SMALL_SIZES[name]
    numbers_of = {"from": 5000, "far": 150_000, "to": 9_000_000, "step": 5000, "zero": 0, "one": 1, "two": 2}
    numbers_of |= {"third": 3, "six": 6, "third_last": -3, "back": -1}
    constants = [f"int64[1] {name} = {{{number}}}" for name, number in numbers_of.items()]
    model = model_of(
        f"(float[N] x) => (int64[a] s, float t) <{', '.join(constants)}, int64 piece = {{5000}}>",
        f"{body} s = Shape (y) t = ReduceSum <keepdims = 0> (y)",
        opset=18,
    )
    assert_as_the_reference(model, *[(numbers(size),) for size in sizes for _ in range(3)])  # the third has a plan


def test_a_model_with_a_largest_size_may_change_below_it():
    """The sizes above 101 fail among those that are tried; what lies between is looked at when it is run."""
    model = model_of(
        "(float[N, 4] x) => (float[a, b] y, int64[2] s)"
        " <float[512, 4] table = {0}, int64[1] zero = {0}, int64[1] from = {200}, int64[1] to = {900}>",
        "n = Shape <end = 1> (x) p = Slice (table, zero, n) y = Add (x, p) z = Slice (y, from, to) s = Shape (z)",
    )
    model.graph.initializer[0].CopyFrom(onnx.numpy_helper.from_array(numbers(512, 4), "table"))
    assert_as_the_reference(model, *[(numbers(size, 4),) for size in (3, 300, 199, 201, 512, 0, 300)])


def test_a_graph_serves_all_sizes_for_which_it_is_right():
    model = model_of("(float[N, 4] x) => (float[a] y)", "y = ReduceMean <axes = [0], keepdims = 0> (x)")
    assert_as_the_reference(model, *[(numbers(size, 4),) for size in (150_000, 400_000, 7)])
    assert plans_of_the_first_graph(model, numbers(400_000, 4))


def test_another_graph_serves_sizes_for_which_it_is_not():
    model = model_of(
        "(float[N] x) => (float[a] y) <int64[1] to = {9000000}, int64[1] from = {150000}>", "y = Slice (x, from, to)"
    )
    assert plans_of_the_first_graph(model, numbers(100))
    assert not plans_of_the_first_graph(model, numbers(150_001))


def plans_of_the_first_graph(model, x):
    """Gives the plans that runs of an input have left in the graph that was prepared first."""
    prepared = backend.prepare(model)
    for _ in range(20):
        prepared.run([x])
    return prepared.plans()


# --- Numbers that are sizes ---


def test_arithmetic_that_gives_a_size_again_leaves_nothing():
    """The sizes are those of an Expand, as exporters write them: -1 stands for what the input has."""
    model = model_of(
        "(float[N, M] x) => (float[a, b, c] y) <int64[2] ones = {1, 1}, int64[2] any = {-1, -1}>",
        """s = Shape (x) is_any = Equal (s, any) t = Where (is_any, ones, s) one = Constant <value_ints = [3]> ()
           u = Concat <axis = 0> (one, t) y = Expand (x, u)""",
    )
    graph = backend.prepare(model, optimize=False).graph()
    assert "prim::If" not in graph and graph.count("aten::size") <= 2
    assert_as_the_reference(model, *[(numbers(*sizes),) for sizes in [(2, 3), (1, 1), (7, 1), (0, 3)]])


def test_a_size_of_zero_stands_for_the_inputs_in_a_reshape():
    """No branch asks for such a size but in a run with an empty tensor, where it differs."""
    model = model_of(
        "(float[N, M] x) => (float[a, b] y)", "n = Shape <end = 1> (x) s = Concat <axis = 0> (n, n) y = Reshape (x, s)"
    )
    assert "prim::If" not in backend.prepare(model, optimize=False).graph()
    assert_as_the_reference(model, *[(numbers(*sizes),) for sizes in [(3, 3), (0, 3), (5, 5), (0, 2), (1, 1)]])


def test_a_number_that_is_a_size_up_to_a_limit_is_another_number():
    model = model_of(
        "(float[N] x) => (int64[1] s, float[a] y) <float[512] table = {0}, int64[1] zero = {0}>",
        "n = Shape (x) p = Slice (table, zero, n) s = Shape (p) y = Expand (p, s)",
    )
    model.graph.initializer[0].CopyFrom(onnx.numpy_helper.from_array(numbers(512), "table"))
    assert_as_the_reference(model, *[(numbers(size),) for size in (3, 511, 512, 513, 1010, 0, 4)])


def test_dimensions_of_one_name_may_differ_in_a_run():
    """No engine asks that they agree, and a size of one is then not taken for the other's."""
    model = model_of(
        "(float[N, 2] x, float[N, 2] z) => (int64[1] rows, float[a] y, float[b] w)",
        """rows = Shape <end = 1> (z) s = Shape (x) n = ReduceProd <keepdims = 1> (s) y = Reshape (x, n)
           t = Shape (z) m = ReduceProd <keepdims = 1> (t) w = Reshape (z, m)""",
    )
    sizes = [(3, 3), (3, 5), (5, 3), (3, 3), (0, 4), (200_000, 2)]
    assert_as_the_reference(model, *[(numbers(one, 2), numbers(other, 2)) for one, other in sizes])


def test_question_marks_are_no_name():
    """PaddlePaddle writes a question mark for each size that it does not know."""

    def graph(*names):
        model = model_of(
            "(float[N, M] x) => (float[1] y)",
            "s = Shape <end = 1> (x) t = Shape <start = 1> (x) e = Equal (s, t) y = CastLike (e, x)",
        )
        for dim, name in zip(model.graph.input[0].type.tensor_type.shape.dim, names, strict=True):
            dim.dim_param = name
        assert_as_the_reference(model, (numbers(3, 3),), (numbers(3, 5),))
        return backend.prepare(model, optimize=False)._prepared.graph_text()

    assert graph("?", "?") == graph("N", "M") != graph("N", "N")


def test_products_of_any_number_of_rows():
    """The products are taken in parts, whose primitives serve all sizes; steps behind them are those of each part."""
    weight, bias, other = numbers(24, 20), numbers(20), numbers(700, 20)
    model = model_of(
        "(float[N, 24] x, float[N, 20] z) => (float[N, 20] y) <float[24, 20] w = {0}, float[20] b = {0}>",
        "p = MatMul (x, w) q = Add (p, b) r = Relu (q) y = Add (r, z)",
    )
    for initializer, value in zip(model.graph.initializer, (weight, bias), strict=True):
        initializer.CopyFrom(onnx.numpy_helper.from_array(value, initializer.name))
    rep = backend.prepare(model)
    for rows in [*range(1, 40), 255, 256, 257, 300, 529, 700]:
        x = numbers(rows, 24)
        wanted = np.maximum(x.astype(np.float64) @ weight + bias, 0) + other[:rows]
        for _ in range(3):
            np.testing.assert_allclose(rep.run([x, other[:rows]])[0], wanted, rtol=1e-5, atol=1e-5 * abs(wanted).max())


@pytest.mark.parametrize(
    "body",
    [
        "y = Max (s, t)",
        "y = Min (s, t)",
        "c = Equal (s, ones) y = Where (c, t, s)",
        "c = Equal (s, seven) y = Where (c, ones, s)",
        "c = Equal (s, seven) u = Where (c, minus, s) d = Equal (u, minus) y = Where (d, ones, t)",
        "c = Less (s, t) y = Where (c, s, t)",
        "u = Sub (s, t) v = Add (u, t) y = Mod (v, many)",
    ],
)
def test_a_number_that_only_may_be_a_size_is_computed(body):
    """The number is another one where another dimension is the larger one, or a size is one that decides."""
    constants = (
        "int64[2] ones = {1, 1}, int64[2] minus = {-1, -1}, int64[2] seven = {7, 7}, int64[2] many = {1000000, 1000000}"
    )
    model = model_of(
        f"(float[N, M] x, float[K, L] z) => (int64[2] y) <{constants}>", f"s = Shape (x) t = Shape (z) {body}"
    )
    sizes = [((2, 3), (5, 1)), ((5, 1), (2, 3)), ((1, 7), (9, 2)), ((7, 7), (7, 1)), ((1, 1), (1, 4)), ((2, 1), (1, 1))]
    assert_as_the_reference(model, *[(numbers(*one), numbers(*other)) for one, other in sizes])


@pytest.mark.parametrize("axes", [[0, -1], [-1, 0], [2, -3], [0, 2], [-3, -1]])
def test_squeeze_of_axes_that_the_run_gives(axes):
    model = model_of("(float[N, 24, M] x, int64[2] axes) => (float[a] y)", "y = Squeeze (x, axes)")
    assert_as_the_reference(model, *[(numbers(1, 24, 1), np.array(axes))] * 3)  # the last by a plan


@pytest.mark.parametrize(
    ("axes", "message"),
    [
        ([0], "the size along axis 0 is 2, not 1"),
        ([-2], "the size along axis -2 is 3, not 1"),
        ([1, -1], "the size along axis 1 is 3, not 1"),
        ([2, 2], "an axis is named twice"),
        ([2, -1], "axis 2 is named twice"),
        ([3], "axis 3 is out of range|Dimension out of range"),
    ],
)
@pytest.mark.parametrize("sizes", ["2, 3, 1", "N, M, K"])
def test_squeeze_takes_no_other_dimension(axes, message, sizes):
    body = f"axes = Constant <value_ints = [{', '.join(map(str, axes))}]> () y = Squeeze (x, axes)"
    with pytest.raises(onnx_torch.Error, match=message):
        backend.prepare(model_of(f"(float[{sizes}] x) => (float y)", body)).run([numbers(2, 3, 1)])


def test_what_follows_a_squeeze_has_lost_a_dimension():
    model = parser.parse_model("""<ir_version: 10, opset_import: ["" : 18]>
        g (int64[N, N, M] x) => (int64[a, b] y, int64[c, d] z)
        <int64[1] last = {-1}, int64[1] first = {0}, int64[1] back = {-2}> {
        s = Slice (x, last, first, first, back)
        t = Squeeze (s, first)
        y, z = Split <axis = 1, num_outputs = 2> (t) }""")
    prepared = backend.prepare(model)
    for rows, columns in [(2, 5), (3, 4), (3, 9)]:
        x = numbers(rows, rows, columns).astype(np.int64)
        y, z = prepared.run([x])
        np.testing.assert_array_equal(np.concatenate([y, z], 1), x[-1:0:-2][0])
