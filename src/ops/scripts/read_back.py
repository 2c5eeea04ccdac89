# The one place where a graph reads tensors of unknown value back to the host.


def read_ints(x: Tensor) -> List[int]:
    values: List[int] = torch.reshape(x, [-1]).to(torch.int64).cpu().tolist()
    return values


def read_floats(x: Tensor) -> List[float]:
    values: List[float] = torch.reshape(x, [-1]).to(torch.float64).cpu().tolist()
    return values
