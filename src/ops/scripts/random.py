# The random operators. With a seed, they draw the numbers of numpy's RandomState; without, those of ATen's generator.


def uniform_numbers(shape: List[int], seed: Optional[int], dtype: int, device: Device) -> Tensor:
    if seed is None:
        return torch.rand(shape, dtype=dtype, device=device)
    return torch.to(torch.ops.onnx_torch.numpy_random_uniform(shape, seed), device, dtype)


def normal_numbers(shape: List[int], seed: Optional[int], dtype: int, device: Device) -> Tensor:
    if seed is None:
        return torch.randn(shape, dtype=dtype, device=device)
    return torch.to(torch.ops.onnx_torch.numpy_random_normal(shape, seed), device, dtype)


def scaled(x: Tensor, scale: float, offset: float) -> Tensor:
    return x * scale + offset


# Draws 0 or 1. With a seed, it does as RandomState.binomial(1, p), which compares with the rarer outcome's side.
def bernoulli(input: Tensor, seed: Optional[int]) -> Tensor:
    if seed is None:
        return torch.bernoulli(input)
    p = torch.to(input, torch.float64)
    u = uniform_numbers(p.size(), seed, torch.float64, p.device)
    return torch.where(p <= 0.5, u > 1 - p, u <= p)


def multinomial(input: Tensor, sample_size: int, seed: Optional[int]) -> Tensor:
    p = torch.softmax(torch.to(input, torch.float64), 1)
    if seed is None:
        return torch.multinomial(p, sample_size, True)
    cumulative = torch.cumsum(p, 1)
    cumulative = cumulative / cumulative[:, -1:]
    u = uniform_numbers([p.size(0), sample_size], seed, torch.float64, p.device)
    return torch.searchsorted(cumulative, u, right=True)
