# Reshape, Flatten, Unsqueeze. Functions of lists are shape arithmetic: where the shapes are known they vanish.


def kept_sizes(sizes: List[int], shape: List[int]) -> List[int]:
    assert len(shape) <= 1024, "a shape has 1024 dimensions at most"
    result: List[int] = []
    for i, size in enumerate(shape):
        result.append(sizes[i] if size == 0 else size)
    return result


def kept_size(x: Tensor, dim: int, size: int) -> int:
    return x.size(dim) if size == 0 else size


def flat_sizes(sizes: List[int], axis: int) -> List[int]:
    rows = 1
    for size in sizes[:axis]:
        rows = rows * size
    columns = 1
    for size in sizes[axis:]:
        columns = columns * size
    return [rows, columns]


# As for ATen, a scalar's only element lies along an axis, too.
def wrapped(axis: int, rank: int) -> int:
    axes = max(rank, 1)
    assert -axes <= axis and axis < axes, "axis {} is out of range for {} dimensions".format(axis, rank)
    return axis % axes


def unsqueeze(data: Tensor, axes: List[int]) -> Tensor:
    rank = data.dim() + len(axes)
    ascending = [wrapped(axis, rank) for axis in axes]
    ascending.sort()
    for axis in ascending:
        data = torch.unsqueeze(data, axis)
    return data
