"""The benchmark of memory over many runs: `python -m benchmarks.memory`."""

from __future__ import annotations

import numpy as np
import pytest
from benchmarks import memory
from benchmarks.models.memory import MODELS


@pytest.mark.parametrize("grows", [0.0, 40.0])
def test_a_slope_is_found_within_its_uncertainty(grows: float):
    """The slope of memory that goes up and down in long steps is within the uncertainty."""
    runs = np.arange(180) * 500
    steps = np.repeat(np.random.default_rng(0).standard_normal(12) * 1e5, 15)
    found = memory.slope(list(runs), list(1e8 + grows * runs + steps))
    assert abs(found.value - grows) < found.uncertainty < 10
    assert str(memory.Slope(1.25, 0.5)) == "+1.2 ± 0.5"


def test_each_model_runs_in_both_engines_and_the_page_has_its_figures(tmp_path, monkeypatch):
    monkeypatch.setattr(memory, "POINTS", 20)
    monkeypatch.setattr(memory, "SETS", 3)
    flat, kept = [], []
    for model in MODELS.values():
        file = tmp_path / "model.onnx"
        model.write(file)
        for engine in memory.ENGINES:
            flat.append(memory.flatness(model, engine, file, 60, 1, lambda done, of: None))
            if model.has_batches:
                kept.append(memory.held(model, engine, file, 1))
    assert all(one.runs == 60 and one.first > 10e6 for one in flat)
    ours = [one for one in kept if one.engine == memory.OURS]
    assert ours and all(one.after_large > 1e6 and one.trimmed < one.after_large / 2 for one in ours)
    section = memory.page(flat, kept, 1)
    assert all(f"| {name} | 60 |" in section for name in MODELS)
    text = f"before {memory.MARKS[0]}\nold\n{memory.MARKS[1]} after"
    assert memory.into_page(text, section) == f"before {memory.MARKS[0]}\n{section}\n{memory.MARKS[1]} after"
    with pytest.raises(SystemExit, match="lacks the marks"):
        memory.into_page("before", section)
