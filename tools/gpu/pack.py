"""The pack: one file with all that a bare GPU machine lacks, which is libraries of the system, Python packages, and
cases of past releases of onnx.

`fill` makes the file on a machine with a network and apt; `unpack` lays it out on the other one, where no network and
no root are needed.
"""

from __future__ import annotations

import io
import json
import os
import re
import shutil
import subprocess
import sys
import tarfile
import tempfile
import time
import zipfile
from collections.abc import Iterable, Sequence
from pathlib import Path

from tools.develop.environment import pinned

ROOT = Path(__file__).resolve().parents[2]
PACK = ROOT / "gpu_pack"  # git ignores it
LAID_OUT = ROOT / "build" / "gpu"

# The packages to build, to run, to test, and to export the benchmark's models from torch.
PYTHON_PACKAGES = (
    "cmake ninja onednn-cpu-gomp onednn-devel-cpu-gomp onnx numpy ml_dtypes rich typer pytest tabulate pillow "
    "onnxscript"
).split()
DEBIAN_PACKAGES = (
    "pkg-config libprotobuf-dev protobuf-compiler libre2-dev libutf8proc-dev libgmock-dev libjpeg-dev libpng-dev "
    "libwebp-dev libtiff-dev libopenjp2-7-dev"
).split()
THERE = ["g++"]  # nvcc needs it, and so the machine has it, and what it depends on
PLATFORMS = ["manylinux_2_28_x86_64", "manylinux_2_27_x86_64", "manylinux_2_17_x86_64", "manylinux2014_x86_64"]
LIBRARIES = "usr/lib/x86_64-linux-gnu"

# The files of the wheels that are of no use for building and testing.
LEFT_OUT = re.compile(
    r"cmake/data/(bin/(cpack|ccmake|cmake-gui)|doc|man|share/(?!cmake)|share/cmake-[^/]+/Help)"
    r"|numpy/.*/tests/|numpy/_core/(include|lib)/|.*\.pyi$|.*\.a$"
    r"|onednn.*/lib/(cmake|pkgconfig)/|onednn.*/lib/libdnnl\.so(\.\d+\.\d+)?$|onednn.*/(share|examples|doc)/"
    r"|onnx/(?!backend/test/).*\.(h|cc|cpp)$|onnx/backend/test/data/node/"
)
# The files of the system's packages that are needed.
KEPT = re.compile(
    rf"usr/include/|{LIBRARIES}/[^/]*\.so[.\d]*$|{LIBRARIES}/lib(gtest|gmock)[^/]*\.a$|{LIBRARIES}/pkgconfig/"
    rf"|{LIBRARIES}/cmake/GTest/|usr/share/pkgconfig/|usr/bin/(protoc[-.\d]*|pkgconf|pkg-config)$"
)
CASES = re.compile(r"onnx/backend/test/data/")  # the cases in a past release's wheel


def fill(python: str, folder: Path = PACK) -> Path:
    """Downloads all that the pack holds for a minor release of Python, and packs it."""
    with tempfile.TemporaryDirectory(prefix="gpu_pack_") as name:
        root, wheels, debs = Path(name, "root"), Path(name, "wheels"), Path(name, "debs")
        download_wheels(python, wheels)
        for wheel in sorted(wheels.glob("*.whl")):
            unpack_wheel(wheel, root / "python")
        for deb in download_debs(debs):
            unpack_deb(deb, root)
        past = pack_past_releases(root / "past_releases")
        told = {
            "python": python,
            "made": time.strftime("%Y-%m-%d"),
            "wheels": sorted(wheel.name for wheel in wheels.glob("*.whl")),
            "debs": sorted(deb.name for deb in debs.glob("*.deb")),
            "past_releases": past,
        }
        folder.mkdir(parents=True, exist_ok=True)
        file = folder / "pack.tar.xz"
        with tarfile.open(file.with_suffix(".part"), "w:xz", preset=9) as archive:
            text = json.dumps(told, indent=1).encode()
            entry = tarfile.TarInfo("pack.json")
            entry.size = len(text)
            archive.addfile(entry, io.BytesIO(text))
            archive.add(root, ".")
        file.with_suffix(".part").replace(file)
    return file


def pins(names: Iterable[str]) -> list[str]:
    """Gives packages with the versions that requirements/dev.txt gives them."""
    versions = pinned((ROOT / "requirements" / "dev.txt").read_text(), "x86_64")
    return [f"{name}=={versions[name.replace('_', '-')]}" for name in names]


def download_wheels(python: str, folder: Path) -> None:
    platforms = [argument for platform in PLATFORMS for argument in ("--platform", platform)]
    command = [sys.executable, "-m", "pip", "download", "--quiet", "--only-binary=:all:", "--dest", str(folder)]
    subprocess.run([*command, "--python-version", python, *platforms, *pins(PYTHON_PACKAGES)], check=True)


def unpack_wheel(wheel: Path, prefix: Path) -> None:
    """Lays a wheel out as pip does, in prefix/site-packages; its data go to prefix, and its RECORD says so."""
    site = prefix / "site-packages"
    with zipfile.ZipFile(wheel) as archive:
        for entry in archive.infolist():
            if entry.is_dir() or LEFT_OUT.match(entry.filename):
                continue
            file = site / installed(entry.filename)
            file.parent.mkdir(parents=True, exist_ok=True)
            content = archive.read(entry)
            if entry.filename.endswith(".dist-info/RECORD"):
                kept = (line for line in content.decode().splitlines() if not LEFT_OUT.match(line.split(",")[0]))
                content = "\n".join(map(installed, kept)).encode()
            file.write_bytes(content)
            file.chmod(0o755 if entry.external_attr >> 16 & 0o100 or "/bin/" in entry.filename else 0o644)


def installed(name: str) -> str:
    """Gives the place of a wheel's file, as a path from site-packages.

    >>> installed("some-1.data/data/lib/libsome.so"), installed("some-1.data/purelib/some.py"), installed("some.py")
    ('../lib/libsome.so', 'some.py', 'some.py')
    """
    match = re.match(r"[^/]+\.data/(\w+)/(.*)", name, re.S)
    if not match:
        return name
    return {"data": "../", "scripts": "../bin/", "headers": "../include/"}.get(match[1], "") + match[2]


def download_debs(folder: Path) -> list[Path]:
    """Downloads the packages that the sources need, with all that they depend on, but for what g++ depends on."""
    wanted = sorted(closure(DEBIAN_PACKAGES) - closure(THERE))
    folder.mkdir(parents=True)
    subprocess.run(["apt-get", "download", "--quiet=2", *wanted], cwd=folder, check=True)
    return sorted(folder.glob("*.deb"))


def closure(packages: Sequence[str]) -> set[str]:
    leave = [f"--no-{kind}" for kind in ("recommends", "suggests", "conflicts", "breaks", "replaces", "enhances")]
    command = ["apt-cache", "depends", "--recurse", *leave, *packages]
    told = subprocess.run(command, capture_output=True, text=True, check=True).stdout
    return set(re.findall(r"^(\w[^\s:]*)$", told, re.M))  # virtual packages stand in brackets


def unpack_deb(deb: Path, root: Path) -> None:
    with tempfile.TemporaryDirectory(prefix="gpu_pack_deb_") as name:
        subprocess.run(["dpkg", "-x", str(deb), name], check=True)
        for path in sorted(Path(name).rglob("*")):
            relative = path.relative_to(name).as_posix().removeprefix("./")
            relative = re.sub(r"^lib/", "usr/lib/", relative)
            if (path.is_symlink() or path.is_file()) and KEPT.match(relative):
                target = root / relative
                target.parent.mkdir(parents=True, exist_ok=True)
                shutil.copy2(path, target, follow_symlinks=False)


def pack_past_releases(folder: Path) -> list[str]:
    """Packs the cases of those past releases of onnx whose wheels the tests have downloaded here."""
    folder.mkdir(parents=True)
    wheels = sorted((ROOT / ".cache" / "past_releases").glob("onnx-*.whl"))
    for wheel in wheels:
        # They are stored, and not compressed: the pack is compressed as a whole, and finds what releases have in
        # common.
        with zipfile.ZipFile(wheel) as source, zipfile.ZipFile(folder / wheel.name, "w", zipfile.ZIP_STORED) as target:
            for entry in source.infolist():
                if CASES.match(entry.filename) and not entry.is_dir():
                    target.writestr(entry.filename, source.read(entry))
    return [wheel.name.split("-")[1] for wheel in wheels]


# --- On the other machine ---


def unpack(pack: Path = PACK, root: Path = LAID_OUT) -> dict[str, object]:
    """Lays the pack out, unless that has been done, and gives its description."""
    file = pack / "pack.tar.xz"
    if not file.exists():
        raise SystemExit(f"{file} is not there. Make it where there are a network and apt: ./dev gpu --pack")
    stamp, identity = root / "unpacked.txt", f"{file.stat().st_size} {root}"
    if not stamp.exists() or stamp.read_text() != identity:
        shutil.rmtree(root / "root", ignore_errors=True)
        with tarfile.open(file) as archive:
            archive.extraction_filter = getattr(tarfile, "tar_filter", None)  # early releases of Python lack it
            archive.extractall(root / "root")
        for description in (root / "root").glob("usr/**/pkgconfig/*.pc"):
            if not description.is_symlink():
                description.write_text(moved(description.read_text(), str(root / "root")))
        put_past_releases(root / "root" / "past_releases")
        stamp.write_text(identity)
    told: dict[str, object] = json.loads((root / "root" / "pack.json").read_text())
    return told


def moved(description: str, root: str) -> str:
    """Changes a description for pkg-config to that of a library that lies below another root.

    >>> moved("prefix=/usr\\nlibdir=${prefix}/lib\\nincludedir=/usr/include/some", "/pack")
    'prefix=/pack/usr\\nlibdir=${prefix}/lib\\nincludedir=/pack/usr/include/some'
    """
    return re.sub(r"(=|\s|-[LI])/usr(?=/|$)", rf"\g<1>{root}/usr", description, flags=re.M)


def put_past_releases(folder: Path) -> None:
    """Puts the cases where the tests look for wheels before they download them."""
    target = ROOT / ".cache" / "past_releases"
    target.mkdir(parents=True, exist_ok=True)
    for wheel in folder.glob("*.whl"):
        if not (target / wheel.name).exists():
            shutil.copy(wheel, target / wheel.name)


def environment(build: Path, root: Path = LAID_OUT / "root") -> dict[str, str]:
    """Gives the variables with which the sources are built, and their tests run, from what was laid out."""

    def before(paths: Iterable[Path], name: str) -> str:
        return os.pathsep.join([*map(str, paths), *filter(None, [os.environ.get(name)])])

    site, libraries = root / "python" / "site-packages", root / LIBRARIES
    programs = [root / "usr" / "bin", root / "python" / "bin", site / "cmake" / "data" / "bin"]
    return {
        **os.environ,
        "PATH": before(programs, "PATH"),
        "PYTHONPATH": before([build / "python", site], "PYTHONPATH"),
        "PKG_CONFIG_LIBDIR": f"{libraries}/pkgconfig:{root}/usr/share/pkgconfig",
        "CMAKE_PREFIX_PATH": before([root / "usr"], "CMAKE_PREFIX_PATH"),
        "LD_LIBRARY_PATH": before([libraries], "LD_LIBRARY_PATH"),
        "ONNX_HOME": str(build / "onnx_home"),
    }
