"""Text that a decoder generates, token by token, with the names that users of transformers know.

>>> import onnx_torch
>>> lm = onnx_torch.LanguageModel("model.onnx")  # doctest: +SKIP
>>> for token in lm.generate(ids, max_new_tokens=100, stream=True): ...  # doctest: +SKIP
"""

from __future__ import annotations

import functools
import json
import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

import numpy as np

from . import _C
from .errors import InputError, InvalidModelError, StoppedError
from .text_of_tokens import TextStream, decoded, encoded, load_tokenizer

if TYPE_CHECKING:
    from onnx.backend.base import Device

    from ._models.given import Model
    from .prepared_model import PreparedModel

NEW_TOKENS = 20  # the default where nothing says how many

__all__ = ["GenerationStream", "LanguageModel", "Layout", "LayoutCache", "State"]


class Flag(Protocol):
    """An object that tells whether to stop, such as `threading.Event`."""

    def is_set(self) -> bool: ...


@dataclass(frozen=True)
class LayoutCache:
    """An input that a decoder takes of the tokens before, and the output that the next step takes there."""

    name: str  #: the part that both names have in common
    past: str  #: the input
    present: str  #: the output; empty where the first of two models gives it
    batch_axis: int
    sequence_axis: int | None  #: the axis that grows with the tokens; None: its size is fixed
    of_encoder: bool  #: it is of the encoder, and computed once


@dataclass(frozen=True)
class Layout:
    """The inputs and outputs that were found in a model; ``print`` shows them."""

    inputs: dict[str, str]  #: the model's names of "input_ids", "attention_mask", "position_ids", …
    outputs: dict[str, str]  #: the model's name of "logits"
    caches: tuple[LayoutCache, ...]
    text: str

    def __str__(self) -> str:
        return self.text


class State:
    """Sequences that a model has read, with what it remembers of them.

    A fork shares that memory, and goes on by itself. One thread at a time may use a state.
    """

    def __init__(self, native: _C.GenerationState) -> None:
        self._native = native

    def __len__(self) -> int:
        return self._native.length

    def __repr__(self) -> str:
        return f"<State of {self.batch_size} × {len(self)} tokens>"

    @property
    def batch_size(self) -> int:
        return self._native.batch_size

    @property
    def tokens(self) -> list[list[int]]:
        """The tokens of each sequence, without padding."""
        return self._native.tokens

    @property
    def max_length(self) -> int | None:
        """The number of tokens that it reads at most, for which its caches have room; None: any number."""
        return self._native.max_length

    def append(self, ids: Any, attention_mask: Any = None, *, all: bool = False) -> Any:
        """Reads more tokens, ``[batch, count]``, and gives the logits of what may follow, ``[batch, vocabulary]``.

        With ``all``, it gives those of what may follow each of the tokens, ``[batch, count, vocabulary]``. A mask is 0
        at padding. Torch tensors come out where ``ids`` is one.
        """
        return self._native.append(ids, attention_mask, all)

    def rewind(self, count: int) -> None:
        """Forgets so many tokens at the end of each sequence."""
        self._native.rewind(count)

    def fork(self) -> State:
        """Makes another state, which goes on from here."""
        return State(self._native.fork())

    def reorder(self, rows: Sequence[int]) -> None:
        """Makes these sequences the batch, in this order; one may come several times."""
        self._native.reorder(list(rows))

    @staticmethod
    def join(parts: Sequence[tuple[State, Sequence[int]]]) -> State:
        """Makes a state of sequences of other states, by their indices; those states stay as they are.

        They may have read different numbers of tokens where the model takes that (`LanguageModel.takes_lengths`).
        """
        return State(_C.GenerationState.join([(state._native, list(rows)) for state, rows in parts]))


class GenerationStream(Iterator[Any]):
    """The tokens of a generation, as they come. `cancel` ends it, from any thread."""

    def __init__(self, items: Iterator[Any]) -> None:
        self._items = items
        self._cancelled = False

    def __next__(self) -> Any:
        if self._cancelled:
            raise StoppedError("the generation was cancelled")
        return next(self._items)

    def cancel(self) -> None:
        """Ends the generation: asking for the next token raises `StoppedError`."""
        self._cancelled = True


@dataclass(frozen=True)
class _Batch:
    """The sequences that were given, without padding, and the form in which results are to come out."""

    rows: list[list[int]]
    columns: Any  # the array, where one was given
    as_torch: bool
    single: bool  # one sequence, not a batch of them

    def like(self, rows: list[list[int]], new: list[list[int]], padding: int) -> Any:
        """Returns sequences in the form of those given; each of these has become the same number of them."""
        if self.columns is None:
            return rows[0] if self.single and len(rows) == 1 else rows
        longest = max(map(len, new))
        filled = np.asarray([[*tokens, *[padding] * (longest - len(tokens))] for tokens in new], np.int64)
        prompts = np.repeat(self.columns, len(new) // len(self.columns), axis=0)
        array = np.concatenate([prompts, filled.reshape(len(new), longest)], axis=1)
        array = array[0] if self.single and len(rows) == 1 else array
        if not self.as_torch:
            return array
        import torch

        return torch.from_numpy(array)


def batch_of(ids: Any, mask: Any) -> _Batch:
    as_torch = _C.is_tensor(ids)
    if as_torch or isinstance(ids, np.ndarray):
        array = np.asarray(ids.cpu() if as_torch else ids)
        if array.dtype.kind not in "iu" or array.ndim not in (1, 2):
            raise InputError(f"tokens must be integers, [length] or [batch, length], not {array.dtype}{array.shape}")
        columns = np.atleast_2d(array).astype(np.int64)
        return _Batch(_without_padding(columns.tolist(), mask), columns, as_torch, array.ndim == 1)
    rows = [_tokens(row) for row in ids] if _is_nested(ids) else [_tokens(ids)]
    return _Batch(_without_padding(rows, mask), None, False, not _is_nested(ids))


def _is_nested(ids: Any) -> bool:
    return len(ids) > 0 and not isinstance(ids[0], (int, np.integer))


def _tokens(row: Any) -> list[int]:
    return [int(token) for token in row]


def _without_padding(rows: list[list[int]], mask: Any) -> list[list[int]]:
    if mask is None:
        return rows
    kept = np.atleast_2d(np.asarray(mask.cpu() if _C.is_tensor(mask) else mask)).astype(bool).tolist()
    if list(map(len, kept)) != list(map(len, rows)):
        raise InputError("attention_mask must have the sizes of the tokens")
    return [[token for token, keep in zip(*pair, strict=True) if keep] for pair in zip(rows, kept, strict=True)]


class LanguageModel:
    """A decoder that generates text; an encoder may stand before it.

    Args:
        model: a file, or a folder that holds one under a name that exporters give it (docs/language_models.md); bytes,
            a ModelProto, or a model that is prepared already.
        device: the device, as `prepare` takes it.
        tokenizer: an object of the package tokenizers or transformers, or the path of a ``tokenizer.json``; by
            default the one beside the model, where there is one.
        inputs: the model's names of inputs that cannot be told from names and shapes, such as ``{"input_ids": "x"}``,
            by the names that `layout` has; of caches, ``{"past.0": "k"}``, with ``outputs={"present.0": "k_out"}``.
        outputs: the same for outputs, such as ``{"logits": "y"}``.
        max_length: how many tokens a sequence has at most, for which each cache has room from the first step on. By
            default the room is doubled where more come.
        options: the options of `prepare`.

    The settings of ``generation_config.json`` beside the model are the defaults of `generate`. Any number of threads
    may use one at the same time.
    """

    def __init__(
        self,
        model: Model | PreparedModel,
        device: str | Device = "CPU",
        *,
        tokenizer: Any = None,
        inputs: Mapping[str, str] | None = None,
        outputs: Mapping[str, str] | None = None,
        max_length: int | None = None,
        **options: Any,
    ) -> None:
        from .prepared_model import PreparedModel, prepare

        self.folder: Path | None = None
        logits = _C.logits_names(dict(outputs or {}))
        if isinstance(model, PreparedModel):
            models: list[PreparedModel | None] = [model, None, None]
        elif isinstance(model, (str, os.PathLike)):
            files = _C.find_language_model(os.fspath(model))
            self.folder = Path(model) if os.path.isdir(model) else Path(files[0]).parent
            sizes = sizes_of_genai(_read(self.folder / "genai_config.json"), files[0])
            if sizes:
                options["shapes"] = sizes | dict(options.get("shapes") or {})
            decoder, with_past, encoder = files
            models = [
                prepare(decoder, device, last_only=logits, **options),
                None if with_past is None else prepare(with_past, device, last_only=logits, **options),
                None if encoder is None else prepare(encoder, device, **options),
            ]
        else:
            models = [prepare(model, device, last_only=logits, **options), None, None]
        prepared = [None if rep is None else rep._prepared for rep in models]
        if max_length is not None and max_length < 1:
            raise InputError(f"max_length must be 1 or more, not {max_length}")
        self.max_length = max_length
        self._reps = models
        self._native = _C.LanguageModel(prepared[0], prepared[1], prepared[2], dict(inputs or {}), dict(outputs or {}))
        self._tokenizer = tokenizer
        self.generation_config = {} if self.folder is None else _generation_config(self.folder)

    def __repr__(self) -> str:
        return f"<LanguageModel of {self._reps[0] and (self._reps[0]._path or 'a model')}\n{self.layout}>"

    @functools.cached_property
    def layout(self) -> Layout:
        """The inputs and outputs that were found in the model."""
        native = self._native
        caches = (
            LayoutCache(name, past, present, batch, None if sequence < 0 else sequence, of_encoder)
            for name, past, present, batch, sequence, of_encoder in native.caches
        )
        return Layout(native.inputs, native.outputs, tuple(caches), native.layout)

    @functools.cached_property
    def tokenizer(self) -> Any:
        """The tokenizer that was given, or the one beside the model."""
        return load_tokenizer(self._tokenizer, self.folder)

    def encode(self, text: str) -> list[int]:
        """Returns the tokens of a text."""
        return encoded(self.tokenizer, text)

    def decode(self, tokens: Sequence[int]) -> str:
        """Returns the text of tokens, without special ones."""
        return decoded(self.tokenizer, list(tokens))

    def text_stream(self) -> TextStream:
        """Makes an object that turns tokens into text as they come one by one."""
        return TextStream(self.tokenizer)

    @property
    def takes_lengths(self) -> bool:
        """True where sequences that have read different numbers of tokens may go on in one batch."""
        return self._native.takes_lengths

    def start(
        self, inputs: Any = None, attention_mask: Any = None, *, max_length: int | None = None, **encoder_inputs: Any
    ) -> State:
        """Makes a state that has read tokens, to be appended to, forked, or given to `generate` as ``prefix``.

        Without ``inputs``, a decoder's state has read nothing yet. It never reads more than ``max_length`` tokens, by
        default the model's.
        """
        most = self.max_length if max_length is None else max_length
        if inputs is None and not self._native.has_encoder:
            return State(self._native.start([], [], {}, most))
        given = encoded(self.tokenizer, inputs) if given_as_text(inputs) else inputs
        prompt = self._prompt(given, attention_mask, encoder_inputs)
        return State(self._native.start(prompt.batch.rows, prompt.encoder_ids, prompt.encoder_inputs, most))

    def generate(
        self,
        inputs: Any = None,
        attention_mask: Any = None,
        *,
        max_new_tokens: int | None = None,
        max_length: int | None = None,
        min_new_tokens: int | None = None,
        min_length: int | None = None,
        eos_token_id: int | Sequence[int] | None = None,
        pad_token_id: int | None = None,
        do_sample: bool | None = None,
        temperature: float | None = None,
        top_k: int | None = None,
        top_p: float | None = None,
        min_p: float | None = None,
        typical_p: float | None = None,
        epsilon_cutoff: float | None = None,
        eta_cutoff: float | None = None,
        seed: int | None = None,
        repetition_penalty: float | None = None,
        no_repeat_ngram_size: int | None = None,
        suppress_tokens: Sequence[int] | None = None,
        begin_suppress_tokens: Sequence[int] | None = None,
        forced_bos_token_id: int | None = None,
        forced_eos_token_id: int | Sequence[int] | None = None,
        num_beams: int | None = None,
        length_penalty: float | None = None,
        early_stopping: bool | str | None = None,
        num_return_sequences: int | None = None,
        assistant_model: LanguageModel | None = None,
        num_assistant_tokens: int | None = None,
        logits_processor: Callable[[Any, Any], Any] | Sequence[Callable[[Any, Any], Any]] = (),
        stop_strings: str | Sequence[str] | None = None,
        stream: bool = False,
        cancel: Flag | None = None,
        prefix: State | None = None,
        decoder_input_ids: Any = None,
        decoder_start_token_id: int | None = None,
        **encoder_inputs: Any,
    ) -> Any:
        """Generates what may follow.

        Options that are not given are those of ``generation_config.json``, or else the defaults of transformers.

        Args:
            max_length: how many tokens a sequence has at most, with those given. Caches have room for them from the
                first step on.
            inputs: tokens, of one sequence or of several, as lists (of different lengths), an array or a torch tensor;
                or text, where a tokenizer is there. Of a model with an encoder, they are the encoder's.
            attention_mask: 0 where an array or a tensor of tokens has padding.
            seed: the seed of the random numbers; by default they are torch's default generator's.
            logits_processor: functions ``(input_ids, scores) → scores``, on arrays of ``[rows, …]``; on torch tensors
                where ``inputs`` is one, so that those of transformers fit.
            assistant_model: a smaller model of the same tokens, which proposes ``num_assistant_tokens`` (5) of them
                that are then read in one step.
            stop_strings: a sequence ends with one of these, where a tokenizer is there.
            stream: return an iterator of the tokens of one sequence, or of lists that have one for each, None where a
                sequence has ended; of texts, where ``inputs`` is one. Its method ``cancel`` ends it.
            cancel: a `threading.Event`: once it is set, a `StoppedError` ends the generation within one step.
            prefix: a `State` that has read what all sequences begin with; it stays as it is.
            decoder_input_ids: the tokens that the decoder begins with, where there is an encoder.
            encoder_inputs: the encoder's inputs that are no tokens, by their names, such as ``input_features``.

        Returns:
            The sequences with what was given at their beginning, in the form of ``inputs``; where that is text, the
            text that was generated. There are ``num_return_sequences`` of each, one after another.
        """
        is_text = given_as_text(inputs)
        given = encoded(self.tokenizer, inputs) if is_text else inputs
        first = self._setting("decoder_start_token_id", decoder_start_token_id)
        prompt = self._prompt(given, attention_mask, encoder_inputs, decoder_input_ids, first)
        batch = prompt.batch
        chosen = self._options(
            max(map(len, batch.rows)) + (0 if prefix is None else len(prefix)),
            max_length=max_length,
            min_length=min_length,
            max_new_tokens=max_new_tokens,
            min_new_tokens=min_new_tokens,
            eos_token_id=eos_token_id,
            pad_token_id=pad_token_id,
            do_sample=do_sample,
            temperature=temperature,
            top_k=top_k,
            top_p=top_p,
            min_p=min_p,
            typical_p=typical_p,
            epsilon_cutoff=epsilon_cutoff,
            eta_cutoff=eta_cutoff,
            seed=seed,
            repetition_penalty=repetition_penalty,
            no_repeat_ngram_size=no_repeat_ngram_size,
            suppress_tokens=suppress_tokens,
            begin_suppress_tokens=begin_suppress_tokens,
            forced_bos_token_id=forced_bos_token_id,
            forced_eos_token_id=forced_eos_token_id,
            num_beams=num_beams,
            length_penalty=length_penalty,
            early_stopping=early_stopping,
            num_return_sequences=num_return_sequences,
            assistant_model=None if assistant_model is None else assistant_model._native,
            num_assistant_tokens=num_assistant_tokens,
        )
        if stream and chosen.get("num_beams", 1) > 1:
            raise InputError("beams cannot be streamed: which of them is the best is known at the end")
        if stop_strings is not None:
            chosen["stop"] = self._stop(stop_strings, len(batch.rows[0]))
        generation = self._native.generation(
            batch.rows,
            prompt.encoder_ids,
            prompt.encoder_inputs,
            chosen,
            list(logits_processor) if isinstance(logits_processor, Sequence) else [logits_processor],
            batch.as_torch,
            None if prefix is None else prefix._native,
        )
        steps = _steps(generation, cancel)
        single = batch.single and chosen.get("num_return_sequences", 1) == 1
        if stream:
            return GenerationStream(self._streamed(steps, single, is_text))
        for _ in steps:
            pass
        rows = generation.sequences
        before = [] if prefix is None else [len(row) for row in prefix.tokens]
        known = (before or [0]) * len(batch.rows)
        each = len(rows) // len(batch.rows)
        rows = [row[known[i // each] :] for i, row in enumerate(rows)]
        new = [row[len(batch.rows[i // each]) :] for i, row in enumerate(rows)]
        if is_text:
            texts = [decoded(self.tokenizer, tokens) for tokens in new]
            return texts[0] if single else texts
        ends = chosen.get("eos_token_id") or [0]
        return batch.like(rows, new, chosen.get("pad_token_id", ends[0]))

    def _streamed(self, steps: Iterator[list[list[int]]], single: bool, is_text: bool) -> Iterator[Any]:
        texts: list[TextStream] = []
        for step in steps:
            if is_text:
                texts = texts or [self.text_stream() for _ in step]
                pieces = [text.put(tokens) for text, tokens in zip(texts, step, strict=True)]
                if single and pieces[0]:
                    yield pieces[0]
                elif not single:
                    yield pieces
            elif single:
                yield from step[0]
            else:
                yield [tokens[0] if tokens else None for tokens in step]
        rests = [text.end() for text in texts]
        if any(rests):
            yield rests[0] if single else rests

    def _prompt(
        self, inputs: Any, mask: Any, encoder_inputs: Mapping[str, Any], decoder_ids: Any = None, first: Any = None
    ) -> _Prompt:
        if not self._native.has_encoder:
            if encoder_inputs:
                raise TypeError(f"there is no option {', '.join(map(repr, encoder_inputs))}")
            if inputs is None:
                raise InputError("there is no sequence to begin with")
            return _Prompt(batch_of(inputs, mask), [], {})
        if inputs is not None:
            encoder_ids, count = batch_of(inputs, mask).rows, None
        elif encoder_inputs:
            encoder_ids, count = [], len(next(iter(encoder_inputs.values())))
        else:
            raise InputError("the encoder is given nothing: neither tokens nor one of its inputs by name")
        if decoder_ids is None and first is None:
            raise InputError("what the decoder begins with is not known: give decoder_start_token_id")
        form = batch_of(inputs, mask) if inputs is not None else None
        as_torch = form.as_torch if form else any(map(_C.is_tensor, encoder_inputs.values()))
        if decoder_ids is not None:
            batch = batch_of(decoder_ids, None)
        else:
            rows = [[int(first)]] * (len(encoder_ids) if count is None else count)
            columns = np.asarray(rows, np.int64) if form is None or form.columns is not None else None
            batch = _Batch(rows, columns, as_torch, bool(form and form.single))
        return _Prompt(batch, encoder_ids, dict(encoder_inputs))

    def _setting(self, name: str, given: Any) -> Any:
        return self.generation_config.get(name) if given is None else given

    def _options(self, length: int, **given: Any) -> dict[str, Any]:
        """Makes the options for `_C`: those given, else those of the configuration; lengths count new tokens only."""
        chosen = {name: value for name in given if (value := self._setting(name, given[name])) is not None}
        for whole, new, least in (("max_length", "max_new_tokens", 1), ("min_length", "min_new_tokens", 0)):
            value = chosen.pop(whole, None)
            if value is not None and (new not in chosen or (given[whole] is not None and given[new] is None)):
                if given[whole] is not None and value - length < least and least:
                    raise InputError(f"max_length is {value}, and the sequence has {length} tokens already")
                chosen[new] = max(value - length, least)
        most = self.max_length
        if given["max_length"] is not None and given["max_new_tokens"] is None:
            most = given["max_length"] if most is None else min(most, given["max_length"])
        if most is not None:
            chosen["max_length"] = most
            if given["max_length"] is None and given["max_new_tokens"] is None:
                chosen["max_new_tokens"] = max(min(chosen.get("max_new_tokens", NEW_TOKENS), most - length), 1)
        for name in ("eos_token_id", "forced_eos_token_id"):
            if name in chosen:
                value = chosen[name]
                chosen[name] = [int(value)] if isinstance(value, (int, np.integer)) else [int(v) for v in value]
        return chosen

    def _stop(self, strings: str | Sequence[str], length: int) -> Callable[[list[int]], bool]:
        wanted = [strings] if isinstance(strings, str) else list(strings)
        tokenizer = self.tokenizer

        def ends(tokens: list[int]) -> bool:
            text = decoded(tokenizer, tokens[length:])
            return any(string in text for string in wanted)

        return ends


@dataclass(frozen=True)
class _Prompt:
    batch: _Batch
    encoder_ids: list[list[int]]
    encoder_inputs: dict[str, Any]


def _steps(generation: _C.Generation, cancel: Flag | None) -> Iterator[list[list[int]]]:
    while not generation.done:
        if cancel is not None and cancel.is_set():
            raise StoppedError("the generation was cancelled")
        yield generation.step()


def given_as_text(inputs: Any) -> bool:
    return isinstance(inputs, str) or (
        isinstance(inputs, (list, tuple)) and bool(inputs) and isinstance(inputs[0], str)
    )


def _generation_config(folder: Path) -> dict[str, Any]:
    """Reads the settings for generating beside a model, in files of transformers and of onnxruntime-genai."""
    for place in (folder, folder.parent) if folder.name == "onnx" else (folder,):
        settings = _tokens_of(_read(place / "config.json"))
        settings |= _tokens_of(_read(place / "genai_config.json").get("model", {}))
        settings |= _read(place / "generation_config.json")
        if settings:
            return settings
    return {}


def sizes_of_genai(genai_config: dict[str, Any], decoder: str | bytes) -> dict[str, int]:
    """Finds sizes of caches that onnxruntime-genai's builder leaves open in a decoder, and writes beside it.

    They are the size of a head, as quantized caches have another one, and that of caches which drop what has left the
    window.
    """
    settings = genai_config.get("model", {}).get("decoder", {})
    window = settings.get("sliding_window") or {}
    known = {"kv_cache_dim": settings.get("head_size"), "past_sliding_length": window.get("window_size")}
    if known["past_sliding_length"] is not None:
        known["past_sliding_length"] += window.get("cache_slack", 0)
    if not any(known.values()):
        return {}
    from ._models.files import read_model

    symbols = {dim.dim_param for given in read_model(decoder).graph.input for dim in given.type.tensor_type.shape.dim}
    return {symbol: int(size) for symbol, size in known.items() if size and symbol in symbols}


def _tokens_of(settings: dict[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in settings.items() if name.endswith("token_id")}


def _read(file: Path) -> dict[str, Any]:
    if not file.is_file():
        return {}
    try:
        settings = json.loads(file.read_text(encoding="utf-8"))
    except ValueError as error:
        raise InvalidModelError(f"{file} is no JSON: {error}") from error
    if not isinstance(settings, dict):
        raise InvalidModelError(f"{file} has no names of settings")
    return settings
