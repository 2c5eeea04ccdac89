"""Small models for passes, what is done with them, and what they are compared with."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from typing import Any

import ml_dtypes
import numpy as np
import onnx
from onnx import numpy_helper, parser
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
    """A model of opset 23 in ONNX's own notation, with weights of these shapes or values."""
    parsed = parser.parse_model(f'<ir_version: 10, opset_import: ["": 23]> net {text}')
    for name, value in weights.items():
        array = RNG.standard_normal(value, np.float32) if isinstance(value, tuple) else np.asarray(value)
        parsed.graph.initializer.append(numpy_helper.from_array(array, name))
    return parsed


def used_in(body: str, weights: dict[str, Any]) -> dict[str, Any]:
    """Those of the weights that a graph's text names."""
    return {name: value for name, value in weights.items() if re.search(rf"\b{name}\b", body)}


def code(graph: str) -> str:
    """A graph's calls, one a line, without types, names of values and comments."""
    return "\n".join(re.findall(r"= ((?:aten|onnx_torch|prim::(?!Constant|ListConstruct))\S*?)\(", graph))


def check_each(source: onnx.ModelProto, feeds: Iterable[Sequence[np.ndarray]], **options: Any) -> None:
    optimized = onnx_torch.prepare(source, **options)
    plain = onnx_torch.prepare(source, optimize=False, **options)
    for inputs in feeds:
        for ours, expected in zip(optimized.run(inputs), plain.run(inputs), strict=True):
            np.testing.assert_allclose(ours, expected, rtol=1e-4, atol=1e-4)
            assert ours.dtype == expected.dtype


def check_equal(source: onnx.ModelProto, inputs: Sequence[np.ndarray], **options: Any) -> None:
    check_each(source, [inputs], **options)


def check_gelu_of_product(source: onnx.ModelProto, inputs: Sequence[np.ndarray], weight: str, bias: str = "") -> None:
    """Against the formula, as ATen gives NaN for the Gelu of infinity, where the specification's is infinity."""
    values = {w.name: numpy_helper.to_array(w).astype(np.float64) for w in source.graph.initializer}
    with np.errstate(invalid="ignore"):
        g = inputs[0].astype(np.float64) @ values[weight] + values.get(bias, 0)
        expected = g * (1 + erf(g / np.sqrt(2))) / 2
    (found,) = onnx_torch.prepare(source).run(inputs)
    np.testing.assert_allclose(found, expected, rtol=1e-4, atol=1e-4)


def graph_of(source: onnx.ModelProto, step: str, **options: Any) -> str:
    return code(onnx_torch.prepare(source, **options).graphs()[step])


def floats(*shape: int) -> np.ndarray:
    return RNG.standard_normal(shape, np.float32)


# Below AVX-512 oneDNN's Gelu loses the sign of zeros, or takes longer than a chain.
TAKES_GELU = _C.cpu_features()["vectors"] == "AVX512"
