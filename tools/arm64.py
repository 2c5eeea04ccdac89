"""Builds for Linux on ARM64 on another kind of machine, and tests what was built in qemu's user emulation.

    python -m tools.arm64 system      the system's libraries and headers, Python and torch, in build/arm64/system
    python -m tools.arm64 build       compiles all, in build/arm64/build
    python -m tools.arm64 test        runs the C++ tests
    python -m tools.arm64 test FILE…  runs these files of tests/python

Wanted: Debian 12 with g++-aarch64-linux-gnu, qemu-user and debootstrap, the environment of `./dev setup`, and a
network. Tests that start a process of Python want the kernel to know qemu-aarch64 (binfmt_misc).
"""

from __future__ import annotations

import argparse
import os
import shutil
import subprocess
import sys
import zipfile
from importlib.metadata import PathDistribution, version
from pathlib import Path

from packaging.requirements import Requirement

REPOSITORY = Path(__file__).resolve().parents[1]
FOLDER = REPOSITORY / "build" / "arm64"
SYSTEM, BUILD, WHEELS = FOLDER / "system", FOLDER / "build", FOLDER / "wheels"
PACKAGES = SYSTEM / "usr/local/lib/python3.11/dist-packages"

DEBIAN = """libgmock-dev libgomp1 libjpeg-dev libopenjp2-7-dev libpng-dev libprotobuf-dev libpython3.11-stdlib
libre2-dev libstdc++-12-dev libtiff-dev libutf8proc-dev libwebp-dev python3.11 python3.11-dev"""
# What the Python tests import, and what that imports, but for torch.
PYTHON = """click execnet iniconfig markdown-it-py mdurl ml_dtypes numpy onnx packaging pillow pluggy protobuf pygments
pytest pytest-xdist rich scipy shellingham tabulate typer typing_extensions"""
# A processor as Linux tells of it: a Neoverse N1.
CPU_INFO = """processor\t: {number}
Features\t: fp asimd atomics fphp asimdhp asimdrdm asimddp
CPU implementer\t: 0x41
CPU architecture: 8
CPU variant\t: 0x3
CPU part\t: 0xd0c
CPU revision\t: 1

"""
CPU_ID = "0x00000000413fd0c1\n"


def run(*command: str | Path, **environment: str) -> None:
    subprocess.run([str(part) for part in command], check=True, env={**os.environ, **environment})


def pip(command: str, *options: str) -> None:
    platforms = [f"--platform=manylinux_2_{minor}_aarch64" for minor in range(17, 37)]
    run(
        sys.executable, "-m", "pip", command, "--only-binary=:all:", "--python-version=3.11",
        "--platform=manylinux2014_aarch64", *platforms, *options,
    )  # fmt: skip


def needs_of_torch() -> list[str]:
    """Lists the packages that torch's wheel asks for on ARM64, CUDA's among them: libtorch.so loads them all."""
    (metadata,) = PACKAGES.glob("torch-*.dist-info")
    there = {"platform_machine": "aarch64", "platform_system": "Linux", "python_version": "3.11", "extra": ""}
    needs = []
    for need in map(Requirement, PathDistribution(metadata).requires or []):
        if not need.marker or need.marker.evaluate(there):
            need.marker = None
            needs.append(str(need))
    return needs


def make_links_relative(root: Path) -> None:
    """Points links to absolute paths at the same places under the root."""
    for link in root.rglob("*"):
        if link.is_symlink() and str(target := link.readlink()).startswith("/"):
            inside = root / str(target).lstrip("/")
            if inside.exists():
                link.unlink()
                link.symlink_to(os.path.relpath(inside, link.parent))


def tell_of_cpu() -> None:
    """Writes the files that tell of the CPU: torch's libraries crash on those of another kind, the emulator's own."""
    numbers = range(os.cpu_count() or 1)
    files = {f"sys/devices/system/cpu/cpu{number}/regs/identification/midr_el1": CPU_ID for number in numbers}
    files["proc/cpuinfo"] = "".join(CPU_INFO.format(number=number) for number in numbers)
    for name, text in files.items():
        (SYSTEM / name).parent.mkdir(parents=True, exist_ok=True)
        (SYSTEM / name).write_text(text)


def system() -> None:
    """Unpacks Debian's packages, of which none is run, and the wheels."""
    shutil.rmtree(SYSTEM, ignore_errors=True)
    names = ",".join(DEBIAN.split())
    run("debootstrap", "--arch=arm64", "--foreign", "--variant=minbase", f"--include={names}", "bookworm", SYSTEM)
    for package in sorted((SYSTEM / "var/cache/apt/archives").glob("*.deb")):
        run("dpkg", "-x", package, SYSTEM)
    make_links_relative(SYSTEM)
    tell_of_cpu()
    pip("download", "--no-deps", f"torch=={version('torch').partition('+')[0]}", f"--dest={WHEELS}")
    for wheel in WHEELS.glob("torch-*.whl"):
        with zipfile.ZipFile(wheel) as archive:
            archive.extractall(PACKAGES)
    pip("install", f"--target={PACKAGES}", *(f"{name}=={version(name)}" for name in PYTHON.split()), *needs_of_torch())


def build() -> None:
    run(
        "cmake", "-S", REPOSITORY, "-B", BUILD, "-G", "Ninja",
        f"-DCMAKE_TOOLCHAIN_FILE={REPOSITORY / 'cmake/toolchains/linux-aarch64.cmake'}",
        f"-DONNX_TORCH_SYSROOT={SYSTEM}", f"-DLibTorch_ROOT_DIR={PACKAGES / 'torch'}",
        "-DONNX_TORCH_CUDA=OFF", "-DONNX_TORCH_INSTALL=OFF", f"-DPython_EXECUTABLE={sys.executable}",
        f"-DPython_INCLUDE_DIR={SYSTEM / 'usr/include/python3.11'}",
        "-DONNX_TORCH_PYTHON_SOABI=cpython-311-aarch64-linux-gnu",
    )  # fmt: skip
    run("cmake", "--build", BUILD)


def emulate(*command: str | Path, **environment: str) -> None:
    """Runs a program for ARM64, and those that it starts."""
    found = shutil.which("qemu-aarch64")
    if not found:
        raise SystemExit("qemu-aarch64 was not found. On Debian or Ubuntu: apt install qemu-user")
    run(found, *command, QEMU_LD_PREFIX=str(SYSTEM), **environment)


def test(files: list[str]) -> None:
    if files:
        folders = [BUILD / "python", PACKAGES, REPOSITORY / "tests" / "python"]
        path = os.pathsep.join(map(str, folders))
        emulate(SYSTEM / "usr/bin/python3.11", "-m", "pytest", "-q", *files, PYTHONPATH=path)
        return
    for program in ("onnx_torch_tests", "onnx_torch_public_tests"):
        emulate(BUILD / "tests" / "cpp" / program)


def main() -> None:
    summary, _, details = (__doc__ or "").partition("\n\n")
    parser = argparse.ArgumentParser(
        prog="python -m tools.arm64", description=f"{summary}\n\n{details}",
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )  # fmt: skip
    parser.add_argument("part", choices=["system", "build", "test"])
    parser.add_argument("files", nargs="*", metavar="FILE", help="of tests/python, for test")
    arguments = parser.parse_args()
    if arguments.part == "test":
        test(arguments.files)
    else:
        {"system": system, "build": build}[arguments.part]()


if __name__ == "__main__":
    main()
