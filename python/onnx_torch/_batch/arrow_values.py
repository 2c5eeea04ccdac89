"""Columns of Arrow tables as arrays, and arrays as columns."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import pyarrow as pa

from ..errors import InputError, UnsupportedError
from .rows import objects

__all__ = ["column_values", "to_arrow"]


def column_values(name: str, column: pa.ChunkedArray) -> np.ndarray:
    """Turns a column into an array, with a dimension for each level of lists, or of arrays where lengths differ."""
    array = column.combine_chunks() if isinstance(column, pa.ChunkedArray) else column
    if isinstance(array, pa.ExtensionArray):
        return column_values(name, array.storage)
    if pa.types.is_dictionary(array.type):
        array = array.dictionary_decode()
    if array.null_count:
        raise InputError(f"the column {name!r} holds nulls")
    if not _is_list(array.type):
        return np.asarray(array.to_numpy(zero_copy_only=False))
    lengths = np.asarray(_fixed_lengths(array) if pa.types.is_fixed_size_list(array.type) else array.value_lengths())
    inner = column_values(name, array.flatten())
    if len(lengths) and (lengths == lengths[0]).all():
        return inner.reshape(len(lengths), lengths[0], *inner.shape[1:])
    return objects(np.split(inner, np.cumsum(lengths)[:-1]) if len(lengths) else [])


def _is_list(kind: pa.DataType) -> bool:
    return any(test(kind) for test in (pa.types.is_list, pa.types.is_large_list, pa.types.is_fixed_size_list))


def _fixed_lengths(array: pa.FixedSizeListArray) -> list[int]:
    return [array.type.list_size] * len(array)


def to_arrow(name: str, rows: Any) -> pa.Array:
    """Turns an array, or a list of rows (arrays, maps, texts), into a column: further dimensions become lists."""
    try:
        if isinstance(rows, np.ndarray):
            return _nested(rows)
        if rows and all(isinstance(row, Mapping) for row in rows):
            return _maps(rows)
        if rows and all(isinstance(row, np.ndarray) for row in rows):
            return pa.concat_arrays([_nested(row[np.newaxis]) for row in rows])
        return pa.array(rows)
    except (pa.ArrowInvalid, pa.ArrowTypeError, pa.ArrowNotImplementedError) as error:
        raise UnsupportedError(f"the output {name!r} cannot be a column of a table: {error}") from error


def _nested(values: np.ndarray) -> pa.Array:
    """Makes lists within lists, of which each level is one array of offsets: no row is touched."""
    array = pa.array(np.ascontiguousarray(values).reshape(-1))
    for axis in range(values.ndim - 1, 0, -1):
        lists = int(np.prod(values.shape[:axis]))
        offsets = np.arange(lists + 1, dtype=np.int64) * values.shape[axis]
        array = pa.LargeListArray.from_arrays(pa.array(offsets), array)
    return array


def _maps(rows: list[Mapping[Any, Any]]) -> pa.Array:
    keys = pa.array([key for row in rows for key in row])
    values = pa.array(np.asarray([value for row in rows for value in row.values()]))
    offsets = np.cumsum([0, *(len(row) for row in rows)]).astype(np.int32)
    return pa.MapArray.from_arrays(pa.array(offsets), keys, values)
