"""Engines of other packages that generate tokens, for `onnx_torch._engines.other_engine`: see `benchmarks.language`.

Each takes the likeliest token each time, and answers as those of `onnx_torch._engines.generation_engines` do.
"""

from __future__ import annotations

import json
import time
from typing import Any

PADDING = 0  # the token that onnxruntime-genai takes for padding, as its builder writes it


class Decoder:
    """A base of engines; a class of it has `read` and `next_token`."""

    def read(self, ids: list[int], count: int) -> int:
        """Forgets what was read, reads a prompt, and returns the token that follows; `count` are wanted in all."""
        raise NotImplementedError

    def next_token(self) -> int:
        """Reads the token that was given last, and returns the one that follows."""
        raise NotImplementedError

    def generate(self, prompt: list[int], count: int) -> tuple[list[float], list[int]]:
        """Generates tokens; returns the seconds that each took, the first of which is the prompt's, and the tokens."""
        seconds, tokens = [], []
        for number in range(count):
            start = time.perf_counter()
            tokens.append(self.next_token() if number else self.read(prompt, count))
            seconds.append(time.perf_counter() - start)
        return seconds, tokens

    def peak_bytes(self) -> int:
        with open("/proc/self/status") as status:
            return 1024 * int(next(line.split()[1] for line in status if line.startswith("VmHWM:")))


class OnnxRuntimeGenai(Decoder):
    def __init__(self, model: str, directory: str, options: dict[str, Any]) -> None:
        import onnxruntime_genai as genai  # type: ignore[import-untyped,unused-ignore]

        config = genai.Config(model)
        settings = {"intra_op_num_threads": options["threads"]}
        config.overlay(json.dumps({"model": {"decoder": {"session_options": settings}}}))
        self._genai, self._model = genai, genai.Model(config)

    def _generator(self, most: int, **search: Any) -> Any:
        parameters = self._genai.GeneratorParams(self._model)
        parameters.set_search_options(max_length=most, do_sample=False, **search)
        return self._genai.Generator(self._model, parameters)

    def read(self, ids: list[int], count: int) -> int:
        self._running = None  # one at a time
        self._running = self._generator(len(ids) + count + 1)
        self._running.append_tokens([ids])
        return self.next_token()

    def next_token(self) -> int:
        self._running.generate_next_token()
        return int(self._running.get_next_tokens()[0])

    def generate_together(self, prompts: list[list[int]], count: int, beams: int) -> float:
        """Returns the seconds in which prompts of any lengths are read, and so many tokens of each are generated."""
        longest = max(map(len, prompts))
        start = time.perf_counter()
        options = {"num_beams": beams, "min_length": longest + count, "past_present_share_buffer": beams == 1}
        running = self._generator(longest + count, batch_size=len(prompts), **options)
        running.append_tokens([[PADDING] * (longest - len(prompt)) + prompt for prompt in prompts])
        while not running.is_done():
            running.generate_next_token()
        return time.perf_counter() - start


class LlamaCpp(Decoder):
    def __init__(self, model: str, directory: str, options: dict[str, Any]) -> None:
        import llama_cpp  # type: ignore[import-not-found,unused-ignore]

        threads = {"n_threads": options["threads"], "n_threads_batch": options["threads"]}
        self._llama = llama_cpp.Llama(model, n_ctx=options["most"], n_batch=512, verbose=False, **threads)

    def _given(self, ids: list[int]) -> int:
        self._llama.eval(ids)
        self._last = int(self._llama.sample(temp=0.0))
        return self._last

    def read(self, ids: list[int], count: int) -> int:
        self._llama.reset()
        return self._given(ids)

    def next_token(self) -> int:
        return self._given([self._last])


class OpenVinoGenai(Decoder):
    """It runs by itself, and tells of each token when it is there."""

    def __init__(self, model: str, directory: str, options: dict[str, Any]) -> None:
        import openvino_genai  # type: ignore[import-not-found,unused-ignore]

        self._genai = openvino_genai
        self._pipeline = openvino_genai.LLMPipeline(model, "CPU", INFERENCE_NUM_THREADS=options["threads"])

    def generate(self, prompt: list[int], count: int) -> tuple[list[float], list[int]]:
        import numpy as np
        import openvino  # type: ignore[import-untyped,unused-ignore]

        times = []

        class Listener(self._genai.StreamerBase):  # type: ignore[name-defined,misc]
            def write(self, token: object) -> Any:
                times.append(time.perf_counter())
                return genai.StreamingStatus.RUNNING

            def end(self) -> None:
                pass

        genai = self._genai
        config = genai.GenerationConfig(max_new_tokens=count, ignore_eos=True, do_sample=False)
        ids = openvino.Tensor(np.array([prompt], np.int64))
        start = time.perf_counter()
        found = self._pipeline.generate(ids, config, Listener())
        seconds = [end - begin for begin, end in zip([start, *times], times, strict=False)]
        return seconds, list(found.tokens[0])


ENGINES = {"onnxruntime-genai": OnnxRuntimeGenai, "llama.cpp": LlamaCpp, "openvino-genai": OpenVinoGenai}
