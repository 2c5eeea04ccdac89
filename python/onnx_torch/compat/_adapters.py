"""`AdapterFormat` and `LoraAdapter`: files of parameters that take the place of a model's initializers in a run.

Such a file is a FlatBuffer with the mark TORT. Its root table has format_version, adapter_version, model_version and
parameters, a list of tables of name, dims, data_type (ONNX's number) and raw_data.
"""

from __future__ import annotations

import os
import struct
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

import numpy as np

from ._elements import numpy_dtype
from ._errors import InvalidArgument, NoSuchFile
from ._values import OrtValue

__all__ = ["AdapterFormat", "LoraAdapter"]

_FORMAT_VERSION = 1
_MARK = b"TORT"
_VTABLE = struct.pack("<6H", 12, 20, 4, 8, 12, 16)  # the vtable of a table of four fields of four bytes
_ALIGNMENT = 8


class AdapterFormat:
    """The parameters of an adapter, for reading and writing its file."""

    def __init__(self, adapter: AdapterFormat | None = None) -> None:
        self._adapter_version: int = adapter._adapter_version if adapter else 0
        self._model_version: int = adapter._model_version if adapter else 0
        self._parameters: dict[str, OrtValue] = adapter._parameters if adapter else {}

    @staticmethod
    def read_adapter(file_path: str | os.PathLike[str]) -> AdapterFormat:
        """Reads the adapter in a file."""
        read = AdapterFormat()
        read._adapter_version, read._model_version, read._parameters = _parse(_content(file_path))
        return read

    def export_adapter(self, file_path: str | os.PathLike[str]) -> None:
        """Writes the adapter to a file."""
        Path(file_path).write_bytes(_serialized(self._adapter_version, self._model_version, self._parameters))

    def get_format_version(self) -> int:
        """Returns the version of the file's format."""
        return _FORMAT_VERSION

    def set_adapter_version(self, adapter_version: int) -> None:
        """Sets the adapter's version."""
        self._adapter_version = int(adapter_version)

    def get_adapter_version(self) -> int:
        """Returns the adapter's version."""
        return self._adapter_version

    def set_model_version(self, model_version: int) -> None:
        """Sets the version of the model that it is for."""
        self._model_version = int(model_version)

    def get_model_version(self) -> int:
        """Returns the version of the model that it is for."""
        return self._model_version

    def set_parameters(self, params: Mapping[str, OrtValue]) -> None:
        """Sets the values, by the names of the model's inputs."""
        self._parameters = dict(params)

    def get_parameters(self) -> dict[str, OrtValue]:
        """Returns the values, by the names of the model's inputs."""
        return self._parameters


class LoraAdapter:
    """An adapter that runs are given by `RunOptions.add_active_adapter`."""

    def __init__(self) -> None:
        self._parameters: dict[str, OrtValue] = {}

    def Load(self, file_path: str | os.PathLike[str], /) -> None:  # onnxruntime's spelling
        """Reads a file."""
        self._parameters = AdapterFormat.read_adapter(file_path)._parameters


def _content(file: str | os.PathLike[str]) -> bytes:
    if os.path.exists(file) and not os.path.isfile(file):  # a pipe would be waited for
        raise NoSuchFile(f"the adapter {os.fsdecode(file)} is not a regular file")
    try:
        return Path(file).read_bytes()
    except OSError as error:
        raise NoSuchFile(f"the adapter {os.fsdecode(file)} cannot be read: {error.strerror}") from error


# --- Writing ----------------------------------------------------------------------------------------------------------


class _Writer:
    """The bytes of a FlatBuffer that is being written, in which earlier parts refer to later ones by their distance."""

    def __init__(self) -> None:
        self._data = bytearray(struct.pack("<I4s", 0, _MARK) + _VTABLE)
        self._vtable = len(self._data) - len(_VTABLE)

    def number(self, value: int) -> None:
        self._data += struct.pack("<I", value)

    def distance(self) -> int:
        """Reserves four bytes for the distance to a part that comes later, and returns where they are."""
        self.number(0)
        return len(self._data) - 4

    def table(self, place: int) -> None:
        self.here(place)
        self.number(len(self._data) - self._vtable)

    def vector(self, place: int, count: int, data: bytes) -> None:
        self._data += bytes(-(len(self._data) + 4) % _ALIGNMENT)
        self.here(place)
        self.number(count)
        self._data += data
        self._data += bytes(-len(self._data) % 4)

    def here(self, place: int) -> None:
        self._data[place : place + 4] = struct.pack("<I", len(self._data) - place)

    def result(self) -> bytes:
        return bytes(self._data)


def _serialized(adapter_version: int, model_version: int, parameters: Mapping[str, OrtValue]) -> bytes:
    out = _Writer()
    out.table(0)
    for version in (_FORMAT_VERSION, adapter_version, model_version):
        out.number(version)
    all_parameters = out.distance()
    out.vector(all_parameters, len(parameters), b"")
    tables = [out.distance() for _ in parameters]
    for table, (name, value) in zip(tables, parameters.items(), strict=True):
        array = np.asarray(value.numpy(), order="C")
        out.table(table)
        places = [out.distance(), out.distance()]
        out.number(value.element_type())
        places.append(out.distance())
        text = name.encode()
        out.vector(places[0], len(text), text + b"\0")
        out.vector(places[1], array.ndim, struct.pack(f"<{array.ndim}q", *value.shape()))
        out.vector(places[2], array.nbytes, array.tobytes())
    return out.result()


# --- Reading ----------------------------------------------------------------------------------------------------------


class _Reader:
    def __init__(self, data: bytes) -> None:
        self._data = data

    def unpack(self, form: str, at: int) -> Any:
        if at < 0:
            raise struct.error("before the file")
        return struct.unpack_from(f"<{form}", self._data, at)[0]

    def follow(self, at: int) -> int:
        return at + int(self.unpack("I", at))

    def field(self, table: int, number: int) -> int | None:
        """Finds the offset of a table's field; None where the field has its default."""
        vtable = table - self.unpack("i", table)
        if 4 + 2 * number >= self.unpack("H", vtable):
            return None
        offset = self.unpack("H", vtable + 4 + 2 * number)
        return table + offset if offset else None

    def number(self, table: int, number: int) -> int:
        at = self.field(table, number)
        return 0 if at is None else self.unpack("i", at)

    def vector(self, table: int, number: int) -> tuple[int, int]:
        """Finds the offset of a field's elements, and their count."""
        at = self.field(table, number)
        if at is None:
            return 0, 0
        start = self.follow(at)
        return start + 4, self.unpack("I", start)

    def content(self, table: int, number: int) -> bytes:
        start, size = self.vector(table, number)
        if start + size > len(self._data):
            raise struct.error("behind the file")
        return self._data[start : start + size]

    def parameters(self, root: int) -> Iterator[tuple[str, OrtValue]]:
        start, count = self.vector(root, 3)
        for i in range(count):
            table = self.follow(start + 4 * i)
            at, rank = self.vector(table, 1)
            shape = [int(self.unpack("q", at + 8 * axis)) for axis in range(rank)]
            dtype = numpy_dtype(self.number(table, 2))
            if min(shape, default=0) < 0 or dtype.hasobject:
                raise ValueError("a parameter is no tensor of numbers")
            array = np.frombuffer(self.content(table, 3), dtype).reshape(shape)
            yield self.content(table, 0).decode(), OrtValue._of(array)


def _parse(data: bytes) -> tuple[int, int, dict[str, OrtValue]]:
    """Reads an adapter's version, its model's, and its parameters."""
    reader = _Reader(data)
    not_one: Callable[[object], InvalidArgument] = lambda why: InvalidArgument(f"the file is no adapter: {why}")
    if data[4:8] != _MARK:
        raise not_one("its mark is missing")
    try:
        root = reader.follow(0)
        version = reader.number(root, 0)
        parameters = dict(reader.parameters(root))
        versions = reader.number(root, 1), reader.number(root, 2)
    except (struct.error, ValueError, KeyError, TypeError) as error:
        raise not_one(error) from error
    if version != _FORMAT_VERSION:
        raise not_one(f"its format has the version {version}")
    return *versions, parameters
