"""Templates of src/ops/contrib/attention.cpp."""

from __future__ import annotations

from typing import Any

import numpy as np
from scipy.special import softmax

from ..making import floats, microsoft, waves
from ..modern import formula


def int32(*values: Any) -> np.ndarray:
    return np.array(values, np.int32)


def heads(x: np.ndarray, count: int) -> np.ndarray:
    """[batch, sequence, count * size] as [batch, count, sequence, size]."""
    return x.reshape(*x.shape[:2], count, -1).transpose(0, 2, 1, 3)


def beside(x: np.ndarray) -> np.ndarray:
    """And back."""
    return x.transpose(0, 2, 1, 3).reshape(x.shape[0], x.shape[2], -1)


def attended(q: np.ndarray, k: np.ndarray, v: np.ndarray, added: Any = 0.0, scale: float = 0.0) -> np.ndarray:
    scores = q @ k.swapaxes(2, 3) * (scale or q.shape[3] ** -0.5) + added
    return softmax(scores, -1) @ v


# --- Attention ---

COUNT = 2
X, WEIGHTS, BIAS = waves(2, 3, 4), waves(4, 12, scale=1.5), waves(12)
PAST = waves(2, 2, 2, 2, 2, scale=1.2)
SCORE_BIAS = waves(1, 2, 3, 3, scale=2.0)
UNEQUAL = [X, waves(4, 14, scale=1.5), waves(14)]
WINDOW = int32([[[[1, 0, 1, 1, 1], [1, 1, 0, 1, 0], [1, 0, 1, 0, 1], [1, 0, 1, 1, 0], [0, 1, 1, 1, 1]]]] * 2)[0]


def projected_heads(x: np.ndarray, weights: np.ndarray, bias: Any = 0.0) -> list[np.ndarray]:
    return [heads(part, COUNT) for part in np.split(x @ weights + bias, 3, -1)]


def without_bias(x: np.ndarray, weights: np.ndarray) -> np.ndarray:
    return beside(attended(*projected_heads(x, weights)))


def megatron(x: np.ndarray, weights: np.ndarray, bias: np.ndarray, mask: np.ndarray, past: np.ndarray) -> np.ndarray:
    """A square of positions, of which the queries' are the rows after the past."""
    q, k, v = projected_heads(x, weights, bias)
    k, v = (np.concatenate(pair, 2) for pair in zip(past, (k, v), strict=True))
    keys, queries = k.shape[2], q.shape[2]
    return beside(attended(q, k, v, np.where(mask[:, :, keys - queries : keys, :keys] > 0, 0, -10000)))


def past_and_bias(x, weights, bias, past, score_bias) -> list[np.ndarray]:
    q, k, v = projected_heads(x, weights, bias)
    k, v = (np.concatenate(pair, 2) for pair in zip(past, (k, v), strict=True))
    return beside(attended(q, k, v, score_bias))


def shared(x, weights, bias, past, length) -> tuple[np.ndarray, np.ndarray]:
    """A past in a buffer that has room for more."""
    q, k, v = projected_heads(x, weights, bias)
    first, last = int(length[0]), int(length[0]) + q.shape[2]
    present = past.copy()
    present[:, :, :, first:last] = k, v
    causal = np.arange(last) > np.arange(first, last)[:, None]
    return beside(attended(q, *present[:, :, :, :last], np.where(causal, -np.inf, 0))), present


def turned(x: np.ndarray, past: int, dim: int) -> np.ndarray:
    """The two elements of a pair lie half of `dim` apart."""
    angle = (past + np.arange(x.shape[2])[:, None]) * 10000.0 ** (-np.arange(0, dim, 2) / dim)
    one, two, rest = x[..., : dim // 2], x[..., dim // 2 : dim], x[..., dim:]
    cos, sin = np.cos(angle), np.sin(angle)
    return np.concatenate([one * cos - two * sin, two * cos + one * sin, rest], -1)


def rotary(dim: int):
    def function(x, weights, bias, past=None) -> np.ndarray:
        q, k, v = projected_heads(x, weights, bias)
        length = 0 if past is None else past.shape[3]
        q, k = turned(q, length, dim or q.shape[3]), turned(k, length, dim or q.shape[3])
        if past is not None:
            k, v = (np.concatenate(pair, 2) for pair in zip(past, (k, v), strict=True))
        return beside(attended(q, k, v))

    return function


def outputs(function):
    """A formula of several outputs."""
    return lambda case: list(function(*(np.asarray(x).astype(np.float64) for x in case.inputs)))


def attention(inputs: list[Any], **rest: Any):
    return microsoft("Attention", inputs, num_heads=COUNT, **rest)


WIDE = [waves(2, 3, 4), waves(4, 24, scale=1.5), waves(24)]  # heads of 4
WIDE_PAST = waves(2, 2, 2, 2, 4, scale=1.2)
LOWEST = float(np.finfo(np.float32).min)

ATTENTION_ROWS_PROPER = [
    attention([X, WEIGHTS, BIAS]),
    attention([X, WEIGHTS, BIAS], outputs=2),
    attention([X, WEIGHTS, BIAS], unidirectional=1, outputs=2),
    attention([X, WEIGHTS, BIAS], unidirectional=1, scale=0.5),
    attention([X, WEIGHTS, BIAS], unidirectional=2),  # is not 1
    attention(UNEQUAL, qkv_hidden_sizes=[4, 4, 6]),
    # the forms of mask_index
    attention([X, WEIGHTS, BIAS, int32(1, 2)]),
    attention([X, WEIGHTS, BIAS, int32(9, 2)], mask_filter_value=-2.5),
    attention([X, WEIGHTS, BIAS, int32(0, 3)], mask_filter_value=-2.5),
    attention([X, WEIGHTS, BIAS, int32(2, 3, -1, 1)]),
    attention([X, WEIGHTS, BIAS, int32(1, 3, 3, 1)], mask_filter_value=-2.5, unidirectional=1),
    attention([X, WEIGHTS, BIAS, int32(1, 2, 0, 3, 6, 0, 1, 3)]),
    attention([X, WEIGHTS, BIAS, int32([0], [1])]),
    attention([X, WEIGHTS, BIAS, int32([[0]])[0]]),
    attention([X[:, :1], WEIGHTS, BIAS, int32([0], [1])], mask_filter_value=-2.5),
    attention([X, WEIGHTS, BIAS, int32([0, 2, 1], [1, -1, 1])]),
    attention([X, WEIGHTS, BIAS, int32([0, 1, 1], [0, 0, 1])], mask_filter_value=LOWEST, unidirectional=1),
    attention([X, WEIGHTS, BIAS, int32([[1, 1, 0], [1, 0, 1], [0, 1, 0]], [[1, 0, 0], [1, 1, 0], [0, 0, 1]])]),
    attention([X, WEIGHTS, BIAS, int32([1, 0, 1, 1, 1], [1, 1, 1, 0, 1]), PAST], outputs=2),
    attention([X, WEIGHTS, BIAS, WINDOW[[0, 0]], PAST], outputs=1, meaning=formula(megatron)),  # its kernel refuses it
    # the past
    attention([X, WEIGHTS, BIAS, None, PAST], outputs=2, unidirectional=1),
    attention([X[:, :1], WEIGHTS, BIAS, None, PAST], outputs=2, unidirectional=1),
    attention([X, WEIGHTS, BIAS, int32(2, 4), PAST], outputs=2, unidirectional=1, mask_filter_value=-2.5),
    attention([X, WEIGHTS, BIAS, None, PAST[:, :, :, :0]], outputs=2),
    attention(
        [X, WEIGHTS, BIAS, None, waves(2, 2, 2, 6, 2), None, int32(2)],
        outputs=2,
        unidirectional=1,
        past_present_share_buffer=1,
        meaning=outputs(shared),
    ),
    # what is added
    attention([X, WEIGHTS, BIAS, None, None, SCORE_BIAS]),
    attention([X, WEIGHTS, BIAS, int32(1, 2), None, waves(2, 1, 3, 3)], unidirectional=1),
    attention([X, WEIGHTS, BIAS, None, PAST, waves(2, 1, 3, 5)], meaning=formula(past_and_bias)),  # its kernel refuses
    # its kernel reads a bias that is not there
    attention([X, WEIGHTS], meaning=formula(without_bias)),
    # its kernel for the CPU refuses do_rotary
    attention(WIDE, do_rotary=1, meaning=formula(rotary(0))),
    attention([*WIDE, None, WIDE_PAST], do_rotary=1, rotary_embedding_dim=2, meaning=formula(rotary(2))),
    attention([X[:, :0], WEIGHTS, BIAS, None, PAST], outputs=2),
    attention([X[:0], WEIGHTS, BIAS], outputs=1),
]

ATTENTION_ROWS: list[Any] = [*ATTENTION_ROWS_PROPER]
