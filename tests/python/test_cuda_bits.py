"""Weights of few bits on CUDA: on a GPU, or else on a device that is pretended (pretended_cuda.py)."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator

import numpy as np
import pytest
import torch

pytest.importorskip("onnxruntime")

import onnx_torch
from models import op_model
from pretended_cuda import PretendedCuda
from test_matmul_nbits import MICROSOFT, Weight, names_of, rows_of
from wrong_models import constant_model


@pytest.fixture(autouse=True)
def device() -> Iterator[None]:
    with contextlib.nullcontext() if torch.cuda.is_available() else PretendedCuda():
        yield


@pytest.mark.parametrize("bits", [2, 4, 8])
@pytest.mark.parametrize("zero_points", [None, "packed", "float"])
@pytest.mark.parametrize("level", [0, 4])
def test_a_weight_is_multiplied_as_it_is(bits: int, zero_points: str | None, level: int) -> None:
    for rows in (1, 3, 40):
        weight, x = Weight(300, 67, 32, bits, zero_points, bias=True, accuracy_level=level), rows_of(rows, 300)
        rep = onnx_torch.prepare(weight.model(x), "CUDA:0")
        assert "onnx_torch::linear_of_bits" in names_of(rep)
        for _ in range(4):  # plain runs, one that is recorded, and one of the recording
            weight.check(rep.run([x])[0], x)


def test_so_are_codes() -> None:
    x, random = rows_of(3, 128), np.random.default_rng(0)
    codes, scales = random.integers(0, 256, 128 * 5 // 2).astype(np.uint8), random.uniform(1, 2, 10).astype(np.float32)
    sizes = dict(K=128, N=5, block_size=64, quant_type=1)
    source = constant_model("MatMulBnb4", [x, codes, scales], **MICROSOFT, **sizes)
    rep = onnx_torch.prepare(source, "CUDA:0")
    assert "onnx_torch::linear_of_bits" in names_of(rep)
    expected = onnx_torch.prepare(source, optimize=False).run([x])[0]
    np.testing.assert_allclose(rep.run([x])[0], expected, rtol=1e-5, atol=1e-4)


def test_the_script_computes_other_products_and_what_has_no_pass() -> None:
    weight, x = Weight(96, 40, 32, 4), rows_of(2, 96)
    given = onnx_torch.prepare(
        op_model("MatMulNBits", weight.inputs(x)[:3], **MICROSOFT, **weight.attributes), "CUDA:0"
    )
    disabled = onnx_torch.prepare(weight.model(x), "CUDA:0", disabled_passes=["bits"])
    for rep, inputs in [(given, weight.inputs(x)[:3]), (disabled, [x])]:
        assert "onnx_torch::linear_of_bits" not in names_of(rep)
        weight.check(rep.run(inputs)[0], x)
