# Shape, Reshape, Flatten, Unsqueeze, Expand.


def shape_slice(sizes: List[int], start: int, end: Optional[int]) -> List[int]:
    rank = len(sizes)
    last = rank if end is None else end
    start = start + rank if start < 0 else start
    last = last + rank if last < 0 else last
    return sizes[max(0, min(start, rank)):max(0, min(last, rank))]


def reshape(data: Tensor, shape: List[int], allowzero: Optional[int]) -> Tensor:
    sizes: List[int] = []
    for i, size in enumerate(shape):
        keep = size == 0 and (allowzero is None or allowzero == 0)
        sizes.append(data.size(i) if keep else size)
    return torch.reshape(data, sizes)


def flatten(input: Tensor, axis: int) -> Tensor:
    if axis < 0:
        axis = axis + input.dim()
    rows = 1
    for size in input.size()[:axis]:
        rows = rows * size
    columns = 1
    for size in input.size()[axis:]:
        columns = columns * size
    return torch.reshape(input, [rows, columns])


def unsqueeze(data: Tensor, axes: List[int]) -> Tensor:
    rank = data.dim() + len(axes)
    ascending = [axis % rank for axis in axes]
    ascending.sort()
    for axis in ascending:
        data = torch.unsqueeze(data, axis)
    return data


def expand(input: Tensor, shape: List[int]) -> Tensor:
    return torch.expand_copy(input, torch._infer_size(input.size(), shape))
