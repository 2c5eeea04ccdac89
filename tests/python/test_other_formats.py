"""Files that people give in place of a model, or of its external data: the error says what they are."""

import gzip
import io
import pickle

import numpy as np
import onnx
import pytest
import torch
from onnx import TensorProto, external_data_helper, helper, numpy_helper

import onnx_torch
from models import model_of, tensor_info

POINTER = b"version https://git-lfs.github.com/spec/v1\noid sha256:0123\nsize 1234567\n"


def saved(save, *arguments):
    file = io.BytesIO()
    save(*arguments, file)
    return file.getvalue()


FORMATS = {
    "Git LFS": POINTER,
    "HTML": b"<!DOCTYPE html><html><body>404</body></html>",
    "XML": b'<?xml version="1.0"?><net name="model" version="11"></net>',
    "a zip archive": saved(torch.save, torch.nn.Linear(2, 2).state_dict()),
    "gzip": gzip.compress(b"model"),
    "a pickle": pickle.dumps([1.0], protocol=2),
    "numpy": saved(lambda array, file: np.save(file, array), np.ones(3)),
    "TensorFlow Lite": b"\x1c\0\0\0TFL3" + bytes(40),
    "onnxruntime's own format": b"\x1c\0\0\0ORTM" + bytes(40),
    "GGUF": b"GGUF\3\0\0\0" + bytes(40),
    "safetensors": (60).to_bytes(8, "little") + b'{"w":{"dtype":"F32","shape":[1],"data_offsets":[0,4]}}',
    "HDF5": b"\x89HDF\r\n\x1a\n" + bytes(40),
}


@pytest.mark.parametrize("read", [onnx_torch.prepare, onnx_torch.check, onnx_torch.info], ids=lambda f: f.__name__)
@pytest.mark.parametrize("form", FORMATS)
def test_a_file_in_another_format_is_named(tmp_path, form, read):
    path = tmp_path / "model.onnx"
    path.write_bytes(FORMATS[form])
    for given, subject in ((str(path), "model.onnx is"), (FORMATS[form], "")):
        with pytest.raises(onnx_torch.InvalidModelError, match=f"{subject}.*not an ONNX model, but .*{form}"):
            read(given)


@pytest.mark.parametrize("bytes_", [b"\xff" * 40, b"\x0a", b"TFL3"], ids=["noise", "one byte", "a mark elsewhere"])
def test_other_bytes_are_no_model(bytes_):
    with pytest.raises(onnx_torch.InvalidModelError, match="not an ONNX model$"):
        onnx_torch.prepare(bytes_)


def test_a_session_tells_as_well(tmp_path):
    path = tmp_path / "model.onnx"
    path.write_bytes(POINTER)
    with pytest.raises(Exception, match="git lfs pull"):
        onnx_torch.InferenceSession(str(path))


def test_external_data_that_is_a_pointer_is_named(tmp_path):
    weight = numpy_helper.from_array(np.ones(1000, np.float32), "w")
    model = model_of(
        [helper.make_node("Add", ["x", "w"], ["y"], name="add")],
        [tensor_info("x", element=TensorProto.FLOAT)],
        ["y"],
        initializer=[weight],
    )
    external_data_helper.convert_model_to_external_data(model, location="model.onnx_data", size_threshold=0)
    onnx.save(model, tmp_path / "model.onnx")
    (tmp_path / "model.onnx_data").write_bytes(POINTER)
    with pytest.raises(
        onnx_torch.InvalidModelError,
        match=r"past the end of model.onnx_data \(\d+ bytes\), which is a pointer of Git LFS",
    ):
        onnx_torch.prepare(tmp_path / "model.onnx").run([np.float32(1)])
