# BifurcationDetector, CDist, CropAndResize, DynamicTimeWarping, EfficientNMS_TRT, Inverse, Irfft, Rfft,
# SparseToDenseMatMul, UnfoldTensor.


def unfold_tensor(input: Tensor, dim: int, size: int, step: int) -> Tensor:
    return torch.unfold(input, dim, size, step)


def inverse(X: Tensor) -> Tensor:
    return torch.linalg_inv(X.to(torch.float32) if X.dtype == torch.float16 else X).to(X.dtype)


# Multiplies two matrices and a factor, which is an integer for products of integers.
def scaled_product(A: Tensor, B: Tensor, alpha: float, transA: bool, transB: bool) -> Tensor:
    assert A.dim() == 2 and B.dim() >= 2, "A is not a matrix, or B has less than two dimensions"
    product = torch.matmul(torch.t(A) if transA else A, torch.transpose(B, -2, -1) if transB else B)
    return product * alpha if torch.is_floating_point(product) else product * int(alpha)


def signal_dims(rank: int, signal_ndim: int, onesided: int, normalized: int) -> List[int]:
    assert onesided == 1 and normalized == 0, "only one-sided transforms that are not normalized are supported"
    assert 0 < signal_ndim and signal_ndim <= rank, "there are {} dimensions, not {}".format(rank, signal_ndim)
    return [i for i in range(-signal_ndim, 0)]


def rfft(X: Tensor, signal_ndim: int, onesided: int, normalized: int) -> Tensor:
    dims = signal_dims(X.dim(), signal_ndim, onesided, normalized)
    signal = X.to(torch.float32) if X.dtype == torch.float16 else X
    return parts_of(torch.fft_rfftn(signal, None, dims), X.dtype)


# Inverts rfft. The real signal is taken to be of an even size. (signal_of, which has the spectrum's parts, makes
# doubles of them.)
def irfft(X: Tensor, signal_ndim: int, onesided: int, normalized: int) -> Tensor:
    dims = signal_dims(X.dim() - 1, signal_ndim, onesided, normalized)
    assert X.size(-1) == 2, "the last dimension must be of size 2, for real and imaginary parts"
    return torch.fft_irfftn(signal_of(X), None, dims).to(X.dtype)


# Computes distances by the metrics of scipy.spatial.distance that need no numbers besides A and B; onnxruntime has the
# two Euclidean ones.
def cdist(A: Tensor, B: Tensor, metric: str) -> Tensor:
    assert A.dim() == 2 and B.dim() == 2 and A.size(1) == B.size(1), "A and B are not matrices with as many columns"
    if metric == "euclidean" or metric == "minkowski":
        return torch.cdist(A, B)
    if metric == "sqeuclidean":
        return torch.square(torch.cdist(A, B))
    if metric == "cityblock":
        return torch.cdist(A, B, 1.0)
    if metric == "chebyshev":
        return torch.cdist(A, B, float("inf"))
    if metric == "hamming" or metric == "matching":
        return torch.cdist(A, B, 0.0) / A.size(1)
    if metric == "cosine":
        return cosine_distance(A, B)
    if metric == "correlation":
        return cosine_distance(A - torch.mean(A, 1, True), B - torch.mean(B, 1, True))
    x, y = torch.unsqueeze(A, 1), torch.unsqueeze(B, 0)
    difference = torch.abs(x - y)
    if metric == "braycurtis":
        return torch.sum(difference, 2) / torch.sum(torch.abs(x + y), 2)
    assert metric == "canberra", "the metric \"{}\" is not supported".format(metric)
    return torch.nansum(difference / (torch.abs(x) + torch.abs(y)), 2)


def cosine_distance(x: Tensor, y: Tensor) -> Tensor:
    return 1 - torch.matmul(unit_rows(x), torch.t(unit_rows(y)))


def unit_rows(x: Tensor) -> Tensor:
    return x / torch.norm(x, 2, 1, True)


# Gives the positions of the rows or columns of a crop in an image of `size` of them, for each region.
def crop_positions(start: Tensor, end: Tensor, size: int, count: int) -> Tensor:
    if count == 1:
        return torch.unsqueeze((start + end) * 0.5 * (size - 1), 1)
    first, last = torch.unsqueeze(start * (size - 1), 1), torch.unsqueeze(end * (size - 1), 1)
    step = torch.unsqueeze((end - start) * (size - 1) / (count - 1), 1)
    between = first + torch.arange(1, count - 1, device=start.device) * step
    return torch.cat([first, between, last], 1)


# Gathers the pixels of rows and columns, [regions, rows, columns, channels].
def pixels_at(images: Tensor, batch_indices: Tensor, rows: Tensor, columns: Tensor) -> Tensor:
    images_of = refused_if_negative(batch_indices, images.size(0))
    indices = [torch.reshape(images_of, [-1, 1, 1]), torch.unsqueeze(rows, 2), torch.unsqueeze(columns, 1)]
    return torch.index(images, [i.to(torch.int64) for i in indices])


def crop_and_resize(
    X: Tensor, rois: Tensor, batch_indices: Tensor, crop_size: List[int], mode: str, extrapolation_value: float
) -> Tensor:
    assert X.dim() == 4, "X is not of shape (N, C, H, W)"
    assert mode == "bilinear" or mode == "nearest", "there is no mode \"{}\"".format(mode)
    assert len(crop_size) == 2 and crop_size[0] > 0 and crop_size[1] > 0, "crop_size is not two positive numbers"
    assert rois.size() == [batch_indices.size(0), 4], "rois is not of shape (num_rois, 4)"
    boxes = rois.to(torch.float32) if rois.dtype == torch.float16 else rois
    top, left, bottom, right = torch.unbind(boxes, 1)
    y = crop_positions(top, bottom, X.size(2), crop_size[0])
    x = crop_positions(left, right, X.size(3), crop_size[1])
    is_row = torch.logical_and(y >= 0, y <= X.size(2) - 1)
    is_column = torch.logical_and(x >= 0, x <= X.size(3) - 1)
    y, x = torch.where(is_row, y, 0.0), torch.where(is_column, x, 0.0)
    above, before = torch.floor(y), torch.floor(x)
    images = torch.permute(X, [0, 2, 3, 1])
    if mode == "nearest":
        above, before = above + ((y - above) >= 0.5), before + ((x - before) >= 0.5)
        crops = pixels_at(images, batch_indices, above, before)
    else:
        below, after = torch.ceil(y), torch.ceil(x)
        across = torch.reshape(x - before, [x.size(0), 1, x.size(1), 1])
        down = torch.reshape(y - above, [y.size(0), y.size(1), 1, 1])
        upper = between_pixels(
            pixels_at(images, batch_indices, above, before), pixels_at(images, batch_indices, above, after), across
        )
        lower = between_pixels(
            pixels_at(images, batch_indices, below, before), pixels_at(images, batch_indices, below, after), across
        )
        crops = between_pixels(upper, lower, down)
    there = torch.logical_and(torch.unsqueeze(is_row, 2), torch.unsqueeze(is_column, 1))
    crops = torch.where(torch.unsqueeze(there, 3), crops, extrapolation_value)
    return torch.contiguous(torch.permute(crops, [0, 3, 1, 2])).to(X.dtype)


def between_pixels(one: Tensor, other: Tensor, part: Tensor) -> Tensor:
    return one + (other - one) * part


def dynamic_time_warping(input: Tensor) -> Tensor:
    costs = torch.squeeze(input, 0) if input.dim() == 3 and input.size(0) == 1 else input
    assert costs.dim() == 2, "the input is not a matrix"
    return torch.ops.onnx_torch.dynamic_time_warping(costs)


# Takes the predicted tokens up to and with the first that differs from the source. Then it looks in the source for
# longer and longer ends of all tokens: where one is there exactly once, it gives the index behind it.
def bifurcation_detector(
    src_tokens: Tensor,
    cur_tokens: Tensor,
    prev_suffix_match_idx: Tensor,
    pred_tokens: Optional[Tensor],
    min_ngram_size: int,
    max_ngram_size: int,
) -> Tuple[Tensor, Tensor]:
    assert src_tokens.dim() == 1 and cur_tokens.dim() == 1, "src_tokens or cur_tokens is not of one dimension"
    assert min_ngram_size > 0, "min_ngram_size must be positive, not {}".format(min_ngram_size)
    assert max_ngram_size >= min_ngram_size, "max_ngram_size is less than min_ngram_size"
    assert prev_suffix_match_idx.numel() == 1, "prev_suffix_match_idx is not one number"
    tokens = cur_tokens
    if pred_tokens is not None:
        previous = int(prev_suffix_match_idx)
        assert 0 <= previous and previous <= src_tokens.size(0), "prev_suffix_match_idx is outside of the source"
        rest = torch.slice(src_tokens, 0, previous)
        assert pred_tokens.size() == [rest.size(0) + 1], "as many pred_tokens as the source has left, and one, are wanted"
        same = torch.slice(pred_tokens, 0, 0, -1) == rest
        agreed = int(torch.sum(torch.cumprod(same.to(torch.int64), 0)))
        tokens = torch.cat([tokens, torch.slice(pred_tokens, 0, 0, agreed + 1)])
    match = -1
    size, count = min_ngram_size, 2
    while size <= min(max_ngram_size, tokens.size(0), src_tokens.size(0)) and count > 1:
        ngrams = torch.unfold(src_tokens, 0, size, 1)
        starts = torch.nonzero(torch.all(ngrams == torch.slice(tokens, 0, tokens.size(0) - size), 1))
        count = starts.size(0)
        if count == 1:
            match = int(starts) + size
        size += 1
    return tokens, torch.full_like(prev_suffix_match_idx, match)


# Suppresses boxes as the text of TensorRT's plugin says: each class for itself, the best 4096 of a batch's scores,
# boxes as corners.
def efficient_nms(
    boxes: Tensor,
    scores: Tensor,
    anchors: Optional[Tensor],
    score_threshold: float,
    iou_threshold: float,
    max_output_boxes: int,
    background_class: int,
    score_activation: int,
    box_coding: int,
) -> Tuple[Tensor, Tensor, Tensor, Tensor]:
    assert scores.dim() == 3 and boxes.size(-1) == 4, "scores or boxes are not of shape (batch_size, number_boxes, ...)"
    assert max_output_boxes > 0, "max_output_boxes must be positive, not {}".format(max_output_boxes)
    assert box_coding == 0 or box_coding == 1, "there is no box_coding {}".format(box_coding)
    batch, count, classes = scores.size()
    corners = corners_of_boxes(boxes.to(torch.float32), anchors, box_coding)
    corners = torch.expand(torch.unsqueeze(corners, 2) if corners.dim() == 3 else corners, [batch, count, classes, 4])
    corners = torch.reshape(torch.permute(corners, [0, 2, 1, 3]), [batch * classes, count, 4])

    chances = torch.sigmoid(scores.to(torch.float32)) if score_activation != 0 else scores.to(torch.float32)
    never = torch.logical_or(
        torch.logical_not(chances >= score_threshold), torch.arange(classes, device=scores.device) == background_class
    )
    chances = torch.permute(torch.masked_fill(chances, never, -float("inf")), [0, 2, 1])
    chances = only_largest(torch.reshape(chances, [batch, classes * count]), 4096)
    kept = torch.ops.onnx_torch.non_max_suppression(
        corners,
        torch.reshape(chances, [batch * classes, 1, count]),
        torch.tensor(count),
        torch.tensor(iou_threshold),
        torch.tensor(lowest_float()),
        False,
    )
    places = torch.select(kept, 1, 0) * count + torch.select(kept, 1, 2)
    chances = torch.reshape(chances, [-1])
    selected = torch.index_copy(
        torch.full_like(chances, -float("inf")), 0, places, torch.index_select(chances, 0, places)
    )
    best, numbers = top_k_by_key(
        torch.reshape(selected, [batch, classes * count]), min(max_output_boxes, classes * count), 1, True
    )
    is_box = best > -float("inf")
    first = torch.unsqueeze(torch.arange(batch, device=scores.device) * classes * count, 1)
    chosen = torch.index_select(torch.reshape(corners, [-1, 4]), 0, torch.reshape(first + numbers, [-1]))
    chosen = torch.reshape(chosen, [batch, best.size(1), 4]) * torch.unsqueeze(is_box, 2)
    missing = [0, max_output_boxes - best.size(1)]
    of_class = torch.div(numbers, max(count, 1), rounding_mode="floor") * is_box
    return (
        torch.sum(is_box, 1, True).to(torch.int32),
        torch.constant_pad_nd(chosen, [0, 0] + missing).to(boxes.dtype),
        torch.constant_pad_nd(torch.where(is_box, best, 0.0), missing).to(scores.dtype),
        torch.constant_pad_nd(of_class, missing).to(torch.int32),
    )


# Turns boxes into corners. They are corners (box_coding 0), or centers and sizes (1); with anchors they are offsets
# from those, or relative to their centers and sizes.
def corners_of_boxes(boxes: Tensor, anchors: Optional[Tensor], box_coding: int) -> Tensor:
    if anchors is not None:
        assert anchors.dim() == 3, "anchors are not of shape (batch_size, number_boxes, 4)"
        prior = torch.unsqueeze(anchors, 2) if boxes.dim() == 4 else anchors
        if box_coding == 0:
            return boxes + prior
        centers, sizes = torch.slice(prior, -1, 0, 2), torch.slice(prior, -1, 2)
        boxes = torch.cat(
            [torch.slice(boxes, -1, 0, 2) * sizes + centers, torch.exp(torch.slice(boxes, -1, 2)) * sizes], -1
        )
    if box_coding == 0:
        return boxes
    centers, halves = torch.slice(boxes, -1, 0, 2), torch.slice(boxes, -1, 2) / 2
    return torch.cat([centers - halves, centers + halves], -1)


# Keeps the largest elements; the others become -inf.
def only_largest(x: Tensor, count: int) -> Tensor:
    if x.size(1) <= count:
        return x
    values, places = top_k_by_key(x, count, 1, True)
    return torch.scatter(torch.full_like(x, -float("inf")), 1, places, values)
