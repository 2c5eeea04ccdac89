"""The cases of past releases that a right backend does not pass, each with the proof, which the tests check.

A case is named by a pattern and the releases it is wrong in: from one, to the one that put it right. A folder belongs
to the release that shipped it first.
"""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Callable

import numpy as np
import onnx
import pytest

from official import Case, assert_same, node_cases
from past_releases import Folder, case_of

Proof = Callable[[Folder], None]


@dataclasses.dataclass(frozen=True)
class Mistake:
    names: str
    right_from: str | None  # None: never
    kind: str  # "contradicts the specification", "undefined", "random", "unreadable"
    proof: Proof
    wrong_from: str = "1.2.2"

    def covers(self, folder: Folder) -> bool:
        release = _version(folder.release)
        wrong = _version(self.wrong_from) <= release and not (self.right_from and release >= _version(self.right_from))
        return wrong and re.fullmatch(self.names, folder.name) is not None


def _version(release: str) -> tuple[int, ...]:
    return tuple(int(part) for part in release.split("."))


def _nodes(model: onnx.ModelProto) -> list[tuple]:
    return [
        (n.op_type, n.domain, list(n.input), list(n.output), sorted(a.SerializeToString() for a in n.attribute))
        for n in model.graph.node
    ]


def _newest(name: str) -> Case:
    return next(case for case in node_cases() if case.name == name)


def _same_bits(xs, ys) -> bool:
    try:
        assert_same(xs, ys, rtol=0, atol=0)
    except AssertionError:
        return False
    return True


def _corrected(folder: Folder) -> None:
    """The installed onnx has the same nodes on the same inputs, and expects something else."""
    old, new = case_of(folder), _newest(folder.name)
    assert _nodes(old.model) == _nodes(new.model)
    ((old_inputs, old_outputs),), ((new_inputs, new_outputs),) = old.data_sets, new.data_sets
    assert _same_bits(list(old_inputs), list(new_inputs))
    assert not _same_bits(list(old_outputs), list(new_outputs))


def _attribute_added(folder: Folder) -> None:
    """The installed onnx expects the same of the same inputs, but only with an attribute that this model lacks."""
    old, new = case_of(folder), _newest(folder.name)
    assert _nodes(old.model) != _nodes(new.model)
    ((_, old_outputs),), ((_, new_outputs),) = old.data_sets, new.data_sets
    assert _same_bits(list(old_outputs), list(new_outputs))


def _text(op_type: str, version: int, domain: str = "") -> str:
    schema = onnx.defs.get_schema(op_type, version, domain)
    described = [*schema.inputs, *schema.outputs, *schema.attributes.values()]
    return " ".join([schema.doc, *(part.description for part in described)])


def _against(op_type: str, version: int, quote: str, domain: str = "") -> Proof:
    def quoted(folder: Folder) -> None:
        assert any(node.op_type == op_type for node in case_of(folder).model.graph.node)
        assert quote in _text(op_type, version, domain)

    return quoted


def _epsilon_is_small(folder: Folder) -> None:
    """Its expectation was computed with an epsilon of 0.01, which the node does not give."""
    (node,) = case_of(folder).model.graph.node
    assert not [a for a in node.attribute if a.name == "epsilon"]
    schema = onnx.defs.get_schema("Adam", 1, "ai.onnx.preview.training")
    assert schema.attributes["epsilon"].default_value.f == np.float32(1e-6)


def _is_noise(folder: Folder) -> None:
    """Where the exact result is 0, the expectation is the rounding noise of numpy's complex64 transform."""
    ((inputs, outputs),) = case_of(folder).data_sets
    attributes = case_of(folder).model.graph.node[0].attribute
    axis = next(a.i for a in attributes if a.name == "axis") if len(inputs) == 1 else 1
    signal = inputs[0].astype(np.float64)
    exact = np.fft.ifft(signal[..., 0] + 1j * signal[..., 1], axis=axis)
    exact = np.stack([exact.real, exact.imag], axis=-1)
    # So far outputs may be from expectations in ONNX's suite.
    differs = ~np.isclose(outputs[0], exact, rtol=1e-3, atol=1e-7)
    assert differs.any()
    assert np.abs(exact[differs]).max() < 1e-7


def _has_no_seed_to_follow(folder: Folder) -> None:
    """The expectation came from numpy's global generator, which no specification names."""
    assert "numpy" not in _text("Bernoulli", 15)


def _cannot_be_read(folder: Folder) -> None:
    """Its strings are addresses in the memory of the process that wrote them."""
    with pytest.raises(UnicodeDecodeError):
        case_of(folder)


def _does_not_fit_its_model(folder: Folder) -> None:
    """The files contradict each other: the model declares an input of another rank than its file holds."""
    case = case_of(folder)
    ((inputs, _),) = case.data_sets
    declared = [len(info.type.tensor_type.shape.dim) for info in case.model.graph.input]
    assert declared != [value.ndim for value in inputs]


WRONG, UNDEFINED, RANDOM, UNREADABLE = "contradicts the specification", "undefined", "random", "unreadable"

MISTAKES = [
    Mistake("test_bernoulli.*", None, RANDOM, _has_no_seed_to_follow),
    Mistake("test_dft_inverse(_opset19)?", "1.18.0", UNDEFINED, _is_noise, wrong_from="1.17.0"),
    Mistake("test_cast_(FLOAT_to_STRING|STRING_to_FLOAT)", "1.5.0", UNREADABLE, _cannot_be_read),
    Mistake("test_shrink", "1.5.0", UNREADABLE, _does_not_fit_its_model),
    Mistake(
        "test_castlike_(BFLOAT16_to_FLOAT|FLOAT_to_BFLOAT16)(_expanded)?",
        "1.15.0",
        UNREADABLE,
        _does_not_fit_its_model,
        wrong_from="1.12.0",
    ),
    Mistake("test_unique_not_sorted_without_axis", "1.7.0", WRONG, _corrected),
    Mistake(
        "test_resize_upsample_sizes_nearest_(ceil_half_pixel|floor_align_corners|round_prefer_ceil_asymmetric)",
        "1.7.0",
        WRONG,
        _attribute_added,  # nearest_mode
    ),
    Mistake(
        "test_(nesterov_)?momentum(_multiple)?",
        "1.8.1",
        WRONG,
        _against("Momentum", 1, "beta_adjusted = T > 0 ? beta : 1", "ai.onnx.preview.training"),
    ),
    Mistake("test_adam_multiple", "1.22.0", WRONG, _epsilon_is_small),
    Mistake("test_sequence_insert_at_front", "1.9.0", WRONG, _corrected),
    Mistake("test_convtranspose_autopad_same", "1.10.2", WRONG, _attribute_added),  # SAME_UPPER for SAME_LOWER
    Mistake("test_col2im_pads", "1.14.1", WRONG, _corrected),
    Mistake(
        "test_averagepool_3d_dilations_large_count_include_pad_is_1_ceil_mode_is_True", "1.18.0", WRONG, _corrected
    ),
    Mistake("test_cast_FLOAT(16)?_to_(FLOAT4E2M1|U?INT4)", "1.19.1", WRONG, _corrected),
    Mistake(
        "test_qlinearmatmul_[23]D_int8_float(16|32)",
        "1.22.0",
        WRONG,
        _against("QLinearMatMul", 21, "y = saturate((x / y_scale) + y_zero_point)"),
    ),
    Mistake(
        "test_rotary_embedding_(no_position_ids|with|with_interleaved)_rotary_dim",
        "1.19.1",
        WRONG,
        _against("RotaryEmbedding", 23, "`(max_position_id_plus_1, rotary_embedding_dim / 2)` for partial rotation"),
    ),
    Mistake(
        "test_attention_(3d|4d)_.*qk_matmul_(bias|softcap).*(?<!_expanded)",
        "1.22.0",
        WRONG,
        _against("Attention", 23, "If set to `1`, qk_matmul_output is the output after the softcap operation"),
    ),
    Mistake("test_attention_(3d|4d_gqa).*(?<!_expanded)", "1.19.1", WRONG, _corrected),
    Mistake("test_l2normalization_axis_0", "1.21.0", WRONG, _corrected),
]


def mistake_of(folder: Folder) -> Mistake | None:
    return next((mistake for mistake in MISTAKES if mistake.covers(folder)), None)
