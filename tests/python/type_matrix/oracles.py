"""The oracles, which tell what a cell's model should give."""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Callable
from typing import Any

import numpy as np
import onnx
from onnx import helper

from .cells import allowed
from .compare import assert_equal, epsilon
from .engines import Declined, run_any, run_ort, run_reference
from .templates import Case, build
from .values import dtype_of, element, plain_cast, type_string
from .wrong_oracles import wrong


def official(case: Case) -> list[Any]:
    """Gives the case's own expectation, where its data survive the cast to the cell's types."""
    template = case.template
    if template.expected is None:
        raise Declined("not a case of this version")
    own = [t for t in template.input_types if t]
    values = [v for v, t in zip(template.inputs, template.input_types, strict=True) if t]
    for value, type_str, info in zip(values, own, case.model.graph.input, strict=True):
        if type_string(info.type) != type_str:
            _survives(value, type_str, type_string(info.type))
    outputs = []
    own = [t for t in template.output_types if t]
    for value, type_str, wanted in zip(template.expected, own, case.output_types, strict=True):
        outputs.append(value if type_str == wanted else _survives(value, type_str, wanted, rounds=True))
    return outputs


def _survives(value: Any, own: str, wanted: str, rounds: bool = False) -> Any:
    if value is None:
        return None
    if own.split("(")[:-1] != wanted.split("(")[:-1]:
        raise Declined("another kind of type")
    if isinstance(value, list):
        return [_survives(one, own, wanted, rounds) for one in value]
    if "complex" in wanted:
        raise Declined("imaginary parts")
    if rounds and epsilon([wanted]) > epsilon([own]) > 0:
        return value
    if rounds and 0 < epsilon([wanted]) < epsilon([own]) and not np.array_equal(value, np.rint(value)):
        raise Declined("the expectation is rounded more than the type")
    cast = plain_cast(value, element(wanted))
    if cast is None:
        raise Declined("data do not survive the cast")
    return cast


def meaning(case: Case) -> list[Any]:
    if case.template.meaning is None:
        raise Declined("no other form")
    return case.template.meaning(case)


def reference(case: Case) -> list[Any]:
    return run_reference(case.model, case.feeds)


def ort(case: Case) -> list[Any]:
    return run_ort(case.model, case.feeds)


def function_body(case: Case) -> list[Any]:
    """Runs the schema's own definition, by the first oracle that takes it."""
    return run_any(_expanded(case), case.feeds)


def _expanded(case: Case) -> onnx.ModelProto:
    schema, node = case.cell.schema, case.model.graph.node[-1]
    if schema.has_function:
        body = onnx.FunctionProto.FromString(schema.function_body.SerializeToString())
    elif schema.has_context_dependent_function:
        infos = {i.name: i.type.SerializeToString() for i in case.model.graph.input}
        types = [infos.get(name, b"") for name in node.input]
        try:
            body = onnx.FunctionProto.FromString(schema.get_context_dependent_function(node.SerializeToString(), types))
        except Exception as error:
            raise Declined(str(error)) from None
    else:
        raise Declined("no function body")
    body.domain, body.name = "body", node.op_type
    model = onnx.ModelProto.FromString(case.model.SerializeToString())
    model.graph.node[-1].domain = "body"
    model.opset_import.append(helper.make_opsetid("body", 1))
    versions = {opset.domain: opset.version for opset in body.opset_import}
    for opset in model.opset_import:
        opset.version = versions.get(opset.domain, opset.version)
    model.functions.append(body)
    return model


def widened(case: Case) -> list[Any]:
    """Computes with the same numbers in a wider type, and rounds the result back."""
    for wide in WIDER.get(element(case.cell.type), ()):
        try:
            other = retyped(case, wide, functools.partial(plain_cast, name=wide))
            pairs = zip(ask_any(other), other.output_types, case.output_types, strict=True)
            return [_rounded(output, own, wanted) for output, own, wanted in pairs]
        except Declined:
            continue
    raise Declined("no wider type")


def _rounded(value: Any, own: str, wanted: str) -> Any:
    if own == wanted or value is None:
        return value
    if isinstance(value, list):
        return [_rounded(one, own, wanted) for one in value]
    value = np.asarray(value)
    if 0 < epsilon([wanted]) < epsilon([own]) and not np.array_equal(value, np.rint(value)):
        raise Declined("the result is rounded more than the type")
    rounded = value.astype(dtype_of(element(wanted))) if value.dtype.kind == "f" else plain_cast(value, element(wanted))
    if rounded is None:
        raise Declined("the result leaves the range")
    return rounded


def moved(case: Case) -> list[Any]:
    """Has an oracle move numbers in the place of elements, where an operator only moves them, and puts these back."""
    for carrier in ("float", "int64", "int32"):
        try:
            return _moved_as(case, carrier)
        except (Declined, AssertionError):
            continue
    raise Declined("no carrier, or it computes")


def _moved_as(case: Case, carrier: str) -> list[Any]:
    elements: list[Any] = []
    other = retyped(case, carrier, _numbering(carrier, elements, lambda number: number))
    numbers = ask_any(other)
    # An operator that only moves elements does the same to any numbers; one that computes does not to these.
    squares = ask_any(retyped(case, carrier, _numbering(carrier, [], _square)))
    if other.output_types == case.output_types:
        raise Declined("no output holds elements")
    outputs = []
    for number, square, own, wanted in zip(numbers, squares, other.output_types, case.output_types, strict=True):
        if own == wanted:  # an index, say
            assert_equal(number, square, 0.0)
            outputs.append(number)
        else:
            outputs.append(_put(number, square, elements, wanted))
    return outputs


def _numbering(carrier: str, elements: list[Any], function: Callable[[np.ndarray], np.ndarray]):
    """Replaces an array by numbers from 1 on, of which `elements` says what they stand for."""

    def convert(array: np.ndarray) -> np.ndarray:
        first = len(elements) + 1
        elements.extend(array.ravel().tolist())
        return function(np.arange(first, first + array.size)).reshape(array.shape).astype(dtype_of(carrier))

    return convert


def _square(number: np.ndarray) -> np.ndarray:
    return np.where(number == 0, 0, number**2 + 7)  # what is filled in is zero


def _put(number: Any, square: Any, elements: list[Any], type_str: str) -> Any:
    if isinstance(number, list):
        return [_put(one, two, elements, type_str) for one, two in zip(number, square, strict=True)]
    number = np.asarray(number)
    if not np.array_equal(number, np.rint(number)) or not np.array_equal(_square(number), square):
        raise Declined("it computes")
    name = element(type_str)
    zero = "" if name == "string" else dtype_of(name).type(0)
    values = [zero, *elements]
    return np.array([values[i] for i in number.ravel().astype(np.int64)], dtype_of(name)).reshape(number.shape)


def retyped(case: Case, name: str, convert: Callable[[np.ndarray], np.ndarray | None]) -> Case:
    """Gives the case with another element type in the cell's parameter, and its data converted."""
    old = element(case.cell.type)
    wanted = case.cell.type.replace(f"({old})", f"({name})")
    if wanted not in allowed(case.cell.schema)[case.cell.param]:
        raise Declined("not allowed")
    cell = dataclasses.replace(case.cell, type=wanted)
    other = build(cell, case.template)
    infos = zip(case.model.graph.input, other.model.graph.input, strict=True)
    inputs = [
        value if info.type == new_info.type else _convert(value, convert)
        for value, (info, new_info) in zip(case.inputs, infos, strict=True)
    ]
    return dataclasses.replace(other, inputs=inputs)


def _convert(value: Any, convert: Callable[[np.ndarray], np.ndarray | None]) -> Any:
    if isinstance(value, list):
        return [_convert(one, convert) for one in value]
    if not isinstance(value, np.ndarray):
        raise Declined("no tensor")
    converted = convert(value)
    if converted is None:
        raise Declined("data do not survive the cast")
    return converted


WIDER = {
    "bfloat16": ["float", "double"],
    "float16": ["float", "double"],
    **dict.fromkeys(
        "float8e4m3fn float8e4m3fnuz float8e5m2 float8e5m2fnuz float4e2m1 float6e2m3 float6e3m2 float8e8m0".split(),
        ["float", "float16"],
    ),
    **dict.fromkeys("uint2 int2 uint4 int4 uint8 int8 int16 uint16 uint32".split(), ["int32", "int64", "float"]),
    "uint64": ["int64", "float"],
    "int32": ["int64", "float"],
    "int64": ["float"],
    "double": ["float"],
}

ORACLES: dict[str, Callable[[Case], list[Any]]] = {
    "official case": official,
    "meaning": meaning,
    "ReferenceEvaluator": reference,
    "onnxruntime": ort,
    "function body": function_body,
}
INDIRECT: dict[str, Callable[[Case], list[Any]]] = {"widened": widened, "moved": moved}


def ask(name: str, case: Case) -> list[Any]:
    """Gives one oracle's outputs, unless it is known to be wrong."""
    reason = wrong(name, case.cell)
    if reason:
        raise Declined(reason)
    outputs = (ORACLES | INDIRECT)[name](case)
    if len(outputs) != len(case.output_types):
        raise Declined("another number of outputs")
    for output, type_str in zip(outputs, case.output_types, strict=True):
        if type_str == "tensor(string)" and not all(isinstance(x, str) for x in np.asarray(output).ravel().tolist()):
            raise Declined("its strings are not all strings")
    return outputs


def ask_any(case: Case) -> list[Any]:
    """Gives what the first oracle says that takes a case as it is."""
    for name in ("meaning", "ReferenceEvaluator", "onnxruntime", "function body"):
        try:
            return ask(name, case)
        except Declined:
            continue
    raise Declined("no oracle")
