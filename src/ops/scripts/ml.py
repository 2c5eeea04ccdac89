# Functions of ai.onnx.ml.


def erfinv_approximation(x: Tensor) -> Tensor:
    # Winitzki's, which the reference implementation defines PROBIT by: within 0.2% of the true function.
    a = 0.147
    log = torch.log((1.0 - x) * (1.0 + x))
    v = 2.0 / (3.141592653589793 * a) + 0.5 * log
    size = torch.sqrt(torch.sqrt(v * v - log / a) - v)
    return torch.where(x < 0, -size, size)


def softmax_zero(scores: Tensor) -> Tensor:
    # Scores of zero stay zero. Where all are, each becomes 0.5.
    largest = torch.amax(scores, [-1], keepdim=True)
    weights = torch.where(torch.abs(scores) > 1e-7, torch.exp(scores - largest), scores * torch.exp(-largest))
    total = torch.sum(weights, [-1], keepdim=True)
    return torch.where(total == 0, 0.5, weights / total)


def post_transform(scores: Tensor, how: str) -> Tensor:
    if how == "SOFTMAX":
        return torch.softmax(scores, -1)
    if how == "LOGISTIC":
        return torch.sigmoid(scores)
    if how == "SOFTMAX_ZERO":
        return softmax_zero(scores)
    if how == "PROBIT":
        return 1.41421356 * erfinv_approximation(2.0 * scores - 1.0)
    assert how == "NONE", "post_transform is NONE, SOFTMAX, LOGISTIC, SOFTMAX_ZERO or PROBIT, not " + how
    return scores
