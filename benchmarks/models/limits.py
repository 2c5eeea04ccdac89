"""Single large operators, to compare with what the hardware allows; they are in no mean."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable

import torch
from torch import nn

from .case import Case, Network
from .export import exported

GROUP = "limits"


def convolution() -> Network:
    return Network(nn.Conv2d(256, 256, 3, padding=1), [{"x": torch.randn(1, 256, 56, 56)}])


def product() -> Network:
    return Network(nn.Linear(1024, 4096), [{"x": torch.randn(512, 1024)}])


def memory() -> Network:
    return Network(nn.ReLU(), [{"x": torch.randn(2**24)}])


def limited(name: str, network: Callable[[], Network], bound: str) -> Case:
    return dataclasses.replace(exported(name, GROUP, network), bound=bound)


CASES = [
    limited("large_convolution", convolution, "primitive"),
    limited("large_product", product, "primitive"),
    limited("large_relu", memory, "copy"),
]
