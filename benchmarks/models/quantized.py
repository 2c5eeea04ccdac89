"""Networks with weights of 8 or 16 bits, made of the float ones."""

from __future__ import annotations

import tempfile
from collections.abc import Callable
from functools import partial
from pathlib import Path

import onnx
from onnx import TensorProto, helper, numpy_helper

from .case import Case, Feeds, Network
from .export import quiet, seeded, write_export
from .transformers import bert
from .vision import from_torchvision

FLOAT16_FROM = 1024  # elements; smaller weights stay as they are


def write_converted(
    network: Callable[[], Network], convert: Callable[[Path, Path, list[Feeds]], None], file: Path
) -> list[Feeds]:
    with tempfile.TemporaryDirectory() as folder:
        plain = Path(folder) / "float.onnx"
        feeds = write_export(partial(seeded, network), "dynamo", plain)
        convert(plain, file, feeds)
    return feeds


def static(plain: Path, file: Path, feeds: list[Feeds], form: str = "QDQ") -> None:
    """Writes it calibrated on the measured inputs, with QuantizeLinear and DequantizeLinear around each operator."""
    from onnxruntime.quantization import CalibrationDataReader, QuantFormat, QuantType, quantize_static

    class Inputs(CalibrationDataReader):
        def __init__(self) -> None:
            self.rest = iter(feeds)

        def get_next(self) -> Feeds | None:
            return next(self.rest, None)

    with quiet():
        quantize_static(
            _prepared(plain),
            file,
            Inputs(),
            quant_format=QuantFormat[form],
            activation_type=QuantType.QUInt8,
            weight_type=QuantType.QInt8,
            per_channel=True,
        )


def operators_of_8_bits(plain: Path, file: Path, feeds: list[Feeds]) -> None:
    """Writes the same with operators that take and give int8 or uint8 in their place."""
    static(plain, file, feeds, "QOperator")


def dynamic(plain: Path, file: Path, feeds: list[Feeds]) -> None:
    from onnxruntime.quantization import QuantType, quantize_dynamic

    model = onnx.load(_prepared(plain))
    del model.graph.value_info[:]  # the quantizer transposes weights, and would leave the shapes of before
    with quiet():
        quantize_dynamic(model, file, weight_type=QuantType.QUInt8, op_types_to_quantize=["Conv", "MatMul", "Gemm"])


def float16_weights(plain: Path, file: Path, feeds: list[Feeds]) -> None:
    """Writes the model with large weights in half of the bytes, which are cast where they are used."""
    model = onnx.load(plain)
    casts = []
    for weight in model.graph.initializer:
        values = numpy_helper.to_array(weight)
        if weight.data_type == TensorProto.FLOAT and values.size >= FLOAT16_FROM:
            name, stored = weight.name, f"{weight.name}.float16"
            weight.CopyFrom(numpy_helper.from_array(values.astype("float16"), stored))
            casts.append(helper.make_node("Cast", [stored], [name], to=TensorProto.FLOAT))
    nodes = [*casts, *model.graph.node]
    del model.graph.node[:]
    model.graph.node.extend(nodes)
    onnx.save(model, file)


def _prepared(plain: Path) -> Path:
    """Writes the model with shapes and constants folded, as the quantizer's documentation asks for; gives its path."""
    from onnxruntime.quantization.shape_inference import quant_pre_process

    done = plain.with_name("prepared.onnx")
    quant_pre_process(plain, done, skip_symbolic_shape=True)
    return done


RESNET = partial(from_torchvision, "resnet50")
BERT = partial(bert, 1)

CASES = [
    # The kernels round in different ways, and so differ by a step of 8 bits, a few layers deep.
    Case(name, "quantized", partial(write_converted, network, convert), tolerance=tolerance)
    for name, network, convert, tolerance in (
        ("resnet50_int8_static", RESNET, static, 0.1),
        ("resnet50_int8_dynamic", RESNET, dynamic, 0.1),
        ("resnet50_float16_weights", RESNET, float16_weights, 1e-3),
        ("bert_int8_static", BERT, static, 0.1),
        ("bert_int8_dynamic", BERT, dynamic, 0.1),
    )
]
