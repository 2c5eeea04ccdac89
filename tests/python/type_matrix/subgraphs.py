"""Templates of operators with subgraphs, and of Gradient, which has a graph before it."""

from __future__ import annotations

from typing import Any

import numpy as np
import onnx
from onnx import GraphProto, helper

from .template import Template, Types
from .values import element, element_number, type_proto

X = np.array([[1, 2, 3], [4, 5, 6]], np.float32)
TRIPS, GO = np.array(3), np.array(True)


def graph(nodes: list[onnx.NodeProto], inputs: dict[str, str], outputs: dict[str, str]) -> GraphProto:
    info = lambda item: helper.make_value_info(item[0], type_proto(item[1]))
    return helper.make_graph(nodes, "body", list(map(info, inputs.items())), list(map(info, outputs.items())))


def passing(pairs: dict[str, tuple[str, str]], types: Types, version: int) -> tuple[list, dict[str, str]]:
    """Makes nodes and outputs that pass values on: target ← (source, type); by their names where no Identity is."""
    identity = onnx.defs.get_schema("Identity", version, "")
    known = set(identity.type_constraints[0].allowed_type_strs)
    nodes, outputs = [], {}
    for target, (source, type_str) in pairs.items():
        if type_str in known:
            nodes.append(helper.make_node("Identity", [source], [target]))
            outputs[target] = type_str
        else:
            outputs[source] = type_str
    return nodes, outputs


def branch(types: Types, version: int) -> GraphProto:
    nodes, outputs = passing({"b": ("outer", types["V"])}, types, version)
    return graph(nodes, {}, outputs)


def loop_body(types: Types, version: int) -> GraphProto:
    pairs = {"go_out": ("go_in", "tensor(bool)"), "v_out": ("v_in", types["V"])}
    nodes, outputs = passing(pairs, types, version)
    return graph(nodes, {"i": "tensor(int64)", "go_in": "tensor(bool)", "v_in": types["V"]}, outputs)


def scan_body(types: Types, version: int) -> GraphProto:
    nodes, outputs = passing({"s_out": ("x_in", types["V"]), "y_out": ("s_in", types["V"])}, types, version)
    return graph(nodes, {"s_in": types["V"], "x_in": types["V"]}, outputs)


def map_body(types: Types, version: int) -> GraphProto:
    item = f"tensor({element(types['S'])})"
    extra = types["V"][4:-1] if types["V"].startswith("seq") else types["V"]
    nodes, outputs = passing({"out": ("one", item)}, types, version)
    return graph(nodes, {"one": item, "more": extra}, outputs)


def gradient_nodes(types: Types, version: int) -> list[onnx.NodeProto]:
    """Makes y = a² · size(z): differentiable in a, whatever type z has."""
    return [
        helper.make_node("Size", ["x1"], ["size"]),
        helper.make_node("Cast", ["size"], ["factor"], to=element_number(element(types["T2"]))),
        helper.make_node("Mul", ["x0", "x0"], ["square"]),
        helper.make_node("Mul", ["square", "factor"], ["y"]),
    ]


def gradient(case: Any) -> list[Any]:
    a, z = case.inputs
    return [2 * a.astype(np.float64) * np.asarray(z).size]


SUBGRAPH_ROWS = [
    ("If", 1, 99, Template([GO], {"then_branch": branch, "else_branch": branch}, captured={"outer": (X, "V")})),
    ("Loop", 1, 99, Template([TRIPS, GO, X], {"body": loop_body})),
    (
        "Scan",
        8,
        8,
        Template(
            [np.array([3, 2]), X, np.stack([X, X, X], 1)], {"body": scan_body, "num_scan_inputs": 1}, ["y0", "y1"]
        ),
    ),
    ("Scan", 9, 99, Template([X[0], X], {"body": scan_body, "num_scan_inputs": 1}, ["y0", "y1"])),
    ("SequenceMap", 1, 99, Template([[X, X], X], {"body": map_body})),
    (
        "Gradient",
        1,
        99,
        Template(
            [X, X], {"xs": ["x0"], "zs": ["x1"], "y": "y"}, params=["T2", "T1"], before=gradient_nodes, meaning=gradient
        ),
    ),
]
