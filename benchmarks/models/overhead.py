"""Small models, whose time is mostly what an engine adds to the arithmetic."""

from __future__ import annotations

from functools import partial
from pathlib import Path

import numpy as np
import onnx
import torch
from onnx import parser
from torch import Tensor, nn

from .case import Case, Feeds, Network
from .export import exported

IDENTITY = """<ir_version: 10, opset_import: ["": 21]>
    identity (float[1, 16] x) => (float[1, 16] y) { y = Identity(x) }"""

LOOP = """<ir_version: 10, opset_import: ["": 21]>
    loop (float[1, 16] x) => (float[1, 16] y)
    <int64 count = {1000}, bool go = {1}, float[1] rate = {0.01}> {
        y = Loop (count, go, x) <body = step (int64 i, bool before, float[1, 16] state)
            => (bool after, float[1, 16] next) {
            after = Identity(before)
            change = Sin(state)
            part = Mul(change, rate)
            next = Add(state, part)
        }>
    }"""


def write_text(text: str, feeds: Feeds, file: Path) -> list[Feeds]:
    onnx.save(parser.parse_model(text), file)
    return [feeds]


def mlp() -> Network:
    module = nn.Sequential(nn.Linear(64, 128), nn.ReLU(), nn.Linear(128, 128), nn.ReLU(), nn.Linear(128, 10))
    return Network(module, [{"x": torch.randn(1, 64)}])


class Chain(nn.Module):
    """Two hundred element-wise operators on a few elements."""

    def forward(self, x: Tensor) -> Tensor:
        for i in range(40):
            x = torch.tanh(torch.sigmoid(x * 1.1 + 0.01 * (i + 1)).abs())
        return x


def chain() -> Network:
    return Network(Chain(), [{"x": torch.randn(1, 16)}])


class Recommender(nn.Module):
    """A few layers on a vector for each of many categories, beside dense features."""

    def __init__(self, tables: int, width: int, dense: int) -> None:
        super().__init__()
        self.tables = nn.ModuleList(nn.Embedding(1000, width) for _ in range(tables))
        self.layers = nn.Sequential(
            nn.Linear(tables * width + dense, 256),
            nn.ReLU(),
            nn.Linear(256, 64),
            nn.ReLU(),
            nn.Linear(64, 1),
            nn.Sigmoid(),
        )

    def forward(self, categories: Tensor, dense: Tensor) -> Tensor:
        vectors = [table(categories[:, i]) for i, table in enumerate(self.tables)]
        return self.layers(torch.cat([*vectors, dense], 1))


def recommender() -> Network:
    inputs = {"categories": torch.randint(0, 1000, (16, 26)), "dense": torch.randn(16, 13)}
    return Network(Recommender(26, 16, 13), [inputs])


X = np.linspace(-1, 1, 16, dtype=np.float32)[None]

CASES = [
    Case("identity", "overhead", partial(write_text, IDENTITY, {"x": X})),
    exported("mlp", "overhead", mlp),
    exported("chain", "overhead", chain),
    exported("recommender", "overhead", recommender),
    Case("loop", "overhead", partial(write_text, LOOP, {"x": X})),
]
