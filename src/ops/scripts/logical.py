# BitShift, IsInf.


# Shifts uint64, whose bits are those of int64: the first step clears the sign, which the others would copy. ATen shifts
# everything out where y is out of range.
def unsigned_shift_right_by(x: Tensor, y: Tensor) -> Tensor:
    half = torch.bitwise_and(torch.bitwise_right_shift(x, 1), 0x7FFFFFFFFFFFFFFF)
    return torch.where(y == 0, x, torch.bitwise_right_shift(half, y - 1))


def isinf(X: Tensor, detect_negative: bool, detect_positive: bool) -> Tensor:
    if detect_negative and detect_positive:
        return torch.isinf(X)
    if detect_negative:
        return torch.isneginf(X)
    if detect_positive:
        return torch.isposinf(X)
    return torch.zeros_like(X, dtype=torch.bool)
