"""The parts of onnxruntime-genai's programs: the loop that generates, and a process of their own."""

from __future__ import annotations

import subprocess
import sys
import textwrap
from typing import Any

import numpy as np

import onnx_torch.compat.onnxruntime_genai as og


def generator(model: Any, tokens: Any, module: Any = og, **options) -> Any:
    params = module.GeneratorParams(model)
    params.set_search_options(**options)
    made = module.Generator(model, params)
    made.append_tokens(np.array(tokens, np.int32))
    return made


def generate(model: Any, tokens: Any, module: Any = og, **options) -> list[list[int]]:
    """Runs the loop that every program has, and gives what comes out at its end."""
    made = generator(model, tokens, module, **options)
    while not made.is_done():
        made.generate_next_token()
    count = options.get("batch_size", 1) * options.get("num_return_sequences", 1)
    return [made.get_sequence(number).tolist() for number in range(count)]


def run(program: str, *arguments: str) -> str:
    command = [sys.executable, "-c", textwrap.dedent(program), *arguments]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return done.stdout.strip()
