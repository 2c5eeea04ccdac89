"""The errors of operators that are known and not translated; one's own translation of them goes first."""

from __future__ import annotations

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper

import onnx_torch
from onnx_torch import _C
from type_matrix.cells import onnxruntime_schemas

TRANSLATED = {(domain, op) for domain, op, *_ in _C.translation_table()}
# Reading a model takes the copies between devices out.
COPIES = {"MemcpyFromHost", "MemcpyToHost"}
UNTRANSLATED = sorted(
    {(entry["domain"], entry["name"]) for entry in onnxruntime_schemas.facts()["operators"] if not entry["deprecated"]}
    - TRANSLATED
    - {("", name) for name in COPIES}
    - set(_C.experimental_operators())
)


def model_of(domain: str, op: str) -> onnx.ModelProto:
    x, y = (helper.make_tensor_value_info(name, TensorProto.FLOAT, None) for name in "xy")
    graph = helper.make_graph([helper.make_node(op, ["x"], ["y"], domain=domain)], "g", [x], [y])
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 20), helper.make_opsetid(domain or "a", 1)])


@pytest.mark.parametrize("domain, op", UNTRANSLATED)
def test_each_of_onnxruntime_has_a_reason(domain, op):
    with pytest.raises(onnx_torch.UnsupportedError) as error:
        onnx_torch.prepare(model_of(domain, op))
    assert "is not supported" not in str(error.value) and "no such operator" not in str(error.value)


@pytest.mark.parametrize(
    "domain, op, says",
    [
        ("com.microsoft", "EPContext", "ep.context_enable"),
        ("com.microsoft", "Snpe", "load the original model"),
        ("com.microsoft", "QuantizeBFP", "block floating point"),
        ("com.microsoft", "SoftmaxCrossEntropyLossGrad", "it is a gradient"),
        ("ai.onnx.contrib", "BlingFireSentenceBreaker", "onnxruntime-extensions"),
        ("mmcv", "MMCVCornerPool", "register_op"),
        ("qonnx.custom_op.general", "Im2Col", "register_op"),
        ("finn.custom_op.fpgadataflow", "MVAU", "before FINN"),
        ("trt", "Proposal_TRT", "plugin of TensorRT"),
        ("com.example", "Unheard", "no such operator"),
    ],
)
def test_reason(domain, op, says):
    with pytest.raises(onnx_torch.UnsupportedError, match=says):
        onnx_torch.prepare(model_of(domain, op))


HOSTILE = [
    ("StringRegexReplace", [["a"], ["("], ["b"]], {}, "not a valid RE2 pattern"),
    ("StringRegexReplace", [["a"], ["a"], [r"\3"]], {}, "does not fit the pattern"),
    ("StringRegexReplace", [["a"], [""], ["b"]], {}, "must not be empty"),
    ("StringRegexReplace", [["a"], ["a", "b"], ["b"]], {}, "must be one string"),
    ("StringMapping", [["a"]], {"map": "a\tb\tc"}, "a line of the map"),
    ("StringMapping", [["a"]], {"map": ""}, "the map is empty"),
    ("StringToVector", [["a"]], {"map": "a\t1 2", "unk": "0"}, "unk must be a vector of 2"),
    ("StringToVector", [["a"]], {"map": "a\t1 2\nb\t1", "unk": "0 0"}, "differ in length"),
    ("StringToVector", [["a"]], {"map": "a\tx", "unk": "0"}, "is not an integer"),
]


@pytest.mark.parametrize("op, inputs, attributes, says", HOSTILE)
def test_hostile_text(op, inputs, attributes, says):
    names = [f"x{i}" for i in range(len(inputs))]
    node = helper.make_node(op, names, ["y"], domain="ai.onnx.contrib", **attributes)
    infos = [helper.make_tensor_value_info(name, TensorProto.STRING, [None]) for name in names]
    graph = helper.make_graph([node], "g", infos, [onnx.ValueInfoProto(name="y")])
    domains = [helper.make_opsetid("", 20), helper.make_opsetid("ai.onnx.contrib", 1)]
    with pytest.raises(onnx_torch.Error, match=says):
        onnx_torch.prepare(helper.make_model(graph, opset_imports=domains)).run([np.array(x, object) for x in inputs])


def test_ones_own_translation_goes_first():
    onnx_torch.register_op("mmcv", "MMCVBorderAlign", "aten::neg")
    x = np.float32([1, -2])
    np.testing.assert_array_equal(onnx_torch.prepare(model_of("mmcv", "MMCVBorderAlign")).run([x])[0], -x)
