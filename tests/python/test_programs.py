"""The programs in docs/migrating.md run, each in a process of its own beside a small model with random weights."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from test_optimum import PACKAGES as OF_OPTIMUM
from test_third_party import PACKAGES, installed

PAGE = Path(__file__).resolve().parents[2] / "docs" / "migrating.md"
_, _, PROGRAMS = PAGE.read_text().partition("## Programs")
BLOCKS = dict(re.findall(r"^### (.*?)$.*?^```python\n(.*?)^```", PROGRAMS, re.MULTILINE | re.DOTALL))
REQUIREMENTS = {
    "scikit-learn pipelines": [],
    "optimum": OF_OPTIMUM,
    "Sentence embeddings": OF_OPTIMUM,
    "OCR": PACKAGES["rapidocr"][1],
}

CLASSIFIER = """
import tokenizers, torch, transformers
torch.manual_seed(0)
vocabulary = {word: number for number, word in enumerate("<pad> <unk> a quick lazy fox dog".split())}
words = tokenizers.Tokenizer(tokenizers.models.WordLevel(vocabulary, unk_token="<unk>"))
words.pre_tokenizer = tokenizers.pre_tokenizers.Whitespace()
transformers.PreTrainedTokenizerFast(
    tokenizer_object=words, pad_token="<pad>", unk_token="<unk>", model_max_length=32
).save_pretrained("classifier")
sizes = dict(hidden_size=16, num_hidden_layers=2, num_attention_heads=2, intermediate_size=32)
config = transformers.BertConfig(vocab_size=len(vocabulary), max_position_embeddings=64, **sizes)
transformers.BertForSequenceClassification(config).save_pretrained("classifier")
"""


def test_each_program_is_run():
    assert BLOCKS.keys() == REQUIREMENTS.keys()


@pytest.mark.parametrize("name", REQUIREMENTS)
def test_program(name, tmp_path):
    path = os.pathsep.join([os.environ.get("PYTHONPATH", ""), *map(installed, REQUIREMENTS[name])])
    environment = {**os.environ, "PYTHONPATH": path, "HF_HUB_OFFLINE": "1", "TOKENIZERS_PARALLELISM": "false"}
    for program in ([CLASSIFIER] if REQUIREMENTS[name] is OF_OPTIMUM else []) + [BLOCKS[name]]:
        command = [sys.executable, "-c", program]
        done = subprocess.run(command, cwd=tmp_path, env=environment, capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stderr
