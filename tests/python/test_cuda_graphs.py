"""Recorded runs (`cuda_graphs`), on a device that is pretended (pretended_cuda.py)."""

from __future__ import annotations

import pathlib
import re
import threading
from typing import Any

import numpy as np
import onnx
import pytest
import torch
from onnx import parser

import onnx_torch
from official import check, node_cases
from onnx_torch import _C
from pretended_cuda import PretendedCuda, PretendedRecording

pytestmark = pytest.mark.skipif(torch.cuda.is_available(), reason="a CUDA device is there")

CASES = [case for case in node_cases() if not case.name.startswith("test_gradient")]


def parsed(text: str, opset: int = 21) -> onnx.ModelProto:
    return parser.parse_model(f'<ir_version: 10, opset_import: ["": {opset}]> net {text}')


MLP = "(float[n, 4] x) => (float[n, 4] y) <float[4, 4] w = {1, 2, 3, 4, 5, 6, 7, 8, 9, 1, 2, 3, 4, 5, 6, 7}> {"
MLP = parsed(MLP + " a = MatMul(x, w)  b = Relu(a)  y = Add(b, x) }")


def rows(count: int, seed: int = 0) -> np.ndarray:
    return np.random.default_rng(seed).standard_normal((count, 4), np.float32)


@pytest.fixture
def cuda():
    with PretendedCuda() as device:
        PretendedRecording.made = 0
        yield device


def prepare(model: onnx.ModelProto, cuda_graphs: bool | None = True, **options: Any) -> Any:
    return onnx_torch.prepare(model, "CUDA:0", cuda_graphs=cuda_graphs, **options)


def assert_recorded(count: int) -> None:
    assert PretendedRecording.made == count


@pytest.mark.parametrize("case", [pytest.param(case, id=case.name) for case in CASES])
def test_a_replay_gives_what_a_run_gives_or_the_model_is_refused(case, cuda) -> None:
    fed: list[Any] = []

    def twice(model):
        rep = prepare(model)

        def run(inputs):
            rep.run(inputs)
            return rep.run(inputs)

        return run

    def once(model):
        rep = onnx_torch.prepare(model, "CUDA:0")

        def run(inputs):
            cuda.waits.clear()
            cuda.copies.clear()
            fed[:] = inputs
            return rep.run(inputs)

        return run

    refused = ""
    try:
        check(case, twice)
        assert_recorded(len(case.data_sets))
    except onnx_torch.UnsupportedError as error:
        refused = str(error)
    if refused:
        check(case, once)
        solver = "a solver" in refused
        sequences = any(not value.type.HasField("tensor_type") for value in case.model.graph.input)
        reads = cuda.copies["to the host"] > len(case.model.graph.output) or bool(cuda.waits)
        writes = cuda.copies["to cuda:0"] > len(fed)
        assert solver or sequences or reads or writes, refused


def test_each_replay_reads_the_inputs_that_are_given(cuda) -> None:
    rep, plain = prepare(MLP), prepare(MLP, cuda_graphs=False)
    results = [rep.run([rows(3, seed)])[0] for seed in range(4)]
    assert_recorded(1)
    for seed, result in enumerate(results):
        np.testing.assert_array_equal(result, plain.run([rows(3, seed)])[0])


def test_a_recording_for_each_set_of_sizes_and_the_latest_are_kept(cuda) -> None:
    rep = prepare(MLP)
    for count in range(1, 9):
        rep.run([rows(count)])
    assert_recorded(8)
    rep.run([rows(1)])
    assert_recorded(8)
    rep.run([rows(9)])  # it takes the place of the recording of 2 rows
    rep.run([rows(1)])
    assert_recorded(9)
    rep.run([rows(2)])
    assert_recorded(10)


def test_results_have_memory_of_their_own(cuda) -> None:
    model = parsed("(float[n, 4] x) => (y, z, w) <float[2] w = {1, 2}> { y = Neg(x)  z = Identity(x) }")
    rep = prepare(model)
    first = rep.run([rows(2, 0)], output="torch")
    second = rep.run([rows(2, 1)], output="torch")
    for seed, results in ((0, first), (1, second)):
        y, z, w = (result.cpu().numpy() for result in results)
        np.testing.assert_array_equal(y, -rows(2, seed))
        np.testing.assert_array_equal(z, rows(2, seed))
        np.testing.assert_array_equal(w, [1, 2])
        for result in results:
            result.fill_(7)
    np.testing.assert_array_equal(rep.run([rows(2, 2)])[2], [1, 2])
    assert_recorded(1)


def test_what_a_run_copies(cuda) -> None:
    rep = prepare(MLP)
    rep.run([rows(2)])
    cuda.copies.clear()
    cuda.waits.clear()
    rep.run([rows(2)])
    assert not cuda.waits
    assert cuda.copies == {"to the host": 1}  # of the result; the input is copied into the recording's own tensor


def test_control_flow_that_sizes_decide_is_recorded(cuda) -> None:
    model = parsed(
        """(float[n, m] x) => (y) {
            shape = Shape(x)  two = Constant <value_ints = [2]> ()  rows = Slice(shape, zero, one)
            many = Greater(rows, two)
            y = If(many) <then_branch = a () => (b) { b = Neg(x) }, else_branch = c () => (d) { d = Abs(x) }>
        }"""
    )
    for name, value in (("zero", 0), ("one", 1)):
        model.graph.initializer.append(onnx.numpy_helper.from_array(np.array([value]), name))
    rep = prepare(model)
    for count in (1, 3, 1, 3):
        x = rows(count, count)
        np.testing.assert_array_equal(rep.run([x])[0], -x if count > 2 else np.abs(x))
    assert_recorded(2)


def test_a_model_that_has_the_host_wait_is_refused(cuda) -> None:
    model = parsed(
        """(float[n, 4] x, bool c, string[n] t) => (places, picked, which, u) {
            places = NonZero(x)
            c1 = Reshape(c, one)
            picked = Compress <axis = 0> (x, c1)
            which = If(c) <then_branch = a () => (b) { b = Neg(x) }, else_branch = f () => (d) { d = Abs(x) }>
            u = StringConcat(t, t)
        }"""
    )
    model.graph.initializer.append(onnx.numpy_helper.from_array(np.array([1]), "one"))
    with pytest.raises(onnx_torch.UnsupportedError) as refused:
        prepare(model)
    lines = re.findall(r"^  (\w+) .*: (.*)$", str(refused.value), re.M)
    count = "how many elements the result has"
    assert lines == [
        ("NonZero", count),
        ("Compress", count),
        ("If", "a number that the host reads"),
        ("StringConcat", "strings"),
    ]


@pytest.mark.parametrize(("sizes", "waits"), [((2, 3, 4, 5), False), ((1, 1, 4, 5), False), ((2, 3, 4, 1), True)])
def test_a_grid_of_one_element_along_a_dimension_is_refused(sizes: tuple[int, ...], waits: bool, cuda) -> None:
    text = ", ".join(map(str, sizes))
    model = parsed(f"(float[N, 2, 3] theta) => (y) <int64[4] size = {{{text}}}> {{ y = AffineGrid(theta, size) }}")
    theta = [np.ones((sizes[0], 2, 3), np.float32)]
    if waits:
        with pytest.raises(onnx_torch.UnsupportedError, match="numbers of the host"):
            prepare(model)
    else:
        np.testing.assert_allclose(prepare(model).run(theta)[0], prepare(model, False).run(theta)[0])


@pytest.mark.parametrize("operator", ["argwhere", "bincount", "repeat_interleave"])
def test_an_operator_of_aten_that_waits_is_refused(operator: str, cuda) -> None:
    onnx_torch.register_op("waits.test", operator, f"aten::{operator}")
    head = '<ir_version: 10, opset_import: ["": 21, "waits.test": 1]>'
    model = parser.parse_model(f"{head} net (int64[n] x) => (y) {{ y = waits.test.{operator}(x) }}")
    cuda.waits.clear()
    onnx_torch.prepare(model, "CUDA:0").run([np.arange(3)])
    assert cuda.waits
    with pytest.raises(onnx_torch.UnsupportedError, match="how many elements the result has"):
        prepare(model)


def test_what_excludes_it() -> None:
    with pytest.raises(onnx_torch.InputError, match="cuda_graphs is for CUDA devices, and the device is CPU"):
        onnx_torch.prepare(MLP, "CPU", cuda_graphs=True)
    with PretendedCuda(), pytest.raises(onnx_torch.InputError, match="cuda_graphs and limits exclude each other"):
        prepare(MLP, limits={"seconds": 10})
    sequences = parsed("(seq(float[n]) s) => (y) { y = ConcatFromSequence <axis = 0> (s) }")
    with PretendedCuda(), pytest.raises(onnx_torch.UnsupportedError, match='the input "s", which is not a tensor'):
        prepare(sequences)


def test_the_library_for_cuda_brings_recordings(cuda) -> None:
    _C.assume_recordings(None, None)
    try:
        onnx_torch.kernels_library(cuda=True)
    except onnx_torch.UnsupportedError:
        with pytest.raises(onnx_torch.DeviceError, match="this build has no CUDA graphs"):
            prepare(MLP)
    else:
        prepare(MLP)


def test_a_run_that_can_be_stopped_is_not_recorded(cuda) -> None:
    rep = prepare(MLP)
    feeds = {"x": rows(2)}
    (stoppable,) = rep._prepared.run(feeds, stop=_C.StopFlag())
    assert_recorded(0)
    (recorded,) = rep.run(feeds)
    assert_recorded(1)
    np.testing.assert_array_equal(stoppable, recorded)


def test_an_error_names_the_node_and_the_next_run_is_none_the_worse(cuda) -> None:
    """The error is TorchScript's, as those of the pretended device's own do not come through it whole."""
    inputs = "float[1, h, 2, 8] q, float[1, g, 2, 8] k"
    rep = prepare(parsed(f"({inputs}) => (y, a, b, c) {{ y, a, b, c = Attention(q, k, k) }}", opset=24))
    q, k = np.ones((1, 3, 2, 8), np.float32), np.ones((1, 2, 2, 8), np.float32)
    for _ in range(2):
        with pytest.raises(onnx_torch.RunError, match="must be a multiple") as failed:
            rep.run([q, k])
        assert failed.value.op_type == "Attention"
        np.testing.assert_allclose(rep.run([k, k])[0], k)
    assert_recorded(3)  # of which one came to its end


def test_random_numbers_differ_from_replay_to_replay(cuda) -> None:
    rep = prepare(parsed("(float[n] x) => (y) { y = RandomUniformLike(x) }"))
    first, second = (rep.run([np.zeros(64, np.float32)])[0] for _ in range(2))
    assert_recorded(1)
    assert len({*first.tolist(), *second.tolist()}) > 100


def test_other_outputs_and_fed_initializers_are_recorded_apart(cuda) -> None:
    rep = prepare(parsed("(float[n] x, float[1] w) => (y) <float[1] w = {2}> { a = Mul(x, w)  y = Neg(a) }"))
    x = np.float32([1, 2])
    for _ in range(2):
        assert rep.run({"x": x})[0].tolist() == [-2, -4]
        assert rep.run({"x": x}, output_names=["a"])[0].tolist() == [2, 4]
        assert rep.run({"x": x, "w": np.float32([3])})[0].tolist() == [-3, -6]
    assert_recorded(3)


def test_another_output_that_has_the_host_wait_is_refused(cuda) -> None:
    rep = prepare(parsed("(float[n] x) => (y) { a = NonZero(x)  y = Neg(x) }"))
    x = np.float32([1, 0])
    with pytest.raises(onnx_torch.UnsupportedError, match="NonZero"):
        rep.run([x], output_names=["a"])
    assert rep.run([x])[0].tolist() == [-1, 0]


def test_threads_take_turns(cuda) -> None:
    rep, plain = prepare(MLP), prepare(MLP, cuda_graphs=False)
    expected = [plain.run([rows(5, seed)])[0] for seed in range(4)]
    rep.run([rows(5)])
    wrong: list[int] = []

    def work(seed: int) -> None:
        with PretendedCuda():
            for _ in range(20):
                if not np.array_equal(rep.run([rows(5, seed)])[0], expected[seed]):
                    wrong.append(seed)

    threads = [threading.Thread(target=work, args=(seed,)) for seed in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not wrong
    assert_recorded(1)


def test_by_default_the_third_run_of_the_same_sizes_is_recorded(cuda) -> None:
    rep, plain = prepare(MLP, None), prepare(MLP, False)
    for seed, (count, made) in enumerate([(2, 0), (3, 0), (2, 0), (3, 0), (2, 1), (2, 1), (3, 2), (4, 2), (2, 2)]):
        x = rows(count, seed)
        np.testing.assert_array_equal(rep.run([x])[0], plain.run([x])[0])
        assert_recorded(made)


class Slower(PretendedRecording):
    """A recording whose replays take longer than plain runs: each way is timed three times, plain runs first."""

    timed = 0

    def seconds_of(self, work: Any) -> float:
        work()
        Slower.timed += 1
        return 1.0 if Slower.timed <= 3 else 2.0


@pytest.mark.parametrize(("asked", "replayed"), [(None, 0), (True, 5)])
def test_by_default_runs_whose_replay_takes_longer_stay_plain(asked: bool | None, replayed: int, cuda) -> None:
    _C.assume_recordings(Slower, lambda index: False)
    Slower.timed, replays = 0, []
    Slower.replay = lambda self, before, after: (replays.append(1), PretendedRecording.replay(self, before, after))[1]
    rep, plain = prepare(MLP, asked), prepare(MLP, False)
    for seed in range(5):
        x = rows(2, seed)
        np.testing.assert_array_equal(rep.run([x])[0], plain.run([x])[0])
    timed = 4  # a replay that is not timed goes before
    assert Slower.timed == (0 if asked else 6)
    assert len(replays) == (replayed if asked else timed)


def test_the_hosts_numbers_are_filled_in_on_the_device(cuda) -> None:
    """Sizes as a tensor, one of them, and a comparison of two need no copy from the host's memory in a recording."""
    body = "s = Shape(x) n = Size(x) c = Equal(n, n) f = Cast<to = 7>(c) r = ReduceSum(x) k = Cast<to = 7>(r) "
    rep = prepare(parsed(f"(float[n, 4] x) => (y) {{ {body} a = Add(k, s) b = Add(a, n) y = Add(b, f) }}"))
    assert "onnx_torch::filled_numbers" in rep.graph()
    for seed in range(3):
        x = rows(2, seed)
        (y,) = rep.run([x])
        np.testing.assert_array_equal(y, int(x.sum()) + np.array([[2, 4]]) + 8 + 1)
    assert_recorded(1)


BRANCHES = "<then_branch = a () => (b) { b = Neg(x) }, else_branch = d () => (e) { e = Abs(x) }>"


@pytest.mark.parametrize("body", ["y = NonZero(x)", f"n = ReduceMax(x)  c = Cast <to = 9> (n)  y = If(c) {BRANCHES}"])
def test_by_default_a_model_that_has_the_host_wait_runs_as_it_is(body: str, cuda, caplog) -> None:
    rep = prepare(parsed(f"(float[n, 4] x) => (y) {{ {body} }}"), None)
    for _ in range(4):
        rep.run([rows(2)])
    assert_recorded(0)
    assert not caplog.records


class Failing(PretendedRecording):
    def record(self, work: Any) -> None:
        work()
        raise RuntimeError("it is not to be recorded")


def test_by_default_what_cannot_be_recorded_is_warned_of_once_and_runs_as_it_is(cuda, caplog) -> None:
    _C.assume_recordings(Failing, lambda index: False)
    rep, plain = prepare(MLP, None), prepare(MLP, False)
    for seed in range(6):
        x = rows(2 + seed // 4, seed)
        np.testing.assert_array_equal(rep.run([x])[0], plain.run([x])[0])
    assert_recorded(1)
    (warning,) = caplog.records
    assert "runs on cuda:0 go on without CUDA graphs" in warning.getMessage()
    assert "it is not to be recorded" in warning.getMessage()
    with pytest.raises(onnx_torch.RunError, match="it is not to be recorded"):
        prepare(MLP).run([rows(2)])


def test_by_default_a_run_that_fails_fails_as_it_does_without(cuda, caplog) -> None:
    inputs = "float[1, h, 2, 8] q, float[1, g, 2, 8] k"
    rep = prepare(parsed(f"({inputs}) => (y, a, b, c) {{ y, a, b, c = Attention(q, k, k) }}", opset=24), None)
    q, k = np.ones((1, 3, 2, 8), np.float32), np.ones((1, 2, 2, 8), np.float32)
    for _ in range(4):
        with pytest.raises(onnx_torch.RunError, match="must be a multiple"):
            rep.run([q, k])
    for _ in range(4):
        np.testing.assert_allclose(rep.run([k, k])[0], k)
    assert not caplog.records
    assert_recorded(3)  # the failing sizes twice, and the others once


def test_by_default_no_thread_waits_for_another(cuda) -> None:
    rep = prepare(MLP, None)
    for _ in range(3):
        rep.run([rows(5)])
    inside, go_on = threading.Event(), threading.Event()
    replay = PretendedRecording.replay

    def waiting(self: Any, before: Any, after: Any) -> None:
        inside.set()
        assert go_on.wait(60)
        replay(self, before, after)

    results: list[Any] = []

    def work() -> None:
        with PretendedCuda():
            results.extend(rep.run([rows(5)]))

    PretendedRecording.replay = waiting
    try:
        thread = threading.Thread(target=work)
        thread.start()
        assert inside.wait(60)
        (plain,) = rep.run([rows(5)])  # while the other one holds the recording
        go_on.set()
        thread.join()
    finally:
        PretendedRecording.replay = replay
    np.testing.assert_array_equal(plain, results[0])


@pytest.mark.parametrize("cuda_graphs", [None, True])
def test_within_a_recording_of_the_callers_runs_are_plain(cuda_graphs: bool | None, cuda) -> None:
    rep = prepare(MLP, cuda_graphs)
    cuda.is_recorded = True
    expected = [rep.run([rows(2)])[0] for _ in range(4)]
    assert_recorded(0)
    cuda.is_recorded = False
    for _ in range(3):
        np.testing.assert_array_equal(rep.run([rows(2)])[0], expected[0])
    assert_recorded(1)


TOKENIZER = 'mark = 0, mincharnum = 1, pad_value = "#", separators = [" "]'
SPLITS = {
    "Tokenizer": f"y = com.microsoft.Tokenizer<{TOKENIZER}>(x)",
    "StringSplit": 's = Constant<value_strings = [" "]>() e = Constant<value = bool {1}>() '
    "a, y, b = ai.onnx.contrib.StringSplit(x, s, e)",
}


@pytest.mark.parametrize("name", SPLITS)
def test_what_splits_texts_is_refused(name: str, cuda) -> None:
    domains = '"": 21, "com.microsoft": 1, "ai.onnx.contrib": 1'
    text = f"<ir_version: 10, opset_import: [{domains}]> net (string[N] x) => (string y) {{ {SPLITS[name]} }}"
    model = parser.parse_model(text)
    with pytest.raises(onnx_torch.UnsupportedError, match=rf"{name} \(opset 1\): strings"):
        prepare(model)
    rep = prepare(model, None)
    for _ in range(4):
        assert rep.run([np.array(["a b", "c d e"])])[0].ravel().tolist()[:2] == ["a", "b"]
    assert_recorded(0)


def test_the_page_lists_what_waits() -> None:
    page = (pathlib.Path(__file__).parents[2] / "docs/cuda.md").read_text()
    table = re.search(r"^\| the host waits for \|.*\n\|---\|---\|\n((?:\|.*\n)+)", page, re.M)[1]
    listed = {
        (operator, what)
        for what, operators in re.findall(r"^\| (.*?) \| (.*?) \|$", table, re.M)
        for operator in re.findall("`(.*?)`", operators)
    }
    assert listed == set(_C.waits())
