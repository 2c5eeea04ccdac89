"""The forms in which a caller may give a model. Nothing here imports onnx."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from typing import Any, Protocol

from ..errors import InvalidModelError


class ModelProto(Protocol):
    """The part of an `onnx.ModelProto` that is used."""

    def SerializeToString(self) -> bytes: ...


Model = ModelProto | bytes | str | os.PathLike[str]
External = Mapping[str, Any] | Callable[[str, int, int], Any]  # buffers by file names, or a function that gives one


def check_kind(model: object) -> None:
    """Refuses what is no model, such as a model that is prepared already."""
    if not isinstance(model, (bytes, str, os.PathLike)) and not hasattr(model, "SerializeToString"):
        raise TypeError(f"a model is a path, its bytes or an onnx.ModelProto, not of type {type(model).__name__}")


def serialized(model: ModelProto | bytes) -> bytes:
    """Returns a model's bytes."""
    check_kind(model)
    if isinstance(model, bytes):
        return model
    from google.protobuf.message import EncodeError  # type: ignore[import-untyped,unused-ignore]

    try:
        return model.SerializeToString()
    except (EncodeError, ValueError) as error:
        raise InvalidModelError(
            "the model given cannot be serialized; one larger than 2 GiB must be given as a path"
        ) from error
