"""Tokenizers of the package tokenizers, or of transformers, as `LanguageModel` uses them."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

from .errors import InputError

UNFINISHED = "\ufffd"  # a character of which some bytes are still to come


def load_tokenizer(given: Any, folder: Path | None) -> Any:
    """The tokenizer given, that of the file given, or that of ``tokenizer.json`` in the folder or the one above it."""
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
    except Exception as error:  # it has no class of its own
        raise InputError(f"{file} is no tokenizer: {error}") from error


def encoded(tokenizer: Any, text: Any) -> list[Any]:
    """The tokens of a text, or of each of a list of texts."""
    if not isinstance(text, str):
        return [encoded(tokenizer, one) for one in text]
    tokens = tokenizer.encode(text)
    return list(getattr(tokens, "ids", tokens))


def decoded(tokenizer: Any, tokens: list[int]) -> str:
    text: str = tokenizer.decode(tokens, skip_special_tokens=True)
    return text


class TextStream:
    """The text of tokens that come one by one: what is sure to stay as it is.

    It is told from the last tokens, as the text of one may depend on those before it.
    """

    def __init__(self, tokenizer: Any) -> None:
        self._tokenizer = tokenizer
        self._tokens: list[int] = []  # those of the last text that was given, and those after them
        self._given = ""  # the text of the first of them
        self._last = 0  # how many those are

    def put(self, tokens: list[int]) -> str:
        """What more there is to show."""
        self._tokens += tokens
        text = decoded(self._tokenizer, self._tokens)
        if text.endswith(UNFINISHED) or not text.startswith(self._given):
            return ""
        return self._take(text)

    def end(self) -> str:
        """What is left to show."""
        return self._take(decoded(self._tokenizer, self._tokens))

    def _take(self, text: str) -> str:
        new = text[len(self._given) :]
        if new:
            self._tokens = self._tokens[self._last :]
            self._given, self._last = decoded(self._tokenizer, self._tokens), len(self._tokens)
        return new
