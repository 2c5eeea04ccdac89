"""Models as modules of Python code."""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import Any

from torch import nn

from .._models.fixed_shapes import FixedShapes
from .._models.given import External, Model
from .._models.trust import trust_of
from .export import CONSTANTS, _exported, _script_module, translation_options
from .names import names_of
from .python_code import forward_function, python_code

__all__ = ["OnnxModule", "to_module"]


class OnnxModule(nn.Module):
    """A model as a module of Python code; see `to_module`.

    Attributes:
        code: the code of ``forward``, each part below the name of its ONNX node.
        onnx_names: the text that `names_of` reads.
    """

    code: str
    onnx_names: str

    def extra_repr(self) -> str:
        names = names_of(self)
        return f"{', '.join(names.inputs)} -> {', '.join(names.outputs)}"

    def __reduce_ex__(self, protocol: Any) -> tuple[Any, ...]:
        return _new_module, (self.code,), self.__dict__


def _new_module(code: str) -> OnnxModule:
    """Makes a module of a class of its own, whose `forward` the code is."""
    module_class = type("OnnxModule", (OnnxModule,), {"forward": forward_function(code), "code": code})
    return module_class()  # type: ignore[no-any-return]


def to_module(
    model: Model,
    *,
    base_dir: str | os.PathLike[str] | None = None,
    external: External | None = None,
    shapes: FixedShapes | None = None,
    limits: Mapping[str, float] | None = None,
    allow_aten: str = "checked",
    links: str = "follow",
) -> OnnxModule:
    """Makes a module of a model, with Python code that `torch.compile` and `torch.export` trace.

    Arguments, results and weights are those of `to_torchscript`. It copies and pickles where onnx_torch is installed.

    Args:
        model: a ModelProto, its serialized bytes, or a path.
        base_dir: the directory of the model's external data; for a path, the directory of the file by default.
        external: external data from memory, as `prepare` takes it.
        shapes: sizes for open dimensions of the inputs, which are then fixed; see `prepare`.
        limits: on translating the model, as `onnx_torch.prepare` takes them; likewise ``allow_aten`` and ``links``.

    Raises:
        UnsupportedError: the model handles strings.

    >>> import onnx, torch
    >>> model = onnx.parser.parse_model('''
    ...     <ir_version: 10, opset_import: ["": 21]> g (float[n, 2] x) => (float[n, 2] y)
    ...     <float[2] weight = {1, 2}> { y = Mul(x, weight) }''')
    >>> module = to_module(model)
    >>> module(torch.ones(1, 2)).tolist()
    [[1.0, 2.0]]
    >>> print(torch.export.export(module, (torch.ones(1, 2),)).graph_signature.parameters)
    ('weight',)
    """
    options = translation_options(shapes, trust_of(limits, allow_aten, links))
    exported = _exported(model, base_dir, external, options)
    script = _script_module(exported)
    module = _new_module(python_code(script.graph, exported.nodes))
    module.onnx_names = script.onnx_names
    _copy_attributes(script, module)
    for node in script.graph.nodes():
        if node.kind() == "prim::GetAttr" and "__torch__.torch.classes." in str(node.output().type()):
            name = node.s("name")  # the name of an object that belongs to a kernel
            setattr(getattr(module, CONSTANTS), name, getattr(getattr(script, CONSTANTS), name))
    return module


def _copy_attributes(script: nn.Module, module: nn.Module, constants: bool = False) -> None:
    """Gives a module what a TorchScript module holds; what is no initializer does not go into the state_dict."""
    for name, parameter in script.named_parameters(recurse=False):
        module.register_parameter(name, nn.Parameter(parameter.detach()))
    for name, buffer in script.named_buffers(recurse=False):
        module.register_buffer(name, buffer, persistent=not constants)
    for name, child in script.named_children():
        copy = nn.Module()
        module.add_module(name, copy)
        _copy_attributes(child, copy, constants=name == CONSTANTS)
