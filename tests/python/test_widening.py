"""The pass `halves`: what the CPU has no instructions for, as float16, is computed in float32 from end to end."""

from __future__ import annotations

import io
import re
import warnings
from collections.abc import Callable
from pathlib import Path

import numpy as np
import onnx
import onnxruntime
import pytest
import torch
from onnx import numpy_helper, parser
from torch import nn
from torch.nn import functional

import onnx_torch
from random_numbers import RNG

# --- Whole models -----------------------------------------------------------------------------------------------------


class RMSNorm(nn.Module):
    """RMSNorm as T5 has it: the mean is of float32, and the result of the weight's type."""

    def __init__(self, size: int):
        super().__init__()
        self.weight = nn.Parameter(torch.ones(size))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        mean = x.to(torch.promote_types(x.dtype, torch.float32)).pow(2).mean(-1, keepdim=True)
        return self.weight * (x * torch.rsqrt(mean + 1e-6)).to(self.weight.dtype)


def heads(x: torch.Tensor, count: int) -> torch.Tensor:
    return x.unflatten(-1, (count, -1)).transpose(1, 2)


class T5Layer(nn.Module):
    def __init__(self, size: int = 64, inner: int = 128):
        super().__init__()
        self.first, self.second = RMSNorm(size), RMSNorm(size)
        self.query, self.key, self.value, self.out = (nn.Linear(size, size, bias=False) for _ in range(4))
        self.wide, self.gate = (nn.Linear(size, inner, bias=False) for _ in range(2))
        self.narrow = nn.Linear(inner, size, bias=False)

    def forward(self, x: torch.Tensor, bias: torch.Tensor) -> torch.Tensor:
        y = self.first(x)
        scores = heads(self.query(y), 4) @ heads(self.key(y), 4).transpose(2, 3) + bias
        attended = torch.softmax(scores, -1) @ heads(self.value(y), 4)
        x = x + self.out(attended.transpose(1, 2).flatten(2))
        y = self.second(x)
        x = x + 8 * self.narrow(functional.gelu(self.wide(y), approximate="tanh") * self.gate(y))
        largest = torch.finfo(torch.float16).max
        return torch.clamp(x, -largest, largest) if torch.onnx.is_in_onnx_export() else x


class T5(nn.Module):
    """An encoder with relative positions and a mask of the lowest float16."""

    def __init__(self) -> None:
        super().__init__()
        self.words, self.positions = nn.Embedding(100, 64), nn.Embedding(32, 4)
        self.layers = nn.ModuleList(T5Layer() for _ in range(4))
        self.norm = RMSNorm(64)

    def forward(self, words: torch.Tensor, mask: torch.Tensor) -> torch.Tensor:
        places = torch.arange(words.shape[1])
        x = self.words(words)
        bias = self.positions((places[None] - places[:, None]).clamp(-15, 16) + 15).permute(2, 0, 1)[None]
        bias = bias + ((1 - mask.to(x.dtype)) * torch.finfo(torch.float16).min)[:, None, None, :]
        for layer in self.layers:
            x = layer(x, bias)
        return self.norm(x)


class GPT2Layer(nn.Module):
    def __init__(self, size: int = 64):
        super().__init__()
        self.first, self.second = nn.LayerNorm(size), nn.LayerNorm(size)
        self.attend, self.out = nn.Linear(size, 3 * size), nn.Linear(size, size)
        self.wide, self.narrow = nn.Linear(size, 4 * size), nn.Linear(4 * size, size)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        query, key, value = (heads(t, 4) for t in self.attend(self.first(x)).split(x.shape[2], 2))
        scores = query @ key.transpose(2, 3) / 4
        seen = torch.tril(torch.ones(x.shape[1], x.shape[1], dtype=torch.bool))
        scores = torch.where(seen, scores, torch.full([], torch.finfo(torch.float16).min, dtype=x.dtype))
        x = x + self.out((torch.softmax(scores, -1) @ value).transpose(1, 2).flatten(2))
        y = self.wide(self.second(x))
        return x + self.narrow(0.5 * y * (1 + torch.tanh(0.7978845608 * (y + 0.044715 * torch.pow(y, 3)))))


class GPT2(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.words, self.places = nn.Embedding(100, 64), nn.Embedding(16, 64)
        self.layers = nn.Sequential(*[GPT2Layer() for _ in range(3)])
        self.norm = nn.LayerNorm(64)

    def forward(self, words: torch.Tensor) -> torch.Tensor:
        x = self.words(words) + self.places(torch.arange(words.shape[1]))
        return self.norm(self.layers(x)) @ self.words.weight.T


def convolution(given: int, made: int, kernel: int, *after: nn.Module, **options: int) -> nn.Sequential:
    norm = nn.BatchNorm2d(made)
    norm.running_mean.normal_(0, 0.1)
    norm.running_var.uniform_(0.5, 1.5)
    return nn.Sequential(nn.Conv2d(given, made, kernel, padding=kernel // 2, bias=False, **options), norm, *after)


class Residual(nn.Module):
    """The sum of the steps' result and what they are given, and then perhaps another step."""

    def __init__(self, steps: nn.Module, after: nn.Module | None = None):
        super().__init__()
        self.steps, self.after = steps, after or nn.Identity()

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.after(x + self.steps(x))


def mobilenet() -> nn.Module:
    def block() -> nn.Module:
        wide = convolution(16, 64, 1, nn.ReLU6()), convolution(64, 64, 3, nn.ReLU6(), groups=64)
        return Residual(nn.Sequential(*wide, convolution(64, 16, 1)))

    end = nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(16, 10)
    return nn.Sequential(convolution(3, 16, 3, nn.Hardswish(), stride=2), *[block() for _ in range(4)], *end)


def resnet() -> nn.Module:
    def block() -> nn.Module:
        return Residual(nn.Sequential(convolution(16, 16, 3, nn.ReLU()), convolution(16, 16, 3)), nn.ReLU())

    start = convolution(3, 16, 7, nn.ReLU(), stride=2), nn.MaxPool2d(3, 2, 1)
    return nn.Sequential(*start, *[block() for _ in range(4)], nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(16, 10))


class UNet(nn.Module):
    def __init__(self, size: int = 16) -> None:
        super().__init__()

        def part(given: int, made: int) -> nn.Sequential:
            return nn.Sequential(nn.GroupNorm(4, given), nn.SiLU(), nn.Conv2d(given, made, 3, padding=1))

        self.start, self.smaller = nn.Conv2d(4, size, 3, padding=1), nn.Conv2d(size, size, 3, 2, 1)
        self.down, self.middle = part(size, size), Residual(part(size, size))
        self.up, self.end = part(2 * size, size), part(size, 4)
        self.time = nn.Sequential(nn.Linear(size, size), nn.SiLU(), nn.Linear(size, size))

    def forward(self, x: torch.Tensor, time: torch.Tensor) -> torch.Tensor:
        angles = time[:, None] * torch.exp(torch.arange(8, dtype=x.dtype) * -0.5)
        at = self.time(torch.cat([angles.sin(), angles.cos()], 1))[:, :, None, None]
        x = self.start(x) + at
        low = self.middle(self.down(self.smaller(x)))
        high = functional.interpolate(low, scale_factor=2.0, mode="nearest")
        return self.end(self.up(torch.cat([high, x], 1)))


class Lstm(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.layers, self.labels = nn.LSTM(20, 32, 2, bidirectional=True), nn.Linear(64, 10)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return torch.log_softmax(self.labels(self.layers(x)[0]), -1)


WORDS = np.random.default_rng(0).integers(0, 100, (2, 16))
MASK = np.array([[1] * 16, [1] * 10 + [0] * 6])
MODELS: dict[str, tuple[Callable[[], nn.Module], list[np.ndarray]]] = {
    "T5": (T5, [WORDS, MASK]),
    "GPT-2": (GPT2, [WORDS]),
    "MobileNet": (mobilenet, [np.random.default_rng(1).standard_normal((1, 3, 32, 32))]),
    "ResNet": (resnet, [np.random.default_rng(2).standard_normal((1, 3, 32, 32))]),
    "UNet": (UNet, [np.random.default_rng(3).standard_normal((1, 4, 16, 16)), np.array([7.0])]),
    "LSTM": (Lstm, [np.random.default_rng(4).standard_normal((12, 1, 20))]),
}


def exported(module: nn.Module, inputs: list[torch.Tensor]) -> bytes:
    file = io.BytesIO()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        names = [f"x{i}" for i in range(len(inputs))]
        torch.onnx.export(module, tuple(inputs), file, dynamo=False, input_names=names, opset_version=17)
    return file.getvalue()


@pytest.mark.parametrize("name", MODELS)
def test_models_are_as_exact_as_in_onnxruntime(name: str):
    """The results differ from those of float64, with the same weights, by no more."""
    make, inputs = MODELS[name]
    torch.manual_seed(0)
    module = make().eval().half()
    given = [torch.from_numpy(x) for x in inputs]
    halves = [x.half() if x.is_floating_point() else x for x in given]
    source = exported(module, halves)
    with torch.no_grad():
        exact = module.double()(*[x.double() if x.is_floating_point() else x for x in halves]).numpy()
    feeds = {f"x{i}": x.numpy() for i, x in enumerate(halves)}
    [ours] = onnx_torch.prepare(source).run(feeds)
    [theirs] = onnxruntime.InferenceSession(source, providers=["CPUExecutionProvider"]).run(None, feeds)
    assert ours.dtype == np.float16
    rounding = np.spacing(np.abs(exact).max().astype(np.float16))
    assert np.abs(ours - exact).max() <= np.abs(theirs - exact).max() + rounding


# --- The pass ---------------------------------------------------------------------------------------------------------


def model(text: str, **weights: np.ndarray) -> onnx.ModelProto:
    parsed = parser.parse_model(f'<ir_version: 10, opset_import: ["": 23]> net {text}')
    for name, value in weights.items():
        parsed.graph.initializer.append(numpy_helper.from_array(value, name))
    return parsed


def halves(*sizes: int) -> np.ndarray:
    return RNG.standard_normal(sizes).astype(np.float16)


def steps(source: onnx.ModelProto) -> list[str]:
    """Lists the operators after the pass."""
    return re.findall(r"= ((?:aten|onnx_torch)::\w+)", onnx_torch.prepare(source).graphs()["halves"])


def test_values_are_rounded_where_they_leave():
    source = model(
        "(float16[4, 4] x) => (float16[4, 4] y) { a = Exp(x) b = Add(a, x) c = Sqrt(b) y = MatMul(c, w) }",
        w=halves(4, 4),
    )
    assert steps(source) == ["aten::to", "aten::exp", "aten::add", "aten::sqrt", "aten::matmul", "aten::to"]
    x = np.abs(halves(4, 4))
    w, wide = numpy_helper.to_array(source.graph.initializer[0]).astype(np.float64), x.astype(np.float64)
    expected = (np.sqrt(np.exp(wide) + wide) @ w).astype(np.float16)
    np.testing.assert_array_max_ulp(onnx_torch.prepare(source).run([x])[0], expected, 1)


def test_what_float16_cannot_hold_goes_on():
    source = model(
        "(float16[1, 2] x, float16[1, 2] h) => (float16[1, 2] y) { a = Add(x, x) b = Mul(a, h) y = MatMul(b, w) }",
        w=np.eye(2, dtype=np.float16),
    )
    x, h = np.float16([[60000, -60000]]), np.float16([[0.5, 2]])
    np.testing.assert_array_equal(onnx_torch.prepare(source).run([x, h])[0], np.float16([[60000, -np.inf]]))


def test_a_cast_of_the_models_rounds():
    source = model(
        "(float[4, 4] x) => (float[4, 4] z) "
        "{ a = Cast<to = 10>(x) b = Mul(a, a) y = MatMul(b, w) z = Cast<to = 1>(y) }",
        w=np.eye(4, dtype=np.float16),
    )
    assert steps(source) == ["onnx_torch::rounded", "aten::mul", "aten::matmul"]
    x = RNG.standard_normal((4, 4)).astype(np.float32)
    rounded = x.astype(np.float16).astype(np.float32)
    np.testing.assert_array_equal(onnx_torch.prepare(source).run([x])[0], rounded * rounded)


def test_what_is_only_moved_stays():
    source = model(
        "(float16[2, 3] x, float16[2, 3] z) => (float16[3, 2] y, float16[2, 4] p) "
        "{ y = Transpose(x) p = MatMul(z, w) }",
        w=halves(3, 4),
    )
    assert steps(source).count("aten::to") == 2  # of the product
    x = halves(2, 3)
    np.testing.assert_array_equal(onnx_torch.prepare(source).run([x, x])[0], x.T)


def test_without_weights_each_product_rounds():
    """Each such product rounds, as ONNX's own cases of its functions expect."""
    source = model("(float16[2, 2] x) => (float16[2, 2] y) { a = MatMul(x, x) b = MatMul(a, x) y = Exp(b) }")
    assert steps(source) == [
        "aten::to",
        "aten::matmul",
        "onnx_torch::rounded",
        "aten::matmul",
        "aten::to",
        "aten::exp",
    ]


def test_rows_of_a_table_are_widened_not_the_table():
    source = model("(int64[3] i) => (float16[3, 4] y) { a = Gather(w, i) y = Exp(a) }", w=halves(10, 4))
    assert steps(source)[-3:] == ["aten::to", "aten::exp", "aten::to"]


def test_inside_of_branches_and_loops():
    source = model(
        "(float16[1, 4] x, bool b) => (float16[1, 4] y) {"
        " a = Exp(x)"
        " y = If(b)<then_branch = t () => (float16[1, 4] p) { c = Add(a, x) p = Sqrt(c) },"
        "           else_branch = e () => (float16[1, 4] q) { d = Mul(a, x) q = Mul(d, w) }> }",
        w=halves(1, 4),
    )
    x = np.abs(halves(1, 4))
    rep, wide = onnx_torch.prepare(source), x.astype(np.float32)
    w = numpy_helper.to_array(source.graph.initializer[0]).astype(np.float32)
    for branch, expected in [(True, np.sqrt(np.exp(wide) + wide)), (False, np.exp(wide) * wide * w)]:
        found = rep.run([x, np.array(branch)])[0]
        assert found.dtype == np.float16
        np.testing.assert_array_max_ulp(found, expected.astype(np.float16), 1)
    source = model(
        "(float16[1, 4] x) => (float16[1, 4] y) { n = Constant<value_int = 3>() "
        "y = Loop(n, , x)<body = l (int64 i, bool c, float16[1, 4] s) => (bool d, float16[1, 4] t) "
        "{ d = Identity(c) u = Mul(s, s) v = Add(u, x) r = Sqrt(v) t = MatMul(r, w) }> }",
        w=np.eye(4, dtype=np.float16),
    )
    found, expected = onnx_torch.prepare(source).run([x])[0], x.astype(np.float64)
    for _ in range(3):
        expected = np.sqrt(expected * expected + x)
    np.testing.assert_allclose(found, expected, rtol=2**-10)


# --- Weights that stay in float16 -------------------------------------------------------------------------------------


def exact(x: np.ndarray, w: np.ndarray) -> np.ndarray:
    return x.astype(np.float64) @ w.astype(np.float64)


def assert_close(found: np.ndarray, expected: np.ndarray):
    np.testing.assert_allclose(found, expected, rtol=0, atol=2e-6 * np.abs(expected).max())


@pytest.mark.parametrize("out", [512, 1000])  # whole groups of columns, and not
@pytest.mark.parametrize("rows", [1, 2, 5, 6, 7, 100])
def test_products_with_a_large_weight(rows: int, out: int):
    """The result is cast to float32, and so not rounded."""
    text = f"(float16[N, 520] x) => (float[N, {out}] z) {{ a = MatMul(x, w) y = Add(a, b) z = Cast<to = 1>(y) }}"
    w, b, x = halves(520, out), halves(out), halves(rows, 520)
    rep = onnx_torch.prepare(model(text, w=w, b=b))
    assert str(rep.graph()).count("onnx_torch::packed") == 1
    assert "aten::add" not in str(rep.graph())
    expected = exact(x, w) + b
    for given in x, x[:1], x:  # one row and several by one layout
        assert_close(rep.run([given])[0], expected[: len(given)])


def test_gemm_with_a_large_transposed_weight():
    text = "(float16[3, 520] x) => (float[3, 600] z) { y = Gemm<transB = 1>(x, w, b) s = Relu(y) z = Cast<to = 1>(s) }"
    w, b, x = halves(600, 520), halves(600), halves(3, 520)
    [found] = onnx_torch.prepare(model(text, w=w, b=b)).run([x])
    assert_close(found, np.maximum(exact(x, w.T) + b, 0))


def resident() -> int:
    """Gives the bytes that are the process's own."""
    status = Path("/proc/self/status").read_text()
    return int(re.search(r"RssAnon:\s*(\d+)", status)[1]) << 10


@pytest.mark.parametrize("rows", [1, 40])
def test_a_large_weight_takes_the_memory_of_float16(rows: int, tmp_path: Path):
    """A laid weight takes the memory of float16, for one row as for many."""
    size = 4096
    source = model(f"(float16[N, {size}] x) => (float16[N, {size}] y) {{ y = MatMul(x, w) }}", w=halves(size, size))
    onnx.save(source, tmp_path / "model.onnx")
    del source
    before = resident()
    rep = onnx_torch.prepare(tmp_path / "model.onnx")
    rep.run([halves(rows, size)])
    assert resident() - before < 1.5 * 2 * size * size


def test_float32_weights_are_kept_where_float16_cannot_hold_them():
    w = RNG.standard_normal((520, 512)).astype(np.float32)
    w[519, 511] = np.float32(1e-8)
    infinite = halves(520, 512).astype(np.float32)
    infinite[3, 4] = np.inf
    x = RNG.standard_normal((1, 520)).astype(np.float32)
    for weight in w, infinite:
        source = model("(float[1, 520] x) => (float[1, 512] y) { y = MatMul(x, w) }", w=weight)
        found = onnx_torch.prepare(source).run([x])[0]
        exact = x.astype(np.float64) @ weight
        finite = np.isfinite(exact)
        np.testing.assert_array_equal(found[~finite], exact[~finite])
        assert_close(found[finite], exact[finite])


def test_inputs_that_do_not_fit_are_refused():
    rep = onnx_torch.prepare(model("(float16[N, M] x) => (float16[N, 512] y) { y = MatMul(x, w) }", w=halves(520, 512)))
    assert rep.run([halves(0, 520)])[0].shape == (0, 512)
    with pytest.raises(onnx_torch.Error, match="MatMul"):
        rep.run([halves(2, 519)])


def test_a_table_stays_in_float16_beside_a_product_with_it():
    source = model(
        "(int64[3] i, float16[3, 600] z) => (float16[3, 512] y) { p = MatMul(z, w) a = Gather(w, i) y = Add(a, p) }",
        w=halves(600, 512),
    )
    assert "aten::index_select" in steps(source) or "onnx_torch::gather" in steps(source)
    i, z = np.array([3, 0, 599]), halves(3, 600)
    w = numpy_helper.to_array(source.graph.initializer[0])
    found = onnx_torch.prepare(source).run([i, z])[0]
    np.testing.assert_allclose(found, exact(z, w) + w[i], rtol=2**-10, atol=2**-10)


def test_a_large_weight_is_saved_as_it_lies(tmp_path: Path):
    source = model("(float16[1, 520] x) => (float16[1, 600] y) { y = MatMul(x, w) }", w=halves(520, 600))
    x = halves(1, 520)
    rep = onnx_torch.prepare(source)
    expected = rep.run([x])[0]
    rep.save(tmp_path / "kept")
    np.testing.assert_array_equal(onnx_torch.load(tmp_path / "kept").run([x])[0], expected)
