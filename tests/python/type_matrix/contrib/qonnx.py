"""Templates of src/ops/contrib/qonnx.cpp."""

from __future__ import annotations

import numpy as np

from ..making import floats, row, waves
from ..modern import formula

DOMAINS = ["qonnx.custom_op.general", "finn.custom_op.general", "onnx.brevitas"]

# Halves of the scale, numbers beyond the range, and a row of zeros.
X = floats([-4.25, -1.25, -0.75, -0.25, 0.25], [0.75, 1.25, 1.75, 3.5, 4.5], [0, 0, 0, 0, 100])
SCALES = floats([0.5], [0.25], [1])
ZERO, ONE, TWO, FOUR = (floats(x)[0] for x in (0, 1, 2, 4))
HALF = floats(0.5)[0]

ROUNDING = {
    "ROUND": np.round,
    "half_even": np.round,
    "CEIL": np.ceil,
    "FLOOR": np.floor,
    "UP": lambda x: np.sign(x) * np.ceil(np.abs(x)),
    "DOWN": np.trunc,
    "HALF_UP": lambda x: np.sign(x) * np.floor(np.abs(x) + 0.5),
    "HALF_DOWN": lambda x: np.sign(x) * np.ceil(np.abs(x) - 0.5),
}


def limits(bits: np.ndarray, signed: int, narrow: int):
    if signed:
        return -(2 ** (bits - 1)) + narrow, 2 ** (bits - 1) - 1
    return 0, 2**bits - 1 - narrow


def quant(signed: int = 1, narrow: int = 0, rounding_mode: str = "ROUND"):
    def function(x, scale, zeropt, bits):
        steps = x / scale + zeropt
        if signed and bits == 1:
            levels = np.where(steps >= 0, 1, -1)
        else:
            levels = ROUNDING[rounding_mode](np.clip(steps, *limits(bits, signed, narrow)))
        return (levels - zeropt) * scale

    return formula(function)


def trunc(signed: int = 1, narrow: int = 0, rounding_mode: str = "FLOOR"):
    def function(x, scale, zeropt, before, after, bits=None):
        steps = np.round(x / scale + zeropt)
        if bits is None:
            return (ROUNDING[rounding_mode](steps / 2.0 ** (before - after)) - zeropt) * scale
        ratio = 2 ** np.round(np.log2(after / scale))
        levels = ROUNDING[rounding_mode](np.clip(steps / ratio, *limits(bits, signed, narrow)))
        return (levels - zeropt / ratio) * after

    return formula(function)


def float_quant(rounding_mode: str = "ROUND", **_: int):
    """Gives the formula that finds the nearest of all numbers that there are by looking at each."""

    def function(x, scale, exponent_bits, mantissa_bits, bias, largest):
        mantissas = np.arange(2**mantissa_bits) / 2**mantissa_bits
        exponents = np.arange(1, 2**exponent_bits) - bias
        normal = ((1 + mantissas) * 2.0 ** exponents[:, None]).ravel()
        there = np.unique(np.concatenate([mantissas * 2.0 ** (1 - bias), normal]))
        there = there[there <= largest]
        numbers = np.unique(np.concatenate([-there, there]))
        of = x.astype(np.float64) / scale
        below = numbers[np.clip(np.searchsorted(numbers, of, "right") - 1, 0, len(numbers) - 1)]
        above = numbers[np.clip(np.searchsorted(numbers, of, "left"), 0, len(numbers) - 1)]
        to_even = np.where(2 * of == below + above, even_of(below, above, mantissa_bits, bias), below)
        nearest = np.where(of - below > above - of, above, np.where(of - below < above - of, below, to_even))
        return {"ROUND": nearest, "FLOOR": below, "ceil": above}[rounding_mode] * scale

    return formula(function)


def even_of(below: np.ndarray, above: np.ndarray, mantissa_bits: float, bias: float) -> np.ndarray:
    """Chooses, of two neighbours, the one that is an even number of the finer steps between them."""
    step = np.maximum(above - below, 2.0 ** (1 - bias - mantissa_bits))
    return np.where(np.round(below / step) % 2 == 0, below, above)


MINIFLOAT = [floats(0.5)[0], floats(3)[0], floats(2)[0], floats(3)[0]]  # scale, widths and bias
NUMBERS = np.concatenate([waves(60, scale=20.0), floats(0, -0.0, 0.03125, -0.09375, 0.15625, 7.5, 100, -100)])
IMAGES, STEPS = waves(2, 3, 4, 5, scale=4.0), floats([-2, 0, 1, 1], [-1, -1, 0.5, 3], [-3, 0.25, 2, 2.5])


def thresholds(out_scale: float = 1, out_bias: float = 0, data_layout: str = "NCHW"):
    def function(v, steps):
        axis = 1 if v.ndim == 4 and data_layout == "NCHW" else v.ndim - 1
        reached = sum((np.moveaxis(v, axis, -1) >= steps[:, i]).astype(np.float32) for i in range(steps.shape[1]))
        return np.moveaxis(reached, -1, axis) * out_scale + out_bias

    return formula(function)


def rows_of(domain: str):
    def float_row(largest, **attributes):
        inputs = [NUMBERS, *MINIFLOAT, floats(largest)[0]]
        return row(f"{domain}.FloatQuant", inputs, meaning=float_quant(**attributes), **attributes)

    def threshold_row(inputs, **attributes):
        meaning = thresholds(**attributes)
        return row(f"{domain}.MultiThreshold", inputs, meaning=meaning, out_dtype="UINT4", **attributes)

    def quant_row(inputs, **attributes):
        return row(f"{domain}.Quant", inputs, meaning=quant(**attributes), **attributes)

    def trunc_row(inputs, **attributes):
        return row(f"{domain}.Trunc", inputs, meaning=trunc(**attributes), **attributes)

    return [
        quant_row([X, HALF, ZERO, FOUR]),
        quant_row([X, SCALES, ONE, FOUR]),
        quant_row([X, HALF, ZERO, FOUR], narrow=1),
        quant_row([X, HALF, ONE, FOUR], signed=0),
        quant_row([X, HALF, ONE, TWO], signed=0, narrow=1),
        quant_row([X, HALF, ZERO, ONE]),
        quant_row([X, HALF, ZERO, ONE], signed=0),
        quant_row([np.zeros((0, 3), np.float32), HALF, ZERO, FOUR]),
        *(quant_row([X, HALF, ZERO, FOUR], rounding_mode=mode) for mode in ROUNDING),
        float_row(28),
        float_row(24, has_infinity=1, has_nan=1, has_subnormal=0, saturation=0),
        float_row(1000, rounding_mode="FLOOR"),
        float_row(28, rounding_mode="ceil"),
        threshold_row([IMAGES, STEPS]),
        threshold_row([IMAGES, STEPS[1:2]], out_scale=0.5, out_bias=-2.0),
        threshold_row([np.moveaxis(IMAGES, 1, -1).copy(), STEPS], data_layout="NHWC"),
        threshold_row([waves(4, 3), STEPS]),
        threshold_row([waves(2, 4, 3), STEPS]),
        threshold_row([IMAGES[:0], STEPS]),
        row(f"{domain}.BipolarQuant", [X, SCALES], meaning=formula(lambda x, scale: np.where(x >= 0, 1, -1) * scale)),
        trunc_row([waves(3, 4, scale=8.0), HALF, ZERO, FOUR, TWO]),
        trunc_row([waves(3, 4, scale=8.0), HALF, TWO, FOUR, TWO], rounding_mode="ROUND"),
        trunc_row([waves(3, 4, scale=8.0), HALF, ZERO, FOUR, TWO, TWO]),
        trunc_row([waves(3, 4, scale=8.0), HALF, TWO, FOUR, TWO, TWO], narrow=1, rounding_mode="CEIL"),
        trunc_row([waves(3, 4, scale=8.0), HALF, TWO, FOUR, TWO, TWO], signed=0),
    ]


QONNX_ROWS = [one for domain in DOMAINS for one in rows_of(domain)]
