# QuantizeLinear, DequantizeLinear, DynamicQuantizeLinear, MatMulInteger, QLinearMatMul, ConvInteger, QLinearConv.
# The functions compute with integers as floats that are wide enough to hold every sum.


def one_for_all(parameter: Tensor) -> Tensor:
    scalar: List[int] = []
    return torch.reshape(parameter, scalar)


# Gives the shape in which a scale or zero point, one for all or one for each index of an axis, broadcasts to a tensor
# of `sizes`.
def quantization_shape(count: int, sizes: List[int], axis: int) -> List[int]:
    shape: List[int] = []
    if count != 1:
        before = wrapped(axis, len(sizes))
        shape = [1] * before + [-1] + [1] * (len(sizes) - 1 - before)
    return shape


# Repeats the scale or zero point of each block for its block_size indices, and makes no more of them than there are.
def each_of_block(parameter: Tensor, sizes: List[int], axis: int, block_size: int) -> Tensor:
    return torch.slice(torch.repeat_interleave(parameter, min(block_size, sizes[axis]), axis), axis, 0, sizes[axis])


@kept
def dynamic_quantize_linear(x: Tensor) -> Tuple[Tensor, Tensor, Tensor]:
    low = torch.clamp_max(torch.min(x), 0)
    high = torch.clamp_min(torch.max(x), 0)
    scale = torch.where(high == low, torch.ones_like(high), (high - low) / 255)
    zero_point = torch.round(torch.clamp(-low / scale, 0, 255))
    y = torch.clamp(torch.round(x / scale) + zero_point, 0, 255)
    return y.to(torch.uint8), scale, zero_point.to(torch.uint8)


# Quantizes: divides by `scale`, if there is one, adds `zero_point`, and gives the nearest integers within a range.
@kept
def quantize_linear(
    x: Tensor, scale: Optional[Tensor], zero_point: Optional[Tensor], low: int, high: int, dtype: int
) -> Tensor:
    y = torch.round(x if scale is None else x / scale)
    if zero_point is not None:
        y = y + zero_point
    return torch.clamp(y, low, high).to(dtype)


# Dequantizes integers to a floating type; without a scale, it gives their differences from the zero point.
@kept
def dequantize_linear(x: Tensor, scale: Optional[Tensor], zero_point: Optional[Tensor], dtype: int) -> Tensor:
    y = x.to(dtype)
    if zero_point is not None:
        y = y - zero_point
    return y if scale is None else y * scale


# Reshapes the scale or zero point of a matrix to broadcast: one for all, or one for each row.
@kept
def per_row(parameter: Tensor) -> Tensor:
    if parameter.numel() == 1:
        return one_for_all(parameter)
    return torch.unsqueeze(parameter, -1) if parameter.dim() == 1 else parameter


# Reshapes it to broadcast as one for all, or one for each column.
@kept
def per_column(parameter: Tensor) -> Tensor:
    return one_for_all(parameter) if parameter.numel() == 1 else parameter


@kept
def int32_of(sums: Tensor) -> Tensor:
    return torch.round(sums).to(torch.int64).to(torch.int32)
