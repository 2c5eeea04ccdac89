"""Templates of src/ops/contrib/tensor.cpp."""

from __future__ import annotations

from typing import Any

import numpy as np
from scipy.spatial import distance

from ..engines import run_ort
from ..making import floats, ints, microsoft, row, waves, whole
from ..modern import formula, modern, unchanged

X = waves(2, 3, 4, scale=3.0)
POINTS = [waves(3, 4, scale=2.0), waves(5, 4, scale=3.0)[::-1].copy()]
METRICS = ["cityblock", "chebyshev", "minkowski", "hamming", "cosine", "correlation", "braycurtis", "canberra"]


def distances(metric: str):
    return formula(lambda a, b: distance.cdist(a, b, metric))


# ---- CropAndResize

IMAGES = waves(2, 3, 5, 4)
BOXES = floats([0.125, 0.25, 0.75, 1], [0.5, -0.25, 0.75, 1.25], [1, 0.75, 0, 0.5])
OF_IMAGES = np.array([1, 0, 1], np.int32)


def crop(mode: str, outside: float):
    def positions(start: float, end: float, size: int, count: int) -> np.ndarray:
        return (np.linspace(start, end, count) if count > 1 else np.array([(start + end) / 2])) * (size - 1)

    def pixel(image: np.ndarray, y: float, x: float) -> np.ndarray:
        if not (0 <= y <= image.shape[1] - 1 and 0 <= x <= image.shape[2] - 1):
            return np.full(image.shape[0], outside)
        if mode == "nearest":
            return image[:, int(y + 0.5), int(x + 0.5)]
        (top, bottom), (left, right) = ((int(np.floor(p)), int(np.ceil(p))) for p in (y, x))
        upper, lower = (
            image[:, i, left] + (image[:, i, right] - image[:, i, left]) * (x - left) for i in (top, bottom)
        )
        return upper + (lower - upper) * (y - top)

    def function(x: np.ndarray, boxes: np.ndarray, numbers: np.ndarray, size: np.ndarray) -> np.ndarray:
        rows, columns = size.astype(int)
        crops = []
        for (top, left, bottom, right), number in zip(boxes, numbers.astype(int), strict=True):
            ys, xs = positions(top, bottom, x.shape[2], rows), positions(left, right, x.shape[3], columns)
            crops.append([[pixel(x[number], y, at) for at in xs] for y in ys])
        return np.moveaxis(np.array(crops), -1, 1)

    return formula(function)


def crops(size: list[int], **rest: Any):
    return microsoft("CropAndResize", [IMAGES, BOXES, OF_IMAGES, np.array(size, np.int32)], **rest)


# ---- Others

COSTS = np.abs(waves(5, 7, scale=3.0))
GRID = np.round(waves(2, 3, 2, 2, scale=20.0)) / 16


MODES = {"nearest": "nearest", "bilinear": "linear", "bicubic": "cubic"}


def doubles(inputs: list[Any]) -> list[Any]:
    return [np.asarray(x).astype(np.float64) for x in inputs]


def grid_sample(mode: str | None = None, **attributes: Any):
    """Makes a row by the standard's operator, as onnxruntime has no kernel for the CPU but for that one."""
    meaning = modern("GridSample", 20, doubles, run=run_ort, mode=MODES[mode or "bilinear"], **attributes)
    given = attributes if mode is None else attributes | {"mode": mode}
    return microsoft("GridSample", [IMAGES, GRID], meaning=meaning, **given)


def spectrum(*axes: int):
    def function(x: np.ndarray) -> np.ndarray:
        y = np.fft.rfftn(x, axes=axes)
        return np.stack([y.real, y.imag], -1)

    return function


def signal(*axes: int):
    return lambda x: np.fft.irfftn(x[..., 0] + 1j * x[..., 1], axes=axes)


def as_they_come(case: Any) -> list[Any]:
    y, first, index, counts = np.unique(case.inputs[0], return_index=True, return_inverse=True, return_counts=True)
    order = np.argsort(first)
    return [y[order], np.argsort(order)[index], counts[order]]


SPARSE = floats([0, 2, 0, -1], [0, 0, 0, 0], [3, 0, 0, 5])


def product(alpha: float = 1.0, transA: int = 0, transB: int = 0):
    return formula(lambda a, b: alpha * (a.T if transA else a) @ (np.swapaxes(b, -2, -1) if transB else b))


def sparse(b: np.ndarray, **attributes: Any):
    """Makes a row by a formula, as onnxruntime takes no sparse matrix from Python."""
    return microsoft("SparseToDenseMatMul", [SPARSE, b], meaning=product(**attributes), **attributes)


def detect(src: list[int], current: list[int], previous: int, predicted: list[int] | None = None, **attributes: Any):
    inputs = [ints(*src), ints(*current), ints(previous), *([] if predicted is None else [ints(*predicted)])]
    return microsoft("BifurcationDetector", inputs, outputs=2, **attributes)


# ---- EfficientNMS_TRT

GRID_OF_BOXES = np.array([[y, x, y + 3, x + 4] for y in (0, 2, 8) for x in (0, 1, 7)], np.float32)
BOXES_2 = np.stack([GRID_OF_BOXES, GRID_OF_BOXES[::-1] / 2])
SCORES_2 = np.stack([(np.arange(27) * 11 % 27).reshape(9, 3), (np.arange(27) * 5 % 27).reshape(9, 3)]).astype(
    np.float32
) / np.float32(32)
NMS = {
    "background_class": -1,
    "box_coding": 0,
    "iou_threshold": 0.25,
    "max_output_boxes": 5,
    "plugin_version": "1",
    "score_activation": 0,
    "score_threshold": 0.25,
}


def overlap(a: np.ndarray, b: np.ndarray) -> float:
    sides = np.maximum(np.minimum(a[2:], b[2:]) - np.maximum(a[:2], b[:2]), 0)
    areas = np.prod(a[2:] - a[:2]) + np.prod(b[2:] - b[:2]) - np.prod(sides)
    return np.prod(sides) / areas if areas > 0 else 0.0


def best_boxes(**options: Any):
    """Gives the meaning of choosing greedily, the best first, box by box."""
    o = NMS | options

    def meaning(case: Any) -> list[Any]:
        boxes, scores, *anchors = (np.asarray(x).astype(np.float64) for x in case.inputs)
        if o["score_activation"]:
            scores = 1 / (1 + np.exp(-scores))
        boxes = boxes if boxes.ndim == 4 else np.repeat(boxes[:, :, None], scores.shape[2], 2)
        if anchors:
            prior = anchors[0][:, :, None]
            sizes = prior[..., 2:]
            boxes = (
                np.concatenate([boxes[..., :2] * sizes + prior[..., :2], np.exp(boxes[..., 2:]) * sizes], -1)
                if o["box_coding"]
                else boxes + prior
            )
        if o["box_coding"]:
            boxes = np.concatenate([boxes[..., :2] - boxes[..., 2:] / 2, boxes[..., :2] + boxes[..., 2:] / 2], -1)
        most = o["max_output_boxes"]
        shape = (len(scores), most)
        counts = np.zeros((len(scores), 1), np.int32)
        found = [counts, np.zeros((*shape, 4)), np.zeros(shape), np.zeros(shape, np.int32)]
        for i, (own, chances) in enumerate(zip(boxes, scores, strict=True)):
            kept: list[tuple[int, int]] = []
            for place in np.argsort(-chances, axis=None, kind="stable"):
                box, label = np.unravel_index(place, chances.shape)
                if chances[box, label] < o["score_threshold"] or label == o["background_class"]:
                    continue
                others = [b for b, other in kept if other == label]
                if all(overlap(own[box, label], own[b, label]) <= o["iou_threshold"] for b in others):
                    kept.append((int(box), int(label)))
            for k, (box, label) in enumerate(kept[:most]):
                found[1][i, k], found[2][i, k], found[3][i, k] = own[box, label], chances[box, label], label
            counts[i] = min(len(kept), most)
        return found

    return meaning


PLUGIN_INPUTS = [BOXES_2, SCORES_2], [BOXES_2, SCORES_2, BOXES_2[:1]]


def nms(*inputs: Any, domain: str = "", **options: Any):
    return row(f"{domain}EfficientNMS_TRT", list(inputs), outputs=4, meaning=best_boxes(**options), **(NMS | options))


TENSOR_ROWS = [
    *(
        microsoft("CDist", POINTS, only="double", metric=metric, meaning=distances(metric))
        for metric in ("euclidean", "sqeuclidean")
    ),
    microsoft("CDist", POINTS),
    microsoft("CDist", POINTS, metric="euclidean"),
    microsoft("CDist", [waves(40, 3), waves(30, 3, scale=2.0) + 4], metric="euclidean"),
    microsoft("CDist", [POINTS[0][:0], POINTS[1]], metric="euclidean"),
    *(microsoft("CDist", POINTS, metric=metric, meaning=distances(metric)) for metric in METRICS),
    microsoft(
        "CDist", [floats([0, 1, 2], [3, 0, 1]), floats([0, 2, 2])], metric="canberra", meaning=distances("canberra")
    ),
    #
    microsoft("Inverse", [floats([[4, 1, 0], [1, -3, 2], [0.5, 2, 5]])], only="double", meaning=formula(np.linalg.inv)),
    microsoft("Inverse", [floats([4, 1, 0], [1, -3, 2], [0.5, 2, 5])]),
    microsoft("Inverse", [floats([[[2, 1], [1, 3]]], [[[0, -1], [4, 0]]])]),
    microsoft("Inverse", [np.zeros((0, 2, 2), np.float32)]),
    #
    crops([3, 4], only="double", mode="bilinear", meaning=crop("bilinear", 0.0)),
    crops([3, 4]),
    crops([1, 5], mode="bilinear", extrapolation_value=-7.5),
    crops([4, 1], mode="nearest"),
    crops([6, 6], mode="nearest", extrapolation_value=2.0),
    microsoft("CropAndResize", [IMAGES, BOXES[:0], OF_IMAGES[:0], np.array([2, 2], np.int32)]),
    #
    grid_sample(),
    grid_sample(mode="bilinear", padding_mode="zeros"),
    grid_sample(mode="nearest", padding_mode="border"),
    grid_sample(mode="bicubic", padding_mode="reflection", align_corners=1),
    #
    microsoft("Pad", [X, ints(0, 1, 0, 2, 0, 1)]),
    microsoft("Pad", [X, ints([0, 1, 0, 2, 0, 1]), floats(1.5)]),
    microsoft("Pad", [X, ints(0, -1, 2, 1, 0, 1)], mode="edge"),
    microsoft("Pad", [X, ints(0, 2, 0, 1, 0, -1)], mode="reflect"),
    microsoft("Pad", [X, ints(0, 2, 0, 1, 0, -1), floats(-2)[0]], mode="constant"),
    #
    microsoft("Range", [floats(1)[0], floats(4)[0]]),
    microsoft("Range", [floats(2), floats(-5), floats(-3)]),
    microsoft("Range", [floats(2)[0], floats(2)[0], floats(1)[0]]),
    #
    microsoft("Trilu", [whole(2, 3, 4)]),
    microsoft("Trilu", [whole(2, 3, 4), ints(1)[0]], upper=0),
    microsoft("Trilu", [whole(4, 3), ints(-1)], upper=1),
    #
    microsoft("Unique", [floats(2, 1, 1, 3, 4, 3)], outputs=3, only="bool|complex|string", meaning=as_they_come),
    microsoft("Unique", [floats(2, 1, 1, 3, 4, 3)], outputs=3),
    microsoft("Unique", [floats()], outputs=3),
    #
    microsoft("ExpandDims", [X, np.array(1, np.int32)]),
    microsoft("ExpandDims", [X, np.array([-1], np.int32)]),
    microsoft("ExpandDims", [X[:0], np.array(-4, np.int32)]),
    #
    microsoft("GatherND", [X, ints([0, 2], [-1, 0])]),
    microsoft("GatherND", [X, ints([[1]], [[0]])]),
    microsoft("GatherND", [X, np.array([[0, 2, 3], [1, 1, -4]], np.int32)]),
    microsoft("GatherND", [X, np.zeros((0, 2), np.int64)]),
    #
    microsoft("UnfoldTensor", [X], size=2),
    microsoft("UnfoldTensor", [X], size=2, dim=1, step=2),
    microsoft("UnfoldTensor", [X], size=3, dim=-2),
    microsoft("UnfoldTensor", [X[:, :, :0]], size=1, dim=0),
    #
    microsoft("DynamicTimeWarping", [COSTS]),
    microsoft("DynamicTimeWarping", [COSTS.T[np.newaxis].copy()]),
    microsoft("DynamicTimeWarping", [np.ones((4, 4), np.float32)]),
    microsoft("DynamicTimeWarping", [floats([2, 1, 5])]),
    microsoft("DynamicTimeWarping", [floats([np.nan, 1], [np.inf, 1], [-1, 3])]),
    microsoft("DynamicTimeWarping", [COSTS[:0]]),
    #
    detect([1, 2, 3, 4], [9], 0, [1, 2, 7, 4, 5]),
    detect([1, 2, 3, 4], [9], 1, [2, 3, 4, 5]),
    detect([1, 2, 3, 2], [9, 2], 0),
    detect([1, 2, 3, 1, 2, 1, 1, 2], [7, 3], 3, [1, 2, 5, 5, 5, 5], min_ngram_size=1, max_ngram_size=4),
    detect([1, 2, 3, 1, 2], [7, 3, 1, 2], 0, min_ngram_size=2),
    detect([1, 2, 3, 1, 2], [7, 3, 1, 2], 0, max_ngram_size=2),
    detect([5], [], 1, [7], min_ngram_size=3, max_ngram_size=5),
    detect([], [1, 2], 0),
    #
    sparse(whole(4, 2)),
    sparse(whole(2, 3, 4), alpha=2.0, transB=1),
    sparse(whole(3, 2), transA=1),
    sparse(whole(4, 0)),
    #
    microsoft("SampleOp", [X], meaning=unchanged),
    row("MemcpyFromHost", [X], meaning=unchanged),
    row("MemcpyToHost", [X], meaning=unchanged),
    # onnxruntime has no kernel for the CPU.
    nms(BOXES_2, SCORES_2),
    nms(BOXES_2, SCORES_2, iou_threshold=0.625, max_output_boxes=30, background_class=1),
    nms(BOXES_2, SCORES_2, box_coding=1, score_activation=1, score_threshold=0.5625),
    nms(np.stack([BOXES_2, BOXES_2 + 1, BOXES_2 / 2], 2), SCORES_2, max_output_boxes=12),
    nms(BOXES_2, SCORES_2, BOXES_2[:1]),
    nms(BOXES_2 / 16, SCORES_2, BOXES_2, box_coding=1),
    nms(BOXES_2[:, :0], SCORES_2[:, :0]),
    *(nms(*inputs, domain=f"{domain}.") for domain in ("trt", "TRT") for inputs in PLUGIN_INPUTS),
    microsoft("Rfft", [X], meaning=formula(spectrum(-1))),
    microsoft("Rfft", [waves(3, 5, 6)], signal_ndim=2, onesided=1, normalized=0, meaning=formula(spectrum(1, 2))),
    microsoft("Irfft", [waves(2, 4, 2)], signal_ndim=1, meaning=formula(signal(-1))),
    microsoft("Irfft", [waves(3, 4, 3, 2)], signal_ndim=2, onesided=1, normalized=0, meaning=formula(signal(1, 2))),
]
