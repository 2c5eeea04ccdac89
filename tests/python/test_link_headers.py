"""A file compiled in one Python environment is known in another with the same headers (cmake/LinkHeaders.cmake)."""

import os
import shutil
import subprocess
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
PROJECT = f"""
cmake_minimum_required(VERSION 3.25)
project(tiny LANGUAGES CXX)
list(APPEND CMAKE_MODULE_PATH "{ROOT}/cmake")
include(CompilerOptions)
include(LinkHeaders)
add_library(Some::library INTERFACE IMPORTED)
target_include_directories(Some::library SYSTEM INTERFACE "${{HEADERS}}")
link_headers(Some::library Some::absent)
add_library(tiny OBJECT tiny.cpp)
target_link_libraries(tiny PRIVATE Some::library onnx_torch_options)
"""

pytestmark = pytest.mark.skipif(not shutil.which("ccache"), reason="ccache is not there")


def results(folder, python, header, cache):
    """Gives what ccache has counted after a build in an environment of its own."""
    headers = folder / "environment" / "lib" / python / "include"
    source = folder / "source"
    headers.mkdir(parents=True)
    source.mkdir()
    (headers / "some.h").write_text(header)
    (source / "CMakeLists.txt").write_text(PROJECT)
    (source / "tiny.cpp").write_text("#include <some.h>\nint tiny() { return some; }\n")
    variables = {**os.environ, "CCACHE_DIR": str(cache)}
    for command in (
        ["-G", "Ninja", "-S", source, "-B", source / "build", f"-DHEADERS={headers}"],
        ["--build", source / "build"],
    ):
        subprocess.run(["cmake", *command], check=True, capture_output=True, env=variables)
    told = subprocess.run(["ccache", "--print-stats"], check=True, capture_output=True, text=True, env=variables)
    counts = dict(line.split("\t") for line in told.stdout.splitlines())
    return int(counts["direct_cache_hit"]), int(counts["cache_miss"])


def test_equal_headers_of_another_environment_are_known(tmp_path):
    cache = tmp_path / "cache"
    assert results(tmp_path / "first", "python3.11", "inline int some = 1;\n", cache) == (0, 1)
    assert results(tmp_path / "other", "python3.14t", "inline int some = 1;\n", cache) == (1, 1)
    assert results(tmp_path / "newer", "python3.14t", "inline int some = 2;\n", cache) == (1, 2)
