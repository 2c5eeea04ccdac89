"""`SparseTensor`, which is made dense where a model takes it, and made of an output that a model declares sparse."""

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
    """The indices of the coordinate form: an index into the flattened dense tensor, or coordinates, for each value."""

    _indices: Array

    def indices(self) -> Array:
        """Returns for each value its index in the flattened dense tensor, or its pair of coordinates."""
        return self._indices


@dataclass(frozen=True)
class SparseCsrcView:
    """The indices of compressed rows."""

    _inner: Array
    _outer: Array

    def inner(self) -> Array:
        """Returns the column of each value."""
        return self._inner

    def outer(self) -> Array:
        """Returns for each row the index at which its values begin, and last their count."""
        return self._outer


class SparseTensor:
    """The values of a tensor that are not zero, with their indices."""

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
        """Makes a tensor of values and their indices: into the flattened dense tensor, or pairs of coordinates."""
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
        """Makes a tensor of values, their columns, and the index at which the values of each row begin."""
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
        """Returns the index of each value in the flattened dense tensor."""
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
        """Returns the dense tensor, with its zeros."""
        dense = np.zeros(math.prod(self._shape), self._values.dtype)
        dense[self._places()] = self._values
        return dense.reshape(self._shape)

    def _get_c_tensor(self) -> SparseTensor:
        return self

    def values(self) -> np.ndarray:
        """Returns the values that are stored."""
        return self._values

    def dense_shape(self) -> list[int]:
        """Returns the shape of the dense tensor."""
        return self._shape

    def format(self) -> OrtSparseFormat:
        """Returns the form of the indices."""
        form = OrtSparseFormat.ORT_SPARSE_COO
        return form if isinstance(self._view, SparseCooView) else OrtSparseFormat.ORT_SPARSE_CSRC

    def as_coo_view(self) -> SparseCooView:
        """Returns the indices of the coordinate form."""
        if not isinstance(self._view, SparseCooView):
            raise Fail("This sparse tensor does not contain COO format")
        return self._view

    def as_csrc_view(self) -> SparseCsrcView:
        """Returns the indices of compressed rows."""
        if not isinstance(self._view, SparseCsrcView):
            raise Fail("This sparse tensor does not contain CSR(C) format")
        return self._view

    as_blocksparse_view = refused("there are sparse tensors of single values alone")
    to_cuda = refused("a model takes it dense: OrtValue.ortvalue_from_numpy(dense, 'cuda') makes that")

    def data_type(self) -> str:
        """Returns the ONNX type, such as ``sparse_tensor(float)``."""
        return f"sparse_tensor({element_name(self._values.dtype)})"

    def device_name(self) -> str:
        """Returns "cpu": the tensor is on the host."""
        return "cpu"
