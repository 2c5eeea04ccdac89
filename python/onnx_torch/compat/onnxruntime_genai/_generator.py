"""Generation of tokens, one at a time."""

from __future__ import annotations

import dataclasses
from typing import Any

import numpy as np

from onnx_torch import _C
from onnx_torch.errors import InputError, StoppedError, UnsupportedError
from onnx_torch.language_model import State

from ._config import Config, Model
from ._search import BeamSearch, Floats, Greedy, Reader, Rows, Rules
from ._status import ignored, refused
from ._tensor import Tensor
from ._tokenizer import Tokens

__all__ = ["Generator", "GeneratorParams"]

MOST_SEQUENCES = 32
NO_TOKENS = "there is no sequence yet: append_tokens gives one"
_INPUTS = "the model takes tokens alone: append_tokens gives it some"
_SPECULATION = "no other model proposes tokens here; onnx_torch.LanguageModel has assistant_model="


@dataclasses.dataclass
class SearchOptions:
    """The options of a generation, with onnxruntime-genai's defaults."""

    batch_size: int = 1
    chunk_size: int = 0
    diversity_penalty: float = 0.0  # onnxruntime-genai makes no use of it, either
    do_sample: bool = False
    early_stopping: bool = True
    length_penalty: float = 1.0
    max_length: int = 0
    min_length: int = 0
    no_repeat_ngram_size: int = 0
    num_beams: int = 1
    num_return_sequences: int = 1
    past_present_share_buffer: bool = False
    random_seed: int = -1
    repetition_penalty: float = 1.0
    temperature: float = 1.0
    top_k: int = 50
    top_p: float = 0.0

    def set(self, name: str, value: Any) -> None:
        kind = next((str(field.type) for field in dataclasses.fields(self) if field.name == name), None)
        if kind is None:
            known = ", ".join(field.name for field in dataclasses.fields(self))
            raise InputError(f'there is no search option "{name}"; there are {known}')
        is_number = isinstance(value, (int, float, np.integer, np.floating)) and not isinstance(value, bool)
        if kind == "bool" and not isinstance(value, (bool, np.bool_)):
            raise InputError(f"{name} must be True or False, not {value!r}")
        if kind != "bool" and not is_number:
            raise InputError(f"{name} must be a number, not {value!r}")
        if kind == "int" and value != int(value):
            raise InputError(f"{name} must be a whole number, not {value!r}")
        setattr(self, name, {"bool": bool, "int": int, "float": float}[kind](value))

    def choice(self, eos_token_ids: list[int], min_length: int, seed: int | None) -> _C.Choice:
        """Makes the native object that chooses tokens by these options."""
        is_drawn = self.do_sample and self.top_k != 1 and self.temperature != 0
        has_nucleus = 0 < self.top_p < 1 or self.top_k == 0
        sampling = {
            "do_sample": True,
            "temperature": self.temperature,
            "top_k": self.top_k,
            "top_p": self.top_p if has_nucleus else 1.0,
        }
        rules = {
            "repetition_penalty": self.repetition_penalty,
            "no_repeat_ngram_size": max(self.no_repeat_ngram_size, 0),
            "min_new_tokens": max(min_length, 0),
            "eos_token_id": eos_token_ids,
        }
        return _C.Choice(rules | (sampling if is_drawn else {}) | ({} if seed is None else {"seed": seed}))

    @property
    def seed(self) -> int | None:
        return None if self.random_seed < 0 else self.random_seed

    def check(self, config: Config) -> None:
        """Raises `InputError` where an option has no meaning."""
        room = config.model.get("context_length")
        vocabulary = config.model.get("vocab_size")
        beams, returned = self.num_beams, self.num_return_sequences
        for holds, what in (
            (self.max_length > 0, "max_length must be 1 or more: set_search_options(max_length=...)"),
            (
                room is None or self.max_length <= room,
                f"max_length is {self.max_length}, and the model's context_length {room}",
            ),
            (
                1 <= self.batch_size <= MOST_SEQUENCES,
                f"batch_size must be from 1 to {MOST_SEQUENCES}, not {self.batch_size}",
            ),
            (1 <= beams <= MOST_SEQUENCES, f"num_beams must be from 1 to {MOST_SEQUENCES}, not {beams}"),
            (1 <= returned <= beams, f"num_return_sequences must be from 1 to num_beams, {beams}, not {returned}"),
            (not self.do_sample or beams == 1, "beams are not drawn: set do_sample to False, or num_beams to 1"),
            (not self.do_sample or 0 <= self.top_p <= 1, f"top_p must be from 0 to 1, not {self.top_p}"),
            (
                not self.do_sample or 0 <= self.top_k <= (vocabulary or self.top_k),
                f"top_k must be from 0 to the number of tokens, {vocabulary}, not {self.top_k}",
            ),
            (not self.do_sample or self.temperature >= 0, f"temperature must be 0 or more, not {self.temperature}"),
        ):
            if not holds:
                raise InputError(what)


class GeneratorParams:
    """The search options of a generation: those of the folder's settings, unless others are set."""

    def __init__(self, model: Model, /) -> None:
        self.model = model
        self.search = SearchOptions(max_length=model.config.model.get("context_length", 0))
        for name, value in model.config.search.items():
            if value is not None:
                self.search.set(name, value)

    def set_search_options(self, **options: Any) -> None:
        for name, value in options.items():
            self.search.set(name, value)

    def get_search_options(self) -> dict[str, Any]:
        options = dataclasses.asdict(self.search)
        return {name: value if isinstance(value, bool) else float(value) for name, value in options.items()}

    def set_guidance(self, type: str, data: str, enable_ff_tokens: bool = False) -> None:
        if type or data:
            raise UnsupportedError(
                "guidance by a grammar is not served; onnx_torch.LanguageModel.generate takes a logits_processor, such "
                "as those of the packages outlines and llguidance, which does the same"
            )

    set_speculative_options = ignored(_SPECULATION)
    get_speculative_options = ignored(_SPECULATION, dict)
    try_graph_capture_with_max_batch_size = ignored("runs on CUDA are recorded where they can be (docs/cuda.md)")


class Generator:
    """Sequences that grow by a token at each step."""

    def __init__(self, model: Model, params: GeneratorParams, /) -> None:
        options, config = dataclasses.replace(params.search), model.config
        options.check(config)
        self._model = model
        self._batch_size = options.batch_size
        self._choice = options.choice(config.eos_token_ids, options.min_length, options.seed)
        self._rules = Rules(
            eos_token_ids=config.eos_token_ids,
            pad_token_id=config.pad_token_id,
            batch_size=options.batch_size,
            max_length=options.max_length,
            num_beams=options.num_beams,
            num_return_sequences=options.num_return_sequences,
            length_penalty=options.length_penalty,
            early_stopping=options.early_stopping,
        )
        self._room = options.max_length if options.past_present_share_buffer else None
        self._terminated = False
        self._forget()

    def _forget(self) -> None:
        self._search: Greedy | BeamSearch | None = None
        self._reader: Reader | None = None
        self._unread: Rows = []  # the tokens of each row that the model has not read yet
        self._last_read: Rows = []
        self._logits: Floats | None = None
        self._vocabulary: int | None = None

    def use(self, choice: _C.Choice) -> None:
        """Has tokens chosen by other options from here on."""
        self._choice = choice
        if self._search is not None:
            self._search.choice = choice

    @property
    def states(self) -> list[State]:
        """The states of the model that has read the sequences."""
        return [] if self._reader is None else self._reader.states

    @property
    def next_unread(self) -> int | None:
        """The token of the one sequence that the model has to read next, if it is exactly one."""
        has_one = self._logits is None and len(self._unread) == 1 and len(self._unread[0]) == 1
        return self._unread[0][0] if has_one else None

    def take(self, logits: Floats) -> None:
        """Takes the logits for `next_unread`, which the model was given by another way."""
        assert self._reader is not None
        self._take(self._reader, logits)

    def append_tokens(self, tokens: Any, /) -> None:
        """Reads tokens: ``batch_size`` rows of them, filled up at the right with ``pad_token_id``."""
        self._check_running()
        rows = self._rows(tokens)
        length = self.token_count() + len(rows[0])
        if length > self._rules.max_length:
            raise InputError(
                f"the sequence would have {length} tokens, and max_length is {self._rules.max_length}; "
                "set_search_options(max_length=...) of GeneratorParams"
            )
        if self._search is None:
            search = BeamSearch if self._rules.num_beams > 1 else Greedy
            kept = [_without_padding(row, self._rules.pad_token_id) if len(rows) > 1 else row for row in rows]
            self._search = search([list(row) for row in rows], self._rules, self._choice)
            self._reader, self._unread = Reader(self._model.language_model, kept, self._room), kept
        elif self._batch_size > 1 or isinstance(self._search, BeamSearch):
            raise InputError(
                "more tokens can be appended to one sequence alone, without beams; rewind_to(0) begins anew"
            )
        else:
            self._search.extend(rows)
            self._unread = [[*before, *more] for before, more in zip(self._unread, rows, strict=True)]
        self._logits = None
        self._read()

    def generate_next_token(self) -> None:
        self._check_running()
        search, reader = self._search, self._reader
        if search is None or reader is None:
            raise InputError(NO_TOKENS)
        length = self.token_count()
        if length >= self._rules.max_length:
            raise InputError(f"the sequence has {length} tokens already, which is max_length")
        if search.done:
            return
        parents = search.take(self._read())
        if parents is not None:
            reader.reorder(parents)
            self._unread, self._last_read = _rows_of(self._unread, parents), _rows_of(self._last_read, parents)
        if self.token_count() > length:
            self._unread = [[*row, token] for row, token in zip(self._unread, search.next_tokens, strict=True)]
            self._logits = None

    def is_done(self) -> bool:
        self._check_running()
        return self._search is not None and self._search.done

    def token_count(self) -> int:
        return 0 if self._search is None else len(self._search.sequences[0])

    def get_next_tokens(self) -> Tokens:
        """Returns the token that each row has got by the last step."""
        return np.array([] if self._search is None else self._search.next_tokens, np.int32)

    def get_sequence(self, index: int, /) -> Tokens:
        """Returns a sequence, with its prompt; of beams, ``num_return_sequences`` of each prompt, the best first."""
        results = [] if self._search is None else self._search.results()
        if not 0 <= index < len(results):
            raise InputError(f"there is no sequence {index}; there are {len(results)}")
        return np.array(results[index], np.int32)

    def get_logits(self) -> Floats:
        """Returns the logits of what may follow each row, ``[rows, 1, vocabulary]``."""
        self._check_running()
        logits: Floats = self._read()[:, None, :].copy()
        return logits

    def set_logits(self, logits: Any, /) -> None:
        """Replaces the model's logits, by which the next token is chosen."""
        given = np.asarray(logits, np.float32)
        if self._vocabulary is None:
            raise InputError(NO_TOKENS)
        rows = self._batch_size * self._rules.num_beams
        if given.size != rows * self._vocabulary:
            raise InputError(f"the logits must be [{rows}, 1, {self._vocabulary}], not {list(given.shape)}")
        self._logits = given.reshape(rows, self._vocabulary).copy()

    def rewind_to(self, new_length: int, /) -> None:
        """Forgets all but the first tokens."""
        length = self.token_count()
        if not 0 <= new_length <= length:
            raise InputError(f"there are {length} tokens, of which {new_length} cannot be kept")
        if new_length == length:
            return
        if new_length == 0:
            self._forget()
            return
        search = self._search
        if self._batch_size > 1 or not isinstance(search, Greedy) or self._reader is None:
            raise InputError("several sequences and beams can be rewound to their beginning alone: rewind_to(0)")
        has_read = length - len(self._unread[0])
        keeps = min(has_read, new_length - 1)  # the last token is read again, for the logits of what may follow it
        self._reader.rewind(has_read - keeps)
        search.truncate(new_length)
        self._unread, self._last_read, self._logits = [search.sequences[0][keeps:]], [], None

    def set_runtime_option(self, key: str, value: str, /) -> None:
        """Sets ``terminate_session``, "1" or "0": while it is on, asking for anything raises `StoppedError`."""
        if key != "terminate_session":
            return
        if value not in ("0", "1"):
            raise InputError(f'terminate_session must be "0" or "1", not {value!r}')
        self._terminated = value == "1"

    def get_input(self, name: str, /) -> np.ndarray[Any, Any]:
        """Returns what the model was given last: its tokens or their mask."""
        names = self._model.language_model.layout.inputs
        ids = _filled_up(self._read_last())
        if name == names.get("input_ids"):
            return ids
        if name == names.get("attention_mask"):
            return np.ones((len(ids), self.token_count() - len(self._unread[0])), np.int64)
        raise InputError(f'"{name}" cannot be had; {names.get("input_ids")} and {names.get("attention_mask")} can')

    def get_output(self, name: str, /) -> np.ndarray[Any, Any]:
        """Returns what the model gave last: its logits, ``[rows, count, vocabulary]``."""
        known = self._model.language_model.layout.outputs["logits"]
        last_read = self._read_last()
        if name != known or self._reader is None:
            raise InputError(f'"{name}" cannot be had; {known} can')
        logits = self._reader.read_again(last_read)
        longest = max(map(len, logits))
        return np.stack([np.pad(row, ((0, longest - len(row)), (0, 0))) for row in logits])

    set_inputs = refused(_INPUTS)
    set_model_input = refused(_INPUTS)
    set_hidden_states = refused(_INPUTS)
    set_active_adapter = refused("adapters are not served; merge them into the model's weights")
    get_speculative_stats = refused(_SPECULATION)
    snapshot_state = ignored("rewind_to needs no snapshot")

    def _rows(self, tokens: Any) -> Rows:
        array = np.asarray(tokens.as_numpy() if isinstance(tokens, Tensor) else tokens)
        if array.size == 0:
            raise InputError("there are no tokens to append")
        if array.dtype.kind not in "iu" or array.ndim > 2:
            raise InputError(f"tokens must be integers, [count] or [batch_size, count], not {array.dtype}{array.shape}")
        rows = self._batch_size
        if (array.ndim == 2 and array.shape[0] not in (1, rows)) or array.size % rows:
            raise InputError(
                f"tokens of shape {list(array.shape)} are no {rows} sequences of one length; "
                "set_search_options(batch_size=...) of GeneratorParams tells how many there are"
            )
        listed: Rows = array.reshape(rows, -1).tolist()
        return listed

    def _read(self) -> Floats:
        """Returns the logits of what may follow each row; the model reads what it has not read yet."""
        if self._logits is None:
            if self._reader is None:
                raise InputError(NO_TOKENS)
            self._take(self._reader, self._reader.read(self._unread))
        assert self._logits is not None
        return self._logits

    def _take(self, reader: Reader, logits: Floats) -> None:
        """Takes the logits of what may follow the tokens that were not read yet."""
        self._last_read, self._unread = self._unread, [[] for _ in self._unread]
        rows = self._rules.num_beams * self._batch_size
        if len(logits) < rows:  # beams begin as copies of their prompt
            parents = np.repeat(np.arange(len(logits)), self._rules.num_beams).tolist()
            reader.reorder(parents)
            self._unread, self._last_read = _rows_of(self._unread, parents), _rows_of(self._last_read, parents)
            logits = logits[parents]
        self._logits, self._vocabulary = logits, logits.shape[-1]

    def _read_last(self) -> Rows:
        """Returns the tokens that the model has read last."""
        if not self._last_read:
            self._read()
        return self._last_read

    def _check_running(self) -> None:
        if self._terminated:
            raise StoppedError('the generation was terminated; set_runtime_option("terminate_session", "0") goes on')


def _without_padding(row: list[int], padding: int) -> list[int]:
    """Cuts off the padding at the right of a row."""
    end = next((i for i in range(len(row), 0, -1) if row[i - 1] != padding), None)
    if end is None:
        raise InputError(f"a sequence has padding (pad_token_id, {padding}) alone")
    return row[:end]


def _rows_of(rows: Rows, numbers: list[int]) -> Rows:
    return [list(rows[number]) for number in numbers]


def _filled_up(rows: Rows) -> np.ndarray[Any, np.dtype[np.int64]]:
    longest = max(map(len, rows), default=0)
    return np.array([[*row, *[0] * (longest - len(row))] for row in rows], np.int64)
