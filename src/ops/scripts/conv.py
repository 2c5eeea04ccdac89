# Conv over any number of dimensions, ConvTranspose, DeformConv, CausalConvWithState, Col2Im.


# Convolves an input that is padded already, as one product of matrices, where aten::convolution does not take it.
def conv_nd(x: Tensor, w: Tensor, b: Optional[Tensor], strides: List[int], dilations: List[int], group: int) -> Tensor:
    kernel = w.size()[2:]
    rank = len(kernel)
    patches = windows(x, kernel, strides, dilations)
    positions = patches.size()[2 : 2 + rank]
    inner = [i + 2 for i in range(2 * rank)]
    patches = torch.reshape(patches, [x.size(0), group, w.size(1)] + patches.size()[2:])
    patches = torch.flatten(torch.flatten(patches, 3 + rank, -1), 3, 2 + rank)
    filters = torch.flatten(torch.reshape(w, [group, w.size(0) // group] + w.size()[1:]), 3, -1)
    y = torch.einsum("ngclk,gmck->ngml", [patches, filters])
    y = torch.reshape(y, [x.size(0), w.size(0)] + positions)
    if b is not None:
        y = y + torch.reshape(b, [-1] + [1] * len(positions))
    return y


# Gives the pads by which ConvTranspose reaches its output_shape.
def transposed_pads(
    sizes: List[int],
    kernel: List[int],
    strides: List[int],
    dilations: List[int],
    output_padding: List[int],
    output_shape: Optional[List[int]],
    upper: bool,
) -> List[int]:
    begins: List[int] = []
    ends: List[int] = []
    for i, length in enumerate(kernel):
        size = sizes[i + 2]
        stride = of_axis(strides, i)
        target = size * stride
        if output_shape is not None:
            target = output_shape[len(output_shape) - len(kernel) + i]
        total = stride * (size - 1) + of_axis(output_padding, i) + (length - 1) * of_axis(dilations, i) + 1 - target
        half = total // 2
        begins.append(half if upper else total - half)
        ends.append(total - half if upper else half)
    return begins + ends


# Does a transposed convolution with padding that aten::convolution cannot express: the whole output is made, then cut
# or extended.
def conv_transpose_padded(
    x: Tensor,
    w: Tensor,
    b: Optional[Tensor],
    strides: List[int],
    pads: List[int],
    output_padding: List[int],
    group: int,
    dilations: List[int],
) -> Tensor:
    rank = len(pads) // 2
    y = torch.convolution(x, w, None, strides, [0], dilations, True, [0], group)
    margins = [-pad for pad in pads]
    for i in range(rank):
        margins[rank + i] = margins[rank + i] + of_axis(output_padding, i)
    y = torch.constant_pad_nd(y, inner_first(margins), 0)
    if b is not None:
        y = y + torch.reshape(b, [-1] + [1] * rank)
    return y


def silu_where_named(x: Tensor, activation: str) -> Tensor:
    assert activation in ["none", "silu", "swish"], "there is no activation " + activation
    return x if activation == "none" else torch.silu(x)


def causal_conv_with_state(
    input: Tensor, weight: Tensor, bias: Optional[Tensor], past_state: Optional[Tensor], activation: str
) -> Tuple[Tensor, Tensor]:
    kept = weight.size(2) - 1
    if past_state is None:
        padded = torch.constant_pad_nd(input, [kept, 0], 0)
    else:
        padded = torch.cat([past_state, input], 2)
    output = torch.conv1d(padded, weight, bias, [1], [0], [1], weight.size(0))
    return silu_where_named(output, activation), torch.slice(padded, 2, padded.size(2) - kept)


def col2im(
    input: Tensor,
    image_shape: List[int],
    block_shape: List[int],
    strides: Optional[List[int]],
    pads: Optional[List[int]],
    dilations: Optional[List[int]],
) -> Tensor:
    rank = len(image_shape)
    steps = given_or(strides, rank, 1)
    spread = given_or(dilations, rank, 1)
    margins = given_or(pads, 2 * rank, 0)
    # index tells where in the padded, flattened image each element of a column goes: (block elements, blocks).
    index = torch.zeros([1, 1], dtype=torch.int64, device=input.device)
    area = 1
    block = 1
    sizes: List[int] = []
    for i, size in enumerate(image_shape):
        size = size + margins[i] + margins[rank + i]
        count = (size - (block_shape[i] - 1) * spread[i] - 1) // steps[i] + 1
        inside = torch.arange(block_shape[i], device=input.device) * spread[i]
        starts = torch.arange(count, device=input.device) * steps[i]
        position = torch.reshape(inside, [1, -1, 1, 1]) + torch.reshape(starts, [1, 1, 1, -1])
        index = torch.reshape(index, [index.size(0), 1, index.size(1), 1]) * size + position
        index = torch.flatten(torch.flatten(index, 2, 3), 0, 1)
        area = area * size
        block = block * block_shape[i]
        sizes.append(size)
    channels = input.size(1) // block
    columns = torch.reshape(input, [input.size(0), channels, index.numel()])
    image = torch.zeros([input.size(0), channels, area], dtype=input.dtype, device=input.device)
    image = torch.index_add(image, 2, torch.flatten(index), columns)
    image = torch.reshape(image, [input.size(0), channels] + sizes)
    return torch.constant_pad_nd(image, inner_first([-margin for margin in margins]), 0)


def deform_conv(
    X: Tensor,
    W: Tensor,
    offset: Tensor,
    B: Optional[Tensor],
    mask: Optional[Tensor],
    dilations: Optional[List[int]],
    group: int,
    kernel_shape: Optional[List[int]],
    offset_group: int,
    pads: Optional[List[int]],
    strides: Optional[List[int]],
) -> Tensor:
    kernel = W.size()[2:] if kernel_shape is None else kernel_shape
    rank = len(kernel)
    return torch.ops.onnx_torch.deform_conv(
        X,
        W,
        offset,
        B,
        mask,
        given_or(dilations, rank, 1),
        group,
        kernel,
        offset_group,
        given_or(pads, 2 * rank, 0),
        given_or(strides, rank, 1),
    )
