"""Convolutions on CUDA with the channels last: on a GPU, or else on a device that is pretended (pretended_cuda.py)."""

from __future__ import annotations

import contextlib
import re
from collections.abc import Iterator
from typing import Any

import numpy as np
import onnx
import pytest
import torch
from onnx import numpy_helper, parser

import onnx_torch
from pretended_cuda import PretendedCuda
from random_numbers import RNG

ON_GPU = torch.cuda.is_available()
FORMATS = {4: torch.channels_last, 5: torch.channels_last_3d}


class Device(PretendedCuda):
    """A device that keeps whether the weights of convolutions lie channels-last."""

    def __init__(self) -> None:
        super().__init__()
        self.channels_last: list[bool] = []

    def _compute(self, func: Any, args: Any, kwargs: Any, place: torch.device | None) -> Any:
        if func is torch.ops.aten.convolution.default:
            weight, order = args[1].held, FORMATS.get(args[1].dim())
            laid_out = order and torch.empty(weight.shape, memory_format=order)
            self.channels_last.append(laid_out is not None and weight.stride() == laid_out.stride())
        return super()._compute(func, args, kwargs, place)


@pytest.fixture
def device() -> Iterator[Device | None]:
    with contextlib.nullcontext() if ON_GPU else Device() as pretended:
        yield pretended


def model(kind: str, spatial: int) -> onnx.ModelProto:
    """Makes two convolutions of a kind, such as "float16", the second of 1 by 1."""
    sizes = ", ".join(["8"] * spatial)
    source = parser.parse_model(
        f"""<ir_version: 10, opset_import: ["": 22]> net ({kind}[2, 3, {sizes}] x) => ({kind} y)
            {{ a = Conv(x, v) b = Relu(a) y = Conv(b, w) }}"""
    )
    dtype = np.float16 if kind == "float16" else np.float32
    for name, shape in {"v": (4, 3, *[3] * spatial), "w": (5, 4, *[1] * spatial)}.items():
        weight = RNG.standard_normal(shape).astype(dtype)
        source.graph.initializer.append(numpy_helper.from_array(weight, name))
    return source


def images(kind: str, spatial: int) -> np.ndarray:
    return RNG.standard_normal((2, 3, *[8] * spatial)).astype(np.float16 if kind == "float16" else np.float32)


def check(device: Device | None, kind: str, spatial: int, expected: bool, **options: Any) -> None:
    source, x = model(kind, spatial), images(kind, spatial)
    plain = onnx_torch.prepare(source, "CUDA:0", optimize=False, **options).run([x])[0]
    rep = onnx_torch.prepare(source, "CUDA:0", **options)
    if device:
        device.channels_last.clear()
    y = rep.run([x])[0]
    assert device is None or device.channels_last == [expected] * 2
    # A sum of the first convolution may be rounded to the other side, which gives the second one another number.
    narrow = kind == "float16" or options.keys() & {"precision", "tf32"}
    tolerance = 2**-6 if narrow else 2**-15
    np.testing.assert_allclose(y, plain, rtol=tolerance, atol=tolerance, strict=True)


@pytest.mark.parametrize("spatial", [2, 3])
def test_weights_of_float16_lie_channels_last(spatial: int, device: Device | None) -> None:
    check(device, "float16", spatial, True)


@pytest.mark.parametrize("precision", ["float16", "bfloat16"])
def test_so_do_those_that_an_option_makes_of_float32(precision: str, device: Device | None) -> None:
    check(device, "float", 2, True, precision=precision)


def test_so_do_those_of_float32_in_tf32(device: Device | None) -> None:
    check(device, "float", 2, True, tf32=True)


def test_others_stay(device: Device | None) -> None:
    check(device, "float", 2, False)
    check(device, "float16", 1, False)
    check(device, "float16", 2, False, disabled_passes=["channels_last"])


def test_convolutions_of_one_weight_share_it(device: Device | None) -> None:
    source = parser.parse_model(
        """<ir_version: 10, opset_import: ["": 22]> net (float16[2, 3, 8, 8] x) => (float16 y)
           { a = Conv(x, w) b = Conv(a, w) y = Conv(b, w) }"""
    )
    source.graph.initializer.append(numpy_helper.from_array(RNG.standard_normal((3, 3, 3, 3)).astype(np.float16), "w"))
    weights = re.findall(r"aten::convolution\(%\w+, (%\w+)", onnx_torch.prepare(source, "CUDA:0").graph())
    assert len(weights) == 3 and len(set(weights)) == 1
