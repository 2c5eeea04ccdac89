"""The harness of `./dev bench`: what it measures is no matter here."""

import math
import subprocess
import sys
import time
from functools import partial
from pathlib import Path

import numpy as np
import onnx
import pytest
from benchmarks import engines, machine, measuring, report
from benchmarks import results as r
from benchmarks.__main__ import ROOT, chosen_cases, parser
from benchmarks.measuring import Measured, Row, Settings
from benchmarks.models import CASES
from benchmarks.models.case import Case, model_file, read_inputs
from benchmarks.plot import plot
from benchmarks.results import Results
from onnx import parser as onnx_parser

RELU = """<ir_version: 10, opset_import: ["": 21]> relu (float[n] x) => (float[n] y) { y = Relu(x) }"""
SETS = [{"x": np.arange(-3, 3, dtype=np.float32)}, {"x": np.ones(2, np.float32)}]


def write_relu(calls, file):
    calls.append(file)
    onnx.save(onnx_parser.parse_model(RELU), file)
    return SETS


@pytest.fixture
def made(tmp_path):
    """A case whose model is made, and the folder; torch's engine knows the name, and has no module of that name."""
    case = Case("identity", "small", partial(write_relu, []))
    case.make(tmp_path)
    return case, tmp_path


def row(case="a", group="g", noisy=False, **rounds):
    """A row whose engines took some seconds in each round."""
    return Row(case, group, 2, 1e-3, noisy, {name: Measured(rounds=list(times)) for name, times in rounds.items()})


# --- Ratios -----------------------------------------------------------------------------------------------------------


def test_a_ratio_is_the_median_of_each_rounds_own():
    found = r.ratio(row(onnx_torch=[1, 2, 4], onnxruntime=[3, 4, 4]), "onnxruntime")
    assert (found.low, found.median, found.high) == (1.5, 2, 2.5)  # of 3, 2 and 1
    assert str(found) == "2.00 (1.50–2.50)"


def test_an_engine_without_figures_leaves_the_mean():
    rows = [row("a", onnx_torch=[1], torch=[2]), row("b", onnx_torch=[1], torch=[]), row("c", onnx_torch=[1])]
    results = Results(Settings(), rows)
    assert r.ratio(rows[1], "torch") is None and r.ratio(rows[2], "torch") is None
    assert r.group_means(results, "torch") == {"g": 2}
    assert r.group_means(results, "openvino") == {}


def test_means_are_geometric_and_capped():
    assert r.mean([1, 4, 100]) == pytest.approx(9 ** (1 / 3))
    assert r.mean([]) is None
    rows = [row("a", "one", onnx_torch=[1], torch=[1]), row("b", "two", onnx_torch=[1], torch=[50])]
    assert r.group_means(Results(Settings(), rows), "torch") == pytest.approx({"one": 1, "two": 3})


def test_what_lies_inside_the_spread_of_an_engine_against_itself_is_a_tie():
    measured = row(
        onnx_torch=[1, 1, 1],
        onnxruntime=[1, 1, 1],
        onnxruntime_again=[0.9, 1, 1.1],
        openvino=[1.04] * 3,
        torch=[1.2] * 3,
    )
    assert r.is_tie(measured, r.ratio(measured, "openvino"))
    assert not r.is_tie(measured, r.ratio(measured, "torch"))


# --- Measuring --------------------------------------------------------------------------------------------------------


def test_two_engines_are_measured(made):
    case, folder = made
    steps = []
    settings = Settings(threads=1, rounds=2, turn=0.005, repeats=0, loads=2)
    columns = ["onnx_torch", "onnxruntime", "torch"]
    found = measuring.measure(case, folder, columns, settings, progress=lambda done, of: steps.append((done, of)))
    assert steps == [(0, 5), (1, 5), (2, 5), (4, 5), (5, 5)]
    for name in columns[:2]:
        one = found.engines[name]
        assert one.error == "" and one.difference == 0 and len(one.rounds) == 2 and 0 < min(one.rounds) < 0.1
        assert 0 < one.start_seconds < 10 and one.import_seconds > 0 and 0 < one.memory < 1e9
    assert found.engines["torch"].rounds == []
    assert "was not exported from torch" in found.engines["torch"].error


def test_brief_loads_are_measured_again_in_turns():
    found, diary = row(onnx_torch=[], onnxruntime=[], openvino=[]), []
    for name, seconds in dict(onnx_torch=0.9, onnxruntime=0.1, openvino=0.1).items():
        found.engines[name].start_seconds = seconds

    def load(name):
        diary.append(name)
        return Measured(start_seconds=len(diary), import_seconds=len(diary), memory=len(diary))

    measuring.repeat_loads(found, found.engines, 3, load)
    assert diary == ["onnx_torch", "onnxruntime"] * 2  # the loads that are compared
    figures = lambda name: [
        getattr(found.engines[name], what) for what in ("start_seconds", "import_seconds", "memory")
    ]
    assert figures("onnx_torch") == [1, 1, 1] and figures("onnxruntime") == [2, 2, 2] and figures("openvino")[0] == 0.1
    measuring.repeat_loads(found, found.engines, 3, load)
    assert len(diary) == 4  # they take a second or more


def test_an_engine_that_does_not_load_again_is_not_measured():
    def load(name):
        raise measuring.Error("not this time")

    found = row(onnxruntime=[])
    measuring.repeat_loads(found, ["onnxruntime"], 2, load)
    assert found.engines["onnxruntime"].error == "not this time"


def test_an_engine_that_takes_too_long_is_ended(made):
    case, folder = made
    settings = Settings(rounds=1, repeats=0, limit=0)
    found = measuring.measure(case, folder, ["onnxruntime"], settings)
    assert found.engines["onnxruntime"] == Measured(
        "it did not load the model and run it once in 0 s", **vars_of(found)
    )


def vars_of(found):
    one = found.engines["onnxruntime"]
    return {"import_seconds": one.import_seconds, "start_seconds": one.start_seconds, "memory": one.memory}


def test_paused_engines_end_with_the_benchmark():
    code = """if True:
        import os, onnx.parser
        from onnx_torch.other_engine import OtherEngine
        model = onnx.parser.parse_model('''{RELU}''').SerializeToString()
        engine = OtherEngine("reference", model)
        engine.pause()
        print(engine.pid, flush=True)
        os.kill(os.getpid(), 9)
    """.replace("{RELU}", RELU)
    done = subprocess.run([sys.executable, "-c", code], stdout=subprocess.PIPE, text=True)
    status = Path("/proc") / done.stdout.strip() / "status"
    for _ in range(100):
        if not status.exists() or "State:\tZ" in status.read_text():
            return
        time.sleep(0.05)
    pytest.fail(f"it still runs: {status}")


class Process:
    """An engine that tells of its turns."""

    def __init__(self, name, diary):
        self.name, self.diary, self.pid = name, diary, 1

    def resume(self):
        self.diary.append(self.name)

    def pause(self):
        self.diary.append(self.name.lower())

    def time(self, sets, runs):
        return [1.0] * runs


def test_engines_take_turns_and_idle_ones_are_paused(monkeypatch):
    monkeypatch.setattr(measuring, "Others", lambda pids: Noise([0]))
    diary, found = [], row(A=[], B=[])
    noisy = measuring.take_turns({name: Process(name, diary) for name in "AB"}, SETS, Settings(rounds=2, turn=1), found)
    assert "".join(diary) == "AaBb" + "AaBb" + "BbAa"  # the first to warm up
    assert not noisy and found.engines["A"].rounds == [0.5, 0.5]  # of two sets


class Noise:
    def __init__(self, levels):
        self.levels = levels

    def processors(self):
        return self.levels.pop(0) if len(self.levels) > 1 else self.levels[0]


@pytest.mark.parametrize(
    "levels, turns, noisy",
    [
        ([0.04], 3, False),
        ([0.06, 0.06, 0.04], 5, False),  # two rounds are repeated
        ([0.06], 5, True),  # no more than two
    ],
)
def test_noisy_rounds_are_repeated_and_told(monkeypatch, levels, turns, noisy):
    noise = Noise(levels)
    monkeypatch.setattr(measuring, "Others", lambda pids: noise)
    diary, found = [], row(A=[])
    settings = Settings(rounds=3, turn=1, repeats=2)
    assert measuring.take_turns({"A": Process("A", diary)}, SETS, settings, found) == noisy
    assert diary.count("A") == 1 + turns and len(found.engines["A"].rounds) == 3


def test_an_engine_that_fails_in_its_turn_leaves_the_others(monkeypatch):
    class Failing(Process):
        def time(self, sets, runs):
            if len(self.diary) > 6:
                raise measuring.Error("it fell over")
            return [1.0] * runs

    monkeypatch.setattr(measuring, "Others", lambda pids: Noise([0]))
    diary, found = [], row(A=[], B=[])
    processes = {"A": Process("A", diary), "B": Failing("B", diary)}
    measuring.take_turns(processes, SETS, Settings(rounds=3, turn=1), found)
    assert len(found.engines["A"].rounds) == 3
    assert found.engines["B"].rounds == [] and found.engines["B"].error == "it fell over"


def fake_proc(folder, busy, processes):
    """A /proc in which all processors have worked some ticks, and each process some of them."""
    (folder / "stat").write_text(f"cpu  {busy - 3} 1 1 9999 9999 0 0 1 0 0\ncpu0 0 0\n")
    for pid, ticks in processes.items():
        (folder / str(pid)).mkdir(exist_ok=True)
        (folder / str(pid) / "stat").write_text(f"{pid} (a name) b) S {'0 ' * 10}{ticks - 1} 1 77 77 0\n")


def test_other_processes_are_told_from_the_engines(tmp_path, monkeypatch):
    now = iter([10.0, 12.0])
    monkeypatch.setattr(measuring.time, "monotonic", lambda: next(now))
    fake_proc(tmp_path, 1000, {5: 100, 6: 200})
    others = measuring.Others([5, 6], tmp_path)
    fake_proc(tmp_path, 1000 + 5 * machine.TICKS, {5: 100 + 3 * machine.TICKS, 6: 200 + machine.TICKS})
    assert others.processors() == pytest.approx(0.5)  # 5 - 3 - 1 seconds, in 2


def test_differences_are_parts_of_the_largest_element():
    a, b = np.array([1.0, 10.0]), np.array([1.5, 10.0])
    assert measuring.max_difference([a, a], [a, b]) == pytest.approx(0.05)
    assert measuring.max_difference([np.array([True])], [np.array([False])]) == 1
    assert measuring.max_difference([a], [a[:1]]) == measuring.max_difference([a], []) == math.inf
    assert measuring.max_difference([np.zeros((0, 2))], [np.zeros((0, 2))]) == 0


@pytest.mark.parametrize("value", [1.0, math.nan])
def test_who_disagrees_is_not_measured(value):
    found = row(onnx_torch=[], onnxruntime=[])
    outputs = {"onnx_torch": [np.array([value])], "onnxruntime": [np.array([2.0])]}
    measuring.find_disagreeing(found, outputs)
    assert "its outputs differ by" in found.engines["onnx_torch"].error and not found.engines["onnxruntime"].error


# --- Reports ----------------------------------------------------------------------------------------------------------


@pytest.fixture
def results():
    engines = dict(onnxruntime=[1.2, 1.2], onnxruntime_again=[1.2, 1.3], torch=[3, 3])
    rows = [row("fast", onnx_torch=[1, 1], **engines), row("slow", "h", True, onnx_torch=[4, 4], **engines)]
    rows[1].engines["openvino"] = Measured("openvino: RuntimeError: no such\noperator | none")
    for one in rows:
        for measured in one.engines.values():
            measured.import_seconds, measured.start_seconds, measured.memory = 1.0, 2.0, 3_000_000
    return Results(Settings(rounds=2), rows, "2026-01-02", "a processor", {"onnx": "1"})


def cells(table):
    return {line[0]: list(line[1:]) for line in table.rows}


def test_targets_name_the_worst_model(results):
    found = cells(report.targets(results))
    assert found["onnxruntime"] == ["0.60 < 1.15", "0.30 < 0.9 slow"]  # the mean of 1.2 and 0.3
    assert found["torch, eager"] == ["1.50 < 2", "0.75 < 1 slow"]
    assert found["peak of memory meanwhile, ours over onnxruntime's"] == ["≤ 1.2 for 2 of 2 models", "1.00 fast"]
    assert "OpenVINO, float32" not in found


def test_limits_are_in_no_mean(results):
    results.rows.append(row("large_relu", "limits", onnx_torch=[2, 2], copy=[1, 1], onnxruntime=[100, 100]))
    for one in results.rows[-1].engines.values():
        one.start_seconds = one.memory = one.import_seconds = 1
    targets = cells(report.targets(results))
    assert targets["onnxruntime"] == ["0.60 < 1.15", "0.30 < 0.9 slow"]
    assert targets["a copy, large_relu alone"] == ["", "0.50 < 0.8"]
    assert cells(report.limits(results))["large_relu"][:3] == ["2e+03", "1e+03", "a copy"]
    assert "a copy" not in str(report.speed(results).columns)


def test_tables_show_every_figure_and_every_gap(results):
    speed = cells(report.speed(results))
    assert speed["fast"] == ["1e+03", "1.20 (1.20–1.20)", "n/a", "3.00 (3.00–3.00)", "1.04 (1.02–1.06)"]
    assert "slow (noisy)" in speed
    assert report.missing(results).rows == [["OpenVINO, float32", "RuntimeError: no such operator / none", "slow"]]
    assert cells(report.means(results))["over groups"] == ["0.60", "n/a", "1.50"]
    assert cells(report.starts(results))["slow"] == ["2.000", "2.000", "1.00", "3", "3", "1.00"]


def test_results_come_back_from_their_file(results, tmp_path):
    results.write(tmp_path / "results.json")
    assert Results.read(tmp_path / "results.json") == results


def test_a_part_of_the_page_is_made_anew(results):
    page = "before\n<!-- results: 2 threads -->\nold\n<!-- end of results -->\nafter\n"
    found = report.into_page(page, "2 threads", results, "picture.svg")
    assert found.startswith(
        "before\n<!-- results: 2 threads -->\n\nMeasured on 2026-01-02 on a processor, with 2 threads"
    )
    assert "old" not in found and "| fast | 1e+03 |" in found and found.endswith("<!-- end of results -->\nafter\n")
    assert report.into_page(found, "2 threads", results, "picture.svg") == found
    with pytest.raises(ValueError, match="no part"):
        report.into_page(page, "1 thread", results, "picture.svg")


def test_the_documentation_has_a_part_for_each_number_of_threads(results):
    page = (ROOT / "docs" / "performance.md").read_text()
    for threads in (1, 2):
        report.into_page(page, f"{threads} threads", results, "picture.svg")


def test_the_picture_is_drawn(results, tmp_path):
    plot(results, tmp_path / "picture.svg")
    lines = (tmp_path / "picture.svg").read_text().splitlines()
    assert any("<svg" in line for line in lines) and all(line == line.rstrip() for line in lines)


# --- Models and the command line --------------------------------------------------------------------------------------


def test_a_model_is_made_once(tmp_path):
    calls = []
    case = Case("relu", "small", partial(write_relu, calls))
    for _ in range(2):
        case.make(tmp_path)
    assert calls == [model_file(tmp_path, "relu")] and case.is_made(tmp_path)
    for expected, found in zip(SETS, read_inputs(tmp_path, "relu"), strict=True):
        np.testing.assert_array_equal(found["x"], expected["x"])
    (tmp_path / "relu.key").write_text("made by other code")
    case.make(tmp_path)
    assert len(calls) == 2


def test_the_hardwares_limits_are_measured(tmp_path):
    for name in ("large_product", "large_convolution"):
        network = CASES[name].network()
        feeds = network.feeds()
        engine = object.__new__(engines.Primitive)
        engine._module = network.module
        expected = network.module(*network.inputs[0].values()).numpy()
        assert measuring.max_difference(engine.run(feeds[0]), [expected]) < 1e-4
        times = engine.time(feeds, 2)
        assert len(times) == 2 and 1e-4 < min(times) < 1
    engine = object.__new__(engines.Copy)
    assert all(1e-4 < time < 1 for time in engine.time(CASES["large_relu"].network().feeds(), 3))


@pytest.mark.parametrize("name", ["loop", "scaled_regression"])
def test_small_models_run_alike(name, tmp_path):
    case = CASES[name]
    case.make(tmp_path)
    settings = Settings(rounds=1, turn=0.001, repeats=0, loads=1)
    found = measuring.measure(case, tmp_path, ["onnx_torch", "onnxruntime"], settings)
    assert all(one.rounds and not one.error for one in found.engines.values()), found


def test_models_are_chosen_by_pattern():
    chosen = lambda *words: [case.name for case in chosen_cases(parser().parse_args(words))]
    assert chosen("--models", "bert_l*", "loop") == ["bert_lengths", "bert_lengths_torchscript", "loop"]
    assert len(chosen()) == len(CASES) > len(chosen("--quick")) > 5
    with pytest.raises(SystemExit, match='No model is named "tvm"'):
        chosen("--models", "tvm")


def test_the_command_measures_and_prints(tmp_path):
    command = [sys.executable, "-m", "benchmarks", "--models", "identity", "--engines", "onnx_torch", "onnxruntime"]
    command += ["--rounds", "1", "--threads", "1", "--kept", str(tmp_path / "kept"), "--output", str(tmp_path / "out")]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True)
    assert "Ratio of a model" in done.stdout and "identity" in done.stdout
    assert "Measured in" in done.stderr and "\r" not in done.stderr
    assert Results.read(tmp_path / "out" / "performance-1-threads.json").rows[0].case == "identity"
    again = subprocess.run(
        [*command[:3], "--report", str(tmp_path / "out" / "performance-1-threads.json")],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=True,
    )
    assert again.stdout == done.stdout
