"""The engines that are measured, each in a process of its own.

The classes of `ENGINES` are run by `onnx_torch._engines.other_engine`, which has those of onnx_torch and onnxruntime.
"""

from __future__ import annotations

import inspect
import os
import re
import sys
import tempfile
import time
from collections.abc import Callable, Collection
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parent.parent

# OpenVINO sends a message when it is imported, from a fork that waits for ever for what another thread reads.
sys.modules.setdefault("openvino_telemetry", None)  # type: ignore[arg-type]


@dataclass(frozen=True)
class Engine:
    """One column of the benchmark.

    Attributes:
        label: its name in reports.
        kind: the class that runs it on the CPU; empty where it is not measured there.
        modules: what its users import, so that the time is told apart from loading.
        options: what else the class gets, beside the number of threads.
        cuda: the class that runs it on a GPU; empty likewise.
        from_source: whether it runs what the model was exported from, and gets the name of the case.
        compiles: whether loading takes minutes, so that a quick benchmark leaves it out.
        precision: what it computes in on the CPU, which says how far its outputs may differ; empty where it is asked.
        against: the column whose time its own is compared with.
        repeats: the column that it is a second process of.
        bound: what it tells of what the hardware allows, for cases that name it.
        of_source: whether it runs the model that the case's was made of, for cases that have one.
        of_builds: whether it is there only to compare two builds of onnx_torch.
    """

    label: str
    kind: str
    modules: tuple[str, ...]
    options: dict[str, Any] = field(default_factory=dict)
    cuda: str = ""
    from_source: bool = False
    compiles: bool = False
    precision: str = "float32"
    against: str = "onnx_torch"
    repeats: str = ""
    bound: str = ""
    of_source: bool = False
    of_builds: bool = False

    def class_for(self, device: str) -> str:
        return self.kind if device == CPU else self.cuda


CPU = "cpu"
GPU_PRECISIONS = ("float32", "tf32", "float16")
TOLERANCES = {"float32": 0.0, "tf32": 0.01, "float16": 0.01, "bfloat16": 0.05}  # parts of an output's largest element

OURS, OURS_AGAIN, OTHER_BUILD = "onnx_torch", "onnx_torch_again", "other_build"
REFERENCE, SOURCE = "onnxruntime", "source"


def ours(label: str, options: dict[str, Any], kind: str = "onnx_torch", **more: Any) -> Engine:
    modules = ("onnx_torch.backend",)  # `onnx_torch` imports it where it is first asked to prepare a model
    return Engine(label, kind, modules, options, **{"cuda": "onnx_torch_tensors", **more})


def openvino(label: str, options: dict[str, Any], **more: Any) -> Engine:
    return Engine(label, "openvino", ("openvino",), options, precision="", **more)


def torch(label: str, options: dict[str, Any], kind: str = "torch", cuda: str = "torch", **more: Any) -> Engine:
    return Engine(label, kind, ("torch",), options, cuda, from_source=True, **more)


COLUMNS = {
    OURS: ours("onnx_torch", {}),
    "unoptimized": ours("onnx_torch, no passes", {"optimize": False}),
    "bfloat16": ours("onnx_torch, bfloat16", {"precision": "bfloat16"}, precision="bfloat16", cuda=""),
    "graphs": ours("onnx_torch, CUDA graph", {"capture": True}, kind=""),
    "launched": ours("onnx_torch, cuda_graphs=False", {"cuda_graphs": False}, kind=""),
    SOURCE: ours("onnx_torch, the source", {}, of_source=True, cuda=""),
    REFERENCE: Engine("onnxruntime", "onnxruntime", ("onnxruntime",), cuda="onnxruntime_tensors"),
    "onnxruntime_again": Engine("onnxruntime, a second process", "onnxruntime", ("onnxruntime",), repeats=REFERENCE),
    "openvino": openvino("OpenVINO, float32", {"INFERENCE_PRECISION_HINT": "f32"}),
    "openvino_default": openvino("OpenVINO, by default", {}, against="bfloat16"),
    "torch": torch("torch, eager", {}),
    "torch_again": torch("torch, eager, a second process", {}, kind="", repeats="torch"),
    "torch_graphs": torch("torch, eager, CUDA graph", {"capture": True}, kind="", against="graphs"),
    "torch_compile": torch("torch.compile", {"compile": True}, compiles=True),
    "onnx2torch": Engine("onnx2torch", "onnx2torch", ("onnx2torch",)),
    "primitive": torch("oneDNN's primitive", {}, kind="primitive", cuda="", bound="primitive"),
    "library": torch("cuBLAS or cuDNN", {"capture": True, "tune": True}, kind="", against="graphs", bound="primitive"),
    "copy": torch("a copy", {}, kind="copy", cuda="", bound="copy"),
    OURS_AGAIN: ours("onnx_torch, a second process", {}, repeats=OURS, of_builds=True),
    OTHER_BUILD: ours("onnx_torch, the other build", {}, of_builds=True),
}


def columns(device: str) -> dict[str, Engine]:
    """Gives the engines that are measured on a device, by their names."""
    return {name: engine for name, engine in COLUMNS.items() if engine.class_for(device)}


def again(names: Collection[str]) -> str | None:
    """Finds, among some columns, the one that is a second process of another one of them."""
    return next((name for name in names if COLUMNS[name].repeats in names), None)


class OpenVino:
    def __init__(self, model: str, directory: str, options: dict[str, Any]) -> None:
        import openvino

        settings = {"PERFORMANCE_HINT": "LATENCY", "INFERENCE_NUM_THREADS": options.pop("threads"), **options}
        self._compiled = openvino.Core().compile_model(model, "CPU", settings)

    def run(self, feeds: dict[str, Any]) -> list[Any]:
        return list(self._compiled(feeds).values())

    def precision(self) -> str:
        names = {"f32": "float32", "bf16": "bfloat16", "f16": "float16"}
        return names[self._compiled.get_property("INFERENCE_PRECISION_HINT").type_name]


class OnTensors:
    """An engine that takes and returns torch's tensors; a class of it has `load`, and `call` for one run.

    On the CPU a run is from numpy's arrays to numpy's arrays, as of engines that know no tensors. On a GPU the inputs
    lie there before a run, the outputs stay there, and the GPU's clock counts.
    """

    def __init__(self, model: str, directory: str, options: dict[str, Any]) -> None:
        import torch

        self.options, self.device = options, torch.device(options.get("device", CPU))
        torch.set_num_threads(options["threads"])
        if self.device.type != CPU:
            use_gpu(self.device, options["precision"])
        self.load(model)
        self._captured: dict[Any, Captured] = {}

    def place(self, feeds: dict[str, Any]) -> Any:
        import torch

        return {name: torch.from_numpy(value).to(self.device) for name, value in feeds.items()}

    def fetch(self, outputs: Any) -> list[Any]:
        return [one.cpu().numpy() for one in outputs]

    def run(self, feeds: dict[str, Any]) -> list[Any]:
        return self.fetch(self._call(self.place(feeds)))

    def time(self, sets: list[dict[str, Any]], runs: int) -> list[float]:
        if self.device.type == CPU:
            return [seconds(lambda: [self.run(feeds) for feeds in sets]) for _ in range(runs)]
        placed = list(map(self.place, sets))
        return [gpu_seconds(lambda: [self._call(inputs) for inputs in placed]) for _ in range(runs)]

    def _call(self, inputs: Any) -> Any:
        import torch

        with torch.inference_mode():
            if not self.options.get("capture"):
                return self.call(inputs)
            shapes = tuple(one.shape for one in inputs.values())
            if shapes not in self._captured:
                self._captured[shapes] = Captured(self.call, inputs)
            return self._captured[shapes](inputs)


def use_gpu(device: Any, precision: str) -> None:
    """Has this process work on a GPU, on a stream of its own, as no CUDA graph can be made of the default one."""
    import torch

    torch.cuda.set_device(device)
    torch.cuda.set_stream(torch.cuda.Stream(device))
    torch.backends.cuda.matmul.allow_tf32 = precision == "tf32"
    torch.backends.cudnn.allow_tf32 = precision == "tf32"


def seconds(action: Callable[[], object]) -> float:
    start = time.perf_counter()
    action()
    return time.perf_counter() - start


def gpu_seconds(action: Callable[[], object]) -> float:
    """Times, by the GPU's own clock, from when it has nothing left to do to the end of what an action has it do."""
    import torch

    start, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
    torch.cuda.synchronize()
    start.record()
    action()
    end.record()
    end.synchronize()
    return start.elapsed_time(end) / 1e3  # of milliseconds


class Captured:
    """A CUDA graph of what a call has the GPU do for inputs of some shapes; its outputs are those of the last run."""

    WARM_UP = 3  # calls before the recording, in which libraries choose and allocate

    def __init__(self, call: Callable[[Any], Any], inputs: dict[str, Any]) -> None:
        import torch

        self._inputs = {name: one.clone() for name, one in inputs.items()}
        for _ in range(self.WARM_UP):
            call(self._inputs)
        torch.cuda.synchronize()
        self._graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(self._graph):
            self._outputs = call(self._inputs)

    def __call__(self, inputs: dict[str, Any]) -> Any:
        for name, one in inputs.items():
            self._inputs[name].copy_(one)
        self._graph.replay()
        return self._outputs


class OnnxTorch(OnTensors):
    def load(self, model: str) -> None:
        import onnx_torch

        options = {name: value for name, value in self.options.items() if name in ("optimize", "cuda_graphs")}
        if self.options["precision"] == "tf32":
            options["tf32"] = True
        for name in options.keys() - inspect.signature(onnx_torch.prepare).parameters.keys():
            raise LookupError(f"this onnx_torch has no option {name}")
        self._rep = onnx_torch.prepare(model, str(self.device).upper(), **options)

    def call(self, inputs: dict[str, Any]) -> Any:
        return self._rep.run(inputs)


class OnnxRuntime(OnTensors):
    """onnxruntime with inputs and outputs bound to the GPU's memory, on the stream that is timed."""

    PROVIDER = "CUDAExecutionProvider"

    def load(self, model: str) -> None:
        import onnxruntime
        import torch

        if self.PROVIDER not in onnxruntime.get_available_providers():
            raise LookupError("the onnxruntime that is installed has no CUDA provider; onnxruntime-gpu has it")
        settings = {
            "device_id": str(self.device.index),
            "use_tf32": str(int(self.options["precision"] == "tf32")),
            "user_compute_stream": str(torch.cuda.current_stream().cuda_stream),
        }
        providers = [(self.PROVIDER, settings), "CPUExecutionProvider"]
        self._session = onnxruntime.InferenceSession(model, providers=providers)
        if self._session.get_providers()[0] != self.PROVIDER:
            raise LookupError(f"onnxruntime cannot use {self.device}")
        self._run_options = onnxruntime.RunOptions()
        self._run_options.add_run_config_entry("disable_synchronize_execution_providers", "1")

    def place(self, feeds: dict[str, Any]) -> Any:
        from onnxruntime import OrtValue

        where, binding = (self.device.type, self.device.index), self._session.io_binding()
        for name, value in feeds.items():
            binding.bind_ortvalue_input(name, OrtValue.ortvalue_from_numpy(value, *where))
        for output in self._session.get_outputs():
            binding.bind_output(output.name, *where)
        return binding

    def call(self, inputs: Any) -> Any:
        self._session.run_with_iobinding(inputs, self._run_options)
        return inputs

    def fetch(self, outputs: Any) -> list[Any]:
        import torch

        torch.cuda.synchronize()
        return list(outputs.copy_outputs_to_cpu())


class Torch(OnTensors):
    """The module that a model was exported from, as it is or compiled with its weights as constants."""

    def load(self, model: str) -> None:
        import torch

        self._module = self.module(model).to(self.device)
        torch.backends.cudnn.benchmark = self.options.get("tune", False)
        if self.options.get("compile"):
            import torch._inductor.config

            torch._inductor.config.freezing = True
            self._module = torch.compile(self._module, mode=None if self.device.type == CPU else "max-autotune")

    def module(self, model: str) -> Any:
        sys.path.insert(0, str(ROOT))
        from benchmarks.variants import cases

        known = cases(self.options.get("device", CPU), self.options.get("precision", "float32"))
        network = known[self.options["case"]].network
        if network is None:
            raise LookupError("the model was not exported from torch")
        return network().module

    def call(self, inputs: dict[str, Any]) -> Any:
        found = self._module(*inputs.values())
        return found if isinstance(found, tuple) else (found,)


class Onnx2Torch(Torch):
    def module(self, model: str) -> Any:
        import onnx2torch

        return onnx2torch.convert(model).eval()


class Primitive(Torch):
    """A linear layer or convolution with packed weights; its times are those that oneDNN tells of its primitive."""

    def call(self, inputs: dict[str, Any]) -> Any:
        return [self._primitive(inputs)().contiguous()]

    def _primitive(self, inputs: dict[str, Any]) -> Callable[[], Any]:
        import torch

        ops, layer = torch.ops.mkldnn, self._module
        (x,) = inputs.values()
        weight, nothing = layer.weight, ("none", [], "")
        if isinstance(layer, torch.nn.Linear):
            packed = ops._reorder_linear_weight(weight, len(x))
            return lambda: ops._linear_pointwise(x, packed, layer.bias, *nothing)
        form = (layer.padding, layer.stride, layer.dilation, layer.groups)
        packed = ops._reorder_convolution_weight(weight, *form, list(x.shape))
        x = x.contiguous(memory_format=torch.channels_last)
        return lambda: ops._convolution_pointwise(x, packed, layer.bias, *form, *nothing)

    def time(self, sets: list[dict[str, Any]], runs: int) -> list[float]:
        call = self._primitive(self.place(sets[0]))
        lines = printed(lambda: [call() for _ in range(runs)]).splitlines()
        found = re.compile(r"primitive,exec,cpu,(?:convolution|inner_product|matmul),.*,([0-9.]+)$")
        return [float(match[1]) / 1e3 for match in map(found.search, lines) if match]


def printed(action: Callable[[], object]) -> str:
    """Gives what oneDNN prints of its primitives while an action runs."""
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
    """A copy of the input to memory that is there, in as many threads; its times are those of the copy."""

    def time(self, sets: list[dict[str, Any]], runs: int) -> list[float]:
        (source,) = self.place(sets[0]).values()
        target = source.clone()
        return [seconds(lambda: target.copy_(source)) for _ in range(runs)]


ENGINES = {
    "onnx_torch_tensors": OnnxTorch,
    "onnxruntime_tensors": OnnxRuntime,
    "openvino": OpenVino,
    "torch": Torch,
    "onnx2torch": Onnx2Torch,
    "primitive": Primitive,
    "copy": Copy,
}
