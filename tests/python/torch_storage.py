"""Arrays as the torch tensors that exported modules take, and back: some element types are stored in others."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch

# The types that torch has too, and the integers of their size.
_SAME_BITS = {
    "bfloat16": (np.int16, torch.bfloat16),
    "float8_e4m3fn": (np.uint8, torch.float8_e4m3fn),
    "float8_e4m3fnuz": (np.uint8, torch.float8_e4m3fnuz),
    "float8_e5m2": (np.uint8, torch.float8_e5m2),
    "float8_e5m2fnuz": (np.uint8, torch.float8_e5m2fnuz),
    "float8_e8m0fnu": (np.uint8, torch.float8_e8m0fnu),
    "uint64": (np.int64, torch.int64),
}
_WIDER = {
    "uint16": np.int32,
    "uint32": np.int64,
    "int4": np.int8,
    "int2": np.int8,
    "uint4": np.uint8,
    "uint2": np.uint8,
    "float4_e2m1fn": np.float16,
    "float6_e2m3fn": np.float16,
    "float6_e3m2fn": np.float16,
}


def to_torch(value: Any) -> Any:
    if value is None:
        return None
    if isinstance(value, (list, tuple)):
        return [to_torch(item) for item in value]
    array = np.array(value)
    if array.dtype.name in _SAME_BITS:
        integers, dtype = _SAME_BITS[array.dtype.name]
        return torch.from_numpy(array.view(integers)).view(dtype)
    return torch.from_numpy(array.astype(_WIDER.get(array.dtype.name, array.dtype)))


def from_torch(value: Any, like: Any) -> Any:
    """Makes an array of the type of another one, from a tensor that stands for it; likewise lists."""
    if value is None:
        return None
    if isinstance(value, (list, tuple)):
        assert len(value) == len(like)
        return [from_torch(item, other) for item, other in zip(value, like, strict=True)]
    dtype = np.asarray(like).dtype
    if dtype.name in _SAME_BITS:
        integers, stored = _SAME_BITS[dtype.name]
        assert value.dtype == stored
        return value.detach().view(torch.from_numpy(np.zeros(0, integers)).dtype).numpy().view(dtype)
    array = value.detach().numpy()
    if dtype.name in _WIDER:
        assert array.dtype == _WIDER[dtype.name]
        return array.astype(dtype)
    return array
