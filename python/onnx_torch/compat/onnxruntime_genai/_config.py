"""The settings in `genai_config.json`, and the model that they describe."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

from onnx_torch.errors import DeviceError, InputError, InvalidModelError, UnsupportedError
from onnx_torch.language_model import LanguageModel, sizes_of_genai

from ._status import ignored, refused

__all__ = ["Config", "Model"]

Settings = dict[str, Any]

FILE = "genai_config.json"
_PROVIDERS = {"cpu": "CPU", "cuda": "CUDA"}
_OTHER_PARTS = ("embedding", "encoder", "joiner", "speech", "vision")
_BY_PROVIDER = "providers choose the device: append_provider, and set_provider_option with device_id"


class Config:
    """The settings of a folder, which may be changed before a model is made of them."""

    def __init__(self, config_path: str | os.PathLike[str]) -> None:
        self.folder = Path(config_path)
        file = self.folder / FILE
        try:
            self.settings: Settings = json.loads(file.read_text(encoding="utf-8"))
        except OSError as error:
            raise InvalidModelError(f"there is no {file}, which the builder of onnxruntime-genai writes") from error
        except ValueError as error:
            raise InvalidModelError(f"{file} is no JSON: {error}") from error
        if not isinstance(self.settings, dict) or not isinstance(self.settings.get("model"), dict):
            raise InvalidModelError(f'{file} has no "model"')
        self.data: dict[str, Any] = {}

    def overlay(self, json_text: str, /) -> None:
        """Replaces settings that the file has; a list adds to the one that is there."""
        try:
            more = json.loads(json_text)
        except ValueError as error:
            raise InputError(f"an overlay must be JSON: {error}") from error
        if not isinstance(more, dict):
            raise InputError('an overlay must be an object, such as {"search": {"max_length": 100}}')
        self.settings = _merged(self.settings, more)

    @property
    def model(self) -> Settings:
        model: Settings = self.settings["model"]
        return model

    @property
    def decoder(self) -> Settings:
        decoder: Settings = self.model.setdefault("decoder", {})
        return decoder

    @property
    def search(self) -> Settings:
        search: Settings = self.settings.setdefault("search", {})
        return search

    @property
    def eos_token_ids(self) -> list[int]:
        return _as_list(self.model.get("eos_token_id", self.model.get("pad_token_id", [])))

    @property
    def pad_token_id(self) -> int:
        return int(self.model.get("pad_token_id", (self.eos_token_ids or [0])[0]))

    @property
    def session_options(self) -> Settings:
        options: Settings = self.decoder.setdefault("session_options", {})
        return options

    @property
    def providers(self) -> list[Settings]:
        """The providers, objects of one name each, with the provider's options."""
        providers: list[Settings] = self.session_options.setdefault("provider_options", [])
        return providers

    def clear_providers(self) -> None:
        """Removes all providers, so that the model runs on the CPU."""
        self.providers.clear()

    def append_provider(self, provider: str, /) -> None:
        if not any(provider in one for one in self.providers):
            self.providers.append({provider: {}})

    def set_provider_option(self, provider: str, name: str, value: str, /) -> None:
        self.append_provider(provider)
        next(one for one in self.providers if provider in one)[provider][name] = value

    def add_model_data(self, model_filename: str, data: Any, /) -> None:
        """Adds a file of the model that is in memory: the decoder's, or one of weights."""
        self.data[model_filename] = data

    def remove_model_data(self, model_filename: str, /) -> None:
        self.data.pop(model_filename, None)

    from_package_ep = refused("a package of several variants is not read; give the folder of one")
    set_decoder_provider_options_hardware_device_type = ignored(_BY_PROVIDER)
    set_decoder_provider_options_hardware_device_id = ignored(_BY_PROVIDER)
    set_decoder_provider_options_hardware_vendor_id = ignored(_BY_PROVIDER)
    clear_decoder_provider_options_hardware_device_type = ignored(_BY_PROVIDER)
    clear_decoder_provider_options_hardware_device_id = ignored(_BY_PROVIDER)
    clear_decoder_provider_options_hardware_vendor_id = ignored(_BY_PROVIDER)


class Model:
    """A decoder in a folder that onnxruntime-genai's builder has written."""

    def __init__(self, config: Config | str | os.PathLike[str], /) -> None:
        config = config if isinstance(config, Config) else Config(config)
        others = [part for part in _OTHER_PARTS if config.model.get(part, {}).get("filename")]
        others += ["decoder.pipeline"] if config.decoder.get("pipeline") else []
        if others:
            raise UnsupportedError(
                f"the model has more parts than a decoder, {', '.join(others)}, for which this interface is not there; "
                "onnx_torch.LanguageModel runs encoders with decoders, and onnx_torch.prepare any of the files"
            )
        self.config = config
        self._device = _device(config)
        file = config.decoder.get("filename", "model.onnx")
        in_memory = dict(config.data)
        options: Settings = {"threads": int(config.session_options.get("intra_op_num_threads", 0))}
        model: Any = in_memory.pop(file, None)
        if model is None:
            model = config.folder / file
        else:
            model = bytes(model)
            options["base_dir"] = config.folder
            options["shapes"] = sizes_of_genai(config.settings, model)
        if in_memory:
            options["external"] = in_memory
        self.language_model = LanguageModel(model, self._device, **options)

    @property
    def type(self) -> str:
        return str(self.config.model.get("type", ""))

    @property
    def device_type(self) -> str:
        """The device, "CPU" or "CUDA"."""
        return self._device.split(":")[0]

    create_multimodal_processor = refused("models of images and sound are not served")
    create_streaming_processor = refused("models of sound are not served")


def _device(config: Config) -> str:
    named = [item for one in config.providers for item in one.items()]
    if not named:
        return "CPU"
    name, options = named[0]
    device = _PROVIDERS.get(name.removesuffix("ExecutionProvider").lower())
    if device is None:
        raise DeviceError(
            f'there is no provider "{name}" here; config.clear_providers() has the model run on the CPU, and '
            'config.append_provider("cuda") after that on a GPU'
        )
    return device if device == "CPU" else f"{device}:{int(options.get('device_id', 0))}"


def _merged(settings: Any, more: Any) -> Any:
    if isinstance(settings, dict) and isinstance(more, dict):
        return settings | {name: _merged(settings.get(name), value) for name, value in more.items()}
    if isinstance(more, list) and settings is not None:
        return _as_list(settings) + more
    return more


def _as_list(value: Any) -> list[Any]:
    return list(value) if isinstance(value, list) else [value]
