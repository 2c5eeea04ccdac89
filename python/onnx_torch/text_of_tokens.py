"""Tokenizers of the package tokenizers, or of transformers, as `LanguageModel` uses them."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

from .errors import InputError

UNFINISHED = "\ufffd"  # stands for a character of which some bytes are still to come


def load_tokenizer(given: Any, folder: Path | None) -> Any:
    """Returns the tokenizer given, or reads that of a file given, or ``tokenizer.json`` in the folder or above it."""
    if given is not None and not isinstance(given, (str, os.PathLike)):
        return given
    places = [Path(given)] if given is not None else []
    if given is None and folder is not None:
        places = [folder / "tokenizer.json", folder.parent / "tokenizer.json"]
    file = next((place / "tokenizer.json" if place.is_dir() else place for place in places if place.exists()), None)
    if file is None:
        where = f"there is no {places[0]}" if places else "the model has no folder"
        raise InputError(f"text needs a tokenizer, and {where}; give one by tokenizer=")
    try:
        import tokenizers
    except ImportError as error:
        raise InputError("text needs the package tokenizers: pip install tokenizers") from error
    try:
        return tokenizers.Tokenizer.from_file(str(file))
    except Exception as error:  # the package has no class of exceptions
        raise InputError(f"{file} is no tokenizer: {error}") from error


def encoded(tokenizer: Any, text: Any) -> list[Any]:
    """Returns the tokens of a text, or of each of a list of texts."""
    if not isinstance(text, str):
        return [encoded(tokenizer, one) for one in text]
    tokens = tokenizer.encode(text)
    return list(getattr(tokens, "ids", tokens))


def decoded(tokenizer: Any, tokens: list[int]) -> str:
    text: str = tokenizer.decode(tokens, skip_special_tokens=True)
    return text


class TextStream:
    """The text of tokens that come one by one, as far as it is sure to stay as it is.

    It is made of the last tokens together, as the text of one may depend on those before it.
    """

    def __init__(self, tokenizer: Any) -> None:
        self._tokenizer = tokenizer
        self._tokens: list[int] = []  # the tokens of the text that was given last, and those after them
        self._given = ""  # the text of the first of them
        self._last = 0  # the number of those first ones

    def put(self, tokens: list[int]) -> str:
        """Takes more tokens, and returns the text that they add."""
        self._tokens += tokens
        text = decoded(self._tokenizer, self._tokens)
        if text.endswith(UNFINISHED) or not text.startswith(self._given):
            return ""
        return self._take(text)

    def end(self) -> str:
        """Returns the rest of the text."""
        return self._take(decoded(self._tokenizer, self._tokens))

    def _take(self, text: str) -> str:
        new = text[len(self._given) :]
        if new:
            self._tokens = self._tokens[self._last :]
            self._given, self._last = decoded(self._tokenizer, self._tokens), len(self._tokens)
        return new
