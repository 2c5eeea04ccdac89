"""The messages that the package logs; nothing reaches stderr past logging."""

import logging
import sys

import numpy as np
import onnx
import pytest
from onnx import helper

import onnx_torch
from models import model_of, op_model, tensor_info

X = np.ones((2, 3), np.float32)


def relu_twice():
    nodes = [helper.make_node("Relu", ["x"], ["h"]), helper.make_node("Relu", ["h"], ["y"])]
    return model_of(nodes, [tensor_info("x", X)], ["y"])


def undecodable():
    return op_model("ImageDecoder", [np.zeros(4, np.uint8)])


def test_preparing_is_told(caplog, tmp_path):
    path = tmp_path / "twice.onnx"
    onnx.save(relu_twice(), path)
    with caplog.at_level(logging.DEBUG, logger="onnx_torch"):
        onnx_torch.prepare(path)
        onnx_torch.prepare(relu_twice())
    prepared, operators, from_bytes, _ = [record.getMessage() for record in caplog.records]
    assert prepared.startswith(f"prepared {path} for CPU in 0.") and prepared.endswith(" s: 2 nodes")
    assert operators == f"operators of {path}: Relu ×2"
    assert from_bytes.startswith("prepared a model given as bytes (graph 'test') for CPU in ")


def test_nothing_is_told_by_default(caplog, capfd):
    onnx_torch.prepare(relu_twice()).run([X])
    assert not caplog.records
    assert capfd.readouterr() == ("", "")


def test_native_warnings_are_logged(caplog, capfd):
    (image,) = onnx_torch.prepare(undecodable()).run([np.zeros(4, np.uint8)])
    assert image.shape == (0, 0, 3)
    (record,) = caplog.records
    assert (record.name, record.levelno) == ("onnx_torch", logging.WARNING)
    assert record.getMessage().startswith("ImageDecoder: the format is none of BMP")
    assert capfd.readouterr() == ("", "")


def test_warnings_of_a_run_that_fails_are_logged_too(caplog):
    nodes = [helper.make_node("ImageDecoder", ["x"], ["image"]), helper.make_node("Reshape", ["image", "shape"], ["y"])]
    shape = onnx.numpy_helper.from_array(np.array([7], np.int64), "shape")
    rep = onnx_torch.prepare(model_of(nodes, [tensor_info("x", np.zeros(4, np.uint8))], ["y"], initializer=[shape]))
    with pytest.raises(onnx_torch.RunError, match="Reshape"):
        rep.run([np.zeros(4, np.uint8)])
    assert {record.getMessage().split(":")[0] for record in caplog.records} == {"ImageDecoder"}


def test_a_handler_that_fails_does_not_end_the_run(monkeypatch):
    class Broken(logging.Handler):
        def emit(self, record):
            raise RuntimeError("no space left")

    logger = logging.getLogger("onnx_torch")
    monkeypatch.setattr(logger, "handlers", [Broken()])
    told = []
    monkeypatch.setattr(sys, "unraisablehook", told.append)
    assert onnx_torch.prepare(undecodable()).run([np.zeros(4, np.uint8)])[0].shape == (0, 0, 3)
    assert [str(fault.exc_value) for fault in told] == ["no space left"]
