"""Small models with their results: operators in several element types, and patterns that passes make one operator of.

A model is computed a second time by ONNX's ReferenceEvaluator, in float64 where its element type is a float, from the
same numbers. Integers and booleans must be equal; floats may differ by a few units in the last place of their type.
"""

from __future__ import annotations

import math
import re
import time
import zlib
from collections.abc import Callable, Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field, replace
from typing import Any

import ml_dtypes
import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper, parser
from onnx.reference import ReferenceEvaluator
from onnx.reference.op_run import OpRun

from .._progress import Progress
from ..prepared_model import PreparedModel, prepare
from .results import Failure, Part

OPSET = 22
WIDE, HALF = ("float", "double"), ("float16", "bfloat16")
FLOATS = (*WIDE, *HALF)
NUMBERS = (*FLOATS, "int8", "uint8", "int32", "int64")
ALL = (*NUMBERS, "bool")


@dataclass(frozen=True)
class Sample:
    """A model in ONNX's text form, in which T stands for the element type."""

    name: str
    body: str  #: computes y
    inputs: Mapping[str, Sequence[int]] = field(default_factory=lambda: {"x": (3, 37)})
    weights: Mapping[str, Any] = field(default_factory=dict)  #: a shape, a number, or an array, which is taken as it is
    units: float = 2.0  #: how far floats may be off, in units in the last place
    of_largest: bool = True  #: the units are of the largest element of the result, or else of each element
    step: float = 0.0  #: how far floats may be off besides, as where a value to quantize is at a tie
    options: Mapping[str, Any] = field(default_factory=dict)  #: options of `prepare`
    rounds_to: str = ""  #: the type whose units count, if not T

    def model(self, element: str) -> onnx.ModelProto:
        inputs = ", ".join(f"T[{','.join(map(str, shape))}] {name}" for name, shape in self.inputs.items())
        text = re.sub(r"\bT\b", element, f"net ({inputs}) => (y) {{ {self.body} }}")
        model = parser.parse_model(f'<ir_version: 10, opset_import: ["": {OPSET}]> {text}')
        for name, value in self.weights.items():
            array = value if isinstance(value, np.ndarray) else self._weight(name, value, element)
            model.graph.initializer.append(numpy_helper.from_array(array, name))
        return model

    def _weight(self, name: str, value: float | Sequence[int], element: str) -> np.ndarray:
        """Makes a weight with elements around 0, as in a layer: smaller the more terms a sum has."""
        if isinstance(value, (int, float)):
            return np.array(value).astype(_dtype(element))
        random = _values(f"{self.name}/{name}", value, "double")
        terms = math.prod(value[1:]) if len(value) > 2 else value[0]
        return (random / math.sqrt(terms)).astype(_dtype(element))

    def feeds(self, element: str) -> dict[str, np.ndarray]:
        return {name: _values(f"{self.name}/{name}", shape, element) for name, shape in self.inputs.items()}

    def expected(self, element: str) -> np.ndarray:
        """Computes what the model must give, in float64 for floats, unless integers take part."""
        model, feeds = self.model(element), self.feeds(element)
        if element in FLOATS and not self.step:
            model = self._widened(element)
            feeds = {name: value.astype(np.float64) for name, value in feeds.items()}
        with np.errstate(all="ignore"):
            result, *_ = ReferenceEvaluator(model, new_ops=[Erf, Gelu, HardSwish]).run(None, feeds)
        return np.asarray(result)

    def _widened(self, element: str) -> onnx.ModelProto:
        narrow, wide = self.model(element), self.model("double")
        for tensor, same in zip(narrow.graph.initializer, wide.graph.initializer, strict=True):
            if same.data_type == TensorProto.DOUBLE:
                same.CopyFrom(numpy_helper.from_array(numpy_helper.to_array(tensor).astype(np.float64), same.name))
        return wide

    def check(self, element: str, actual: np.ndarray, expected: np.ndarray) -> None:
        """Raises an AssertionError where the result is not the expected one."""
        if actual.shape != expected.shape:
            raise AssertionError(f"expected the shape {expected.shape}, got {actual.shape}")
        dtype = _dtype(element) if _is_float(expected.dtype) else expected.dtype
        if actual.dtype != dtype:
            raise AssertionError(f"expected {dtype}, got {actual.dtype}")
        if not _is_float(dtype):
            np.testing.assert_array_equal(actual, expected)
            return
        exact, found = expected.astype(np.float64), actual.astype(np.float64)
        with np.errstate(all="ignore"):
            size = np.abs(exact)[np.isfinite(exact)].max(initial=0) if self.of_largest else np.abs(exact)
            allowed = np.broadcast_to(self.units * _unit(self.rounds_to or element) * size + self.step, exact.shape)
            off = np.abs(found - exact)
        close = np.isfinite(exact) & (off <= allowed)
        same = close | (exact == found) | (np.isnan(exact) & np.isnan(found))
        if not same.all():
            raise AssertionError(
                f"{np.count_nonzero(~same)} of {np.size(same)} elements differ, where {allowed[~same].max():.3g} is "
                f"allowed. Max absolute difference among violations: {off[~same].max():.6g}"
            )


# The operators that the evaluator itself computes with float32's precision, whatever it is given.


def _erf(x: np.ndarray) -> np.ndarray:
    result: np.ndarray = np.vectorize(math.erf, otypes=[np.float64])(x)
    return result


class Erf(OpRun):  # type: ignore[misc,unused-ignore]
    op_domain = ""

    def _run(self, x: np.ndarray) -> tuple[np.ndarray]:
        return (_erf(x).astype(x.dtype),)


class Gelu(OpRun):  # type: ignore[misc,unused-ignore]
    op_domain = ""

    def _run(self, x: np.ndarray, approximate: str = "none") -> tuple[np.ndarray]:
        return ((0.5 * x * (1 + _erf(x / math.sqrt(2)))).astype(x.dtype),)


class HardSwish(OpRun):  # type: ignore[misc,unused-ignore]
    op_domain = ""

    def _run(self, x: np.ndarray) -> tuple[np.ndarray]:
        return ((x * np.clip(x / 6 + 0.5, 0, 1)).astype(x.dtype),)


def _dtype(element: str) -> np.dtype[Any]:
    return helper.tensor_dtype_to_np_dtype(TensorProto.DataType.Value(element.upper()))


def _is_float(dtype: np.dtype[Any]) -> bool:
    return dtype.kind == "f" or dtype == ml_dtypes.bfloat16


def _unit(element: str) -> float:
    return float(ml_dtypes.finfo(_dtype(element)).eps)  # type: ignore[no-untyped-call,unused-ignore]


def _values(seed: str, shape: Sequence[int], element: str) -> np.ndarray:
    """Makes the same numbers for the same seed: floats are normal, integers lie from 1 to 6."""
    random = np.random.default_rng(zlib.crc32(seed.encode()))
    if element == "bool":
        return random.integers(0, 2, shape).astype(bool)
    values = random.standard_normal(shape) if element in FLOATS else random.integers(1, 7, shape)
    return np.asarray(values).astype(_dtype(element))


# --- Operators ---

_TWO = {"x": (3, 37), "z": (37,)}
_IMAGE: dict[str, Sequence[int]] = {"x": (2, 3, 9, 11)}

_UNARY = (
    "Abs Neg Floor Ceil Round Sign Reciprocal Exp Erf Sin Cos Tanh Sigmoid Relu LeakyRelu Elu Selu Softplus "
    "HardSigmoid HardSwish Mish"
).split()
_ON_ALL_TYPES = {
    "Transpose": "y = Transpose (x)",
    "Concat": "y = Concat <axis = 0> (x, x)",
    "Slice": "s = Constant <value_ints = [1, 3]> () e = Constant <value_ints = [3, 30]> () "
    "a = Constant <value_ints = [0, 1]> () t = Constant <value_ints = [1, 2]> () y = Slice (x, s, e, a, t)",
    "Gather": "i = Constant <value_ints = [2, -3, 36, 0]> () y = Gather <axis = 1> (x, i)",
    "Tile": "r = Constant <value_ints = [2, 3]> () y = Tile (x, r)",
    "Expand": "s = Constant <value_ints = [2, 3, 37]> () y = Expand (x, s)",
    "Reshape": "s = Constant <value_ints = [37, -1]> () y = Reshape (x, s)",
    "Pad": "p = Constant <value_ints = [1, 2, 0, 3]> () y = Pad (x, p)",
    "Equal": "y = Equal (x, x)",
}
_REDUCTIONS = ["ReduceSum", "ReduceMean", "ReduceMax", "ReduceMin", "ReduceL1", "ReduceL2", "ReduceLogSumExp"]
_PRODUCTS: dict[str, tuple[str, dict[str, Sequence[int]], dict[str, Sequence[int]]]] = {
    "MatMul": ("y = MatMul (x, w)", {"x": (7, 45)}, {"w": (45, 19)}),
    "Gemm": ("y = Gemm <transB = 1, alpha = 0.5> (x, w, b)", {"x": (7, 45)}, {"w": (19, 45), "b": (19,)}),
    "Conv": ("y = Conv <pads = [1, 1, 1, 1]> (x, w, b)", _IMAGE, {"w": (8, 3, 3, 3), "b": (8,)}),
    "Conv, strided": ("y = Conv <strides = [2, 2]> (x, w)", _IMAGE, {"w": (8, 3, 3, 3)}),
    "Conv, depthwise": ("y = Conv <group = 3> (x, w)", _IMAGE, {"w": (3, 1, 3, 3)}),
    "ConvTranspose": ("y = ConvTranspose <strides = [2, 2]> (x, w)", _IMAGE, {"w": (3, 4, 3, 3)}),
    "MaxPool": ("y = MaxPool <kernel_shape = [3, 3], strides = [2, 2]> (x)", _IMAGE, {}),
    "AveragePool": ("y = AveragePool <kernel_shape = [3, 3], pads = [1, 1, 1, 1]> (x)", _IMAGE, {}),
    "GlobalAveragePool": ("y = GlobalAveragePool (x)", _IMAGE, {}),
    "Softmax": ("y = Softmax (x)", {"x": (3, 37)}, {}),
    "LogSoftmax": ("y = LogSoftmax (x)", {"x": (3, 37)}, {}),
    "BatchNormalization": (
        "v = Abs (u) y = BatchNormalization (x, s, b, m, v)",
        {**_IMAGE, "u": (3,)},
        {"s": (3,), "b": (3,), "m": (3,)},
    ),
    "InstanceNormalization": ("y = InstanceNormalization (x, s, b)", _IMAGE, {"s": (3,), "b": (3,)}),
    "Gelu": ("y = Gelu (x)", {"x": (3, 37)}, {}),
}


def operator_samples() -> list[tuple[Sample, str]]:
    """Lists samples of operators, each with an element type."""
    samples: list[tuple[Sample, Iterable[str]]] = []
    samples += [(Sample(op, f"y = {op} (x)", units=4, of_largest=False), FLOATS) for op in _UNARY]
    samples += [(Sample(op, f"a = Abs (x) y = {op} (a)", units=4, of_largest=False), FLOATS) for op in ("Log", "Sqrt")]
    samples += [(Sample(op, f"y = {op} (x, z)", _TWO), NUMBERS) for op in ("Add", "Sub", "Mul", "Div", "Max", "Min")]
    samples += [(Sample("Pow", "a = Abs (x) y = Pow (a, z)", _TWO, units=8), FLOATS)]
    samples += [(Sample(op, f"y = {op} (x, z)", _TWO), NUMBERS) for op in ("Less", "Greater", "Equal")]
    samples += [(Sample("Where", "c = Less (x, z) y = Where (c, x, z)", _TWO), NUMBERS)]
    samples += [(Sample(op, body), ALL) for op, body in _ON_ALL_TYPES.items()]
    axis = "a = Constant <value_ints = [1]> ()"
    # Sums of half precision are rounded at their end alone.
    for types, units in ((WIDE, 16), (HALF, 3)):
        samples += [(Sample(op, f"{axis} y = {op} (x, a)", units=units), types) for op in _REDUCTIONS]
        samples += [(Sample(op, *model, units=units), types) for op, model in _PRODUCTS.items()]
    samples += [(Sample("ReduceSum", f"{axis} y = ReduceSum (x, a)"), ("int32", "int64"))]
    samples += [(Sample(op, f"y = {op} <axis = 1> (x)"), NUMBERS) for op in ("ArgMax", "ArgMin")]
    cumsum = Sample("CumSum", "a = Constant <value_int = 1> () y = CumSum (x, a)", units=16)
    samples += [(cumsum, ("float", "double", "int32"))]
    samples += [(Sample("TopK", "k = Constant <value_ints = [5]> () y, i = TopK (x, k)"), ("float", "double", "int64"))]
    # LayerNormalization's first stage is in float32, by its attribute stash_type, whatever is normalized.
    norm = Sample("LayerNormalization", "y = LayerNormalization (x, s, b)", weights={"s": (37,), "b": (37,)}, units=4)
    samples += [(norm, ("float", *HALF)), (replace(norm, rounds_to="float"), ("double",))]
    samples += [
        (Sample(f"Cast to {to}", f"y = Cast <to = {TensorProto.DataType.Value(to.upper())}> (x)"), NUMBERS)
        for to in ("int32", "bool")
    ]
    return [(sample, element) for sample, elements in samples for element in elements]


# --- What passes put together ---

_HEADS = {"q": (2, 4, 21, 16), "k": (2, 4, 21, 16), "v": (2, 4, 21, 16)}
_LAYER = {"w": (64, 96), "b": (96,)}
_COMPOSED = [
    Sample(
        "convolution + bias + Relu",
        "c = Conv <pads = [1, 1, 1, 1]> (x, w, b) y = Relu (c)",
        {"x": (1, 16, 23, 19)},
        {"w": (32, 16, 3, 3), "b": (32,)},
    ),
    Sample(
        "convolution + residual + Relu",
        "c = Conv <pads = [1, 1, 1, 1]> (x, w) s = Add (c, x) y = Relu (s)",
        {"x": (1, 16, 23, 19)},
        {"w": (16, 16, 3, 3)},
    ),
    Sample(
        "depthwise convolution + HardSwish",
        "c = Conv <group = 16, pads = [1, 1, 1, 1]> (x, w, b) y = HardSwish (c)",
        {"x": (1, 16, 23, 19)},
        {"w": (16, 1, 3, 3), "b": (16,)},
    ),
    Sample(
        "convolution + BatchNormalization + Silu",
        "c = Conv (x, w) n = BatchNormalization (c, s, b, m, v) g = Sigmoid (n) y = Mul (n, g)",
        {"x": (1, 8, 17, 17)},
        {"w": (24, 8, 3, 3), "s": (24,), "b": (24,), "m": (24,), "v": np.linspace(0.5, 2, 24, dtype=np.float32)},
    ),
    Sample("Gemm + Gelu", "c = MatMul (x, w) d = Add (c, b) y = Gelu (d)", {"x": (33, 64)}, _LAYER),
    Sample(
        "Gemm + Gelu of five nodes",
        "c = MatMul (x, w) d = Add (c, b) q = Div (d, r) e = Erf (q) f = Add (e, one) g = Mul (d, f) y = Mul (g, half)",
        {"x": (33, 64)},
        {**_LAYER, "r": math.sqrt(2), "one": 1.0, "half": 0.5},
    ),
    Sample("one row of a product", "y = MatMul (x, w)", {"x": (1, 512)}, {"w": (512, 384)}),
    Sample(
        "attention",
        "t = Transpose <perm = [0, 1, 3, 2]> (k) s = MatMul (q, t) c = Mul (s, scale) p = Softmax <axis = -1> (c) "
        "y = MatMul (p, v)",
        _HEADS,
        {"scale": 0.25},
    ),
    Sample(
        "attention with a mask",
        "t = Transpose <perm = [0, 1, 3, 2]> (k) s = MatMul (q, t) c = Mul (s, scale) m = Add (c, mask) "
        "p = Softmax <axis = -1> (m) y = MatMul (p, v)",
        {**_HEADS, "mask": (2, 1, 1, 21)},
        {"scale": 0.25},
    ),
    Sample(
        "Add + LayerNormalization",
        "a = Add (x, z) y = LayerNormalization (a, s, b)",
        {"x": (5, 9, 96), "z": (5, 9, 96)},
        {"s": (96,), "b": (96,)},
    ),
    Sample(
        "LayerNormalization of nine nodes",
        "i = Constant <value_ints = [-1]> () m = ReduceMean (x, i) d = Sub (x, m) q = Mul (d, d) "
        "v = ReduceMean (q, i) e = Add (v, small) r = Sqrt (e) n = Div (d, r) f = Mul (n, s) y = Add (f, b)",
        {"x": (5, 9, 96)},
        {"s": (96,), "b": (96,), "small": 1e-5},
    ),
    Sample(
        "chain of twelve operators",
        "a = Mul (x, z) b = Add (a, x) c = Tanh (b) d = Sigmoid (c) e = Sub (d, x) f = Abs (e) g = Sqrt (f) "
        "h = Exp (g) i = Neg (h) j = Max (i, x) k = Mul (j, j) y = Add (k, z)",
        {"x": (7, 33, 41), "z": (33, 1)},
    ),
    Sample(
        "chain + Softmax",
        "a = Mul (x, half) b = Add (a, z) c = Relu (b) d = Softmax <axis = -1> (c) y = Mul (d, x)",
        {"x": (7, 33, 41), "z": (41,)},
        {"half": 0.5},
    ),
    Sample(
        "chain that ends in a sum",
        "i = Constant <value_ints = [-1]> () a = Sub (x, z) b = Mul (a, a) c = Exp (b) d = Neg (b) e = Mul (c, d) "
        "y = ReduceSum <keepdims = 0> (e, i)",
        {"x": (7, 33, 41), "z": (41,)},
    ),
    Sample(
        "LSTM",
        "y, h, c = LSTM <hidden_size = 24> (x, w, r, b)",
        {"x": (11, 3, 16)},
        {"w": (1, 96, 16), "r": (1, 96, 24), "b": (1, 192)},
    ),
    Sample(
        "GRU",
        "y, h = GRU <hidden_size = 24, linear_before_reset = 1> (x, w, r, b)",
        {"x": (11, 3, 16)},
        {"w": (1, 72, 16), "r": (1, 72, 24), "b": (1, 144)},
    ),
    Sample(
        "transposed convolution + Relu",
        "c = ConvTranspose <strides = [2, 2]> (x, w, b) y = Relu (c)",
        {"x": (1, 16, 13, 11)},
        {"w": (16, 24, 3, 3), "b": (24,)},
    ),
]


_CUDNNS = ("LSTM", "GRU")  # cuDNN's tanh and sigmoid of float32 were up to 54 units off on an H200


def composed_samples(device: str = "CPU") -> list[tuple[Sample, str]]:
    """Lists samples that become one operator, or a chain, in float32."""
    on_cpu = device.upper().startswith("CPU")
    units = dict.fromkeys(_CUDNNS, 32.0 if on_cpu else 64.0)
    return [(replace(sample, units=units.get(sample.name, 32.0)), "float") for sample in _COMPOSED]


# --- 8 bits and half precision ---


def _bytes(seed: str, shape: Sequence[int], dtype: type) -> np.ndarray:
    info = np.iinfo(dtype)
    random = np.random.default_rng(zlib.crc32(seed.encode()))
    return random.integers(info.min, info.max, shape, endpoint=True).astype(dtype)


_STEP = 1 / 16
_QUANTIZED_INPUT = {"s": np.float32(_STEP), "z": np.uint8(120), "t": np.float32(0.005)}
_DEQUANTIZE = "q = QuantizeLinear (x, s, z) d = DequantizeLinear (q, s, z) w = DequantizeLinear (wq, t) "
_REQUANTIZE = "o = QuantizeLinear (r, s, z) y = DequantizeLinear (o, s, z)"


def _quantized() -> list[Sample]:
    scalars = {name: np.asarray(value) for name, value in _QUANTIZED_INPUT.items()}
    samples = []
    for large, dtype in (("", np.int8), (", unsigned weights", np.uint8)):
        zero = {} if dtype == np.int8 else {"u": np.asarray(128, np.uint8)}
        dequantize = _DEQUANTIZE.replace("(wq, t)", "(wq, t, u)") if zero else _DEQUANTIZE
        samples += [
            Sample(
                f"QDQ convolution + Relu{large}",
                dequantize + "c = Conv <pads = [1, 1, 1, 1]> (d, w) r = Relu (c) " + _REQUANTIZE,
                {"x": (1, 16, 15, 13)},
                {**scalars, **zero, "wq": _bytes("conv", (24, 16, 3, 3), dtype)},
                step=_STEP * 1.001,
            ),
            Sample(
                f"QDQ product{large}",
                dequantize + "r = MatMul (d, w) " + _REQUANTIZE,
                {"x": (9, 96)},
                {**scalars, **zero, "wq": _bytes("product", (96, 40), dtype)},
                step=_STEP * 1.001,
            ),
        ]
    samples += [
        Sample(
            "dynamically quantized product",
            "q, s, z = DynamicQuantizeLinear (x) i = MatMulInteger (q, wq, z) f = Cast <to = 1> (i) u = Mul (s, t) "
            "y = Mul (f, u)",
            {"x": (9, 96)},
            {"wq": _bytes("dynamic", (96, 40), np.int8), "t": scalars["t"]},
            step=0.05,  # one element that lies at a tie: a step of x, 0.025, times the largest weight, and a little
        ),
        Sample(
            "largest products of bytes",  # sums of two products that do not fit int16
            "q = Cast <to = 2> (x) a = Sub (q, q) b = Add (a, top) i = MatMulInteger (b, wq) y = Cast <to = 1> (i)",
            {"x": (5, 128)},
            {"top": np.asarray(255, np.uint8), "wq": np.full((128, 24), 127, np.int8)},
            step=1e-9,
        ),
    ]
    return samples


def _half() -> list[tuple[Sample, str]]:
    products = [
        sample for sample in _COMPOSED if sample.name in ("convolution + bias + Relu", "Gemm + Gelu", "attention")
    ]
    samples: list[tuple[Sample, str]] = []
    for precision in ("bfloat16", "float16"):
        samples += [
            (
                replace(
                    sample,
                    name=f'{sample.name}, precision="{precision}"',
                    options={"precision": precision},
                    rounds_to=precision,
                    units=4.0,
                ),
                "float",
            )
            for sample in products
        ]
    samples += [(replace(sample, units=8.0), element) for sample in products for element in ("float16", "bfloat16")]
    return samples


def narrow_samples() -> list[tuple[Sample, str]]:
    """Lists quantized samples, float ones with a narrower `precision`, and ones in float16 and bfloat16."""
    return [*((sample, "float") for sample in _quantized()), *_half()]


# --- Running them ---


def label(sample: Sample, element: str) -> str:
    return f"{sample.name} ({element})"


def run_samples(
    name: str, samples: Sequence[tuple[Sample, str]], device: str, progress: Progress | None = None
) -> tuple[Part, list[tuple[str, str]]]:
    """Runs samples on a device; returns the part, and how each of them is computed there."""
    start = time.perf_counter()
    failures, ways = [], []
    for number, (sample, element) in enumerate(samples, 1):
        try:
            rep = prepare(sample.model(element), device, **sample.options)
            ways.append((label(sample, element), way(rep)))
            actual, *_ = rep.run(sample.feeds(element))
            sample.check(element, actual, sample.expected(element))
        except Exception as error:
            failures.append(Failure.of(label(sample, element), error))
        if progress:
            progress(number, len(samples))
    return Part(name, len(samples), time.perf_counter() - start, tuple(failures)), ways


def way(rep: PreparedModel) -> str:
    """Lists the operators of a graph that compute, each with the type of its result where that is known."""
    found = re.findall(r"^ *%\S+ : (\w+)\S*(?: [^\n=]*)? = (onnx_torch|aten)::(\w+)", rep.graph(), re.M)
    types = {kind: f" {kind}" for kind in ("Float", "Half", "BFloat16", "Byte", "Char", "Int", "Double")}
    names = {"onnx_torch": "", "aten": "aten::"}
    return ", ".join(f"{names[library]}{operator}{types.get(kind, '')}" for kind, library, operator in found)


# --- Threads ---

THREADS, TURNS = 4, 8


def run_threads(device: str, progress: Progress | None = None) -> Part:
    """Runs prepared models on several threads at a time, each of them all models.

    On the CPU the results must be equal, bit by bit, to those of one thread. On CUDA they are compared with the
    expected ones, as cuDNN may add in another order from run to run.
    """
    start = time.perf_counter()
    failures: dict[str, Failure] = {}
    models: list[_Prepared] = []
    for sample, element in composed_samples(device):
        try:
            models.append(_Prepared(sample, element, device))
        except Exception as error:
            failures[sample.name] = Failure.of(sample.name, error)

    def turn(number: int) -> list[Failure]:
        """Runs all models; each thread begins with another one."""
        first = number % max(1, len(models))
        return [failure for model in models[first:] + models[:first] for failure in model.failures()]

    with ThreadPoolExecutor(THREADS) as pool:
        for number, found in enumerate(pool.map(turn, range(THREADS * TURNS)), 1):
            failures |= {failure.case: failure for failure in found}
            if progress:
                progress(number, THREADS * TURNS)
    note = f"each model {THREADS * TURNS} times, on {THREADS} threads, beside the others"
    return Part(
        "threads", len(composed_samples(device)), time.perf_counter() - start, tuple(failures.values()), (note,)
    )


class _Prepared:
    """A model with inputs, and the result that it gives when nothing runs beside it."""

    def __init__(self, sample: Sample, element: str, device: str) -> None:
        self._name, self._feeds = sample.name, sample.feeds(element)
        self._rep = prepare(sample.model(element), device)
        alone, expected = self._run(), sample.expected(element)
        on_cpu = device.upper().startswith("CPU")
        self._check: Callable[[np.ndarray], None] = (
            (lambda found: np.testing.assert_array_equal(found, alone))
            if on_cpu
            else (lambda found: sample.check(element, found, expected))
        )

    def _run(self) -> np.ndarray:
        return np.asarray(self._rep.run(self._feeds)[0])

    def failures(self) -> list[Failure]:
        try:
            self._check(self._run())
        except Exception as error:
            return [Failure.of(self._name, error)]
        return []
