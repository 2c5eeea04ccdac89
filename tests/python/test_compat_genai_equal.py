"""compat.onnxruntime_genai generates what onnxruntime-genai generates, where that is installed."""

from __future__ import annotations

import functools
import json
import shutil
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
import pytest

import genai_models
import onnx_torch.compat.onnxruntime_genai as og
from genai_programs import generate, generator, run


@pytest.fixture(scope="module")
def built(tmp_path_factory: pytest.TempPathFactory):
    """Gives (onnxruntime-genai, a function that gives the folder that its builder writes of a family)."""
    pytest.importorskip("onnxruntime_genai", exc_type=ImportError)
    import onnxruntime_genai

    folder = tmp_path_factory.mktemp("built")
    return onnxruntime_genai, functools.cache(lambda name: genai_models.build(folder, name, "fp32").parent)


ALIKE: dict[str, dict[str, Any]] = {
    "greedy": {},
    "rules": {"repetition_penalty": 1.7, "min_length": 15, "no_repeat_ngram_size": 3},
    "two rows": {"batch_size": 2},
    "beams": {"num_beams": 4, "num_return_sequences": 4},
    "long beams": {"num_beams": 3, "length_penalty": 2.0, "early_stopping": False},
    "beams of two rows": {"num_beams": 2, "batch_size": 2, "num_return_sequences": 2, "length_penalty": 0.3},
    "beams with rules": {"num_beams": 4, "repetition_penalty": 1.3, "min_length": 12},
}


def both(modules: tuple[ModuleType, ModuleType], folder: Path, overlay: Any) -> list[tuple[Any, Any]]:
    made = []
    for module in modules:
        config = module.Config(str(folder))
        config.overlay(json.dumps(overlay))
        made.append((module, module.Model(config)))
    return made


@pytest.mark.parametrize("name", ["Llama", "Qwen2"])
@pytest.mark.parametrize("end", [3, 17])
@pytest.mark.parametrize("options", ALIKE.values(), ids=ALIKE)
def test_the_tokens_of_genai(built, name, end, options):
    genai, folder = built
    pair = both((genai, og), folder(name), {"search": {"max_length": 22}})
    if end != 3:
        pair = both((genai, og), _with_end(folder(name), end), {"search": {"max_length": 22}})
    rng = np.random.default_rng(end)
    for _ in range(4):
        tokens = rng.integers(4, 128, (options.get("batch_size", 1), 5))
        if len(tokens) > 1:
            tokens[1, 3:] = 0
        theirs, ours = (generate(model, tokens, module, **options) for module, model in pair)
        assert ours == theirs


FAMILIES = [name for name in genai_models.DECODERS if name not in ("Llama", "Qwen2", "Mistral")]


@pytest.mark.parametrize("name", FAMILIES)
def test_families(built, name):
    """Families with a window drop what has left it; onnxruntime-genai runs no Mistral of these sizes."""
    genai, folder = built
    pair = both((genai, og), folder(name), {"search": {"max_length": 30}})
    rng = np.random.default_rng(1)
    for count in (3, 7, 19):
        tokens = rng.integers(4, 128, count)
        theirs, ours = (generate(model, tokens, module) for module, model in pair)
        assert ours == theirs
    made = generator(pair[1][1], tokens, max_length=40)
    for _ in range(9):
        made.generate_next_token()
    made.rewind_to(12)
    made.generate_next_token()
    assert made.get_sequence(0).tolist() == generate(pair[1][1], tokens[:12], max_length=13)[0]


def _with_end(folder: Path, end: int) -> Path:
    target = folder.with_name(f"{folder.name}-{end}")
    if not target.exists():
        shutil.copytree(folder, target)
        file = target / "genai_config.json"
        settings = json.loads(file.read_text())
        settings["model"]["eos_token_id"] = end
        file.write_text(json.dumps(settings))
    return target


def test_the_names_of_genai(built):
    """Each name of onnxruntime-genai is there, and each method of its classes."""
    genai, _ = built
    for name in dir(genai):
        if name.startswith("_") or name == "models":
            continue
        assert hasattr(og, name), name
        theirs, ours = getattr(genai, name), getattr(og, name)
        if isinstance(theirs, type) and type(ours).__name__ != "_AbsentClass":
            missing = [one for one in dir(theirs) if not one.startswith("_") and not hasattr(ours, one)]
            fields = getattr(ours, "__dataclass_fields__", {})
            members = {"name", "value"}  # enumerations have them on each member
            assert not [one for one in missing if one not in fields and one not in members], (name, missing)


def test_the_engine_of_genai(built):
    genai, folder = built
    found = []
    for module, model in both((genai, og), folder("Llama"), {"search": {"max_length": 40}}):
        engine = module.Engine(model)
        request = engine.create_request()
        turn = module.TurnOptions(request)
        turn.set_do_sample(False)
        turn.set_max_generated_tokens(6)
        told = []
        for tokens in ([20, 30, 40], [50, 60]):
            request.begin_turn(np.array(tokens, np.int32), turn)
            buffer = engine.create_event_buffer(1)
            while engine.has_pending_requests():
                for event in engine.run(buffer):
                    told.append((event.token, int(event.flags), event.finish_reason.name, event.turn_id))
        found.append(told)
    assert found[0] == found[1]


def test_the_builder_of_genai_runs_here(built, tmp_path):
    """The builder is Python alone, and is taken from onnxruntime-genai where that is installed."""
    program = """
        import sys
        from pathlib import Path
        import onnx_torch
        onnx_torch.compat.install()
        sys.path.insert(0, sys.argv[2])
        import genai_models
        import onnxruntime_genai as og
        file = genai_models.build(Path(sys.argv[1]), "Llama", "int4")
        assert og.Model(str(file.parent)).type == "llama" and og.__id__ == "onnx_torch"
    """
    run(program, str(tmp_path), str(Path(__file__).parent))
