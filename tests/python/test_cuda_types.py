"""Element types that ATen's kernels for CUDA do not take, on a device that is pretended (pretended_cuda.py)."""

import numpy as np
import pytest
import torch
from onnx import parser

import onnx_torch
from pretended_cuda import DeviceTensor, PretendedCuda

pytestmark = pytest.mark.skipif(torch.cuda.is_available(), reason="a CUDA device is there, on which the suite runs")

INTEGERS = ["int32", "uint32", "int64", "uint64"]


def run(text, inputs, **options):
    model = parser.parse_model(f'<ir_version: 10, opset_import: ["": 22]> net {text}')
    with PretendedCuda():
        return onnx_torch.prepare(model, "CUDA:0", **options).run(inputs)


def integers(random, dtype, *shape):
    """Draws integers of all sizes, so that products wrap."""
    limits = np.iinfo(dtype)
    return random.integers(limits.min, limits.max, shape, dtype, endpoint=True) >> random.integers(
        0, limits.bits, shape
    ).astype(dtype)


def test_the_pretended_device_refuses_the_types_that_cuda_refuses():
    def on_device(dtype, *shape):
        return DeviceTensor(torch.ones(*shape, dtype=dtype), torch.device("cuda:0"))

    with PretendedCuda():
        for dtype in (torch.int32, torch.int64):
            for wrong in (
                lambda dtype=dtype: on_device(dtype, 2, 2) @ on_device(dtype, 2, 2),
                lambda dtype=dtype: on_device(dtype, 3, 2, 2) @ on_device(dtype, 3, 2, 2),
                lambda dtype=dtype: torch.einsum("ij,jk->ik", on_device(dtype, 2, 2), on_device(dtype, 2, 2)),
            ):
                with pytest.raises(NotImplementedError, match=f"not implemented for {{{dtype}}} on CUDA"):
                    wrong()
        for wrong in (
            lambda: torch.max_pool2d(on_device(torch.uint8, 1, 4, 4), 2),
            lambda: torch.conv1d(on_device(torch.uint8, 1, 1, 4), on_device(torch.uint8, 1, 1, 2)),
            lambda: on_device(torch.uint16, 2) == on_device(torch.uint16, 2),
        ):
            with pytest.raises(NotImplementedError, match=r"torch.uint"):
                wrong()
        assert (on_device(torch.float16, 2, 2) @ on_device(torch.float16, 2, 2)).cpu().tolist() == [[2, 2], [2, 2]]


@pytest.mark.parametrize("optimize", [True, False])
@pytest.mark.parametrize("dtype", INTEGERS)
@pytest.mark.parametrize(
    "shapes", [((3, 4), (4, 5)), ((4,), (4,)), ((2, 3, 4), (4,)), ((5, 1, 3, 4), (2, 4, 6)), ((3, 0), (0, 2))], ids=str
)
def test_matmul(shapes, dtype, optimize):
    random = np.random.default_rng(0)
    a, b = (integers(random, dtype, *shape) for shape in shapes)
    dims = [", ".join(f"{name}{i}" for i in range(x.ndim)) for name, x in (("a", a), ("b", b))]
    (y,) = run(f"({dtype}[{dims[0]}] a, {dtype}[{dims[1]}] b) => (y) {{ y = MatMul(a, b) }}", [a, b], optimize=optimize)
    assert y.dtype == dtype
    np.testing.assert_array_equal(y, a @ b)


@pytest.mark.parametrize("dtype", INTEGERS)
def test_matmul_of_many_terms(dtype):
    a, b = np.full((1, 70000), np.iinfo(dtype).max, dtype), np.full((70000, 1), np.iinfo(dtype).max - 1, dtype)
    (y,) = run(f"({dtype}[1, n] a, {dtype}[n, 1] b) => (y) {{ y = MatMul(a, b) }}", [a, b])
    np.testing.assert_array_equal(y, a @ b)


@pytest.mark.parametrize("dtype", INTEGERS)
def test_gemm(dtype):
    random = np.random.default_rng(0)
    a, b, c = integers(random, dtype, 4, 3), integers(random, dtype, 4, 5), integers(random, dtype, 5)
    text = f"""({dtype}[m, k] a, {dtype}[m, n] b, {dtype}[n] c) => (y) {{
        y = Gemm <alpha = 3.0, beta = 2.0, transA = 1> (a, b, c)
    }}"""
    (y,) = run(text, [a, b, c])
    np.testing.assert_array_equal(y, 3 * (a.T @ b) + 2 * c)


@pytest.mark.parametrize("dtype", ["int8", "uint16", *INTEGERS])
@pytest.mark.parametrize(
    ("equation", "shapes"),
    [
        ("ij,jk->ik", [(3, 4), (4, 5)]),
        ("bij , bjk", [(2, 3, 4), (2, 4, 5)]),
        ("...ij,...jk->...ik", [(2, 3, 4), (1, 4, 5)]),
        ("a...b,b...->a...", [(3, 2, 4), (4, 2)]),
        ("ij,kj,j->", [(3, 4), (5, 4), (4,)]),
        ("ij,jk->", [(300, 40), (40, 500)]),
        ("...i,...i", [(2, 3, 4), (2, 3, 4)]),
        ("ii,i->i", [(3, 3), (3,)]),
        ("ij->j", [(3, 4)]),
    ],
)
def test_einsum(equation, shapes, dtype):
    random = np.random.default_rng(0)
    operands = [integers(random, dtype, *shape) for shape in shapes]
    inputs = ", ".join(f"{dtype}[{', '.join(f'd{n}_{i}' for i in range(x.ndim))}] x{n}" for n, x in enumerate(operands))
    names = ", ".join(f"x{n}" for n in range(len(operands)))
    (y,) = run(f'({inputs}) => (y) {{ y = Einsum <equation = "{equation}"> ({names}) }}', operands)
    assert y.dtype == dtype
    np.testing.assert_array_equal(y, np.einsum(equation.replace(" ", ""), *operands))


@pytest.mark.parametrize("dtype", ["int8", "uint8"])
@pytest.mark.parametrize("rank", [1, 2, 3])
def test_max_pool(rank, dtype):
    random = np.random.default_rng(0)
    info = np.iinfo(dtype)
    x = random.integers(info.min, info.max, (2, 3, 9, 8, 7)[: rank + 2], dtype, endpoint=True)
    dims, kernel = ", ".join(f"d{i}" for i in range(rank + 2)), [3] * rank
    text = f"""({dtype}[{dims}] x) => (y, places) {{
        y, places = MaxPool <kernel_shape = {kernel}, pads = {[1] * 2 * rank}, strides = {[2] * rank}> (x)
    }}"""
    y, places = run(text, [x])
    model = parser.parse_model(f'<ir_version: 10, opset_import: ["": 22]> net {text}')
    expected = onnx_torch.prepare(model).run([x])
    np.testing.assert_array_equal(y, expected[0])
    np.testing.assert_array_equal(places, expected[1])
    np.testing.assert_array_equal(x.flatten()[places], y)
