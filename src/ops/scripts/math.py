# Clip, CumSum, CumProd.


# Clips between bounds, which may be out of the input's range: as tensors of its dtype they are infinite then.
def clip_by_attributes(input: Tensor, min: Optional[float], max: Optional[float]) -> Tensor:
    if min is not None:
        input = torch.maximum(input, torch.scalar_tensor(min, dtype=input.dtype, device=input.device))
    if max is not None:
        input = torch.minimum(input, torch.scalar_tensor(max, dtype=input.dtype, device=input.device))
    return input


# Gives what comes before each slice, or after it in reverse: x without the slice at its end, and with `first` for the
# one that is missing.
def shifted_along(x: Tensor, axis: int, first: float, reverse: bool) -> Tensor:
    size = x.size(axis)
    kept = torch.narrow(x, axis, min(size, 1) if reverse else 0, max(size - 1, 0))
    missing = torch.full_like(torch.narrow(x, axis, 0, min(size, 1)), first)
    return torch.cat([kept, missing] if reverse else [missing, kept], axis)


@kept
def running_sum(x: Tensor, axis: int, reverse: bool) -> Tensor:
    if reverse:
        return torch.flip(torch.cumsum(torch.flip(x, [axis]), axis, dtype=x.dtype), [axis])
    return torch.cumsum(x, axis, dtype=x.dtype)


@kept
def running_product(x: Tensor, axis: int, reverse: bool) -> Tensor:
    if reverse:
        return torch.flip(torch.cumprod(torch.flip(x, [axis]), axis, dtype=x.dtype), [axis])
    return torch.cumprod(x, axis, dtype=x.dtype)


def cumulative_sum(x: Tensor, axis: int, exclusive: bool, reverse: bool) -> Tensor:
    return running_sum(shifted_along(x, axis, 0.0, reverse) if exclusive else x, axis, reverse)


def cumulative_product(x: Tensor, axis: int, exclusive: bool, reverse: bool) -> Tensor:
    return running_product(shifted_along(x, axis, 1.0, reverse) if exclusive else x, axis, reverse)
