"""The rules that tie a cell's types together, and what the specification forbids."""

from __future__ import annotations

import re
from typing import Any

import ml_dtypes
import numpy as np
from onnx.defs import OpSchema

from .cells import Cell, allowed, schemas
from .values import dtype_of, element, element_number

# Operator and type parameter of an output → the attribute that decides it.
DECIDES = {
    ("Bernoulli", "T2"): "dtype",
    ("BitCast", "T2"): "to",
    ("BlackmanWindow", "T2"): "output_datatype",
    ("Cast", "T2"): "to",
    ("DequantizeLinear", "T3"): "output_dtype",
    ("EyeLike", "T2"): "dtype",
    ("GemmFloat8", "TR"): "dtype",
    ("HammingWindow", "T2"): "output_datatype",
    ("HannWindow", "T2"): "output_datatype",
    ("LayerNormalization", "U"): "stash_type",
    ("MelWeightMatrix", "T3"): "output_datatype",
    ("Multinomial", "T2"): "dtype",
    ("RandomNormal", "T"): "dtype",
    ("RandomNormalLike", "T2"): "dtype",
    ("RandomUniform", "T"): "dtype",
    ("RandomUniformLike", "T2"): "dtype",
    ("SequenceEmpty", "S"): "dtype",
    ("SimplifiedLayerNormalization", "U"): "stash_type",
}

# Operator → a type parameter, and one whose type is a sequence or an optional of it.
WRAPPED = {
    "ConcatFromSequence": ("T", "S"),
    "Optional": ("V", "O"),
    "OptionalGetElement": ("V", "O"),
    "SequenceAt": ("T", "S"),
    "SequenceConstruct": ("T", "S"),
    "SequenceInsert": ("T", "S"),
    "SplitToSequence": ("T", "S"),
}

FLOATING = {"tensor(float16)", "tensor(float)", "tensor(double)"}

# Operator → two parameters, and which of their types go together.
FOLLOWS = {
    "BitCast": ("T1", "T2", lambda one, other: bits(one) == bits(other)),
    "CategoryMapper": ("T1", "T2", lambda one, other: one != other),
    "DictVectorizer": ("T1", "T2", lambda one, other: element(one) == element(other)),
    "DecoderMaskedMultiHeadAttention": ("T", "QK", lambda one, other: one == other),
    "GroupQueryAttention": ("T", "T_CACHE", lambda one, other: one == other or bits(other) == 8),
    "PagedAttention": ("T", "T_CACHE", lambda one, other: one == other or bits(other) == 8),
    "SparsePagedAttention": ("T", "T_CACHE", lambda one, other: one == other or bits(other) == 8),
    "MultiHeadAttention": ("T", "QK", lambda one, other: one == other),
    ("GridSample", 1): ("T1", "T2", lambda one, other: other == (one if one in FLOATING else "tensor(float)")),
    "SparseToDenseMatMul": ("T", "T1", lambda one, other: element(one) == element(other)),
    ("LabelEncoder", 1): ("T1", "T2", lambda one, other: one != other),
}


def choices(cell: Cell, types: dict[str, str], param: str) -> list[str]:
    """Lists a parameter's types, its default first."""
    return [types[param], *allowed(cell.schema)[param]]


def bits(type_str: str) -> int:
    name = element(type_str)
    dtype = dtype_of(name)
    if name in ("bool", "complex64", "complex128"):
        return 8 * dtype.itemsize
    return ml_dtypes.iinfo(dtype).bits if "int" in name else ml_dtypes.finfo(dtype).bits


def deciding_attributes(schema: OpSchema, types: dict[str, str]) -> dict[str, Any]:
    found = {}
    for (op, param), attribute in DECIDES.items():
        if op == schema.name and param in types and attribute in schema.attributes:
            name = element(types[param])
            is_text = schema.attributes[attribute].type.name == "STRING"
            found[attribute] = name.upper() if is_text else element_number(name)
    return found


def coupled(cell: Cell, types: dict[str, str]) -> dict[str, str]:
    """Gives the types, with those that follow from the cell's."""
    types = dict(types)
    if cell.op in FOLLOWS or (cell.op, cell.version) in FOLLOWS:
        first, second, follow = FOLLOWS.get(cell.op) or FOLLOWS[cell.op, cell.version]
        if cell.param == first:
            types[second] = next(t for t in choices(cell, types, second) if follow(types[first], t))
        else:
            types[first] = next(t for t in choices(cell, types, first) if follow(t, types[second]))
    if cell.op in WRAPPED:
        inner, outer = WRAPPED[cell.op]
        kind = "seq" if outer == "S" else "optional"
        if cell.param == inner:
            types[outer] = f"{kind}({types[inner]})"
        else:
            own = types[outer]
            types[inner] = own[len(kind) + 1 : -1] if own.startswith(kind) else own
    return types


# The cells that have no model: a condition on the cell, and the reason.
LEFT_OUT = [
    (lambda cell: not _is_used(cell), "a type parameter that no input or output of the schema has (T1 of Tile-1)"),
    (
        lambda cell: re.fullmatch(r"GridSample-1/T1/.*(string|complex).*", str(cell).removeprefix("com.microsoft.")),
        "onnxruntime's GridSample gives real numbers, whatever the images are of",
    ),
    (lambda cell: (cell.op, cell.param) == ("WhisperBeamSearch", "V"), "the type of cross_qk, which is refused"),
]


def _is_used(cell: Cell) -> bool:
    return any(formal.type_str == cell.param for side in (cell.schema.inputs, cell.schema.outputs) for formal in side)


def left_out(cell: Cell) -> str | None:
    return next((reason for condition, reason in LEFT_OUT if condition(cell)), None)


DRAWN = {"Multinomial"}  # operators that draw from a stream which no oracle has


def assert_likely(cell: Cell, inputs: list[Any], outputs: list[Any]) -> None:
    """Checks a draw where no oracle has the stream: Multinomial's classes come as often as they should."""
    if cell.op not in DRAWN:
        return
    scores = np.exp(np.asarray(inputs[0]).astype(np.float64))
    chances = scores / scores.sum(1, keepdims=True)
    draws = np.asarray(outputs[0])
    counts = np.stack([(draws == number).sum(1) for number in range(chances.shape[1])], 1)
    deviation = np.sqrt(draws.shape[1] * chances * (1 - chances))
    assert counts.sum() == draws.size, "classes that do not exist"
    assert np.all(np.abs(counts - draws.shape[1] * chances) < 5 * deviation), "an unlikely draw"


def opset_of(cell: Cell) -> int:
    """Gives the version of ai.onnx: the cell's own, or one that goes with other domains and onnxruntime's operators."""
    if cell.domain:
        return OTHER_OPSET
    if ("", cell.op, cell.version) in schemas():
        return cell.version
    successors = [version for domain, op, version in schemas() if (domain, op) == ("", cell.op)]
    return min(successors, default=OTHER_OPSET + 1) - 1


OTHER_OPSET = 21
