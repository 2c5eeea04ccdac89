"""Faults of native code that others' tools have had, by their numbers: what led to them ends in an error here.

The models run in this process, which a fault would end. What they read beside a tensor would be a secret's bytes.
"""

from __future__ import annotations

import itertools
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper

import onnx_torch
from models import model_of, op_model, tensor_info
from wrong_models import HIGHEST, LOWEST, constant_model, ints, little_memory, refused, zeros

ML, MS = "ai.onnx.ml", "com.microsoft"
HUGE = [2**31, -(2**31), 2**62, -(2**62), HIGHEST, LOWEST]
BYTES = np.uint8
IMAGE, KERNEL = zeros(1, 4, 4, 4), zeros(4, 4, 2, 2)


@pytest.fixture(autouse=True)
def _little_memory():
    with little_memory():
        yield


def versions(op_type: str, domain: str = "") -> list[int]:
    """Lists the versions of an operator that are not deprecated."""
    schemas = onnx.defs.get_all_schemas_with_history()
    return sorted({s.since_version for s in schemas if (s.name, s.domain) == (op_type, domain) and not s.deprecated})


# --- onnx#8277: sizes that overflow


WINDOWS: dict[str, tuple[list[Any], dict[str, Any], list[str]]] = {
    "Conv": ([IMAGE, KERNEL], {}, ["kernel_shape", "strides", "dilations", "pads"]),
    "ConvTranspose": (
        [IMAGE, KERNEL],
        {},
        ["kernel_shape", "strides", "dilations", "pads", "output_padding", "output_shape"],
    ),
    "MaxPool": ([IMAGE], {"kernel_shape": [2, 2]}, ["kernel_shape", "strides", "dilations", "pads"]),
    "AveragePool": ([IMAGE], {"kernel_shape": [2, 2]}, ["kernel_shape", "strides", "dilations", "pads"]),
    "LpPool": ([IMAGE], {"kernel_shape": [2, 2]}, ["kernel_shape", "strides", "dilations", "pads"]),
    "MaxUnpool": (
        [IMAGE, zeros(1, 4, 4, 4, dtype=np.int64)],
        {"kernel_shape": [2, 2]},
        ["kernel_shape", "strides", "pads"],
    ),
}


@pytest.mark.parametrize("number", HUGE)
@pytest.mark.parametrize(
    ("op_type", "name"), [(op_type, name) for op_type, (_, _, names) in WINDOWS.items() for name in names]
)
def test_onnx_8277_windows(op_type, name, number):
    inputs, attributes, _ = WINDOWS[op_type]
    for place in range(4 if name == "pads" else 2):
        values = [1, 1, 1, 1] if name == "pads" else [1, 1]
        values[place] = number
        refused(op_type, inputs, "", **{**attributes, name: values})


@pytest.mark.parametrize("number", HUGE)
def test_onnx_8277_sizes_that_are_data(number):
    for place in range(2):
        sizes, block = ints(5, 5), ints(2, 2)
        sizes[place] = number
        refused("Col2Im", [zeros(1, 4, 16), sizes, block], "")
        refused("Col2Im", [zeros(1, 4, 16), ints(5, 5), sizes], "")
        refused("MaxUnpool", [zeros(1, 1, 2, 2), zeros(1, 1, 2, 2, dtype=np.int64), ints(1, 1, *sizes)], "",
                kernel_shape=[2, 2])  # fmt: skip
    for name in ("strides", "dilations", "pads"):
        refused(
            "Col2Im", [zeros(1, 4, 16), ints(5, 5), ints(2, 2)], "", **{name: [number] * (4 if name == "pads" else 2)}
        )
    refused("SpaceToDepth", [zeros(1, 4, 4, 4)], "", blocksize=number)
    refused("DepthToSpace", [zeros(1, 4, 4, 4)], "", blocksize=number)


@pytest.mark.parametrize("number", HUGE)
@pytest.mark.parametrize("mode", ["constant", "edge", "reflect", "wrap"])
def test_onnx_8277_pads(mode, number):
    for place in range(4):
        pads = ints(0, 0, 0, 0)
        pads[place] = number
        refused("Pad", [zeros(2, 3), pads], "", mode=mode)


# --- onnxruntime#21507, #28731, #28734: a window's rank is not its input's


RANKS: dict[str, tuple[list[Any], dict[str, Any]]] = {
    "Conv": ([zeros(1, 1, 4), zeros(1, 1, 2, 2)], {}),
    "ConvTranspose": ([zeros(1, 1, 4), zeros(1, 1, 2, 2)], {}),
    "ConvInteger": ([zeros(1, 1, 4, dtype=BYTES), zeros(1, 1, 2, 2, dtype=BYTES)], {}),
    "QLinearConv": (
        [
            *(zeros(1, 1, 4, dtype=BYTES), np.float32(1), BYTES(0)),
            *(zeros(1, 1, 2, 2, dtype=BYTES), np.float32(1), BYTES(0), np.float32(1), BYTES(0)),
        ],
        {},
    ),
    "DeformConv": ([zeros(1, 1, 4, 4), zeros(1, 1, 2), zeros(1, 8, 3, 3)], {}),
    "MaxPool": ([zeros(1, 1, 4)], {"kernel_shape": [2, 2]}),
    "AveragePool": ([zeros(1, 1, 4)], {"kernel_shape": [2, 2]}),
    "LpPool": ([zeros(1, 1, 4)], {"kernel_shape": [2, 2]}),
    "MaxRoiPool": ([zeros(1, 1, 4), zeros(1, 5)], {"pooled_shape": [2, 2]}),
    "MaxUnpool": ([zeros(1, 1, 4), zeros(1, 1, 4, dtype=np.int64)], {"kernel_shape": [2, 2]}),
}


@pytest.mark.parametrize(
    ("op_type", "version"), [(op_type, version) for op_type in RANKS for version in versions(op_type)]
)
def test_onnxruntime_21507_kernels_of_another_rank(op_type, version):
    inputs, attributes = RANKS[op_type]
    if (op_type, version) == ("LpPool", 1):
        attributes = {**attributes, "p": 2.0}  # a float then
    refused(op_type, [np.asarray(value) for value in inputs], "", opset=version, **attributes)


@pytest.mark.parametrize(
    ("name", "values"), [("strides", [1]), ("dilations", [1]), ("pads", [0, 0]), ("pads", [0] * 6)]
)
@pytest.mark.parametrize("op_type", ["Conv", "ConvTranspose", "MaxPool", "AveragePool", "LpPool"])
def test_onnxruntime_28731_attributes_of_another_rank(op_type, name, values):
    inputs, attributes, _ = WINDOWS[op_type]
    refused(op_type, inputs, "", **{**attributes, name: values})


SPATIAL = {"Conv": 2, "ConvTranspose": 2, "MaxPool": 1, "AveragePool": 1, "LpPool": 1}  # and how many inputs they have


@pytest.mark.parametrize("version", [1, 11])
@pytest.mark.parametrize("more", [1, 2, 30])
def test_onnxruntime_28734_weights_of_more_dimensions_than_the_image(version, more):
    """No kernel_shape is given, so that onnx took it from the weights, and read behind the dilations."""
    for dilations in ({}, {"dilations": [1, 1]}):
        refused("Conv", [IMAGE, zeros(4, 4, 2, 2, *[1] * more)], "", opset=version, **dilations)


@pytest.mark.parametrize(
    ("op_type", "version"), [(op_type, version) for op_type in SPATIAL for version in versions(op_type)]
)
def test_cve_2026_14647_kernels_of_more_dimensions_than_dilations(op_type, version):
    """onnx before 1.22 read behind the dilations, of which it made as many as the image has dimensions."""
    inputs = [IMAGE, zeros(4, 4, 2, 2, 1)][: SPATIAL[op_type]]
    known = onnx.defs.get_schema(op_type, version).attributes
    power = {"p": 2.0} if (op_type, version) == ("LpPool", 1) else {}  # a float then
    for name, values in {"kernel_shape": [2, 2, 1], "dilations": [1, 1], "strides": [1, 1], "pads": [0] * 4}.items():
        if name not in known:
            continue
        attributes = {"kernel_shape": [2, 2, 1], name: values, **power}
        refused(op_type, inputs, "", opset=version, **attributes)
        model = op_model(op_type, inputs, opset=version, **attributes)
        for value, array in zip(model.graph.input, inputs, strict=True):
            value.CopyFrom(tensor_info(value.name, array, array.shape))
        onnx_torch.extract(model)  # asks onnx's own shape inference


# --- onnxruntime#27265, #27543: indices


INDICES: dict[str, tuple[str, list[Any], dict[str, Any]]] = {
    "ArrayFeatureExtractor": (ML, [zeros(2, 3), ints(0)], {}),
    "Gather": ("", [zeros(3), ints(0)], {}),
    "GatherElements": ("", [zeros(3), ints(0)], {}),
    "GatherND": ("", [zeros(3), ints(0).reshape(1, 1)], {}),
    "ScatterElements": ("", [zeros(3), ints(0), zeros(1)], {}),
    "ScatterND": ("", [zeros(3), ints(0).reshape(1, 1), zeros(1)], {}),
    "MaxUnpool": ("", [zeros(1, 1, 1), ints(0).reshape(1, 1, 1)], {"kernel_shape": [2]}),
    "RoiAlign": ("", [zeros(1, 1, 4, 4), zeros(1, 4), ints(0)], {}),
    "TensorScatter": ("", [zeros(1, 1, 4, 2), zeros(1, 1, 1, 2), ints(0)], {}),
    "NegativeLogLikelihoodLoss": ("", [zeros(1, 3), ints(0)], {}),
    "SoftmaxCrossEntropyLoss": ("", [zeros(1, 3), ints(0)], {}),
    "ReverseSequence": ("", [zeros(3, 1), ints(0)], {}),
}


@pytest.mark.parametrize("index", [-(2**31), 2**31, 100, -100, *HUGE])
@pytest.mark.parametrize("op_type", INDICES)
def test_onnxruntime_27265_indices_that_lie_outside(op_type, index):
    domain, inputs, attributes = INDICES[op_type]
    inputs = [np.full_like(value, index) if value.dtype == np.int64 else value for value in inputs]
    refused(op_type, inputs, "", domain=domain, **attributes)


@pytest.mark.parametrize("start", [HIGHEST, HIGHEST - 1, 2**62, 4])
def test_onnxruntime_27265_rows_that_go_round_from_afar(start):
    """Rows go round where the sum of a start and a row is more than an integer holds."""
    rows = np.arange(1, 7, dtype=np.float32).reshape(1, 1, 3, 2)
    inputs = [zeros(1, 1, 3, 2), rows, ints(start)]
    expected = np.roll(rows, start % 3, 2)
    for optimize in (True, False):
        rep = onnx_torch.prepare(op_model("TensorScatter", inputs, axis=2, mode="circular"), optimize=optimize)
        for _ in range(3):  # the third run goes by a plan
            np.testing.assert_array_equal(rep.run(inputs)[0], expected)


def test_onnxruntime_27265_a_negative_index_reads_nothing_before_the_array():
    refused("ArrayFeatureExtractor", [np.arange(6, dtype=np.float32).reshape(2, 3), ints(-1)], "", domain=ML)


@pytest.mark.parametrize("batch", [-1, 2, 1e9, -1e30, float("nan")])
def test_onnxruntime_27543_boxes_of_images_that_are_not_there(batch):
    rois = np.array([[batch, 0, 0, 3, 3]], np.float32)
    refused("MaxRoiPool", [zeros(1, 1, 4, 4), rois], "", pooled_shape=[2, 2])
    if batch in (-1, 2):
        refused("RoiAlign", [zeros(1, 1, 4, 4), rois[:, 1:], ints(int(batch))], "")


# --- onnxruntime#27699, #27950: lists of ai.onnx.ml (each of each operator: test_wrong_attributes.py)


def forest(**changes: Any) -> dict[str, Any]:
    """Makes the attributes of one tree of one branch and two leaves."""
    return {
        "nodes_treeids": [0, 0, 0],
        "nodes_nodeids": [0, 1, 2],
        "nodes_featureids": [0, 0, 0],
        "nodes_modes": ["BRANCH_LEQ", "LEAF", "LEAF"],
        "nodes_values": [0.5, 0.0, 0.0],
        "nodes_truenodeids": [1, 0, 0],
        "nodes_falsenodeids": [2, 0, 0],
        "target_treeids": [0, 0],
        "target_nodeids": [1, 2],
        "target_ids": [0, 0],
        "target_weights": [1.0, 2.0],
        "n_targets": 1,
        **changes,
    }


def test_the_forest_itself_is_taken():
    model = op_model("TreeEnsembleRegressor", [zeros(1, 1)], 3, ML, **forest())
    assert onnx_torch.prepare(model).run([zeros(1, 1)])[0].tolist() == [[1]]


FORESTS = {
    "a branch that leads to itself": forest(nodes_truenodeids=[0, 0, 0]),
    "two branches that lead to one another": forest(
        nodes_modes=["BRANCH_LEQ", "BRANCH_LEQ", "LEAF"], nodes_truenodeids=[1, 0, 0], nodes_falsenodeids=[2, 2, 0]
    ),
    "a child that is not there": forest(nodes_truenodeids=[7, 0, 0]),
    "a child beyond all": forest(nodes_falsenodeids=[2**62, 0, 0]),
    "a child before all": forest(nodes_falsenodeids=[-5, 0, 0]),
    "a leaf that is not there": forest(target_nodeids=[1, 9]),
    "a target that is not there": forest(target_ids=[0, 5]),
    "a target before all": forest(target_ids=[0, -5]),
    "fewer weights than targets": forest(target_weights=[1.0]),
    "fewer values than nodes": forest(nodes_values=[0.5]),
    "targets without end": forest(n_targets=2**62),
    "two nodes of one number": forest(nodes_nodeids=[0, 1, 1]),
}


@pytest.mark.parametrize("name", FORESTS)
def test_onnxruntime_27699_trees_that_are_none(name):
    refused("TreeEnsembleRegressor", [zeros(1, 1)], "", opset=3, domain=ML, **FORESTS[name])


@pytest.mark.parametrize("feature", [1, 2**31, 2**62, -1, LOWEST])
def test_onnxruntime_27699_features_that_are_not_there(feature):
    attributes = forest(nodes_featureids=[feature, 0, 0])
    refused("TreeEnsembleRegressor", [zeros(1, 1)], "", opset=3, domain=ML, **attributes)


def machine(**changes: Any) -> dict[str, Any]:
    """Makes the attributes of two classes with a support vector of two features each."""
    return {
        "kernel_type": "RBF",
        "kernel_params": [0.5, 0.0, 3.0],
        "vectors_per_class": [1, 1],
        "support_vectors": [0.0, 0.0, 1.0, 1.0],
        "coefficients": [1.0, -1.0],
        "rho": [0.0],
        "classlabels_ints": [0, 1],
        **changes,
    }


def test_the_machine_itself_is_taken():
    model = op_model("SVMClassifier", [zeros(1, 2)], 1, ML, 2, **machine())
    assert onnx_torch.prepare(model).run([zeros(1, 2)])[0].tolist() in ([0], [1])


MACHINES = {
    "fewer coordinates": machine(support_vectors=[0.0]),
    "fewer coefficients": machine(coefficients=[1.0]),
    "no parameters": machine(kernel_params=[0.5]),
    "more vectors than there are": machine(vectors_per_class=[1, 2**40]),
    "vectors of less than none": machine(vectors_per_class=[3, -1]),
    "probabilities of too few": machine(prob_a=[1.0, 2.0], prob_b=[1.0]),
}


@pytest.mark.parametrize("name", MACHINES)
def test_onnxruntime_27950_machines_that_are_none(name):
    refused("SVMClassifier", [zeros(1, 2)], "", opset=1, domain=ML, outputs=2, **MACHINES[name])


# --- onnxruntime#27625, #28706, #28766: sizes that attributes and inputs ask for


@pytest.mark.parametrize("number", [0, -1, *HUGE])
def test_onnxruntime_27625_an_image_of_blocks(number):
    refused("Col2Im", [zeros(1, 4, 16), ints(number, 5), ints(2, 2)], "")


@pytest.mark.parametrize("sizes", [(2**31 - 1, 2**31 - 1), (-1, 2), (0, 2), (-(2**31), -(2**31))])
def test_onnxruntime_28706_crops(sizes):
    crop = np.array(sizes, np.int32)
    inputs = [zeros(1, 1, 4, 4), zeros(1, 4), np.zeros(1, np.int32), crop]
    refused("CropAndResize", inputs, "", opset=1, domain=MS)


@pytest.mark.parametrize("sizes", [[], [2], [2, 2, 2], [[2, 2], [2, 2]], 2], ids=str)
def test_onnxruntime_28766_crop_sizes_of_another_count(sizes):
    """onnxruntime read the second of two numbers, of which there was one."""
    inputs = [zeros(1, 1, 4, 4), zeros(1, 4), np.zeros(1, np.int32), np.array(sizes, np.int32)]
    refused("CropAndResize", inputs, "", opset=1, domain=MS)


@pytest.mark.parametrize("batch", [-1, 1, 2**31 - 1, -(2**31)])
def test_onnxruntime_28706_crops_of_images_that_are_not_there(batch):
    inputs = [zeros(1, 1, 4, 4), zeros(1, 4), np.array([batch], np.int32), np.array([2, 2], np.int32)]
    refused("CropAndResize", inputs, "", opset=1, domain=MS)


# --- onnxruntime#28973: types of which several lie in a byte (#28839, bound memory: test_session.py)


@pytest.mark.parametrize(
    ("element", "per_byte"),
    [
        (TensorProto.INT4, 2),
        (TensorProto.UINT4, 2),
        (TensorProto.FLOAT4E2M1, 2),
        (TensorProto.INT2, 4),
        (TensorProto.UINT2, 4),
    ],
)
@pytest.mark.parametrize("count", [1, 3, 5, 7, 9])
def test_onnxruntime_28973_odd_counts(element, per_byte, count):
    """The last byte of an odd number of elements is there in part; one byte more or less than they take is refused."""
    size = -(-count // per_byte)
    for length in (size - 1, size, size + 1):
        tensor = TensorProto(name="w", dims=[count], data_type=element, raw_data=b"\x11" * length)
        nodes = [helper.make_node("Identity", ["w"], ["y"])]
        model = model_of(nodes, [], ["y"], initializer=[tensor])
        if length == size:
            assert onnx_torch.prepare(model).run()[0].shape == (count,)
        else:
            with pytest.raises(onnx_torch.InvalidModelError, match="bytes|elements"):
                onnx_torch.prepare(model)


# --- onnxruntime#28991, #29012, #29014, #28774: operators of com.microsoft (#29011, addresses: test_known_attacks.py;
# #28774, the vocabulary of a search: test_contrib_search.py)


def grouped_query(lengths: list[int], total: int, cache: int = 8) -> list[Any]:
    past = zeros(1, 2, cache, 16)
    return [zeros(1, 1, 32), zeros(1, 1, 32), zeros(1, 1, 32), past, past,
            np.array(lengths, np.int32), np.array(total, np.int32)]  # fmt: skip


@pytest.mark.parametrize(
    ("lengths", "total"),
    [
        ([8], 8),
        ([100], 101),
        ([2**31 - 1], 8),
        ([-2], 8),
        ([-(2**31)], 8),
        ([3, 3], 8),
        ([], 8),
        ([3], -1),
        ([3], -(2**31)),
    ],
)
def test_onnxruntime_28991_lengths_beyond_the_cache(lengths, total):
    """The past is as long as the cache, which is shared: no room is left, or more is said to be there than is."""
    inputs = grouped_query(lengths, total)
    model = op_model("GroupQueryAttention", inputs, 1, MS, 3, num_heads=2, kv_num_heads=2)
    outcome = ends(model, inputs)
    assert outcome is None or all(np.isfinite(value).all() and not value.any() for value in outcome)


def ends(model: onnx.ModelProto, inputs: list[Any]) -> list[np.ndarray] | None:
    """Gives what a model gives; None where it is refused."""
    try:
        return onnx_torch.prepare(model).run([value for value in inputs if value is not None])
    except onnx_torch.Error:
        return None


QUANTIZED = {"K": 32, "N": 4, "bits": 4, "block_size": 32}


@pytest.mark.parametrize(
    "changed",
    [
        {1: zeros(4, 1, 15, dtype=BYTES)},
        {1: zeros(3, 1, 16, dtype=BYTES)},
        {2: zeros(3)},
        {3: zeros(1, dtype=BYTES)},
        {4: np.full(32, 7, np.int32)},
        {4: np.full(32, -1, np.int32)},
        {4: np.full(32, 2**31 - 1, np.int32)},
        {4: np.zeros(31, np.int32)},
        {5: zeros(3)},
    ],
    ids=str,
)
def test_onnxruntime_29014_weights_of_4_bits(changed):
    """The release's notes have #29014 among accesses out of bounds in kernels, and do not say in which."""
    inputs: list[Any] = [zeros(1, 32), zeros(4, 1, 16, dtype=BYTES), zeros(4), None, None, None]
    inputs = [changed.get(i, value) for i, value in enumerate(inputs)]
    refused("MatMulNBits", inputs, "", opset=1, domain=MS, **QUANTIZED)


GATED = [zeros(1, 3, 4), zeros(4), zeros(1, 2, 3, 3), zeros(2, 8), zeros(8), zeros(1, 2, 1, 1)]
FEW_DIMENSIONS: dict[str, tuple[str, list[Any], dict[str, Any]]] = {
    "a table without columns": ("RelativePositionBias", [zeros(8), ints(3), ints(3)], {"max_distance": 8}),
    "a table that is a number": ("RelativePositionBias", [zeros(), ints(3), ints(3)], {"max_distance": 8}),
    "offsets in a row": ("GatedRelativePositionBias", [*GATED, zeros(3, dtype=np.int32)], {"num_heads": 2}),
    "an offset": ("GatedRelativePositionBias", [*GATED, zeros(dtype=np.int32)], {"num_heads": 2}),
    "an image of one dimension": ("CausalConvWithState", [zeros(3), zeros(3, 1, 4)], {"outputs": 2}),
    "an image of none": ("CausalConvWithState", [zeros(), zeros(3, 1, 4)], {"outputs": 2}),
    "a kernel of one dimension": ("CausalConvWithState", [zeros(2, 3, 5), zeros(4)], {"outputs": 2}),
    "a kernel of none": ("CausalConvWithState", [zeros(2, 3, 5), zeros()], {"outputs": 2}),
    "a query of two dimensions": (
        "LinearAttention",
        [zeros(3, 8), zeros(2, 3, 4), zeros(2, 3, 6)],
        {"q_num_heads": 4, "kv_num_heads": 2, "update_rule": "linear", "outputs": 2},
    ),
    "a value of two dimensions": (
        "LinearAttention",
        [zeros(2, 3, 8), zeros(2, 3, 4), zeros(3, 6)],
        {"q_num_heads": 4, "kv_num_heads": 2, "update_rule": "linear", "outputs": 2},
    ),
    "a number that is normalized": ("SkipLayerNormalization", [zeros(), zeros(), zeros(4)], {}),
    "a skip that is a number, of a row": ("SkipLayerNormalization", [zeros(3), zeros(), zeros(4)], {}),
}


@pytest.mark.parametrize("name", FEW_DIMENSIONS)
def test_onnxruntime_29012_inputs_of_fewer_dimensions(name):
    """onnxruntime asked for the sizes of dimensions that were not there."""
    op_type, inputs, options = FEW_DIMENSIONS[name]
    refused(op_type, inputs, "", opset=1, domain=MS, **options)


@pytest.mark.parametrize("ids", [[[5]], [[-1]], [[2**31 - 1]], [[-(2**31)]]])
def test_onnxruntime_28774_tokens_beyond_the_vocabulary(ids):
    inputs = [np.array(ids, np.int32), None, zeros(5, 8), zeros(4, 8), None, zeros(8), zeros(8)]
    refused("EmbedLayerNormalization", inputs, "", opset=1, domain=MS, outputs=2)


# --- onnx#8303, onnxruntime#4585, #23258: what is made of a model before it runs


def ways(model: onnx.ModelProto) -> list[Any]:
    """Lists what can be done with a model of one input of two numbers, as functions of nothing."""
    feeds = {model.graph.input[0].name: np.float32([-1, 2])} if model.graph.input else {}
    return [
        lambda: onnx_torch.prepare(model).run(feeds),
        lambda: onnx_torch.prepare(model, optimize=False).run(feeds),
        lambda: onnx_torch.check(model),
        lambda: onnx_torch.info(model),
        lambda: onnx_torch.show(model),
        lambda: onnx_torch.extract(model),
        lambda: onnx_torch.optimize(model),
        lambda: onnx_torch.InferenceSession(model.SerializeToString()).get_outputs(),
    ]


def all_end(model: onnx.ModelProto) -> list[Any]:
    """Does all that can be done with a model, and gives the outcomes; those that are errors are this package's."""
    outcomes: list[Any] = []
    for way in ways(model):
        try:
            outcomes.append(way())
        except onnx_torch.Error as error:
            outcomes.append(error)
    return outcomes


def calling(*functions: tuple[str, list[Any]], opsets: tuple[str, ...] = ("", "my")) -> onnx.ModelProto:
    """Makes a model that calls the first of some functions, each a name and nodes from x to y."""
    imports = [helper.make_opsetid(domain, 21 if not domain else 1) for domain in opsets]
    info = [helper.make_tensor_value_info(name, TensorProto.FLOAT, [2]) for name in "xy"]
    call = helper.make_node(functions[0][0], ["x"], ["y"], domain="my")
    model = helper.make_model(helper.make_graph([call], "g", info[:1], info[1:]), opset_imports=imports, ir_version=10)
    for name, nodes in functions:
        model.functions.append(helper.make_function("my", name, ["x"], ["y"], nodes, imports))
    return model


def unary(op_type: str, domain: str = "", given: str = "x", made: str = "y") -> onnx.NodeProto:
    return helper.make_node(op_type, [given], [made], domain=domain)


def chosen(node: onnx.NodeProto) -> list[onnx.NodeProto]:
    """Lists the nodes that give what a node does, by the branch of an If."""
    branch = helper.make_graph([node], "branch", [], [onnx.ValueInfoProto(name="y")])
    true = helper.make_node("Constant", [], ["true"], value=helper.make_tensor("t", TensorProto.BOOL, [], [True]))
    return [
        true,
        helper.make_node("If", ["true"], ["z"], then_branch=branch, else_branch=branch),
        unary("Neg", given="z"),
    ]


UNKNOWN_OPERATORS = {
    "in a function": calling(("F", [unary("Frob")])),
    "of a domain that nobody knows": calling(("F", [unary("Frob", "other")]), opsets=("", "my", "other")),
    "of a domain that is not imported": calling(("F", [unary("Frob", "other")])),
    "in a function of a function": calling(("F", [unary("G", "my")]), ("G", [unary("Frob")])),
    "in a branch of a function": calling(("F", chosen(unary("Frob")))),
    "in a function that a branch calls": calling(("F", chosen(unary("G", "my"))), ("G", [unary("Frob")])),
    "behind a known one": calling(("F", [unary("Relu", made="a"), unary("Frob", given="a")])),
    "of a function that is not there": calling(("F", [unary("H", "my")])),
}


@pytest.mark.parametrize("name", UNKNOWN_OPERATORS)
def test_onnx_8303_functions_with_an_unknown_operator(name):
    """onnx's shape inference looked the function up in a map that was gone."""
    first, second, problems, *_ = all_end(UNKNOWN_OPERATORS[name])
    for error in first, second:
        assert isinstance(error, onnx_torch.UnsupportedError) and ("Frob" in str(error) or "H" in str(error))
    assert problems


CIRCLES = {
    "of one": calling(("F", [unary("F", "my")])),
    "of two": calling(("F", [unary("G", "my")]), ("G", [unary("F", "my")])),
    "by a branch": calling(("F", chosen(unary("F", "my")))),
    "with an unknown operator": calling(("F", [unary("F", "my", made="a"), unary("Frob", given="a")])),
}


@pytest.mark.parametrize("name", CIRCLES)
def test_onnx_8303_functions_that_call_themselves(name):
    first, second, problems, *_ = all_end(CIRCLES[name])
    assert isinstance(first, onnx_torch.Error) and isinstance(second, onnx_torch.Error) and problems


def test_onnx_8303_functions_of_a_known_domain_and_of_one_name():
    """A function that has the name of an operator, or of another function, is taken in one way, or refused."""
    shadow = calling(("F", [unary("Relu")]), ("Relu", [unary("Neg")]))
    shadow.functions[1].domain = ""
    twice = calling(("F", [unary("Relu")]), ("F", [unary("Neg")]))
    for model in shadow, twice:
        first, second, *_ = all_end(model)
        if isinstance(first, onnx_torch.Error):
            assert isinstance(second, onnx_torch.Error)
        else:
            assert first[0].tolist() in ([0, 2], [1, -2])
            assert second[0].tolist() == first[0].tolist()


NO_TYPES = [0, -1, max(TensorProto.DataType.values()) + 1, 999, 2**31 - 1, -(2**31)]


def with_type(place: str, element: int) -> onnx.ModelProto:
    """Makes a model y = Relu(x) that has a type at a place, which is none."""
    model = calling(("F", [unary("Relu")]))
    graph = model.graph
    if place == "input":
        graph.input[0].type.tensor_type.elem_type = element
    elif place == "output":
        graph.output[0].type.tensor_type.elem_type = element
    elif place == "value":
        model.functions[0].value_info.add(name="y").type.tensor_type.elem_type = element
        graph.value_info.add(name="y").type.tensor_type.elem_type = element
    elif place == "initializer":
        graph.initializer.add(name="x", dims=[2], data_type=element, raw_data=bytes(8))
    elif place == "Constant":
        tensor = TensorProto(name="t", dims=[2], data_type=element, raw_data=bytes(8))
        graph.node[0].CopyFrom(helper.make_node("Constant", [], ["y"], value=tensor))
    elif place == "sparse initializer":
        sparse = graph.sparse_initializer.add(dims=[2])
        sparse.values.CopyFrom(TensorProto(name="x", dims=[1], data_type=element, raw_data=bytes(4)))
        sparse.indices.CopyFrom(TensorProto(name="i", dims=[1], data_type=TensorProto.INT64, raw_data=bytes(8)))
    elif place == "Cast":
        graph.node[0].CopyFrom(helper.make_node("Cast", ["x"], ["y"], to=element))
    elif place == "sequence":
        graph.input[0].type.sequence_type.elem_type.tensor_type.elem_type = element
    elif place == "optional":
        graph.input[0].type.optional_type.elem_type.tensor_type.elem_type = element
    elif place == "sparse":
        graph.input[0].type.sparse_tensor_type.elem_type = element
    elif place == "key of a map":
        graph.input[0].type.map_type.key_type = element
        graph.input[0].type.map_type.value_type.tensor_type.elem_type = TensorProto.FLOAT
    return model


IGNORED = {"output", "value"}  # what is declared of values that nodes give may be wrong


@pytest.mark.parametrize(
    "place",
    ["input", "output", "value", "initializer", "Constant", "sparse initializer", "Cast"]
    + ["sequence", "optional", "sparse", "key of a map"],
)
@pytest.mark.parametrize("element", NO_TYPES)
def test_onnxruntime_4585_types_that_are_none(place, element):
    """onnxruntime looked up the name of a type that has none."""
    first, second, *_ = all_end(with_type(place, element))
    is_open = (place, element) == ("input", 0)  # not declared
    for outcome in first, second:
        if place in IGNORED or is_open:
            assert isinstance(outcome, onnx_torch.Error) or outcome[0].tolist() == [0, 2]
        else:
            assert isinstance(outcome, onnx_torch.Error)


def test_onnxruntime_4585_nodes_without_what_they_need():
    """The node that onnxruntime took for one with a type was an Imputer without an input."""
    schemas = [schema for schema in onnx.defs.get_all_schemas() if schema.min_input > 0]
    assert len(schemas) > 150
    for schema in schemas:
        node = helper.make_node(schema.name, [], ["y"], domain=schema.domain)
        model = model_of([node], [], ["y"], opset=schema.since_version, domain=schema.domain)
        with pytest.raises(onnx_torch.Error):
            onnx_torch.prepare(model).run()


TURNED: dict[str, list[np.ndarray]] = {
    "x": [np.arange(24, dtype=np.float32).reshape(2, 3, 4)],
    "x of no elements": [zeros(2, 0, 4)],
    "x of ones": [np.ones((1, 1, 1), np.float32)],
}
TURNS = {
    "back and forth": "a = Transpose<perm = [2, 0, 1]>(x)  b = Transpose<perm = [1, 2, 0]>(a)  y = Relu(b)",
    "twice the same way": "a = Transpose<perm = [1, 2, 0]>(x)  b = Transpose<perm = [1, 2, 0]>(a)  y = Relu(b)",
    "of a vector": "a = Transpose<perm = [2, 1, 0]>(x)  r = ReduceSum<keepdims = 0>(a, axes)  y = Transpose(r)",
    "of a number": "r = ReduceSum<keepdims = 0>(x)  y = Transpose(r)",
    "before a broadcast": "a = Transpose<perm = [0, 2, 1]>(x)  b = Add(a, v)  y = Transpose<perm = [0, 2, 1]>(b)",
    "before a shape": "a = Transpose<perm = [1, 0, 2]>(x)  s = Shape(a)  y = Expand(a, s)",
    "of an output, too": "a = Transpose<perm = [2, 1, 0]>(x)  y = Transpose<perm = [2, 1, 0]>(a)",
    "around a concatenation": "a = Transpose(x)  b = Concat<axis = -1>(a, a)  y = Transpose(b)",
    "around a squeeze": "a = Transpose<perm = [1, 0, 2]>(x)  b = Unsqueeze(a, axes)  y = Transpose(b)",
    "around a softmax": "a = Transpose<perm = [0, 2, 1]>(x)  b = Softmax<axis = 1>(a)  y = Transpose(b)",
    "into a product": "a = Transpose<perm = [0, 2, 1]>(x)  y = MatMul(a, x)",
}


@pytest.mark.parametrize("name", TURNS)
@pytest.mark.parametrize("given", TURNED)
def test_onnxruntime_23258_transposes_are_the_same_without_each_pass(name, given):
    """onnxruntime ended where it took a transpose out, and without optimizations it did not."""
    text = f"""<ir_version: 10, opset_import: ["": 21]> g (float[a, b, c] x) => (y)
        <int64[1] axes = {{0}}, float[1] v = {{2}}> {{ {TURNS[name]} }}"""
    model = onnx.parser.parse_model(text)
    (plain,) = onnx_torch.prepare(model, optimize=False).run(TURNED[given])
    for without in ([], *([one] for one in onnx_torch.backend.passes())):
        rep = onnx_torch.prepare(model, disabled_passes=without)
        for _ in range(3):  # the third run goes by a plan
            np.testing.assert_allclose(rep.run(TURNED[given])[0], plain, rtol=1e-6)
    np.testing.assert_allclose(onnx_torch.prepare(onnx_torch.optimize(model)).run(TURNED[given])[0], plain, rtol=1e-6)


@pytest.mark.parametrize("order", [[0, 1], [0, 1, 2, 3], [0, 1, 3], [0, 0, 1], [-1, 0, 1], [0, 1, HIGHEST]], ids=str)
def test_onnxruntime_23258_orders_that_are_none_are_refused_with_and_without_passes(order):
    nodes = [
        helper.make_node("Transpose", ["x"], ["a"], perm=order),
        helper.make_node("Transpose", ["a"], ["y"], perm=order),
    ]
    x = zeros(2, 3, 4)
    for shape in (None, x.shape):
        model = model_of(nodes, [tensor_info("x", x, shape)], ["y"])
        assert any(isinstance(outcome, onnx_torch.Error) for outcome in all_end(model))
        for optimize in (True, False):
            with pytest.raises(onnx_torch.Error, match="Transpose"):
                onnx_torch.prepare(model, optimize=optimize).run([x])


# --- torch's own


@pytest.mark.parametrize(
    ("name", "number"), list(itertools.product(["kernel_shape", "strides", "dilations"], [0, -1, 2**31, 2**62]))
)
def test_cve_2025_2953_pools(name, number):
    """Windows like these are refused, as mkldnn_max_pool2d divides by the strides."""
    refused("MaxPool", [IMAGE], name, **{"kernel_shape": [2, 2], name: [number, 1]})


@pytest.mark.parametrize("lengths", [[7], [-1], [2**31 - 1], [-(2**31)]])
@pytest.mark.parametrize(("op_type", "gates"), [("RNN", 1), ("GRU", 3), ("LSTM", 4)])
def test_cve_2025_2999_lengths_of_sequences(op_type, gates, lengths):
    """A length outside is as the nearest one that is there; unpack_sequence and its like trust lengths."""
    x, w = np.ones((3, 1, 4), np.float32), np.ones((1, gates * 4, 4), np.float32)
    inputs = [[x, w, w, None, np.array(given, np.int32)] for given in (lengths, np.clip(lengths, 0, 3))]
    for make in (op_model, constant_model):
        rep = onnx_torch.prepare(make(op_type, inputs[0], outputs=2, hidden_size=4))
        ours = rep.run([v for v in inputs[0] if v is not None][: len(rep.inputs)])
        nearest = onnx_torch.prepare(op_model(op_type, inputs[1], outputs=2, hidden_size=4))
        expected = nearest.run([v for v in inputs[1] if v is not None])
        for one, other in zip(ours, expected, strict=True):
            np.testing.assert_allclose(one, other, rtol=1e-5)


@pytest.mark.parametrize("lengths", [[1, 1], []])
@pytest.mark.parametrize(("op_type", "gates"), [("RNN", 1), ("GRU", 3), ("LSTM", 4)])
def test_cve_2025_2999_lengths_of_another_count(op_type, gates, lengths):
    inputs = [zeros(3, 1, 4), zeros(1, gates * 4, 4), zeros(1, gates * 4, 4), None, np.array(lengths, np.int32)]
    refused(op_type, inputs, "", hidden_size=4)


@pytest.mark.parametrize("sizes", [(1, 16, 3), (1, 15, 4), (1, 16, 5), (1, 0, 4), (2, 16, 4)])
def test_cve_2025_3001_weights_of_another_size(sizes):
    """Weights of another size are refused, as lstm_cell trusts its weights."""
    refused("LSTM", [zeros(3, 1, 4), zeros(*sizes), zeros(1, 16, 4)], "", hidden_size=4)
    refused("LSTM", [zeros(3, 1, 4), zeros(1, 16, 4), zeros(*sizes)], "", hidden_size=4)


TRUSTING = ["mkldnn_max_pool2d", "_pack_padded_sequence", "_pad_packed_sequence", "lstm_cell", "ctc_loss", "_ctc_loss"]


@pytest.mark.parametrize("operator", TRUSTING)
def test_cve_2025_3730_operators_that_trust_their_arguments(operator):
    """No model may name ctc_loss, which trusts lengths that are not there, nor what else torch's own faults were in."""
    model = op_model("ATen", [zeros(1, 1, 4), ints(0)], 1, "org.pytorch.aten", operator=operator)
    with pytest.raises(onnx_torch.UnsupportedError, match=operator):
        onnx_torch.prepare(model)
