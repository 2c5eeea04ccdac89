# GridSample, AffineGrid, ImageDecoder, NonMaxSuppression.


# Tells whether aten::grid_sampler can do it.
def grid_samples_by_aten(X: Tensor, mode: int) -> bool:
    return X.dim() == 4 or (X.dim() == 5 and mode != 2)


# Folds coordinates back and forth between two borders.
def reflected(x: Tensor, low: float, high: float) -> Tensor:
    extent = high - low
    if extent <= 0:
        return torch.full_like(x, low)
    folded = torch.remainder(x - low, 2 * extent)
    return low + torch.where(folded > extent, 2 * extent - folded, folded)


# Samples over any number of dimensions: each point is a weighted sum of the taps nearest to it, one by one along the
# axes.
def grid_sample_by_taps(
    X: Tensor, grid: Tensor, mode: int, padding_mode: str, align_corners: bool, dtype: int
) -> Tensor:
    sizes = X.size()[2:]
    rank = len(sizes)
    points = torch.flatten(grid.to(dtype), 1, -2)
    index = torch.zeros([X.size(0), 1, points.size(1)], dtype=torch.int64, device=X.device)
    weight = torch.ones([X.size(0), 1, points.size(1)], dtype=dtype, device=X.device)
    for axis, size in enumerate(sizes):
        x = torch.select(points, -1, rank - 1 - axis)
        x = (x + 1) / 2 * (size - 1) if align_corners else ((x + 1) * size - 1) / 2
        if mode == 1:
            x = torch.round(x)
        x = torch.unsqueeze(x, 1)
        reach = 2 if mode == 2 else 1
        offsets = torch.zeros([1], dtype=dtype, device=X.device)
        if mode != 1:
            offsets = torch.arange(1 - reach, reach + 1, dtype=dtype, device=X.device)
        taps = torch.floor(x) + torch.reshape(offsets, [-1, 1])
        weights = torch.ones_like(taps)
        if mode == 0:
            weights = linear_weights(taps - x)
        elif mode == 2:
            weights = cubic_weights(taps - x, -0.75)
        if padding_mode == "zeros":
            weights = torch.masked_fill(weights, torch.logical_or(taps < 0, taps > size - 1), 0)
        elif padding_mode == "reflection":
            taps = reflected(taps, 0.0, size - 1.0) if align_corners else torch.trunc(reflected(taps, -0.5, size - 0.5))
        taps = torch.clamp(taps, 0, size - 1).to(torch.int64)
        index = torch.flatten(torch.unsqueeze(index, 2) * size + torch.unsqueeze(taps, 1), 1, 2)
        weight = torch.flatten(torch.unsqueeze(weight, 2) * torch.unsqueeze(weights, 1), 1, 2)
    shape = [X.size(0), X.size(1), index.size(1), index.size(2)]
    chosen = torch.expand(torch.unsqueeze(torch.flatten(index, 1), 1), [X.size(0), X.size(1), -1])
    values = torch.reshape(torch.gather(torch.flatten(X, 2), 2, chosen), shape)
    weight = torch.unsqueeze(weight, 1)
    if mode == 1:
        y = torch.squeeze(torch.masked_fill(values, weight == 0, 0), 2)
    else:
        y = torch.sum(values * weight, 2).to(X.dtype)
    return torch.reshape(y, X.size()[:2] + grid.size()[1:-1])


def affine_grid(theta: Tensor, size: List[int], align_corners: bool) -> Tensor:
    return torch.affine_grid_generator(theta, size, align_corners)


def image_decoder(encoded_stream: Tensor, pixel_format: str) -> Tensor:
    return torch.ops.onnx_torch.image_decoder(encoded_stream, pixel_format)


def non_max_suppression(
    boxes: Tensor,
    scores: Tensor,
    max_output_boxes_per_class: Optional[Tensor],
    iou_threshold: Optional[Tensor],
    score_threshold: Optional[Tensor],
    center_point_box: bool,
) -> Tensor:
    return torch.ops.onnx_torch.non_max_suppression(
        boxes, scores, max_output_boxes_per_class, iou_threshold, score_threshold, center_point_box
    )
