"""Makes a built wheel stand on its own: repair_wheel.py BUILT.whl FOLDER

auditwheel copies oneDNN and the system's libraries into it (protobuf-lite, RE2, utf8proc, the image libraries) and
names the oldest Linux it runs on. What torch brings along stays torch's: a second copy would have operators and threads
of its own. The licences of what was copied, as Debian or the package from PyPI states them, go beside our own.
"""

from __future__ import annotations

import importlib.metadata
import os
import re
import subprocess
import sys
import tempfile
from pathlib import Path

from auditwheel.wheeltools import InWheelCtx

ONEDNN = list(importlib.metadata.distributions(name="onednn-cpu-gomp"))  # none but on x86-64
FROM_TORCH = ["libtorch*", "libc10*", "libshm.so", "libgomp.so.1", "libcu*", "libnv*", "libnccl*"]


def files_of_onednn(names: set[str]) -> list[importlib.metadata.PackagePath]:
    return [file for package in ONEDNN for file in package.files or [] if file.name in names]


def repaired(wheel: Path, folder: Path) -> Path:
    excludes = [part for pattern in FROM_TORCH for part in ("--exclude", pattern)]
    onednn = [str(file.locate().resolve().parent) for file in files_of_onednn({"libdnnl.so.3"})]
    found = os.pathsep.join(filter(None, [*onednn, os.environ.get("LD_LIBRARY_PATH")]))
    command = [sys.executable, "-m", "auditwheel", "repair", *excludes, "--wheel-dir", folder, wheel]
    subprocess.run(command, check=True, env={**os.environ, "LD_LIBRARY_PATH": found})
    (result,) = folder.glob("*.whl")
    return result


def system_library(bundled: Path) -> str:
    """Gives the name a library had before auditwheel put a hash into it."""
    return re.sub(r"-[0-9a-f]{8}(?=\.so)", "", bundled.name)


def licence(library: str) -> tuple[str, str]:
    """Finds the package that a library comes from, and what it says of its copyright."""
    if library.startswith("libdnnl."):
        told = files_of_onednn({"LICENSE", "THIRD-PARTY-PROGRAMS"})
        return "libdnnl", "\n".join(file.read_text() for file in told)
    query = ["dpkg-query", "--search", f"*/{library}"]
    package = subprocess.run(query, capture_output=True, text=True, check=True).stdout.split(":")[0]
    return package, Path("/usr/share/doc", package, "copyright").read_text(errors="replace")


def main(wheel: Path, folder: Path) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory() as temporary:
        bundling = repaired(wheel, Path(temporary))
        result = folder / bundling.name
        with InWheelCtx(bundling, result) as unpacked:
            (licences,) = unpacked.path.glob("*.dist-info/licenses")
            for bundled in sorted(unpacked.path.glob("*.libs/*")):
                package, text = licence(system_library(bundled))
                (licences / f"{package}.txt").write_text(text)
    print(result)


if __name__ == "__main__":
    main(Path(sys.argv[1]), Path(sys.argv[2]))
