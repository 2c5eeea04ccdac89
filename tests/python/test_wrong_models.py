"""Models whose numbers, types or sizes are wrong: what a kernel or ATen would trust is checked first, and is an error.

They run in this process, as one that reads or writes where it should not, or divides what cannot be divided, would end
it."""

from __future__ import annotations

from typing import Any

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

import onnx_torch
from models import model_of, op_model, run_op, tensor_info
from wrong_models import HIGHEST, LOWEST, constant_model, ints, refused, zeros

ML = "ai.onnx.ml"


# --- Types


@pytest.mark.parametrize("op_type", ["Log", "Exp", "Sqrt", "Tan", "Sigmoid"])
@pytest.mark.parametrize("dtype", [np.int32, np.int64])
def test_a_type_that_the_schema_does_not_allow_is_refused(op_type, dtype):
    with pytest.raises(
        onnx_torch.InvalidModelError, match=rf"{op_type}.*is of type tensor\(int\d+\); allowed are: ten"
    ):
        run_op(op_type, [np.ones(2, dtype)])


def test_types_are_checked_of_what_other_nodes_give():
    nodes = [helper.make_node("Shape", ["x"], ["s"]), helper.make_node("Log", ["s"], ["y"])]
    with pytest.raises(onnx_torch.InvalidModelError, match=r'Log .* the input "input" is of type tensor\(int64\)'):
        onnx_torch.prepare(model_of(nodes, [tensor_info("x", zeros(2))], ["y"]))


def test_inputs_of_one_type_parameter_are_of_one_type():
    with pytest.raises(
        onnx_torch.InvalidModelError, match=r'"B" is of type tensor\(int64\), but the input "A" of tens'
    ):
        run_op("Add", [zeros(2), ints(1)])


def test_inputs_that_may_differ_may_differ():
    assert run_op("Gather", [zeros(3), np.array([1], np.int32)])[0].shape == (1,)
    assert run_op("Where", [np.array([True]), zeros(1), zeros(1)])[0].shape == (1,)


def test_a_type_that_a_later_version_adds_is_taken():
    assert run_op("Relu", [np.array([-1, 2], np.int32)], opset=6)[0].tolist() == [0, 2]


@pytest.mark.parametrize("op_type", ["Sum", "Min", "Max", "Mean", "Concat"])
def test_an_input_that_must_be_there_may_not_be_left_out(op_type):
    attributes = {"axis": 0} if op_type == "Concat" else {}
    model = model_of([helper.make_node(op_type, ["x", ""], ["y"], **attributes)], [tensor_info("x", zeros(2))], ["y"])
    with pytest.raises(onnx_torch.InvalidModelError, match=rf"{op_type} .* is missing"):
        onnx_torch.prepare(model)


def test_sequence_at_takes_no_map():
    of_map = helper.make_map_type_proto(TensorProto.INT64, helper.make_tensor_type_proto(TensorProto.FLOAT, None))
    node = helper.make_node("SequenceAt", ["m", "i"], ["y"])
    infos = [helper.make_value_info("m", of_map), tensor_info("i", ints(0)[0])]
    with pytest.raises(onnx_torch.InvalidModelError, match=r"SequenceAt .* is of type map\(int64"):
        onnx_torch.prepare(model_of([node], infos, ["y"]))


@pytest.mark.parametrize("to", [0, 29, 1 + 2**32, -1, LOWEST])
def test_only_element_types_can_be_cast_to(to):
    with pytest.raises(onnx_torch.InvalidModelError, match=f"Cast .*unknown element type {to}"):
        run_op("Cast", [zeros(2)], to=to)


@pytest.mark.parametrize(
    ("op_type", "inputs", "attributes"),
    [
        ("EyeLike", [zeros(2, 2)], {"dtype": TensorProto.STRING}),
        ("RandomNormal", [], {"dtype": TensorProto.INT32, "shape": [2]}),
        ("HannWindow", [ints(4)[0]], {"output_datatype": TensorProto.BOOL}),
    ],
    ids=str,
)
def test_an_attribute_names_a_type_that_the_output_may_have(op_type, inputs, attributes):
    with pytest.raises(onnx_torch.InvalidModelError, match=rf"{op_type} .* the output .* is of type tensor\("):
        run_op(op_type, inputs, **attributes)


def test_what_a_loop_carries_and_branches_give_is_of_one_type():
    less = helper.make_node("Less", ["a", "a"], ["b"])
    infos = [tensor_info("i", ints(0)[0]), tensor_info("go", np.array(True)), tensor_info("a", zeros(1))]
    outputs = [onnx.ValueInfoProto(name=name) for name in ("go", "b")]
    body = helper.make_graph([less], "body", infos, outputs)
    loop = helper.make_node("Loop", ["count", "", "x"], ["y"], body=body)
    given = [tensor_info("count", ints(0)[0]), tensor_info("x", zeros(1))]
    with pytest.raises(onnx_torch.InvalidModelError, match=r"Loop .* changes from tensor\(float\) to tensor\(bool\)"):
        onnx_torch.prepare(model_of([loop], given, ["y"]))
    branches = {
        name: helper.make_graph([helper.make_node(op, ["x"], ["z"])], name, [], [onnx.ValueInfoProto(name="z")])
        for name, op in {"then_branch": "Relu", "else_branch": "Shape"}.items()
    }
    chosen = helper.make_node("If", ["yes"], ["y"], **branches)
    given = [tensor_info("yes", np.array(True)), tensor_info("x", zeros(1))]
    with pytest.raises(onnx_torch.InvalidModelError, match="If .* give output 0 different types"):
        onnx_torch.prepare(model_of([chosen], given, ["y"]))


# --- Numbers in attributes


HUGE = [2**31, 2**62, HIGHEST, LOWEST, -(2**31) - 1]


@pytest.mark.parametrize("number", [0, -1, *HUGE])
@pytest.mark.parametrize("name", ["strides", "dilations", "kernel_shape"])
@pytest.mark.parametrize("op_type", ["Conv", "ConvTranspose", "MaxPool", "LpPool"])
def test_windows_have_positive_numbers(op_type, name, number):
    attributes = {"kernel_shape": [2, 2], name: [1, number]}
    inputs = [zeros(1, 1, 4, 4)] + ([zeros(1, 1, 2, 2)] if "Conv" in op_type else [])
    with pytest.raises(onnx_torch.InvalidModelError, match=rf'{op_type} .* "{name}" takes .*, not {number}$'):
        run_op(op_type, inputs, **attributes)


@pytest.mark.parametrize(
    ("op_type", "inputs", "attributes"),
    [
        ("Conv", [zeros(1, 1, 4), zeros(1, 1, 2)], {"group": 0}),
        ("ConvTranspose", [zeros(1, 1, 4), zeros(1, 1, 2)], {"group": 0}),
        ("ConvInteger", [zeros(1, 1, 4, dtype=np.uint8), zeros(1, 1, 2, dtype=np.uint8)], {"strides": [0]}),
        ("Conv", [zeros(1, 1, 4), zeros(1, 1, 2)], {"pads": [2**62, 2**62]}),
        ("MaxUnpool", [zeros(1, 1, 2), zeros(1, 1, 2, dtype=np.int64)], {"kernel_shape": [2], "strides": [2**62]}),
        ("SpaceToDepth", [zeros(1, 1, 4, 4)], {"blocksize": 0}),
        ("DepthToSpace", [zeros(1, 4, 4, 4)], {"blocksize": 2**62}),
        ("LayerNormalization", [zeros(2, 3), zeros(3)], {"axis": -(2**31)}),
        ("GroupNormalization", [zeros(1, 2, 3), zeros(2), zeros(2)], {"num_groups": 0}),
        ("LRN", [zeros(1, 2, 3)], {"size": 0}),
        ("Attention", [zeros(1, 4, 16)] * 3, {"q_num_heads": 0, "kv_num_heads": 2}),
        ("Split", [zeros(4)], {"num_outputs": 0}),
        ("Multinomial", [zeros(1, 4)], {"sample_size": LOWEST}),
        ("GatherND", [zeros(2, 2), zeros(2, 1, dtype=np.int64)], {"batch_dims": LOWEST}),
        ("ReverseSequence", [zeros(2, 2), ints(1, 1)], {"time_axis": LOWEST, "batch_axis": 1}),
    ],
    ids=str,
)
def test_numbers_that_no_tensor_has_room_for_are_refused(op_type, inputs, attributes):
    with pytest.raises(onnx_torch.InvalidModelError, match=rf"{op_type} .* takes numbers from"):
        run_op(op_type, inputs, **attributes)


def test_an_attribute_without_a_type_is_of_the_schema_s():
    model = op_model("ConvTranspose", [zeros(1, 2, 3, 3), zeros(2, 1, 3, 3)], group=2)
    model.graph.node[0].attribute[0].ClearField("type")
    model.graph.node[0].attribute[0].ClearField("i")
    with pytest.raises(onnx_torch.InvalidModelError, match='"group" takes numbers from 1 to 2147483647, not 0'):
        onnx_torch.prepare(model)


# --- Counts


def scan(count: int, inputs: int = 2, **attributes: Any) -> onnx.ModelProto:
    names = [f"x{i}" for i in range(inputs)]
    infos = [tensor_info(f"b{i}", zeros(1)) for i in range(inputs)]
    body = helper.make_graph([helper.make_node("Identity", ["b0"], ["s"])], "body", infos, [tensor_info("s", zeros(1))])
    node = helper.make_node("Scan", names, ["y"], body=body, num_scan_inputs=count, **attributes)
    return model_of([node], [tensor_info(name, zeros(2, 1)) for name in names], ["y"])


@pytest.mark.parametrize(
    ("model", "message"),
    [
        (scan(3), "num_scan_inputs is more than the 2 inputs"),
        (scan(0), "takes numbers from 1"),
        (scan(-1), "takes numbers from 1"),
        (scan(1, inputs=3), "its body has too few outputs"),
        (scan(1, scan_input_axes=[0, 0]), "scan_input_axes must have 1 elements"),
        (scan(2, scan_output_directions=[0, 1]), "scan_output_directions must have 1 elements"),
    ],
)
def test_what_a_scan_counts_is_there(model, message):
    with pytest.raises(onnx_torch.InvalidModelError, match=f"Scan .*{message}"):
        onnx_torch.prepare(model)


def test_a_name_stands_for_one_value():
    nodes = [helper.make_node("Relu", ["x"], ["y"]), helper.make_node("Neg", ["x"], ["y"])]
    with pytest.raises(onnx_torch.InvalidModelError, match='Neg .* "y" is given twice'):
        onnx_torch.prepare(model_of(nodes, [tensor_info("x", zeros(1))], ["y"]))
    twice = helper.make_node("Split", ["x"], ["y", "y"], num_outputs=2)
    with pytest.raises(onnx_torch.InvalidModelError, match='Split .* "y" is given twice'):
        onnx_torch.prepare(model_of([twice], [tensor_info("x", zeros(2))], ["y"]))


@pytest.mark.parametrize(("perm", "message"), [([0, 2], "no perm"), ([1, 1], "no perm"), ([0], "dimension|permute")])
def test_transpose_takes_a_permutation(perm, message):
    refused("Transpose", [zeros(2, 3)], message, perm=perm)


@pytest.mark.parametrize(("count", "outputs"), [(3, 2), (1, 2)])
def test_split_has_as_many_outputs_as_it_says(count, outputs):
    refused("Split", [zeros(6)], f"{outputs} outputs, but num_outputs is {count}", num_outputs=count, outputs=outputs)


@pytest.mark.parametrize("axis", [-3, 2, 60, -60])
@pytest.mark.parametrize("outputs", [1, 3])
def test_normalizations_take_axes_that_are_there(axis, outputs):
    refused("LayerNormalization", [zeros(2, 3), zeros(3)], "range", axis=axis, outputs=outputs)
    refused("RMSNormalization", [zeros(2, 3), zeros(3)], "range", axis=axis)


# --- Sizes


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize(
    ("op_type", "gates", "bad"),
    [
        ("RNN", 1, {1: (1, 448, 64)}),
        ("RNN", 1, {2: (1, 448, 64)}),
        ("RNN", 1, {2: (1, 64, 63)}),
        ("RNN", 1, {3: (1, 127)}),
        ("RNN", 1, {5: (1, 2, 64)}),
        ("GRU", 3, {1: (1, 64, 64)}),
        ("GRU", 3, {2: (2, 192, 64)}),
        ("LSTM", 4, {1: (1, 448, 64)}),
        ("LSTM", 4, {1: (1, 256, 63)}),
        ("LSTM", 4, {3: (1, 4)}),
        ("LSTM", 4, {6: (1, 3, 1)}),
        ("LSTM", 4, {7: (1, 64)}),
    ],
)
def test_recurrent_weights_fit_the_hidden_size(op_type, gates, bad, dtype):
    sizes = {0: (64, 3, 64), 1: (1, gates * 64, 64), 2: (1, gates * 64, 64), **bad}
    inputs = [zeros(*sizes[i], dtype=dtype) if i in sizes else None for i in range(1 + max(sizes))]
    refused(op_type, inputs, "shape|units", hidden_size=64, outputs=2)


def test_a_hidden_size_of_another_layer_is_refused():
    refused("LSTM", [zeros(4, 3, 8), zeros(1, 32, 8), zeros(1, 32, 8)], "hidden_size", hidden_size=9, outputs=2)


@pytest.mark.parametrize("dtype", [np.float16, np.float32, np.float64])
@pytest.mark.parametrize(
    ("q", "k", "v"),
    [
        ((1, 2, 4, 8), (1, 2, 4, 8), (1, 2, 6, 8)),
        ((1, 2, 4, 8), (1, 2, 6, 8), (1, 2, 4, 8)),
        ((1, 2, 4, 8), (1, 1, 4, 8), (1, 2, 4, 8)),
        ((1, 3, 4, 8), (1, 2, 4, 8), (1, 2, 4, 8)),
        ((1, 2, 4, 8), (1, 0, 4, 8), (1, 0, 4, 8)),
        ((2, 2, 4, 8), (1, 2, 4, 8), (1, 2, 4, 8)),
        ((1, 2, 4, 8), (1, 2, 4, 4), (1, 2, 4, 8)),
    ],
)
def test_attention_takes_keys_and_values_that_go_together(q, k, v, dtype):
    inputs = [zeros(*sizes, dtype=dtype) for sizes in (q, k, v)]
    refused("Attention", inputs, "go together|multiple")


@pytest.mark.parametrize(
    ("op_type", "inputs", "attributes"),
    [
        ("MaxPool", [zeros(1, 1, 4)], {"kernel_shape": [2, 2]}),
        ("MaxPool", [zeros(1, 1, 4, 4, 4)], {"kernel_shape": [2, 2]}),
        ("AveragePool", [zeros(1, 4, 4)], {"kernel_shape": [2, 2]}),
        ("LpPool", [zeros(1, 1, 4, 4, 4)], {"kernel_shape": [2, 2]}),
        ("Conv", [zeros(1, 1, 4), zeros(1, 1, 2, 2)], {"kernel_shape": [2, 2]}),
        ("Conv", [zeros(1, 1, 4, 4), zeros(1, 1, 2)], {"strides": [1, 1]}),
        ("ConvTranspose", [zeros(1, 1, 4), zeros(1, 1, 2, 2)], {}),
        ("Conv", [zeros(3), zeros(3)], {"auto_pad": "SAME_UPPER"}),
        ("ConvTranspose", [zeros(3), zeros(3)], {"auto_pad": "SAME_UPPER"}),
        ("ConvTranspose", [zeros(3), zeros(1, 1, 2)], {}),
        ("ConvInteger", [zeros(dtype=np.uint8), zeros(1, 1, 2, 2, dtype=np.uint8)], {}),
    ],
    ids=str,
)
@pytest.mark.parametrize("opset", [10, 28])
def test_windows_have_the_input_s_rank(op_type, inputs, attributes, opset):
    refused(op_type, inputs, "dimension|kernel_shape", opset=opset, **attributes)


@pytest.mark.parametrize(
    ("op_type", "inputs", "attributes"),
    [
        ("Conv", [zeros(1, 2, 4, 4), zeros(8, 2, 3, 3), zeros(7)], {}),
        ("Conv", [zeros(1, 2, 4, 4), zeros(8, 2, 3, 3), zeros(1)], {}),
        ("Conv", [zeros(1, 4, 4, 4), zeros(9, 2, 3, 3)], {"group": 2}),
        ("ConvTranspose", [zeros(1, 2, 4, 4), zeros(2, 8, 3, 3), zeros(7)], {}),
        ("ConvTranspose", [zeros(1, 2, 4, 4), zeros(2, 1, 3, 3)], {"group": 127}),
        ("BatchNormalization", [zeros(2, 3, 4), zeros(3), zeros(3), zeros(3), zeros(2)], {}),
        ("BatchNormalization", [zeros(2, 3, 4), zeros(2, 3, 4), zeros(3), zeros(3), zeros(3)], {}),
        ("InstanceNormalization", [zeros(2, 3, 4), zeros(2), zeros(3)], {}),
        ("GroupNormalization", [zeros(2, 4, 3), zeros(3), zeros(4)], {"num_groups": 2}),
        ("LayerNormalization", [zeros(2, 3), zeros(2)], {}),
        ("Gemm", [zeros(2, 3), zeros(3, 4), zeros(5)], {}),
        ("MatMul", [zeros(2, 3), zeros(4, 3)], {}),
        ("PRelu", [zeros(2, 3), zeros(2)], {}),
        ("DeformConv", [zeros(1, 1, 4, 4), zeros(1, 1, 2, 2), zeros(1, 7, 3, 3)], {}),
        ("Col2Im", [zeros(1, 4, 4), ints(5, 5), ints(2, 2)], {}),
        ("Col2Im", [zeros(1, 4, 4), ints(5, 5), ints(0, 2)], {}),
        ("Col2Im", [zeros(1, 4, 4), ints(2**62, 5), ints(2, 2)], {}),
        ("MaxUnpool", [zeros(1, 1, 2, 2), zeros(1, 1, 2, 2, dtype=np.int64) + 100], {"kernel_shape": [2, 2]}),
    ],
    ids=str,
)
def test_sizes_that_do_not_fit_one_another_are_refused(op_type, inputs, attributes):
    for model, fed in (
        (op_model(op_type, inputs, **attributes), inputs),
        (constant_model(op_type, inputs, **attributes), inputs[:1]),
    ):
        for optimize in (True, False):
            with pytest.raises(onnx_torch.Error):
                onnx_torch.prepare(model, optimize=optimize).run(fed)


def test_a_pass_that_meets_sizes_that_do_not_fit_is_named():
    model = constant_model("BatchNormalization", [zeros(2, 3, 4), zeros(3), zeros(3), zeros(3), zeros(2)])
    with pytest.raises(onnx_torch.Error, match='cannot be optimized by the pass "'):
        onnx_torch.prepare(model)


# --- Divisions


@pytest.mark.parametrize("fmod", [0, 1])
@pytest.mark.parametrize("dtype", [np.int32, np.int64])
def test_the_least_integer_is_divided_by_minus_one(dtype, fmod):
    least = np.array([np.iinfo(dtype).min, 7], dtype)
    for by in (np.array([-1], dtype), np.array([-1, 2], dtype)):
        for model, fed in (
            (op_model("Mod", [least, by], fmod=fmod), [least, by]),
            (constant_model("Mod", [least, by], 0, fmod=fmod), []),
        ):
            assert onnx_torch.prepare(model).run(fed)[0].tolist() == [0, 0 if by.size == 1 else 1]


@pytest.mark.parametrize("op_type", ["Div", "Mod"])
@pytest.mark.parametrize("by", [[0], [0, 1], [-1]])
def test_sizes_are_divided_by_anything(op_type, by):
    """Sizes are divided on the host, by constants and by what a caller feeds."""
    shape = helper.make_node("Shape", ["x"], ["s"])
    divided = helper.make_node(op_type, ["least", "by"], ["y"])
    moved = helper.make_node("Sub", ["s", "two"], ["zero"])
    least = helper.make_node("Add", ["zero", "lowest"], ["least"])
    nodes = [shape, moved, least, divided]
    values = {"two": ints(2, 2), "lowest": ints(LOWEST, LOWEST)}
    infos = [tensor_info("x", zeros(2, 2), (2, "n"))]
    initializers = [numpy_helper.from_array(value, name) for name, value in values.items()]
    for fed in (False, True):
        by_info, by_value = (
            ([tensor_info("by", ints(*by))], []) if fed else ([], [numpy_helper.from_array(ints(*by), "by")])
        )
        model = model_of(nodes, infos + by_info, ["y"], initializer=initializers + by_value)
        if 0 in by:
            with pytest.raises(onnx_torch.Error, match=r"(?i)division by zero|zerodivision"):
                onnx_torch.prepare(model).run([zeros(2, 2)] + [ints(*by)] * fed)
        else:
            y = onnx_torch.prepare(model).run([zeros(2, 2)] + [ints(*by)] * fed)[0]
            assert y.tolist() == ([0, 0] if op_type == "Mod" else [LOWEST, LOWEST])


def test_a_scalar_has_no_axis_to_quantize_along():
    refused("QuantizeLinear", [np.float32(3), np.ones(2, np.float32)], "out of range for 0 dimensions")


# --- What takes for ever, or too much


def test_skips_are_no_more_than_the_tokens():
    model = op_model(
        "TfIdfVectorizer",
        [ints(1, 2, 3)],
        mode="TF",
        min_gram_length=2,
        max_gram_length=2,
        max_skip_count=2**31 - 1,
        ngram_counts=[0, 0],
        ngram_indexes=[0],
        pool_int64s=[1, 3],
    )
    assert onnx_torch.prepare(model).run([ints(1, 2, 3)])[0].tolist() == [1]


@pytest.mark.parametrize(
    ("start", "limit", "delta", "message"),
    [
        (LOWEST, HIGHEST, 1, "too long"),
        (0, LOWEST, -1, "too long"),
        (0, 2**62, 2**59, None),
        (0, 5, 0, "delta must not be 0"),
    ],
)
def test_ranges_have_a_length(start, limit, delta, message):
    inputs = [np.array(value, np.int64) for value in (start, limit, delta)]
    if message is None:
        assert run_op("Range", inputs)[0].tolist() == [i * delta for i in range(8)]
    else:
        refused("Range", inputs, message)


@pytest.mark.parametrize(
    ("op_type", "inputs", "attributes"),
    [
        ("Tile", [zeros(2, 3), ints(2**62, 4)], {}),
        ("Tile", [zeros(2, 3), ints(2**32, 2**32)], {}),
        ("Expand", [zeros(1, 1), ints(2**32, 2**32)], {}),
        ("ConstantOfShape", [ints(2**32, 2**32)], {}),
        ("ConstantOfShape", [ints(-1)], {}),
        ("OneHot", [ints(1), np.array(2**62), zeros(2)], {}),
        ("Pad", [zeros(2, 3), ints(2**62, 0, 2**62, 0)], {}),
        ("Pad", [zeros(2, 3), ints(LOWEST, 0, 0, 0)], {}),
        ("Resize", [zeros(1, 1, 2, 2), None, None, ints(1, 1, 2**31, 2**31)], {}),
        ("Resize", [zeros(1, 1, 2, 2), None, np.array([1, 1, 1e30, 1e30], np.float32)], {}),
        ("Gather", [zeros(3), ints(HIGHEST)], {}),
        ("Gather", [zeros(3), ints(LOWEST)], {}),
        ("GatherElements", [zeros(3), ints(LOWEST)], {}),
        ("GatherND", [zeros(3), ints(LOWEST).reshape(1, 1)], {}),
        ("ScatterND", [zeros(3), ints(2**62).reshape(1, 1), zeros(1)], {}),
        ("ScatterElements", [zeros(3), ints(2**62), zeros(1)], {}),
        ("TopK", [zeros(3), ints(2**62)], {"outputs": 2}),
        ("TopK", [zeros(3), ints(-1)], {"outputs": 2}),
        ("CumSum", [zeros(3), np.array(2**62)], {}),
        ("ReverseSequence", [zeros(3, 2), ints(2**62, -5)], {}),
    ],
    ids=str,
)
def test_data_that_no_tensor_has_room_for_is_refused(op_type, inputs, attributes):
    refused(op_type, inputs, "", **attributes)
