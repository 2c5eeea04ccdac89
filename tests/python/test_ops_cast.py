"""Cast, CastLike and BitCast between all types."""

import ml_dtypes
import numpy as np
import pytest
from onnx import TensorProto, helper

import onnx_torch.backend
from models import model_of, run_op, tensor_info

INTEGERS = ["UINT8", "INT8", "UINT16", "INT16", "UINT32", "INT32", "UINT64", "INT64", "UINT4", "INT4", "UINT2", "INT2"]
FLOATS = ["FLOAT", "DOUBLE", "FLOAT16", "BFLOAT16"]
SMALL_FLOATS = ["FLOAT8E4M3FN", "FLOAT8E4M3FNUZ", "FLOAT8E5M2", "FLOAT8E5M2FNUZ", "FLOAT4E2M1"]
NUMBERS = [*INTEGERS, *FLOATS, *SMALL_FLOATS, "BOOL"]


def dtype_of(name):
    return helper.tensor_dtype_to_np_dtype(TensorProto.DataType.Value(name))


def samples(name):
    values = np.array([[0, 1, 2, 3, 5, 6], [7, 12, 15, 100, 127, 1]])
    if name in INTEGERS:
        bits = int(name.lstrip("UINT"))
        low, high = (0, 2**bits - 1) if name[0] == "U" else (-(2 ** (bits - 1)), 2 ** (bits - 1) - 1)
        unclipped = [*values.ravel().tolist(), low, low + 1, high, high - 1, 54321, 3_000_000_000]
        return np.array([x for x in unclipped if low <= x <= high], dtype=object).astype(dtype_of(name))
    return values.astype(dtype_of(name)) if name == "BOOL" else (values * 0.75).astype(dtype_of(name))


@pytest.mark.parametrize("to", NUMBERS)
@pytest.mark.parametrize("source", NUMBERS)
def test_cast_between_numbers(source, to):
    x = samples(source)
    if source not in INTEGERS and to in INTEGERS:  # what does not fit is undefined
        x = x[x.astype(np.float32) < 2 ** (int(to.lstrip("UINT")) - 1)]
    wide = x if x.dtype.kind in "biuf" else x.astype(np.float32 if source not in INTEGERS else np.int32)
    expected = wide.astype(dtype_of(to))
    if to in SMALL_FLOATS and source != to:
        largest = float(ml_dtypes.finfo(dtype_of(to)).max)
        expected = np.clip(wide.astype(np.float64), -largest, largest).astype(dtype_of(to))
    actual = run_op("Cast", [x], to=TensorProto.DataType.Value(to))[0]
    assert actual.dtype == expected.dtype
    np.testing.assert_array_equal(actual.astype(np.float64), expected.astype(np.float64))


@pytest.mark.parametrize("name", [*INTEGERS, *FLOATS])
def test_cast_to_string_and_back(name):
    x = samples(name)
    text = run_op("Cast", [x], to=TensorProto.STRING)[0]
    assert text.dtype == object
    assert [float(t) for t in text.ravel()] == [float(v) for v in x.ravel()]
    np.testing.assert_array_equal(run_op("Cast", [text], to=TensorProto.DataType.Value(name))[0], x)


def test_cast_keeps_all_bits_of_uint64():
    x = np.array([2**63, 2**64 - 1, 2**53 + 1], dtype=np.uint64)
    for to in (TensorProto.DOUBLE, TensorProto.FLOAT, TensorProto.UINT8, TensorProto.INT64, TensorProto.BOOL):
        np.testing.assert_array_equal(run_op("Cast", [x], to=to)[0], x.astype(helper.tensor_dtype_to_np_dtype(to)))
    large = np.array([2.0**63, 1.5 * 2.0**63, 3.0])
    np.testing.assert_array_equal(run_op("Cast", [large], to=TensorProto.UINT64)[0], large.astype(np.uint64))


def test_nan_is_true():
    x = np.array([np.nan, 0.0, -0.0, 1e-30, np.inf], dtype=np.float32)
    assert run_op("Cast", [x], to=TensorProto.BOOL)[0].tolist() == [True, False, False, True, True]


def test_cast_1_names_the_type():
    assert run_op("Cast", [np.array([1.5, -2.5], np.float32)], opset=5, to="INT32")[0].tolist() == [1, -2]


def test_a_shape_cast_to_int64_stays_on_the_host():
    nodes = [
        helper.make_node("Shape", ["x"], ["s"]),
        helper.make_node("Cast", ["s"], ["c"], to=TensorProto.INT64),
        helper.make_node("Reshape", ["y", "c"], ["z"]),
    ]
    inputs = [tensor_info(name, element=TensorProto.FLOAT, shape=[None, None]) for name in "xy"]
    model = model_of(nodes, inputs, ["z"])
    prepared = onnx_torch.backend.prepare(model, "CPU")
    assert "aten::tensor" not in prepared.graph()
    assert prepared.run([np.ones((2, 3), np.float32), np.ones((3, 2), np.float32)])[0].shape == (2, 3)


def test_cast_like_takes_only_the_type():
    like = np.zeros((0,), dtype=np.float16)
    actual = run_op("CastLike", [np.array([1, 2], np.int32), like])[0]
    assert actual.dtype == np.float16 and actual.tolist() == [1, 2]


@pytest.mark.parametrize(
    "one, other",
    [
        ("UINT4", "INT4"),
        ("UINT2", "INT2"),
        ("UINT8", "FLOAT8E5M2"),
        ("INT8", "FLOAT8E4M3FN"),
        ("UINT16", "FLOAT16"),
        ("UINT16", "BFLOAT16"),
        ("INT16", "UINT16"),
        ("UINT32", "FLOAT"),
        ("UINT64", "DOUBLE"),
        ("COMPLEX64", "UINT64"),
    ],
)
def test_bitcast_there_and_back(one, other):
    x = samples(one) if one in INTEGERS else np.array([1 + 2j, -3.5j], np.complex64)
    expected = x.astype(np.int32).astype(dtype_of(other)) if one in ("UINT4", "UINT2") else x.view(dtype_of(other))
    there = run_op("BitCast", [x], to=TensorProto.DataType.Value(other))[0]
    assert there.dtype == expected.dtype
    if one in ("UINT4", "UINT2"):
        assert there.tolist() == expected.tolist()
    else:
        assert there.tobytes() == expected.tobytes()
    back = run_op("BitCast", [there], to=TensorProto.DataType.Value(one))[0]
    assert back.tobytes() == x.tobytes()


def test_bitcast_of_4_bit_floats():
    codes = np.arange(16).astype(ml_dtypes.uint4)
    values = run_op("BitCast", [codes], to=TensorProto.FLOAT4E2M1)[0]
    assert values.astype(np.float32).tolist() == [0, 0.5, 1, 1.5, 2, 3, 4, 6, -0.0, -0.5, -1, -1.5, -2, -3, -4, -6]
    np.testing.assert_array_equal(run_op("BitCast", [values], to=TensorProto.UINT4)[0], codes)


def test_bitcast_refuses_another_width():
    with pytest.raises(Exception, match="bits of float cannot be taken as double"):
        run_op("BitCast", [np.zeros(2, np.float32)], to=TensorProto.DOUBLE)
