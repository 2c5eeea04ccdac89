"""Models that no one tunes to: drawn by a seed from all that torchvision, timm and transformers have."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator
from functools import cache, partial
from typing import Any

import torch
from torch import Tensor, nn

from .case import Case, Exporter, Network
from .export import exported
from .transformers import Positional

GROUP = "held out"
MOST_WEIGHTS, MOST_PIXELS = 60_000_000, 384 * 384
VOCABULARY, LENGTHS = 1000, (32, 9, 48, 21)
LAYERS = "num_hidden_layers num_layers n_layer n_layers encoder_layers decoder_layers num_encoder_layers".split()
WIDTHS = "hidden_size d_model n_embd intermediate_size num_attention_heads n_head num_key_value_heads".split()
WIDEST = 512


class Unsuited(Exception):
    """A network was drawn that is too large to measure, or has inputs that nobody but its authors can make."""


def drawn(seed: int) -> Iterator[Case]:
    """Draws cases without end, the same for a seed. Some cannot be made: not every network can be exported."""
    chance, seen = random.Random(seed), set[str]()
    while True:
        source = chance.choice(list(SOURCES))
        kind, exporter = chance.choice(names(source)), chance.choice([*Exporter.__args__])
        name = f"{source}_{kind}_{exporter}".replace(".", "_").replace("-", "_")
        if name not in seen:
            seen.add(name)
            yield exported(name, GROUP, partial(SOURCES[source], kind), exporter)


@cache
def names(source: str) -> list[str]:
    """Lists the models of a package, in the order of the alphabet."""
    if source == "torchvision":
        import torchvision

        return sorted(torchvision.models.list_models(torchvision.models))
    if source == "timm":
        import timm

        return sorted(timm.list_models())
    from transformers.models.auto.modeling_auto import MODEL_MAPPING_NAMES

    return sorted(MODEL_MAPPING_NAMES)


def small_enough(make: Callable[[], nn.Module]) -> nn.Module:
    """Makes a network, if it is not too large; memory is taken only then."""
    with torch.device("meta"):
        weights = sum(weight.numel() for weight in make().parameters())
    if weights > MOST_WEIGHTS:
        raise Unsuited(f"It has {weights:,} weights; {MOST_WEIGHTS:,} are the most that are measured.")
    return make()


def of_torchvision(name: str) -> Network:
    import torchvision

    size = 299 if name == "inception_v3" else 224
    module = small_enough(partial(torchvision.models.get_model, name, weights=None))
    return Network(module, [{"image": torch.randn(1, 3, size, size)}])


def of_timm(name: str) -> Network:
    import timm

    shape = timm.get_pretrained_cfg(name).input_size if timm.is_model_pretrained(name) else (3, 224, 224)
    if shape[1] * shape[2] > MOST_PIXELS:
        raise Unsuited(f"Its images have {shape[1]} x {shape[2]} pixels.")
    module = small_enough(partial(timm.create_model, name, pretrained=False, exportable=True))
    return Network(module, [{"image": torch.randn(1, *shape)}])


def of_transformers(kind: str) -> Network:
    """Makes two layers of a kind of model, at most 512 wide, with the inputs that its class says that it takes."""
    from transformers import CONFIG_MAPPING, AutoModel

    config = reduced(CONFIG_MAPPING[kind]())
    module = small_enough(partial(AutoModel.from_config, config, attn_implementation="eager"))
    if module.main_input_name != "input_ids":
        return Network(Positional(module, [module.main_input_name]), [signal(module.main_input_name, config)])
    sets = [words(length) for length in LENGTHS]
    return Network(Positional(module, list(sets[0])), sets, dict.fromkeys(sets[0], {1: "length"}))


def reduced(config: Any) -> Any:
    """Takes layers away, and makes the rest narrower, with fewer heads of the width that they have."""
    widths = [getattr(config, name, None) for name in WIDTHS[:3]]
    widest = max((width for width in widths if isinstance(width, int)), default=0)
    times = 1
    while widest // times > WIDEST:
        times *= 2
    for name in WIDTHS:
        if isinstance(value := getattr(config, name, None), int):
            setattr(config, name, max(value // times, 1))
    for name in LAYERS:
        if isinstance(value := getattr(config, name, None), int):
            setattr(config, name, min(value, 2))
    if hasattr(config, "vocab_size"):
        config.vocab_size = VOCABULARY
    for name in ("pad_token_id", "bos_token_id", "eos_token_id"):
        if hasattr(config, name):
            setattr(config, name, 0)
    config.use_cache = False
    return config


def words(length: int) -> dict[str, Tensor]:
    shape = (1, length)
    return {"input_ids": torch.randint(1, VOCABULARY, shape), "attention_mask": torch.ones(shape, dtype=torch.int64)}


def signal(name: str, config: Any) -> dict[str, Tensor]:
    """Makes a picture or sound for a model that does not read words."""
    if name == "pixel_values":
        size = getattr(config, "image_size", None) or 224
        sides = tuple(size) if isinstance(size, (list, tuple)) else (size, size)
        return {name: torch.randn(1, getattr(config, "num_channels", 3), *sides)}
    if name == "input_values":
        return {name: torch.randn(1, 16000)}
    raise Unsuited(f"Nobody knows what to give it as {name}.")


SOURCES: dict[str, Callable[[str], Network]] = {
    "torchvision": of_torchvision,
    "timm": of_timm,
    "transformers": of_transformers,
}
