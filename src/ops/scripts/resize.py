# Resize and Upsample, one axis at a time: each output element is a weighted sum of a few input elements.


# Gives the output's size and scale along each axis.
def resize_layout(
    sizes: List[int], scales: Optional[List[float]], target: Optional[List[int]], axes: Optional[List[int]], policy: str
) -> Tuple[List[int], List[float]]:
    rank = len(sizes)
    which = [i for i in range(rank)] if axes is None else [wrapped(axis, rank) for axis in axes]
    count = 0 if scales is None else len(scales)
    if count == 0 and target is not None:
        count = len(target)
    assert count == 0 or count == len(which), "there are {} scales or sizes for {} axes".format(count, len(which))
    outputs = sizes[:]
    factors = [1.0] * len(sizes)
    if scales is not None and len(scales) > 0:
        for i, axis in enumerate(which):
            if scales[i] != 1:
                length = sizes[axis] * scales[i]
                assert scales[i] >= 0 and length < 2147483648.0, "{} elements cannot be scaled by {}".format(
                    sizes[axis], scales[i])
                factors[axis] = scales[i]
                outputs[axis] = int(length)
    elif target is not None:
        for i, axis in enumerate(which):
            outputs[axis] = target[i]
            factors[axis] = float(target[i]) / max(1, sizes[axis])
        if policy != "stretch":
            given = [factors[axis] for axis in which]
            factor = min(given) if policy == "not_larger" else max(given)
            for axis in which:
                factors[axis] = factor
                outputs[axis] = int(factor * sizes[axis] + 0.5)
    return outputs, factors


# Tells whether a scale leads to whole lengths, whatever is scaled.
def is_whole(factor: float) -> bool:
    return factor >= 1 and factor == int(factor)


def has_empty_axis(sizes: List[int]) -> bool:
    is_empty = False
    for size in sizes:
        is_empty = is_empty or size == 0
    return is_empty


# Gives the scales that lead to whole lengths, which are the output's.
def whole_factors(sizes: List[int], outputs: List[int]) -> List[float]:
    return [float(outputs[i]) / max(1, sizes[i]) for i in range(len(sizes))]


# Gives the output's length along an axis before it was rounded down; it undoes what rounding the scale did to it.
def resized_length(size: int, output: int, factor: float) -> float:
    length = size * factor
    return float(output) if abs(length - output) <= 1e-6 * length else length


# Gives the coordinates of the output's elements in the input, along one axis. Exact ones stay exact, for the sake of
# ties.
def original_coordinates(
    size: int, output: int, factor: float, start: float, end: float, mode: str, device: Device
) -> Tensor:
    length = resized_length(size, output, factor)
    x = torch.arange(output, dtype=torch.float64, device=device)
    if mode == "align_corners":
        return torch.zeros_like(x) if length == 1 else x * (size - 1) / (length - 1)
    elif mode == "tf_crop_and_resize":
        if length == 1:
            return torch.full_like(x, 0.5 * (start + end) * (size - 1))
        return (start * (length - 1 - x) + end * x) * (size - 1) / (length - 1)
    elif mode == "pytorch_half_pixel" and output <= 1:
        return torch.zeros_like(x)
    shift = 0.0 if mode == "asymmetric" else 0.5
    x = (x + shift) * size / length if length == output else (x + shift) / factor
    if mode == "tf_half_pixel_for_nn":  # of Resize-11
        return x
    elif mode == "half_pixel_symmetric":
        x = x + 0.5 * size * (1 - output / length)
    else:
        assert mode in ["half_pixel", "pytorch_half_pixel", "asymmetric"], (
            "there is no coordinate_transformation_mode " + mode
        )
    return x - shift


# Gives coordinates rounded down. Where the scale leads to no whole length, its rounding to float32 decides what is a
# tie: 9 / 0.6 comes to less than 15. PyTorch, whose exporters write such nodes, multiplies by the inverse of the scale
# that was meant, in float32, and comes to 15. A scale of few decimals is recognized; what lies close to a tie of
# another one is taken for one.
def floored_coordinates(output: int, factor: float, device: Device) -> Tensor:
    x = torch.arange(output, dtype=torch.float32, device=device)
    meant = round(factor * 1e4) / 1e4
    if abs(meant - factor) <= 6e-8 * factor:
        return torch.floor(x * (1 / meant))
    return torch.floor(x.to(torch.float64) / factor * (1 + 1e-7))


def nearest_coordinates(x: Tensor, factor: float, mode: str) -> Tensor:
    if mode == "round_prefer_floor":
        return torch.ceil(x - 0.5)
    elif mode == "round_prefer_ceil":
        return torch.floor(x + 0.5)
    elif mode == "floor":
        return torch.floor(x)
    elif mode == "ceil":
        return torch.ceil(x)
    assert mode == "simple", "there is no nearest_mode " + mode  # of Upsample and Resize-10
    return torch.ceil(x) if factor < 1 else torch.floor(x)


def linear_weights(distance: Tensor) -> Tensor:
    return torch.clamp(1 - torch.abs(distance), min=0)


# Computes the weights of Keys' cubic convolution.
def cubic_weights(distance: Tensor, a: float) -> Tensor:
    d = torch.abs(distance)
    near = ((a + 2) * d - (a + 3)) * d * d + 1
    far = ((a * d - 5 * a) * d + 8 * a) * d - 4 * a
    return torch.where(d <= 1, near, torch.where(d < 2, far, torch.zeros_like(d)))


# Finds for each axis that changes: the input's elements that make up each element of the output, (outputs, taps), their
# weights, and which outputs lie outside the input.
def resize_taps(
    sizes: List[int],
    outputs: List[int],
    factors: List[float],
    roi: List[float],
    mode: str,
    transformation: str,
    nearest_mode: str,
    cubic_coeff_a: float,
    antialias: bool,
    exclude_outside: bool,
    device: Device,
) -> Tuple[List[int], List[Tensor], List[Tensor], List[Tensor]]:
    axes: List[int] = []
    indices: List[Tensor] = []
    weights: List[Tensor] = []
    outside: List[Tensor] = []
    rank = len(sizes)
    for axis, size in enumerate(sizes):
        start = roi[axis] if len(roi) > 0 else 0.0
        end = roi[rank + axis] if len(roi) > 0 else 1.0
        factor = factors[axis]
        if outputs[axis] != size or abs(factor - 1) > 1e-6 or start != 0 or end != 1:
            x = original_coordinates(size, outputs[axis], factor, start, end, transformation, device)
            axes.append(axis)
            outside.append(torch.logical_or(x < 0, x > size - 1))
            if mode == "nearest":
                is_whole = resized_length(size, outputs[axis], factor) == outputs[axis]
                if transformation == "asymmetric" and nearest_mode == "floor" and not is_whole:
                    index = torch.unsqueeze(floored_coordinates(outputs[axis], factor, device), 1)
                else:
                    index = torch.unsqueeze(nearest_coordinates(x, factor, nearest_mode), 1)
            else:
                # An antialiasing filter is as wide as the input elements of one output element.
                squeeze = min(1.0, factor) if antialias else 1.0
                reach = torch.ceil((2 if mode == "cubic" else 1) / squeeze)
                base = torch.unsqueeze(torch.floor(x), 1)
                index = base + torch.arange(1 - reach, reach + 1, device=device)
                distance = (index - torch.unsqueeze(x, 1)) * squeeze
                weight = cubic_weights(distance, cubic_coeff_a) if mode == "cubic" else linear_weights(distance)
                if exclude_outside:
                    weight = torch.where(
                        torch.logical_or(index < 0, index > size - 1), torch.zeros_like(weight), weight
                    )
                if exclude_outside or antialias:
                    weight = weight / torch.sum(weight, 1, True)
                weights.append(weight)
            indices.append(torch.clamp(index, 0, size - 1).to(torch.int64))
    return axes, indices, weights, outside


# Gives the shape in which a vector broadcasts along an axis; `along` gives the vector in that shape.
def shape_along(axis: int, rank: int) -> List[int]:
    return [-1] + [1] * (rank - 1 - axis)


def along(vector: Tensor, axis: int, rank: int) -> Tensor:
    return torch.reshape(vector, shape_along(axis, rank))


# Resamples along an axis: each output element is a weighted sum of elements of the input, by (outputs, taps) of indices
# and weights.
@kept
def resampled(x: Tensor, axis: int, indices: Tensor, taps: Tensor) -> Tensor:
    shape = shape_along(axis, x.dim())
    result = torch.index_select(x, axis, indices[:, 0]) * torch.reshape(taps[:, 0], shape)
    for k in range(1, taps.size(1)):
        result = result + torch.index_select(x, axis, indices[:, k]) * torch.reshape(taps[:, k], shape)
    return result


def resize_nearest(x: Tensor, axes: List[int], indices: List[Tensor]) -> Tensor:
    for i, axis in enumerate(axes):
        x = torch.index_select(x, axis, indices[i][:, 0])
    return x


def resize_weighted(x: Tensor, axes: List[int], indices: List[Tensor], weights: List[Tensor], dtype: int) -> Tensor:
    y = x.to(dtype)
    for i, axis in enumerate(axes):
        y = resampled(y, axis, indices[i], weights[i].to(dtype))
    return y


def resize_extrapolated(y: Tensor, axes: List[int], outside: List[Tensor], value: float) -> Tensor:
    for i, axis in enumerate(axes):
        y = torch.masked_fill(y, along(outside[i], axis, y.dim()), value)
    return y


# Gives the region of tf_crop_and_resize along all axes; an axis that `axes` leaves out has the whole of it.
def resize_roi(roi: List[float], axes: Optional[List[int]], rank: int) -> List[float]:
    if axes is None:
        return roi
    starts = [0.0] * rank
    ends = [1.0] * rank
    for i, axis in enumerate(axes):
        starts[axis] = roi[i]
        ends[axis] = roi[len(axes) + i]
    return starts + ends


# Tells whether only the one to three axes after the batch and the channels change: then aten::upsample_* fits.
def resizes_planes(sizes: List[int], outputs: List[int], factors: List[float]) -> bool:
    if len(sizes) < 3 or len(sizes) > 5:
        return False
    return sizes[0] == outputs[0] and sizes[1] == outputs[1] and factors[0] == 1.0 and factors[1] == 1.0


# Tells whether aten::upsample_nearest* fits: it multiplies by the inverse of the scale, which is exact for a power of
# two.
def resizes_nearest_by_aten(sizes: List[int], outputs: List[int], factors: List[float]) -> bool:
    fits = resizes_planes(sizes, outputs, factors)
    for i, output in enumerate(outputs[2:]):
        factor = factors[i + 2]
        size = max(1, sizes[i + 2])
        ratio = int(factor) if is_whole(factor) else output // size
        fits = fits and ratio & (ratio - 1) == 0
        fits = fits and (is_whole(factor) or resized_length(size, output, factor) == ratio * size)
    return fits


# Tells whether aten::upsample_linear1d and its kin fit: they know half_pixel, without PyTorch's special case, and
# align_corners, by which asymmetric can be expressed.
def resizes_smoothly_by_aten(
    sizes: List[int], outputs: List[int], factors: List[float], mode: str, transformation: str
) -> bool:
    fits = resizes_planes(sizes, outputs, factors) and (mode != "cubic" or len(sizes) == 4)
    for i, output in enumerate(outputs[2:]):
        factor = factors[i + 2]
        if transformation == "align_corners" or transformation == "asymmetric":
            fits = fits and (is_whole(factor) or resized_length(sizes[i + 2], output, factor) == output)
        else:
            # ATen copies an axis that stays as long, whatever the scale is.
            fits = fits and (is_whole(factor) or output != sizes[i + 2])
            if transformation == "pytorch_half_pixel":
                fits = fits and (factor >= 2 or output != 1)
    return fits


def upsample_nearest(x: Tensor, outputs: List[int]) -> Tensor:
    sizes = outputs[2:]
    if has_empty_axis(outputs):
        return x.new_zeros(outputs)
    elif len(sizes) == 1:
        return torch.upsample_nearest1d(x, sizes, None)
    elif len(sizes) == 2:
        return torch.upsample_nearest2d(x, sizes, None, None)
    return torch.upsample_nearest3d(x, sizes, None, None, None)


# Upsamples by asymmetric coordinates, as align_corners with one element more at the end of the input and of the output:
# the coordinates then have the same steps, and the corners that it brings together lie beyond those of asymmetric.
def upsample_asymmetric(x: Tensor, outputs: List[int]) -> Tensor:
    sizes = [output + 1 for output in outputs[2:]]
    if has_empty_axis(outputs):
        return x.new_zeros(outputs)
    elif len(sizes) == 1:
        y = torch.upsample_linear1d(torch.replication_pad1d(x, [0, 1]), sizes, True, None)
    elif len(sizes) == 2:
        y = torch.upsample_bilinear2d(torch.replication_pad2d(x, [0, 1, 0, 1]), sizes, True, None, None)
    else:
        y = torch.upsample_trilinear3d(torch.replication_pad3d(x, [0, 1, 0, 1, 0, 1]), sizes, True, None, None, None)
    for i, output in enumerate(outputs[2:]):
        y = torch.slice(y, i + 2, 0, output)
    return y


def upsample_smooth(x: Tensor, outputs: List[int], factors: List[float], cubic: bool, align_corners: bool) -> Tensor:
    sizes = outputs[2:]
    if has_empty_axis(outputs):
        return x.new_zeros(outputs)
    elif len(sizes) == 1:
        return torch.upsample_linear1d(x, sizes, align_corners, factors[2])
    elif len(sizes) == 3:
        return torch.upsample_trilinear3d(x, sizes, align_corners, factors[2], factors[3], factors[4])
    elif cubic:
        return torch.upsample_bicubic2d(x, sizes, align_corners, factors[2], factors[3])
    return torch.upsample_bilinear2d(x, sizes, align_corners, factors[2], factors[3])
