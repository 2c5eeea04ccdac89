"""Small models of transformers with random weights, in Hugging Face's optimum: what it gives here equals torch.

This is a program, which test_optimum.py runs where optimum is. It prints a line for each thing that was compared.
"""

from __future__ import annotations

import sys
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any
from unittest import mock

import onnx_torch

onnx_torch.compat.install()

import numpy as np  # noqa: E402
import onnx  # noqa: E402
import onnxruntime  # noqa: E402
import sentence_transformers  # noqa: E402
import tokenizers  # noqa: E402
import torch  # noqa: E402
import transformers  # noqa: E402
from onnxruntime.quantization import CalibrationMethod  # noqa: E402
from optimum import onnxruntime as optimum  # noqa: E402
from optimum.exporters.onnx import convert, main_export  # noqa: E402
from optimum.onnxruntime.configuration import (  # noqa: E402
    AutoOptimizationConfig,
    AutoQuantizationConfig,
    CalibrationConfig,
)
from PIL import Image  # noqa: E402
from sklearn.linear_model import LogisticRegression  # noqa: E402

WORDS = "the quick brown fox jumps over a lazy dog and runs away from here to there".split()
SPECIAL = {
    "pad_token": "<pad>",
    "unk_token": "<unk>",
    "mask_token": "<mask>",
    "eos_token": "<eos>",
    "sep_token": "<sep>",
}
VOCABULARY = {word: number for number, word in enumerate([*SPECIAL.values(), "<cls>", *WORDS])}
SIZE = len(VOCABULARY)
TEXT = "the quick brown fox jumps over a lazy dog"
# Both are float32, which either engine adds in an order of its own, through all layers of a network.
ROUGH = {"rtol": 1e-3, "atol": 1e-4}

SMALL = {"hidden_size": 16, "num_hidden_layers": 2, "num_attention_heads": 2, "intermediate_size": 32}
SIDES = {
    "d_model": 16,
    "encoder_layers": 2,
    "decoder_layers": 2,
    "encoder_attention_heads": 2,
    "decoder_attention_heads": 2,
    "encoder_ffn_dim": 32,
    "decoder_ffn_dim": 32,
}
IDS = {"pad_token_id": 0, "eos_token_id": 3, "bos_token_id": 5, "decoder_start_token_id": 5}
BERT = transformers.BertConfig(vocab_size=SIZE, max_position_embeddings=64, num_labels=2, **SMALL)
WAV2VEC2 = transformers.Wav2Vec2Config(
    vocab_size=SIZE, conv_dim=(8, 8), conv_stride=(5, 4), conv_kernel=(10, 8), num_feat_extract_layers=2,
    num_conv_pos_embeddings=4, num_conv_pos_embedding_groups=2, classifier_proj_size=8, num_labels=3, **SMALL,
)  # fmt: skip


def tokenizer(kind: type = transformers.PreTrainedTokenizerFast) -> transformers.PreTrainedTokenizerFast:
    words = tokenizers.Tokenizer(tokenizers.models.WordLevel(VOCABULARY, unk_token="<unk>"))
    words.pre_tokenizer = tokenizers.pre_tokenizers.Whitespace()
    return kind(tokenizer_object=words, cls_token="<cls>", model_input_names=["input_ids", "attention_mask"], **SPECIAL)


def text() -> dict[str, torch.Tensor]:
    return dict(tokenizer()([TEXT, TEXT], return_tensors="pt"))


def choices() -> dict[str, torch.Tensor]:
    return {name: torch.stack([value, value.flip(1)], 1) for name, value in text().items()}


def sound(seconds: float = 0.2) -> torch.Tensor:
    return torch.randn(1, int(16000 * seconds), generator=torch.Generator().manual_seed(0))


def images(size: int = 30) -> dict[str, torch.Tensor]:
    return {"pixel_values": torch.randn(2, 3, size, size, generator=torch.Generator().manual_seed(0))}


def patches() -> dict[str, torch.Tensor]:
    """Makes Pix2Struct's patches: row, column and pixels of each."""
    pixels = torch.randn(1, 9, 16 * 16 * 3, generator=torch.Generator().manual_seed(0))
    places = torch.cartesian_prod(torch.arange(1, 4), torch.arange(1, 4)).float()[None]
    return {"flattened_patches": torch.cat([places, pixels], 2), "attention_mask": torch.ones(1, 9)}


# torch's class, its configuration, optimum's class, and a function that makes the inputs of both.
CLASSIFIERS: dict[str, tuple[type, Any, type, Callable[[], dict[str, torch.Tensor]]]] = {
    "text-classification": (
        transformers.BertForSequenceClassification, BERT, optimum.ORTModelForSequenceClassification, text
    ),
    "token-classification": (
        transformers.BertForTokenClassification, BERT, optimum.ORTModelForTokenClassification, text
    ),
    "question-answering": (transformers.BertForQuestionAnswering, BERT, optimum.ORTModelForQuestionAnswering, text),
    "fill-mask": (transformers.BertForMaskedLM, BERT, optimum.ORTModelForMaskedLM, text),
    "feature-extraction": (transformers.BertModel, BERT, optimum.ORTModelForFeatureExtraction, text),
    "multiple-choice": (transformers.BertForMultipleChoice, BERT, optimum.ORTModelForMultipleChoice, choices),
    "image-classification": (
        transformers.ViTForImageClassification,
        transformers.ViTConfig(image_size=30, patch_size=10, num_labels=3, **SMALL),
        optimum.ORTModelForImageClassification,
        images,
    ),
    "audio-classification": (
        transformers.Wav2Vec2ForSequenceClassification, WAV2VEC2, optimum.ORTModelForAudioClassification,
        lambda: {"input_values": sound()},
    ),
    "ctc": (transformers.Wav2Vec2ForCTC, WAV2VEC2, optimum.ORTModelForCTC, lambda: {"input_values": sound()}),
    "audio-frame-classification": (
        transformers.Wav2Vec2ForAudioFrameClassification, WAV2VEC2, optimum.ORTModelForAudioFrameClassification,
        lambda: {"input_values": sound()},
    ),
    "audio-xvector": (
        transformers.Wav2Vec2ForXVector, WAV2VEC2, optimum.ORTModelForAudioXVector,
        lambda: {"input_values": sound()},
    ),
    "zero-shot-image-classification": (
        transformers.CLIPModel,
        transformers.CLIPConfig(
            text_config={"vocab_size": SIZE, "max_position_embeddings": 64, "projection_dim": 8, **SMALL, **IDS},
            vision_config={"image_size": 30, "patch_size": 10, "projection_dim": 8, **SMALL},
            projection_dim=8,
        ),
        optimum.ORTModelForZeroShotImageClassification,
        lambda: {**text(), **images()},
    ),
    "semantic-segmentation": (
        transformers.SegformerForSemanticSegmentation,
        transformers.SegformerConfig(
            hidden_sizes=[8, 8, 16, 16], num_attention_heads=[1, 1, 2, 2], depths=[1, 1, 1, 1],
            decoder_hidden_size=16, num_labels=3,
        ),
        optimum.ORTModelForSemanticSegmentation,
        lambda: images(64),
    ),
    "image-to-image": (
        transformers.Swin2SRForImageSuperResolution,
        transformers.Swin2SRConfig(
            image_size=32, embed_dim=12, depths=[1, 1], num_heads=[2, 2], window_size=4, upscale=2,
        ),
        optimum.ORTModelForImageToImage,
        lambda: images(32),
    ),
    "custom tasks": (
        transformers.BertModel, BERT, optimum.ORTModelForCustomTasks,
        lambda: {**text(), "token_type_ids": torch.zeros_like(text()["input_ids"])},
    ),
}  # fmt: skip
GENERATORS: dict[str, tuple[type, Any, type, Callable[[], dict[str, torch.Tensor]]]] = {
    "gpt2": (
        transformers.GPT2LMHeadModel,
        transformers.GPT2Config(vocab_size=SIZE, n_positions=64, n_embd=16, n_layer=2, n_head=2, **IDS),
        optimum.ORTModelForCausalLM,
        text,
    ),
    "llama": (
        transformers.LlamaForCausalLM,
        transformers.LlamaConfig(vocab_size=SIZE, max_position_embeddings=64, num_key_value_heads=1, **SMALL, **IDS),
        optimum.ORTModelForCausalLM,
        text,
    ),
    "t5": (
        transformers.T5ForConditionalGeneration,
        transformers.T5Config(vocab_size=SIZE, d_model=16, d_kv=8, d_ff=32, num_layers=2, num_heads=2, **IDS),
        optimum.ORTModelForSeq2SeqLM,
        text,
    ),
    "bart": (
        transformers.BartForConditionalGeneration,
        transformers.BartConfig(vocab_size=SIZE, max_position_embeddings=64, forced_eos_token_id=None, **SIDES, **IDS),
        optimum.ORTModelForSeq2SeqLM,
        text,
    ),
    "whisper": (
        transformers.WhisperForConditionalGeneration,
        transformers.WhisperConfig(
            vocab_size=SIZE, num_mel_bins=8, max_source_positions=1500, max_target_positions=64, suppress_tokens=None,
            begin_suppress_tokens=None, **SIDES, **IDS,
        ),
        optimum.ORTModelForSpeechSeq2Seq,
        lambda: {"input_features": torch.randn(1, 8, 3000, generator=torch.Generator().manual_seed(0))},
    ),
    "trocr": (
        transformers.VisionEncoderDecoderModel,
        transformers.VisionEncoderDecoderConfig.from_encoder_decoder_configs(
            transformers.ViTConfig(image_size=30, patch_size=10, **SMALL),
            transformers.TrOCRConfig(
                vocab_size=SIZE, d_model=16, decoder_layers=2, decoder_attention_heads=2, decoder_ffn_dim=32,
                max_position_embeddings=64, cross_attention_hidden_size=16, **IDS,
            ),
            **IDS,
        ),
        optimum.ORTModelForVision2Seq,
        images,
    ),
    "pix2struct": (
        transformers.Pix2StructForConditionalGeneration,
        transformers.Pix2StructConfig(
            text_config={
                "vocab_size": SIZE, "hidden_size": 16, "d_kv": 8, "d_ff": 32, "num_layers": 2, "num_heads": 2, **IDS,
            },
            vision_config={
                "hidden_size": 16, "patch_embed_hidden_size": 768, "d_kv": 8, "d_ff": 32, "num_hidden_layers": 2,
                "num_attention_heads": 2, "seq_len": 64,
            },
            **IDS,
        ),
        optimum.ORTModelForPix2Struct,
        patches,
    ),
}  # fmt: skip


MODELS = {**CLASSIFIERS, **GENERATORS}
# The processors of the models whose export asks for what stands before the model.
PROCESSORS = {
    "pix2struct": lambda: transformers.Pix2StructProcessor(
        transformers.Pix2StructImageProcessor(max_patches=9), tokenizer(transformers.T5TokenizerFast)
    )
}
LEVELS = ("O1", "O2", "O3")
# The operators that ORTOptimizer fuses from level O2 on.
OPTIMIZED = {
    "text-classification": {"Attention", "SkipLayerNormalization"},
    "image-classification": {"SkipLayerNormalization"},
    "gpt2": {"FastGelu", "SkipLayerNormalization"},
    "t5": {"SkipSimplifiedLayerNormalization"},
    "bart": {"SkipLayerNormalization"},
}
# The task that main_export is told, by the model's name.
VALIDATED = {
    "text-classification": "text-classification",
    "image-classification": "image-classification",
    "ctc": "automatic-speech-recognition",
    "gpt2": "text-generation-with-past",
    "t5": "text2text-generation-with-past",
    "whisper": "automatic-speech-recognition-with-past",
}


def both(folder: Path, name: str, **options: Any) -> tuple[Any, Any]:
    """Gives a model of torch, and optimum's of the same weights, which optimum has exported."""
    of_torch, config, of_optimum, _ = MODELS[name]
    saved, exported = folder / name, folder / f"{name}.onnx"
    if not saved.exists():
        torch.manual_seed(0)
        of_torch(config).save_pretrained(saved)
        if name in PROCESSORS:
            PROCESSORS[name]().save_pretrained(saved)
        of_optimum.from_pretrained(saved, export=True).save_pretrained(exported)
    return of_torch.from_pretrained(saved).eval(), of_optimum.from_pretrained(exported, **options)


def compare(what: str, ours: Any, theirs: Any) -> None:
    given = {name: value for name, value in ours.items() if isinstance(value, torch.Tensor)}
    assert given, what
    for name, value in given.items():
        np.testing.assert_allclose(value, theirs[name], **ROUGH, err_msg=f"{what}: {name}")
    print("same:", what, flush=True)


def check_classifiers(folder: Path) -> None:
    for name in CLASSIFIERS:
        model, exported = both(folder, name)
        given = MODELS[name][-1]()
        compare(name, exported(**given), model(**given))


def check_generators(folder: Path) -> None:
    for name in GENERATORS:
        for use_io_binding in (False, True):
            model, exported = both(folder, name, use_io_binding=use_io_binding)
            assert exported.use_io_binding == use_io_binding
            compare_generation(name, exported, model)
            print("same:", name, "with" if use_io_binding else "without", "IO binding", flush=True)


def compare_generation(name: str, exported: Any, model: Any) -> None:
    given = MODELS[name][-1]()
    start = {"decoder_input_ids": torch.tensor([[5, 7]])} if model.config.is_encoder_decoder else {}
    inputs = {key: value[:1] for key, value in given.items()} | start
    np.testing.assert_allclose(exported(**inputs).logits, model(**inputs).logits, **ROUGH, err_msg=name)
    for beams in (1, 2):
        options = {"max_new_tokens": 8, "min_new_tokens": 8, "num_beams": beams, "do_sample": False}
        ours, theirs = exported.generate(**given, **options), model.generate(**given, **options)
        assert ours.tolist() == theirs.tolist(), (name, beams)


def check_pipelines(folder: Path) -> None:
    image = Image.fromarray(np.arange(30 * 30 * 3, dtype=np.uint8).reshape(30, 30, 3))
    few = {"max_new_tokens": 4, "do_sample": False}
    images = {"image_processor": transformers.ViTImageProcessor(size={"height": 30, "width": 30})}
    sounds = {"feature_extractor": transformers.Wav2Vec2FeatureExtractor()}
    labels = {"candidate_labels": ["fox", "dog"]}
    pipelines: dict[str, tuple[str, dict[str, Any], tuple[Any, ...], dict[str, Any]]] = {
        "text-classification": ("text-classification", {}, (TEXT,), {}),
        "token-classification": ("token-classification", {}, (TEXT,), {}),
        "question-answering": ("question-answering", {}, (), {"question": "here to there", "context": TEXT}),
        "fill-mask": ("fill-mask", {}, ("the quick <mask> fox",), {}),
        "feature-extraction": ("feature-extraction", {}, (TEXT,), {}),
        "zero-shot-classification": ("text-classification", {}, (TEXT,), labels),
        "image-classification": ("image-classification", images, (image,), {}),
        "audio-classification": ("audio-classification", sounds, (sound()[0].numpy(),), {}),
        "text-generation": ("gpt2", {}, (TEXT,), few),
        "text2text-generation": ("t5", {}, (TEXT,), few),
        "summarization": ("bart", {}, (TEXT,), {**few, "min_length": 0}),
    }
    for task, (name, parts, given, options) in pipelines.items():
        model, exported = both(folder, name)
        parts = parts or {"tokenizer": tokenizer()}
        ours = optimum.pipeline(task, model=exported, **parts)(*given, **options)
        theirs = transformers.pipeline(task, model=model, **parts)(*given, **options)
        same(ours, theirs, task)
        print("same:", task, flush=True)


def same(ours: Any, theirs: Any, what: str) -> None:
    """Checks that results are equal but for the rounding of floats."""
    assert type(ours) is type(theirs), what
    if isinstance(theirs, dict):
        assert ours.keys() == theirs.keys(), what
        same(list(ours.values()), list(theirs.values()), what)
    elif isinstance(theirs, list):
        assert len(ours) == len(theirs), what
        for one, other in zip(ours, theirs, strict=True):
            same(one, other, what)
    elif isinstance(theirs, (float, np.floating)):
        np.testing.assert_allclose(ours, theirs, **ROUGH, err_msg=what)
    else:
        assert ours == theirs, what


def check_quantizer(folder: Path) -> None:
    model, _ = both(folder, "text-classification")
    quantizer = optimum.ORTQuantizer.from_pretrained(folder / "text-classification.onnx")
    quantizer.quantize(save_dir=folder / "quantized", quantization_config=AutoQuantizationConfig.avx2(is_static=False))
    proto = onnx.load(folder / "quantized" / "model_quantized.onnx")
    assert any(node.op_type == "MatMulInteger" for node in proto.graph.node)
    quantized = optimum.ORTModelForSequenceClassification.from_pretrained(folder / "quantized")
    ours, theirs = quantized(**text()).logits, model(**text()).logits
    assert 0 < (ours - theirs).abs().max() < 0.02 * theirs.abs().max(), (ours, theirs)
    print("same: but for 8 bits, text-classification", flush=True)
    words = {name: value[0].tolist() for name, value in text().items()}
    rows = [{**words, "token_type_ids": [0] * len(words["input_ids"])}] * 2
    for method in CalibrationMethod.MinMax, CalibrationMethod.Entropy, CalibrationMethod.Percentile:
        calibration = CalibrationConfig("", "", "", 2, method, num_bins=128, num_quantized_bins=128, percentile=99.999)
        quantizer = optimum.ORTQuantizer.from_pretrained(folder / "text-classification.onnx")
        ranges = quantizer.fit(rows, calibration, folder / "augmented.onnx", operators_to_quantize=["MatMul"])
        static = AutoQuantizationConfig.avx2(is_static=True, per_channel=False, operators_to_quantize=["MatMul"])
        target = folder / method.name
        quantizer.quantize(save_dir=target, quantization_config=static, calibration_tensors_range=ranges)
        assert any(node.op_type == "DequantizeLinear" for node in onnx.load(target / "model_quantized.onnx").graph.node)
        ours = optimum.ORTModelForSequenceClassification.from_pretrained(target)(**text()).logits
        assert 0 < (ours - theirs).abs().max() < 0.05 * theirs.abs().max(), (method, ours, theirs)
        print("same: but for 8 bits, text-classification, calibrated by", method.name, flush=True)


def check_optimizer(folder: Path) -> None:
    for name in OPTIMIZED:
        model, _ = both(folder, name)
        for level in LEVELS:
            source, target = folder / f"{name}.onnx", folder / f"{name}, {level}"
            files = [path.name for path in source.glob("*.onnx")]
            optimizer = optimum.ORTOptimizer.from_pretrained(source, file_names=files)
            optimizer.optimize(getattr(AutoOptimizationConfig, level)(), target, file_suffix=None)
            nodes = [node for path in target.glob("*.onnx") for node in onnx.load(path).graph.node]
            assert level == "O1" or OPTIMIZED[name] <= {node.op_type for node in nodes}, (name, level)
            optimized = MODELS[name][2].from_pretrained(target)
            if name in GENERATORS:
                compare_generation(name, optimized, model)
                print("same:", name, "optimized to", level, flush=True)
            else:
                given = MODELS[name][-1]()
                compare(f"{name} optimized to {level}", optimized(**given), model(**given))


def check_export(folder: Path) -> None:
    """Checks that main_export runs what it writes, and says that this gives what torch gives."""
    for name, task in VALIDATED.items():
        both(folder, name)
        target = folder / f"{name}, validated"
        with mock.patch.object(convert, "logger") as log:
            main_export(str(folder / name), target, task=task, do_validation=True)
        told = [str(call.args[0]) for call in log.info.call_args_list + log.warning.call_args_list]
        assert any("The ONNX export succeeded and" in line for line in told), told
        print("same:", name, "as main_export finds", flush=True)


def sentence_model(folder: Path) -> sentence_transformers.SentenceTransformer:
    """Makes a small BERT and the mean of what it gives, saved in a folder."""
    torch.manual_seed(0)
    transformers.BertModel(BERT).save_pretrained(folder / "bert")
    words = tokenizer()
    words.model_max_length = 32
    words.save_pretrained(folder / "bert")
    bert = sentence_transformers.models.Transformer(str(folder / "bert"))
    mean = sentence_transformers.models.Pooling(bert.get_word_embedding_dimension())
    model = sentence_transformers.SentenceTransformer(modules=[bert, mean], device="cpu")
    model.save(str(folder / "sentences"))
    return model


TEXTS = [TEXT, "a fox runs", "the lazy dog jumps over here", "there"]


def check_sentences(folder: Path) -> None:
    model = sentence_model(folder)
    exported = sentence_transformers.SentenceTransformer(str(folder / "sentences"), backend="onnx", device="cpu")
    np.testing.assert_allclose(exported.encode(TEXTS), model.encode(TEXTS), **ROUGH)
    print("same: sentence-transformers, embeddings", flush=True)

    both(folder, "text-classification")
    tokenizer().save_pretrained(folder / "text-classification")
    pairs = [(TEXT, text) for text in TEXTS]
    scores = [
        sentence_transformers.CrossEncoder(str(folder / "text-classification"), backend=backend).predict(pairs)
        for backend in ("onnx", "torch")
    ]
    np.testing.assert_allclose(*scores, **ROUGH)
    print("same: sentence-transformers, pairs", flush=True)


def check_setfit(folder: Path) -> None:
    from setfit.exporters.onnx import export_onnx

    body = sentence_model(folder)
    embeddings = body.encode(TEXTS)
    head = LogisticRegression(C=100).fit(embeddings, [0, 1, 0, 1])
    export_onnx(body, head, opset=17, output_path=str(folder / "setfit.onnx"))
    session = onnxruntime.InferenceSession(folder / "setfit.onnx")
    given = {**body.tokenizer(TEXTS, padding=True, return_tensors="np")}
    given["token_type_ids"] = np.zeros_like(given["input_ids"])
    labels, chances = session.run(None, given)
    assert labels.tolist() == head.predict(embeddings).tolist()
    np.testing.assert_allclose(chances, head.predict_proba(embeddings), **ROUGH)
    print("same: setfit", flush=True)


def main() -> None:
    assert onnxruntime.get_build_info().startswith("onnx_torch")
    with tempfile.TemporaryDirectory() as name, torch.no_grad():
        folder = Path(name)
        for part in sys.argv[1:]:
            globals()[f"check_{part}"](folder)


if __name__ == "__main__":
    main()
