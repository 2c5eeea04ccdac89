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
def per_row(parameter: Tensor) -> Tensor:
    is_of_rows = parameter.dim() == 1 and parameter.size(0) != 1
    return torch.unsqueeze(parameter, -1) if is_of_rows else per_column(parameter)


# Reshapes it to broadcast as one for all, or one for each column.
def per_column(parameter: Tensor) -> Tensor:
    if parameter.dim() == 1:
        return one_for_all(parameter) if parameter.size(0) == 1 else parameter
    return one_for_all(parameter) if parameter.dim() > 1 and parameter.numel() == 1 else parameter


def int32_of(sums: Tensor) -> Tensor:
    return torch.round(sums).to(torch.int64).to(torch.int32)


# Multiplies matrices of integers less their zero points: one for all, or one for each row of A and each column of B.
# The sums are exact in dtype. B may have lost its zero point before.
@kept
def matmul_integer(
    A: Tensor, B: Tensor, a_zero_point: Optional[Tensor], b_zero_point: Optional[Tensor], dtype: int
) -> Tensor:
    a_zero = None if a_zero_point is None else per_row(a_zero_point.to(dtype))
    b_zero = None if b_zero_point is None else per_column(b_zero_point.to(dtype))
    return int32_of(torch.matmul(dequantize_linear(A, None, a_zero, dtype), dequantize_linear(B, None, b_zero, dtype)))


# Gives the sums of QLinearMatMul in steps of y_scale, of which `unit` is one of the sums, before they are rounded.
@kept
def qlinear_matmul(
    a: Tensor, b: Tensor, a_zero_point: Optional[Tensor], b_zero_point: Optional[Tensor], dtype: int, unit: Tensor
) -> Tensor:
    left = dequantize_linear(a, None, a_zero_point, dtype)
    return torch.matmul(left, dequantize_linear(b, None, b_zero_point, dtype)) * unit


# Convolves integers less their zero points, which broadcast. The sums are exact in dtype. Zeros go around images that
# have lost their zero point, as they stand for it.
def integer_sums(
    x: Tensor,
    w: Tensor,
    x_zero_point: Optional[Tensor],
    w_zero_point: Optional[Tensor],
    bias: Optional[Tensor],
    pads: Optional[List[int]],
    stride: List[int],
    padding: List[int],
    dilation: List[int],
    groups: int,
    dtype: int,
) -> Tensor:
    x_zero = None if x_zero_point is None else x_zero_point.to(dtype)
    w_zero = None if w_zero_point is None else w_zero_point.to(dtype)
    images = dequantize_linear(x, None, x_zero, dtype)
    filters = dequantize_linear(w, None, w_zero, dtype)
    if pads is not None:
        images = torch.constant_pad_nd(images, pads, 0)
    b = None if bias is None else bias.to(dtype)
    return torch.convolution(images, filters, b, stride, padding, dilation, False, [0], groups)


@kept
def conv_integer(
    x: Tensor,
    w: Tensor,
    x_zero_point: Optional[Tensor],
    w_zero_point: Optional[Tensor],
    pads: Optional[List[int]],
    stride: List[int],
    padding: List[int],
    dilation: List[int],
    groups: int,
    dtype: int,
) -> Tensor:
    sums = integer_sums(x, w, x_zero_point, w_zero_point, None, pads, stride, padding, dilation, groups, dtype)
    return int32_of(sums)


# Gives the sums of QLinearConv in steps of y_scale, of which `unit` is one of the sums, before they are rounded.
@kept
def qlinear_conv(
    x: Tensor,
    w: Tensor,
    x_zero_point: Optional[Tensor],
    w_zero_point: Optional[Tensor],
    pads: Optional[List[int]],
    stride: List[int],
    padding: List[int],
    dilation: List[int],
    groups: int,
    dtype: int,
    unit: Tensor,
    bias: Optional[Tensor],
) -> Tensor:
    sums = integer_sums(x, w, x_zero_point, w_zero_point, bias, pads, stride, padding, dilation, groups, dtype)
    return sums * unit
