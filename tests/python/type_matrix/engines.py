"""ReferenceEvaluator and onnxruntime."""

from __future__ import annotations

import warnings
from typing import Any

import numpy as np
import onnx
import onnxruntime
from onnx.reference import ReferenceEvaluator


class Declined(Exception):
    """An oracle does not take a model."""


def run_reference(model: onnx.ModelProto, feeds: dict[str, Any]) -> list[Any]:
    with warnings.catch_warnings(), np.errstate(all="ignore"):
        warnings.simplefilter("ignore")
        try:
            return list(ReferenceEvaluator(model).run(None, feeds))
        except Exception as error:
            raise Declined(f"{type(error).__name__}: {error}"[:200]) from None


NEWEST_IR = 11  # onnxruntime takes it
OPTIONS = onnxruntime.SessionOptions()
OPTIONS.log_severity_level = 4
OPTIONS.intra_op_num_threads = 1


def run_ort(model: onnx.ModelProto, feeds: dict[str, Any]) -> list[Any]:
    model = onnx.ModelProto.FromString(model.SerializeToString())
    model.ir_version = min(model.ir_version, NEWEST_IR)
    try:
        session = onnxruntime.InferenceSession(model.SerializeToString(), OPTIONS, providers=["CPUExecutionProvider"])
        return list(session.run(None, feeds))
    except Exception as error:
        raise Declined(f"{type(error).__name__}: {error}"[:200]) from None


def run_any(model: onnx.ModelProto, feeds: dict[str, Any]) -> list[Any]:
    try:
        return run_reference(model, feeds)
    except Declined:
        return run_ort(model, feeds)
