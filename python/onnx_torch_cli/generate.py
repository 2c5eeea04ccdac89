from __future__ import annotations

import time
from pathlib import Path
from typing import Annotated, Any

import typer

from .options import AllowAten, Device, Limit, Links, Optimize, Precision, Threads, trust_of
from .terminal import note, working

Folder = Annotated[
    Path,
    typer.Argument(metavar="MODEL", exists=True, help="The model's file, or a folder that an exporter has written."),
]


def generate(
    model: Folder,
    text: Annotated[str, typer.Argument(help="What the text begins with; with --ids, tokens: 1,15043,29892.")],
    max_new_tokens: Annotated[int, typer.Option(min=1, metavar="COUNT", help="How many tokens at most.")] = 128,
    sample: Annotated[bool, typer.Option("--sample", help="Draw tokens, in place of the likeliest ones.")] = False,
    temperature: Annotated[float | None, typer.Option(help="With --sample: more than 1 is more varied.")] = None,
    top_k: Annotated[
        int | None, typer.Option(min=0, help="With --sample: draw from so many tokens; 0: from all.")
    ] = None,
    top_p: Annotated[
        float | None, typer.Option(help="With --sample: draw from the likeliest tokens, to this sum.")
    ] = None,
    seed: Annotated[int | None, typer.Option(min=0, help="With --sample: of the random numbers.")] = None,
    repetition_penalty: Annotated[float | None, typer.Option(help="More than 1 makes repetition less likely.")] = None,
    num_beams: Annotated[int, typer.Option(min=1, help="Follow so many texts, and print the likeliest one.")] = 1,
    eos_token_id: Annotated[list[int] | None, typer.Option(help="A token that ends the text; can be repeated.")] = None,
    stop: Annotated[list[str] | None, typer.Option(metavar="TEXT", help="Ends the text; can be repeated.")] = None,
    tokenizer: Annotated[
        Path | None, typer.Option(metavar="FILE", exists=True, help="A tokenizer.json; else the one beside the model.")
    ] = None,
    ids: Annotated[bool, typer.Option("--ids", help="Take and print tokens: no tokenizer is needed.")] = False,
    layout: Annotated[
        bool, typer.Option("--layout", help="Print first what the model's inputs and outputs are.")
    ] = False,
    device: Device = "CPU",
    precision: Precision = "float32",
    optimize: Optimize = True,
    threads: Threads = 0,
    limit: Limit = None,
    allow_aten: AllowAten = "checked",
    links: Links = "follow",
) -> None:
    """Generate text with a language model, and print it as it comes, with its speed at the end."""
    import onnx_torch

    start = time.perf_counter()
    with working("Preparing"):
        lm = onnx_torch.LanguageModel(
            model,
            device,
            tokenizer=tokenizer,
            precision=precision,
            optimize=optimize,
            threads=threads,
            **trust_of(limit, allow_aten, links),
        )
        prompt = _tokens(text) if ids else lm.encode(text)
    prepared = time.perf_counter() - start
    if layout:
        note(str(lm.layout))
    options: dict[str, Any] = {
        "max_new_tokens": max_new_tokens,
        "do_sample": sample or None,
        "temperature": temperature,
        "top_k": top_k,
        "top_p": top_p,
        "seed": seed,
        "repetition_penalty": repetition_penalty,
        "num_beams": num_beams,
        "eos_token_id": eos_token_id or None,
        "stop_strings": stop or None,
    }
    start = time.perf_counter()
    first, count = start, 0
    shown = lm.text_stream() if not ids else None
    tokens = iter(
        lm.generate(prompt, **options)[len(prompt) :] if num_beams > 1 else lm.generate(prompt, stream=True, **options)
    )
    for token in tokens:
        count += 1
        if count == 1:
            first = time.perf_counter()
        print(shown.put([token]) if shown else token, end="" if shown else " ", flush=True)
    end = time.perf_counter()
    print(shown.end() if shown else "", flush=True)
    note(f"Prepared in {prepared:.3f} s; {_speed(len(prompt), count, first - start, end - first, num_beams)}")


def _speed(prompt: int, count: int, first: float, rest: float, beams: int) -> str:
    if beams > 1:
        return f"{count} tokens after {prompt} in {first + rest:.3f} s"
    text = f"{prompt} tokens read and one generated in {first:.3f} s"
    return text if count < 2 else f"{text}, {count - 1} more at {(count - 1) / rest:.1f} tokens per second"


def _tokens(text: str) -> list[int]:
    try:
        return [int(token) for token in text.replace(",", " ").split()]
    except ValueError:
        message = f"{text!r} are no tokens, such as 1,15043,29892"
        raise typer.BadParameter(message, param_hint="TEXT") from None
