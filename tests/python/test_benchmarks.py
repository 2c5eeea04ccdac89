"""The harness of `./dev bench`: what it measures is no matter here."""

import contextlib
import fnmatch
import importlib.util
import itertools
import math
import signal
import statistics
import subprocess
import sys
import time
from functools import partial
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import onnx
import pytest
import torch
from benchmarks import engines, machine, measuring, neighbour, processes, report, variants
from benchmarks import results as r
from benchmarks.__main__ import (
    ROOT,
    chosen_cases,
    chosen_engines,
    draw,
    gpu_of,
    main,
    make_held_out,
    page_of,
    parser,
    results_file,
)
from benchmarks.measuring import Measured, Row, Settings
from benchmarks.models import CASES, held_out, optimized
from benchmarks.models.case import Case, Network, model_file, read_inputs
from benchmarks.plot import plot
from benchmarks.results import Results
from onnx import parser as onnx_parser

import onnx_torch
from onnx_torch._engines.other_engine import OtherEngine

RELU = """<ir_version: 10, opset_import: ["": 21]> relu (float[n] x) => (float[n] y) { y = Relu(x) }"""
SETS = [{"x": np.arange(-3, 3, dtype=np.float32)}, {"x": np.ones(2, np.float32)}]


def write_relu(calls, file):
    calls.append(file)
    onnx.save(onnx_parser.parse_model(RELU), file)
    return SETS


@pytest.fixture
def made(tmp_path):
    """Gives a case whose model is made, and the folder; torch's engine knows the name, but no module of that name."""
    case = Case("identity", "small", partial(write_relu, []))
    case.make(tmp_path)
    return case, tmp_path


def row(case="a", group="g", noisy=False, **rounds):
    """Makes a row whose engines took some seconds in each round."""
    return Row(case, group, 2, 1e-3, noisy, {name: Measured(rounds=list(times)) for name, times in rounds.items()})


# --- Held-out models --------------------------------------------------------------------------------------------------


def test_a_seed_draws_the_same_models_each_time_and_another_one_others(monkeypatch):
    monkeypatch.setattr(held_out, "names", lambda source: [f"{source}_{i}" for i in range(1000)])
    first, again, other = ([c.name for c in itertools.islice(held_out.drawn(seed), 20)] for seed in (1, 1, 2))
    assert first == again and not set(first) & set(other) and len(set(first)) == 20


def test_what_cannot_be_measured_is_left_out_and_the_next_one_drawn(monkeypatch, tmp_path, capsys):
    def write(number, file):
        if number % 2:
            raise held_out.Unsuited("It is too large.")
        return write_relu([], file)

    cases = [Case(f"model{i}", held_out.GROUP, partial(write, i)) for i in range(30)]
    monkeypatch.setattr(held_out, "drawn", lambda seed: iter(cases))
    made = make_held_out(1, tmp_path)
    assert [case.name for case in made] == [f"model{i}" for i in range(0, 20, 2)]
    assert "model1 cannot be made: Unsuited: It is too large." in capsys.readouterr().err


def test_a_reduced_configuration_is_narrow_and_makes_a_model_that_runs():
    network = held_out.of_transformers("mistral")
    assert network.module.model.config.hidden_size <= 512 and network.module.model.config.num_hidden_layers == 2
    assert network.module(*network.inputs[0].values()).shape[:2] == (1, 32)


def test_a_network_that_is_too_large_takes_no_memory():
    with pytest.raises(held_out.Unsuited, match="400,000,000 weights"):
        held_out.small_enough(lambda: torch.nn.Linear(20_000, 20_000, bias=False))


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


def test_an_engine_is_compared_with_the_column_of_its_precision():
    measured = row(onnx_torch=[4], bfloat16=[2], openvino_default=[3], openvino=[3])
    assert r.ratio(measured, "openvino_default").median == 1.5
    assert r.ratio(measured, "openvino").median == 0.75
    del measured.engines["bfloat16"]
    assert r.ratio(measured, "openvino_default") is None


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
        return Measured(start_seconds=len(diary) * measuring.BRIEF, import_seconds=len(diary), memory=len(diary))

    assert not measuring.repeat_loads(found, found.engines, Settings(loads=3), load)
    assert diary == ["onnx_torch", "onnxruntime"] * 2  # the loads that are compared
    figures = lambda name: [
        getattr(found.engines[name], what) for what in ("start_seconds", "import_seconds", "memory")
    ]
    assert figures("onnx_torch") == [measuring.BRIEF, 1, 1] and figures("onnxruntime") == [2 * measuring.BRIEF, 2, 2]
    assert figures("openvino")[0] == 0.1
    measuring.repeat_loads(found, found.engines, Settings(loads=3), load)
    assert len(diary) == 4  # they are not brief


@pytest.mark.parametrize(
    "levels, turns, median, noisy",
    [
        ([0.04], 2, 1, False),
        ([0.06, 0.06, 0.04], 4, 3, False),  # two turns are repeated
        ([0.06], 4, 3, True),  # no more than two
    ],
)
def test_noisy_loads_are_repeated_and_told(levels, turns, median, noisy):
    noise, count, found = Noise(levels), itertools.count(1), row(onnxruntime=[])
    load = lambda name: Measured(start_seconds=next(count), others=noise.processors())
    found.engines["onnxruntime"].start_seconds = 1.0
    assert measuring.repeat_loads(found, ["onnxruntime"], Settings(loads=3, repeats=2), load) == noisy
    assert found.engines["onnxruntime"].start_seconds == median and next(count) == turns + 1


def test_an_engine_that_does_not_load_again_is_not_measured():
    def load(name):
        raise measuring.Error("not this time")

    found = row(onnxruntime=[])
    measuring.repeat_loads(found, ["onnxruntime"], Settings(loads=2), load)
    assert found.engines["onnxruntime"].error == "not this time"


def test_an_engine_that_takes_too_long_is_ended(made):
    case, folder = made
    settings = Settings(rounds=1, repeats=0, limit=0)
    found = measuring.measure(case, folder, ["onnxruntime"], settings)
    assert found.engines["onnxruntime"] == Measured(
        "it did not load the model and run it once in 0 s", **vars_of(found)
    )


def vars_of(found):
    return {
        name: getattr(found.engines["onnxruntime"], name)
        for name in ("import_seconds", "start_seconds", "memory", "others")
    }


def test_paused_engines_end_with_the_benchmark():
    code = """if True:
        import os, signal, onnx.parser
        from onnx_torch._engines.other_engine import OtherEngine
        model = onnx.parser.parse_model('''{RELU}''').SerializeToString()
        engine = OtherEngine("reference", model)
        engine.pause()
        print(engine.pid, flush=True)
        os.kill(os.getpid(), signal.SIGKILL)
    """.replace("{RELU}", RELU)
    done = subprocess.run([sys.executable, "-c", code], stdout=subprocess.PIPE, text=True)
    assert done.returncode == -signal.SIGKILL and done.stdout.strip().isdecimal()
    status = Path("/proc") / done.stdout.strip() / "status"
    for _ in range(100):
        if not status.exists() or "State:\tZ" in status.read_text():
            return
        time.sleep(0.05)
    pytest.fail(f"it still runs: {status}")


FORKS = """
import os
import time

class Forks:
    def __init__(self, model, directory, options):
        if os.fork() == 0:
            time.sleep(20)
            os._exit(0)

ENGINES = {"forks": Forks}
"""


def test_an_engine_ends_whose_children_live_on(tmp_path):
    script = tmp_path / "forks.py"
    script.write_text(FORKS)
    with OtherEngine("forks", b"", script=str(script)):
        start = time.monotonic()
    assert time.monotonic() - start < 10


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


def test_a_spread_tells_of_the_slow_runs():
    found = neighbour.Spread.of([1.0] * 97 + [5.0, 2.0, 3.0])
    assert (found.median, found.late, found.worst) == (1.0, 5.0, 5.0)
    assert neighbour.Spread.of([float(i) for i in range(1000)]).late == 990
    assert neighbour.Spread.of([4.0]) == neighbour.Spread(4.0, 4.0, 4.0)


def test_neighbours_are_busy_and_end():
    with neighbour.busy_processes(2) as processes:
        time.sleep(0.3)
        assert all(machine.process_seconds(process.pid) > 0 for process in processes)
    assert all(process.poll() is not None for process in processes)


def test_runs_beside_a_busy_process_are_measured(made):
    case, folder = made
    found = neighbour.measure(case, folder, Settings(threads=1), neighbours=1, runs=50)
    assert list(found) == ["onnx_torch", "onnxruntime"]
    assert all(0 < one.median <= one.late <= one.worst for one in found.values())
    (ours, reference) = neighbour.rows({"relu": found})
    assert ours[:2] == ["relu", "onnx_torch"] and float(reference[-1]) == 1


def test_an_engine_that_fails_beside_a_busy_process_is_told(made):
    case, folder = made
    model_file(folder, case.name).write_bytes(b"no model")
    with pytest.raises(onnx_torch.Error):
        neighbour.measure(case, folder, Settings(threads=1), neighbours=0, runs=1)


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
    """Makes a /proc in which all processors have worked some ticks, and each process some of them."""
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
    for one in found.engines.values():
        one.precision = "float32"
    measuring.find_disagreeing(found, outputs)
    assert "its outputs differ by" in found.engines["onnx_torch"].error and not found.engines["onnxruntime"].error


def test_outputs_may_differ_as_far_as_their_precision_says():
    found = row(onnxruntime=[], bfloat16=[], openvino=[])
    for name, precision in dict(onnxruntime="float32", bfloat16="bfloat16", openvino="float32").items():
        found.engines[name].precision = precision
    values = dict(onnxruntime=1.0, bfloat16=1.04, openvino=1.002)
    measuring.find_disagreeing(found, {name: [np.array([value])] for name, value in values.items()})
    assert not found.engines["bfloat16"].error
    assert found.engines["openvino"].error == "its outputs differ by 0.002 of the largest element, over 0.001"
    found.tolerance = 0.1  # an 8-bit model's
    assert measuring.allowed_difference(found, found.engines["bfloat16"]) == 0.1


def test_openvino_tells_what_it_computes_in(made):
    pytest.importorskip("openvino", reason="a package of `./dev bench`")
    case, folder = made
    settings = Settings(rounds=1, turn=0.001, repeats=0, loads=1)
    found = measuring.measure(case, folder, ["openvino", "openvino_default"], settings)
    assert [one.error for one in found.engines.values()] == ["", ""]
    assert found.engines["openvino"].precision == "float32"
    assert found.engines["openvino_default"].precision in engines.TOLERANCES


# --- A GPU, with stand-ins for what torch has of it -------------------------------------------------------------------

GPU = {"threads": 2, "device": "cuda:0", "precision": "float32"}


class Event:
    """An event of a GPU that writes a diary, and lies 3 ms behind the one before."""

    diary: list[str]

    def __init__(self, enable_timing):
        assert enable_timing

    def record(self):
        self.diary.append("event")

    def synchronize(self):
        self.diary.append("wait for it")

    def elapsed_time(self, end):
        return 3.0


@pytest.fixture
def diary(monkeypatch):
    """Keeps what a process does with the GPU, in order."""
    entries = []
    monkeypatch.setattr(Event, "diary", entries, raising=False)
    monkeypatch.setattr(torch.cuda, "Event", Event)
    monkeypatch.setattr(torch.cuda, "synchronize", lambda: entries.append("wait for all"))
    monkeypatch.setattr(engines, "use_gpu", lambda device, precision: entries.append(f"{device} {precision}"))
    return entries


def test_a_gpus_time_is_from_event_to_event(diary):
    assert engines.gpu_seconds(lambda: diary.append("run")) == 3e-3
    assert diary == ["wait for all", "event", "run", "event", "wait for it"]


def test_runs_on_a_gpu_are_timed_one_by_one_with_inputs_there(diary):
    engine = engines.Torch("", "", GPU | {"device": "meta", "case": "mlp_batch8"})  # torch's device without data
    assert diary.pop(0) == "meta float32"
    placed = []
    engine.call = lambda inputs: placed.append(inputs["x"]) or diary.append("run")
    x = np.zeros((8, 64), np.float32)
    assert engine.time([{"x": x}, {"x": x}], 2) == [3e-3, 3e-3]
    assert diary == ["wait for all", "event", "run", "run", "event", "wait for it"] * 2
    assert {one.device.type for one in placed} == {"meta"}
    assert placed[0] is placed[2] and placed[1] is placed[3]


def test_a_captured_call_is_replayed_with_new_inputs(diary, monkeypatch):
    class Graph:
        def replay(self):
            diary.append("replay")

    monkeypatch.setattr(torch.cuda, "CUDAGraph", Graph)
    monkeypatch.setattr(torch.cuda, "graph", lambda graph: contextlib.nullcontext(diary.append("capture")))
    calls = []
    captured = engines.Captured(lambda inputs: calls.append(inputs["x"]) or [inputs["x"]], {"x": torch.ones(2)})
    assert diary == ["wait for all", "capture"] and len(calls) == engines.Captured.WARM_UP + 1
    x = torch.full((2,), 5.0)
    (found,) = captured({"x": x})
    assert diary[2:] == ["replay"] and found is calls[-1] and found is not x and found.tolist() == [5, 5]


def test_tf32_is_asked_of_onnx_torch_where_it_has_the_option(diary, monkeypatch):
    def prepare(model, device, *, optimize=True, tf32=False):
        diary.append((model, device, optimize, tf32))

    monkeypatch.setattr(onnx_torch, "prepare", prepare)
    for options in ({}, {"precision": "tf32"}, {"optimize": False}):
        engines.OnnxTorch("a.onnx", "", GPU | options)
    assert diary[1::2] == [("a.onnx", "CUDA:0", *flags) for flags in ((True, False), (True, True), (False, False))]
    monkeypatch.setattr(onnx_torch, "prepare", lambda model, device, *, optimize=True: None)
    with pytest.raises(LookupError, match="no option tf32"):
        engines.OnnxTorch("a.onnx", "", GPU | {"precision": "tf32"})


def test_onnxruntime_without_cuda_is_told(diary, monkeypatch):
    monkeypatch.setattr("onnxruntime.get_available_providers", lambda: ["CPUExecutionProvider"])
    with pytest.raises(LookupError, match="onnxruntime-gpu has it"):
        engines.OnnxRuntime("a.onnx", "", GPU)


@pytest.mark.filterwarnings("ignore:Duplicate provider")
def test_engines_for_a_gpu_run_where_their_tensors_lie(diary, made, monkeypatch):
    """Engines for a GPU run on the CPU, too, where its provider is in the place of CUDA's."""
    monkeypatch.setattr(engines.OnnxRuntime, "PROVIDER", "CPUExecutionProvider")
    monkeypatch.setattr(torch.cuda, "current_stream", lambda: SimpleNamespace(cuda_stream=1))
    case, folder = made
    for engine_class in (engines.OnnxTorch, engines.OnnxRuntime):
        engine = engine_class(str(model_file(folder, case.name)), "", GPU | {"device": "cpu:0"})
        for feeds in SETS:
            np.testing.assert_array_equal(engine.run(feeds), [np.maximum(feeds["x"], 0)])


def test_every_column_has_its_class():
    by_device = {"cpu": {"onnx_torch", "onnxruntime", *engines.ENGINES}, "cuda:0": set(engines.ENGINES)}
    for device, classes in by_device.items():
        there = engines.columns(device)
        assert {engine.class_for(device) for engine in there.values()} <= classes
        assert {engine.against for engine in there.values()} <= set(there)
        assert {engine.repeats for engine in there.values()} - {""} <= set(there)
        assert engines.again(list(there)) == {"cpu": "onnxruntime_again", "cuda:0": "torch_again"}[device]


def test_a_gpu_that_is_not_there_is_told(monkeypatch):
    def fail(device):
        raise RuntimeError("Found no NVIDIA driver on your system.")

    monkeypatch.setattr(torch.cuda, "get_device_properties", fail)
    with pytest.raises(SystemExit, match="cannot run on cuda:1: Found no NVIDIA driver"):
        gpu_of(parser().parse_args(["--device", "cuda:1"]))
    assert gpu_of(parser().parse_args([])) == ""


def test_a_gpu_is_named_with_its_driver(monkeypatch, tmp_path):
    monkeypatch.setattr(torch.cuda, "get_device_properties", lambda device: SimpleNamespace(name=f"GPU of {device}"))
    tool = tmp_path / "nvidia-smi"
    tool.write_text("#!/bin/sh\necho 580.1\necho 580.1\n")
    tool.chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}:/bin:/usr/bin")
    assert machine.gpu("cuda:1") == f"GPU of cuda:1, driver 580.1, CUDA {torch.version.cuda}"
    tool.unlink()
    monkeypatch.setenv("PATH", str(tmp_path))
    assert "driver unknown" in machine.gpu("cuda:1")


def test_a_gpu_has_targets_of_its_own():
    rows = [
        row("mlp", onnx_torch=[1], graphs=[0.5], torch=[2], torch_again=[2], torch_graphs=[1], torch_compile=[0.8]),
        row("large_product", "limits", onnx_torch=[1], graphs=[0.5], library=[0.4], torch=[2]),
    ]
    settings = Settings(rounds=1, device="cuda:0", precision="tf32")
    results = Results(settings, rows, "2026-01-02", "a processor", "a GPU, driver 1", {"onnx": "1"})
    assert cells(report.targets(results)) == {
        "torch, eager": ["2.00 ≥ 1.3", "2.00 ≥ 0.9 mlp"],
        "torch.compile": ["0.80 < 1", "0.80 mlp"],
        "torch, eager, mlp alone, against onnx_torch, CUDA graph": ["", "4.00 ≥ 3"],
        "cuBLAS or cuDNN, large_product alone, against onnx_torch, CUDA graph": ["", "0.80 < 0.9"],
    }
    table = report.speed(results)
    assert table.columns[-2:] == [">torch.compile", ">torch, eager against itself"]
    assert ">torch, eager, CUDA graph, against onnx_torch, CUDA graph" in table.columns
    assert cells(table)["mlp"][3] == "2.00 (2.00–2.00)"
    assert "on a GPU, driver 1 (cuda:0, tf32; a processor): 1 rounds" in report.summary(results)
    assert "torch, eager in a second process differs" in report.legend(results)


def test_outputs_on_a_gpu_are_compared_in_its_precision(made):
    found = row(torch=[], onnx_torch=[])
    for one in found.engines.values():
        one.precision = "tf32"
    measuring.find_disagreeing(found, {"onnx_torch": [np.array([1.009])], "torch": [np.array([1.0])]})
    assert found.engines["onnx_torch"].error == "" and found.engines["torch"].difference == 0


# --- Reports ----------------------------------------------------------------------------------------------------------


@pytest.fixture
def results():
    engines = dict(onnxruntime=[1.2, 1.2], onnxruntime_again=[1.2, 1.3], torch=[3, 3])
    rows = [row("fast", onnx_torch=[1, 1], **engines), row("slow", "h", True, onnx_torch=[4, 4], **engines)]
    rows[1].engines["openvino"] = Measured("openvino: RuntimeError: no such\noperator | none")
    for one in rows:
        for measured in one.engines.values():
            measured.import_seconds, measured.start_seconds, measured.memory = 1.0, 2.0, 3_000_000
    return Results(Settings(rounds=2), rows, "2026-01-02", "a processor", versions={"onnx": "1"})


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


def test_files_made_of_others_are_compared_with_these(results):
    results.rows.append(row("fused", "optimized files", onnx_torch=[2, 2], source=[1, 1], onnxruntime=[4, 4]))
    assert cells(report.targets(results))["onnx_torch, the source"] == ["0.50 < 1", "0.50 < 1 fused"]
    assert cells(report.sources(results)) == {"fused": ["2e+03", "1e+03", "0.50 (0.50–0.50)"]}
    assert "onnx_torch, the source" not in str(report.speed(results).columns)


def test_tables_show_every_figure_and_every_gap(results):
    speed = cells(report.speed(results))
    assert speed["fast"] == ["1e+03", "1.20 (1.20–1.20)", "n/a", "3.00 (3.00–3.00)", "1.04 (1.02–1.06)"]
    assert "slow (noisy)" in speed
    assert report.missing(results).rows == [["OpenVINO, float32", "RuntimeError: no such operator / none", "slow"]]
    assert cells(report.means(results))["over groups"] == ["0.60", "n/a", "1.50"]
    assert cells(report.starts(results))["slow"] == ["2.000", "2.000", "1.00", "3", "3", "1.00"]


def test_the_columns_name_what_they_are_compared_with_and_what_they_computed_in():
    measured = row("a", onnx_torch=[4], bfloat16=[2], openvino_default=[3])
    for name, one in measured.engines.items():
        one.precision, one.difference = ("float32" if name == "onnx_torch" else "bfloat16"), 0.004
    results = Results(Settings(), [measured])
    assert report.speed(results).columns[2:4] == [
        ">onnx_torch, bfloat16",
        ">OpenVINO, by default, against onnx_torch, bfloat16",
    ]
    found = cells(report.precisions(results))
    assert found["onnx_torch"] == ["float32", "0.001", "0.004 a"]
    assert found["OpenVINO, by default"] == ["bfloat16", "0.05", "0.004 a"]
    measured.engines["bfloat16"].error = "its outputs differ"
    assert "onnx_torch, bfloat16" not in cells(report.precisions(results))


def test_processes_are_measured_in_turns_and_shown(made, monkeypatch, tmp_path):
    case, folder = made
    monkeypatch.setattr(processes, "MODEL", case.name)
    found = Results(Settings(rounds=2), processes=processes.measure(folder, 1, rounds=2))
    alone, with_numpy, imported, after_numpy, ran, info = found.processes
    assert [len(times) for times in ran.seconds.values()] == [2, 2]
    for name in (engines.OURS, engines.REFERENCE):
        median = [statistics.median(one.memory[name]) for one in (alone, with_numpy, after_numpy, ran)]
        assert median == sorted(median)
        assert 0 < statistics.median(alone.seconds[name]) < statistics.median(imported.seconds[name])
    assert list(info.seconds) == [engines.OURS] and not info.memory and info.ratio() is None
    table = report.processes(found)
    assert table.rows[-1][2:] == ["n/a", "n/a", "n/a", "n/a"] and float(table.rows[0][3]) > 0
    found.write(tmp_path / "kept.json")
    assert Results.read(tmp_path / "kept.json") == found


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


@pytest.mark.parametrize(
    "settings",
    [Settings(), Settings(threads=1), Settings(isa="avx2"), Settings(cpu="avx2"), Settings(cpu="amx")]
    + [Settings(device="cuda:0", precision=precision) for precision in engines.GPU_PRECISIONS],
    ids=lambda settings: settings.key,
)
def test_the_documentation_has_a_part_for_each_benchmark(settings, results):
    report.into_page(page_of(settings).read_text(), settings.key, results, "picture.svg")


@pytest.mark.parametrize(
    ("flags", "instructions", "told"),
    [
        ("sse2 avx2 avx512f amx_tile amx_bf16 avx512_bf16", "amx", "avx512_bf16, amx_bf16"),
        ("avx2 avx512f", "avx512", "avx512"),
        ("sse2 avx2", "avx2", "avx2"),
        ("sse2", "baseline", "baseline"),
    ],
)
def test_the_processor_is_told_with_its_instructions(tmp_path, flags, instructions, told):
    (tmp_path / "cpuinfo").write_text(f"model name\t: A CPU\nflags\t\t: {flags}\n")
    assert machine.instructions(tmp_path) == instructions
    assert machine.processor(tmp_path).startswith("A CPU, ") and machine.processor(tmp_path).endswith(f", {told}")


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


def test_a_file_made_of_another_is_measured_beside_it(tmp_path):
    source = Case("relu", "small", partial(write_relu, []))
    case = optimized.rewritten("relu_level2", source, optimized.LEVEL_2, 1e-3)
    case.make(tmp_path)
    assert case.is_made(tmp_path) and source.is_made(tmp_path)
    settings = Settings(threads=1, rounds=1, turn=0.01, loads=1)
    found = measuring.measure(case, tmp_path, ["onnx_torch", "source"], settings)
    assert {name: one.error for name, one in found.engines.items()} == {"onnx_torch": "", "source": ""}
    assert [*measuring.measure(source, tmp_path, ["source"], settings).engines] == []


def test_the_hardwares_limits_are_measured(tmp_path):
    for name in ("large_product", "large_convolution"):
        network = CASES[name].network()
        feeds = network.feeds()
        engine = engines.Primitive("", "", {"threads": 2, "case": name})
        expected = network.module(*network.inputs[0].values()).numpy()
        assert measuring.max_difference(engine.run(feeds[0]), [expected]) < 1e-4
        times = engine.time(feeds, 2)
        assert len(times) == 2 and 1e-4 < min(times) < 1
    engine = engines.Copy("", "", {"threads": 2, "case": "large_relu"})
    assert all(1e-4 < time < 1 for time in engine.time(CASES["large_relu"].network().feeds(), 3))


def test_on_a_gpu_models_have_larger_batches():
    there = variants.cases("cuda:0", "float32")
    assert set(CASES) < set(there) and {"mlp_batch8", "mlp_batch64", "resnet50_batch64"} < set(there)
    assert there["resnet50_batch8"] is CASES["resnet50_batch8"]
    for word in ("detector_*", "recommender_*", "large_*_batch*", "*_torchscript_*", "*_batch8_batch*", "forest_*"):
        assert not fnmatch.filter(there, word), word
    assert variants.cases("cpu", "float32") is CASES
    inputs = [{"ids": torch.ones(1, length), "mask": torch.zeros(1, length, 4)} for length in (128, 16)]
    first, second = variants.batch_of(8, Network(torch.nn.Identity(), inputs)).inputs
    assert first["ids"].shape == (8, 128) and first["mask"].shape == (8, 128, 4)
    assert second["ids"].shape == (8, 16) and torch.equal(second["mask"], torch.zeros(8, 16, 4))


@pytest.mark.parametrize("name", ["mlp_batch8", "gru"])
def test_models_are_exported_in_float16(name, tmp_path):
    case = variants.cases("cuda:0", "float16")[name]
    case.make(tmp_path)
    (feeds,) = read_inputs(tmp_path, name)
    (x,) = feeds.values()
    assert x.dtype == np.float16 and len(x) == (8 if name == "mlp_batch8" else 1)
    engine = engines.Torch("", "", {"threads": 2, "case": name.removesuffix("_batch8")})
    expected = engine.run({name: value.astype(np.float32) for name, value in feeds.items()})
    found = list(onnx_torch.prepare(str(model_file(tmp_path, name))).run(feeds))
    assert [one.dtype for one in found] == [np.float16]
    assert measuring.max_difference(found, expected) < engines.TOLERANCES["float16"]


def test_in_float16_are_models_of_torch():
    assert "mlp" in variants.cases("cuda:0", "float16") and "forest" not in variants.cases("cuda:0", "float16")


@pytest.mark.parametrize("name", ["loop", "scaled_regression"])
def test_small_models_run_alike(name, tmp_path):
    case = CASES[name]
    case.make(tmp_path)
    settings = Settings(rounds=1, turn=0.001, repeats=0, loads=1)
    found = measuring.measure(case, tmp_path, ["onnx_torch", "onnxruntime"], settings)
    assert all(one.rounds and not one.error for one in found.engines.values()), found


def test_models_are_chosen_by_pattern():
    chosen = lambda *words: [case.name for case in chosen_cases(parser().parse_args(words))]
    assert chosen("--models", "bert_le[n]*", "loop") == ["bert_lengths", "bert_lengths_torchscript", "loop"]
    assert len(chosen()) == len(CASES) > len(chosen("--quick")) > 5
    with pytest.raises(SystemExit, match='No model is named "tvm"'):
        chosen("--models", "tvm")


def test_columns_are_measured_with_what_they_are_compared_with():
    chosen = lambda *words: chosen_engines(parser().parse_args(words))
    assert chosen("--engines", "openvino_default") == ["bfloat16", "openvino_default"]
    assert chosen("--engines", "onnxruntime") == ["onnx_torch", "onnxruntime"]
    assert "torch_compile" in chosen() and "torch_compile" not in chosen("--quick")


def test_another_build_is_measured_where_its_folder_is_told(tmp_path, capsys):
    chosen = lambda *words: chosen_engines(parser().parse_args(words))
    builds = ["onnx_torch_again", "other_build"]
    assert not {*builds} & {*chosen()}
    with pytest.raises(SystemExit, match="for --other-build to tell"):
        chosen("--engines", "other_build")
    with pytest.raises(SystemExit):
        chosen("--other-build", str(tmp_path))
    assert "has no folder onnx_torch" in capsys.readouterr().err
    (tmp_path / "onnx_torch").mkdir()
    assert chosen("--other-build", str(tmp_path)) == ["onnx_torch", *builds]
    assert chosen("--other-build", str(tmp_path), "--engines", "openvino") == ["onnx_torch", "openvino", *builds]


def test_another_build_runs_in_place_of_this_one(made, tmp_path):
    package = tmp_path / "builds" / "onnx_torch"
    package.mkdir(parents=True)
    (package / "backend.py").write_text("")
    prepare = "class Rep:\n    def run(self, feeds):\n        return [3 * feeds['x']]\n"
    (package / "__init__.py").write_text(f"{prepare}def prepare(model, **options):\n    return Rep()\n")
    settings = Settings(threads=1, rounds=1, turn=0.001, loads=2, other_build=str(package.parent))
    case, folder = made
    found = measuring.measure(case, folder, ["onnx_torch", "onnx_torch_again", "other_build"], settings).engines
    assert found["onnx_torch"].rounds and found["onnx_torch_again"].rounds
    assert found["onnx_torch"].start_seconds and found["onnx_torch_again"].start_seconds
    assert "its outputs differ" in found["other_build"].error


def test_another_build_is_not_for_the_documentation(monkeypatch):
    monkeypatch.setattr(sys, "argv", ["bench", "--record", "--other-build", str(Path(onnx_torch.__file__).parents[1])])
    with pytest.raises(SystemExit, match="compares no builds"):
        main()


def test_another_build_has_its_loads_in_a_table(results):
    results.rows[0].engines["other_build"] = Measured(
        rounds=[2, 2], import_seconds=1.0, start_seconds=4.0, memory=1_000_000
    )
    found = report.starts(results, "other_build")
    assert cells(found)["fast"] == ["2.000", "4.000", "0.50", "3", "1", "3.00"] and "slow" not in cells(found)
    assert ">onnx_torch, the other build, s" in found.columns
    assert cells(report.speed(results))["fast"][4] == "2.00 (2.00–2.00)"


def test_the_command_measures_and_prints(tmp_path):
    command = [sys.executable, "-m", "benchmarks", "--models", "identity", "--engines", "onnx_torch", "onnxruntime"]
    command += ["--rounds", "1", "--threads", "1", "--kept", str(tmp_path / "kept"), "--output", str(tmp_path / "out")]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True)
    assert "Ratio of a model" in done.stdout and "identity" in done.stdout
    assert "Measured in" in done.stderr and "\r" not in done.stderr
    file = results_file(tmp_path / "out", Settings(threads=1, cpu=machine.instructions()))
    assert Results.read(file).rows[0].case == "identity"
    again = subprocess.run(
        [*command[:3], "--report", str(file)],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=True,
    )
    assert again.stdout == done.stdout


def test_there_is_no_picture_without_what_draws_it(monkeypatch, tmp_path, capsys):
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None)
    draw(None, tmp_path / "picture.svg")
    assert "matplotlib" in capsys.readouterr().err and not list(tmp_path.iterdir())
