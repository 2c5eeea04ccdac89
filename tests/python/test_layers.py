"""The folders of src include one another only as the table in tools/layers.py says."""

from __future__ import annotations

from pathlib import Path

import pytest
from tools import layers


def test_no_arrow_looks_back() -> None:
    assert [str(arrow) for arrow in layers.wrong_arrows()] == []


def test_each_folder_knows_only_those_before_it() -> None:
    seen: set[str] = set()
    for folder, known in layers.MAY_INCLUDE.items():
        assert set(known) <= seen, folder
        seen.add(folder)


def test_nothing_is_allowed_that_is_not_there() -> None:
    there = {(arrow.folder, arrow.included) for arrow in layers.arrows()}
    allowed = {(folder, known) for folder, all_known in layers.MAY_INCLUDE.items() for known in all_known}
    assert allowed - there == set()


def write(file: Path, text: str) -> None:
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text(text)


def test_an_arrow_that_looks_back_is_found(tmp_path: Path) -> None:
    write(tmp_path / "graph/program.h", "#pragma once\n")
    write(tmp_path / "graph/program.cpp", '#include "graph/program.h"\n')
    write(tmp_path / "kernels/cpu/onednn/linear.cpp", '#include <vector>\n\n#include "graph/program.h"\n')
    assert [str(arrow) for arrow in layers.wrong_arrows(tmp_path)] == [
        "src/kernels/cpu/onednn/linear.cpp includes graph/program.h: kernels/cpu may not know graph"
    ]


def test_a_file_outside_the_table_is_an_error(tmp_path: Path) -> None:
    write(tmp_path / "base/arrange.h", "#pragma once\n")
    write(tmp_path / "elsewhere/a.cpp", '#include "base/arrange.h"\n')
    with pytest.raises(KeyError, match="src/elsewhere/a.cpp is in no folder of the table"):
        layers.wrong_arrows(tmp_path)
