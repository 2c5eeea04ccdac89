"""The interface of ``onnx.backend.base``: preparing a model for a device, running it, asking what would run.

>>> import onnx_torch
>>> rep = onnx_torch.backend.prepare(model, "CPU")  # doctest: +SKIP
>>> outputs = rep.run(inputs)  # doctest: +SKIP
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import onnx
from onnx.backend import base
from onnx.backend.base import DeviceType

from . import _C
from ._models.given import Model as Model
from .errors import DeviceError, Error, InputError
from .prepared_model import ModelInfo, NodePlacement, PreparedModel, device_name, passes

__all__ = [
    "Backend",
    "BackendRep",
    "Device",
    "DeviceType",
    "ModelInfo",
    "NodePlacement",
    "OnnxTorchBackend",
    "OnnxTorchRep",
    "is_compatible",
    "passes",
    "prepare",
    "run_model",
    "run_node",
    "supports_device",
]


class Device(base.Device):
    """A device by its name, which `prepare` takes in its place too.

    >>> Device("cuda:1")
    Device('CUDA:1')
    >>> Device("CPU") == Device("cpu:0")
    True
    """

    def __init__(self, device: str) -> None:
        try:
            super().__init__(device.upper())
        except (AttributeError, ValueError):
            raise DeviceError(f'there is no device {device!r}; there are "CPU" and "CUDA:n"') from None

    def __str__(self) -> str:
        return device_name(self)

    def __repr__(self) -> str:
        return f"Device({device_name(self)!r})"

    def __eq__(self, other: object) -> bool:
        return isinstance(other, base.Device) and device_name(self) == device_name(other)

    def __hash__(self) -> int:
        return hash(device_name(self))


class OnnxTorchRep(PreparedModel, base.BackendRep):
    """A `PreparedModel` that is one of ONNX's `BackendRep`, too."""


class OnnxTorchBackend(base.Backend):
    """The backend as a class; the functions of this module are its methods."""

    @classmethod
    def prepare(cls, model: Model, device: str | base.Device = "CPU", **options: Any) -> OnnxTorchRep:
        """Translates a model for a device, with the options of `PreparedModel.prepare`."""
        return OnnxTorchRep.prepare(model, device, **options)

    @classmethod
    def is_compatible(cls, model: Model, device: str | base.Device = "CPU", **kwargs: Any) -> bool:
        """Tells whether `prepare` would take the model."""
        try:
            cls.prepare(model, device, **kwargs)
        except Error:
            return False
        return True

    @classmethod
    def run_model(cls, model: Model, inputs: Any, device: str | base.Device = "CPU", **kwargs: Any) -> tuple[Any, ...]:
        """Prepares and runs a model once."""
        return cls.prepare(model, device, **kwargs).run(inputs)

    @classmethod
    def run_node(
        cls,
        node: onnx.NodeProto,
        inputs: Any,
        device: str | base.Device = "CPU",
        outputs_info: Sequence[tuple[np.dtype, tuple[int, ...]]] | None = None,
        **kwargs: Any,
    ) -> tuple[Any, ...]:
        """Runs one node on numpy arrays; ``opset_version`` is that of the node's domain, the newest by default."""
        super().run_node(node, inputs, device_name(device), outputs_info, **kwargs)
        opset_version = kwargs.pop("opset_version", None)
        rep = cls.prepare(_model_of(node, inputs, opset_version), device, **kwargs)
        return rep.run([value for value in _as_list(inputs) if value is not None])

    @classmethod
    def supports_device(cls, device: str) -> bool:
        """Tells whether ``device`` is there."""
        try:
            _C.check_device(device_name(device))
        except DeviceError:
            return False
        return True


def _as_list(inputs: Any) -> list[Any]:
    return list(inputs) if isinstance(inputs, (list, tuple)) else [inputs]


def _type_of(value: Any) -> onnx.TypeProto:
    if isinstance(value, (list, tuple)):
        return onnx.helper.make_sequence_type_proto(_type_of(value[0]) if value else _type_of(np.zeros(0, np.float32)))
    dtype = np.asarray(value).dtype
    element = onnx.TensorProto.STRING if dtype.kind in "OUS" else onnx.helper.np_dtype_to_tensor_dtype(dtype)
    return onnx.helper.make_tensor_type_proto(element, None)


def _model_of(node: onnx.NodeProto, inputs: Any, opset_version: int | None) -> onnx.ModelProto:
    """Makes a model of one node, whose inputs have the types of the arrays given."""
    names = [name for name in node.input if name]
    values = [value for value in _as_list(inputs) if value is not None]
    if len(names) != len(values):
        raise InputError(f"{node.op_type} takes {len(names)} inputs here, not {len(values)}")
    graph = onnx.helper.make_graph(
        [node],
        node.op_type,
        [onnx.helper.make_value_info(name, _type_of(value)) for name, value in zip(names, values, strict=True)],
        [onnx.ValueInfoProto(name=name) for name in node.output if name],
    )
    version = opset_version or onnx.defs.onnx_opset_version()
    if node.domain not in ("", "ai.onnx") and opset_version is None:
        version = max(s.since_version for s in onnx.defs.get_all_schemas_with_history() if s.domain == node.domain)
    return onnx.helper.make_model(graph, opset_imports=[onnx.helper.make_opsetid(node.domain, version)])


Backend, BackendRep = OnnxTorchBackend, OnnxTorchRep  # under ONNX's names, in place of its abstract classes
prepare, load = OnnxTorchRep.prepare, OnnxTorchRep.load
is_compatible = OnnxTorchBackend.is_compatible
run_model = OnnxTorchBackend.run_model
run_node = OnnxTorchBackend.run_node
supports_device = OnnxTorchBackend.supports_device
