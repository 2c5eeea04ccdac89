"""The comparison of outputs: they are equal, within what the types allow."""

from __future__ import annotations

from typing import Any

import ml_dtypes
import numpy as np
import onnx

from .values import dtype_of, element

# Units in the last place of the output's floating type: an operator may round once for each of its few steps, and sums
# of a few tens of terms in another order differ by as much. Such an error is also small beside the largest value of the
# output, from which sums cancel. Floats of 8 and fewer bits, and all else, are equal exactly.
ULPS = 4
ROUNDED = {"bfloat16", "float16", "float", "double", "complex64", "complex128"}


def epsilon(types: list[str]) -> float:
    """Gives the step at 1 of the coarsest of the types."""
    return max((float(ml_dtypes.finfo(dtype_of(name)).eps) for name in _rounded(types)), default=0.0)


def precision(input_types: list[str], output_types: list[str]) -> float:
    """Gives the step at 1 of the coarsest of the outputs' types.

    Where floating inputs of several types meet, theirs count, too, as no text says in which of them to compute.
    """
    return epsilon(output_types if len(_rounded(input_types)) < 2 else [*input_types, *output_types])


def _rounded(types: list[str]) -> set[str]:
    return ROUNDED & set(map(element, types))


def assert_type(actual: Any, type_str: str) -> None:
    kind, inner = type_str[:-1].split("(", 1)
    if kind == "optional":
        if actual is not None:
            assert_type(actual, inner)
    elif kind == "seq":
        assert isinstance(actual, list), f"a sequence expected, not {type(actual).__name__}"
        for one in actual:
            assert_type(one, inner)
    elif kind == "map":
        assert isinstance(actual, dict), f"a map expected, not {type(actual).__name__}"
    else:
        assert isinstance(actual, np.ndarray), f"an array expected, not {type(actual).__name__}"
        assert actual.dtype == dtype_of(inner), f"element type {actual.dtype}, not {inner}"


def assert_shape(model: onnx.ModelProto, outputs: list[Any]) -> None:
    """Checks the outputs' shapes against ONNX's shape inference, as far as that goes."""
    inferred = {info.name: info.type for info in onnx.shape_inference.infer_shapes(model).graph.output}
    for info, output in zip(model.graph.output, outputs, strict=True):
        shape = inferred[info.name].tensor_type
        if isinstance(output, np.ndarray) and shape.HasField("shape"):
            dims = [dim.dim_value if dim.HasField("dim_value") else None for dim in shape.shape.dim]
            assert len(dims) == output.ndim, f"rank {output.ndim}, not {len(dims)}"
            assert all(d in (None, n) for d, n in zip(dims, output.shape, strict=True)), (
                f"shape {output.shape}, not {dims}"
            )


def assert_equal(actual: Any, expected: Any, eps: float, ulps: int = ULPS) -> None:
    if expected is None or actual is None:
        assert actual is None and expected is None
    elif isinstance(expected, (list, tuple)):
        assert isinstance(actual, (list, tuple)) and len(actual) == len(expected), "another number of items"
        for one, other in zip(actual, expected, strict=True):
            assert_equal(one, other, eps, ulps)
    elif isinstance(expected, dict):
        actual, expected = ({_key(key): value for key, value in side.items()} for side in (actual, expected))
        assert actual.keys() == expected.keys(), "other keys"
        assert_equal([actual[key] for key in expected], list(expected.values()), eps, ulps)
    else:
        _assert_arrays(np.asarray(actual), np.asarray(expected), ulps * eps)


def _key(key: Any) -> Any:
    return key if isinstance(key, str) else int(key)


def _assert_arrays(actual: np.ndarray, expected: np.ndarray, tolerance: float) -> None:
    assert actual.shape == expected.shape, f"shape {actual.shape}, not {expected.shape}"
    if actual.dtype.kind in "OUS" or expected.dtype.kind in "OUS":
        np.testing.assert_array_equal(actual.astype(str), expected.astype(str))
        return
    exact = actual.dtype.kind in "biu" or "int" in actual.dtype.name
    if exact and expected.dtype.kind in "biu":
        np.testing.assert_array_equal(actual, expected)
        return
    wide = np.complex128 if "c" in (actual.dtype.kind, expected.dtype.kind) else np.float64
    actual, expected = actual.astype(wide), expected.astype(wide)
    finite = np.abs(expected[np.isfinite(expected)])
    tolerance = 0.0 if exact else tolerance
    scale = float(finite.max()) if finite.size else 0.0
    np.testing.assert_allclose(actual, expected, rtol=tolerance, atol=tolerance * scale)
