# NegativeLogLikelihoodLoss, SoftmaxCrossEntropyLoss.


# Computes the loss. Without an ignore_index, ATen ignores -100; it refuses -1, as it does any number that is no class.
def negative_log_likelihood(log_prob: Tensor, target: Tensor, weight: Optional[Tensor], reduction: str,
                            ignore_index: Optional[int]) -> Tensor:
    ignored = -100 if ignore_index is None else ignore_index
    target = torch.clamp(target, min=-1) if ignore_index is None else target
    reductions = ["none", "mean", "sum"]
    assert reduction in reductions, "there is no reduction " + reduction
    # The gradient of ATen's two-dimensional loss demands a contiguous tensor.
    return torch.nll_loss_nd(log_prob.contiguous(), target, weight, reductions.index(reduction), ignored)
