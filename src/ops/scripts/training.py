# Gradient, Adagrad, Adam, Momentum. The optimizers' inputs are all tensors to optimize, then all their gradients, then all
# of each kind of state; their outputs are the new tensors, then the new states.


def gradients(y: Tensor, xs: List[Tensor]) -> List[Tensor]:
    ones: List[Optional[Tensor]] = [torch.ones_like(y)]
    found = torch.grad([y], xs, ones, retain_graph=True, create_graph=True, allow_unused=True)
    results: List[Tensor] = []
    for x, slope in zip(xs, found):
        results.append(torch.zeros_like(x) if slope is None else slope)
    return results


def adagrad(R: Tensor, T: Tensor, inputs: List[Tensor], norm_coefficient: float, decay_factor: float, epsilon: float) -> List[Tensor]:
    n = len(inputs) // 3
    rate = R / (1 + T * decay_factor)
    xs: List[Tensor] = []
    squares: List[Tensor] = []
    for i in range(n):
        slope = norm_coefficient * inputs[i] + inputs[n + i]
        square = inputs[2 * n + i] + slope * slope
        xs.append(inputs[i] - rate * slope / (torch.sqrt(square) + epsilon))
        squares.append(square)
    return xs + squares


def adam(R: Tensor, T: Tensor, inputs: List[Tensor], alpha: float, beta: float, epsilon: float, norm_coefficient: float, norm_coefficient_post: float) -> List[Tensor]:
    n = len(inputs) // 4
    adjusted = R * torch.sqrt(1 - torch.pow(beta, T)) / (1 - torch.pow(alpha, T))
    rate = torch.where(T > 0, adjusted, R)
    xs: List[Tensor] = []
    means: List[Tensor] = []
    squares: List[Tensor] = []
    for i in range(n):
        slope = norm_coefficient * inputs[i] + inputs[n + i]
        mean = alpha * inputs[2 * n + i] + (1 - alpha) * slope
        square = beta * inputs[3 * n + i] + (1 - beta) * slope * slope
        x = inputs[i] - rate * mean / (torch.sqrt(square) + epsilon)
        xs.append((1 - norm_coefficient_post) * x)
        means.append(mean)
        squares.append(square)
    return xs + means + squares


def momentum(R: Tensor, T: Tensor, inputs: List[Tensor], alpha: float, beta: float, norm_coefficient: float, mode: str) -> List[Tensor]:
    n = len(inputs) // 3
    xs: List[Tensor] = []
    speeds: List[Tensor] = []
    for i in range(n):
        slope = norm_coefficient * inputs[i] + inputs[n + i]
        speed = alpha * inputs[2 * n + i] + torch.where(T > 0, beta * slope, slope)
        direction = slope + alpha * speed if mode == "nesterov" else speed
        xs.append(inputs[i] - R * direction)
        speeds.append(speed)
    return xs + speeds
