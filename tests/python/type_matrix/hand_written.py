"""Templates for what the official cases do not reach, or reach with data that suit few types."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any

import numpy as np
from onnx import numpy_helper

from .cells import Cell
from .contrib import CONTRIB_DOMAINS, CONTRIB_ROWS
from .engines import run_ort
from .hand_written_ml import ML_ROWS
from .making import floats, ints, row, waves, whole
from .modern import (
    erf,
    formula,
    gelu,
    hard_swish,
    in_float,
    lp_norm,
    lrn,
    modern,
    normalized,
    quantized_product,
    rounded,
    tile,
    unchanged,
)
from .subgraphs import SUBGRAPH_ROWS
from .template import Template
from .values import element, element_number, fit_array


def recurrent(op: str, only: str, first: int, last: int = 99, meaning: Any = None, **attributes: Any):
    """Makes a row with sequence_lens in the cells of its type."""
    weights = waves(1, RECURRENT[op] * 2, 2)
    lengths = [None, np.array([2], np.int32)] if only == "/T1/" else []
    inputs = [waves(3, 1, 2), weights, weights, *lengths]
    return row(op, inputs, first, last, 2, only, meaning, hidden_size=2, **attributes)


RECURRENT = {"RNN": 1, "GRU": 3, "LSTM": 4}  # gates


def constant(param: str, *values: Any):
    """Gives a tensor attribute in the type of a parameter."""
    return lambda types, version: numpy_helper.from_array(fit_array(floats(*values), element(types[param])))


UNWEIGHED = "T1?/.*(int|bool|string|complex)"  # types of which linear interpolation makes no sense
SMALL = "/tensor.float[468]"
X = whole(2, 3)
IMAGE = whole(1, 1, 4, 4)
MOMENTS = [waves(1, 2, 3, 3), floats(1, 2), floats(0, 1), floats(0.5, 0), floats(1, 2)]
SEQUENCE = [floats(1, 2), floats(3, 4)]
REDUCTIONS = "L1 L2 LogSum LogSumExp Max Mean Min Prod Sum SumSquare".split()
RANDOM = {"RandomNormal": {"mean": 1.0, "scale": 2.0}, "RandomUniform": {"low": 1.0, "high": 3.0}}

ROWS = [
    # legacy forms
    row(
        "BatchNormalization",
        MOMENTS,
        1,
        1,
        is_test=1,
        consumed_inputs=[0, 0, 0, 1, 1],
        meaning=modern("BatchNormalization", 15),
    ),
    row("BatchNormalization", MOMENTS, 6, 6, is_test=1, meaning=modern("BatchNormalization", 15)),
    row(
        "AveragePool",
        [IMAGE],
        1,
        1,
        kernel_shape=[3, 3],
        pads=[1, 1, 1, 1],
        meaning=modern("AveragePool", 7, kernel_shape=[3, 3], pads=[1, 1, 1, 1]),
    ),
    row("Dropout", [X], 1, 6, is_test=1, meaning=unchanged),
    row(
        "Split", [X], 1, 1, outputs=2, axis=1, split=[1, 2], meaning=modern("Split", 2, outputs=2, axis=1, split=[1, 2])
    ),
    row("Clip", [X], 1, 6, min=2.0, max=5.0, meaning=formula(lambda x: np.clip(x, 2, 5))),
    row("DepthToSpace", [whole(1, 4, 2, 2)], 1, 1, blocksize=2),
    row("Pad", [X], 1, 1, paddings=[0, 1, 1, 0], value=2.0),
    row("Pad", [X], 2, 2, pads=[0, 1, 1, 0], value=2.0),
    *(row(f"Reduce{how}", [X], 1, 17, axes=[1], keepdims=0) for how in REDUCTIONS if how not in ("Sum", "Max", "Min")),
    row("ReduceSum", [X], 1, 12, axes=[1], keepdims=0),
    row("Reshape", [X], 1, 4, shape=[3, -1]),
    row("Slice", [X], 1, 9, axes=[1], starts=[1], ends=[3]),
    row("Squeeze", [whole(1, 2, 1)], 1, 12, axes=[0]),
    row("Unsqueeze", [X], 1, 12, axes=[0, 2]),
    row("Tile", [X, floats(2), floats(1)], 1, 5, meaning=formula(tile)),
    row("TopK", [waves(2, 4)], 1, 9, outputs=2, k=2, axis=1),
    row(
        "Upsample",
        [IMAGE],
        1,
        6,
        height_scale=2.0,
        width_scale=1.5,
        meaning=modern("Upsample", 7, scales=[1.0, 1.0, 2.0, 1.5]),
    ),
    row("Upsample", [IMAGE], 7, 8, scales=[1.0, 1.0, 2.0, 1.5]),
    row("Upsample", [IMAGE, floats(1, 1, 2, 1.5)], 9, 9),
    row("Upsample", [IMAGE, floats(1, 1, 2, 1.5)], 10, 10, meaning=modern("Upsample", 9)),
    row("Resize", [IMAGE, floats(1, 1, 2, 0.5)], 10, 10),
    row("Resize", [IMAGE, floats(), floats(1, 1, 2, 0.5)], 11, 12, mode="linear", only="float|double"),
    row("Resize", [IMAGE, floats(), floats(1, 1, 2, 0.5)], 11, mode="nearest", only=UNWEIGHED),
    row("GridSample", [IMAGE, waves(1, 2, 3, 2)], 16, 19, mode="nearest", only=UNWEIGHED),
    row("GridSample", [IMAGE, waves(1, 2, 3, 2)], 20, mode="nearest", only=UNWEIGHED),
    row("PRelu", [waves(2, 3, 2), floats(0.5, 2, 0.25)], 1, 6),
    row("Scatter", [X, ints([0, 1]), floats([8, 9])], axis=1, meaning=modern("ScatterElements", 11, axis=1)),
    row("LpPool", [IMAGE], 1, 1, kernel_shape=[2, 2], p=2.0),
    row("GlobalLpPool", [IMAGE], 1, 1, p=3.0, meaning=formula(lp_norm(3))),
    row("GlobalLpPool", [IMAGE], 2, p=3, meaning=formula(lp_norm(3))),
    row("RoiAlign", [whole(1, 1, 4, 4), floats([0, 0, 2, 3]), ints(0)], 10, 15, output_height=2, output_width=2),
    row(
        "MaxRoiPool",
        [whole(1, 1, 6, 6), floats([0, 0, 0, 3, 3], [0, 1, 2, 5, 5])],
        pooled_shape=[2, 2],
        meaning=modern("MaxRoiPool", 1, in_float, pooled_shape=[2, 2]),
    ),
    # types that official data do not suit
    *(row(f"Bitwise{how}", [X, whole(2, 3)[:, ::-1]]) for how in ("And", "Or", "Xor")),
    row("BitwiseNot", [X]),
    row("Clip", [X, floats(2)[0], floats(5)[0]], 11),
    row("Gemm", [X, whole(3, 2), X[:, :2]], 1, 6, alpha=2.0, beta=3.0, meaning=modern("Gemm", 13, alpha=2.0, beta=3.0)),
    row("Gemm", [X, whole(3, 2), floats(1, 2)], 7, alpha=2.0, beta=3.0),
    row(
        "Cast",
        [floats(0, 1, 2, 0.5, 4)],
        last=5,
        meaning=modern("Cast", 9, to=lambda case: element_number(element(case.types["T2"]))),
    ),
    row("Cast", [floats(0, 1, 2, 0.5, 4)], 6),
    row("CastLike", [floats(0, 1, 2, 0.5, 4), X]),
    row("Constant", [], value=constant("T", [1, 0, 2], [3, 1, 1])),
    row("ConstantOfShape", [ints(2, 3)], value=constant("T2", 1)),
    row("BitCast", [X]),
    row("Dropout", [X, floats(0.25)[0], np.array(False)], 12, outputs=2),
    row("Dropout", [X], 10, 11, outputs=2),
    row("DFT", [waves(1, 6, 1), np.array(4)], 17, 19),
    row("DFT", [waves(1, 6, 1), np.array(4), np.array(1)], 20),
    row(
        "QLinearConv",
        [
            whole(1, 1, 3, 3).astype(np.uint8),
            floats(0.5)[0],
            np.uint8(1),
            np.ones((1, 1, 2, 2), np.uint8),
            floats(0.25)[0],
            np.uint8(2),
            floats(2)[0],
            np.uint8(3),
            np.array([5], np.int32),
        ],
    ),
    *(recurrent(op, "/T1/", 7) for op in RECURRENT),
    *(recurrent(op, "/T/", 1, 6, modern(op, 7, hidden_size=2, outputs=2), output_sequence=1) for op in RECURRENT),
    *(
        recurrent(op, "/T1/", 1, 6, modern(op, 7, run=run_ort, hidden_size=2, outputs=2), output_sequence=1)
        for op in RECURRENT
    ),
    row("QuantizeLinear", [waves(2, 3, scale=3.0), floats(0.5)[0], np.array(0, np.uint8)], 19, only=SMALL),
    row("DequantizeLinear", [whole(4).astype(np.uint8), floats(0.5)[0]], 19, only="T1" + SMALL),
    row(
        "GroupNormalization", [waves(1, 4, 2, 2), floats(1, 2), floats(0.5, 0)], 18, 18, num_groups=2, epsilon=2.0**-10
    ),
    row(
        "GroupNormalization",
        [waves(1, 4, 2, 2), floats(1, 2, 3, 1), floats(0.5, 0, 1, 0)],
        21,
        num_groups=2,
        epsilon=2.0**-10,
        stash_type=lambda types, version: element_number("double" if "double" in types["T"] else "float"),
    ),
    row(
        "Attention",
        [waves(1, 2, 3, 4), waves(1, 2, 5, 4), waves(1, 2, 5, 4, scale=2.0), waves(3, 5, scale=0.5)],
        23,
        only="/U/",
    ),
    row(
        "QLinearMatMul",
        [
            whole(2, 2).astype(np.uint8),
            floats(0.5),
            np.array([1], np.uint8),
            whole(2, 3).astype(np.uint8),
            floats(0.25),
            np.array([2], np.uint8),
            floats(0.125),
            np.array([0], np.uint8),
        ],
        21,
        only="T3" + SMALL,
        meaning=rounded(quantized_product),
    ),
    row("LRN", [waves(1, 4, 2, 2)], size=3, alpha=0.5, beta=0.5, bias=2.0, meaning=formula(lrn(3, 0.5, 0.5, 2.0))),
    row("Erf", [waves(2, 3)], only="float|double", meaning=formula(erf)),
    row("Gelu", [waves(2, 3)], meaning=formula(gelu)),
    row("HardSwish", [waves(2, 3, scale=4.0)], meaning=formula(hard_swish)),
    row("MeanVarianceNormalization", [waves(2, 2, 3, 3)], meaning=formula(normalized)),
    # sequences and optionals
    row("ConcatFromSequence", [SEQUENCE], axis=0),
    row("SequenceAt", [SEQUENCE, np.array(1)]),
    row("SequenceConstruct", SEQUENCE),
    row("SequenceEmpty", []),
    row("SequenceErase", [SEQUENCE, np.array(0)]),
    row("SequenceLength", [SEQUENCE]),
    row("Optional", [X], meaning=unchanged),
    # random
    *(row(op, [], shape=[200], seed=7.0, **more) for op, more in RANDOM.items()),
    *(row(f"{op}Like", [waves(200)], seed=7.0, **more) for op, more in RANDOM.items()),
    row("Multinomial", [floats([-1, 0, 1], [0, 0, 0])], sample_size=100, seed=7.0),
    row("Bernoulli", [np.linspace(0, 1, 200, dtype=np.float32)], seed=7.0),
]


def hand_written(cell: Cell) -> Iterator[Template]:
    name = f"{cell.domain}.{cell.op}" if cell.domain in CONTRIB_DOMAINS else cell.op
    for op, first, last, template, *only in [*ROWS, *SUBGRAPH_ROWS, *ML_ROWS, *CONTRIB_ROWS]:
        if op == name and first <= cell.version <= last and re.search(only[0] if only else "", str(cell)):
            yield template
