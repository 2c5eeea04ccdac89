"""Models that take rows: columns of a table in, columns out."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from math import prod
from typing import Any

import numpy as np
import onnx

from ..errors import InputError, UnsupportedError
from ..prepared_model import PreparedModel

__all__ = ["Columns", "RowModel", "objects"]

Columns = Mapping[str, "str | Sequence[str]"]


@dataclass(frozen=True)
class _Input:
    """An input that is fed from columns; `row` is the shape of one row's value, None where its rank is unknown."""

    name: str
    columns: tuple[str, ...]
    dtype: np.dtype[Any]
    row: tuple[int | None, ...] | None


class RowModel:
    """A prepared model that is fed with rows.

    Args:
        rep: the model.
        available: the columns there are.
        columns: for an input, the column it is fed from, or several scalar columns that make its second dimension.
            An input that is not named is fed from the column of its own name.
        outputs: the outputs wanted, or, as a dictionary, the columns they are to be called.
        batched: rows go to the model together, along the first dimension of every input and output. Where that
            dimension is fixed, so many go at once, and a last batch that is smaller is filled up with its last row.
            Otherwise each row is a whole input.
    """

    def __init__(
        self,
        rep: PreparedModel,
        available: Sequence[str],
        *,
        columns: Columns | None = None,
        outputs: Sequence[str] | Mapping[str, str] | None = None,
        batched: bool = True,
    ) -> None:
        self._rep = rep
        self._available = list(available)
        self._batched = batched
        self._outputs = _output_columns(rep, outputs)
        self._inputs = _inputs(rep, available, dict(columns or {}), batched)
        self._size = _fixed_size(rep, self._inputs) if batched else 1

    @property
    def fed(self) -> list[str]:
        """The columns that the model reads."""
        return list(dict.fromkeys(column for given in self._inputs for column in given.columns))

    @property
    def outputs(self) -> list[str]:
        """The columns that it makes."""
        return list(self._outputs.values())

    def kept(self, keep: Sequence[str] | None = None) -> list[str]:
        """Returns the columns to hand on with the outputs: those named, else those that do not feed the model."""
        kept = [name for name in self._available if name not in self.fed] if keep is None else list(keep)
        for name in kept:
            if name not in self._available:
                raise InputError(f"there is no column {name!r} to keep; the columns are {self._available}")
        for name, column in self._outputs.items():
            if column in kept:
                raise InputError(
                    f"the output {name!r} would replace the column {column!r}, which is to be kept; "
                    "give it another column, or do not keep that one"
                )
        return kept

    def __call__(self, batch: Mapping[str, Any]) -> dict[str, Any]:
        """Runs the model on a batch; returns the output columns, as lists where rows are maps or differ in shape.

        Otherwise a column is an array with a row for each row of the batch.
        """
        feeds = {given.name: _feed(given, [batch[column] for column in given.columns]) for given in self._inputs}
        rows = {name: len(feed) for name, feed in feeds.items()}
        if len(set(rows.values())) > 1:
            raise InputError(f"the inputs have different numbers of rows: {rows}")
        count = next(iter(rows.values()))
        run = self._run_batched if self._batched else self._run_rows
        return {column: _plain(value) for column, value in zip(self.outputs, run(feeds, count), strict=True)}

    def _run_batched(self, feeds: dict[str, Any], count: int) -> list[Any]:
        size = self._size or max(count, 1)
        pieces = []
        for start in range(0, max(count, 1), size):
            values = self._run({name: _filled(feed[start : start + size], size) for name, feed in feeds.items()})
            pieces.append([_cut(*pair, size, count - start) for pair in zip(self._outputs, values, strict=True)])
        return [_joined(list(column)) for column in zip(*pieces, strict=True)]

    def _run_rows(self, feeds: dict[str, Any], count: int) -> list[Any]:
        rows = [self._run({name: feed[row] for name, feed in feeds.items()}) for row in range(count)]
        return [_stacked(list(column)) for column in zip(*rows, strict=True)] or [[] for _ in self._outputs]

    def _run(self, feeds: dict[str, Any]) -> tuple[Any, ...]:
        return self._rep.run(feeds, output_names=list(self._outputs), output="numpy")


def _output_columns(rep: PreparedModel, outputs: Sequence[str] | Mapping[str, str] | None) -> dict[str, str]:
    names = [name for name, _ in rep.outputs]
    wanted = dict(outputs) if isinstance(outputs, Mapping) else {name: name for name in outputs or names}
    for name in wanted:
        if name not in names:
            raise InputError(f"there is no output {name!r}; the model's outputs are {names}")
    if len(set(wanted.values())) < len(wanted):
        raise InputError(f"two outputs cannot go to one column: {wanted}")
    return wanted


def _inputs(rep: PreparedModel, available: Sequence[str], columns: dict[str, Any], batched: bool) -> list[_Input]:
    names = [name for name, *_ in rep.inputs]
    for name in columns:
        if name not in names:
            raise InputError(f"there is no input {name!r} to feed; the model's inputs are {names}")
    found = []
    for name, type_string, shape, has_default in rep.inputs:
        given = columns.get(name, name)
        wanted = (given,) if isinstance(given, str) else tuple(given)
        missing = [column for column in wanted if column not in available]
        if missing and has_default and name not in columns:
            continue
        if missing:
            raise InputError(
                f"there is no column {missing[0]!r} for the input {name!r}; the columns are {list(available)}. "
                "Say which column, or which several, feed an input"
            )
        if batched and shape is not None and not shape:
            raise InputError(f"the input {name!r} is a scalar, which holds no rows; run the model row by row instead")
        fixed = None if shape is None else tuple(size if isinstance(size, int) else None for size in shape)
        found.append(_Input(name, wanted, _dtype(name, type_string), fixed[1:] if fixed and batched else fixed))
    if not found:
        raise InputError("the model has no input to feed rows to")
    return found


def _dtype(name: str, type_string: str) -> np.dtype[Any]:
    element = type_string.removeprefix("tensor(").removesuffix(")").upper()
    if not type_string.startswith("tensor(") or element not in onnx.TensorProto.DataType.keys():  # noqa: SIM118
        raise UnsupportedError(f"the input {name!r} is a {type_string}, which no column holds; only tensors can be fed")
    return onnx.helper.tensor_dtype_to_np_dtype(onnx.TensorProto.DataType.Value(element))


def _fixed_size(rep: PreparedModel, inputs: Sequence[_Input]) -> int | None:
    """Tells how many rows the model takes at once; None: any number."""
    shapes = {name: shape for name, _, shape, _ in rep.inputs}
    firsts = {given.name: (shapes[given.name] or [None])[0] for given in inputs}
    sizes = {name: size for name, size in firsts.items() if isinstance(size, int)}
    if len(set(sizes.values())) > 1:
        raise InputError(f"the inputs' first dimensions differ, {sizes}, and hold no rows; run the model row by row")
    return next(iter(sizes.values()), None)


def _feed(given: _Input, columns: Sequence[Any]) -> Any:
    """Makes an input of some rows of its columns: an array, or a list where the rows' shapes differ."""
    if len(columns) > 1:
        columns = [np.stack([_dense(column) for column in columns], axis=1)]
    values = _dense(columns[0])
    if isinstance(values, list):
        return [_typed(given, value, value.shape) for value in values]
    return _typed(given, values, values.shape[1:])


def _dense(column: Any) -> Any:
    """Turns a column into one array, or into a list of arrays where its rows' shapes differ."""
    values = objects(column) if isinstance(column, list) else np.asarray(column)
    if values.dtype != object or not len(values) or isinstance(values[0], (str, bytes)):
        return values
    if any(value is None for value in values):
        raise InputError("a column that feeds the model holds nulls")
    rows = [_dense(value) if isinstance(value, (list, np.ndarray)) else np.asarray(value) for value in values]
    return _stacked(rows)


def objects(values: Sequence[Any]) -> np.ndarray:
    """Returns an array of Python objects whose elements are the values, whatever they are."""
    array = np.empty(len(values), object)
    for i, value in enumerate(values):
        array[i] = value
    return array


def _typed(given: _Input, values: np.ndarray, row: tuple[int, ...]) -> np.ndarray:
    """Returns the values in the input's type, and in its shape where the rows are flat."""
    if given.dtype == object:
        if values.dtype.kind not in "OUS":
            raise InputError(f"the input {given.name!r} takes strings, and {_from(given)} {values.dtype}")
    elif values.dtype != given.dtype:
        if values.dtype.kind in "OUS" or not np.can_cast(values.dtype, given.dtype, "same_kind"):
            raise InputError(f"the input {given.name!r} takes {given.dtype}, and {_from(given)} {values.dtype}")
        values = values.astype(given.dtype)
    if given.row is None or _fits(row, given.row):
        return values
    sizes = [size for size in given.row if size is not None]
    if len(sizes) < len(given.row) or prod(sizes) != prod(row):
        wanted = [size if size is not None else "?" for size in given.row]
        raise InputError(f"the input {given.name!r} takes rows of shape {wanted}, and {_from(given)} {list(row)}")
    return values.reshape(values.shape[: values.ndim - len(row)] + tuple(sizes))


def _from(given: _Input) -> str:
    names = ", ".join(map(repr, given.columns))
    return f"the column{'s' if len(given.columns) > 1 else ''} {names} hold{'' if len(given.columns) > 1 else 's'}"


def _fits(row: tuple[int, ...], wanted: tuple[int | None, ...]) -> bool:
    return len(row) == len(wanted) and all(w in (None, size) for size, w in zip(row, wanted, strict=True))


def _filled(rows: Any, size: int) -> Any:
    """Fills rows up to a size by repeating the last one."""
    if isinstance(rows, list):
        raise InputError(
            f"the rows of a batch have different shapes ({list(rows[0].shape)}, …), and can only be run one by one"
        )
    lacking = size - len(rows)
    return np.concatenate([rows, np.repeat(rows[-1:], lacking, axis=0)]) if lacking and len(rows) else rows


def _cut(name: str, value: Any, size: int, count: int) -> Any:
    """Returns the first rows of an output, after checking that it has as many as the batch."""
    if not isinstance(value, (np.ndarray, list)) or np.ndim(value) == 0 or (len(value) != size and count > 0):
        is_array = isinstance(value, np.ndarray)
        what = f"of shape {list(value.shape)}" if is_array else f"a {type(value).__name__}"
        raise InputError(
            f"the output {name!r} is {what}, and not a row for each of the batch's {size}; "
            "ask for other outputs, or run the model row by row"
        )
    return value[: max(count, 0)]


def _joined(pieces: list[Any]) -> Any:
    if len(pieces) == 1:
        return pieces[0]
    if all(isinstance(p, np.ndarray) and p.shape[1:] == pieces[0].shape[1:] for p in pieces):
        return np.concatenate(pieces)
    return [row for piece in pieces for row in piece]


def _stacked(rows: list[Any]) -> Any:
    is_same = all(isinstance(row, np.ndarray) and row.shape == rows[0].shape for row in rows)
    return np.stack(rows) if rows and is_same else rows


_WIDER: list[tuple[Callable[[np.dtype[Any]], bool], type]] = [
    (lambda dtype: dtype.name.startswith(("bfloat", "float8", "float6", "float4")), np.float32),
    (lambda dtype: dtype.name in ("int2", "int4"), np.int8),
    (lambda dtype: dtype.name in ("uint2", "uint4"), np.uint8),
]


def _plain(value: Any) -> Any:
    """Converts values to types that tables have: narrow floats as float32, 2- and 4-bit integers as int8 or uint8."""
    if isinstance(value, list):
        return [_plain(row) for row in value]
    if not isinstance(value, np.ndarray):
        return value
    return next((value.astype(wide) for fits, wide in _WIDER if fits(value.dtype)), value)
