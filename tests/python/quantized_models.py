"""Quantized models, and what their results are compared with."""

from __future__ import annotations

import functools
import re
from typing import Any

import numpy as np
import onnx
import onnxruntime
from onnx import numpy_helper, parser

import onnx_torch
from random_numbers import RNG


def model(text: str, **weights: Any) -> onnx.ModelProto:
    parsed = parser.parse_model(f'<ir_version: 10, opset_import: ["": 21]> net {text}')
    for name, value in weights.items():
        parsed.graph.initializer.append(numpy_helper.from_array(np.asarray(value), name))
    onnx.checker.check_model(parsed)
    return parsed


def floats(*shape: int, scale: float = 1) -> np.ndarray:
    return RNG.standard_normal(shape, np.float32) * np.float32(scale)


def weights(*shape: int) -> np.ndarray:
    return RNG.integers(-127, 128, shape, np.int8)


def scales(count: int) -> np.ndarray:
    return RNG.uniform(0.001, 0.01, count).astype(np.float32)


def f32(number: float) -> np.float32:
    return np.float32(number)


def calls(source: onnx.ModelProto, step: str | None = None) -> list[str]:
    """Names the operators that the lowered graph calls, or the graph after a step, without ranks and element types."""
    prepared = onnx_torch.prepare(source)
    graph = prepared.graphs()[step] if step else prepared.graph()
    return re.findall(r"= ((?:aten|onnx_torch)::\w+)\(", graph)


@functools.cache
def onnxruntime_saturates() -> bool:
    """Tells whether onnxruntime's sums of uint8 by int8 saturate at 16 bits, as on CPUs of x86 without VNNI."""
    w = np.full((64, 16), 127, np.int8)
    source = model("(uint8[1, 64] x) => (int32[1, 16] y) { y = MatMulInteger(x, w) }", w=w)
    session = onnxruntime.InferenceSession(source.SerializeToString(), providers=["CPUExecutionProvider"])
    return bool((session.run(None, {"x": np.full((1, 64), 255, np.uint8)})[0] != 255 * 127 * 64).any())


def with_unsigned_weights(source: onnx.ModelProto) -> onnx.ModelProto:
    """Gives a model that means the same with weights of uint8, whose sums onnxruntime gives exactly on each CPU."""
    result = onnx.ModelProto.FromString(source.SerializeToString())
    arrays = {tensor.name: numpy_helper.to_array(tensor) for tensor in result.graph.initializer}
    for node in result.graph.node:
        if node.op_type not in ("QLinearConv", "QLinearMatMul", "QGemm"):
            continue
        x_zero, w, w_zero = (arrays.get(node.input[i], np.empty(0)) for i in (2, 3, 5))
        if (x_zero.dtype, w.dtype, w_zero.dtype) == (np.uint8, np.int8, np.int8):
            for name, array in ((node.input[3], w), (node.input[5], w_zero)):
                arrays[name] = (array.astype(np.int16) + 128).astype(np.uint8)
    del result.graph.initializer[:]
    result.graph.initializer.extend(numpy_helper.from_array(array, name) for name, array in arrays.items())
    return result


def by_onnxruntime(source: onnx.ModelProto, inputs: list[np.ndarray]) -> list[np.ndarray]:
    options = onnxruntime.SessionOptions()
    options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_DISABLE_ALL
    source = with_unsigned_weights(source) if onnxruntime_saturates() else source
    session = onnxruntime.InferenceSession(source.SerializeToString(), options, ["CPUExecutionProvider"])
    return list(session.run(None, {value.name: x for value, x in zip(source.graph.input, inputs, strict=True)}))


def check_exact(source: onnx.ModelProto, *inputs: np.ndarray, **options: Any) -> list[np.ndarray]:
    ours = onnx_torch.prepare(source, **options).run(list(inputs))
    plain = onnx_torch.prepare(source, optimize=False).run(list(inputs))
    for result, expected in zip(ours, plain, strict=True):
        np.testing.assert_array_equal(result, expected)
        assert result.dtype == expected.dtype
    return list(ours)


def check_close(source: onnx.ModelProto, *inputs: np.ndarray, share: float = 0.002) -> None:
    """Checks that results of 8 bits are equal but for a few that lie at a tie: the plain graph adds in float32 what is
    exact here, and may round to the other side.
    """
    for expected in (
        onnx_torch.prepare(source, optimize=False).run(list(inputs)),
        by_onnxruntime(source, list(inputs)),
    ):
        for result, other in zip(onnx_torch.prepare(source).run(list(inputs)), expected, strict=True):
            assert result.dtype == other.dtype
            difference = np.abs(result.astype(np.int64) - other.astype(np.int64))
            assert difference.max(initial=0) <= 1
            assert (difference > 0).mean() <= share


SPECIAL = np.array(
    [np.nan, np.inf, -np.inf, 0, -0.0, 0.5, -0.5, 1.5, 2.5, -1.5, 1e-45, 3e38, -3e38, 127.5, -128.5, 254.5, 255.5],
    np.float32,
)


CONV = """({kind}[2, 32, 9, 8] x) => ({kind}[A, B, C, D] y) {{
            f = DequantizeLinear(x, xs, xz)
            w = DequantizeLinear<axis = 0>(wq, ws, wz)
            b = DequantizeLinear<axis = 0>(bq, bs, bz)
            c = Conv{attributes}(f, w, b)
            {step}
            y = QuantizeLinear(r, ys, yz)
          }}"""


def convolution(
    attributes: str = "",
    shape: tuple[int, ...] = (48, 32, 3, 3),
    kind: str = "uint8",
    zero_points: tuple[int, int] = (3, 120),
    per_channel: bool = True,
    step: str = "r = Identity(c)",
) -> onnx.ModelProto:
    count = shape[0] if per_channel else 1
    shaped = (lambda array: array) if per_channel else (lambda array: array[0])
    ws = scales(count)
    return model(
        CONV.format(kind=kind, attributes=attributes, step=step),
        xs=f32(0.02),
        xz=np.dtype(kind).type(zero_points[0]),
        wq=weights(*shape),
        ws=shaped(ws),
        wz=shaped(np.zeros(count, np.int8)),
        bq=RNG.integers(-9999, 9999, shape[0], np.int32),
        bs=shaped(ws * f32(0.02)),
        bz=shaped(np.zeros(count, np.int32)),
        ys=f32(0.07),
        yz=np.dtype(kind).type(zero_points[1]),
        **({"low": f32(-1), "high": f32(2)} if "Clip" in step else {}),
    )


IMAGES = (2, 32, 9, 8)


def numbers(kind: Any, most: int, *shape: int) -> np.ndarray:
    limits = np.iinfo(kind)
    found = RNG.integers(max(limits.min, -most), most + 1, shape, kind)
    found.flat[:2] = max(limits.min, -most), most
    return found
