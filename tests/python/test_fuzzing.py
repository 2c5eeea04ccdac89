"""The program that makes wrong models finds what ends badly, and keeps it."""

from __future__ import annotations

import importlib
import re
import subprocess
import sys
from pathlib import Path

import onnx
import pytest
from onnx import parser

import onnx_torch

ROOT = Path(__file__).resolve().parents[2]
PROGRAM = Path(onnx_torch.__file__).parents[2] / "tests" / "fuzz" / "onnx_torch_fuzz"


def fuzz(*arguments: object) -> subprocess.CompletedProcess[str]:
    return subprocess.run([PROGRAM, *map(str, arguments)], capture_output=True, text=True, timeout=120, check=False)


@pytest.fixture(scope="module")
def seeds(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("seeds")
    for number, body in enumerate(["y = Relu(x)", "y = Add(x, x)", "y = Concat<axis = 0>(x, x)"]):
        text = f"g (float[3] x) => (float[N] y) <float[3] x = {{1, 2, 3}}> {{ {body} }}"
        model = parser.parse_model(f'<ir_version: 10, opset_import: ["": 20]> {text}')
        onnx.save(model, folder / f"{number}.onnx")
    return folder


@pytest.mark.parametrize("target", ["prepare", "run", "differential", "plan", "file"])
def test_models_are_counted_by_what_becomes_of_them(seeds: Path, target: str, tmp_path: Path):
    once = fuzz(target, "--seeds", seeds, "--runs", 300, "--seed", 7, "--keep", tmp_path)
    counts = re.search(
        r"300 inputs in \d+ s: (\d+) no models, (\d+) refused, (\d+) prepared, (\d+) failed .*, (\d+) ran", once.stdout
    )
    assert counts, once.stdout + once.stderr
    numbers = list(map(int, counts.groups()))
    bad = int(re.search(r"(\d+) bad ends", once.stdout)[1])
    assert sum(numbers) + bad == 300
    assert numbers[1] > 30  # most of what is wrong is refused,
    assert numbers[2 if target == "prepare" else 4] > 30  # and something is right
    again = fuzz(target, "--seeds", seeds, "--runs", 300, "--seed", 7, "--keep", tmp_path)
    assert re.sub(r"in \d+ s", "", again.stdout) == re.sub(r"in \d+ s", "", once.stdout)


def test_bytes_that_are_no_model_are_refused(seeds: Path, tmp_path: Path):
    result = fuzz("run", "--seeds", seeds, "--runs", 300, "--bytes", "--keep", tmp_path)
    assert int(re.search(r"(\d+) no models", result.stdout)[1]) > 30


def test_inputs_are_run_again(seeds: Path):
    result = fuzz("run", seeds / "0.onnx", seeds / "1.onnx")
    assert result.returncode == 0
    assert result.stdout == f"{seeds / '0.onnx'}: fine\n{seeds / '1.onnx'}: fine\n"


def test_a_campaign_has_all_parts(tmp_path: Path):
    command = [sys.executable, ROOT / "tests" / "fuzz" / "campaign.py", "--program", PROGRAM, "--seconds", "16"]
    result = subprocess.run([*command, "--keep", tmp_path], capture_output=True, text=True, timeout=300, check=False)
    told = re.findall(r"^(\w+): (\d+) inputs", result.stdout, re.MULTILINE)
    parts = ["prepare", "run", "differential", "plan", "run", "saved", "file", "image", "text"]
    assert [target for target, _ in told] == parts
    assert all(int(count) > 20 for _, count in told)


def test_a_campaign_compares_passes_most_of_all(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.syspath_prepend(ROOT / "tests" / "fuzz")
    shares = {part.name: part.share for part in importlib.import_module("campaign").PARTS}
    assert max(shares, key=shares.__getitem__) == "differential"
    page = (ROOT / "docs" / "fuzzing.md").read_text()
    told = re.search(r"Of (\d+) shares each part has these: (.*?)\.\n", page, re.DOTALL)
    numbers = {name: int(number) for name, number in re.findall(r"`(\w+)`\s(\d+)", told[2])}
    assert sum(numbers.values()) == int(told[1])
    assert numbers == {name: round(share / sum(shares.values()) * int(told[1]), 6) for name, share in shares.items()}


def test_each_target_is_wherever_targets_are_listed(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.syspath_prepend(ROOT / "tests" / "fuzz")
    parts = importlib.import_module("campaign").PARTS
    lists = {
        "tests/fuzz/CMakeLists.txt": r"foreach\(target ([\w ]+)\)",
        "tests/fuzz/oss-fuzz/projects/onnx_torch/build.sh": r"declare -A seeds=\((.*?)\)",
        "tests/fuzz/targets.h": r"names\..*?\n//\n(.*?)\nconst",
    }
    names = [r"\w+", r"\[(\w+)\]=", r"//   (\w+)"]
    for (file, pattern), name in zip(lists.items(), names, strict=True):
        listed = re.search(pattern, (ROOT / file).read_text(), re.DOTALL)[1]
        assert set(re.findall(name, listed)) == {part.target for part in parts}, file
    page = (ROOT / "docs" / "fuzzing.md").read_text()
    assert all(f"`{part.name}`" in re.search(r"\| `--parts.*", page)[0] for part in parts)


def test_a_campaign_may_begin_with_the_operators_of_onnxruntime(tmp_path: Path):
    pytest.importorskip("onnxruntime")
    command = [sys.executable, ROOT / "tests" / "fuzz" / "campaign.py", "--program", PROGRAM, "--onnxruntime"]
    command += ["--parts", "prepare", "image", "--runs", "300", "--seed", "3", "--keep", tmp_path]
    result = subprocess.run(command, capture_output=True, text=True, timeout=300, check=False)
    told = re.findall(r"^(\w+): \d+ inputs .* (\d+) prepared, .* (\d+) bad ends", result.stdout, re.MULTILINE)
    assert [(target, bad) for target, _, bad in told] == [("prepare", "0")], result.stdout
    assert int(told[0][1]) > 50


@pytest.mark.parametrize(
    ("arguments", "told"),
    [
        ([], "no target of this name"),
        (["walk", "--seeds", "."], "no target of this name: walk"),
        (["run"], "either --seeds or files"),
        (["run", "--seeds"], "--seeds takes a value"),
        (["run", "/nowhere.onnx"], "cannot read /nowhere.onnx"),
    ],
)
def test_wrong_arguments_are_told(arguments: list[str], told: str):
    result = fuzz(*arguments)
    assert result.returncode == 2
    assert told in result.stderr


def test_texts_are_handed_to_the_operator_that_the_first_line_names(tmp_path: Path):
    (tmp_path / "split").write_text("split 1\n,\n\na,b,c\n")
    (tmp_path / "none").write_text("walk 1\n,\n\na,b,c\n")
    (tmp_path / "wrong").write_text("match 1\n(\n\na\n")
    result = fuzz("text", "--seeds", tmp_path, "--runs", 300, "--bytes", "--seed", 5, "--keep", tmp_path / "kept")
    counts = re.search(r"(\d+) no models, 0 refused, 0 prepared, (\d+) failed .*, (\d+) ran; 0 bad", result.stdout)
    assert counts and min(map(int, counts.groups())) > 10, result.stdout


def test_saved_models_have_what_was_laid_out(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.syspath_prepend(ROOT / "tests" / "fuzz")
    seeds = importlib.import_module("seeds")
    models = {name: onnx.load_model_from_string(content) for name, content in seeds.saved_seeds()}
    for name, model in models.items():
        assert [info.name for info in model.graph.input] == ["x"]
        laid = [tensor for tensor in model.graph.initializer if tensor.name.startswith("laid 0 ")]
        assert laid and all(len(tensor.raw_data) >= 288 for tensor in laid), name  # those of the smallest weight
        onnx.save(model, tmp_path / Path(name).name)
    result = fuzz("saved", "--seeds", tmp_path, "--runs", 300, "--seed", 5, "--keep", tmp_path / "kept")
    assert int(re.search(r"(\d+) ran; 0 bad ends", result.stdout)[1]) > 50, result.stdout


@pytest.mark.parametrize("target", ["prepare", "run", "differential", "plan"])
def test_what_was_found_stays_mended(target: str):
    found = sorted((ROOT / "tests" / "fuzz" / "found").glob(f"{target}-*"))
    result = fuzz(target, *found)
    assert result.stdout == "".join(f"{file}: fine\n" for file in found)
