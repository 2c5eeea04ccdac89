"""MatMulNBits with a constant weight is multiplied as it is: its numbers of 2, 4 or 8 bits are never a float matrix."""

import re

import numpy as np
import onnx
import pytest
from onnx import numpy_helper

import onnx_torch
from models import on_each_cpu, op_model, run_on_cpu
from test_models import in_a_process
from test_wrong_models import constant_model

MICROSOFT = dict(domain="com.microsoft", opset=1)
SIZES = [(200, 67, 16), (200, 67, 32), (131, 5, 64), (300, 130, 128), (1500, 33, 256)]


class Weight:
    """A random weight: what MatMulNBits takes, and the matrix in float64 that it stands for."""

    def __init__(self, K: int, N: int, block_size: int, bits: int, zero_points: str | None = None, bias: bool = False):
        random = np.random.default_rng(K * N + bits)
        blocks = -(-K // block_size)
        self.attributes = dict(K=K, N=N, bits=bits, block_size=block_size)
        numbers = random.integers(0, 1 << bits, (N, blocks * block_size), dtype=np.uint8)
        self.B = packed(numbers, bits).reshape(N, blocks, -1)
        self.scales = random.uniform(0.5, 2, (N, blocks)).astype(np.float32)
        zero = np.full((N, blocks), 1 << (bits - 1), np.float64)
        self.zero_points = None
        if zero_points == "packed":
            zero = random.integers(0, 1 << bits, (N, blocks), dtype=np.uint8)
            self.zero_points = packed(zero, bits).reshape(-1)
        elif zero_points == "float":
            self.zero_points = random.uniform(0, 1 << bits, (N, blocks)).astype(np.float32)
            zero = self.zero_points
        self.bias = random.normal(size=N).astype(np.float32) if bias else None
        in_blocks = numbers.reshape(N, blocks, block_size).astype(np.float64) - zero[:, :, None].astype(np.float64)
        self.matrix = (in_blocks * self.scales[:, :, None]).reshape(N, -1)[:, :K].T

    def inputs(self, x: np.ndarray) -> list[np.ndarray | None]:
        return [x, self.B, self.scales, self.zero_points, None, self.bias]

    def model(self, x: np.ndarray):
        return constant_model("MatMulNBits", self.inputs(x), **MICROSOFT, **self.attributes)

    def check(self, y: np.ndarray, x: np.ndarray) -> None:
        """Each sum is right to a few units in the last place of the sizes that are added."""
        expected = x.astype(np.float64) @ self.matrix
        sizes = np.abs(x).astype(np.float64) @ np.abs(self.matrix)
        if self.bias is not None:
            expected = expected + self.bias
            sizes = sizes + np.abs(self.bias)
        assert y.dtype == np.float32 and y.shape == expected.shape
        assert (np.abs(y - expected) <= 4 * np.finfo(np.float32).eps * sizes.max()).all()


def packed(numbers: np.ndarray, bits: int) -> np.ndarray:
    """Rows of numbers in bytes, the first in the lowest bits."""
    each = 8 // bits
    padded = np.pad(numbers, [(0, 0), (0, -numbers.shape[1] % each)]).reshape(len(numbers), -1, each)
    return sum(padded[:, :, i] << (bits * i) for i in range(each)).astype(np.uint8)


def rows_of(*shape: int) -> np.ndarray:
    return np.random.default_rng(sum(shape)).normal(size=shape).astype(np.float32)


def names_of(rep) -> list[str]:
    return re.findall(r"= (\w+::\w+)", str(rep.graph()))


@pytest.mark.parametrize("rows", [1, 2, 3, 4, 5, 17, 130])
@pytest.mark.parametrize("K, N, block_size", SIZES)
@pytest.mark.parametrize("bits", [2, 4, 8])
def test_a_weight_of_few_bits_is_multiplied_as_it_is(bits, K, N, block_size, rows):
    x = rows_of(rows, K)
    for zero_points in (None, "packed", "float"):
        for bias in (False, True):
            weight = Weight(K, N, block_size, bits, zero_points, bias)
            rep = onnx_torch.prepare(weight.model(x))
            assert "onnx_torch::packed" in names_of(rep) and "aten::linear" not in names_of(rep)
            for _ in range(4):  # by the interpreter, while a plan is made, and by it
                weight.check(rep.run([x])[0], x)


@on_each_cpu
@pytest.mark.parametrize("zero_points", [None, "packed"])
@pytest.mark.parametrize("bits", [2, 4, 8])
def test_on_each_kind_of_cpu(bits, zero_points, capability, tmp_path):
    weight = Weight(1100, 90, 32, bits, zero_points, bias=True)
    for rows in (1, 3, 17):
        x = rows_of(rows, 1100)
        weight.check(run_on_cpu(capability, weight.model(x), [x], tmp_path)[0], x)


def test_leading_dimensions_and_none_rows():
    weight = Weight(96, 40, 32, 4)
    for shape in [(96,), (2, 3, 96), (0, 96), (2, 0, 96)]:
        x = rows_of(*shape)
        rep = onnx_torch.prepare(weight.model(x))
        for _ in range(3):
            y = rep.run([x])[0]
        assert y.shape == (*shape[:-1], 40)
        np.testing.assert_allclose(y, x @ weight.matrix, rtol=1e-4, atol=1e-3)


def test_a_plan_calls_the_kernel_by_memory_alone():
    weight = Weight(96, 40, 32, 4)
    x = rows_of(2, 96)
    rep = onnx_torch.prepare(weight.model(x))
    for _ in range(3):
        rep.run([x])
    assert re.search(r"plan\b.*onnx_torch::packed", str(rep.plans()))


def test_what_the_operator_does_not_take_is_left_to_the_script():
    weight = Weight(96, 40, 32, 4)
    x = rows_of(2, 96)
    g_idx = (np.arange(96) // 32).astype(np.int32)
    grouped = constant_model("MatMulNBits", [*weight.inputs(x)[:4], g_idx], **MICROSOFT, **weight.attributes)
    wide = Weight(1000, 3, 512, 4)
    run_time = op_model("MatMulNBits", weight.inputs(x)[:3], **MICROSOFT, **weight.attributes)
    for source, inputs, of in [
        (grouped, [x], weight),
        (wide.model(rows_of(2, 1000)), [rows_of(2, 1000)], wide),
        (run_time, weight.inputs(x)[:3], weight),
    ]:
        rep = onnx_torch.prepare(source)
        assert "onnx_torch::packed" not in str(rep.graphs().get("bits", ""))
        of.check(rep.run(inputs)[0], inputs[0])


def test_the_pass_is_optional():
    weight = Weight(96, 40, 32, 4)
    x = rows_of(2, 96)
    rep = onnx_torch.prepare(weight.model(x), disabled_passes=["bits"])
    weight.check(rep.run([x])[0], x)


def test_it_takes_about_the_memory_of_the_packed_weight(tmp_path):
    weight = Weight(4096, 8192, 32, 4)
    path = tmp_path / "net.onnx"
    onnx.save(weight.model(rows_of(1, 4096)), path)
    script = """
        x = np.ones((1, 4096), np.float32)
        onnx_torch.prepare(onnx.parser.parse_model(
            '<ir_version: 10, opset_import: ["": 23]> net (float[1, 2] x) => (float[1, 2] y) { y = Relu(x) }'
        )).run([x[:, :2]])
        before = resident()
        rep = onnx_torch.prepare(sys.argv[1])
        for _ in range(4): rep.run([x])
        print(resident() - before, peak() - before)
        """
    held, peak = in_a_process(script, path)
    assert held < 1.5 * 20 and peak < 128  # MiB: 16 of numbers and 4 of scales, of 128 in float32


def test_a_saved_model_has_its_weight_laid_out(tmp_path):
    weight = Weight(96, 40, 32, 4, "packed")
    x = rows_of(2, 96)
    rep = onnx_torch.prepare(weight.model(x))
    rep.save(tmp_path / "model.bin")
    (layouts,) = rep._prepared.laid_weights
    assert [layout for layout, _ in layouts] == ["weight:panels of bits"]
    weight.check(onnx_torch.load(tmp_path / "model.bin").run([x])[0], x)


def test_an_input_of_another_size_is_refused():
    weight = Weight(96, 40, 32, 4, "packed")
    model = op_model("MatMulNBits", weight.inputs(rows_of(2, 96)), **MICROSOFT, **weight.attributes)
    for name, value in zip(("x1", "x2", "x3"), weight.inputs(rows_of(2, 96))[1:4], strict=True):
        model.graph.initializer.append(numpy_helper.from_array(value, name))
    rep = onnx_torch.prepare(model)
    assert "onnx_torch::packed" in names_of(rep)
    with pytest.raises(onnx_torch.Error, match=r"sizes \[2, 95\] cannot be multiplied"):
        rep.run([rows_of(2, 95)])
