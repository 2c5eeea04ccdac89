# BiasAdd, BiasGelu, BiasSoftmax, BiasSplitGelu, FastGelu, GatedAdd, GemmFastGelu, QuickGelu, ScaledSiLU.


def bias_add(X: Tensor, bias: Tensor, skip: Tensor) -> Tensor:
    return X + bias + skip


def bias_gelu(A: Tensor, B: Tensor) -> Tensor:
    return torch.gelu(A + B)


def fast_gelu(X: Tensor, bias: Optional[Tensor]) -> Tensor:
    return torch.gelu(X if bias is None else X + bias, approximate="tanh")


def gemm_fast_gelu(X: Tensor, W: Tensor, bias: Optional[Tensor]) -> Tensor:
    return fast_gelu(torch.matmul(X, W), bias)


# Multiplies the left half by Gelu of the right one.
def bias_split_gelu(X: Tensor, bias: Tensor) -> Tensor:
    halves = torch.chunk(X + bias, 2, -1)
    return halves[0] * torch.gelu(halves[1])


def quick_gelu(X: Tensor, alpha: float) -> Tensor:
    if alpha == 1:
        return torch.silu(X)
    return X * torch.sigmoid(X * alpha)


def scaled_silu(X: Tensor, scale: Optional[Tensor], alpha: float) -> Tensor:
    scaled = X * alpha if scale is None else (X * scale).to(X.dtype)
    return scaled * torch.sigmoid(scaled)


def gated_add(X: Tensor, Y: Tensor, gate: Tensor) -> Tensor:
    return X + Y * gate


# Computes softmax over rows, which the dimensions from `axis` on make up.
def softmax_of_rows(x: Tensor, axis: int) -> Tensor:
    rows = torch.reshape(x, flat_sizes(x.size(), axis))
    return torch.reshape(torch.softmax(rows, 1), x.size())


# Adds the bias, whose sizes of 1 tell along which dimensions it broadcasts, so is_inner_broadcast is not needed.
def bias_softmax(data: Tensor, bias: Tensor, axis: int) -> Tensor:
    return softmax_of_rows(data + bias, axis)
