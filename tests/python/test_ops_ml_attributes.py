"""Operators of ai.onnx.ml with every attribute, every value that the schema texts name, and every input type.

The cases are data. One test runs them against onnxruntime, the reference implementation or numpy; another reads the
schemas and says what the cases leave out. test_ops_ml.py holds the particular cases.
"""

import re
from collections import defaultdict
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper
from onnx.numpy_helper import from_array, to_array
from onnx.reference.ops.aionnxml._common_classifier import logistic, probit, softmax, softmax_zero

import onnx_torch
from models import NEWEST, onnxruntime_op, reference_op, run_op

ML = "ai.onnx.ml"
NUMBERS = ["float", "double", "int64", "int32"]
NUMPY = {"float": np.float32, "double": np.float64, "int64": np.int64, "int32": np.int32, "string": object}


def probit_with_limits(x):
    """Computes PROBIT with its limits; the reference implementation's is 0 at 0 and 1."""
    return np.where((x == 0) | (x == 1), np.copysign(np.inf, x - 0.5), probit(x))


TRANSFORMS = {
    "NONE": np.copy,
    "SOFTMAX": softmax,
    "LOGISTIC": logistic,
    "SOFTMAX_ZERO": softmax_zero,
    "PROBIT": probit_with_limits,
}
LABELS = {"ints": [30, 10, 20], "int64s": [30, 10, 20], "strings": ["c", "a", "b"]}
TABLE_NUMBERS = np.random.default_rng(5)


@dataclass
class Case:
    op: str
    attributes: dict[str, Any]
    types: list[str] = field(default_factory=lambda: NUMBERS)
    versions: tuple[int, ...] = (1,)
    inputs: tuple[Any, ...] = (TABLE_NUMBERS.integers(-3, 4, (12, 3)),)
    outputs: tuple[int, ...] = (TensorProto.FLOAT,)
    by: str = "onnxruntime"

    def __str__(self):
        shown = {k: v if isinstance(v, str | int) else "…" for k, v in self.attributes.items()}
        return f"{self.op}{list(shown.items())[-4:]}"


def floats_of(attributes):
    """Gives the attributes as onnxruntime takes them for float inputs: lists, not tensors."""
    return {
        name.removesuffix("_as_tensor"): to_array(value).tolist() if name.endswith("_as_tensor") else value
        for name, value in attributes.items()
    }


def expected(case, inputs):
    """Takes the scores without a post_transform from the other implementation, and transforms them by the text."""
    plain = {name: value for name, value in case.attributes.items() if name != "post_transform"}
    if case.by == "reference":
        results = reference_op(case.op, inputs, opset=5, domain=ML, outputs=len(case.outputs), **plain)
    else:
        numbers = [x.astype(np.float32) if x.dtype != object and case.op != "CategoryMapper" else x for x in inputs]
        results = onnxruntime_op(case.op, numbers, case.outputs, 3, ML, **floats_of(plain))
    scores = results[-1]
    if "post_transform" in case.attributes:
        with np.errstate(invalid="ignore", divide="ignore"):
            transformed = TRANSFORMS[case.attributes["post_transform"]](scores.astype(np.float64))
        scores = transformed.astype(scores.dtype)
    return [*results[:-1], scores]


# --- Features and labels


def simple_cases():
    x = TABLE_NUMBERS.integers(-3, 4, (4, 3))
    pair = (x, TABLE_NUMBERS.integers(-3, 4, (4, 2)))
    yield Case("FeatureVectorizer", {"inputdimensions": [3, 2]}, inputs=pair)
    for imputed in ([7], [7, 8, 9]):
        ints = {"imputed_value_int64s": imputed, "replaced_value_int64": 3}
        yield Case("Imputer", ints, ["int64", "int32"], inputs=(x,), by="reference")
        floats = {"imputed_value_floats": [v + 0.5 for v in imputed], "replaced_value_float": -2.0}
        yield Case("Imputer", floats, ["float", "double"], inputs=(x,), by="reference")
    for norm in ("MAX", "L1", "L2"):
        yield Case("Normalizer", {"norm": norm}, inputs=(x,))
    for length in (1, 3):
        yield Case("Scaler", {"offset": [0.5, 1.0, -2.0][:length], "scale": [2.0, 0.25, -1.0][:length]}, inputs=(x,))
    for zeros in (0, 1):
        ints, texts = {"cats_int64s": [*range(-3, 4)], "zeros": zeros}, {"cats_strings": ["a", "b"], "zeros": zeros}
        yield Case("OneHotEncoder", ints, inputs=(x,))
        yield Case("OneHotEncoder", texts, ["string"], inputs=(np.array([["b", "a"], ["a", "a"]], dtype=object),))
    mapping = {"cats_int64s": [1, 2, 3], "cats_strings": ["a", "b", "c"], "default_int64": -7, "default_string": "none"}
    yield Case("CategoryMapper", mapping, ["int64"], inputs=(x,), outputs=(TensorProto.STRING,))
    text = (np.array(["a", "q", "c"], dtype=object),)
    yield Case("CategoryMapper", mapping, ["string"], inputs=text, outputs=(TensorProto.INT64,))


# --- Linear models and support vector machines


def classified(labels):
    return (TensorProto.STRING if labels == "strings" else TensorProto.INT64, TensorProto.FLOAT)


def linear_cases():
    weights = (TABLE_NUMBERS.normal(size=9) / 12).tolist()
    for how in TRANSFORMS:
        options = {"coefficients": weights, "intercepts": [0.4, 0.5, 0.3], "post_transform": how}
        yield Case("LinearRegressor", {"targets": 3, **options})
        for labels in ("ints", "strings"):
            for multi_class in (0, 1):
                more = {f"classlabels_{labels}": LABELS[labels], "multi_class": multi_class}
                yield Case("LinearClassifier", options | more, outputs=classified(labels))


KERNELS = {"LINEAR": [0.0, 0.0, 0.0], "RBF": [0.3, 0.0, 0.0], "POLY": [0.1, 1.0, 2.0], "SIGMOID": [0.1, 0.2, 0.0]}


def svm_cases():
    for kernel, params in KERNELS.items():
        kernel_options = {"kernel_type": kernel, "kernel_params": params}
        for how in TRANSFORMS:
            regressor = {
                "coefficients": (TABLE_NUMBERS.normal(size=4) / 40).tolist(),
                "n_supports": 4,
                "rho": [0.5],
                "support_vectors": TABLE_NUMBERS.normal(size=12).tolist(),
                "post_transform": how,
            }
            for one_class in (0, 1):
                yield Case("SVMRegressor", regressor | kernel_options | {"one_class": one_class})
            classifier = {
                "coefficients": (TABLE_NUMBERS.normal(size=12) / 40).tolist(),
                "rho": [0.4, 0.5, 0.6],
                "support_vectors": TABLE_NUMBERS.normal(size=18).tolist(),
                "vectors_per_class": [2, 1, 3],
                "post_transform": how,
            }
            for labels in ("ints", "strings"):
                more = kernel_options | {f"classlabels_{labels}": LABELS[labels]}
                yield Case("SVMClassifier", classifier | more, outputs=classified(labels))
                more |= {"prob_a": [-1.0, 0.5, -2.0], "prob_b": [0.1, -0.2, 0.3]}
                yield Case("SVMClassifier", classifier | more, outputs=classified(labels))


# --- Trees: three of them, of one branch and two leaves each

MODES = ["BRANCH_LEQ", "BRANCH_LT", "BRANCH_GTE", "BRANCH_GT", "BRANCH_EQ", "BRANCH_NEQ"]


def stumps(votes, modes, as_tensors, tracks=0):
    """Makes one stump of each mode; stump i looks at feature i % 3 and votes for target i % 3."""
    count = len(modes)
    splits = np.tile([0.0, 1.0, -1.0], count)[:count]
    weights = TABLE_NUMBERS.normal(size=2 * count) / (4 * count)
    attributes = {
        "nodes_treeids": np.repeat(range(count), 3).tolist(),
        "nodes_nodeids": [0, 1, 2] * count,
        "nodes_featureids": [v for i in range(count) for v in (i % 3, 0, 0)],
        "nodes_modes": [text for mode in modes for text in (mode, "LEAF", "LEAF")],
        "nodes_truenodeids": [1, 0, 0] * count,
        "nodes_falsenodeids": [2, 0, 0] * count,
        "nodes_missing_value_tracks_true": [tracks, 0, 0] * count,
        f"{votes}_treeids": np.repeat(range(count), 2).tolist(),
        f"{votes}_nodeids": [1, 2] * count,
        f"{votes}_ids": [i % 3 for i in range(count) for _ in range(2)],
    }
    lists = {
        "nodes_values": [v for split in splits for v in (split, 0.0, 0.0)],
        "nodes_hitrates": [1.0, 0.5, 0.5] * count,
        f"{votes}_weights": weights.tolist(),
        "base_values": [0.25, 0.5, 0.375],
    }
    for name, values in lists.items():
        if as_tensors:
            attributes[f"{name}_as_tensor"] = from_array(np.array(values))
        else:
            attributes[name] = np.float32(values).tolist()
    return attributes


def tree_cases():
    for as_tensors in (False, True):
        versions = (3, 5) if as_tensors else (1, 3, 5)
        # Tensors of doubles go with inputs of doubles.
        types = ["double"] if as_tensors else NUMBERS
        for modes in (MODES, *([mode] * 3 for mode in MODES)):
            for how in TRANSFORMS if modes is MODES else ["NONE"]:
                regressor = stumps("target", modes, as_tensors) | {"n_targets": 3, "post_transform": how}
                for aggregate in ("SUM", "AVERAGE", "MIN", "MAX"):
                    yield Case("TreeEnsembleRegressor", regressor | {"aggregate_function": aggregate}, types, versions)
                for labels in ("int64s", "strings"):
                    more = {f"classlabels_{labels}": LABELS[labels], "post_transform": how}
                    classifier = stumps("class", modes, as_tensors) | more
                    yield Case("TreeEnsembleClassifier", classifier, types, versions, outputs=classified(labels))


CASES = [*simple_cases(), *linear_cases(), *svm_cases(), *tree_cases()]


@pytest.mark.parametrize("case", CASES, ids=str)
def test_case(case):
    for element in case.types:
        inputs = [x.astype(NUMPY[element]) for x in case.inputs]
        scores = expected(case, inputs)
        for version in case.versions:
            actual = run_op(case.op, inputs, version, ML, len(case.outputs), **case.attributes)
            for got, want in zip(actual, scores, strict=True):
                if want.dtype.kind in "OSUi":
                    assert got.tolist() == want.tolist()
                else:
                    np.testing.assert_allclose(got, want, rtol=2e-4, atol=1e-5)


COMPARE = dict(zip(MODES, [np.less_equal, np.less, np.greater_equal, np.greater, np.equal, np.not_equal], strict=True))


@pytest.mark.parametrize("tracks", [0, 1])
@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("version", [1, 3, 5])
def test_missing_values(mode, tracks, version):
    """A missing value goes the way that its flag says; one that is not there goes the way of the comparison."""
    x = np.array([[-1, 0, np.nan], [np.nan, 1, -1], [0, np.nan, 0], [1, 2, 3]], np.float32)
    attributes = stumps("target", [mode] * 3, False, tracks) | {"n_targets": 3}
    way = np.where(np.isnan(x), bool(tracks), COMPARE[mode](x, np.float32([0, 1, -1])))
    weights = np.reshape(attributes["target_weights"], (3, 2))
    scores = np.where(way, weights[:, 0], weights[:, 1]) + attributes["base_values"]
    (actual,) = run_op("TreeEnsembleRegressor", [x], version, ML, **attributes)
    np.testing.assert_allclose(actual, scores, rtol=1e-5)


# --- Maps

MAPS = [
    ("CastMap", "int64", "float", {3: 1.5, 1: -2.0}),
    ("CastMap", "int64", "string", {2: "5", 0: "-4"}),
    ("DictVectorizer", "string", "int64", {"a": 4, "c": 8}),
    ("DictVectorizer", "string", "float", {"a": 4.5, "c": 8.0}),
    ("DictVectorizer", "string", "double", {"a": 4.5, "c": 8.0}),
    ("DictVectorizer", "int64", "string", {1: "x", 3: "y"}),
    ("DictVectorizer", "int64", "float", {1: 4.5, 3: 8.0}),
    ("DictVectorizer", "int64", "double", {1: 4.5, 3: 8.0}),
]
MAP_ATTRIBUTES = {
    "CastMap": [
        {"cast_to": to, "map_form": form, "max_map": 5}
        for to in ("TO_FLOAT", "TO_STRING", "TO_INT64")
        for form in ("DENSE", "SPARSE")
    ],
    "DictVectorizer": [{"string_vocabulary": ["a", "c", "b", "z"]}, {"int64_vocabulary": [3, 2, 1]}],
    "ZipMap": [{f"classlabels_{labels}": LABELS[labels]} for labels in ("int64s", "strings")],
}


def map_cases():
    for op, key, value, x in MAPS:
        for attributes in MAP_ATTRIBUTES[op]:
            if op == "CastMap" or f"{key}_vocabulary" in attributes:
                yield op, key, value, x, attributes


CONVERT = {"TO_FLOAT": float, "TO_INT64": lambda v: int(float(v)), "TO_STRING": str}


@pytest.mark.parametrize("op, key, value, x, attributes", list(map_cases()), ids=str)
def test_map(op, key, value, x, attributes):
    types = {"string": TensorProto.STRING, "int64": TensorProto.INT64, "float": TensorProto.FLOAT}
    types["double"] = TensorProto.DOUBLE
    of_map = helper.make_map_type_proto(types[key], helper.make_tensor_type_proto(types[value], []))
    node = helper.make_node(op, ["x"], ["y"], domain=ML, **attributes)
    graph = helper.make_graph([node], "g", [helper.make_value_info("x", of_map)], [onnx.ValueInfoProto(name="y")])
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid(ML, 1), helper.make_opsetid("", NEWEST)])
    (got,) = onnx_torch.backend.prepare(model).run([x])
    if op == "CastMap":
        convert = CONVERT[attributes["cast_to"]]
        dense, width = [convert(x[k]) for k in sorted(x)], attributes["max_map"]
        sparse = [convert(x[k]) if k in x else type(dense[0])() for k in range(width)]
        assert got.tolist() == [dense if attributes["map_form"] == "DENSE" else sparse]
    else:
        (vocabulary,) = attributes.values()
        absent = type(next(iter(x.values())))()
        assert got.tolist() == [[x.get(k, absent) for k in vocabulary]]


@pytest.mark.parametrize("attributes", MAP_ATTRIBUTES["ZipMap"], ids=str)
def test_zip_map(attributes):
    x = np.random.default_rng(0).normal(size=(4, 3)).astype(np.float32)
    (got,) = run_op("ZipMap", [x], 1, ML, **attributes)
    (keys,) = attributes.values()
    assert got == [dict(zip(keys, row.tolist(), strict=True)) for row in x]


# --- What is left out

FLAGS = {"zeros", "one_class", "multi_class"}
NAMED = re.compile(r"'([A-Z][A-Z0-9_]+),?\.?'")


def named_by_the_schemas():
    """Gives (operator, version, attribute, value) of each value that a text names; None is for the attribute itself."""
    for schema in onnx.defs.get_all_schemas_with_history():
        if schema.domain != ML or schema.name not in OPERATORS:
            continue
        for name, attribute in schema.attributes.items():
            values = set(NAMED.findall(attribute.description)) if attribute.type.name.startswith("STRING") else set()
            values |= {0, 1} if name in FLAGS else set()
            for value in [None, *values]:
                yield schema.name, schema.since_version, name, value


def exercised():
    done = defaultdict(set)
    for case in CASES:
        for version in case.versions:
            for name, value in case.attributes.items():
                done[case.op, version, name] |= {None, *(value if isinstance(value, list) else [])}
                if isinstance(value, str | int):
                    done[case.op, version, name].add(value)
    for op, options in MAP_ATTRIBUTES.items():
        for attributes in options:
            for name, value in attributes.items():
                done[op, 1, name] |= {None, *([] if isinstance(value, list) else [value])}
    return done


OPERATORS = {case.op for case in CASES} | set(MAP_ATTRIBUTES)


def test_every_named_value_is_exercised():
    done = exercised()
    assert len(OPERATORS) == 15
    missing = [row for row in named_by_the_schemas() if row[3] not in done[row[:3]]]
    assert not missing


def test_every_input_type_is_exercised():
    done = defaultdict(set)
    for case in CASES:
        for version in case.versions:
            done[case.op, version] |= {f"tensor({element})" for element in case.types}
    for op, key, value, _ in MAPS:
        done[op, 1].add(f"map({key}, {value})")
    done["ZipMap", 1] = {"tensor(float)"}
    for schema in onnx.defs.get_all_schemas_with_history():
        if schema.domain == ML and schema.name in OPERATORS:
            allowed = {c.type_param_str: set(c.allowed_type_strs) for c in schema.type_constraints}
            type_of_input = schema.inputs[0].type_str
            missing = allowed.get(type_of_input, {type_of_input}) - done[schema.name, schema.since_version]
            assert not missing, (schema.name, schema.since_version)
