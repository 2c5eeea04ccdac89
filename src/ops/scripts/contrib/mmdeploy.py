# MMCVDeformConv2d, MMCVModulatedDeformConv2d, MMCVMultiLevelRoiAlign, MMCVRoIAlign, NonMaxSuppression of mmcv,
# TRTBatchedNMS, grid_sampler, BatchedNMS_TRT, BatchedNMSDynamic_TRT.


def mmcv_deform_conv(
    input: Tensor,
    weight: Tensor,
    offset: Tensor,
    bias: Optional[Tensor],
    mask: Optional[Tensor],
    stride: List[int],
    padding: List[int],
    dilation: List[int],
    groups: int,
    deform_groups: int,
) -> Tensor:
    pads = padding + padding
    return deform_conv(input, weight, offset, bias, mask, dilation, groups, None, deform_groups, pads, stride)


def mmcv_grid_sampler(
    input: Tensor, grid: Tensor, interpolation_mode: int, padding_mode: int, align_corners: bool
) -> Tensor:
    assert input.dim() == 4, "grid_sampler takes images of 4 dimensions, not {}".format(input.dim())
    assert 0 <= interpolation_mode and interpolation_mode <= 2, "there is no interpolation_mode {}".format(
        interpolation_mode
    )
    assert 0 <= padding_mode and padding_mode <= 2, "there is no padding_mode {}".format(padding_mode)
    dtype = torch.float64 if input.dtype == torch.float64 else torch.float32
    y = torch.grid_sampler(input.to(dtype), grid.to(dtype), interpolation_mode, padding_mode, align_corners)
    return y.to(input.dtype)


# Gives the largest of the interpolated values of each bin, where RoiAlign takes that of the weighted pixels. It pools
# bins that hold one sample each, which are the samples.
def largest_samples(
    x: Tensor, boxes: Tensor, batches: Tensor, how: str, height: int, width: int, ys: int, xs: int, scale: float
) -> Tensor:
    samples = roi_align(x, boxes, batches, how, "avg", height * ys, width * xs, 1, scale)
    return torch.amax(torch.reshape(samples, [samples.size(0), samples.size(1), height, ys, width, xs]), [3, 5])


# Counts the samples in a bin of each region, along the width and the height, where no number is given.
def samples_of_bins(boxes: Tensor, scale: float, height: int, width: int, aligned: bool) -> Tensor:
    sides = torch.slice(boxes, 1, 2) * scale - torch.slice(boxes, 1, 0, 2) * scale
    if not aligned:
        sides = torch.clamp_min(sides, 1)
    bins = torch.tensor([width, height], dtype=boxes.dtype, device=boxes.device)
    return torch.clamp_min(torch.ceil(sides / bins), 0).to(torch.int64)


# Pools regions, each of which begins with the index of its image.
def mmcv_roi_align(
    input: Tensor,
    rois: Tensor,
    output_height: int,
    output_width: int,
    spatial_scale: float,
    sampling_ratio: int,
    mode: str,
    aligned: bool,
) -> Tensor:
    assert rois.dim() == 2 and rois.size(1) == 5, "rois must be of shape (num_rois, 5), not {}".format(rois.size())
    assert mode == "avg" or mode == "max", "there is no mode {}".format(mode)
    assert output_height > 0 and output_width > 0, "the output's height and width must be positive"
    batches, boxes = torch.select(rois, 1, 0).to(torch.int64), torch.slice(rois, 1, 1)
    how = "half_pixel" if aligned else "output_half_pixel"
    height, width, scale = output_height, output_width, spatial_scale
    if mode == "avg":
        return roi_align(input, boxes, batches, how, mode, height, width, sampling_ratio, scale)
    if sampling_ratio > 0:
        return largest_samples(input, boxes, batches, how, height, width, sampling_ratio, sampling_ratio, scale)
    y = torch.zeros([rois.size(0), input.size(1), height, width], dtype=input.dtype, device=input.device)
    samples = samples_of_bins(boxes, scale, height, width, aligned)
    for i in range(rois.size(0)):
        xs, ys = int(samples[i][0]), int(samples[i][1])
        if ys > 0 and xs > 0:
            box, batch = torch.slice(boxes, 0, i, i + 1), torch.slice(batches, 0, i, i + 1)
            y[i] = torch.squeeze(largest_samples(input, box, batch, how, height, width, ys, xs, scale), 0)
    return y


# Pools each region from a level: the larger it is, the coarser the level. It grows about its centre after its level is
# chosen.
def mmcv_multi_level_roi_align(
    rois: Tensor,
    feats: List[Tensor],
    output_height: int,
    output_width: int,
    featmap_strides: List[float],
    pool_mode: int,
    sampling_ratio: int,
    roi_scale_factor: float,
    finest_scale: int,
    aligned: bool,
) -> Tensor:
    assert rois.dim() == 2 and rois.size(1) == 5, "rois must be of shape (num_rois, 5), not {}".format(rois.size())
    assert len(feats) > 0 and len(feats) == len(featmap_strides), "each level must have a stride"
    assert output_height > 0 and output_width > 0, "the output's height and width must be positive"
    begins, ends = torch.slice(rois, 1, 1, 3), torch.slice(rois, 1, 3, 5)
    size = torch.sqrt(torch.prod(ends - begins, 1))
    levels = torch.clamp(torch.floor(torch.log2(size / finest_scale + 1e-6)), 0, len(feats) - 1)
    if roi_scale_factor > 0:
        centre, half = (begins + ends) / 2, (ends - begins) / 2 * roi_scale_factor
        rois = torch.cat([torch.slice(rois, 1, 0, 1), centre - half, centre + half], 1)
    mode = "max" if pool_mode == 0 else "avg"
    y = torch.zeros(
        [rois.size(0), feats[0].size(1), output_height, output_width], dtype=rois.dtype, device=rois.device
    )
    for i, feat in enumerate(feats):
        here = torch.squeeze(torch.nonzero(levels == i), 1)
        chosen = torch.index_select(rois, 0, here)
        scale = 1.0 / featmap_strides[i]
        pooled = mmcv_roi_align(feat, chosen, output_height, output_width, scale, sampling_ratio, mode, aligned)
        y = torch.index_copy(y, 0, here, pooled)
    return y


# Moves the far corners by an offset: a kernel that takes differences for lengths then sees lengths in pixels, one more.
def corners_with_offset(boxes: Tensor, offset: int) -> Tensor:
    return torch.cat([torch.slice(boxes, -1, 0, 2), torch.slice(boxes, -1, 2) + offset], -1)


# Suppresses boxes. For boxes without batches and classes it gives the indices of those kept, else what the standard's
# operator gives.
def mmcv_nms(
    boxes: Tensor,
    scores: Tensor,
    iou_threshold: float,
    score_threshold: float,
    max_output_boxes_per_class: int,
    center_point_box: bool,
    offset: int,
) -> Tensor:
    assert offset == 0 or offset == 1, "there is no offset {}".format(offset)
    assert offset == 0 or not center_point_box, "boxes of centres have no offset"
    alone = boxes.dim() == 2
    if alone:
        boxes, scores = torch.unsqueeze(boxes, 0), torch.reshape(scores, [1, 1, -1])
    kept = torch.ops.onnx_torch.non_max_suppression(
        (corners_with_offset(boxes, 1) if offset == 1 else boxes).to(torch.float32),
        scores.to(torch.float32),
        torch.tensor(boxes.size(1) if max_output_boxes_per_class <= 0 else max_output_boxes_per_class,
                     device=boxes.device),
        torch.tensor(iou_threshold, device=boxes.device),
        torch.tensor(max(score_threshold, lowest_finite()), device=boxes.device),
        center_point_box,
    )
    if not alone:
        return kept
    kept = torch.select(kept, 1, 2)
    order = torch.sort(torch.index_select(torch.flatten(scores), 0, kept), stable=True, descending=True)
    return torch.index_select(kept, 0, order[1])


def lowest_finite() -> float:
    return -3.4028234663852886e38


# Gives the boxes of each image that are left, the best scores first: their count, boxes, scores, classes, indices. Past
# those there are zeros, and -1 for classes and indices. Where all classes share boxes, whose third dimension is 1 then,
# an index is one among the boxes, else one among those of all classes.
def boxes_after_nms(
    boxes: Tensor,
    scores: Tensor,
    background: int,
    top_k: int,
    keep_top_k: int,
    score_threshold: float,
    iou_threshold: float,
    normalized: bool,
    clip: bool,
) -> Tuple[Tensor, Tensor, Tensor, Tensor, Tensor]:
    assert boxes.dim() == 4 and boxes.size(3) == 4, "boxes must be of shape (batch, boxes, classes or 1, 4)"
    assert scores.dim() == 3 and scores.size()[:2] == boxes.size()[:2], "scores must be of shape (batch, boxes, classes)"
    batch, count, classes = scores.size()
    assert boxes.size(2) == 1 or boxes.size(2) == classes, "there must be boxes for all classes, or for each"
    assert keep_top_k > 0, "the number of boxes to keep must be positive, not {}".format(keep_top_k)
    assert keep_top_k <= top_k, "more boxes are kept than are tried"
    each = torch.permute(torch.expand(boxes.to(torch.float32), [batch, count, classes, 4]), [0, 2, 1, 3])
    each = torch.reshape(each, [batch * classes, count, 4])
    chances = torch.permute(scores.to(torch.float32), [0, 2, 1])
    never = torch.arange(classes, device=scores.device) == background
    chances = torch.masked_fill(chances, torch.reshape(never, [1, -1, 1]), -float("inf"))
    if top_k < count:
        ranks = torch.sort(chances, stable=True, dim=2, descending=True)[1]
        dropped = torch.slice(ranks, 2, top_k)
        chances = torch.scatter(chances, 2, dropped, -float("inf"))
    chances = torch.reshape(chances, [batch * classes, 1, count])
    kept = torch.ops.onnx_torch.non_max_suppression(
        each if normalized else corners_with_offset(each, 1),
        chances,
        torch.tensor(count, device=boxes.device),
        torch.tensor(iou_threshold, device=boxes.device),
        torch.tensor(max(score_threshold, lowest_finite()), device=boxes.device),
        False,
    )
    places = torch.select(kept, 1, 0) * count + torch.select(kept, 1, 2)
    order = torch.sort(
        torch.index_select(torch.flatten(chances), 0, places), stable=True, dim=0, descending=True
    )[1]
    places = torch.index_select(places, 0, order)
    images = torch.floor_divide(places, max(classes * count, 1))
    order = torch.sort(images, stable=True, dim=0, descending=False)[1]
    places, images = torch.index_select(places, 0, order), torch.index_select(images, 0, order)
    found = torch.sum(torch.unsqueeze(images, 0) == torch.unsqueeze(torch.arange(batch, device=images.device), 1), 1)
    ranks = torch.arange(images.size(0), device=images.device) - torch.index_select(
        torch.cumsum(found, 0) - found, 0, images
    )
    shown = torch.squeeze(torch.nonzero(ranks < keep_top_k), 1)
    places, images = torch.index_select(places, 0, shown), torch.index_select(images, 0, shown)
    rows = images * keep_top_k + torch.index_select(ranks, 0, shown)

    size = batch * keep_top_k
    kept_boxes = torch.index_select(torch.reshape(each, [-1, 4]), 0, places)
    if normalized and clip:
        kept_boxes = torch.clamp(kept_boxes, 0, 1)
    y_boxes = torch.index_copy(torch.zeros([size, 4], device=boxes.device), 0, rows, kept_boxes)
    kept_scores = torch.index_select(torch.flatten(chances), 0, places)
    y_scores = torch.index_copy(torch.zeros([size], device=boxes.device), 0, rows, kept_scores)
    missing = torch.full([size], -1, dtype=torch.int64, device=boxes.device)
    inside = torch.remainder(places, max(classes * count, 1))
    y_classes = torch.index_copy(missing, 0, rows, torch.floor_divide(inside, max(count, 1)))
    numbers = torch.remainder(inside, max(count, 1)) if boxes.size(2) == 1 else inside
    y_numbers = torch.index_copy(missing, 0, rows, numbers)
    shape = [batch, keep_top_k]
    return (
        torch.clamp_max(found, keep_top_k),
        torch.reshape(y_boxes, shape + [4]),
        torch.reshape(y_scores, shape),
        torch.reshape(y_classes, shape),
        torch.reshape(y_numbers, shape),
    )


def trt_batched_nms(
    boxes: Tensor,
    scores: Tensor,
    background_label_id: int,
    num_classes: int,
    topk: int,
    keep_topk: int,
    score_threshold: float,
    iou_threshold: float,
    is_normalized: bool,
    clip_boxes: bool,
) -> Tuple[Tensor, Tensor, Tensor]:
    each = torch.unsqueeze(boxes, 2) if boxes.dim() == 3 else boxes
    chances = torch.squeeze(scores, 2) if scores.dim() == 4 else scores
    assert chances.size(-1) == num_classes, "the scores are not of {} classes".format(num_classes)
    _, kept, best, classes, numbers = boxes_after_nms(
        each,
        chances,
        background_label_id,
        topk,
        keep_topk,
        score_threshold,
        iou_threshold,
        is_normalized,
        clip_boxes,
    )
    dets = torch.cat([kept, torch.unsqueeze(best, 2)], 2).to(scores.dtype)
    return dets, classes.to(torch.int32), numbers.to(torch.int32)


def batched_nms_plugin(
    boxes: Tensor,
    scores: Tensor,
    shareLocation: bool,
    backgroundLabelId: int,
    numClasses: int,
    topK: int,
    keepTopK: int,
    scoreThreshold: float,
    iouThreshold: float,
    isNormalized: bool,
    clipBoxes: bool,
) -> Tuple[Tensor, Tensor, Tensor, Tensor]:
    assert boxes.dim() == 4, "boxes must be of shape (batch, boxes, classes or 1, 4)"
    assert not shareLocation or boxes.size(2) == 1, "boxes that all classes share are given once"
    assert scores.size(-1) == numClasses, "the scores are not of {} classes".format(numClasses)
    found, kept, best, classes, _ = boxes_after_nms(
        boxes,
        scores,
        backgroundLabelId,
        topK,
        keepTopK,
        scoreThreshold,
        iouThreshold,
        isNormalized,
        clipBoxes,
    )
    counts = torch.unsqueeze(found, 1).to(torch.int32)
    return counts, kept.to(scores.dtype), best.to(scores.dtype), classes.to(scores.dtype)
