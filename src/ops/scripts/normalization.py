# BatchNormalization in training, InstanceNormalization, LayerNormalization, GroupNormalization-18, LpNormalization,
# MeanVarianceNormalization, LRN, Dropout.


# Normalizes each instance; an empty batch, which ATen does not take, stays as it is.
def instance_normalization(input: Tensor, scale: Tensor, B: Tensor, epsilon: float) -> Tensor:
    if input.size(0) == 0:
        return torch.clone(input)
    return torch.instance_norm(input, scale, B, None, None, True, 0.0, epsilon, False)


# Gives x with a dimension of channels.
def with_channels(x: Tensor) -> Tensor:
    return torch.unsqueeze(x, 1) if x.dim() == 1 else x


# Gives the output, the running mean and variance, and the mean and variance of this batch.
def batch_norm_training(x: Tensor, scale: Tensor, b: Tensor, mean: Tensor, var: Tensor, momentum: float,
                        epsilon: float) -> Tuple[Tensor, Tensor, Tensor, Tensor, Tensor]:
    axes = [0] + [i + 2 for i in range(x.dim() - 2)]
    batch_var, batch_mean = torch.var_mean(x, axes, unbiased=False)
    y = torch.batch_norm(x, scale, b, None, None, True, momentum, epsilon, False)
    running_mean = mean * momentum + batch_mean * (1 - momentum)
    running_var = var * momentum + batch_var * (1 - momentum)
    return y, running_mean, running_var, batch_mean, batch_var


# Normalizes. aten::layer_norm takes scale and b of exactly the normalized shape, ONNX all that broadcast.
def layer_norm(x: Tensor, scale: Tensor, b: Optional[Tensor], axis: int, epsilon: float) -> Tensor:
    shape = x.size()[wrapped(axis, x.dim()):]
    if scale.size() == shape and (b is None or b.size() == shape):
        return torch.layer_norm(x, shape, scale, b, epsilon)
    y = torch.layer_norm(x, shape, None, None, epsilon) * scale
    return y if b is None else y + b


def normalized(x: Tensor, axis: int, epsilon: float) -> Tuple[Tensor, Tensor, Tensor]:
    # aten::native_layer_norm has no gradient for the statistics that it returns.
    axes = [i for i in range(wrapped(axis, x.dim()), x.dim())]
    var, mean = torch.var_mean(x, axes, unbiased=False, keepdim=True)
    inv_std_dev = torch.rsqrt(var + epsilon)
    return (x - mean) * inv_std_dev, mean, inv_std_dev


def rms_normalized(x: Tensor, axis: int, epsilon: float) -> Tensor:
    return torch.rms_norm(x, x.size()[wrapped(axis, x.dim()):], None, epsilon)


# Repeats the scale or bias of each group for each of its channels.
def of_channels(of_groups: Tensor, x: Tensor) -> Tensor:
    return torch.repeat_interleave(of_groups, x.size(1) // of_groups.size(0))


def lp_normalization(input: Tensor, axis: int, p: int) -> Tensor:
    norm = torch.linalg_vector_norm(input, p, [axis], True)
    return torch.where(norm == 0, torch.zeros_like(input), input / norm)


def normalized_axes(rank: int, across_channels: bool) -> List[int]:
    axes = list(range(rank))
    return axes if across_channels else axes[:1] + axes[2:]


def mean_variance_normalization(x: Tensor, axes: List[int], normalize_variance: bool) -> Tensor:
    if not normalize_variance:
        return x - torch.mean(x, axes, keepdim=True)
    var, mean = torch.var_mean(x, axes, unbiased=False, keepdim=True)
    return (x - mean) / (torch.sqrt(var) + 1e-9)


def lrn(x: Tensor, size: int, alpha: float, beta: float, bias: float) -> Tensor:
    if x.numel() == 0:  # avg_pool2d does not take it
        return x
    squares = torch.unsqueeze(torch.flatten(torch.unsqueeze(torch.square(x), -1), 2), 1)
    padded = torch.constant_pad_nd(squares, [0, 0, (size - 1) // 2, size // 2], 0)
    mean = torch.reshape(torch.avg_pool2d(padded, [size, 1], [1, 1]), x.size())
    return x / torch.pow(bias + alpha * mean, beta)


def dropout(x: Tensor, ratio: float, training: bool, seed: Optional[int]) -> Tuple[Tensor, Tensor]:
    if not training or ratio == 0:
        return x, torch.ones_like(x, dtype=torch.bool)
    # The numbers are float64, as numpy has them: rounding must not bring one to the ratio.
    kept = uniform_numbers(x.size(), seed, torch.float64, x.device) >= ratio
    return x * kept * (1 / (1 - ratio)), kept
