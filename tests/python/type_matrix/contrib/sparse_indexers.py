"""Templates of SparseAttentionIndexer and PackedSparseAttentionIndexer, which choose what is attended to."""

from __future__ import annotations

from typing import Any

import numpy as np
from scipy.special import softmax

from ..making import ints, microsoft, waves
from .cached_attention import int32
from .paged_attention import rms

# --- SparseAttentionIndexer ---

INDEX_ANGLES = [np.cos(waves(12, 4, scale=3.0)), np.sin(waves(12, 4, scale=3.0))]
INDEX_WEIGHTS = [waves(8) + 1.5, waves(8)[::-1].copy() + 1.5]


def named_inputs(case: Any) -> dict[str, np.ndarray]:
    """Gives the inputs by their names in the schema."""
    names = [i.name for i in case.model.graph.input]
    given = zip((f.name for f in case.cell.schema.inputs), case.model.graph.node[-1].input, strict=False)
    values = {formal: np.asarray(case.inputs[names.index(name)]) for formal, name in given if name}
    return {name: x if x.dtype.kind in "ui" else x.astype(np.float64) for name, x in values.items()}


def turned_first(x: np.ndarray, cos: np.ndarray, sin: np.ndarray) -> np.ndarray:
    """Turns the halves of the first four elements."""
    head = x[..., :4]
    return np.concatenate([head * cos + np.concatenate([-head[..., 2:], head[..., :2]], -1) * sin, x[..., 4:]], -1)


def turned_last(x: np.ndarray, cos: np.ndarray, sin: np.ndarray) -> np.ndarray:
    """Turns pairs of the last eight elements."""
    y, (a, b) = x.copy(), (x[..., -8::2], x[..., -7::2])
    y[..., -8::2], y[..., -7::2] = a * cos - b * sin, b * cos + a * sin
    return y


def ranked(scores: list[float], count: int) -> list[int]:
    return sorted(range(len(scores)), key=lambda i: (-scores[i], i))[:count]


def filled(rows: list[list[int]], capacity: int) -> np.ndarray:
    return np.array([row + [-1] * (capacity - len(row)) for row in rows], np.int32).reshape(-1, capacity)


def chosen_tokens(q, keys, seen, at, angles, weights, ratio, budget, scale, epsilon) -> list[int]:
    """Chooses the tokens of one query."""
    cos, sin = angles
    q = turned_first(rms(q, weights[0], epsilon), cos[at], sin[at])
    blocks = [seen[i : i + ratio] for i in range(0, len(seen) - ratio + 1, ratio)]
    pooled = [turned_first(rms(keys[b].mean(0), weights[1], epsilon), cos[b[0]], sin[b[0]]) for b in blocks]
    scores = [np.maximum(q @ key, 0).sum() * scale for key in pooled]
    best = [t for i in ranked(scores, budget // ratio) for t in blocks[i]]
    return best + list(seen[len(blocks) * ratio :])


def token_indexer(ratio: int, budget: int, scale: float = 8**-0.5, epsilon: float = 1e-6):
    def function(case: Any) -> list[Any]:
        g = named_inputs(case)
        q, k = (g["query"], g["key"]) if "key" in g else np.split(g["query"], [-8], 2)
        batch, sequence = q.shape[:2]
        past = int(g["past_sequence_length"][0]) if "past_sequence_length" in g else g["past_key"].shape[1]
        whole = np.concatenate([g["past_key"][:, :past], k], 1)
        present = g["past_key"].copy() if "past_sequence_length" in g else whole
        present[:, : past + sequence] = whole
        rows = []
        for b in range(batch):
            angles = [g[name] if g[name].ndim == 2 else g[name][b] for name in ("cos_cache", "sin_cache")]
            for s in range(sequence):
                seen = [t for t in range(past + s + 1) if "mask" not in g or g["mask"][b, t]]
                query = q[b, s].reshape(-1, 8)
                weights = g["query_norm_weight"], g["key_norm_weight"]
                rows.append(
                    chosen_tokens(query, whole[b], seen, past + s, angles, weights, ratio, budget, scale, epsilon)
                )
        return [filled(rows, budget + ratio - 1).reshape(batch, sequence, -1), present]

    return function


def compressed(kv, gate, before, bias, ratio, weight, angles, first, epsilon):
    """Compresses windows of one sequence, whose tokens are behind `before` ones."""
    out = []
    for w in range((len(kv) - before) // ratio):
        at = before + w * ratio
        parts = [(gate[at : at + ratio, 8:] + bias[:, 8:], kv[at : at + ratio, 8:])]
        if at >= ratio:
            parts.append((gate[at - ratio : at, :8] + bias[:, :8], kv[at - ratio : at, :8]))
        logits, values = (np.concatenate(x) for x in zip(*parts, strict=True))
        position = min((first + w) * ratio, len(angles[0]) - 1)
        key = rms((softmax(logits, 0) * values).sum(0), weight, epsilon)
        out.append(turned_last(key, angles[0][position], angles[1][position]))
    return np.array(out).reshape(-1, 8)


def chosen_windows(q, keys, head_weights, at, angles, weight, ratio, count, scale, epsilon) -> list[int]:
    q = turned_last(rms(q, weight, epsilon), angles[0][at], angles[1][at])
    ends = min((at + 1) // ratio, len(keys))
    return ranked([(np.maximum(q @ key, 0) * head_weights).sum() * scale for key in keys[:ends]], count)


def window_indexer(ratio: int, count: int, scale: float = 8**-0.5 * 2**-0.5, epsilon: float = 1e-6):
    def function(case: Any) -> list[Any]:
        g = named_inputs(case)
        batch, sequence = g["query"].shape[:2]
        buffer = g["past_proj_buffer"]
        before = ratio if buffer.shape[2] >= ratio else 0
        done = int(g["past_sequence_length"][0]) if "past_sequence_length" in g else g["past_key"].shape[1]
        kv, gate = np.concatenate([buffer, np.stack([g["key"], g["gate"]])], 2)
        new = (kv.shape[1] - before) // ratio
        rest = (kv.shape[1] - before) % ratio + (ratio if new else before)
        rows, keys = [], []
        for b in range(batch):
            angles = [g[name] if g[name].ndim == 2 else g[name][b] for name in ("cos_cache", "sin_cache")]
            own = compressed(
                kv[b], gate[b], before, g["position_bias"], ratio, g["key_norm_weight"], angles, done, epsilon
            )
            keys.append(np.concatenate([g["past_key"][b, :done], own]))
            for s in range(sequence):
                at = int(g["position_ids"][b, s])
                q, weights = g["query"][b, s].reshape(-1, 8), g["head_weights"][b, s]
                rows.append(
                    chosen_windows(
                        q, keys[b], weights, at, angles, g["query_norm_weight"], ratio, count, scale, epsilon
                    )
                )
        present = g["past_key"].copy() if "past_sequence_length" in g else np.stack(keys)
        present[:, : done + new] = np.stack(keys)
        selected = filled(rows, count).reshape(batch, sequence, -1)
        return [selected, present, np.stack([kv[:, kv.shape[1] - rest :], gate[:, kv.shape[1] - rest :]])]

    return function


def tokens_row(inputs: list[Any], meaning: Any, **attributes: Any):
    return microsoft("SparseAttentionIndexer", inputs, outputs=2, policy_mode="qsa", meaning=meaning, **attributes)


def windows_row(inputs: list[Any], meaning: Any, **attributes: Any):
    return microsoft("SparseAttentionIndexer", inputs, outputs=3, policy_mode="csa", meaning=meaning, **attributes)


INDEX_QUERY, INDEX_KEY, INDEX_PAST = waves(2, 4, 16, scale=2.0), waves(2, 4, 8)[::-1].copy(), waves(2, 6, 8, scale=1.5)
INDEX_MASK = (np.arange(20) % 4 != 1).astype(np.int64).reshape(2, 10)
OF_EACH = [np.stack([x, x[::-1]]) for x in INDEX_ANGLES]
BOTH_IN_ONE = np.concatenate([INDEX_QUERY, INDEX_KEY], 2)
WINDOW_KEY, WINDOW_GATE = waves(2, 4, 16)[::-1].copy(), waves(2, 4, 16, scale=1.5)
WINDOW_BIAS, HEAD_WEIGHTS, WINDOW_AT = waves(3, 16), waves(2, 4, 2) + 0.3, ints([5, 6, 7, 8], [8, 9, 10, 11])
WINDOWS = [WINDOW_GATE, WINDOW_BIAS, HEAD_WEIGHTS, WINDOW_AT]

# onnxruntime has no kernel for the CPU.
INDEXER_ROWS = [
    tokens_row(
        [INDEX_QUERY, INDEX_KEY, *INDEX_WEIGHTS, *INDEX_ANGLES, None, INDEX_PAST],
        token_indexer(2, 4),
        compress_ratio=2,
        token_budget=4,
    ),
    tokens_row(
        [BOTH_IN_ONE, None, *INDEX_WEIGHTS, *OF_EACH, INDEX_MASK, INDEX_PAST],
        token_indexer(3, 6, 0.5, 0.25),
        compress_ratio=3,
        token_budget=6,
        scale=0.5,
        epsilon=0.25,
    ),
    tokens_row(
        [
            INDEX_QUERY,
            INDEX_KEY,
            *INDEX_WEIGHTS,
            *INDEX_ANGLES,
            INDEX_MASK[:, :6].copy(),
            INDEX_PAST,
            *[None] * 4,
            int32(2),
        ],
        token_indexer(2, 12),
        compress_ratio=2,
        token_budget=12,
    ),
    tokens_row(
        [INDEX_QUERY, INDEX_KEY, *INDEX_WEIGHTS, *INDEX_ANGLES, None, INDEX_PAST[:, :0]],
        token_indexer(8, 8),
        compress_ratio=8,
        token_budget=8,
    ),
    windows_row(
        [
            INDEX_QUERY,
            WINDOW_KEY,
            *INDEX_WEIGHTS,
            *INDEX_ANGLES,
            None,
            INDEX_PAST[:, :2].copy(),
            *WINDOWS,
            None,
            waves(2, 2, 4, 16, scale=0.7),
        ],
        window_indexer(3, 2),
        compress_ratio=3,
        index_topk=2,
    ),
    windows_row(
        [
            INDEX_QUERY,
            WINDOW_KEY,
            *INDEX_WEIGHTS,
            *OF_EACH,
            None,
            INDEX_PAST,
            *WINDOWS,
            int32(2),
            waves(2, 2, 2, 16, scale=0.7),
        ],
        window_indexer(3, 5, 0.25, 0.25),
        compress_ratio=3,
        index_topk=5,
        scale=0.5,
        head_weight_scale=0.5,
        epsilon=0.25,
    ),
    windows_row(
        [
            INDEX_QUERY[:, :2].copy(),
            WINDOW_KEY[:, :2].copy(),
            *INDEX_WEIGHTS,
            *INDEX_ANGLES,
            None,
            INDEX_PAST[:, :0],
            *(x if i == 1 else x[:, :2].copy() for i, x in enumerate(WINDOWS)),
            None,
            waves(2, 2, 0, 16),
        ],
        window_indexer(3, 2),
        compress_ratio=3,
        index_topk=2,
    ),
]

# --- PackedSparseAttentionIndexer ---

PACKED_LENGTHS = [int32(0, 4, 4, 7), int32(5, 3, 1)]  # of three sequences, of which one has no new token
PACKED_QUERY, PACKED_KEY, STATE = waves(7, 16, scale=2.0), waves(7, 8)[::-1].copy(), waves(3, 5, 8, scale=1.5)
TOKEN_BUFFER, TOKEN_STATES = waves(3, 3, 8, scale=1.2), int32(2, 1, 1, 1, 0, 1).reshape(3, 2)
OF_THREE = [np.stack([x, x[::-1], x * 0.5]) for x in INDEX_ANGLES]


def packed_tokens(ratio: int, budget: int, scale: float = 8**-0.5, epsilon: float = 1e-6, active: bool = True):
    """Gives the meaning for each sequence, whose blocks keep the type of the states."""

    def function(case: Any) -> list[Any]:
        g, dtype = named_inputs(case), case.inputs[0].dtype
        q, k = (g["query"], g["key"]) if "key" in g else np.split(g["query"], [-8], 1)
        state, buffer, lengths = (g[name].copy() for name in ("past_key_state", "past_kv_buffer", "past_state_lengths"))
        captured = g.get("state_update_capture_count", np.zeros(3, int))
        update = np.zeros((3, 4 if "state_update_capture_count" in g else 0, 8))
        rows = []
        for b in range(3):
            start, end = g["cumulative_sequence_lengths"][b : b + 2]
            past, (entries, pending) = int(g["past_sequence_lengths"][b]), lengths[b]
            own = np.concatenate([buffer[b, :pending], k[start:end]])
            new = len(own) // ratio
            if entries + new > state.shape[1]:
                rows += [[] for _ in range(start, end)]
                continue
            cos, sin = (g[name] if g[name].ndim == 2 else g[name][b] for name in ("cos_cache", "sin_cache"))
            for i in range(new):
                at = min((entries + i) * ratio, len(cos) - 1)
                pooled = rms(own[i * ratio : (i + 1) * ratio].mean(0), g["key_norm_weight"], epsilon)
                state[b, entries + i] = turned_first(pooled, cos[at], sin[at]).astype(dtype)
            for i in range(min(captured[b], end - start, update.shape[1]) if active else 0):
                whole = (pending + i + 1) % ratio == 0
                update[b, i] = state[b, entries + (pending + i) // ratio] if whole else k[start + i]
            lengths[b] = entries + new, len(own) - new * ratio
            buffer[b, : len(own) - new * ratio] = own[new * ratio :]
            for t in range(start, end):
                at = past + t - start
                query = turned_first(rms(q[t].reshape(-1, 8), g["query_norm_weight"], epsilon), cos[at], sin[at])
                blocks = (at + 1) // ratio
                scores = [np.maximum(query @ state[b, i], 0).sum() * scale for i in range(blocks)]
                best = [j for i in ranked(scores, budget // ratio) for j in range(i * ratio, (i + 1) * ratio)]
                rows.append(best + list(range(blocks * ratio, at + 1)))
        counts = np.array([len(row) for row in rows], np.int32)
        return [filled(rows, budget + ratio - 1), counts, state, buffer, lengths, *([update] if update.size else [])]

    return function


def packed_windows(ratio: int, count: int, scale: float = 8**-0.5 * 2**-0.5, epsilon: float = 1e-6):
    def function(case: Any) -> list[Any]:
        g, dtype = named_inputs(case), case.inputs[0].dtype
        state, lengths = g["past_key_state"].copy(), g["past_state_lengths"].copy()
        buffers = [g["past_kv_buffer"].copy(), g["past_gate_buffer"].copy()]
        rows = []
        for b in range(3):
            start, end = g["cumulative_sequence_lengths"][b : b + 2]
            entries, pending = lengths[b]
            own = [
                np.concatenate([x[b, :pending], y[start:end]])
                for x, y in zip(buffers, (g["key"], g["gate"]), strict=True)
            ]
            before = ratio if pending >= ratio else 0
            new = (len(own[0]) - before) // ratio
            if entries + new > state.shape[1]:
                rows += [[] for _ in range(start, end)]
                continue
            angles = [g[name] if g[name].ndim == 2 else g[name][b] for name in ("cos_cache", "sin_cache")]
            windows = compressed(
                *own, before, g["position_bias"], ratio, g["key_norm_weight"], angles, entries, epsilon
            )
            state[b, entries : entries + new] = windows.astype(dtype)
            rest = (len(own[0]) - before) % ratio + (ratio if new else before)
            for x, y in zip(buffers, own, strict=True):
                x[b, :rest] = y[len(y) - rest :]
            lengths[b] = entries + new, rest
            for t in range(start, end):
                query, weights, at = g["query"][t].reshape(-1, 8), g["head_weights"][t], int(g["position_ids"][t])
                keys = state[b, : entries + new]
                rows.append(
                    chosen_windows(
                        query, keys, weights, at, angles, g["query_norm_weight"], ratio, count, scale, epsilon
                    )
                )
        return [filled(rows, count), np.array([len(row) for row in rows], np.int32), state, *buffers, lengths]

    return function


def packed_row(inputs: list[Any], outputs: list[str], policy_mode: str, meaning: Any, **attributes: Any):
    op, first, last, template, only = microsoft(
        "PackedSparseAttentionIndexer", inputs, policy_mode=policy_mode, meaning=meaning, **attributes
    )
    template.outputs = outputs
    return op, first, last, template, only


OF_TOKENS = ["selected", "counts", "state", "buffer", "", "lengths"]
OF_WINDOWS = ["selected", "counts", "state", "buffer", "gates", "lengths"]
WINDOW_STATES = [waves(3, 5, 16, scale=0.7), waves(3, 5, 16, scale=1.1), int32(2, 4, 1, 1, 5, 2).reshape(3, 2)]
PACKED_WINDOWS = [waves(7, 16, scale=1.5), waves(3, 16), waves(7, 2) + 0.3, ints(5, 6, 7, 8, 9, 10, 11)]

# onnxruntime has no kernel for the CPU.
PACKED_INDEXER_ROWS = [
    packed_row(
        [
            PACKED_QUERY,
            PACKED_KEY,
            *INDEX_WEIGHTS,
            *INDEX_ANGLES,
            *PACKED_LENGTHS,
            *[None] * 4,
            STATE,
            TOKEN_BUFFER,
            None,
            TOKEN_STATES,
        ],
        OF_TOKENS,
        "qsa",
        packed_tokens(2, 4),
        compress_ratio=2,
        token_budget=4,
        state_capacity=5,
    ),
    # This has what the first tokens do to the states; the first sequence's do not fit.
    packed_row(
        [
            np.concatenate([PACKED_QUERY, PACKED_KEY], 1),
            None,
            *INDEX_WEIGHTS,
            *OF_THREE,
            *PACKED_LENGTHS,
            *[None] * 4,
            STATE[:, :3].copy(),
            TOKEN_BUFFER,
            None,
            TOKEN_STATES,
            int32(2, 3, 9),
            int32(1),
        ],
        [*OF_TOKENS, "update"],
        "qsa",
        packed_tokens(2, 2, 0.5, 0.25),
        compress_ratio=2,
        token_budget=2,
        state_capacity=3,
        scale=0.5,
        epsilon=0.25,
        state_update_capacity=4,
    ),
    packed_row(
        [
            PACKED_QUERY,
            PACKED_KEY,
            *INDEX_WEIGHTS,
            *INDEX_ANGLES,
            *PACKED_LENGTHS,
            *[None] * 4,
            STATE,
            TOKEN_BUFFER,
            None,
            TOKEN_STATES,
            int32(2, 3, 9),
            int32(0),
        ],
        [*OF_TOKENS, "update"],
        "qsa",
        packed_tokens(2, 4, active=False),
        compress_ratio=2,
        token_budget=4,
        state_capacity=5,
        state_update_capacity=4,
    ),
    packed_row(
        [
            PACKED_QUERY,
            waves(7, 16)[::-1].copy(),
            *INDEX_WEIGHTS,
            *INDEX_ANGLES,
            *PACKED_LENGTHS,
            *PACKED_WINDOWS,
            waves(3, 6, 8, scale=1.5),
            *WINDOW_STATES,
        ],
        OF_WINDOWS,
        "csa",
        packed_windows(3, 2),
        compress_ratio=3,
        index_topk=2,
        state_capacity=6,
    ),
    packed_row(
        [
            PACKED_QUERY,
            waves(7, 16)[::-1].copy(),
            *INDEX_WEIGHTS,
            *OF_THREE,
            *PACKED_LENGTHS,
            *PACKED_WINDOWS,
            waves(3, 5, 8, scale=1.5),
            *WINDOW_STATES,
        ],
        OF_WINDOWS,
        "csa",
        packed_windows(3, 4, 0.25, 0.25),
        compress_ratio=3,
        index_topk=4,
        state_capacity=5,
        scale=0.5,
        head_weight_scale=0.5,
        epsilon=0.25,
    ),
]

SPARSE_INDEXER_ROWS: list[Any] = [*INDEXER_ROWS, *PACKED_INDEXER_ROWS]
