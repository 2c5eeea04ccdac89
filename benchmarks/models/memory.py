"""Small models of many kinds, for inputs of any size: what memory does over very many runs."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import numpy as np
import onnx
import torch
from onnx import parser
from torch import Tensor, nn

from .case import Feeds, Network
from .export import seeded, write_export


@dataclass(frozen=True)
class Model:
    """A model whose inputs have a size to choose.

    Attributes:
        write: writes it into a file.
        feeds: inputs of a size.
        largest: the largest size of its many runs.
        has_batches: whether the size is that of a batch.
    """

    name: str
    write: Callable[[Path], object]
    feeds: Callable[[np.random.Generator, int], Feeds]
    largest: int
    has_batches: bool = False


def floats(*sizes: int) -> Callable[[np.random.Generator, int], Feeds]:
    """Gives a function that makes floats of a shape in which -1 stands for the size."""
    return lambda rng, size: {"x": rng.standard_normal([size if n < 0 else n for n in sizes], np.float32)}


def words(rng: np.random.Generator, size: int) -> Feeds:
    """Makes texts that no other run has."""
    return {"x": np.array([f"A word, and {number}" for number in rng.integers(1 << 60, size=size)], object)}


def cnn() -> Network:
    layers: list[nn.Module] = []
    for channels, wider in [(3, 16), (16, 32), (32, 64)]:
        layers += [nn.Conv2d(channels, wider, 3, stride=2, padding=1), nn.BatchNorm2d(wider), nn.ReLU()]
    module = nn.Sequential(*layers, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(64, 10))
    return Network(module, [{"x": torch.randn(2, 3, 64, 64)}], {"x": {0: "N"}})


class Transformer(nn.Module):
    """Two layers of a transformer, over a batch of one."""

    def __init__(self, width: int, heads: int) -> None:
        super().__init__()
        self.heads = heads
        self.layers = nn.ModuleList(
            nn.ModuleDict(
                {
                    "first": nn.LayerNorm(width),
                    "qkv": nn.Linear(width, 3 * width),
                    "out": nn.Linear(width, width),
                    "second": nn.LayerNorm(width),
                    "up": nn.Linear(width, 4 * width),
                    "down": nn.Linear(4 * width, width),
                }
            )
            for _ in range(2)
        )

    def forward(self, x: Tensor) -> Tensor:
        for layer in self.layers:
            q, k, v = layer["qkv"](layer["first"](x)).unflatten(-1, (3, self.heads, -1)).permute(2, 0, 3, 1, 4)
            x = x + layer["out"](nn.functional.scaled_dot_product_attention(q, k, v).transpose(1, 2).flatten(2))
            x = x + layer["down"](nn.functional.gelu(layer["up"](layer["second"](x))))
        return x


def transformer() -> Network:
    return Network(Transformer(64, 4), [{"x": torch.randn(1, 9, 64)}], {"x": {1: "L"}})


LSTM = """<ir_version: 8, opset_import: ["": 17]> lstm (float[L, 1, 32] x) => (float[L, D, B, H] y)
    { y, h, c = LSTM<hidden_size = 48>(x, w, r) }"""

LOOP = """<ir_version: 8, opset_import: ["": 17]> loop (float[N, 8] x) => (float[M] z, float[K, A] all)
    <int64 axis = {0}, bool go = {1}> {
        shape = Shape(x)
        count = Gather(shape, axis)
        axes = Constant<value_ints = [0]>()
        start = ReduceSum<keepdims = 0>(x, axes)
        z, all = Loop (count, go, start) <body = step (int64 i, bool before, float[M] state)
            => (bool after, float[M] next, float[M] kept) {
            after = Identity(before)
            row = Gather(x, i)
            change = Sin(row)
            next = Add(state, change)
            kept = Identity(next)
        }>
    }"""

STRINGS = """<ir_version: 10, opset_import: ["": 20]> strings (string[N] x) => (string[M] y, string[N, K] parts)
    {
        y = StringConcat(x, x)
        parts, counts = StringSplit(x)
    }"""


def write_text(text: str, file: Path, **weights: tuple[int, ...]) -> None:
    model = parser.parse_model(text)
    rng = np.random.default_rng(0)
    for name, sizes in weights.items():
        values = (rng.standard_normal(sizes) * 0.1).astype(np.float32)
        model.graph.initializer.append(onnx.numpy_helper.from_array(values, name))
    onnx.save(model, file)


MODELS = {
    model.name: model
    for model in [
        Model("cnn", partial(write_export, partial(seeded, cnn), "torchscript"), floats(-1, 3, 64, 64), 8, True),
        Model("transformer", partial(write_export, partial(seeded, transformer), "dynamo"), floats(1, -1, 64), 64),
        Model("lstm", partial(write_text, LSTM, w=(1, 192, 32), r=(1, 192, 48)), floats(-1, 1, 32), 32),
        Model("loop", partial(write_text, LOOP), floats(-1, 8), 32),
        Model("strings", partial(write_text, STRINGS), words, 32),
    ]
}
