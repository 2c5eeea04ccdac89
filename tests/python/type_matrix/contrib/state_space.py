"""Templates of src/ops/contrib/state_space.cpp."""

from __future__ import annotations

import dataclasses
from typing import Any

import numpy as np
from scipy.special import expit, softmax

from ..making import floats, microsoft, waves


def int32(*values: Any) -> np.ndarray:
    return np.array(values, np.int32)


def formulas(function: Any, count: int = 99):
    """Gives the meaning of a formula of several outputs, of which the model has the first ones."""
    return lambda case: list(function(*(np.asarray(x).astype(np.float64) for x in case.inputs)))[:count]


# --- LinearAttention ---


def rule_steps(q, k, v, state, decay=None, beta=None):
    """Takes steps over [time, heads, size] with a state for each head; gives the results and the states after each."""
    results, states = [], []
    for t in range(len(k)):
        if decay is not None:
            state = state * np.exp(decay[t])[:, :, None]
        new = v[t]
        if beta is not None:
            new = beta[t][:, None] * (new - np.einsum("hkv,hk->hv", state, k[t]))
        state = state + k[t][:, :, None] * new[:, None]
        results.append(np.einsum("hkv,hk->hv", state, q[t]))
        states.append(state)
    return np.array(results), np.array(states)


def with_window(window: int, kv_heads: int = 2):
    """Gives the formula of the gated delta rule, with as many queries as states."""

    def function(query, key, value, *rest):
        past, decay, beta = rest if len(rest) == 3 else (None, *rest)
        batch, steps = query.shape[:2]
        q, k, v = (x.reshape(batch, steps, kv_heads, -1) for x in (query, key, value))
        zero = np.zeros((batch, kv_heads, k.shape[3], v.shape[3]))
        output, present = np.zeros(v.shape), np.zeros((window, *zero.shape))
        for b in range(batch):
            state = zero[b] if past is None else past[-1, b]
            gate = decay[b].reshape(steps, kv_heads, -1)
            output[b], states = rule_steps(q[b] * k.shape[3] ** -0.5, k[b], v[b], state, gate, beta[b])
            kept = min(window, steps)
            present[window - kept :, b] = states[steps - kept :]
        return output.reshape(batch, steps, -1), present

    return formulas(function)


QUERY, KEY, VALUE = waves(2, 3, 8), waves(2, 3, 4, scale=0.8)[::-1].copy(), waves(2, 3, 6, scale=1.5)
STATE = waves(2, 2, 2, 3, scale=0.7)
DECAY, BETA = -np.abs(waves(2, 3, 2)), 0.5 + waves(2, 3, 2, scale=0.4)
KEY_DECAY = -np.abs(waves(2, 3, 4))


def linear_attention(inputs: list[Any], q_num_heads: int = 4, kv_num_heads: int = 2, **rest: Any):
    settings = {"q_num_heads": q_num_heads, "kv_num_heads": kv_num_heads}
    return microsoft("LinearAttention", inputs, outputs=2, **settings, **rest)


LINEAR_ROWS = [
    linear_attention([QUERY, KEY, VALUE, STATE, DECAY, BETA]),
    linear_attention([QUERY, KEY, VALUE, None, KEY_DECAY, BETA[:, :, :1].copy()], update_rule="gated_delta", scale=0.3),
    linear_attention([QUERY, KEY, VALUE, STATE, KEY_DECAY], update_rule="gated", chunk_size=2),
    linear_attention([QUERY, KEY, VALUE, STATE, None, BETA], update_rule="delta"),
    linear_attention([QUERY, KEY, VALUE, STATE, DECAY, BETA], update_rule="linear"),
    linear_attention([QUERY, KEY, VALUE], update_rule="linear"),
    linear_attention([QUERY, KEY[:, :, :2].copy(), VALUE], update_rule="linear"),  # one head of key for two states
    # There are more states than queries.
    linear_attention(
        [QUERY[:, :, :4].copy(), waves(2, 3, 8), waves(2, 3, 12), None, KEY_DECAY, waves(2, 3, 4)], 2, 4, scale=0.25
    ),
    linear_attention([QUERY[:, :0], KEY[:, :0], VALUE[:, :0], STATE], update_rule="linear"),
    linear_attention([QUERY[:0], KEY[:0], VALUE[:0]], update_rule="linear"),
    # onnxruntime's kernel for the CPU has no state_window.
    linear_attention(
        [QUERY[:, :, :4].copy(), KEY, VALUE, waves(2, *STATE.shape), DECAY, BETA],
        2,
        state_window=2,
        meaning=with_window(2),
    ),
    linear_attention(
        [QUERY[:, :, :4].copy(), KEY, VALUE, None, KEY_DECAY, BETA], 2, state_window=5, meaning=with_window(5)
    ),
    microsoft("LinearAttentionGate", [waves(2, 3, 4, scale=2.0), waves(4), waves(4)[::-1].copy()]),
    microsoft(
        "LinearAttentionGate",
        [waves(2, 3, 4, scale=25.0), waves(4), waves(4)[::-1].copy(), waves(2, 3, 4)],
        outputs=2,
    ),
]

# --- GatedDeltaNet ---


def delta_net(names: str, key_heads: int = 1, heads: int = 2, size: int = 2, capacity: int = 0, count: int = 3, **how):
    """Gives the formula of one sequence after another; `names` are the inputs that are there."""

    def function(*inputs):
        given = dict(zip(names.split(), inputs, strict=True))
        query = given["query"]
        if "key" in given:
            q, k, v = query, given["key"], given["value"]
            lead = q.shape[:-2]
        else:
            lead, of_keys = query.shape[:-1], key_heads * size
            q, k, v = np.split(query, [of_keys, 2 * of_keys], -1)
        tokens = int(np.prod(lead))
        q, k = q.reshape(tokens, key_heads, size), k.reshape(tokens, key_heads, size)
        v = v.reshape(tokens, heads, v.shape[-1] if "key" in given else v.shape[-1] // heads)
        if how.get("unit"):
            q, k = (x / np.sqrt((x * x).sum(-1, keepdims=True) + 1e-12) for x in (q, k))
        group = heads // key_heads
        gate = (
            given["decay"].reshape(tokens, heads, given["decay"].size // max(tokens * heads, 1))
            if "decay" in given
            else None
        )
        if "a_log" in given:
            gate = -np.exp(given["a_log"])[:, None] * np.log1p(np.exp(gate + given["dt_bias"][:, None]))
        beta = given["beta"].reshape(tokens, heads) if "beta" in given else None
        if how.get("sigmoid"):
            beta = expit(beta)
        if "ends" in given:
            ends = given["ends"].astype(int)
        else:
            batch = lead[0] if len(lead) == 2 else len(given["state"])
            ends = np.arange(batch + 1) * (len(q) // batch)
        output, last, captured = np.zeros(v.shape), [], []
        for b in range(len(ends) - 1):
            at = slice(ends[b], ends[b + 1])
            state = given["state"][b].swapaxes(1, 2) if "state" in given else np.zeros((heads, size, v.shape[2]))
            wide = np.repeat(k[at], group, 1)
            of_gate, of_beta = gate if gate is None else gate[at], beta if beta is None else beta[at]
            scale = how.get("scale") or size**-0.5
            results, states = rule_steps(np.repeat(q[at], group, 1) * scale, wide, v[at], state, of_gate, of_beta)
            output[at] = results.reshape(len(wide), heads, v.shape[2])
            last.append((states[-1] if len(states) else state).swapaxes(1, 2))
            wanted = min(int(given["count"][b]), capacity, len(wide)) if given.get("active", 1) and capacity else 0
            parts = [np.zeros((capacity, n)) for n in (heads, key_heads * size, heads * v.shape[2])]
            for t in range(wanted):
                before = states[t - 1] if t else state
                factor = np.ones((heads, 1)) if of_gate is None else np.exp(of_gate[t])
                added = states[t] - before * factor[:, :, None]  # the outer product of a key and an update
                update = np.einsum("hkv,hk->hv", added, wide[t]) / (wide[t] ** 2).sum(1)[:, None]
                parts[0][t], parts[1][t], parts[2][t] = factor.ravel(), k[at][t].ravel(), update.ravel()
            captured.append(np.concatenate([part.ravel() for part in parts]))
        return [output.reshape(*lead, *output.shape[1:]), np.array(last), np.array(captured)][:count]

    return formulas(function)


TOKENS = [waves(5, 1, 2), waves(5, 1, 2, scale=0.9)[::-1].copy(), waves(5, 2, 3)]
FOUR = [waves(4, 1, 2), waves(4, 1, 2, scale=0.9)[::-1].copy(), waves(4, 2, 3)]
NET_STATE = waves(2, 2, 3, 2, scale=0.8)
GATE, RATE = -np.abs(waves(5, 2)), 0.5 + waves(5, 2, scale=0.3)


def net(inputs: list[Any], meaning: Any, count: int = 3, **rest: Any):
    return microsoft("GatedDeltaNet", inputs, outputs=count, meaning=meaning, **rest)


NET_ROWS = [
    net([*TOKENS, int32(0, 2, 5), GATE, RATE, NET_STATE], delta_net("query key value ends decay beta state")),
    net([*TOKENS, int32(0, 0, 5), GATE, RATE], delta_net("query key value ends decay beta")),
    net(
        [*TOKENS, int32(0, 5, 5), None, None, NET_STATE],
        delta_net("query key value ends state", scale=0.4),
        update_rule="linear",
        scale=0.4,
        chunk_size=16,
    ),
    net(
        [*FOUR, None, -np.abs(waves(4, 2, 2)), None, NET_STATE],
        delta_net("query key value decay state"),
        update_rule="gated",
    ),
    net(
        [*(x.reshape(2, 2, *x.shape[1:]) for x in FOUR), None, None, RATE[:4].reshape(2, 2, 2)],
        delta_net("query key value beta", unit=True),
        update_rule="delta",
        qk_l2_norm=1,
    ),
    net(
        [*TOKENS, int32(0, 2, 5), GATE, waves(5, 2), NET_STATE, floats(0.3, -0.2), floats(0.5, -1.0)],
        delta_net("query key value ends decay beta state a_log dt_bias", sigmoid=True, unit=True),
        gate_activation="qwen",
        beta_activation="sigmoid",
        qk_l2_norm=1,
    ),
    net([waves(4, 10), None, None, None, GATE[:4], RATE[:4], NET_STATE], delta_net("query decay beta state")),
    net(
        [waves(2, 2, 10), None, None, None, GATE[:4].reshape(2, 2, 2), RATE[:4].reshape(2, 2, 2), NET_STATE],
        delta_net("query decay beta state"),
    ),
    net(
        [*TOKENS, int32(0, 1, 5), GATE, RATE, NET_STATE, None, None, int32(2, 3)],
        delta_net("query key value ends decay beta state count", capacity=4),
        state_update_capacity=4,
    ),
    net(
        [*TOKENS, int32(0, 1, 5), None, RATE, NET_STATE, None, None, int32(-1, 9), int32(1)],
        delta_net("query key value ends beta state count active", capacity=2),
        update_rule="delta",
        state_update_capacity=2,
    ),
    net(
        [*TOKENS, int32(0, 1, 5), GATE, RATE, NET_STATE, None, None, int32(2, 3), int32(0)],
        delta_net("query key value ends decay beta state count active", capacity=4),
        state_update_capacity=4,
    ),
    net([*TOKENS, int32(0, 2, 5), GATE, RATE], delta_net("query key value ends decay beta", count=1), 1),
    net(
        [*(x[:0] for x in TOKENS), int32(0, 0, 0), GATE[:0], RATE[:0], NET_STATE],
        delta_net("query key value ends decay beta state"),
    ),
]

# --- Convolutions with a state ---


def convolved(x: np.ndarray, weight: np.ndarray, bias: Any, dilation: int, silu: bool) -> np.ndarray:
    """Convolves x, [channels, positions], with the state in front."""
    size = weight.shape[2]
    length = x.shape[1] - (size - 1) * dilation
    y = sum(weight[:, 0, j : j + 1] * x[:, j * dilation : j * dilation + length] for j in range(size)) + bias
    return y * expit(y) if silu else y


def conv_with_window(window: int, dilation: int = 1):
    def function(x, weight, past=None):
        kept = (weight.shape[2] - 1) * dilation
        state = np.zeros((*x.shape[:2], kept)) if past is None else past[-1]
        whole = np.concatenate([state, x], 2)
        y = np.array([convolved(one, weight, 0.0, dilation, False) for one in whole])
        present = np.zeros((window, *state.shape))
        for j in range(window):
            first = x.shape[2] - window + j + 1
            if first > 0:
                present[j] = whole[:, :, first : first + kept]
        return y, present

    return formulas(function)


def conv_in_planes(x, weight, bias, past):
    """Convolves [batch, channels, height, width]: causally along the width, and to the same height."""
    rows, kept = weight.shape[2], weight.shape[3] - 1
    whole = np.concatenate([past, x], 3)
    padded = np.pad(whole, [(0, 0), (0, 0), ((rows - 1) // 2, rows // 2), (0, 0)])
    y = np.zeros(x.shape) + bias[:, None, None]
    for i, j in np.ndindex(*weight.shape[2:]):
        y += weight[:, 0, i, j][:, None, None] * padded[:, :, i : i + x.shape[2], j : j + x.shape[3]]
    return y, whole[:, :, :, whole.shape[3] - kept :]


IMAGE, KERNELS, CONV_BIAS = waves(2, 3, 5), waves(3, 1, 4, scale=1.5), floats(0.5, -1, 2)


def conv(inputs: list[Any], **rest: Any):
    return microsoft("CausalConvWithState", inputs, outputs=2, **rest)


CONV_ROWS = [
    conv([IMAGE, KERNELS]),
    conv([IMAGE, KERNELS, CONV_BIAS, waves(2, 3, 3)], activation="silu", ndim=1),
    conv([IMAGE, KERNELS, None, waves(2, 3, 6)], activation="swish", dilation=2),
    conv([IMAGE[:, :, :1].copy(), KERNELS, CONV_BIAS, waves(2, 3, 3)]),
    conv([IMAGE, KERNELS[:, :, :1].copy()]),
    conv([IMAGE[:, :, :0], KERNELS, None, waves(2, 3, 3)]),
    conv([IMAGE[:0], KERNELS]),
    conv([waves(2, 5, 3), KERNELS, CONV_BIAS], channels_last=1),
    conv([waves(2, 5, 2, 2), waves(4, 1, 3), None, waves(2, 2, 2, 2)], channels_last=1, activation="silu"),
    # onnxruntime's kernel for the CPU has no state_window, and one dimension only.
    conv([IMAGE, KERNELS], state_window=2, meaning=conv_with_window(2)),
    conv([IMAGE, KERNELS, None, waves(7, 2, 3, 6)], state_window=7, dilation=2, meaning=conv_with_window(7, 2)),
    conv(
        [waves(2, 3, 4, 5), waves(3, 1, 2, 3), CONV_BIAS, waves(2, 3, 4, 2)], ndim=2, meaning=formulas(conv_in_planes)
    ),
]


def varlen_conv(names: str, dilation: int = 1, capacity: int = 0, silu: bool = False, count: int = 3):
    def function(x, weight, ends, *rest):
        given = dict(zip(names.split(), rest, strict=True))
        ends = ends.astype(int)
        output, last, captured = np.zeros(x.shape), [], []
        for b in range(len(ends) - 1):
            tokens = x[ends[b] : ends[b + 1]]
            whole = np.concatenate([given["state"][b], tokens.T], 1)
            output[ends[b] : ends[b + 1]] = convolved(
                whole, weight, given.get("bias", np.zeros(x.shape[1]))[:, None], dilation, silu
            ).T
            last.append(whole[:, len(tokens) :])
            slots = np.zeros((capacity, x.shape[1]))
            wanted = max(0, min(int(given["count"][b]) if capacity else 0, capacity, len(tokens)))
            slots[:wanted] = tokens[:wanted]
            captured.append(slots)
        return [output, np.array(last), np.array(captured)][:count]

    return formulas(function)


def varlen(inputs: list[Any], meaning: Any, count: int = 3, **rest: Any):
    return microsoft("VarlenCausalConvWithState", inputs, outputs=count, meaning=meaning, **rest)


WORDS, LIMITS = waves(6, 3), int32(0, 1, 6)
VARLEN_ROWS = [
    varlen([WORDS, KERNELS, LIMITS, CONV_BIAS, waves(2, 3, 3)], varlen_conv("bias state", count=2), 2),
    varlen(
        [WORDS, KERNELS, LIMITS, None, waves(2, 3, 6)],
        varlen_conv("state", 2, silu=True),
        dilation=2,
        activation="silu",
    ),
    varlen(
        [WORDS, KERNELS, LIMITS, None, waves(2, 3, 3), int32(3, 2)],
        varlen_conv("state count", capacity=3),
        state_update_capacity=3,
    ),
    varlen(
        [WORDS, KERNELS, LIMITS, None, waves(2, 3, 3), int32(-1, 9)],
        varlen_conv("state count", capacity=8),
        state_update_capacity=8,
    ),
    varlen([WORDS, KERNELS[:, :, :1].copy(), LIMITS, None, waves(2, 3, 0)], varlen_conv("state")),
]

# --- AttnLSTM ---

STEPS, BATCH, FEATURES, HIDDEN, DEPTH, ATTENTION, LAYER = 3, 2, 2, 2, 3, 4, 5
SEQUENCE = waves(STEPS, BATCH, FEATURES, scale=1.5)


def layer(directions: int, attention: int, bias: bool = True) -> list[Any]:
    return [
        SEQUENCE,
        waves(directions, 4 * HIDDEN, FEATURES + attention),
        waves(directions, 4 * HIDDEN, HIDDEN, scale=0.8)[:, ::-1].copy(),
        waves(directions, 8 * HIDDEN, scale=0.5) if bias else None,
    ]


def memory(directions: int) -> list[Any]:
    return [
        waves(directions, HIDDEN, ATTENTION),
        waves(directions, DEPTH, ATTENTION, scale=1.2),
        waves(directions, ATTENTION, scale=1.5),
        waves(BATCH, 4, DEPTH, scale=0.9)[:, ::-1].copy(),
    ]


def attn_lstm(inputs: list[Any], **rest: Any):
    return microsoft("AttnLSTM", inputs, outputs=3, hidden_size=HIDDEN, **rest)


def one_direction(case: Any) -> list[np.ndarray]:
    """Computes one sequence after another, with the default activations; gives the outputs that the case wants."""
    inputs = zip("x w r b lens h c p qw mw v m".split(), case.template.inputs, strict=False)
    names = [name for name, x in inputs if x is not None]
    given = dict(zip(names, (np.asarray(x).astype(np.float64) for x in case.inputs), strict=True))
    w, r, b = (given[name][0] for name in "wrb")
    steps, batch = given["x"].shape[:2]
    outputs = [np.zeros((steps, 1, batch, HIDDEN)), np.zeros((1, batch, HIDDEN)), np.zeros((1, batch, HIDDEN))]
    for i in range(batch):
        h, c, context = np.zeros(HIDDEN), np.zeros(HIDDEN), np.zeros(DEPTH if "m" in given else 0)
        for t in range(steps):
            gates = w @ np.concatenate([given["x"][t, i], context]) + r @ h + b[: 4 * HIDDEN] + b[4 * HIDDEN :]
            i_gate, o_gate, f_gate, new = np.split(gates, 4)
            c = expit(f_gate) * c + expit(i_gate) * np.tanh(new)
            h = expit(o_gate) * np.tanh(c)
            if "m" in given:
                keys = given["m"][i] @ given["mw"][0]
                context = softmax(np.tanh(keys + h @ given["qw"][0]) @ given["v"][0]) @ given["m"][i]
            outputs[0][t, 0, i] = h
        outputs[1][0, i], outputs[2][0, i] = h, c
    return [y for name, y in zip(case.template.outputs, outputs, strict=False) if name]


def without_kernel(inputs: list[Any], outputs: list[str], only: str = "") -> tuple:
    """Makes a row of some of the outputs, without hidden_size."""
    op, first, last, template, cells = microsoft("AttnLSTM", inputs, meaning=one_direction, only=only)
    return op, first, last, dataclasses.replace(template, outputs=outputs), cells


INITIAL = [waves(1, BATCH, HIDDEN), waves(1, BATCH, HIDDEN)[:, ::-1].copy()]
ALL = ["y0", "y1", "y2"]
LSTM_ROWS = [
    without_kernel([*layer(1, DEPTH), None, None, None, None, *memory(1)], ALL, "double"),
    # onnxruntime's kernel needs a memory, and Y.
    without_kernel(layer(1, 0), ALL),
    without_kernel([*layer(1, DEPTH), None, None, None, None, *memory(1)], ["", "y1", "y2"]),
    without_kernel([*layer(1, DEPTH), None, None, None, None, *memory(1)], ["y0"]),
    attn_lstm([*layer(1, DEPTH), None, None, None, None, *memory(1)]),
    attn_lstm([*layer(1, DEPTH, False), int32(3, 2), *INITIAL, waves(1, 3 * HIDDEN), *memory(1), int32(4, 2)]),
    attn_lstm([*layer(1, LAYER), None, None, None, None, *memory(1), None, waves(1, DEPTH + HIDDEN, LAYER)]),
    attn_lstm(
        [*layer(2, LAYER), int32(2, 3), None, None, None, *memory(2), int32(3, 4), waves(2, DEPTH + HIDDEN, LAYER)],
        direction="bidirectional",
        clip=0.7,
    ),
    attn_lstm([*layer(1, DEPTH), int32(1, 3), None, None, None, *memory(1)], direction="reverse", input_forget=1),
    attn_lstm(
        [*layer(1, DEPTH), None, None, None, None, *memory(1)],
        activations=["HardSigmoid", "Affine", "ScaledTanh"],
        activation_alpha=[0.3, 0.5, 0.9],
        activation_beta=[0.4, 0.1, 1.5],
    ),
]

STATE_SPACE_ROWS: list[Any] = [*LINEAR_ROWS, *NET_ROWS, *CONV_ROWS, *VARLEN_ROWS, *LSTM_ROWS]
