"""The ways to choose the tokens of sequences, by onnxruntime-genai's rules."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from onnx_torch import _C
from onnx_torch.language_model import LanguageModel, State

Floats = np.ndarray[Any, np.dtype[np.float32]]
Rows = list[list[int]]

UNLIKELY = -1e9  # the score of beams that begin as copies of the first


@dataclass(frozen=True)
class Rules:
    """The rules of a search: its options, and the tokens that the model knows."""

    eos_token_ids: Sequence[int]
    pad_token_id: int
    batch_size: int
    max_length: int
    num_beams: int
    num_return_sequences: int
    length_penalty: float
    early_stopping: bool


class Reader:
    """The states of a model that reads sequences, of which those of one length are one batch."""

    def __init__(self, model: LanguageModel, sequences: Rows, room: int | None = None) -> None:
        by_length: dict[int, list[int]] = {}
        for row, tokens in enumerate(sequences):
            by_length.setdefault(len(tokens), []).append(row)
        self._batches = [(rows, model.start(max_length=room)) for rows in by_length.values()]

    @property
    def states(self) -> list[State]:
        return [state for _, state in self._batches]

    def read(self, tokens: Rows) -> Floats:
        """Reads more tokens of each row, and returns the logits of what may follow them."""
        logits = [state.append(np.array([tokens[row] for row in rows])) for rows, state in self._batches]
        if len(self._batches) == 1:
            return np.asarray(logits[0])
        order = np.argsort(np.concatenate([rows for rows, _ in self._batches]))
        together: Floats = np.concatenate(logits)[order]
        return together

    def read_again(self, tokens: Rows) -> list[Floats]:
        """Reads each row's last tokens once more, and returns the logits of what may follow each of them."""
        logits: dict[int, Floats] = {}
        for rows, state in self._batches:
            other, count = state.fork(), len(tokens[rows[0]])
            other.rewind(count)
            logits.update(zip(rows, other.append(np.array([tokens[row] for row in rows]), all=True), strict=True))
        return [logits[row] for row in sorted(logits)]

    def reorder(self, parents: Sequence[int]) -> None:
        """Makes row i what row parents[i] is. A row stays among those of its batch."""
        batches = []
        for rows, state in self._batches:
            place = {row: number for number, row in enumerate(rows)}
            new = [row for row, parent in enumerate(parents) if parent in place]
            state.reorder([place[parents[row]] for row in new])
            batches.append((new, state))
        self._batches = batches

    def rewind(self, count: int) -> None:
        for _, state in self._batches:
            state.rewind(count)


class Greedy:
    """The search that takes the likeliest token of each row, or draws one."""

    def __init__(self, sequences: Rows, rules: Rules, choice: _C.Choice) -> None:
        self.sequences = sequences
        self.choice = choice
        self.next_tokens = [row[-1] for row in sequences]
        self._rules = rules
        self._ended = [False] * len(sequences)

    @property
    def done(self) -> bool:
        return all(self._ended) or len(self.sequences[0]) >= self._rules.max_length

    def take(self, logits: Floats) -> list[int] | None:
        """Chooses by the logits of what may follow; returns None, as each row goes on from itself.

        The token that ends the last row becomes no part of it.
        """
        chosen = self.choice.choose(self.sequences, logits)
        padding, ends = self._rules.pad_token_id, self._rules.eos_token_ids
        self.next_tokens = [padding if ended else token for ended, token in zip(self._ended, chosen, strict=True)]
        self._ended = [ended or token in ends for ended, token in zip(self._ended, self.next_tokens, strict=True)]
        if not all(self._ended):
            for row, token in zip(self.sequences, self.next_tokens, strict=True):
                row.append(token)
        return None

    def extend(self, tokens: Rows) -> None:
        """Adds tokens that were given."""
        for row, more in zip(self.sequences, tokens, strict=True):
            row += more
        self.next_tokens = [row[-1] for row in self.sequences]
        self._ended = [False] * len(self.sequences)

    def truncate(self, length: int) -> None:
        for row in self.sequences:
            del row[length:]
        self.extend([[] for _ in self.sequences])

    def results(self) -> Rows:
        return self.sequences


class BeamSearch:
    """The search for the likeliest sequences, which follows ``num_beams`` of each prompt at the same time."""

    def __init__(self, prompts: Rows, rules: Rules, choice: _C.Choice) -> None:
        beams = rules.num_beams
        self.sequences = [list(prompt) for prompt in prompts for _ in range(beams)]
        self.choice = choice
        self.next_tokens = [row[-1] for row in self.sequences]
        self._rules = rules
        self._scores = np.tile(np.array([0, *[UNLIKELY] * (beams - 1)], np.float32), len(prompts))
        self._finished: list[list[tuple[np.float32, list[int]]]] = [[] for _ in prompts]
        self._done = [False] * len(prompts)

    @property
    def done(self) -> bool:
        return all(self._done) or len(self.sequences[0]) >= self._rules.max_length

    def take(self, logits: Floats) -> list[int]:
        """Chooses tokens, and returns the row that each row goes on from."""
        beams = self._rules.num_beams
        scores = _log_softmax(np.asarray(self.choice.process(self.sequences, logits))) + self._scores[:, None]
        parents, tokens = list(range(len(self.sequences))), [self._rules.pad_token_id] * len(self.sequences)
        for prompt, done in enumerate(self._done):
            if done:
                continue
            first = prompt * beams
            # These candidates leave num_beams that go on: no row has more ends among them than there are eos tokens.
            wanted = beams * max(2, 1 + len(self._rules.eos_token_ids))
            places = _largest(scores[first : first + beams].ravel(), wanted)
            candidates = [(first + place // scores.shape[1], place % scores.shape[1]) for place in places.tolist()]
            going_on = []
            for number, (row, token) in enumerate(candidates):
                if token not in self._rules.eos_token_ids:
                    going_on.append((row, token))
                elif number < beams:
                    self._finish(prompt, self.sequences[row], scores[row, token])
                if len(going_on) == beams:
                    break
            best = scores[candidates[0]]
            self._done[prompt] = self._is_done(prompt, best, len(self.sequences[first]))
            for number, (row, token) in enumerate(going_on):
                parents[first + number], tokens[first + number] = row, token
        self._scores = scores[parents, tokens].astype(np.float32)
        self.sequences = [[*self.sequences[parent], token] for parent, token in zip(parents, tokens, strict=True)]
        self.next_tokens = tokens
        return parents

    def results(self) -> Rows:
        """Returns the best sequences of each prompt; those that still go on count as they are."""
        beams, found = self._rules.num_beams, []
        for prompt, finished in enumerate(self._finished):
            rows = [] if self._done[prompt] else range(prompt * beams, (prompt + 1) * beams)
            all_of = list(finished)
            for row in rows:
                _insert(all_of, self._weighed(self.sequences[row], self._scores[row]), beams)
            found += [tokens for _, tokens in all_of[: self._rules.num_return_sequences]]
        return found

    def _weighed(self, tokens: list[int], score: np.float32) -> tuple[np.float32, list[int]]:
        return np.float32(score / np.float32(len(tokens)) ** np.float32(self._rules.length_penalty)), tokens

    def _finish(self, prompt: int, tokens: list[int], score: np.float32) -> None:
        _insert(self._finished[prompt], self._weighed(tokens, score), self._rules.num_beams)

    def _is_done(self, prompt: int, best: np.float32, length: int) -> bool:
        finished = self._finished[prompt]
        if len(finished) < self._rules.num_beams:
            return False
        could_be = best / np.float32(length) ** np.float32(self._rules.length_penalty)
        return self._rules.early_stopping or not finished[-1][0] < could_be


def _insert(best: list[tuple[np.float32, list[int]]], one: tuple[np.float32, list[int]], most: int) -> None:
    """Inserts one behind those that are as good, and drops all but the best `most`."""
    place = next((i for i, other in enumerate(best) if one[0] > other[0]), len(best))
    best.insert(place, one)
    del best[most:]


def _log_softmax(logits: Floats) -> Floats:
    shifted = logits - logits.max(axis=1, keepdims=True)
    logs: Floats = shifted - np.log(np.exp(shifted).sum(axis=1, keepdims=True))
    return logs


def _largest(scores: Floats, count: int) -> np.ndarray[Any, np.dtype[np.intp]]:
    """Returns the indices of the largest scores, the largest first; of equal scores the lower index comes first."""
    count = min(count, scores.size)
    places = np.argpartition(-scores, count - 1)[:count]
    return places[np.lexsort((places, -scores[places]))]
