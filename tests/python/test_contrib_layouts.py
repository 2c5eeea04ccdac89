"""Files that onnxruntime saved in its own layouts, against itself, and wrong uses of these layouts."""

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper
from onnx.numpy_helper import from_array

import onnx_torch
from models import model_of, op_model, run_op, tensor_info
from quantized_models import by_onnxruntime
from random_numbers import RNG

onnxruntime = pytest.importorskip("onnxruntime")

BLOCKS, CHANNELS_LAST = "com.microsoft.nchwc", "com.ms.internal.nhwc"


def weights(*shape: int) -> np.ndarray:
    return (RNG.normal(size=shape) / np.sqrt(np.prod(shape[1:]))).astype(np.float32)


def network() -> onnx.ModelProto:
    """Makes what onnxruntime lays out in blocks: convolutions of all kinds, sums, pools, Concat and Resize between."""
    node = helper.make_node
    values = {
        "w0": weights(30, 3, 3, 3),
        "b0": weights(30, 1)[:, 0],
        "w1": weights(32, 30, 3, 3),
        "w2": weights(32, 32, 1, 1),
        "w3": weights(32, 1, 3, 3),
        "w4": weights(64, 16, 3, 3),
        "w5": weights(32, 64, 3, 3),
        "b5": weights(32, 1)[:, 0],
        "scales": np.array([1, 1, 2, 2], np.float32),
    }
    nodes = [
        node("Conv", ["x", "w0", "b0"], ["a"], pads=[1, 1, 1, 1]),
        node("Relu", ["a"], ["b"]),
        node("Conv", ["b", "w1"], ["c"], strides=[2, 2], pads=[1, 1, 1, 1]),
        node("Conv", ["c", "w2"], ["d"]),
        node("Add", ["c", "d"], ["e"]),
        node("Relu", ["e"], ["f"]),
        node("Conv", ["f", "w3"], ["g"], group=32, pads=[1, 1, 1, 1]),
        node("Clip", ["g"], ["h"], min=0.0, max=1.0),
        node("Conv", ["h", "w4"], ["i"], group=2, pads=[1, 1, 1, 1]),
        node("Tanh", ["i"], ["j"]),
        node("MaxPool", ["j"], ["k"], kernel_shape=[3, 3], strides=[2, 2], pads=[1, 1, 1, 1]),
        node("AveragePool", ["j"], ["l"], kernel_shape=[3, 3], strides=[2, 2], pads=[1, 1, 1, 1]),
        node("Concat", ["k", "l"], ["m"], axis=1),
        node("GlobalAveragePool", ["m"], ["y"]),
        node("Upsample", ["k", "scales"], ["n"], mode="nearest"),
        node("Conv", ["n", "w5", "b5"], ["o"], pads=[1, 1, 1, 1]),
        node("Add", ["o", "f"], ["z"]),
    ]
    # Before opset 11, Clip has attributes, and Upsample is there.
    infos = [tensor_info("x", element=TensorProto.FLOAT, shape=["n", 3, 16, 16])]
    initializers = [from_array(value, name) for name, value in values.items()]
    model = model_of(nodes, infos, ["y", "z"], opset=9, initializer=initializers)
    model.ir_version = 8
    return model


def saved_by_onnxruntime(model: onnx.ModelProto, path) -> onnxruntime.InferenceSession:
    options = onnxruntime.SessionOptions()
    options.optimized_model_filepath = str(path)
    options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_ENABLE_ALL
    options.log_severity_level = 3
    return onnxruntime.InferenceSession(model.SerializeToString(), options, providers=["CPUExecutionProvider"])


def test_a_file_in_blocks_gives_what_onnxruntime_gives(tmp_path):
    path = tmp_path / "saved.onnx"
    session = saved_by_onnxruntime(network(), path)
    found = {node.op_type for node in onnx.load(path).graph.node if node.domain == BLOCKS}
    if not found:
        pytest.skip("onnxruntime knows no blocks on this CPU")
    assert found >= {"Conv", "MaxPool", "AveragePool", "GlobalAveragePool", "ReorderOutput"}
    x = RNG.normal(size=(2, 3, 16, 16)).astype(np.float32)
    expected = session.run(None, {"x": x})
    for optimize in (True, False):
        rep = onnx_torch.prepare(path, optimize=optimize)
        for _ in range(4):
            for y, wanted in zip(rep.run([x]), expected, strict=True):
                np.testing.assert_allclose(y, wanted, rtol=1e-5, atol=1e-5)


def test_what_is_computed_between_blocks_is_computed_on_plain_images(tmp_path):
    plain, path = network(), tmp_path / "saved.onnx"
    onnx.save(plain, tmp_path / "plain.onnx")
    saved_by_onnxruntime(plain, path)
    graphs = [onnx_torch.prepare(file, shapes={"n": 2}).graph() for file in (path, tmp_path / "plain.onnx")]
    assert graphs[0].count("onnx_torch::packed(") == graphs[1].count("onnx_torch::packed(")
    assert "aten::permute" not in graphs[0]


# --- Files of either size of blocks ---


def filled_up(x: np.ndarray, axis: int, block: int) -> np.ndarray:
    return np.pad(x, [(0, -x.shape[i] % block if i == axis else 0) for i in range(x.ndim)])


def filters_in_blocks(w: np.ndarray, block: int) -> np.ndarray:
    """Lays filters out as onnxruntime does: blocks of outputs are innermost, then those of inputs that fill one."""
    w = filled_up(w, 0, block)
    outputs, inputs, *kernel = w.shape
    if inputs < block:
        return w.reshape(outputs // block, block, inputs, *kernel).transpose(0, 2, 3, 4, 1).reshape(w.shape)
    w = filled_up(w, 1, block)
    parts = w.reshape(outputs // block, block, w.shape[1] // block, block, *kernel)
    return parts.transpose(0, 2, 4, 5, 3, 1).reshape(w.shape)


def two_convolutions(block: int, outputs: int) -> tuple[onnx.ModelProto, onnx.ModelProto]:
    """Makes convolutions of 3, 24 and some channels, plain and in blocks."""
    random = np.random.default_rng(1)
    shapes = {"w": (24, 3, 3, 3), "b": (24,), "v": (outputs, 24, 1, 1), "c": (outputs,)}
    plain = {name: random.normal(size=shape).astype(np.float32) for name, shape in shapes.items()}
    stored = {
        name: filters_in_blocks(value, block) if value.ndim == 4 else filled_up(value, 0, block)
        for name, value in plain.items()
    }

    def model(weights: dict[str, np.ndarray], domain: str, end: onnx.NodeProto) -> onnx.ModelProto:
        nodes = [
            helper.make_node("Conv", ["x", "w", "b"], ["h"], domain=domain, kernel_shape=[3, 3]),
            helper.make_node("Sigmoid", ["h"], ["s"]),
            helper.make_node("Mul", ["h", "s"], ["m"]),
            helper.make_node("Conv", ["m", "v", "c"], ["z"], domain=domain, kernel_shape=[1, 1]),
            end,
        ]
        initializers = [from_array(value, name) for name, value in weights.items()]
        info = tensor_info("x", element=TensorProto.FLOAT, shape=[1, 3, 6, 5])
        made = model_of(nodes, [info], ["y"], opset=13, initializer=initializers)
        made.opset_import.append(helper.make_opsetid(BLOCKS, 1))
        made.ir_version = 8
        return made

    end = helper.make_node("ReorderOutput", ["z"], ["y"], domain=BLOCKS, channels=outputs)
    return model(plain, "", helper.make_node("Identity", ["z"], ["y"])), model(stored, BLOCKS, end)


# Blocks of 16 are filled up by 8: 40 channels at the end tell so by their number, 48 by the bias before alone.
@pytest.mark.parametrize("block, outputs", [(8, 40), (8, 48), (16, 40), (16, 48)])
@pytest.mark.parametrize("optimize", [True, False])
def test_the_weights_tell_the_size_of_blocks(block, outputs, optimize):
    plain, laid_out = two_convolutions(block, outputs)
    x = RNG.normal(size=(1, 3, 6, 5)).astype(np.float32)
    expected = onnx_torch.prepare(plain).run([x])[0]
    rep = onnx_torch.prepare(laid_out, optimize=optimize)
    for _ in range(3):
        np.testing.assert_allclose(rep.run([x])[0], expected, rtol=1e-5, atol=1e-5)


def test_blocks_of_two_sizes_are_refused():
    _, laid_out = two_convolutions(8, 40)
    laid_out.graph.node[-1].attribute[0].i = 32
    with pytest.raises(onnx_torch.InvalidModelError, match="in blocks of 8 channels, and in blocks of 16"):
        onnx_torch.prepare(laid_out)


def zeros(*shape: int) -> np.ndarray:
    return np.zeros(shape, np.float32)


WRONG = [
    ("ReorderInput", [zeros(2, 3)], {}, "dimensions"),
    ("ReorderOutput", [zeros(1, 33, 2, 2)], {"channels": 20}, "33 channels are not in blocks"),
    ("ReorderOutput", [zeros(1, 32, 2, 2)], {"channels": 33}, "exceeds dimension size"),
    ("ReorderOutput", [zeros(1, 32, 2, 2)], {"channels": -1}, "negative"),
    ("Conv", [zeros(1, 32, 4, 4), zeros(33, 32, 3, 3)], {}, "33 channels are not in blocks"),
    ("Conv", [zeros(1, 32, 4, 4), zeros(32, 33, 3, 3)], {}, "33 channels are not in blocks"),
    ("Conv", [zeros(1, 33, 4, 4), zeros(32, 32, 3, 3)], {}, "33 channels are not in blocks"),
    ("Conv", [zeros(1, 32, 4, 4), zeros(32, 64, 3, 3)], {}, "channels"),
    ("Conv", [zeros(1, 32, 4, 4), zeros(32, 32, 3, 3), None, zeros(1, 32, 3, 3)], {}, "size"),
    ("Conv", [zeros(1, 32, 4, 4), zeros(32, 32, 3, 3)], {"activation": "If"}, 'no activation "If"'),
    ("MaxPool", [zeros(1, 31, 4, 4)], {"kernel_shape": [2, 2]}, "31 channels are not in blocks"),
    ("AveragePool", [zeros(1, 32, 4)], {"kernel_shape": [2, 2]}, "dimensions"),
    ("Upsample", [zeros(1, 32, 4, 4)], {"scales": [1, 2, 2, 2]}, "height and a width"),
    ("Upsample", [zeros(1, 32, 4, 4)], {"scales": [1, 1, 0, 2]}, "height and a width"),
    ("Upsample", [zeros(1, 32, 4, 4)], {"scales": [1, 1, -2, 2], "mode": "linear"}, "height and a width"),
]


@pytest.mark.parametrize("op, inputs, options, message", WRONG)
def test_wrong_blocks_are_refused(op, inputs, options, message):
    with pytest.raises(onnx_torch.Error, match=message):
        run_op(op, inputs, opset=1, domain=BLOCKS, **options)


ONE = np.float32(1)
WRONG_CHANNELS_LAST = [
    ("MaxPool", [np.float32(1)], {"kernel_shape": [2, 2]}, "a batch and channels|dimensions"),
    ("Conv", [zeros(1, 4, 5, 3), zeros(6, 4, 3, 3)], {}, "channels"),
    ("DepthToSpace", [zeros(1, 4, 5, 3)], {"blocksize": 2}, "shape|channels"),
    (
        "QLinearAveragePool",
        [np.zeros((1, 4, 3), np.int8), np.float32(1), None, np.float32(1)],
        {"kernel_shape": [2, 2]},
        ".",
    ),
    (
        "QLinearConvTranspose",
        [np.zeros((1, 4, 4, 3), np.int8), ONE, np.int8(0), np.zeros((3, 2, 3, 3), np.int8)]
        + [zeros(5), np.zeros(5, np.int8), ONE, np.int8(0)],
        {},
        "size|shape",
    ),
]


@pytest.mark.parametrize("op, inputs, options, message", WRONG_CHANNELS_LAST)
def test_wrong_images_with_channels_last_are_refused(op, inputs, options, message):
    with pytest.raises(onnx_torch.Error, match=message):
        run_op(op, inputs, opset=13, domain=CHANNELS_LAST, **options)


POOLS = [
    {"kernel_shape": [2, 3], "strides": [1, 2], "pads": [1, 0, 0, 1]},
    {"kernel_shape": [2, 2], "count_include_pad": 1, "pads": [1, 1, 1, 1]},
    {"kernel_shape": [7, 6]},
]


@pytest.mark.parametrize("shape", [None, (2, 7, 6, 8), ("n", 7, 6, "c")], ids=str)
@pytest.mark.parametrize("options", POOLS, ids=str)
@pytest.mark.parametrize("dtype", [np.int8, np.uint8])
def test_quantized_average_pools_with_channels_last(dtype, options, shape):
    """Many means lie in the middle between two steps."""
    low, high = np.iinfo(dtype).min, np.iinfo(dtype).max
    x = RNG.integers(low, high, (2, 7, 6, 8), dtype, endpoint=True)
    numbers = [np.float32(0.5), dtype(low + 100), np.float32(1), dtype(low + 77)]
    inputs = [x, *map(np.asarray, numbers)]
    made = {
        domain: op_model("QLinearAveragePool", inputs, opset=1, domain=domain, **options)
        for domain in ("com.microsoft", CHANNELS_LAST)
    }
    made["com.microsoft"].graph.node[0].attribute.append(helper.make_attribute("channels_last", 1))
    for model in made.values():
        model.ir_version, model.opset_import[1].version = 8, 17  # which any onnxruntime knows
        model.graph.input[0].CopyFrom(tensor_info("x0", x, shape))
    expected = by_onnxruntime(made["com.microsoft"], inputs)[0]
    for model in made.values():
        np.testing.assert_array_equal(onnx_torch.prepare(model).run(inputs)[0], expected)
