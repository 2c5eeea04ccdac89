"""Hugging Face's optimum, sentence-transformers and setfit on this package, in onnxruntime's place: as torch gives it.

The models are small and have random weights (optimum_models.py); optimum exports them. Packages are installed as those
of test_third_party.py are.
"""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from test_third_party import installed

PACKAGES = [
    "optimum-onnx==0.1.0",
    "optimum==2.1.0",
    "transformers==4.57.6",
    "huggingface-hub==0.36.2",
    "tokenizers==0.22.2",
    "safetensors==0.8.0",
    "tqdm==4.70.1",
    "regex==2026.11.19",
    "sentence-transformers==5.1.2",
    "setfit==1.2.0",
    "datasets==4.4.1",  # which setfit imports, with the following ones
    "evaluate==0.4.6",
    "dill==0.4.0",
    "multiprocess==0.70.18",
    "xxhash==4.1.0",
    "httpx==0.28.1",
    "httpcore==1.0.9",
]
PROGRAM = Path(__file__).with_name("optimum_models.py")


@pytest.mark.parametrize(
    ("parts", "compared"),
    [
        ("classifiers pipelines quantizer", 15 + 11 + 4),
        ("generators", 14),
        ("optimizer export", 15 + 6),
        ("sentences setfit", 3),
    ],
)
def test_gives_what_torch_gives(parts, compared):
    path = os.pathsep.join([os.environ.get("PYTHONPATH", ""), *map(installed, PACKAGES)])
    environment = {**os.environ, "PYTHONPATH": path, "HF_HUB_OFFLINE": "1", "TOKENIZERS_PARALLELISM": "false"}
    command = [sys.executable, str(PROGRAM), *parts.split()]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    assert sum(line.startswith("same: ") for line in done.stdout.splitlines()) == compared
