"""Matrix products, Einsum and Det in what the official suite leaves open."""

import itertools

import ml_dtypes
import numpy as np
import onnx
import pytest

import onnx_torch
from models import assert_same, model_of, reference_op, run_op, tensor_info
from pass_models import assert_close

WIDE_INTEGERS = [np.int32, np.int64, np.uint32, np.uint64]
FLOATS = [np.float16, np.float32, np.float64, ml_dtypes.bfloat16]


def some(shape, dtype, seed=0) -> np.ndarray:
    return np.random.default_rng(seed).integers(-4, 5, shape).astype(np.float32).astype(dtype)


def large(shape, dtype, seed=0) -> np.ndarray:
    return np.random.default_rng(seed).integers(0, np.iinfo(dtype).max, shape, dtype)


@pytest.mark.parametrize("dtype", FLOATS)
@pytest.mark.parametrize(
    ("a", "b"),
    [((3,), (3,)), ((2, 3), (3,)), ((3,), (4, 3, 2)), ((4, 1, 2, 3), (5, 3, 2)), ((2, 0), (0, 3)), ((0, 2), (2, 3))],
)
def test_matrix_products(a, b, dtype):
    x, y = some(a, dtype), some(b, dtype, 1)
    expected = np.asarray(np.matmul(x.astype(np.float64), y.astype(np.float64))).astype(dtype)
    assert_same(run_op("MatMul", [x, y]), [expected])


@pytest.mark.parametrize("dtype", WIDE_INTEGERS)
def test_products_of_integers_wrap(dtype):
    a, b, c = large((2, 3), dtype), large((3, 4), dtype, 1), large((4,), dtype, 2)
    assert_same(run_op("MatMul", [a, b]), [a @ b])
    assert_same(run_op("Gemm", [a, b, c], alpha=2.0, beta=3.0), [(a @ b) * dtype(2) + c * dtype(3)])
    assert_same(run_op("Einsum", [a, b], equation="ij,jk->ki"), [(a @ b).T])


@pytest.mark.parametrize(("trans_a", "trans_b"), list(itertools.product((0, 1), repeat=2)))
@pytest.mark.parametrize("c", [None, (), (1,), (4,), (1, 4), (2, 1), (2, 4)])
def test_gemm(trans_a, trans_b, c):
    a, b = some((2, 3), np.float32), some((3, 4), np.float32, 1)
    added = [] if c is None else [some(c, np.float32, 2)]
    expected = 0.5 * (a @ b) + sum(2 * x for x in added)
    inputs = [a.T.copy() if trans_a else a, b.T.copy() if trans_b else b, *added]
    options = {"alpha": 0.5, "beta": 2.0, "transA": trans_a, "transB": trans_b}
    assert_same(run_op("Gemm", inputs, **options), [expected])
    if c is not None:
        assert_same(run_op("Gemm", inputs, opset=6, broadcast=1, **options), [expected])


@pytest.mark.parametrize("dtype", [np.int32, np.int64, np.uint32, np.uint64])
@pytest.mark.parametrize("with_c", [False, True])
def test_gemm_of_integers_under_a_fraction(dtype, with_c):
    low = 0 if np.issubdtype(dtype, np.unsignedinteger) else -9
    rng = np.random.default_rng(0)
    inputs = [rng.integers(low, 9, shape).astype(dtype) for shape in ((2, 3), (3, 4), (4,))][: 3 if with_c else 2]
    options = {"alpha": 0.3, "beta": 1.5}
    assert_same(run_op("Gemm", inputs, **options), reference_op("Gemm", inputs, **options))


@pytest.mark.parametrize("dtype", FLOATS)
def test_gemm_of_each_type(dtype):
    a, b, c = some((2, 3), dtype), some((3, 4), dtype, 1), some((4,), dtype, 2)
    wide = [x.astype(np.float64) for x in (a, b, c)]
    assert_same(run_op("Gemm", [a, b, c]), [(wide[0] @ wide[1] + wide[2]).astype(dtype)])


@pytest.mark.parametrize("dtype", [*WIDE_INTEGERS, np.int8, np.uint8, np.int16, np.uint16, *FLOATS[:3]])
@pytest.mark.parametrize(
    ("equation", "shapes"),
    [
        ("ij->i", [(2, 3)]),
        ("ij", [(2, 3)]),
        ("bA", [(2, 3)]),
        ("ii->i", [(3, 3)]),
        ("ii", [(3, 3)]),
        (" i j , j k -> k i ", [(2, 3), (3, 4)]),
        ("...ij,...jk->...ik", [(4, 2, 3), (3, 2)]),
        ("...i", [(2, 3)]),
        ("i,j,k->kij", [(2,), (3,), (4,)]),
        ("ij,->ij", [(2, 3), ()]),
        ("ij,ij->", [(0, 3), (0, 3)]),
    ],
)
def test_einsum(equation, shapes, dtype):
    small = [np.abs(some(shape, np.float32, i)).astype(dtype) for i, shape in enumerate(shapes)]
    expected = np.einsum(equation, *(x.astype(np.float64) for x in small))
    assert_same(run_op("Einsum", small, equation=equation), [np.asarray(expected).astype(dtype)])


# Equations that are products of matrices, or permutations: with one and more letters that are batch, rows, columns and
# summed, in all orders; sizes of one that are broadcast, and none.
PRODUCTS = [
    ("ibh,hnd->ibnd", [(3, 2, 5), (5, 4, 6)]),
    ("ibnd,hnd->ibh", [(3, 2, 4, 6), (5, 4, 6)]),
    ("ibnd,jbnd->bnij", [(3, 2, 4, 6), (5, 2, 4, 6)]),
    ("bnij,jbnd->ibnd", [(2, 4, 3, 5), (5, 2, 4, 6)]),
    ("ijbs,ibns->bnij", [(3, 5, 2, 4), (3, 2, 6, 4)]),
    ("bhwc,hkc->bhwk", [(2, 3, 4, 5), (3, 6, 5)]),
    ("bxyk,kbmn->xbmny", [(2, 3, 4, 5), (5, 2, 3, 2)]),
    ("nk,ik->in", [(3, 4), (5, 4)]),
    ("hnd,ibh->ibnd", [(5, 4, 6), (3, 2, 5)]),
    ("Ab, bC -> CA", [(2, 3), (3, 4)]),
    ("bik,bkj->bij", [(1, 2, 3), (4, 3, 2)]),
    ("bxik,bxkjl->bxijl", [(1, 5, 2, 3), (4, 1, 3, 2, 2)]),
    ("ik,kj->ij", [(2, 1), (3, 4)]),
    ("ikl,lkj->ij", [(2, 3, 1), (4, 1, 5)]),
    ("ik,kj->ij", [(2, 0), (0, 4)]),
    ("bik,bkjl->bijl", [(0, 2, 3), (0, 3, 2, 2)]),
    ("bijk,bkl->bijl", [(2, 0, 3, 4), (2, 4, 5)]),
    ("ijbn->bnij", [(2, 3, 4, 5)]),
    ("ij->ij", [(2, 3)]),
]


def einsum_of(equation, operands, sizes_of=lambda _operand, shape: shape):
    """Gives a model of one Einsum, by default of inputs whose sizes are known."""
    names = [f"x{i}" for i in range(len(operands))]
    element = onnx.helper.np_dtype_to_tensor_dtype(operands[0].dtype)
    inputs = [
        tensor_info(name, shape=sizes_of(i, x.shape), element=element)
        for i, (name, x) in enumerate(zip(names, operands, strict=True))
    ]
    node = onnx.helper.make_node("Einsum", names, ["y"], equation=equation)
    return model_of([node], inputs, [tensor_info("y", element=element)])


@pytest.mark.parametrize(("equation", "shapes"), PRODUCTS)
@pytest.mark.parametrize("dtype", FLOATS)
@pytest.mark.parametrize("sizes", ["known", "open", "none"])
def test_einsums_that_multiply_matrices(equation, shapes, dtype, sizes):
    operands = [some(shape, dtype, i) for i, shape in enumerate(shapes)]
    expected = np.einsum(equation.replace(" ", ""), *(x.astype(np.float64) for x in operands))
    sizes_of = {
        "known": lambda _operand, shape: shape,
        "open": lambda operand, shape: [f"d{operand}_{dim}" for dim in range(len(shape))],
        "none": lambda _operand, _shape: None,
    }
    rep = onnx_torch.prepare(einsum_of(equation, operands, sizes_of[sizes]))
    assert_same(rep.run(operands), [expected.astype(dtype)])
    if sizes == "known":
        assert "einsum" not in str(rep.graph())


@pytest.mark.parametrize("sizes", [True, False], ids=["known", "open"])
@pytest.mark.parametrize(
    ("equation", "shapes"),
    [
        ("ij,jk->ik", [(2, 3), (4, 5)]),
        ("bij,bjk->bik", [(2, 3, 4), (3, 4, 5)]),
        ("ij,jk->ik", [(2, 3, 4), (4, 5)]),
        ("ijk,kl->ijl", [(2, 3), (3, 4)]),
        ("ij->ji", [(2, 3, 4)]),
    ],
)
def test_an_einsum_of_sizes_that_do_not_fit_is_an_error(equation, shapes, sizes):
    operands = [some(shape, np.float32) for shape in shapes]
    known = (lambda _operand, shape: shape) if sizes else (lambda _operand, _shape: None)
    with pytest.raises(onnx_torch.Error, match="Einsum"):
        onnx_torch.prepare(einsum_of(equation, operands, known)).run(operands)


@pytest.mark.parametrize("dtype", FLOATS)
@pytest.mark.parametrize("shape", [(2, 2), (5, 3, 3), (2, 0, 0), (0, 2, 2), (1, 1)])
def test_determinants(shape, dtype):
    x = some(shape, dtype)
    exact = np.asarray(np.linalg.det(x.astype(np.float64)))
    (found,) = run_op("Det", [x])
    assert (found.dtype, found.shape) == (dtype, exact.shape)
    assert_close(found, exact)


@pytest.mark.parametrize("dtype", [np.float16, np.float32, np.float64])
@pytest.mark.parametrize("beta", [0.0, 3.0])
def test_gemm_multiplies_the_sums_by_an_infinite_alpha(dtype, beta):
    """A matrix that alpha is multiplied by before has NaN for its zeros."""
    a, b = np.array([[1, 2], [3, 4]], dtype), np.array([[1, 0], [0, -1]], dtype)
    c = np.array([[1, 2]], dtype)
    expected = dtype(-np.inf) * (a @ b)
    assert_same(run_op("Gemm", [a, b, c], alpha=-np.inf, beta=beta), [expected])


def test_gemm_ignores_c_where_beta_is_0():
    a, c = np.ones((2, 2), np.float32), np.full((2, 2), np.nan, np.float32)
    assert_same(run_op("Gemm", [a, a, c], beta=0.0), reference_op("MatMul", [a, a]))
