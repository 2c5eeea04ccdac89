"""README.md and docs/: links lead somewhere, examples run, and the table of options names those that there are."""

import inspect
import re
import subprocess
import sys
from pathlib import Path

import onnx
import pytest

import language_models
import onnx_torch

ROOT = Path(__file__).resolve().parents[2]
PAPERS = sorted([*ROOT.glob("*.md"), *ROOT.glob("docs/*.md"), *ROOT.glob("src/**/*.md")])


def anchors(page: Path) -> set[str]:
    headings = re.findall(r"^#+ (.*)$", page.read_text(), re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-") for heading in headings}


@pytest.mark.parametrize("paper", PAPERS, ids=lambda path: path.relative_to(ROOT).as_posix())
def test_links_lead_somewhere(paper):
    for link in re.findall(r"\]\((?!https?:)([^)\s]+)\)", paper.read_text()):
        path, _, anchor = link.partition("#")
        target = (paper.parent / path).resolve() if path else paper
        assert target.exists(), link
        assert not anchor or anchor in anchors(target), link


@pytest.mark.parametrize("paper", ["README.md", "docs/python_api.md", "docs/adding_an_operator.md"])
def test_examples_run(paper, tmp_path):
    model = onnx.parser.parse_model("""
        <ir_version: 10, opset_import: ["" : 21]>
        example (float[n, 2] x) => (float[n, 2] y) { y = Relu(x) }
    """)
    onnx.save(model, tmp_path / "model.onnx")
    (tmp_path / "folder").mkdir()
    language_models.export(language_models.model_of("GPT2LMHeadModel"), tmp_path / "folder" / "model.onnx")
    language_models.tokenizer().save(str(tmp_path / "folder" / "tokenizer.json"))
    blocks = re.findall(r"^ *```python\n(.*?)^ *```", (ROOT / paper).read_text(), re.MULTILINE | re.DOTALL)
    program = "\n".join(map(inspect.cleandoc, blocks))
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, cwd=tmp_path)
    assert blocks
    assert done.returncode == 0, done.stderr


def table(paper: str, heading: str) -> list[list[str]]:
    """Gives the cells of the first table under a heading, its head left out."""
    section = (ROOT / paper).read_text().split(f"\n## {heading}\n")[1].split("\n## ")[0]
    rows = [line.split("|")[1:-1] for line in section.splitlines() if line.startswith("|")]
    return [[cell.strip() for cell in row] for row in rows[2:]]


def test_the_options_are_those_there_are():
    rows = table("docs/python_api.md", "Options")
    parameters = inspect.signature(onnx_torch.prepare).parameters
    assert {re.match(r"`(\w+)=", row[0])[1] for row in rows} == parameters.keys() - {"model", "kwargs"}
    struct = (ROOT / "include" / "onnx_torch" / "options.h").read_text().split("struct Options {")[1].split("\n};")[0]
    members = set(re.findall(r"^ *[\w:<>, ]+ (\w+) = ", struct, re.MULTILINE))
    assert {row[1].strip("`") for row in rows if row[1]} == members
    commands = (ROOT / "docs" / "command_line.md").read_text()
    assert all(row[2] in commands for row in rows if row[2])


def test_every_public_name_is_told_of():
    page = (ROOT / "docs" / "python_api.md").read_text()
    assert not [name for name in onnx_torch.__all__ if not re.search(rf"\b{name}\b", page)]


def test_the_errors_are_those_there_are():
    named = {row[0].strip("`") for row in table("docs/python_api.md", "Errors")}
    raised = {name for name, value in vars(onnx_torch.errors).items() if inspect.isclass(value)} - {"Any"}
    assert raised <= named


def test_the_translator_in_cpp_is_one_that_is_compiled():
    """docs/cpp_api.md has the translator as a part of a library that test_cpp_package.py builds."""
    (example,) = re.findall("```cpp\n(.*?)```", (ROOT / "docs" / "adding_an_operator.md").read_text(), re.S)
    compiled = (ROOT / "docs" / "cpp_api.md").read_text().splitlines()
    assert [line for line in example.splitlines() if line not in compiled] == []
