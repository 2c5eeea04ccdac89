"""Models of scikit-learn, exported by skl2onnx: the whole pipeline gives what scikit-learn gives."""

import numpy as np
import pytest

import onnx_torch
from random_numbers import RNG

skl2onnx = pytest.importorskip("skl2onnx")

from skl2onnx.common.data_types import FloatTensorType, Int64TensorType, StringTensorType  # noqa: E402
from sklearn import (  # noqa: E402
    cluster,
    compose,
    decomposition,
    ensemble,
    feature_extraction,
    gaussian_process,
    impute,
    linear_model,
    naive_bayes,
    neighbors,
    neural_network,
    pipeline,
    preprocessing,
    svm,
    tree,
)

pytestmark = pytest.mark.filterwarnings("ignore")

ROWS = 60
Y = np.arange(ROWS) % 3
X = np.random.default_rng(4).normal(size=(ROWS, 4)).astype(np.float32)
X[:, 0] += Y

KERNELS = {
    "linear": {"kernel": "linear"},
    "poly": {"kernel": "poly", "degree": 2, "coef0": 1.0},
    "rbf": {"kernel": "rbf"},
    "sigmoid": {"kernel": "sigmoid", "gamma": 0.1},
}
SMALL = {"max_depth": 4, "random_state": 0}


def classifiers():
    yield linear_model.LogisticRegression()
    yield linear_model.LogisticRegression(C=0.1, fit_intercept=False)
    yield linear_model.RidgeClassifier()
    yield linear_model.SGDClassifier(random_state=0)
    yield linear_model.Perceptron(random_state=0)
    yield svm.LinearSVC()
    for options in KERNELS.values():
        yield svm.SVC(**options)
        yield svm.SVC(probability=True, random_state=0, **options)
        if options["kernel"] != "linear":  # whose coefficients need more digits than the model's floats have
            yield svm.NuSVC(nu=0.8, **options)
    yield tree.DecisionTreeClassifier(**SMALL)
    yield tree.ExtraTreeClassifier(**SMALL)
    yield ensemble.RandomForestClassifier(8, **SMALL)
    yield ensemble.ExtraTreesClassifier(8, **SMALL)
    yield ensemble.GradientBoostingClassifier(n_estimators=5, **SMALL)
    yield ensemble.AdaBoostClassifier(n_estimators=5, random_state=0)
    yield ensemble.BaggingClassifier(tree.DecisionTreeClassifier(**SMALL), 5, random_state=0)
    voters = [("a", linear_model.LogisticRegression()), ("b", naive_bayes.GaussianNB())]
    yield ensemble.VotingClassifier(voters, voting="soft", flatten_transform=False)
    yield neighbors.KNeighborsClassifier(3)
    yield naive_bayes.GaussianNB()
    yield neural_network.MLPClassifier((8,), max_iter=30, random_state=0)
    scaled = preprocessing.StandardScaler(), preprocessing.Normalizer()
    yield pipeline.make_pipeline(*scaled, linear_model.LogisticRegression())


def regressors():
    yield linear_model.LinearRegression()
    yield linear_model.Lasso(alpha=0.01)
    yield linear_model.PoissonRegressor()
    for options in KERNELS.values():
        yield svm.SVR(**options)
        yield svm.NuSVR(**options)
    yield svm.LinearSVR()
    yield tree.DecisionTreeRegressor(**SMALL)
    yield ensemble.RandomForestRegressor(8, **SMALL)
    yield ensemble.ExtraTreesRegressor(8, **SMALL)
    yield ensemble.GradientBoostingRegressor(n_estimators=5, **SMALL)
    yield neighbors.KNeighborsRegressor(3)
    yield gaussian_process.GaussianProcessRegressor(alpha=0.1)
    yield neural_network.MLPRegressor(hidden_layer_sizes=(8,), max_iter=30, random_state=0)


def outlier_detectors():
    for options in KERNELS.values():
        yield svm.OneClassSVM(**options)
    yield ensemble.IsolationForest(n_estimators=5, random_state=0)


def transformers():
    yield preprocessing.StandardScaler()
    yield preprocessing.MinMaxScaler()
    yield preprocessing.MaxAbsScaler()
    yield preprocessing.RobustScaler()
    for norm in ("l1", "l2", "max"):
        yield preprocessing.Normalizer(norm)
    yield preprocessing.Binarizer(threshold=0.5)
    yield preprocessing.PolynomialFeatures(2)
    yield preprocessing.KBinsDiscretizer(3, encode="onehot-dense", quantile_method="averaged_inverted_cdf")
    yield preprocessing.PowerTransformer()
    for strategy in ("mean", "median", "most_frequent", "constant"):
        yield impute.SimpleImputer(strategy=strategy)
    yield decomposition.PCA(2)
    yield decomposition.TruncatedSVD(2, random_state=0)
    yield cluster.KMeans(3, n_init=1, random_state=0)
    yield pipeline.FeatureUnion([("a", preprocessing.StandardScaler()), ("b", preprocessing.MinMaxScaler())])


def described(model):
    told = {"kernel", "norm", "strategy", "probability"} & set(model.get_params(deep=False))
    return " ".join([type(model).__name__, *(str(getattr(model, name)) for name in sorted(told))])


def run(model, x, **options):
    opsets = {"": 21, "ai.onnx.ml": 3}  # the newest that all of its converters know
    exported = skl2onnx.to_onnx(model, x[:1], options={id(model): options} if options else None, target_opset=opsets)
    return onnx_torch.backend.prepare(exported).run([x])


def assert_close(actual, expected):
    np.testing.assert_allclose(np.reshape(actual, np.shape(expected)), expected, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("labels", ["three strings", "two ints"])
@pytest.mark.parametrize("model", list(classifiers()), ids=described)
def test_classifier(model, labels):
    y = np.array(["c", "a", "b"])[Y] if labels == "three strings" else Y // 2
    if labels == "two ints" and isinstance(model, svm.NuSVC):
        model = svm.NuSVC(nu=0.6, kernel=model.kernel, degree=model.degree, coef0=model.coef0, gamma=model.gamma)
    model.fit(X, y)
    without_option = isinstance(model, svm.LinearSVC | ensemble.VotingClassifier)
    predicted, scores = run(model, X) if without_option else run(model, X, zipmap=False)
    if isinstance(scores, list):
        scores = [list(row.values()) for row in scores]
    probabilities = hasattr(model, "predict_proba")
    expected = model.predict_proba(X) if probabilities else model.decision_function(X)
    if probabilities or expected.ndim == 2:
        assert_close(scores, expected)
    else:  # one score for two classes
        assert_close(np.abs(scores).max(1), np.abs(expected))
    assert predicted.tolist() == model.predict(X).tolist()


@pytest.mark.parametrize("labels", ["ints", "strings"])
def test_zip_map(labels):
    y = {"ints": Y, "strings": np.array(["c", "a", "b"])[Y]}[labels]
    model = linear_model.LogisticRegression().fit(X, y)
    _, maps = run(model, X)
    assert [list(row) for row in maps] == [model.classes_.tolist()] * ROWS
    assert_close([list(row.values()) for row in maps], model.predict_proba(X))


@pytest.mark.parametrize("model", list(regressors()), ids=described)
def test_regressor(model):
    model.fit(X, Y.astype(np.float64))
    assert_close(run(model, X)[0], model.predict(X))


@pytest.mark.parametrize("targets", [2, 3])
def test_many_targets(targets):
    y = RNG.normal(size=(ROWS, targets))
    for model in (linear_model.LinearRegression(), ensemble.RandomForestRegressor(4, **SMALL)):
        assert_close(run(model.fit(X, y), X)[0], model.predict(X))


@pytest.mark.parametrize("model", list(outlier_detectors()), ids=described)
def test_outlier_detector(model):
    labels, scores = run(model.fit(X), X)
    assert_close(scores, model.decision_function(X))
    assert labels.ravel().tolist() == model.predict(X).tolist()


@pytest.mark.parametrize("model", list(transformers()), ids=described)
def test_transformer(model):
    # The largest value is that of the absolute ones in scikit-learn's Normalizer, but not in ONNX's.
    x = np.abs(X) if isinstance(model, preprocessing.Normalizer) and model.norm == "max" else X.copy()
    if isinstance(model, impute.SimpleImputer):
        x[::7, 1] = np.nan
    result = run(model.fit(x), x)
    assert_close(result[-1], model.transform(x))
    if isinstance(model, cluster.KMeans):
        assert result[0].tolist() == model.predict(x).tolist()


# --- Categories and dictionaries (skl2onnx writes text vectorizers with an operator of com.microsoft)

COLORS = np.array([["red", "s"], ["blue", "m"], ["red", "l"], ["green", "m"]] * 5, dtype=object)


@pytest.mark.parametrize(
    "model",
    [
        preprocessing.OneHotEncoder(sparse_output=False),
        preprocessing.OneHotEncoder(sparse_output=False, handle_unknown="ignore"),
        preprocessing.OrdinalEncoder(),
    ],
    ids=str,
)
@pytest.mark.parametrize("kind", ["strings", "ints"])
def test_encoder(model, kind):
    x = COLORS if kind == "strings" else np.array([[3, 1], [7, 2], [5, 2]] * 4)
    column = StringTensorType if kind == "strings" else Int64TensorType
    model.fit(x)
    exported = skl2onnx.to_onnx(model, initial_types=[("x", column([None, 2]))])
    assert_close(onnx_torch.backend.prepare(exported).run([x])[0], model.transform(x))


def test_label_encoder():
    model = preprocessing.LabelEncoder().fit(COLORS[:, 0])
    exported = skl2onnx.to_onnx(model, initial_types=[("x", StringTensorType([None]))])
    (y,) = onnx_torch.backend.prepare(exported).run([COLORS[:, 0]])
    assert y.tolist() == model.transform(COLORS[:, 0]).tolist()


def test_columns_of_numbers_and_strings():
    categories = preprocessing.OneHotEncoder(handle_unknown="ignore")
    columns = compose.ColumnTransformer(
        [("numbers", preprocessing.StandardScaler(), [0, 1]), ("categories", categories, [2, 3])]
    )
    model = pipeline.make_pipeline(columns, linear_model.LogisticRegression())
    table = np.concatenate([X[:20, :2].astype(object), COLORS], axis=1)
    model.fit(table, Y[:20])
    types = [("numbers", FloatTensorType([None, 2])), ("categories", StringTensorType([None, 2]))]
    exported = skl2onnx.to_onnx(model, initial_types=types, options={id(model): {"zipmap": False}})
    predicted, scores = onnx_torch.backend.prepare(exported).run([X[:20, :2], COLORS])
    assert predicted.tolist() == model.predict(table).tolist()
    assert_close(scores, model.predict_proba(table))


def test_dict_vectorizer():
    from skl2onnx.common.data_types import DictionaryType

    rows = [{"a": 1.0, "b": 2.0}, {"b": 3.0, "c": 4.0}]
    model = feature_extraction.DictVectorizer(sparse=False).fit(rows)
    types = [("x", DictionaryType(StringTensorType([1]), FloatTensorType([1])))]
    prepared = onnx_torch.backend.prepare(skl2onnx.to_onnx(model, initial_types=types))
    for row in rows:
        vector = prepared.run([row])[0]
        assert vector.shape == (1, 3)
        assert_close(vector, model.transform([row]))


@pytest.mark.parametrize("label", [0, 5, "rare"])
def test_a_forest_that_has_seen_one_class(label):
    model = ensemble.RandomForestClassifier(n_estimators=3, random_state=0).fit(X, np.full(ROWS, label))
    exported = skl2onnx.to_onnx(model, X, options={id(model): {"zipmap": False}})
    predicted, scores = onnx_torch.backend.prepare(exported).run([X])
    assert predicted.tolist() == model.predict(X).tolist()
    assert scores.shape == (ROWS, 1)
    assert_close(scores, model.predict_proba(X))
