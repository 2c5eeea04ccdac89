"""Models kept as they were prepared."""

from __future__ import annotations

import json
import pickle
import shutil
import struct
from pathlib import Path
from random import Random

import numpy as np
import onnx
import pytest
from onnx import numpy_helper, parser

import onnx_torch
from onnx_torch._running import saving
from onnx_torch._running.saved import MARK
from random_numbers import RNG


def network() -> onnx.ModelProto:
    model = parser.parse_model(
        """<ir_version: 10, opset_import: ["": 23]> net (float[N, 6, 8, 8] x) => (float[N, 500] y) {
            c = Conv(x, w, b)  r = Relu(c)  p = GlobalAveragePool(r)  f = Flatten(p)  y = MatMul(f, m)
        }"""
    )
    for name, shape in {"w": (16, 6, 3, 3), "b": (16,), "m": (16, 500)}.items():
        model.graph.initializer.append(numpy_helper.from_array(RNG.standard_normal(shape, np.float32), name))
    return model


X = np.random.default_rng(0).standard_normal((130, 6, 8, 8), np.float32)  # so many rows that oneDNN multiplies them


@pytest.fixture
def saved(tmp_path: Path) -> tuple[onnx_torch.backend.OnnxTorchRep, Path]:
    rep = onnx_torch.prepare(network(), threads=1, shapes={"N": len(X)}, disabled_passes=["matmul"])
    rep.save(tmp_path / "model.bin")
    return rep, tmp_path / "model.bin"


def test_a_saved_model_is_the_same(saved):
    rep, file = saved
    loaded = onnx_torch.load(file)
    np.testing.assert_array_equal(loaded.run([X])[0], rep.run([X])[0])
    assert loaded.graph() == rep.graph()
    assert {**loaded.options, "base_dir": None} == rep.options
    assert loaded.inputs == rep.inputs


def test_laid_out_weights_are_taken_from_the_file(saved):
    rep, file = saved
    layouts = [[layout for layout, _ in operation] for operation in rep._prepared.laid_weights]
    assert [len(operation) for operation in layouts] == [1, 1]  # for the sizes known, before any run
    data = file.read_bytes()
    changed = data
    for operation in rep._prepared.laid_weights:
        for _, laid in operation:
            blob = laid.tobytes()
            assert data.count(blob) >= 1
            at = data.rindex(blob)  # the last: a layout may equal the model's own
            changed = changed[:at] + bytes(len(blob)) + changed[at + len(blob) :]
    file.write_bytes(changed)
    assert not onnx_torch.load(file).run([X])[0].any()


@pytest.mark.parametrize("part", ["onnx_torch", "torch", "layouts", "cpu"])
def test_weights_are_laid_out_anew_for_another_release_or_cpu(saved, monkeypatch, part):
    rep, file = saved
    other = {**saving.form_key(), part: "another"}
    monkeypatch.setattr(saving, "form_key", lambda: other)
    original = onnx_torch._C.PreparedModel.from_bytes

    def checked(model, directory, options, laid):
        assert laid == []
        return original(model, directory, options, laid)

    monkeypatch.setattr(saving._C.PreparedModel, "from_bytes", checked, raising=False)
    np.testing.assert_array_equal(onnx_torch.load(file).run([X])[0], rep.run([X])[0])


def test_the_file_stands_for_the_model(saved, tmp_path):
    rep, file = saved
    moved = tmp_path / "elsewhere" / "other name"
    moved.parent.mkdir()
    file.rename(moved)
    loaded = onnx_torch.load(moved)
    np.testing.assert_array_equal(loaded.run([X])[0], rep.run([X])[0])
    np.testing.assert_array_equal(pickle.loads(pickle.dumps(loaded)).run([X])[0], rep.run([X])[0])
    loaded.save(tmp_path / "again")
    np.testing.assert_array_equal(onnx_torch.load(tmp_path / "again").run([X])[0], rep.run([X])[0])


def test_external_data_comes_into_the_file(tmp_path):
    folder = tmp_path / "model"
    folder.mkdir()
    onnx.save(network(), folder / "m.onnx", save_as_external_data=True, location="weights", size_threshold=0)
    rep = onnx_torch.prepare(folder / "m.onnx")
    expected = rep.run([X])[0]
    rep.save(tmp_path / "kept")
    del rep
    shutil.rmtree(folder)
    np.testing.assert_array_equal(onnx_torch.load(tmp_path / "kept").run([X])[0], expected)


def test_an_interrupted_save_leaves_the_file_as_it_was(saved, monkeypatch):
    rep, file = saved
    before = file.read_bytes()

    def fail(*_):
        raise OSError("no space left")

    monkeypatch.setattr(saving, "_put", fail)
    with pytest.raises(OSError, match="no space left"):
        rep.save(file)
    assert file.read_bytes() == before


@pytest.mark.parametrize("data", [b"", b"not a model", bytes(5000), MARK, bytes(100) + b"\xff" * 8 + MARK])
def test_what_is_no_saved_model_is_refused(tmp_path, data):
    (tmp_path / "file").write_bytes(data)
    with pytest.raises(onnx_torch.InvalidModelError, match="file"):
        onnx_torch.load(tmp_path / "file")
    with pytest.raises(onnx_torch.InvalidModelError, match="absent"):
        onnx_torch.load(tmp_path / "absent")


def places(value, path=()):
    """Gives the places of values in JSON, as the keys that lead there."""
    if path:
        yield path
    children = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    for key, child in children:
        yield from places(child, (*path, key))


def parted(data: bytes) -> tuple[bytes, dict]:
    """Gives what a saved model has before its index, and the index."""
    tail = 8 + len(MARK)
    (length,) = struct.unpack("<Q", data[-tail : -tail + 8])
    return data[: -tail - length], json.loads(data[-tail - length : -tail])


def joined(blobs: bytes, index: dict) -> bytes:
    text = json.dumps(index).encode()
    return blobs + text + struct.pack("<Q", len(text)) + MARK


def test_layouts_that_begin_within_a_vector_are_not_taken(saved):
    rep, file = saved
    blobs, index = parted(file.read_bytes())
    assert any(index["laid"])
    index["laid"] = [[(layout, at + 1, size) for layout, at, size in operation] for operation in index["laid"]]
    file.write_bytes(joined(blobs, index))
    np.testing.assert_array_equal(onnx_torch.load(file).run([X])[0], rep.run([X])[0])


def changed_index(data: bytes, random: Random) -> bytes:
    """Gives a saved model with something else in its index."""
    blobs, index = parted(data)
    *parents, last = random.choice(list(places(index)))
    holder = index
    for key in parents:
        holder = holder[key]
    if isinstance(holder[last], int) and random.random() < 0.6:
        holder[last] += random.choice([1, -1, 64, -64, 1000, 2**20, 2**62, -holder[last], holder[last]])
    elif random.random() < 0.7:
        holder[last] = random.choice([None, 0, -1, 2**63, 1.5, "", "x", [], {}, [1, 2], True])
    else:
        del holder[last]
    return joined(blobs, index)


def changed_bytes(data: bytes, random: Random) -> bytes:
    changed = bytearray(data[random.choice([0, 0, 0, random.randrange(len(data))]) :])
    for _ in range(random.randrange(6)):
        changed[-1 - random.randrange(min(len(changed), random.choice([3000, len(changed)])))] = random.randrange(256)
    return bytes(changed)


@pytest.mark.parametrize("change", [changed_index, changed_bytes])
def test_a_changed_file_is_refused_or_loads(saved, change):
    """Such a file never ends the process, and never with another error."""
    random, (_, file) = Random(0), saved
    data, refused = file.read_bytes(), 0
    for _ in range(500):
        file.write_bytes(change(data, random))
        try:
            onnx_torch.load(file).run([X])
        except onnx_torch.Error:
            refused += 1
    assert refused > 50
