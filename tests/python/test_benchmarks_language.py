"""The benchmark of language models: what its page tells of what was measured."""

import json

import numpy as np
import onnx
import pytest
from benchmarks import language
from benchmarks.models.language import SIZES, WEIGHTS, _gguf_name, _in_pairs
from onnx import helper, numpy_helper

OURS, GENAI = "onnx_torch", "onnxruntime-genai"


def speed(engine: str, weights: str, factor: float) -> language.Speed:
    of_prompt = {length: [factor * length, 2 * factor * length] for length in language.TOKENS}
    of_token = {length: [factor, factor] for length in language.TOKENS}
    return language.Speed(weights, engine, of_prompt, of_token, [10 * factor, 20 * factor], 1 << 30)


def test_the_page_has_a_row_for_each_pair_of_engines():
    speeds = [speed(OURS, "float32", 0.1), speed(GENAI, "float32", 0.2)]
    read = {"float32": dict.fromkeys(language.TOKENS, 10**9)}
    page = language.page(speeds, {}, read, 2e10, threads=2).splitlines()
    [row] = [line for line in page if f"| {GENAI} |" in line]
    same = "2.00 (2.00–2.00)"
    assert row == f"| float32 | {GENAI} | {' | '.join([same] * 6)} | 0.50 (0.50–0.50) | 1.00 |"
    assert page[-1].startswith("| float32 | 100 | 100 | 1.00 | 0.50 | 0.50 |")
    assert "20.0 GB/s" in page[0] and "2 threads" in page[0]


def test_the_page_tells_of_several_prompts_at_a_time():
    together = {"8 prompts": {OURS: [2.0, 4.0], GENAI: [3.0, 6.0]}, "4 beams": {OURS: [1.0, 1.0]}}
    page = language.page([speed(OURS, "float32", 0.1)], together, {"float32": dict.fromkeys(language.TOKENS, 1)}, 1, 2)
    assert page.splitlines()[-2:] == ["| 8 prompts | 3.00 | 1.50 (1.50–1.50) |", "| 4 beams | 1.00 |  |"]


def test_the_ratio_of_engines_is_of_each_round():
    assert language.ratio([1, 2, 4], [2, 2, 12]) == "2.00 (1.00–3.00)"


def test_a_step_reads_one_row_of_the_table_of_words(tmp_path):
    folder = tmp_path / "float32"
    folder.mkdir()
    (folder / "genai_config.json").write_text(json.dumps({}))
    words = numpy_helper.from_array(np.zeros((50, 4), np.float32), "model.embed_tokens.weight")
    graph = helper.make_graph([], "g", [], [], [words])
    onnx.save(helper.make_model(graph), folder / "model.onnx")
    (folder / "model.onnx.data").write_bytes(bytes(10_000))
    without_past = 10_000 + (folder / "model.onnx").stat().st_size - 50 * 4 * 4
    assert language.bytes_of_step("float32", tmp_path, 0) == without_past
    caches = 2 * SIZES["num_hidden_layers"] * SIZES["num_key_value_heads"] * 64 * 7 * 4
    assert language.bytes_of_step("float32", tmp_path, 7) == without_past + caches


@pytest.mark.parametrize(
    ("name", "theirs"),
    [
        ("model.layers.3.self_attn.q_proj.weight", "blk.3.attn_q.weight"),
        ("model.layers.11.mlp.down_proj.weight", "blk.11.ffn_down.weight"),
        ("model.embed_tokens.weight", "token_embd.weight"),
        ("model.norm.weight", "output_norm.weight"),
        ("lm_head.weight", "output.weight"),
    ],
)
def test_names_of_weights_in_gguf(name, theirs):
    assert _gguf_name(name) == theirs


def test_pairs_that_are_rotated_together_lie_side_by_side():
    rows = np.arange(128.0)[:, np.newaxis]
    assert list(_in_pairs("q_proj.weight", rows)[:4, 0]) == [0, 32, 1, 33]
    assert list(_in_pairs("q_proj.weight", rows)[64:67, 0]) == [64, 96, 65]
    assert _in_pairs("v_proj.weight", rows) is rows


def test_weights_are_named_by_what_the_builder_takes():
    assert set(WEIGHTS) == {"float32", "float16", "8_bits", "4_bits", "4_bits_level_4"}
    assert language.OF_FOUR_BITS in WEIGHTS


def test_a_loop_that_reads_has_a_speed():
    assert 1e8 < language.read_rate(threads=1) < 1e13
