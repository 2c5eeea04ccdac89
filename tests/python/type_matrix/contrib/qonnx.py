"""Templates of src/ops/contrib/qonnx.cpp."""

from __future__ import annotations

import numpy as np

from ..making import floats, row, waves
from ..modern import formula

DOMAINS = ["qonnx.custom_op.general", "finn.custom_op.general", "onnx.brevitas"]

# Halves of the scale, numbers beyond the range, and a row of zeros
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


def rows_of(domain: str):
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
        row(f"{domain}.BipolarQuant", [X, SCALES], meaning=formula(lambda x, scale: np.where(x >= 0, 1, -1) * scale)),
        trunc_row([waves(3, 4, scale=8.0), HALF, ZERO, FOUR, TWO]),
        trunc_row([waves(3, 4, scale=8.0), HALF, TWO, FOUR, TWO], rounding_mode="ROUND"),
        trunc_row([waves(3, 4, scale=8.0), HALF, ZERO, FOUR, TWO, TWO]),
        trunc_row([waves(3, 4, scale=8.0), HALF, TWO, FOUR, TWO, TWO], narrow=1, rounding_mode="CEIL"),
        trunc_row([waves(3, 4, scale=8.0), HALF, TWO, FOUR, TWO, TWO], signed=0),
    ]


QONNX_ROWS = [one for domain in DOMAINS for one in rows_of(domain)]
