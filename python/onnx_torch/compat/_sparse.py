"""`SparseTensor`: made dense where a model takes it, and made of a dense one where a model declares its output so."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from ._devices import OrtDevice
from ._elements import element_name
from ._enums import OrtSparseFormat
from ._errors import Fail, InvalidArgument
from ._status import refused

__all__ = ["SparseTensor"]

Array = np.ndarray[Any, Any]


@dataclass(frozen=True)
class SparseCooView:
    """The indices of the coordinate form: of each value, or its coordinates."""

    _indices: Array

    def indices(self) -> Array:
        """One number for each value, counted through the dense tensor, or one for each of two dimensions."""
        return self._indices


@dataclass(frozen=True)
class SparseCsrcView:
    """The indices of compressed rows."""

    _inner: Array
    _outer: Array

    def inner(self) -> Array:
        """The column of each value."""
        return self._inner

    def outer(self) -> Array:
        """For each row where its values begin, and their number."""
        return self._outer


class SparseTensor:
    """The values of a tensor that are not zero, with their places."""

    _shape: list[int]
    _values: Array
    _view: SparseCooView | SparseCsrcView

    def __init__(self, sparse_tensor: SparseTensor) -> None:
        if not isinstance(sparse_tensor, SparseTensor):
            raise ValueError("a SparseTensor is made from another, or by its class methods")
        self._shape, self._values, self._view = sparse_tensor._shape, sparse_tensor._values, sparse_tensor._view

    @classmethod
    def _of(cls, shape: Sequence[int], values: Array, view: SparseCooView | SparseCsrcView) -> SparseTensor:
        if values.dtype.kind in "OUS" or values.ndim != 1:
            raise InvalidArgument("the values of a sparse tensor are numbers in an array of one dimension")
        made = cls.__new__(cls)
        made._shape, made._values, made._view = [int(size) for size in shape], values, view
        made._places()
        return made

    @classmethod
    def sparse_coo_from_numpy(
        cls, dense_shape: Any, values: np.ndarray, coo_indices: np.ndarray, ort_device: OrtDevice
    ) -> SparseTensor:
        """Of values and their places: counted through the dense tensor, or rows of two coordinates."""
        indices = np.asarray(coo_indices, np.int64)
        if indices.ndim not in (1, 2) or indices.shape != (len(values), 2)[: indices.ndim]:
            raise InvalidArgument(
                f"{len(values)} values have as many indices, or pairs of them, not ones of shape {list(indices.shape)}"
            )
        return cls._of(dense_shape, values, SparseCooView(indices))

    @classmethod
    def sparse_csr_from_numpy(
        cls,
        dense_shape: Any,
        values: np.ndarray,
        inner_indices: np.ndarray,
        outer_indices: np.ndarray,
        ort_device: OrtDevice,
    ) -> SparseTensor:
        """Of values, their columns, and where the values of each row begin."""
        inner, outer = np.asarray(inner_indices, np.int64), np.asarray(outer_indices, np.int64)
        if len(dense_shape) != 2 or inner.shape != values.shape or outer.shape != (dense_shape[0] + 1,):
            raise InvalidArgument("compressed rows have one column for each value, and one start more than rows")
        if outer[0] != 0 or outer[-1] != len(values) or (np.diff(outer) < 0).any():
            raise InvalidArgument("the rows' starts go up from 0 to the number of values")
        return cls._of(dense_shape, values, SparseCsrcView(inner, outer))

    @classmethod
    def _of_dense(cls, dense: Array) -> SparseTensor:
        places = np.flatnonzero(dense)
        return cls._of(dense.shape, dense.reshape(-1)[places], SparseCooView(places))

    def _places(self) -> Array:
        """Where each value lies among the elements of the dense tensor."""
        view = self._view
        if isinstance(view, SparseCsrcView):
            rows = np.repeat(np.arange(self._shape[0]), np.diff(view.outer()))
            indices = np.stack([rows, view.inner()], axis=-1)
        else:
            indices = view.indices()
        limits = self._shape if indices.ndim == 2 else [math.prod(self._shape)]
        if indices.ndim == 2 and len(self._shape) != 2:
            raise InvalidArgument(f"pairs of indices are of a matrix, and the shape is {self._shape}")
        if (indices < 0).any() or (indices >= np.array(limits)).any():
            raise InvalidArgument(f"indices lie outside of the shape {self._shape}")
        return indices @ np.array([self._shape[1], 1]) if indices.ndim == 2 else indices

    def _dense(self) -> Array:
        """The tensor with its zeros."""
        dense = np.zeros(math.prod(self._shape), self._values.dtype)
        dense[self._places()] = self._values
        return dense.reshape(self._shape)

    def _get_c_tensor(self) -> SparseTensor:
        return self

    def values(self) -> np.ndarray:
        """The values that are there."""
        return self._values

    def dense_shape(self) -> list[int]:
        """The shape with the zeros."""
        return self._shape

    def format(self) -> OrtSparseFormat:
        """The form of the indices."""
        form = OrtSparseFormat.ORT_SPARSE_COO
        return form if isinstance(self._view, SparseCooView) else OrtSparseFormat.ORT_SPARSE_CSRC

    def as_coo_view(self) -> SparseCooView:
        """The indices, where the form is of coordinates."""
        if not isinstance(self._view, SparseCooView):
            raise Fail("This sparse tensor does not contain COO format")
        return self._view

    def as_csrc_view(self) -> SparseCsrcView:
        """The indices, where the form is of compressed rows."""
        if not isinstance(self._view, SparseCsrcView):
            raise Fail("This sparse tensor does not contain CSR(C) format")
        return self._view

    as_blocksparse_view = refused("there are sparse tensors of single values alone")
    to_cuda = refused("a model takes it dense: OrtValue.ortvalue_from_numpy(dense, 'cuda') makes that")

    def data_type(self) -> str:
        """The ONNX type, such as ``sparse_tensor(float)``."""
        return f"sparse_tensor({element_name(self._values.dtype)})"

    def device_name(self) -> str:
        """Where it lies: on the host."""
        return "cpu"
