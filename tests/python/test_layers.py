"""The folders of src and of the Python package know one another only as the tables in tools/layers.py say."""

from __future__ import annotations

from pathlib import Path

import pytest
from tools import layers


def test_no_arrow_looks_back() -> None:
    assert [str(arrow) for arrow in layers.wrong_arrows()] == []


TABLES = {"src": (layers.MAY_INCLUDE, layers.arrows), "Python": (layers.MAY_IMPORT, layers.import_arrows)}


@pytest.mark.parametrize("name", TABLES)
def test_each_folder_knows_only_those_before_it(name: str) -> None:
    seen: set[str] = set()
    for folder, known in TABLES[name][0].items():
        assert set(known) <= seen, folder
        seen.add(folder)


@pytest.mark.parametrize("name", TABLES)
def test_nothing_is_allowed_that_is_not_there(name: str) -> None:
    table, arrows = TABLES[name]
    there = {(arrow.folder, arrow.known) for arrow in arrows()}
    allowed = {(folder, known) for folder, all_known in table.items() for known in all_known}
    assert allowed - there == set()


def test_no_modules_import_each_other() -> None:
    assert layers.circle() == []


def write(file: Path, text: str) -> None:
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text(text)


def test_an_arrow_that_looks_back_is_found(tmp_path: Path) -> None:
    write(tmp_path / "graph/program.h", "#pragma once\n")
    write(tmp_path / "graph/program.cpp", '#include "graph/program.h"\n')
    write(tmp_path / "kernels/cpu/onednn/linear.cpp", '#include <vector>\n\n#include "graph/program.h"\n')
    assert [str(arrow) for arrow in layers.wrong_arrows(sources=tmp_path)] == [
        "src/kernels/cpu/onednn/linear.cpp includes graph/program.h: kernels/cpu may not know graph"
    ]


def test_a_file_outside_the_table_is_an_error(tmp_path: Path) -> None:
    write(tmp_path / "base/arrange.h", "#pragma once\n")
    write(tmp_path / "elsewhere/a.cpp", '#include "base/arrange.h"\n')
    with pytest.raises(KeyError, match="src/elsewhere/a.cpp is in no folder of the table"):
        layers.wrong_arrows(sources=tmp_path)


def test_an_import_that_looks_back_is_found(tmp_path: Path) -> None:
    package = tmp_path / "onnx_torch"
    write(package / "__init__.py", "from .errors import Error\n")
    write(package / "errors.py", "class Error(Exception): ...\n")
    write(package / "prepared_model.py", "from . import errors\nfrom ._running import values\n")
    write(package / "_running/__init__.py", "")
    write(package / "_running/values.py", "def late():\n    from ..prepared_model import prepare\n")
    assert [str(arrow) for arrow in layers.wrong_arrows(package=package)] == [
        "onnx_torch._running.values imports onnx_torch.prepared_model: _running may not know prepared_model"
    ]
    assert set(layers.circle(package)) == {"onnx_torch.prepared_model", "onnx_torch._running.values"}


def test_what_type_checkers_alone_follow_is_no_circle(tmp_path: Path) -> None:
    package = tmp_path / "onnx_torch"
    write(package / "a.py", "from .b import B\n")
    write(package / "b.py", "from typing import TYPE_CHECKING\n\nif TYPE_CHECKING:\n    from .a import A\n")
    assert layers.circle(package) == []
