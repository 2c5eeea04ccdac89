"""A folder of packages and sources, which are fetched once and stay for the next time."""

from __future__ import annotations

import io
import subprocess
import sys
import tarfile
import tempfile
import urllib.error
import urllib.request
from pathlib import Path

from filelock import FileLock

CACHE = Path(__file__).resolve().parents[2] / ".cache" / "third_party"

# The messages of pip that mean that pip itself is missing, that there is no network, and that there is no index.
NOT_THERE = ("No module named pip", "connection broken", "(from versions: none)")


class NotThere(Exception):
    """Neither the folder nor the network has what is asked for."""


def _lock(folder: Path) -> FileLock:
    """Gives a lock, so that only one of the processes that want a folder fetches it."""
    folder.parent.mkdir(parents=True, exist_ok=True)
    return FileLock(folder.with_name(f".{folder.name}.lock"))


def _pip(command: str, requirement: str, *options: str) -> None:
    pip = [sys.executable, "-m", "pip", command, "--no-deps", "--retries", "1", *options, requirement]
    done = subprocess.run(pip, capture_output=True, text=True, check=False)
    for reason in NOT_THERE:
        if reason in done.stderr:
            raise NotThere(f"{requirement} is not in the cache, and pip cannot {command} it: {reason}")
    if done.returncode:
        raise RuntimeError(done.stderr)


def installed(requirement: str, into: Path = CACHE) -> Path:
    """Gives the folder of a package alone, without what it requires."""
    folder = into / requirement
    with _lock(folder):
        if not folder.is_dir():
            partial = into / f"{requirement}.partial"
            _pip("install", requirement, "--only-binary", ":all:", "--upgrade", "--target", str(partial))
            partial.rename(folder)
    return folder


def _archive(source: str, folder: Path) -> bytes:
    """Fetches a source package of PyPI, or the file at an address."""
    if not source.startswith("https://"):
        _pip("download", source, "--no-binary", ":all:", "--dest", str(folder))
        return next(folder.glob("*.tar.gz")).read_bytes()
    try:
        with urllib.request.urlopen(source, timeout=60) as response:
            return bytes(response.read())
    except urllib.error.URLError as error:
        raise NotThere(f"{source} is not in the cache, and cannot be fetched: {error.reason}") from error


def unpacked(source: str, into: Path = CACHE / "sources") -> Path:
    """Gives the folder of a source package."""
    name = source.removeprefix("https://github.com/").removesuffix(".tar.gz").replace("/", "-")
    folder = into / name
    with _lock(folder):
        if not folder.is_dir():
            with tempfile.TemporaryDirectory(dir=into) as scratch:
                with tarfile.open(fileobj=io.BytesIO(_archive(source, Path(scratch)))) as archive:
                    archive.extractall(Path(scratch) / "unpacked", filter="data")
                (whole,) = (Path(scratch) / "unpacked").iterdir()
                whole.rename(folder)
    return folder
