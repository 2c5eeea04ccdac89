"""scikit-learn's models as graphs of ai.onnx.ml, on a hundred rows."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from .case import Case, Feeds

ROWS, FEATURES = 100, 20


def forest() -> Any:
    from sklearn.ensemble import RandomForestClassifier

    return RandomForestClassifier(100, max_depth=12, random_state=0)


def boosting() -> Any:
    from sklearn.ensemble import GradientBoostingRegressor

    return GradientBoostingRegressor(n_estimators=100, max_depth=4, random_state=0)


def scaled_regression() -> Any:
    from sklearn.linear_model import LogisticRegression
    from sklearn.pipeline import make_pipeline
    from sklearn.preprocessing import StandardScaler

    return make_pipeline(StandardScaler(), LogisticRegression())


def write_fitted(estimator: Callable[[], Any], file: Path) -> list[Feeds]:
    """Writes an estimator that is fitted to three classes, which a few of the features tell apart, with noise."""
    from skl2onnx import to_onnx

    random = np.random.default_rng(0)
    x = random.standard_normal((2000, FEATURES)).astype(np.float32)
    y = np.digitize(x[:, 0] * x[:, 1] + x[:, 2] + 0.3 * random.standard_normal(len(x)), [-0.5, 0.5])
    fitted = estimator().fit(x, y)
    options = {"zipmap": False} if hasattr(fitted, "predict_proba") else None
    file.write_bytes(to_onnx(fitted, x[:1], options=options).SerializeToString())
    return [{"X": random.standard_normal((ROWS, FEATURES)).astype(np.float32)}]


CASES = [
    Case(name, "classical", partial(write_fitted, estimator))
    for name, estimator in {"forest": forest, "boosting": boosting, "scaled_regression": scaled_regression}.items()
]
