"""The operators of ai.onnx.ml against the reference implementation and onnxruntime."""

import itertools
import warnings

import numpy as np
import onnx
import pytest
import torch
from onnx import TensorProto, helper
from onnx.numpy_helper import from_array
from onnx.reference.ops.aionnxml._common_classifier import logistic, probit, softmax, softmax_zero

import onnx_torch.backend
from models import NEWEST, assert_same, onnxruntime_op, op_model, reference_op, run_op
from pass_models import assert_close

ML = "ai.onnx.ml"
TRANSFORMS = ["NONE", "SOFTMAX", "LOGISTIC", "SOFTMAX_ZERO", "PROBIT"]
NUMBERS = [np.float32, np.float64, np.int64, np.int32]


def texts(*items):
    return np.array(items, dtype=object)


def run_ml(op_type, inputs, opset=5, **options):
    return run_op(op_type, inputs, opset=opset, domain=ML, **options)


def reference_ml(op_type, inputs, opset=5, **options):
    return reference_op(op_type, inputs, opset=opset, domain=ML, **options)


def onnxruntime_ml(op_type, inputs, elements, opset=3, **options):
    return onnxruntime_op(op_type, inputs, elements, opset, ML, **options)


# --- Features


@pytest.mark.parametrize("x", [np.arange(24.0).reshape(2, 3, 4), np.arange(4), texts("a", "b", "c", "d")])
@pytest.mark.parametrize("indices", [[3], [[0, 2, 2]], [[1], [3]]])
def test_array_feature_extractor(x, indices):
    inputs = [x, np.array(indices)]
    assert_same(run_ml("ArrayFeatureExtractor", inputs), reference_ml("ArrayFeatureExtractor", inputs))


@pytest.mark.parametrize("element", NUMBERS)
def test_binarizer(element):
    x = np.array([[-1, 0, 1], [2, 3, 4]], dtype=element)
    assert_same(run_ml("Binarizer", [x], threshold=1.5), reference_ml("Binarizer", [x], threshold=1.5))
    assert_same(run_ml("Binarizer", [x]), [(x > 0).astype(element)])


@pytest.mark.parametrize("element", NUMBERS)
def test_feature_vectorizer(element):
    x, y = np.arange(6).reshape(2, 3).astype(element), np.arange(4).reshape(2, 2).astype(element)
    for sizes in ([3, 2], [2, 4]):  # cut, and filled up with zeros
        options = {"inputdimensions": sizes}
        expected = reference_ml("FeatureVectorizer", [x, y], **options)[0].astype(np.float32)
        assert_same(run_ml("FeatureVectorizer", [x, y], **options), [expected])
    assert_same(run_ml("FeatureVectorizer", [x, y]), [np.concatenate([x, y], 1).astype(np.float32)])
    row = run_ml("FeatureVectorizer", [x[0], y[0]])
    assert_same(row, [np.array([[0, 1, 2, 0, 1]], dtype=np.float32)])


@pytest.mark.parametrize("element", NUMBERS)
@pytest.mark.parametrize("imputed", [[7], [7, 8, 9]])
def test_imputer(element, imputed):
    x = np.array([[0, 1, 2], [3, 0, 0]], dtype=element)
    if x.dtype.kind == "f":
        attributes = {"imputed_value_floats": [float(v) for v in imputed], "replaced_value_float": 3.0}
    else:
        attributes = {"imputed_value_int64s": imputed, "replaced_value_int64": 3}
    assert_same(run_ml("Imputer", [x], **attributes), reference_ml("Imputer", [x], **attributes))
    if x.dtype.kind == "f":
        attributes["replaced_value_float"] = np.nan
        x[0, 1] = np.nan
        assert_same(run_ml("Imputer", [x], **attributes), reference_ml("Imputer", [x], **attributes))


@pytest.mark.parametrize("element", NUMBERS)
@pytest.mark.parametrize("norm", ["MAX", "L1", "L2"])
def test_normalizer(element, norm):
    x = np.array([[-3, 1, 2], [0, 0, 0], [-1, -2, -3]], dtype=element)
    for shaped in (x, x[0]):
        # The reference implementation's "MAX" is that of the absolute values; the operator's text says otherwise.
        assert_same(run_ml("Normalizer", [shaped], norm=norm), onnxruntime_ml("Normalizer", [shaped], [1], norm=norm))


@pytest.mark.parametrize("element", NUMBERS)
@pytest.mark.parametrize("length", [1, 3])
def test_scaler(element, length):
    x = np.array([[-3, 1, 2], [5, 0, 0]], dtype=element)
    attributes = {"offset": [0.5, 1.0, -2.0][:length], "scale": [2.0, 0.25, -1.0][:length]}
    assert_same(run_ml("Scaler", [x], **attributes), onnxruntime_ml("Scaler", [x], [1], **attributes))
    assert_same(run_ml("Scaler", [x]), [x.astype(np.float32)])


# --- Labels

KEYS = {"strings": ["b", "a", "c", "a"], "int64s": [2, 1, 3, 1], "floats": [2.5, 1.5, np.nan, 1.5]}
UNKNOWN = {"strings": "z", "int64s": 9, "floats": 9.5}
ELEMENTS = {"strings": object, "int64s": np.int64, "floats": np.float32}


@pytest.mark.parametrize("values", KEYS)
@pytest.mark.parametrize("keys", KEYS)
@pytest.mark.parametrize("default", [False, True])
@pytest.mark.parametrize("opset", [2, 4])
def test_label_encoder(keys, values, default, opset):
    x = np.array([*KEYS[keys], UNKNOWN[keys]], dtype=ELEMENTS[keys])
    attributes = {f"keys_{keys}": KEYS[keys], f"values_{values}": KEYS[values]}
    otherwise = {"strings": "_Unused", "int64s": -1, "floats": -0.0}[values]
    if default:
        otherwise = UNKNOWN[values]
        attributes[f"default_{values[:-1]}"] = otherwise
    # The last of equal keys counts.
    expected = [KEYS[values][i] for i in (0, 3, 2, 3)]
    expected = np.array([*expected, otherwise], dtype=ELEMENTS[values])
    assert_same(run_ml("LabelEncoder", [x], opset=opset, **attributes), [expected])
    assert_same(run_ml("LabelEncoder", [x.reshape(1, 5, 1)], opset=opset, **attributes), [expected.reshape(1, 5, 1)])


@pytest.mark.parametrize("value_type", ["INT16", "INT32", "DOUBLE", "STRING", "FLOAT", "INT64"])
@pytest.mark.parametrize("key_type", ["INT16", "INT32", "DOUBLE", "STRING", "FLOAT", "INT64"])
@pytest.mark.parametrize("default", [None, "3"])
def test_label_encoder_of_tensors(key_type, value_type, default):
    def array(name, numbers):
        if name == "STRING":
            return np.array(numbers, dtype=object)
        return np.array(numbers).astype(helper.tensor_dtype_to_np_dtype(TensorProto.DataType.Value(name)))

    keys, values = array(key_type, ["4", "1", "2"]), array(value_type, ["40", "10", "20"])
    attributes = {"keys_tensor": from_array(keys), "values_tensor": from_array(values)}
    if default:
        attributes["default_tensor"] = from_array(array(value_type, [default]))
    otherwise = default or {"S": "_Unused", "I": "-1"}.get(value_type[0], "-0.0")
    expected = np.append(values[[2, 0]], array(value_type, [otherwise]))
    assert_same(run_ml("LabelEncoder", [array(key_type, ["2", "4", "7"])], **attributes), [expected])


def test_label_encoder_checks_its_keys():
    with pytest.raises(onnx_torch.Error, match="keys"):
        run_ml("LabelEncoder", [np.array([1])], keys_strings=["a"], values_int64s=[1])
    with pytest.raises(onnx_torch.Error, match="values_strings … values_tensor must be given"):
        run_ml("LabelEncoder", [np.array([1])], keys_int64s=[1])


def test_label_encoder_of_many_keys():
    keys = np.random.default_rng(0).permutation(10_000)
    attributes = {"keys_int64s": keys.tolist(), "values_int64s": np.arange(10_000).tolist()}
    assert_same(run_ml("LabelEncoder", [keys], **attributes), [np.arange(10_000)])


def test_label_encoder_1_goes_by_position():
    classes = {"classes_strings": ["a", "b", "c"]}
    y = run_ml("LabelEncoder", [texts("c", "z", "a")], opset=1, default_int64=-5, **classes)
    assert_same(y, [np.array([2, -5, 0])])
    y = run_ml("LabelEncoder", [np.array([2, 3, -1])], opset=1, default_string="?", **classes)
    assert_same(y, [texts("c", "?", "?")])


def test_category_mapper():
    categories = {"cats_strings": ["x", "y"], "cats_int64s": [30, 10]}
    assert_same(run_ml("CategoryMapper", [texts(["y", "q"])], **categories), [np.array([[10, -1]])])
    assert_same(run_ml("CategoryMapper", [np.array([30, 1])], **categories), [texts("x", "_Unused")])


@pytest.mark.parametrize("element", [*NUMBERS, object])
def test_one_hot_encoder(element):
    numbers = np.array([[3, 1], [2, 3]])
    text = element is object
    x = numbers.astype(str).astype(object) if text else numbers.astype(element)
    categories = {"cats_strings": ["1", "3", "2"]} if text else {"cats_int64s": [1, 3, 2]}
    expected = reference_ml("OneHotEncoder", [x], **categories)
    for zeros in (0, 1):
        assert_same(run_ml("OneHotEncoder", [x], zeros=zeros, **categories), expected)
    unknown = np.array(["7", "2"], dtype=object) if text else np.array([7, 2], dtype=element)
    assert_same(run_ml("OneHotEncoder", [unknown], **categories), [np.array([[0, 0, 0], [0, 0, 1]], dtype=np.float32)])
    with pytest.raises(onnx_torch.Error, match="none of the categories"):
        run_ml("OneHotEncoder", [unknown], zeros=0, **categories)


# --- Maps


def map_type(key, value):
    return helper.make_map_type_proto(key, helper.make_tensor_type_proto(value, []))


def run_map_op(op_type, value, in_type, out_type=None, **attributes):
    node = helper.make_node(op_type, ["x"], ["y"], domain=ML, **attributes)
    y = helper.make_value_info("y", out_type) if out_type else onnx.ValueInfoProto(name="y")
    graph = helper.make_graph([node], "test", [helper.make_value_info("x", in_type)], [y])
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", NEWEST), helper.make_opsetid(ML, 5)])
    return onnx_torch.backend.prepare(model).run([value])[0]


@pytest.mark.parametrize("labels", [{"classlabels_strings": ["a", "b", "c"]}, {"classlabels_int64s": [7, 5, 3]}])
def test_zip_map(labels):
    keys = next(iter(labels.values()))
    x = np.array([[1, 2, 3], [4, 5, 6]], dtype=np.float32)
    assert run_ml("ZipMap", [x], **labels)[0] == [dict(zip(keys, row, strict=True)) for row in x.tolist()]
    assert run_ml("ZipMap", [x[0]], **labels)[0] == [dict(zip(keys, x[0].tolist(), strict=True))]
    assert run_ml("ZipMap", [x[:0]], **labels)[0] == []
    with pytest.raises(onnx_torch.Error, match=r"ZipMap \(opset \d+\): 2 columns cannot have 3 labels"):
        run_ml("ZipMap", [x[:, :2]], **labels)


@pytest.mark.parametrize("value_type", [TensorProto.FLOAT, TensorProto.DOUBLE, TensorProto.INT64])
def test_dict_vectorizer(value_type):
    y = run_map_op(
        "DictVectorizer",
        {"a": 4, "c": 8},
        map_type(TensorProto.STRING, value_type),
        string_vocabulary=["a", "c", "b", "z"],
    )
    assert y.tolist() == [[4, 8, 0, 0]] and y.dtype == helper.tensor_dtype_to_np_dtype(value_type)


def test_dict_vectorizer_of_strings():
    of_strings = map_type(TensorProto.INT64, TensorProto.STRING)
    y = run_map_op("DictVectorizer", {5: "q", 9: "r"}, of_strings, int64_vocabulary=[9, 7, 5])
    assert y.tolist() == [["r", "", "q"]]
    with pytest.raises(onnx_torch.Error, match="vocabulary and the keys"):
        run_map_op("DictVectorizer", {5: "q"}, of_strings, string_vocabulary=["9"])


CAST = {"TO_FLOAT": [-2.0, 1.5], "TO_INT64": [-2, 1], "TO_STRING": ["-2.0", "1.5"]}


@pytest.mark.parametrize("to, dense", CAST.items())
def test_cast_map(to, dense):
    of_floats = map_type(TensorProto.INT64, TensorProto.FLOAT)
    x, zero = {3: 1.5, 1: -2.0}, type(dense[0])()
    assert run_map_op("CastMap", x, of_floats, cast_to=to).tolist() == [dense]
    y = run_map_op("CastMap", x, of_floats, cast_to=to, map_form="SPARSE", max_map=5)
    assert y.tolist() == [[zero, dense[0], zero, dense[1], zero]]
    with pytest.raises(onnx_torch.RunError, match=r"CastMap \(opset \d+\): a key is not in 0..max_map - 1"):
        run_map_op("CastMap", x, of_floats, cast_to=to, map_form="SPARSE", max_map=3)


@pytest.mark.parametrize(
    "key, value, x, what",
    [
        ("string", "float", {1: 1.5}, "1 is no string"),
        ("string", "float", {"a": "z"}, "'z' is no float"),
        ("string", "float", 3, "what came is <class 'int'>"),
        ("string", "float", np.ones(2), "what came is <class 'numpy.ndarray'>"),
        ("string", "float", {"a": [1.0, 2.0], "b": 1.0}, ""),
        ("int64", "string", {1: 1}, "1 is no string"),
        ("int64", "float", {"a": 1.5}, "'a' is no int64"),
        ("int64", "float", {1.5: 1.5}, "1.5 is no int64"),
        ("int64", "float", {2**70: 1.5}, ""),
    ],
    ids=str,
)
def test_what_is_no_map_is_an_input_error(key, value, x, what):
    of_map = map_type(getattr(TensorProto, key.upper()), getattr(TensorProto, value.upper()))
    vocabulary = {"string_vocabulary": ["a"]} if key == "string" else {"int64_vocabulary": [1]}
    with pytest.raises(onnx_torch.InputError, match=rf'the input "x0?" must be a dictionary \(map\({key},.*{what}'):
        run_map_op("DictVectorizer", x, of_map, **vocabulary)


def test_a_map_may_be_of_numpy_s_numbers():
    of_map = map_type(TensorProto.INT64, TensorProto.FLOAT)
    x = {np.int32(1): np.float64(1.5), 2: np.array(2.5)}
    assert run_map_op("DictVectorizer", x, of_map, int64_vocabulary=[1, 2]).tolist() == [[1.5, 2.5]]


def test_cast_map_of_strings():
    of_strings = map_type(TensorProto.INT64, TensorProto.STRING)
    assert run_map_op("CastMap", {2: "2.5", 0: "4"}, of_strings).tolist() == [[4.0, 2.5]]
    y = run_map_op("CastMap", {2: "5", 0: "4"}, of_strings, cast_to="TO_INT64", map_form="SPARSE", max_map=3)
    assert y.tolist() == [[4, 0, 5]]


def test_a_sequence_of_maps_goes_in_and_out():
    maps = helper.make_sequence_type_proto(map_type(TensorProto.STRING, TensorProto.FLOAT))
    x = helper.make_value_info("x", maps)
    prepared = onnx_torch.backend.prepare(helper.make_model(helper.make_graph([], "test", [x], [x])))
    for value in ([{"a": 1.0, "b": 2.0}, {"c": 3.0}], []):
        assert prepared.run([value])[0] == value


# --- Linear models and support vector machines


@pytest.mark.parametrize("how", TRANSFORMS)
def test_post_transform(how):
    x = np.array([[0.2, 0.7, 0.1], [0.5, 0.0, 0.9], [0.0, 0.0, 0.0], [0.01, 0.99, 0.3]], dtype=np.float32)
    if how != "PROBIT":
        x = np.concatenate([x, 10 * x - 5, -100 * x])
    by_name = dict(zip(TRANSFORMS, [np.copy, softmax, logistic, softmax_zero, probit], strict=True))
    (y,) = run_ml("LinearRegressor", [x], targets=3, coefficients=np.eye(3).ravel().tolist(), post_transform=how)
    expected = by_name[how](x.copy())
    if how == "PROBIT":  # of which the reference implementation makes zero at 0, where it has no limit
        assert np.isneginf(y[x == 0]).all()
        y[x == 0] = 0
    np.testing.assert_allclose(y, expected, rtol=1e-5, atol=1e-6)


def rows(element, count=7, features=3, seed=0):
    x = np.random.default_rng(seed).normal(scale=2, size=(count, features))
    return x.astype(element)


@pytest.mark.parametrize("element", NUMBERS)
@pytest.mark.parametrize("targets", [1, 2])
@pytest.mark.parametrize("intercepts", [None, [0.5, -1.0]])
def test_linear_regressor(element, targets, intercepts):
    x, weights = rows(element), rows(np.float64, targets, seed=1)
    attributes = {"coefficients": weights.ravel().tolist(), "targets": targets}
    if intercepts:
        attributes["intercepts"] = intercepts[:targets]
    (found,) = run_ml("LinearRegressor", [x], **attributes)
    assert found.dtype == np.float32
    assert_close(found, x.astype(np.float64) @ weights.T + (intercepts or [0, 0])[:targets])


LABELS = {"ints": [30, 10, 20], "strings": ["c", "a", "b"]}


@pytest.mark.parametrize("how", TRANSFORMS[:4])
@pytest.mark.parametrize("labels", LABELS)
@pytest.mark.parametrize("element", NUMBERS)
def test_linear_classifier(how, labels, element):
    x, weights = rows(element), rows(np.float64, 3, seed=1)
    attributes = {"coefficients": weights.ravel().tolist(), "intercepts": [0.1, 0.2, -0.3], "post_transform": how}
    attributes[f"classlabels_{labels}"] = LABELS[labels]
    elements = [TensorProto.INT64 if labels == "ints" else TensorProto.STRING, TensorProto.FLOAT]
    expected = onnxruntime_ml("LinearClassifier", [x], elements, **attributes)
    assert_same(run_ml("LinearClassifier", [x], outputs=2, **attributes), expected, rtol=1e-4)


@pytest.mark.parametrize("how", TRANSFORMS[:4])
@pytest.mark.parametrize("labels", [[5, 7], [7]])
def test_linear_classifier_of_one_score(how, labels):
    x = rows(np.float32)
    attributes = {"coefficients": [1.0, -2.0, 0.5], "intercepts": [0.1], "classlabels_ints": labels}
    attributes["post_transform"] = how
    y, scores = run_ml("LinearClassifier", [x], outputs=2, **attributes)
    expected = reference_ml("LinearClassifier", [x], outputs=2, **attributes)
    assert_same([scores], expected[1:])
    if len(labels) == 2 or not how.startswith("SOFTMAX"):  # one score alone is 1 after SOFTMAX, whatever it was
        assert_same([y], expected[:1])


KERNELS = {"LINEAR": [0.0, 0.0, 0.0], "RBF": [0.3, 0.0, 0.0], "POLY": [0.5, 1.0, 3.0], "SIGMOID": [0.1, 0.2, 0.0]}


@pytest.mark.parametrize("kernel", KERNELS)
@pytest.mark.parametrize("one_class", [0, 1])
@pytest.mark.parametrize("supports", [0, 4])
@pytest.mark.parametrize("element", [np.float32, np.float64])
def test_svm_regressor(kernel, one_class, supports, element):
    x, vectors = rows(element), rows(np.float64, supports, seed=1)
    attributes = {
        "coefficients": [0.5, -1.0, 0.25, 1.5][: supports or 3],
        "kernel_params": KERNELS[kernel],
        "kernel_type": kernel,
        "n_supports": supports,
        "one_class": one_class,
        "rho": [-0.2],
    }
    if supports:
        attributes["support_vectors"] = vectors.ravel().tolist()
    expected = reference_ml("SVMRegressor", [x], **attributes)[0].astype(np.float32)
    assert_same(run_ml("SVMRegressor", [x], **attributes), [expected], rtol=1e-4, atol=1e-4)


def classifier_attributes(per_class, kernel, probabilities, labels):
    classes, vectors = len(per_class), sum(per_class)
    rng = np.random.default_rng(3)
    pairs = classes * (classes - 1) // 2
    attributes = {
        "coefficients": rng.normal(size=(classes - 1) * vectors).astype(np.float32).tolist(),
        "kernel_params": KERNELS[kernel],
        "kernel_type": kernel,
        "rho": rng.normal(size=pairs).tolist(),
        "support_vectors": rng.normal(size=3 * vectors).tolist(),
        "vectors_per_class": per_class,
        f"classlabels_{labels}": ([*LABELS[labels], *LABELS[labels]])[:classes],
    }
    if probabilities:
        attributes |= {"prob_a": rng.normal(size=pairs).tolist(), "prob_b": rng.normal(size=pairs).tolist()}
    return attributes


@pytest.mark.parametrize("kernel", KERNELS)
@pytest.mark.parametrize("probabilities", [False, True])
@pytest.mark.parametrize("per_class", [[2, 3], [2, 1, 3], [1, 2, 2, 1]])
@pytest.mark.parametrize("how", ["NONE", "LOGISTIC", "SOFTMAX"])
def test_svm_classifier(kernel, probabilities, per_class, how):
    x = rows(np.float32, 9)
    attributes = classifier_attributes(per_class, kernel, probabilities, "ints") | {"post_transform": how}
    actual = run_ml("SVMClassifier", [x], outputs=2, **attributes)
    # onnxruntime leaves SOFTMAX out for two classes without probabilities.
    if probabilities or len(per_class) > 2 or how != "SOFTMAX":
        expected = onnxruntime_ml("SVMClassifier", [x], [TensorProto.INT64, TensorProto.FLOAT], **attributes)
        assert_same(actual, expected, rtol=1e-5, atol=1e-5)
    # The reference implementation couples the probabilities of more than two classes otherwise than libsvm.
    if not probabilities or len(per_class) == 2:
        expected = reference_ml("SVMClassifier", [x], outputs=2, **attributes)
        assert_same(actual, expected, rtol=1e-5, atol=1e-5)


# --- Support vector machines beside float64


def kernel_values(x, vectors, kernel, gamma, coef0, degree):
    x, vectors = x.astype(np.float64), vectors.astype(np.float64)
    if kernel == "RBF":
        return np.exp(-gamma * np.square(x[:, None] - vectors).sum(-1))
    products = x @ vectors.T
    if kernel == "LINEAR":
        return products
    return np.tanh(gamma * products + coef0) if kernel == "SIGMOID" else (gamma * products + coef0) ** degree


def machine(kernel, per_class, features, element, count, shift=0.0):
    """Makes rows, the attributes of a classifier, and the scores of its pairs in float64."""
    rng = np.random.default_rng(7)
    classes, vectors = len(per_class), sum(per_class)
    params = [1 / features, 0.5, 3.0]
    points = (rng.normal(size=(vectors, features)) + shift).astype(np.float32)
    coefficients = rng.normal(size=(max(classes - 1, 1), vectors)).astype(np.float32)
    rho = rng.normal(size=max(classes * (classes - 1) // 2, 1)).astype(np.float32)
    x = (rng.normal(size=(count, features)) + shift).astype(element)
    attributes = {
        "coefficients": coefficients.ravel().tolist(),
        "kernel_params": params,
        "kernel_type": kernel,
        "rho": rho.tolist(),
        "support_vectors": points.ravel().tolist(),
    }
    values = kernel_values(x, points, kernel, *[float(np.float32(p)) for p in params])
    if classes == 1:
        return x, attributes, values @ coefficients.astype(np.float64).T + rho
    classes_of = np.repeat(np.arange(classes), per_class)
    scores = []
    for i, j in itertools.combinations(range(classes), 2):
        weights = np.where(classes_of == i, coefficients[j - 1], np.where(classes_of == j, coefficients[i], 0))
        scores.append(values @ weights.astype(np.float64) + rho[len(scores)])
    attributes |= {"classlabels_ints": list(range(classes)), "vectors_per_class": per_class}
    return x, attributes, np.stack(scores, 1)


def assert_exact(actual, expected, onnxruntimes, ulps=1.0):
    """Checks that scores are within so many ulps of the largest score, and no further off than onnxruntime's."""
    largest = np.abs(expected).max()
    error = np.abs(actual.reshape(expected.shape) - expected).max()
    assert error <= ulps * np.spacing(np.float32(largest)), f"{error / np.spacing(np.float32(largest))} ulps"
    assert error <= np.abs(onnxruntimes.reshape(expected.shape) - expected).max()


@pytest.mark.parametrize("kernel", KERNELS)
@pytest.mark.parametrize(
    ("vectors", "features", "count"),
    [(1, 1, 9), (7, 3, 11), (100, 12, 1), (333, 33, 67), (64, 300, 130), (200, 5, 0)],
)
def test_svm_regressor_beside_float64(kernel, vectors, features, count):
    x, attributes, expected = machine(kernel, [vectors], features, np.float32, count)
    attributes |= {"n_supports": vectors}
    actual = run_ml("SVMRegressor", [x], **attributes)[0]
    assert actual.shape == (count, 1)
    if count:
        # Products of many features are added up in floats.
        ulps = 1 if kernel in ("LINEAR", "RBF") or features <= 32 else 4
        assert_exact(actual, expected, onnxruntime_ml("SVMRegressor", [x], [TensorProto.FLOAT], **attributes)[0], ulps)


@pytest.mark.parametrize("kernel", KERNELS)
@pytest.mark.parametrize("per_class", [[30, 21], [5, 40, 17, 2], [9] * 7])
@pytest.mark.parametrize("probabilities", [False, True])
def test_svm_classifier_beside_float64(kernel, per_class, probabilities):
    x, attributes, scores = machine(kernel, per_class, 6, np.float32, 100)
    if probabilities:
        rng = np.random.default_rng(8)
        a, b = -np.abs(rng.normal(size=scores.shape[1])), rng.normal(size=scores.shape[1])
        attributes |= {"prob_a": a.tolist(), "prob_b": b.tolist()}
        expected = coupled(1 / (1 + np.exp(scores * a.astype(np.float32) + b.astype(np.float32))), len(per_class))
    else:
        expected = np.concatenate([-scores, scores], 1) if len(per_class) == 2 else scores
    labels, actual = run_ml("SVMClassifier", [x], outputs=2, **attributes)
    theirs = onnxruntime_ml("SVMClassifier", [x], [TensorProto.INT64, TensorProto.FLOAT], **attributes)
    assert_exact(actual, expected, theirs[1])
    np.testing.assert_array_equal(labels, theirs[0])


def coupled(pairs, classes):
    """Computes the probabilities of all classes from those of each two, as libsvm finds them."""
    matrix = torch.zeros(len(pairs), classes, classes, dtype=torch.float64)
    first, second = np.triu_indices(classes, 1)
    of_first = torch.tensor(np.clip(pairs, 1e-7, 1 - 1e-7))
    matrix[:, first, second], matrix[:, second, first] = of_first, 1 - of_first
    return torch.ops.onnx_torch.multiclass_probability(matrix).numpy()


# Far from zero |x|^2 + |v|^2 - 2xv would leave nothing of the distances.
def test_svm_of_near_points_far_from_zero():
    x, attributes, expected = machine("RBF", [50], 4, np.float32, 20, shift=1e5)
    assert np.ptp(expected) > 0.1
    actual = run_ml("SVMRegressor", [x], n_supports=50, **attributes)[0]
    assert_exact(
        actual, expected, onnxruntime_ml("SVMRegressor", [x], [TensorProto.FLOAT], n_supports=50, **attributes)[0]
    )


def svm_each_way(x, **attributes):
    """Gives what SVMRegressor gives not optimized, optimized, and by its plan."""
    model = op_model("SVMRegressor", [x], opset=5, domain=ML, **attributes)
    model.graph.input[0].CopyFrom(
        helper.make_tensor_value_info("x0", model.graph.input[0].type.tensor_type.elem_type, [None, None])
    )
    yield onnx_torch.prepare(model, optimize=False).run([x])[0]
    prepared = onnx_torch.prepare(model)
    assert (
        "onnx_torch::support_vectors" in (graph := prepared.graphs()["kernels"]) or "onnx_torch::double_linear" in graph
    )
    yield from (prepared.run([x])[0] for _ in range(3))
    assert prepared.plans()


DEGREES = [0.0, 1.0, 2.0, 5.0, 64.0, 2.5, -1.0]  # of POLY; the others have none


@pytest.mark.parametrize(("kernel", "degree"), [*((k, 3.0) for k in KERNELS), *(("POLY", d) for d in DEGREES)])
@pytest.mark.parametrize("element", [np.float32, np.float64, np.int64])
def test_svm_of_each_type_and_degree(kernel, element, degree):
    x, attributes, _ = machine(kernel, [37], 5, element, 50)
    attributes["kernel_params"] = params = [0.25, 2.0, degree]
    values = kernel_values(x, np.reshape(attributes["support_vectors"], [-1, 5]).astype(np.float32), kernel, *params)
    if degree == 2.5 and element != np.int64:
        assert np.isnan(values).any()  # of products below zero
    expected = (values @ np.array(attributes["coefficients"]) + attributes["rho"]).astype(np.float32)[:, None]
    largest = np.nanmax(np.abs(expected), initial=0)
    for actual in svm_each_way(x, n_supports=37, **attributes):
        assert_same([actual], [expected], rtol=0, atol=2 * np.spacing(np.float32(largest)))


def test_svm_of_infinities():
    x = np.array([[np.inf, 0], [np.nan, 0], [3e38, 0], [-np.inf, np.inf]], np.float32)
    attributes = {"coefficients": [1.0, -2.0], "kernel_params": [0.5, 0.0, 3.0], "kernel_type": "RBF", "rho": [0.25]}
    attributes |= {"n_supports": 2, "support_vectors": [0.0, 0.0, 1.0, 1.0]}
    expected = np.array([[0.25], [np.nan], [0.25], [0.25]], np.float32)
    for actual in svm_each_way(x, **attributes):
        assert_same([actual], [expected])


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        ({"rho": [0.0, 1.0]}, "rho has 2 numbers for 1 scores"),
        ({"support_vectors": [1.0] * 7}, "support_vectors are 7 numbers for 3 vectors"),
        ({"kernel_type": "COSINE"}, "kernel_type is LINEAR, POLY, RBF or SIGMOID"),
        ({"kernel_params": [1.0]}, "kernel_params are gamma, coef0 and degree"),
    ],
)
def test_svm_with_wrong_attributes(wrong, message):
    attributes = {"coefficients": [1.0, -2.0, 0.5], "kernel_params": [0.5, 0.0, 3.0], "kernel_type": "RBF"}
    attributes |= {"n_supports": 3, "rho": [0.25], "support_vectors": [1.0] * 6} | wrong
    with pytest.raises(onnx_torch.Error, match=message):
        run_ml("SVMRegressor", [np.zeros((2, 2), np.float32)], **attributes)


def test_svm_without_coefficients():
    attributes = {"n_supports": 3, "rho": [0.25], "support_vectors": [1.0] * 6, "kernel_type": "RBF"}
    with pytest.raises(onnx_torch.Error, match="SVMRegressor.*(6 numbers for 0 vectors|coefficients)"):
        run_ml("SVMRegressor", [np.zeros((2, 2), np.float32)], **attributes)


@pytest.mark.parametrize("kernel", KERNELS)
def test_svm_with_other_features(kernel):
    attributes = {"coefficients": [1.0, -2.0, 0.5], "kernel_params": [0.5, 0.0, 3.0], "kernel_type": kernel}
    attributes |= {"n_supports": 3, "rho": [0.25], "support_vectors": [1.0] * 6}
    with pytest.raises(onnx_torch.Error, match="SVMRegressor"):
        run_ml("SVMRegressor", [np.zeros((2, 3), np.float32)], **attributes)


@pytest.mark.parametrize("labels", LABELS)
def test_svm_classifier_without_support_vectors(labels):
    x, weights = rows(np.float32), rows(np.float32, 3, seed=1)
    attributes = {"coefficients": weights.ravel().tolist(), "rho": [0.3], f"classlabels_{labels}": LABELS[labels]}
    y, scores = run_ml("SVMClassifier", [x], outputs=2, **attributes)
    expected = x.astype(np.float64) @ weights.T + 0.3
    assert_close(scores, expected)
    assert y.tolist() == [LABELS[labels][i] for i in expected.argmax(1)]


# --- Trees: two of them, of two branches and three leaves each, with a vote at each leaf

LEAF_MODES = ["LEAF"] * 3
NODES = {
    "nodes_treeids": [0] * 5 + [1] * 5,
    "nodes_nodeids": [0, 1, 2, 3, 4] * 2,
    "nodes_featureids": [0, 1, 0, 0, 0, 2, 0, 0, 0, 0],
    "nodes_modes": ["BRANCH_LEQ", "BRANCH_LT", *LEAF_MODES, "BRANCH_GT", "BRANCH_GTE", *LEAF_MODES],
    "nodes_values": [0.5, -0.25, 0.0, 0.0, 0.0, 0.0, 1.0, 0.0, 0.0, 0.0],
    "nodes_truenodeids": [1, 3, 0, 0, 0] * 2,
    "nodes_falsenodeids": [2, 4, 0, 0, 0] * 2,
    "nodes_missing_value_tracks_true": [1, 0, 0, 0, 0, 0, 1, 0, 0, 0],
}
LEAVES = {"treeids": [0] * 3 + [1] * 3, "nodeids": [2, 3, 4] * 2}
WEIGHTS = [0.5, 0.25, 0.125, 0.0625, 0.375, 0.75]


def tree_attributes(votes, ids, weights=WEIGHTS, double=False, **more):
    """Makes the attributes of a list of nodes; `votes` is "target" or "class"."""
    attributes = NODES | {f"{votes}_{name}": value for name, value in LEAVES.items()}
    attributes |= {f"{votes}_ids": ids, f"{votes}_weights": weights} | more
    if double:
        for name in ("nodes_values", f"{votes}_weights"):
            values = np.array(attributes.pop(name))
            attributes[f"{name}_as_tensor"] = from_array(values)
    return attributes


@pytest.mark.parametrize("opset", [1, 3, 5])
@pytest.mark.parametrize("aggregate", ["SUM", "AVERAGE", "MIN", "MAX"])
@pytest.mark.parametrize("element", NUMBERS)
@pytest.mark.parametrize("double", [False, True])
def test_tree_ensemble_regressor(opset, aggregate, element, double):
    if double and opset == 1:
        pytest.skip("TreeEnsembleRegressor-1 has no tensors")
    x = rows(element, 20)
    if x.dtype.kind == "f":
        x[3:6] = np.nan
    options = {"ids": [0, 1, 0, 1, 1, 0], "n_targets": 2, "aggregate_function": aggregate}
    actual = run_ml("TreeEnsembleRegressor", [x], opset, **tree_attributes("target", double=double, **options))
    plain = tree_attributes("target", **options)
    assert_same(actual, onnxruntime_ml("TreeEnsembleRegressor", [x.astype(np.float32)], [TensorProto.FLOAT], **plain))


# onnxruntime leaves out the base value of a target without votes, so that all have some where there are base values.
EACH_TREE_ITS_OWN = [0, 0, 0, 1, 1, 1]


@pytest.mark.parametrize("how", TRANSFORMS[:4])
def test_tree_ensemble_regressor_post_transform(how):
    x = rows(np.float32, 20)
    attributes = tree_attributes("target", EACH_TREE_ITS_OWN, n_targets=2, base_values=[-0.5, 0.25])
    expected = onnxruntime_ml("TreeEnsembleRegressor", [x], [TensorProto.FLOAT], post_transform=how, **attributes)
    assert_same(run_ml("TreeEnsembleRegressor", [x], post_transform=how, **attributes), expected)


@pytest.mark.parametrize("how", TRANSFORMS[:4])
@pytest.mark.parametrize("labels", ["int64s", "strings"])
@pytest.mark.parametrize("base_values", [None, [0.1, -0.5, 0.0]])
@pytest.mark.parametrize("double", [False, True])
def test_tree_ensemble_classifier(how, labels, base_values, double):
    x = rows(np.float32, 20)
    more = {"post_transform": how, f"classlabels_{labels}": LABELS[labels.replace("int64s", "ints")]}
    if base_values:
        more["base_values"] = base_values
    ids = EACH_TREE_ITS_OWN if base_values else [0, 1, 2, 1, 0, 2]
    attributes = tree_attributes("class", ids, **more)
    elements = [TensorProto.INT64 if labels == "int64s" else TensorProto.STRING, TensorProto.FLOAT]
    expected = onnxruntime_ml("TreeEnsembleClassifier", [x], elements, **attributes)
    attributes = tree_attributes("class", ids, double=double, **more)
    assert_same(run_ml("TreeEnsembleClassifier", [x], opset=3, outputs=2, **attributes), expected)


@pytest.mark.parametrize("how", TRANSFORMS)
@pytest.mark.parametrize("voted", [0, 1])
def test_tree_ensemble_classifier_by_one_class(how, voted):
    x, labels = rows(np.float32, 20), [5, 7]
    attributes = tree_attributes("class", [voted] * 6, classlabels_int64s=labels, post_transform=how)
    y, scores = run_ml("TreeEnsembleClassifier", [x], outputs=2, **attributes)
    # The reference implementation looks at column 0 only.
    reference = attributes | {"class_ids": [0] * 6}
    expected = reference_ml("TreeEnsembleClassifier", [x], outputs=2, **reference)
    finite = np.isfinite(expected[1]) & np.isfinite(scores)  # as PROBIT is not at 0 and 1
    np.testing.assert_allclose(scores[finite], expected[1][finite], rtol=1e-4, atol=1e-5)
    p = run_ml("TreeEnsembleRegressor", [x], n_targets=1, **tree_attributes("target", [0] * 6))[0][:, 0]
    threshold = 0.5 if how in ("NONE", "PROBIT") else 0.0
    assert y.tolist() == [labels[int(v > threshold)] for v in p]


@pytest.mark.parametrize("how", TRANSFORMS)
@pytest.mark.parametrize("base_values", [None, [-0.5], [0.25]])
def test_tree_ensemble_classifier_of_one_class(how, base_values):
    x = rows(np.float32, 20)
    more = {"base_values": base_values} if base_values else {}
    attributes = tree_attributes("class", [0] * 6, classlabels_int64s=[1], post_transform=how, **more)
    expected = onnxruntime_ml("TreeEnsembleClassifier", [x], [TensorProto.INT64, TensorProto.FLOAT], **attributes)
    y, scores = run_ml("TreeEnsembleClassifier", [x], opset=3, outputs=2, **attributes)
    assert scores.shape == expected[1].shape == (20, 1)
    assert y.tolist() == expected[0].tolist()
    assert len(set(y.tolist())) == (2 if base_values == [-0.5] else 1)
    finite = np.isfinite(expected[1])  # as PROBIT is not outside of 0 and 1
    np.testing.assert_allclose(scores[finite], expected[1][finite], rtol=1e-4, atol=1e-5)
    for labels in ({"classlabels_int64s": [7]}, {"classlabels_strings": ["b"]}):  # of which onnxruntime knows none
        named = {k: v for k, v in attributes.items() if not k.startswith("classlabels")} | labels
        (label,) = next(iter(labels.values()))
        z = run_ml("TreeEnsembleClassifier", [x], opset=3, outputs=2, **named)[0]
        assert z.tolist() == [label if v else type(label)() for v in y.tolist()]


@pytest.mark.parametrize("element", [np.float32, np.float64, np.float16])
@pytest.mark.parametrize("aggregate", range(4))
@pytest.mark.parametrize("post_transform", range(4))
def test_tree_ensemble(element, aggregate, post_transform):
    def stored(values, dtype=element):
        return from_array(np.array(values, dtype=dtype))

    x = rows(element, 20)
    attributes = {
        "nodes_featureids": [0, 1, 2],
        "nodes_modes": stored([0, 6, 3], np.uint8),
        "nodes_splits": stored([0.5, 0.0, 0.25]),
        "membership_values": stored([x[0, 1], x[5, 1], np.nan]),
        "nodes_truenodeids": [1, 1, 3],
        "nodes_trueleafs": [0, 1, 1],
        "nodes_falsenodeids": [0, 2, 4],
        "nodes_falseleafs": [1, 1, 1],
        "tree_roots": [0, 2],
        "leaf_targetids": [0, 1, 0, 1, 0],
        "leaf_weights": stored([0.5, 0.25, -0.75, 1.5, 0.125]),
        "n_targets": 2,
        "aggregate_function": aggregate,
    }
    leaf = np.where(x[:, 0] > np.array(0.5, dtype=element), 0, np.where(np.isin(x[:, 1], x[[0, 5], 1]), 1, 2))
    votes = np.full((20, 2, 2), np.nan)
    for row in range(20):
        for tree, at in enumerate((leaf[row], 3 if x[row, 2] > 0.25 else 4)):
            votes[row, tree, [0, 1, 0, 1, 0][at]] = [0.5, 0.25, -0.75, 1.5, 0.125][at]
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of targets without votes, which are zero
        scores = [np.nansum(votes, 1) / 2, np.nansum(votes, 1), np.nanmin(votes, 1), np.nanmax(votes, 1)][aggregate]
    scores = np.nan_to_num(scores)
    expected = [np.copy, softmax, logistic, softmax_zero][post_transform](scores.copy()).astype(element)
    few = (1 if element is np.float16 else 8) * float(np.finfo(element).eps)
    actual = run_ml("TreeEnsemble", [x], post_transform=post_transform, **attributes)
    assert_same(actual, [expected], rtol=few, atol=min(few, 1e-6))
