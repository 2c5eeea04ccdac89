"""Recurrent networks: two layers, both directions, half a hundred steps."""

from __future__ import annotations

from functools import partial

import torch
from torch import Tensor, nn

from .case import Network
from .export import exported


class Outputs(nn.Module):
    """A recurrent layer's outputs, without its last state."""

    def __init__(self, layer: nn.Module) -> None:
        super().__init__()
        self.layer = layer

    def forward(self, x: Tensor) -> Tensor:
        return self.layer(x)[0]


def recurrent(kind: type[nn.Module]) -> Network:
    layer = kind(256, 256, num_layers=2, bidirectional=True, batch_first=True)
    return Network(Outputs(layer), [{"x": torch.randn(1, 50, 256)}])


CASES = [
    exported(name, "recurrent", partial(recurrent, kind), "torchscript")
    for name, kind in {"lstm": nn.LSTM, "gru": nn.GRU}.items()
]
