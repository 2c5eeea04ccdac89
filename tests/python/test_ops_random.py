"""Random numbers: with a seed numpy's RandomState's stream, without one ATen's. docs/randomness.md says what holds."""

import numpy as np
import pytest
import torch
from onnx import TensorProto, helper
from onnx.reference import ReferenceEvaluator

import onnx_torch.backend
from models import model_of, op_model, run_op, tensor_info

FLOATS = ["FLOAT", "DOUBLE", "FLOAT16", "BFLOAT16"]
SEEDS = [0.0, 7.0, 2.9, 123456.0, 4294967040.0]  # the last is the largest float below 2**32


def _element(name):
    return TensorProto.DataType.Value(name)


def _expected(op, inputs, **attributes):
    names = [f"x{i}" for i in range(len(inputs))]
    model = model_of(
        [helper.make_node(op, names, ["y"], **attributes)],
        [tensor_info(name, x) for name, x in zip(names, inputs, strict=True)],
        [helper.make_tensor_value_info("y", attributes.get("dtype", TensorProto.FLOAT), None)],
    )
    return ReferenceEvaluator(model).run(None, dict(zip(names, inputs, strict=True)))[0]


@pytest.mark.parametrize("seed", SEEDS)
@pytest.mark.parametrize("dtype", ["FLOAT", "DOUBLE"])
@pytest.mark.parametrize(
    "op, attributes", [("RandomNormal", {"mean": 2.5, "scale": 0.3}), ("RandomUniform", {"low": -1.5, "high": 0.7})]
)
def test_seeded_stream(op, attributes, dtype, seed):
    """An odd number of elements leaves one of a pair of normal numbers over."""
    attributes = {**attributes, "dtype": _element(dtype), "seed": seed}
    expected = _expected(op, [], shape=[3, 7], **attributes)
    np.testing.assert_array_equal(run_op(op, [], shape=[3, 7], **attributes)[0], expected)
    like = np.zeros((3, 7), np.int32)
    np.testing.assert_array_equal(run_op(op + "Like", [like], **attributes)[0], expected)


HALF = np.full((5, 7), 0.5)
LOGITS = np.log([[0.1, 0.2, 0.7], [0.5, 0.25, 0.25]]) + 3  # unnormalized
RANDOM = {
    "RandomNormal": ([], {"shape": [5, 7], "dtype": TensorProto.DOUBLE}, lambda state: state.randn(5, 7)),
    "RandomNormalLike": ([HALF], {}, lambda state: state.randn(5, 7)),
    "RandomUniform": ([], {"shape": [5, 7], "dtype": TensorProto.DOUBLE}, lambda state: state.rand(5, 7)),
    "RandomUniformLike": ([HALF], {}, lambda state: state.rand(5, 7)),
    "Bernoulli": ([HALF], {}, lambda state: state.binomial(1, HALF).astype(np.float64)),
    "Multinomial": (
        [LOGITS],
        {"sample_size": 40, "dtype": TensorProto.INT64},
        lambda state: np.stack([state.choice(3, 40, p=np.exp(row) / np.exp(row).sum()) for row in LOGITS]),
    ),
    "Dropout": (
        [HALF, np.array(0.3), np.array(True)],
        {},
        lambda state: np.where(state.uniform(0, 1, HALF.shape) >= 0.3, HALF / 0.7, 0),
    ),
}
SEEDS_MEAN = {0: 0, 7: 7, 2.9: 2, -1: 2**32 - 1, -2.5: 2**32 - 2, 2.0**32: 0, 2.0**32 + 512: 512}
SEEDS_MEAN |= {-(2.0**40): 0, 1e30: 0}


def _prepared(op, **seed):
    inputs, attributes, _ = RANDOM[op]
    if op == "Dropout" and seed:
        seed = {"seed": int(seed["seed"])}  # an integer there
    rep = onnx_torch.backend.prepare(op_model(op, inputs, **attributes, **seed))
    return lambda: rep.run(inputs)[0]


@pytest.mark.parametrize("seed, same_as", SEEDS_MEAN.items(), ids=str)
@pytest.mark.parametrize("op", RANDOM)
def test_what_a_seed_means(op, seed, same_as):
    """A fraction of a seed is cut off, and what is left counts modulo 2**32."""
    if op == "Dropout" and seed == 1e30:
        pytest.skip("no int64")
    run = _prepared(op, seed=float(seed))
    expected = RANDOM[op][2](np.random.RandomState(same_as))
    np.testing.assert_allclose(run(), expected, rtol=1e-12)
    np.testing.assert_array_equal(run(), run())
    np.testing.assert_array_equal(run(), _prepared(op, seed=float(seed))())


@pytest.mark.parametrize("seed", [{}, {"seed": np.nan}, {"seed": np.inf}, {"seed": -np.inf}], ids=str)
@pytest.mark.parametrize("op", RANDOM)
def test_without_a_seed_the_stream_is_that_of_torch(op, seed):
    """A seed that is no finite number is none."""
    if op == "Dropout" and seed:
        pytest.skip("its seed is an integer")
    run = _prepared(op, **seed)
    torch.manual_seed(11)
    first, second = run(), run()
    assert not np.array_equal(first, second)
    torch.manual_seed(11)
    np.testing.assert_array_equal([run(), run()], [first, second])


@pytest.mark.parametrize("seed", [{}, {"seed": 4.0}])
def test_nodes_of_one_seed_draw_the_same_numbers(seed):
    nodes = [helper.make_node("RandomNormal", [], [name], shape=[6], **seed) for name in "ab"]
    a, b = onnx_torch.backend.prepare(model_of(nodes, [], ["a", "b"])).run([])
    assert np.array_equal(a, b) == bool(seed)


@pytest.mark.parametrize("dtype", FLOATS)
@pytest.mark.parametrize("seed", [{}, {"seed": 3.0}])
def test_element_types(dtype, seed):
    numpy_type = helper.tensor_dtype_to_np_dtype(_element(dtype))
    normal = run_op("RandomNormal", [], shape=[200, 50], dtype=_element(dtype), mean=1.0, scale=2.0, **seed)[0]
    uniform = run_op("RandomUniformLike", [np.zeros((200, 50), numpy_type)], low=2.0, high=4.0, **seed)[0]
    assert normal.dtype == uniform.dtype == numpy_type
    normal, uniform = normal.astype(np.float64), uniform.astype(np.float64)
    assert abs(normal.mean() - 1) < 0.1 and abs(normal.std() - 2) < 0.1
    assert abs(uniform.mean() - 3) < 0.05 and uniform.min() >= 2 and uniform.max() <= 4


def test_seeded_bernoulli():
    p = np.array([[0.1, 0.9, 0.0, 0.5], [1.0, 0.3, 0.0, 0.7]])
    p = np.tile(p, (50, 1))
    actual = run_op("Bernoulli", [p], seed=5.0, dtype=TensorProto.INT32)[0]
    np.testing.assert_array_equal(actual, _expected("Bernoulli", [p], seed=5.0, dtype=TensorProto.INT32))


@pytest.mark.parametrize("dtype", ["UINT8", "UINT16", "UINT32", "UINT64", "INT8", "INT64", "BOOL", "BFLOAT16"])
def test_bernoulli_element_types(dtype):
    actual = run_op("Bernoulli", [np.array([0, 1, 1, 0], np.float16)], dtype=_element(dtype))[0]
    np.testing.assert_array_equal(actual, np.array([0, 1, 1, 0], helper.tensor_dtype_to_np_dtype(_element(dtype))))


@pytest.mark.parametrize("seed", [{}, {"seed": 1.0}])
@pytest.mark.parametrize("dtype", ["INT32", "INT64"])
def test_multinomial(seed, dtype):
    p = np.array([[0.1, 0.2, 0.7, 0.0], [0.5, 0.0, 0.0, 0.5]])
    with np.errstate(divide="ignore"):
        logits = np.log(p) + 3  # unnormalized
    model = op_model("Multinomial", [logits], sample_size=20000, dtype=_element(dtype), **seed)
    rep = onnx_torch.backend.prepare(model)
    first, second = rep.run([logits])[0], rep.run([logits])[0]
    assert first.dtype == helper.tensor_dtype_to_np_dtype(_element(dtype)) and first.shape == (2, 20000)
    for row, expected in zip(first, p, strict=True):
        five_deviations = 5 * np.sqrt(0.25 / 20000)
        np.testing.assert_allclose(np.bincount(row, minlength=4) / 20000, expected, rtol=0, atol=five_deviations)
    assert np.array_equal(first, second) == bool(seed)
