"""Small models for tests."""

from __future__ import annotations

import os
import re
import struct
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np
import onnx
import pytest
import torch
from onnx import TensorProto, helper
from onnx.reference import ReferenceEvaluator

import onnx_torch.backend

NEWEST = onnx.defs.onnx_opset_version()

# ATen's CPU capabilities, and the names that oneDNN has for the same.
_CAPABILITIES = {"AVX512": "DEFAULT", "AVX2": "AVX2", "DEFAULT": "SSE41"}
on_each_cpu = pytest.mark.parametrize(
    "capability", [*_CAPABILITIES][[*_CAPABILITIES].index(torch.backends.cpu.get_cpu_capability()) :]
)
_RUN = """if True:
    import sys
    import numpy as np
    import onnx_torch
    inputs = np.load(sys.argv[2])
    np.savez(sys.argv[3], *onnx_torch.prepare(sys.argv[1]).run([inputs[name] for name in inputs.files]))
"""


def run_apart(
    source: onnx.ModelProto, inputs: Sequence[np.ndarray], folder: Path, **environment: str
) -> list[np.ndarray]:
    """Runs a model in a process with variables of its own in its environment, and gives its outputs."""
    files = [str(folder / name) for name in ("net.onnx", "inputs.npz", "outputs.npz")]
    onnx.save(source, files[0])
    np.savez(files[1], *inputs)
    subprocess.run([sys.executable, "-c", _RUN, *files], env={**os.environ, **environment}, check=True)
    outputs = np.load(files[2])
    return [outputs[name] for name in outputs.files]


def run_on_cpu(
    capability: str, source: onnx.ModelProto, inputs: Sequence[np.ndarray], folder: Path
) -> list[np.ndarray]:
    """Runs a model by the code for CPUs of one of ATen's capabilities, oneDNN's code too, and gives its outputs."""
    levels = {"ATEN_CPU_CAPABILITY": capability.lower(), "ONEDNN_MAX_CPU_ISA": _CAPABILITIES[capability]}
    return run_apart(source, inputs, folder, **levels)


def tensor_info(name: str, value: Any = None, shape: Sequence[Any] | None = None, element: int | None = None):
    """Makes a value info of a numpy array's type, of any shape unless one is given."""
    if element is None:
        dtype = np.asarray(value).dtype.newbyteorder("=")
        element = TensorProto.STRING if dtype.kind in "OUS" else helper.np_dtype_to_tensor_dtype(dtype)
    return helper.make_tensor_value_info(name, element, shape)


def model_of(nodes, inputs, outputs, opset: int = NEWEST, domain: str = "", **graph_options) -> onnx.ModelProto:
    """Makes a model of nodes; `outputs` may be names only."""
    outputs = [onnx.ValueInfoProto(name=o) if isinstance(o, str) else o for o in outputs]
    graph = helper.make_graph(nodes, "test", inputs, outputs, **graph_options)
    imports = [helper.make_opsetid(domain, opset)]
    if domain:
        imports.append(helper.make_opsetid("", NEWEST))
    return helper.make_model(graph, opset_imports=imports)


def op_model(
    op_type: str, inputs: Sequence[Any], opset: int = NEWEST, domain: str = "", outputs: int = 1, **attributes: Any
) -> onnx.ModelProto:
    """Makes a model of one node on arrays; None is an absent optional input."""
    names = ["" if value is None else f"x{i}" for i, value in enumerate(inputs)]
    out = [f"y{i}" for i in range(outputs)]
    node = helper.make_node(op_type, names, out, domain=domain, **attributes)
    infos = [tensor_info(name, value) for name, value in zip(names, inputs, strict=True) if value is not None]
    return model_of([node], infos, out, opset, domain)


def extension_model(
    op_type: str, inputs: dict[str, int], outputs: dict[str, int], **attributes: Any
) -> onnx.ModelProto:
    """Makes a model of one operator of onnxruntime-extensions on tensors of these types and of any shape."""
    domain = "ai.onnx.contrib"
    node = helper.make_node(op_type, list(inputs), list(outputs), domain=domain, **attributes)
    sides = [[helper.make_tensor_value_info(*info, None) for info in side.items()] for side in (inputs, outputs)]
    imports = [helper.make_opsetid("", 21), helper.make_opsetid(domain, 1)]
    return helper.make_model(helper.make_graph([node], "g", *sides), opset_imports=imports, ir_version=10)


def protobuf_field(number: int, value: bytes) -> bytes:
    """The bytes of a field that holds bytes, as protobuf writes it."""
    size, rest = [], len(value)
    while rest > 127:
        size.append(rest & 127 | 128)
        rest >>= 7
    return bytes([number << 3 | 2, *size, rest]) + value


def sentence_model(pieces: Sequence[tuple[str, float, int]], rules: bytes = b"", model_type: int = 1) -> bytes:
    """A model of sentencepiece of these pieces, with their scores and types, and of rules of normalization."""
    parts = [
        protobuf_field(1, protobuf_field(1, text.encode()) + struct.pack("<BfBB", 2 << 3 | 5, score, 3 << 3, kind))
        for text, score, kind in pieces
    ]
    return b"".join(
        [*parts, protobuf_field(2, bytes([3 << 3, model_type])), protobuf_field(3, protobuf_field(2, rules))]
    )


def run_op(
    op_type: str, inputs: Sequence[Any], opset: int = NEWEST, domain: str = "", outputs: int = 1, **attributes: Any
) -> list[Any]:
    """Runs one node in onnx_torch, and gives a list of its outputs."""
    model = op_model(op_type, inputs, opset, domain, outputs, **attributes)
    return list(onnx_torch.backend.prepare(model).run([value for value in inputs if value is not None]))


def reference_op(op_type: str, inputs: Sequence[Any], **options: Any) -> list[Any]:
    """Runs the same node in ONNX's reference implementation."""
    named = {f"x{i}": value for i, value in enumerate(inputs) if value is not None}
    return ReferenceEvaluator(op_model(op_type, inputs, **options)).run(None, named)


def onnxruntime_op(
    op_type: str, inputs: Sequence[Any], elements: Sequence[int], opset: int = 20, domain: str = "", **attributes: Any
) -> list[Any]:
    """Runs the same node in onnxruntime, which wants to know the outputs' types, and not the newest versions."""
    import onnxruntime  # only where it is needed: programs under test may ask for it to be absent

    model = op_model(op_type, inputs, opset, domain, len(elements), **attributes)
    model.ir_version = 10
    for imported in model.opset_import:
        imported.version = min(imported.version, 21)
    for output, element in zip(model.graph.output, elements, strict=True):
        output.CopyFrom(tensor_info(output.name, element=element))
    session = onnxruntime.InferenceSession(model.SerializeToString(), providers=["CPUExecutionProvider"])
    return session.run(None, {f"x{i}": value for i, value in enumerate(inputs) if value is not None})


def assert_same(actual: Sequence[Any], expected: Sequence[Any], rtol: float = 1e-5, atol: float = 1e-6) -> None:
    """Checks that types and shapes are equal, and elements, too; floating ones may differ within a tolerance."""
    for got, want in zip(actual, expected, strict=True):
        want = np.asarray(want)
        assert (got.dtype, got.shape) == (want.dtype, want.shape)
        if want.dtype.kind in "biuO":
            np.testing.assert_array_equal(got, want)
        else:
            wide = np.complex128 if want.dtype.kind == "c" else np.float64
            np.testing.assert_allclose(got.astype(wide), want.astype(wide), rtol=rtol, atol=atol)


def assert_rounded(actual: np.ndarray, exact: np.ndarray, ulps: float = 4, roundings: float = 1) -> None:
    """Checks elements that are computed in float32 at least, with an error of so many units in the last place of the
    largest one. Those of 16 bits are then rounded; each time takes half a unit of the element's own, and may a whole.
    """
    eps = float(ml_dtypes.finfo(actual.dtype).eps)
    rtol = roundings * eps if actual.itemsize == 2 else 0
    largest = np.abs(exact[np.isfinite(exact)]).max(initial=0)
    atol = ulps * min(eps, float(np.finfo(np.float32).eps)) * largest
    np.testing.assert_allclose(actual.astype(np.float64), exact, rtol=rtol, atol=atol)


def allocations(source: onnx.ModelProto, inputs: Sequence[np.ndarray]) -> int:
    """Counts the tensors that a run makes."""
    rep = onnx_torch.backend.prepare(source)
    rep.run(inputs)
    with torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CPU], profile_memory=True) as profile:
        rep.run(inputs)
    return sum(event.name() == "[memory]" and event.nbytes() > 0 for event in profile.profiler.kineto_results.events())


# Names of official cases and operators whose outputs are drawn.
RANDOM = re.compile("bernoulli|dropout|random|multinomial|training", re.IGNORECASE)


def same(a: Any, b: Any) -> bool:
    """Tells whether two outputs are the same, with the same bits but for what a NaN carries."""
    if isinstance(a, (list, tuple)):
        return len(a) == len(b) and all(map(same, a, b))
    if isinstance(a, dict):
        return list(a) == list(b) and all(same(a[key], b[key]) for key in a)
    if a is None or b is None:
        return a is b
    a, b = np.asarray(a), np.asarray(b)
    if a.shape != b.shape or a.dtype != b.dtype:
        return False
    if a.dtype.kind in "OUS":
        return bool((a == b).all())
    return a.tobytes() == b.tobytes() or bool(np.array_equal(a, b, equal_nan=a.dtype.kind in "fc"))


def assert_plans_agree(model: onnx.ModelProto, inputs: Sequence[Any], device: str = "CPU") -> None:
    """Checks that four runs, of which the last two go by the plan, give the bits that a run without plans gives."""
    expected = list(onnx_torch.backend.prepare(model, device, plans=0).run(inputs))
    rep = onnx_torch.backend.prepare(model, device)
    for number in range(1, 5):
        assert same(list(rep.run(inputs)), expected), f"run {number} gives something else than the interpreter"
