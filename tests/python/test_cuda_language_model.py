"""Language models on CUDA: on a GPU, or else on a device that is pretended (pretended_cuda.py)."""

from __future__ import annotations

import contextlib
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
import torch
from onnx import parser

import genai_models
import language_models as models
import onnx_torch
from pretended_cuda import PretendedCuda
from random_numbers import RNG

ON_GPU = torch.cuda.is_available()
LIKE_OPTIMUM = ["GPT2LMHeadModel", "Qwen2ForCausalLM", "T5ForConditionalGeneration"]
OF_GENAI = ["Llama int4", "Llama fp32"]
IDS = torch.tensor([[1, 5, 9, 33, 60], [8, 21, 44, 17, 3]])


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("language_on_cuda")


def made(name: str, folder: Path) -> Path:
    """Exports a model as optimum lays it out, or, with a precision, as onnxruntime-genai's builder does."""
    kind, _, precision = name.partition(" ")
    if precision:
        pytest.importorskip("onnxruntime_genai")
        return genai_models.build(folder, kind, precision, "accuracy_level=1")  # A is not rounded
    file = folder / kind
    if not file.exists():
        make = models.export_pair if kind in models.TRANSLATORS else models.export
        make(models.model_of(kind), file)
    return file


def tokens(file: Path, device: str, **options: Any) -> list[list[int]]:
    known = {"max_new_tokens": 24, "eos_token_id": None, "pad_token_id": models.PAD, **options}
    with contextlib.nullcontext() if ON_GPU or device == "cpu" else PretendedCuda():
        return onnx_torch.LanguageModel(file, device=device).generate(IDS, **known).tolist()


@pytest.mark.parametrize("options", [{}, {"num_beams": 3}, {"do_sample": True, "seed": 3}], ids=str)
@pytest.mark.parametrize("name", [*LIKE_OPTIMUM, *OF_GENAI])
def test_tokens_are_those_of_the_cpu(name: str, options: dict[str, Any], folder: Path) -> None:
    file = made(name, folder)
    assert tokens(file, "CUDA:0", **options) == tokens(file, "cpu", **options)


def attention_with_a_cache(**attributes: Any) -> onnx.ModelProto:
    """Feeds GroupQueryAttention as onnxruntime-genai's builder: lengths are sums of the mask, the total is its size."""
    given = "".join(f", {name} = {value}" for name, value in attributes.items())
    return parser.parse_model(
        f"""<ir_version: 10, opset_import: ["": 21, "com.microsoft": 1]>
        net (float[b, s, 32] q, float[b, s, 16] k, float[b, s, 16] v, float[b, 1, p, 16] pk, float[b, 1, p, 16] pv,
             int64[b, t] mask, float[20, 8] cos, float[20, 8] sin)
            => (float[b, s, 32] y, float[b, 1, p, 16] nk, float[b, 1, p, 16] nv)
            <int64[1] axis = {{1}}, int64[1] one = {{1}}, int64 last = {{1}}> {{
            sums = ReduceSum(mask, axis) less = Sub(sums, one) lengths = Cast<to = 6>(less)
            sizes = Shape(mask) size = Gather(sizes, last) total = Cast<to = 6>(size)
            y, nk, nv = com.microsoft.GroupQueryAttention<num_heads = 2, kv_num_heads = 1{given}>(
                q, k, v, pk, pv, lengths, total, cos, sin) }}"""
    )


@pytest.mark.parametrize(
    "attributes",
    [
        {},
        {"do_rotary": 1},
        {"local_window_size": 3},
        {"softcap": 2.0},
        {"smooth_softmax": 1},
        {"do_rotary": 1, "scale": 0.1},
    ],
    ids=str,
)
def test_steps_into_a_buffer_can_be_recorded(attributes: dict[str, Any]) -> None:
    """Two sequences of different lengths have read some tokens; a step reads one, two or as many as there are."""
    source = attention_with_a_cache(**attributes)
    angles = RNG.uniform(0, 3, (20, 8)).astype(np.float32)
    steps = []
    for lengths, count in [((4, 7), 1), ((2, 9), 2), ((9, 9), 1), ((10, 10), 10), ((4, 4), 4)]:
        rows = 10 if count < 10 else 0
        past = [RNG.standard_normal((2, 1, rows, 16)).astype(np.float32) for _ in range(2)]
        new = [RNG.standard_normal((2, count, size)).astype(np.float32) for size in (32, 16, 16)]
        mask = (np.arange(10) < np.array(lengths)[:, None]).astype(np.int64)
        steps.append([*new, *past, mask, np.cos(angles), np.sin(angles)])
    host = onnx_torch.prepare(source)
    with contextlib.nullcontext() if ON_GPU else PretendedCuda():
        rep = onnx_torch.prepare(source, "CUDA:0", cuda_graphs=True)
        for step in steps:
            for _ in range(2):
                for found, expected in zip(rep.run(step), host.run(step), strict=True):
                    np.testing.assert_allclose(found, expected, rtol=1e-5, atol=1e-6)


def test_a_total_of_fewer_keys_than_come_is_an_error() -> None:
    source = attention_with_a_cache()
    new = [np.zeros((2, 3, size), np.float32) for size in (32, 16, 16)]
    inputs = [
        *new,
        *[np.zeros((2, 1, 0, 16), np.float32)] * 2,
        np.ones((2, 2), np.int64),
        *[np.ones((20, 8), np.float32)] * 2,
    ]
    for device in ("cpu", "CUDA:0"):
        with (
            contextlib.nullcontext() if ON_GPU or device == "cpu" else PretendedCuda(),
            pytest.raises(onnx_torch.Error, match="more keys than|fewer keys than"),
        ):
            onnx_torch.prepare(source, device).run(inputs)
