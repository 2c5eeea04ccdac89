"""The program for the interpreter of an environment that the wheel is installed in: it uses each bundled library once,
and prints, as JSON, what came of it and which shared libraries the process has loaded.
"""

import io
import json
import sys

import numpy as np
import onnx
from onnx import TensorProto, helper
from PIL import Image

import onnx_torch


def run(op_type, inputs, element, opset=26, **attributes):
    """Gives the only output of a model of one node."""
    names = [f"x{i}" for i in range(len(inputs))]
    node = helper.make_node(op_type, names, ["y"], **attributes)
    infos = [helper.make_tensor_value_info(name, element, None) for name in names]
    graph = helper.make_graph([node], "smoke", infos, [onnx.ValueInfoProto(name="y")])
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", opset)])
    return onnx_torch.prepare(model.SerializeToString()).run(inputs)[0]  # bytes: protobuf-lite parses them


def decoded(form):
    """Decodes a picture of one colour that Pillow has written in a format, and gives its mean."""
    file = io.BytesIO()
    Image.new("RGB", (16, 16), (200, 100, 50)).save(file, form)
    stream = np.frombuffer(file.getvalue(), np.uint8)
    return run("ImageDecoder", [stream], TensorProto.UINT8, pixel_format="RGB").mean((0, 1)).tolist()


def loaded():
    with open("/proc/self/maps") as maps:
        return sorted({line.split()[-1] for line in maps if ".so" in line})


texts = np.array(["àω", "42"], object)
matrices = np.random.default_rng(0).random((2, 256, 256), np.float32)
product = run("MatMul", list(matrices), TensorProto.FLOAT)  # large enough for several threads
try:
    onnx_torch.prepare(b"not a model")
    error = ""
except onnx_torch.InvalidModelError as invalid:
    error = str(invalid)
without_torch = "torch" not in sys.modules
results = {
    "file": onnx_torch.__file__,
    "version": onnx_torch.__version__,
    "matmul": float(np.abs(product - matrices[0] @ matrices[1]).max()),
    "re2": run("RegexFullMatch", [texts], TensorProto.STRING, pattern=r"\d+").tolist(),
    "utf8proc": run("StringNormalizer", [texts], TensorProto.STRING, case_change_action="UPPER").tolist(),
    "images": {form: decoded(form) for form in ["JPEG", "PNG", "WEBP", "TIFF", "JPEG2000"]},
    "error": error,
    "without_torch": without_torch,
}
import torch  # noqa: E402  # what takes it is in a module of its own

results["tensor"] = run("Neg", [torch.ones(2)], TensorProto.FLOAT).tolist()
json.dump({**results, "loaded": loaded()}, sys.stdout)
