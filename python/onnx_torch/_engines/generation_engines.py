"""Engines that generate tokens one by one, for `other_engine` to run: see `generation_benchmark`.

Each takes the likeliest token each time, in a loop around its runs.
"""

from __future__ import annotations

import time
from typing import Any

import numpy as np


class _Decoder:
    """A base of engines, which answers `generation_benchmark` about one model; a class of it has `begin` and `step`."""

    def begin(self) -> None:
        """Forgets what was read."""
        raise NotImplementedError

    def step(self, ids: list[int]) -> Any:
        """Reads more tokens, and returns the logits of the one that follows, ``[vocabulary]``."""
        raise NotImplementedError

    def generate(self, prompt: list[int], count: int) -> tuple[list[float], list[int]]:
        """Generates tokens; returns the seconds that each took, the first of which is the prompt's, and the tokens."""
        seconds, tokens = [], []
        self.begin()
        ids = prompt
        for _ in range(count):
            start = time.perf_counter()
            ids = [int(self.step(ids).argmax())]
            seconds.append(time.perf_counter() - start)
            tokens += ids
        return seconds, tokens

    def peak_bytes(self) -> int:
        """Returns the most memory that the process had. (What `getrusage` tells begins with the parent's.)"""
        with open("/proc/self/status") as status:
            return next(int(line.split()[1]) << 10 for line in status if line.startswith("VmHWM:"))


class _OnnxTorch(_Decoder):
    def __init__(self, model: str, directory: str, options: dict[str, Any]) -> None:
        import onnx_torch

        self._lm = onnx_torch.LanguageModel(model, options["device"], threads=options["threads"], **options["trust"])

    def layout(self) -> dict[str, Any]:
        """Returns what another engine has to know of the model's inputs and outputs."""
        found, reps = self._lm.layout, [rep for rep in self._lm._reps[:2] if rep is not None]
        shapes = {name: shape or [] for name, _, shape, _ in reps[-1].inputs}
        logits = found.outputs["logits"]
        names = [name for name, *_ in reps[-1].outputs]
        of_logits = reps[-1]._prepared.output_shapes[names.index(logits)]
        return {
            "files": [str(rep._path) for rep in reps],
            "has_encoder": self._lm._native.has_encoder,
            "inputs": found.inputs,
            "logits": logits,
            "caches": [(one.past, one.present) for one in found.caches if one.past],
            "pasts": {one.past: self._first_past(shapes[one.past], one) for one in found.caches if one.past},
            "vocabulary": of_logits[-1] if of_logits else None,
        }

    def _first_past(self, shape: list[Any], cache: Any) -> list[Any]:
        """Returns the sizes of a cache of one sequence that has read nothing."""
        return [
            1 if axis == cache.batch_axis else 0 if axis == cache.sequence_axis else size
            for axis, size in enumerate(shape)
        ]

    def begin(self) -> None:
        self._state = self._lm.start()

    def step(self, ids: list[int]) -> Any:
        return self._state.append(np.array([ids]))[0]

    def generate_together(self, prompts: list[list[int]], count: int, beams: int) -> float:
        """Returns the seconds in which prompts of any lengths are read, and so many tokens of each are generated."""
        start = time.perf_counter()
        self._lm.generate(prompts, max_new_tokens=count, num_beams=beams, eos_token_id=[])
        return time.perf_counter() - start


_TYPES = {"int64": np.int64, "int32": np.int32, "float": np.float32, "float16": np.float16, "bool": np.bool_}


class _OnnxRuntime(_Decoder):
    """A decoder whose caches stay in onnxruntime's memory: outputs of a step are bound as inputs of the next one."""

    def __init__(self, model: str, directory: str, options: dict[str, Any]) -> None:
        import onnxruntime  # type: ignore[import-untyped,unused-ignore]

        settings = onnxruntime.SessionOptions()
        settings.log_severity_level = 3
        settings.intra_op_num_threads = options["threads"]
        kind, _, number = options["device"].lower().partition(":")
        self._device, self._number = ("cpu", 0) if kind == "cpu" else ("cuda", int(number or 0))
        provider = "CPUExecutionProvider" if kind == "cpu" else "CUDAExecutionProvider"
        chosen = (provider, {} if kind == "cpu" else {"device_id": str(self._number)})
        self._session = onnxruntime.InferenceSession(model, settings, providers=[chosen])
        if self._session.get_providers()[0] != provider:
            raise RuntimeError(f"it does not run on {options['device']} here")
        self._value = onnxruntime.OrtValue.ortvalue_from_numpy
        self._layout = options["layout"]
        self._inputs = {given.name: given for given in self._session.get_inputs()}

    def begin(self) -> None:
        self._length = 0
        self._caches = {
            past: self._value(np.zeros(sizes, self._type(past)), self._device, self._number)
            for past, sizes in self._layout["pasts"].items()
        }

    def step(self, ids: list[int]) -> Any:
        past, self._length = self._length, self._length + len(ids)
        values = {
            "input_ids": [ids],
            "attention_mask": [[1] * self._length],
            "position_ids": [list(range(past, self._length))],
            "use_cache_branch": past > 0,
            "total_sequence_length": self._length,
            "past_sequence_length": past,
            "num_logits_to_keep": 1,
            "seqlens_k": self._length - 1,
        }
        binding = self._session.io_binding()
        for role, name in self._layout["inputs"].items():
            binding.bind_cpu_input(name, self._array(name, values[role]))
        for name, value in self._caches.items():
            binding.bind_ortvalue_input(name, value)
        logits = self._layout["logits"]
        binding.bind_output(logits, "cpu")
        presents = [present for _, present in self._layout["caches"]]
        for present in presents:
            binding.bind_output(present, self._device, self._number)
        self._session.run_with_iobinding(binding)
        found = dict(zip([logits, *presents], binding.get_outputs(), strict=True))
        self._caches = {past: found[present] for past, present in self._layout["caches"]}
        return found[logits].numpy()[0, -1]

    def _type(self, name: str) -> Any:
        return _TYPES[self._inputs[name].type.removeprefix("tensor(").removesuffix(")")]

    def _array(self, name: str, value: Any) -> Any:
        """Makes an array with as many axes as the model's input has."""
        array = np.asarray(value, self._type(name))
        rank = len(self._inputs[name].shape)
        return array.reshape((1,) * (rank - array.ndim) + array.shape[max(array.ndim - rank, 0) :])


ENGINES = {"onnx_torch": _OnnxTorch, "onnxruntime": _OnnxRuntime}
