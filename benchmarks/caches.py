"""Attention with a cache, here and in onnxruntime: python -m benchmarks.caches [--threads 1] [--rounds 7].

GroupQueryAttention alone and a decoder of two layers, of 14 heads of 64 that share two of keys and values, with the
past and present in one buffer, as onnxruntime's `past_present_share_buffer` has it. Each engine runs in a process of
its own, in turns, and a ratio is the median of those of the turns.
"""

from __future__ import annotations

import argparse
import itertools
from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

from .turns import Run, Turns

HEADS, SHARED, SIZE, INNER, WORDS, POSITIONS = 14, 2, 64, 2432, 2048, 4096
WIDTH = HEADS * SIZE
LAYERS = 2


class Case(NamedTuple):
    """A case: the bytes of a model, what it is fed, and the inputs in whose memory outputs lie."""

    model: bytes
    feeds: dict[str, np.ndarray]
    shared: dict[str, str]


def floats(name: str, shape: list[Any], element: int) -> onnx.ValueInfoProto:
    return helper.make_tensor_value_info(name, element, shape)


def written(nodes: list[Any], inputs: list[Any], outputs: list[Any], weights: list[Any]) -> bytes:
    graph = helper.make_graph(nodes, "caches", inputs, outputs, weights)
    imports = [helper.make_opsetid("", 21), helper.make_opsetid("com.microsoft", 1)]
    return helper.make_model(graph, opset_imports=imports, ir_version=10).SerializeToString()


def tables() -> dict[str, np.ndarray]:
    angles = np.outer(np.arange(POSITIONS), 10000.0 ** -(np.arange(SIZE // 2) / (SIZE // 2)))
    return {"cos": np.cos(angles), "sin": np.sin(angles)}


def attention(inputs: list[str], outputs: list[str]) -> onnx.NodeProto:
    heads = {"num_heads": HEADS, "kv_num_heads": SHARED}
    return helper.make_node("GroupQueryAttention", inputs, outputs, domain="com.microsoft", do_rotary=1, **heads)


def alone(past: int, rows: int, element: int) -> Case:
    rng, total = np.random.default_rng(0), past + rows
    widths = {"q": WIDTH, "k": SHARED * SIZE, "v": SHARED * SIZE}
    dtype = helper.tensor_dtype_to_np_dtype(element)
    feeds = {name: rng.standard_normal((1, rows, width)) for name, width in widths.items()}
    feeds |= {name: rng.standard_normal((1, SHARED, total, SIZE)) for name in ("past_key", "past_value")}
    feeds = {name: x.astype(dtype) for name, x in (feeds | tables()).items()}
    feeds |= {"lengths": np.array([total - 1], np.int32), "total": np.array([total], np.int32)}
    names = ["q", "k", "v", "past_key", "past_value", "lengths", "total", "cos", "sin"]
    elements = {name: TensorProto.INT32 if name in ("lengths", "total") else element for name in names}
    inputs = [floats(name, [None] * feeds[name].ndim, elements[name]) for name in names]
    outputs = [floats(name, None, element) for name in ("y", "present_key", "present_value")]
    node = attention(names, [output.name for output in outputs])
    return Case(written([node], inputs, outputs, []), feeds, {f"present_{x}": f"past_{x}" for x in ("key", "value")})


class Decoder:
    """The nodes and weights of a decoder as they are written."""

    def __init__(self) -> None:
        self.rng = np.random.default_rng(0)
        self.nodes: list[onnx.NodeProto] = []
        self.weights: list[onnx.TensorProto] = []

    def add(self, op: str, *inputs: str, **attributes: Any) -> str:
        name = f"v{len(self.nodes)}"
        self.nodes.append(helper.make_node(op, inputs, [name], **attributes))
        return name

    def weight(self, value: np.ndarray) -> str:
        self.weights.append(numpy_helper.from_array(value, f"w{len(self.weights)}"))
        return self.weights[-1].name

    def matrix(self, *shape: int, scale: float = 0.03) -> str:
        return self.weight((self.rng.standard_normal(shape) * scale).astype(np.float32))

    def product(self, x: str, inner: int, outer: int) -> str:
        return self.add("MatMul", x, self.matrix(inner, outer))

    def norm(self, x: str) -> str:
        return self.add("SimplifiedLayerNormalization", x, self.weight(np.ones(WIDTH, np.float32)), axis=-1)

    def feed_forward(self, x: str) -> str:
        gate, up = self.product(x, WIDTH, INNER), self.product(x, WIDTH, INNER)
        return self.product(self.add("Mul", self.add("Mul", gate, self.add("Sigmoid", gate)), up), INNER, WIDTH)


def decoder(past: int, rows: int, element: int) -> Case:
    total, d = past + rows, Decoder()
    feeds: dict[str, np.ndarray] = {
        "ids": d.rng.integers(0, WORDS, (1, rows)),
        "mask": np.ones((1, total), np.int64),
    }
    inputs = [floats(name, [None, None], TensorProto.INT64) for name in feeds]
    outputs, shared = [floats("logits", None, element)], {}
    one = d.weight(np.array([1], np.int64))
    lengths = d.add("Cast", d.add("Sub", d.add("ReduceSum", "mask", one, keepdims=0), one), to=TensorProto.INT32)
    length = d.add("Gather", d.add("Shape", "mask"), d.weight(np.array(1, np.int64)))
    length = d.add("Cast", length, to=TensorProto.INT32)
    cos, sin = (d.weight(x.astype(np.float32)) for x in tables().values())
    x = d.add("Gather", d.matrix(WORDS, WIDTH, scale=1), "ids")
    for layer in range(LAYERS):
        pasts, presents = ([f"{kind}_{part}_{layer}" for part in ("key", "value")] for kind in ("past", "present"))
        for name, present in zip(pasts, presents, strict=True):
            feeds[name] = d.rng.standard_normal((1, SHARED, total, SIZE)).astype(np.float32)
            inputs.append(floats(name, [None, SHARED, None, SIZE], element))
            outputs.append(floats(present, None, element))
            shared[present] = name
        qkv = d.product(d.norm(x), WIDTH, WIDTH + 2 * SHARED * SIZE)
        d.nodes.append(attention([qkv, "", "", *pasts, lengths, length, cos, sin], [f"y{layer}", *presents]))
        x = d.add("Add", x, d.product(f"y{layer}", WIDTH, WIDTH))
        x = d.add("Add", x, d.feed_forward(d.norm(x)))
    d.nodes.append(helper.make_node("MatMul", [x, d.matrix(WIDTH, WORDS)], ["logits"]))
    return Case(written(d.nodes, inputs, outputs, d.weights), feeds, shared)


KINDS: dict[str, tuple[Callable[[int, int, int], Case], int]] = {
    "GroupQueryAttention": (alone, TensorProto.FLOAT),
    "GroupQueryAttention, float16": (alone, TensorProto.FLOAT16),
    "decoder": (decoder, TensorProto.FLOAT),
}


def runner(engine: str, case: Case, threads: int) -> Run:
    """Gives a function that runs the case once and returns its first output."""
    names = [output.name for output in onnx.load_from_string(case.model).graph.output]
    if engine == "onnx_torch":
        import onnx_torch

        rep = onnx_torch.prepare(case.model, threads=threads)
        out = {output: case.feeds[past] for output, past in case.shared.items()}
        return lambda: rep.run(case.feeds, out=out)[0]
    import onnxruntime

    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads, options.log_severity_level = threads, 3
    session = onnxruntime.InferenceSession(case.model, options)
    values = {name: onnxruntime.OrtValue.ortvalue_from_numpy(x) for name, x in case.feeds.items()}
    binding = session.io_binding()
    for name, value in values.items():
        binding.bind_ortvalue_input(name, value)
    for name in names:
        if name in case.shared:
            binding.bind_ortvalue_output(name, values[case.shared[name]])
        else:
            binding.bind_output(name)

    def run() -> np.ndarray:
        session.run_with_iobinding(binding)
        first: np.ndarray = binding.get_outputs()[0].numpy()
        return first

    return run


def made(engine: str, case: tuple[str, int, int], threads: int) -> Run:
    kind, past, rows = case
    make, element = KINDS[kind]
    return runner(engine, make(past, rows, element), threads)


def main() -> None:
    """Prints a row for each case."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--kinds", nargs="*", default=list(KINDS), choices=list(KINDS))
    arguments = parser.parse_args()
    print("| | past | rows | onnxruntime, µs | onnx_torch, µs | ratio |\n|---|---|---|---|---|---|")
    with Turns(made, arguments.threads) as turns:
        for kind, past, rows in itertools.product(arguments.kinds, (0, 128, 2048), (1, 128)):
            first, second = (output.astype(np.float32) for output in turns.take((kind, past, rows)))
            assert np.abs(first - second).max() <= 5e-3 * np.abs(first).max(), (kind, past, rows)
            theirs, ours, ratio = turns.times(arguments.rounds)
            print(f"| {kind} | {past} | {rows} | {theirs * 1e6:.1f} | {ours * 1e6:.1f} | {ratio:.2f} |", flush=True)


if __name__ == "__main__":
    main()
