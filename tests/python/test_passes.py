"""Passes: how they are chosen and shown, and that official cases take what lies channels-last."""

from __future__ import annotations

import dataclasses
import re

import numpy as np
import onnx
import pytest
from onnx import numpy_helper

import onnx_torch
from official import SUBSTITUTES, Case, check, node_cases
from pass_models import code, model

CONV_RELU = model(
    "(float[1, 6, 8, 8] x) => (float y) { c = Conv(x, w) y = Relu(c) }", w=np.ones((8, 6, 1, 1), np.float32)
)


def test_passes_are_listed_and_left_out_by_name():
    names = list(onnx_torch.backend.passes())
    assert names == list(onnx_torch.prepare(CONV_RELU).graphs())[2:]
    assert all(onnx_torch.backend.passes().values())
    plain = onnx_torch.prepare(CONV_RELU, optimize=False)
    assert list(plain.graphs()) == ["translate", "place"]
    assert code(plain.graph()) == code(onnx_torch.prepare(CONV_RELU, disabled_passes=names).graph())
    assert "aten::relu" in onnx_torch.prepare(CONV_RELU, disabled_passes=["pack"]).graph()
    assert onnx_torch.prepare(CONV_RELU, disabled_passes=["pack"]).options["disabled_passes"] == {"pack"}
    with pytest.raises(
        onnx_torch.InputError,
        match='no pass "packed" to disable; there are fold, gather, kernels, blocks, recurrent_steps, quantized',
    ):
        onnx_torch.prepare(CONV_RELU, disabled_passes=["packed"])


def test_graphs_are_dumped_before_and_after_the_passes_named(monkeypatch, capfd):
    monkeypatch.setenv("ONNX_TORCH_DUMP", "pack")
    onnx_torch.prepare(CONV_RELU)
    before, after = capfd.readouterr().err.split("# after pack")
    assert before.startswith("# before pack\n")
    assert "aten::relu" in before
    assert "aten::relu" not in after
    monkeypatch.setenv("ONNX_TORCH_DUMP", "all")
    onnx_torch.prepare(CONV_RELU)
    shown = re.findall("^# before (.*)$", capfd.readouterr().err, re.MULTILINE)
    assert shown == list(onnx_torch.backend.passes())


def test_a_model_with_gradients_is_left_as_it_is():
    source = model("(float[2] x) => (float[2] y) { y = Exp(x) }")
    gradient = onnx.helper.make_node("Gradient", ["x"], ["g"], domain="ai.onnx.preview.training", xs=["x"], y="y")
    source.graph.node.append(gradient)
    source.graph.output.append(onnx.helper.make_tensor_value_info("g", onnx.TensorProto.FLOAT, [2]))
    source.opset_import.append(onnx.helper.make_opsetid("ai.onnx.preview.training", 1))
    assert list(onnx_torch.prepare(source).graphs()) == ["translate", "place"]


def behind_a_convolution(case: Case) -> onnx.ModelProto:
    """Gives the case with its first input copied by a convolution, which hands it on with the channels innermost."""
    source = onnx.ModelProto()
    source.CopyFrom(case.model)
    name = source.graph.input[0].name
    for node in source.graph.node:
        node.input[:] = ["copied" if i == name else i for i in node.input]
    channels, rank = source.graph.input[0].type.tensor_type.shape.dim[1].dim_value, len(case.data_sets[0][0][0].shape)
    weight = np.eye(channels, dtype=np.float32).reshape([channels, channels] + [1] * (rank - 2))
    source.graph.initializer.append(numpy_helper.from_array(weight, "identity"))
    source.graph.node.insert(0, onnx.helper.make_node("Conv", [name, "identity"], ["copied"]))
    return source


def takes_a_picture(case: Case) -> bool:
    inputs = case.data_sets[0][0]
    finite = bool(inputs) and isinstance(inputs[0], np.ndarray) and inputs[0].dtype == np.float32
    wanted = finite and inputs[0].ndim in (4, 5) and inputs[0].size > 0 and np.isfinite(inputs[0]).all()
    subgraphs = any(attribute.HasField("g") for node in case.model.graph.node for attribute in node.attribute)
    standard = {entry.domain: entry.version for entry in case.model.opset_import}.get("", 0) >= 11
    return wanted and standard and not subgraphs and case.name not in SUBSTITUTES


PICTURES = [case for case in node_cases() if takes_a_picture(case)]


@pytest.mark.parametrize("case", PICTURES, ids=lambda case: case.name)
def test_official_cases_take_channels_last(case: Case):
    source = behind_a_convolution(case)
    check(dataclasses.replace(case, model=source), lambda given: onnx_torch.prepare(given).run)


def test_there_are_pictures():
    assert len(PICTURES) > 200
