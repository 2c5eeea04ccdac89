# The reductions. Absent or empty axes mean all of them, or, with noop, none: then only the rest of the operator is
# done.


def is_noop(axes: Optional[List[int]], noop: bool) -> bool:
    return noop and (axes is None or len(axes) == 0)


def reduced_axes(axes: Optional[List[int]], rank: int) -> List[int]:
    if axes is None or len(axes) == 0:
        return [i for i in range(rank)]
    return [wrapped(axis, rank) for axis in axes]


def reduce_sum(data: Tensor, axes: Optional[List[int]], keepdims: bool, noop: bool) -> Tensor:
    if is_noop(axes, noop):
        return data
    return torch.sum(data, axes, keepdims)


def reduce_mean(data: Tensor, axes: Optional[List[int]], keepdims: bool, noop: bool) -> Tensor:
    if is_noop(axes, noop):
        return data
    return torch.mean(data, axes, keepdims)


# Counts the elements that make one of the result.
def reduced_count(data: Tensor, axes: Optional[List[int]], noop: bool) -> Tensor:
    count = 1
    if not is_noop(axes, noop):
        for axis in reduced_axes(axes, data.dim()):
            count = count * data.size(axis)
    return torch.scalar_tensor(count, dtype=torch.int64, device=data.device)


def reduce_prod(data: Tensor, axes: Optional[List[int]], keepdims: bool, noop: bool) -> Tensor:
    if is_noop(axes, noop):
        return data
    descending = reduced_axes(axes, data.dim())
    descending.sort(reverse=True)
    for axis in descending:
        data = torch.prod(data, axis, keepdims)
    return data


# Reduces to maxima. aten::amax refuses empty sets: their result is `neutral`, the operand that has no effect on a
# maximum.
def reduce_max(data: Tensor, axes: Optional[List[int]], keepdims: bool, noop: bool,
               neutral: Optional[Tensor]) -> Tensor:
    if is_noop(axes, noop):
        return data
    if neutral is not None and data.numel() == 0:
        return torch.sum(data, axes, keepdims, dtype=data.dtype) + neutral
    return torch.amax(data, reduced_axes(axes, data.dim()), keepdims)


def reduce_min(data: Tensor, axes: Optional[List[int]], keepdims: bool, noop: bool,
               neutral: Optional[Tensor]) -> Tensor:
    if is_noop(axes, noop):
        return data
    if neutral is not None and data.numel() == 0:
        return torch.sum(data, axes, keepdims, dtype=data.dtype) + neutral
    return torch.amin(data, reduced_axes(axes, data.dim()), keepdims)


def reduce_l1(data: Tensor, axes: Optional[List[int]], keepdims: bool, noop: bool) -> Tensor:
    return reduce_sum(torch.abs(data), axes, keepdims, noop)


def reduce_l2(data: Tensor, axes: Optional[List[int]], keepdims: bool, noop: bool) -> Tensor:
    if is_noop(axes, noop):
        return torch.abs(data)
    return torch.linalg_vector_norm(data, 2, reduced_axes(axes, data.dim()), keepdims)


def reduce_sum_square(data: Tensor, axes: Optional[List[int]], keepdims: bool, noop: bool) -> Tensor:
    return reduce_sum(torch.square(data), axes, keepdims, noop)


def reduce_log_sum(data: Tensor, axes: Optional[List[int]], keepdims: bool, noop: bool) -> Tensor:
    return torch.log(reduce_sum(data, axes, keepdims, noop))


def reduce_log_sum_exp(data: Tensor, axes: Optional[List[int]], keepdims: bool, noop: bool) -> Tensor:
    if is_noop(axes, noop):
        return data
    return torch.logsumexp(data, reduced_axes(axes, data.dim()), keepdims)


# Reduces all integers of a list on the host to one, by an operation of shape arithmetic.
def ints_reduced(operation: str, values: List[int], of_none: Optional[int]) -> int:
    if len(values) == 0:
        assert of_none is not None, "there is no extreme of no integers"
        return of_none
    result = values[0]
    for value in values[1:]:
        result = int_arithmetic(operation, result, value)
    return result
