"""Models that run in less than a millisecond, most with open dimensions: what people embed."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from .case import Case, Feeds, Network
from .classical import boosting, forest, scaled_regression
from .export import exported
from .recurrent import Outputs
from .transformers import Decoder, encoder

GROUP = "small"
VOCABULARY, LENGTHS, NEW_LENGTHS = 100, (16, 7, 24, 12), range(2, 122)
SIZES = dict(hidden_size=64, num_hidden_layers=2, num_attention_heads=4, intermediate_size=128)
OPEN = {0: "batch", 1: "length"}


def words(length: int) -> dict[str, Tensor]:
    shape = (1, length)
    return {"input_ids": torch.randint(0, VOCABULARY, shape), "attention_mask": torch.ones(shape, dtype=torch.int64)}


def text(make: Callable[[], nn.Module], lengths: Any = LENGTHS) -> Network:
    sets = [words(length) for length in lengths]
    return encoder(make(), sets, dynamic=dict.fromkeys(sets[0], OPEN))


def of_config(name: str, **sizes: Any) -> nn.Module:
    """A model of transformers by the name of its configuration."""
    import transformers

    config = getattr(transformers, f"{name}Config")(vocab_size=VOCABULARY, **sizes)
    return getattr(transformers, f"{name}Model")(config)


TEXTS = {
    "bert": partial(of_config, "Bert", **SIZES),
    "roberta": partial(of_config, "Roberta", **SIZES),
    "electra": partial(of_config, "Electra", **SIZES, embedding_size=64),
    "albert": partial(of_config, "Albert", **SIZES, embedding_size=32),
    "distilbert": partial(of_config, "DistilBert", dim=64, n_layers=2, n_heads=4, hidden_dim=128),
    "gpt2": partial(of_config, "GPT2", n_embd=64, n_layer=2, n_head=4, bos_token_id=0, eos_token_id=0),
    "llama": partial(of_config, "Llama", **SIZES, num_key_value_heads=2, attn_implementation="eager"),
}


def decode() -> Network:
    """A word after sixteen others, with their keys and values."""
    from transformers import GPT2Config, GPT2LMHeadModel

    sizes = dict(n_embd=64, n_layer=2, n_head=4, bos_token_id=0, eos_token_id=0)
    past = {f"past_{kind}_{layer}": torch.randn(1, 4, 16, 16) for layer in range(2) for kind in ("key", "value")}
    module = Decoder(GPT2LMHeadModel(GPT2Config(vocab_size=VOCABULARY, **sizes)))
    inputs = {"input_ids": torch.randint(0, VOCABULARY, (1, 1))} | past
    return Network(module, [inputs], {name: {2: "past_length"} for name in past})


def recurrent(kind: type[nn.RNNBase], size: int, steps: int, **options: Any) -> Network:
    return Network(Outputs(kind(size, size, **options)), [{"x": torch.randn(steps, 1, size)}], {"x": {0: "steps"}})


def images() -> Network:
    """Convolutions, a depthwise one among them, and a classifier, on a picture of 32 x 32."""
    module = nn.Sequential(
        nn.Conv2d(3, 8, 3, 2, 1),
        nn.BatchNorm2d(8),
        nn.ReLU(),
        nn.Conv2d(8, 8, 3, 1, 1, groups=8),
        nn.ReLU(),
        nn.Conv2d(8, 16, 1),
        nn.Hardswish(),
        nn.AdaptiveAvgPool2d(1),
        nn.Flatten(),
        nn.Linear(16, 10),
        nn.Softmax(1),
    )
    return Network(module, [{"x": torch.randn(1, 3, 32, 32)}], {"x": {0: "batch"}})


def mlp() -> Network:
    module = nn.Sequential(nn.Linear(16, 32), nn.ReLU(), nn.Linear(32, 32), nn.ReLU(), nn.Linear(32, 4), nn.Softmax(1))
    return Network(module, [{"x": torch.randn(1, 16)}], {"x": {0: "batch"}})


class Sum(nn.Module):
    """Twenty inputs of one element: what it costs to hand them over."""

    def forward(self, *inputs: Tensor) -> Tensor:
        return torch.stack(inputs).sum(0)


def twenty_inputs() -> Network:
    return Network(Sum(), [{f"x{i}": torch.randn(1) for i in range(20)}])


def write_row(estimator: Callable[[], Any], file: Path) -> list[Feeds]:
    """Fitted to two classes, with what scikit-learn's converter gives for probabilities; one row is asked for."""
    from skl2onnx import to_onnx

    random = np.random.default_rng(0)
    x = random.standard_normal((1000, 12)).astype(np.float32)
    fitted = estimator().fit(x, (x[:, 0] + x[:, 1] > 0).astype(int))
    options = {"zipmap": False} if hasattr(fitted, "predict_proba") else None
    file.write_bytes(to_onnx(fitted, x[:1], options=options).SerializeToString())
    return [{"X": random.standard_normal((1, 12)).astype(np.float32)}]


CASES = [
    *(exported(f"small_{name}", GROUP, partial(text, make)) for name, make in TEXTS.items()),
    *(exported(f"small_{name}_torchscript", GROUP, partial(text, make), "torchscript") for name, make in TEXTS.items()),
    exported("small_gpt2_decode", GROUP, decode, "torchscript"),
    exported("small_bert_new_sizes", GROUP, partial(text, TEXTS["bert"], NEW_LENGTHS), "torchscript"),
    exported("small_lstm", GROUP, partial(recurrent, nn.LSTM, 64, 20), "torchscript"),
    exported(
        "small_lstm_bidirectional", GROUP, partial(recurrent, nn.LSTM, 128, 20, bidirectional=True), "torchscript"
    ),
    exported("small_gru", GROUP, partial(recurrent, nn.GRU, 64, 20), "torchscript"),
    exported("small_images", GROUP, images),
    exported("small_mlp", GROUP, mlp),
    exported("twenty_inputs", GROUP, twenty_inputs, "torchscript"),
    *(
        Case(f"small_{name}", GROUP, partial(write_row, estimator))
        for name, estimator in {"forest": forest, "boosting": boosting, "regression": scaled_regression}.items()
    ),
]
