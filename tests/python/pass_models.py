"""Small models for passes, with what is done with them, and what they are compared with."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence
from typing import Any

import ml_dtypes
import numpy as np
import onnx
from onnx import TensorProto, numpy_helper, parser
from scipy.special import erf

import onnx_torch
from onnx_torch import _C
from random_numbers import RNG

DTYPES = {
    "bool": np.bool_,
    "float": np.float32,
    "double": np.float64,
    "float16": np.float16,
    "bfloat16": ml_dtypes.bfloat16,
    "int8": np.int8,
    "uint8": np.uint8,
    "int16": np.int16,
    "uint16": np.uint16,
    "int32": np.int32,
    "uint32": np.uint32,
    "int64": np.int64,
    "uint64": np.uint64,
    "complex128": np.complex128,
}


def model(text: str, **weights: Any) -> onnx.ModelProto:
    """Makes a model of opset 23 from ONNX's own notation, with weights of these shapes or values."""
    parsed = parser.parse_model(f'<ir_version: 10, opset_import: ["": 23]> net {text}')
    for name, value in weights.items():
        array = RNG.standard_normal(value, np.float32) if isinstance(value, tuple) else np.asarray(value)
        parsed.graph.initializer.append(numpy_helper.from_array(array, name))
    return parsed


def used_in(body: str, weights: dict[str, Any]) -> dict[str, Any]:
    """Gives those of the weights that a graph's text names."""
    return {name: value for name, value in weights.items() if re.search(rf"\b{name}\b", body)}


def code(graph: str) -> str:
    """Lists a graph's calls, one a line, without types, names of values and comments."""
    return "\n".join(re.findall(r"= ((?:aten|onnx_torch|prim::(?!Constant|ListConstruct))\S*?)\(", graph))


def in_double(source: onnx.ModelProto) -> onnx.ModelProto:
    """Gives the model with float64 wherever it has float32."""
    wide = onnx.ModelProto()
    wide.CopyFrom(source)
    _widen(wide.graph)
    return wide


def _widen(graph: onnx.GraphProto) -> None:
    for value in (*graph.input, *graph.output, *graph.value_info):
        if value.type.tensor_type.elem_type == TensorProto.FLOAT:
            value.type.tensor_type.elem_type = TensorProto.DOUBLE
    scales = {node.input[2] for node in graph.node if node.op_type == "Resize" and len(node.input) > 2}
    for tensor in graph.initializer:
        if tensor.name not in scales:  # scales are float32 whatever the image is
            _widen_tensor(tensor)
    for attribute in (attribute for node in graph.node for attribute in node.attribute):
        if attribute.HasField("g"):
            _widen(attribute.g)
        elif attribute.HasField("t"):
            _widen_tensor(attribute.t)
        elif attribute.name in ("to", "dtype", "stash_type") and attribute.i == TensorProto.FLOAT:
            attribute.i = TensorProto.DOUBLE


def _widen_tensor(tensor: TensorProto) -> None:
    if tensor.data_type == TensorProto.FLOAT:
        tensor.CopyFrom(numpy_helper.from_array(numpy_helper.to_array(tensor).astype(np.float64), tensor.name))


def exact_runs(source: onnx.ModelProto, feeds: Iterable[Sequence[np.ndarray]], **options: Any) -> Iterator[list[Any]]:
    """Gives the outputs of a model in float64, without passes."""
    prepared = onnx_torch.prepare(in_double(source), optimize=False, **options)
    for inputs in feeds:
        yield list(
            prepared.run([x.astype(np.float64) if x.dtype == np.float32 else x for x in map(np.asarray, inputs)])
        )


def assert_close(found: np.ndarray, exact: np.ndarray, ulps: float = 16) -> None:
    """Checks that elements differ by no more than so many units in the last place of the largest finite one."""
    if found.dtype.kind in "biuO":
        np.testing.assert_array_equal(found, exact)
        return
    wide = np.complex128 if found.dtype.kind == "c" else np.float64
    exact = exact.astype(wide)
    largest = np.abs(exact[np.isfinite(exact)]).max(initial=0)
    unit = float(ml_dtypes.finfo(found.dtype).eps) * largest
    np.testing.assert_allclose(found.astype(wide), exact, rtol=0, atol=ulps * unit)


def check_each(
    source: onnx.ModelProto, feeds: Iterable[Sequence[np.ndarray]], ulps: float = 16, **options: Any
) -> None:
    """Checks that what the passes make of a model is as near to what it is in float64 as float32 lets it be."""
    feeds = list(feeds)
    optimized = onnx_torch.prepare(source, **options)
    plain = onnx_torch.prepare(source, optimize=False, **options)
    for inputs, exact in zip(feeds, exact_runs(source, feeds, **options), strict=True):
        for found, expected, one in zip(optimized.run(inputs), exact, plain.run(inputs), strict=True):
            assert (found.dtype, found.shape) == (one.dtype, one.shape)
            assert_close(found, expected, ulps)


def check_equal(source: onnx.ModelProto, inputs: Sequence[np.ndarray], **options: Any) -> None:
    check_each(source, [inputs], **options)


def check_overflowing(source: onnx.ModelProto, inputs: Sequence[np.ndarray], **options: Any) -> None:
    """Checks that a result which overflows in float32, and not in float64, is as it is without passes."""
    optimized = onnx_torch.prepare(source, **options)
    plain = onnx_torch.prepare(source, optimize=False, **options)
    for found, expected in zip(optimized.run(inputs), plain.run(inputs), strict=True):
        assert found.dtype == expected.dtype
        np.testing.assert_allclose(found, expected, rtol=1e-4, atol=1e-4)  # small numbers lie beside huge ones


def check_gelu_of_product(source: onnx.ModelProto, inputs: Sequence[np.ndarray], weight: str, bias: str = "") -> None:
    """Checks against the formula, as ATen gives NaN for the Gelu of infinity, where the specification's is infinity."""
    values = {w.name: numpy_helper.to_array(w).astype(np.float64) for w in source.graph.initializer}
    with np.errstate(invalid="ignore"):
        g = inputs[0].astype(np.float64) @ values[weight] + values.get(bias, 0)
        expected = g * (1 + erf(g / np.sqrt(2))) / 2
    (found,) = onnx_torch.prepare(source).run(inputs)
    np.testing.assert_allclose(found, expected, rtol=1e-4, atol=1e-4)  # small numbers lie beside huge ones


def graph_of(source: onnx.ModelProto, step: str, **options: Any) -> str:
    return code(onnx_torch.prepare(source, **options).graphs()[step])


def floats(*shape: int) -> np.ndarray:
    return RNG.standard_normal(shape, np.float32)


# Below AVX-512 oneDNN's Gelu loses the sign of zeros, or takes longer than a chain.
TAKES_GELU = _C.cpu_features()["vectors"] == "AVX512"
