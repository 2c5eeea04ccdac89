"""Caches of keys and values: plans for decoders that have them, and presents that lie in the memory of their pasts."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

import onnx_torch
from models import model_of, on_each_cpu, op_model, run_on_cpu, tensor_info
from pass_models import assert_close

ROOT = Path(__file__).parents[2]
HEADS, SHARED, SIZE, WORDS = 4, 2, 16, 50
WIDTH = HEADS * SIZE
LAYERS = 2


def waves(*shape: int, scale: float = 1.0) -> np.ndarray:
    return (np.sin(np.arange(np.prod(shape)) * 1.7) * scale).astype(np.float32).reshape(shape)


class Nodes:
    """The nodes of a model, and its weights."""

    def __init__(self) -> None:
        self.nodes: list[onnx.NodeProto] = []
        self.weights: list[onnx.TensorProto] = []

    def add(self, op: str, *inputs: str, outputs: int = 1, domain: str = "", **attributes: Any) -> Any:
        names = [f"v{len(self.nodes)}_{i}" for i in range(outputs)]
        self.nodes.append(helper.make_node(op, inputs, names, domain=domain, **attributes))
        return names[0] if outputs == 1 else names

    def weight(self, value: Any) -> str:
        self.weights.append(numpy_helper.from_array(np.asarray(value), f"w{len(self.weights)}"))
        return self.weights[-1].name


def decoder(attention: Any) -> onnx.ModelProto:
    """Makes layers of attention, which `attention` writes, and of a product, behind a table of words."""
    n = Nodes()
    inputs = [tensor_info("ids", shape=["B", "S"], element=7), tensor_info("mask", shape=["B", "T"], element=7)]
    presents = []
    x = n.add("Gather", n.weight(waves(WORDS, WIDTH)), "ids")
    for layer in range(LAYERS):
        pasts = [f"past.{layer}.{part}" for part in ("key", "value")]
        inputs += [tensor_info(name, shape=["B", SHARED, "P", SIZE], element=1) for name in pasts]
        qkv = n.add("MatMul", x, n.weight(waves(WIDTH, WIDTH + 2 * SHARED * SIZE, scale=0.2)))
        y, *present = attention(n, qkv, *pasts)
        for part, name in zip(present, ("key", "value"), strict=True):
            n.nodes.append(helper.make_node("Identity", [part], [f"present.{layer}.{name}"]))
            presents.append(tensor_info(f"present.{layer}.{name}", shape=["B", SHARED, "Q", SIZE], element=1))
        x = n.add("Add", x, n.add("MatMul", y, n.weight(waves(WIDTH, WIDTH, scale=0.1))))
    logits = n.add("MatMul", x, n.weight(waves(WIDTH, WORDS)))
    n.nodes.append(helper.make_node("Identity", [logits], ["logits"]))
    outputs = [tensor_info("logits", shape=["B", "S", WORDS], element=1), *presents]
    model = model_of(n.nodes, inputs, outputs, 21, initializer=n.weights)
    model.opset_import.add(domain="com.microsoft", version=1)
    model.ir_version = 10
    return model


def grouped(n: Nodes, qkv: str, past_key: str, past_value: str) -> Any:
    """Adds GroupQueryAttention, as onnxruntime-genai writes it."""
    one = n.weight(np.array([1], np.int64))
    lengths = n.add("Cast", n.add("Sub", n.add("ReduceSum", "mask", one, keepdims=0), one), to=TensorProto.INT32)
    total = n.add("Gather", n.add("Shape", "mask"), n.weight(np.array(1, np.int64)))
    total = n.add("Cast", total, to=TensorProto.INT32)
    angles = np.arange(256)[:, None] * 0.3 ** np.arange(SIZE // 2)
    tables = [n.weight(f(angles).astype(np.float32)) for f in (np.cos, np.sin)]
    return n.add(
        "GroupQueryAttention", qkv, "", "", past_key, past_value, lengths, total, *tables, outputs=3,
        domain="com.microsoft", num_heads=HEADS, kv_num_heads=SHARED, do_rotary=1,
    )  # fmt: skip


def concatenated(n: Nodes, qkv: str, past_key: str, past_value: str) -> Any:
    """Adds a Concat of past and new, and attention of all rows to all of them."""
    sizes = n.weight(np.array([WIDTH, SHARED * SIZE, SHARED * SIZE], np.int64))
    q, k, v = n.add("Split", qkv, sizes, outputs=3, axis=2)
    heads = {HEADS: q, SHARED: k}

    def split(x: str, count: int) -> str:
        shaped = n.add("Reshape", x, n.weight(np.array([0, 0, count, SIZE], np.int64)))
        return n.add("Transpose", shaped, perm=[0, 2, 1, 3])

    key = n.add("Concat", past_key, split(heads[SHARED], SHARED), axis=2)
    value = n.add("Concat", past_value, split(v, SHARED), axis=2)

    def repeated(x: str) -> str:
        parts = n.add("Split", x, axis=1, num_outputs=SHARED, outputs=SHARED)
        return n.add("Concat", *(part for part in parts for _ in range(HEADS // SHARED)), axis=1)

    scores = n.add("MatMul", split(heads[HEADS], HEADS), n.add("Transpose", repeated(key), perm=[0, 1, 3, 2]))
    weights = n.add("Softmax", n.add("Mul", scores, n.weight(np.float32(0.25))), axis=-1)
    y = n.add("Transpose", n.add("MatMul", weights, repeated(value)), perm=[0, 2, 1, 3])
    return n.add("Reshape", y, n.weight(np.array([0, 0, WIDTH], np.int64))), key, value


def past_names() -> list[str]:
    return [f"past.{layer}.{part}" for layer in range(LAYERS) for part in ("key", "value")]


def feeds(rows: int, total: int, pasts: list[np.ndarray], batch: int = 1, mask: int = 0) -> dict[str, np.ndarray]:
    """Makes inputs of sequences of `total` tokens, with a mask of this length, or theirs."""
    ids = (np.arange(batch * rows).reshape(batch, rows) * 7 + total) % WORDS
    ones = (np.arange(mask or total) < total).astype(np.int64)
    return {"ids": ids, "mask": np.tile(ones, (batch, 1)), **dict(zip(past_names(), pasts, strict=True))}


@pytest.mark.parametrize("attention", [grouped, concatenated])
@pytest.mark.parametrize("rows", [1, 3, 8])
def test_a_decoder_has_a_plan(attention, rows):
    """The plan of a decoder calls its kernels with addresses alone; the interpreter runs none of them."""
    model = decoder(attention)
    rep, plain = onnx_torch.prepare(model), onnx_torch.prepare(model, plans=0)
    pasts = [waves(2, SHARED, 5, SIZE, scale=i + 1.0) for i in range(2 * LAYERS)]
    given = feeds(rows, 5 + rows, pasts, batch=2)
    expected = plain.run(given)
    for _ in range(4):
        for one, other in zip(rep.run(given), expected, strict=True):
            assert one.tobytes() == other.tobytes()
    [plan] = rep.plans()
    assert not re.search("^part ", plan, re.MULTILINE)
    if attention is grouped:
        assert len(re.findall("^plan onnx_torch::group_query_attention", plan, re.MULTILINE)) == LAYERS


def test_lengths_of_other_elements_in_a_plan():
    """One plan serves other lengths of the same sizes: its kernel reads them anew."""
    model = decoder(grouped)
    rep, plain = onnx_torch.prepare(model), onnx_torch.prepare(model, plans=0)
    pasts = [waves(1, SHARED, 12, SIZE, scale=i + 1.0) for i in range(2 * LAYERS)]
    for total in (3, 4, 9, 12, 5):
        given = feeds(1, total, pasts, mask=12)
        for one, other in zip(rep.run(given), plain.run(given), strict=True):
            assert one.tobytes() == other.tobytes()
    assert len(rep.plans()) == 1
    with pytest.raises(onnx_torch.errors.RunError, match="fewer keys than"):
        rep.run(feeds(1, 0, pasts, mask=12))
    assert len(rep.plans()) == 1


def gqa(rows: int, total: int, past: int, **attributes: Any) -> tuple[onnx.ModelProto, list[np.ndarray]]:
    inputs = [
        *(waves(1, rows, heads * SIZE, scale=2.0) for heads in (HEADS, SHARED, SHARED)),
        *[waves(1, SHARED, past, SIZE)] * 2,
        np.array([total - 1], np.int32),
        np.array([total], np.int32),
    ]
    model = op_model(
        "GroupQueryAttention", inputs, 21, "com.microsoft", 3, num_heads=HEADS, kv_num_heads=SHARED, **attributes
    )
    model.opset_import.add(domain="com.microsoft", version=1)
    return model, inputs


def test_a_total_that_asks_for_a_larger_present():
    """A plan relies on the present's size, and notices where another total comes."""
    model, inputs = gqa(1, 4, 4)
    rep = onnx_torch.prepare(model)
    for total in (4, 4, 4, 5, 4, 5, 5, 5, 4):
        inputs[5][0], inputs[6][0] = total - 1, total
        y, key, _ = rep.run(inputs)
        expected = onnx_torch.prepare(model, plans=0).run(inputs)
        assert key.shape == (1, SHARED, max(total, 4), SIZE)
        np.testing.assert_array_equal(y, expected[0])
        np.testing.assert_array_equal(key, expected[1])


# --- In place ---


def generated(model: onnx.ModelProto, room: int, views: bool) -> list[np.ndarray]:
    """Gives the logits of a prompt and steps, whose presents lie in the buffers of their pasts; with `views` the pasts
    are views of the rows that are there, and else the buffers come whole.
    """
    rep = onnx_torch.prepare(model)
    buffers = [np.full((1, SHARED, room, SIZE), np.nan, np.float32) for _ in past_names()]
    logits, total = [], 0
    for rows in (4, 1, 1, 3, 1, 1, 1):
        past, total = total, total + rows
        pasts = [buffer[:, :, :past] if views else buffer for buffer in buffers]
        presents = [buffer[:, :, :total] if views else buffer for buffer in buffers]
        outputs = rep.run(feeds(rows, total, pasts, mask=0 if views else room), out=[None, *presents])
        assert all(one is other for one, other in zip(outputs[1:], presents, strict=True))
        for buffer in buffers:  # nothing was written behind them: a copy of a whole buffer has zeros there
            assert np.isfinite(buffer[:, :, :total]).all()
            assert np.isnan(buffer[:, :, total:]).all()
        logits.append(outputs[0])
    return logits


def grown(model: onnx.ModelProto) -> list[np.ndarray]:
    """Gives the same logits with presents that get memory of their own."""
    rep = onnx_torch.prepare(model, optimize=False)
    pasts, total, logits = [np.zeros((1, SHARED, 0, SIZE), np.float32)] * (2 * LAYERS), 0, []
    for rows in (4, 1, 1, 3, 1, 1, 1):
        total += rows
        first, *pasts = rep.run(feeds(rows, total, pasts))
        logits.append(first)
    return logits


@pytest.mark.parametrize("attention, views", [(grouped, False), (grouped, True), (concatenated, True)])
def test_generating_in_place(attention, views):
    model = decoder(attention)
    for one, other in zip(generated(model, 16, views), grown(model), strict=True):
        assert_close(one, other, ulps=64)  # neither is exact: each is rounded in two layers


@pytest.mark.parametrize("attention", [grouped, concatenated])
def test_inputs_that_are_no_outputs_stay_as_they_are(attention):
    rep = onnx_torch.prepare(decoder(attention))
    pasts = [waves(1, SHARED, 6, SIZE) for _ in past_names()]
    kept = [past.copy() for past in pasts]
    given = feeds(1, 5, pasts, mask=6) if attention is grouped else feeds(1, 7, pasts)
    for _ in range(4):
        outputs = rep.run(given)
        for past, before, present in zip(pasts, kept, outputs[1:], strict=True):
            np.testing.assert_array_equal(past, before)
            assert not np.shares_memory(past, present)


def test_memory_that_is_bound_to_more_than_one_cache():
    """Keys and values bound to one buffer, where each of them would write over the other, are right all the same."""
    model, inputs = gqa(1, 4, 5)
    expected = onnx_torch.prepare(model).run(inputs)
    rep = onnx_torch.prepare(model)
    for _ in range(4):
        buffer, other = inputs[3].copy(), np.empty_like(inputs[4])
        y, key, value = rep.run([*inputs[:3], buffer, buffer, *inputs[5:]], out=[None, buffer, other])
        for one, wanted in zip((y, key, value), expected, strict=True):
            np.testing.assert_array_equal(one, wanted)


@pytest.mark.parametrize("mode", ["linear", "circular"])
def test_rows_that_are_scattered_in_place(mode):
    """TensorScatter writes its rows into the cache where that is its output, too."""
    cache, update, starts = waves(2, 6, 4), waves(2, 2, 4) + 9, np.array([0, 4 if mode == "linear" else 5])
    model = op_model("TensorScatter", [cache, update, starts], 24, axis=1, mode=mode)
    expected = onnx_torch.prepare(model, optimize=False).run([cache, update, starts])[0]
    rep = onnx_torch.prepare(model)
    for _ in range(4):
        buffer = cache.copy()
        assert rep.run([buffer, update, starts], out=[buffer])[0] is buffer
        np.testing.assert_array_equal(buffer, expected)
        np.testing.assert_array_equal(rep.run([cache, update, starts])[0], expected)
    assert re.search("^plan onnx_torch::scatter_rows", rep.plans()[0], re.MULTILINE)
    if mode == "linear":
        with pytest.raises(onnx_torch.Error, match="out of bounds"):
            rep.run([cache, update, starts + 1])


def test_a_past_that_another_node_reads():
    """The sum of a past that another node reads is of what the past was before the step."""
    n = Nodes()
    present = n.add("Concat", "past", "new", axis=0)
    doubled = n.add("Add", "past", "past")
    n.nodes += [helper.make_node("Identity", [a], [b]) for a, b in ((present, "present"), (doubled, "doubled"))]
    model = model_of(
        n.nodes,
        [tensor_info("past", shape=["P", 4], element=1), tensor_info("new", shape=["N", 4], element=1)],
        [tensor_info("present", shape=["Q", 4], element=1), tensor_info("doubled", shape=["P", 4], element=1)],
        21,
    )
    rep = onnx_torch.prepare(model)
    for _ in range(4):
        buffer = waves(8, 4)
        before = buffer.copy()
        _, doubled = rep.run([buffer[:5], waves(3, 4) + 9], out=[buffer, None])
        np.testing.assert_array_equal(doubled, 2 * before[:5])
        np.testing.assert_array_equal(buffer, np.concatenate([before[:5], waves(3, 4) + 9]))


def test_a_step_takes_no_memory_for_the_past():
    """A step in a process of its own takes no memory for a past of 128 MB: a copy would be as large once more."""
    code = """if True:
        import resource, sys
        sys.path.insert(0, "tests/python")
        import numpy as np, onnx_torch, test_caches as t
        rep = onnx_torch.prepare(t.decoder(t.grouped))
        peak = lambda: resource.getrusage(resource.RUSAGE_SELF).ru_maxrss >> 10
        for room in (64, 1 << 18):
            buffers = [np.ones((1, t.SHARED, room, t.SIZE), np.float32) for _ in t.past_names()]
            before = peak()
            for total in (40, 41, 42):
                rep.run(t.feeds(1, total, buffers, mask=room), out=[None, *buffers])
        print(peak() - before)
    """
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, cwd=ROOT)
    assert int(done.stdout) < 32, done.stdout


def test_a_cache_that_a_session_binds():
    """A cache may be bound as onnxruntime's programs do with past_present_share_buffer."""
    model, inputs = gqa(1, 4, 6, do_rotary=0)
    expected = onnx_torch.prepare(model).run(inputs)
    session = onnx_torch.InferenceSession(model.SerializeToString())
    binding = session.io_binding()
    values = [onnx_torch.OrtValue.ortvalue_from_numpy(x) for x in inputs]
    caches = [onnx_torch.OrtValue.ortvalue_from_numpy(x.copy()) for x in inputs[3:5]]
    for i, value in enumerate(values):
        binding.bind_ortvalue_input(f"x{i}", caches[i - 3] if i in (3, 4) else value)
    binding.bind_output("y0")
    binding.bind_ortvalue_output("y1", caches[0])
    binding.bind_ortvalue_output("y2", caches[1])
    for _ in range(4):
        session.run_with_iobinding(binding)
        y, key, _ = binding.copy_outputs_to_cpu()
        np.testing.assert_array_equal(y, expected[0])
        np.testing.assert_array_equal(key[:, :, :4], expected[1][:, :, :4])
        np.testing.assert_array_equal(key[:, :, 4:], inputs[3][:, :, 4:])  # as they were


@pytest.mark.parametrize("rows", [1, 7])
@pytest.mark.parametrize("dtype", [np.float32, np.float16])
def test_outputs_in_memory_of_the_callers(rows, dtype):
    model, inputs = gqa(rows, rows + 2, rows + 2)
    if dtype is np.float16:
        inputs = [x.astype(dtype) if x.dtype == np.float32 else x for x in inputs]
        for info in model.graph.input:
            if info.type.tensor_type.elem_type == TensorProto.FLOAT:
                info.type.tensor_type.elem_type = TensorProto.FLOAT16
    rep, expected = onnx_torch.prepare(model), onnx_torch.prepare(model).run(inputs)
    for _ in range(4):
        mine = [np.full(x.shape, np.nan, dtype) for x in expected]
        for one, other, target in zip(rep.run(inputs, out=mine), expected, mine, strict=True):
            assert one is target
            np.testing.assert_array_equal(one, other)


# --- The kernel on each kind of CPU ---

CASES: dict[str, tuple[int, int, int, dict[str, Any]]] = {
    "a prompt": (9, 9, 9, {}),
    "a step": (1, 70, 75, {}),
    "a step of a window": (1, 70, 75, {"local_window_size": 33}),
    "some rows": (5, 70, 75, {"local_window_size": 3}),
    "many rows": (40, 70, 75, {"local_window_size": 17}),
    "a window of none": (8, 20, 20, {"local_window_size": 0}),
    "a cap": (7, 20, 20, {"softcap": 0.5}),
    "a smooth softmax": (8, 20, 20, {"smooth_softmax": 1, "local_window_size": 4}),
    "one row with a sink": (1, 20, 20, {"smooth_softmax": 1}),
    "no order": (8, 20, 20, {"causal": 0}),
}


@on_each_cpu
@pytest.mark.parametrize("name", CASES)
def test_on_each_cpu(name, capability, tmp_path):
    rows, total, past, attributes = CASES[name]
    model, inputs = gqa(rows, total, past, **attributes)
    expected = onnx_torch.prepare(model, optimize=False).run(inputs)
    for one, other in zip(run_on_cpu(capability, model, inputs, tmp_path), expected, strict=True):
        np.testing.assert_allclose(one, other, rtol=1e-5, atol=1e-5)
