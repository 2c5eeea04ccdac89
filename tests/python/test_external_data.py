"""External data that the caller holds in memory, or gives when it is asked for."""

from __future__ import annotations

import gc
import mmap
import pickle
import subprocess
import sys
import textwrap
import weakref

import numpy as np
import onnx
import pytest
import torch
from onnx import TensorProto, helper, numpy_helper

import onnx_torch
from models import model_of, tensor_info
from onnx_torch import triton

X = np.zeros((2, 3), np.float32)
W = np.arange(6, dtype=np.float32).reshape(2, 3)
V = np.full((2, 3), 100, np.float32)


def external(name: str, location: str, offset: int | None, length: int | None = 24) -> TensorProto:
    tensor = TensorProto(name=name, data_type=TensorProto.FLOAT, dims=[2, 3], data_location=TensorProto.EXTERNAL)
    for key, value in {"location": location, "offset": offset, "length": length}.items():
        if value is not None:
            tensor.external_data.add(key=key, value=str(value))
    return tensor


def model_with(*weights: TensorProto) -> onnx.ModelProto:
    """Makes a model of x plus all weights."""
    names = ["x", *(weight.name for weight in weights)]
    return model_of([helper.make_node("Sum", names, ["y"])], [tensor_info("x", X)], ["y"], initializer=list(weights))


TWO = model_with(external("w", "weights.bin", 8), external("v", "folder/more.bin", 0))
FILES = {"weights.bin": b"12345678" + W.tobytes(), "folder/more.bin": V.tobytes()}


def run(rep) -> np.ndarray:
    return rep.run([X])[0]


def buffers(data: bytes, file):
    file.write_bytes(data)
    with open(file, "rb") as opened:
        mapped = mmap.mmap(opened.fileno(), 0, access=mmap.ACCESS_READ)
    yield from (data, bytearray(data), memoryview(data), mapped, np.frombuffer(data, np.uint16))


def test_buffers_of_all_kinds(tmp_path):
    for first, second in zip(
        buffers(FILES["weights.bin"], tmp_path / "1"), buffers(FILES["folder/more.bin"], tmp_path / "2"), strict=True
    ):
        given = {"weights.bin": first, "./folder/more.bin": second}
        for model in (TWO, TWO.SerializeToString()):
            np.testing.assert_array_equal(run(onnx_torch.prepare(model, external=given)), W + V)


def test_a_function_gives_what_it_is_asked_for():
    asked = []

    def give(name, offset, length):
        asked.append((name, offset, length))
        return memoryview(FILES[name])[offset : offset + length]

    rep = onnx_torch.prepare(TWO, external=give)
    np.testing.assert_array_equal(run(rep), W + V)
    assert sorted(set(asked)) == [("folder/more.bin", 0, 24), ("weights.bin", 8, 24)]
    np.testing.assert_array_equal(run(rep.replica(optimize=False)), W + V)


def test_lengths_that_the_model_does_not_tell():
    model = model_with(external("w", "weights.bin", None, None))
    np.testing.assert_array_equal(run(onnx_torch.prepare(model, external={"weights.bin": W})), W)
    given = onnx_torch.prepare(model, external=lambda name, offset, length: W.tobytes()[offset : offset + length])
    np.testing.assert_array_equal(run(given), W)


@pytest.mark.parametrize("given", [{"weights.bin": FILES["weights.bin"]}, lambda *asked: None])
def test_what_is_not_given_lies_in_files(given, tmp_path):
    path = tmp_path / "model.onnx"
    path.write_bytes(TWO.SerializeToString())
    (tmp_path / "folder").mkdir()
    (tmp_path / "folder" / "more.bin").write_bytes(FILES["folder/more.bin"])
    if callable(given):
        (tmp_path / "weights.bin").write_bytes(FILES["weights.bin"])
    np.testing.assert_array_equal(run(onnx_torch.prepare(path, external=given)), W + V)
    np.testing.assert_array_equal(run(onnx_torch.prepare(TWO, external=given, base_dir=tmp_path)), W + V)
    with pytest.raises(onnx_torch.InvalidModelError, match=r"more.bin|weights.bin"):
        onnx_torch.prepare(TWO, external=given)


@pytest.mark.parametrize(
    "given, found",
    [
        ({"weights.bin": FILES["weights.bin"][:20], "folder/more.bin": V}, "24 bytes of weights.bin from 8 on, and 12"),
        ({"weights.bin": b"", "folder/more.bin": V}, "24 bytes of weights.bin from 8 on, and 0"),
        (lambda name, offset, length: bytes(length + 1), "24 bytes of .* on, and 25 were given"),
    ],
)
def test_too_few_or_too_many_bytes(given, found):
    with pytest.raises(onnx_torch.InvalidModelError, match=found):
        onnx_torch.prepare(TWO, external=given)


def test_names_stay_below_the_model():
    asked = []
    for location in ("../weights.bin", "/etc/passwd"):
        with pytest.raises(onnx_torch.InvalidModelError, match="beside or below"):
            onnx_torch.prepare(model_with(external("w", location, 0)), external=lambda *what: asked.append(what))
    assert asked == []


def test_an_error_of_the_function_comes_out_as_it_is():
    class Denied(Exception):
        pass

    def fail(name, offset, length):
        raise Denied(name)

    with pytest.raises(Denied, match=r"weights.bin|more.bin"):
        onnx_torch.prepare(TWO, external=fail)


@pytest.mark.parametrize("given", [{"weights.bin": "text"}, lambda *asked: "text", {"weights.bin": W.T}])
def test_what_is_no_buffer(given):
    with pytest.raises((TypeError, ValueError, BufferError)):
        onnx_torch.prepare(TWO, external=given)


def test_a_buffer_is_held_as_long_as_the_model_and_no_longer():
    class Held(bytearray):
        pass

    buffer = Held(W.tobytes())
    rep = onnx_torch.prepare(model_with(external("w", "weights.bin", 0)), external={"weights.bin": buffer})
    with pytest.raises(BufferError):
        buffer.append(0)  # it is lent
    held = weakref.ref(buffer)
    del buffer
    np.testing.assert_array_equal(run(rep), W)
    assert held() is not None
    del rep
    gc.collect()
    assert held() is None


def test_a_buffer_is_not_copied():
    program = """
        import numpy as np, onnx, onnx_torch, resource
        from onnx import TensorProto, helper
        count = 64 << 20
        weight = TensorProto(name="w", data_type=TensorProto.FLOAT, dims=[count], data_location=TensorProto.EXTERNAL)
        weight.external_data.add(key="location", value="w")
        nodes = [helper.make_node("Gather", ["w", "i"], ["y"])]
        info = helper.make_tensor_value_info("i", TensorProto.INT64, [1])
        model = helper.make_model(helper.make_graph(nodes, "g", [info], [onnx.ValueInfoProto(name="y")], [weight]))
        buffer = np.arange(count, dtype=np.float32)
        for given in ({"w": buffer}, lambda name, offset, length: buffer):
            before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
            rep = onnx_torch.prepare(model, external=given)
            assert rep.run([np.array([5])])[0] == 5
            print(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before)
    """
    command = [sys.executable, "-c", textwrap.dedent(program)]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    assert all(int(line) < 128 << 10 for line in done.stdout.split())  # of 256 MiB, in KiB


@pytest.mark.parametrize("form", ["bytes", "path"])
def test_pickles_with_the_buffers(form, tmp_path):
    path = tmp_path / "model.onnx"
    path.write_bytes(TWO.SerializeToString())
    rep = onnx_torch.prepare(TWO if form == "bytes" else path, external=FILES)
    np.testing.assert_array_equal(run(pickle.loads(pickle.dumps(rep))), W + V)


@pytest.mark.parametrize("given", [FILES, lambda name, offset, length: FILES[name][offset : offset + length]])
def test_is_saved_whole(given, tmp_path):
    onnx_torch.prepare(TWO, external=given).save(tmp_path / "saved")
    np.testing.assert_array_equal(run(onnx_torch.load(tmp_path / "saved")), W + V)


def give(name: str, offset: int, length: int) -> bytes:
    return FILES[name][offset : offset + length]


@pytest.mark.parametrize("form", ["proto", "bytes", "path"])
@pytest.mark.parametrize("given", [FILES, give], ids=["buffers", "function"])
def test_all_functions_that_read_weights_take_it(form, given, tmp_path):
    path = tmp_path / "model.onnx"
    path.write_bytes(TWO.SerializeToString())
    model = {"proto": TWO, "bytes": TWO.SerializeToString(), "path": path}[form]
    x, expected = torch.from_numpy(X), torch.from_numpy(W + V)
    for make in onnx_torch.to_torchscript, onnx_torch.to_module:
        module = make(model, external=given)
        torch.testing.assert_close(module(x), expected)
        stored = onnx_torch.update_initializers(model, module, external=given)
        np.testing.assert_array_equal(numpy_helper.to_array(stored.graph.initializer[0]), W)
    assert onnx_torch.check(model, external=given) == []
    assert "aten::add" in onnx_torch.show(model, external=given, optimize=False)
    part = onnx_torch.extract(model, external=given)
    np.testing.assert_array_equal(run(onnx_torch.prepare(part)), W + V)
    assert [node.op_type for node in onnx_torch.profile(model, external=given, runs=1).nodes] == ["Sum"]
    assert onnx_torch.compare(model, external=given).difference is None
    assert len(onnx_torch.bench(model, external=given, engines=["onnx_torch"], rounds=1, runs=1).latencies) == 1


def test_triton_takes_it(tmp_path):
    model = onnx.ModelProto()
    model.CopyFrom(TWO)
    for value in *model.graph.input, *model.graph.output:
        value.CopyFrom(helper.make_tensor_value_info(value.name, TensorProto.FLOAT, ["n", 3]))
    folder = triton.save(model, tmp_path, "net", external=FILES)
    torch.testing.assert_close(torch.jit.load(folder / "1" / "model.pt")(torch.from_numpy(X)), torch.from_numpy(W + V))


def test_check_tells_what_is_not_given():
    [problem] = onnx_torch.check(TWO, external={"weights.bin": FILES["weights.bin"]})
    assert "more.bin" in str(problem)
    [problem] = onnx_torch.check(TWO, external={**FILES, "folder/more.bin": b"too short"})
    assert '"v"' in str(problem)


def test_small_types_and_unaligned_places():
    packed = numpy_helper.from_array(np.arange(-3, 3, dtype=np.int8).reshape(2, 3))
    weight = external("w", "weights.bin", 3, 6)
    weight.data_type = TensorProto.INT8
    node = helper.make_node("Cast", ["w"], ["y"], to=TensorProto.FLOAT)
    add = helper.make_node("Add", ["x", "y"], ["z"])
    other = external("v", "weights.bin", 9)
    model = model_of(
        [node, add, helper.make_node("Add", ["z", "v"], ["sum"])],
        [tensor_info("x", X)],
        ["sum"],
        initializer=[weight, other],
    )
    data = b"abc" + packed.raw_data + V.tobytes()
    expected = numpy_helper.to_array(packed).astype(np.float32) + V
    np.testing.assert_array_equal(run(onnx_torch.prepare(model, external={"weights.bin": data})), expected)
