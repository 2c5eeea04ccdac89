"""The Python environment that everything is built for and runs in: .venv, or another whose torch fits."""

from __future__ import annotations

import functools
import json
import os
import platform
import re
import shutil
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

from tools.develop.project import ROOT, VENV, Stop

OLDEST_PYTHON = (3, 11)  # the pinned packages ask for it
TORCH_FROM, TORCH_TO = (2, 11), (2, 15)

# The program runs inside the environment it describes. pip writes a package's RECORD last: a folder without one is half
# installed.
PROBE = """
import importlib.metadata as metadata, importlib.util as util, json, os, sys, sysconfig
packages, incomplete = {}, []
for path in sys.path:
    for dist in metadata.distributions(path=[path]) if path else ():
        folder = str(dist._path)
        if path.startswith(sys.prefix) and folder.endswith(".dist-info") and not os.path.exists(folder + "/RECORD"):
            incomplete.append(folder)
        else:
            packages.setdefault(dist.metadata["Name"].lower().replace("_", "-"), dist.version)
print(json.dumps({
    "version": sys.version_info[:2], "prefix": sys.prefix, "base_prefix": sys.base_prefix, "packages": packages,
    "incomplete": incomplete, "scripts": sysconfig.get_path("scripts"), "pip": bool(util.find_spec("pip")),
    "ensurepip": bool(util.find_spec("ensurepip")),
    "headers": os.path.exists(os.path.join(sysconfig.get_path("include"), "Python.h"))}))
"""


@functools.cache  # the cache is emptied after each step
def probe(python: str) -> dict | None:
    """Tells what there is in the environment of an interpreter; None if it does not run."""
    try:
        done = subprocess.run([python, "-c", PROBE], capture_output=True, text=True, cwd=ROOT, timeout=60)
    except OSError:
        return None
    return json.loads(done.stdout) if done.returncode == 0 else None


def torch_version(found: dict | None) -> str | None:
    return found["packages"].get("torch") if found else None


def torch_fits(version: str | None) -> bool:
    match = re.match(r"(\d+)\.(\d+)", version or "")
    return bool(match) and TORCH_FROM <= tuple(map(int, match.groups())) <= TORCH_TO


def dotted(version) -> str:
    return ".".join(map(str, version))


def requirements(part: str = "dev") -> dict[str, str]:
    """Reads the pinned packages that are for this machine's processor, in the file's order."""
    return pinned((ROOT / "requirements" / f"{part}.txt").read_text(), platform.machine())


def pinned(text: str, machine: str) -> dict[str, str]:
    """Reads `name==version` of each line, and the one marker the files use: `; platform_machine == "…"` behind it."""
    pins = re.findall(r'^([\w-]+)==([\w.]+)(?:; *platform_machine == "(\w+)")?', text, re.M)
    return {name.replace("_", "-"): version for name, version, marker in pins if marker in ("", machine)}


@dataclass
class Environment:
    """The Python environment that everything is built for and runs in."""

    python: str
    base: str  # the interpreter .venv is made with
    own: bool  # it is .venv, where the pins hold exactly; another environment keeps the versions it has
    why: str

    def missing(self, part: str = "dev") -> list[str]:
        """Gives the requirements that still have to be installed, torch aside."""
        found = probe(self.python)
        have = found["packages"] if found else {}
        pins = {name: version for name, version in requirements(part).items() if name != "torch"}
        exact = pins if self.own else {"onnx"}
        fits = lambda name: have.get(name) == pins[name] if name in exact else name in have
        return [f"{name}=={version}" for name, version in pins.items() if not fits(name)]

    def complete(self) -> bool:
        found = probe(self.python)
        return bool(found) and not (self.own and found["incomplete"])

    def has_torch(self) -> bool:
        version = torch_version(probe(self.python))
        return version == requirements()["torch"] if self.own else torch_fits(version)


def interpreter(path: str) -> str:
    """Finds the interpreter that a --python argument means: a file, a command's name, or an environment's folder."""
    if Path(path).is_dir():
        path = str(Path(path) / "bin" / "python")
    found = shutil.which(path)
    if not found:
        raise Stop(f"--python {path}: there is no such interpreter.")
    return os.path.abspath(found)  # not resolved: a virtual environment's python is a link out of it


def base_interpreter() -> str:
    """Finds the newest fitting interpreter at hand, this one first."""
    if sys.version_info >= OLDEST_PYTHON:
        return sys.executable
    for minor in range(14, OLDEST_PYTHON[1] - 1, -1):
        found = shutil.which(f"python3.{minor}")
        if found and probe(found):  # a version manager's stand-in may be there and not run
            return found
    raise Stop(
        f"Python {dotted(OLDEST_PYTHON)} or newer is needed, and this is {dotted(sys.version_info[:2])}. "
        "Install one, or name it with --python PATH."
    )


def choose_environment(given: str | None) -> Environment:
    """Chooses a given or active environment whose torch fits, otherwise .venv."""
    own = str(VENV / "bin" / "python")
    active = os.environ.get("VIRTUAL_ENV") or os.environ.get("CONDA_PREFIX")
    candidate = interpreter(given) if given else active and os.path.join(active, "bin", "python")
    found = probe(candidate) if candidate else None
    if given and not found:
        raise Stop(f"--python {given}: that interpreter does not run.")
    if not found or (VENV.exists() and os.path.realpath(found["prefix"]) == os.path.realpath(VENV)):
        return Environment(own, base_interpreter(), True, "the project's own environment")

    version = torch_version(found)
    which = "the one given with --python" if given else "the active environment"
    if torch_fits(version):
        return Environment(candidate, candidate, False, f"{which}; its torch {version} is used as it is")
    wanted = f"{dotted(TORCH_FROM)} to {dotted(TORCH_TO)} would fit"
    why = f"{which} has {f'torch {version}' if version else 'no torch'} ({wanted}), so .venv is used"
    if given and tuple(found["version"]) < OLDEST_PYTHON:
        raise Stop(f"--python {given} is Python {dotted(found['version'])}, but {dotted(OLDEST_PYTHON)} is needed.")
    return Environment(own, candidate if given else base_interpreter(), True, why)
