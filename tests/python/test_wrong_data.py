"""Each input of integers of each operator version, with numbers that it may not have, and each input without elements.

Such numbers are indices, lengths, sizes and counts, mostly. Each model runs or ends in an error of the package, in this
process, which a fault in native code would end."""

from __future__ import annotations

import collections
import itertools
from collections.abc import Iterator
from typing import Any

import numpy as np
import onnx
import pytest

import onnx_torch
from type_matrix.cells import all_cells, contrib_cells
from type_matrix.sample import sample
from type_matrix.templates import cases
from wrong_models import little_memory

LIMITS = {"max_iterations": 1000, "seconds": 20}  # not of a loop that counts to 2^62

VERSIONS = collections.defaultdict(dict)
for _cell in [*sample(all_cells()), *sample(contrib_cells())]:
    VERSIONS[_cell.domain, _cell.op].setdefault(_cell.version, _cell)


def wrong_inputs(inputs: list[Any]) -> Iterator[tuple[str, list[Any]]]:
    """Gives the inputs, with all or the first elements of one of them as far out as its type goes, or a little."""
    for place, given in enumerate(inputs):
        if not isinstance(given, np.ndarray) or given.dtype not in (np.int32, np.int64) or given.size == 0:
            continue
        least, most = np.iinfo(given.dtype).min, np.iinfo(given.dtype).max
        for number in (least, -100, -1, given.size, 100, 2**31 - 1, most // 2, most):
            for of_all in (True, False):
                changed = np.array(given)
                changed[... if of_all else (0,) * given.ndim] = number
                yield f"input {place}: {number}", [*inputs[:place], changed, *inputs[place + 1 :]]


def empty_inputs(inputs: list[Any]) -> Iterator[tuple[str, list[Any]]]:
    """Gives the inputs, one of which has an axis without elements."""
    for place, given in enumerate(inputs):
        for axis in range(given.ndim if isinstance(given, np.ndarray) else 0):
            empty = np.take(given, [], axis)
            yield f"input {place}: no elements along {axis}", [*inputs[:place], empty, *inputs[place + 1 :]]


def of_any_sizes(model: onnx.ModelProto) -> onnx.ModelProto:
    """Gives the model without the sizes of its inputs."""
    opened = onnx.ModelProto()
    opened.CopyFrom(model)
    for info in opened.graph.input:
        if info.type.HasField("tensor_type"):
            info.type.tensor_type.ClearField("shape")
    return opened


def outcome(rep: onnx_torch.OnnxTorchRep, inputs: list[Any]) -> str:
    try:
        with little_memory():
            rep.run(inputs)
    except onnx_torch.Error:
        return "refused"
    except Exception as error:
        return f"{type(error).__name__}: {error}"
    return "ran"


@pytest.mark.parametrize("key", sorted(VERSIONS), ids=lambda key: ".".join(filter(None, key)))
def test_numbers_that_are_wrong_end_in_an_error(key):
    others = {}
    for cell in VERSIONS[key].values():
        case = next(cases(cell), None)
        if not case:
            continue
        for optimize in (True, False):
            try:
                rep = onnx_torch.prepare(of_any_sizes(case.model), optimize=optimize, limits=LIMITS)
            except onnx_torch.Error:
                continue  # the type is not one that it takes
            for name, inputs in itertools.chain(wrong_inputs(case.inputs), empty_inputs(case.inputs)):
                how = outcome(rep, inputs)
                if how not in ("ran", "refused"):
                    others[f"{cell} {name}"] = how
    assert not others


def test_wrong_numbers_are_made_of_integers():
    made = list(wrong_inputs([np.zeros(2, np.float32), np.array([3, 4])]))
    assert len(made) == 16 and all(inputs[0].dtype == np.float32 for _, inputs in made)
    assert made[0][1][1].tolist() == [-(2**63)] * 2 and made[1][1][1].tolist() == [-(2**63), 4]
