"""Several generations of one model at a time; each run of the model gives each of them a token.

>>> import onnx_torch
>>> engine = onnx_torch.Engine(onnx_torch.LanguageModel("model.onnx"))  # doctest: +SKIP
>>> request = engine.submit("Once upon", max_new_tokens=100)  # doctest: +SKIP
>>> for text in request: ...  # doctest: +SKIP
"""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import numpy as np

from . import _C
from .errors import InputError, StoppedError
from .language_model import NEW_TOKENS, LanguageModel, State, batch_of, given_as_text
from .text_of_tokens import TextStream, decoded, encoded

__all__ = ["Engine", "EngineRequest", "StateBatch"]

Floats = np.ndarray[Any, np.dtype[np.float32]]


class StateBatch:
    """States of one sequence each, all of which read a token by one run of their model.

    One joined state holds what they remember meanwhile. `put_back` gives a state its own again, so that it may be used
    by itself.
    """

    def __init__(self, model: LanguageModel) -> None:
        self._model = model
        self._joined: State | None = None
        self._members: list[State | None] = []  # the state of each row of the joined one; None where one has left

    def append(self, tokens: Mapping[State, int]) -> Floats:
        """Has each state read a token; returns the logits of what may follow, ``[states, vocabulary]``, in their order.

        States that are in the batch and not among these are put back.
        """
        if len(tokens) < 2 or not self._model.takes_lengths:
            self._become([])
            if not tokens:
                return np.empty((0, 0), np.float32)
            return np.concatenate([state.append(np.array([[token]])) for state, token in tokens.items()])
        self._become(list(tokens))
        assert self._joined is not None
        members = [member for member in self._members if member is not None]
        logits = self._joined.append(np.array([[tokens[member]] for member in members]))
        places = {member: place for place, member in enumerate(members)}
        return np.asarray(logits)[[places[state] for state in tokens]]

    def put_back(self, state: State) -> None:
        """Gives a state back what it has read, so that it may be used by itself."""
        if self._joined is not None and state in self._members:
            place = self._members.index(state)
            state._native = State.join([(self._joined, [place])])._native
            self._members[place] = None

    def forget(self, state: State) -> None:
        """Drops a state that is not used any more."""
        self._members = [None if member is state else member for member in self._members]

    def _become(self, states: Sequence[State]) -> None:
        """Joins these states; those that are in the batch already come first."""
        if set(states) == set(self._members):
            return
        for member in self._members:
            if member is not None and member not in states:
                self.put_back(member)
        kept = [place for place, member in enumerate(self._members) if member is not None]
        new = [state for state in states if state not in self._members]
        parts = [(self._joined, kept)] if self._joined is not None and kept else []
        joined = State.join([*parts, *((state, [0]) for state in new)]) if states else None
        self._joined, self._members = joined, [*(self._members[place] for place in kept), *new]


# The options of `LanguageModel.generate` that concern one sequence.
_OPTIONS = (
    "max_new_tokens",
    "max_length",
    "min_new_tokens",
    "min_length",
    "eos_token_id",
    "do_sample",
    "temperature",
    "top_k",
    "top_p",
    "min_p",
    "typical_p",
    "epsilon_cutoff",
    "eta_cutoff",
    "seed",
    "repetition_penalty",
    "no_repeat_ngram_size",
    "suppress_tokens",
    "begin_suppress_tokens",
    "forced_bos_token_id",
    "forced_eos_token_id",
)


class EngineRequest(Iterator[Any]):
    """One generation among others: an iterator of its tokens as they come, or of texts, where text was given.

    A thread that waits for a token has the engine take a step, which gives one to all requests. Any thread may iterate.
    """

    def __init__(
        self,
        engine: Engine,
        state: State,
        prompt: list[int],
        before: list[int],
        choice: _C.Choice,
        most: int,
        ends: Callable[[list[int]], bool],
        form: Callable[[list[int]], Any],
        texts: TextStream | None,
    ) -> None:
        self.tokens: list[int] = []  #: the tokens that were generated so far
        self.finish_reason: str | None = None  #: "stop", "length", "cancelled" or "error", once it is done
        self._engine, self._state, self._choice = engine, state, choice
        self._prompt, self._sequence = prompt, [*before, *prompt]
        self._most, self._ends, self._form, self._texts = most, ends, form, texts
        self._unseen: deque[Any] = deque()
        self._logits: Floats | None = None  # the logits of what may follow all of the sequence, once it is read
        self._error: Exception | None = None

    def __repr__(self) -> str:
        return f"<EngineRequest of {len(self.tokens)} tokens, {self.finish_reason or 'open'}>"

    @property
    def done(self) -> bool:
        return self.finish_reason is not None

    def __next__(self) -> Any:
        while True:
            if self._error is not None:
                raise self._error
            if self._unseen:
                return self._unseen.popleft()
            if self.done:
                raise StopIteration
            self._engine._advance(self, len(self.tokens))

    def result(self) -> Any:
        """Generates all the rest, and returns what `LanguageModel.generate` does."""
        while not self.done:
            self._engine._advance(self, len(self.tokens))
        if self._error is not None:
            raise self._error
        return self._form(self.tokens)

    def cancel(self) -> None:
        """Ends the request: asking it for more raises `StoppedError`."""
        if not self.done:
            self._end("cancelled", StoppedError("the generation was cancelled"))

    def _end(self, reason: str, error: Exception | None = None) -> None:
        self.finish_reason, self._error = reason, error

    def _read(self) -> None:
        """Reads the prompt."""
        self._logits = self._state.append(np.array([self._prompt]))

    def _choose(self) -> None:
        """Chooses the next token, by the logits of what may follow."""
        token = self._choice.choose([self._sequence], self._logits)[0]
        self._logits = None
        self._sequence.append(token)
        self.tokens.append(token)
        ended = self._ends(self._sequence)
        is_last = ended or len(self.tokens) == self._most
        if self._texts is None:
            self._unseen.append(token)
        else:
            text = self._texts.put([token]) + (self._texts.end() if is_last else "")
            self._unseen.extend([text] if text else [])
        if is_last and not self.done:
            self._end("stop" if ended else "length")


class Engine:
    """Generation for several requests of one model at a time: each step gives all of them a token, by one run.

    Requests enter and leave between steps, and are of any lengths. A request gives what `LanguageModel.generate` would,
    for one sequence without beams. Where a model cannot read sequences of different lengths together
    (`LanguageModel.takes_lengths`), a step runs it for each.

    Args:
        model: a decoder without an encoder.
        max_batch_size: the number of requests that go on at a time; others wait for their turns.

    Any number of threads may use an engine at the same time. It has no thread of its own: a request that waits for a
    token has it take a step.
    """

    def __init__(self, model: LanguageModel, *, max_batch_size: int = 16) -> None:
        if model._native.has_encoder:
            raise InputError("an engine takes a decoder without an encoder; LanguageModel.generate runs both")
        if max_batch_size < 1:
            raise InputError(f"max_batch_size must be 1 or more, not {max_batch_size}")
        self.model, self.max_batch_size = model, max_batch_size
        self._batch = StateBatch(model)
        self._waiting: deque[EngineRequest] = deque()
        self._running: list[EngineRequest] = []
        self._step_lock = threading.Lock()

    def __repr__(self) -> str:
        return f"<Engine of {len(self._running)} requests, and {len(self._waiting)} that wait>"

    def submit(
        self,
        inputs: Any,
        *,
        logits_processor: Callable[[Any, Any], Any] | Sequence[Callable[[Any, Any], Any]] = (),
        stop_strings: str | Sequence[str] | None = None,
        prefix: State | None = None,
        **options: Any,
    ) -> EngineRequest:
        """Makes a request for what may follow one sequence of tokens, or a text.

        The options are those of `LanguageModel.generate`, but for beams, several sequences and assistants.
        """
        model = self.model
        unknown = [name for name in options if name not in _OPTIONS]
        if unknown:
            raise InputError(f"a request has no option {', '.join(unknown)}; it has {', '.join(_OPTIONS)}")
        with_text = given_as_text(inputs)
        batch = batch_of(encoded(model.tokenizer, inputs) if with_text else inputs, None)
        if len(batch.rows) != 1 or not batch.rows[0]:
            raise InputError("a request is of one sequence, of one token at least; submit each of several")
        if prefix is not None and prefix.batch_size != 1:
            raise InputError(f"the prefix has {prefix.batch_size} sequences, and a request one")
        prompt = batch.rows[0]
        before = [] if prefix is None else prefix.tokens[0]
        length = len(before) + len(prompt)
        chosen = model._options(length, **(dict.fromkeys(_OPTIONS) | options))
        most = chosen.setdefault("max_new_tokens", NEW_TOKENS)
        if length + most > chosen.get("max_length", length + most):
            raise InputError(
                f"there are {length} tokens and {most} more to come (max_new_tokens), and room for "
                f"{chosen['max_length']} as max_length says; give a larger max_length, or fewer max_new_tokens"
            )
        processors = list(logits_processor) if isinstance(logits_processor, Sequence) else [logits_processor]
        eos, stop = chosen.get("eos_token_id", []), None
        if stop_strings is not None:
            stop = model._stop(stop_strings, length)

        def ends(sequence: list[int]) -> bool:
            return sequence[-1] in eos or (stop is not None and stop(sequence))

        def form(tokens: list[int]) -> Any:
            if with_text:
                return decoded(model.tokenizer, tokens)
            return batch.like([[*prompt, *tokens]], [tokens], 0)

        request = EngineRequest(
            self,
            prefix.fork() if prefix is not None else State(model._native.start([], [], {})),
            prompt,
            before,
            _C.Choice(chosen, processors, batch.as_torch, [*before, *prompt]),
            most,
            ends,
            form,
            model.text_stream() if with_text else None,
        )
        self._waiting.append(request)
        return request

    def step(self) -> bool:
        """Gives all requests that go on a token, and those whose turn it is their first; tells whether any is open."""
        with self._step_lock:
            self._step()
        return bool(self._running or self._waiting)

    def _advance(self, request: EngineRequest, count: int) -> None:
        """Has a request get more tokens than `count`, by a step, unless another thread has taken one meanwhile."""
        with self._step_lock:
            if len(request.tokens) == count and not request.done:
                self._step()

    def _step(self) -> None:
        self._leave()
        unread = [request for request in self._running if request._logits is None]
        if unread:
            _attempt(lambda: self._read_together(unread), unread)
        while self._waiting and len(self._running) < self.max_batch_size:
            request = self._waiting.popleft()
            if not request.done:
                _attempt(request._read, [request])
                self._running.append(request)
        for request in self._running:
            if not request.done:
                _attempt(request._choose, [request])
        self._leave()

    def _read_together(self, requests: Sequence[EngineRequest]) -> None:
        logits = self._batch.append({request._state: request.tokens[-1] for request in requests})
        for request, row in zip(requests, logits, strict=True):
            request._logits = row[None]

    def _leave(self) -> None:
        """Leaves out the requests that are done."""
        for request in self._running:
            if request.done:
                self._batch.forget(request._state)
        self._running = [request for request in self._running if not request.done]


def _attempt(action: Callable[[], None], requests: Sequence[EngineRequest]) -> None:
    """Does something for some requests; an exception ends them."""
    try:
        action()
    except Exception as error:
        for request in requests:
            request._end("error", error)
