"""`OrtValue` and `OrtValueVector`.

A tensor on the host is held as a numpy array (ml_dtypes has the element types that numpy lacks), one on a CUDA
device as a torch tensor.
"""

from __future__ import annotations

import ctypes
import math
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, TypeAlias, TypeGuard

import numpy as np

from .._running.values import is_tensor
from ._devices import HOST, OrtMemoryInfo, TorchDevice, torch_device
from ._elements import element_name, element_named, element_of, numpy_dtype, torch_dtype
from ._enums import OrtDeviceVendorId
from ._errors import Fail, InvalidArgument
from ._sparse import SparseTensor
from ._status import ignored, refused, works

if TYPE_CHECKING:
    import torch

__all__ = ["OrtValue", "OrtValueVector", "SparseTensor", "copy_tensors"]

Tensor: TypeAlias = "np.ndarray[Any, Any] | torch.Tensor"

_LAST_ADDRESS = 2**64 - 1  # the last that any machine has


def _is_dense(data: Any) -> TypeGuard[Tensor]:
    return isinstance(data, np.ndarray) or is_tensor(data)


def _type_of(data: Any) -> str:
    if _is_dense(data):
        return f"tensor({element_name(data.dtype)})"
    if isinstance(data, SparseTensor):
        return data.data_type()
    if isinstance(data, dict):
        key = "string" if data and isinstance(next(iter(data)), str) else "int64"
        return f"map({key},tensor(float))"
    return f"seq({_type_of(data[0]) if data else 'tensor(float)'})"


def _as_torch(tensor: Tensor) -> torch.Tensor:
    """Returns a tensor on the array's memory."""
    import torch

    if isinstance(tensor, torch.Tensor):
        return tensor
    if tensor.dtype == object:
        raise Fail("a tensor of strings has no memory that others can read")
    plain = tensor if tensor.dtype.isbuiltin == 1 else tensor.view(f"u{tensor.dtype.itemsize}")  # else ml_dtypes' own
    return torch.from_numpy(plain).view(torch_dtype(tensor.dtype))


def _as_numpy(tensor: torch.Tensor, dtype: np.dtype[Any]) -> np.ndarray[Any, Any]:
    """Returns an array of that type, on the tensor's memory where that is the host's."""
    import torch

    host = tensor.detach().cpu().contiguous()
    return host.reshape(-1).view(torch.uint8).numpy().view(dtype).reshape(tuple(tensor.shape))


class _CudaMemory:
    def __init__(self, pointer: int, size: int) -> None:
        self.__cuda_array_interface__ = {"shape": (size,), "typestr": "|u1", "data": (pointer, False), "version": 3}


def at_address(pointer: int, device: TorchDevice, element: Any, shape: Sequence[int]) -> Tensor:
    """Returns the caller's memory as an array on the host, or as a tensor on a CUDA device."""
    dtype = numpy_dtype(element)
    if dtype.hasobject or dtype.kind in "US":
        raise InvalidArgument(
            f"elements of type {dtype} do not lie in memory as numbers do: they cannot be at an address"
        )
    if any(size < 0 for size in shape):
        raise InvalidArgument(f"what lies at an address cannot have the shape {list(shape)}")
    size = math.prod(shape) * dtype.itemsize
    if not 0 <= pointer <= _LAST_ADDRESS - size or (pointer == 0 and size > 0):
        raise InvalidArgument(f"{size} bytes cannot lie at the address {pointer}")
    if pointer % dtype.alignment:
        raise InvalidArgument(f"the address {pointer} is not aligned for elements of type {dtype}")
    if device.type == "cuda":
        import torch

        memory = torch.as_tensor(_CudaMemory(pointer, size), device=str(device))
        return memory.view(torch_dtype(element)).reshape(tuple(shape))
    array: np.ndarray[Any, Any] = np.ndarray(
        tuple(shape), dtype, memoryview((ctypes.c_byte * size).from_address(pointer))
    )
    return array


def write_into(target: Tensor, source: Tensor, name: str) -> None:
    """Copies a tensor into memory of its shape and type."""
    if element_of(source.dtype) != element_of(target.dtype) or tuple(source.shape) != tuple(target.shape):
        raise InvalidArgument(
            f"{name} is {target.dtype} of shape {list(target.shape)}, and cannot take {source.dtype} of shape "
            f"{list(source.shape)}"
        )
    if isinstance(target, np.ndarray) and isinstance(source, np.ndarray):
        np.copyto(target, source)
    else:
        _as_torch(target).copy_(_as_torch(source))


class OrtValue:
    """A value of any ONNX type, on the host or on a CUDA device.

    >>> import numpy as np, onnx_torch
    >>> value = onnx_torch.OrtValue.ortvalue_from_numpy(np.zeros((2, 3), np.float32))
    >>> value.shape(), value.data_type(), value.device_name()
    ([2, 3], 'tensor(float)', 'cpu')
    """

    _data: Any
    _type: str

    def __init__(self, ortvalue: OrtValue, numpy_obj: Any = None, session: Any = None) -> None:
        if not isinstance(ortvalue, OrtValue):
            raise ValueError("an OrtValue is made from another, or by its class methods")
        self._data, self._type = ortvalue._data, ortvalue._type

    @classmethod
    def _of(cls, data: Any, type_: str | None = None) -> OrtValue:
        """Makes a value of an array, a tensor, a list or a dictionary; None is an absent optional."""
        value = cls.__new__(cls)
        value._data = data
        value._type = type_ or _type_of(data)
        return value

    @property
    def _ortvalue(self) -> OrtValue:
        return self

    def _get_c_value(self) -> OrtValue:
        return self

    def _on(self, device: TorchDevice) -> OrtValue:
        """Returns the same value on another device."""
        data = self._data
        if device.type == "cuda" and _is_dense(data):
            return OrtValue._of(_as_torch(data).to(str(device)), self._type)
        if is_tensor(data):
            return OrtValue._of(_as_numpy(data, numpy_dtype(self.element_type())), self._type)
        return self

    @classmethod
    def ortvalue_from_numpy(
        cls,
        numpy_obj: np.ndarray[Any, Any],
        /,
        device_type: str = "cpu",
        device_id: int = 0,
        vendor_id: int | OrtDeviceVendorId = -1,
    ) -> OrtValue:
        """Makes a value of an array: on its memory for the CPU, where that is contiguous, else of a copy."""
        native = np.asarray(numpy_obj, np.asarray(numpy_obj).dtype.newbyteorder("="), order="C")
        return cls._of(native)._on(torch_device(device_type, device_id))

    @classmethod
    def ortvalue_from_numpy_with_onnx_type(cls, data: np.ndarray[Any, Any], /, onnx_element_type: int) -> OrtValue:
        """Makes a value of an array whose memory holds another type of the same size, such as bfloat16 in uint16."""
        dtype = numpy_dtype(onnx_element_type)
        if dtype.itemsize != data.dtype.itemsize:
            raise InvalidArgument(f"an array of {data.dtype} cannot hold {dtype}, whose size is another")
        return cls._of(np.asarray(data, order="C").view(dtype))

    @classmethod
    def ortvalue_from_shape_and_type(
        cls,
        shape: Sequence[int],
        element_type: Any,
        device_type: str = "cpu",
        device_id: int = 0,
        vendor_id: int | OrtDeviceVendorId = -1,
        memory_info: OrtMemoryInfo | None = None,
    ) -> OrtValue:
        """Makes a tensor whose elements are not set. The type is a numpy dtype or ONNX's number."""
        if memory_info is not None:
            device_type, device_id = memory_info.name, memory_info.device_id
        if element_name(element_type) == "string":
            raise InvalidArgument("a tensor of strings is made from an array")
        device = torch_device(device_type, device_id)
        if device.type == "cuda":
            import torch

            type_ = _type_of(np.empty(0, numpy_dtype(element_type)))
            return cls._of(torch.empty(list(shape), dtype=torch_dtype(element_type), device=str(device)), type_)
        return cls._of(np.empty(tuple(shape), numpy_dtype(element_type)))

    @classmethod
    def ort_value_from_sparse_tensor(cls, sparse_tensor: SparseTensor) -> OrtValue:
        """Makes a value of a sparse tensor."""
        return cls._of(sparse_tensor)

    @works("one that is dense is an error, as in onnxruntime")
    def as_sparse_tensor(self) -> SparseTensor:
        """Returns the sparse tensor."""
        if not isinstance(self._data, SparseTensor):
            raise Fail(f"the value is {self._type}, not a sparse tensor")
        return self._data

    @classmethod
    def from_dlpack(cls, data: Any, /) -> OrtValue:
        """Makes a value on the memory of anything that speaks DLPack, or of a capsule."""
        import torch

        value = cls._of(torch.utils.dlpack.from_dlpack(data.detach() if isinstance(data, torch.Tensor) else data))
        return value if value._data.is_cuda else value._on(HOST)

    def __dlpack__(self, *, stream: Any = None) -> Any:
        return _as_torch(self._tensor()).__dlpack__(stream=stream)

    def __dlpack_device__(self) -> tuple[int, int]:
        data = self._tensor()
        return (2, data.device.index) if is_tensor(data) else (1, 0)

    def to_dlpack(self) -> Any:
        """Makes a DLPack capsule of the tensor."""
        return self.__dlpack__()

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> np.ndarray[Any, Any]:
        return np.array(self.numpy(), dtype=dtype, copy=copy)

    def _tensor(self) -> Tensor:
        data: Any = self._data
        if not _is_dense(data):
            raise Fail(f"the value is {self._type}, not a tensor")
        return data

    def data_ptr(self) -> int:
        """Returns the address of the first element."""
        data = self._tensor()
        return data.ctypes.data if isinstance(data, np.ndarray) else data.data_ptr()

    def device_name(self) -> str:
        """Returns ``"cpu"`` or ``"cuda"``."""
        return "cuda" if is_tensor(self._data) else "cpu"

    def shape(self) -> list[int]:
        """Returns the shape of a tensor."""
        return list(self._tensor().shape)

    def data_type(self) -> str:
        """Returns the ONNX type, such as ``tensor(float)``."""
        return self._type

    def element_type(self) -> int:
        """Returns ONNX's number of a tensor's element type."""
        self._tensor()
        return element_named(self._type.removeprefix("tensor(").removesuffix(")"))

    def tensor_size_in_bytes(self) -> int:
        """Returns the size of a tensor's memory."""
        return self._tensor().nbytes

    def has_value(self) -> bool:
        """Tells whether there is a value; an absent optional has none."""
        return self._data is not None

    def is_tensor(self) -> bool:
        """Tells whether it is a tensor."""
        return _is_dense(self._data)

    def is_sparse_tensor(self) -> bool:
        """Tells whether it is a sparse tensor."""
        return isinstance(self._data, SparseTensor)

    def is_tensor_sequence(self) -> bool:
        """Tells whether it is a sequence of tensors."""
        return self._type.startswith("seq(tensor(")

    @works("lists and dictionaries come too; types that numpy lacks come as ml_dtypes'")
    def numpy(self) -> Any:
        """Returns a tensor as an array, on its memory where that is the host's."""
        return self._on(HOST)._data

    def update_inplace(self, data: np.ndarray[Any, Any] | OrtValue) -> None:
        """Writes other elements into the tensor's memory."""
        source = data._tensor() if isinstance(data, OrtValue) else data
        if not _is_dense(source):
            raise TypeError("data must be a numpy.ndarray or an OrtValue.")
        write_into(self._tensor(), source, "the OrtValue")

    def __repr__(self) -> str:
        shape = list(self._data.shape) if self.is_tensor() else ""
        return f"<OrtValue {self._type}{shape} on {self.device_name()}>"


class OrtValueVector(list[OrtValue]):
    """A list of OrtValues."""

    push_back = list[OrtValue].append
    push_back_batch = refused("make an OrtValue of each")
    reserve = shrink_to_fit = ignored("a list grows by itself")

    def element_type_at(self, idx: int) -> int:
        """Returns ONNX's number of the element type of the value at an index."""
        return self[idx].element_type()

    def dlpack_at(self, idx: int, /) -> Any:
        """Makes a DLPack capsule of the tensor at an index."""
        return self[idx].to_dlpack()

    def bool_tensor_indices(self) -> list[int]:
        """Finds the indices of the tensors of bool."""
        return [i for i, value in enumerate(self) if value.data_type() == "tensor(bool)"]

    def to_dlpacks(self, to_tensor: Callable[[Any], Any] | None) -> list[Any]:
        """Makes DLPack capsules of all values, and passes each through a function if one is given."""
        return [to_tensor(value.to_dlpack()) if to_tensor else value.to_dlpack() for value in self]


@works("a stream is not looked at: copies are on torch's current stream")
def copy_tensors(src: Sequence[OrtValue], dst: Sequence[OrtValue], stream: Any = None) -> None:
    """Copies tensors into others, from and to any device."""
    for source, target in zip(src, dst, strict=True):
        target.update_inplace(source)
