"""Prepared models that are kept in one file.

The file holds blobs, each at a multiple of 64 bytes: the weights, then the laid weights of each packed operator. After
those come the model, which refers to the weights as external data, an index in JSON, the index's length in 8 bytes,
and a mark. Where it is loaded, weights are mapped from the file and not copied.
"""

from __future__ import annotations

import json
import os
import struct
from collections.abc import Mapping
from pathlib import Path
from typing import IO, Any

import numpy as np
import onnx
from google.protobuf.message import DecodeError  # type: ignore[import-untyped,unused-ignore]
from onnx.external_data_helper import _get_all_tensors

from .. import _C
from .._build_info import VERSION
from .._models.files import check_regular, writing
from .._versions import torch_version
from ..errors import Error, InvalidModelError
from .saved import MARK

_ALIGNMENT = 64
_SMALL = 1024  # the bytes below which a tensor's data stays in the model

# The exceptions that content of another type, length or number than was written leads to. RuntimeError is pybind11's.
_OF_OTHER_CONTENT = (ArithmeticError, AttributeError, DecodeError, LookupError, RuntimeError, TypeError, ValueError)


def form_key() -> dict[str, str]:
    """Returns all that a prepared form depends on, besides the model and its options."""
    return {
        "onnx_torch": VERSION,
        "torch": torch_version(),
        "layouts": _C.layouts_version(),
        "cpu": _C.cpu_features()["vectors"],
    }


def save(
    file: str | os.PathLike[str], prepared: _C.PreparedModel, model: onnx.ModelProto, options: Mapping[str, Any]
) -> None:
    """Writes a prepared model, beside the model with all its weights in it and the options of `prepare`."""
    target = Path(file)
    partial = target.with_name(target.name + ".part")
    with writing(target):
        try:
            with open(partial, "wb") as out:
                _write(out, prepared, model, options)
            partial.replace(target)
        except BaseException:
            partial.unlink(missing_ok=True)
            raise


def _write(out: IO[bytes], prepared: _C.PreparedModel, model: onnx.ModelProto, options: Mapping[str, Any]) -> None:
    for tensor in _get_all_tensors(model):
        if len(tensor.raw_data) >= _SMALL:
            _refer(tensor, _put(out, tensor.raw_data), len(tensor.raw_data))
    index: dict[str, Any] = {
        "key": form_key(),
        "options": {name: value for name, value in options.items() if name not in ("base_dir", "allow_aten")},
        "laid": [
            [(layout, _put(out, data.data), data.size) for layout, data in operation]
            for operation in prepared.laid_weights
        ],
    }
    message = model.SerializeToString()
    index["model"] = (_put(out, message), len(message))
    text = json.dumps(index, default=sorted).encode()  # some options are sets
    out.write(text + struct.pack("<Q", len(text)) + MARK)


def load(path: str, allow_aten: str) -> tuple[_C.PreparedModel, dict[str, Any]]:
    """Loads the prepared model in a file that `save` wrote, and its options."""
    try:
        return _loaded(path, _read_index(path), allow_aten)
    except Error:
        raise
    except MemoryError as error:
        raise Error(f"there is not enough memory for what {path} says that it holds") from error
    except (*_OF_OTHER_CONTENT, OSError) as error:
        raise InvalidModelError(f"{path} cannot be read as a saved model: {error}") from error


def model_in(path: str) -> onnx.ModelProto:
    """Reads the model in a file that `save` wrote, with its weights as external data in that file."""
    start, size = _read_index(path)["model"]
    return _read_model(path, start, size)


def _read_model(path: str, start: int, size: int) -> onnx.ModelProto:
    if start + size > os.path.getsize(path):
        raise InvalidModelError(f"{path} ends before its model does")
    with open(path, "rb") as source:
        source.seek(start)
        model: onnx.ModelProto = onnx.ModelProto.FromString(source.read(size))
    for tensor in _get_all_tensors(model):
        for entry in tensor.external_data:
            if entry.key == "location":
                entry.value = os.path.basename(path)  # the file may have had another name
    return model


def _loaded(path: str, index: dict[str, Any], allow_aten: str) -> tuple[_C.PreparedModel, dict[str, Any]]:
    model = _read_model(path, *index["model"])
    laid = []
    if index["key"] == form_key() and any(index["laid"]):
        blobs = np.memmap(path, np.uint8, "c")
        laid = [[(layout, blobs[at : at + size]) for layout, at, size in operation] for operation in index["laid"]]
    sets = {name: set(index["options"].get(name, ())) for name in ("disabled_passes", "last_only")}
    options = {**index["options"], **sets, "allow_aten": allow_aten}
    native = _C.Options(**{**options, "map_external": True})
    prepared = _C.PreparedModel.from_bytes(model.SerializeToString(), os.path.dirname(path), native, laid)
    return prepared, {**options, "base_dir": os.path.dirname(path)}


def _put(out: IO[bytes], data: bytes | memoryview) -> int:
    """Writes a blob, and returns its offset."""
    out.write(b"\0" * (-out.tell() % _ALIGNMENT))
    start = out.tell()
    out.write(data)
    return start


def _refer(tensor: onnx.TensorProto, start: int, size: int) -> None:
    """Makes a tensor's data external, in the file that the model is in."""
    tensor.ClearField("raw_data")
    tensor.ClearField("external_data")
    tensor.data_location = onnx.TensorProto.EXTERNAL
    for key, value in {"location": "", "offset": start, "length": size}.items():
        tensor.external_data.add(key=key, value=str(value))


def _read_index(path: str) -> dict[str, Any]:
    check_regular(path)
    size = struct.calcsize("<Q")
    with open(path, "rb") as source:
        source.seek(-len(MARK) - size, os.SEEK_END)
        length, mark = source.read(size), source.read()
        if mark != MARK:
            raise InvalidModelError(
                f"{path} was not written by PreparedModel.save, or by another release; prepare the model"
            )
        (count,) = struct.unpack("<Q", length)
        source.seek(-len(MARK) - size - count, os.SEEK_END)
        index: dict[str, Any] = json.loads(source.read(count))
        return index
