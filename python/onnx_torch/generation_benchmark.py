"""The speed at which a language model generates, here and in onnxruntime."""

from __future__ import annotations

import contextlib
import importlib.util
import os
import statistics
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from ._engines import generation_engines
from ._engines.other_engine import OtherEngine
from ._models.trust import trust_of
from ._progress import Progress
from .benchmark import Ratio, in_turns, ratio_of
from .errors import InputError

_SCRIPT = generation_engines.__file__
_ENGINES = ("onnx_torch", "onnxruntime")


@dataclass(frozen=True)
class GenerationSpeed:
    """The times and the memory that one engine took."""

    engine: str
    prompt: int  #: the number of tokens that were read first
    rounds: tuple[tuple[float, ...], ...]  #: the seconds of each token of each round; the first is the prompt's
    tokens: tuple[int, ...]  #: the tokens that were generated
    load_seconds: float
    first_seconds: float  #: the seconds from the model's file to the first token of all
    peak_bytes: int  #: the largest memory of the process

    @property
    def prompt_rates(self) -> list[float]:
        """The tokens a second at which the prompt is read, of each round."""
        return [self.prompt / one[0] for one in self.rounds]

    @property
    def decode_rates(self) -> list[float]:
        """The tokens a second at which tokens are generated, of each round, after the first one."""
        return [(len(one) - 1) / sum(one[1:]) for one in self.rounds]

    @property
    def prompt_rate(self) -> float:
        return statistics.median(self.prompt_rates)

    @property
    def decode_rate(self) -> float:
        return statistics.median(self.decode_rates)

    def as_dict(self) -> dict[str, Any]:
        """Returns the figures, for JSON."""
        return {
            "engine": self.engine,
            "prompt_tokens_per_second": self.prompt_rate,
            "decode_tokens_per_second": self.decode_rate,
            "load_seconds": self.load_seconds,
            "first_token_seconds": self.first_seconds,
            "peak_bytes": self.peak_bytes,
            "tokens": list(self.tokens),
            "rounds": [list(one) for one in self.rounds],
        }


@dataclass(frozen=True)
class GenerationBenchmark:
    """The measurements of `bench_generation`."""

    speeds: tuple[GenerationSpeed, ...]

    def ratios(self) -> list[Ratio]:
        """Divides the first engine's time for a token by that of each of the others, round by round."""
        first = self.speeds[0]
        return [_ratio(first, other) for other in self.speeds[1:]]

    @property
    def same_tokens(self) -> bool:
        """True where all engines have generated the same tokens."""
        return len({speed.tokens for speed in self.speeds}) == 1


def bench_generation(
    model: str | os.PathLike[str],
    engines: Sequence[str] | None = None,
    *,
    prompt: int = 128,
    tokens: int = 64,
    rounds: int = 3,
    device: str = "CPU",
    threads: int = 0,
    seed: int = 0,
    limits: Mapping[str, float] | None = None,
    allow_aten: str = "checked",
    links: str = "follow",
    progress: Progress | None = None,
) -> GenerationBenchmark:
    """Measures how fast a decoder reads a prompt and generates tokens, in some engines, each in a process of its own.

    The engines take turns, a generation each, so that whatever else the machine does falls on all of them. Each takes
    the likeliest token. onnxruntime runs in a plain loop whose caches are bound by IOBinding.

    Args:
        model: a file or a folder, as `LanguageModel` takes it, that has no encoder.
        engines: "onnx_torch", "onnxruntime" or both; by default the first, and the second where it is installed and
            the model is one file.
        prompt: how many tokens are read: random ones, or zeros where the model does not tell how many there are.
        tokens: how many tokens are generated.
        rounds: how often each engine has its turn, after a first turn, of which only the first token is measured.
        device: the device of both engines.
        threads: their threads; 0 is what each uses by itself.
        seed: the seed of the prompt.
        limits: on onnx_torch, as `prepare` takes them; onnxruntime has none. Likewise ``allow_aten`` and ``links``.
        progress: called with the number of turns taken and of all.
    """
    for engine in engines or ():
        if engine not in _ENGINES:
            raise InputError(f'there is no engine "{engine}" that generates; there are {", ".join(_ENGINES)}')
    if prompt < 1 or tokens < 2 or rounds < 1:
        raise InputError("a benchmark takes at least one token of a prompt, two that are generated, and one round")
    options: dict[str, Any] = {
        "device": device,
        "threads": threads,
        "trust": trust_of(limits, allow_aten, links),
    }
    with contextlib.ExitStack() as stack:

        def start(engine: str, file: str) -> OtherEngine:
            return stack.enter_context(OtherEngine(engine, file, options=options, script=_SCRIPT, modules=[engine]))

        ours = start("onnx_torch", os.fspath(model))
        layout = options["layout"] = ours.ask("layout")
        if layout["has_encoder"]:
            raise InputError("the model has an encoder; a decoder alone is measured")
        is_one_file = len(layout["files"]) == 1
        if engines is None:
            has_other = is_one_file and importlib.util.find_spec("onnxruntime") is not None
            engines = ["onnx_torch"] + ["onnxruntime"] * has_other
        if "onnxruntime" in engines and not is_one_file:
            raise InputError(f"onnxruntime is measured on models of one file, and this one has {len(layout['files'])}")
        running = [ours if engine == "onnx_torch" else start(engine, layout["files"][0]) for engine in engines]
        known = layout["vocabulary"] if isinstance(layout["vocabulary"], int) else 1
        ids = np.random.default_rng(seed).integers(0, known, prompt).tolist()
        if ours not in running:
            ours.close()
        found = [process.ask("generate", ids, tokens) for process in running]
        firsts = [process.load_seconds + seconds[0] for process, (seconds, _) in zip(running, found, strict=True)]
        times = in_turns(running, lambda process: process.ask("generate", ids, tokens)[0], rounds, progress)
        return GenerationBenchmark(
            tuple(
                GenerationSpeed(
                    engine,
                    prompt,
                    tuple(times[i]),
                    tuple(found[i][1]),
                    running[i].load_seconds,
                    firsts[i],
                    running[i].ask("peak_bytes"),
                )
                for i, engine in enumerate(engines)
            )
        )


def _ratio(one: GenerationSpeed, other: GenerationSpeed) -> Ratio:
    return ratio_of(one.engine, other.engine, *([1 / rate for rate in of.decode_rates] for of in (one, other)))
