# QLinearAdd, QLinearGlobalAveragePool.


def or_zero(zero_point: Optional[Tensor], like: Tensor) -> Tensor:
    return torch.zeros_like(like) if zero_point is None else zero_point


# A sum in steps of C_scale, its zero point in it. The order is the kernel's, and decides ties.
def quantized_sum(
    A: Tensor,
    A_scale: Tensor,
    A_zero_point: Optional[Tensor],
    B: Tensor,
    B_scale: Tensor,
    B_zero_point: Optional[Tensor],
    C_scale: Tensor,
    C_zero_point: Optional[Tensor],
) -> Tensor:
    a = A_scale / C_scale
    b = B_scale / C_scale
    offset = or_zero(C_zero_point, a) - (a * or_zero(A_zero_point, a) + b * or_zero(B_zero_point, b))
    return offset + A * a + B * b


# The mean of each image of (N, C, D1, …, Dn) in steps of y_scale: exact sums times one factor, as in the kernel.
def quantized_image_means(x: Tensor, x_scale: Tensor, y_scale: Tensor) -> Tensor:
    assert x.dim() >= 3, "images have at least 3 dimensions, not {}".format(x.dim())
    count = 1
    for size in x.size()[2:]:
        count = count * size
    sums = torch.sum(x, spatial_dims(x), True, dtype=torch.float64).to(torch.float32)
    return sums * (x_scale / (y_scale * count))
