"""Made-up inputs, for whoever wants to see a model run before having data for it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import onnx
from onnx import TensorProto, helper

from .errors import InputError
from .model_files import Model, fixed_size, read_model, required_inputs


def random_inputs(
    model: Model,
    seed: int = 0,
    shapes: Mapping[str, int] | None = None,
    given: Mapping[str, Any] | Sequence[Any] | None = None,
) -> dict[str, Any]:
    """A random value for each input that needs one: the same for the same seed.

    Floats are normal, integers lie from 0 to 9, strings are words. A sequence has two elements, an optional is there.
    A dimension that the model leaves open has the size that ``shapes`` gives to its name, else the size that it has in
    an input that is ``given``, else 1.

    Args:
        model: a ModelProto, its serialized bytes, or a path.
        seed: of the random numbers; each input has a stream of its own.
        shapes: sizes of symbolic dimensions.
        given: inputs that there are already, by name or as a list; they come back as they are.

    >>> import onnx
    >>> x = onnx.helper.make_tensor_value_info("x", onnx.TensorProto.FLOAT, ["batch", 3])
    >>> model = onnx.helper.make_model(onnx.helper.make_graph([], "empty", [x], [x]))
    >>> random_inputs(model, shapes={"batch": 2})["x"].shape
    (2, 3)
    """
    graph = read_model(model).graph
    required = required_inputs(graph)
    feeds = _by_name(given, [value.name for value in required])
    shapes = {**_shapes_of(graph, feeds), **(shapes or {})}
    for value in required:
        if value.name not in feeds:
            # A generator for each input: its values do not depend on what other inputs there are.
            random = np.random.default_rng([seed, *value.name.encode()])
            feeds[value.name] = _value(value.type, random, shapes, value.name)
    return feeds


def _by_name(given: Mapping[str, Any] | Sequence[Any] | None, names: list[str]) -> dict[str, Any]:
    if given is None:
        return {}
    if isinstance(given, Mapping):
        return dict(given)
    if len(given) != len(names):
        raise InputError(f"expected {len(names)} inputs ({', '.join(names)}), not {len(given)}")
    return dict(zip(names, given, strict=True))


def _shapes_of(graph: onnx.GraphProto, feeds: Mapping[str, Any]) -> dict[str, int]:
    """The sizes of symbolic dimensions in the values of inputs."""
    sizes: dict[str, int] = {}
    for info in graph.input:
        shape = getattr(feeds.get(info.name), "shape", ())
        dims = info.type.tensor_type.shape.dim
        if len(dims) == len(shape):
            sizes.update((dim.dim_param, size) for dim, size in zip(dims, shape, strict=True) if dim.dim_param)
    return sizes


def _value(type_: onnx.TypeProto, random: np.random.Generator, shapes: Mapping[str, int], name: str) -> Any:
    kind = type_.WhichOneof("value")
    if kind == "sequence_type":
        return [_value(type_.sequence_type.elem_type, random, shapes, name) for _ in range(2)]
    if kind == "optional_type":
        return _value(type_.optional_type.elem_type, random, shapes, name)
    if kind == "tensor_type":
        return _tensor(type_.tensor_type, random, shapes)
    raise InputError(f'a value for the input "{name}" ({kind}) cannot be made up')


def _tensor(tensor: onnx.TypeProto.Tensor, random: np.random.Generator, shapes: Mapping[str, int]) -> np.ndarray:
    sizes = (fixed_size(dim) for dim in tensor.shape.dim)
    shape = [shapes.get(d.dim_param, 1) if n is None else n for d, n in zip(tensor.shape.dim, sizes, strict=True)]
    dtype = helper.tensor_dtype_to_np_dtype(tensor.elem_type)
    data: Any
    if tensor.elem_type == TensorProto.STRING:
        data = random.choice(["a", "word", "or two"], shape)
    elif dtype == np.bool_:
        data = random.integers(0, 2, shape)
    elif np.issubdtype(dtype, np.integer):
        data = random.integers(0, 10, shape)
    else:
        data = random.standard_normal(shape)
    return np.asarray(data).astype(dtype)
