"""Linear attention, convolutions with a state and AttnLSTM of onnxruntime: what must be refused."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import onnx_torch
from models import run_op

DOMAIN = "com.microsoft"
OUTPUTS = {"LinearAttention": 2, "LinearAttentionGate": 2, "CausalConvWithState": 2}


def drawn(*shape: int) -> np.ndarray:
    return np.random.default_rng(sum(shape)).uniform(-1, 1, shape).astype(np.float32)


def int32(*values: Any) -> np.ndarray:
    return np.array(values, np.int32)


QKV = [drawn(2, 3, 8), drawn(2, 3, 4), drawn(2, 3, 6)]
STATE, DECAY, BETA = drawn(2, 2, 2, 3), drawn(2, 3, 2), drawn(2, 3, 2)
HEADS = {"q_num_heads": 4, "kv_num_heads": 2}
NET = [drawn(5, 1, 2), drawn(5, 1, 2), drawn(5, 2, 3)]
GATES = [drawn(5, 2), drawn(5, 2)]
NET_STATE = drawn(2, 2, 3, 2)
IMAGE, KERNELS = drawn(2, 3, 5), drawn(3, 1, 4)
WORDS, WORD_STATE = drawn(6, 3), drawn(2, 3, 3)
LAYER = [drawn(3, 2, 2), drawn(1, 8, 5), drawn(1, 8, 2), drawn(1, 16), None, None, None, None]
MEMORY = [drawn(1, 2, 4), drawn(1, 3, 4), drawn(1, 4), drawn(2, 4, 3)]

REFUSED = {
    # LinearAttention
    "no such rule": ("LinearAttention", QKV, {**HEADS, "update_rule": "other"}, "no update_rule other"),
    "no decay": ("LinearAttention", QKV, {**HEADS, "update_rule": "gated"}, "needs decay"),
    "no beta": ("LinearAttention", QKV, {**HEADS, "update_rule": "delta"}, "needs beta"),
    "a decay of other steps": ("LinearAttention", [*QKV, None, DECAY[:, :2].copy(), BETA], HEADS, "decay has shape"),
    "a beta of other heads": ("LinearAttention", [*QKV, None, DECAY, drawn(2, 3, 3)], HEADS, "beta has shape"),
    "heads that do not divide": (
        "LinearAttention",
        QKV,
        {"q_num_heads": 4, "kv_num_heads": 3, "update_rule": "linear"},
        "multiple of the other",
    ),
    "a key of too many heads": (
        "LinearAttention",
        [QKV[0], drawn(2, 3, 6), QKV[2]],
        {**HEADS, "update_rule": "linear"},
        "3 heads of key",
    ),
    "a key of no heads": (
        "LinearAttention",
        [QKV[0], drawn(2, 3, 0), QKV[2]],
        {**HEADS, "update_rule": "linear"},
        "0 heads of key",
    ),
    "a key of fewer steps": (
        "LinearAttention",
        [QKV[0], drawn(2, 2, 4), QKV[2]],
        {**HEADS, "update_rule": "linear"},
        "go together",
    ),
    "a state of another size": ("LinearAttention", [*QKV, STATE[:1], DECAY, BETA], HEADS, "past_state has shape"),
    "a state without its window": (
        "LinearAttention",
        [*QKV, STATE, DECAY, BETA],
        {**HEADS, "state_window": 2},
        "past_state has shape",
    ),
    "too long a window": ("LinearAttention", [*QKV, None, DECAY, BETA], {**HEADS, "state_window": 9}, "state_window"),
    "no b": ("LinearAttentionGate", [drawn(2, 3, 4), drawn(4), drawn(4)], {}, "b is not there"),
    # GatedDeltaNet
    "ends that fall": ("GatedDeltaNet", [*NET, int32(0, 6, 5), *GATES], {}, "do not rise from 0 to 5"),
    "ends beyond the tokens": ("GatedDeltaNet", [*NET, int32(0, 2, 6), *GATES], {}, "do not rise from 0 to 5"),
    "a negative first end": ("GatedDeltaNet", [*NET, int32(-2, 2, 5), *GATES], {}, "do not rise from 0 to 5"),
    "no ends": ("GatedDeltaNet", [*NET, np.zeros(0, np.int32), *GATES], {}, "ends of sequences have shape"),
    "an unknown number of sequences": ("GatedDeltaNet", [*NET, None, *GATES], {}, "how many sequences"),
    "tokens that do not divide": ("GatedDeltaNet", [*NET, None, *GATES, NET_STATE], {}, "5 tokens do not make 2"),
    "a decay too much": (
        "GatedDeltaNet",
        [*NET, int32(0, 5), *GATES],
        {"update_rule": "delta"},
        "decay is an input of the gated",
    ),
    "no a_log": (
        "GatedDeltaNet",
        [*NET, int32(0, 5), *GATES],
        {"gate_activation": "qwen"},
        "needs a_log and dt_bias",
    ),
    "a query that is packed without a state": (
        "GatedDeltaNet",
        [drawn(5, 10), None, None, int32(0, 5), *GATES],
        {},
        "needs an initial_state",
    ),
    "a packed query of another size": (
        "GatedDeltaNet",
        [drawn(4, 3), None, None, None, GATES[0][:4], GATES[1][:4], NET_STATE],
        {},
        "split_with_sizes",
    ),
    "a state of other heads": (
        "GatedDeltaNet",
        [*NET, int32(0, 2, 5), *GATES, NET_STATE[:, :1].copy()],
        {},
        "initial_state has shape",
    ),
    "a count without capacity": (
        "GatedDeltaNet",
        [*NET, int32(0, 2, 5), *GATES, None, None, None, int32(1, 1)],
        {},
        "capture_count comes with",
    ),
    "too much captured": (
        "GatedDeltaNet",
        [*NET, int32(0, 2, 5), *GATES, None, None, None, int32(1, 1)],
        {"state_update_capacity": 9},
        "from 0 to 8",
    ),
    "counts of too many": (
        "GatedDeltaNet",
        [*NET, int32(0, 2, 5), *GATES, None, None, None, int32(1, 1, 1)],
        {"state_update_capacity": 4},
        "capture_count has shape",
    ),
    # convolutions
    "no such activation": ("CausalConvWithState", [IMAGE, KERNELS], {"activation": "relu"}, "no activation relu"),
    "no dilation": ("CausalConvWithState", [IMAGE, KERNELS], {"dilation": 0}, "dilation"),
    "a huge dilation": ("CausalConvWithState", [IMAGE, KERNELS], {"dilation": 2**62}, "dilation"),
    "four dimensions": ("CausalConvWithState", [IMAGE, KERNELS], {"ndim": 4}, "ndim"),
    "other dimensions": ("CausalConvWithState", [IMAGE, KERNELS], {"ndim": 2}, "3 dimensions, not 4"),
    "planes with channels last": (
        "CausalConvWithState",
        [drawn(2, 3, 4, 5), drawn(3, 1, 2, 2)],
        {"ndim": 2, "channels_last": 1},
        "an ndim of 1",
    ),
    "other channels": ("CausalConvWithState", [IMAGE, drawn(2, 1, 4)], {}, "does not suit 3 channels"),
    "an empty kernel": ("CausalConvWithState", [IMAGE, drawn(3, 1, 0)], {}, "does not suit 3 channels"),
    "a past of another length": ("CausalConvWithState", [IMAGE, KERNELS, None, drawn(2, 3, 4)], {}, "past_state has"),
    "a bias of other channels": ("CausalConvWithState", [IMAGE, KERNELS, drawn(2)], {}, "bias"),
    "packed ends beyond": (
        "VarlenCausalConvWithState",
        [WORDS, KERNELS, int32(0, 1, 7), None, WORD_STATE],
        {},
        "do not rise from 0 to 6",
    ),
    "a packed state of another length": (
        "VarlenCausalConvWithState",
        [WORDS, KERNELS, int32(0, 1, 6), None, WORD_STATE],
        {"dilation": 2},
        "initial_state has shape",
    ),
    "a packed count without capacity": (
        "VarlenCausalConvWithState",
        [WORDS, KERNELS, int32(0, 1, 6), None, WORD_STATE, int32(1, 1)],
        {},
        "capture_count comes with",
    ),
    # AttnLSTM
    "a memory without keys": ("AttnLSTM", [*LAYER, MEMORY[0], None, *MEMORY[2:]], {}, "come together"),
    "a layer without a memory": ("AttnLSTM", [*LAYER, *[None] * 5, drawn(1, 5, 5)], {}, "come with a memory"),
    "weights of other features": (
        "AttnLSTM",
        [LAYER[0], drawn(1, 8, 4), *LAYER[2:], *MEMORY],
        {},
        "W takes 4 features, not 2 and 3",
    ),
    "weights of other gates": ("AttnLSTM", [*LAYER[:2], drawn(1, 6, 2), *LAYER[3:], *MEMORY], {}, "R has shape"),
    "a bias of another size": ("AttnLSTM", [*LAYER[:3], drawn(1, 8), *LAYER[4:], *MEMORY], {}, "B has shape"),
    "an initial state of another size": (
        "AttnLSTM",
        [*LAYER[:5], drawn(1, 2, 3), *LAYER[6:], *MEMORY],
        {},
        "initial state has shape",
    ),
    "too long a memory": ("AttnLSTM", [*LAYER, *MEMORY, int32(1, 5)], {}, "not from 1 to 4"),
    "an empty memory": ("AttnLSTM", [*LAYER, *MEMORY, int32(0, 4)], {}, "not from 1 to 4"),
    "a query layer of another size": ("AttnLSTM", [*LAYER, drawn(1, 3, 4), *MEMORY[1:]], {}, "mat1 and mat2"),
    "no such direction": ("AttnLSTM", [*LAYER, *MEMORY], {"direction": "up"}, 'no direction "up"'),
    "another hidden size": ("AttnLSTM", [*LAYER, *MEMORY], {"hidden_size": 3}, "not of hidden_size"),
}


@pytest.mark.parametrize("op, inputs, attributes, message", REFUSED.values(), ids=REFUSED)
def test_refused(op, inputs, attributes, message):
    with pytest.raises(onnx_torch.Error, match=message):
        run_op(op, inputs, 1, DOMAIN, OUTPUTS.get(op, 3), **attributes)
