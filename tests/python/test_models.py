"""Models in every form that the standard and its history allow, and the errors of those that it does not allow."""

import os
import subprocess
import sys
import textwrap
import warnings

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

import onnx_torch
from models import NEWEST, assert_same, model_of, tensor_info
from onnx_torch import backend
from pass_models import assert_close, in_double

FLOAT = TensorProto.FLOAT
X = np.arange(6, dtype=np.float32).reshape(2, 3)
IR_VERSIONS = range(1, onnx.IR_VERSION + 1)


def run(model, *inputs, **options):
    return list(backend.prepare(model, **options).run(list(inputs)))


def identity(tensor=None, output="y", **graph_options):
    """Makes a model that gives an initializer back."""
    initializer = {"initializer": [tensor]} if tensor is not None else {}
    return model_of([helper.make_node("Identity", ["w"], [output])], [], [output], **initializer, **graph_options)


def held(**initializers):
    """Makes a model whose output is an initializer, which may be of types that no operator moves."""
    return model_of([], [], ["w"], **initializers)


def refused(model, message, **options):
    with pytest.raises(onnx_torch.InvalidModelError, match=message) as caught:
        backend.prepare(model, **options)
    assert not backend.is_compatible(model, **options)
    return caught.value


# --- External data ----------------------------------------------------------------------------------------------------


def external(name, dims, element=FLOAT, **entries):
    tensor = TensorProto(name=name, data_type=element, dims=dims, data_location=TensorProto.EXTERNAL)
    for key, value in entries.items():
        tensor.external_data.add(key=key, value=str(value))
    return tensor


def saved(model, directory, **files):
    """Writes a model beside files of the contents given, and gives its path."""
    for name, content in files.items():
        (directory / f"{name}.bin").write_bytes(content)
    path = directory / "model.onnx"
    path.write_bytes(model.SerializeToString())
    return path


@pytest.mark.parametrize(
    ("entries", "first"),
    [
        ({}, 0),
        ({"offset": 8}, 2),
        ({"length": 24}, 0),
        ({"offset": 16, "length": 24}, 4),
        ({"offset": 8, "checksum": "not verified", "basepath": "not looked at"}, 2),
    ],
)
def test_external_data_has_an_offset_and_a_length(tmp_path, entries, first):
    content = np.arange(100, dtype=np.float32)
    model = identity(external("w", [2, 3], location="w.bin", **entries))
    (y,) = run(saved(model, tmp_path, w=content.tobytes()))
    np.testing.assert_array_equal(y, content[first : first + 6].reshape(2, 3))


@pytest.mark.parametrize(
    "element", sorted(set(TensorProto.DataType.values()) - {TensorProto.UNDEFINED, TensorProto.STRING})
)
@pytest.mark.parametrize("offset", [0, 1])
def test_external_data_of_every_element_type(tmp_path, element, offset):
    dtype = helper.tensor_dtype_to_np_dtype(element)
    w = np.array([0, 1, 1, 0, 1]).astype(dtype)
    inside = numpy_helper.from_array(w, "w")
    model = held(initializer=[external("w", [5], element, location="w.bin", offset=offset)])
    for got in (run(held(initializer=[inside]))[0], run(saved(model, tmp_path, w=bytes(offset) + inside.raw_data))[0]):
        assert got.dtype == dtype
        assert got.tobytes() == w.tobytes()


def test_external_data_of_no_elements(tmp_path):
    (y,) = run(saved(identity(external("w", [0, 3], location="w.bin")), tmp_path, w=b""))
    assert y.shape == (0, 3)


def test_external_data_in_attributes_subgraphs_functions_and_sparse_tensors(tmp_path):
    parts = np.arange(8, dtype=np.float32)
    at = {name: external(name, [2], location="w.bin", offset=8 * i, length=8) for i, name in enumerate("abcd")}
    constant = helper.make_node("Constant", [], ["a"], value=at["a"])
    branch = helper.make_graph([], "branch", [], [onnx.ValueInfoProto(name="b")], [at["b"]])
    chosen = helper.make_node("If", ["yes"], ["p"], then_branch=branch, else_branch=branch)
    inner = helper.make_node("Constant", [], ["c"], value=at["c"])
    function = helper.make_function("my", "Weights", [], ["c"], [inner], [helper.make_opsetid("", NEWEST)])
    called = helper.make_node("Weights", [], ["q"], domain="my")
    indices = numpy_helper.from_array(np.array([1, 2]))
    yes = numpy_helper.from_array(np.array(True), "yes")
    nodes, outputs = [constant, chosen, called], ["a", "p", "q", "d"]
    sparse = helper.make_sparse_tensor(at["d"], indices, [3])
    model = model_of(nodes, [], outputs, initializer=[yes], sparse_initializer=[sparse])
    model.functions.append(function)
    model.opset_import.append(helper.make_opsetid("my", 1))
    expected = [parts[:2], parts[2:4], parts[4:6], [0, *parts[6:]]]
    for got, want in zip(run(saved(model, tmp_path, w=parts.tobytes())), expected, strict=True):
        np.testing.assert_array_equal(got, want)


@pytest.mark.parametrize("location", ["deep/er/w.bin", "./deep/../deep/er/w.bin", "deep/Gewichte ä.bin"])
def test_external_data_lies_below_the_model(tmp_path, location):
    (tmp_path / "deep" / "er").mkdir(parents=True)
    (tmp_path / location).write_bytes(X.tobytes())
    path = saved(identity(external("w", [2, 3], location=location)), tmp_path)
    np.testing.assert_array_equal(run(path)[0], X)


def test_the_directory_of_external_data_is_an_option(tmp_path, monkeypatch):
    model = identity(external("w", [2, 3], location="w.bin"))
    saved(model, tmp_path, w=X.tobytes())
    for form in (model, model.SerializeToString()):
        np.testing.assert_array_equal(run(form, base_dir=tmp_path)[0], X)
        refused(form, r'"w": .*w\.bin.*base_dir')
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir()
    np.testing.assert_array_equal(run(saved(model, elsewhere), base_dir=str(tmp_path))[0], X)
    monkeypatch.chdir(tmp_path)
    np.testing.assert_array_equal(run("model.onnx")[0], X)
    np.testing.assert_array_equal(run(model, base_dir=".")[0], X)


def test_links_may_lead_anywhere_below_the_model_or_where_its_own_link_leads(tmp_path):
    """Model hubs keep their caches in the second way."""
    blobs, snapshot = tmp_path / "blobs", tmp_path / "snapshot"
    blobs.mkdir()
    snapshot.mkdir()
    model = identity(external("w", [2, 3], location="w.bin"))
    saved(model, blobs, w=X.tobytes())
    (snapshot / "w.bin").symlink_to(blobs / "w.bin")
    refused(saved(model, snapshot), r'"w": .*w\.bin is a link out of the model\'s directory')
    (snapshot / "model.onnx").unlink()
    (snapshot / "model.onnx").symlink_to(blobs / "model.onnx")
    np.testing.assert_array_equal(run(snapshot / "model.onnx")[0], X)
    (blobs / "model.onnx").rename(tmp_path / "model.onnx")
    (tmp_path / "w.bin").symlink_to(blobs / "w.bin")
    np.testing.assert_array_equal(run(tmp_path / "model.onnx")[0], X)


@pytest.mark.parametrize(
    ("entries", "message"),
    [
        ({"location": "missing.bin"}, r"cannot read .*missing\.bin: No such file"),
        ({"location": "sub"}, "cannot read .*sub: Is a directory"),
        ({"location": "../w.bin"}, "beside or below the model"),
        ({"location": "sub/../../w.bin"}, "beside or below the model"),
        ({"location": "/etc/hostname"}, "beside or below the model"),
        ({}, "has no location"),
        ({"location": "w.bin", "offset": 80}, r"24 bytes from 80 on, ends past the end of w\.bin \(100 bytes\)"),
        ({"location": "w.bin", "offset": 1000}, r"ends past the end of w\.bin"),
        ({"location": "w.bin", "length": 2**63 - 1}, r"ends past the end of w\.bin"),
        ({"location": "w.bin", "length": 20}, "expected 24 bytes of data, found 20"),
        ({"location": "w.bin", "offset": -4}, 'the offset of its external data is "-4"'),
        ({"location": "w.bin", "length": "many"}, 'the length of its external data is "many"'),
    ],
)
def test_external_data_that_cannot_be_read(tmp_path, entries, message):
    (tmp_path / "sub").mkdir()
    refused(saved(identity(external("w", [2, 3], **entries)), tmp_path, w=bytes(100)), f'tensor "w": .*{message}')


def test_an_error_in_a_constant_names_its_node(tmp_path):
    node = helper.make_node("Constant", [], ["y"], name="weights", value=external("", [1], location="missing.bin"))
    assert refused(saved(model_of([node], [], ["y"]), tmp_path), "missing").node_name == "weights"


@pytest.mark.parametrize(
    ("tensor", "message"),
    [
        (external("w", [1], TensorProto.STRING, location="w.bin"), "strings cannot lie in an external file"),
        (external("w", [-1], location="w.bin"), "negative dimension"),
        (external("w", [2**40, 2**40], location="w.bin"), "too many elements"),
        (TensorProto(name="w", data_type=FLOAT, dims=[2], raw_data=bytes(7)), "expected 8 bytes of data, found 7"),
        (TensorProto(name="w", data_type=FLOAT, dims=[2], float_data=[1]), "expected 8 bytes of data, found 4"),
        (TensorProto(name="w", data_type=99, dims=[2], raw_data=bytes(8)), "unknown element type 99"),
        (TensorProto(name="w", dims=[2], raw_data=bytes(8)), "unknown element type 0"),
        (TensorProto(name="w", data_type=TensorProto.STRING, dims=[2]), "number of strings"),
    ],
)
def test_tensors_that_cannot_be_read(tmp_path, tensor, message):
    refused(saved(identity(tensor), tmp_path, w=bytes(16)), f'tensor "w": .*{message}')


# --- Large models -----------------------------------------------------------------------------------------------------


def in_a_process(script, *arguments):
    """Gives what a script prints in a process; it may call `resident()` and `peak()`, in MiB."""
    prelude = """
        import ctypes, re, sys
        import numpy as np, onnx, onnx_torch
        def status(key): return int(re.search(key + r":\\s+(\\d+) kB", open("/proc/self/status").read())[1]) / 1024
        def resident(): return status("VmRSS")
        def peak(): return status("VmHWM")
        """
    text = textwrap.dedent(prelude) + textwrap.dedent(script)
    result = subprocess.run(
        [sys.executable, "-c", text, *map(str, arguments)], capture_output=True, text=True, check=False
    )
    assert result.returncode == 0, result.stderr
    return [float(word) for word in result.stdout.split()]


def embedding(tmp_path, rows, columns):
    """Makes a model that looks rows up in a table of zeros but for its last element, which takes no disk."""
    with open(tmp_path / "w.bin", "wb") as file:
        file.truncate(4 * rows * columns)
        file.seek(-4, os.SEEK_END)
        file.write(np.float32(7).tobytes())
    node = helper.make_node("Gather", ["w", "i"], ["y"])
    table = external("w", [rows, columns], location="w.bin")
    return saved(model_of([node], [tensor_info("i", np.zeros(1, np.int64))], ["y"], initializer=[table]), tmp_path)


def test_a_mapped_model_of_3_gib_is_not_read_whole(tmp_path):
    path = embedding(tmp_path, 3 * 2**18, 2**10)
    script = """
        path, directory = sys.argv[1:]
        before = resident()
        reps = [onnx_torch.prepare(path, map_external=True)]
        model = onnx.load(path, load_external_data=False)
        reps.append(onnx_torch.prepare(model, base_dir=directory, map_external=True))
        for rep in reps:
            (y,) = rep.run([np.array([0, 1000, -1])])
            assert y.shape == (3, 1024) and y.sum() == y[2, -1] == 7
        print(peak() - before)
        """
    (growth,) = in_a_process(script, path, tmp_path)
    assert growth < 200


def test_weights_are_held_once(tmp_path):
    """Tensors look into the model's message, or into its files: reading all of them takes memory for one copy."""
    size, outside, inside = 64, tmp_path / "outside", tmp_path / "inside.onnx"
    outside.mkdir()
    path = embedding(outside, size * 2**8, 2**10)
    onnx.save(onnx.load(path), inside)
    script = """
        reps = [onnx_torch.prepare(sys.argv[1]).run([np.array([0])])]
        def held():
            ctypes.CDLL(None).malloc_trim(0)  # what was given up goes back to the system
            return resident()
        for path in sys.argv[1:]:
            before = held()
            reps.append(onnx_torch.prepare(path))
            for row in range(0, 2**14, 2**10):
                reps[-1].run([np.arange(row, row + 2**10)])
            print(held() - before)
        """
    for growth in in_a_process(script, path, inside):
        assert 0.9 * size < growth < 1.2 * size


def test_results_that_are_kept_hold_no_memory_of_larger_ones(tmp_path):
    """A run takes 64 MiB for 8 MiB of results; eight of them are kept, and hold no more."""
    x = helper.make_tensor_value_info("x", FLOAT, [1, 16, 1024, 1024])
    nodes = [
        helper.make_node("Exp", ["x"], ["large"]),
        helper.make_node("MaxPool", ["large"], ["small"], kernel_shape=[4, 4], strides=[4, 4]),
        helper.make_node("Concat", ["small", "small"], ["y"], axis=1),
    ]
    script = """
        rep = onnx_torch.prepare(sys.argv[1])
        x = np.zeros((1, 16, 1024, 1024), np.float32)
        before = resident()
        kept = [rep.run([x]) for _ in range(8)]
        assert all((y == 1).all() for y, in kept)
        print(resident() - before)
        """
    (growth,) = in_a_process(script, saved(model_of(nodes, [x], ["y"]), tmp_path))
    assert growth < 200


def layers(path, weights, scale=None):
    """Writes products with these weights, one after another; each result times the scale, if there is one."""
    nodes, value = [], "x"
    initializers = [numpy_helper.from_array(weight, f"w{i}") for i, weight in enumerate(weights)]
    if scale is not None:
        initializers.append(numpy_helper.from_array(scale, "scale"))
    for i in range(len(weights)):
        nodes.append(helper.make_node("MatMul", [value, f"w{i}"], [value := f"y{i}"]))
        if scale is not None:
            nodes.append(helper.make_node("Mul", [value, "scale"], [value := f"z{i}"]))
    x = helper.make_tensor_value_info("x", FLOAT, [64, len(weights[0])])
    onnx.save(model_of(nodes, [x], [value], initializer=initializers), path)
    return path


GROWTH_OF_A_FIRST_RUN = """
    small, large, width = sys.argv[1:]
    x = np.ones((64, int(width)), np.float32)
    onnx_torch.prepare(small).run([x])  # what any model takes
    before = resident()
    open("/proc/self/clear_refs", "w").write("5")  # forgets the peak
    rep = onnx_torch.prepare(large)
    rep.run([x])
    print(resident() - before, peak() - before)
    """


def test_weights_that_were_laid_out_leave_no_memory_behind(tmp_path):
    width, count = 512, 48
    weight = 1.1 * np.eye(width, dtype=np.float32)  # no numbers of float16, in which they would lie
    small = layers(tmp_path / "small.onnx", [weight])
    large = layers(tmp_path / "large.onnx", [weight] * count)
    held, most = in_a_process(GROWTH_OF_A_FIRST_RUN, small, large, width)
    size = count * weight.nbytes / 2**20
    assert 0.9 * size < held < 1.3 * size
    assert most < 1.3 * size


def test_weights_are_scaled_without_wider_copies(tmp_path):
    width = 2048
    weight, scale = np.eye(width, dtype=np.float32), np.linspace(1, 2, width, dtype=np.float32)
    small = layers(tmp_path / "small.onnx", [weight[:, :4]], scale[:4])
    large = layers(tmp_path / "large.onnx", [weight], scale)
    _, most = in_a_process(GROWTH_OF_A_FIRST_RUN, small, large, width)
    assert most < 3.5 * weight.nbytes / 2**20  # as it came, scaled, and laid out


def integer_layers(path, weight, count):
    """Writes products of integers in a row, as dynamic quantization makes them, with weights of uint8 around 128."""
    nodes, value = [], "x"
    initializers = [numpy_helper.from_array(np.uint8(128), "zero")]
    for i in range(count):
        initializers.append(numpy_helper.from_array(weight, f"w{i}"))
        quantized, scale, zero = (f"{name}{i}" for name in ("q", "s", "z"))
        nodes += [
            helper.make_node("DynamicQuantizeLinear", [value], [quantized, scale, zero]),
            helper.make_node("MatMulInteger", [quantized, f"w{i}", zero, "zero"], [f"m{i}"]),
            helper.make_node("Cast", [f"m{i}"], [f"f{i}"], to=FLOAT),
            helper.make_node("Mul", [f"f{i}", scale], [value := f"y{i}"]),
        ]
    x = helper.make_tensor_value_info("x", FLOAT, [64, len(weight)])
    onnx.save(model_of(nodes, [x], [value], initializer=initializers), path)
    return path


def test_weights_less_their_zero_point_are_made_one_after_another(tmp_path):
    width, count = 1024, 48
    weight = np.random.default_rng(0).integers(124, 133, (width, width), np.uint8)
    small = integer_layers(tmp_path / "small.onnx", weight, 1)
    large = integer_layers(tmp_path / "large.onnx", weight, count)
    held, most = in_a_process(GROWTH_OF_A_FIRST_RUN, small, large, width)
    size = count * weight.nbytes / 2**20
    assert 0.9 * size < held < 1.3 * size
    assert most < 1.4 * size


def weighted(tmp_path, width=256):
    """Writes a model in one file: a product that is packed, whose weight a Gather may read, too, and a convolution."""
    rng = np.random.default_rng(0)
    nodes = [
        helper.make_node("MatMul", ["x", "w"], ["p"]),
        helper.make_node("Reshape", ["p", "s"], ["i"], doc_string="of rows"),
        helper.make_node("Conv", ["i", "k"], ["c"]),
        helper.make_node("Relu", ["c"], ["y"]),
    ]
    weights = {
        "w": rng.standard_normal((width, width), np.float32),
        "k": rng.standard_normal((64, 256, 1, 1), np.float32),
    }
    weights["s"] = np.array([1, 256, 1, -1])
    initializers = [numpy_helper.from_array(value, name) for name, value in weights.items()]
    x = helper.make_tensor_value_info("x", FLOAT, ["rows", width])
    model = model_of(nodes, [x], ["y"], initializer=initializers)
    for remarks in [model.metadata_props, model.graph.metadata_props, model.graph.node[0].metadata_props]:
        remarks.add(key="made by", value="a test")
    path = tmp_path / "weighted.onnx"
    path.write_bytes(model.SerializeToString())
    return path, rng.standard_normal((256, width), np.float32)


def test_large_weights_in_a_file_are_those_of_the_model(tmp_path):
    path, x = weighted(tmp_path)
    rep, parsed = backend.prepare(path), backend.prepare(onnx.load(path))
    np.testing.assert_array_equal(rep.run([x])[0], parsed.run([x])[0])
    model = onnx.load(path)
    for node in model.graph.node:  # what is told of them is not kept
        node.ClearField("doc_string")
        node.ClearField("metadata_props")
    assert onnx.ModelProto.FromString(rep._prepared.serialized()) == model
    path.unlink()  # it is open still
    for name, value in parsed.intermediates([x]).items():
        np.testing.assert_array_equal(rep.run([x], output_names=[name])[0], value)


def constants_of(scale):
    """Makes weights as some exporters write them: as constants, in branches too, and of another operator."""
    w = numpy_helper.from_array(np.arange(4096, dtype=np.float32) * np.float32(scale))
    k = numpy_helper.from_array(np.arange(2000))
    branches = [
        helper.make_graph(
            [helper.make_node("Constant", [], ["v"], value=w), helper.make_node(op, ["y", "v"], ["t"])],
            op,
            [],
            [onnx.ValueInfoProto(name="t")],
            [numpy_helper.from_array(np.zeros(2000, np.float32), f"of_{op}")],
        )
        for op in ("Add", "Mul")
    ]
    coder = {"keys_tensor": k, "values_tensor": k, "default_tensor": numpy_helper.from_array(np.int64([-1]))}
    nodes = [
        helper.make_node("Constant", [], ["w"], value=w),
        helper.make_node("Add", ["x", "w"], ["y"]),
        helper.make_node("If", ["c"], ["t"], then_branch=branches[0], else_branch=branches[1]),
        helper.make_node("LabelEncoder", ["i"], ["z"], domain="ai.onnx.ml", **coder),
    ]
    x, c, i = (
        helper.make_tensor_value_info(*of)
        for of in [("x", FLOAT, [4096]), ("c", TensorProto.BOOL, []), ("i", TensorProto.INT64, [3])]
    )
    model = model_of(nodes, [x, c, i], ["t", "z"])
    model.opset_import.append(helper.make_opsetid("ai.onnx.ml", 4))
    return model


def assert_has_constants_of(path, scale, of_branches):
    rep = backend.prepare(path)
    x, w = np.ones(4096, np.float32), np.arange(4096, dtype=np.float32)
    for condition, expected in [(True, x + w * scale + w * of_branches), (False, (x + w * scale) * (w * of_branches))]:
        t, z = rep.run([x, np.bool_(condition), np.int64([3, 1999, 7000])])
        np.testing.assert_array_equal(t, expected)
        np.testing.assert_array_equal(z, [3, 1999, -1])
    return rep


def test_large_constants_in_a_file_are_those_of_the_model(tmp_path):
    (tmp_path / "model.onnx").write_bytes(constants_of(2).SerializeToString())
    rep = assert_has_constants_of(tmp_path / "model.onnx", 2, 2)
    assert onnx.ModelProto.FromString(rep._prepared.serialized()) == constants_of(2)


def field(number, content):
    """Writes a field of bytes, as a message has it."""
    size = len(content)
    digits = [size >> shift & 127 for shift in range(0, max(size.bit_length(), 1), 7)]
    length = bytes([*(digit | 128 for digit in digits[:-1]), digits[-1]])
    return bytes([number << 3 | 2]) + length + content


@pytest.mark.parametrize("part", ["tensor", "attribute", "operator"])
def test_a_message_in_a_file_may_come_in_parts(tmp_path, part):
    """A field that there is once counts as it comes last, and one that has parts of its own is made of all of them."""
    model = constants_of(2)
    (constant,) = [node for node in model.graph.node if node.output[0] == "w"]
    model.graph.node.remove(constant)
    tensor, other = constant.attribute[0].t, constants_of(3).graph.node[0].attribute[0].t
    raw = onnx.TensorProto(raw_data=other.raw_data).SerializeToString()
    of_tensor = {"tensor": field(5, tensor.SerializeToString() + raw)}
    of_tensor["attribute"] = field(5, tensor.SerializeToString()) + field(5, raw)
    of_tensor["operator"] = field(5, other.SerializeToString())
    del constant.attribute[:]
    attribute = onnx.AttributeProto(name="value", type=onnx.AttributeProto.TENSOR).SerializeToString()
    node = field(5, attribute + of_tensor[part])
    if part == "operator":  # called Relu before, and without a name as its attribute comes
        node = onnx.NodeProto(op_type="Relu").SerializeToString() + node + constant.SerializeToString()
    else:
        node = constant.SerializeToString() + node
    path = tmp_path / "model.onnx"
    path.write_bytes(model.SerializeToString() + field(7, field(1, node)))
    parsed = onnx.load(path)
    np.testing.assert_array_equal(numpy_helper.to_array(parsed.graph.node[-1].attribute[0].t), 3 * np.arange(4096))
    assert_has_constants_of(path, 3, 2)


def test_a_constant_in_a_file_is_not_taken_for_another(tmp_path):
    """The first is of a domain of its own, and the second tells behind its attributes that it is a constant."""
    values = {name: np.full(2000, value, np.float32) for name, value in {"a": 1, "b": 2}.items()}
    own, standard = (
        helper.make_node("Constant", [], [name], value=numpy_helper.from_array(value), domain=domain)
        for (name, value), domain in zip(values.items(), ("own", None), strict=True)
    )
    body = onnx.parser.parse_function(
        """<domain: "own", opset_import: ["": 21]>
        Constant <value> () => (y) { y = Constant <value: tensor = @value> () }"""
    )
    model = model_of([own, helper.make_node("Identity", ["a"], ["c"])], [], ["b", "c"])
    model.functions.append(body)
    model.opset_import.append(helper.make_opsetid("own", 1))
    attributes = onnx.NodeProto(attribute=standard.attribute).SerializeToString()
    standard.ClearField("attribute")
    path = tmp_path / "model.onnx"
    path.write_bytes(model.SerializeToString() + field(7, field(1, attributes + standard.SerializeToString())))
    b, c = backend.prepare(path).run([])
    np.testing.assert_array_equal(b, values["b"])
    np.testing.assert_array_equal(c, values["a"])


@pytest.mark.parametrize("change", ["its length", "its contents"])
def test_a_file_that_changes_under_a_model_is_not_read(tmp_path, change):
    path, x = weighted(tmp_path)
    rep = backend.prepare(path)
    before = rep.run([x])[0]
    data = bytearray(path.read_bytes())
    data[-(2**16)] ^= 1
    path.write_bytes(data[: -(2**10) if change == "its length" else None])
    np.testing.assert_array_equal(rep.run([x])[0], before)
    with pytest.raises(onnx_torch.InvalidModelError, match=r"weighted\.onnx: it has changed since it was loaded"):
        rep.run([x], output_names=["p"])


def test_no_location_is_the_models_own_file(tmp_path):
    """A table tells where a file's large weights are in it; what a model says leads nowhere but below its folder."""
    own = identity(external("w", [2**17], location="//model", offset=2**40, length=2**19), doc_string="-" * 2**16)
    refused(saved(own, tmp_path), "must lie in a file beside or below the model")
    refused(own.SerializeToString(), "must lie in a file beside or below the model", base_dir=tmp_path)


def test_a_weight_that_was_laid_out_is_not_kept(tmp_path):
    size = 64
    path, _ = weighted(tmp_path, 2**12)
    script = """
        onnx_torch.prepare(sys.argv[2]).run([np.ones((256, 256), np.float32)])
        before = resident()
        rep = onnx_torch.prepare(sys.argv[1], threads=1, shapes={"rows": 256})
        rep.run([np.ones((256, 2**12), np.float32)])
        print(resident() - before, peak() - before)
        """
    (tmp_path / "small").mkdir()
    held, peak = in_a_process(script, path, weighted(tmp_path / "small")[0])
    assert 0.9 * size < held < 1.5 * size
    assert peak < 2.6 * size  # while it is laid out it is there twice


def test_a_weight_that_was_laid_out_can_be_had_back(tmp_path):
    """Other numbers of rows may want other layouts of the weight, and ATen wants none at all."""
    path, _ = weighted(tmp_path)
    model = onnx.load(path)
    del model.graph.node[1:]
    model.graph.output[0].name = "p"
    path.write_bytes(model.SerializeToString())
    rep, plain = backend.prepare(path), onnx_torch.prepare(in_double(model), optimize=False)
    for rows in (256, 1, 0, 7, 64, 1000, 2):
        x = np.random.default_rng(rows).standard_normal((rows, 256), np.float32)
        assert_close(rep.run([x])[0], plain.run([x.astype(np.float64)])[0])
    x[:] = np.nan
    assert np.isnan(rep.run([x])[0]).all()


def test_a_file_is_mapped_once_where_it_may_be(tmp_path):
    names = [f"w{i}" for i in range(10)]
    tensors = [external(name, [256], location="w.bin", offset=1024 * i) for i, name in enumerate(names)]
    nodes = [helper.make_node("Sum", names, ["y"])]
    content = np.arange(2560, dtype=np.float32)
    path = saved(model_of(nodes, [], ["y"], initializer=tensors), tmp_path, w=content.tobytes())
    for mapped in (False, True):
        rep = backend.prepare(path, map_external=mapped)
        np.testing.assert_array_equal(rep.run([])[0], content.reshape(10, 256).sum(0))
        with open("/proc/self/maps") as maps:
            assert sum(str(tmp_path / "w.bin") in line for line in maps) == mapped


def test_runs_never_reach_the_file(tmp_path):
    path = saved(identity(external("w", [2, 3], location="w.bin")), tmp_path, w=X.tobytes())
    rep = backend.prepare(path)
    rep.run([])[0][:] = 100
    np.testing.assert_array_equal(rep.run([])[0], X)
    assert (tmp_path / "w.bin").read_bytes() == X.tobytes()


def test_a_message_above_2_gib_is_refused(tmp_path):
    path = tmp_path / "model.onnx"
    with open(path, "wb") as file:
        file.truncate(2**31)
    refused(path, r"model\.onnx is larger than 2 GiB.*external data")


def test_a_proto_that_cannot_be_serialized_is_refused():
    class Large:
        def SerializeToString(self):
            raise ValueError("exceeds 2 GiB")

    refused(Large(), "must be given as a path")


# --- Versions ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("ir_version", [0, *IR_VERSIONS])
@pytest.mark.parametrize("is_input", [True, False])
def test_every_ir_version(ir_version, is_input):
    """The model has its initializer among the inputs, as versions up to 3 want it, or not."""
    inputs = [tensor_info("x", X)] + [tensor_info("w", X)] * is_input
    nodes = [helper.make_node("Add", ["x", "w"], ["y"])]
    model = model_of(nodes, inputs, ["y"], opset=7, initializer=[numpy_helper.from_array(X, "w")])
    model.ClearField("ir_version")
    if ir_version:
        model.ir_version = ir_version
    rep = backend.prepare(model)
    assert rep.model_info.ir_version == ir_version
    np.testing.assert_array_equal(rep.run([X])[0], X + X)
    if is_input:
        np.testing.assert_array_equal(rep.run([X, -X])[0], X - X)


@pytest.mark.parametrize("ir_version", IR_VERSIONS)
def test_a_model_without_opset_imports_is_of_opset_1(ir_version):
    bias = np.array([1, 2], np.float32)
    node = helper.make_node("Add", ["x", "b"], ["y"], broadcast=1, axis=0)
    model = model_of([node], [tensor_info("x", X), tensor_info("b", bias)], ["y"])
    del model.opset_import[:]
    model.ir_version = ir_version
    rep = backend.prepare(model)
    np.testing.assert_array_equal(rep.run([X, bias])[0], X + bias[:, None])
    assert rep.model_info.opset_imports == {"": 1}


def test_a_newer_ir_version_runs_with_a_warning():
    model = identity(numpy_helper.from_array(X, "w"))
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        backend.prepare(model)
    model.ir_version = onnx.IR_VERSION + 1
    with pytest.warns(UserWarning, match=rf"IR version, {onnx.IR_VERSION + 1}, is newer .* {onnx.IR_VERSION}"):
        rep = backend.prepare(model)
    np.testing.assert_array_equal(rep.run([])[0], X)


# --- Initializers -----------------------------------------------------------------------------------------------------


def overridable(**options):
    """Makes y = a + b * c, where b and c have initializers."""
    nodes = [helper.make_node("Mul", ["b", "c"], ["bc"]), helper.make_node("Add", ["a", "bc"], ["y"])]
    inputs = [tensor_info(name, element=FLOAT, shape=[3]) for name in "abc"]
    return model_of(nodes, inputs, ["y"], **options)


@pytest.mark.parametrize("is_sparse", [False, True])
def test_initializers_that_are_inputs_may_be_fed(is_sparse):
    a, b, c = np.array([1, 2, 3], np.float32), np.array([0, 5, 0], np.float32), np.array([0, 0, 7], np.float32)
    if is_sparse:
        options = {"sparse_initializer": [sparse("b", b, [[1]]), sparse("c", c, [2])]}
    else:
        options = {"initializer": [numpy_helper.from_array(b, "b"), numpy_helper.from_array(c, "c")]}
    rep = backend.prepare(overridable(**options))
    assert [has_default for *_, has_default in rep.inputs] == [False, True, True]
    other = np.array([10, 20, 30], np.float32)
    for feed, want in [
        ([a], a + b * c),
        ([a, other], a + other * c),
        ([a, other, other], a + other * other),
        ([a, None, other], a + b * other),
        ({"a": a}, a + b * c),
        ({"a": a, "c": other}, a + b * other),
        ({"c": other, "b": other, "a": a}, a + other * other),
    ]:
        np.testing.assert_array_equal(rep.run(feed)[0], want)
    with pytest.raises(onnx_torch.InputError, match='"c" must be of shape'):
        rep.run({"a": a, "c": a[:1]})


def test_an_initializer_may_be_a_reshapes_shape_until_it_is_fed():
    model = model_of(
        [helper.make_node("Reshape", ["x", "s"], ["y"])],
        [tensor_info("x", X), tensor_info("s", np.zeros(2, np.int64))],
        ["y"],
        initializer=[numpy_helper.from_array(np.array([3, 2]), "s")],
    )
    rep = backend.prepare(model)
    assert rep.run([X])[0].shape == (3, 2)
    assert rep.run([X, np.array([6])])[0].shape == (6,)
    assert rep.run([X])[0].shape == (3, 2)


def test_names_of_initializers_are_unique():
    w = numpy_helper.from_array(X, "w")
    refused(identity(initializer=[w, w]), 'two initializers are named "w"')
    refused(identity(w, sparse_initializer=[sparse("w", X, [0])]), 'two initializers are named "w"')


def test_outputs_that_no_node_makes():
    w = numpy_helper.from_array(X + 1, "w")
    rep = backend.prepare(model_of([], [tensor_info("x", X)], ["w", "x", "w"], initializer=[w]))
    for _ in range(2):
        y = rep.run([X])
        assert_same(y, [X + 1, X, X + 1])
        for array in y:
            array[:] = 0
    refused(model_of([], [tensor_info("x", X)], ["nowhere"]), 'nothing defines the value "nowhere"')


def unordered(read: str = "late") -> onnx.ModelProto:
    """Makes nodes that come before what they read: in the graph, in branches, one of which reads what comes later, and
    in a function.
    """
    body = [helper.make_node("Neg", ["m"], ["b"]), helper.make_node("Abs", ["a"], ["m"])]
    turned = helper.make_function("local", "Turned", ["a"], ["b"], body, [helper.make_opsetid("", 21)])
    then = helper.make_graph(
        [helper.make_node("Add", ["t", read], ["u"]), helper.make_node("Exp", ["x"], ["t"])],
        "then",
        [],
        [tensor_info("u", element=1)],
    )
    other = helper.make_graph([helper.make_node("Neg", ["late"], ["v"])], "else", [], [tensor_info("v", element=1)])
    nodes = [
        helper.make_node("Mul", ["chosen", "late"], ["y"]),
        helper.make_node("If", ["c"], ["chosen"], then_branch=then, else_branch=other),
        helper.make_node("Turned", ["early"], ["late"], domain="local"),
        helper.make_node("Relu", ["x"], ["early"]),
    ]
    model = model_of(nodes, [tensor_info("x", X), tensor_info("c", np.array(True))], ["y"])
    model.opset_import.append(helper.make_opsetid("local", 1))
    model.functions.append(turned)
    return model


def test_nodes_in_any_order(tmp_path):
    """Some converters write nodes in such an order; onnxruntime takes them, too."""
    late = -np.maximum(X, 0)
    onnx.save(unordered(), tmp_path / "model.onnx")
    for source in (unordered(), tmp_path / "model.onnx"):
        assert onnx_torch.check(source) == []
        rep = onnx_torch.prepare(source)
        np.testing.assert_allclose(rep.run([X, np.array(True)])[0], (np.exp(X) + late) * late, rtol=1e-6)
        np.testing.assert_allclose(rep.run([X, np.array(False)])[0], -late * late, rtol=1e-6)


def test_nodes_that_wait_for_one_another():
    said = "there are nodes that wait for one another's outputs"
    refused(unordered(read="y"), said)
    assert [str(problem) for problem in onnx_torch.check(unordered(read="y"))] == [said]


def test_names_may_be_empty_or_of_any_script():
    nodes = [helper.make_node("Relu", ["größe"], ["出力"], name="層"), helper.make_node("Max", ["出力"], ["y y/z:0"])]
    model = model_of(nodes, [tensor_info("größe", X)], ["出力", "y y/z:0"])
    model.graph.name = ""
    outputs = backend.prepare(model).run({"größe": X})
    np.testing.assert_array_equal(outputs["出力"], X)
    np.testing.assert_array_equal(outputs["y y/z:0"], X)
    nameless = numpy_helper.from_array(X, "")
    np.testing.assert_array_equal(
        run(identity(initializer=[numpy_helper.from_array(X, "w"), nameless, nameless]))[0], X
    )


def test_declared_types_and_shapes_inside_are_not_needed():
    nodes = [
        helper.make_node("Relu", ["x"], ["a"]),
        helper.make_node("Flatten", ["a"], ["b"]),
        helper.make_node("Neg", ["b"], ["y"]),
    ]
    partly = [tensor_info("a", X), onnx.ValueInfoProto(name="b"), tensor_info("gone", element=FLOAT)]
    model = model_of(nodes, [tensor_info("x", X)], ["y"], value_info=partly)
    np.testing.assert_array_equal(run(model, X)[0], -X)


# --- Sparse tensors ---------------------------------------------------------------------------------------------------


def sparse(name, dense, indices, dims=None):
    """Makes a sparse tensor of the elements of an array at linear indices or coordinates."""
    indices = np.array(indices, np.int64)
    dense = np.asarray(dense)
    linear = indices if indices.ndim == 1 else np.ravel_multi_index(tuple(indices.T), dense.shape)
    values = numpy_helper.from_array(dense.reshape(-1)[linear], name)
    return helper.make_sparse_tensor(values, numpy_helper.from_array(indices), dims or dense.shape)


@pytest.mark.parametrize("element", sorted(set(TensorProto.DataType.values()) - {TensorProto.UNDEFINED}))
def test_sparse_tensors_of_every_element_type(element):
    dtype = helper.tensor_dtype_to_np_dtype(element)
    if element == TensorProto.STRING:
        dense = np.array([["", "a", ""], ["", "", "b"]], object)
    else:
        dense = np.zeros(6, np.uint8)
        dense = dense.astype(dtype) if dtype.itemsize > 1 else dense.view(dtype)
        dense[[1, 5]] = np.ones(2).astype(dtype)
        dense = dense.reshape(2, 3)
    for indices in ([1, 5], [[0, 1], [1, 2]]):
        tensor = sparse("w", dense, indices)
        by_initializer = held(sparse_initializer=[tensor])
        by_attribute = model_of([helper.make_node("Constant", [], ["y"], sparse_value=tensor)], [], ["y"])
        for model in (by_initializer, by_attribute):
            (y,) = run(model)
            assert (y.dtype, y.shape) == (dense.dtype, dense.shape)
            assert y.tolist() == dense.tolist() if element == TensorProto.STRING else y.tobytes() == dense.tobytes()


def test_sparse_tensors_of_any_rank():
    dense = np.zeros((2, 3, 4, 5), np.float32)
    dense[0, 1, 2, 3] = dense[1, 0, 0, 0] = dense[1, 2, 3, 4] = 9
    coordinates = np.argwhere(dense)
    for indices in (coordinates, np.flatnonzero(dense)):
        np.testing.assert_array_equal(run(identity(sparse_initializer=[sparse("w", dense, indices)]))[0], dense)
    line = np.array([0, 2], np.float32)
    for indices in ([1], [[1]]):
        np.testing.assert_array_equal(run(identity(sparse_initializer=[sparse("w", line, indices)]))[0], line)


@pytest.mark.parametrize("indices", [[], np.zeros((0, 2)), None])
def test_sparse_tensors_without_values(indices):
    tensor = sparse("w", X, np.array([] if indices is None else indices, np.int64).reshape(-1)[:0])
    if indices is None:
        tensor.ClearField("indices")
    else:
        tensor.indices.CopyFrom(numpy_helper.from_array(np.array(indices, np.int64)))
    np.testing.assert_array_equal(run(identity(sparse_initializer=[tensor]))[0], np.zeros_like(X))


def test_sparse_initializers_of_subgraphs():
    branch = helper.make_graph(
        [helper.make_node("Add", ["x", "w"], ["z"])], "branch", [], [onnx.ValueInfoProto(name="z")],
        sparse_initializer=[sparse("w", X, [[1, 2]])],
    )  # fmt: skip
    node = helper.make_node("If", ["c"], ["y"], then_branch=branch, else_branch=branch)
    condition = np.array(True)
    expected = X.copy()
    expected[1, 2] *= 2
    np.testing.assert_array_equal(
        run(model_of([node], [tensor_info("c", condition), tensor_info("x", X)], ["y"]), condition, X)[0], expected
    )


@pytest.mark.parametrize(
    ("indices", "message"),
    [
        ([1, 6], "must lie inside its shape"),
        ([-1, 1], "must lie inside its shape"),
        ([[0, 0], [0, 3]], "must lie inside its shape"),
        ([1, 1], "must be in ascending order"),
        ([[1, 0], [0, 1]], "must be in ascending order"),
        ([1, 2, 3], "must be as many as its values"),
        ([[0], [1]], "must have one column for each dimension"),
        ([[[0, 1]], [[1, 1]]], "must be of rank 1 or 2"),
        (np.array([0, 1], np.int32), "must be int64"),
    ],
)
def test_sparse_tensors_that_cannot_be_read(indices, message):
    tensor = sparse("w", X, [1, 2])
    tensor.indices.CopyFrom(numpy_helper.from_array(np.array(indices)))
    refused(identity(sparse_initializer=[tensor]), f'tensor "w": the indices of its sparse form {message}')


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda tensor: tensor.ClearField("indices"), "its sparse form has no indices"),
        (lambda tensor: tensor.dims.insert(0, -2), "it has a negative dimension"),
        (lambda tensor: tensor.dims.extend([2**40, 2**40]), "it has too many elements"),
        (lambda tensor: tensor.values.dims.insert(0, 1), "the values of a sparse tensor must be of rank 1"),
    ],
)
def test_sparse_tensors_of_other_forms_are_refused(change, message):
    tensor = sparse("w", X, [1, 2])
    change(tensor)
    refused(identity(sparse_initializer=[tensor]), f'tensor "w": {message}')


# --- Functions --------------------------------------------------------------------------------------------------------


def with_functions(nodes, inputs, outputs, functions, **options):
    model = model_of(nodes, inputs, outputs, **options)
    model.functions.extend(functions)
    model.opset_import.append(helper.make_opsetid("my", 1))
    return model


def function(name, inputs, outputs, nodes, attributes=(), defaults=(), **options):
    imports = [helper.make_opsetid("", NEWEST), helper.make_opsetid("my", 1)]
    return helper.make_function(
        "my", name, inputs, outputs, nodes, imports, list(attributes), list(defaults), **options
    )


def reference(node, name, kind, of):
    """Gives the node an attribute that is the function's."""
    attribute = node.attribute.add(name=name, ref_attr_name=of)
    attribute.type = kind
    return node


INT, FLOATS = onnx.AttributeProto.INT, onnx.AttributeProto.FLOAT


def leaky(**options):
    node = reference(helper.make_node("LeakyRelu", ["x"], ["y"]), "alpha", FLOATS, "slope")
    return function("Leaky", ["x"], ["y"], [node], **options)


@pytest.mark.parametrize("ir_version", [8, onnx.IR_VERSION])
def test_functions_take_attributes(ir_version):
    calls = [
        helper.make_node("Leaky", ["x"], ["a"], domain="my", slope=0.5),
        helper.make_node("Leaky", ["x"], ["b"], domain="my"),
    ]
    default = helper.make_attribute("slope", 0.25)
    model = with_functions(calls, [tensor_info("x", X)], ["a", "b"], [leaky(defaults=[default])])
    model.ir_version = ir_version
    np.testing.assert_allclose(run(model, -X)[0], -X * 0.5)
    np.testing.assert_allclose(run(model, -X)[1], -X * 0.25)
    without = with_functions(calls[1:], [tensor_info("x", X)], ["b"], [leaky(attributes=["slope"])])
    np.testing.assert_allclose(run(without, -X)[0], -X * np.float32(0.01), rtol=1e-6)


def test_functions_call_functions_and_hand_attributes_on_into_subgraphs():
    inner = reference(helper.make_node("Leaky", ["x"], ["z"], domain="my"), "slope", FLOATS, "steep")
    branch = helper.make_graph([inner], "branch", [], [onnx.ValueInfoProto(name="z")])
    outer = function(
        "Chosen",
        ["c", "x"],
        ["y"],
        [helper.make_node("If", ["c"], ["y"], then_branch=branch, else_branch=branch)],
        ["steep"],
    )
    call = helper.make_node("Chosen", ["c", "x"], ["y"], domain="my", steep=0.125)
    condition = np.array(False)
    inputs = [tensor_info("c", condition), tensor_info("x", X)]
    model = with_functions([call], inputs, ["y"], [outer, leaky(attributes=["slope"])])
    np.testing.assert_allclose(run(model, condition, -X)[0], -X * 0.125)


def test_functions_are_told_apart_by_their_overload():
    one = function("F", ["x"], ["y"], [helper.make_node("Neg", ["x"], ["y"])])
    other = function("F", ["x"], ["y"], [helper.make_node("Exp", ["x"], ["y"])], overload="other")
    calls = [helper.make_node("F", ["x"], [f"y{i}"], domain="my", overload=o) for i, o in enumerate(["", "other"])]
    assert_same(run(with_functions(calls, [tensor_info("x", X)], ["y0", "y1"], [one, other]), X), [-X, np.exp(X)])


def test_functions_have_scopes_of_their_own():
    """A function may have optional inputs, outputs that are left out, and names that the caller uses too."""
    nodes = [helper.make_node("Clip", ["x", "", "limit"], ["y"]), helper.make_node("Neg", ["y"], ["w"])]
    body = function("Both", ["x", "limit"], ["y", "w"], nodes)
    calls = [
        helper.make_node("Both", ["w", "x"], ["a", "b"], domain="my"),
        helper.make_node("Both", ["w"], ["", "c"], domain="my"),
        helper.make_node("Both", ["w"], ["d"], domain="my"),
    ]
    scalar = np.float32(2)
    weights = numpy_helper.from_array(X, "w")
    model = with_functions(calls, [tensor_info("x", scalar)], ["a", "b", "c", "d", "w"], [body], initializer=[weights])
    assert_same(run(model, scalar), [np.minimum(X, 2), -np.minimum(X, 2), -X, X, X])


def test_a_function_goes_before_an_operator_of_its_name():
    body = helper.make_function(
        "", "Relu", ["x"], ["y"], [helper.make_node("Neg", ["x"], ["y"])], [helper.make_opsetid("", NEWEST)]
    )
    model = model_of([helper.make_node("Relu", ["x"], ["y"])], [tensor_info("x", X)], ["y"])
    model.functions.append(body)
    np.testing.assert_array_equal(run(model, X)[0], -X)


def test_functions_have_opsets_of_their_own():
    body = function("Old", ["x"], ["y"], [helper.make_node("Clip", ["x"], ["y"], max=3.0)])
    body.opset_import[0].version = 6
    model = with_functions([helper.make_node("Old", ["x"], ["y"], domain="my")], [tensor_info("x", X)], ["y"], [body])
    np.testing.assert_array_equal(run(model, X)[0], np.minimum(X, 3))


def test_functions_that_cannot_be_called():
    there = function("There", ["x"], ["y"], [helper.make_node("Back", ["x"], ["y"], domain="my")])
    back = function("Back", ["x"], ["y"], [helper.make_node("There", ["x"], ["y"], domain="my")])
    call = helper.make_node("There", ["x"], ["y"], domain="my", name="start")
    refused(with_functions([call], [tensor_info("x", X)], ["y"], [there, back]), "There.*the function calls itself")
    wide = helper.make_node("Leaky", ["x", "x"], ["y"], domain="my", name="wide")
    model = with_functions([wide], [tensor_info("x", X)], ["y"], [leaky()])
    assert refused(model, "has 2 inputs; the function takes 1").node_name == "wide"


# --- What a model says of itself --------------------------------------------------------------------------------------


def test_metadata_is_readable():
    model = identity(numpy_helper.from_array(X, "w"))
    model.ir_version = 9
    model.producer_name, model.producer_version = "a trainer", "1.2"
    model.domain, model.model_version = "org.example", 3
    model.doc_string, model.graph.doc_string = "A *model*", "Its graph"
    helper.set_model_props(model, {"license": "MIT", "größe": "groß"})
    annotation = model.graph.quantization_annotation.add(tensor_name="w")
    annotation.quant_parameter_tensor_names.add(key="SCALE_TENSOR", value="w_scale")
    annotation.quant_parameter_tensor_names.add(key="ZERO_POINT_TENSOR", value="w_zero")
    model.opset_import.append(helper.make_opsetid("ai.onnx.ml", 3))
    rep = backend.prepare(model)
    assert rep.metadata == {"license": "MIT", "größe": "groß"}
    assert rep.model_info == backend.ModelInfo(
        ir_version=9,
        opset_imports={"": NEWEST, "ai.onnx.ml": 3},
        producer_name="a trainer",
        producer_version="1.2",
        domain="org.example",
        model_version=3,
        doc_string="A *model*",
        graph_name="test",
        graph_doc_string="Its graph",
    )
    assert rep.quantization_annotations == {"w": {"SCALE_TENSOR": "w_scale", "ZERO_POINT_TENSOR": "w_zero"}}
    np.testing.assert_array_equal(rep.run([])[0], X)


def test_a_model_may_say_nothing_of_itself():
    rep = backend.prepare(identity(numpy_helper.from_array(X, "w")))
    assert (rep.metadata, rep.quantization_annotations) == ({}, {})
    assert (rep.model_info.producer_name, rep.model_info.model_version) == ("", 0)


def test_training_info_is_left_alone():
    model = identity(numpy_helper.from_array(X, "w"))
    training = model.training_info.add()
    training.algorithm.CopyFrom(helper.make_graph([helper.make_node("Frobnicate", ["w"], ["g"])], "step", [], []))
    training.update_binding.add(key="w", value="g")
    np.testing.assert_array_equal(run(model)[0], X)


# --- Models that are none -------------------------------------------------------------------------------------------


def test_a_model_needs_a_graph_and_types_for_its_inputs():
    refused(b"", "holds no graph")
    relu = [helper.make_node("Relu", ["x"], ["y"])]
    refused(model_of(relu, [onnx.ValueInfoProto(name="x")], ["y"]), 'the input "x" has no type')
    x = helper.make_tensor_value_info("x", FLOAT, [2])
    refused(model_of(relu, [x, x], ["y"]), 'two inputs are called "x"')
    refused(model_of(relu, [tensor_info("x", element=99)], ["y"]), "unknown element type 99")


def test_only_functions_refer_to_attributes():
    node = reference(helper.make_node("LeakyRelu", ["x"], ["y"], name="leaky"), "alpha", FLOATS, "slope")
    assert refused(model_of([node], [tensor_info("x", X)], ["y"]), '"alpha" refers to').node_name == "leaky"


def test_a_function_that_nobody_calls_may_hold_anything():
    unknown = function("Unused", ["x"], ["y"], [helper.make_node("Frobnicate", ["x"], ["y"])])
    model = with_functions([helper.make_node("Neg", ["x"], ["y"])], [tensor_info("x", X)], ["y"], [unknown])
    np.testing.assert_array_equal(run(model, X)[0], -X)
    called = helper.make_node("Unused", ["x"], ["y"], domain="my")
    with pytest.raises(onnx_torch.UnsupportedError, match="Frobnicate"):
        backend.prepare(with_functions([called], [tensor_info("x", X)], ["y"], [unknown]))


@pytest.mark.parametrize(
    "function", [onnx_torch.prepare, onnx_torch.profile, onnx_torch.check, onnx_torch.show, onnx_torch.compare]
)
def test_what_is_no_model_is_refused(function):
    """A model that is prepared already is refused, and so is what is none."""
    rep = onnx_torch.prepare(constants_of(1))
    for wrong in (rep, None, 7, [1]):
        with pytest.raises(TypeError, match="a path, its bytes or an onnx.ModelProto, not of type"):
            function(wrong)
