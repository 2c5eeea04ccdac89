"""Models whose output is an external tensor, which lies somewhere in them."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

from models import model_of

SECRET = np.arange(4, dtype=np.float32)
PLACES = [
    "initializer",
    "constant",
    "attribute",
    "branch",
    "initializer of a branch",
    "function",
    "sparse values",
    "sparse indices",
    "sparse constant",
]


def external_tensor(location: object, name: str = "w", **entries: object) -> TensorProto:
    tensor = TensorProto(name=name, dims=[4], data_type=TensorProto.FLOAT, data_location=TensorProto.EXTERNAL)
    for key, value in {"location": location, **entries}.items():
        tensor.external_data.add(key=key, value=str(value))
    return tensor


def model_with(tensor: TensorProto, place: str = "initializer") -> onnx.ModelProto:
    """Makes a model whose output is the tensor, which lies at one of the `PLACES`."""
    constant = helper.make_node("Constant", [], ["y"], value=tensor)
    identity = helper.make_node("Identity", ["w"], ["y"])
    if place == "initializer":
        return model_of([identity], [], ["y"], initializer=[tensor])
    if place == "constant":
        return model_of([constant], [], ["y"])
    if place == "attribute":
        one = TensorProto()
        one.CopyFrom(tensor)
        one.dims[:] = [1]
        size = numpy_helper.from_array(np.array([4]), "size")
        return model_of(
            [helper.make_node("ConstantOfShape", ["size"], ["y"], value=one)], [], ["y"], initializer=[size]
        )
    if place in ("branch", "initializer of a branch"):
        inner = [constant] if place == "branch" else [identity]
        weights = [] if place == "branch" else [tensor]
        branch = helper.make_graph(inner, "branch", [], [onnx.ValueInfoProto(name="y")], weights)
        chosen = helper.make_node("If", ["yes"], ["z"], then_branch=branch, else_branch=branch)
        return model_of([chosen], [], ["z"], initializer=[numpy_helper.from_array(np.array(True), "yes")])
    if place == "function":
        model = model_of([helper.make_node("Read", [], ["y"], domain="my")], [], ["y"])
        model.functions.append(helper.make_function("my", "Read", [], ["y"], [constant], model.opset_import))
        model.opset_import.append(helper.make_opsetid("my", 1))
        return model
    if place == "sparse indices":
        indices = TensorProto()
        indices.CopyFrom(tensor)
        indices.data_type = TensorProto.INT64
        sparse = onnx.SparseTensorProto(dims=[4], indices=indices, values=numpy_helper.from_array(SECRET, "w"))
    else:
        sparse = onnx.SparseTensorProto(dims=[4], indices=numpy_helper.from_array(np.arange(4)), values=tensor)
    if place == "sparse constant":
        return model_of([helper.make_node("Constant", [], ["y"], sparse_value=sparse)], [], ["y"])
    return model_of([identity], [], ["y"], sparse_initializer=[sparse])


def written(model: onnx.ModelProto, folder: Path) -> Path:
    """Writes the model's file as onnx.save would not, since the model may be wrong in any way."""
    path = folder / "model.onnx"
    path.write_bytes(model.SerializeToString())
    return path
