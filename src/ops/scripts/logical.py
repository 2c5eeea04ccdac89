# BitShift, IsInf.


# Shifts uint64: zeros come in where int64 has copies of the sign. ATen shifts everything out where y is out of range.
def unsigned_shift_right_by(x: Tensor, y: Tensor) -> Tensor:
    kept = torch.bitwise_not(torch.bitwise_left_shift(torch.full_like(y, -1), 64 - y))
    in_range = torch.logical_and(y >= 0, y < 64)
    return torch.where(in_range, torch.bitwise_and(torch.bitwise_right_shift(x, y), kept), 0)


def isinf(X: Tensor, detect_negative: bool, detect_positive: bool) -> Tensor:
    if detect_negative and detect_positive:
        return torch.isinf(X)
    if detect_negative:
        return torch.isneginf(X)
    if detect_positive:
        return torch.isposinf(X)
    return torch.zeros_like(X, dtype=torch.bool)
