# The experimental operators of early ONNX releases; many were Caffe2's.


def affine(X: Tensor, alpha: float, beta: float) -> Tensor:
    return X * alpha + beta


def scale(input: Tensor, scale: float) -> Tensor:
    return input * scale


def scaled_tanh(input: Tensor, alpha: float, beta: float) -> Tensor:
    return alpha * torch.tanh(beta * input)


def parametric_softplus(X: Tensor, alpha: float, beta: float) -> Tensor:
    return alpha * torch.softplus(beta * X)


def image_scaler(input: Tensor, bias: Optional[List[float]], scale: float) -> Tensor:
    scaled = input * scale
    if bias is None:
        return scaled
    return scaled + torch.reshape(torch.tensor(bias, dtype=input.dtype, device=input.device), [-1, 1, 1])


# Crops the border of the left, top, right and bottom; the scale, a height and a width, replaces its second half.
def crop(input: Tensor, border: List[int], scale: Optional[List[int]]) -> Tensor:
    assert len(border) == 4, "the border must be of four sides"
    left, top, right, bottom = border[0], border[1], border[2], border[3]
    height, width = input.size(2) - top - bottom, input.size(3) - left - right
    if scale is not None:
        assert len(scale) == 2, "the scale must be a height and a width"
        height, width = scale[0], scale[1]
    assert top + height <= input.size(2) and left + width <= input.size(3), "the image is smaller than what is cropped"
    return torch.narrow(torch.narrow(input, 2, top, height), 3, left, width)


# Does one step of a GRU, whose reset gate (the first of the gates) is in the output gate already.
def gru_unit(hidden_prev: Tensor, gates: Tensor, seq_lengths: Tensor, t: Tensor, drop_states: bool) -> Tensor:
    _, update, output = torch.chunk(gates, 3, -1)
    update = torch.sigmoid(update)
    hidden = hidden_prev * update + torch.tanh(output) * (1 - update)
    past = torch.zeros_like(hidden_prev) if drop_states else hidden_prev
    return torch.where(torch.unsqueeze(torch.reshape(t, []) < seq_lengths, -1), hidden, past)


def given_tensor(values: List[float], shape: List[int], dtype: int, device: Device) -> Tensor:
    return torch.reshape(torch.tensor(values, dtype=dtype, device=device), shape)
