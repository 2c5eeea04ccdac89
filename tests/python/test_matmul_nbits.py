"""MatMulNBits with a constant weight is multiplied as it is: its elements of 2, 4 or 8 bits are never a float matrix.

With an accuracy_level of 4 the rows are rounded to int8, as onnxruntime does, and multiplied in integers.
"""

import re

import ml_dtypes
import numpy as np
import onnx
import onnxruntime
import pytest
from onnx import TensorProto, helper, numpy_helper

import onnx_torch
from models import on_each_cpu, op_model, run_apart, run_on_cpu, tensor_info
from test_models import in_a_process
from wrong_models import constant_model

MICROSOFT = dict(domain="com.microsoft", opset=1)
SIZES = [(200, 67, 16), (200, 67, 32), (131, 5, 64), (300, 130, 128), (1500, 33, 256)]
LARGE_BLOCKS = [(1000, 3, 512), (300, 33, 1024), (5000, 17, 2048)]
LEVELS = [0, 1, 2, 3]  # the levels that do not allow int8


class Weight:
    """A random weight: what MatMulNBits takes, and the matrix in float64 that it stands for."""

    def __init__(
        self,
        K: int,
        N: int,
        block_size: int,
        bits: int,
        zero_points: str | None = None,
        bias: bool = False,
        accuracy_level: int = 0,
    ):
        random = np.random.default_rng(K * N + bits)
        blocks = -(-K // block_size)
        self.attributes = dict(K=K, N=N, bits=bits, block_size=block_size, accuracy_level=accuracy_level)
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
        """Checks that each sum is right to a few units in the last place of the sizes that are added."""
        self.check_near(y, x.astype(np.float64), 0)

    def check_rounded(self, y: np.ndarray, x: np.ndarray) -> None:
        """Checks the same for x in int8. An element in the middle of two numbers may become either of them."""
        rounded, either = rounded_blocks(x, min(self.attributes["block_size"], 256))
        self.check_near(y, rounded, either @ np.abs(self.matrix))

    def check_near(self, y: np.ndarray, x: np.ndarray, tolerance: np.ndarray | int) -> None:
        expected = x @ self.matrix
        sizes = np.abs(x) @ np.abs(self.matrix)
        if self.bias is not None:
            expected = expected + self.bias
            sizes = sizes + np.abs(self.bias)
        assert y.dtype == np.float32 and y.shape == expected.shape
        assert (np.abs(y - expected) <= 4 * np.finfo(np.float32).eps * sizes.max() + tolerance).all()


def packed(numbers: np.ndarray, bits: int) -> np.ndarray:
    """Packs rows of numbers into bytes, the first in the lowest bits."""
    each = 8 // bits
    padded = np.pad(numbers, [(0, 0), (0, -numbers.shape[1] % each)]).reshape(len(numbers), -1, each)
    return sum(padded[:, :, i] << (bits * i) for i in range(each)).astype(np.uint8)


def rounded_blocks(x: np.ndarray, block_size: int) -> tuple[np.ndarray, np.ndarray]:
    """Rounds blocks to multiples of their largest magnitude by 127; gives also the steps where two are as near."""
    padded = np.pad(x.astype(np.float64), [(0, 0), (0, -x.shape[1] % block_size)])
    blocks = padded.reshape(len(x), -1, block_size)
    scales = np.abs(blocks).max(-1, keepdims=True) / 127
    ratios = np.divide(blocks, scales, out=np.zeros_like(blocks), where=scales > 0)
    either = (np.abs(np.abs(ratios - np.floor(ratios)) - 0.5) < 1e-4) * scales
    return (
        (np.rint(ratios) * scales).reshape(padded.shape)[:, : x.shape[1]],
        either.reshape(padded.shape)[:, : x.shape[1]],
    )


def rows_of(*shape: int) -> np.ndarray:
    return np.random.default_rng(sum(shape)).normal(size=shape).astype(np.float32)


def names_of(rep) -> list[str]:
    return re.findall(r"= (\w+::\w+)", str(rep.graph()))


def onnxruntime_of(model: onnx.ModelProto, x: np.ndarray) -> np.ndarray:
    """Gives what onnxruntime gives of it, which wants the output's type, and not the newest versions."""
    older = helper.make_model(
        model.graph,
        ir_version=10,
        opset_imports=[helper.make_opsetid("com.microsoft", 1), helper.make_opsetid("", 21)],
    )
    older.graph.output[0].type.tensor_type.elem_type = TensorProto.FLOAT
    session = onnxruntime.InferenceSession(older.SerializeToString(), providers=["CPUExecutionProvider"])
    return session.run(None, {session.get_inputs()[0].name: x})[0]


@pytest.mark.parametrize("rows", [1, 2, 3, 4, 5, 17, 130])
@pytest.mark.parametrize("K, N, block_size", SIZES)
@pytest.mark.parametrize("bits", [2, 4, 8])
def test_a_weight_of_few_bits_is_multiplied_as_it_is(bits, K, N, block_size, rows):
    x = rows_of(rows, K)
    for zero_points in (None, "packed", "float"):
        for bias in (False, True):
            weight = Weight(K, N, block_size, bits, zero_points, bias)
            rep = onnx_torch.prepare(weight.model(x))
            assert "onnx_torch::packed_nbits" in names_of(rep) and "aten::linear" not in names_of(rep)
            for _ in range(4):  # by the interpreter, while a plan is made, and by the plan
                weight.check(rep.run([x])[0], x)


@pytest.mark.parametrize("level", LEVELS)
def test_the_lower_levels_round_nothing(level):
    x = rows_of(2, 96)
    weight = Weight(96, 40, 32, 4, accuracy_level=level)
    rep = onnx_torch.prepare(weight.model(x))
    assert "onnx_torch::packed_nbits" in names_of(rep)
    weight.check(rep.run([x])[0], x)


def rounds(bits: int, block_size: int, zero_points: str | None) -> bool:
    """Tells whether onnxruntime's level 4 rounds the rows."""
    return zero_points != "float" and (bits != 2 or block_size in (32, 64, 128))


@pytest.mark.parametrize("rows", [1, 2, 3, 4, 5, 17, 130])
@pytest.mark.parametrize("K, N, block_size", SIZES + LARGE_BLOCKS)
@pytest.mark.parametrize("bits", [2, 4, 8])
def test_rows_are_rounded_to_int8_where_the_level_is_4(bits, K, N, block_size, rows):
    x = rows_of(rows, K)
    for zero_points in (None, "packed", "float"):
        for bias in (False, True):
            weight = Weight(K, N, block_size, bits, zero_points, bias, accuracy_level=4)
            rep = onnx_torch.prepare(weight.model(x))
            rounded = rounds(bits, block_size, zero_points)
            assert ("onnx_torch::packed_nbits_int8" if rounded else "onnx_torch::packed_nbits") in names_of(rep)
            results = [rep.run([x])[0] for _ in range(4)]  # by the interpreter, while a plan is made, and by the plan
            for y in results:
                np.testing.assert_array_equal(y, results[0])
                (weight.check_rounded if rounded else weight.check)(y, x)


@pytest.mark.parametrize("block_size", [16, 32, 64, 128, 256])
@pytest.mark.parametrize("bits, zero_points", [(2, "packed"), (4, "packed"), (8, "packed"), (2, "float"), (4, "float")])
def test_level_4_is_as_near_to_the_truth_as_onnxruntime(bits, zero_points, block_size):
    weight = Weight(1024, 64, block_size, bits, zero_points, accuracy_level=4)
    x = rows_of(33, 1024)
    model = weight.model(x)
    truth = x.astype(np.float64) @ weight.matrix
    error, theirs = (
        np.sqrt(np.mean((y - truth) ** 2)) for y in (onnx_torch.prepare(model).run([x])[0], onnxruntime_of(model, x))
    )
    assert error <= 1.1 * theirs + np.finfo(np.float32).eps * np.abs(truth).max()
    for each in (error, theirs):
        assert (each > 1e-4 * np.abs(truth).max()) == rounds(bits, block_size, zero_points)


@pytest.mark.parametrize("K, N, block_size", LARGE_BLOCKS)
@pytest.mark.parametrize("bits", [2, 4, 8])
def test_blocks_larger_than_those_of_a_kernel(bits, K, N, block_size):
    for rows, zero_points in [(1, None), (3, "packed"), (40, "float")]:
        x = rows_of(rows, K)
        weight = Weight(K, N, block_size, bits, zero_points)
        rep = onnx_torch.prepare(weight.model(x))
        assert "onnx_torch::packed_nbits" in names_of(rep)
        weight.check(rep.run([x])[0], x)


@on_each_cpu
@pytest.mark.parametrize("level", [0, 4])
@pytest.mark.parametrize("zero_points", [None, "packed"])
@pytest.mark.parametrize("bits", [2, 4, 8])
def test_on_each_kind_of_cpu(bits, zero_points, level, capability, tmp_path):
    weight = Weight(1100, 90, 32, bits, zero_points, bias=True, accuracy_level=level)
    x, *others = [rows_of(rows, 1100) for rows in (1, 3, 17)]
    model = weight.model(x)
    for i, other in enumerate(others):  # the same node once more
        node = model.graph.node.add()
        node.CopyFrom(model.graph.node[0])
        node.input[0], node.output[0] = f"other{i}", f"product{i}"
        model.graph.input.append(tensor_info(f"other{i}", other, other.shape))
        model.graph.output.add(name=f"product{i}")
    for y, given in zip(run_on_cpu(capability, model, [x, *others], tmp_path), [x, *others], strict=True):
        (weight.check_rounded if level == 4 else weight.check)(y, given)


@pytest.mark.parametrize("bits", [2, 4, 8])
@pytest.mark.parametrize("environment", [{"ONEDNN_MAX_CPU_ISA": "AVX512_CORE"}, {"ATEN_CPU_CAPABILITY": "avx2"}])
def test_sums_of_the_largest_numbers_without_vnni(environment, bits, tmp_path):
    """Sums of the largest numbers are right: they would saturate if too many were added in 16 bits."""
    weight = Weight(512, 40, 64, bits, "packed", accuracy_level=4)
    weight.B[:], weight.zero_points[:] = 255, 0
    weight.matrix = np.repeat(((1 << bits) - 1) * weight.scales.astype(np.float64), 64, axis=1).T
    x = np.ones((5, 512), np.float32)
    x[1], x[2, ::2] = -1, -1
    weight.check_rounded(run_apart(weight.model(x), [x], tmp_path, **environment)[0], x)


def test_what_is_not_finite_makes_its_row_nan_and_nothing_else():
    weight = Weight(96, 40, 32, 4, accuracy_level=4)
    x = rows_of(5, 96)
    x[1, 40], x[2, 0], x[3, 95] = np.inf, -np.inf, np.nan
    y = onnx_torch.prepare(weight.model(x)).run([x])[0]
    assert np.isnan(y[1:4]).all()
    weight.check_rounded(y[::4], x[::4])


def test_blocks_of_zeros_and_of_the_smallest_numbers():
    weight = Weight(96, 40, 32, 4, accuracy_level=4)
    x = rows_of(4, 96)
    x[0], x[1, 32:64], x[2], x[3, :32] = 0, 0, 1e-40, -1e-38
    y = onnx_torch.prepare(weight.model(x)).run([x])[0]
    assert (y[0] == 0).all() and (np.abs(y[2]) < 1e-36).all()
    weight.check_rounded(y[1::2], x[1::2])


@pytest.mark.parametrize("level", [0, 4])
@pytest.mark.parametrize("rows", [1, 40])
# The result is rounded, by half a unit in the last place; at level 4, x is rounded to 8 bits before.
@pytest.mark.parametrize("dtype, tolerance", [("float16", 2e-3), (ml_dtypes.bfloat16, 1e-2)])
def test_a_in_half_precision(dtype, tolerance, rows, level):
    weight = Weight(300, 67, 32, 4, "packed", bias=True, accuracy_level=level)
    x = rows_of(rows, 300).astype(dtype)
    inputs = [x, *weight.inputs(x)[1:]]
    inputs[2], inputs[5] = weight.scales.astype(dtype), weight.bias.astype(dtype)
    rep = onnx_torch.prepare(constant_model("MatMulNBits", inputs, **MICROSOFT, **weight.attributes))
    assert ("onnx_torch::packed_nbits_int8" if level == 4 else "onnx_torch::packed_nbits") in names_of(rep)
    truth = x.astype(np.float64) @ weight.matrix + weight.bias
    for _ in range(4):
        y = rep.run([x])[0]
        assert y.dtype == np.dtype(dtype) and y.shape == (rows, 67)
        assert np.abs(y.astype(np.float64) - truth).max() <= (tolerance + 0.02 * (level == 4)) * np.abs(truth).max()


def test_threads_change_no_bit():
    weight = Weight(1024, 3000, 32, 4, accuracy_level=4)
    for rows in (1, 40):
        x = rows_of(rows, 1024)
        one, two = (onnx_torch.prepare(weight.model(x), threads=threads).run([x])[0] for threads in (1, 2))
        np.testing.assert_array_equal(one, two)


def test_leading_dimensions_and_none_rows():
    weight = Weight(96, 40, 32, 4)
    for shape in [(96,), (2, 3, 96), (0, 96), (2, 0, 96)]:
        x = rows_of(*shape)
        rep = onnx_torch.prepare(weight.model(x))
        for _ in range(3):
            y = rep.run([x])[0]
        assert y.shape == (*shape[:-1], 40)
        if x.size:
            weight.check(y, x)


@pytest.mark.parametrize("level", [0, 4])
def test_a_plan_calls_the_kernel_by_memory_alone(level):
    weight = Weight(96, 40, 32, 4, accuracy_level=level)
    x = rows_of(2, 96)
    rep = onnx_torch.prepare(weight.model(x))
    for _ in range(3):
        rep.run([x])
    assert re.search(r"plan\b.*onnx_torch::packed_nbits", str(rep.plans()))


def test_what_the_operator_does_not_take_is_left_to_the_script():
    weight = Weight(96, 40, 32, 4)
    x = rows_of(2, 96)
    g_idx = (np.arange(96) // 32).astype(np.int32)
    grouped = constant_model("MatMulNBits", [*weight.inputs(x)[:4], g_idx], **MICROSOFT, **weight.attributes)
    run_time = op_model("MatMulNBits", weight.inputs(x)[:3], **MICROSOFT, **weight.attributes)
    for source, inputs, of in [
        (grouped, [x], weight),
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


@pytest.mark.parametrize("level", [0, 4])
def test_it_takes_about_the_memory_of_the_packed_weight(level, tmp_path):
    weight = Weight(4096, 8192, 32, 4, accuracy_level=level)
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


@pytest.mark.parametrize("level, layout", [(0, "weight:panels of bits"), (4, "weight:panels of unsigned bits")])
def test_a_saved_model_has_its_weight_laid_out(level, layout, tmp_path):
    weight = Weight(96, 40, 32, 4, "packed", accuracy_level=level)
    x = rows_of(2, 96)
    rep = onnx_torch.prepare(weight.model(x))
    rep.save(tmp_path / "model.bin")
    (layouts,) = rep._prepared.laid_weights
    assert [name for name, _ in layouts] == [layout]
    y = onnx_torch.load(tmp_path / "model.bin").run([x])[0]
    (weight.check_rounded if level == 4 else weight.check)(y, x)


def test_an_input_of_another_size_is_refused():
    weight = Weight(96, 40, 32, 4, "packed")
    model = op_model("MatMulNBits", weight.inputs(rows_of(2, 96)), **MICROSOFT, **weight.attributes)
    for name, value in zip(("x1", "x2", "x3"), weight.inputs(rows_of(2, 96))[1:4], strict=True):
        model.graph.initializer.append(numpy_helper.from_array(value, name))
    rep = onnx_torch.prepare(model)
    assert "onnx_torch::packed_nbits" in names_of(rep)
    with pytest.raises(onnx_torch.Error, match=r"sizes \[2, 95\] cannot be multiplied"):
        rep.run([rows_of(2, 95)])


# --- MatMulBnb4: codes of 4 bits, of each two the first in the higher bits ---

VALUES = {
    0: [0, 5.208333333e-03, 2 / 3, 1, 1 / 3, 1 / 2, 1 / 6, 1 / 4],
    1: [-1, -0.6961928, -0.52507305, -0.39491749, -0.28444138, -0.18477343, -0.09105004, 0]
    + [0.0795803, 0.1609302, 0.2461123, 0.33791524, 0.44070983, 0.562617, 0.72295684, 1],
}
VALUES[0] += [-value for value in VALUES[0]]


def coded(x: np.ndarray, N: int, block_size: int, quant_type: int) -> tuple[onnx.ModelProto, np.ndarray]:
    """Makes a product with random codes, and the matrix that they stand for."""
    random, K = np.random.default_rng(N + block_size), x.shape[-1]
    codes = random.integers(0, 16, N * K, dtype=np.uint8)
    scales = random.uniform(0.5, 2, -(-N * K // block_size)).astype(np.float32)
    attributes = dict(K=K, N=N, block_size=block_size, quant_type=quant_type)
    inputs = [x, codes[::2] << 4 | codes[1::2], scales.astype(x.dtype)]
    numbers = np.array(VALUES[quant_type])[codes] * np.repeat(inputs[2].astype(np.float64), block_size)[: N * K]
    return constant_model("MatMulBnb4", inputs, **MICROSOFT, **attributes), numbers.reshape(N, K).T


def check_coded(y: np.ndarray, x: np.ndarray, matrix: np.ndarray, tolerance: float = 1e-6) -> None:
    sizes = np.abs(x.astype(np.float64)) @ np.abs(matrix)
    assert y.dtype == x.dtype
    assert (np.abs(y.astype(np.float64) - x.astype(np.float64) @ matrix) <= tolerance * sizes).all()


@on_each_cpu
@pytest.mark.parametrize("quant_type", [0, 1])
@pytest.mark.parametrize("K, N, block_size", [(96, 67, 16), (192, 40, 64), (1024, 130, 256), (2048, 5, 1024)])
def test_codes_are_multiplied_as_they_are(K, N, block_size, quant_type, capability, tmp_path):
    for rows in (1, 4, 17):
        x = rows_of(rows, K)
        model, matrix = coded(x, N, block_size, quant_type)
        check_coded(run_on_cpu(capability, model, [x], tmp_path)[0], x, matrix)
        if block_size <= 256:  # onnxruntime takes no larger ones
            check_coded(onnxruntime_of(model, x), x, matrix)
        assert "onnx_torch::packed_nbits" in names_of(onnx_torch.prepare(model))


# The result is rounded, by half a unit in the last place.
@pytest.mark.parametrize("dtype, tolerance", [("float16", 1e-3), (ml_dtypes.bfloat16, 1e-2)])
def test_codes_and_rows_in_half_precision(dtype, tolerance):
    x = rows_of(3, 128).astype(dtype)
    model, matrix = coded(x, 40, 64, 1)
    rep = onnx_torch.prepare(model)
    assert "onnx_torch::packed_nbits" in names_of(rep)
    for _ in range(4):
        check_coded(rep.run([x])[0], x, matrix, tolerance)


@pytest.mark.parametrize("K, block_size", [(40, 16), (96, 64), (32, 4096)])
def test_blocks_of_codes_that_go_from_row_to_row_are_left_to_the_script(K, block_size):
    x = rows_of(3, K)
    model, matrix = coded(x, 8, block_size, 1)
    rep = onnx_torch.prepare(model)
    assert "onnx_torch::packed_nbits" not in names_of(rep)
    check_coded(rep.run([x])[0], x, matrix)


def test_a_saved_model_has_its_codes_laid_out(tmp_path):
    x = rows_of(2, 96)
    model, matrix = coded(x, 40, 32, 0)
    rep = onnx_torch.prepare(model)
    rep.save(tmp_path / "model.bin")
    (layouts,) = rep._prepared.laid_weights
    assert [name for name, _ in layouts] == ["weight:panels of unsigned bits"]
    check_coded(onnx_torch.load(tmp_path / "model.bin").run([x])[0], x, matrix)
