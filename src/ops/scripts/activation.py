# PRelu, HardSigmoid, Swish, SwiGLU, Softsign, Shrink, Hardmax, Softmax.


def prelu(x: Tensor, slope: Tensor) -> Tensor:
    return torch.where(x < 0, x * slope, x)


# Aligns one slope a channel with x; a single slope, and one of more dimensions, broadcasts as it is.
def channel_slopes(x: Tensor, slope: Tensor) -> Tensor:
    return slope if slope.numel() == 1 or slope.dim() != 1 else aligned(x, slope, 1)


def hard_sigmoid(X: Tensor, alpha: float, beta: float) -> Tensor:
    # aten::hardsigmoid has these coefficients.
    if beta == 0.5 and abs(alpha - 1.0 / 6.0) < 1e-8:
        return torch.hardsigmoid(X)
    return torch.clamp(X * alpha + beta, 0.0, 1.0)


def swish(X: Tensor, alpha: float) -> Tensor:
    if alpha == 1.0:
        return torch.silu(X)
    return X * torch.sigmoid(X * alpha)


def swiglu(A: Tensor, B: Tensor, alpha: float) -> Tensor:
    return swish(A, alpha) * B


def softsign(input: Tensor) -> Tensor:
    return input / (1 + torch.abs(input))


# Moves integers by a bias that need not be whole, and then cuts the fraction off.
def shrink(input: Tensor, lambd: float, bias: float) -> Tensor:
    x = input if torch.is_floating_point(input) else input.to(torch.float64)
    y = torch.where(x < -lambd, x + bias, torch.where(x > lambd, x - bias, torch.zeros_like(x)))
    return y.to(input.dtype)


# Gives 1 at the first maximum along the axis, 0 elsewhere.
def hardmax(input: Tensor, axis: int) -> Tensor:
    if input.numel() == 0:
        return input
    first = torch.argmax(input, axis, keepdim=True)
    return torch.scatter(torch.zeros_like(input), axis, first, 1)


# Computes softmax with each step rounded to the type; ATen's rounds once.
def softmax_by_steps(x: Tensor, axis: int) -> Tensor:
    if x.size(axis) == 0:
        return x
    powers = torch.exp(x - torch.amax(x, axis, True))
    return powers / torch.sum(powers, axis, True)
