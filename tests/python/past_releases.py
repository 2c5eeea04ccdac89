"""The test cases that past releases of onnx shipped as files in their wheels: one folder a case, of model and data."""

from __future__ import annotations

import dataclasses
import hashlib
import subprocess
import sys
import zipfile
from collections.abc import Iterator
from pathlib import Path

import ml_dtypes
import numpy as np
import onnx
from filelock import FileLock
from onnx import numpy_helper

from official import Case

DATA = "onnx/backend/test/data/"

# Each release with the Python and the platform its wheel was built for: pip takes it without installing.
RELEASES = {
    "1.2.2": ("36", "manylinux1"),
    "1.3.0": ("36", "manylinux1"),
    "1.4.1": ("36", "manylinux1"),
    "1.5.0": ("36", "manylinux1"),
    "1.6.0": ("36", "manylinux1"),
    "1.7.0": ("38", "manylinux1"),
    "1.8.1": ("38", "manylinux2010"),
    "1.9.0": ("38", "manylinux2010"),
    "1.10.2": ("38", "manylinux_2_12"),
    "1.11.0": ("38", "manylinux_2_12"),
    "1.12.0": ("310", "manylinux_2_17"),
    "1.13.1": ("310", "manylinux_2_17"),
    "1.14.1": ("310", "manylinux_2_17"),
    "1.15.0": ("310", "manylinux_2_17"),
    "1.16.2": ("311", "manylinux_2_17"),
    "1.17.0": ("311", "manylinux_2_17"),
    "1.18.0": ("311", "manylinux_2_17"),
    "1.19.1": ("311", "manylinux_2_17"),
    "1.20.1": ("311", "manylinux_2_27"),
    "1.21.0": ("311", "manylinux_2_27"),
    "1.22.0": ("311", "manylinux_2_27"),
}


def fetch(release: str, folder: Path) -> Path:
    """Gives the wheel of a release, downloaded unless it is in the folder already; one process at a time does it."""
    folder.mkdir(parents=True, exist_ok=True)
    with FileLock(folder / f".{release}.lock"):
        if not list(folder.glob(f"onnx-{release}-*.whl")):
            python, platform = RELEASES[release]
            where = ["--python-version", python, "--platform", f"{platform}_x86_64", "--dest", str(folder)]
            download = [sys.executable, "-m", "pip", "download", "--quiet", "--no-deps", "--only-binary=:all:"]
            subprocess.run([*download, *where, f"onnx=={release}"], check=True)
    return next(folder.glob(f"onnx-{release}-*.whl"))


@dataclasses.dataclass(frozen=True)
class Folder:
    """One case's folder: the bytes of its files."""

    release: str
    kind: str
    name: str
    files: dict[str, bytes]

    def digest(self) -> str:
        return hashlib.sha256(repr(sorted(self.files.items())).encode()).hexdigest()


def folders(release: str, wheel: Path) -> Iterator[Folder]:
    """Gives the folders of a wheel that hold a model; those of the real models hold an address only."""
    found: dict[tuple[str, str], dict[str, bytes]] = {}
    with zipfile.ZipFile(wheel) as archive:
        for entry in archive.infolist():
            kind, _, rest = entry.filename.removeprefix(DATA).partition("/")
            name, _, file = rest.partition("/")
            if entry.filename.startswith(DATA) and file and not entry.is_dir():
                found.setdefault((kind, name), {})[file] = archive.read(entry)
    for (kind, name), files in sorted(found.items()):
        if "model.onnx" in files:
            yield Folder(release, kind, name, files)


def distinct(releases: list[str], wheels: Path) -> list[Folder]:
    """Gives the folders of releases, without those whose files are byte-equal to the files of one seen before."""
    seen: dict[str, Folder] = {}
    for release in releases:
        for folder in folders(release, fetch(release, wheels)):
            seen.setdefault(folder.digest(), folder)
    return list(seen.values())


def _value(data: bytes, type_: onnx.TypeProto):
    """Reads a file of a data set; its input's or output's type says which message it holds."""
    kind = type_.WhichOneof("value")
    if kind == "optional_type":
        optional = onnx.OptionalProto()
        optional.ParseFromString(data)
        held = any(field.name.endswith("_value") for field, _ in optional.ListFields())
        return numpy_helper.to_optional(optional) if held else None
    if kind == "sequence_type":
        sequence = onnx.SequenceProto()
        sequence.ParseFromString(data)
        return numpy_helper.to_list(sequence)
    if kind == "map_type":
        map_ = onnx.MapProto()
        map_.ParseFromString(data)
        return numpy_helper.to_dict(map_)
    tensor = onnx.TensorProto()
    tensor.ParseFromString(data)
    array = numpy_helper.to_array(tensor)
    # Till 1.18 the files held bfloat16 as uint16; the model says which it is.
    is_bfloat16 = type_.tensor_type.elem_type == onnx.TensorProto.BFLOAT16
    return array.view(ml_dtypes.bfloat16) if is_bfloat16 and array.dtype == np.uint16 else array


def _values(folder: Folder, prefix: str, infos) -> list:
    count = sum(name.startswith(prefix) for name in folder.files)
    return [_value(folder.files[f"{prefix}{i}.pb"], infos[i].type) for i in range(count)]


def case_of(folder: Folder) -> Case:
    model = onnx.load_from_string(folder.files["model.onnx"])
    data_sets = sorted({Path(name).parent.as_posix() for name in folder.files if name.endswith(".pb")})
    read = [
        (_values(folder, f"{d}/input_", model.graph.input), _values(folder, f"{d}/output_", model.graph.output))
        for d in data_sets
    ]
    return Case(folder.name, model, read, rtol=1e-3, atol=1e-7)  # ONNX's suite has these where a case has none


def wheels_folder() -> Path:
    folder = Path(__file__).resolve().parents[2] / ".cache" / "past_releases"
    folder.mkdir(parents=True, exist_ok=True)
    return folder
