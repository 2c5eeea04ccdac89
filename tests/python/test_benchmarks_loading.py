"""The benchmark of loading: `python -m benchmarks.loading`."""

from __future__ import annotations

import numpy as np
from benchmarks import loading

from onnx_torch import random_inputs


def test_a_ratio_is_taken_round_by_round():
    seconds = {loading.OURS: [1.0, 6.0, 2.0], loading.REFERENCE: [2.0, 2.0, 2.0]}
    assert loading.Load("model", seconds, seconds, seconds).ratio(seconds) == 1.0


def test_what_is_measured_is_in_the_page(tmp_path):
    file = tmp_path / "small.onnx"
    loading.write_small(file)
    feeds, tell = loading.inputs_of(file), lambda done, of: None
    found = loading.load(file, feeds, 1, 2, tell)
    assert all(len(of[engine]) == 2 for of in (found.first, found.again, found.runs) for engine in loading.ENGINES)
    small = loading.sessions(file, feeds, 40, 1, tell)
    assert [(one.engine, one.count) for one in small] == [(engine, 40) for engine in loading.ENGINES]
    assert all(one.seconds > 0 and one.late > 10e6 for one in small)
    many = [loading.held(engine, file, feeds, 3, 1) for engine in loading.ENGINES]
    assert all(one.alone > 0 and one.in_turn > 0 and one.at_once > 0 for one in many)
    section = loading.page([found], small, many, 1)
    assert "1 thread." in section and "| small |" in section and section.count("| onnx_torch |") == 2


def test_inputs_lie_beside_a_model_or_are_random(tmp_path):
    file = tmp_path / "small.onnx"
    loading.write_small(file)
    assert np.array_equal(loading.inputs_of(file)["y0"], random_inputs(file)["y0"])
    np.savez(file.with_suffix(".npz"), y0=np.ones((4, 8), np.float32))
    assert np.array_equal(loading.inputs_of(file)["y0"], np.ones((4, 8)))
    np.savez(file.with_suffix(".npz"), **{"0/y0": np.zeros((4, 8), np.float32)})
    assert np.array_equal(loading.inputs_of(file)["y0"], np.zeros((4, 8)))
