from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from .options import AllowAten, Device, Input, Limit, Links, Seed, Shape, Threads, feeds_of, shapes_of, trust_of
from .terminal import progress, table

if TYPE_CHECKING:
    from onnx_torch.benchmark import Benchmark
    from onnx_torch.generation_benchmark import GenerationBenchmark

_PROMPT, _TOKENS = 128, 64


def bench(
    model: Annotated[
        Path,
        typer.Argument(metavar="MODEL.onnx", exists=True, help="The model's file; with --generate, or its folder."),
    ],
    engine: Annotated[
        list[str] | None,
        typer.Option(
            help="onnx_torch, onnxruntime or reference; can be repeated. By default the first, and the second where it "
            "is installed."
        ),
    ] = None,
    input: Input = None,
    rounds: Annotated[int, typer.Option(min=1, help="How often each engine has its turn.")] = 5,
    runs: Annotated[int, typer.Option(min=1, help="How many runs a turn is.")] = 20,
    warm_up: Annotated[int, typer.Option(min=0, help="How many runs to do before all.")] = 3,
    seed: Seed = 0,
    device: Device = "CPU",
    threads: Threads = 0,
    shape: Shape = None,
    limit: Limit = None,
    allow_aten: AllowAten = "checked",
    links: Links = "follow",
    generate: Annotated[
        bool, typer.Option("--generate", help="Measure how fast a language model reads a prompt and generates tokens.")
    ] = False,
    prompt: Annotated[
        int | None, typer.Option(min=1, help=f"With --generate: how many tokens are read; {_PROMPT} by default.")
    ] = None,
    tokens: Annotated[
        int | None, typer.Option(min=2, help=f"With --generate: how many are generated; {_TOKENS} by default.")
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print the figures as JSON.")] = False,
) -> None:
    """Measure a model's latency, or how fast it generates, here and in onnxruntime, each in a process of its own."""
    import onnx_torch
    from onnx_torch._models.files import read_model

    for name, value in (("--prompt", prompt), ("--tokens", tokens)):
        if value is not None and not generate:
            raise typer.BadParameter("it goes with --generate", param_hint=name)
    if model.is_dir() and not generate:
        raise typer.BadParameter(f"{str(model)!r} is a folder; a language model goes with --generate")
    trust = trust_of(limit, allow_aten, links)
    where = f"in turns, on {device}, {threads or 'default'} threads"
    with progress("Measuring") as report:
        if generate:
            speeds = onnx_torch.bench_generation(
                model,
                engine,
                prompt=prompt or _PROMPT,
                tokens=tokens or _TOKENS,
                rounds=rounds,
                device=device,
                threads=threads,
                seed=seed,
                **trust,
                progress=report,
            )
        else:
            latencies = onnx_torch.bench(
                model,
                feeds_of(read_model(model), input, seed, shape),
                engine,
                rounds=rounds,
                runs=runs,
                warm_up=warm_up,
                device=device,
                threads=threads,
                shapes=shapes_of(shape),
                **trust,
                progress=report,
            )
    if generate:
        _show_speeds(
            speeds, f"{rounds} rounds of {tokens or _TOKENS} tokens after {prompt or _PROMPT}, {where}", as_json
        )
    else:
        _show_latencies(latencies, f"{rounds} rounds of {runs} runs each, {where}", as_json)


def _show_latencies(found: Benchmark, title: str, as_json: bool) -> None:
    if as_json:
        print(json.dumps({"engines": [{"engine": one.engine, "rounds": one.rounds} for one in found.latencies]}))
        return
    rows = (
        (one.engine, *(f"{1e3 * s:.3f}" for s in (one.median, one.mean, one.percentile(95), one.fastest)))
        for one in found.latencies
    )
    table(["engine", ">median ms", ">mean", ">95 %", ">fastest"], rows)
    print(title)
    for ratio in found.ratios():
        print(ratio)


def _show_speeds(found: GenerationBenchmark, title: str, as_json: bool) -> None:
    if as_json:
        print(json.dumps({"same_tokens": found.same_tokens, "engines": [one.as_dict() for one in found.speeds]}))
        return
    rows = (
        (
            one.engine,
            *(f"{rate:.1f}" for rate in (one.prompt_rate, one.decode_rate)),
            f"{one.first_seconds:.3f}",
            f"{one.peak_bytes / 2**20:.0f}",
        )
        for one in found.speeds
    )
    table(["engine", ">prompt tokens/s", ">decode tokens/s", ">first token s", ">peak MiB"], rows)
    print(title)
    for ratio in found.ratios():
        print(f"for a token, {ratio}")
    if not found.same_tokens:
        print("the engines have generated different tokens")
