"""Helpers of the tests of the custom kernels: the loaded library, strings in and out of a pool, one-node models."""

import importlib.util
from pathlib import Path

import numpy as np
import onnx
import onnxruntime
import torch
from onnx.reference import ReferenceEvaluator

OPSETS = [onnx.helper.make_opsetid("", 25), onnx.helper.make_opsetid("ai.onnx.ml", 5)]


def _load_kernels():
    package = importlib.util.find_spec("onnx_torch")
    assert package, "onnx_torch is not found: put the build tree's python folder on PYTHONPATH"
    torch.ops.load_library(Path(package.submodule_search_locations[0]) / "libonnx_torch_kernels.so")


_load_kernels()
kernels = torch.ops.onnx_torch


def new_pool():
    return torch.classes.onnx_torch.StringPool()


def to_ids(pool, strings):
    strings = np.asarray(strings, dtype=object)
    return kernels.strings(pool, strings.ravel().tolist(), "cpu").reshape(strings.shape)


def to_strings(pool, ids):
    strings = np.array(kernels.texts(pool, ids), dtype=object)
    return strings.reshape(tuple(ids.shape))


def one_node_model(op, inputs, output_types, domain="", opsets=OPSETS, **attributes):
    """Makes a model of one node with the types and shapes of the arrays `inputs` and outputs of `output_types`."""
    names = [f"x{i}" for i in range(len(inputs))]
    results = [f"y{i}" for i in range(len(output_types))]
    node = onnx.helper.make_node(op, names, results, domain=domain, **attributes)
    graph = onnx.helper.make_graph(
        [node],
        "one_node",
        [
            onnx.helper.make_tensor_value_info(name, onnx.helper.np_dtype_to_tensor_dtype(x.dtype), x.shape)
            for name, x in zip(names, inputs, strict=False)
        ],
        [onnx.helper.make_tensor_value_info(name, t, None) for name, t in zip(results, output_types, strict=False)],
    )
    return onnx.helper.make_model(graph, opset_imports=opsets, ir_version=10)


def run_reference(*args, **attributes):
    model = one_node_model(*args, **attributes)
    return ReferenceEvaluator(model).run(None, {f"x{i}": x for i, x in enumerate(args[1])})


def run_onnxruntime(*args, **attributes):
    model = one_node_model(*args, **attributes)
    options = onnxruntime.SessionOptions()
    options.log_severity_level = 4
    session = onnxruntime.InferenceSession(model.SerializeToString(), options, providers=["CPUExecutionProvider"])
    return session.run(None, {f"x{i}": x for i, x in enumerate(args[1])})
