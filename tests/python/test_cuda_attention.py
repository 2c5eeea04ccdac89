"""Attention on CUDA by ATen's operator: on a GPU, or else on a device that is pretended (pretended_cuda.py)."""

from __future__ import annotations

import contextlib
from typing import Any

import ml_dtypes
import numpy as np
import onnx
import pytest
import torch
from onnx import numpy_helper, parser

import onnx_torch
from models import op_model
from pretended_cuda import PretendedCuda
from random_numbers import RNG

ON_GPU = torch.cuda.is_available()
FUSED = "onnx_torch::scaled_dot_product_attention"
LOW = np.finfo(np.float32).min
SHAPES = {"q": (2, 3, 16, 8), "k": (2, 3, 24, 8), "v": (2, 3, 24, 8)}
KEYS = "kt = Transpose<perm = [0, 1, 3, 2]>(k)"
GUARD = "n = IsNaN(w) g = Where(n, zero, w) y = MatMul(g, v)"


def by_the_kernel(
    query: torch.Tensor,
    key: torch.Tensor,
    value: torch.Tensor,
    mask: torch.Tensor | None,
    dropout: float,
    is_causal: bool,
    *,
    scale: float | None,
    enable_gqa: bool,
) -> torch.Tensor:
    """Computes what the memory-efficient kernel's source does: powers of 2, zeros in a row whose exponents overflow."""
    heads = query.size(1) // key.size(1) if enable_gqa else 1
    key, value = (x.float().repeat_interleave(heads, 1) for x in (key, value))
    scores = query.float() @ key.mT * (query.size(-1) ** -0.5 if scale is None else scale)
    if is_causal:
        mask = torch.ones(scores.shape[-2:], dtype=torch.bool).tril()
    if mask is not None:
        scores = torch.where(mask, scores, -torch.inf) if mask.dtype == torch.bool else scores + mask.float()
    hidden = scores * np.float32(np.log2(np.e)).item() == -torch.inf
    powers = torch.exp(scores - scores.amax(-1, keepdim=True)).masked_fill(hidden, 0)
    sums = powers.sum(-1, keepdim=True)
    return torch.where(sums == 0, 0, powers @ value / sums).to(query.dtype)


class Device(PretendedCuda):
    """A device that keeps what ATen is told to do there, and computes attention as its kernel there does."""

    def __init__(self) -> None:
        super().__init__()
        self.called: list[str] = []

    def _check(self, func: Any, name: str, *args: Any) -> None:
        self.called.append(name)
        super()._check(func, name, *args)

    def _compute(self, func: Any, args: Any, kwargs: Any, place: torch.device | None) -> Any:
        if func is not torch.ops.aten.scaled_dot_product_attention.default or args[0].dtype == torch.float64:
            return super()._compute(func, args, kwargs, place)
        all_args, all_kwargs = (*args, None, 0.0, False)[:6], {"scale": None, "enable_gqa": False} | kwargs
        return super()._compute(by_the_kernel, all_args, all_kwargs, place)


def model(body: str, arrays: dict[str, np.ndarray], symbolic: bool = False) -> onnx.ModelProto:
    kinds = {"float32": "float", "float64": "double"}

    def dims(name: str, x: np.ndarray) -> str:
        return ", ".join(f"{name}{i}" if symbolic else str(size) for i, size in enumerate(x.shape))

    inputs = ", ".join(f"{kinds.get(x.dtype.name, x.dtype.name)}[{dims(name, x)}] {name}" for name, x in arrays.items())
    found = parser.parse_model(f'<ir_version: 10, opset_import: ["": 22]> net ({inputs}) => (y) {{ {body} }}')
    dtype = arrays["q"].dtype
    constants = {"zero": 0, "half": 0.5, "minus": -0.5, "eight": 8}
    for name, value in constants.items():
        found.graph.initializer.append(numpy_helper.from_array(np.asarray(value, dtype), name))
    return found


def tensors(dtype: Any = np.float32, **shapes: tuple[int, ...]) -> dict[str, np.ndarray]:
    return {name: RNG.standard_normal(shape).astype(dtype) for name, shape in (SHAPES | shapes).items()}


def check(
    body: str, arrays: dict[str, np.ndarray], fused: bool = True, tolerance: float = 1e-5, symbolic: bool = False
) -> None:
    """Compares a run on the device with one of the model's own steps on the CPU."""
    source, inputs = model(body, arrays, symbolic), list(arrays.values())
    with contextlib.nullcontext() if ON_GPU else Device() as device:
        rep = onnx_torch.prepare(source, "CUDA:0")
        assert FUSED in rep.graphs()["attention"]
        (found,) = rep.run(inputs)
    if device:
        assert ("aten::scaled_dot_product_attention" in device.called) == fused
    (expected,) = onnx_torch.prepare(source, optimize=False).run(inputs)
    assert found.dtype == expected.dtype
    np.testing.assert_allclose(found, expected, rtol=tolerance, atol=tolerance)


WRITTEN = {
    "plain": f"{KEYS} s = MatMul(q, kt) w = Softmax(s) y = MatMul(w, v)",
    "scaled": f"{KEYS} s = MatMul(q, kt) d = Div(s, eight) w = Softmax(d) y = MatMul(w, v)",
    "scaled before": f"{KEYS} a = Mul(q, half) b = Mul(kt, half) s = MatMul(a, b) w = Softmax(s) y = MatMul(w, v)",
    "guarded": f"{KEYS} s = MatMul(q, kt) w = Softmax(s) {GUARD}",
}


@pytest.mark.parametrize("symbolic", [False, True])
@pytest.mark.parametrize("name", WRITTEN)
def test_without_a_mask(name: str, symbolic: bool) -> None:
    check(WRITTEN[name], tensors(), symbolic=symbolic)


def test_heads_without_a_batch() -> None:
    body = "kt = Transpose<perm = [0, 2, 1]>(k) s = MatMul(q, kt) m = Add(s, mask) w = Softmax(m) y = MatMul(w, v)"
    arrays = tensors(q=(6, 16, 8), k=(6, 24, 8), v=(6, 24, 8), mask=(6, 1, 24))
    check(body, arrays)


def test_bfloat16() -> None:
    # The CPU's steps round scores, weights and results to bfloat16 each, by up to 2**-8 of them.
    check(WRITTEN["scaled"], tensors(ml_dtypes.bfloat16), tolerance=2e-2)


def check_operator(
    inputs: list[np.ndarray | None], fused: bool = True, tolerance: float = 1e-5, **options: Any
) -> None:
    """Compares ONNX's operator on the device with the CPU's, which goes step by step, as it gives the fourth output."""
    given = [x for x in inputs if x is not None]
    with contextlib.nullcontext() if ON_GPU else Device() as device:
        found = onnx_torch.prepare(op_model("Attention", inputs, 24, **options), "CUDA:0", optimize=False).run(given)
    if device:
        assert ("aten::scaled_dot_product_attention" in device.called) == fused
    expected = onnx_torch.prepare(op_model("Attention", inputs, 24, outputs=4, **options)).run(given)
    assert found[0].dtype == expected[0].dtype
    np.testing.assert_allclose(found[0], expected[0], rtol=tolerance, atol=tolerance)


@pytest.mark.parametrize("is_causal", [0, 1])
@pytest.mark.parametrize("dtype", [np.float32, ml_dtypes.bfloat16], ids=["float32", "bfloat16"])
@pytest.mark.parametrize("hidden", [-np.inf, "the lowest number", False], ids=str)
@pytest.mark.parametrize("shape", [(2, 3, 16, 24), (2, 1, 1, 24), (16, 24)], ids=str)
def test_masks_of_the_operator(shape: tuple[int, ...], hidden: Any, dtype: Any, is_causal: int) -> None:
    """A mask may hide some elements of each row, and of one row all."""
    mask = RNG.standard_normal(shape).astype(dtype) if hidden is not False else np.ones(shape, bool)
    number = ml_dtypes.finfo(dtype).min if isinstance(hidden, str) else hidden
    mask[RNG.random(shape) < 0.3] = number
    mask.reshape(-1, 24)[0] = number
    inputs = [*tensors(dtype).values(), mask]
    # The CPU's steps round scores, weights and results to bfloat16 each, by up to 2**-8 of them.
    check_operator(inputs, tolerance=1e-5 if dtype == np.float32 else 2e-2, is_causal=is_causal)


def test_masks_whose_numbers_do_not_overflow() -> None:
    double, half = (RNG.standard_normal((16, 24)).astype(dtype) for dtype in (np.float64, np.float16))
    for mask in (double, half):
        mask[1, ::2] = mask[2] = -np.inf
    double[0] = np.finfo(np.float64).min
    double[3, 0] = -1e300
    double[3, 1:] = -2e300
    check_operator([*tensors(np.float64).values(), double])
    softmax_precision = onnx.TensorProto.FLOAT
    # Scores and results are rounded to float16, by up to 2**-11 of them.
    check_operator([*tensors(np.float16).values(), half], tolerance=2e-3, softmax_precision=softmax_precision)


@pytest.mark.parametrize("heads", [3, 6])
def test_the_operator_without_a_mask(heads: int) -> None:
    check_operator(list(tensors(q=(2, heads, 16, 8)).values()), scale=0.3)


@pytest.mark.parametrize("name", ["rows that begin anywhere", "no batches", "no keys"])
@pytest.mark.parametrize("masked", [False, True])
def test_sizes_that_keep_the_operators_products(name: str, masked: bool) -> None:
    shapes = {"mask": (16, 24)} | KEPT[name] if masked else {k: v for k, v in KEPT[name].items() if k != "mask"}
    check_operator(list(tensors(**shapes).values()), fused=False)


# The values by which a mask hides some of each row, and those by which it hides one row whole.
HIDDEN = {
    "by minus infinity": (-np.inf, -np.inf),
    "by the lowest number": (LOW, LOW),
    "by both": (LOW, -np.inf),
    "by a large number": (-1e4, -1e4),
    "all the same": (-np.inf, LOW),
}


@pytest.mark.parametrize("guarded", [False, True])
@pytest.mark.parametrize("shape", [(2, 3, 16, 24), (2, 1, 1, 24), (1, 1, 16, 24), (3, 1, 24), (16, 24), (24,)], ids=str)
@pytest.mark.parametrize("hidden", HIDDEN)
def test_masks(hidden: str, shape: tuple[int, ...], guarded: bool) -> None:
    some, all_of_a_row = HIDDEN[hidden]
    mask = RNG.standard_normal(shape).astype(np.float32)
    mask[RNG.random(shape) < 0.3] = some
    mask.reshape(-1, 24)[0] = all_of_a_row
    if hidden == "by both":
        mask.reshape(-1, 24)[0, ::2] = some
    end = GUARD if guarded else "y = MatMul(w, v)"
    body = f"{KEYS} s = MatMul(q, kt) m = Add(s, mask) w = Softmax(m) {end}"
    # Scores of some -1e4 are rounded to multiples of 2^-10, in another way by each kernel: the softmax of a row of them
    # is so far from another's.
    rounded = ON_GPU and hidden == "by a large number"
    check(body, {**tensors(), "mask": mask}, tolerance=2**-10 if rounded else 1e-5)


def test_a_mask_is_made_once_for_all_that_use_it() -> None:
    layer = "s{0} = MatMul(q, kt) m{0} = Add(s{0}, mask) w{0} = Softmax(m{0}) o{0} = MatMul(w{0}, v) "
    body = f"{KEYS} {layer.format(0)} {layer.format(1)} y = Add(o0, o1)"
    arrays = tensors(mask=(1, 1, 16, 24))
    with Device():
        graph = onnx_torch.prepare(model(body, arrays), "CUDA:0", disabled_passes=["fold"]).graphs()["attention"]
    assert (graph.count("onnx_torch::attention_mask"), graph.count(FUSED)) == (1, 2)
    check(body, arrays)


def test_what_the_kernels_get_for_a_mask() -> None:
    with Device():
        onnx_torch.prepare(model(WRITTEN["plain"], tensors()), "CUDA:0")  # registers the operator
    inf, nan = torch.inf, torch.nan
    mask = torch.tensor([[0, -inf, 1], [-inf, -inf, -inf], [LOW, LOW, -inf], [-1e4, -1e30, 0]])
    for without_nan in (False, True):
        made = torch.ops.onnx_torch.attention_mask(mask, without_nan)
        row = [-inf] * 3 if without_nan else [nan] * 3
        expected = torch.tensor([[0, -inf, 1], row, [LOW / 2, LOW / 2, -inf], [-1e4, -1e30, 0]])
        torch.testing.assert_close(made, expected, rtol=0, atol=0, equal_nan=True)
        assert not torch.isinf(made[2, :2] * np.log2(np.e)).any()


# The graph does not know these sizes; a run that has them computes the products.
KEPT = {
    "heads that are one for all": {"k": (2, 1, 24, 8), "v": (2, 1, 24, 8)},
    "batches that are one for all": {"q": (1, 3, 16, 8)},
    "a mask that makes more rows": {"q": (2, 3, 1, 8), "mask": (2, 3, 16, 24)},
    "a mask that makes more batches": {"mask": (2, 1, 1, 16, 24)},
    "a mask of one number a row": {"mask": (2, 3, 16, 1)},
    "rows that begin anywhere": {"q": (2, 3, 16, 7), "k": (2, 3, 24, 7), "v": (2, 3, 24, 7)},
    "no batches": {"q": (0, 3, 16, 8), "k": (0, 3, 24, 8), "v": (0, 3, 24, 8), "mask": (1, 3, 16, 24)},
    "no keys": {"k": (2, 3, 0, 8), "v": (2, 3, 0, 8), "mask": (2, 3, 16, 0)},
}


@pytest.mark.parametrize("name", KEPT)
def test_sizes_that_keep_the_products(name: str) -> None:
    body = f"{KEYS} s = MatMul(q, kt) m = Add(s, mask) w = Softmax(m) {GUARD}"
    arrays = tensors(**({"mask": (2, 3, 16, 24)} | KEPT[name]))
    check(body, arrays, fused=False)


KEPT_IN_THE_GRAPH = ["double", "float16", "bfloat16 with a mask", "a scale below zero", "switched off"]


@pytest.mark.parametrize("name", KEPT_IN_THE_GRAPH)
def test_what_stays_two_products(name: str) -> None:
    dtype = {"double": np.float64, "float16": np.float16, "bfloat16": ml_dtypes.bfloat16}.get(name.split()[0])
    masked = "m = Add(d, mask) w = Softmax(m)" if "mask" in name else "w = Softmax(d)"
    scale = "minus" if "below" in name else "half"
    body = f"{KEYS} s = MatMul(q, kt) d = Mul(s, {scale}) {masked} y = MatMul(w, v)"
    arrays = tensors(dtype or np.float32, **({"mask": (2, 3, 16, 24)} if "mask" in name else {}))
    source, inputs = model(body, arrays), list(arrays.values())
    with contextlib.nullcontext() if ON_GPU else Device():
        rep = onnx_torch.prepare(source, "CUDA:0", disabled_passes=["attention"] if name == "switched off" else [])
        assert not any(FUSED in graph for graph in rep.graphs().values())
        (found,) = rep.run(inputs)
    (expected,) = onnx_torch.prepare(source, optimize=False).run(inputs)
    # Each step rounds to the type, on the device and on the CPU: by up to 2**-11 and 2**-8 of what it gives.
    tolerance = {np.float16: 2e-3, ml_dtypes.bfloat16: 2e-2}.get(dtype, 1e-5)
    np.testing.assert_allclose(found, expected, rtol=tolerance, atol=tolerance)
