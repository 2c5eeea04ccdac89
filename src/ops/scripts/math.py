# Clip, CumSum, CumProd.


# Clips between bounds, which may be out of the input's range: as tensors of its dtype they are infinite then.
def clip_by_attributes(input: Tensor, min: Optional[float], max: Optional[float]) -> Tensor:
    if min is not None:
        input = torch.maximum(input, torch.scalar_tensor(min, dtype=input.dtype, device=input.device))
    if max is not None:
        input = torch.minimum(input, torch.scalar_tensor(max, dtype=input.dtype, device=input.device))
    return input


# Gives what comes before each slice: x without its own last slice, and with `first` in front.
def shifted_along(x: Tensor, axis: int, first: float) -> Tensor:
    kept = torch.narrow(x, axis, 0, max(x.size(axis) - 1, 0))
    front = torch.full_like(torch.narrow(x, axis, 0, min(x.size(axis), 1)), first)
    return torch.cat([front, kept], axis)


def cumulative_sum(x: Tensor, axis: int, exclusive: bool, reverse: bool) -> Tensor:
    dtype = x.dtype
    x = torch.flip(x, [axis]) if reverse else x
    x = shifted_along(x, axis, 0.0) if exclusive else x
    x = torch.cumsum(x, axis, dtype=dtype)
    return torch.flip(x, [axis]) if reverse else x


def cumulative_product(x: Tensor, axis: int, exclusive: bool, reverse: bool) -> Tensor:
    dtype = x.dtype
    x = torch.flip(x, [axis]) if reverse else x
    x = shifted_along(x, axis, 1.0) if exclusive else x
    x = torch.cumprod(x, axis, dtype=dtype)
    return torch.flip(x, [axis]) if reverse else x
