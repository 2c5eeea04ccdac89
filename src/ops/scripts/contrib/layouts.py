# Layouts of images: channels last, and the blocks of channels of com.microsoft.nchwc. QLinearConvTranspose.


def channels_first_order(rank: int) -> List[int]:
    assert rank >= 2, "an image has a batch and channels"
    return [0, rank - 1] + list(range(1, rank - 1))


def channels_last_order(rank: int) -> List[int]:
    assert rank >= 2, "an image has a batch and channels"
    return [0] + list(range(2, rank)) + [1]


# --- Blocks of channels: (N, C / block, H, W, block), of which the shape still says (N, C, H, W) ---


def block_count(channels: int, block: int) -> int:
    assert channels % block == 0, "{} channels are not in blocks of {}".format(channels, block)
    return channels // block


@kept
def from_blocks(x: Tensor, block: int) -> Tensor:
    blocks = torch.reshape(x, [x.size(0), block_count(x.size(1), block)] + x.size()[2:] + [block])
    return torch.reshape(torch.permute(blocks, [0, 1, 4, 2, 3]), x.size())


@kept
def to_blocks(x: Tensor, block: int) -> Tensor:
    blocks = torch.reshape(x, [x.size(0), block_count(x.size(1), block), block] + x.size()[2:])
    return torch.reshape(torch.permute(blocks, [0, 1, 3, 4, 2]), x.size())


# Puts channels into blocks; the last block is filled up with zeros.
def reorder_input(X: Tensor, channels_last: bool, block: int) -> Tensor:
    x = torch.permute(X, channels_first_order(X.dim())) if channels_last else X
    missing = (block - x.size(1) % block) % block
    if missing > 0:
        x = torch.constant_pad_nd(x, [0, 0, 0, 0, 0, missing], 0)
    return to_blocks(x, block)


# Takes channels out of their blocks. 0 channels, which onnxruntime's kernel refuses, means all that there are.
def reorder_output(X: Tensor, channels: int, channels_last: bool, block: int) -> Tensor:
    x = from_blocks(X, block)
    if channels != 0 and channels != X.size(1):
        x = torch.narrow(x, 1, 0, channels)
    return torch.permute(x, channels_last_order(x.dim())) if channels_last else x


# Takes the input of a convolution out of blocks. Fewer channels than a block are not in blocks, except those of a
# depthwise convolution.
def conv_input_from_blocks(X: Tensor, W: Tensor, group: int, block: int) -> Tensor:
    return X if group == 1 and W.size(1) < block else from_blocks(X, block)


# Takes filters out of blocks of outputs, innermost, and of inputs, where these fill one.
def filters_from_blocks(W: Tensor, block: int) -> Tensor:
    outputs = block_count(W.size(0), block)
    inputs = W.size(1)
    if inputs < block:
        blocks = torch.reshape(W, [outputs, inputs] + W.size()[2:] + [block])
        return torch.reshape(torch.permute(blocks, [0, 4, 1, 2, 3]), W.size())
    blocks = torch.reshape(W, [outputs, block_count(inputs, block)] + W.size()[2:] + [block, block])
    return torch.reshape(torch.permute(blocks, [0, 5, 1, 4, 2, 3]), W.size())


# --- QLinearConvTranspose ---


# Broadcasts a scale or zero point over filters (channels, outputs of a group, …): one for all, or one for each output.
def of_transposed_filters(parameter: Tensor, W: Tensor, group: int) -> Tensor:
    if parameter.numel() == 1:
        return one_for_all(parameter)
    of_channels = torch.repeat_interleave(torch.reshape(parameter, [group, -1]), W.size(0) // group, 0)
    return torch.reshape(of_channels, of_channels.size() + [1] * (W.dim() - 2))


def dequantized_transposed_filters(w: Tensor, scale: Tensor, zero_point: Tensor, group: int) -> Tensor:
    zero = of_transposed_filters(zero_point, w, group).to(torch.float32)
    return dequantize_linear(w, of_transposed_filters(scale, w, group), zero, torch.float32)


def dequantized_bias(B: Tensor, x_scale: Tensor, w_scale: Tensor) -> Tensor:
    return B.to(torch.float32) * (one_for_all(x_scale) * w_scale)
