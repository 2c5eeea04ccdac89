# Windows over the spatial dimensions, which Conv, ConvTranspose and the pools share. Pads come as ONNX gives them: the
# begin of each spatial axis, then the end of each.


def of_spatial_rank(x: Tensor, rank: int) -> Tensor:
    assert x.dim() == rank + 2, "the input has {} dimensions, not {}".format(x.dim(), rank + 2)
    return x


# Gives an attribute that has one element for each axis, or `value` for each.
def given_or(attribute: Optional[List[int]], count: int, value: int) -> List[int]:
    return [value] * count if attribute is None else attribute


# Gives the element for an axis; a list of one stands for all axes, as it does in ATen.
def of_axis(values: List[int], axis: int) -> int:
    return values[0] if len(values) == 1 else values[axis]


# Gives the pads that auto_pad SAME_UPPER (lower = False) and SAME_LOWER mean for an input of these sizes.
def same_pads(sizes: List[int], kernel: List[int], strides: List[int], dilations: List[int], lower: bool) -> List[int]:
    begins: List[int] = []
    ends: List[int] = []
    for i, length in enumerate(kernel):
        size = sizes[i + 2]
        stride = of_axis(strides, i)
        span = (length - 1) * of_axis(dilations, i) + 1
        windows = (size + stride - 1) // stride
        total = max(0, (windows - 1) * stride + span - size)
        less = total // 2
        begins.append(total - less if lower else less)
        ends.append(less if lower else total - less)
    return begins + ends


# Gives the pads with which the windows fit exactly. Under ceil_mode the last one may hang over the end, but not start
# in it.
def fitting_pads(
    sizes: List[int], kernel: List[int], strides: List[int], dilations: List[int], pads: List[int], ceil_mode: bool
) -> List[int]:
    rank = len(kernel)
    ends: List[int] = []
    for i, stride in enumerate(strides):
        span = (kernel[i] - 1) * dilations[i] + 1
        begin = sizes[i + 2] + pads[i]
        room = begin + pads[rank + i] - span
        last = room // stride
        if ceil_mode:
            last = (room + stride - 1) // stride
            if last * stride >= begin:
                last = last - 1
        ends.append(last * stride + span - begin)
    return pads[:rank] + ends


# Gives pads in the order of aten::constant_pad_nd: the innermost axis first, its begin and end together.
def inner_first(pads: List[int]) -> List[int]:
    rank = len(pads) // 2
    pairs: List[int] = []
    for i in range(rank):
        pairs.append(pads[rank - 1 - i])
        pairs.append(pads[2 * rank - 1 - i])
    return pairs


# Gives a view of all windows: (N, C, positions..., kernel...).
def windows(x: Tensor, kernel: List[int], strides: List[int], dilations: List[int]) -> Tensor:
    assert x.dim() == len(kernel) + 2, "the input has {} dimensions, not {}".format(x.dim(), len(kernel) + 2)
    sizes = [x.size(0), x.size(1)]
    steps = [x.stride(0), x.stride(1)]
    for i, stride in enumerate(strides):
        span = (kernel[i] - 1) * dilations[i] + 1
        sizes.append(max(0, (x.size(i + 2) - span) // stride + 1))
        steps.append(x.stride(i + 2) * stride)
    for i, dilation in enumerate(dilations):
        steps.append(x.stride(i + 2) * dilation)
    return torch.as_strided(x, sizes + kernel, steps)


# Gives the dimensions of a view of windows that run over one window.
def window_dims(rank: int) -> List[int]:
    return [i + 2 + rank for i in range(rank)]
