# MatMulNBits, its forms of several products, GatherBlockQuantized, MatMulBnb4, MatMulFpQ4,
# MatMulBlockQuantizedFp8Weight, MatMulBlockQuantizedFp4Weight.


def blocks_of(count: int, block_size: int) -> int:
    return (count + block_size - 1) // block_size


# Splits each number into two of half its bits, the lower ones first.
def halves_of_numbers(numbers: Tensor, bits: int) -> Tensor:
    lower, higher = torch.bitwise_and(numbers, (1 << bits) - 1), torch.bitwise_right_shift(numbers, bits)
    return torch.flatten(torch.stack([lower, higher], -1), -2)


# Unpacks the numbers of `bits` bits that bytes hold, along the last axis.
def unpacked_bits(packed: Tensor, bits: int) -> Tensor:
    if bits == 8:
        return packed
    nibbles = halves_of_numbers(packed, 4)
    return nibbles if bits == 4 else halves_of_numbers(nibbles, 2)


# Dequantizes a matrix, each block of a row by its scale. The scales are not repeated: a constant that takes many times
# the memory of what it is made of is not folded, but made in each run.
def dequantized_blocks(
    numbers: Tensor, scale: Tensor, zero_point: Optional[Tensor], rows: int, columns: int, block_size: int
) -> Tensor:
    block_size = max(min(block_size, columns), 1)
    blocks = blocks_of(columns, block_size)
    if blocks * block_size > columns:
        numbers = torch.constant_pad_nd(numbers, [0, blocks * block_size - columns])
    zero = None if zero_point is None else torch.unsqueeze(zero_point, -1)
    of_blocks = torch.reshape(numbers, [rows, blocks, block_size])
    y = dequantize_linear(of_blocks, torch.unsqueeze(scale, -1), zero, torch.float32)
    return torch.slice(torch.flatten(y, 1), 1, 0, columns)


# --- MatMulNBits ---


# Gives the zero points of the blocks, which are packed for each row if they are uint8.
def nbits_zero_points(zero_points: Tensor, N: int, blocks: int, bits: int) -> Tensor:
    if zero_points.dtype != torch.uint8:
        return torch.reshape(zero_points, [N, blocks])
    packed = torch.reshape(zero_points, [N, blocks_of(blocks * bits, 8)])
    return torch.slice(unpacked_bits(packed, bits), 1, 0, blocks)


# Dequantizes B; g_idx tells the block of each element of a row.
def dequantized_nbits(
    B: Tensor, scales: Tensor, zero_points: Optional[Tensor], g_idx: Optional[Tensor], K: int, N: int, bits: int,
    block_size: int
) -> Tensor:
    blocks = blocks_of(K, block_size)
    assert B.size() == [N, blocks, block_size * bits // 8], "B does not hold N rows of K numbers of `bits` bits"
    numbers = torch.flatten(unpacked_bits(B, bits), 1)
    scale = torch.reshape(scales, [N, blocks]).to(torch.float32)
    if zero_points is None:
        zero_point = torch.full_like(scale, 1 << (bits - 1))
    else:
        zero_point = nbits_zero_points(zero_points, N, blocks, bits).to(torch.float32)
    if g_idx is None:
        y = dequantized_blocks(numbers, scale, zero_point, N, blocks * block_size, block_size)
        return torch.slice(y, 1, 0, K)
    groups = torch.slice(g_idx, 0, 0, K)
    scale, zero_point = torch.index_select(scale, 1, groups), torch.index_select(zero_point, 1, groups)
    return dequantize_linear(torch.slice(numbers, 1, 0, K), scale, zero_point, torch.float32)


# Multiplies by the dequantized weight. accuracy_level tells kernels what they may round A to; here it is not rounded.
@kept
def matmul_nbits(
    A: Tensor, B: Tensor, scales: Tensor, zero_points: Optional[Tensor], g_idx: Optional[Tensor],
    bias: Optional[Tensor], K: int, N: int, bits: int, block_size: int, accuracy_level: int
) -> Tensor:
    weight = dequantized_nbits(B, scales, zero_points, g_idx, K, N, bits, block_size).to(A.dtype)
    return torch.linear(A, weight, bias)


# Adds A and what skips the layer before it, and computes their RMS norm.
def skip_and_norm(A: Tensor, skip: Optional[Tensor], norm_scale: Optional[Tensor],
                  epsilon: float) -> Tuple[Tensor, Tensor]:
    assert skip is None or norm_scale is not None, "skip needs norm_scale"
    total = A if skip is None else A + skip
    return total, total if norm_scale is None else torch.rms_norm(total, [total.size(-1)], norm_scale, epsilon)


def matmul_nbits_mlp(
    A: Tensor, skip: Optional[Tensor], norm_scale: Optional[Tensor], gate_B: Tensor, gate_scales: Tensor,
    gate_bias: Optional[Tensor], up_B: Tensor, up_scales: Tensor, up_bias: Optional[Tensor], K: int, N: int, bits: int,
    block_size: int, accuracy_level: int, activation: str, epsilon: float
) -> Tuple[Tensor, Tensor]:
    total, x = skip_and_norm(A, skip, norm_scale, epsilon)
    gate = matmul_nbits(x, gate_B, gate_scales, None, None, gate_bias, K, N, bits, block_size, accuracy_level)
    up = matmul_nbits(x, up_B, up_scales, None, None, up_bias, K, N, bits, block_size, accuracy_level)
    return expert_activation(gate, activation) * up, total


def matmul_nbits_qkv(
    A: Tensor, skip: Optional[Tensor], norm_scale: Tensor, q_B: Tensor, q_scales: Tensor, q_bias: Optional[Tensor],
    k_B: Tensor, k_scales: Tensor, k_bias: Optional[Tensor], v_B: Tensor, v_scales: Tensor, v_bias: Optional[Tensor],
    K: int, Nq: int, Nkv: int, bits: int, block_size: int, accuracy_level: int, epsilon: float
) -> Tuple[Tensor, Tensor, Tensor, Tensor]:
    total, x = skip_and_norm(A, skip, norm_scale, epsilon)
    q = matmul_nbits(x, q_B, q_scales, None, None, q_bias, K, Nq, bits, block_size, accuracy_level)
    k = matmul_nbits(x, k_B, k_scales, None, None, k_bias, K, Nkv, bits, block_size, accuracy_level)
    v = matmul_nbits(x, v_B, v_scales, None, None, v_bias, K, Nkv, bits, block_size, accuracy_level)
    return q, k, v, total


# --- GatherBlockQuantized ---


# Unpacks zero points, which are packed as the data are, but along the axis of the blocks.
def unpacked_along(packed: Tensor, axis: int, bits: int, count: int) -> Tensor:
    numbers = unpacked_bits(torch.movedim(packed, axis, -1), bits)
    return torch.movedim(torch.slice(numbers, -1, 0, count), -1, axis)


# Gives a scale or zero point for each element that is gathered, or, along another axis, for each block of them. Where
# there is one for all indices of an axis other than that of the blocks, its size there is 1.
def gathered_parameter(
    parameter: Tensor, sizes: List[int], picked: Tensor, gather_axis: int, quantize_axis: int, block_size: int
) -> Tensor:
    blocks = [blocks_of(sizes[quantize_axis], block_size)]
    of_blocks = torch.expand(parameter.to(torch.float32), sizes[:quantize_axis] + blocks + sizes[quantize_axis + 1:])
    if gather_axis == quantize_axis:
        return gather(of_blocks, gather_axis, picked // block_size)
    return gather(of_blocks, gather_axis, picked)


# Dequantizes the rows when they are picked. Numbers of other types than uint8 are not packed, and `bits` is 8 then. An
# index that is out of range gives zeros.
@kept
def gather_block_quantized(
    data: Tensor, indices: Tensor, scales: Tensor, zero_points: Optional[Tensor], gather_axis: int, quantize_axis: int,
    block_size: int, bits: int, default_zero_point: int
) -> Tensor:
    gather_axis, quantize_axis = wrapped(gather_axis, data.dim()), wrapped(quantize_axis, data.dim())
    assert bits == 8 or gather_axis != data.dim() - 1, "packed numbers cannot be gathered along the last axis"
    count = data.size(gather_axis)
    inside = torch.logical_and(indices >= -count, indices < count)
    picked = torch.where(inside, from_start(indices, count), 0)
    numbers = unpacked_bits(gather(data, gather_axis, picked), bits)

    sizes = data.size()[:-1] + [data.size(-1) * 8 // bits]
    block_size = max(sizes[quantize_axis], 1) if block_size == 0 else block_size
    scale = gathered_parameter(scales, sizes, picked, gather_axis, quantize_axis, block_size)
    zero_point = torch.full_like(scale, default_zero_point)
    if zero_points is not None:
        unpacked = unpacked_along(zero_points, quantize_axis, bits, scales.size(quantize_axis))
        zero_point = gathered_parameter(unpacked, sizes, picked, gather_axis, quantize_axis, block_size)
    if gather_axis != quantize_axis:
        axis = quantize_axis if quantize_axis < gather_axis else quantize_axis + indices.dim() - 1
        scale = each_of_block(scale, numbers.size(), axis, block_size)
        zero_point = each_of_block(zero_point, numbers.size(), axis, block_size)
    y = dequantize_linear(numbers, scale, zero_point, torch.float32)
    is_there = torch.reshape(inside, indices.size() + [1] * (data.dim() - 1 - gather_axis))
    return torch.where(is_there, y, 0).to(scales.dtype)


# --- Weights of 4 bits that are no integers ---


# Decodes a weight of 4-bit codes, of each two the first in the higher bits, by a table and the scale of each block. The
# blocks go on from one row to the next.
def weight_of_codes(B: Tensor, absmax: Tensor, values: Tensor, K: int, N: int, block_size: int) -> Tensor:
    assert B.numel() == blocks_of(N * K, 2), "B does not hold N * K numbers of 4 bits"
    assert absmax.numel() == blocks_of(N * K, block_size), "absmax does not have a number for each block"
    pairs = torch.reshape(unpacked_bits(B, 4), [B.numel(), 2])
    codes = torch.slice(torch.flatten(torch.flip(pairs, [1])), 0, 0, N * K).to(torch.int32)
    numbers = torch.unsqueeze(torch.index_select(values, 0, codes), 0)
    scale = torch.reshape(absmax, [1, absmax.numel()]).to(torch.float32)
    return dequantized_blocks(numbers, scale, None, 1, N * K, block_size)


@kept
def matmul_codes(A: Tensor, B: Tensor, absmax: Tensor, values: Tensor, K: int, N: int, block_size: int) -> Tensor:
    weight = torch.reshape(weight_of_codes(B, absmax, values, K, N, block_size), [N, K])
    return torch.linear(A, weight.to(A.dtype))


def matmul_transposed_codes(
    A: Tensor, B: Tensor, absmax: Tensor, values: Tensor, K: int, N: int, block_size: int
) -> Tensor:
    weight = torch.reshape(weight_of_codes(B, absmax, values, K, N, block_size), [N, K])
    return torch.matmul(A, weight.to(A.dtype))


# Multiplies by B, a blob of MLAS: for each block of each column it has a float, the scale, then a zero point if there
# is one, then the codes, of each 32 the first 16 in the lower bits.
def matmul_fp_q4(A: Tensor, B: Tensor, B_shape: List[int], blk_quant_type: int) -> Tensor:
    assert 0 <= blk_quant_type and blk_quant_type <= 2, "blk_quant_type is 0, 1 or 2"
    assert len(B_shape) == 2, "B_shape is that of a matrix"
    K, N = B_shape[0], B_shape[1]
    assert min(K, N) >= 0 and max(K, N) < 1 << 31, "B_shape is that of a matrix"
    block_size = 64 if blk_quant_type == 2 else 32
    start = 5 if blk_quant_type == 1 else 4
    blocks, bytes = blocks_of(K, block_size), start + block_size // 2
    assert B.numel() == N * blocks * bytes, "B does not hold a matrix of the shape B_shape"
    blob = torch.reshape(B, [N, blocks, bytes])
    scale = torch.view_copy(torch.contiguous(torch.slice(blob, 2, 0, 4)), dtype=torch.float32)
    halves = torch.reshape(torch.slice(blob, 2, start), [N, blocks, block_size // 32, 16])
    lower_first = torch.transpose(torch.reshape(unpacked_bits(halves, 4), [N, blocks, block_size // 32, 16, 2]), 3, 4)
    numbers = torch.reshape(lower_first, [N, blocks, block_size])
    zero_point = torch.full_like(scale, 8)
    if blk_quant_type == 1:
        zero_point = torch.slice(blob, 2, 4, 5).to(torch.float32)
    weight = torch.flatten(dequantize_linear(numbers, scale, zero_point, torch.float32), 1)
    return torch.linear(A, torch.slice(weight, 1, 0, K))


# Multiplies by a weight of floats, each block of a row in units of its scale.
def matmul_scaled_blocks(A: Tensor, B: Tensor, scale: Tensor, bias: Optional[Tensor], block_size: int,
                         dtype: int) -> Tensor:
    rows, columns = B.size(0), B.size(1)
    assert scale.size() == [rows, blocks_of(columns, block_size)], "the scales do not fit the blocks of B"
    weight = dequantized_blocks(B, scale, None, rows, columns, block_size)
    return torch.linear(A.to(dtype), weight.to(dtype), bias)
