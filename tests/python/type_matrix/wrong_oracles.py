"""Oracles that are wrong about some cells, each with what the specification says."""

from __future__ import annotations

import re
from typing import NamedTuple

from .cells import Cell

REFERENCE, ORT, OFFICIAL = "ReferenceEvaluator", "onnxruntime", "official case"


class Wrong(NamedTuple):
    cells: str  # a pattern of their names
    oracle: str
    why: str
    quote: str  # from the text of each of these schemas


WRONG = [
    Wrong(
        r"^(Softmax|LogSoftmax|Hardmax)-(1|11)/",
        REFERENCE,
        "it works along one axis, as since version 13",
        "will be coerced into a 2-dimensional tensor",
    ),
    Wrong(
        r"^BatchNormalization-9/",
        REFERENCE,
        "it trains whenever momentum has a value, and its default is one",
        "Output case #2: Y (test mode)",
    ),
    Wrong(
        r"^(RNN|GRU|LSTM)-\d+/T1/",
        REFERENCE,
        "it leaves sequence_lens out",
        "Optional tensor specifying lengths of the sequences in a batch.",
    ),
    Wrong(
        r"^RoiAlign-10/",
        REFERENCE,
        "it shifts by half a pixel, which came with version 16; that calls it backward-compatible not to",
        "Multiplicative spatial scale factor to translate ROI coordinates from their input spatial scale to the scale "
        "used when pooling",
    ),
    Wrong(r"^Scan-8/", REFERENCE, "it does not know the batch axis", "T.shape[0] denotes the batch-size of T"),
    Wrong(r"^Resize-\d+/.*complex", REFERENCE, "it drops imaginary parts", "to all tensor types."),
    Wrong(r"^AffineGrid-.*double", REFERENCE, "it rounds to float", "tensor(double)"),
    Wrong(r"^DeformConv-.*double", REFERENCE, "it rounds the sampling points to float", "tensor(double)"),
    Wrong(
        r"^QuantizeLinear-28/T3/",
        OFFICIAL,
        "each type saturates at its own limits, not where the type of the case does",
        "Saturation is done according to:",
    ),
    Wrong(
        r"^(LinearRegressor|Scaler|SVMClassifier|SVMRegressor|TreeEnsembleRegressor)-.*int",
        REFERENCE,
        "it computes in the type of X, and rounds to whole numbers",
        "tensor(float)",
    ),
    Wrong(
        r"^ReduceLogSumExp-18/.*int",
        ORT,
        "it rounds the logarithm before it adds the maximum",
        "Computes the log sum exponent of the input tensor's elements",
    ),
    Wrong(
        r"^Multinomial-",
        ORT,
        "no text says which numbers a seed gives",
        "(Optional) Seed to the random generator",
    ),
]


def wrong(oracle: str, cell: Cell) -> str | None:
    """Tells why an oracle is not asked about a cell."""
    return next((row.why for row in WRONG if row.oracle == oracle and concerns(row, cell)), None)


def concerns(row: Wrong, cell: Cell) -> bool:
    return bool(re.search(row.cells, str(cell).split(".")[-1]))


def text_of(cell: Cell) -> str:
    """Gives all that a schema says, in one line."""
    schema = cell.schema
    formals = [*schema.inputs, *schema.outputs]
    parts = [schema.doc, *(f.description for f in formals), *(a.description for a in schema.attributes.values())]
    for constraint in schema.type_constraints:
        parts += [constraint.description, *constraint.allowed_type_strs]
    parts += [f.type_str for f in formals]
    return " ".join(" ".join(parts).split())
