"""Eight threads prepare and run models at once, in a process that has run none: one model for all, and one for each.

It prints whether Python's lock is on after that, and which threads had other results than one alone has.
"""

import json
import sys
import threading

import numpy as np
import onnx
from onnx import TensorProto, helper

import onnx_torch

RUNS = 50
ELEMENTS = ["FLOAT", "DOUBLE", "FLOAT16", "BFLOAT16", "INT64", "INT32", "UINT8", "INT8"]  # one for each thread


def model(element):
    """Makes rounded products of matrices, of elements of a type."""
    weight = np.random.default_rng(1).random((64, 64), np.float32)
    nodes = [
        helper.make_node("Cast", ["x"], ["of floats"], to=TensorProto.FLOAT),
        helper.make_node("MatMul", ["of floats", "w"], ["product"]),
        helper.make_node("Sqrt", ["product"], ["root"]),
        helper.make_node("Cast", ["root"], ["y"], to=element),
    ]
    infos = [helper.make_tensor_value_info(name, element, [16, 64]) for name in "xy"]
    graph = helper.make_graph(nodes, "threads", infos[:1], infos[1:], [onnx.numpy_helper.from_array(weight, "w")])
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 26)]).SerializeToString()


def fed(number, element):
    values = np.random.default_rng(number).integers(0, 9, (16, 64))
    return values.astype(helper.tensor_dtype_to_np_dtype(element))


elements = [getattr(TensorProto, name) for name in ELEMENTS]
models = [model(element) for element in elements]
shared = onnx_torch.prepare(models[0])
start = threading.Barrier(len(elements))
results = [set() for _ in elements]


def results_of(number, common, own, output):
    (first,) = common.run([fed(number, elements[0])], output=output)
    (second,) = own.run([fed(number, elements[number])])
    return np.asarray(first).tobytes(), second.tobytes()


def work(number):
    start.wait()
    own = onnx_torch.prepare(models[number])
    for _ in range(RUNS):
        results[number].add(results_of(number, shared, own, "torch" if number % 2 else None))


threads = [threading.Thread(target=work, args=(number,)) for number in range(len(elements))]
for thread in threads:
    thread.start()
for thread in threads:
    thread.join()

alone = onnx_torch.prepare(models[0])
wrong = [
    name
    for number, name in enumerate(ELEMENTS)
    if results[number] != {results_of(number, alone, onnx_torch.prepare(models[number]), None)}
]
locked = getattr(sys, "_is_gil_enabled", lambda: True)()
json.dump({"wrong": wrong, "locked": locked}, sys.stdout)
