"""Made-up inputs, for anyone who wants to see a model run before having data for it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import onnx
from onnx import TensorProto, helper

from ..errors import InputError
from .files import fixed_size, read_model, required_inputs
from .fixed_shapes import FixedShapes
from .given import Model


def random_inputs(
    model: Model,
    seed: int = 0,
    shapes: FixedShapes | None = None,
    given: Mapping[str, Any] | Sequence[Any] | None = None,
) -> dict[str, Any]:
    """Makes a random value for each input that needs one: the same for the same seed.

    Floats are normal, integers lie from 0 to 9, strings are words. A sequence has two elements, an optional is there.
    A dimension that the model leaves open has the size that ``shapes`` gives to its name, else the size that it has in
    an input that is ``given``, else 1.

    Args:
        model: a ModelProto, its serialized bytes, or a path.
        seed: the seed of the random numbers; each input has a stream of its own.
        shapes: sizes of symbolic dimensions, and shapes of inputs, by their names; None in one leaves a size as it is.
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
    whole = {name: shape for name, shape in (shapes or {}).items() if isinstance(shape, Sequence)}
    sizes = _sizes_in(graph, feeds) | {n: size for n, size in (shapes or {}).items() if not isinstance(size, Sequence)}
    for value in required:
        if value.name not in feeds:
            # Each input has a generator of its own, so its values do not depend on what other inputs there are.
            random = np.random.default_rng([seed, *value.name.encode()])
            feeds[value.name] = _value(value.type, random, sizes, value.name, whole.get(value.name))
    return feeds


def _by_name(given: Mapping[str, Any] | Sequence[Any] | None, names: list[str]) -> dict[str, Any]:
    if given is None:
        return {}
    if isinstance(given, Mapping):
        return dict(given)
    if len(given) != len(names):
        raise InputError(f"expected {len(names)} inputs ({', '.join(names)}), not {len(given)}")
    return dict(zip(names, given, strict=True))


def _sizes_in(graph: onnx.GraphProto, feeds: Mapping[str, Any]) -> dict[str, int]:
    """Finds the sizes of symbolic dimensions in the values of inputs."""
    sizes: dict[str, int] = {}
    for info in graph.input:
        shape = getattr(feeds.get(info.name), "shape", ())
        dims = info.type.tensor_type.shape.dim
        if len(dims) == len(shape):
            sizes.update((dim.dim_param, size) for dim, size in zip(dims, shape, strict=True) if dim.dim_param)
    return sizes


def _value(
    type_: onnx.TypeProto,
    random: np.random.Generator,
    sizes: Mapping[str, int],
    name: str,
    shape: Sequence[int | None] | None,
) -> Any:
    kind = type_.WhichOneof("value")
    if kind == "sequence_type":
        return [_value(type_.sequence_type.elem_type, random, sizes, name, shape) for _ in range(2)]
    if kind == "optional_type":
        return _value(type_.optional_type.elem_type, random, sizes, name, shape)
    if kind == "tensor_type":
        wanted = _filled(shape, _shape(type_.tensor_type.shape, sizes))
        try:
            return _tensor(type_.tensor_type.elem_type, wanted, random)
        except (KeyError, MemoryError, ValueError) as error:  # numpy's, and onnx's for element types it does not know
            raise InputError(f'a value of sizes {wanted} for the input "{name}" cannot be made up: {error}') from error
    raise InputError(f'a value for the input "{name}" ({kind}) cannot be made up')


def _shape(shape: onnx.TensorShapeProto, sizes: Mapping[str, int]) -> list[int]:
    fixed = [(dim, fixed_size(dim)) for dim in shape.dim]
    return [sizes.get(dim.dim_param, 1) if size is None else size for dim, size in fixed]


def _filled(shape: Sequence[int | None] | None, declared: list[int]) -> list[int]:
    if not shape:
        return declared
    beyond = [1] * len(shape)
    return [there if size is None else size for size, there in zip(shape, [*declared, *beyond], strict=False)]


def _tensor(element: int, shape: Sequence[int], random: np.random.Generator) -> np.ndarray:
    dtype = helper.tensor_dtype_to_np_dtype(element)
    data: Any
    if element == TensorProto.STRING:
        data = random.choice(["a", "word", "or two"], shape)
    elif dtype == np.bool_:
        data = random.integers(0, 2, shape)
    elif np.issubdtype(dtype, np.integer):
        data = random.integers(0, 10, shape)
    else:
        data = random.standard_normal(shape)
    return np.asarray(data).astype(dtype)
