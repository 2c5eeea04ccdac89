"""Networks for images."""

from __future__ import annotations

import itertools
from functools import partial

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from .case import Network
from .export import exported


def from_torchvision(name: str, batch: int = 1, size: int = 224) -> Network:
    import torchvision

    return Network(torchvision.models.get_model(name, weights=None), [images(batch, size)])


def images(batch: int, size: int, channels: int = 3) -> dict[str, Tensor]:
    return {"image": torch.randn(batch, channels, size, size)}


class Output(nn.Module):
    """One of the outputs of a module that returns a dictionary of them."""

    def __init__(self, module: nn.Module, name: str) -> None:
        super().__init__()
        self.module, self.name = module, name

    def forward(self, image: Tensor) -> Tensor:
        return self.module(image)[self.name]


def deeplab() -> Network:
    import torchvision

    module = torchvision.models.segmentation.deeplabv3_mobilenet_v3_large(weights=None, weights_backbone=None)
    return Network(Output(module, "out"), [images(1, 320)])


def conv(inputs: int, outputs: int, kernel: int = 3, stride: int = 1) -> nn.Module:
    return nn.Sequential(
        nn.Conv2d(inputs, outputs, kernel, stride, kernel // 2, bias=False), nn.BatchNorm2d(outputs), nn.SiLU()
    )


class Residuals(nn.Module):
    """A cross-stage block: half of the channels goes through residual convolutions, and all is joined again."""

    def __init__(self, inputs: int, outputs: int, count: int) -> None:
        super().__init__()
        self.half = outputs // 2
        self.enter, self.leave = conv(inputs, outputs, 1), conv(self.half * (2 + count), outputs, 1)
        self.inner = nn.ModuleList(
            nn.Sequential(conv(self.half, self.half), conv(self.half, self.half)) for _ in range(count)
        )

    def forward(self, x: Tensor) -> Tensor:
        parts = list(self.enter(x).split(self.half, 1))
        for block in self.inner:
            parts.append(parts[-1] + block(parts[-1]))
        return self.leave(torch.cat(parts, 1))


class Detector(nn.Module):
    """A one-stage detector: a backbone of three scales, joined top-down, boxes and scores for each cell, and NMS."""

    CLASSES = 20

    def __init__(self, size: int) -> None:
        from torchvision.ops import nms

        super().__init__()
        self.suppress = nms
        self.stem = nn.Sequential(conv(3, 16, 3, 2), conv(16, 32, 3, 2), Residuals(32, 32, 1))
        widths = (32, 64, 128, 256)
        self.stages = nn.ModuleList(
            nn.Sequential(conv(a, b, 3, 2), Residuals(b, b, 2)) for a, b in itertools.pairwise(widths)
        )
        self.joins = nn.ModuleList([Residuals(64 + 128, 64, 1), Residuals(128 + 256, 128, 1)])
        self.heads = nn.ModuleList(
            nn.Sequential(conv(width, 64), nn.Conv2d(64, 4 + self.CLASSES, 1)) for width in widths[1:]
        )
        for module in self.modules():
            if isinstance(module, nn.Conv2d):
                nn.init.kaiming_normal_(module.weight, nonlinearity="relu")  # else all scores are nearly the same
        strides = (8, 16, 32)
        self.register_buffer("cells", torch.cat([self._cells(size // stride, stride) for stride in strides]))

    @staticmethod
    def _cells(count: int, stride: int) -> Tensor:
        """Gives the middle of each cell, and its size."""
        y, x = torch.meshgrid(torch.arange(count), torch.arange(count), indexing="ij")
        return torch.stack([(x + 0.5) * stride, (y + 0.5) * stride, torch.full_like(x, stride)], -1).reshape(-1, 3)

    def forward(self, image: Tensor) -> tuple[Tensor, Tensor]:
        x, scales = self.stem(image), []
        for stage in self.stages:
            x = stage(x)
            scales.append(x)
        for i in (1, 0):
            up = F.interpolate(scales[i + 1], scale_factor=2.0, mode="nearest")
            scales[i] = self.joins[i](torch.cat([scales[i], up], 1))
        found = [head(scale).flatten(2) for head, scale in zip(self.heads, scales, strict=True)]
        each = torch.cat(found, 2)[0].transpose(0, 1)
        middle = self.cells[:, :2] + each[:, :2] * self.cells[:, 2:]
        half = each[:, 2:4].exp() * self.cells[:, 2:]
        boxes = torch.cat([middle - half, middle + half], 1)
        scores = each[:, 4:].sigmoid().amax(1)
        best, which = scores.topk(300)
        boxes = boxes[which]
        kept = self.suppress(boxes, best, 0.3)
        return best[kept], boxes[kept].mean(0)  # not the boxes, as near scores may change places


def detector() -> Network:
    return Network(Detector(320), [images(1, 320)])


class SuperResolution(nn.Module):
    """A network that makes an image twice as large by a transposed convolution, and twice again by depth to space."""

    def __init__(self) -> None:
        super().__init__()
        self.features = nn.Sequential(nn.Conv2d(3, 48, 5, padding=2), nn.PReLU(48), nn.Conv2d(48, 24, 1), nn.PReLU(24))
        self.body = nn.Sequential(*(nn.Sequential(nn.Conv2d(24, 24, 3, padding=1), nn.PReLU(24)) for _ in range(6)))
        self.twice = nn.ConvTranspose2d(24, 24, 4, 2, 1)
        self.again = nn.Sequential(nn.Conv2d(24, 12, 3, padding=1), nn.PixelShuffle(2))

    def forward(self, image: Tensor) -> Tensor:
        x = self.features(image)
        return self.again(F.relu(self.twice(x + self.body(x))))


def super_resolution() -> Network:
    return Network(SuperResolution(), [images(1, 128)])


class Diffusion(nn.Module):
    """A block of a diffusion U-Net: two group-normed convolutions with the time step added, then self-attention."""

    def __init__(self, width: int, time: int) -> None:
        super().__init__()
        self.norms = nn.ModuleList(nn.GroupNorm(32, width) for _ in range(3))
        self.convs = nn.ModuleList(nn.Conv2d(width, width, 3, padding=1) for _ in range(2))
        self.time = nn.Linear(time, width)
        self.qkv, self.out = nn.Linear(width, 3 * width), nn.Linear(width, width)

    def forward(self, latent: Tensor, time: Tensor) -> Tensor:
        x = self.convs[0](F.silu(self.norms[0](latent))) + self.time(F.silu(time))[:, :, None, None]
        x = latent + self.convs[1](F.silu(self.norms[1](x)))
        batch, width, height, length = x.shape
        tokens = self.norms[2](x).flatten(2).transpose(1, 2)
        q, k, v = (part.unflatten(-1, (8, -1)).transpose(1, 2) for part in self.qkv(tokens).chunk(3, -1))
        attended = F.scaled_dot_product_attention(q, k, v).transpose(1, 2).flatten(2)
        return x + self.out(attended).transpose(1, 2).reshape(batch, width, height, length)


def diffusion() -> Network:
    return Network(Diffusion(320, 1280), [{"latent": torch.randn(1, 320, 32, 32), "time": torch.randn(1, 1280)}])


CASES = [
    exported(name, "vision", network)
    for name, network in {
        "resnet50": partial(from_torchvision, "resnet50"),
        "resnet50_batch8": partial(from_torchvision, "resnet50", 8),
        "mobilenet_v3_large": partial(from_torchvision, "mobilenet_v3_large"),
        "efficientnet_b0": partial(from_torchvision, "efficientnet_b0"),
        "convnext_tiny": partial(from_torchvision, "convnext_tiny"),
        "vit_b_16": partial(from_torchvision, "vit_b_16"),
        "swin_t": partial(from_torchvision, "swin_t"),
        "deeplabv3_mobilenet": deeplab,
        "detector": detector,
        "super_resolution": super_resolution,
        "diffusion_block": diffusion,
    }.items()
]
