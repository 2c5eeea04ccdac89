"""Resize as PyTorch's two exporters write it gives what PyTorch gives; else what the standard says.

The two differ where a scale leads to no whole length.
"""

from __future__ import annotations

import io
import logging
from collections.abc import Iterator
from typing import Any

import numpy as np
import onnx
import pytest
import torch
import torch.nn.functional as F
from onnx import TensorProto, helper

import onnx_torch
from models import model_of, run_op, tensor_info

pytest.importorskip("onnxscript")
pytestmark = pytest.mark.filterwarnings("ignore")

SHAPES = {"linear": (33,), "trilinear": (9, 11, 13)}
MODES = ["nearest", "linear", "bilinear", "bicubic", "trilinear"]
OTHERS = ["nearest-exact"]  # which the older exporter does not have


class Interpolate(torch.nn.Module):
    """Resizes in several ways, so that one model has them all: an exporter takes a second or two for each."""

    def __init__(self, ways: list[dict[str, Any]]) -> None:
        super().__init__()
        self.ways = ways

    def forward(self, x: torch.Tensor) -> tuple[torch.Tensor, ...]:
        return tuple(F.interpolate(x, **options) for options in self.ways)


def options_of(mode: str, scales: tuple[float, ...]) -> Iterator[dict[str, Any]]:
    sizes = SHAPES.get(mode, (33, 33))
    for align in (None,) if mode.startswith("nearest") else (True, False):
        options = {"mode": mode} if align is None else {"mode": mode, "align_corners": align}
        for scale in scales:
            yield {"scale_factor": scale, **options}
        if len(scales) > 1:
            yield {"scale_factor": 0.6, "recompute_scale_factor": True, **options}
            yield {"size": tuple(size * 2 // 3 for size in sizes), **options}


def exported(module: torch.nn.Module, x: torch.Tensor, opset: int, by_export: bool, dynamic: bool) -> onnx.ModelProto:
    open_sizes = range(2, x.dim()) if dynamic else range(0)
    if by_export:
        shapes = {"x": dict.fromkeys(open_sizes, torch.export.Dim.DYNAMIC)} if dynamic else None
        program = torch.onnx.export(
            module, (x,), dynamo=True, opset_version=opset, dynamic_shapes=shapes, verbose=False
        )
        return program.model_proto
    file = io.BytesIO()
    axes = {"x": {axis: f"size{axis}" for axis in open_sizes}}
    torch.onnx.export(module, (x,), file, opset_version=opset, dynamo=False, input_names=["x"], dynamic_axes=axes)
    return onnx.load_model_from_string(file.getvalue())


def check(mode: str, scales: tuple[float, ...], opset: int, by_export: bool = False, dynamic: bool = False) -> None:
    x = torch.randn(1, 2, *SHAPES.get(mode, (33, 33)), generator=torch.Generator().manual_seed(0))
    ways = list(options_of(mode, scales))
    results = onnx_torch.prepare(exported(Interpolate(ways), x, opset, by_export, dynamic)).run([x.numpy()])
    for options, y in zip(ways, results, strict=True):
        expected = F.interpolate(x, **options).numpy()
        np.testing.assert_allclose(y, expected, rtol=1e-4, atol=1e-4, err_msg=f"{options} {opset}")


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("opset", range(11, 20))
def test_torchscript_exporter(mode, opset):
    check(mode, (0.5, 0.6, 1.3) if opset in (13, 18) else (0.5,), opset)


@pytest.mark.parametrize("mode", MODES)
def test_torchscript_exporter_with_open_sizes(mode):
    check(mode, (0.5, 0.6, 1.3, 2.0), 17, dynamic=True)


@pytest.mark.parametrize("dynamic", [False, True])
@pytest.mark.parametrize("mode", [*MODES, *OTHERS])
def test_exporter_of_exported_programs(mode, dynamic, caplog):
    caplog.set_level(logging.ERROR)
    check(mode, (0.5, 0.6), 18, by_export=True, dynamic=dynamic)


def test_the_nearest_pixel_at_many_scales():
    x = torch.arange(97.0).reshape(1, 1, 97)
    scales = [*np.arange(0.1, 3, 0.05).tolist(), 1 / 3, 2 / 3, 1 / 7, 5 / 7, 0.123, 2.35, 97 / 640, 0.123456]
    ways = [{"scale_factor": scale, "mode": "nearest"} for scale in scales]
    results = onnx_torch.prepare(exported(Interpolate(ways), x, 17, False, False)).run([x.numpy()])
    for options, y in zip(ways, results, strict=True):
        assert y.tolist() == F.interpolate(x, **options).tolist(), options


def resized(length: int, scale: float, **attributes: Any) -> np.ndarray:
    x = np.arange(length, dtype=np.float32).reshape(1, 1, length)
    scales = np.array([1, 1, scale], np.float32)
    return run_op("Resize", [x, None, scales], 19, coordinate_transformation_mode="align_corners", **attributes)[0]


def test_a_node_that_states_no_nearest_mode_is_the_standard_s():
    np.testing.assert_allclose(resized(33, 0.5, mode="linear").ravel(), np.arange(16) * 32 / 15.5, rtol=1e-6)
    torch_s = resized(33, 0.5, mode="linear", nearest_mode="floor")
    np.testing.assert_allclose(torch_s.ravel(), np.arange(16) * 32 / 15, rtol=1e-6)


def test_one_pixel_is_the_first():
    assert resized(33, 0.04, mode="linear", nearest_mode="floor").tolist() == [[[0]]]


def test_integers_and_axes():
    x = np.arange(33, dtype=np.int32).reshape(33, 1)
    node = helper.make_node(
        "Resize",
        ["x", "", "scales"],
        ["y"],
        mode="linear",
        nearest_mode="floor",
        coordinate_transformation_mode="align_corners",
        axes=[0],
    )
    scales = helper.make_tensor("scales", TensorProto.FLOAT, [1], [0.5])
    model = model_of([node], [tensor_info("x", x)], ["y"], 18, initializer=[scales])
    (y,) = onnx_torch.prepare(model).run([x])
    assert y.ravel().tolist() == np.round(np.arange(16) * 32 / 15).tolist()
