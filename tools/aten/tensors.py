"""Descriptions of tensors, from which they can be made anew, and which can be printed."""

from __future__ import annotations

import math
import random
from dataclasses import dataclass
from typing import Any

import torch


@dataclass(frozen=True)
class Tensor:
    """The description of a tensor."""

    shape: tuple[int, ...]
    dtype: torch.dtype
    fill: str = "normal"
    layout: str = "dense"

    def make(self) -> torch.Tensor:
        if self.layout == "transposed":
            return self._dense(self.shape[::-1]).permute(tuple(range(len(self.shape)))[::-1])
        if self.layout == "expanded" and self.shape:
            return self._dense((1, *self.shape[1:])).expand(self.shape)
        if self.layout == "every second" and self.shape:
            return self._dense((*self.shape[:-1], 2 * self.shape[-1]))[..., ::2]
        return self._dense(self.shape)

    def _dense(self, shape: tuple[int, ...]) -> torch.Tensor:
        draw = random.Random(math.prod(shape))
        if self.dtype.is_floating_point or self.dtype.is_complex:
            numbers: list[float] = [self._element(draw) for _ in range(math.prod(shape))]
            return torch.tensor(numbers, dtype=torch.float64).to(self.dtype).reshape(shape)
        return torch.tensor([self._integer(draw) for _ in range(math.prod(shape))], dtype=self.dtype).reshape(shape)

    def _element(self, draw: random.Random) -> float:
        info = torch.finfo(self.dtype)
        return self._chosen(
            {
                "normal": draw.gauss(0, 1),
                "small": draw.uniform(0, 1),
                "one": 1.0,
                "zero": 0.0,
                "index": float(draw.randrange(3)),
                "largest": info.max,
                "lowest": info.min,
                "negative": -draw.uniform(0, 9),
                "nan": math.nan,
                "infinite": draw.choice((math.inf, -math.inf)),
            },
            draw,
        )

    def _integer(self, draw: random.Random) -> int:
        if self.dtype == torch.bool:
            return self._chosen(dict.fromkeys(FILLS, 1) | {"zero": 0, "normal": draw.randrange(2)}, draw)
        info = torch.iinfo(self.dtype)
        return self._chosen(
            {
                "normal": draw.randrange(5),
                "small": draw.randrange(2),
                "one": 1,
                "zero": 0,
                "index": draw.randrange(3),
                "largest": info.max,
                "lowest": info.min,
                "negative": max(info.min, -1 - draw.randrange(4)),
                "nan": info.max - 1,
                "infinite": draw.choice((info.max, info.min)),
            },
            draw,
        )

    def _chosen(self, values: dict[str, Any], draw: random.Random) -> Any:
        return values[draw.choice(FILLS) if self.fill == "mixed" else self.fill]


FILLS = ("normal", "small", "one", "zero", "index", "largest", "lowest", "negative", "nan", "infinite")


def made(value: Any) -> Any:
    """Makes the argument that is described."""
    if isinstance(value, Tensor):
        return value.make()
    return [made(item) for item in value] if isinstance(value, list) else value
