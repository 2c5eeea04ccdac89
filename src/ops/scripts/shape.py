# Reshape, Flatten, Squeeze, Unsqueeze. Functions of lists are shape arithmetic: where the shapes are known they vanish.


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


# Counts an axis from the first one. As for ATen, a scalar's only element lies along an axis, too.
def wrapped(axis: int, rank: int) -> int:
    axes = max(rank, 1)
    assert -axes <= axis and axis < axes, "axis {} is out of range for {} dimensions".format(axis, rank)
    return axis % axes


def ascending(axes: List[int], rank: int) -> List[int]:
    result = [wrapped(axis, rank) for axis in axes]
    result.sort()
    for axis, later in zip(result, result[1:]):
        assert axis < later, "axis {} is named twice".format(axis)
    return result


def unsqueeze(data: Tensor, axes: List[int]) -> Tensor:
    for axis in ascending(axes, data.dim() + len(axes)):
        data = torch.unsqueeze(data, axis)
    return data


# Removes a dimension of size 1.
def without_dimension(x: Tensor, dim: int) -> Tensor:
    size = x.size(dim)
    assert size == 1, "the size along axis {} is {}, not 1".format(dim, size)
    return torch.select(x, dim, 0)


# Removes a dimension, whatever its size: in a run that gets past the assertion it is 1.
def without_dimension_of_sizes(x: Tensor, dim: int) -> Tensor:
    return torch.select(x, dim, 0)


def squeeze(data: Tensor, axes: List[int]) -> Tensor:
    for i, axis in enumerate(ascending(axes, data.dim())):
        data = without_dimension(data, axis - i)
    return data
