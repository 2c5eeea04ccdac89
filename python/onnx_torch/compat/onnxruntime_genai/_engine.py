"""Requests that one model generates for at the same time."""

from __future__ import annotations

import dataclasses
import enum
import threading
from collections import deque
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np

from onnx_torch.engine import Floats, StateBatch
from onnx_torch.errors import Error, InputError, UnsupportedError
from onnx_torch.language_model import State

from ._config import Model
from ._generator import Generator, GeneratorParams
from ._status import refused
from ._tokenizer import Tokenizer

__all__ = [
    "Engine",
    "EngineCapabilities",
    "EngineErrorCode",
    "EngineEvent",
    "EngineEventBuffer",
    "EngineEventFlags",
    "FinishReason",
    "Request",
    "RequestOptions",
    "TurnOptions",
    "TurnUsage",
]


class EngineErrorCode(enum.IntEnum):
    """The reasons why a turn has failed."""

    NONE = 0
    CAPACITY_DEFERRED = 1
    EXECUTION_CAPACITY_EXCEEDED = 2
    RETRYABLE_EXECUTION = 3
    REQUEST_UNSERVICEABLE = 4
    ENGINE_CONTRACT_FAILURE = 5
    ENGINE_EXECUTION_FAILURE = 6


class EngineEventFlags(enum.IntFlag):
    """The kinds of news that an event brings."""

    NONE = 0
    TOKEN = 1
    TURN_FINISHED = 2
    CAPACITY_BLOCKED = 4
    FAILED = 8
    RETRYABLE = 16


class FinishReason(enum.IntEnum):
    """The reasons why a turn has ended."""

    NONE = 0
    EOS = 1
    STOP_STRING = 2
    MAX_GENERATED_TOKENS = 3
    MAX_SESSION_TOKENS = 4
    CANCELLED = 5
    FAILED = 6


@dataclasses.dataclass(frozen=True)
class EngineCapabilities:
    """The limits of an engine; 0: any number."""

    configured_max_batch_size: int = 0
    max_request_length: int = 0
    max_scheduled_tokens: int = 0


@dataclasses.dataclass(frozen=True)
class TurnUsage:
    """The numbers of tokens that a turn which has ended was given, and has generated."""

    prompt_tokens: int = 0
    generated_tokens: int = 0
    cached_prompt_tokens: int = 0


@dataclasses.dataclass(frozen=True)
class EngineEvent:
    """The news that a step has brought to one request."""

    request: Request
    turn_id: int
    token: int | None = None
    flags: EngineEventFlags = EngineEventFlags.NONE
    finish_reason: FinishReason = FinishReason.NONE
    error_code: EngineErrorCode = EngineErrorCode.NONE
    matched_stop_string_index: int | None = None
    usage: TurnUsage = TurnUsage()
    error: Error | None = None  #: the error of a turn that has failed


class EngineEventBuffer(Sequence[EngineEvent]):
    """The events of one step, `capacity` of them at most."""

    def __init__(self, capacity: int) -> None:
        if capacity < 1:
            raise InputError(f"a buffer must have room for one event at least, not for {capacity}")
        self.capacity = capacity
        self.events: list[EngineEvent] = []

    def __len__(self) -> int:
        return len(self.events)

    def __getitem__(self, index: Any) -> Any:
        return self.events[index]

    def __iter__(self) -> Iterator[EngineEvent]:
        return iter(self.events)


class RequestOptions:
    """The options that hold for all turns of a request."""

    def __init__(self) -> None:
        self.max_session_tokens = 0

    def set_max_session_tokens(self, count: int, /) -> None:
        """Limits the tokens of all turns together, with those that are given; 0: as the folder's settings say."""
        self.max_session_tokens = int(count)


class TurnOptions:
    """The options of one turn, in place of the folder's settings."""

    def __init__(self, request: Request, /) -> None:
        self.reset()

    def reset(self) -> None:
        self.search: dict[str, Any] = {}
        self.seed: int | None = None
        self.max_generated_tokens = 0
        self.min_generated_tokens = 0
        self.stop_strings: list[str] = []

    def set_do_sample(self, value: bool, /) -> None:
        self.search["do_sample"] = value

    def set_temperature(self, value: float, /) -> None:
        self.search["temperature"] = value

    def set_top_k(self, value: int, /) -> None:
        self.search["top_k"] = value

    def set_top_p(self, value: float, /) -> None:
        self.search["top_p"] = value

    def set_repetition_penalty(self, value: float, /) -> None:
        self.search["repetition_penalty"] = value

    def set_no_repeat_ngram_size(self, value: int, /) -> None:
        self.search["no_repeat_ngram_size"] = value

    def set_seed(self, value: int, /) -> None:
        """Seeds the draws anew from this turn on."""
        self.seed = int(value)

    def clear_seed(self) -> None:
        self.seed = None

    def set_max_generated_tokens(self, count: int, /) -> None:
        self.max_generated_tokens = int(count)

    def set_min_generated_tokens(self, count: int, /) -> None:
        self.min_generated_tokens = int(count)

    def set_stop_strings(self, strings: Sequence[str], /) -> None:
        """Sets the texts of which one ends a turn."""
        if isinstance(strings, str) or not all(isinstance(string, str) and string for string in strings):
            raise InputError("stop strings must be a list of texts, none of them empty")
        self.stop_strings = list(strings)

    def set_guidance(self, type: str, data: str, /) -> None:
        if type or data:
            raise UnsupportedError("guidance by a grammar is not served; see GeneratorParams.set_guidance")

    def clear_guidance(self) -> None:
        """Does nothing, as there is no guidance."""


class Request:
    """A conversation: turns that are given tokens, and generate some.

    `Engine.create_request` makes one. ``Request(params)`` is the form of releases before 0.18, with `add_tokens`,
    `Engine.add_request` and `Engine.step`.
    """

    def __init__(self, params: GeneratorParams) -> None:
        search = params.search
        if search.batch_size != 1 or search.num_beams != 1:
            raise InputError("a request has one sequence, and no beams: leave batch_size and num_beams 1")
        self._model = params.model
        self._search = dataclasses.replace(search)
        self._seed = search.seed
        self._generator = Generator(params.model, params)
        self._turn: _Turn | None = None
        self._starts: dict[int, int] = {}  # the length at which each turn has begun
        self._given: list[int] = []  # tokens for the turn that add_request begins
        self._unseen: deque[int] = deque()
        self._opaque: Any = None
        self._engine: Engine | None = None
        self._closed = False

    # --- Turns ---

    def begin_turn(self, tokens: Any, turn_options: TurnOptions | None = None) -> int:
        """Gives tokens after those that are there, and queues the generation of more; returns the turn's number."""
        if self._closed:
            raise InputError("the request is closed; create_request makes another one")
        if self._engine is None:
            raise InputError("the request is of no engine yet: Engine.add_request adds it")
        if self._turn is not None and not self._turn.ended:
            raise InputError("the turn before has not ended; run the engine, or cancel_turn")
        given = np.asarray(tokens, np.int32).ravel().tolist()
        before, most = self._generator.token_count(), self._search.max_length
        if not given:
            raise InputError("a turn needs one token at least")
        if before + len(given) >= most:
            raise InputError(
                f"after {before + len(given)} tokens there is no room for another one, as the request may have {most}; "
                "RequestOptions.set_max_session_tokens, or max_length of GeneratorParams"
            )
        options = turn_options or TurnOptions(self)
        search = dataclasses.replace(self._search)
        for name, value in options.search.items():
            search.set(name, value)
        search.check(self._model.config)
        number = len(self._starts) + 1
        least = search.min_length
        if options.min_generated_tokens:
            least = before + len(given) + options.min_generated_tokens
        seed = self._seed if options.seed is None else options.seed
        self._seed = None if seed is None else seed + 1  # the seed of the next turn
        tokenizer = Tokenizer(self._model) if options.stop_strings else None
        self._generator.use(search.choice(self._model.config.eos_token_ids, least, seed))
        self._starts[number] = before
        self._turn = _Turn(self, number, given, options, tokenizer)
        self._engine.queue(self)
        return number

    def cancel_turn(self, turn_id: int, /) -> bool:
        """Ends the turn, with an event of its own; returns whether it had not ended before."""
        turn = self._turn
        if turn is None or turn.number != turn_id or turn.ended or turn.cancelled:
            return False
        turn.cancelled = True
        return True

    def rewind_to_start_of_turn(self, turn_id: int) -> None:
        """Forgets a turn and those after it."""
        if turn_id not in self._starts:
            raise InputError(f"there is no turn {turn_id}")
        if self._turn is not None and not self._turn.ended:
            raise InputError("the turn has not ended; run the engine, or cancel_turn")
        self._generator.rewind_to(self._starts[turn_id])

    def close(self) -> None:
        """Frees the memory of what the request has read."""
        self._closed = True
        if self._engine is not None:
            self._engine.remove_request(self)
        self._generator.rewind_to(0)

    set_draft_tokens = refused("tokens are not proposed here; onnx_torch.LanguageModel has assistant_model=")

    # --- The form of releases before 0.18 ---

    def add_tokens(self, tokens: Any, /) -> None:
        """Adds tokens for the first turn, which `Engine.add_request` begins."""
        if self._engine is not None:
            raise InputError("the request has begun; continue_with begins another turn")
        self._given += np.asarray(tokens, np.int32).ravel().tolist()

    def continue_with(self, tokens: Any, /) -> None:
        """Begins another turn."""
        self.begin_turn(tokens)

    def has_unseen_tokens(self) -> bool:
        return bool(self._unseen)

    def get_unseen_token(self) -> int:
        if not self._unseen:
            raise InputError("there is no token that was not seen; has_unseen_tokens tells")
        return self._unseen.popleft()

    def is_turn_complete(self) -> bool:
        return self._turn is not None and self._turn.ended

    is_done = is_turn_complete

    def set_opaque_data(self, data: Any, /) -> None:
        """Keeps any object of the caller's, which `get_opaque_data` returns."""
        self._opaque = data

    def get_opaque_data(self) -> Any:
        return self._opaque

    # --- For the engine ---

    def begin(self, engine: Engine) -> None:
        if self._engine is not None:
            raise InputError("the request has an engine already")
        self._engine = engine
        if self._given:
            self.begin_turn(self._given)

    @property
    def is_pending(self) -> bool:
        return self._turn is not None and not self._turn.ended

    @property
    def states(self) -> list[State]:
        """The states of the model that has read the request."""
        return self._generator.states

    @property
    def next_unread(self) -> int | None:
        """The token that the model has to read next, if it is exactly one."""
        turn = self._turn
        goes_on = turn is not None and turn.has_begun and not (turn.cancelled or turn.ended)
        return self._generator.next_unread if goes_on else None

    def take(self, logits: Floats) -> None:
        """Takes the logits that the model has given for `next_unread`."""
        self._generator.take(logits)

    def step(self) -> EngineEvent:
        """Adds one token, or ends the turn, and returns the event."""
        turn = self._turn
        if turn is None:
            raise InputError("there is no turn")
        event = turn.step(self._generator)
        if event.token is not None:
            self._unseen.append(event.token)
        return event


class _Turn:
    """A turn that is going on."""

    def __init__(
        self, request: Request, number: int, given: list[int], options: TurnOptions, tokenizer: Tokenizer | None
    ) -> None:
        self.number, self.ended, self.cancelled = number, False, False
        self._request, self._given, self._tokenizer = request, given, tokenizer
        self._most, self._stop_strings = options.max_generated_tokens, options.stop_strings
        self._generated: list[int] = []
        self.has_begun = False

    def step(self, generator: Generator) -> EngineEvent:
        if self.cancelled:
            return self._end(FinishReason.CANCELLED)
        try:
            if not self.has_begun:
                generator.append_tokens(np.array(self._given, np.int32))
                self.has_begun = True
            before = generator.token_count()
            generator.generate_next_token()
        except Error as error:
            return dataclasses.replace(
                self._end(FinishReason.FAILED),
                flags=EngineEventFlags.TURN_FINISHED | EngineEventFlags.FAILED,
                error_code=EngineErrorCode.ENGINE_EXECUTION_FAILURE,
                error=error,
            )
        if generator.token_count() == before:  # the token that ends a sequence is no part of it
            return self._end(FinishReason.EOS)
        token = int(generator.get_next_tokens()[0])
        self._generated.append(token)
        matched = self._matched()
        if matched is not None:
            return self._end(FinishReason.STOP_STRING, token, matched)
        if len(self._generated) == self._most:
            return self._end(FinishReason.MAX_GENERATED_TOKENS, token)
        if generator.is_done():
            return self._end(FinishReason.MAX_SESSION_TOKENS, token)
        return EngineEvent(self._request, self.number, token, EngineEventFlags.TOKEN)

    def _matched(self) -> int | None:
        if self._tokenizer is None:
            return None
        text = self._tokenizer.decode(self._generated)
        return next((number for number, string in enumerate(self._stop_strings) if string in text), None)

    def _end(self, reason: FinishReason, token: int | None = None, matched: int | None = None) -> EngineEvent:
        self.ended = True
        flags = EngineEventFlags.TURN_FINISHED | (EngineEventFlags.NONE if token is None else EngineEventFlags.TOKEN)
        return EngineEvent(
            self._request,
            self.number,
            token,
            flags,
            reason,
            matched_stop_string_index=matched,
            usage=TurnUsage(len(self._given), len(self._generated)),
        )


class Engine:
    """An engine whose steps give each request a token, by one run of the model where it takes different lengths.

    Any thread may add requests meanwhile.
    """

    def __init__(self, model: Model, /) -> None:
        self._model = model
        self._pending: deque[Request] = deque()
        self._ready: deque[Request] = deque()
        self._lock = threading.Lock()
        self._batch = StateBatch(model.language_model)
        self._step_lock = threading.RLock()

    def create_request(
        self, params: GeneratorParams | None = None, *, options: RequestOptions | None = None
    ) -> Request:
        chosen = params or GeneratorParams(self._model)
        if options is not None and options.max_session_tokens:
            chosen.search = dataclasses.replace(chosen.search, max_length=options.max_session_tokens)
        request = Request(chosen)
        request.begin(self)
        return request

    def create_event_buffer(self, capacity: int) -> EngineEventBuffer:
        return EngineEventBuffer(capacity)

    def get_capabilities(self) -> EngineCapabilities:
        return EngineCapabilities()

    def max_draft_tokens_per_proposal(self) -> int:
        """Returns 0: no draft tokens are taken."""
        return 0

    get_speculative_stats = refused(
        "no other model proposes tokens here; onnx_torch.LanguageModel has assistant_model="
    )

    def has_pending_requests(self) -> bool:
        with self._lock:
            return bool(self._pending or self._ready)

    def run(self, buffer: EngineEventBuffer) -> EngineEventBuffer:
        """Takes one step of as many requests as the buffer has room for, and fills it with the events of this step."""
        buffer.events = self._events(buffer.capacity)
        return buffer

    def add_request(self, request: Request, /) -> None:
        """Begins a request in the form of releases before 0.18."""
        request.begin(self)

    def step(self) -> Request | None:
        """Returns a request that has a token more, or has ended; None where there is none left."""
        if not self._ready:
            with self._lock:
                count = len(self._pending)
            events = self._events(count)
            self._ready.extend(event.request for event in events)
            failed = next((event.error for event in events if event.error is not None), None)
            if failed is not None:
                raise failed
        return self._ready.popleft() if self._ready else None

    def remove_request(self, request: Request, /) -> None:
        """Forgets a request, in whatever state it is."""
        with self._lock:
            for requests in (self._pending, self._ready):
                if request in requests:
                    requests.remove(request)
        with self._step_lock:
            for state in request.states:
                self._batch.forget(state)

    def queue(self, request: Request) -> None:
        with self._lock:
            self._pending.append(request)

    def _events(self, most: int) -> list[EngineEvent]:
        with self._step_lock:
            with self._lock:
                chosen = [self._pending.popleft() for _ in range(min(most, len(self._pending)))]
                are_all = not self._pending
            events = []
            try:
                if are_all:
                    self._read(chosen)
                else:
                    for request in chosen:
                        self._put_back(request)
                for request in chosen:
                    events.append(request.step())
            finally:  # also where something interrupts it
                for request in chosen:
                    if request.is_pending:
                        self.queue(request)
                    else:
                        self._put_back(request)
            return events

    def _read(self, requests: Sequence[Request]) -> None:
        """Has the model read the next token of each request together; a request with several reads them by itself."""
        waiting = [request for request in requests if request.next_unread is not None]
        try:
            logits = self._batch.append({request.states[0]: request.next_unread or 0 for request in waiting})
        except Error:  # the requests to blame meet it again when they read by themselves
            for request in waiting:
                self._put_back(request)
        else:
            for request, row in zip(waiting, logits, strict=True):
                request.take(row[None])

    def _put_back(self, request: Request) -> None:
        for state in request.states:
            self._batch.put_back(state)
