"""The engines that are measured, each in a process of its own.

The classes of `ENGINES` are run by `onnx_torch.other_engine`, which has those of onnx_torch and onnxruntime.
"""

from __future__ import annotations

import os
import re
import sys
import tempfile
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parent.parent


@dataclass(frozen=True)
class Engine:
    """One column of the benchmark.

    Attributes:
        label: its name in reports.
        kind: the class that runs it.
        modules: what its users import, so that the time is told apart from loading.
        options: what else the class gets, beside the number of threads.
        from_source: whether it runs what the model was exported from, and gets the name of the case.
        compiles: whether loading takes minutes, so that a quick benchmark leaves it out.
        looser: how many times as far its outputs may differ.
        bound: whether it tells what the hardware allows, for cases that name it.
    """

    label: str
    kind: str
    modules: tuple[str, ...]
    options: dict[str, Any] = field(default_factory=dict)
    from_source: bool = False
    compiles: bool = False
    looser: float = 1
    bound: bool = False


OURS, REFERENCE, AGAIN = "onnx_torch", "onnxruntime", "onnxruntime_again"

COLUMNS = {
    OURS: Engine("onnx_torch", "onnx_torch", ("onnx_torch",)),
    "unoptimized": Engine("onnx_torch, no passes", "onnx_torch", ("onnx_torch",), {"optimize": False}),
    "bfloat16": Engine("onnx_torch, bfloat16", "onnx_torch", ("onnx_torch",), {"precision": "bfloat16"}, looser=50),
    REFERENCE: Engine("onnxruntime", "onnxruntime", ("onnxruntime",)),
    AGAIN: Engine("onnxruntime, a second process", "onnxruntime", ("onnxruntime",)),
    "openvino": Engine("OpenVINO, float32", "openvino", ("openvino",), {"precision": "f32"}),
    "openvino_bfloat16": Engine("OpenVINO, bfloat16", "openvino", ("openvino",), {"precision": "bf16"}, looser=50),
    "torch": Engine("torch, eager", "torch", ("torch",), from_source=True),
    "torch_compile": Engine("torch.compile", "torch", ("torch",), {"compile": True}, from_source=True, compiles=True),
    "onnx2torch": Engine("onnx2torch", "onnx2torch", ("onnx2torch",)),
    "primitive": Engine("oneDNN's primitive", "primitive", ("torch",), from_source=True, bound=True),
    "copy": Engine("a copy", "copy", ("torch",), from_source=True, bound=True),
}


class OpenVino:
    def __init__(self, model: str, directory: str, options: dict[str, Any]) -> None:
        import openvino

        settings = {
            "INFERENCE_PRECISION_HINT": options["precision"],
            "PERFORMANCE_HINT": "LATENCY",
            "INFERENCE_NUM_THREADS": options["threads"],
        }
        self._compiled = openvino.Core().compile_model(model, "CPU", settings)

    def run(self, feeds: dict[str, Any]) -> list[Any]:
        return list(self._compiled(feeds).values())


class Torch:
    """The module that a model was exported from, as it is or compiled with its weights as constants."""

    def __init__(self, model: str, directory: str, options: dict[str, Any]) -> None:
        import torch

        torch.set_num_threads(options["threads"])
        self._module = self._load(model, options)
        if options.get("compile"):
            import torch._inductor.config

            torch._inductor.config.freezing = True
            self._module = torch.compile(self._module)

    def _load(self, model: str, options: dict[str, Any]) -> Any:
        sys.path.insert(0, str(ROOT))
        from benchmarks.models import CASES

        network = CASES[options["case"]].network
        if network is None:
            raise LookupError("the model was not exported from torch")
        return network().module

    def run(self, feeds: dict[str, Any]) -> list[Any]:
        import torch

        with torch.inference_mode():
            found = self._module(*map(torch.from_numpy, feeds.values()))
        return [one.numpy() for one in (found if isinstance(found, tuple) else (found,))]


class Onnx2Torch(Torch):
    def _load(self, model: str, options: dict[str, Any]) -> Any:
        import onnx2torch

        return onnx2torch.convert(model).eval()


class Primitive(Torch):
    """A linear layer or convolution with packed weights; its times are those that oneDNN tells of its primitive."""

    def run(self, feeds: dict[str, Any]) -> list[Any]:
        return [self._call(feeds)().contiguous().numpy()]

    def _call(self, feeds: dict[str, Any]) -> Callable[[], Any]:
        import torch

        ops, layer = torch.ops.mkldnn, self._module
        (x,) = map(torch.from_numpy, feeds.values())
        weight, nothing = layer.weight, ("none", [], "")
        if isinstance(layer, torch.nn.Linear):
            packed = ops._reorder_linear_weight(weight, len(x))
            return lambda: ops._linear_pointwise(x, packed, layer.bias, *nothing)
        form = (layer.padding, layer.stride, layer.dilation, layer.groups)
        packed = ops._reorder_convolution_weight(weight, *form, list(x.shape))
        x = x.contiguous(memory_format=torch.channels_last)
        return lambda: ops._convolution_pointwise(x, packed, layer.bias, *form, *nothing)

    def time(self, sets: list[dict[str, Any]], runs: int) -> list[float]:
        call = self._call(sets[0])
        lines = printed(lambda: [call() for _ in range(runs)]).splitlines()
        found = re.compile(r"primitive,exec,cpu,(?:convolution|inner_product|matmul),.*,([0-9.]+)$")
        return [float(match[1]) / 1e3 for match in map(found.search, lines) if match]


def printed(action: Callable[[], object]) -> str:
    """What oneDNN prints of its primitives meanwhile."""
    from torch.backends import mkldnn

    with tempfile.TemporaryFile("w+") as file:
        before = os.dup(1)
        os.dup2(file.fileno(), 1)
        try:
            with mkldnn.verbose(mkldnn.VERBOSE_ON):
                action()
        finally:
            os.dup2(before, 1)
            os.close(before)
        file.seek(0)
        return file.read()


class Copy(Torch):
    """Its times are those of a copy of the input to memory that is there, in as many threads."""

    def time(self, sets: list[dict[str, Any]], runs: int) -> list[float]:
        import torch

        (source,) = map(torch.from_numpy, sets[0].values())
        target = source.clone()
        times = []
        for _ in range(runs):
            start = time.perf_counter()
            target.copy_(source)
            times.append(time.perf_counter() - start)
        return times


ENGINES = {"openvino": OpenVino, "torch": Torch, "onnx2torch": Onnx2Torch, "primitive": Primitive, "copy": Copy}
