"""Templates of ai.onnx.ml."""

from __future__ import annotations

from typing import Any

import numpy as np
from onnx import numpy_helper

from .template import Template, Types
from .values import dtype_of, element, fit_array

X = np.array([[1, 2, 3], [4, 0, 2], [2, 5, 1]], np.float32)
LABELS = [3, 1, 2]
WEIGHTS = [0.5, -0.25, 1.0, -0.5, 0.75, 0.25, 0.125, 1.5, -1.0]


def texts(values: list[Any]) -> list[str]:
    return [str(value) for value in values]


def when(param: str, *elements: str):
    """Gives an attribute that belongs to some element types of a parameter."""
    return lambda value: lambda types, version: value if element(types[param]) in elements else None


def either(param: str, values: list[int], **names: str) -> dict[str, Any]:
    """Gives the same values under the attribute that goes with the parameter's element type."""
    return {
        name: when(param, kind)(
            texts(values) if kind == "string" else values if kind != "float" else list(map(float, values))
        )
        for kind, name in names.items()
    }


def tensor_either(param: str, values: list[int], side: str) -> dict[str, Any]:
    """Gives keys_* or values_* of LabelEncoder-4: lists for three types, a tensor for the others."""
    listed = either(param, values, int64=f"{side}_int64s", string=f"{side}_strings", float=f"{side}_floats")

    def tensor(types: Types, version: int) -> Any:
        name = element(types[param])
        return None if name in ("int64", "string", "float") else stored(values, name)

    return listed | {f"{side}_tensor": tensor}


def stored(values: Any, name: str) -> Any:
    return numpy_helper.from_array(fit_array(np.array(values, np.float32), name))


def default_tensor(types: Types, version: int) -> Any:
    name = element(types["T2"])
    return None if name in ("int64", "string", "float") else stored([7], name)


def row(
    op: str, inputs: list[Any], first: int = 1, last: int = 99, outputs: int = 1, meaning: Any = None, **attributes: Any
):
    return op, first, last, Template(inputs, attributes, [f"y{i}" for i in range(outputs)], meaning=meaning)


def looked_up(keys: list[int]) -> Any:
    """Gives a row of the values of a map at keys, zero where there is none."""

    def meaning(case: Any) -> list[Any]:
        named = {int(key): value for key, value in case.inputs[0].items()}
        zero = "" if element(case.output_types[0]) == "string" else 0
        values = np.array([named.get(key, zero) for key in keys], object).astype(
            dtype_of(element(case.output_types[0]))
        )
        return [values[None]]

    return meaning


CLASSES = either("T2", LABELS, int64="classlabels_ints", string="classlabels_strings")
TREE = {
    "nodes_treeids": [0] * 3,
    "nodes_nodeids": [0, 1, 2],
    "nodes_featureids": [1, 0, 0],
    "nodes_modes": ["BRANCH_LEQ", "LEAF", "LEAF"],
    "nodes_values": [1.0, 0.0, 0.0],
    "nodes_truenodeids": [1, 0, 0],
    "nodes_falsenodeids": [2, 0, 0],
}
LEAVES = {"treeids": [0, 0], "nodeids": [1, 2], "ids": [0, 1], "weights": [0.25, 0.5]}


def leaves(votes: str) -> dict[str, Any]:
    return TREE | {f"{votes}_{name}": value for name, value in LEAVES.items()}


def ngrams() -> dict[str, Any]:
    return dict(
        mode="TF",
        min_gram_length=1,
        max_gram_length=2,
        max_skip_count=0,
        ngram_counts=[0, 2],
        ngram_indexes=[0, 1, 2],
        pool_int64s=when("T", "int32", "int64")([2, 3, 1, 2]),
        pool_strings=when("T", "string")(texts([2, 3, 1, 2])),
    )


SUPPORT = {"support_vectors": [1.0, 2.0, 0.0, 0.0, 1.0, 3.0], "kernel_type": "RBF", "kernel_params": [0.5, 0.0, 3.0]}

ML_ROWS = [
    row("TfIdfVectorizer", [np.array([1, 2, 3, 2])], **ngrams()),
    row(
        "CastMap",
        [np.array([1])],
        map_form="SPARSE",
        max_map=5,
        meaning=looked_up([0, 1, 2, 3, 4]),
        cast_to=lambda types, version: "TO_" + element(types["T2"]).upper(),
    ),
    row(
        "CategoryMapper",
        [np.array([1, 3, 7])],
        cats_int64s=[1, 2, 3],
        cats_strings=["1", "2", "3"],
        default_int64=9,
        default_string="none",
    ),
    row(
        "DictVectorizer",
        [np.array([1])],
        meaning=looked_up([2, 1, 3]),
        int64_vocabulary=lambda types, version: [2, 1, 3] if "(int64," in types["T1"] else None,
        string_vocabulary=lambda types, version: ["2", "1", "3"] if "(string," in types["T1"] else None,
    ),
    row("FeatureVectorizer", [X, X[:, :2]], inputdimensions=[3, 2]),
    row(
        "Imputer",
        [X],
        imputed_value_floats=when("T", "float", "double")([8.0]),
        replaced_value_float=when("T", "float", "double")(2.0),
        imputed_value_int64s=when("T", "int32", "int64")([8]),
        replaced_value_int64=when("T", "int32", "int64")(2),
    ),
    row(
        "LabelEncoder",
        [np.array([0, 2, 5])],
        1,
        1,
        classes_strings=["0", "1", "2"],
        default_int64=9,
        default_string="none",
    ),
    row(
        "LabelEncoder",
        [np.array([1, 3, 7])],
        2,
        3,
        default_int64=9,
        default_string="none",
        default_float=9.0,
        **either("T1", [1, 2, 3], int64="keys_int64s", string="keys_strings", float="keys_floats"),
        **either("T2", [5, 6, 4], int64="values_int64s", string="values_strings", float="values_floats"),
    ),
    row(
        "LabelEncoder",
        [np.array([1, 3, 7])],
        4,
        default_int64=9,
        default_string="none",
        default_float=9.0,
        default_tensor=default_tensor,
        **tensor_either("T1", [1, 2, 3], "keys"),
        **tensor_either("T2", [5, 6, 4], "values"),
    ),
    row("LinearClassifier", [X], outputs=2, coefficients=WEIGHTS, intercepts=[0.5, 0.0, -0.5], **CLASSES),
    row("LinearRegressor", [X], coefficients=WEIGHTS[:3], intercepts=[0.5]),
    row("Normalizer", [X], norm="L2"),
    row(
        "OneHotEncoder",
        [np.array([1, 3, 7])],
        zeros=1,
        cats_strings=when("T", "string")(texts([3, 1])),
        cats_int64s=when("T", "int64", "int32", "float", "double")([3, 1]),
    ),
    row("Scaler", [X], offset=[1.0, 0.5, 0.0], scale=[2.0, 0.25, 1.0]),
    row(
        "SVMClassifier",
        [X],
        outputs=2,
        vectors_per_class=[1, 1],
        coefficients=[0.5, -0.5],
        rho=[0.25],
        **SUPPORT,
        classlabels_ints=when("T2", "int64")([3, 1]),
        classlabels_strings=when("T2", "string")(["3", "1"]),
    ),
    row("SVMRegressor", [X], n_supports=2, coefficients=[0.5, -0.5], rho=[0.25], **SUPPORT),
    row(
        "TreeEnsembleClassifier",
        [X],
        outputs=2,
        **leaves("class"),
        classlabels_int64s=when("T2", "int64")([3, 1]),
        classlabels_strings=when("T2", "string")(["3", "1"]),
    ),
    row("TreeEnsembleRegressor", [X], n_targets=2, **leaves("target")),
    row(
        "ZipMap",
        [X],
        classlabels_int64s=lambda types, version: LABELS if "int64" in types["T"] else None,
        classlabels_strings=lambda types, version: texts(LABELS) if "string" in types["T"] else None,
    ),
]
