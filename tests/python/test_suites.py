"""Other projects' tests (tools/suites): a sample of one suite, and the machinery on a suite made here."""

from __future__ import annotations

import json

import pytest
from tools.suites import comparison, packages
from tools.suites.__main__ import SAMPLE, SUITES, Suite, compare

SUITE = """
import os, signal
import numpy as np, pytest
import onnxruntime

HERE = onnxruntime.get_build_info().startswith("onnx_torch")

def test_passes(): pass

def test_fails_here(): assert not HERE, "it is here"

def test_fails_there(): assert HERE

def test_ends_the_process_here():
    if HERE:
        os.kill(os.getpid(), signal.SIGKILL)

def test_leaves_with_a_code_of_its_own_here():
    if HERE:
        os._exit(77)

@pytest.mark.skip
def test_skipped(): pass

def test_behind(): assert np.random.rand() == np.random.RandomState(0).rand()
"""


@pytest.fixture
def two_runs(tmp_path):
    folder = tmp_path / "source"
    folder.mkdir()
    (folder / "test_it.py").write_text(SUITE)
    suite = Suite("made", folder, ["test_it.py"], [])
    for engine in comparison.ENGINES:
        suite.run(engine, tmp_path)
    return tmp_path


def test_a_suite_is_run_on_both_engines(two_runs):
    found = compare("made", two_runs)
    outcomes = lambda record: {test.split("::")[1]: now.outcome for test, now in record.items()}
    usual = dict.fromkeys(["test_passes", "test_fails_here", "test_behind"], "passed") | {"test_skipped": "skipped"}
    ends = ["test_ends_the_process_here", "test_leaves_with_a_code_of_its_own_here"]
    assert outcomes(found.theirs) == usual | {"test_fails_there": "failed"} | dict.fromkeys(ends, "passed")
    here = {"test_fails_here": "failed", "test_fails_there": "passed"}
    assert outcomes(found.ours) == usual | here | dict.fromkeys(ends, "ended the process")
    assert outcomes(found.only_here) == {"test_fails_here": "failed"} | dict.fromkeys(ends, "ended the process")
    assert found.row() == ("made", "7", "5", "1", "3", "3", "3", "3", "1")
    assert any("it is here" in line for line in found.causes())


def test_reasons_are_found_and_outdated_ones_told(two_runs):
    known = [comparison.Reason("ends|leaves", "it ends"), comparison.Reason("test_passes", "never")]
    found = comparison.Comparison("made", *map(comparison.read_record, sorted(two_runs.glob("*.jsonl"))[::-1]), known)
    assert [test.split("::")[1] for test in found.unknown] == ["test_fails_here"]
    assert found.outdated == known[1:]
    assert "   2  known: it ends" in found.causes()


def test_of_subtests_that_share_a_name_the_failed_one_counts(tmp_path):
    lines = [{"test": "t", "outcome": outcome, "message": ""} for outcome in ("passed", "failed", "passed")]
    (tmp_path / "record").write_text("\n".join(map(json.dumps, lines)))
    assert comparison.read_record(tmp_path / "record")["t"].failed


def test_reasons_are_of_suites_that_are_there():
    known = comparison.tomllib.loads(comparison.REASONS.read_text())
    assert known.keys() <= SUITES.keys()
    assert all(why.reason and why.tests for suite in known for why in comparison.reasons(suite))


def test_a_source_that_cannot_be_had_says_so(tmp_path, monkeypatch):
    monkeypatch.setenv("https_proxy", "http://127.0.0.1:9")
    with pytest.raises(packages.NotThere, match="cannot be fetched"):
        packages.unpacked("https://localhost:9/nothing.tar.gz", tmp_path)


def test_a_sample_fails_nowhere_but_where_it_is_known_to(tmp_path):
    try:
        suite = Suite.fetched("sklearn-onnx")
    except packages.NotThere as reason:
        pytest.skip(str(reason))
    for engine in comparison.ENGINES:
        suite.run(engine, tmp_path, SAMPLE)
    found = compare(suite.name, tmp_path)
    assert len(found.theirs) == len(found.ours) > 40
    assert found.unknown == {}
