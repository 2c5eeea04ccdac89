"""The sdist of a release, and its wheels: one for each CPython and minor release of torch. `nox` makes all of them.

Each wheel is built from the sdist and tested in an environment of its own, and goes to out/wheels/torch-MINOR, as those
for two releases of torch have the same name. It needs the system packages that the README names, and interpreters,
which uv brings where it is installed. All but the Python modules is the same for each CPython: with ccache it is
compiled once for each release of torch.
"""

from __future__ import annotations

import itertools
import os
import shutil
from pathlib import Path

import nox

nox.options.default_venv_backend = "uv|virtualenv"

ROOT = Path(__file__).resolve().parent
OUT = ROOT / "out" / "wheels"
PYTHONS = ["3.10", "3.11", "3.12", "3.13", "3.14", "3.14t"]
TORCHES = ["2.13", "2.14", "2.15"]
ABSENT = {("3.10", "2.15")}  # torch has no such wheel


@nox.session
@nox.parametrize(
    "python,torch",
    [
        nox.param(python, torch, tags=[f"torch-{torch}"])
        for python, torch in itertools.product(PYTHONS, TORCHES)
        if (python, torch) not in ABSENT
    ],
)
def wheel(session: nox.Session, torch: str) -> None:
    """Builds a wheel, bundles its libraries, and tests it in an environment that holds it alone."""
    session.install(f"torch=={torch}.*", "-r", "requirements/wheels.txt")
    folder = OUT / f"torch-{torch}"
    built = Path(session.create_tmp()) / "built"
    shutil.rmtree(built, ignore_errors=True)
    settings = ["--no-isolation", "--outdir", str(built)]
    session.run("python", "-m", "build", *settings, *session.posargs)
    (sources,), (plain,) = built.glob("*.tar.gz"), built.glob("*.whl")
    shutil.copy(sources, OUT)
    printed = str(session.run("python", "cmake/repair_wheel.py", str(plain), str(folder), silent=True))
    tested = {**os.environ, "ONNX_TORCH_WHEEL": printed.splitlines()[-1]}
    session.run("python", "-m", "pytest", "tests/wheel", env=tested)
