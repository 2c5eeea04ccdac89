# The pools. Where ATen has no pool of a kind, views of all windows are reduced.


# Counts the elements of each window, as a tensor that broadcasts over (N, C, positions...): the input's own, and with
# count_include_pad those of the given pads, though not those that ceil_mode added to them.
def window_counts(
    sizes: List[int],
    kernel: List[int],
    strides: List[int],
    dilations: List[int],
    pads: List[int],
    fitting: List[int],
    count_include_pad: bool,
    device: Device,
) -> Tensor:
    rank = len(kernel)
    counts = torch.ones([1, 1], device=device)
    for i, stride in enumerate(strides):
        span = (kernel[i] - 1) * dilations[i] + 1
        begin = pads[i]
        size = sizes[i + 2]
        positions = (begin + size + fitting[rank + i] - span) // stride + 1
        starts = torch.arange(positions, device=device) * stride - begin
        inside = torch.arange(kernel[i], device=device) * dilations[i]
        elements = torch.unsqueeze(starts, 1) + inside
        first = -begin if count_include_pad else 0
        last = size + pads[rank + i] if count_include_pad else size
        counted = torch.sum(torch.logical_and(elements >= first, elements < last), 1)
        counts = torch.unsqueeze(counts, -1) * counted
    return counts


def windows_average(x: Tensor, counts: Tensor, kernel: List[int], strides: List[int], dilations: List[int]) -> Tensor:
    sums = torch.sum(
        windows(x, kernel, strides, dilations),
        window_dims(len(kernel)),
        dtype=torch.promote_types(x.dtype, torch.float32),
    )
    return (sums / counts).to(x.dtype)


def windows_norm(x: Tensor, kernel: List[int], strides: List[int], dilations: List[int], p: number) -> Tensor:
    return torch.linalg_vector_norm(windows(x, kernel, strides, dilations), p, window_dims(len(kernel)))


# Gives the maxima of windows, with indices as aten::max_pool2d_with_indices has them: into each plane, flattened.
def windows_max(x: Tensor, kernel: List[int], strides: List[int], dilations: List[int]) -> Tuple[Tensor, Tensor]:
    rank = len(kernel)
    values, elements = torch.max(torch.flatten(windows(x, kernel, strides, dilations), 2 + rank, -1), -1)
    indices = torch.zeros_like(elements)
    plane = 1
    for k in range(rank):
        axis = rank - 1 - k
        starts = torch.arange(values.size(axis + 2), device=x.device) * strides[axis]
        position = torch.reshape(starts, [-1] + [1] * k) + elements % kernel[axis] * dilations[axis]
        indices = indices + position * plane
        plane = plane * x.size(axis + 2)
        elements = elements // kernel[axis]
    return values, indices


# Turns indices into each plane of a padded input into MaxPool's Indices, which are into the whole flattened input.
def pool_indices(indices: Tensor, padded: List[int], pads: List[int], sizes: List[int], column_major: bool) -> Tensor:
    rank = len(sizes) - 2
    steps: List[int] = []
    plane = 1
    for i in range(rank):
        steps.append(plane)
        plane = plane * (sizes[i + 2] if column_major else sizes[rank + 1 - i])
    if not column_major:
        steps.reverse()
    result = torch.zeros_like(indices)
    rest = indices
    for k in range(rank):
        axis = rank - 1 - k
        result = result + (rest % padded[axis + 2] - pads[axis]) * steps[axis]
        rest = rest // padded[axis + 2]
    planes = torch.arange(sizes[0] * sizes[1], device=indices.device) * plane
    return result + torch.reshape(planes, sizes[:2] + [1] * rank)


def spatial_dims(x: Tensor) -> List[int]:
    return [i + 2 for i in range(x.dim() - 2)]


def global_average_pool(X: Tensor) -> Tensor:
    return X if X.dim() == 2 else torch.mean(X, spatial_dims(X), True)


def global_max_pool(X: Tensor) -> Tensor:
    return X if X.dim() == 2 else torch.amax(X, spatial_dims(X), True)


def global_lp_pool(X: Tensor, p: number) -> Tensor:
    return torch.abs(X) if X.dim() == 2 else torch.linalg_vector_norm(X, p, spatial_dims(X), True)


# Unpools. The indices are into the shape that was pooled; an output_shape extends it, or cuts it.
def max_unpool(
    X: Tensor,
    I: Tensor,
    output_shape: Optional[List[int]],
    kernel_shape: List[int],
    strides: Optional[List[int]],
    pads: Optional[List[int]],
) -> Tensor:
    rank = len(kernel_shape)
    steps = given_or(strides, rank, 1)
    margins = given_or(pads, 2 * rank, 0)
    sizes = X.size()[:2]
    for i, kernel in enumerate(kernel_shape):
        sizes.append((X.size(i + 2) - 1) * steps[i] - margins[i] - margins[rank + i] + kernel)
    total = 1
    for size in sizes:
        total = total * size
    y = torch.zeros([total], dtype=X.dtype, device=X.device)
    y = torch.reshape(torch.scatter(y, 0, torch.flatten(I), torch.flatten(X)), sizes)
    if output_shape is not None:
        extra: List[int] = []
        for i in range(len(sizes)):
            axis = len(sizes) - 1 - i
            extra.append(0)
            extra.append(output_shape[axis] - sizes[axis])
        y = torch.constant_pad_nd(y, extra, 0)
    return y


def max_roi_pool(X: Tensor, rois: Tensor, pooled_shape: List[int], spatial_scale: float) -> Tensor:
    return torch.ops.onnx_torch.max_roi_pool(X, rois, pooled_shape, spatial_scale)


def roi_align(
    X: Tensor,
    rois: Tensor,
    batch_indices: Tensor,
    coordinate_transformation_mode: str,
    mode: str,
    output_height: int,
    output_width: int,
    sampling_ratio: int,
    spatial_scale: float,
) -> Tensor:
    return torch.ops.onnx_torch.roi_align(
        X,
        rois,
        batch_indices,
        coordinate_transformation_mode,
        mode,
        output_height,
        output_width,
        sampling_ratio,
        spatial_scale,
    )
