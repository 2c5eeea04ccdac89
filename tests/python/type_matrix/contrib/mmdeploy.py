"""Templates of src/ops/contrib/mmdeploy.cpp, by formulas: neither onnxruntime nor onnx runs them."""

from __future__ import annotations

import numpy as np

from ..making import floats, row, waves
from ..modern import formula, modern

# --- Sampling between pixels ---


def at(image: np.ndarray, y: float, x: float) -> np.ndarray:
    """Interpolates between the pixels of (channels, height, width); nothing is outside."""
    value = np.zeros(image.shape[0])
    for i, j in np.ndindex(2, 2):
        row_, column = int(np.floor(y)) + i, int(np.floor(x)) + j
        if 0 <= row_ < image.shape[1] and 0 <= column < image.shape[2]:
            value += (1 - abs(y - row_)) * (1 - abs(x - column)) * image[:, row_, column]
    return value


def deform_conv(x, offset, mask, w, bias=0, stride=(1, 1), padding=(0, 0), dilation=(1, 1), groups=1, deform_groups=1):
    (batch, channels, *_), (outs, ins, kh, kw), (height, width) = x.shape, w.shape, offset.shape[2:]
    y = np.zeros((batch, outs, height, width))
    for b, o, i, j, c, p, q in np.ndindex(batch, outs, height, width, ins, kh, kw):
        channel = o // (outs // groups) * ins + c
        tap = channel // (channels // deform_groups) * kh * kw + p * kw + q
        row_ = i * stride[0] - padding[0] + p * dilation[0] + offset[b, 2 * tap, i, j]
        column = j * stride[1] - padding[1] + q * dilation[1] + offset[b, 2 * tap + 1, i, j]
        y[b, o, i, j] += w[o, c, p, q] * mask[b, tap, i, j] * at(x[b, channel : channel + 1], row_, column)[0]
    return y + np.reshape(bias, (1, -1, 1, 1))


def sampled(x, grid):
    """Samples at the points of a grid from -1 to 1, between the borders."""
    (batch, channels, *size), (_, height, width, _) = x.shape, grid.shape
    y = np.zeros((batch, channels, height, width))
    for b, i, j in np.ndindex(batch, height, width):
        y[b, :, i, j] = at(x[b], *((grid[b, i, j, ::-1] + 1) * size - 1) / 2)
    return y


def border_at(image, y, x):
    """Interpolates as regions are sampled: what is less than a pixel outside counts as the border."""
    height, width = image.shape[1:]
    if not (-1 <= y <= height and -1 <= x <= width):
        return np.zeros(image.shape[0])
    return at(image, np.clip(y, 0, height - 1), np.clip(x, 0, width - 1))


def roi_align(
    x, rois, output_height=1, output_width=1, spatial_scale=1.0, sampling_ratio=0, mode="avg", aligned=1
) -> np.ndarray:
    y = np.zeros((len(rois), x.shape[1], output_height, output_width))
    for n, (batch, *box) in enumerate(rois):
        x1, y1, x2, y2 = np.array(box) * spatial_scale - 0.5 * aligned
        sizes = np.array([y2 - y1, x2 - x1])
        bins = (sizes if aligned else np.maximum(sizes, 1)) / [output_height, output_width]
        ys, xs = [sampling_ratio] * 2 if sampling_ratio else np.ceil(bins).astype(int)
        for i, j in np.ndindex(output_height, output_width):
            points = [
                border_at(x[int(batch)], y1 + (i + (p + 0.5) / ys) * bins[0], x1 + (j + (q + 0.5) / xs) * bins[1])
                for p, q in np.ndindex(ys, xs)
            ]
            y[n, :, i, j] = np.max(points, 0) if mode == "max" else np.mean(points, 0)
    return y


def multi_level(rois, *feats, featmap_strides, pool_mode=1, roi_scale_factor=1.0, finest_scale=56, **rest):
    pooled = []
    for n, x1, y1, x2, y2 in rois:
        level = np.floor(np.log2(np.sqrt((x2 - x1) * (y2 - y1)) / finest_scale + 1e-6))
        level = int(np.clip(level, 0, len(feats) - 1))
        centre, half = np.array([x1 + x2, y1 + y2]) / 2, np.array([x2 - x1, y2 - y1]) / 2 * roi_scale_factor
        box = np.array([[n, *(centre - half), *(centre + half)]])
        mode = "avg" if pool_mode else "max"
        pooled.append(roi_align(feats[level], box, spatial_scale=1 / featmap_strides[level], mode=mode, **rest))
    return np.concatenate(pooled)


# --- Detection ---


def overlap(a, b, offset: int) -> float:
    sides = np.maximum(np.minimum(a[2:], b[2:]) - np.maximum(a[:2], b[:2]) + offset, 0)
    areas = [np.prod(c[2:] - c[:2] + offset) for c in (a, b)]
    return sides.prod() / (sum(areas) - sides.prod())


def nms(boxes, scores, threshold, offset=0, least=-np.inf, most=10**9) -> list[int]:
    kept: list[int] = []
    for i in np.argsort(-scores, kind="stable"):
        fits = scores[i] > least and all(overlap(boxes[i], boxes[k], offset) <= threshold for k in kept)
        if fits and len(kept) < most:
            kept.append(int(i))
    return kept


def batched(boxes, scores, background, top_k, keep, least, threshold, normalized, clip):
    """Gives the rows that are left of each image, and how many there are: class, number, score, box."""
    classes = scores.shape[2]
    result = []
    for image, chances in zip(boxes, scores, strict=True):
        found = []
        for c in (c for c in range(classes) if c != background):
            own = image[:, c % image.shape[1]]
            best = np.argsort(-chances[:, c], kind="stable")[:top_k]
            for k in nms(own[best], chances[best, c], threshold, 0 if normalized else 1, least):
                i = best[k]
                number = i if image.shape[1] == 1 else c * len(own) + i
                box = np.clip(own[i], 0, 1) if normalized and clip else own[i]
                found.append((c, number, chances[i, c], *box))
        found = sorted(found, key=lambda row_: -row_[2])[:keep]
        result.append((len(found), found + [(-1, -1, 0, 0, 0, 0, 0)] * (keep - len(found))))
    return np.array([count for count, _ in result]), np.array([rows for _, rows in result], np.float64)


def trt_batched_nms(outputs: int, **a):
    def meaning(case):
        boxes, scores = (np.asarray(x).astype(np.float64) for x in case.inputs)
        boxes = boxes[:, :, None] if boxes.ndim == 3 else boxes
        scores = scores[:, :, 0] if scores.ndim == 4 else scores
        _, rows = batched(
            *(boxes, scores, a.get("background_label_id", -1), a["topk"], a["keep_topk"], a["score_threshold"]),
            *(a["iou_threshold"], a.get("is_normalized", 1), a.get("clip_boxes", 1)),
        )
        dets = np.concatenate([rows[..., 3:], rows[..., 2:3]], -1)
        return [dets, rows[..., 0].astype(np.int32), rows[..., 1].astype(np.int32)][:outputs]

    return meaning


def plugin(**a):
    def meaning(case):
        boxes, scores = (np.asarray(x).astype(np.float64) for x in case.inputs)
        counts, rows = batched(
            *(boxes, scores, a.get("backgroundLabelId", -1), a["topK"], a["keepTopK"], a["scoreThreshold"]),
            *(a["iouThreshold"], a.get("isNormalized", 1), a.get("clipBoxes", 1)),
        )
        return [counts[:, None].astype(np.int32), rows[..., 3:], rows[..., 2], rows[..., 0]]

    return meaning


EPSILON = float(np.float32(1e-5))
GRID = waves(2, 3, 4, 2, scale=1.25)
IMAGE = waves(2, 4, 5, 6)
KERNEL = waves(4, 4, 2, 2, scale=0.5)
OFFSET, MASK = waves(2, 8, 4, 5, scale=1.5), waves(2, 4, 4, 5)
GROUPED = {"stride": [2, 1], "padding": [1, 0], "dilation": [1, 2], "groups": 2, "deform_groups": 2}
GROUPED_INPUTS = [IMAGE, waves(2, 16, 3, 4, scale=1.5), waves(2, 8, 3, 4), waves(4, 2, 2, 2)]
ROIS = floats([0, 0.5, 1, 4.25, 3.5], [1, -1, 0.25, 2, 4.5], [1, 3, 3, 3.5, 3.25])
LARGE_ROIS = floats([0, 1, 2, 9, 7], [1, 0, 0, 40, 30], [0, 10, 4, 26, 20])
LEVELS = {"output_height": 2, "output_width": 3, "featmap_strides": [2.0, 8.0]}
# Boxes that overlap in thirds, and one that is alone.
BOXES = floats([0, 0, 0.5, 0.5], [0.125, 0, 0.625, 0.5], [0.25, 0, 0.75, 0.5], [0.75, 0.75, 1.5, 1.25])
SCORES = floats([0.5, 0.25, 0.125], [0.75, 0.0625, 0.375], [0.25, 0.875, 0.625], [0.125, 0.5, 0.3125])
TWO_IMAGES = np.stack([BOXES, BOXES[::-1]])[:, :, None]
TWO_SCORES = np.stack([SCORES, SCORES[:, ::-1]])
EACH_CLASS = np.concatenate([TWO_IMAGES, TWO_IMAGES * floats(0.5), TWO_IMAGES + floats(0.25)], 2)


def rows_of(domain: str):
    def one(op, inputs, function, **attributes):
        return row(f"{domain}.{op}", inputs, meaning=formula(lambda *x: function(*x, **attributes)), **attributes)

    def unmasked(x, offset, w, bias=0, im2col_step=32, **rest):
        return deform_conv(x, offset, np.ones_like(offset[:, ::2]), w, 0, **rest)

    def sampler(mode, padding, align, **attributes):
        meaning = modern("GridSample", 22, mode=mode, padding_mode=padding, align_corners=align)
        return row(f"{domain}.grid_sampler", [IMAGE, GRID], meaning=meaning, **attributes)

    def alone(boxes, scores, iou_threshold=0.5, score_threshold=-np.inf, max_output_boxes_per_class=0, offset=0, **_):
        most = max_output_boxes_per_class or 10**9
        return np.array(nms(boxes, scores, iou_threshold, offset, score_threshold, most), np.int64)

    def trt(inputs, outputs=3, **rest):
        given = {"num_classes": 3, "topk": 4, "keep_topk": 4, "score_threshold": 0.1, "iou_threshold": 0.4} | rest
        meaning = trt_batched_nms(outputs, **given)
        return row(f"{domain}.TRTBatchedNMS", inputs, outputs=outputs, meaning=meaning, **given)

    def normal(x, scale, b, epsilon=EPSILON):
        centred = x - x.mean((2, 3), keepdims=True)
        deviation = np.sqrt((centred**2).mean((2, 3), keepdims=True) + epsilon)
        return scale[:, None, None] * centred / deviation + b[:, None, None]

    size = {"output_height": 2, "output_width": 3}
    return [
        one("MMCVDeformConv2d", [IMAGE, OFFSET, KERNEL], unmasked),
        one("MMCVDeformConv2d", [GROUPED_INPUTS[i] for i in (0, 1, 3)], unmasked, bias=0, im2col_step=16, **GROUPED),
        one("MMCVModulatedDeformConv2d", [IMAGE, OFFSET, MASK, KERNEL], deform_conv),
        one("MMCVModulatedDeformConv2d", [*GROUPED_INPUTS, floats(1, -2, 0, 3)], deform_conv, **GROUPED),
        *(
            one(op, [IMAGE, ROIS], roi_align, **attributes)
            for op in ("MMCVRoIAlign", "MMCVRoiAlign")
            for attributes in (
                {},
                {**size, "sampling_ratio": 2, "spatial_scale": 0.75},
                {**size, "sampling_ratio": 2, "mode": "max"},
                {**size, "mode": "max", "aligned": 0},
                {**size, "mode": "avg", "aligned": 0},
            )
        ),
        one("MMCVMultiLevelRoiAlign", [LARGE_ROIS, IMAGE, waves(2, 4, 4, 5)], multi_level, finest_scale=8, **LEVELS),
        one(
            *("MMCVMultiLevelRoiAlign", [LARGE_ROIS, IMAGE, waves(2, 4, 4, 5)], multi_level),
            **{**LEVELS, "pool_mode": 0, "sampling_ratio": 2, "roi_scale_factor": 1.5, "finest_scale": 8, "aligned": 0},
        ),
        one("MMCVMultiLevelRoiAlign", [LARGE_ROIS, IMAGE, waves(2, 4, 4, 5)], multi_level, **LEVELS),
        # onnxruntime and onnx take the grid of double in float.
        row(f"{domain}.grid_sampler", [IMAGE, GRID], only="double", meaning=formula(sampled)),
        sampler("linear", "zeros", 0),
        sampler("nearest", "border", 0, interpolation_mode=1, padding_mode=1),
        sampler("cubic", "reflection", 1, interpolation_mode=2, padding_mode=2, align_corners=1),
        one("NonMaxSuppression", [BOXES, SCORES[:, 0]], alone),
        one("NonMaxSuppression", [BOXES, SCORES[:, 1]], alone, iou_threshold=0.375, offset=1),
        one(
            *("NonMaxSuppression", [BOXES, SCORES[:, 2]], alone),
            **{"score_threshold": 0.25, "max_output_boxes_per_class": 1, "center_point_box": 0},
        ),
        one("MMCVInstanceNormalization", [IMAGE, floats(1, 2, -1, 0.5), floats(0, 1, 2, 3)], normal),
        one("MMCVInstanceNormalization", [IMAGE, floats(1, 2, -1, 0.5), floats(0, 1, 2, 3)], normal, epsilon=0.5),
        trt([TWO_IMAGES, TWO_SCORES]),
        trt([TWO_IMAGES[:, :, 0], TWO_SCORES], 2, return_index=0),
        trt([TWO_IMAGES, TWO_SCORES[:, :, None]], is_normalized=0, clip_boxes=0, return_index=1, iou_threshold=0.8),
        trt([EACH_CLASS, TWO_SCORES], background_label_id=1, topk=2, keep_topk=2, clip_boxes=0),
    ]


def plugin_row(op: str, inputs: list, **rest):
    given = {"numClasses": 3, "topK": 4, "keepTopK": 5, "scoreThreshold": 0.1, "iouThreshold": 0.4, **rest}
    given["topK"] = max(given["topK"], given["keepTopK"])
    return row(op, inputs, outputs=4, meaning=plugin(**given), **given)


SILENT = {"scoreBits": 10, "caffeSemantics": 0, "plugin_version": "1", "plugin_namespace": ""}

MMDEPLOY_ROWS = [
    *(one for domain in ("mmdeploy", "mmcv") for one in rows_of(domain)),
    *(
        one
        for domain in ("", "trt.", "TRT.")
        for op in ("BatchedNMS_TRT", "BatchedNMSDynamic_TRT")
        for one in (
            plugin_row(domain + op, [TWO_IMAGES, TWO_SCORES]),
            plugin_row(domain + op, [TWO_IMAGES, TWO_SCORES], isNormalized=0, clipBoxes=0, iouThreshold=0.8, **SILENT),
            plugin_row(
                *(domain + op, [EACH_CLASS, TWO_SCORES]), shareLocation=0, backgroundLabelId=0, keepTopK=2, topK=2
            ),
        )
    ),
]
