"""Attacks that others' tools have met, by their numbers."""

from __future__ import annotations

import io
import os
import pickle
import re
import socket
import subprocess
import sys
import tarfile
import textwrap
import threading
import time
import zipfile

import numpy as np
import onnx
import pytest
import torch
from google.protobuf import json_format, text_format
from onnx import TensorProto, helper, numpy_helper, parser

import onnx_torch
from hostile_models import PLACES, SECRET, external_tensor, model_with, written
from models import model_of, op_model
from onnx_torch import InvalidModelError
from onnx_torch._models.files import save_model
from onnx_torch._running.saved import MARK
from onnx_torch.compat.onnxruntime import AdapterFormat


@pytest.fixture
def folder(tmp_path):
    """Makes a model's folder, with a secret beside it and data in it."""
    folder = tmp_path / "model"
    (folder / "sub").mkdir(parents=True)
    SECRET.tofile(tmp_path / "secret.bin")
    SECRET.tofile(folder / "own.bin")
    return folder


def refused(folder, location, place="initializer", **options):
    path = written(model_with(external_tensor(location), place), folder)
    with pytest.raises(InvalidModelError) as error:
        onnx_torch.prepare(path, **options)
    return str(error.value)


@pytest.mark.parametrize("place", PLACES)
def test_cve_2022_25882_above_the_folder(folder, place):
    """onnx before 1.13 read `../` in a location."""
    for location in ("../secret.bin", "../../../../../../../../etc/hostname"):
        assert "must lie in a file beside or below the model" in refused(folder, location, place)


@pytest.mark.parametrize("place", PLACES)
@pytest.mark.parametrize(
    "location",
    [
        "sub/../../secret.bin",
        "./../secret.bin",
        "sub/./.././../secret.bin",
        "//etc/hostname",
        "//model",
        "///model",
        "/model",
        "..",
        "sub/../..",
        "../secret.bin/.",
        "x/" * 1000 + "../" * 1001 + "secret.bin",
    ],
    ids=lambda location: location[:20],
)
def test_cve_2024_27318_around_the_check(folder, location, place):
    """onnx before 1.16 looked only at how a location begins."""
    assert "must lie in a file beside or below the model" in refused(folder, location, place)


@pytest.mark.parametrize(
    ("location", "message"),
    [
        ("own.bin\0../secret.bin", "zero byte"),
        ("\0", "zero byte"),
        ("", "no location"),
        (".", "directory"),
        ("sub", "directory"),
        ("sub/", "directory"),
        ("sub/..", "directory"),
        ("own.bin/", "directory"),
        ("own.bin/x", "[Dd]irectory"),
        ("..\\secret.bin", "No such file"),
        ("a/" * 5000 + "x", "No such file|name too long"),
        ("x" * 5000, "name too long"),
    ],
    ids=lambda text: repr(text[:20]),
)
def test_cve_2024_27318_locations_that_are_none(folder, location, message):
    error = refused(folder, location)
    assert re.search(message, error), error
    assert len(error) < 1000


def test_a_model_cannot_name_its_own_file(tmp_path):
    """The model's large weights are read from its own file, and nothing that it says leads to them."""
    values = np.arange(2**14, dtype=np.float32)
    for place in PLACES:
        model = model_with(external_tensor("//model", offset=0, length=16), place)
        model.graph.initializer.append(numpy_helper.from_array(values, "large"))
        assert "must lie in a file beside or below the model" in str(refusal(written(model, tmp_path)))
    texts = [
        TensorProto(name=f"s{i}", dims=[2**12], data_type=TensorProto.STRING, raw_data=bytes(2**12)) for i in range(64)
    ]
    for tensor in texts:
        tensor.string_data.extend([b"%d" % i for i in range(2**12)])
    nodes = [helper.make_node("Identity", [tensor.name], [f"y{i}"]) for i, tensor in enumerate(texts)]
    rep = onnx_torch.prepare(written(model_of(nodes, [], [f"y{i}" for i in range(64)], initializer=texts), tmp_path))
    assert all(result.tolist() == [str(i) for i in range(2**12)] for result in rep.run())
    weight = numpy_helper.from_array(values, "w")
    model = model_of([helper.make_node("Neg", ["w"], ["y"])], [], ["y"], initializer=[weight])
    np.testing.assert_array_equal(onnx_torch.prepare(written(model, tmp_path)).run()[0], -values)


def refusal(path):
    with pytest.raises(InvalidModelError) as error:
        onnx_torch.prepare(path)
    return error.value


@pytest.mark.parametrize("place", PLACES)
def test_cve_2026_27489_links_on_the_way(folder, place):
    """onnx before 1.21 followed a link that was not a location's last part; also CVE-2026-34447, a link that was."""
    (folder / "out").symlink_to(folder.parent)
    (folder / "root").symlink_to("/proc/self/root")
    (folder / "link.bin").symlink_to(folder.parent / "secret.bin")
    (folder / "again").symlink_to("sub/../out")
    secret = str(folder.parent / "secret.bin")
    for location in ("out/secret.bin", "link.bin", f"root{secret}", "again/secret.bin"):
        assert "link out of the model's directory" in refused(folder, location, place)


def test_cve_2026_34447_links_that_stay_inside(folder):
    (folder / "sub" / "up").symlink_to("..")
    (folder / "sub" / "away").symlink_to(f"../../{folder.name}/sub")
    (folder / "absolute").symlink_to(folder / "sub")
    (folder / "file").symlink_to("own.bin")
    for location in ("file", "sub/up/own.bin", "sub/away/up/file", "absolute/up/own.bin"):
        rep = onnx_torch.prepare(written(model_with(external_tensor(location)), folder))
        np.testing.assert_array_equal(rep.run()[0], SECRET)
        assert "is a link, which the option links refuses" in refused(folder, location, links="refuse")
    (folder / "circle").symlink_to("circle")
    assert "Too many levels of symbolic links" in refused(folder, "circle")


def test_cve_2026_34446_caches_of_links_to_hard_links(folder):
    """The data of a model's file that is a link to one with other names still lies where the link leads."""
    cache = folder.parent / "cache"
    cache.mkdir()
    SECRET.tofile(cache / "blob.bin")
    path = written(model_with(external_tensor("data.bin")), cache)
    os.link(path, cache / "again.onnx")
    (folder / "model.onnx").symlink_to(path)
    (folder / "data.bin").symlink_to(cache / "blob.bin")
    np.testing.assert_array_equal(onnx_torch.prepare(folder / "model.onnx").run()[0], SECRET)


def test_cve_2026_34446_hard_links(folder):
    """Hard links cannot be told from files by their paths; by their count of names they can."""
    os.link(folder.parent / "secret.bin", folder / "hard.bin")
    path = written(model_with(external_tensor("hard.bin")), folder)
    np.testing.assert_array_equal(onnx_torch.prepare(path).run()[0], SECRET)
    assert "other names (hard links), which the option links refuses" in refused(folder, "hard.bin", links="refuse")
    rep = onnx_torch.prepare(written(model_with(external_tensor("own.bin")), folder), links="refuse")
    np.testing.assert_array_equal(rep.run()[0], SECRET)
    with pytest.raises(InvalidModelError, match="hard links"):
        onnx_torch.prepare(model_with(external_tensor("hard.bin")), base_dir=folder, links="refuse")
    with pytest.raises(onnx_torch.InputError, match='links must be "follow" or "refuse", not "maybe"'):
        onnx_torch.prepare(path, links="maybe")


def compared(model, **options):
    return onnx_torch.compare(model, engines=("onnx_torch", "unoptimised"), **options)


def opened(model, **options):
    entries = onnx_torch.SessionOptions()
    for name, value in options.items():
        entries.add_session_config_entry(f"onnx_torch.{name}", value)
    return onnx_torch.InferenceSession(model, entries)


def measured(model, **options):
    return onnx_torch.bench(model, engines=["onnx_torch"], rounds=1, runs=1, **options)


@pytest.mark.parametrize(
    "take",
    [
        onnx_torch.extract,
        onnx_torch.to_torchscript,
        onnx_torch.to_module,
        onnx_torch.show,
        onnx_torch.profile,
        compared,
        measured,
        opened,
    ],
)
def test_cve_2026_34446_links_wherever_files_are_read(folder, take):
    (folder / "link.bin").symlink_to("own.bin")
    path = written(model_with(external_tensor("link.bin")), folder)
    take(path)
    with pytest.raises(InvalidModelError, match="is a link, which the option links refuses"):
        take(path, links="refuse")
    with pytest.raises(onnx_torch.InputError, match='links must be "follow" or "refuse", not "maybe"'):
        take(path, links="maybe")


def test_cve_2026_34446_links_are_a_problem_that_check_tells(folder):
    (folder / "link.bin").symlink_to("own.bin")
    path = written(model_with(external_tensor("link.bin")), folder)
    assert onnx_torch.check(path) == []
    (problem,) = onnx_torch.check(path, links="refuse")
    assert "is a link, which the option links refuses" in problem.why


def test_cve_2026_34446_a_link_put_there_later_is_not_saved(folder):
    path = written(model_with(external_tensor("own.bin")), folder)
    rep = onnx_torch.prepare(path, links="refuse")
    (folder / "own.bin").rename(folder / "moved.bin")
    (folder / "own.bin").symlink_to("moved.bin")
    with pytest.raises(InvalidModelError, match="is a link, which the option links refuses"):
        rep.save(folder / "prepared")


@pytest.mark.parametrize("mapped", [False, True])
@pytest.mark.parametrize("what", ["file", "folder"])
def test_ghsa_q56x_g2fj_4rj6_swapped_between_check_and_read(folder, what, mapped):
    """The file that is opened is the one that is checked and read."""
    secret = np.full(4, 666, np.float32)
    secret.tofile(folder.parent / "own.bin")
    SECRET.tofile(folder / "sub" / "own.bin")
    location = "own.bin" if what == "file" else "sub/own.bin"
    place, good, bad = folder / location.split("/")[0], folder / "good", folder / "bad"
    (folder / location.split("/")[0]).rename(good)
    bad.symlink_to(folder.parent / "own.bin" if what == "file" else folder.parent)
    place.symlink_to(good.name)
    model = model_with(external_tensor(location)).SerializeToString()
    stop, spare = threading.Event(), folder / "spare"

    def swap():
        while not stop.is_set():
            for target in (bad.name, good.name):
                spare.symlink_to(target)
                spare.rename(place)

    swapper = threading.Thread(target=swap)
    swapper.start()
    outcomes = {"read": 0, "refused": 0}
    try:
        end = time.monotonic() + 60
        while time.monotonic() < end and (sum(outcomes.values()) < 1000 or not all(outcomes.values())):
            try:
                [result] = onnx_torch.prepare(model, base_dir=folder, map_external=mapped).run()
                np.testing.assert_array_equal(result, SECRET)
                outcomes["read"] += 1
            except InvalidModelError:
                outcomes["refused"] += 1
    finally:
        stop.set()
        swapper.join()
    assert all(outcomes.values()), outcomes


def test_ghsa_q56x_g2fj_4rj6_the_models_own_link_swapped(folder):
    """Data may lie where a link leads that is the model's file; that is the place of the file that was read."""
    elsewhere = folder.parent / "elsewhere"
    elsewhere.mkdir()
    (elsewhere / "link.bin").symlink_to(folder.parent / "secret.bin")
    path = written(model_with(external_tensor("link.bin")), elsewhere)
    (folder / "model.onnx").symlink_to(path)
    (folder / "link.bin").symlink_to(folder.parent / "secret.bin")
    with pytest.raises(InvalidModelError, match="link out of the model's directory"):
        onnx_torch.prepare(folder / "model.onnx")


CUT = """
    import os, sys
    import numpy as np
    import onnx_torch
    path, data = sys.argv[1:]
    rep = onnx_torch.prepare(path)
    before = rep.run()[0]
    replica = rep.replica(optimize=False)
    os.truncate(data, 4)
    for one in (rep, replica):
        assert (one.run()[0] == before).all()
    del rep, replica, one
    for again in (lambda: onnx_torch.prepare(path), lambda: onnx_torch.extract(path)):
        try:
            again()
        except onnx_torch.InvalidModelError as error:
            assert "ends past the end of own.bin (4 bytes)" in str(error), error
        else:
            raise AssertionError("it was read")
"""


def run_script(script, *arguments):
    command = [sys.executable, "-c", textwrap.dedent(script), *map(str, arguments)]
    return subprocess.run(command, capture_output=True, text=True)


def test_ghsa_q56x_g2fj_4rj6_cut_after_it_was_prepared(folder):
    """A mapped file that is cut ends the process; by default a file is read, so that a cut does no harm."""
    values = np.arange(2**16, dtype=np.float32)
    values.tofile(folder / "own.bin")
    tensor = external_tensor("own.bin")
    tensor.dims[:] = [2**16]
    path = written(model_with(tensor), folder)
    done = run_script(CUT, path, folder / "own.bin")
    assert done.returncode == 0, done.stderr


def test_ghsa_q56x_g2fj_4rj6_changed_after_it_was_prepared(folder):
    nodes = [helper.make_node("Neg", ["w"], ["a"]), helper.make_node("Neg", ["a"], ["y"])]
    path = written(model_of(nodes, [], ["y"], initializer=[external_tensor("own.bin")]), folder)
    rep = onnx_torch.prepare(path)
    (folder / "own.bin").write_bytes(bytes(8))
    np.testing.assert_array_equal(rep.run()[0], SECRET)
    with pytest.raises(InvalidModelError, match=r"ends past the end of own\.bin|has changed since it was loaded"):
        rep.replica(optimize=False)
    (folder / "own.bin").write_bytes(bytes(16))
    with pytest.raises(InvalidModelError, match=r"own\.bin: it has changed since it was loaded"):
        rep.replica(optimize=False)


@pytest.mark.parametrize("key", ["offset", "length"])
@pytest.mark.parametrize(
    "value", [" 4", "4 ", "+4", "-4", "0x10", "1e9", "4.0", "1_6", "", "many", "٤", str(2**63), str(2**64 + 4), "-0x1"]
)
def test_cve_2026_34445_numbers_that_are_none(folder, key, value):
    path = written(model_with(external_tensor("own.bin", **{key: value})), folder)
    for read in (onnx_torch.prepare, onnx_torch.extract):
        with pytest.raises(InvalidModelError, match=rf'tensor "w": the {key} of its external data is "'):
            read(path)
    assert onnx_torch.check(path) != []


@pytest.mark.parametrize("key", ["offset", "length"])
@pytest.mark.parametrize("value", ["-4", "0x10", "1e9", "4.0", "", "many", "9" * 5000], ids=lambda value: value[:5])
def test_cve_2026_34445_numbers_that_are_none_are_not_told_of_either(folder, key, value):
    path = written(model_with(external_tensor("own.bin", **{key: value})), folder)
    with pytest.raises(InvalidModelError, match='the external data of the tensor "w"'):
        onnx_torch.info(path)


def test_cve_2026_34445_places_that_are_not_there(folder):
    for entries in ({"length": 2**63 - 1}, {"offset": 2**63 - 1}, {"offset": 2**63 - 1, "length": 2**63 - 1}):
        path = written(model_with(external_tensor("own.bin", **entries)), folder)
        with pytest.raises(InvalidModelError, match=r"ends past the end of own\.bin \(16 bytes\)"):
            onnx_torch.prepare(path)


@pytest.mark.parametrize("key", ["location", "offset", "length", "checksum", "anything"])
def test_cve_2026_34445_doubled_keys(folder, key):
    tensor = external_tensor("own.bin")
    for _ in range(2):
        tensor.external_data.add(key=key, value="own.bin" if key == "location" else "0")
    with pytest.raises(InvalidModelError, match=f'tensor "w": its external data has two entries "{key}"'):
        onnx_torch.prepare(written(model_with(tensor), folder))


def test_cve_2026_34445_unknown_keys_do_nothing(folder):
    """onnx before 1.21 set attributes of these names."""
    tensor = external_tensor("own.bin", __class__="x", basepath="..", raw_data="x", dims="[1]", tensor="other")
    path = written(model_with(tensor), folder)
    np.testing.assert_array_equal(onnx_torch.prepare(path).run()[0], SECRET)
    np.testing.assert_array_equal(onnx_torch.prepare(onnx_torch.extract(path)).run()[0], SECRET)


def files_in(folder):
    return {path: path.read_bytes() for path in folder.rglob("*") if path.is_file()}


@pytest.mark.parametrize("place", ["initializer", "constant", "function", "sparse values", "sparse indices"])
@pytest.mark.parametrize("location", ["../secret.bin", "victim.bin", "sub/new.bin"])
def test_cve_2025_51480_nothing_is_written_where_a_model_says(folder, place, location):
    """onnx writes the data of tensors that have both, data and a location."""
    (folder / "victim.bin").write_bytes(b"kept")
    tensor = external_tensor(location)
    tensor.raw_data = SECRET.tobytes()
    path = written(model_with(tensor, place), folder)
    before = files_in(folder.parent)
    to = folder.parent / "to"
    to.mkdir()
    model = onnx.load(path, load_external_data=False)
    with pytest.raises(InvalidModelError):
        save_model(model, to / "saved.onnx")
    with pytest.raises(InvalidModelError):
        onnx_torch.update_initializers(path, torch.nn.Module(), to / "updated.onnx")
    with pytest.raises(InvalidModelError):
        save_model(onnx_torch.extract(path), to / "part.onnx")
    with pytest.raises(InvalidModelError):
        onnx_torch.prepare(path).save(to / "prepared")
    assert files_in(folder.parent) == before


@pytest.mark.parametrize(
    "dims", [[2**62, 2**62], [-1], [-(2**63)], [2**31, 2**31, 2**31], [2**40], [0, -1], [1] * 5000, [2**63 - 1]]
)
def test_cve_2024_27319_dimensions_that_do_not_fit(dims):
    """onnx before 1.16 read beyond its own error text."""
    tensor = TensorProto(name="w", dims=dims, data_type=TensorProto.FLOAT, raw_data=bytes(16))
    with pytest.raises(InvalidModelError, match='tensor "w"') as error:
        onnx_torch.prepare(model_with(tensor))
    assert len(str(error.value)) < 1000


def test_cve_2024_27319_names_without_end():
    name = "ü" * 10**6
    model = op_model("Relu", [np.ones(3, np.float32)])
    model.graph.node[0].name = name
    model.graph.node[0].op_type = name
    with pytest.raises(onnx_torch.UnsupportedError, match="no such operator") as error:
        onnx_torch.prepare(model)
    assert len(str(error.value)) < 1000
    model = model_with(TensorProto(name=name, dims=[3], data_type=TensorProto.FLOAT))
    model.graph.node[0].input[0] = name
    with pytest.raises(InvalidModelError, match="expected 12 bytes of data, found 0") as error:
        onnx_torch.prepare(model)
    assert len(str(error.value)) < 1000 and "ü…" in str(error.value)
    model = model_of([helper.make_node("Relu", [name], ["y"])], [], ["y"])
    with pytest.raises(InvalidModelError, match="nothing defines the value") as error:
        onnx_torch.prepare(model)
    assert len(str(error.value)) < 1000
    problems = onnx_torch.check(model)
    assert problems


def test_cve_2026_28500_nothing_is_downloaded(monkeypatch, folder):
    """onnx.hub, and others by its way, fetched models that a name led to."""

    def refuse(*arguments, **named):
        raise AssertionError("a connection was opened")

    monkeypatch.setattr(socket.socket, "connect", refuse)
    monkeypatch.setattr(socket, "create_connection", refuse)
    monkeypatch.setattr(socket, "getaddrinfo", refuse)
    for address in ("https://localhost/model.onnx", "hub://resnet", "resnet50", "http://127.0.0.1:9/model.onnx"):
        with pytest.raises(InvalidModelError):
            onnx_torch.prepare(address)
        with pytest.raises(InvalidModelError):
            onnx_torch.check(address)
    for location in ("https://localhost/w.bin", "file:///etc/hostname", "http:/127.0.0.1/w.bin"):
        assert "No such file" in refused(folder, location)
    model = parser.parse_model(
        '<ir_version: 10, opset_import: ["": 21]> g (float[2] x) => (float[2] y) { y = Relu(x) }'
    )
    assert onnx_torch.prepare(model).run([np.ones(2, np.float32)])[0].tolist() == [1, 1]


@pytest.mark.parametrize("place", ["sparse values", "sparse indices", "sparse constant"])
def test_onnxruntime_sparse_external_data_bypass(folder, place):
    """onnxruntime 1.26 checked the locations of dense tensors alone."""
    (folder / "link.bin").symlink_to(folder.parent / "secret.bin")
    for location in ("../secret.bin", folder.parent / "secret.bin", "//model", "link.bin", "own.bin\0"):
        refused(folder, location, place)


@pytest.mark.parametrize("place", PLACES)
def test_onnxruntime_29011_no_address_is_read(folder, place):
    """onnxruntime before 1.28 took this location for a mark of its own, and the offset for an address of its memory."""
    marked = model_with(external_tensor("*/_ORT_MEM_ADDR_/*", offset=SECRET.ctypes.data), place)
    assert "No such file" in str(refusal(written(marked, folder)))
    with pytest.raises(InvalidModelError, match="base_dir"):
        onnx_torch.prepare(marked.SerializeToString())
    with pytest.raises(InvalidModelError):
        onnx_torch.extract(folder / "model.onnx")


# --- Files in place of a model, of its data, of a saved model and of an adapter


READERS = [
    onnx_torch.prepare,
    onnx_torch.check,
    onnx_torch.info,
    onnx_torch.show,
    onnx_torch.extract,
    onnx_torch.to_torchscript,
    onnx_torch.to_module,
    onnx_torch.load,
    onnx_torch.InferenceSession,
    AdapterFormat.read_adapter,
]


def nothing_reads(path):
    """Checks that a file is refused as a model, as a saved model and as an adapter."""
    for read in READERS:
        with pytest.raises(onnx_torch.Error):
            read(str(path))


def tarred(mode):
    """Makes an archive of a model and a file, whose name leads out of the folder."""
    file = io.BytesIO()
    with tarfile.open(fileobj=file, mode=mode) as archive:
        for name in ("model.onnx", "../escaped"):
            entry = tarfile.TarInfo(name)
            entry.size = SECRET.nbytes
            archive.addfile(entry, io.BytesIO(SECRET.tobytes()))
    return file.getvalue()


def zipped():
    file = io.BytesIO()
    with zipfile.ZipFile(file, "w") as archive:
        for name in ("model.onnx", "../escaped"):
            archive.writestr(name, SECRET.tobytes())
    return file.getvalue()


ARCHIVES = {"tar": tarred("w"), "tar.gz": tarred("w:gz"), "tar.xz": tarred("w:xz"), "zip": zipped()}


@pytest.mark.parametrize("form", ARCHIVES)
def test_cve_2024_5187_cve_2024_7776_no_archive_is_unpacked(folder, form, monkeypatch):
    """onnx unpacked an archive of a model to where the names in it led."""
    monkeypatch.chdir(folder)
    files = [folder / f"model.{form}", folder / "model.onnx", folder / "own.bin"]
    for file in files:
        file.write_bytes(ARCHIVES[form])
    (folder / "saved").write_bytes(ARCHIVES[form] + MARK)
    before = files_in(folder.parent)
    for file in (*files, folder / "saved"):
        nothing_reads(file)
    model = model_with(external_tensor("own.bin"))
    assert onnx_torch.prepare(model, base_dir=folder).run()[0].tobytes() == ARCHIVES[form][:16]  # data is bytes
    assert files_in(folder.parent) == before


class MakesAFolder:
    """An object whose pickle makes a folder where it is loaded."""

    def __init__(self, folder):
        self.folder = folder

    def __reduce__(self):
        return os.mkdir, (str(self.folder),)


def saved_by_torch(value, **options):
    file = io.BytesIO()
    torch.save(value, file, **options)
    return file.getvalue()


PICKLERS = {
    "protocol 0": lambda value: pickle.dumps(value, 0),
    "protocol 2": lambda value: pickle.dumps(value, 2),
    "protocol 5": lambda value: pickle.dumps(value, 5),
    "torch.save": saved_by_torch,
    "torch.save before 1.6": lambda value: saved_by_torch(value, _use_new_zipfile_serialization=False),
}


@pytest.mark.parametrize("form", PICKLERS)
def test_cve_2025_32434_no_pickle_is_loaded(folder, form):
    """torch.load before 2.6 ran what a pickle says though its weights alone were asked for."""
    made = folder.parent / "made"
    data = PICKLERS[form](MakesAFolder(made))
    if form.startswith("protocol"):
        pickle.loads(data)
    else:
        torch.load(io.BytesIO(data), weights_only=False)
    made.rmdir()  # so it does make one
    for name, content in {"model.onnx": data, "model.pt": data, "saved": data + MARK, "own.bin": data}.items():
        (folder / name).write_bytes(content)
        nothing_reads(folder / name)
    with pytest.raises(InvalidModelError):
        onnx_torch.prepare(data)
    model = model_with(external_tensor("own.bin"))
    assert onnx_torch.prepare(model, base_dir=folder).run()[0].tobytes() == data[:16]
    assert not made.exists()


def uncalled(*arguments, **options):
    raise AssertionError("it was called")


def test_cve_2026_24747_torch_load_is_asked_for_no_file(folder, monkeypatch):
    """torch.load before 2.10 wrote beside its memory for files of weights alone."""
    weights = saved_by_torch({"w": torch.ones(4)})
    rep = onnx_torch.prepare(op_model("Relu", [SECRET]))
    rep.save(folder / "saved")
    onnx_torch.to_torchscript(op_model("Relu", [SECRET]), folder / "script.pt")
    for owner, name in [(torch, "load"), (torch.jit, "load"), (pickle, "load"), (pickle, "loads"), (np, "load")]:
        monkeypatch.setattr(owner, name, uncalled)
    for name, content in {"model.onnx": weights, "model.pt": weights, "cut": weights + MARK}.items():
        (folder / name).write_bytes(content)
        nothing_reads(folder / name)
    nothing_reads(folder / "script.pt")
    np.testing.assert_array_equal(onnx_torch.load(folder / "saved").run([SECRET])[0], SECRET)
    path = written(model_with(external_tensor("own.bin")), folder)
    np.testing.assert_array_equal(onnx_torch.prepare(path).run()[0], SECRET)


CODE = 'x):\n  torch.ops.aten.from_file("{made}", True, 4)\n  import os; os.mkdir("{made}") #'


def test_cve_2025_3000_no_name_becomes_a_script(folder, monkeypatch):
    """torch.jit.script before 2.13 wrote beside its memory. No model's text is code, nor in a file of TorchScript."""
    made = folder.parent / "made"
    code = CODE.replace("{made}", str(made))
    nodes = [
        helper.make_node("Relu", ["x" + code], ["a" + code], name=code, doc_string=code),
        helper.make_node(code, ["a" + code], ["y" + code], domain=code, name=code),
    ]
    model = model_of(nodes, [helper.make_tensor_value_info("x" + code, 1, ["n" + code])], ["y" + code])
    model.graph.name = model.producer_name = model.domain = code
    imports = [helper.make_opsetid("", 21)]
    body = [helper.make_node("Neg", ["x" + code], ["y" + code], name=code)]
    model.functions.append(helper.make_function(code, code, ["x" + code], ["y" + code], body, imports))
    model.opset_import.append(helper.make_opsetid(code, 1))
    x, expected = np.float32([-1, 2]), np.float32([0, -2])
    with monkeypatch.context() as patch:
        for name in ("script", "trace"):
            patch.setattr(torch.jit, name, uncalled)
        for optimize in (True, False):
            np.testing.assert_array_equal(onnx_torch.prepare(model, optimize=optimize).run([x])[0], expected)
        onnx_torch.prepare(model).save(folder / "saved")
        np.testing.assert_array_equal(onnx_torch.load(folder / "saved").run([x])[0], expected)
        onnx_torch.to_torchscript(model, folder / "script.pt")
    script = torch.jit.load(folder / "script.pt")
    np.testing.assert_array_equal(script(torch.from_numpy(x)).numpy(), expected)
    assert [node.kind() for node in script.inlined_graph.nodes()] == ["aten::relu", "aten::neg"]
    assert not made.exists()


OTHER_FORMS = {
    "model.json": b'{"graph": ' * 10_000,
    "model.onnxjson": b'{"irVersion": "10", "graph": {"node": [{"opType": "Relu"}]}}',
    "model.textproto": b"graph { node { attribute { g {" * 10_000,
    "model.pbtxt": b'ir_version: 10 graph { node { op_type: "Relu" } }',
    "model.onnxtxt": b'<ir_version: 10, opset_import: ["": 21]> g (float[2] x) => (float[2] y) { y = Relu(x) }',
    "model.onnxtext": b'<ir_version: 10, opset_import: ["": 21]> g (bool x) => (float y) {'
    + b"y = If (x) <then_branch = a () => (float y) {" * 10_000,  # onnx's own parser ends the process
}


@pytest.mark.parametrize("name", OTHER_FORMS)
def test_cve_2026_0994_no_json_is_read_as_a_message(folder, name, monkeypatch):
    """protobuf before 6.33.5 read JSON of any depth. No file's name makes its content JSON, or another kind of text."""
    for owner, function in [(json_format, "Parse"), (text_format, "Parse"), (parser, "parse_model")]:
        monkeypatch.setattr(owner, function, uncalled)
    (folder / name).write_bytes(OTHER_FORMS[name])
    nothing_reads(folder / name)
    path = written(op_model("Relu", [SECRET]), folder).rename(folder / name)  # whose content is a model
    assert onnx_torch.check(path) == []
    np.testing.assert_array_equal(onnx_torch.prepare(path).run([SECRET])[0], SECRET)
    np.testing.assert_array_equal(onnx_torch.prepare(onnx_torch.extract(path)).run([SECRET])[0], SECRET)


def test_cve_2026_0994_a_saved_models_index_does_not_nest_without_end(folder):
    """The index is JSON, which Python's own reader reads."""
    text = b"[" * 10**6
    (folder / "saved").write_bytes(text + len(text).to_bytes(8, "little") + MARK)
    with pytest.raises(InvalidModelError, match="saved"):
        onnx_torch.load(folder / "saved")


@pytest.mark.parametrize("read", READERS, ids=lambda read: read.__name__)
@pytest.mark.parametrize("device", ["pipe", "/dev/zero", "/proc/self/mem"])
def test_no_reader_waits_for_a_pipe_or_reads_a_device(folder, device, read):
    """What is opened would be waited for without end, or be read without end."""
    path = folder / device
    if device == "pipe":
        os.mkfifo(path)
    done = run_script(WITHIN_TEN_SECONDS, path, read.__name__)
    assert done.returncode == 0, done.stderr[-2000:]


WITHIN_TEN_SECONDS = """
    import resource, signal, sys
    import onnx_torch
    from onnx_torch.compat.onnxruntime import AdapterFormat
    path, name = sys.argv[1:]
    read = getattr(onnx_torch, name, None) or getattr(AdapterFormat, name)
    resource.setrlimit(resource.RLIMIT_AS, (32 << 30, 32 << 30))
    signal.alarm(10)
    try:
        read(path)
    except onnx_torch.Error as error:
        assert path in str(error), error
    else:
        raise AssertionError("it was read")
"""
