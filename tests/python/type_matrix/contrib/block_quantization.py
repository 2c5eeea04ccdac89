"""Templates of src/ops/contrib/block_quantization.cpp."""

from __future__ import annotations

import ml_dtypes
import numpy as np
import onnx
from onnx import numpy_helper

from ..engines import run_ort
from ..making import floats, ints, microsoft, waves
from ..modern import formula

RANDOM = np.random.default_rng(11)


def codes(*shape: int) -> np.ndarray:
    return RANDOM.integers(0, 256, shape).astype(np.uint8)


def scales(*shape: int) -> np.ndarray:
    """Draws scales of few bits, so that each type holds them."""
    return (RANDOM.integers(2, 16, shape) / 64).astype(np.float32)


def blocks(count: int, block_size: int) -> int:
    return -(-count // block_size)


def unpacked(packed: np.ndarray, bits: int) -> np.ndarray:
    """Unpacks numbers of few bits along the last axis, the lowest bits first."""
    numbers = (packed.astype(np.int64)[..., None] >> np.arange(0, 8, bits)) & (2**bits - 1)
    return numbers.reshape(*packed.shape[:-1], packed.shape[-1] * 8 // bits)


# --- MatMulNBits ---

X = waves(2, 3, 40)
N, K = 5, 40
SIZES = dict(K=K, N=N)
BIAS = floats(0.5, -1, 0, 2, -3)


def weight(bits: int, block_size: int, n: int = N, k: int = K) -> np.ndarray:
    return codes(n, blocks(k, block_size), block_size * bits // 8)


def packed_zeros(bits: int, block_size: int) -> np.ndarray:
    return codes(N, blocks(blocks(K, block_size) * bits, 8))


def matmul_nbits(bits: int, block_size: int, g_idx: bool = False, zero_points: bool = False, n: int = N, k: int = K):
    """Gives the formula of MatMulNBits with packed zero points, and without a bias."""

    def function(a, b, scale, *rest):
        rest = list(rest)
        zeros = np.full((n, blocks(k, block_size)), 2 ** (bits - 1))
        if zero_points:
            zeros = unpacked(rest.pop(0), bits)[:, : zeros.shape[1]]
        groups = rest.pop(0).astype(np.int64)[:k] if g_idx else np.arange(k) // block_size
        numbers = unpacked(b, bits).reshape(n, -1)[:, :k]
        scale = scale.reshape(n, -1)
        return a @ ((numbers - zeros[:, groups]) * scale[:, groups]).T

    return function


GROUPS = (np.arange(K) * 7 % 3).astype(np.int32)
PADDED_GROUPS = (np.arange(48) * 5 % 3).astype(np.int32)


def nbits(bits: int, block_size: int, zero_points=None, g_idx=None, bias=None, x=X, **rest):
    inputs = [x, weight(bits, block_size), scales(N, blocks(K, block_size)), zero_points, g_idx, bias]
    return microsoft("MatMulNBits", inputs, bits=bits, block_size=block_size, **SIZES, **rest)


MATMUL_NBITS_ROWS = [
    # These zero points are the same numbers packed and as they are.
    nbits(4, 64, zero_points=codes(N, 1) % 16),
    # K is no multiple of the blocks.
    microsoft("MatMulNBits", [X, weight(4, 16), scales(N, 3)], block_size=16, **SIZES),
    *(nbits(bits, size) for bits in (2, 4, 8) for size in (16, 32, 64)),
    *(nbits(bits, 16, zero_points=packed_zeros(bits, 16), bias=BIAS) for bits in (2, 4, 8)),
    *(nbits(bits, 16, zero_points=scales(N, 3) * 40) for bits in (2, 4)),
    *(nbits(4, 32, accuracy_level=level, weight_prepacked=0) for level in (0, 1, 2, 3, 4)),
    nbits(4, 128, zero_points=packed_zeros(4, 128), x=waves(40)[None]),
    nbits(4, 16, x=np.zeros((0, 40), np.float32), bias=BIAS),
    # Old files have scales and zero points of one dimension.
    microsoft(
        "MatMulNBits",
        [X, weight(4, 16), scales(N * 3), codes(N * 2)],
        block_size=16,
        **SIZES,
    ),
    nbits(4, 16, g_idx=GROUPS),
    nbits(4, 16, g_idx=PADDED_GROUPS, zero_points=scales(N, 3) * 40, bias=BIAS),
    # onnxruntime's kernel for g_idx takes 8 for zero points that are packed, numbers of 2 bits for such of 4, and none
    # of 8.
    nbits(
        4,
        16,
        g_idx=GROUPS,
        zero_points=packed_zeros(4, 16),
        meaning=formula(matmul_nbits(4, 16, g_idx=True, zero_points=True)),
    ),
    nbits(2, 16, g_idx=GROUPS, meaning=formula(matmul_nbits(2, 16, g_idx=True))),
    nbits(8, 16, g_idx=PADDED_GROUPS, meaning=formula(matmul_nbits(8, 16, g_idx=True))),
]


# --- MatMulNBitsMlp, MatMulNBitsQkv ---


def rms_norm(x: np.ndarray, scale: np.ndarray, epsilon: float = 1e-5) -> np.ndarray:
    return x / np.sqrt((x**2).mean(-1, keepdims=True) + epsilon) * scale


def silu(x: np.ndarray) -> np.ndarray:
    return x / (1 + np.exp(-x))


PRODUCT = matmul_nbits(4, 32)
WEIGHTS = [weight(4, 32), scales(N, 2)]
OTHERS = [weight(4, 32), scales(N, 2)]
OF_8_BITS = [weight(8, 32), scales(N, 2), weight(8, 32), scales(N, 2)]
SKIP = waves(2, 3, 40)[::-1].copy()
NORM = (1 + waves(40) / 2).astype(np.float32)
MLP = dict(SIZES, block_size=32, activation="silu")


def gated(x, gate, gate_scales, up, up_scales, product=PRODUCT):
    return silu(product(x, gate, gate_scales)) * product(x, up, up_scales)


def mlp_with_skip(x, skip, norm, gate, gate_scales, gate_bias, up, up_scales, up_bias):
    x = rms_norm(x + skip, norm, 0.5)
    return silu(PRODUCT(x, gate, gate_scales) + gate_bias) * (PRODUCT(x, up, up_scales) + up_bias)


def several(*functions):
    return lambda case: [formula(function)(case)[0] for function in functions]


def qkv(which: int, k: int, product=PRODUCT, epsilon: float = 1e-6):
    """Gives an output by the index of its projection, whose inputs start at `k`."""
    return lambda x, norm, *rest: product(rms_norm(x, norm, epsilon), *rest[k + 2 * which : k + 2 * which + 2])


KV = [weight(4, 32, n=3), scales(3, 2), weight(4, 32, n=3), scales(3, 2)]
KV_BIAS = [floats(1, -1, 0.5), floats(0, 2, -2)]
KV_PRODUCT = matmul_nbits(4, 32, n=3)
QKV = dict(K=K, Nq=N, Nkv=3, block_size=32)
OF_16_BITS_QKV = [weight(8, 16), scales(N, 3), weight(8, 16, n=3), scales(3, 3), weight(8, 16, n=3), scales(3, 3)]


def qkv_with_skip(weight_at: int, product):
    """Gives an output from all inputs, with a bias behind the scales."""

    def function(x, skip, norm, *rest):
        b, scale, bias = rest[weight_at : weight_at + 3]
        return product(rms_norm(x + skip, norm, 0.5), b, scale) + bias

    return function


def total(x, skip, *rest):
    return x + skip


FUSED_ROWS = [
    microsoft("MatMulNBitsMlp", [X, None, None, *WEIGHTS, None, *OTHERS], **MLP, meaning=formula(gated)),
    microsoft(
        "MatMulNBitsMlp",
        [X, None, NORM, *WEIGHTS, None, *OTHERS],
        **MLP,
        accuracy_level=4,
        meaning=formula(lambda x, norm, *rest: gated(rms_norm(x, norm), *rest)),
    ),
    microsoft(
        "MatMulNBitsMlp",
        [X, SKIP, NORM, *WEIGHTS, BIAS, *OTHERS, BIAS[::-1].copy()],
        outputs=2,
        **MLP,
        bits=4,
        epsilon=0.5,
        meaning=several(mlp_with_skip, total),
    ),
    microsoft(
        "MatMulNBitsMlp",
        [X, None, None, *OF_8_BITS[:2], None, *OF_8_BITS[2:]],
        **MLP,
        bits=8,
        meaning=formula(lambda *inputs: gated(*inputs, product=matmul_nbits(8, 32))),
    ),
    microsoft(
        "MatMulNBitsQkv",
        [X, None, NORM, *WEIGHTS, None, *KV[:2], None, *KV[2:]],
        outputs=3,
        **QKV,
        meaning=several(qkv(0, 0), qkv(0, 2, KV_PRODUCT), qkv(0, 4, KV_PRODUCT)),
    ),
    microsoft(
        "MatMulNBitsQkv",
        [X, SKIP, NORM, *WEIGHTS, BIAS, *KV[:2], KV_BIAS[0], *KV[2:], KV_BIAS[1]],
        outputs=4,
        **QKV,
        epsilon=0.5,
        accuracy_level=1,
        meaning=several(qkv_with_skip(0, PRODUCT), qkv_with_skip(3, KV_PRODUCT), qkv_with_skip(6, KV_PRODUCT), total),
    ),
    microsoft(
        "MatMulNBitsQkv",
        [X, None, NORM, *OF_16_BITS_QKV[:2], None, *OF_16_BITS_QKV[2:4], None, *OF_16_BITS_QKV[4:]],
        outputs=3,
        **dict(QKV, block_size=16),
        bits=8,
        meaning=several(
            qkv(0, 0, matmul_nbits(8, 16)), qkv(0, 2, matmul_nbits(8, 16, n=3)), qkv(0, 4, matmul_nbits(8, 16, n=3))
        ),
    ),
]


# --- GatherBlockQuantized ---

TABLE = codes(6, 20)  # 40 numbers of 4 bits, 80 of 2, 20 of 8
PICKED = ints([0, 5, -1], [2, 2, -6])
INT4 = (RANDOM.integers(-8, 8, (3, 4, 20))).astype(ml_dtypes.int4)
UINT4 = (RANDOM.integers(0, 16, (3, 4, 20))).astype(ml_dtypes.uint4)
SMALL_FLOATS = [
    ml_dtypes.float8_e4m3fn,
    ml_dtypes.float8_e4m3fnuz,
    ml_dtypes.float8_e5m2,
    ml_dtypes.float8_e5m2fnuz,
    ml_dtypes.float4_e2m1fn,
]
REALS = (RANDOM.integers(-6, 7, (3, 4, 20)) / 2).astype(np.float32)


def of_constants(case):
    """Runs the case in onnxruntime, which takes elements of few bits from the model, but none from Python."""
    model = onnx.ModelProto.FromString(case.model.SerializeToString())
    feeds = dict(case.feeds)
    for info in list(model.graph.input):
        value = feeds[info.name]
        if value.dtype.name not in ("float32", "float16", "int32", "int64", "uint8"):
            model.graph.initializer.append(numpy_helper.from_array(feeds.pop(info.name), info.name))
            model.graph.input.remove(info)
    return run_ort(model, feeds)


def gather(data, indices, scale, zeros=None, **attributes):
    return microsoft("GatherBlockQuantized", [data, indices, scale, zeros], meaning=of_constants, **attributes)


def rows_of_middle_blocks(data, indices, scale):
    """Picks rows of uint8 that are in blocks along the axis 1 of 3."""
    return ((data - 128) * np.repeat(scale, 16, 1)[:, : data.shape[1]])[indices.astype(np.int64)]


GATHER_ROWS = [
    # These are of all types.
    gather(
        UINT4,
        PICKED % 3,
        scales(3, 4, 2),
        bits=lambda types, _: 8 if types["T1"] == "tensor(uint8)" else 4,
        quantize_axis=2,
        block_size=16,
    ),
    *(
        gather(REALS.astype(dtype), PICKED % 3, scales(3, 4, 2), quantize_axis=2, block_size=16)
        for dtype in SMALL_FLOATS
    ),
    gather(UINT4, PICKED % 3, scales(3, 1, 20), UINT4[:, :1]),
    # Floats of several rows, or of a whole one, share these scales.
    gather(REALS.astype(SMALL_FLOATS[0]), ints(1, -2), scales(1, 1, 20), block_size=0, bits=8),
    gather(REALS.astype(SMALL_FLOATS[-1]), PICKED % 3, scales(3, 1, 1), gather_axis=1, quantize_axis=-1, block_size=0),
    # These have 2, 4 and 8 bits in uint8.
    *(
        gather(TABLE, PICKED, scales(6, blocks(160 // bits, 16)), zeros, bits=bits, block_size=16)
        for bits in (2, 4, 8)
        for zeros in [None, codes(6, blocks(blocks(160 // bits, 16) * bits, 8))]
    ),
    gather(TABLE, ints(1, 4)[0], scales(6, 1), block_size=64, gather_axis=-2),
    # These have each axis of int4 and uint4, and an axis of blocks along which is picked.
    *(
        gather(data, ints(3, -1, 0), scales(3, 4, 2), zeros, gather_axis=axis, quantize_axis=-1, block_size=16)
        for data, zeros in [(INT4, None), (INT4, INT4[:, :, 1:3]), (UINT4, UINT4[:, :, 3:5])]
        for axis in (1, 2, -1)
    ),
    gather(
        INT4.reshape(20, 12),
        ints(11, 0, 5),
        scales(2, 12),
        INT4.reshape(20, 12)[:2],
        gather_axis=1,
        quantize_axis=0,
        block_size=16,
    ),
    # Some indices are out of range, and there may be none.
    gather(TABLE, ints(6, 1, -7), scales(6, 3), block_size=16),
    gather(INT4, ints(4, 1, -9), scales(3, 4, 2), gather_axis=1, quantize_axis=2, block_size=16),
    gather(TABLE, np.zeros((2, 0), np.int64), scales(6, 3), block_size=16),
    # onnxruntime's kernel wants the blocks of bytes to lie along the last axis.
    microsoft(
        "GatherBlockQuantized",
        [codes(3, 20, 4), PICKED % 3, scales(3, 2, 4)],
        bits=8,
        block_size=16,
        meaning=formula(rows_of_middle_blocks),
    ),
]


# --- Floats of 4 and 8 bits ---

FP4 = [0, 5.208333333e-03, 0.66666667, 1, 0.33333333, 0.5, 0.16666667, 0.25]
BNB4 = dict(K=40, N=3, block_size=32)
BNB4_WEIGHT, ABSMAX = codes(60), scales(4) * 4


def bnb4_not_transposed(a, b, absmax):
    numbers = np.array([*FP4, *(-x for x in FP4)])[np.flip(unpacked(b, 4).reshape(-1, 2), 1).astype(np.int64).ravel()]
    return a @ (numbers * np.repeat(absmax, 32)[:120]).reshape(3, 40)


def blob(columns: int, rows: int, block_size: int, has_zero_points: bool) -> np.ndarray:
    shape = columns, blocks(rows, block_size)
    parts = [scales(*shape, 1).view(np.uint8), codes(*shape, 1) % 16 if has_zero_points else codes(*shape, 0)]
    return np.concatenate([*parts, codes(*shape, block_size // 2)], -1).ravel()


def product_with_blob(block_size: int, has_zero_points: bool):
    """Gives the formula. onnxruntime's kernel needs AVX-512, and takes type 2 for type 1."""

    def function(a, b, b_shape):
        rows, columns = (int(size) for size in b_shape)
        in_blocks = b.astype(np.uint8).reshape(columns, blocks(rows, block_size), -1)
        scale = in_blocks[..., :4].copy().view(np.float32).astype(np.float64)
        zero = in_blocks[..., 4:5].astype(np.float64) if has_zero_points else 8.0
        halves = in_blocks[..., 4 + has_zero_points :].reshape(*in_blocks.shape[:2], -1, 16)
        numbers = np.concatenate([halves & 15, halves >> 4], -1).reshape(*in_blocks.shape[:2], -1)
        return a @ ((numbers - zero) * scale).reshape(columns, -1)[:, :rows].T

    return formula(function)


FLOAT8 = waves(3, 40, scale=4.0).astype(ml_dtypes.float8_e4m3fn)
E2M1 = np.array([0, 0.5, 1, 1.5, 2, 3, 4, 6, -0.0, -0.5, -1, -1.5, -2, -3, -4, -6])
E4M3 = (RANDOM.integers(1, 8, (3, 3)) / 4).astype(ml_dtypes.float8_e4m3fn).view(np.uint8)


def fp8_weight(block_size: int, has_a_scale: bool = False):
    def function(a, b, scale, *rest):
        rest = list(rest)
        if has_a_scale:
            a_scale = rest.pop(0)
            a = (a / a_scale).astype(np.float32).astype(ml_dtypes.float8_e4m3fn).astype(np.float64) * a_scale
        y = a @ (b * np.repeat(scale, block_size, 1)[:, : b.shape[1]]).T
        return y + rest[0] if rest else y

    return function


def fp4_weight(block_size: int, bias: int | None = None):
    def function(a, b, scale, *rest):
        scale = scale.astype(np.uint8).view(ml_dtypes.float8_e4m3fn).astype(np.float64)
        w = E2M1[unpacked(b, 4)] * np.repeat(scale, block_size, 1)[:, : b.shape[1] * 2] * rest[0]
        return a @ w.T if bias is None else a @ w.T + rest[bias]

    return function


HALF_X = X.astype(np.float16)
THREE = floats(1, -0.5, 2).astype(np.float16)

SMALL_FLOAT_ROWS = [
    microsoft("MatMulBnb4", [X, BNB4_WEIGHT, ABSMAX], **BNB4, quant_type=0),
    microsoft("MatMulBnb4", [X, BNB4_WEIGHT, ABSMAX], **BNB4, quant_type=1, training_mode=1),
    microsoft("MatMulBnb4", [X[..., :5], codes(8), scales(1)], K=5, N=3, block_size=16, quant_type=1),
    # onnxruntime's kernel always multiplies by the transposed weight.
    microsoft(
        "MatMulBnb4",
        [X[..., :3], BNB4_WEIGHT, ABSMAX],
        **BNB4,
        quant_type=0,
        transB=0,
        meaning=formula(bnb4_not_transposed),
    ),
    microsoft("MatMulFpQ4", [X, blob(3, 40, 32, True), ints(40, 3)], meaning=product_with_blob(32, True)),
    *(
        microsoft(
            "MatMulFpQ4",
            [x, blob(3, 40, block_size, has_zero_points), ints(40, 3)],
            blk_quant_type=number,
            meaning=product_with_blob(block_size, has_zero_points),
        )
        for number, x, block_size, has_zero_points in [(1, X, 32, True), (0, X[0], 32, False), (2, X, 64, False)]
    ),
    microsoft("MatMulBlockQuantizedFp8Weight", [HALF_X, FLOAT8, scales(3, 1)], meaning=formula(fp8_weight(128))),
    microsoft(
        "MatMulBlockQuantizedFp8Weight",
        [HALF_X, FLOAT8, scales(3, 3), None, THREE],
        block_size=16,
        meaning=formula(fp8_weight(16)),
    ),
    microsoft(
        "MatMulBlockQuantizedFp8Weight",
        [HALF_X, FLOAT8, scales(3, 3), floats(0.125)[0]],
        block_size=16,
        meaning=formula(fp8_weight(16, has_a_scale=True)),
    ),
    microsoft(
        "MatMulBlockQuantizedFp4Weight", [HALF_X, codes(3, 20), E4M3, floats(0.5)[0]], meaning=formula(fp4_weight(16))
    ),
    microsoft(
        "MatMulBlockQuantizedFp4Weight",
        [HALF_X, codes(3, 20), E4M3[:, :2], floats(0.5)[0], floats(3)[0], THREE],
        block_size=32,
        meaning=formula(fp4_weight(32, bias=2)),
    ),
]

BLOCK_QUANTIZATION_ROWS = [*MATMUL_NBITS_ROWS, *FUSED_ROWS, *GATHER_ROWS, *SMALL_FLOAT_ROWS]
