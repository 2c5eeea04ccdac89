"""Text and tokens, by the tokenizer of the package tokenizers, and chat templates of jinja2."""

from __future__ import annotations

import datetime
import json
import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NoReturn

import numpy as np

from onnx_torch.errors import InputError, InvalidModelError
from onnx_torch.text_of_tokens import TextStream, load_tokenizer

from ._config import Config, Model
from ._tensor import Tensor

__all__ = ["Tokenizer", "TokenizerStream"]

Tokens = np.ndarray[Any, np.dtype[np.int32]]

# The tokens that begin and end calls of tools and reasoning, in models whose settings do not tell.
_TAGS = {
    "bot_token_id": ("<tool_call>", "<|tool_call|>"),
    "eot_token_id": ("</tool_call>", "<|/tool_call|>"),
    "bor_token_id": ("<think>",),
    "eor_token_id": ("</think>",),
}


class TokenizerStream:
    """The text of tokens that come one by one."""

    def __init__(self, tokenizer: Tokenizer) -> None:
        self._text = TextStream(tokenizer)

    def decode(self, token: int, /) -> str:
        """Returns the text that a token adds; nothing, while bytes of a character are still to come."""
        return self._text.put([int(token)])


class Tokenizer:
    """The `tokenizer.json` of a model's folder."""

    def __init__(self, source: Model | Config | str | os.PathLike[str], /) -> None:
        config = source.config if isinstance(source, Model) else source
        self._config = config if isinstance(config, Config) else Config(config)
        self._folder = self._config.folder / self._config.model.get("tokenizer_dir", "")
        self._tokenizer = load_tokenizer(None, self._folder)
        self._options = {"add_special_tokens": False, "skip_special_tokens": True}

    def update_options(self, **options: Any) -> None:
        """Sets ``add_special_tokens``, which is off, and ``skip_special_tokens``, which is on."""
        for name, value in options.items():
            if name not in self._options:
                raise InputError(f'a tokenizer has no option "{name}"; it has {", ".join(self._options)}')
            if str(value).lower() not in ("true", "false", "1", "0"):
                raise InputError(f'{name} must be "true" or "false", not {value!r}')
            self._options[name] = str(value).lower() in ("true", "1")

    def encode(self, text: str, /) -> Tokens:
        ids = self._tokenizer.encode(text, add_special_tokens=self._options["add_special_tokens"]).ids
        return np.array(ids, np.int32)

    def decode(self, tokens: Any, /, **given: Any) -> str:
        options = {"skip_special_tokens": self._options["skip_special_tokens"]}
        text: str = self._tokenizer.decode(np.asarray(tokens).ravel().tolist(), **options)
        return text

    def encode_batch(self, texts: Sequence[str], /) -> Tensor:
        """Returns the tokens of each text, filled up at the right with ``pad_token_id``."""
        if not texts:
            raise InputError("there is no text to encode")
        rows = [self.encode(text) for text in texts]
        batch = np.full((len(rows), max(map(len, rows))), self.pad_token_id, np.int32)
        for filled, row in zip(batch, rows, strict=True):
            filled[: len(row)] = row
        return Tensor(batch)

    def decode_batch(self, tokens: Tensor, /) -> list[str]:
        return [self.decode(row) for row in np.asarray(tokens)]

    def to_token_id(self, token: str, /) -> int:
        """Returns the index of a token in the vocabulary, or -1 where there is none."""
        found = self._tokenizer.token_to_id(token)
        return -1 if found is None else int(found)

    def create_stream(self) -> TokenizerStream:
        return TokenizerStream(self)

    @property
    def bos_token_id(self) -> int:
        return self._id("bos_token_id")

    @property
    def eos_token_ids(self) -> list[int]:
        return self._config.eos_token_ids

    @property
    def pad_token_id(self) -> int:
        return self._config.pad_token_id

    @property
    def bot_token_id(self) -> int:
        """The token that begins a call of a tool."""
        return self._id("bot_token_id")

    @property
    def eot_token_id(self) -> int:
        """The token that ends a call of a tool."""
        return self._id("eot_token_id")

    @property
    def bor_token_id(self) -> int:
        """The token that begins reasoning."""
        return self._id("bor_token_id")

    @property
    def eor_token_id(self) -> int:
        """The token that ends reasoning."""
        return self._id("eor_token_id")

    def _id(self, name: str) -> int:
        given = self._config.model.get(name)
        found = (self.to_token_id(token) for token in _TAGS.get(name, ()))
        number = next((number for number in found if number >= 0), None) if given is None else given
        if number is None:
            raise InputError(f'the model has no {name}; "model" in genai_config.json may tell it')
        return int(number)

    def apply_chat_template(
        self,
        messages: str,
        *,
        template_str: str | None = None,
        tools: str | None = None,
        add_generation_prompt: bool = True,
    ) -> str:
        """Makes the text of a conversation.

        Args:
            messages: JSON, a list of objects with ``role`` and ``content``.
            template_str: a template of jinja2; by default ``chat_template.jinja`` beside the model, or what
                ``tokenizer_config.json`` has.
            tools: JSON, a list of functions that the model may call.
            add_generation_prompt: whether the model's answer is begun.
        """
        settings = _json_of(self._folder / "tokenizer_config.json")
        template = template_str or _template(self._folder, settings)
        if not template:
            raise InputError(
                f"{self._folder} has no chat template, neither chat_template.jinja nor chat_template in "
                "tokenizer_config.json; give one by template_str="
            )
        tokens = {name: _text_of(value) for name, value in settings.items() if name.endswith("_token")}
        given = {"messages": _parsed(messages, "messages"), "tools": _parsed(tools, "tools") if tools else None}
        return _rendered(template, **tokens, **given, add_generation_prompt=add_generation_prompt)


def _json_of(file: Path) -> dict[str, Any]:
    if not file.is_file():
        return {}
    try:
        settings: dict[str, Any] = json.loads(file.read_text(encoding="utf-8"))
    except ValueError as error:
        raise InvalidModelError(f"{file} is no JSON: {error}") from error
    return settings


def _text_of(token: Any) -> Any:
    return token.get("content") if isinstance(token, dict) else token


def _template(folder: Path, settings: dict[str, Any]) -> str:
    file = folder / "chat_template.jinja"
    if file.is_file():
        return file.read_text(encoding="utf-8")
    found = settings.get("chat_template") or ""
    if isinstance(found, list):  # a list has several templates, each with its name
        named = {one["name"]: one["template"] for one in found}
        found = named.get("default", "")
    return str(found)


def _parsed(text: Any, name: str) -> Any:
    if not isinstance(text, str):
        return text
    try:
        return json.loads(text)
    except ValueError as error:
        raise InputError(f"{name} must be JSON: {error}") from error


def _rendered(template: str, **given: Any) -> str:
    """Fills in a template, with the settings and functions that transformers gives its templates."""
    try:
        import jinja2
        import jinja2.ext
        import jinja2.sandbox
    except ImportError as error:
        raise InputError("chat templates need the package jinja2: pip install jinja2") from error

    def raise_exception(message: str) -> NoReturn:
        raise jinja2.TemplateError(message)

    def to_json(value: Any, indent: int | None = None) -> str:
        return json.dumps(value, ensure_ascii=False, indent=indent)

    environment = jinja2.sandbox.ImmutableSandboxedEnvironment(
        trim_blocks=True, lstrip_blocks=True, extensions=[jinja2.ext.loopcontrols]
    )
    environment.filters["tojson"] = to_json
    environment.globals["raise_exception"] = raise_exception
    environment.globals["strftime_now"] = lambda form: datetime.datetime.now().strftime(form)
    try:
        return environment.from_string(template).render(**given)
    except Exception as error:  # a template may do anything with its arguments
        raise InputError(f"the chat template does not take these messages: {error}") from error
