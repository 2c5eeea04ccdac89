"""The time of each node."""

import json
import re
import time

import numpy as np
import pytest
import torch
from onnx import helper

import onnx_torch
from models import model_of, tensor_info

X = np.ones((2, 3), np.float32)


def looping(times=4):
    body = helper.make_graph(
        [helper.make_node("Add", ["c", "x"], ["c2"], name="inner"), helper.make_node("Identity", ["cond"], ["cond2"])],
        "body",
        [tensor_info("i", element=7, shape=[]), tensor_info("cond", element=9, shape=[]), tensor_info("c", element=1)],
        [tensor_info("cond2", element=9, shape=[]), tensor_info("c2", element=1)],
    )
    nodes = [
        helper.make_node("Relu", ["x"], ["r"], name="first"),
        helper.make_node("Loop", ["n", "", "r"], ["y"], name="loop", body=body),
    ]
    count = helper.make_tensor("n", 7, [], [times])
    return model_of(nodes, [tensor_info("x", element=1, shape=["b", 3])], ["y"], initializer=[count])


def sleepy(seconds):
    """Makes a model whose second of three nodes takes a known time at least."""

    def sleep(x: torch.Tensor) -> torch.Tensor:
        time.sleep(seconds)
        return x.clone()

    domain = f"sleep{int(1e3 * seconds)}"
    onnx_torch.register_op(domain, "Sleep", sleep)
    nodes = [
        helper.make_node("Relu", ["x"], ["r"]),
        helper.make_node("Sleep", ["r"], ["s"], name="nap", domain=domain),
        helper.make_node("Neg", ["s"], ["y"]),
    ]
    model = model_of(nodes, [tensor_info("x", element=1, shape=[2, 3])], ["y"])
    model.opset_import.append(helper.make_opsetid(domain, 1))
    return model


def test_each_node_is_counted_and_a_body_belongs_to_its_node():
    found = onnx_torch.prepare(looping(4)).profile([X], runs=3)
    relu, loop, add, identity = found.nodes
    assert (relu.op_type, relu.name, relu.output, relu.calls, relu.around) == ("Relu", "first", "r", 1, None)
    assert (loop.calls, add.calls, identity.calls) == (1, 4, 4)
    assert add.around == identity.around == loop.number
    assert loop.total_seconds == pytest.approx(loop.seconds + add.total_seconds + identity.total_seconds, rel=1e-9)
    assert found.runs == 3 and found.plain_seconds > 0
    assert sum(node.seconds for node in found.nodes) <= found.seconds
    assert len(found.events) == 1 + 1 + 2 * 4


def test_the_time_goes_to_the_node_that_takes_it():
    found = onnx_torch.profile(sleepy(0.1), [X], runs=3, warm_up=1)
    nap = found.nodes[1]
    assert nap.seconds >= 0.1
    assert found.by_operator()[0].op_type == "sleep100.Sleep"
    assert found.seconds >= 0.1 and found.plain_seconds >= 0.1
    head, titles, slowest, *others, outside = str(found).splitlines()
    assert head.startswith(f"a run takes {1e3 * found.seconds:.3f} ms, the mean of 3, and ")
    assert titles.split() == ["ms", "%", "nodes", "operator"]
    assert re.fullmatch(r" +1\d\d\.\d{3}  +\d\d\.\d      1  sleep100\.Sleep", slowest)
    assert outside.endswith(" outside the nodes")
    assert len(others) == len(found.by_operator()) - 1


def test_profiling_changes_no_result_and_leaves_the_graph_alone():
    rep = onnx_torch.prepare(looping())
    before, graph = rep.run([X])[0], rep.graph()
    rep.profile([X], runs=1)
    np.testing.assert_array_equal(rep.run([X])[0], before)
    assert rep.graph() == graph and "begin_node" not in graph


def test_the_trace_nests_as_the_nodes_do(tmp_path):
    onnx_torch.profile(looping(2), [X], runs=1).save_trace(tmp_path / "trace.json")
    events = json.loads((tmp_path / "trace.json").read_text())["traceEvents"]
    assert [e["name"] for e in events] == ["first", "loop", "inner", "cond2", "inner", "cond2"]
    assert all(e["ph"] == "X" for e in events)
    loop = events[1]
    for inner in events[2:]:
        assert loop["ts"] <= inner["ts"] and inner["ts"] + inner["dur"] <= loop["ts"] + loop["dur"] + 1e-3


def test_the_picture_is_html_or_png(tmp_path):
    found = onnx_torch.profile(looping(2), [X], runs=1)
    found.save_picture(tmp_path / "p.html", title="a <model>")
    page = (tmp_path / "p.html").read_text()
    assert "a &lt;model&gt;" in page
    for label in ("Relu ×1", "Loop ×1", "Add ×1", "outside the nodes"):
        assert label in page
    found.save_picture(tmp_path / "short.html", most=1)
    assert "3 others" in (tmp_path / "short.html").read_text()
    pytest.importorskip("matplotlib")
    found.save_picture(tmp_path / "p.png")
    assert (tmp_path / "p.png").read_bytes().startswith(b"\x89PNG")


def test_inputs_of_a_profile_are_random_where_they_are_not_given():
    done = []
    found = onnx_torch.profile(
        looping(1), shapes={"b": 7}, runs=2, warm_up=1, progress=lambda done_, of: done.append((done_, of))
    )
    assert found.runs == 2 and done == [(1, 3), (2, 3), (3, 3)]
    with pytest.raises(onnx_torch.InputError, match="at least one run"):
        onnx_torch.profile(looping(1), runs=0)


def test_a_node_that_fails_while_profiled_is_named():
    nodes = [helper.make_node("Relu", ["x"], ["r"]), helper.make_node("Reshape", ["r", "s"], ["y"], name="wrong")]
    model = model_of(nodes, [tensor_info("x", X), tensor_info("s", np.array([5]))], ["y"])
    with pytest.raises(onnx_torch.RunError, match='Reshape "wrong"'):
        onnx_torch.profile(model, [X, np.array([5])])


def test_the_graph_is_shown_after_each_step():
    graphs = onnx_torch.prepare(looping()).graphs()
    assert list(graphs) == ["translate", "place", *onnx_torch.backend.passes()]
    assert list(graphs.values())[-1] == onnx_torch.prepare(looping()).graph()
    assert '# Relu "first" (opset' in graphs["translate"]
