# QLinearAdd, QLinearGlobalAveragePool, DynamicQuantizeLSTM, QuantizeWithOrder, DequantizeWithOrder, QOrderedMatMul.


def or_zero(zero_point: Optional[Tensor], like: Tensor) -> Tensor:
    return torch.zeros_like(like) if zero_point is None else zero_point


# Adds in units of C_scale, with its zero point. The order of the terms is that of onnxruntime's kernel, and decides
# ties.
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
    return offset + dequantize_linear(A, a, None, torch.float32) + dequantize_linear(B, b, None, torch.float32)


# Sums the differences from the zero point in each channel of images (N, C, D1, …, Dn), exactly.
@kept
def sums_of_steps(x: Tensor, zero_point: Optional[Tensor]) -> Tensor:
    assert x.dim() >= 3, "images have at least 3 dimensions, not {}".format(x.dim())
    zero = None if zero_point is None else zero_point.to(torch.float64)
    steps = dequantize_linear(x, None, zero, torch.float64)
    return torch.sum(steps, spatial_dims(x), True).to(torch.float32)


# Computes the mean of each channel in units of y_scale: exact sums times one factor, as in onnxruntime's kernel.
def quantized_image_means(x: Tensor, x_scale: Tensor, zero_point: Optional[Tensor], y_scale: Tensor) -> Tensor:
    count = 1
    for size in x.size()[2:]:
        count = count * size
    return sums_of_steps(x, zero_point) * (x_scale / (y_scale * count))


# Gives the pool of whole images where one window takes all of an image, or else that of windows.
def of_whole_images(x: Tensor, kernel: List[int], of_images: Tensor, of_windows: Tensor) -> Tensor:
    return of_images if x.size()[2:] == kernel else of_windows


# Multiplies x, quantized to uint8 by its own range, by a matrix of integers in units of `scale`. x_scale is cast to
# float32, which it is already, so that the type of the result is known.
def dynamic_product(x: Tensor, matrix: Tensor, scale: Tensor) -> Tensor:
    numbers, x_scale, zero_point = dynamic_quantize_linear(x)
    sums = matmul_integer(numbers, matrix, zero_point, None, torch.float64)
    return sums.to(torch.float32) * (x_scale.to(torch.float32) * scale)


# Gives the states that a step's range is computed from: those of its sequences and, as in onnxruntime's kernel, of
# those that have just ended.
def counted_state(h: Tensor, step: int, within: Optional[Tensor]) -> Tensor:
    if within is None:
        return h
    return torch.where(torch.logical_or(within[step], within[max(step - 1, 0)]), h, 0)


# Gives the order of steps in which each sequence's own, [seq_length, batch_size, 1], come first.
def own_steps_first(within: Tensor) -> Tensor:
    return torch.argsort(within.to(torch.uint8), stable=True, dim=0, descending=True)


# Computes the LSTM of one direction, step by step. As in onnxruntime's kernel, the range of a step is of all sequences,
# which begin at the same step in either direction, and that of X is of the steps up to the end of the longest one.
def dynamic_quantize_lstm_direction(
    X: Tensor,
    W: Tensor,
    W_scale: Tensor,
    W_zero_point: Tensor,
    R: Tensor,
    R_scale: Tensor,
    R_zero_point: Tensor,
    B: Optional[Tensor],
    within: Optional[Tensor],
    initial_h: Tensor,
    initial_c: Tensor,
    P: Optional[Tensor],
    activations: List[str],
    alphas: List[float],
    betas: List[float],
    clip: Optional[float],
    input_forget: bool,
) -> Tuple[Tensor, Tensor, Tensor]:
    order = None if within is None else own_steps_first(within)
    if within is not None and order is not None:
        X = torch.take_along_dim(torch.where(torch.any(within, 1, True), X, 0), order, 0)
        within = torch.take_along_dim(within, order, 0)
    W_steps = dequantize_linear(torch.t(W), None, W_zero_point.to(torch.float64), torch.float64)
    R_steps = dequantize_linear(torch.t(R), None, R_zero_point.to(torch.float64), torch.float64)
    gates = dynamic_product(X, W_steps, W_scale)
    if B is not None:
        Wb, Rb = torch.chunk(B, 2)
        gates = gates + (Wb + Rb)
    Y, h, c = lstm_states(
        gates, R_steps, R_scale, None, within, initial_h, initial_c, P, activations, alphas, betas, clip, input_forget
    )
    return Y if order is None else torch.take_along_dim(Y, torch.argsort(order, 0), 0), h, c


def dynamic_quantize_lstm_direction_of_sizes(
    X: Tensor,
    W: Tensor,
    W_scale: Tensor,
    W_zero_point: Tensor,
    R: Tensor,
    R_scale: Tensor,
    R_zero_point: Tensor,
    B: Optional[Tensor],
    within: Optional[Tensor],
    initial_h: Tensor,
    initial_c: Tensor,
    P: Optional[Tensor],
    activations: List[str],
    alphas: List[float],
    betas: List[float],
    clip: Optional[float],
    input_forget: bool,
) -> Tuple[Tensor, Tensor, Tensor]:
    W_steps, R_steps = torch.t(W).to(X.dtype), torch.t(R).to(X.dtype)
    return lstm_direction_of_sizes(
        X, W_steps, R_steps, B, within, initial_h, initial_c, P, activations, alphas, betas, clip, input_forget
    )


# --- Matrices in the orders of cuBLASLt: 0 by columns, 1 by rows, 2 COL32, 3 COL4_4R2_8C, 4 COL32_2R_4R4 ---


# Gives the dimensions that an order splits rows and columns into, -1 being the tiles, and the order it has them in.
def order_of_elements(order: int) -> Tuple[List[int], List[int], List[int]]:
    assert order >= 0 and order <= 4, "there is no order {} of matrices".format(order)
    if order == 0:
        return [-1], [-1], [1, 0]
    if order == 1:
        return [-1], [-1], [0, 1]
    if order == 2:
        return [-1], [-1, 32], [1, 0, 2]
    if order == 3:
        return [-1, 4, 2], [-1, 4, 2, 4], [3, 0, 2, 4, 5, 1, 6]
    return [-1, 4, 4, 2], [-1, 32], [4, 0, 2, 1, 3, 5]


def split_size(size: int, parts: List[int]) -> List[int]:
    tile = 1
    for part in parts[1:]:
        tile = tile * part
    assert size % tile == 0, "{} rows or columns do not make tiles of {}".format(size, tile)
    return [size // tile] + parts[1:]


# Brings the elements of matrices from row-major order into another; with `back`, the other way.
def reordered(x: Tensor, order: int, back: bool) -> Tensor:
    row_parts, column_parts, places = order_of_elements(order)
    matrices = torch.atleast_2d(x)
    sizes = split_size(matrices.size(-2), row_parts) + split_size(matrices.size(-1), column_parts)
    moves = [0] + [1 + place for place in places]
    if back:
        sizes = [sizes[place] for place in places]
        moves = [0] + [1 + places.index(i) for i in range(len(places))]
    count = 1
    for size in matrices.size()[:-2]:
        count = count * size
    return torch.reshape(torch.permute(torch.reshape(matrices, [count] + sizes), moves), x.size())


# Rounds to int8. onnxruntime's kernels multiply by the reciprocal of a scale, not divide by it.
def quantized_by_factor(x: Tensor, factor: Tensor) -> Tensor:
    return quantize_linear(x * factor, None, None, -128, 127, torch.int8)


def quantize_with_order(input: Tensor, scale_input: Tensor, order_input: int, order_output: int) -> Tensor:
    rows = reordered(input, order_input, True)
    return quantized_by_factor(reordered(rows, order_output, False).to(torch.float32), 1 / scale_input)


def dequantize_with_order(input: Tensor, scale_input: Tensor, order_input: int, order_output: int) -> Tensor:
    rows = reordered(input, order_input, True)
    return reordered(rows, order_output, False).to(torch.float32) * scale_input


# Gives B, which is stored transposed: in row-major order where its order is column-major, else in its order.
def transposed_factor(B: Tensor, order_B: int) -> Tensor:
    transposed = torch.reshape(B, B.size()[:-2] + [B.size(-1), B.size(-2)])
    return torch.transpose(transposed if order_B == 0 else reordered(transposed, order_B, True), -1, -2)


def qordered_matmul(
    A: Tensor,
    scale_A: Tensor,
    B: Tensor,
    scale_B: Tensor,
    scale_Y: Tensor,
    bias: Optional[Tensor],
    C: Optional[Tensor],
    scale_C: Optional[Tensor],
    order_A: int,
    order_B: int,
    order_Y: int,
) -> Tensor:
    assert order_A == order_Y, "A and Y are in the orders {} and {}".format(order_A, order_Y)
    sums = matmul_integer(reordered(A, order_A, True), transposed_factor(B, order_B), None, None, torch.float64)
    y = sums.to(torch.float32) * (scale_A * scale_B / scale_Y)
    if C is not None:
        assert scale_C is not None, "C has no scale"
        y = y + reordered(C, order_Y, True).to(torch.float32) * (scale_C / scale_Y)
    if bias is not None:
        y = y + bias
    return reordered(quantize_linear(y, None, None, -128, 127, torch.int8), order_Y, False)


def qordered_gelu(X: Tensor, scale_X: Tensor, scale_Y: Tensor) -> Tensor:
    return quantized_by_factor(torch.gelu(dequantize_linear(X, scale_X, None, torch.float32)), 1 / scale_Y)
