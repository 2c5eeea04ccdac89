# FusedMatMul, GemmFloat8, ComplexMul, ComplexMulConj, ConvTransposeWithDynamicPads, MaxpoolWithMask.


# Gives the order that permutes the dimensions of matrices: the rows come before the batch where that is transposed;
# then the last two may be swapped. A vector stays one.
def matrix_order(rank: int, transposed: bool, batch_transposed: bool) -> List[int]:
    order = list(range(rank))
    if rank < 2:
        return order
    if batch_transposed:
        order = order[1:-1] + order[:1] + order[-1:]
    return order[:-2] + [order[-1], order[-2]] if transposed else order


# Multiplies matrices. The output's scale multiplies the activation's result, as in cublasLt, and Gelu is its tanh form.
def gemm_float8(
    A: Tensor,
    B: Tensor,
    C: Optional[Tensor],
    scaleA: Optional[Tensor],
    scaleB: Optional[Tensor],
    scaleY: Optional[Tensor],
    activation: Optional[str],
    alpha: float,
    beta: float,
    transA: bool,
    transB: bool,
) -> Tensor:
    a = A if scaleA is None else A * scaleA
    b = B if scaleB is None else B * scaleB
    Y = torch.mm(torch.t(a) if transA else a, torch.t(b) if transB else b) * alpha
    if C is not None and beta != 0:
        Y = Y + C * beta
    name = "NONE" if activation is None else activation
    if name == "RELU":
        Y = torch.relu(Y)
    elif name == "GELU":
        Y = torch.gelu(Y, approximate="tanh")
    else:
        assert name == "NONE", "there is no activation " + name
    return Y if scaleY is None else Y * scaleY


# Splits the last dimension into pairs, which are complex numbers as two real ones.
def complex_pairs(x: Tensor) -> Tensor:
    return torch.reshape(x, x.size()[:-1] + [x.size(-1) // 2, 2])


def complex_mul(A: Tensor, B: Tensor, conjugate: bool) -> Tensor:
    a = complex_pairs(A)
    b = complex_pairs(B)
    real = torch.select(b, -1, 0)
    imaginary = torch.select(b, -1, 1)
    if conjugate:
        imaginary = -imaginary
    a0 = torch.select(a, -1, 0)
    a1 = torch.select(a, -1, 1)
    return torch.flatten(torch.stack([a0 * real - a1 * imaginary, a0 * imaginary + a1 * real], -1), -2)


def dynamic_pads(pads: List[int], rank: int) -> List[int]:
    assert len(pads) == 2 * (rank - 2), "there must be {} pads, not {}".format(2 * (rank - 2), len(pads))
    for pad in pads:
        assert -(2**31) < pad and pad < 2**31, "the pad {} is out of range".format(pad)
    return pads


# Pools the maximum. In each window, each row counts up to its first element that is masked. onnxruntime's kernel works
# for masks of one channel only: it takes other channels from wrong places. It also never masks the first element of an
# image, except in one dimension.
def max_pool_with_mask(
    X: Tensor, M: Tensor, kernel_shape: List[int], strides: List[int], pads: List[int]
) -> Tensor:
    rank = len(kernel_shape)
    lowest = -3.4028234663852886e38
    channels = torch.arange(X.size(0) * X.size(1), device=X.device) % (M.size(0) * M.size(1))
    mask = torch.reshape(torch.index_select(torch.flatten(M, 0, 1), 0, channels), X.size()) != 0
    margins = inner_first(pads)
    ones = [1] * rank
    x = windows(torch.constant_pad_nd(X, margins, lowest), kernel_shape, strides, ones)
    kept = windows(torch.constant_pad_nd(mask, margins, 1), kernel_shape, strides, ones)
    counted = torch.logical_and(torch.cumprod(kept, -1) != 0, x > lowest)
    return torch.amax(torch.where(counted, x, lowest), window_dims(rank))
