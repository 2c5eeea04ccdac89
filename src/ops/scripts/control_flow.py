# Loop, Scan.


def stack_iterations(items: List[Tensor], axis: int, reverse: bool, dtype: int, device: Device) -> Tensor:
    if len(items) == 0:
        return torch.empty([0], dtype=dtype, device=device)
    if reverse:
        items = items[::-1]
    first = items[0]
    return torch.stack(items, axis)


def fill_up_rows(x: Tensor, rows: int) -> Tensor:
    missing = x.new_zeros([rows - x.size(0)] + x.size()[1:])
    return torch.cat([x, missing], 0)
