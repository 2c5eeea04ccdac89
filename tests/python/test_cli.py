"""The command line."""

import os
import pty
import re
import shutil
import subprocess
import sys
from pathlib import Path

import ml_dtypes
import numpy as np
import onnx
import pytest
import torch
from onnx import TensorProto, helper, numpy_helper
from typer.testing import CliRunner

import onnx_torch
import onnx_torch_cli
from models import model_of, tensor_info

X = np.array([[-1.0, 0.5, 2.0]], np.float32)


def net(broken=False):
    """Makes a Relu, then a product with a weight; broken, it has two problems."""
    nodes = [
        helper.make_node("Relu", ["x"], ["r"], name="first"),
        helper.make_node("MatMul", ["r", "w"], ["y"], name="product"),
    ]
    if broken:
        nodes[0].op_type = "Frob"
        nodes[1].input[1] = "nowhere"
    weight = numpy_helper.from_array(np.eye(3, dtype=np.float32), "w")
    inputs = [tensor_info("x", element=TensorProto.FLOAT, shape=["batch", 3])]
    model = model_of(nodes, inputs, [tensor_info("y", element=TensorProto.FLOAT)], opset=21, initializer=[weight])
    model.ir_version = 10  # onnxruntime knows no newer one
    return model


@pytest.fixture
def folder(tmp_path, monkeypatch):
    """Makes a folder with a model, and an input for it."""
    onnx.save(net(), tmp_path / "net.onnx")
    np.save(tmp_path / "x.npy", X)
    monkeypatch.chdir(tmp_path)
    return tmp_path


def call(*arguments, monkeypatch, capfd):
    """Runs the command, and gives the exit code, and what is printed to stdout and stderr."""
    monkeypatch.setattr(sys, "argv", ["onnx-torch", *map(str, arguments)])
    try:
        code = onnx_torch_cli.main()
    except SystemExit as end:
        code = end.code
    out, err = capfd.readouterr()
    return code or 0, out, err


@pytest.fixture
def cli(folder, monkeypatch, capfd):
    return lambda *arguments: call(*arguments, monkeypatch=monkeypatch, capfd=capfd)


# --- Help and mistakes ------------------------------------------------------------------------------------------------


def test_help_imports_nothing_heavy():
    script = """
import sys
for name in ("torch", "onnx", "numpy", "onnx_torch", "onnxruntime"):
    sys.modules[name] = None  # to import it is an error
import onnx_torch_cli
from typer.testing import CliRunner
for arguments in ([], *([name] for name in onnx_torch_cli.COMMANDS)):
    result = CliRunner().invoke(onnx_torch_cli.app(), [*arguments, "--help"])
    assert result.exit_code == 0 and "--help" in result.output, (arguments, result)
"""
    subprocess.run([sys.executable, "-c", script], check=True)


def test_the_module_is_the_program(cli):
    done = subprocess.run([sys.executable, "-m", "onnx_torch_cli", "run", "--help"], capture_output=True, text=True)
    assert done.returncode == 0 and "onnx-torch run [OPTIONS]" in done.stdout
    assert cli("--version") == (0, f"onnx_torch {onnx_torch.__version__}\n", "")


@pytest.mark.parametrize(
    "arguments, said",
    [
        (["run", "nowhere.onnx"], "'nowhere.onnx' does not exist"),
        (["run", "x.npy"], "x.npy is not an ONNX model"),
        (["run", "net.onnx", "--device", "CUDA:99"], "CUDA:99 is not there"),
        (["run", "net.onnx", "--shape", "batch=two"], "is not NAME=SIZE"),
        (["run", "net.onnx", "--shape", "rows=2"], 'no dimension "rows"; there are batch'),
        (["run", "net.onnx", "--shape", "z=2x3"], 'no input "z"'),
        (["run", "net.onnx", "--threads", "-1"], "-1 is not in the range x>=0"),
        (["run", "net.onnx", "--limit", "seconds"], "is not NAME=MOST"),
        (["run", "net.onnx", "--limit", "time=1"], 'no limit "time"'),
        (["run", "net.onnx", "--limit", "memory=8"], "the option limits allows it 8"),
        (["run", "net.onnx", "--input", "x.npy"], "is not NAME=FILE"),
        (["run", "net.onnx", "--input", "z=x.npy"], 'no input "z"; its inputs are x'),
        (["run", "net.onnx", "--input", "x=nowhere.npy"], "nowhere.npy"),
        (["run", "net.onnx", "--input", "x=net.onnx"], "net.onnx"),
        (["run", "net.onnx", "--output", "nope"], 'no value "nope"'),
        (["run", "broken.onnx"], "Frob"),
        (["info", "broken.onnx", "extra"], "extra"),
        (["compare", "net.onnx", "--engine", "tvm"], 'no engine "tvm"'),
        (["compare", "net.onnx", "--engine", "onnx_torch@CUDA:99"], "CUDA:99 is not there"),
        (["compare", "net.onnx", "--limit", "memory=8"], "the option limits allows it 8"),
        (["profile", "net.onnx", "--limit", "memory=8"], "the option limits allows it 8"),
        (["profile", "net.onnx", "--limit", "nodes=1"], "more nodes than the 1 that the option limits allows"),
        (["bench", "net.onnx", "--limit", "memory=8"], "the option limits allows it 8"),
        (["check", "net.onnx", "--limit", "time=1"], 'no limit "time"'),
        (["profile", "net.onnx", "--links", "maybe"], 'links must be "follow" or "refuse"'),
        (["profile", "net.onnx", "--trace", "nowhere/t.json"], "nowhere/t.json: No such file"),
        (
            ["show", "net.onnx", "--pass", "fuse"],
            'no step "fuse"; there are translate, place, fold, gather, kernels, blocks, recurrent_steps, quantized',
        ),
        (["extract", "net.onnx", "p.onnx", "--outputs", "nope"], 'no value "nope"'),
        (["bench", "net.onnx", "--engine", "tvm"], 'no engine "tvm"'),
        (["coverage", "--format", "pdf"], "pdf"),
        (["selftest", "--device", "CUDA:99"], "CUDA:99 is not there"),
        (["frobnicate"], "frobnicate"),
    ],
)
def test_a_mistake_is_a_message(cli, folder, arguments, said):
    onnx.save(net(broken=True), folder / "broken.onnx")
    code, _, err = cli(*arguments)
    assert code == 2 and "Traceback" not in err
    assert said in re.sub(r"[\s│]+", " ", err)


def test_our_own_mistakes_keep_their_trace(cli, monkeypatch):
    monkeypatch.setattr(onnx_torch, "info", lambda model: 1 / 0)
    with pytest.raises(ZeroDivisionError):
        cli("info", "net.onnx")


def test_a_reader_that_goes_away_is_no_error(folder):
    command = f"{sys.executable} -m onnx_torch_cli coverage --format html | head -1"
    done = subprocess.run(["bash", "-c", command], capture_output=True, text=True)
    assert done.stdout.startswith("<!doctype html>") and done.stderr == ""


# --- Commands ---------------------------------------------------------------------------------------------------------


def test_run_makes_up_inputs_and_says_so(cli):
    code, out, err = cli("run", "net.onnx", "--seed", 3)
    assert code == 0 and err == ""
    assert "x (random, seed 3, batch=1): float32 [1, 3]" in out and "y: float32 [1, 3]" in out and "on CPU" in out
    assert cli("run", "net.onnx", "--seed", 3)[1].splitlines()[:4] == out.splitlines()[:4]
    assert "y: float32 [4, 3]" in cli("run", "net.onnx", "--shape", "batch=4", "--threads", 1)[1]
    assert "x (random, seed 0, batch=5): float32 [5, 3]" in cli("run", "net.onnx", "--shape", "x=5x3")[1]


def test_run_takes_inputs_and_saves_outputs(cli, folder):
    code, out, _ = cli("run", "net.onnx", "--input", "x=x.npy", "--output", "y", "--output", "r", "--save", "out/here")
    assert code == 0 and "x (given): float32 [1, 3]  -1.0, 0.5, 2.0" in out
    for name in "yr":
        np.testing.assert_array_equal(np.load(folder / f"out/here/{name}.npy"), np.maximum(X, 0))
    (folder / "x.pb").write_bytes(numpy_helper.from_array(X).SerializeToString())
    assert "x (given): float32 [1, 3]  -1.0, 0.5, 2.0" in cli("run", "net.onnx", "--input", "x=x.pb")[1]


def test_run_saves_what_numpy_has_no_type_for(cli, folder):
    nodes = [
        helper.make_node("Cast", ["x"], ["b"], to=TensorProto.BFLOAT16),
        helper.make_node("Cast", ["x"], ["s"], to=TensorProto.STRING),
        helper.make_node("SequenceConstruct", ["x", "x"], ["q/1"]),
    ]
    onnx.save(model_of(nodes, [tensor_info("x", X)], ["b", "s", "q/1"]), folder / "m.onnx")
    assert cli("run", "m.onnx", "--input", "x=x.npy", "--save", "out")[0] == 0
    assert sorted(p.name for p in (folder / "out").iterdir()) == ["b.pb", "q_1_0.npy", "q_1_1.npy", "s.pb"]
    saved = numpy_helper.to_array(onnx.load_tensor(folder / "out/b.pb"))
    assert saved.dtype == ml_dtypes.bfloat16 and saved.tolist() == X.tolist()


def test_info(cli, folder):
    onnx.save(net(broken=True), folder / "broken.onnx")
    code, out, _ = cli("info", "net.onnx")
    assert code == 0
    for line in ("x: float [batch, 3]", "9 in 36 bytes", "1 MatMul", "All its operators are supported", "ai.onnx 21"):
        assert line in out
    assert "Operators (2 nodes of ai.onnx)" in out
    assert 'Frob "first" (opset 21): no such operator' in cli("info", "broken.onnx")[1]


def test_info_of_types_parameters_and_files(tmp_path):
    weights = [
        helper.make_tensor("packed", TensorProto.UINT4, [5], [1] * 5),
        helper.make_tensor("text", TensorProto.STRING, [2], ["ab", "cde"]),
        numpy_helper.from_array(np.zeros((2, 3), np.float16), "outside"),
    ]
    sequence = helper.make_tensor_sequence_value_info("q", TensorProto.FLOAT, ["n", None])
    optional = helper.make_optional_type_proto(sequence.type)
    inputs = [
        sequence,
        helper.make_value_info("o", optional),
        tensor_info("packed", element=TensorProto.UINT4, shape=[5]),
    ]
    constant = helper.make_node("Constant", [], ["c"], value=numpy_helper.from_array(np.zeros(4, np.int8)))
    nodes = [helper.make_node("Identity", ["q"], ["y"]), constant]
    onnx.save(
        model_of(nodes, inputs, ["y"], initializer=weights),
        tmp_path / "m.onnx",
        save_as_external_data=True,
        location="w.bin",
        size_threshold=0,
    )
    found = onnx_torch.info(tmp_path / "m.onnx")
    assert [v.type for v in found.inputs] == [
        "sequence of float [n, ?]",
        "optional sequence of float [n, ?]",
        "uint4 [5]",
    ]
    assert [v.has_default for v in found.inputs] == [False, False, True]
    assert (found.parameters, found.parameter_bytes) == (5 + 2 + 6 + 4, 3 + 5 + 12 + 4)
    assert found.external_files == ("w.bin",) and found.outputs[0].type == ""


OPTIMIZED = """
    <ir_version: 10, opset_import: ["": 21, "com.microsoft": 1, "mine": 1]>
    net (float[2] x, bool c) => (float[2] y) {
        g = com.microsoft.QuickGelu(x)
        y = If (c) <
            then_branch = one () => (float[2] a) { a = com.microsoft.BiasGelu(g, x) },
            else_branch = other () => (float[2] b) { t = mine.twice(g)  b = Neg(t) }>
    }
    <domain: "mine", opset_import: ["": 21]> twice (v) => (w) { w = Add(v, v) }
"""


@pytest.mark.parametrize("command", ["info", "check"])
def test_nodes_are_counted_by_their_domains(cli, folder, command):
    onnx.save(onnx.parser.parse_model(OPTIMIZED), folder / "m.onnx")
    code, out, _ = cli(command, "m.onnx")
    assert (code, "3 nodes of ai.onnx, 2 of com.microsoft, 1 of mine" in out) == (0, True), out
    assert onnx_torch.info("m.onnx").domains == {"ai.onnx": 3, "com.microsoft": 2, "mine": 1}
    onnx.save(model_of([], [tensor_info("x", X)], ["x"]), folder / "none.onnx")
    assert "no nodes" in cli(command, "none.onnx")[1]


def test_check_lists_all_problems(cli, folder):
    assert cli("check", "net.onnx") == (0, "net.onnx: 2 nodes of ai.onnx\nnet.onnx: no problem found\n", "")
    onnx.save(net(broken=True), folder / "broken.onnx")
    code, out, _ = cli("check", "broken.onnx")
    assert code == 1
    assert 'not supported: Frob "first" (opset 21): no such operator' in out
    assert 'invalid: MatMul "product" (opset 21): nothing defines its input "nowhere"' in out
    assert "broken.onnx: 2 problems" in out


def test_check_finds_what_only_shows_later(tmp_path):
    onnx.save(net(), tmp_path / "m.onnx", save_as_external_data=True, location="w.bin", size_threshold=0)
    (tmp_path / "w.bin").write_bytes(b"short")
    assert "too short" in str(onnx_torch.check(tmp_path / "m.onnx")[0])
    (tmp_path / "w.bin").unlink()
    assert "no file" in str(onnx_torch.check(tmp_path / "m.onnx")[0])
    body = helper.make_graph([helper.make_node("Add", ["r", "gone"], ["t"])], "then", [], [tensor_info("t", element=1)])
    odd = model_of(
        [
            helper.make_node("Relu", ["x"], ["r"]),
            helper.make_node("If", ["c"], ["z"], then_branch=body, else_branch=body),
            helper.make_node("Cast", ["z"], ["y"], to=99),
        ],
        [tensor_info("x", X), tensor_info("c", np.array(True))],
        ["y", "also gone"],
    )
    said = [str(problem) for problem in onnx_torch.check(odd)]
    assert sum('nothing defines its input "gone"' in text for text in said) == 2
    assert 'nothing defines the output "also gone"' in said
    assert [str(p) for p in onnx_torch.check(onnx.ModelProto())] == ["the model holds no graph"]


CAST, CONV = ("Cast", "unknown element type 99"), ("Conv", 'no auto_pad "WEST"')
BAD_CAST, BAD_CONV = "Cast <to = 99>", 'Conv <auto_pad = "WEST">'


@pytest.mark.parametrize(
    ("body", "expected"),
    [
        (f"y = {BAD_CAST} (x)", [CAST]),
        # Behind a node that fails, others fail by themselves, or may well have worked.
        (f"a = {BAD_CONV} (x, x) b = Relu (a) y = {BAD_CAST} (b)", [CONV, CAST]),
        (f"a = {BAD_CONV} (x, x) b = {BAD_CONV} (a, a) y = MaxPool <kernel_shape = [2]> (b)", [CONV, CONV]),
        (f'a = {BAD_CAST} (x) y = ai.onnx.ml.LabelEncoder <keys_strings = ["a"], values_int64s = [1]> (a)', [CAST]),
        # Other nodes fail beside it, in a body, and behind that.
        (f'a = {BAD_CAST} (x) b = SequenceConstruct (a) y = LSTM <direction = "up"> (x, x, x)', [CAST, ("LSTM", "up")]),
        (
            f"""a = If (c) <then_branch = t () => (p) {{ p = {BAD_CONV} (x, x) }},
                        else_branch = e () => (float[n] p) {{ p = Relu (x) }}>
            b = Add (a, x) y = {BAD_CAST} (b)""",
            [CONV, CAST],
        ),
    ],
)
def test_check_goes_on_behind_a_node_that_fails(body, expected):
    text = f"""<ir_version: 10, opset_import: ["": 21, "ai.onnx.ml": 4]>
        net (float[2, 3] x, bool c) => (y) {{ {body} }}"""
    found = onnx_torch.check(onnx.parser.parse_model(text))
    assert [problem.op_type for problem in found] == [op_type for op_type, _ in expected]
    for problem, (_, why) in zip(found, expected, strict=True):
        assert why in problem.why and not problem.unsupported


def test_check_tells_of_a_function_once():
    text = """<ir_version: 10, opset_import: ["": 21, "my": 1]>
        net (float[2] x) => (z) { y = my.bad (x) z = my.bad (y) }
        <domain: "my", opset_import: ["": 21]> bad (a) => (b) { b = Cast <to = 99> (a) }"""
    assert [str(problem) for problem in onnx_torch.check(onnx.parser.parse_model(text))] == [
        "Cast (opset 21): unknown element type 99"
    ]


def test_convert(cli, folder):
    script = (
        "import sys, torch; print(torch.jit.load('net.pt')(torch.ones(2, 3)).tolist(), 'onnx_torch' in sys.modules)"
    )
    code, out, _ = cli("convert", "net.onnx", "net.pt")
    assert code == 0 and "net.pt: forward(x) gives y\n1 parameters" in out and "called" not in out
    done = subprocess.run([sys.executable, "-W", "ignore", "-c", script], capture_output=True, text=True)
    assert done.stdout == "[[1.0, 1.0, 1.0], [1.0, 1.0, 1.0]] False\n"
    model = net()
    model.graph.initializer[0].name = model.graph.node[1].input[1] = "class"
    model.graph.node[0].op_type, model.graph.node[0].domain = "Frob", ""
    onnx.save(model, folder / "broken.onnx")
    assert cli("convert", "broken.onnx", "b.pt")[0] == 2 and not (folder / "b.pt").exists()
    model.graph.node[0].op_type = "Relu"
    onnx.save(model, folder / "named.onnx")
    assert "class is called class_" in cli("convert", "named.onnx", "n.pt")[1]


def test_convert_with_a_fixed_dimension(cli, folder):
    assert cli("convert", "net.onnx", "net.pt", "--shape", "batch=2")[0] == 0
    with pytest.raises(torch.jit.Error, match=r"must be of shape \[2, 3\]"):
        torch.jit.load("net.pt")(torch.ones(1, 3))
    assert cli("convert", "net.onnx", "whole.pt", "--shape", "x=2x3")[0] == 0
    with pytest.raises(torch.jit.Error, match=r"must be of shape \[2, 3\]"):
        torch.jit.load("whole.pt")(torch.ones(1, 3))
    assert "has the size 3, not 4" in cli("convert", "net.onnx", "net.pt", "--shape", "x=2x4")[2]


def test_convert_says_which_library_must_be_loaded(cli, folder):
    nodes = [helper.make_node("Unique", ["x"], ["y"], sorted=0)]
    onnx.save(model_of(nodes, [tensor_info("x", X)], ["y"]), folder / "m.onnx")
    code, _, err = cli("convert", "m.onnx", "m.pt")
    assert code == 2 and "custom_operators=True" in err
    code, out, _ = cli("convert", "m.onnx", "m.pt", "--custom-operators")
    assert code == 0 and "libonnx_torch_kernels.so first, for onnx_torch::" in out


def test_compare(cli):
    assert cli("compare", "net.onnx") == (0, "onnx_torch and reference agree on 2 values\n", "")
    code, out, _ = cli(
        "compare", "net.onnx", "--engine", "unoptimised", "--engine", "onnx_torch@cpu", "--shape", "batch=2"
    )
    assert (code, out) == (0, "unoptimised and onnx_torch@cpu agree on 2 values\n")


def test_compare_names_the_node_that_differs(cli, monkeypatch):
    class Wrong(onnx_torch.comparison.NodeByNode):
        def values(self, feeds, names):
            return {name: value + (name == "y") for name, value in super().values(feeds, names).items()}

    monkeypatch.setattr("onnx_torch.comparison.NodeByNode", Wrong)
    code, out, _ = cli("compare", "net.onnx", "--engine", "unoptimised", "--input", "x=x.npy")
    assert code == 1
    assert 'differ first in node 1, MatMul "product", in its output "y"' in out and "by up to 1 " in out


def test_profile(cli, folder):
    arguments = ["--runs", 2, "--trace", "t.json", "--picture", "p.html"]
    code, out, err = cli("profile", "net.onnx", *arguments)
    assert code == 0 and err == "" and "\x1b" not in out  # no progress bar, and no colours
    assert re.search(r"^ +0 +Relu +first +r +1 +\d", out, re.M) and "outside the nodes" in out
    assert (folder / "t.json").stat().st_size and "net.onnx: time by operator" in (folder / "p.html").read_text()
    code, out, _ = cli("profile", "net.onnx", "--by", "operator", "--top", 1, "--runs", 1)
    assert code == 0 and "and 1 more" in out


def test_show(cli):
    code, out, _ = cli("show", "net.onnx", "--no-optimize")
    assert code == 0
    assert [line.split("│")[0].strip() for line in out.splitlines()[:2]] == ["input x", "weight w"]
    relu, matmul = (line for line in out.splitlines() if "aten::" in line)
    assert relu.startswith('0 Relu "first" → r') and relu.endswith("= aten::relu(%0)")
    assert matmul.startswith('1 MatMul "product" → y') and "aten::matmul" in matmul
    code, out, _ = cli("show", "net.onnx", "--pass", "translate")
    assert "r = Relu (x)" in out and "aten::relu" in out


def test_show_placement(cli):
    code, out, _ = cli("show", "net.onnx", "--placement", "--no-optimize")
    assert code == 0
    assert [line.split() for line in out.splitlines()] == [["CPU", "Relu", "→", "r"], ["CPU", "MatMul", "→", "y"]]


def test_show_marks_what_a_step_changed(cli, folder):
    nodes = [helper.make_node("RandomNormal", [], ["y"], shape=[2])]
    onnx.save(model_of(nodes, [], ["y"]), folder / "random.onnx")
    out = cli("show", "random.onnx", "--pass", list(onnx_torch.backend.passes())[-1])[1]
    marks = {line.split("│ ")[1][0] for line in out.splitlines()}
    assert marks <= {" ", "-", "+"}
    plain = cli("show", "random.onnx")[1]
    kept = [re.sub("│ [ +] ", "│ ", line) for line in out.splitlines() if "│ -" not in line]
    assert kept == plain.splitlines()


def test_extract(cli, folder):
    code, out, _ = cli("extract", "net.onnx", "part.onnx", "--inputs", "r")
    assert (code, out) == (0, "part.onnx: 1 nodes, from r to y\n")
    found = onnx_torch.prepare(folder / "part.onnx").run([X])[0]
    np.testing.assert_array_equal(found, X)


def test_optimize(cli, folder):
    model = net()
    model.graph.node[1].input[0] = "same"
    model.graph.node.insert(1, helper.make_node("Identity", ["r"], ["same"]))
    onnx.save(model, "net.onnx")
    code, out, _ = cli("optimize", "net.onnx", "less.onnx", "--level", "basic")
    assert (code, out) == (0, "less.onnx: 2 nodes, of 3\n")
    np.testing.assert_array_equal(onnx_torch.prepare(folder / "less.onnx").run([X])[0], np.maximum(X, 0))
    assert cli("optimize", "net.onnx", "less.onnx", "--level", "most")[0] == 2


def test_bench(cli):
    code, out, err = cli("bench", "net.onnx", "--rounds", 2, "--runs", 3, "--shape", "batch=2", "--threads", 1)
    assert code == 0 and err == ""
    assert re.search(r"^onnx_torch +\d+\.\d{3} +\d", out, re.M) and "onnxruntime" in out
    assert re.search(r"onnx_torch takes \d+\.\d\d times as long as onnxruntime \(", out)


def test_bench_takes_turns_and_compares_rounds():
    done = []
    found = onnx_torch.bench(
        net(), [X], ["onnx_torch", "reference"], rounds=2, runs=3, progress=lambda one, of: done.append((one, of))
    )
    assert [len(r) for latency in found.latencies for r in latency.rounds] == [3, 3, 3, 3]
    assert done == [(1, 4), (2, 4), (3, 4), (4, 4)]
    ours, theirs = found.latencies
    assert ours.fastest <= ours.median <= ours.percentile(100) == max(ours.seconds)
    by_round = sorted(np.median(a) / np.median(b) for a, b in zip(ours.rounds, theirs.rounds, strict=True))
    ratio = found.ratios()[0]
    np.testing.assert_allclose([ratio.least, ratio.median, ratio.most], [by_round[0], np.mean(by_round), by_round[1]])


def test_progress_shows_on_a_terminal_only(folder):
    command = [sys.executable, "-m", "onnx_torch_cli", "profile", "net.onnx", "--runs", "2"]
    terminal, side = pty.openpty()
    with subprocess.Popen(
        command, stdout=subprocess.DEVNULL, stderr=side, env={**os.environ, "TERM": "xterm"}
    ) as shown:
        os.close(side)
        seen = b""
        with open(terminal, "rb", buffering=0) as reader:
            while True:
                try:
                    part = reader.read(4096)
                except OSError:  # the other side is closed
                    break
                if not part:
                    break
                seen += part
    assert shown.returncode == 0 and b"Profiling" in seen


# --- Coverage ---------------------------------------------------------------------------------------------------------


def test_coverage_lists_every_operator(cli, folder):
    names = {schema.name for schema in onnx.defs.get_all_schemas_with_history()}
    text = cli("coverage")[1]
    assert {line.split()[0].rpartition(".")[2] for line in text.splitlines()[2:]} == names
    markdown = cli("coverage", "--format", "markdown")[1]
    assert "| Relu | 1, 6, 13, 14 |" in markdown and "| ai.onnx.ml.Scaler | 1 |" in markdown
    assert cli("coverage", "--format", "html", "--output", "c.html")[0] == 0
    page = (folder / "c.html").read_text()
    assert all(f">{name}</a>" in page for name in names)


def test_coverage_says_what_is_not_supported(cli, monkeypatch):
    odd = [("", "Relu", 1, True, ""), ("", "Relu", 6, False, "function body"), ("<b>", "Neg", 1, False, "table")]
    monkeypatch.setattr(onnx_torch._C, "operator_versions", lambda: odd)
    text = cli("coverage")[1]
    assert text.startswith("2 of 3 versions of 2 operators can be run")
    assert "1 (deprecated) (not supported), 6 (function body)" in text
    assert "<td>&lt;b&gt;</td>" in cli("coverage", "--format", "html")[1]


def browser():
    names = ("chromium", "chromium-browser", "google-chrome", "chrome")
    return next(filter(None, map(shutil.which, names)), None)


@pytest.mark.skipif(not browser(), reason="no Chromium is installed; CI installs Debian's where it can")
def test_the_page_can_be_searched(tmp_path):
    page = onnx_torch.operator_coverage.coverage_html()
    typed = """<script>
      search.value = "lstm AI.ONNX 22";
      search.dispatchEvent(new Event("input"));
    </script>"""
    assert operators_shown(tmp_path, page) == (len(re.findall("<tr><td>", page)),) * 2
    assert operators_shown(tmp_path, page, "#lstm") == (1, ["LSTM"])
    assert operators_shown(tmp_path, page, "#no%20such%20operator") == (0, [])
    assert operators_shown(tmp_path, page.replace("</html>", typed)) == (1, ["LSTM"])


def operators_shown(folder: Path, page: str, address=""):
    """Tells how many operators a browser says that it shows, and their names, or their number, where they are many."""
    (folder / "page.html").write_text(page)
    command = [browser(), "--headless", "--no-sandbox", "--disable-gpu", f"--user-data-dir={folder}/profile"]
    command += ["--dump-dom", f"file://{folder}/page.html{address}"]
    dom = subprocess.run(command, capture_output=True, text=True, timeout=60).stdout
    names = re.findall(r'<tr><td><a href="[^"]*">(\w+)</a>', dom)  # a row that is not shown is <tr hidden="">
    count = int(re.search(r'id="count">(\d+) of', dom)[1])
    return count, names if len(names) < 10 else len(names)


# --- The page about it ------------------------------------------------------------------------------------------------


def test_the_documentation_names_every_command_and_option():
    page = (Path(__file__).parents[2] / "docs" / "command_line.md").read_text()
    for name in onnx_torch_cli.COMMANDS:
        help_text = CliRunner().invoke(onnx_torch_cli.app(), [name, "--help"], env={"COLUMNS": "200"}).output
        section = re.search(rf"^## {name}\n(.*?)(?=^## |\Z)", page, re.M | re.S)
        assert section, name
        shared = {
            "--help",
            "--device",
            "--threads",
            "--shape",
            "--limit",
            "--input",
            "--seed",
            "--optimize",
            "--no-optimize",
            "--disable-pass",
            "--precision",
            "--tf32",
            "--cuda-graphs",
            "--allow-aten",
            "--links",
            "--map-external",
        }
        for option in set(re.findall(r"^│ +(--[a-z0-9-]+)", help_text, re.M)) - shared:
            assert f"`{option}" in section[1], (name, option)
    show = re.search(r"^## show\n(.*?)(?=^## )", page, re.M | re.S)[1]
    for step in onnx_torch.prepare(net()).graphs().keys() - set(onnx_torch.backend.passes("CPU")):
        assert f"`{step}`" in show, step
    example = re.search(r"^```\n(.*?)^```", show, re.M | re.S)[1]
    assert [line.rstrip() for line in example.splitlines()] == onnx_torch.show(net(), optimize=False).splitlines()


def test_run_in_a_sandbox(folder, monkeypatch, capfd):
    code, out, err = call("run", "net.onnx", "--input", "x=x.npy", "--sandbox", monkeypatch=monkeypatch, capfd=capfd)
    assert code == 0, err
    assert "limits of resources" in out
    assert "y: float32 [1, 3]" in out
    code, _, err = call("run", "net.onnx", "--sandbox", "--tf32", monkeypatch=monkeypatch, capfd=capfd)
    assert code == 2
    assert "a sandbox has no GPU" in " ".join(err.split())
