# With a seed, the numbers of numpy's RandomState; without, those of ATen's generator.


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


# As RandomState.binomial(1, p) does it: it draws no number where p is 0, and compares with the rarer outcome's side.
def bernoulli(input: Tensor, seed: Optional[int]) -> Tensor:
    if seed is None:
        return torch.bernoulli(input)
    p = torch.to(input, torch.float64)
    drawn = p.ne(0)
    numbers = torch.to(torch.ops.onnx_torch.numpy_random_uniform([input.numel()], seed), input.device)
    order = torch.reshape(torch.cumsum(torch.flatten(drawn), 0), input.size()) - 1
    u = numbers[torch.clamp(order, 0)]
    return torch.logical_and(drawn, torch.where(p <= 0.5, u > 1 - p, u <= p))


def multinomial(input: Tensor, sample_size: int, seed: Optional[int]) -> Tensor:
    p = torch.softmax(torch.to(input, torch.float64), 1)
    if seed is None:
        return torch.multinomial(p, sample_size, True)
    cumulative = torch.cumsum(p, 1)
    cumulative = cumulative / cumulative[:, -1:]
    u = torch.to(torch.ops.onnx_torch.numpy_random_uniform([p.size(0), sample_size], seed), p.device)
    return torch.searchsorted(cumulative, u, right=True)
