# Split, Slice, CenterCropPad, Transpose, Tile, DepthToSpace, SpaceToDepth, Pad, EyeLike, Range, OneHot.
# Functions of lists are shape arithmetic: where the shapes are known they vanish.


def equal_parts(size: int, count: int) -> List[int]:
    part = (size + count - 1) // count
    return [max(0, min(part, size - i * part)) for i in range(count)]


def split_borders(size: int, parts: List[int]) -> List[int]:
    borders = [0]
    for part in parts:
        borders.append(borders[-1] + part)
    assert borders[-1] == size, "the parts add up to {}, not to {}".format(borders[-1], size)
    return borders


# Slices backward, as ATen's slice knows no negative steps.
def slice_backward(data: Tensor, axis: int, start: int, end: int, step: int) -> Tensor:
    size = data.size(axis)
    first = max(0, min(start + size if start < 0 else start, size - 1))
    last = max(-1, min(end + size if end < 0 else end, size - 1))
    kept = torch.slice(data, axis, last + 1, first + 1)
    return torch.slice(torch.flip(kept, [axis]), axis, None, None, -step)


def slice(
    data: Tensor, starts: List[int], ends: List[int], axes: Optional[List[int]], steps: Optional[List[int]]
) -> Tensor:
    count = len(starts)
    assert count == len(ends) and (axes is None or count == len(axes)) and (steps is None or count == len(steps)), (
        "starts, ends, axes and steps must be equally long"
    )
    for i in range(count):
        axis = i if axes is None else axes[i]
        step = 1 if steps is None else steps[i]
        if step > 0:
            data = torch.slice(data, axis, starts[i], ends[i], step)
        else:
            data = slice_backward(data, axis, starts[i], ends[i], step)
    return data


# Gives pads in ATen's order, from the last axis to the first, the begin and the end of each.
def aten_pads(rank: int, pads: List[int], axes: Optional[List[int]]) -> List[int]:
    count = rank if axes is None else len(axes)
    assert len(pads) == 2 * count, "there are {} pads for {} axes".format(len(pads), count)
    result = [0] * (2 * rank)
    for i in range(count):
        axis = i if axes is None else wrapped(axes[i], rank)
        result[2 * (rank - 1 - axis)] = pads[i]
        result[2 * (rank - 1 - axis) + 1] = pads[count + i]
    return result


def center_pads(sizes: List[int], shape: List[int], axes: Optional[List[int]]) -> List[int]:
    begins: List[int] = []
    ends: List[int] = []
    count = len(sizes) if axes is None else len(axes)
    assert len(shape) == count, "there are {} sizes for {} axes".format(len(shape), count)
    for i, target in enumerate(shape):
        missing = target - sizes[i if axes is None else axes[i]]
        begin = missing // 2 if missing > 0 else -(-missing // 2)
        begins.append(begin)
        ends.append(missing - begin)
    return aten_pads(len(sizes), begins + ends, axes)


# Gives the index of the element that stands for a position outside an axis.
def reflected_position(position: Tensor, size: int, mode: str) -> Tensor:
    if mode == "edge":
        return torch.clamp(position, 0, size - 1)
    if mode == "wrap":
        return torch.remainder(position, size)
    period = max(1, 2 * (size - 1))
    return (size - 1) - torch.abs((size - 1) - torch.remainder(position, period))


# Pads along an axis; negative pads crop first.
def pad_axis(x: Tensor, axis: int, begin: int, end: int, mode: str, device: Device) -> Tensor:
    if begin < 0 or end < 0:
        assert begin >= -x.size(axis) and end >= -x.size(axis) - min(0, begin), "pads take away more than there is"
        x = torch.slice(x, axis, max(0, -begin), x.size(axis) + min(0, end))
    size = x.size(axis)
    assert size > 0 or (begin <= 0 and end <= 0), "there is nothing to pad with on an empty axis"
    before = torch.arange(-max(0, begin), 0, device=device)
    after = torch.arange(size, size + max(0, end), device=device)
    left = torch.index_select(x, axis, reflected_position(before, size, mode))
    right = torch.index_select(x, axis, reflected_position(after, size, mode))
    return torch.cat([left, x, right], axis)


@kept
def pad_from_inside(data: Tensor, pads: List[int], mode: str, device: Device) -> Tensor:
    last = data.dim() - 1
    for i in range(data.dim()):
        begin = pads[2 * i]
        end = pads[2 * i + 1]
        if begin != 0 or end != 0:
            data = pad_axis(data, last - i, begin, end, mode, device)
    return data


def reversed_axes(rank: int) -> List[int]:
    return [rank - 1 - axis for axis in range(rank)]


def repeats_along(rank: int, axis: int, repeats: int) -> List[int]:
    result = [1] * rank
    result[axis] = repeats
    return result


# Moves depth to space, with the blocks in depth, column, row order; ATen's pixel_shuffle has them in column, row, depth
# order.
def depth_to_space(input: Tensor, blocksize: int) -> Tensor:
    n, c, h, w = input.size()
    blocks = torch.reshape(input, [n, blocksize, blocksize, c // (blocksize * blocksize), h, w])
    spread = torch.permute(blocks, [0, 3, 4, 1, 5, 2])
    return torch.reshape(spread, [n, c // (blocksize * blocksize), h * blocksize, w * blocksize])


def space_to_depth(input: Tensor, blocksize: int) -> Tensor:
    n, c, h, w = input.size()
    blocks = torch.reshape(input, [n, c, h // blocksize, blocksize, w // blocksize, blocksize])
    gathered = torch.permute(blocks, [0, 3, 5, 1, 2, 4])
    return torch.reshape(gathered, [n, c * blocksize * blocksize, h // blocksize, w // blocksize])


def eye_like(input: Tensor, k: int, dtype: int) -> Tensor:
    if k == 0:
        return torch.eye(input.size(0), input.size(1), dtype=dtype, device=input.device)
    rows = torch.arange(input.size(0), device=input.device)
    columns = torch.arange(input.size(1), device=input.device)
    return torch.eq(torch.unsqueeze(rows + k, 1), columns).to(dtype)


def range_of_ints(start: int, limit: int, delta: int, dtype: int, device: Device) -> Tensor:
    assert delta != 0, "delta must not be 0"
    length = limit - start
    assert (length >= 0) == (limit >= start) and length > -9223372036854775807, (
        "the range from {} to {} is too long".format(start, limit)
    )
    count = max(0, -(-length // delta))
    return torch.arange(start, start + count * delta, delta, dtype=dtype, device=device)


def range_of_floats(start: Tensor, limit: Tensor, delta: Tensor, computed: int, dtype: int) -> Tensor:
    first = torch.reshape(start, []).to(computed)
    step = torch.reshape(delta, []).to(computed)
    count = read_ints(torch.ceil((torch.reshape(limit, []).to(computed) - first) / step))[0]
    steps = torch.arange(max(0, count), dtype=computed, device=start.device)
    return (first + steps * step).to(dtype)


def one_hot(indices: Tensor, depth: int, values: Tensor, axis: int, negative_indices: bool) -> Tensor:
    rank = indices.dim() + 1
    index = torch.unsqueeze(indices.to(torch.int64), axis)
    if negative_indices:
        index = torch.where(index < 0, index + depth, index)
    classes_shape = repeats_along(rank, axis, depth)
    classes = torch.reshape(torch.arange(depth, device=indices.device), classes_shape)
    return torch.where(torch.eq(index, classes), values[1], values[0])
